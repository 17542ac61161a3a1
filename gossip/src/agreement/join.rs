//! A newcomer at a living cluster. It asks the members that it found until the coordinator admits
//! it.

use super::api::Output;
use super::bootstrap::LISTED_MAX;
use super::context::{Context, NamedTable};
use super::event::Event;
use super::problem::Problem;
use crate::time::Time;
use crate::wire::{CommitNotice, Message, Payload};
use doyen_placement::table::validate::COUNT_MAX;
use doyen_placement::{ClusterId, MemberId, Version};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// The time between two requests.
const ASK_AGAIN: Duration = Duration::from_millis(150);
/// If nothing was heard of that cluster for this long, the search begins again.
const LOST: Duration = Duration::from_secs(3);
/// A process that was refused for this long without a break gives up.
pub(super) const REFUSED_MAX: Duration = Duration::from_secs(10);

/// A process that waits to be admitted.
#[derive(Debug)]
pub(super) struct Joining {
    cluster: ClusterId,
    contacts: Vec<MemberId>,
    /// The newest version of that cluster's table that this process has heard of.
    seen: Version,
    /// Counts the requests sent. Contacts are asked in turn: this one, modulo their number.
    turn: usize,
    ask_at: Time,
    heard_at: Time,
    began_at: Time,
    /// The member of that cluster that was heard last: its name and its control port.
    member: Option<(String, SocketAddr)>,
    refusals: JoinRefusals,
}

/// The refusals of a process that asks a cluster to have it as a member.
#[derive(Debug, Default)]
pub(super) struct JoinRefusals {
    /// Since when the cluster refuses it for good, without a break or a refusal "for now" in
    /// between. After `REFUSED_MAX` the process gives up.
    since: Option<Time>,
    /// The time and the reason of the last one.
    last: Option<(Time, String)>,
}

impl JoinRefusals {
    /// The cluster refuses this process, for now or for good. Returns whether the reason is
    /// another one than before.
    pub(super) fn hear(&mut self, cx: &mut Context, why: String, for_now: bool) -> bool {
        let last = self.last.replace((cx.now, why.clone()));
        let is_break = last
            .as_ref()
            .is_none_or(|(at, _)| cx.now.since(*at) >= LOST);
        if for_now || is_break {
            self.since = None;
        }
        let is_news = last.is_none_or(|(_, before)| before != why);
        if !for_now && cx.now.since(*self.since.get_or_insert(cx.now)) >= REFUSED_MAX {
            cx.outputs.push_back(Output::Fatal(why));
        }
        is_news
    }

    /// The reason of the last one, as it was put for people.
    pub(super) fn why(&self) -> Option<&str> {
        self.last.as_ref().map(|(_, why)| why.as_str())
    }

    /// The same, if this process is still refused.
    pub(super) fn present(&self, now: Time) -> Option<&str> {
        let (at, why) = self.last.as_ref()?;
        (now.since(*at) < LOST).then_some(why.as_str())
    }
}

impl Joining {
    pub(super) fn new(cx: &Context, cluster: ClusterId, contact: MemberId, seen: Version) -> Self {
        let seen = seen.min(Version(COUNT_MAX));
        Self {
            cluster,
            contacts: vec![contact],
            seen,
            turn: 0,
            ask_at: cx.now,
            heard_at: cx.now,
            began_at: cx.now,
            member: None,
            refusals: JoinRefusals::default(),
        }
    }

    pub(super) fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// A member of that cluster gives its name and its address.
    pub(super) fn introduced(&mut self, member: (String, SocketAddr)) {
        self.member = Some(member);
    }

    /// Why the cluster refused this process, as it was put for people.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusals.why()
    }

    /// Why this process is no member yet, if it was not refused.
    pub(super) fn problem(&self, now: Time) -> Problem {
        Problem::NotAdmitted {
            cluster: self.cluster,
            by: self.member.clone(),
            seconds: now.since(self.began_at).as_secs(),
        }
    }

    pub(super) fn timeout(&self) -> Option<Time> {
        Some(self.ask_at)
    }

    /// A member of that cluster was heard. Its table has this version.
    pub(super) fn heard(&mut self, cx: &Context, member: MemberId, version: Version) {
        self.heard_at = cx.now;
        if version.0 <= COUNT_MAX {
            self.seen = self.seen.max(version);
        }
        let known: BTreeSet<MemberId> = self.contacts.iter().copied().collect();
        if known.len() < LISTED_MAX && !known.contains(&member) {
            self.contacts.push(member);
        }
    }

    /// Returns false if that cluster is not there any more.
    pub(super) fn turn(&mut self, cx: &mut Context) -> bool {
        if cx.now.since(self.heard_at) >= LOST {
            return false;
        }
        if self.ask_at <= cx.now {
            self.ask_at = cx.now + ASK_AGAIN;
            self.turn = self.turn.wrapping_add(1);
            if let Some(contact) = self.contacts.get(self.turn % self.contacts.len().max(1)) {
                let (cluster, member) = (self.cluster, Box::new(cx.config.member()));
                cx.send(
                    *contact,
                    Message::Join {
                        copies: None,
                        cluster,
                        member,
                        seen: self.seen,
                    },
                );
            }
        }
        true
    }

    /// The cluster refuses to admit this process, for now or for good.
    pub(super) fn on_refused(&mut self, cx: &mut Context, why: String, for_now: bool) {
        self.heard_at = cx.now;
        if self.refusals.hear(cx, why.clone(), for_now) {
            cx.event(Event::NoCoordinator { why });
        }
    }

    /// The table that admits this process, if this is one.
    pub(super) fn admitted(&self, cx: &Context, committed: &CommitNotice) -> Option<NamedTable> {
        let Payload::Whole(table) = &committed.payload else {
            return None;
        };
        table.validate().ok()?;
        let table = NamedTable::new(table.clone());
        (table.name == committed.name
            && table.cluster == self.cluster
            && table.member(cx.me()).is_some())
        .then_some(table)
    }
}
