//! The shard and everything around it that the tasks of a data thread share.
//!
//! Nothing here is borrowed across an await. `pump` is one pass: it judges what was executed against a clock, a lease
//! and a generation that are read after it, hands out the outcomes, and carries away bytes and requests.

use super::waiters::{Redo, Waiter, Waiters};
use super::{Counters, DataOptions};
use crate::clock;
use crate::control::Upcall;
use crate::net::links::{LinkHandler, Links};
use crate::resp::budget::Budget;
use crate::resp::session::Connection;
use crate::shard::op::{Action, Failure, Operation, Outcome, PartitionAction, PartitionOperation};
use crate::shard::{Lane, Limits, Malformed, Request, Shard};
use crate::shared::Shared;
use bytes::BytesMut;
use doyen_gossip::Time;
use doyen_gossip::agreement::View;
use doyen_placement::MemberId;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};

/// Rounds of one pass: a sweep over partitions that goes on at once takes its next steps in the same pass.
const ROUNDS_MAX: usize = 4;
/// Comparisons of keys with patterns in one pass, in characters: well below a millisecond.
const COMPARE_WORK: usize = 1 << 17;
/// How often connections that stand still are looked for while others want room.
const STALLED_INTERVAL: Duration = Duration::from_secs(1);
/// Requests to the control thread that may wait here.
const UPCALLS_WAITING_MAX: usize = 1024;
/// Between two signs of life to the control thread.
const ALIVE_INTERVAL: Duration = Duration::from_millis(200);
/// How often a pass is tried while something waits, so that a lease that came back is noticed.
const WAITING_INTERVAL: Duration = Duration::from_millis(5);

/// What the tasks of a data thread share.
pub(crate) struct Core {
    pub(crate) inner: RefCell<Inner>,
    pub(crate) shared: Arc<Shared>,
    /// Taken at the end: the network knows this core as its handler.
    links: RefCell<Option<Rc<Links>>>,
    upcalls: mpsc::Sender<Upcall>,
    waiting_upcalls: RefCell<VecDeque<Upcall>>,
    /// The ticker shall look again at when it is due.
    pub(crate) rearm: Notify,
    /// When the ticker is due.
    armed: Cell<Time>,
    alive_at: Cell<Time>,
    stalled_at: Cell<Time>,
    pub(crate) draining: Cell<bool>,
    /// A connection ended, or draining began.
    pub(crate) connections_changed: Notify,
    this: OnceCell<std::rc::Weak<Self>>,
}

/// How long a lease may be over before this node says that the cluster is down.
const LED_MAX: Duration = Duration::from_secs(2);

/// What is borrowed for a batch.
pub(crate) struct Inner {
    pub(crate) shard: Shard,
    pub(crate) me: MemberId,
    pub(crate) view: Option<View>,
    generation: Option<u64>,
    waiters: Waiters,
    /// Read at the beginning of a batch.
    pub(crate) now: Time,
    /// How far this node's lease reached at the last look.
    lease: Time,
    pub(crate) unix_ms: u64,
    pub(crate) started: Time,
    /// Connections whose sweep over partitions can go on.
    sweeping: VecDeque<(Rc<Connection>, u64)>,
    pub(crate) connections: BTreeMap<u64, Rc<Connection>>,
    /// What they may hold together.
    pub(crate) budget: Rc<Budget>,
    pub(crate) connection_last: u64,
    pub(crate) counters: Counters,
    pub(crate) limits: Limits,
    pub(crate) password: Option<String>,
    pub(crate) connections_max: usize,
    /// Where connections without a partial command read into.
    pub(crate) scratch: BytesMut,
    incarnations: u64,
    /// Reads of an earlier incarnation, which wait for a view so long at most.
    redo: Vec<(u64, Redo)>,
    redo_until: Time,
}

impl Inner {
    /// Hands an operation to the shard: its token, and whether its outcome comes from another node.
    pub(crate) fn submit(&mut self, operation: Operation, waiter: impl FnOnce(Redo) -> Waiter) -> (u64, bool) {
        let read = matches!(operation.action, Action::Get | Action::Strlen | Action::Exists | Action::PTtl | Action::PExpireTime);
        let token = self.waiters.insert(waiter(if read { Redo::Key(operation.clone()) } else { Redo::Never }));
        let elsewhere = self.shard.submit(self.now, self.unix_ms, token, operation);
        (token, elsewhere)
    }

    /// Hands an operation on a partition to the shard.
    pub(crate) fn submit_partition(&mut self, operation: PartitionOperation, waiter: impl FnOnce(Redo) -> Waiter) -> u64 {
        let redo = if operation.action == PartitionAction::Clear { Redo::Never } else { Redo::Partition(operation.clone()) };
        let token = self.waiters.insert(waiter(redo));
        self.shard.submit_partition(self.now, token, operation);
        token
    }

    /// Whether a majority of the voters answered this node not long ago. Without that for so long, clients should not be sent to
    /// whomever an old table names.
    pub(crate) fn is_led(&self) -> bool {
        self.now <= self.lease + LED_MAX
    }

    /// Nobody waits for this any more.
    pub(crate) fn forget(&mut self, token: u64) {
        if self.waiters.remove(token).is_some() {
            self.shard.forget(token);
        }
    }

    fn deliver(&mut self, token: u64, outcome: Outcome) {
        match self.waiters.remove(token) {
            Some(Waiter::Reply { connection, slot, part, redo }) => {
                let goes_on = connection.deliver(slot, part, token, outcome, !matches!(redo, Redo::Never));
                self.sweeping.extend(goes_on.then_some((connection, slot)));
            }
            // An answer that nobody takes any more is dropped.
            Some(Waiter::Call { answer, .. }) => drop(answer.send(outcome)),
            None => {}
        }
    }

    /// This process is another member now: nothing that was held counts.
    fn restart(&mut self, me: MemberId) {
        self.incarnations += 1;
        self.me = me;
        self.view = None;
        self.shard = Shard::new(me, self.limits.clone(), seed(me, self.incarnations), self.now);
        self.redo_until = self.now + self.limits.park;
        self.redo.clear();
        for (token, redo) in self.waiters.redo() {
            match redo {
                Redo::Never => self.deliver(token, Outcome::Failed(Failure::Unknown)),
                read => self.redo.push((token, read)),
            }
        }
    }

    /// Asks again what an earlier incarnation did not answer, now that there is a view.
    fn redo(&mut self) {
        for (token, redo) in std::mem::take(&mut self.redo) {
            if !self.waiters.contains(token) {
                continue;
            }
            match redo {
                Redo::Key(operation) => {
                    self.shard.submit(self.now, self.unix_ms, token, operation);
                }
                Redo::Partition(operation) => self.shard.submit_partition(self.now, token, operation),
                Redo::Never => {}
            }
        }
    }

    /// No view came for too long.
    fn give_up_redo(&mut self) {
        if self.now >= self.redo_until {
            for (token, _) in std::mem::take(&mut self.redo) {
                self.deliver(token, Outcome::Failed(Failure::Unavailable));
            }
        }
    }
}

/// Jitter needs numbers that differ between members, nothing more.
const fn seed(me: MemberId, incarnation: u64) -> u64 {
    me.0.rotate_left(17) ^ incarnation
}

impl Core {
    pub(crate) fn new(options: &DataOptions, shared: Arc<Shared>, upcalls: mpsc::Sender<Upcall>) -> Rc<Self> {
        let now = clock::now();
        let me = options.me;
        let inner = Inner {
            shard: Shard::new(me, options.limits.clone(), seed(me, 0), now),
            me,
            view: None,
            generation: None,
            waiters: Waiters::default(),
            now,
            unix_ms: clock::unix_ms(),
            lease: Time::ZERO,
            started: now,
            sweeping: VecDeque::new(),
            connections: BTreeMap::new(),
            budget: Rc::new(Budget::new(&options.limits)),
            connection_last: 0,
            counters: Counters::default(),
            limits: options.limits.clone(),
            password: options.password.clone(),
            connections_max: options.connections_max,
            scratch: BytesMut::new(),
            incarnations: 0,
            redo: Vec::new(),
            redo_until: now,
        };
        let core = Rc::new(Self {
            inner: RefCell::new(inner),
            shared,
            links: RefCell::default(),
            upcalls,
            waiting_upcalls: RefCell::default(),
            rearm: Notify::new(),
            armed: Cell::new(Time::ZERO),
            alive_at: Cell::new(Time::ZERO),
            stalled_at: Cell::new(Time::ZERO),
            draining: Cell::new(false),
            connections_changed: Notify::new(),
            this: OnceCell::new(),
        });
        let _ = core.this.set(Rc::downgrade(&core));
        core
    }

    /// The data network, once it runs.
    pub(crate) fn set_links(&self, links: Rc<Links>) {
        *self.links.borrow_mut() = Some(links);
    }

    /// The data network ends: nothing refers to this core any more but tasks.
    pub(crate) fn take_links(&self) -> Option<Rc<Links>> {
        self.links.borrow_mut().take()
    }

    fn links(&self) -> Option<Rc<Links>> {
        self.links.borrow().clone()
    }

    /// Reads the clocks and installs the present view: whatever is submitted next meets it.
    pub(crate) fn begin(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.now = clock::now();
        inner.unix_ms = clock::unix_ms();
        inner.lease = self.shared.lease();
        // The generation first: the view is at least as new.
        let generation = self.shared.generation();
        if inner.generation == Some(generation) {
            return;
        }
        let local = self.shared.local();
        inner.generation = Some(generation);
        if local.me != inner.me {
            if let Some(links) = self.links() {
                links.reset(local.me);
            }
            inner.restart(local.me);
        }
        inner.view.clone_from(&local.view);
        let Some(view) = local.view.clone() else { return };
        if let Some(links) = self.links() {
            links.set_peers(&peers(&view));
        }
        let now = inner.now;
        inner.shard.install(now, view);
        inner.redo();
    }

    /// One pass.
    pub(crate) fn pump(&self) {
        let mut work = COMPARE_WORK;
        for _ in 0..ROUNDS_MAX {
            self.begin();
            let mut inner = self.inner.borrow_mut();
            let lease = self.shared.lease();
            let now = clock::now();
            let current = inner.generation == Some(self.shared.generation());
            inner.shard.release(now, lease, current);
            while let Some((token, outcome)) = inner.shard.poll_outcome() {
                inner.deliver(token, outcome);
            }
            let steps = inner.sweeping.len();
            for _ in 0..steps {
                if work > 0
                    && let Some((connection, slot)) = inner.sweeping.pop_front()
                    && connection.sweep_on(&mut inner, slot, &mut work)
                {
                    inner.sweeping.push_back((connection, slot));
                }
            }
            drop(inner);
            self.carry_away();
            if steps == 0 || work == 0 {
                break;
            }
        }
        self.rearm_if_due();
    }

    /// Bytes to peers, requests to the control thread.
    fn carry_away(&self) {
        loop {
            // Borrowed anew for each: the network is never called with the shard in hand.
            let next = self.inner.borrow_mut().shard.poll_transmit();
            let Some((peer, lane, bytes)) = next else { break };
            if let Some(links) = self.links()
                && links.send(peer, lane, bytes)
            {
                let mut inner = self.inner.borrow_mut();
                let now = inner.now;
                inner.shard.congested(now, peer, true);
            }
        }
        loop {
            let next = self.inner.borrow_mut().shard.poll_request();
            match next {
                None => break,
                Some(Request::Opened(opened)) => self.upcall(Upcall::Opened(opened)),
                Some(Request::InSync(changes)) => self.upcall(Upcall::InSync(changes)),
                Some(Request::Newer(table)) => self.upcall(Upcall::Newer(table)),
                Some(Request::Used) => self.ask_used(),
            }
        }
    }

    fn ask_used(&self) {
        let (answer, marked) = oneshot::channel();
        self.upcall(Upcall::Used(answer));
        let (Some(core), me) = (self.this.get().and_then(std::rc::Weak::upgrade), self.inner.borrow().me) else { return };
        tokio::task::spawn_local(async move {
            // No answer: the control thread surrendered this cluster or ended, and says so by another `Local`.
            if marked.await.is_ok() {
                core.begin();
                {
                    let mut inner = core.inner.borrow_mut();
                    if inner.me == me {
                        let now = inner.now;
                        inner.shard.used(now);
                    }
                }
                core.pump();
            }
        });
    }

    /// Never waits for the control thread; what does not fit goes with a later pass.
    fn upcall(&self, upcall: Upcall) {
        let mut waiting = self.waiting_upcalls.borrow_mut();
        if waiting.len() >= UPCALLS_WAITING_MAX
            && let Some(at) = waiting.iter().position(|u| matches!(u, Upcall::InSync(_) | Upcall::Newer(_)))
        {
            // The shard asks these again.
            waiting.remove(at);
        }
        waiting.push_back(upcall);
        while let Some(first) = waiting.pop_front() {
            if let Err(mpsc::error::TrySendError::Full(first)) = self.upcalls.try_send(first) {
                waiting.push_front(first);
                break;
            }
        }
    }

    /// A sign of life, what is due, and one pass.
    pub(crate) fn tick(&self) {
        self.begin();
        let now = {
            let mut inner = self.inner.borrow_mut();
            let now = inner.now;
            if inner.shard.poll_timeout().is_some_and(|due| due <= now) {
                inner.shard.tick(now);
            }
            inner.give_up_redo();
            if now >= self.stalled_at.get() && inner.budget.is_wanted() {
                self.stalled_at.set(now + STALLED_INTERVAL);
                let expelled = inner.connections.values().filter(|c| c.expel_if_stalled(now)).count();
                inner.counters.connections_expelled += expelled as u64;
            }
            now
        };
        if now >= self.alive_at.get() {
            self.alive_at.set(now + ALIVE_INTERVAL);
            if self.waiting_upcalls.borrow().is_empty() {
                // A full channel is emptied by somebody who will see the next one.
                let _ = self.upcalls.try_send(Upcall::Alive);
            } else {
                self.upcall(Upcall::Alive);
            }
        }
        self.armed.set(Time::ZERO);
        self.pump();
    }

    /// When the ticker is due.
    fn due(&self) -> Time {
        let inner = self.inner.borrow();
        let mut due = self.alive_at.get();
        if !inner.waiters.is_empty() || !self.waiting_upcalls.borrow().is_empty() {
            due = due.min(inner.now + WAITING_INTERVAL);
        }
        if !inner.sweeping.is_empty() {
            due = inner.now;
        }
        inner.shard.poll_timeout().map_or(due, |timeout| due.min(timeout))
    }

    fn rearm_if_due(&self) {
        // What is armed for less than the interval from now is soon enough.
        if self.due() + Duration::from_millis(1) < self.armed.get() {
            self.rearm.notify_one();
        }
    }

    /// How long the ticker may sleep.
    pub(crate) fn arm(&self) -> Duration {
        let due = self.due();
        self.armed.set(due);
        due.since(clock::now())
    }
}

/// Every other member of the tables in force: a member that is being admitted forwards already.
fn peers(view: &View) -> Vec<(MemberId, Arc<str>, SocketAddr)> {
    let members = view.installed.members.iter().chain(&view.accepted.members);
    let peers: BTreeMap<_, _> = members.map(|m| (m.id, (m.name.as_str().into(), m.addresses.data))).collect();
    peers.into_iter().map(|(id, (name, address))| (id, name, address)).collect()
}

/// Brings the network's news to the shard.
pub(crate) struct Handler(pub(crate) Rc<Core>);

impl LinkHandler for Handler {
    fn connected(&self, peer: MemberId) {
        self.0.begin();
        {
            let mut inner = self.0.inner.borrow_mut();
            let now = inner.now;
            inner.shard.connected(now, peer);
        }
        self.0.pump();
    }

    fn disconnected(&self, peer: MemberId) {
        self.0.begin();
        {
            let mut inner = self.0.inner.borrow_mut();
            let now = inner.now;
            inner.shard.disconnected(now, peer);
        }
        self.0.pump();
    }

    fn drained(&self, peer: MemberId) {
        self.0.begin();
        {
            let mut inner = self.0.inner.borrow_mut();
            let now = inner.now;
            inner.shard.congested(now, peer, false);
        }
        self.0.pump();
    }

    fn received(&self, peer: MemberId, lane: Lane, bytes: &mut BytesMut) -> Result<bool, Malformed> {
        self.0.begin();
        let result = {
            let mut inner = self.0.inner.borrow_mut();
            let (now, unix_ms) = (inner.now, inner.unix_ms);
            let result = inner.shard.receive(now, unix_ms, peer, lane, bytes);
            inner.counters.malformed += u64::from(result.is_err());
            result
        };
        self.0.pump();
        result
    }
}
