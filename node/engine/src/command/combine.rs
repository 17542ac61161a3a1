//! What several sets, or several sorted sets, have together: one place for all commands that ask.
//!
//! ```text
//!   keys of one partition ──> what the store holds ─┐
//!                                                   ├──> CombineInput ──> members
//!   keys of several ──> what was read of each ──────┘
//! ```

use super::sorted_ranges::ScoredAnswer;
use crate::command::procedure::Inputs;
use crate::store::budget::Budget;
use crate::store::collection::{self, CollectionView};
use crate::store::run_context::RunContext;
use crate::value::items::{Pairs, put};
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome};
use crate::value::types::sorted_set::{score_of, stored_score};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Which members several sets have together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Combination {
    /// Those that any of them has.
    Union,
    /// Those that each of them has.
    Intersection,
    /// Those of the first that no other one has.
    Difference,
}

impl Combination {
    pub(super) const fn of_number(number: i64) -> Self {
        match number {
            0 => Self::Union,
            1 => Self::Intersection,
            _ => Self::Difference,
        }
    }
}

/// A collection that is combined with others.
#[derive(Clone, Copy)]
pub(super) struct CombineInput<'a> {
    kind: Kind,
    members: InputMembers<'a>,
    budget: &'a Budget,
}

/// Where its members are.
#[derive(Clone, Copy)]
enum InputMembers<'a> {
    /// In the store.
    Held(CollectionView<'a>),
    /// They were read before, and are this many.
    Read(Pairs<'a>, usize),
}

impl<'a> CombineInput<'a> {
    /// What a key of this partition holds.
    pub(super) const fn held(kind: Kind, view: CollectionView<'a>) -> Self {
        Self {
            kind,
            members: InputMembers::Held(view),
            budget: view.budget(),
        }
    }

    /// What was read of a key: this many members, in one run of bytes.
    pub(super) fn read(
        kind: Kind,
        (members, count): (&'a [u8], usize),
        budget: &'a Budget,
    ) -> Self {
        Self {
            kind,
            members: InputMembers::Read(kind.pairs(members), count),
            budget,
        }
    }

    /// Its members, with the scores of a sorted set. They end early once the operation has done too
    /// much.
    fn pairs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let (held, read) = match self.members {
            InputMembers::Held(view) => (Some(view.pairs()), None),
            InputMembers::Read(pairs, _) => (None, Some(pairs)),
        };
        let read = read.into_iter().flatten();
        let read = read.take_while(move |(member, _)| self.budget.element_of(member.len()));
        held.into_iter().flatten().chain(read)
    }

    fn members(self) -> impl Iterator<Item = &'a [u8]> {
        self.pairs().map(|(member, _)| member)
    }

    fn len(self) -> usize {
        match self.members {
            InputMembers::Held(view) => view.len(),
            InputMembers::Read(_, count) => count,
        }
    }
}

/// A set in which members are looked for.
enum Sought<'a> {
    Rows(CollectionView<'a>),
    /// A packed set would be read from its beginning for each member.
    Packed(BTreeSet<&'a [u8]>, &'a Budget),
}

impl<'a> Sought<'a> {
    fn of(set: CombineInput<'a>) -> Self {
        match set.members {
            InputMembers::Held(view) if view.table().is_some() => Self::Rows(view),
            _ => Self::Packed(set.members().collect(), set.budget),
        }
    }

    /// Whether it has a member. None is found once the operation has done too much.
    fn has(&self, member: &[u8]) -> bool {
        match self {
            Self::Rows(set) => set.get(member).is_some(),
            Self::Packed(members, budget) => budget.element() && members.contains(member),
        }
    }
}

/// Takes the members that sets have together, until one is not taken. False: one was not.
fn take<'a>(
    how: Combination,
    sets: &[CombineInput<'a>],
    mut take: impl FnMut(&'a [u8]) -> bool,
) -> bool {
    let Some((first, others)) = sets.split_first() else {
        return true;
    };
    match how {
        Combination::Union => {
            let mut seen = BTreeSet::new();
            let mut all = sets.iter().flat_map(|set| set.members());
            all.all(|member| first.budget.sort() && (!seen.insert(member) || take(member)))
        }
        Combination::Intersection => {
            // The smallest has the fewest to look for.
            let Some(least) = (0..sets.len()).min_by_key(|at| sets[*at].len()) else {
                return true;
            };
            let others = (0..sets.len()).filter(|at| *at != least);
            let others: Vec<Sought<'a>> = others.map(|at| Sought::of(sets[at])).collect();
            let mut all = sets[least].members();
            all.all(|member| others.iter().any(|set| !set.has(member)) || take(member))
        }
        // As in Redis: each member is looked for in the other sets, or the members of those are
        // taken away, whichever is less work.
        Combination::Difference => {
            let looks = first.len().saturating_mul(others.len());
            if looks <= sets.iter().map(|set| set.len()).sum() {
                let others: Vec<Sought<'a>> = others.iter().map(|set| Sought::of(*set)).collect();
                let mut all = first.members();
                return all.all(|member| others.iter().any(|set| set.has(member)) || take(member));
            }
            let mut left: BTreeSet<&[u8]> = first.members().collect();
            for member in others.iter().flat_map(|set| set.members()) {
                first.budget.sort();
                left.remove(member);
            }
            left.into_iter().all(take)
        }
    }
}

/// The members that sets have together, in one run of bytes.
///
/// # Errors
/// They are more than `most` bytes.
pub(super) fn members_of_sets(
    how: Combination,
    sets: &[CombineInput<'_>],
    most: usize,
) -> Result<Vec<u8>, Failure> {
    let mut members = Vec::new();
    let fits = take(how, sets, |member| {
        put(&mut members, member);
        members.len() <= most
    });
    if fits {
        Ok(members)
    } else {
        Err(Failure::TooLarge)
    }
}

/// How many members sets have in common. `most`: the most that is counted; 0: all.
pub(super) fn count_of_sets(sets: &[CombineInput<'_>], most: i64) -> usize {
    let most = usize::try_from(most).unwrap_or(0);
    let mut found = 0;
    take(Combination::Intersection, sets, |_| {
        found += 1;
        found != most
    });
    found
}

/// What becomes of the scores that a member has in several sorted sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aggregate {
    Sum,
    Least,
    Most,
}

impl Aggregate {
    const fn of_number(number: i64) -> Self {
        match number {
            0 => Self::Sum,
            1 => Self::Least,
            _ => Self::Most,
        }
    }

    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Sum => number(one + other),
            Self::Least => one.min(other),
            Self::Most => one.max(other),
        }
    }
}

/// What is no number counts as 0, as in Redis.
const fn number(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// The members that sorted sets have together: they are added one after the other. Sets count as
/// sorted sets whose members have the score 1.
pub(super) struct ScoreCombiner {
    how: Combination,
    aggregate: Aggregate,
    weights: Vec<f64>,
    /// How many were added.
    added: usize,
    together: BTreeMap<Bytes, f64>,
}

impl ScoreCombiner {
    /// As the inputs of a joint say: the first two numbers, and the weights in the first run.
    pub(super) fn of(inputs: &Inputs) -> Self {
        Self {
            how: Combination::of_number(inputs.numbers[0]),
            aggregate: Aggregate::of_number(inputs.numbers[1]),
            weights: inputs.bytes[0].chunks_exact(8).map(score_of).collect(),
            added: 0,
            together: BTreeMap::new(),
        }
    }

    /// Adds the next one.
    ///
    /// # Errors
    /// It is neither a sorted set nor a set, or the members are too many.
    pub(super) fn add(
        &mut self,
        input: CombineInput<'_>,
        cx: &RunContext<'_>,
    ) -> Result<(), Failure> {
        let kind = input.kind;
        if !matches!(kind, Kind::SortedSet | Kind::Set) {
            return Err(Failure::WrongType);
        }
        let weight = self.weights.get(self.added).copied().unwrap_or(1.0);
        let scored = |(member, score): (&[u8], &[u8])| {
            let score = if kind == Kind::Set {
                1.0
            } else {
                score_of(score)
            };
            (Bytes::copy_from_slice(member), number(score * weight))
        };
        let (aggregate, is_first) = (self.aggregate, self.added == 0);
        self.added += 1;
        let together = &mut self.together;
        match self.how {
            _ if is_first => together.extend(input.pairs().map(scored)),
            Combination::Union => {
                for (member, score) in input.pairs().map(scored) {
                    cx.budget.sort();
                    let held = together.entry(member);
                    held.and_modify(|held| *held = aggregate.of(*held, score))
                        .or_insert(score);
                }
            }
            Combination::Intersection | Combination::Difference => {
                let given: BTreeMap<Bytes, f64> = input.pairs().map(scored).collect();
                let keeps = self.how == Combination::Intersection;
                together.retain(|member, held| {
                    let found = given.get(member);
                    if let (Some(score), true) = (found, keeps) {
                        *held = aggregate.of(*held, *score);
                    }
                    found.is_some() == keeps
                });
            }
        }
        let most = collection::answer_max(cx).max(cx.value_bytes_max);
        if together.len() > most {
            return Err(Failure::TooLarge);
        }
        Ok(())
    }

    /// What they have together.
    pub(super) fn finish(self) -> CombinedMembers {
        let scored = self.together.into_iter();
        let scored = scored.map(|(member, score)| (stored_score(score), member));
        let mut all: Vec<_> = scored.collect();
        all.sort_unstable();
        CombinedMembers(all)
    }
}

/// Stored scores with their members, in order.
pub(super) struct CombinedMembers(Vec<([u8; 8], Bytes)>);

impl CombinedMembers {
    /// The answer of a command that asks for them.
    pub(super) fn answer(&self, with_scores: bool, cx: &RunContext<'_>) -> Outcome {
        let mut answer = ScoredAnswer::new(with_scores);
        for (score, member) in &self.0 {
            if !answer.take((member, score), cx) {
                return Outcome::Failed(Failure::TooLarge);
            }
        }
        answer.outcome()
    }

    /// How many they are. `most`: the most that is counted; 0: all.
    pub(super) fn count(&self, most: i64) -> usize {
        let (all, most) = (self.0.len(), usize::try_from(most).unwrap_or(0));
        if most == 0 { all } else { all.min(most) }
    }

    /// All of them in one run of bytes.
    pub(super) fn stored(&self) -> Vec<u8> {
        let mut stored = Vec::new();
        for (score, member) in &self.0 {
            put(&mut stored, member);
            put(&mut stored, score);
        }
        stored
    }
}
