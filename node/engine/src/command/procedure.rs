//! Operations that are described whole in one place, beside the commands that call them: what they
//! may do, what they do, and the number by which they are sent.
//!
//! A [`Procedure`] is about one key. A [`Joint`] is about several keys of one partition, which it
//! reads and changes through [`Rows`], all of them or none.
//!
//! A call travels as that number and its inputs: some numbers and some runs of bytes. So a new
//! operation needs no layout of its own. The receiver refuses a number that it does not know, and
//! inputs that are too few or too many, so that `run` finds all that it takes.

use super::action::failed;
use super::rows::Rows;
use crate::command::operation::{Footprint, ValueSizes};
use crate::store::FoundKey;
use crate::store::change::KeyChange;
use crate::store::collection::{self, CollectionView, Edit, UnpackedItems};
use crate::store::run_context::RunContext;
use crate::value::cause::By;
use crate::value::entry::Entry;
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome};
use bytes::Bytes;
use doyen_placement::MapId;
use smallvec::SmallVec;
use std::fmt;
use std::ops::Range;

/// An operation on one key.
pub(crate) struct Procedure {
    /// Its number on the wire. A number that was used once gets no other meaning.
    pub(crate) number: u16,
    /// Its name, for people.
    pub(crate) name: &'static str,
    /// What its key must hold, if it exists.
    pub(crate) kind: Kind,
    /// The name of the event by which subscribers of Redis hear of its writes, if it has one.
    pub(crate) event: Option<&'static str>,
    /// How many numbers and how many runs of bytes it takes.
    pub(crate) takes: (usize, usize),
    /// What it may do and cost.
    pub(crate) footprint: fn(&Inputs) -> Footprint,
    /// What it does.
    pub(crate) run: Run,
}

/// A procedure of this number and name, for keys that hold this kind. `takes` counts its numbers
/// and its runs of bytes. Unless a later call says otherwise, it reads all of a collection.
pub(super) const fn procedure(
    number: u16,
    name: &'static str,
    kind: Kind,
    takes: (usize, usize),
) -> Procedure {
    Procedure {
        number,
        name,
        kind,
        event: None,
        takes,
        footprint: reads,
        run: Run::All,
    }
}

impl Procedure {
    /// What it may do and cost.
    pub(super) const fn costs(mut self, footprint: fn(&Inputs) -> Footprint) -> Self {
        self.footprint = footprint;
        self
    }

    /// Subscribers of Redis get an event of this name for its writes.
    pub(super) const fn told_as(mut self, event: &'static str) -> Self {
        self.event = Some(event);
        self
    }

    /// It does this to an entry ([`Run::Entry`]).
    pub(super) const fn on_entry(mut self, run: OnEntry) -> Self {
        self.run = Run::Entry(run);
        self
    }

    /// It does this to what its key holds ([`Run::Held`]).
    pub(super) const fn on_held(mut self, run: OnHeld) -> Self {
        self.run = Run::Held(run);
        self
    }

    /// It does this to the fields of a collection ([`Run::Fields`]).
    pub(super) const fn on_fields(mut self, run: OnFields) -> Self {
        self.run = Run::Fields(run);
        self
    }
}

/// What a procedure does to what its key holds.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// To an entry (`None`: absent or overdue).
    Entry(OnEntry),
    /// To an entry with its rows, if it has rows.
    Held(OnHeld),
    /// To a collection; an absent one is empty. Without an outcome it answers how many fields came
    /// or went.
    Fields(OnFields),
    /// All fields of a collection, with their values if they have any. → `Bulk`, all in one run of
    /// bytes, or `Nil`; the first page of a large one if the caller reads it in pages. It takes one
    /// number, which says that ([`IN_PAGES`]).
    All,
}

/// What a procedure does to an entry.
pub(crate) type OnEntry = fn(&Inputs, Option<&Entry>, &RunContext) -> (Outcome, KeyChange);

/// What a procedure does to what its key holds.
pub(crate) type OnHeld = fn(&Inputs, FoundKey<'_>, &RunContext) -> (Outcome, KeyChange);

/// What a procedure does to the fields of a collection.
pub(crate) type OnFields =
    for<'a> fn(&'a Inputs, CollectionView<'a>, &RunContext) -> (Option<Outcome>, Edit<'a>);

impl Run {
    /// Runs it on what a key holds.
    fn of(
        self,
        inputs: &Inputs,
        (kind, found): (Kind, FoundKey<'_>),
        cx: &RunContext,
    ) -> (Outcome, KeyChange) {
        let run: OnFields = match self {
            Self::Entry(run) => return run(inputs, found.entry, cx),
            Self::Held(run) => return run(inputs, found, cx),
            Self::Fields(run) => run,
            Self::All => |_, view, cx| {
                let all = view.all(collection::answer_max(cx));
                let all = all.map(|all| all.map_or(Outcome::Nil, Outcome::Bulk));
                (Some(all.unwrap_or_else(Outcome::Failed)), Edit::None)
            },
        };
        let unpacked = UnpackedItems::new();
        let Some(view) = CollectionView::of(kind, found, &unpacked, cx) else {
            return failed(Failure::WrongType);
        };
        let (outcome, edit) = run(inputs, view, cx);
        if let Some(Outcome::Failed(failure)) = outcome {
            return failed(failure);
        }
        let (changed, change) = view.edited(edit, cx);
        match change {
            Ok(change) => (outcome.unwrap_or_else(|| count(changed)), change),
            Err(failure) => failed(failure),
        }
    }
}

/// An operation on several keys of one partition.
pub(crate) struct Joint {
    /// Its number on the wire, which no procedure has.
    pub(crate) number: u16,
    /// Its name, for people.
    pub(crate) name: &'static str,
    /// The name of the event by which subscribers of Redis hear of its writes.
    pub(crate) event: &'static str,
    /// The same for writes of further keys, if that is another one.
    pub(crate) event_of_others: Option<&'static str>,
    /// The collection that its keys hold, if they must.
    pub(crate) kind: Option<Kind>,
    /// From this level of the table on, it may be asked for.
    pub(crate) level: u16,
    /// How many numbers it takes.
    pub(crate) numbers: usize,
    /// Given the number of byte inputs: which of them are further keys, as a range and a step.
    /// `None`: it takes no such number of byte inputs.
    pub(crate) others: fn(usize) -> Option<(Range<usize>, usize)>,
    /// The map of its further keys, if its first key is in this one.
    pub(crate) map: fn(&Inputs, MapId) -> MapId,
    /// What it may do and cost.
    pub(crate) footprint: fn(&Inputs) -> Footprint,
    /// What it does. If it fails, it must have changed nothing.
    pub(crate) run: fn(&Inputs, (MapId, &[u8]), &mut Rows<'_>) -> Outcome,
}

/// A joint without further keys, which takes nothing, reads keys of any kind, and answers nothing.
pub(super) const JOINT: Joint = Joint {
    number: 0,
    name: "",
    event: "",
    event_of_others: None,
    kind: None,
    level: 0,
    numbers: 0,
    others: |runs| (runs == 0).then_some((0..0, 1)),
    map: |_, map| map,
    footprint: reads,
    run: |_, _, _| Outcome::Nil,
};

/// The number that a caller gives that reads a large collection in pages.
const IN_PAGES: i64 = 1;

/// What is called: an operation on one key, or on several.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Called {
    One(&'static Procedure),
    Several(&'static Joint),
}

impl From<&'static Procedure> for Called {
    fn from(procedure: &'static Procedure) -> Self {
        Self::One(procedure)
    }
}

impl From<&'static Joint> for Called {
    fn from(joint: &'static Joint) -> Self {
        Self::Several(joint)
    }
}

impl Called {
    /// Its number on the wire.
    pub(crate) const fn number(self) -> u16 {
        match self {
            Self::One(procedure) => procedure.number,
            Self::Several(joint) => joint.number,
        }
    }

    /// The name of the event by which subscribers of Redis hear of its writes.
    pub(crate) const fn event(self) -> Option<&'static str> {
        match self {
            Self::One(procedure) => procedure.event,
            Self::Several(joint) => Some(joint.event),
        }
    }

    fn takes(self, inputs: &Inputs) -> bool {
        let (numbers, runs) = (inputs.numbers.len(), inputs.bytes.len());
        match self {
            Self::One(procedure) => procedure.takes == (numbers, runs),
            Self::Several(joint) => joint.numbers == numbers && (joint.others)(runs).is_some(),
        }
    }
}

/// What a procedure does that only reads.
pub(crate) const READS: Footprint = Footprint {
    writes: false,
    answers_value: false,
    uses: true,
    looks_up: true,
    given: ValueSizes::NOTHING,
    stores: 0,
};

/// What a procedure does that answers with values.
pub(crate) const VALUES: Footprint = Footprint {
    answers_value: true,
    ..READS
};

/// The same, as procedures give it.
fn reads(_: &Inputs) -> Footprint {
    READS
}

/// The same for values.
pub(super) fn values(_: &Inputs) -> Footprint {
    VALUES
}

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

impl fmt::Debug for Procedure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Debug for Joint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Runs of bytes that a procedure is called with. Most are called with one.
pub(crate) type InputBytes = SmallVec<[Bytes; 1]>;

/// What a procedure is called with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Inputs {
    /// Numbers.
    pub(crate) numbers: SmallVec<[i64; 2]>,
    /// Runs of bytes.
    pub(crate) bytes: InputBytes,
}

impl Inputs {
    /// The sizes of its runs of bytes.
    pub(crate) fn given(&self) -> ValueSizes {
        ValueSizes::all(&self.bytes)
    }
}

/// A call of a procedure.
#[derive(Debug, Clone)]
pub struct ProcedureCall {
    pub(crate) called: Called,
    pub(crate) inputs: Inputs,
}

impl PartialEq for ProcedureCall {
    fn eq(&self, other: &Self) -> bool {
        self.called.number() == other.called.number() && self.inputs == other.inputs
    }
}

impl ProcedureCall {
    /// A call with these inputs, if it takes their number.
    pub(crate) fn new(
        called: impl Into<Called>,
        numbers: &[i64],
        bytes: impl Into<InputBytes>,
    ) -> Option<Self> {
        let (called, numbers, bytes) = (called.into(), numbers.into(), bytes.into());
        let inputs = Inputs { numbers, bytes };
        called.takes(&inputs).then_some(Self { called, inputs })
    }

    /// What its key must hold, if it exists. `None`: anything, as far as this is known before.
    pub(crate) const fn kind(&self) -> Option<Kind> {
        match self.called {
            Called::One(procedure) => Some(procedure.kind),
            Called::Several(_) => None,
        }
    }

    /// What made a change, if it was this.
    pub(crate) const fn by(&self) -> By {
        let by = By::procedure(self.called.number());
        match self.called {
            Called::Several(Joint {
                event_of_others: Some(_),
                ..
            }) => by.naming_two(),
            _ => by,
        }
    }

    /// From this level of the table on, it may be asked for.
    pub(crate) const fn level(&self) -> u16 {
        match self.called {
            Called::One(procedure) => procedure.kind.level(),
            Called::Several(joint) => joint.level,
        }
    }

    /// Whether it is about several keys.
    pub(crate) const fn is_joint(&self) -> bool {
        matches!(self.called, Called::Several(_))
    }

    /// Its keys besides the first, which is in this map.
    pub(crate) fn others(&self, map: MapId) -> impl Iterator<Item = (MapId, &Bytes)> + Clone {
        let (places, step, map) = match self.called {
            Called::One(_) => (0..0, 1, map),
            Called::Several(joint) => {
                let (places, step) = (joint.others)(self.inputs.bytes.len()).unwrap_or((0..0, 1));
                (places, step, (joint.map)(&self.inputs, map))
            }
        };
        let keys = self.inputs.bytes.get(places).unwrap_or_default();
        keys.iter().step_by(step.max(1)).map(move |key| (map, key))
    }

    /// Whether it reads all of a collection.
    pub(crate) const fn reads_all(&self) -> bool {
        matches!(self.called, Called::One(Procedure { run: Run::All, .. }))
    }

    /// Its caller reads a large collection in pages, if it is such a read.
    pub(crate) fn answer_in_pages(&mut self) {
        if self.reads_all() {
            self.inputs.numbers = [IN_PAGES][..].into();
        }
    }

    /// Whether its caller reads a large collection in pages.
    pub(crate) fn may_answer_in_pages(&self) -> bool {
        self.reads_all() && *self.inputs.numbers == [IN_PAGES]
    }

    /// What it may do and cost.
    pub(crate) fn footprint(&self) -> Footprint {
        match self.called {
            Called::One(procedure) => (procedure.footprint)(&self.inputs),
            Called::Several(joint) => (joint.footprint)(&self.inputs),
        }
    }

    /// Runs it on what the key holds.
    pub(crate) fn run(&self, found: FoundKey<'_>, cx: &RunContext) -> (Outcome, KeyChange) {
        match self.called {
            Called::One(Procedure { kind, .. }) if kind.level() > cx.level => {
                failed(Failure::OldMembers)
            }
            Called::One(procedure) => {
                let done = procedure.run.of(&self.inputs, (procedure.kind, found), cx);
                let keeps = done.1 == KeyChange::None || self.footprint().writes;
                debug_assert!(
                    keeps,
                    "{procedure:?} changes its key and says that it reads"
                );
                done
            }
            // One entry is not all that it needs.
            Called::Several(_) => failed(Failure::CrossPartition),
        }
    }

    /// Runs it on keys of a partition, if it is about several.
    pub(crate) fn run_joint(&self, key: (MapId, &[u8]), rows: &mut Rows<'_>) -> Option<Outcome> {
        match self.called {
            Called::One(_) => None,
            Called::Several(joint) if joint.level > rows.cx().level => {
                Some(Outcome::Failed(Failure::OldMembers))
            }
            Called::Several(joint) => Some((joint.run)(&self.inputs, key, rows)),
        }
    }
}
