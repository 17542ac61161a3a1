//! Calls on a sorted set.

use crate::command::operation::Action;
use crate::command::sorted_ranges::{self, PartBy};
use crate::command::sorted_sets::{self, COUNTS_CHANGED, ONLY_GREATER};
use crate::value::items::put;
use crate::value::outcome::{Outcome, Value};
use crate::value::types::sorted_set::{parse_score, stored_score};
use bytes::Bytes;
use std::ops::Bound;

/// A part of a sorted set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SortedSlice {
    /// From a rank to another one, both included; negative ones count from the end.
    Ranks(i64, i64),
    /// From a score to another one.
    Scores(Bound<f64>, Bound<f64>),
}

impl SortedSlice {
    /// It as inputs of procedures.
    fn inputs(self) -> ([i64; 3], Vec<Bytes>) {
        match self {
            Self::Ranks(first, last) => {
                let numbers = [PartBy::Rank as i64, first, last];
                (numbers, vec![Bytes::new(), Bytes::new()])
            }
            Self::Scores(least, most) => {
                let end = |bound: Bound<f64>, none: sorted_ranges::Bound<'_>| match bound {
                    Bound::Included(score) => {
                        sorted_ranges::Bound::At(&stored_score(score), true).put()
                    }
                    Bound::Excluded(score) => {
                        sorted_ranges::Bound::At(&stored_score(score), false).put()
                    }
                    Bound::Unbounded => none.put(),
                };
                let ends = vec![
                    end(least, sorted_ranges::Bound::Least),
                    end(most, sorted_ranges::Bound::Most),
                ];
                ([PartBy::Score as i64, 0, 0], ends)
            }
        }
    }
}

fn scored_members<'a>(members: impl Iterator<Item = (&'a [u8], f64)>) -> [Bytes; 1] {
    let mut given = Vec::new();
    for (member, score) in members {
        put(&mut given, member);
        put(&mut given, &stored_score(score));
    }
    [given.into()]
}

/// Gives members these scores, which are numbers. → `Int`: how many are new
#[must_use]
pub fn add<'a>(members: impl Iterator<Item = (&'a [u8], f64)>) -> Action {
    Action::call(&sorted_sets::ADD, &[0], scored_members(members))
}

/// Gives a member this score if it has none, or a lower one. → `Int` 1: it has it now, or 0
#[must_use]
pub fn raise(member: &[u8], score: f64) -> Action {
    let flags = ONLY_GREATER | COUNTS_CHANGED;
    let given = scored_members(std::iter::once((member, score)));
    Action::call(&sorted_sets::ADD, &[flags], given)
}

/// Adds to the score of a member, which is 0 if it has none. → [`score_of`]. The sum of two
/// infinities is `Overflow`.
#[must_use]
pub fn increase(member: &[u8], by: f64) -> Action {
    let given = scored_members(std::iter::once((member, by)));
    Action::call(&sorted_sets::INCREASE, &[0], given)
}

/// Removes a member. → `Int` 1 or 0
#[must_use]
pub fn remove(member: &[u8]) -> Action {
    let mut given = Vec::with_capacity(member.len() + 4);
    put(&mut given, member);
    Action::call(&sorted_sets::REMOVE, &[], [Bytes::from(given)])
}

/// Removes a part. → `Int`: how many members
#[must_use]
pub fn remove_slice(slice: SortedSlice) -> Action {
    let (numbers, runs) = slice.inputs();
    let remove = match slice {
        SortedSlice::Ranks(..) => &sorted_sets::REMOVE_RANKS,
        SortedSlice::Scores(..) => &sorted_sets::REMOVE_SCORES,
    };
    Action::call(remove, &numbers, runs)
}

/// The score of a member. → [`score_of`]
#[must_use]
pub fn score(member: Bytes) -> Action {
    Action::call(&sorted_sets::SCORE, &[], [member])
}

/// How many members come before this one, or behind it. → `Int`, or `Nil`: it is absent
#[must_use]
pub fn rank(member: Bytes, from_end: bool) -> Action {
    Action::call(&sorted_sets::RANK, &[from_end.into(), 0], [member])
}

/// How many members there are. → `Int`
#[must_use]
pub fn length() -> Action {
    Action::call(&sorted_sets::LENGTH, &[], Vec::new())
}

/// How many members a part has. → `Int`
#[must_use]
pub fn count(slice: SortedSlice) -> Action {
    let (numbers, runs) = slice.inputs();
    Action::call(&sorted_sets::COUNT, &numbers, runs)
}

/// The first members of a part, up to `most`, or its last ones, the last one first. Ranks count
/// from the end then. → [`scored`]
#[must_use]
pub fn range(slice: SortedSlice, from_end: bool, most: Option<u64>) -> Action {
    let (part, runs) = slice.inputs();
    let most = most.map_or(-1, |most| i64::try_from(most).unwrap_or(i64::MAX));
    let with_scores = 1;
    let numbers: Vec<i64> = part
        .into_iter()
        .chain([from_end.into(), 0, most, with_scores])
        .collect();
    Action::call(&sorted_sets::RANGE, &numbers, runs)
}

/// Takes up to `most` members out, from the first one on or from the last one. → [`scored`]
#[must_use]
pub fn pop(from_end: bool, most: u64) -> Action {
    let pop = if from_end {
        &sorted_sets::POP_MAX
    } else {
        &sorted_sets::POP_MIN
    };
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    Action::call(pop, &[most], Vec::new())
}

/// The score that an outcome says. `Some(None)`: the member is absent. `None`: it says none.
#[must_use]
pub fn score_of(outcome: &Outcome) -> Option<Option<f64>> {
    match outcome {
        Outcome::Bulk(text) => parse_score(text).map(Some),
        Outcome::Nil => Some(None),
        _ => None,
    }
}

/// The members that an outcome has, with their scores. `None`: it has none.
#[must_use]
pub fn scored(outcome: Outcome) -> Option<Vec<(Value, f64)>> {
    let Outcome::Many(items) = outcome else {
        return None;
    };
    let mut scored = Vec::with_capacity(items.len() / 2);
    let mut items = items.into_iter();
    while let Some(member) = items.next() {
        let (Outcome::Bulk(member), Some(Outcome::Bulk(score))) = (member, items.next()) else {
            return None;
        };
        scored.push((member, parse_score(&score)?));
    }
    Some(scored)
}
