//! Commands on several keys: the same operation on each. Each key's operation is atomic by itself.

use super::{Arguments, CommandReply, Shape};
use crate::command::operation::Action;
use crate::value::outcome::{Failure, Outcome};

/// What is done to each key. The first key is the first argument after the command's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Many {
    /// Get the values.
    Get,
    /// Set keys and values, which come in turn.
    Set,
    /// Delete keys, and count them.
    Delete,
    /// Count the keys that exist.
    Exists,
    /// The same, and mark them as used.
    Touch,
}

/// How the outcomes of the parts are joined to one reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// An array of values.
    Values,
    /// The sum.
    Sum,
    /// How many were deleted.
    Deleted,
    /// `OK`.
    Written,
}

impl Many {
    /// How many arguments a part has, its key first.
    #[must_use]
    pub const fn step(self) -> usize {
        match self {
            Self::Get | Self::Delete | Self::Exists | Self::Touch => 1,
            Self::Set => 2,
        }
    }

    /// How the outcomes are joined.
    #[must_use]
    pub const fn join(self) -> Join {
        match self {
            Self::Get => Join::Values,
            Self::Set => Join::Written,
            Self::Delete => Join::Deleted,
            Self::Exists | Self::Touch => Join::Sum,
        }
    }

    /// The operation of the part whose key is the argument at this place.
    #[must_use]
    pub fn action(self, args: &dyn Arguments, key: usize) -> Action {
        match self {
            Self::Get => Action::Get,
            Self::Set => Action::set(args.bytes(key + 1)),
            Self::Delete => Action::Delete,
            Self::Exists => Action::Exists,
            Self::Touch => Action::Touch,
        }
    }
}

impl Join {
    /// The outcome of a part as it counts: what is no string has no value, as in Redis.
    #[must_use]
    pub fn of_part(self, outcome: Outcome) -> Outcome {
        match (self, outcome) {
            (Self::Values, Outcome::Failed(Failure::WrongType)) => Outcome::Nil,
            (_, outcome) => outcome,
        }
    }

    /// The reply of parts that had these outcomes, in the order of their keys. If a part failed,
    /// the first failure is the reply.
    #[must_use]
    pub fn reply(self, outcomes: impl IntoIterator<Item = Outcome>) -> CommandReply {
        let (mut values, mut sum) = (Vec::new(), 0_i64);
        for outcome in outcomes {
            match (self, self.of_part(outcome)) {
                (_, failed @ Outcome::Failed(_)) => return Shape::Plain.reply(failed),
                (Self::Values, outcome) => values.push(Shape::Plain.reply(outcome)),
                (Self::Sum | Self::Deleted, Outcome::Int(number)) => {
                    sum = sum.saturating_add(number);
                }
                (Self::Sum | Self::Deleted | Self::Written, _) => {}
            }
        }
        match self {
            Self::Values => CommandReply::Array(values),
            Self::Sum | Self::Deleted => CommandReply::Int(sum),
            Self::Written => CommandReply::OK,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn each_part_has_its_key_and_its_operation() {
        let args = ["MSET", "a", "1", "b", "2"].map(Bytes::from);
        let actions: Vec<Action> = (1..args.len())
            .step_by(Many::Set.step())
            .map(|key| Many::Set.action(&&args[..], key))
            .collect();
        let set = |value: &'static str| Action::set(value.into());
        assert_eq!(actions, [set("1"), set("2")]);
        assert_eq!(Many::Get.action(&&args[..], 2), Action::Get);
    }

    #[test]
    fn outcomes_of_all_keys_are_one_reply() {
        let value = || Outcome::Bulk(b"v"[..].into());
        let ints = || [Outcome::Int(1), Outcome::Int(0), Outcome::Int(1)];
        assert_eq!(
            Many::Get.join().reply([value(), Outcome::Nil]),
            CommandReply::Array(vec![CommandReply::Bulk(b"v"[..].into()), CommandReply::Nil])
        );
        let hash = || Outcome::Failed(Failure::WrongType);
        assert_eq!(
            Many::Get.join().reply([hash(), value()]),
            CommandReply::Array(vec![CommandReply::Nil, CommandReply::Bulk(b"v"[..].into())])
        );
        assert_eq!(Many::Delete.join().reply(ints()), CommandReply::Int(2));
        assert_eq!(Many::Exists.join().reply(ints()), CommandReply::Int(2));
        assert_eq!(
            Many::Set.join().reply([Outcome::Ok, Outcome::Ok]),
            CommandReply::OK
        );
        for many in [Many::Get, Many::Set, Many::Delete, Many::Touch] {
            let failed = Outcome::Failed(Failure::OutOfMemory);
            assert_eq!(
                many.join()
                    .reply([Outcome::Int(1), failed.clone(), value()]),
                Shape::Plain.reply(failed),
                "{many:?}"
            );
        }
    }
}
