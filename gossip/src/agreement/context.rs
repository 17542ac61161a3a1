//! What every phase of the machine shares: configuration, time, random numbers, outputs.

use super::api::{AdminReply, AgreementConfig, Output, Peer};
use super::durable::{Accepting, Disk, Durable, Promise};
use super::event::Event;
use super::problem::Problem;
use crate::mutant::{self, broken};
use crate::signing::SigningKey;
use crate::time::Time;
use crate::wire::{Message, ProcessState, ProcessStatus};
use doyen_placement::{ClusterId, Member, MemberId, Table, TableName, Term, VoteKey};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// Processes whose levels are remembered: twice as many as there are members and connections.
const SPEAKS_MAX: usize = 4096;

/// What the hello of a process said.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpokenHello {
    /// The process.
    pub(super) process: MemberId,
    /// The highest level that it speaks.
    pub(super) level: u16,
    /// The key of its votes.
    pub(super) key: Option<VoteKey>,
    /// How often processes began with its directory.
    pub(super) start: Option<u64>,
}

/// What every phase shares.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) config: AgreementConfig,
    pub(super) now: Time,
    pub(super) outputs: VecDeque<Output>,
    /// Answers to requests that people made here, by their tickets.
    pub(super) replies: Vec<(u64, AdminReply)>,
    /// The number of messages that did not fit the state of this process.
    pub(super) ignored: u64,
    /// When the data threads last made progress (rule 12).
    pub(super) alive_at: Time,
    /// The minute of the day, in UTC, as the shell last said it.
    pub(super) minute: Option<u16>,
    /// Whether the shell waits for `Output::UsedOk`.
    pub(super) used_asked: bool,
    /// What processes said in their hellos, by the member in whose name each speaks.
    speaks: BTreeMap<MemberId, SpokenHello>,
    /// The processes that speak for members whose directories they have.
    heirs: BTreeMap<MemberId, MemberId>,
    /// The member in whose name this process speaks. It is this process itself, but for an heir
    /// that no table has yet.
    voice: MemberId,
    /// What must not be forgotten. `None`: this process has no directory.
    pub(super) disk: Option<Disk>,
    /// Signs this process's votes.
    pub(super) signing: SigningKey,
    random: u64,
    /// Numbers the statuses that this process has sent.
    stood: u64,
}

impl SpokenHello {
    pub(super) const fn new(
        process: MemberId,
        level: u16,
        key: Option<VoteKey>,
        start: Option<u64>,
    ) -> Self {
        Self {
            process,
            level,
            key,
            start,
        }
    }
}

impl Context {
    pub(super) fn new(config: AgreementConfig, now: Time) -> Self {
        let random = config.rng_seed ^ config.id.0.rotate_left(17);
        let (outputs, signing) = (VecDeque::new(), SigningKey::new(&config.signing_seed));
        Self {
            voice: config.id,
            heirs: BTreeMap::new(),
            disk: config.directory.map(|_| Disk::default()),
            config,
            now,
            outputs,
            replies: Vec::new(),
            ignored: 0,
            alive_at: now,
            minute: None,
            used_asked: false,
            speaks: BTreeMap::new(),
            signing,
            random,
            stood: 0,
        }
    }

    /// The member in whose name this process speaks, votes and answers.
    pub(super) const fn me(&self) -> MemberId {
        self.voice
    }

    /// This process: what holds data, and what tables say of it.
    pub(super) const fn process(&self) -> MemberId {
        self.config.id
    }

    /// Whether this process speaks for the one that had its directory before.
    pub(super) fn is_heir(&self) -> bool {
        self.voice != self.config.id
    }

    /// This process begins as the one that speaks for this member.
    pub(super) fn speak_for(&mut self, member: MemberId) {
        self.voice = member;
    }

    /// From now on, this process speaks in this name, and the shell says so in hellos.
    pub(super) fn rename(&mut self, voice: MemberId) {
        if voice != self.voice {
            self.voice = voice;
            self.outputs.push_back(Output::Renamed);
        }
    }

    /// The process that speaks for a member because it has its directory. `None`: the member speaks
    /// for itself, as far as is known.
    pub(super) fn heir_of(&self, member: MemberId) -> Option<MemberId> {
        self.heirs.get(&member).copied()
    }

    /// Whether another process has the directory of this one, so that this one is gone.
    pub(super) fn has_heir(&self, process: MemberId) -> bool {
        self.heirs.contains_key(&process) || (self.is_heir() && process == self.me())
    }

    /// The names in which this other process speaks. There is none if it has an heir.
    pub(super) fn voices_of(&self, process: MemberId) -> impl Iterator<Item = MemberId> + '_ {
        let heirs = self.heirs.iter().filter(move |(_, heir)| **heir == process);
        let own = Some(process).filter(|_| !self.has_heir(process));
        own.into_iter().chain(heirs.map(|(voice, _)| *voice))
    }

    /// Whether this vote may be given.
    pub(super) fn promise_vote(&mut self, term: Term, candidate: MemberId) -> Promise {
        match &mut self.disk {
            None => Promise::Kept,
            Some(disk) => disk.promise_vote(term, candidate),
        }
    }

    /// Whether this table may be accepted.
    pub(super) fn promise_table(&mut self, accepting: impl FnOnce() -> Accepting) -> Promise {
        match &mut self.disk {
            None => Promise::Kept,
            Some(disk) => disk.promise_table(accepting()),
        }
    }

    /// Writes what must not be forgotten by this process, if it has changed and there is such a
    /// thing.
    pub(super) fn store(&mut self, durable: impl FnOnce(MemberId, &Disk) -> Option<Durable>) {
        let me = self.me();
        let Some(disk) = self.disk.as_mut().filter(|disk| disk.has_changed()) else {
            return;
        };
        let durable = durable(me, disk).map(Box::new);
        if let Some((durable, write)) = durable.and_then(|all| Some((all, disk.begin()?))) {
            self.outputs.push_back(Output::Store(write, durable));
        }
    }

    /// This message is handled again once what it asks for is synced.
    pub(super) fn wait(&mut self, from: MemberId, message: Message) {
        if let Some(disk) = &mut self.disk {
            disk.wait(from, message);
        }
    }

    /// The highest level that a process speaks; `None`: it has not said hello yet.
    pub(super) fn speaks(&self, id: MemberId) -> Option<u16> {
        if id == self.me() {
            return Some(self.config.level_max);
        }
        self.speaks.get(&id).map(|said| said.level)
    }

    /// The key of a process's votes; `None`: it has not said hello yet, or its program has none.
    pub(super) fn vote_key(&self, id: MemberId) -> Option<VoteKey> {
        if id == self.me() {
            return Some(self.signing.vote_key());
        }
        self.speaks.get(&id)?.key
    }

    /// How often processes began with the directory of this process, which speaks in the name of
    /// `voice`. `None`: it has none, or it has not said hello yet.
    pub(super) fn start(&self, voice: MemberId, process: MemberId) -> Option<u64> {
        if process == self.process() {
            return self.config.directory;
        }
        let said = self.speaks.get(&voice);
        said.filter(|said| said.process == process)?.start
    }

    /// A process said hello. If there are too many, those that are no members are forgotten.
    pub(super) fn learn(
        &mut self,
        id: MemberId,
        said: SpokenHello,
        member: impl Fn(MemberId) -> bool,
    ) {
        let process = said.process;
        if process != id && (self.heirs.contains_key(&id) || self.heirs.len() < SPEAKS_MAX) {
            self.heirs.insert(id, process);
        }
        if self.speaks.len() >= SPEAKS_MAX && !self.speaks.contains_key(&id) {
            self.speaks.retain(|known, _| member(*known));
        }
        if self.speaks.len() < SPEAKS_MAX {
            let known = self.speaks.entry(id).or_insert(said);
            let level = if known.process == process {
                // No process says less later, so the least is what it said.
                said.level.min(known.level)
            } else {
                // An heir may be of another program than its predecessor.
                said.level
            };
            // Another process cannot take an id whose key is known.
            let key = known.key.or(said.key);
            *known = SpokenHello { level, key, ..said };
        }
    }

    /// This problem as a text for people.
    pub(super) fn explain(&self, problem: &Problem) -> String {
        self.config.explain.text(problem)
    }

    pub(super) fn send(&mut self, to: MemberId, message: Message) {
        self.outputs.push_back(Output::Send {
            to: Peer::Member(to),
            message,
        });
    }

    pub(super) fn dial(&mut self, to: SocketAddr, message: Message) {
        self.outputs.push_back(Output::Send {
            to: Peer::Address(to),
            message,
        });
    }

    pub(super) fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// Answers a person's request, here or at another member. Here, the requests pass it on.
    pub(super) fn reply(
        &mut self,
        cluster: ClusterId,
        origin: MemberId,
        ticket: u64,
        reply: AdminReply,
    ) {
        if origin == self.me() {
            self.replies.push((ticket, reply));
        } else {
            self.send(
                origin,
                Message::AdminReply {
                    cluster,
                    ticket,
                    reply,
                },
            );
        }
    }

    /// Counts a peer's message that does not fit the state of this process, and ignores it.
    pub(super) fn ignore(&mut self) {
        self.ignored += 1;
    }

    /// SplitMix64: for jitter, and for the id of a cluster that this process founds.
    pub(super) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A random duration in `from..=to`.
    pub(super) fn jitter(&mut self, from: Duration, to: Duration) -> Duration {
        let span = u64::try_from(to.saturating_sub(from).as_micros())
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        from + Duration::from_micros(self.random() % span)
    }

    pub(super) fn process_status(&mut self, state: ProcessState) -> Box<ProcessStatus> {
        self.stood += 1;
        Box::new(ProcessStatus {
            member: Member {
                id: self.voice,
                ..self.config.member()
            },
            number: self.stood,
            state,
        })
    }

    /// Whether the data threads hang. Then this node sends nothing from which others could infer
    /// that it works (rule 12).
    pub(super) fn hung(&self) -> bool {
        self.now.since(self.alive_at) > self.config.timing.lease * 2
            && !broken(&mutant::PINGS_THOUGH_HUNG)
    }
}

/// A table with its name. The name is costly to derive.
#[derive(Debug, Clone)]
pub(super) struct NamedTable {
    pub(super) name: TableName,
    pub(super) table: Arc<Table>,
}

impl NamedTable {
    pub(super) fn new(table: Arc<Table>) -> Self {
        Self {
            name: table.name(),
            table,
        }
    }
}

impl Deref for NamedTable {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.table
    }
}

/// The earlier of two times. Either may be missing.
pub(super) fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
