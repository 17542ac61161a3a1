//! What all Redis clients of a data thread together may make it hold: unfinished commands and
//! answers.
//!
//! A small command always passes. A command that would exceed the share waits unread until there is
//! room. So that the largest command always completes, one connection at a time may exceed the
//! share, once little of what was read before is still under way. Answers from other nodes are
//! copies. Beyond the share, no client with answers of its own takes further commands. Beyond twice
//! the share, a copy is refused. Commands of many keys that are under way take turns beyond the
//! share: only one at a time, so that two of them cannot wait for each other. While there is too
//! little room for all, a client that holds much and makes no progress is disconnected
//! (`STALLED_MAX`).
//!
//! Answers that a client does not read while it still sends count elsewhere (`spill.rs`): they are
//! no reason to serve other clients worse.

use super::ready::ReadyClients;
use super::spill::Spill;
use doyen_engine::Limits;
use doyen_engine::op::Failure;
use doyen_gossip::Time;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What each connection may always hold, however much the others hold.
pub(crate) const FREE_INPUT_BYTES: usize = 128 << 10;
/// The same for a connection that has not authenticated.
const STRANGER_FREE_INPUT_BYTES: usize = 4 << 10;
/// The same for answers.
pub(crate) const FREE_ANSWER_BYTES: usize = 128 << 10;
/// How long a connection that holds more than that may make no progress while others want room.
pub(crate) const STALLED_MAX: Duration = Duration::from_secs(10);
/// While the process holds more than it may, one connection reads beyond the share in each such
/// period. It is long enough for the allocator to give back what the last one took.
const PERMIT_PAUSE: Duration = Duration::from_secs(1);

/// Shared by the connections of one data thread.
#[derive(Debug)]
pub(crate) struct ClientBudget {
    /// The limit on the input of all connections together, and also on their answers.
    share: usize,
    /// The limit on input and answers together, as far as memory has room for them now.
    room: Cell<usize>,
    value_bytes_max: usize,
    input: Cell<usize>,
    answers: Cell<usize>,
    /// Bytes that other nodes are expected to answer. They are among the answers, because they
    /// bound how much may come at once. No memory holds them yet.
    expected: Cell<usize>,
    /// Values of commands that are whole and not answered: they wait for memory, or for a primary.
    /// They are among the answers.
    under_way: Cell<usize>,
    /// The connection that may read beyond the share.
    permit: Cell<Option<u64>>,
    /// Until when there is no other permit, while the process holds more than it may.
    over_until: Cell<Option<Time>>,
    /// Bytes that clients have given back since the process was last looked at: the allocator may
    /// have kept them.
    given_back: Cell<usize>,
    /// The connections that wait for room to read.
    waiting: RefCell<Vec<usize>>,
    /// The connection whose command may ask beyond the share, its number if it waits for room, and
    /// the connections that wait for a turn.
    turn: Cell<Option<u64>>,
    turn_waits: Cell<Option<usize>>,
    asking: RefCell<Vec<usize>>,
    ready: Rc<ReadyClients>,
    /// The share of all data threads, and what the clients of this one hold of it.
    spill: Arc<Spill>,
    spilled: Cell<usize>,
}

/// Whether a command of many keys may ask for one more answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BudgetRoom {
    /// It may ask now.
    Now,
    /// Not now. It is woken to try again.
    Later,
    /// It may not ask at all.
    Never(Failure),
}

impl ClientBudget {
    /// The budget of one of `threads` data threads.
    pub(crate) fn new(
        limits: &Limits,
        threads: u8,
        ready: Rc<ReadyClients>,
        spill: Arc<Spill>,
    ) -> Self {
        Self {
            share: limits.clients_bytes_max(threads),
            room: Cell::new(usize::MAX),
            value_bytes_max: limits.value_bytes_max,
            input: Cell::new(0),
            answers: Cell::new(0),
            expected: Cell::new(0),
            under_way: Cell::new(0),
            permit: Cell::new(None),
            over_until: Cell::new(None),
            given_back: Cell::new(0),
            waiting: RefCell::default(),
            turn: Cell::new(None),
            turn_waits: Cell::new(None),
            asking: RefCell::default(),
            ready,
            spill,
            spilled: Cell::new(0),
        }
    }

    /// The largest value.
    pub(crate) fn value_bytes_max(&self) -> usize {
        self.value_bytes_max
    }

    /// The list of connections that have something to do.
    pub(crate) fn ready(&self) -> &Rc<ReadyClients> {
        &self.ready
    }

    /// Whether the connection `id` (number `at`) may read more of its command. It holds `held`
    /// bytes of input, and is a `stranger` until it has authenticated. If it may not, it is woken
    /// to try again.
    pub(crate) fn may_read(
        &self,
        now: Time,
        (id, at): (u64, usize),
        stranger: bool,
        held: usize,
    ) -> bool {
        let free = if stranger {
            STRANGER_FREE_INPUT_BYTES
        } else {
            FREE_INPUT_BYTES
        };
        let fits = self.input.get() < self.share && self.fits();
        if held <= free || fits || self.permit.get() == Some(id) {
            return true;
        }
        // A command that is whole gives the permit back, but holds its value until it is answered.
        if self.has_permit(now) {
            self.permit.set(Some(id));
            self.over_until
                .set(self.over_until.get().map(|_| now + PERMIT_PAUSE));
            return true;
        }
        enlist(&self.waiting, at);
        false
    }

    /// Whether one more connection may go beyond the share.
    fn has_permit(&self, now: Time) -> bool {
        let over = self.over_until.get().is_some_and(|until| now < until);
        self.permit.get().is_none() && self.under_way.get() < self.value_bytes_max && !over
    }

    /// A connection that held `before` bytes of input holds `now`.
    pub(crate) fn count_input(&self, id: u64, before: usize, now: usize) {
        self.input
            .set((self.input.get() + now).saturating_sub(before));
        if now <= FREE_INPUT_BYTES && self.permit.get() == Some(id) {
            self.permit.set(None);
        }
        if now < before {
            self.given_back.set(self.given_back.get() + before - now);
            self.tell(&self.waiting);
        }
    }

    /// Commands of a connection that were not answered held `before` bytes of values, and hold
    /// `now`.
    pub(crate) fn count_under_way(&self, before: usize, now: usize) {
        if now != before {
            self.under_way
                .set((self.under_way.get() + now).saturating_sub(before));
            if now < before {
                self.given_back.set(self.given_back.get() + before - now);
                self.tell(&self.waiting);
            }
        }
    }

    /// Answers that were `before` bytes are `now`.
    pub(crate) fn count_answers(&self, before: usize, now: usize) {
        self.answers
            .set((self.answers.get() + now).saturating_sub(before));
        if now < before {
            self.turn_waits
                .take()
                .into_iter()
                .for_each(|at| self.ready.push(at));
            if !self.is_short() {
                self.tell(&self.asking);
            }
            // A client that waits to be read needs room, too.
            if self.fits() {
                self.tell(&self.waiting);
            }
        }
    }

    /// Of the answers, `before` bytes were expected of other nodes, and `now` are.
    pub(crate) fn count_expected(&self, before: usize, now: usize) {
        self.expected
            .set((self.expected.get() + now).saturating_sub(before));
    }

    /// Whether the connection `id` (number `at`), whose command is charged `own` of `all`, may ask
    /// for an answer of `bytes`. A client must first take its earlier answers, so that a slow
    /// client cannot keep its turn for ever. Then one command at a time goes beyond the share, up
    /// to twice the share. There, a small command waits for room, which the others give back,
    /// because those that wait for a turn hold no more than the share. A command that would have
    /// more than half the share is refused.
    pub(crate) fn room_to_ask(
        &self,
        (id, at): (u64, usize),
        (own, all): (usize, usize),
        bytes: usize,
    ) -> BudgetRoom {
        if !self.is_short() {
            return BudgetRoom::Now;
        }
        let before = all.saturating_sub(own);
        if before > FREE_ANSWER_BYTES || before > 0 && self.is_full_with(bytes) {
            // A connection is looked at whenever its output moves, and is not refused for what it
            // gives back itself.
            return BudgetRoom::Later;
        }
        if self.turn.get().is_some_and(|whose| whose != id) {
            // Also a connection that was told, and finds that another one was faster.
            enlist(&self.asking, at);
            return BudgetRoom::Later;
        }
        self.turn.set(Some(id));
        let own = own.saturating_add(bytes);
        match self.is_full_with(bytes) {
            _ if own > self.share * 2 => BudgetRoom::Never(Failure::TooLarge),
            false => BudgetRoom::Now,
            true if own > self.share / 2 => BudgetRoom::Never(Failure::Overloaded),
            true => {
                self.turn_waits.set(Some(at));
                BudgetRoom::Later
            }
        }
    }

    /// A command has asked for everything, or its connection is gone.
    pub(crate) fn end_turn(&self, id: u64) {
        if self.turn.get() == Some(id) {
            self.turn.set(None);
            self.turn_waits.set(None);
            self.tell(&self.asking);
        }
    }

    /// The connections in this list try again, in turn.
    fn tell(&self, list: &RefCell<Vec<usize>>) {
        list.borrow_mut()
            .drain(..)
            .for_each(|at| self.ready.push(at));
    }

    /// Whether a connection that has answers waiting must take no further commands.
    pub(crate) fn is_short(&self) -> bool {
        self.answers.get() >= self.share || !self.fits()
    }

    /// Whether clients have given back `much`, so that the allocator may have kept more than is
    /// known. If they have, the count begins at 0 again.
    pub(crate) fn has_given_back(&self, much: usize) -> bool {
        let has = self.given_back.get() >= much;
        if has {
            self.given_back.set(0);
        }
        has
    }

    /// Memory has room for `bytes` of input and answers: less than the shares if it is nearly full.
    /// `over`: the process holds more than it may.
    pub(crate) fn set_room(&self, now: Time, bytes: usize, over: bool) {
        let fitted = self.fits();
        self.room.set(bytes);
        match (over, self.over_until.get()) {
            (true, None) => self.over_until.set(Some(now + PERMIT_PAUSE)),
            (false, Some(_)) => {
                self.over_until.set(None);
                self.tell(&self.waiting);
            }
            (true, Some(_)) if self.has_permit(now) => self.tell(&self.waiting),
            (true | false, _) => {}
        }
        if !fitted && self.fits() {
            self.tell(&self.waiting);
            self.turn_waits
                .take()
                .into_iter()
                .for_each(|at| self.ready.push(at));
            if !self.is_short() {
                self.tell(&self.asking);
            }
        }
    }

    fn fits(&self) -> bool {
        self.input.get() + self.answers.get() < self.room.get().max(1)
    }

    /// Whether an answer of this size could be too much, if all comes that is expected.
    fn is_full_with(&self, bytes: usize) -> bool {
        self.answers.get().saturating_add(bytes) > self.share * 2
    }

    /// Whether a copy of this size is too much beside what memory holds. What is only expected does
    /// not count: an answer of a write that is refused is lost, and a client that begins expects
    /// the largest value.
    pub(crate) fn refuses(&self, bytes: usize) -> bool {
        self.held().1.saturating_add(bytes) > self.share * 2
    }

    /// Whether a client waits because of what others hold.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_short() || !self.waiting.borrow().is_empty()
    }

    /// Bytes of input and of answers that memory holds.
    pub(crate) fn held(&self) -> (usize, usize) {
        let answers = self.answers.get().saturating_sub(self.expected.get());
        (self.input.get(), answers)
    }

    /// How much a client may hold, if it holds `before` bytes of answers that it does not read and
    /// wants to hold `now`.
    pub(crate) fn spill(&self, before: usize, now: usize) -> usize {
        // The usual case: the other threads need not hear of it.
        if now == before {
            return now;
        }
        if now > before && !self.spill.take(now - before) {
            return before;
        }
        self.spill.give_back(before.saturating_sub(now));
        self.spilled
            .set((self.spilled.get() + now).saturating_sub(before));
        now
    }

    /// Bytes of answers that clients of this thread do not read.
    pub(crate) fn spilled(&self) -> usize {
        self.spilled.get()
    }
}

/// Notes a waiting connection, once.
fn enlist(list: &RefCell<Vec<usize>>, at: usize) {
    let mut list = list.borrow_mut();
    if !list.contains(&at) {
        list.push(at);
    }
}

#[cfg(test)]
impl ClientBudget {
    /// Bytes of answers, and how many of them are only expected.
    pub(crate) fn answers(&self) -> (usize, usize) {
        (self.answers.get(), self.expected.get())
    }

    /// The budget of a node with values of 1 MiB and 128 MiB of memory: each share is 16 MiB.
    pub(crate) fn small() -> Self {
        let limits = Limits {
            memory_bytes_max: 128 << 20,
            waiting_max: 100,
            ..Limits::of_test()
        };
        Self::new(
            &limits,
            1,
            Rc::default(),
            Arc::new(Spill::new(limits.memory_bytes_max, 1)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_reads_beyond_the_share_and_small_commands_always_pass() {
        let budget = ClientBudget::small();
        let may_read = |id: u64, held| budget.may_read(Time::ZERO, (id, id as usize), false, held);
        assert!(may_read(1, 8 << 20));
        budget.count_input(1, 0, 16 << 20);
        assert!(may_read(2, 1 << 20), "one connection may always go on");
        assert!(
            !may_read(3, 1 << 20) && !may_read(1, 16 << 20),
            "but no other"
        );
        assert!(may_read(2, 4 << 20), "and the same to the end");
        assert!(may_read(4, FREE_INPUT_BYTES));
        assert!(budget.may_read(Time::ZERO, (5, 5), true, STRANGER_FREE_INPUT_BYTES));
        assert!(!budget.may_read(Time::ZERO, (5, 5), true, FREE_INPUT_BYTES));
        assert!(budget.is_wanted());
        budget.count_input(2, 1 << 20, 0);
        let mut ready = Vec::new();
        budget.ready().append_to(&mut ready);
        assert_eq!(ready, [3, 1, 5], "waiting connections try again");
        assert!(may_read(3, 1 << 20), "the permit passes on");
    }

    /// Regression: whole commands that waited for memory gave the permit back, so all were read.
    /// Together they held many times the share.
    #[test]
    fn a_command_that_is_not_answered_yet_lets_no_other_go_beyond_the_share() {
        let (budget, large) = (ClientBudget::small(), 1 << 20);
        let may_read = |now: u64, id: u64| {
            budget.may_read(Time(now * 1_000_000_000), (id, id as usize), false, large)
        };
        budget.set_room(Time::ZERO, 0, false);
        // Another client holds an answer, so that nothing fits.
        budget.count_answers(0, 1);
        assert!(may_read(0, 1));
        budget.count_input(1, 0, large);
        // The whole command is handed on, and waits.
        budget.count_under_way(0, large);
        budget.count_input(1, large, 0);
        assert!(!may_read(0, 2));
        budget.count_under_way(large, 0);
        assert!(may_read(0, 2));
        budget.count_input(2, 0, large);
        budget.count_input(2, large, 0);
        // The process holds too much: one command a second.
        budget.set_room(Time::ZERO, 0, true);
        assert!(!may_read(0, 3));
        assert!(may_read(1, 3));
        budget.count_input(3, 0, large);
        budget.count_input(3, large, 0);
        assert!(!may_read(1, 4));
        let mut ready = Vec::new();
        budget.set_room(Time(1_000_000_000), 0, false);
        budget.ready().append_to(&mut ready);
        assert!(
            ready.contains(&4) && may_read(1, 4),
            "it hears that the process has given back enough"
        );
    }

    #[test]
    fn copies_beyond_twice_the_share_are_refused() {
        let budget = ClientBudget::small();
        budget.count_answers(0, 16 << 20);
        assert!(budget.is_short() && !budget.refuses(16 << 20) && budget.refuses((16 << 20) + 1));
        budget.count_answers(16 << 20, 0);
        assert!(!budget.is_short() && !budget.is_wanted());
    }

    /// Regression: some clients that had just connected asked other nodes, and each expected the
    /// largest value. Meanwhile answers of pops were thrown away, and transactions refused.
    #[test]
    fn what_is_only_expected_refuses_no_copy() {
        let budget = ClientBudget::small();
        budget.count_answers(0, 40 << 20);
        assert!(budget.refuses(1));
        budget.count_expected(0, 40 << 20);
        assert!(budget.is_short() && !budget.refuses(32 << 20));
        let own = (0, 0);
        let asked = budget.room_to_ask((1, 1), own, 17 << 20);
        assert_eq!(asked, BudgetRoom::Never(Failure::Overloaded));
    }

    /// Regression: the last 64 KiB of a reply were on their way to the client when the next command
    /// asked for nearly the limit. It was told that others held the room.
    #[test]
    fn a_command_is_not_refused_for_what_its_client_is_about_to_take() {
        let (budget, large, tail) = (ClientBudget::small(), 1 << 20, 64 << 10);
        let ask = |own: usize, tail: usize| budget.room_to_ask((1, 1), (own, own + tail), large);
        budget.count_answers(0, 31 * large + tail);
        assert_eq!(ask(31 * large, tail), BudgetRoom::Later);
        budget.count_answers(tail, 0);
        assert_eq!(ask(31 * large, 0), BudgetRoom::Now);
        budget.count_answers(0, large);
        assert_eq!(ask(32 * large, 0), BudgetRoom::Never(Failure::TooLarge));
    }

    #[test]
    fn one_command_at_a_time_asks_beyond_the_share() {
        let (budget, large) = (ClientBudget::small(), 1 << 20);
        let told = |budget: &ClientBudget| {
            let mut ready = Vec::new();
            budget.ready().append_to(&mut ready);
            ready
        };
        let ask = |id: u64, own: usize| budget.room_to_ask((id, id as usize), (own, own), large);
        assert_eq!(ask(1, 0), BudgetRoom::Now);
        budget.count_answers(0, 16 << 20);
        assert_eq!(
            budget.room_to_ask((4, 4), (0, large), large),
            BudgetRoom::Later,
            "its client has not taken earlier answers"
        );
        assert_eq!(ask(1, 8 << 20), BudgetRoom::Now, "it has the turn");
        assert_eq!(
            (ask(2, 8 << 20), ask(3, 0)),
            (BudgetRoom::Later, BudgetRoom::Later)
        );
        budget.end_turn(3);
        assert!(told(&budget).is_empty(), "that was not its turn to end");
        budget.end_turn(1);
        assert_eq!(told(&budget), [2, 3], "waiting connections try again");
        assert_eq!(
            (ask(2, 8 << 20), ask(3, 0)),
            (BudgetRoom::Now, BudgetRoom::Later)
        );
        budget.count_answers(0, 16 << 20);
        assert_eq!(
            ask(2, 4 << 20),
            BudgetRoom::Later,
            "it waits until others give room back"
        );
        budget.count_answers(large, 0);
        assert_eq!((told(&budget), ask(2, 4 << 20)), (vec![2], BudgetRoom::Now));
        budget.count_answers(0, large);
        assert_eq!(
            ask(2, 8 << 20),
            BudgetRoom::Never(Failure::Overloaded),
            "because of others"
        );
        assert_eq!(
            ask(2, 32 << 20),
            BudgetRoom::Never(Failure::TooLarge),
            "however much others hold"
        );
        budget.count_answers(32 << 20, 0);
        assert_eq!(told(&budget), [3], "there is room for all");
    }
}
