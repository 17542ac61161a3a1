//! Pops that wait while their keys are empty (`BLPOP` and the like), and what is put back. Pops
//! that do not wait (`ZMPOP`) try keys of several partitions in the same way. Reads of streams wait
//! so for entries (`XREAD BLOCK`); before they wait, they answer what all of their keys have. If a
//! pop moves its element to a key of another partition (`BLMOVE`), it takes in several steps
//! (`super::elements`).
//!
//! ```text
//!   each key is tried ── all are empty ──> a ticket at each key ── granted ──> taken from that key
//!                                                ▲                                │
//!                                                └── another client was faster ───┘
//! ```
//! An operation that takes is never given up, because it may have happened: if its client is gone
//! by then, the element is put back. So is one whose reply was not written when the connection
//! ended.

use super::elements::ElementSteps;
use super::{
    Arrived, ArrivedOutcome, Outstanding, PendingReply, ReplyAsker, SessionEffect, Stepped,
};
use crate::resp::RespContext;
use crate::resp::encode::Encoder;
use crate::resp::session::client::Unblocking;
use crate::resp::session::connection::Connection;
use crate::resp::session::replies::Replies;
use bytes::Bytes;
use doyen_engine::Patience;
use doyen_engine::command::{BlockingPop, CommandReply, ErrorText};
use doyen_engine::op::{Failure, Operation, Outcome};
use doyen_gossip::Time;
use doyen_placement::{KeyspaceId, MapId};
use std::cell::Cell;
use std::rc::Rc;

/// The part of a reply whose outcome was taken. The other ones are tickets, by their keys.
const TAKEN: u32 = u32::MAX;
/// Keys of one pop that waits. It has a ticket at each.
const POP_KEYS_MAX: usize = 1024;
/// Further streams are not read if those before have more bytes.
const FOUND_BYTES_MAX: usize = 16 << 20;
/// How often what was taken is put back while its partition is not served: each time takes some
/// seconds.
const ATTEMPTS_MAX: u32 = 24;

/// Redis's text for a client that another one has woken.
const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

/// The reply of a pop that waits.
#[derive(Debug)]
pub(crate) struct PopReply {
    about: (KeyspaceId, MapId),
    pop: BlockingPop,
    began: Time,
    /// Whether it waits while all keys are empty.
    waits: bool,
    until: Option<Time>,
    asked: Outstanding,
    step: PopStep,
    /// The operations that it takes by, if they are several.
    moving: Option<ElementSteps>,
    /// What was read of the first streams.
    found: Option<Outcome>,
    /// The step is to be asked for.
    due: bool,
    tickets: Vec<PopTicket>,
    /// Tickets that are to be withdrawn.
    withdrawn: Vec<u64>,
    /// It waits no more, once what it has asked for is answered.
    ends: Option<Unblocking>,
    /// Its client is gone.
    is_left: bool,
    /// It is not known whether an element was taken, which is to be counted.
    is_unknown: bool,
    has_waited: bool,
    waiting: Option<CountedWaiter>,
}

#[derive(Debug)]
enum PopStep {
    /// Reads all keys together, before it waits.
    TryAll,
    /// Takes from the key at this place, before it waits.
    Try(usize),
    /// Waits in line.
    Wait,
    /// Takes from the key at this place, which it was granted.
    Take(usize),
    /// This is its reply.
    Over(PopEnd),
}

#[derive(Debug)]
enum PopEnd {
    Taken(Outcome),
    Nothing(Unblocking),
    /// It may have taken, or has done so in part.
    InPart(ErrorText),
}

/// Where it is in the line of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PopTicket {
    /// In none.
    No,
    /// It waits, with this token.
    Waits(u64),
    /// It may take.
    Granted(u64),
}

/// Counts a client that waits in line.
#[derive(Debug)]
struct CountedWaiter(Rc<Cell<u64>>);

impl CountedWaiter {
    fn new(count: &Rc<Cell<u64>>) -> Self {
        count.set(count.get() + 1);
        Self(count.clone())
    }
}

impl Drop for CountedWaiter {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

impl PopReply {
    fn new(about: (KeyspaceId, MapId), (pop, waits): (BlockingPop, bool), now: Time) -> Self {
        // Slices of the client's input would hold all of the input around them.
        let pop = pop.detached();
        Self {
            about,
            began: now,
            waits,
            until: pop.timeout.map(|lasts| now + lasts),
            asked: Outstanding::default(),
            step: match pop.tries_all() {
                true => PopStep::TryAll,
                false => PopStep::Try(0),
            },
            moving: None,
            found: None,
            due: true,
            tickets: vec![PopTicket::No; pop.keys.len()],
            withdrawn: Vec::new(),
            ends: None,
            is_left: false,
            is_unknown: false,
            has_waited: false,
            waiting: None,
            pop,
        }
    }

    /// The reply of a command begins, which waits while all keys are empty or does not.
    pub(crate) fn begin(
        replies: &mut Replies,
        (connection, context): (&Rc<Connection>, &mut RespContext),
        about: (KeyspaceId, MapId),
        (pop, waits): (BlockingPop, bool),
    ) {
        if waits && pop.keys.len() > POP_KEYS_MAX {
            let text = format!("ERR too many keys to wait for: at most {POP_KEYS_MAX}");
            return replies.answer(|e| e.error(&text));
        }
        let bytes = pop.keys.iter().map(Bytes::len).sum::<usize>();
        let mut reply = Self::new(about, (pop, waits), context.now());
        let mut asker = replies.asker(connection, context);
        reply.step(&mut asker, &mut 0);
        replies.collect(reply, bytes, 0);
    }

    /// What was taken, as the operation that puts it back.
    fn returning(&self, taken: &Outcome) -> Option<Operation> {
        let (keyspace, map) = self.about;
        let (key, action) = self.pop.put_back(taken)?;
        Some(Operation {
            keyspace,
            map,
            key,
            action,
        })
    }

    /// It is answered with this. All tickets are withdrawn.
    fn end(&mut self, end: PopEnd) -> SessionEffect {
        let end = match (end, self.found.take()) {
            (PopEnd::Nothing(_), Some(found)) => PopEnd::Taken(found),
            (end, _) => end,
        };
        for at in 0..self.tickets.len() {
            self.withdraw(at);
        }
        self.due = false;
        self.waiting = None;
        let returning = match &end {
            PopEnd::Taken(taken) if self.is_left => self.returning(taken),
            _ => None,
        };
        self.is_unknown = matches!(
            end,
            PopEnd::Taken(Outcome::Failed(Failure::Unknown)) | PopEnd::InPart(_)
        );
        self.step = PopStep::Over(end);
        returning.map_or(SessionEffect::Nothing, SessionEffect::PutsBack)
    }

    fn withdraw(&mut self, at: usize) {
        match std::mem::replace(&mut self.tickets[at], PopTicket::No) {
            PopTicket::No => {}
            PopTicket::Waits(token) => {
                self.asked.take(token);
                self.withdrawn.push(token);
            }
            PopTicket::Granted(token) => self.withdrawn.push(token),
        }
    }

    /// The outcome of an operation that takes, or of one of several.
    fn took(&mut self, outcome: Outcome, now: Time) -> SessionEffect {
        let apart = outcome == Outcome::Failed(Failure::CrossPartition);
        let done = if let Some(steps) = &mut self.moving {
            steps.take(outcome, now)
        } else if apart && let Some(moves) = self.pop.moves() {
            self.moving = Some(ElementSteps::new(moves, now));
            None
        } else {
            Some(Ok(outcome))
        };
        let Some(done) = done else {
            if self.is_left && !self.is_moving() {
                return self.end(PopEnd::Nothing(Unblocking::Timeout));
            }
            self.due = true;
            return SessionEffect::Nothing;
        };
        self.moving = None;
        match done {
            Ok(outcome) => self.taken(outcome, now),
            Err(why) => self.end(PopEnd::InPart(why)),
        }
    }

    /// Whether its element is where it is moved to, so that it goes on.
    fn is_moving(&self) -> bool {
        self.moving.as_ref().is_some_and(ElementSteps::has_put)
    }

    /// What is answered once this was read of a key. `Nil`: there are further keys.
    fn gather(&mut self, outcome: Outcome) -> Outcome {
        let PopStep::Try(at) = self.step else {
            return outcome;
        };
        let is_last = at + 1 >= self.pop.keys.len();
        let found = match (self.found.take(), outcome) {
            (None, first) if self.pop.is_part(&first) => first,
            (None, outcome) => return outcome,
            (Some(found), Outcome::Nil | Outcome::Many(_)) => found,
            (Some(found), next) => match self.pop.joined(&found, &next) {
                Some(both) => both,
                // It failed. What was read before may have changed a group, so it is answered.
                None => return found,
            },
        };
        if is_last || found.bytes() > FOUND_BYTES_MAX {
            return found;
        }
        self.found = Some(found);
        Outcome::Nil
    }

    /// The outcome of a take.
    fn taken(&mut self, outcome: Outcome, now: Time) -> SessionEffect {
        let outcome = self.gather(outcome);
        let from = match self.step {
            PopStep::Try(at) | PopStep::Take(at) => at,
            PopStep::TryAll | PopStep::Wait | PopStep::Over(_) => 0,
        };
        let apart = matches!(outcome, Outcome::Failed(Failure::CrossPartition));
        let nothing = match &outcome {
            outcome if self.pop.finds_nothing(from, outcome) => true,
            Outcome::Failed(Failure::CrossPartition) => matches!(self.step, PopStep::TryAll),
            // What it waits for would be granted to it for ever.
            Outcome::Failed(Failure::WrongType) if self.pop.ends_at_wrong_kind() => false,
            // It did not happen, and the client is to wait anyway.
            Outcome::Failed(
                Failure::WrongType | Failure::Unavailable | Failure::Overtaken | Failure::Stale,
            ) => matches!(self.step, PopStep::Take(_)),
            _ => false,
        };
        if !nothing {
            return self.end(PopEnd::Taken(outcome));
        }
        let is_late = self.until.is_some_and(|until| until <= now);
        let is_last = match self.step {
            PopStep::Try(at) => at + 1 >= self.pop.keys.len(),
            PopStep::TryAll => !apart,
            PopStep::Wait | PopStep::Take(_) | PopStep::Over(_) => true,
        };
        let is_over = is_last && (is_late || !self.waits);
        let ends = self.ends.or(is_over.then_some(Unblocking::Timeout));
        if let Some(ends) = ends.or(self.is_left.then_some(Unblocking::Timeout)) {
            return self.end(PopEnd::Nothing(ends));
        }
        match self.step {
            PopStep::TryAll if apart => self.step = PopStep::Try(0),
            PopStep::Try(at) if at + 1 < self.pop.keys.len() => self.step = PopStep::Try(at + 1),
            PopStep::Take(at) => {
                self.withdraw(at);
                self.step = PopStep::Wait;
            }
            _ => self.step = PopStep::Wait,
        }
        self.due = true;
        self.take_granted();
        SessionEffect::Nothing
    }

    /// If it may take from a key, it does. The order of its keys decides.
    fn take_granted(&mut self) {
        let is_granted = |ticket: &PopTicket| matches!(ticket, PopTicket::Granted(_));
        if matches!(self.step, PopStep::Wait)
            && let Some(at) = self.tickets.iter().position(is_granted)
        {
            (self.step, self.due) = (PopStep::Take(at), true);
        }
    }

    /// What came for the ticket of a key.
    fn told(&mut self, at: usize, token: u64, outcome: Outcome) -> SessionEffect {
        let Some(ticket) = self.tickets.get_mut(at) else {
            return SessionEffect::Nothing;
        };
        let waits = matches!(self.step, PopStep::Wait);
        match outcome {
            Outcome::Many(_) => {
                *ticket = PopTicket::Granted(token);
                self.take_granted();
            }
            Outcome::Nil => {
                *ticket = PopTicket::No;
                self.ends = Some(Unblocking::Timeout);
                if waits {
                    return self.end(PopEnd::Nothing(Unblocking::Timeout));
                }
            }
            failed => {
                *ticket = PopTicket::No;
                // If it takes from another key, that may be answered well.
                if waits {
                    return self.end(PopEnd::Taken(failed));
                }
            }
        }
        SessionEffect::Nothing
    }

    /// It waits no more: another client says so, or the time is over.
    fn unblock(&mut self, ends: Unblocking) -> SessionEffect {
        self.ends = Some(ends);
        if matches!(self.step, PopStep::Wait) {
            return self.end(PopEnd::Nothing(ends));
        }
        SessionEffect::Nothing
    }

    fn ask(&mut self, asker: &mut ReplyAsker<'_>) {
        let (keyspace, map) = self.about;
        let operation = |key, action| Operation {
            keyspace,
            map,
            key,
            action,
        };
        match self.step {
            PopStep::Over(_) => {}
            PopStep::TryAll => {
                let (key, action) = self.pop.try_all();
                self.asked.ask(asker, TAKEN, operation(key, action));
            }
            PopStep::Try(at) | PopStep::Take(at) => {
                let steps = self.moving.as_ref().map(ElementSteps::next);
                let (key, action) = steps.unwrap_or_else(|| self.pop.take_at(at));
                self.asked.ask(asker, TAKEN, operation(key, action));
            }
            PopStep::Wait => {
                self.has_waited = true;
                if self.waiting.is_none() {
                    self.waiting = Some(CountedWaiter::new(asker.context.front.steps.waiting()));
                    // Perhaps nothing is owed to it any more.
                    asker.connection.wake();
                }
                let (age, until) = (asker.context.now().since(self.began), self.until);
                let patience =
                    std::mem::replace(&mut asker.patience, Patience::InLine { age, until });
                for at in 0..self.tickets.len() {
                    if self.tickets[at] == PopTicket::No {
                        let operation = operation(self.pop.keys[at].clone(), self.pop.wait_at(at));
                        // A command has fewer keys than that.
                        let part = u32::try_from(at).unwrap_or(TAKEN - 1);
                        let (token, _) = asker.submit(part, operation);
                        self.asked.waits_for(token);
                        self.tickets[at] = PopTicket::Waits(token);
                    }
                }
                asker.patience = patience;
            }
        }
    }
}

impl PendingReply for PopReply {
    fn asked(&self) -> &Outstanding {
        &self.asked
    }

    fn take(&mut self, arrived: Arrived) -> SessionEffect {
        match arrived {
            Arrived::Outcome(came) => {
                let ArrivedOutcome {
                    part,
                    token,
                    outcome,
                    now,
                    ..
                } = came;
                if !self.asked.take(token) {
                    SessionEffect::Nothing
                } else if part == TAKEN {
                    self.took(outcome, now)
                } else {
                    self.told(part as usize, token, outcome)
                }
            }
            Arrived::Unblock(ends) => self.unblock(ends),
            Arrived::Thread(_) | Arrived::Members(_) | Arrived::Script => SessionEffect::Nothing,
        }
    }

    fn has_step(&self) -> bool {
        self.due || self.is_unknown || !self.withdrawn.is_empty()
    }

    fn step(&mut self, asker: &mut ReplyAsker<'_>, work: &mut usize) -> Stepped {
        *work = work.saturating_sub(1 + self.withdrawn.len());
        for token in std::mem::take(&mut self.withdrawn) {
            asker.context.forget(token);
        }
        let unknown = std::mem::take(&mut self.is_unknown);
        asker.context.front.counters.pops_unknown += u64::from(unknown);
        if std::mem::take(&mut self.due) {
            self.ask(asker);
        }
        Stepped::Waits
    }

    fn encode(&mut self, encoder: &mut Encoder<'_>) -> bool {
        match &self.step {
            PopStep::Over(PopEnd::Taken(taken)) => {
                encoder.reply(&self.pop.shape.reply(taken.clone()));
            }
            PopStep::Over(PopEnd::InPart(why)) => encoder.error(&why.0),
            PopStep::Over(PopEnd::Nothing(Unblocking::Error)) => encoder.error(UNBLOCKED),
            _ if !self.waits => encoder.reply(&self.pop.shape.reply(Outcome::Nil)),
            _ => encoder.reply(&CommandReply::NilArray),
        }
        true
    }

    fn held(&self) -> usize {
        match &self.step {
            PopStep::Over(PopEnd::Taken(taken)) => taken.bytes(),
            _ => {
                let found = self.found.as_ref().map_or(0, Outcome::bytes);
                found + self.moving.as_ref().map_or(0, ElementSteps::held)
            }
        }
    }

    fn blocks(&self) -> bool {
        true
    }

    fn waits_in_line(&self) -> bool {
        self.waiting.is_some()
    }

    fn has_waited(&self) -> bool {
        self.has_waited
    }

    fn takes_nothing(&self) -> bool {
        matches!(self.step, PopStep::Wait)
    }

    fn keeps_outcome(&self) -> bool {
        true
    }

    fn taken_out(&self) -> Option<Operation> {
        match &self.step {
            PopStep::Over(PopEnd::Taken(taken)) => self.returning(taken),
            _ => None,
        }
    }

    fn leave(&mut self) -> bool {
        self.is_left = true;
        match self.step {
            PopStep::Wait => _ = self.end(PopEnd::Nothing(Unblocking::Timeout)),
            PopStep::TryAll | PopStep::Try(_) | PopStep::Take(_)
                if self.due && !self.is_moving() =>
            {
                _ = self.end(PopEnd::Nothing(Unblocking::Timeout));
            }
            PopStep::TryAll | PopStep::Try(_) | PopStep::Take(_) => {
                (0..self.tickets.len()).for_each(|at| self.withdraw(at));
            }
            PopStep::Over(_) => {}
        }
        true
    }
}

/// What is put back: its client is gone.
#[derive(Debug)]
pub(crate) struct PutBackReply {
    operation: Operation,
    asked: Outstanding,
    outcome: Option<Outcome>,
    attempts: u32,
}

impl PutBackReply {
    pub(crate) fn new(operation: Operation) -> Self {
        Self {
            operation,
            asked: Outstanding::default(),
            outcome: None,
            attempts: 0,
        }
    }
}

impl PendingReply for PutBackReply {
    fn asked(&self) -> &Outstanding {
        &self.asked
    }

    fn take(&mut self, arrived: Arrived) -> SessionEffect {
        if let Arrived::Outcome(came) = arrived
            && self.asked.take(came.token)
        {
            self.outcome = Some(came.outcome);
        }
        SessionEffect::Nothing
    }

    fn has_step(&self) -> bool {
        self.outcome.is_some() || self.attempts == 0
    }

    fn step(&mut self, asker: &mut ReplyAsker<'_>, work: &mut usize) -> Stepped {
        *work = work.saturating_sub(1);
        let is_over = self.attempts >= ATTEMPTS_MAX;
        match self.outcome.take() {
            None | Some(Outcome::Failed(Failure::Unavailable)) if !is_over => {
                self.attempts += 1;
                asker.patience = Patience::Whole;
                self.asked.ask(asker, TAKEN, self.operation.clone());
            }
            // It is lost, or is not: that cannot be known, or there is no room for it.
            None | Some(Outcome::Failed(_)) => asker.context.front.counters.pops_unknown += 1,
            Some(_) => asker.context.front.counters.pops_returned += 1,
        }
        Stepped::Waits
    }

    fn encode(&mut self, _encoder: &mut Encoder<'_>) -> bool {
        true
    }

    fn leave(&mut self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doyen_engine::command::{Arguments, COMMANDS, ParsedRequest};

    /// The reply of a pop that takes from its first key, and the token of that.
    fn taking() -> (PopReply, u64) {
        let pop = BlockingPop::of_least(vec!["a".into(), "b".into()], None);
        let mut reply = PopReply::new((KeyspaceId(0), MapId(0)), (pop, true), Time(1));
        reply.due = false;
        reply.asked.waits_for(7);
        (reply, 7)
    }

    fn arrived(token: u64, outcome: Outcome) -> Arrived {
        Arrived::Outcome(ArrivedOutcome {
            part: TAKEN,
            token,
            outcome,
            copied: 0,
            now: Time(2),
            judged: None,
            is_last: true,
        })
    }

    fn element() -> Outcome {
        let bulk = |bytes: &[u8]| Outcome::Bulk(bytes.into());
        Outcome::Many(vec![
            bulk(b"a"),
            Outcome::Many(vec![bulk(b"v"), bulk(b"1")]),
        ])
    }

    #[test]
    fn what_is_taken_for_a_client_that_is_gone_is_put_back() {
        let (mut reply, token) = taking();
        assert!(
            reply.leave() && reply.asked.waits() == 1,
            "it is not given up"
        );
        let SessionEffect::PutsBack(operation) = reply.take(arrived(token, element())) else {
            panic!("it is lost")
        };
        assert_eq!(operation.key, "a");
        // Nothing was taken, so it does not wait for more.
        let (mut reply, token) = taking();
        reply.leave();
        let after = reply.take(arrived(token, Outcome::Nil));
        assert!(matches!(after, SessionEffect::Nothing) && reply.is_whole());
        // Its client left before the reply was encoded.
        let (mut reply, token) = taking();
        reply.take(arrived(token, element()));
        assert!(reply.leave() && reply.taken_out().is_some());
    }

    #[test]
    fn a_client_that_is_woken_while_it_takes_gets_what_was_taken() {
        let (mut reply, token) = taking();
        reply.take(Arrived::Unblock(Unblocking::Error));
        reply.take(arrived(token, element()));
        assert!(matches!(
            reply.step,
            PopStep::Over(PopEnd::Taken(Outcome::Many(_)))
        ));
        let (mut reply, token) = taking();
        reply.take(Arrived::Unblock(Unblocking::Error));
        reply.take(arrived(token, Outcome::Nil));
        assert!(matches!(
            reply.step,
            PopStep::Over(PopEnd::Nothing(Unblocking::Error))
        ));
    }

    #[test]
    fn a_move_that_has_begun_ends_although_its_client_is_gone() {
        let begun = || {
            let words: &[Bytes] = &["blmove", "a", "b", "left", "left", "0"].map(Bytes::from);
            let args: &dyn Arguments = &words;
            let parsed = COMMANDS.find(args).unwrap().request(args, 0);
            let Ok(ParsedRequest::Pop(pop)) = parsed else {
                panic!("it waits")
            };
            let (mut reply, token) = taking();
            reply.pop = *pop;
            (reply, token)
        };
        let answer = |reply: &mut PopReply, token, outcome| {
            reply.take(arrived(token, outcome));
            let is_due = std::mem::take(&mut reply.due);
            if is_due {
                reply.asked.waits_for(token + 1);
            }
            is_due
        };
        let element = || Outcome::Bulk((&b"x"[..]).into());
        let apart = || Outcome::Failed(Failure::CrossPartition);
        let (mut reply, token) = begun();
        for (n, outcome) in [apart(), element(), Outcome::Int(1)]
            .into_iter()
            .enumerate()
        {
            assert!(answer(&mut reply, token + n as u64, outcome), "{n}");
        }
        // The element is in both lists.
        assert!(reply.leave() && !reply.is_whole());
        assert!(!answer(&mut reply, token + 3, Outcome::Int(1)));
        assert!(reply.is_whole() && reply.taken_out().is_none());
        // It has looked alone, so it ends.
        let (mut reply, token) = begun();
        assert!(answer(&mut reply, token, apart()));
        reply.leave();
        assert!(!answer(&mut reply, token + 1, element()));
        assert!(reply.is_whole());
    }

    #[test]
    fn a_take_whose_outcome_is_lost_is_counted_once() {
        let (mut reply, token) = taking();
        reply.take(arrived(token, Outcome::Failed(Failure::Unknown)));
        assert!(reply.is_unknown && reply.has_step());
    }

    #[test]
    fn the_first_of_the_keys_that_are_granted_is_taken_from() {
        let (mut reply, token) = taking();
        reply.step = PopStep::Try(1);
        assert!(reply.pop.keys.len() == 2 && reply.tickets == [PopTicket::No; 2]);
        reply.take(arrived(token, Outcome::Nil));
        assert!(matches!(reply.step, PopStep::Wait) && reply.due);
        (reply.tickets, reply.due) = (vec![PopTicket::Waits(8), PopTicket::Waits(9)], false);
        let granted = || Outcome::Many(vec![Outcome::Int(1), Outcome::Int(1)]);
        reply.told(1, 9, granted());
        assert!(matches!(reply.step, PopStep::Take(1)) && reply.due);
        // The other key is granted while it takes in vain.
        reply.told(0, 8, granted());
        reply.taken(Outcome::Nil, Time(3));
        assert!(matches!(reply.step, PopStep::Take(0)));
        assert_eq!(reply.withdrawn, [9]);
        reply.taken(element(), Time(4));
        assert_eq!(reply.withdrawn, [9, 8]);
    }
}
