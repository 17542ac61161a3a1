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
pub mod command;
#[cfg_attr(not(feature = "fault-points"), allow(dead_code))]
pub mod fault;
pub mod op;

mod action;
mod ahead;
mod api;
#[cfg(feature = "bench-internals")]
#[doc(hidden)]
pub mod bench;
mod clients;
mod compacting;
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
mod halving;
mod index;
mod inspect;
mod integer;
mod log;
mod measuring;
#[doc(hidden)]
pub mod mutant;
mod pace;
mod peers;
mod published;
mod replication;
mod reshaping;
mod scan;
mod shaking;
mod slots;
mod store;
#[cfg(test)]
mod tests;
mod threads;
mod upkeep;

use bytes::{Bytes, BytesMut};
use clients::Arriving;
use compacting::Compacting;
pub use compacting::Outside;
use copying::{Copying, LateAck, Opening, Sink};
use dedup::Dedup;
use doyen_gossip::Time;
use doyen_gossip::agreement::{InSyncChange, InSyncRequest, View};
use doyen_placement::level::LEVELS;
use doyen_placement::loads::Meter;
use doyen_placement::planner;
use doyen_placement::{
    Epoch, Eviction, KeyspaceId, Lineage, MapId, MemberId, Mode, OrderKey, Partition, PartitionId,
    PartitionRef, Reshape, Table, TableName,
};
use eviction::Evicting;
use following::Follow;
use forwarding::{Call, Calls, Executed, Source};
use frame::Frame;
use halving::Halving;
use log::Log;
use mutant::broken;
use op::{Failure, Operation, Outcome, PartitionOperation, Work};
use pace::Pace;
use peers::Peers;
use published::Published;
use replication::{Clock, Lead};
use slots::Slots;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store::{Map, Store};

pub use api::{Lane, Limits, Malformed, Patience, Request, Stats, Token};
pub use clients::PARK;
pub use extended::Extended;
#[doc(hidden)]
pub use inspect::{Asked, Inspection};
pub use integer::integer;
#[doc(hidden)]
pub use threads::Threads;
#[doc(hidden)]
pub use threads::thread_of;

/// Keys summed in one slice.
const SLICE: usize = 4_000;
/// How many callers may be forgotten before those without an open call are removed.
const FORGOTTEN_MAX: usize = 4_096;
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
    core: Core,
    slots: Slots,
}

/// Everything that belongs to no partition.
#[derive(Debug)]
struct Core {
    /// This data thread.
    me: MemberId,
    threads: Threads,
    /// Members that are about to leave.
    leaving: BTreeSet<MemberId>,
    limits: Limits,
    rng: u64,
    now: Time,
    /// Wall time, and the moment when it was read.
    wall: (u64, Time),
    view: Option<View>,
    /// When new tenures may acknowledge (rule 9).
    opens: BTreeMap<PartitionRef, (Epoch, Time)>,
    name: Option<TableName>,
    /// The newest table that was asked for.
    asked_for: Option<TableName>,
    /// At a client: the member that was asked for it, and when its last part came.
    asked_of: Option<(MemberId, Time)>,
    arriving: Option<Arriving>,
    /// At a client: the last table that arrived. It is not installed before the shell has taken it.
    arrived: Option<(TableName, Arc<Table>)>,
    /// The installed table in the encoding for clients.
    published: Published,
    /// When outcomes of clients are next retired.
    next_retire: Time,
    peers: Peers,
    /// Partitions with calls that wait for a crowded peer, in the order in which they began to
    /// wait.
    crowded: BTreeMap<MemberId, VecDeque<PartitionRef>>,
    /// Executed and committed calls. `release` decides whether they may be answered.
    ready: VecDeque<(PartitionRef, Executed)>,
    outcomes: VecDeque<(Token, Outcome)>,
    /// Local calls that were executed and changed nothing, and whose outcomes are lost.
    overtaken: VecDeque<(Token, Work)>,
    requests: VecDeque<Request>,
    opened: Vec<(PartitionRef, Epoch)>,
    in_sync: Vec<InSyncRequest>,
    stats: Stats,
    memory: usize,
    /// Number of calls that are not answered.
    outstanding: usize,
    next_n: u64,
    next_session: u32,
    copying: Copying,
    /// For each copy that is made here: the bytes that are still to arrive.
    expected: BTreeMap<PartitionRef, u64>,
    /// Number of held partitions, which share the tail.
    holding: usize,
    used: bool,
    asked_used: bool,
    /// Partitions with timers.
    timers: BTreeSet<(Time, PartitionRef)>,
    /// Dropped maps, which are freed in slices.
    garbage: Vec<Map>,
    old_logs: Vec<Log>,
    /// Partitions that still draw from former ones, and when they draw next.
    drawing: VecDeque<PartitionRef>,
    draw_at: Time,
    free_at: Time,
    /// Partitions with overdue keys, and when some of those are expired next.
    expiring: VecDeque<PartitionRef>,
    expire_at: Time,
    evicting: Evicting,
    compacting: Compacting,
    /// Learners that may be sent a part of their snapshot, and when the next part is due.
    to_copy: VecDeque<(PartitionRef, MemberId)>,
    copy_at: Time,
    pace: Pace,
    /// At the last check, the pace allowed nothing more.
    paced: bool,
    /// Chunks that arrived and are acknowledged as the pace allows, and when the next ack is due.
    late_acks: VecDeque<LateAck>,
    ack_at: Time,
    /// Snapshots whose table is not installed here yet, with their senders.
    early: BTreeMap<PartitionRef, (MemberId, Opening)>,
    /// Reads in this pass that were answered at once.
    read: u32,
    /// At the last check, no learner could take more.
    copies_wait: bool,
    forgotten: BTreeSet<Token>,
    /// Partitions that the next upkeep looks at. All others have nothing to do. An idle node looks
    /// at none: looking at a thousand partitions twenty times a second was a third of its cost.
    noticed: Vec<PartitionRef>,
    /// Partitions that the present upkeep must still look at.
    looking_at: VecDeque<PartitionRef>,
    next_upkeep: Time,
    /// The present upkeep gives up the calls that were due at this time.
    gives_up_to: Time,
    /// Bytes of values and frames handled since `take_work`.
    worked: usize,
    next_round: Time,
    /// When loads were last measured, and how often they were.
    measured: (Time, u32),
}

/// One partition of the table: its members, its calls, and what this node holds of it.
#[derive(Debug, Default)]
struct Slot {
    installed: Option<Assigned>,
    accepted: Option<Assigned>,
    /// The lineage that was installed last. Calls are sent for it.
    lineage: Option<Lineage>,
    min_in_sync: u8,
    default_ttl_ms: Option<u64>,
    eviction: Eviction,
    calls: Calls,
    held: Option<Box<Held>>,
    /// Whether it is in `Core::noticed`, or in the list of the present upkeep.
    noticed: bool,
    /// Whether it is in `Core::expiring`.
    expiring: bool,
    /// Whether the installed table splits or merges it, so that it accepts no writes.
    still: bool,
    /// Whether it is a range of keys.
    ranged: bool,
    /// The peer, a copy or the primary, for which calls wait here because it takes its bytes slower
    /// than they come.
    crowded_by: Option<MemberId>,
    /// Whether it is in `Core::drawing`.
    drawing: bool,
}

impl Slot {
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
    fn assign(
        &mut self,
        view: &View,
        at: PartitionRef,
        still: bool,
        threads: &Threads,
        anew: bool,
    ) -> bool {
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
}

/// A partition's contents and log at this node.
#[derive(Debug)]
struct Held {
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
    /// The state of the primary, if this node leads.
    lead: Option<Lead>,
    /// The log that this copy continues.
    follow: Option<Follow>,
    /// A snapshot that is arriving.
    sink: Option<Sink>,
    /// The last thing that was asked of the primary, so that it is not asked for every frame.
    wanted: Option<(Epoch, u64)>,
    drop_at: Option<Time>,
    /// A search for the key at which to split.
    halving: Option<Box<Halving>>,
    /// The place of this partition's ack in its batch, if it has one.
    ack_noted: usize,
    /// Measures the load here.
    meter: Meter,
    /// Bytes and keys that were reported to the control thread while this node leads.
    said: Option<(u64, u64)>,
}

impl Held {
    fn empty(lineage: Lineage, store: Store, now: Time) -> Self {
        Self {
            lineage,
            epoch: Epoch(0),
            fence: Epoch(0),
            was_in_sync: false,
            store,
            log: Log::default(),
            dedup: Dedup::default(),
            clock: Clock::new(now),
            lead: None,
            follow: None,
            sink: None,
            wanted: None,
            drop_at: None,
            halving: None,
            ack_noted: 0,
            meter: Meter::default(),
            said: None,
        }
    }

    fn bytes(&self) -> usize {
        self.store.bytes() + self.log.bytes()
    }

    /// Whether upkeep has nothing to do here until something happens.
    fn quiet(&self) -> bool {
        self.halving.is_none()
            && self.store.is_whole()
            && self
                .lead
                .as_ref()
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
            .and_then(|h| h.lead.as_ref())
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
        let stay = |p: &Partition| p.in_sync().filter(|m| !leaving.contains(m)).count();
        let lacks = |p: &Partition| {
            p.learners().next().is_some() && stay(p) < p.goal.as_ref().map_or(0, Vec::len)
        };
        self.held.is_some() && self.installed.as_ref().is_some_and(|a| lacks(&a.partition))
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
            .and_then(|h| h.lead.as_ref())
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
        let core = Core {
            me,
            threads: Threads::default(),
            leaving: BTreeSet::new(),
            rng: rng_seed | 1,
            now,
            wall: (0, now),
            view: None,
            opens: BTreeMap::new(),
            name: None,
            asked_for: None,
            asked_of: None,
            arriving: None,
            published: Published::default(),
            arrived: None,
            next_retire: now + clients::RETENTION,
            peers: Peers::new(limits.owed_bytes_max()),
            limits,
            crowded: BTreeMap::new(),
            ready: VecDeque::new(),
            outcomes: VecDeque::new(),
            overtaken: VecDeque::new(),
            requests: VecDeque::new(),
            opened: Vec::new(),
            in_sync: Vec::new(),
            stats: Stats::default(),
            memory: 0,
            outstanding: 0,
            next_n: 1,
            next_session: 1,
            copying: Copying::default(),
            expected: BTreeMap::new(),
            holding: 0,
            used: false,
            asked_used: false,
            timers: BTreeSet::new(),
            garbage: Vec::new(),
            old_logs: Vec::new(),
            drawing: VecDeque::new(),
            draw_at: now,
            free_at: now,
            expiring: VecDeque::new(),
            expire_at: now,
            evicting: Evicting::new(now),
            compacting: Compacting::default(),
            to_copy: VecDeque::new(),
            copy_at: now,
            pace: Pace::new(now),
            paced: false,
            late_acks: VecDeque::new(),
            early: BTreeMap::new(),
            ack_at: now,
            read: 0,
            copies_wait: false,
            forgotten: BTreeSet::new(),
            worked: 0,
            noticed: Vec::new(),
            looking_at: VecDeque::new(),
            next_upkeep: now,
            gives_up_to: Time::ZERO,
            next_round: now,
            measured: (now, 0),
        };
        Self {
            core,
            slots: Slots::default(),
        }
    }

    /// Installs new tables.
    pub fn install(&mut self, now: Time, view: View) {
        self.core.now = now;
        // Calls that wait for `release` are checked again under the new tables.
        while let Some((at, executed)) = self.core.ready.pop_back() {
            if let Some(slot) = self.slots.get_mut(at) {
                slot.calls.waiting.push_front(executed);
            }
        }
        let name = match (&self.core.view, self.core.name) {
            // To compute the name takes reading the whole table.
            (Some(former), Some(name)) if Arc::ptr_eq(&former.installed, &view.installed) => name,
            _ => view.installed.name(),
        };
        let renamed = self.core.name != Some(name);
        self.core.name = Some(name);
        self.core.used |= view.installed.members.len() > 1;
        let threads = view
            .installed
            .member(self.core.me.member())
            .map_or(1, |m| m.addresses.threads());
        self.core
            .pace
            .set(view.installed.settings.balancing.rate, threads);
        self.core.opens = view
            .opens_at
            .iter()
            .map(|(at, since, time)| (*at, (*since, *time)))
            .collect();
        let former = self.core.view.replace(view.clone());
        self.core.arrived = None;
        self.core
            .published
            .install(name, &view.installed, self.core.peers.has_clients());
        self.core.leaving = planner::leaving(&view.installed);
        self.core.threads = Threads::of(&[&view.installed, &view.accepted]);
        if renamed && !self.core.me.is_client() {
            for id in self
                .core
                .peers
                .ids()
                .into_iter()
                .filter(|id| threads::tells_tables(self.core.me, *id))
            {
                self.core.peers.send(id, Lane::Calls, &Frame::View(name));
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
        let assign = |(at, slot): (PartitionRef, &mut Slot)| {
            slot.assign(&view, at, still.contains(&at), &self.core.threads, anew)
                .then_some(at)
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
        for (at, slot) in self.slots.iter_mut() {
            // Both lists are in order. New partitions stand between the others.
            let as_before = as_before.next_if_eq(&at).is_some();
            let opens = self.core.opens.contains_key(&at) && !slot.is_open();
            if !as_before || opens || !slot.calls.is_empty() {
                self.core.turn(at, slot, renamed);
                self.core.notice(at, slot);
            }
        }
        self.slots.prune(|id| {
            view.installed
                .keyspace(id)
                .or(view.accepted.keyspace(id))
                .is_none()
        });
        for (at, (from, opening)) in std::mem::take(&mut self.core.early) {
            if let Some(slot) = self.slots.get_mut(at) {
                self.core.begin_sink(at, slot, from, opening);
            }
        }
        self.core.holding = self.slots.values().filter(|s| s.held.is_some()).count();
        if let Some(view) = &self.core.view {
            self.core
                .peers
                .retain_silent(|id| view.installed.member(id.member()).is_some());
        }
    }

    /// This cluster of one is marked used: the answer to `Request::Used`.
    pub fn used(&mut self, now: Time) {
        self.core.now = now;
        self.core.used = true;
        self.pump_all();
    }

    /// Ends this machine, and returns the calls of local callers that are not answered. Each comes
    /// with whether a later write on the same key may have overtaken it (`poll_overtaken`).
    ///
    /// `heir` is the machine that takes the place of this one, under a new member id. It takes over
    /// the memory of this machine and frees it in slices, because that takes long if it is large.
    pub fn into_calls(mut self, heir: &mut Self) -> impl Iterator<Item = (Token, Work, bool)> {
        self.slots
            .iter_mut()
            .for_each(|(_, slot)| self.core.discard(slot));
        heir.core.garbage.append(&mut self.core.garbage);
        heir.core.old_logs.append(&mut self.core.old_logs);
        let mut ready: BTreeMap<PartitionRef, Vec<Executed>> = BTreeMap::new();
        self.core
            .ready
            .into_iter()
            .for_each(|(at, executed)| ready.entry(at).or_default().push(executed));
        let calls = self.slots.into_iter().flat_map(move |(at, s)| {
            s.calls
                .into_all(ready.remove(&at).unwrap_or_default(), at.keyspace)
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
        self.core.now = now;
        self.core.wall = (unix_ms, now);
        if operation.key.len() > self.core.limits.key_bytes_max {
            self.core
                .outcomes
                .push_back((token, Outcome::Failed(Failure::TooLarge)));
            return false;
        }
        let at = self
            .core
            .place(operation.keyspace, operation.map, &operation.key);
        self.submit_at(at, token, Work::Key(operation), patience)
    }

    /// Whether this thread is the primary of a key in the installed table.
    pub fn leads(&self, keyspace: KeyspaceId, map: MapId, key: &[u8]) -> bool {
        let slot = self
            .core
            .place(keyspace, map, key)
            .and_then(|at| self.slots.get(at));
        slot.is_some_and(|slot| slot.primary() == Some(self.core.me))
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
        let core = &mut self.core;
        core.now = now;
        let (key, value) = pair;
        if key.len() > core.limits.key_bytes_max
            || value.len() > core.limits.value_bytes_max
            || core.outstanding >= core.limits.waiting_max
        {
            return false;
        }
        let Some(at) = core.place(keyspace, map, key) else {
            return false;
        };
        let Some(slot) = self.slots.get_mut(at) else {
            return false;
        };
        let done = core.set(at, slot, map, pair, token);
        if done {
            core.notice(at, slot);
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
        self.core.now = now;
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
        let Some((at, slot)) = found.and_then(|at| self.slots.get_mut(at).map(|s| (at, s))) else {
            let failure = at.map_or(Failure::NoPartition, |at| self.core.missing(at));
            self.core
                .outcomes
                .push_back((token, Outcome::Failed(failure)));
            return false;
        };
        if self.core.outstanding >= self.core.limits.waiting_max {
            self.core
                .outcomes
                .push_back((token, Outcome::Failed(Failure::Overloaded)));
            return false;
        }
        let n = self.core.number();
        let (until, hurried) = match patience {
            Patience::Whole => (self.core.now + self.core.limits.park, false),
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
        self.core.take_call(at, slot, call);
        self.core.notice(at, slot);
        slot.primary() != Some(self.core.me)
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
        self.core.now = self.core.now.max(now);
        let slot = self.slots.get_mut(self.core.place(keyspace, map, key)?)?;
        if !slot.serving() || !slot.calls.parked.is_empty() {
            return None;
        }
        let held = slot.held.as_deref_mut()?;
        if !held.lead.as_ref().is_some_and(|l| l.open) {
            return None;
        }
        let order = held.store.order(key);
        self.core.draw(held, map, order, key);
        let found = held.store.entry(map, order, key);
        let seq = read_at(found, &held.log);
        let overdue = found.is_some_and(|e| e.overdue(held.clock.advance(self.core.now)))
            && !broken(&mutant::READS_OVERDUE);
        if seq > held.log.committed() || overdue {
            return None;
        }
        self.core.stats.executed += 1;
        self.core.stats.count_lookup(found.is_some());
        self.core.read += 1;
        if slot.eviction == Eviction::Lru
            && let Some(entry) = found
        {
            entry.mark();
        }
        let value = found.map(entry::Entry::value);
        let bytes = value.map_or(0, <[u8]>::len);
        self.core.worked += bytes;
        if held.meter.read(bytes) {
            held.meter.sample(map, key);
        }
        let n = self.core.number();
        Some((n, value))
    }

    /// Keeps the result of `read`, because it may not be answered now. Like any executed read, it
    /// is checked again. If the tenure ends, it is executed again, in its place among the
    /// operations of this node.
    pub fn keep(&mut self, token: Token, n: u64, operation: Operation, outcome: Outcome) {
        let Some(at) = self
            .core
            .place(operation.keyspace, operation.map, &operation.key)
        else {
            return self
                .core
                .outcomes
                .push_back((token, Outcome::Failed(Failure::NoPartition)));
        };
        let until = self.core.now + self.core.limits.park;
        let call = Call {
            source: Source::Local(token),
            n,
            work: Work::Key(operation),
            until,
            hurried: false,
            maybe: false,
            tried: None,
        };
        self.core.outstanding += 1;
        self.core
            .ready
            .push_back((at, Executed::of(call, 0, outcome, false)));
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
        self.core
            .limits
            .waiting_max
            .saturating_sub(self.core.outstanding)
    }

    /// Bytes of values and frames handled since the last call. With this, a shell divides work into
    /// slices.
    pub fn take_work(&mut self) -> usize {
        std::mem::take(&mut self.core.worked)
    }

    /// Says whether many bytes wait for a peer outside of this machine. Then the machine sends only
    /// what cannot wait. A new connection begins uncongested.
    pub fn congested(&mut self, now: Time, peer: MemberId, congested: bool) {
        self.core.now = now;
        self.core.peers.set_congested(peer, congested);
    }

    /// A peer has room again, so data that was held back is sent: the log first, because others
    /// wait for its acks; then one answer, so that calls cannot hold up all answers.
    fn relieve(&mut self, peer: MemberId) {
        let lags = |slot: &Slot| {
            let held = slot.held.as_ref()?;
            let link = held.lead.as_ref()?.links.get(&peer)?;
            (link.next <= held.log.last()).then_some(())
        };
        for (at, slot) in self.slots.iter_mut() {
            if lags(slot).is_some() {
                self.core.stream(at, slot, peer);
                self.core.notice(at, slot);
            }
        }
        self.core.peers.answer_more(peer, 1);
        self.admit(peer);
        for (at, slot) in self.slots.iter_mut() {
            if !slot.calls.parked.is_empty() && slot.primary() == Some(peer) {
                self.core.pump(at, slot);
                self.core.notice(at, slot);
            }
        }
        self.core.peers.answer_more(peer, usize::MAX);
    }

    /// Calls that waited for a crowded peer are executed, one partition after the other, as long as
    /// the peer accepts more.
    fn admit(&mut self, peer: MemberId) {
        let waiting = self.core.crowded.get(&peer).map_or(0, VecDeque::len);
        for _ in 0..waiting {
            if self.core.peers.hold_back(peer) {
                return;
            }
            let Some(at) = self
                .core
                .crowded
                .get_mut(&peer)
                .and_then(VecDeque::pop_front)
            else {
                break;
            };
            if let Some(slot) = self.slots.get_mut(at) {
                slot.crowded_by = slot.crowded_by.filter(|by| *by != peer);
                self.core.pump(at, slot);
                self.core.notice(at, slot);
            }
        }
        if self.core.crowded.get(&peer).is_some_and(VecDeque::is_empty) {
            self.core.crowded.remove(&peer);
        }
    }

    /// The caller is gone, and its outcome is not wanted any more. (What was sent may still
    /// happen.)
    pub fn forget(&mut self, token: Token) {
        if self.core.outstanding == 0 && self.core.outcomes.is_empty() {
            return;
        }
        self.core.forgotten.insert(token);
        if self.core.forgotten.len() >= FORGOTTEN_MAX && self.core.forgotten.len().is_power_of_two()
        {
            // Most of these were answered before they were forgotten.
            let calls = self
                .slots
                .values()
                .flat_map(|s| s.calls.all())
                .map(|(source, _)| source);
            let calls = calls.chain(self.core.ready.iter().map(|(_, e)| e.asker.source));
            let live = calls
                .filter_map(|source| source.token())
                .chain(self.core.outcomes.iter().map(|(t, _)| *t));
            let live: BTreeSet<Token> = live.filter(|t| self.core.forgotten.contains(t)).collect();
            self.core.forgotten = live;
        }
    }

    /// A connection of this version with this peer is up. Both lanes begin at their start.
    pub fn connected(&mut self, now: Time, peer: MemberId, version: u16) {
        self.disconnected(now, peer);
        let ahead_max = following::hears_of_memory(self.core.me, peer)
            .then_some(self.core.limits.ahead_bytes_max);
        self.core.peers.connect((peer, version), ahead_max, now);
        if self.core.me.is_client() {
            // Calls are sent once the member says that it is ready.
            return;
        }
        if peer.is_client() {
            return self.core.greet(peer);
        }
        if let Some(name) = self.core.name
            && threads::tells_tables(self.core.me, peer)
        {
            self.core.peers.send(peer, Lane::Calls, &Frame::View(name));
        }
        // Members send no copy here before they know that there is room.
        self.core.tell_headroom();
        for (at, slot) in self.slots.iter_mut() {
            if slot
                .held
                .as_ref()
                .is_some_and(|h| h.lead.as_ref().is_some_and(|l| l.links.contains_key(&peer)))
            {
                self.core.restart_link(at, slot, peer);
                self.core.notice(at, slot);
            } else if slot.primary() == Some(peer) {
                if let Some(held) = &mut slot.held {
                    held.wanted = None;
                }
                self.core.pump(at, slot);
            }
        }
    }

    /// The connection is gone, with everything in flight on it.
    pub fn disconnected(&mut self, now: Time, peer: MemberId) {
        self.core.now = now;
        if !self.core.peers.up(peer) {
            return;
        }
        self.core.peers.disconnect(peer);
        self.admit(peer);
        self.core.early.retain(|_, (from, _)| *from != peer);
        self.core.pull_again(peer);
        let before = self.core.ready.len();
        self.core
            .ready
            .retain(|(_, e)| e.asker.source.peer() != Some(peer));
        let mut dropped = before - self.core.ready.len();
        for (_, slot) in self.slots.iter_mut().filter(|(_, s)| !s.calls.is_empty()) {
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
        self.core.outstanding -= dropped;
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
        self.core.now = now;
        self.core.wall = (unix_ms, now);
        let mut batch = self
            .core
            .peers
            .get(peer)
            .map(|p| std::mem::take(p.batch(lane)))
            .unwrap_or_default();
        let result = self.receive_all(peer, lane, bytes, &mut batch);
        if let Some(p) = self.core.peers.get(peer) {
            *p.batch(lane) = batch;
            p.partial[peers::index(lane)] = bytes.len() as u64;
        }
        if result.is_err() {
            self.core.stats.malformed += 1;
        }
        self.core.send_acks(peer);
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
        let limits = &self.core.limits;
        let frame_bytes_max = 3 * limits.value_bytes_max
            + 2 * limits.key_bytes_max
            + frame::FRAME_SLACK
            + limits.chunk_bytes;
        self.core.worked = 0;
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
                if self.core.worked >= most && (!batch.is_empty() || !bytes.is_empty()) {
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
        let version = self.core.peers.get(peer).map_or(LEVELS.0, |p| p.version);
        while batch.len() < most && self.core.worked < RECEIVE_WORK_MAX {
            let Some((read, length)) = frame::take(bytes, frame_bytes_max, version)? else {
                break;
            };
            self.core.worked += length + FRAME_WORK;
            let Some(known) = self.core.peers.get(peer) else {
                // These are bytes of a connection that is gone.
                batch.clear();
                break;
            };
            known.received[peers::index(lane)] += length as u64;
            known.heard = self.core.now;
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
            .core
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
        if !clients::fits(self.core.me, peer, &read) {
            return Err(Malformed("a frame that this kind of peer never sends"));
        }
        let at = match &read {
            Frame::View(name) if !self.core.me.is_client() => {
                self.core.heard_of(*name);
                return Ok(());
            }
            Frame::View(_) | Frame::Tick { .. } | Frame::Table { .. } | Frame::MapMade { .. } => {
                if self.core.told_by_member(peer, read)? {
                    self.pump_calls_of(peer);
                }
                return Ok(());
            }
            Frame::Heard { .. } | Frame::Pull { .. } | Frame::MakeMap { .. } => {
                return self.core.asked_by_client(peer, read);
            }
            Frame::Acks {
                headroom,
                arrived,
                acks,
            } => {
                self.core
                    .peers
                    .set_headroom(peer, *headroom, *arrived, self.core.now);
                for ack in acks {
                    if let Some(slot) = self.slots.get_mut(ack.at) {
                        self.core.acked(ack, slot, peer);
                        self.core.notice(ack.at, slot);
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
        let core = &mut self.core;
        let Some(slot) = self.slots.get_mut(at) else {
            if let Frame::Forward { forwarded, .. } | Frame::ForwardSet { forwarded, .. } = read {
                // It is not noted: a client could name partitions without end.
                core.peers.send(
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
            core.notice(at, slot);
        }
        match read {
            Frame::Forward {
                forwarded,
                before,
                work,
            } => core.forwarded(slot, peer, &forwarded, before, work)?,
            Frame::ForwardSet {
                forwarded,
                map,
                entry,
            } => core.forwarded_set(slot, peer, &forwarded, map, entry)?,
            Frame::Reply {
                n,
                attempt,
                outcome,
                ..
            } => core.replied(at, slot, (n, attempt), outcome),
            Frame::NotServing { n, attempt, .. } => {
                if slot.calls.refused(n, attempt) {
                    let pause = core.backoff(RETRY.0, RETRY.1, slot.calls.refusals);
                    slot.calls.refusals += 1;
                    core.timers.insert((core.now + pause, at));
                }
            }
            Frame::Align {
                head,
                base,
                last,
                entries,
            } => core.align(slot, peer, &head, (base, last), entries),
            Frame::Append { head, entries } => core.append(slot, peer, &head, entries),
            Frame::Want {
                epoch,
                session,
                next,
                ..
            } => core.wanted(at, slot, peer, (epoch, session, next)),
            Frame::Begin {
                epoch,
                lineage,
                session,
                kept,
                seq,
                bytes,
                ..
            } => {
                core.begin_sink(
                    at,
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
            Frame::NoRoom { session, .. } => core.refused_there(slot, peer, session),
            Frame::Later { session, ms, .. } => core.put_off_there(slot, peer, session, ms),
            Frame::Holds {
                session, committed, ..
            } => core.resume(at, slot, peer, session, committed),
            Frame::Chunk {
                session,
                index,
                digest,
                body,
                ..
            } => core.chunk(at, slot, peer, (session, index, digest), body)?,
            Frame::ChunkAck { session, index, .. } => {
                core.chunk_acked(at, slot, peer, (session, index))
            }
            Frame::Outcomes { session, dedup, .. } => core.outcomes(slot, peer, session, dedup),
            Frame::Continue {
                epoch,
                session,
                next,
                ..
            } => core.continue_sink(at, slot, peer, epoch, (session, next)),
            Frame::Arrived {
                session,
                chunks,
                seq,
                holds,
                finished,
                ..
            } => {
                core.arrived_there(
                    at,
                    slot,
                    peer,
                    session,
                    holds.then_some((chunks, seq, finished)),
                );
            }
            Frame::Finish {
                session,
                chunks,
                seq,
                ..
            } => core.finish(at, slot, peer, (session, chunks, seq)),
            Frame::Finished { session, .. } => core.finished(at, slot, peer, session),
            Frame::Compare {
                session,
                seq,
                sum,
                clock,
                ..
            } => core.compare(at, slot, peer, (session, seq, sum), clock),
            Frame::Verdict { session, equal, .. } => core.verdict(at, slot, peer, session, equal),
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
        let soon = self.core.now + Duration::from_nanos(1);
        let parked = self
            .slots
            .iter()
            .filter(|(_, slot)| !slot.calls.parked.is_empty() && slot.primary() == Some(primary));
        self.core.timers.extend(parked.map(|(at, _)| (soon, at)));
    }

    /// Releases outcomes that may be answered. Call it after a batch of inputs, with a clock and a
    /// lease that were read *after* them. `current` says whether the control thread still shows the
    /// view that was installed last. With an expired lease or an old view, nothing is released, and
    /// what was executed is checked again later (rule 8).
    pub fn release(&mut self, now: Time, lease: Time, current: bool) {
        let passed = now.since(self.core.now);
        self.core.now = self.core.now.max(now);
        if !Self::may_answer(now, lease, current) {
            // The tenure decides. While it lasts, no other member can have led, so what was read
            // stays true. If it ends, `install` sends these back to be executed again.
            return;
        }
        let read = std::mem::take(&mut self.core.read);
        self.core.pace.answered(passed, read);
        while let Some((at, executed)) = self.core.ready.pop_front() {
            let asker = executed.asker;
            if !executed.hurried {
                let waited = self
                    .core
                    .limits
                    .park
                    .saturating_sub(executed.until.since(now));
                self.core.pace.answered(waited, 1);
            }
            if let Source::Local(token) = asker.source
                && !asker.write
            {
                self.core.outstanding -= 1;
                self.core.outcomes.push_back((token, executed.outcome));
                continue;
            }
            let Some(slot) = self.slots.get_mut(at) else {
                continue;
            };
            self.core.answer(slot, at, asker, executed.outcome);
        }
    }

    /// The next released outcome.
    pub fn poll_outcome(&mut self) -> Option<(Token, Outcome)> {
        loop {
            let (token, outcome) = self.core.outcomes.pop_front()?;
            if self.core.is_wanted(token) {
                return Some((token, outcome));
            }
        }
    }

    /// The next operation that was executed and changed nothing in a tenure that ended, whose
    /// outcome was lost, and that a later write of this shard's callers on the same key overtook.
    /// Executed again, it would see that write. The machine does not answer it any more. A caller
    /// whose operations on one key keep an order answers that nothing happened. A caller with one
    /// operation at a time submits it again.
    pub fn poll_overtaken(&mut self) -> Option<(Token, Work)> {
        loop {
            let (token, work) = self.core.overtaken.pop_front()?;
            if self.core.is_wanted(token) {
                return Some((token, work));
            }
        }
    }

    /// The next bytes for a peer: everything that is ready for one lane, in one buffer. Large
    /// values are separate, as they are stored.
    pub fn poll_transmit(&mut self) -> Option<(MemberId, Lane, Bytes)> {
        loop {
            if let Some(next) = self.core.peers.next() {
                return Some(next);
            }
            let peer = self.core.peers.relieved()?;
            self.relieve(peer);
        }
    }

    /// The next request to the control thread.
    pub fn poll_request(&mut self) -> Option<Request> {
        if !self.core.opened.is_empty() {
            return Some(Request::Opened(std::mem::take(&mut self.core.opened)));
        }
        if !self.core.in_sync.is_empty() {
            return Some(Request::InSync(std::mem::take(&mut self.core.in_sync)));
        }
        self.core.requests.pop_front()
    }

    /// Bytes held: entries, tails, snapshots.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.core.memory as u64
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.core.stats.clone();
        let (memory, memory_max) = (
            self.core.memory as u64,
            self.core.limits.memory_bytes_max as u64,
        );
        (stats.memory_bytes, stats.memory_bytes_max) = (memory, memory_max);
        stats.memory_outside_bytes = self.core.memory_held() as u64 - memory;
        stats.memory_filled =
            (self.core.memory_held() as u64).saturating_mul(1000) / memory_max.max(1);
        stats.divided = self.core.drawing.len() as u64;
        for slot in self.slots.values() {
            stats.parked += slot.calls.parked.len() as u64;
            let Some(held) = &slot.held else { continue };
            stats.keys += held.store.keys() as u64;
            if let Some(lead) = &held.lead {
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
            .filter(|(at, slot)| at.keyspace == keyspace && slot.serving());
        for held in led.filter_map(|(_, slot)| slot.held.as_ref()) {
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
        let open = held.lead.as_ref().is_some_and(|lead| lead.open);
        (open && held.store.is_whole() && held.log.last() <= held.log.committed())
            .then(|| held.store.count(map))
    }

    fn pump_all(&mut self) {
        for (at, slot) in self
            .slots
            .iter_mut()
            .filter(|(_, s)| !s.calls.parked.is_empty())
        {
            self.core.pump(at, slot);
        }
    }
}

impl Core {
    /// The partition and slot of a key by the installed table.
    fn place(&self, keyspace: KeyspaceId, map: MapId, key: &[u8]) -> Option<PartitionRef> {
        let partition = self
            .view
            .as_ref()?
            .installed
            .keyspace(keyspace)?
            .partition_of(map, key)?;
        Some(PartitionRef {
            keyspace,
            partition,
        })
    }

    /// Why there is no such partition.
    fn missing(&self, at: PartitionRef) -> Failure {
        let keyspace = self
            .view
            .as_ref()
            .and_then(|v| v.installed.keyspace(at.keyspace));
        let was =
            keyspace.is_some_and(|k| !k.partitions.is_empty() && at.partition < k.next_partition());
        if was {
            Failure::Stale
        } else {
            Failure::NoPartition
        }
    }

    /// Whether the caller of an operation that ends now still waits for it.
    fn is_wanted(&mut self, token: Token) -> bool {
        self.forgotten.is_empty() || !self.forgotten.remove(&token)
    }

    /// The number of the next operation of this node's callers.
    fn number(&mut self) -> u64 {
        let n = self.next_n;
        self.next_n += 1;
        n
    }

    /// A partition may have work: upkeep looks at it until it is quiet.
    fn notice(&mut self, at: PartitionRef, slot: &mut Slot) {
        if std::mem::replace(&mut slot.noticed, true) {
            return;
        }
        if self.noticed.is_empty() {
            self.next_upkeep = self.now + upkeep::UPKEEP;
        }
        self.noticed.push(at);
    }

    /// An empty store for a partition of a keyspace. It keeps keys sorted if the partitions are
    /// ranges.
    fn store_of(&self, keyspace: KeyspaceId) -> Store {
        let table = self.view.as_ref().map(|v| &v.installed);
        let keyspace = table.and_then(|table| table.keyspace(keyspace));
        // The same at every member of the cluster, so that cursors of scans are, too.
        let order_key = table.map_or_else(OrderKey::default, |table| table.order_key);
        Store::new(order_key).sorted(keyspace.is_some_and(|k| k.mode == Mode::Range || k.ordered))
    }

    /// Wall time now.
    fn unix_ms(&self) -> u64 {
        self.wall
            .0
            .saturating_add(u64::try_from(self.now.since(self.wall.1).as_millis()).unwrap_or(0))
    }

    /// A pause that doubles with each attempt, with jitter.
    fn backoff(&mut self, first: Duration, most: Duration, attempt: u32) -> Duration {
        let pause = first.saturating_mul(1 << attempt.min(10)).min(most);
        pause / 2 + pause.mul_f64((self.random() % 1024) as f64 / 1024.0)
    }

    /// A number that need not be unpredictable: xorshift64.
    fn random(&mut self) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng
    }

    /// A peer has installed this table. If it is newer than ours, it is asked for.
    fn heard_of(&mut self, name: TableName) {
        let newer = self
            .name
            .is_none_or(|ours| ours.cluster == name.cluster && ours.order() < name.order());
        // A name that no table has must not keep later names from being asked for.
        if newer && self.asked_for != Some(name) {
            self.asked_for = Some(name);
            self.requests.push_back(Request::Newer(name));
        }
    }

    fn ask(&mut self, partition: PartitionRef, epoch: Epoch, change: InSyncChange) {
        let request = InSyncRequest {
            partition,
            epoch,
            change,
        };
        if !self.in_sync.contains(&request) {
            self.in_sync.push(request);
        }
    }
}
