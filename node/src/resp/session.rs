//! One connection's state: what it said of itself, and its replies, in the order of its commands.
//!
//! A command is answered at once (`PING`), or becomes one operation, or several whose outcomes are gathered, or a sweep
//! over all partitions in steps. Outcomes come in any order; replies leave in theirs.

use super::budget::{Budget, FREE_ANSWER_BYTES, FREE_INPUT_BYTES, STALLED_MAX};
use super::command::{self, All, Cluster, ErrorText, Many, Request, Server, Shape};
use super::encode::{Encoder, Protocol};
use super::frame::{Args, TooLarge};
use super::gather::{Gather, Kind};
use super::{cluster, describe, reply};
use crate::data::core::Inner;
use crate::data::waiters::Waiter;
use crate::shard::op::{Action, Condition, Expiry, Failure, Operation, Outcome, PartitionOperation};
use bytes::{Bytes, BytesMut};
use doyen_gossip::Time;
use doyen_placement::MapId;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Waker;

/// Replies that one connection may wait for.
const PENDING_MAX: usize = 8192;
/// Bytes of commands that are not answered yet, of their answers, and of those that other nodes are expected to send; above
/// it nothing more is taken from this connection.
const PENDING_BYTES_MAX: usize = 32 << 20;
/// Output above which nothing more is encoded or taken from this connection until the client has read.
pub(super) const OUTPUT_BYTES_SOFT: usize = 1 << 20;
/// The least that an answer of another node is expected to weigh: a full queue of these is below `PENDING_BYTES_MAX`.
const EXPECTED_BYTES_MIN: usize = 1 << 10;
/// Keys, and bytes of keys and values, of one command that are submitted in one go.
const SLICE_KEYS: usize = 512;
const SLICE_BYTES: usize = 1 << 20;
/// Bytes of the keys of one command at the cluster-aware port, where all are hashed before the first is touched.
const HASHED_BYTES_MAX: usize = 2 << 20;
/// Keys are compared with a pattern so far as they come; what is beyond that waits for its turn.
const COMPARE_AT_ONCE: usize = 1 << 16;
/// More room than this for replies is given back once all are written.
const SLOTS_KEPT_MAX: usize = 256;
/// No single reply is larger.
pub(super) const REPLY_BYTES_MAX: usize = 512 << 20;
/// Longest name that a client may give itself.
const NAME_BYTES_MAX: usize = 256;

/// A connection, as its task and the shard's outcomes see it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) session: RefCell<Session>,
    /// The task, while it waits.
    pub(crate) waker: RefCell<Option<Waker>>,
    /// The task runs and looks for itself.
    pub(crate) running: Cell<bool>,
    /// Bytes of input that it holds.
    pub(crate) input_held: Cell<usize>,
    /// When it last ran a command or took output, or was let read on.
    pub(crate) moved_at: Cell<Time>,
    /// It is not read, because others hold too much.
    waits_for_room: Cell<bool>,
    /// It stood still for too long while others wanted room: its task ends.
    pub(crate) expelled: Cell<bool>,
}

/// What a connection is and what it waits for.
#[derive(Debug)]
pub(crate) struct Session {
    id: u64,
    /// It came to the cluster-aware port.
    cluster_port: bool,
    local: SocketAddr,
    peer: SocketAddr,
    protocol: Protocol,
    pub(crate) authenticated: bool,
    name: Bytes,
    slots: VecDeque<Slot>,
    /// The number of the first slot.
    first: u64,
    pending_bytes: usize,
    sweeping: bool,
    /// Nothing more is taken; closed when everything is answered.
    pub(crate) closing: bool,
    pub(crate) out: BytesMut,
    /// The command of which not all keys are submitted: its slot is the last.
    partway: Option<Partway>,
    /// What the next answer of another node is expected to weigh: what they weighed of late, and the most at first.
    expected: usize,
    budget: Rc<Budget>,
    /// What it counts for there: commands, answers and output.
    charged: usize,
    unwritten: usize,
}

/// How far the submission of a command's keys has come.
#[derive(Debug, Clone, Copy)]
struct Partway {
    many: Many,
    /// The next argument.
    at: usize,
    /// The next part.
    part: u32,
}

/// The place of one reply.
#[derive(Debug)]
struct Slot {
    protocol: Protocol,
    /// Bytes of the command and of its answer.
    weight: usize,
    /// Those of them that nobody else holds, and that are charged to the budget.
    charged: usize,
    /// Bytes that other nodes are expected to answer, in `weight` and `charged` too.
    expected: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Waiting { shape: Shape, token: u64 },
    Done { shape: Shape, outcome: Outcome },
    Gathering(Box<Gather>),
    Encoded(Bytes),
}

impl Connection {
    pub(crate) fn new(
        id: u64,
        cluster_port: bool,
        (local, peer): (SocketAddr, SocketAddr),
        authenticated: bool,
        budget: Rc<Budget>,
        now: Time,
    ) -> Rc<Self> {
        let session = Session {
            id,
            cluster_port,
            local,
            peer,
            protocol: Protocol::Resp2,
            authenticated,
            name: Bytes::new(),
            slots: VecDeque::new(),
            first: 0,
            pending_bytes: 0,
            sweeping: false,
            closing: false,
            out: BytesMut::new(),
            partway: None,
            expected: budget.value_bytes_max().max(EXPECTED_BYTES_MIN),
            budget,
            charged: 0,
            unwritten: 0,
        };
        Rc::new(Self {
            session: RefCell::new(session),
            waker: RefCell::default(),
            running: Cell::new(false),
            input_held: Cell::new(0),
            moved_at: Cell::new(now),
            waits_for_room: Cell::new(false),
            expelled: Cell::new(false),
        })
    }

    /// An outcome for a slot; true if its sweep has further steps. `read`: nothing is lost with the outcome.
    pub(crate) fn deliver(&self, slot: u64, part: u32, token: u64, outcome: Outcome, read: bool) -> bool {
        let mut session = self.session.borrow_mut();
        let session = &mut *session;
        let Some(at) = slot.checked_sub(session.first).and_then(|i| usize::try_from(i).ok()) else { return false };
        let Some(entry) = session.slots.get_mut(at) else { return false };
        if entry.expected > 0 {
            let share = match &entry.state {
                State::Gathering(gather) => entry.expected.div_ceil(gather.waits().max(1)),
                _ => entry.expected,
            };
            entry.expected -= share;
            if !matches!(outcome, Outcome::Failed(_)) {
                // It falls by half with each answer that is smaller, so that one small one does not open the gates.
                session.expected = outcome.bytes().max(session.expected / 2).max(EXPECTED_BYTES_MIN);
            }
            entry.weight -= share;
            session.pending_bytes -= share;
            charge(&session.budget, &mut session.charged, &mut entry.charged, |c| c - share);
        }
        // What was expected of it counts no more: an answer that was weighed well has its room.
        let much = session.charged >= PENDING_BYTES_MAX;
        let (outcome, bytes, copied) = admit(&session.budget, outcome, read, much);
        let mut goes_on = false;
        match &mut entry.state {
            State::Waiting { shape, .. } => {
                entry.state = State::Done { shape: *shape, outcome };
                entry.weight += bytes;
                session.pending_bytes += bytes;
                charge(&session.budget, &mut session.charged, &mut entry.charged, |c| c + copied);
            }
            State::Gathering(gather) => {
                let held = gather.held();
                entry.weight += bytes;
                session.pending_bytes += bytes;
                gather.take(part, token, outcome, copied);
                gather.compare(&mut COMPARE_AT_ONCE.clone());
                charge(&session.budget, &mut session.charged, &mut entry.charged, |c| c + gather.held() - held);
                goes_on = gather.has_next_step() || gather.is_matching();
            }
            State::Done { .. } | State::Encoded(_) => return false,
        }
        if !goes_on && (at == 0 && session.encode_ready() || session.partway.is_some()) {
            self.wake();
        }
        goes_on
    }

    /// The next steps of a sweep, which take of `work`; true if it has more to do at once.
    pub(crate) fn sweep_on(self: &Rc<Self>, inner: &mut Inner, slot: u64, work: &mut usize) -> bool {
        let mut session = self.session.borrow_mut();
        let session = &mut *session;
        let Some(at) = slot.checked_sub(session.first).and_then(|i| usize::try_from(i).ok()) else { return false };
        if let Some(entry) = session.slots.get_mut(at)
            && let State::Gathering(gather) = &mut entry.state
        {
            let held = gather.held();
            gather.compare(work);
            charge(&session.budget, &mut session.charged, &mut entry.charged, |c| c + gather.held() - held);
            if gather.is_matching() {
                return true;
            }
            submit_steps(self, inner, slot, gather);
        }
        if session.encode_ready() {
            self.wake();
        }
        false
    }

    /// Whether it may be read now; if not, it is woken for another try, and that it stands still is not its fault.
    pub(crate) fn may_read(&self, id: u64, waker: &Waker, now: impl FnOnce() -> Time) -> bool {
        let may = self.session.borrow().budget.may_read(id, self.input_held.get(), waker);
        if self.waits_for_room.replace(!may) && may {
            self.moved_at.set(now());
        }
        may
    }

    /// Ends it if it holds much and stands still, and says so: others want the room.
    pub(crate) fn expel_if_stalled(&self, now: Time) -> bool {
        let much = self.input_held.get() > FREE_INPUT_BYTES || self.session.borrow().charged > FREE_ANSWER_BYTES;
        let stalled = much && !self.waits_for_room.get() && now.since(self.moved_at.get()) > STALLED_MAX;
        let expelled = stalled && !self.expelled.replace(true);
        if expelled {
            self.wake();
        }
        expelled
    }

    /// The task has something to do.
    pub(crate) fn wake(&self) {
        if !self.running.get()
            && let Some(waker) = self.waker.borrow().as_ref()
        {
            waker.wake_by_ref();
        }
    }

    /// Runs one command, or a slice of it: false if the same arguments are wanted again.
    pub(crate) fn execute(self: &Rc<Self>, inner: &mut Inner, args: Args<'_>) -> bool {
        let mut session = self.session.borrow_mut();
        if session.partway.is_some() {
            session.submit_slice(self, inner, args);
            return session.partway.is_none();
        }
        inner.counters.commands += 1;
        if let Some(what) = args.too_large() {
            inner.counters.errors += 1;
            let max = inner.limits.value_bytes_max;
            let text = match what {
                TooLarge::Argument => format!("ERR the argument is too large: at most {max} bytes (--value-max)"),
                TooLarge::Command => format!("ERR the command is too large: at most four times {max} bytes (--value-max)"),
            };
            session.answer(|e| e.error(&text));
            return true;
        }
        match session.understand(inner, args) {
            Ok(request) => session.run(self, inner, args, request),
            Err(error) => {
                inner.counters.errors += 1;
                session.answer(|e| e.error(&error.0));
            }
        }
        session.partway.is_none()
    }

    /// The client is gone: nobody waits for its outcomes.
    pub(crate) fn abandon(&self, inner: &mut Inner) {
        let slots = {
            let mut session = self.session.borrow_mut();
            session.discharge();
            std::mem::take(&mut session.slots)
        };
        for slot in slots {
            match slot.state {
                State::Waiting { token, .. } => inner.forget(token),
                State::Gathering(gather) => gather.tokens().for_each(|token| inner.forget(token)),
                State::Done { .. } | State::Encoded(_) => {}
            }
        }
    }
}

/// What an outcome becomes, how many bytes it has, and how many of them nobody else holds. One for which there is no room
/// is refused: where nothing is lost with it, it can be asked again. Who holds `much` leaves the second share to the others.
fn admit(budget: &Budget, outcome: Outcome, read: bool, much: bool) -> (Outcome, usize, usize) {
    let bytes = outcome.bytes();
    let copied = match &outcome {
        // Else the store holds it as well, or the log.
        Outcome::Bulk(value) if value.is_shared() => 0,
        _ => bytes,
    };
    if copied > EXPECTED_BYTES_MIN && (budget.refuses(copied) || much && budget.is_short()) {
        return (Outcome::Failed(if read { Failure::Overloaded } else { Failure::Unknown }), 0, 0);
    }
    (outcome, bytes, copied)
}

/// Changes what one reply is charged.
fn charge(budget: &Budget, session: &mut usize, slot: &mut usize, change: impl FnOnce(usize) -> usize) {
    let before = *slot;
    *slot = change(before);
    if *slot != before {
        *session = *session + *slot - before;
        budget.count_answers(before, *slot);
    }
}

fn submit_steps(connection: &Rc<Connection>, inner: &mut Inner, slot: u64, gather: &mut Gather) {
    while let Some((partition, action)) = gather.next_step() {
        let operation = PartitionOperation { keyspace: cluster::KEYSPACE, partition, map: MapId(0), action };
        let connection = connection.clone();
        let part = partition.0;
        let token = inner.submit_partition(operation, |redo| Waiter::Reply { connection, slot, part, redo });
        gather.waits_for(token);
    }
}

impl Session {
    /// Whether no further command is taken for now.
    pub(crate) fn is_blocked(&self) -> bool {
        if self.partway.is_some() {
            // Its own answers do not hold it up, but what it asks of others does.
            return self.slots.back().is_some_and(|s| s.expected >= PENDING_BYTES_MAX);
        }
        self.closing
            || self.charged >= FREE_ANSWER_BYTES && self.budget.is_short()
            || self.sweeping
            || self.slots.len() >= PENDING_MAX
            || self.pending_bytes >= PENDING_BYTES_MAX
            || self.out.len() >= OUTPUT_BYTES_SOFT
    }

    /// Whether everything is answered, but for what is still in `out`.
    pub(crate) fn is_answered(&self) -> bool {
        self.slots.is_empty()
    }

    /// The bytes are no protocol: says so, and closes once everything before it is answered.
    pub(crate) fn protocol_error(&mut self, text: &str) {
        self.answer(|e| e.error(text));
        self.closing = true;
    }

    /// Encodes the replies whose turn it is; true if there is something to write.
    pub(crate) fn encode_ready(&mut self) -> bool {
        while self.out.len() < OUTPUT_BYTES_SOFT {
            let Some(slot) = self.slots.front_mut() else { break };
            let mut encoder = Encoder::new(&mut self.out, slot.protocol);
            match &mut slot.state {
                State::Waiting { .. } => break,
                State::Gathering(gather) if !gather.is_done() => break,
                State::Gathering(gather) => {
                    if !gather.encode(&mut encoder) {
                        break;
                    }
                    self.sweeping &= !gather.is_sweep();
                }
                State::Done { shape, outcome } => reply::outcome(&mut encoder, *shape, outcome),
                State::Encoded(bytes) => self.out.extend_from_slice(bytes),
            }
            self.pending_bytes = self.pending_bytes.saturating_sub(slot.weight);
            charge(&self.budget, &mut self.charged, &mut slot.charged, |_| 0);
            self.slots.pop_front();
            self.first += 1;
        }
        if self.slots.is_empty() && self.slots.capacity() > SLOTS_KEPT_MAX {
            self.slots = VecDeque::new();
        }
        !self.out.is_empty()
    }

    /// So many bytes of output are not written yet, `out` among them.
    pub(crate) fn count_unwritten(&mut self, now: usize) {
        if now != self.unwritten {
            charge(&self.budget, &mut self.charged, &mut self.unwritten, |_| now);
        }
    }

    /// Nothing counts any more.
    fn discharge(&mut self) {
        self.budget.count_answers(self.charged, 0);
        self.charged = 0;
        self.unwritten = 0;
        for slot in &mut self.slots {
            slot.charged = 0;
        }
    }

    /// Answers at once, in order.
    fn answer(&mut self, encode: impl FnOnce(&mut Encoder<'_>)) {
        if self.slots.is_empty() {
            return encode(&mut Encoder::new(&mut self.out, self.protocol));
        }
        let mut bytes = BytesMut::new();
        encode(&mut Encoder::new(&mut bytes, self.protocol));
        let weight = bytes.len();
        self.push(State::Encoded(bytes.freeze()), weight);
    }

    fn push(&mut self, state: State, weight: usize) {
        self.expect(state, weight, 0);
    }

    /// Likewise, where so many bytes of answers are expected from other nodes.
    fn expect(&mut self, state: State, weight: usize, expected: usize) {
        let weight = weight + expected;
        self.pending_bytes += weight;
        let mut slot = Slot { protocol: self.protocol, weight, charged: 0, expected, state };
        charge(&self.budget, &mut self.charged, &mut slot.charged, |_| weight);
        self.slots.push_back(slot);
    }

    /// The number of the next slot.
    fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    fn understand(&self, inner: &Inner, args: Args<'_>) -> Result<Request, ErrorText> {
        let spec = command::find(args)?;
        if !self.authenticated && !spec.is_open() {
            return Err("NOAUTH Authentication required.".into());
        }
        let (first, last, step) = spec.keys;
        if first > 0 {
            // Positive: the table says so.
            let step = usize::try_from(step).unwrap_or(1).max(1);
            let keys = if last < 0 { 1..args.len() } else { 1..2 };
            if keys.clone().step_by(step).any(|i| args.get(i).len() > inner.limits.key_bytes_max) {
                return Err("ERR the key is too long".into());
            }
            if self.cluster_port {
                if keys.clone().step_by(step).map(|i| args.get(i).len()).sum::<usize>() > HASHED_BYTES_MAX {
                    return Err(format!("ERR the keys are too long together: at most {HASHED_BYTES_MAX} bytes").into());
                }
                here(inner, keys.step_by(step).map(|i| args.get(i)))?;
            }
        }
        command::parse(spec, args, inner.unix_ms)
    }

    fn run(&mut self, connection: &Rc<Connection>, inner: &mut Inner, args: Args<'_>, request: Request) {
        match request {
            Request::One { key, action, shape } => {
                let (weight, answers) = (weight(&action), answers_value(&action));
                let (token, elsewhere) = operation(connection, inner, self.next(), 0, key, action);
                let expected = if elsewhere && answers { self.expected } else { 0 };
                self.expect(State::Waiting { shape, token }, weight, expected);
            }
            Request::Many(many) => self.many(connection, inner, args, many),
            Request::All(all) => self.sweep(connection, inner, all),
            Request::Wait => self.answer(|e| e.integer(cluster::backups_least(inner.view.as_ref()))),
            Request::Connection(asked) => self.about_connection(inner, asked),
            Request::Cluster(asked) => self.about_cluster(inner, asked),
            Request::Server(asked) => self.about_server(inner, asked),
        }
    }

    fn many(&mut self, connection: &Rc<Connection>, inner: &mut Inner, args: Args<'_>, many: Many) {
        let (step, kind) = match many {
            Many::Get => (1, Kind::Values),
            Many::Set => (2, Kind::Written),
            Many::Delete => (1, Kind::Deleted),
            Many::Exists => (1, Kind::Sum),
        };
        let parts = (args.len() - 1) / step;
        if parts > inner.shard.room() {
            inner.counters.errors += 1;
            return self.answer(|e| e.error(super::reply::failure(Failure::Overloaded, Shape::Plain)));
        }
        self.push(State::Gathering(Box::new(Gather::of_parts(kind, parts))), 0);
        self.partway = Some(Partway { many, at: 1, part: 0 });
        self.submit_slice(connection, inner, args);
    }

    /// Submits the next keys of a command, as many as others should wait for.
    fn submit_slice(&mut self, connection: &Rc<Connection>, inner: &mut Inner, args: Args<'_>) {
        let Some(mut way) = self.partway.take() else { return };
        let slot = self.next() - 1;
        let Some(entry) = self.slots.back_mut() else { return };
        let State::Gathering(gather) = &mut entry.state else { return };
        let step = if matches!(way.many, Many::Set) { 2 } else { 1 };
        let (mut keys, mut bytes) = (0, 0);
        while way.at < args.len() && !gather.has_failed() {
            if keys >= SLICE_KEYS || bytes >= SLICE_BYTES || entry.expected >= PENDING_BYTES_MAX {
                self.partway = Some(way);
                return;
            }
            let action = match way.many {
                Many::Get => Action::Get,
                Many::Delete => Action::Delete,
                Many::Exists => Action::Exists,
                Many::Set => Action::Set { value: args.bytes(way.at + 1), condition: Condition::Always, expiry: Expiry::None, get: false },
            };
            let (weight, answers) = (weight(&action), answers_value(&action));
            keys += 1;
            bytes += args.get(way.at).len() + weight;
            let (token, elsewhere) = operation(connection, inner, slot, way.part, args.bytes(way.at), action);
            gather.waits_for(token);
            let expected = if elsewhere && answers { self.expected } else { 0 };
            entry.expected += expected;
            entry.weight += weight + expected;
            self.pending_bytes += weight + expected;
            charge(&self.budget, &mut self.charged, &mut entry.charged, |c| c + weight + expected);
            way.at += step;
            way.part += 1;
        }
        gather.submitted();
    }

    fn sweep(&mut self, connection: &Rc<Connection>, inner: &mut Inner, all: All) {
        let Some(keyspace) = cluster::keyspace(inner.view.as_ref()) else {
            return self.answer(|e| e.error("CLUSTERDOWN Hash slot not served"));
        };
        let (me, own_only) = (inner.me, self.cluster_port);
        let slot_only = match &all {
            All::CountInSlot(slot) => Some(keyspace.partition_of_slot(*slot)),
            _ => None,
        };
        let partitions = keyspace.partitions.iter().filter(|p| !own_only || p.primary() == me).map(|p| p.id);
        let partitions = partitions.filter(|p| slot_only.is_none_or(|only| only == Some(*p))).collect();
        let mut gather = Box::new(Gather::of_sweep(all, partitions));
        submit_steps(connection, inner, self.next(), &mut gather);
        self.sweeping = true;
        self.push(State::Gathering(gather), 0);
        self.encode_ready();
    }

    fn about_connection(&mut self, inner: &Inner, asked: command::Connection) {
        use command::Connection as C;
        match asked {
            C::Ping(None) => self.answer(|e| e.simple("PONG")),
            C::Ping(Some(text)) | C::Echo(text) => self.answer(|e| e.bulk(&text)),
            C::Hello { protocol, auth, name } => self.hello(inner, protocol, auth, name),
            C::Auth { user, password } => {
                if user.is_none() && inner.password.is_none() {
                    let text = "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?";
                    return self.answer(|e| e.error(text));
                }
                if self.authenticate(inner, user.as_deref().unwrap_or(b"default"), &password) {
                    self.answer(|e| e.simple("OK"));
                } else {
                    self.answer(|e| e.error(WRONGPASS));
                }
            }
            C::Select(0) | C::Accept => self.answer(|e| e.simple("OK")),
            C::Select(_) if self.cluster_port => self.answer(|e| e.error("ERR SELECT is not allowed in cluster mode")),
            C::Select(_) => self.answer(|e| e.error("ERR DB index is out of range")),
            C::Quit => {
                self.answer(|e| e.simple("OK"));
                self.closing = true;
            }
            C::Reset => {
                self.protocol = Protocol::Resp2;
                self.authenticated = inner.password.is_none();
                self.name = Bytes::new();
                self.answer(|e| e.simple("RESET"));
            }
            C::ClientId => {
                let id = i64::try_from(self.id).unwrap_or(i64::MAX);
                self.answer(|e| e.integer(id));
            }
            C::ClientSetName(name) => match self.set_name(name) {
                Ok(()) => self.answer(|e| e.simple("OK")),
                Err(text) => self.answer(|e| e.error(text)),
            },
            C::ClientGetName if self.name.is_empty() => self.answer(|e| e.nil()),
            C::ClientGetName => {
                let name = self.name.clone();
                self.answer(|e| e.bulk(&name));
            }
            C::ClientInfo => {
                let line = self.line();
                self.answer(|e| e.text(&line));
            }
            C::ClientList => {
                // This session is borrowed; the others are not.
                let others = inner.connections.values().filter_map(|c| c.session.try_borrow().ok().map(|s| s.line()));
                let lines: String = others.chain([self.line()]).collect();
                self.answer(|e| e.text(&lines));
            }
        }
    }

    fn hello(&mut self, inner: &Inner, protocol: Option<i64>, auth: Option<(Bytes, Bytes)>, name: Option<Bytes>) {
        if let Some((user, password)) = auth
            && !self.authenticate(inner, &user, &password)
        {
            return self.answer(|e| e.error(WRONGPASS));
        }
        if !self.authenticated {
            return self.answer(|e| e.error(HELLO_NOAUTH));
        }
        if let Some(Err(text)) = name.map(|name| self.set_name(name)) {
            return self.answer(|e| e.error(text));
        }
        match protocol {
            Some(3) => self.protocol = Protocol::Resp3,
            Some(_) => self.protocol = Protocol::Resp2,
            None => {}
        }
        let version = if self.protocol == Protocol::Resp3 { 3 } else { 2 };
        let id = i64::try_from(self.id).unwrap_or(i64::MAX);
        let mode: &[u8] = if self.cluster_port { b"cluster" } else { b"standalone" };
        self.answer(|e| {
            e.map(7);
            e.bulk(b"server");
            e.bulk(b"redis");
            e.bulk(b"version");
            e.bulk(describe::REDIS_VERSION.as_bytes());
            e.bulk(b"proto");
            e.integer(version);
            e.bulk(b"id");
            e.integer(id);
            e.bulk(b"mode");
            e.bulk(mode);
            e.bulk(b"role");
            e.bulk(b"master");
            e.bulk(b"modules");
            e.array(0);
        });
    }

    fn authenticate(&mut self, inner: &Inner, user: &[u8], password: &[u8]) -> bool {
        let right = user == b"default" && inner.password.as_ref().is_none_or(|p| equal_in_constant_time(p.as_bytes(), password));
        self.authenticated |= right;
        right
    }

    fn set_name(&mut self, name: Bytes) -> Result<(), &'static str> {
        if name.len() > NAME_BYTES_MAX || !name.iter().all(u8::is_ascii_graphic) {
            return Err("ERR Client names cannot contain spaces, newlines or special characters.");
        }
        // A copy, because a slice would keep the whole read buffer.
        self.name = Bytes::copy_from_slice(&name);
        Ok(())
    }

    fn line(&self) -> String {
        let version = if self.protocol == Protocol::Resp3 { 3 } else { 2 };
        let name = String::from_utf8_lossy(&self.name);
        let (id, peer, local, waiting) = (self.id, self.peer, self.local, self.slots.len());
        format!(
            "id={id} addr={peer} laddr={local} fd=-1 name={name} flags=N db=0 oll={waiting} omem={} user=default resp={version}\n",
            self.out.len()
        )
    }

    fn about_cluster(&mut self, inner: &Inner, asked: Cluster) {
        let view = inner.view.as_ref();
        match asked {
            Cluster::Slots => self.answer(|e| cluster::slots(e, view)),
            Cluster::Shards => self.answer(|e| cluster::shards(e, view)),
            Cluster::Nodes => self.answer(|e| e.text(&cluster::nodes(view, inner.me))),
            Cluster::Info => self.answer(|e| e.text(&cluster::info(view))),
            Cluster::MyId => self.answer(|e| e.bulk(cluster::node_id(inner.me).as_bytes())),
            Cluster::KeySlot(slot) => self.answer(|e| e.integer(slot.into())),
        }
    }

    /// `INFO` shows what this node holds; how many keys the cluster has takes `DBSIZE`.
    fn about_server(&mut self, inner: &Inner, asked: Server) {
        match asked {
            Server::Info(sections) => {
                let text = describe::info(&self.facts(inner), &sections);
                self.answer(|e| e.text(&text));
            }
            Server::ConfigGet(patterns) => {
                let facts = self.facts(inner);
                self.answer(|e| describe::config(e, &facts, &patterns));
            }
            Server::CommandCount => {
                let count = i64::try_from(command::table::all().len()).unwrap_or(i64::MAX);
                self.answer(|e| e.integer(count));
            }
            Server::CommandInfo(names) => self.answer(|e| describe::command_info(e, names.as_deref())),
            Server::CommandDocs(names) => self.answer(|e| describe::command_docs(e, names.as_deref())),
            Server::CommandList => self.answer(describe::command_list),
            Server::CommandGetKeys(args) => self.answer(|e| describe::command_keys(e, &args)),
        }
    }

    fn facts(&self, inner: &Inner) -> describe::Facts {
        let stats = inner.shard.stats();
        describe::Facts {
            cluster_port: self.cluster_port,
            process_id: std::process::id(),
            run_id: cluster::node_id(inner.me),
            tcp_port: self.local.port(),
            uptime_s: inner.now.since(inner.started).as_secs(),
            connected_clients: inner.connections.len(),
            connections_max: inner.connections_max,
            memory_bytes: stats.memory_bytes,
            memory_bytes_max: u64::try_from(inner.limits.memory_bytes_max).unwrap_or(u64::MAX),
            connections_received: inner.counters.connections,
            connections_rejected: inner.counters.connections_rejected,
            commands: inner.counters.commands,
            expired: stats.expired,
            parked: stats.parked,
            backups: cluster::backups_least(inner.view.as_ref()),
            keys: stats.keys,
            has_password: inner.password.is_some(),
            value_bytes_max: inner.limits.value_bytes_max,
        }
    }
}

const WRONGPASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const HELLO_NOAUTH: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time";

/// Its token, and whether its outcome comes from another node.
fn operation(connection: &Rc<Connection>, inner: &mut Inner, slot: u64, part: u32, key: Bytes, action: Action) -> (u64, bool) {
    let operation = Operation { keyspace: cluster::KEYSPACE, map: MapId(0), key, action };
    let connection = connection.clone();
    inner.submit(operation, |redo| Waiter::Reply { connection, slot, part, redo })
}

impl Drop for Session {
    fn drop(&mut self) {
        self.discharge();
    }
}

/// Whether the outcome may be as large as a value.
const fn answers_value(action: &Action) -> bool {
    matches!(action, Action::Get | Action::GetEx { .. } | Action::GetDel | Action::Set { get: true, .. })
}

/// Bytes of the client's that an unanswered operation holds.
fn weight(action: &Action) -> usize {
    match action {
        Action::Set { value, .. } | Action::Append { value } => value.len(),
        _ => 0,
    }
}

/// Whether this node answers a cluster-aware client for these keys.
fn here<'a>(inner: &Inner, keys: impl Iterator<Item = &'a [u8]>) -> Result<(), ErrorText> {
    let mut slots = keys.map(doyen_placement::hash::slot);
    let Some(slot) = slots.next() else { return Ok(()) };
    if slots.any(|other| other != slot) {
        return Err("CROSSSLOT Keys in request don't hash to the same slot".into());
    }
    let view = inner.view.as_ref();
    let (Some(view), Some(partition)) = (view, cluster::partition_of(view, slot)) else {
        return Err("CLUSTERDOWN Hash slot not served".into());
    };
    match cluster::redirect(view, inner.me, partition) {
        Some(at) => Err(format!("MOVED {slot} {at}").into()),
        None => Ok(()),
    }
}

fn equal_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::Limits;
    use std::time::Duration;

    fn connection(id: u64, budget: &Rc<Budget>) -> Rc<Connection> {
        let any: SocketAddr = ([127, 0, 0, 1], 1).into();
        Connection::new(id, false, (any, any), true, budget.clone(), Time::ZERO)
    }

    fn budget() -> Rc<Budget> {
        Rc::new(Budget::new(&Limits {
            value_bytes_max: 1 << 20,
            key_bytes_max: 1 << 10,
            memory_bytes_max: 64 << 20,
            tail_bytes_max: 8 << 20,
            park: Duration::from_secs(5),
            waiting_max: 100,
            copy_silent_max: Duration::from_secs(1),
            chunk_bytes: 256,
            chunks_in_flight: 2,
            copies_max: 2,
            takeover_wait: Duration::from_millis(515),
        }))
    }

    fn waiting(connection: &Rc<Connection>, expected: usize) -> u64 {
        let mut session = connection.session.borrow_mut();
        session.expect(State::Waiting { shape: Shape::Plain, token: 0 }, 0, expected);
        session.next() - 1
    }

    fn value(bytes: usize) -> Outcome {
        Outcome::Bulk(vec![0; bytes].as_slice().into())
    }

    /// Thousands of reads were forwarded before the first answer said how large they are.
    #[test]
    fn what_other_nodes_are_expected_to_answer_is_what_they_answered_of_late() {
        let (budget, large) = (budget(), 1 << 20);
        let connection = connection(1, &budget);
        let expected = |connection: &Connection| connection.session.borrow().expected;
        assert_eq!(expected(&connection), large, "the worst, at first");
        let slots: Vec<u64> = (0..32).map(|_| waiting(&connection, large)).collect();
        assert!(connection.session.borrow().is_blocked());
        assert_eq!(budget.counted().1, 32 << 20);
        for slot in slots {
            assert!(!connection.deliver(slot, 0, 0, value(10), true));
        }
        assert_eq!(expected(&connection), EXPECTED_BYTES_MIN);
        connection.session.borrow_mut().encode_ready();
        assert!(!connection.session.borrow().is_blocked());
        assert_eq!(budget.counted().1, 0);
        let slot = waiting(&connection, EXPECTED_BYTES_MIN);
        connection.deliver(slot, 0, 0, value(large), true);
        assert_eq!(expected(&connection), large, "one large answer, and large ones are expected");
    }

    /// Answers that were asked for within the budget were refused once others had filled it.
    #[test]
    fn an_answer_that_was_weighed_has_its_room() {
        let (budget, large) = (budget(), 1 << 20);
        let connections: Vec<_> = (1..=32).map(|id| connection(id, &budget)).collect();
        let slots: Vec<u64> = connections.iter().map(|c| waiting(c, large)).collect();
        assert!(budget.is_short() && connections.iter().all(|c| c.session.borrow().is_blocked()));
        for (connection, slot) in connections.iter().zip(slots) {
            connection.deliver(slot, 0, 0, value(large), true);
            assert!(connection.session.borrow().out.len() > large, "not an error");
        }
    }

    #[test]
    fn copies_that_nobody_takes_are_refused_and_given_back_at_the_end() {
        let budget = budget();
        let (greedy, modest) = (connection(1, &budget), connection(2, &budget));
        let front = waiting(&greedy, 0);
        let (mut refused, slots) = (0, (0..50).map(|_| waiting(&greedy, 0)).collect::<Vec<_>>());
        for slot in slots {
            greedy.deliver(slot, 0, 0, value(1 << 20), true);
            let session = greedy.session.borrow();
            let at = usize::try_from(slot - session.first).unwrap();
            refused += usize::from(matches!(session.slots[at].state, State::Done { outcome: Outcome::Failed(Failure::Overloaded), .. }));
        }
        assert_eq!((refused, budget.counted().1), (18, 32 << 20), "twice the share, all together");
        let shared: Outcome = value(1 << 20);
        greedy.deliver(front, 0, 0, shared.clone(), true);
        assert_eq!(budget.counted().1, 32 << 20, "what is stored costs nothing");
        drop(greedy);
        assert_eq!(budget.counted().1, 0);
        let slot = waiting(&modest, 0);
        modest.deliver(slot, 0, 0, value(1 << 20), true);
        assert!(modest.session.borrow().out.len() > 1 << 20);
    }

    #[test]
    fn who_holds_much_and_stands_still_is_expelled_but_not_who_is_made_to_wait() {
        let budget = budget();
        let (hoarder, waiter) = (connection(1, &budget), connection(2, &budget));
        let late = Time::ZERO + STALLED_MAX + Duration::from_secs(1);
        assert!(!hoarder.expel_if_stalled(late), "it holds nothing");
        for connection in [&hoarder, &waiter] {
            connection.input_held.set(8 << 20);
        }
        budget.count_input(1, 0, 16 << 20);
        let now = || late;
        assert!(hoarder.may_read(1, Waker::noop(), now) && !waiter.may_read(2, Waker::noop(), now));
        assert!(budget.is_wanted());
        assert!(hoarder.expel_if_stalled(late) && !waiter.expel_if_stalled(late));
        assert!(!hoarder.expel_if_stalled(late), "once");
        budget.count_input(1, 16 << 20, 0);
        assert!(waiter.may_read(2, Waker::noop(), now));
        assert!(!waiter.expel_if_stalled(late), "its time begins now");
    }
}
