//! Operations that a caller may wait with: they answer that they are blocked, and when they could go
//! on at the latest.
//!
//! The primary of the key executes such an operation again, once it is its turn and the key has
//! changed (`crate::log::waiting`). What it may write then has no number by which a repeated
//! operation is known, because a caller that waits would keep all later numbers open. So an
//! operation may wait only if it names what it takes: if a caller asks again because its answer was
//! lost, it must find that it has it already. An owner of a lock and a claim of a cache do so. An
//! operation that cannot do so waits with a read, and takes in an ordinary operation.

use super::operation::Action;
use super::procedure::{Called, Procedure};
use super::{cached, sync};
use crate::value::outcome::Outcome;
use std::time::Duration;

/// An operation, and what its outcome says: the milliseconds after which it could go on although
/// its key did not change. `None`: it is not blocked.
type Blocking = (&'static Procedure, fn(&Outcome) -> Option<u64>);

static ALL: &[Blocking] = &[
    (&sync::ACQUIRE, sync::blocked),
    (&cached::CLAIM, cached::blocked),
];

impl Action {
    fn blocking(&self) -> Option<&'static Blocking> {
        let Self::Call(call) = self else { return None };
        let Called::One(procedure) = call.called else {
            return None;
        };
        ALL.iter().find(|(one, _)| one.number == procedure.number)
    }

    /// Whether a caller may wait with it.
    pub(crate) fn may_wait(&self) -> bool {
        self.blocking().is_some()
    }

    /// After which time it could go on although its key did not change. `None`: by this outcome it
    /// is not blocked.
    pub(crate) fn blocked(&self, outcome: &Outcome) -> Option<Duration> {
        let (_, blocked) = self.blocking()?;
        blocked(outcome).map(|ms| Duration::from_millis(ms.max(1)))
    }
}
