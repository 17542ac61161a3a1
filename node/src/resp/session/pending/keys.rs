//! Commands with many keys (`MGET`, `MSET`, `DEL` and the like): one operation for each key.
//!
//! Keys are submitted in slices. The arguments stay where they were parsed until all keys are
//! submitted, and the connection takes nothing more until then.

use super::{
    Arrived, ArrivedOutcome, Hold, Outstanding, PendingReply, ReplyAsker, SessionEffect,
    encode_failure,
};
use crate::resp::budget::BudgetRoom;
use crate::resp::encode::Encoder;
use crate::resp::frame::Args;
use crate::resp::session::charges::{Charges, PENDING_BYTES_MAX, ReplyWeight};
use crate::resp::session::{OUTPUT_BYTES_SOFT, REPLY_BYTES_MAX, SLICE_KEYS};
use doyen_engine::command::{Join, Many, Shape};
use doyen_engine::op::{Failure, Operation, Outcome};
use doyen_placement::{KeyspaceId, MapId};

/// Bytes of keys and values that are submitted in one slice.
const SLICE_BYTES: usize = 1 << 20;
/// Keys of one command that wait for their outcomes at the same time, at most. Further keys are
/// submitted as outcomes arrive.
const KEYS_ASKED_MAX: usize = 8192;

/// The reply of a command with many keys.
#[derive(Debug)]
pub(crate) struct KeysReply {
    about: (KeyspaceId, MapId),
    touches: bool,
    many: Many,
    asked: Outstanding,
    /// The next argument, and the next part. `None`: all parts are submitted.
    next: Option<(usize, u32)>,
    /// What the next part waits for.
    hold: Hold,
    /// The values, for [`Join::Values`].
    values: Vec<Outcome>,
    /// The sum, for [`Join::Sum`] and [`Join::Deleted`].
    sum: i64,
    /// How many parts were executed.
    done: usize,
    failure: Option<Failure>,
    /// Bytes that only this answer holds.
    held: usize,
    /// Bytes of the values that arrived, including those that others hold too.
    found: usize,
    /// How many values are encoded already, once encoding has begun.
    encoded: Option<usize>,
}

impl KeysReply {
    /// Of a command with this many keys. `touches`: its reads are uses of the keys.
    pub(crate) fn new(about: (KeyspaceId, MapId), touches: bool, many: Many, keys: usize) -> Self {
        let values = match many.join() {
            Join::Values => vec![Outcome::Nil; keys],
            Join::Sum | Join::Deleted | Join::Written => Vec::new(),
        };
        Self {
            about,
            touches,
            many,
            asked: Outstanding::default(),
            next: Some((1, 0)),
            hold: Hold::No,
            values,
            sum: 0,
            done: 0,
            failure: None,
            held: 0,
            found: 0,
            encoded: None,
        }
    }

    /// Asks for nothing more. It ends once everything under way is answered.
    fn fail(&mut self, why: Failure) {
        self.failure = Some(why);
        self.hold = Hold::No;
        self.values.clear();
        self.held = 0;
    }
}

impl PendingReply for KeysReply {
    fn asked(&self) -> &Outstanding {
        &self.asked
    }

    fn take(&mut self, arrived: Arrived) -> SessionEffect {
        let Arrived::Outcome(came) = arrived else {
            return SessionEffect::Nothing;
        };
        let ArrivedOutcome {
            part,
            token,
            outcome,
            copied,
            ..
        } = came;
        if !self.asked.take(token) {
            return SessionEffect::Nothing;
        }
        match self.many.join().of_part(outcome) {
            Outcome::Failed(why) => {
                // An operation that may have happened outweighs those that did not.
                let worst = self.failure.filter(|worst| *worst == Failure::Unknown);
                self.fail(worst.unwrap_or(why));
                return SessionEffect::Nothing;
            }
            _ if self.failure.is_some() => {}
            outcome if self.many.join() == Join::Values => {
                self.held += copied;
                self.found += outcome.bytes();
                if self.found > REPLY_BYTES_MAX {
                    self.fail(Failure::TooLarge);
                    return SessionEffect::Nothing;
                }
                if let Some(value) = self.values.get_mut(part as usize) {
                    *value = outcome;
                }
            }
            Outcome::Int(number) => self.sum = self.sum.saturating_add(number),
            _ => {}
        }
        self.done += 1;
        SessionEffect::Nothing
    }

    fn is_whole(&self) -> bool {
        self.asked.waits() == 0 && self.next.is_none()
    }

    fn ask_further(
        &mut self,
        args: Args<'_>,
        asker: &mut ReplyAsker<'_>,
        (charges, weight): (&mut Charges, &mut ReplyWeight),
    ) -> bool {
        let (mut keys, mut bytes) = (0, 0);
        self.hold = Hold::No;
        while let Some((at, part)) = self.next
            && at < args.len()
            && self.failure.is_none()
        {
            if keys >= SLICE_KEYS || bytes >= SLICE_BYTES || weight.expected() >= PENDING_BYTES_MAX
            {
                return false;
            }
            let waits = self.asked.waits();
            if waits >= KEYS_ASKED_MAX || waits > 0 && asker.context.shard().room() == 0 {
                self.hold = Hold::Outcomes(waits / 2);
                return false;
            }
            let (keyspace, map) = self.about;
            let action = self.many.action(&args, at);
            let action = if self.touches {
                action
            } else {
                action.untouching()
            };
            let footprint = action.footprint();
            // Values that this thread leads are no copies.
            if footprint.answers_value
                && charges.must_wait()
                && !asker
                    .context
                    .shard()
                    .partitions()
                    .leads(keyspace, map, args.get(at))
            {
                match charges.room_to_ask(weight) {
                    BudgetRoom::Now => {}
                    BudgetRoom::Later => {
                        self.hold = Hold::Room;
                        return false;
                    }
                    BudgetRoom::Never(_) if weight.expected() > 0 => {
                        self.hold = Hold::Answers;
                        return false;
                    }
                    BudgetRoom::Never(why) => {
                        let held = self.held;
                        self.fail(why);
                        charges.hold(weight, held, 0);
                        break;
                    }
                }
            }
            let given = footprint.given.bytes;
            keys += 1;
            bytes += args.get(at).len() + given;
            let operation = Operation {
                keyspace,
                map,
                key: args.bytes(at),
                action,
            };
            let elsewhere = self.asked.ask(asker, part, operation);
            let expected = charges.expects(elsewhere && footprint.answers_value);
            charges.ask(weight, given, expected);
            self.next = Some((at + self.many.step(), part + 1));
        }
        self.next = None;
        charges.end_turn();
        true
    }

    fn hold(&self) -> Hold {
        self.hold
    }

    fn held(&self) -> usize {
        self.held
    }

    fn encode(&mut self, encoder: &mut Encoder<'_>) -> bool {
        if let Some(why) = self.failure {
            let join = self.many.join();
            let writes = matches!(join, Join::Written | Join::Deleted);
            encode_failure(encoder, why, join == Join::Values, writes && self.done > 0);
            return true;
        }
        match self.many.join() {
            Join::Sum | Join::Deleted => encoder.integer(self.sum),
            Join::Written => encoder.simple("OK"),
            Join::Values => {
                let mut at = self.encoded.unwrap_or_else(|| {
                    encoder.array(self.values.len());
                    0
                });
                for value in self.values.iter_mut().skip(at) {
                    if encoder.len() >= OUTPUT_BYTES_SOFT {
                        break;
                    }
                    let outcome = std::mem::replace(value, Outcome::Nil);
                    encoder.reply(&Shape::Plain.reply(outcome));
                    at += 1;
                }
                self.encoded = Some(at);
                return at >= self.values.len();
            }
        }
        true
    }
}

#[cfg(test)]
impl KeysReply {
    /// A `GET` of keys that are asked with the tokens from 0 on.
    pub(crate) fn asked_for(keys: usize) -> Self {
        let mut reply = Self::new((KeyspaceId(0), MapId(0)), true, Many::Get, keys);
        (0..keys as u64).for_each(|token| reply.asked.waits_for(token));
        reply.next = None;
        reply
    }

    /// Its next part waits for room.
    pub(crate) fn waiting_for_room(mut self) -> Self {
        self.next = Some((self.values.len() + 1, 0));
        self.hold = Hold::Room;
        self
    }
}
