//! Writes that carry a fencing token: a number that grows with each grant of a lock (`sync`).
//!
//! The entry remembers the highest token that it was written with. A write with a lower one is
//! refused: it comes from a holder that has lost its lock without knowing it.
//! ```text
//!   E3, token (8), the value
//! ```

use super::action::{failed, set};
use super::procedure::{Inputs, Procedure, WRITES, procedure};
use crate::command::operation::{Action, Condition, Expiry, Footprint, ValueSizes};
use crate::store::change::KeyChange;
use crate::store::run_context::RunContext;
use crate::value::entry::Entry;
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome};
use bytes::Bytes;

/// The first byte of a value with a token.
const FENCED: u8 = 0xE3;
/// Bytes before the value.
const HEAD: usize = 1 + 8;

pub(crate) static PROCEDURES: &[&Procedure] = &[&SET];

/// Writes a value with a token. The numbers are the token and the deadline. → `Int` 1, or 0: a
/// higher token was seen
static SET: Procedure = procedure(100, "fenced-set", Kind::String, (3, 1))
    .costs(|inputs| Footprint {
        given: ValueSizes::one(&inputs.bytes[0]),
        stores: HEAD + inputs.bytes[0].len(),
        ..WRITES
    })
    .told_as("set")
    .on_entry(run);

fn run(inputs: &Inputs, entry: Option<&Entry>, cx: &RunContext) -> (Outcome, KeyChange) {
    let (&[token, unit, ms], value) = (&inputs.numbers[..], &inputs.bytes[0]) else {
        return failed(Failure::NotAnInteger);
    };
    let token = token.cast_unsigned();
    if entry
        .and_then(|entry| token_of(entry.value()))
        .is_some_and(|seen| seen > token)
    {
        return (Outcome::Int(0), KeyChange::None);
    }
    let mut whole = Vec::with_capacity(HEAD + value.len());
    whole.push(FENCED);
    whole.extend(token.to_le_bytes());
    whole.extend(&value[..]);
    let (whole, expiry) = (Bytes::from(whole), Expiry::of_numbers([unit, ms]));
    match set(entry, &whole, Condition::Always, expiry, false, cx) {
        (Outcome::Failed(failure), _) => failed(failure),
        (_, change) => (Outcome::Int(1), change),
    }
}

/// The token of a stored value; `None`: it has none.
#[must_use]
pub fn token_of(stored: &[u8]) -> Option<u64> {
    let [FENCED, rest @ ..] = stored else {
        return None;
    };
    rest.first_chunk().map(|token| u64::from_le_bytes(*token))
}

/// A stored value without its token, if it has one.
#[must_use]
pub fn unfenced(stored: &[u8]) -> &[u8] {
    match token_of(stored) {
        Some(_) => &stored[HEAD..],
        None => stored,
    }
}

/// Writes a value, unless its key was written with a higher token.
#[must_use]
pub fn set_fenced(token: u64, expiry: Expiry, value: Bytes) -> Action {
    let [unit, ms] = expiry.numbers();
    Action::call(&SET, &[token.cast_signed(), unit, ms], [value])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::action::apply;
    use crate::store::FoundKey;

    #[test]
    fn a_lower_token_is_refused_and_any_bytes_are_read() {
        let cx = RunContext::at(1_000, 1_700_000_000_000);
        let mut held: Option<Entry> = None;
        let mut write = |token, value: &'static str| {
            let action = set_fenced(token, Expiry::None, Bytes::from_static(value.as_bytes()));
            let found = FoundKey {
                entry: held.as_ref(),
                ..FoundKey::default()
            };
            let (outcome, change) = apply(&action, found, &cx);
            if let KeyChange::Put { value, .. } = change {
                held = Some(Entry::new(b"k", &value, 0, 0));
            }
            let value = held.as_ref().map(|held| unfenced(held.value()).to_vec());
            (
                outcome,
                value.map(|value| String::from_utf8_lossy(&value).into_owned()),
            )
        };
        assert_eq!(write(7, "a"), (Outcome::Int(1), Some("a".into())));
        assert_eq!(write(7, "b"), (Outcome::Int(1), Some("b".into())));
        assert_eq!(write(6, "c"), (Outcome::Int(0), Some("b".into())));
        assert_eq!(write(u64::MAX, "d"), (Outcome::Int(1), Some("d".into())));
        assert_eq!(write(8, "e"), (Outcome::Int(0), Some("d".into())));
        for stored in [&[][..], &[FENCED], &[FENCED, 1, 2], b"plain"] {
            assert_eq!((token_of(stored), unfenced(stored)), (None, stored));
        }
    }
}
