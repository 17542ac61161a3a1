//! Client tracking: data threads tell their clients which values have changed, by the machine of
//! the front end (`doyen::resp::followed`). Each client keeps what it read.
//!
//! A write that was called after a value had been read, and that was acknowledged, makes the value
//! stale. Whatever happens to primaries and networks, the client must have been told to forget it
//! within the bound, by the clock of its thread. A thread that is suspended tells it when it goes
//! on.

use super::client::{self, map_name};
use super::models;
use super::process::ThreadId;
use super::world::World;
use crate::linear::{Answer, Call};
use doyen::resp::followed::{BOUND, CONFIRM, FollowedKeyspace, Invalidates, LOOK};
use doyen_engine::{Filter, KeyFilter, Maps, SubscriptionId, Told};
use doyen_gossip::Time;
use doyen_placement::KeyspaceId;
use std::collections::{BTreeMap, BTreeSet};

/// The clients of a data thread that keep values.
#[derive(Debug)]
pub(crate) struct Tracker {
    followed: FollowedKeyspace,
    id: Option<SubscriptionId>,
    look_at: Time,
    keeps: BTreeMap<String, KeptValue>,
}

/// What is kept of a key.
#[derive(Debug, Default)]
struct KeptValue {
    /// Reads that are under way.
    reads: BTreeSet<u64>,
    /// The moment at which a read of it was answered last.
    read: Option<u64>,
    /// Since then it is stale, by the clock of the thread.
    stale: Option<Time>,
}

/// What was kept, and how often all was forgotten.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TrackedCounts {
    pub(crate) kept: u64,
    pub(crate) stale: u64,
    pub(crate) forgot: u64,
}

/// Whether values of this key are kept.
fn is_kept(key: &str) -> bool {
    client::is_single(key) && !models::is_modelled(key) && map_name(key).is_none()
}

/// Whether a call has changed its key, by its answer.
fn has_changed(call: &Call, answer: &Answer) -> bool {
    match call {
        Call::Set(_) | Call::GetSet(_) | Call::SetFor { .. } | Call::Incr(_) | Call::Append(_) => {
            true
        }
        Call::Delete | Call::CompareAndSwap { .. } => *answer == Answer::Int(1),
        Call::GetDel => matches!(answer, Answer::Bulk(_)),
        _ => false,
    }
}

impl World {
    /// A client of this thread reads a key with this number.
    pub(crate) fn tracks(&mut self, (p, t): ThreadId, key: &str, call: &Call, serial: u64) {
        if let Some(tracker) = &mut self.processes[p].threads[t].tracker
            && *call == Call::Get
            && is_kept(key)
        {
            let kept = tracker.keeps.entry(key.to_owned()).or_default();
            kept.reads.insert(serial);
        }
    }

    /// A call through this thread was answered: what it read is kept, or what others keep is stale.
    pub(crate) fn tracked_answer(
        &mut self,
        thread: Option<ThreadId>,
        (key, call): (&str, &Call),
        (serial, called, answered): (u64, u64, u64),
        answer: &Answer,
    ) {
        if !self.mix.tracks || !is_kept(key) {
            return;
        }
        if *call == Call::Get {
            let thread = thread.map(|(p, t)| &mut self.processes[p].threads[t]);
            let tracker = thread.and_then(|thread| thread.tracker.as_mut());
            // If it has changed since, the client hears of it behind the answer.
            if let Some(kept) = tracker.and_then(|tracker| tracker.keeps.get_mut(key))
                && kept.reads.remove(&serial)
            {
                (kept.read, kept.stale) = (Some(answered), None);
                self.tracked.kept += 1;
            }
            return;
        }
        if !has_changed(call, answer) {
            return;
        }
        let now = self.schedule.now();
        for process in self.processes.iter_mut().filter(|process| !process.gone) {
            let clock = process.clock(now);
            for tracker in process
                .threads
                .iter_mut()
                .filter_map(|t| t.tracker.as_mut())
            {
                if let Some(kept) = tracker.keeps.get_mut(key)
                    && kept.read.is_some_and(|read| read < called)
                    && kept.stale.is_none()
                {
                    kept.stale = Some(clock);
                    self.tracked.stale += 1;
                }
            }
        }
    }

    /// A data thread does what the front end does in each pass.
    pub(crate) fn look_at_trackers(&mut self, (p, t): ThreadId, now: Time) {
        if !self.mix.tracks {
            return;
        }
        let view = self.processes[p].view.as_ref();
        let keyspace = view.and_then(|view| view.installed.keyspace(KeyspaceId(0)));
        let partitions = keyspace
            .into_iter()
            .flat_map(|keyspace| &keyspace.partitions);
        let partitions: BTreeSet<_> = partitions.map(|partition| partition.id).collect();
        let thread = &mut self.processes[p].threads[t];
        let tracker = thread.tracker.get_or_insert_with(|| Tracker {
            followed: FollowedKeyspace::new(now),
            id: None,
            look_at: Time::ZERO,
            keeps: BTreeMap::new(),
        });
        let mut forget = false;
        if now >= tracker.look_at {
            tracker.look_at = now + LOOK;
            if tracker.id.is_none() {
                let filter = Filter {
                    keyspace: KeyspaceId(0),
                    maps: Maps::Databases,
                    keys: KeyFilter::All,
                    values: false,
                    fields: false,
                    old: false,
                };
                tracker.id = thread.shard.subscriber().subscribe(now, filter, None).ok();
                if let Some(id) = tracker.id {
                    thread.shard.subscriber().confirm(now, id, CONFIRM);
                }
            }
            forget |= tracker.followed.look(&partitions, now);
        }
        while let Some(id) = tracker.id
            && let Some(told) = thread.shard.subscriber().take_told(now, id)
        {
            if matches!(told, Told::Ended) {
                tracker.id = None;
            }
            match tracker.followed.told(told, now) {
                Invalidates::Nothing => {}
                Invalidates::All => forget = true,
                Invalidates::Key(change) => {
                    tracker.keeps.remove(&*String::from_utf8_lossy(&change.key));
                }
            }
        }
        if forget {
            tracker.keeps.clear();
            self.tracked.forgot += 1;
        }
        let late = |(key, kept): (&String, &KeptValue)| {
            let since = kept.stale.filter(|since| now.since(*since) > BOUND)?;
            Some((key.clone(), now.since(since)))
        };
        let late = tracker.keeps.iter().find_map(late);
        if let Some((key, lasted)) = late {
            self.broken(format!(
                "tracking: a client keeps {key}, which is stale for {lasted:?}, at p{p}.{t}"
            ));
        }
    }

    /// The process becomes another member: its subscriptions ended.
    pub(crate) fn restart_tracker(&mut self, (p, t): ThreadId) {
        if let Some(tracker) = &mut self.processes[p].threads[t].tracker {
            tracker.followed.restart();
            tracker.id = None;
            tracker.keeps.clear();
        }
    }
}
