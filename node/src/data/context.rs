//! The state that a data thread acts on: its shard, the view, the clock, and the waiters of each
//! operation.
//!
//! The network, other threads and the front end borrow it one after the other during a pass.
//! `core` drives it: it advances the time, judges the pass, and carries out the results.

use super::front_end::{FrontEnd, FrontEndMessage, Waiter};
use super::group::ThreadGroup;
use super::inbox::{Ask, InboxSlot, Left};
use super::latency::{CommandFamily, LatencyMeter};
use super::waiters::{Recipient, Waiters};
use crate::audit::Audit;
use crate::clock;
use crate::control::Errand;
use crate::net::links::LinkHandler;
use bytes::BytesMut;
use doyen_engine::command::{GatherResult, Gathering};
use doyen_engine::grants::GrantRefusal;
use doyen_engine::op::{Failure, Operation, Outcome, Work};
use doyen_engine::{
    AskedSubscribers, CountQuestion, CountedReceivers, Filter, Lane, Limits, Malformed, OpenCaller,
    Patience, Publication, Shard, SubscriptionId, Told,
};
use doyen_gossip::Time;
use doyen_gossip::agreement::View;
use doyen_placement::{KeyspaceId, MapId, MemberId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How long reads of an expelled process wait until it has joined again. Usually that takes a fifth
/// of a second. If something keeps the process out, other nodes can answer its clients.
const REDO_MAX: Duration = Duration::from_secs(1);
/// How long a lease may have expired before this node says that the cluster is down.
const LED_MAX: Duration = Duration::from_secs(2);

/// A data thread as its front end sees it.
pub(crate) struct DataContext<D: FrontEnd> {
    /// The front end's half that belongs here.
    pub(crate) front: D,
    pub(super) shard: Shard,
    pub(super) me: MemberId,
    pub(super) group: Arc<ThreadGroup>,
    pub(super) view: Option<View>,
    pub(super) generation: Option<u64>,
    /// The generation under which results of earlier looks may be answered, as of the last check of
    /// lease and generation.
    pub(super) judged: Option<u64>,
    pub(super) waiters: Waiters<D::Waiter>,
    /// The latencies of callers on other threads.
    pub(super) native: LatencyMeter,
    /// Outcomes for callers on other threads, delivered at the end of the pass.
    pub(super) answers: Vec<(InboxSlot, Outcome)>,
    /// The tokens of callers on other threads that wait until an operation is not blocked.
    waits: BTreeMap<InboxSlot, u64>,
    /// Clients that asked for the newest table, by numbers of the front end.
    pub(super) looking: Vec<u64>,
    /// Errands of clients, by such numbers.
    pub(super) errands: Vec<(u64, Errand)>,
    /// What clients changed, or tried to.
    pub(super) audits: Vec<Audit>,
    pub(super) now: Time,
    pub(super) unix_ms: u64,
    /// How far the clock of data, which `unix_ms` shows, is ahead of the machine's.
    ahead: Duration,
    started: Time,
    /// The end of this node's lease at the last look.
    pub(super) lease: Time,
    /// Whether this node's half of a split serves nothing.
    pub(super) stopped: bool,
    pub(super) limits: Limits,
    /// Links that were closed because the peer's bytes were malformed.
    pub(super) malformed: u64,
    incarnations: u64,
    /// Reads of an earlier incarnation. They wait for a view until `redo` gives up.
    redo: Vec<(u64, Work)>,
    redo_until: Time,
}

/// What a front end asks of its thread.
#[cfg_attr(
    not(feature = "resp"),
    allow(dead_code, reason = "this build has no front end that asks")
)]
impl<D: FrontEnd> DataContext<D> {
    /// Submits an operation to the shard. Returns its token, and whether its outcome comes from
    /// elsewhere. `waiter` makes its recipient, and its argument says whether the operation is a
    /// read.
    #[inline]
    pub(crate) fn submit(
        &mut self,
        work: impl Into<Work>,
        patience: Patience,
        waiter: impl FnOnce(bool) -> D::Waiter,
    ) -> (u64, bool) {
        let work = work.into();
        let waiter = Recipient::Client(waiter(!work.is_write()));
        let token = self.waiters.insert(waiter);
        let elsewhere = self
            .shard
            .submit(self.now, self.unix_ms, token, work, patience);
        (token, elsewhere)
    }

    /// Submits a write without conditions to the shard, if this thread leads its key and the write
    /// need not wait. Returns its token.
    #[inline]
    pub(crate) fn set(
        &mut self,
        keyspace: KeyspaceId,
        map: MapId,
        pair: (&[u8], &[u8]),
        waiter: impl FnOnce() -> D::Waiter,
    ) -> Option<u64> {
        let mut token = None;
        let waiters = &mut self.waiters;
        self.shard.set(self.now, keyspace, map, pair, || {
            *token.insert(waiters.insert(Recipient::Client(waiter())))
        });
        token
    }

    /// The number of the next operation that is submitted.
    pub(crate) const fn next_number(&self) -> u64 {
        self.shard.next_number()
    }

    /// Keeps a result of `read` that may not be answered now. Returns its token.
    pub(crate) fn keep(
        &mut self,
        n: u64,
        operation: Operation,
        outcome: Outcome,
        waiter: D::Waiter,
    ) -> u64 {
        let token = self.waiters.insert(Recipient::Client(waiter));
        self.shard.keep(token, n, operation, outcome);
        token
    }

    /// The client does not wait for this any more, or gives back the grant that it got.
    pub(crate) fn forget(&mut self, token: u64) {
        self.waiters.remove(token);
        self.shard.forget(token);
    }

    /// Combines what was read of keys in several partitions (`Gathering::combined_at`).
    pub(crate) fn combine(&mut self, gathering: &Gathering) -> Result<GatherResult, Failure> {
        gathering.combined_at(self.now, &mut self.shard)
    }

    /// Asks the coordinator for the newest table. When it is here, the front end gets `asked`
    /// (`FrontEnd::looked`).
    pub(crate) fn look_for_table(&mut self, asked: u64) {
        self.looking.push(asked);
    }

    /// Lets the control thread run an errand. When it is done, the front end gets `asked`
    /// (`FrontEnd::ran`).
    pub(crate) fn run_errand(&mut self, asked: u64, errand: Errand) {
        self.errands.push((asked, errand));
    }

    /// Tells what a client changed, or tried to.
    pub(crate) fn audit(&mut self, audit: Audit) {
        self.audits.push(audit);
    }

    /// The generation under which this thread may read the partitions that it leads: the one under
    /// which the last pass was judged well.
    pub(crate) fn looks_under(&self) -> Option<u64> {
        self.judged
            .filter(|judged| self.generation == Some(*judged))
    }

    /// The generation under which results of earlier looks may be answered, if they may.
    pub(crate) fn judged(&self) -> Option<u64> {
        self.judged
    }

    /// Whether a majority of the voters answered this node within `LED_MAX`. Otherwise clients
    /// should not be sent to the members that an old table names.
    pub(crate) fn is_led(&self) -> bool {
        self.now <= self.lease + LED_MAX
    }

    /// Whether this node's half of a split serves nothing (rule 13).
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// The partitions of this thread.
    #[inline]
    pub(crate) fn shard(&self) -> &Shard {
        &self.shard
    }

    /// Reads a key that this thread leads, at once, and returns the number of the operation
    /// (`Shard::read`). The result may be answered if the pass is judged well. Otherwise `keep` it.
    #[inline]
    pub(crate) fn read(
        &mut self,
        keyspace: KeyspaceId,
        map: MapId,
        key: &[u8],
    ) -> Option<(u64, Option<&[u8]>)> {
        self.shard.read(self.now, keyspace, map, key)
    }

    /// Publishes a message: to the subscribers of this thread, and to the other data threads and
    /// members that have subscribers.
    pub(crate) fn publish(&mut self, publication: Publication) {
        self.shard.channels().publish(self.now, publication);
    }

    /// From now on, this thread takes messages of publishers, or no longer.
    pub(crate) fn want_published(&mut self, wanted: bool) {
        self.shard.channels().want_published(self.now, wanted);
    }

    /// Whether all peers know that this thread takes messages, or had time enough.
    pub(crate) fn is_heard(&self) -> bool {
        self.shard.published().is_heard(self.now)
    }

    /// Asks the other members about subscribers or scripts. The answer comes with this number.
    /// `None`: no other member is asked.
    pub(crate) fn ask_subscribers(&mut self, asked: AskedSubscribers) -> Option<u64> {
        self.shard.channels().ask_subscribers(self.now, asked)
    }

    /// The next answer to such a question.
    pub(crate) fn poll_counted(&mut self) -> Option<(u64, CountedReceivers)> {
        self.shard.channels().poll_counted()
    }

    /// The next such question of another member.
    pub(crate) fn poll_question(&mut self) -> Option<CountQuestion> {
        self.shard.channels().poll_question()
    }

    /// Answers a question with numbers.
    pub(crate) fn answer_question(&mut self, question: &CountQuestion, counts: Vec<u64>) {
        self.shard.channels().answer_question(question, counts);
    }

    /// Answers a question with names; `next`: more follow after this one.
    pub(crate) fn answer_names(
        &mut self,
        question: &CountQuestion,
        names: Vec<Vec<u8>>,
        next: Option<Vec<u8>>,
    ) {
        self.shard.channels().answer_names(question, names, next);
    }

    /// The next message of a publisher.
    pub(crate) fn poll_published(&mut self) -> Option<Publication> {
        self.shard.channels().poll_published()
    }

    /// The next command of a script that the script's caller was not allowed to run.
    pub(crate) fn poll_refusal(&mut self) -> Option<GrantRefusal> {
        self.shard.poll_refusal()
    }

    /// Follows changes. The subscription ends with this life of the thread ([`Self::incarnation`]).
    ///
    /// # Errors
    /// See [`doyen_engine::Subscriber::subscribe`].
    pub(crate) fn subscribe(&mut self, filter: Filter) -> Result<SubscriptionId, Failure> {
        self.shard.subscriber().subscribe(self.now, filter, None)
    }

    /// A subscription gets a confirmation about this often that it has all changes.
    pub(crate) fn confirm_told(&mut self, id: SubscriptionId, every: Duration) {
        self.shard.subscriber().confirm(self.now, id, every);
    }

    /// Ends a subscription.
    pub(crate) fn unsubscribe(&mut self, id: SubscriptionId) {
        self.shard.subscriber().unsubscribe(self.now, id);
    }

    /// The next thing that a subscription was told.
    pub(crate) fn take_told(&mut self, id: SubscriptionId) -> Option<Told> {
        self.shard.subscriber().take_told(self.now, id)
    }

    /// Gives the subscribers of this thread a message, and no others.
    pub(crate) fn notify(&mut self, publication: Publication) {
        self.shard.channels().notify(publication);
    }

    /// How often this process became another member.
    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnations
    }

    /// Bytes of values and frames that the shard has handled since the last call.
    #[inline]
    pub(crate) fn take_work(&mut self) -> usize {
        self.shard.take_work()
    }

    /// The id of this data thread.
    pub(crate) fn me(&self) -> MemberId {
        self.me
    }

    /// How many data threads the node has.
    pub(crate) fn threads(&self) -> u8 {
        self.group.threads()
    }

    /// The installed and the accepted table; `None` before there is a table.
    pub(crate) fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// The time at the beginning of the batch.
    #[inline]
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// The wall time at the beginning of the batch.
    #[inline]
    pub(crate) fn unix_ms(&self) -> u64 {
        self.unix_ms
    }

    /// When the thread was started.
    pub(crate) fn started(&self) -> Time {
        self.started
    }

    /// The limits of this thread.
    #[inline]
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Sends a message to the front end of another thread.
    pub(crate) fn tell(&self, thread: u8, message: FrontEndMessage) {
        self.group.tell(thread, message);
    }
}

/// The side that the thread's loop drives.
impl<D: FrontEnd> DataContext<D> {
    pub(super) fn new(me: MemberId, limits: Limits, group: Arc<ThreadGroup>, front: D) -> Self {
        let now = clock::now();
        Self {
            front,
            shard: shard(me, &limits, 0, now),
            me,
            group,
            view: None,
            generation: None,
            judged: None,
            waiters: Waiters::new(),
            native: LatencyMeter::default(),
            answers: Vec::new(),
            waits: BTreeMap::new(),
            looking: Vec::new(),
            errands: Vec::new(),
            audits: Vec::new(),
            now,
            unix_ms: clock::unix_ms(),
            ahead: Duration::ZERO,
            started: now,
            lease: Time::ZERO,
            stopped: false,
            limits,
            malformed: 0,
            incarnations: 0,
            redo: Vec::new(),
            redo_until: now,
        }
    }

    /// Reads the wall clock. The clock of data is so far ahead of it, and of the machine's other
    /// clocks.
    pub(super) fn look_at_wall(&mut self, ahead: Duration) {
        let ahead_ms = u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX);
        self.unix_ms = clock::unix_ms().saturating_add(ahead_ms);
        if ahead != self.ahead {
            self.ahead = ahead;
            self.shard.set_ahead(self.now, ahead);
        }
    }

    /// Submits what a caller in another thread has left.
    pub(super) fn submit_left(&mut self, left: Left) {
        let Left { ask, slot, trace } = left;
        if let Ask::Leave = ask {
            if let Some(token) = self.waits.get(&slot).copied() {
                self.shard.forget(token);
                self.deliver(token, Outcome::Nil);
            }
            return;
        }
        let counted = match &ask {
            Ask::Execute(work) => Some((CommandFamily::of(work), self.now)),
            // It waits on purpose.
            Ask::Wait(_) | Ask::Leave => None,
        };
        let token = self.waiters.insert(Recipient::Call(slot, counted));
        if let Some(context) = trace {
            self.shard.trace(token, *context);
        }
        let (work, patience) = match ask {
            Ask::Execute(work) => (work, Patience::Whole),
            Ask::Wait(wait) => {
                self.waits.insert(slot, token);
                let (age, until) = (self.now.since(wait.since), wait.until);
                (Work::Key(wait.operation), Patience::InLine { age, until })
            }
            Ask::Leave => return,
        };
        self.shard
            .submit(self.now, self.unix_ms, token, work, patience);
    }

    pub(super) fn deliver(&mut self, token: u64, outcome: Outcome) {
        match self.waiters.remove(token) {
            Some(Recipient::Client(waiter)) => D::deliver(self, token, waiter, outcome),
            Some(Recipient::Call(slot, counted)) => {
                if let Some((family, came)) = counted {
                    self.native.note(family, came, 1);
                }
                if !self.waits.is_empty() && self.waits.remove(&slot).is_some() {
                    // A caller of the library cannot say when it has taken what it was granted. So
                    // the next one in line may be woken too early, and finds nothing.
                    self.shard.forget(token);
                }
                self.answers.push((slot, outcome));
            }
            None => {}
        }
    }

    /// This process became another member: everything that it held is void. Reads are submitted
    /// again, and callers in line wait as callers of that member. The outcome of writes is unknown.
    pub(super) fn restart(&mut self, me: MemberId) {
        self.incarnations += 1;
        self.me = me;
        self.view = None;
        let shard = shard(me, &self.limits, self.incarnations, self.now);
        let former = std::mem::replace(&mut self.shard, shard);
        self.shard.set_ahead(self.now, self.ahead);
        self.redo_until = self.now + self.limits.park.min(REDO_MAX);
        let unanswered: Vec<_> = former.into_calls(&mut self.shard).collect();
        let mut open = BTreeSet::new();
        for caller in unanswered {
            match caller {
                OpenCaller::InLine(token) => _ = open.insert(token),
                OpenCaller::Call(token, call, overtaken) => {
                    if !call.is_write() && (!overtaken || self.may_ask_again(token)) {
                        open.insert(token);
                        self.redo.push((token, call));
                    }
                }
            }
        }
        for token in self
            .waiters
            .tokens()
            .into_iter()
            .filter(|token| !open.contains(token))
        {
            let read = matches!(
                self.waiters.get(token),
                Some(Recipient::Client(waiter)) if waiter.is_read()
            );
            self.deliver(
                token,
                Outcome::Failed(if read {
                    Failure::Unavailable
                } else {
                    Failure::Unknown
                }),
            );
        }
    }

    /// Submits the unanswered reads of an earlier incarnation again, now that there is a view.
    pub(super) fn redo(&mut self) {
        for (token, call) in std::mem::take(&mut self.redo) {
            if !self.waiters.contains(token) {
                continue;
            }
            self.submit_again(token, call);
        }
    }

    /// Submits an operation again. Its recipient waits already.
    fn submit_again(&mut self, token: u64, work: Work) {
        if let Some(Recipient::Client(waiter)) = self.waiters.get(token) {
            waiter.is_asked_again(self.now + self.limits.park);
        }
        let _ = self
            .shard
            .submit(self.now, self.unix_ms, token, work, Patience::Whole);
    }

    /// Whether no client could tell if an operation that changed nothing was executed later than it
    /// was. The front end knows this for its clients. Callers of the library submit nothing more
    /// before they have the answer.
    fn may_ask_again(&self, token: u64) -> bool {
        match self.waiters.get(token) {
            Some(Recipient::Client(waiter)) => waiter.may_be_asked_again(),
            Some(Recipient::Call(..)) => true,
            None => false,
        }
    }

    /// Submits operations again that changed nothing and whose outcomes were lost, if no client can
    /// tell the difference. True if there are any.
    pub(super) fn ask_overtaken(&mut self) -> bool {
        let mut some = false;
        while let Some((token, work)) = self.shard.poll_overtaken() {
            if !self.waiters.contains(token) {
                continue;
            }
            if self.may_ask_again(token) {
                self.submit_again(token, work);
                some = true;
            } else {
                self.deliver(token, Outcome::Failed(Failure::Unavailable));
            }
        }
        some
    }

    /// Gives up the reads for which no view came in time.
    pub(super) fn give_up_redo(&mut self) {
        if self.now >= self.redo_until {
            for (token, _) in std::mem::take(&mut self.redo) {
                self.deliver(token, Outcome::Failed(Failure::Unavailable));
            }
        }
    }
}

/// A shard of this member in its nth incarnation.
fn shard(me: MemberId, limits: &Limits, incarnation: u64, now: Time) -> Shard {
    let mut shard = Shard::new(me, limits.clone(), seed(me, incarnation), now);
    shard.set_work_clocks(clock::work_time, clock::thread_time_about);
    #[cfg(feature = "otel")]
    shard.set_serve(crate::traces::serve);
    shard
}

/// Jitter needs numbers that differ between members. They need no other property.
const fn seed(me: MemberId, incarnation: u64) -> u64 {
    me.0.rotate_left(17) ^ incarnation
}

/// Events of the network are inputs of the shard.
impl<D: FrontEnd> LinkHandler for DataContext<D> {
    fn connected(&mut self, peer: MemberId, version: u16) {
        self.shard.connected(self.now, peer, version);
    }

    fn disconnected(&mut self, peer: MemberId) {
        self.shard.disconnected(self.now, peer);
    }

    fn drained(&mut self, peer: MemberId) {
        self.shard.congested(self.now, peer, false);
    }

    fn received(
        &mut self,
        peer: MemberId,
        lane: Lane,
        bytes: &mut BytesMut,
    ) -> Result<bool, Malformed> {
        let result = self
            .shard
            .receive(self.now, self.unix_ms, peer, lane, bytes);
        self.malformed += u64::from(result.is_err());
        result
    }

    fn datagram(&mut self, peer: MemberId, bytes: &[u8]) -> Result<(), Malformed> {
        let result = self.shard.datagram(self.now, peer, bytes);
        self.malformed += u64::from(result.is_err());
        result
    }
}
