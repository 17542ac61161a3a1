//! A member of a cluster: what ties its tables, its pings, elections and requests.

use super::api::Output;
use super::context::{Context, NamedTable, earlier};
use super::durable::Durable;
use super::election::{CoordinatorElection, leaderless_problem};
use super::lease::Tenures;

use super::pings::Pings;
use super::problem::Problem;
use super::requests::Requests;
use super::split::Halves;
use super::tables::{Installed, Tables};

use crate::hints::Hint;
use crate::mutant::{self, broken};
use crate::time::Time;
use crate::wire::{Commit, CommitNotice, Heartbeat, Message};
use doyen_placement::loads::Report;
use doyen_placement::quorum::majority;
use doyen_placement::{Epoch, MemberId, PartitionRef, TableName};

/// A member.
#[derive(Debug)]
pub(super) struct MemberCore {
    pub(super) tables: Tables,
    pub(super) election: CoordinatorElection,
    pub(super) pings: Pings,
    pub(super) tenures: Tenures,
    /// What is known of another half of this cluster.
    pub(super) halves: Halves,
    pub(super) requests: Requests,
    /// Whether this process is a member no more.
    pub(super) over: bool,
}

impl MemberCore {
    /// A member of the cluster that has this committed table.
    pub(super) fn new(
        cx: &mut Context,
        table: NamedTable,
        commit: Option<Commit>,
        used: bool,
    ) -> Self {
        let mut tenures = Tenures::default();
        let whole = cx.config.timing.takeover_wait();
        tenures.install(cx.process(), cx.now, None, &table, None, whole);
        let core = Self {
            election: CoordinatorElection::new(table.term),
            tables: Tables::new(table, commit, used),
            pings: Pings::new(cx.now),
            tenures,
            halves: Halves::default(),
            requests: Requests::default(),
            over: false,
        };
        if let Some(disk) = &mut cx.disk {
            disk.change();
        }
        core.tables.show(cx, &core.tenures);
        core
    }

    /// An heir goes on with what its directory has.
    pub(super) fn resumed(cx: &mut Context, durable: Durable) -> Self {
        let committed = NamedTable::new(durable.committed.clone());
        let mut core = Self::new(cx, committed, durable.commit.clone(), true);
        core.election = CoordinatorElection::resumed(&durable);
        core.tables.accepted = NamedTable::new(durable.accepted);
        core.tables.committed_voters = durable.committed_voters;
        core.tables.proposer = durable.proposer;
        core.tables.show(cx, &core.tenures);
        core
    }

    /// What must not be forgotten, if it has changed.
    pub(super) fn store(&self, cx: &mut Context) {
        let (tables, election) = (&self.tables, &self.election);
        cx.store(|me, disk| {
            let accepting = disk.accepting();
            let accepting =
                accepting.filter(|a| a.table.name.order() > tables.accepted.name.order());
            let (term, voted) = disk.vote();
            // A member that follows a coordinator votes for no other one in that term.
            let (term, voted) = if term >= election.term {
                (term, voted)
            } else {
                (election.term, election.voted)
            };
            let voters = accepting.map_or(&tables.committed_voters, |a| &a.committed_voters);
            let accepted = accepting.map_or(&tables.accepted, |a| &a.table);
            Some(Durable {
                me,
                term,
                voted,
                committed: tables.committed.table.clone(),
                commit: tables.last_commit.clone(),
                committed_voters: voters.clone(),
                accepted: accepted.table.clone(),
                proposer: accepting.map_or(tables.proposer, |a| Some(a.proposer)),
                promised: false,
            })
        });
    }

    // ---- time

    pub(super) fn timeout(&self, cx: &Context) -> Option<Time> {
        if self.tables.out || cx.hung() {
            return Some(self.pings.next);
        }
        let times = [
            self.pings.timeout(cx),
            self.election.timeout(cx),
            self.requests.timeout(self.election.leader.is_some()),
            self.tables.recovery.timeout(),
        ];
        times.into_iter().fold(None, earlier)
    }

    /// Does everything that is due after an input, or because time passed.
    pub(super) fn turn(&mut self, cx: &mut Context) {
        if !self.over {
            self.ping(cx);
            self.election.watch_leader(cx, &self.tables, &self.pings);
            let votes = self.election.elect(cx, &self.tables, &self.pings);
            self.win(cx, votes);
            self.lead(cx);
            self.ask(cx);
            self.renew_lease(cx);
            self.check_left(cx);
            self.check_outside(cx);
            let is_stopped = self.halves.is_stopped();
            self.election
                .report_leaderless(cx, &self.tables, &self.pings, is_stopped);
        }
        self.requests.answer(cx);
    }

    /// This process slept. The pings that it sent before say nothing about others.
    pub(super) fn woke(&mut self, cx: &Context) {
        if !broken(&mutant::COUNTS_OLD_PINGS) {
            self.pings.detector.woke(cx.now);
            if let Some(leader) = self.election.as_leader_mut() {
                // While this node slept, it heard no other node. So the wait for partitions that
                // only silent members hold begins again.
                leader.tasks.woke(cx.now);
            }
        }
    }

    // ---- pings

    fn ping(&mut self, cx: &mut Context) {
        if cx.hung() {
            // A node that neither answers nor asks must not lead either (rule 12).
            self.election.follow(cx, &self.tables);
            self.pings.pause(cx);
        } else {
            self.pings.turn(cx, &self.tables, &self.election);
        }
    }

    pub(super) fn on_ping(&mut self, cx: &mut Context, from: MemberId, ping: Heartbeat) {
        self.pings.detector.heard(from, cx.now);
        self.hear(cx, from, &ping);
        if cx.hung() || self.over {
            return;
        }
        // The member that asked counts this answer only if it has accepted at least this table
        // (rule 8).
        self.tenures.answer(from, cx.now);
        if self.election.leader == Some(from) {
            self.pings.led_at = Some(cx.now);
        }
        let sequence = ping.sequence;
        let heartbeat = self.election.heartbeat(&self.tables);
        cx.send(
            from,
            Message::Pong(Heartbeat {
                sequence,
                ..heartbeat
            }),
        );
    }

    pub(super) fn on_pong(&mut self, cx: &mut Context, from: MemberId, pong: Heartbeat) {
        if !self.pings.answered(cx, from, &pong, &self.tables) {
            return cx.ignore();
        }
        self.hear(cx, from, &pong);
        let (term, coordinator) = (pong.term, pong.coordinator);
        let own_term = self.election.term;
        if self.election.leader == Some(from) && term >= own_term && coordinator != Some(from) {
            // The peer does not coordinate any more.
            self.election.leader = None;
        }
        if let Some(leader) = self.election.as_leader_mut()
            && term == own_term
            && coordinator == Some(cx.me())
        {
            if pong.accepted.order() <= self.tables.accepted.name.order() {
                leader.joined(from);
            } else {
                leader.tasks.outdo();
            }
        }
    }

    /// Takes what every ping and pong carries.
    fn hear(&mut self, cx: &mut Context, from: MemberId, heartbeat: &Heartbeat) {
        self.election
            .hear(cx, &self.tables, &self.pings, from, heartbeat);
        if heartbeat.committed.order() > self.tables.committed.name.order() {
            self.pull(cx, from);
        }
    }

    pub(super) fn on_hint(&mut self, cx: &mut Context, hint: &Hint) {
        self.pings.on_hint(cx, &self.tables, &self.election, hint);
    }

    fn renew_lease(&mut self, cx: &mut Context) {
        let stopped = self.halves.is_stopped()
            && !broken(&mutant::SERVES_THOUGH_SPLIT)
            && !broken(&mutant::RENEWS_THOUGH_SPLIT);
        if cx.hung() || self.tables.out || stopped {
            return;
        }
        let Tables {
            committed,
            accepted,
            ..
        } = &self.tables;
        let lease = cx.config.timing.lease;
        let until =
            (self.pings.answers).lease(cx.me(), cx.now, &committed.voters, &accepted.voters, lease);
        cx.outputs.extend(until.map(Output::Lease));
    }

    // ---- tables

    /// Stores a proposal. The data threads see it before any other member hears that it is stored.
    pub(super) fn accept(&mut self, cx: &mut Context, table: NamedTable) {
        if let Some(disk) = &mut cx.disk {
            disk.accepted(table.name);
        }
        self.tables.accepted = table;
        let order = self.tables.accepted.name.order();
        self.pings.answers.accepted(order);
        if !broken(&mutant::ACKS_UNSEEN) {
            self.tables.show(cx, &self.tenures);
        }
    }

    /// A table is committed. `commit` says what is known of it.
    pub(super) fn install(&mut self, cx: &mut Context, table: NamedTable, commit: Option<Commit>) {
        let Some(Installed {
            old,
            stays,
            newcomers,
        }) = self.tables.install(cx.me(), table, commit)
        else {
            return;
        };
        if let Some(disk) = &mut cx.disk {
            disk.change();
        }
        let stays = self.inherit(cx) || stays;
        let tables = &self.tables;
        let (table, commit) = (&tables.committed, tables.last_commit.as_ref());
        let whole = cx.config.timing.takeover_wait();
        self.tenures
            .install(cx.process(), cx.now, Some(&old), table, commit, whole);
        self.pings.answers.accepted(tables.accepted.name.order());
        if table.term > self.election.term {
            self.election.join_term(cx, tables, table.term, None);
        }
        // Reports what changed.
        for event in super::event::between(&old, table) {
            cx.event(event);
        }
        self.tenures.forget(|m| tables.member(m).is_some());
        self.requests.installed(table);
        if !stays {
            return self.removed(cx);
        }
        if let Some(newcomers) = newcomers {
            let is_led = self.election.leader.is_some();
            self.halves.tell_descent(cx, tables, is_led, &newcomers);
        }
        self.tables.show(cx, &self.tenures);
    }

    /// Once the table in force has this heir itself, it speaks in its own name. If it has another
    /// process of the same directory, which came between, the heir speaks for the latest of those. What was
    /// answered to its predecessor counts for no lease of it (rule 14).
    fn inherit(&mut self, cx: &mut Context) -> bool {
        if !cx.is_heir() || self.tables.votes(cx.me()) {
            return false;
        }
        let members = &self.tables.committed.members;
        let key = Some(cx.signing.vote_key());
        let of_directory = members.iter().filter(|m| m.vote_key == key);
        let of_directory = of_directory.max_by_key(|m| (m.start, m.age));
        let Some(voice) = of_directory.map(|m| m.id).filter(|id| *id != cx.me()) else {
            return false;
        };
        self.election.follow(cx, &self.tables);
        cx.rename(voice);
        self.election.leader = None;
        self.pings = Pings::new(cx.now);
        true
    }

    /// The committed table is without this process, or has its id with another age.
    fn removed(&mut self, cx: &mut Context) {
        self.tables.out = true;
        if self.requests.departing() {
            // This process ends once a majority has installed that table (rule 10).
            self.tables.show(cx, &self.tenures);
            self.election.follow(cx, &self.tables);
            self.election.leader = None;
        } else {
            self.over = true;
            cx.outputs.push_back(Output::Expelled);
        }
    }

    fn check_left(&mut self, cx: &mut Context) {
        if !self.tables.out || self.over {
            return;
        }
        let table = &self.tables.committed;
        let installed = |v| self.pings.has_installed(v, table.name);
        if majority(&table.voters, installed) || broken(&mutant::LEAVES_EARLY) {
            self.over = true;
            cx.outputs.push_back(Output::Left);
        }
    }

    /// If its predecessor left in order, an heir may begin with the very table that is without it,
    /// and no later one tells it so. Once it follows a coordinator, it goes. Until then, it may be
    /// the only one that knows that this table is committed.
    fn check_outside(&mut self, cx: &mut Context) {
        if !cx.is_heir() || self.election.leader.is_none() || self.over || self.tables.out {
            return;
        }
        let (me, key) = (cx.me(), Some(cx.signing.vote_key()));
        let (committed, accepted) = (&self.tables.committed, &self.tables.accepted);
        let mut members = committed.members.iter().chain(&accepted.members);
        if !members.any(|m| m.id == me || m.vote_key == key) {
            self.removed(cx);
        }
    }

    // ---- pulling

    /// Asks for the last committed table: the coordinator, or a member that would be believed.
    pub(super) fn pull(&mut self, cx: &mut Context, from: MemberId) {
        let leader = self.election.leader.filter(|leader| *leader != cx.me());
        let from = leader.unwrap_or(from);
        if self.believes_table_of(cx, from) || self.tables.was_proposed_by(from) {
            self.tables.pull(cx, from);
        }
    }

    /// Whether this member believes another one that a table is committed. Any member could make up
    /// a table, and the coordinator is elected. A member that has left, or has known no coordinator
    /// for long, has no other way to learn what became of the cluster (rule 11).
    fn believes_table_of(&self, cx: &Context, member: MemberId) -> bool {
        self.election.leader == Some(member)
            || self.tables.out
            || self.election.unchecked(cx)
            || broken(&mutant::BELIEVES_ANY_TABLE)
    }

    /// The data path heard of a newer table.
    pub(super) fn pull_any(&mut self, cx: &mut Context, name: TableName) {
        let committed = &self.tables.committed;
        if name.cluster != committed.cluster || name.order() <= committed.name.order() {
            return;
        }
        let me = cx.me();
        let from = self.election.leader.filter(|l| *l != me).or_else(|| {
            let mut voters = committed.voters.iter().copied();
            voters.find(|v| *v != me && !self.pings.silent(cx, *v))
        });
        if let Some(from) = from {
            self.pull(cx, from);
        }
    }

    pub(super) fn on_committed(
        &mut self,
        cx: &mut Context,
        from: MemberId,
        committed: CommitNotice,
    ) {
        let name = committed.name;
        let older =
            name.order() <= self.tables.committed.name.order() && !broken(&mutant::GOES_BACK);
        if older || !self.tables.is_pulling() {
            return;
        }
        // A later term needs an election first (rule 1).
        let later = name.term > self.election.term && self.election.leader == Some(from);
        let proved = !later || self.election.elected(cx, &self.tables, name.term, from);
        // A coordinator that leaves does not coordinate any more, and knows what it committed.
        let stored = name == self.tables.accepted.name && self.tables.was_proposed_by(from);
        if !self.tables.near(name.version)
            || !(stored || (proved && self.believes_table_of(cx, from)))
        {
            return cx.ignore();
        }
        let Some(table) = self.tables.unpack(&name, &committed.payload) else {
            cx.ignore();
            // This member no longer has the base of the delta, so it asks for the whole table.
            return self.tables.ask_for_table(cx, from, None);
        };
        if !self.tables.may_take(cx.me(), &table) {
            return cx.ignore();
        }
        self.election.term_seen = self.election.term_seen.max(table.term);
        self.install(cx, table, committed.commit);
    }

    // ---- the data path

    /// This node's data threads opened partitions.
    pub(super) fn opened(&mut self, cx: &Context, opened: &[(PartitionRef, Epoch)]) {
        let mut news = false;
        for (at, since) in opened {
            news |= self.tenures.open(*at, *since);
        }
        if news {
            self.requests.report_opened(cx.now);
        }
    }

    /// A data thread of this node has measured its load.
    pub(super) fn measured(&mut self, cx: &mut Context, thread: u8, report: Report) {
        let (table, leader) = (&self.tables.committed, self.election.leader);
        let telling = &mut self.requests.telling;
        if let Some(report) = telling.measured(cx, table, leader, thread, report) {
            let message = Message::Loads {
                cluster: self.tables.cluster(),
                origin: cx.process(),
                report: Box::new(report),
            };
            self.tell_coordinator(cx, message);
        }
    }

    // ---- for people

    /// Why no coordinator is known.
    pub(super) fn leaderless_problem(&self, cx: &Context) -> Option<Problem> {
        let is_leaderless = self.election.leader.is_none();
        is_leaderless.then(|| leaderless_problem(cx, &self.tables, &self.pings))
    }
}
