//! Queues of jobs (`doyen_engine::queue`): what workers ask of them, and what the answers must be.
//!
//! - A job has one id, and is there until a worker says with the newest token that it is done, or
//!   discards it.
//! - Each take gives it a higher token. What names a lower one is refused.
//! - While a lease lasts, no other worker takes the job, and its owner is not refused.

use super::schedule::MS;
use super::worker::{Asked, CLOCKS_DIFFER, Moment, WorkerAction, is_of_faults};
use crate::action_of;
use crate::sim::models;
use doyen_engine::command::CommandReply;
use doyen_engine::op::{Action, Failure, Outcome};
use doyen_engine::queue::{self, JobId, QueuedJob, Retried, Taken};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};

/// A lease that lasts longer than clocks may differ, and for most of a run.
const LONG_LEASE_MS: u64 = 40_000;
/// How often a job is taken before it is dead.
const ATTEMPTS_MAX: u32 = 4;

/// A queue.
#[derive(Debug, Default)]
pub(crate) struct JobKey {
    /// Jobs before this one are forgotten.
    since: u64,
    jobs: BTreeMap<u64, KnownJob>,
    /// The number in each job, by its id.
    ids: BTreeMap<JobId, u64>,
    /// What each worker has.
    has: BTreeMap<usize, Held>,
    /// Jobs that are known to be dead.
    dead: BTreeSet<u64>,
}

/// What is known of a job, by the number that is in it.
#[derive(Debug, Default)]
struct KnownJob {
    id: Option<JobId>,
    /// The highest tokens that were answered, with the moments.
    tokens: BTreeMap<Moment, u64>,
    /// The last lease: when it was asked for, its token, and until when it lasts at least. Its
    /// owner has asked for nothing since.
    lease: Option<(Moment, u64, u64)>,
    /// A worker tried to remove it, and when one heard that it is gone.
    removes: bool,
    gone: Option<Moment>,
}

/// What a worker has.
#[derive(Debug, Clone, Copy)]
struct Held {
    n: u64,
    id: JobId,
    token: u64,
}

/// What is asked.
#[derive(Debug, Clone)]
pub(crate) enum JobAsks {
    /// After how many milliseconds it is due.
    Push(u64),
    /// For how long.
    Take(u64),
    Done(u64, JobId, u64),
    Retry(u64, JobId, u64),
    Extend(u64, JobId, u64),
    Dead,
    Revive(JobId),
    Discard(u64, JobId),
    /// The ids of all jobs.
    All,
}

impl JobKey {
    pub(crate) fn forget(&mut self, serial: u64) {
        *self = Self {
            since: serial + 1,
            ..Self::default()
        };
    }

    /// What a worker asks next.
    pub(crate) fn next(&mut self, id: usize, rng: &mut ChaCha8Rng) -> JobAsks {
        let draw = rng.random_range(0..100);
        if let Some(Held { n, id: job, token }) = self.has.get(&id).copied() {
            // Some keep what they say about for later, as those do that are slow.
            if draw < 70 {
                self.has.remove(&id);
            }
            let known = self.jobs.entry(n).or_default();
            if !(60..70).contains(&draw) {
                known.lease = known.lease.filter(|(_, of, _)| *of != token);
            }
            return match draw {
                0..45 => {
                    known.removes = true;
                    JobAsks::Done(n, job, token)
                }
                45..60 => JobAsks::Retry(n, job, token),
                // It forgets what it has.
                60..70 => JobAsks::Push(0),
                _ => JobAsks::Extend(n, job, token),
            };
        }
        let dead = self.dead.iter().next().copied();
        let dead = dead.and_then(|n| Some((n, self.jobs.get(&n)?.id?)));
        match (draw, dead) {
            (0..30, _) => JobAsks::Push([0, 0, 500][rng.random_range(0..3)]),
            (30..38, _) => JobAsks::Dead,
            (38..44, Some((n, id))) => {
                self.dead.remove(&n);
                JobAsks::Revive(id)
            }
            (44..48, Some((n, id))) => {
                self.dead.remove(&n);
                self.jobs.entry(n).or_default().removes = true;
                JobAsks::Discard(n, id)
            }
            _ => JobAsks::Take([200, 1_500, LONG_LEASE_MS][rng.random_range(0..3)]),
        }
    }

    pub(crate) fn action(&self, serial: u64, asks: &JobAsks, rng: &mut ChaCha8Rng) -> WorkerAction {
        let number = serial.to_string();
        let mut ready = || Some((queue::ready(), [300, 2_000][rng.random_range(0..2)]));
        let (action, waits): (Action, _) = match asks {
            JobAsks::Push(delay) => {
                let jobs = std::iter::once(number.as_bytes());
                (queue::push(jobs, *delay), None)
            }
            JobAsks::Take(lease) => {
                let waits = if serial.is_multiple_of(2) {
                    ready()
                } else {
                    None
                };
                (queue::take(*lease, ATTEMPTS_MAX), waits)
            }
            JobAsks::Done(_, id, token) => (queue::done(*id, *token), None),
            JobAsks::Retry(_, id, token) => {
                let action = queue::retry(*id, *token, 100, ATTEMPTS_MAX);
                (action, None)
            }
            JobAsks::Extend(_, id, token) => (queue::extend(*id, *token, 2_000), None),
            JobAsks::Dead => (queue::dead_page(0, 100), None),
            JobAsks::Revive(id) => (queue::revive(*id), None),
            JobAsks::Discard(_, id) => (queue::discard(*id), None),
            JobAsks::All => (action_of(&ALL), None),
        };
        WorkerAction { action, waits }
    }

    /// Judges an answer. True: all is read at the end.
    ///
    /// # Errors
    /// It is wrong.
    pub(crate) fn judge(
        &mut self,
        asked: Asked,
        (asks, serial): (&JobAsks, u64),
        outcome: &Outcome,
        counts: &mut [u64; 4],
    ) -> Result<bool, String> {
        let strange = || format!("{asks:?} is answered with {outcome:?}");
        match (asks, outcome) {
            (_, Outcome::Failed(Failure::OldMembers)) => return Ok(asked.last),
            (_, Outcome::Failed(failure)) if is_of_faults(failure) => {}
            (_, Outcome::Failed(failure)) => {
                return Err(format!("{asks:?} failed strangely: {failure:?}"));
            }
            (JobAsks::Push(_), outcome) => {
                let mut ids = queue::read_pushed(outcome).ok_or_else(strange)?;
                let id = ids.next().ok_or_else(strange)?;
                counts[0] += 1;
                self.names(serial, id)?;
            }
            (JobAsks::Take(lease), outcome) => {
                let taken = queue::read_taken(outcome.clone()).ok_or_else(strange)?;
                if let Taken::Job(job) = taken {
                    counts[1] += 1;
                    self.taken(asked, &job, *lease)?;
                }
            }
            (JobAsks::Done(n, _, token), Outcome::Int(done)) => {
                counts[2] += u64::from(*done == 1);
                if self.owned(asked, (*n, *token), *done == 1)? {
                    self.removed(asked, *n)?;
                }
            }
            (JobAsks::Extend(n, _, token), Outcome::Int(done)) => {
                self.owned(asked, (*n, *token), *done == 1)?;
            }
            (JobAsks::Retry(n, _, token), outcome) => {
                let retried = queue::read_retried(outcome).ok_or_else(strange)?;
                self.owned(asked, (*n, *token), retried != Retried::Lost)?;
            }
            (JobAsks::Dead, outcome) => {
                let dead = queue::read_dead(outcome.clone()).ok_or_else(strange)?;
                for job in dead {
                    let n = number(&job)?;
                    if n < self.since {
                        continue;
                    }
                    self.names(n, job.id)?;
                    self.is_there(asked, n, "dead")?;
                    self.dead.insert(n);
                }
            }
            (JobAsks::Revive(..), Outcome::Int(_)) => {}
            (JobAsks::Discard(n, _), Outcome::Int(done)) => {
                if *done == 1 {
                    self.removed(asked, *n)?;
                }
            }
            (JobAsks::All, outcome) => {
                self.judge_all(&models::replied(&ALL, outcome), counts)?;
                return Ok(true);
            }
            _ => return Err(strange()),
        }
        Ok(false)
    }

    /// A job has this id, and no other one.
    fn names(&mut self, n: u64, id: JobId) -> Result<(), String> {
        let known = self.jobs.entry(n).or_default().id.replace(id);
        hold!(
            known.is_none_or(|known| known == id),
            "job {n} has the ids {known:?} and {id}"
        );
        let known = self.ids.insert(id, n);
        hold!(
            known.is_none_or(|known| known == n),
            "the jobs {known:?} and {n} have the id {id}"
        );
        Ok(())
    }

    fn is_there(&mut self, asked: Asked, n: u64, what: &str) -> Result<(), String> {
        let gone = self.jobs.entry(n).or_default().gone;
        hold!(
            gone.is_none_or(|gone| gone > asked.called),
            "job {n} is {what}, and was done or discarded before"
        );
        Ok(())
    }

    fn removed(&mut self, asked: Asked, n: u64) -> Result<(), String> {
        self.is_there(asked, n, "done or discarded")?;
        let job = self.jobs.entry(n).or_default();
        hold!(job.gone.is_none(), "job {n} is done or discarded twice");
        job.gone = Some(asked.answered);
        Ok(())
    }

    fn taken(&mut self, asked: Asked, job: &QueuedJob, lease_ms: u64) -> Result<(), String> {
        let n = number(job)?;
        if n < self.since {
            return Ok(());
        }
        self.names(n, job.id)?;
        self.is_there(asked, n, "taken")?;
        hold!(
            (1..=ATTEMPTS_MAX).contains(&job.attempts),
            "job {n} is taken for the {}. time",
            job.attempts
        );
        let known = self.jobs.entry(n).or_default();
        let before = known.tokens.range(..asked.called).next_back();
        if let Some((_, token)) = before {
            hold!(
                job.token > *token,
                "job {n} is taken with token {}, after {token} was answered",
                job.token
            );
        }
        hold!(
            known.tokens.values().all(|token| *token != job.token),
            "job {n} is taken twice with token {}",
            job.token
        );
        if let Some((called, token, until)) = known.lease.filter(|_| asked.steady) {
            hold!(
                token > job.token || asked.answered.at >= until,
                "job {n} is taken with token {}, though its owner with token {token} asked for it \
                 only {} ms ago",
                job.token,
                (asked.answered.at - called.at) / MS
            );
        }
        let top = known.tokens.values().next_back().copied().unwrap_or(0);
        if job.token > top {
            known.tokens.insert(asked.answered, job.token);
            let lasts = (lease_ms * MS).saturating_sub(CLOCKS_DIFFER);
            let until = asked.called.at + lasts;
            known.lease = Some((asked.called, job.token, until));
        }
        let held = Held {
            n,
            id: job.id,
            token: job.token,
        };
        self.has.insert(asked.id, held);
        Ok(())
    }

    /// An owner named its token, and was refused or not. Returns that it was not.
    fn owned(&self, asked: Asked, (n, token): (u64, u64), well: bool) -> Result<bool, String> {
        let Some(known) = self.jobs.get(&n) else {
            return Ok(well);
        };
        let before = known.tokens.range(..asked.called).next_back();
        if let Some((_, newest)) = before.filter(|_| well) {
            hold!(
                *newest <= token,
                "the owner of job {n} with token {token} is not refused, after {newest} was \
                 answered"
            );
        }
        Ok(well)
    }

    /// All jobs that are left were read.
    fn judge_all(&self, reply: &CommandReply, counts: &mut [u64; 4]) -> Result<(), String> {
        let ids = models::members(reply).ok_or_else(|| format!("no jobs: {reply:?}"))?;
        let ids: Option<BTreeSet<JobId>> = ids.iter().map(|id| job_id(id)).collect();
        let ids = ids.ok_or_else(|| format!("no jobs: {reply:?}"))?;
        counts[3] += ids.len() as u64;
        for (n, job) in &self.jobs {
            let Some(id) = job.id else { continue };
            let there = ids.contains(&id);
            hold!(there || job.removes, "job {n} ({id}) is lost: {job:?}");
            hold!(
                !there || job.gone.is_none(),
                "job {n} ({id}) is still there: {job:?}"
            );
        }
        Ok(())
    }
}

/// The members of the sorted set in which the jobs are.
const ALL: [&str; 4] = ["ZRANGE", "k", "0", "-1"];

fn number(job: &QueuedJob) -> Result<u64, String> {
    let text = std::str::from_utf8(&job.job).ok();
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("a job came back changed: {job:?}"))
}

/// The id of a job that is this member.
fn job_id(member: &[u8]) -> Option<JobId> {
    let (write, place) = member.split_first_chunk()?;
    let (write, place) = (u64::from_be_bytes(*write), place.try_into().ok()?);
    let place = u32::from_be_bytes(place);
    format!("{write:x}-{place:x}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn take(jobs: &mut JobKey, (called, answered): (u64, u64), token: u64) -> Result<(), String> {
        let job = QueuedJob {
            id: "1-0".parse().unwrap(),
            token,
            attempts: 1,
            pushed_ms: 0,
            job: Bytes::from_static(b"7")[..].into(),
        };
        jobs.taken(Asked::of_test(called, answered), &job, LONG_LEASE_MS)
    }

    #[test]
    fn a_token_that_falls_and_a_lease_that_is_given_twice_are_found() {
        let mut jobs = JobKey::default();
        assert!(take(&mut jobs, (1, 2), 5).is_ok());
        assert!(take(&mut jobs, (3, 4), 6).is_err(), "it is leased");
        assert!(take(&mut jobs, (32, 33), 5).is_err());
        assert!(take(&mut jobs, (32, 33), 4).is_err());
        assert!(take(&mut jobs, (32, 33), 6).is_ok());
        assert!(jobs.owned(Asked::of_test(34, 35), (7, 5), false).is_ok());
        assert!(jobs.owned(Asked::of_test(32, 35), (7, 5), true).is_ok());
        assert!(jobs.owned(Asked::of_test(34, 35), (7, 5), true).is_err());
        assert!(jobs.owned(Asked::of_test(34, 35), (7, 6), true).is_ok());
    }

    #[test]
    fn a_job_that_is_lost_or_comes_back_is_found() {
        let mut jobs = JobKey::default();
        let none = CommandReply::Array(Vec::new());
        let counts = &mut [0; 4];
        assert!(take(&mut jobs, (1, 2), 5).is_ok());
        assert!(jobs.judge_all(&none, counts).is_err());
        jobs.jobs.get_mut(&7).unwrap().removes = true;
        assert!(jobs.judge_all(&none, counts).is_ok());
        assert!(jobs.removed(Asked::of_test(3, 4), 7).is_ok());
        assert!(jobs.removed(Asked::of_test(3, 5), 7).is_err());
        assert!(take(&mut jobs, (50, 51), 9).is_err());
        let id = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        let one = CommandReply::Array(vec![CommandReply::Bulk(id[..].into())]);
        assert!(jobs.judge_all(&one, counts).is_err(), "it is done");
    }
}
