//! How the first cluster forms: from the configured initial members, unanimously, once.
//!
//! Every process says how it stands to every seed. When the lists agree, the process with the
//! lowest id writes the first table and needs the promise of everybody in it. A promise excludes
//! every other first table; it lapses only when whoever wrote the table says, after that, that it
//! has dropped it, or when every founder's address answers and nobody there is a member.

use super::api::Output;
use super::context::{Context, Named};
use super::event::Event;
use super::join::REFUSED_MAX;
use crate::mutant::{self, broken};
use crate::time::Time;
use crate::wire::{Message, Stand, Standing};
use doyen_placement::level::LEVELS;
use doyen_placement::{ClusterId, Member, MemberId, TableName, Term, Version, planner};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// A node that was not told how many shall form the first cluster, and cannot tell from its seeds,
/// looks for others this long before it begins a cluster by itself. In common places (a service in
/// Kubernetes, a scaled service of Docker Compose) one name is everybody's seed, all nodes start
/// together, and the addresses of the name appear one after the other, within seconds.
const LOOK: Duration = Duration::from_secs(10);
/// It looks for so many times as long while it hears a process with a lower id, which is to begin.
const LOOKS_WHILE_ANOTHER_IS_DUE: u32 = 2;
/// Between two looks behind the seeds, at least and at most.
const SCOUT: (Duration, Duration) = (Duration::from_millis(400), Duration::from_millis(800));
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
    /// Since when it has been doubtful whether other nodes are behind the same seeds.
    doubtful: Option<Time>,
    scout_at: Time,
    probe_at: Time,
    report_at: Time,
    /// At the last report nothing was missing.
    complete: bool,
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

/// Why the processes that answer at the seeds may not be all that were started together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// No other process answers.
    Alone,
    /// This seed leads to a process that others reach at another address: a balancer does that, and
    /// leads other nodes elsewhere.
    Indirect(SocketAddr),
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
            // Those where nobody answers make room.
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

    /// The processes at the seeds with oneself among them, and the seeds that have not answered.
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

    fn fresh(&self, cx: &Context, id: MemberId) -> Option<&Standing> {
        self.peers
            .get(&id)
            .filter(|h| cx.now.since(h.at) <= FRESH)
            .map(|h| &h.standing)
    }

    fn fresh_peers(&self, cx: &Context) -> impl Iterator<Item = (MemberId, &Standing)> {
        let now = cx.now;
        self.peers
            .iter()
            .filter(move |(_, h)| now.since(h.at) <= FRESH)
            .map(|(id, h)| (*id, &h.standing))
    }

    /// A name that does not resolve yet counts all the same: the first cluster must not form
    /// without the node that it means.
    fn expect(&self, cx: &Context) -> u16 {
        let (initial, missing) = self.initial(cx);
        let all = initial.len() + missing.len() + cx.config.seeds.unresolved.len();
        cx.config
            .expect
            .unwrap_or_else(|| u16::try_from(all).unwrap_or(u16::MAX))
    }

    /// Seeds that lead to a process which others reach at another address, and where.
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
                        .is_some_and(|h| h.standing.member.addresses.control != *seed)
                };
                *seed != own && there.is_some_and(|id| id == cx.me() || elsewhere(id))
            })
    }

    /// Whether the seeds cannot tell that everybody is here.
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

    /// For how long this node looks for others before it begins a cluster by itself. Of those that
    /// know of each other the one with the lowest id begins, and the others join it.
    fn looks_for(&self, cx: &Context) -> Duration {
        if self.is_to_begin(cx).is_some() {
            LOOK * LOOKS_WHILE_ANOTHER_IS_DUE
        } else {
            LOOK
        }
    }

    /// The process that is to begin a cluster by itself before this one does.
    fn is_to_begin(&self, cx: &Context) -> Option<&Member> {
        let begins = |s: &Standing| matches!(s.state, Stand::Forming { told: false, .. });
        self.fresh_peers(cx)
            .find(|(id, s)| *id < cx.me() && begins(s))
            .map(|(_, s)| &s.member)
    }

    /// How much longer it looks for others; `None`: it does not, or does not begin by itself.
    fn looks_until(&self, cx: &Context) -> Option<Time> {
        self.doubt(cx)
            .and(self.doubtful)
            .map(|since| since + self.looks_for(cx))
    }

    pub(super) fn stand(&self, cx: &Context) -> Stand {
        let (initial, _) = self.initial(cx);
        let known = self.fresh_peers(cx);
        Stand::Forming {
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

    /// Time passed, or somebody was heard.
    pub(super) fn turn(&mut self, cx: &mut Context) -> Option<Formed> {
        let alone = cx.config.expect.is_none_or(|n| n == 1);
        if alone && cx.config.seeds.is_none() && self.hinted.is_empty() {
            return Some(Formed::Founded(self.first(cx, vec![cx.member()])));
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

    /// Notes since when it has been doubtful whether everybody is here.
    fn look(&mut self, cx: &Context) {
        if !cx.config.seeds.unresolved.is_empty() {
            // What a name means may be known in a moment; only then the time begins.
            self.doubtful = None;
        } else if self.doubt(cx).is_none() {
            self.doubtful = None;
        } else if self.doubtful.is_none() {
            self.doubtful = Some(cx.now);
            // Said as soon as it is waited for.
            self.report_at = self.report_at.min(self.started + cx.config.timing.listen);
        }
    }

    /// Two living processes of one name can form no cluster. One of them ends, so that its operator
    /// learns of it.
    fn give_way(&mut self, cx: &mut Context) {
        let Some(other) = self.namesake(cx) else {
            return self.namesake = None;
        };
        let (younger, why) = (other.id < cx.me(), name_taken(&cx.config.name, other));
        let since = *self.namesake.get_or_insert(cx.now);
        if younger && cx.now.since(since) >= REFUSED_MAX {
            cx.outputs.push_back(Output::Fatal(why));
        }
    }

    fn namesake(&self, cx: &Context) -> Option<&Member> {
        let others = self
            .peers
            .iter()
            .filter(|(id, heard)| **id != cx.me() && cx.now.since(heard.at) <= FRESH);
        others
            .map(|(_, heard)| &heard.standing.member)
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
                    .map(|h| h.standing.member.addresses.control),
            );
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

    /// Behind a seed that leads to another address than its own there may be more processes.
    fn scout(&mut self, cx: &mut Context) {
        if self.scout_at > cx.now {
            return;
        }
        self.scout_at = cx.now + cx.jitter(SCOUT.0, SCOUT.1);
        let seeds: Vec<SocketAddr> = self.indirect(cx).collect();
        cx.outputs.extend(seeds.into_iter().map(Output::Scout));
    }

    /// Somebody says how it stands.
    pub(super) fn hear(
        &mut self,
        cx: &mut Context,
        from: MemberId,
        standing: Standing,
    ) -> Option<Formed> {
        if let Stand::Member {
            cluster, version, ..
        } = &standing.state
        {
            return self.living((*cluster, *version), from, &standing.member);
        }
        if let Stand::Forming { known, .. } = &standing.state
            && cx.config.expect.is_some()
        {
            // With a number to wait for, founders may be strangers that only somebody else has
            // heard.
            known
                .iter()
                .for_each(|(_, address)| self.hinted(cx, *address));
        }
        if self
            .peers
            .get(&from)
            .is_some_and(|h| h.standing.number > standing.number)
        {
            // It was said before what was heard last.
            return None;
        }
        if self.peers.len() >= PEERS_MAX && !self.peers.contains_key(&from) {
            self.peers.retain(|_, h| cx.now.since(h.at) <= FRESH);
        }
        if self.peers.len() < PEERS_MAX {
            self.at.insert(standing.member.addresses.control, from);
            self.peers.insert(
                from,
                Heard {
                    standing,
                    at: cx.now,
                },
            );
        }
        None
    }

    /// A living cluster is there.
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

    /// Somebody speaks as a member of the cluster whose first table this process promised: then
    /// that table is committed.
    pub(super) fn confirmed(&self, cluster: ClusterId) -> Option<Named> {
        self.promise.clone().filter(|t| t.cluster == cluster)
    }

    fn first(&self, cx: &mut Context, founders: Vec<Member>) -> Named {
        let cluster = ClusterId(u128::from(cx.random()) << 64 | u128::from(cx.random()) | 1);
        // What a founder speaks that has not said hello is not known: the level rises later.
        let speaks = |m: &Member| cx.speaks(m.id).unwrap_or(LEVELS.0);
        let level = founders.iter().map(speaks).min().unwrap_or(LEVELS.0);
        let mut table = planner::first(
            cluster,
            cx.config.settings.clone(),
            cx.config.default_keyspace.clone(),
            founders,
        );
        (table.term, table.version, table.order_key) = (Term(1), Version(1), cx.config.order_key);
        table.level = level;
        Named::new(Arc::new(table))
    }

    /// Whether these are founders that this process agrees to.
    fn agrees(&self, cx: &Context, founders: &BTreeSet<MemberId>) -> bool {
        let (initial, missing) = self.initial(cx);
        if !founders.contains(&cx.me()) {
            return false;
        }
        match cx.config.expect {
            // Told to go ahead alone: should a cluster be there after all, one of the two gives
            // way.
            Some(1) => founders.len() == 1,
            None => {
                missing.is_empty()
                    && cx.config.seeds.unresolved.is_empty()
                    && self.doubt(cx).is_none()
                    && *founders == initial
            }
            Some(expect) if founders.len() == usize::from(expect) => {
                // Nobody dials the address that it has itself.
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

    /// The founders, if everybody that is needed is here and agrees.
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
            let same = |h: &&Heard| matches!(h.standing.state, Stand::Forming { told: true, expect, .. } if expect == n);
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
                    Stand::Forming {
                        initial,
                        expect: theirs,
                        told,
                        ..
                    } => {
                        usize::from(*theirs) == expect
                            && (*told
                                || initial.iter().copied().collect::<BTreeSet<_>>() == founders)
                    }
                    Stand::Joining | Stand::Member { .. } => false,
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
                Some(cx.member())
            } else {
                self.fresh(cx, *id).map(|s| s.member.clone())
            }
        };
        let mut members: Vec<Member> = founders.iter().filter_map(member).collect();
        // Who writes the table coordinates first, so it is the oldest.
        members.sort_by_key(|m| (m.id != cx.me(), place(m), m.id));
        let table = self.first(cx, members);
        if let Err(why) = table.validate() {
            cx.event(Event::NoCoordinator {
                why: format!("the initial members cannot form a cluster: {why}"),
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
            Doubt::Alone => format!(
                "no other node answered at the seeds ({}) for {looked} s",
                seeds_of(cx)
            ),
            Doubt::Indirect(seed) => {
                let others: Vec<&str> = self
                    .fresh_peers(cx)
                    .map(|(_, s)| s.member.name.as_str())
                    .collect();
                let others = if others.is_empty() {
                    "none".to_owned()
                } else {
                    others.join(", ")
                };
                format!(
                    "the seed {seed} leads to nodes at other addresses (those found: {others}), and no cluster was found for {looked} s"
                )
            }
        };
        format!(
            "{found}: this node begins a cluster by itself. While that is unused, it gives way to another one that it meets. If others should \
             be here, start all nodes with --expect and their number"
        )
    }

    /// Sends the first table to whoever has not promised it.
    fn send_first(&mut self, cx: &mut Context) {
        let stand = self.stand(cx);
        let standing = cx.standing(stand);
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
                    standing: standing.clone(),
                },
            );
        }
    }

    /// The first table of somebody else.
    pub(super) fn on_found(&mut self, cx: &mut Context, from: MemberId, table: Named) {
        let founders: BTreeSet<MemberId> = table.members.iter().map(|m| m.id).collect();
        let pursues = |s: &Standing| matches!(s.state, Stand::Forming { promise, .. } if promise == Some(table.name));
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
    fn lapse(&mut self, cx: &Context) {
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
                Some(Stand::Forming {
                    promise: theirs, ..
                }) => Some(m.id) == writer && *theirs == Some(promise.name),
                Some(Stand::Joining) => false,
                Some(Stand::Member { .. }) | None => true,
            };
            // Nothing older than the table itself is among what was heard of whoever wrote it
            // (`hear`).
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
        // If nothing is missing, there is nothing to say, unless it stays so until the next report.
        let complete = self.obstacle(cx).is_none();
        let why = match (complete, std::mem::replace(&mut self.complete, complete)) {
            (true, false) => return,
            (true, true) => {
                self.waiting(cx)
                    + ", and they have not agreed yet: do their control ports (--listen) reach each other?"
            }
            (false, _) => self.waiting(cx),
        };
        cx.event(Event::NoCoordinator { why });
    }

    /// Why nothing happens: for people.
    pub(super) fn waiting(&self, cx: &Context) -> String {
        let names = || {
            let names: Vec<String> = self.names(cx);
            format!(
                "{} of {} initial members are here: {}",
                names.len(),
                self.expect(cx),
                names.join(", ")
            )
        };
        self.obstacle(cx).unwrap_or_else(names)
    }

    /// This node, and those that form a cluster with it as far as it has heard lately.
    fn names(&self, cx: &Context) -> Vec<String> {
        let (initial, _) = self.initial(cx);
        let expect = self.expect(cx);
        let told = |s: &Standing| matches!(s.state, Stand::Forming { told: true, expect: theirs, .. } if theirs == expect);
        let others = self
            .fresh_peers(cx)
            .filter(|(id, s)| initial.contains(id) || told(s))
            .map(|(_, s)| s.member.name.clone());
        std::iter::once(cx.config.name.clone())
            .chain(others)
            .collect()
    }

    /// What is missing before a first cluster can begin: for people. `None`: nothing is, and the
    /// initial members are agreeing.
    fn obstacle(&self, cx: &Context) -> Option<String> {
        if let Some(other) = self.namesake(cx) {
            return Some(name_taken(&cx.config.name, other));
        }
        let (initial, missing) = self.initial(cx);
        let expect = self.expect(cx);
        let here = format!("{} of {expect} initial members are here", initial.len());
        let unresolved = &cx.config.seeds.unresolved;
        if !missing.is_empty() || !unresolved.is_empty() {
            let mut why = here;
            if !missing.is_empty() {
                let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
                why += &format!("; these seeds do not answer: {}", missing.join(", "));
            }
            if !unresolved.is_empty() {
                why += &format!("; these seeds do not resolve: {}", unresolved.join(", "));
            }
            return Some(
                why + ". Start those nodes, or give every node --expect and the number of nodes that shall form the first cluster",
            );
        }
        if let Some(until) = self.looks_until(cx) {
            let found = match self.doubt(cx) {
                Some(Doubt::Indirect(seed)) => format!(
                    "the seed {seed} leads to nodes at other addresses, and there may be more of them"
                ),
                Some(Doubt::Alone) | None => {
                    format!("no other node answers yet at the seeds ({})", seeds_of(cx))
                }
            };
            let seconds = until.since(cx.now).as_secs() + 1;
            let next = match self.is_to_begin(cx) {
                Some(other) => format!(
                    "{} is to begin a cluster by itself, which this node then joins. If this node finds no cluster for another {seconds} s, it \
                     begins one by itself",
                    other.name
                ),
                None => format!(
                    "If this node finds no cluster for another {seconds} s, it begins one by itself"
                ),
            };
            return Some(format!(
                "{found}. {next}. If N nodes shall begin together, start each of them with --expect N; with --expect 1 this one begins at once"
            ));
        }
        for (id, heard) in &self.peers {
            if let Stand::Forming {
                initial: theirs,
                expect: other,
                ..
            } = &heard.standing.state
                && initial.contains(id)
                && (*other != expect
                    || (cx.config.expect.is_none()
                        && theirs.iter().copied().collect::<BTreeSet<_>>() != initial))
            {
                let (name, mine, count) =
                    (&heard.standing.member.name, initial.len(), theirs.len());
                return Some(format!(
                    "{name} has another list of initial members ({count} of {other}) than this node ({mine} of {expect})"
                ));
            }
        }
        let names = self.names(cx);
        let (count, lacking) = (names.len(), usize::from(expect).saturating_sub(names.len()));
        (lacking > 0).then(|| {
            format!(
                "{count} of {expect} initial members are here: {}. {lacking} more must start with the same seeds and --expect {expect}; if \
                 fewer shall form the first cluster, start all of them again with a lower --expect",
                names.join(", ")
            )
        })
    }
}

/// The seeds as they were given, as far as they are known by name.
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

/// What a process is told whose name another one has.
pub(super) fn name_taken(name: &str, other: &Member) -> String {
    format!(
        "the name {name} is taken by the node at {}; choose another with --name",
        other.addresses.control
    )
}
