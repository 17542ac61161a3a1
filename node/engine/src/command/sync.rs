//! Locks, semaphores and rate limiters: each is one key, and each call is one [`Action`] on it that
//! the primary of the key executes. They are no commands of Redis; the library makes them.
//!
//! ```text
//!   acquire(owner, permits, ttl, wait) ──> Action ─── primary ──> Outcome ──> read_acquired
//!
//!   absent ── acquire ──> held ── acquire of another owner ──> held, others wait in line
//!      ^                   │ ^                                   │
//!      └─ release, ttl ────┘ └──────── release or ttl, and the first in line asks again
//! ```
//!
//! # Locks and semaphores
//! A lock is a semaphore with one permit. An *owner* is drawn at random for each attempt to
//! acquire; it has one permit at most. Owners that find no permit wait in line at the primary,
//! first come first served (`Patience::InLine`): an attempt with a wait of 0 that answers
//! [`Acquired::Busy`] is blocked, and is executed again when it is its turn.
//!
//! An attempt with a longer wait has a place in the entry instead, before the others; programs do
//! not ask so any more. Such a waiter asks again to learn whether it is its turn, and so keeps its
//! place: when the key changes (it may subscribe to that), and before `ask_within_ms` are over
//! ([`Acquired::Queued`]). A waiter that has not asked for its `wait_ms` loses its place. An owner
//! with `n` live waiters before it gets a permit only if more than `n` are free, so a free permit
//! waits for the first live waiter.
//!
//! The number of permits comes with each call, and each call is judged by its own number. If calls
//! disagree, nothing is taken away: a call with a smaller number waits until there are fewer
//! holders than that, and a call with a larger number may make more of them. Calls of
//! [`acquire_same`] have to agree: as long as one of them holds or waits, a call with another
//! number gets that number as its answer, and changes nothing.
//!
//! # Fencing tokens
//! Each grant has a *fencing token*: a number above those of all earlier grants of the key. A
//! resource that remembers the highest token that it has seen, and refuses lower ones, is safe from
//! holders that have lost a lock without knowing it. A token is the lineage and the sequence of the
//! write that granted it, or one more than the last token in the entry, whichever is higher. Within
//! a lineage sequences grow, a partition that begins empty has a higher lineage, and a merged one
//! continues after the highest of both. So tokens grow even if the entry was deleted, evicted or
//! expired in between, and over failovers, moves, splits, merges and resets of partitions. That is
//! why nothing is kept of a released lock.
//!
//! Tokens begin at the first one again with a new cluster (nothing is on disk) and with a keyspace
//! that was dropped and created again, and may repeat after an operator's `recover`, which forgets
//! what only dead members knew. And if one transaction acquires a lock, deletes its key and
//! acquires the lock again, both grants are one write and have the same token.
//!
//! # Clocks
//! Everything is decided by the *partition's clock* (`clock.rs`), by which all keys expire. The
//! primary advances it by its monotonic clock, never by wall time, and tells its copies with every
//! log entry, and once a second while keys expire. A new primary goes on with what it last heard
//! and the time that it measured since. So after a failover the clock may be
//!
//! - behind, by how long that message was on its way: deadlines pass later, and nothing is granted
//!   twice;
//! - ahead, by the drift of two clocks (1 % each) during the time in which the copy heard nothing:
//!   20 ms as a rule. The simulation allows for a minute of silence, which makes 1.2 s.
//!
//! A caller counts the time to live by its own monotonic clock from *before* it asked, and the
//! primary from when it executed the call. So if the caller stops 2 % and 1.3 s before the end, as
//! it counts, no other owner was granted the lock by then: a grant is a write, which no later
//! primary forgets, and no primary whose clock is within these bounds sees its end before. Two
//! exceptions remain, and fencing tokens are for them: the partition was reset because every copy
//! of it was lost, or the key was deleted or evicted. Use keyspaces that do not evict. A caller
//! that cannot give up so early relies on the token alone.
//!
//! What a call finds to be over it removes, so that a later primary whose clock is behind does not
//! bring it back. [`look`] changes nothing, and so may see a holder again.
//!
//! Deadlines in a value count back from the deadline of its entry, which is that of the last holder
//! or waiter. A merge moves the clock of a partition and the deadlines of its entries together, and
//! so moves these with them. The entry expires when nothing in it has an effect any more. A client
//! that changes the deadline of such a key moves all of them; without a deadline, the value is
//! refused (`WrongType`).
//!
//! # Rate limiters
//! [`TokenBucket`] is exact to the millisecond. [`SlidingWindow`] is an approximation, as it says.
//! A refused call writes nothing. A limiter whose key is deleted or evicted is full again.

mod bucket;
mod layout;
mod permits;
mod window;

#[cfg(test)]
mod tests;

use crate::command::operation::{Action, Footprint};
use crate::command::procedure::{Inputs, Procedure, WRITES};
use crate::value::outcome::{Failure, Outcome};
pub use bucket::TokenBucket;
pub(crate) use permits::ACQUIRE;
pub use permits::{PERMITS_MAX, WAITERS_MAX};
use std::fmt;
pub use window::SlidingWindow;

/// The longest time to live and the longest wait, in milliseconds: 24 days. Longer ones are cut to
/// it.
pub const MS_MAX: u64 = (1 << 31) - 1;

/// The most tokens, permits of a limit, or what they cost: 2^40.
pub const AMOUNT_MAX: u64 = 1 << 40;

/// The procedures of this module.
pub(crate) static PROCEDURES: &[&Procedure] = &[
    &permits::ACQUIRE,
    &permits::RENEW,
    &permits::RELEASE,
    &permits::CANCEL,
    &permits::LOOK,
    &permits::TURN,
    &bucket::TAKE,
    &window::COUNT,
];

/// Those with which an owner keeps or gives back what it has.
pub(crate) static OF_HOLDERS: [&Procedure; 3] =
    [&permits::RENEW, &permits::RELEASE, &permits::CANCEL];

/// Whether an attempt to acquire a permit takes no place in the entry.
pub(crate) fn takes_no_place(inputs: &Inputs) -> bool {
    inputs.numbers[4] == 0
}

/// Whether an attempt to acquire a permit is blocked, and for how long if the others do nothing
/// more.
pub(crate) fn blocked(outcome: &Outcome) -> Option<u64> {
    match read_acquired(outcome) {
        Ok(Acquired::Queued { ask_within_ms, .. } | Acquired::Busy { ask_within_ms, .. }) => {
            Some(ask_within_ms)
        }
        _ => None,
    }
}

/// An attempt to acquire a permit: a number that no other attempt has, drawn at random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub [u8; 16]);

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl Owner {
    /// The same as inputs of a procedure.
    fn numbers(self) -> [i64; 2] {
        let whole = u128::from_be_bytes(self.0);
        [(whole >> 64) as i64, whole as i64]
    }

    /// The one that has these numbers.
    fn of_numbers([high, low]: [i64; 2]) -> Self {
        let whole = (u128::from(high.cast_unsigned()) << 64) | u128::from(low.cast_unsigned());
        Self(whole.to_be_bytes())
    }
}

/// How many owners may hold a semaphore at the same time: 1 to [`PERMITS_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permits(u16);

impl Permits {
    /// A lock.
    pub const ONE: Self = Self(1);

    /// This number of permits. `None`: it is 0, or above [`PERMITS_MAX`].
    #[must_use]
    pub const fn new(count: u16) -> Option<Self> {
        if count == 0 || count > PERMITS_MAX {
            None
        } else {
            Some(Self(count))
        }
    }

    /// The number.
    #[must_use]
    pub const fn count(self) -> u16 {
        self.0
    }
}

/// Asks for a permit, for `ttl_ms`. If there is none, the owner gets a place in line, which it
/// keeps for `wait_ms` after each time that it asks; with 0 it gets none, and keeps one that it has
/// as it is. A holder that asks gets the same token, and its permit lasts for `ttl_ms` from now, or
/// longer if it was to last longer. → [`read_acquired`]
#[must_use]
pub fn acquire(owner: Owner, permits: Permits, ttl_ms: u64, wait_ms: u64) -> Action {
    let [high, low] = owner.numbers();
    let (ttl, wait) = (number(ttl_ms.clamp(1, MS_MAX)), number(wait_ms.min(MS_MAX)));
    let numbers = [high, low, i64::from(permits.0), ttl, wait];
    Action::call(&permits::ACQUIRE, &numbers, Vec::new())
}

/// [`acquire`], if all callers have to give the same number of permits. → [`read_acquired`]
#[must_use]
pub fn acquire_same(owner: Owner, permits: Permits, ttl_ms: u64, wait_ms: u64) -> Action {
    let [high, low] = owner.numbers();
    let (ttl, wait) = (number(ttl_ms.clamp(1, MS_MAX)), number(wait_ms.min(MS_MAX)));
    let numbers = [high, low, permits::SAME + i64::from(permits.0), ttl, wait];
    Action::call(&permits::ACQUIRE, &numbers, Vec::new())
}

/// Asks for a permit without waiting for one: [`acquire`] with a wait of 0. → [`read_acquired`]
#[must_use]
pub fn try_acquire(owner: Owner, permits: Permits, ttl_ms: u64) -> Action {
    acquire(owner, permits, ttl_ms, 0)
}

/// Makes a permit last for `ttl_ms` from now, or longer if it was to last longer. →
/// [`read_renewed`]
#[must_use]
pub fn renew(owner: Owner, token: u64, ttl_ms: u64) -> Action {
    let [high, low] = owner.numbers();
    let numbers = [high, low, number(token), number(ttl_ms.clamp(1, MS_MAX))];
    Action::call(&permits::RENEW, &numbers, Vec::new())
}

/// Gives a permit back. Those that wait keep their places. → [`read_done`]: whether the owner still
/// had the permit of this token
#[must_use]
pub fn release(owner: Owner, token: u64) -> Action {
    let [high, low] = owner.numbers();
    Action::call(&permits::RELEASE, &[high, low, number(token)], Vec::new())
}

/// Gives up a place in line, and a permit: for an owner that does not wait for its answer any more,
/// and may have been given one meanwhile. → [`read_done`]: whether the owner had one
#[must_use]
pub fn cancel(owner: Owner) -> Action {
    Action::call(&permits::CANCEL, &owner.numbers(), Vec::new())
}

/// Asks whether [`acquire`] would now give the owner a permit, without asking for one: a waiter
/// that is woken by a change asks this first, because it changes nothing and wakes no other waiter.
/// → [`read_done`]
#[must_use]
pub fn is_turn(owner: Owner, permits: Permits) -> Action {
    let [high, low] = owner.numbers();
    let numbers = [high, low, i64::from(permits.0)];
    Action::call(&permits::TURN, &numbers, Vec::new())
}

/// Reads the state of a lock or semaphore. → [`read_looked`]
#[must_use]
pub fn look() -> Action {
    Action::call(&permits::LOOK, &[], Vec::new())
}

/// The answer to [`acquire`] and [`try_acquire`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquired {
    /// The owner has a permit.
    Granted {
        /// The fencing token of the grant.
        token: u64,
        /// For how long, from when the primary executed the call.
        remaining_ms: u64,
    },
    /// The owner waits in line.
    Queued {
        /// How many live waiters are before it.
        place: usize,
        /// How long it may sleep at most before it asks again: until it could be its turn because
        /// holders and waiters before it do nothing more, but no longer than half of its wait.
        ask_within_ms: u64,
    },
    /// There is no permit, and the owner did not want to wait.
    Busy {
        /// How many live waiters would be before it.
        place: usize,
        /// When it could be its turn, if the others do nothing more.
        ask_within_ms: u64,
    },
    /// There is no permit, and [`WAITERS_MAX`] owners wait already.
    QueueFull {
        /// When it could be its turn, if the others do nothing more.
        ask_within_ms: u64,
    },
    /// Holders and waiters have given another number of permits ([`acquire_same`]).
    Otherwise {
        /// That number.
        permits: u16,
    },
}

impl Acquired {
    fn into_outcome(self) -> Outcome {
        let (kind, one, other) = match self {
            Self::Granted {
                token,
                remaining_ms,
            } => (0, number(token), remaining_ms),
            Self::Queued {
                place,
                ask_within_ms,
            } => (1, number(place as u64), ask_within_ms),
            Self::Busy {
                place,
                ask_within_ms,
            } => (2, number(place as u64), ask_within_ms),
            Self::QueueFull { ask_within_ms } => (3, 0, ask_within_ms),
            Self::Otherwise { permits } => (4, permits.into(), 0),
        };
        many(&[kind, one, number(other)])
    }
}

/// What [`look`] finds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Looked {
    /// Permits that are taken.
    pub holders: usize,
    /// Owners that wait in line.
    pub waiters: usize,
    /// The token of the last grant. `None`: there is no holder and no waiter, and nothing is known
    /// of earlier grants.
    pub token: Option<u64>,
}

/// The decision of a rate limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermitDecision {
    /// Whether the call may go on. Only then its cost was taken.
    pub allowed: bool,
    /// How much may still be taken at this moment.
    pub remaining: u64,
    /// Milliseconds until the same call would be allowed, if nothing else is taken before; 0 if it
    /// was allowed. `None`: never, because its cost is above the limit.
    pub retry_ms: Option<u64>,
    /// Milliseconds until the limiter is as if it had never been used, if nothing else is taken.
    pub reset_ms: u64,
}

impl PermitDecision {
    fn into_outcome(self) -> Outcome {
        let Self {
            allowed,
            remaining,
            retry_ms,
            reset_ms,
        } = self;
        let retry = retry_ms.map_or(-1, number);
        many(&[
            i64::from(allowed),
            number(remaining),
            retry,
            number(reset_ms),
        ])
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnansweredReason {
    /// The operation failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// This is the outcome of another operation.
    #[error("this is the outcome of another operation: read it as that one")]
    Foreign,
}

/// The answer to [`acquire`] and [`try_acquire`].
///
/// # Errors
/// The call failed, or this is the outcome of another one.
pub fn read_acquired(outcome: &Outcome) -> Result<Acquired, UnansweredReason> {
    let [kind, one, ms] = numbers(outcome)?;
    let (one, ms) = (natural(one)?, natural(ms)?);
    let place = usize::try_from(one).map_err(|_| UnansweredReason::Foreign)?;
    Ok(match kind {
        0 => Acquired::Granted {
            token: one,
            remaining_ms: ms,
        },
        1 => Acquired::Queued {
            place,
            ask_within_ms: ms,
        },
        2 => Acquired::Busy {
            place,
            ask_within_ms: ms,
        },
        3 => Acquired::QueueFull { ask_within_ms: ms },
        4 => Acquired::Otherwise {
            permits: u16::try_from(one)
                .ok()
                .and_then(Permits::new)
                .ok_or(UnansweredReason::Foreign)?
                .count(),
        },
        _ => return Err(UnansweredReason::Foreign),
    })
}

/// The answer to [`renew`]: for how many milliseconds the owner has its permit, from when the
/// primary executed the call. `None`: the owner has lost it.
///
/// # Errors
/// The call failed, or this is the outcome of another one.
pub fn read_renewed(outcome: &Outcome) -> Result<Option<u64>, UnansweredReason> {
    match outcome {
        Outcome::Nil => Ok(None),
        Outcome::Int(ms) => natural(*ms).map(Some),
        other => Err(unanswered(other)),
    }
}

/// The answer to [`release`] and [`cancel`]: whether there was something to give back or to give
/// up.
///
/// # Errors
/// The call failed, or this is the outcome of another one.
pub fn read_done(outcome: &Outcome) -> Result<bool, UnansweredReason> {
    match outcome {
        Outcome::Int(0) => Ok(false),
        Outcome::Int(1) => Ok(true),
        other => Err(unanswered(other)),
    }
}

/// The answer to [`look`].
///
/// # Errors
/// The call failed, or this is the outcome of another one.
pub fn read_looked(outcome: &Outcome) -> Result<Looked, UnansweredReason> {
    let [holders, waiters, token] = numbers(outcome)?;
    let count = |n| usize::try_from(n).map_err(|_| UnansweredReason::Foreign);
    Ok(Looked {
        holders: count(holders)?,
        waiters: count(waiters)?,
        token: Some(natural(token)?).filter(|token| *token > 0),
    })
}

/// The answer to [`TokenBucket::take`] and [`SlidingWindow::count`].
///
/// # Errors
/// The call failed, or this is the outcome of another one.
pub fn read_decision(outcome: &Outcome) -> Result<PermitDecision, UnansweredReason> {
    let [allowed, remaining, retry, reset] = numbers(outcome)?;
    Ok(PermitDecision {
        allowed: allowed != 0,
        remaining: natural(remaining)?,
        retry_ms: u64::try_from(retry).ok(),
        reset_ms: natural(reset)?,
    })
}

/// What a procedure of this module does that writes.
fn writes(stores: usize) -> Footprint {
    Footprint { stores, ..WRITES }
}

/// As an input or a part of an outcome.
fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn natural(n: i64) -> Result<u64, UnansweredReason> {
    u64::try_from(n).map_err(|_| UnansweredReason::Foreign)
}

fn many(numbers: &[i64]) -> Outcome {
    Outcome::Many(numbers.iter().copied().map(Outcome::Int).collect())
}

/// The numbers of an outcome that has `N` of them.
fn numbers<const N: usize>(outcome: &Outcome) -> Result<[i64; N], UnansweredReason> {
    let Outcome::Many(parts) = outcome else {
        return Err(unanswered(outcome));
    };
    let parts = parts.iter().map(|part| match part {
        Outcome::Int(n) => Ok(*n),
        other => Err(unanswered(other)),
    });
    let numbers: Vec<i64> = parts.collect::<Result<_, _>>()?;
    numbers.try_into().map_err(|_| UnansweredReason::Foreign)
}

const fn unanswered(outcome: &Outcome) -> UnansweredReason {
    match outcome {
        Outcome::Failed(failure) => UnansweredReason::Failed(*failure),
        _ => UnansweredReason::Foreign,
    }
}
