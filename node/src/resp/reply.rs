//! Encodes the shard's outcomes as Redis replies.

use super::command::Shape;
use super::encode::Encoder;
use doyen_engine::op::{Encoding, Failure, Outcome};

/// Redis's text if it does not count how often keys are used.
const NO_FREQUENCY: &str = "ERR An LFU maxmemory policy is not selected, access frequency not \
    tracked. Please note that when switching between policies at runtime LRU and LFU data will \
    take some time to adjust.";
/// An entry has one bit instead of a time: whether it was used since eviction last looked at it.
const NO_IDLE_TIME: &str =
    "ERR access time is not tracked: this server does not keep when a key was last used";

/// The text of a failure. `TRYAGAIN` and `CLUSTERDOWN` say that the operation did not happen.
/// `UNKNOWN` says that it may have happened.
#[must_use]
pub const fn failure(failure: Failure, shape: Shape) -> &'static str {
    match failure {
        Failure::NotAnInteger => "ERR value is not an integer or out of range",
        Failure::NotAFloat => "ERR value is not a valid float",
        Failure::Overflow if matches!(shape, Shape::Float) => {
            "ERR increment would produce NaN or Infinity"
        }
        Failure::Overflow => "ERR increment or decrement would overflow",
        Failure::TooLarge => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        Failure::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
        Failure::TooFewCopies => "NOREPLICAS Not enough good replicas to write.",
        Failure::NoPartition => {
            "CLUSTERDOWN Hash slot not served: this node has not joined a cluster yet, \
             or the keyspace was dropped"
        }
        Failure::Unavailable | Failure::Overtaken | Failure::Stopped => {
            "TRYAGAIN the partition is not served at the moment: nothing happened; try again later"
        }
        Failure::Stale => "TRYAGAIN the partition was split or merged: nothing happened; try again",
        Failure::Unknown => {
            "UNKNOWN the write may or may not have happened: read the key before you try again"
        }
        Failure::CrossPartition => "CROSSSLOT Keys in request don't hash to the same slot",
        Failure::OldMembers => {
            "ERR not every member of the cluster runs this version: nothing happened; finish the \
             upgrade"
        }
        Failure::Overloaded => {
            "BUSY too many operations are waiting, or their answers are too large: nothing \
             happened; try again later, or ask for less at once"
        }
    }
}

/// Appends an outcome.
pub fn outcome(encoder: &mut Encoder<'_>, shape: Shape, outcome: &Outcome) {
    match (outcome, shape) {
        (Outcome::Failed(why), _) => encoder.error(failure(*why, shape)),
        (Outcome::Ok, Shape::Flag) => encoder.integer(1),
        (Outcome::Nil, Shape::Flag) => encoder.integer(0),
        (Outcome::Int(ms), Shape::Seconds) if *ms >= 0 => {
            encoder.integer(ms / 1000 + i64::from(ms % 1000 >= 500))
        }
        (Outcome::Int(there), Shape::Type) => {
            encoder.simple(if *there == 0 { "none" } else { "string" })
        }
        (Outcome::Int(number), Shape::Encoding) => encoder.bulk(Encoding::name(*number).as_bytes()),
        // A missing key has neither references nor times.
        (Outcome::Int(0), Shape::References | Shape::Frequency | Shape::IdleTime) => encoder.nil(),
        (Outcome::Int(_), Shape::References) => encoder.integer(1),
        (Outcome::Int(_), Shape::Frequency) => encoder.error(NO_FREQUENCY),
        (Outcome::Int(_), Shape::IdleTime) => encoder.error(NO_IDLE_TIME),
        (Outcome::Ok, _) => encoder.simple("OK"),
        (Outcome::Nil, _) => encoder.nil(),
        (Outcome::Int(value), _) => encoder.integer(*value),
        (Outcome::Bulk(value), _) => encoder.bulk(value),
        // Operations that clients name by a key have no such outcome.
        (Outcome::Keys { .. } | Outcome::Many(_), _) => encoder.error("ERR unexpected outcome"),
    }
}
