//! What roles act on besides their partition: the clock, the tables, the peers, and what the shard
//! keeps for all partitions together.

use crate::command::operation::Operation;
use crate::log::waiting::WaitingRoom;
use crate::role::copying::Copying;
use crate::role::disk::ShardDisk;
use crate::role::memory::ShardMemory;
use crate::role::outbox::Outbox;
use crate::role::partition::Slot;
use crate::role::pending_calls::Callers;
use crate::role::read_logs::ReadLogs;
use crate::role::spans::Traces;
use crate::role::stats::Stats;
use crate::role::subscriptions::Subscriptions;
use crate::role::tables::ShardTables;
use crate::role::tickets::Tickets;
use crate::role::timers::Timers;
use crate::role::upkeep_queue::UpkeepQueue;
use crate::store::map_limits::MapBounds;
use crate::wire::api::Limits;
use crate::wire::frame::Frame;
use crate::wire::peers::Peers;
use doyen_gossip::Time;
use doyen_placement::MemberId;
use doyen_placement::PartitionRef;
use std::time::Duration;

/// Everything that belongs to no partition, and that roles use.
#[derive(Debug)]
pub(crate) struct Host {
    /// This data thread.
    pub(crate) me: MemberId,
    pub(crate) limits: Limits,
    pub(crate) now: Time,
    /// Wall time, and the moment when it was read.
    pub(crate) wall: (u64, Time),
    /// How far the clocks of data are ahead of this machine's (`Shard::set_ahead`).
    pub(crate) ahead: Duration,
    rng: u64,
    /// Whether this cluster may not be forgotten: a cluster of one is marked used before its first
    /// write.
    pub(crate) used: bool,
    pub(crate) asked_used: bool,
    /// Bytes of values and frames handled since `take_work`.
    pub(crate) worked: usize,
    pub(crate) stats: Stats,
    pub(crate) timers: Timers,
    pub(crate) tables: ShardTables,
    pub(crate) bounds: MapBounds,
    pub(crate) peers: Peers,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) read: ReadLogs,
    pub(crate) callers: Callers,
    /// Callers of any node that wait for keys which this thread leads.
    pub(crate) waiting: WaitingRoom<Operation>,
    /// What callers of this thread wait for, wherever that is.
    pub(crate) tickets: Tickets,
    pub(crate) copying: Copying,
    pub(crate) disk: ShardDisk,
    pub(crate) memory: ShardMemory,
    pub(crate) upkeep: UpkeepQueue,
    pub(crate) outbox: Outbox,
    pub(crate) traces: Traces,
}

impl Host {
    pub(crate) fn new(me: MemberId, limits: Limits, rng_seed: u64, now: Time) -> Self {
        Self {
            me,
            now,
            wall: (0, now),
            ahead: Duration::ZERO,
            rng: rng_seed | 1,
            used: false,
            asked_used: false,
            worked: 0,
            stats: Stats::default(),
            timers: Timers::default(),
            tables: ShardTables::default(),
            bounds: MapBounds::default(),
            peers: Peers::new(limits.owed_bytes_max()),
            subscriptions: Subscriptions::default(),
            read: ReadLogs::default(),
            callers: Callers::default(),
            waiting: WaitingRoom::default(),
            tickets: Tickets::default(),
            copying: Copying::new(now),
            disk: ShardDisk::default(),
            memory: ShardMemory::new(now),
            upkeep: UpkeepQueue::new(now),
            outbox: Outbox::default(),
            traces: Traces::default(),
            limits,
        }
    }

    /// Wall time now.
    pub(crate) fn unix_ms(&self) -> u64 {
        self.wall
            .0
            .saturating_add(u64::try_from(self.now.since(self.wall.1).as_millis()).unwrap_or(0))
    }

    /// The time by which keys expire. Members tell each other the clocks of partitions without what
    /// a test has moved them ahead, because each member adds that itself. So a message that was
    /// under way meanwhile moves no clock back.
    #[inline]
    pub(crate) fn data_now(&self) -> Time {
        self.now + self.ahead
    }

    /// A pause that doubles with each attempt, with jitter.
    pub(crate) fn backoff(&mut self, first: Duration, most: Duration, attempt: u32) -> Duration {
        let pause = first.saturating_mul(1 << attempt.min(10)).min(most);
        pause / 2 + pause.mul_f64((self.random() % 1024) as f64 / 1024.0)
    }

    /// A number that need not be unpredictable: xorshift64.
    pub(crate) fn random(&mut self) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng
    }

    /// A partition may have work: upkeep looks at it until it is quiet.
    #[inline]
    pub(crate) fn notice(&mut self, slot: &mut Slot) {
        self.upkeep.notice(slot, self.now, &mut self.timers);
    }

    /// This node does not serve the partition: the peer sends this call and the following ones to
    /// another member.
    pub(crate) fn refuse(&mut self, at: PartitionRef, peer: MemberId, n: u64, attempt: u32) {
        if let Some(p) = self.peers.get(peer)
            && p.refused.insert(at, attempt) != Some(attempt)
        {
            let not_serving = Frame::NotServing { at, n, attempt };
            self.peers.tell(peer, &not_serving);
        }
    }
}
