//! The waiting room of the partitions that this thread leads: which callers wait for a change of a
//! key, in which order, and when the first of them tries.
//!
//! ```text
//!   enter ──> (partition, map, key): ticket, ticket, ticket, ...     in order of arrival
//!                                    first
//!   changed, or the time at which the first one could go on ──> next_woken ──> it is executed
//!        it goes on ──> leave, and the next one is the first ──> next_woken
//!        it is blocked ──> rest, until the next change or until then
//! ```
//! A ticket is an operation that answers that it is blocked (`crate::command::blocking`). The
//! primary executes the first one of a key again when the key changes, and the next ones for as long
//! as they go on. So one change wakes one waiter if there is enough for one, and waiters that stay
//! in line cost nothing.
//!
//! Tickets live in memory alone, for a tenure. A caller whose ticket is lost asks again, with its
//! age. Tickets of a key that come within one lease of the first one are ordered by their age, so
//! that a line survives a failover; later ones come behind.

use crate::store::Effect;
use bytes::Bytes;
use doyen_gossip::Time;
use doyen_placement::{MapId, MemberId, PartitionRef};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The most bytes of all tickets of one data thread.
const BYTES_MAX: usize = 64 << 20;
/// What a ticket takes besides its key and its operation.
const TICKET_OVERHEAD: usize = 320;

/// A key that callers wait for.
pub(crate) type WaitedKey = (PartitionRef, MapId, Bytes);
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
}

impl<W> Ticket<W> {
    fn bytes_at(&self, key: &WaitedKey) -> usize {
        self.bytes + key.2.len() + TICKET_OVERHEAD
    }
}

/// There is no room for another ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RoomIsFull;

#[derive(Debug)]
struct Line<W> {
    /// When the first ticket came.
    began: Time,
    tickets: BTreeMap<Rank, Ticket<W>>,
    /// When the first one is tried, if the key does not change.
    again: Option<Time>,
}

/// All lines of one data thread.
#[derive(Debug)]
pub(crate) struct WaitingRoom<W> {
    lines: BTreeMap<(PartitionRef, MapId), BTreeMap<Bytes, Line<W>>>,
    places: BTreeMap<TicketName, (WaitedKey, Rank)>,
    /// Lines whose first ticket is to be tried.
    woken: BTreeSet<WaitedKey>,
    /// Lines whose first ticket is to be tried at a time.
    due: BTreeSet<(Time, WaitedKey)>,
    arrivals: u64,
    bytes: usize,
}

impl<W> Default for WaitingRoom<W> {
    fn default() -> Self {
        Self {
            lines: BTreeMap::new(),
            places: BTreeMap::new(),
            woken: BTreeSet::new(),
            due: BTreeSet::new(),
            arrivals: 0,
            bytes: 0,
        }
    }
}

impl<W> WaitingRoom<W> {
    /// How many tickets there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// How many tickets wait for a key.
    #[inline]
    pub(crate) fn waiting(&self, at: PartitionRef, map: MapId, key: &[u8]) -> usize {
        let keys = self.lines.get(&(at, map));
        let line = keys.and_then(|keys| keys.get(key));
        line.map_or(0, |line| line.tickets.len())
    }

    fn line(&self, (at, map, key): &WaitedKey) -> Option<&Line<W>> {
        self.lines.get(&(*at, *map))?.get(key)
    }

    fn line_mut(&mut self, (at, map, key): &WaitedKey) -> Option<&mut Line<W>> {
        self.lines.get_mut(&(*at, *map))?.get_mut(key)
    }

    /// A ticket takes its place in a line. It has waited for `age` already, elsewhere. Tickets that
    /// come within `lease` of the first one are ordered by their age. A ticket that is here already
    /// keeps its place.
    ///
    /// # Errors
    /// There is no room.
    pub(crate) fn enter(
        &mut self,
        key: WaitedKey,
        ticket: Ticket<W>,
        (now, age, lease): (Time, Duration, Duration),
    ) -> Result<(), RoomIsFull> {
        if self.places.contains_key(&ticket.name) {
            return Ok(());
        }
        let bytes = ticket.bytes_at(&key);
        if self.bytes + bytes > BYTES_MAX {
            return Err(RoomIsFull);
        }
        let lines = self.lines.entry((key.0, key.1)).or_default();
        let line = lines.entry(key.2.clone()).or_insert_with(|| Line {
            began: now,
            tickets: BTreeMap::new(),
            again: None,
        });
        let since = if now.since(line.began) <= lease {
            Time(
                now.0
                    .saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)),
            )
        } else {
            now
        };
        self.arrivals += 1;
        let rank = (since, self.arrivals);
        let is_first = line
            .tickets
            .first_key_value()
            .is_none_or(|(first, _)| rank < *first);
        self.places.insert(ticket.name, (key.clone(), rank));
        line.tickets.insert(rank, ticket);
        self.bytes += bytes;
        if is_first {
            self.woken.insert(key);
        }
        Ok(())
    }

    /// A ticket leaves: its caller is gone, or has its answer. False: it is not here.
    pub(crate) fn leave(&mut self, name: TicketName) -> bool {
        let Some((key, rank)) = self.places.remove(&name) else {
            return false;
        };
        let Some(line) = self.line_mut(&key) else {
            return false;
        };
        let was_first = line
            .tickets
            .first_key_value()
            .is_some_and(|(first, _)| *first == rank);
        let left = line.tickets.remove(&rank);
        let is_over = line.tickets.is_empty();
        self.bytes -= left.map_or(0, |ticket| ticket.bytes_at(&key));
        if is_over {
            self.end_line(&key);
        } else if was_first {
            // What the first one waited for may be enough for the next one.
            self.woken.insert(key);
        }
        true
    }

    fn end_line(&mut self, key: &WaitedKey) {
        let (at, map, name) = key;
        if let Some(lines) = self.lines.get_mut(&(*at, *map)) {
            if let Some(again) = lines.remove(name).and_then(|line| line.again) {
                self.due.remove(&(again, key.clone()));
            }
            if lines.is_empty() {
                self.lines.remove(&(*at, *map));
            }
        }
        self.woken.remove(key);
    }

    /// A data thread is gone, with its callers.
    pub(crate) fn leave_all_of(&mut self, member: MemberId) {
        let all = self.places.range((member, 0)..=(member, u64::MAX));
        let names: Vec<TicketName> = all.map(|(name, _)| *name).collect();
        for name in names {
            self.leave(name);
        }
    }

    /// Empties the lines of a partition, and returns whose tickets were there.
    pub(crate) fn end(&mut self, at: PartitionRef) -> Vec<TicketName> {
        let keys: Vec<WaitedKey> = self.keys_of(at).collect();
        let mut names = Vec::new();
        for key in keys {
            let line = self.line_mut(&key);
            let tickets = line.map(|line| std::mem::take(&mut line.tickets));
            for ticket in tickets.into_iter().flat_map(BTreeMap::into_values) {
                self.bytes -= ticket.bytes_at(&key);
                self.places.remove(&ticket.name);
                names.push(ticket.name);
            }
            self.end_line(&key);
        }
        names
    }

    fn keys_of(&self, at: PartitionRef) -> impl Iterator<Item = WaitedKey> {
        let maps = self.lines.range((at, MapId(0))..=(at, MapId(u32::MAX)));
        maps.flat_map(|((at, map), lines)| lines.keys().map(|key| (*at, *map, key.clone())))
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
        if let Some((map, key)) = effect.place() {
            let lines = self.lines.get(&(at, map));
            if let Some((key, _)) = lines.and_then(|lines| lines.get_key_value(key)) {
                self.woken.insert((at, map, key.clone()));
            }
        } else {
            self.wake_all(at);
        }
    }

    /// The first tickets of a partition are tried: it is open now, or has another table.
    pub(crate) fn wake_all(&mut self, at: PartitionRef) {
        if !self.is_empty() {
            let keys: Vec<WaitedKey> = self.keys_of(at).collect();
            self.woken.extend(keys);
        }
    }

    /// Whether a ticket is to be tried.
    #[inline]
    pub(crate) fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    /// Takes a line whose first ticket is to be tried.
    pub(crate) fn next_woken(&mut self) -> Option<WaitedKey> {
        self.woken.pop_first()
    }

    /// The first ticket of a line.
    pub(crate) fn first(&self, key: &WaitedKey) -> Option<&Ticket<W>> {
        self.line(key)?.tickets.values().next()
    }

    /// The first ticket of a line is blocked. It is tried again when the key changes, and at this
    /// time. What it changed itself does not count.
    pub(crate) fn rest(&mut self, key: &WaitedKey, again: Time) {
        self.woken.remove(key);
        let Some(line) = self.line_mut(key) else {
            return;
        };
        let before = line.again.replace(again);
        if let Some(before) = before {
            self.due.remove(&(before, key.clone()));
        }
        self.due.insert((again, key.clone()));
    }

    /// Wakes the lines whose time has come.
    pub(crate) fn wake_due(&mut self, now: Time) {
        while let Some((at, key)) = self.due.pop_first() {
            if at > now {
                self.due.insert((at, key));
                return;
            }
            if let Some(line) = self.line_mut(&key) {
                line.again = None;
                self.woken.insert(key);
            }
        }
    }

    /// When `wake_due` has something to do.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests;
