//! Subscriptions of callers on other threads: each is a queue that the data thread fills.
//!
//! ```text
//!   Shard ── take_told ──> Streams ── push ──> Stream ── next ──> the caller
//!     ^                                          │ falls below a half
//!     └──────── goes on <── Message::Room <──────┘
//! ```
//! The queue of a near cache wakes no task for a change alone: the cache looks into it before it
//! serves a copy. So a write beside a near cache costs no wake-up.
//!
//! A queue has a limit. While it is full, nothing more is taken from the shard, so the primaries
//! send nothing more, and at last the subscriber hears that changes are missing.

use super::DataMessage;
use super::inbox::Inbox;
use crate::waking;
use doyen_engine::op::Failure;
use doyen_engine::{Bookmark, Filter, Shard, SubscriptionId, Told};
use doyen_gossip::Time;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::oneshot;

/// Limits of a queue: how many things it holds, and their bytes.
const QUEUE_MAX: usize = 1_024;
const QUEUE_BYTES_MAX: usize = 512 << 10;
/// For so long, a caller waits until its subscription is ready.
const READY_MAX: Duration = Duration::from_secs(5);

/// The queue of one subscription.
#[derive(Debug, Default)]
struct StreamQueue {
    state: Mutex<StreamState>,
    /// Something may be in it.
    news: AtomicBool,
}

#[derive(Debug, Default)]
struct StreamState {
    told: VecDeque<Told>,
    bytes: usize,
    waker: Option<Waker>,
    /// The data thread waits for room.
    full: bool,
    /// The caller is gone.
    closed: bool,
    /// Nothing follows.
    ended: bool,
    /// The caller looks into the queue by itself, and is woken only for other things than changes,
    /// or if there are many.
    patient: bool,
}

impl StreamState {
    /// Whether the caller is to be woken.
    fn push(&mut self, told: Told) -> bool {
        self.ended |= told == Told::Ended;
        let change = matches!(told, Told::Change(_));
        let told = match self.told.back_mut() {
            Some(last) => {
                let before = last.bytes();
                let told = last.join(told);
                self.bytes = self.bytes - before + last.bytes();
                told
            }
            None => Some(told),
        };
        if let Some(told) = told {
            self.bytes += told.bytes();
            self.told.push_back(told);
        }
        let many = self.told.len() >= QUEUE_MAX / 4 || self.bytes >= QUEUE_BYTES_MAX / 4;
        !self.patient || !change || many
    }

    fn room(&self) -> bool {
        self.told.len() < QUEUE_MAX && self.bytes < QUEUE_BYTES_MAX
    }
}

impl StreamQueue {
    fn state(&self) -> MutexGuard<'_, StreamState> {
        // A panic while the lock was held left a whole state: each change is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the caller.
    fn changed(mut state: MutexGuard<'_, StreamState>) {
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waking::wake(waker);
        }
    }

    fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        self.news.store(true, Ordering::Release);
        Self::changed(state);
    }
}

/// The caller's end of a subscription. Dropping it ends the subscription.
#[derive(Debug)]
pub(crate) struct Stream {
    queue: Arc<StreamQueue>,
    inbox: Arc<Inbox>,
}

impl Stream {
    /// Whether it may have been told something that was not taken.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.queue.news.load(Ordering::Acquire)
    }

    /// The next thing that the subscription was told.
    pub(crate) fn try_next(&self) -> Option<Told> {
        match self.next(None) {
            Poll::Ready(next) => next,
            Poll::Pending => None,
        }
    }

    /// The next thing that the subscription was told. `None`: nothing follows.
    pub(crate) fn poll_next(&self, cx: &Context<'_>) -> Poll<Option<Told>> {
        self.next(Some(cx))
    }

    /// The same. Without a context, this does not change which task is woken.
    fn next(&self, cx: Option<&Context<'_>>) -> Poll<Option<Told>> {
        let mut state = self.queue.state();
        let Some(told) = state.told.pop_front() else {
            if state.ended {
                return Poll::Ready(None);
            }
            self.queue.news.store(false, Ordering::Release);
            if let Some(cx) = cx {
                state.waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        };
        state.bytes -= told.bytes();
        let (half, bytes_half) = (QUEUE_MAX / 2, QUEUE_BYTES_MAX / 2);
        let resumes = state.full && state.told.len() < half && state.bytes < bytes_half;
        state.full &= !resumes;
        drop(state);
        if resumes {
            self.inbox.tell(DataMessage::Room);
        }
        Poll::Ready(Some(told))
    }
}

impl Stream {
    /// Where the caller is: it has handled all that it has taken out of the queue.
    ///
    /// # Errors
    /// The subscription or the thread has ended.
    pub(crate) async fn bookmark(&mut self) -> Result<Bookmark, Failure> {
        let (answer, answered) = oneshot::channel();
        let queue = self.queue.clone();
        self.inbox
            .tell(DataMessage::Bookmark(Marking { queue, answer }));
        answered.await.map_err(|_| Failure::Stopped)
    }
}

/// A request for a bookmark.
#[derive(Debug)]
pub(super) struct Marking {
    queue: Arc<StreamQueue>,
    answer: oneshot::Sender<Bookmark>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.queue.state().closed = true;
        self.inbox.tell(DataMessage::Room);
    }
}

/// A request for a subscription: its filter, where it goes on, its queue, and the answer once it is
/// ready.
#[derive(Debug)]
pub(super) struct AskedStream {
    filter: Filter,
    after: Option<Bookmark>,
    confirms: Option<Duration>,
    queue: Arc<StreamQueue>,
    answer: oneshot::Sender<Result<(), Failure>>,
}

/// Asks a data thread for a subscription, from now on or after a bookmark. It is returned once it
/// is ready.
///
/// # Errors
/// See [`doyen_engine::Subscriber::subscribe`]. Some partition may have no primary for 5 s, or the
/// thread has ended.
///
/// With `confirms`, the stream says about this often that it has sent all ([`Told::Confirmed`]),
/// and does not wake for a change alone.
pub(super) async fn subscribe(
    inbox: Arc<Inbox>,
    (filter, after): (Filter, Option<Bookmark>),
    confirms: Option<Duration>,
) -> Result<Stream, Failure> {
    let queue = Arc::<StreamQueue>::default();
    queue.state().patient = confirms.is_some();
    let (answer, answered) = oneshot::channel();
    // If the caller gives up before the answer, this ends the subscription.
    let stream = Stream {
        queue: queue.clone(),
        inbox: inbox.clone(),
    };
    inbox.tell(DataMessage::Subscribe(Box::new(AskedStream {
        filter,
        after,
        confirms,
        queue,
        answer,
    })));
    match answered.await {
        Ok(Ok(())) => Ok(stream),
        Ok(Err(failure)) => Err(failure),
        Err(_) => Err(Failure::Stopped),
    }
}

/// The subscriptions of callers, at their data thread.
#[derive(Debug, Default)]
pub(super) struct Streams {
    all: Vec<Followed>,
}

#[derive(Debug)]
struct Followed {
    filter: Filter,
    /// Where it goes on when it has no subscription.
    after: Option<Bookmark>,
    confirms: Option<Duration>,
    /// `None`: there is no table that has its keyspace, since the beginning or since this process
    /// became another member.
    id: Option<SubscriptionId>,
    queue: Arc<StreamQueue>,
    /// The caller that waits until it is ready.
    answer: Option<oneshot::Sender<Result<(), Failure>>>,
    until: Time,
    /// The shard has something for it.
    told: bool,
}

impl Followed {
    fn refuse(&mut self, failure: Failure) {
        if let Some(answer) = self.answer.take() {
            waking::answer(answer, Err(failure));
        }
        self.queue.end();
    }
}

impl Streams {
    /// A caller asks for a subscription.
    pub(super) fn begin(&mut self, shard: &mut Shard, now: Time, asked: AskedStream) {
        let AskedStream {
            filter,
            after,
            confirms,
            queue,
            answer,
        } = asked;
        let id = match subscribed(shard, now, (&filter, after.as_ref()), confirms) {
            Ok(id) => Some(id),
            // There is no table yet, or none that has the keyspace. The next one may.
            Err(Failure::NoPartition) => None,
            Err(failure) => return waking::answer(answer, Err(failure)),
        };
        self.all.push(Followed {
            filter,
            after,
            confirms,
            id,
            queue,
            answer: Some(answer),
            until: now + READY_MAX,
            told: false,
        });
    }

    /// This process becomes another member: its shard will be gone, with its subscriptions. They go
    /// on where they were.
    pub(super) fn restart(&mut self, shard: &mut Shard) {
        for followed in &mut self.all {
            // What waits in the queue stays there.
            if let Some(id) = followed.id.filter(|_| followed.answer.is_none()) {
                followed.after = shard.subscriber().bookmark(id, std::iter::empty());
            }
            (followed.id, followed.told) = (None, false);
        }
    }

    /// A caller asks where it is.
    pub(super) fn mark(&self, shard: &mut Shard, marking: Marking) {
        let Marking { queue, answer } = marking;
        let Some(followed) = self.all.iter().find(|f| Arc::ptr_eq(&f.queue, &queue)) else {
            return;
        };
        let state = queue.state();
        let mark = match followed.id {
            Some(id) => shard.subscriber().bookmark(id, state.told.iter()),
            // It goes on there, and what it has not taken may be before it.
            None => followed.after.clone().filter(|_| state.told.is_empty()),
        };
        drop(state);
        // Where nothing is known, all is missing.
        waking::answer(answer, mark.unwrap_or_default());
    }

    /// What was followed is gone: no changes come any more.
    pub(super) fn end(&mut self) {
        self.all
            .drain(..)
            .for_each(|mut followed| followed.refuse(Failure::Unavailable));
    }

    /// Subscribes what waited for a table.
    pub(super) fn resume(&mut self, shard: &mut Shard, now: Time) {
        for followed in self.all.iter_mut().filter(|f| f.id.is_none()) {
            let from = (&followed.filter, followed.after.as_ref());
            followed.id = subscribed(shard, now, from, followed.confirms).ok();
        }
    }

    /// Ends subscriptions whose callers are gone, or that were not ready in time.
    pub(super) fn sweep(&mut self, shard: &mut Shard, now: Time) {
        self.all.retain_mut(|followed| {
            let late = followed.answer.is_some() && now >= followed.until;
            if late {
                followed.refuse(Failure::Unavailable);
            }
            let state = followed.queue.state();
            let stays = !state.closed && !state.ended && !late;
            drop(state);
            if let Some(id) = followed.id.filter(|_| !stays) {
                shard.subscriber().unsubscribe(now, id);
            }
            stays
        });
    }

    /// Gives callers what the shard was told, as far as they have room.
    pub(super) fn pump(&mut self, shard: &mut Shard, now: Time) {
        while let Some(id) = shard.subscriber().poll_subscription() {
            if let Some(followed) = self.all.iter_mut().find(|f| f.id == Some(id)) {
                followed.told = true;
            }
        }
        for followed in self.all.iter_mut().filter(|f| f.told) {
            let Some(id) = followed.id else { continue };
            let mut state = followed.queue.state();
            let (mut any, mut wakes, mut ready) = (false, false, None);
            loop {
                if !state.room() {
                    state.full = true;
                    break;
                }
                let Some(told) = shard.subscriber().take_told(now, id) else {
                    followed.told = false;
                    break;
                };
                let told = match told {
                    Told::Ready if followed.answer.is_some() => {
                        ready = followed.answer.take();
                        continue;
                    }
                    // It goes on, as another member.
                    Told::Ready => continue,
                    told => told,
                };
                wakes |= state.push(told);
                any = true;
            }
            if any {
                followed.queue.news.store(true, Ordering::Release);
            }
            if wakes {
                StreamQueue::changed(state);
            } else {
                drop(state);
            }
            // Not before: it wakes foreign code.
            if let Some(answer) = ready {
                waking::answer(answer, Ok(()));
            }
        }
    }

    /// When something is due besides.
    pub(super) fn due(&self) -> Option<Time> {
        let waits = self.all.iter().filter(|f| f.answer.is_some());
        waits.map(|f| f.until).min()
    }
}

fn subscribed(
    shard: &mut Shard,
    now: Time,
    (filter, after): (&Filter, Option<&Bookmark>),
    confirms: Option<Duration>,
) -> Result<SubscriptionId, Failure> {
    let id = shard.subscriber().subscribe(now, filter.clone(), after)?;
    if let Some(every) = confirms {
        shard.subscriber().confirm(now, id, every);
    }
    Ok(id)
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.all
            .iter_mut()
            .for_each(|followed| followed.refuse(Failure::Stopped));
    }
}

/// Whatever is next of a stream.
pub(crate) struct NextChange<'a>(pub(crate) &'a Stream);

impl Future for NextChange<'_> {
    type Output = Option<Told>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Told>> {
        self.0.poll_next(cx)
    }
}
