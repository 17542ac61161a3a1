//! One reply that is made of many outcomes: commands with several keys, and sweeps over all partitions.

use super::command::{All, Shape};
use super::encode::Encoder;
use super::{glob, reply, session};
use crate::shard::op::{Failure, Outcome, PartitionAction};
use bytes::Bytes;
use doyen_placement::PartitionId;
use std::collections::{BTreeSet, VecDeque};

/// Partitions that one sweep asks at the same time.
const IN_FLIGHT_MAX: usize = 64;
/// Keys that a sweep asks of a partition at once.
const SWEEP_COUNT: u32 = 1000;
/// A cursor of clients has the partition above, and the partition's own cursor in this many bits.
const CURSOR_BITS: u32 = 48;

/// What the outcomes come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An array of values.
    Values,
    /// How many.
    Sum,
    /// How many were deleted.
    Deleted,
    /// `OK`.
    Written,
}

/// Outcomes of one command, as they come.
#[derive(Debug)]
pub(super) struct Gather {
    answer: Answer,
    waiting: BTreeSet<u64>,
    /// Where a sweep goes on: partitions, each with its cursor.
    next: VecDeque<(PartitionId, u64)>,
    done: usize,
    failure: Option<Failure>,
}

#[derive(Debug)]
enum Answer {
    Values(Vec<Outcome>),
    Number(i64, Kind),
    Written,
    Count(i64),
    Cleared,
    CountInSlot(u16, i64),
    Keys { pattern: Bytes, keys: Vec<Bytes>, bytes: usize },
    Scan { left: u32, pattern: Option<Bytes>, strings: bool, keys: Vec<Bytes> },
}

impl Gather {
    /// Of this many operations on keys.
    pub(super) fn of_parts(kind: Kind, parts: usize) -> Self {
        let answer = match kind {
            Kind::Values => Answer::Values(vec![Outcome::Nil; parts]),
            Kind::Sum | Kind::Deleted => Answer::Number(0, kind),
            Kind::Written => Answer::Written,
        };
        Self { answer, waiting: BTreeSet::new(), next: VecDeque::new(), done: 0, failure: None }
    }

    /// Over these partitions.
    pub(super) fn of_sweep(all: All, partitions: Vec<PartitionId>) -> Self {
        let (answer, from) = match all {
            All::Count => (Answer::Count(0), 0),
            All::Clear => (Answer::Cleared, 0),
            All::CountInSlot(slot) => (Answer::CountInSlot(slot, 0), 0),
            All::Keys { pattern } => (Answer::Keys { pattern: Bytes::copy_from_slice(&pattern), keys: Vec::new(), bytes: 0 }, 0),
            All::Scan { cursor, count, pattern, strings } => {
                let pattern = pattern.map(|p| Bytes::copy_from_slice(&p));
                (Answer::Scan { left: count, pattern, strings, keys: Vec::new() }, cursor)
            }
        };
        let (first, within) = (from >> CURSOR_BITS, from & ((1 << CURSOR_BITS) - 1));
        let next = partitions.into_iter().filter(|p| u64::from(p.0) >= first);
        let next = next.map(|p| (p, if u64::from(p.0) == first { within } else { 0 })).collect();
        Self { answer, waiting: BTreeSet::new(), next, done: 0, failure: None }
    }

    pub(super) fn waits_for(&mut self, token: u64) {
        self.waiting.insert(token);
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = u64> + '_ {
        self.waiting.iter().copied()
    }

    pub(super) fn is_sweep(&self) -> bool {
        !matches!(self.answer, Answer::Values(_) | Answer::Number(..) | Answer::Written)
    }

    /// Whether everything is there.
    pub(super) fn is_done(&self) -> bool {
        self.waiting.is_empty() && !self.has_next_step()
    }

    pub(super) fn has_next_step(&self) -> bool {
        if self.next.is_empty() || self.failure.is_some() {
            return false;
        }
        match &self.answer {
            // One partition after the other: the cursor names one place.
            Answer::Scan { left, .. } => *left > 0 && self.waiting.is_empty(),
            _ => self.waiting.len() < IN_FLIGHT_MAX,
        }
    }

    /// The next partition to ask.
    pub(super) fn next_step(&mut self) -> Option<(PartitionId, PartitionAction)> {
        if !self.has_next_step() {
            return None;
        }
        let (partition, cursor) = self.next.pop_front()?;
        let action = match &self.answer {
            Answer::Count(_) => PartitionAction::Count,
            Answer::Cleared => PartitionAction::Clear,
            Answer::Scan { left, .. } => PartitionAction::Scan { cursor, count: (*left).min(SWEEP_COUNT) },
            _ => PartitionAction::Scan { cursor, count: SWEEP_COUNT },
        };
        Some((partition, action))
    }

    /// Takes the outcome of a part: a key's place, or a partition's number.
    pub(super) fn take(&mut self, part: u32, token: u64, outcome: Outcome) {
        if !self.waiting.remove(&token) {
            return;
        }
        match (&mut self.answer, outcome) {
            (_, Outcome::Failed(why)) => {
                // What may have happened outweighs what did not.
                if self.failure != Some(Failure::Unknown) {
                    self.failure = Some(why);
                }
                return;
            }
            (Answer::Values(values), outcome) => {
                if let Some(value) = values.get_mut(part as usize) {
                    *value = outcome;
                }
            }
            (Answer::Number(sum, _) | Answer::Count(sum), Outcome::Int(n)) => *sum = sum.saturating_add(n),
            (Answer::CountInSlot(slot, sum), Outcome::Keys { next, keys }) => {
                let found = keys.iter().filter(|k| doyen_placement::hash::slot(k) == *slot).count();
                *sum = sum.saturating_add(i64::try_from(found).unwrap_or(i64::MAX));
                go_on(&mut self.next, part, next);
            }
            (Answer::Keys { pattern, keys, bytes }, Outcome::Keys { next, keys: found }) => {
                for key in found.into_iter().filter(|k| glob::matches(pattern, k)) {
                    *bytes += key.len() + 16;
                    keys.push(key);
                }
                if *bytes > session::REPLY_BYTES_MAX {
                    self.failure = Some(Failure::TooLarge);
                }
                go_on(&mut self.next, part, next);
            }
            (Answer::Scan { left, pattern, strings, keys }, Outcome::Keys { next, keys: found }) => {
                *left = left.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
                let wanted = |k: &Bytes| *strings && pattern.as_ref().is_none_or(|p| glob::matches(p, k));
                keys.extend(found.into_iter().filter(wanted));
                go_on(&mut self.next, part, next);
            }
            _ => {}
        }
        self.done += 1;
    }

    /// Appends the reply.
    pub(super) fn encode(&self, encoder: &mut Encoder<'_>) {
        if let Some(why) = self.failure {
            return self.encode_failure(encoder, why);
        }
        match &self.answer {
            Answer::Values(values) => {
                let bytes: usize = values.iter().map(|v| if let Outcome::Bulk(b) = v { b.len() } else { 0 }).sum();
                if bytes > session::REPLY_BYTES_MAX {
                    return encoder.error("ERR the reply would be too large");
                }
                encoder.array(values.len());
                values.iter().for_each(|value| reply::outcome(encoder, Shape::Plain, value));
            }
            Answer::Number(sum, _) | Answer::Count(sum) | Answer::CountInSlot(_, sum) => encoder.integer(*sum),
            Answer::Written | Answer::Cleared => encoder.simple("OK"),
            Answer::Keys { keys, .. } => {
                encoder.array(keys.len());
                keys.iter().for_each(|key| encoder.bulk(key));
            }
            Answer::Scan { keys, .. } => {
                let cursor = self.next.front().map_or(0, |(p, within)| u64::from(p.0) << CURSOR_BITS | within);
                encoder.array(2);
                encoder.bulk(itoa::Buffer::new().format(cursor).as_bytes());
                encoder.array(keys.len());
                keys.iter().for_each(|key| encoder.bulk(key));
            }
        }
    }

    /// `TRYAGAIN` and the like are said only where nothing happened to any key.
    fn encode_failure(&self, encoder: &mut Encoder<'_>, why: Failure) {
        let writes = matches!(self.answer, Answer::Written | Answer::Cleared | Answer::Number(_, Kind::Deleted));
        let text = reply::failure(why, Shape::Plain);
        if matches!(self.answer, Answer::Keys { .. }) && why == Failure::TooLarge {
            encoder.error("ERR the reply would be too large");
        } else if writes && self.done > 0 && why != Failure::Unknown {
            encoder.error(&format!("UNKNOWN some keys were written and others were not: {text}"));
        } else {
            encoder.error(text);
        }
    }
}

fn go_on(next: &mut VecDeque<(PartitionId, u64)>, part: u32, cursor: u64) {
    if cursor != 0 {
        next.push_front((PartitionId(part), cursor));
    }
}
