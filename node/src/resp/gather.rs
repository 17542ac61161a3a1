//! One reply that is made of many outcomes: commands with several keys, and sweeps over all partitions.
//!
//! Everything is done in slices: keys are submitted, found keys are compared with the pattern, and replies are encoded, some
//! at a time.

use super::command::{All, Shape};
use super::encode::Encoder;
use super::glob::Matching;
use super::{reply, session};
use crate::shard::op::{Failure, Outcome, PartitionAction, RangeQuery};
use bytes::Bytes;
use doyen_placement::{KeyspaceId, PartitionId};
use std::collections::{BTreeSet, VecDeque};

/// Partitions that one sweep asks at the same time.
const IN_FLIGHT_MAX: usize = 64;
/// Keys that a sweep asks of a partition at once.
const SWEEP_COUNT: u32 = 1000;
/// How often a sweep begins again because partitions were split or merged meanwhile.
const LOST_MAX: u32 = 16;
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

/// Partitions that a sweep has to ask.
#[derive(Debug)]
pub(super) enum Wanted<'a> {
    /// All of them.
    All,
    /// Those that are led here.
    Own,
    /// The one with this slot.
    Slot(u16),
    /// Those that may have keys of this range, in its order.
    Range(&'a RangeQuery),
}

/// Outcomes of one command, as they come.
#[derive(Debug)]
pub(super) struct Gather {
    /// The keyspace that a sweep is about.
    keyspace: KeyspaceId,
    /// Whether it asks only partitions that are led here.
    own_only: bool,
    /// A sweep that does not know which partitions to ask: it begins, or one of them was split or merged.
    lost: bool,
    /// How often it was.
    lost_times: u32,
    /// The partition with which it begins, and where in it.
    begins: (u64, u64),
    answer: Answer,
    waiting: BTreeSet<u64>,
    /// Where a sweep goes on: partitions, each with its cursor.
    next: VecDeque<(PartitionId, u64)>,
    done: usize,
    failure: Option<Failure>,
    /// Parts that were not submitted yet.
    left: bool,
    /// Bytes that only this answer holds.
    held: usize,
    /// Bytes of values that came, whoever holds them.
    found: usize,
    /// Keys that were not compared with the pattern yet, and how far the first one's comparison has come.
    unmatched: VecDeque<Bytes>,
    matching: Matching,
    /// Elements that are encoded already, if any is.
    encoded: Option<usize>,
}

/// What a key costs in an answer beside its bytes.
const KEY_OVERHEAD: usize = 32;

#[derive(Debug)]
enum Answer {
    Values(Vec<Outcome>),
    Number(i64, Kind),
    Written,
    Count(i64),
    Cleared,
    CountInSlot(u16, i64),
    /// How many more are wanted, and what was found.
    KeysInSlot {
        slot: u16,
        left: u32,
        keys: Vec<Bytes>,
    },
    Keys {
        pattern: Bytes,
        keys: Vec<Bytes>,
    },
    Scan {
        left: u32,
        pattern: Option<Bytes>,
        strings: bool,
        keys: Vec<Bytes>,
    },
    /// What is still wanted, and what was found.
    Range {
        wanted: RangeQuery,
        keys: Vec<Bytes>,
    },
}

impl Gather {
    /// Of this many operations on keys.
    pub(super) fn of_parts(kind: Kind, parts: usize) -> Self {
        let answer = match kind {
            Kind::Values => Answer::Values(vec![Outcome::Nil; parts]),
            Kind::Sum | Kind::Deleted => Answer::Number(0, kind),
            Kind::Written => Answer::Written,
        };
        Self { left: true, ..Self::new(answer, KeyspaceId(0)) }
    }

    fn new(answer: Answer, keyspace: KeyspaceId) -> Self {
        Self {
            keyspace,
            own_only: false,
            lost: false,
            lost_times: 0,
            begins: (0, 0),
            answer,
            waiting: BTreeSet::new(),
            next: VecDeque::new(),
            done: 0,
            failure: None,
            left: false,
            held: 0,
            found: 0,
            unmatched: VecDeque::new(),
            matching: Matching::default(),
            encoded: None,
        }
    }

    /// Over the partitions of a keyspace, or those of them that are led here: which they are, `renew` says.
    pub(super) fn of_sweep(all: All, keyspace: KeyspaceId, own_only: bool) -> Self {
        let (answer, from) = match all {
            All::Count => (Answer::Count(0), 0),
            All::Clear => (Answer::Cleared, 0),
            All::CountInSlot(slot) => (Answer::CountInSlot(slot, 0), 0),
            All::KeysInSlot { slot, count } => (Answer::KeysInSlot { slot, left: count, keys: Vec::new() }, 0),
            All::Keys { pattern } => (Answer::Keys { pattern: Bytes::copy_from_slice(&pattern), keys: Vec::new() }, 0),
            All::Scan { cursor, count, pattern, strings } => {
                let pattern = pattern.map(|p| Bytes::copy_from_slice(&p));
                (Answer::Scan { left: count, pattern, strings, keys: Vec::new() }, cursor)
            }
            All::Range(wanted) => (Answer::Range { wanted, keys: Vec::new() }, 0),
        };
        let begins = (from >> CURSOR_BITS, from & ((1 << CURSOR_BITS) - 1));
        Self { own_only, begins, lost: true, ..Self::new(answer, keyspace) }
    }

    /// Which partitions it has to ask, if it does not know.
    pub(super) fn wants(&self) -> Option<Wanted<'_>> {
        if !self.lost || !self.waiting.is_empty() || self.failure.is_some() {
            return None;
        }
        Some(match &self.answer {
            Answer::CountInSlot(slot, _) | Answer::KeysInSlot { slot, .. } => Wanted::Slot(*slot),
            Answer::Range { wanted, .. } => Wanted::Range(wanted),
            _ if self.own_only => Wanted::Own,
            _ => Wanted::All,
        })
    }

    /// These are the partitions to ask. What was counted before is counted again; a scan goes on in those that it has not asked.
    pub(super) fn renew(&mut self, partitions: Vec<PartitionId>) {
        self.lost = false;
        let (first, within) = self.begins;
        let all = partitions.into_iter().map(|p| (p, if u64::from(p.0) == first { within } else { 0 }));
        self.next = match &mut self.answer {
            // They stand in order, whatever their numbers are.
            Answer::Range { .. } => all.map(|(p, _)| (p, 0)).collect(),
            Answer::Scan { .. } => all.filter(|(p, _)| u64::from(p.0) >= first).collect(),
            _ => all.collect(),
        };
        match &mut self.answer {
            Answer::Count(sum) | Answer::CountInSlot(_, sum) => *sum = 0,
            Answer::KeysInSlot { left, keys, .. } => {
                // Those that were found are looked for again.
                *left = left.saturating_add(u32::try_from(keys.len()).unwrap_or(u32::MAX));
                self.drop_found();
            }
            Answer::Keys { .. } => self.drop_found(),
            _ => {}
        }
    }

    /// A partition that was asked is no more: all that is under way is waited for, then it is found out which to ask.
    fn lose(&mut self, partition: u32) {
        self.lost = true;
        self.lost_times += 1;
        self.next.clear();
        if matches!(self.answer, Answer::Scan { .. }) {
            // What came of it has a higher number.
            self.begins = (u64::from(partition) + 1, 0);
        }
        if self.lost_times > LOST_MAX {
            self.fail(if matches!(self.answer, Answer::Cleared) { Failure::Unknown } else { Failure::Stale });
        }
    }

    /// Of a sweep: the keyspace.
    pub(super) const fn keyspace(&self) -> KeyspaceId {
        self.keyspace
    }

    /// All parts are submitted.
    pub(super) fn submitted(&mut self) {
        self.left = false;
    }

    /// Whether it has failed: what is not submitted need not be.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Nothing more is asked: it ends once what was asked is answered.
    pub(super) fn fail(&mut self, why: Failure) {
        self.failure = Some(why);
        self.drop_found();
    }

    /// How many outcomes it waits for.
    pub(super) fn waits(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes that only this answer holds.
    pub(super) fn held(&self) -> usize {
        self.held
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
        self.waiting.is_empty() && !self.left && !self.is_matching() && !self.has_next_step()
    }

    /// Whether keys wait to be compared with the pattern.
    pub(super) fn is_matching(&self) -> bool {
        !self.unmatched.is_empty()
    }

    pub(super) fn has_next_step(&self) -> bool {
        if self.lost && self.failure.is_none() {
            return self.waiting.is_empty();
        }
        if self.next.is_empty() || self.failure.is_some() || self.is_matching() {
            return false;
        }
        match &self.answer {
            // One partition after the other: the cursor names one place.
            Answer::Scan { left, .. } => *left > 0 && self.waiting.is_empty(),
            Answer::Range { wanted, .. } => wanted.count > 0 && self.waiting.is_empty(),
            Answer::KeysInSlot { left, .. } => *left > 0 && self.waiting.is_empty(),
            _ => self.waiting.len() < IN_FLIGHT_MAX,
        }
    }

    /// The next partition to ask.
    pub(super) fn next_step(&mut self) -> Option<(PartitionId, PartitionAction)> {
        if self.lost || !self.has_next_step() {
            return None;
        }
        let (partition, cursor) = self.next.pop_front()?;
        let action = match &self.answer {
            Answer::Count(_) => PartitionAction::Count,
            Answer::Cleared => PartitionAction::Clear,
            Answer::Scan { left, .. } => PartitionAction::Scan { cursor, count: (*left).min(SWEEP_COUNT) },
            Answer::Range { wanted, .. } => PartitionAction::Range(RangeQuery { count: wanted.count.min(SWEEP_COUNT), ..wanted.clone() }),
            _ => PartitionAction::Scan { cursor, count: SWEEP_COUNT },
        };
        Some((partition, action))
    }

    /// Takes the outcome of a part: a key's place, or a partition's number. `copied` are the bytes that nobody else holds.
    pub(super) fn take(&mut self, part: u32, token: u64, outcome: Outcome, copied: usize) {
        if !self.waiting.remove(&token) {
            return;
        }
        if self.failure.is_some() && !matches!(outcome, Outcome::Failed(_)) {
            self.done += 1;
            return;
        }
        if self.lost && !matches!(outcome, Outcome::Failed(_)) {
            // A scan and a range wait for one answer at a time, and everything else begins again.
            return;
        }
        let sweeps = self.is_sweep();
        match (&mut self.answer, outcome) {
            (_, Outcome::Failed(Failure::Stale)) if sweeps => return self.lose(part),
            (_, Outcome::Failed(why)) => {
                // What may have happened outweighs what did not.
                if self.failure != Some(Failure::Unknown) {
                    self.failure = Some(why);
                }
                return self.drop_found();
            }
            (Answer::Values(values), outcome) => {
                self.held += copied;
                self.found += outcome.bytes();
                if self.found > session::REPLY_BYTES_MAX {
                    return self.fail(Failure::TooLarge);
                }
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
            (Answer::KeysInSlot { slot, left, keys }, Outcome::Keys { next, keys: found }) => {
                let most = usize::try_from(*left).unwrap_or(usize::MAX);
                let before = keys.len();
                keys.extend(found.into_iter().filter(|k| doyen_placement::hash::slot(k) == *slot).take(most));
                *left = left.saturating_sub(u32::try_from(keys.len() - before).unwrap_or(u32::MAX));
                self.held += keys[before..].iter().map(|k| k.len() + KEY_OVERHEAD).sum::<usize>();
                go_on(&mut self.next, part, next);
                if self.held > session::REPLY_BYTES_MAX {
                    return self.fail(Failure::TooLarge);
                }
            }
            (Answer::Keys { .. }, Outcome::Keys { next, keys: found }) => {
                self.held += found.iter().map(|k| k.len() + KEY_OVERHEAD).sum::<usize>();
                self.unmatched.extend(found);
                go_on(&mut self.next, part, next);
            }
            (Answer::Scan { left, .. }, Outcome::Keys { next, keys: found }) => {
                *left = left.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
                self.held += found.iter().map(|k| k.len() + KEY_OVERHEAD).sum::<usize>();
                self.unmatched.extend(found);
                go_on(&mut self.next, part, next);
            }
            (Answer::Range { wanted, keys }, Outcome::Keys { next, keys: found }) => {
                let each = if wanted.values { 2 } else { 1 };
                wanted.count = wanted.count.saturating_sub(u32::try_from(found.len() / each).unwrap_or(u32::MAX));
                if let Some(last) = found.chunks_exact(each).last().map(|entry| &entry[0]) {
                    if wanted.reverse {
                        wanted.to = last.clone();
                    } else {
                        // The least key that is greater.
                        wanted.from = [&**last, &[0]].concat().into();
                    }
                    go_on(&mut self.next, part, next);
                }
                self.held += found.iter().map(|k| k.len() + KEY_OVERHEAD).sum::<usize>();
                keys.extend(found);
                if self.held > session::REPLY_BYTES_MAX {
                    return self.fail(Failure::TooLarge);
                }
            }
            _ => {}
        }
        self.done += 1;
    }

    /// Nobody will see what was found.
    fn drop_found(&mut self) {
        self.unmatched.clear();
        match &mut self.answer {
            Answer::Values(found) => found.clear(),
            Answer::Keys { keys, .. } | Answer::Scan { keys, .. } | Answer::Range { keys, .. } | Answer::KeysInSlot { keys, .. } => {
                keys.clear();
            }
            Answer::Number(..) | Answer::Written | Answer::Count(_) | Answer::Cleared | Answer::CountInSlot(..) => {}
        }
        self.held = 0;
    }

    /// Compares keys with the pattern, as far as this work goes; takes what it used.
    pub(super) fn compare(&mut self, work: &mut usize) {
        let (pattern, keys) = match &mut self.answer {
            Answer::Keys { pattern, keys } => (Some(&*pattern), keys),
            Answer::Scan { strings: false, .. } => {
                self.held -= self.unmatched.drain(..).map(|k| k.len() + KEY_OVERHEAD).sum::<usize>();
                return;
            }
            Answer::Scan { pattern, keys, .. } => (pattern.as_ref(), keys),
            _ => return,
        };
        while let Some(key) = self.unmatched.front() {
            let found = pattern.map_or(Some(true), |p| self.matching.run(p, key, work));
            let Some(matches) = found else { return };
            self.matching = Matching::default();
            let Some(key) = self.unmatched.pop_front() else { return };
            if matches {
                keys.push(key);
            } else {
                self.held -= key.len() + KEY_OVERHEAD;
            }
        }
        if self.held > session::REPLY_BYTES_MAX {
            self.fail(Failure::TooLarge);
        }
    }

    /// Appends the reply, or the next part of it; true when that was all. What is encoded is given up.
    pub(super) fn encode(&mut self, encoder: &mut Encoder<'_>) -> bool {
        if let Some(why) = self.failure {
            self.encode_failure(encoder, why);
            return true;
        }
        let begins = self.encoded.is_none();
        let mut at = self.encoded.unwrap_or(0);
        let is_scan = matches!(self.answer, Answer::Scan { .. });
        let all = match &mut self.answer {
            Answer::Values(values) => {
                if begins {
                    encoder.array(values.len());
                }
                for value in values.iter_mut().skip(at) {
                    if encoder.len() >= session::OUTPUT_BYTES_SOFT {
                        break;
                    }
                    reply::outcome(encoder, Shape::Plain, &std::mem::replace(value, Outcome::Nil));
                    at += 1;
                }
                values.len()
            }
            Answer::Number(sum, _) | Answer::Count(sum) | Answer::CountInSlot(_, sum) => {
                encoder.integer(*sum);
                0
            }
            Answer::Written | Answer::Cleared => {
                encoder.simple("OK");
                0
            }
            Answer::Keys { keys, .. } | Answer::Scan { keys, .. } | Answer::Range { keys, .. } | Answer::KeysInSlot { keys, .. } => {
                if begins {
                    if is_scan {
                        let cursor = self.next.front().map_or(0, |(p, within)| u64::from(p.0) << CURSOR_BITS | within);
                        encoder.array(2);
                        encoder.bulk(itoa::Buffer::new().format(cursor).as_bytes());
                    }
                    encoder.array(keys.len());
                }
                for key in keys.iter_mut().skip(at) {
                    if encoder.len() >= session::OUTPUT_BYTES_SOFT {
                        break;
                    }
                    encoder.bulk(&std::mem::take(key));
                    at += 1;
                }
                keys.len()
            }
        };
        self.encoded = Some(at);
        at >= all
    }

    /// `TRYAGAIN` and the like are said only where nothing happened to any key.
    fn encode_failure(&self, encoder: &mut Encoder<'_>, why: Failure) {
        let writes = matches!(self.answer, Answer::Written | Answer::Cleared | Answer::Number(_, Kind::Deleted));
        let text = reply::failure(why, Shape::Plain);
        if matches!(self.answer, Answer::Keys { .. } | Answer::Range { .. } | Answer::KeysInSlot { .. } | Answer::Values(_))
            && why == Failure::TooLarge
        {
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
