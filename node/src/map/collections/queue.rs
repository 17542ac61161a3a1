//! A queue of jobs: each is leased to one worker at a time, and taken again if that does not say
//! that it is done.
//!
//! What a job goes through, and what may happen twice, is said where it is decided:
//! `doyen_engine::queue`.

use super::{CollectionKey, count, decode_element, encode_element, is_some};
use crate::error::Error;
use crate::map::value::Form;
use crate::map::{Codec, OpenMap};
use bytes::Bytes;
use doyen_engine::op::Outcome;
use doyen_engine::queue::{self, QueuedJob, Retried, Taken};
pub use doyen_engine::queue::{JobId, NoJobId};
use doyen_placement::Eviction;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, sleep};

/// The map of all queues.
pub(super) const QUEUES: &str = "doyen.queues";
/// How often a job is taken before it is dead, by default.
const ATTEMPTS: u32 = 5;
/// The shortest lease.
const LEASE_LEAST: Duration = Duration::from_millis(100);
/// Dead jobs of one page.
const PAGE: u32 = 256;
/// The first and the longest pause of a caller that waits, after an error that may pass.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// A named queue of jobs that the whole cluster shares, from [`Node::queue`](crate::Node::queue).
/// Cheap to clone.
///
/// ```no_run
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Mail { to: String }
/// # async fn send(_: &Mail) -> Result<(), std::io::Error> { Ok(()) }
/// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
/// use doyen::JobQueue;
/// use std::time::Duration;
///
/// let mails: JobQueue<Mail> = node.queue("mails").max_attempts(3).await?;
/// mails.push(&Mail { to: "ada@example.org".into() }).await?;
///
/// // In each worker:
/// let (lease, patience) = (Duration::from_secs(60), Duration::from_secs(30));
/// while let Some(job) = mails.take_waiting(lease, patience).await? {
///     match send(&job).await {
///         Ok(()) => _ = job.done().await?,
///         Err(_) => _ = job.retry(Duration::from_secs(300)).await?,
///     }
/// }
/// # Ok(()) }
/// ```
///
/// # What a job goes through
/// ```text
///   push ──> waiting ── due, take ──> leased ── done ──> gone
///              ^  ^                    │    │
///              │  └── retry, or the    │    └── the attempts are used up ──> dead
///              │      lease lapses ────┘                                      │
///              └────────────────────────── revive ────────────────────────────┘
/// ```
/// - Jobs that are due are taken in the order in which they became due.
/// - A job that is taken belongs to its taker for the time of the lease. If the taker neither says
///   that it is [done](Job::done), nor asks for a [retry](Job::retry), nor [extends](Job::extend)
///   the lease, the job is due again, and the next call of [`take`](JobQueue::take) gets it.
/// - If that happens after the last attempt ([`OpenJobQueue::max_attempts`]), that call makes the
///   job dead instead. Dead jobs stay until they are [revived](JobQueue::revive) or
///   [discarded](JobQueue::discard).
///
/// # At least once
/// Every job that was pushed is delivered at least once, and *may be delivered more than once*:
/// when a worker dies, when it is slower than its lease, and when it does the work but its `done`
/// does not arrive. So make the work harmless to repeat, or let what it writes to refuse old
/// [tokens](Job::token). A token is above those of all earlier takes of the job, also over
/// failovers. Of several workers that hold a job, only the latest can say that it is done: for the
/// others, [`done`](Job::done) returns `false` and changes nothing.
///
/// A push whose outcome is [`Error::Unknown`] may have happened; if it is repeated, there may be
/// two jobs. A take whose outcome is unknown, or whose future is dropped, may have taken a job,
/// which is due again after its lease; that costs one of its attempts.
///
/// # Where it is
/// The queue is one key of the map `doyen.queues`, so it survives what its partition survives, as
/// any key of a [`Map`](crate::Map). One primary executes all calls of a queue: spread very many
/// jobs over several queues. Each take copies the job to the backups again, so keep jobs small, and
/// large data in a map.
///
/// Leases and delays are measured by the wall clock of the primary. After a failover they end
/// earlier or later by as much as the clocks of the two members differ. Tokens do not depend on
/// clocks.
///
/// # Time limits and cancel safety
/// As for [`Map`](crate::Map#time-limits-and-cancel-safety). [`Error::OldMembers`]: some member of
/// the cluster has no queues yet.
pub struct JobQueue<T> {
    at: CollectionKey,
    form: Arc<Form>,
    attempts_max: u32,
    kind: PhantomData<fn(T) -> T>,
}

impl<T> Clone for JobQueue<T> {
    fn clone(&self) -> Self {
        Self {
            at: self.at.clone(),
            form: self.form.clone(),
            attempts_max: self.attempts_max,
            kind: PhantomData,
        }
    }
}

impl<T> fmt::Debug for JobQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobQueue")
            .field("name", &self.name())
            .field("attempts_max", &self.attempts_max)
            .finish_non_exhaustive()
    }
}

/// How many jobs a queue has, from [`JobQueue::counts`].
///
/// ```no_run
/// # async fn example(mails: doyen::JobQueue<String>) -> Result<(), doyen::Error> {
/// let counts = mails.counts().await?;
/// println!("{} wait, {} are dead", counts.due, counts.dead);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct QueueCounts {
    /// Jobs that can be taken now. Some of them may become dead when the next one is taken.
    pub due: u64,
    /// Jobs that are leased, or whose delay is not over.
    pub later: u64,
    /// Dead jobs.
    pub dead: u64,
}

impl<T> JobQueue<T> {
    /// The name of the queue.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.at.name
    }

    /// How many jobs there are.
    ///
    /// # Errors
    /// No node serves the queue for 5 s.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn counts(&self) -> Result<QueueCounts, Error> {
        let outcome = self.at.read(queue::counts()).await?;
        match queue::read_counts(&outcome) {
            Some([due, later, dead]) => Ok(QueueCounts { due, later, dead }),
            None => Err(Error::unexpected(outcome)),
        }
    }

    /// Lets a dead job wait again, as if it had never been taken. Returns whether it was dead.
    ///
    /// # Errors
    /// As for [`Map::insert`](crate::Map::insert).
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn revive(&self, id: JobId) -> Result<bool, Error> {
        is_some(self.at.write(queue::revive(id)).await?)
    }

    /// Removes a dead job. Returns whether it was dead.
    ///
    /// # Errors
    /// As for [`JobQueue::revive`].
    ///
    /// # Cancel safety
    /// As for [`JobQueue::revive`].
    pub async fn discard(&self, id: JobId) -> Result<bool, Error> {
        is_some(self.at.write(queue::discard(id)).await?)
    }

    /// Removes all jobs, also those that are leased and those that are dead. Returns whether there
    /// was any.
    ///
    /// # Errors
    /// As for [`JobQueue::revive`].
    ///
    /// # Cancel safety
    /// As for [`JobQueue::revive`].
    pub async fn clear(&self) -> Result<bool, Error> {
        self.at.clear().await
    }
}

impl<T: Serialize + DeserializeOwned> JobQueue<T> {
    /// Adds a job, which is due at once. When this returns, every copy in sync has it.
    ///
    /// # Errors
    /// As for [`Map::insert`](crate::Map::insert).
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn push(&self, job: &T) -> Result<JobId, Error> {
        self.push_after(job, Duration::ZERO).await
    }

    /// Adds a job, which is due after `delay`.
    ///
    /// # Errors
    /// As for [`JobQueue::push`].
    ///
    /// # Cancel safety
    /// As for [`JobQueue::push`].
    pub async fn push_after(&self, job: &T, delay: Duration) -> Result<JobId, Error> {
        let pushed = self.push_all(std::iter::once(job), delay).await?;
        let first = pushed.into_iter().next();
        first.ok_or_else(|| Error::Unexpected("no id of a job".into()))
    }

    /// Adds several jobs, which are due at once, in this order, all or none.
    ///
    /// # Errors
    /// As for [`JobQueue::push`]. [`Error::TooLarge`]: together they have more bytes than a value
    /// may have; nothing happened.
    ///
    /// # Cancel safety
    /// As for [`JobQueue::push`].
    pub async fn push_many<'v>(
        &self,
        jobs: impl IntoIterator<Item = &'v T>,
    ) -> Result<Vec<JobId>, Error>
    where
        T: 'v,
    {
        self.push_all(jobs.into_iter(), Duration::ZERO).await
    }

    async fn push_all<'v>(
        &self,
        jobs: impl Iterator<Item = &'v T>,
        delay: Duration,
    ) -> Result<Vec<JobId>, Error>
    where
        T: 'v,
    {
        let jobs = jobs.map(|job| encode_element(&self.form, job));
        let jobs: Vec<Bytes> = jobs.collect::<Result<_, _>>()?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let action = queue::push(jobs.iter().map(|job| &job[..]), ms(delay));
        let outcome = self.at.write(action).await?;
        match queue::read_pushed(&outcome) {
            Some(ids) => Ok(ids.take(jobs.len()).collect()),
            None => Err(Error::unexpected(outcome)),
        }
    }

    /// Takes the first job that is due, for the time of `lease`. `None`: none is due.
    ///
    /// # Errors
    /// As for [`Map::insert`](crate::Map::insert). [`Error::Refused`]: the lease is shorter than
    /// 100 ms. [`Error::Value`]: the job cannot be decoded. It is due again after its lease, so that
    /// a worker with another version may take it, and becomes dead after its last attempt.
    ///
    /// # Cancel safety
    /// If the future is dropped, a job may be taken or not, now or a little later. It is due again
    /// after its lease.
    pub async fn take(&self, lease: Duration) -> Result<Option<Job<T>>, Error> {
        if lease < LEASE_LEAST {
            return Err(Error::Refused(format!(
                "the lease of a job of the queue {} is {lease:?}: give {LEASE_LEAST:?} at least",
                self.name()
            )));
        }
        loop {
            let asked = Instant::now();
            let take = queue::take(ms(lease), self.attempts_max);
            match queue::read_taken(self.at.write(take).await?) {
                Some(Taken::Job(job)) => return self.job(job, end_of(asked, lease)).map(Some),
                Some(Taken::Nothing) => return Ok(None),
                Some(Taken::Again) => {}
                None => return Err(Error::Unexpected("no job of a queue".into())),
            }
        }
    }

    /// Takes the first job that is due, and waits for one for `patience` at most. `None`: none was
    /// due in that time. Callers wait at the primary, which wakes the one that has waited longest
    /// as soon as a job is due. While it waits, it survives failovers as callers of a
    /// [`Lock`](crate::Lock) do, and it needs a tokio runtime with timers.
    ///
    /// # Errors
    /// As for [`JobQueue::take`]. [`Error::Overloaded`]: too many callers wait at the member that
    /// has the queue.
    ///
    /// # Cancel safety
    /// As for [`JobQueue::take`]. A caller that only waits has taken nothing.
    pub async fn take_waiting(
        &self,
        lease: Duration,
        patience: Duration,
    ) -> Result<Option<Job<T>>, Error> {
        let since = Instant::now();
        let until = since.checked_add(patience);
        let is_over = || until.is_some_and(|until| Instant::now() >= until);
        let mut pause = RETRY.0;
        loop {
            match self.take(lease).await {
                Ok(Some(job)) => return Ok(Some(job)),
                Ok(None) if is_over() => return Ok(None),
                Ok(None) => {}
                Err(why) if why.retryable() && !is_over() => {
                    sleep(pause).await;
                    pause = (pause * 2).min(RETRY.1);
                    continue;
                }
                Err(why) => return Err(why),
            }
            let waits = self.at.operation(queue::ready());
            match self.at.data.wait(waits, since, until).await {
                Ok((_, Outcome::Failed(failure))) | Err(Outcome::Failed(failure)) => {
                    let why = Error::of_read(failure);
                    if !why.retryable() || why == Error::Overloaded || is_over() {
                        return Err(why);
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(RETRY.1);
                }
                Ok(_) => pause = RETRY.0,
                Err(Outcome::Nil) => return Ok(None),
                Err(other) => return Err(Error::unexpected(other)),
            }
        }
    }

    fn job(&self, taken: QueuedJob, until: Instant) -> Result<Job<T>, Error> {
        Ok(Job {
            value: decode_element(&self.form, &taken.job)?,
            owned: OwnedJob {
                at: self.at.clone(),
                id: taken.id,
                token: taken.token,
                attempts_max: self.attempts_max,
            },
            attempt: taken.attempts,
            pushed: at_ms(taken.pushed_ms),
            until,
        })
    }

    /// The dead jobs, the one first that was taken last the longest ago.
    ///
    /// ```no_run
    /// # async fn example(mails: doyen::JobQueue<String>) -> Result<(), doyen::Error> {
    /// let mut dead = mails.dead();
    /// while let Some(job) = dead.next().await? {
    ///     println!("{} was tried {} times: {:?}", job.id, job.attempts, job.value);
    ///     mails.revive(job.id).await?;
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn dead(&self) -> DeadJobs<T> {
        DeadJobs {
            queue: self.clone(),
            page: VecDeque::new(),
            behind: Some(0),
        }
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(queue::MS_MAX)
}

/// When a lease that was asked for at this moment is over. A longer time than 100 years is cut: a
/// moment cannot be told that far ahead.
fn end_of(asked: Instant, lease: Duration) -> Instant {
    asked + lease.min(Duration::from_secs(100 * 365 * 86_400))
}

/// The moment of a wall time.
fn at_ms(unix_ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(unix_ms.min(queue::MS_MAX))
}

/// A job that this caller has taken. It reads as its value.
///
/// Dropping it does nothing: it is due again after its lease. [`Job::retry`] gives it back sooner.
///
/// Example: [`JobQueue`].
#[must_use = "say that it is done, or it is taken again after its lease"]
pub struct Job<T> {
    value: T,
    owned: OwnedJob,
    attempt: u32,
    pushed: SystemTime,
    until: Instant,
}

/// Names a job, and its owner.
#[derive(Debug)]
struct OwnedJob {
    at: CollectionKey,
    id: JobId,
    token: u64,
    attempts_max: u32,
}

impl<T: fmt::Debug> fmt::Debug for Job<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("id", &self.owned.id)
            .field("token", &self.owned.token)
            .field("attempt", &self.attempt)
            .field("value", &self.value)
            .finish_non_exhaustive()
    }
}

impl<T> Deref for Job<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Job<T> {
    /// What was pushed.
    #[must_use]
    pub const fn value(&self) -> &T {
        &self.value
    }

    /// Names the job, for logs and for [`JobQueue::revive`].
    #[must_use]
    pub const fn id(&self) -> JobId {
        self.owned.id
    }

    /// The fencing token: a number above those of all earlier takes of the job. A resource that
    /// refuses lower tokens than it has seen is safe from workers that lost the job without knowing
    /// it ([`Put::fenced`](crate::Put::fenced)). Tokens of several jobs are not comparable.
    #[must_use]
    pub const fn token(&self) -> u64 {
        self.owned.token
    }

    /// Which attempt this is; 1 is the first.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// When the job was pushed, by the clock of the member that was primary then.
    #[must_use]
    pub const fn pushed(&self) -> SystemTime {
        self.pushed
    }

    /// How much of the lease is left, by the clock of this process from before it asked. The
    /// primary may give the job to another worker earlier after a failover, if its clock is ahead.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// The job is done: it is removed. Returns `false` if it was not removed, because its lease had
    /// lapsed and another worker has taken it, it has become dead, or the queue was cleared. A lease
    /// that has lapsed does not matter as long as nothing of that has happened.
    ///
    /// # Errors
    /// As for [`Map::insert`](crate::Map::insert). The job is taken again after its lease, unless
    /// the call succeeds later: it may be repeated, also after [`Error::Unknown`]. Then `false` may
    /// mean that the first call has removed it.
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn done(&self) -> Result<bool, Error> {
        let OwnedJob { at, id, token, .. } = &self.owned;
        is_some(at.write(queue::done(*id, *token)).await?)
    }

    /// Gives the job back: it is due again after `after`. If this was its last attempt, it becomes
    /// dead instead. Returns `false` if this worker does not have the job any more, as for
    /// [`Job::done`]; then nothing happened.
    ///
    /// # Errors
    /// As for [`Job::done`].
    ///
    /// # Cancel safety
    /// As for [`Job::done`].
    pub async fn retry(&self, after: Duration) -> Result<bool, Error> {
        let OwnedJob {
            at,
            id,
            token,
            attempts_max,
        } = &self.owned;
        let outcome = at
            .write(queue::retry(*id, *token, ms(after), *attempts_max))
            .await?;
        match queue::read_retried(&outcome) {
            Some(Retried::Waits | Retried::Dead) => Ok(true),
            Some(Retried::Lost) => Ok(false),
            None => Err(Error::unexpected(outcome)),
        }
    }

    /// Makes the lease last for `lease` from now on, or longer if it was to last longer. Returns
    /// `false` if this worker does not have the job any more, as for [`Job::done`]: give up the
    /// work.
    ///
    /// # Errors
    /// As for [`Job::done`].
    ///
    /// # Cancel safety
    /// As for [`Job::done`].
    pub async fn extend(&mut self, lease: Duration) -> Result<bool, Error> {
        let OwnedJob { at, id, token, .. } = &self.owned;
        let asked = Instant::now();
        let outcome = at.write(queue::extend(*id, *token, ms(lease))).await?;
        let has_it = count(outcome)? != 0;
        if has_it {
            self.until = self.until.max(end_of(asked, lease));
        }
        Ok(has_it)
    }
}

/// A job that was not done in all of its attempts, from [`JobQueue::dead`].
///
/// Example: [`JobQueue::dead`].
#[derive(Debug)]
#[non_exhaustive]
pub struct DeadJob<T> {
    /// Names it, for [`JobQueue::revive`] and [`JobQueue::discard`].
    pub id: JobId,
    /// How often it was taken.
    pub attempts: u32,
    /// When it was pushed.
    pub pushed: SystemTime,
    /// What was pushed. [`Error::Value`]: it cannot be decoded.
    pub value: Result<T, Error>,
}

/// The dead jobs of a queue, from [`JobQueue::dead`]. Pages are read as they are needed.
///
/// Example: [`JobQueue::dead`].
pub struct DeadJobs<T> {
    queue: JobQueue<T>,
    page: VecDeque<QueuedJob>,
    /// The token of the last job that was read. `None`: there are no more.
    behind: Option<u64>,
}

impl<T> fmt::Debug for DeadJobs<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadJobs")
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned> DeadJobs<T> {
    /// The next dead job; `None` at the end. After an error it may be called again, and goes on.
    /// Jobs that become dead meanwhile may be returned or not.
    ///
    /// Example: [`JobQueue::dead`].
    ///
    /// # Errors
    /// No node serves the queue for 5 s.
    ///
    /// # Cancel safety
    /// Dropping the future loses no job, so this may stand in a `select!`.
    pub async fn next(&mut self) -> Result<Option<DeadJob<T>>, Error> {
        if self.page.is_empty()
            && let Some(behind) = self.behind
        {
            let outcome = self.queue.at.read(queue::dead_page(behind, PAGE)).await?;
            let page = queue::read_dead(outcome)
                .ok_or_else(|| Error::Unexpected("no jobs of a queue".into()))?;
            self.behind = page.last().map(|job| job.token);
            self.page = page.into();
        }
        let found = self.page.pop_front();
        Ok(found.map(|dead| DeadJob {
            id: dead.id,
            attempts: dead.attempts,
            pushed: at_ms(dead.pushed_ms),
            value: decode_element(&self.queue.form, &dead.job),
        }))
    }
}

/// A queue of jobs that is about to be opened, from [`Node::queue`](crate::Node::queue). Await it.
///
/// ```no_run
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Mail;
/// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
/// use doyen::JobQueue;
///
/// let mails: JobQueue<Mail> = node.queue("mails").keyspace("jobs").max_attempts(10).await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// As for [`Node::map`](crate::Node::map). [`Error::Refused`]: the keyspace evicts keys, or lets
/// them expire, and with them queues; or no attempt is allowed.
///
/// # Cancel safety
/// If the future is dropped, nothing has changed but that the map of queues may exist.
#[must_use = "it is opened when it is awaited"]
pub struct OpenJobQueue<'a, T> {
    map: OpenMap<'a, (), T>,
    name: String,
    attempts_max: u32,
}

impl<T> fmt::Debug for OpenJobQueue<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenJobQueue")
            .field("name", &self.name)
            .field("attempts_max", &self.attempts_max)
            .finish_non_exhaustive()
    }
}

impl<'a, T> OpenJobQueue<'a, T> {
    pub(crate) fn new(open: impl FnOnce(&str) -> OpenMap<'a, (), T>, name: &str) -> Self {
        Self {
            map: open(QUEUES),
            name: name.to_owned(),
            attempts_max: ATTEMPTS,
        }
    }

    /// The keyspace, as for [`OpenMap::keyspace`]. It must not evict keys.
    pub fn keyspace(mut self, keyspace: impl Into<String>) -> Self {
        self.map = self.map.keyspace(keyspace);
        self
    }

    /// How jobs are encoded, as for [`OpenMap::codec`].
    pub fn codec(mut self, codec: Codec) -> Self {
        self.map = self.map.codec(codec);
        self
    }

    /// What jobs are, as for [`OpenMap::schema`].
    pub fn schema(mut self, name: impl Into<Cow<'static, str>>, version: u16) -> Self {
        self.map = self.map.schema(name, version);
        self
    }

    /// How often a job is taken before it is dead; 5 by default. It counts for the takes of this
    /// handle, so give all workers the same number.
    pub const fn max_attempts(mut self, attempts: u32) -> Self {
        self.attempts_max = attempts;
        self
    }
}

impl<'a, T: Serialize + DeserializeOwned + 'a> IntoFuture for OpenJobQueue<'a, T> {
    type Output = Result<JobQueue<T>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let name = self.name;
            if self.attempts_max == 0 {
                return Err(Error::Refused(format!(
                    "max_attempts of the queue {name} is 0, so no job would be taken: give 1 at \
                     least"
                )));
            }
            self.map.can_have_codec(&format!("queue {name}"))?;
            let ((entry, data), form) = self.map.found().await?;
            let table = data.table();
            let keyspace = table
                .as_ref()
                .and_then(|table| table.keyspace(entry.keyspace));
            if let Some(keyspace) = keyspace
                && (keyspace.eviction != Eviction::None || keyspace.default_ttl_ms.is_some())
            {
                return Err(Error::Refused(format!(
                    "the keyspace {} evicts keys or lets them expire, and with them queues: make \
                     another one, and give it to the queue {name} (.keyspace(NAME))",
                    keyspace.name
                )));
            }
            Ok(JobQueue {
                at: CollectionKey::new((entry.keyspace, entry.id), data, &name),
                form: Arc::new(form),
                attempts_max: self.attempts_max,
                kind: PhantomData,
            })
        })
    }
}
