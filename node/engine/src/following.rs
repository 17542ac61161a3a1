//! One log on several nodes, from a copy's point of view. The copy applies what its primary sends,
//! and undoes what a new primary does not have.

use super::frame::{Ack, Frame, Head};
use super::log::Logged;
use super::role::Bond;
use super::store::Effect;
use super::{Assigned, Core, Held, Lane, Slot};
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
        // A copy counts if the installed or the accepted table has it in sync. The accepted table
        // may never be installed here: a later one may be installed instead, which splits or merges
        // the partition. The new partitions then draw their keys from this copy.
        let of_epoch = [&slot.installed, &slot.accepted]
            .into_iter()
            .flatten()
            .filter(|a| a.epoch == head.epoch);
        let counts = of_epoch
            .into_iter()
            .any(|a| self.in_sync(&a.partition).any(|m| m == self.me));
        let Some(held) = &mut slot.held else { return };
        let Some(follower) = held.follower() else {
            return;
        };
        if base >= head.first || last < base {
            return;
        }
        let sink = follower.sink();
        let resumes = sink.is_some_and(|s| s.resumes(head.session, from));
        if !resumes && (head.session != 0 || sink.is_some_and(|s| !s.complete())) {
            return;
        }
        let before = held.bytes();
        held.fence = head.epoch;
        let mut seq = head.first;
        if seq > held.log.last() + 1 || base > held.log.last() {
            // A copy in sync has everything that is committed. Without that, there is nothing to
            // align.
            self.want(held, from, head);
            return;
        }
        for logged in entries {
            if seq > last {
                break;
            }
            // Entries that are committed or trimmed are equal everywhere.
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
            let session = head.session;
            held.align(Follow { since, session }, resumes);
            if resumes {
                self.sum_sink(held);
            } else {
                held.was_in_sync |= counts;
            }
            if !broken(&mutant::DEAF_TO_THE_CLOCK) {
                held.clock.hear(head.clock, self.now);
            }
            self.commit(held, head.committed);
            self.acknowledge(held, from, head.epoch);
        }
        self.memory = (self.memory + held.bytes()).saturating_sub(before);
        // If a clear was undone, the keys that it was still to draw are there again.
        self.note_drawing(slot);
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
        let last = held.log.last();
        let Some(follower) = held.follower_mut() else {
            return;
        };
        if follower.follow()
            != Some(Follow {
                since,
                session: head.session,
            })
            || head.first > last + 1
        {
            self.want(held, from, head);
            return;
        }
        follower.wanted = None;
        let (before, sifted) = (held.bytes(), held.store.is_sifted());
        held.fence = head.epoch;
        // Committed entries are dropped first: the new entries reuse their memory.
        self.commit(held, head.committed);
        held.log.trim(self.tail_bytes(held.store.bytes()), u64::MAX);
        let mut seq = head.first;
        for logged in entries {
            // Entries that are here already were sent again.
            if seq > held.log.last() {
                held.take(logged);
            }
            seq += 1;
        }
        if !broken(&mutant::DEAF_TO_THE_CLOCK) {
            held.clock.hear(head.clock, self.now);
        }
        if broken(&mutant::COPIES_EXPIRE) {
            held.expire_alone(self.now);
        }
        // Entries that came again may be committed already.
        self.commit(held, head.committed);
        self.memory = (self.memory + held.bytes()).saturating_sub(before);
        if head.first < seq {
            self.acknowledge(held, from, head.epoch);
        }
        if sifted && !held.store.is_sifted() {
            self.timers.wake(head.at, self.now);
        }
        self.prepare_sink(slot);
    }

    /// Whether `from` leads the partition in this epoch, as far as this node knows. Returns the
    /// epoch of its tenure.
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
        let Some(follower) = held.follower_mut() else {
            return;
        };
        if follower.wanted.replace((head.epoch, next)) != Some((head.epoch, next)) {
            let session = follower.session();
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

    /// Notes an ack. The last one of a batch is sent.
    pub(super) fn acknowledge(&mut self, held: &mut Held, to: MemberId, epoch: Epoch) {
        let (at, seq) = (held.at, held.log.last());
        let Some(follower) = held.follower_mut() else {
            return;
        };
        let ack = Ack {
            at,
            epoch,
            session: follower.session(),
            seq,
        };
        if let Some(peer) = self.peers.get(to) {
            // If the last ack of this partition is still in the batch, it is replaced.
            match peer.acks.get_mut(follower.ack_noted) {
                Some(noted) if noted.at == at => *noted = ack,
                _ => {
                    follower.ack_noted = peer.acks.len();
                    peer.acks.push(ack);
                }
            }
        }
    }

    /// Sends the acks of a batch. If much has arrived although no frame of it is whole yet, this
    /// says so.
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
                // Its buffer serves the next batch.
                acks.clear();
                peer.acks = std::mem::take(acks);
            }
        }
    }

    /// Tells peers how much memory is left and how much has arrived, if what they know is old. Acks
    /// say it, too, but a member without copies sends none, and a primary that believes it to be
    /// full would never make a copy there.
    pub(super) fn tell_headroom(&mut self) {
        let headroom = self.headroom();
        // Much less than the difference between a full member and one that is no longer full.
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

/// Whether a peer is told of this node's memory. Clients hold no copies and make none, and a node
/// makes no copies of its own partitions on itself.
pub(super) fn hears_of_memory(me: MemberId, peer: MemberId) -> bool {
    !peer.is_client() && !me.is_client() && peer.member() != me.member()
}

impl Held {
    /// A primary has aligned the log. A learner that resumes stays one until it was compared.
    fn align(&mut self, follow: Follow, resumes: bool) {
        let Some(follower) = self.follower_mut() else {
            return;
        };
        match std::mem::take(&mut follower.bond) {
            Bond::Learning(_, sink) if resumes => follower.bind(Bond::Learning(follow, sink)),
            _ => follower.bind(Bond::Aligned(follow)),
        }
    }

    /// The effect of `mutant::COPIES_EXPIRE`: nothing of it is in the log.
    fn expire_alone(&mut self, now: Time) {
        let seq = self.log.last();
        for (map, key) in self.store.overdue(self.clock.advance(now), usize::MAX) {
            self.store.apply(seq, &Effect::Delete { map, key });
        }
    }

    /// Undoes all entries from `seq` on. None of them may be committed (I9).
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
        let undo = if self.sink().is_some_and(|s| !s.complete()) {
            self.store.apply_fuzzy(seq, &logged.effect);
            super::store::Undo::Nothing
        } else if self.sink().is_some() && broken(&mutant::LOSES_TAIL) {
            super::store::Undo::Nothing
        } else {
            self.store.apply(seq, &logged.effect)
        };
        self.log.push(logged, undo);
    }
}
