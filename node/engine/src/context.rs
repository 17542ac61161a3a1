//! What the functions of a partition may touch besides the partition: the clock, the tables, the
//! peers, and what the shard keeps for all partitions together.

use super::api::{Limits, Stats};
use super::bounds::Bounds;
use super::callers::Callers;
use super::clients::Pulling;
use super::copying::Copying;
use super::memory::Memory;
use super::outbox::Outbox;
use super::partition::Slot;
use super::peers::Peers;
use super::publishing::Publishing;
use super::readers::{Confirming, Read};
use super::rounds::Rounds;
use super::scripting::{Refusals, Scripts};
use super::subscriptions::Subscriptions;
use super::tables::Tables;
use super::timers::Timers;
use super::traces::Traces;
use super::walking::Walks;
use doyen_gossip::Time;
use doyen_placement::MemberId;
use std::time::Duration;

/// Everything that belongs to no partition.
#[derive(Debug)]
pub(super) struct Context {
    /// This data thread.
    pub(super) me: MemberId,
    pub(super) limits: Limits,
    pub(super) now: Time,
    /// Wall time, and the moment when it was read.
    pub(super) wall: (u64, Time),
    /// How far the clocks of data are ahead of this machine's (`Shard::set_ahead`).
    pub(super) ahead: Duration,
    rng: u64,
    /// Whether this cluster may not be forgotten: a cluster of one is marked used before its first
    /// write.
    pub(super) used: bool,
    pub(super) asked_used: bool,
    /// Bytes of values and frames handled since `take_work`.
    pub(super) worked: usize,
    pub(super) stats: Stats,
    pub(super) timers: Timers,
    pub(super) tables: Tables,
    pub(super) bounds: Bounds,
    pub(super) peers: Peers,
    pub(super) pulling: Pulling,
    pub(super) publishing: Publishing,
    pub(super) subscriptions: Subscriptions,
    pub(super) read: Read,
    /// Confirmations that wait for a look at the lease.
    pub(super) confirming: Confirming,
    pub(super) callers: Callers,
    pub(super) copying: Copying,
    pub(super) memory: Memory,
    pub(super) rounds: Rounds,
    pub(super) outbox: Outbox,
    pub(super) scripts: Scripts,
    pub(super) refusals: Refusals,
    pub(super) walks: Walks,
    pub(super) traces: Traces,
}

impl Context {
    pub(super) fn new(me: MemberId, limits: Limits, rng_seed: u64, now: Time) -> Self {
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
            tables: Tables::default(),
            bounds: Bounds::default(),
            peers: Peers::new(limits.owed_bytes_max()),
            pulling: Pulling::default(),
            publishing: Publishing::default(),
            subscriptions: Subscriptions::default(),
            read: Read::default(),
            confirming: Confirming::default(),
            callers: Callers::default(),
            copying: Copying::new(now),
            memory: Memory::new(now),
            rounds: Rounds::new(now),
            outbox: Outbox::default(),
            scripts: Scripts::new(rng_seed),
            refusals: Refusals::default(),
            walks: Walks::new(),
            traces: Traces::default(),
            limits,
        }
    }

    /// Wall time now.
    pub(super) fn unix_ms(&self) -> u64 {
        self.wall
            .0
            .saturating_add(u64::try_from(self.now.since(self.wall.1).as_millis()).unwrap_or(0))
    }

    /// The time by which keys expire. Members tell each other the clocks of partitions without what
    /// a test has moved them ahead, because each member adds that itself. So a message that was
    /// under way meanwhile moves no clock back.
    #[inline]
    pub(super) fn data_now(&self) -> Time {
        self.now + self.ahead
    }

    /// A pause that doubles with each attempt, with jitter.
    pub(super) fn backoff(&mut self, first: Duration, most: Duration, attempt: u32) -> Duration {
        let pause = first.saturating_mul(1 << attempt.min(10)).min(most);
        pause / 2 + pause.mul_f64((self.random() % 1024) as f64 / 1024.0)
    }

    /// A number that need not be unpredictable: xorshift64.
    pub(super) fn random(&mut self) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng
    }

    /// A partition may have work: upkeep looks at it until it is quiet.
    #[inline]
    pub(super) fn notice(&mut self, slot: &mut Slot) {
        self.rounds.notice(slot, self.now, &mut self.timers);
    }
}
