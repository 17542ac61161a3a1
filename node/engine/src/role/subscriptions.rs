//! Subscriptions of this thread: where each is in the log of each partition, and what was told.
//!
//! A subscription has a *place* in each partition of its keyspace, or in the one that has its key.
//! It asks the primary for what comes after that place. It asks again if another member leads, the
//! connection was lost, the primary's tenure changed, or no answer comes. What was told waits here
//! until the shell takes it, and the primary sends no more than a window of what was not taken. So
//! a shell that is slow is told that changes are missing, and costs no memory without bound.

use super::readers::{KEPT, WINDOW};
use super::timers::Duty;
use crate::log::bookmark::Bookmark;
use crate::log::changes::{Change, FORMERS_MAX, Filter, Gap, Keys, Maps, Missing, Position, Told};
use crate::mutant::{self, broken};
use crate::role::host::Host;
use crate::role::slots::Slots;
use crate::value::outcome::Failure;
use crate::wire::api::Lane;
use crate::wire::frame::Frame;
use doyen_gossip::Time;
use doyen_placement::{
    Epoch, KeyspaceId, Lineage, MemberId, Partition, PartitionId, PartitionRef, Table,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// If no answer comes for so long, the primary is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How often members are told that logs are read: three times while they keep them.
const SAY_READS: Duration = Duration::from_secs(KEPT.as_secs() / 3);
/// The shortest interval of confirmations.
const CONFIRM_LEAST: Duration = Duration::from_millis(10);
/// Rounds of confirmations whose answers still count.
const ROUNDS_MAX: usize = 64;
/// Subscriptions of one thread.
const SUBSCRIPTIONS_MAX: usize = 4_096;

/// The number of a subscription.
pub type SubscriptionId = u64;

/// The subscriptions of a thread.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    all: BTreeMap<SubscriptionId, Subscription>,
    /// The last number that was given, to a subscription or to a question.
    last: u64,
    /// Which partition of which subscription was asked about.
    tickets: BTreeMap<u64, (SubscriptionId, PartitionId)>,
    /// Subscriptions with something that was told.
    told: VecDeque<SubscriptionId>,
    /// Bytes of what was told and not taken.
    bytes: usize,
    /// When members are told again that logs are read.
    say_at: Time,
    /// When primaries are asked for confirmations again.
    confirm_at: Time,
    /// The latest rounds of confirmations, and when each was asked for.
    rounds: VecDeque<(u64, Time)>,
}

#[derive(Debug)]
struct Subscription {
    filter: Filter,
    places: BTreeMap<PartitionId, Cursor>,
    queue: VecDeque<(Option<u64>, Told)>,
    /// Bytes of the queue.
    bytes: usize,
    /// Whether it is in `Subscriptions::told`.
    queued: bool,
    /// How often it wants to know that it was told all.
    confirms: Option<Duration>,
    /// Every partition has answered.
    ready: bool,
    /// It goes on after a bookmark, so that changes may be missing before it is ready.
    resumes: bool,
    /// Its keyspace is gone.
    ended: bool,
}

/// A place in the log of a partition.
#[derive(Debug)]
struct Cursor {
    lineage: Lineage,
    /// The tenure that was asked, and by which number.
    asked: Option<(MemberId, Epoch, u64)>,
    asked_at: Time,
    answered: bool,
    /// What it had. Empty: it begins with the answer.
    had: Vec<Position>,
    /// Changes before the answer are missing.
    missed: bool,
    /// Bytes that were taken, and the primary does not know it.
    taken: u64,
}

impl Cursor {
    fn new(lineage: Lineage, had: Vec<Position>, missed: bool) -> Self {
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

    fn ticket(&self) -> Option<u64> {
        self.asked.map(|(.., ticket)| ticket)
    }
}

impl Subscriptions {
    /// Bytes of what was told and not taken.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn push(&mut self, id: SubscriptionId, ticket: Option<u64>, told: Told) {
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
    fn is_full(&self, id: SubscriptionId, most: usize) -> bool {
        let share = most / self.all.len().max(1);
        self.bytes > most && self.all.get(&id).is_some_and(|s| s.bytes > share)
    }

    /// Notes if the last partition has answered.
    fn settle(&mut self, id: SubscriptionId) {
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
fn is_dropped(table: &Table, filter: &Filter) -> bool {
    matches!(filter.maps, Maps::One(map) if table.has_dropped(map))
}

/// The partitions of a table whose changes a filter may let through.
fn partitions<'a>(table: &'a Table, filter: &Filter) -> Vec<&'a Partition> {
    let Some(keyspace) = table.keyspace(filter.keyspace) else {
        return Vec::new();
    };
    if let (Maps::One(map), Keys::One(key)) = (filter.maps, &filter.keys) {
        let one = keyspace.partition_of(map, key);
        return one
            .and_then(|id| keyspace.partition(id))
            .into_iter()
            .map(|p| &**p)
            .collect();
    }
    keyspace.partitions.iter().map(|p| &**p).collect()
}

impl Host {
    /// A primary tells subscriptions of this thread.
    pub(crate) fn told_of_changes(&mut self, peer: MemberId, frame: Frame) {
        if let Frame::Confirmed { round, tickets } = frame {
            return self.confirmed(peer, round, &tickets);
        }
        let most = self.limits.readers_bytes_max();
        let subscriptions = &mut self.subscriptions;
        let ticket = match &frame {
            Frame::Subscribed { ticket, .. } | Frame::Changes { ticket, .. } => *ticket,
            _ => return,
        };
        let Some((id, partition)) = subscriptions.tickets.get(&ticket).copied() else {
            // It was asked elsewhere meanwhile, or the subscription has ended.
            return;
        };
        let Some(cursor) = subscriptions
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
                    self.stats.changes_missed += 1;
                    let gap = Gap::of(missing, partition, had);
                    subscriptions.push(id, None, Told::Lagged(gap));
                }
                subscriptions.settle(id);
            }
            Frame::Changes { last, changes, .. } => {
                // Where it begins was said before.
                if !cursor.answered {
                    return;
                }
                let had = std::mem::replace(&mut cursor.had, place(last));
                if subscriptions.is_full(id, most) {
                    return self.drop_changes((id, ticket, partition), had, &changes);
                }
                for mut change in changes {
                    change.position.lineage = lineage;
                    subscriptions.push(id, Some(ticket), Told::Change(change));
                }
            }
            _ => {}
        }
    }
}

impl Host {
    /// A subscription that takes nothing is told that these changes are missing, and what it had
    /// before. For the primary they are taken, once the subscription has heard of that.
    fn drop_changes(
        &mut self,
        (id, ticket, partition): (SubscriptionId, u64, PartitionId),
        had: Vec<Position>,
        changes: &[Change],
    ) {
        if changes.is_empty() {
            return;
        }
        let subscriptions = &mut self.subscriptions;
        let subscription = subscriptions.all.get_mut(&id);
        if let Some(cursor) = subscription.and_then(|s| s.places.get_mut(&partition))
            && cursor.ticket() == Some(ticket)
        {
            cursor.taken += changes.iter().map(|c| c.bytes() as u64).sum::<u64>();
        }
        let entries: BTreeSet<u64> = changes.iter().map(|c| c.position.seq).collect();
        let missing = Missing::entries(entries.len() as u64);
        self.stats.changes_missed += 1;
        let gap = Gap::of(missing, partition, had);
        subscriptions.push(id, None, Told::Lagged(gap));
    }

    /// A primary has told these tickets all that was committed when it was asked.
    fn confirmed(&mut self, peer: MemberId, round: u64, tickets: &[u64]) {
        let subscriptions = &mut self.subscriptions;
        let asked = subscriptions.rounds.iter().find(|(n, _)| *n == round);
        let Some(at) = asked.map(|(_, at)| *at) else {
            return;
        };
        let mut found: BTreeMap<SubscriptionId, Vec<PartitionId>> = BTreeMap::new();
        for ticket in tickets {
            let Some((id, partition)) = subscriptions.tickets.get(ticket) else {
                continue;
            };
            let Some(subscription) = subscriptions.all.get(id) else {
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
            subscriptions.push(id, None, Told::Confirmed { at, partitions });
        }
    }
}

impl Slots {
    /// From now on, a subscription is told about this often that it was told all
    /// ([`Told::Confirmed`]).
    pub(crate) fn confirm(
        &mut self,
        host: &mut Host,
        now: Time,
        id: SubscriptionId,
        every: Duration,
    ) {
        host.now = host.now.max(now);
        if let Some(subscription) = host.subscriptions.all.get_mut(&id) {
            subscription.confirms = Some(every.max(CONFIRM_LEAST));
            host.subscriptions.confirm_at = Time::ZERO;
            self.follow_up(host);
        }
    }

    /// Asks primaries for confirmations, if it is time. Returns when it is time again.
    fn ask_confirmations(&mut self, host: &mut Host) -> Option<Time> {
        let (now, subscriptions) = (host.now, &mut host.subscriptions);
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
            self.ask_primary(host, primary, Frame::Confirm { round });
        }
        Some(next)
    }

    /// Begins to follow the changes that a filter lets through: those from now on, or those after a
    /// bookmark. [`Shard::poll_subscription`] names subscriptions that were told something.
    ///
    /// # Errors
    /// There is no such keyspace, the key is too long, or there are too many.
    pub(crate) fn subscribe(
        &mut self,
        host: &mut Host,
        now: Time,
        filter: Filter,
        after: Option<&Bookmark>,
    ) -> Result<SubscriptionId, Failure> {
        let cx = &mut *host;
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
        let place = |had: &Position| (had.partition, Cursor::new(had.lineage, vec![*had], false));
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
        self.follow_tables(host);
        self.follow_up(host);
        Ok(id)
    }

    /// Ends a subscription. What was told and not taken is dropped.
    pub(crate) fn unsubscribe(&mut self, host: &mut Host, now: Time, id: SubscriptionId) {
        host.now = host.now.max(now);
        let Some(gone) = host.subscriptions.all.remove(&id) else {
            return;
        };
        host.subscriptions.bytes -= gone.bytes;
        for (partition, cursor) in gone.places {
            self.leave(host, gone.filter.keyspace, partition, &cursor);
        }
    }

    /// The next subscription that was told something. It comes again only if [`Shard::take_told`]
    /// has returned `None` and something more was told, so take all, or come back to it.
    pub(crate) fn poll_subscription(&mut self, host: &mut Host) -> Option<SubscriptionId> {
        host.subscriptions.told.pop_front()
    }

    /// The next thing that a subscription was told.
    pub(crate) fn take_told(
        &mut self,
        host: &mut Host,
        now: Time,
        id: SubscriptionId,
    ) -> Option<Told> {
        host.now = host.now.max(now);
        let subscriptions = &mut host.subscriptions;
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
            self.say_taken(host, id, partition);
        }
        if let Told::Lagged(gap) = &told {
            gap.had.keys().for_each(|p| self.say_taken(host, id, *p));
        }
        Some(told)
    }

    /// Tells the primary of a partition what was taken, if that is much.
    fn say_taken(&mut self, host: &mut Host, id: SubscriptionId, partition: PartitionId) {
        let Some(subscription) = host.subscriptions.all.get_mut(&id) else {
            return;
        };
        let keyspace = subscription.filter.keyspace;
        if let Some(cursor) = subscription.places.get_mut(&partition)
            && let Some((primary, _, ticket)) = cursor.asked
            && cursor.taken >= WINDOW / 2
        {
            let bytes = std::mem::take(&mut cursor.taken);
            let at = PartitionRef {
                keyspace,
                partition,
            };
            self.ask_primary(host, primary, Frame::Taken { at, ticket, bytes });
        }
    }

    /// Where a subscriber is that has handled all that was taken, except this, which it has not
    /// handled yet: in the order in which it was taken. `None`: there is no such subscription.
    pub(crate) fn bookmark<'a>(
        &'a self,
        host: &'a Host,
        id: SubscriptionId,
        taken: impl DoubleEndedIterator<Item = &'a Told>,
    ) -> Option<Bookmark> {
        let subscription = host.subscriptions.all.get(&id)?;
        let had = |cursor: &Cursor| match cursor.missed {
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
            cluster: host.tables.name.map(|name| name.cluster),
            keyspace: subscription.filter.keyspace,
            places: places.into_values().flatten().collect(),
        })
    }

    /// How many subscriptions there are.
    #[must_use]
    pub(crate) fn subscriptions(&self, host: &Host) -> usize {
        host.subscriptions.all.len()
    }

    /// Sends a frame to the primary of a partition, which may be this thread.
    fn ask_primary(&mut self, host: &mut Host, primary: MemberId, frame: Frame) {
        if primary == host.me {
            self.asked_by_subscriber(host, primary, frame);
        } else {
            host.peers.send(primary, Lane::Calls, &frame);
        }
    }

    /// The primary need not tell this place any more.
    fn leave(
        &mut self,
        host: &mut Host,
        keyspace: KeyspaceId,
        partition: PartitionId,
        cursor: &Cursor,
    ) {
        if let Some((primary, _, ticket)) = cursor.asked {
            host.subscriptions.tickets.remove(&ticket);
            let at = PartitionRef {
                keyspace,
                partition,
            };
            self.ask_primary(host, primary, Frame::Unsubscribe { at, ticket });
        }
    }

    /// A table is installed: places of partitions that are gone go on in their heirs.
    pub(crate) fn follow_tables(&mut self, host: &mut Host) {
        let Some(view) = host.tables.view.clone() else {
            return;
        };
        let table = &view.installed;
        let ids: Vec<SubscriptionId> = host.subscriptions.all.keys().copied().collect();
        for id in ids {
            self.follow_table(host, id, table);
        }
    }

    fn follow_table(&mut self, host: &mut Host, id: SubscriptionId, table: &Table) {
        let Some(subscription) = host.subscriptions.all.get_mut(&id) else {
            return;
        };
        let keyspace = subscription.filter.keyspace;
        if table.keyspace(keyspace).is_none() || is_dropped(table, &subscription.filter) {
            if !std::mem::replace(&mut subscription.ended, true) {
                let gone = std::mem::take(&mut subscription.places);
                host.subscriptions.push(id, None, Told::Ended);
                for (partition, cursor) in gone {
                    self.leave(host, keyspace, partition, &cursor);
                }
            }
            return;
        }
        let now = partitions(table, &subscription.filter);
        let of_one_key = matches!(subscription.filter.keys, Keys::One(_));
        let names: BTreeSet<PartitionId> = now.iter().map(|p| p.id).collect();
        let mut gone = BTreeMap::new();
        subscription.places.retain(|partition, cursor| {
            let stays = names.contains(partition);
            if !stays {
                let asked = cursor.asked.take();
                let mut left = Cursor::new(cursor.lineage, std::mem::take(&mut cursor.had), false);
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
                        host.subscriptions.tickets.remove(&ticket);
                    }
                    *cursor = Cursor::new(lineage, Vec::new(), began);
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
                    let cursor = Cursor::new(lineage, had, missed);
                    subscription.places.insert(id, cursor);
                }
            }
        }
        for (partition, cursor) in gone {
            self.leave(host, keyspace, partition, &cursor);
        }
    }

    /// Asks primaries that were not asked, or did not answer; and tells members that logs are read.
    pub(crate) fn follow_up(&mut self, host: &mut Host) {
        if host.subscriptions.all.is_empty() {
            return host.timers.cancel(Duty::Subscribe);
        }
        let now = host.now;
        self.say_reads(host);
        host.timers.set(Duty::Subscribe, host.subscriptions.say_at);
        let Some(view) = host.tables.view.clone() else {
            return;
        };
        let (mut asks, mut waits_for_any) = (Vec::new(), false);
        let Host {
            subscriptions,
            tables,
            peers,
            me,
            ..
        } = host;
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
                let at = PartitionRef {
                    keyspace: keyspace.id,
                    partition: *partition,
                };
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
            self.ask_primary(host, primary, frame);
        }
        let again = waits_for_any.then_some(now + ASK_AGAIN);
        let due = [again, self.ask_confirmations(host)].into_iter().flatten();
        let due = due.fold(host.subscriptions.say_at, Time::min);
        host.timers.set(Duty::Subscribe, due);
    }

    /// Subscriptions ask again if it is time.
    pub(crate) fn follow_up_due(&mut self, host: &mut Host, now: Time) {
        if host.timers.take(Duty::Subscribe, now) {
            self.follow_up(host);
        }
    }

    /// A primary is connected, or not any more: it is asked anew.
    pub(crate) fn ask_anew(&mut self, host: &mut Host, peer: MemberId) {
        let places = host
            .subscriptions
            .all
            .values_mut()
            .flat_map(|s| s.places.values_mut());
        for cursor in places {
            if cursor.asked.is_some_and(|(asked, ..)| asked == peer) {
                (cursor.answered, cursor.asked_at) = (false, Time::ZERO);
            }
        }
        if !host.subscriptions.all.is_empty() {
            host.subscriptions.say_at = Time::ZERO;
            host.timers.set(Duty::Subscribe, host.now);
        }
    }

    /// Tells members which logs are read, if it is time.
    fn say_reads(&mut self, host: &mut Host) {
        let now = host.now;
        let cx = &mut *host;
        if now < cx.subscriptions.say_at {
            return;
        }
        cx.subscriptions.say_at = now + SAY_READS;
        let mut keyspaces: BTreeMap<KeyspaceId, bool> = BTreeMap::new();
        for Subscription { filter, .. } in cx.subscriptions.all.values() {
            *keyspaces.entry(filter.keyspace).or_default() |= filter.old;
        }
        let keyspaces: Vec<(KeyspaceId, bool)> = keyspaces.into_iter().collect();
        cx.note_read(&keyspaces);
        let reads = Frame::Reads { keyspaces };
        for peer in cx.peers.ids() {
            if !peer.is_client() {
                cx.peers.send(peer, Lane::Calls, &reads);
            }
        }
    }
}
