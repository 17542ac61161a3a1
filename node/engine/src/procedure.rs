//! Operations on one key that are described whole in one place, beside the commands that call them:
//! what they may do, what they do, and the number by which they are sent.
//!
//! A call travels as that number and its inputs: some numbers and some runs of bytes. So a new
//! operation needs no layout of its own. The receiver refuses a number that it does not know, and
//! inputs that are too few or too many, so that `run` finds all that it takes.

use super::action::{Change, Context};
use super::entry::Entry;
use super::op::{Footprint, Given, Kind, Outcome};
use crate::command::PROCEDURES;
use bytes::Bytes;
use std::fmt;

/// An operation on one key.
pub(crate) struct Procedure {
    /// Its number on the wire. A number that was used once gets no other meaning.
    pub(crate) number: u16,
    /// Its name, for people.
    pub(crate) name: &'static str,
    /// What its key must hold, if it exists.
    pub(crate) kind: Kind,
    /// How many numbers and how many runs of bytes it takes.
    pub(crate) takes: (usize, usize),
    /// What it may do and cost.
    pub(crate) footprint: fn(&Inputs) -> Footprint,
    /// What it does to an entry (`None`: absent or overdue).
    pub(crate) run: fn(&Inputs, Option<&Entry>, &Context) -> (Outcome, Change),
}

/// What a procedure does that only reads.
pub(crate) const READS: Footprint = Footprint {
    writes: false,
    answers_value: false,
    uses: true,
    looks_up: true,
    given: Given::NOTHING,
    stores: 0,
};

/// What a procedure does that changes its key.
pub(crate) const WRITES: Footprint = Footprint {
    writes: true,
    looks_up: false,
    ..READS
};

/// A number of things, or a length.
pub(crate) fn count(of: usize) -> Outcome {
    Outcome::Int(i64::try_from(of).unwrap_or(i64::MAX))
}

impl Procedure {
    /// The procedure of this number.
    pub(super) fn of_number(number: u16) -> Option<&'static Self> {
        let mut all = PROCEDURES.iter().flat_map(|family| family.iter());
        all.find(|procedure| procedure.number == number).copied()
    }
}

impl fmt::Debug for Procedure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// What a procedure is called with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Inputs {
    /// Numbers.
    pub(crate) numbers: Vec<i64>,
    /// Runs of bytes.
    pub(crate) bytes: Vec<Bytes>,
}

/// A call of a procedure.
#[derive(Debug, Clone)]
pub struct ProcedureCall {
    pub(super) procedure: &'static Procedure,
    pub(super) inputs: Inputs,
}

impl PartialEq for ProcedureCall {
    fn eq(&self, other: &Self) -> bool {
        self.procedure.number == other.procedure.number && self.inputs == other.inputs
    }
}

impl ProcedureCall {
    /// A call with these inputs, if the procedure takes so many.
    pub(crate) fn new(
        procedure: &'static Procedure,
        numbers: &[i64],
        bytes: Vec<Bytes>,
    ) -> Option<Self> {
        let numbers = numbers.to_vec();
        ((numbers.len(), bytes.len()) == procedure.takes).then_some(Self {
            procedure,
            inputs: Inputs { numbers, bytes },
        })
    }

    /// What its key must hold, if it exists.
    pub(super) const fn kind(&self) -> Kind {
        self.procedure.kind
    }

    /// What it may do and cost.
    pub(super) fn footprint(&self) -> Footprint {
        (self.procedure.footprint)(&self.inputs)
    }

    /// Runs it on an entry.
    pub(super) fn run(&self, entry: Option<&Entry>, cx: &Context) -> (Outcome, Change) {
        (self.procedure.run)(&self.inputs, entry, cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_procedure_has_a_number_of_its_own() {
        let all: Vec<_> = PROCEDURES.iter().flat_map(|family| family.iter()).collect();
        let numbers: BTreeSet<u16> = all.iter().map(|procedure| procedure.number).collect();
        assert_eq!(numbers.len(), all.len());
        for procedure in all {
            let found = Procedure::of_number(procedure.number).map(|found| found.name);
            assert_eq!(found, Some(procedure.name));
        }
        assert!(Procedure::of_number(u16::MAX).is_none());
    }
}
