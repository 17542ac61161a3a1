//! The replies of one connection, in the order of its commands, and its output.
//!
//! ```text
//!   commands ──> ReplySlot ──> outcomes, in any order ──> the first slot is whole ──> Output
//!   messages ──> Pushes ─────────────────────────────── before later replies ───────┘
//! ```
//!
//! A read that this thread may answer at once is encoded straight to the output. It is provisional
//! until the pass is judged: then it stays, or it is taken back and becomes a slot.

use super::charges::{Admitted, Charges, PENDING_BYTES_MAX, ReplyWeight, is_in_vain};
use super::connection::{Connection, ReplyWaiter};
use super::deadlines::Deadlines;
use super::pending::pops::PutBackReply;
use super::pending::{
    Arrived, ArrivedOutcome, Hold, PendingReply, ReplyAsker, SessionEffect, Stepped,
};
use super::pushes::{PUSH_OUTPUT, Pushes};
use super::{OUTPUT_BYTES_SOFT, SLOTS_KEPT_MAX};
use crate::resp::RespContext;
use crate::resp::budget::{BudgetRoom, ClientBudget};
use crate::resp::command::table;
use crate::resp::counts::{self, FailedReply};
use crate::resp::encode::{Encoder, Protocol};
use crate::resp::frame::Args;
use crate::resp::output::{APART_BYTES_MIN, ClientOutput};
use crate::resp::pubsub::Push;
use crate::resp::timing::CommandLatency;
use bytes::{Bytes, BytesMut};
use doyen_engine::Patience;
use doyen_engine::command::{CommandReply, ErrorText, Shape};
use doyen_engine::op::{Action, Operation, Outcome};
use doyen_gossip::Time;
use doyen_placement::{KeyspaceId, MapId};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

/// Most replies that one connection may wait for.
const PENDING_MAX: usize = 8192;
/// Most invalidations of one connection that are sent once more. Instead of further ones, the
/// client has to forget everything.
pub(crate) const AGAIN_MAX: usize = 1_024;

/// The replies of one connection.
#[derive(Debug)]
pub(crate) struct Replies {
    pub(crate) protocol: Protocol,
    /// The last command that the client sent, by its place in the table. The next reply is its.
    pub(crate) command: u16,
    /// The present command gets no reply.
    pub(crate) silent: bool,
    /// When the pass began in which it came.
    pub(crate) came: Time,
    slots: VecDeque<ReplySlot>,
    /// The number of the first slot.
    first: u64,
    /// The slots below this number may be of commands that a message must come after.
    unpublished_until: u64,
    /// Replies of this pass that are in `out` and must not leave unless the pass is judged well:
    /// reads, and the replies after them. Their numbers were just below `first`.
    provisional: Vec<Provisional>,
    /// Where they begin in `out`.
    provisional_from: usize,
    /// A part of a reply is in `out`, and the rest is to follow.
    within_reply: bool,
    sweeping: bool,
    /// The command of the last slot has not asked for all of its keys, and is given its arguments
    /// again.
    pub(crate) partway: bool,
    /// Messages that wait.
    pushes: Option<Box<Pushes>>,
    /// Where the answers of commands go that touch no key, while `EXEC` runs them.
    captured: Option<Box<BytesMut>>,
    /// Error replies that are not counted yet.
    pub(crate) failed: Vec<FailedReply>,
    pub(crate) out: ClientOutput,
    /// All output that is not written, including what is not charged.
    pub(crate) unsent: usize,
    /// How many bytes of output have left `out`.
    left: u64,
    /// What was taken out for the client, with the place at which its reply ends in the output. It
    /// is put back if the connection ends before that is written.
    taken_out: Vec<(u64, Operation)>,
    pub(crate) charges: Charges,
    pub(crate) deadlines: Deadlines,
    latency: Rc<CommandLatency>,
}

/// The place of one reply.
#[derive(Debug)]
struct ReplySlot {
    protocol: Protocol,
    /// The client does not want this reply.
    silent: bool,
    /// The command that it answers, by its place in the table, and when the pass began in which it
    /// came.
    command: u16,
    came: Time,
    /// It follows all pushes below this number.
    after: u64,
    weight: ReplyWeight,
    state: ReplyState,
}

#[derive(Debug)]
enum ReplyState {
    /// One operation is under way.
    Waiting {
        shape: Shape,
        token: u64,
    },
    Done {
        shape: Shape,
        outcome: Outcome,
    },
    Pending(Box<dyn PendingReply>),
    Encoded(Bytes),
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
    /// It would be the same at any time. Its command, and its place in `out`.
    Encoded(u16, Range<usize>),
}

/// A key that a read found.
pub(crate) struct FoundKey {
    pub(crate) about: (KeyspaceId, MapId),
    pub(crate) key: Bytes,
    /// The operation of this node.
    pub(crate) n: u64,
}

/// What the session does once something has come for a reply.
pub(crate) struct TakenArrival {
    pub(crate) after: SessionEffect,
    /// The reply has a next step.
    pub(crate) steps: bool,
    /// It is the first reply, so it may leave.
    pub(crate) is_first: bool,
}

impl ReplySlot {
    /// How many outcomes of its parts are missing.
    fn waits(&self) -> usize {
        match &self.state {
            ReplyState::Pending(pending) => pending.asked().waits(),
            _ => 0,
        }
    }
}

impl Replies {
    pub(crate) fn new(
        owner: (u64, usize),
        budget: Rc<ClientBudget>,
        latency: Rc<CommandLatency>,
    ) -> Self {
        Self {
            protocol: Protocol::Resp2,
            command: counts::UNKNOWN,
            silent: false,
            came: Time::ZERO,
            slots: VecDeque::new(),
            first: 0,
            unpublished_until: 0,
            provisional: Vec::new(),
            provisional_from: 0,
            within_reply: false,
            sweeping: false,
            partway: false,
            pushes: None,
            captured: None,
            failed: Vec::new(),
            out: ClientOutput::default(),
            unsent: 0,
            left: 0,
            taken_out: Vec::new(),
            charges: Charges::new(budget, owner),
            deadlines: Deadlines::default(),
            latency,
        }
    }

    /// How many replies wait.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether no reply waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether the replies to all earlier commands are in the output to stay.
    pub(crate) fn is_settled(&self) -> bool {
        self.slots.is_empty() && self.provisional.is_empty()
    }

    /// The number of the next slot.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// Whether this reply is the last one: no later command was taken.
    pub(crate) fn is_last(&self, slot: u64) -> bool {
        slot + 1 == self.next()
    }

    /// The place of a slot, unless it has left.
    fn place(&self, slot: u64) -> Option<usize> {
        let at = usize::try_from(slot.checked_sub(self.first)?).ok()?;
        (at < self.slots.len()).then_some(at)
    }

    /// How long a command that is taken now waits at most.
    pub(crate) fn patience(&mut self, context: &RespContext) -> Patience {
        self.deadlines.patience(context, self.slots.is_empty())
    }

    /// What the next reply asks with.
    pub(crate) fn asker<'a>(
        &mut self,
        connection: &'a Rc<Connection>,
        context: &'a mut RespContext,
    ) -> ReplyAsker<'a> {
        self.asker_of(self.next(), connection, context)
    }

    /// What this reply asks with.
    pub(crate) fn asker_of<'a>(
        &mut self,
        slot: u64,
        connection: &'a Rc<Connection>,
        context: &'a mut RespContext,
    ) -> ReplyAsker<'a> {
        ReplyAsker {
            patience: self.patience(context),
            slot,
            connection,
            context,
        }
    }

    /// Answers at once, in order.
    pub(crate) fn answer(&mut self, encode: impl FnOnce(&mut Encoder<'_>)) {
        self.answer_and_note(false, encode);
    }

    /// Answers that the command is not executed at all.
    pub(crate) fn refuse(&mut self, why: &ErrorText) {
        self.answer_and_note(true, |e| e.error(&why.0));
    }

    fn answer_and_note(&mut self, rejected: bool, encode: impl FnOnce(&mut Encoder<'_>)) {
        if let Some(captured) = &mut self.captured {
            return encode(&mut Encoder::new(captured, self.protocol));
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
            if self.provisional.is_empty() {
                self.latency.leaves(self.command, self.came);
            } else {
                let at = start..self.out.bytes.len();
                self.provisional
                    .push(Provisional::Encoded(self.command, at));
                self.first += 1;
            }
        } else if !self.silent {
            let weight = apart.len();
            self.push(ReplyState::Encoded(apart.freeze()), weight, 0);
        }
    }

    /// The answers of the next commands are kept apart, each until it is taken.
    pub(crate) fn capture(&mut self) {
        self.captured = Some(Box::default());
    }

    /// The answers of the commands since the last call.
    pub(crate) fn take_captured(&mut self) -> Bytes {
        let captured = self.captured.as_mut().map(|captured| captured.split());
        captured.unwrap_or_default().freeze()
    }

    pub(crate) fn end_capture(&mut self) {
        self.captured = None;
    }

    /// The reply is the outcome of the operation with this token, in this shape. Its command has
    /// values of `bytes`.
    pub(crate) fn wait(&mut self, (shape, token): (Shape, u64), bytes: usize, expected: usize) {
        self.push(ReplyState::Waiting { shape, token }, bytes, expected);
    }

    /// The same for a `SET` that has its operation already.
    #[inline]
    pub(crate) fn wait_for_write(&mut self, context: &RespContext, token: u64) {
        self.deadlines.wait_long(context);
        self.command = table::SET;
        self.wait((Shape::Plain, token), 0, 0);
    }

    /// The reply is not whole yet. Its command has `bytes`, and other nodes are expected to answer
    /// `expected`.
    pub(crate) fn collect(
        &mut self,
        pending: impl PendingReply + 'static,
        bytes: usize,
        expected: usize,
    ) {
        self.sweeping |= pending.is_sweep();
        self.push(ReplyState::Pending(Box::new(pending)), bytes, expected);
    }

    fn push(&mut self, state: ReplyState, bytes: usize, expected: usize) {
        let under_way = if matches!(state, ReplyState::Waiting { .. }) {
            bytes
        } else {
            0
        };
        let slot = ReplySlot {
            after: self.pushes.as_ref().map_or(0, |pushes| pushes.queued()),
            protocol: self.protocol,
            silent: self.silent,
            command: self.command,
            came: self.came,
            weight: self.charges.begin(bytes, under_way, expected),
            state,
        };
        self.slots.push_back(slot);
        self.unpublished_until = self.next();
    }

    /// A read found this value, which is encoded at once. True: it is the first such read of this
    /// pass.
    #[inline]
    pub(crate) fn read(&mut self, found: FoundKey, value: Option<&[u8]>) -> bool {
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
        let is_first = self.provisional.is_empty();
        if is_first {
            self.provisional_from = start;
        }
        let FoundKey {
            about: (keyspace, map),
            key,
            n,
        } = found;
        self.provisional.push(Provisional::Read {
            keyspace,
            map,
            key,
            n,
            value,
            protocol: self.protocol,
        });
        self.first += 1;
        self.command = table::GET;
        is_first
    }

    /// The pass was judged: its reads may leave, or are taken back.
    pub(crate) fn settle(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        well: bool,
    ) {
        if well {
            let mut reads = 0;
            for reply in self.provisional.drain(..) {
                match reply {
                    Provisional::Read { .. } => reads += 1,
                    Provisional::Encoded(command, _) => self.latency.leaves(command, self.came),
                }
            }
            self.latency.reads_leave(self.came, reads);
        } else {
            self.take_back(connection, context);
        }
    }

    /// Takes provisional replies back. Their commands are judged again.
    fn take_back(&mut self, connection: &Rc<Connection>, context: &mut RespContext) {
        self.deadlines.wait_long(context);
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
                    self.wait((Shape::Plain, token), 0, 0);
                    if let Some(slot) = self.slots.back_mut() {
                        slot.protocol = protocol;
                        (slot.silent, slot.command) = (false, table::GET);
                    }
                }
                Provisional::Encoded(command, at) => {
                    let bytes = taken.slice(at.start - from..at.end - from);
                    let weight = bytes.len();
                    self.push(ReplyState::Encoded(bytes), weight, 0);
                    if let Some(slot) = self.slots.back_mut() {
                        (slot.silent, slot.command) = (false, command);
                    }
                }
            }
        }
        self.slots.extend(later);
    }

    /// Takes an outcome for a slot. If it is lost, a `read` can be repeated. `behind`: commands
    /// wait until this one is answered. `judged` is the generation under which this thread may
    /// answer what it looked at before. `None`: the outcome is not waited for.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        (now, judged): (Time, Option<u64>),
        (slot, part, token): (u64, u32, u64),
        outcome: Outcome,
        (read, behind): (bool, bool),
    ) -> Option<TakenArrival> {
        if behind && is_in_vain(&outcome) {
            self.deadlines.hurry(now);
        }
        let at = self.place(slot)?;
        let is_last = at + 1 == self.slots.len();
        let entry = self.slots.get_mut(at)?;
        let missing = entry.waits();
        let weight = &mut entry.weight;
        let kept = match &entry.state {
            ReplyState::Pending(pending) => pending.keeps_outcome(),
            _ => false,
        };
        let may = (read, kept);
        let admitted = self.charges.admit(weight, missing, outcome, may);
        match &mut entry.state {
            ReplyState::Waiting { shape, .. } => {
                self.charges.answer(weight, &admitted);
                let (shape, outcome) = (*shape, admitted.outcome);
                entry.state = ReplyState::Done { shape, outcome };
                Some(TakenArrival {
                    after: SessionEffect::Nothing,
                    steps: false,
                    is_first: at == 0,
                })
            }
            ReplyState::Pending(_) => {
                self.charges.add(weight, &admitted);
                let Admitted {
                    outcome, copied, ..
                } = admitted;
                self.arrive(
                    slot,
                    Arrived::Outcome(ArrivedOutcome {
                        part,
                        token,
                        outcome,
                        copied,
                        now,
                        judged,
                        is_last,
                    }),
                )
            }
            ReplyState::Done { .. } | ReplyState::Encoded(_) => None,
        }
    }

    /// Something has come for a reply that is not whole yet.
    pub(crate) fn arrive(&mut self, slot: u64, arrived: Arrived) -> Option<TakenArrival> {
        let at = self.place(slot)?;
        let entry = self.slots.get_mut(at)?;
        let ReplyState::Pending(pending) = &mut entry.state else {
            return None;
        };
        let copied = match &arrived {
            Arrived::Outcome(came) => came.copied,
            Arrived::Thread(_) | Arrived::Members(_) | Arrived::Script | Arrived::Unblock(_) => 0,
        };
        let before = pending.held();
        let mut after = pending.take(arrived);
        let (mut held, mut steps) = (pending.held(), pending.has_step());
        if let SessionEffect::Is(shape, outcome) = after {
            (after, held, steps) = (SessionEffect::Nothing, copied, false);
            entry.state = ReplyState::Done { shape, outcome };
        }
        if let SessionEffect::PutsBack(operation) = after {
            (after, held, steps) = (SessionEffect::Nothing, 0, true);
            entry.state = ReplyState::Pending(Box::new(PutBackReply::new(operation)));
        }
        self.charges.hold(&mut entry.weight, before, held);
        Some(TakenArrival {
            after,
            steps,
            is_first: at == 0,
        })
    }

    /// Takes the next steps of a reply that is not whole yet, and subtracts from `work`.
    pub(crate) fn step(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        slot: u64,
        work: &mut usize,
    ) -> Stepped {
        let mut asker = self.asker_of(slot, connection, context);
        let at = self.place(slot);
        let Some(entry) = at.and_then(|at| self.slots.get_mut(at)) else {
            return Stepped::Waits;
        };
        let ReplyState::Pending(pending) = &mut entry.state else {
            return Stepped::Waits;
        };
        let before = pending.held();
        let stepped = pending.step(&mut asker, work);
        self.charges.hold(&mut entry.weight, before, pending.held());
        stepped
    }

    /// The command that a reply answers.
    pub(crate) fn command_of(&self, slot: u64) -> u16 {
        let slot = self.place(slot).and_then(|at| self.slots.get(at));
        slot.map_or(counts::UNKNOWN, |slot| slot.command)
    }

    /// A reply that is not whole yet waits for something else from now on, and other nodes are
    /// expected to answer `expected` bytes.
    pub(crate) fn replace(
        &mut self,
        slot: u64,
        pending: impl PendingReply + 'static,
        expected: usize,
    ) {
        if let Some(at) = self.place(slot)
            && let Some(entry) = self.slots.get_mut(at)
        {
            entry.state = ReplyState::Pending(Box::new(pending));
            self.charges.ask(&mut entry.weight, 0, expected);
        }
    }

    /// The command of the last slot asks for more of its keys.
    pub(crate) fn ask_further(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        args: Args<'_>,
    ) {
        let mut asker = self.asker_of(self.next() - 1, connection, context);
        self.partway = false;
        if let Some(entry) = self.slots.back_mut()
            && let ReplyState::Pending(pending) = &mut entry.state
        {
            let charges = (&mut self.charges, &mut entry.weight);
            self.partway = !pending.ask_further(args, &mut asker, charges);
        }
    }

    /// Whether the command that is partway has to wait.
    pub(crate) fn holds_further(&self) -> bool {
        let Some(slot) = self.slots.back() else {
            return false;
        };
        // A client's own answers do not block it while there is room for them, but answers of
        // other nodes do.
        let expected = slot.weight.expected();
        let hold = match &slot.state {
            ReplyState::Pending(pending) => pending.hold(),
            _ => Hold::No,
        };
        expected >= PENDING_BYTES_MAX
            || match hold {
                Hold::No => false,
                Hold::Room => self.charges.room_to_ask(&slot.weight) == BudgetRoom::Later,
                Hold::Answers => expected > 0,
                Hold::Outcomes(left) => slot.waits() > left,
            }
    }

    /// Whether no further command is taken for now. `output_max`: the most unwritten output.
    #[inline]
    pub(crate) fn is_full(&self, output_max: usize) -> bool {
        self.charges.is_short()
            || self.sweeping
            || self.slots.back().is_some_and(|slot| match &slot.state {
                ReplyState::Pending(pending) => pending.blocks(),
                _ => false,
            })
            || self.slots.len() >= PENDING_MAX
            || self.charges.pending() >= PENDING_BYTES_MAX
            || self.out.len() >= output_max
    }

    /// Whether a collection is being read in pages.
    pub(crate) fn is_paged(&self) -> bool {
        self.slots.iter().any(|slot| match &slot.state {
            ReplyState::Pending(pending) => pending.is_paged(),
            _ => false,
        })
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
                ReplyState::Waiting { .. } => break,
                ReplyState::Pending(pending) if !pending.is_whole() => break,
                ReplyState::Pending(pending) => {
                    let whole = pending.encode(&mut encoder);
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
                    self.sweeping &= !pending.is_sweep();
                    if let Some(operation) = pending.taken_out().filter(|_| !slot.silent) {
                        let end = self.left + self.out.len() as u64;
                        self.taken_out.push((end, operation));
                    }
                }
                ReplyState::Done { shape, outcome } => {
                    match shape.reply(std::mem::replace(outcome, Outcome::Nil)) {
                        CommandReply::Bulk(_) if slot.silent => {}
                        CommandReply::Bulk(value) if value.len() >= APART_BYTES_MIN => {
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
                ReplyState::Encoded(_) if slot.silent => {}
                ReplyState::Encoded(bytes) => out.extend_from_slice(bytes),
            }
            silenced |= slot.silent;
            let has_waited = match &slot.state {
                ReplyState::Pending(pending) => pending.has_waited(),
                _ => false,
            };
            if !slot.silent && !has_waited {
                self.latency.leaves(slot.command, slot.came);
            }
            self.charges.release(&mut slot.weight);
            self.slots.pop_front();
            self.first += 1;
        }
        if let Some(pushes) = self.pushes.as_mut().filter(|_| !self.within_reply) {
            pushes.move_to(&mut self.out, PUSH_OUTPUT, u64::MAX);
            pushes.move_again_to(&mut self.out, PUSH_OUTPUT, self.first);
        }
        if self.slots.is_empty() && self.slots.capacity() > SLOTS_KEPT_MAX {
            self.slots = VecDeque::new();
        }
        silenced || !self.out.is_empty()
    }

    /// Moves the pushes to the output that came before the command of the next reply. True if that
    /// reply may follow.
    fn move_pushes_before(&mut self, reply: u64) -> bool {
        let Some(pushes) = &mut self.pushes else {
            return true;
        };
        if !self.within_reply {
            pushes.move_to(&mut self.out, OUTPUT_BYTES_SOFT, reply);
            pushes.move_again_to(&mut self.out, OUTPUT_BYTES_SOFT, self.first);
        }
        pushes.is_in_order() || pushes.moved() >= reply
    }

    /// Queues a message. Returns how much all that wait count.
    pub(crate) fn queue_push(&mut self, push: Rc<Push>) -> usize {
        let pushes = self.pushes.get_or_insert_default();
        pushes.queue(push);
        pushes.bytes()
    }

    /// The number of the next reply, if replies to earlier commands are to leave before it that may
    /// have been read already.
    pub(crate) fn awaited(&self) -> Option<u64> {
        // A client that waits in line reads nothing, and may wait for long.
        let next = self.next() - u64::from(self.waits_in_line().is_some());
        (next > self.first).then_some(next)
    }

    /// Whether all replies below this number have left.
    pub(crate) const fn have_left(&self, below: u64) -> bool {
        self.first >= below
    }

    /// Queues an invalidation. A command that was taken before may have read the former value, so
    /// the invalidation is sent once more behind the replies of all of them. Returns how much all
    /// that wait count. `all`: the invalidation of everything, which replaces many others.
    pub(crate) fn queue_invalidation(
        &mut self,
        push: Rc<Push>,
        all: impl FnOnce() -> Rc<Push>,
    ) -> usize {
        let behind = self.awaited();
        let pushes = self.pushes.get_or_insert_default();
        pushes.queue(push.clone());
        if let Some(behind) = behind {
            if pushes.again() < AGAIN_MAX {
                pushes.queue_again(push, behind);
            } else {
                pushes.forget_again();
                pushes.queue_again(all(), behind);
            }
        }
        pushes.bytes()
    }

    /// Whether no push waits.
    pub(crate) fn has_no_pushes(&self) -> bool {
        self.pushes.as_ref().is_none_or(|pushes| pushes.is_empty())
    }

    /// How much the messages that wait count.
    pub(crate) fn pushes_bytes(&self) -> usize {
        self.pushes.as_ref().map_or(0, |pushes| pushes.bytes())
    }

    /// Drops the messages that wait. Returns how much they counted.
    pub(crate) fn drop_pushes(&mut self) -> usize {
        self.pushes.as_mut().map_or(0, |pushes| pushes.clear())
    }

    /// The client gets no more messages.
    pub(crate) fn forget_pushes(&mut self) {
        self.pushes = None;
    }

    /// Whether a message must wait for replies to earlier commands: it may be about what they
    /// wrote.
    pub(crate) const fn precede_messages(&self) -> bool {
        self.unpublished_until > self.first
    }

    /// Replies to a command that messages need not wait for.
    pub(crate) fn without_order(&mut self, reply: impl FnOnce(&mut Self)) {
        let until = self.unpublished_until;
        reply(self);
        self.unpublished_until = until;
    }

    /// Bytes of answered replies and of output that the client has not taken.
    pub(crate) fn output_waiting(&self) -> usize {
        let done = |slot: &&ReplySlot| {
            matches!(slot.state, ReplyState::Done { .. } | ReplyState::Encoded(_))
        };
        // Answers that follow others wait for these, and are no output of their own yet.
        let answered = self.slots.iter().take_while(done);
        self.unsent + answered.map(|slot| slot.weight.bytes()).sum::<usize>()
    }

    /// Nothing is charged any more.
    pub(crate) fn discharge(&mut self) {
        let weights = self.slots.iter_mut().map(|slot| &mut slot.weight);
        self.charges.give_back(weights);
    }

    /// The reply whose client waits in line, if it does.
    pub(crate) fn waits_in_line(&self) -> Option<u64> {
        let waits = self.slots.back().is_some_and(|slot| match &slot.state {
            ReplyState::Pending(pending) => pending.waits_in_line(),
            _ => false,
        });
        waits.then(|| self.next() - 1)
    }

    /// Whether its client waits in line, and nothing is under way that takes something for it.
    pub(crate) fn takes_nothing(&self) -> bool {
        self.slots.back().is_some_and(|slot| match &slot.state {
            ReplyState::Pending(pending) => pending.takes_nothing(),
            _ => false,
        })
    }

    /// Gives the output to a buffer that is written. Takes that buffer, which is empty, for more.
    pub(crate) fn swap_out(&mut self, written: &mut ClientOutput) {
        self.left += self.out.len() as u64;
        std::mem::swap(&mut self.out, written);
    }

    /// All but this many bytes of the output that has left is written.
    pub(crate) fn wrote_all_but(&mut self, unwritten: usize) {
        if !self.taken_out.is_empty() {
            let written = self.left.saturating_sub(unwritten as u64);
            self.taken_out.retain(|(end, _)| *end > written);
        }
    }

    /// The client is gone. Returns the operations that are under way, which are forgotten, and the
    /// replies that have something left to do: what they take out, or have taken out and not
    /// written, is put back. All but the last `unwritten` bytes of the output that has left were
    /// written.
    pub(crate) fn abandon(&mut self, unwritten: usize) -> (Vec<u64>, Vec<u64>) {
        self.discharge();
        self.wrote_all_but(unwritten);
        let mut tokens = Vec::new();
        let next = self.next();
        let mut kept = None;
        for mut slot in std::mem::take(&mut self.slots) {
            match &mut slot.state {
                ReplyState::Waiting { token, .. } => tokens.push(*token),
                ReplyState::Pending(pending) => {
                    if pending.leave() {
                        let taken_out = pending.taken_out().map(|operation| (u64::MAX, operation));
                        self.taken_out.extend(taken_out);
                        kept = Some(slot);
                    } else {
                        tokens.extend(pending.asked().tokens());
                    }
                }
                ReplyState::Done { .. } | ReplyState::Encoded(_) => {}
            }
        }
        // Such a reply is the last one, because it takes no further command.
        self.first = next - u64::from(kept.is_some());
        self.slots.extend(kept);
        // The last one first: each goes to the end that it came from.
        for (_, operation) in std::mem::take(&mut self.taken_out).into_iter().rev() {
            self.collect(PutBackReply::new(operation), 0, 0);
        }
        (tokens, (self.first..self.next()).collect())
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        self.discharge();
    }
}

#[cfg(test)]
impl Replies {
    /// The outcome that a reply is made of, if it is here.
    pub(crate) fn done(&self, slot: u64) -> Option<Outcome> {
        match &self.slots.get(self.place(slot)?)?.state {
            ReplyState::Done { outcome, .. } => Some(outcome.clone()),
            _ => None,
        }
    }
}
