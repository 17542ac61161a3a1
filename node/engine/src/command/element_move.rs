//! The steps that move an element of a list to a list in another partition.
//!
//! ```text
//!   look at the source ──> push to the target ──> pop from the source, if it is there ──> done
//!        ▲                                              │ another client took it
//!        └────────── take back from the target <────────┘ again
//! ```
//! The element is popped last, so it may be seen in both lists and is never in none. Equal elements
//! are the same to clients. So only the bytes at the end of the source are compared: each move adds
//! one element to the target, and takes an equal one out of the source, or out of the target again.
//! Moves in opposite directions keep the number of equal elements, too.

use super::lists::{
    INDEX, ListSide, POP_LEFT, POP_RIGHT, PUSH_LEFT, PUSH_RIGHT, REMOVE, item, sides_of,
};
use super::pops::BlockingPop;
use crate::command::operation::{Action, Footprint};
use crate::command::procedure::{Inputs, JOINT, Joint, Procedure, VALUES, WRITES};
use crate::command::rows::Rows;
use crate::value::kind::Kind;
use crate::value::outcome::Outcome;
use bytes::Bytes;
use doyen_placement::MapId;
use doyen_placement::level::GATHERED;

pub(crate) static JOINTS: &[&Joint] = &[&LOOK, &TAKE_LEFT, &TAKE_RIGHT];

/// The first of these numbers.
const NUMBER: u16 = 284;

/// The element at an index. → `Bulk` or `Nil`
static LOOK: Joint = Joint {
    number: NUMBER,
    name: "element look",
    kind: Some(Kind::List),
    level: GATHERED,
    numbers: 1,
    footprint: |_| VALUES,
    run: |inputs, (map, key), rows| {
        rows.step(map, key, &Action::call(&INDEX, &inputs.numbers, Vec::new()))
    },
    ..JOINT
};

/// Pops the first element, if it is this one. → `Int` 1; `Nil`: another one is there, or none
static TAKE_LEFT: Joint = Joint {
    number: NUMBER + 1,
    name: "element take left",
    event: "lpop",
    // The last element leaves as one that is popped.
    event_of_others: Some("lpop"),
    kind: Some(Kind::List),
    level: GATHERED,
    others: |runs| (runs == 1).then_some((0..0, 1)),
    footprint: |inputs| Footprint {
        given: inputs.given(),
        ..WRITES
    },
    run: |inputs, key, rows| take(inputs, key, rows, (ListSide::Left, &POP_LEFT)),
    ..JOINT
};

/// The same of the last one.
static TAKE_RIGHT: Joint = Joint {
    number: NUMBER + 2,
    name: "element take right",
    event: "rpop",
    event_of_others: Some("rpop"),
    run: |inputs, key, rows| take(inputs, key, rows, (ListSide::Right, &POP_RIGHT)),
    ..TAKE_LEFT
};

fn take(
    inputs: &Inputs,
    (map, key): (MapId, &[u8]),
    rows: &mut Rows<'_>,
    (side, pop): (ListSide, &'static Procedure),
) -> Outcome {
    let at_end = Action::call(&INDEX, &[end(side)], Vec::new());
    match rows.step(map, key, &at_end) {
        Outcome::Bulk(found) if *found == *inputs.bytes[0] => {}
        Outcome::Failed(failure) => return Outcome::Failed(failure),
        _ => return Outcome::Nil,
    }
    match rows.step(map, key, &Action::call(pop, &[-1], Vec::new())) {
        Outcome::Failed(failure) => Outcome::Failed(failure),
        _ => Outcome::Int(1),
    }
}

/// The index of an end.
const fn end(side: ListSide) -> i64 {
    match side {
        ListSide::Left => 0,
        ListSide::Right => -1,
    }
}

/// A command that moves an element of a list. The caller takes the steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementMove {
    /// The key that has it.
    pub from: Bytes,
    /// The key that gets it.
    pub to: Bytes,
    /// The end that it leaves, and the end to which it goes.
    sides: (ListSide, ListSide),
}

impl BlockingPop {
    /// What it moves, if its element goes to another key.
    #[must_use]
    pub fn moves(&self) -> Option<ElementMove> {
        Some(ElementMove {
            from: self.keys.first()?.clone(),
            to: self.to.clone()?,
            sides: sides_of(self.takes)?,
        })
    }
}

impl ElementMove {
    /// Looks at the end of the first list. → `Bulk` or `Nil`
    #[must_use]
    pub fn look(&self) -> Action {
        Action::call(&LOOK, &[end(self.sides.0)], Vec::new())
    }

    /// Pushes the element to the second list. → `Int`
    #[must_use]
    pub fn put(&self, element: &[u8]) -> Action {
        let push = match self.sides.1 {
            ListSide::Left => &PUSH_LEFT,
            ListSide::Right => &PUSH_RIGHT,
        };
        Action::call(push, &[0], [item(element)])
    }

    /// Pops the element from the first list, if it is still at the end. → `Int` 1; `Nil`: it is not
    #[must_use]
    pub fn take(&self, element: &[u8]) -> Action {
        let take = match self.sides.0 {
            ListSide::Left => &TAKE_LEFT,
            ListSide::Right => &TAKE_RIGHT,
        };
        Action::call(take, &[], [Bytes::copy_from_slice(element)])
    }

    /// Takes the element that was pushed out of the second list, or an equal one: the nearest to
    /// that end. → `Int` 1; 0: there is none any more
    #[must_use]
    pub fn take_back(&self, element: &[u8]) -> Action {
        let count = match self.sides.1 {
            ListSide::Left => 1,
            ListSide::Right => -1,
        };
        Action::call(&REMOVE, &[count], [Bytes::copy_from_slice(element)])
    }
}
