//! Calls on a list.

use crate::command::lists;
use crate::command::operation::Action;
use crate::value::items::{Items, packed};
use crate::value::outcome::Outcome;
use bytes::Bytes;

/// An end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ListEnd {
    /// Where the first element is.
    Front,
    /// Where the last element is.
    Back,
}

/// Puts elements before the first one or behind the last one, in this order. → `Int`: how many
/// there are
#[must_use]
pub fn push<'a>(end: ListEnd, elements: impl Iterator<Item = &'a [u8]> + Clone) -> Action {
    let push = match end {
        ListEnd::Front => &lists::PUSH_LEFT,
        ListEnd::Back => &lists::PUSH_RIGHT,
    };
    Action::call(push, &[0], [packed(elements)])
}

/// Takes the element at an end out. → `Bulk`, or `Nil`: there is none
#[must_use]
pub fn pop(end: ListEnd) -> Action {
    let pop = match end {
        ListEnd::Front => &lists::POP_LEFT,
        ListEnd::Back => &lists::POP_RIGHT,
    };
    Action::call(pop, &[-1], Vec::new())
}

/// How many elements there are. → `Int`
#[must_use]
pub fn length() -> Action {
    Action::call(&lists::LENGTH, &[], Vec::new())
}

/// The element at an index, from the end if it is negative. → `Bulk`, or `Nil`: there is none
#[must_use]
pub fn get(index: i64) -> Action {
    Action::call(&lists::INDEX, &[index], Vec::new())
}

/// The elements from an index to another one, both included. → [`elements`]
#[must_use]
pub fn range(first: i64, last: i64) -> Action {
    Action::call(&lists::RANGE, &[first, last], Vec::new())
}

/// Gives the element at an index another value. → `Ok`; `Nil` or `Int`: there is no such element
#[must_use]
pub fn set(index: i64, element: Bytes) -> Action {
    Action::call(&lists::SET, &[index], [element])
}

/// Keeps the elements from an index to another one, both included. → `Ok`
#[must_use]
pub fn trim(first: i64, last: i64) -> Action {
    Action::call(&lists::TRIM, &[first, last], Vec::new())
}

/// Removes elements with this value: the first ones, up to this number, or all. → `Int`: how many
#[must_use]
pub fn remove(element: Bytes, most: Option<u32>) -> Action {
    Action::call(&lists::REMOVE, &[most.map_or(0, i64::from)], [element])
}

/// Takes the element at an end out, and puts it at an end of the list of another key, which is in
/// the same map and partition. → `Bulk`, or `Nil`: there is none
#[must_use]
pub fn move_to(from: ListEnd, other: Bytes, to: ListEnd) -> Action {
    let moves = match (from, to) {
        (ListEnd::Front, ListEnd::Front) => &lists::MOVE_LEFT_LEFT,
        (ListEnd::Front, ListEnd::Back) => &lists::MOVE_LEFT_RIGHT,
        (ListEnd::Back, ListEnd::Front) => &lists::MOVE_RIGHT_LEFT,
        (ListEnd::Back, ListEnd::Back) => &lists::MOVE_RIGHT_RIGHT,
    };
    Action::call(moves, &[], [other])
}

/// The elements that an outcome has. `None`: it has none.
#[must_use]
pub fn elements(outcome: &Outcome) -> Option<impl Iterator<Item = &[u8]>> {
    match outcome {
        Outcome::Bulk(all) => Some(Items(all)),
        Outcome::Nil => Some(Items(&[])),
        _ => None,
    }
}
