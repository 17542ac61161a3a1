//! Proposing, storing and committing tables (rules 3 and 4), one at a time.

use super::api::AdminReply;
use super::context::{Context, NamedTable};
use super::durable::{Accepting, Disk, Promise};
use super::election::Votes;
use super::lease::{Tenures, deposed};
use super::member_core::MemberCore;
use super::pings::Pings;
use super::tables::Tables;
use super::tasks::{ClusterKnowledge, CoordinatorTasks, TableDraft};
use crate::mutant::{self, broken};
use crate::time::Time;
use crate::wire::{Commit, ElectionProof, Message, Payload, Proposal, ProposalAck};
use doyen_placement::quorum::majority;
use doyen_placement::table::TableDelta;
use doyen_placement::table::validate::VOTERS_MAX;
use doyen_placement::{Branch, ClusterId, MemberId, MemberState, PartitionRef, TableName, Term};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The time after which a proposal is sent again to members that have not acknowledged it.
const RESEND: Duration = Duration::from_millis(100);
/// How long a commit waits for the acks of the primaries that it deposes, while they answer. Such
/// an ack spares their successors the wait for a lease (rules 9 and 10), which is longer than this.
/// If the machine has no core for such a primary at once, a shorter wait is often too short.
const HOLD: Duration = Duration::from_millis(200);

/// A coordinator in its term.
#[derive(Debug)]
pub(super) struct Leader {
    /// The members that have joined this term (rule 4).
    joined: BTreeSet<MemberId>,
    pending: Option<PendingProposal>,
    pub(super) tasks: CoordinatorTasks,
}

/// A proposal that is not committed yet.
#[derive(Debug)]
struct PendingProposal {
    table: NamedTable,
    predecessor: TableName,
    delta: TableDelta,
    recipients: BTreeSet<MemberId>,
    acks: BTreeMap<MemberId, StoredTable>,
    /// The ack of this node itself, until its own write is synced.
    own: Option<StoredTable>,
    resend_at: Time,
    hold: BTreeSet<MemberId>,
    hold_until: Time,
    draft: TableDraft,
}

#[derive(Debug)]
struct StoredTable {
    ages: Option<BTreeMap<MemberId, u64>>,
    seal: Option<Vec<PartitionRef>>,
}

impl Leader {
    pub(super) fn new(cx: &Context, joined: BTreeSet<MemberId>) -> Self {
        Self {
            joined,
            pending: None,
            tasks: CoordinatorTasks::new(cx.now),
        }
    }

    pub(super) fn joined(&mut self, member: MemberId) {
        self.joined.insert(member);
    }

    pub(super) fn has_joined(&self, member: MemberId) -> bool {
        self.joined.contains(&member)
    }

    pub(super) fn idle(&self) -> bool {
        self.pending.is_none()
    }

    pub(super) fn timeout(&self, cx: &Context) -> Option<Time> {
        match &self.pending {
            Some(pending) if pending.hold_until > cx.now => {
                Some(pending.hold_until.min(pending.resend_at))
            }
            Some(pending) => Some(pending.resend_at),
            None => self.tasks.timeout(cx),
        }
    }

    /// The term ends before the commit.
    pub(super) fn abandon(self, cx: &mut Context, cluster: ClusterId) {
        if let Some(pending) = self.pending {
            let unknown = AdminReply::unknown("the coordinator changed meanwhile");
            pending.draft.refuse(cx, cluster, &unknown);
        }
    }

    /// Sends the proposal to members that have not acknowledged it, if it is time to.
    fn resend(&mut self, cx: &mut Context, tables: &Tables) {
        let Some(pending) = &mut self.pending else {
            return;
        };
        if pending.resend_at > cx.now {
            return;
        }
        pending.resend_at = cx.now + RESEND;
        for &member in &pending.recipients {
            if !pending.acks.contains_key(&member) {
                let payload = Payload::Delta(Box::new(pending.delta.clone()));
                cx.send(member, pending.message(tables, payload));
            }
        }
    }

    /// Counts the ack of this node itself once its write is synced.
    fn settle_own(&mut self, cx: &Context) {
        let Some(pending) = &mut self.pending else {
            return;
        };
        // A coordinator accepts its own proposals alone.
        let is_synced = cx.disk.as_ref().is_none_or(Disk::has_accepted);
        if let Some(stored) = pending.own.take_if(|_| is_synced) {
            pending.acks.insert(cx.me(), stored);
        }
    }

    /// Returns false if the ack is of no proposal that is on its way.
    fn acknowledged(&mut self, from: MemberId, ack: ProposalAck) -> bool {
        let pending = (self.pending.as_mut())
            .filter(|f| f.table.name == ack.name && f.recipients.contains(&from));
        let Some(pending) = pending else {
            return false;
        };
        self.joined.insert(from);
        let ages = ack.ages.map(|ages| ages.into_iter().collect());
        pending.acks.entry(from).or_insert(StoredTable {
            ages,
            seal: ack.seal,
        });
        true
    }

    /// A member has no base for the difference.
    fn send_whole(&self, cx: &mut Context, tables: &Tables, to: MemberId, name: TableName) {
        let pending = self.pending.as_ref();
        if let Some(pending) =
            pending.filter(|f| f.table.name == name && f.recipients.contains(&to))
        {
            let payload = Payload::Whole(pending.table.table.clone());
            cx.send(to, pending.message(tables, payload));
        }
    }

    /// The proposal, if it can be committed.
    fn take_stored(
        &mut self,
        cx: &Context,
        tables: &Tables,
        pings: &Pings,
    ) -> Option<PendingProposal> {
        let is_stored = |pending: &mut PendingProposal| pending.is_stored(cx, tables, pings);
        self.pending.take_if(is_stored)
    }
}

impl PendingProposal {
    fn message(&self, tables: &Tables, payload: Payload) -> Message {
        Message::Propose(Box::new(Proposal {
            name: self.table.name,
            committed: self.predecessor,
            commit: tables.last_commit.clone(),
            voters: tables.committed_voters.clone(),
            payload,
        }))
    }

    /// Whether majorities have stored it, and the primaries that it deposes have said what they
    /// opened.
    fn is_stored(&self, cx: &Context, tables: &Tables, pings: &Pings) -> bool {
        let acked = |v| self.acks.contains_key(&v);
        let old =
            tables.quorum(&tables.committed_voters, &acked) || broken(&mutant::COMMITS_WITHOUT_OLD);
        let new = tables.quorum(&self.table.voters, &acked) || broken(&mutant::COMMITS_WITHOUT_NEW);
        let comes = |m: &MemberId| !self.acks.contains_key(m) && !pings.silent(cx, *m);
        old && new && (cx.now >= self.hold_until || !self.hold.iter().any(comes))
    }

    fn commit(&self, tables: &Tables) -> Commit {
        let primaries = deposed(&tables.committed, &self.table);
        let ages = primaries
            .keys()
            .filter_map(|p| Some((*p, self.least_age(&tables.committed_voters, *p)?)))
            .collect();
        let seal = |p: MemberId| Some((p, self.acks.get(&p)?.seal.clone()?));
        let seals = primaries.keys().filter_map(|p| seal(*p)).collect();
        Commit {
            name: self.table.name,
            predecessor: self.predecessor,
            ages,
            seals,
        }
    }

    /// The greatest age such that a committing quorum reported at least that age. An operator's
    /// word is no quorum: if it makes up for a majority, there may be leases that no remaining
    /// member knows of. Then the next primary waits for all of them.
    fn least_age(&self, committed_voters: &[MemberId], primary: MemberId) -> Option<u64> {
        let age = |v: MemberId| self.acks.get(&v)?.ages.as_ref()?.get(&primary).copied();
        let configurations = [committed_voters, &self.table.voters];
        let voters = configurations.into_iter().flatten();
        let mut ages: Vec<u64> = voters.filter_map(|v| age(*v)).collect();
        ages.sort_unstable();
        let enough = |least: &u64| {
            let mut configurations = configurations.into_iter();
            configurations.all(|voters| majority(voters, |v| age(v) >= Some(*least)))
        };
        ages.into_iter().rev().find(enough)
    }
}

impl Tenures {
    /// The content of this node's ack of a table: how long it has given no answer to the primaries
    /// that the table deposes, and its seal if it is one of them. It is made before the table is
    /// stored, and says what this node did until then. Once the table is stored, this node's data
    /// threads serve none of the partitions that the table takes from it.
    fn stored(
        &self,
        cx: &Context,
        committed: &NamedTable,
        predecessor: TableName,
        table: &NamedTable,
    ) -> StoredTable {
        let known = (predecessor == committed.name && predecessor.version.next() == table.version)
            || broken(&mutant::AGES_UNKNOWN);
        // An heir does not know what its predecessor answered last.
        let known = known && (!cx.is_heir() || broken(&mutant::HEIRS_KNOW_AGES));
        let (me, now) = (cx.process(), cx.now);
        let ages = || self.ages(me, now, committed, table).into_iter().collect();
        StoredTable {
            ages: known.then(ages),
            seal: known.then(|| self.seal(me, committed, table)).flatten(),
        }
    }
}

impl MemberCore {
    /// What a coordinator does after something happened.
    pub(super) fn lead(&mut self, cx: &mut Context) {
        let Some(leader) = self.election.as_leader() else {
            return;
        };
        let idle = leader.idle();
        // If another member named a later term, it becomes a candidate again above that term, and
        // without a pre-vote (rule 1).
        let outrun =
            self.election.term_seen > self.election.term && !self.election.proofs.waits(cx.now);
        if outrun || (idle && self.election.outlived_proof(cx, &self.tables)) {
            return self.stand(cx);
        }
        if !idle {
            self.advance(cx);
        }
        // Changes that waited for the commit may follow it at once.
        if self.election.as_leader().is_some_and(Leader::idle) && !self.tables.out {
            self.attend(cx);
        }
    }

    /// Becomes a candidate without asking before whether it would win.
    pub(super) fn stand(&mut self, cx: &mut Context) {
        let votes = self.election.become_candidate(cx, &self.tables);
        self.win(cx, votes);
    }

    /// With enough votes, this member coordinates.
    pub(super) fn win(&mut self, cx: &mut Context, votes: Option<Votes>) {
        let Some(votes) = votes else {
            return;
        };
        // A table that both majorities have accepted is committed. It does not matter which member
        // proposed it (rule 2).
        let mine = self.tables.accepted.name;
        let same = |name: &TableName| {
            *name == mine || (name.version == mine.version && broken(&mutant::WINS_BY_VERSION))
        };
        let accepted = |v| votes.get(&v).is_some_and(|g| same(&g.accepted));
        let committed = self.tables.both_majorities(accepted);
        let signed = votes.iter().map(|(voter, g)| (*voter, g.signature));
        let proof = ElectionProof {
            cluster: self.tables.cluster(),
            term: self.election.term,
            candidate: cx.me(),
            votes: signed.collect(),
        };
        self.election
            .lead(Leader::new(cx, votes.into_keys().collect()));
        if committed && mine.order() > self.tables.committed.name.order() {
            let table = self.tables.accepted.clone();
            self.tables.committed_voters = table.voters.clone();
            self.install(cx, table, None);
            if !self.election.leads() {
                // It speaks in another name now, for which no voter has voted.
                return;
            }
        }
        let me = cx.me();
        self.election.set_leader(cx, &self.tables, Some(me));
        self.election.show_proof(cx, &self.tables, proof);
        self.pings.ping_all(cx, &self.tables, &self.election);
    }

    /// Does everything that is due, in one table.
    fn attend(&mut self, cx: &mut Context) {
        let Some(leader) = self.election.as_leader_mut() else {
            return;
        };
        let known = ClusterKnowledge {
            tables: &self.tables,
            pings: &self.pings,
            requests: &self.requests,
        };
        match leader.draft(cx, &known) {
            Some(draft) => self.propose(cx, draft),
            None => leader.ask_for_plan(cx, &self.tables),
        }
    }

    /// Proposes a table: stores it here first, and then sends it.
    pub(super) fn propose(&mut self, cx: &mut Context, draft: TableDraft) {
        let me = cx.me();
        let mut table = draft
            .table
            .clone()
            .unwrap_or_else(|| (*self.tables.accepted.table).clone());
        table.term = self.election.term;
        table.version = self.tables.accepted.version.next();
        if let Some(branch) = &self.tables.recovery.branch
            && table.annex.branch(branch.id).is_none()
        {
            // No table of the recovered half is without it, so it is in the first one.
            let base = self.tables.accepted.name;
            let branch = Branch {
                base,
                ..branch.clone()
            };
            Arc::make_mut(&mut table.annex).branches.push(branch);
        }
        if let Err(why) = table.validate() {
            // This is a fault of our own planner: the table must not reach any member.
            tracing::error!(%why, "the next table would be invalid");
            cx.ignore();
            let why = format!("the change was not made: the next table would be invalid ({why})");
            return draft.refuse(cx, self.tables.cluster(), &AdminReply::Refused(why));
        }
        // A cluster of one is used before it proposes a second member.
        self.tables.used = true;
        let table = NamedTable::new(table.into());
        let committed = &self.tables.committed;
        let stored = self.tenures.stored(cx, committed, committed.name, &table);
        let members = self.tables.members();
        let recipients: BTreeSet<MemberId> = members
            .chain(table.members.iter().map(|m| m.id))
            .filter(|m| *m != me)
            .collect();
        let mut hold: BTreeSet<MemberId> = deposed(committed, &table).into_keys().collect();
        // Dead members do not acknowledge.
        hold.retain(|m| {
            *m != me
                && table
                    .member(*m)
                    .is_some_and(|m| m.state != MemberState::Silent)
        });
        let delta = TableDelta::between(committed, &table);
        let predecessor = committed.name;
        if !broken(&mutant::PROPOSES_UNSTORED) {
            self.accept(cx, table.clone());
        }
        let pending = PendingProposal {
            predecessor,
            delta,
            recipients,
            acks: BTreeMap::new(),
            own: Some(stored),
            resend_at: cx.now,
            hold_until: cx.now + HOLD,
            hold,
            draft,
            table,
        };
        if let Some(leader) = self.election.as_leader_mut() {
            leader.pending = Some(pending);
        }
        self.advance(cx);
    }

    /// Sends the proposal on its way again, and commits it if enough members have stored it.
    fn advance(&mut self, cx: &mut Context) {
        if let Some(leader) = self.election.as_leader_mut() {
            leader.resend(cx, &self.tables);
        }
        self.try_commit(cx);
    }

    pub(super) fn on_propose(&mut self, cx: &mut Context, from: MemberId, proposal: Proposal) {
        let Proposal {
            name, committed, ..
        } = proposal;
        if name.term < self.election.term && !broken(&mutant::TAKES_OLD_TERMS) {
            let (term, coordinator) = (self.election.term, self.election.leader);
            return cx.send(
                from,
                Message::Refuse {
                    name,
                    term,
                    coordinator,
                    whole: false,
                },
            );
        }
        let contradicts = committed.version == self.tables.committed.version
            && committed != self.tables.committed.name;
        if !self.tables.near(name.version) || committed.order() >= name.order() || contradicts {
            return cx.ignore();
        }
        let follows = name.term == self.election.term && self.election.leader == Some(from);
        if name.term == self.election.term
            && !follows
            && (self.election.leader.is_some() || from == cx.me())
        {
            return cx.ignore();
        }
        if !follows && !self.election.elected(cx, &self.tables, name.term, from) {
            return self
                .election
                .wait_for_proof(cx, &self.tables, from, proposal);
        }
        if name.term > self.election.term {
            self.election
                .join_term(cx, &self.tables, name.term, Some(from));
        } else if !follows && name.term == self.election.term && !self.pings.silent(cx, from) {
            self.election.set_leader(cx, &self.tables, Some(from));
        }
        if self.tables.accepted.name == name {
            // The ack was lost. Its content may be wrong by now, so this ack has none.
            return cx.send(
                from,
                Message::Ack(Box::new(ProposalAck {
                    name,
                    ages: None,
                    seal: None,
                })),
            );
        }
        let older =
            name.order() <= self.tables.accepted.name.order() && !broken(&mutant::TAKES_OLD_TERMS);
        if older || name.version <= self.tables.committed.version {
            return cx.ignore();
        }
        let Some(table) = self.tables.unpack(&name, &proposal.payload) else {
            if matches!(proposal.payload, Payload::Whole(_)) {
                return cx.ignore();
            }
            let term = self.election.term;
            return cx.send(
                from,
                Message::Refuse {
                    name,
                    term,
                    coordinator: None,
                    whole: true,
                },
            );
        };
        if !table.may_follow(&self.tables.committed) || !self.tables.may_take(cx.me(), &table) {
            return cx.ignore();
        }
        let voters = &proposal.voters;
        if voters.is_empty() || voters.len() > VOTERS_MAX {
            return cx.ignore();
        }
        let accepting = || Accepting {
            table: table.clone(),
            proposer: from,
            committed_voters: voters.clone(),
        };
        match cx.promise_table(accepting) {
            Promise::Kept => {}
            Promise::Awaited => return cx.wait(from, Message::Propose(Box::new(proposal))),
            Promise::Excluded => return cx.ignore(),
        }
        let Proposal { commit, voters, .. } = proposal;
        let stored = committed == self.tables.accepted.name
            || (committed.version == self.tables.accepted.version
                && broken(&mutant::INSTALLS_BY_VERSION));
        if stored && committed.order() > self.tables.committed.name.order() {
            // The coordinator says that the table that is stored here is committed.
            let stored = self.tables.accepted.clone();
            self.install(cx, stored, commit.filter(|c| c.name == committed));
            if self.over {
                return;
            }
        }
        let StoredTable { ages, seal } =
            (self.tenures).stored(cx, &self.tables.committed, committed, &table);
        let ages = ages.map(|ages| ages.into_iter().collect());
        self.tables.committed_voters = voters;
        self.tables.proposer = Some(from);
        self.accept(cx, table);
        cx.send(
            from,
            Message::Ack(Box::new(ProposalAck { name, ages, seal })),
        );
    }

    pub(super) fn on_ack(&mut self, cx: &mut Context, from: MemberId, ack: ProposalAck) {
        let leader = self.election.as_leader_mut();
        if leader.is_some_and(|leader| leader.acknowledged(from, ack)) {
            self.try_commit(cx);
        }
    }

    pub(super) fn on_refuse(
        &mut self,
        cx: &mut Context,
        from: MemberId,
        name: TableName,
        term: Term,
        coordinator: Option<MemberId>,
        whole: bool,
    ) {
        self.election.term_seen = self.election.term_seen.max(term);
        let Some(leader) = self.election.as_leader() else {
            return;
        };
        if term > self.election.term {
            if let Some(coordinator) = coordinator.filter(|c| *c != cx.me()) {
                let claim = (term, coordinator);
                self.election.hear_of(cx, &self.tables, from, claim);
            }
        } else if whole {
            leader.send_whole(cx, &self.tables, from, name);
        }
    }

    fn try_commit(&mut self, cx: &mut Context) {
        let mut leader = self.election.as_leader_mut();
        if let Some(leader) = &mut leader {
            leader.settle_own(cx);
        }
        let Some(pending) =
            leader.and_then(|leader| leader.take_stored(cx, &self.tables, &self.pings))
        else {
            return;
        };
        let commit = pending.commit(&self.tables);
        self.tables.committed_voters = pending.table.voters.clone();
        for &member in &pending.recipients {
            cx.send(member, Message::Commit(Box::new(commit.clone())));
        }
        let before = self.tables.committed.clone();
        self.install(cx, pending.table, Some(commit));
        let cluster = self.tables.cluster();
        if let Some(leader) = self.election.as_leader_mut() {
            let now = &self.tables.committed;
            leader.tasks.committed(cx.now, &before, now, &pending.draft);
        }
        pending.draft.answer(cx, cluster);
        let voters = &self.tables.committed.table.voters;
        self.tables.recovery.committed(cx, voters);
    }

    pub(super) fn on_commit(&mut self, cx: &mut Context, from: MemberId, commit: Commit) {
        if commit.name.order() <= self.tables.committed.name.order() {
            return;
        }
        if self.tables.accepted.name == commit.name && self.tables.was_proposed_by(from) {
            let table = self.tables.accepted.clone();
            self.install(cx, table, Some(commit));
        } else {
            self.pull(cx, from);
        }
    }
}
