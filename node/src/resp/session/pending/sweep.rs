//! Sweeps: commands that ask all partitions of a keyspace, or those of a range (`SCAN`, `KEYS`,
//! `DBSIZE`, `FLUSHALL` and the like).
//!
//! All work is done in slices: partitions are asked, found keys are compared with the pattern, and
//! replies are encoded, a limited number at a time.

use super::{
    Arrived, ArrivedOutcome, Outstanding, PendingReply, ReplyAsker, SessionEffect, Stepped,
    encode_failure,
};
use crate::resp::RespContext;
use crate::resp::cluster;
use crate::resp::command::All;
use crate::resp::encode::Encoder;
use crate::resp::session::{OUTPUT_BYTES_SOFT, REPLY_BYTES_MAX};
use bytes::Bytes;
use doyen_engine::glob::Matching;
use doyen_engine::op::{Failure, Kind, Outcome, PartitionAction, PartitionOperation, RangeQuery};
use doyen_placement::{KeyspaceId, MapId, Partition, PartitionId};
use std::collections::VecDeque;
use std::sync::Arc;

/// Work of comparing keys with a pattern at once, as they arrive. The rest waits for its turn.
const COMPARE_AT_ONCE: usize = 1 << 16;
/// Partitions that one sweep asks at the same time.
const IN_FLIGHT_MAX: usize = 64;
/// Keys that a sweep asks of a partition at once.
const SWEEP_COUNT: u32 = 1000;
/// How often a sweep begins again because partitions were split or merged meanwhile.
const LOST_MAX: u32 = 16;
/// Partitions that a scan lists in one go. Most scans end before they have asked all partitions.
const LISTED_MAX: usize = 1024;
/// A client's cursor has the partition above, and the partition's own cursor in this many bits. So
/// it is below 2^53 for the first two million partitions of a keyspace. JavaScript has no larger
/// whole numbers, and some of its clients make a number of a cursor.
const CURSOR_BITS: u32 = 32;

/// Partitions that a sweep has to ask.
#[derive(Debug)]
enum WantedPartitions<'a> {
    /// At most `most`, from the number `first` on. `own`: only those that are led here.
    From { first: u32, most: usize, own: bool },
    /// The one with this slot.
    Slot(u16),
    /// Those that may have keys of this range, in its order.
    Range(&'a RangeQuery),
}

/// The reply of a sweep.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// The keyspace of a sweep.
    keyspace: KeyspaceId,
    map: MapId,
    /// The maps that follow once the present one is done.
    maps_left: VecDeque<MapId>,
    /// Whether it asks only partitions that are led here.
    own_only: bool,
    /// The sweep must find out which partitions to ask: it begins, or one of them was split or
    /// merged.
    lost: bool,
    /// How often it had to.
    lost_times: u32,
    /// The partition with which it begins, and the cursor in it.
    begins: (u64, u64),
    answer: SweepAnswer,
    asked: Outstanding,
    /// Where a sweep continues: partitions, each with its cursor.
    next: VecDeque<(PartitionId, u64)>,
    /// From this number on, partitions are not listed in `next` yet.
    further: Option<u32>,
    /// About how many keys the first of `next` has, if this node knows.
    expected: u32,
    /// The generation under which partitions were looked at instead of being asked. It is not
    /// judged yet.
    looked: Option<u64>,
    done: usize,
    failure: Option<Failure>,
    /// Bytes that only this answer holds.
    held: usize,
    /// Keys that were not compared with the pattern yet, and the progress of the first one's
    /// comparison.
    unmatched: VecDeque<Bytes>,
    matching: Matching,
    /// The number of elements that are encoded already, once encoding has begun.
    encoded: Option<usize>,
}

/// What a key costs in an answer besides its bytes.
const KEY_OVERHEAD: usize = 32;

#[derive(Debug)]
enum SweepAnswer {
    Count(i64),
    Cleared,
    CountInSlot(u16, i64),
    /// How many more keys are wanted, and which were found.
    KeysInSlot {
        slot: u16,
        left: u32,
        keys: Vec<Bytes>,
    },
    Keys {
        pattern: Bytes,
        keys: Vec<Bytes>,
    },
    Scan(Box<Scan>),
    /// What is still wanted, and which keys were found.
    Range {
        wanted: RangeQuery,
        keys: Vec<Bytes>,
    },
}

/// A part of a keyspace, in the order of partitions, and of their cursors within each.
#[derive(Debug)]
struct Scan {
    /// How many keys were asked for, and how many of them are missing.
    count: u32,
    left: u32,
    pattern: Option<Bytes>,
    /// What the keys hold; `Some(None)`: what no key holds.
    kind: Option<Option<Kind>>,
    keys: Vec<Bytes>,
    /// Whether one key is the answer.
    one: bool,
    /// The partition and the cursor at which it begins.
    begins: (u64, u64),
    /// Answers that the scan waits for at once, at most. The window grows with each answer that was
    /// not enough: if partitions have few keys, many are asked together; if they have many, one.
    window: usize,
    /// Partitions that were asked and whose keys are not taken yet, in order.
    asked: VecDeque<AskedPart>,
}

/// A partition that a scan asks.
#[derive(Debug)]
struct AskedPart {
    partition: PartitionId,
    /// The cursor in it.
    cursor: u64,
    /// About how many keys it will answer, if this node knows.
    expected: u32,
    /// The cursor at which to continue in it, and its keys.
    answer: Option<Result<(u64, Vec<Bytes>), Failure>>,
}

impl AskedPart {
    /// Bytes of its keys.
    fn held(&self) -> usize {
        self.answer
            .iter()
            .flatten()
            .map(|(_, keys)| weight(keys))
            .sum()
    }
}

impl Scan {
    /// Asks a partition before the ones after it.
    fn ask(&mut self, partition: PartitionId, cursor: u64, expected: u32) {
        let at = self
            .asked
            .partition_point(|part| part.partition < partition);
        self.asked.insert(
            at,
            AskedPart {
                partition,
                cursor,
                expected,
                answer: None,
            },
        );
    }

    /// Whether one more partition is to be asked.
    fn wants_more(&self, waiting: usize) -> bool {
        let coming = |part: &AskedPart| match &part.answer {
            None => part.expected,
            Some(answer) => answer
                .as_ref()
                .map_or(0, |(_, keys)| u32::try_from(keys.len()).unwrap_or(u32::MAX)),
        };
        let come = || self.asked.iter().map(coming).fold(0, u32::saturating_add);
        self.left > 0 && waiting < self.window && come() < self.left
    }

    /// Takes a partition's answer. False: the answer is not wanted any more.
    fn answered(&mut self, partition: u32, answer: Result<(u64, Vec<Bytes>), Failure>) -> bool {
        let part = self
            .asked
            .iter_mut()
            .find(|part| part.partition.0 == partition);
        part.is_some_and(|part| part.answer.replace(answer).is_none())
    }
}

impl Sweep {
    fn empty(answer: SweepAnswer, keyspace: KeyspaceId) -> Self {
        Self {
            keyspace,
            map: MapId(0),
            maps_left: VecDeque::new(),
            own_only: false,
            lost: false,
            lost_times: 0,
            begins: (0, 0),
            answer,
            asked: Outstanding::default(),
            next: VecDeque::new(),
            further: None,
            expected: 0,
            looked: None,
            done: 0,
            failure: None,
            held: 0,
            unmatched: VecDeque::new(),
            matching: Matching::default(),
            encoded: None,
        }
    }

    /// A sweep over the partitions of a keyspace, or over those of them that are led here; `renew`
    /// says which they are. It is about one map, or one map after the other.
    pub(crate) fn new(all: All, keyspace: KeyspaceId, maps: &[MapId], own_only: bool) -> Self {
        let mut maps_left: VecDeque<MapId> = maps.iter().copied().collect();
        let map = maps_left.pop_front().unwrap_or(MapId(0));
        let (answer, from) = match all {
            All::Count => (SweepAnswer::Count(0), 0),
            All::Clear { .. } => (SweepAnswer::Cleared, 0),
            All::CountInSlot(slot) => (SweepAnswer::CountInSlot(slot, 0), 0),
            All::KeysInSlot { slot, count } => (
                SweepAnswer::KeysInSlot {
                    slot,
                    left: count,
                    keys: Vec::new(),
                },
                0,
            ),
            All::Keys { pattern } => (
                SweepAnswer::Keys {
                    pattern: Bytes::copy_from_slice(&pattern),
                    keys: Vec::new(),
                },
                0,
            ),
            All::Scan {
                cursor,
                count,
                pattern,
                kind,
            } => {
                let pattern = pattern.map(|p| Bytes::copy_from_slice(&p));
                let (keys, asked, begins) = (Vec::new(), VecDeque::new(), parts(cursor));
                let scan = Scan {
                    count,
                    left: count,
                    pattern,
                    kind,
                    keys,
                    one: false,
                    begins,
                    window: 1,
                    asked,
                };
                (SweepAnswer::Scan(Box::new(scan)), cursor)
            }
            // See `at_random`, too.
            All::Random => {
                let scan = Scan {
                    count: 1,
                    left: 1,
                    pattern: None,
                    kind: None,
                    keys: Vec::new(),
                    one: true,
                    begins: (0, 0),
                    window: 1,
                    asked: VecDeque::new(),
                };
                (SweepAnswer::Scan(Box::new(scan)), 0)
            }
            All::Range(wanted) => (
                SweepAnswer::Range {
                    wanted,
                    keys: Vec::new(),
                },
                0,
            ),
        };
        Self {
            map,
            maps_left,
            own_only,
            begins: parts(from),
            lost: true,
            ..Self::empty(answer, keyspace)
        }
    }

    /// Begins in this partition, at a place of these bits, and once more at the beginning if there
    /// is no key from there on.
    pub(crate) fn at_random(mut self, partition: PartitionId, place: u32) -> Self {
        self.begins = (u64::from(partition.0), u64::from(place));
        self.maps_left.push_back(self.map);
        if let SweepAnswer::Scan(scan) = &mut self.answer {
            scan.begins = self.begins;
        }
        self
    }

    /// Which partitions it has to find out, if it does not know which to ask.
    fn wants(&mut self) -> Option<WantedPartitions<'_>> {
        if self.begins_next_map() {
            self.map = self.maps_left.pop_front()?;
            self.lost = true;
            self.begins = (0, 0);
            if let SweepAnswer::Scan(scan) = &mut self.answer {
                scan.begins = (0, 0);
            }
        }
        let lost = self.lost && self.asked.waits() == 0;
        if !lost && !self.lists_further() || self.failure.is_some() {
            return None;
        }
        let first = if lost {
            u32::try_from(self.begins.0).ok()
        } else {
            self.further
        };
        Some(match &self.answer {
            SweepAnswer::CountInSlot(slot, _) | SweepAnswer::KeysInSlot { slot, .. } => {
                WantedPartitions::Slot(*slot)
            }
            SweepAnswer::Range { wanted, .. } => WantedPartitions::Range(wanted),
            // No partition has this cursor, and none has a later one.
            SweepAnswer::Scan(_) => WantedPartitions::From {
                first: first.unwrap_or(u32::MAX),
                most: LISTED_MAX,
                own: self.own_only,
            },
            _ => WantedPartitions::From {
                first: 0,
                most: usize::MAX,
                own: self.own_only,
            },
        })
    }

    /// Whether all of one map is done and another map follows.
    fn begins_next_map(&self) -> bool {
        let over = self.next.is_empty() && self.asked.waits() == 0 && !self.lost;
        let satisfied = matches!(&self.answer, SweepAnswer::Scan(scan) if scan.left == 0);
        let over = over && !satisfied && !self.lists_further();
        over && !self.maps_left.is_empty() && self.failure.is_none()
    }

    /// Whether all listed partitions are asked and a scan wants more.
    fn lists_further(&self) -> bool {
        let SweepAnswer::Scan(scan) = &self.answer else {
            return false;
        };
        !self.lost
            && self.next.is_empty()
            && self.further.is_some()
            && scan.wants_more(self.asked.waits())
    }

    /// These are the partitions to ask, and from the number `further` on there are more. A count
    /// begins again; a scan continues with the partitions that it has not asked.
    fn renew(&mut self, (partitions, further): (Vec<PartitionId>, Option<u32>)) {
        let lost = std::mem::take(&mut self.lost);
        let (first, within) = self.begins;
        let within = |p: PartitionId| {
            if lost && u64::from(p.0) == first {
                within
            } else {
                0
            }
        };
        self.next = match &mut self.answer {
            SweepAnswer::Scan(_) => partitions.into_iter().map(|p| (p, within(p))).collect(),
            _ => partitions.into_iter().map(|p| (p, 0)).collect(),
        };
        self.further = further;
        match &mut self.answer {
            SweepAnswer::Count(sum) | SweepAnswer::CountInSlot(_, sum) => *sum = 0,
            SweepAnswer::KeysInSlot { left, keys, .. } => {
                // The keys that were found are looked for again.
                *left = left.saturating_add(u32::try_from(keys.len()).unwrap_or(u32::MAX));
                self.drop_found();
            }
            SweepAnswer::Keys { .. } => self.drop_found(),
            _ => {}
        }
    }

    /// A partition that was asked does not exist any more. The sweep waits for everything under
    /// way, then finds out which partitions to ask.
    fn lose(&mut self, partition: u32) {
        if let SweepAnswer::Scan(scan) = &mut self.answer {
            let at = scan
                .asked
                .partition_point(|part| part.partition.0 < partition);
            if scan
                .asked
                .get(at)
                .is_none_or(|part| part.partition.0 != partition)
            {
                // An earlier partition is gone, too.
                return;
            }
            scan.asked.truncate(at);
            // The partitions that came of it have higher numbers.
            self.begins = (u64::from(partition) + 1, 0);
        }
        self.find_out_again();
    }

    /// The keys that were looked at may not be answered: everything begins again.
    fn begin_again(&mut self) {
        if let SweepAnswer::Scan(scan) = &mut self.answer {
            scan.left = scan.count;
            scan.asked.clear();
            self.begins = scan.begins;
        }
        self.drop_found();
        self.find_out_again();
    }

    fn find_out_again(&mut self) {
        self.lost = true;
        self.lost_times += 1;
        self.looked = None;
        self.next.clear();
        self.further = None;
        if self.lost_times > LOST_MAX {
            self.fail(if matches!(self.answer, SweepAnswer::Cleared) {
                Failure::Unknown
            } else {
                Failure::Stale
            });
        }
    }

    /// Skips partitions that need not be asked, because this node knows how many keys they have:
    /// empty ones, and all of them if keys are only counted. The last one is asked all the same.
    /// Its answer also judges those that were looked at: see `take`.
    fn look(&mut self, generation: u64, keys_of: impl Fn(PartitionId) -> Option<usize>) {
        let counts = matches!(self.answer, SweepAnswer::Count(_));
        if !counts
            && !matches!(
                self.answer,
                SweepAnswer::Keys { .. } | SweepAnswer::Scan(_) | SweepAnswer::Cleared
            )
        {
            return;
        }
        while self.next.len() > 1
            && self.has_next_step()
            && let Some((partition, 0)) = self.next.front().copied()
            && let Some(keys) = keys_of(partition)
        {
            match &mut self.answer {
                SweepAnswer::Count(sum) => {
                    *sum = sum.saturating_add(i64::try_from(keys).unwrap_or(i64::MAX))
                }
                _ if keys > 0 => {
                    self.expected = u32::try_from(keys).unwrap_or(u32::MAX);
                    return;
                }
                _ => {}
            }
            self.looked = Some(generation);
            self.next.pop_front();
        }
    }

    /// The keyspace of a sweep, and the map whose turn it is.
    const fn about(&self) -> (KeyspaceId, MapId) {
        (self.keyspace, self.map)
    }

    /// Asks for nothing more. It ends once everything under way is answered.
    fn fail(&mut self, why: Failure) {
        self.failure = Some(why);
        self.drop_found();
    }

    /// Whether keys wait to be compared with the pattern.
    fn is_matching(&self) -> bool {
        !self.unmatched.is_empty()
    }

    fn has_next_step(&self) -> bool {
        if self.lost && self.failure.is_none() {
            return self.asked.waits() == 0;
        }
        if self.begins_next_map() || self.lists_further() {
            return true;
        }
        if self.next.is_empty() || self.failure.is_some() || self.is_matching() {
            return false;
        }
        match &self.answer {
            SweepAnswer::Scan(scan) => scan.wants_more(self.asked.waits()),
            SweepAnswer::Range { wanted, .. } => wanted.count > 0 && self.asked.waits() == 0,
            SweepAnswer::KeysInSlot { left, .. } => *left > 0 && self.asked.waits() == 0,
            _ => self.asked.waits() < IN_FLIGHT_MAX,
        }
    }

    /// The next partition to ask.
    fn next_step(&mut self) -> Option<(PartitionId, PartitionAction)> {
        if self.lost || !self.has_next_step() {
            return None;
        }
        let (partition, cursor) = self.next.pop_front()?;
        let expected = std::mem::take(&mut self.expected);
        let action = match &mut self.answer {
            SweepAnswer::Count(_) => PartitionAction::Count,
            SweepAnswer::Cleared => PartitionAction::Clear,
            SweepAnswer::Scan(scan) => {
                let count = scan.left.min(SWEEP_COUNT);
                scan.ask(partition, cursor, expected.min(count));
                PartitionAction::Scan {
                    cursor,
                    count,
                    kind: scan.kind.flatten(),
                }
            }
            SweepAnswer::Range { wanted, .. } => PartitionAction::Range(RangeQuery {
                count: wanted.count.min(SWEEP_COUNT),
                ..wanted.clone()
            }),
            _ => PartitionAction::Scan {
                cursor,
                count: SWEEP_COUNT,
                kind: None,
            },
        };
        Some((partition, action))
    }

    /// Takes what a partition answered.
    fn take_outcome(&mut self, came: ArrivedOutcome) {
        let ArrivedOutcome {
            part,
            token,
            outcome,
            judged,
            ..
        } = came;
        if !self.asked.take(token) {
            return;
        }
        if let Some(looked) = self.looked.take() {
            match outcome {
                Outcome::Failed(Failure::Stale) => return self.begin_again(),
                // The failure has no time, so it does not judge what was looked at.
                Outcome::Failed(why) => return self.fail(why),
                _ if judged != Some(looked) => return self.begin_again(),
                _ => {}
            }
        }
        if self.failure.is_some() && !matches!(outcome, Outcome::Failed(_)) {
            self.done += 1;
            return;
        }
        if let SweepAnswer::Scan(_) = &self.answer {
            return self.take_keys(part, outcome);
        }
        match outcome {
            Outcome::Failed(Failure::Stale) => self.lose(part),
            Outcome::Failed(why) => {
                // An operation that may have happened outweighs those that did not.
                if self.failure != Some(Failure::Unknown) {
                    self.failure = Some(why);
                }
                self.drop_found();
            }
            // A range waits for one answer at a time, and all other sweeps begin again.
            _ if self.lost => {}
            outcome => self.add(part, outcome),
        }
    }

    /// Adds what a partition has to the answer.
    fn add(&mut self, part: u32, outcome: Outcome) {
        match (&mut self.answer, outcome) {
            (SweepAnswer::Count(sum), Outcome::Int(n)) => *sum = sum.saturating_add(n),
            (SweepAnswer::CountInSlot(slot, sum), Outcome::Keys { next, keys }) => {
                let found = keys
                    .iter()
                    .filter(|k| doyen_placement::hash::slot(k) == *slot)
                    .count();
                *sum = sum.saturating_add(i64::try_from(found).unwrap_or(i64::MAX));
                go_on(&mut self.next, part, next);
            }
            (SweepAnswer::KeysInSlot { slot, left, keys }, Outcome::Keys { next, keys: found }) => {
                let most = usize::try_from(*left).unwrap_or(usize::MAX);
                let before = keys.len();
                keys.extend(
                    found
                        .into_iter()
                        .filter(|k| doyen_placement::hash::slot(k) == *slot)
                        .take(most),
                );
                *left = left.saturating_sub(u32::try_from(keys.len() - before).unwrap_or(u32::MAX));
                self.held += keys[before..]
                    .iter()
                    .map(|k| k.len() + KEY_OVERHEAD)
                    .sum::<usize>();
                go_on(&mut self.next, part, next);
                if self.held > REPLY_BYTES_MAX {
                    return self.fail(Failure::TooLarge);
                }
            }
            (SweepAnswer::Keys { .. }, Outcome::Keys { next, keys: found }) => {
                self.held += weight(&found);
                self.unmatched.extend(found);
                go_on(&mut self.next, part, next);
            }
            (SweepAnswer::Range { wanted, keys }, Outcome::Keys { next, keys: found }) => {
                let each = if wanted.values { 2 } else { 1 };
                wanted.count = wanted
                    .count
                    .saturating_sub(u32::try_from(found.len() / each).unwrap_or(u32::MAX));
                if let Some(last) = found.chunks_exact(each).last().map(|entry| &entry[0]) {
                    if wanted.reverse {
                        wanted.to = last.clone();
                    } else {
                        // The least key that is greater than the last one.
                        wanted.from = [&**last, &[0]].concat().into();
                    }
                    go_on(&mut self.next, part, next);
                }
                self.held += weight(&found);
                keys.extend(found);
                if self.held > REPLY_BYTES_MAX {
                    return self.fail(Failure::TooLarge);
                }
            }
            _ => {}
        }
        self.done += 1;
    }

    /// Takes a partition's answer to a scan. Keys are taken in the order of partitions, as far as
    /// all earlier answers are there.
    fn take_keys(&mut self, part: u32, outcome: Outcome) {
        let answer = match outcome {
            Outcome::Failed(Failure::Stale) => return self.lose(part),
            Outcome::Failed(why) => Err(why),
            Outcome::Keys { next, keys } => Ok((next, keys)),
            _ => return,
        };
        let SweepAnswer::Scan(scan) = &mut self.answer else {
            return;
        };
        if !scan.answered(part, answer) {
            return;
        }
        self.done += 1;
        while scan.left > 0
            && let Some(first) = scan.asked.front()
            && first.answer.is_some()
            // Not before an earlier partition that is not finished.
            && self.next.front().is_none_or(|(next, _)| *next > first.partition)
        {
            let Some(AskedPart {
                partition,
                cursor,
                answer: Some(answer),
                ..
            }) = scan.asked.pop_front()
            else {
                return;
            };
            let goes_on_at = match answer {
                Ok((next, found)) => {
                    scan.window = (scan.window + 1).min(IN_FLIGHT_MAX);
                    scan.left = scan
                        .left
                        .saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
                    self.held += weight(&found);
                    self.unmatched.extend(found);
                    (next != 0).then_some(next)
                }
                // Nothing of it was answered yet. The keys that were found before are answered, and
                // the next call meets the failure again.
                Err(_) if scan.left < scan.count => {
                    scan.left = 0;
                    Some(cursor)
                }
                Err(why) => return self.fail(why),
            };
            match goes_on_at {
                Some(cursor) if self.lost => {
                    self.begins = (partition.0.into(), cursor);
                    scan.asked.clear();
                }
                Some(cursor) => self.next.push_front((partition, cursor)),
                None => {}
            }
        }
    }

    /// Drops the keys that were found: they will not be sent.
    fn drop_found(&mut self) {
        self.unmatched.clear();
        match &mut self.answer {
            SweepAnswer::Keys { keys, .. }
            | SweepAnswer::Range { keys, .. }
            | SweepAnswer::KeysInSlot { keys, .. } => keys.clear(),
            SweepAnswer::Scan(scan) => scan.keys.clear(),
            SweepAnswer::Count(_) | SweepAnswer::Cleared | SweepAnswer::CountInSlot(..) => {}
        }
        self.held = 0;
    }

    /// Compares keys with the pattern as far as `work` allows, and subtracts what it used.
    fn compare(&mut self, work: &mut usize) {
        let (pattern, keys) = match &mut self.answer {
            SweepAnswer::Keys { pattern, keys } => (Some(&*pattern), keys),
            SweepAnswer::Scan(scan) if scan.kind == Some(None) => {
                self.held -= self
                    .unmatched
                    .drain(..)
                    .map(|k| k.len() + KEY_OVERHEAD)
                    .sum::<usize>();
                return;
            }
            SweepAnswer::Scan(scan) => (scan.pattern.as_ref(), &mut scan.keys),
            _ => return,
        };
        while let Some(key) = self.unmatched.front() {
            let found = pattern.map_or(Some(true), |p| self.matching.run(p, key, work));
            let Some(matches) = found else { return };
            self.matching = Matching::default();
            let Some(key) = self.unmatched.pop_front() else {
                return;
            };
            if matches {
                keys.push(key);
            } else {
                self.held -= key.len() + KEY_OVERHEAD;
            }
        }
        if self.held > REPLY_BYTES_MAX {
            self.fail(Failure::TooLarge);
        }
    }

    /// Where a scan continues: the first partition that was not taken. 0: nowhere.
    fn cursor(&self) -> Option<u64> {
        let SweepAnswer::Scan(scan) = &self.answer else {
            return None;
        };
        let asked = scan.asked.front().map(|part| (part.partition, part.cursor));
        let listed = self
            .next
            .front()
            .copied()
            .or(self.further.map(|first| (PartitionId(first), 0)));
        Some(
            asked
                .into_iter()
                .chain(listed)
                .min()
                .map_or(0, |(p, within)| u64::from(p.0) << CURSOR_BITS | within),
        )
    }
}

impl Sweep {
    /// Asks partitions, as many as it may at once.
    pub(crate) fn ask(&mut self, asker: &mut ReplyAsker<'_>) {
        while self.has_next_step() {
            let about = self.about();
            if let Some(wanted) = self.wants() {
                match partitions_of(asker.context, about, &wanted) {
                    Some(partitions) => self.renew(partitions),
                    None => self.fail(Failure::NoPartition),
                }
            }
            let (keyspace, map) = self.about();
            if let Some(generation) = asker.context.looks_under() {
                self.look(generation, |partition| {
                    asker
                        .context
                        .shard()
                        .partitions()
                        .keys_of(keyspace, partition, map)
                });
            }
            // There is no step if `wants` has just found that there are no partitions.
            let Some((partition, action)) = self.next_step() else {
                continue;
            };
            let operation = PartitionOperation {
                keyspace,
                partition,
                map,
                action,
            };
            self.asked.ask(asker, partition.0, operation);
        }
    }
}

impl PendingReply for Sweep {
    fn asked(&self) -> &Outstanding {
        &self.asked
    }

    fn take(&mut self, arrived: Arrived) -> SessionEffect {
        if let Arrived::Outcome(came) = arrived {
            self.take_outcome(came);
            self.compare(&mut COMPARE_AT_ONCE.clone());
        }
        SessionEffect::Nothing
    }

    fn has_step(&self) -> bool {
        self.has_next_step() || self.is_matching()
    }

    fn step(&mut self, asker: &mut ReplyAsker<'_>, work: &mut usize) -> Stepped {
        self.compare(work);
        if self.is_matching() {
            return Stepped::Again;
        }
        self.ask(asker);
        Stepped::Waits
    }

    fn held(&self) -> usize {
        match &self.answer {
            SweepAnswer::Scan(scan) => {
                self.held + scan.asked.iter().map(AskedPart::held).sum::<usize>()
            }
            _ => self.held,
        }
    }

    fn is_sweep(&self) -> bool {
        true
    }

    fn encode(&mut self, encoder: &mut Encoder<'_>) -> bool {
        if let Some(why) = self.failure {
            let collects = matches!(
                self.answer,
                SweepAnswer::Keys { .. }
                    | SweepAnswer::Range { .. }
                    | SweepAnswer::KeysInSlot { .. }
            );
            let has_written = self.done > 0 && matches!(self.answer, SweepAnswer::Cleared);
            encode_failure(encoder, why, collects, has_written);
            return true;
        }
        let begins = self.encoded.is_none();
        let mut at = self.encoded.unwrap_or(0);
        let cursor = self.cursor();
        let all = match &mut self.answer {
            SweepAnswer::Count(sum) | SweepAnswer::CountInSlot(_, sum) => {
                encoder.integer(*sum);
                0
            }
            SweepAnswer::Cleared => {
                encoder.simple("OK");
                0
            }
            SweepAnswer::Scan(scan) if scan.one => {
                match scan.keys.first() {
                    Some(key) => encoder.bulk(key),
                    None => encoder.nil(),
                }
                0
            }
            found => {
                let keys = match found {
                    SweepAnswer::Keys { keys, .. }
                    | SweepAnswer::Range { keys, .. }
                    | SweepAnswer::KeysInSlot { keys, .. } => keys,
                    SweepAnswer::Scan(scan) => &mut scan.keys,
                    _ => return true,
                };
                if begins {
                    if let Some(cursor) = cursor {
                        encoder.array(2);
                        encoder.bulk(itoa::Buffer::new().format(cursor).as_bytes());
                    }
                    encoder.array(keys.len());
                }
                for key in keys.iter_mut().skip(at) {
                    if encoder.len() >= OUTPUT_BYTES_SOFT {
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
}

/// The partitions that a sweep must ask, by the installed table, and the number from which on there
/// are more of them. `None` if its keyspace has no partitions any more.
fn partitions_of(
    context: &RespContext,
    (keyspace, map): (KeyspaceId, MapId),
    wanted: &WantedPartitions<'_>,
) -> Option<(Vec<PartitionId>, Option<u32>)> {
    let keyspace = context
        .view()?
        .installed
        .keyspace(keyspace)
        .filter(|k| !k.partitions.is_empty())?;
    let all = &keyspace.partitions;
    let found = match wanted {
        WantedPartitions::From { first, most, own } => {
            let led =
                |p: &&Arc<Partition>| !own || cluster::leads(context.me(), context.threads(), p);
            // Partitions are in order.
            let mut from = all[all.partition_point(|p| p.id.0 < *first)..]
                .iter()
                .filter(led)
                .map(|p| p.id);
            let found = from.by_ref().take(*most).collect();
            return Some((found, from.next().map(|p| p.0)));
        }
        WantedPartitions::Slot(slot) => keyspace.partition_of_slot(*slot).into_iter().collect(),
        WantedPartitions::Range(query) => {
            let mut partitions = keyspace
                .partitions_within(map, &query.from, &query.to)
                .ok()?;
            if query.reverse {
                partitions.reverse();
            }
            partitions
        }
    };
    Some((found, None))
}

/// The cost of keys in an answer.
fn weight(keys: &[Bytes]) -> usize {
    keys.iter().map(|k| k.len() + KEY_OVERHEAD).sum()
}

/// A partition's number, and a cursor in it.
const fn parts(cursor: u64) -> (u64, u64) {
    (cursor >> CURSOR_BITS, cursor & ((1 << CURSOR_BITS) - 1))
}

fn go_on(next: &mut VecDeque<(PartitionId, u64)>, part: u32, cursor: u64) {
    if cursor != 0 {
        next.push_front((PartitionId(part), cursor));
    }
}
