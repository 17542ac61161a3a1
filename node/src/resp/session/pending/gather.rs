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

use super::steps::CommandSteps;
use crate::resp::RespContext;
use crate::resp::encode::Encoder;
use crate::resp::session::REPLY_BYTES_MAX;
use bytes::Bytes;
use doyen_engine::command::{ErrorText, GatherProgress, GatherResult, Gathering, Shape};
use doyen_engine::op::{Action, Failure, Outcome};
use doyen_gossip::Time;
use std::time::Duration;

/// For so long, a key is read again from its beginning if it changes while it is read in parts.
const AGAIN_MAX: Duration = Duration::from_secs(5);

const TOO_LARGE: &str = "ERR the reply would be too large";
const CHANGED: &str = "TRYAGAIN a key was changed all the time for 5 s while it was read: nothing \
    happened; try again later";

/// The steps of a command that reads all of its keys.
#[derive(Debug)]
pub(crate) struct GatherSteps {
    gathering: Gathering,
    shape: Shape,
    until: Time,
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

impl GatherSteps {
    pub(crate) fn new(gathering: Gathering, shape: Shape, now: Time) -> Self {
        Self {
            gathering,
            shape,
            until: now + AGAIN_MAX,
            stage: GatherStage::Read,
        }
    }

    fn finish(&mut self, reply: Result<Outcome, ErrorText>) {
        self.gathering.clear();
        self.stage = GatherStage::Over(reply);
    }
}

impl CommandSteps for GatherSteps {
    /// Reads what is next, or combines what was read.
    fn next(&mut self, context: &mut RespContext) -> Option<(Bytes, Action)> {
        let next = self.gathering.next();
        if next.is_some() {
            return next;
        }
        let combined = context.combine(&self.gathering);
        self.gathering.clear();
        match combined {
            Ok(GatherResult::Answer(outcome)) => self.finish(Ok(outcome)),
            Ok(GatherResult::Store(key, action)) => {
                self.stage = GatherStage::Store;
                return Some((key, action));
            }
            Err(failure) => self.finish(Ok(Outcome::Failed(failure))),
        }
        None
    }

    fn take(&mut self, outcome: Outcome, now: Time) {
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

    fn is_over(&self) -> bool {
        matches!(self.stage, GatherStage::Over(_))
    }

    fn held(&self) -> usize {
        match &self.stage {
            GatherStage::Read | GatherStage::Store => self.gathering.bytes(),
            GatherStage::Over(Ok(outcome)) => outcome.bytes(),
            GatherStage::Over(Err(_)) => 0,
        }
    }

    fn encode(&mut self, encoder: &mut Encoder<'_>) {
        match std::mem::replace(&mut self.stage, GatherStage::Read) {
            GatherStage::Over(Ok(outcome)) => encoder.reply(&self.shape.reply(outcome)),
            GatherStage::Over(Err(why)) => encoder.error(&why.0),
            // A reply is encoded once it is over.
            GatherStage::Read | GatherStage::Store => {
                encoder.error(self.shape.failure(Failure::Unavailable));
            }
        }
    }
}
