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
//! The source is deleted last, so a crash leaves both names and never none. A copy has no such step.
//! If the command fails, the target is deleted again if it still holds what this command stored. So
//! of two clients that rename one key to different names, one gets it and the other is told that
//! there is no such key. `NX` is decided at the target.

use super::*;
use doyen_engine::command::{Read, Transfer};
use doyen_engine::op::{Step, Transaction, Watched, Work};

/// For so long, a transfer begins again if the source has changed meanwhile.
const AGAIN_MAX: Duration = Duration::from_secs(5);

/// A command that gives a key's value to another key.
#[derive(Debug)]
pub(in crate::resp::session) struct Transferring {
    keyspace: KeyspaceId,
    map: MapId,
    key: Bytes,
    transfer: Transfer,
    shape: Shape,
    until: Time,
    stage: Stage,
    /// The operation that is under way.
    token: Option<u64>,
    /// What was read, until it is stored.
    read: Option<Read>,
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
enum Stage {
    Together,
    Read,
    Store,
    Remove,
    /// Take back what was stored. The reply stands already.
    TakeBack,
}

impl Session {
    /// Gives the value of a key to another key.
    pub(in crate::resp::session) fn transfer(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        (key, action, shape): (Bytes, Action, Shape),
        transfer: Transfer,
    ) {
        let (keyspace, map) = self.about();
        let slot = (self.next(), self.patience(context));
        let mut transferring = Transferring {
            keyspace,
            map,
            key: Bytes::copy_from_slice(&key),
            transfer: Transfer {
                to: (transfer.to.0, Bytes::copy_from_slice(&transfer.to.1)),
                ..transfer
            },
            shape,
            until: context.now() + AGAIN_MAX,
            stage: Stage::Together,
            token: None,
            read: None,
            version: None,
            after: None,
            own: None,
            begun: None,
            finished: None,
        };
        let weight = key.len() + transferring.transfer.to.1.len();
        let together = transferring.at(&key, action);
        transferring.ask(connection, context, slot, together);
        self.expect(State::Transferring(Box::new(transferring)), weight, 0);
    }
}

impl Transferring {
    /// An operation on the source.
    fn at(&self, key: &Bytes, action: Action) -> Work {
        Work::from(Operation {
            keyspace: self.keyspace,
            map: self.map,
            key: key.clone(),
            action,
        })
    }

    fn ask(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        (slot, patience): (u64, Patience),
        work: Work,
    ) {
        let connection = connection.clone();
        let (token, _) = context.submit(work, patience, |read| ReplyWaiter {
            connection,
            slot,
            part: 0,
            read,
        });
        self.token = Some(token);
    }

    /// Submits the next operation.
    pub(in crate::resp::session) fn submit(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        slot: (u64, Patience),
    ) {
        if !self.has_next_step() {
            return;
        }
        let (map, to) = self.transfer.to.clone();
        let work = match (self.stage, self.read.take(), self.version) {
            (Stage::Store, Some(read), _) => {
                let action = self.transfer.store(&read, self.begun, self.own);
                self.after = if read.more { read.last() } else { None };
                Work::from(Operation {
                    keyspace: self.keyspace,
                    map,
                    key: to,
                    action,
                })
            }
            (Stage::Remove, _, Some(version)) => self.at(&self.key, Transfer::remove(version)),
            (Stage::TakeBack, ..) => Work::from(Transaction {
                keyspace: self.keyspace,
                watched: vec![Watched {
                    map,
                    key: to.clone(),
                    version: self.own,
                }],
                steps: vec![Step::Key {
                    map,
                    key: to,
                    action: Action::Delete,
                }],
            }),
            _ => self.at(&self.key, self.transfer.read(self.after.clone())),
        };
        self.ask(connection, context, slot, work);
    }

    /// Takes an outcome.
    pub(in crate::resp::session) fn take(&mut self, now: Time, outcome: Outcome) {
        self.token = None;
        match (self.stage, outcome) {
            (
                Stage::Together,
                Outcome::Failed(Failure::CrossPartition | Failure::TooLarge | Failure::Stale),
            ) => self.stage = Stage::Read,
            (Stage::Together, outcome) => self.finished = Some(Ok(outcome)),
            (Stage::TakeBack, _) => self.own = None,
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
            (Stage::Read, outcome) => match Read::of(&outcome) {
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
                    self.stage = Stage::Store;
                }
            },
            (Stage::Store, Outcome::Int(version)) => {
                if self.after.is_some() {
                    self.begun = Some(version);
                    self.stage = Stage::Read;
                } else if self.transfer.renames {
                    self.own = Some(version);
                    self.stage = Stage::Remove;
                } else {
                    self.done();
                }
            }
            // Another client has written the target meanwhile.
            (Stage::Store, _) if self.begun.is_some() => self.again(now),
            (Stage::Store, _) => {
                self.own = None;
                self.finish(Ok(Outcome::Int(0)));
            }
            (Stage::Remove, Outcome::Int(1)) => self.done(),
            // Another client has renamed or deleted it.
            (Stage::Remove, Outcome::Nil) => self.finish(Ok(Outcome::Nil)),
            (Stage::Remove, _) => self.again(now),
        }
    }

    /// Begins again, unless that has taken too long.
    fn again(&mut self, now: Time) {
        (self.read, self.version, self.after, self.begun) = (None, None, None, None);
        self.stage = Stage::Read;
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
        self.stage = Stage::TakeBack;
    }

    /// A text that names both keys.
    fn named(&self, code: &str, text: &str) -> ErrorText {
        const SHOWN_BYTES: usize = 64;
        let shown = |key: &[u8]| {
            let more = if key.len() > SHOWN_BYTES { ".." } else { "" };
            format!("{}{more}", key[..key.len().min(SHOWN_BYTES)].escape_ascii())
        };
        let (from, to) = (shown(&self.key), shown(&self.transfer.to.1));
        let what = if self.transfer.renames {
            "renaming"
        } else {
            "copying"
        };
        format!("{code} {what} '{from}' to '{to}': {text}").into()
    }

    /// Whether it is to ask for something.
    pub(in crate::resp::session) const fn has_next_step(&self) -> bool {
        self.token.is_none() && (self.finished.is_none() || self.own.is_some())
    }

    /// The operation that is under way.
    pub(in crate::resp::session) const fn token(&self) -> Option<u64> {
        self.token
    }

    /// Bytes that only this command holds.
    pub(in crate::resp::session) fn held(&self) -> usize {
        self.read.as_ref().map_or(0, Read::bytes)
    }

    /// The reply, once nothing is left to do.
    pub(in crate::resp::session) fn reply(&mut self, protocol: Protocol) -> Option<State> {
        if self.token.is_some() || self.has_next_step() {
            return None;
        }
        match self.finished.take()? {
            Ok(outcome) => Some(State::Done {
                shape: self.shape,
                outcome,
            }),
            Err(why) => {
                let mut bytes = BytesMut::new();
                Encoder::new(&mut bytes, protocol).error(&why.0);
                Some(State::Encoded(bytes.freeze()))
            }
        }
    }
}
