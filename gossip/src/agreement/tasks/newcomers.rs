//! Processes that ask to be admitted.
//!
//! The coordinator admits only a process that it has heard itself. A member that the coordinator
//! does not hear is expelled, and comes back as another process through other members. The
//! coordinator then probes its address, and admits it when it answers. Until then the newcomer says
//! why it waits.
//!
//! Two members of a name are never both live. If a process asks to join under the name of a member
//! that answers, it is refused. If that member is silent, the process is admitted, and the same
//! table renames the silent one to `NAME~AGE`. If the renamed member answers again, it is treated
//! as a leaver (`outlived`): it serves until its data is copied, and ends because its name is
//! taken.
//!
//! A newcomer whose weight is far above the others' waits until an operator allows its weight: a
//! member that lies about it would draw nearly all data to itself.

use super::super::context::{Context, NamedTable};
use super::super::event::Event;
use super::super::pings::Pings;
use super::super::problem::Problem;
use super::super::tables::Tables;
use super::CoordinatorTasks;
use crate::detector::Hinted;
use crate::mutant::{self, broken};
use crate::time::Time;
use crate::wire::{Message, ProcessState};
use doyen_placement::hash::Digest;
use doyen_placement::level::DURABILITY;
use doyen_placement::planner::{self, SeatHeir, TooHeavy, too_heavy};
use doyen_placement::{
    Age, ClusterId, Durability, Keyspace, Member, MemberId, MemberState, Role, Table, Version,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// The number of newcomers that wait at the same time.
const JOINERS_MAX: usize = 64;
/// If a newcomer asks through other members and the coordinator has not heard it for this long, the
/// coordinator tells the newcomer why it waits, and reports it.
const UNHEARD_PATIENCE: Duration = Duration::from_secs(1);
/// A newcomer that has not asked for this long does not wait any more.
const UNHEARD_FORGOTTEN: Duration = Duration::from_secs(3);
/// If a newcomer that waits because of its weight has not asked for this long, its next request is
/// reported again.
const HEAVY_FORGOTTEN: Duration = Duration::from_secs(600);
/// The most such newcomers that are reported in that time: names cost a liar nothing.
const HEAVY_MAX: usize = 64;

/// The number of newcomers that are admitted at a time: every member connects with each of them.
const ADMITTED_MAX: usize = 16;
/// How long the last admitted newcomers may take to answer before the next are admitted.
const ADMITTED_PATIENCE: Duration = Duration::from_millis(500);

/// Processes that ask a coordinator to be admitted.
#[derive(Debug, Default)]
pub(super) struct Newcomers {
    /// They are admitted with the next table.
    joiners: BTreeMap<MemberId, Member>,
    /// Newcomers that ask through other members, and that this coordinator has not heard itself.
    unheard: BTreeMap<MemberId, Unheard>,
    /// Names of newcomers that wait because of their weight and that people were told of, and when
    /// each last asked.
    heavy: BTreeMap<String, Time>,
    /// The newcomers that were admitted last, and when.
    admitted: Option<(Time, Vec<MemberId>)>,
}

/// A newcomer that the coordinator asks whether it hears and is heard.
#[derive(Debug)]
struct Unheard {
    member: Member,
    seen: Version,
    since: Time,
    asked: Time,
    /// Whether people were told.
    told: bool,
}

impl CoordinatorTasks {
    /// A process that waits to be admitted somewhere answers this node. Returns what it asked for.
    pub(in crate::agreement) fn heard_newcomer(
        &mut self,
        from: MemberId,
    ) -> Option<(Member, Version)> {
        let heard = self.newcomers.unheard.remove(&from)?;
        Some((heard.member, heard.seen))
    }

    /// A newcomer asks to be admitted, perhaps through another member. Returns a member that is to
    /// be asked whether it lives.
    pub(in crate::agreement) fn on_join(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        pings: &mut Pings,
        from: MemberId,
        mut member: Member,
        seen: Version,
    ) -> Option<MemberId> {
        if member.state != MemberState::Draining {
            member.state = MemberState::Live;
        }
        if seen < tables.removed_at && !broken(&mutant::ADMITS_LATE) {
            // It may have been admitted since, and removed again. Then it has acted, and other
            // members have forgotten what they kept for it. A process that is really new asks
            // again, with the version that it hears here.
            let status = cx.process_status(tables.membership());
            cx.send(from, Message::ProbeAnswer(status));
            return None;
        }
        let id = member.id;
        let cluster = tables.cluster();
        let refuse = |cx: &mut Context, problem: Problem| {
            let why = cx.explain(&problem);
            refuse(cx, from, cluster, id, why, false);
            None
        };
        if let Err(problem) = is_valid(&member) {
            return refuse(cx, problem);
        }
        if tables.accepted.member(member.id).is_some() {
            return None;
        }
        let members = tables.accepted.members.iter();
        let namesakes = members.filter(|m| bore(m, &member.name));
        let heavy = too_heavy(&tables.accepted, &member);
        let mut heard = None;
        for old in namesakes {
            let silent = old.state == MemberState::Silent || pings.silent(cx, old.id);
            let same_place = old.addresses.control == member.addresses.control
                || broken(&mutant::VOUCHES_FROM_ANYWHERE);
            match (silent, same_place) {
                // A later process of its name, on its address, proves that it is dead (rule 7).
                (true, true) => self.absent.prove_dead(old.id),
                // It may be alive behind a cut. The keyspace says what becomes of its data. Only
                // its name is given away, once this process can be admitted.
                (true, false) if heavy.is_some() => {}
                (true, false) => self.absent.succeed(old.id),
                (false, _) => heard = Some((old, same_place)),
            }
        }
        if let Some((old, same_place)) = heard {
            let since = self.absent.doubt(cx.now, old.id);
            let answered = pings.detector.answered_at(old.id);
            let answered = answered.is_some_and(|at| at > since);
            if answered || old.id == cx.me() {
                self.absent.believe(old.id);
                let problem = Problem::NameTaken {
                    name: member.name.clone(),
                    at: old.addresses.control,
                };
                return refuse(cx, problem);
            }
            let vouched =
                same_place && pings.detector.vouched_dead(old.id, cx.now) == Hinted::First;
            return vouched.then_some(old.id);
        }
        // What people must do about its weight does not depend on whether it is heard.
        if let Some(heavy) = heavy {
            self.newcomers.unheard.remove(&id);
            let why = self.newcomers.hold_back(cx, heavy);
            self::refuse(cx, from, cluster, id, why, true);
            return None;
        }
        // A newcomer asks only members that it has heard. So a request that it sends here itself
        // proves a round trip. A request that another member passed on proves none.
        if from != member.id {
            let membership = tables.membership();
            self.newcomers
                .listen(cx, membership, cluster, from, member, seen);
            return None;
        }
        let level = tables.accepted.level;
        member.start = cx.start(id, id);
        match speaks_enough(cx, level, id, &member.name) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(problem) => return refuse(cx, problem),
        }
        match has_directory(&tables.accepted, &member) {
            Ok(()) => self.newcomers.join(member),
            Err(problem) => return refuse(cx, problem),
        }
        None
    }
}

impl CoordinatorTasks {
    /// A process that speaks for a member, because it has its directory, asks to take its place.
    ///
    /// # Errors
    /// It cannot have that place until an operator changes something.
    pub(in crate::agreement) fn on_heir(
        &mut self,
        cx: &Context,
        tables: &Tables,
        pings: &Pings,
        from: MemberId,
        mut heir: SeatHeir,
    ) -> Result<(), Problem> {
        let accepted = &tables.accepted;
        let process = &mut heir.member;
        let Some(before) = accepted.member(from) else {
            return Ok(());
        };
        // Others tell a process and its heir apart by ids, and know them by one key.
        if before.vote_key.is_none() || accepted.member(process.id).is_some() {
            return Ok(());
        }
        is_valid(process)?;
        if !speaks_enough(cx, accepted.level, from, &process.name)? {
            return Ok(());
        }
        process.start = cx.start(from, process.id);
        if planner::is_outdated(before, process) {
            return Err(Problem::StartedLater {
                name: process.name.clone(),
                start: process.start,
                last: before.start,
            });
        }
        match namesake(accepted, from, &process.name) {
            Some(other) if other.state == MemberState::Silent || pings.silent(cx, other.id) => {
                // The heir asks again, and the name is free by then.
                self.absent.succeed(other.id);
                return Ok(());
            }
            Some(other) => {
                return Err(Problem::HeirNameTaken {
                    name: process.name.clone(),
                    at: other.addresses.control,
                    former: before.name.clone(),
                });
            }
            None => {}
        }
        if process.state != MemberState::Draining {
            process.state = MemberState::Live;
        }
        self.heirs.insert(from, heir);
        Ok(())
    }

    /// The table in which heirs have taken the places of their predecessors, which are dead.
    pub(super) fn inherit(&mut self, cx: &Context, pings: &Pings, base: &NamedTable) -> NamedTable {
        let heirs = &mut self.heirs;
        heirs.retain(|before, heir| {
            base.member(*before).is_some() && base.member(heir.member.id).is_none()
        });
        if heirs.is_empty() {
            return base.clone();
        }
        let mut table = Table::clone(&base.table);
        for (before, heir) in heirs {
            // Two heirs may ask for one name at once. The second one is refused when it asks again.
            if namesake(&table, *before, &heir.member.name).is_some() {
                continue;
            }
            let lives = |member| pings.lives(cx, member);
            // What the heir holds depends on whether other holders live. A coordinator that has
            // just been elected does not know that yet.
            let is_known = |m: &MemberId| lives(*m) || cx.has_heir(*m) || pings.silent(cx, *m);
            if !planner::beside_on_disk(&table, *before)
                .iter()
                .all(is_known)
            {
                continue;
            }
            if let Some(next) = planner::take_over(&table, *before, heir, former_name, lives) {
                table = next;
                self.absent.prove_dead(*before);
            }
        }
        NamedTable {
            name: base.name,
            table: Arc::new(table),
        }
    }
}

impl Newcomers {
    /// Asks a newcomer whether it hears this node. Otherwise a newcomer that does not would be
    /// expelled as soon as it is admitted, would join through other members, and be expelled again.
    /// Each time, tables would change and copies move.
    fn listen(
        &mut self,
        cx: &mut Context,
        membership: ProcessState,
        cluster: ClusterId,
        from: MemberId,
        member: Member,
        seen: Version,
    ) {
        let unheard = &mut self.unheard;
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
                "{} does not answer the coordinator, {me}, at {address} (UDP): it stays outside \
                 until it does",
                waits.member.name
            );
            if !std::mem::replace(&mut waits.told, true) {
                cx.event(Event::note(why.clone()));
            }
            refuse(cx, from, cluster, id, why, true);
        }
        let status = cx.process_status(membership);
        cx.dial(address, Message::Probe(status));
    }

    /// Whether some are to be admitted.
    pub(super) fn wait(&self) -> bool {
        !self.joiners.is_empty()
    }

    /// A newcomer is to be admitted with the next table, if not too many are.
    pub(super) fn join(&mut self, member: Member) {
        if self.joiners.len() < JOINERS_MAX {
            self.heavy.remove(&member.name);
            self.unheard.remove(&member.id);
            self.joiners.insert(member.id, member);
        }
    }

    /// Whether the last admitted newcomers answer by now. If many newcomers were admitted at once,
    /// all their new connections would keep members from answering, and those would look dead.
    pub(super) fn settled(&self, now: Time, answers: impl Fn(MemberId) -> bool) -> bool {
        self.admitted.as_ref().is_none_or(|(at, members)| {
            now.since(*at) >= ADMITTED_PATIENCE || members.iter().all(|m| answers(*m))
        })
    }

    /// The next ones to be admitted into this table, which has room for this many.
    pub(super) fn admit(&mut self, cx: &Context, table: &Table, room: usize) -> Vec<Member> {
        let mut newcomers: Vec<Member> = (0..ADMITTED_MAX)
            .map_while(|_| self.joiners.pop_first())
            .map(|(_, m)| m)
            .collect();
        // The level may have risen since they asked, or what is allowed may have changed: they are
        // refused when they ask again.
        newcomers.retain(|m| {
            may_join(cx, table.level, m.id)
                && too_heavy(table, m).is_none()
                && has_directory(table, m).is_ok()
        });
        if table.level < DURABILITY {
            newcomers.iter_mut().for_each(|m| m.start = None);
        }
        newcomers.truncate(room);
        self.admitted = Some((cx.now, newcomers.iter().map(|m| m.id).collect()));
        newcomers
    }

    /// A newcomer waits because of its weight: tells people once, and returns why.
    fn hold_back(&mut self, cx: &mut Context, heavy: TooHeavy) -> String {
        let name = heavy.name.clone();
        let why = cx.explain(&heavy.into());
        let now = cx.now;
        self.heavy
            .retain(|_, asked| now.since(*asked) < HEAVY_FORGOTTEN);
        if let Some(asked) = self.heavy.get_mut(&name) {
            *asked = now;
        } else if self.heavy.len() < HEAVY_MAX {
            self.heavy.insert(name, now);
            cx.event(Event::note(why.clone()));
        }
        why
    }
}

/// Tells a newcomer, perhaps through the member that passed its request on, why it stays outside.
fn refuse(
    cx: &mut Context,
    to: MemberId,
    cluster: ClusterId,
    member: MemberId,
    why: String,
    for_now: bool,
) {
    cx.send(
        to,
        Message::JoinRefused {
            cluster,
            member,
            why,
            for_now,
        },
    );
}

/// Whether a process may ever be a member.
fn is_valid(member: &Member) -> Result<(), Problem> {
    member.validate()?;
    if member.name.contains(FORMER) {
        return Err(Problem::NameReserved {
            name: member.name.clone(),
            part: FORMER,
        });
    }
    Ok(())
}

/// Whether this newcomer has the directory that it needs.
///
/// # Errors
/// A keyspace keeps its data on disk, and the newcomer would hold some of it in memory alone.
fn has_directory(table: &Table, newcomer: &Member) -> Result<(), Problem> {
    let on_disk = |k: &&Keyspace| k.durability != Durability::None;
    match table.keyspaces.iter().find(on_disk) {
        Some(keyspace) if newcomer.role == Role::Data && newcomer.start.is_none() => {
            Err(Problem::NoDirectory {
                name: newcomer.name.clone(),
                keyspace: keyspace.name.clone(),
            })
        }
        _ => Ok(()),
    }
}

/// The member that has this name, besides the one whose place a process takes.
fn namesake<'a>(table: &'a Table, besides: MemberId, name: &str) -> Option<&'a Member> {
    let others = table.members.iter().map(|member| &**member);
    others
        .filter(|other| other.id != besides)
        .find(|other| other.name == name)
}

/// Whether a process of this name may join a cluster of this level. False: it has not said hello
/// yet. It asks again, and has by then.
///
/// # Errors
/// It speaks less.
fn speaks_enough(cx: &Context, level: u16, id: MemberId, name: &str) -> Result<bool, Problem> {
    if may_join(cx, level, id) {
        return Ok(true);
    }
    match cx.speaks(id) {
        None => Ok(false),
        Some(speaks) => Err(Problem::SpeaksLess {
            name: name.to_owned(),
            speaks,
            level,
        }),
    }
}

/// Whether a process speaks what every member of a cluster of this level speaks. If it does not, it
/// may be an old program, which can show no more of the reason than its text.
fn may_join(cx: &Context, level: u16, id: MemberId) -> bool {
    cx.speaks(id).is_some_and(|speaks| speaks >= level) || broken(&mutant::ADMITS_LOWER)
}

/// Part of the name of a member whose name a newcomer took. People cannot choose names that contain
/// it.
const FORMER: char = '~';

/// The number of bytes that are kept of a name that is too long. With a hash and an age, the result
/// is no longer than names may be.
const FORMER_KEPT: usize = 31;
/// A name of at most this many bytes is kept whole.
const FORMER_WHOLE: usize = 40;

/// The name of a silent member once a newcomer has its name. It shows the former name. If that is
/// not kept whole, it contains its hash.
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

/// Renames these members. They are dead, or silent and replaced by a newcomer.
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

/// Members that answer again after another member took their name.
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

    /// Only the first 40 ASCII characters of a name counted, so long names were confused.
    #[test]
    fn names_that_begin_alike_or_differ_outside_of_ascii_are_not_taken_for_one_another() {
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
