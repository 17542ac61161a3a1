//! Readers of a partition's log at its primary: subscribers that get committed changes.

use super::timers::Duty;
use crate::log::changes::{Change, FORMERS_MAX, Filter, Missing, Position, changes};
use crate::mutant::{self, broken};
use crate::role::holding::Leading;
use crate::role::host::Host;
use crate::role::read_logs::{LogReader, WINDOW};
use crate::role::slots::Slots;
use crate::wire::frame::{Frame, Headroom};
use doyen_placement::level::OWN_CHANGES;
use doyen_placement::{KeyspaceId, MemberId};

/// About how many bytes of changes one frame has.
const FRAME_BYTES: u64 = 32 << 10;
/// Readers of one partition.
const READERS_MAX: usize = 16_384;
/// Tickets of one frame of confirmations.
const CONFIRMED_MAX: usize = 4_096;
/// Frames of confirmations that wait for a look at the lease.
const CONFIRMING_MAX: usize = 1_024;
/// The most bytes of the log of a partition that are kept for its readers.
const KEPT_BYTES: usize = 64 << 10;

impl Host {
    /// Bytes of the log of a partition that are kept for readers: its share of what all partitions
    /// of this thread may keep. Readers that are connected get an entry before it goes.
    pub(crate) fn kept_for_readers(&self, keyspace: KeyspaceId) -> usize {
        if self.memory.squeezed || !self.read.reads(self.now, keyspace) {
            return 0;
        }
        let share = self.limits.readers_bytes_max() / self.memory.holding.max(1);
        KEPT_BYTES.min(share)
    }

    /// Memory is short: what logs keep for readers goes before any key does, and before any write
    /// is refused. Returns whether that gives room in a moment.
    pub(crate) fn squeeze_readers(&mut self) -> bool {
        if self.memory.squeezed || self.read.is_empty() {
            return false;
        }
        self.memory.squeezed = true;
        // A round trims all logs, in slices.
        self.timers.set(Duty::Round, self.now);
        true
    }

    /// Checks whether logs may be kept for readers. Kept logs alone never make memory short again.
    pub(crate) fn look_at_readers(&mut self, room: Headroom) {
        let most = self.limits.readers_bytes_max() as u64;
        let left = room.left.saturating_sub(room.enough());
        if left < most {
            self.squeeze_readers();
        } else if left >= 2 * most {
            self.memory.squeezed = false;
        }
    }

    /// A primary tells subscriptions of this thread.
    pub(crate) fn told_of_changes(&mut self, peer: MemberId, frame: Frame) {
        let most = self.limits.readers_bytes_max();
        let subscriptions = &mut self.subscriptions;
        subscriptions.told_of_changes(most, peer, frame);
    }

    /// Sends a frame to a subscriber, which may be this thread.
    fn tell_reader(&mut self, peer: MemberId, frame: Frame) {
        if peer == self.me {
            self.told_of_changes(peer, frame);
        } else {
            self.peers.tell(peer, &frame);
        }
    }
}

impl Slots {
    /// A frame of a subscriber.
    pub(crate) fn asked_by_subscriber(&mut self, host: &mut Host, peer: MemberId, frame: Frame) {
        let cx = &mut *host;
        let at = match &frame {
            Frame::Reads { keyspaces } => return cx.read.note(cx.now, keyspaces),
            Frame::Confirm { round } => return self.confirm_to(host, peer, *round),
            Frame::Subscribe { at, .. }
            | Frame::Unsubscribe { at, .. }
            | Frame::Taken { at, .. } => *at,
            _ => return,
        };
        let Some(mut leading) = self.get_mut(at).and_then(|slot| slot.leading()) else {
            return;
        };
        match frame {
            Frame::Subscribe {
                ticket,
                filter,
                had,
                ..
            } => leading.subscribe(cx, peer, ticket, filter, had),
            Frame::Unsubscribe { ticket, .. } => {
                let readers = &mut leading.lead.readers;
                readers.retain(|r| (r.peer, r.ticket) != (peer, ticket));
            }
            Frame::Taken { ticket, bytes, .. } => {
                let of = |r: &LogReader| (r.peer, r.ticket) == (peer, ticket);
                if let Some(n) = leading.lead.readers.iter().position(of) {
                    let reader = &mut leading.lead.readers[n];
                    reader.untaken = reader.untaken.saturating_sub(bytes);
                    leading.tell_reader(cx, n);
                }
            }
            _ => {}
        }
    }

    /// A subscriber asks which of its readers were sent all that is committed. They get what is
    /// left first, in the same lane.
    ///
    /// A member that has accepted a table in which it does not lead confirms nothing, even with a
    /// lease: another member may commit already.
    fn confirm_to(&mut self, host: &mut Host, peer: MemberId, round: u64) {
        let cx = &mut *host;
        if cx.read.confirming.len() >= CONFIRMING_MAX {
            // It asks again.
            return;
        }
        let mut tickets = Vec::new();
        for mut leading in self.iter_mut().filter_map(|slot| slot.leading()) {
            if leading.lead.readers.iter().any(|r| r.peer == peer) {
                leading.tell_readers_at(cx, peer);
                let committed = leading.log.committed();
                let has_all = |r: &&LogReader| {
                    let has_all = r.sent >= committed || broken(&mutant::CONFIRMS_UNTOLD);
                    r.peer == peer && r.had.is_none() && has_all
                };
                if leading.lead.open && leading.lead.serving {
                    let all = leading.lead.readers.iter().filter(has_all);
                    tickets.extend(all.map(|r| r.ticket));
                }
            }
        }
        let rest = tickets.chunks(CONFIRMED_MAX);
        cx.read
            .confirming
            .extend(rest.map(|tickets| (peer, round, tickets.to_vec())));
    }

    /// Sends confirmations. This member had its lease after they were made.
    pub(crate) fn release_confirmed(&mut self, host: &mut Host) {
        for (peer, round, tickets) in std::mem::take(&mut host.read.confirming) {
            host.tell_reader(peer, Frame::Confirmed { round, tickets });
        }
    }

    /// A subscriber is not connected any more.
    pub(crate) fn forget_readers(&mut self, peer: MemberId) {
        let led = self.iter_mut().filter_map(|slot| slot.leading());
        led.for_each(|leading| leading.lead.readers.retain(|r| r.peer != peer));
    }
}

impl Leading<'_> {
    /// A peer subscribes. It had everything up to these places; none: it begins now.
    fn subscribe(
        &mut self,
        cx: &mut Host,
        peer: MemberId,
        ticket: u64,
        filter: Filter,
        had: Vec<Position>,
    ) {
        let readers = &mut self.lead.readers;
        readers.retain(|r| (r.peer, r.ticket) != (peer, ticket));
        if readers.len() >= READERS_MAX
            || had.len() > FORMERS_MAX
            || filter.keyspace != self.at.keyspace
            || filter.keys.bytes().len() > cx.limits.key_bytes_max
        {
            return;
        }
        if filter.old {
            // What is logged from now on is kept, too.
            cx.read.note(cx.now, &[(self.at.keyspace, true)]);
            self.log.keep_replaced();
        }
        readers.push(LogReader {
            peer,
            ticket,
            filter,
            had: Some(had),
            sent: 0,
            told: 0,
            untaken: 0,
        });
        let n = readers.len() - 1;
        self.tell_reader(cx, n);
    }

    /// Tells all readers what is committed.
    #[inline]
    pub(crate) fn tell_readers(&mut self, cx: &mut Host) {
        for n in 0..self.lead.readers.len() {
            self.tell_reader(cx, n);
        }
    }

    /// The same for readers at this peer.
    pub(crate) fn tell_readers_at(&mut self, cx: &mut Host, peer: MemberId) {
        for n in 0..self.lead.readers.len() {
            if self.lead.readers[n].peer == peer {
                self.tell_reader(cx, n);
            }
        }
    }

    /// Where a reader begins that had this, and what is missing.
    fn begin(&self, had: &[Position]) -> (u64, Missing) {
        let committed = self.log.committed();
        if had.is_empty() {
            return (committed, Missing::NOTHING);
        }
        if let [place] = had
            && place.partition == self.at.partition
        {
            let same = place.lineage == self.lineage && place.seq <= self.log.last();
            return if same {
                (place.seq, Missing::NOTHING)
            } else {
                (committed, Missing::UNKNOWN)
            };
        }
        // It had everything of the former partitions of this one that it followed.
        let had_all = |had: &Position| {
            self.formers.iter().any(|former| {
                (had.partition, had.lineage) == (former.partition, former.lineage)
                    && had.seq >= former.seq
            })
        };
        let first = self.formers.iter().map(|former| former.seq).max();
        match first {
            Some(first) if had.iter().all(had_all) => (first, Missing::NOTHING),
            _ => (committed, Missing::UNKNOWN),
        }
    }

    /// Tells a reader what is committed, as much as its window allows.
    fn tell_reader(&mut self, cx: &mut Host, n: usize) {
        let (at, lineage, committed) = (self.at, self.lineage, self.log.committed());
        let old_max = cx.limits.value_bytes_max;
        // A subscriber learns which of its own operations made a change, if it knows of that.
        let peer = self.lead.readers[n].peer;
        let names_own =
            peer == cx.me || cx.peers.get(peer).is_some_and(|p| p.version >= OWN_CHANGES);
        let reader = &mut self.lead.readers[n];
        let (peer, ticket) = (reader.peer, reader.ticket);
        if let Some(had) = reader.had.take() {
            if !self.lead.open {
                reader.had = Some(had);
                return;
            }
            let (seq, missing) = self.begin(&had);
            let reader = &mut self.lead.readers[n];
            (reader.sent, reader.told) = (seq, seq);
            let begins = Frame::Subscribed {
                at,
                ticket,
                seq,
                missing,
            };
            cx.tell_reader(peer, begins);
        }
        loop {
            let reader = &mut self.lead.readers[n];
            if reader.sent >= committed || reader.untaken >= WINDOW {
                return;
            }
            if peer != cx.me && cx.peers.hold_back(peer) {
                return;
            }
            if reader.sent < self.log.base() {
                let missing = Missing::entries(self.log.base() - reader.sent);
                (reader.sent, reader.told) = (self.log.base(), self.log.base());
                let missing = if broken(&mutant::HIDES_GAPS) {
                    Missing::NOTHING
                } else {
                    missing
                };
                let begins = Frame::Subscribed {
                    at,
                    ticket,
                    seq: reader.sent,
                    missing,
                };
                cx.tell_reader(peer, begins);
                continue;
            }
            let (mut found, mut bytes): (Vec<Change>, u64) = (Vec::new(), 0);
            while reader.sent < committed && bytes < FRAME_BYTES {
                reader.sent += 1;
                if let Some(told) = self.log.told(reader.sent) {
                    let before = found.len();
                    let position = Position {
                        partition: at.partition,
                        lineage,
                        seq: reader.sent,
                    };
                    changes(told, position, (&reader.filter, old_max), &mut found);
                    let op = self.log.entry(reader.sent).and_then(|logged| logged.op);
                    if let Some(op) = op.filter(|op| names_own && op.origin == peer) {
                        let new = found[before..].iter_mut();
                        new.for_each(|change| change.own = Some(op.n));
                    }
                    let new = found[before..].iter();
                    bytes += new.map(|change| change.bytes() as u64).sum::<u64>();
                }
                if broken(&mutant::SKIPS_CHANGES) && found.len() > 1 {
                    found.remove(0);
                }
            }
            if found.is_empty() {
                continue;
            }
            reader.untaken += bytes;
            reader.told = reader.sent;
            cx.worked += bytes as usize;
            let last = reader.sent;
            let told = Frame::Changes {
                at,
                ticket,
                last,
                changes: found,
            };
            cx.tell_reader(peer, told);
        }
    }

    /// Readers learn how far they are, even if nothing concerned them.
    pub(crate) fn tell_places(&mut self, cx: &mut Host) {
        self.tell_readers(cx);
        let at = self.at;
        for reader in &mut self.lead.readers {
            if !reader.quiet() && reader.had.is_none() {
                reader.told = reader.sent;
                let last = reader.sent;
                let told = Frame::Changes {
                    at,
                    ticket: reader.ticket,
                    last,
                    changes: Vec::new(),
                };
                cx.tell_reader(reader.peer, told);
            }
        }
    }
}
