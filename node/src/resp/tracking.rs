//! `CLIENT TRACKING`: clients that keep values hear which keys have changed.
//!
//! ```text
//!   CLIENT TRACKING ON ──> this thread follows all changes of the keyspace, with confirmations
//!   a read ── its keys ──> TrackedKeys ──> the operation ──> its reply ──┐ in this order on the
//!   primaries ── changes ──> who has the key? ──> invalidation ──────────┘ connection
//! ```
//! The changes come as for near caches (`doyen_engine`, `log/changes.rs`): those of each partition
//! in order, with gaps, and with confirmations that everything was told.
//!
//! **Why no value stays that is stale.** A read's keys are registered before its operation is
//! submitted. So a change that is committed after the value was read comes after the key was
//! registered, and finds it, unless an earlier change took it out of the table. In both cases an
//! invalidation is queued after the read was taken. An invalidation is sent at once, and once more
//! behind the replies of all commands that were taken before it, if there are any
//! (`Replies::queue_invalidation`). So the client drops the value after it got it. At worst it
//! drops a value that is new. An invalidation that is redirected to another connection is sent
//! again, too, when these replies have left (`Tracking::again`). Then it is as with Redis: which of
//! the two connections is faster is up to the network.
//!
//! **If changes are not told**, clients forget everything: after a gap (a new primary does not know
//! the last changes, a partition lost its data, this thread was too slow), if this process became
//! another member, and if a partition was not confirmed for [`BOUND`]. The last is repeated for as
//! long as it is so, because clients may continue to read. So a client has a stale value for
//! [`BOUND`] at most, and normally for a round trip.
//!
//! **`NOLOOP`.** A primary tells with a change which operation of this thread made it, and the
//! thread knows which client submitted that (`super::own_operations`). The client that made a
//! change stays registered for the key, because it keeps what it wrote.
//!
//! In broadcast mode nothing is registered: each change goes to the clients whose prefix it has.
//!
//! [`BOUND`]: super::followed::BOUND

use super::RespContext;
use super::acl::compiled::Home;
use super::common::ThreadMessage;
use super::databases;
use super::followed::{CONFIRM, FollowedKeyspace, Invalidates, LOOK};
use super::own_operations::OwnOperations;
use super::pubsub::hub::OVER_LIMIT;
use super::session::{AGAIN_MAX, Connection, Took};
use super::totals::TrackingCounts;
use bytes::Bytes;
use doyen_engine::{Change, Filter, KeyFilter, Maps, SubscriptionId, Told};
use doyen_gossip::Time;
use doyen_placement::{KeyspaceId, PartitionId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::rc::Rc;
use std::time::Duration;

/// Keys that the clients of a node may have together, as `tracking-table-max-keys` of Redis.
const KEYS_MAX: usize = 1_000_000;
/// The part of a thread's memory that these keys take at most.
const TABLE_PART: usize = 16;
/// What a key in the table costs besides its bytes, and what each of its clients costs.
const KEY_OVERHEAD: usize = 128;
const HOLDER_OVERHEAD: usize = 32;
/// Changes that are handled in one round of a pass, and keys that are freed.
const CHANGES: usize = 1_024;
/// What it costs to look at a client in broadcast mode, in the units of prefixes and of bytes of
/// keys, and how many of these count as one change.
const COMPARED_WORK: usize = 8;
const CHANGE_WORK: usize = 64;
/// After a client asked for changes, they are followed for this long though no client tracks yet.
const LINGER: Duration = Duration::from_secs(10);

/// What a thread knows of its clients that keep values.
#[derive(Debug, Default)]
pub(super) struct Tracking {
    clients: BTreeMap<u64, Tracker>,
    /// Those of them that are in broadcast mode.
    broadcast: BTreeSet<u64>,
    table: TrackedKeys,
    /// Operations of clients that do not hear of their own changes.
    own: OwnOperations,
    /// The life of this thread to which the subscriptions belong.
    life: u64,
    following: BTreeMap<KeyspaceId, FollowedKeyspace>,
    /// Clients that track once all changes come, and when the first of them waits no longer.
    waiting: Vec<Rc<Connection>>,
    until: Time,
    look_at: Time,
    /// Keys that the table has no room for, with their clients.
    evicted: Vec<(Bytes, Holders)>,
    /// Invalidations that are redirected, and are sent once more.
    again: Vec<RedirectedAgain>,
    /// Former tables, which are freed in slices.
    garbage: VecDeque<BTreeMap<Bytes, Holders>>,
}

/// Changed keys by client and by the place of their prefix among its prefixes. As in Redis, a
/// message is about keys of one prefix.
type BroadcastKeys = BTreeMap<(u64, usize), Vec<Bytes>>;
/// Numbers of connections.
type Holders = BTreeSet<u64>;

/// An invalidation that is sent once more when replies have left.
#[derive(Debug)]
struct RedirectedAgain {
    /// The client that redirects.
    client: u64,
    /// All its replies below this number.
    behind: u64,
    keys: Option<Vec<Bytes>>,
}

#[derive(Debug)]
struct Tracker {
    connection: Rc<Connection>,
    keyspace: KeyspaceId,
    /// The prefixes of its keys in broadcast mode.
    prefixes: Option<Vec<Bytes>>,
    /// It does not hear of its own changes.
    no_loop: bool,
    /// It was told to forget everything, and has read nothing since.
    has_nothing: bool,
}

/// Which clients may have which keys.
#[derive(Debug, Default)]
struct TrackedKeys {
    keys: BTreeMap<Bytes, Holders>,
    /// Keys, each as often as there are clients that may have it.
    items: usize,
    bytes: usize,
    /// The key that was evicted last. The next ones follow it.
    hand: Bytes,
}

impl TrackedKeys {
    /// The client may have this key from now on.
    fn remember(&mut self, key: &[u8], client: u64) {
        let holders = if let Some(holders) = self.keys.get_mut(key) {
            holders
        } else {
            self.bytes += key.len() + KEY_OVERHEAD;
            // A copy, because a slice would keep the whole read buffer.
            self.keys.entry(Bytes::copy_from_slice(key)).or_default()
        };
        if holders.insert(client) {
            self.items += 1;
            self.bytes += HOLDER_OVERHEAD;
        }
    }

    /// The key has changed: no client has it any more.
    fn take(&mut self, key: &[u8]) -> Option<(Bytes, Holders)> {
        let (key, holders) = self.keys.remove_entry(key)?;
        let bytes = key.len() + KEY_OVERHEAD + holders.len() * HOLDER_OVERHEAD;
        self.bytes = self.bytes.saturating_sub(bytes);
        self.items = self.items.saturating_sub(holders.len());
        Some((key, holders))
    }

    /// Takes out a key if there are more than this many, or more than this many bytes.
    fn evict(&mut self, (keys_max, bytes_max): (usize, usize)) -> Option<(Bytes, Holders)> {
        if self.keys.len() <= keys_max && self.bytes <= bytes_max {
            return None;
        }
        let from = (Bound::Excluded(&self.hand), Bound::Unbounded);
        let next = self
            .keys
            .range::<Bytes, _>(from)
            .next()
            .or_else(|| self.keys.first_key_value());
        let next = next.map(|(key, _)| key.clone())?;
        self.hand = next.clone();
        self.take(&next)
    }
}

impl Tracking {
    /// How much memory it takes, about.
    pub(super) const fn bytes(&self) -> usize {
        self.table.bytes
    }

    /// What `INFO` shows.
    pub(super) fn counts(&self) -> TrackingCounts {
        let prefixes = |tracker: &Tracker| tracker.prefixes.as_ref().map_or(0, Vec::len);
        let prefixes = self.clients.values().map(prefixes).sum::<usize>();
        TrackingCounts {
            clients: self.clients.len() as u64,
            keys: self.table.keys.len() as u64,
            items: self.table.items as u64,
            prefixes: prefixes as u64,
        }
    }

    /// When there is something to do, if nothing else happens before.
    pub(super) fn due(&self) -> Option<Time> {
        if !self.evicted.is_empty() || !self.garbage.is_empty() {
            // At once.
            return Some(Time::ZERO);
        }
        (!self.following.is_empty()).then_some(self.look_at)
    }

    /// The client tracks no more. The keys that it had are forgotten when they change.
    pub(super) fn end(&mut self, client: u64) {
        if let Some(tracker) = self.clients.remove(&client) {
            tracker.connection.no_loop.set(None);
        }
        self.broadcast.remove(&client);
    }

    /// The client that made this change, if it does not hear of that.
    fn unheard_writer(&self, change: &Change) -> Option<u64> {
        let client = self.own.client_of(change.own_operation()?)?;
        let tracker = self.clients.get(&client)?;
        tracker.no_loop.then_some(client)
    }

    /// The client hears of it once more when its replies below `behind` have left.
    fn redirect_again(&mut self, client: u64, behind: u64, keys: Option<&[Bytes]>) {
        let mut keys = keys.map(<[Bytes]>::to_vec);
        if self.again.len() >= AGAIN_MAX {
            // There are many: it forgets everything instead.
            self.again.retain(|again| again.client != client);
            keys = None;
        }
        self.again.push(RedirectedAgain {
            client,
            behind,
            keys,
        });
    }

    /// The connections of clients that track.
    pub(super) fn connections(&self) -> impl Iterator<Item = &Rc<Connection>> {
        self.clients.values().map(|tracker| &tracker.connection)
    }

    /// Forgets all keys. They are freed later.
    fn clear(&mut self) {
        let table = std::mem::take(&mut self.table);
        if !table.keys.is_empty() {
            self.garbage.push_back(table.keys);
        }
    }

    fn free(&mut self) {
        let mut left = CHANGES;
        while let Some(keys) = self.garbage.front_mut() {
            while left > 0 && keys.pop_first().is_some() {
                left -= 1;
            }
            if !keys.is_empty() {
                return;
            }
            self.garbage.pop_front();
        }
    }
}

impl RespContext {
    /// Whether all changes of a keyspace come to this thread. If not, the connection is woken
    /// when they are, or at `until`.
    pub(super) fn follows(
        &mut self,
        connection: &Rc<Connection>,
        keyspace: KeyspaceId,
        until: Time,
    ) -> bool {
        let now = self.now();
        let tracking = &mut self.front.hub.tracking;
        let followed = tracking
            .following
            .entry(keyspace)
            .or_insert(FollowedKeyspace::new(now));
        followed.linger = until + LINGER;
        if followed.is_current(now) {
            return true;
        }
        tracking.until = match tracking.waiting.is_empty() {
            true => until,
            false => tracking.until.min(until),
        };
        tracking.waiting.push(connection.clone());
        tracking.look_at = Time::ZERO;
        false
    }

    /// A client tracks from now on, or in another way.
    pub(super) fn track(
        &mut self,
        client: (u64, &Rc<Connection>),
        keyspace: KeyspaceId,
        (prefixes, no_loop): (Option<Vec<Bytes>>, bool),
    ) {
        client.1.no_loop.set(no_loop.then_some(client.0));
        let tracker = Tracker {
            connection: client.1.clone(),
            keyspace,
            prefixes,
            no_loop,
            has_nothing: false,
        };
        let tracking = &mut self.front.hub.tracking;
        if tracker.prefixes.is_some() {
            tracking.broadcast.insert(client.0);
        }
        tracking.clients.insert(client.0, tracker);
    }

    /// A client that does not hear of its own changes has submitted the operations from this number
    /// on.
    pub(super) fn note_own(&mut self, client: u64, first: u64) {
        let numbers = first..self.next_number();
        self.front.hub.tracking.own.note(numbers, client);
    }

    /// A client may have this key from now on.
    pub(super) fn remember(&mut self, client: u64, key: &[u8]) {
        let threads = usize::from(self.threads()).max(1);
        let bytes_max = self.limits().memory_bytes_max / TABLE_PART;
        let tracking = &mut self.front.hub.tracking;
        if let Some(tracker) = tracking.clients.get_mut(&client) {
            tracker.has_nothing = false;
        }
        tracking.table.remember(key, client);
        let most = (KEYS_MAX / threads, bytes_max);
        tracking.evicted.extend(tracking.table.evict(most));
    }

    /// Follows the keyspaces of clients that track, and looks whether their changes come.
    pub(super) fn look_at_tracking(&mut self) {
        let (now, life) = (self.now(), self.incarnation());
        if now < self.front.hub.tracking.look_at && self.front.hub.tracking.life == life {
            return;
        }
        let tracking = &mut self.front.hub.tracking;
        tracking.look_at = now + LOOK;
        let mut forget = std::mem::replace(&mut tracking.life, life) != life;
        if forget {
            // This process became another member. Its subscriptions ended.
            tracking.own.clear();
            for followed in tracking.following.values_mut() {
                followed.restart();
            }
        }
        let used: BTreeSet<KeyspaceId> = tracking.clients.values().map(|c| c.keyspace).collect();
        let is_wanted = |id: &KeyspaceId, f: &FollowedKeyspace| used.contains(id) || now < f.linger;
        let kept = |(id, f): (&KeyspaceId, &FollowedKeyspace)| (!is_wanted(id, f)).then_some(*id);
        let ended: Vec<KeyspaceId> = tracking.following.iter().filter_map(kept).collect();
        if tracking.clients.is_empty() {
            tracking.clear();
            tracking.own.clear();
        }
        for keyspace in ended {
            let gone = self.front.hub.tracking.following.remove(&keyspace);
            if let Some(id) = gone.and_then(|followed| followed.id) {
                self.unsubscribe(id);
            }
        }
        let keyspaces: Vec<_> = self.front.hub.tracking.following.keys().copied().collect();
        for keyspace in keyspaces {
            forget |= self.follow_tracked(keyspace);
        }
        if forget {
            self.forget_tracked();
        }
        let tracking = &mut self.front.hub.tracking;
        let ready = tracking
            .following
            .values()
            .all(|followed| followed.is_current(now));
        if ready || now >= tracking.until {
            for connection in tracking.waiting.drain(..) {
                connection.goes_on();
            }
        }
    }

    /// Follows a keyspace if that has not begun. Returns whether clients must forget everything.
    fn follow_tracked(&mut self, keyspace: KeyspaceId) -> bool {
        let now = self.now();
        let table = self
            .view()
            .and_then(|view| view.installed.keyspace(keyspace));
        let partitions = table.into_iter().flat_map(|table| &table.partitions);
        let partitions: BTreeSet<PartitionId> = partitions.map(|p| p.id).collect();
        let id = self
            .front
            .hub
            .tracking
            .following
            .get(&keyspace)
            .and_then(|f| f.id);
        let id = id.or_else(|| {
            let filter = Filter {
                keyspace,
                maps: Maps::Databases,
                keys: KeyFilter::All,
                values: false,
                fields: false,
                old: false,
            };
            // Refused before there is a table: it is tried again.
            let id = self.subscribe(filter).ok()?;
            self.confirm_told(id, CONFIRM);
            Some(id)
        });
        let Some(followed) = self.front.hub.tracking.following.get_mut(&keyspace) else {
            return false;
        };
        followed.id = id;
        followed.look(&partitions, now)
    }

    /// Tells clients what has changed. True if there are more changes.
    pub(super) fn tell_trackers(&mut self) -> bool {
        let tracking = &mut self.front.hub.tracking;
        tracking.free();
        for again in std::mem::take(&mut tracking.again) {
            self.tell_again(again);
        }
        let evicted = std::mem::take(&mut self.front.hub.tracking.evicted);
        for (key, holders) in evicted {
            self.invalidate_at(&key, &holders);
        }
        if self.front.hub.tracking.life != self.incarnation() {
            return false;
        }
        let ids = self.front.hub.tracking.following.iter();
        let ids: Vec<_> = ids
            .filter_map(|(keyspace, f)| Some((*keyspace, f.id?)))
            .collect();
        let mut more = false;
        for followed in ids {
            more |= self.tell_trackers_of(followed);
        }
        self.bound_messages();
        more
    }

    /// Sends an invalidation once more, if it is time.
    fn tell_again(&mut self, again: RedirectedAgain) {
        let tracking = &mut self.front.hub.tracking;
        let Some(tracker) = tracking.clients.get(&again.client) else {
            return;
        };
        if !tracker.connection.have_left(again.behind) {
            tracking.again.push(again);
        } else if let Some(Some(target)) = tracker.connection.tracks() {
            self.redirect(again.client, target, again.keys.as_deref());
        }
    }

    fn tell_trackers_of(&mut self, (keyspace, id): (KeyspaceId, SubscriptionId)) -> bool {
        let (mut left, mut forget) = (CHANGES, false);
        let mut broadcast = BroadcastKeys::new();
        while left > 0 {
            let Some(told) = self.take_told(id) else {
                break;
            };
            left -= 1;
            let now = self.now();
            let Some(followed) = self.front.hub.tracking.following.get_mut(&keyspace) else {
                break;
            };
            let ready = matches!(told, Told::Ready);
            match followed.told(told, now) {
                Invalidates::Nothing => {}
                Invalidates::All => forget = true,
                Invalidates::Key(change) => {
                    let writer = self.front.hub.tracking.unheard_writer(&change);
                    let work = self.broadcast(keyspace, (&change, writer), &mut broadcast);
                    left = left.saturating_sub(work);
                    if let Some((key, mut holders)) =
                        self.front.hub.tracking.table.take(&change.key)
                    {
                        let keeps = writer.filter(|client| holders.remove(client));
                        self.invalidate_at(&key, &holders);
                        if let Some(client) = keeps {
                            self.front.hub.tracking.table.remember(&key, client);
                        }
                    }
                }
            }
            if ready {
                self.front.hub.tracking.look_at = Time::ZERO;
            }
        }
        for ((client, _), keys) in broadcast {
            self.invalidate(client, Some(&keys));
        }
        if forget {
            self.forget_tracked();
        }
        left == 0
    }

    /// Finds the clients in broadcast mode that hear of a change. Returns how much work that
    /// was, besides that of the change itself.
    fn broadcast(
        &self,
        keyspace: KeyspaceId,
        (change, writer): (&Change, Option<u64>),
        told: &mut BroadcastKeys,
    ) -> usize {
        let tracking = &self.front.hub.tracking;
        if tracking.broadcast.is_empty() {
            return 0;
        }
        let name = self
            .view()
            .and_then(|view| view.installed.keyspace(keyspace));
        let home = Home {
            keyspace: name.map_or("", |keyspace| &keyspace.name),
            database: databases::index(change.map) as i64,
        };
        let mut work = 0;
        for (id, tracker) in tracking
            .broadcast
            .iter()
            .filter_map(|id| tracking.clients.get_key_value(id))
        {
            let prefixes = tracker.prefixes.as_deref().unwrap_or_default();
            work += COMPARED_WORK + prefixes.len();
            let mut prefixes = prefixes.iter();
            let Some(prefix) = prefixes.position(|prefix| change.key.starts_with(prefix)) else {
                continue;
            };
            if writer == Some(*id)
                || tracker.keyspace != keyspace
                || !tracker.connection.may_see(home, &change.key)
            {
                continue;
            }
            work += COMPARED_WORK + change.key.len();
            let keys = told.entry((*id, prefix)).or_default();
            if keys.last() != Some(&change.key) {
                keys.push(change.key.clone());
            }
        }
        work / CHANGE_WORK
    }

    /// All clients forget everything.
    fn forget_tracked(&mut self) {
        self.front.hub.tracking.clear();
        let mut told = Vec::new();
        for (client, tracker) in &mut self.front.hub.tracking.clients {
            // What a client in broadcast mode has read is not known.
            let reads = tracker.prefixes.is_none();
            if !std::mem::replace(&mut tracker.has_nothing, reads) {
                told.push(*client);
            }
        }
        for client in told {
            self.invalidate(client, None);
        }
    }

    /// The clients that may have this key forget it, if they still track in that way.
    fn invalidate_at(&mut self, key: &Bytes, holders: &Holders) {
        for holder in holders {
            let tracker = self.front.hub.tracking.clients.get(holder);
            if tracker.is_some_and(|tracker| tracker.prefixes.is_none()) {
                self.invalidate(*holder, Some(std::slice::from_ref(key)));
            }
        }
    }

    /// A client forgets these keys; `None`: everything.
    fn invalidate(&mut self, client: u64, keys: Option<&[Bytes]>) {
        let Some(tracker) = self.front.hub.tracking.clients.get(&client) else {
            return;
        };
        let connection = tracker.connection.clone();
        let target = match connection.tracks() {
            Some(Some(target)) => target,
            Some(None) => return self.push_invalidation(&connection, false, keys),
            None => return,
        };
        if let Some(behind) = connection.awaited() {
            self.front.hub.tracking.redirect_again(client, behind, keys);
        }
        self.redirect(client, target, keys);
    }

    /// The connection `target` gets the invalidations of this client.
    fn redirect(&mut self, client: u64, target: u64, keys: Option<&[Bytes]>) {
        let own = self.me().thread_number();
        match self.front.common.home_of(target) {
            Some(thread) if thread == own => {
                self.invalidate_redirected(target, (own, client), keys);
            }
            Some(thread) => {
                let keys = keys.map(<[Bytes]>::to_vec);
                let message = ThreadMessage::Invalidated(target, (own, client), keys);
                self.tell(thread, Box::new(message));
            }
            None => self.lost_target(client),
        }
    }

    /// A client of any thread redirects its invalidations to this connection of this thread.
    pub(super) fn invalidate_redirected(
        &mut self,
        target: u64,
        (thread, client): (u8, u64),
        keys: Option<&[Bytes]>,
    ) {
        match self.front.connections.get(&target).cloned() {
            Some(connection) => self.push_invalidation(&connection, true, keys),
            None if thread == self.me().thread_number() => self.lost_target(client),
            None => self.tell(thread, Box::new(ThreadMessage::LostTarget(client))),
        }
    }

    /// The connection that gets the invalidations of this client is gone.
    pub(super) fn lost_target(&mut self, client: u64) {
        let Some(tracker) = self.front.hub.tracking.clients.get(&client) else {
            return;
        };
        let connection = tracker.connection.clone();
        let held = self.front.hub.held().clone();
        let limit = self.front.common.settings.output_pubsub();
        if connection.lost_target((limit, &held)) == Took::TooMuch {
            self.front.hub.expel(&connection, OVER_LIMIT);
        }
    }

    fn push_invalidation(
        &mut self,
        connection: &Rc<Connection>,
        redirected: bool,
        keys: Option<&[Bytes]>,
    ) {
        let held = self.front.hub.held().clone();
        let limit = self.front.common.settings.output_pubsub();
        if connection.invalidate((limit, &held), redirected, keys) == Took::TooMuch {
            self.front.hub.expel(connection, OVER_LIMIT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNBOUNDED: (usize, usize) = (usize::MAX, usize::MAX);

    #[test]
    fn a_key_that_changed_is_forgotten_and_its_bytes_are_given_back() {
        let mut table = TrackedKeys::default();
        for (key, client) in [(b"a", 1), (b"a", 2), (b"a", 1), (b"b", 2)] {
            table.remember(key, client);
        }
        let (key, holders) = table.take(b"a").unwrap();
        assert_eq!((&key[..], holders), (&b"a"[..], Holders::from([1, 2])));
        assert!(table.take(b"a").is_none());
        assert_eq!(table.bytes, 1 + KEY_OVERHEAD + HOLDER_OVERHEAD);
        assert_eq!(table.items, 1);
        table.take(b"b").unwrap();
        assert_eq!((table.bytes, table.items), (0, 0));
    }

    #[test]
    fn the_table_evicts_one_key_after_the_other_beyond_its_limits() {
        let mut table = TrackedKeys::default();
        for key in [b"a", b"b", b"c", b"d"] {
            table.remember(key, 7);
        }
        assert!(table.evict(UNBOUNDED).is_none());
        assert_eq!(&table.evict((3, usize::MAX)).unwrap().0[..], b"a");
        assert!(table.evict((3, usize::MAX)).is_none());
        // The next one is not always the first: a key that is read again and again may stay.
        table.remember(b"a", 7);
        assert_eq!(&table.evict((3, usize::MAX)).unwrap().0[..], b"b");
        let bytes = table.bytes;
        assert_eq!(&table.evict((9, bytes - 1)).unwrap().0[..], b"c");
        assert_eq!(&table.evict((0, 0)).unwrap().0[..], b"d");
        assert_eq!(&table.evict((0, 0)).unwrap().0[..], b"a");
        assert!(table.evict((0, 0)).is_none());
    }
}
