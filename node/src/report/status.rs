//! What a cluster looks like, as people and programs read it: `status`, `table`, HTTP and the demo
//! print this.

use crate::config::value::{EvictionPolicy, Lifetime, LossPolicy};
use crate::control::ClusterStatus;
use crate::report::moves::BalanceReport;
use doyen_gossip::agreement::{OtherCluster, Status};
use doyen_placement::division::RangeStart;
use doyen_placement::planner::{self, Unmet};
use doyen_placement::quorum;
use doyen_placement::{
    Division, Keyspace, MemberId, MemberState, Mode, Partition, PartitionId, PartitionRef,
    ReplicaState, Role, Table,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// A cluster at one moment, as one node knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterReport {
    /// The cluster; `None` until this node is a member of one.
    pub cluster_id: Option<String>,
    /// The term of the installed table.
    pub term: u64,
    /// The version of the installed table.
    pub version: u64,
    /// The level of the installed table: what every member speaks.
    #[serde(default)]
    pub level: u16,
    /// The highest level that the node speaks that says this.
    #[serde(default)]
    pub level_max: u16,
    /// The coordinator's name, if one is known.
    pub coordinator: Option<String>,
    /// Every partition serves, has as many copies in sync as it should have, no move is pending and
    /// none is still to be planned; everybody votes who should; and it is the coordinator who says
    /// so, of the table that is shown here.
    pub safe: bool,
    /// Why it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsafe_for: Option<String>,
    /// The members, oldest first.
    pub members: Vec<MemberReport>,
    /// The keyspaces.
    pub keyspaces: Vec<KeyspaceReport>,
    /// Moves under way.
    pub moves: Vec<MoveReport>,
    /// Why nothing moves, where nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// Other clusters of the same secret that were met lately, and that hold data: they never merge
    /// with this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherClusterReport>,
    /// Whether copies move for balance: `on`, or why not.
    #[serde(default)]
    pub balancing: String,
}

/// Another cluster of the same secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherClusterReport {
    /// Which one.
    pub cluster_id: String,
    /// The name of the member of it that was met last.
    pub member: String,
    /// That member's control port.
    pub address: SocketAddr,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberReport {
    /// Its name.
    pub name: String,
    /// Its identity: one process start.
    pub id: String,
    /// Its seniority; the lowest is the oldest.
    pub age: u64,
    /// `live`, `draining`, `drained` (it holds nothing any more), `leaving` or `silent`;
    /// `unanswered` where the table says `live` and it does not answer now.
    pub state: String,
    /// `data` or `witness`.
    #[serde(default)]
    pub role: String,
    /// Its zone, if one was named.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// Its rack, if one was named.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rack: String,
    /// Its host, if one was named.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Its capacity; 100 is the default.
    #[serde(default)]
    pub weight: u32,
    /// How much of its memory (`--memory-max`) it has filled, in percent; `None`: the coordinator,
    /// whom it tells, did not answer or was not told yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_percent: Option<u8>,
    /// QUIC, control.
    pub address: SocketAddr,
    /// QUIC, data.
    pub data: SocketAddr,
    /// RESP.
    pub resp: Option<SocketAddr>,
    /// RESP for cluster-aware clients.
    pub resp_cluster: Option<SocketAddr>,
    /// HTTP.
    pub http: Option<SocketAddr>,
    /// Its data threads, the first one too.
    #[serde(default)]
    pub threads: Vec<ThreadReport>,
}

/// A data thread of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// QUIC, data.
    pub data: Option<SocketAddr>,
    /// RESP for cluster-aware clients.
    pub resp_cluster: Option<SocketAddr>,
}

/// A keyspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyspaceReport {
    /// Its name.
    pub name: String,
    /// How a key finds its partition.
    pub mode: String,
    /// How many partitions it has.
    pub partitions: usize,
    /// Copies beside the primary.
    pub backups: u8,
    /// With how many copies, the primary among them, writes are still acknowledged.
    pub min_in_sync: u8,
    /// What happens when every in-sync copy of a partition is gone: `wait`, or `reset:10m`.
    pub on_loss: String,
    /// Expiry for keys that are written without one: `60s`, or `none`.
    pub default_ttl: String,
    /// Which keys go where memory is full: `none`, `lru`, `random` or `ttl`.
    #[serde(default)]
    pub eviction: String,
    /// Whether keys are kept in their order within a partition. They are in any keyspace of ranges.
    #[serde(default)]
    pub ordered: bool,
    /// Which members may hold and lead its partitions: `primary in zone=a`.
    #[serde(default)]
    pub rules: Vec<String>,
    /// Those of the rules that are not met.
    #[serde(default)]
    pub unmet: Vec<UnmetReport>,
    /// Splits and merges under way.
    #[serde(default)]
    pub reshaping: usize,
    /// Partitions with fewer copies in sync than there should be.
    pub under_replicated: usize,
    /// Partitions that nobody serves.
    pub unavailable: usize,
}

/// A rule that is not met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmetReport {
    /// The rule.
    pub rule: String,
    /// Partitions that break it.
    pub partitions: usize,
    /// Why it cannot be met, or that it is not met yet.
    pub why: String,
}

/// A partition that is on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveReport {
    /// The keyspace.
    pub keyspace: String,
    /// The partition.
    pub partition: u32,
    /// Who holds it in sync, the primary first.
    pub in_sync: Vec<String>,
    /// Who is catching up.
    pub learners: Vec<String>,
    /// Who shall hold it, the primary first; empty where only a copy is being made.
    pub goal: Vec<String>,
}

/// Who holds what, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableReport {
    /// The cluster.
    pub cluster_id: Option<String>,
    /// The term of the table.
    pub term: u64,
    /// The version of the table.
    pub version: u64,
    /// Maps by name.
    pub maps: Vec<MapReport>,
    /// The keyspaces.
    pub keyspaces: Vec<PartitionsReport>,
    /// The table since which this is what is new, as it was asked for: keyspaces and partitions
    /// that it does not name are as they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<TableVersion>,
    /// Keyspaces that were dropped since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
}

/// Which table: terms count first. Written as `TERM.VERSION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TableVersion {
    /// Its term.
    pub term: u64,
    /// Its version.
    pub version: u64,
}

impl TableVersion {
    fn of(table: &Table) -> Self {
        Self {
            term: table.term.0,
            version: table.version.0,
        }
    }
}

impl FromStr for TableVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.bytes()
                .all(|b| b.is_ascii_digit())
                .then(|| text.parse().ok())
                .flatten()
        };
        let parts = text
            .split_once('.')
            .and_then(|(term, version)| Some((number(term)?, number(version)?)));
        let (term, version) = parts
            .ok_or("a table is named by its term and version, as in 3.41: /table tells both")?;
        Ok(Self { term, version })
    }
}

/// A named map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapReport {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u32,
    /// Its keyspace.
    pub keyspace: String,
}

/// The partitions of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionsReport {
    /// The keyspace.
    pub name: String,
    /// Its partitions; empty until they are assigned.
    pub partitions: Vec<PartitionReport>,
    /// Where this is what is new: those that are no more, since they were split or merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<u32>,
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionReport {
    /// Its number.
    pub id: u32,
    /// Which keys it has: `slots`, `tokens` or `range`, by the keyspace's mode.
    #[serde(flatten)]
    pub keys: KeysReport,
    /// `open`, or `assigned` until its primary reports that it serves; `unknown` where this node
    /// cannot tell, because only the coordinator hears of it.
    pub state: PartitionState,
    /// Who serves it.
    pub primary: String,
    /// The other copies in sync.
    pub backups: Vec<String>,
    /// Copies that are catching up.
    pub learners: Vec<String>,
    /// Its epoch.
    pub epoch: u64,
    /// Its lineage: another one each time that it begins empty, because every copy that counted is
    /// gone.
    pub lineage: u64,
}

/// Which keys a partition has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeysReport {
    /// Fixed: those of these slots, the first and the last.
    Slots([u16; 2]),
    /// Ring: those with a token after the first and up to the second, around the end of the ring
    /// where the first is not below the second.
    Tokens([i64; 2]),
    /// Range: those from one key on, up to another and without that one. `None`: to the end.
    Range([Option<StartReport>; 2]),
}

/// Where a range of keys begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartReport {
    /// The number of the map; 0 is that of Redis clients.
    pub map: u32,
    /// The key; bytes that are not printable are written as `\xNN`.
    pub key: String,
}

/// Whether a partition serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartitionState {
    /// Its primary has reported that it serves.
    Open,
    /// Its primary has not reported yet, or is silent.
    Assigned,
    /// The coordinator, who would know, did not answer.
    Unknown,
}

/// In which keyspaces how many partitions are of this kind; empty where none is.
fn counted(keyspaces: &[KeyspaceReport], count: impl Fn(&KeyspaceReport) -> usize) -> String {
    let some = keyspaces
        .iter()
        .map(|k| (count(k), k))
        .filter(|(n, _)| *n > 0);
    some.map(|(n, k)| format!("{n} of {} in {}", k.partitions, k.name))
        .collect::<Vec<_>>()
        .join(", ")
}

impl OtherClusterReport {
    fn new(other: &OtherCluster) -> Self {
        Self {
            cluster_id: other.cluster.to_string(),
            member: other.name.clone(),
            address: other.address,
        }
    }
}

impl std::fmt::Display for OtherClusterReport {
    /// For people who look at one of the two clusters.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "there are two clusters: {} at {} is of another one ({}). They never merge: stop the nodes of one, and start them again with \
             --seed and an address of the other. If that is done already, wait: another cluster is forgotten after 30 s of silence",
            self.member, self.address, self.cluster_id
        )
    }
}

impl MemberReport {
    /// Whether it may be given copies.
    pub fn may_hold(&self) -> bool {
        self.state == "live" && self.role == "data"
    }
}

#[cfg(any(test, feature = "testkit"))]
impl ClusterReport {
    /// Of members of these names, and two partitions with a backup; where it is not safe, one of
    /// them lacks a copy.
    #[doc(hidden)]
    #[must_use]
    pub fn sample(members: &[&str], safe: bool) -> Self {
        use serde_json::json;
        let member = |name: &&str| {
            json!({ "name": name, "id": "1", "age": 1, "state": "live", "role": "data", "address": "127.0.0.1:1", "data": "127.0.0.1:2",
                    "resp": null, "resp_cluster": null, "http": null })
        };
        let few = u8::from(!safe);
        serde_json::from_value(json!({
            "cluster_id": "c", "term": 1, "version": 1, "coordinator": "ada", "safe": safe, "moves": [],
            "members": members.iter().map(member).collect::<Vec<_>>(),
            "keyspaces": [{ "name": "default", "mode": "fixed", "partitions": 2, "backups": 1, "min_in_sync": 1, "on_loss": "wait",
                            "default_ttl": "none", "under_replicated": few, "unavailable": 0 }],
        }))
        .expect("a report")
    }
}

impl ClusterReport {
    /// From what the control thread says.
    #[must_use]
    pub fn new(cluster: &ClusterStatus) -> Self {
        Self::made(cluster, planner::rules_unmet)
    }

    /// The same, but for the rules that are not met: to find those goes through every layout.
    pub fn brief(cluster: &ClusterStatus) -> Self {
        Self::made(cluster, |_| Vec::new())
    }

    fn made(cluster: &ClusterStatus, unmet: impl FnOnce(&Table) -> Vec<Unmet>) -> Self {
        let status = &cluster.status;
        let Some(table) = cluster.installed.as_deref() else {
            return Self {
                cluster_id: None,
                term: 0,
                version: 0,
                level: 0,
                level_max: cluster.level_max,
                coordinator: None,
                safe: false,
                unsafe_for: None,
                members: Vec::new(),
                keyspaces: Vec::new(),
                moves: Vec::new(),
                waiting: status.waiting.clone(),
                others: Vec::new(),
                balancing: String::new(),
            };
        };
        let closed: BTreeSet<PartitionRef> = status.closed.iter().copied().collect();
        let unanswered: BTreeSet<MemberId> = status.unanswered.iter().copied().collect();
        // Without the answers of a majority nobody holds a lease, so nobody serves (rule 8).
        let halted = status.coordinator.is_none()
            && !quorum::majority(&table.voters, |v| !unanswered.contains(&v));
        let unmet = unmet(table);
        let seen = Seen {
            table,
            closed: &closed,
            unanswered: &unanswered,
            unmet: &unmet,
            halted,
        };
        let keyspaces: Vec<_> = table.keyspaces.iter().map(|k| seen.keyspace(k)).collect();
        let moves: Vec<_> = table
            .keyspaces
            .iter()
            .flat_map(|k| k.partitions.iter().filter_map(|p| movement(table, k, p)))
            .collect();
        // The coordinator may be a table ahead of this node.
        let current = status
            .installed
            .is_some_and(|name| (name.term, name.version) == (table.term, table.version));
        // Where few vote of many that joined, the death of one of the few stops all.
        let settled = planner::elders(table) == table.voters;
        let unserved = counted(&keyspaces, |k| k.unavailable);
        let lacking = counted(&keyspaces, |k| k.under_replicated);
        let safe = [
            (
                cluster.from_coordinator,
                "the coordinator does not answer",
                "",
            ),
            (current, "a newer table is on its way to this node", ""),
            (unserved.is_empty(), "partitions are not served", &unserved),
            (lacking.is_empty(), "copies are lacking", &lacking),
            (moves.is_empty(), "copies are on their way", ""),
            (
                !status.planning,
                "the coordinator looks whether anything is to be moved",
                "",
            ),
            (settled, "members that should vote do not yet", ""),
        ];
        let said = |why: &str, which: &str| {
            if which.is_empty() {
                why.to_owned()
            } else {
                format!("{why} ({which})")
            }
        };
        let unsafe_for = safe
            .iter()
            .find(|(holds, ..)| !holds)
            .map(|(_, why, which)| said(why, which));
        Self {
            cluster_id: Some(table.cluster.to_string()),
            term: table.term.0,
            version: table.version.0,
            level: table.level,
            level_max: cluster.level_max,
            coordinator: status
                .coordinator
                .and_then(|id| table.member(id))
                .map(|m| m.name.clone()),
            safe: unsafe_for.is_none(),
            unsafe_for,
            members: table
                .members
                .iter()
                .map(|m| member(table, m, status))
                .collect(),
            keyspaces,
            moves,
            waiting: status.waiting.clone(),
            others: status.others.iter().map(OtherClusterReport::new).collect(),
            balancing: BalanceReport::new(table).state,
        }
    }
}

impl TableReport {
    /// From what the control thread says.
    #[must_use]
    pub fn new(cluster: &ClusterStatus) -> Self {
        let Some(table) = cluster.installed.as_deref() else {
            return Self {
                cluster_id: None,
                term: 0,
                version: 0,
                maps: Vec::new(),
                keyspaces: Vec::new(),
                since: None,
                dropped: Vec::new(),
            };
        };
        let closed: BTreeSet<PartitionRef> = cluster.status.closed.iter().copied().collect();
        let silent = |m: MemberId| {
            table
                .member(m)
                .is_some_and(|m| m.state == MemberState::Silent)
        };
        let state = |at: PartitionRef, primary| match (
            cluster.from_coordinator,
            closed.contains(&at) || silent(primary),
        ) {
            (_, true) => PartitionState::Assigned,
            (true, false) => PartitionState::Open,
            (false, false) => PartitionState::Unknown,
        };
        Self {
            cluster_id: Some(table.cluster.to_string()),
            term: table.term.0,
            version: table.version.0,
            maps: table
                .maps
                .iter()
                .map(|m| MapReport {
                    name: m.name.clone(),
                    id: m.id.0,
                    keyspace: table
                        .keyspace(m.keyspace)
                        .map(|k| k.name.clone())
                        .unwrap_or_default(),
                })
                .collect(),
            keyspaces: table
                .keyspaces
                .iter()
                .map(|k| {
                    let keys = keys(&k.division);
                    let partition = |p: &Arc<Partition>| PartitionReport {
                        id: p.id.0,
                        keys: keys.get(&p.id).cloned().unwrap_or_else(|| slots(k, p.id)),
                        state: state(
                            PartitionRef {
                                keyspace: k.id,
                                partition: p.id,
                            },
                            p.primary(),
                        ),
                        primary: name(table, p.primary()),
                        backups: p
                            .in_sync()
                            .filter(|&m| m != p.primary())
                            .map(|m| name(table, m))
                            .collect(),
                        learners: p.learners().map(|m| name(table, m)).collect(),
                        epoch: p.epoch.0,
                        lineage: p.lineage.0.into(),
                    };
                    // As they stand, whatever their numbers are: those of splits and merges are
                    // given in the order in which they were made.
                    let stand = k.division.partitions();
                    let partitions = match stand
                        .iter()
                        .filter_map(|id| k.partition(*id))
                        .map(partition)
                        .collect::<Vec<_>>()
                    {
                        none if none.is_empty() => k.partitions.iter().map(partition).collect(),
                        all => all,
                    };
                    PartitionsReport {
                        name: k.name.clone(),
                        partitions,
                        gone: Vec::new(),
                    }
                })
                .collect(),
            since: None,
            dropped: Vec::new(),
        }
    }

    /// What is new since this table; everything, where that is not known any more.
    #[must_use]
    pub fn since(cluster: &ClusterStatus, since: TableVersion) -> Self {
        let mut report = Self::new(cluster);
        let Some(table) = cluster.installed.as_deref() else {
            return report;
        };
        let known = cluster
            .former
            .iter()
            .map(|former| &**former)
            .chain([table])
            .find(|former| TableVersion::of(former) == since);
        let Some(former) = known.filter(|former| former.cluster == table.cluster) else {
            return report;
        };
        report.since = Some(since);
        report.dropped = former
            .keyspaces
            .iter()
            .filter(|k| table.keyspace(k.id).is_none())
            .map(|k| k.name.clone())
            .collect();
        report.keyspaces.retain_mut(|reported| {
            let Some(now) = table.keyspaces.iter().find(|k| k.name == reported.name) else {
                return true;
            };
            // Another one of its name is new altogether.
            let Some(before) = former.keyspace(now.id) else {
                return true;
            };
            let same = |id: u32| {
                let both = [before, now].map(|k| k.partition(PartitionId(id)));
                matches!(both, [Some(before), Some(now)] if before == now)
            };
            reported.partitions.retain(|partition| !same(partition.id));
            reported.gone = before
                .partitions
                .iter()
                .filter(|p| now.partition(p.id).is_none())
                .map(|p| p.id.0)
                .collect();
            !reported.partitions.is_empty() || !reported.gone.is_empty()
        });
        report
    }
}

fn slots(keyspace: &Keyspace, partition: PartitionId) -> KeysReport {
    let slots = keyspace.slots_of(partition);
    KeysReport::Slots([*slots.start(), *slots.end()])
}

/// The keys of each partition, where they are no slots.
fn keys(division: &Division) -> BTreeMap<PartitionId, KeysReport> {
    match division {
        Division::Slots | Division::Runs(_) => BTreeMap::new(),
        Division::Arcs(arcs) => {
            let bounds = |arc: usize| {
                arcs.ring()
                    .arc(arc)
                    .map(|arc| KeysReport::Tokens([arc.after.0, arc.upto.0]))
            };
            arcs.partitions()
                .enumerate()
                .filter_map(|(arc, partition)| Some((partition, bounds(arc)?)))
                .collect()
        }
        Division::Ranges(ranges) => {
            let start = |s: &RangeStart| StartReport {
                map: s.map.0,
                key: s.key.escape_ascii().to_string(),
            };
            let ends = ranges
                .starts()
                .iter()
                .skip(1)
                .map(|end| Some(start(end)))
                .chain([None]);
            let bounds = ranges.starts().iter().zip(ends);
            bounds
                .map(|(from, to)| (from.partition, KeysReport::Range([Some(start(from)), to])))
                .collect()
        }
    }
}

fn name(table: &Table, id: MemberId) -> String {
    table
        .member(id)
        .map_or_else(|| id.to_string(), |m| m.name.clone())
}

fn member(table: &Table, m: &doyen_placement::Member, status: &Status) -> MemberReport {
    let unanswered = status.unanswered.contains(&m.id);
    let state = match m.state {
        MemberState::Live if unanswered => "unanswered",
        MemberState::Draining if !planner::holds_anything(table, m.id) => "drained",
        other => state(other),
    };
    MemberReport {
        name: m.name.clone(),
        id: m.id.to_string(),
        age: m.age.0,
        state: state.into(),
        role: if m.role == Role::Data {
            "data"
        } else {
            "witness"
        }
        .into(),
        zone: m.location.zone.clone(),
        rack: m.location.rack.clone(),
        host: m.location.host.clone(),
        weight: m.weight,
        memory_percent: status
            .filled
            .iter()
            .find(|(id, _)| *id == m.id)
            .map(|(_, filled)| *filled),
        address: m.addresses.control,
        data: m.addresses.data,
        resp: m.addresses.resp,
        resp_cluster: m.addresses.resp_cluster,
        http: m.addresses.http,
        threads: (0..m.addresses.threads())
            .map(|t| ThreadReport {
                data: m.addresses.data_of(t),
                resp_cluster: m.addresses.resp_cluster_of(t),
            })
            .collect(),
    }
}

fn state(state: MemberState) -> &'static str {
    match state {
        MemberState::Live => "live",
        MemberState::Draining => "draining",
        MemberState::Leaving => "leaving",
        MemberState::Silent => "silent",
    }
}

/// Members that may hold data: how many copies there can be.
fn holders(table: &Table) -> usize {
    table
        .members
        .iter()
        .filter(|m| planner::may_receive(m))
        .count()
}

/// A table, and what is known beyond it.
struct Seen<'a> {
    table: &'a Table,
    closed: &'a BTreeSet<PartitionRef>,
    unanswered: &'a BTreeSet<MemberId>,
    unmet: &'a [Unmet],
    /// Too few answer for anybody to serve.
    halted: bool,
}

impl Seen<'_> {
    fn keyspace(&self, k: &Keyspace) -> KeyspaceReport {
        let partitions = k.count();
        let report = KeyspaceReport {
            name: k.name.clone(),
            mode: match k.mode {
                Mode::Fixed { .. } => "fixed",
                Mode::Ring { .. } => "ring",
                Mode::Range => "range",
            }
            .to_owned(),
            partitions,
            backups: k.backups,
            min_in_sync: k.min_in_sync,
            on_loss: LossPolicy(k.on_loss).to_string(),
            default_ttl: Lifetime(k.default_ttl_ms.map(Duration::from_millis)).to_string(),
            eviction: EvictionPolicy(k.eviction).to_string(),
            ordered: k.ordered || k.mode == Mode::Range,
            rules: k.rules.iter().map(ToString::to_string).collect(),
            unmet: self
                .unmet
                .iter()
                .filter(|u| u.keyspace == k.id)
                .map(unmet)
                .collect(),
            reshaping: k.reshaping.under_way.len(),
            under_replicated: partitions,
            unavailable: partitions,
        };
        if k.partitions.is_empty() {
            return report;
        }
        let wanted = holders(self.table).min(usize::from(k.backups) + 1);
        // A silent member's copy is none that counts.
        let copies = |p: &Partition| p.in_sync().filter(|&m| !self.silent(m)).count();
        let closed = |p: &Partition| {
            self.closed.contains(&PartitionRef {
                keyspace: k.id,
                partition: p.id,
            })
        };
        let serves = |p: &Partition| !self.halted && !self.silent(p.primary()) && !closed(p);
        KeyspaceReport {
            under_replicated: k.partitions.iter().filter(|p| copies(p) < wanted).count(),
            unavailable: k.partitions.iter().filter(|p| !serves(p)).count(),
            ..report
        }
    }

    fn silent(&self, id: MemberId) -> bool {
        self.unanswered.contains(&id)
            || self
                .table
                .member(id)
                .is_none_or(|m| m.state == MemberState::Silent)
    }
}

fn unmet(unmet: &Unmet) -> UnmetReport {
    let Unmet {
        keyspace: _,
        rule,
        partitions,
        why,
    } = unmet;
    UnmetReport {
        rule: rule.to_string(),
        partitions: *partitions,
        why: why.to_string(),
    }
}

fn movement(table: &Table, k: &Keyspace, p: &Partition) -> Option<MoveReport> {
    let learning = p.replicas.iter().any(|r| r.state == ReplicaState::Learner);
    (learning || p.goal.is_some()).then(|| MoveReport {
        keyspace: k.name.clone(),
        partition: p.id.0,
        in_sync: p.in_sync().map(|m| name(table, m)).collect(),
        learners: p.learners().map(|m| name(table, m)).collect(),
        goal: p.goal.iter().flatten().map(|&m| name(table, m)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Defaults, Options};
    use doyen_placement::{Addresses, Age, ClusterId, KeyspaceId, Location, Member, Reshape};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn member(id: u64) -> Member {
        let at = |port: u64| {
            SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).expect("a small port")))
        };
        Member {
            id: MemberId(id),
            age: Age(0),
            name: format!("node-{id}"),
            role: Role::Data,
            state: MemberState::Live,
            addresses: Addresses {
                control: at(id),
                data: at(id + 100),
                resp: Some(at(id + 200)),
                resp_cluster: None,
                http: None,
                further: Vec::new(),
                hostname: None,
            },
            location: Location::default(),
            weight: 100,
        }
    }

    fn cluster(members: u64) -> Table {
        let config = Options {
            partitions: Some(16),
            ..Options::default()
        }
        .resolve(Defaults::Binary)
        .expect("holds");
        planner::first(
            ClusterId(7),
            config.settings,
            config.keyspace,
            (1..=members).map(member).collect(),
        )
    }

    fn seen(table: Table, closed: Vec<PartitionRef>, from_coordinator: bool) -> ClusterStatus {
        let status = Status {
            me: MemberId(1),
            coordinator: Some(MemberId(1)),
            leading: true,
            installed: Some(table.name()),
            closed,
            planning: false,
            unanswered: Vec::new(),
            filled: Vec::new(),
            waiting: None,
            others: Vec::new(),
        };
        ClusterStatus {
            status,
            from_coordinator,
            level_max: table.level,
            installed: Some(Arc::new(table)),
            former: Vec::new(),
            unheard: Vec::new(),
        }
    }

    #[test]
    fn a_whole_cluster_is_safe_when_its_coordinator_says_so() {
        let mut status = seen(cluster(3), vec![], true);
        status.status.filled = vec![(MemberId(2), 91)];
        let report = ClusterReport::new(&status);
        assert!(report.safe, "{report:?}");
        assert_eq!(
            report
                .members
                .iter()
                .map(|m| m.memory_percent)
                .collect::<Vec<_>>(),
            [None, Some(91), None]
        );
        assert_eq!(report.coordinator.as_deref(), Some("node-1"));
        assert_eq!(
            report.members.iter().map(|m| m.age).collect::<Vec<_>>(),
            [1, 2, 3]
        );
        assert_eq!(report.keyspaces[0].partitions, 16);
        assert!(
            !ClusterReport::new(&seen(cluster(3), vec![], false)).safe,
            "others do not hear what is open"
        );
    }

    #[test]
    fn what_is_new_since_a_table_is_told_and_nothing_else() {
        let former = cluster(3);
        let mut table = former.clone();
        table.version = table.version.next();
        let partition = Arc::make_mut(&mut table.keyspaces[0].partitions[5]);
        partition.epoch = partition.epoch.next();
        let added = Keyspace {
            id: KeyspaceId(9),
            name: "added".into(),
            ..table.keyspaces[0].clone()
        };
        table.keyspaces.push(added);
        let version = TableVersion::of(&former);
        let now = ClusterStatus {
            former: vec![Arc::new(former)],
            ..seen(table.clone(), vec![], true)
        };
        let news = |cluster, since: &str| {
            TableReport::since(cluster, since.parse().expect("a table's name"))
        };
        let told = |report: &TableReport| {
            let keyspace = |k: &PartitionsReport| {
                (
                    k.name.clone(),
                    k.partitions.iter().map(|p| p.id).collect::<Vec<_>>(),
                )
            };
            report.keyspaces.iter().map(keyspace).collect::<Vec<_>>()
        };
        let since = format!("{}.{}", version.term, version.version);
        let report = news(&now, &since);
        assert_eq!(
            (report.since, report.version),
            (Some(version), table.version.0)
        );
        assert_eq!(
            told(&report),
            [
                ("default".into(), vec![5]),
                ("added".into(), (0..16).collect())
            ]
        );
        assert_eq!(
            told(&news(
                &now,
                &format!("{}.{}", table.term.0, table.version.0)
            )),
            [],
            "nothing is newer than the last one"
        );
        let unknown = news(&now, "1.77777");
        assert_eq!(
            (unknown.since, unknown.keyspaces[0].partitions.len()),
            (None, 16),
            "what is not known any more is told whole"
        );

        // A split, and a keyspace that is dropped.
        let split = Reshape::Split {
            partition: PartitionId(3),
            cut: doyen_placement::division::Cut::Half,
        };
        let begun = planner::reshape::begin(&table, KeyspaceId(0), split).expect("it can be split");
        let still = |at| {
            Some(planner::WritesStopped {
                epoch: begun.partition(at)?.epoch,
                ahead_ms: 0,
            })
        };
        let mut done = planner::reshape::finish(&begun, still).expect("it is split");
        done.keyspaces.pop();
        done.version = done.version.next();
        let since = format!("{}.{}", table.term.0, table.version.0);
        let report = news(
            &ClusterStatus {
                former: vec![Arc::new(table)],
                ..seen(done, vec![], true)
            },
            &since,
        );
        assert_eq!(
            (
                report.keyspaces[0].partitions.len(),
                &report.keyspaces[0].gone[..]
            ),
            (2, &[3][..])
        );
        assert_eq!(report.dropped, ["added"]);
    }

    #[test]
    fn what_no_table_is_called_is_refused() {
        for text in [
            "",
            "3",
            ".",
            "3.",
            "-1.2",
            "+1.2",
            "1.2.3",
            "a.b",
            "99999999999999999999.1",
        ] {
            assert!(text.parse::<TableVersion>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_not_open_is_not_safe_and_shows_as_assigned() {
        let at = PartitionRef {
            keyspace: KeyspaceId(0),
            partition: PartitionId(3),
        };
        let status = seen(cluster(3), vec![at], true);
        let report = ClusterReport::new(&status);
        assert_eq!((report.safe, report.keyspaces[0].unavailable), (false, 1));
        let table = TableReport::new(&status);
        let states: Vec<_> = table.keyspaces[0]
            .partitions
            .iter()
            .map(|p| p.state)
            .collect();
        assert_eq!(
            states
                .iter()
                .filter(|s| **s == PartitionState::Assigned)
                .count(),
            1
        );
        assert_eq!(states[3], PartitionState::Assigned);
    }

    #[test]
    fn what_a_silent_member_leads_does_not_show_as_open() {
        let mut table = cluster(3);
        let silent = table.members[1].clone();
        table.members[1] = Arc::new(Member {
            state: MemberState::Silent,
            ..(*silent).clone()
        });
        let report = TableReport::new(&seen(table, vec![], true));
        let open = |led: bool| {
            report.keyspaces[0]
                .partitions
                .iter()
                .filter(|p| (p.primary == silent.name) == led)
                .all(|p| p.state == PartitionState::Open)
        };
        assert!(!open(true) && open(false), "{report:?}");
    }

    #[test]
    fn a_lost_copy_is_not_safe_until_one_node_is_all_there_is() {
        let gone = BTreeMap::from([(MemberId(2), planner::Absence::Silent)]);
        let report = ClusterReport::new(&seen(planner::remove(&cluster(3), &gone), vec![], true));
        assert!(
            !report.safe && report.keyspaces[0].under_replicated > 0,
            "{report:?}"
        );
        let report = ClusterReport::new(&seen(planner::remove(&cluster(2), &gone), vec![], true));
        assert!(
            report.safe,
            "one copy is all that one node can hold: {report:?}"
        );
    }

    #[test]
    fn a_cluster_of_few_voters_is_not_safe_yet() {
        let mut table = cluster(3);
        table.voters.truncate(1);
        assert!(
            !ClusterReport::new(&seen(table, vec![], true)).safe,
            "one death would stop it"
        );
    }

    /// `safe` came a moment early after a join: before the plan for the newcomer was made, nothing
    /// was on its way.
    #[test]
    fn what_is_still_to_be_planned_is_not_safe() {
        let mut status = seen(cluster(3), vec![], true);
        status.status.planning = true;
        assert!(!ClusterReport::new(&status).safe);
        status.status.planning = false;
        assert!(ClusterReport::new(&status).safe);
        // The coordinator speaks of a table that this node does not show yet.
        status.status.installed = Some(cluster(4).name());
        status
            .status
            .installed
            .as_mut()
            .expect("set above")
            .version
            .0 += 1;
        assert!(!ClusterReport::new(&status).safe);
    }

    /// The survivor of a pair showed its dead elder as live, and every partition as served.
    #[test]
    fn who_is_left_without_a_majority_shows_it() {
        let mut status = seen(cluster(2), vec![], false);
        status.status = Status {
            coordinator: None,
            leading: false,
            unanswered: vec![MemberId(1)],
            me: MemberId(2),
            ..status.status
        };
        let report = ClusterReport::new(&status);
        assert_eq!(
            report
                .members
                .iter()
                .map(|m| m.state.as_str())
                .collect::<Vec<_>>(),
            ["unanswered", "live"]
        );
        assert_eq!((report.coordinator, report.safe), (None, false));
        assert_eq!(
            (
                report.keyspaces[0].unavailable,
                report.keyspaces[0].under_replicated
            ),
            (16, 16)
        );
    }

    #[test]
    fn the_json_has_the_fields_that_programs_rely_on() {
        let json = serde_json::to_value(ClusterReport::new(&seen(cluster(2), vec![], true)))
            .expect("json");
        let keys = |v: &serde_json::Value| {
            v.as_object()
                .expect("an object")
                .keys()
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(
            keys(&json),
            [
                "balancing",
                "cluster_id",
                "coordinator",
                "keyspaces",
                "level",
                "level_max",
                "members",
                "moves",
                "safe",
                "term",
                "version"
            ]
        );
        let member = [
            "address",
            "age",
            "data",
            "http",
            "id",
            "name",
            "resp",
            "resp_cluster",
            "role",
            "state",
            "threads",
            "weight",
        ];
        assert_eq!(keys(&json["members"][0]), member);
        let keyspace = [
            "backups",
            "default_ttl",
            "eviction",
            "min_in_sync",
            "mode",
            "name",
            "on_loss",
            "ordered",
            "partitions",
            "reshaping",
            "rules",
            "unavailable",
            "under_replicated",
            "unmet",
        ];
        assert_eq!(keys(&json["keyspaces"][0]), keyspace);
    }
}
