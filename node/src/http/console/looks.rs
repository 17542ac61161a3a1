//! Looks at the cluster for as long as a page is open, once for all pages.
//!
//! Each part has a rhythm of its own and waits for no other: while a member is slow to say what its
//! maps hold, pages still see within a second who is silent.

use super::super::HttpState;
use super::hour::ClusterHour;
use crate::report::alerts::{AlertInputs, alerts};
use crate::report::status::ClusterReport;
use doyen_placement::access::TokenRole;
use doyen_placement::{MemberId, MemberState, Partition, Replica, ReplicaState, Table};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::{Interval, MissedTickBehavior};

/// Time between two looks at the status and the table.
const STATUS: Duration = Duration::from_secs(1);
/// The same for moves and loads.
const LOADS: Duration = Duration::from_secs(2);
/// The same for sizes of maps, for which each partition is asked, and for certificates.
const SLOWLY: Duration = Duration::from_secs(20);
/// Partitions that are shown as the busiest.
const BUSIEST: usize = 20;

/// Looks until no page is open any more, or the node stops.
pub(super) async fn keep(state: Arc<HttpState>) {
    let looks = async {
        tokio::join!(
            look_at_status(&state),
            look_at_loads(&state),
            look_at_maps(&state),
            look_at_samples(&state),
        )
    };
    let mut stopped = state.stopped.clone();
    tokio::select! {
        _ = looks => {}
        () = super::super::wait(&mut stopped) => {}
        () = state.feed.closed() => {}
    }
}

fn every(period: Duration) -> Interval {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

async fn look_at_status(state: &HttpState) {
    let feed = &state.feed;
    let mut ticks = every(STATUS);
    let (mut shown, mut gone): (Option<Arc<Table>>, _) = (None, GoneSince::default());
    let mut certificates = (Vec::new(), 0);
    loop {
        ticks.tick().await;
        if let Some(table) = state.data.table() {
            if !shown.as_ref().is_some_and(|t| Arc::ptr_eq(t, &table)) {
                let members = table.members.iter().map(|m| m.id);
                let places = members.zip(0..).collect();
                feed.show(
                    "map",
                    TokenRole::Operate,
                    &PartitionMap::of(&table, &places),
                );
            }
            shown = Some(table);
        }
        let now = now();
        if now >= certificates.1 {
            certificates = (state.identity.certificate().ends, now + SLOWLY.as_secs());
        }
        let cluster = state.admin.status().await;
        let waiting = cluster.as_ref().err().map(ToString::to_string);
        feed.show("waiting", TokenRole::Read, &waiting);
        let Ok(cluster) = cluster else { continue };
        let gone = gone.of(&cluster, now);
        let alerts = alerts(&AlertInputs {
            cluster: &cluster,
            gone: &gone,
            node: state.identity.name(),
            certificates: &certificates.0,
            now,
        });
        feed.show("status", TokenRole::Read, &with_moments(&cluster, &gone));
        feed.show("alerts", TokenRole::Read, &alerts);
    }
}

async fn look_at_loads(state: &HttpState) {
    let mut ticks = every(LOADS);
    loop {
        ticks.tick().await;
        if let Ok((moves, loads)) = state.admin.moves_and_busiest(BUSIEST).await {
            state.feed.show("moves", TokenRole::Read, &moves);
            state.feed.show("loads", TokenRole::Read, &loads.members);
            state
                .feed
                .show("busiest", TokenRole::Operate, &loads.partitions);
        }
    }
}

async fn look_at_maps(state: &HttpState) {
    let mut ticks = every(SLOWLY);
    loop {
        ticks.tick().await;
        if let Ok(maps) = state.admin.maps().await {
            state.feed.show("maps", TokenRole::Read, &maps);
        }
    }
}

/// Asks all members for their new samples, whenever the own node has one.
async fn look_at_samples(state: &HttpState) {
    let mut ticks = every(STATUS);
    let (mut sampled, mut hour) = (None, ClusterHour::default());
    loop {
        ticks.tick().await;
        let own = state.control.counted().history.since(u64::MAX).next;
        let Some(table) = state.data.table() else {
            continue;
        };
        if sampled.replace(own) == Some(own) {
            continue;
        }
        // One after the other, so that the hours of many members are not held at once.
        for member in &table.members {
            if member.state == MemberState::Silent {
                continue;
            }
            let wanted = hour.wanted(member.id);
            let Ok(new) = state.control.history(member.id, wanted).await else {
                return;
            };
            hour.hear(member.id, &new);
        }
        let (sum, mended) = hour.close(|id| table.member(id).is_some());
        let members = hour.last();
        let members = members.filter_map(|(id, last)| Some((&table.member(id)?.name, last)));
        let members: BTreeMap<_, _> = members.collect();
        let sample = json!({ "number": own, "cluster": sum, "members": members });
        state.feed.show_hour(own, hour.sums(), mended);
        state.feed.show("sample", TokenRole::Read, &sample);
    }
}

/// The present time, in Unix seconds.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Since when members are gone, in Unix seconds. Reports say for how long, which is another text in
/// each second.
#[derive(Debug, Default)]
struct GoneSince(BTreeMap<(String, String), u64>);

impl GoneSince {
    /// The clock and the report round in different moments.
    const ROUNDING: u64 = 2;

    /// The moments of the members that are gone, in the order of the report.
    fn of(&mut self, cluster: &ClusterReport, now: u64) -> Vec<u64> {
        let moments = cluster.gone.iter().map(|one| {
            let who = (one.name.clone(), one.why.clone());
            let since = now.saturating_sub(one.seconds);
            let before = self.0.get(&who).copied();
            let before = before.filter(|before| before.abs_diff(since) <= Self::ROUNDING);
            (who, before.unwrap_or(since))
        });
        let moments: Vec<_> = moments.collect();
        self.0 = moments.iter().cloned().collect();
        moments.into_iter().map(|(_, since)| since).collect()
    }
}

/// The status as pages get it: with the moment `since` in place of `seconds` that grow.
fn with_moments(cluster: &ClusterReport, gone: &[u64]) -> Value {
    // What is shown are texts, numbers, and lists of them.
    let mut shown = serde_json::to_value(cluster).unwrap_or_default();
    let listed = shown.get_mut("gone").and_then(Value::as_array_mut);
    for (one, since) in listed.into_iter().flatten().zip(gone) {
        if let Some(one) = one.as_object_mut() {
            one.remove("seconds");
            one.insert("since".into(), json!(since));
        }
    }
    shown
}

/// Which member holds which partition, as numbers.
#[derive(Serialize)]
struct PartitionMap<'a> {
    /// In order of age.
    members: Vec<&'a str>,
    keyspaces: Vec<KeyspaceMap<'a>>,
}

#[derive(Serialize)]
struct KeyspaceMap<'a> {
    name: &'a str,
    copies: u32,
    /// Most keyspaces number their partitions from 0 on, and have no numbers here.
    ids: Option<Vec<u32>>,
    partitions: PartitionHolders<'a>,
}

impl<'a> PartitionMap<'a> {
    fn of(table: &'a Table, places: &'a BTreeMap<MemberId, i64>) -> Self {
        let keyspaces = table.keyspaces.iter().map(|keyspace| {
            let ids = keyspace.partitions.iter().map(|partition| partition.id.0);
            let in_order = ids.clone().zip(0..).all(|(id, place)| id == place);
            KeyspaceMap {
                name: &keyspace.name,
                copies: u32::from(keyspace.backups) + 1,
                ids: (!in_order).then(|| ids.collect()),
                partitions: PartitionHolders {
                    all: &keyspace.partitions,
                    places,
                },
            }
        });
        Self {
            members: table.members.iter().map(|m| m.name.as_str()).collect(),
            keyspaces: keyspaces.collect(),
        }
    }
}

/// Of each partition the place of the primary in the list of members, of the other copies, and of
/// learners as -1 less that place. They are written one by one: as values of JSON, 16,384
/// partitions took some megabytes for as long as a page was open.
struct PartitionHolders<'a> {
    all: &'a [Arc<Partition>],
    places: &'a BTreeMap<MemberId, i64>,
}

impl Serialize for PartitionHolders<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let place = |replica: &Replica| {
            let place = self.places.get(&replica.member);
            let place = place.copied().unwrap_or(i64::MAX);
            match replica.state {
                ReplicaState::InSync => place,
                ReplicaState::Learner => -1 - place,
            }
        };
        serializer.collect_seq(self.all.iter().map(|partition| {
            let holders = partition.replicas.iter().map(place);
            holders.collect::<Vec<_>>()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::status::GoneReport;

    /// While a member was gone, the status and the alerts were sent again in each second.
    #[test]
    fn what_pages_get_of_members_that_are_gone_stays_the_same() {
        let at = |seconds| ClusterReport {
            gone: vec![GoneReport {
                name: "n2".into(),
                why: "silent".into(),
                seconds,
                longer: false,
            }],
            ..ClusterReport::default()
        };
        let mut since = GoneSince::default();
        let first = since.of(&at(10), 1_000);
        assert_eq!(first, [990]);
        let shown = with_moments(&at(10), &first);
        assert_eq!(shown["gone"][0]["since"], 990);
        for (seconds, now) in [(11, 1_001), (11, 1_002), (13, 1_002), (310, 1_300)] {
            let again = since.of(&at(seconds), now);
            assert_eq!(with_moments(&at(seconds), &again), shown, "{seconds} {now}");
        }
        assert_eq!(since.of(&at(3), 1_400), [1_397], "it went again");
    }
}
