//! Entries that expire when they are not used: maps with `MapLimits::idle_ms`.
//!
//! A value of such a map has a head, which says what a deadline alone cannot:
//! ```text
//!   E2   dies at (8)   idle (8), in milliseconds   the value
//! ```
//! *Dies at* is the deadline that a caller asked for, or 0. *Idle* is how long the entry may be
//! unused; 0: as long as the map says. Callers write the head (`Action::Set`) with a 0 for *dies
//! at*, and read values without it.
//!
//! The deadline of the entry is the earlier of *dies at* and an eighth more than *idle* after its
//! last known use. A use is noted in the log only once less than *idle* is left. So an entry lives
//! for *idle* at least after its last use and an eighth longer at most, and reads are seldom
//! writes.

use super::action;
use crate::command::operation::Action;
use crate::store::FoundKey;
use crate::store::change::KeyChange;
use crate::store::run_context::RunContext;
use crate::value::entry::Entry;
use crate::value::kind::Kind;
use crate::value::outcome::Outcome;
use bytes::Bytes;
use std::time::Duration;

/// The first byte of a value with a head.
const IDLE: u8 = 0xE2;
/// Bytes before the value.
const HEAD: usize = 1 + 8 + 8;
/// A use is noted this part of the idle time after the last one that was noted.
const NOTED_PART: u64 = 8;

/// What the head of a value says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct IdleHead {
    dies_at: u64,
    idle_ms: u64,
}

impl IdleHead {
    fn read(stored: &[u8]) -> Option<(Self, &[u8])> {
        let [IDLE, rest @ ..] = stored else {
            return None;
        };
        let (dies_at, rest) = rest.split_first_chunk()?;
        let (idle_ms, content) = rest.split_first_chunk()?;
        let head = Self {
            dies_at: u64::from_le_bytes(*dies_at),
            idle_ms: u64::from_le_bytes(*idle_ms),
        };
        Some((head, content))
    }

    fn before(self, content: &[u8]) -> Bytes {
        let mut stored = Vec::with_capacity(HEAD + content.len());
        stored.push(IDLE);
        stored.extend(self.dies_at.to_le_bytes());
        stored.extend(self.idle_ms.to_le_bytes());
        stored.extend(content);
        Bytes::from(stored)
    }

    /// How long the entry may be unused, in a map with this idle time.
    const fn idle(self, of_map: u64) -> u64 {
        if self.idle_ms == 0 {
            of_map
        } else {
            self.idle_ms
        }
    }

    /// The deadline of an entry that is used now.
    fn deadline(self, of_map: u64, cx: &RunContext) -> u64 {
        let idle = self.idle(of_map);
        let unused = cx.after(idle.saturating_add(idle / NOTED_PART).max(1));
        match self.dies_at {
            0 => unused,
            dies_at => dies_at.min(unused),
        }
    }
}

/// A value as a caller writes it into a map whose entries expire when they are not used: after
/// `idle`, or as the map says.
#[must_use]
pub fn headed(idle: Option<Duration>, value: &[u8]) -> Bytes {
    let ms = |idle: Duration| u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
    let head = IdleHead {
        dies_at: 0,
        idle_ms: idle.map_or(0, |idle| ms(idle).max(1)),
    };
    head.before(value)
}

/// A stored value of such a map without its head.
#[must_use]
pub fn content(stored: &[u8]) -> &[u8] {
    IdleHead::read(stored).map_or(stored, |(_, content)| content)
}

/// Applies an action to a key of a map with this idle time. Without `notes`, a read is not noted
/// as a use.
pub(crate) fn apply(
    action: &Action,
    found: FoundKey<'_>,
    cx: &RunContext,
    (of_map, notes): (u64, bool),
) -> (Outcome, KeyChange) {
    if found
        .entry
        .is_some_and(|entry| entry.kind() != Kind::String)
    {
        return action::apply(action, found, cx);
    }
    let known = found.entry.map(|entry| {
        let (head, content) = IdleHead::read(entry.value()).unwrap_or((
            // It was written otherwise, for example by a script.
            IdleHead {
                dies_at: entry.deadline(),
                idle_ms: 0,
            },
            entry.value(),
        ));
        cx.budget.copy(content.len());
        let shown = Entry::of_stamp(entry.key(), content, head.dies_at, entry.stamp());
        (entry, head, shown)
    });
    let shown = known.as_ref().map(|(_, _, shown)| shown);
    let (outcome, change) = action::apply(action, shown, cx);
    let change = match (change.in_bytes(), &known) {
        (KeyChange::None, Some((entry, head, shown))) if notes && action.footprint().uses => {
            let due = head.deadline(of_map, cx);
            let idle = head.idle(of_map);
            // Nothing is noted if the entry dies soon anyway.
            if due == entry.deadline() || entry.deadline() >= cx.after(idle) {
                KeyChange::None
            } else if IdleHead::read(entry.value()).is_some() {
                KeyChange::Deadline(due)
            } else {
                KeyChange::put(head.before(shown.value()), due)
            }
        }
        (KeyChange::Put { value, deadline }, _) => {
            // Callers write values with heads. What was made from a value has the head of that.
            let written = matches!(action, Action::Set { .. });
            let written = written.then(|| IdleHead::read(&value)).flatten();
            let had = known.as_ref().map(|(_, head, _)| *head);
            let (mut head, content) = written.unwrap_or((had.unwrap_or_default(), &value));
            head.dies_at = deadline;
            KeyChange::put(head.before(content), head.deadline(of_map, cx))
        }
        (KeyChange::Deadline(deadline), Some((_, head, shown))) => {
            let head = IdleHead {
                dies_at: deadline,
                ..*head
            };
            KeyChange::put(head.before(shown.value()), head.deadline(of_map, cx))
        }
        (change, _) => change,
    };
    (outcome, change)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::operation::{Condition, ExpireCondition, Expiry};
    use crate::value::deadline;

    const IDLE_MS: u64 = 8_000;

    struct Key {
        held: Option<Entry>,
        clock: u64,
    }

    impl Key {
        fn new() -> Self {
            Self {
                held: None,
                clock: 1_000,
            }
        }

        fn after(&mut self, ms: u64) -> &mut Self {
            self.clock += ms;
            if self.held.as_ref().is_some_and(|it| it.overdue(self.clock)) {
                self.held = None;
            }
            self
        }

        /// What it answers, and whether it wrote.
        fn run(&mut self, action: &Action) -> (Outcome, bool) {
            let cx = RunContext::at(self.clock, 1_700_000_000_000 + self.clock);
            let found = FoundKey::from(self.held.as_ref());
            let (outcome, change) = apply(action, found, &cx, (IDLE_MS, true));
            let wrote = change != KeyChange::None;
            match change {
                KeyChange::None => {}
                KeyChange::Put { value, deadline } => {
                    self.held = Some(Entry::new(b"k", &value, deadline, 0));
                }
                KeyChange::Deadline(deadline) => {
                    let held = self.held.take().expect("it is there");
                    self.held = Some(Entry::new(b"k", held.value(), deadline, 0));
                }
                KeyChange::Delete => self.held = None,
                other => panic!("{other:?}"),
            }
            (outcome, wrote)
        }

        fn set(&mut self, idle: Option<u64>, expiry: Expiry) {
            let action = Action::Set {
                value: headed(idle.map(Duration::from_millis), b"v"),
                condition: Condition::Always,
                expiry,
                get: false,
            };
            assert_eq!(self.run(&action), (Outcome::Ok, true));
        }

        fn get(&mut self) -> Option<Vec<u8>> {
            match self.run(&Action::Get).0 {
                Outcome::Bulk(value) => Some(value.to_vec()),
                Outcome::Nil => None,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn an_entry_lives_while_it_is_used_and_reads_seldom_write() {
        let mut key = Key::new();
        key.set(None, Expiry::None);
        let mut written = 0;
        for _ in 0..1_000 {
            let (found, wrote) = key.after(100).run(&Action::Get);
            assert!(matches!(found, Outcome::Bulk(_)));
            written += u32::from(wrote);
        }
        // Once in a little more than an eighth of the idle time.
        assert!((50..=100).contains(&written), "{written}");
        // Its last use was noted, or nearly an eighth of that time ago.
        assert!(key.after(IDLE_MS - 1).get().is_some());
        assert_eq!(key.after(IDLE_MS + IDLE_MS / 8).get(), None);
    }

    #[test]
    fn the_time_to_live_ends_an_entry_that_is_used() {
        let mut key = Key::new();
        key.set(None, Expiry::In(10_000));
        assert_eq!(key.run(&Action::PTtl).0, Outcome::Int(10_000));
        assert!(key.after(5_000).get().is_some() && key.after(4_999).get().is_some());
        assert_eq!(key.after(1).get(), None);
        // What keeps the deadline, and what changes it.
        key.set(None, Expiry::In(10_000));
        key.after(5_000).set(None, Expiry::Keep);
        assert_eq!(key.run(&Action::PTtl).0, Outcome::Int(5_000));
        let expire = Action::Expire {
            expiry: Expiry::In(7_000),
            condition: ExpireCondition::Always,
        };
        key.run(&expire);
        assert!(key.after(6_999).get().is_some());
        assert_eq!(key.after(1).get(), None);
        key.set(None, Expiry::In(10_000));
        key.run(&Action::Persist);
        assert!(key.after(8_000).get().is_some() && key.after(8_000).get().is_some());
    }

    #[test]
    fn an_entry_may_have_an_idle_time_of_its_own() {
        let mut key = Key::new();
        key.set(Some(800), Expiry::None);
        assert!(key.after(800).get().is_some());
        // Other writes keep it only if they say so.
        assert_eq!(key.after(900).get(), None);
        key.set(Some(80_000), Expiry::None);
        assert!(key.after(80_000).get().is_some());
        key.set(None, Expiry::None);
        assert_eq!(key.after(9_000).get(), None);
    }

    #[test]
    fn values_without_a_head_are_read_and_get_one() {
        let mut key = Key::new();
        let dies_at = deadline::new(21_000, 0);
        key.held = Some(Entry::new(b"k", b"plain", dies_at, 0));
        assert_eq!(key.get().as_deref(), Some(&b"plain"[..]));
        assert_eq!(content(key.held.as_ref().expect("kept").value()), b"plain");
        assert!(key.after(7_000).get().is_some() && key.after(7_000).get().is_some());
        assert_eq!(key.after(6_000).get(), None, "it keeps its deadline");
        for stored in [&b""[..], &[IDLE], &[IDLE; HEAD - 1]] {
            assert_eq!(content(stored), stored);
        }
    }
}
