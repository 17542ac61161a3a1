//! What comes from peers: connections, and frames, which go to the partitions that they concern.

use super::clients;
use super::context::ShardContext;
use crate::role::copy;
use crate::role::copying::LearnerOpening;
use crate::role::host::Host;
use crate::role::partition::Slot;
use crate::role::streaming::{Lagging, RECEIVE_WORK_MAX};
use crate::role::threads;
use crate::role::timers::Duty;
use crate::role::upkeep_queue;
use crate::shard::machine::Shard;
use crate::wire::api::{Lane, Malformed};
use crate::wire::frame::{self, Forwarded, Frame};
use crate::wire::peers::{self, PeerState};
use crate::wire::traffic;
use bytes::{Bytes, BytesMut};
use doyen_gossip::Time;
use doyen_placement::{KeyspaceId, MapId, MemberId, PartitionRef};
use std::collections::VecDeque;
use std::time::Duration;

/// The same for snapshots, for which no client waits: a part or two, some tenths of a millisecond.
const RECEIVE_BULK_MAX: usize = 128 << 10;
/// The first and the longest pause before a refused operation is sent again.
const RETRY: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(200));

impl Shard {
    /// A connection of this version with this peer is up. Both lanes begin at their start.
    pub fn connected(&mut self, now: Time, peer: MemberId, version: u16) {
        self.disconnected(now, peer);
        let host = &mut self.cx.host;
        let hears = copy::hears_of_memory(host.me, peer);
        let ahead_max = hears.then_some(host.limits.ahead_bytes_max);
        host.peers.connect((peer, version), ahead_max, now);
        if host.me.is_client() {
            // Calls are sent once the member says that it is ready.
            return self.subscriber().ask_anew(peer);
        }
        if peer.is_client() {
            return host.greet(peer);
        }
        if let Some(name) = host.tables.name
            && threads::tells_tables(host.me, peer)
        {
            host.peers.tell(peer, &Frame::View(name));
        }
        // Members send no copy here before they know that there is room.
        host.tell_headroom();
        self.cx.channels().tell_interest(peer);
        self.subscriber().ask_anew(peer);
        self.slots.ask_unasked(&mut self.cx.host);
        for slot in self.slots.iter_mut() {
            if let Some(mut leading) = slot.leading()
                && leading.lead.links.contains_key(&peer)
            {
                leading.restart_link(&mut self.cx.host, peer);
                self.cx.host.notice(slot);
            } else if slot.primary() == Some(peer) {
                if let Some(follower) = slot.held.as_mut().and_then(|h| h.follower_mut()) {
                    follower.wanted = None;
                }
                self.cx.pump(slot);
            }
        }
    }

    /// The connection is gone, with everything in flight on it.
    pub fn disconnected(&mut self, now: Time, peer: MemberId) {
        self.cx.host.now = now;
        if !self.cx.host.peers.up(peer) {
            return;
        }
        self.cx.host.peers.disconnect(peer);
        self.cx.publishing.disconnected(peer);
        self.cx.host.traces.disconnected(peer);
        self.slots.forget_readers(peer);
        self.subscriber().ask_anew(peer);
        self.admit(peer);
        self.cx.pull_again(peer);
        let host = &mut self.cx.host;
        host.copying.early.retain(|_, (from, _)| *from != peer);
        host.waiting.leave_all_of(peer);
        host.tickets.gone(peer);
        let mut dropped = host.callers.ready.drop_of(peer, &mut host.timers);
        for slot in self.slots.iter_mut().filter(|s| !s.calls.is_empty()) {
            if slot.calls.sent_to == Some(peer) {
                slot.calls.unsend();
            }
            dropped += slot.calls.retain(|c| c.source.peer() != Some(peer));
            let waiting = &mut slot.calls.waiting;
            let before = waiting.len();
            waiting.retain(|e| e.asker.source.peer() != Some(peer));
            dropped += before - waiting.len();
        }
        host.callers.outstanding -= dropped;
    }

    /// Says whether many bytes wait for a peer outside of this machine. Then the machine sends only
    /// what cannot wait. A new connection begins uncongested.
    pub fn congested(&mut self, now: Time, peer: MemberId, congested: bool) {
        self.cx.host.now = now;
        self.cx.host.peers.set_congested(peer, congested);
    }

    /// Takes bytes of one lane. Whole frames are consumed from the front. A partial frame stays for
    /// the next call. If this returns true, more work is left than others should wait for: let
    /// others have their turn, and then call it again with what is left (which may be nothing).
    ///
    /// # Errors
    /// `Malformed`: close the connection.
    pub fn receive(
        &mut self,
        now: Time,
        unix_ms: u64,
        peer: MemberId,
        lane: Lane,
        bytes: &mut BytesMut,
    ) -> Result<bool, Malformed> {
        let host = &mut self.cx.host;
        (host.now, host.wall) = (now, (unix_ms, now));
        let batch = |p: &mut PeerState| std::mem::take(p.batch(lane));
        let mut batch = host.peers.get(peer).map(batch).unwrap_or_default();
        let result = self.receive_all(peer, lane, bytes, &mut batch);
        let host = &mut self.cx.host;
        if let Some(p) = host.peers.get(peer) {
            *p.batch(lane) = batch;
            p.traffic.partial[traffic::index(lane)] = bytes.len() as u64;
            if !bytes.is_empty() {
                // The rest is on its way. Without a timer, this thread would not know that it is
                // late for it.
                let soon = host.now + upkeep_queue::UPKEEP;
                host.timers.want_at(Duty::Upkeep, soon);
            }
        }
        host.stats.malformed += u64::from(result.is_err());
        host.send_acks(peer);
        result
    }

    fn receive_all(
        &mut self,
        peer: MemberId,
        lane: Lane,
        bytes: &mut BytesMut,
        batch: &mut VecDeque<Frame>,
    ) -> Result<bool, Malformed> {
        // A frame holds at most a key, two values (the old one as an outcome) and a batch.
        let limits = &self.cx.host.limits;
        let frame_bytes_max = 3 * limits.value_bytes_max
            + 2 * limits.key_bytes_max
            + frame::FRAME_SLACK
            + limits.chunk_bytes;
        self.cx.host.worked = 0;
        let most = if lane == Lane::Bulk {
            RECEIVE_BULK_MAX
        } else {
            RECEIVE_WORK_MAX
        };
        loop {
            let host = &mut self.cx.host;
            let read = if batch.is_empty() {
                host.read_batch(peer, lane, bytes, frame_bytes_max, batch)
            } else {
                Ok(())
            };
            if batch.is_empty() {
                return read.map(|()| false);
            }
            self.slots.warm_batch(batch);
            while let Some(frame) = batch.pop_front() {
                self.handle(peer, frame)?;
                if self.cx.host.worked >= most && (!batch.is_empty() || !bytes.is_empty()) {
                    return read.map(|()| true);
                }
            }
            read?;
        }
    }

    /// Announces which keys of a map will be looked up next, with the fields that are not empty.
    /// One lookup waits for memory several times. Together, many wait hardly longer than one.
    pub fn warm<'a>(
        &self,
        keyspace: KeyspaceId,
        map: MapId,
        keys: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) {
        let tables = &self.cx.host.tables;
        // Many pipelines are about one key.
        let mut last = None;
        self.slots.warm_lookups(keys.filter_map(|(key, field)| {
            let at = match last {
                Some((former, _)) if former == key && field.is_empty() => return None,
                Some((former, at)) if former == key => at,
                _ => tables.place(keyspace, map, key)?,
            };
            last = Some((key, at));
            Some((at, map, key, field))
        }));
    }

    fn handle(&mut self, peer: MemberId, read: Frame) -> Result<(), Malformed> {
        if !clients::fits(self.cx.host.me, peer, &read) {
            return Err(Malformed("a frame that this kind of peer never sends"));
        }
        match read.partition() {
            Some(at) => match self.slots.get_mut(at) {
                Some(slot) => self.cx.take_frame(slot, peer, read),
                None => {
                    self.cx.host.not_here(at, peer, &read);
                    Ok(())
                }
            },
            None => self.handle_whole(peer, read),
        }
    }

    /// A frame that concerns several partitions or none.
    fn handle_whole(&mut self, peer: MemberId, read: Frame) -> Result<(), Malformed> {
        let host = &mut self.cx.host;
        match &read {
            Frame::View(name) if !host.me.is_client() => self.cx.heard_of(*name),
            Frame::View(_) | Frame::Tick { .. } | Frame::Table { .. } | Frame::MapMade { .. } => {
                let news = self.cx.told_by_member(peer, read)?;
                if news {
                    self.slots.pump_calls_of(&mut self.cx.host, peer);
                    self.slots.ask_unasked(&mut self.cx.host);
                }
            }
            Frame::Traced { at, n, context } => host.traces.announced(peer, *at, *n, *context),
            Frame::Clocks { clocks } => self.slots.hear_clocks(host, peer, clocks),
            Frame::Waited {
                n, stamp, outcome, ..
            } => host.waited(peer, *n, *stamp, outcome),
            Frame::Stamp { stamp } => host.peers.stamp(peer, *stamp),
            Frame::Late { ms } => host.peers.note_lateness(peer, *ms, host.now),
            Frame::Heard { .. }
            | Frame::Pull { .. }
            | Frame::MakeMap { .. }
            | Frame::WantMap { .. } => self.cx.asked_by_client(peer, read)?,
            Frame::Publish(_)
            | Frame::Interest { .. }
            | Frame::Interested { .. }
            | Frame::Count { .. }
            | Frame::Counted { .. }
            | Frame::Ask { .. }
            | Frame::Named { .. } => self.cx.channels().told_of_publishing(peer, read),
            Frame::Subscribe { .. }
            | Frame::Unsubscribe { .. }
            | Frame::Taken { .. }
            | Frame::Confirm { .. }
            | Frame::Reads { .. } => self.slots.asked_by_subscriber(host, peer, read),
            Frame::Subscribed { .. } | Frame::Changes { .. } | Frame::Confirmed { .. } => {
                host.told_of_changes(peer, read);
            }
            Frame::Acks {
                headroom,
                arrived,
                acks,
            } => {
                let peers = &mut host.peers;
                peers.set_headroom(peer, *headroom, *arrived, host.now);
                for ack in acks {
                    if let Some(slot) = self.slots.get_mut(ack.at) {
                        if let Some(mut leading) = slot.leading() {
                            leading.acked(host, ack, peer);
                        }
                        host.notice(slot);
                    }
                }
            }
            // Those of one partition are handled there.
            _ => {}
        }
        Ok(())
    }

    /// A peer has room again, so data that was held back is sent: the log first, because others
    /// wait for its acks; then one answer, so that calls cannot hold up all answers. The logs of
    /// learners and further calls go first by turns.
    fn relieve(&mut self, peer: MemberId) {
        let mut learners = Vec::new();
        let host = &mut self.cx.host;
        for slot in self.slots.iter_mut() {
            match slot.lags_at(peer) {
                Some(Lagging::Learner(order)) => learners.push((order, slot.at)),
                Some(Lagging::Copy) => {
                    if let Some(mut leading) = slot.leading() {
                        leading.stream(host, peer);
                    }
                    host.notice(slot);
                }
                None => {}
            }
            if let Some(mut leading) = slot.leading() {
                leading.tell_readers_at(host, peer);
            }
        }
        learners.sort_unstable();
        let learners_first = host.peers.is_learners_turn(peer);
        if learners_first {
            self.slots.stream_to_learners(host, &learners, peer);
        }
        host.peers.answer_more(peer, 1);
        self.slots.ask_unasked(host);
        self.admit(peer);
        for slot in self.slots.iter_mut() {
            if !slot.calls.parked.is_empty() && slot.primary() == Some(peer) {
                self.cx.pump(slot);
                self.cx.host.notice(slot);
            }
        }
        let host = &mut self.cx.host;
        if !learners_first {
            self.slots.stream_to_learners(host, &learners, peer);
        }
        host.peers.answer_more(peer, usize::MAX);
        host.peers.publish_more(peer);
    }

    /// Calls that waited for a crowded peer are executed, one partition after the other, as long as
    /// the peer accepts more.
    fn admit(&mut self, peer: MemberId) {
        for _ in 0..self.cx.host.callers.waiting_for(peer) {
            if self.cx.host.peers.hold_back(peer) {
                return;
            }
            let Some(at) = self.cx.host.callers.next_waiting_for(peer) else {
                break;
            };
            if let Some(slot) = self.slots.get_mut(at) {
                slot.crowded_by = slot.crowded_by.filter(|by| *by != peer);
                self.cx.pump(slot);
                self.cx.host.notice(slot);
            }
        }
    }

    /// Takes a datagram of a peer ([`Shard::poll_datagram`]). Datagrams may be lost, and overtake
    /// what is on the lanes.
    ///
    /// # Errors
    /// `Malformed`: close the connection.
    pub fn datagram(&mut self, now: Time, peer: MemberId, bytes: &[u8]) -> Result<(), Malformed> {
        self.cx.host.now = self.cx.host.now.max(now);
        let mut bytes = BytesMut::from(bytes);
        let result = match frame::take(&mut bytes, peers::DATAGRAM_BYTES_MAX) {
            Ok(Some((frame @ (Frame::Clocks { .. } | Frame::Late { .. }), _)))
                if bytes.is_empty() =>
            {
                self.handle(peer, frame)
            }
            Ok(_) => Err(Malformed("a datagram that no peer sends")),
            Err(malformed) => Err(malformed),
        };
        self.cx.host.stats.malformed += u64::from(result.is_err());
        result
    }

    /// The next datagram for a peer, if any. It has at most a thousand bytes.
    pub fn poll_datagram(&mut self) -> Option<(MemberId, Bytes)> {
        self.cx.host.peers.next_datagram()
    }

    /// The next bytes for a peer: everything that is ready for one lane, in one buffer. Large
    /// values are separate, as they are stored.
    pub fn poll_transmit(&mut self) -> Option<(MemberId, Lane, Bytes)> {
        loop {
            if let Some(next) = self.cx.host.peers.next() {
                return Some(next);
            }
            let peer = self.cx.host.peers.relieved()?;
            self.relieve(peer);
        }
    }
}

impl ShardContext {
    /// Takes a frame that concerns this partition.
    fn take_frame(
        &mut self,
        slot: &mut Slot,
        peer: MemberId,
        read: Frame,
    ) -> Result<(), Malformed> {
        // A copy that follows its primary's log has no later work.
        if !matches!(read, Frame::Append { .. } | Frame::Align { .. }) {
            self.host.notice(slot);
        }
        match read {
            Frame::Forward {
                forwarded,
                before,
                work,
            } => self.forwarded(slot, peer, &forwarded, before, work)?,
            Frame::ForwardSet {
                forwarded,
                map,
                entry,
            } => self.forwarded_set(slot, peer, &forwarded, map, entry)?,
            Frame::Reply {
                n,
                attempt,
                outcome,
                ..
            } => self.replied(slot, (n, attempt), outcome),
            Frame::Wait {
                n,
                age_ms,
                stamp,
                work,
                ..
            } => self.take_ticket(slot, (peer, n), (age_ms, stamp), work)?,
            Frame::Unwait { n, .. } => self.host.unwait((peer, n)),
            Frame::NotServing { n, attempt, .. } => {
                let is_of_attempt = slot.calls.refused(n, attempt);
                if is_of_attempt {
                    let pause = self.host.backoff(RETRY.0, RETRY.1, slot.calls.refusals);
                    slot.calls.refusals += 1;
                    self.host.timers.wake(slot.at, self.host.now + pause);
                }
            }
            Frame::Align {
                head,
                base,
                last,
                entries,
            } => {
                if let Some(mut following) = slot.following() {
                    following.align(&mut self.host, peer, &head, (base, last), entries);
                }
                // If a clear was undone, the keys that it was still to draw are there again.
                slot.note_migration(&mut self.host);
            }
            Frame::Append { head, entries } => {
                if let Some(mut following) = slot.following() {
                    following.append(&mut self.host, peer, &head, entries);
                }
            }
            Frame::Begin {
                epoch,
                lineage,
                session,
                kept,
                seq,
                bytes,
                ..
            } => {
                let opening = LearnerOpening {
                    epoch,
                    lineage,
                    session,
                    kept,
                    seq,
                    bytes,
                };
                slot.begin_sink(&mut self.host, peer, opening);
            }
            Frame::Chunk { .. }
            | Frame::Outcomes { .. }
            | Frame::Continue { .. }
            | Frame::Finish { .. }
            | Frame::Compare { .. } => {
                if let Some(mut following) = slot.following() {
                    following.told(&mut self.host, peer, read)?;
                }
            }
            Frame::Want { .. }
            | Frame::NoRoom { .. }
            | Frame::Later { .. }
            | Frame::Holds { .. }
            | Frame::ChunkAck { .. }
            | Frame::Arrived { .. }
            | Frame::Finished { .. }
            | Frame::Verdict { .. } => {
                if let Some(mut leading) = slot.leading() {
                    leading.told(&mut self.host, peer, read);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Host {
    /// A frame concerns a partition that no table names here.
    fn not_here(&mut self, at: PartitionRef, peer: MemberId, read: &Frame) {
        match read {
            Frame::Wait { n, .. } => self.turn_away(at, (peer, *n)),
            Frame::Forward { forwarded, .. } | Frame::ForwardSet { forwarded, .. } => {
                let Forwarded { n, attempt, .. } = *forwarded;
                // It is not noted: a client could name partitions without end.
                let refusal = Frame::NotServing { at, n, attempt };
                self.peers.tell(peer, &refusal);
            }
            _ => {}
        }
    }
}
