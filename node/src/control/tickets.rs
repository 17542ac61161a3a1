//! Requests that wait for an answer: of the machine, or of the coordinator.

use super::ClusterStatus;
use crate::client_list::ClientList;
use crate::history::Samples;
use crate::waking;
use doyen_gossip::agreement::AdminReply;
use doyen_gossip::{Agreement, Time};
use doyen_placement::{Loads, MemberId};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::oneshot::Sender;

/// Requests that may wait for an answer, at most.
const TICKETS_MAX: usize = 1024;
/// How long the coordinator may take to answer a request for the status.
const STATUS_TIMEOUT: Duration = Duration::from_millis(300);
/// How long every member has to answer a ping.
const PROOF_TIMEOUT: Duration = Duration::from_secs(1);

/// Requests that wait for an answer.
#[derive(Default)]
pub(super) struct RequestTickets {
    last: u64,
    admin: BTreeMap<u64, Sender<AdminReply>>,
    pub(super) status: Questions<ClusterStatus>,
    pub(super) loads: Questions<Loads>,
    pub(super) histories: Questions<Samples>,
    pub(super) clients: Questions<Option<ClientList>>,
    /// Who asks whether all members answer: since when, and until when.
    proofs: Vec<(Time, Time, Sender<Vec<MemberId>>)>,
    /// Data threads that wait until their cluster of one is marked as used.
    used: Vec<Sender<()>>,
}

impl RequestTickets {
    /// A request of people. `None`: too many wait, and it is answered.
    pub(super) fn admin(&mut self, answer: Sender<AdminReply>) -> Option<u64> {
        if self.admin.len() >= TICKETS_MAX {
            self.admin.retain(|_, waiting| !waiting.is_closed());
        }
        if self.admin.len() >= TICKETS_MAX {
            waking::answer(answer, AdminReply::busy());
            return None;
        }
        self.last += 1;
        self.admin.insert(self.last, answer);
        Some(self.last)
    }

    pub(super) fn answer_admin(&mut self, ticket: u64, reply: AdminReply) {
        if let Some(answer) = self.admin.remove(&ticket) {
            waking::answer(answer, reply);
        }
    }

    /// A caller asks whether all members answer. Returns false if too many do.
    pub(super) fn prove(&mut self, now: Time, answer: Sender<Vec<MemberId>>) -> bool {
        self.proofs.retain(|(.., answer)| !answer.is_closed());
        let has_room = self.proofs.len() < TICKETS_MAX;
        if has_room {
            self.proofs.push((now, now + PROOF_TIMEOUT, answer));
        }
        has_room
    }

    /// Answers who asked whether all members answer.
    pub(super) fn settle_proofs(&mut self, now: Time, agreement: &Agreement) {
        let settled = |(since, until, _): &mut (Time, Time, _)| {
            *until <= now || agreement.unproven(*since).is_empty()
        };
        for (since, _, answer) in self.proofs.extract_if(.., settled) {
            waking::answer(answer, agreement.unproven(since));
        }
    }

    /// A data thread waits until its cluster of one is marked as used. Returns false if too many
    /// do.
    pub(super) fn wait_for_use(&mut self, answer: Sender<()>) -> bool {
        let has_room = self.used.len() < TICKETS_MAX;
        if has_room {
            self.used.push(answer);
        }
        has_room
    }

    pub(super) fn is_used(&mut self) {
        for answer in self.used.drain(..) {
            waking::answer(answer, ());
        }
    }

    /// This node was expelled.
    pub(super) fn expelled(&mut self) {
        // These are dropped unanswered: that cluster of one gave way, and the write must not be
        // applied.
        self.used.clear();
        for (_, answer) in std::mem::take(&mut self.admin) {
            let reply = AdminReply::unknown("this node was expelled meanwhile");
            waking::answer(answer, reply);
        }
    }

    /// The times at which requests are given up.
    pub(super) fn deadlines(&self) -> impl Iterator<Item = Time> {
        let proofs = self.proofs.iter().map(|(_, until, _)| *until);
        let status = self.status.deadlines();
        let loads = self.loads.deadlines();
        status
            .chain(loads)
            .chain(self.histories.deadlines())
            .chain(self.clients.deadlines())
            .chain(proofs)
    }
}

/// Questions to the coordinator, or to any member.
pub(super) struct Questions<T> {
    last: u64,
    asked: BTreeMap<u64, (Time, MemberId, Sender<T>)>,
}

impl<T> Default for Questions<T> {
    fn default() -> Self {
        Self {
            last: 0,
            asked: BTreeMap::new(),
        }
    }
}

impl<T> Questions<T> {
    pub(super) fn has_room(&self) -> bool {
        self.asked.len() < TICKETS_MAX
    }

    pub(super) fn ask(&mut self, now: Time, member: MemberId, answer: Sender<T>) -> u64 {
        self.last += 1;
        let question = (now + STATUS_TIMEOUT, member, answer);
        self.asked.insert(self.last, question);
        self.last
    }

    /// A member answers. `None`: it was not asked that.
    pub(super) fn take(&mut self, ticket: u64, from: MemberId) -> Option<Sender<T>> {
        let (_, asked, _) = self.asked.get(&ticket)?;
        if *asked != from {
            return None;
        }
        self.asked.remove(&ticket).map(|(.., answer)| answer)
    }

    /// The questions that were not answered in time, each with the member that was asked.
    pub(super) fn overdue(&mut self, now: Time) -> Vec<(MemberId, Sender<T>)> {
        let asked = self.asked.iter();
        let overdue = asked.filter(|(_, (deadline, ..))| *deadline <= now);
        let overdue: Vec<u64> = overdue.map(|(ticket, _)| *ticket).collect();
        let taken = overdue
            .iter()
            .filter_map(|ticket| self.asked.remove(ticket));
        taken.map(|(_, asked, answer)| (asked, answer)).collect()
    }

    fn deadlines(&self) -> impl Iterator<Item = Time> {
        self.asked.values().map(|(deadline, ..)| *deadline)
    }
}
