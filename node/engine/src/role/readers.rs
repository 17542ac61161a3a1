//! Readers of a partition's log at its primary: subscribers that are told of committed changes.

use super::timers::Duty;
use crate::log::changes::{Change, FORMERS_MAX, Filter, Missing, Position, changes};
use crate::mutant::{self, broken};
use crate::role::holding::Leading;
use crate::role::host::Host;
use crate::role::slots::Slots;
use crate::wire::api::Lane;
use crate::wire::frame::{Frame, Headroom};
use doyen_gossip::Time;
use doyen_placement::{KeyspaceId, MemberId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes of changes that a reader is sent and has not taken.
pub(crate) const WINDOW: u64 = 64 << 10;
/// About how many bytes of changes one frame has.
const FRAME_BYTES: u64 = 32 << 10;
/// Readers of one partition.
const READERS_MAX: usize = 16_384;
/// Tickets of one frame of confirmations.
const CONFIRMED_MAX: usize = 4_096;
/// Frames of confirmations that wait for a look at the lease.
const CONFIRMING_MAX: usize = 1_024;
/// Keyspaces whose logs are kept.
const READ_MAX: usize = 1_024;
/// For how long members keep logs after they were told that the logs are read. They are told
/// twice in this time or more often. So a subscriber that begins again within 40 s goes on where it
/// was, unless more was written.
pub(crate) const KEPT: Duration = Duration::from_secs(60);
/// The most bytes of the log of a partition that are kept for its readers.
const KEPT_BYTES: usize = 64 << 10;

/// A subscriber of changes of one partition.
#[derive(Debug)]
pub(crate) struct Reader {
    peer: MemberId,
    /// Its number at the subscriber.
    ticket: u64,
    filter: Filter,
    /// Where it wants to go on, until the primary is open.
    had: Option<Vec<Position>>,
    /// It was sent all changes up to here.
    sent: u64,
    /// It knows that.
    told: u64,
    /// Bytes of changes that it was sent and has not taken.
    untaken: u64,
}

impl Reader {
    /// Whether upkeep has nothing to tell it.
    pub(crate) const fn quiet(&self) -> bool {
        self.had.is_none() && self.told == self.sent
    }
}

impl Host {
    /// Whether the logs of a keyspace are kept for readers.
    pub(crate) fn reads(&self, keyspace: KeyspaceId) -> bool {
        let read = |read: &ReadUntil| read.logs >= self.now;
        !self.read.is_empty() && self.read.get(&keyspace).is_some_and(read)
    }

    /// Bytes of the log of a partition that are kept for readers: its share of what all partitions
    /// of this thread may keep. Readers that are connected are told of an entry before it goes.
    pub(crate) fn kept_for_readers(&self, keyspace: KeyspaceId) -> usize {
        if self.memory.squeezed || !self.reads(keyspace) {
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

    /// Whether the values that its log entries replace are kept, too.
    #[inline]
    pub(crate) fn keeps_replaced(&self, keyspace: KeyspaceId) -> bool {
        let read = |read: &ReadUntil| read.replaced >= self.now;
        !self.read.is_empty() && self.read.get(&keyspace).is_some_and(read)
    }

    /// Sends a frame to a subscriber, which may be this thread.
    fn tell_reader(&mut self, peer: MemberId, frame: Frame) {
        if peer == self.me {
            self.told_of_changes(peer, frame);
        } else {
            self.peers.send(peer, Lane::Calls, &frame);
        }
    }

    /// The logs of these keyspaces are read: with the values that were replaced, if that is said.
    pub(crate) fn note_read(&mut self, keyspaces: &[(KeyspaceId, bool)]) {
        let now = self.now;
        self.read.retain(|_, until| until.logs >= now);
        // A newcomer hears of it before it has a table that names them.
        for (keyspace, replaced) in keyspaces {
            if self.read.len() < READ_MAX || self.read.contains_key(keyspace) {
                let until = self.read.entry(*keyspace).or_default();
                until.logs = now + KEPT;
                if *replaced {
                    until.replaced = until.logs;
                }
            }
        }
    }
}

impl Slots {
    /// A frame of a subscriber.
    pub(crate) fn asked_by_subscriber(&mut self, host: &mut Host, peer: MemberId, frame: Frame) {
        let cx = &mut *host;
        let at = match &frame {
            Frame::Reads { keyspaces } => return cx.note_read(keyspaces),
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
                let of = |r: &Reader| (r.peer, r.ticket) == (peer, ticket);
                if let Some(n) = leading.lead.readers.iter().position(of) {
                    let reader = &mut leading.lead.readers[n];
                    reader.untaken = reader.untaken.saturating_sub(bytes);
                    leading.tell_reader(cx, n);
                }
            }
            _ => {}
        }
    }

    /// A subscriber asks which of its readers were sent all that is committed. They are told what
    /// is left first, in the same lane.
    ///
    /// A member that has accepted a table in which it does not lead confirms nothing, even with a
    /// lease: another member may commit already.
    fn confirm_to(&mut self, host: &mut Host, peer: MemberId, round: u64) {
        let cx = &mut *host;
        if cx.confirming.len() >= CONFIRMING_MAX {
            // It asks again.
            return;
        }
        let mut tickets = Vec::new();
        for mut leading in self.iter_mut().filter_map(|slot| slot.leading()) {
            if leading.lead.readers.iter().any(|r| r.peer == peer) {
                leading.tell_readers_at(cx, peer);
                let committed = leading.log.committed();
                let has_all = |r: &&Reader| {
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
        cx.confirming
            .extend(rest.map(|tickets| (peer, round, tickets.to_vec())));
    }

    /// Sends confirmations. This member had its lease after they were made.
    pub(crate) fn release_confirmed(&mut self, host: &mut Host) {
        for (peer, round, tickets) in std::mem::take(&mut host.confirming) {
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
            cx.note_read(&[(self.at.keyspace, true)]);
            self.log.keep_replaced();
        }
        readers.push(Reader {
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
            cx.stats.changes_told += found.len() as u64;
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

/// Confirmations that wait for a look at the lease: to which subscriber, its round and its tickets.
pub(crate) type Confirming = Vec<(MemberId, u64, Vec<u64>)>;

/// Until when the logs of each keyspace are kept for readers.
pub(crate) type Read = BTreeMap<KeyspaceId, ReadUntil>;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReadUntil {
    logs: Time,
    /// The values that log entries replaced.
    replaced: Time,
}
