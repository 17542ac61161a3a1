//! What the replies of a connection weigh, and what of that is charged to its thread's budget.
//!
//! ```text
//!   a reply begins ──> an answer is expected ──> an outcome takes its place ──> it is encoded
//!   bytes              expected                  charged, unless shared         released
//! ```

use crate::resp::budget::{BudgetRoom, ClientBudget, FREE_ANSWER_BYTES};
use doyen_engine::op::{Failure, Outcome};
use std::rc::Rc;

/// Bytes of the commands that are not answered yet, of their answers, and of the answers that other
/// nodes are expected to send. Above it, no more commands are taken from this connection.
pub(crate) const PENDING_BYTES_MAX: usize = 32 << 20;
/// The least expected weight of another node's answer. A full queue of such answers stays below
/// `PENDING_BYTES_MAX`.
pub(crate) const EXPECTED_BYTES_MIN: usize = 1 << 10;

/// What one connection holds, and what of that is charged to the budget.
#[derive(Debug)]
pub(crate) struct Charges {
    budget: Rc<ClientBudget>,
    /// The connection: its id, and its number among the sockets.
    owner: (u64, usize),
    /// All that is charged: commands, answers and output.
    charged: usize,
    /// Bytes of all replies that are not encoded yet.
    pending: usize,
    /// Charged bytes of output.
    unwritten: usize,
    /// The expected weight of the next answer of another node: the weight of recent ones, and the
    /// most at first.
    expected: usize,
}

/// What one reply weighs.
#[derive(Debug, Default)]
pub(crate) struct ReplyWeight {
    /// Bytes of the command and of its answer.
    bytes: usize,
    /// Bytes in `bytes` that only this connection holds. They are charged to the budget.
    charged: usize,
    /// Bytes that other nodes are expected to answer. They are included in `bytes` and `charged`.
    expected: usize,
    /// Bytes of the command's values while it is not answered. They are included in `bytes` and
    /// `charged`.
    under_way: usize,
}

impl ReplyWeight {
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) const fn expected(&self) -> usize {
        self.expected
    }
}

/// An outcome that was admitted.
pub(crate) struct Admitted {
    pub(crate) outcome: Outcome,
    bytes: usize,
    /// Bytes that only this connection holds.
    pub(crate) copied: usize,
}

impl Charges {
    pub(crate) fn new(budget: Rc<ClientBudget>, owner: (u64, usize)) -> Self {
        Self {
            owner,
            charged: 0,
            pending: 0,
            unwritten: 0,
            expected: budget.value_bytes_max().max(EXPECTED_BYTES_MIN),
            budget,
        }
    }

    pub(crate) const fn budget(&self) -> &Rc<ClientBudget> {
        &self.budget
    }

    /// All that is charged.
    pub(crate) const fn charged(&self) -> usize {
        self.charged
    }

    /// Bytes of all replies that are not encoded yet.
    pub(crate) const fn pending(&self) -> usize {
        self.pending
    }

    /// The expected weight of an answer that comes from `elsewhere`.
    pub(crate) const fn expects(&self, elsewhere: bool) -> usize {
        if elsewhere { self.expected } else { 0 }
    }

    /// Changes one of the charges.
    pub(crate) fn charge(&mut self, one: &mut usize, change: impl FnOnce(usize) -> usize) {
        let before = *one;
        *one = change(before);
        if *one != before {
            self.charged = self.charged + *one - before;
            self.budget.count_answers(before, *one);
        }
    }

    /// Changes how many bytes of one reply other nodes are expected to answer. `charge` counts the
    /// same bytes, because they bound how much may come at once.
    fn promise(&self, weight: &mut ReplyWeight, now: usize) {
        if now != weight.expected {
            self.budget.count_expected(weight.expected, now);
            weight.expected = now;
        }
    }

    /// A reply begins: its command has `bytes`, and `under_way` of them are values that the store
    /// does not have yet. Other nodes are expected to answer `expected` bytes.
    pub(crate) fn begin(&mut self, bytes: usize, under_way: usize, expected: usize) -> ReplyWeight {
        let all = bytes + expected;
        let mut weight = ReplyWeight {
            bytes: all,
            charged: 0,
            expected: 0,
            under_way,
        };
        self.pending += all;
        self.promise(&mut weight, expected);
        self.budget.count_under_way(0, under_way);
        self.charge(&mut weight.charged, |_| all);
        weight
    }

    /// The reply's command asks for more, with values of `bytes`.
    pub(crate) fn ask(&mut self, weight: &mut ReplyWeight, bytes: usize, expected: usize) {
        let all = weight.expected + expected;
        self.promise(weight, all);
        weight.bytes += bytes + expected;
        weight.under_way += bytes;
        self.budget.count_under_way(0, bytes);
        self.pending += bytes + expected;
        self.charge(&mut weight.charged, |c| c + bytes + expected);
    }

    /// Admits an outcome, one of `missing` outcomes of this reply. If there is no room for it, it
    /// is refused, unless it was weighed beforehand or must be `kept`. The client may repeat a
    /// refused `read`. A connection that holds much leaves the second share to the others.
    pub(crate) fn admit(
        &mut self,
        weight: &mut ReplyWeight,
        missing: usize,
        outcome: Outcome,
        (read, kept): (bool, bool),
    ) -> Admitted {
        let weighed = if weight.expected > 0 {
            self.take_expected(weight, missing, &outcome)
        } else {
            0
        };
        // The expected bytes do not count any more: an answer that was weighed takes their place,
        // even if others have filled the room by now.
        let much = self.charged >= PENDING_BYTES_MAX;
        let bytes = outcome.bytes();
        let copied = match &outcome {
            // Otherwise the store or the log holds it as well.
            Outcome::Bulk(value) if value.is_shared() => 0,
            _ => bytes,
        };
        if !kept
            && copied > weighed.max(EXPECTED_BYTES_MIN)
            && (self.budget.refuses(copied) || much && self.budget.is_short())
        {
            let why = if read {
                Failure::Overloaded
            } else {
                Failure::Unknown
            };
            return Admitted {
                outcome: Outcome::Failed(why),
                bytes: 0,
                copied: 0,
            };
        }
        Admitted {
            outcome,
            bytes,
            copied,
        }
    }

    /// Takes away what was expected of this outcome. Returns how much that was.
    fn take_expected(
        &mut self,
        weight: &mut ReplyWeight,
        missing: usize,
        outcome: &Outcome,
    ) -> usize {
        let share = weight.expected.div_ceil(missing.max(1));
        let left = weight.expected - share;
        self.promise(weight, left);
        if is_in_vain(outcome) || !matches!(outcome, Outcome::Failed(_)) {
            // It falls by half with each answer that is smaller, so that a single small one does
            // not open the gates. It falls with each failure, too: otherwise, commands to
            // partitions without a primary would be asked two by two.
            self.expected = outcome
                .bytes()
                .max(self.expected / 2)
                .max(EXPECTED_BYTES_MIN);
        }
        weight.bytes -= share;
        self.pending -= share;
        self.charge(&mut weight.charged, |c| c - share);
        share
    }

    /// The only outcome of a reply is here. By now, the store has the value of the command, or the
    /// value is dropped.
    pub(crate) fn answer(&mut self, weight: &mut ReplyWeight, admitted: &Admitted) {
        self.add(weight, admitted);
        let stored = std::mem::take(&mut weight.under_way);
        self.budget.count_under_way(stored, 0);
        self.charge(&mut weight.charged, |c| {
            (c + admitted.copied).saturating_sub(stored)
        });
    }

    /// An outcome belongs to this reply.
    pub(crate) fn add(&mut self, weight: &mut ReplyWeight, admitted: &Admitted) {
        weight.bytes += admitted.bytes;
        self.pending += admitted.bytes;
    }

    /// A reply that alone held `before` bytes holds `now`.
    pub(crate) fn hold(&mut self, weight: &mut ReplyWeight, before: usize, now: usize) {
        self.charge(&mut weight.charged, |c| c + now - before);
    }

    /// A reply is encoded.
    pub(crate) fn release(&mut self, weight: &mut ReplyWeight) {
        self.pending = self.pending.saturating_sub(weight.bytes);
        self.charge(&mut weight.charged, |_| 0);
        self.end(weight);
    }

    fn end(&self, weight: &mut ReplyWeight) {
        self.promise(weight, 0);
        self.budget
            .count_under_way(std::mem::take(&mut weight.under_way), 0);
    }

    /// This many bytes of output are charged.
    pub(crate) fn count_unwritten(&mut self, now: usize) {
        let mut unwritten = self.unwritten;
        self.charge(&mut unwritten, |_| now);
        self.unwritten = unwritten;
    }

    /// Nothing is charged any more, of all these replies.
    pub(crate) fn give_back<'a>(&mut self, weights: impl Iterator<Item = &'a mut ReplyWeight>) {
        self.budget.count_answers(self.charged, 0);
        self.end_turn();
        self.charged = 0;
        self.unwritten = 0;
        for weight in weights {
            weight.charged = 0;
            self.end(weight);
        }
    }

    /// Whether a connection with answers waiting must take no further commands, and this one has.
    pub(crate) fn is_short(&self) -> bool {
        self.charged >= FREE_ANSWER_BYTES && self.budget.is_short()
    }

    /// Whether one more answer has to wait for room. Small answers to a connection that holds
    /// little always pass.
    pub(crate) fn must_wait(&self) -> bool {
        self.budget.is_short()
            && (self.charged >= FREE_ANSWER_BYTES || self.expected > FREE_ANSWER_BYTES)
    }

    /// Whether this reply's command, which has many keys, may ask for one more answer.
    pub(crate) fn room_to_ask(&self, weight: &ReplyWeight) -> BudgetRoom {
        self.budget
            .room_to_ask(self.owner, (weight.charged, self.charged), self.expected)
    }

    /// A command of many keys has asked for everything.
    pub(crate) fn end_turn(&self) {
        self.budget.end_turn(self.owner.0);
    }
}

/// Whether the client has waited for nothing.
pub(crate) const fn is_in_vain(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Failed(Failure::Unavailable | Failure::Unknown)
    )
}
