//! How commands say a pop: its keys, its kind, how many elements it takes, and how long it waits.

use super::pops::{BlockingPop, PopKind};
use super::several::{check_count, key_count};
use super::sorted_sets::positive;
use super::{CommandCall, ErrorText, Parsed, ParsedRequest, SYNTAX, Shape, is};
use crate::command::operation::Action;
use bytes::Bytes;
use std::time::Duration;

/// A longer time to wait is for ever: 100 years.
const FOR_EVER_S: f64 = 100.0 * 365.0 * 86_400.0;

/// The kind of pops that a word of a command says.
pub(super) type KindOfWord = fn(&[u8]) -> Option<&'static PopKind>;

/// What a pop from several keys says, from the number of its keys on: its keys, which elements it
/// takes by a word that `kind` knows, and how many.
fn popping(
    c: CommandCall<'_>,
    from: usize,
    kind: KindOfWord,
) -> Result<(Vec<Bytes>, &'static PopKind, i64), ErrorText> {
    let keys = key_count(c, from)?;
    let at = keys.saturating_add(from + 1);
    if at >= c.args.len() {
        return Err(SYNTAX.into());
    }
    check_count(keys)?;
    let takes = kind(c.args.get(at)).ok_or(SYNTAX)?;
    let wanted = match c.args.len() - at {
        1 => 1,
        3 if is(c.args.get(at + 1), "COUNT") => {
            let wanted = positive(c.args.get(at + 2)).ok().filter(|count| *count > 0);
            wanted.ok_or("ERR count should be greater than 0")?
        }
        _ => return Err(SYNTAX.into()),
    };
    let keys = (from + 1..at).map(|at| c.args.bytes(at)).collect();
    Ok((keys, takes, wanted))
}

/// A pop from several keys that does not wait, as `ZMPOP`.
pub(super) fn pop_now(c: CommandCall<'_>, kind: KindOfWord, shape: Shape) -> Parsed {
    let (mut keys, takes, wanted) = popping(c, 1, kind)?;
    let others = keys.split_off(1);
    c.of_key(2, Action::call(takes.take, &[wanted], others), shape)
}

/// A pop of one element that waits at the keys before the last argument, which is the time.
pub(super) fn pop_one(c: CommandCall<'_>, takes: &'static PopKind) -> Parsed {
    let last = c.args.len() - 1;
    let keys = (1..last).map(|at| c.args.bytes(at)).collect();
    let pop = BlockingPop::of_one(keys, timeout(c, last)?, takes);
    Ok(ParsedRequest::Pop(Box::new(pop)))
}

/// A pop from several keys that waits as long as the first argument says.
pub(super) fn pop_some(c: CommandCall<'_>, kind: KindOfWord, shape: Shape) -> Parsed {
    let (keys, takes, count) = popping(c, 2, kind)?;
    let timeout = timeout(c, 1)?;
    Ok(ParsedRequest::Pop(Box::new(BlockingPop {
        shape,
        count,
        ..BlockingPop::of_one(keys, timeout, takes)
    })))
}

/// How long a command waits, by the argument at this place: seconds.
///
/// # Errors
/// It is no number, negative, or too large for Redis.
pub(super) fn timeout(c: CommandCall<'_>, at: usize) -> Result<Option<Duration>, ErrorText> {
    let text = std::str::from_utf8(c.args.get(at)).ok();
    // Redis takes no blanks, and no number that is none.
    let seconds = text.and_then(|text| text.parse::<f64>().ok());
    let seconds = seconds
        .filter(|seconds| !seconds.is_nan())
        .ok_or("ERR timeout is not a float or out of range")?;
    if seconds * 1_000.0 > i64::MAX as f64 {
        return Err("ERR timeout is out of range".into());
    }
    if seconds < 0.0 {
        return Err("ERR timeout is negative".into());
    }
    let lasts = (seconds > 0.0 && seconds < FOR_EVER_S).then(|| Duration::from_secs_f64(seconds));
    // It is counted in milliseconds, and none of them is 0.
    Ok(lasts.map(|lasts| lasts.max(Duration::from_millis(1))))
}
