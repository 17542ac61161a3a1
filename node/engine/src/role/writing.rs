//! What a primary writes: into its store, its log, and to its copies.

use crate::log::dedup::OpId;
use crate::log::partition_log::Logged;
use crate::mutant::{self, broken};
use crate::role::host::Host;
use crate::role::partition::{Held, Slot};
use crate::role::replication::Primary;
use crate::store::{Effect, Key, Undo, cuts};
use crate::value::cause::{By, Cause};
use crate::value::outcome::Outcome;
use doyen_placement::{MapId, MemberId};

impl Held {
    /// Deletes an overdue key, as a logged effect without an operation.
    pub(crate) fn expire(&mut self, host: &mut Host, map: MapId, key: Key) {
        let order = self.store.order(&key);
        let cause = Cause::Expired;
        let effect = Effect::Delete { map, key, cause };
        self.log(host, order, effect, (None, By::UNKNOWN), Outcome::Ok);
        host.stats.expired += 1;
    }

    /// Deletes what is overdue of a key: all of it, or fields (see `Store::purged`).
    pub(crate) fn purge(
        &mut self,
        host: &mut Host,
        (map, order, key): (MapId, u64, &[u8]),
        clock: u64,
    ) {
        let found = self.store.found(map, order, key);
        if found.entry.is_some_and(|entry| entry.overdue(clock)) {
            return self.expire(host, map, key.into());
        }
        let Some((change, count)) = self.store.purged(found, clock) else {
            return;
        };
        let at = self.log.last() + 1;
        let teaches = self.lead().is_some_and(Primary::teaches);
        if let Some(effect) = change.into_effect(map, key, (None, None, at, teaches)) {
            let op_by = (None, By::FIELD_EXPIRED);
            self.log(host, order, effect, op_by, Outcome::Ok);
            host.stats.expired += count;
        }
    }

    /// Deletes an overdue field, and with the last one its key.
    pub(crate) fn expire_field(&mut self, host: &mut Host, map: MapId, key: Key, field: Key) {
        let order = self.store.order(&key);
        let found = self.store.found(map, order, &key);
        // Its key may be overdue, too, and has just been deleted.
        let Some(table) = found.table else {
            return;
        };
        let effect = if table.len() == 1 {
            let cause = Cause::Expired;
            Effect::Delete { map, key, cause }
        } else {
            let kind = found.kind();
            Effect::RowDelete {
                map,
                key,
                kind,
                field,
            }
        };
        let op_by = (None, By::FIELD_EXPIRED);
        self.log(host, order, effect, op_by, Outcome::Ok);
        host.stats.expired += 1;
    }

    /// Frees some rows that are hidden. False: there are none.
    pub(crate) fn free_rows(&mut self, host: &mut Host) -> bool {
        let Some((map, key, kind, freed)) = cuts::next_freed(&self.store) else {
            return false;
        };
        let order = self.store.order(&key);
        let effect = Effect::RowsFreed {
            map,
            key,
            kind,
            freed: Box::new(freed),
        };
        self.log(host, order, effect, (None, By::UNKNOWN), Outcome::Ok);
        true
    }

    /// Looks for a key among those that are still to be drawn.
    #[inline]
    pub(crate) fn migrate(&mut self, host: &mut Host, map: MapId, order: u64, key: &[u8]) {
        if !self.store.is_whole() {
            let before = self.bytes();
            self.store.migrate(map, order, key);
            host.memory.recount(before, self.bytes());
        }
    }

    /// Applies an effect here, logs it and sends it to every copy that is up to date. `order` is
    /// the order of its key, if it has one.
    pub(crate) fn log(
        &mut self,
        host: &mut Host,
        order: u64,
        effect: Effect,
        op_by: (Option<OpId>, By),
        outcome: Outcome,
    ) -> u64 {
        let before = self.bytes();
        let seq = self.log.last() + 1;
        let undo = self.store.apply_at(order, seq, &effect);
        host.memory.recount(before, self.bytes());
        self.record(host, (effect, undo), op_by, outcome)
    }

    /// The same for effects on fields, if the whole value that they lead to is here already.
    pub(crate) fn log_fields(
        &mut self,
        host: &mut Host,
        order: u64,
        (whole, fields): (Effect, Effect),
        op_by: (Option<OpId>, By),
        outcome: Outcome,
    ) -> u64 {
        let before = self.bytes();
        let seq = self.log.last() + 1;
        let former = self.store.apply_at(order, seq, &whole);
        // Undoing the first of them brings back what was there before all of them.
        let undo = match fields.parts().len() {
            1 => former,
            count => {
                let others = (1..count).map(|_| Undo::Nothing);
                Undo::Many(std::iter::once(former).chain(others).collect())
            }
        };
        host.memory.recount(before, self.bytes());
        self.record(host, (fields, undo), op_by, outcome)
    }

    /// Logs an effect that was applied here, and sends it to every copy that is up to date.
    pub(crate) fn record(
        &mut self,
        host: &mut Host,
        (mut effect, undo): (Effect, Undo),
        (op, by): (Option<OpId>, By),
        outcome: Outcome,
    ) -> u64 {
        let before = self.bytes();
        let seq = self.log.last() + 1;
        effect.note_before(&undo, &|| self.clock.advance(host.data_now()));
        let keeps = host.read.keeps_replaced(host.now, self.at.keyspace);
        if !broken(&mutant::SLEEPS_THROUGH_CHANGES) {
            host.waiting.changed(self.at, &effect);
        }
        if let Some(id) = op {
            self.dedup.remember(id, seq, outcome.clone());
        }
        host.bound(self.at, (&effect, &undo), |key| self.store.order(key));
        self.log.push(
            Logged {
                epoch: self.epoch,
                effect,
                op,
                outcome,
            },
            undo,
            (by, keeps),
        );
        host.memory.recount(before, self.bytes());
        host.disk.note(self.at, &mut self.log);
        self.replicate(host, seq);
        seq
    }
}

impl Slot {
    /// Calls of a partition wait until a peer is not crowded any more. `Shard::admit` continues
    /// them.
    pub(crate) fn wait_for_room(&mut self, host: &mut Host, peer: MemberId) {
        host.peers.hold_back(peer);
        if self.crowded_by.replace(peer) != Some(peer) {
            host.callers.wait_for(peer, self.at);
        }
    }
}
