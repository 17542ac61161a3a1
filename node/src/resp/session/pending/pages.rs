//! All fields of a collection (HGETALL, HKEYS, HVALS). A large one comes in pages, which are about
//! one moment, and its reply leaves in parts.
//!
//! ```text
//!   the command ─> all of it, if it is small ─────────────────────> Done
//!         ▲    └─> the first page ─> the next one ─> .. ─> the last ─> encoded in parts
//!         └── the pages are lost, and no later command was taken
//! ```

use super::{
    Arrived, ArrivedOutcome, Outstanding, PendingReply, ReplyAsker, SessionEffect, Stepped,
};
use crate::resp::RespContext;
use crate::resp::encode::Encoder;
use crate::resp::session::{OUTPUT_BYTES_SOFT, REPLY_BYTES_MAX};
use bytes::Bytes;
use doyen_engine::command::{Part, Shape};
use doyen_engine::op::{
    Action, Failure, Operation, Outcome, PartitionAction, PartitionOperation, Work,
};
use doyen_placement::{KeyspaceId, MapId};

/// How often it begins again because the key was deleted, or another member leads it.
const LOST_MAX: u32 = 16;

/// All fields of a collection, as they come.
#[derive(Debug)]
pub(crate) struct PagesReply {
    keyspace: KeyspaceId,
    map: MapId,
    key: Bytes,
    action: Action,
    part: Part,
    asked: Outstanding,
    /// The number with which the next page is asked for. 0: all are here.
    next: u64,
    pages: Vec<Bytes>,
    /// Items in them that are answered, and their bytes.
    items: usize,
    held: usize,
    lost: u32,
    failure: Option<PagesFailure>,
    /// How many pages are encoded already, once encoding has begun.
    encoded: Option<usize>,
}

/// Why there is no reply.
#[derive(Debug, Clone, Copy)]
enum PagesFailure {
    Failed(Failure),
    /// The pages cannot be read to the end.
    Lost,
}

const LOST: &str = "TRYAGAIN the value was cleared, moved or changed very much while it was read: \
    nothing was answered; try again";

impl PagesReply {
    pub(crate) fn new(
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
            asked: Outstanding::default(),
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
    pub(crate) fn ask(&mut self, asker: &mut ReplyAsker<'_>) -> bool {
        let work = if self.next == 0 {
            Some(Work::from(Operation {
                keyspace: self.keyspace,
                map: self.map,
                key: self.key.clone(),
                action: self.action.clone(),
            }))
        } else {
            self.next_page(asker.context)
        };
        match work {
            Some(work) => self.asked.ask(asker, 0, work),
            None => {
                self.fail(PagesFailure::Failed(Failure::NoPartition));
                false
            }
        }
    }

    fn next_page(&self, context: &RespContext) -> Option<Work> {
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

    /// Takes a page, or a failure. `is_last`: no later command was taken, so it may begin again.
    fn take_page(&mut self, outcome: Outcome, is_last: bool) {
        match outcome {
            Outcome::Keys { next, keys } => {
                for page in keys {
                    self.items += self.part.items(&page).count();
                    self.held += page.len();
                    self.pages.push(page);
                }
                self.next = next;
                if self.held > REPLY_BYTES_MAX {
                    self.fail(PagesFailure::Failed(Failure::TooLarge));
                }
            }
            Outcome::Nil | Outcome::Failed(Failure::Stale) if is_last && self.lost < LOST_MAX => {
                self.drop_pages();
                self.lost += 1;
                self.next = 0;
            }
            Outcome::Failed(why) if why != Failure::Stale => self.fail(PagesFailure::Failed(why)),
            _ => self.fail(PagesFailure::Lost),
        }
    }

    fn fail(&mut self, why: PagesFailure) {
        self.drop_pages();
        self.failure = Some(why);
        self.next = 0;
    }

    fn drop_pages(&mut self) {
        self.pages = Vec::new();
        (self.items, self.held) = (0, 0);
    }
}

impl PendingReply for PagesReply {
    fn asked(&self) -> &Outstanding {
        &self.asked
    }

    fn take(&mut self, arrived: Arrived) -> SessionEffect {
        let Arrived::Outcome(ArrivedOutcome {
            token,
            outcome,
            is_last,
            ..
        }) = arrived
        else {
            return SessionEffect::Nothing;
        };
        if !self.asked.take(token) {
            return SessionEffect::Nothing;
        }
        // A small collection comes at once.
        if self.next == 0 && !matches!(outcome, Outcome::Keys { .. }) {
            return SessionEffect::Is(Shape::Fields(self.part), outcome);
        }
        self.take_page(outcome, is_last);
        SessionEffect::Nothing
    }

    fn has_step(&self) -> bool {
        let begins = self.pages.is_empty() && self.failure.is_none();
        self.asked.waits() == 0 && (begins || self.next != 0)
    }

    fn step(&mut self, asker: &mut ReplyAsker<'_>, _work: &mut usize) -> Stepped {
        if self.has_step() {
            self.ask(asker);
        }
        Stepped::Waits
    }

    fn held(&self) -> usize {
        self.held
    }

    // The pages count only once they are here: one such command at a time.
    fn blocks(&self) -> bool {
        self.held > 0
    }

    fn is_paged(&self) -> bool {
        true
    }

    fn encode(&mut self, encoder: &mut Encoder<'_>) -> bool {
        if let Some(why) = self.failure {
            encoder.error(match why {
                PagesFailure::Failed(Failure::TooLarge) => "ERR the reply would be too large",
                PagesFailure::Failed(why) => Shape::Fields(self.part).failure(why),
                PagesFailure::Lost => LOST,
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
