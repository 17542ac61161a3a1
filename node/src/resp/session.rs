//! The state of one connection: what its client has set, and its replies in the order of its
//! commands.
//!
//! A command is answered at once (`PING`), or becomes one operation, or several whose outcomes are
//! gathered, or a sweep over all partitions in steps. Outcomes arrive in any order, and replies
//! leave in the order of the commands.

pub(crate) mod commands;
pub(crate) mod pause;
mod pending;

use super::acl::compiled::Compiled;
use super::acl::users::Users;
use super::budget::{Budget, FREE_ANSWER_BYTES, FREE_INPUT_BYTES, Room, STALLED_MAX};
use super::command::{
    self, All, ClusterCommand, ConnectionCommand, Constant, Request, ServerCommand, table,
};
use super::common::{Back, Question, Told};
use super::counts::{self, Failed};
use super::encode::{Encoder, Protocol};
use super::frame::{Args, TooLarge};
use super::output::{APART_BYTES_MIN, Output};
use super::ready::Ready;
use super::{Context, cluster, databases, describe, info, slowlog};
use crate::advice;
use crate::data::door::Waiter;
use bytes::{Bytes, BytesMut};
use commands::clients::{Library, Mute};
use commands::subscriptions::Subscribing;
use commands::transactions::Transacting;
use commands::users::Change;
use doyen_engine::Patience;
use doyen_engine::command::{self as data, ErrorText, Many, Reply, Rights, Shape};
use doyen_engine::op::{Action, Failure, Operation, Outcome, PartitionOperation};
use doyen_gossip::Time;
use doyen_placement::{KeyspaceId, MapId, Partition, PartitionId};
use pending::gather::{Gather, Wanted};
use pending::pages::{Came, Reading};
use pending::parts::Running;
use pending::threads::Asking;
use pending::transfer::Transferring;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most replies that one connection may wait for.
const PENDING_MAX: usize = 8192;
/// Bytes of the commands that are not answered yet, of their answers, and of the answers that other
/// nodes are expected to send. Above it, no more commands are taken from this connection.
const PENDING_BYTES_MAX: usize = 32 << 20;
/// If the output exceeds this, no more replies are encoded and no more commands are taken until the
/// client has read.
pub(super) const OUTPUT_BYTES_SOFT: usize = 1 << 20;
/// The same for a client that has not authenticated: its answers are short.
const STRANGER_OUTPUT_BYTES: usize = 4 << 10;
/// The least expected weight of another node's answer. A full queue of such answers stays below
/// `PENDING_BYTES_MAX`.
const EXPECTED_BYTES_MIN: usize = 1 << 10;
/// Keys of one command that are submitted in one slice, and bytes of keys and values.
const SLICE_KEYS: usize = 512;
const SLICE_BYTES: usize = 1 << 20;
/// Keys of one command that wait for their outcomes at the same time, at most. Further keys are
/// submitted as outcomes arrive.
const KEYS_ASKED_MAX: usize = 8192;
/// Bytes of the keys of one command at the cluster-aware port, where all keys are hashed before the
/// first operation.
const HASHED_BYTES_MAX: usize = 2 << 20;
/// Work of comparing keys with a pattern at once, as they arrive. The rest waits for its turn.
const COMPARE_AT_ONCE: usize = 1 << 16;
/// If replies took more room than this, it is released once all are written.
const SLOTS_KEPT_MAX: usize = 256;
/// Largest reply.
pub(super) const REPLY_BYTES_MAX: usize = 512 << 20;
/// The largest value that is encoded before it is judged whether it may leave. Larger values stand
/// apart in the output and cannot be taken back.
const READ_AT_ONCE_MAX: usize = APART_BYTES_MIN;
/// Deadline for commands queued behind one that timed out: a round trip between regions, and what a
/// busy member adds.
const HURRIED: Duration = Duration::from_millis(200);
/// How long after a timeout that deadline applies, unless everything that the client sent is taken
/// earlier.
const HURRIED_FOR: Duration = Duration::from_secs(5);
/// Longest name of a client.
const NAME_BYTES_MAX: usize = 256;

/// A connection, as its socket and the outcomes of the shard see it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) session: RefCell<Session>,
    /// Its number among the sockets.
    at: usize,
    ready: Rc<Ready>,
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
}

/// The state of a connection, and what it waits for.
#[derive(Debug)]
pub(crate) struct Session {
    id: u64,
    /// It came through the cluster-aware port.
    cluster_port: bool,
    local: SocketAddr,
    peer: SocketAddr,
    protocol: Protocol,
    pub(crate) authenticated: bool,
    /// Who the client is: `default` until it authenticates.
    user: Arc<Compiled>,
    /// The user may do everything.
    free: bool,
    /// A change of users that is under way.
    change: Option<Box<Change>>,
    /// What `MULTI` began and `WATCH` watches.
    transacting: Option<Box<Transacting>>,
    /// What it subscribes to, and pushes that wait.
    subscribing: Option<Box<Subscribing>>,
    /// A part of a reply is in `out`, and the rest is to follow.
    within_reply: bool,
    /// Since when the client has not been authenticated.
    pub(crate) stranger_since: Time,
    pub(crate) judging: Judging,
    name: Bytes,
    library: Option<Box<Library>>,
    /// When the connection was accepted.
    began: Time,
    /// The last command that it sent, by its place in the table.
    command: u16,
    /// Which replies the client wants.
    mute: Mute,
    /// The present command gets no reply.
    silent: bool,
    /// Whether its reads are uses of keys, which keep them from eviction.
    touches: bool,
    /// It waits for the end of a pause.
    paused: bool,
    /// Commands are about this keyspace and this map of it, which is the selected database.
    keyspace: KeyspaceId,
    map: MapId,
    slots: VecDeque<Slot>,
    /// The number of the first slot.
    first: u64,
    /// The slots below this number may be of commands that a message must come after.
    unpublished_until: u64,
    /// Replies of this pass that are in `out` and must not leave unless the pass is judged well:
    /// reads, and the replies after them. Their numbers were just below `first`.
    provisional: Vec<Provisional>,
    /// Where they begin in `out`.
    provisional_from: usize,
    pending_bytes: usize,
    sweeping: bool,
    /// Error replies that are not counted yet.
    pub(crate) failed: Vec<Failed>,
    /// No more commands are taken. The connection is closed once everything is answered.
    pub(crate) closing: bool,
    pub(crate) out: Output,
    /// The command whose keys are not all submitted. Its slot is the last.
    partway: Option<Partway>,
    /// Whether the next command waits for the newest table, because it names a keyspace that this
    /// node does not know.
    looking: Looking,
    /// The expected weight of the next answer of another node: the weight of recent ones, and the
    /// most at first.
    expected: usize,
    /// Until then, `HURRIED` is the deadline of commands, because they have already waited behind
    /// one that timed out.
    hurried_until: Time,
    /// The deadline of the last command that was taken, if it is not answered.
    waits_until: Time,
    budget: Rc<Budget>,
    /// Its charge in the budget: commands, answers and output.
    charged: usize,
    unwritten: usize,
    /// All output that is not written, including what is not charged.
    pub(crate) unsent: usize,
}

/// When a password that this client sends is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judging {
    /// At once, unless its address gave wrong passwords lately.
    AtOnce,
    /// When its turn comes among those of its address. Until then no command is taken.
    Later,
    /// At once, because it has waited.
    Now,
}

/// Whether the newest table is fetched, because it may have a keyspace that this node does not
/// know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Looking {
    /// None is under way.
    #[default]
    No,
    /// It is being fetched. No command is taken meanwhile, because the following commands are about
    /// that keyspace.
    Waits,
    /// It is here, and the command is run again.
    Over,
}

/// How many keys of a command were submitted.
#[derive(Debug, Clone, Copy)]
struct Partway {
    many: Many,
    /// The next argument.
    at: usize,
    /// The next part.
    part: u32,
    hold: Hold,
}

/// What the next part of a command waits for while all connections together hold too much.
#[derive(Debug, Clone, Copy)]
enum Hold {
    No,
    /// A turn to ask and room for the expected answer, for the connection with this number.
    Room(usize),
    /// The answers to what was asked: they may weigh less than expected, and there is too little
    /// room otherwise.
    Answers,
    /// Outcomes of what was asked, until no more than so many are missing.
    Outcomes(usize),
}

/// The place of one reply.
#[derive(Debug)]
struct Slot {
    protocol: Protocol,
    /// The client does not want this reply.
    silent: bool,
    /// The command that it answers, by its place in the table.
    command: u16,
    /// It follows all pushes below this number.
    after: u64,
    /// Bytes of the command and of its answer.
    weight: usize,
    /// Bytes in `weight` that only this connection holds. They are charged to the budget.
    charged: usize,
    /// Bytes that other nodes are expected to answer. They are included in `weight` and `charged`.
    expected: usize,
    /// Bytes of the command's values while it is not answered. They are included in `weight` and
    /// `charged`.
    under_way: usize,
    state: State,
}

/// A reply that is encoded already, and its parts in case it may not leave.
#[derive(Debug)]
enum Provisional {
    /// A read of this key of this keyspace, as this operation of this node, and the value's place
    /// in `out`.
    Read {
        keyspace: KeyspaceId,
        map: MapId,
        key: Bytes,
        n: u64,
        value: Option<Range<usize>>,
        protocol: Protocol,
    },
    /// It would be the same at any time. Its place in `out`.
    Encoded(Range<usize>),
}

impl Slot {
    /// How many outcomes of its parts are missing.
    fn waits(&self) -> usize {
        match &self.state {
            State::Gathering(gather) => gather.waits(),
            State::Running(running) => running.waits(),
            _ => 0,
        }
    }
}

#[derive(Debug)]
enum State {
    Waiting {
        shape: Shape,
        token: u64,
    },
    Done {
        shape: Shape,
        outcome: Outcome,
    },
    Gathering(Box<Gather>),
    /// All fields of a collection.
    Reading(Box<Reading>),
    /// A transaction, or the keys that it is to watch.
    Running(Box<Running>),
    /// A key's value is given to another key, step by step.
    Transferring(Box<Transferring>),
    /// A message has left, for so many subscribers of this node. The other members are asked.
    Publishing(u64),
    /// The other data threads are asked.
    Asking(Box<Asking>),
    Encoded(Bytes),
}

/// What waits for the outcome of an operation: a slot of a connection's queue, and a part of it.
#[derive(Debug)]
pub(crate) struct ReplyWaiter {
    pub(super) connection: Rc<Connection>,
    pub(super) slot: u64,
    pub(super) part: u32,
    /// If the outcome is lost, the operation can be repeated.
    pub(super) read: bool,
}

impl Waiter for ReplyWaiter {
    fn is_read(&self) -> bool {
        self.read
    }

    // What a client asked after this operation must come after it.
    fn may_be_asked_again(&self) -> bool {
        self.connection.awaits_last(self.slot)
    }

    fn is_asked_again(&self, until: Time) {
        self.connection.waits_until(until);
    }
}

impl Connection {
    pub(crate) fn new(
        (id, at): (u64, usize),
        cluster_port: bool,
        (local, peer): (SocketAddr, SocketAddr),
        users: &Users,
        budget: Rc<Budget>,
        now: Time,
    ) -> Rc<Self> {
        let ready = budget.ready().clone();
        let session = Session {
            id,
            cluster_port,
            local,
            peer,
            protocol: Protocol::Resp2,
            authenticated: users.is_open(),
            user: users.default().clone(),
            free: users.default().may_all(),
            change: None,
            transacting: None,
            subscribing: None,
            within_reply: false,
            stranger_since: now,
            judging: Judging::AtOnce,
            name: Bytes::new(),
            library: None,
            began: now,
            command: counts::UNKNOWN,
            mute: Mute::No,
            silent: false,
            touches: true,
            paused: false,
            keyspace: cluster::KEYSPACE,
            map: MapId(0),
            slots: VecDeque::new(),
            first: 0,
            unpublished_until: 0,
            provisional: Vec::new(),
            provisional_from: 0,
            pending_bytes: 0,
            sweeping: false,
            failed: Vec::new(),
            closing: false,
            out: Output::default(),
            partway: None,
            looking: Looking::No,
            expected: budget.value_bytes_max().max(EXPECTED_BYTES_MIN),
            hurried_until: Time::ZERO,
            waits_until: Time::ZERO,
            budget,
            charged: 0,
            unwritten: 0,
            unsent: 0,
        };
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
        })
    }

    /// Takes an outcome for a slot. True if its sweep has further steps, or messages to publish.
    /// `read`: if the outcome is lost, the operation can be repeated. `judged` is the generation
    /// under which this thread may answer what it looked at before.
    pub(crate) fn deliver(
        &self,
        (now, judged): (Time, Option<u64>),
        (slot, part): (u64, u32),
        token: u64,
        outcome: Outcome,
        read: bool,
    ) -> bool {
        let mut session = self.session.borrow_mut();
        let session = &mut *session;
        let in_vain = matches!(
            outcome,
            Outcome::Failed(Failure::Unavailable | Failure::Unknown)
        );
        if in_vain && self.behind.get() {
            session.hurried_until = now + HURRIED_FOR;
        }
        let Some(at) = slot
            .checked_sub(session.first)
            .and_then(|i| usize::try_from(i).ok())
        else {
            return false;
        };
        let is_last = at + 1 == session.slots.len();
        let Some(entry) = session.slots.get_mut(at) else {
            return false;
        };
        let mut weighed = 0;
        if entry.expected > 0 {
            let share = match &entry.state {
                State::Waiting { .. } => entry.expected,
                _ => entry.expected.div_ceil(entry.waits().max(1)),
            };
            let left = entry.expected - share;
            promise(&session.budget, &mut entry.expected, left);
            weighed = share;
            if in_vain || !matches!(outcome, Outcome::Failed(_)) {
                // It falls by half with each answer that is smaller, so that a single small one
                // does not open the gates. It falls with each failure, too: otherwise, commands to
                // partitions without a primary would be asked two by two.
                session.expected = outcome
                    .bytes()
                    .max(session.expected / 2)
                    .max(EXPECTED_BYTES_MIN);
            }
            entry.weight -= share;
            session.pending_bytes -= share;
            charge(
                &session.budget,
                &mut session.charged,
                &mut entry.charged,
                |c| c - share,
            );
        }
        // The expected bytes do not count any more: an answer that was weighed takes their place,
        // even if others have filled the room by now.
        let much = session.charged >= PENDING_BYTES_MAX;
        let (outcome, bytes, copied) = admit(&session.budget, outcome, read, much, weighed);
        let mut goes_on = false;
        match &mut entry.state {
            State::Waiting { shape, .. } => {
                entry.state = State::Done {
                    shape: *shape,
                    outcome,
                };
                entry.weight += bytes;
                session.pending_bytes += bytes;
                // By now, the store has the value of the command, or the value is dropped.
                let stored = std::mem::take(&mut entry.under_way);
                session.budget.count_under_way(stored, 0);
                charge(
                    &session.budget,
                    &mut session.charged,
                    &mut entry.charged,
                    |c| (c + copied).saturating_sub(stored),
                );
            }
            State::Gathering(gather) => {
                let held = gather.held();
                entry.weight += bytes;
                session.pending_bytes += bytes;
                gather.take(part, token, outcome, copied, judged);
                gather.compare(&mut COMPARE_AT_ONCE.clone());
                charge(
                    &session.budget,
                    &mut session.charged,
                    &mut entry.charged,
                    |c| c + gather.held() - held,
                );
                goes_on = gather.has_next_step() || gather.is_matching();
                // If this command is partway, it asks for nothing more.
                if let Some(way) = session.partway.as_mut().filter(|_| gather.has_failed()) {
                    way.hold = Hold::No;
                }
            }
            State::Reading(reading) => {
                let held = reading.held();
                entry.weight += bytes;
                session.pending_bytes += bytes;
                let came = reading.take(outcome, is_last);
                let mut now = reading.held();
                goes_on = reading.has_next_step();
                if let Came::Whole(outcome) = came {
                    let shape = reading.shape();
                    (now, goes_on) = (copied, false);
                    entry.state = State::Done { shape, outcome };
                }
                charge(
                    &session.budget,
                    &mut session.charged,
                    &mut entry.charged,
                    |c| c + now - held,
                );
            }
            State::Running(running) => {
                let held = running.held();
                entry.weight += bytes;
                session.pending_bytes += bytes;
                running.take(part, token, outcome, copied);
                charge(
                    &session.budget,
                    &mut session.charged,
                    &mut entry.charged,
                    |c| c + running.held() - held,
                );
                if running.waits() == 0 {
                    goes_on = session.ran(at);
                }
            }
            State::Transferring(transferring) => {
                let held = transferring.held();
                entry.weight += bytes;
                session.pending_bytes += bytes;
                transferring.take(now, outcome);
                charge(
                    &session.budget,
                    &mut session.charged,
                    &mut entry.charged,
                    |c| c + transferring.held() - held,
                );
                goes_on = transferring.has_next_step();
                if let Some(reply) = transferring.reply(entry.protocol) {
                    if let State::Encoded(bytes) = &reply {
                        counts::note(&mut session.failed, entry.command, bytes, false);
                    }
                    entry.state = reply;
                }
            }
            State::Publishing(_) | State::Asking(_) | State::Done { .. } | State::Encoded(_) => {
                return false;
            }
        }
        if !goes_on && (at == 0 && session.encode_ready() || session.partway.is_some()) {
            self.wake();
        }
        goes_on
    }

    /// The last command is executed again, and waits until then at most.
    pub(crate) fn waits_until(&self, until: Time) {
        self.session.borrow_mut().waits_until = until;
    }

    /// Whether this reply is the last one: no later command was taken.
    pub(crate) fn awaits_last(&self, slot: u64) -> bool {
        let session = self.session.borrow();
        slot + 1 == session.first + session.slots.len() as u64
    }

    /// Takes the next steps of a sweep, and subtracts from `work`. True if it has more to do at
    /// once.
    pub(crate) fn sweep_on(
        self: &Rc<Self>,
        context: &mut Context,
        slot: u64,
        work: &mut usize,
    ) -> bool {
        let mut session = self.session.borrow_mut();
        let session = &mut *session;
        session.publish_executed(context);
        let patience = session.patience(context);
        let Some(at) = slot
            .checked_sub(session.first)
            .and_then(|i| usize::try_from(i).ok())
        else {
            return false;
        };
        if let Some(entry) = session.slots.get_mut(at)
            && let State::Gathering(gather) = &mut entry.state
        {
            let held = gather.held();
            gather.compare(work);
            charge(
                &session.budget,
                &mut session.charged,
                &mut entry.charged,
                |c| c + gather.held() - held,
            );
            if gather.is_matching() {
                return true;
            }
            submit_steps(self, context, (slot, patience), gather);
        }
        if let Some(entry) = session.slots.get_mut(at)
            && let State::Reading(reading) = &mut entry.state
        {
            reading.submit(self, context, (slot, patience));
        }
        if let Some(entry) = session.slots.get_mut(at)
            && let State::Transferring(transferring) = &mut entry.state
        {
            let held = transferring.held();
            transferring.submit(self, context, (slot, patience));
            charge(
                &session.budget,
                &mut session.charged,
                &mut entry.charged,
                |c| c + transferring.held() - held,
            );
        }
        if let Some(entry) = session.slots.get_mut(at)
            && let State::Running(running) = &mut entry.state
        {
            Session::ask_for_next(running, self, context, (slot, patience));
            Session::look_elsewhere(running, self, context, slot);
            Session::run_found(running, self, context, (slot, patience));
            session.execute_found(at, self, context, (slot, patience));
        }
        if session.encode_ready() {
            self.wake();
        }
        false
    }

    /// Whether it may read more now. If not, it is told to try again, and the pause is not counted
    /// against it.
    pub(crate) fn may_read(&self, id: u64, now: Time) -> bool {
        let session = self.session.borrow();
        let may = session.budget.may_read(
            now,
            (id, self.at),
            !session.authenticated,
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
            || self.session.borrow().charged > FREE_ANSWER_BYTES;
        // This includes connections that wait for room themselves, with a part of a command: if
        // many do, none of them completes, and all keep what they hold.
        let stalled = much && now.since(self.moved_at.get()) > STALLED_MAX;
        let expelled = stalled && !self.expelled.replace(true);
        if expelled {
            self.wake();
        }
        expelled
    }

    /// Ends the connection at once.
    pub(crate) fn end(&self) {
        self.expelled.set(true);
        self.wake();
    }

    /// Whether the client has authenticated, or need not. True as well while it runs a command.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.session
            .try_borrow()
            .map_or(true, |session| session.authenticated)
    }

    /// The connection has something to do.
    pub(crate) fn wake(&self) {
        if !self.queued.replace(true) {
            self.ready.push(self.at);
        }
    }

    /// Runs one command, or a slice of it. False if the same arguments are wanted again.
    pub(crate) fn execute(self: &Rc<Self>, context: &mut Context, args: Args<'_>) -> bool {
        let mut session = self.session.borrow_mut();
        if session.partway.is_some() {
            let began = Instant::now();
            session.submit_slice(self, context, args);
            context
                .door
                .counts
                .went_on(session.command, began.elapsed());
            context.door.stopwatch.forget();
            return session.partway.is_none();
        }
        if session.waits_to_be_judged(context, args) {
            return false;
        }
        if context.is_paused() && session.waits_for_pause(self, context, args) {
            return false;
        }
        // A command that is run again was counted before, and it was decided then whether it gets a
        // reply.
        if session.looking == Looking::No && !session.is_held() {
            context.door.counters.commands += 1;
            session.silent = session.take_mute();
            if context.door.monitors.any {
                session.show_to_monitors(context, args);
            }
        }
        if session.is_queueing() && session.queue_command(context, args) {
            return true;
        }
        let began = context.times_plain().then(Instant::now);
        if session.subscribing.is_none()
            && (session.read_at_once(self, context, args)
                || session.write_at_once(self, context, args))
        {
            let took = began.map(|began| began.elapsed());
            context.door.counts.ran(session.command, took);
            if let Some(took) = took {
                session.note_if_slow(context, args, took);
            }
            return true;
        }
        session.timed(self, context, args);
        session.partway.is_none() && session.looking != Looking::Waits && !session.is_held()
    }

    /// The newest table is here or cannot be had. The command that waited for it is run again.
    pub(crate) fn looked(&self) {
        let mut session = self.session.borrow_mut();
        if session.looking == Looking::Waits {
            session.looking = Looking::Over;
            self.wake();
        }
    }

    /// The pass was judged: its reads may leave, or are taken back.
    pub(crate) fn settle(self: &Rc<Self>, context: &mut Context, well: bool) {
        let mut session = self.session.borrow_mut();
        if well {
            session.provisional.clear();
        } else {
            session.take_back(self, context);
        }
    }

    /// The client is gone: the outcomes of its operations are dropped.
    pub(crate) fn abandon(&self, context: &mut Context) {
        let slots = {
            let mut session = self.session.borrow_mut();
            session.discharge();
            session.leave_channels(context);
            session.subscribing = None;
            std::mem::take(&mut session.slots)
        };
        for slot in slots {
            match slot.state {
                State::Waiting { token, .. } => context.forget(token),
                State::Gathering(gather) => gather.tokens().for_each(|token| context.forget(token)),
                State::Reading(reading) => {
                    reading
                        .token()
                        .into_iter()
                        .for_each(|token| context.forget(token));
                }
                State::Transferring(transferring) => {
                    transferring
                        .token()
                        .into_iter()
                        .for_each(|token| context.forget(token));
                }
                State::Running(running) => {
                    running.tokens().for_each(|token| context.forget(token));
                }
                State::Publishing(_)
                | State::Asking(_)
                | State::Done { .. }
                | State::Encoded(_) => {}
            }
        }
    }
}

/// Admits an outcome. Returns it with its size, and how much of that only this connection holds. If
/// there is no room for it, it is refused, unless it was `weighed` beforehand. The client may
/// repeat a refused read. A connection that holds `much` leaves the second share to the others.
fn admit(
    budget: &Budget,
    outcome: Outcome,
    read: bool,
    much: bool,
    weighed: usize,
) -> (Outcome, usize, usize) {
    let bytes = outcome.bytes();
    let copied = match &outcome {
        // Otherwise the store or the log holds it as well.
        Outcome::Bulk(value) if value.is_shared() => 0,
        _ => bytes,
    };
    if copied > weighed.max(EXPECTED_BYTES_MIN)
        && (budget.refuses(copied) || much && budget.is_short())
    {
        return (
            Outcome::Failed(if read {
                Failure::Overloaded
            } else {
                Failure::Unknown
            }),
            0,
            0,
        );
    }
    (outcome, bytes, copied)
}

/// Changes the charge of one reply.
fn charge(
    budget: &Budget,
    session: &mut usize,
    slot: &mut usize,
    change: impl FnOnce(usize) -> usize,
) {
    let before = *slot;
    *slot = change(before);
    if *slot != before {
        *session = *session + *slot - before;
        budget.count_answers(before, *slot);
    }
}

/// Changes how many bytes of one reply other nodes are expected to answer. `charge` counts the same
/// bytes, because they bound how much may come at once.
fn promise(budget: &Budget, slot: &mut usize, now: usize) {
    if now != *slot {
        budget.count_expected(*slot, now);
        *slot = now;
    }
}

/// The partitions that a sweep must ask, by the installed table, and the number from which on there
/// are more of them. `None` if its keyspace has no partitions any more.
fn partitions_of(
    context: &Context,
    (keyspace, map): (KeyspaceId, MapId),
    wanted: &Wanted<'_>,
) -> Option<(Vec<PartitionId>, Option<u32>)> {
    let keyspace = context
        .view()?
        .installed
        .keyspace(keyspace)
        .filter(|k| !k.partitions.is_empty())?;
    let all = &keyspace.partitions;
    let found = match wanted {
        Wanted::From { first, most, own } => {
            let led =
                |p: &&Arc<Partition>| !own || cluster::leads(context.me(), context.threads(), p);
            // Partitions are in order.
            let mut from = all[all.partition_point(|p| p.id.0 < *first)..]
                .iter()
                .filter(led)
                .map(|p| p.id);
            let found = from.by_ref().take(*most).collect();
            return Some((found, from.next().map(|p| p.0)));
        }
        Wanted::Slot(slot) => keyspace.partition_of_slot(*slot).into_iter().collect(),
        Wanted::Range(query) => {
            let mut partitions = keyspace
                .partitions_within(map, &query.from, &query.to)
                .ok()?;
            if query.reverse {
                partitions.reverse();
            }
            partitions
        }
    };
    Some((found, None))
}

fn submit_steps(
    connection: &Rc<Connection>,
    context: &mut Context,
    (slot, patience): (u64, Patience),
    gather: &mut Gather,
) {
    while gather.has_next_step() {
        let about = gather.about();
        if let Some(wanted) = gather.wants() {
            match partitions_of(context, about, &wanted) {
                Some(partitions) => gather.renew(partitions),
                None => gather.fail(Failure::NoPartition),
            }
        }
        let (keyspace, map) = gather.about();
        if let Some(generation) = context.looks_under() {
            gather.look(generation, |partition| {
                context
                    .shard()
                    .partitions()
                    .keys_of(keyspace, partition, map)
            });
        }
        // There is no step if `wants` has just found that there are no partitions.
        let Some((partition, action)) = gather.next_step() else {
            continue;
        };
        let operation = PartitionOperation {
            keyspace,
            partition,
            map,
            action,
        };
        let connection = connection.clone();
        let part = partition.0;
        let (token, _) = context.submit(operation, patience, |read| ReplyWaiter {
            connection,
            slot,
            part,
            read,
        });
        gather.waits_for(token);
    }
}

impl Session {
    /// Runs a command that has no fast path, and notes how long that takes.
    fn timed(&mut self, connection: &Rc<Connection>, context: &mut Context, args: Args<'_>) {
        let number = context.door.counters.commands;
        context.door.stopwatch.begin(number);
        self.command = counts::UNKNOWN;
        let ran = self.run_command(connection, context, args);
        let took = context.door.stopwatch.end(number);
        if ran && self.looking != Looking::Waits && !self.is_held() {
            context.door.counts.ran(self.command, Some(took));
        }
        self.note_if_slow(context, args, took);
    }

    /// Whether the command ran, and was not refused before that.
    fn run_command(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        args: Args<'_>,
    ) -> bool {
        if let Some(what) = args.too_large() {
            let max = context.limits().value_bytes_max;
            let text = match what {
                TooLarge::Argument => {
                    format!("ERR the argument is too large: at most {max} bytes (--value-max)")
                }
                TooLarge::Command => format!(
                    "ERR the command is too large: at most four times {max} bytes (--value-max)"
                ),
            };
            self.reject(args, &text.into());
            return false;
        }
        let spec = match command::find(args) {
            Ok(spec) => spec,
            Err(why) => {
                let named = table::COMMANDS.named(args.get(0));
                let named = named.filter(|spec| spec.container().is_none());
                self.command = named.map_or(counts::UNKNOWN, |spec| spec.number);
                self.reject(args, &why);
                return false;
            }
        };
        self.command = spec.number;
        if let Err(why) = self.admits(context, spec, args) {
            self.give_up();
            self.reject(args, &why);
            return false;
        }
        if let Some(why) = self.refuses_for_subscriber(spec) {
            self.give_up();
            self.reject(args, &why);
            return false;
        }
        match command::parse(spec, &args, context.unix_ms()) {
            Ok(request) => self.run(connection, context, args, request),
            Err(error) => self.answer(|e| e.error(&error.0)),
        }
        true
    }

    /// Keeps a command that took long.
    fn note_if_slow(&self, context: &mut Context, args: Args<'_>, took: Duration) {
        let settings = &context.door.common.settings;
        if !settings.is_slow(took) {
            return;
        }
        let command = table::COMMANDS
            .all()
            .get(usize::from(self.command))
            .map(|spec| spec.name);
        let (id, most) = (context.door.common.next_slow(), settings.slow_entries());
        let (args, peer, name) = (
            slowlog::kept(command, args, slowlog::SLOW),
            self.peer,
            self.name.clone(),
        );
        context.door.slow.push(
            slowlog::Slow {
                id,
                unix_s: context.unix_ms() / 1000,
                took,
                args,
                peer,
                name,
            },
            most,
        );
    }

    /// Whether every command is answered, and none is expected to come only rarely.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.is_answered() && !self.paused && self.subscriptions().is_none()
    }

    /// How long a command that is taken now waits at most. Its deadline is not earlier than that of
    /// an earlier command.
    fn patience(&mut self, context: &Context) -> Patience {
        if !self.is_hurried(context) {
            self.waits_until = context.now() + context.limits().park;
            return Patience::Whole;
        }
        let least = if self.slots.is_empty() {
            Time::ZERO
        } else {
            self.waits_until
        };
        self.waits_until = least.max(context.now() + HURRIED.min(context.limits().park));
        Patience::Until(self.waits_until)
    }

    fn is_hurried(&self, context: &Context) -> bool {
        context.now() < self.hurried_until
    }

    /// All commands of the client are taken. From now on, its commands do not wait behind others.
    pub(crate) fn caught_up(&mut self) {
        self.hurried_until = Time::ZERO;
    }

    /// Whether this is a password that is judged later, because its address gave wrong ones.
    #[inline]
    fn waits_to_be_judged(&mut self, context: &Context, args: Args<'_>) -> bool {
        let first = args.get(0).first();
        if !matches!(first, Some(b'A' | b'a' | b'H' | b'h')) || !brings_password(args) {
            return false;
        }
        if std::mem::replace(&mut self.judging, Judging::AtOnce) == Judging::AtOnce {
            let mut guesses = context.door.common.guesses();
            if guesses.take_turn(context.now(), self.peer.ip()).is_err() {
                self.judging = Judging::Later;
            }
        }
        self.judging == Judging::Later
    }

    /// From this much unwritten output on, no further command is taken.
    const fn output_max(&self) -> usize {
        if self.authenticated {
            OUTPUT_BYTES_SOFT
        } else {
            STRANGER_OUTPUT_BYTES
        }
    }

    /// Whether no further command is taken for now.
    pub(crate) fn is_blocked(&self) -> bool {
        if self.looking == Looking::Waits {
            return true;
        }
        if let Some(way) = &self.partway {
            // A client's own answers do not block it while there is room for them, but answers of
            // other nodes do.
            let expected = self.slots.back().map_or(0, |s| s.expected);
            return expected >= PENDING_BYTES_MAX
                || match way.hold {
                    Hold::No => false,
                    Hold::Room(at) => self.room_to_ask(at) == Room::Later,
                    Hold::Answers => expected > 0,
                    Hold::Outcomes(left) => self.slots.back().is_some_and(|s| s.waits() > left),
                };
        }
        self.closing
            || self.paused
            || self.is_held_back()
            || self.judging == Judging::Later
            || self.charged >= FREE_ANSWER_BYTES && self.budget.is_short()
            || self.sweeping
            // The answers of all threads may be long and count only once they are here, as do the
            // pages of a large hash: one such command at a time. And what follows a transaction may
            // need what it did or watches.
            || self
                .slots
                .back()
                .is_some_and(|slot| match &slot.state {
                    State::Asking(_) | State::Running(_) | State::Transferring(_) => true,
                    State::Reading(reading) => reading.held() > 0,
                    _ => false,
                })
            || self.slots.len() >= PENDING_MAX
            || self.pending_bytes >= PENDING_BYTES_MAX
            || self.out.len() >= self.output_max()
    }

    /// Whether the command that is partway may ask for one more answer.
    fn room_to_ask(&self, at: usize) -> Room {
        let own = self.slots.back().map_or(0, |s| s.charged);
        self.budget
            .room_to_ask((self.id, at), (own, self.charged), self.expected)
    }

    /// The address of the client.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether everything is answered, apart from what is still in `out`.
    pub(crate) fn is_answered(&self) -> bool {
        self.slots.is_empty() && self.has_no_pushes()
    }

    /// No more commands are taken. The client is told the reason, if there is one.
    pub(crate) fn end(&mut self, why: Option<String>) {
        if let Some(why) = why {
            self.answer(|e| e.error(&why));
        }
        self.closing = true;
    }

    /// The input is not the protocol: the client is told, and the connection is closed once
    /// everything earlier is answered.
    pub(crate) fn protocol_error(&mut self, text: &str) {
        self.silent = self.mute == Mute::All;
        self.command = counts::UNKNOWN;
        self.answer(|e| e.error(text));
        self.closing = true;
    }

    /// `GET` of a key that this thread may read at once, the commonest command. It is encoded
    /// straight from the store. False: it goes the way of all other commands.
    fn read_at_once(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        args: Args<'_>,
    ) -> bool {
        let here = args.len() == 2
            && args.get(0).eq_ignore_ascii_case(b"GET")
            && self.slots.is_empty()
            && self.authenticated
            && (self.free || self.user.may_plainly(table::GET, Rights::READ, args.get(1)));
        // Such a command may have to be repeated, and then waits as long as any other.
        if !here || self.silent || !self.touches || self.is_hurried(context) || context.is_stopped()
        {
            return false;
        }
        let key = args.get(1);
        if key.len() > context.limits().key_bytes_max {
            return false;
        }
        let found = context.read(self.keyspace, self.map, key);
        // Larger values are weighed first.
        let Some((n, value)) = found.filter(|(_, v)| v.is_none_or(|v| v.len() <= READ_AT_ONCE_MAX))
        else {
            return false;
        };
        let start = self.out.bytes.len();
        let mut encoder = Encoder::new(&mut self.out.bytes, self.protocol);
        let value = match value {
            Some(value) => {
                encoder.bulk(value);
                let end = encoder.len() - b"\r\n".len();
                Some(end - value.len()..end)
            }
            None => {
                encoder.nil();
                None
            }
        };
        if self.provisional.is_empty() {
            self.provisional_from = start;
            context.door.provisional.push(connection.clone());
        }
        self.provisional.push(Provisional::Read {
            keyspace: self.keyspace,
            map: self.map,
            key: args.bytes(1),
            n,
            value,
            protocol: self.protocol,
        });
        self.first += 1;
        self.command = table::GET;
        true
    }

    /// `SET` without options of a key that this thread leads. Only the entry is kept of the
    /// command. False: it goes the way of all other commands, which also answers its mistakes.
    fn write_at_once(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        args: Args<'_>,
    ) -> bool {
        let plain = args.len() == 3
            && args.get(0).eq_ignore_ascii_case(b"SET")
            && args.too_large().is_none();
        if !plain
            || !self.authenticated
            || !self.free
                && !self
                    .user
                    .may_plainly(table::SET, Rights::WRITE, args.get(1))
            || self.is_hurried(context)
            || context.is_stopped()
            || self.cluster_port && !context.is_led()
        {
            return false;
        }
        let slot = self.next();
        let pair = (args.get(1), args.get(2));
        let waiter = || ReplyWaiter {
            connection: connection.clone(),
            slot,
            part: 0,
            read: false,
        };
        let Some(token) = context.set(self.keyspace, self.map, pair, waiter) else {
            return false;
        };
        self.waits_until = context.now() + context.limits().park;
        self.command = table::SET;
        self.push(
            State::Waiting {
                shape: Shape::Plain,
                token,
            },
            0,
        );
        true
    }

    /// Takes provisional replies back. Their commands are judged again.
    fn take_back(&mut self, connection: &Rc<Connection>, context: &mut Context) {
        self.waits_until = context.now() + context.limits().park;
        let from = self.provisional_from;
        let taken = self.out.bytes.split_off(from).freeze();
        let provisional = std::mem::take(&mut self.provisional);
        let later = std::mem::take(&mut self.slots);
        self.first -= provisional.len() as u64;
        for reply in provisional {
            match reply {
                Provisional::Read {
                    keyspace,
                    map,
                    key,
                    n,
                    value,
                    protocol,
                } => {
                    let outcome = value.map_or(Outcome::Nil, |at| {
                        Outcome::Bulk(taken[at.start - from..at.end - from].into())
                    });
                    let operation = Operation {
                        keyspace,
                        map,
                        key,
                        action: Action::Get,
                    };
                    let waiter = ReplyWaiter {
                        connection: connection.clone(),
                        slot: self.next(),
                        part: 0,
                        read: true,
                    };
                    let token = context.keep(n, operation, outcome, waiter);
                    self.push(
                        State::Waiting {
                            shape: Shape::Plain,
                            token,
                        },
                        0,
                    );
                    if let Some(slot) = self.slots.back_mut() {
                        slot.protocol = protocol;
                        (slot.silent, slot.command) = (false, table::GET);
                    }
                }
                Provisional::Encoded(at) => {
                    let bytes = taken.slice(at.start - from..at.end - from);
                    let weight = bytes.len();
                    self.push(State::Encoded(bytes), weight);
                    if let Some(slot) = self.slots.back_mut() {
                        slot.silent = false;
                    }
                }
            }
        }
        self.slots.extend(later);
    }

    /// Encodes the replies whose turn it is. True if there is something to write, or if a reply
    /// that the client does not want is done.
    pub(crate) fn encode_ready(&mut self) -> bool {
        if !self.provisional.is_empty() {
            return false;
        }
        // Replies that the client does not want are encoded too, to count errors, and dropped.
        let (mut dropped, mut silenced) = (BytesMut::new(), false);
        while self.out.len() < OUTPUT_BYTES_SOFT {
            let Some(after) = self.slots.front().map(|slot| slot.after) else {
                break;
            };
            if !self.move_pushes_before(after) {
                break;
            }
            let Some(slot) = self.slots.front_mut() else {
                break;
            };
            dropped.clear();
            let out = if slot.silent {
                &mut dropped
            } else {
                &mut self.out.bytes
            };
            let start = out.len();
            let mut encoder = Encoder::new(out, slot.protocol);
            match &mut slot.state {
                State::Waiting { .. }
                | State::Publishing(_)
                | State::Asking(_)
                | State::Transferring(_) => break,
                State::Gathering(gather) if !gather.is_done() => break,
                State::Reading(reading) if !reading.is_done() => break,
                State::Running(running) if running.waits() > 0 => break,
                State::Running(running) if !running.asks_next().is_empty() => break,
                State::Running(running) => {
                    running.encode(&mut encoder);
                    if encoder.errors() > 0 {
                        counts::note(&mut self.failed, slot.command, &out[start..], false);
                    }
                }
                parts @ (State::Gathering(_) | State::Reading(_)) => {
                    let (whole, is_sweep) = match parts {
                        State::Gathering(gather) => {
                            (gather.encode(&mut encoder), gather.is_sweep())
                        }
                        State::Reading(reading) => (reading.encode(&mut encoder), false),
                        _ => break,
                    };
                    if encoder.errors() > 0 {
                        counts::note(&mut self.failed, slot.command, &out[start..], false);
                    }
                    if !whole && slot.silent {
                        continue;
                    }
                    self.within_reply = !whole;
                    if !whole {
                        break;
                    }
                    self.sweeping &= !is_sweep;
                }
                State::Done { shape, outcome } => {
                    match shape.reply(std::mem::replace(outcome, Outcome::Nil)) {
                        Reply::Bulk(_) if slot.silent => {}
                        Reply::Bulk(value) if value.len() >= APART_BYTES_MIN => {
                            encoder.bulk_head(value.len());
                            self.out.push(value);
                            Encoder::new(&mut self.out.bytes, slot.protocol).bulk_end();
                        }
                        reply => {
                            encoder.reply(&reply);
                            if encoder.errors() > 0 {
                                counts::note(&mut self.failed, slot.command, &out[start..], false);
                            }
                        }
                    }
                }
                State::Encoded(_) if slot.silent => {}
                State::Encoded(bytes) => out.extend_from_slice(bytes),
            }
            silenced |= slot.silent;
            self.pending_bytes = self.pending_bytes.saturating_sub(slot.weight);
            charge(&self.budget, &mut self.charged, &mut slot.charged, |_| 0);
            promise(&self.budget, &mut slot.expected, 0);
            self.budget
                .count_under_way(std::mem::take(&mut slot.under_way), 0);
            self.slots.pop_front();
            self.first += 1;
        }
        if self.subscribing.is_some() {
            self.move_pushes();
            self.forget_subscribing();
        }
        if self.slots.is_empty() && self.slots.capacity() > SLOTS_KEPT_MAX {
            self.slots = VecDeque::new();
        }
        silenced || !self.out.is_empty()
    }

    /// So many bytes of output are not written yet, including `out`. `now` of them count as
    /// answers.
    pub(crate) fn count_unwritten(&mut self, unsent: usize, now: usize) {
        self.unsent = unsent;
        let now = self.charged_of(now);
        if now != self.unwritten {
            charge(&self.budget, &mut self.charged, &mut self.unwritten, |_| {
                now
            });
        }
    }

    /// Nothing is charged any more.
    fn discharge(&mut self) {
        self.budget.count_answers(self.charged, 0);
        self.budget.end_turn(self.id);
        self.charged = 0;
        self.unwritten = 0;
        for slot in &mut self.slots {
            slot.charged = 0;
            promise(&self.budget, &mut slot.expected, 0);
            self.budget
                .count_under_way(std::mem::take(&mut slot.under_way), 0);
        }
    }

    /// Answers at once, in order.
    fn answer(&mut self, encode: impl FnOnce(&mut Encoder<'_>)) {
        self.answer_and_note(false, encode);
    }

    /// Answers that the command is not executed at all.
    fn refuse(&mut self, why: &ErrorText) {
        self.answer_and_note(true, |e| e.error(&why.0));
    }

    fn answer_and_note(&mut self, rejected: bool, encode: impl FnOnce(&mut Encoder<'_>)) {
        let protocol = self.protocol;
        if let Some(captured) = self.captured() {
            return encode(&mut Encoder::new(captured, protocol));
        }
        let at_once = self.slots.is_empty() && !self.silent && self.has_no_pushes();
        let mut apart = BytesMut::new();
        let out = if at_once {
            &mut self.out.bytes
        } else {
            &mut apart
        };
        let start = out.len();
        let mut encoder = Encoder::new(out, self.protocol);
        encode(&mut encoder);
        if encoder.errors() > 0 {
            counts::note(&mut self.failed, self.command, &out[start..], rejected);
        }
        if at_once {
            if !self.provisional.is_empty() {
                self.provisional
                    .push(Provisional::Encoded(start..self.out.bytes.len()));
                self.first += 1;
            }
        } else if !self.silent {
            let weight = apart.len();
            self.push(State::Encoded(apart.freeze()), weight);
        }
    }

    fn push(&mut self, state: State, weight: usize) {
        self.expect(state, weight, 0);
    }

    /// The same, if other nodes are expected to answer so many bytes.
    fn expect(&mut self, state: State, weight: usize, expected: usize) {
        let under_way = if matches!(state, State::Waiting { .. }) {
            weight
        } else {
            0
        };
        let weight = weight + expected;
        self.pending_bytes += weight;
        let (protocol, silent, command) = (self.protocol, self.silent, self.command);
        let mut slot = Slot {
            after: self.pushes_before(),
            protocol,
            silent,
            command,
            weight,
            charged: 0,
            expected: 0,
            under_way,
            state,
        };
        promise(&self.budget, &mut slot.expected, expected);
        self.budget.count_under_way(0, under_way);
        charge(&self.budget, &mut self.charged, &mut slot.charged, |_| {
            weight
        });
        self.slots.push_back(slot);
        self.unpublished_until = self.next();
    }

    /// The keyspace and the map that commands are about.
    const fn about(&self) -> (KeyspaceId, MapId) {
        (self.keyspace, self.map)
    }

    /// Whether an operation names keys of databases that the port does not have.
    fn leaves_database(&self, action: &Action) -> bool {
        let left = |(map, _)| map != self.map;
        self.cluster_port && action.others(self.map).any(left)
    }

    /// The number of the next slot.
    fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// Whether this client may run this command, and whether this thread answers for its keys.
    fn admits(
        &self,
        context: &mut Context,
        spec: &table::Spec,
        args: Args<'_>,
    ) -> Result<(), ErrorText> {
        if !self.authenticated && !spec.has_flag("no_auth") {
            return Err("NOAUTH Authentication required.".into());
        }
        self.may_run(context, spec, &args)?;
        let keys = spec.key_places(&args).map(|at| args.get(at));
        let max = context.limits().key_bytes_max;
        if keys.clone().any(|key| key.len() > max) {
            return Err(format!("ERR the key is too long: at most {max} bytes").into());
        }
        if context.is_stopped() && keys.clone().next().is_some() {
            return Err(advice::STOPPED.into());
        }
        if self.cluster_port {
            if keys.clone().map(<[u8]>::len).sum::<usize>() > HASHED_BYTES_MAX {
                return Err(format!(
                    "ERR the keys are too long together: at most {HASHED_BYTES_MAX} bytes; \
                     send fewer keys in one command"
                )
                .into());
            }
            here(context, keys)?;
        }
        Ok(())
    }

    fn run(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        args: Args<'_>,
        request: Request,
    ) {
        match request {
            Request::Data(data::Request::One { key, action, shape }) => {
                let action = if self.touches {
                    action
                } else {
                    action.untouching()
                };
                if self.leaves_database(&action) {
                    return self.answer(|e| e.error(OTHER_DATABASE));
                }
                if let Some(transfer) = action.transfer(self.map) {
                    return self.transfer(connection, context, (key, action, shape), transfer);
                }
                let footprint = action.footprint();
                if let Shape::Fields(part) = shape
                    && action.reads_all()
                {
                    return self.read_fields(connection, context, (key, action), part);
                }
                let (token, elsewhere) = operation(
                    connection,
                    context,
                    self.about(),
                    (self.next(), 0, self.patience(context)),
                    key,
                    action,
                );
                let expected = if elsewhere && footprint.answers_value {
                    self.expected
                } else {
                    0
                };
                let weight = footprint.given.bytes;
                self.expect(State::Waiting { shape, token }, weight, expected);
            }
            Request::Data(data::Request::Many(many)) => self.many(connection, context, args, many),
            Request::All(all) => {
                // What is read in pages is lost if the map is cleared.
                let reads = matches!(all, All::Clear { .. }) && self.is_reading();
                if (reads || self.is_held()) && self.waits_for_answers() {
                    return;
                }
                self.sweep(connection, context, all);
            }
            Request::Wait => {
                let least = match self.keyspace {
                    // Some clients ask this after every write, so it is kept.
                    cluster::KEYSPACE => context.door.backups_least,
                    other => cluster::backups_least(context.view(), other),
                };
                self.answer(|e| e.integer(least));
            }
            Request::Script(asked) => self.about_scripts(connection, context, args, asked),
            Request::Connection(ConnectionCommand::Exec) => {
                self.execute_transaction(connection, context);
            }
            Request::Connection(ConnectionCommand::Watch) => self.watch(connection, context, args),
            Request::Connection(asked) => self.about_connection(connection, context, asked),
            Request::Cluster(asked) => self.about_cluster(context, asked),
            Request::Server(ServerCommand::Monitor) => self.monitor(connection, context),
            Request::Server(asked) => self.about_server(context, asked),
            Request::PubSub(asked) => self.about_subscriptions(connection, context, args, asked),
            Request::Constant(answer) => self.answer_constant(answer),
        }
    }

    fn many(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        args: Args<'_>,
        many: Many,
    ) {
        let parts = (args.len() - 1) / many.step();
        let gather = Gather::of_parts(many.join(), parts);
        self.push(State::Gathering(Box::new(gather)), 0);
        self.partway = Some(Partway {
            many,
            at: 1,
            part: 0,
            hold: Hold::No,
        });
        self.submit_slice(connection, context, args);
    }

    /// Submits the next keys of a command, up to the number that other clients can wait for.
    fn submit_slice(&mut self, connection: &Rc<Connection>, context: &mut Context, args: Args<'_>) {
        let Some(mut way) = self.partway.take() else {
            return;
        };
        let (slot, patience) = (self.next() - 1, self.patience(context));
        let Some(entry) = self.slots.back_mut() else {
            return;
        };
        let State::Gathering(gather) = &mut entry.state else {
            return;
        };
        let (mut keys, mut bytes) = (0, 0);
        way.hold = Hold::No;
        while way.at < args.len() && !gather.has_failed() {
            if keys >= SLICE_KEYS || bytes >= SLICE_BYTES || entry.expected >= PENDING_BYTES_MAX {
                self.partway = Some(way);
                return;
            }
            let waits = gather.waits();
            if waits >= KEYS_ASKED_MAX || waits > 0 && context.shard().room() == 0 {
                self.partway = Some(Partway {
                    hold: Hold::Outcomes(waits / 2),
                    ..way
                });
                return;
            }
            let action = way.many.action(&args, way.at);
            let action = if self.touches {
                action
            } else {
                action.untouching()
            };
            let footprint = action.footprint();
            let weight = footprint.given.bytes;
            // Small answers to a connection that holds little always pass, and values that this
            // thread leads are no copies.
            let much = self.charged >= FREE_ANSWER_BYTES || self.expected > FREE_ANSWER_BYTES;
            if footprint.answers_value
                && self.budget.is_short()
                && much
                && !context
                    .shard()
                    .partitions()
                    .leads(self.keyspace, self.map, args.get(way.at))
            {
                match self.budget.room_to_ask(
                    (self.id, connection.at),
                    (entry.charged, self.charged),
                    self.expected,
                ) {
                    Room::Now => {}
                    Room::Later => {
                        self.partway = Some(Partway {
                            hold: Hold::Room(connection.at),
                            ..way
                        });
                        return;
                    }
                    Room::Never(_) if entry.expected > 0 => {
                        self.partway = Some(Partway {
                            hold: Hold::Answers,
                            ..way
                        });
                        return;
                    }
                    Room::Never(why) => {
                        let held = gather.held();
                        gather.fail(why);
                        charge(&self.budget, &mut self.charged, &mut entry.charged, |c| {
                            c - held
                        });
                        break;
                    }
                }
            }
            keys += 1;
            bytes += args.get(way.at).len() + weight;
            let (token, elsewhere) = operation(
                connection,
                context,
                (self.keyspace, self.map),
                (slot, way.part, patience),
                args.bytes(way.at),
                action,
            );
            gather.waits_for(token);
            let expected = if elsewhere && footprint.answers_value {
                self.expected
            } else {
                0
            };
            let all = entry.expected + expected;
            promise(&self.budget, &mut entry.expected, all);
            entry.weight += weight + expected;
            entry.under_way += weight;
            self.budget.count_under_way(0, weight);
            self.pending_bytes += weight + expected;
            charge(&self.budget, &mut self.charged, &mut entry.charged, |c| {
                c + weight + expected
            });
            way.at += way.many.step();
            way.part += 1;
        }
        gather.submitted();
        self.budget.end_turn(self.id);
    }

    fn sweep(&mut self, connection: &Rc<Connection>, context: &mut Context, mut all: All) {
        let Some(keyspace) = cluster::assigned(context.view(), self.keyspace) else {
            return self.answer(|e| e.error(Shape::Plain.failure(Failure::NoPartition)));
        };
        if let All::Range(query) = &mut all
            && query.to.is_empty()
        {
            query.to = keyspace.end_from(&query.from).into();
        }
        if let All::Range(query) = &all
            && let Err(why) = keyspace.partitions_within(self.map, &query.from, &query.to)
        {
            let why = advice::range_text(&why);
            return self.answer(|e| e.error(&format!("ERR SCANRANGE: {why}")));
        }
        let partitions = &keyspace.partitions;
        let partition = partitions.get(rand::random_range(0..partitions.len().max(1)));
        let partition = partition.map_or(PartitionId(0), |partition| partition.id);
        let keyspace = keyspace.id;
        let gather = match all {
            All::Random => {
                let gather = Gather::of_sweep(all, keyspace, &[self.map], self.cluster_port);
                gather.at_random(partition, rand::random())
            }
            All::Clear { databases: true } => {
                Gather::of_sweep(all, keyspace, &databases::all(), self.cluster_port)
            }
            all => Gather::of_sweep(all, keyspace, &[self.map], self.cluster_port),
        };
        self.gather(connection, context, gather);
    }

    fn gather(&mut self, connection: &Rc<Connection>, context: &mut Context, gather: Gather) {
        let mut gather = Box::new(gather);
        submit_steps(
            connection,
            context,
            (self.next(), self.patience(context)),
            &mut gather,
        );
        self.sweeping = true;
        self.push(State::Gathering(gather), 0);
        self.encode_ready();
    }
}

const OTHER_DATABASE: &str = "ERR Copying to another database is not allowed in cluster mode";
const WRONGPASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const HELLO_NOAUTH: &str = "NOAUTH HELLO must be called with the client already authenticated, \
    otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and \
    select the RESP protocol version at the same time";

/// Submits an operation. Returns its token, and whether its outcome comes from elsewhere.
fn operation(
    connection: &Rc<Connection>,
    context: &mut Context,
    (keyspace, map): (KeyspaceId, MapId),
    (slot, part, patience): (u64, u32, Patience),
    key: Bytes,
    action: Action,
) -> (u64, bool) {
    let operation = Operation {
        keyspace,
        map,
        key,
        action,
    };
    let connection = connection.clone();
    context.submit(operation, patience, |read| ReplyWaiter {
        connection,
        slot,
        part,
        read,
    })
}

impl Drop for Session {
    fn drop(&mut self) {
        self.discharge();
    }
}

/// Whether this thread answers a cluster-aware client for these keys.
fn here<'a>(context: &Context, keys: impl Iterator<Item = &'a [u8]>) -> Result<(), ErrorText> {
    let mut slots = keys.map(doyen_placement::hash::slot);
    let Some(slot) = slots.next() else {
        return Ok(());
    };
    if slots.any(|other| other != slot) {
        return Err("CROSSSLOT Keys in request don't hash to the same slot".into());
    }
    let view = context.view();
    let (Some(view), Some(partition)) = (view, cluster::partition_of(view, slot)) else {
        return Err("CLUSTERDOWN Hash slot not served".into());
    };
    if !context.is_led() {
        return Err(
            "CLUSTERDOWN The cluster is down: no majority of its voters answers this node".into(),
        );
    }
    match cluster::redirect(view, context.me(), context.threads(), partition) {
        Some(endpoint) => Err(format!("MOVED {slot} {endpoint}").into()),
        None => Ok(()),
    }
}

/// Whether a command comes with a password.
fn brings_password(args: Args<'_>) -> bool {
    let name = args.get(0);
    name.eq_ignore_ascii_case(b"AUTH") || name.eq_ignore_ascii_case(b"HELLO") && args.len() > 3
}

#[cfg(test)]
mod tests;
