//! Commands that read strings of several keys together, and answer or store what comes of them.
//!
//! ```text
//!   keys of one partition ──> what the store holds ─┐
//!                                                   ├──> combine ──> answer
//!   keys of several ──> what was read (`gather`) ───┘         └────> store, as one operation
//! ```

use super::reply_tree::ReplyTree;
use super::sets::given;
use crate::command::operation::{Footprint, ValueSizes, stores};
use crate::command::procedure::{Inputs, Joint, WRITES};
use crate::command::rows::Rows;
use crate::store::run_context::RunContext;
use crate::value::entry::Entry;
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome};
use bytes::Bytes;
use doyen_placement::MapId;

/// The strings of keys, in the order in which they are given. `None`: the key is absent.
pub(super) type Strings<'a> = &'a [Option<&'a [u8]>];

/// What a command does with strings of several keys. The runs of its joint are keys, and nothing
/// else.
pub(super) struct StringsTogether {
    /// What does it in one partition.
    pub(super) joint: &'static Joint,
    /// What gives the first key the result, which is its only run. Without it, the first key is
    /// read as the others are, and the result is answered.
    pub(super) store: Option<&'static Joint>,
    /// What is answered if a key holds no string, if that is another text than Redis's usual one.
    pub(super) wrong_type: Option<&'static str>,
    /// The result: `Bulk` if it is stored.
    ///
    /// # Errors
    /// What is answered, because there is no result.
    pub(super) combine: fn(&Inputs, Strings<'_>, &RunContext<'_>) -> Result<Outcome, Outcome>,
}

impl std::fmt::Debug for StringsTogether {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.joint.name)
    }
}

impl StringsTogether {
    /// What is answered if a key holds no string.
    pub(super) fn refusal(&self) -> Outcome {
        let wrong = Outcome::Failed(Failure::WrongType);
        self.wrong_type.map_or(wrong, ReplyTree::error)
    }

    /// Does it to keys of one partition.
    pub(super) fn run(
        &self,
        inputs: &Inputs,
        (map, key): (MapId, &[u8]),
        rows: &mut Rows<'_>,
    ) -> Outcome {
        let own = self.store.is_none().then_some(key);
        let keys = own.into_iter().chain(inputs.bytes.iter().map(|key| &**key));
        let mut held = Vec::new();
        for key in keys {
            let entry = rows.find(map, key);
            if entry.as_ref().is_some_and(|it| it.kind() != Kind::String) {
                return self.refusal();
            }
            held.push(entry);
        }
        let strings: Vec<Option<&[u8]>> = held
            .iter()
            .map(|entry| entry.as_ref().map(Entry::value))
            .collect();
        match ((self.combine)(inputs, &strings, rows.cx()), self.store) {
            (Ok(Outcome::Bulk(result)), Some(store)) => {
                let inputs = Inputs {
                    bytes: [Bytes::copy_from_slice(&result)][..].into(),
                    ..Inputs::default()
                };
                (store.run)(&inputs, (map, key), rows)
            }
            (Ok(outcome) | Err(outcome), _) => outcome,
        }
    }
}

/// What a joint may do that gives a key its only run, which was gathered, or deletes the key if that
/// is empty.
pub(super) fn stores_gathered(inputs: &Inputs) -> Footprint {
    match inputs.bytes[0].len() {
        0 => Footprint {
            given: ValueSizes::NOTHING,
            ..WRITES
        },
        _ => stores(&inputs.bytes[0]),
    }
}

/// What a joint may do that gives its first key the result.
pub(super) fn stores_result(inputs: &Inputs) -> Footprint {
    Footprint {
        given: given(inputs),
        stores: given(inputs).bytes,
        ..WRITES
    }
}
