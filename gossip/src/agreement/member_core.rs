//! A member of a cluster: its tables, its term, its role; pings, and what they carry.
//!
//! ```text
//!   follower ──no coordinator──> pre-candidate ──majorities would──> candidate ──majorities did──┐
//!      ^                                                                                         │
//!      └──────── a higher term, or no answers of a majority ───────── leader <───────────────────┘
//! ```

use super::api::{Output, View};
use super::context::{Context, NamedTable, earlier};
use super::election::Role;
use super::event::Event;
use super::lease::{Answers, Tenures};
use super::mandate::Mandates;
use super::problem::{MissingVoter, Problem};
use super::requests::Requests;
use super::split::Halves;
use crate::detector::{Detector, Hinted, Patience};
use crate::hints::Hint;
use crate::mutant::{self, broken};
use crate::time::Time;
use crate::wire::{Commit, Committed, Message, Payload, ProcessState, Pulse};
use doyen_placement::level::LEVELS;
use doyen_placement::quorum::majority;
use doyen_placement::table::TableDelta;
use doyen_placement::{Branch, ClusterId, MemberId, TableName, Term, Version, VoteKey};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How long all members are asked for a proof that they are there.
const PROVES_FOR: Duration = Duration::from_secs(1);
/// The number of committed tables that are kept, so that members that lag behind get the difference
/// alone.
const HISTORY_MAX: usize = 16;
/// The time after which an unanswered pull is sent to another member.
const PULL_PATIENCE: Duration = Duration::from_millis(200);
/// A term that is further ahead than this is invalid: terms rise by one with each election.
const TERM_AHEAD_MAX: u64 = 1 << 20;
/// The same for versions: one table a millisecond for a quarter of an hour, and no table is that
/// quick. After the last possible version there could be no other table.
const VERSION_AHEAD_MAX: u64 = 1 << 20;
/// If this node was woken late, its patience grows by this many times the delay: other processes
/// are rarely better off.
const PATIENCE_FACTOR: u32 = 4;
/// The greatest lateness that counts. More is a pause (`woke`), and after a pause silence is
/// measured anew.
const LATENESS_MAX: Duration = Duration::from_millis(250);
/// The part of the lateness that is left after a ping interval: half of it after 1.3 s.
const LATENESS_DECAY: f64 = 0.95;
/// If hints speak against a member, its time to answer shrinks to one of this many parts.
const HINTED_SHARE: u32 = 3;
/// After this long without a coordinator, people are told why.
const LEADERLESS_PATIENCE: Duration = Duration::from_secs(2);
/// The time between two such reports.
const LEADERLESS_AGAIN: Duration = Duration::from_secs(10);

/// A member.
#[derive(Debug)]
pub(super) struct MemberCore {
    /// The last table known to be committed.
    pub(super) committed: NamedTable,
    /// The last table accepted.
    pub(super) accepted: NamedTable,
    /// The voters of the last configuration that is known to be committed. A proposal may know of a
    /// later one than `committed` (rule 3).
    pub(super) committed_voters: Vec<MemberId>,
    pub(super) last_commit: Option<Commit>,
    history: VecDeque<NamedTable>,
    pub(super) term: Term,
    /// The candidate that this node voted for in `term`.
    pub(super) voted: Option<MemberId>,
    /// The coordinator of `term`.
    pub(super) leader: Option<MemberId>,
    /// Who is known to be elected.
    pub(super) mandates: Mandates,
    /// Until then, this member votes only for the coordinator that it followed and that stands
    /// again.
    pub(super) loyal_until: Time,
    /// The highest term that any member named.
    pub(super) term_seen: Term,
    pub(super) role: Role,
    pub(super) stand_at: Option<Time>,
    pub(super) detector: Detector,
    pub(super) answers: Answers,
    pub(super) tenures: Tenures,
    pub(super) next_ping: Time,
    /// Until then, all members are asked.
    proves_until: Option<Time>,
    /// How late this node has been with its pings lately.
    lateness: Duration,
    /// Numbers the ping intervals.
    pub(super) round: u64,
    /// When the coordinator last pinged this node.
    pub(super) led_at: Option<Time>,
    pulling: Option<Time>,
    /// Whether anything was ever done in this cluster. Only a cluster of one can be unused.
    pub(super) used: bool,
    /// Voters that an operator declared dead (`recover`). They do not count in votes.
    pub(super) asserted_dead: BTreeSet<MemberId>,
    /// The branch that begins with that word: every table that this node proposes has it.
    pub(super) branch: Option<Branch>,
    /// What is known of another half of this cluster.
    pub(super) halves: Halves,
    pub(super) requests: Requests,
    leaderless: Option<(Time, Option<Time>)>,
    /// The committed tables that other voters name, while this node leaves.
    pub(super) heard_committed: BTreeMap<MemberId, TableName>,
    /// The member that proposed `accepted`. Only its commit counts.
    pub(super) proposer: Option<MemberId>,
    /// Whether the committed table is without this node: it left, or was expelled.
    pub(super) out: bool,
    pub(super) over: bool,
    /// The version of the last table that removed a member, as far as this node knows.
    pub(super) removed_at: Version,
}

impl MemberCore {
    /// This member's part of its status.
    pub(super) fn membership(&self) -> ProcessState {
        ProcessState::Member {
            cluster: self.cluster(),
            used: self.used,
            version: self.committed.version,
        }
    }

    /// A member of the cluster that has this committed table.
    pub(super) fn new(
        cx: &mut Context,
        table: NamedTable,
        commit: Option<Commit>,
        used: bool,
    ) -> Self {
        let mut core = Self {
            committed_voters: table.voters.clone(),
            accepted: table.clone(),
            committed: table.clone(),
            last_commit: commit,
            history: VecDeque::new(),
            term: table.term,
            voted: None,
            leader: None,
            mandates: Mandates::default(),
            loyal_until: Time::ZERO,
            term_seen: table.term,
            role: Role::Follower,
            stand_at: None,
            detector: Detector::default(),
            answers: Answers::default(),
            tenures: Tenures::default(),
            next_ping: cx.now,
            proves_until: None,
            lateness: Duration::ZERO,
            round: 0,
            led_at: None,
            pulling: None,
            used,
            asserted_dead: BTreeSet::new(),
            branch: None,
            halves: Halves::default(),
            requests: Requests::default(),
            leaderless: None,
            heard_committed: BTreeMap::new(),
            proposer: None,
            out: false,
            over: false,
            removed_at: table.version,
        };
        core.tenures.install(
            cx.me(),
            cx.now,
            None,
            &table,
            None,
            cx.config.timing.takeover_wait(),
        );
        core.show(cx);
        core
    }

    pub(super) fn cluster(&self) -> ClusterId {
        self.committed.cluster
    }

    /// Whether a peer may name this term at all.
    pub(super) fn plausible(&self, term: Term) -> bool {
        term.0 <= self.term.0.saturating_add(TERM_AHEAD_MAX)
    }

    /// Whether a table of this version can exist, given the last one that this node knows.
    pub(super) fn near(&self, version: Version) -> bool {
        version.0 <= self.accepted.version.0.saturating_add(VERSION_AHEAD_MAX)
    }

    // ---- time

    pub(super) fn timeout(&self, cx: &Context) -> Option<Time> {
        if self.out || cx.hung() {
            return Some(self.next_ping);
        }
        let times = [
            Some(self.next_ping),
            self.stand_at,
            self.detector.due(cx.now, &self.patience(cx)),
            self.role_timeout(cx),
            self.requests.timeout(self.leader.is_some()),
        ];
        times.into_iter().fold(None, earlier)
    }

    /// Does everything that is due after an input, or because time passed.
    pub(super) fn turn(&mut self, cx: &mut Context) {
        if self.over {
            return;
        }
        self.ping(cx);
        self.watch_leader(cx);
        self.elect(cx);
        self.lead(cx);
        self.ask(cx);
        self.renew_lease(cx);
        self.check_left(cx);
        self.report_leaderless(cx);
    }

    /// This process slept. The pings that it sent before say nothing about others.
    pub(super) fn woke(&mut self, cx: &Context) {
        if !broken(&mutant::COUNTS_OLD_PINGS) {
            self.detector.woke(cx.now);
            if let Role::Leader(leader) = &mut self.role {
                // While this node slept, it heard no other node. So the wait for partitions that
                // only silent members hold begins anew.
                leader.tasks.woke(cx.now);
            }
        }
    }

    pub(super) fn late(&self, cx: &Context) -> bool {
        cx.now > self.next_ping + cx.config.timing.ping_interval * 2
    }

    // ---- pings

    /// The members whose answers matter to this node.
    pub(super) fn asked(&self, me: MemberId) -> BTreeSet<MemberId> {
        let mut asked: BTreeSet<MemberId> = self
            .committed
            .voters
            .iter()
            .chain(&self.accepted.voters)
            .chain(&self.committed_voters)
            .copied()
            .collect();
        asked.extend(self.leader);
        if matches!(self.role, Role::Leader(_)) || self.proves_until.is_some() {
            asked.extend(
                self.committed
                    .members
                    .iter()
                    .chain(&self.accepted.members)
                    .map(|m| m.id),
            );
        }
        asked.remove(&me);
        asked
    }

    pub(super) fn pulse(&self, sequence: u64) -> Pulse {
        let (cluster, accepted, committed) =
            (self.cluster(), self.accepted.name, self.committed.name);
        Pulse {
            cluster,
            sequence,
            term: self.term,
            coordinator: self.leader,
            accepted,
            committed,
        }
    }

    fn ping_one(&mut self, cx: &mut Context, peer: MemberId) {
        let sequence = self.detector.sent(peer, cx.now);
        cx.send(peer, Message::Ping(self.pulse(sequence)));
    }

    pub(super) fn ping_all(&mut self, cx: &mut Context) {
        for peer in self.asked(cx.me()) {
            self.ping_one(cx, peer);
        }
    }

    /// Asks all members, now and for a moment.
    pub(super) fn prove(&mut self, cx: &mut Context) {
        self.proves_until = Some(cx.now + PROVES_FOR);
        self.ping_all(cx);
    }

    /// The members that have answered no ping that was sent since this time.
    pub(super) fn unproven(&self, me: MemberId, since: Time) -> Vec<MemberId> {
        let members = self.committed.members.iter().map(|m| m.id);
        let proven = |m: MemberId| self.detector.answered_at(m).is_some_and(|at| at >= since);
        members.filter(|m| *m != me && !proven(*m)).collect()
    }

    fn ping(&mut self, cx: &mut Context) {
        if cx.hung() {
            // A node that neither answers nor asks must not lead either (rule 12).
            self.follow(cx);
            self.next_ping = self.next_ping.max(cx.now + cx.config.timing.ping_interval);
            return;
        }
        if self.next_ping <= cx.now {
            let late = cx.now.since(self.next_ping).min(LATENESS_MAX);
            self.lateness = self.lateness.mul_f64(LATENESS_DECAY).max(late);
            self.next_ping = cx.now + cx.config.timing.ping_interval;
            self.proves_until = self.proves_until.filter(|until| *until > cx.now);
            let asked = self.asked(cx.me());
            self.detector.retain(|m| asked.contains(&m));
            self.heard_committed.retain(|m, _| asked.contains(m));
            let voters = [&self.committed.voters, &self.accepted.voters];
            self.answers
                .retain(|m| voters.iter().any(|v| v.contains(&m)));
            self.round += 1;
            for peer in self.due(cx) {
                self.ping_one(cx, peer);
            }
        }
        for peer in self.detector.quick_pings(cx.now) {
            self.ping_one(cx, peer);
        }
    }

    pub(super) fn silent(&self, cx: &Context, member: MemberId) -> bool {
        self.detector.silent(member, cx.now, &self.patience(cx))
    }

    /// How long a member may be silent. Hints can be forged, so they shorten that to a third at
    /// most.
    fn patience(&self, cx: &Context) -> Patience {
        let timing = &cx.config.timing;
        let (missed_max, lateness) = (timing.pings_missed_max, self.indulgence());
        let hinted = timing.ping_interval * missed_max / HINTED_SHARE;
        Patience {
            missed_max,
            each: timing.ping_interval + lateness,
            hinted,
            lateness,
        }
    }

    /// Patience beyond the configured one. If this node gets no core in time, other processes of
    /// its machine get none either, and are not dead for that (as in Lifeguard, arXiv 1707.00788).
    pub(super) fn indulgence(&self) -> Duration {
        self.lateness * PATIENCE_FACTOR
    }

    pub(super) fn on_ping(&mut self, cx: &mut Context, from: MemberId, ping: Pulse) {
        self.detector.heard(from, cx.now);
        self.hear(cx, from, &ping);
        if cx.hung() || self.over {
            return;
        }
        // The member that asked counts this answer only if it has accepted at least this table
        // (rule 8).
        self.tenures.answer(from, cx.now);
        if self.leader == Some(from) {
            self.led_at = Some(cx.now);
        }
        cx.send(from, Message::Pong(self.pulse(ping.sequence)));
    }

    pub(super) fn on_pong(&mut self, cx: &mut Context, from: MemberId, pong: Pulse) {
        let Some(sent) = self.detector.answered(from, pong.sequence, cx.now) else {
            return cx.ignore();
        };
        let sent = if broken(&mutant::LEASE_FROM_ARRIVAL) {
            cx.now
        } else {
            sent
        };
        self.answers.take(
            from,
            sent,
            pong.accepted.order(),
            self.accepted.name.order(),
        );
        self.heard_committed.insert(from, pong.committed);
        self.hear(cx, from, &pong);
        if self.leader == Some(from) && pong.term >= self.term && pong.coordinator != Some(from) {
            // The peer does not coordinate any more.
            self.leader = None;
        }
        if let Role::Leader(leader) = &mut self.role
            && pong.term == self.term
            && pong.coordinator == Some(cx.me())
        {
            if pong.accepted.order() <= self.accepted.name.order() {
                leader.joined(from);
            } else {
                leader.tasks.outdo();
            }
        }
    }

    /// Takes what every ping and pong carries.
    fn hear(&mut self, cx: &mut Context, from: MemberId, pulse: &Pulse) {
        self.term_seen = self.term_seen.max(pulse.term);
        let unknown = pulse.term == self.term && self.leader.is_none();
        if pulse.coordinator == Some(from) && (pulse.term > self.term || unknown) {
            self.hear_coordinator(cx, from, pulse.term);
        } else if pulse.term > self.term
            && let Some(coordinator) = pulse.coordinator
            && matches!(self.role, Role::Leader(_))
        {
            self.hear_of(cx, from, (pulse.term, coordinator));
        }
        if pulse.committed.order() > self.committed.name.order() {
            self.pull(cx, from);
        }
    }

    pub(super) fn on_hint(&mut self, cx: &mut Context, hint: &Hint) {
        match hint {
            Hint::Refused(member) => match self.detector.refused(*member, cx.now) {
                Hinted::First => self.ping_one(cx, *member),
                Hinted::Enough if matches!(self.role, Role::Leader(_)) => {
                    let name = self.accepted.member(*member).map(|m| m.name.clone());
                    cx.outputs.extend(
                        name.map(|name| Output::Event(Event::Suspected { name, id: *member })),
                    );
                }
                Hinted::Enough | Hinted::Known => {}
            },
            Hint::Suspected(member) if self.asked(cx.me()).contains(member) => {
                self.ping_one(cx, *member)
            }
            Hint::Suspected(_) | Hint::Alive(_) | Hint::Address(_) => {}
        }
    }

    // ---- lease

    fn renew_lease(&mut self, cx: &mut Context) {
        let stopped = self.is_stopped()
            && !broken(&mutant::SERVES_THOUGH_SPLIT)
            && !broken(&mutant::RENEWS_THOUGH_SPLIT);
        if cx.hung() || self.out || stopped {
            return;
        }
        let (installed, accepted) = (&self.committed.voters, &self.accepted.voters);
        if let Some(until) =
            self.answers
                .lease(cx.me(), cx.now, installed, accepted, cx.config.timing.lease)
        {
            cx.outputs.push_back(Output::Lease(until));
        }
    }

    // ---- tables

    fn show(&mut self, cx: &mut Context) {
        let opens_at = self
            .tenures
            .opens_at
            .iter()
            .map(|(at, (since, time))| (*at, *since, *time))
            .collect();
        let (installed, accepted) = (self.committed.table.clone(), self.accepted.table.clone());
        cx.outputs.push_back(Output::View(View {
            installed,
            accepted,
            opens_at: Arc::new(opens_at),
        }));
    }

    /// Stores a proposal. The data threads see it before any other member hears that it is stored.
    pub(super) fn accept(&mut self, cx: &mut Context, table: NamedTable) {
        self.accepted = table;
        self.answers.accepted(self.accepted.name.order());
        if !broken(&mutant::ACKS_UNSEEN) {
            self.show(cx);
        }
    }

    /// A table is committed. `commit` says what is known of it.
    pub(super) fn install(&mut self, cx: &mut Context, table: NamedTable, commit: Option<Commit>) {
        if (table.version <= self.committed.version
            || table.name.order() <= self.committed.name.order())
            && !broken(&mutant::GOES_BACK)
        {
            return;
        }
        let old = std::mem::replace(&mut self.committed, table);
        let whole = cx.config.timing.takeover_wait();
        self.tenures.install(
            cx.me(),
            cx.now,
            Some(&old),
            &self.committed,
            commit.as_ref(),
            whole,
        );
        if self.accepted.name.order() <= self.committed.name.order() {
            self.accepted = self.committed.clone();
            self.committed_voters = self.committed.voters.clone();
            self.answers.accepted(self.accepted.name.order());
        }
        if self.committed.term > self.term {
            self.join_term(cx, self.committed.term, None);
        }
        self.used = true;
        self.pulling = None;
        self.last_commit = commit;
        // This node does not know the tables in between, which may have admitted and removed a
        // member.
        if old.version.next() != self.committed.version
            || old
                .members
                .iter()
                .any(|m| self.committed.member(m.id).is_none())
        {
            self.removed_at = self.committed.version;
        }
        self.tell_differences(cx, &old);
        self.tenures
            .forget(|m| self.committed.member(m).is_some() || self.accepted.member(m).is_some());
        let me = cx.me();
        let age = |table: &NamedTable| table.member(me).map(|m| m.age);
        // With another age, the member was removed and admitted again by a late request. Other
        // members have forgotten what they kept for it.
        let stays =
            age(&self.committed).is_some_and(|now| age(&old).is_none_or(|before| before == now));
        let came = |m: &MemberId| old.member(*m).is_none();
        let newcomers: Vec<MemberId> = self.committed.members.iter().map(|m| m.id).collect();
        let changed = newcomers.len() != old.members.len() || newcomers.iter().any(came);
        let newcomers: Vec<MemberId> = newcomers.into_iter().filter(came).collect();
        self.history.push_back(old);
        if self.history.len() > HISTORY_MAX {
            self.history.pop_front();
        }
        self.requests.installed(&self.committed);
        if stays && changed {
            self.tell_descent(cx, &newcomers);
        }
        if stays {
            self.show(cx)
        } else {
            self.removed(cx)
        }
    }

    /// The committed table is without this process, or has its id with another age.
    fn removed(&mut self, cx: &mut Context) {
        self.out = true;
        if self.requests.departing() {
            // This process ends once a majority has installed that table (rule 10).
            self.show(cx);
            self.follow(cx);
            self.leader = None;
        } else {
            self.over = true;
            cx.outputs.push_back(Output::Expelled);
        }
    }

    fn check_left(&mut self, cx: &mut Context) {
        if !self.out || self.over {
            return;
        }
        let installed = |v| {
            self.heard_committed
                .get(&v)
                .is_some_and(|name| name.order() >= self.committed.name.order())
        };
        if majority(&self.committed.voters, installed) || broken(&mutant::LEAVES_EARLY) {
            self.over = true;
            cx.outputs.push_back(Output::Left);
        }
    }

    /// Tells people what changed from the old table to the new one.
    fn tell_differences(&self, cx: &mut Context, old: &NamedTable) {
        for event in super::event::between(old, &self.committed) {
            cx.event(event);
        }
    }

    // ---- pulling

    /// Asks for the last committed table: the coordinator, or a member that would be believed.
    pub(super) fn pull(&mut self, cx: &mut Context, from: MemberId) {
        let leader = self.leader.filter(|leader| *leader != cx.me());
        let from = leader.unwrap_or(from);
        let may_answer = self.believes_table_of(cx, from) || self.proposer == Some(from);
        if !may_answer
            || self
                .pulling
                .is_some_and(|at| cx.now.since(at) < PULL_PATIENCE)
        {
            return;
        }
        self.pulling = Some(cx.now);
        cx.send(
            from,
            Message::Pull {
                cluster: self.cluster(),
                have: Some(self.committed.name),
            },
        );
    }

    /// Whether this member believes another one that a table is committed. Any member could make up
    /// a table, and the coordinator is elected. A member that has left, or has known no coordinator
    /// for long, has no other way to learn what became of the cluster (rule 11).
    fn believes_table_of(&self, cx: &Context, member: MemberId) -> bool {
        self.leader == Some(member)
            || self.out
            || self.unchecked(cx)
            || broken(&mutant::BELIEVES_ANY_TABLE)
    }

    /// The data path heard of a newer table.
    pub(super) fn pull_any(&mut self, cx: &mut Context, name: TableName) {
        if name.cluster != self.cluster() || name.order() <= self.committed.name.order() {
            return;
        }
        let me = cx.me();
        let from = self.leader.filter(|l| *l != me).or_else(|| {
            self.committed
                .voters
                .iter()
                .copied()
                .find(|v| *v != me && !self.silent(cx, *v))
        });
        if let Some(from) = from {
            self.pull(cx, from);
        }
    }

    /// The key of a member of one of the last tables.
    pub(super) fn former_key(&self, member: MemberId) -> Option<VoteKey> {
        let former = self.history.iter().rev();
        former
            .filter_map(|table| table.member(member))
            .find_map(|m| m.vote_key)
    }

    pub(super) fn on_pull(&mut self, cx: &mut Context, from: MemberId, have: Option<TableName>) {
        // A process that was a member, and missed that the level rose, must be able to read that it
        // is a member no more. The name is that of what it is shown.
        if self.committed.member(from).is_none()
            && let level = cx.speaks(from).unwrap_or(LEVELS.0)
            && level < self.committed.level
        {
            let shown = NamedTable::new(Arc::new(self.committed.at_level(level)));
            return cx.send(
                from,
                Message::Committed(Box::new(Committed {
                    name: shown.name,
                    payload: Payload::Whole(shown.table),
                    commit: None,
                })),
            );
        }
        let base = have.and_then(|name| self.history.iter().find(|t| t.name == name));
        let payload = match base {
            Some(base) => Payload::Delta(Box::new(TableDelta::between(base, &self.committed))),
            None if have == Some(self.committed.name) => return,
            None => Payload::Whole(self.committed.table.clone()),
        };
        let commit = self.last_commit.clone();
        cx.send(
            from,
            Message::Committed(Box::new(Committed {
                name: self.committed.name,
                payload,
                commit,
            })),
        );
    }

    pub(super) fn on_committed(&mut self, cx: &mut Context, from: MemberId, committed: Committed) {
        let older =
            committed.name.order() <= self.committed.name.order() && !broken(&mutant::GOES_BACK);
        if older || self.pulling.is_none() {
            return;
        }
        // A later term needs an election first (rule 1).
        let later = committed.name.term > self.term && self.leader == Some(from);
        let proved = !later || self.elected(cx, committed.name.term, from);
        // A coordinator that leaves does not coordinate any more, and knows what it committed.
        let stored = committed.name == self.accepted.name && self.proposer == Some(from);
        if !self.near(committed.name.version)
            || !(stored || (proved && self.believes_table_of(cx, from)))
        {
            return cx.ignore();
        }
        let Some(table) = self.unpack(&committed.name, &committed.payload) else {
            cx.ignore();
            // This member no longer has the base of the delta, so it asks for the whole table.
            return cx.send(
                from,
                Message::Pull {
                    cluster: self.cluster(),
                    have: None,
                },
            );
        };
        if !self.may_take(cx, &table) {
            return cx.ignore();
        }
        self.term_seen = self.term_seen.max(table.term);
        self.install(cx, table, committed.commit);
    }

    /// Whether the table in force or the accepted one names this process.
    pub(super) fn names(&self, id: MemberId) -> bool {
        self.committed.member(id).is_some() || self.accepted.member(id).is_some()
    }

    /// The table of a payload, if it is valid and has the given name.
    pub(super) fn unpack(&self, name: &TableName, payload: &Payload) -> Option<NamedTable> {
        let table = match payload {
            Payload::Whole(table) => {
                table.validate().ok()?;
                NamedTable::new(table.clone())
            }
            Payload::Delta(delta) => {
                let bases = [&self.committed, &self.accepted];
                let base = bases.into_iter().find(|t| t.name == delta.base)?;
                // The name was compared above. Deriving it again would cost a quarter of what a
                // table costs.
                NamedTable {
                    name: delta.target(),
                    table: Arc::new(delta.apply(base).ok()?),
                }
            }
        };
        (table.name == *name).then_some(table)
    }

    // ---- for people

    fn report_leaderless(&mut self, cx: &mut Context) {
        if self.leader.is_some() || self.out {
            self.leaderless = None;
            return;
        }
        let (since, told) = *self.leaderless.get_or_insert((cx.now, None));
        // A half that stopped says so by itself, and needs no coordinator.
        if !self.is_stopped()
            && cx.now.since(since) >= LEADERLESS_PATIENCE
            && told.is_none_or(|at| cx.now.since(at) >= LEADERLESS_AGAIN)
        {
            self.leaderless = Some((since, Some(cx.now)));
            cx.event(Event::NoCoordinator {
                why: self.why_leaderless(cx),
            });
        }
    }

    /// For how long no coordinator has been known.
    pub(super) fn leaderless_for(&self, cx: &Context) -> Duration {
        self.leaderless
            .map_or(Duration::ZERO, |(since, _)| cx.now.since(since))
    }

    /// Members of the table in force that do not answer this node.
    pub(super) fn unanswered(&self, cx: &Context) -> Vec<MemberId> {
        self.committed
            .members
            .iter()
            .map(|m| m.id)
            .filter(|m| *m != cx.me() && self.silent(cx, *m))
            .collect()
    }

    /// Why no coordinator is known: for people.
    pub(super) fn why_leaderless(&self, cx: &Context) -> String {
        cx.explain(&self.leaderless_problem(cx))
    }

    /// The voters of the committed and of the accepted configuration, each once.
    pub(super) fn distinct_voters(&self) -> BTreeSet<MemberId> {
        self.voters().collect()
    }

    /// Why no coordinator is known. While a majority answers, the reason is the election: a voter
    /// that is missing does not stand in its way.
    pub(super) fn leaderless_problem(&self, cx: &Context) -> Problem {
        let me = cx.me();
        if self.both_majorities(|v| v == me || !self.silent(cx, v)) {
            return Problem::Election;
        }
        let voters = self.distinct_voters();
        let missing = |v: &MemberId| {
            let known = self.accepted.member(*v);
            let known = known.or_else(|| self.committed.member(*v));
            MissingVoter {
                name: known.map_or_else(|| v.to_string(), |m| m.name.clone()),
                http: known.and_then(|m| m.addresses.http),
            }
        };
        let silent = voters.iter().filter(|v| **v != me && self.silent(cx, **v));
        Problem::NoMajority {
            missing: silent.map(missing).collect(),
            voters: voters.len(),
            votes: voters.contains(&me),
        }
    }
}
