//! Checks of the data path: which node answers, what a copy takes, and what is kept (rules 5 and 8
//! to 10, and the invariants of data).

use super::shards::{
    AT, CLIENT, Shards, being_split, bulk, change, id, learning, next, replicas, set, table,
    without_the_last,
};
use crate::action_of;
use doyen_engine::Lane;
use doyen_engine::op::{Action, Condition, Expiry, Failure, Outcome};
use doyen_gossip::agreement::InSyncChange;
use doyen_placement::planner::reshape;
use doyen_placement::{Durability, Lineage, Table};
use std::time::Duration;

const NOW: Duration = Duration::ZERO;
/// The wait of a new primary that knows nothing of the lease before it.
const WAIT: Duration = Duration::from_millis(515);

/// A read from a former primary, after its successor acknowledged another value.
fn stale(s: &mut Shards, read: u64) -> Result<(), String> {
    s.run(20)?;
    match s.outcome(read) {
        Some(outcome) if *outcome == bulk("1") => {
            Err("I10: n1 reads 1 after n2 acknowledged 2".into())
        }
        _ => Ok(()),
    }
}

/// Three copies. The first is the primary and has written. Also the table that makes the second the
/// primary.
fn led_by_the_first() -> Result<(Shards, Table, Table), String> {
    let mut s = Shards::new(3);
    let first = table(3, &[1, 2, 3]);
    let second = next(&first, &[2, 3], &[]);
    s.show_all(&first);
    s.write(1, "x", "1")?;
    Ok((s, first, second))
}

/// A primary has accepted the table that deposes it, and has sealed. So its successor opens at
/// once, and the former primary must answer nothing.
pub(super) fn a_sealed_primary_answers_nothing() -> Result<(), String> {
    let (mut s, first, second) = led_by_the_first()?;
    s.show(1, &first, &second, NOW);
    s.show(2, &second, &second, NOW);
    s.show(3, &second, &second, NOW);
    s.write(2, "x", "2")?;
    let read = s.get(1, "x");
    stale(&mut s, read)
}

/// The same, with a data thread that does not know yet which table its control thread accepted.
pub(super) fn an_outdated_view_answers_nothing() -> Result<(), String> {
    let (mut s, _, second) = led_by_the_first()?;
    s.shows_something_else(1);
    s.show(2, &second, &second, NOW);
    s.show(3, &second, &second, NOW);
    s.write(2, "x", "2")?;
    let read = s.get(1, "x");
    stale(&mut s, read)
}

/// A data thread gets no core in the middle of a pass. Meanwhile its lease ends and another primary
/// takes over. Then the data thread reads.
pub(super) fn the_lease_is_checked_after_the_read() -> Result<(), String> {
    let (mut s, _, second) = led_by_the_first()?;
    s.lease(1, Duration::from_millis(500));
    s.begin(1);
    s.stalls(1);
    s.show(2, &second, &second, WAIT);
    s.show(3, &second, &second, NOW);
    s.run(600)?;
    s.write(2, "x", "2")?;
    let read = s.takes(1, "x", Action::Get);
    s.end(1);
    match s.outcome(read) {
        Some(outcome) if *outcome == bulk("1") => {
            Err("I10: n1 reads 1 after n2 acknowledged 2".into())
        }
        _ => Ok(()),
    }
}

/// A copy lacks the tail of a new primary. No write is acknowledged, and the primary must not say
/// that it is open.
pub(super) fn an_open_primary_acknowledges() -> Result<(), String> {
    let mut s = Shards::new(3);
    let first = table(3, &[1, 2, 3]);
    s.show_all(&first);
    s.write(1, "x", "1")?;
    s.kill(1);
    s.hold(2, 3, Lane::Calls);
    let second = next(&first, &[2, 3], &[]);
    s.show_all(&second);
    s.run(100)?;
    let opened = s
        .opened
        .iter()
        .any(|(place, since)| *place == 2 && Some(*since) == second.partition(AT).map(|p| p.since));
    let write = s.submit(2, "x", set("2"));
    s.run(300)?;
    match s.outcome(write) {
        None if opened => Err("I16: n2 says that it is open, and acknowledges nothing".into()),
        None => {
            s.let_go(2, 3, Lane::Calls);
            s.done(write, 500, "a write once the tail is on every copy")
                .map(|_| ())
        }
        Some(outcome) => Err(format!("I6: {outcome:?}, and n3 has nothing of it")),
    }
}

/// A write of a keyspace on disk is on one disk and then on both.
pub(super) fn a_write_counts_once_the_disks_have_it() -> Result<(), String> {
    let mut s = Shards::new(2);
    let mut first = table(2, &[1, 2]);
    first.keyspaces[0].durability = Durability::Log;
    (1..=2).for_each(|place| s.begin_disk(place));
    s.show_all(&first);
    s.run(20)?;
    (1..=2).for_each(|place| s.write_disk(place, true));
    let write = s.submit(1, "x", set("1"));
    for lacks in [1, 2] {
        s.run(50)?;
        s.write_disk(1, false);
        s.write_disk(2, false);
        if let Some(outcome) = s.outcome(write) {
            return Err(format!(
                "I6: {outcome:?}, and the disk of n{lacks} does not have it"
            ));
        }
        s.write_disk(lacks, true);
    }
    s.done(write, 500, "a write that both disks have")
        .map(|_| ())
}

/// A member is primary again in a new tenure. Another member led in between, and the new tenure
/// must wait for its lease.
pub(super) fn a_new_tenure_waits_again() -> Result<(), String> {
    let mut s = Shards::new(2);
    let first = table(2, &[1, 2]);
    s.show_all(&first);
    s.write(1, "x", "1")?;
    let third = next(&next(&first, &[2, 1], &[]), &[1, 2], &[]);
    s.show(1, &third, &third, WAIT);
    s.show(2, &third, &third, WAIT);
    let write = s.submit(1, "x", set("2"));
    s.run(400)?;
    if let Some(outcome) = s.outcome(write) {
        return Err(format!("rule 9: {outcome:?} before its tenure may open"));
    }
    s.done(write, 500, "a write once the tenure may open")
        .map(|_| ())
}

/// The acks of a write arrive when its primary has sealed, and the successor has acknowledged a
/// later write.
pub(super) fn a_sealed_primary_acknowledges_nothing() -> Result<(), String> {
    let mut s = Shards::new(3);
    let first = table(3, &[1, 2, 3]);
    let second = next(&first, &[2, 3], &[]);
    s.show_all(&first);
    s.write(1, "y", "1")?;
    s.hold(2, 1, Lane::Calls);
    s.hold(3, 1, Lane::Calls);
    let write = s.submit(1, "x", set("1"));
    s.run(5)?;
    s.show(1, &first, &second, NOW);
    s.show(2, &second, &second, NOW);
    s.show(3, &second, &second, NOW);
    s.write(2, "y", "2")?;
    s.let_go(2, 1, Lane::Calls);
    s.let_go(3, 1, Lane::Calls);
    s.run(20)?;
    match s.outcome(write) {
        Some(Outcome::Ok) => {
            Err("I5: n1 acknowledges in its epoch after n2 did so in a later one".into())
        }
        _ => Ok(()),
    }
}

/// Entries of a primary's old epoch arrive when it leads again. In between, another primary has
/// acknowledged a write.
pub(super) fn entries_of_an_old_epoch_change_nothing() -> Result<(), String> {
    let mut s = Shards::new(3);
    let first = table(3, &[1, 2, 3]);
    let second = next(&first, &[2, 1, 3], &[]);
    let third = next(&second, &[1, 2, 3], &[]);
    let fourth = next(&third, &[3, 2], &[]);
    s.hold(1, 3, Lane::Calls);
    s.show_all(&first);
    s.run(5)?;
    s.show_all(&second);
    s.write(2, "x", "1")?;
    s.show(3, &third, &third, NOW);
    s.let_go(1, 3, Lane::Calls);
    s.run(2)?;
    s.kill(1);
    s.show_all(&fourth);
    s.expect(3, "x", &bulk("1"), "I6: an acknowledged write is lost")
}

/// A copy has an entry that no other copy has, and the primary that sent it dies.
pub(super) fn a_copy_undoes_entries_that_its_primary_lacks() -> Result<(), String> {
    let mut s = Shards::new(3);
    let first = table(3, &[1, 2, 3]);
    let second = next(&first, &[2, 3], &[]);
    let third = next(&second, &[3], &[]);
    s.show_all(&first);
    s.write(1, "x", "1")?;
    s.hold(1, 2, Lane::Calls);
    s.submit(1, "x", set("2"));
    s.run(3)?;
    s.kill(1);
    s.show_all(&second);
    s.expect(2, "x", &bulk("1"), "n2 has nothing else")?;
    s.write(2, "y", "3")?;
    s.kill(2);
    s.show_all(&third);
    s.expect(3, "x", &bulk("1"), "I8: n3 kept what n2 did not have")?;
    s.expect(3, "y", &bulk("3"), "I6: an acknowledged write is lost")
}

/// A key is deleted, and the primary dies before any copy knows of that.
pub(super) fn a_deleted_key_stays_deleted() -> Result<(), String> {
    let mut s = Shards::new(2);
    let first = table(2, &[1, 2]);
    let second = next(&first, &[2], &[]);
    s.show_all(&first);
    s.write(1, "x", "1")?;
    s.hold(1, 2, Lane::Calls);
    s.submit(1, "x", Action::Delete);
    let read = s.get(1, "x");
    s.run(5)?;
    let gone = s.outcome(read) == Some(&Outcome::Nil);
    s.kill(1);
    s.show_all(&second);
    let after = s.read(2, "x")?;
    if gone && after != Outcome::Nil {
        Err(format!("I10: x was gone, and is {after:?} again"))
    } else {
        Ok(())
    }
}

/// The same with a whole map that is cleared.
pub(super) fn a_cleared_map_stays_empty() -> Result<(), String> {
    let mut s = Shards::new(2);
    let first = table(2, &[1, 2]);
    s.show_all(&first);
    s.write(1, "x", "1")?;
    s.hold(1, 2, Lane::Calls);
    s.clear(1);
    let read = s.get(1, "x");
    s.run(5)?;
    let gone = s.outcome(read) == Some(&Outcome::Nil);
    s.kill(1);
    s.show_all(&next(&first, &[2], &[]));
    let after = s.read(2, "x")?;
    if gone && after != Outcome::Nil {
        Err(format!("I10: x was gone, and is {after:?} again"))
    } else {
        Ok(())
    }
}

/// The deadline of a key passes, and the key is read before it is expired.
pub(super) fn an_overdue_key_is_gone() -> Result<(), String> {
    let mut s = Shards::new(1);
    s.show_all(&table(1, &[1]));
    let value = bytes::Bytes::from_static(b"1");
    let write = s.submit(
        1,
        "x",
        Action::Set {
            value,
            condition: Condition::Always,
            expiry: Expiry::In(1000),
            get: false,
        },
    );
    s.done(write, 500, "a write with a deadline")?;
    s.stalls(1);
    s.run(900)?;
    let before = s.get(1, "x");
    s.run(101)?;
    let after = s.get(1, "x");
    match (s.outcome(before), s.outcome(after)) {
        (Some(before), Some(Outcome::Nil)) if *before == bulk("1") => Ok(()),
        (before, after) => Err(format!(
            "expiry: {before:?} before a deadline, and {after:?} after it"
        )),
    }
}

/// A client loses its connection with the answer, and asks again as late as it may. That request
/// takes as long on its way as it may. Just after the first try, old outcomes of the client were
/// removed.
pub(super) fn a_late_retry_of_a_client_finds_its_outcome() -> Result<(), String> {
    let mut s = Shards::new(2);
    s.show_all(&table(2, &[1, 2]));
    s.add_client();
    s.run(14_500)?;
    s.hold(1, CLIENT, Lane::Calls);
    let call = s.submit(CLIENT, "x", Action::IncrBy(1));
    s.run(10)?;
    s.expect(1, "x", &bulk("1"), "it was applied")?;
    s.run(4_500)?;
    s.disconnect(1, CLIENT);
    s.let_go(1, CLIENT, Lane::Calls);
    s.connect(1, CLIENT);
    // The client learns the time of the cluster, and asks again.
    s.run(1)?;
    s.hold(CLIENT, 1, Lane::Calls);
    s.run(4_900)?;
    if s.outcome(call) != Some(&Outcome::Failed(Failure::Unknown)) {
        return Err(format!(
            "the check did not reach its situation: {:?}",
            s.outcome(call)
        ));
    }
    s.let_go(CLIENT, 1, Lane::Calls);
    s.run(20)?;
    s.expect(1, "x", &bulk("1"), "a retry was applied again")
}

/// A member is expelled before its call is answered. It does not know that, and asks again.
pub(super) fn an_expelled_member_gets_no_retry() -> Result<(), String> {
    let mut s = Shards::new(3);
    let first = table(3, &[1, 2]);
    s.show_all(&first);
    s.run(5)?;
    s.hold(1, 3, Lane::Calls);
    s.submit(3, "x", Action::IncrBy(1));
    s.run(5)?;
    s.expect(1, "x", &bulk("1"), "it was applied")?;
    let without = without_the_last(&first);
    s.show(1, &without, &without, NOW);
    s.show(2, &without, &without, NOW);
    s.disconnect(1, 3);
    s.let_go(1, 3, Lane::Calls);
    s.connect(1, 3);
    s.run(1000)?;
    s.expect(1, "x", &bulk("1"), "a retry was applied again")
}

/// A copy has a write that its new primary never got. The copy is dropped, the log goes on without
/// it, it learns the partition again, and becomes primary. Then the caller of the write asks it.
pub(super) fn a_learner_forgets_undone_outcomes() -> Result<(), String> {
    let mut s = Shards::new(4);
    let first = table(4, &[1, 2, 3]);
    let second = next(&first, &[3], &[]);
    let learning = change(&second, |p| p.replicas = replicas(&[3], &[2]));
    let admitted = change(&learning, |p| {
        p.replicas = replicas(&[3, 2], &[]);
        p.epoch = p.epoch.next();
    });
    s.show_all(&first);
    s.write(1, "y", "1")?;
    s.disconnect(3, 4);
    s.hold(1, 3, Lane::Calls);
    let call = s.submit(4, "x", Action::IncrBy(1));
    s.run(5)?;
    s.kill(1);
    s.show_all(&second);
    for n in 0..12 {
        // The log grows by more than its kept part, so a copy that lacks this needs a snapshot.
        s.write(3, &format!("z{n}"), &"z".repeat(1000))?;
    }
    s.show_all(&learning);
    s.run(1000)?;
    if !s
        .asked
        .iter()
        .any(|r| matches!(r.change, InSyncChange::Admit(_)))
    {
        return Err("I16: a learner never catches up".into());
    }
    s.show_all(&admitted);
    s.write(3, "y", "2")?;
    s.kill(3);
    s.show_all(&next(&admitted, &[2], &[]));
    let outcome = s.done(call, 3000, "a call that is asked again")?;
    s.expect(
        2,
        "x",
        &bulk("1"),
        &format!("a write came to {outcome:?}, and is lost"),
    )
}

/// A call is applied, the tenure ends before it is answered, and its origin reaches no other
/// member.
pub(super) fn a_refusal_after_a_lost_answer_is_unknown() -> Result<(), String> {
    let mut s = Shards::new(3);
    let first = table(3, &[1, 2]);
    let second = next(&first, &[2], &[]);
    s.show_all(&first);
    s.run(5)?;
    s.disconnect(2, 3);
    s.hold(2, 1, Lane::Calls);
    let call = s.submit(3, "x", Action::IncrBy(1));
    s.run(5)?;
    s.show(1, &second, &second, NOW);
    s.run(2)?;
    s.show(2, &second, &second, NOW);
    s.show(3, &second, &second, NOW);
    s.expect(2, "x", &bulk("1"), "it was applied")?;
    match s.done(call, 6000, "a call whose primary is not reached")? {
        Outcome::Failed(Failure::Unknown) => Ok(()),
        outcome => Err(format!("what was applied came to {outcome:?}")),
    }
}

/// Two writes of a key reach a node just before and just after it becomes primary. It refuses the
/// first. It must not execute the second before the first comes again.
pub(super) fn a_write_waits_for_a_refused_one_before_it() -> Result<(), String> {
    let mut s = Shards::new(3);
    let first = table(3, &[2, 1]);
    let second = next(&first, &[1, 2], &[]);
    s.show_all(&first);
    s.run(5)?;
    s.show(3, &second, &second, NOW);
    s.hold(1, 3, Lane::Calls);
    let one = s.submit(3, "x", set("1"));
    s.run(2)?;
    s.show(1, &second, &second, NOW);
    s.show(2, &second, &second, NOW);
    s.run(5)?;
    let two = s.submit(3, "x", set("2"));
    s.run(5)?;
    s.let_go(1, 3, Lane::Calls);
    s.done(one, 500, "the first write")?;
    s.done(two, 500, "the second write")?;
    s.expect(
        1,
        "x",
        &bulk("2"),
        "order: a write was executed before the one that its caller had sent before it",
    )
}

/// A copy has accepted a table but not installed it, and has acknowledged a write in the new epoch.
/// Then it hears from the primary that it has installed.
pub(super) fn a_copy_follows_no_earlier_epoch() -> Result<(), String> {
    let mut s = Shards::new(3);
    let first = table(3, &[1, 2, 3]);
    let second = next(&first, &[2, 3], &[]);
    s.hold(1, 3, Lane::Calls);
    s.show_all(&first);
    s.run(5)?;
    s.show(3, &first, &second, NOW);
    s.show(2, &second, &second, NOW);
    s.write(2, "x", "1")?;
    s.let_go(1, 3, Lane::Calls);
    s.run(2)?;
    s.kill(1);
    s.kill(2);
    s.show_all(&next(&second, &[3], &[]));
    s.expect(3, "x", &bulk("1"), "I6: an acknowledged write is lost")
}

/// A node loses its connection with the answers to two calls. It asks again, and gets their
/// outcomes.
pub(super) fn a_retry_finds_its_outcome() -> Result<(), String> {
    let mut s = Shards::new(3);
    s.show_all(&table(3, &[1, 2]));
    s.write(1, "x", "1")?;
    s.hold(1, 3, Lane::Calls);
    let first = s.submit(3, "x", Action::IncrBy(1));
    s.run(2)?;
    let second = s.submit(3, "y", Action::IncrBy(1));
    s.run(5)?;
    s.disconnect(1, 3);
    s.let_go(1, 3, Lane::Calls);
    s.connect(1, 3);
    for (call, expected) in [(first, 2), (second, 1)] {
        let outcome = s.done(call, 6000, "a call that is asked again")?;
        if outcome != Outcome::Int(expected) {
            return Err(format!(
                "a call that was applied, and whose outcome {expected} two nodes had, \
                 came to {outcome:?}"
            ));
        }
    }
    s.expect(1, "x", &bulk("2"), "a retry was applied again")
}

/// A write was applied, and then the whole partition was lost. No member can tell any more that the
/// next try is a retry.
pub(super) fn a_write_before_a_loss_is_not_applied_after_it() -> Result<(), String> {
    let mut s = Shards::new(3);
    let first = table(3, &[1]);
    let second = change(&next(&first, &[2], &[]), |p| {
        p.lineage = Lineage(p.lineage.0 + 1)
    });
    s.show_all(&first);
    s.run(5)?;
    s.hold(1, 3, Lane::Calls);
    let call = s.submit(3, "x", Action::IncrBy(1));
    s.run(5)?;
    s.expect(1, "x", &bulk("1"), "it was applied")?;
    s.kill(1);
    s.show_all(&second);
    let outcome = s.done(call, 6000, "a call whose partition was lost")?;
    s.expect(
        2,
        "x",
        &Outcome::Nil,
        "a call was applied once before a loss, and once after it",
    )?;
    if outcome == Outcome::Failed(Failure::Unknown) {
        Ok(())
    } else {
        Err(format!("a call with a lost outcome came to {outcome:?}"))
    }
}

/// A learner has caught up and is about to count. A write meanwhile does not reach it, and then its
/// primary dies.
pub(super) fn a_learner_about_to_count_must_acknowledge() -> Result<(), String> {
    let mut s = Shards::new(2);
    let first = table(2, &[1]);
    let (learning, admitted) = learning(&first);
    s.show_all(&first);
    s.write(1, "x", "1")?;
    s.show_all(&learning);
    s.run(1000)?;
    if !s
        .asked
        .iter()
        .any(|r| matches!(r.change, InSyncChange::Admit(_)))
    {
        return Err("I16: a learner never catches up".into());
    }
    s.hold(1, 2, Lane::Calls);
    let write = s.submit(1, "x", set("2"));
    s.run(20)?;
    if s.outcome(write).is_none() {
        s.let_go(1, 2, Lane::Calls);
        return s
            .done(write, 500, "a write once the learner has it")
            .map(|_| ());
    }
    s.kill(1);
    s.show_all(&admitted);
    s.show_all(&next(&admitted, &[2], &[]));
    s.expect(2, "x", &bulk("2"), "I6: an acknowledged write is lost")
}

/// A key is deleted while a snapshot that contains it is on its way.
pub(super) fn a_snapshot_does_not_bring_deleted_keys_back() -> Result<(), String> {
    let mut s = Shards::new(2);
    let first = table(2, &[1]);
    let (learning, admitted) = learning(&first);
    let last = next(&admitted, &[2], &[]);
    s.show_all(&first);
    s.write(1, "x", "1")?;
    s.write(1, "y", "1")?;
    s.hold(1, 2, Lane::Bulk);
    s.show_all(&learning);
    s.run(100)?;
    let delete = s.submit(1, "x", Action::Delete);
    s.done(delete, 100, "a deletion")?;
    s.run(20)?;
    s.let_go(1, 2, Lane::Bulk);
    s.run(2000)?;
    if !s
        .asked
        .iter()
        .any(|r| matches!(r.change, InSyncChange::Admit(_)))
    {
        return Err("I16: a learner never catches up".into());
    }
    s.show_all(&admitted);
    s.write(1, "z", "1")?;
    s.kill(1);
    s.show_all(&last);
    s.expect(2, "x", &Outcome::Nil, "I10: what was deleted is back")
}

/// A field of a hash is deleted while a snapshot that contains it is on its way.
pub(super) fn a_snapshot_does_not_bring_deleted_fields_back() -> Result<(), String> {
    let mut s = Shards::new(2);
    let first = table(2, &[1]);
    let (learning, admitted) = learning(&first);
    let last = next(&admitted, &[2], &[]);
    s.show_all(&first);
    let write = s.submit(1, "x", action_of(&["HSET", "x", "gone", "1", "kept", "1"]));
    s.done(write, 100, "a write of fields")?;
    s.hold(1, 2, Lane::Bulk);
    s.show_all(&learning);
    s.run(100)?;
    let delete = s.submit(1, "x", action_of(&["HDEL", "x", "gone"]));
    s.done(delete, 100, "a deletion")?;
    s.run(20)?;
    s.let_go(1, 2, Lane::Bulk);
    s.run(2000)?;
    s.show_all(&admitted);
    s.write(1, "z", "1")?;
    s.kill(1);
    s.show_all(&last);
    let read = s.submit(2, "x", action_of(&["HMGET", "x", "gone", "kept"]));
    let found = s.done(read, 6000, "a read of fields")?;
    let expected = Outcome::Many(vec![Outcome::Nil, bulk("1")]);
    if found == expected {
        Ok(())
    } else {
        Err(format!("I10: a field that was deleted is back: {found:?}"))
    }
}

/// Another node's write is in a snapshot. Its answer is lost, and then the primary that sent the
/// snapshot.
pub(super) fn a_snapshot_carries_outcomes() -> Result<(), String> {
    let mut s = Shards::new(3);
    let first = table(3, &[1]);
    let (learning, admitted) = learning(&first);
    s.show_all(&first);
    s.run(5)?;
    s.hold(1, 3, Lane::Calls);
    let call = s.submit(3, "x", Action::IncrBy(1));
    s.run(5)?;
    s.expect(1, "x", &bulk("1"), "it was applied")?;
    s.show_all(&learning);
    s.run(1000)?;
    s.show_all(&admitted);
    s.write(1, "y", "1")?;
    s.kill(1);
    s.show_all(&next(&admitted, &[2], &[]));
    s.done(call, 6000, "a call that is asked again")?;
    s.expect(2, "x", &bulk("1"), "a retry was applied again")
}

/// A copy begins a minute after its primary, so its own clock would be a minute behind.
pub(super) fn a_deadline_holds_after_a_failover() -> Result<(), String> {
    let mut s = Shards::new(2);
    let first = table(2, &[1, 2]);
    s.show(1, &first, &first, NOW);
    s.run(60_000)?;
    s.show(2, &first, &first, NOW);
    s.run(100)?;
    let value = bytes::Bytes::from_static(b"1");
    let write = s.submit(
        1,
        "x",
        Action::Set {
            value,
            condition: Condition::Always,
            expiry: Expiry::In(1000),
            get: false,
        },
    );
    s.done(write, 500, "a write with a deadline")?;
    s.kill(1);
    s.show_all(&next(&first, &[2], &[]));
    s.run(3000)?;
    s.expect(
        2,
        "x",
        &Outcome::Nil,
        "expiry: a key lives after its deadline",
    )
}

/// Writes a key with a deadline, and returns the time by which it must be gone if the clock does
/// not slip: a few milliseconds are the messages and looks of this check.
fn fleeting(s: &mut Shards, ms: u64) -> Result<u64, String> {
    let expiry = Expiry::In(ms as i64);
    let set = Action::Set {
        value: bytes::Bytes::from_static(b"1"),
        condition: Condition::Always,
        expiry,
        get: false,
    };
    let write = s.submit(1, "x", set);
    s.done(write, 2_000, "a write with a deadline")?;
    Ok(s.ms() + ms)
}

/// For how many milliseconds a key lives longer than it should.
fn lives_after(s: &mut Shards, place: u64, deadline: u64) -> Result<u64, String> {
    s.run(deadline.saturating_sub(s.ms() + 30))?;
    if s.read(place, "x")? == Outcome::Nil {
        return Err("expiry: a key is gone before its deadline".into());
    }
    while s.read(place, "x")? != Outcome::Nil {
        s.run(1)?;
    }
    Ok(s.ms().saturating_sub(deadline))
}

/// The link to the copy is full of large values for seconds, so that what is sent arrives half a
/// second later. Between two values a copy's clock goes on by itself, less the drift: 2 % of the
/// time.
fn fills_the_link(s: &mut Shards) -> Result<(), String> {
    s.narrow(1, 2, Lane::Calls, 2_000);
    for round in 0..12 {
        s.submit(
            1,
            &format!("large{}", round % 4),
            set(&"large".repeat(200_000)),
        );
        s.run(450)?;
    }
    Ok(())
}

/// The copy's clock is sent apart from the data, or it would be as late as the data.
pub(super) fn a_deadline_does_not_slip_behind_large_values() -> Result<(), String> {
    let mut s = Shards::new(2);
    let first = table(2, &[1, 2]);
    s.show_all(&first);
    s.write(1, "y", "1")?;
    let deadline = fleeting(&mut s, 9_000)?;
    fills_the_link(&mut s)?;
    s.kill(1);
    s.show_all(&next(&first, &[2], &[]));
    let late = lives_after(&mut s, 2, deadline)?;
    if late > 50 {
        return Err(format!("expiry: a key lives {late} ms after its deadline"));
    }
    Ok(())
}

/// One copy has heard the clock only behind the data, and leads. The other one knows better.
pub(super) fn a_new_primary_takes_the_greatest_clock() -> Result<(), String> {
    let mut s = Shards::new(3);
    let first = table(3, &[1, 2, 3]);
    s.show_all(&first);
    s.write(1, "y", "1")?;
    s.lose_datagrams(1, 2);
    let deadline = fleeting(&mut s, 9_000)?;
    fills_the_link(&mut s)?;
    s.kill(1);
    s.show_all(&next(&first, &[2, 3], &[]));
    let late = lives_after(&mut s, 2, deadline)?;
    if late > 50 {
        return Err(format!("expiry: a key lives {late} ms after its deadline"));
    }
    Ok(())
}

/// The primary of a partition that is to be split has said that nothing changes any more: the parts
/// begin with what it had then.
pub(super) fn a_partition_being_split_takes_no_writes() -> Result<(), String> {
    let (mut s, begun) = being_split(2)?;
    if !s
        .asked
        .iter()
        .any(|request| matches!(request.change, InSyncChange::WritesStopped { .. }))
    {
        return Err("splits: the primary does not say that nothing changes any more".into());
    }
    // All ways that a write may take.
    let one = s.submit(1, "x", set("2"));
    let other = s.submit(2, "y", set("2"));
    s.run(100)?;
    match (s.outcome(one), s.outcome(other)) {
        (None, None) => {}
        (one, other) => {
            return Err(format!(
                "splits: {one:?} and {other:?} after n1 said that nothing changes any more"
            ));
        }
    }
    // If the split is given up, the writes go on.
    s.show_all(&change(&reshape::cancel(&begun, |_, _| true), |_| {}));
    s.done(one, 500, "a write once the split is given up")?;
    s.done(other, 500, "a write once the split is given up")
        .map(|_| ())
}

/// A value takes longer to its copy than a silent copy is waited for. The copy is slow, but it is
/// not silent.
pub(super) fn a_slow_link_costs_no_copy() -> Result<(), String> {
    let mut s = Shards::new(3);
    s.show_all(&table(3, &[1, 2]));
    s.write(1, "x", "1")?;
    s.narrow(1, 2, Lane::Calls, 400);
    let large = s.submit(1, "x", set(&"large".repeat(200_000)));
    s.run(100)?;
    let small = s.submit(1, "y", set("behind it"));
    for (write, what) in [(large, "a large value"), (small, "what is behind it")] {
        let outcome = s.done(write, 5_000, what)?;
        if outcome != Outcome::Ok {
            return Err(format!("{what} has the outcome {outcome:?}"));
        }
    }
    if s.asked.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "a copy that took all that it was sent was given up: {:?}",
            s.asked
        ))
    }
}

/// A copy's thread seldom gets a core, and says so. While it acknowledges, it is late and not
/// silent. Once it acknowledges nothing for ten seconds, it is given up all the same.
pub(super) fn a_copy_that_is_always_late_is_given_up() -> Result<(), String> {
    let mut s = Shards::new(3);
    s.show_all(&table(3, &[1, 2]));
    s.write(1, "x", "1")?;
    // In each turn, a tenth of the value gets through.
    s.narrow(1, 2, Lane::Calls, 10_000);
    s.submit(1, "x", set(&"large".repeat(200_000)));
    starve(&mut s, 2, 15)?;
    if !s.asked.is_empty() {
        return Err(format!("a copy that is late was given up: {:?}", s.asked));
    }
    s.run(300)?;
    s.write(1, "y", "the copy has caught up")?;
    s.hold(2, 1, Lane::Calls);
    s.submit(1, "x", set("3"));
    starve(&mut s, 2, 20)?;
    if s.asked.is_empty() {
        Err("a copy that has acknowledged nothing for 14 s was not given up".into())
    } else {
        Ok(())
    }
}

/// A node runs for 10 ms in every 700, so often.
fn starve(s: &mut Shards, place: u64, turns: u32) -> Result<(), String> {
    for _ in 0..turns {
        s.stalls(place);
        s.run(690)?;
        s.goes_on();
        s.run(10)?;
    }
    Ok(())
}

/// Nothing arrives at a copy for a while. Writes that the link cannot carry yet must wait before
/// they are executed.
pub(super) fn a_write_waits_while_its_link_is_full() -> Result<(), String> {
    const WRITES: u64 = 24;
    let mut s = Shards::new(3);
    s.show_all(&table(3, &[1, 2]));
    s.write(1, "x", "1")?;
    let before = s.stats(1).executed;
    s.hold(1, 2, Lane::Calls);
    let writes: Vec<u64> = (0..WRITES)
        .map(|n| s.submit(1, &format!("k{n}"), set(&"large".repeat(200_000))))
        .collect();
    s.run(200)?;
    let executed = s.stats(1).executed - before;
    s.let_go(1, 2, Lane::Calls);
    for write in writes {
        let outcome = s.done(write, 1_000, "a write that waited")?;
        if outcome != Outcome::Ok {
            return Err(format!("a write that waited came to {outcome:?}"));
        }
    }
    if executed < WRITES - 4 {
        Ok(())
    } else {
        Err(format!(
            "{executed} of {WRITES} values of a megabyte were sent at once"
        ))
    }
}

/// The partition has one copy, and the learner of the missing one is behind. A large write is not
/// answered before the learner has it, or writes could outrun it for ever. A small write does not
/// wait for long.
pub(super) fn a_large_write_waits_for_the_learner_of_a_missing_copy() -> Result<(), String> {
    let mut s = Shards::new(3);
    let first = table(3, &[1]);
    s.show_all(&first);
    s.write(1, "x", "1")?;
    // The snapshot begins, and does not end.
    s.hold(1, 2, Lane::Bulk);
    s.show_all(&change(&first, |p| {
        p.replicas = replicas(&[1], &[2]);
        p.goal = Some(vec![id(1), id(2)]);
    }));
    s.run(20)?;
    s.hold(2, 1, Lane::Calls);
    let large = s.submit(1, "y", set(&"large".repeat(200_000)));
    let small = s.submit(1, "z", set("small"));
    let outcome = s.done(small, 50, "a small write")?;
    if outcome != Outcome::Ok {
        return Err(format!("a small write came to {outcome:?}"));
    }
    s.run(200)?;
    if let Some(outcome) = s.outcome(large) {
        return Err(format!(
            "a write that the learner lacks came to {outcome:?}"
        ));
    }
    s.let_go(2, 1, Lane::Calls);
    s.let_go(1, 2, Lane::Bulk);
    match s.done(large, 1_000, "a large write")? {
        Outcome::Ok => Ok(()),
        outcome => Err(format!("a large write came to {outcome:?}")),
    }
}
