//! What comes from peers: connections, and frames, which go to the partitions that they concern.

use super::clients;
use crate::command::operation::Work;
use crate::role::copy;
use crate::role::copying::{Opening, Teaching};
use crate::role::partition::Slot;
use crate::role::rounds;
use crate::role::threads;
use crate::role::timers::Duty;
use crate::shard::machine::Shard;
use crate::store::index;
use crate::wire::api::{Lane, Malformed};
use crate::wire::frame::{self, Frame};
use crate::wire::peers;
use bytes::{Bytes, BytesMut};
use doyen_gossip::Time;
use doyen_placement::{Epoch, KeyspaceId, MapId, MemberId, PartitionRef};
use std::collections::VecDeque;
use std::time::Duration;

/// About how many bytes of values and frames one `receive` handles: a few milliseconds of work.
const RECEIVE_WORK_MAX: usize = 4 << 20;
/// The same for snapshots, for which no client waits: a part or two, some tenths of a millisecond.
const RECEIVE_BULK_MAX: usize = 128 << 10;
/// With this many frames, it pays to load what they look up beforehand.
const WARM_LEAST: usize = 3;
/// The work of a frame besides its bytes.
const FRAME_WORK: usize = 512;
/// The first and the longest pause before a refused operation is sent again.
const RETRY: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(200));

/// A holder that was not sent all of the log.
enum Lagging {
    /// Writes wait for its acks.
    Copy,
    /// They do not. What it lacks is sent in this order: first to those that have their snapshot,
    /// and of these, to the one that lacks the least. So one after the other catches up.
    Learner((bool, u64)),
}

impl Slot {
    /// Whether this node leads, and the peer was not sent all of the log.
    fn lags_at(&self, peer: MemberId) -> Option<Lagging> {
        let held = self.held.as_ref()?;
        let link = held.lead()?.links.get(&peer)?;
        if link.next > held.log.last() {
            return None;
        }
        Some(if link.required {
            Lagging::Copy
        } else {
            let lag = held.log.bytes_between(link.acked, held.log.last());
            let copied = link.teaching.as_ref().is_some_and(Teaching::is_copied);
            Lagging::Learner((!copied, lag))
        })
    }
}

impl Shard {
    /// A connection of this version with this peer is up. Both lanes begin at their start.
    pub fn connected(&mut self, now: Time, peer: MemberId, version: u16) {
        self.disconnected(now, peer);
        let ahead_max = copy::hears_of_memory(self.cx.host.me, peer)
            .then_some(self.cx.host.limits.ahead_bytes_max);
        self.cx.host.peers.connect((peer, version), ahead_max, now);
        if self.cx.host.me.is_client() {
            // Calls are sent once the member says that it is ready.
            return self.slots.ask_anew(&mut self.cx.host, peer);
        }
        if peer.is_client() {
            return self.cx.host.greet(peer);
        }
        if let Some(name) = self.cx.host.tables.name
            && threads::tells_tables(self.cx.host.me, peer)
        {
            self.cx
                .host
                .peers
                .send(peer, Lane::Calls, &Frame::View(name));
        }
        // Members send no copy here before they know that there is room.
        self.cx.host.tell_headroom();
        self.cx.tell_interest(peer);
        self.slots.ask_anew(&mut self.cx.host, peer);
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
        self.slots.ask_anew(&mut self.cx.host, peer);
        self.admit(peer);
        self.cx
            .host
            .copying
            .early
            .retain(|_, (from, _)| *from != peer);
        self.cx.pull_again(peer);
        let mut dropped = self
            .cx
            .host
            .callers
            .ready
            .drop_of(peer, &mut self.cx.host.timers);
        for slot in self.slots.iter_mut().filter(|s| !s.calls.is_empty()) {
            if slot.calls.sent_to == Some(peer) {
                slot.calls.unsend();
            }
            dropped += slot.calls.retain(|c| c.source.peer() != Some(peer));
            let before = slot.calls.waiting.len();
            slot.calls
                .waiting
                .retain(|e| e.asker.source.peer() != Some(peer));
            dropped += before - slot.calls.waiting.len();
        }
        self.cx.host.callers.outstanding -= dropped;
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
        self.cx.host.now = now;
        self.cx.host.wall = (unix_ms, now);
        let mut batch = self
            .cx
            .host
            .peers
            .get(peer)
            .map(|p| std::mem::take(p.batch(lane)))
            .unwrap_or_default();
        let result = self.receive_all(peer, lane, bytes, &mut batch);
        if let Some(p) = self.cx.host.peers.get(peer) {
            *p.batch(lane) = batch;
            p.partial[peers::index(lane)] = bytes.len() as u64;
            if !bytes.is_empty() {
                // The rest is on its way. Without a timer, this thread would not know that it is
                // late for it.
                let soon = self.cx.host.now + rounds::UPKEEP;
                self.cx.host.timers.want_at(Duty::Upkeep, soon);
            }
        }
        if result.is_err() {
            self.cx.host.stats.malformed += 1;
        }
        self.cx.host.send_acks(peer);
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
            let read = if batch.is_empty() {
                self.read_batch(peer, lane, bytes, frame_bytes_max, batch)
            } else {
                Ok(())
            };
            if batch.is_empty() {
                return read.map(|()| false);
            }
            self.warm_batch(batch);
            while let Some(frame) = batch.pop_front() {
                self.handle(peer, frame)?;
                if self.cx.host.worked >= most && (!batch.is_empty() || !bytes.is_empty()) {
                    return read.map(|()| true);
                }
            }
            read?;
        }
    }

    /// Takes some whole frames.
    fn read_batch(
        &mut self,
        peer: MemberId,
        lane: Lane,
        bytes: &mut BytesMut,
        frame_bytes_max: usize,
        batch: &mut VecDeque<Frame>,
    ) -> Result<(), Malformed> {
        // A part of a snapshot needs no lookups, and is counted once it is handled.
        let most = if lane == Lane::Bulk {
            1
        } else {
            index::WARM_GROUP
        };
        while batch.len() < most && self.cx.host.worked < RECEIVE_WORK_MAX {
            let Some((read, length)) = frame::take(bytes, frame_bytes_max)? else {
                break;
            };
            self.cx.host.worked += length + FRAME_WORK;
            let Some(known) = self.cx.host.peers.get(peer) else {
                // These are bytes of a connection that is gone.
                batch.clear();
                break;
            };
            known.received[peers::index(lane)] += length as u64;
            known.heard = self.cx.host.now;
            let bulk = matches!(
                read,
                Frame::Chunk { .. }
                    | Frame::Outcomes { .. }
                    | Frame::Finish { .. }
                    | Frame::Table { .. }
            );
            if bulk != (lane == Lane::Bulk) {
                return Err(Malformed("a frame on the wrong lane"));
            }
            batch.push_back(read);
        }
        Ok(())
    }

    /// Loads what these frames will look up.
    fn warm_batch(&self, batch: &VecDeque<Frame>) {
        let entries = |frame: &Frame| {
            if let Frame::Append { entries, .. } = frame {
                entries.len()
            } else {
                1
            }
        };
        if batch.iter().map(entries).sum::<usize>() < WARM_LEAST {
            return;
        }
        let keys = batch.iter().flat_map(|frame| {
            let (head, entries) = match frame {
                Frame::Append { head, entries } => (Some(head.at), &entries[..]),
                _ => (None, &[][..]),
            };
            let logged = entries
                .iter()
                .flat_map(|e| e.effect.parts())
                .filter_map(move |effect| {
                    let (map, key) = effect.place()?;
                    Some((head?, map, key, effect.field().unwrap_or_default()))
                });
            let asked = match frame {
                Frame::Forward {
                    forwarded,
                    work: Work::Key(op),
                    ..
                } => Some((forwarded.at, op.map, &*op.key, &[][..])),
                Frame::ForwardSet {
                    forwarded,
                    map,
                    entry,
                } => Some((forwarded.at, *map, entry.key(), &[][..])),
                _ => None,
            };
            logged.chain(asked)
        });
        self.warm_lookups(keys);
    }

    /// Loads these keys, and the fields that are not empty.
    fn warm_lookups<'a>(
        &self,
        keys: impl Iterator<Item = (PartitionRef, MapId, &'a [u8], &'a [u8])>,
    ) {
        // Finding the partitions of all keys once more would cost more than this list.
        let mut fields = Vec::new();
        index::Index::warm(keys.filter_map(|(at, map, key, field)| {
            let store = &self.slots.get(at)?.held.as_ref()?.store;
            if !field.is_empty() {
                fields.push((store, map, key, field));
            }
            store.lookup(map, key)
        }));
        let rows = fields.into_iter();
        index::Index::warm(
            rows.filter_map(|(store, map, key, field)| store.lookup_row(map, key, field)),
        );
    }

    /// Announces which keys of a map will be looked up next, with the fields that are not empty.
    /// One lookup waits for memory several times. Together, many wait hardly longer than one.
    pub fn warm<'a>(
        &self,
        keyspace: KeyspaceId,
        map: MapId,
        keys: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) {
        let Some(keyspace) = self
            .cx
            .host
            .tables
            .view
            .as_ref()
            .and_then(|v| v.installed.keyspace(keyspace))
        else {
            return;
        };
        let at = |partition| PartitionRef {
            keyspace: keyspace.id,
            partition,
        };
        self.warm_lookups(keys.filter_map(|(key, field)| {
            Some((at(keyspace.partition_of(map, key)?), map, key, field))
        }));
    }

    fn handle(&mut self, peer: MemberId, read: Frame) -> Result<(), Malformed> {
        if !clients::fits(self.cx.host.me, peer, &read) {
            return Err(Malformed("a frame that this kind of peer never sends"));
        }
        let at = match &read {
            Frame::View(name) if !self.cx.host.me.is_client() => {
                self.cx.heard_of(*name);
                return Ok(());
            }
            Frame::View(_) | Frame::Tick { .. } | Frame::Table { .. } | Frame::MapMade { .. } => {
                if self.cx.told_by_member(peer, read)? {
                    self.pump_calls_of(peer);
                }
                return Ok(());
            }
            Frame::Traced { at, n, context } => {
                self.cx.host.announced(peer, *at, *n, *context);
                return Ok(());
            }
            Frame::Clocks { clocks } => {
                self.hear_clocks(peer, clocks);
                return Ok(());
            }
            Frame::Late { ms } => {
                self.cx
                    .host
                    .peers
                    .note_lateness(peer, *ms, self.cx.host.now);
                return Ok(());
            }
            Frame::Heard { .. }
            | Frame::Pull { .. }
            | Frame::MakeMap { .. }
            | Frame::WantMap { .. } => {
                return self.cx.asked_by_client(peer, read);
            }
            Frame::Publish(_)
            | Frame::Interest { .. }
            | Frame::Interested { .. }
            | Frame::Count { .. }
            | Frame::Counted { .. }
            | Frame::Ask { .. }
            | Frame::Named { .. } => {
                self.cx.told_of_publishing(peer, read);
                return Ok(());
            }
            Frame::Subscribe { .. }
            | Frame::Unsubscribe { .. }
            | Frame::Taken { .. }
            | Frame::Confirm { .. }
            | Frame::Reads { .. } => {
                self.slots
                    .asked_by_subscriber(&mut self.cx.host, peer, read);
                return Ok(());
            }
            Frame::Subscribed { .. } | Frame::Changes { .. } | Frame::Confirmed { .. } => {
                self.cx.host.told_of_changes(peer, read);
                return Ok(());
            }
            Frame::Acks {
                headroom,
                arrived,
                acks,
            } => {
                self.cx
                    .host
                    .peers
                    .set_headroom(peer, *headroom, *arrived, self.cx.host.now);
                for ack in acks {
                    if let Some(slot) = self.slots.get_mut(ack.at) {
                        if let Some(mut leading) = slot.leading() {
                            leading.acked(&mut self.cx.host, ack, peer);
                        }
                        self.cx.host.notice(slot);
                    }
                }
                return Ok(());
            }
            Frame::Align { head, .. } | Frame::Append { head, .. } => head.at,
            Frame::Forward { forwarded, .. } | Frame::ForwardSet { forwarded, .. } => forwarded.at,
            Frame::Reply { at, .. }
            | Frame::NotServing { at, .. }
            | Frame::Want { at, .. }
            | Frame::Begin { at, .. }
            | Frame::NoRoom { at, .. }
            | Frame::Later { at, .. }
            | Frame::Holds { at, .. }
            | Frame::Chunk { at, .. }
            | Frame::ChunkAck { at, .. }
            | Frame::Outcomes { at, .. }
            | Frame::Continue { at, .. }
            | Frame::Arrived { at, .. }
            | Frame::Finish { at, .. }
            | Frame::Finished { at, .. }
            | Frame::Compare { at, .. }
            | Frame::Verdict { at, .. } => *at,
        };
        let cx = &mut self.cx;
        let Some(slot) = self.slots.get_mut(at) else {
            if let Frame::Forward { forwarded, .. } | Frame::ForwardSet { forwarded, .. } = read {
                // It is not noted: a client could name partitions without end.
                cx.host.peers.send(
                    peer,
                    Lane::Calls,
                    &Frame::NotServing {
                        at,
                        n: forwarded.n,
                        attempt: forwarded.attempt,
                    },
                );
            }
            return Ok(());
        };
        // A copy that follows its primary's log has no later work.
        if !matches!(read, Frame::Append { .. } | Frame::Align { .. }) {
            cx.host.notice(slot);
        }
        match read {
            Frame::Forward {
                forwarded,
                before,
                work,
            } => cx.forwarded(slot, peer, &forwarded, before, work)?,
            Frame::ForwardSet {
                forwarded,
                map,
                entry,
            } => cx.forwarded_set(slot, peer, &forwarded, map, entry)?,
            Frame::Reply {
                n,
                attempt,
                outcome,
                ..
            } => cx.replied(slot, (n, attempt), outcome),
            Frame::NotServing { n, attempt, .. } => {
                if slot.calls.refused(n, attempt) {
                    let pause = cx.host.backoff(RETRY.0, RETRY.1, slot.calls.refusals);
                    slot.calls.refusals += 1;
                    cx.host.timers.wake(slot.at, cx.host.now + pause);
                }
            }
            Frame::Align {
                head,
                base,
                last,
                entries,
            } => {
                if let Some(mut following) = slot.following() {
                    following.align(&mut cx.host, peer, &head, (base, last), entries);
                }
                // If a clear was undone, the keys that it was still to draw are there again.
                slot.note_drawing(&mut cx.host);
            }
            Frame::Append { head, entries } => {
                if let Some(mut following) = slot.following() {
                    following.append(&mut cx.host, peer, &head, entries);
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
                slot.begin_sink(
                    &mut cx.host,
                    peer,
                    Opening {
                        epoch,
                        lineage,
                        session,
                        kept,
                        seq,
                        bytes,
                    },
                );
            }
            Frame::Chunk { .. }
            | Frame::Outcomes { .. }
            | Frame::Continue { .. }
            | Frame::Finish { .. }
            | Frame::Compare { .. } => {
                if let Some(mut following) = slot.following() {
                    following.told(&mut cx.host, peer, read)?;
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
                    leading.told(&mut cx.host, peer, read);
                }
            }
            Frame::View(_)
            | Frame::Acks { .. }
            | Frame::Tick { .. }
            | Frame::Table { .. }
            | Frame::MapMade { .. } => {}
            Frame::Heard { .. }
            | Frame::Pull { .. }
            | Frame::MakeMap { .. }
            | Frame::WantMap { .. } => {}
            Frame::Publish(_)
            | Frame::Interest { .. }
            | Frame::Interested { .. }
            | Frame::Count { .. }
            | Frame::Counted { .. }
            | Frame::Ask { .. }
            | Frame::Named { .. } => {}
            Frame::Subscribe { .. }
            | Frame::Subscribed { .. }
            | Frame::Changes { .. }
            | Frame::Taken { .. }
            | Frame::Unsubscribe { .. }
            | Frame::Confirm { .. }
            | Frame::Confirmed { .. }
            | Frame::Traced { .. }
            | Frame::Clocks { .. }
            | Frame::Late { .. }
            | Frame::Reads { .. } => {}
        }
        Ok(())
    }

    /// A member accepts operations: calls that were parked for it are sent, once the time was read
    /// again (`clients`).
    fn pump_calls_of(&mut self, primary: MemberId) {
        let soon = self.cx.host.now + Duration::from_nanos(1);
        let parked = self
            .slots
            .iter()
            .filter(|slot| !slot.calls.parked.is_empty() && slot.primary() == Some(primary));
        parked.for_each(|slot| self.cx.host.timers.wake(slot.at, soon));
    }

    /// A peer has room again, so data that was held back is sent: the log first, because others
    /// wait for its acks; then one answer, so that calls cannot hold up all answers. The logs of
    /// learners and further calls go first by turns.
    fn relieve(&mut self, peer: MemberId) {
        let mut learners = Vec::new();
        for slot in self.slots.iter_mut() {
            match slot.lags_at(peer) {
                Some(Lagging::Learner(order)) => learners.push((order, slot.at)),
                Some(Lagging::Copy) => {
                    if let Some(mut leading) = slot.leading() {
                        leading.stream(&mut self.cx.host, peer);
                    }
                    self.cx.host.notice(slot);
                }
                None => {}
            }
            if let Some(mut leading) = slot.leading() {
                leading.tell_readers_at(&mut self.cx.host, peer);
            }
        }
        learners.sort_unstable();
        let learners_first = self.cx.host.peers.is_learners_turn(peer);
        if learners_first {
            self.stream_to_learners(&learners, peer);
        }
        self.cx.host.peers.answer_more(peer, 1);
        self.admit(peer);
        for slot in self.slots.iter_mut() {
            if !slot.calls.parked.is_empty() && slot.primary() == Some(peer) {
                self.cx.pump(slot);
                self.cx.host.notice(slot);
            }
        }
        if !learners_first {
            self.stream_to_learners(&learners, peer);
        }
        self.cx.host.peers.answer_more(peer, usize::MAX);
        self.cx.host.peers.publish_more(peer);
    }

    /// Sends the logs that a peer lacks as a learner of these partitions, while there is room.
    fn stream_to_learners(&mut self, learners: &[((bool, u64), PartitionRef)], peer: MemberId) {
        for (_, at) in learners {
            if let Some(slot) = self.slots.get_mut(*at) {
                if let Some(mut leading) = slot.leading() {
                    leading.stream(&mut self.cx.host, peer);
                    leading.compare_next(&mut self.cx.host, peer);
                }
                self.cx.host.notice(slot);
            }
        }
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

    /// A primary tells its clocks, or a copy what its clocks show.
    fn hear_clocks(&mut self, peer: MemberId, clocks: &[(PartitionRef, Epoch, u64)]) {
        for (at, epoch, ms) in clocks {
            let Some(slot) = self.slots.get_mut(*at) else {
                continue;
            };
            if let Some(mut leading) = slot.leading() {
                leading.hear_clock(&self.cx.host, peer, (*epoch, *ms));
            } else if let Some(mut following) = slot.following() {
                following.hear_clock(&self.cx.host, peer, (*epoch, *ms));
            }
        }
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
