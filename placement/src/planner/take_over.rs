//! Heirs: processes that have the directory of a member that is gone.
//!
//! An heir takes the member's seat: its age, its key and its vote. Of the member's copies it takes
//! those that are on disk (rule 7):
//!
//! ```text
//!  the copy of a partition of durability log         the heir                    the member's replica
//!  complete, counted, and no other holder lives      has its place, in sync      is the heir's now
//!  complete, and another holder in sync lives        learns, with a head start   is removed
//!  not complete, or of another lineage               has none                    as a dead member's
//! ```

use super::edit::{change_partitions, may_receive, states};
use crate::disk_copies::DiskCopies;
use crate::durability::Durability;
use crate::id::{Age, MemberId};
use crate::level::DURABILITY;
use crate::mutant::{self, broken};
use crate::table::validate::MEMBERS_MAX;
use crate::table::{Member, MemberState, Partition, Role, Table};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A process that asks for the place of the member whose directory it has.
#[derive(Debug, Clone)]
pub struct SeatHeir {
    /// The process.
    pub member: Member,
    /// The complete copies that the directory has.
    pub copies: DiskCopies,
}

/// The table in which a process has taken the place of the member whose directory it has: it has
/// that member's age and key, votes if that member voted, and holds what the directory has of it.
/// The former process becomes the youngest member, silent under another name. It holds the rest of
/// what it held, until [`remove`](super::remove) says what becomes of that.
///
/// `lives`: whether a member answers in its own name. `former` names the former process after its
/// new age. `None`: there is no such member, or the table has the heir, or no room for it, or the
/// directory was started later than the heir says.
#[must_use]
pub fn take_over(
    table: &Table,
    member: MemberId,
    heir: &SeatHeir,
    former: impl FnOnce(&str, Age) -> String,
    lives: impl Fn(MemberId) -> bool,
) -> Option<Table> {
    let SeatHeir {
        member: process,
        copies,
    } = heir;
    let place = table.members.iter().position(|m| m.id == member)?;
    if table.member(process.id).is_some() || table.members.len() >= MEMBERS_MAX {
        return None;
    }
    let mut next = table.clone();
    let before = Arc::clone(&next.members[place]);
    if is_outdated(&before, process) {
        return None;
    }
    let drained = next.settings.balancing.drains(member) || process.state == MemberState::Draining;
    next.settings.balancing.set_drained(process.id, drained);
    let state = if drained {
        MemberState::Draining
    } else {
        MemberState::Live
    };
    next.members[place] = Arc::new(Member {
        age: before.age,
        state,
        vote_key: before.vote_key,
        start: process.start.filter(|_| table.level >= DURABILITY),
        ..process.clone()
    });
    next.members.push(Arc::new(Member {
        age: next.next_age,
        name: former(&before.name, next.next_age),
        state: MemberState::Silent,
        ..Member::clone(&before)
    }));
    next.next_age = next.next_age.next();
    let seats = next.voters.iter_mut().filter(|voter| **voter == member);
    seats.for_each(|voter| *voter = process.id);
    if process.role == Role::Witness {
        return Some(next);
    }
    Some(take_copies(&next, (member, process.id), copies, lives))
}

/// The members that are not silent, and hold in sync what this member holds and what is on disk.
#[must_use]
pub fn beside_on_disk(table: &Table, member: MemberId) -> BTreeSet<MemberId> {
    let states = states(table);
    let on_disk = table.keyspaces.iter();
    on_disk
        .filter(|keyspace| keyspace.durability != Durability::None)
        .flat_map(|keyspace| &keyspace.partitions)
        .filter(|partition| partition.holds(member))
        .flat_map(|partition| partition.in_sync())
        .filter(|m| *m != member && states.get(m) != Some(&MemberState::Silent))
        .collect()
}

/// Whether a later process than this heir began with the directory of the member, so that the heir
/// has a former state of it.
#[must_use]
pub fn is_outdated(member: &Member, heir: &Member) -> bool {
    member.start.is_some() && heir.start <= member.start
}

/// The table in which the heir has the copies of the former process that are complete on disk.
fn take_copies(
    table: &Table,
    (former, heir): (MemberId, MemberId),
    copies: &DiskCopies,
    lives: impl Fn(MemberId) -> bool,
) -> Table {
    let states = states(table);
    let is_silent = |m: MemberId| states.get(&m) == Some(&MemberState::Silent);
    let may_learn = table.member(heir).is_some_and(|m| may_receive(m));
    change_partitions(table, |at, partition| {
        let keyspace = table.keyspace(at.keyspace)?;
        let counts = (partition.lineage, keyspace.durable_since);
        let is_complete = copies.get(at) == Some(counts) || broken(&mutant::HEIR_HOLDS_ANYTHING);
        if keyspace.durability == Durability::None || !is_complete || !partition.holds(former) {
            return None;
        }
        // The former process is silent, and so may be others. Their copies are not needed: a
        // complete one has every acknowledged write.
        let others = partition.in_sync().filter(|m| !is_silent(*m));
        let others: Vec<MemberId> = others.collect();
        let learners: Vec<MemberId> = partition.learners().filter(|m| !is_silent(*m)).collect();
        let counted = partition.in_sync().any(|m| m == former);
        let is_led = others.iter().any(|m| lives(*m));
        if counted && (!is_led || broken(&mutant::HEIR_IN_SYNC_BESIDE_THE_LIVING)) {
            let in_sync = partition
                .in_sync()
                .filter(|m| *m == former || !is_silent(*m));
            let in_sync: Vec<MemberId> = in_sync.map(|m| named(m, former, heir)).collect();
            let next = partition.with_replicas(&in_sync, &learners);
            return Some(with_goal_of(next, former, heir));
        }
        // Where its goal is to be without this copy, none is made.
        let wanted = partition.goal.as_ref().is_none_or(|g| g.contains(&former));
        if others.is_empty() || !may_learn || !wanted {
            return None;
        }
        let learners: Vec<MemberId> = learners.into_iter().chain([heir]).collect();
        let mut next = partition.with_replicas(&others, &learners);
        next.goal
            .get_or_insert_with(|| others.into_iter().chain([heir]).collect());
        Some(with_goal_of(next, former, heir))
    })
}

/// The partition whose goal names the heir in place of the former process, so that nothing moves.
fn with_goal_of(mut partition: Partition, former: MemberId, heir: MemberId) -> Partition {
    for goal in partition.goal.iter_mut().flatten() {
        *goal = named(*goal, former, heir);
    }
    partition
}

/// This member, or the heir if it is the former process.
fn named(member: MemberId, former: MemberId, heir: MemberId) -> MemberId {
    if member == former { heir } else { member }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Epoch, KeyspaceId, Lineage, PartitionId, PartitionRef, Version};
    use crate::planner::{Absence, remove};
    use crate::table::{Addresses, Keyspace, OnLoss};
    use crate::vote_key::VoteKey;

    fn member(id: u64) -> Member {
        let at = std::net::SocketAddr::from(([10, 0, 0, 1], 7000));
        let member = Member::new(MemberId(id << 4), format!("n{id}"), Addresses::new(at, at));
        Member {
            vote_key: Some(VoteKey([u8::try_from(id).unwrap(); 32])),
            ..member
        }
    }

    fn heir_of(member: Member) -> SeatHeir {
        SeatHeir {
            member,
            copies: DiskCopies::default(),
        }
    }

    #[test]
    fn an_heir_has_the_seat_and_the_key_of_its_predecessor_and_none_of_its_copies() {
        let table = Table::of_test((1..=3).map(member), Keyspace::fixed(4, 1));
        let table = crate::planner::assign(&table);
        let (one, heir) = (MemberId(1 << 4), member(9));
        let heir = heir_of(Member {
            name: "n1".into(),
            ..heir
        });
        let former = |name: &str, age: Age| format!("{name}~{age}");
        let next = take_over(&table, one, &heir, former, |_| false).unwrap();
        assert_eq!(next.validate(), Ok(()));
        assert!(next.may_follow(&table));
        let taken = next.member(MemberId(9 << 4)).unwrap();
        assert_eq!((taken.age, taken.vote_key), (Age(1), member(1).vote_key));
        assert_eq!(next.voters, [taken.id, MemberId(2 << 4), MemberId(3 << 4)]);
        let before = next.member(one).unwrap();
        assert_eq!((before.state, &*before.name), (MemberState::Silent, "n1~4"));
        assert!(
            next.partitions()
                .all(|(at, p)| table.partition(at) == Some(p))
        );
        assert_eq!(take_over(&next, one, &heir, former, |_| false), None);
    }

    #[test]
    fn a_directory_that_was_started_later_elsewhere_has_no_heir() {
        let table = Table::of_test(
            (1..=3).map(|id| Member {
                start: Some(5),
                ..member(id)
            }),
            Keyspace::fixed(4, 1),
        );
        let table = crate::planner::assign(&table);
        let (one, former) = (MemberId(1 << 4), |name: &str, age| format!("{name}~{age}"));
        let heir = |start| {
            heir_of(Member {
                name: "n1".into(),
                start,
                ..member(9)
            })
        };
        let taken = |table: &Table, start| take_over(table, one, &heir(start), former, |_| false);
        for start in [None, Some(4), Some(5)] {
            assert!(is_outdated(table.member(one).unwrap(), &heir(start).member));
            assert_eq!(taken(&table, start), None);
        }
        let next = taken(&table, Some(6)).unwrap();
        assert_eq!(next.member(MemberId(9 << 4)).unwrap().start, Some(6));
        assert_eq!(next.member(one).unwrap().start, Some(5));
        assert!(next.may_follow(&table));
        let mut wrong = next.clone();
        Arc::make_mut(&mut wrong.members[0]).start = Some(5);
        assert!(!wrong.may_follow(&table), "the start of a seat rises");
        // A member of level 16 does not speak of starts.
        let lower = table.at_level(DURABILITY - 1);
        let next = taken(&lower, Some(6)).unwrap();
        assert!(next.members.iter().all(|m| m.start.is_none()));
    }

    const ONE: MemberId = MemberId(1 << 4);
    const TWO: MemberId = MemberId(2 << 4);
    const THREE: MemberId = MemberId(3 << 4);
    const HEIR: MemberId = MemberId(9 << 4);

    /// Three members, on whose disks each of these partitions is: the first one on these, the
    /// primary first.
    fn on_disk(in_sync: &[MemberId]) -> Table {
        let keyspace = Keyspace {
            durability: Durability::Log,
            ..Keyspace::fixed(1, 1)
        };
        let mut table = crate::planner::assign(&Table::of_test((1..=3).map(member), keyspace));
        let partition = Partition::new(PartitionId(0), in_sync.iter().copied());
        table.keyspaces[0].partitions = vec![Arc::new(Partition {
            epoch: Epoch(4),
            since: Epoch(2),
            lineage: Lineage(3),
            ..partition
        })];
        table
    }

    /// The first partition, once an heir with a copy of this lineage has the seat of `former`.
    /// These members live.
    fn inherited(
        table: &Table,
        former: MemberId,
        lineage: Option<u32>,
        living: &[MemberId],
    ) -> (Table, Partition) {
        let at = PartitionRef::new(KeyspaceId(0), PartitionId(0));
        let heir = SeatHeir {
            member: Member {
                name: "heir".into(),
                ..member(9)
            },
            copies: lineage
                .map(|lineage| (at, (Lineage(lineage), Version(0))))
                .into_iter()
                .collect(),
        };
        let named = |name: &str, age: Age| format!("{name}~{age}");
        let next = take_over(table, former, &heir, named, |m| living.contains(&m)).unwrap();
        assert_eq!(next.validate(), Ok(()));
        assert!(next.may_follow(table));
        let partition = Partition::clone(next.partition(at).unwrap());
        (next, partition)
    }

    fn in_sync(partition: &Partition) -> Vec<MemberId> {
        partition.in_sync().collect()
    }

    fn learners(partition: &Partition) -> Vec<MemberId> {
        partition.learners().collect()
    }

    #[test]
    fn where_no_other_holder_lives_an_heir_has_the_place_of_its_complete_copy() {
        let table = on_disk(&[ONE, TWO]);
        let (_, led) = inherited(&table, ONE, Some(3), &[THREE]);
        assert_eq!(in_sync(&led), [HEIR, TWO]);
        assert_eq!(
            (led.epoch, led.since, led.lineage),
            (Epoch(5), Epoch(5), Lineage(3))
        );
        let (_, followed) = inherited(&table, TWO, Some(3), &[THREE]);
        assert_eq!(in_sync(&followed), [ONE, HEIR]);
        assert_eq!((followed.epoch, followed.since), (Epoch(5), Epoch(2)));

        // A silent member is known not to live, so its copy is not waited for.
        let silent = remove(
            &table,
            &[(ONE, Absence::Silent), (TWO, Absence::Silent)].into(),
        );
        assert_eq!(silent.members.len(), 3, "both hold it");
        let (_, alone) = inherited(&silent, TWO, Some(3), &[ONE, THREE]);
        assert_eq!(in_sync(&alone), [HEIR]);
        assert_eq!((alone.epoch, alone.since), (Epoch(5), Epoch(5)));
    }

    #[test]
    fn beside_another_holder_that_lives_an_heir_learns() {
        let table = on_disk(&[ONE, TWO]);
        for (former, living) in [(ONE, TWO), (TWO, ONE)] {
            let (_, partition) = inherited(&table, former, Some(3), &[living]);
            assert_eq!(
                (in_sync(&partition), learners(&partition)),
                (vec![living], vec![HEIR])
            );
            assert_eq!(partition.goal, Some(vec![living, HEIR]));
            assert_eq!(partition.epoch, Epoch(5));
        }
    }

    #[test]
    fn goals_name_the_heir_and_where_a_copy_goes_away_none_is_made() {
        let with_goal = |goal: &[MemberId]| {
            let mut table = on_disk(&[ONE, TWO]);
            Arc::make_mut(&mut table.keyspaces[0].partitions[0]).goal = Some(goal.to_vec());
            table
        };
        let moves = with_goal(&[THREE, ONE]);
        let (_, learns) = inherited(&moves, ONE, Some(3), &[TWO]);
        assert_eq!(
            (learns.goal.clone(), learners(&learns)),
            (Some(vec![THREE, HEIR]), vec![HEIR])
        );
        let (_, leads) = inherited(&moves, ONE, Some(3), &[]);
        assert_eq!(
            (leads.goal.clone(), in_sync(&leads)),
            (Some(vec![THREE, HEIR]), vec![HEIR, TWO])
        );
        let away = with_goal(&[THREE, TWO]);
        let (_, partition) = inherited(&away, ONE, Some(3), &[TWO]);
        assert_eq!(in_sync(&partition), [ONE, TWO], "until it is removed");
        assert!(learners(&partition).is_empty());
    }

    #[test]
    fn an_heir_of_a_learner_learns() {
        let mut table = on_disk(&[ONE]);
        let partition = Arc::make_mut(&mut table.keyspaces[0].partitions[0]);
        partition.goal = Some(vec![ONE, TWO]);
        *partition = partition.with_replicas(&[ONE], &[TWO]);
        for living in [&[ONE][..], &[]] {
            let (_, partition) = inherited(&table, TWO, Some(3), living);
            assert_eq!(
                (in_sync(&partition), learners(&partition)),
                (vec![ONE], vec![HEIR])
            );
            assert_eq!(partition.goal, Some(vec![ONE, HEIR]));
            assert_eq!(partition.epoch, Epoch(5), "a learner was dropped");
        }
    }

    /// What the former process alone held, and the heir does not have.
    #[test]
    fn without_its_copy_a_partition_on_disk_waits_and_one_in_memory_begins_empty() {
        for (durability, lineage) in [
            (Durability::Log, None),
            (Durability::Log, Some(2)),
            (Durability::None, Some(3)),
        ] {
            let mut table = on_disk(&[ONE]);
            let keyspace = &mut table.keyspaces[0];
            (keyspace.durability, keyspace.on_loss) = (durability, OnLoss::Reset { after_ms: 9 });
            let (next, partition) = inherited(&table, ONE, lineage, &[TWO]);
            assert_eq!(in_sync(&partition), [ONE], "{durability} {lineage:?}");
            let next = remove(&next, &[(ONE, Absence::Ended)].into());
            let begins_empty = next.keyspaces[0].partitions[0].lineage > Lineage(3);
            assert_eq!(begins_empty, durability == Durability::None);
            assert_eq!(next.member(ONE).is_none(), begins_empty);
            let given_up = remove(&next, &[(ONE, Absence::Dead)].into());
            assert!(given_up.keyspaces[0].partitions[0].lineage > Lineage(3));
        }
    }
}
