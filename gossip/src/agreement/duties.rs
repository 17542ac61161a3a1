//! What a coordinator changes: every change is a function of `placement::planner`, and travels in the next table.
//!
//! Urgent changes (the dead, joins, leaves, people's requests) go at once; changes of in-sync sets and steps of moves are
//! batched (rule 11).

use super::api::{AdminReply, AdminRequest, Output};
use super::context::Context;
use super::coordinator::Coordinator;
use super::seat::{Office, Seat};
use crate::wire::Message;
use doyen_placement::planner::{
    Departure, InSyncChange, MoveLimits, admit, adopt, advance, assign, change_in_sync, elders, hand_over, holds_anything, remove, reset,
    revive,
};
use doyen_placement::quorum::majority;
use doyen_placement::{MapEntry, MapId, MemberId, MemberState, OnLoss, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Partitions that one report may name.
pub(super) const OPENED_MAX: usize = 65_536;
/// Learners at the same time.
const MOVES: MoveLimits = MoveLimits { learners_per_source: 16, learners_per_target: 32, learners: 64 };
/// First and longest pause after a learner failed.
const LEARNER_PAUSE: Duration = Duration::from_millis(200);
const LEARNER_PAUSE_MAX: Duration = Duration::from_secs(10);

/// A table to be, and whom to answer when it is committed.
type Prepared = (Table, Vec<(MemberId, u64, AdminReply)>);

impl Seat {
    pub(super) fn departed(&self) -> bool {
        self.tables.installed.members.is_empty()
    }

    /// The next table, if anything is to be changed.
    pub(super) fn next_table(&mut self, cx: &mut Context) -> Option<Prepared> {
        let cluster = self.tables.installed.cluster;
        let Office::Coordinator(office) = &mut self.office else { return None };
        if office.in_flight.is_some() {
            return None;
        }
        let base = self.tables.accepted.clone();
        // Rule 4: before voters may change, what is accepted must be committed.
        let settled = self.tables.accepted_name == self.tables.installed_name;
        if !settled {
            return Some((base.as_ref().clone(), Vec::new()));
        }
        let mut next = base.as_ref().clone();

        let (me, timing) = (cx.me, &cx.config.timing);
        let is_silent = |m: MemberId| m != me && cx.detector.silent(m, cx.now, timing.pings_missed_max, timing.ping_interval);
        let quiet: BTreeSet<MemberId> = base.members.iter().map(|m| m.id).filter(|m| is_silent(*m)).collect();
        let silent = |m: MemberId| quiet.contains(&m);
        let may_vote = |office: &Coordinator, voters: &[MemberId]| majority(voters, |v| v == me || office.joined.contains(&v));

        // ---- the dead, the given up, the gone
        let mut going: BTreeMap<MemberId, Departure> = BTreeMap::new();
        for member in &base.members {
            let empty = || !holds_anything(&base, member.id);
            if office.gone.contains(&member.id) && member.state == MemberState::Leaving && empty() {
                going.insert(member.id, Departure::Left);
            } else if self.asserted.contains(&member.id) {
                going.insert(member.id, Departure::Dead);
            } else if member.state == MemberState::Silent {
                let since = *office.silent_since.entry(member.id).or_insert(cx.now);
                if office.vouched.contains(&member.id) || lost_for_good(&base, member.id, cx.now.since(since)) {
                    going.insert(member.id, Departure::Dead);
                }
            } else if silent(member.id) {
                let left = member.state == MemberState::Leaving && empty();
                going.insert(member.id, if left { Departure::Left } else { Departure::Silent });
            }
        }
        if !going.is_empty() {
            let without = remove(&next, &going);
            // Tables that change no voter are always allowed (rule 4).
            if without.voters == next.voters || may_vote(office, &without.voters) {
                next = without;
            }
        }

        // ---- voters: of the members that were there before
        let should = elders(&next);
        if should != next.voters && should.iter().all(|v| base.member(*v).is_some()) && may_vote(office, &should) {
            next.voters = should;
        }

        // ---- who comes back, who comes, who goes
        let back: BTreeSet<MemberId> = base
            .members
            .iter()
            .filter(|m| m.state == MemberState::Silent && !silent(m.id))
            .filter(|m| office.silent_since.get(&m.id).is_some_and(|since| cx.detector.answered_at(m.id).is_some_and(|at| at > *since)))
            .map(|m| m.id)
            .collect();
        if !back.is_empty() {
            next = revive(&next, &back);
        }
        next = admissions(cx, office, next, cluster, &silent);
        for &leaver in &office.leaving {
            if next.member(leaver).is_some_and(|m| matches!(m.state, MemberState::Live | MemberState::Draining)) {
                next = hand_over(&next, leaver);
            }
        }
        let replies = administration(office, &mut next, cx.me);
        next = assign(&next);

        // ---- what can wait
        let batch = cx.now >= office.batch_at;
        office.batch_waits = !office.in_sync.is_empty() || office.goals.is_some() || has_goals(&next);
        if batch {
            next = in_sync_changes(cx, office, next);
            if let Some((_, goals)) = office.goals.take_if(|(planned, _)| *planned == self.tables.accepted_name) {
                next = adopt(&next, &goals);
            }
            office.goals = None;
            if has_goals(&next) {
                let now = cx.now;
                office.failed.retain(|_, (_, until)| now.since(*until) < LEARNER_PAUSE_MAX);
                let paused = office.failed.iter().filter(|(_, (_, until))| now < *until).map(|(key, _)| *key).collect();
                if let Some(advanced) = advance(&next, &MOVES, &paused) {
                    next = advanced;
                }
            }
        }

        let present: BTreeSet<MemberId> = next.members.iter().map(|m| m.id).collect();
        office.leaving.retain(|m| present.contains(m));
        office.gone.retain(|m| present.contains(m));
        office.vouched.retain(|m| present.contains(m));
        let lives = |m: &MemberId| next.member(*m).is_some_and(|m| m.state == MemberState::Silent);
        office.silent_since.retain(|m, _| lives(m));
        if next != *base || office.fresh || !replies.is_empty() {
            if batch {
                office.batch_at = cx.now + cx.config.timing.batch;
            }
            return Some((next, replies));
        }
        if batch {
            // Nothing came of it: look again soon only if a failed learner waits.
            office.batch_waits = !office.failed.is_empty() && has_goals(&next);
            office.batch_at = cx.now + cx.config.timing.batch;
        }
        if office.planned_for != Some(self.tables.accepted_name) && next.keyspaces.iter().any(|k| !k.partitions.is_empty()) {
            office.planned_for = Some(self.tables.accepted_name);
            cx.out.push_back(Output::Plan(self.tables.accepted.clone()));
        }
        None
    }
}

fn has_goals(table: &Table) -> bool {
    table.keyspaces.iter().flat_map(|k| &k.partitions).any(|p| p.goal.is_some())
}

/// Whether a silent member was waited for long enough, by the keyspaces of what it alone holds.
fn lost_for_good(table: &Table, member: MemberId, silent: Duration) -> bool {
    table.keyspaces.iter().filter(|k| k.partitions.iter().any(|p| p.replicas.iter().any(|r| r.member == member))).any(|k| match k.on_loss {
        OnLoss::Reset { after_ms } => silent >= Duration::from_millis(after_ms),
        OnLoss::Wait => false,
    })
}

/// Admits whoever asks, unless its name or address is somebody's who lives.
fn admissions(
    cx: &mut Context,
    office: &mut Coordinator,
    next: Table,
    cluster: doyen_placement::ClusterId,
    silent: &impl Fn(MemberId) -> bool,
) -> Table {
    if office.joins.is_empty() {
        return next;
    }
    let mut newcomers = Vec::new();
    let mut names: BTreeSet<String> = next.members.iter().map(|m| m.name.clone()).collect();
    for (id, member) in std::mem::take(&mut office.joins) {
        if next.member(id).is_some() {
            continue;
        }
        let namesake = next.members.iter().find(|m| m.name == member.name);
        let tenant = next.members.iter().find(|m| m.addresses.control == member.addresses.control);
        if let Some(former) = namesake.or(tenant) {
            // A later process on its address: the former one is gone, or will be found to be (it asks again).
            let same_place = former.addresses.control == member.addresses.control;
            if former.state == MemberState::Silent {
                if same_place {
                    office.vouched.insert(former.id);
                }
            } else if same_place {
                cx.detector.suspect(former.id, cx.now);
            }
            if former.state != MemberState::Silent && !silent(former.id) {
                let why = format!("a member named {} at {} lives: give each node its own --name", former.name, former.addresses.control);
                cx.send(id, Message::JoinRefused { cluster, member: id, why });
            }
            continue;
        }
        if names.insert(member.name.clone()) {
            newcomers.push(member);
        }
    }
    if newcomers.is_empty() {
        return next;
    }
    // Who cannot be admitted must not hold up who can.
    let mut admitted = next;
    for newcomer in newcomers {
        let id = newcomer.id;
        let with = admit(&admitted, vec![newcomer]);
        match with.validate() {
            Ok(()) => {
                cx.used = true;
                admitted = with;
            }
            Err(why) => cx.send(id, Message::JoinRefused { cluster, member: id, why: why.to_string() }),
        }
    }
    admitted
}

/// Rule 7: by compare-and-swap on the epoch, and only what the primary asks.
fn in_sync_changes(cx: &Context, office: &mut Coordinator, next: Table) -> Table {
    if office.in_sync.is_empty() {
        return next;
    }
    let asked = std::mem::take(&mut office.in_sync);
    let requests: Vec<_> = asked
        .into_iter()
        .filter(|(origin, r)| next.partition(r.partition).is_some_and(|p| p.primary() == *origin))
        .map(|(_, r)| r)
        .collect();
    for request in &requests {
        if let InSyncChange::Abandon(member) | InSyncChange::Withdraw(member) = request.change {
            let (times, until) = office.failed.entry((request.partition, member)).or_insert((0, cx.now));
            if cx.now >= *until {
                *until = cx.now + (LEARNER_PAUSE * 2u32.saturating_pow(*times)).min(LEARNER_PAUSE_MAX);
                *times = (*times + 1).min(8);
            }
        }
    }
    change_in_sync(&next, &requests).0
}

/// Does what people ask; the answers go out when the table is committed.
fn administration(office: &mut Coordinator, next: &mut Table, _me: MemberId) -> Vec<(MemberId, u64, AdminReply)> {
    let mut replies = Vec::new();
    for ((origin, ticket), request) in std::mem::take(&mut office.admin) {
        let reply = match request {
            AdminRequest::CreateMap { name, keyspace } => create_map(next, name, &keyspace),
            AdminRequest::SetOnLoss { keyspace, on_loss } => match next.keyspaces.iter_mut().find(|k| k.name == keyspace) {
                Some(k) => {
                    k.on_loss = on_loss;
                    AdminReply::Done(None)
                }
                None => AdminReply::Refused(format!("no keyspace is named {keyspace}")),
            },
            AdminRequest::GiveUp { name } => match next.members.iter().find(|m| m.name == name).map(|m| (m.id, m.state)) {
                Some((id, MemberState::Silent)) => {
                    *next = reset(next, id);
                    AdminReply::Done(None)
                }
                Some(_) => AdminReply::Refused(format!("{name} answers: only a silent member can be given up")),
                None => AdminReply::Refused(format!("no member is named {name}")),
            },
        };
        replies.push((origin, ticket, reply));
    }
    replies
}

fn create_map(next: &mut Table, name: String, keyspace: &str) -> AdminReply {
    let Some(keyspace) = next.keyspace_named(keyspace).map(|k| k.id) else {
        return AdminReply::Refused(format!("no keyspace is named {keyspace}"));
    };
    if let Some(map) = next.map_named(&name) {
        return if map.keyspace == keyspace {
            AdminReply::Done(Some(map.clone()))
        } else {
            AdminReply::Refused(format!("the map {name} lives in another keyspace"))
        };
    }
    // Maps are never removed: the next number was never used.
    let id = MapId(next.maps.last().map_or(1, |m| m.id.0 + 1));
    let map = MapEntry { id, name, keyspace };
    next.maps.push(map.clone());
    if let Err(why) = next.validate() {
        next.maps.pop();
        return AdminReply::Refused(why.to_string());
    }
    AdminReply::Done(Some(map))
}
