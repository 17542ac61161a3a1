//! A connection, as its socket, the outcomes of the shard, and other threads and members see it.

use super::client::{SessionClient, Unblocking};
use super::client_tracking::{invalidation, lost_target};
use super::pending::{Arrived, SessionEffect, Stepped};
use super::replies::{Replies, TakenArrival};
use super::subscriptions::ClientSubscriptions;
use super::{PasswordJudging, Session};
use crate::data::front_end::Waiter;
use crate::resp::RespContext;
use crate::resp::acl::compiled::Home;
use crate::resp::acl::users::Users;
use crate::resp::budget::{ClientBudget, FREE_ANSWER_BYTES, FREE_INPUT_BYTES, STALLED_MAX};
use crate::resp::common::ToldThreads;
use crate::resp::encode::Protocol;
use crate::resp::frame::Args;
use crate::resp::pubsub::Push;
use crate::resp::ready::ReadyClients;
use crate::resp::settings::OutputLimit;
use crate::resp::timing::CommandLatency;
use bytes::Bytes;
use doyen_engine::CountedReceivers;
use doyen_engine::op::Outcome;
use doyen_gossip::Time;
use doyen_gossip::agreement::AdminReply;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

/// A connection: its session, and what its socket needs to know without it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) session: RefCell<Session>,
    /// Its number among the sockets.
    at: usize,
    ready: Rc<ReadyClients>,
    /// It is in the list of connections that have something to do.
    pub(crate) queued: Cell<bool>,
    /// Bytes of input that it holds.
    pub(crate) input_held: Cell<usize>,
    /// When it last ran a command, sent output, or was allowed to read on.
    pub(crate) moved_at: Cell<Time>,
    /// It is not read, because other connections hold too much.
    waits_for_room: Cell<bool>,
    /// Some commands that came are not taken yet, because earlier ones wait for answers.
    pub(crate) behind: Cell<bool>,
    /// When input was last read. Reading is not progress: a client that sends its command byte by
    /// byte makes none.
    pub(crate) heard_at: Cell<Time>,
    /// It made no progress for too long while others wanted room, so it is closed.
    pub(crate) expelled: Cell<bool>,
    /// The number of its client, if that does not hear of its own changes. Then its operations are
    /// noted.
    pub(crate) no_loop: Cell<Option<u64>>,
}

/// What waits for the outcome of an operation: a slot of a connection's queue, and a part of it.
#[derive(Debug)]
pub(crate) struct ReplyWaiter {
    pub(crate) connection: Rc<Connection>,
    pub(crate) slot: u64,
    pub(crate) part: u32,
    /// If the outcome is lost, the operation can be repeated.
    pub(crate) read: bool,
}

/// What came of a message for a subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Took {
    /// It has the message, or wants no more messages.
    Well,
    /// Too much waits for it.
    TooMuch,
}

impl Waiter for ReplyWaiter {
    fn is_read(&self) -> bool {
        self.read
    }

    // What a client asked after this operation must come after it.
    fn may_be_asked_again(&self) -> bool {
        let session = self.connection.session.borrow();
        session.replies.is_last(self.slot)
    }

    fn is_asked_again(&self, until: Time) {
        let mut session = self.connection.session.borrow_mut();
        session.replies.deadlines.set_last(until);
    }
}

impl Connection {
    pub(crate) fn new(
        (id, at): (u64, usize),
        cluster_port: bool,
        addresses: (SocketAddr, SocketAddr),
        users: &Users,
        (budget, latency): (Rc<ClientBudget>, Rc<CommandLatency>),
        now: Time,
    ) -> Rc<Self> {
        let ready = budget.ready().clone();
        let client = SessionClient::new(id, cluster_port, addresses, users, now);
        let session = Session::new(client, Replies::new((id, at), budget, latency));
        Rc::new(Self {
            session: RefCell::new(session),
            at,
            ready,
            queued: Cell::new(false),
            input_held: Cell::new(0),
            moved_at: Cell::new(now),
            heard_at: Cell::new(now),
            waits_for_room: Cell::new(false),
            behind: Cell::new(false),
            expelled: Cell::new(false),
            no_loop: Cell::new(None),
        })
    }

    /// The connection has something to do.
    pub(crate) fn wake(&self) {
        if !self.queued.replace(true) {
            self.ready.push(self.at);
        }
    }

    /// Ends the connection at once.
    pub(crate) fn end(&self) {
        self.expelled.set(true);
        self.wake();
    }

    /// Runs one command, or a slice of it. False if the same arguments are wanted again.
    pub(crate) fn execute(self: &Rc<Self>, context: &mut RespContext, args: Args<'_>) -> bool {
        self.session.borrow_mut().execute(self, context, args)
    }

    /// Takes an outcome for a slot. True if its reply has a next step. `read`: if the outcome is
    /// lost, the operation can be repeated. `judged` is the generation under which this thread may
    /// answer what it looked at before.
    pub(crate) fn deliver(
        &self,
        at: (Time, Option<u64>),
        (slot, part): (u64, u32),
        token: u64,
        outcome: Outcome,
        read: bool,
    ) -> bool {
        let mut session = self.session.borrow_mut();
        let what = (read, self.behind.get());
        let replies = &mut session.replies;
        let taken = replies.deliver(at, (slot, part, token), outcome, what);
        self.go_on(&mut session, taken)
    }

    /// Another thread's part of an answer.
    pub(in crate::resp) fn told(&self, slot: u64, told: ToldThreads) {
        let mut session = self.session.borrow_mut();
        let taken = session.replies.arrive(slot, Arrived::Thread(told));
        self.go_on(&mut session, taken);
    }

    /// What other members answered to its question about subscribers: for this reply, or for its
    /// present command.
    pub(crate) fn counted(&self, reply: Option<u64>, counted: CountedReceivers) {
        let mut session = self.session.borrow_mut();
        if let Some(slot) = reply {
            let taken = session.replies.arrive(slot, Arrived::Members(counted));
            self.go_on(&mut session, taken);
            return;
        }
        session.subscriptions.count(counted);
        drop(session);
        self.goes_on();
    }

    /// The other members have answered for a script of this reply. True if it has a next step.
    pub(crate) fn looked_for_script(&self, slot: u64) -> bool {
        let mut session = self.session.borrow_mut();
        let taken = session.replies.arrive(slot, Arrived::Script);
        self.go_on(&mut session, taken)
    }

    /// Something has come for a reply. True if the reply has a next step.
    fn go_on(&self, session: &mut Session, taken: Option<TakenArrival>) -> bool {
        let Some(taken) = taken else {
            return false;
        };
        match taken.after {
            // The replies have done that.
            SessionEffect::Nothing | SessionEffect::Is(..) | SessionEffect::PutsBack(_) => {}
            SessionEffect::Watches(watching) => {
                session.transacting.get_or_insert_default().watch(watching)
            }
            SessionEffect::Restores(before) => {
                (session.client.name, session.client.map) = (before.name, before.map);
            }
        }
        if !taken.steps && (taken.is_first && session.encode_ready() || session.replies.partway) {
            self.wake();
        }
        taken.steps
    }

    /// Takes the next steps of a reply, and subtracts from `work`. True if it has more to do at
    /// once.
    pub(crate) fn step(
        self: &Rc<Self>,
        context: &mut RespContext,
        slot: u64,
        work: &mut usize,
    ) -> bool {
        let mut session = self.session.borrow_mut();
        match session.replies.step(self, context, slot, work) {
            Stepped::Again => return true,
            Stepped::Waits => {}
            Stepped::Executes(prepared, found) => {
                let mut asker = session.replies.asker_of(slot, self, context);
                session.execute_found(&mut asker, (*prepared, found));
            }
        }
        if session.encode_ready() {
            self.wake();
        }
        false
    }

    /// Whether it may read more now. If not, it is woken to try again, and the pause is not counted
    /// against it.
    pub(crate) fn may_read(&self, id: u64, now: Time) -> bool {
        let session = self.session.borrow();
        let may = session.replies.charges.budget().may_read(
            now,
            (id, self.at),
            !session.client.authenticated,
            self.input_held.get(),
        );
        if self.waits_for_room.replace(!may) && may {
            self.moved_at.set(now);
        }
        may
    }

    /// When input was last read, or when it last made progress, whichever is later.
    pub(crate) fn active_at(&self) -> Time {
        self.heard_at.get().max(self.moved_at.get())
    }

    /// Ends the connection if it holds much and makes no progress while others want room; says so.
    pub(crate) fn expel_if_stalled(&self, now: Time) -> bool {
        let much = self.input_held.get() > FREE_INPUT_BYTES
            || self.session.borrow().replies.charges.charged() > FREE_ANSWER_BYTES;
        // This includes connections that wait for room themselves, with a part of a command: if
        // many do, none of them completes, and all keep what they hold.
        let stalled = much && now.since(self.moved_at.get()) > STALLED_MAX;
        let expelled = stalled && !self.expelled.replace(true);
        if expelled {
            self.wake();
        }
        expelled
    }

    /// Whether the client has authenticated, or need not. True as well while it runs a command.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.session
            .try_borrow()
            .map_or(true, |session| session.client.authenticated)
    }

    /// The newest table is here or cannot be had. The command that waited for it is run again.
    pub(crate) fn looked(&self) {
        if self.session.borrow_mut().errands.looked() {
            self.wake();
        }
    }

    /// An errand of this client is done.
    pub(crate) fn ran(&self, reply: AdminReply) {
        if self.session.borrow_mut().errands.ran(reply) {
            self.wake();
        }
    }

    /// These are the users from now on.
    pub(crate) fn use_users(&self, users: &mut Users) {
        // A session that is borrowed does that itself.
        if let Ok(mut session) = self.session.try_borrow_mut()
            && !session.use_users(users)
        {
            self.end();
        }
    }

    /// The pass was judged: its reads may leave, or are taken back.
    pub(crate) fn settle(self: &Rc<Self>, context: &mut RespContext, well: bool) {
        let mut session = self.session.borrow_mut();
        session.replies.settle(self, context, well);
    }

    /// The client is gone: the outcomes of its operations are dropped. What was taken out for it is
    /// put back, unless its reply was written. The last `unwritten` bytes of its output were not.
    pub(crate) fn abandon(self: &Rc<Self>, context: &mut RespContext, unwritten: usize) {
        let (tokens, left) = {
            let mut session = self.session.borrow_mut();
            let id = session.client.id;
            session.subscriptions.leave(context, id);
            session.subscriptions = ClientSubscriptions::default();
            session.replies.forget_pushes();
            session.replies.abandon(unwritten)
        };
        tokens.into_iter().for_each(|token| context.forget(token));
        if left.is_empty() {
            return;
        }
        for slot in left {
            self.step(context, slot, &mut 0);
        }
        context.front.steps.leaves(self.clone());
    }

    /// Whether nothing is left to do for its commands.
    pub(crate) fn is_answered(&self) -> bool {
        self.session.borrow().replies.is_empty()
    }

    /// Its client waits in line no more, if it did.
    pub(crate) fn unblock(self: &Rc<Self>, context: &mut RespContext, how: Unblocking) -> bool {
        // A client whose session is borrowed runs a command, and does not wait.
        let Ok(mut session) = self.session.try_borrow_mut() else {
            return false;
        };
        let Some(slot) = session.replies.waits_in_line() else {
            return false;
        };
        let taken = session.replies.arrive(slot, Arrived::Unblock(how));
        let steps = self.go_on(&mut session, taken);
        context.front.goes_on(steps.then(|| (self.clone(), slot)));
        true
    }

    /// A message for this client, which is encoded for the protocol that it speaks.
    pub(in crate::resp) fn take_push(
        &self,
        limit: OutputLimit,
        encoded: impl FnOnce(Protocol) -> Rc<Push>,
    ) -> Took {
        let mut session = self.session.borrow_mut();
        if session.closing || self.expelled.get() || session.subscriptions.is_none() {
            return Took::Well;
        }
        let push = encoded(session.replies.protocol);
        let bytes = session.replies.queue_push(push);
        self.limit_pushes(limit, bytes)
    }

    /// Whether it tracks keys, and which connection gets its invalidations, if not itself.
    pub(in crate::resp) fn tracks(&self) -> Option<Option<u64>> {
        let session = self.session.borrow();
        Some(session.subscriptions.tracking()?.redirect())
    }

    /// The number of its next reply, if replies before it may bring values that were read already.
    pub(in crate::resp) fn awaited(&self) -> Option<u64> {
        self.session.borrow().replies.awaited()
    }

    /// Whether all its replies below this number have left.
    pub(in crate::resp) fn have_left(&self, below: u64) -> bool {
        self.session.borrow().replies.have_left(below)
    }

    /// Its client forgets these keys, or everything (`None`). `redirected`: another connection
    /// tracks them.
    pub(in crate::resp) fn invalidate(
        &self,
        (limit, held): (OutputLimit, &Rc<Cell<usize>>),
        redirected: bool,
        keys: Option<&[Bytes]>,
    ) -> Took {
        let mut session = self.session.borrow_mut();
        let protocol = session.replies.protocol;
        let hears =
            protocol == Protocol::Resp3 || redirected && session.subscriptions.is_subscriber();
        if session.closing || self.expelled.get() || !hears {
            return Took::Well;
        }
        let push = |keys| Push::new(invalidation(protocol, keys), held);
        session.subscriptions.state();
        let bytes = if redirected {
            session.replies.queue_push(push(keys))
        } else {
            session
                .replies
                .queue_invalidation(push(keys), || push(None))
        };
        self.limit_pushes(limit, bytes)
    }

    /// The connection that gets its invalidations is gone.
    pub(in crate::resp) fn lost_target(
        &self,
        (limit, held): (OutputLimit, &Rc<Cell<usize>>),
    ) -> Took {
        let mut session = self.session.borrow_mut();
        let Some(tracking) = session.subscriptions.tracking_mut() else {
            return Took::Well;
        };
        tracking.is_broken = true;
        let target = tracking.redirection();
        if session.closing || self.expelled.get() || session.replies.protocol == Protocol::Resp2 {
            return Took::Well;
        }
        let bytes = session
            .replies
            .queue_push(Push::new(lost_target(target), held));
        self.limit_pushes(limit, bytes)
    }

    /// Messages of `bytes` wait for the client.
    fn limit_pushes(&self, limit: OutputLimit, bytes: usize) -> Took {
        let too_much = limit.is_reached(bytes);
        if too_much {
            // It gets no more.
            self.expelled.set(true);
        }
        self.wake();
        if too_much { Took::TooMuch } else { Took::Well }
    }

    /// Whether it may see that this key has changed.
    pub(crate) fn may_see(&self, home: Home<'_>, key: &[u8]) -> bool {
        let client = &self.session.borrow().client;
        client.free || client.user.may_see(home, key)
    }

    /// Whether it gets messages about keys of this database, as a subscriber to this name.
    pub(crate) fn may_hear_of(&self, name: &[u8], pattern: bool, database: i64) -> bool {
        let client = &self.session.borrow().client;
        client.free || client.user.may_hear_of(name, pattern, database)
    }

    /// Bytes of messages that wait for this client.
    pub(crate) fn pushes_bytes(&self) -> usize {
        self.session.borrow().replies.pushes_bytes()
    }

    /// Drops the messages that wait for this client. Returns how many bytes they had.
    pub(crate) fn drop_pushes(&self) -> usize {
        self.session.borrow_mut().replies.drop_pushes()
    }

    /// What its command waited for is over.
    pub(crate) fn goes_on(&self) {
        if self.session.borrow_mut().subscriptions.wake() {
            self.wake();
        }
    }

    /// The end of a pause: its command is run again.
    pub(crate) fn end_pause(&self) {
        // A connection that is borrowed runs a command, so it does not wait.
        if let Ok(mut session) = self.session.try_borrow_mut() {
            session.paused = false;
        }
        self.wake();
    }

    /// Its client sends nothing more. As in Redis, its commands that wait for the end of a pause are
    /// not executed, and the connection is closed.
    pub(crate) fn leave_pause(&self) {
        let mut session = self.session.borrow_mut();
        if session.paused {
            session.end(None);
        }
    }

    /// All commands of the client are taken. From now on, its commands do not wait behind others.
    pub(crate) fn caught_up(&self) {
        self.session.borrow_mut().replies.deadlines.end_hurry();
    }

    /// Whether the password of its present command is judged later.
    pub(crate) fn is_judged_later(&self) -> bool {
        let session = self.session.borrow();
        // A session that was ended may be here again: its socket may be full.
        session.judging == PasswordJudging::Later && !session.closing
    }
}
