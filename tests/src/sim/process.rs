//! A process: the work of `control.rs` and `data.rs`, around the same machines.
//!
//! Its threads share a view, its generation and a lease. The control thread shows a view before it
//! carries out what follows. Each data thread works in passes: it installs the view if it has
//! changed, takes its inbox, and later releases, with a clock, a lease and a generation that it
//! read after that. Data threads exchange bytes through the mailboxes of production.

use super::client::ClientId;
use super::disk::DiskWriter;
use super::network::ConnectionId;
use super::schedule::Nanos;
use super::subscriber::Subscriber;
use super::tracker::Tracker;
use bytes::BytesMut;
use doyen::data::siblings::Siblings;
use doyen::directory::work::DiskEvent;
use doyen::net::starts::{DirectoryStart, DirectoryStarts};
use doyen_engine::op::{Operation, Outcome, Work};
use doyen_engine::{CallToken, Lane, Shard};
use doyen_gossip::agreement::View;
use doyen_gossip::{Agreement, Input, Time};
use doyen_placement::{MemberId, VoteKey};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A process start, in order.
pub(crate) type ProcessId = usize;

/// A data thread of a process.
pub(crate) type ThreadId = (ProcessId, usize);

/// What reaches a control thread.
#[derive(Debug)]
pub(crate) enum ControlInput {
    /// An input for the machine of this incarnation; it is void for another.
    Of(MemberId, Input),
    /// A message, or that a process is at an address. Before comes the hello of that process.
    Said(MemberId, Greeting, Box<Input>),
    /// What the disk says.
    Disk(DiskEvent),
    /// The data thread asks whether the cluster of one may be used.
    Used(MemberId),
}

/// What a hello of a connection says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Greeting {
    pub(crate) by: ProcessId,
    /// The member in whose name the process speaks.
    pub(crate) id: MemberId,
    pub(crate) process: MemberId,
    pub(crate) key: VoteKey,
    pub(crate) start: Option<DirectoryStart>,
}

/// What reaches a data thread.
#[derive(Debug)]
pub(crate) enum DataInput {
    /// The control thread shows something else, or another data thread of the process rang.
    Wake,
    /// The shard's timer.
    Tick,
    /// A connection is up.
    Connected(MemberId, ConnectionId),
    /// A connection is gone.
    Disconnected(MemberId, ConnectionId),
    /// A congested peer has fewer bytes under way.
    Drained(MemberId, ConnectionId),
    /// Bytes of a connection.
    Bytes(MemberId, ConnectionId, Lane, Vec<u8>),
    /// A datagram of a connection.
    Datagram(MemberId, ConnectionId, Vec<u8>),
    /// A client's operation.
    Submit(ClientId, u64, Work),
    /// A client waits until an operation is not blocked, for at most this many milliseconds.
    Wait(ClientId, u64, Operation, u64),
    /// A client gave up.
    Forget(ClientId, u64),
    /// The cluster of one is marked used.
    Used(MemberId),
    /// A mailbox to another data thread of the process breaks, and begins again.
    BreakLine,
}

/// How far a graceful leave is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Leaving {
    No,
    Asked,
    HandedOver,
    Departing,
}

/// A process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) slot: usize,
    pub(crate) me: MemberId,
    pub(crate) gone: bool,
    pub(crate) leaving: Leaving,
    clock_base: u64,
    clock_ppm: i64,
    /// How far its wall clock is ahead of true time.
    pub(crate) wall_skew_ms: i64,
    pub(crate) paused_until: Nanos,
    pub(crate) control_stalled_until: Nanos,

    pub(crate) agreement: Agreement,
    /// The processes whose hellos it has heard, and in whose names they spoke.
    pub(crate) met: BTreeSet<(MemberId, MemberId)>,
    pub(crate) key: VoteKey,
    /// Its directory, if it has one.
    pub(crate) writer: Option<DiskWriter>,
    /// It began with what its directory had.
    pub(crate) resumed: bool,
    pub(crate) starts: DirectoryStarts,
    /// With directories: the processes with which it has a connection.
    pub(crate) linked: BTreeSet<ProcessId>,
    pub(crate) control_tick_at: Option<Nanos>,

    pub(crate) view: Option<View>,
    /// The peers of its data threads: the data threads of all other members.
    pub(crate) peers: BTreeSet<MemberId>,
    pub(crate) generation: u64,
    /// The last time that it, or one of its data threads, was suspended: from, to.
    pub(crate) still: (Nanos, Nanos),
    pub(crate) lease: Time,
    pub(crate) threads: Vec<DataThread>,
    /// Data threads that have reported progress since the control thread last counted all of them.
    pub(crate) alive: BTreeSet<usize>,
}

/// A data thread.
#[derive(Debug)]
pub(crate) struct DataThread {
    pub(crate) stalled_until: Nanos,
    /// Until then, it gets a core only now and then.
    pub(crate) starved_until: Nanos,
    /// When it has used up what it got.
    pub(crate) starves_at: Nanos,
    pub(crate) shard: Shard,
    /// The member to which the shard's thread belongs.
    pub(crate) shard_me: MemberId,
    pub(crate) shard_generation: u64,
    pub(crate) siblings: Siblings,
    pub(crate) tick_at: Option<Nanos>,
    pub(crate) inbox: VecDeque<DataInput>,
    /// Whether the other data threads left more than was handled.
    pub(crate) more: bool,
    /// A pass is scheduled or under way.
    pub(crate) busy: bool,
    pub(crate) buffers: BTreeMap<(MemberId, Lane), BytesMut>,
    /// Connections as the network stack sees them, and as the shard was told.
    pub(crate) links: BTreeMap<MemberId, ConnectionId>,
    pub(crate) shard_links: BTreeMap<MemberId, ConnectionId>,
    pub(crate) tokens: BTreeMap<CallToken, (ClientId, u64)>,
    /// Reads that were executed at once in this pass. They may be answered if the pass may answer.
    pub(crate) read: Vec<((ClientId, u64), u64, Operation, Outcome)>,
    pub(crate) next_token: CallToken,
    /// It follows the changes of a keyspace.
    pub(crate) subscriber: Option<Subscriber>,
    /// Its clients that keep values.
    pub(crate) tracker: Option<Tracker>,
    /// Clock, lease and generation when its pass began.
    pub(crate) checked: (Time, Time, u64),
}

impl Process {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        slot: usize,
        me: MemberId,
        clock_base: u64,
        clock_ppm: i64,
        wall_skew_ms: i64,
        agreement: Agreement,
        threads: Vec<DataThread>,
    ) -> Self {
        Self {
            slot,
            me,
            gone: false,
            leaving: Leaving::No,
            clock_base,
            clock_ppm,
            wall_skew_ms,
            paused_until: 0,
            control_stalled_until: 0,
            key: agreement.vote_key(),
            agreement,
            met: BTreeSet::new(),
            writer: None,
            resumed: false,
            starts: DirectoryStarts::default(),
            linked: BTreeSet::new(),
            control_tick_at: None,
            view: None,
            peers: BTreeSet::new(),
            generation: 0,
            still: (0, 0),
            lease: Time::ZERO,
            threads,
            alive: BTreeSet::new(),
        }
    }

    /// What its clock shows at this true time.
    pub(crate) fn clock(&self, at: Nanos) -> Time {
        local(self.clock_base, self.clock_ppm, at)
    }

    /// When its clock shows this.
    pub(crate) fn when(&self, time: Time) -> Nanos {
        let elapsed = i128::from(time.0.saturating_sub(self.clock_base));
        u64::try_from(elapsed * 1_000_000 / i128::from(1_000_000 + self.clock_ppm))
            .unwrap_or(u64::MAX / 2)
            .saturating_add(1)
    }

    /// Wall time in milliseconds.
    pub(crate) fn unix_ms(&self, at: Nanos) -> u64 {
        (1_700_000_000_000 + at / 1_000_000).saturating_add_signed(self.wall_skew_ms)
    }

    /// Until when its control thread is blocked, if it is.
    pub(crate) fn control_blocked(&self, now: Nanos) -> Option<Nanos> {
        let until = self.paused_until.max(self.control_stalled_until);
        (until > now).then_some(until)
    }

    /// Until when a data thread is blocked, if it is.
    pub(crate) fn data_blocked(&self, thread: usize, now: Nanos) -> Option<Nanos> {
        let until = self.paused_until.max(self.threads[thread].stalled_until);
        (until > now).then_some(until)
    }

    /// The member in whose name it speaks.
    pub(crate) fn voice(&self) -> MemberId {
        self.agreement.id()
    }

    /// What its hellos say.
    pub(crate) fn greeting(&self, by: ProcessId) -> Greeting {
        let start = |writer: &DiskWriter| writer.start(self.me);
        Greeting {
            by,
            id: self.voice(),
            process: self.me,
            key: self.key,
            start: self.writer.as_ref().map(start),
        }
    }

    /// The id of one of its data threads on the data plane.
    pub(crate) fn thread_id(&self, thread: usize) -> MemberId {
        self.me.thread(u8::try_from(thread).unwrap_or(u8::MAX))
    }

    /// Sets what its control thread shows from now on.
    pub(crate) fn show(&mut self, view: Option<View>) {
        let tables = view.iter().flat_map(|v| [&v.installed, &v.accepted]);
        let members = tables.flat_map(|t| &t.members).filter(|m| m.id != self.me);
        self.peers = members
            .flat_map(|m| (0..m.addresses.threads()).map(|t| m.id.thread(t)))
            .collect();
        self.view = view;
        self.generation += 1;
    }
}

impl DataThread {
    pub(crate) fn new(shard: Shard, me: MemberId, siblings: Siblings) -> Self {
        Self {
            stalled_until: 0,
            starved_until: 0,
            starves_at: 0,
            shard,
            shard_me: me,
            shard_generation: 0,
            siblings,
            tick_at: None,
            inbox: VecDeque::new(),
            more: false,
            busy: false,
            buffers: BTreeMap::new(),
            links: BTreeMap::new(),
            shard_links: BTreeMap::new(),
            tokens: BTreeMap::new(),
            read: Vec::new(),
            next_token: 1,
            subscriber: None,
            tracker: None,
            checked: (Time::ZERO, Time::ZERO, 0),
        }
    }
}

/// What a clock of this base and drift shows at this true time.
pub(crate) fn local(base: u64, ppm: i64, at: Nanos) -> Time {
    let elapsed = i128::from(at) * i128::from(1_000_000 + ppm) / 1_000_000;
    Time(base + u64::try_from(elapsed).unwrap_or(0))
}
