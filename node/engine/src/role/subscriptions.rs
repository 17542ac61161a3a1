//! Subscriptions of this thread: where each is in the log of each partition, and what was told.
//!
//! A subscription has a *place* in each partition of its keyspace, or in the one that has its key.
//! It asks the primary for what comes after that place. It asks again if another member leads, the
//! connection was lost, the primary's tenure changed, or no answer comes. What was told waits here
//! until the shell takes it, and the primary sends no more than a window of what was not taken. So
//! a shell that is slow hears that changes are missing, and costs no memory without bound.

use crate::log::changes::{Change, Filter, Gap, KeyFilter, Maps, Missing, Position, Told};
use crate::wire::frame::Frame;
use doyen_gossip::Time;
use doyen_placement::{Epoch, Lineage, MemberId, Partition, PartitionId, Table};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The number of a subscription.
pub type SubscriptionId = u64;

/// The subscriptions of a thread.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    pub(crate) all: BTreeMap<SubscriptionId, Subscription>,
    /// The last number that was given, to a subscription or to a question.
    pub(crate) last: u64,
    /// The subscription and the partition of each question.
    pub(crate) tickets: BTreeMap<u64, (SubscriptionId, PartitionId)>,
    /// Subscriptions with something that was told.
    pub(crate) told: VecDeque<SubscriptionId>,
    /// Bytes of what was told and not taken.
    pub(crate) bytes: usize,
    /// When members next hear that logs are read.
    pub(crate) say_at: Time,
    /// When primaries are asked for confirmations again.
    pub(crate) confirm_at: Time,
    /// The latest rounds of confirmations, and when each was asked for.
    pub(crate) rounds: VecDeque<(u64, Time)>,
}

#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) filter: Filter,
    pub(crate) places: BTreeMap<PartitionId, LogCursor>,
    pub(crate) queue: VecDeque<(Option<u64>, Told)>,
    /// Bytes of the queue.
    pub(crate) bytes: usize,
    /// Whether it is in `Subscriptions::told`.
    pub(crate) queued: bool,
    /// How often it wants to know that it was told all.
    pub(crate) confirms: Option<Duration>,
    /// Every partition has answered.
    pub(crate) ready: bool,
    /// It goes on after a bookmark, so that changes may be missing before it is ready.
    pub(crate) resumes: bool,
    /// Its keyspace is gone.
    pub(crate) ended: bool,
}

/// A place in the log of a partition.
#[derive(Debug)]
pub(crate) struct LogCursor {
    pub(crate) lineage: Lineage,
    /// The tenure that was asked, and by which number.
    pub(crate) asked: Option<(MemberId, Epoch, u64)>,
    pub(crate) asked_at: Time,
    pub(crate) answered: bool,
    /// What it had. Empty: it begins with the answer.
    pub(crate) had: Vec<Position>,
    /// Changes before the answer are missing.
    pub(crate) missed: bool,
    /// Bytes that were taken, and the primary does not know it.
    pub(crate) taken: u64,
}

impl LogCursor {
    pub(crate) fn new(lineage: Lineage, had: Vec<Position>, missed: bool) -> Self {
        Self {
            lineage,
            asked: None,
            asked_at: Time::ZERO,
            answered: false,
            had,
            missed,
            taken: 0,
        }
    }

    pub(crate) fn ticket(&self) -> Option<u64> {
        self.asked.map(|(.., ticket)| ticket)
    }
}

impl Subscriptions {
    /// Bytes of what was told and not taken.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(crate) fn push(&mut self, id: SubscriptionId, ticket: Option<u64>, told: Told) {
        let Some(subscription) = self.all.get_mut(&id) else {
            return;
        };
        let told = match subscription.queue.back_mut() {
            Some((_, last)) => {
                let before = last.bytes();
                let told = last.join(told);
                self.bytes = self.bytes - before + last.bytes();
                subscription.bytes = subscription.bytes - before + last.bytes();
                told
            }
            None => Some(told),
        };
        let Some(told) = told else { return };
        self.bytes += told.bytes();
        subscription.bytes += told.bytes();
        subscription.queue.push_back((ticket, told));
        if !std::mem::replace(&mut subscription.queued, true) {
            self.told.push_back(id);
        }
    }

    /// Whether a subscription has taken so little that no more changes are kept for it: all
    /// together have more than `most` bytes, and it has more than its share of them.
    pub(crate) fn is_full(&self, id: SubscriptionId, most: usize) -> bool {
        let share = most / self.all.len().max(1);
        self.bytes > most && self.all.get(&id).is_some_and(|s| s.bytes > share)
    }

    /// Notes if the last partition has answered.
    pub(crate) fn settle(&mut self, id: SubscriptionId) {
        if let Some(subscription) = self.all.get_mut(&id)
            && !subscription.ready
            && subscription.places.values().all(|c| c.answered)
        {
            subscription.ready = true;
            self.push(id, None, Told::Ready);
        }
    }
}

/// Whether the map that a filter names was dropped.
pub(crate) fn is_dropped(table: &Table, filter: &Filter) -> bool {
    matches!(filter.maps, Maps::One(map) if table.has_dropped(map))
}

/// The partitions of a table whose changes a filter may let through.
pub(crate) fn partitions<'a>(table: &'a Table, filter: &Filter) -> Vec<&'a Partition> {
    let Some(keyspace) = table.keyspace(filter.keyspace) else {
        return Vec::new();
    };
    if let (Maps::One(map), KeyFilter::One(key)) = (filter.maps, &filter.keys) {
        let one = keyspace.partition_of(map, key);
        return one
            .and_then(|id| keyspace.partition(id))
            .into_iter()
            .map(|p| &**p)
            .collect();
    }
    keyspace.partitions.iter().map(|p| &**p).collect()
}

impl Subscriptions {
    /// A primary tells self of this thread.
    pub(crate) fn told_of_changes(&mut self, most: usize, peer: MemberId, frame: Frame) {
        if let Frame::Confirmed { round, tickets } = frame {
            return self.confirmed(peer, round, &tickets);
        }
        let ticket = match &frame {
            Frame::Subscribed { ticket, .. } | Frame::Changes { ticket, .. } => *ticket,
            _ => return,
        };
        let Some((id, partition)) = self.tickets.get(&ticket).copied() else {
            // It was asked elsewhere meanwhile, or the subscription has ended.
            return;
        };
        let Some(cursor) = self
            .all
            .get_mut(&id)
            .and_then(|s| s.places.get_mut(&partition))
        else {
            return;
        };
        if cursor.asked.is_none_or(|(asked, ..)| asked != peer) {
            return;
        }
        let lineage = cursor.lineage;
        let place = |seq| {
            vec![Position {
                partition,
                lineage,
                seq,
            }]
        };
        match frame {
            Frame::Subscribed { seq, missing, .. } => {
                cursor.answered = true;
                let had = std::mem::replace(&mut cursor.had, place(seq));
                let missing = match std::mem::take(&mut cursor.missed) {
                    true => Missing::UNKNOWN,
                    false => missing,
                };
                if missing != Missing::NOTHING {
                    let gap = Gap::of(missing, partition, had);
                    self.push(id, None, Told::Lagged(gap));
                }
                self.settle(id);
            }
            Frame::Changes { last, changes, .. } => {
                // Where it begins was said before.
                if !cursor.answered {
                    return;
                }
                let had = std::mem::replace(&mut cursor.had, place(last));
                if self.is_full(id, most) {
                    return self.drop_changes((id, ticket, partition), had, &changes);
                }
                for mut change in changes {
                    change.position.lineage = lineage;
                    self.push(id, Some(ticket), Told::Change(change));
                }
            }
            _ => {}
        }
    }

    /// A subscription that takes nothing hears that these changes are missing, and what it had
    /// before. For the primary they are taken, once the subscription has heard of that.
    pub(crate) fn drop_changes(
        &mut self,
        (id, ticket, partition): (SubscriptionId, u64, PartitionId),
        had: Vec<Position>,
        changes: &[Change],
    ) {
        if changes.is_empty() {
            return;
        }
        let subscription = self.all.get_mut(&id);
        if let Some(cursor) = subscription.and_then(|s| s.places.get_mut(&partition))
            && cursor.ticket() == Some(ticket)
        {
            cursor.taken += changes.iter().map(|c| c.bytes() as u64).sum::<u64>();
        }
        let entries: BTreeSet<u64> = changes.iter().map(|c| c.position.seq).collect();
        let missing = Missing::entries(entries.len() as u64);
        let gap = Gap::of(missing, partition, had);
        self.push(id, None, Told::Lagged(gap));
    }

    /// A primary has told these tickets all that was committed when it was asked.
    pub(crate) fn confirmed(&mut self, peer: MemberId, round: u64, tickets: &[u64]) {
        let asked = self.rounds.iter().find(|(n, _)| *n == round);
        let Some(at) = asked.map(|(_, at)| *at) else {
            return;
        };
        let mut found: BTreeMap<SubscriptionId, Vec<PartitionId>> = BTreeMap::new();
        for ticket in tickets {
            let Some((id, partition)) = self.tickets.get(ticket) else {
                continue;
            };
            let Some(subscription) = self.all.get(id) else {
                continue;
            };
            let answered = subscription.places.get(partition).is_some_and(|cursor| {
                cursor.answered
                    && cursor
                        .asked
                        .is_some_and(|(asked, _, number)| (asked, number) == (peer, *ticket))
            });
            if answered && subscription.confirms.is_some() {
                found.entry(*id).or_default().push(*partition);
            }
        }
        for (id, partitions) in found {
            self.push(id, None, Told::Confirmed { at, partitions });
        }
    }
}
