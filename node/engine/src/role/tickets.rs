//! What callers of this data thread wait for, wherever the room is in which they wait.
//!
//! ```text
//!   caller ── wait ──> ticket ── asked ──> the primary's room (`crate::log::waiting`)
//!                        ^                        │
//!                        │ the tenure ends, or    │ it goes on
//!                        │ the connection         v
//!                        └──── asked again     answered; or its caller leaves, or its time is over
//! ```
//! A ticket is asked once and then costs nothing. It is asked again, with its age, when another
//! table names another primary, when the connection was lost, and when the primary sent it back.

use super::host::Host;
use super::partition::Slot;
use super::slots::Slots;
use super::timers::Duty;
use crate::command::operation::{Operation, Work};
use crate::log::waiting::{Filled, Ticket, TicketName};
use crate::mutant::{self, broken};
use crate::role::calls::Executed;
use crate::value::outcome::{Failure, Outcome};
use crate::wire::api::CallToken;
use crate::wire::frame::{Frame, ReplyTo};
use doyen_gossip::Time;
use doyen_placement::{MemberId, PartitionRef};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The first and the longest pause before tickets that were sent back are asked again.
const RETRY: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(200));

/// What was executed, with the time of this thread after which it was.
fn stamped(stamp: u64, outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Failed(_) => outcome,
        outcome => {
            let stamp = i64::try_from(stamp).unwrap_or(i64::MAX);
            Outcome::Many(vec![Outcome::Int(stamp), outcome])
        }
    }
}

/// What a caller of this thread waits for.
#[derive(Debug)]
struct OwnTicket {
    token: CallToken,
    operation: Operation,
    since: Time,
    until: Option<Time>,
    /// Where it waits. `None`: it is to be asked.
    asked: Option<(PartitionRef, MemberId)>,
    /// It was asked before, so it may still be in a room once it is answered.
    again: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    /// By their numbers, which are numbers of operations of this thread.
    own: BTreeMap<u64, OwnTicket>,
    numbers: BTreeMap<CallToken, u64>,
    /// Callers that have a grant, until they withdraw the ticket: its number, and where it is.
    granted: BTreeMap<CallToken, (u64, (PartitionRef, MemberId))>,
    ends: BTreeSet<(Time, u64)>,
    unasked: BTreeSet<u64>,
    /// When tickets that were sent back are asked again.
    again: Option<Time>,
    /// How often in a row tickets were sent back.
    refusals: u32,
}

impl Tickets {
    fn add(&mut self, n: u64, own: OwnTicket) {
        self.numbers.insert(own.token, n);
        self.ends.extend(own.until.map(|until| (until, n)));
        self.unasked.insert(n);
        self.own.insert(n, own);
    }

    /// The callers of this process ask again that waited while it was another member, in their
    /// order.
    pub(crate) fn inherit(&mut self, former: Self, mut number: impl FnMut() -> u64) {
        for own in former.own.into_values() {
            let (asked, again) = (None, true);
            self.add(
                number(),
                OwnTicket {
                    asked,
                    again,
                    ..own
                },
            );
        }
    }

    /// The callers that wait.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = CallToken> {
        self.numbers.keys().copied()
    }

    fn take(&mut self, n: u64) -> Option<OwnTicket> {
        let own = self.own.remove(&n)?;
        self.numbers.remove(&own.token);
        self.unasked.remove(&n);
        if let Some(until) = own.until {
            self.ends.remove(&(until, n));
        }
        Some(own)
    }

    fn unask(&mut self, n: u64) {
        if broken(&mutant::LOSES_TICKETS) {
            return;
        }
        if let Some(own) = self.own.get_mut(&n) {
            own.asked = None;
            own.again = true;
            self.unasked.insert(n);
        }
    }

    /// A member is gone: what was asked there is to be asked again.
    pub(crate) fn gone(&mut self, member: MemberId) {
        self.granted.retain(|_, (_, (_, at))| *at != member);
        let at = |own: &OwnTicket| own.asked.is_some_and(|(_, asked)| asked == member);
        let there = self.own.iter().filter(|(_, own)| at(own)).map(|(n, _)| *n);
        for n in there.collect::<Vec<_>>() {
            self.unask(n);
        }
    }
}

impl Slot {
    /// Whether callers may wait at this node: it leads the partition, or is about to.
    pub(crate) fn takes_tickets(&self, me: MemberId) -> bool {
        self.primary() == Some(me) && self.held.as_ref().is_some_and(|held| held.lead().is_some())
    }

    /// Whether it executes now what callers wait for.
    pub(crate) fn executes_tickets(&self) -> bool {
        let writes = !self.frozen || broken(&mutant::WRITES_WHILE_RESHAPED);
        self.serving() && self.is_open() && writes
    }
}

impl Slots {
    /// A caller of this thread waits until an operation is not blocked, and no longer than until
    /// then.
    pub(crate) fn wait_for(
        &mut self,
        host: &mut Host,
        token: CallToken,
        operation: Operation,
        (age, until): (Duration, Option<Time>),
    ) {
        let may = if operation.key.len() > host.limits.key_bytes_max {
            Err(Failure::TooLarge)
        } else if host.tickets.own.len() >= host.limits.tickets_max {
            Err(Failure::Overloaded)
        } else {
            host.tables.need_level(operation.action.level())
        };
        if let Err(failure) = may {
            return host.callers.answer(token, Outcome::Failed(failure));
        }
        let n = host.callers.number();
        let since = Time(
            host.now
                .0
                .saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(0)),
        );
        host.tickets.add(
            n,
            OwnTicket {
                token,
                operation: operation.detached(),
                since,
                until,
                asked: None,
                again: false,
            },
        );
        self.ask(host, n);
        host.set_wait_timer();
    }

    /// Asks for a ticket at the primary of its key, if that is possible now.
    fn ask(&mut self, host: &mut Host, n: u64) {
        let Some(own) = host.tickets.own.get(&n) else {
            return;
        };
        let (age, operation) = (host.now.since(own.since), own.operation.clone());
        let place = (operation.keyspace, operation.map, &operation.key);
        let Some(at) = host.tables.place(place.0, place.1, place.2) else {
            // Without a table it may be that one comes.
            if host.tables.view.is_none() {
                return;
            }
            return host.answer_ticket(n, Outcome::Failed(Failure::NoPartition));
        };
        let Some(slot) = self.get(at) else { return };
        let me = host.me;
        match slot.primary() {
            Some(primary) if primary == me => {
                if !slot.takes_tickets(me) {
                    return;
                }
                host.tickets.asked(n, (at, me));
                host.enter(at, (me, n), age, operation);
            }
            Some(primary) if host.may_wait_at(primary) => {
                let work = Work::Key(operation);
                let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
                host.tickets.asked(n, (at, primary));
                let wait = Frame::Wait {
                    at,
                    n,
                    age_ms,
                    stamp: host.now.0,
                    work,
                };
                host.peers.tell(primary, &wait);
            }
            _ => {}
        }
    }

    /// Asks for all tickets that are to be asked.
    pub(crate) fn ask_unasked(&mut self, host: &mut Host) {
        if !host.tickets.unasked.is_empty() {
            for n in host.tickets.unasked.clone() {
                self.ask(host, n);
            }
            host.set_wait_timer();
        }
    }

    /// There is another table: tickets are asked where their keys are now.
    pub(crate) fn ask_where_it_is(&mut self, host: &mut Host) {
        let elsewhere = |own: &OwnTicket| {
            let Operation {
                keyspace, map, key, ..
            } = &own.operation;
            let at = host.tables.place(*keyspace, *map, key);
            let now = at.and_then(|at| Some((at, self.get(at)?.primary()?)));
            own.asked.is_some() && own.asked != now
        };
        let own = host.tickets.own.iter().filter(|(_, own)| elsewhere(own));
        for n in own.map(|(n, _)| *n).collect::<Vec<_>>() {
            host.tickets.unask(n);
        }
        self.ask_unasked(host);
    }

    /// What is due of callers that wait.
    pub(crate) fn wait_due(&mut self, host: &mut Host, now: Time) {
        if !host.timers.take(Duty::Wait, now) {
            return;
        }
        host.waiting.wake_due(now);
        while let Some(end) = host.tickets.ends.first().copied()
            && end.0 <= now
        {
            host.tickets.ends.remove(&end);
            if let Some(token) = host.end_ticket(end.1) {
                host.callers.answer(token, Outcome::Nil);
            }
        }
        if host.tickets.again.is_some_and(|at| at <= now) {
            host.tickets.again = None;
            self.ask_unasked(host);
        }
        host.set_wait_timer();
    }
}

impl Tickets {
    fn asked(&mut self, n: u64, at: (PartitionRef, MemberId)) {
        self.unasked.remove(&n);
        if let Some(own) = self.own.get_mut(&n) {
            own.asked = Some(at);
        }
    }
}

impl Host {
    /// Whether this thread may ask for tickets at a peer now.
    fn may_wait_at(&mut self, primary: MemberId) -> bool {
        let is_client = self.me.is_client();
        let has_room = self.peers.room(primary).is_some();
        self.peers.get(primary).is_some_and(|peer| {
            let is_ready = !is_client || peer.visit.value_bytes_max.is_some();
            has_room && is_ready
        })
    }

    /// A ticket takes its place in the room of this thread.
    pub(crate) fn enter(
        &mut self,
        at: PartitionRef,
        name: TicketName,
        age: Duration,
        operation: Operation,
    ) {
        // Clients leave room for members, as for calls.
        let shares = if name.0.is_client() { 1 } else { 2 };
        let most = Filled {
            tickets: self.limits.tickets_max.saturating_mul(shares),
            bytes: self.limits.tickets_bytes_max() / 2 * shares,
        };
        let line = operation.action.line();
        let key = (at, operation.map, operation.key.clone(), line);
        let ticket = Ticket {
            name,
            bytes: operation.bytes_apart(),
            takes_grant: operation.action.takes_grant(),
            work: operation,
        };
        let times = (self.now, age, self.limits.takeover_wait);
        if self.waiting.enter(key, ticket, times, most).is_err() {
            self.answer_waiter(at, name, 0, Outcome::Failed(Failure::Overloaded));
        }
    }

    /// Answers what was executed after its caller's thread had this stamp, or what was refused.
    pub(crate) fn answer_waiter(
        &mut self,
        at: PartitionRef,
        (member, n): TicketName,
        stamp: u64,
        outcome: Outcome,
    ) {
        if member == self.me {
            self.answer_ticket(n, stamped(stamp, outcome));
        } else {
            let to = ReplyTo::Ticket(n, stamp);
            self.peers.answer(member, at, to, outcome);
        }
    }

    /// A ticket cannot wait here any more, so its caller asks again.
    pub(crate) fn turn_away(&mut self, at: PartitionRef, (member, n): TicketName) {
        if member != self.me {
            let outcome = Outcome::Failed(Failure::Unavailable);
            self.answer_waiter(at, (member, n), 0, outcome);
        } else {
            self.tickets.unask(n);
            self.ask_soon();
        }
    }

    /// A ticket was executed, but its answer is void: the tenure is over, or there was no lease for
    /// long. Its caller asks again, and finds what it has.
    pub(crate) fn void_executed(&mut self, at: PartitionRef, executed: &Executed) {
        self.callers.outstanding -= 1;
        if let Some(member) = executed.asker.source.peer() {
            self.peers.disown(member, &executed.outcome);
            self.turn_away(at, (member, executed.asker.n));
        }
    }

    /// Tickets that were sent back are asked again after a pause.
    fn ask_soon(&mut self) {
        if self.tickets.again.is_none() {
            let pause = self.backoff(RETRY.0, RETRY.1, self.tickets.refusals);
            self.tickets.refusals += 1;
            self.tickets.again = Some(self.now + pause);
            self.set_wait_timer();
        }
    }

    /// A member replied to a ticket.
    pub(crate) fn waited(&mut self, peer: MemberId, n: u64, stamp: u64, outcome: &Outcome) {
        let asked = self.tickets.own.get(&n).and_then(|own| own.asked);
        if asked.is_none_or(|(_, asked)| asked != peer) {
            // It was asked elsewhere meanwhile, where it finds what it was given here.
            return;
        }
        if *outcome != Outcome::Failed(Failure::Unavailable) {
            self.tickets.refusals = 0;
            let stamp = stamp.min(self.now.0);
            self.answer_ticket(n, stamped(stamp, outcome.clone()));
        } else {
            self.tickets.unask(n);
            self.ask_soon();
        }
    }

    /// Members at which callers of this thread wait are sent the time.
    pub(crate) fn stamp_rooms(&mut self) {
        let asked = self.tickets.own.values().filter_map(|own| own.asked);
        let rooms: BTreeSet<MemberId> = asked.map(|(_, member)| member).collect();
        let stamp = Frame::Stamp { stamp: self.now.0 };
        for room in rooms {
            self.peers.tell(room, &stamp);
        }
    }

    /// Gives the caller of a ticket its outcome.
    fn answer_ticket(&mut self, n: u64, outcome: Outcome) {
        if let Some(own) = self.tickets.take(n) {
            let is_granted =
                own.operation.action.takes_grant() && !matches!(outcome, Outcome::Failed(_));
            if let Some(asked) = own.asked.filter(|_| is_granted) {
                self.tickets.granted.insert(own.token, (n, asked));
            } else if own.again {
                self.withdraw(n, own.asked);
            }
            self.callers.answer(own.token, outcome);
        }
    }

    /// The caller behind this token does not wait any more, and gives back its grant if it has one.
    /// False: it did not wait.
    pub(crate) fn end_waiting(&mut self, token: CallToken) -> bool {
        if let Some((n, asked)) = self.tickets.granted.remove(&token) {
            self.withdraw(n, Some(asked));
            self.set_wait_timer();
        }
        let n = self.tickets.numbers.get(&token).copied();
        let ended = n.and_then(|n| self.end_ticket(n)).is_some();
        if ended {
            self.set_wait_timer();
        }
        ended
    }

    /// A ticket leaves without having gone on.
    fn end_ticket(&mut self, n: u64) -> Option<CallToken> {
        let OwnTicket { token, asked, .. } = self.tickets.take(n)?;
        self.withdraw(n, asked);
        Some(token)
    }

    /// Takes a ticket out of the room in which it was asked.
    fn withdraw(&mut self, n: u64, asked: Option<(PartitionRef, MemberId)>) {
        match asked {
            Some((_, member)) if member == self.me => self.unwait((member, n)),
            Some((at, member)) => self.peers.tell(member, &Frame::Unwait { at, n }),
            None => {}
        }
    }

    /// The caller of a ticket in this room does not wait any more.
    pub(crate) fn unwait(&mut self, name: TicketName) {
        if !broken(&mutant::SERVES_THE_GONE) {
            self.waiting.leave(name);
        }
    }

    /// When there is something to do for callers that wait.
    pub(crate) fn set_wait_timer(&mut self) {
        let ends = self.tickets.ends.first().map(|(until, _)| *until);
        let woken = self.waiting.has_woken().then_some(self.now);
        let all = [ends, woken, self.tickets.again, self.waiting.next_due()];
        match all.into_iter().flatten().min() {
            Some(at) => self.timers.set(Duty::Wait, at),
            None => self.timers.cancel(Duty::Wait),
        }
    }
}
