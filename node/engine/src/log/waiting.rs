//! The waiting room of the partitions that this thread leads: which callers wait for a change of a
//! key, in which order, and when the first of them tries.
//!
//! ```text
//!   enter ──> (partition, map, key): ticket, ticket, ticket, ...     in order of arrival
//!                                    first
//!   changed, or the time at which the first one could go on ──> next_woken ──> it is executed
//!        it goes on ──> leave, and the next one is the first ──> next_woken
//!        it is blocked ──> rest, until the next change or until then
//!        its partition executes nothing ──> stall, until it does (stir)
//! ```
//! A ticket is an operation that answers that it is blocked (`crate::command::blocking`). The
//! primary executes the first one of a key again when the key changes, and the next ones for as
//! long as they go on. So one change wakes one waiter if there is enough for one, and waiters that
//! stay in line cost nothing. Lines are tried in the order in which they were woken.
//!
//! An operation that only reads takes nothing: its caller takes in an ordinary operation, after the
//! answer. Until then the ticket has a *grant*. While it is live, the next ticket goes on only if
//! the key holds more things than there are grants, so that one thing wakes one waiter. A grant
//! ends when its caller withdraws the ticket, and lapses after one lease. It keeps nothing from
//! callers that do not wait: if one of them was faster, the caller waits again.
//!
//! Tickets live in memory alone, for a tenure. A caller whose ticket is lost asks again, with its
//! age. Tickets of a key that come within one lease of the first one are ordered by their age, so
//! that a line survives a failover; later ones come behind. A ticket that takes a grant always
//! keeps its age, because its caller may have to wait again.
//!
//! Callers that wait for different things in one key wait in lines of their own: those that read a
//! stream behind an id, for each id, and those of a group of consumers. A change wakes the first of
//! each line.
//!
//! All processes share a room. Each may fill as much of it as is left beside all tickets: one alone
//! gets a half, two get a third each. So one that fills what it may leaves room for the others.

use crate::mutant::{self, broken};
use crate::store::Effect;
use bytes::Bytes;
use doyen_gossip::Time;
use doyen_placement::{MapId, MemberId, PartitionRef};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a ticket with a line of its own takes besides its key and what its operation points to.
const TICKET_OVERHEAD: usize = 960;
/// A line that is blocked rests for this time at least, unless its key changes.
const REST_LEAST: Duration = Duration::from_millis(5);

/// A key that callers wait for, and the name of a line there. Lines of one key do not wait for each
/// other. Most operations wait in the line without a name.
pub(crate) type WaitedKey = (PartitionRef, MapId, Bytes, Bytes);
/// The lines of each key, by their names.
type LinesOfKeys = BTreeMap<Bytes, BTreeMap<Bytes, TicketLine>>;
/// The data thread of a caller, and the number of the ticket there.
pub(crate) type TicketName = (MemberId, u64);
/// The order in a line: since when a ticket waits, and which one came first.
type Rank = (Time, u64);

/// What a caller waits with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ticket<W> {
    pub(crate) name: TicketName,
    /// What is executed.
    pub(crate) work: W,
    /// Bytes of `work`.
    pub(crate) bytes: usize,
    /// It takes a grant when it goes on.
    pub(crate) takes_grant: bool,
}

/// A ticket that has entered.
#[derive(Debug)]
struct Placed<W> {
    key: WaitedKey,
    rank: Rank,
    work: W,
    /// All that it takes.
    bytes: usize,
    /// It has gone on, and has a grant until then.
    granted: Option<Time>,
}

/// How many tickets there are, and what they take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Filled {
    pub(crate) tickets: usize,
    pub(crate) bytes: usize,
}

impl Filled {
    const fn add(&mut self, bytes: usize) {
        self.tickets += 1;
        self.bytes += bytes;
    }

    const fn remove(&mut self, bytes: usize) {
        self.tickets -= 1;
        self.bytes -= bytes;
    }
}

/// There is no room for another ticket of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RoomIsFull;

/// What is next for the first ticket of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextTicket {
    /// It is being executed.
    Now,
    /// It is tried after those that were woken before.
    Try(u64),
    /// It is blocked, so it is tried when the key changes, or at this time.
    Rest(Time),
    /// Its partition executes nothing. It is tried once it does.
    Stall(u64),
}

#[derive(Debug)]
struct TicketLine {
    /// When the first ticket came.
    began: Time,
    tickets: BTreeMap<Rank, TicketName>,
    /// Tickets that have gone on, by the time at which their grants lapse.
    grants: BTreeSet<(Time, TicketName)>,
    next: NextTicket,
}

/// All lines of one data thread.
#[derive(Debug)]
pub(crate) struct WaitingRoom<W> {
    lines: BTreeMap<(PartitionRef, MapId), LinesOfKeys>,
    tickets: BTreeMap<TicketName, Placed<W>>,
    /// Lines whose first ticket is to be tried, in the order in which they were woken.
    woken: BTreeMap<u64, WaitedKey>,
    /// Lines whose first ticket is to be tried at a time.
    due: BTreeSet<(Time, WaitedKey)>,
    /// Lines of partitions that executed nothing, in the order in which they were tried.
    stalled: BTreeMap<(PartitionRef, u64), WaitedKey>,
    /// The number of the next arrival, or of the next line that is woken or stalls.
    number: u64,
    filled: Filled,
    /// The part of each process.
    of_processes: BTreeMap<MemberId, Filled>,
}

/// All lines of a map's keys.
fn keys_of(at: PartitionRef, map: MapId, keys: &LinesOfKeys) -> impl Iterator<Item = WaitedKey> {
    let lines = keys
        .iter()
        .flat_map(|(key, lines)| lines.keys().map(move |line| (key, line)));
    lines.map(move |(key, line)| (at, map, key.clone(), line.clone()))
}

impl<W> Default for WaitingRoom<W> {
    fn default() -> Self {
        Self {
            lines: BTreeMap::new(),
            tickets: BTreeMap::new(),
            woken: BTreeMap::new(),
            due: BTreeSet::new(),
            stalled: BTreeMap::new(),
            number: 0,
            filled: Filled::default(),
            of_processes: BTreeMap::new(),
        }
    }
}

impl<W> WaitingRoom<W> {
    /// How many tickets there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Whether there is none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// How many tickets wait for a key.
    #[inline]
    pub(crate) fn waiting(&self, at: PartitionRef, map: MapId, key: &[u8]) -> usize {
        let keys = self.lines.get(&(at, map));
        let lines = keys.and_then(|keys| keys.get(key));
        let lines = lines.into_iter().flat_map(BTreeMap::values);
        lines.map(|line| line.tickets.len()).sum()
    }

    fn line(&self, (at, map, key, line): &WaitedKey) -> Option<&TicketLine> {
        self.lines.get(&(*at, *map))?.get(key)?.get(line)
    }

    fn line_mut(&mut self, (at, map, key, line): &WaitedKey) -> Option<&mut TicketLine> {
        self.lines
            .get_mut(&(*at, *map))?
            .get_mut(key)?
            .get_mut(line)
    }

    fn number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// A ticket takes its place in a line. It has waited for `age` already, elsewhere. Tickets that
    /// come within `lease` of the first one are ordered by their age. A ticket that is here already
    /// keeps its place, and gives back its grant: its caller does not know of it. `most` is what
    /// the room holds.
    ///
    /// # Errors
    /// There is no room for more tickets of this process.
    pub(crate) fn enter(
        &mut self,
        key: WaitedKey,
        ticket: Ticket<W>,
        (now, age, lease): (Time, Duration, Duration),
        most: Filled,
    ) -> Result<(), RoomIsFull> {
        let Ticket {
            name,
            work,
            bytes,
            takes_grant,
        } = ticket;
        if self.tickets.contains_key(&name) {
            self.give_back(name);
            return Ok(());
        }
        let bytes = bytes + key.2.len() + key.3.len() + TICKET_OVERHEAD;
        let process = name.0.member();
        let mut own = self.of_processes.get(&process).copied().unwrap_or_default();
        own.add(bytes);
        if own.tickets > most.tickets.saturating_sub(self.filled.tickets)
            || own.bytes > most.bytes.saturating_sub(self.filled.bytes)
        {
            return Err(RoomIsFull);
        }
        self.of_processes.insert(process, own);
        self.filled.add(bytes);
        let number = self.number();
        let lines = self.lines.entry((key.0, key.1)).or_default();
        let lines = lines.entry(key.2.clone()).or_default();
        let line = lines.entry(key.3.clone()).or_insert_with(|| TicketLine {
            began: now,
            tickets: BTreeMap::new(),
            grants: BTreeSet::new(),
            next: NextTicket::Now,
        });
        let since = if takes_grant || now.since(line.began) <= lease {
            let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
            Time(now.0.saturating_sub(age))
        } else {
            now
        };
        let rank = (since, number);
        let first = line.tickets.first_key_value();
        let is_first = first.is_none_or(|(first, _)| rank < *first);
        line.tickets.insert(rank, name);
        if is_first {
            self.wake(&key);
        }
        let placed = Placed {
            key,
            rank,
            work,
            bytes,
            granted: None,
        };
        self.tickets.insert(name, placed);
        Ok(())
    }

    /// A ticket leaves: its caller is gone, or has its answer. False: it is not here.
    pub(crate) fn leave(&mut self, name: TicketName) -> bool {
        let Some(Placed {
            key, rank, granted, ..
        }) = self.take(name)
        else {
            return false;
        };
        let Some(line) = self.line_mut(&key) else {
            return false;
        };
        let frees = if let Some(until) = granted {
            line.grants.remove(&(until, name))
        } else {
            let first = line.tickets.first_key_value();
            let was_first = first.is_some_and(|(first, _)| *first == rank);
            line.tickets.remove(&rank);
            was_first
        };
        if line.tickets.is_empty() && line.grants.is_empty() {
            self.end_line(&key);
        } else if frees {
            // What the first one waited for may be enough for the next one.
            self.wake(&key);
        }
        true
    }

    /// The first ticket of a line goes on, and has a grant until then.
    pub(crate) fn grant(&mut self, name: TicketName, until: Time) {
        let Some(placed) = self.tickets.get_mut(&name) else {
            return;
        };
        placed.granted = Some(until);
        let (key, rank) = (placed.key.clone(), placed.rank);
        if let Some(line) = self.line_mut(&key) {
            line.tickets.remove(&rank);
            line.grants.insert((until, name));
            self.wake(&key);
        }
    }

    /// A ticket that has a grant waits again, at its place.
    fn give_back(&mut self, name: TicketName) {
        let Some(placed) = self.tickets.get_mut(&name) else {
            return;
        };
        let (key, rank) = (placed.key.clone(), placed.rank);
        if let Some(until) = placed.granted.take()
            && let Some(line) = self.line_mut(&key)
        {
            line.grants.remove(&(until, name));
            line.tickets.insert(rank, name);
            self.wake(&key);
        }
    }

    /// How many tickets of a line have grants. Those that have lapsed end.
    pub(crate) fn grants(&mut self, key: &WaitedKey, now: Time) -> usize {
        while let Some(line) = self.line_mut(key)
            && let Some((until, name)) = line.grants.first().copied()
            && until <= now
            && !broken(&mutant::GRANTS_FOR_EVER)
        {
            line.grants.remove(&(until, name));
            let is_over = line.tickets.is_empty() && line.grants.is_empty();
            self.take(name);
            if is_over {
                self.end_line(key);
            }
        }
        self.line(key).map_or(0, |line| line.grants.len())
    }

    fn take(&mut self, name: TicketName) -> Option<Placed<W>> {
        let placed = self.tickets.remove(&name)?;
        let process = name.0.member();
        self.filled.remove(placed.bytes);
        if let Some(own) = self.of_processes.get_mut(&process) {
            own.remove(placed.bytes);
            if own.tickets == 0 {
                self.of_processes.remove(&process);
            }
        }
        Some(placed)
    }

    fn end_line(&mut self, key: &WaitedKey) {
        self.set_next(key, NextTicket::Now);
        let (at, map, name, line) = key;
        if let Some(keys) = self.lines.get_mut(&(*at, *map))
            && let Some(lines) = keys.get_mut(name)
        {
            lines.remove(line);
            if lines.is_empty() {
                keys.remove(name);
            }
            if keys.is_empty() {
                self.lines.remove(&(*at, *map));
            }
        }
    }

    /// A data thread is gone, with its callers.
    pub(crate) fn leave_all_of(&mut self, member: MemberId) {
        let all = self.tickets.range((member, 0)..=(member, u64::MAX));
        let names: Vec<TicketName> = all.map(|(name, _)| *name).collect();
        for name in names {
            self.leave(name);
        }
    }

    /// Empties the lines of a partition, and returns whose tickets waited there.
    pub(crate) fn end(&mut self, at: PartitionRef) -> Vec<TicketName> {
        let maps = self.lines.range((at, MapId(0))..=(at, MapId(u32::MAX)));
        let keys: Vec<WaitedKey> = maps
            .flat_map(|((at, map), keys)| keys_of(*at, *map, keys))
            .collect();
        let mut names = Vec::new();
        for key in keys {
            let Some(line) = self.line_mut(&key) else {
                continue;
            };
            let tickets = std::mem::take(&mut line.tickets);
            for (_, name) in std::mem::take(&mut line.grants) {
                self.take(name);
            }
            for name in tickets.into_values() {
                self.take(name);
                names.push(name);
            }
            self.end_line(&key);
        }
        names
    }

    /// Keys of a partition change.
    #[inline]
    pub(crate) fn changed(&mut self, at: PartitionRef, effect: &Effect) {
        if !self.is_empty() {
            effect
                .parts()
                .iter()
                .for_each(|part| self.wake_of(at, part));
        }
    }

    fn wake_of(&mut self, at: PartitionRef, effect: &Effect) {
        if matches!(effect, Effect::RowsFreed { .. }) {
            return;
        }
        if let Some((map, key)) = effect.place() {
            let keys = self.lines.get(&(at, map));
            if let Some((key, lines)) = keys.and_then(|keys| keys.get_key_value(key)) {
                let lines = lines
                    .keys()
                    .map(|line| (at, map, key.clone(), line.clone()));
                let lines: SmallVec<[WaitedKey; 1]> = lines.collect();
                lines.iter().for_each(|line| self.wake(line));
            }
        } else if let Effect::Clear { map } = effect {
            let keys = self.lines.get(&(at, *map)).into_iter();
            let keys: Vec<WaitedKey> = keys.flat_map(|keys| keys_of(at, *map, keys)).collect();
            keys.iter().for_each(|key| self.wake(key));
        }
    }

    /// The first ticket of a line is tried after those of the lines that were woken before.
    fn wake(&mut self, key: &WaitedKey) {
        let is_woken = |line: &TicketLine| matches!(line.next, NextTicket::Try(_));
        if self.line(key).is_some_and(|line| !is_woken(line)) {
            let number = self.number();
            self.set_next(key, NextTicket::Try(number));
        }
    }

    fn set_next(&mut self, key: &WaitedKey, next: NextTicket) {
        let Some(line) = self.line_mut(key) else {
            return;
        };
        match std::mem::replace(&mut line.next, next) {
            NextTicket::Now => {}
            NextTicket::Try(number) => drop(self.woken.remove(&number)),
            NextTicket::Rest(until) => _ = self.due.remove(&(until, key.clone())),
            NextTicket::Stall(number) => drop(self.stalled.remove(&(key.0, number))),
        }
        match next {
            NextTicket::Now => {}
            NextTicket::Try(number) => drop(self.woken.insert(number, key.clone())),
            NextTicket::Rest(until) => _ = self.due.insert((until, key.clone())),
            NextTicket::Stall(number) => drop(self.stalled.insert((key.0, number), key.clone())),
        }
    }

    /// Whether a ticket is to be tried.
    #[inline]
    pub(crate) fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    /// Takes a line whose first ticket is to be tried.
    pub(crate) fn next_woken(&mut self) -> Option<WaitedKey> {
        let (_, key) = self.woken.pop_first()?;
        self.set_next(&key, NextTicket::Now);
        Some(key)
    }

    /// The first ticket of a line.
    pub(crate) fn first(&self, key: &WaitedKey) -> Option<(TicketName, &W)> {
        let (_, name) = self.line(key)?.tickets.first_key_value()?;
        Some((*name, &self.tickets.get(name)?.work))
    }

    /// The first ticket of a line is blocked, or there is none. It is tried again when the key
    /// changes, when the next grant lapses, and at the latest after this time. What it changed
    /// itself does not count.
    pub(crate) fn rest(&mut self, key: &WaitedKey, now: Time, within: Duration) {
        let lapses = self.line(key).and_then(|line| line.grants.first());
        let until = lapses.map_or(now + within, |(lapses, _)| (now + within).min(*lapses));
        self.set_next(key, NextTicket::Rest(until.max(now + REST_LEAST)));
    }

    /// The partition of a line executes nothing at present.
    pub(crate) fn stall(&mut self, key: &WaitedKey) {
        let number = self.number();
        self.set_next(key, NextTicket::Stall(number));
    }

    /// A partition executes what callers wait for, perhaps after a time in which it did not.
    #[inline]
    pub(crate) fn stir(&mut self, at: PartitionRef) {
        if !self.stalled.is_empty() && !broken(&mutant::STALLS_FOR_EVER) {
            let all = self.stalled.range((at, 0)..=(at, u64::MAX));
            let keys: Vec<WaitedKey> = all.map(|(_, key)| key.clone()).collect();
            keys.iter().for_each(|key| self.wake(key));
        }
    }

    /// Wakes the lines whose time has come.
    pub(crate) fn wake_due(&mut self, now: Time) {
        while self.next_due().is_some_and(|due| due <= now)
            && let Some((_, key)) = self.due.pop_first()
        {
            self.wake(&key);
        }
    }

    /// When `wake_due` has something to do.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests;
