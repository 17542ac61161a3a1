//! Checks of callers that wait at a primary for a key to change.

use super::shards::{Shards, next, table};
use crate::action_of;
use doyen_engine::op::Outcome;
use doyen_engine::sync::{self, Acquired, Owner, Permits};
use std::time::Duration;

const KEY: &str = "lock";

/// Three nodes. The first leads. The owner 1 has the lock, through the third.
fn held() -> Result<(Shards, u64), String> {
    let mut s = Shards::new(3);
    s.show_all(&table(3, &[1, 2]));
    let asked = s.submit(3, KEY, acquire(1));
    let outcome = s.done(asked, 500, "a lock that is free")?;
    Ok((s, token(&outcome)?))
}

fn acquire(owner: u8) -> doyen_engine::op::Action {
    sync::try_acquire(Owner([owner; 16]), Permits::ONE, 60_000)
}

/// The token of a grant.
fn token(outcome: &Outcome) -> Result<u64, String> {
    match sync::read_acquired(outcome) {
        Ok(Acquired::Granted { token, .. }) => Ok(token),
        other => Err(format!("it is not granted: {other:?}")),
    }
}

/// The owner 1 gives the lock back.
fn release(s: &mut Shards, token: u64) -> Result<(), String> {
    let released = s.submit(3, KEY, sync::release(Owner([1; 16]), token));
    s.done(released, 500, "a lock is given back").map(drop)
}

/// The outcome of an owner that waited.
fn goes_on(s: &mut Shards, waiting: u64, why: &str) -> Result<(), String> {
    match s.done(waiting, 500, why)? {
        Outcome::Many(parts) => token(&parts[1]).map(drop),
        other => Err(format!("{why}: {other:?}")),
    }
}

/// A lock is given back: the owner that waits has it at once.
pub(super) fn a_change_wakes_the_first_that_waits() -> Result<(), String> {
    let (mut s, token) = held()?;
    let waiting = s.waits(2, KEY, acquire(2), Duration::from_secs(600));
    s.run(20)?;
    release(&mut s, token)?;
    goes_on(&mut s, waiting, "the lock was given back")
}

/// The tenure ends while an owner waits, and the next one begins: the owner still waits there.
pub(super) fn those_that_wait_ask_the_next_primary() -> Result<(), String> {
    for in_sync in [[2, 1], [1, 2]] {
        let (mut s, token) = held()?;
        let waiting = s.waits(3, KEY, acquire(2), Duration::from_secs(600));
        let here = s.waits(1, KEY, acquire(2), Duration::from_secs(600));
        s.run(20)?;
        s.show_all(&next(&table(3, &[1, 2]), &in_sync, &[]));
        s.run(700)?;
        release(&mut s, token)?;
        goes_on(
            &mut s,
            waiting,
            "the lock was given back at the next primary",
        )?;
        goes_on(&mut s, here, "its owner has the lock already")?;
    }
    Ok(())
}

/// An owner asks the next primary before that one may answer: it has the free lock once it may.
pub(super) fn those_that_come_early_go_on_once_the_primary_is_open() -> Result<(), String> {
    let (mut s, _) = held()?;
    s.show_all(&next(&table(3, &[1, 2]), &[2, 1], &[]));
    let long = Duration::from_secs(600);
    let waiting = s.waits(3, "free", acquire(2), long);
    let here = s.waits(2, "free too", acquire(2), long);
    s.run(700)?;
    goes_on(&mut s, waiting, "the lock is free")?;
    goes_on(&mut s, here, "this one, too")
}

/// An owner that does not wait any more gets nothing: the lock is free.
pub(super) fn those_that_leave_get_nothing() -> Result<(), String> {
    let (mut s, token) = held()?;
    let waiting = s.waits(2, KEY, acquire(2), Duration::from_secs(600));
    s.run(20)?;
    s.leaves(2, waiting);
    s.run(20)?;
    release(&mut s, token)?;
    s.run(20)?;
    let asked = s.submit(3, KEY, acquire(3));
    let outcome = s.done(asked, 500, "the next owner")?;
    self::token(&outcome).map(drop)
}

/// Two callers that wait for an element of a key, through two nodes, and the first one was told
/// that there is one.
fn told() -> Result<(Shards, [u64; 2]), String> {
    let mut s = Shards::new(3);
    s.show_all(&table(3, &[1, 2]));
    let long = Duration::from_secs(600);
    let mut waiting = [0; 2];
    for (place, token) in [3, 2].into_iter().zip(&mut waiting) {
        *token = s.waits(place, KEY, action_of(&["ZCARD", "key"]), long);
        s.run(20)?;
    }
    let pushed = s.submit(3, KEY, action_of(&["ZADD", "key", "1", "element"]));
    s.done(pushed, 500, "an element is pushed")?;
    s.done(waiting[0], 500, "the first that waits is told")?;
    Ok((s, waiting))
}

/// One element comes: one of those that wait hears of it.
pub(super) fn one_thing_is_granted_to_one_caller() -> Result<(), String> {
    let (mut s, [_, second]) = told()?;
    s.run(100)?;
    match s.outcome(second) {
        None => Ok(()),
        Some(outcome) => Err(format!(
            "there is nothing for it, and it is told: {outcome:?}"
        )),
    }
}

/// The caller that has the grant takes nothing: the next one has it after a lease.
pub(super) fn a_grant_that_is_not_used_is_the_next_callers() -> Result<(), String> {
    let (mut s, [_, second]) = told()?;
    s.done(second, 2_000, "the first one has taken nothing for a lease")
        .map(drop)
}
