//! Queues of jobs: each is one key, and each call is one [`Action`] on it that the primary of the
//! key executes. They are no commands of Redis; the library makes them.
//!
//! ```text
//!   push ──> waiting ── due, take ──> leased ── done ──> gone
//!              ^  ^                    │    │
//!              │  └── retry, or the    │    └── the attempts are used up ──> dead
//!              │      lease lapses ────┘                                      │
//!              └────────────────────────── revive ────────────────────────────┘
//! ```
//!
//! # How a queue is stored
//! The key holds a sorted set. A job is one member of it, and its value begins with its score:
//! ```text
//!   member   number of the write that pushed it (8), place in that push (4)
//!   value    score (8)  token (8)  place (4)  state (1)  attempts (4)  pushed at (8)  the job
//! ```
//! The score is the moment at which the job is due: when its delay, or its lease, is over. The
//! score of a dead job is infinite. So the order of the sorted set is the order in which jobs are
//! taken, and one call costs O(log n), however many jobs there are. A queue is logged, copied,
//! moved and merged as other sorted sets are. Numbers are stored with their highest byte first.
//!
//! # States
//! - *waiting*: it can be taken once it is due.
//! - *leased*: one caller works on it. When its lease is over it is due again: the next call of
//!   [`take`] takes it, or finds that its attempts are used up and makes it dead. Until then its
//!   owner still has it, even if the lease is over.
//! - *dead*: it is not taken any more, until [`revive`] makes it wait again.
//!
//! # Tokens
//! Each take gives the job a fencing token: the number of the write, or one more than the former
//! token of the job, whichever is higher. Numbers of writes to a key grow over failovers, moves,
//! splits, merges and resets (`super::sync`). [`done`], [`retry`] and [`extend`] name the token, and
//! are refused if the job has another one, waits, is dead or is gone. So an owner whose job was
//! given to another caller changes nothing.
//!
//! # What may happen twice
//! A job is delivered *at least once*: it is taken again if its owner does not say in time that it
//! is done, whether the owner is dead or only slow. A call that is sent again after a failover is
//! executed once, because its number is known (`crate::role`). But if a caller does not learn the
//! outcome of [`take`], the job stays leased, and no caller works on it, until the lease is over.
//! That costs an attempt. If it does not learn the outcome of [`push`] and pushes again, there are
//! two jobs.
//!
//! # Clocks
//! Scores are wall times of the primary, so that a merge of partitions does not move them. After a
//! failover, leases and delays end earlier or later by as much as the clocks of two members
//! differ. Tokens do not depend on any clock.

use super::collections::{CollectionDone, failed};
use super::operation::{Action, Footprint, stores};
use super::procedure::{Inputs, Procedure, VALUES, WRITES, procedure};
use super::sorted_ranges::Ordered;
use crate::mutant::{self, broken};
use crate::store::collection::{CollectionView, Edit, FieldDeadline};
use crate::store::run_context::RunContext;
use crate::value::items::{Items, packed, put};
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome, Value};
use crate::value::types::sorted_set::{SCORE_BYTES, score_of, stored_score};
use bytes::Bytes;
use std::fmt;
use std::str::FromStr;

/// The longest delay and the longest lease, in milliseconds: some 1,000 years.
pub const MS_MAX: u64 = 1 << 45;

/// The procedures of this module.
pub(crate) static PROCEDURES: &[&Procedure] = &[
    &PUSH, &TAKE, &DONE, &RETRY, &EXTEND, &READY, &COUNT, &DEAD, &REVIVE, &DISCARD,
];

/// The first of these numbers.
const NUMBER: u16 = 260;

/// Jobs whose attempts are used up that one call makes dead, and about how many bytes of them.
const DEAD_AT_ONCE: usize = 64;
const DEAD_AT_ONCE_BYTES: usize = 64 << 10;
/// About how many bytes of jobs a page of dead ones has.
const PAGE_BYTES: usize = 512 << 10;

/// Adds jobs, one after the other in a run of bytes, which are due after this many milliseconds. →
/// `Many`: the write, and the place of the first one
static PUSH: Procedure = procedure(NUMBER, "queue push", Kind::SortedSet, (1, 1))
    .costs(|inputs| stores(&inputs.bytes[0]))
    .on_fields(|inputs, view, cx| {
        let due = after(cx, inputs.numbers[0]);
        let write = cx.next_write;
        let mut first = 0;
        // One transaction is one write, even if it pushes twice.
        while view
            .get(
                &JobId {
                    write,
                    place: first,
                }
                .bytes(),
            )
            .is_some()
        {
            first += 1;
        }
        let mut made = Vec::with_capacity(inputs.bytes[0].len());
        for (place, job) in (first..).zip(Items(&inputs.bytes[0])) {
            let row = JobRow {
                due,
                token: write,
                place,
                state: JobState::Waiting,
                attempts: 0,
                pushed_ms: cx.unix_ms,
                job,
            };
            row.put(JobId { write, place }, &mut made);
        }
        let pushed = [write.cast_signed(), first.into()].map(Outcome::Int);
        (Some(Outcome::Many(pushed.into())), set(view, made))
    });

/// Takes the first job that is due. The numbers: for how many milliseconds, and how many attempts a
/// job has. → `Many`: its id, its token, its attempts, when it was pushed, and the job; `Nil`: none
/// is due; `Int`: some became dead, so the caller asks again
static TAKE: Procedure = procedure(NUMBER + 1, "queue take", Kind::SortedSet, (2, 0))
    .costs(|_| Footprint {
        answers_value: true,
        looks_up: true,
        ..WRITES
    })
    .on_fields(take_first);

/// Removes a job that its owner has done: its id and its token. → `Int` 1 or 0
static DONE: Procedure =
    of_owner(NUMBER + 2, "queue done", 1).on_fields(|inputs, view, _| match owned(inputs, view) {
        Some(_) => (
            Some(Outcome::Int(1)),
            Edit::Delete(vec![&inputs.bytes[0][..]]),
        ),
        None => (Some(Outcome::Int(0)), Edit::None),
    });

/// Gives a job back: its id, its token, after how many milliseconds it is due, and how many
/// attempts it has. → `Int` 1; 2: they are used up, and it is dead; or 0
static RETRY: Procedure = of_owner(NUMBER + 3, "queue retry", 3).on_fields(|inputs, view, cx| {
    let Some(row) = owned(inputs, view) else {
        return (Some(Outcome::Int(0)), Edit::None);
    };
    if row.is_used_up(inputs.numbers[2]) {
        return (Some(Outcome::Int(2)), change(inputs, view, row.dead()));
    }
    let again = JobRow {
        due: after(cx, inputs.numbers[1]),
        state: JobState::Waiting,
        ..row
    };
    (Some(Outcome::Int(1)), change(inputs, view, again))
});

/// Makes a lease last for this many milliseconds from now, or longer if it was to last longer: its
/// id, its token and the time. → `Int` 1 or 0
static EXTEND: Procedure = of_owner(NUMBER + 4, "queue extend", 2).on_fields(|inputs, view, cx| {
    let Some(row) = owned(inputs, view) else {
        return (Some(Outcome::Int(0)), Edit::None);
    };
    let longer = JobRow {
        due: after(cx, inputs.numbers[1]).max(row.due),
        ..row
    };
    (Some(Outcome::Int(1)), change(inputs, view, longer))
});

/// How many jobs are due, and after how many milliseconds the next one is (-1: there is none).
/// Callers may wait with it (`super::blocking`). → `Many` of `Int`s
pub(super) static READY: Procedure = procedure(NUMBER + 5, "queue ready", Kind::SortedSet, (0, 0))
    .on_fields(|_, view, cx| {
        let ordered = Ordered::of(view);
        let due = due_count(&ordered, cx);
        let next = ordered.from(due, false).next();
        let next = next.map(|(_, value)| score_of(value));
        let wait = match next {
            Some(at) if at.is_finite() => int((at - now(cx)).max(1.0)),
            Some(_) | None => -1,
        };
        let due = i64::try_from(due).unwrap_or(i64::MAX);
        let both = vec![Outcome::Int(due), Outcome::Int(wait)];
        (Some(Outcome::Many(both)), Edit::None)
    });

/// How many jobs are due, are due later or leased, and are dead. → `Many` of `Int`s
static COUNT: Procedure =
    procedure(NUMBER + 6, "queue count", Kind::SortedSet, (0, 0)).on_fields(|_, view, cx| {
        let ordered = Ordered::of(view);
        let due = due_count(&ordered, cx);
        let alive = ordered.len_while(|(_, value)| score_of(value).is_finite());
        let counts = [
            due,
            alive.saturating_sub(due),
            ordered.len().saturating_sub(alive),
        ];
        let counts = counts.map(super::procedure::count);
        (Some(Outcome::Many(counts.into())), Edit::None)
    });

/// Dead jobs, in the order in which they were taken last, behind the one with this token. The
/// numbers: that token, and how many at most. → `Many`: of each its id, its token, its attempts,
/// when it was pushed, and the job
static DEAD: Procedure = procedure(NUMBER + 7, "queue dead", Kind::SortedSet, (2, 0))
    .costs(|_| VALUES)
    .on_fields(|inputs, view, _| {
        let [behind, most] = inputs.numbers[..] else {
            return failed(Failure::NotAnInteger);
        };
        let ordered = Ordered::of(view);
        let mut place = stored_score(DEAD_DUE).to_vec();
        place.extend(behind.to_be_bytes());
        let begin = ordered.len_while(|(_, value)| value.get(..place.len()) <= Some(&place[..]));
        let most = usize::try_from(most).unwrap_or(0);
        let (mut page, mut bytes) = (Vec::new(), 0);
        for (member, value) in ordered.from(begin, false).take(most) {
            let (Some(id), Some(row)) = (JobId::of(member), JobRow::of(value)) else {
                continue;
            };
            bytes += row.job.len();
            if bytes > PAGE_BYTES && !page.is_empty() {
                break;
            }
            page.push(row.outcome(id));
        }
        (Some(Outcome::Many(page)), Edit::None)
    });

/// Lets a dead job wait again, as if it had never been taken: its id. → `Int` 1 or 0
static REVIVE: Procedure = of_owner(NUMBER + 8, "queue revive", 0).on_fields(|inputs, view, cx| {
    let Some(row) = dead(inputs, view) else {
        return (Some(Outcome::Int(0)), Edit::None);
    };
    let revived = JobRow {
        due: now(cx),
        state: JobState::Waiting,
        attempts: 0,
        ..row
    };
    (Some(Outcome::Int(1)), change(inputs, view, revived))
});

/// Removes a dead job: its id. → `Int` 1 or 0
static DISCARD: Procedure =
    of_owner(NUMBER + 9, "queue discard", 0).on_fields(|inputs, view, _| {
        match dead(inputs, view) {
            Some(_) => (
                Some(Outcome::Int(1)),
                Edit::Delete(vec![&inputs.bytes[0][..]]),
            ),
            None => (Some(Outcome::Int(0)), Edit::None),
        }
    });

/// A procedure on one job. The run is its id.
const fn of_owner(number: u16, name: &'static str, numbers: usize) -> Procedure {
    procedure(number, name, Kind::SortedSet, (numbers, 1)).costs(|_| WRITES)
}

fn take_first<'a>(
    inputs: &'a Inputs,
    view: CollectionView<'a>,
    cx: &RunContext,
) -> CollectionDone<'a> {
    let [lease, attempts_max] = inputs.numbers[..] else {
        return failed(Failure::NotAnInteger);
    };
    let (now, mut made, mut buried) = (now(cx), Vec::new(), 0);
    for (member, value) in Ordered::of(view).from(0, false) {
        let is_due = |at: f64| at <= now || (broken(&mutant::LEASES_THE_LEASED) && at.is_finite());
        if !is_due(score_of(value)) || buried >= DEAD_AT_ONCE || made.len() > DEAD_AT_ONCE_BYTES {
            break;
        }
        // A member that no push has made is no job.
        let (Some(id), Some(row)) = (JobId::of(member), JobRow::of(value)) else {
            continue;
        };
        if row.is_used_up(attempts_max) {
            row.dead().put(id, &mut made);
            buried += 1;
            continue;
        }
        if buried > 0 {
            break;
        }
        let taken = JobRow {
            due: after(cx, lease),
            token: if broken(&mutant::TOKENS_BY_ATTEMPTS) {
                row.attempts.into()
            } else {
                cx.next_write.max(row.token.saturating_add(1))
            },
            state: JobState::Leased,
            attempts: row.attempts.saturating_add(1),
            ..row
        };
        taken.put(id, &mut made);
        return (Some(taken.outcome(id)), set(view, made));
    }
    if buried > 0 {
        return (Some(super::procedure::count(buried)), set(view, made));
    }
    (Some(Outcome::Nil), Edit::None)
}

/// The moment, as a score.
fn now(cx: &RunContext) -> f64 {
    cx.unix_ms as f64
}

/// The moment after this many milliseconds, as a score.
fn after(cx: &RunContext, ms: i64) -> f64 {
    let ms = u64::try_from(ms).unwrap_or(0).min(MS_MAX);
    cx.unix_ms.saturating_add(ms) as f64
}

/// A whole number of milliseconds, rounded up.
fn int(ms: f64) -> i64 {
    ms.ceil() as i64
}

fn due_count(ordered: &Ordered<'_>, cx: &RunContext) -> usize {
    ordered.len_while(|(_, value)| score_of(value) <= now(cx))
}

fn set<'a>(view: CollectionView<'a>, made: Vec<u8>) -> Edit<'a> {
    Edit::Set(view.made(made), FieldDeadline::Never)
}

/// The job of a call becomes this.
fn change<'a>(inputs: &'a Inputs, view: CollectionView<'a>, row: JobRow<'_>) -> Edit<'a> {
    match JobId::of(&inputs.bytes[0]) {
        Some(id) => {
            let mut made = Vec::new();
            row.put(id, &mut made);
            set(view, made)
        }
        None => Edit::None,
    }
}

/// The job of a call, if its token is that of the caller. The first number is that.
fn owned<'a>(inputs: &'a Inputs, view: CollectionView<'a>) -> Option<JobRow<'a>> {
    let row = JobRow::of(view.get(&inputs.bytes[0])?)?;
    let token = inputs.numbers.first()?.cast_unsigned();
    let is_owner = row.token == token || broken(&mutant::BELIEVES_FORMER_OWNERS);
    (row.state == JobState::Leased && is_owner).then_some(row)
}

/// The job of a call, if it is dead.
fn dead<'a>(inputs: &'a Inputs, view: CollectionView<'a>) -> Option<JobRow<'a>> {
    let row = JobRow::of(view.get(&inputs.bytes[0])?)?;
    (row.state == JobState::Dead).then_some(row)
}

/// Whether a caller that waits for a job is blocked, given the number of callers that may take one
/// already. If so: for how many milliseconds, unless the key changes; `None` there: for any time. A
/// failure is answered at once.
pub(super) fn blocked(ready: &Outcome, grants: usize) -> Option<Option<u64>> {
    let Outcome::Many(parts) = ready else {
        return None;
    };
    let [Outcome::Int(due), Outcome::Int(next)] = parts[..] else {
        return None;
    };
    let is_for_it = usize::try_from(due).is_ok_and(|due| due > grants);
    (!is_for_it).then(|| u64::try_from(next).ok())
}

/// The score of a dead job.
const DEAD_DUE: f64 = f64::INFINITY;

/// Names a job of a queue. No other job of the same queue ever has the same one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    /// The number of the write that pushed it.
    write: u64,
    /// Its place among the jobs of that write.
    place: u32,
}

impl JobId {
    const BYTES: usize = 12;

    fn bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.write.to_be_bytes());
        bytes[8..].copy_from_slice(&self.place.to_be_bytes());
        bytes
    }

    fn of(member: &[u8]) -> Option<Self> {
        let (write, place) = member.split_first_chunk()?;
        Some(Self {
            write: u64::from_be_bytes(*write),
            place: u32::from_be_bytes(place.try_into().ok()?),
        })
    }

    fn run(self) -> [Bytes; 1] {
        [Bytes::copy_from_slice(&self.bytes())]
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.write, self.place)
    }
}

/// The text names no job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no id of a job: give one as it is shown, such as 1f00000000a3-0")]
pub struct NoJobId;

impl FromStr for JobId {
    type Err = NoJobId;

    fn from_str(text: &str) -> Result<Self, NoJobId> {
        let (write, place) = text.split_once('-').ok_or(NoJobId)?;
        let write = u64::from_str_radix(write, 16).map_err(|_| NoJobId)?;
        let place = u32::from_str_radix(place, 16).map_err(|_| NoJobId)?;
        Ok(Self { write, place })
    }
}

/// What a job waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JobState {
    Waiting,
    Leased,
    Dead,
}

impl JobState {
    const fn of_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Waiting,
            1 => Self::Leased,
            2 => Self::Dead,
            _ => return None,
        })
    }
}

/// The value of a job's member.
#[derive(Debug, Clone, Copy, PartialEq)]
struct JobRow<'a> {
    due: f64,
    token: u64,
    place: u32,
    state: JobState,
    attempts: u32,
    pushed_ms: u64,
    job: &'a [u8],
}

/// Bytes before the job.
const HEAD: usize = SCORE_BYTES + 8 + 4 + 1 + 4 + 8;

impl<'a> JobRow<'a> {
    /// `None`: these bytes are none.
    fn of(value: &'a [u8]) -> Option<Self> {
        let (score, rest) = value.split_first_chunk::<SCORE_BYTES>()?;
        let (token, rest) = rest.split_first_chunk()?;
        let (place, rest) = rest.split_first_chunk()?;
        let ([state], rest) = rest.split_first_chunk::<1>()?;
        let (attempts, rest) = rest.split_first_chunk()?;
        let (pushed_ms, job) = rest.split_first_chunk()?;
        Some(Self {
            due: score_of(score),
            token: u64::from_be_bytes(*token),
            place: u32::from_be_bytes(*place),
            state: JobState::of_number(*state)?,
            attempts: u32::from_be_bytes(*attempts),
            pushed_ms: u64::from_be_bytes(*pushed_ms),
            job,
        })
    }

    /// Appends it, with its member, as fields are set.
    fn put(&self, id: JobId, out: &mut Vec<u8>) {
        let mut value = Vec::with_capacity(HEAD + self.job.len());
        value.extend(stored_score(self.due));
        value.extend(self.token.to_be_bytes());
        value.extend(self.place.to_be_bytes());
        value.push(self.state as u8);
        value.extend(self.attempts.to_be_bytes());
        value.extend(self.pushed_ms.to_be_bytes());
        value.extend(self.job);
        put(out, &id.bytes());
        put(out, &value);
    }

    fn is_used_up(&self, attempts_max: i64) -> bool {
        i64::from(self.attempts) >= attempts_max
    }

    fn dead(self) -> Self {
        Self {
            due: DEAD_DUE,
            state: JobState::Dead,
            ..self
        }
    }

    /// It as an answer.
    fn outcome(&self, id: JobId) -> Outcome {
        let numbers = [id.write, id.place.into(), self.token, self.attempts.into()];
        let numbers = numbers.into_iter().chain([self.pushed_ms]);
        let numbers = numbers.map(|number| Outcome::Int(number.cast_signed()));
        let job = Outcome::Bulk(Value::from(self.job));
        Outcome::Many(numbers.chain([job]).collect())
    }
}

/// A job that was taken, or is dead, as a call answers it.
#[derive(Debug, Clone, PartialEq)]
pub struct QueuedJob {
    /// Names it.
    pub id: JobId,
    /// The fencing token of the last take.
    pub token: u64,
    /// How often it was taken.
    pub attempts: u32,
    /// When it was pushed: wall time in milliseconds.
    pub pushed_ms: u64,
    /// The job as it was pushed.
    pub job: Value,
}

impl QueuedJob {
    fn of(outcome: Outcome) -> Option<Self> {
        let Outcome::Many(parts) = outcome else {
            return None;
        };
        let parts = <[Outcome; 6]>::try_from(parts).ok()?;
        let [
            Outcome::Int(write),
            Outcome::Int(place),
            Outcome::Int(token),
            Outcome::Int(attempts),
            Outcome::Int(pushed_ms),
            Outcome::Bulk(job),
        ] = parts
        else {
            return None;
        };
        Some(Self {
            id: JobId {
                write: write.cast_unsigned(),
                place: u32::try_from(place).ok()?,
            },
            token: token.cast_unsigned(),
            attempts: u32::try_from(attempts).ok()?,
            pushed_ms: pushed_ms.cast_unsigned(),
            job,
        })
    }
}

/// The answer to [`take`].
#[derive(Debug, Clone, PartialEq)]
pub enum Taken {
    /// A job is leased to the caller.
    Job(QueuedJob),
    /// None is due.
    Nothing,
    /// Some jobs became dead: ask again.
    Again,
}

/// The answer to [`retry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retried {
    /// It waits again.
    Waits,
    /// Its attempts are used up, and it is dead.
    Dead,
    /// The caller does not have it any more. Nothing happened.
    Lost,
}

fn ms(ms: u64) -> i64 {
    ms.min(MS_MAX).cast_signed()
}

/// Adds jobs, which are due after `delay_ms`. → [`read_pushed`]
#[must_use]
pub fn push<'a>(jobs: impl Iterator<Item = &'a [u8]> + Clone, delay_ms: u64) -> Action {
    Action::call(&PUSH, &[ms(delay_ms)], [packed(jobs)])
}

/// Takes the first job that is due, for `lease_ms`. A job that was taken `attempts_max` times
/// becomes dead instead. → [`read_taken`]
#[must_use]
pub fn take(lease_ms: u64, attempts_max: u32) -> Action {
    let numbers = [ms(lease_ms), attempts_max.into()];
    Action::call(&TAKE, &numbers, Vec::new())
}

/// Removes a job that is done. → `Int` 1, or 0: the caller does not have it any more
#[must_use]
pub fn done(id: JobId, token: u64) -> Action {
    Action::call(&DONE, &[token.cast_signed()], id.run())
}

/// Gives a job back, which is due after `after_ms`. → [`read_retried`]
#[must_use]
pub fn retry(id: JobId, token: u64, after_ms: u64, attempts_max: u32) -> Action {
    let numbers = [token.cast_signed(), ms(after_ms), attempts_max.into()];
    Action::call(&RETRY, &numbers, id.run())
}

/// Makes a lease last for `lease_ms` from now, or longer if it was to last longer. → `Int` 1, or 0:
/// the caller does not have it any more
#[must_use]
pub fn extend(id: JobId, token: u64, lease_ms: u64) -> Action {
    Action::call(&EXTEND, &[token.cast_signed(), ms(lease_ms)], id.run())
}

/// Counts the jobs that are due: callers wait with it until one is due for them.
#[must_use]
pub fn ready() -> Action {
    Action::call(&READY, &[], Vec::new())
}

/// Counts all jobs. → [`read_counts`]
#[must_use]
pub fn counts() -> Action {
    Action::call(&COUNT, &[], Vec::new())
}

/// Up to `most` dead jobs, behind the one that was taken last with the token `behind`. →
/// [`read_dead`]
#[must_use]
pub fn dead_page(behind: u64, most: u32) -> Action {
    Action::call(&DEAD, &[behind.cast_signed(), most.into()], Vec::new())
}

/// Lets a dead job wait again, with all of its attempts. → `Int` 1, or 0: it is not dead
#[must_use]
pub fn revive(id: JobId) -> Action {
    Action::call(&REVIVE, &[], id.run())
}

/// Removes a dead job. → `Int` 1, or 0: it is not dead
#[must_use]
pub fn discard(id: JobId) -> Action {
    Action::call(&DISCARD, &[], id.run())
}

/// The ids of jobs that were pushed, from the first one on. `None`: the outcome says none.
#[must_use]
pub fn read_pushed(outcome: &Outcome) -> Option<impl Iterator<Item = JobId> + use<>> {
    let Outcome::Many(parts) = outcome else {
        return None;
    };
    let [Outcome::Int(write), Outcome::Int(first)] = parts[..] else {
        return None;
    };
    let (write, first) = (write.cast_unsigned(), u32::try_from(first).ok()?);
    Some((first..).map(move |place| JobId { write, place }))
}

/// What [`take`] answers. `None`: another call answers so.
#[must_use]
pub fn read_taken(outcome: Outcome) -> Option<Taken> {
    match outcome {
        Outcome::Nil => Some(Taken::Nothing),
        Outcome::Int(_) => Some(Taken::Again),
        outcome => QueuedJob::of(outcome).map(Taken::Job),
    }
}

/// What [`retry`] answers. `None`: another call answers so.
#[must_use]
pub const fn read_retried(outcome: &Outcome) -> Option<Retried> {
    match outcome {
        Outcome::Int(0) => Some(Retried::Lost),
        Outcome::Int(1) => Some(Retried::Waits),
        Outcome::Int(2) => Some(Retried::Dead),
        _ => None,
    }
}

/// How many jobs are due, are due later or leased, and are dead. `None`: the outcome does not say.
#[must_use]
pub fn read_counts(outcome: &Outcome) -> Option<[u64; 3]> {
    let Outcome::Many(parts) = outcome else {
        return None;
    };
    match parts[..] {
        [Outcome::Int(due), Outcome::Int(later), Outcome::Int(dead)] => {
            Some([due, later, dead].map(i64::cast_unsigned))
        }
        _ => None,
    }
}

/// The jobs of a page. `None`: the outcome has none.
#[must_use]
pub fn read_dead(outcome: Outcome) -> Option<Vec<QueuedJob>> {
    match outcome {
        Outcome::Many(jobs) => jobs.into_iter().map(QueuedJob::of).collect(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn state() -> impl Strategy<Value = JobState> {
        prop_oneof![
            Just(JobState::Waiting),
            Just(JobState::Leased),
            Just(JobState::Dead)
        ]
    }

    proptest! {
        #[test]
        fn a_row_is_read_as_it_was_written(
            (write, place, token) in any::<(u64, u32, u64)>(),
            (state, attempts, pushed_ms) in (state(), any::<u32>(), any::<u64>()),
            (due, job) in (0_u64..MS_MAX, any::<Vec<u8>>()),
        ) {
            let (due, job) = (due as f64, &job[..]);
            let row = JobRow { due, token, place, state, attempts, pushed_ms, job };
            let (id, mut out) = (JobId { write, place }, Vec::new());
            row.put(id, &mut out);
            let parts: Vec<_> = Items(&out).collect();
            prop_assert_eq!(parts.len(), 2);
            prop_assert_eq!(JobId::of(parts[0]), Some(id));
            prop_assert_eq!(JobRow::of(parts[1]), Some(row));
            prop_assert_eq!(id.to_string().parse(), Ok(id));
            let taken = QueuedJob::of(row.outcome(id)).map(|job| (job.id, job.token));
            prop_assert_eq!(taken, Some((id, token)));
        }

        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>, text: String) {
            _ = JobRow::of(&bytes);
            _ = JobId::of(&bytes);
            _ = text.parse::<JobId>();
        }
    }

    #[test]
    fn callers_wait_while_all_that_is_due_was_granted() {
        let ready = |due, next| Outcome::Many(vec![Outcome::Int(due), Outcome::Int(next)]);
        assert_eq!(blocked(&ready(1, -1), 0), None);
        assert_eq!(blocked(&ready(1, -1), 1), Some(None));
        assert_eq!(blocked(&ready(0, 30), 0), Some(Some(30)));
        assert_eq!(blocked(&ready(2, 30), 2), Some(Some(30)));
        for failure in [Failure::WrongType, Failure::OldMembers] {
            assert_eq!(blocked(&Outcome::Failed(failure), 0), None);
        }
    }

    #[test]
    fn texts_that_name_no_job_are_refused() {
        for text in ["", "-", "1", "1-", "-1", "g-0", "1-0-0", "1-100000000"] {
            assert_eq!(text.parse::<JobId>(), Err(NoJobId), "{text}");
        }
    }
}
