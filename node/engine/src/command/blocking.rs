//! Operations that a caller may wait with: they answer that they are blocked, and when they could
//! go on at the latest. And those with which a caller keeps or gives back what it was given then.
//!
//! The primary of the key executes such an operation again, once it is its turn and the key has
//! changed (`crate::log::waiting`). What it may write then has no number by which a repeated
//! operation is known, because a caller that waits would keep all later numbers open. So an
//! operation may wait only if it names what it takes: if a caller asks again because its answer was
//! lost, it must find that it has it already. An owner of a lock and a claim of a cache do so. An
//! operation that cannot do so, such as a pop, waits with a read that counts what the key holds,
//! and takes in an ordinary operation. What it counts is given to one waiter each, by grants. What
//! only reads (`XREAD`) waits so, too, but without grants.
//!
//! While it is blocked it must change nothing, because each attempt would then be a reason for the
//! next one.

use super::operation::{Action, Operation, Work};
use super::procedure::{Called, Inputs, Procedure};
use super::{cached, queue, sync};
use crate::mutant::{self, broken};
use crate::value::outcome::{Failure, Outcome};
use bytes::Bytes;
use std::time::Duration;

/// An operation that may be blocked.
struct Blocking {
    procedure: &'static Procedure,
    /// Whether it changes nothing while it is blocked.
    rests: fn(&Inputs) -> bool,
    /// What its outcome says, given the number of callers that have a grant for what the key holds:
    /// the milliseconds after which it could go on although its key did not change. `None`: it is
    /// not blocked.
    blocked: fn(&Outcome, usize) -> Option<u64>,
    /// Whether its caller takes in another operation what it waited for.
    grants: bool,
    /// The name of the line that it waits in.
    line: fn(&Inputs) -> Bytes,
}

static BLOCKING: &[Blocking] = &[
    Blocking {
        procedure: &sync::ACQUIRE,
        rests: sync::takes_no_place,
        blocked: |outcome, _| sync::blocked(outcome),
        grants: false,
        line: |_| Bytes::new(),
    },
    Blocking {
        procedure: &cached::CLAIM,
        rests: |inputs| !cached::renews(inputs),
        blocked: |outcome, _| cached::blocked(outcome),
        grants: false,
        line: |_| Bytes::new(),
    },
    waits_for(&super::sorted_sets::LENGTH),
    waits_for(&super::lists::LENGTH),
    Blocking {
        procedure: &queue::READY,
        rests: |_| true,
        blocked: |outcome, grants| {
            let blocked = queue::blocked(outcome, grants)?;
            Some(blocked.map_or(LOOKED_AT_MS, |ms| ms.min(LOOKED_AT_MS)))
        },
        grants: true,
        line: |_| Bytes::new(),
    },
    // As in Redis, a stream that is something else now is an error to those that wait for a group.
    Blocking {
        line: |inputs| inputs.bytes[0].clone(),
        blocked: |outcome, grants| match outcome {
            Outcome::Failed(Failure::WrongType) => None,
            outcome => finds_nothing(outcome, grants),
        },
        ..waits_for(&super::stream_reads::GROUP_WAIT)
    },
    // An entry is for all that wait for one.
    Blocking {
        blocked: |outcome, _| {
            let blocked = matches!(
                outcome,
                Outcome::Int(0) | Outcome::Failed(Failure::WrongType)
            );
            blocked.then_some(LOOKED_AT_MS)
        },
        grants: false,
        line: super::stream_reads::line_of,
        ..waits_for(&super::stream_reads::READ_WAIT)
    },
];

/// A key that is missing, or holds no more than was granted, is looked at again after this time,
/// although nothing has changed it.
const LOOKED_AT_MS: u64 = 3_600_000;

/// A procedure that counts what a key holds. It is blocked while there is nothing for its caller. A
/// key of another kind is nothing to wait for, as in Redis.
const fn waits_for(procedure: &'static Procedure) -> Blocking {
    Blocking {
        procedure,
        rests: |_| true,
        blocked: finds_nothing,
        grants: true,
        line: |_| Bytes::new(),
    }
}

/// What its outcome says: a caller with a grant has one of those that it counted.
fn finds_nothing(outcome: &Outcome, grants: usize) -> Option<u64> {
    let grants = if broken(&mutant::GRANTS_TWICE) {
        0
    } else {
        grants
    };
    let is_for_it = match outcome {
        Outcome::Int(held) => usize::try_from(*held).is_ok_and(|held| held > grants),
        Outcome::Failed(Failure::WrongType) => false,
        _ => true,
    };
    (!is_for_it).then_some(LOOKED_AT_MS)
}

/// Beyond the limit of operations that wait, this part of it is kept for those of holders.
const HOLDERS_PART: usize = 8;

impl Action {
    fn procedure(&self) -> Option<(&'static Procedure, &Inputs)> {
        let Self::Call(call) = self else { return None };
        match call.called {
            Called::One(procedure) => Some((procedure, &call.inputs)),
            Called::Several(_) => None,
        }
    }

    fn blocking(&self) -> Option<(&'static Blocking, &Inputs)> {
        let (procedure, inputs) = self.procedure()?;
        let is_it = |one: &&Blocking| one.procedure.number == procedure.number;
        Some((BLOCKING.iter().find(is_it)?, inputs))
    }

    /// Whether a caller may wait with it.
    pub(crate) fn may_wait(&self) -> bool {
        self.blocking()
            .is_some_and(|(blocking, inputs)| (blocking.rests)(inputs))
    }

    /// Whether its caller takes in another operation what it waited for.
    pub(crate) fn takes_grant(&self) -> bool {
        self.blocking().is_some_and(|(blocking, _)| blocking.grants)
    }

    /// The name of the line in which its caller waits. Lines of one key do not wait for each other.
    pub(crate) fn line(&self) -> Bytes {
        let waits = self.blocking();
        waits.map_or_else(Bytes::new, |(blocking, inputs)| (blocking.line)(inputs))
    }

    /// After which time it could go on although its key did not change, given the number of
    /// `grants` of what the key holds. `None`: by this outcome it is not blocked.
    pub(crate) fn blocked(&self, outcome: &Outcome, grants: usize) -> Option<Duration> {
        let (blocking, _) = self.blocking()?;
        (blocking.blocked)(outcome, grants).map(Duration::from_millis)
    }
}

impl Operation {
    /// The same with bytes of its own: it keeps nothing of the buffer that it was read from.
    pub(crate) fn detached(mut self) -> Self {
        self.key = Bytes::copy_from_slice(&self.key);
        self.action = self.action.detached();
        self
    }

    /// About how many bytes it takes besides its key and itself.
    pub(crate) fn bytes_apart(&self) -> usize {
        self.action.procedure().map_or(0, |(_, inputs)| {
            let runs = inputs
                .bytes
                .iter()
                .map(|run| run.len() + size_of::<Bytes>());
            size_of_val(&inputs.numbers[..]) + runs.sum::<usize>()
        })
    }
}

impl Work {
    /// Whether its caller keeps or gives back with it what it holds: the sooner that happens, the
    /// fewer wait.
    fn is_of_holder(&self) -> bool {
        let Self::Key(operation) = self else {
            return false;
        };
        operation
            .action
            .procedure()
            .is_some_and(|(procedure, inputs)| {
                let is_it = |one: &&Procedure| one.number == procedure.number;
                sync::OF_HOLDERS.iter().any(is_it) || cached::is_of_holder(procedure, inputs)
            })
    }

    /// Whether one more operation may wait for its outcome where this many do, if `most` is the
    /// limit. Those of holders find a place although the others have reached it.
    #[must_use]
    pub fn finds_place(&self, waiting: usize, most: usize) -> bool {
        let kept = most.div_ceil(HOLDERS_PART);
        waiting < most || (waiting < most.saturating_add(kept) && self.is_of_holder())
    }
}
