//! What a seed draws: the cluster, its network, its clients and its faults.

use super::Case;
use super::halves;
use super::schedule::{MS, Nanos, SECOND};
use doyen_placement::{Division, Eviction, MapLimits, Mode};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fmt;

/// What a seed draws.
#[derive(Debug, Clone)]
pub struct Mix {
    /// Processes that form the first cluster.
    pub founders: usize,
    /// Slots for later processes.
    pub joiners: usize,
    /// About how many partitions.
    pub partitions: u16,
    /// How keys find their partition.
    pub placed: Placed,
    /// Copies besides the primary.
    pub backups: u8,
    /// The most voters.
    pub voters_max: u8,
    /// Data members before the first assignment.
    pub members_min: u16,
    /// Slots that are witnesses.
    pub witnesses: usize,
    /// Whether the first assignment is by rendezvous.
    pub rendezvous: bool,
    /// How long faults go on.
    pub faulty: Nanos,
    /// The average time between faults.
    pub fault_every: Nanos,
    /// Weight of each kind of fault, in the order of `fault::KINDS`.
    pub weights: Vec<u32>,
    /// The least delay of a packet.
    pub delay_min: Nanos,
    /// The most jitter on top of it.
    pub jitter: Nanos,
    /// Bytes a second of a data connection in each direction, if it is narrow.
    pub bandwidth: Option<u64>,
    /// Datagrams lost, per mille.
    pub loss: u32,
    /// Datagrams duplicated, per mille.
    pub duplicates: u32,
    /// Datagrams that are very late, per mille.
    pub late: u32,
    /// Whether hosts answer for dead processes (ECONNREFUSED).
    pub refusals: bool,
    /// Longest gap between a data thread's work and its release.
    pub pass_gap: Nanos,
    /// How late a data thread sees a view.
    pub view_gap: Nanos,
    /// Longest pause.
    pub pause_max: Nanos,
    /// Clients.
    pub clients: usize,
    /// Registers, counters and lists each.
    pub keys: usize,
    /// Think time of a client, on average.
    pub think: Nanos,
    /// Snapshot chunk.
    pub chunk_bytes: usize,
    /// Log kept for laggards.
    pub tail_bytes_max: usize,
    /// The size at which ranges are split.
    pub range_bytes_max: usize,
    /// The least that is kept of it for a partition.
    pub tail_bytes_least: usize,
    /// Whether data threads follow changes.
    pub subscribes: bool,
    /// Whether clients keep what they read, and hear what has changed.
    pub tracks: bool,
    /// Small enough that collections of a few fields become tables.
    pub packed_bytes_max: usize,
    /// The most chunks in flight.
    pub chunks_in_flight: usize,
    /// Largest padding of a value.
    pub padding: usize,
    /// The most drift of clocks, in parts per million.
    pub drift_ppm: i64,
    /// Whether enough processes may die to lose copies or majorities for good.
    pub reckless: bool,
    /// Keys with deadlines.
    pub fleeting: usize,
    /// Keys in named maps.
    pub named: usize,
    /// Pairs of keys that are read and written in transactions.
    pub pairs: usize,
    /// Hashes, each with two fields that clients use.
    pub hashes: usize,
    /// Sets, each with two members that clients add and remove.
    pub sets: usize,
    /// Lists, each with a twin, that clients use as queues.
    pub queues: usize,
    /// Sorted sets.
    pub ranked: usize,
    /// Streams with a group of consumers.
    pub streams: usize,
    /// Queues of jobs.
    pub job_queues: usize,
    /// Clients that work on them.
    pub workers: usize,
    /// Locks and semaphores.
    pub locks: usize,
    /// Clients that take them.
    pub lockers: usize,
    /// Keys with large values, which soon fill the memory.
    pub bulk: usize,
    /// Whether the last slot runs a process that was told to begin alone, and knows the founders:
    /// two clusters may meet.
    pub stranger: bool,
    /// Which keys are evicted when memory is full.
    pub eviction: Eviction,
    /// The limits of one of the named maps.
    pub limits: MapLimits,
    /// Memory of a data thread.
    pub memory_bytes_max: usize,
    /// The data threads of each slot's processes.
    pub threads: Vec<u8>,
    /// How often, in a hundred times, a client asks for several operations on a key at once.
    pub pipelined: u32,
    /// Whether data threads pause between answering clients and sending to peers.
    pub dawdles: bool,
    /// Whether everything that can go wrong does, and often, for coordinators above all.
    pub hell: bool,
    /// Which programs run.
    pub programs: Programs,
    /// Whether an operator recovers a minority while the others live.
    pub halves: bool,
    /// Whether processes have directories, and the power fails.
    pub directories: bool,
}

/// Which programs the processes are started from: the present one, or the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Programs {
    /// The present one.
    Present,
    /// Each slot has one of the two. A process that starts again may be of the other.
    Mixed,
    /// All begin with the one before, and are stopped in turn: their successors are of the present
    /// one.
    Upgraded,
}

/// The share of seeds with processes of the program before.
const FORMER: f64 = 0.4;

/// The share of seeds with heavy faults.
const HELLS: f64 = 0.25;

/// The share of seeds with a stranger.
const STRANGERS: f64 = 0.08;

/// The share of seeds in which an operator recovers a minority while the others live.
const HALVES: f64 = 0.1;

/// The share of seeds with directories.
const DIRECTORIES: f64 = 0.3;

/// The share of seeds with up to thirty nodes: each takes as long as dozens of others.
const CROWDS: f64 = 0.01;

/// The share of seeds with narrow connections.
const NARROW: f64 = 0.2;

/// The share of seeds whose processes have several data threads.
const SEVERAL_THREADS: f64 = 0.6;

impl Mix {
    /// Draws a mix.
    pub(crate) fn draw(seed: u64, rng: &mut ChaCha8Rng) -> Self {
        // Later additions are drawn from numbers of their own, so that a seed's cluster and faults
        // stay the same.
        let mut later = ChaCha8Rng::seed_from_u64(seed);
        later.set_stream(1);
        let mut last = ChaCha8Rng::seed_from_u64(seed);
        last.set_stream(7);
        let mut ways = ChaCha8Rng::seed_from_u64(seed);
        ways.set_stream(9);
        let narrow = ways.random_bool(NARROW);
        let small = later.random_bool(0.12);
        let mut forms = ChaCha8Rng::seed_from_u64(seed);
        forms.set_stream(17);
        let mut followers = ChaCha8Rng::seed_from_u64(seed);
        followers.set_stream(18);
        let mut policies = ChaCha8Rng::seed_from_u64(seed);
        policies.set_stream(8);
        let policy = [
            Eviction::None,
            Eviction::None,
            Eviction::Lru,
            Eviction::Random,
            Eviction::Ttl,
        ][policies.random_range(0..5)];
        let eviction = if small { policy } else { Eviction::None };
        let memory_bytes_max = match eviction {
            Eviction::None if small => 192 << 10,
            Eviction::None => 256 << 20,
            // Small enough that something must be evicted.
            _ => 112 << 10,
        };
        let founders = [1, 1, 2, 2, 3, 3, 3, 3, 4, 5, 5, 6, 7, 8, 9][rng.random_range(0..15)];
        let joiners = rng.random_range(0..=9_usize.saturating_sub(founders).min(3));
        let mut sizes = ChaCha8Rng::seed_from_u64(seed);
        sizes.set_stream(6);
        let crowd = sizes.random_bool(CROWDS);
        let (founders, joiners) = if crowd {
            (sizes.random_range(3..=20), 10)
        } else {
            (founders, joiners)
        };
        let witnesses = usize::from(founders >= 3 && rng.random_bool(0.15));
        let slow = rng.random_bool(0.15);
        // All slots have one thread, or each has its own number of them.
        let slots = founders + joiners + 1;
        let mut numbers = ChaCha8Rng::seed_from_u64(seed);
        numbers.set_stream(2);
        let several = !crowd && numbers.random_bool(SEVERAL_THREADS);
        let threads = (0..slots)
            .map(|_| {
                if several {
                    numbers.random_range(1..=3)
                } else {
                    1
                }
            })
            .collect();
        numbers.set_stream(3);
        let pipelined = [0, 0, 30, 60][numbers.random_range(0..4)];
        let dawdles = numbers.random_bool(0.4);
        let weight = |rng: &mut ChaCha8Rng, k: &super::fault::Kind| {
            if rng.random_bool(0.55) {
                k.weight * rng.random_range(1..4)
            } else {
                0
            }
        };
        let (first, more) = super::fault::KINDS.split_at(super::fault::FIRST_KINDS);
        let mut weights: Vec<u32> = first.iter().map(|k| weight(rng, k)).collect();
        weights.extend(more.iter().map(|k| weight(&mut later, k)));
        // A process that starts joins the first cluster that it hears of, also the stranger's. So
        // if there is a stranger, no process dies or is expelled.
        let stranger = founders > 1 && later.random_bool(STRANGERS);
        let harmless = [
            "data plane cut",
            "connection break",
            "join",
            "wall clock jump",
            "recover",
        ];
        for (kind, weight) in super::fault::KINDS.iter().zip(&mut weights) {
            *weight *= u32::from(!stranger || harmless.contains(&kind.name));
        }
        let drawn = Self {
            founders,
            joiners,
            witnesses,
            partitions: [1, 2, 4, 8, 16][rng.random_range(0..5)],
            backups: [1, 1, 1, 2, 3][rng.random_range(0..5)],
            voters_max: [7, 7, 7, 3, 5][rng.random_range(0..5)],
            members_min: rng.random_range(1..=3.min(founders as u16 - witnesses as u16)),
            rendezvous: rng.random_bool(0.5),
            faulty: rng.random_range(10..25) * SECOND,
            fault_every: [300 * MS, SECOND, 2 * SECOND, 4 * SECOND][rng.random_range(0..4)],
            weights,
            delay_min: if slow {
                15 * MS
            } else {
                rng.random_range(20_000..1_000_000)
            },
            jitter: if slow {
                20 * MS
            } else {
                rng.random_range(10_000..2_000_000)
            },
            bandwidth: narrow.then(|| [40_000, 120_000, 400_000][ways.random_range(0..3)]),
            loss: [0, 0, 0, 10, 50, 150][rng.random_range(0..6)] * u32::from(!stranger),
            duplicates: [0, 0, 20, 100][rng.random_range(0..4)],
            late: [0, 0, 10, 50][rng.random_range(0..4)],
            refusals: rng.random_bool(0.6),
            pass_gap: [20_000, 20_000, MS, 8 * MS][rng.random_range(0..4)],
            view_gap: [50_000, MS, 20 * MS][rng.random_range(0..3)],
            pause_max: [2 * SECOND, 5 * SECOND, 30 * SECOND][rng.random_range(0..3)],
            clients: rng.random_range(2..=6),
            keys: rng.random_range(2..=6),
            think: [10 * MS, 30 * MS, 80 * MS][rng.random_range(0..3)],
            chunk_bytes: [64, 512, 65_536][rng.random_range(0..3)],
            tail_bytes_max: [1_024, 16_384, 64 << 20][rng.random_range(0..3)]
                .min(memory_bytes_max / 4),
            // So little is stored here that a share of it would be nothing.
            tail_bytes_least: [0, 4 << 10][rng.random_range(0..2)],
            subscribes: followers.random_bool(0.4),
            tracks: !stranger && followers.random_bool(0.4),
            packed_bytes_max: [0, 0, 40, 2 << 10][forms.random_range(0..4)],
            range_bytes_max: [600, 4_000, 64 << 20][last.random_range(0..3)],
            chunks_in_flight: rng.random_range(1..=8),
            padding: [8, 64, 600][rng.random_range(0..3)],
            drift_ppm: [0, 100, 9_900, 9_900][rng.random_range(0..4)],
            reckless: rng.random_bool(0.2),
            fleeting: later.random_range(0..=3),
            named: [0, 2, 4][later.random_range(0..3)],
            placed: [
                Placed::Fixed,
                Placed::Fixed,
                Placed::Fixed,
                Placed::Ring,
                Placed::Range,
            ][last.random_range(0..5)],
            pairs: Self::pairs(seed, eviction),
            hashes: Self::hashes(seed),
            sets: Self::sets(seed),
            queues: Self::queues(seed, small),
            ranked: Self::ranked(seed, small),
            streams: Self::work(seed, small || stranger).0,
            job_queues: Self::work(seed, small || stranger).1,
            workers: Self::work(seed, small || stranger).2,
            locks: Self::locks(seed, eviction, stranger).0,
            lockers: Self::locks(seed, eviction, stranger).1,
            bulk: if small { 6 } else { 0 },
            stranger,
            eviction,
            limits: Self::limits(seed),
            memory_bytes_max,
            threads,
            pipelined,
            dawdles,
            hell: false,
            programs: Self::programs(seed, stranger),
            halves: false,
            directories: false,
        };
        let mut numbers = ChaCha8Rng::seed_from_u64(seed);
        numbers.set_stream(24);
        if !stranger && founders >= 3 && numbers.random_bool(HALVES) {
            return drawn.with_halves();
        }
        let drawn = if !stranger && Self::may_be_hell(seed) {
            drawn.into_hell(seed)
        } else {
            drawn
        };
        numbers.set_stream(30);
        if !stranger && numbers.random_bool(DIRECTORIES) {
            return drawn.with_directories();
        }
        drawn
    }

    /// Processes have directories. No operator speaks: whoever has one comes back. The program
    /// before has none.
    fn with_directories(mut self) -> Self {
        for (kind, weight) in super::fault::KINDS.iter().zip(&mut self.weights) {
            *weight *= u32::from(!["recover", "restart of all"].contains(&kind.name));
        }
        Self {
            directories: true,
            programs: Programs::Present,
            ..self
        }
    }

    /// An operator recovers a minority while the others live. Only histories of keys tell the
    /// halves apart, so there is nothing else to judge.
    fn with_halves(self) -> Self {
        Self {
            halves: true,
            faulty: self.faulty + halves::LASTS,
            programs: Programs::Present,
            reckless: false,
            subscribes: false,
            named: 0,
            lockers: 0,
            workers: 0,
            tracks: false,
            ..self
        }
    }

    /// One key of a pair may be evicted without the other.
    fn pairs(seed: u64, eviction: Eviction) -> usize {
        let mut numbers = ChaCha8Rng::seed_from_u64(seed);
        numbers.set_stream(12);
        let drawn = numbers.random_range(0..=3);
        if eviction == Eviction::None { drawn } else { 0 }
    }

    /// A map with a limit evicts, or it refuses new keys.
    fn limits(seed: u64) -> MapLimits {
        let mut numbers = ChaCha8Rng::seed_from_u64(seed);
        numbers.set_stream(22);
        if numbers.random_bool(0.6) {
            return MapLimits::NONE;
        }
        MapLimits {
            entries: Some(numbers.random_range(1..=2)),
            bytes: numbers.random_bool(0.2).then_some(400),
            eviction: [
                Eviction::Lfu,
                Eviction::Lfu,
                Eviction::Lru,
                Eviction::Random,
                Eviction::Ttl,
                Eviction::None,
            ][numbers.random_range(0..6)],
            ..MapLimits::NONE
        }
    }

    fn sets(seed: u64) -> usize {
        let mut numbers = ChaCha8Rng::seed_from_u64(seed);
        numbers.set_stream(26);
        numbers.random_range(0..=2)
    }

    /// One list of a queue may be evicted without its twin. Where memory is full, what those that
    /// wait are given at the end is refused.
    fn queues(seed: u64, small: bool) -> usize {
        let mut numbers = ChaCha8Rng::seed_from_u64(seed);
        numbers.set_stream(27);
        let drawn = numbers.random_range(0..=2);
        if small { 0 } else { drawn }
    }

    fn ranked(seed: u64, small: bool) -> usize {
        let mut numbers = ChaCha8Rng::seed_from_u64(seed);
        numbers.set_stream(28);
        let drawn = numbers.random_range(0..=2);
        if small { 0 } else { drawn }
    }

    fn hashes(seed: u64) -> usize {
        let mut numbers = ChaCha8Rng::seed_from_u64(seed);
        numbers.set_stream(13);
        numbers.random_range(0..=2)
    }

    /// How many locks there are, and how many clients take them. A lock that is evicted is lost,
    /// and a stranger's cluster has locks of its own.
    fn locks(seed: u64, eviction: Eviction, stranger: bool) -> (usize, usize) {
        let mut numbers = ChaCha8Rng::seed_from_u64(seed);
        numbers.set_stream(20);
        let drawn = (numbers.random_range(0..=3), numbers.random_range(2..=5));
        if eviction == Eviction::None && !stranger {
            drawn
        } else {
            (0, 0)
        }
    }

    /// Streams, queues of jobs, and workers. What is evicted or refused is lost, and a stranger's
    /// cluster has keys of its own.
    fn work(seed: u64, none: bool) -> (usize, usize, usize) {
        let mut numbers = ChaCha8Rng::seed_from_u64(seed);
        numbers.set_stream(29);
        let keys = (numbers.random_range(0..=1), numbers.random_range(0..=1));
        let workers = numbers.random_range(2..=4);
        if none {
            (0, 0, 0)
        } else {
            (keys.0, keys.1, workers)
        }
    }

    /// A process that is refused for its level ends, so a stranger is none of those.
    fn programs(seed: u64, stranger: bool) -> Programs {
        let mut numbers = ChaCha8Rng::seed_from_u64(seed);
        numbers.set_stream(11);
        match numbers.random_bool(FORMER) && !stranger {
            false => Programs::Present,
            true if numbers.random_bool(0.5) => Programs::Upgraded,
            true => Programs::Mixed,
        }
    }

    /// The same cluster under faults of every kind all the time, with packets so slow that
    /// decisions cross each other.
    fn into_hell(mut self, seed: u64) -> Self {
        let mut rng = hell_numbers(seed);
        for (weight, kind) in self.weights.iter_mut().zip(super::fault::KINDS) {
            let coordinators = kind.name.starts_with("coordinator");
            *weight = (*weight).max(kind.weight) * if coordinators { 4 } else { 1 };
        }
        self.fault_every = [150 * MS, 300 * MS, 600 * MS][rng.random_range(0..3)];
        (self.delay_min, self.jitter) =
            [(MS, 5 * MS), (10 * MS, 40 * MS), (30 * MS, 90 * MS)][rng.random_range(0..3)];
        self.partitions = self.partitions.min(4);
        self.think = 10 * MS;
        self.drift_ppm = 9_900;
        self.pause_max = self.pause_max.min(5 * SECOND);
        self.hell = true;
        self
    }

    /// Whether a seed has heavy faults, unless it has a stranger.
    #[must_use]
    pub fn may_be_hell(seed: u64) -> bool {
        let mut numbers = hell_numbers(seed);
        numbers.set_stream(5);
        numbers.random_bool(HELLS)
    }

    /// The mix, limited to what a case allows.
    pub(crate) fn within(mut self, case: &Case) -> Self {
        if let Some(nodes) = case.nodes.filter(|_| !self.stranger) {
            self.founders = self.founders.min(nodes.max(1));
            self.joiners = self.joiners.min(nodes.max(1) - self.founders);
            self.witnesses = if self.founders < 3 { 0 } else { self.witnesses };
            self.members_min = self
                .members_min
                .min((self.founders - self.witnesses) as u16);
        }
        self.clients = self.clients.min(case.clients.unwrap_or(usize::MAX).max(1));
        let keys = case.keys.unwrap_or(usize::MAX);
        self.keys = self.keys.min(keys.max(1));
        let kinds = [
            &mut self.fleeting,
            &mut self.named,
            &mut self.pairs,
            &mut self.hashes,
            &mut self.sets,
            &mut self.queues,
            &mut self.ranked,
            &mut self.streams,
            &mut self.job_queues,
            &mut self.locks,
            &mut self.bulk,
        ];
        for kind in kinds {
            *kind = (*kind).min(keys);
        }
        self
    }

    /// The number of all slots.
    pub(crate) fn slots(&self) -> usize {
        self.founders + self.joiners + usize::from(self.stranger)
    }
}

/// A placement mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// Runs of slots.
    Fixed,
    /// Arcs between tokens.
    Ring,
    /// Ranges of keys.
    Range,
}

impl Placed {
    /// The modes that may begin a keyspace, all equally often.
    pub(crate) const ALL: [Self; 3] = [Self::Fixed, Self::Ring, Self::Range];

    /// A mode with about this many partitions: for the ring, those of this many members.
    pub(crate) fn among(self, partitions: u16, members: usize) -> (Mode, Division) {
        match self {
            Self::Fixed => (Mode::Fixed { partitions }, Division::Slots),
            Self::Ring => {
                let tokens = (usize::from(partitions) / members.max(1)).clamp(1, 4);
                (
                    Mode::Ring {
                        tokens: tokens as u16,
                        random: partitions > 4,
                    },
                    Division::no_arcs(),
                )
            }
            Self::Range => {
                let splits = SPLITS.iter().take(usize::from(partitions) - 1);
                // They are in order.
                (Mode::Range, Division::split_at(splits).unwrap_or_default())
            }
        }
    }
}

/// Places for splits among the keys of clients, in order.
pub(crate) const SPLITS: [&str; 8] = [
    "counter-",
    "counter-1",
    "fleeting",
    "list-",
    "list-1",
    "list-2",
    "register-1",
    "register-2",
];

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            founders,
            joiners,
            witnesses,
            partitions,
            placed,
            backups,
            voters_max,
            clients,
            loss,
            programs,
            ..
        } = self;
        let ms = |nanos: Nanos| nanos as f64 / MS as f64;
        write!(
            f,
            "{founders} founders ({witnesses} witnesses) and up to {joiners} more, {voters_max} \
             voters at most; {partitions} partitions ({placed:?}) with {backups} backups; "
        )?;
        write!(
            f,
            "{clients} clients; packets take {:.1} to {:.1} ms, {loss} of 1000 datagrams are \
             lost; ",
            ms(self.delay_min),
            ms(self.delay_min + self.jitter)
        )?;
        write!(
            f,
            "a fault each {:.1} s for {:.0} s{}; programs: {programs:?}",
            ms(self.fault_every) / 1e3,
            ms(self.faulty) / 1e3,
            match (self.hell, self.directories) {
                (true, true) => ": hell, with directories",
                (true, false) => ": hell",
                (false, true) => ", with directories",
                (false, false) => "",
            }
        )
    }
}

fn hell_numbers(seed: u64) -> ChaCha8Rng {
    let mut numbers = ChaCha8Rng::seed_from_u64(seed);
    numbers.set_stream(4);
    numbers
}
