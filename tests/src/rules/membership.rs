//! Checks of admission and leaving (rules 7, 10 and 12), and of how the first cluster forms.

use super::members::{Fate, Letter, Members, Setup, address, find, id};
use super::moves::ask;
use super::orders::every_course;
use super::shards;
use doyen_gossip::Input;
use doyen_gossip::agreement::{InSyncChange, InSyncRequest};
use doyen_gossip::wire::Message;
use doyen_placement::level::LEVELS;
use doyen_placement::planner::{self, Absence, HandOverUrgency, SeatHeir};
use doyen_placement::{
    Durability, Lineage, Member, MemberState, OnLoss, Partition, PartitionRef, Version,
};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The number of first tables and promises whose fate a course chooses.
const CHOSEN_MAX: usize = 8;

/// A learner is withdrawn while the request to count it is on its way. The request arrives after
/// the learner has begun again.
pub(super) fn a_withdrawn_learner_is_not_counted() -> Result<(), String> {
    let mut m = Members::of(Setup::of(3))?;
    m.start(4, &[1, 2, 3], None);
    let learns = |m: &Members, at: PartitionRef| {
        m.table(1).is_ok_and(|t| {
            t.partition(at)
                .is_some_and(|p| p.learners().any(|l| l == id(4)))
        })
    };
    m.until(3000, "learner", |m| {
        m.table(1).is_ok_and(|t| {
            find(&t, |p| {
                p.primary() == id(2) && p.learners().any(|l| l == id(4))
            })
            .is_ok()
        })
    })?;
    let table = m.table(1)?;
    let partition = find(&table, |p| {
        p.primary() == id(2) && p.learners().any(|l| l == id(4))
    })?;
    let epoch = table
        .partition(partition)
        .map(|p| p.epoch)
        .unwrap_or_default();
    m.post(|letter| match &letter.message {
        Message::InSync { requests, .. }
            if requests
                .iter()
                .any(|r| matches!(r.change, InSyncChange::Admit(_))) =>
        {
            Fate::Waits
        }
        _ => Fate::Arrives,
    });
    m.input(
        2,
        Input::InSync(vec![InSyncRequest {
            partition,
            epoch,
            change: InSyncChange::Admit(id(4)),
        }]),
    );
    m.input(
        2,
        Input::InSync(vec![InSyncRequest {
            partition,
            epoch,
            change: InSyncChange::Withdraw(id(4)),
        }]),
    );
    m.until(2000, "table without it", |m| !learns(m, partition))?;
    m.until(5000, "learner that begins again", |m| learns(m, partition))?;
    m.let_go(|_| true);
    m.run(200);
    m.verdict()?;
    let counts = m
        .table(1)?
        .partition(partition)
        .is_some_and(|p| p.in_sync().any(|m| m == id(4)));
    if counts {
        Err(format!(
            "I13: n4 counts in {partition}, and its primary has compared nothing"
        ))
    } else {
        Ok(())
    }
}

/// A learner has caught up. By the time that its primary's request arrives, it is silent or leaves.
pub(super) fn a_silent_or_leaving_learner_is_not_admitted() -> Result<(), String> {
    let learning = shards::change(&shards::table(2, &[1]), |p| {
        p.replicas = shards::replicas(&[1], &[2])
    });
    let epoch = learning
        .partition(shards::AT)
        .map(|p| p.epoch)
        .unwrap_or_default();
    let admit = [InSyncRequest {
        partition: shards::AT,
        epoch,
        change: InSyncChange::Admit(shards::id(2)),
    }];
    for state in [MemberState::Live, MemberState::Silent, MemberState::Leaving] {
        let (_, done) = planner::change_in_sync(&shards::with_state(&learning, 2, state), &admit);
        if done != [state == MemberState::Live] {
            return Err(format!(
                "I14: a learner that is {state:?} was admitted: {done:?}"
            ));
        }
    }
    Ok(())
}

/// The partition of two members in sync whose data is on disk, once an heir has the seat of n1. Its
/// directory has a copy of this lineage. `lives`: whether n2 answers.
fn inherited(lineage: Lineage, lives: bool) -> Result<Partition, String> {
    let mut table = shards::table(2, &[1, 2]);
    for keyspace in &mut table.keyspaces {
        keyspace.durability = Durability::Log;
    }
    let before = table.member(shards::id(1)).ok_or("n1 is no member")?;
    let heir = SeatHeir {
        member: Member {
            id: shards::id(9),
            name: "heir".into(),
            ..Member::clone(before)
        },
        copies: [(shards::AT, (lineage, Version(0)))].into_iter().collect(),
    };
    let former = |name: &str, age| format!("{name}~{age}");
    let next = planner::take_over(&table, shards::id(1), &heir, former, |_| lives);
    let partition = next.as_ref().and_then(|next| next.partition(shards::AT));
    partition
        .map(|partition| Partition::clone(partition))
        .ok_or_else(|| "the heir does not get the seat".into())
}

/// All nodes lost power. The disk of an heir has a copy from before the partition began empty.
pub(super) fn an_heir_holds_what_its_disk_has() -> Result<(), String> {
    let present = Lineage(1);
    if !inherited(present, false)?.holds(shards::id(9)) {
        return Err("rule 7: an heir does not hold the complete copy on its disk".into());
    }
    if inherited(present.next(), false)?.holds(shards::id(9)) {
        return Err("rule 7: an heir holds a copy that its disk does not have".into());
    }
    Ok(())
}

/// A node starts again while the other one in sync serves: its disk lacks the writes since.
pub(super) fn an_heir_learns_beside_the_living() -> Result<(), String> {
    let partition = inherited(Lineage(1), true)?;
    if partition.in_sync().any(|m| m == shards::id(9)) {
        return Err("rule 7: an heir is in sync beside a member that serves without it".into());
    }
    if !partition.learners().any(|m| m == shards::id(9)) {
        return Err("rule 7: an heir does not learn what it has on disk".into());
    }
    Ok(())
}

/// A primary that alone holds a partition has asked to count its learner, and becomes silent. When
/// it is back, another learner has the same name.
pub(super) fn a_new_learner_is_not_counted_by_an_old_request() -> Result<(), String> {
    let learning = shards::change(&shards::table(2, &[1]), |p| {
        p.replicas = shards::replicas(&[1], &[2])
    });
    let epoch = learning
        .partition(shards::AT)
        .map(|p| p.epoch)
        .unwrap_or_default();
    let silent = planner::remove(
        &learning,
        &BTreeMap::from([(shards::id(1), Absence::Silent)]),
    );
    let back = planner::revive(&silent, &BTreeSet::from([shards::id(1)]));
    if back
        .partition(shards::AT)
        .is_none_or(|p| p.learners().count() > 0 || p.primary() != shards::id(1))
    {
        return Err("the check did not reach its situation: n2 still learns".into());
    }
    let again = shards::change(&back, |p| p.replicas = shards::replicas(&[1], &[2]));
    let admit = [InSyncRequest {
        partition: shards::AT,
        epoch,
        change: InSyncChange::Admit(shards::id(2)),
    }];
    if planner::change_in_sync(&again, &admit).1 == [true] {
        return Err("I13: a learner counts for what it learned before it was dropped".into());
    }
    Ok(())
}

/// The only holder of a partition is suspended for a while.
pub(super) fn the_only_holder_of_a_partition_is_waited_for() -> Result<(), String> {
    let mut m = Members::of(Setup {
        backups: 0,
        on_loss: OnLoss::Reset { after_ms: 60_000 },
        ..Setup::of(3)
    })?;
    let before = m.table(1)?;
    let partition = find(&before, |p| p.primary() == id(3))?;
    m.sleeps(3);
    m.run(2000);
    m.wakes(3);
    let live = |m: &Members| {
        m.table(1).is_ok_and(|t| {
            t.member(id(3))
                .is_some_and(|m| m.state == MemberState::Live)
        })
    };
    m.until(5000, "return", |m| live(m) || !m.lives(3))?;
    m.verdict()?;
    let lineage =
        |t: &doyen_placement::Table| t.partition(partition).map(|p| (p.lineage, p.primary()));
    if lineage(&before) == lineage(&*m.table(1)?) {
        Ok(())
    } else {
        Err(format!(
            "what n3 alone holds is lost, and n3 lives: {}",
            m.summary()
        ))
    }
}

/// The same. Meanwhile another process begins with its name, at another address. It is admitted,
/// but proves no death: the former member comes back with all its data, and hands it over.
pub(super) fn a_namesake_at_another_address_proves_no_death() -> Result<(), String> {
    let mut m = Members::of(Setup {
        backups: 0,
        on_loss: OnLoss::Reset { after_ms: 600_000 },
        ..Setup::of(3)
    })?;
    m.sleeps(3);
    let state = |m: &Members, place| {
        m.table(1)
            .ok()
            .and_then(|t| Some(t.member(id(place))?.state))
    };
    m.until(5000, "silence", |m| {
        state(m, 3) == Some(MemberState::Silent)
    })?;
    m.start_as("n3", 4, &[1, 2], None);
    m.until(3000, "newcomer of its name", |m| {
        state(m, 4) == Some(MemberState::Live)
    })?;
    m.run(3000);
    m.wakes(3);
    m.until(5000, "return", |m| state(m, 3) != Some(MemberState::Silent))?;
    m.verdict()?;
    let table = m.table(1)?;
    let began_empty = table
        .partitions()
        .filter(|(_, p)| p.lineage != Lineage(1))
        .count();
    match table.member(id(3)).map(|m| m.state) {
        _ if began_empty > 0 => Err(format!(
            "what n3 alone holds is lost, because another one has its name: {}",
            m.summary()
        )),
        Some(MemberState::Draining) => Ok(()),
        state => Err(format!(
            "two are live of one name, or n3 is gone with what it holds ({state:?}): {}",
            m.summary()
        )),
    }
}

/// A newcomer is admitted and removed again while an earlier request of it is on its way. (In a
/// simulation, a write that it retried was applied twice, because others had forgotten its
/// outcomes.)
pub(super) fn a_removed_member_is_not_admitted_by_an_old_request() -> Result<(), String> {
    let mut m = Members::of(Setup::of(3))?;
    let asked =
        |letter: &Letter| letter.goes(4, 1) && matches!(letter.message, Message::Join { .. });
    let held = Rc::new(Cell::new(false));
    m.post(move |letter| {
        if asked(letter) && !held.replace(true) {
            Fate::Waits
        } else {
            Fate::Arrives
        }
    });
    m.start_as("n4", 4, &[1], None);
    let is_in = |m: &Members| m.table(1).is_ok_and(|t| t.member(id(4)).is_some());
    m.until(5000, "admission", |m| is_in(m) && m.view(4).is_some())?;
    if !m.waits(asked) {
        return Err("the check did not reach its situation: no request of n4 is on its way".into());
    }
    m.sleeps(4);
    m.until(5000, "removal", |m| !is_in(m))?;
    // While its removal is only proposed, the coordinator takes the sender for a member.
    m.run(50);
    m.let_go(asked);
    // It sleeps, so that it would be removed again at once.
    let again = m.until(1000, "admission", is_in).is_ok();
    m.verdict()?;
    if again {
        Err("I11: n4 was removed, and is a member again".into())
    } else {
        Ok(())
    }
}

/// The sixth member alone speaks less than the others. The second one never hears it, and
/// coordinates once the first is dead. Its first table leaves out the sixth one, too, and is still
/// sent to that one.
pub(super) fn a_process_that_was_not_heard_keeps_the_level() -> Result<(), String> {
    // The fifth one speaks less as well, so that the cluster begins at the lower level. It dies.
    let mut m = Members::of(Setup {
        level_max: |place| if place < 5 { LEVELS.1 } else { LEVELS.0 },
        ..Setup::of(5)
    })?;
    m.post(|letter| {
        if letter.goes(6, 2) {
            Fate::Lost
        } else {
            Fate::Arrives
        }
    });
    m.start(6, &[1], None);
    let votes = |m: &Members| m.table(1).is_ok_and(|t| t.voters.contains(&id(6)));
    m.until(5000, "a sixth voter", votes)?;
    m.kill(5);
    let gone = |m: &Members, place| m.table(3).is_ok_and(|t| t.member(id(place)).is_none());
    m.until(5000, "a table without the fifth", |m| gone(m, 5))?;
    m.run(1000);
    m.kill(1);
    m.until(5000, "a table without the sixth", |m| gone(m, 6))?;
    m.run(2000);
    m.verdict()
}

/// A cluster has risen to a level, and a process asks to join that speaks less.
pub(super) fn a_process_that_speaks_less_stays_outside() -> Result<(), String> {
    let mut m = Members::of(Setup {
        level_max: |place| if place == 4 { LEVELS.0 } else { LEVELS.1 },
        ..Setup::of(3)
    })?;
    m.start_as("n4", 4, &[1], None);
    m.run(3000);
    m.verdict()?;
    let inside = m.table(1)?.member(id(4)).is_some();
    if inside {
        Err("I17: n4 is a member, and speaks less than the level".into())
    } else {
        Ok(())
    }
}

/// Of two members, one alone holds something and is silent. The other is asked to leave. (In a
/// simulation it left, and what it alone knew and held was lost.)
pub(super) fn a_leaver_waits_for_a_silent_holder() -> Result<(), String> {
    let mut m = Members::of(Setup {
        backups: 0,
        on_loss: OnLoss::Reset { after_ms: 60_000 },
        ..Setup::of(2)
    })?;
    m.sleeps(2);
    let silent = |m: &Members| {
        m.table(1).is_ok_and(|t| {
            t.member(id(2))
                .is_some_and(|m| m.state == MemberState::Silent)
        })
    };
    m.until(5000, "silence", silent)?;
    m.input(1, Input::Leave(HandOverUrgency::Repair));
    m.run(5000);
    m.verdict()?;
    let goes = m.process(1).is_none_or(|p| p.handed_over);
    if goes {
        Err("I14: n1 leaves with all that it holds, although n2 may come back".into())
    } else {
        Ok(())
    }
}

/// The last member is asked to leave, and a process asks to be admitted. (An operator restarted
/// each node of a cluster without waiting for the one before. The last one left with all the data,
/// while the others waited to be admitted.)
pub(super) fn the_last_leaver_waits_for_a_newcomer() -> Result<(), String> {
    let mut m = Members::of(Setup {
        backups: 0,
        ..Setup::of(2)
    })?;
    m.input(2, Input::Leave(HandOverUrgency::AtOnce));
    for _ in 0..20 {
        m.run(200);
        ask(&mut m, InSyncChange::Admit)?;
    }
    m.input(2, Input::Depart);
    m.until(2000, "departure", |m| !m.lives(2))?;
    m.start(3, &[1], None);
    m.input(1, Input::Leave(HandOverUrgency::Repair));
    for _ in 0..50 {
        m.run(200);
        m.verdict()?;
        let holds = planner::holds_anything(&*m.table(1)?, id(1));
        match m.process(1).is_none_or(|p| p.handed_over) {
            true if holds => {
                return Err(format!(
                    "I14: n1 leaves with all that it holds, while n3 waits to be admitted: {}",
                    m.summary()
                ));
            }
            true => return Ok(()),
            false => _ = ask(&mut m, InSyncChange::Admit)?,
        }
    }
    Err(format!("I16: n1 never goes: {}", m.summary()))
}

/// All members are asked to leave at the same moment, and the first that ends is started again.
/// (Several left with their data and half of the votes, so the others could not admit it.)
pub(super) fn members_that_leave_together_go_one_by_one() -> Result<(), String> {
    let mut m = Members::of(Setup::of(3))?;
    (1..=3).for_each(|place| m.input(place, Input::Leave(HandOverUrgency::Repair)));
    let goes = |m: &Members, place: u64| m.process(place).is_some_and(|p| p.handed_over);
    m.until(1000, "end of one", |m| (1..=3).any(|place| goes(m, place)))?;
    let first = (1..=3).find(|place| goes(&m, *place)).unwrap_or_default();
    // It answers its clients before it leaves.
    m.run(1000);
    let holds = |m: &Members, place: u64| {
        m.table(place)
            .map(|table| planner::holds_anything(&table, id(place)))
    };
    for place in (1..=3).filter(|place| goes(&m, *place)) {
        if holds(&m, place)? {
            return Err(format!(
                "I14: n{place} leaves with what it holds: {}",
                m.summary()
            ));
        }
    }
    m.input(first, Input::Depart);
    m.until(2000, "departure", |m| !m.lives(first))?;
    m.start(4, &[1, 2, 3], None);
    for _ in 0..50 {
        m.run(200);
        m.verdict()?;
        let others = || (1..=3).filter(|place| *place != first);
        for place in others().filter(|place| goes(&m, *place)) {
            if holds(&m, place)? {
                return Err(format!(
                    "I14: n{place} leaves with what it holds, while n4 waits to be admitted: {}",
                    m.summary()
                ));
            }
        }
        if others().all(|place| goes(&m, place)) {
            return Ok(());
        }
        ask(&mut m, InSyncChange::Admit)?;
    }
    Err(format!("I16: they never leave: {}", m.summary()))
}

/// A member leaves. The table that hands over its partitions reaches it, but is not in force.
pub(super) fn a_leaver_goes_only_by_a_table_in_force() -> Result<(), String> {
    let mut m = Members::of(Setup::of(3))?;
    m.post(|letter| {
        if matches!(letter.message, Message::Ack(_)) {
            Fate::Lost
        } else {
            Fate::Arrives
        }
    });
    m.input(3, Input::Leave(HandOverUrgency::AtOnce));
    let leaves = |m: &Members| {
        m.view(3).is_some_and(|v| {
            v.accepted
                .member(id(3))
                .is_some_and(|m| m.state == MemberState::Leaving)
        })
    };
    m.until(1000, "proposal", leaves)?;
    m.run(1000);
    m.verdict()?;
    let goes = |m: &Members| m.process(3).is_none_or(|p| p.handed_over);
    if goes(&m) {
        return Err("I14: n3 leaves with what it holds by the table in force".into());
    }
    m.post(|_| Fate::Arrives);
    m.until(3000, "hand-over", goes)?;
    m.verdict()
}

/// The coordinator leaves in order before the other one of two members has joined its term. The
/// other one learns that it is gone from pings alone.
pub(super) fn a_leaver_stays_until_the_others_know() -> Result<(), String> {
    let mut m = Members::of(Setup::of(2))?;
    m.hangs(1, true);
    m.until(3000, "end of its term", |m| !m.leads(1))?;
    m.post(|letter| {
        if letter.goes(2, 1) {
            Fate::Lost
        } else {
            Fate::Arrives
        }
    });
    m.hangs(1, false);
    m.until(1000, "term of its own", |m| m.leads(1))?;
    m.input(1, Input::Leave(HandOverUrgency::Repair));
    m.until(400, "hand-over", |m| {
        m.process(1).is_some_and(|p| p.handed_over)
    })?;
    m.input(1, Input::Depart);
    m.run(10);
    m.post(|letter| {
        if matches!(letter.message, Message::Commit(_)) {
            Fate::Lost
        } else {
            Fate::Arrives
        }
    });
    m.until(3000, "departure", |m| !m.lives(1))?;
    m.until(5000, "cluster of the one that is left", Members::is_well)?;
    m.verdict()
}

/// A member's data thread hangs, but its control thread does not.
pub(super) fn a_hung_data_thread_deposes_its_member() -> Result<(), String> {
    let mut m = Members::of(Setup::of(3))?;
    m.hangs(2, true);
    m.until(4000, "table without n2, whose data thread hangs", |m| {
        m.table(1).is_ok_and(|t| t.member(id(2)).is_none())
    })?;
    m.verdict()
}

/// Two processes write a first table at the same time. Each has both as seeds. First tables and
/// promises arrive in every order within a bound, or not at all. (Promises lapsed at once because
/// of what had been heard of the writer before, so there were two clusters.)
pub(super) fn two_first_tables_make_one_cluster() -> Result<(), String> {
    every_course(3, |course| {
        let mut m = Members::none(Setup::of(4));
        let course = course.clone();
        m.post(move |letter| match &letter.message {
            Message::Found { .. } | Message::Promise(_) if course.point() < CHOSEN_MAX => {
                [Fate::Arrives, Fate::Late(40), Fate::Lost][course.pick(3)]
            }
            _ => Fate::Arrives,
        });
        (1..=4).for_each(|place| m.start(place, &[3, 4], Some(3)));
        m.run(1500);
        m.verdict()
    })
}

/// Some of four seeds are cut off from the others, and all have `enough` as the number that
/// suffices. Three of four form a cluster. Two do not, because each half could. (A process did not
/// count itself among the seeds, so three of four were not enough either.)
pub(super) fn half_of_the_seeds_form_no_cluster() -> Result<(), String> {
    for (enough, expect) in [(2, 2), (3, 3)] {
        let mut m = Members::none(Setup::of(4));
        m.post(move |letter| {
            if (letter.from <= enough) == (letter.to <= enough) {
                Fate::Arrives
            } else {
                Fate::Lost
            }
        });
        (1..=4).for_each(|place| m.start(place, &[1, 2, 3, 4], Some(expect)));
        m.run(3000);
        m.verdict()?;
        if enough == 3 {
            m.until(1000, "cluster of most seeds", |m| {
                (1..=3).all(|place| m.table(place).is_ok())
            })?;
            m.post(|_| Fate::Arrives);
            m.until(5000, "cluster of all seeds", Members::is_well)?;
            m.verdict()?;
        }
    }
    Ok(())
}

/// A used cluster of one meets another used one.
pub(super) fn a_used_cluster_does_not_give_way() -> Result<(), String> {
    let mut m = Members::of(Setup {
        stranger: true,
        ..Setup::of(2)
    })?;
    m.start(3, &[], None);
    m.input(3, Input::Used);
    m.until(100, "mark", |m| m.process(3).is_some_and(|p| p.used_ok))?;
    let cluster = m.table(3)?.cluster;
    m.input(3, Input::Seeds([address(1)].into_iter().collect()));
    m.run(4000);
    m.verdict()?;
    if m.table(3)?.cluster == cluster {
        Ok(())
    } else {
        Err("a cluster in which a write was acknowledged is gone".into())
    }
}
