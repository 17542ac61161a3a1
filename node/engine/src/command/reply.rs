//! What a caller is answered: an outcome, in the shape that its command gives it.

use super::error::{ErrorText, NOT_A_FLOAT, NOT_AN_INTEGER};
use super::reply_tree::reply_of;
use super::{Fields, Part};
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome, Value};

/// A reply, for RESP's encoder and for scripts.
#[derive(Debug, Clone, PartialEq)]
pub enum CommandReply {
    /// A word such as `OK`, without line breaks.
    Status(&'static str),
    /// An error.
    Error(ErrorText),
    /// A number.
    Int(i64),
    /// Bytes, shared with the store that they came from.
    Bulk(Value),
    /// A number with a fraction, as a text. RESP3 has a form of its own for it.
    Double(Value),
    /// There is nothing to answer with.
    Nil,
    /// The same where several replies would be.
    NilArray,
    /// Several replies in order.
    Array(Vec<Self>),
    /// The same, two and two: each pair is an array in RESP3, and in RESP2 all stand in one.
    Pairs(Vec<Self>),
    /// Names, each followed by a reply: a map in RESP3, and all in one array in RESP2.
    Map(Vec<Self>),
    /// The same. In RESP2, each pair is an array in an array.
    Keyed(Vec<Self>),
    /// What a collection has: in RESP3 a map if fields and values are answered, and a set if they
    /// have no values.
    Fields(Fields),
    /// A reply that is in RESP already.
    Encoded(Value),
}

impl CommandReply {
    /// Done.
    pub const OK: Self = Self::Status("OK");

    const fn error(text: &'static str) -> Self {
        Self::Error(ErrorText::fixed(text))
    }
}

/// How an outcome is shown as a command's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// As it is.
    Plain,
    /// `Ok` is 1, `Nil` is 0 (SETNX).
    Flag,
    /// `Nil` is an error: there is no such key (RENAME).
    Renamed,
    /// `Nil` is an error: both keys are the same (COPY).
    Copied,
    /// `Nil` is an error: there is a key of this name (RESTORE).
    Restored,
    /// As it is. What is too large is all of the command (MSETNX).
    Together,
    /// Milliseconds become seconds, rounded (TTL, EXPIRETIME).
    Seconds,
    /// What a key holds by the number of its encoding; `none`, if it is absent (TYPE).
    Type,
    /// A number that may be infinite (INCRBYFLOAT): another text on overflow.
    Float,
    /// As it is, with these texts if it failed.
    Worded(&'static Words),
    /// The same, and `OK`, whatever number it is (HMSET).
    Done(&'static Words),
    /// A part of a collection.
    Fields(Part),
    /// The first of several (HRANDFIELD).
    First,
    /// Several; none if the key is absent.
    List,
    /// The same, two and two.
    Pairs,
    /// A score, or several: texts become numbers (ZSCORE).
    Score,
    /// Members, each with its score, two and two (ZRANGE).
    Scored,
    /// The same of one, or of a rank (ZRANK): a nil array if there is none.
    LastScore,
    /// A key, and members with their scores (ZMPOP).
    Popped,
    /// The same of one member, in one array (BZPOPMIN).
    PoppedOne,
    /// What was taken; a nil array if nothing was (LPOP with a count).
    Taken,
    /// A tree (`reply_tree`), or as it is (XADD).
    Tree,
    /// The same; a nil array if nothing was found (XREAD).
    TreeTaken,
    /// `Nil` is an error: there is no such key; so is a number: there is no such element (LSET).
    Indexed,
    /// A page of a scan, and where the next one begins.
    Page,
    /// What Redis calls the encoding of this number (OBJECT ENCODING).
    Encoding,
    /// 1 if the key exists, else nil (OBJECT REFCOUNT).
    References,
    /// An error if the key exists, else nil (OBJECT FREQ): the server does not count how often a
    /// key is used.
    Frequency,
    /// An error if the key exists, else nil (OBJECT IDLETIME): the server does not keep when a key
    /// was last used.
    IdleTime,
    /// The value is a reply in RESP (EVAL).
    Encoded,
}

/// Texts of failures that say more if they are about the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Words {
    pub(super) not_an_integer: &'static str,
    pub(super) not_a_float: &'static str,
    pub(super) overflow: &'static str,
    pub(super) too_large: &'static str,
}

impl Words {
    pub(super) const PLAIN: Self = Self {
        not_an_integer: NOT_AN_INTEGER,
        not_a_float: NOT_A_FLOAT,
        overflow: "ERR increment or decrement would overflow",
        too_large: "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
    };
}

/// What is asked for is larger than an answer may be.
pub(super) const TOO_LARGE_ANSWER: &str = "ERR the value is too large for one answer \
    (--value-max): read it in parts, with the SCAN command of its type";

/// Redis's text if a sum of decimal numbers is none.
pub(super) const NOT_FINITE: &str = "ERR increment would produce NaN or Infinity";

/// Redis's text if a key is to be copied to itself.
pub(super) const SAME_OBJECT: &str = "ERR source and destination objects are the same";

/// Redis's text if it does not count how often keys are used.
const NO_FREQUENCY: &str = "ERR An LFU maxmemory policy is not selected, access frequency not \
    tracked. Please note that when switching between policies at runtime LRU and LFU data will \
    take some time to adjust.";
/// An entry has one bit instead of a time: whether it was used since eviction last looked at it.
const NO_IDLE_TIME: &str =
    "ERR access time is not tracked: this server does not keep when a key was last used";

impl Shape {
    /// The reply of this outcome. A value stays shared with the store.
    #[must_use]
    pub fn reply(self, outcome: Outcome) -> CommandReply {
        match (outcome, self) {
            (Outcome::Failed(why), _) => CommandReply::error(self.failure(why)),
            (Outcome::Ok, Self::Flag) => CommandReply::Int(1),
            (Outcome::Nil, Self::Flag) => CommandReply::Int(0),
            (Outcome::Int(ms), Self::Seconds) if ms >= 0 => {
                CommandReply::Int(ms / 1000 + i64::from(ms % 1000 >= 500))
            }
            (Outcome::Nil, Self::Renamed | Self::Indexed) => CommandReply::error("ERR no such key"),
            (Outcome::Int(_), Self::Indexed) => CommandReply::error("ERR index out of range"),
            (Outcome::Nil, Self::Copied) => CommandReply::error(SAME_OBJECT),
            (Outcome::Nil, Self::Restored) => {
                CommandReply::error("BUSYKEY Target key name already exists.")
            }
            (Outcome::Nil, Self::Type) => CommandReply::Status("none"),
            (Outcome::Int(number), Self::Type) => {
                let kind = Kind::of_encoding(number).map_or(Kind::String, |(kind, _)| kind);
                CommandReply::Status(kind.name())
            }
            (Outcome::Int(_), Self::Done(_)) => CommandReply::OK,
            (Outcome::Nil, Self::Fields(part)) => CommandReply::Fields(Fields::new(None, part)),
            (Outcome::Bulk(value), Self::Fields(part)) => {
                CommandReply::Fields(Fields::new(Some(value), part))
            }
            (Outcome::Nil, Self::List | Self::Pairs | Self::Scored) => {
                CommandReply::Array(Vec::new())
            }
            (Outcome::Many(mut all), Self::First) if !all.is_empty() => {
                Self::Plain.reply(all.swap_remove(0))
            }
            (Outcome::Many(all), Self::Pairs) => CommandReply::Pairs(plain(all)),
            (Outcome::Bulk(score), Self::Score) => CommandReply::Double(score),
            (Outcome::Many(all), Self::Score) => {
                CommandReply::Array(all.into_iter().map(|one| self.reply(one)).collect())
            }
            (Outcome::Many(all), Self::Scored) => CommandReply::Pairs(scored(all)),
            (Outcome::Many(all), Self::LastScore) => CommandReply::Array(scored(all)),
            (
                Outcome::Nil,
                Self::Popped | Self::PoppedOne | Self::Taken | Self::TreeTaken | Self::LastScore,
            ) => CommandReply::NilArray,
            (Outcome::Bulk(tree), Self::Tree | Self::TreeTaken) => reply_of(&tree),
            (Outcome::Many(all), Self::PoppedOne) => {
                let parts = all.into_iter().flat_map(|part| match part {
                    Outcome::Many(members) => scored(members),
                    key => vec![Self::Plain.reply(key)],
                });
                CommandReply::Array(parts.collect())
            }
            (Outcome::Many(all), Self::Popped) => {
                let members = |part| match part {
                    Outcome::Many(members) => {
                        let members = scored(members);
                        let pairs = members.chunks(2);
                        CommandReply::Array(
                            pairs
                                .map(|pair| CommandReply::Array(pair.to_vec()))
                                .collect(),
                        )
                    }
                    key => Self::Plain.reply(key),
                };
                CommandReply::Array(all.into_iter().map(members).collect())
            }
            (Outcome::Many(all), _) => CommandReply::Array(plain(all)),
            (Outcome::Keys { next, keys }, Self::Page) => {
                let bulk = |bytes: &[u8]| CommandReply::Bulk(Value::from(bytes));
                let items = keys.iter().map(|key| bulk(key)).collect();
                CommandReply::Array(vec![
                    bulk(next.to_string().as_bytes()),
                    CommandReply::Array(items),
                ])
            }
            (Outcome::Int(number), Self::Encoding) => {
                let name = Kind::of_encoding(number).map_or("raw", |(_, encoding)| encoding.name);
                CommandReply::Bulk(name.as_bytes().into())
            }
            // A missing key has neither references nor times.
            (Outcome::Int(0), Self::References | Self::Frequency | Self::IdleTime) => {
                CommandReply::Nil
            }
            (Outcome::Int(_), Self::References) => CommandReply::Int(1),
            (Outcome::Int(_), Self::Frequency) => CommandReply::error(NO_FREQUENCY),
            (Outcome::Int(_), Self::IdleTime) => CommandReply::error(NO_IDLE_TIME),
            (Outcome::Ok, _) => CommandReply::OK,
            (Outcome::Nil, _) => CommandReply::Nil,
            (Outcome::Int(number), _) => CommandReply::Int(number),
            (Outcome::Bulk(reply), Self::Encoded) => CommandReply::Encoded(reply),
            (Outcome::Bulk(value), _) => CommandReply::Bulk(value),
            // Other operations that clients name by a key have no such outcome.
            (Outcome::Keys { .. }, _) => CommandReply::error("ERR unexpected outcome"),
        }
    }

    /// How failures of the command are worded.
    const fn words(self) -> Words {
        let plain = Words::PLAIN;
        match self {
            Self::Worded(words) | Self::Done(words) => *words,
            Self::Score => Words {
                overflow: "ERR resulting score is not a number (NaN)",
                ..plain
            },
            Self::Float => Words {
                overflow: NOT_FINITE,
                ..plain
            },
            Self::Fields(_) | Self::Pairs | Self::List | Self::Scored => Words {
                too_large: TOO_LARGE_ANSWER,
                ..plain
            },
            Self::Tree | Self::TreeTaken => Words {
                too_large: "ERR the entries are larger together than one value may be \
                            (--value-max): nothing happened; add less, or read fewer at once \
                            with COUNT",
                ..plain
            },
            Self::Restored => Words {
                too_large: "ERR the value is larger than one value may be (--value-max), or than \
                            one command may write: nothing was written; write it in parts, with \
                            the commands of its type",
                ..plain
            },
            Self::Together => Words {
                too_large: "ERR the keys and values are larger together than one value may be \
                            (--value-max): nothing was written; write them with several commands",
                ..plain
            },
            Self::Renamed | Self::Copied => Words {
                too_large: "ERR the value is too large to be renamed or copied inside of MULTI or \
                            a script (--value-max): nothing happened; send the command by itself",
                ..plain
            },
            _ => plain,
        }
    }

    /// The text of a failure. `TRYAGAIN` and `CLUSTERDOWN` say that the operation did not happen.
    /// `UNKNOWN` says that it may have happened.
    #[must_use]
    pub const fn failure(self, why: Failure) -> &'static str {
        match why {
            Failure::WrongType => {
                "WRONGTYPE Operation against a key holding the wrong kind of value"
            }
            Failure::NotAnInteger => self.words().not_an_integer,
            Failure::NotAFloat => self.words().not_a_float,
            Failure::Overflow => self.words().overflow,
            Failure::TooLarge => self.words().too_large,
            Failure::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
            // Redis clients reach no map with limits.
            Failure::MapFull => "ERR the map holds as much as it may: nothing was written",
            Failure::Dropped => "ERR the map was dropped: nothing happened",
            Failure::TooFewCopies => "NOREPLICAS Not enough good replicas to write.",
            Failure::NoPartition => {
                "CLUSTERDOWN Hash slot not served: this node has not joined a cluster yet, \
                 or the keyspace was dropped"
            }
            Failure::Unavailable | Failure::Overtaken | Failure::Stopped => {
                "TRYAGAIN the partition is not served at the moment: nothing happened; \
                 try again later"
            }
            Failure::Stale => {
                "TRYAGAIN the partition was split or merged: nothing happened; try again"
            }
            Failure::Unknown => {
                "UNKNOWN the write may or may not have happened: read the key before you try again"
            }
            Failure::CrossPartition => {
                "CROSSSLOT the keys are in several partitions: nothing happened; give them the \
                 same {tag}, as in {user1}:name and {user1}:mail, or keep all keys in one \
                 partition with --preset one-server"
            }
            Failure::NoScripts => {
                "ERR the node that has the keys was built without scripts: nothing happened"
            }
            Failure::OldMembers => {
                "ERR some member speaks only an older level, because its program is older or it \
                 was started with --level-max: nothing happened; update it, or start it without \
                 --level-max (`doyen status` shows the level)"
            }
            Failure::TooMuchWork => {
                "ERR too much work for one command, transaction or script: nothing happened; split \
                 it into smaller ones, and read large collections with HSCAN or SSCAN"
            }
            Failure::Overloaded => {
                "BUSY too many operations are waiting, or their answers are too large: nothing \
                 happened; try again later, or ask for less at once"
            }
        }
    }
}

/// The same where each second one is a score.
fn scored(all: Vec<Outcome>) -> Vec<CommandReply> {
    let shapes = [Shape::Plain, Shape::Score].into_iter().cycle();
    let replies = all.into_iter().zip(shapes);
    replies.map(|(one, shape)| shape.reply(one)).collect()
}

/// Outcomes of the parts of an operation.
fn plain(all: Vec<Outcome>) -> Vec<CommandReply> {
    let replies = all.into_iter().map(|one| Shape::Plain.reply(one));
    replies.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(bytes: &[u8]) -> Value {
        Value::from(bytes)
    }

    #[test]
    fn an_outcome_is_answered_in_the_shape_of_its_command() {
        let error = |text: &'static str| CommandReply::Error(text.into());
        let bulk = |text: &str| CommandReply::Bulk(value(text.as_bytes()));
        for (shape, outcome, reply) in [
            (Shape::Plain, Outcome::Ok, CommandReply::OK),
            (Shape::Plain, Outcome::Nil, CommandReply::Nil),
            (Shape::Plain, Outcome::Int(-7), CommandReply::Int(-7)),
            (Shape::Plain, Outcome::Bulk(value(b"v")), bulk("v")),
            (Shape::Flag, Outcome::Ok, CommandReply::Int(1)),
            (Shape::Flag, Outcome::Nil, CommandReply::Int(0)),
            (Shape::Renamed, Outcome::Ok, CommandReply::OK),
            (Shape::Renamed, Outcome::Int(0), CommandReply::Int(0)),
            (Shape::Renamed, Outcome::Nil, error("ERR no such key")),
            (Shape::Copied, Outcome::Nil, error(SAME_OBJECT)),
            (Shape::Seconds, Outcome::Int(-2), CommandReply::Int(-2)),
            (Shape::Seconds, Outcome::Int(1499), CommandReply::Int(1)),
            (Shape::Seconds, Outcome::Int(1500), CommandReply::Int(2)),
            (Shape::Type, Outcome::Nil, CommandReply::Status("none")),
            (Shape::Type, Outcome::Int(1), CommandReply::Status("string")),
            (Shape::Type, Outcome::Int(4), CommandReply::Status("hash")),
            (Shape::Float, Outcome::Bulk(value(b"1.5")), bulk("1.5")),
            (Shape::Encoding, Outcome::Int(0), bulk("int")),
            (Shape::Encoding, Outcome::Nil, CommandReply::Nil),
            (Shape::References, Outcome::Int(0), CommandReply::Nil),
            (Shape::References, Outcome::Int(1), CommandReply::Int(1)),
            (Shape::Frequency, Outcome::Int(0), CommandReply::Nil),
            (Shape::Frequency, Outcome::Int(1), error(NO_FREQUENCY)),
            (Shape::IdleTime, Outcome::Int(0), CommandReply::Nil),
            (Shape::IdleTime, Outcome::Int(1), error(NO_IDLE_TIME)),
        ] {
            assert_eq!(shape.reply(outcome.clone()), reply, "{shape:?} {outcome:?}");
        }
    }

    #[test]
    fn an_overflow_is_worded_by_the_kind_of_the_number() {
        let overflow = |shape: Shape| shape.reply(Outcome::Failed(Failure::Overflow));
        for (shape, text) in [
            (Shape::Plain, "ERR increment or decrement would overflow"),
            (Shape::Float, "ERR increment would produce NaN or Infinity"),
        ] {
            assert_eq!(overflow(shape), CommandReply::Error(text.into()));
        }
    }

    #[test]
    fn a_value_is_answered_without_a_copy() {
        let stored = value(&[7; 100]);
        let CommandReply::Bulk(answered) = Shape::Plain.reply(Outcome::Bulk(stored.clone())) else {
            panic!("a value is answered as bytes");
        };
        assert!(std::ptr::eq(&*answered, &*stored));
    }
}
