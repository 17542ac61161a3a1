//! Subscribers: data threads that follow all changes. Each gets every committed log entry of a
//! partition in order, with its very changes, or the message that some are missing. From these
//! changes it keeps what each key holds. So it can check the old value that comes with a change.
//!
//! Now and then, one ends and goes on after its bookmark later, at any data thread: nothing may be
//! left out or come twice.

use super::logs::{LogId, Logs, digest};
use super::process::ThreadId;
use super::schedule::Nanos;
use super::world::World;
use bytes::Bytes;
use doyen_engine::{Change, Filter, Former, KeyFilter, Maps, SubscriptionId, Told, What};
use doyen_gossip::Time;
use doyen_placement::{ClusterId, KeyspaceId, Lineage, MapId, PartitionId, PartitionRef};
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The subscription of a data thread.
#[derive(Debug)]
pub(crate) struct Subscriber {
    id: SubscriptionId,
    cluster: Option<ClusterId>,
    keyspace: KeyspaceId,
    ready: bool,
    /// It takes what it was told only now and then.
    slow: bool,
    /// The last log entry that it was told of each partition, with what it was told of it.
    last: BTreeMap<(PartitionId, Lineage), (u64, Vec<Change>)>,
    /// What the keys of each partition hold, as far as it was told.
    held: BTreeMap<(PartitionId, Lineage), Model>,
    /// Its latest moments, by its own clock and by that of the simulation.
    moments: VecDeque<(Time, Nanos)>,
    /// Partitions that were confirmed.
    confirmed: u64,
    counts: Counts,
}

/// What subscribers were told.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) changes: u64,
    /// Old values with them.
    pub(crate) old: u64,
    /// How often changes were missing.
    pub(crate) missed: u64,
    /// How often one went on after a bookmark.
    pub(crate) resumed: u64,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.changes += other.changes;
        self.old += other.old;
        self.missed += other.missed;
        self.resumed += other.resumed;
    }
}

/// How often a subscriber asks for confirmations.
const CONFIRM: Duration = Duration::from_millis(100);
/// Moments that are kept: more than confirmations count for.
const MOMENTS_MAX: usize = 20_000;

/// Keys, and what each holds. A key that is not in it is unknown.
type Model = BTreeMap<(MapId, Bytes), Holds>;

/// What a key holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Holds {
    Nothing,
    String(Bytes),
    Hash,
}

impl Subscriber {
    fn log(&self, partition: PartitionId, lineage: Lineage) -> LogId {
        let at = PartitionRef {
            keyspace: self.keyspace,
            partition,
        };
        (self.cluster, at, lineage)
    }

    /// Judges what it was told.
    fn told(&mut self, told: Told, logs: &Logs) -> Result<(), String> {
        match told {
            Told::Ready => {
                hold!(!self.ready, "subscribers: one is ready twice");
                self.ready = true;
                // Until now, one without a bookmark does not hear that a partition began empty.
                let places: BTreeSet<_> = self.last.keys().copied().collect();
                let later = |(partition, lineage): (PartitionId, Lineage)| {
                    let (from, to) = ((partition, lineage.next()), (partition, Lineage(u32::MAX)));
                    places.range(from..=to).next().is_some()
                };
                self.last.retain(|place, _| !later(*place));
            }
            Told::Lagged(_) => {
                self.counts.missed += 1;
                self.last.clear();
                self.held.clear();
            }
            Told::Confirmed { at, partitions } => {
                for partition in partitions {
                    self.confirmed += 1;
                    self.confirmed(partition, at, logs)?;
                }
            }
            Told::Ended => return Err("subscribers: no keyspace is dropped here".into()),
            Told::Change(change) => {
                self.counts.changes += 1;
                return self.changed(change, logs);
            }
        }
        Ok(())
    }

    /// It was told all that was acknowledged at that moment of its clock. So a copy of a value
    /// that it keeps was right then.
    fn confirmed(&self, partition: PartitionId, at: Time, logs: &Logs) -> Result<(), String> {
        if !self.ready {
            return Ok(());
        }
        let known = self.moments.partition_point(|(own, _)| *own <= at);
        let Some((_, moment)) = known.checked_sub(1).and_then(|n| self.moments.get(n)) else {
            return Ok(());
        };
        let first = (partition, Lineage(0))..=(partition, Lineage(u32::MAX));
        for ((_, lineage), (last, _)) in self.last.range(first) {
            let log = self.log(partition, *lineage);
            let untold = logs.acknowledged_after(log, *last, *moment);
            hold!(
                untold.is_none(),
                "subscribers: one hears that it knows all of {}, and entry {untold:?} was \
                 acknowledged before; it knows {last}",
                log.1
            );
        }
        Ok(())
    }

    fn changed(&mut self, change: Change, logs: &Logs) -> Result<(), String> {
        self.knew(&change)?;
        let (partition, lineage) = (change.position.partition, change.position.lineage);
        let (log, seq) = (self.log(partition, lineage), change.position.seq);
        let Some((last, changes)) = self.last.get_mut(&(partition, lineage)) else {
            self.last.insert((partition, lineage), (seq, vec![change]));
            return Ok(());
        };
        if *last == seq {
            changes.push(change);
            return Ok(());
        }
        hold!(
            *last < seq,
            "subscribers: entry {seq} of {} comes after entry {last}",
            log.1
        );
        same(logs, log, *last, changes)?;
        let between = logs.committed_between(log, *last, seq);
        hold!(
            between.is_none(),
            "subscribers: of {}, entries {last} and {seq} come, and {between:?} does not",
            log.1
        );
        (*last, *changes) = (seq, vec![change]);
        Ok(())
    }

    /// The old value of a change is the value of the last change of that key.
    fn knew(&mut self, change: &Change) -> Result<(), String> {
        let Change { map, key, what, .. } = change;
        let at = (change.position.partition, change.position.lineage);
        let held = self.held.entry(at).or_default();
        if *what == What::Cleared {
            let of_map = held.iter_mut().filter(|((of, _), _)| of == map);
            of_map.for_each(|(_, holds)| *holds = Holds::Nothing);
            return Ok(());
        }
        let place = (*map, key.clone());
        let right = match (held.get(&place), &change.before) {
            (None, _) | (Some(Holds::Nothing), Former::Nothing) => true,
            (Some(Holds::String(_) | Holds::Hash), Former::Value(None)) => true,
            (Some(Holds::String(last)), Former::Value(Some(old))) => last == old,
            _ => false,
        };
        hold!(
            right,
            "subscribers: a key held {:?}, and one gets: {change:?}",
            held.get(&place)
        );
        if let Former::Value(Some(_)) = change.before {
            self.counts.old += 1;
        }
        match what {
            What::Put(_, Some(value)) => _ = held.insert(place, Holds::String(value.clone())),
            What::Put(_, None) | What::Field(..) | What::FieldRemoved(..) => {
                held.insert(place, Holds::Hash);
            }
            What::Removed(_) => _ = held.insert(place, Holds::Nothing),
            What::Deadline | What::Cleared => {}
        }
        Ok(())
    }

    /// All is at rest: it was told everything.
    fn judge(&self, logs: &Logs) -> Result<(), String> {
        hold!(self.ready, "subscribers: one is not ready at the end");
        for ((partition, lineage), (last, changes)) in &self.last {
            let log = self.log(*partition, *lineage);
            same(logs, log, *last, changes)?;
            let later = logs.committed_between(log, *last, u64::MAX);
            hold!(
                later.is_none(),
                "subscribers: of {}, entry {last} was told last, and {later:?} was not",
                log.1
            );
        }
        Ok(())
    }
}

/// What was told of an entry is what is in it.
fn same(logs: &Logs, log: LogId, seq: u64, changes: &[Change]) -> Result<(), String> {
    let known = logs.told_digest(log, seq);
    hold!(
        known.is_none_or(|known| known == digest(changes)),
        "subscribers: entry {seq} of {} comes with other changes: {changes:?}",
        log.1
    );
    Ok(())
}

impl World {
    /// A data thread follows changes, if it is one of those that do, and takes what it was told.
    pub(crate) fn follow(&mut self, (p, t): ThreadId, now: Time, at: Nanos) {
        if !self.mix.subscribes {
            return;
        }
        if self.processes[p].threads[t].subscriber.is_none() {
            self.subscribe((p, t), now);
        }
        if let Some(subscriber) = &mut self.processes[p].threads[t].subscriber {
            if subscriber.moments.len() >= MOMENTS_MAX {
                subscriber.moments.pop_front();
            }
            subscriber.moments.push_back((now, at));
        }
        if self.followers.random_bool(0.002) && !self.stop_clients {
            self.rest((p, t), now);
        }
        let lazy = self.followers.random_bool(0.98) && !self.stop_clients;
        self.take_told((p, t), now, lazy);
    }

    /// A data thread begins to follow changes now and then, so that some begin late.
    fn subscribe(&mut self, (p, t): ThreadId, now: Time) {
        let view = self.processes[p].view.as_ref();
        let Some(keyspace) = view.and_then(|v| v.installed.keyspaces.first()) else {
            return;
        };
        let keyspace = keyspace.id;
        if self.stop_clients || !self.followers.random_bool(0.05) {
            return;
        }
        let filter = Filter {
            keyspace,
            maps: Maps::All,
            keys: KeyFilter::All,
            values: true,
            fields: true,
            old: true,
        };
        let thread = &mut self.processes[p].threads[t];
        let after = self.resting.as_ref().map(|(mark, _)| mark);
        // Before the cluster has the level, this is refused.
        let Ok(id) = thread.shard.subscriber().subscribe(now, filter, after) else {
            return;
        };
        thread.shard.subscriber().confirm(now, id, CONFIRM);
        let rested = self.resting.take().map(|(_, rested)| rested);
        let (last, held, counts) = rested.map_or_else(Default::default, |rested| {
            let mut counts = rested.counts;
            counts.resumed += 1;
            (rested.last, rested.held, counts)
        });
        thread.subscriber = Some(Subscriber {
            id,
            cluster: thread.shard.inspector().cluster(),
            keyspace,
            ready: false,
            slow: self.followers.random_bool(0.2),
            last,
            held,
            moments: VecDeque::new(),
            confirmed: 0,
            counts,
        });
    }

    /// A subscriber ends, and goes on later where it was, if no other one rests.
    fn rest(&mut self, (p, t): ThreadId, now: Time) {
        let thread = &mut self.processes[p].threads[t];
        if self.resting.is_none()
            && let Some(subscriber) = thread.subscriber.take_if(|s| s.ready)
            && let Some(mark) = thread
                .shard
                .subscriber()
                .bookmark(subscriber.id, std::iter::empty())
        {
            thread.shard.subscriber().unsubscribe(now, subscriber.id);
            self.resting = Some((mark, subscriber));
        }
    }

    fn take_told(&mut self, (p, t): ThreadId, now: Time, lazy: bool) {
        let thread = &mut self.processes[p].threads[t];
        let Some(mut subscriber) = thread.subscriber.take() else {
            return;
        };
        let mut failed = None;
        if !(subscriber.slow && lazy) {
            while let Some(told) = thread.shard.subscriber().take_told(now, subscriber.id) {
                if let Err(what) = subscriber.told(told, &self.oracle.logs) {
                    failed = failed.or(Some(what));
                }
            }
        }
        thread.subscriber = Some(subscriber);
        if let Some(what) = failed {
            self.broken(format!("{what} (at p{p}.{t})"));
        }
    }

    /// At the end, every subscriber was told everything. Returns what all were told.
    pub(crate) fn judge_subscribers(&mut self, at: Nanos) -> Result<Counts, String> {
        let mut counts = self.told;
        if let Some((_, rested)) = &self.resting {
            counts.add(rested.counts);
        }
        let running: Vec<usize> = self.slots.iter().filter_map(|s| s.process).collect();
        for p in running {
            let now = self.processes[p].clock(at);
            for t in 0..self.processes[p].threads.len() {
                self.take_told((p, t), now, false);
                if let Some(subscriber) = &self.processes[p].threads[t].subscriber {
                    subscriber
                        .judge(&self.oracle.logs)
                        .map_err(|what| format!("{what} (at p{p}.{t})"))?;
                    counts.add(subscriber.counts);
                }
            }
        }
        Ok(counts)
    }

    /// A shard is replaced, with its subscription.
    pub(crate) fn end_subscriber(&mut self, (p, t): ThreadId) {
        if let Some(gone) = self.processes[p].threads[t].subscriber.take() {
            self.told.add(gone.counts);
        }
    }
}
