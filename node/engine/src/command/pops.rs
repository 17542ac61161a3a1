//! Pops that wait while all of their keys are empty, as `BZPOPMIN` does, and reads of streams that
//! wait for new entries.
//!
//! ```text
//!   take, from each key in order ── nothing ──> wait, at each key ── granted ──> take, from it
//!                                                    ▲                                │
//!                                                    └──── another client was faster ─┘
//! ```
//! What is taken is taken by an ordinary operation, which is applied once at most, so it is waited
//! for by an operation that only reads (`super::blocking`). Where nothing may wait, in transactions
//! and scripts, the pop takes from the first key that is not empty, or answers that there is none.

use super::Shape;
use super::operation::Action;
use super::procedure::{Inputs, Joint, Procedure, ProcedureCall};
use super::rows::Rows;
use super::stream_reads::{StreamReads, has_entries, joined};
use crate::value::outcome::{Failure, Outcome, Value};
use bytes::Bytes;
use doyen_placement::MapId;
use std::ops::Range;
use std::time::Duration;

/// A pop that waits while all of its keys are empty.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockingPop {
    /// Its keys, in the order in which they are looked at.
    pub keys: Vec<Bytes>,
    /// How long it waits. `None`: for ever.
    pub timeout: Option<Duration>,
    /// How what it takes is answered.
    pub shape: Shape,
    pub(super) takes: &'static PopKind,
    /// How many elements it takes at most.
    pub(super) count: i64,
    /// Where the element goes, if it does not only go to the client.
    pub(super) to: Option<Bytes>,
    /// What is read, if its keys are streams.
    pub(super) reads: Option<StreamReads>,
}

/// What is taken, as the file of its commands says it.
#[derive(Debug)]
pub(super) struct PopKind {
    /// Takes up to a number from the first of several keys that is not empty, or moves from one key
    /// to another. → `Nil`: none is
    pub(super) take: &'static Joint,
    /// Counts what a key holds. Callers may wait with it (`super::blocking`).
    pub(super) wait: &'static Procedure,
    /// The operation that puts back what was taken, with its key. `None`: it need not be put back.
    pub(super) put_back: fn(&Outcome) -> Option<(Bytes, Action)>,
}

impl PartialEq for PopKind {
    fn eq(&self, other: &Self) -> bool {
        self.take.number == other.take.number
    }
}

impl BlockingPop {
    /// A pop of one element of the first of these keys that is not empty.
    pub(super) const fn of_one(
        keys: Vec<Bytes>,
        timeout: Option<Duration>,
        takes: &'static PopKind,
    ) -> Self {
        Self {
            keys,
            timeout,
            shape: Shape::PoppedOne,
            takes,
            count: 1,
            to: None,
            reads: None,
        }
    }

    /// The pop that this call is with its first key, if it takes as one of these kinds does.
    pub(super) fn of_call(
        call: &ProcedureCall,
        first: &Bytes,
        (kinds, shape): (&[&'static PopKind], Shape),
    ) -> Option<Self> {
        let number = call.called.number();
        let takes = kinds.iter().find(|kind| kind.take.number == number)?;
        let keys = std::iter::once(first).chain(&call.inputs.bytes);
        Some(Self {
            shape,
            count: *call.inputs.numbers.first()?,
            ..Self::of_one(keys.cloned().collect(), None, takes)
        })
    }

    /// The operation that takes from the first key that is not empty, or reads all of them. Its
    /// outcome is `Nil` if there is none.
    #[must_use]
    pub fn take_all(&self) -> (Bytes, Action) {
        self.take(0..self.keys.len(), false)
    }

    /// The same of the key at this place. See [`Self::finds_nothing`].
    #[must_use]
    pub fn take_at(&self, at: usize) -> (Bytes, Action) {
        self.take(at..at + 1, true)
    }

    /// Whether it ends if a key is of another kind when it was woken: the one to which an element
    /// goes, or the stream of a group.
    #[must_use]
    pub fn ends_at_wrong_kind(&self) -> bool {
        let reads_group = self.reads.as_ref().is_some_and(StreamReads::is_of_group);
        self.to.is_some() || reads_group
    }

    /// Whether it first tries all of its keys in one operation, if they are in one partition.
    #[must_use]
    pub fn tries_all(&self) -> bool {
        self.reads.is_some() && self.keys.len() > 1
    }

    /// That operation. See [`Self::finds_nothing`].
    #[must_use]
    pub fn try_all(&self) -> (Bytes, Action) {
        self.take(0..self.keys.len(), true)
    }

    fn take(&self, range: Range<usize>, learns: bool) -> (Bytes, Action) {
        let keys = self.keys.get(range.clone()).unwrap_or_default();
        let (key, others) = match keys.split_first() {
            Some((key, others)) => (key.clone(), others.to_vec()),
            None => (Bytes::new(), Vec::new()),
        };
        let action = match (&self.to, &self.reads) {
            (_, Some(reads)) => reads.action(range, others, learns),
            (Some(to), None) => Action::call(self.takes.take, &[], [to.clone()]),
            (None, None) => Action::call(self.takes.take, &[self.count], others),
        };
        (key, action)
    }

    /// Whether this was read of a key, and is answered together with what further keys have.
    #[must_use]
    pub fn is_part(&self, read: &Outcome) -> bool {
        self.reads.is_some() && has_entries(read)
    }

    /// The answer of two such parts. `None`: one of them is none.
    #[must_use]
    pub fn joined(&self, one: &Outcome, other: &Outcome) -> Option<Outcome> {
        joined(one, other)
    }

    /// Whether nothing was taken from the keys from this place on. If what is waited for depends on
    /// what they hold, that is kept.
    pub fn finds_nothing(&mut self, from: usize, outcome: &Outcome) -> bool {
        match (outcome, &mut self.reads) {
            (Outcome::Nil, _) => true,
            (Outcome::Many(ids), Some(reads)) => {
                reads.learn(from, ids);
                true
            }
            _ => false,
        }
    }

    /// The operation that waits at the key at this place until it is not empty.
    #[must_use]
    pub fn wait_at(&self, at: usize) -> Action {
        match &self.reads {
            Some(reads) => reads.wait_at(at),
            None => Action::call(self.takes.wait, &[], Vec::new()),
        }
    }

    /// The same with bytes of its own: it keeps nothing of the buffer that it was read from.
    #[must_use]
    pub fn detached(mut self) -> Self {
        let copy = |bytes: &mut Bytes| *bytes = Bytes::copy_from_slice(bytes);
        self.keys.iter_mut().for_each(copy);
        self.to.iter_mut().for_each(copy);
        if let Some(reads) = &mut self.reads {
            reads.names().for_each(copy);
        }
        self
    }

    /// The operation that puts back what was taken, with its key. `None`: it need not be put back,
    /// because nothing was taken or it is in another key.
    #[must_use]
    pub fn put_back(&self, taken: &Outcome) -> Option<(Bytes, Action)> {
        (self.takes.put_back)(taken)
    }
}

/// Takes out of the first key that is not empty, by a procedure whose first number says how many.
/// The runs are the further keys. → `Many`, the key and what was taken, or `Nil`
pub(super) fn pop_first(
    inputs: &Inputs,
    (map, first): (MapId, &[u8]),
    rows: &mut Rows<'_>,
    pop: &'static Procedure,
) -> Outcome {
    let keys = std::iter::once(first).chain(inputs.bytes.iter().map(|key| &**key));
    for key in keys {
        let Some(entry) = rows.find(map, key) else {
            continue;
        };
        if entry.kind() != pop.kind {
            return Outcome::Failed(Failure::WrongType);
        }
        let taken = rows.step(map, key, &Action::call(pop, &inputs.numbers, Vec::new()));
        return match taken {
            Outcome::Failed(_) => taken,
            taken => Outcome::Many(vec![Outcome::Bulk(Value::from(key)), taken]),
        };
    }
    Outcome::Nil
}
