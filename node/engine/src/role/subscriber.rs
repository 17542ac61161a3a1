//! This thread as a subscriber: it asks primaries for changes, and asks again if need be.

use super::read_logs::{KEPT, WINDOW};
use super::subscriptions::{
    LogCursor, Subscription, SubscriptionId, Subscriptions, is_dropped, partitions,
};
use super::timers::Duty;
use crate::log::bookmark::Bookmark;
use crate::log::changes::{Change, FORMERS_MAX, Filter, KeyFilter, Position, Told};
use crate::mutant::{self, broken};
use crate::role::host::Host;
use crate::role::slots::Slots;
use crate::value::outcome::Failure;
use crate::wire::frame::Frame;
use doyen_gossip::Time;
use doyen_placement::{KeyspaceId, MemberId, Partition, PartitionId, PartitionRef, Table};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// If no answer comes for so long, the primary is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How often members hear that logs are read: three times while they keep them.
const SAY_READS: Duration = Duration::from_secs(KEPT.as_secs() / 3);
/// The shortest interval of confirmations.
const CONFIRM_LEAST: Duration = Duration::from_millis(10);
/// Rounds of confirmations whose answers still count.
const ROUNDS_MAX: usize = 64;
/// Subscriptions of one thread.
const SUBSCRIPTIONS_MAX: usize = 4_096;

/// The subscriptions of a thread, and all that they are followed with.
#[derive(Debug)]
pub struct Subscriber<'a> {
    pub(crate) slots: &'a mut Slots,
    pub(crate) host: &'a mut Host,
}

impl Subscriber<'_> {
    /// From now on, a subscription gets [`Told::Confirmed`] about this often: it has all changes.
    pub fn confirm(&mut self, now: Time, id: SubscriptionId, every: Duration) {
        self.host.now = self.host.now.max(now);
        if let Some(subscription) = self.host.subscriptions.all.get_mut(&id) {
            subscription.confirms = Some(every.max(CONFIRM_LEAST));
            self.host.subscriptions.confirm_at = Time::ZERO;
            self.follow_up();
        }
    }

    /// Asks primaries for confirmations, if it is time. Returns when it is time again.
    fn ask_confirmations(&mut self) -> Option<Time> {
        let (now, subscriptions) = (self.host.now, &mut self.host.subscriptions);
        let wanting = subscriptions.all.values();
        let every = wanting.filter_map(|s| s.confirms).min()?;
        if now < subscriptions.confirm_at {
            return Some(subscriptions.confirm_at);
        }
        subscriptions.confirm_at = now + every;
        let next = subscriptions.confirm_at;
        subscriptions.last += 1;
        let round = subscriptions.last;
        if subscriptions.rounds.len() >= ROUNDS_MAX {
            subscriptions.rounds.pop_front();
        }
        subscriptions.rounds.push_back((round, now));
        let wanting = subscriptions.all.values().filter(|s| s.confirms.is_some());
        let places = wanting.flat_map(|s| s.places.values());
        let answered = places.filter(|cursor| cursor.answered);
        let primaries: BTreeSet<MemberId> = answered
            .filter_map(|cursor| Some(cursor.asked?.0))
            .collect();
        for primary in primaries {
            self.ask_primary(primary, Frame::Confirm { round });
        }
        Some(next)
    }

    /// Begins to follow the changes that a filter lets through: those from now on, or those after a
    /// bookmark. [`Self::poll_subscription`] names subscriptions that were told something.
    ///
    /// # Errors
    /// There is no such keyspace, the key is too long, or there are too many.
    pub fn subscribe(
        &mut self,
        now: Time,
        filter: Filter,
        after: Option<&Bookmark>,
    ) -> Result<SubscriptionId, Failure> {
        let cx = &mut *self.host;
        cx.now = cx.now.max(now);
        let table = cx.tables.view.as_ref().map(|view| &view.installed);
        if table.is_none_or(|table| table.keyspace(filter.keyspace).is_none()) {
            return Err(Failure::NoPartition);
        }
        if table.is_some_and(|table| is_dropped(table, &filter)) {
            return Err(Failure::Dropped);
        }
        if filter.keys.bytes().len() > cx.limits.key_bytes_max {
            return Err(Failure::TooLarge);
        }
        if cx.subscriptions.all.len() >= SUBSCRIPTIONS_MAX {
            return Err(Failure::Overloaded);
        }
        // What another cluster or keyspace has in its logs is not what this one has.
        let cluster = cx.tables.name.map(|name| name.cluster);
        let places = after
            .filter(|mark| (mark.cluster, mark.keyspace) == (cluster, filter.keyspace))
            .map_or(&[][..], |mark| &mark.places);
        let place = |had: &Position| {
            (
                had.partition,
                LogCursor::new(had.lineage, vec![*had], false),
            )
        };
        let id = cx.subscriptions.number();
        let subscription = Subscription {
            filter,
            confirms: None,
            places: places.iter().map(place).collect(),
            queue: VecDeque::new(),
            bytes: 0,
            queued: false,
            ready: false,
            resumes: after.is_some(),
            ended: false,
        };
        cx.subscriptions.all.insert(id, subscription);
        cx.subscriptions.say_at = Time::ZERO;
        self.follow_tables();
        self.follow_up();
        Ok(id)
    }

    /// Ends a subscription. What was told and not taken is dropped.
    pub fn unsubscribe(&mut self, now: Time, id: SubscriptionId) {
        self.host.now = self.host.now.max(now);
        let Some(gone) = self.host.subscriptions.all.remove(&id) else {
            return;
        };
        self.host.subscriptions.bytes -= gone.bytes;
        for (partition, cursor) in gone.places {
            self.leave(gone.filter.keyspace, partition, &cursor);
        }
    }

    /// The next subscription that was told something. It comes again only if [`Self::take_told`]
    /// has returned `None` and something more was told, so take all, or come back to it.
    pub fn poll_subscription(&mut self) -> Option<SubscriptionId> {
        self.host.subscriptions.told.pop_front()
    }

    /// The next thing that a subscription was told.
    pub fn take_told(&mut self, now: Time, id: SubscriptionId) -> Option<Told> {
        self.host.now = self.host.now.max(now);
        let subscriptions = &mut self.host.subscriptions;
        let subscription = subscriptions.all.get_mut(&id)?;
        let Some((ticket, told)) = subscription.queue.pop_front() else {
            subscription.queued = false;
            return None;
        };
        let bytes = told.bytes();
        subscriptions.bytes -= bytes;
        subscription.bytes -= bytes;
        if let Some(ticket) = ticket
            && let Some((_, partition)) = subscriptions.tickets.get(&ticket).copied()
            && let Some(cursor) = subscription.places.get_mut(&partition)
            && cursor.ticket() == Some(ticket)
        {
            cursor.taken += bytes as u64;
            self.say_taken(id, partition);
        }
        if let Told::Lagged(gap) = &told {
            gap.had.keys().for_each(|p| self.say_taken(id, *p));
        }
        Some(told)
    }

    /// Tells the primary of a partition what was taken, if that is much.
    fn say_taken(&mut self, id: SubscriptionId, partition: PartitionId) {
        let Some(subscription) = self.host.subscriptions.all.get_mut(&id) else {
            return;
        };
        let keyspace = subscription.filter.keyspace;
        if let Some(cursor) = subscription.places.get_mut(&partition)
            && let Some((primary, _, ticket)) = cursor.asked
            && cursor.taken >= WINDOW / 2
        {
            let bytes = std::mem::take(&mut cursor.taken);
            let at = PartitionRef::new(keyspace, partition);
            self.ask_primary(primary, Frame::Taken { at, ticket, bytes });
        }
    }

    /// Where a subscriber is that has handled all that was taken, except this, which it has not
    /// handled yet: in the order in which it was taken. `None`: there is no such subscription.
    pub fn bookmark<'a>(
        &'a self,
        id: SubscriptionId,
        taken: impl DoubleEndedIterator<Item = &'a Told>,
    ) -> Option<Bookmark> {
        let subscription = self.host.subscriptions.all.get(&id)?;
        let had = |cursor: &LogCursor| match cursor.missed {
            true => Vec::new(),
            false => cursor.had.clone(),
        };
        let places = subscription.places.iter();
        let mut places: BTreeMap<PartitionId, Vec<Position>> =
            places.map(|(id, cursor)| (*id, had(cursor))).collect();
        let queue = subscription.queue.iter().map(|(_, told)| told);
        // The earliest of each partition counts.
        for told in taken.chain(queue).rev() {
            let before = match told {
                Told::Change(Change { position, .. }) => {
                    // What else the entry changed may be behind it, so all of it comes again.
                    let seq = position.seq.saturating_sub(1);
                    vec![(position.partition, vec![Position { seq, ..*position }])]
                }
                Told::Lagged(gap) => gap.had.clone().into_iter().collect(),
                Told::Ready | Told::Confirmed { .. } | Told::Ended => Vec::new(),
            };
            for (partition, before) in before {
                match places.get_mut(&partition) {
                    Some(place) => *place = before,
                    // It was split or merged meanwhile. Its heirs go on behind it, so nothing can
                    // be said that does not leave this change out.
                    None => places.clear(),
                }
            }
        }
        Some(Bookmark {
            cluster: self.host.tables.name.map(|name| name.cluster),
            keyspace: subscription.filter.keyspace,
            places: places.into_values().flatten().collect(),
        })
    }

    /// How many subscriptions there are.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.host.subscriptions.all.len()
    }

    /// Sends a frame to the primary of a partition, which may be this thread.
    fn ask_primary(&mut self, primary: MemberId, frame: Frame) {
        if primary == self.host.me {
            self.slots.asked_by_subscriber(self.host, primary, frame);
        } else {
            self.host.peers.tell(primary, &frame);
        }
    }

    /// The primary need not tell this place any more.
    fn leave(&mut self, keyspace: KeyspaceId, partition: PartitionId, cursor: &LogCursor) {
        if let Some((primary, _, ticket)) = cursor.asked {
            self.host.subscriptions.tickets.remove(&ticket);
            let at = PartitionRef::new(keyspace, partition);
            self.ask_primary(primary, Frame::Unsubscribe { at, ticket });
        }
    }

    /// A table is installed: places of partitions that are gone go on in their heirs.
    pub(crate) fn follow_tables(&mut self) {
        let Some(view) = self.host.tables.view.clone() else {
            return;
        };
        let table = &view.installed;
        let ids: Vec<SubscriptionId> = self.host.subscriptions.all.keys().copied().collect();
        for id in ids {
            self.follow_table(id, table);
        }
    }

    fn follow_table(&mut self, id: SubscriptionId, table: &Table) {
        let Some(subscription) = self.host.subscriptions.all.get_mut(&id) else {
            return;
        };
        let keyspace = subscription.filter.keyspace;
        if table.keyspace(keyspace).is_none() || is_dropped(table, &subscription.filter) {
            if !std::mem::replace(&mut subscription.ended, true) {
                let gone = std::mem::take(&mut subscription.places);
                self.host.subscriptions.push(id, None, Told::Ended);
                for (partition, cursor) in gone {
                    self.leave(keyspace, partition, &cursor);
                }
            }
            return;
        }
        let now = partitions(table, &subscription.filter);
        let of_one_key = matches!(subscription.filter.keys, KeyFilter::One(_));
        let names: BTreeSet<PartitionId> = now.iter().map(|p| p.id).collect();
        let mut gone = BTreeMap::new();
        subscription.places.retain(|partition, cursor| {
            let stays = names.contains(partition);
            if !stays {
                let asked = cursor.asked.take();
                let mut left =
                    LogCursor::new(cursor.lineage, std::mem::take(&mut cursor.had), false);
                left.asked = asked;
                gone.insert(*partition, left);
            }
            stays
        });
        // Until it is ready, nothing can be missing, unless it goes on after a bookmark.
        let began = subscription.ready || subscription.resumes;
        let began = began && !broken(&mutant::HIDES_GAPS);
        for partition in now {
            let Partition {
                id,
                lineage,
                ref from,
                ..
            } = *partition;
            match subscription.places.get_mut(&id) {
                Some(cursor) if cursor.lineage == lineage => {}
                Some(cursor) => {
                    // What the former lineage held is lost.
                    if let Some(ticket) = cursor.ticket() {
                        self.host.subscriptions.tickets.remove(&ticket);
                    }
                    *cursor = LogCursor::new(lineage, Vec::new(), began);
                }
                None => {
                    // A subscriber of one key was only in the partition that had it.
                    let formers = from
                        .iter()
                        .map(|from| gone.get(&from.partition))
                        .filter(|former| former.is_some() || !of_one_key);
                    let had: Option<Vec<Vec<Position>>> =
                        formers.map(|former| Some(former?.had.clone())).collect();
                    let had = had.unwrap_or_default();
                    let known = had.iter().all(|places| !places.is_empty());
                    let had = had.concat();
                    let had = if known && had.len() <= FORMERS_MAX {
                        had
                    } else {
                        Vec::new()
                    };
                    let missed = began && had.is_empty();
                    let cursor = LogCursor::new(lineage, had, missed);
                    subscription.places.insert(id, cursor);
                }
            }
        }
        for (partition, cursor) in gone {
            self.leave(keyspace, partition, &cursor);
        }
    }

    /// Asks primaries that were not asked, or did not answer; and tells members that logs are read.
    pub(crate) fn follow_up(&mut self) {
        if self.host.subscriptions.all.is_empty() {
            return self.host.timers.cancel(Duty::Subscribe);
        }
        let now = self.host.now;
        self.say_reads();
        self.host
            .timers
            .set(Duty::Subscribe, self.host.subscriptions.say_at);
        let Some(view) = self.host.tables.view.clone() else {
            return;
        };
        let (mut asks, mut waits_for_any) = (Vec::new(), false);
        let Host {
            subscriptions,
            tables,
            peers,
            me,
            ..
        } = &mut *self.host;
        let Subscriptions {
            all, tickets, last, ..
        } = subscriptions;
        for (id, subscription) in all {
            let Some(keyspace) = view.installed.keyspace(subscription.filter.keyspace) else {
                continue;
            };
            for (partition, cursor) in &mut subscription.places {
                let Some(of_table) = keyspace.partition(*partition) else {
                    continue;
                };
                let at = PartitionRef::new(keyspace.id, *partition);
                let primary = tables.peer_of(of_table.primary(), at);
                let same = cursor
                    .asked
                    .is_some_and(|(asked, since, _)| (asked, since) == (primary, of_table.since));
                waits_for_any |= !(same && cursor.answered);
                let waits = cursor.answered || now.since(cursor.asked_at) < ASK_AGAIN;
                if same && waits {
                    continue;
                }
                if primary != *me && !peers.up(primary) {
                    // It is asked once it is connected.
                    continue;
                }
                if let Some(ticket) = cursor.ticket() {
                    tickets.remove(&ticket);
                    if same {
                        asks.push((primary, Frame::Unsubscribe { at, ticket }));
                    }
                }
                *last += 1;
                let ticket = *last;
                tickets.insert(ticket, (*id, *partition));
                cursor.asked = Some((primary, of_table.since, ticket));
                (cursor.asked_at, cursor.answered, cursor.taken) = (now, false, 0);
                let subscribe = Frame::Subscribe {
                    at,
                    ticket,
                    filter: subscription.filter.clone(),
                    had: cursor.had.clone(),
                };
                asks.push((primary, subscribe));
            }
        }
        for (primary, frame) in asks {
            self.ask_primary(primary, frame);
        }
        let again = waits_for_any.then_some(now + ASK_AGAIN);
        let due = [again, self.ask_confirmations()].into_iter().flatten();
        let due = due.fold(self.host.subscriptions.say_at, Time::min);
        self.host.timers.set(Duty::Subscribe, due);
    }

    /// Subscriptions ask again if it is time.
    pub(crate) fn follow_up_due(&mut self, now: Time) {
        if self.host.timers.take(Duty::Subscribe, now) {
            self.follow_up();
        }
    }

    /// A primary is connected, or not any more: it is asked again.
    pub(crate) fn ask_anew(&mut self, peer: MemberId) {
        let places = self
            .host
            .subscriptions
            .all
            .values_mut()
            .flat_map(|s| s.places.values_mut());
        for cursor in places {
            if cursor.asked.is_some_and(|(asked, ..)| asked == peer) {
                (cursor.answered, cursor.asked_at) = (false, Time::ZERO);
            }
        }
        if !self.host.subscriptions.all.is_empty() {
            self.host.subscriptions.say_at = Time::ZERO;
            self.host.timers.set(Duty::Subscribe, self.host.now);
        }
    }

    /// Tells members which logs are read, if it is time.
    fn say_reads(&mut self) {
        let now = self.host.now;
        let cx = &mut *self.host;
        if now < cx.subscriptions.say_at {
            return;
        }
        cx.subscriptions.say_at = now + SAY_READS;
        let mut keyspaces: BTreeMap<KeyspaceId, bool> = BTreeMap::new();
        for Subscription { filter, .. } in cx.subscriptions.all.values() {
            *keyspaces.entry(filter.keyspace).or_default() |= filter.old;
        }
        let keyspaces: Vec<(KeyspaceId, bool)> = keyspaces.into_iter().collect();
        cx.read.note(now, &keyspaces);
        let reads = Frame::Reads { keyspaces };
        for peer in cx.peers.ids() {
            if !peer.is_client() {
                cx.peers.tell(peer, &reads);
            }
        }
    }
}
