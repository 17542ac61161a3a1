//! `INCREX`: adds to a number within bounds, and gives its key a deadline.

use super::call::Unit;
use super::{
    Access, CommandCall, Description, ErrorText, NOT_A_FLOAT, ONE_KEY, ParseFn, Parsed, SYNTAX,
    Shape, command, is,
};
use crate::command::action::{failed, set};
use crate::command::operation::{Action, Condition, Expiry, Footprint};
use crate::command::procedure::{Inputs, Procedure, WRITES, procedure};
use crate::store::change::KeyChange;
use crate::store::run_context::RunContext;
use crate::value::entry::Entry;
use crate::value::extended::Extended;
use crate::value::integer::integer;
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome, Value};
use bytes::Bytes;

pub(super) const ROWS: &[Description<ParseFn>] = &[command(
    "increx",
    "8.8.0",
    -2,
    "string",
    "write denyoom fast",
)
.on(ONE_KEY, Access::BOTH, "string")
.about(
    "Increments the numeric value of a key by a number and sets its expiration time. Uses 0 as \
         initial value if the key doesn't exist.",
)
.parse(increase)];

pub(crate) static PROCEDURES: &[&Procedure] = &[&INCREASE];

/// The longest text of a decimal number that this stores.
const TEXT_BYTES: usize = 64;

/// Adds to a number. A sum that is out of bounds is not written, or the bound is written in its
/// place. → `Many` of the value and of what was added: `Int`s, or `Bulk`s of decimal numbers
static INCREASE: Procedure = procedure(47, "increase", Kind::String, (8, 3))
    .costs(|inputs| Footprint {
        given: inputs.given(),
        stores: TEXT_BYTES,
        ..WRITES
    })
    .told_as("incrby")
    .on_entry(|inputs, entry, cx| match inputs.numbers[0] {
        0 => whole(inputs, entry, cx),
        _ => decimal(inputs, entry, cx),
    });

fn whole(inputs: &Inputs, entry: Option<&Entry>, cx: &RunContext) -> (Outcome, KeyChange) {
    let [_, by, lower, upper, saturates, ..] = inputs.numbers[..] else {
        return failed(Failure::NotAnInteger);
    };
    let Some(old) = entry.map_or(Some(0), |e| integer(e.value())) else {
        return failed(Failure::NotAnInteger);
    };
    let sum = i128::from(old) + i128::from(by);
    let bounded = sum.clamp(lower.into(), upper.into());
    let both =
        |value: i64, added: i64| Outcome::Many(vec![Outcome::Int(value), Outcome::Int(added)]);
    if sum != bounded && saturates == 0 {
        return (both(old, 0), KeyChange::None);
    }
    // The bounds are such numbers, but the way to one may be too long for one.
    let (Ok(new), Ok(added)) = (
        i64::try_from(bounded),
        i64::try_from(bounded - i128::from(old)),
    ) else {
        return failed(Failure::Overflow);
    };
    written(inputs, entry, (new.to_string(), both(new, added)), cx)
}

fn decimal(inputs: &Inputs, entry: Option<&Entry>, cx: &RunContext) -> (Outcome, KeyChange) {
    let number = |at: usize| match &inputs.bytes[at] {
        text if text.is_empty() => Some(None),
        text => Extended::parse(text).map(Some),
    };
    let (Some(Some(by)), Some(lower), Some(upper)) = (number(0), number(1), number(2)) else {
        return failed(Failure::NotAFloat);
    };
    let Some(old) = entry.map_or(Some(Extended::ZERO), |e| Extended::parse(e.value())) else {
        return failed(Failure::NotAFloat);
    };
    let sum = old.plus(by);
    let below = lower.filter(|lower| sum.is_below(*lower));
    let above = upper.filter(|upper| upper.is_below(sum));
    let saturates = inputs.numbers[4] != 0;
    let bulk = |number: Extended| Outcome::Bulk(Value::from(number.text().as_bytes()));
    let new = below.or(above).unwrap_or(sum);
    if !saturates && (below.or(above).is_some() || !sum.is_finite()) {
        let both = vec![bulk(old), bulk(Extended::ZERO)];
        return (Outcome::Many(both), KeyChange::None);
    }
    let added = new.plus(old.negated());
    if !new.is_finite() || !added.is_finite() {
        return failed(Failure::Overflow);
    }
    let both = Outcome::Many(vec![bulk(new), bulk(added)]);
    written(inputs, entry, (new.text(), both), cx)
}

/// Writes the new value, with its deadline.
fn written(
    inputs: &Inputs,
    entry: Option<&Entry>,
    (text, outcome): (String, Outcome),
    cx: &RunContext,
) -> (Outcome, KeyChange) {
    let [.., unit, ms, only_new] = inputs.numbers[..] else {
        return failed(Failure::NotAnInteger);
    };
    let dated = entry.is_some_and(|entry| entry.deadline() != 0);
    let expiry = if only_new != 0 && dated {
        Expiry::Keep
    } else {
        Expiry::of_numbers([unit, ms])
    };
    let value = Bytes::from(text);
    match set(entry, &value, Condition::Always, expiry, false, cx) {
        (Outcome::Failed(failure), _) => failed(failure),
        (_, change) => (outcome, change),
    }
}

/// What the options name: the places of their arguments.
#[derive(Default)]
struct IncreaseOptions {
    by: Option<(bool, usize)>,
    lower: Option<usize>,
    upper: Option<usize>,
    saturates: bool,
    deadline: Option<(Unit, usize)>,
    persists: bool,
    only_new: bool,
}

fn options(c: CommandCall<'_>) -> Result<IncreaseOptions, ErrorText> {
    let (args, mut all) = (c.args, IncreaseOptions::default());
    let mut i = 2;
    while i < args.len() {
        let (arg, next) = (args.get(i), i + 1);
        let takes = |free: bool| free && next < args.len();
        if is(arg, "SATURATE") && !all.saturates {
            all.saturates = true;
        } else if is(arg, "ENX") && !all.only_new {
            all.only_new = true;
        } else if is(arg, "PERSIST") && all.deadline.is_none() && !all.persists {
            all.persists = true;
        } else if (is(arg, "BYINT") || is(arg, "BYFLOAT")) && takes(all.by.is_none()) {
            all.by = Some((is(arg, "BYFLOAT"), next));
            i = next;
        } else if is(arg, "LBOUND") && takes(all.lower.is_none()) {
            all.lower = Some(next);
            i = next;
        } else if is(arg, "UBOUND") && takes(all.upper.is_none()) {
            all.upper = Some(next);
            i = next;
        } else if let Some(unit) =
            Unit::of_option(arg).filter(|_| takes(all.deadline.is_none() && !all.persists))
        {
            all.deadline = Some((unit, next));
            i = next;
        } else {
            return Err(SYNTAX.into());
        }
        i += 1;
    }
    if all.only_new && all.deadline.is_none() {
        return Err("ERR ENX needs one of EX, PX, EXAT and PXAT".into());
    }
    Ok(all)
}

fn increase(c: CommandCall<'_>) -> Parsed {
    let all = options(c)?;
    let expiry = match all.deadline {
        Some((unit, at)) => c.positive_deadline(unit, at)?,
        None if all.persists => Expiry::None,
        None => Expiry::Keep,
    };
    let [unit, ms] = expiry.numbers();
    let (saturates, only_new) = (i64::from(all.saturates), i64::from(all.only_new));
    let decimal = all.by.is_some_and(|(decimal, _)| decimal);
    let by = all.by.map(|(_, at)| at);
    let bounds = || ErrorText::from("ERR LBOUND must not be greater than UBOUND");
    if decimal {
        let read = |at: Option<usize>| {
            let text = at.map(|at| c.args.get(at));
            let number = text.map(|text| Extended::parse(text).filter(|n| n.is_finite()));
            match number {
                Some(None) => Err(ErrorText::from(NOT_A_FLOAT)),
                Some(Some(number)) => Ok((at.map(|at| c.args.bytes(at)), Some(number))),
                None => Ok((None, None)),
            }
        };
        let (by, lower, upper) = (read(by)?, read(all.lower)?, read(all.upper)?);
        if let (Some(lower), Some(upper)) = (lower.1, upper.1)
            && upper.is_below(lower)
        {
            return Err(bounds());
        }
        let texts = [by.0, lower.0, upper.0].map(Option::unwrap_or_default);
        let numbers = [1, 0, 0, 0, saturates, unit, ms, only_new];
        let action = Action::call(&INCREASE, &numbers, Vec::from(texts));
        return c.shaped(action, Shape::Float);
    }
    let number = |at: Option<usize>, otherwise| at.map_or(Ok(otherwise), |at| c.number(at));
    let (by, lower, upper) = (
        number(by, 1)?,
        number(all.lower, i64::MIN)?,
        number(all.upper, i64::MAX)?,
    );
    if lower > upper {
        return Err(bounds());
    }
    let numbers = [0, by, lower, upper, saturates, unit, ms, only_new];
    c.one(Action::call(&INCREASE, &numbers, vec![Bytes::new(); 3]))
}

impl Action {
    /// Adds to a 64-bit integer if the sum is within these bounds, and gives its key a deadline:
    /// with `only_new`, only if it has none. → `Many` of the value and of what was added, `Int`s
    #[must_use]
    pub fn add_within(by: i64, (lower, upper): (i64, i64), expiry: Expiry, only_new: bool) -> Self {
        let [unit, ms] = expiry.numbers();
        let numbers = [0, by, lower, upper, 0, unit, ms, only_new.into()];
        Self::call(&INCREASE, &numbers, vec![Bytes::new(); 3])
    }
}

#[cfg(test)]
mod tests {
    use crate::command::action::apply;
    use crate::command::{Arguments, COMMANDS, ParsedRequest};
    use crate::store::FoundKey;
    use crate::store::change::KeyChange;
    use crate::store::run_context::RunContext;
    use crate::value::entry::Entry;
    use crate::value::outcome::Outcome;
    use bytes::Bytes;

    /// A value and its deadline.
    type Held = Option<(&'static str, u64)>;

    fn cx() -> RunContext<'static> {
        RunContext::at(1_000, 1_700_000_000_000)
    }

    /// The reply, and the value and the deadline that are written, by the partition's clock.
    fn run(line: &str, value: Option<(&str, u64)>) -> (String, Option<(String, u64)>) {
        let words: Vec<Bytes> = line
            .split(' ')
            .map(|word| Bytes::copy_from_slice(word.as_bytes()))
            .collect();
        let args: &dyn Arguments = &words.as_slice();
        let request = COMMANDS
            .find(args)
            .and_then(|spec| spec.request(args, cx().unix_ms));
        let action = match request {
            Ok(ParsedRequest::One { action, .. }) => action,
            Ok(other) => panic!("{line}: {other:?}"),
            Err(why) => return (why.0.into_owned(), None),
        };
        let entry = value.map(|(value, at)| Entry::new(b"k", value.as_bytes(), at << 16, 0));
        let found = FoundKey {
            entry: entry.as_ref(),
            ..FoundKey::default()
        };
        let (outcome, change) = apply(&action, found, &cx());
        let text = |outcome: &Outcome| match outcome {
            Outcome::Int(n) => n.to_string(),
            Outcome::Bulk(value) => String::from_utf8_lossy(value).into_owned(),
            other => format!("{other:?}"),
        };
        let reply = match &outcome {
            Outcome::Many(both) => both.iter().map(text).collect::<Vec<_>>().join(" "),
            other => text(other),
        };
        let written = match change {
            KeyChange::None => None,
            KeyChange::Put { value, deadline } => {
                let at = crate::value::deadline::clock(deadline);
                Some((String::from_utf8_lossy(&value).into_owned(), at))
            }
            other => panic!("{other:?}"),
        };
        (reply, written)
    }

    #[test]
    fn it_adds_within_bounds_and_dates_its_key() {
        let (min, max) = (i64::MIN, i64::MAX);
        let cases: &[(&str, Held, &str, Held)] = &[
            ("", None, "1 1", Some(("1", 0))),
            (
                "BYINT 5",
                Some(("100", 7_000)),
                "105 5",
                Some(("105", 7_000)),
            ),
            ("BYINT -10", Some(("5", 0)), "-5 -10", Some(("-5", 0))),
            ("BYINT 5 UBOUND 100", Some(("99", 0)), "99 0", None),
            (
                "BYINT 5 UBOUND 100 SATURATE",
                Some(("99", 0)),
                "100 1",
                Some(("100", 0)),
            ),
            (
                "BYINT -5 LBOUND 0 SATURATE",
                Some(("3", 0)),
                "0 -3",
                Some(("0", 0)),
            ),
            ("UBOUND 10", Some(("50", 0)), "50 0", None),
            (
                "UBOUND 10 SATURATE",
                Some(("50", 0)),
                "10 -40",
                Some(("10", 0)),
            ),
            ("PX 500", Some(("1", 0)), "2 1", Some(("2", 1_500))),
            ("EX 1 ENX", Some(("1", 0)), "2 1", Some(("2", 2_000))),
            ("EX 1 ENX", Some(("1", 7_000)), "2 1", Some(("2", 7_000))),
            ("PERSIST", Some(("1", 7_000)), "2 1", Some(("2", 0))),
            (
                "BYFLOAT 0.25",
                Some(("1.5", 0)),
                "1.75 0.25",
                Some(("1.75", 0)),
            ),
            ("BYFLOAT 5 UBOUND 2.5", Some(("1.5", 0)), "1.5 0", None),
            (
                "BYFLOAT 5 UBOUND 2.5 SATURATE",
                Some(("1.5", 0)),
                "2.5 1",
                Some(("2.5", 0)),
            ),
            (
                "BYFLOAT -5 LBOUND -1.5 SATURATE",
                None,
                "-1.5 -1.5",
                Some(("-1.5", 0)),
            ),
        ];
        for (options, before, reply, after) in cases {
            let line = format!("INCREX k {options}");
            let (replied, written) = run(line.trim_end(), *before);
            assert_eq!(replied, *reply, "{line}");
            let written = written.as_ref().map(|(value, at)| (value.as_str(), *at));
            assert_eq!(written, *after, "{line}");
        }
        let full = max.to_string();
        assert_eq!(
            run("INCREX k", Some((&full, 0))),
            (format!("{max} 0"), None)
        );
        let (reply, _) = run("INCREX k SATURATE", Some((&full, 0)));
        assert_eq!(reply, format!("{max} 0"));
        let far = format!("INCREX k BYINT -1 UBOUND {min} SATURATE");
        assert!(run(&far, Some((&full, 0))).0.contains("Overflow"));
    }

    #[test]
    fn mistakes_are_told_and_change_nothing() {
        for (options, error) in [
            ("BYINT x", "ERR value is not an integer or out of range"),
            ("BYFLOAT x", "ERR value is not a valid float"),
            ("BYFLOAT inf", "ERR value is not a valid float"),
            ("BYINT 1 BYFLOAT 2", "ERR syntax error"),
            ("BYINT", "ERR syntax error"),
            ("EX 5 PERSIST", "ERR syntax error"),
            ("EX 5 PX 5", "ERR syntax error"),
            ("LBOUND 1.5", "ERR value is not an integer or out of range"),
            ("EX 0", "ERR invalid expire time in 'increx' command"),
            ("ENX", "ERR ENX needs one of EX, PX, EXAT and PXAT"),
            (
                "LBOUND 2 UBOUND 1",
                "ERR LBOUND must not be greater than UBOUND",
            ),
            (
                "BYFLOAT 1 LBOUND 2 UBOUND 1",
                "ERR LBOUND must not be greater than UBOUND",
            ),
        ] {
            let line = format!("INCREX k {options}");
            assert_eq!(run(&line, None), (error.to_owned(), None), "{line}");
        }
        let (reply, written) = run("INCREX k", Some(("1.5", 0)));
        assert!(reply.contains("NotAnInteger") && written.is_none());
        let (reply, written) = run("INCREX k BYFLOAT 1", Some(("x", 0)));
        assert!(reply.contains("NotAFloat") && written.is_none());
    }
}
