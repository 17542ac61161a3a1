//! A network of agreement machines in virtual time, from a seed: loss, delay, one-way cuts, pauses,
//! crashes, drifting clocks. It takes the place of the shell and of the data threads, and checks
//! the invariants after every event.

use super::fixtures::keyspace;
use super::{
    Agreement, AgreementConfig, Durable, Event, InSyncChange, InSyncRequest, Input, Output, Peer,
    Seeds, Timing, View, VotersGone,
};
use crate::hints::Hint;
use crate::signing::SigningSeed;
use crate::time::Time;
use crate::wire::Message;
use doyen_placement::codec;
use doyen_placement::level::LEVELS;
use doyen_placement::{
    ClusterId, DiskCopies, Durability, Epoch, Keyspace, KeyspaceId, MemberId, OnLoss, PartitionRef,
    Role, Settings, Table, TableName, Term, Version, VoteKey, planner,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

pub(super) const MS: u64 = 1_000_000;

/// A slot: an address and a configuration. Processes come and go in it.
pub(super) type Slot = usize;

#[derive(Debug)]
enum Happening {
    Deliver {
        from: MemberId,
        to: MemberId,
        message: Message,
    },
    Dialled {
        from: MemberId,
        slot: Slot,
        at: SocketAddr,
        message: Message,
    },
    Tick(MemberId),
    Synced {
        process: MemberId,
        slot: Slot,
        number: u64,
        durable: Box<Durable>,
    },
    Housekeeping(MemberId),
    Input(MemberId, Input),
}

/// A directory.
#[derive(Debug, Clone)]
pub(super) struct Directory {
    /// The seed of the key of votes.
    seed: u64,
    pub(super) durable: Option<Durable>,
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) agreement: Agreement,
    /// What tables call it.
    pub(super) process: MemberId,
    pub(super) slot: Slot,
    pub(super) view: Option<View>,
    pub(super) lease: Time,
    pub(super) events: Vec<Event>,
    pub(super) replies: Vec<(u64, super::AdminReply)>,
    pub(super) handed_over: bool,
    pub(super) left: bool,
    pub(super) used_ok: u32,
    pub(super) fatal: Option<String>,
    /// Local nanoseconds in a true second, and the start of the clock.
    rate: f64,
    offset: u64,
    paused_until: u64,
    waiting: Vec<Happening>,
    tick_at: u64,
    opened: BTreeMap<PartitionRef, Epoch>,
    waits: BTreeMap<PartitionRef, (Epoch, Time)>,
    asked: BTreeMap<(PartitionRef, MemberId), Time>,
    pub(super) data_hangs: bool,
}

#[derive(Debug)]
pub(super) struct Net {
    pub(super) now: u64,
    pub(super) processes: BTreeMap<MemberId, Process>,
    queue: BTreeMap<(u64, u64), Happening>,
    order: u64,
    random: u64,
    pub(super) loss_percent: u64,
    pub(super) delay: (u64, u64),
    pub(super) cuts: BTreeSet<(Slot, Slot)>,
    /// Whether an operator splits this cluster: then each half is judged by itself.
    pub(super) split: bool,
    pub(super) hints: bool,
    pub(super) drift: bool,
    pub(super) seeds: Vec<Vec<Slot>>,
    pub(super) expect: Option<u16>,
    /// A UDP balancer at this slot's address: the slot that it leads each slot to.
    pub(super) balancer: Option<(Slot, Vec<Slot>)>,
    /// Whether the seeds of all processes are one name, which leads to the addresses of `seeds`.
    pub(super) named: bool,
    pub(super) witnesses: BTreeSet<Slot>,
    pub(super) next_id: u64,
    /// The number of pings, by sender and receiver.
    pub(super) pings: BTreeMap<(MemberId, MemberId), u32>,
    /// The bytes that each process has sent, as nodes encode them. Pings and their answers do not
    /// count. `None`: no bytes are counted.
    pub(super) sent: Option<BTreeMap<MemberId, usize>>,
    /// The partitions of the first keyspace.
    pub(super) partitions: u16,
    pub(super) backups: u8,
    pub(super) members_min: u16,
    pub(super) on_loss: OnLoss,
    pub(super) durability: Durability,
    /// The complete copies in the directory of each slot, for its next process.
    pub(super) copies: BTreeMap<Slot, DiskCopies>,
    /// The highest level of processes that speak less than this program.
    pub(super) levels: BTreeMap<Slot, u16>,
    /// The highest level of every process that ever ran.
    speak: BTreeMap<MemberId, Said>,
    /// Names of processes that are not named after their slot.
    pub(super) names: BTreeMap<Slot, String>,
    /// Whether processes have directories, one for each slot.
    pub(super) directories: bool,
    /// What was synced in the directory of each slot, and the seed of the key of votes there.
    pub(super) synced: BTreeMap<Slot, Directory>,
    /// The longest time that a write takes, in nanoseconds.
    pub(super) sync: u64,
    /// Weights other than 100.
    pub(super) weights: BTreeMap<Slot, u32>,
    // Observations for the invariants.
    committed: BTreeMap<(ClusterId, Version), TableName>,
    publishers: BTreeMap<(ClusterId, u64), MemberId>,
    parents: BTreeMap<(ClusterId, Term, Version), (Term, Version)>,
    pub(super) published: u64,
    shown: u64,
}

/// The input that the hello of a connection causes.
fn speaks(id: MemberId, (process, level, key, start): Said) -> Input {
    Input::Speaks {
        id,
        process,
        level,
        key,
        start,
    }
}

/// What a process says in its hello: which one it is, what it speaks, its key, and the start of its
/// directory.
type Said = (MemberId, u16, Option<VoteKey>, Option<u64>);

/// The cluster that a table is of, or the half of a split cluster.
fn half(table: &Table) -> ClusterId {
    let branches = &table.annex.branches;
    ClusterId(branches.iter().fold(table.cluster.0, |all, b| all ^ b.id.0))
}

pub(super) fn address(slot: Slot) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 7000 + u16::try_from(slot).unwrap()))
}

impl Net {
    pub(super) fn new(seed: u64, seeds: Vec<Vec<Slot>>) -> Self {
        Self {
            now: 1_000_000 * MS,
            processes: BTreeMap::new(),
            queue: BTreeMap::new(),
            order: 0,
            random: seed.wrapping_mul(0x9e37_79b9).wrapping_add(7),
            loss_percent: 0,
            delay: (MS / 5, 2 * MS),
            cuts: BTreeSet::new(),
            split: false,
            hints: false,
            drift: true,
            seeds,
            expect: None,
            balancer: None,
            named: false,
            witnesses: BTreeSet::new(),
            next_id: 1,
            pings: BTreeMap::new(),
            sent: None,
            partitions: 8,
            backups: 1,
            members_min: 1,
            on_loss: OnLoss::Reset { after_ms: 3000 },
            durability: Durability::None,
            copies: BTreeMap::new(),
            levels: BTreeMap::new(),
            speak: BTreeMap::new(),
            names: BTreeMap::new(),
            directories: false,
            synced: BTreeMap::new(),
            sync: 10 * MS,
            weights: BTreeMap::new(),
            committed: BTreeMap::new(),
            publishers: BTreeMap::new(),
            parents: BTreeMap::new(),
            published: 0,
            shown: 0,
        }
    }

    /// A cluster of this many nodes. Each has all of them as seeds.
    pub(super) fn cluster(seed: u64, count: usize) -> Self {
        Self::cluster_with(seed, count, |_| {})
    }

    /// The same, after a change of the test's own.
    pub(super) fn cluster_with(seed: u64, count: usize, own: impl FnOnce(&mut Self)) -> Self {
        let mut net = Self::new(seed, vec![(0..count).collect(); count + 3]);
        own(&mut net);
        (0..count).for_each(|slot| _ = net.start(slot));
        net.run_ms(3000);
        assert_eq!(
            net.agreed().map(|t| t.members.len()),
            Some(count),
            "seed {seed}: {:#?}",
            net.summary()
        );
        net
    }

    /// Three nodes that form a cluster, and others that join it all at once.
    pub(super) fn crowd(seed: u64, count: usize) -> Self {
        let mut net = Self::new(seed, vec![vec![0, 1, 2]; count + 3]);
        (0..count).for_each(|slot| _ = net.start(slot));
        net.until(10_000, Net::healed);
        net
    }

    pub(super) fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        (self.random() >> 11) % n.max(1)
    }

    pub(super) fn config(&mut self, slot: Slot, id: MemberId) -> AgreementConfig {
        let at = address(slot);
        let level_max = self.levels.get(&slot).copied().unwrap_or(LEVELS.1);
        let seed = self.synced.get(&slot).map_or(id.0, |had| had.seed);
        let key = Some(SigningSeed::of_test(seed).vote_key());
        // Each process has a higher number than those before it.
        let directory = self.directories.then_some(self.next_id);
        self.speak.insert(id, (id, level_max, key, directory));
        let role = if self.witnesses.contains(&slot) {
            Role::Witness
        } else {
            Role::Data
        };
        let name = self.names.get(&slot).cloned();
        let name = name.unwrap_or_else(|| format!("n{slot}"));
        AgreementConfig {
            role,
            weight: self.weights.get(&slot).copied().unwrap_or(100),
            seeds: self.seeds_of(slot, self.named),
            expect: self.expect,
            settings: Settings {
                members_min: self.members_min,
                ..Settings::default()
            },
            default_keyspace: Keyspace {
                backups: self.backups,
                on_loss: self.on_loss,
                durability: self.durability,
                ..keyspace(self.partitions)
            },
            level_max,
            rng_seed: self.random(),
            signing_seed: SigningSeed::of_test(seed),
            directory,
            copies: self.copies.remove(&slot).unwrap_or_default(),
            ..AgreementConfig::of_test(id, name, at)
        }
    }

    fn seeds_of(&self, slot: Slot, named: bool) -> Seeds {
        let names = if named {
            vec!["doyen:7000".to_owned()]
        } else {
            Vec::new()
        };
        Seeds {
            names,
            ..self.seeds[slot].iter().map(|s| address(*s)).collect()
        }
    }

    /// The name of the seeds leads to other addresses from now on.
    pub(super) fn resolve(&mut self, slot: Slot, to: Vec<Slot>) {
        self.seeds[slot] = to;
        let mut seeds = self.seeds_of(slot, true);
        if seeds.addresses.is_empty() {
            seeds.unresolved.clone_from(&seeds.names);
        }
        self.input(slot, Input::Seeds(seeds));
    }

    /// Behind the balancer, each port leads to another node. Without a balancer, an address belongs
    /// to one node.
    fn scouts(&mut self, from: MemberId, seed: SocketAddr) {
        let slot = usize::from(seed.port() - 7000);
        let led = match &self.balancer {
            Some((at, backs)) if *at == slot => backs.len(),
            _ => return,
        };
        let slot = self.below(led as u64) as Slot;
        if let Some(id) = self.at(slot) {
            self.push(
                2 * MS,
                Happening::Input(
                    from,
                    Input::Scouted {
                        id,
                        address: address(slot),
                    },
                ),
            );
        }
    }

    pub(super) fn start(&mut self, slot: Slot) -> MemberId {
        assert!(self.at(slot).is_none());
        // Ids are random in production: the order of starting says nothing about their order.
        let id = MemberId((self.random() % 1000) << 20 | self.next_id << 4);
        self.next_id += 1;
        self.begin(slot, id, &[]);
        id
    }

    fn begin(&mut self, slot: Slot, id: MemberId, former: &[SocketAddr]) {
        let config = self.config(slot, id);
        let rate = if self.drift {
            0.99 + self.below(2001) as f64 / 100_000.0
        } else {
            1.0
        };
        let offset = self.below(1_000_000) * MS;
        let now = Time(((self.now as f64) * rate) as u64 + offset);
        let had = self.synced.get(&slot).and_then(|had| had.durable.clone());
        let mut agreement = match had {
            Some(durable) => {
                let said = self.speak[&id];
                self.speak.insert(durable.me, said);
                Agreement::resume(config, durable, now)
            }
            None => Agreement::new(config, now),
        };
        let seed = self.synced.get(&slot).map_or(id.0, |had| had.seed);
        if self.directories {
            let durable = None;
            self.synced
                .entry(slot)
                .or_insert(Directory { seed, durable });
        }
        let process = id;
        let id = agreement.id();
        former
            .iter()
            .for_each(|a| agreement.handle(now, Input::Hint(Hint::Address(*a))));
        let process = Process {
            agreement,
            process,
            slot,
            view: None,
            lease: Time::ZERO,
            events: Vec::new(),
            replies: Vec::new(),
            handed_over: false,
            left: false,
            used_ok: 0,
            fatal: None,
            rate,
            offset,
            paused_until: 0,
            waiting: Vec::new(),
            tick_at: 0,
            opened: BTreeMap::new(),
            waits: BTreeMap::new(),
            asked: BTreeMap::new(),
            data_hangs: false,
        };
        self.processes.insert(id, process);
        self.push(0, Happening::Input(id, Input::Tick));
        self.push(10 * MS, Happening::Housekeeping(id));
    }

    fn push(&mut self, after: u64, happening: Happening) {
        self.order += 1;
        self.queue.insert((self.now + after, self.order), happening);
    }

    pub(super) fn at(&self, slot: Slot) -> Option<MemberId> {
        self.processes
            .iter()
            .find(|(_, p)| p.slot == slot)
            .map(|(id, _)| *id)
    }

    pub(super) fn process(&self, slot: Slot) -> &Process {
        &self.processes[&self.at(slot).unwrap()]
    }

    pub(super) fn table(&self, slot: Slot) -> Arc<Table> {
        self.process(slot).view.as_ref().unwrap().installed.clone()
    }

    pub(super) fn input(&mut self, slot: Slot, input: Input) {
        let id = self.at(slot).unwrap();
        self.push(0, Happening::Input(id, input));
    }

    pub(super) fn kill(&mut self, slot: Slot) {
        let id = self.at(slot).unwrap();
        self.processes.remove(&id);
        if self.hints {
            let others: Vec<MemberId> = self.processes.keys().copied().collect();
            for other in others {
                let first = self.below(100) * MS;
                // Probes of a port that was refused follow each other quickly.
                for after in (0..4).map(|probe| first + probe * 25 * MS) {
                    self.push(
                        after,
                        Happening::Input(other, Input::Hint(Hint::Refused(id))),
                    );
                }
            }
        }
    }

    /// The id by which this process speaks, if it runs.
    fn voice(&self, process: MemberId) -> Option<MemberId> {
        let mut all = self.processes.iter();
        all.find(|(_, p)| p.process == process).map(|(id, _)| *id)
    }

    /// When the next write of this slot is synced: writes are synced in their order.
    fn syncs(&mut self, slot: Slot) -> u64 {
        let takes = self.below(self.sync.max(1));
        let last = self.queue.iter().filter_map(|((at, _), next)| match next {
            Happening::Synced { slot: of, .. } if *of == slot => Some(*at),
            _ => None,
        });
        last.max()
            .map_or(takes, |at| takes.max(at.saturating_sub(self.now)))
    }

    pub(super) fn pause_ms(&mut self, slot: Slot, ms: u64) {
        let id = self.at(slot).unwrap();
        let until = self.now + ms * MS;
        self.processes.get_mut(&id).unwrap().paused_until = until;
        self.push(ms * MS, Happening::Tick(id));
    }

    pub(super) fn cut(&mut self, a: Slot, b: Slot) {
        self.cuts.insert((a, b));
        self.cuts.insert((b, a));
    }

    /// Sends this to a process in another's name. Returns its immediate answer.
    pub(super) fn ask(&mut self, slot: Slot, from: Slot, message: Message) -> Vec<Message> {
        let (to, from) = (self.at(slot).unwrap(), self.at(from).unwrap());
        let local = self.local(&self.processes[&to]);
        let process = self.processes.get_mut(&to).unwrap();
        process
            .agreement
            .handle(local, Input::Message { from, message });
        let mut answers = Vec::new();
        while let Some(output) = process.agreement.poll_output() {
            if let Output::Send {
                to: Peer::Member(to),
                message,
            } = output
                && to == from
                && !message.is_datagram()
                && !matches!(message, Message::Opened { .. })
            {
                answers.push(message);
            }
        }
        answers
    }

    /// Sends a message of a faulty process, beside its normal ones.
    pub(super) fn say(&mut self, from: Slot, to: Slot, message: Message) {
        let (from, to) = (self.at(from).unwrap(), self.at(to).unwrap());
        self.push(0, Happening::Deliver { from, to, message });
    }

    /// If every process that knew of a commit is dead, an operator's word can override it: the
    /// limit of `recover`.
    pub(super) fn forget_commits_of_the_dead(&mut self) {
        let known: BTreeSet<(ClusterId, Version)> = self
            .processes
            .values()
            .filter_map(|p| p.view.as_ref())
            .map(|v| (v.accepted.cluster, v.accepted.version))
            .collect();
        self.committed.retain(|(c, v), _| {
            known
                .iter()
                .any(|(cluster, version)| cluster == c && v <= version)
        });
    }

    /// If there is no coordinator because voters are gone for good: the living voter with the
    /// newest table, and the names of the dead voters.
    pub(super) fn stuck(&self) -> Option<(Slot, Vec<String>)> {
        if !self.leaders().is_empty() {
            return None;
        }
        let newest = self
            .processes
            .values()
            .filter_map(|p| p.view.as_ref())
            .max_by_key(|v| v.accepted.name().order())?;
        let table = &newest.accepted;
        let lives = |id: &MemberId| self.processes.get(id).is_some_and(|p| p.view.is_some());
        let knows = |v: &&MemberId| {
            self.processes
                .get(v)
                .and_then(|p| p.view.as_ref())
                .map(|view| view.accepted.name().order())
        };
        let voter = table.voters.iter().filter(|v| lives(v)).max_by_key(knows)?;
        let gone = newest
            .installed
            .members
            .iter()
            .chain(&table.members)
            .filter(|m| !lives(&m.id));
        Some((
            self.processes[voter].slot,
            gone.map(|m| m.name.clone()).collect(),
        ))
    }

    /// An operator says at this process which members are dead, and counts the voters among them.
    pub(super) fn recover(&mut self, slot: Slot, dead: Vec<String>) {
        let process = self.process(slot);
        let voters = process.agreement.status(self.local(process)).voters;
        let view = process.view.as_ref().expect("a member");
        let is_dead = |v: &&MemberId| {
            [&view.installed, &view.accepted]
                .iter()
                .filter_map(|table| table.member(**v))
                .any(|m| dead.contains(&m.name))
        };
        let gone = VotersGone {
            gone: voters.iter().filter(is_dead).count(),
            voters: voters.len(),
        };
        self.input(
            slot,
            Input::Recover {
                dead,
                gone,
                ticket: 1,
            },
        );
    }

    /// Other clusters that the process in this slot has met.
    pub(super) fn others(&self, slot: Slot) -> Vec<ClusterId> {
        let process = self.process(slot);
        process
            .agreement
            .status(self.local(process))
            .others
            .iter()
            .map(|other| other.cluster)
            .collect()
    }

    /// Whether the lease of the process in this slot allows it to serve.
    pub(super) fn holds_lease(&self, slot: Slot) -> bool {
        let process = self.process(slot);
        process.lease > self.local(process)
    }

    /// The coordinators of the cluster, by slot.
    pub(super) fn leaders(&self) -> Vec<Slot> {
        self.processes
            .values()
            .filter(|p| p.agreement.status(self.local(p)).leading)
            .map(|p| p.slot)
            .collect()
    }

    /// The table that every process has installed, if they agree and there is a coordinator.
    pub(super) fn agreed(&self) -> Option<Arc<Table>> {
        let mut tables = self
            .processes
            .values()
            .map(|p| p.view.as_ref().map(|v| v.installed.clone()));
        let first = tables.next()??;
        (self.leaders().len() == 1 && tables.all(|t| t.is_some_and(|t| t.name() == first.name())))
            .then_some(first)
    }

    /// Whether all processes are in one cluster, every partition is open, and nothing moves.
    pub(super) fn healed(&self) -> bool {
        self.agreed().is_some_and(|table| {
            table.members.len() == self.processes.len()
                && table.voters.len() == table.members.len().min(7)
                && self.processes.values().all(|p| p.lease > self.local(p))
                && table.keyspaces.iter().all(|k| {
                    !k.partitions.is_empty()
                        && k.partitions.iter().all(|p| {
                            let at = PartitionRef::new(k.id, p.id);
                            p.goal.is_none() && self.acknowledgers(at).len() == 1
                        })
                })
        })
    }

    pub(super) fn summary(&self) -> Vec<String> {
        let describe = |(id, p): (&MemberId, &Process)| {
            let view = p.view.as_ref().map(|v| {
                let members: Vec<String> = v
                    .installed
                    .members
                    .iter()
                    .map(|m| format!("{}:{:?}", m.name, m.state))
                    .collect();
                format!(
                    "{}.{} acc {}.{} {members:?} voters {:?}",
                    v.installed.term,
                    v.installed.version,
                    v.accepted.term,
                    v.accepted.version,
                    v.installed.voters
                )
            });
            let status = p.agreement.status(self.local(p));
            format!(
                "n{} {id} leading {} coord {:?} {view:?} waiting {:?} closed {}",
                p.slot,
                status.leading,
                status.coordinator,
                status.waiting,
                status.closed.len()
            )
        };
        let mut lines: Vec<String> = self.processes.iter().map(describe).collect();
        let views = self.processes.values().filter_map(|p| p.view.as_ref());
        let newest = views.map(|v| &v.installed).max_by_key(|t| t.version);
        for partition in newest
            .iter()
            .flat_map(|t| &t.keyspaces)
            .flat_map(|k| &k.partitions)
        {
            let at = PartitionRef::new(KeyspaceId(0), partition.id);
            lines.push(format!(
                "{partition:?} acknowledged by {:?}",
                self.acknowledgers(at)
            ));
        }
        lines
    }

    pub(super) fn local(&self, p: &Process) -> Time {
        Time(((self.now as f64) * p.rate) as u64 + p.offset)
    }

    // ---- running

    pub(super) fn run_ms(&mut self, ms: u64) {
        let end = self.now + ms * MS;
        while self.step(end) {}
        self.now = end;
    }

    /// Runs until the condition holds. Returns the time that this took, in milliseconds.
    pub(super) fn until(&mut self, ms_max: u64, what: impl Fn(&Self) -> bool) -> u64 {
        let began = self.now;
        let end = self.now + ms_max * MS;
        while !what(self) {
            assert!(
                self.step(end),
                "not within {ms_max} ms: {:#?}",
                self.summary()
            );
        }
        (self.now - began) / MS
    }

    fn step(&mut self, end: u64) -> bool {
        let Some(entry) = self.queue.first_entry().filter(|e| e.key().0 <= end) else {
            return false;
        };
        let ((at, _), happening) = entry.remove_entry();
        self.now = self.now.max(at);
        self.happen(happening);
        true
    }

    fn happen(&mut self, happening: Happening) {
        let id = match &happening {
            Happening::Deliver { to, .. } => *to,
            Happening::Dialled { slot, .. } => match self.at(*slot) {
                Some(id) => id,
                None => return,
            },
            Happening::Tick(id) | Happening::Housekeeping(id) | Happening::Input(id, _) => *id,
            Happening::Synced { process, .. } => match self.voice(*process) {
                Some(id) => id,
                // It died before the write was synced.
                None => return,
            },
        };
        let now = self.now;
        let Some(process) = self.processes.get_mut(&id) else {
            return;
        };
        if process.paused_until > now {
            match happening {
                Happening::Tick(_) => {}
                other if process.waiting.len() < 5000 => process.waiting.push(other),
                _ => {}
            }
            return;
        }
        for waiting in std::mem::take(&mut process.waiting) {
            self.push(0, waiting);
        }
        let process = self.processes.get_mut(&id).unwrap();
        let local = Time(((now as f64) * process.rate) as u64 + process.offset);
        let keeping = matches!(happening, Happening::Housekeeping(_));
        match happening {
            Happening::Deliver { from, message, .. } => {
                if let Some(speaks) = self.speak.get(&from).map(|said| speaks(from, *said)) {
                    process.agreement.handle(local, speaks);
                }
                process
                    .agreement
                    .handle(local, Input::Message { from, message });
            }
            Happening::Dialled {
                from, at, message, ..
            } => {
                if from == id {
                    process
                        .agreement
                        .handle(local, Input::Identified { address: at, id });
                } else {
                    if let Some(speaks) = self.speak.get(&from).map(|said| speaks(from, *said)) {
                        process.agreement.handle(local, speaks);
                    }
                    process
                        .agreement
                        .handle(local, Input::Message { from, message });
                    let after = self.delay.0;
                    self.push(
                        after,
                        Happening::Input(from, Input::Identified { address: at, id }),
                    );
                }
            }
            Happening::Tick(_) => {
                process.tick_at = 0;
                if process
                    .agreement
                    .poll_timeout()
                    .is_some_and(|due| due <= local)
                {
                    process.agreement.handle(local, Input::Tick);
                }
            }
            Happening::Input(_, input) => process.agreement.handle(local, input),
            Happening::Synced {
                slot,
                number,
                durable,
                ..
            } => {
                let directory = self.synced.get_mut(&slot).unwrap();
                directory.durable = Some(*durable);
                process.agreement.handle(local, Input::Stored(number));
            }
            Happening::Housekeeping(_) => {
                self.push(20 * MS, Happening::Housekeeping(id));
                self.housekeeping(id, local);
            }
        }
        let shown = self.shown;
        self.carry_out(id, local);
        // Leases and openings also change with time alone: the housekeeping of each process looks
        // often enough.
        if self.shown != shown || keeping {
            self.check();
        }
    }

    /// Does the work of data threads: signs of life, opening partitions, and reports of learners
    /// that have caught up.
    fn housekeeping(&mut self, id: MemberId, local: Time) {
        let process = self.processes.get_mut(&id).unwrap();
        if process.data_hangs {
            return;
        }
        process.agreement.handle(local, Input::DataThreadAlive);
        let Some(view) = process.view.clone() else {
            return;
        };
        let mut opened = Vec::new();
        let mut requests = Vec::new();
        for keyspace in &view.installed.keyspaces {
            for partition in &keyspace.partitions {
                let at = PartitionRef::new(keyspace.id, partition.id);
                if acknowledges(process, local, &view, at)
                    && process.opened.get(&at) != Some(&partition.since)
                {
                    process.opened.insert(at, partition.since);
                    opened.push((at, partition.since));
                }
                if partition.primary() == process.process
                    && process.opened.get(&at) == Some(&partition.since)
                {
                    if keyspace.is_reshaped(partition.id) {
                        let change = InSyncChange::WritesStopped { ahead_ms: 0 };
                        requests.push(InSyncRequest {
                            partition: at,
                            epoch: partition.epoch,
                            change,
                        });
                    }
                    for learner in partition.learners() {
                        let due = process
                            .asked
                            .get(&(at, learner))
                            .is_none_or(|asked| local.since(*asked).as_millis() > 200);
                        if due {
                            process.asked.insert((at, learner), local);
                            requests.push(InSyncRequest {
                                partition: at,
                                epoch: partition.epoch,
                                change: InSyncChange::Admit(learner),
                            });
                        }
                    }
                }
            }
        }
        if !opened.is_empty() {
            process.agreement.handle(local, Input::Opened(opened));
        }
        if !requests.is_empty() {
            process.agreement.handle(local, Input::InSync(requests));
        }
    }

    fn carry_out(&mut self, id: MemberId, local: Time) {
        loop {
            let Some(process) = self.processes.get_mut(&id) else {
                return;
            };
            let Some(output) = process.agreement.poll_output() else {
                break;
            };
            match output {
                Output::Send { to, message } => self.send(id, to, message),
                Output::View(view) => {
                    self.shown += 1;
                    self.view(id, local, view);
                }
                Output::Scout(seed) => self.scouts(id, seed),
                Output::Lease(until) => process.lease = until,
                Output::Store(number, durable) => {
                    let (process, slot) = (process.process, process.slot);
                    let after = self.syncs(slot);
                    self.push(
                        after,
                        Happening::Synced {
                            process,
                            slot,
                            number,
                            durable,
                        },
                    );
                }
                Output::Renamed => {
                    process.lease = Time::ZERO;
                    let renamed = self.processes.remove(&id).unwrap();
                    let id = renamed.agreement.id();
                    let said = self.speak[&renamed.process];
                    self.speak.insert(id, said);
                    self.processes.insert(id, renamed);
                    self.push(0, Happening::Housekeeping(id));
                    self.push(0, Happening::Tick(id));
                    return self.carry_out(id, local);
                }
                Output::Plan(table, loads) => {
                    let proposal = planner::propose(&table, &loads);
                    self.push(
                        5 * MS,
                        Happening::Input(
                            id,
                            Input::Planned {
                                base: table.name(),
                                proposal,
                            },
                        ),
                    );
                }
                Output::AdminReply { ticket, reply } => process.replies.push((ticket, reply)),
                Output::Event(event) => process.events.push(event),
                Output::UsedOk => process.used_ok += 1,
                Output::HandedOver => process.handed_over = true,
                Output::Left => process.left = true,
                Output::Fatal(why) => process.fatal = Some(why),
                Output::Expelled => {
                    if let Some(had) = self.synced.get_mut(&self.processes[&id].slot) {
                        had.durable = None;
                    }
                    let process = self.processes.remove(&id).unwrap();
                    let members = process
                        .view
                        .iter()
                        .flat_map(|v| v.installed.members.clone());
                    let own = address(process.slot);
                    let former: Vec<SocketAddr> = members
                        .map(|m| m.addresses.control)
                        .filter(|a| *a != own)
                        .collect();
                    let again = MemberId((self.random() % 1000) << 20 | self.next_id << 4);
                    self.next_id += 1;
                    return self.begin(process.slot, again, &former);
                }
            }
        }
        let now = self.now;
        let Some(process) = self.processes.get_mut(&id) else {
            return;
        };
        let Some(due) = process.agreement.poll_timeout() else {
            return;
        };
        let at = ((due.0.saturating_sub(process.offset)) as f64 / process.rate) as u64 + 1000;
        let at = at.max(now + 20_000);
        if process.tick_at == 0 || at < process.tick_at || process.tick_at <= now {
            process.tick_at = at;
            self.push(at - now, Happening::Tick(id));
        }
    }

    fn send(&mut self, from: MemberId, to: Peer, message: Message) {
        let source = self.processes[&from].slot;
        let target = match to {
            Peer::Member(id) => self.processes.get(&id).map(|p| p.slot),
            Peer::Address(a) => {
                let slot = usize::from(a.port() - 7000);
                let led = self
                    .balancer
                    .as_ref()
                    .filter(|(at, _)| *at == slot)
                    .map(|(_, backs)| backs[source]);
                Some(led.unwrap_or(slot))
            }
        };
        if let Message::Propose(proposal) = &message
            && !self.split
        {
            let publisher = *self
                .publishers
                .entry((proposal.name.cluster, proposal.name.term.0))
                .or_insert(from);
            assert_eq!(
                publisher, from,
                "I2: two publishers in term {}",
                proposal.name.term
            );
        }
        if let (Message::Ping(_), Peer::Member(to)) = (&message, to) {
            *self.pings.entry((from, to)).or_default() += 1;
        }
        if let Some(sent) = &mut self.sent
            && !message.is_datagram()
        {
            let bytes = codec::encode_numbered(&message, codec::BYTES_MAX)
                .expect("messages can be written");
            *sent.entry(from).or_default() += bytes.len();
        }
        let Some(target) = target else { return };
        if self.cuts.contains(&(source, target)) || self.below(100) < self.loss_percent {
            return;
        }
        let after = self.delay.0 + self.below(self.delay.1 - self.delay.0);
        let happening = match to {
            Peer::Member(to) => Happening::Deliver { from, to, message },
            Peer::Address(at) => Happening::Dialled {
                from,
                slot: target,
                at,
                message,
            },
        };
        self.push(after, happening);
    }

    // ---- invariants

    fn view(&mut self, id: MemberId, local: Time, view: View) {
        let process = self.processes.get_mut(&id).unwrap();
        let name = view.installed.name();
        if let Some(before) = &process.view
            && before.installed.cluster == name.cluster
        {
            assert!(
                before.installed.version <= name.version,
                "I3: the installed version went back"
            );
            let was = before.accepted.name();
            assert!(
                was.order() <= view.accepted.name().order(),
                "I3: the accepted table went back"
            );
        }
        assert!(view.accepted.name().order() >= name.order());
        let before = self.published;
        let judged = if self.split {
            half(&view.installed)
        } else {
            name.cluster
        };
        let known = *self
            .committed
            .entry((judged, name.version))
            .or_insert_with(|| {
                self.published += 1;
                name
            });
        assert_eq!(known, name, "I1: two committed tables of one version");
        let fresh = self.published;
        let accepted = view.accepted.name();
        // The proposer accepts first: what it had accepted before is what the proposal was made
        // from.
        let from = process
            .view
            .as_ref()
            .map(|v| v.accepted.name())
            .filter(|n| n.cluster == accepted.cluster && *n != accepted);
        if let Some(from) = from {
            self.parents
                .entry((accepted.cluster, accepted.term, accepted.version))
                .or_insert(from.order());
        }
        for keyspace in &view.installed.keyspaces {
            for partition in &keyspace.partitions {
                assert!(partition.in_sync().any(|m| m == partition.primary()), "I7");
                let at = PartitionRef::new(keyspace.id, partition.id);
                if partition.primary() != process.process {
                    process.waits.remove(&at);
                    process.opened.remove(&at);
                } else if process
                    .waits
                    .get(&at)
                    .is_none_or(|(since, _)| *since != partition.since)
                {
                    let told = view
                        .opens_at
                        .iter()
                        .find(|(p, since, _)| *p == at && *since == partition.since);
                    let opens = told.map_or(
                        local + Timing::default().takeover_wait(),
                        |(_, _, opens)| *opens,
                    );
                    process.waits.insert(at, (partition.since, opens));
                    process.opened.remove(&at);
                }
            }
        }
        process.view = Some(view);
        if fresh > before && !self.split {
            self.check_descent(name);
        }
    }

    /// From a later committed table, the chain of its ancestors must lead through the earlier one
    /// (I4).
    fn check_descent(&self, name: TableName) {
        let of = |v: &Version| self.committed.get(&(name.cluster, *v)).copied();
        let earlier = self
            .committed
            .range(..(name.cluster, name.version))
            .next_back()
            .map(|((c, v), _)| (*c, *v));
        let later = self
            .committed
            .range((name.cluster, name.version.next())..)
            .next()
            .map(|((c, v), _)| (*c, *v));
        let pairs = [
            (earlier, Some((name.cluster, name.version))),
            (Some((name.cluster, name.version)), later),
        ];
        for (old, new) in pairs {
            let (Some((c1, old)), Some((c2, new))) = (old, new) else {
                continue;
            };
            if c1 != name.cluster || c2 != name.cluster {
                continue;
            }
            let (old, mut at) = (of(&old).unwrap().order(), of(&new).unwrap().order());
            while at.1 > old.1 {
                match self.parents.get(&(name.cluster, at.0, at.1)) {
                    Some(parent) => at = *parent,
                    None => panic!("no parent of {at:?} is known"),
                }
            }
            assert_eq!(
                at, old,
                "I4: a committed table does not descend from the one before"
            );
        }
    }

    pub(super) fn acknowledgers(&self, at: PartitionRef) -> Vec<(MemberId, Epoch)> {
        let mut found = Vec::new();
        for (id, process) in &self.processes {
            let Some(view) = &process.view else { continue };
            if process.paused_until <= self.now
                && acknowledges(process, self.local(process), view, at)
            {
                found.push((*id, view.installed.partition(at).unwrap().epoch));
            }
        }
        found
    }

    fn check(&self) {
        for partition in 0..8 {
            let at = PartitionRef::new(KeyspaceId(0), doyen_placement::PartitionId(partition));
            let found = self.acknowledgers(at);
            let clusters: BTreeSet<ClusterId> = found
                .iter()
                .filter_map(|(id, _)| self.processes[id].view.as_ref())
                .map(|v| half(&v.installed))
                .collect();
            assert!(
                found.len() <= clusters.len().max(1),
                "two acknowledge for {at}: {found:?} {:#?}",
                self.summary()
            );
        }
    }

    /// The ids of clusters that ever committed a table.
    pub(super) fn clusters(&self) -> BTreeSet<ClusterId> {
        self.committed.keys().map(|(c, _)| *c).collect()
    }
}

/// Whether a process may acknowledge writes of a partition now (rules 5, 8 and 9).
fn acknowledges(process: &Process, local: Time, view: &View, at: PartitionRef) -> bool {
    let id = process.process;
    let leads = |t: &Table| {
        t.partition(at)
            .filter(|p| p.primary() == id)
            .map(|p| p.since)
    };
    let (Some(since), Some(accepted)) = (leads(&view.installed), leads(&view.accepted)) else {
        return false;
    };
    since == accepted
        && process.lease > local
        && process
            .waits
            .get(&at)
            .is_some_and(|(s, opens)| *s == since && *opens <= local)
}
