//! What a program that shows values of any type asks for: what a key holds, how long that is, and a
//! page of it. The types' own procedures answer, so a new type needs nothing here: those that list
//! its fields and count them are called `NAME scan` and `NAME length`.

use super::operation::Action;
use super::procedure::InputBytes;
use super::ranges;
use super::registry::procedure_of;
use crate::value::kind::Kind;
use crate::value::outcome::Outcome;
use bytes::Bytes;

/// How pages of a value are read.
#[derive(Debug, Clone, PartialEq)]
pub enum ValuePage {
    /// A run of bytes. → `Bulk`: a part of it
    Bytes(Action),
    /// Fields, or elements. → `Keys`: some of them, each followed by its value if it is `valued`,
    /// and `next`
    Fields {
        /// What to ask.
        action: Action,
        /// Whether fields have values.
        valued: bool,
    },
}

/// What a key holds, by the outcome of [`Action::Encoding`]. `None`: the key is absent.
#[must_use]
pub fn kind_of(outcome: &Outcome) -> Option<Kind> {
    match outcome {
        Outcome::Int(number) => Kind::of_encoding(*number).map(|(kind, _)| kind),
        _ => None,
    }
}

/// How long a value of this kind is: bytes, fields or elements. → `Int`
#[must_use]
pub fn length(kind: Kind) -> Action {
    let of_elements = kind.has_rows().then(|| procedure_of(kind, "length"));
    of_elements.flatten().map_or(Action::PeekLength, |length| {
        Action::call(length, &[], InputBytes::new())
    })
}

/// A page of a value of this kind: `count` bytes from the place `from` on, or about as many fields.
/// 0 begins. `None`: this kind has no pages.
#[must_use]
pub fn page(kind: Kind, from: u64, count: u32) -> Option<ValuePage> {
    // Cursors have 64 bits, and travel in an integer of 64 bits.
    let at = from.cast_signed();
    if !kind.has_rows() {
        let last = at.saturating_add(i64::from(count)).saturating_sub(1);
        let range = Action::call(&ranges::GET_RANGE, &[at, last], InputBytes::new());
        return (kind == Kind::String && at >= 0).then_some(ValuePage::Bytes(range));
    }
    let valued = kind.collection().is_some_and(|it| it.packing.is_valued());
    let numbers = [at, i64::from(count), i64::from(valued)];
    let all = Bytes::from_static(b"*");
    let action = Action::call(procedure_of(kind, "scan")?, &numbers, [all]);
    Some(ValuePage::Fields { action, valued })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_type_can_be_read_in_pages_and_counted() {
        for kind in Kind::ALL {
            let found = page(kind, 0, 10).expect("it has pages");
            let has_fields = kind.has_rows();
            match &found {
                ValuePage::Bytes(action) => assert!(!has_fields && !action.is_write()),
                ValuePage::Fields { action, .. } => assert!(has_fields && !action.is_write()),
            }
            // An action that a type lacks would only say whether the key exists.
            let is_call = matches!(
                found,
                ValuePage::Bytes(Action::Call(_))
                    | ValuePage::Fields {
                        action: Action::Call(_),
                        ..
                    }
            );
            assert!(is_call, "{kind:?}");
            let counts = length(kind);
            assert_eq!(matches!(counts, Action::Call(_)), has_fields, "{kind:?}");
        }
    }
}
