//! Calls on a set.

use crate::command::collections::seed;
use crate::command::operation::Action;
use crate::command::{browse, sets};
use crate::value::items::packed;
use crate::value::kind::Kind;
use bytes::Bytes;

/// Adds members. → `Int`: how many are new
#[must_use]
pub fn add<'a>(members: impl Iterator<Item = &'a [u8]> + Clone) -> Action {
    Action::call(&sets::ADD, &[], [packed(members)])
}

/// Removes members. → `Int`: how many there were
#[must_use]
pub fn remove<'a>(members: impl Iterator<Item = &'a [u8]> + Clone) -> Action {
    Action::call(&sets::REMOVE, &[], [packed(members)])
}

/// Whether there is this member. → `Int` 1 or 0
#[must_use]
pub fn has(member: Bytes) -> Action {
    Action::call(&sets::HAS, &[], [member])
}

/// How many members there are. → `Int`
#[must_use]
pub fn length() -> Action {
    Action::call(&sets::LENGTH, &[], Vec::new())
}

/// Takes a random member out. → `Bulk`, or `Nil`: there is none
#[must_use]
pub fn pop() -> Action {
    Action::call(&sets::POP, &[-1, seed()], Vec::new())
}

/// About `count` members from a cursor on; 0 begins. → `Keys`, whose `next` is 0 at the end
#[must_use]
pub fn page(cursor: u64, count: u32) -> Action {
    match browse::page(Kind::Set, cursor, count) {
        Some(browse::ValuePage::Fields { action, .. } | browse::ValuePage::Bytes(action)) => action,
        // Sets have pages.
        None => Action::Exists,
    }
}
