//! Who wants to be let in.

use super::super::bootstrap::name_taken;
use super::super::context::Context;
use super::super::council::Council;
use super::super::election::Role;
use super::super::event::Event;
use super::Unheard;
use crate::detector::Hinted;
use crate::wire::Message;
use doyen_placement::mutant::{Mutant, broken};
use doyen_placement::{Age, Member, MemberId, MemberState, Table, Version};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Newcomers that wait at the same time.
const JOINERS_MAX: usize = 64;
/// Whoever asks by way of others and is not heard for this long is told why it waits, and so are people.
const UNHEARD_PATIENCE: Duration = Duration::from_secs(1);
/// Whoever asks no more for so long does not wait any more.
const UNHEARD_FORGOTTEN: Duration = Duration::from_secs(3);

impl Council {
    /// A newcomer asks to be admitted, maybe through another member.
    pub(in crate::agreement) fn on_join(&mut self, cx: &mut Context, from: MemberId, mut member: Member, seen: Version) {
        if member.state != MemberState::Draining {
            member.state = MemberState::Live;
        }
        if seen < self.removed_at && !broken(Mutant::AdmitsLate) {
            // It may have been let in since, and removed again: then it has acted, and others have forgotten what they kept for it. Whoever
            // is new asks again, with what it hears of this.
            let standing = cx.standing(self.membership());
            return cx.send(from, Message::ProbeAnswer(standing));
        }
        let refuse = |cx: &mut Context, cluster, why: String| {
            cx.send(from, Message::JoinRefused { cluster, member: member.id, why, for_now: false })
        };
        let cluster = self.cluster();
        if let Err(why) = member.validate() {
            return refuse(cx, cluster, why.to_string());
        }
        if self.accepted.member(member.id).is_some() {
            return;
        }
        let namesakes: Vec<Arc<Member>> = self.accepted.members.iter().filter(|m| bore(m, &member.name)).cloned().collect();
        let mut heard = None;
        for old in namesakes {
            let silent = old.state == MemberState::Silent || self.silent(cx, old.id);
            let same_place = old.addresses.control == member.addresses.control || broken(Mutant::VouchesFromAnywhere);
            let Role::Leader(leader) = &mut self.role else { return };
            match (silent, same_place) {
                // Rule 7: a later process of its name, on its address, vouches that it is dead.
                (true, true) => _ = leader.duties.dead.insert(old.id),
                // It may be alive behind a cut. What it held is governed by what the keyspace says; only its name is given away.
                (true, false) => _ = leader.duties.succeeded.insert(old.id),
                (false, _) => heard = Some((old, same_place)),
            }
        }
        if let Some((old, same_place)) = heard {
            let Role::Leader(leader) = &mut self.role else { return };
            let since = *leader.duties.doubted.entry(old.id).or_insert(cx.now);
            let answered = self.detector.answered_at(old.id).is_some_and(|at| at > since);
            if answered || old.id == cx.me() {
                leader.duties.doubted.remove(&old.id);
                return refuse(cx, cluster, name_taken(&member.name, &old));
            }
            if same_place && self.detector.vouched_dead(old.id, cx.now) == Hinted::First {
                self.ping_suspect(cx, old.id);
            }
            return;
        }
        // It asks only whom it has heard. So what it asks here itself is a round trip; what others pass on is none.
        if from != member.id {
            return self.listen(cx, from, member, seen);
        }
        if let Role::Leader(leader) = &mut self.role
            && leader.duties.joiners.len() < JOINERS_MAX
        {
            leader.duties.unheard.remove(&member.id);
            leader.duties.joiners.insert(member.id, member);
        }
    }

    /// Asks a newcomer whether it hears this node, and is heard. Whoever does not would be expelled as soon as it is admitted, join by way of
    /// the others and be expelled again, and each time tables change and copies move.
    fn listen(&mut self, cx: &mut Context, from: MemberId, member: Member, seen: Version) {
        let cluster = self.cluster();
        let Role::Leader(leader) = &mut self.role else { return };
        let unheard = &mut leader.duties.unheard;
        unheard.retain(|_, waits| cx.now.since(waits.asked) < UNHEARD_FORGOTTEN);
        if unheard.len() >= JOINERS_MAX && !unheard.contains_key(&member.id) {
            return;
        }
        let (id, address, now) = (member.id, member.addresses.control, cx.now);
        let waits = unheard.entry(id).or_insert_with(|| Unheard { member: member.clone(), seen, since: now, asked: now, told: false });
        (waits.member, waits.seen, waits.asked) = (member, seen, now);
        if now.since(waits.since) >= UNHEARD_PATIENCE {
            let me = &cx.config.name;
            let why =
                format!("{} does not answer the coordinator, {me}, at {address} (UDP): it stays outside until it does", waits.member.name);
            if !std::mem::replace(&mut waits.told, true) {
                cx.event(Event::note(why.clone()));
            }
            cx.send(from, Message::JoinRefused { cluster, member: id, why, for_now: true });
        }
        let standing = cx.standing(self.membership());
        cx.dial(address, Message::Probe(standing));
    }

    /// A process that waits to be admitted somewhere answers this node.
    pub(in crate::agreement) fn heard_newcomer(&mut self, cx: &mut Context, from: MemberId) {
        if let Role::Leader(leader) = &mut self.role
            && let Some(heard) = leader.duties.unheard.remove(&from)
        {
            self.on_join(cx, from, heard.member, heard.seen);
        }
    }
}

/// What a silent member is called once a newcomer has its name. Names that people choose have no `~` in them.
pub(super) fn former_name(name: &str, age: Age) -> String {
    format!("{:.40}~{age}", name.chars().filter(char::is_ascii).collect::<String>())
}

/// Whether this member has this name, or had it until a newcomer took it.
pub(super) fn bore(member: &Member, name: &str) -> bool {
    member.name == name || member.name == former_name(name, member.age)
}

/// These members give up their names. They are dead, or silent and replaced by a newcomer.
pub(super) fn give_up_names(table: &mut Cow<'_, Table>, members: &BTreeSet<MemberId>) {
    for id in members {
        let keeps = |m: &Arc<Member>| m.id == *id && !m.name.ends_with(&format!("~{}", m.age));
        if let Some(place) = table.members.iter().position(keeps) {
            let member = Arc::make_mut(&mut table.to_mut().members[place]);
            member.name = former_name(&member.name, member.age);
        }
    }
}

/// Members that answer, and whose name another member has had since they were silent.
pub(super) fn outlived(table: &Table) -> Vec<MemberId> {
    let taken = |m: &Member| table.members.iter().any(|other| other.id != m.id && m.name == former_name(&other.name, m.age));
    table.members.iter().filter(|m| m.state != MemberState::Silent && m.name.contains('~') && taken(m)).map(|m| m.id).collect()
}
