//! Replies that are not whole yet: they wait for outcomes of operations, for other data threads, or
//! for other members. All of them are collected in one way:
//!
//! ```text
//!   the command ─> Outstanding ─> an outcome, another thread's part, .. ─> take ─> encode
//!                       ▲                                                   │
//!                       └────────────────────── step <──────────────────────┘ while there is one
//! ```

use super::charges::{Charges, ReplyWeight};
use super::client::Unblocking;
use super::commands::transactions::{Prepared, WatchedKeys};
use super::connection::{Connection, ReplyWaiter};
use crate::resp::RespContext;
use crate::resp::common::ToldThreads;
use crate::resp::encode::Encoder;
use crate::resp::frame::Args;
use doyen_engine::command::Shape;
use doyen_engine::op::{Failure, Operation, Outcome, Work};
use doyen_engine::{CountedReceivers, Patience};
use doyen_gossip::Time;
use parts::ClientBefore;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::rc::Rc;

pub(super) mod elements;
pub(super) mod gather;
pub(super) mod keys;
pub(super) mod moves;
pub(super) mod pages;
pub(super) mod parts;
pub(super) mod pops;
pub(super) mod receivers;
pub(super) mod steps;
pub(super) mod sweep;
pub(super) mod threads;
pub(super) mod transfer;

/// A reply that is not whole yet.
pub(crate) trait PendingReply: Debug {
    /// The operations and questions that it waits for.
    fn asked(&self) -> &Outstanding;

    /// Takes what has come of one of them.
    fn take(&mut self, arrived: Arrived) -> SessionEffect;

    /// Whether `step` has something to do.
    fn has_step(&self) -> bool {
        false
    }

    /// Takes the next steps, and subtracts from `work`.
    fn step(&mut self, _asker: &mut ReplyAsker<'_>, _work: &mut usize) -> Stepped {
        Stepped::Waits
    }

    /// Whether everything is there.
    fn is_whole(&self) -> bool {
        self.asked().waits() == 0 && !self.has_step()
    }

    /// Appends the whole reply, or its next part. True if that was all.
    fn encode(&mut self, encoder: &mut Encoder<'_>) -> bool;

    /// Bytes that only this reply holds.
    fn held(&self) -> usize {
        0
    }

    /// Whether no later command is taken before this one is answered.
    fn blocks(&self) -> bool {
        false
    }

    /// Whether it asks all partitions. Such commands run one after the other.
    fn is_sweep(&self) -> bool {
        false
    }

    /// Whether its client waits in line, until another one gives it something.
    fn waits_in_line(&self) -> bool {
        false
    }

    /// Whether its client has waited in line: that it took long says nothing of this node.
    fn has_waited(&self) -> bool {
        false
    }

    /// Whether what it waits for may be given up at once: nothing is under way that takes.
    fn takes_nothing(&self) -> bool {
        false
    }

    /// Whether its outcomes may not be dropped for want of memory: they are in no store any more.
    fn keeps_outcome(&self) -> bool {
        false
    }

    /// The operation that puts back what the client is answered, if that is in no store any more.
    fn taken_out(&self) -> Option<Operation> {
        None
    }

    /// The client is gone. True: the reply has something left to do. False: what it has asked for
    /// is forgotten.
    fn leave(&mut self) -> bool {
        false
    }

    /// Whether it reads a collection in pages.
    fn is_paged(&self) -> bool {
        false
    }

    /// Asks for what the next arguments name, as much as other clients can wait for. True if that
    /// was all.
    fn ask_further(
        &mut self,
        _args: Args<'_>,
        _asker: &mut ReplyAsker<'_>,
        _charges: (&mut Charges, &mut ReplyWeight),
    ) -> bool {
        true
    }

    /// What `ask_further` waits for.
    fn hold(&self) -> Hold {
        Hold::No
    }
}

/// Encodes why a reply about several keys failed: one that `collects` what it finds may be too
/// large, and if it `has_written` some keys, `TRYAGAIN` and the like would be wrong.
fn encode_failure(encoder: &mut Encoder<'_>, why: Failure, collects: bool, has_written: bool) {
    let text = Shape::Plain.failure(why);
    if collects && why == Failure::TooLarge {
        encoder.error("ERR the reply would be too large");
    } else if has_written && why != Failure::Unknown {
        encoder.error(&format!(
            "UNKNOWN some keys were written and others were not: {text}"
        ));
    } else {
        encoder.error(text);
    }
}

/// Something that a reply waited for.
pub(crate) enum Arrived {
    Outcome(ArrivedOutcome),
    /// Another data thread's part.
    Thread(ToldThreads),
    /// What the other members know of subscribers.
    Members(CountedReceivers),
    /// The other members have answered for a script.
    Script,
    /// Another client says that this one waits no more.
    Unblock(Unblocking),
}

/// The outcome of one operation.
pub(crate) struct ArrivedOutcome {
    /// Which part of the reply asked for it.
    pub(crate) part: u32,
    pub(crate) token: u64,
    pub(crate) outcome: Outcome,
    /// Bytes that only this reply holds.
    pub(crate) copied: usize,
    pub(crate) now: Time,
    /// The generation under which this thread may answer what it looked at before.
    pub(crate) judged: Option<u64>,
    /// No later command was taken, so the present one may begin again.
    pub(crate) is_last: bool,
}

/// What the session does once a reply has taken something.
pub(crate) enum SessionEffect {
    Nothing,
    /// The reply is this outcome, in this shape.
    Is(Shape, Outcome),
    /// A `WATCH` was executed.
    Watches(WatchedKeys),
    /// A watched key has changed, so the commands of the transaction changed nothing.
    Restores(ClientBefore),
    /// The client is gone, and this puts back what the reply has taken for it.
    PutsBack(Operation),
}

/// What came of a step.
pub(crate) enum Stepped {
    /// Until something comes, there is nothing to do.
    Waits,
    /// There is more to do than the work allowed.
    Again,
    /// The texts of this transaction's scripts are here, so the session executes it.
    Executes(Box<Prepared>, Vec<Outcome>),
}

/// What the next part of a command with many keys waits for while all connections together hold too
/// much.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hold {
    No,
    /// A turn to ask, and room for the expected answer.
    Room,
    /// The answers to what was asked: they may weigh less than expected, and there is too little
    /// room otherwise.
    Answers,
    /// Outcomes of what was asked, until at most this many are missing.
    Outcomes(usize),
}

/// The reply that asks, and how long it waits.
pub(crate) struct ReplyAsker<'a> {
    pub(crate) connection: &'a Rc<Connection>,
    pub(crate) context: &'a mut RespContext,
    pub(crate) slot: u64,
    pub(crate) patience: Patience,
}

impl ReplyAsker<'_> {
    /// Submits an operation for a part of the reply. Returns its token, and whether the outcome
    /// comes from elsewhere.
    pub(crate) fn submit(&mut self, part: u32, work: impl Into<Work>) -> (u64, bool) {
        let (connection, slot) = (self.connection.clone(), self.slot);
        let (own, first) = (connection.no_loop.get(), self.context.next_number());
        let submitted = self
            .context
            .submit(work, self.patience, |read| ReplyWaiter {
                connection,
                slot,
                part,
                read,
            });
        if let Some(client) = own {
            self.context.note_own(client, first);
        }
        submitted
    }
}

/// What a reply has asked and not heard of yet.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    /// The token of the first operation. Most replies wait for one at a time.
    one: Option<u64>,
    others: BTreeSet<u64>,
    /// Questions to other data threads or members.
    questions: usize,
}

impl Outstanding {
    /// Submits an operation for a part of the reply. Returns whether the outcome comes from
    /// elsewhere.
    pub(crate) fn ask(
        &mut self,
        asker: &mut ReplyAsker<'_>,
        part: u32,
        work: impl Into<Work>,
    ) -> bool {
        let (token, elsewhere) = asker.submit(part, work);
        self.waits_for(token);
        elsewhere
    }

    pub(crate) fn waits_for(&mut self, token: u64) {
        if self.one.is_none() {
            self.one = Some(token);
        } else {
            self.others.insert(token);
        }
    }

    /// Others are asked this many questions.
    pub(crate) const fn question(&mut self, count: usize) {
        self.questions += count;
    }

    /// One of the questions is answered.
    pub(crate) const fn answered(&mut self) {
        self.questions = self.questions.saturating_sub(1);
    }

    /// Takes the outcome of the operation with this token. False: it is not waited for.
    pub(crate) fn take(&mut self, token: u64) -> bool {
        self.one.take_if(|one| *one == token).is_some() || self.others.remove(&token)
    }

    /// How many outcomes and answers are missing.
    pub(crate) fn waits(&self) -> usize {
        usize::from(self.one.is_some()) + self.others.len() + self.questions
    }

    /// The operations that are under way.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = u64> {
        self.one.iter().chain(&self.others).copied()
    }
}
