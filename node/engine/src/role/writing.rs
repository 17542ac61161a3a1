//! What a primary writes: into its store, its log, and to its copies.

use crate::log::dedup::OpId;
use crate::log::partition_log::Logged;
use crate::role::host::Host;
use crate::role::partition::{Held, Slot};
use crate::store::{Effect, Key, Undo};
use crate::value::cause::{By, Cause};
use crate::value::outcome::Outcome;
use doyen_placement::{MapId, MemberId};

impl Host {
    /// Calls of a partition wait until a peer is not crowded any more. `Shard::admit` continues
    /// them.
    pub(crate) fn wait_for_room(&mut self, slot: &mut Slot, peer: MemberId) {
        self.peers.hold_back(peer);
        if slot.crowded_by.replace(peer) != Some(peer) {
            self.callers.wait_for(peer, slot.at);
        }
    }

    /// Deletes an overdue key, as a logged effect without an operation.
    pub(crate) fn expire(&mut self, held: &mut Held, map: MapId, key: Key) {
        let order = held.store.order(&key);
        let cause = Cause::Expired;
        let effect = Effect::Delete { map, key, cause };
        self.log(held, order, effect, (None, By::UNKNOWN), Outcome::Ok);
        self.stats.expired += 1;
    }

    /// Deletes an overdue field, and with the last one its key.
    pub(crate) fn expire_field(&mut self, held: &mut Held, map: MapId, key: Key, field: Key) {
        let order = held.store.order(&key);
        let found = held.store.found(map, order, &key);
        let effect = if found.table.is_some_and(|table| table.len() == 1) {
            let cause = Cause::Expired;
            Effect::Delete { map, key, cause }
        } else {
            Effect::RowDelete { map, key, field }
        };
        let op_by = (None, By::FIELD_EXPIRED);
        self.log(held, order, effect, op_by, Outcome::Ok);
        self.stats.expired += 1;
    }

    /// Looks for a key among those that are still to be drawn.
    #[inline]
    pub(crate) fn draw(&mut self, held: &mut Held, map: MapId, order: u64, key: &[u8]) {
        if !held.store.is_whole() {
            let before = held.bytes();
            held.store.draw(map, order, key);
            self.memory.recount(before, held.bytes());
        }
    }

    /// Applies an effect here, logs it and sends it to every copy that is up to date. `order` is
    /// the order of its key, if it has one.
    pub(crate) fn log(
        &mut self,
        held: &mut Held,
        order: u64,
        effect: Effect,
        op_by: (Option<OpId>, By),
        outcome: Outcome,
    ) -> u64 {
        let before = held.bytes();
        let seq = held.log.last() + 1;
        let undo = held.store.apply_at(order, seq, &effect);
        self.memory.recount(before, held.bytes());
        self.record(held, (effect, undo), op_by, outcome)
    }

    /// The same for effects on fields, if the whole value that they lead to is here already.
    pub(crate) fn log_fields(
        &mut self,
        held: &mut Held,
        order: u64,
        (whole, fields): (Effect, Effect),
        op_by: (Option<OpId>, By),
        outcome: Outcome,
    ) -> u64 {
        let before = held.bytes();
        let seq = held.log.last() + 1;
        let former = held.store.apply_at(order, seq, &whole);
        // Undoing the first of them brings back what was there before all of them.
        let undo = match fields.parts().len() {
            1 => former,
            count => {
                let others = (1..count).map(|_| Undo::Nothing);
                Undo::Many(std::iter::once(former).chain(others).collect())
            }
        };
        self.memory.recount(before, held.bytes());
        self.record(held, (fields, undo), op_by, outcome)
    }

    /// Logs an effect that was applied here, and sends it to every copy that is up to date.
    pub(crate) fn record(
        &mut self,
        held: &mut Held,
        (mut effect, undo): (Effect, Undo),
        (op, by): (Option<OpId>, By),
        outcome: Outcome,
    ) -> u64 {
        let before = held.bytes();
        let seq = held.log.last() + 1;
        effect.note_before(&undo, &|| held.clock.advance(self.data_now()));
        let keeps = self.keeps_replaced(held.at.keyspace);
        if let Some(id) = op {
            held.dedup.remember(id, seq, outcome.clone());
        }
        self.bound(held.at, (&effect, &undo), |key| held.store.order(key));
        held.log.push(
            Logged {
                epoch: held.epoch,
                effect,
                op,
                outcome,
            },
            undo,
            (by, keeps),
        );
        self.memory.recount(before, held.bytes());
        self.replicate(held, seq);
        seq
    }
}
