//! A few agreement machines. Every message is visible, and a check decides what becomes of it.
//!
//! This replaces shells and data threads, with one clock without drift. The invariants of the
//! simulation's oracle are checked at every view. After every event, one more is checked: no two
//! members may serve a partition at the same time.

use crate::sim::oracle::Oracle;
use doyen_gossip::agreement::{AdminReply, Event, InSyncRequest, Peer, Timing, View};
use doyen_gossip::wire::Message;
use doyen_gossip::{Agreement, AgreementConfig, Input, Output, SigningSeed, Time};
use doyen_placement::level::LEVELS;
use doyen_placement::{
    Assignment, Epoch, Keyspace, KeyspaceId, MemberId, OnLoss, OrderKey, Partition, PartitionId,
    PartitionRef, Schedulers, Settings, Table, VoteKey, planner,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The delay of a message.
const TRAVEL: u64 = 1;
/// The time between two passes of a data thread.
const KEEPING: u64 = 10;
/// Partitions of the one keyspace.
const PARTITIONS: u16 = 16;

/// A member, by its number in a check, from 1.
pub(super) type Place = u64;

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Arrives,
    /// It arrives after this many milliseconds.
    Late(u64),
    Lost,
    /// It waits until the check lets it go.
    Waits,
}

/// A message on its way.
#[derive(Debug, Clone)]
pub(super) struct Letter {
    pub(super) from: Place,
    pub(super) to: Place,
    pub(super) message: Message,
    dialled: bool,
}

impl Letter {
    /// Whether it goes from the one member to the other.
    pub(super) fn goes(&self, from: Place, to: Place) -> bool {
        (self.from, self.to) == (from, to)
    }

    /// Whether it goes between these two, in either direction.
    pub(super) fn between(&self, one: Place, other: Place) -> bool {
        self.goes(one, other) || self.goes(other, one)
    }

    /// Whether this member sends or receives it.
    pub(super) fn touches(&self, place: Place) -> bool {
        self.from == place || self.to == place
    }

    pub(super) fn is_datagram(&self) -> bool {
        self.message.is_datagram()
    }
}

type Post = Box<dyn FnMut(&Letter) -> Fate>;

/// What a check may choose of its cluster.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) founders: u64,
    pub(super) voters_max: u8,
    pub(super) backups: u8,
    pub(super) on_loss: OnLoss,
    /// Whether another process begins a cluster beside it.
    pub(super) stranger: bool,
    /// Whether an operator splits it in two. The invariants hold for each half alone, so the check
    /// judges by itself.
    pub(super) split: bool,
    /// The rate of a member's clock: 1000 is right.
    pub(super) rate: fn(Place) -> u64,
    /// The highest level that a process speaks.
    pub(super) level_max: fn(Place) -> u16,
}

impl Setup {
    pub(super) fn of(founders: u64) -> Self {
        Self {
            founders,
            voters_max: 7,
            backups: 1,
            on_loss: OnLoss::Wait,
            stranger: false,
            split: false,
            rate: |_| 1000,
            level_max: |_| LEVELS.1,
        }
    }
}

/// A process.
pub(super) struct Process {
    agreement: Agreement,
    pub(super) view: Option<View>,
    lease: Time,
    asleep: bool,
    /// Messages that came while it slept.
    missed: Vec<Letter>,
    hangs: bool,
    keep_at: u64,
    /// When its own tenures may acknowledge, by the epochs in which they began.
    waits: BTreeMap<PartitionRef, (Epoch, Time)>,
    opened: BTreeMap<PartitionRef, Epoch>,
    pub(super) events: Vec<Event>,
    pub(super) replies: Vec<(u64, AdminReply)>,
    pub(super) handed_over: bool,
    pub(super) used_ok: bool,
}

/// The members of one cluster.
pub(super) struct Members {
    setup: Setup,
    now: u64,
    processes: BTreeMap<Place, Process>,
    letters: BTreeMap<(u64, u64), Letter>,
    waiting: Vec<Letter>,
    order: u64,
    plans: bool,
    post: Post,
    oracle: Oracle,
    /// The level and the key in the hello of each process.
    hellos: BTreeMap<Place, (u16, Option<VoteKey>)>,
    broken: Option<String>,
}

pub(super) fn id(place: Place) -> MemberId {
    MemberId(place << 4)
}

fn place_of(id: MemberId) -> Place {
    id.0 >> 4
}

pub(super) fn address(place: Place) -> SocketAddr {
    SocketAddr::from((
        [10, 0, 0, 1],
        7000 + u16::try_from(place).unwrap_or(u16::MAX),
    ))
}

pub(super) fn at(partition: u32) -> PartitionRef {
    PartitionRef {
        keyspace: KeyspaceId(0),
        partition: PartitionId(partition),
    }
}

/// The first partition of a table for which this holds.
pub(super) fn find(
    table: &Table,
    what: impl Fn(&Partition) -> bool,
) -> Result<PartitionRef, String> {
    let found = table.keyspaces[0].partitions.iter().find(|p| what(p));
    found
        .map(|p| at(p.id.0))
        .ok_or_else(|| "the check needs a partition that the table does not have".into())
}

impl Members {
    /// No member yet.
    pub(super) fn none(setup: Setup) -> Self {
        let oracle = Oracle::new(setup.stranger);
        Self {
            setup,
            now: 1_000_000,
            processes: BTreeMap::new(),
            letters: BTreeMap::new(),
            waiting: Vec::new(),
            order: 0,
            plans: true,
            post: Box::new(|_| Fate::Arrives),
            oracle,
            hellos: BTreeMap::new(),
            broken: None,
        }
    }

    /// A cluster of these founders, in which every partition is served. The first is its
    /// coordinator.
    pub(super) fn of(setup: Setup) -> Result<Self, String> {
        let mut members = Self::none(setup);
        let founders: Vec<Place> = (1..=members.setup.founders).collect();
        for place in &founders {
            members.start(*place, &founders, None);
        }
        members.until(3000, "a cluster", |m| m.is_well())?;
        // By now, all members have answered each other and no message is on its way, so the check's
        // choice is the same for all messages.
        members.run(500);
        members.until(100, "rest", |m| m.letters.is_empty())?;
        Ok(members)
    }

    pub(super) fn start(&mut self, place: Place, seeds: &[Place], expect: Option<u16>) {
        self.start_as(&format!("n{place}"), place, seeds, expect);
    }

    /// Starts a process whose name differs from its number.
    pub(super) fn start_as(
        &mut self,
        name: &str,
        place: Place,
        seeds: &[Place],
        expect: Option<u16>,
    ) {
        let (level, seed) = ((self.setup.level_max)(place), SigningSeed::of_test(place));
        self.oracle.speaks(id(place), level);
        let key = Some(seed.vote_key());
        self.hellos.insert(place, (level, key));
        let config = AgreementConfig {
            seeds: seeds.iter().map(|s| address(*s)).collect(),
            expect,
            settings: Settings {
                voters_max: self.setup.voters_max,
                members_min: 1,
                assignment: Assignment::RoundRobin,
                schedulers: Schedulers::ALL,
                balancing: doyen_placement::Balancing::default(),
            },
            default_keyspace: Keyspace {
                on_loss: self.setup.on_loss,
                ..Keyspace::fixed(PARTITIONS, self.setup.backups)
            },
            timing: Timing {
                listen: Duration::from_millis(300),
                ..Timing::default()
            },
            order_key: OrderKey(place.into()),
            level_max: level,
            signing_seed: seed,
            rng_seed: place,
            ..AgreementConfig::of_test(id(place), name, address(place))
        };
        let process = Process {
            agreement: Agreement::new(config, self.time(place)),
            view: None,
            lease: Time::ZERO,
            asleep: false,
            missed: Vec::new(),
            hangs: false,
            keep_at: self.now,
            waits: BTreeMap::new(),
            opened: BTreeMap::new(),
            events: Vec::new(),
            replies: Vec::new(),
            handed_over: false,
            used_ok: false,
        };
        self.processes.insert(place, process);
        self.handle(place, Input::Tick);
    }

    // ---- what a check does

    /// From now on, this function decides what becomes of messages.
    pub(super) fn post(&mut self, post: impl FnMut(&Letter) -> Fate + 'static) {
        self.post = Box::new(post);
    }

    /// From now on, the coordinator plans no moves.
    pub(super) fn plans_nothing(&mut self) {
        self.plans = false;
    }

    /// Sends the waiting messages that fit.
    pub(super) fn let_go(&mut self, fits: impl Fn(&Letter) -> bool) -> usize {
        let (go, stay): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|l| fits(l));
        self.waiting = stay;
        let count = go.len();
        go.into_iter().for_each(|letter| self.send(TRAVEL, letter));
        count
    }

    pub(super) fn waits(&self, fits: impl Fn(&Letter) -> bool) -> bool {
        self.waiting.iter().any(fits)
    }

    pub(super) fn kill(&mut self, place: Place) {
        self.processes.remove(&place);
    }

    /// The member does nothing until `wakes`. What arrives waits for it.
    pub(super) fn sleeps(&mut self, place: Place) {
        if let Some(process) = self.processes.get_mut(&place) {
            process.asleep = true;
        }
    }

    /// Its timers run first, then it gets what arrived meanwhile.
    pub(super) fn wakes(&mut self, place: Place) {
        let Some(process) = self.processes.get_mut(&place) else {
            return;
        };
        process.asleep = false;
        let missed = std::mem::take(&mut process.missed);
        self.handle(place, Input::Tick);
        missed.into_iter().for_each(|letter| self.arrives(letter));
    }

    /// Whether its data thread hangs, from now on.
    pub(super) fn hangs(&mut self, place: Place, hangs: bool) {
        if let Some(process) = self.processes.get_mut(&place) {
            process.hangs = hangs;
        }
    }

    pub(super) fn input(&mut self, place: Place, input: Input) {
        if let Input::InSync(requests) = &input {
            self.oracle.asked(requests);
        }
        if let (Input::Recover { .. }, Some(view)) = (&input, self.view(place)) {
            let cluster = view.installed.cluster;
            // The oracle still knows which tables it had agreed on.
            self.oracle
                .recovers(cluster, doyen_placement::Version(u64::MAX));
        }
        self.handle(place, input);
    }

    /// Delivers a request of one member to another as it is, whenever it was made.
    pub(super) fn asks(&mut self, from: Place, to: Place, request: InSyncRequest) {
        if let Some(cluster) = self.view(from).map(|v| v.installed.cluster) {
            let message = Message::InSync {
                cluster,
                origin: id(from),
                requests: vec![request],
            };
            self.says(from, to, message);
        }
    }

    /// Delivers a message of a member to another, whatever the member itself sends.
    pub(super) fn says(&mut self, from: Place, to: Place, message: Message) {
        let letter = Letter {
            from,
            to,
            message,
            dialled: false,
        };
        self.send(TRAVEL, letter);
    }

    pub(super) fn run(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.step(end) {}
        self.now = end;
    }

    /// Runs until this holds. Returns how many milliseconds that took.
    pub(super) fn until(
        &mut self,
        ms_max: u64,
        what: &str,
        holds: impl Fn(&Self) -> bool,
    ) -> Result<u64, String> {
        let (began, end) = (self.now, self.now + ms_max);
        while !holds(self) {
            if !self.step(end) {
                self.verdict()?;
                return Err(format!(
                    "{what}: did not come within {ms_max} ms: {}",
                    self.summary()
                ));
            }
        }
        Ok(self.now - began)
    }

    /// The first invariant that broke.
    pub(super) fn verdict(&self) -> Result<(), String> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    // ---- what a check sees

    /// The time at that member.
    fn time(&self, place: Place) -> Time {
        Time(self.now * 1_000 * (self.setup.rate)(place))
    }

    /// When the member's clock shows that time, in milliseconds.
    fn at(&self, place: Place, time: Time) -> u64 {
        time.0.div_ceil(1_000 * (self.setup.rate)(place))
    }

    pub(super) fn lives(&self, place: Place) -> bool {
        self.processes.contains_key(&place)
    }

    pub(super) fn process(&self, place: Place) -> Option<&Process> {
        self.processes.get(&place)
    }

    pub(super) fn view(&self, place: Place) -> Option<&View> {
        self.processes.get(&place)?.view.as_ref()
    }

    /// The table in force at a member.
    pub(super) fn table(&self, place: Place) -> Result<Arc<Table>, String> {
        self.view(place)
            .map(|v| v.installed.clone())
            .ok_or_else(|| format!("n{place} is not a member"))
    }

    pub(super) fn coordinators(&self) -> Vec<Place> {
        let leads = |(place, p): &(&Place, &Process)| {
            !p.asleep && p.agreement.status(self.time(**place)).leading
        };
        self.processes
            .iter()
            .filter(leads)
            .map(|(place, _)| *place)
            .collect()
    }

    /// The coordinator that this member follows.
    pub(super) fn coordinator_of(&self, place: Place) -> Option<MemberId> {
        let process = self.processes.get(&place)?;
        process.agreement.status(self.time(place)).coordinator
    }

    pub(super) fn leads(&self, place: Place) -> bool {
        self.processes
            .get(&place)
            .is_some_and(|p| p.agreement.leading())
    }

    /// The members that may acknowledge writes of a partition now (rules 5, 8 and 9).
    pub(super) fn serve(&self, at: PartitionRef) -> Vec<Place> {
        let serves = |(place, process): (&Place, &Process)| {
            (!process.asleep && self.serves(*place, process, at)).then_some(*place)
        };
        self.processes.iter().filter_map(serves).collect()
    }

    fn serves(&self, place: Place, process: &Process, at: PartitionRef) -> bool {
        let Some(view) = &process.view else {
            return false;
        };
        let leads = |t: &Table| {
            t.partition(at)
                .filter(|p| p.primary() == id(place))
                .map(|p| p.since)
        };
        let (Some(since), Some(accepted)) = (leads(&view.installed), leads(&view.accepted)) else {
            return false;
        };
        let now = self.time(place);
        let open = process
            .waits
            .get(&at)
            .is_some_and(|(s, opens)| *s == since && *opens <= now);
        since == accepted && open && process.lease > now
    }

    /// Whether the living members form one cluster without any other member, with a coordinator,
    /// and serve everything.
    pub(super) fn is_well(&self) -> bool {
        let Some(first) = self.processes.keys().next().and_then(|p| self.view(*p)) else {
            return false;
        };
        let name = first.installed.name();
        self.coordinators().len() == 1
            && first.installed.members.len() == self.processes.len()
            && self.processes.values().all(|p| {
                p.view
                    .as_ref()
                    .is_some_and(|v| v.installed.name() == name && v.accepted.name() == name)
            })
            && first
                .installed
                .keyspaces
                .iter()
                .all(|k| !k.partitions.is_empty())
            && first
                .installed
                .partitions()
                .all(|(at, _)| self.serve(at).len() == 1)
    }

    pub(super) fn summary(&self) -> String {
        let process = |(place, p): (&Place, &Process)| {
            let status = p.agreement.status(self.time(*place));
            let table = |t: &Table| {
                let votes = |m: MemberId| if t.voters.contains(&m) { "v" } else { "" };
                let members: Vec<String> = t
                    .members
                    .iter()
                    .map(|m| format!("{}{}", m.name, votes(m.id)))
                    .collect();
                format!("{}.{} {}", t.term, t.version, members.join(" "))
            };
            let view = p.view.as_ref().map_or_else(
                || "no table".into(),
                |v| {
                    if v.installed.name() == v.accepted.name() {
                        table(&v.installed)
                    } else {
                        format!("{}, accepted {}", table(&v.installed), table(&v.accepted))
                    }
                },
            );
            format!(
                "n{place} [{view}]{}",
                if status.leading { " leads" } else { "" }
            )
        };
        self.processes
            .iter()
            .map(process)
            .collect::<Vec<_>>()
            .join("; ")
    }

    // ---- the world

    fn step(&mut self, end: u64) -> bool {
        let letter = self.letters.keys().next().map(|(due, _)| *due);
        let awake = self.processes.iter().filter(|(_, p)| !p.asleep);
        // A machine that is due now is asked in a millisecond, so that time goes on in any case.
        let tick = |place: Place, p: &Process| {
            p.agreement
                .poll_timeout()
                .map_or(u64::MAX, |t| self.at(place, t))
                .max(self.now + 1)
        };
        let ticks = awake.map(|(place, p)| tick(*place, p).min(p.keep_at)).min();
        let Some(next) = [letter, ticks]
            .into_iter()
            .flatten()
            .min()
            .filter(|next| *next <= end)
        else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some(entry) = self.letters.first_entry().filter(|e| e.key().0 <= self.now) {
            let letter = entry.remove();
            self.arrives(letter);
        }
        for place in self.processes.keys().copied().collect::<Vec<_>>() {
            let time = self.time(place);
            let Some(process) = self.processes.get_mut(&place).filter(|p| !p.asleep) else {
                continue;
            };
            let due = process.agreement.poll_timeout().is_some_and(|t| t <= time);
            let keeps = process.keep_at <= self.now;
            if keeps {
                process.keep_at = self.now + KEEPING;
                self.keep(place);
            }
            if due {
                self.handle(place, Input::Tick);
            }
        }
        self.look();
        true
    }

    fn arrives(&mut self, letter: Letter) {
        let Letter {
            from,
            to,
            ref message,
            dialled,
        } = letter;
        let Some(process) = self.processes.get_mut(&to) else {
            return;
        };
        if process.asleep {
            return process.missed.push(letter);
        }
        if dialled {
            // The connection says which member answered.
            self.handle(
                from,
                Input::Identified {
                    address: address(to),
                    id: id(to),
                },
            );
            if from == to {
                return;
            }
        }
        let message = message.clone();
        // What the hello of the connection said.
        let (level, key) = self.hellos.get(&from).copied().unwrap_or((LEVELS.1, None));
        let from = id(from);
        let hello = Input::Speaks {
            id: from,
            process: from,
            level,
            key,
            start: None,
        };
        self.handle(to, hello);
        self.handle(to, Input::Message { from, message });
    }

    /// The work of data threads: they show that they live, and open what they may open.
    fn keep(&mut self, place: Place) {
        let Some(process) = self.processes.get(&place).filter(|p| !p.hangs) else {
            return;
        };
        let partitions: Vec<_> = process
            .view
            .iter()
            .flat_map(|v| v.installed.partitions())
            .map(|(at, p)| (at, p.since))
            .collect();
        let opens = |(at, since): &(PartitionRef, Epoch)| {
            process.opened.get(at) != Some(since) && self.serves(place, process, *at)
        };
        let opened: Vec<(PartitionRef, Epoch)> = partitions.into_iter().filter(opens).collect();
        if let Some(process) = self.processes.get_mut(&place) {
            process.opened.extend(opened.iter().copied());
        }
        self.handle(place, Input::DataThreadAlive);
        if !opened.is_empty() {
            self.handle(place, Input::Opened(opened));
        }
    }

    fn handle(&mut self, place: Place, input: Input) {
        let now = self.time(place);
        let Some(process) = self.processes.get_mut(&place) else {
            return;
        };
        process.agreement.handle(now, input);
        while let Some(output) = self
            .processes
            .get_mut(&place)
            .and_then(|p| p.agreement.poll_output())
        {
            self.carry_out(place, output);
        }
    }

    fn carry_out(&mut self, place: Place, output: Output) {
        let Some(process) = self.processes.get_mut(&place) else {
            return;
        };
        match output {
            Output::Send { to, message } => self.write(place, to, message),
            Output::View(view) => self.show(place, view),
            // Every seed here is a node's own address, so nothing is behind it.
            Output::Scout(_) => {}
            Output::Lease(until) => process.lease = until,
            Output::Plan(table, loads) if self.plans => {
                let proposal = planner::propose(&table, &loads);
                self.handle(
                    place,
                    Input::Planned {
                        base: table.name(),
                        proposal,
                    },
                );
            }
            Output::Plan(..) => {}
            Output::AdminReply { ticket, reply } => process.replies.push((ticket, reply)),
            Output::Event(event) => process.events.push(event),
            Output::UsedOk => process.used_ok = true,
            Output::HandedOver => process.handed_over = true,
            // The process ends, and its streams with all they held.
            Output::Left => self.kill(place),
            Output::Expelled => self.kill(place),
            // They come to processes with a directory alone (`durable`).
            Output::Store(..) | Output::Renamed => {}
            Output::Fatal(why) => self.breaks(format!("n{place} gave up: {why}")),
        }
    }

    fn write(&mut self, from: Place, to: Peer, message: Message) {
        if let Message::Propose(proposal) = &message
            && !self.setup.split
        {
            let now = self.time(from);
            let unheard = || {
                self.processes
                    .get(&from)
                    .map(|p| p.agreement.status(now).unanswered)
                    .unwrap_or_default()
            };
            if let Err(what) = self.oracle.proposes(id(from), proposal.name, unheard) {
                self.breaks(what);
            }
        }
        let (to, dialled) = match to {
            Peer::Member(id) => (place_of(id), false),
            Peer::Address(address) => (u64::from(address.port()) - 7000, true),
        };
        if !self.setup.split
            && let Err(what) = self.oracle.sent(id(to), &message)
        {
            self.breaks(what);
        }
        let letter = Letter {
            from,
            to,
            message,
            dialled,
        };
        match (self.post)(&letter) {
            Fate::Arrives => self.send(TRAVEL, letter),
            Fate::Late(ms) => self.send(ms, letter),
            Fate::Lost => {}
            Fate::Waits => self.waiting.push(letter),
        }
    }

    fn send(&mut self, after: u64, letter: Letter) {
        self.order += 1;
        self.letters.insert((self.now + after, self.order), letter);
    }

    fn show(&mut self, place: Place, view: View) {
        if !self.setup.split
            && let Err(what) = self.oracle.view(id(place), &view)
        {
            self.breaks(what);
        }
        let now = self.time(place);
        let Some(process) = self.processes.get_mut(&place) else {
            return;
        };
        for (at, partition) in view.installed.partitions() {
            if partition.primary() != id(place) {
                process.waits.remove(&at);
            } else if process
                .waits
                .get(&at)
                .is_none_or(|(since, _)| *since != partition.since)
            {
                let told = view
                    .opens_at
                    .iter()
                    .find(|(p, since, _)| *p == at && *since == partition.since);
                let opens = told
                    .map_or(now + Timing::default().takeover_wait(), |(_, _, opens)| {
                        *opens
                    });
                process.waits.insert(at, (partition.since, opens));
                process.opened.remove(&at);
            }
        }
        process.view = Some(view);
    }

    fn look(&mut self) {
        if self.setup.split {
            return;
        }
        let known: BTreeSet<PartitionRef> = self
            .processes
            .values()
            .flat_map(|p| p.waits.keys())
            .copied()
            .collect();
        for at in known {
            let serve = self.serve(at);
            let clusters: BTreeSet<_> = serve
                .iter()
                .filter_map(|p| self.view(*p))
                .map(|v| v.installed.cluster)
                .collect();
            if serve.len() > clusters.len() {
                self.breaks(format!("I5: members {serve:?} serve {at} at the same time"));
            }
        }
    }

    fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }
}
