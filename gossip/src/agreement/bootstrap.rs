//! How the first cluster forms: from the initial members, unanimously, once.
//!
//! Every process sends its status to every seed. When the lists of initial members agree, the
//! process with the lowest id writes the first table. It needs the promise of every member of that
//! table. A promise excludes every other first table. It lapses in two cases: the writer says,
//! after it wrote the table, that it has dropped it; or a process answers at every founder's
//! address, and none of them is a member.

use super::api::Output;
use super::context::{Context, NamedTable};
use super::durable::{Accepting, Durable, Promise};
use super::event::Event;
use super::join::REFUSED_MAX;
use super::problem::{Problem, SearchFindings};
use crate::mutant::{self, broken};
use crate::time::Time;
use crate::wire::{Message, ProcessState, ProcessStatus};
use doyen_placement::level::{DURABILITY, LEVELS};
use doyen_placement::{ClusterId, Member, MemberId, TableName, Term, Version, planner};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// If a node was not told how many members form the first cluster, and its seeds do not tell
/// either, it looks for others this long before it begins a cluster by itself. That is common: a
/// service in Kubernetes or a scaled service of Docker Compose has one name, which is the seed of
/// every node. All nodes start together, and the addresses of the name appear one after the other,
/// within seconds.
const LOOK: Duration = Duration::from_secs(10);
/// If a node has heard a process with a lower id, which is to begin the cluster, it looks this many
/// times as long.
const LOOKS_WHILE_ANOTHER_IS_DUE: u32 = 2;
/// The shortest and the longest time between two looks behind the seeds.
const SCOUT: (Duration, Duration) = (Duration::from_millis(400), Duration::from_millis(800));
/// A process that was not heard for this long does not count.
const FRESH: Duration = Duration::from_secs(1);
/// The shortest and the longest time between two rounds of probes.
const PROBE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(250));
/// The time between two reports of what is missing.
const REPORT: Duration = Duration::from_secs(5);
/// The time after which a first table is sent again.
const RESEND: Duration = Duration::from_millis(100);
/// The number of processes that are remembered while forming.
const PEERS_MAX: usize = 256;
/// The number of processes that a probe lists.
pub(super) const LISTED_MAX: usize = 64;

/// A process that is part of no cluster yet.
#[derive(Debug)]
pub(super) struct Forming {
    started: Time,
    /// Since when it has been in doubt whether other nodes are behind the same seeds.
    doubtful: Option<Time>,
    scout_at: Time,
    probe_at: Time,
    report_at: Time,
    /// Whether nothing was missing at the last report.
    complete: bool,
    peers: BTreeMap<MemberId, PeerStatus>,
    /// The process that answered at each address.
    at: BTreeMap<SocketAddr, MemberId>,
    promise: Option<NamedTable>,
    founding: Option<Founding>,
    /// Addresses from gossip or from a former member. They serve to find a cluster, and never to
    /// form one.
    hinted: BTreeSet<SocketAddr>,
    /// Since when another process has had this one's name.
    namesake: Option<Time>,
}

#[derive(Debug)]
struct PeerStatus {
    status: ProcessStatus,
    at: Time,
}

/// The first table, before it is committed.
#[derive(Debug)]
struct Founding {
    table: NamedTable,
    promised: BTreeSet<MemberId>,
    resend_at: Time,
}

/// Why the processes that answer at the seeds may not be all that were started together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// No other process answers.
    Alone,
    /// This seed leads to a process that others reach at another address. A balancer does that, and
    /// leads other nodes elsewhere.
    Indirect(SocketAddr),
}

/// What a forming process becomes.
#[derive(Debug)]
pub(super) enum Formed {
    /// A cluster. This process wrote its first table.
    Founded(NamedTable),
    /// A cluster whose first table this process promised.
    Founder(NamedTable),
    /// A member of a living cluster was found.
    Found(ClusterId, MemberId, Version),
}

impl Forming {
    pub(super) fn new(cx: &Context) -> Self {
        Self {
            started: cx.now,
            doubtful: None,
            scout_at: cx.now,
            probe_at: cx.now,
            report_at: cx.now + REPORT / 2,
            complete: false,
            peers: BTreeMap::new(),
            at: BTreeMap::new(),
            promise: None,
            founding: None,
            hinted: BTreeSet::new(),
            namesake: None,
        }
    }

    /// A process whose directory has the promise of this first table.
    pub(super) fn promised(cx: &Context, table: NamedTable) -> Self {
        Self {
            promise: Some(table),
            ..Self::new(cx)
        }
    }

    /// Writes a first table that is to be promised.
    pub(super) fn store(&self, cx: &mut Context) {
        cx.store(|me, disk| {
            let Accepting {
                table, proposer, ..
            } = disk.accepting()?;
            Some(Durable {
                me,
                term: table.term,
                voted: Some(*proposer),
                committed: table.table.clone(),
                commit: None,
                committed_voters: table.voters.clone(),
                accepted: table.table.clone(),
                proposer: Some(*proposer),
                promised: true,
            })
        });
    }

    pub(super) fn timeout(&self) -> Option<Time> {
        self.founding.as_ref().map_or(Some(self.probe_at), |f| {
            Some(self.probe_at.min(f.resend_at))
        })
    }

    pub(super) fn identified(&mut self, address: SocketAddr, id: MemberId) {
        if self.at.len() < PEERS_MAX || self.at.contains_key(&address) {
            self.at.insert(address, id);
        }
    }

    pub(super) fn hinted(&mut self, cx: &Context, address: SocketAddr) {
        if self.hinted.len() >= LISTED_MAX {
            // Hinted addresses at which no process answers make room.
            let answers: BTreeSet<SocketAddr> = self
                .fresh_peers(cx)
                .map(|(_, s)| s.member.addresses.control)
                .collect();
            self.hinted.retain(|a| answers.contains(a));
        }
        if self.hinted.len() < LISTED_MAX {
            self.hinted.insert(address);
        }
    }

    /// The processes at the seeds, this one included, and the seeds that have not answered.
    fn initial(&self, cx: &Context) -> (BTreeSet<MemberId>, Vec<SocketAddr>) {
        let mut initial = BTreeSet::from([cx.me()]);
        let mut missing = Vec::new();
        for seed in &cx.config.seeds.addresses {
            match self.at.get(seed) {
                _ if *seed == cx.config.addresses.control => {}
                Some(id) if *id == cx.me() || self.fresh(cx, *id).is_some() => {
                    _ = initial.insert(*id)
                }
                Some(_) | None => missing.push(*seed),
            }
        }
        missing.sort_unstable();
        missing.dedup();
        (initial, missing)
    }

    fn fresh(&self, cx: &Context, id: MemberId) -> Option<&ProcessStatus> {
        self.peers
            .get(&id)
            .filter(|h| cx.now.since(h.at) <= FRESH)
            .map(|h| &h.status)
    }

    fn fresh_peers(&self, cx: &Context) -> impl Iterator<Item = (MemberId, &ProcessStatus)> {
        let now = cx.now;
        self.peers
            .iter()
            .filter(move |(_, h)| now.since(h.at) <= FRESH)
            .map(|(id, h)| (*id, &h.status))
    }

    /// A name that does not resolve yet counts too: the first cluster must not form without the
    /// node that it means.
    fn expect(&self, cx: &Context) -> u16 {
        let (initial, missing) = self.initial(cx);
        let all = initial.len() + missing.len() + cx.config.seeds.unresolved.len();
        cx.config
            .expect
            .unwrap_or_else(|| u16::try_from(all).unwrap_or(u16::MAX))
    }

    /// Seeds that lead to a process which others reach at another address.
    fn indirect(&self, cx: &Context) -> impl Iterator<Item = SocketAddr> {
        let own = cx.config.addresses.control;
        cx.config
            .seeds
            .addresses
            .iter()
            .copied()
            .filter(move |seed| {
                let there = self.at.get(seed).copied();
                let elsewhere = |id| {
                    self.peers
                        .get(&id)
                        .is_some_and(|h| h.status.member.addresses.control != *seed)
                };
                *seed != own && there.is_some_and(|id| id == cx.me() || elsewhere(id))
            })
    }

    /// Why the seeds cannot tell whether all nodes are here.
    fn doubt(&self, cx: &Context) -> Option<Doubt> {
        let seeds = &cx.config.seeds;
        if cx.config.expect.is_some() || seeds.is_none() {
            return None;
        }
        let indirect = self.indirect(cx).next();
        let alone =
            self.initial(cx).0.len() == 1 && (!seeds.names.is_empty() || indirect.is_some());
        if alone {
            Some(Doubt::Alone)
        } else {
            indirect.map(Doubt::Indirect)
        }
    }

    /// For how long this node looks for others before it begins a cluster by itself. Among nodes
    /// that know of each other, the one with the lowest id begins, and the others join it.
    fn looks_for(&self, cx: &Context) -> Duration {
        if self.is_to_begin(cx).is_some() {
            LOOK * LOOKS_WHILE_ANOTHER_IS_DUE
        } else {
            LOOK
        }
    }

    /// The process that is to begin a cluster by itself before this one does: the one that was
    /// heard since the look began, also if it is silent at the moment. A machine under load is
    /// silent for more than a second, and two nodes that then begin at the same time are soon two
    /// clusters, each with a member that found it first. The time limit holds if the process died.
    fn is_to_begin(&self, cx: &Context) -> Option<&Member> {
        let since = self.doubtful?;
        let begins =
            |s: &ProcessStatus| matches!(s.state, ProcessState::Forming { told: false, .. });
        let lower = self.peers.range(..cx.me());
        lower
            .filter(|(_, heard)| heard.at >= since && begins(&heard.status))
            .map(|(id, heard)| (id, &heard.status.member))
            // Another process may have taken its address: then it is gone.
            .find(|(id, member)| self.at.get(&member.addresses.control) == Some(*id))
            .map(|(_, member)| member)
    }

    /// How long it looks on for others. `None`: it does not look, or does not begin by itself.
    fn looks_until(&self, cx: &Context) -> Option<Time> {
        self.doubt(cx)
            .and(self.doubtful)
            .map(|since| since + self.looks_for(cx))
    }

    pub(super) fn process_state(&self, cx: &Context) -> ProcessState {
        let (initial, _) = self.initial(cx);
        let known = self.fresh_peers(cx);
        ProcessState::Forming {
            initial: initial.into_iter().take(LISTED_MAX).collect(),
            expect: self.expect(cx),
            told: cx.config.expect.is_some(),
            promise: self.promise.as_ref().map(|t| t.name),
            known: known
                .map(|(id, s)| (id, s.member.addresses.control))
                .take(LISTED_MAX)
                .collect(),
        }
    }

    /// Time passed, or a process was heard.
    pub(super) fn turn(&mut self, cx: &mut Context) -> Option<Formed> {
        let alone = cx.config.expect.is_none_or(|n| n == 1);
        if alone && cx.config.seeds.is_none() && self.hinted.is_empty() {
            return Some(Formed::Founded(self.first(cx, vec![cx.config.member()])));
        }
        self.lapse(cx);
        self.probe(cx);
        self.scout(cx);
        self.look(cx);
        if cx.now.since(self.started) >= cx.config.timing.listen {
            if let Some(formed) = self.found(cx) {
                return Some(formed);
            }
            self.give_way(cx);
            self.report(cx);
        }
        None
    }

    /// Notes since when it has been in doubt whether all nodes are here.
    fn look(&mut self, cx: &Context) {
        if !cx.config.seeds.unresolved.is_empty() {
            // A name may resolve in a moment. The time begins only then.
            self.doubtful = None;
        } else if self.doubt(cx).is_none() {
            self.doubtful = None;
        } else if self.doubtful.is_none() {
            self.doubtful = Some(cx.now);
            // The wait is reported as soon as it begins.
            self.report_at = self.report_at.min(self.started + cx.config.timing.listen);
        }
    }

    /// Two living processes of one name can form no cluster. One of them ends, so that its operator
    /// learns of it.
    fn give_way(&mut self, cx: &mut Context) {
        let Some(other) = self.namesake(cx) else {
            return self.namesake = None;
        };
        let (younger, problem) = (other.id < cx.me(), name_taken(cx, other));
        let since = *self.namesake.get_or_insert(cx.now);
        if younger && cx.now.since(since) >= REFUSED_MAX {
            cx.outputs.push_back(Output::Fatal(cx.explain(&problem)));
        }
    }

    fn namesake(&self, cx: &Context) -> Option<&Member> {
        let others = self
            .peers
            .iter()
            .filter(|(id, heard)| **id != cx.me() && cx.now.since(heard.at) <= FRESH);
        others
            .map(|(_, heard)| &heard.status.member)
            .find(|m| m.name == cx.config.name)
    }

    fn probe(&mut self, cx: &mut Context) {
        if self.probe_at > cx.now {
            return;
        }
        self.probe_at = cx.now + cx.jitter(PROBE.0, PROBE.1);
        let mut addresses: BTreeSet<SocketAddr> = cx
            .config
            .seeds
            .addresses
            .iter()
            .chain(&self.hinted)
            .copied()
            .collect();
        if cx.config.expect.is_some() {
            addresses.extend(
                self.peers
                    .values()
                    .map(|h| h.status.member.addresses.control),
            );
        }
        if let Some(promise) = &self.promise {
            addresses.extend(promise.members.iter().map(|m| m.addresses.control));
        }
        addresses.remove(&cx.config.addresses.control);
        addresses.retain(|a| self.at.get(a) != Some(&cx.me()));
        let state = self.process_state(cx);
        let status = cx.process_status(state);
        for address in addresses {
            cx.dial(address, Message::Probe(status.clone()));
        }
    }

    /// If a seed leads to an address that is not its own, there may be more processes behind it.
    fn scout(&mut self, cx: &mut Context) {
        if self.scout_at > cx.now {
            return;
        }
        self.scout_at = cx.now + cx.jitter(SCOUT.0, SCOUT.1);
        let seeds: Vec<SocketAddr> = self.indirect(cx).collect();
        cx.outputs.extend(seeds.into_iter().map(Output::Scout));
    }

    /// A process sends its status.
    pub(super) fn hear(
        &mut self,
        cx: &mut Context,
        from: MemberId,
        status: ProcessStatus,
    ) -> Option<Formed> {
        if let ProcessState::Member {
            cluster, version, ..
        } = &status.state
        {
            return self.living((*cluster, *version), from, &status.member);
        }
        if let ProcessState::Forming { known, .. } = &status.state
            && cx.config.expect.is_some()
        {
            // If the number of members is given, founders may be processes that only another
            // process has heard.
            known
                .iter()
                .for_each(|(_, address)| self.hinted(cx, *address));
        }
        if self
            .peers
            .get(&from)
            .is_some_and(|h| h.status.number > status.number)
        {
            // It is older than the last status of that process.
            return None;
        }
        if self.peers.len() >= PEERS_MAX && !self.peers.contains_key(&from) {
            self.peers.retain(|_, h| cx.now.since(h.at) <= FRESH);
        }
        if self.peers.len() < PEERS_MAX {
            self.at.insert(status.member.addresses.control, from);
            self.peers.insert(from, PeerStatus { status, at: cx.now });
        }
        None
    }

    /// There is a living cluster.
    fn living(
        &mut self,
        (cluster, version): (ClusterId, Version),
        from: MemberId,
        member: &Member,
    ) -> Option<Formed> {
        if let Some(promise) = &self.promise {
            if promise.cluster == cluster {
                return Some(Formed::Founder(promise.clone()));
            }
            // A founder that is a member elsewhere never promised, so that first table cannot be
            // committed.
            let founder = promise
                .members
                .iter()
                .any(|m| m.id == from || m.addresses.control == member.addresses.control);
            if !founder {
                return None;
            }
        }
        Some(Formed::Found(cluster, from, version))
    }

    /// A process speaks as a member of the cluster whose first table this process promised. So that
    /// table is committed.
    pub(super) fn confirmed(&self, cluster: ClusterId) -> Option<NamedTable> {
        self.promise.clone().filter(|t| t.cluster == cluster)
    }

    fn first(&self, cx: &mut Context, founders: Vec<Member>) -> NamedTable {
        let cluster = ClusterId(u128::from(cx.random()) << 64 | u128::from(cx.random()) | 1);
        // If a founder has not said hello, its level is unknown: the cluster's level rises later.
        let speaks = |m: &Member| cx.speaks(m.id).unwrap_or(LEVELS.0);
        let level = founders.iter().map(speaks).min().unwrap_or(LEVELS.0);
        let mut table = planner::first(
            cluster,
            cx.config.settings.clone(),
            cx.config.default_keyspace.clone(),
            founders,
        );
        (table.term, table.version, table.order_key) = (Term(1), Version(1), cx.config.order_key);
        for member in &mut table.members {
            let (key, start) = (cx.vote_key(member.id), cx.start(member.id, member.id));
            let member = Arc::make_mut(member);
            (member.vote_key, member.start) = (key, start.filter(|_| level >= DURABILITY));
        }
        // It is not shown `at_level`: a durability that some do not speak must not be dropped.
        table.level = level;
        NamedTable::new(Arc::new(table))
    }

    /// Whether these are founders that this process agrees to.
    fn agrees(&self, cx: &Context, founders: &BTreeSet<MemberId>) -> bool {
        let (initial, missing) = self.initial(cx);
        if !founders.contains(&cx.me()) {
            return false;
        }
        match cx.config.expect {
            // This node was told to go ahead alone. If there is a cluster after all, one of the two
            // gives way.
            Some(1) => founders.len() == 1,
            None => {
                missing.is_empty()
                    && cx.config.seeds.unresolved.is_empty()
                    && self.doubt(cx).is_none()
                    && *founders == initial
            }
            Some(expect) if founders.len() == usize::from(expect) => {
                // A process does not dial its own address.
                let at = |s: &SocketAddr| {
                    if *s == cx.config.addresses.control {
                        Some(cx.me())
                    } else {
                        self.at.get(s).copied()
                    }
                };
                let seeds: BTreeSet<MemberId> =
                    cx.config.seeds.addresses.iter().filter_map(at).collect();
                let among = seeds.intersection(founders).count();
                let missing = missing.len() + cx.config.seeds.unresolved.len();
                let all = seeds.len() + missing;
                // Two first tables must share a seed: all of them, or at least more than half.
                let most =
                    among * 2 > all || (among * 2 == all && broken(&mutant::FOUNDS_WITH_HALF));
                if all <= usize::from(expect) {
                    missing == 0 && among == seeds.len()
                } else {
                    most
                }
            }
            Some(_) => false,
        }
    }

    /// The founders, if all that are needed are here and agree.
    fn founders(&self, cx: &Context) -> Option<BTreeSet<MemberId>> {
        let (initial, missing) = self.initial(cx);
        if self.doubt(cx).is_some() {
            let looked =
                missing.is_empty() && self.looks_until(cx).is_some_and(|until| until <= cx.now);
            return looked.then(|| BTreeSet::from([cx.me()]));
        }
        let expect = usize::from(self.expect(cx));
        let mut founders = initial;
        if let Some(n) = cx.config.expect {
            let same = |h: &&PeerStatus| {
                matches!(
                    h.status.state,
                    ProcessState::Forming { told: true, expect, .. } if expect == n
                )
            };
            let others = self
                .peers
                .iter()
                .filter(|(_, h)| cx.now.since(h.at) <= FRESH && same(h))
                .map(|(id, _)| *id);
            for other in others {
                if founders.len() < expect {
                    founders.insert(other);
                }
            }
            while founders.len() > expect {
                let last = founders.iter().copied().rfind(|m| *m != cx.me())?;
                founders.remove(&last);
            }
        }
        let agree = |id: &MemberId| {
            *id == cx.me()
                || self.fresh(cx, *id).is_some_and(|s| match &s.state {
                    ProcessState::Forming {
                        initial,
                        expect: theirs,
                        told,
                        ..
                    } => {
                        usize::from(*theirs) == expect
                            && (*told
                                || initial.iter().copied().collect::<BTreeSet<_>>() == founders)
                    }
                    ProcessState::Joining | ProcessState::Member { .. } => false,
                })
        };
        (founders.len() == expect && self.agrees(cx, &founders) && founders.iter().all(agree))
            .then_some(founders)
    }

    fn found(&mut self, cx: &mut Context) -> Option<Formed> {
        if let Some(founding) = &self.founding {
            if founding.resend_at <= cx.now {
                self.send_first(cx);
            }
            return None;
        }
        if self.promise.is_some() {
            return None;
        }
        let founders = self.founders(cx)?;
        if founders.first() != Some(&cx.me()) {
            return None;
        }
        let place = |m: &Member| {
            cx.config
                .seeds
                .addresses
                .iter()
                .position(|s| *s == m.addresses.control)
                .unwrap_or(usize::MAX)
        };
        let member = |id: &MemberId| {
            if *id == cx.me() {
                Some(cx.config.member())
            } else {
                self.fresh(cx, *id).map(|s| s.member.clone())
            }
        };
        let mut members: Vec<Member> = founders.iter().filter_map(member).collect();
        // The writer of the table coordinates first, so it is the oldest.
        members.sort_by_key(|m| (m.id != cx.me(), place(m), m.id));
        let table = self.first(cx, members);
        let valid = table.validate().map_err(Problem::NoFirstTable);
        let valid = valid.and_then(|()| Ok(planner::check_directories(&table)?));
        if let Err(problem) = valid {
            cx.event(Event::NoCoordinator {
                why: cx.explain(&problem),
            });
            self.report_at = cx.now + REPORT;
            self.started = cx.now;
            return None;
        }
        if founders.len() == 1 {
            if let Some(doubt) = self.doubt(cx) {
                cx.event(Event::note(self.why_alone(cx, doubt)));
            }
            return Some(Formed::Founded(table));
        }
        self.promise = Some(table.clone());
        self.founding = Some(Founding {
            table,
            promised: BTreeSet::from([cx.me()]),
            resend_at: cx.now,
        });
        self.found(cx)
    }

    /// Why this node begins a cluster by itself although others may be there: for people.
    fn why_alone(&self, cx: &Context, doubt: Doubt) -> String {
        let looked = self
            .doubtful
            .map_or(Duration::ZERO, |since| cx.now.since(since))
            .as_secs();
        let found = match doubt {
            Doubt::Alone => SearchFindings::Nothing {
                seeds: seeds_of(cx),
                looked: Some(looked),
            },
            Doubt::Indirect(seed) => {
                let others = self
                    .fresh_peers(cx)
                    .map(|(_, s)| s.member.name.clone())
                    .collect();
                SearchFindings::Elsewhere {
                    seed,
                    looked: Some((others, looked)),
                }
            }
        };
        cx.explain(&Problem::BeginsAlone { found })
    }

    /// Sends the first table to founders that have not promised it.
    fn send_first(&mut self, cx: &mut Context) {
        let state = self.process_state(cx);
        let status = cx.process_status(state);
        let Some(Founding {
            table,
            promised,
            resend_at,
        }) = &mut self.founding
        else {
            return;
        };
        *resend_at = cx.now + RESEND;
        for member in table.members.iter().filter(|m| !promised.contains(&m.id)) {
            cx.send(
                member.id,
                Message::Found {
                    table: table.table.clone(),
                    status: status.clone(),
                },
            );
        }
    }

    /// The first table of another process.
    pub(super) fn on_found(&mut self, cx: &mut Context, from: MemberId, table: NamedTable) {
        let founders: BTreeSet<MemberId> = table.members.iter().map(|m| m.id).collect();
        let pursues = |s: &ProcessStatus| {
            matches!(
                s.state,
                ProcessState::Forming { promise, .. } if promise == Some(table.name)
            )
        };
        let pursued = self.fresh(cx, from).is_some_and(pursues) || broken(&mutant::HEARS_OLD_WORDS);
        let sound = table.term == Term(1)
            && table.version == Version(1)
            && table.validate().is_ok()
            && founders.first() == Some(&from);
        let free = self.promise.as_ref().is_none_or(|p| p.name == table.name)
            || broken(&mutant::PROMISES_TWICE);
        let listened = cx.now.since(self.started) >= cx.config.timing.listen;
        if !sound || !pursued || !listened || !free || !self.agrees(cx, &founders) {
            return cx.ignore();
        }
        let name = table.name;
        let accepting = || Accepting {
            table: table.clone(),
            proposer: from,
            committed_voters: table.voters.clone(),
        };
        match cx.promise_table(accepting) {
            Promise::Kept => {}
            // Its writer sends it again.
            Promise::Awaited | Promise::Excluded => return,
        }
        self.promise = Some(table);
        cx.send(from, Message::Promise(name));
    }

    pub(super) fn on_promise(&mut self, from: MemberId, name: TableName) -> Option<Formed> {
        let founding = self.founding.as_mut().filter(|f| f.table.name == name)?;
        founding.promised.insert(from);
        let all = founding
            .table
            .members
            .iter()
            .all(|m| founding.promised.contains(&m.id));
        let most = broken(&mutant::FOUNDS_WITH_MOST)
            && founding.promised.len() * 2 > founding.table.members.len();
        (all || most).then(|| Formed::Founded(founding.table.clone()))
    }

    /// Drops a first table that cannot come to be.
    fn lapse(&mut self, cx: &mut Context) {
        let Some(promise) = &self.promise else { return };
        let replaced = |m: &Member| {
            self.at
                .get(&m.addresses.control)
                .is_some_and(|id| *id != m.id && self.fresh(cx, *id).is_some())
        };
        let others = || promise.members.iter().filter(|m| m.id != cx.me());
        let drop = if self.founding.is_some() {
            others().any(|m| replaced(m) || self.fresh(cx, m.id).is_none())
        } else {
            let writer = promise.members.iter().map(|m| m.id).min();
            let pursues = |m: &Member| match self.fresh(cx, m.id).map(|s| &s.state) {
                Some(ProcessState::Forming {
                    promise: theirs, ..
                }) => Some(m.id) == writer && *theirs == Some(promise.name),
                Some(ProcessState::Joining) => false,
                Some(ProcessState::Member { .. }) | None => true,
            };
            // `hear` drops every status of the writer that is older than the table.
            let dropped = others().any(|m| Some(m.id) == writer && !pursues(m));
            dropped || others().all(|m| replaced(m) || !pursues(m))
        };
        if drop {
            (self.promise, self.founding) = (None, None);
            cx.rename(cx.process());
        }
    }

    fn report(&mut self, cx: &mut Context) {
        if self.report_at > cx.now {
            return;
        }
        self.report_at = cx.now + REPORT;
        // If nothing is missing, there is nothing to say, unless it stays so until the next report.
        let obstacle = self.obstacle(cx);
        let was = std::mem::replace(&mut self.complete, obstacle.is_none());
        let problem = match obstacle {
            Some(problem) => problem,
            None if was => self.not_agreed(cx, true),
            None => return,
        };
        cx.event(Event::NoCoordinator {
            why: cx.explain(&problem),
        });
    }

    /// Why no cluster begins.
    pub(super) fn problem(&self, cx: &Context) -> Problem {
        let obstacle = self.obstacle(cx);
        obstacle.unwrap_or_else(|| self.not_agreed(cx, false))
    }

    fn not_agreed(&self, cx: &Context, late: bool) -> Problem {
        Problem::NotAgreed {
            present: self.names(cx),
            expect: self.expect(cx),
            late,
        }
    }

    /// This node, and the processes that will form a cluster with it, as far as they were heard
    /// lately.
    fn names(&self, cx: &Context) -> Vec<String> {
        let (initial, _) = self.initial(cx);
        let expect = self.expect(cx);
        let told = |s: &ProcessStatus| {
            matches!(
                s.state,
                ProcessState::Forming { told: true, expect: theirs, .. } if theirs == expect
            )
        };
        let others = self
            .fresh_peers(cx)
            .filter(|(id, s)| initial.contains(id) || told(s))
            .map(|(_, s)| s.member.name.clone());
        std::iter::once(cx.config.name.clone())
            .chain(others)
            .collect()
    }

    /// What is missing before a first cluster can begin. `None`: nothing is missing, and the
    /// initial members are agreeing.
    fn obstacle(&self, cx: &Context) -> Option<Problem> {
        if let Some(other) = self.namesake(cx) {
            return Some(name_taken(cx, other));
        }
        let (initial, missing) = self.initial(cx);
        let expect = self.expect(cx);
        let unresolved = &cx.config.seeds.unresolved;
        if !missing.is_empty() || !unresolved.is_empty() {
            return Some(Problem::SeedsMissing {
                present: initial.len(),
                expect,
                silent: missing.into_iter().collect(),
                unresolved: unresolved.clone(),
            });
        }
        if let Some(until) = self.looks_until(cx) {
            let found = match self.doubt(cx) {
                Some(Doubt::Indirect(seed)) => SearchFindings::Elsewhere { seed, looked: None },
                Some(Doubt::Alone) | None => SearchFindings::Nothing {
                    seeds: seeds_of(cx),
                    looked: None,
                },
            };
            return Some(Problem::StillLooking {
                found,
                first: self.is_to_begin(cx).map(|other| other.name.clone()),
                seconds: until.since(cx.now).as_secs() + 1,
            });
        }
        for (id, heard) in &self.peers {
            if let ProcessState::Forming {
                initial: theirs,
                expect: other,
                ..
            } = &heard.status.state
                && initial.contains(id)
                && (*other != expect
                    || (cx.config.expect.is_none()
                        && theirs.iter().copied().collect::<BTreeSet<_>>() != initial))
            {
                return Some(Problem::OtherInitialMembers {
                    name: heard.status.member.name.clone(),
                    theirs: (theirs.len(), *other),
                    ours: (initial.len(), expect),
                });
            }
        }
        let present = self.names(cx);
        (present.len() < usize::from(expect)).then_some(Problem::MembersMissing { present, expect })
    }
}

/// The seeds as they were given: names, or else addresses.
fn seeds_of(cx: &Context) -> String {
    let seeds = &cx.config.seeds;
    let addresses = seeds
        .addresses
        .iter()
        .map(ToString::to_string)
        .filter(|_| seeds.names.is_empty());
    seeds
        .names
        .iter()
        .cloned()
        .chain(addresses)
        .collect::<Vec<_>>()
        .join(", ")
}

/// This process and another living one have the same name.
fn name_taken(cx: &Context, other: &Member) -> Problem {
    Problem::NameTaken {
        name: cx.config.name.clone(),
        at: other.addresses.control,
    }
}
