//! All fields of a collection (HGETALL, HKEYS, HVALS). A large one comes in pages, which are about
//! one moment, and its reply leaves in parts.
//!
//! ```text
//!   the command ─> all of it, if it is small ─────────────────────> Done
//!         ▲    └─> the first page ─> the next one ─> .. ─> the last ─> encoded in parts
//!         └── the pages are lost, and no later command was taken
//! ```

use super::*;
use doyen_engine::command::Part;
use doyen_engine::op::{PartitionAction, Work};

/// How often it begins again because the key was deleted, or another member leads it.
const LOST_MAX: u32 = 16;

/// All fields of a collection, as they come.
#[derive(Debug)]
pub(in crate::resp::session) struct Reading {
    keyspace: KeyspaceId,
    map: MapId,
    key: Bytes,
    action: Action,
    part: Part,
    /// The operation that is under way.
    token: Option<u64>,
    /// The number with which the next page is asked for. 0: all are here.
    next: u64,
    pages: Vec<Bytes>,
    /// Items in them that are answered, and their bytes.
    items: usize,
    held: usize,
    lost: u32,
    failure: Option<Why>,
    /// How many pages are encoded already, once encoding has begun.
    encoded: Option<usize>,
}

impl Session {
    /// Reads all fields of a collection.
    pub(in crate::resp::session) fn read_fields(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        (key, action): (Bytes, Action),
        part: Part,
    ) {
        let mut reading = Box::new(Reading::new(self.about(), key, action.in_pages(), part));
        let slot = (self.next(), self.patience(context));
        let elsewhere = reading.submit(connection, context, slot);
        let expected = if elsewhere { self.expected } else { 0 };
        self.expect(State::Reading(reading), 0, expected);
    }

    /// Whether all fields of a collection are being read.
    pub(in crate::resp::session) fn is_reading(&self) -> bool {
        let reads = |slot: &Slot| matches!(slot.state, State::Reading(_));
        self.slots.iter().any(reads)
    }
}

/// Why there is no reply.
#[derive(Debug, Clone, Copy)]
enum Why {
    Failed(Failure),
    /// The pages cannot be read to the end.
    Lost,
}

const LOST: &str = "TRYAGAIN the value was cleared, moved or changed very much while it was read: \
    nothing was answered; try again";

/// What came of an outcome.
pub(in crate::resp::session) enum Came {
    /// It is the reply.
    Whole(Outcome),
    /// It was a page, or a failure.
    Page,
}

impl Reading {
    pub(in crate::resp::session) const fn new(
        (keyspace, map): (KeyspaceId, MapId),
        key: Bytes,
        action: Action,
        part: Part,
    ) -> Self {
        Self {
            keyspace,
            map,
            key,
            action,
            part,
            token: None,
            next: 0,
            pages: Vec::new(),
            items: 0,
            held: 0,
            lost: 0,
            failure: None,
            encoded: None,
        }
    }

    /// Asks for the first page, or the next one. Returns whether it comes from elsewhere.
    pub(in crate::resp::session) fn submit(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        (slot, patience): (u64, Patience),
    ) -> bool {
        let work = if self.next == 0 {
            Some(Work::from(Operation {
                keyspace: self.keyspace,
                map: self.map,
                key: self.key.clone(),
                action: self.action.clone(),
            }))
        } else {
            self.next_page(context)
        };
        let Some(work) = work else {
            self.fail(Why::Failed(Failure::NoPartition));
            return false;
        };
        let connection = connection.clone();
        let (token, elsewhere) = context.submit(work, patience, |read| ReplyWaiter {
            connection,
            slot,
            part: 0,
            read,
        });
        self.token = Some(token);
        elsewhere
    }

    fn next_page(&self, context: &Context) -> Option<Work> {
        let keyspace = context.view()?.installed.keyspace(self.keyspace)?;
        let action = PartitionAction::Fields {
            walk: self.next,
            page: u32::try_from(self.pages.len()).unwrap_or(u32::MAX),
        };
        Some(Work::from(PartitionOperation {
            keyspace: self.keyspace,
            partition: keyspace.partition_of(self.map, &self.key)?,
            map: self.map,
            action,
        }))
    }

    /// Takes an outcome. `is_last`: no later command was taken, so it may begin again.
    pub(in crate::resp::session) fn take(&mut self, outcome: Outcome, is_last: bool) -> Came {
        self.token = None;
        match outcome {
            Outcome::Keys { next, keys } => {
                for page in keys {
                    self.items += self.part.items(&page).count();
                    self.held += page.len();
                    self.pages.push(page);
                }
                self.next = next;
                if self.held > REPLY_BYTES_MAX {
                    self.fail(Why::Failed(Failure::TooLarge));
                }
            }
            whole if self.next == 0 => return Came::Whole(whole),
            Outcome::Nil | Outcome::Failed(Failure::Stale) if is_last && self.lost < LOST_MAX => {
                self.drop_pages();
                self.lost += 1;
                self.next = 0;
            }
            Outcome::Failed(why) if why != Failure::Stale => self.fail(Why::Failed(why)),
            _ => self.fail(Why::Lost),
        }
        Came::Page
    }

    fn fail(&mut self, why: Why) {
        self.drop_pages();
        self.failure = Some(why);
        self.next = 0;
    }

    fn drop_pages(&mut self) {
        self.pages = Vec::new();
        (self.items, self.held) = (0, 0);
    }

    /// How what came at once is answered.
    pub(in crate::resp::session) const fn shape(&self) -> Shape {
        Shape::Fields(self.part)
    }

    /// Whether it is to ask for something.
    pub(in crate::resp::session) fn has_next_step(&self) -> bool {
        let begins = self.pages.is_empty() && self.failure.is_none();
        self.token.is_none() && (begins || self.next != 0)
    }

    /// Whether everything is there.
    pub(in crate::resp::session) fn is_done(&self) -> bool {
        self.token.is_none() && !self.has_next_step()
    }

    /// The operation that is under way.
    pub(in crate::resp::session) const fn token(&self) -> Option<u64> {
        self.token
    }

    /// Bytes that only this answer holds.
    pub(in crate::resp::session) const fn held(&self) -> usize {
        self.held
    }

    /// Appends the reply, or its next part. True if that was all.
    pub(in crate::resp::session) fn encode(&mut self, encoder: &mut Encoder<'_>) -> bool {
        if let Some(why) = self.failure {
            encoder.error(match why {
                Why::Failed(Failure::TooLarge) => "ERR the reply would be too large",
                Why::Failed(why) => self.shape().failure(why),
                Why::Lost => LOST,
            });
            return true;
        }
        if self.encoded.is_none() {
            encoder.fields(self.items, self.part);
        }
        let first = self.encoded.unwrap_or(0);
        for (n, page) in self.pages.iter_mut().enumerate().skip(first) {
            if encoder.len() >= OUTPUT_BYTES_SOFT {
                self.encoded = Some(n);
                return false;
            }
            let page = std::mem::take(page);
            self.part.items(&page).for_each(|item| encoder.bulk(item));
        }
        true
    }
}
