//! Commands on several sets or sorted sets of several partitions (`SUNION`, `ZINTERSTORE` and the
//! like).
//!
//! ```text
//!   each key is read, one after the other ──> combined here ──> answered
//!      ▲          │ it has changed                  └─────────> stored, as one operation
//!      └──────────┘ again, for some seconds
//! ```
//! Nothing is written before the last step, so a command that fails before it has done nothing, and
//! the destination has its former value or the whole result.

use super::{
    Arrived, ArrivedOutcome, Outstanding, PendingReply, ReplyAsker, SessionEffect, Stepped,
};
use crate::resp::encode::Encoder;
use crate::resp::session::REPLY_BYTES_MAX;
use bytes::Bytes;
use doyen_engine::command::{ErrorText, GatherProgress, GatherResult, Gathering, Shape};
use doyen_engine::op::{Action, Failure, Operation, Outcome};
use doyen_gossip::Time;
use doyen_placement::{KeyspaceId, MapId};
use std::time::Duration;

/// For so long, a key is read again from its beginning if it changes while it is read in parts.
const AGAIN_MAX: Duration = Duration::from_secs(5);

const TOO_LARGE: &str = "ERR the reply would be too large";
const CHANGED: &str = "TRYAGAIN a key was changed all the time for 5 s while it was read: nothing \
    happened; try again later";

/// The reply of a command that reads all of its keys.
#[derive(Debug)]
pub(crate) struct GatherReply {
    about: (KeyspaceId, MapId),
    gathering: Gathering,
    shape: Shape,
    until: Time,
    asked: Outstanding,
    stage: GatherStage,
}

#[derive(Debug)]
enum GatherStage {
    /// Keys are read, and combined once all of them are here.
    Read,
    /// The result is stored.
    Store,
    Over(Result<Outcome, ErrorText>),
}

impl GatherReply {
    /// Reads the first key. Returns the reply with the bytes of its keys.
    pub(crate) fn ask(
        asker: &mut ReplyAsker<'_>,
        about: (KeyspaceId, MapId),
        gathering: Gathering,
        shape: Shape,
    ) -> (Self, usize) {
        let weight = gathering.key_bytes();
        let mut reply = Self {
            about,
            gathering,
            shape,
            until: asker.context.now() + AGAIN_MAX,
            asked: Outstanding::default(),
            stage: GatherStage::Read,
        };
        reply.go_on(asker);
        (reply, weight)
    }

    fn submit(&mut self, asker: &mut ReplyAsker<'_>, key: Bytes, action: Action) {
        let (keyspace, map) = self.about;
        self.asked.ask(
            asker,
            0,
            Operation {
                keyspace,
                map,
                key,
                action,
            },
        );
    }

    /// Reads what is next, or combines what was read.
    fn go_on(&mut self, asker: &mut ReplyAsker<'_>) {
        if let Some((key, action)) = self.gathering.next() {
            return self.submit(asker, key, action);
        }
        let combined = asker.context.combine(&self.gathering);
        self.gathering.clear();
        match combined {
            Ok(GatherResult::Answer(outcome)) => self.finish(Ok(outcome)),
            Ok(GatherResult::Store(key, action)) => {
                self.stage = GatherStage::Store;
                self.submit(asker, key, action);
            }
            Err(failure) => self.finish(Ok(Outcome::Failed(failure))),
        }
    }

    fn finish(&mut self, reply: Result<Outcome, ErrorText>) {
        self.gathering.clear();
        self.stage = GatherStage::Over(reply);
    }

    fn take_outcome(&mut self, now: Time, outcome: Outcome) {
        if let GatherStage::Store = self.stage {
            return self.finish(Ok(outcome));
        }
        let is_late = now >= self.until;
        match self.gathering.take(&outcome) {
            // Nothing happened, and the partitions are others now.
            Err(Failure::Stale | Failure::Overtaken) if !is_late => self.gathering.read_again(),
            Err(failure) => self.finish(Ok(Outcome::Failed(failure))),
            Ok(GatherProgress::Changed) if is_late => self.finish(Err(CHANGED.into())),
            Ok(GatherProgress::Changed) => {}
            Ok(GatherProgress::Taken) if self.gathering.bytes() > REPLY_BYTES_MAX => {
                self.finish(Err(TOO_LARGE.into()));
            }
            Ok(GatherProgress::Taken) => {
                if !self.gathering.is_partway() {
                    // The next key has as long.
                    self.until = now + AGAIN_MAX;
                }
            }
        }
    }
}

impl PendingReply for GatherReply {
    fn asked(&self) -> &Outstanding {
        &self.asked
    }

    fn take(&mut self, arrived: Arrived) -> SessionEffect {
        if let Arrived::Outcome(ArrivedOutcome {
            token,
            outcome,
            now,
            ..
        }) = arrived
            && self.asked.take(token)
        {
            self.take_outcome(now, outcome);
        }
        SessionEffect::Nothing
    }

    fn has_step(&self) -> bool {
        self.asked.waits() == 0 && matches!(self.stage, GatherStage::Read)
    }

    fn step(&mut self, asker: &mut ReplyAsker<'_>, _work: &mut usize) -> Stepped {
        if self.has_step() {
            self.go_on(asker);
        }
        Stepped::Waits
    }

    fn held(&self) -> usize {
        match &self.stage {
            GatherStage::Read | GatherStage::Store => self.gathering.bytes(),
            GatherStage::Over(Ok(outcome)) => outcome.bytes(),
            GatherStage::Over(Err(_)) => 0,
        }
    }

    // What follows may need what it did.
    fn blocks(&self) -> bool {
        !self.is_whole()
    }

    fn encode(&mut self, encoder: &mut Encoder<'_>) -> bool {
        match std::mem::replace(&mut self.stage, GatherStage::Read) {
            GatherStage::Over(Ok(outcome)) => encoder.reply(&self.shape.reply(outcome)),
            GatherStage::Over(Err(why)) => encoder.error(&why.0),
            // `is_whole` says that it has finished.
            GatherStage::Read | GatherStage::Store => {
                encoder.error(self.shape.failure(Failure::Unavailable));
            }
        }
        true
    }
}
