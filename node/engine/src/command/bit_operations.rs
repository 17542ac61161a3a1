//! `BITOP`: strings of several keys, combined bit by bit.

use super::call::CommandCall;
use super::several::check_count;
use super::together::{Strings, StringsTogether, stores_gathered, stores_result};
use super::{Access, Description, ParseFn, Parsed, Rights, SYNTAX, Shape, command, is};
use crate::command::operation::Action;
use crate::command::procedure::{Inputs, JOINT, Joint, count};
use crate::store::run_context::RunContext;
use crate::value::outcome::{Failure, Outcome, Value};
use bytes::Bytes;
use doyen_placement::level::STRINGS_TOGETHER;

pub(super) const ROWS: &[Description<ParseFn>] =
    &[command("bitop", "2.6.0", -4, "bitmap", "write denyoom")
        .on(
            (2, -1, 1),
            Access::Pair(Rights::WRITE, Rights::READ),
            "bitmap",
        )
        .about("Perform bitwise operations between strings")
        .parse(parse)];

pub(crate) static JOINTS: &[&Joint] = &[&COMBINE, &STORE];

/// The first of these numbers.
const NUMBER: u16 = 300;

/// Gives the key what comes of the strings of others, as the number says ([`BitOperator`]); deletes
/// it if they are all absent. The runs are the other keys. → `Int`, the length
static COMBINE: Joint = Joint {
    number: NUMBER,
    name: "bits combine",
    event: "set",
    level: STRINGS_TOGETHER,
    numbers: 1,
    others: |runs| (runs > 0).then_some((0..runs, 1)),
    footprint: stores_result,
    run: |inputs, key, rows| BITS.run(inputs, key, rows),
    ..JOINT
};

/// The same with strings of several partitions, which were combined: gives the key the run.
static STORE: Joint = Joint {
    number: NUMBER + 1,
    name: "bits store gathered",
    event: "set",
    level: STRINGS_TOGETHER,
    others: |runs| (runs == 1).then_some((0..0, 1)),
    footprint: stores_gathered,
    run: |inputs, (map, key), rows| {
        let value = inputs.bytes[0].clone();
        if value.is_empty() {
            rows.step(map, key, &Action::Delete);
            return Outcome::Int(0);
        }
        let length = count(value.len());
        match rows.step(map, key, &Action::set(value)) {
            Outcome::Failed(failure) => Outcome::Failed(failure),
            _ => length,
        }
    },
    ..JOINT
};

pub(super) static BITS: StringsTogether = StringsTogether {
    joint: &COMBINE,
    store: Some(&STORE),
    wrong_type: None,
    combine,
};

/// What becomes of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BitOperator {
    And,
    Or,
    ExclusiveOr,
    Not,
}

impl BitOperator {
    const fn of_number(number: i64) -> Self {
        match number {
            0 => Self::And,
            1 => Self::Or,
            2 => Self::ExclusiveOr,
            _ => Self::Not,
        }
    }
}

/// Behind its end, a string has zeros.
fn combine(inputs: &Inputs, strings: Strings<'_>, cx: &RunContext<'_>) -> Result<Outcome, Outcome> {
    let how = BitOperator::of_number(inputs.numbers[0]);
    let mut all = strings.iter().map(|string| string.unwrap_or_default());
    let longest = all.clone().map(<[u8]>::len).max().unwrap_or(0);
    let mut result = all.next().unwrap_or_default().to_vec();
    result.resize(longest, 0);
    cx.budget.copy(longest);
    for string in all {
        if !cx.budget.copy(longest) {
            return Err(Outcome::Failed(Failure::TooMuchWork));
        }
        let (own, rest) = result.split_at_mut(string.len());
        match how {
            BitOperator::And => {
                own.iter_mut()
                    .zip(string)
                    .for_each(|(own, other)| *own &= other);
                rest.fill(0);
            }
            BitOperator::Or => own
                .iter_mut()
                .zip(string)
                .for_each(|(own, other)| *own |= other),
            BitOperator::ExclusiveOr => {
                own.iter_mut()
                    .zip(string)
                    .for_each(|(own, other)| *own ^= other);
            }
            BitOperator::Not => {}
        }
    }
    if how == BitOperator::Not {
        result.iter_mut().for_each(|byte| *byte = !*byte);
    }
    Ok(Outcome::Bulk(Value::from(&result[..])))
}

fn parse(c: CommandCall<'_>) -> Parsed {
    let how = match c.args.get(1) {
        word if is(word, "AND") => BitOperator::And,
        word if is(word, "OR") => BitOperator::Or,
        word if is(word, "XOR") => BitOperator::ExclusiveOr,
        word if is(word, "NOT") => BitOperator::Not,
        _ => return Err(SYNTAX.into()),
    };
    if how == BitOperator::Not && c.args.len() != 4 {
        return Err("ERR BITOP NOT must be called with a single source key.".into());
    }
    check_count(c.args.len() - 2)?;
    let sources: Vec<Bytes> = (3..c.args.len()).map(|at| c.args.bytes(at)).collect();
    let action = Action::call(&COMBINE, &[how as i64], sources);
    c.of_key(2, action, Shape::Plain)
}
