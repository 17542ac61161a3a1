//! `RENAME`, `RENAMENX` and `COPY` of any two keys, of any size.
//!
//! ```text
//!   together, as one operation: both keys are in one partition, and the value fits in a record
//!      │ otherwise
//!      ▼
//!   read the source ──> store at the target ──> remove the source if it is unchanged ──> done
//!      ▲   └── a large table goes in parts ──┘        │ it has changed
//!      └────────────────────────────────────────────────┘ again, for some seconds
//! ```
//! The source is deleted last, so a crash leaves both names and never none. A copy has no such
//! step. If the command fails, the target is deleted again if it still holds what this command
//! stored. So of two clients that rename one key to different names, one gets it and the other gets
//! the error that there is no such key. `NX` is decided at the target.

use super::steps::{AGAIN_MAX, naming_both};
use super::{
    Arrived, ArrivedOutcome, Outstanding, PendingReply, ReplyAsker, SessionEffect, Stepped,
};
use crate::resp::encode::Encoder;
use bytes::Bytes;
use doyen_engine::command::{ContentRead, ErrorText, Shape, Transfer};
use doyen_engine::op::{
    Action, Failure, Operation, OperationBatch, OperationStep, Outcome, Watched, Work,
};
use doyen_gossip::Time;
use doyen_placement::{KeyspaceId, MapId};

/// A command that gives a key's value to another key.
#[derive(Debug)]
pub(crate) struct TransferReply {
    keyspace: KeyspaceId,
    map: MapId,
    key: Bytes,
    transfer: Transfer,
    shape: Shape,
    until: Time,
    stage: TransferStage,
    asked: Outstanding,
    /// What was read, until it is stored.
    read: Option<ContentRead>,
    /// The version of the source that is being transferred.
    version: Option<i64>,
    /// The last row of a large table that was stored.
    after: Option<Bytes>,
    /// The version of the target that this command has stored.
    own: Option<i64>,
    /// The number of the large table that this command is storing.
    begun: Option<i64>,
    /// The reply.
    finished: Option<Result<Outcome, ErrorText>>,
}

/// Which operation is under way, or next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransferStage {
    Together,
    Read,
    Store,
    Remove,
    /// Take back what was stored. The reply stands already.
    TakeBack,
}

impl TransferReply {
    /// Gives the value of a key to another key: first as one operation, which is `action`. Returns
    /// it with the bytes of both keys.
    pub(crate) fn ask(
        asker: &mut ReplyAsker<'_>,
        (keyspace, map): (KeyspaceId, MapId),
        (key, action, shape): (Bytes, Action, Shape),
        transfer: Transfer,
    ) -> (Self, usize) {
        let mut reply = Self {
            keyspace,
            map,
            key: Bytes::copy_from_slice(&key),
            transfer: Transfer {
                to: (transfer.to.0, Bytes::copy_from_slice(&transfer.to.1)),
                ..transfer
            },
            shape,
            until: asker.context.now() + AGAIN_MAX,
            stage: TransferStage::Together,
            asked: Outstanding::default(),
            read: None,
            version: None,
            after: None,
            own: None,
            begun: None,
            finished: None,
        };
        let weight = key.len() + reply.transfer.to.1.len();
        let together = reply.at(&key, action);
        reply.asked.ask(asker, 0, together);
        (reply, weight)
    }

    /// An operation on the source.
    fn at(&self, key: &Bytes, action: Action) -> Work {
        Work::from(Operation {
            keyspace: self.keyspace,
            map: self.map,
            key: key.clone(),
            action,
        })
    }

    /// The next operation.
    fn next(&mut self) -> Work {
        let (map, to) = self.transfer.to.clone();
        match (self.stage, self.read.take(), self.version) {
            (TransferStage::Store, Some(read), _) => {
                let action = self.transfer.store(&read, self.begun, self.own);
                self.after = if read.more { read.last() } else { None };
                Work::from(Operation {
                    keyspace: self.keyspace,
                    map,
                    key: to,
                    action,
                })
            }
            (TransferStage::Remove, _, Some(version)) => {
                self.at(&self.key, Transfer::remove(version))
            }
            (TransferStage::TakeBack, ..) => Work::from(OperationBatch {
                keyspace: self.keyspace,
                watched: vec![Watched {
                    map,
                    key: to.clone(),
                    version: self.own,
                }],
                steps: vec![OperationStep::Key {
                    map,
                    key: to,
                    action: Action::Delete,
                }],
            }),
            _ => self.at(&self.key, self.transfer.read(self.after.clone())),
        }
    }

    fn take_outcome(&mut self, now: Time, outcome: Outcome) {
        match (self.stage, outcome) {
            (
                TransferStage::Together,
                Outcome::Failed(Failure::CrossPartition | Failure::TooLarge | Failure::Stale),
            ) => self.stage = TransferStage::Read,
            (TransferStage::Together, outcome) => self.finished = Some(Ok(outcome)),
            (TransferStage::TakeBack, _) => self.own = None,
            (_, Outcome::Failed(Failure::Unknown)) => {
                // It may have happened, so nothing is taken back.
                self.own = None;
                self.finish(Err(self.named(
                    "UNKNOWN",
                    "it is not known whether that happened: one of them, or both, have the value; \
                     look at both before you try again",
                )));
            }
            (_, Outcome::Failed(failure)) if self.own.is_none() => {
                self.finish(Ok(Outcome::Failed(failure)))
            }
            (_, Outcome::Failed(failure)) => {
                let text = self.shape.failure(failure);
                let code = text.split(' ').next().unwrap_or("ERR");
                self.finish(Err(self.named(
                    code,
                    "it could not be ended: the first one keeps its value, and the other one is \
                     deleted again; try again later",
                )));
            }
            (TransferStage::Read, outcome) => match ContentRead::of(&outcome) {
                None => self.finish(Ok(if self.transfer.renames {
                    Outcome::Nil
                } else {
                    Outcome::Int(0)
                })),
                Some(read) if self.begun.is_some() && self.version != Some(read.version) => {
                    self.again(now)
                }
                Some(read) => {
                    self.version = Some(read.version);
                    self.read = Some(read);
                    self.stage = TransferStage::Store;
                }
            },
            (TransferStage::Store, Outcome::Int(version)) => {
                if self.after.is_some() {
                    self.begun = Some(version);
                    self.stage = TransferStage::Read;
                } else if self.transfer.renames {
                    self.own = Some(version);
                    self.stage = TransferStage::Remove;
                } else {
                    self.done();
                }
            }
            // Another client has written the target meanwhile.
            (TransferStage::Store, _) if self.begun.is_some() => self.again(now),
            (TransferStage::Store, _) => {
                self.own = None;
                self.finish(Ok(Outcome::Int(0)));
            }
            (TransferStage::Remove, Outcome::Int(1)) => self.done(),
            // Another client has renamed or deleted it.
            (TransferStage::Remove, Outcome::Nil) => self.finish(Ok(Outcome::Nil)),
            (TransferStage::Remove, _) => self.again(now),
        }
    }

    /// Begins again, unless that has taken too long.
    fn again(&mut self, now: Time) {
        (self.read, self.version, self.after, self.begun) = (None, None, None, None);
        self.stage = TransferStage::Read;
        if now >= self.until {
            self.finish(Err(self.named(
                "TRYAGAIN",
                "others changed them all the time for 5 s: the first one keeps its value; try \
                 again later",
            )));
        }
    }

    fn done(&mut self) {
        self.own = None;
        let plain = self.transfer.renames && !self.transfer.only_new;
        self.finish(Ok(if plain { Outcome::Ok } else { Outcome::Int(1) }));
    }

    /// It answers this. If it fails, what it stored is taken back first.
    fn finish(&mut self, reply: Result<Outcome, ErrorText>) {
        self.finished = Some(reply);
        self.read = None;
        self.stage = TransferStage::TakeBack;
    }

    /// A text that names both keys.
    fn named(&self, code: &str, text: &str) -> ErrorText {
        let what = if self.transfer.renames {
            "renaming"
        } else {
            "copying"
        };
        let keys = (&*self.key, &*self.transfer.to.1);
        naming_both(&format!("{code} {what}"), keys, text)
    }
}

impl PendingReply for TransferReply {
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
        self.asked.waits() == 0 && (self.finished.is_none() || self.own.is_some())
    }

    fn step(&mut self, asker: &mut ReplyAsker<'_>, _work: &mut usize) -> Stepped {
        if self.has_step() {
            let work = self.next();
            self.asked.ask(asker, 0, work);
        }
        Stepped::Waits
    }

    fn held(&self) -> usize {
        self.read.as_ref().map_or(0, ContentRead::bytes)
    }

    // What follows may need what it did.
    fn blocks(&self) -> bool {
        !self.is_whole()
    }

    fn encode(&mut self, encoder: &mut Encoder<'_>) -> bool {
        match self.finished.take() {
            Some(Ok(outcome)) => encoder.reply(&self.shape.reply(outcome)),
            Some(Err(why)) => encoder.error(&why.0),
            // `is_whole` says that it has finished.
            None => encoder.error(self.shape.failure(Failure::Unavailable)),
        }
        true
    }
}
