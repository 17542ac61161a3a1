//! The world of one seed: every process, the network, the clients, and the loop that moves them.

use super::client::{Client, Histories};
use super::fault::KINDS;
use super::mix::Mix;
use super::network::{Connection, ConnectionId, Network, Plane, STALL, lane_index};
use super::oracle::Oracle;
use super::process::{ControlInput, DataInput, Leaving, Process, ProcessId, local};
use super::schedule::{Event, MS, Nanos, SECOND, Schedule};
use super::trace::Trace;
use super::{Report, client};
use crate::linear::{self, Verdict};
use bytes::BytesMut;
use doyen::shard::op::{Failure, Outcome};
use doyen::shard::{Lane, Limits, Request, Shard};
use doyen_gossip::agreement::{Peer, Timing};
use doyen_gossip::hints::Hint;
use doyen_gossip::wire::Message;
use doyen_gossip::{Agreement, Config, Input, Output, Time};
use doyen_placement::{
    Addresses, Assignment, Keyspace, KeyspaceId, Location, MemberId, Mode, OnLoss, Role, Settings, Table, planner,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

/// Events that one run handles at most: more is a machine that spins.
const EVENTS_MAX: u64 = 6_000_000;
/// How soon after the last fault everything must be well (I16).
const HEAL_MAX: Nanos = 40 * SECOND;
/// A connection whose bytes are stalled for this long breaks.
const IDLE_MAX: Nanos = 2 * SECOND;

/// Where a process may run.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) process: Option<ProcessId>,
    pub(crate) started: bool,
    starts: u32,
}

/// The world of one seed.
#[derive(Debug)]
pub(crate) struct World {
    seed: u64,
    pub(crate) mix: Mix,
    pub(crate) rng: ChaCha8Rng,
    pub(crate) schedule: Schedule,
    pub(crate) trace: Trace,
    pub(crate) slots: Vec<Slot>,
    pub(crate) processes: Vec<Process>,
    /// Who answers to an id now, and at which slot each id ever was.
    directory: BTreeMap<MemberId, ProcessId>,
    slot_of: BTreeMap<MemberId, usize>,
    pub(crate) network: Network,
    pub(crate) clients: Vec<Client>,
    pub(crate) histories: Histories,
    pub(crate) oracle: Oracle,
    pub(crate) faults: BTreeMap<&'static str, u64>,
    pub(crate) calm: bool,
    calm_at: Nanos,
    healed_at: Option<Nanos>,
    pub(crate) stop_clients: bool,
    pub(crate) last_reads_begun: bool,
    done: bool,
    events: u64,
    failure: Option<String>,
}

fn control_address(slot: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, u8::try_from(slot + 1).unwrap_or(255)), 7400))
}

fn data_address(slot: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, u8::try_from(slot + 1).unwrap_or(255)), 7401))
}

fn slot_of_address(address: SocketAddr) -> Option<usize> {
    match address {
        SocketAddr::V4(v4) => usize::from(v4.ip().octets()[3]).checked_sub(1),
        SocketAddr::V6(_) => None,
    }
}

fn timing() -> Timing {
    Timing::default()
}

impl World {
    pub(crate) fn new(seed: u64, trace: Trace) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mix = Mix::draw(&mut rng);
        let slots = (0..mix.slots()).map(|_| Slot { process: None, started: false, starts: 0 }).collect();
        let clients = (0..mix.clients).map(|_| Client::default()).collect();
        let mut world = Self {
            seed,
            oracle: Oracle::new(),
            mix,
            rng,
            schedule: Schedule::default(),
            trace,
            slots,
            processes: Vec::new(),
            directory: BTreeMap::new(),
            slot_of: BTreeMap::new(),
            network: Network::default(),
            clients,
            histories: Histories::default(),
            faults: BTreeMap::new(),
            calm: false,
            calm_at: 0,
            healed_at: None,
            stop_clients: false,
            last_reads_begun: false,
            done: false,
            events: 0,
            failure: None,
        };
        let mix = world.mix.clone();
        world.trace.line(0, || format!("{mix:?}"));
        for slot in 0..mix.founders {
            let at = world.rng.random_range(0..1500 * MS);
            world.schedule.at(at, Event::Start(slot));
        }
        for id in 0..mix.clients {
            let at = world.rng.random_range(0..3 * SECOND);
            world.schedule.at(at, Event::ClientNext(id));
        }
        let first = world.rng.random_range(0..6 * SECOND);
        world.schedule.at(first, Event::Fault);
        world.schedule.at(4 * SECOND + mix.faulty, Event::Calm);
        world
    }

    pub(crate) fn now(&self) -> Nanos {
        self.schedule.now()
    }

    pub(crate) fn trace_lines(&self) -> Vec<String> {
        self.trace.lines()
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
            let Some(event) = self.schedule.pop() else { return Err("nothing is left to happen".into()) };
            self.events += 1;
            if self.events > EVENTS_MAX {
                return Err(format!("more than {EVENTS_MAX} events: something spins; the last: {event:?}"));
            }
            self.trace.number(self.schedule.now());
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
            Event::Data(p, input) => self.data(p, input),
            Event::DataPass(p) => match self.processes[p].data_blocked(now) {
                Some(until) => self.schedule.at(until, Event::DataPass(p)),
                None => self.data_pass(p),
            },
            Event::DataRelease(p) => match self.processes[p].data_blocked(now) {
                Some(until) => self.schedule.at(until, Event::DataRelease(p)),
                None => self.data_release(p),
            },
            Event::DataTick(p) => {
                if self.processes[p].data_tick_at == Some(now) {
                    self.processes[p].data_tick_at = None;
                    self.data(p, DataInput::Tick);
                }
            }
            Event::DataAlive(p) => {
                if self.processes[p].gone {
                    return;
                }
                match self.processes[p].data_blocked(now) {
                    Some(until) => self.schedule.at(until, Event::DataAlive(p)),
                    None => {
                        self.upcall(p, |_| Input::DataThreadAlive);
                        self.schedule.after(50 * MS, Event::DataAlive(p));
                    }
                }
            }
            Event::Dial(p) => self.dial(p),
            Event::ConnectionUp(id, end) => self.connection_up(id, end),
            Event::ConnectionDown(id, end) => self.connection_down(id, end),
            Event::Arrive(id, end, lane) => self.arrive(id, end, lane),
            Event::ClientNext(id) => self.client_next(id),
            Event::ClientTimeout(id, serial) => self.client_timeout(id, serial),
            Event::Fault => self.fault(),
            Event::Undo(undo) => self.undo(undo),
            Event::Start(slot) => self.start(slot),
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
        let me = MemberId(self.rng.random());
        let base = self.rng.random_range(0..1 << 50);
        let ppm = self.rng.random_range(-self.mix.drift_ppm..=self.mix.drift_ppm);
        let skew = self.rng.random_range(-5_000..5_000);
        let now = local(base, ppm, self.schedule.now());
        self.slots[slot].started = true;
        self.slots[slot].starts += 1;
        let agreement = Agreement::new(self.config(slot, me), now);
        let shard = Shard::new(me, self.limits(), self.rng.random(), now);
        let p = self.processes.len();
        self.trace.line(self.schedule.now(), || format!("start p{p} in slot {slot} as {me}"));
        self.processes.push(Process::new(slot, me, base, ppm, skew, agreement, shard));
        self.slots[slot].process = Some(p);
        self.directory.insert(me, p);
        self.slot_of.insert(me, slot);
        self.after_control(p);
        self.schedule.after(0, Event::DataAlive(p));
        self.schedule.after(MS, Event::Dial(p));
    }

    fn config(&mut self, slot: usize, me: MemberId) -> Config {
        let mix = &self.mix;
        let seeds: Vec<SocketAddr> = match mix.founders {
            1 if slot == 0 && self.slots[slot].starts == 1 => Vec::new(),
            1 => (0..self.slots.len()).map(control_address).collect(),
            n => (0..n).map(control_address).collect(),
        };
        // The first slots are data members, so that a cluster whose first witness is late still has a first member.
        let witness = slot >= mix.founders - mix.witnesses && slot < mix.founders;
        Config {
            id: me,
            name: format!("n{slot}"),
            role: if witness { Role::Witness } else { Role::Data },
            addresses: Addresses {
                control: control_address(slot),
                data: data_address(slot),
                resp: None,
                resp_cluster: None,
                http: None,
            },
            location: Location::default(),
            weight: 100,
            seeds,
            expect: None,
            settings: Settings {
                voters_max: mix.voters_max,
                members_min: mix.members_min,
                assignment: if mix.rendezvous { Assignment::Rendezvous } else { Assignment::RoundRobin },
            },
            default_keyspace: Keyspace {
                id: KeyspaceId(0),
                name: "default".into(),
                mode: Mode::Fixed { partitions: mix.partitions },
                backups: mix.backups,
                min_in_sync: 1,
                on_loss: OnLoss::Reset { after_ms: if mix.reckless { 3_000 } else { 60_000 } },
                default_ttl_ms: None,
                partitions: Vec::new(),
            },
            timing: timing(),
            rng_seed: self.rng.random(),
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            value_bytes_max: 1 << 20,
            key_bytes_max: 1 << 10,
            memory_bytes_max: 256 << 20,
            tail_bytes_max: self.mix.tail_bytes_max,
            park: std::time::Duration::from_secs(5),
            waiting_max: 10_000,
            copy_silent_max: std::time::Duration::from_millis(1_500),
            chunk_bytes: self.mix.chunk_bytes,
            chunks_in_flight: self.mix.chunks_in_flight,
            copies_max: 8,
            takeover_wait: timing().takeover_wait(),
        }
    }

    /// The process is no more: a crash, or the end of a leave.
    pub(crate) fn end_process(&mut self, p: ProcessId) {
        let slot = self.processes[p].slot;
        self.processes[p].gone = true;
        self.processes[p].inbox.clear();
        self.slots[slot].process = None;
        let me = self.processes[p].me;
        self.directory.remove(&me);
        self.oracle.died(me);
        let links: Vec<ConnectionId> = self.processes[p].links.values().copied().collect();
        for id in links {
            self.break_connection(id, 3 * SECOND);
        }
        self.clients_cut_off(p);
    }

    // ---- control threads

    fn control(&mut self, p: ProcessId, input: ControlInput) {
        if self.processes[p].gone {
            return;
        }
        let now = self.processes[p].clock(self.schedule.now());
        let me = self.processes[p].me;
        match input {
            ControlInput::Of(of, input) if of == me => self.processes[p].agreement.handle(now, input),
            ControlInput::Used(of) if of == me => {
                self.processes[p].agreement.handle(now, Input::Used);
                self.after_control(p);
                let delay = self.rng.random_range(1_000..MS);
                return self.schedule.after(delay, Event::Data(p, DataInput::Used(me)));
            }
            ControlInput::Of(..) | ControlInput::Used(_) => return,
        }
        self.after_control(p);
    }

    fn control_tick(&mut self, p: ProcessId) {
        if self.processes[p].gone || self.processes[p].control_tick_at != Some(self.schedule.now()) {
            return;
        }
        self.processes[p].control_tick_at = None;
        let now = self.processes[p].clock(self.schedule.now());
        if self.processes[p].agreement.poll_timeout().is_some_and(|due| due <= now) {
            self.processes[p].agreement.handle(now, Input::Tick);
        }
        self.after_control(p);
    }

    /// Carries out what the agreement machine wants, in order, and sets its timer.
    fn after_control(&mut self, p: ProcessId) {
        while let Some(output) = self.processes[p].agreement.poll_output() {
            match output {
                Output::Send { to, message } => self.send(p, to, message),
                Output::View(view) => {
                    let process = &self.processes[p];
                    let (me, now) = (process.me, process.clock(self.schedule.now()));
                    self.trace.line(self.schedule.now(), || {
                        let names = [&view.installed, &view.accepted].map(|t| format!("{}.{}", t.term, t.version));
                        let opens: Vec<String> =
                            view.opens_at.iter().map(|(at, e, t)| format!("{at}@{e} in {:?}", t.since(now))).collect();
                        format!("p{p} view installed {} accepted {} opens {opens:?} {}", names[0], names[1], describe(&view.installed))
                    });
                    self.trace.number(view.accepted.name().hash);
                    if let Err(what) = self.oracle.view(me, &view) {
                        self.broken(format!("p{p}: {what}"));
                    }
                    self.processes[p].view = Some(view);
                    self.processes[p].generation += 1;
                    self.wake(p);
                    self.close_strangers(p);
                    let soon = self.rng.random_range(10_000..3 * MS);
                    self.schedule.after(soon, Event::Dial(p));
                }
                Output::Lease(until) => self.processes[p].lease = until,
                Output::Plan(table) => {
                    let goals = planner::plan(&table);
                    let input = Input::Planned { base: table.name(), goals };
                    let me = self.processes[p].me;
                    let delay = self.rng.random_range(MS..60 * MS);
                    self.schedule.after(delay, Event::Control(p, ControlInput::Of(me, input)));
                }
                Output::AdminReply { .. } => {}
                Output::Event(event) => self.trace.line(self.schedule.now(), || format!("p{p} says {event:?}")),
                Output::Expelled => return self.expelled(p),
                Output::HandedOver => {
                    self.trace.line(self.schedule.now(), || format!("p{p} has handed over"));
                    self.processes[p].leaving = self.processes[p].leaving.max(Leaving::HandedOver);
                    self.schedule.after(MS, Event::Drain(p));
                }
                Output::Left => {
                    self.trace.line(self.schedule.now(), || format!("p{p} has left"));
                    let slot = self.processes[p].slot;
                    self.end_process(p);
                    let again = self.rng.random_range(50 * MS..4 * SECOND);
                    return self.schedule.after(again, Event::Start(slot));
                }
                Output::Fatal(why) => {
                    self.trace.line(self.schedule.now(), || format!("p{p} stops: {why}"));
                    *self.faults.entry("fatal").or_default() += 1;
                    let slot = self.processes[p].slot;
                    self.end_process(p);
                    return self.schedule.after(SECOND, Event::Start(slot));
                }
            }
        }
        let process = &self.processes[p];
        if let Some(due) = process.agreement.poll_timeout() {
            // At least some microseconds ahead: a timer that is always due must show as too many events, not as a hang.
            let at = process.when(due).max(self.schedule.now() + 5_000);
            if process.control_tick_at.is_none_or(|set| at < set || set < self.schedule.now()) {
                self.processes[p].control_tick_at = Some(at);
                self.schedule.at(at, Event::ControlTick(p));
            }
        }
    }

    /// What control.rs does on an expulsion: a fresh id, everything anew.
    fn expelled(&mut self, p: ProcessId) {
        let old = self.processes[p].me;
        let slot = self.processes[p].slot;
        let me = MemberId(self.rng.random());
        self.trace.line(self.schedule.now(), || format!("p{p} was expelled as {old} and is now {me}"));
        *self.faults.entry("expulsion").or_default() += 1;
        self.directory.remove(&old);
        self.oracle.died(old);
        self.directory.insert(me, p);
        self.slot_of.insert(me, slot);
        let config = self.config(slot, me);
        let now = self.processes[p].clock(self.schedule.now());
        let process = &mut self.processes[p];
        process.me = me;
        process.view = None;
        process.generation += 1;
        process.lease = Time::ZERO;
        process.agreement = Agreement::new(config, now);
        process.leaving = Leaving::No;
        for id in std::mem::take(&mut process.links).into_values() {
            self.break_connection(id, 5 * MS);
        }
        self.wake(p);
        self.after_control(p);
    }

    /// A leaver waits for its clients' last operations, then departs.
    fn drain(&mut self, p: ProcessId) {
        let process = &self.processes[p];
        if process.gone || process.leaving != Leaving::HandedOver {
            return;
        }
        if self.clients.iter().any(|c| c.at == Some(p) && c.current.is_some()) {
            return self.schedule.after(5 * MS, Event::Drain(p));
        }
        let me = process.me;
        self.processes[p].leaving = Leaving::Departing;
        self.schedule.after(0, Event::Control(p, ControlInput::Of(me, Input::Depart)));
    }

    /// A message of the data thread to the control thread.
    fn upcall(&mut self, p: ProcessId, input: impl FnOnce(MemberId) -> Input) {
        let me = self.processes[p].shard_me;
        let delay = self.rng.random_range(1_000..200_000);
        self.schedule.after(delay, Event::Control(p, ControlInput::Of(me, input(me))));
    }

    // ---- the control network

    fn delay(&mut self, from: usize, to: usize) -> Nanos {
        let jitter = self.rng.random_range(0..=self.mix.jitter);
        (self.mix.delay_min + jitter) * self.network.slowness(from, to)
    }

    fn send(&mut self, p: ProcessId, to: Peer, message: Message) {
        let from = self.processes[p].slot;
        let me = self.processes[p].me;
        self.trace.number(p as u64);
        self.trace.line(self.schedule.now(), || format!("p{p} -> {to:?}: {}", clip(&format!("{message:?}"))));
        let (slot, member) = match to {
            Peer::Member(id) => (self.slot_of.get(&id).copied(), Some(id)),
            Peer::Address(address) => (slot_of_address(address), None),
        };
        let Some(slot) = slot.filter(|s| *s < self.slots.len()) else { return };
        let there = self.slots[slot].process;
        let datagram = message.is_datagram();
        let out = self.delay(from, slot);
        let back = self.delay(slot, from);
        let reaches = self.network.reaches(Plane::Control, from, slot);
        let returns = self.network.reaches(Plane::Control, slot, from);
        let Some(there) = there else {
            if let Some(id) = member
                && datagram
                && reaches
                && returns
                && self.mix.refusals
            {
                self.schedule.after(out + back, Event::Control(p, ControlInput::Of(me, Input::Hint(Hint::Refused(id)))));
            }
            return;
        };
        let target = self.processes[there].me;
        if let Peer::Address(address) = to {
            if !reaches || !returns || self.processes[there].control_blocked(self.schedule.now()).is_some() {
                return;
            }
            let identified = Input::Identified { address, id: target };
            self.schedule.after(out + back, Event::Control(p, ControlInput::Of(me, identified)));
            if target == me {
                return;
            }
        } else if member != Some(target) {
            return;
        }
        if !reaches {
            return;
        }
        let loss = self.mix.loss + self.network.burst;
        let per_mille = if datagram { loss } else { loss / 10 };
        if self.rng.random_range(0..1_000) < per_mille {
            return;
        }
        let mut copies = 1;
        let mut late = 0;
        if datagram {
            copies += u32::from(self.rng.random_range(0..1_000) < self.mix.duplicates);
            if self.rng.random_range(0..1_000) < self.mix.late {
                late = self.rng.random_range(0..3 * SECOND);
            }
        } else if !returns {
            // Without acknowledgements a stream stalls; its first packets arrive all the same.
            late = self.rng.random_range(0..SECOND);
        }
        for copy in 0..copies {
            let again = if copy == 0 { 0 } else { self.rng.random_range(0..SECOND) };
            let input = Input::Message { from: me, message: message.clone() };
            self.schedule.after(out + late + again, Event::Control(there, ControlInput::Of(target, input)));
        }
    }

    // ---- data threads

    /// Something for the data thread's inbox.
    pub(crate) fn data(&mut self, p: ProcessId, input: DataInput) {
        if self.processes[p].gone {
            return;
        }
        self.processes[p].inbox.push_back(input);
        self.pass_soon(p);
    }

    fn pass_soon(&mut self, p: ProcessId) {
        if !self.processes[p].busy {
            self.processes[p].busy = true;
            let delay = self.rng.random_range(500..10_000);
            self.schedule.after(delay, Event::DataPass(p));
        }
    }

    /// The control thread showed something else: the data thread hears of it a little later, unless a pass comes first.
    fn wake(&mut self, p: ProcessId) {
        let delay = self.rng.random_range(0..self.mix.view_gap);
        self.schedule.after(delay, Event::Data(p, DataInput::Wake));
    }

    fn data_pass(&mut self, p: ProcessId) {
        if self.processes[p].gone {
            return;
        }
        let at = self.schedule.now();
        let now = self.processes[p].clock(at);
        if self.processes[p].generation != self.processes[p].shard_generation {
            self.processes[p].shard_generation = self.processes[p].generation;
            if self.processes[p].me != self.processes[p].shard_me {
                self.fresh_shard(p, now);
            }
            if let Some(view) = self.processes[p].view.clone() {
                self.processes[p].shard.install(now, view);
            }
        }
        let mut batch = self.rng.random_range(1..64);
        while batch > 0
            && let Some(input) = self.processes[p].inbox.pop_front()
        {
            batch -= 1;
            self.data_input(p, now, input);
        }
        let gap = if self.rng.random_bool(0.1) { self.rng.random_range(1_000..=self.mix.pass_gap) } else { 2_000 };
        self.schedule.after(gap, Event::DataRelease(p));
    }

    /// What data.rs does when the process has another identity.
    fn fresh_shard(&mut self, p: ProcessId, now: Time) {
        let (limits, seed) = (self.limits(), self.rng.random());
        let process = &mut self.processes[p];
        process.shard_me = process.me;
        process.shard = Shard::new(process.me, limits, seed, now);
        process.buffers.clear();
        process.shard_links.clear();
        process.data_tick_at = None;
        for (client, serial) in std::mem::take(&mut process.tokens).into_values() {
            self.client_answer(client, serial, &Outcome::Failed(Failure::Unknown));
        }
    }

    fn data_input(&mut self, p: ProcessId, now: Time, input: DataInput) {
        let unix_ms = self.processes[p].unix_ms(self.schedule.now());
        let process = &mut self.processes[p];
        match input {
            DataInput::Wake => {}
            DataInput::Tick => process.shard.tick(now),
            DataInput::Connected(peer, id) => {
                if process.links.get(&peer) == Some(&id) {
                    process.buffers.retain(|(of, _), _| *of != peer);
                    process.shard_links.insert(peer, id);
                    process.shard.connected(now, peer);
                }
            }
            DataInput::Disconnected(peer, id) => {
                if process.shard_links.get(&peer) == Some(&id) {
                    process.buffers.retain(|(of, _), _| *of != peer);
                    process.shard_links.remove(&peer);
                    process.shard.disconnected(now, peer);
                }
            }
            DataInput::Bytes(peer, id, lane, bytes) => {
                if process.shard_links.get(&peer) != Some(&id) {
                    return;
                }
                let buffer = process.buffers.entry((peer, lane)).or_default();
                buffer.extend_from_slice(&bytes);
                if let Err(malformed) = process.shard.receive(now, unix_ms, peer, lane, buffer) {
                    self.broken(format!("p{p}: bytes of {peer}: {malformed}"));
                }
            }
            DataInput::Submit(client, serial, operation) => {
                let token = process.next_token;
                process.next_token += 1;
                process.tokens.insert(token, (client, serial));
                process.shard.submit(now, unix_ms, token, operation);
            }
            DataInput::Forget(client, serial) => {
                let token = process.tokens.iter().find(|(_, of)| **of == (client, serial)).map(|(token, _)| *token);
                if let Some(token) = token {
                    process.tokens.remove(&token);
                    process.shard.forget(token);
                }
            }
            DataInput::Used(of) => {
                if of == process.shard_me {
                    process.shard.used(now);
                }
            }
        }
    }

    fn data_release(&mut self, p: ProcessId) {
        if self.processes[p].gone {
            return;
        }
        let now = self.processes[p].clock(self.schedule.now());
        let process = &mut self.processes[p];
        let current = process.generation == process.shard_generation;
        process.shard.release(now, process.lease, current);
        while let Some((token, outcome)) = self.processes[p].shard.poll_outcome() {
            if let Some((client, serial)) = self.processes[p].tokens.remove(&token) {
                self.client_answer(client, serial, &outcome);
            }
        }
        while let Some((peer, lane, bytes)) = self.processes[p].shard.poll_transmit() {
            self.trace.bytes(&bytes);
            self.transmit(p, peer, lane, &bytes);
        }
        while let Some(request) = self.processes[p].shard.poll_request() {
            self.request(p, request);
        }
        if current && let Err(what) = self.oracle.shard(&self.processes[p], p) {
            self.broken(format!("p{p}: {what}"));
        }
        let process = &mut self.processes[p];
        process.busy = false;
        if !process.inbox.is_empty() || process.generation != process.shard_generation {
            self.pass_soon(p);
        }
        let process = &self.processes[p];
        if let Some(due) = process.shard.poll_timeout() {
            let at = process.when(due).max(self.schedule.now() + 5_000);
            if process.data_tick_at.is_none_or(|set| at < set) {
                self.processes[p].data_tick_at = Some(at);
                self.schedule.at(at, Event::DataTick(p));
            }
        }
    }

    fn request(&mut self, p: ProcessId, request: Request) {
        self.trace.line(self.schedule.now(), || format!("p{p} asks {}", clip(&format!("{request:?}"))));
        match request {
            Request::Opened(opened) => self.upcall(p, |_| Input::Opened(opened)),
            Request::InSync(changes) => self.upcall(p, |_| Input::InSync(changes)),
            Request::Newer(name) => self.upcall(p, |_| Input::Pull(name)),
            Request::Used => {
                let me = self.processes[p].shard_me;
                let delay = self.rng.random_range(1_000..MS);
                self.schedule.after(delay, Event::Control(p, ControlInput::Used(me)));
            }
        }
    }

    // ---- the data network

    fn dial(&mut self, p: ProcessId) {
        if self.processes[p].gone {
            return;
        }
        let wait = self.rng.random_range(80 * MS..250 * MS);
        // One chain of dials a process is enough; a view adds a single one, which must not multiply.
        if self.network.dial_due(p, self.schedule.now(), wait) {
            self.schedule.after(wait, Event::Dial(p));
        }
        let (me, slot) = (self.processes[p].me, self.processes[p].slot);
        for peer in self.processes[p].peers() {
            if peer < me || self.processes[p].links.contains_key(&peer) {
                continue;
            }
            let Some(&there) = self.directory.get(&peer) else { continue };
            let target = &self.processes[there];
            let blocked = target.data_blocked(self.schedule.now()).is_some() || self.processes[p].data_blocked(self.schedule.now()).is_some();
            let apart = !self.network.reaches(Plane::Data, slot, target.slot) || !self.network.reaches(Plane::Data, target.slot, slot);
            if blocked || apart || !target.peers().contains(&me) || !self.network.dialling.insert((p, there)) {
                continue;
            }
            let there_slot = target.slot;
            let out = self.delay(slot, there_slot);
            let back = self.delay(there_slot, slot);
            let id = self.network.next_connection;
            self.network.next_connection += 1;
            self.network.connections.insert(id, Connection::new([(p, me), (there, peer)]));
            self.schedule.after(out, Event::ConnectionUp(id, 1));
            self.schedule.after(out + back, Event::ConnectionUp(id, 0));
        }
    }

    fn connection_up(&mut self, id: ConnectionId, end: usize) {
        let Some(connection) = self.network.connections.get(&id) else { return };
        let (p, me) = connection.ends[end];
        let peer = connection.ends[1 - end].1;
        if end == 0 {
            self.network.dialling.remove(&(p, connection.ends[1].0));
        }
        let process = &self.processes[p];
        if connection.broken || process.gone || process.me != me || !process.peers().contains(&peer) {
            return self.break_connection(id, 10 * MS);
        }
        if let Some(old) = self.processes[p].links.insert(peer, id) {
            self.break_connection(old, SECOND);
            self.data(p, DataInput::Disconnected(peer, old));
        }
        self.data(p, DataInput::Connected(peer, id));
    }

    /// Ends a connection; each end learns of it by itself, within `late`.
    pub(crate) fn break_connection(&mut self, id: ConnectionId, late: Nanos) {
        let Some(connection) = self.network.connections.get_mut(&id) else { return };
        if connection.broken {
            return;
        }
        connection.broken = true;
        connection.lanes = Default::default();
        for end in 0..2 {
            let delay = self.rng.random_range(0..=late);
            self.schedule.after(delay, Event::ConnectionDown(id, end));
        }
    }

    fn connection_down(&mut self, id: ConnectionId, end: usize) {
        let Some(connection) = self.network.connections.get(&id) else { return };
        let (p, _) = connection.ends[end];
        let peer = connection.ends[1 - end].1;
        self.network.dialling.remove(&(connection.ends[0].0, connection.ends[1].0));
        if self.processes[p].links.get(&peer) == Some(&id) {
            self.processes[p].links.remove(&peer);
            self.data(p, DataInput::Disconnected(peer, id));
        }
    }

    /// Connections to those that are no peers any more are closed.
    fn close_strangers(&mut self, p: ProcessId) {
        let peers = self.processes[p].peers();
        let strangers: Vec<(MemberId, ConnectionId)> =
            self.processes[p].links.iter().filter(|(peer, _)| !peers.contains(peer)).map(|(peer, id)| (*peer, *id)).collect();
        for (_, id) in strangers {
            self.break_connection(id, 5 * MS);
        }
    }

    fn transmit(&mut self, p: ProcessId, peer: MemberId, lane: Lane, bytes: &BytesMut) {
        let Some(&id) = self.processes[p].shard_links.get(&peer) else { return };
        let Some(connection) = self.network.connections.get(&id) else { return };
        if connection.broken {
            return;
        }
        let to = usize::from(connection.ends[0].0 == p && connection.ends[0].1 == self.processes[p].shard_me);
        let slots = connection.ends.map(|(process, _)| self.processes[process].slot);
        let delay = self.delay(slots[1 - to], slots[to]);
        // Now and then in two pieces, so that frames arrive torn.
        let mut pieces = vec![bytes.to_vec()];
        if bytes.len() > 1 && self.rng.random_bool(0.05) {
            let cut = self.rng.random_range(1..bytes.len());
            let tail = pieces[0].split_off(cut);
            pieces.push(tail);
        }
        for piece in pieces {
            let Some(connection) = self.network.connections.get_mut(&id) else { return };
            let at = (self.schedule.now() + delay).max(connection.last[to][lane_index(lane)]);
            connection.last[to][lane_index(lane)] = at;
            connection.lanes[to][lane_index(lane)].push_back(piece);
            self.schedule.at(at, Event::Arrive(id, to, lane));
        }
    }

    fn arrive(&mut self, id: ConnectionId, end: usize, lane: Lane) {
        let now = self.schedule.now();
        let Some(connection) = self.network.connections.get_mut(&id) else { return };
        if connection.broken {
            return;
        }
        let (p, _) = connection.ends[end];
        let peer = connection.ends[1 - end].1;
        let from = self.processes[connection.ends[1 - end].0].slot;
        let reaches = self.network.reaches(Plane::Data, from, self.processes[p].slot);
        let Some(connection) = self.network.connections.get_mut(&id) else { return };
        if !reaches || self.processes[p].links.get(&peer) != Some(&id) {
            let since = *connection.stalled[end].get_or_insert(now);
            if now - since > IDLE_MAX {
                return self.break_connection(id, SECOND);
            }
            return self.schedule.after(STALL, Event::Arrive(id, end, lane));
        }
        connection.stalled[end] = None;
        if let Some(bytes) = connection.lanes[end][lane_index(lane)].pop_front() {
            self.data(p, DataInput::Bytes(peer, id, lane, bytes));
        }
    }

    // ---- the end

    fn begin_calm(&mut self) {
        self.calm = true;
        self.network.heal_all();
        let now = self.schedule.now();
        let longest = self.processes.iter().filter(|p| !p.gone).map(|p| p.paused_until.max(p.data_stalled_until)).max();
        self.calm_at = longest.unwrap_or(now).max(now);
        self.trace.line(now, || "calm".into());
        for slot in 0..self.slots.len() {
            if self.slots[slot].started || self.rng.random_bool(0.5) {
                self.start(slot);
            }
        }
        self.mix.loss = 0;
        self.mix.late = 0;
        self.schedule.at(self.calm_at, Event::Healed);
    }

    fn look_whether_healed(&mut self) {
        let now = self.schedule.now();
        match self.well() {
            Ok(()) if self.last_reads_begun => {
                self.done = true;
                if self.clients.iter().any(|c| c.current.is_some() || !c.last_reads.is_empty()) {
                    self.broken("I16: the last reads take too long".into());
                }
            }
            Err(why) if self.last_reads_begun => self.broken(format!("I16: healed, and then not: {why}")),
            Ok(()) => {
                self.healed_at = Some(now);
                self.trace.line(now, || "healed".into());
                self.stop_clients = true;
                self.clients_idle();
            }
            Err(why) if now > self.calm_at + HEAL_MAX => self.broken(format!("I16: not healed within the bound: {why}")),
            Err(_) => self.schedule.after(200 * MS, Event::Healed),
        }
    }

    /// Whether one table is in force everywhere, names exactly the running processes, and has all copies.
    fn well(&self) -> Result<(), String> {
        let running: Vec<&Process> = self.slots.iter().filter_map(|s| s.process).map(|p| &self.processes[p]).collect();
        let Some(first) = running.first().and_then(|p| p.view.as_ref()) else { return Err("somebody has no table".into()) };
        let table = &first.installed;
        for process in &running {
            let at = process.clock(self.schedule.now());
            let view = process.view.as_ref().ok_or_else(|| {
                format!("slot {} has no table: {:?}", process.slot, process.agreement.status(at).waiting)
            })?;
            if view.installed.name() != table.name() || view.accepted.name() != table.name() {
                return Err(format!(
                    "slot {} has {:?}/{:?}, another {:?}",
                    process.slot,
                    view.installed.name(),
                    view.accepted.name(),
                    table.name()
                ));
            }
            if table.member(process.me).is_none() {
                return Err(format!("slot {} is no member", process.slot));
            }
            if process.shard_generation != process.generation {
                return Err(format!("slot {} has not installed", process.slot));
            }
            if process.leaving != Leaving::No {
                return Err(format!("slot {} is leaving", process.slot));
            }
            let closed = process.shard.stats().closed;
            if closed > 0 {
                return Err(format!("slot {} has {closed} closed partitions", process.slot));
            }
        }
        if table.members.len() != running.len() {
            return Err(format!("{} members, {} processes: {}", table.members.len(), running.len(), describe(table)));
        }
        let leading = running.iter().filter(|p| p.agreement.status(p.clock(self.schedule.now())).leading).count();
        if leading != 1 {
            return Err(format!("{leading} coordinators"));
        }
        let data = table.members.iter().filter(|m| m.role == Role::Data).count();
        for keyspace in &table.keyspaces {
            let wanted = (1 + usize::from(keyspace.backups)).min(data);
            if keyspace.partitions.is_empty() {
                return Err("nothing is assigned".into());
            }
            for partition in &keyspace.partitions {
                if partition.goal.is_some() || partition.in_sync().count() != wanted || partition.learners().count() > 0 {
                    return Err(format!("copies are missing or moving (wanted {wanted}): {}", describe(table)));
                }
            }
        }
        Ok(())
    }

    /// Once all is well and no client waits, every key is read through every process.
    pub(crate) fn clients_idle(&mut self) {
        if self.healed_at.is_none() || self.last_reads_begun || self.clients.iter().any(|c| c.current.is_some()) {
            return;
        }
        self.last_reads_begun = true;
        let running: Vec<ProcessId> = self.slots.iter().filter_map(|s| s.process).collect();
        let mut turn = 0;
        for key in self.keys() {
            for p in &running {
                self.clients[turn % self.mix.clients].last_reads.push((*p, key.clone()));
                turn += 1;
            }
        }
        for id in 0..self.clients.len() {
            self.schedule.after(0, Event::ClientNext(id));
        }
        // Time for the last acks, so that copies can be compared at rest.
        self.schedule.after(4 * SECOND, Event::Healed);
    }

    fn judge(&mut self) -> Result<Report, String> {
        let mut report = Report {
            seed: self.seed,
            virtual_ns: self.schedule.now(),
            events: self.events,
            operations: self.histories.operations,
            answered: self.histories.answered,
            unknown: self.histories.unknown,
            refused: self.histories.refused,
            healed_ns: self.healed_at.unwrap_or(0).saturating_sub(self.calm_at),
            faults: self.faults.clone(),
            trace: self.trace.digest(),
            ..Report::default()
        };
        self.oracle.report(&mut report);
        let running: Vec<&Process> = self.slots.iter().filter_map(|s| s.process).map(|p| &self.processes[p]).collect();
        report.compared += self.oracle.compare_at_rest(&running)?;
        for key in self.keys() {
            let history = self.histories.of(&key);
            match linear::check(&history) {
                Verdict::Linearizable => report.judged += 1,
                Verdict::Undecided => report.undecided += 1,
                Verdict::Violated(at) => return Err(format!("I10: {key} is not linearizable:\n{}", around(&history, at))),
            }
        }
        let multiple = running.len() > 1;
        let empty = report.tables == 0 || report.answered == 0 || report.judged == 0 || (multiple && report.compared == 0);
        if empty {
            return Err(format!("empty: {} tables, {} answers, {} keys judged, {} copies compared", report.tables, report.answered, report.judged, report.compared));
        }
        Ok(report)
    }
}

/// The part of a history around an entry, for people.
fn around(history: &[linear::Entry], at: usize) -> String {
    let from = at.saturating_sub(25);
    let mut text = String::new();
    for (i, e) in history.iter().enumerate().skip(from).take(50) {
        let mark = if i == at { ">>" } else { "  " };
        let answer = match &e.answered {
            None => "unknown".into(),
            Some((t, linear::Answer::Bulk(v))) => format!("@{t} Bulk({})", client::short(v)),
            Some((t, a)) => format!("@{t} {a:?}"),
        };
        text.push_str(&format!("{mark} @{} client {} {} -> {answer}\n", e.called, e.client, client::brief(&e.call)));
    }
    text
}

/// A table in few letters.
pub(crate) fn describe(table: &Table) -> String {
    let short = |id: MemberId| format!("{:04x}", id.0 >> 48);
    let members: Vec<String> = table
        .members
        .iter()
        .map(|m| format!("{}={}#{}{}{}", m.name, short(m.id), m.age, if table.voters.contains(&m.id) { "v" } else { "" }, match m.state {
            doyen_placement::MemberState::Live => String::new(),
            other => format!("({other:?})"),
        }))
        .collect();
    let mut partitions = Vec::new();
    for p in table.keyspaces.iter().flat_map(|k| &k.partitions) {
        let replicas: Vec<String> = p
            .replicas
            .iter()
            .map(|r| format!("{}{}", short(r.member), if r.state == doyen_placement::ReplicaState::Learner { "?" } else { "" }))
            .collect();
        let goal = p.goal.as_ref().map_or(String::new(), |g| format!("=>{:?}", g.iter().map(|m| short(*m)).collect::<Vec<_>>()));
        partitions.push(format!("{}/{}:{}{goal}", p.epoch, p.lineage, replicas.join("+")));
    }
    format!("[{}] [{}]", members.join(" "), partitions.join(" "))
}

fn clip(text: &str) -> String {
    text.chars().take(300).collect()
}

/// Every kind of fault, for reports.
#[must_use]
pub fn fault_kinds() -> Vec<&'static str> {
    KINDS.iter().map(|k| k.name).collect()
}
