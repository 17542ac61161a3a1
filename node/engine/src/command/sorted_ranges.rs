//! A sorted set in order, and the parts of it that commands name: by rank, by score, or by the
//! bytes of members that have the same score.

use super::collections::{CollectionDone, ITEM_OVERHEAD, TOO_LARGE, failed};
use super::{CommandCall, ErrorText, NOT_AN_INTEGER, Parsed, Part, SYNTAX, Shape, is};
use crate::command::operation::Action;
use crate::command::procedure::{Inputs, Procedure};
use crate::store::collection::{self, CollectionView, Edit};
use crate::store::ranked::{Ranked, RankedRows};
use crate::store::run_context::RunContext;
use crate::value::entry::Entry;
use crate::value::integer::integer;
use crate::value::items::put;
use crate::value::outcome::{Failure, Outcome, Value};
use crate::value::types::sorted_set::{
    SCORE_BYTES, parse_score, score_of, score_text, stored_score,
};
use bytes::Bytes;
use std::ops::Range;

/// Members of a range that are loaded together.
const LOADED_MAX: usize = 32;
/// What a member of an answer takes, as a rule.
const MEMBER_BYTES: usize = 24;

/// A member with its stored score.
pub(super) type Scored<'a> = (&'a [u8], &'a [u8]);

/// A sorted set in order.
pub(super) struct Ordered<'a> {
    view: CollectionView<'a>,
    holds: OrderedMembers<'a>,
}

enum OrderedMembers<'a> {
    Packed(Vec<Scored<'a>>),
    Rows(&'a Ranked),
}

/// Its members from a rank on.
pub(super) enum MembersFrom<'o, 'a> {
    Ahead(std::slice::Iter<'o, Scored<'a>>),
    Back(std::iter::Rev<std::slice::Iter<'o, Scored<'a>>>),
    Rows(RankedRows<'a>),
}

impl<'a> Iterator for MembersFrom<'_, 'a> {
    type Item = Scored<'a>;

    fn next(&mut self) -> Option<Scored<'a>> {
        match self {
            Self::Ahead(members) => members.next().copied(),
            Self::Back(members) => members.next().copied(),
            Self::Rows(rows) => rows.next().map(scored),
        }
    }
}

fn scored(row: &Entry) -> Scored<'_> {
    (row.key(), row.value())
}

impl<'a> Ordered<'a> {
    pub(super) fn of(view: CollectionView<'a>) -> Self {
        let ranked = view.table().and_then(|(table, _)| table.ranked());
        let holds = match ranked {
            Some(ranked) => OrderedMembers::Rows(ranked),
            None => OrderedMembers::Packed(view.pairs().collect()),
        };
        Self { view, holds }
    }

    /// The same with all members that a range can have.
    fn of_range(view: CollectionView<'a>, inputs: &Inputs) -> Self {
        let ranks = part_of(inputs, 0).zip(inputs.numbers.get(PART_NUMBERS));
        match ranks {
            // Ranks that count from the first one need none behind the last.
            Some((SortedPart::Ranks { first: 0.., last }, 0)) if view.table().is_none() => {
                let most = usize::try_from(last).map_or(usize::MAX, |last| last.saturating_add(1));
                let holds = OrderedMembers::Packed(view.pairs().take(most).collect());
                Self { view, holds }
            }
            _ => Self::of(view),
        }
    }

    pub(super) fn len(&self) -> usize {
        match &self.holds {
            OrderedMembers::Packed(members) => members.len(),
            OrderedMembers::Rows(ranked) => ranked.len(),
        }
    }

    /// The members from a rank on, in order or in reverse. They end early once the operation has
    /// done too much.
    pub(super) fn from(&self, rank: usize, reverse: bool) -> impl Iterator<Item = Scored<'a>> {
        let budget = self.view.budget();
        let members = match &self.holds {
            OrderedMembers::Rows(ranked) => MembersFrom::Rows(ranked.rows_from(rank, reverse)),
            OrderedMembers::Packed(all) if reverse => {
                let end = (rank + 1).min(all.len());
                MembersFrom::Back(all[..end].iter().rev())
            }
            OrderedMembers::Packed(all) => {
                MembersFrom::Ahead(all.get(rank..).unwrap_or_default().iter())
            }
        };
        members.take_while(move |(member, _)| budget.element_of(member.len() + SCORE_BYTES))
    }

    /// Loads the first of these members together. One after the other, each would be waited for.
    fn load(&self, rank: usize, reverse: bool, count: usize) {
        if let OrderedMembers::Rows(ranked) = &self.holds {
            let rows = ranked.rows_from(rank, reverse).take(count.min(LOADED_MAX));
            std::hint::black_box(rows.fold(0, |sum, row| sum ^ row.touch()));
        }
    }

    /// What removes the members of these ranks.
    pub(super) fn without(&self, ranks: Range<usize>) -> Edit<'a> {
        match &self.holds {
            OrderedMembers::Rows(_) => Edit::DeleteRanks(ranks),
            OrderedMembers::Packed(members) => {
                let gone = members.get(ranks).unwrap_or_default();
                Edit::Delete(gone.iter().map(|(member, _)| *member).collect())
            }
        }
    }

    /// How many members there are for which this holds. It holds for none behind one for which it
    /// does not.
    pub(super) fn len_while(&self, holds: impl Fn(Scored<'_>) -> bool) -> usize {
        self.view.budget().element();
        match &self.holds {
            OrderedMembers::Packed(all) => all.partition_point(|member| holds(*member)),
            OrderedMembers::Rows(ranked) => ranked.len_while(|row| holds(scored(row))),
        }
    }

    /// How many members come before this one.
    pub(super) fn rank(&self, (member, score): Scored<'_>) -> usize {
        self.len_while(|(held, of_held)| (of_held, held) < (score, member))
    }

    /// The first rank of a part, and the rank behind it.
    pub(super) fn span(&self, part: &SortedPart<'_>) -> (usize, usize) {
        let length = self.len();
        let (from, to) = match part {
            SortedPart::Ranks { first, last } => {
                let rank = |at: i64| {
                    let length = i64::try_from(length).unwrap_or(i64::MAX);
                    let at = if at < 0 {
                        length.saturating_add(at)
                    } else {
                        at
                    };
                    usize::try_from(at).ok()
                };
                let to = rank(*last).map_or(0, |last| last.saturating_add(1));
                (rank(*first).unwrap_or(0), to.min(length))
            }
            SortedPart::Scores(least, most) => (
                self.len_while(|(_, score)| least.is_above(score)),
                self.len_while(|(_, score)| !most.is_below(score)),
            ),
            SortedPart::Members(least, most) => (
                self.len_while(|(member, _)| least.is_above(member)),
                self.len_while(|(member, _)| !most.is_below(member)),
            ),
        };
        (from, to.max(from))
    }
}

/// An end of a part.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bound<'a> {
    /// Before all.
    Least,
    /// Behind all.
    Most,
    /// This one, and whether it belongs to the part.
    At(&'a [u8], bool),
}

impl<'a> Bound<'a> {
    const LEAST: u8 = 0;
    const MOST: u8 = 1;
    const INCLUDED: u8 = 2;
    const EXCLUDED: u8 = 3;

    /// As the run of bytes that procedures take.
    pub(super) fn put(self) -> Bytes {
        let (kind, at): (u8, &[u8]) = match self {
            Self::Least => (Self::LEAST, &[]),
            Self::Most => (Self::MOST, &[]),
            Self::At(at, true) => (Self::INCLUDED, at),
            Self::At(at, false) => (Self::EXCLUDED, at),
        };
        [&[kind], at].concat().into()
    }

    /// What a run of bytes says. A wrong one counts as the end of all.
    fn of(run: &'a [u8]) -> Self {
        match run.split_first() {
            Some((&Self::INCLUDED, at)) => Self::At(at, true),
            Some((&Self::EXCLUDED, at)) => Self::At(at, false),
            Some((&Self::LEAST, _)) => Self::Least,
            Some(_) | None => Self::Most,
        }
    }

    /// Whether, as the lower end, it leaves this out.
    fn is_above(self, one: &[u8]) -> bool {
        match self {
            Self::Least => false,
            Self::Most => true,
            Self::At(at, true) => one < at,
            Self::At(at, false) => one <= at,
        }
    }

    /// Whether, as the upper end, it leaves this out.
    fn is_below(self, one: &[u8]) -> bool {
        match self {
            Self::Least => true,
            Self::Most => false,
            Self::At(at, true) => one > at,
            Self::At(at, false) => one >= at,
        }
    }
}

/// A part of a sorted set.
#[derive(Debug)]
pub(super) enum SortedPart<'a> {
    /// From a rank to another one; negative ones count from the end.
    Ranks { first: i64, last: i64 },
    /// From a score to another one.
    Scores(Bound<'a>, Bound<'a>),
    /// The same of members that have one score.
    Members(Bound<'a>, Bound<'a>),
}

/// By what a part is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartBy {
    Rank,
    Score,
    Member,
}

/// The numbers and runs of bytes of a part: what it is named by, and two numbers or runs.
#[derive(Debug)]
pub(super) struct PartInputs {
    pub(super) numbers: [i64; 3],
    pub(super) runs: [Bytes; 2],
}

/// How many numbers a part has.
pub(super) const PART_NUMBERS: usize = 3;

impl PartBy {
    /// A part of these two ends, given from the lower one to the upper one.
    ///
    /// # Errors
    /// Redis's texts.
    pub(super) fn part(self, least: &[u8], most: &[u8]) -> Result<PartInputs, ErrorText> {
        let (mut numbers, mut runs) = ([self as i64, 0, 0], [Bytes::new(), Bytes::new()]);
        for (at, given) in [least, most].into_iter().enumerate() {
            match self {
                Self::Rank => numbers[at + 1] = integer(given).ok_or(NOT_AN_INTEGER)?,
                Self::Score => runs[at] = score_bound(given)?,
                Self::Member => runs[at] = member_bound(given)?,
            }
        }
        Ok(PartInputs { numbers, runs })
    }
}

/// The bound that a text gives for scores.
fn score_bound(text: &[u8]) -> Result<Bytes, ErrorText> {
    let (text, included) = match text.strip_prefix(b"(") {
        Some(rest) => (rest, false),
        None => (text, true),
    };
    let score = parse_score(text).ok_or("ERR min or max is not a float")?;
    Ok(Bound::At(&stored_score(score), included).put())
}

/// The bound that a text gives for members.
fn member_bound(text: &[u8]) -> Result<Bytes, ErrorText> {
    let bound = match text.split_first() {
        Some((b'-', [])) => Bound::Least,
        Some((b'+', [])) => Bound::Most,
        Some((b'[', at)) => Bound::At(at, true),
        Some((b'(', at)) => Bound::At(at, false),
        _ => return Err("ERR min or max not valid string range item".into()),
    };
    Ok(bound.put())
}

/// The part that inputs name, whose numbers begin at this place. The runs are the first two.
pub(super) fn part_of(inputs: &Inputs, at: usize) -> Option<SortedPart<'_>> {
    let [by, first, last] = inputs.numbers.get(at..at + PART_NUMBERS)? else {
        return None;
    };
    let [least, most] = inputs.bytes.get(..2)? else {
        return None;
    };
    let ends = (Bound::of(least), Bound::of(most));
    Some(match by {
        0 => SortedPart::Ranks {
            first: *first,
            last: *last,
        },
        1 => SortedPart::Scores(ends.0, ends.1),
        _ => SortedPart::Members(ends.0, ends.1),
    })
}

/// Members in an answer, each followed by its score if that is wanted.
pub(super) struct ScoredAnswer {
    pub(super) items: Vec<Outcome>,
    bytes: usize,
    with_scores: bool,
}

impl ScoredAnswer {
    pub(super) const fn new(with_scores: bool) -> Self {
        Self {
            items: Vec::new(),
            bytes: 0,
            with_scores,
        }
    }

    /// Takes a member. False: the answer is too large.
    pub(super) fn take(&mut self, (member, score): Scored<'_>, cx: &RunContext) -> bool {
        self.bytes += member.len() + ITEM_OVERHEAD;
        self.items.push(Outcome::Bulk(Value::from(member)));
        if self.with_scores {
            self.bytes += ITEM_OVERHEAD;
            self.items.push(shown(score));
        }
        self.bytes <= collection::answer_max(cx)
    }

    pub(super) fn outcome(self) -> Outcome {
        Outcome::Many(self.items)
    }
}

/// A stored score as it is answered.
pub(super) fn shown(score: &[u8]) -> Outcome {
    Outcome::Bulk(Value::from(&score_text(score_of(score))[..]))
}

/// Which members a range has: those of a part, in order or in reverse, without the first ones, up
/// to a number of them. The numbers: the part, in reverse (1), how many are left out, and how many
/// there are at most; negative: all.
pub(super) const RANGE_NUMBERS: usize = PART_NUMBERS + 3;

/// The members of the range whose numbers come first.
pub(super) fn members_of_range<'a>(
    inputs: &Inputs,
    ordered: &Ordered<'a>,
) -> Option<impl Iterator<Item = Scored<'a>>> {
    let part = part_of(inputs, 0)?;
    let [reverse, skipped, most] = inputs.numbers.get(PART_NUMBERS..RANGE_NUMBERS)? else {
        return None;
    };
    let reverse = *reverse == 1;
    let (from, to) = match part {
        // Ranks of a range in reverse count from the end.
        SortedPart::Ranks { first, last } if reverse => {
            let (from, to) = ordered.span(&SortedPart::Ranks { first, last });
            let length = ordered.len();
            (length - to.min(length), length - from.min(length))
        }
        part => ordered.span(&part),
    };
    let (skipped, none) = match usize::try_from(*skipped) {
        Ok(skipped) => (skipped, false),
        Err(_) => (0, true),
    };
    let count = to.saturating_sub(from).saturating_sub(skipped);
    let most = usize::try_from(*most).unwrap_or(usize::MAX);
    let count = if none { 0 } else { count.min(most) };
    let begin = if reverse {
        to.saturating_sub(1).saturating_sub(skipped)
    } else {
        from.saturating_add(skipped)
    };
    ordered.load(begin, reverse, count);
    Some(ordered.from(begin, reverse).take(count))
}

/// A range. The last number: with scores (1). → `Many`; without scores `Bulk`, one member after the
/// other, or `Nil`: there are none
pub(super) fn range<'a>(
    inputs: &'a Inputs,
    view: CollectionView<'a>,
    cx: &RunContext,
) -> CollectionDone<'a> {
    let ordered = Ordered::of_range(view, inputs);
    let Some(mut members) = members_of_range(inputs, &ordered) else {
        return failed(Failure::NotAnInteger);
    };
    if inputs.numbers.get(RANGE_NUMBERS) != Some(&1) {
        let (_, count) = members.size_hint();
        let bytes = count.map_or(0, |count| count.min(LOADED_MAX) * MEMBER_BYTES);
        let (mut all, most) = (Vec::with_capacity(bytes), collection::answer_max(cx));
        let fits = members.all(|(member, _)| {
            put(&mut all, member);
            all.len() <= most
        });
        return match all.is_empty() {
            _ if !fits => TOO_LARGE,
            true => (Some(Outcome::Nil), Edit::None),
            false => (Some(Outcome::Bulk(Value::from(&all[..]))), Edit::None),
        };
    }
    let mut answer = ScoredAnswer::new(true);
    if members.all(|member| answer.take(member, cx)) {
        (Some(answer.outcome()), Edit::None)
    } else {
        TOO_LARGE
    }
}

/// What the options of a range say.
#[derive(Debug)]
pub(super) struct RangeOptions {
    by: PartBy,
    reverse: bool,
    limit: Option<(i64, i64)>,
    pub(super) with_scores: bool,
}

impl RangeOptions {
    pub(super) const fn of(by: PartBy, reverse: bool) -> Self {
        Self {
            by,
            reverse,
            limit: None,
            with_scores: false,
        }
    }

    /// Reads the options from this place on. `any`: also those that say what the range is.
    ///
    /// # Errors
    /// Redis's texts.
    pub(super) fn read(
        mut self,
        c: CommandCall<'_>,
        mut at: usize,
        (any, stores): (bool, bool),
    ) -> Result<Self, ErrorText> {
        while at < c.args.len() {
            let option = c.args.get(at);
            if !stores && is(option, "WITHSCORES") {
                self.with_scores = true;
            } else if is(option, "LIMIT") && at + 2 < c.args.len() {
                self.limit = Some((c.number(at + 1)?, c.number(at + 2)?));
                at += 2;
            } else if any && is(option, "REV") {
                self.reverse = true;
            } else if any && self.by == PartBy::Rank && is(option, "BYSCORE") {
                self.by = PartBy::Score;
            } else if any && self.by == PartBy::Rank && is(option, "BYLEX") {
                self.by = PartBy::Member;
            } else {
                return Err(SYNTAX.into());
            }
            at += 1;
        }
        if self.limit.is_some() && self.by == PartBy::Rank {
            return Err(
                "ERR syntax error, LIMIT is only supported in combination with either \
                 BYSCORE or BYLEX"
                    .into(),
            );
        }
        if self.with_scores && self.by == PartBy::Member {
            return Err(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX".into(),
            );
        }
        Ok(self)
    }

    /// The numbers and runs of the range between the arguments from this place on.
    ///
    /// # Errors
    /// Redis's texts.
    pub(super) fn inputs(
        &self,
        c: CommandCall<'_>,
        at: usize,
    ) -> Result<([i64; RANGE_NUMBERS], [Bytes; 2]), ErrorText> {
        let (mut least, mut most) = (c.args.get(at), c.args.get(at + 1));
        if self.reverse && self.by != PartBy::Rank {
            std::mem::swap(&mut least, &mut most);
        }
        let PartInputs { numbers, runs } = self.by.part(least, most)?;
        let [by, first, last] = numbers;
        let (skipped, count) = self.limit.unwrap_or((0, -1));
        let numbers = [by, first, last, i64::from(self.reverse), skipped, count];
        Ok((numbers, runs))
    }
}

/// A call of the procedure that answers a range between the second and the third argument.
pub(super) fn ranging(
    c: CommandCall<'_>,
    procedure: &'static Procedure,
    options: RangeOptions,
    any: bool,
) -> Parsed {
    let options = options.read(c, 4, (any, false))?;
    let (numbers, runs) = options.inputs(c, 2)?;
    let with_scores = i64::from(options.with_scores);
    let numbers: Vec<i64> = numbers.into_iter().chain([with_scores]).collect();
    let shape = if options.with_scores {
        Shape::Scored
    } else {
        Shape::Fields(Part::Elements)
    };
    c.shaped(Action::call(procedure, &numbers, Vec::from(runs)), shape)
}
