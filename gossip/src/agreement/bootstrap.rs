//! How the first cluster forms: from the configured initial members, unanimously, once.
//!
//! Every process says how it stands to every seed. When the lists agree, the process with the lowest id writes the first
//! table and needs the promise of everybody in it. A promise excludes every other first table; it lapses only when whoever
//! wrote the table says, after that, that it has dropped it, or when every founder's address answers and nobody there is a member.

use super::api::Output;
use super::context::{Context, Named};
use super::event::Event;
use super::join::REFUSED_MAX;
use crate::time::Time;
use crate::wire::{Message, Stand, Standing};
use doyen_placement::mutant::{Mutant, broken};
use doyen_placement::{ClusterId, Member, MemberId, TableName, Term, Version, planner};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Whoever was not heard for this long is not counted on.
const FRESH: Duration = Duration::from_secs(1);
/// Between two rounds of probes, at least and at most.
const PROBE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(250));
/// Between two reports of what is missing.
const REPORT: Duration = Duration::from_secs(5);
/// A first table is sent again after this long.
const RESEND: Duration = Duration::from_millis(100);
/// Processes that are remembered while forming.
const PEERS_MAX: usize = 256;
/// Processes that a probe lists.
pub(super) const LISTED_MAX: usize = 64;

/// A process that is part of nothing yet.
#[derive(Debug)]
pub(super) struct Forming {
    started: Time,
    probe_at: Time,
    report_at: Time,
    peers: BTreeMap<MemberId, Heard>,
    /// Who answered at which address.
    at: BTreeMap<SocketAddr, MemberId>,
    promise: Option<Named>,
    founding: Option<Founding>,
    /// Addresses from gossip or from a former life: never to form a cluster with, only to find one.
    hinted: BTreeSet<SocketAddr>,
    /// Since when another process has borne this one's name.
    namesake: Option<Time>,
}

#[derive(Debug)]
struct Heard {
    standing: Standing,
    at: Time,
}

/// The first table, on its way.
#[derive(Debug)]
struct Founding {
    table: Named,
    promised: BTreeSet<MemberId>,
    resend_at: Time,
}

/// What comes next.
#[derive(Debug)]
pub(super) enum Formed {
    /// A cluster of which this process wrote the first table.
    Founded(Named),
    /// A cluster whose first table this process promised.
    Founder(Named),
    /// A living cluster, and who is in it.
    Found(ClusterId, MemberId, Version),
}

impl Forming {
    pub(super) fn new(cx: &Context) -> Self {
        Self {
            started: cx.now,
            probe_at: cx.now,
            report_at: cx.now + REPORT / 2,
            peers: BTreeMap::new(),
            at: BTreeMap::new(),
            promise: None,
            founding: None,
            hinted: BTreeSet::new(),
            namesake: None,
        }
    }

    pub(super) fn timeout(&self) -> Option<Time> {
        self.founding.as_ref().map_or(Some(self.probe_at), |f| Some(self.probe_at.min(f.resend_at)))
    }

    pub(super) fn identified(&mut self, address: SocketAddr, id: MemberId) {
        if self.at.len() < PEERS_MAX || self.at.contains_key(&address) {
            self.at.insert(address, id);
        }
    }

    pub(super) fn hinted(&mut self, address: SocketAddr) {
        if self.hinted.len() < LISTED_MAX {
            self.hinted.insert(address);
        }
    }

    /// The processes at the seeds with oneself among them, and the seeds that have not answered.
    fn initial(&self, cx: &Context) -> (BTreeSet<MemberId>, Vec<SocketAddr>) {
        let mut initial = BTreeSet::from([cx.me()]);
        let mut missing = Vec::new();
        for seed in &cx.config.seeds {
            match self.at.get(seed) {
                _ if *seed == cx.config.addresses.control => {}
                Some(id) if *id == cx.me() || self.fresh(cx, *id).is_some() => _ = initial.insert(*id),
                Some(_) | None => missing.push(*seed),
            }
        }
        missing.sort_unstable();
        missing.dedup();
        (initial, missing)
    }

    fn fresh(&self, cx: &Context, id: MemberId) -> Option<&Standing> {
        self.peers.get(&id).filter(|h| cx.now.since(h.at) <= FRESH).map(|h| &h.standing)
    }

    fn expect(&self, cx: &Context) -> u16 {
        let (initial, missing) = self.initial(cx);
        cx.config.expect.unwrap_or_else(|| u16::try_from(initial.len() + missing.len()).unwrap_or(u16::MAX))
    }

    pub(super) fn stand(&self, cx: &Context) -> Stand {
        let (initial, _) = self.initial(cx);
        let known = self.peers.iter().filter(|(_, h)| cx.now.since(h.at) <= FRESH);
        Stand::Forming {
            initial: initial.into_iter().take(LISTED_MAX).collect(),
            expect: self.expect(cx),
            told: cx.config.expect.is_some(),
            promise: self.promise.as_ref().map(|t| t.name),
            known: known.map(|(id, h)| (*id, h.standing.member.addresses.control)).take(LISTED_MAX).collect(),
        }
    }

    /// Time passed, or somebody was heard.
    pub(super) fn turn(&mut self, cx: &mut Context) -> Option<Formed> {
        let alone = cx.config.expect.is_none_or(|n| n == 1);
        if alone && cx.config.seeds.is_empty() && self.hinted.is_empty() {
            return Some(Formed::Founded(self.first(cx, vec![cx.member()])));
        }
        self.lapse(cx);
        self.probe(cx);
        if cx.now.since(self.started) >= cx.config.timing.listen {
            if let Some(formed) = self.found(cx) {
                return Some(formed);
            }
            self.give_way(cx);
            self.report(cx);
        }
        None
    }

    /// Two living processes of one name can form no cluster. One of them ends, so that its operator learns of it.
    fn give_way(&mut self, cx: &mut Context) {
        let Some(other) = self.namesake(cx) else { return self.namesake = None };
        let (younger, why) = (other.id < cx.me(), name_taken(&cx.config.name, other));
        let since = *self.namesake.get_or_insert(cx.now);
        if younger && cx.now.since(since) >= REFUSED_MAX {
            cx.outputs.push_back(Output::Fatal(why));
        }
    }

    fn namesake(&self, cx: &Context) -> Option<&Member> {
        let others = self.peers.iter().filter(|(id, heard)| **id != cx.me() && cx.now.since(heard.at) <= FRESH);
        others.map(|(_, heard)| &heard.standing.member).find(|m| m.name == cx.config.name)
    }

    fn probe(&mut self, cx: &mut Context) {
        if self.probe_at > cx.now {
            return;
        }
        self.probe_at = cx.now + cx.jitter(PROBE.0, PROBE.1);
        let mut addresses: BTreeSet<SocketAddr> = cx.config.seeds.iter().chain(&self.hinted).copied().collect();
        if cx.config.expect.is_some() {
            addresses.extend(self.peers.values().map(|h| h.standing.member.addresses.control));
        }
        if let Some(promise) = &self.promise {
            addresses.extend(promise.members.iter().map(|m| m.addresses.control));
        }
        addresses.remove(&cx.config.addresses.control);
        addresses.retain(|a| self.at.get(a) != Some(&cx.me()));
        let stand = self.stand(cx);
        let standing = cx.standing(stand);
        for address in addresses {
            cx.dial(address, Message::Probe(standing.clone()));
        }
    }

    /// Somebody says how it stands.
    pub(super) fn hear(&mut self, cx: &mut Context, from: MemberId, standing: Standing) -> Option<Formed> {
        if let Stand::Member { cluster, version, .. } = &standing.state {
            return self.living((*cluster, *version), from, &standing.member);
        }
        if let Stand::Forming { known, .. } = &standing.state
            && cx.config.expect.is_some()
        {
            // With a number to wait for, founders may be strangers that only somebody else has heard.
            known.iter().for_each(|(_, address)| self.hinted(*address));
        }
        if self.peers.get(&from).is_some_and(|h| h.standing.number > standing.number) {
            // It was said before what was heard last.
            return None;
        }
        if self.peers.len() >= PEERS_MAX && !self.peers.contains_key(&from) {
            self.peers.retain(|_, h| cx.now.since(h.at) <= FRESH);
        }
        if self.peers.len() < PEERS_MAX {
            self.at.insert(standing.member.addresses.control, from);
            self.peers.insert(from, Heard { standing, at: cx.now });
        }
        None
    }

    /// A living cluster is there.
    fn living(&mut self, (cluster, version): (ClusterId, Version), from: MemberId, member: &Member) -> Option<Formed> {
        if let Some(promise) = &self.promise {
            if promise.cluster == cluster {
                return Some(Formed::Founder(promise.clone()));
            }
            // A founder that is a member elsewhere never promised, so that first table cannot be committed.
            let founder = promise.members.iter().any(|m| m.id == from || m.addresses.control == member.addresses.control);
            if !founder {
                return None;
            }
        }
        Some(Formed::Found(cluster, from, version))
    }

    /// Somebody speaks as a member of the cluster whose first table this process promised: then that table is committed.
    pub(super) fn confirmed(&self, cluster: ClusterId) -> Option<Named> {
        self.promise.clone().filter(|t| t.cluster == cluster)
    }

    fn first(&self, cx: &mut Context, founders: Vec<Member>) -> Named {
        let cluster = ClusterId(u128::from(cx.random()) << 64 | u128::from(cx.random()));
        let mut table = planner::first(cluster, cx.config.settings.clone(), cx.config.default_keyspace.clone(), founders);
        (table.term, table.version) = (Term(1), Version(1));
        Named::new(Arc::new(table))
    }

    /// Whether these are founders that this process agrees to.
    fn agrees(&self, cx: &Context, founders: &BTreeSet<MemberId>) -> bool {
        let (initial, missing) = self.initial(cx);
        if !founders.contains(&cx.me()) {
            return false;
        }
        match cx.config.expect {
            // Told to go ahead alone: should a cluster be there after all, one of the two gives way.
            Some(1) => founders.len() == 1,
            None => missing.is_empty() && *founders == initial,
            Some(expect) if founders.len() == usize::from(expect) => {
                // Nobody dials the address that it has itself.
                let at = |s: &SocketAddr| if *s == cx.config.addresses.control { Some(cx.me()) } else { self.at.get(s).copied() };
                let seeds: BTreeSet<MemberId> = cx.config.seeds.iter().filter_map(at).collect();
                let among = seeds.intersection(founders).count();
                let all = seeds.len() + missing.len();
                // Two first tables must share a seed: all of them, or at least more than half.
                let most = among * 2 > all || (among * 2 == all && broken(Mutant::FoundsWithHalf));
                if all <= usize::from(expect) { missing.is_empty() && among == seeds.len() } else { most }
            }
            Some(_) => false,
        }
    }

    /// The founders, if everybody that is needed is here and agrees.
    fn founders(&self, cx: &Context) -> Option<BTreeSet<MemberId>> {
        let (initial, _) = self.initial(cx);
        let expect = usize::from(self.expect(cx));
        let mut founders = initial;
        if let Some(n) = cx.config.expect {
            let same = |h: &&Heard| matches!(h.standing.state, Stand::Forming { told: true, expect, .. } if expect == n);
            let others = self.peers.iter().filter(|(_, h)| cx.now.since(h.at) <= FRESH && same(h)).map(|(id, _)| *id);
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
                    Stand::Forming { initial, expect: theirs, told, .. } => {
                        usize::from(*theirs) == expect && (*told || initial.iter().copied().collect::<BTreeSet<_>>() == founders)
                    }
                    Stand::Joining | Stand::Member { .. } => false,
                })
        };
        (founders.len() == expect && self.agrees(cx, &founders) && founders.iter().all(agree)).then_some(founders)
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
        let place = |m: &Member| cx.config.seeds.iter().position(|s| *s == m.addresses.control).unwrap_or(usize::MAX);
        let member = |id: &MemberId| if *id == cx.me() { Some(cx.member()) } else { self.fresh(cx, *id).map(|s| s.member.clone()) };
        let mut members: Vec<Member> = founders.iter().filter_map(member).collect();
        // Who writes the table coordinates first, so it is the oldest.
        members.sort_by_key(|m| (m.id != cx.me(), place(m), m.id));
        let table = self.first(cx, members);
        if let Err(why) = table.validate() {
            cx.event(Event::NoCoordinator { why: format!("the initial members cannot form a cluster: {why}") });
            self.report_at = cx.now + REPORT;
            self.started = cx.now;
            return None;
        }
        if founders.len() == 1 {
            return Some(Formed::Founded(table));
        }
        self.promise = Some(table.clone());
        self.founding = Some(Founding { table, promised: BTreeSet::from([cx.me()]), resend_at: cx.now });
        self.found(cx)
    }

    /// Sends the first table to whoever has not promised it.
    fn send_first(&mut self, cx: &mut Context) {
        let stand = self.stand(cx);
        let standing = cx.standing(stand);
        let Some(Founding { table, promised, resend_at }) = &mut self.founding else { return };
        *resend_at = cx.now + RESEND;
        for member in table.members.iter().filter(|m| !promised.contains(&m.id)) {
            cx.send(member.id, Message::Found { table: table.table.clone(), standing: standing.clone() });
        }
    }

    /// The first table of somebody else.
    pub(super) fn on_found(&mut self, cx: &mut Context, from: MemberId, table: Named) {
        let founders: BTreeSet<MemberId> = table.members.iter().map(|m| m.id).collect();
        let pursues = |s: &Standing| matches!(s.state, Stand::Forming { promise, .. } if promise == Some(table.name));
        let pursued = self.fresh(cx, from).is_some_and(pursues) || broken(Mutant::HearsOldWords);
        let sound = table.term == Term(1) && table.version == Version(1) && table.validate().is_ok() && founders.first() == Some(&from);
        let free = self.promise.as_ref().is_none_or(|p| p.name == table.name) || broken(Mutant::PromisesTwice);
        let listened = cx.now.since(self.started) >= cx.config.timing.listen;
        if !sound || !pursued || !listened || !free || !self.agrees(cx, &founders) {
            return cx.ignore();
        }
        let name = table.name;
        self.promise = Some(table);
        cx.send(from, Message::Promise(name));
    }

    pub(super) fn on_promise(&mut self, from: MemberId, name: TableName) -> Option<Formed> {
        let founding = self.founding.as_mut().filter(|f| f.table.name == name)?;
        founding.promised.insert(from);
        let all = founding.table.members.iter().all(|m| founding.promised.contains(&m.id));
        let most = broken(Mutant::FoundsWithMost) && founding.promised.len() * 2 > founding.table.members.len();
        (all || most).then(|| Formed::Founded(founding.table.clone()))
    }

    /// Drops a first table that cannot come to be.
    fn lapse(&mut self, cx: &Context) {
        let Some(promise) = &self.promise else { return };
        let replaced = |m: &Member| self.at.get(&m.addresses.control).is_some_and(|id| *id != m.id && self.fresh(cx, *id).is_some());
        let others = || promise.members.iter().filter(|m| m.id != cx.me());
        let drop = if self.founding.is_some() {
            others().any(|m| replaced(m) || self.fresh(cx, m.id).is_none())
        } else {
            let writer = promise.members.iter().map(|m| m.id).min();
            let pursues = |m: &Member| match self.fresh(cx, m.id).map(|s| &s.state) {
                Some(Stand::Forming { promise: theirs, .. }) => Some(m.id) == writer && *theirs == Some(promise.name),
                Some(Stand::Joining) => false,
                Some(Stand::Member { .. }) | None => true,
            };
            // Nothing older than the table itself is among what was heard of whoever wrote it (`hear`).
            let dropped = others().any(|m| Some(m.id) == writer && !pursues(m));
            dropped || others().all(|m| replaced(m) || !pursues(m))
        };
        if drop {
            (self.promise, self.founding) = (None, None);
        }
    }

    fn report(&mut self, cx: &mut Context) {
        if self.report_at > cx.now {
            return;
        }
        self.report_at = cx.now + REPORT;
        cx.event(Event::NoCoordinator { why: self.waiting(cx) });
    }

    /// Why nothing happens: for people.
    pub(super) fn waiting(&self, cx: &Context) -> String {
        if let Some(other) = self.namesake(cx) {
            return name_taken(&cx.config.name, other);
        }
        let (initial, missing) = self.initial(cx);
        if !missing.is_empty() {
            let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
            return format!("these seeds do not answer: {}", missing.join(", "));
        }
        let expect = self.expect(cx);
        for (id, heard) in &self.peers {
            if let Stand::Forming { initial: theirs, expect: other, .. } = &heard.standing.state
                && initial.contains(id)
                && (*other != expect || (cx.config.expect.is_none() && theirs.iter().copied().collect::<BTreeSet<_>>() != initial))
            {
                let (name, mine, count) = (&heard.standing.member.name, initial.len(), theirs.len());
                return format!("{name} has another list of initial members ({count} of {other}) than this node ({mine} of {expect})");
            }
        }
        format!("{} of {expect} initial members are here", initial.len())
    }
}

/// What a process is told whose name another one has.
pub(super) fn name_taken(name: &str, other: &Member) -> String {
    format!("the name {name} is taken by the node at {}; choose another with --name", other.addresses.control)
}
