//! The data path as one machine without I/O: storage, forwarding, replication and copying of
//! partitions.
//!
//! One `Shard` owns the partitions of one data thread. The number of threads decides which
//! partitions of a node a thread has (`threads`). The threads of a node are peers of each other,
//! like threads of other nodes. A shell feeds a shard with operations, bytes from peers, views and
//! time, and carries away bytes for peers, outcomes and requests to the control thread. The
//! simulation is another such shell.
//!
//! ```text
//!  submit(now, token, op) ─┐                       ┌─> poll_outcome() -> (token, Outcome)
//!  receive(now, peer, ..) ─┼──> partitions, log ───┼─> poll_transmit() -> (peer, Lane, bytes)
//!  view / lease / tick ────┘                       └─> poll_request() -> Request
//! ```

pub mod codec;
#[cfg_attr(not(feature = "fault-points"), allow(dead_code))]
pub mod fault;
pub mod op;

mod action;
mod ahead;
mod api;
#[cfg(feature = "bench-internals")]
#[doc(hidden)]
pub mod bench;
mod callers;
mod clients;
mod compacting;
mod context;
mod copying;
mod deadline;
mod dedup;
mod dispatch;
mod entry;
mod eviction;
mod execute;
mod extended;
mod following;
mod forwarding;
mod frame;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod garbage;
mod halving;
mod index;
mod inspect;
mod log;
mod measuring;
mod memory;
#[doc(hidden)]
pub mod mutant;
mod outbox;
mod pace;
mod peers;
mod published;
mod ready;
mod replication;
mod reshaping;
mod role;
mod rounds;
mod scan;
mod shaking;
mod slots;
mod store;
mod tables;
#[cfg(test)]
mod tests;
mod threads;
mod timers;
mod upkeep;

use bytes::{Bytes, BytesMut};
pub use compacting::Outside;
use context::Context;
use copying::{Opening, Sink};
use dedup::Dedup;
use doyen_gossip::Time;
use doyen_gossip::agreement::View;
use doyen_placement::level::LEVELS;
use doyen_placement::loads::Meter;
use doyen_placement::planner;
use doyen_placement::{
    Epoch, Eviction, KeyspaceId, Lineage, MapId, MemberId, Mode, Partition, PartitionId,
    PartitionRef, Reshape, Table,
};
use forwarding::{Call, Calls, Executed, Source};
use frame::Frame;
use log::Log;
use mutant::broken;
use op::{Failure, Operation, Outcome, PartitionOperation, Work};
use replication::{Clock, Primary};
use role::{Follower, Role};
use slots::Slots;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use timers::Duty;

pub use api::{Lane, Limits, Malformed, Patience, Request, Stats, Token};
pub use clients::PARK;
pub use extended::Extended;
#[doc(hidden)]
pub use inspect::{Asked, Inspection};
#[doc(hidden)]
pub use threads::Threads;
#[doc(hidden)]
pub use threads::thread_of;

/// Keys summed in one slice.
const SLICE: usize = 4_000;
/// About how many bytes of values and frames one `receive` handles: a few milliseconds of work.
const RECEIVE_WORK_MAX: usize = 4 << 20;
/// The same for snapshots, for which no client waits: a part or two, some tenths of a millisecond.
const RECEIVE_BULK_MAX: usize = 128 << 10;
/// With this many frames, it pays to load what they look up beforehand.
const WARM_LEAST: usize = 3;
/// The work of a frame besides its bytes.
const FRAME_WORK: usize = 512;
/// The work of an entry that is in no cache.
const ENTRY_WORK: usize = 1024;
/// The first and the longest pause before a refused operation is sent again.
const RETRY: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(200));

/// The machine.
#[derive(Debug)]
pub struct Shard {
    cx: Context,
    slots: Slots,
}

/// One partition of the table: its members, its calls, and what this node holds of it.
#[derive(Debug)]
struct Slot {
    at: PartitionRef,
    installed: Option<Assigned>,
    accepted: Option<Assigned>,
    /// The lineage that was installed last. Calls are sent for it.
    lineage: Option<Lineage>,
    min_in_sync: u8,
    default_ttl_ms: Option<u64>,
    eviction: Eviction,
    calls: Calls,
    held: Option<Box<Held>>,
    /// Whether it is in `Context::noticed`, or in the list of the present upkeep.
    noticed: bool,
    /// Whether it is in `Context::expiring`.
    expiring: bool,
    /// Whether the installed table splits or merges it, so that it accepts no writes.
    still: bool,
    /// Whether it is a range of keys.
    ranged: bool,
    /// The peer, a copy or the primary, for which calls wait here because it takes its bytes slower
    /// than they come.
    crowded_by: Option<MemberId>,
    /// Whether it is in `Context::drawing`.
    drawing: bool,
}

impl Slot {
    fn new(at: PartitionRef) -> Self {
        Self {
            at,
            installed: None,
            accepted: None,
            lineage: None,
            min_in_sync: 0,
            default_ttl_ms: None,
            eviction: Eviction::default(),
            calls: Calls::default(),
            held: None,
            noticed: false,
            expiring: false,
            still: false,
            ranged: false,
            crowded_by: None,
            drawing: false,
        }
    }

    /// The rules of its keyspace.
    const fn rules(&self) -> (u8, Option<u64>, Eviction, bool) {
        (
            self.min_in_sync,
            self.default_ttl_ms,
            self.eviction,
            self.ranged,
        )
    }

    /// Notes the partition's assignment in the two tables of a view. Returns whether it is the same
    /// as in the former tables, among the same members (`anew`: the members differ).
    fn assign(&mut self, view: &View, still: bool, threads: &Threads, anew: bool) -> bool {
        // Most partitions of a table are shared with the table before it.
        let take = |assigned: &mut Option<Assigned>, partition: Option<&Arc<Partition>>| match (
            assigned.as_ref(),
            partition,
        ) {
            (Some(before), Some(now)) if !anew && Arc::ptr_eq(&before.partition, now) => true,
            (None, None) => !anew,
            _ => {
                *assigned = partition.map(|p| Assigned::new(p, threads));
                false
            }
        };
        let at = self.at;
        let before = (self.rules(), self.still);
        let keyspace = view.installed.keyspace(at.keyspace);
        let partition = keyspace.and_then(|k| k.partition(at.partition));
        let installed = take(&mut self.installed, partition);
        let accepted = take(&mut self.accepted, view.accepted.partition(at));
        if let Some(keyspace) = keyspace.filter(|_| partition.is_some()) {
            self.min_in_sync = keyspace.min_in_sync;
            self.default_ttl_ms = keyspace.default_ttl_ms;
            self.eviction = keyspace.eviction;
            self.ranged = keyspace.mode == Mode::Range;
        }
        self.still = still;
        installed && accepted && before == (self.rules(), self.still)
    }
}

/// Whether the members and their states are the same as in the former tables.
fn has_same_members(former: &View, view: &View) -> bool {
    let same =
        |then: &Table, now: &Table| then.cluster == now.cluster && then.members == now.members;
    same(&former.installed, &view.installed) && same(&former.accepted, &view.accepted)
}

/// A partition's assignment in a table: all of it, and separately what every operation needs,
/// because the table is elsewhere in memory.
#[derive(Debug, Clone)]
struct Assigned {
    /// The data thread that leads it.
    primary: MemberId,
    lineage: Lineage,
    epoch: Epoch,
    since: Epoch,
    /// The number of in-sync copies.
    in_sync: usize,
    partition: Arc<Partition>,
}

impl Assigned {
    fn new(partition: &Arc<Partition>, threads: &Threads) -> Self {
        let Partition {
            id,
            epoch,
            since,
            lineage,
            ..
        } = **partition;
        let (primary, in_sync) = (
            threads.peer_of(partition.primary(), id),
            partition.in_sync().count(),
        );
        Self {
            primary,
            lineage,
            epoch,
            since,
            in_sync,
            partition: partition.clone(),
        }
    }

    /// Whether fewer members than the goal hold it, and a learner is to be one more.
    fn is_repaired(&self, leaving: &BTreeSet<MemberId>) -> bool {
        let partition = &self.partition;
        let stay = partition.in_sync().filter(|m| !leaving.contains(m)).count();
        let goal = partition.goal.as_ref().map_or(0, Vec::len);
        partition.learners().next().is_some() && stay < goal
    }
}

/// A partition's contents and log at this node.
#[derive(Debug)]
struct Held {
    at: PartitionRef,
    lineage: Lineage,
    /// The epoch that was installed last. Appends of an older one are refused.
    epoch: Epoch,
    /// The highest epoch of an applied entry. Entries of an older epoch, even of the installed one,
    /// would cut off what a later primary was promised.
    fence: Epoch,
    /// Whether it was in sync. Then everything that its log calls committed is committed. (A
    /// snapshot may begin after entries that are not committed.)
    was_in_sync: bool,
    store: Store,
    log: Log,
    dedup: Dedup,
    clock: Clock,
    /// Measures the load here.
    meter: Meter,
    role: Role,
}

impl Held {
    fn empty(at: PartitionRef, lineage: Lineage, store: Store, now: Time) -> Self {
        Self {
            at,
            lineage,
            epoch: Epoch(0),
            fence: Epoch(0),
            was_in_sync: false,
            store,
            log: Log::default(),
            dedup: Dedup::default(),
            clock: Clock::new(now),
            meter: Meter::default(),
            role: Role::Follower(Follower::default()),
        }
    }

    fn bytes(&self) -> usize {
        self.store.bytes() + self.log.bytes()
    }

    /// The primary, if this node leads.
    #[inline]
    const fn lead(&self) -> Option<&Primary> {
        match &self.role {
            Role::Primary(primary) => Some(primary),
            Role::Follower(_) => None,
        }
    }

    /// The primary, if this node leads.
    #[inline]
    const fn lead_mut(&mut self) -> Option<&mut Primary> {
        match &mut self.role {
            Role::Primary(primary) => Some(primary),
            Role::Follower(_) => None,
        }
    }

    /// The follower, if this node does not lead.
    #[inline]
    const fn follower(&self) -> Option<&Follower> {
        match &self.role {
            Role::Follower(follower) => Some(follower),
            Role::Primary(_) => None,
        }
    }

    /// The follower, if this node does not lead.
    #[inline]
    const fn follower_mut(&mut self) -> Option<&mut Follower> {
        match &mut self.role {
            Role::Follower(follower) => Some(follower),
            Role::Primary(_) => None,
        }
    }

    /// What is being copied to this node.
    fn sink(&self) -> Option<&Sink> {
        self.follower().and_then(Follower::sink)
    }

    /// Another member leads, or none. False: this node did not lead.
    fn step_down(&mut self) -> bool {
        let led = self.lead().is_some();
        if led {
            self.role = Role::Follower(Follower::default());
        }
        led
    }

    /// Whether upkeep has nothing to do here until something happens.
    fn quiet(&self) -> bool {
        self.store.is_whole()
            && self
                .lead()
                .is_none_or(|l| l.quiet(&self.log) && !self.store.expires())
    }
}

impl Slot {
    /// The data thread that leads it.
    fn primary(&self) -> Option<MemberId> {
        self.installed.as_ref().map(|a| a.primary)
    }

    /// Whether this thread leads it and has begun to acknowledge.
    fn is_open(&self) -> bool {
        self.held
            .as_ref()
            .and_then(|h| h.lead())
            .is_some_and(|lead| lead.open)
    }

    /// Whether upkeep has nothing to do here until something happens.
    fn quiet(&self) -> bool {
        self.calls.is_empty() && !self.still && self.held.as_ref().is_none_or(|h| h.quiet())
    }

    /// Which keys may be evicted. A partition that is about to be split or merged must not change.
    const fn evicts_by(&self) -> Eviction {
        if self.still {
            Eviction::None
        } else {
            self.eviction
        }
    }

    /// Whether a missing copy is on its way to or from here, or will be soon because a member
    /// leaves. Until the copy counts, another failure may lose data.
    fn is_repaired(&self, leaving: &BTreeSet<MemberId>) -> bool {
        self.held.is_some()
            && self
                .installed
                .as_ref()
                .is_some_and(|a| a.is_repaired(leaving))
    }

    /// Whether fewer copies are in sync than a write needs.
    fn has_too_few_copies(&self) -> bool {
        self.installed.as_ref().map_or(0, |a| a.in_sync) < usize::from(self.min_in_sync)
    }

    /// Whether this node may execute here: it is the primary in both the installed and the accepted
    /// table (rule 5).
    fn serving(&self) -> bool {
        self.held
            .as_ref()
            .and_then(|h| h.lead())
            .is_some_and(|l| l.serving || broken(&mutant::SERVES_BY_INSTALLED))
    }
}

/// The sequence that must be committed before this may be read: the write that made the entry, or
/// any that may have removed it.
fn read_at(found: Option<&entry::Entry>, log: &log::Log) -> u64 {
    match found {
        Some(_) if broken(&mutant::READS_UNCOMMITTED) => 0,
        Some(entry) => entry.version(),
        None if broken(&mutant::READS_DELETIONS) => 0,
        None => log.deleted(),
    }
}

impl Shard {
    /// A shard of a process that is no member yet. `rng_seed` is for jitter, and for the choice of
    /// keys to evict.
    #[must_use]
    pub fn new(me: MemberId, limits: Limits, rng_seed: u64, now: Time) -> Self {
        let cx = Context::new(me, limits, rng_seed, now);
        Self {
            cx,
            slots: Slots::default(),
        }
    }

    /// Installs new tables.
    pub fn install(&mut self, now: Time, view: View) {
        self.cx.now = now;
        // Calls that wait for `release` are checked again under the new tables.
        for (at, executed) in self
            .cx
            .callers
            .ready
            .take(&mut self.cx.timers)
            .into_iter()
            .rev()
        {
            if let Some(slot) = self.slots.get_mut(at) {
                slot.calls.waiting.push_front(executed);
            }
        }
        let name = match (&self.cx.tables.view, self.cx.tables.name) {
            // To compute the name takes reading the whole table.
            (Some(former), Some(name)) if Arc::ptr_eq(&former.installed, &view.installed) => name,
            _ => view.installed.name(),
        };
        let renamed = self.cx.tables.name != Some(name);
        self.cx.tables.name = Some(name);
        self.cx.used |= view.installed.members.len() > 1;
        let threads = view
            .installed
            .member(self.cx.me.member())
            .map_or(1, |m| m.addresses.threads());
        self.cx
            .copying
            .pace
            .set(view.installed.settings.balancing.rate, threads);
        self.cx.tables.opens = view
            .opens_at
            .iter()
            .map(|(at, since, time)| (*at, (*since, *time)))
            .collect();
        let former = self.cx.tables.view.replace(view.clone());
        if former.is_none() {
            self.cx.timers.set(Duty::Round, now);
            self.cx.timers.set(Duty::Retire, now + clients::RETENTION);
        }
        self.cx.pulling.installed();
        self.cx
            .tables
            .published
            .install(name, &view.installed, self.cx.peers.has_clients());
        self.cx.tables.leaving = planner::leaving(&view.installed);
        self.cx.tables.threads = Threads::of(&[&view.installed, &view.accepted]);
        if renamed && !self.cx.me.is_client() {
            for id in self
                .cx
                .peers
                .ids()
                .into_iter()
                .filter(|id| threads::tells_tables(self.cx.me, *id))
            {
                self.cx.peers.send(id, Lane::Calls, &Frame::View(name));
            }
        }
        // Most tables change few partitions. An unchanged partition among the same members has
        // nothing to do.
        let anew = former.is_none_or(|former| !has_same_members(&former, &view));
        for keyspace in view
            .installed
            .keyspaces
            .iter()
            .chain(&view.accepted.keyspaces)
        {
            for partition in &keyspace.partitions {
                self.slots.get_or_insert(PartitionRef {
                    keyspace: keyspace.id,
                    partition: partition.id,
                });
            }
        }
        let mut still = BTreeSet::new();
        for keyspace in &view.installed.keyspaces {
            let reshaped = keyspace
                .reshaping
                .under_way
                .iter()
                .flat_map(Reshape::partitions);
            still.extend(reshaped.map(|partition| PartitionRef {
                keyspace: keyspace.id,
                partition,
            }));
        }
        let assign = |slot: &mut Slot| {
            slot.assign(
                &view,
                still.contains(&slot.at),
                &self.cx.tables.threads,
                anew,
            )
            .then_some(slot.at)
        };
        let mut as_before = self
            .slots
            .iter_mut()
            .filter_map(assign)
            .collect::<Vec<_>>()
            .into_iter()
            .peekable();
        self.reshape();
        self.look_for_repairs();
        for slot in self.slots.iter_mut() {
            let at = slot.at;
            // Both lists are in order. New partitions stand between the others.
            let as_before = as_before.next_if_eq(&at).is_some();
            let opens = self.cx.tables.opens.contains_key(&at) && !slot.is_open();
            if !as_before || opens || !slot.calls.is_empty() {
                self.cx.turn(slot, renamed);
                self.cx.notice(slot);
            }
        }
        self.slots.prune(|id| {
            view.installed
                .keyspace(id)
                .or(view.accepted.keyspace(id))
                .is_none()
        });
        for (at, (from, opening)) in std::mem::take(&mut self.cx.copying.early) {
            if let Some(slot) = self.slots.get_mut(at) {
                self.cx.begin_sink(slot, from, opening);
            }
        }
        self.cx.memory.holding = self.slots.iter().filter(|s| s.held.is_some()).count();
        if let Some(view) = &self.cx.tables.view {
            self.cx
                .peers
                .retain_silent(|id| view.installed.member(id.member()).is_some());
        }
    }

    /// This cluster of one is marked used: the answer to `Request::Used`.
    pub fn used(&mut self, now: Time) {
        self.cx.now = now;
        self.cx.used = true;
        self.pump_all();
    }

    /// Ends this machine, and returns the calls of local callers that are not answered. Each comes
    /// with whether a later write on the same key may have overtaken it (`poll_overtaken`).
    ///
    /// `heir` is the machine that takes the place of this one, under a new member id. It takes over
    /// the memory of this machine and frees it in slices, because that takes long if it is large.
    pub fn into_calls(mut self, heir: &mut Self) -> impl Iterator<Item = (Token, Work, bool)> {
        self.slots.iter_mut().for_each(|slot| self.cx.discard(slot));
        let garbage = std::mem::take(&mut self.cx.memory.garbage);
        heir.cx.memory.garbage.inherit(garbage, &mut heir.cx.timers);
        let mut ready: BTreeMap<PartitionRef, Vec<Executed>> = BTreeMap::new();
        self.cx
            .callers
            .ready
            .take(&mut self.cx.timers)
            .into_iter()
            .for_each(|(at, executed)| ready.entry(at).or_default().push(executed));
        let calls = self.slots.into_iter().flat_map(move |slot| {
            let ready = ready.remove(&slot.at).unwrap_or_default();
            slot.calls.into_all(ready, slot.at.keyspace)
        });
        calls.filter_map(|c| {
            let overtaken = c.before().is_some();
            Some((c.source.token()?, c.work, overtaken))
        })
    }

    /// Submits an operation of a local caller. `unix_ms` is wall time, which the shell reads once a
    /// batch at most. Returns whether the outcome comes from another node, or from another thread
    /// of this one.
    pub fn submit(
        &mut self,
        now: Time,
        unix_ms: u64,
        token: Token,
        operation: Operation,
        patience: Patience,
    ) -> bool {
        self.cx.now = now;
        self.cx.wall = (unix_ms, now);
        if operation.key.len() > self.cx.limits.key_bytes_max {
            self.cx
                .callers
                .answer(token, Outcome::Failed(Failure::TooLarge));
            return false;
        }
        let at = self
            .cx
            .tables
            .place(operation.keyspace, operation.map, &operation.key);
        self.submit_at(at, token, Work::Key(operation), patience)
    }

    /// Whether this thread is the primary of a key in the installed table.
    pub fn leads(&self, keyspace: KeyspaceId, map: MapId, key: &[u8]) -> bool {
        let slot = self
            .cx
            .tables
            .place(keyspace, map, key)
            .and_then(|at| self.slots.get(at));
        slot.is_some_and(|slot| slot.primary() == Some(self.cx.me))
    }

    /// A short way for a write without conditions, if nothing is in its way: this thread leads, and
    /// nothing waits there. If it returns false, nothing happened, and the write must be submitted.
    /// `token` is called if the write happens.
    pub fn set(
        &mut self,
        now: Time,
        keyspace: KeyspaceId,
        map: MapId,
        pair: (&[u8], &[u8]),
        token: impl FnOnce() -> Token,
    ) -> bool {
        let cx = &mut self.cx;
        cx.now = now;
        let (key, value) = pair;
        if key.len() > cx.limits.key_bytes_max
            || value.len() > cx.limits.value_bytes_max
            || cx.callers.outstanding >= cx.limits.waiting_max
        {
            return false;
        }
        let Some(at) = cx.tables.place(keyspace, map, key) else {
            return false;
        };
        let Some(slot) = self.slots.get_mut(at) else {
            return false;
        };
        let done = cx.set(slot, map, pair, token);
        if done {
            cx.notice(slot);
        }
        done
    }

    /// Submits a partition-wide operation of a local caller.
    pub fn submit_partition(
        &mut self,
        now: Time,
        token: Token,
        operation: PartitionOperation,
        patience: Patience,
    ) {
        self.cx.now = now;
        let at = PartitionRef {
            keyspace: operation.keyspace,
            partition: operation.partition,
        };
        self.submit_at(Some(at), token, Work::Partition(operation), patience);
    }

    fn submit_at(
        &mut self,
        at: Option<PartitionRef>,
        token: Token,
        work: Work,
        patience: Patience,
    ) -> bool {
        let found = at.filter(|at| self.slots.get(*at).is_some_and(|s| s.installed.is_some()));
        let Some(slot) = found.and_then(|at| self.slots.get_mut(at)) else {
            let failure = at.map_or(Failure::NoPartition, |at| self.cx.tables.missing(at));
            self.cx.callers.answer(token, Outcome::Failed(failure));
            return false;
        };
        if self.cx.callers.outstanding >= self.cx.limits.waiting_max {
            self.cx
                .callers
                .answer(token, Outcome::Failed(Failure::Overloaded));
            return false;
        }
        let n = self.cx.callers.number();
        let (until, hurried) = match patience {
            Patience::Whole => (self.cx.now + self.cx.limits.park, false),
            Patience::Until(until) => (until, true),
        };
        let call = Call {
            source: Source::Local(token),
            n,
            work,
            until,
            hurried,
            maybe: false,
            tried: None,
        };
        if call.work.is_write() {
            slot.calls.begin(n);
        }
        self.cx.take_call(slot, call);
        self.cx.notice(slot);
        slot.primary() != Some(self.cx.me)
    }

    /// Reads a key, if this node can do so at once: it leads the partition, nothing waits there,
    /// and the entry is committed. Otherwise returns `None`, and the read must be submitted. The
    /// value may be answered only if `may_answer` agrees, with a clock, a lease and a generation
    /// that were read *after* this. If it does not, keep the read (`keep`) under the number that
    /// comes with it.
    pub fn read(
        &mut self,
        now: Time,
        keyspace: KeyspaceId,
        map: MapId,
        key: &[u8],
    ) -> Option<(u64, Option<&[u8]>)> {
        self.cx.now = self.cx.now.max(now);
        let slot = self
            .slots
            .get_mut(self.cx.tables.place(keyspace, map, key)?)?;
        if !slot.serving() || !slot.calls.parked.is_empty() {
            return None;
        }
        let held = slot.held.as_deref_mut()?;
        if !held.lead().is_some_and(|l| l.open) {
            return None;
        }
        let order = held.store.order(key);
        self.cx.draw(held, map, order, key);
        let found = held.store.entry(map, order, key);
        let seq = read_at(found, &held.log);
        let overdue = found.is_some_and(|e| e.overdue(held.clock.advance(self.cx.now)))
            && !broken(&mutant::READS_OVERDUE);
        if seq > held.log.committed() || overdue {
            return None;
        }
        self.cx.stats.executed += 1;
        self.cx.stats.count_lookup(found.is_some());
        self.cx.callers.read_at_once += 1;
        if slot.eviction == Eviction::Lru
            && let Some(entry) = found
        {
            entry.mark();
        }
        let value = found.map(entry::Entry::value);
        let bytes = value.map_or(0, <[u8]>::len);
        self.cx.worked += bytes;
        if held.meter.read(bytes) {
            held.meter.sample(map, key);
        }
        let n = self.cx.callers.number();
        Some((n, value))
    }

    /// Keeps the result of `read`, because it may not be answered now. Like any executed read, it
    /// is checked again. If the tenure ends, it is executed again, in its place among the
    /// operations of this node.
    pub fn keep(&mut self, token: Token, n: u64, operation: Operation, outcome: Outcome) {
        let Some(at) = self
            .cx
            .tables
            .place(operation.keyspace, operation.map, &operation.key)
        else {
            return self
                .cx
                .callers
                .answer(token, Outcome::Failed(Failure::NoPartition));
        };
        let until = self.cx.now + self.cx.limits.park;
        let call = Call {
            source: Source::Local(token),
            n,
            work: Work::Key(operation),
            until,
            hurried: false,
            maybe: false,
            tried: None,
        };
        self.cx.callers.outstanding += 1;
        let executed = Executed::of(call, 0, outcome, false);
        self.cx
            .callers
            .ready
            .push(at, executed, &mut self.cx.timers);
    }

    /// Whether a read or committed outcome may be answered (rule 8), by a clock and a lease that
    /// were read after it. `current` says whether the control thread still shows the view that was
    /// installed last.
    #[must_use]
    pub fn may_answer(now: Time, lease: Time, current: bool) -> bool {
        (current || broken(&mutant::ANSWERS_BY_OLD_VIEW))
            && (now <= lease || broken(&mutant::ANSWERS_WITHOUT_LEASE))
    }

    /// How many more operations may be submitted before the answer is `Overloaded`.
    #[must_use]
    pub fn room(&self) -> usize {
        self.cx
            .limits
            .waiting_max
            .saturating_sub(self.cx.callers.outstanding)
    }

    /// Bytes of values and frames handled since the last call. With this, a shell divides work into
    /// slices.
    pub fn take_work(&mut self) -> usize {
        std::mem::take(&mut self.cx.worked)
    }

    /// Says whether many bytes wait for a peer outside of this machine. Then the machine sends only
    /// what cannot wait. A new connection begins uncongested.
    pub fn congested(&mut self, now: Time, peer: MemberId, congested: bool) {
        self.cx.now = now;
        self.cx.peers.set_congested(peer, congested);
    }

    /// A peer has room again, so data that was held back is sent: the log first, because others
    /// wait for its acks; then one answer, so that calls cannot hold up all answers.
    fn relieve(&mut self, peer: MemberId) {
        let lags = |slot: &Slot| {
            let held = slot.held.as_ref()?;
            let link = held.lead()?.links.get(&peer)?;
            (link.next <= held.log.last()).then_some(())
        };
        for slot in self.slots.iter_mut() {
            if lags(slot).is_some() {
                if let Some(mut leading) = slot.leading() {
                    leading.stream(&mut self.cx, peer);
                }
                self.cx.notice(slot);
            }
        }
        self.cx.peers.answer_more(peer, 1);
        self.admit(peer);
        for slot in self.slots.iter_mut() {
            if !slot.calls.parked.is_empty() && slot.primary() == Some(peer) {
                self.cx.pump(slot);
                self.cx.notice(slot);
            }
        }
        self.cx.peers.answer_more(peer, usize::MAX);
    }

    /// Calls that waited for a crowded peer are executed, one partition after the other, as long as
    /// the peer accepts more.
    fn admit(&mut self, peer: MemberId) {
        for _ in 0..self.cx.callers.waiting_for(peer) {
            if self.cx.peers.hold_back(peer) {
                return;
            }
            let Some(at) = self.cx.callers.next_waiting_for(peer) else {
                break;
            };
            if let Some(slot) = self.slots.get_mut(at) {
                slot.crowded_by = slot.crowded_by.filter(|by| *by != peer);
                self.cx.pump(slot);
                self.cx.notice(slot);
            }
        }
    }

    /// The caller is gone, and its outcome is not wanted any more. (What was sent may still
    /// happen.)
    pub fn forget(&mut self, token: Token) {
        if self.cx.callers.is_idle() {
            return;
        }
        if self.cx.callers.forget(token) {
            let calls = self.slots.iter().flat_map(|s| s.calls.all());
            let sources = calls.map(|(source, _)| source);
            let ready: Vec<Source> = self.cx.callers.ready.sources().collect();
            let open = sources.chain(ready).filter_map(|source| source.token());
            self.cx.callers.forget_answered(open);
        }
    }

    /// A connection of this version with this peer is up. Both lanes begin at their start.
    pub fn connected(&mut self, now: Time, peer: MemberId, version: u16) {
        self.disconnected(now, peer);
        let ahead_max =
            following::hears_of_memory(self.cx.me, peer).then_some(self.cx.limits.ahead_bytes_max);
        self.cx.peers.connect((peer, version), ahead_max, now);
        if self.cx.me.is_client() {
            // Calls are sent once the member says that it is ready.
            return;
        }
        if peer.is_client() {
            return self.cx.greet(peer);
        }
        if let Some(name) = self.cx.tables.name
            && threads::tells_tables(self.cx.me, peer)
        {
            self.cx.peers.send(peer, Lane::Calls, &Frame::View(name));
        }
        // Members send no copy here before they know that there is room.
        self.cx.tell_headroom();
        for slot in self.slots.iter_mut() {
            if let Some(mut leading) = slot.leading()
                && leading.lead.links.contains_key(&peer)
            {
                leading.restart_link(&mut self.cx, peer);
                self.cx.notice(slot);
            } else if slot.primary() == Some(peer) {
                if let Some(follower) = slot.held.as_mut().and_then(|h| h.follower_mut()) {
                    follower.wanted = None;
                }
                self.cx.pump(slot);
            }
        }
    }

    /// The connection is gone, with everything in flight on it.
    pub fn disconnected(&mut self, now: Time, peer: MemberId) {
        self.cx.now = now;
        if !self.cx.peers.up(peer) {
            return;
        }
        self.cx.peers.disconnect(peer);
        self.admit(peer);
        self.cx.copying.early.retain(|_, (from, _)| *from != peer);
        self.cx.pull_again(peer);
        let mut dropped = self.cx.callers.ready.drop_of(peer, &mut self.cx.timers);
        for slot in self.slots.iter_mut().filter(|s| !s.calls.is_empty()) {
            if slot.calls.sent_to == Some(peer) {
                slot.calls.unsend();
            }
            dropped += slot.calls.retain(|c| c.source.peer() != Some(peer));
            let before = slot.calls.waiting.len();
            slot.calls
                .waiting
                .retain(|e| e.asker.source.peer() != Some(peer));
            dropped += before - slot.calls.waiting.len();
        }
        self.cx.callers.outstanding -= dropped;
    }

    /// Takes bytes of one lane. Whole frames are consumed from the front. A partial frame stays for
    /// the next call. If this returns true, more work is left than others should wait for: let
    /// others have their turn, and then call it again with what is left (which may be nothing).
    ///
    /// # Errors
    /// `Malformed`: close the connection.
    pub fn receive(
        &mut self,
        now: Time,
        unix_ms: u64,
        peer: MemberId,
        lane: Lane,
        bytes: &mut BytesMut,
    ) -> Result<bool, Malformed> {
        self.cx.now = now;
        self.cx.wall = (unix_ms, now);
        let mut batch = self
            .cx
            .peers
            .get(peer)
            .map(|p| std::mem::take(p.batch(lane)))
            .unwrap_or_default();
        let result = self.receive_all(peer, lane, bytes, &mut batch);
        if let Some(p) = self.cx.peers.get(peer) {
            *p.batch(lane) = batch;
            p.partial[peers::index(lane)] = bytes.len() as u64;
        }
        if result.is_err() {
            self.cx.stats.malformed += 1;
        }
        self.cx.send_acks(peer);
        result
    }

    fn receive_all(
        &mut self,
        peer: MemberId,
        lane: Lane,
        bytes: &mut BytesMut,
        batch: &mut VecDeque<Frame>,
    ) -> Result<bool, Malformed> {
        // A frame holds at most a key, two values (the old one as an outcome) and a batch.
        let limits = &self.cx.limits;
        let frame_bytes_max = 3 * limits.value_bytes_max
            + 2 * limits.key_bytes_max
            + frame::FRAME_SLACK
            + limits.chunk_bytes;
        self.cx.worked = 0;
        let most = if lane == Lane::Bulk {
            RECEIVE_BULK_MAX
        } else {
            RECEIVE_WORK_MAX
        };
        loop {
            let read = if batch.is_empty() {
                self.read_batch(peer, lane, bytes, frame_bytes_max, batch)
            } else {
                Ok(())
            };
            if batch.is_empty() {
                return read.map(|()| false);
            }
            self.warm_batch(batch);
            while let Some(frame) = batch.pop_front() {
                self.handle(peer, frame)?;
                if self.cx.worked >= most && (!batch.is_empty() || !bytes.is_empty()) {
                    return read.map(|()| true);
                }
            }
            read?;
        }
    }

    /// Takes some whole frames.
    fn read_batch(
        &mut self,
        peer: MemberId,
        lane: Lane,
        bytes: &mut BytesMut,
        frame_bytes_max: usize,
        batch: &mut VecDeque<Frame>,
    ) -> Result<(), Malformed> {
        // A part of a snapshot needs no lookups, and is counted once it is handled.
        let most = if lane == Lane::Bulk {
            1
        } else {
            index::WARM_GROUP
        };
        let version = self.cx.peers.get(peer).map_or(LEVELS.0, |p| p.version);
        while batch.len() < most && self.cx.worked < RECEIVE_WORK_MAX {
            let Some((read, length)) = frame::take(bytes, frame_bytes_max, version)? else {
                break;
            };
            self.cx.worked += length + FRAME_WORK;
            let Some(known) = self.cx.peers.get(peer) else {
                // These are bytes of a connection that is gone.
                batch.clear();
                break;
            };
            known.received[peers::index(lane)] += length as u64;
            known.heard = self.cx.now;
            let bulk = matches!(
                read,
                Frame::Chunk { .. }
                    | Frame::Outcomes { .. }
                    | Frame::Finish { .. }
                    | Frame::Table { .. }
            );
            if bulk != (lane == Lane::Bulk) {
                return Err(Malformed("a frame on the wrong lane"));
            }
            batch.push_back(read);
        }
        Ok(())
    }

    /// Loads what these frames will look up.
    fn warm_batch(&self, batch: &VecDeque<Frame>) {
        let entries = |frame: &Frame| {
            if let Frame::Append { entries, .. } = frame {
                entries.len()
            } else {
                1
            }
        };
        if batch.iter().map(entries).sum::<usize>() < WARM_LEAST {
            return;
        }
        let keys = batch.iter().flat_map(|frame| {
            let (head, entries) = match frame {
                Frame::Append { head, entries } => (Some(head.at), &entries[..]),
                _ => (None, &[][..]),
            };
            let logged = entries
                .iter()
                .filter_map(move |e| Some((head?, e.effect.map(), e.effect.key()?)));
            let asked = match frame {
                Frame::Forward {
                    forwarded,
                    work: Work::Key(op),
                    ..
                } => Some((forwarded.at, op.map, &*op.key)),
                Frame::ForwardSet {
                    forwarded,
                    map,
                    entry,
                } => Some((forwarded.at, *map, entry.key())),
                _ => None,
            };
            logged.chain(asked)
        });
        self.warm_lookups(keys);
    }

    fn warm_lookups<'a>(&self, keys: impl Iterator<Item = (PartitionRef, MapId, &'a [u8])>) {
        let store = |at| Some(&self.slots.get(at)?.held.as_ref()?.store);
        index::Index::warm(keys.filter_map(|(at, map, key)| store(at)?.lookup(map, key)));
    }

    /// Announces which keys of a map will be looked up next. One lookup waits for memory several
    /// times. Together, many wait hardly longer than one.
    pub fn warm<'a>(&self, keyspace: KeyspaceId, map: MapId, keys: impl Iterator<Item = &'a [u8]>) {
        let Some(keyspace) = self
            .cx
            .tables
            .view
            .as_ref()
            .and_then(|v| v.installed.keyspace(keyspace))
        else {
            return;
        };
        let at = |partition| PartitionRef {
            keyspace: keyspace.id,
            partition,
        };
        self.warm_lookups(
            keys.filter_map(|key| Some((at(keyspace.partition_of(map, key)?), map, key))),
        );
    }

    fn handle(&mut self, peer: MemberId, read: Frame) -> Result<(), Malformed> {
        if !clients::fits(self.cx.me, peer, &read) {
            return Err(Malformed("a frame that this kind of peer never sends"));
        }
        let at = match &read {
            Frame::View(name) if !self.cx.me.is_client() => {
                self.cx.heard_of(*name);
                return Ok(());
            }
            Frame::View(_) | Frame::Tick { .. } | Frame::Table { .. } | Frame::MapMade { .. } => {
                if self.cx.told_by_member(peer, read)? {
                    self.pump_calls_of(peer);
                }
                return Ok(());
            }
            Frame::Heard { .. } | Frame::Pull { .. } | Frame::MakeMap { .. } => {
                return self.cx.asked_by_client(peer, read);
            }
            Frame::Acks {
                headroom,
                arrived,
                acks,
            } => {
                self.cx
                    .peers
                    .set_headroom(peer, *headroom, *arrived, self.cx.now);
                for ack in acks {
                    if let Some(slot) = self.slots.get_mut(ack.at) {
                        if let Some(mut leading) = slot.leading() {
                            leading.acked(&mut self.cx, ack, peer);
                        }
                        self.cx.notice(slot);
                    }
                }
                return Ok(());
            }
            Frame::Align { head, .. } | Frame::Append { head, .. } => head.at,
            Frame::Forward { forwarded, .. } | Frame::ForwardSet { forwarded, .. } => forwarded.at,
            Frame::Reply { at, .. }
            | Frame::NotServing { at, .. }
            | Frame::Want { at, .. }
            | Frame::Begin { at, .. }
            | Frame::NoRoom { at, .. }
            | Frame::Later { at, .. }
            | Frame::Holds { at, .. }
            | Frame::Chunk { at, .. }
            | Frame::ChunkAck { at, .. }
            | Frame::Outcomes { at, .. }
            | Frame::Continue { at, .. }
            | Frame::Arrived { at, .. }
            | Frame::Finish { at, .. }
            | Frame::Finished { at, .. }
            | Frame::Compare { at, .. }
            | Frame::Verdict { at, .. } => *at,
        };
        let cx = &mut self.cx;
        let Some(slot) = self.slots.get_mut(at) else {
            if let Frame::Forward { forwarded, .. } | Frame::ForwardSet { forwarded, .. } = read {
                // It is not noted: a client could name partitions without end.
                cx.peers.send(
                    peer,
                    Lane::Calls,
                    &Frame::NotServing {
                        at,
                        n: forwarded.n,
                        attempt: forwarded.attempt,
                    },
                );
            }
            return Ok(());
        };
        // A copy that follows its primary's log has no later work.
        if !matches!(read, Frame::Append { .. } | Frame::Align { .. }) {
            cx.notice(slot);
        }
        match read {
            Frame::Forward {
                forwarded,
                before,
                work,
            } => cx.forwarded(slot, peer, &forwarded, before, work)?,
            Frame::ForwardSet {
                forwarded,
                map,
                entry,
            } => cx.forwarded_set(slot, peer, &forwarded, map, entry)?,
            Frame::Reply {
                n,
                attempt,
                outcome,
                ..
            } => cx.replied(slot, (n, attempt), outcome),
            Frame::NotServing { n, attempt, .. } => {
                if slot.calls.refused(n, attempt) {
                    let pause = cx.backoff(RETRY.0, RETRY.1, slot.calls.refusals);
                    slot.calls.refusals += 1;
                    cx.timers.wake(slot.at, cx.now + pause);
                }
            }
            Frame::Align {
                head,
                base,
                last,
                entries,
            } => {
                if let Some(mut following) = slot.following() {
                    following.align(cx, peer, &head, (base, last), entries);
                }
                // If a clear was undone, the keys that it was still to draw are there again.
                cx.note_drawing(slot);
            }
            Frame::Append { head, entries } => {
                if let Some(mut following) = slot.following() {
                    following.append(cx, peer, &head, entries);
                }
            }
            Frame::Begin {
                epoch,
                lineage,
                session,
                kept,
                seq,
                bytes,
                ..
            } => {
                cx.begin_sink(
                    slot,
                    peer,
                    Opening {
                        epoch,
                        lineage,
                        session,
                        kept,
                        seq,
                        bytes,
                    },
                );
            }
            Frame::Chunk { .. }
            | Frame::Outcomes { .. }
            | Frame::Continue { .. }
            | Frame::Finish { .. }
            | Frame::Compare { .. } => {
                if let Some(mut following) = slot.following() {
                    following.told(cx, peer, read)?;
                }
            }
            Frame::Want { .. }
            | Frame::NoRoom { .. }
            | Frame::Later { .. }
            | Frame::Holds { .. }
            | Frame::ChunkAck { .. }
            | Frame::Arrived { .. }
            | Frame::Finished { .. }
            | Frame::Verdict { .. } => {
                if let Some(mut leading) = slot.leading() {
                    leading.told(cx, peer, read);
                }
            }
            Frame::View(_)
            | Frame::Acks { .. }
            | Frame::Tick { .. }
            | Frame::Table { .. }
            | Frame::MapMade { .. } => {}
            Frame::Heard { .. } | Frame::Pull { .. } | Frame::MakeMap { .. } => {}
        }
        Ok(())
    }

    /// A member accepts operations: calls that were parked for it are sent, once the time was read
    /// again (`clients`).
    fn pump_calls_of(&mut self, primary: MemberId) {
        let soon = self.cx.now + Duration::from_nanos(1);
        let parked = self
            .slots
            .iter()
            .filter(|slot| !slot.calls.parked.is_empty() && slot.primary() == Some(primary));
        parked.for_each(|slot| self.cx.timers.wake(slot.at, soon));
    }

    /// Releases outcomes that may be answered. Call it after a batch of inputs, with a clock and a
    /// lease that were read *after* them. `current` says whether the control thread still shows the
    /// view that was installed last. With an expired lease or an old view, nothing is released, and
    /// what was executed is checked again later (rule 8).
    pub fn release(&mut self, now: Time, lease: Time, current: bool) {
        let passed = now.since(self.cx.now);
        self.cx.now = self.cx.now.max(now);
        if !Self::may_answer(now, lease, current) {
            // The tenure decides. While it lasts, no other member can have led, so what was read
            // stays true. If it ends, `install` sends these back to be executed again.
            return;
        }
        let read = std::mem::take(&mut self.cx.callers.read_at_once);
        self.cx.copying.pace.answered(passed, read);
        while let Some((at, executed)) = self.cx.callers.ready.pop() {
            let asker = executed.asker;
            if !executed.hurried {
                let waited = self
                    .cx
                    .limits
                    .park
                    .saturating_sub(executed.until.since(now));
                self.cx.copying.pace.answered(waited, 1);
            }
            if let Source::Local(token) = asker.source
                && !asker.write
            {
                self.cx.callers.outstanding -= 1;
                self.cx.callers.answer(token, executed.outcome);
                continue;
            }
            let Some(slot) = self.slots.get_mut(at) else {
                continue;
            };
            self.cx.answer(slot, asker, executed.outcome);
        }
        self.cx.callers.ready.settle(&mut self.cx.timers);
    }

    /// The next released outcome.
    pub fn poll_outcome(&mut self) -> Option<(Token, Outcome)> {
        self.cx.callers.poll_outcome()
    }

    /// The next operation that was executed and changed nothing in a tenure that ended, whose
    /// outcome was lost, and that a later write of this shard's callers on the same key overtook.
    /// Executed again, it would see that write. The machine does not answer it any more. A caller
    /// whose operations on one key keep an order answers that nothing happened. A caller with one
    /// operation at a time submits it again.
    pub fn poll_overtaken(&mut self) -> Option<(Token, Work)> {
        self.cx.callers.poll_overtaken()
    }

    /// The next bytes for a peer: everything that is ready for one lane, in one buffer. Large
    /// values are separate, as they are stored.
    pub fn poll_transmit(&mut self) -> Option<(MemberId, Lane, Bytes)> {
        loop {
            if let Some(next) = self.cx.peers.next() {
                return Some(next);
            }
            let peer = self.cx.peers.relieved()?;
            self.relieve(peer);
        }
    }

    /// The next request to the control thread.
    pub fn poll_request(&mut self) -> Option<Request> {
        self.cx.outbox.poll()
    }

    /// Bytes held: entries, tails, snapshots.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.cx.memory.bytes as u64
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.cx.stats.clone();
        let (memory, memory_max) = (
            self.cx.memory.bytes as u64,
            self.cx.limits.memory_bytes_max as u64,
        );
        (stats.memory_bytes, stats.memory_bytes_max) = (memory, memory_max);
        stats.memory_outside_bytes = self.cx.memory_held() as u64 - memory;
        stats.memory_filled =
            (self.cx.memory_held() as u64).saturating_mul(1000) / memory_max.max(1);
        stats.divided = self.cx.rounds.drawing.len() as u64;
        for slot in self.slots.iter() {
            stats.parked += slot.calls.parked.len() as u64;
            let Some(held) = &slot.held else { continue };
            stats.keys += held.store.keys() as u64;
            if let Some(lead) = held.lead() {
                if lead.open && lead.serving {
                    stats.open += 1
                } else {
                    stats.closed += 1
                }
            }
        }
        stats
    }

    /// How many keys of each of these maps this shard leads, and how many of them expire.
    #[must_use]
    pub fn led<const N: usize>(&self, keyspace: KeyspaceId, maps: [MapId; N]) -> [(u64, u64); N] {
        let mut all = [(0, 0); N];
        let led = self
            .slots
            .iter()
            .filter(|slot| slot.at.keyspace == keyspace && slot.serving());
        for held in led.filter_map(|slot| slot.held.as_ref()) {
            held.store.each_of(&maps, |place, keys, expire| {
                all[place].0 += keys as u64;
                all[place].1 += expire as u64;
            });
        }
        all
    }

    /// How many keys of a map a partition has, if this node can tell at once: it leads the
    /// partition, nothing waits there, and everything is committed. The number holds if
    /// `may_answer` agrees, with a clock, a lease and a generation that were read *after* this,
    /// while the view is the same. If it does not, ask again.
    #[must_use]
    pub fn keys_of(
        &self,
        keyspace: KeyspaceId,
        partition: PartitionId,
        map: MapId,
    ) -> Option<usize> {
        let slot = self.slots.get(PartitionRef {
            keyspace,
            partition,
        })?;
        let waits = !slot.calls.parked.is_empty() || !slot.calls.later.is_empty();
        let held = slot.held.as_deref().filter(|_| slot.serving() && !waits)?;
        let open = held.lead().is_some_and(|lead| lead.open);
        (open && held.store.is_whole() && held.log.last() <= held.log.committed())
            .then(|| held.store.count(map))
    }

    fn pump_all(&mut self) {
        for slot in self.slots.iter_mut().filter(|s| !s.calls.parked.is_empty()) {
            self.cx.pump(slot);
        }
    }
}

impl Context {
    /// A partition may have work: upkeep looks at it until it is quiet.
    #[inline]
    fn notice(&mut self, slot: &mut Slot) {
        self.rounds.notice(slot, self.now, &mut self.timers);
    }
}
