//! Partitions that a table has split or merged: what this node holds of the former ones is divided among the new ones, and calls go where
//! their keys are.
//!
//! ```text
//!   installed: P is to be split     writes wait, every copy confirms that it has everything, the primary says so      (`report_still`)
//!   installed: C and D, from P      each holder drains its P into a C and a D, some entries a tick; then they are as any partition
//! ```
//! Whoever is in sync in a new partition was so in the former ones, and confirmed in the epoch in which they took no more writes: so all
//! of them drain the same contents, and there is no log to divide.

use super::dedup::Dedup;
use super::forwarding::{Call, note_order};
use super::log::Log;
use super::op::{Failure, Outcome, Work};
use super::store::Map;
use super::{Core, Held, PartitionRef, Shard, Slot, Slots};
use doyen_gossip::Time;
use doyen_gossip::agreement::InSyncChange;
use doyen_placement::mutant::{Mutant, broken};
use doyen_placement::{Division, KeyspaceId, Lineage, Partition, PartitionId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Entries that are drained in one tick: about a millisecond.
const DRAINED: usize = 1_000;
/// A primary that says that a partition is still says it again after this.
const SAY_AGAIN: Duration = Duration::from_millis(100);

/// Former partitions that are being drained into new ones.
#[derive(Debug)]
pub(super) struct Draining {
    keyspace: KeyspaceId,
    division: Division,
    /// Each with how far its clock is behind that of the new ones.
    former: Vec<(Box<Held>, u64)>,
    /// What those cost when it began.
    bytes: usize,
    new: Vec<(PartitionRef, Box<Held>)>,
}

impl Draining {
    /// Everything that is held, to be freed in slices.
    pub(super) fn into_maps(self) -> Vec<Map> {
        let new = self.new.into_iter().map(|(_, held)| held);
        self.former.into_iter().map(|(held, _)| held).chain(new).flat_map(|mut held| held.store.take()).collect()
    }
}

impl Shard {
    /// Partitions that are in the installed table no more, though their keyspace is: their contents and calls go elsewhere.
    pub(super) fn reshape(&mut self) {
        let Some(view) = self.core.view.clone() else { return };
        let was = |at: PartitionRef| {
            let keyspace = view.installed.keyspace(at.keyspace).filter(|k| !k.partitions.is_empty());
            keyspace.is_some_and(|k| at.partition < k.next_partition())
        };
        let gone = self.slots.iter().filter(|(at, slot)| slot.installed.is_none() && was(*at)).map(|(at, _)| at);
        let gone: Vec<PartitionRef> = gone.collect();
        if gone.is_empty() {
            return;
        }
        let mut calls = Vec::new();
        for at in &gone {
            let Some(slot) = self.slots.get_mut(*at) else { continue };
            let lineage = slot.lineage;
            calls.extend(self.core.take_calls(*at, slot).into_iter().map(|call| (*at, lineage, call)));
        }
        let mut keyspaces: Vec<KeyspaceId> = gone.iter().map(|at| at.keyspace).collect();
        keyspaces.dedup();
        for keyspace in keyspaces.into_iter().filter_map(|id| view.installed.keyspace(id)) {
            // Those that come of the same ones, together.
            let mut families: BTreeMap<Vec<PartitionId>, Vec<&Arc<Partition>>> = BTreeMap::new();
            for partition in keyspace.partitions.iter().filter(|p| !p.from.is_empty()) {
                families.entry(partition.from.iter().map(|from| from.partition).collect()).or_default().push(partition);
            }
            for (_, partitions) in families {
                self.drain(keyspace.id, &keyspace.division, &partitions);
            }
        }
        self.move_calls(calls);
        let mut left = Vec::new();
        for at in gone {
            self.core.peers.forget_refused(at);
            // What is held of it stays for a while, as of any partition that no table gives to this node.
            if self.slots.get(at).is_some_and(|slot| slot.held.is_some() || slot.accepted.is_some()) {
                left.push(at);
            }
        }
        self.slots.retain(|at, slot| slot.installed.is_some() || slot.accepted.is_some() || left.contains(&at) || !was(at) || slot.drains);
    }

    /// Begins to drain what is held of the former ones into those of these new ones that are in sync here.
    fn drain(&mut self, keyspace: KeyspaceId, division: &Division, partitions: &[&Arc<Partition>]) {
        let me = self.core.me;
        let fresh = |slots: &Slots, p: &Partition| {
            let slot = slots.get(PartitionRef { keyspace, partition: p.id });
            slot.is_some_and(|s| s.held.is_none() && !s.drains)
        };
        let mine = partitions.iter().filter(|p| self.core.in_sync(p).any(|m| m == me) && fresh(&self.slots, p));
        let mine: Vec<&Arc<Partition>> = mine.copied().collect();
        let Some(first) = mine.first() else { return };
        let held = |partition| {
            let held = self.slots.get(PartitionRef { keyspace, partition }).and_then(|slot| slot.held.as_ref());
            held.filter(|held| held.was_in_sync).map(|held| held.lineage)
        };
        let lineages: Option<Vec<Lineage>> = first.from.iter().map(|from| held(from.partition)).collect();
        let Some(lineage) = lineages.and_then(|lineages| lineages.into_iter().max()) else { return };
        // What began empty since has nothing of what was before; its sibling may have all of it.
        let mine: Vec<&Arc<Partition>> = mine.into_iter().filter(|p| p.lineage == lineage).collect();
        let Some(first) = mine.first() else { return };
        let mut former = Vec::new();
        for from in &first.from {
            let at = PartitionRef { keyspace, partition: from.partition };
            if let Some(held) = self.slots.get_mut(at).and_then(|slot| slot.held.take()) {
                former.push((held, from.behind_ms));
            }
        }
        let bytes = former.iter().map(|(held, _)| held.bytes()).sum();
        let last = former.iter().map(|(held, _)| held.log.last()).max().unwrap_or(0);
        // One of them gives the time.
        let Some(clock) = former.iter().min_by_key(|(_, behind)| *behind).map(|(held, _)| held.clock) else { return };
        let dedup = Dedup::of_all(former.iter().map(|(held, _)| &held.dedup));
        let new = mine.into_iter().map(|partition| {
            let at = PartitionRef { keyspace, partition: partition.id };
            let mut held = Held::empty(partition.lineage, self.core.store_of(keyspace), self.core.now);
            (held.was_in_sync, held.log, held.dedup, held.clock) = (true, Log::after(last), dedup.clone(), clock);
            if let Some(slot) = self.slots.get_mut(at) {
                slot.drains = true;
            }
            (at, Box::new(held))
        });
        let new = new.collect();
        self.core.draining.push(Draining { keyspace, division: division.clone(), former, bytes, new });
    }

    /// Calls of partitions that are no more go to those that have their keys, in order.
    fn move_calls(&mut self, calls: Vec<(PartitionRef, Option<Lineage>, Call)>) {
        let mut moved: BTreeMap<PartitionRef, Vec<Call>> = BTreeMap::new();
        for (at, lineage, call) in calls {
            let to = match &call.work {
                Work::Key(op) => self.core.place(at.keyspace, op.map, &op.key),
                Work::Partition(_) => None,
            };
            let now = to.and_then(|to| self.slots.get(to)).and_then(|slot| slot.installed.as_ref()).map(|a| a.lineage);
            // In another lineage nobody could tell that it is a retry.
            let lost = call.maybe && call.work.is_write() && (now.is_none() || now != lineage) && !broken(Mutant::AsksNewLineage);
            match to.filter(|_| now.is_some() && !lost) {
                Some(to) => moved.entry(to).or_default().push(call),
                None => {
                    let failure = if call.maybe && call.work.is_write() { Failure::Unknown } else { Failure::Stale };
                    self.core.outstanding -= 1;
                    self.core.outcomes.extend(call.source.token().map(|token| (token, Outcome::Failed(failure))));
                }
            }
        }
        for (at, mut calls) in moved {
            let Some(slot) = self.slots.get_mut(at) else { continue };
            calls.sort_by_key(|call| call.n);
            calls.iter().filter(|call| call.work.is_write()).for_each(|call| slot.calls.resume(call.n));
            // What peers asked of it meanwhile.
            calls.extend(std::mem::take(&mut slot.calls.parked));
            note_order(&mut calls);
            slot.calls.parked = calls.into();
        }
    }

    /// Drains some more.
    pub(super) fn drain_due(&mut self) {
        let Some(draining) = self.core.draining.last_mut() else { return };
        let Draining { keyspace, division, former, new, .. } = draining;
        let mut left = DRAINED;
        while left > 0
            && let Some((held, behind)) = former.last_mut()
        {
            let Some((map, entry)) = held.store.take_any(&mut self.core.garbage) else {
                if let Some((held, _)) = former.pop() {
                    self.core.old_logs.push(held.log);
                }
                continue;
            };
            left = left.saturating_sub(1 + entry.len() / super::ENTRY_WORK);
            if *behind > 0 && entry.deadline() != 0 {
                entry.date(entry.deadline().saturating_add(*behind), entry.version());
            }
            let at = division.holder_of(map, entry.key()).map(|partition| PartitionRef { keyspace: *keyspace, partition });
            if let Some((_, held)) = new.iter_mut().find(|(new, _)| Some(*new) == at) {
                held.store.move_in(map, entry);
            }
        }
        if !former.is_empty() {
            return;
        }
        let Some(Draining { bytes, new, .. }) = self.core.draining.pop() else { return };
        self.core.memory = self.core.memory.saturating_sub(bytes);
        for (at, held) in new {
            self.core.memory += held.bytes();
            let slot = self.slots.get_or_insert(at);
            slot.drains = false;
            slot.held = Some(held);
            self.core.turn(at, slot, false);
            self.core.notice(at, slot);
        }
        self.core.holding = self.slots.values().filter(|s| s.held.is_some()).count();
    }
}

impl Core {
    /// Everything that local callers have asked of a partition and is not answered; those of peers ask again elsewhere.
    fn take_calls(&mut self, at: PartitionRef, slot: &mut Slot) -> Vec<Call> {
        self.depose(at, slot);
        if let Some(held) = &mut slot.held {
            held.lead = None;
        }
        slot.calls.unsend();
        std::mem::take(&mut slot.calls.parked).into()
    }

    /// Whether something is being drained.
    pub(super) const fn drains(&self) -> bool {
        !self.draining.is_empty()
    }

    /// Says that a partition that takes no more writes is the same everywhere.
    pub(super) fn report_still(&mut self, at: PartitionRef, slot: &mut Slot) {
        let now = self.now;
        let Some(held) = slot.held.as_deref_mut().filter(|_| slot.still) else { return };
        let Held { lead: Some(lead), log, clock, epoch, .. } = held else { return };
        let confirmed = |l: &super::replication::Link| !l.required || (l.aligned && l.acked >= log.last());
        let still = lead.open && lead.serving && log.committed() == log.last() && lead.links.values().all(confirmed);
        if (!still && !broken(Mutant::ReshapesUnconfirmed)) || lead.said_still.is_some_and(|said| now < said + SAY_AGAIN) {
            return;
        }
        lead.said_still = Some(now);
        let own = i64::try_from(now.since(Time::ZERO).as_millis()).unwrap_or(i64::MAX);
        let ahead_ms = i64::try_from(clock.advance(now)).unwrap_or(i64::MAX).saturating_sub(own);
        let epoch = *epoch;
        self.ask(at, epoch, InSyncChange::Still { ahead_ms });
    }
}
