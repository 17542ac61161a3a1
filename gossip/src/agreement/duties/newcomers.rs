//! Who wants to be let in.
//!
//! The coordinator admits only a process that it has heard itself. A member that the coordinator
//! does not hear is expelled, and comes back as another process by way of other members: the
//! coordinator then probes its address, and admits it when it answers. Until then the newcomer says
//! why it waits.
//!
//! Two members of a name are never both live. If a process asks to join under the name of a member
//! that answers, it is refused. If that member is silent, the process is admitted, and the same
//! table renames the silent one to `NAME~AGE`. If the renamed member answers again, it is treated
//! as a leaver (`outlived`): it serves until what it holds is copied, and ends because its name is
//! taken.

use super::super::bootstrap::name_taken;
use super::super::context::Context;
use super::super::council::Council;
use super::super::election::Role;
use super::super::event::Event;
use super::Unheard;
use crate::detector::Hinted;
use crate::mutant::{self, broken};
use crate::wire::Message;
use doyen_placement::hash::Digest;
use doyen_placement::{Age, Member, MemberId, MemberState, Table, Version};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// Newcomers that wait at the same time.
const JOINERS_MAX: usize = 64;
/// Whoever asks by way of others and is not heard for this long is told why it waits, and so are
/// people.
const UNHEARD_PATIENCE: Duration = Duration::from_secs(1);
/// Whoever asks no more for so long does not wait any more.
const UNHEARD_FORGOTTEN: Duration = Duration::from_secs(3);

impl Council {
    /// A newcomer asks to be admitted, maybe through another member.
    pub(in crate::agreement) fn on_join(
        &mut self,
        cx: &mut Context,
        from: MemberId,
        mut member: Member,
        seen: Version,
    ) {
        if member.state != MemberState::Draining {
            member.state = MemberState::Live;
        }
        if seen < self.removed_at && !broken(&mutant::ADMITS_LATE) {
            // It may have been let in since, and removed again: then it has acted, and others have
            // forgotten what they kept for it. Whoever is new asks again, with what it hears of
            // this.
            let standing = cx.standing(self.membership());
            return cx.send(from, Message::ProbeAnswer(standing));
        }
        let refuse = |cx: &mut Context, cluster, why: String| {
            cx.send(
                from,
                Message::JoinRefused {
                    cluster,
                    member: member.id,
                    why,
                    for_now: false,
                },
            )
        };
        let cluster = self.cluster();
        if let Err(why) = member.validate() {
            return refuse(cx, cluster, why.to_string());
        }
        if member.name.contains(FORMER) {
            return refuse(
                cx,
                cluster,
                format!(
                    "the name {} must not contain `{FORMER}`; choose another with --name",
                    member.name
                ),
            );
        }
        if self.accepted.member(member.id).is_some() {
            return;
        }
        let namesakes: Vec<Arc<Member>> = self
            .accepted
            .members
            .iter()
            .filter(|m| bore(m, &member.name))
            .cloned()
            .collect();
        let mut heard = None;
        for old in namesakes {
            let silent = old.state == MemberState::Silent || self.silent(cx, old.id);
            let same_place = old.addresses.control == member.addresses.control
                || broken(&mutant::VOUCHES_FROM_ANYWHERE);
            let Role::Leader(leader) = &mut self.role else {
                return;
            };
            match (silent, same_place) {
                // A later process of its name, on its address, vouches that it is dead (rule 7).
                (true, true) => _ = leader.duties.dead.insert(old.id),
                // It may be alive behind a cut. What it held is governed by what the keyspace says;
                // only its name is given away.
                (true, false) => _ = leader.duties.succeeded.insert(old.id),
                (false, _) => heard = Some((old, same_place)),
            }
        }
        if let Some((old, same_place)) = heard {
            let Role::Leader(leader) = &mut self.role else {
                return;
            };
            let since = *leader.duties.doubted.entry(old.id).or_insert(cx.now);
            let answered = self
                .detector
                .answered_at(old.id)
                .is_some_and(|at| at > since);
            if answered || old.id == cx.me() {
                leader.duties.doubted.remove(&old.id);
                return refuse(cx, cluster, name_taken(&member.name, &old));
            }
            if same_place && self.detector.vouched_dead(old.id, cx.now) == Hinted::First {
                self.ping_suspect(cx, old.id);
            }
            return;
        }
        // It asks only whom it has heard. So what it asks here itself is a round trip; what others
        // pass on is none.
        if from != member.id {
            return self.listen(cx, from, member, seen);
        }
        let level = self.accepted.level;
        if !may_join(cx, level, member.id) {
            // A process that has not said hello asks again, and has by then.
            if let Some(speaks) = cx.speaks(member.id) {
                let why = speaks_less(&member.name, speaks, level);
                refuse(cx, cluster, why);
            }
            return;
        }
        if let Role::Leader(leader) = &mut self.role
            && leader.duties.joiners.len() < JOINERS_MAX
        {
            leader.duties.unheard.remove(&member.id);
            leader.duties.joiners.insert(member.id, member);
        }
    }

    /// Asks a newcomer whether it hears this node, and is heard. Whoever does not would be expelled
    /// as soon as it is admitted, join by way of the others and be expelled again, and each time
    /// tables change and copies move.
    fn listen(&mut self, cx: &mut Context, from: MemberId, member: Member, seen: Version) {
        let cluster = self.cluster();
        let Role::Leader(leader) = &mut self.role else {
            return;
        };
        let unheard = &mut leader.duties.unheard;
        unheard.retain(|_, waits| cx.now.since(waits.asked) < UNHEARD_FORGOTTEN);
        if unheard.len() >= JOINERS_MAX && !unheard.contains_key(&member.id) {
            return;
        }
        let (id, address, now) = (member.id, member.addresses.control, cx.now);
        let waits = unheard.entry(id).or_insert_with(|| Unheard {
            member: member.clone(),
            seen,
            since: now,
            asked: now,
            told: false,
        });
        (waits.member, waits.seen, waits.asked) = (member, seen, now);
        if now.since(waits.since) >= UNHEARD_PATIENCE {
            let me = &cx.config.name;
            let why = format!(
                "{} does not answer the coordinator, {me}, at {address} (UDP): it stays outside until it does",
                waits.member.name
            );
            if !std::mem::replace(&mut waits.told, true) {
                cx.event(Event::note(why.clone()));
            }
            cx.send(
                from,
                Message::JoinRefused {
                    cluster,
                    member: id,
                    why,
                    for_now: true,
                },
            );
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

/// Whether a process speaks what every member of a cluster of this level speaks.
pub(super) fn may_join(cx: &Context, level: u16, id: MemberId) -> bool {
    cx.speaks(id).is_some_and(|speaks| speaks >= level) || broken(&mutant::ADMITS_LOWER)
}

/// All that an old program can show of this is the text.
fn speaks_less(name: &str, speaks: u16, level: u16) -> String {
    format!(
        "this cluster runs at level {level}, and {name} speaks no more than level {speaks}; update its program, or start it without --level-max"
    )
}

/// Stands in the name of a member whose name a newcomer has. Names that people choose do not
/// contain it.
const FORMER: char = '~';

/// Of a name that is too long to be kept whole, so many bytes are kept. With a hash and an age it
/// is no longer than names may be.
const FORMER_KEPT: usize = 31;
/// A name of so many bytes is kept whole.
const FORMER_WHOLE: usize = 40;

/// What a silent member is called once a newcomer has its name. It tells which name that was: a
/// name that is not kept whole leaves its hash.
pub(super) fn former_name(name: &str, age: Age) -> String {
    if name.is_ascii() && name.len() <= FORMER_WHOLE {
        return format!("{name}{FORMER}{age}");
    }
    let kept: String = name
        .chars()
        .filter(char::is_ascii)
        .take(FORMER_KEPT)
        .collect();
    let mut digest = Digest::new();
    name.hash(&mut digest);
    let hash = digest.finish() as u32;
    format!("{kept}{FORMER}{hash:08x}{FORMER}{age}")
}

/// Whether this member has this name, or had it until a newcomer took it.
pub(super) fn bore(member: &Member, name: &str) -> bool {
    member.name == name || member.name == former_name(name, member.age)
}

/// These members give up their names. They are dead, or silent and replaced by a newcomer.
pub(super) fn give_up_names(table: &mut Cow<'_, Table>, members: &BTreeSet<MemberId>) {
    for id in members {
        let keeps =
            |m: &Arc<Member>| m.id == *id && !m.name.ends_with(&format!("{FORMER}{}", m.age));
        if let Some(place) = table.members.iter().position(keeps) {
            let member = Arc::make_mut(&mut table.to_mut().members[place]);
            member.name = former_name(&member.name, member.age);
        }
    }
}

/// Members that answer, and whose name another member has had since they were silent.
pub(super) fn outlived(table: &Table) -> Vec<MemberId> {
    let taken = |m: &Member| {
        table
            .members
            .iter()
            .any(|other| other.id != m.id && m.name == former_name(&other.name, m.age))
    };
    table
        .members
        .iter()
        .filter(|m| m.state != MemberState::Silent && m.name.contains(FORMER) && taken(m))
        .map(|m| m.id)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::fixtures::{member, members};
    use doyen_placement::table::validate::NAME_BYTES_MAX;

    /// Only the first 40 ASCII characters of a name counted, so long names were taken for one
    /// another.
    #[test]
    fn names_that_begin_alike_or_differ_in_other_than_ascii_characters_are_not_taken_for_one_another()
     {
        let long = "a".repeat(NAME_BYTES_MAX - 1);
        let names = [
            format!("{long}1"),
            format!("{long}2"),
            "a".repeat(40),
            "a".repeat(41),
            "knötchen".into(),
            "knätchen".into(),
            "kntchen".into(),
        ];
        for name in &names {
            let former = Member {
                name: former_name(name, Age(u64::MAX)),
                age: Age(u64::MAX),
                ..member(1)
            };
            assert_eq!(former.validate(), Ok(()), "{}", former.name);
            let taken_for: Vec<&String> =
                names.iter().filter(|other| bore(&former, other)).collect();
            assert_eq!(taken_for, [name]);
        }
        assert_eq!(
            former_name(&names[2], Age(7)),
            format!("{}~7", names[2]),
            "a name that fits is kept whole"
        );
    }

    #[test]
    fn a_member_whose_name_only_begins_like_anothers_is_not_outlived_by_it() {
        let long = "a".repeat(NAME_BYTES_MAX - 1);
        let mut table = members(2);
        let age = table.members[0].age;
        let mut called =
            |place: usize, name: String| Arc::make_mut(&mut table.members[place]).name = name;
        called(0, former_name(&format!("{long}1"), age));
        called(1, format!("{long}2"));
        assert_eq!(outlived(&table), []);
        Arc::make_mut(&mut table.members[1]).name = format!("{long}1");
        assert_eq!(outlived(&table), [table.members[0].id]);
    }
}
