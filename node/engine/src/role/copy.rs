//! One log on several nodes, from a copy's point of view. The copy applies what its primary sends,
//! and undoes what a new primary does not have.

use super::partition::Assigned;
use crate::log::partition_log::Logged;
use crate::mutant::{self, broken};
use crate::role::holding::{Bond, Follow, Following};
use crate::role::host::Host;
use crate::store::{Effect, OverduePart, Undo};
use crate::value::cause::{By, Cause};
use crate::wire::frame::{Ack, Frame, FrameHead};
use doyen_gossip::Time;
use doyen_placement::{Epoch, MemberId};

impl Host {
    /// Sends the acks of a batch. If much has arrived although no frame of it is whole yet, this
    /// says so.
    pub(crate) fn send_acks(&mut self, to: MemberId) {
        let headroom = self.headroom();
        let Some(peer) = self.peers.get(to) else {
            return;
        };
        if !peer.acks.is_empty() || peer.traffic.is_told_at_once() {
            let acks = std::mem::take(&mut peer.acks);
            let mut frame = peer.traffic.tell(headroom, acks);
            self.peers.tell(to, &frame);
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
    pub(crate) fn tell_headroom(&mut self) {
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
                .abs_diff(peer.traffic.told.0.left)
                .max(headroom.loose.abs_diff(peer.traffic.told.0.loose));
            if differs > step || peer.traffic.is_told_at_look(step) {
                let frame = peer.traffic.tell(headroom, Vec::new());
                self.peers.tell(id, &frame);
            }
        }
    }
}

/// Whether a peer gets reports of this node's memory. Clients hold no copies and make none, and a
/// node makes no copies of its own partitions on itself.
pub(crate) fn hears_of_memory(me: MemberId, peer: MemberId) -> bool {
    !peer.is_client() && !me.is_client() && peer.member() != me.member()
}

impl Following<'_> {
    /// A new primary's tail.
    pub(crate) fn align(
        &mut self,
        cx: &mut Host,
        from: MemberId,
        head: &FrameHead,
        (base, last): (u64, u64),
        entries: Vec<Logged>,
    ) {
        let Some(since) = self.follows(from, head.epoch) else {
            return;
        };
        // A copy counts if the installed or the accepted table has it in sync. The accepted table
        // may never be installed here: a later one may be installed instead, which splits or merges
        // the partition. The new partitions then draw their keys from this copy.
        let of_epoch = [self.installed, self.accepted]
            .into_iter()
            .flatten()
            .filter(|a| a.epoch == head.epoch);
        let counts = of_epoch
            .into_iter()
            .any(|a| cx.tables.in_sync(&a.partition).any(|m| m == cx.me));
        if base >= head.first || last < base {
            return;
        }
        let sink = self.follower.sink();
        let resumes = sink.is_some_and(|s| s.resumes(head.session, from));
        if !resumes && (head.session != 0 || sink.is_some_and(|s| !s.complete())) {
            return;
        }
        let before = self.bytes();
        *self.fence = head.epoch;
        let mut seq = head.first;
        if seq > self.log.last() + 1 || base > self.log.last() {
            // A copy in sync has everything that is committed. Without that, there is nothing to
            // align.
            self.want(cx, from, head);
            return;
        }
        for logged in entries {
            if seq > last {
                break;
            }
            // Entries that are committed or trimmed are equal everywhere.
            let settled = seq <= self.log.committed().max(self.log.base());
            let same = self
                .log
                .entry(seq)
                .is_some_and(|own| own.epoch == logged.epoch);
            if !settled && !same {
                self.cut(seq);
                self.take(logged, cx.read.keeps_replaced(cx.now, head.at.keyspace));
            }
            seq += 1;
        }
        if seq > last {
            if !broken(&mutant::KEEPS_TAIL) {
                self.cut(last + 1);
            }
            self.say_clock(cx, from, head.epoch);
            let session = head.session;
            self.bind_to(Follow { since, session }, resumes);
            if resumes {
                self.sum_sink(cx);
            } else {
                *self.was_in_sync |= counts;
            }
            if !broken(&mutant::DEAF_TO_THE_CLOCK) {
                self.clock.hear(head.clock, since, cx.now);
            }
            self.commit(cx, head.committed);
            // Half an alignment counts nothing.
            self.answer(cx, from, (head.epoch, last));
        }
        cx.disk.note(self.at, self.log);
        cx.memory.recount(before, self.bytes());
    }

    /// Entries of the primary's log.
    pub(crate) fn append(
        &mut self,
        cx: &mut Host,
        from: MemberId,
        head: &FrameHead,
        entries: Vec<Logged>,
    ) {
        let Some(since) = self.follows(from, head.epoch) else {
            return;
        };
        if self.follower.follow()
            != Some(Follow {
                since,
                session: head.session,
            })
            || head.first > self.log.last() + 1
        {
            self.want(cx, from, head);
            return;
        }
        self.follower.wanted = None;
        let (before, sifted) = (self.bytes(), self.store.is_sifted());
        *self.fence = head.epoch;
        // Committed entries are dropped first: the new entries reuse their memory.
        self.commit(cx, head.committed);
        let share = cx.tail_bytes(self.at, self.store.bytes());
        self.log.trim(share, u64::MAX);
        let mut seq = head.first;
        for logged in entries {
            // Entries that are here already were sent again.
            if seq > self.log.last() {
                self.take(logged, cx.read.keeps_replaced(cx.now, head.at.keyspace));
            }
            seq += 1;
        }
        if !broken(&mutant::DEAF_TO_THE_CLOCK) {
            self.clock.hear(head.clock, since, cx.now);
        }
        if broken(&mutant::COPIES_EXPIRE) {
            self.expire_alone(cx.data_now());
        }
        // Entries that came again may be committed already.
        self.commit(cx, head.committed);
        cx.memory.recount(before, self.bytes());
        cx.disk.note(self.at, self.log);
        if head.first < seq {
            self.answer(cx, from, (head.epoch, head.first));
        }
        if sifted && !self.store.is_sifted() {
            cx.timers.wake(head.at, cx.now);
        }
        self.prepare_sink(cx);
    }

    /// Tells a new primary what the clock shows here, before the ack with which it may open.
    fn say_clock(&mut self, cx: &mut Host, to: MemberId, epoch: Epoch) {
        if !broken(&mutant::KEEPS_OWN_CLOCK) {
            let clocks = vec![(self.at, epoch, self.clock.report(cx.now))];
            let clocks = Frame::Clocks { clocks };
            cx.peers.tell(to, &clocks);
        }
    }

    /// The primary tells its clock, apart from its log.
    pub(crate) fn hear_clock(&mut self, cx: &Host, from: MemberId, (epoch, ms): (Epoch, u64)) {
        let since = self.follows(from, epoch);
        let aligned = self.follower.follow().map(|follow| follow.since);
        // Before that, the new primary asks what the clock of the former one showed.
        if let Some(since) = since.filter(|since| aligned == Some(*since))
            && !broken(&mutant::DEAF_TO_THE_CLOCK)
        {
            self.clock.hear(ms, since, cx.now);
        }
    }

    /// Whether `from` leads the partition in this epoch, as far as this node knows. Returns the
    /// epoch of its tenure.
    pub(crate) fn follows(&self, from: MemberId, epoch: Epoch) -> Option<Epoch> {
        let of = |a: Option<&Assigned>| {
            let a = a?;
            let epoch = a.epoch == epoch || broken(&mutant::NO_FENCE);
            (epoch && a.primary == from && a.lineage == self.lineage).then_some(a.since)
        };
        let fence = if broken(&mutant::FENCE_BY_INSTALLED) {
            self.epoch
        } else {
            self.epoch.max(*self.fence)
        };
        of(self.installed)
            .or_else(|| of(self.accepted))
            .filter(|_| epoch >= fence || broken(&mutant::NO_FENCE))
    }

    fn want(&mut self, cx: &mut Host, from: MemberId, head: &FrameHead) {
        let next = self.log.last() + 1;
        let follower = &mut *self.follower;
        if follower.wanted.replace((head.epoch, next)) != Some((head.epoch, next)) {
            let session = follower.session();
            let want = Frame::Want {
                at: head.at,
                epoch: head.epoch,
                session,
                next,
            };
            cx.peers.tell(from, &want);
        }
    }

    /// Acknowledges what has come, if what counts here reaches up to `least`. If it is still on its
    /// way to the disk, nothing is said before that: a copy whose disk hangs is a silent one.
    fn answer(&mut self, cx: &mut Host, to: MemberId, (epoch, least): (Epoch, u64)) {
        self.follower.answers = Some((to, epoch));
        if self.log.counted() >= least.min(self.log.last()) {
            self.acknowledge(cx, to, epoch);
        }
    }

    /// More is on the disk. Acknowledges that to the primary that sent it, and returns whom. The
    /// ack has yet to be sent.
    pub(crate) fn acknowledge_synced(&mut self, cx: &mut Host) -> Option<MemberId> {
        let (to, epoch) = self.follower.answers?;
        let since = self.follows(to, epoch)?;
        if self.follower.follow().map(|follow| follow.since) != Some(since) {
            return None;
        }
        self.acknowledge(cx, to, epoch);
        Some(to)
    }

    /// Notes an ack. The last one of a batch is sent.
    pub(crate) fn acknowledge(&mut self, cx: &mut Host, to: MemberId, epoch: Epoch) {
        let (at, seq) = (self.at, self.log.counted());
        let follower = &mut *self.follower;
        let ack = Ack {
            at,
            epoch,
            session: follower.session(),
            seq,
        };
        if let Some(peer) = cx.peers.get(to) {
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

    /// A primary has aligned the log. A learner that resumes stays one until it was compared.
    fn bind_to(&mut self, follow: Follow, resumes: bool) {
        let bond = match std::mem::take(&mut self.follower.bond) {
            Bond::Learning(_, sink) if resumes => Bond::Learning(follow, sink),
            Bond::None | Bond::Aligned(_) | Bond::Learning(..) => Bond::Aligned(follow),
        };
        self.follower.bind(bond);
    }

    /// Drops entries of the log beyond what is kept.
    pub(crate) fn trim(&mut self, cx: &mut Host) {
        let before = self.log.bytes();
        let share = cx.tail_bytes(self.at, self.store.bytes());
        self.log.trim(share, u64::MAX);
        cx.memory.recount(before, self.log.bytes());
    }

    /// The log is committed up to here. Maps that no undo needs any more are freed.
    fn commit(&mut self, cx: &mut Host, seq: u64) {
        cx.memory
            .garbage
            .collect(&mut cx.timers, |maps| self.log.commit(seq, maps));
    }

    /// The effect of `mutant::COPIES_EXPIRE`: nothing of it is in the log.
    fn expire_alone(&mut self, now: Time) {
        let seq = self.log.last();
        for (map, key, part) in self.store.overdue(self.clock.advance(now), usize::MAX) {
            let effect = match part {
                OverduePart::Fields => continue,
                OverduePart::Key => Effect::Delete {
                    map,
                    key,
                    cause: Cause::Expired,
                },
                OverduePart::Row(field) => {
                    let order = self.store.order(&key);
                    let kind = self.store.found(map, order, &key).kind();
                    Effect::RowDelete {
                        map,
                        key,
                        kind,
                        field,
                    }
                }
            };
            self.store.apply(seq, &effect);
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
    fn take(&mut self, logged: Logged, keeps: bool) {
        let seq = self.log.last() + 1;
        if let Some(op) = logged.op {
            self.dedup.remember(op, seq, logged.outcome.clone());
        }
        let undo = if self.follower.sink().is_some_and(|s| !s.complete()) {
            self.store.apply_fuzzy(seq, &logged.effect);
            Undo::Nothing
        } else if self.follower.sink().is_some() && broken(&mutant::LOSES_TAIL) {
            Undo::Nothing
        } else {
            self.store.apply(seq, &logged.effect)
        };
        self.log.push(logged, undo, (By::UNKNOWN, keeps));
    }
}
