//! What open pages show, kept up to date.
//!
//! ```text
//!   first page opens ──> keep() looks every second ──> sections, each as JSON text
//!                                                        │ a number that rises with each change
//!   stream of a page ── sends the sections that changed ─┘   and events as they happen
//!   last page closes ──> keep() ends at its next look
//! ```
//!
//! A section whose text is as before is not sent again, so a quiet cluster costs a page nothing but
//! signs of life. The cluster is asked once for all pages.

use super::super::HttpState;
use super::super::credentials::{CredentialSource, HttpCaller};
use super::super::failure::{HttpAnswer, HttpFailure};
use crate::events::{ClusterEvent, Events};
use crate::history::{INTERVAL, SAMPLES, Sample};
use crate::report::alerts::alerts;
use axum::body::Body;
use axum::extract::{Extension, State as Shared};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use doyen_placement::access::TokenRole;
use doyen_placement::{MemberId, MemberState, ReplicaState, Table};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

/// Pages that may be open at a time.
const PAGES_MAX: usize = 32;
/// The time between two looks at the cluster.
const LOOK: Duration = Duration::from_secs(1);
/// Moves and loads are looked at in every second look, sizes of maps in every twentieth: each
/// partition is asked for them.
const LOADS_EVERY: u64 = 2;
const MAPS_EVERY: u64 = 20;
/// A stream sends a sign of life this often.
const ALIVE: Duration = Duration::from_secs(5);

/// A part of what pages show.
#[derive(Debug, Clone)]
struct Section {
    /// Rises with each change of any section.
    number: u64,
    json: Arc<str>,
    /// It names keys, so only a token of this role gets it.
    role: TokenRole,
}

/// What is kept for open pages.
#[derive(Debug, Default)]
struct Kept {
    sections: BTreeMap<&'static str, Section>,
    /// The sum over all members, oldest first.
    hour: VecDeque<ClusterSample>,
    /// Whether [`keep`] runs.
    runs: bool,
}

/// Shows the cluster to the pages that are open.
#[derive(Debug)]
pub(in super::super) struct ConsoleFeed {
    /// A lock, because the state of HTTP is shared. One thread runs all that takes it.
    kept: Mutex<Kept>,
    /// The number of the last change.
    changed: watch::Sender<u64>,
}

/// What all members did in one interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
struct ClusterSample {
    commands: u64,
    operations: u64,
    errors: u64,
    /// Of the typical member: the mean over all, by commands.
    p50_us: Option<u64>,
    /// Of the slowest member.
    p99_us: Option<u64>,
    hits: u64,
    misses: u64,
    client_bytes: u64,
    peer_bytes: u64,
    memory: u64,
    memory_max: u64,
    clients: u64,
    /// The members' `p50_us`, each as often as it had commands, and how many commands these were.
    #[serde(skip)]
    halves: (u128, u128),
}

impl ClusterSample {
    /// Adds what another member did.
    fn add(&mut self, sample: &Sample) {
        self.commands += sample.commands;
        self.operations += sample.operations;
        self.errors += sample.errors;
        self.hits += sample.hits;
        self.misses += sample.misses;
        self.client_bytes += sample.client_bytes;
        self.peer_bytes += sample.peer_bytes;
        self.memory += sample.memory;
        self.memory_max += sample.memory_max;
        self.clients += sample.clients;
        self.p99_us = self.p99_us.max(sample.p99_us);
        if let Some(p50) = sample.p50_us {
            let commands = u128::from(sample.commands.max(1));
            self.halves.0 += u128::from(p50) * commands;
            self.halves.1 += commands;
            let mean = self.halves.0.checked_div(self.halves.1);
            self.p50_us = mean.map(|mean| u64::try_from(mean).unwrap_or(u64::MAX));
        }
    }
}

/// Adds the hour of another member. The newest samples of all members are of the same time.
fn add_hour(hour: &mut VecDeque<ClusterSample>, samples: &[Sample]) {
    while hour.len() < samples.len() {
        hour.push_front(ClusterSample::default());
    }
    for (sum, sample) in hour.iter_mut().rev().zip(samples.iter().rev()) {
        sum.add(sample);
    }
}

impl ConsoleFeed {
    pub(in super::super) fn new() -> Self {
        Self {
            kept: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // No holder of the lock panics, and each change leaves the whole consistent.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page opens. The first one starts the looks.
    fn open(&self, state: &Arc<HttpState>) -> HttpAnswer<watch::Receiver<u64>> {
        if self.changed.receiver_count() >= PAGES_MAX {
            let why = format!("{PAGES_MAX} pages are open at this node: close one, or use another");
            return Err(HttpFailure(StatusCode::TOO_MANY_REQUESTS, why));
        }
        let mut page = self.changed.subscribe();
        page.mark_changed();
        let runs = std::mem::replace(&mut self.lock().runs, true);
        if !runs {
            tokio::spawn(keep(state.clone()));
        }
        Ok(page)
    }

    /// No page is open any more, so nothing is kept.
    fn close(&self) -> bool {
        let none = self.changed.receiver_count() == 0;
        if none {
            *self.lock() = Kept::default();
        }
        none
    }

    /// Shows a section, if its text is another than before.
    fn show(&self, name: &'static str, role: TokenRole, content: &impl Serialize) {
        // What is shown are texts, numbers, and lists of them.
        let json: Arc<str> = serde_json::to_string(content).unwrap_or_default().into();
        let mut kept = self.lock();
        if kept
            .sections
            .get(name)
            .is_some_and(|before| before.json == json)
        {
            return;
        }
        let number = *self.changed.borrow() + 1;
        let section = Section { number, json, role };
        kept.sections.insert(name, section);
        drop(kept);
        self.changed.send_replace(number);
    }

    /// The sections that changed after this number, as server-sent events, and the last number.
    fn since(&self, seen: u64, role: TokenRole) -> (String, u64) {
        let (kept, mut text) = (self.lock(), String::new());
        let mut last = seen;
        for (name, section) in &kept.sections {
            last = last.max(section.number);
            if section.number > seen && section.role <= role {
                text += &sent(name, &section.json);
            }
        }
        (text, last)
    }

    /// The last hour of the cluster.
    fn hour(&self) -> Value {
        let kept = self.lock();
        json!({ "seconds": INTERVAL.as_secs(), "samples": kept.hour })
    }
}

/// An event in the format of server-sent events.
fn sent(name: &str, json: &str) -> String {
    format!("event: {name}\ndata: {json}\n\n")
}

/// Looks at the cluster for as long as a page is open.
async fn keep(state: Arc<HttpState>) {
    let mut stopped = state.stopped.clone();
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut look = Looks::default();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = super::super::wait(&mut stopped) => return,
        }
        if state.feed.close() {
            return;
        }
        look.once(&state).await;
    }
}

/// What the last looks saw.
#[derive(Default)]
struct Looks {
    count: u64,
    /// The table that is shown.
    table: Option<Arc<Table>>,
    /// How many samples this node had taken.
    sampled: Option<u64>,
    /// How many samples each member had taken, and the last one.
    samples: BTreeMap<MemberId, (u64, Sample)>,
}

impl Looks {
    async fn once(&mut self, state: &HttpState) {
        let feed = &state.feed;
        self.count += 1;
        let cluster = state.admin.status().await;
        match &cluster {
            Ok(cluster) => {
                feed.show("status", TokenRole::Read, cluster);
                feed.show("alerts", TokenRole::Read, &alerts(cluster));
            }
            Err(why) => feed.show("waiting", TokenRole::Read, &why.to_string()),
        }
        let Some(table) = state.data.table() else {
            return;
        };
        let shown = self.table.as_ref().is_some_and(|t| Arc::ptr_eq(t, &table));
        if !shown {
            feed.show("map", TokenRole::Operate, &partition_map(&table));
        }
        self.table = Some(table.clone());
        if self.count % LOADS_EVERY == 1 {
            if let Ok(moves) = state.admin.moves().await {
                feed.show("moves", TokenRole::Read, &moves);
            }
            if let Ok(loads) = state.admin.loads().await {
                feed.show("loads", TokenRole::Read, &loads.members);
                let mut busiest = loads.partitions;
                busiest.sort_by_key(|each| std::cmp::Reverse(each.reads + each.writes));
                busiest.truncate(20);
                feed.show("busiest", TokenRole::Operate, &busiest);
            }
        }
        if self.count % MAPS_EVERY == 1
            && let Ok(maps) = state.admin.maps().await
        {
            feed.show("maps", TokenRole::Read, &maps);
        }
        self.sample(state, &table).await;
    }

    /// Asks all members for their new samples, once the own node has one.
    async fn sample(&mut self, state: &HttpState, table: &Table) {
        let own = state.control.counted().history.since(u64::MAX).next;
        let before = self.sampled.replace(own);
        if before == Some(own) {
            return;
        }
        let is_first = before.is_none();
        let mut hour = VecDeque::new();
        let known = std::mem::take(&mut self.samples);
        // One after the other, so that the hours of many members are not held at once.
        for member in &table.members {
            if member.state == MemberState::Silent {
                continue;
            }
            let before = known.get(&member.id).copied();
            let since = before.map_or(0, |(next, _)| next);
            let Ok(new) = state.control.history(member.id, since).await else {
                return;
            };
            // Members do not take samples at the same moment: the next one may be due.
            let last = new.samples.last().copied();
            if let Some(last) = last.or(before.map(|(_, last)| last).filter(|_| new.next > 0)) {
                self.samples.insert(member.id, (new.next, last));
            }
            if is_first {
                add_hour(&mut hour, &new.samples);
            }
        }
        let (mut sum, mut members) = (ClusterSample::default(), BTreeMap::new());
        for (id, (_, last)) in &self.samples {
            sum.add(last);
            members.extend(table.member(*id).map(|member| (&member.name, last)));
        }
        if is_first {
            state.feed.lock().hour = hour;
            state.feed.show("hour", TokenRole::Read, &state.feed.hour());
        } else {
            let mut kept = state.feed.lock();
            if kept.hour.len() == SAMPLES {
                kept.hour.pop_front();
            }
            kept.hour.push_back(sum.clone());
        }
        let sample = json!({ "number": own, "cluster": sum, "members": members });
        state.feed.show("sample", TokenRole::Read, &sample);
    }
}

/// Which member holds which partition, as numbers: the members in order of age, and of each
/// partition the place of the primary in that list, of the other copies, and of learners as -1 less
/// that place.
fn partition_map(table: &Table) -> Value {
    let places: BTreeMap<MemberId, i64> = table.members.iter().map(|m| m.id).zip(0..).collect();
    let place = |replica: &doyen_placement::Replica| {
        let place = places.get(&replica.member).copied().unwrap_or(i64::MAX);
        match replica.state {
            ReplicaState::InSync => place,
            ReplicaState::Learner => -1 - place,
        }
    };
    let keyspaces = table.keyspaces.iter().map(|keyspace| {
        let partitions = keyspace.partitions.iter();
        let of: Vec<Vec<i64>> = partitions
            .clone()
            .map(|partition| partition.replicas.iter().map(place).collect())
            .collect();
        let ids: Vec<u32> = partitions.map(|partition| partition.id.0).collect();
        // Most keyspaces number their partitions from 0 on.
        let in_order = ids.iter().zip(0..).all(|(id, place)| *id == place);
        json!({
            "name": keyspace.name,
            "copies": u32::from(keyspace.backups) + 1,
            "ids": if in_order { None } else { Some(ids) },
            "partitions": of,
        })
    });
    let members = table.members.iter().map(|m| &m.name);
    json!({
        "members": members.collect::<Vec<_>>(),
        "keyspaces": keyspaces.collect::<Vec<_>>(),
    })
}

/// What a caller may see at this moment. Where Redis clients need a password, or have users of
/// their own, keys are not for everyone on this machine.
fn role(state: &HttpState, caller: &HttpCaller) -> TokenRole {
    let guarded = state.guarded || state.credentials.has_users();
    match caller.source {
        CredentialSource::Open if guarded => TokenRole::Read,
        _ => caller.role,
    }
}

/// How far the stream of a page has got.
struct PageStream {
    page: watch::Receiver<u64>,
    seen: u64,
    /// The caller has the hour, and needs further samples alone.
    has_hour: bool,
    events: Events,
    stopped: watch::Receiver<bool>,
    state: Arc<HttpState>,
    caller: HttpCaller,
}

impl PageStream {
    /// What is new. `None`: the node stops, or takes the caller's token no more.
    async fn next(&mut self) -> Option<String> {
        let text = self.wait().await?;
        let takes = self.state.credentials.still_takes(&self.caller);
        takes.then_some(text)
    }

    async fn wait(&mut self) -> Option<String> {
        loop {
            tokio::select! {
                changed = self.page.changed() => {
                    changed.ok()?;
                    let text = self.changes();
                    if !text.is_empty() {
                        return Some(text);
                    }
                }
                event = self.events.next() => return Some(match event? {
                    ClusterEvent::Event(event) => {
                        sent("happened", &serde_json::to_string(&event).unwrap_or_default())
                    }
                    ClusterEvent::Lagged(count) => format!(": {count} events are missing\n\n"),
                }),
                () = super::super::wait(&mut self.stopped) => return None,
                () = tokio::time::sleep(ALIVE) => return Some(": nothing\n\n".into()),
            }
        }
    }

    fn changes(&mut self) -> String {
        let (mut text, last) = self
            .state
            .feed
            .since(self.seen, role(&self.state, &self.caller));
        self.seen = last;
        // A page that opens later than the first one gets the hour as it is now.
        if !std::mem::replace(&mut self.has_hour, true) {
            text += &sent("hour", &self.state.feed.hour().to_string());
        }
        text
    }
}

/// Sends everything that a page shows, and then what changes.
pub(in super::super) async fn stream(
    Shared(state): Shared<Arc<HttpState>>,
    Extension(caller): Extension<HttpCaller>,
) -> HttpAnswer<Response> {
    let page = state.feed.open(&state)?;
    let hello = json!({
        "node": state.identity.name(),
        "version": env!("CARGO_PKG_VERSION"),
        "caller": caller.source.to_string(),
        "role": role(&state, &caller).to_string(),
        "may_change_users": state.credentials.may_change_users(&caller.source),
        "seconds": INTERVAL.as_secs(),
    });
    let stream = PageStream {
        page,
        seen: 0,
        has_hour: false,
        events: state.admin.events().after(0),
        stopped: state.stopped.clone(),
        state,
        caller,
    };
    let first = sent("hello", &hello.to_string());
    let first = futures_util::stream::iter([Ok::<_, Infallible>(first)]);
    let rest = futures_util::stream::unfold(stream, |mut stream| async move {
        let text = stream.next().await?;
        Some((Ok::<_, Infallible>(text), stream))
    });
    let head = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    let body = Body::from_stream(futures_util::StreamExt::chain(first, rest));
    Ok((head, body).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(commands: u64, p50_us: Option<u64>) -> Sample {
        Sample {
            commands,
            p50_us,
            p99_us: p50_us.map(|p50| p50 * 10),
            ..Sample::default()
        }
    }

    #[test]
    fn the_hours_of_members_are_summed_from_the_newest_sample_back() {
        let mut sum = VecDeque::new();
        for hour in [&[1, 2, 3][..], &[10], &[], &[7, 0, 0, 0]] {
            let hour: Vec<Sample> = hour.iter().map(|n| sample(*n, None)).collect();
            add_hour(&mut sum, &hour);
        }
        let commands: Vec<u64> = sum.iter().map(|s| s.commands).collect();
        assert_eq!(commands, [7, 1, 2, 13]);
    }

    #[test]
    fn latency_is_of_the_typical_and_of_the_slowest_member() {
        let mut sum = ClusterSample::default();
        assert_eq!(sum.p50_us, None);
        for of in [
            sample(300, Some(100)),
            sample(100, Some(500)),
            sample(0, None),
        ] {
            sum.add(&of);
        }
        assert_eq!((sum.p50_us, sum.p99_us), (Some(200), Some(5000)));
    }

    #[test]
    fn a_section_is_sent_when_it_changes_and_to_whom_may_see_it() {
        let feed = ConsoleFeed::new();
        feed.show("status", TokenRole::Read, &1);
        feed.show("busiest", TokenRole::Operate, &"key");
        let (text, seen) = feed.since(0, TokenRole::Read);
        assert_eq!(text, "event: status\ndata: 1\n\n");
        let (text, _) = feed.since(0, TokenRole::Operate);
        assert!(text.contains("busiest"));
        feed.show("status", TokenRole::Read, &1);
        assert_eq!(feed.since(seen, TokenRole::Operate), (String::new(), seen));
        feed.show("status", TokenRole::Read, &2);
        let (text, _) = feed.since(seen, TokenRole::Read);
        assert_eq!(text, "event: status\ndata: 2\n\n");
    }
}
