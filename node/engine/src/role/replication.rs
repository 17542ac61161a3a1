//! One log on several nodes, from its primary's point of view. The primary sends entries, copies
//! acknowledge them, and a new primary aligns the copies.
//!
//! ```text
//!   a tenure begins ──> opening: the tail goes to every required copy (Align)
//!      ── acked, and `opens_at` has passed ──> open
//!   open: Append to each link that is up to date;
//!         commit = the least sequence that every required copy has
//! ```
//! A copy is required if it is in sync in the installed or in the accepted table, or if it is a
//! learner whose admission was asked for, until another epoch is installed (rule 7).

use super::copying::Teaching;
use super::partition::{Held, Slot};
use super::read_logs::LogReader;
use super::upkeep_queue::UPKEEP;
use crate::log::partition_log::{Log, begin_anew};
use crate::mutant::{self, broken};
use crate::role::calls::Executed;
use crate::role::holding::{Leading, PartitionRole};
use crate::role::host::Host;
use crate::role::split_point::SplitPointSearch;
use crate::store::{OverduePart, cuts};
use crate::wire::api::Lane;
use crate::wire::frame::{self, Ack, FrameHead};
use crate::wire::silence::AckWait;
use doyen_gossip::Time;
use doyen_gossip::agreement::InSyncChange;
use doyen_placement::{Epoch, Member, MemberId, MemberState, PartitionRef};
use litemap::LiteMap;
use std::collections::BTreeSet;
use std::time::Duration;

/// Keys of one partition that are expired in one step.
const EXPIRE_SLICE: usize = 64;
/// Freeing some rows of a cut takes as long as expiring this many keys.
const FREED_COST: usize = 250;
/// Unacknowledged bytes sent to a copy, for each partition. More waits in the log.
pub(crate) const WINDOW: u64 = 8 << 20;
/// Without an ack for this long, everything unacknowledged is sent again.
const RESEND: Duration = Duration::from_millis(400);
/// Extra patience for silent copies while this node has no connection to any of several members.
const ALONE: Duration = Duration::from_secs(15);
/// Extra patience for silent copies while this node is connected but hears no member. After that,
/// it is known whether the connections are alive, and callers still wait for their writes.
const DEAF: Duration = Duration::from_secs(2);
/// A partition whose keys expire sends its clock at least this often.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);

/// The state of a primary, for one tenure.
#[derive(Debug)]
pub(crate) struct Primary {
    /// The epoch in which the tenure began.
    pub(crate) since: Epoch,
    /// When it may acknowledge at the earliest (rule 9).
    pub(crate) opens_at: Time,
    /// The end of the tail that it found. Every required copy must have all of it before the tenure
    /// opens.
    tail: u64,
    /// Whether it acknowledges.
    pub(crate) open: bool,
    /// Whether it is the primary in both tables (rule 5).
    pub(crate) serving: bool,
    /// Its copies and learners.
    pub(crate) links: LiteMap<MemberId, CopyLink>,
    said_clock: Time,
    /// When this primary reported that the partition is still.
    pub(crate) said_frozen: Option<Time>,
    /// A search for the key at which to split.
    pub(crate) search: Option<Box<SplitPointSearch>>,
    /// The earliest time to ask for a split.
    pub(crate) halve_at: Option<Time>,
    /// Subscribers that get committed changes.
    pub(crate) readers: Vec<LogReader>,
    /// Bytes and keys that were reported to the control thread.
    pub(crate) said: Option<(u64, u64)>,
}

impl Primary {
    /// A tenure begins. The log ends at `tail`.
    pub(crate) fn new(since: Epoch, opens_at: Time, tail: u64, serving: bool) -> Self {
        Self {
            since,
            opens_at,
            tail,
            open: false,
            serving,
            links: LiteMap::new(),
            said_clock: Time::ZERO,
            said_frozen: None,
            search: None,
            halve_at: None,
            readers: Vec::new(),
            // What an earlier primary reported of it is unknown.
            said: None,
        }
    }

    /// Whether a snapshot may be under way.
    pub(crate) fn teaches(&self) -> bool {
        self.links.values().any(|l| l.teaching.is_some())
    }

    /// Whether every copy has everything and knows that it does, so that upkeep has nothing to do.
    pub(crate) fn quiet(&self, log: &Log) -> bool {
        let complete = |l: &CopyLink| {
            l.aligned
                && l.teaching.is_none()
                && l.acked >= log.last()
                && l.said_committed >= log.committed()
        };
        self.open
            && self.search.is_none()
            && self.links.values().all(complete)
            && self.readers.iter().all(LogReader::quiet)
    }
}

/// The state of one copy.
#[derive(Debug)]
pub(crate) struct CopyLink {
    /// Its ack is needed to commit.
    pub(crate) required: bool,
    /// Its log is known to be a prefix of this node's log.
    pub(crate) aligned: bool,
    /// The copying session in which it began. 0 if it was aligned.
    pub(crate) session: u32,
    /// The last sequence that it has acknowledged.
    pub(crate) acked: u64,
    /// The next sequence to send.
    pub(crate) next: u64,
    /// Since when something is unacknowledged, and what must arrive first.
    pub(crate) stalled: Option<AckWait>,
    /// When it last acknowledged something or entries were sent again.
    resent: Time,
    said_committed: u64,
    asks: u32,
    ask_at: Time,
    /// No entry was sent to it yet.
    fresh: bool,
    /// A snapshot that is sent to it.
    pub(crate) teaching: Option<Teaching>,
}

impl CopyLink {
    fn new(required: bool, teaching: Option<Teaching>, now: Time) -> Self {
        Self {
            required,
            aligned: false,
            session: 0,
            acked: 0,
            next: 1,
            stalled: None,
            resent: now,
            said_committed: 0,
            asks: 0,
            ask_at: Time::ZERO,
            fresh: true,
            teaching,
        }
    }

    /// Whether entries may be sent to it.
    fn streams(&self) -> bool {
        self.aligned && self.teaching.as_ref().is_none_or(Teaching::begun)
    }
}

impl Host {
    /// How much of a log is kept after every copy has it: its share of the node's tail, but little
    /// compared to the contents, because a copy that lags by much of them is as well served by a
    /// snapshot.
    pub(crate) fn tail_bytes(&self, at: PartitionRef, stored: usize) -> usize {
        let share = self.limits.tail_bytes_max / self.memory.holding.max(TAIL_SHARES_MIN);
        let part = Some(stored / TAIL_PART)
            .filter(|part| *part >= TAIL_BYTES_WORTH)
            .unwrap_or_default();
        let kept = self.kept_for_readers(at.keyspace);
        share.min(part.max(self.limits.tail_bytes_least).max(kept))
    }

    /// How much of a log is kept for a learner that replaces a missing copy, even if the partition
    /// is smaller: nothing if memory is short.
    pub(crate) fn spared_bytes(&self) -> u64 {
        let room = self.headroom();
        if room.left > room.kept {
            (self.limits.memory_bytes_max / SPARED_PART) as u64
        } else {
            0
        }
    }

    /// Extra patience for a copy that does not acknowledge, because this node may be cut off from
    /// all others, if there are several. Then the others report that, and another member becomes
    /// primary. If this node judged alone, it would drop their copies, and be the only holder of
    /// data that clients cannot reach.
    fn doubt(&self) -> Duration {
        let Some(view) = &self.tables.view else {
            return Duration::ZERO;
        };
        let counts = |m: &Member| {
            m.id != self.me.member()
                && m.role == doyen_placement::Role::Data
                && m.state != MemberState::Silent
        };
        if view.installed.members.iter().filter(|m| counts(m)).count() < 2 {
            return Duration::ZERO;
        }
        match self
            .peers
            .heard_last(|id| id != self.me.member() && !id.is_client())
        {
            None => ALONE,
            // A connection without any data ends after some seconds: then it is known. Half of the
            // patience counts here, because the last data before the cut has been waiting for at
            // least as long as nothing was heard.
            Some(heard) if self.now.since(heard) > self.limits.copy_silent_max / 2 => DEAF,
            Some(_) => Duration::ZERO,
        }
    }
}

impl Held {
    /// Sends an entry that was just logged to every link that is up to date.
    pub(crate) fn replicate(&mut self, host: &mut Host, seq: u64) {
        let at = self.at;
        let Held {
            role: PartitionRole::Primary(lead),
            log,
            clock,
            epoch,
            ..
        } = self
        else {
            return;
        };
        let Some(entry) = log.entry(seq) else { return };
        let (committed, clock) = (log.committed(), clock.advance(host.now));
        for (id, link) in lead.links.iter_mut() {
            // Without the entry itself: otherwise one that is larger than the window could never be
            // sent.
            if !link.streams()
                || link.next != seq
                || log.bytes_between(link.acked, seq - 1) >= WINDOW
            {
                continue;
            }
            let head = FrameHead {
                at,
                epoch: *epoch,
                session: link.session,
                committed,
                clock,
                first: seq,
            };
            // A crowded copy lags: `relieve` sends the missing entries.
            let Some(sent) = host.peers.append(*id, &head, entry) else {
                link.stalled.get_or_insert(AckWait::for_room(host.now));
                continue;
            };
            link.next = seq + 1;
            if sent.head {
                link.said_committed = committed;
            }
            sent.note(&mut link.stalled, host.now);
            host.stats.copies.replicated += 1;
        }
    }
}

impl Slot {
    /// A partition's log may be committed further, if this node leads it.
    pub(crate) fn advance(&mut self, host: &mut Host) {
        if let Some(mut leading) = self.leading() {
            leading.advance(host);
        }
    }

    /// Notes that there are overdue keys to expire.
    pub(crate) fn note_overdue(&mut self, host: &mut Host) {
        let Some(held) = &self.held else { return };
        let expires = host.used && !self.frozen && held.lead().is_some_and(|l| l.open && l.serving);
        let due = || {
            cuts::has_cuts(&held.store)
                || held.store.is_overdue(held.clock.advance(host.data_now()))
        };
        if expires && !self.expiring && due() {
            host.upkeep.expires(self, &mut host.timers);
        }
    }

    /// Expires some keys, frees some rows of cuts, and subtracts them from the budget. True if there
    /// may be more.
    pub(crate) fn expire_some(&mut self, host: &mut Host, budget: &mut usize) -> bool {
        let Some(held) = &mut self.held else {
            return false;
        };
        if !host.used || self.frozen || !held.lead().is_some_and(|l| l.open && l.serving) {
            return false;
        }
        let most = EXPIRE_SLICE.min(*budget);
        let overdue = held
            .store
            .overdue(held.clock.advance(host.data_now()), most);
        let mut more = overdue.len() == most;
        *budget -= overdue.len();
        let clock = held.clock.advance(host.data_now());
        for (map, key, part) in overdue {
            match part {
                OverduePart::Key => held.expire(host, map, key),
                OverduePart::Row(field) => held.expire_field(host, map, key, field),
                OverduePart::Fields => {
                    let order = held.store.order(&key);
                    held.purge(host, (map, order, &key), clock);
                }
            }
        }
        if held.free_rows(host) {
            *budget = budget.saturating_sub(FREED_COST);
            more |= cuts::has_cuts(&held.store);
        }
        more
    }
}

impl Leading<'_> {
    /// A table says which copies and learners there are. `moved`: the partition has a new epoch.
    pub(crate) fn link(
        &mut self,
        cx: &mut Host,
        required: &BTreeSet<MemberId>,
        in_sync: &BTreeSet<MemberId>,
        learners: &BTreeSet<MemberId>,
        moved: bool,
    ) {
        let now = cx.now;
        let Self {
            lead,
            store,
            frozen,
            ..
        } = self;
        let gone: Vec<MemberId> = lead
            .links
            .keys()
            .filter(|m| !required.contains(m) && !learners.contains(m))
            .copied()
            .collect();
        for id in gone {
            if let Some(teaching) = lead.links.remove(&id).and_then(|l| l.teaching) {
                store.sums.end(teaching.sum());
            }
        }
        for id in required {
            let link = lead
                .links
                .entry(*id)
                .or_insert_with(|| CopyLink::new(true, None, now));
            link.required = true;
            if in_sync.contains(id)
                && let Some(teaching) = link.teaching.take()
            {
                store.sums.end(teaching.sum());
            }
        }
        for id in learners.iter().filter(|id| !required.contains(id)) {
            let link = lead
                .links
                .entry(*id)
                .or_insert_with(|| CopyLink::new(false, Some(Teaching::new(now)), now));
            match &mut link.teaching {
                // The copy was in sync and was dropped: it begins again.
                None => *link = CopyLink::new(false, Some(Teaching::new(now)), now),
                Some(teaching) if moved => {
                    teaching.withdrawn();
                    link.required = false;
                }
                Some(_) => {}
            }
        }
        let ids: Vec<MemberId> = lead.links.keys().copied().collect();
        for (_, link) in lead.links.iter_mut().filter(|_| moved) {
            link.stalled = None;
            link.asks = 0;
            // Acks from before this epoch do not count for a split or a merge.
            link.aligned &= !*frozen || link.teaching.is_some();
        }
        lead.said_frozen = lead.said_frozen.filter(|_| !moved);
        for id in ids {
            let fresh = self.lead.links.get(&id).is_some_and(|l| l.fresh);
            if moved || fresh {
                self.restart_link(cx, id);
            }
        }
    }

    /// Regular work: commit notices, silent copies and learners.
    pub(crate) fn upkeep(&mut self, cx: &mut Host) {
        let now = cx.now;
        // Until all copies follow this tenure, each look tells it.
        let mut copies = self.lead.links.values().filter(|link| link.required);
        let settled = self.lead.open && copies.all(|link| link.aligned);
        let due = now.since(self.lead.said_clock) >= CLOCK_INTERVAL || !settled;
        let tell_time = due && self.store.expires();
        if tell_time {
            self.lead.said_clock = now;
        }
        let mut restart = Vec::new();
        let mut asks = Vec::new();
        let mut silent = Vec::new();
        let mut doubt = None;
        for (id, link) in self.lead.links.iter_mut() {
            let clock = (self.at, self.epoch, self.clock.advance(now));
            // If it has just acknowledged something, the next entry will probably come soon and say
            // as much.
            let resting = tell_time || now.since(link.resent) >= UPKEEP;
            let tell_time = tell_time && !cx.peers.tell_clock(*id, clock);
            if link.streams()
                && link.next == self.log.last() + 1
                && ((link.said_committed < self.log.committed() && resting) || tell_time)
                && let Some(out) = cx.peers.out(*id, Lane::Calls)
            {
                let committed = self.log.committed();
                let head = FrameHead {
                    at: self.at,
                    epoch: self.epoch,
                    session: link.session,
                    committed,
                    clock: clock.2,
                    first: link.next,
                };
                frame::append(out, &head, std::iter::empty());
                link.said_committed = committed;
            }
            let complete = link.aligned && link.acked >= self.log.last();
            if complete {
                link.stalled = None;
                continue;
            }
            let wait = link.stalled.get_or_insert(AckWait::for_room(now));
            let stalled = cx.peers.silence(*id, wait, now);
            // Data on this connection will arrive. Only what has arrived and was refused is sent
            // again.
            let again = wait.arrived_for(now) > RESEND
                || (stalled > RESEND && broken(&mutant::SLOW_IS_SILENT));
            if again
                && now.since(link.resent) > RESEND
                && link.teaching.as_ref().is_none_or(Teaching::verified)
            {
                restart.push(*id);
            }
            let patience = if cx.peers.silent.has(*id) {
                RESEND
            } else {
                cx.limits.copy_silent_max
            };
            let late = link.required && stalled > patience && now >= link.ask_at;
            if late && stalled > patience + *doubt.get_or_insert_with(|| cx.doubt()) {
                silent.push(*id);
                link.asks += 1;
                let change = if link.teaching.is_some() {
                    InSyncChange::Withdraw(id.member())
                } else {
                    InSyncChange::Remove(id.member())
                };
                asks.push((*id, change, link.asks));
            }
        }
        silent.into_iter().for_each(|id| cx.peers.silent.note(id));
        for (id, change, asked) in asks {
            let pause = cx.backoff(Duration::from_millis(200), Duration::from_secs(2), asked);
            cx.outbox.ask(self.at, self.epoch, change);
            if let Some(link) = self.lead.links.get_mut(&id) {
                link.ask_at = now + pause;
            }
        }
        for id in restart {
            self.restart_link(cx, id);
        }
        self.teach_all(cx);
        self.advance(cx);
        self.tell_places(cx);
    }

    /// Begins sending to a copy again: after a reconnection, in a new epoch, or because the copy
    /// asks.
    pub(crate) fn restart_link(&mut self, cx: &mut Host, id: MemberId) {
        let Some(link) = self.lead.links.get_mut(&id) else {
            return;
        };
        link.resent = cx.now;
        link.stalled = link.stalled.map(AckWait::again);
        link.said_committed = 0;
        link.fresh = false;
        if link.teaching.as_ref().is_some_and(|t| !t.verified()) {
            self.continue_teaching(cx, id);
            return;
        }
        if link.aligned {
            link.next = link.acked + 1;
            self.stream(cx, id);
        } else {
            self.send_alignment(cx, id);
        }
    }

    /// Sends the log to a copy in this epoch, so that the copy's log becomes equal: everything
    /// beyond what is committed. A copy that was in sync before gets everything beyond what it
    /// knows to be committed.
    pub(crate) fn send_alignment(&mut self, cx: &mut Host, id: MemberId) {
        let Some(link) = self.lead.links.get_mut(&id) else {
            return;
        };
        let last = self.log.last();
        let base = if link.teaching.as_ref().is_some_and(Teaching::resumes) {
            link.acked
        } else {
            link.session = 0;
            self.log.committed()
        };
        let mut first = base + 1;
        loop {
            let Some(out) = cx.peers.out(id, Lane::Calls) else {
                return;
            };
            let count = self.log.frame_from(first);
            let (session, committed) = (link.session, self.log.committed());
            let head = FrameHead {
                at: self.at,
                epoch: self.epoch,
                session,
                committed,
                clock: self.clock.advance(cx.now),
                first,
            };
            frame::align(
                out,
                &head,
                base,
                last,
                (first..first + count).filter_map(|seq| self.log.entry(seq)),
            );
            first += count;
            if first > last {
                break;
            }
        }
        link.next = last + 1;
        link.said_committed = self.log.committed();
        cx.peers.note_given(id, &mut link.stalled, cx.now);
    }

    /// Sends the entries that a link is missing, within its window.
    pub(crate) fn stream(&mut self, cx: &mut Host, id: MemberId) {
        let Some(link) = self.lead.links.get_mut(&id) else {
            return;
        };
        if !link.streams() {
            return;
        }
        if link.next <= self.log.base() {
            // The tail is gone. A learner begins again. A copy in sync can lag so far only because
            // of a defect here.
            if link.teaching.is_some() {
                self.start_teaching(cx, id);
            }
            return;
        }
        let first = link.next;
        while link.next <= self.log.last()
            && self.log.bytes_between(link.acked, link.next - 1) < WINDOW
        {
            let Some(out) = cx.peers.room(id) else {
                break;
            };
            let count = self.log.frame_from(link.next);
            let head = FrameHead {
                at: self.at,
                epoch: self.epoch,
                session: link.session,
                committed: self.log.committed(),
                clock: self.clock.advance(cx.now),
                first: link.next,
            };
            frame::append(
                out,
                &head,
                (link.next..link.next + count).filter_map(|seq| self.log.entry(seq)),
            );
            link.next += count;
            link.said_committed = self.log.committed();
            cx.stats.copies.replicated += count;
        }
        if link.next > first {
            cx.peers.note_given(id, &mut link.stalled, cx.now);
        } else if link.next > self.log.last() && link.acked < self.log.last() {
            // All of it is on its way.
            cx.peers.note_given(id, &mut link.stalled, cx.now);
        } else if link.acked < self.log.last() {
            link.stalled.get_or_insert(AckWait::for_room(cx.now));
        }
    }

    /// A copy reports what it has.
    pub(crate) fn acked(&mut self, cx: &mut Host, ack: &Ack, from: MemberId) {
        let Some(link) = self.lead.links.get_mut(&from) else {
            return;
        };
        if ack.epoch != self.epoch || ack.session != link.session || ack.seq > self.log.last() {
            return;
        }
        if ack.seq >= link.next {
            // A copy cannot have what was not sent to it. (Or it was sent before something began
            // again, and comes once more.)
            return;
        }
        let mut begun = false;
        if let Some(teaching) = &mut link.teaching {
            begun = teaching.acked(cx.now);
            link.acked = link.acked.max(ack.seq);
        } else if !link.aligned {
            // Only a whole alignment may be acknowledged.
            if ack.seq + 1 < link.next {
                return;
            }
            link.aligned = true;
            link.acked = ack.seq;
            // Its clock is that of the alignment, which may have been on its way for long.
            self.lead.said_clock = Time::ZERO;
        } else {
            link.acked = link.acked.max(ack.seq);
        }
        link.asks = 0;
        link.resent = cx.now;
        link.stalled = None;
        if link.acked + 1 < link.next {
            cx.peers.note_given(from, &mut link.stalled, cx.now);
        }
        cx.peers.silent.note_heard(from);
        // If calls wait for room at a learner, they and its log have it by turns (`relieve`).
        let lags =
            link.next <= self.log.last() && (link.required || cx.callers.waiting_for(from) == 0);
        if begun {
            self.teach(cx, from);
        }
        if lags || begun {
            self.stream(cx, from);
        }
        self.advance(cx);
        self.admit(cx, from);
    }

    /// A copy tells what the clock shows there. Until the tenure opens, the greatest value counts:
    /// no deadline was given by a lower one yet. Each copy tells it before its first ack.
    pub(crate) fn hear_clock(&mut self, cx: &Host, from: MemberId, (epoch, ms): (Epoch, u64)) {
        let copy = self.lead.links.get(&from);
        let asked = copy.is_some_and(|link| link.required && !link.aligned);
        if asked && epoch == self.epoch && !self.lead.open {
            self.clock.raise(ms, cx.now);
        }
    }

    /// A copy is missing something.
    pub(crate) fn wanted(
        &mut self,
        cx: &mut Host,
        from: MemberId,
        (epoch, session, next): (Epoch, u32, u64),
    ) {
        let Some(link) = self.lead.links.get_mut(&from) else {
            return;
        };
        if epoch != self.epoch {
            return;
        }
        if link.session != session
            || !link.aligned
            || next > self.log.last() + 1
            || next <= link.acked
        {
            // The copy does not continue this log. (It cannot be a copy that lost acknowledged
            // entries: such a copy gets them again.)
            if link.teaching.is_none() {
                link.aligned = false;
            } else if link.teaching.as_ref().is_some_and(Teaching::verified) {
                // Its acks may be required. Only another epoch ends that.
                cx.outbox
                    .ask(self.at, epoch, InSyncChange::Withdraw(from.member()));
                return;
            }
            self.restart_link(cx, from);
            return;
        }
        if next <= self.log.base() {
            if link.teaching.is_some() {
                self.start_teaching(cx, from);
            } else {
                cx.outbox
                    .ask(self.at, epoch, InSyncChange::Remove(from.member()));
            }
            return;
        }
        // The copy may have acknowledged earlier entries in an epoch that had ended. `upkeep` sends
        // those again. Sending from `acked` on here would be as safe: a copy ignores entries that
        // it has, and acknowledges its whole log.
        link.next = next;
        link.stalled = link.stalled.map(AckWait::again);
        link.said_committed = 0;
        self.stream(cx, from);
    }

    /// Commits what every required copy has, releases the calls that waited for it, and opens the
    /// tenure when it may.
    pub(crate) fn advance(&mut self, cx: &mut Host) {
        let required = || self.lead.links.values().filter(|l| l.required);
        let mut aligned = true;
        // What is not on the disk here does not count here.
        let mut point = self.log.counted();
        for link in required() {
            aligned &= link.aligned;
            point = point.min(if link.aligned { link.acked } else { 0 });
        }
        if broken(&mutant::ONE_COPY_SUFFICES) {
            point = required()
                .map(|l| l.acked)
                .max()
                .unwrap_or(point)
                .min(self.log.last());
        }
        // Deposed by an accepted table: this node commits nothing more (rule 10: its ack was the
        // seal).
        if (self.lead.serving || broken(&mutant::COMMITS_DEPOSED)) && point > self.log.committed() {
            cx.memory
                .garbage
                .collect(&mut cx.timers, |maps| self.log.commit(point, maps));
            self.tell_readers(cx);
            self.trim(cx);
        }
        let tail = (aligned && self.log.committed() >= self.lead.tail)
            || broken(&mutant::OPENS_WITHOUT_TAIL);
        if !self.lead.open && self.lead.serving && tail && cx.now >= self.lead.opens_at {
            self.lead.open = true;
            cx.outbox.opened(self.at, self.lead.since);
            // Parked writes are executed later, not from within the present call.
            cx.timers.wake(self.at, cx.now);
            self.tell_readers(cx);
        }
        if self.lead.serving || broken(&mutant::COMMITS_DEPOSED) {
            let committed = self.log.committed();
            let due = |e: &Executed| e.seq <= committed;
            let mut kept = 0;
            let brake = match self.calls.waiting.front() {
                Some(first) if due(first) => self.brake(cx),
                _ => None,
            };
            while self.calls.waiting.get(kept).is_some_and(due) {
                if let Some(brake) = &brake
                    && self.holds_back(cx, brake, kept)
                {
                    kept += 1;
                } else if let Some(executed) = self.calls.waiting.remove(kept) {
                    cx.callers.ready.push(self.at, executed, &mut cx.timers);
                }
            }
            begin_anew(&mut self.calls.waiting);
        }
        self.report_frozen(cx);
    }

    /// Drops entries that no copy needs. Entries that a learner needs besides its snapshot belong
    /// to the snapshot and not to the tail: otherwise any tail would be too short for a snapshot
    /// that takes longer than some writes. They stay until they are larger than another snapshot,
    /// which is cheaper then, and than what is spared for a learner that replaces a missing copy:
    /// if a few large keys are written again and again, each snapshot would be outrun.
    pub(crate) fn trim(&mut self, cx: &mut Host) {
        let share = cx.tail_bytes(self.at, self.store.bytes());
        let before = self.log.bytes();
        if before <= share {
            return;
        }
        let repaired = self.lead.teaches() && self.is_repaired(&cx.tables.leaving);
        let spared = if repaired { cx.spared_bytes() } else { 0 };
        let large = (self.store.bytes() as u64).max(WINDOW).max(spared);
        let lacks = self.lead.links.values();
        let lacks = lacks.filter(|l| l.teaching.as_ref().is_some_and(Teaching::started));
        let learned = lacks
            .map(|l| l.acked)
            .filter(|acked| self.log.bytes_between(*acked, self.log.last()) <= large)
            .min();
        self.log.trim(share, learned.unwrap_or(u64::MAX));
        cx.memory.recount(before, self.log.bytes());
    }
}

/// This part of the memory is spared for the log of a learner that replaces a missing copy.
const SPARED_PART: usize = 8;

/// The partitions of a node share its tail. One of them has at most this part of it.
const TAIL_SHARES_MIN: usize = 256;
/// The tail is this part of the contents: a tail entry costs as much again as its key.
const TAIL_PART: usize = 32;
/// A smaller tail is not kept. With so little data, a snapshot is as cheap. And a log whose entries
/// go as soon as they are committed always reuses the same cache lines.
const TAIL_BYTES_WORTH: usize = 4 << 10;
