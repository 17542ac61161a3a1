//! Proposing, storing and committing tables (rules 3 and 4), one at a time.

use super::context::{Context, Named};
use super::council::Council;
use super::duties::{Draft, Duties};
use super::election::Role;
use super::lease::deposed;
use crate::mutant::{self, broken};
use crate::time::Time;
use crate::wire::{Ack, Commit, Message, Payload, Proposal};
use doyen_placement::quorum::majority;
use doyen_placement::table::TableDelta;
use doyen_placement::{MemberId, MemberState, PartitionRef, TableName, Term};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A proposal is sent again to whoever has not answered for this long.
const RESEND: Duration = Duration::from_millis(100);
/// How long a commit waits for the acks of the primaries that it deposes, while they answer: such
/// an ack spares their successors the wait for a lease (rules 9 and 10), which is longer than this.
/// On a machine that has no core for one of them at once, less is often too little.
const HOLD: Duration = Duration::from_millis(200);

/// A coordinator in its term.
#[derive(Debug)]
pub(super) struct Leader {
    /// Who has joined this term (rule 4).
    joined: BTreeSet<MemberId>,
    flight: Option<Flight>,
    pub(super) duties: Duties,
}

/// The proposal under way.
#[derive(Debug)]
struct Flight {
    table: Named,
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
            flight: None,
            duties: Duties::new(cx.now),
        }
    }

    pub(super) fn joined(&mut self, member: MemberId) {
        self.joined.insert(member);
    }

    pub(super) fn has_joined(&self, member: MemberId) -> bool {
        self.joined.contains(&member)
    }

    pub(super) fn idle(&self) -> bool {
        self.flight.is_none()
    }

    pub(super) fn timeout(&self, cx: &Context) -> Option<Time> {
        match &self.flight {
            Some(flight) if flight.hold_until > cx.now => {
                Some(flight.hold_until.min(flight.resend_at))
            }
            Some(flight) => Some(flight.resend_at),
            None => self.duties.timeout(cx),
        }
    }

    /// Replies that will not come: the term ends before the change is committed.
    pub(super) fn abandoned(self) -> Draft {
        self.flight.map(|f| f.draft).unwrap_or_default()
    }
}

impl Council {
    /// What a coordinator does when something happened.
    pub(super) fn lead(&mut self, cx: &mut Context) {
        let Role::Leader(leader) = &self.role else {
            return;
        };
        if self.term_seen > self.term {
            // It stands again above the term that another member named, without a pre-vote (rule
            // 1).
            return self.stand(cx);
        }
        if leader.flight.is_some() {
            self.resend(cx);
            self.try_commit(cx);
        }
        // What is committed may at once be followed by what waited for it.
        if matches!(&self.role, Role::Leader(leader) if leader.idle()) && !self.out {
            self.attend(cx);
        }
    }

    /// Proposes a table: stored here first, then sent.
    pub(super) fn propose(&mut self, cx: &mut Context, draft: Draft) {
        let me = cx.me();
        let mut table = draft
            .table
            .clone()
            .unwrap_or_else(|| (*self.accepted.table).clone());
        table.term = self.term;
        table.version = self.accepted.version.next();
        if let Err(why) = table.validate() {
            // Our own planner broke its word: nothing of it may reach anybody.
            tracing::error!(%why, "the next table would be invalid");
            cx.ignore();
            return self.refuse(
                cx,
                draft,
                &format!("the change was not made: the next table would be invalid ({why})"),
            );
        }
        // A cluster of one is used before it proposes a second member.
        self.used = true;
        let table = Named::new(table.into());
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
        // The dead ack nothing.
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
        let flight = Flight {
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
            leader.flight = Some(flight);
        }
        self.resend(cx);
        self.try_commit(cx);
    }

    /// What this node's ack of a table says. Before it is stored: afterwards this node is closed.
    fn stored(&self, cx: &Context, predecessor: TableName, table: &Named) -> Stored {
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
        let Some(flight) = &mut leader.flight else {
            return;
        };
        if flight.resend_at > cx.now {
            return;
        }
        flight.resend_at = cx.now + RESEND;
        for &member in flight
            .recipients
            .iter()
            .filter(|m| !flight.acks.contains_key(m))
        {
            let payload = Payload::Delta(Box::new(flight.delta.clone()));
            let (name, committed, voters) = (
                flight.table.name,
                flight.predecessor,
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
            name,
            committed,
            commit,
            voters,
            payload,
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
        if name.term > self.term {
            self.join_term(cx, name.term, Some(from));
        } else if self.leader != Some(from) {
            if self.leader.is_some() || from == cx.me() {
                return cx.ignore();
            }
            if !self.silent(cx, from) {
                self.set_leader(cx, Some(from));
            }
        }
        if self.accepted.name == name {
            // The ack was lost. What it said then may be untrue by now, so it says nothing.
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
        if !table.may_follow(&self.committed) {
            return cx.ignore();
        }
        if voters.is_empty() || voters.len() > doyen_placement::table::validate::VOTERS_MAX {
            return cx.ignore();
        }
        let stored = committed == self.accepted.name
            || (committed.version == self.accepted.version && broken(&mutant::INSTALLS_BY_VERSION));
        if stored && committed.order() > self.committed.name.order() {
            // The coordinator says that what is stored here is committed.
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
        let Some(flight) = leader
            .flight
            .as_mut()
            .filter(|f| f.table.name == ack.name && f.recipients.contains(&from))
        else {
            return;
        };
        leader.joined.insert(from);
        let ages = ack.ages.map(|ages| ages.into_iter().collect());
        flight.acks.entry(from).or_insert(Stored {
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
            if coordinator.is_some_and(|c| c != cx.me()) {
                self.follow(cx);
            }
            return;
        }
        let Some(flight) = leader
            .flight
            .as_ref()
            .filter(|f| f.table.name == name && whole && f.recipients.contains(&from))
        else {
            return;
        };
        let (committed, voters, commit) = (
            flight.predecessor,
            self.committed_voters.clone(),
            self.last_commit.clone(),
        );
        let payload = Payload::Whole(flight.table.table.clone());
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
        let Some(flight) = &leader.flight else { return };
        let acked = |v| flight.acks.contains_key(&v);
        let old =
            self.quorum(&self.committed_voters, &acked) || broken(&mutant::COMMITS_WITHOUT_OLD);
        let new = self.quorum(&flight.table.voters, &acked) || broken(&mutant::COMMITS_WITHOUT_NEW);
        if !old || !new {
            return;
        }
        let comes = |m: &MemberId| !flight.acks.contains_key(m) && !self.silent(cx, *m);
        if cx.now < flight.hold_until && flight.hold.iter().any(comes) {
            return;
        }
        let commit = self.commit(flight);
        let Role::Leader(leader) = &mut self.role else {
            return;
        };
        let Some(flight) = leader.flight.take() else {
            return;
        };
        self.committed_voters = flight.table.voters.clone();
        for &member in &flight.recipients {
            cx.send(member, Message::Commit(Box::new(commit.clone())));
        }
        let before = self.committed.clone();
        self.install(cx, flight.table, Some(commit));
        self.finished(cx, &before, flight.draft);
    }

    fn commit(&self, flight: &Flight) -> Commit {
        let primaries = deposed(&self.committed, &flight.table);
        let ages = primaries
            .keys()
            .filter_map(|p| Some((*p, self.least_age(flight, *p)?)))
            .collect();
        let seal = |p: MemberId| Some((p, flight.acks.get(&p)?.seal.clone()?));
        let seals = primaries.keys().filter_map(|p| seal(*p)).collect();
        Commit {
            name: flight.table.name,
            predecessor: flight.predecessor,
            ages,
            seals,
        }
    }

    /// The greatest age such that a committing quorum reported at least that. An operator's word is
    /// no quorum: where it makes up for a majority, leases may stand that nobody here knows of, and
    /// the next primary waits for all of them.
    fn least_age(&self, flight: &Flight, primary: MemberId) -> Option<u64> {
        let age = |v: MemberId| flight.acks.get(&v)?.ages.as_ref()?.get(&primary).copied();
        let mut ages: Vec<u64> = self
            .committed_voters
            .iter()
            .chain(&flight.table.voters)
            .filter_map(|v| age(*v))
            .collect();
        ages.sort_unstable();
        let enough = |least: &u64| {
            [&self.committed_voters, &flight.table.voters]
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
