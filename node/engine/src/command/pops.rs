//! Pops that wait while all of their keys are empty, as `BLPOP` does.
//!
//! ```text
//!   take, from each key in order ── nothing ──> wait, at each key ── granted ──> take, from that key
//!                                                    ▲                                │
//!                                                    └──── another client was faster ─┘
//! ```
//! What is taken is taken by an ordinary operation, which is applied once at most, so it is waited
//! for by an operation that only reads (`super::blocking`). Where nothing may wait, in transactions
//! and scripts, the pop takes from the first key that is not empty, or answers that there is none.

use super::Shape;
use super::call::CommandCall;
use super::error::ErrorText;
use super::operation::Action;
use super::sorted_joints::pop_first;
use super::sorted_sets;
use crate::value::outcome::Outcome;
use bytes::Bytes;
use std::time::Duration;

/// A longer time to wait is for ever: 100 years.
const FOR_EVER_S: f64 = 100.0 * 365.0 * 86_400.0;

/// A pop that waits while all of its keys are empty.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockingPop {
    /// Its keys, in the order in which they are looked at.
    pub keys: Vec<Bytes>,
    /// How long it waits. `None`: for ever.
    pub timeout: Option<Duration>,
    /// How what it takes is answered.
    pub shape: Shape,
    pub(super) takes: PopKind,
}

/// What is taken.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PopKind {
    /// Members of a sorted set with the lowest scores, or with the highest, up to a number.
    Scored { most: bool, count: i64 },
}

impl BlockingPop {
    /// A pop of the member with the lowest score of the first of these sorted sets that has any.
    #[doc(hidden)]
    #[must_use]
    pub const fn of_least(keys: Vec<Bytes>, timeout: Option<Duration>) -> Self {
        Self::of_one(keys, timeout, false)
    }

    /// The same, or of the one with the highest score.
    pub(super) const fn of_one(keys: Vec<Bytes>, timeout: Option<Duration>, most: bool) -> Self {
        Self {
            keys,
            timeout,
            shape: Shape::PoppedOne,
            takes: PopKind::Scored { most, count: 1 },
        }
    }

    /// The operation that takes from the first of these keys that is not empty. Its outcome is
    /// `Nil` if there is none.
    #[must_use]
    pub fn take(&self, keys: &[Bytes]) -> (Bytes, Action) {
        let (key, others) = match keys.split_first() {
            Some((key, others)) => (key.clone(), others.to_vec()),
            None => (Bytes::new(), Vec::new()),
        };
        let PopKind::Scored { most, count } = self.takes;
        (key, Action::call(pop_first(most), &[count], others))
    }

    /// The operation that waits at a key until it is not empty.
    #[must_use]
    pub fn wait(&self) -> Action {
        match self.takes {
            PopKind::Scored { .. } => Action::call(&sorted_sets::LENGTH, &[], Vec::new()),
        }
    }

    /// The operation that puts back what was taken, with its key. `None`: it need not be put back,
    /// because nothing was taken or it is in another key.
    #[must_use]
    pub fn put_back(&self, taken: &Outcome) -> Option<(Bytes, Action)> {
        let Outcome::Many(parts) = taken else {
            return None;
        };
        let [Outcome::Bulk(key), Outcome::Many(members)] = &parts[..] else {
            return None;
        };
        Some((Bytes::copy_from_slice(key), sorted_sets::add_again(members)))
    }
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
