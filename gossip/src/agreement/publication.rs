//! Proposing, storing and committing tables (rules 3 and 4), one at a time.

use super::api::AdminReply;
use super::context::{Context, NamedTable};
use super::election::Role;
use super::lease::deposed;
use super::member_core::MemberCore;
use super::tasks::{CoordinatorTasks, Draft};
use crate::mutant::{self, broken};
use crate::time::Time;
use crate::wire::{Ack, Commit, Message, Payload, Proposal};
use doyen_placement::level::ANNEX;
use doyen_placement::quorum::majority;
use doyen_placement::table::TableDelta;
use doyen_placement::{Branch, MemberId, MemberState, PartitionRef, TableName, Term};
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
    acks: BTreeMap<MemberId, Stored>,
    resend_at: Time,
    hold: BTreeSet<MemberId>,
    hold_until: Time,
    draft: Draft,
}

#[derive(Debug)]
struct Stored {
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

    /// The draft whose replies will not come, because the term ends before the commit.
    pub(super) fn abandoned(self) -> Draft {
        self.pending.map(|f| f.draft).unwrap_or_default()
    }
}

impl MemberCore {
    /// What a coordinator does after something happened.
    pub(super) fn lead(&mut self, cx: &mut Context) {
        let Role::Leader(leader) = &self.role else {
            return;
        };
        if self.term_seen > self.term && !self.mandates.waits(cx.now) {
            // It becomes a candidate again, above the term that another member named, and without a
            // pre-vote (rule 1).
            return self.become_candidate(cx);
        }
        let idle = leader.idle();
        if idle && self.outlived_mandate(cx) {
            return self.become_candidate(cx);
        }
        if !idle {
            self.resend(cx);
            self.try_commit(cx);
        }
        // Changes that waited for the commit may follow it at once.
        if matches!(&self.role, Role::Leader(leader) if leader.idle()) && !self.out {
            self.attend(cx);
        }
    }

    /// Proposes a table: stores it here first, and then sends it.
    pub(super) fn propose(&mut self, cx: &mut Context, draft: Draft) {
        let me = cx.me();
        let mut table = draft
            .table
            .clone()
            .unwrap_or_else(|| (*self.accepted.table).clone());
        table.term = self.term;
        table.version = self.accepted.version.next();
        if let Some(branch) = &self.branch
            && table.level >= ANNEX
            && table.annex.branch(branch.id).is_none()
        {
            // No table of the recovered half is without it, so it is in the first one.
            let base = self.accepted.name;
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
            return self.refuse(
                cx,
                draft,
                &AdminReply::Refused(format!(
                    "the change was not made: the next table would be invalid ({why})"
                )),
            );
        }
        // A cluster of one is used before it proposes a second member.
        self.used = true;
        let table = NamedTable::new(table.into());
        let stored = self.stored(cx, self.committed.name, &table);
        let members = self
            .committed
            .members
            .iter()
            .chain(&self.accepted.members)
            .chain(&table.members)
            .map(|m| m.id);
        let recipients: BTreeSet<MemberId> = members.filter(|m| *m != me).collect();
        let mut hold: BTreeSet<MemberId> = deposed(&self.committed, &table).into_keys().collect();
        // Dead members do not acknowledge.
        hold.retain(|m| {
            *m != me
                && table
                    .member(*m)
                    .is_some_and(|m| m.state != MemberState::Silent)
        });
        let delta = TableDelta::between(&self.committed, &table);
        if !broken(&mutant::PROPOSES_UNSTORED) {
            self.accept(cx, table.clone());
        }
        let pending = PendingProposal {
            predecessor: self.committed.name,
            delta,
            recipients,
            acks: BTreeMap::from([(me, stored)]),
            resend_at: cx.now,
            hold_until: cx.now + HOLD,
            hold,
            draft,
            table,
        };
        if let Role::Leader(leader) = &mut self.role {
            leader.pending = Some(pending);
        }
        self.resend(cx);
        self.try_commit(cx);
    }

    /// The content of this node's ack of a table: how long it has given no answer to the primaries
    /// that the table deposes, and its seal if it is one of them. It is made before the table is
    /// stored, and says what this node did until then. Once the table is stored, this node's data
    /// threads serve none of the partitions that the table takes from it.
    fn stored(&self, cx: &Context, predecessor: TableName, table: &NamedTable) -> Stored {
        let known = (predecessor == self.committed.name
            && predecessor.version.next() == table.version)
            || broken(&mutant::AGES_UNKNOWN);
        let ages = known.then(|| {
            self.tenures
                .ages(cx.me(), cx.now, &self.committed, table)
                .into_iter()
                .collect()
        });
        let seal = if known {
            self.tenures.seal(cx.me(), &self.committed, table)
        } else {
            None
        };
        Stored { ages, seal }
    }

    fn resend(&mut self, cx: &mut Context) {
        let Role::Leader(leader) = &mut self.role else {
            return;
        };
        let Some(pending) = &mut leader.pending else {
            return;
        };
        if pending.resend_at > cx.now {
            return;
        }
        pending.resend_at = cx.now + RESEND;
        for &member in pending
            .recipients
            .iter()
            .filter(|m| !pending.acks.contains_key(m))
        {
            let payload = Payload::Delta(Box::new(pending.delta.clone()));
            let (name, committed, voters) = (
                pending.table.name,
                pending.predecessor,
                self.committed_voters.clone(),
            );
            let commit = self.last_commit.clone();
            cx.send(
                member,
                Message::Propose(Box::new(Proposal {
                    name,
                    committed,
                    commit,
                    voters,
                    payload,
                })),
            );
        }
    }

    pub(super) fn on_propose(&mut self, cx: &mut Context, from: MemberId, proposal: Proposal) {
        let Proposal {
            name, committed, ..
        } = proposal;
        if name.term < self.term && !broken(&mutant::TAKES_OLD_TERMS) {
            let (term, coordinator) = (self.term, self.leader);
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
        let contradicts =
            committed.version == self.committed.version && committed != self.committed.name;
        if !self.near(name.version) || committed.order() >= name.order() || contradicts {
            return cx.ignore();
        }
        let follows = name.term == self.term && self.leader == Some(from);
        if name.term == self.term && !follows && (self.leader.is_some() || from == cx.me()) {
            return cx.ignore();
        }
        if !follows && !self.elected(cx, name.term, from) {
            return self.wait_for_mandate(cx, from, proposal);
        }
        if name.term > self.term {
            self.join_term(cx, name.term, Some(from));
        } else if !follows && name.term == self.term && !self.silent(cx, from) {
            self.set_leader(cx, Some(from));
        }
        let Proposal {
            commit,
            voters,
            payload,
            ..
        } = proposal;
        if self.accepted.name == name {
            // The ack was lost. Its content may be wrong by now, so this ack has none.
            return cx.send(
                from,
                Message::Ack(Box::new(Ack {
                    name,
                    ages: None,
                    seal: None,
                })),
            );
        }
        let older = name.order() <= self.accepted.name.order() && !broken(&mutant::TAKES_OLD_TERMS);
        if older || name.version <= self.committed.version {
            return cx.ignore();
        }
        let Some(table) = self.unpack(&name, &payload) else {
            if matches!(payload, Payload::Whole(_)) {
                return cx.ignore();
            }
            let term = self.term;
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
        if !table.may_follow(&self.committed) || !self.may_take(cx, &table) {
            return cx.ignore();
        }
        if voters.is_empty() || voters.len() > doyen_placement::table::validate::VOTERS_MAX {
            return cx.ignore();
        }
        let stored = committed == self.accepted.name
            || (committed.version == self.accepted.version && broken(&mutant::INSTALLS_BY_VERSION));
        if stored && committed.order() > self.committed.name.order() {
            // The coordinator says that the table that is stored here is committed.
            let stored = self.accepted.clone();
            self.install(cx, stored, commit.filter(|c| c.name == committed));
            if self.over {
                return;
            }
        }
        let Stored { ages, seal } = self.stored(cx, committed, &table);
        let ages = ages.map(|ages| ages.into_iter().collect());
        self.committed_voters = voters;
        self.proposer = Some(from);
        self.accept(cx, table);
        cx.send(from, Message::Ack(Box::new(Ack { name, ages, seal })));
    }

    pub(super) fn on_ack(&mut self, cx: &mut Context, from: MemberId, ack: Ack) {
        let Role::Leader(leader) = &mut self.role else {
            return;
        };
        let Some(pending) = leader
            .pending
            .as_mut()
            .filter(|f| f.table.name == ack.name && f.recipients.contains(&from))
        else {
            return;
        };
        leader.joined.insert(from);
        let ages = ack.ages.map(|ages| ages.into_iter().collect());
        pending.acks.entry(from).or_insert(Stored {
            ages,
            seal: ack.seal,
        });
        self.try_commit(cx);
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
        self.term_seen = self.term_seen.max(term);
        let Role::Leader(leader) = &self.role else {
            return;
        };
        if term > self.term {
            if let Some(coordinator) = coordinator.filter(|c| *c != cx.me()) {
                self.hear_of(cx, from, (term, coordinator));
            }
            return;
        }
        let Some(pending) = leader
            .pending
            .as_ref()
            .filter(|f| f.table.name == name && whole && f.recipients.contains(&from))
        else {
            return;
        };
        let (committed, voters, commit) = (
            pending.predecessor,
            self.committed_voters.clone(),
            self.last_commit.clone(),
        );
        let payload = Payload::Whole(pending.table.table.clone());
        cx.send(
            from,
            Message::Propose(Box::new(Proposal {
                name,
                committed,
                commit,
                voters,
                payload,
            })),
        );
    }

    fn try_commit(&mut self, cx: &mut Context) {
        let Role::Leader(leader) = &self.role else {
            return;
        };
        let Some(pending) = &leader.pending else {
            return;
        };
        let acked = |v| pending.acks.contains_key(&v);
        let old =
            self.quorum(&self.committed_voters, &acked) || broken(&mutant::COMMITS_WITHOUT_OLD);
        let new =
            self.quorum(&pending.table.voters, &acked) || broken(&mutant::COMMITS_WITHOUT_NEW);
        if !old || !new {
            return;
        }
        let comes = |m: &MemberId| !pending.acks.contains_key(m) && !self.silent(cx, *m);
        if cx.now < pending.hold_until && pending.hold.iter().any(comes) {
            return;
        }
        let commit = self.commit(pending);
        let Role::Leader(leader) = &mut self.role else {
            return;
        };
        let Some(pending) = leader.pending.take() else {
            return;
        };
        self.committed_voters = pending.table.voters.clone();
        for &member in &pending.recipients {
            cx.send(member, Message::Commit(Box::new(commit.clone())));
        }
        let before = self.committed.clone();
        self.install(cx, pending.table, Some(commit));
        self.finished(cx, &before, pending.draft);
    }

    fn commit(&self, pending: &PendingProposal) -> Commit {
        let primaries = deposed(&self.committed, &pending.table);
        let ages = primaries
            .keys()
            .filter_map(|p| Some((*p, self.least_age(pending, *p)?)))
            .collect();
        let seal = |p: MemberId| Some((p, pending.acks.get(&p)?.seal.clone()?));
        let seals = primaries.keys().filter_map(|p| seal(*p)).collect();
        Commit {
            name: pending.table.name,
            predecessor: pending.predecessor,
            ages,
            seals,
        }
    }

    /// The greatest age such that a committing quorum reported at least that age. An operator's
    /// word is no quorum: if it makes up for a majority, there may be leases that no remaining
    /// member knows of. Then the next primary waits for all of them.
    fn least_age(&self, pending: &PendingProposal, primary: MemberId) -> Option<u64> {
        let age = |v: MemberId| pending.acks.get(&v)?.ages.as_ref()?.get(&primary).copied();
        let mut ages: Vec<u64> = self
            .committed_voters
            .iter()
            .chain(&pending.table.voters)
            .filter_map(|v| age(*v))
            .collect();
        ages.sort_unstable();
        let enough = |least: &u64| {
            [&self.committed_voters, &pending.table.voters]
                .iter()
                .all(|voters| majority(voters, |v| age(v) >= Some(*least)))
        };
        ages.into_iter().rev().find(enough)
    }

    pub(super) fn on_commit(&mut self, cx: &mut Context, from: MemberId, commit: Commit) {
        if commit.name.order() <= self.committed.name.order() {
            return;
        }
        if self.accepted.name == commit.name && self.proposer == Some(from) {
            let table = self.accepted.clone();
            self.install(cx, table, Some(commit));
        } else {
            self.pull(cx, from);
        }
    }
}
