//! Partitions that a table has split or merged: the new ones take over what this node holds of the
//! former ones, and calls go to the partitions that have their keys now.
//!
//! ```text
//!   installed: P is to be split     writes wait, every copy confirms that it has everything,
//!                                   and the primary reports that (`report_still`)
//!   installed: C and D, from P      they serve at once: each holder's C and D migrate from its P
//!                                   the keys that they are asked for, and the rest some
//!                                   entries a tick; then they are like any partition
//! ```
//! An in-sync copy of a new partition was in sync in the former ones, and confirmed that in the
//! epoch in which they accepted no more writes. So all copies migrate from the same contents, and
//! there is no log to divide.
//!
//! The clocks of two partitions that are merged differ. The table says by how much, and the
//! deadlines of the one that is behind are moved. A partition-wide operation ends `Stale`, and its
//! caller asks the new partitions. The numbers of the new partitions are chosen so that at every
//! member the same data thread has them: contents never pass from one thread to another.

use super::partition::{Held, Slot};
use super::timers::Duty;
use crate::command::operation::Work;
use crate::log::changes::Position;
use crate::log::dedup::Dedup;
use crate::log::partition_log::Log;
use crate::mutant::{self, broken};
use crate::role::calls::{PendingCall, note_order};
use crate::role::holding::Leading;
use crate::role::host::Host;
use crate::role::slots::Slots;
use crate::store::{Key, Portion};
use crate::value::outcome::{Failure, Outcome};
use doyen_gossip::Time;
use doyen_gossip::agreement::InSyncChange;
use doyen_placement::division::RangeStart;
use doyen_placement::{
    Division, KeyspaceId, Lineage, MapId, Partition, PartitionId, PartitionRef, Table,
};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Pause after some entries were migrated, if clients wait.
const DRAW_PAUSE: Duration = Duration::from_millis(1);
/// How often a primary repeats the report that a partition is still.
const SAY_AGAIN: Duration = Duration::from_millis(100);

/// A key of a map.
type KeyOfMap = (MapId, Key);

/// The keys that a partition migrates: its own.
#[derive(Debug)]
struct Heir {
    table: Arc<Table>,
    at: PartitionRef,
    /// For a range: the first key of it and of the next one.
    span: Option<(KeyOfMap, Option<KeyOfMap>)>,
}

impl Heir {
    fn new(table: &Arc<Table>, at: PartitionRef) -> Self {
        let place = |start: &RangeStart| (start.map, Key::from(&*start.key));
        let span = match table.keyspace(at.keyspace).map(|k| &k.division) {
            Some(Division::Ranges(ranges)) => {
                let own = ranges
                    .starts()
                    .iter()
                    .position(|start| start.partition == at.partition);
                own.map(|own| {
                    (
                        place(&ranges.starts()[own]),
                        ranges.starts().get(own + 1).map(place),
                    )
                })
            }
            _ => None,
        };
        Self {
            table: table.clone(),
            at,
            span,
        }
    }
}

impl Portion for Heir {
    fn holds(&self, map: MapId, key: &[u8]) -> bool {
        self.table
            .keyspace(self.at.keyspace)
            .and_then(|k| k.partition_of(map, key))
            == Some(self.at.partition)
    }

    fn span(&self, map: MapId) -> Option<(&[u8], &[u8])> {
        let Some((first, end)) = &self.span else {
            return Some((&[], &[]));
        };
        let from = match map.cmp(&first.0) {
            Ordering::Less => return None,
            Ordering::Equal => &*first.1,
            Ordering::Greater => &[],
        };
        match end {
            Some((last, key)) if map == *last => (!key.is_empty()).then_some((from, &**key)),
            Some((last, _)) if map > *last => None,
            _ => Some((from, &[])),
        }
    }
}

impl Slots {
    /// Handles partitions that are not in the installed table any more, though their keyspace is:
    /// their contents and calls go to new partitions.
    pub(crate) fn reshape(&mut self, host: &mut Host) {
        let Some(view) = host.tables.view.clone() else {
            return;
        };
        let was = |at: PartitionRef| {
            let keyspace = view
                .installed
                .keyspace(at.keyspace)
                .filter(|k| !k.partitions.is_empty());
            keyspace.is_some_and(|k| at.partition < k.next_partition())
        };
        let gone = self
            .iter()
            .filter(|slot| slot.installed.is_none() && was(slot.at))
            .map(|slot| slot.at);
        let gone: Vec<PartitionRef> = gone.collect();
        if gone.is_empty() {
            return;
        }
        let mut calls = Vec::new();
        for at in &gone {
            let Some(slot) = self.get_mut(*at) else {
                continue;
            };
            let lineage = slot.lineage;
            calls.extend(
                slot.take_calls(host)
                    .into_iter()
                    .map(|call| (*at, lineage, call)),
            );
        }
        let mut keyspaces: Vec<KeyspaceId> = gone.iter().map(|at| at.keyspace).collect();
        keyspaces.dedup();
        for keyspace in keyspaces
            .into_iter()
            .filter_map(|id| view.installed.keyspace(id))
        {
            // New partitions that come from the same former ones, together.
            let mut families: BTreeMap<Vec<PartitionId>, Vec<&Arc<Partition>>> = BTreeMap::new();
            for partition in keyspace.partitions.iter().filter(|p| !p.from.is_empty()) {
                families
                    .entry(partition.from.iter().map(|from| from.partition).collect())
                    .or_default()
                    .push(partition);
            }
            for (_, partitions) in families {
                self.divide(host, keyspace.id, &view.installed, &partitions);
            }
        }
        self.move_calls(host, calls);
        let mut left = Vec::new();
        for at in gone {
            host.peers.forget_refused(at);
            // Its contents stay for a while, like those of any partition that no table assigns to
            // this node.
            if self
                .get(at)
                .is_some_and(|slot| slot.held.is_some() || slot.accepted.is_some())
            {
                left.push(at);
            }
        }
        self.retain(|slot| {
            slot.installed.is_some()
                || slot.accepted.is_some()
                || left.contains(&slot.at)
                || !was(slot.at)
        });
    }

    /// The new partitions that are in sync here migrate from the held contents of the former ones.
    fn divide(
        &mut self,
        host: &mut Host,
        keyspace: KeyspaceId,
        table: &Arc<Table>,
        partitions: &[&Arc<Partition>],
    ) {
        let me = host.me;
        let fresh = |slots: &Slots, p: &Partition| {
            let slot = slots.get(PartitionRef::new(keyspace, p.id));
            slot.is_some_and(|s| s.held.is_none())
        };
        let mine = partitions
            .iter()
            .filter(|p| host.tables.in_sync(p).any(|m| m == me) && fresh(self, p));
        let mine: Vec<&Arc<Partition>> = mine.copied().collect();
        let Some(first) = mine.first() else { return };
        let held = |partition| {
            let held = self
                .get(PartitionRef::new(keyspace, partition))
                .and_then(|slot| slot.held.as_ref());
            held.filter(|held| held.was_in_sync)
                .map(|held| held.lineage)
        };
        let lineages: Option<Vec<Lineage>> =
            first.from.iter().map(|from| held(from.partition)).collect();
        let Some(lineage) = lineages.and_then(|lineages| lineages.into_iter().max()) else {
            return;
        };
        // A partition that began empty since then has none of the former contents. Its sibling may
        // have all of them.
        let mine: Vec<&Arc<Partition>> =
            mine.into_iter().filter(|p| p.lineage == lineage).collect();
        let Some(first) = mine.first() else { return };
        let mut former = Vec::new();
        for from in &first.from {
            let at = PartitionRef::new(keyspace, from.partition);
            if let Some(held) = self.get_mut(at).and_then(|slot| slot.held.take()) {
                host.memory.bytes = host.memory.bytes.saturating_sub(held.bytes());
                former.push((held, from.behind_ms));
            }
        }
        let last = former
            .iter()
            .map(|(held, _)| held.log.last())
            .max()
            .unwrap_or(0);
        // One of the former partitions gives the clock.
        let Some(clock) = former
            .iter()
            .min_by_key(|(_, behind)| *behind)
            .map(|(held, _)| held.clock.inherited())
        else {
            return;
        };
        let dedup = Dedup::of_all(former.iter().map(|(held, _)| &held.dedup));
        let (mut stores, mut formers) = (Vec::new(), Vec::new());
        for (held, behind_ms) in former {
            let cx = &mut *host;
            formers.push(Position {
                partition: held.at.partition,
                lineage: held.lineage,
                seq: held.log.last(),
            });
            let Held { store, log, .. } = *held;
            let former = |maps: &mut _| store.into_former(behind_ms, maps);
            stores.push(cx.memory.garbage.collect(&mut cx.timers, former));
            cx.memory.garbage.add(log, &mut cx.timers);
        }
        for partition in &mine {
            let at = PartitionRef::new(keyspace, partition.id);
            let mut held = Held::empty(at, partition.lineage, &host.tables, host.now);
            (held.was_in_sync, held.log, held.dedup, held.clock) =
                (true, Log::after(last), dedup.clone(), clock);
            held.formers.clone_from(&formers);
            let portion: Arc<dyn Portion> = Arc::new(Heir::new(table, at));
            held.store = held.store.migrate_from(&stores, mine.len(), &portion);
            host.memory.bytes += held.bytes();
            let slot = self.get_or_insert(at);
            slot.held = Some(Box::new(held));
            slot.note_migration(host);
        }
    }

    /// Calls of former partitions go to the partitions that have their keys, in order.
    fn move_calls(
        &mut self,
        host: &mut Host,
        calls: Vec<(PartitionRef, Option<Lineage>, PendingCall)>,
    ) {
        let mut moved: BTreeMap<PartitionRef, Vec<PendingCall>> = BTreeMap::new();
        for (at, lineage, call) in calls {
            let placed = host.tables.place_of(at.keyspace, &call.work);
            let to = placed.ok();
            let now = to
                .and_then(|to| self.get(to))
                .and_then(|slot| slot.installed.as_ref())
                .map(|a| a.lineage);
            // In another lineage, a retry could not be recognized.
            let lost = call.maybe
                && call.work.is_write()
                && (now.is_none() || now != lineage)
                && !broken(&mutant::ASKS_NEW_LINEAGE);
            match to.filter(|_| now.is_some() && !lost) {
                Some(to) => moved.entry(to).or_default().push(call),
                None => {
                    // Callers of whole partitions ask the new ones, and repeat what they have
                    // cleared.
                    let whole = matches!(call.work, Work::Partition(_));
                    let unknown = call.maybe && call.work.is_write() && !whole;
                    // The keys of a transaction may have been in one partition before.
                    let apart = placed == Err(Failure::CrossPartition);
                    let failure = match (unknown, apart) {
                        (true, _) => Failure::Unknown,
                        (false, true) => Failure::CrossPartition,
                        (false, false) => Failure::Stale,
                    };
                    host.callers.outstanding -= 1;
                    if let Some(token) = call.source.token() {
                        host.callers.answer(token, Outcome::Failed(failure));
                    }
                }
            }
        }
        for (at, mut calls) in moved {
            let Some(slot) = self.get_mut(at) else {
                continue;
            };
            calls.sort_by_key(|call| call.n);
            calls
                .iter()
                .filter(|call| call.work.is_write())
                .for_each(|call| slot.calls.resume(call.n));
            // Peers may have sent calls in between.
            calls.extend(std::mem::take(&mut slot.calls.parked));
            note_order(&mut calls);
            slot.calls.parked = calls.into();
        }
    }

    /// Migrates some more keys. Returns the partition if it has all of them now: its calls that
    /// waited for that are to be looked at.
    pub(crate) fn migrate_due(&mut self, host: &mut Host, now: Time) -> Option<PartitionRef> {
        if !host.timers.take(Duty::Migrate, now) {
            return None;
        }
        let at = host.upkeep.migrating.front().copied()?;
        host.timers.rest(Duty::Migrate, now + DRAW_PAUSE);
        let whole = match self.get_mut(at) {
            Some(slot) => slot.migrate_more(host),
            None => true,
        };
        if whole {
            host.upkeep.migrating.pop_front();
        }
        let more = !host.upkeep.migrating.is_empty();
        host.timers.settle(Duty::Migrate, more);
        whole.then_some(at)
    }
}

impl Slot {
    /// Returns whether it has all of its keys now.
    fn migrate_more(&mut self, host: &mut Host) -> bool {
        if let Some(held) = self.held.as_deref_mut() {
            let before = held.bytes();
            let (most, maps) = (host.limits.drawn_max, &mut host.memory.garbage);
            maps.collect(&mut host.timers, |maps| held.store.migrate_some(most, maps));
            host.memory.recount(before, held.bytes());
        }
        if self
            .held
            .as_ref()
            .is_some_and(|held| !held.store.is_whole())
        {
            return false;
        }
        self.migrating = false;
        let mut later = std::mem::take(&mut self.calls.later);
        self.calls.parked.append(&mut later);
        true
    }
}

impl Slot {
    /// All unanswered local calls of a partition. Peers send theirs to other members.
    fn take_calls(&mut self, host: &mut Host) -> Vec<PendingCall> {
        self.depose(host);
        if let Some(held) = &mut self.held {
            held.step_down();
        }
        self.calls.unsend();
        std::mem::take(&mut self.calls.parked).into()
    }

    /// Notes a partition that migrates from former ones.
    pub(crate) fn note_migration(&mut self, host: &mut Host) {
        let draws = self
            .held
            .as_ref()
            .is_some_and(|held| !held.store.is_whole());
        if draws {
            host.upkeep.migrates(self, &mut host.timers);
        }
    }
}

impl Leading<'_> {
    /// Reports that a partition without writes is the same in all copies.
    pub(crate) fn report_frozen(&mut self, cx: &mut Host) {
        let now = cx.now;
        if !self.frozen {
            return;
        }
        let confirmed = |l: &super::replication::CopyLink| {
            !l.required || (l.aligned && l.acked >= self.log.last())
        };
        let frozen = self.lead.open
            && self.lead.serving
            && self.log.committed() == self.log.last()
            && self.lead.links.values().all(confirmed);
        if (!frozen && !broken(&mutant::RESHAPES_UNCONFIRMED))
            || self
                .lead
                .said_frozen
                .is_some_and(|said| now < said + SAY_AGAIN)
        {
            return;
        }
        self.lead.said_frozen = Some(now);
        let own = i64::try_from(now.since(Time::ZERO).as_millis()).unwrap_or(i64::MAX);
        let ahead_ms = i64::try_from(self.clock.advance(now))
            .unwrap_or(i64::MAX)
            .saturating_sub(own);
        cx.outbox.ask(
            self.at,
            self.epoch,
            InSyncChange::WritesStopped { ahead_ms },
        );
    }
}
