//! `LCS`: what two strings have in common, in order.
//!
//! The table of all pairs of beginnings has a bit for each pair, which says where the way back goes
//! (Redis has the lengths themselves). Its rows are made one after the other, so that an operation
//! that is too much work is refused early (`store/budget`).

use super::call::CommandCall;
use super::reply_tree::ReplyTree;
use super::sets::given;
use super::together::{Strings, StringsTogether};
use super::{Access, Description, ParseFn, Parsed, SYNTAX, Shape, command, is};
use crate::command::description::TWO_KEYS;
use crate::command::operation::{Action, Footprint};
use crate::command::procedure::{Inputs, JOINT, Joint, VALUES};
use crate::store::budget::Budget;
use crate::store::collection;
use crate::store::run_context::RunContext;
use crate::value::outcome::{Failure, Outcome};
use doyen_placement::level::STRINGS_TOGETHER;

pub(super) const ROWS: &[Description<ParseFn>] =
    &[command("lcs", "7.0.0", -3, "string", "readonly")
        .on(TWO_KEYS, Access::READ, "string")
        .about("Find longest common substring")
        .parse(parse)];

pub(crate) static JOINTS: &[&Joint] = &[&COMPARE];

/// What two strings have in common. The numbers: flags, and the length of the shortest run that is
/// listed. The run is the other key. → a tree
static COMPARE: Joint = Joint {
    number: 306,
    name: "strings compare",
    level: STRINGS_TOGETHER,
    numbers: 2,
    others: |runs| (runs == 1).then_some((0..1, 1)),
    footprint: |inputs| Footprint {
        given: given(inputs),
        ..VALUES
    },
    run: |inputs, key, rows| COMMON.run(inputs, key, rows),
    ..JOINT
};

pub(super) static COMMON: StringsTogether = StringsTogether {
    joint: &COMPARE,
    store: None,
    wrong_type: Some("ERR The specified keys must contain string values"),
    combine: |inputs, strings, cx| common(inputs, strings, cx).map_err(Outcome::Failed),
};

/// What is asked for: bits of the first number. Without them, it is the string.
const LENGTH: i64 = 1;
const RUNS: i64 = 2;
/// Each run is followed by its length.
const RUN_LENGTHS: i64 = 4;

/// Redis's limit: its table has 512 MB, and four bytes for each pair.
const PAIRS_MAX: usize = 512 << 18;
const TOO_LONG: &str = "ERR Insufficient memory, transient memory for LCS exceeds \
    proto-max-bulk-len";

fn common(inputs: &Inputs, strings: Strings<'_>, cx: &RunContext<'_>) -> Result<Outcome, Failure> {
    let [one, other] = strings else {
        return Ok(Outcome::Nil);
    };
    let (one, other) = (one.unwrap_or_default(), other.unwrap_or_default());
    let [flags, shortest] = inputs.numbers[..] else {
        return Err(Failure::NotAnInteger);
    };
    if (one.len() + 1).saturating_mul(other.len() + 1) > PAIRS_MAX {
        return Ok(ReplyTree::error(TOO_LONG));
    }
    let walks = flags & LENGTH == 0;
    let table = PairTable::of((one, other), walks, cx.budget).ok_or(Failure::TooMuchWork)?;
    let mut tree = ReplyTree::new();
    if !walks {
        tree.count(table.length);
        return Ok(tree.outcome());
    }
    let mut way = WayBack::default();
    table.walk((one, other), &mut way);
    if flags & RUNS == 0 {
        way.letters.reverse();
        tree.bulk(&way.letters);
        return Ok(tree.outcome());
    }
    let shortest = usize::try_from(shortest).unwrap_or(0);
    way.runs.retain(|run| run.length >= shortest);
    tree.map(2);
    tree.bulk(b"matches");
    tree.array(way.runs.len());
    let with_lengths = flags & RUN_LENGTHS != 0;
    for run in way.runs {
        tree.array(2 + usize::from(with_lengths));
        for first in [run.one, run.other] {
            tree.array(2);
            tree.count(first);
            tree.count(first + run.length - 1);
        }
        if with_lengths {
            tree.count(run.length);
        }
        if tree.len() > collection::answer_max(cx) {
            return Err(Failure::TooLarge);
        }
    }
    tree.bulk(b"len");
    tree.count(table.length);
    Ok(tree.outcome())
}

/// What all pairs of beginnings of two strings have in common.
struct PairTable {
    /// A bit for each pair of places: less is lost without the last letter of the first string.
    drops_first: Vec<u64>,
    /// How many letters the strings have in common.
    length: usize,
}

/// A run that two strings have in common: where it begins in each.
#[derive(Debug, Clone, Copy)]
struct CommonRun {
    one: usize,
    other: usize,
    length: usize,
}

/// What the way from the end to the beginning of both strings has passed.
#[derive(Debug, Default)]
struct WayBack {
    letters: Vec<u8>,
    runs: Vec<CommonRun>,
}

impl PairTable {
    /// That of two strings, with what is needed to walk it, or only the length. `None`: it is too
    /// much work.
    fn of((one, other): (&[u8], &[u8]), walks: bool, budget: &Budget) -> Option<Self> {
        let mut drops_first = Vec::new();
        let (mut above, mut row) = (vec![0_u32; other.len() + 1], vec![0_u32; other.len() + 1]);
        let (mut bits, mut used) = (0, 0);
        for letter in one {
            if !budget.copy(other.len()) {
                return None;
            }
            for (at, right) in other.iter().enumerate() {
                let drops = above[at + 1] > row[at];
                row[at + 1] = if letter == right {
                    above[at] + 1
                } else if drops {
                    above[at + 1]
                } else {
                    row[at]
                };
                if walks {
                    bits |= u64::from(drops) << used;
                    used += 1;
                    if used == u64::BITS {
                        drops_first.push(bits);
                        (bits, used) = (0, 0);
                    }
                }
            }
            std::mem::swap(&mut above, &mut row);
        }
        drops_first.push(bits);
        Some(Self {
            drops_first,
            length: above[other.len()] as usize,
        })
    }

    /// Walks from the end of both strings to the beginning of one. Runs end where Redis ends them.
    fn walk(&self, (one, other): (&[u8], &[u8]), way: &mut WayBack) {
        let (mut left, mut right) = (one.len(), other.len());
        let mut run: Option<CommonRun> = None;
        while left > 0 && right > 0 {
            let mut ends = false;
            if one[left - 1] == other[right - 1] {
                way.letters.push(one[left - 1]);
                let grown = match run {
                    None => CommonRun {
                        one: left - 1,
                        other: right - 1,
                        length: 1,
                    },
                    Some(run) if (run.one, run.other) == (left, right) => CommonRun {
                        one: left - 1,
                        other: right - 1,
                        length: run.length + 1,
                    },
                    Some(run) => {
                        ends = true;
                        run
                    }
                };
                ends |= grown.one == 0 || grown.other == 0;
                run = Some(grown);
                (left, right) = (left - 1, right - 1);
            } else {
                let at = (left - 1) * other.len() + right - 1;
                if self.drops_first[at / 64] >> (at % 64) & 1 == 1 {
                    left -= 1;
                } else {
                    right -= 1;
                }
                ends = run.is_some();
            }
            if ends {
                way.runs.extend(run.take());
            }
        }
    }
}

fn parse(c: CommandCall<'_>) -> Parsed {
    let (mut flags, mut shortest, mut at) = (0, 0, 3);
    while at < c.args.len() {
        let option = c.args.get(at);
        flags |= match () {
            () if is(option, "IDX") => RUNS,
            () if is(option, "LEN") => LENGTH,
            () if is(option, "WITHMATCHLEN") => RUN_LENGTHS,
            () if is(option, "MINMATCHLEN") && at + 1 < c.args.len() => {
                at += 1;
                shortest = c.number(at)?.max(0);
                0
            }
            () => return Err(SYNTAX.into()),
        };
        at += 1;
    }
    if flags & LENGTH != 0 && flags & RUNS != 0 {
        let why = "ERR If you want both the length and indexes, please just use IDX.";
        return Err(why.into());
    }
    let action = Action::call(&COMPARE, &[flags, shortest], [c.args.bytes(2)]);
    c.shaped(action, Shape::Tree)
}
