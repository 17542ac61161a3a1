//! One log on several nodes, as a copy sees it: it applies what its primary sends, and undoes what
//! a new one does not have.

use super::frame::{Ack, Frame, Head};
use super::log::Logged;
use super::store::Effect;
use super::{Assigned, Core, Held, Lane, PartitionRef, Slot};
use crate::mutant::{self, broken};
use doyen_gossip::Time;
use doyen_placement::{Epoch, MemberId};

/// Whose log a copy continues: a tenure, and the session in which the copy began (0: aligned).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Follow {
    pub(super) since: Epoch,
    pub(super) session: u32,
}

impl Core {
    /// A new primary's tail.
    pub(super) fn align(
        &mut self,
        slot: &mut Slot,
        from: MemberId,
        head: &Head,
        (base, last): (u64, u64),
        entries: Vec<Logged>,
    ) {
        let Some(since) = self.follows(slot, from, head.epoch) else {
            return;
        };
        // The table that counts it may never be installed here: a later one may split or merge the
        // partition, and this is what its heirs draw from.
        let of_epoch = [&slot.installed, &slot.accepted]
            .into_iter()
            .flatten()
            .filter(|a| a.epoch == head.epoch);
        let counts = of_epoch
            .into_iter()
            .any(|a| self.in_sync(&a.partition).any(|m| m == self.me));
        let Some(held) = &mut slot.held else { return };
        if held.lead.is_some() || base >= head.first || last < base {
            return;
        }
        let resumes = held
            .sink
            .as_ref()
            .is_some_and(|s| s.resumes(head.session, from));
        if !resumes && (head.session != 0 || held.sink.as_ref().is_some_and(|s| !s.complete())) {
            return;
        }
        let before = held.bytes();
        held.fence = head.epoch;
        let mut seq = head.first;
        if seq > held.log.last() + 1 || base > held.log.last() {
            // A copy in sync has everything that is committed; without it there is nothing to
            // align.
            self.want(held, from, head);
            return;
        }
        for logged in entries {
            if seq > last {
                break;
            }
            // What is committed or trimmed is equal everywhere.
            let settled = seq <= held.log.committed().max(held.log.base());
            let same = held
                .log
                .entry(seq)
                .is_some_and(|own| own.epoch == logged.epoch);
            if !settled && !same {
                held.cut(seq);
                held.take(logged);
            }
            seq += 1;
        }
        if seq > last {
            if !broken(&mutant::KEEPS_TAIL) {
                held.cut(last + 1);
            }
            held.follow = Some(Follow {
                since,
                session: head.session,
            });
            if resumes {
                self.sum_sink(held, head.at);
            } else {
                held.sink = None;
                held.was_in_sync |= counts;
            }
            if !broken(&mutant::DEAF_TO_THE_CLOCK) {
                held.clock.hear(head.clock, self.now);
            }
            held.log.commit(head.committed, &mut self.garbage);
            held.wanted = None;
            self.acknowledge(held, from, head.at, head.epoch);
        }
        self.memory = (self.memory + held.bytes()).saturating_sub(before);
        // Where a clear was undone, what it was still to draw is there again.
        self.note_drawing(head.at, slot);
    }

    /// Entries of the primary's log.
    pub(super) fn append(
        &mut self,
        slot: &mut Slot,
        from: MemberId,
        head: &Head,
        entries: Vec<Logged>,
    ) {
        let Some(since) = self.follows(slot, from, head.epoch) else {
            return;
        };
        let Some(held) = &mut slot.held else { return };
        if held.lead.is_some() {
            return;
        }
        if held.follow
            != Some(Follow {
                since,
                session: head.session,
            })
            || head.first > held.log.last() + 1
        {
            self.want(held, from, head);
            return;
        }
        let (before, sifted) = (held.bytes(), held.store.is_sifted());
        held.fence = head.epoch;
        // What is done with goes first: the new entries take its place.
        held.log.commit(head.committed, &mut self.garbage);
        held.log.trim(self.tail_bytes(held.store.bytes()), u64::MAX);
        let mut seq = head.first;
        for logged in entries {
            // What is here already was sent again.
            if seq > held.log.last() {
                held.take(logged);
            }
            seq += 1;
        }
        held.wanted = None;
        if !broken(&mutant::DEAF_TO_THE_CLOCK) {
            held.clock.hear(head.clock, self.now);
        }
        if broken(&mutant::COPIES_EXPIRE) {
            held.expire_alone(self.now);
        }
        // What came again may be committed already.
        held.log.commit(head.committed, &mut self.garbage);
        self.memory = (self.memory + held.bytes()).saturating_sub(before);
        if head.first < seq {
            self.acknowledge(held, from, head.at, head.epoch);
        }
        if sifted && !held.store.is_sifted() {
            self.timers.insert((self.now, head.at));
        }
        self.prepare_sink(head.at, slot);
    }

    /// Whether `from` leads the partition in this epoch, as far as this node knows; gives the epoch
    /// of its tenure.
    pub(super) fn follows(&self, slot: &Slot, from: MemberId, epoch: Epoch) -> Option<Epoch> {
        let held = slot.held.as_ref()?;
        let of = |a: &Option<Assigned>| {
            let a = a.as_ref()?;
            let epoch = a.epoch == epoch || broken(&mutant::NO_FENCE);
            (epoch && a.primary == from && a.lineage == held.lineage).then_some(a.since)
        };
        let fence = if broken(&mutant::FENCE_BY_INSTALLED) {
            held.epoch
        } else {
            held.epoch.max(held.fence)
        };
        of(&slot.installed)
            .or_else(|| of(&slot.accepted))
            .filter(|_| epoch >= fence || broken(&mutant::NO_FENCE))
    }

    fn want(&mut self, held: &mut Held, from: MemberId, head: &Head) {
        let next = held.log.last() + 1;
        if held.wanted.replace((head.epoch, next)) != Some((head.epoch, next)) {
            let session = held.follow.map_or(0, |f| f.session);
            self.peers.send(
                from,
                Lane::Calls,
                &Frame::Want {
                    at: head.at,
                    epoch: head.epoch,
                    session,
                    next,
                },
            );
        }
    }

    /// Notes an ack; the last one of a batch is sent.
    pub(super) fn acknowledge(
        &mut self,
        held: &mut Held,
        to: MemberId,
        at: PartitionRef,
        epoch: Epoch,
    ) {
        let ack = Ack {
            at,
            epoch,
            session: held.follow.map_or(0, |f| f.session),
            seq: held.log.last(),
        };
        if let Some(peer) = self.peers.get(to) {
            // Where its last one was noted; if that is still there, this one says as much.
            match peer.acks.get_mut(held.ack_noted) {
                Some(noted) if noted.at == at => *noted = ack,
                _ => {
                    held.ack_noted = peer.acks.len();
                    peer.acks.push(ack);
                }
            }
        }
    }

    /// Sends the acks of a batch; and where much has arrived, says so although nothing of it is
    /// whole yet.
    pub(super) fn send_acks(&mut self, to: MemberId) {
        let headroom = self.headroom();
        let Some(peer) = self.peers.get(to) else {
            return;
        };
        if !peer.acks.is_empty() || peer.is_told_at_once() {
            let acks = std::mem::take(&mut peer.acks);
            let mut frame = peer.tell(headroom, acks);
            self.peers.send(to, Lane::Calls, &frame);
            if let (Frame::Acks { acks, .. }, Some(peer)) = (&mut frame, self.peers.get(to)) {
                // Its room serves the next batch.
                acks.clear();
                peer.acks = std::mem::take(acks);
            }
        }
    }

    /// Tells peers how much memory is left, and how much has arrived, where what they know of it is
    /// old. Acks say it, too, but a member that holds no copy sends none, and a primary that thinks
    /// it full would never make one there.
    pub(super) fn tell_headroom(&mut self) {
        let headroom = self.headroom();
        // Much less than lies between a member that is full and one that is so no more.
        let step = (self.limits.memory_bytes_max / 256).min(1 << 20) as u64;
        let me = self.me;
        for id in self
            .peers
            .ids()
            .into_iter()
            .filter(|id| hears_of_memory(me, *id))
        {
            let Some(peer) = self.peers.get(id) else {
                continue;
            };
            let differs = headroom
                .left
                .abs_diff(peer.told.0.left)
                .max(headroom.loose.abs_diff(peer.told.0.loose));
            if differs > step || peer.is_told_at_look(step) {
                let frame = peer.tell(headroom, Vec::new());
                self.peers.send(id, Lane::Calls, &frame);
            }
        }
    }
}

/// Whether a peer is told of this node's memory. Clients hold no copies and make none, and no copy
/// of a node's is made by the same node.
pub(super) fn hears_of_memory(me: MemberId, peer: MemberId) -> bool {
    !peer.is_client() && !me.is_client() && peer.member() != me.member()
}

impl Held {
    /// What `mutant::COPIES_EXPIRE` does: nothing of it is in the log.
    fn expire_alone(&mut self, now: Time) {
        let seq = self.log.last();
        for (map, key) in self.store.overdue(self.clock.advance(now), usize::MAX) {
            self.store.apply(seq, &Effect::Delete { map, key });
        }
    }

    /// Undoes everything from `seq` on. A committed entry is never among it (I9).
    fn cut(&mut self, seq: u64) {
        while self.log.last() >= seq {
            let Some((seq, logged, undo)) = self.log.pop() else {
                return;
            };
            self.store.undo(&logged.effect, undo);
            if let Some(op) = logged.op {
                self.dedup.forget(op, seq);
            }
        }
    }

    /// Applies an entry of the primary's log.
    fn take(&mut self, logged: Logged) {
        let seq = self.log.last() + 1;
        if let Some(op) = logged.op {
            self.dedup.remember(op, seq, logged.outcome.clone());
        }
        let undo = if self.sink.as_ref().is_some_and(|s| !s.complete()) {
            self.store.apply_fuzzy(seq, &logged.effect);
            super::store::Undo::Nothing
        } else if self.sink.is_some() && broken(&mutant::LOSES_TAIL) {
            super::store::Undo::Nothing
        } else {
            self.store.apply(seq, &logged.effect)
        };
        self.log.push(logged, undo);
    }
}
