//! The world of one seed: every process, the network, the clients, and the loop that moves them.

use super::blocked::LastWaits;
use super::client::{self, Client, Histories};
use super::disk::{Ending, SlotDirectory};
use super::fault::Undo;
use super::halves::{Minority, Step};
use super::locker::Lockers;
use super::mix::{Mix, Programs};
use super::network::{ConnectionId, Network, Plane};
use super::oracle::Oracle;
use super::process::{DataInput, DataThread, Process, ProcessId, local};
use super::schedule::{Event, MS, Nanos, SECOND, Schedule};
use super::story::Story;
use super::subscriber::{Counts, Subscriber};
use super::trace::Trace;
use super::tracker::TrackedCounts;
use super::worker::Workers;
use super::{Case, Report};
use doyen::data::siblings::Siblings;
use doyen_engine::{Bookmark, Limits, Shard};
use doyen_gossip::agreement::Timing;
use doyen_gossip::{Agreement, AgreementConfig, SigningSeed};
use doyen_placement::level::LEVELS;
use doyen_placement::{
    Addresses, Assignment, Keyspace, MemberId, OnLoss, OrderKey, Role, Schedulers, Settings, Table,
    ThreadPorts,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

/// Courses of one case begin here in the streams of its numbers.
const COURSES: u64 = 1 << 32;

/// The most events of one run. If there are more, a machine spins.
const EVENTS_MAX: u64 = 6_000_000;

/// A place in which a process may run.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) process: Option<ProcessId>,
    pub(crate) started: bool,
    /// How often a process has started there since all were killed.
    pub(crate) starts: u32,
    /// Its program is the one before the present one.
    pub(crate) former: bool,
    pub(crate) directory: SlotDirectory,
    /// How often its address has changed.
    pub(crate) moved: u8,
    /// Its machine does not come back.
    pub(crate) lost: bool,
}

/// The world of one seed.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) case: Case,
    pub(crate) mix: Mix,
    pub(crate) rng: ChaCha8Rng,
    pub(crate) schedule: Schedule,
    pub(crate) trace: Trace,
    pub(crate) story: Story,
    /// The number of the next fault.
    pub(crate) next_fault: u32,
    /// When the present cluster could begin to form.
    pub(crate) began_at: Nanos,
    pub(crate) slots: Vec<Slot>,
    /// Which program a slot has next.
    pub(crate) programs: ChaCha8Rng,
    /// Which data threads follow changes, and when.
    pub(crate) followers: ChaCha8Rng,
    /// What disks do.
    pub(crate) disks: ChaCha8Rng,
    pub(crate) unsteady_until: Nanos,
    /// When the halves of a split are made and meet, and what is cut off meanwhile.
    pub(crate) halving: ChaCha8Rng,
    pub(crate) minority: Option<Minority>,
    /// What subscribers were told that are gone.
    pub(crate) told: Counts,
    /// One that ended, and where it goes on.
    pub(crate) resting: Option<(Bookmark, Subscriber)>,
    pub(crate) processes: Vec<Process>,
    /// The process that has an id now, and the slot that each id ever had.
    pub(crate) directory: BTreeMap<MemberId, ProcessId>,
    pub(crate) slot_of: BTreeMap<MemberId, usize>,
    pub(crate) network: Network,
    pub(crate) keys: Vec<String>,
    pub(crate) clients: Vec<Client>,
    pub(crate) lockers: Lockers,
    pub(crate) workers: Workers,
    /// What clients that track kept.
    pub(crate) tracked: TrackedCounts,
    pub(crate) histories: Histories,
    pub(crate) oracle: Oracle,
    pub(crate) faults: BTreeMap<&'static str, u64>,
    pub(crate) calm: bool,
    pub(crate) calm_at: Nanos,
    /// The latest time at which all must be well.
    pub(crate) heal_by: Nanos,
    /// How long that may take.
    pub(crate) heal_max: Nanos,
    pub(crate) operator_spoke: bool,
    pub(crate) healed_at: Option<Nanos>,
    pub(crate) stop_clients: bool,
    /// How far the end is for clients that wait in line.
    pub(crate) last_waits: LastWaits,
    pub(crate) last_calls_begun: bool,
    pub(crate) all_is_called: bool,
    pub(crate) done: bool,
    pub(crate) events: u64,
    /// The longest suspension of a process that was drawn so far.
    pub(crate) longest_stall: Nanos,
    /// The counts of shards that are gone: learners that needed only the log, and keys that expired
    /// or were evicted.
    pub(crate) caught_up: u64,
    pub(crate) continued: u64,
    /// Reads that were answered in the pass in which they came, and those that had to be executed
    /// again.
    pub(crate) read_at_once: u64,
    pub(crate) reads_again: u64,
    pub(crate) set_at_once: u64,
    /// Operations that were overtaken: asked again, and refused.
    pub(crate) overtaken: [u64; 2],
    /// Batches of bytes between data threads of a process.
    pub(crate) handed_over: u64,
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
    failure: Option<String>,
}

fn timing() -> Timing {
    // Ranges are small here, and do not exist for long.
    Timing {
        cold_for: std::time::Duration::from_secs(3),
        ..Timing::default()
    }
}

impl World {
    pub(crate) fn new(case: &Case, trace: Trace) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(case.seed);
        let mix = Mix::draw(case.seed, &mut rng).within(case);
        if case.salt != 0 {
            rng.set_stream(COURSES + case.salt);
        }
        let mut programs = ChaCha8Rng::seed_from_u64(case.seed);
        programs.set_stream(12);
        let mut followers = ChaCha8Rng::seed_from_u64(case.seed);
        followers.set_stream(19);
        let mut halving = ChaCha8Rng::seed_from_u64(case.seed);
        halving.set_stream(25);
        let mut disks = ChaCha8Rng::seed_from_u64(case.seed);
        disks.set_stream(31);
        let slots = (0..mix.slots())
            .map(|_| Slot {
                process: None,
                started: false,
                starts: 0,
                former: match mix.programs {
                    Programs::Present => false,
                    Programs::Mixed => programs.random_bool(0.6),
                    Programs::Upgraded => true,
                },
                directory: SlotDirectory::default(),
                moved: 0,
                lost: false,
            })
            .collect();
        let clients = (0..mix.clients + usize::from(mix.stranger))
            .map(|_| Client::default())
            .collect();
        let mut world = Self {
            // With a stranger, the number of nodes is fixed.
            case: Case {
                nodes: case.nodes.filter(|_| !mix.stranger),
                ..case.clone()
            },
            oracle: Oracle::new(mix.stranger),
            keys: client::keys(&mix),
            lockers: Lockers::new(&mix, case.seed),
            workers: Workers::new(&mix, case.seed),
            tracked: TrackedCounts::default(),
            mix,
            rng,
            schedule: Schedule::default(),
            trace,
            story: Story::default(),
            next_fault: 0,
            began_at: 0,
            slots,
            programs,
            followers,
            disks,
            unsteady_until: 0,
            halving,
            minority: None,
            told: Counts::default(),
            resting: None,
            processes: Vec::new(),
            directory: BTreeMap::new(),
            slot_of: BTreeMap::new(),
            network: Network::default(),
            clients,
            histories: Histories::default(),
            faults: BTreeMap::new(),
            calm: false,
            calm_at: 0,
            heal_by: 0,
            heal_max: 0,
            operator_spoke: false,
            healed_at: None,
            stop_clients: false,
            last_waits: LastWaits::No,
            last_calls_begun: false,
            all_is_called: false,
            done: false,
            events: 0,
            longest_stall: 0,
            caught_up: 0,
            continued: 0,
            read_at_once: 0,
            reads_again: 0,
            set_at_once: 0,
            overtaken: [0; 2],
            handed_over: 0,
            expired: 0,
            evicted: 0,
            failure: None,
        };
        let mix = world.mix.clone();
        world.trace.line(0, || format!("{mix:?}"));
        world.tell(|w| w.mix.to_string());
        for slot in 0..mix.founders {
            let at = world.rng.random_range(0..1500 * MS);
            world.schedule.at(at, Event::Start(slot));
        }
        if mix.stranger {
            world.keep_apart();
        }
        if mix.halves {
            let at = world.halving.random_range(4 * SECOND..8 * SECOND);
            world.schedule.at(at, Event::Halves(Step::Cut));
        }
        if mix.programs == Programs::Upgraded {
            let mut at = 5 * SECOND;
            for slot in 0..mix.slots() {
                at += world.programs.random_range(SECOND / 2..4 * SECOND);
                world.schedule.at(at, Event::Upgrade(slot));
            }
        }
        for id in 0..world.clients.len() {
            let at = world.rng.random_range(0..3 * SECOND);
            world.client_in(at, id);
        }
        world.begin_lockers();
        world.begin_workers();
        let first = world.rng.random_range(0..6 * SECOND);
        world.schedule.at(first, Event::Fault);
        world.schedule.at(4 * SECOND + mix.faulty, Event::Calm);
        world
    }

    pub(crate) fn now(&self) -> Nanos {
        self.schedule.now()
    }

    pub(crate) fn into_story(self) -> Vec<String> {
        self.trace.into_story()
    }

    /// An invariant is broken.
    pub(crate) fn broken(&mut self, what: String) {
        if self.failure.is_none() {
            self.failure = Some(what);
        }
    }

    /// Runs to the end.
    pub(crate) fn run(&mut self) -> Result<Report, String> {
        while !self.done {
            let Some(event) = self.schedule.pop() else {
                return Err("nothing is left to happen".into());
            };
            self.events += 1;
            if self.events > EVENTS_MAX {
                return Err(format!(
                    "more than {EVENTS_MAX} events: something spins; the last: {event:?}"
                ));
            }
            self.trace.number(self.schedule.now());
            self.tell_clients();
            self.handle(event);
            if let Some(what) = self.failure.take() {
                return Err(what);
            }
        }
        self.judge()
    }

    fn handle(&mut self, event: Event) {
        let now = self.schedule.now();
        match event {
            Event::Control(p, input) => match self.processes[p].control_blocked(now) {
                Some(until) => self.schedule.at(until, Event::Control(p, input)),
                None => self.control(p, input),
            },
            Event::ControlTick(p) => match self.processes[p].control_blocked(now) {
                Some(until) => {
                    self.processes[p].control_tick_at = Some(until);
                    self.schedule.at(until, Event::ControlTick(p));
                }
                None => self.control_tick(p),
            },
            Event::Data(thread, input) => self.data(thread, input),
            Event::DataPass((p, t)) => match self.processes[p].data_blocked(t, now) {
                Some(until) => self.schedule.at(until, Event::DataPass((p, t))),
                None => self.data_pass((p, t)),
            },
            Event::DataTransmit((p, t)) => match self.processes[p].data_blocked(t, now) {
                Some(until) => self.schedule.at(until, Event::DataTransmit((p, t))),
                None => self.data_transmit((p, t)),
            },
            Event::DataRelease((p, t)) => match self.processes[p].data_blocked(t, now) {
                Some(until) => self.schedule.at(until, Event::DataRelease((p, t))),
                None => self.data_release((p, t)),
            },
            Event::DataTick((p, t)) => {
                if self.processes[p].threads[t].tick_at == Some(now) {
                    self.processes[p].threads[t].tick_at = None;
                    self.data((p, t), DataInput::Tick);
                }
            }
            Event::DataAlive((p, t)) => {
                if self.processes[p].gone {
                    return;
                }
                match self.processes[p].data_blocked(t, now) {
                    Some(until) => self.schedule.at(until, Event::DataAlive((p, t))),
                    None => {
                        self.data_alive((p, t));
                        self.schedule.after(50 * MS, Event::DataAlive((p, t)));
                    }
                }
            }
            Event::Disk(p, event) => self.disk(p, event),
            Event::PowerFails(p) => self.power_fails(p),
            Event::Dial(p) => self.dial(p),
            Event::ConnectionUp(id, end) => self.connection_up(id, end),
            Event::ConnectionDown(id, end) => self.connection_down(id, end),
            Event::Arrive(id, end, lane) => self.arrive(id, end, lane),
            Event::ClientNext(id) => self.client_next(id),
            Event::ClientTimeout(id, serial) => self.client_timeout(id, serial),
            Event::Fault => self.fault(),
            Event::Halves(step) => self.halves(step),
            Event::Undo(undo) => self.undo(undo),
            Event::Start(slot) => self.start(slot),
            Event::Upgrade(slot) => self.upgrade(slot),
            Event::Drain(p) => self.drain(p),
            Event::Calm => self.begin_calm(),
            Event::Healed => self.look_whether_healed(),
        }
    }

    // ---- processes

    /// Starts a process in a slot, unless one runs there.
    pub(crate) fn start(&mut self, slot: usize) {
        if self.slots[slot].process.is_some() {
            return;
        }
        let me = MemberId::of_member(self.rng.random());
        let base = self.rng.random_range(0..1 << 50);
        let ppm = self
            .rng
            .random_range(-self.mix.drift_ppm..=self.mix.drift_ppm);
        let skew = self.rng.random_range(-5_000..5_000);
        let now = local(base, ppm, self.schedule.now());
        if self.mix.programs == Programs::Mixed && self.slots[slot].starts > 0 {
            let chance = if self.slots[slot].former { 0.5 } else { 0.15 };
            self.slots[slot].former ^= self.programs.random_bool(chance);
        }
        self.slots[slot].started = true;
        self.slots[slot].starts += 1;
        let directory = self.open_directory(slot);
        let mut config = self.config(slot, me);
        config.directory = directory
            .as_ref()
            .map(|(writer, ..)| writer.start(me).count);
        let resumed = match &directory {
            None => None,
            Some((_, seed, has)) => {
                config.signing_seed = SigningSeed::new(*seed);
                (self.oracle.heirs).signs(me, config.signing_seed.vote_key());
                if let Err(what) = self.oracle.heirs.begins(me, has.as_ref()) {
                    self.broken(format!("{what} (n{slot})"));
                }
                has.clone()
            }
        };
        let heir = resumed.as_ref().is_some_and(|durable| !durable.promised);
        let agreement = match resumed {
            Some(durable) => Agreement::resume(config, durable, now),
            None => Agreement::new(config, now),
        };
        let siblings = Siblings::of(me, self.mix.threads[slot]);
        let threads: Vec<DataThread> = (0..)
            .zip(siblings)
            .map(|(t, siblings)| {
                DataThread::new(
                    Shard::new(me.thread(t), self.limits(), self.rng.random(), now),
                    me,
                    siblings,
                )
            })
            .collect();
        let count = threads.len();
        let p = self.processes.len();
        let speaks = agreement.id();
        self.tell(|_| {
            let for_whom = if speaks == me {
                String::new()
            } else {
                format!(" for {speaks}")
            };
            format!("n{slot} starts (p{p}, {me}){for_whom}")
        });
        self.processes
            .push(Process::new(slot, me, base, ppm, skew, agreement, threads));
        self.processes[p].writer = directory.map(|(writer, ..)| writer);
        self.processes[p].resumed = heir;
        self.slots[slot].process = Some(p);
        self.directory.insert(me, p);
        self.slot_of.insert(me, slot);
        self.after_control(p);
        for t in 0..count {
            self.schedule.after(0, Event::DataAlive((p, t)));
            // First it meets the other data threads of its process.
            if count > 1 {
                self.data((p, t), DataInput::Wake);
            }
        }
        self.schedule.after(MS, Event::Dial(p));
    }

    /// Whether this is the slot of the process that may have a cluster of its own.
    pub(crate) fn is_stranger(&self, slot: usize) -> bool {
        self.mix.stranger && slot + 1 == self.slots.len()
    }

    /// The stranger begins out of reach of the others: founders that hear of a living cluster would
    /// join it, and some might.
    fn keep_apart(&mut self) {
        let stranger = self.slots.len() - 1;
        let (start, meet) = (
            self.rng.random_range(0..3 * SECOND),
            self.rng.random_range(4 * SECOND..9 * SECOND),
        );
        let cuts: Vec<_> = (0..stranger)
            .flat_map(|s| [(Plane::Control, s, stranger), (Plane::Control, stranger, s)])
            .collect();
        for cut in &cuts {
            self.network.cut(cut);
        }
        self.schedule.at(start, Event::Start(stranger));
        self.schedule.at(meet, Event::Undo(Undo::Meet(cuts)));
    }

    /// The process that is alone in a cluster of its own, beside all others.
    pub(crate) fn apart(&self) -> Option<ProcessId> {
        let p = self
            .slots
            .last()
            .and_then(|s| s.process)
            .filter(|p| self.is_stranger(self.processes[*p].slot))?;
        let cluster = |p: ProcessId| self.processes[p].view.as_ref().map(|v| v.installed.cluster);
        let others = self
            .slots
            .iter()
            .filter_map(|s| s.process)
            .filter(|other| *other != p);
        let ours = cluster(p)?;
        others
            .filter_map(cluster)
            .all(|theirs| theirs != ours)
            .then_some(p)
    }

    /// Where the control port of a slot is.
    pub(crate) fn control_address(&self, slot: usize) -> SocketAddr {
        let last = u8::try_from(slot + 1).unwrap_or(255);
        SocketAddr::from((Ipv4Addr::new(10, 0, self.slots[slot].moved, last), 7400))
    }

    /// The slot at an address.
    pub(crate) fn slot_at(&self, address: SocketAddr) -> Option<usize> {
        let SocketAddr::V4(v4) = address else {
            return None;
        };
        let slot = usize::from(v4.ip().octets()[3]).checked_sub(1)?;
        let there = slot < self.slots.len() && self.control_address(slot) == address;
        there.then_some(slot)
    }

    /// The seeds of a slot.
    pub(crate) fn seeds(&self, slot: usize) -> Vec<SocketAddr> {
        let first = if self.mix.directories {
            // Its directory has nothing yet, so it begins the cluster.
            !self.oracle.any_committed() && !self.has_seat(slot)
        } else {
            self.slots[slot].starts == 1
        };
        match self.mix.founders {
            1 if slot == 0 && first => 0..0,
            1 => 0..self.slots.len(),
            n => 0..n,
        }
        .map(|slot| self.control_address(slot))
        .collect()
    }

    pub(crate) fn config(&mut self, slot: usize, me: MemberId) -> AgreementConfig {
        let level_max = if self.slots[slot].former {
            LEVELS.0
        } else {
            LEVELS.1
        };
        self.oracle.speaks(me, level_max);
        let seeds = self.seeds(slot);
        let control = self.control_address(slot);
        let data = SocketAddr::new(control.ip(), 7401);
        let mix = &self.mix;
        // The first slots are data members, so that a cluster whose first witness is late still has
        // a first member.
        let (mode, division) = mix.placed.among(mix.partitions, mix.founders);
        let witness = slot >= mix.founders - mix.witnesses && slot < mix.founders;
        AgreementConfig {
            range_bytes_max: self.mix.range_bytes_max as u64,
            role: if witness { Role::Witness } else { Role::Data },
            addresses: Addresses {
                further: (1..mix.threads[slot])
                    .map(|t| ThreadPorts {
                        data: 7401 + u16::from(t),
                        resp_cluster: None,
                    })
                    .collect(),
                ..Addresses::new(control, data)
            },
            seeds: seeds.into_iter().collect(),
            // The stranger is to begin alone. After its first life, it is like the others.
            expect: (self.is_stranger(slot) && self.slots[slot].starts == 1).then_some(1),
            settings: Settings {
                voters_max: mix.voters_max,
                members_min: mix.members_min,
                assignment: if mix.rendezvous {
                    Assignment::Rendezvous
                } else {
                    Assignment::RoundRobin
                },
                schedulers: Schedulers::ALL,
                balancing: doyen_placement::Balancing::default(),
            },
            default_keyspace: Keyspace {
                division,
                on_loss: OnLoss::Reset {
                    after_ms: if mix.reckless || mix.directories {
                        3_000
                    } else {
                        60_000
                    },
                },
                eviction: mix.eviction,
                mode,
                ..Keyspace::fixed(1, mix.backups)
            },
            timing: timing(),
            order_key: OrderKey(me.0.into()),
            level_max,
            rng_seed: self.rng.random(),
            ..AgreementConfig::of_test(me, format!("n{slot}"), control)
        }
    }

    /// The limits of one data thread.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            packed_bytes_max: self.mix.packed_bytes_max,
            packed_small_bytes_max: self.mix.packed_bytes_max,
            // Every table is read in pages of one row.
            page_rows: 0,
            memory_bytes_max: self.mix.memory_bytes_max,
            tail_bytes_max: self.mix.tail_bytes_max,
            tail_bytes_least: self.mix.tail_bytes_least,
            range_bytes_max: self.mix.range_bytes_max,
            chunk_bytes: self.mix.chunk_bytes,
            chunks_in_flight: self.mix.chunks_in_flight,
            copies_max: 8,
            drawn_max: 2,
            // A few writes, so that they often wait.
            ahead_bytes_max: 8 << 10,
            takeover_wait: timing().takeover_wait(),
            ..Limits::of_test()
        }
    }

    /// The process ends, by a crash or at the end of a leave.
    pub(crate) fn end_process(&mut self, p: ProcessId) {
        self.close_directory(p, Ending::Kill);
        let slot = self.processes[p].slot;
        self.processes[p].gone = true;
        for t in 0..self.processes[p].threads.len() {
            self.end_subscriber((p, t));
        }
        let threads = &mut self.processes[p].threads;
        threads.iter_mut().for_each(|thread| thread.inbox.clear());
        let links: Vec<ConnectionId> = threads
            .iter()
            .flat_map(|thread| thread.links.values().copied())
            .collect();
        self.slots[slot].process = None;
        let me = self.processes[p].me;
        self.directory.remove(&me);
        for id in links {
            self.break_connection(id, 3 * SECOND);
        }
        self.clients_cut_off(p);
    }
}

/// A table in a few letters.
pub(crate) fn describe(table: &Table) -> String {
    let short = |id: MemberId| format!("{:04x}", id.0 >> 48);
    let members: Vec<String> = table
        .members
        .iter()
        .map(|m| {
            format!(
                "{}={}#{}{}{}",
                m.name,
                short(m.id),
                m.age,
                if table.voters.contains(&m.id) {
                    "v"
                } else {
                    ""
                },
                match m.state {
                    doyen_placement::MemberState::Live => String::new(),
                    other => format!("({other:?})"),
                }
            )
        })
        .collect();
    let mut partitions = Vec::new();
    for p in table.keyspaces.iter().flat_map(|k| &k.partitions) {
        let replicas: Vec<String> = p
            .replicas
            .iter()
            .map(|r| {
                format!(
                    "{}{}",
                    short(r.member),
                    if r.state == doyen_placement::ReplicaState::Learner {
                        "?"
                    } else {
                        ""
                    }
                )
            })
            .collect();
        let goal = p.goal.as_ref().map_or(String::new(), |g| {
            format!("=>{:?}", g.iter().map(|m| short(*m)).collect::<Vec<_>>())
        });
        partitions.push(format!(
            "{}/{}:{}{goal}",
            p.epoch,
            p.lineage,
            replicas.join("+")
        ));
    }
    format!("[{}] [{}]", members.join(" "), partitions.join(" "))
}

pub(crate) fn clip(text: &str) -> String {
    text.chars().take(300).collect()
}
