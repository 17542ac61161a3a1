//! Checks of moves (I13, I14): what a copy has when it counts, which member is primary meanwhile,
//! when old copies are dropped, and which member is in charge.

use super::members::{Members, Setup, id};
use super::shards::{self, AT, Shards, being_split, bulk, change, learning, next, replicas, table};
use doyen_engine::Lane;
use doyen_gossip::Input;
use doyen_gossip::agreement::{AdminRequest, Event, InSyncChange, InSyncRequest};
use doyen_placement::planner::{
    self, BalanceChange, HandOverUrgency, MoveFacts, MoveLimits, WritesStopped, reshape,
};
use doyen_placement::{MemberState, OnLoss, PartitionRef, Paused, ReplicaState, Table};
use std::sync::Arc;
use std::time::Duration;

const NOW: Duration = Duration::ZERO;
/// The wait of a new primary that knows nothing of the lease before it, in milliseconds.
const WAIT: u64 = 515;
/// How long a member keeps a copy that no table gives to it, in milliseconds.
const KEPT: u64 = 60_000;

/// Writes more values than fit into the chunks that may be on their way at the same time.
fn fill(s: &mut Shards, through: u64) -> Result<(), String> {
    (0..20).try_for_each(|n| s.write(through, &format!("key {n}"), &"v".repeat(100)))
}

fn is_to_count(s: &Shards) -> bool {
    s.asked
        .iter()
        .any(|request| request.change == InSyncChange::Admit(shards::id(2)))
}

/// A learner was found equal, and its primary has asked to count it. Until the table says so,
/// writes go on.
pub(super) fn writes_after_a_comparison_reach_the_copy() -> Result<(), String> {
    let mut s = Shards::new(2);
    let first = table(2, &[1]);
    let (learning, admitted) = learning(&first);
    s.show_all(&first);
    s.write(1, "x", "1")?;
    s.show_all(&learning);
    s.run(1000)?;
    if !is_to_count(&s) {
        return Err("I16: a learner never catches up".into());
    }
    s.write(1, "x", "2")?;
    s.show_all(&admitted);
    s.kill(1);
    s.show_all(&next(&admitted, &[2], &[]));
    s.expect(
        2,
        "x",
        &bulk("2"),
        "I5: what was acknowledged while a copy was about to count is not on it",
    )
}

/// A connection is lost while chunks are on their way.
pub(super) fn a_snapshot_continues_after_a_broken_connection() -> Result<(), String> {
    let mut s = Shards::new(2);
    let first = table(2, &[1]);
    let (learning, _) = learning(&first);
    s.show_all(&first);
    fill(&mut s, 1)?;
    s.show_all(&learning);
    s.until(1000, "chunk", |s| s.stats(1).copies.snapshot_bytes > 0)?;
    s.run(1)?;
    // Some chunks have arrived. Those that are sent now do not.
    s.hold(1, 2, Lane::Bulk);
    s.run(5)?;
    s.disconnect(1, 2);
    s.let_go(1, 2, Lane::Bulk);
    s.run(10)?;
    s.connect(1, 2);
    s.run(3000)?;
    let stats = s.stats(1);
    match (stats.copies.continued, stats.copies.checksum_mismatches) {
        (0, _) => Err("the check did not reach its situation: no snapshot was continued".into()),
        (_, 0) if is_to_count(&s) => Ok(()),
        (_, 0) => Err("I16: a learner that goes on never catches up".into()),
        (_, n) => Err(format!(
            "I13: a copy that went on where it was broken off was another one, {n} times"
        )),
    }
}

/// A copy was dropped while others are missing. A table gives it back, and the log alone is sent.
pub(super) fn a_dropped_copy_is_kept_while_others_are_missing() -> Result<(), String> {
    let mut s = Shards::new(2);
    let first = table(2, &[1, 2]);
    let without = next(&first, &[1], &[]);
    let again = change(&without, |p| p.replicas = replicas(&[1], &[2]));
    s.show_all(&first);
    fill(&mut s, 1)?;
    s.show_all(&without);
    s.write(1, "x", "1")?;
    s.run(KEPT + 5_000)?;
    s.show_all(&again);
    s.run(1000)?;
    match (is_to_count(&s), s.stats(1).copies.snapshot_bytes) {
        (true, 0) => Ok(()),
        (true, bytes) => Err(format!(
            "I14: n2 had deleted its copy, and there was one other: {bytes} bytes came again"
        )),
        (false, _) => Err("I16: a copy that comes back never catches up".into()),
    }
}

/// A copy would fill its learner beyond the room that is kept for writes. It goes elsewhere; a
/// smaller copy is made.
pub(super) fn a_copy_leaves_room() -> Result<(), String> {
    // 10 % of 1 MiB are kept.
    for (keys, fits) in [(80, true), (97, false)] {
        let mut s = Shards::new(2);
        s.gives(2, 1 << 20);
        let first = table(2, &[1]);
        let (learning, _) = learning(&first);
        s.show_all(&first);
        (0..keys).try_for_each(|n| s.write(1, &format!("key {n:02}"), &"v".repeat(10_000)))?;
        s.show_all(&learning);
        s.run(10_000)?;
        let given_up = s
            .asked
            .iter()
            .any(|request| request.change == InSyncChange::NoRoom(shards::id(2)));
        match (fits, is_to_count(&s), given_up) {
            (true, true, false) | (false, false, true) => {}
            (false, true, _) => {
                return Err("watermarks: a copy leaves its member too little memory".into());
            }
            (_, to_count, _) => {
                return Err(format!(
                    "watermarks: {keys} keys fit: {fits}; \
                     to count: {to_count}, given up: {given_up}"
                ));
            }
        }
    }
    Ok(())
}

/// A partition is split by a table that its primary has accepted. The next table gives a part of it
/// to another primary, so the first one has sealed.
pub(super) fn a_split_partition_is_not_served_any_more() -> Result<(), String> {
    let (mut s, begun) = being_split(3)?;
    let epoch = begun.partition(AT).map(|p| p.epoch).unwrap_or_default();
    let done = reshape::finish(&begun, |_| Some(WritesStopped { epoch, ahead_ms: 0 }))
        .ok_or("the check did not reach its situation: no split")?;
    let done = change(&done, |_| {});
    s.show(2, &done, &done, NOW);
    s.show(3, &done, &done, NOW);
    // The second leads both parts. Its tenures need not wait, because the first has accepted.
    let held_by = |table: &Table, members: &[u64]| {
        let mut next = table.clone();
        next.version = next.version.next();
        for partition in next.keyspaces[0].partitions.iter_mut().map(Arc::make_mut) {
            let leads_on = partition.primary() == shards::id(members[0]);
            partition.replicas = replicas(members, &[]);
            partition.epoch = partition.epoch.next();
            partition.since = if leads_on {
                partition.since
            } else {
                partition.epoch
            };
        }
        next
    };
    let moved = held_by(&done, &[2, 1]);
    s.show(1, &begun, &moved, NOW);
    let alone = held_by(&moved, &[2]);
    s.show(1, &begun, &alone, NOW);
    s.show(2, &alone, &alone, NOW);
    s.show(3, &alone, &alone, NOW);
    s.run(WAIT)?;
    s.write(2, "x", "2")?;
    let read = s.get(1, "x");
    s.run(20)?;
    match s.outcome(read) {
        Some(outcome) if *outcome == bulk("1") => {
            Err("I10: n1 reads 1 in what was split, after n2 acknowledged 2 in a part of it".into())
        }
        _ => Ok(()),
    }
}

/// Tries each table of a move at each of its stages: the primary and the counting copies have
/// everything that is acknowledged.
pub(super) fn a_move_step_waits_for_its_learner() -> Result<(), String> {
    let limits = MoveLimits {
        learners_per_source: 8,
        learners_per_target: 8,
        learners: 8,
    };
    let start = table(3, &[1, 2]);
    // The third replaces the first as primary, or the second as backup.
    for goal in [[3, 2], [1, 3]] {
        let learning = change(&start, |p| {
            p.replicas = replicas(&[1, 2], &[3]);
            p.goal = Some(goal.iter().map(|m| shards::id(*m)).collect());
        });
        let next = planner::advance(&learning, &limits, &MoveFacts::default())
            .unwrap_or_else(|| learning.clone());
        let counts = |t: &Table| {
            t.partition(AT)
                .map(|p| (p.primary(), p.in_sync().collect::<Vec<_>>()))
        };
        if counts(&next) != counts(&learning) {
            return Err(format!(
                "I13: towards {goal:?} while n3 learns: {:?} leads and counts",
                counts(&next)
            ));
        }
        // Once the learner counts, the move ends with its goal.
        let mut at = change(&learning, |p| {
            p.replicas
                .iter_mut()
                .for_each(|r| r.state = ReplicaState::InSync);
            p.epoch = p.epoch.next();
        });
        for _ in 0..4 {
            at = planner::advance(&at, &limits, &MoveFacts::default()).unwrap_or(at);
        }
        let there = at
            .partition(AT)
            .map(|p| p.replicas.iter().map(|r| r.member).collect::<Vec<_>>());
        if there != Some(goal.iter().map(|m| shards::id(*m)).collect()) {
            return Err(format!("I16: a move towards {goal:?} ends at {there:?}"));
        }
    }
    Ok(())
}

/// A fourth member joins, and three members must hand something over to it. Before that, an
/// operator may say something.
fn joined(says: Option<BalanceChange>) -> Result<Members, String> {
    let mut m = Members::of(Setup::of(3))?;
    if let Some(change) = says {
        m.input(
            1,
            Input::Admin {
                ticket: 1,
                request: AdminRequest::Balance(change),
            },
        );
        m.run(200);
    }
    m.start(4, &[1, 2, 3], None);
    m.until(3000, "fourth member", |m| {
        m.table(1).is_ok_and(|t| t.member(id(4)).is_some())
    })?;
    m.run(1000);
    Ok(m)
}

fn learners(m: &Members) -> Result<Vec<PartitionRef>, String> {
    Ok(m.table(1)?
        .partitions()
        .filter(|(_, p)| p.learners().next().is_some())
        .map(|(at, _)| at)
        .collect())
}

/// The primaries ask for this, for every learner there is.
pub(super) fn ask(
    m: &mut Members,
    what: impl Fn(doyen_placement::MemberId) -> InSyncChange,
) -> Result<usize, String> {
    let table = m.table(1)?;
    let mut asked = 0;
    for (at, partition) in table.partitions() {
        for learner in partition.learners() {
            let request = InSyncRequest {
                partition: at,
                epoch: partition.epoch,
                change: what(learner),
            };
            m.input(partition.primary().0 >> 4, Input::InSync(vec![request]));
            asked += 1;
        }
    }
    m.run(100);
    Ok(asked)
}

/// An operator has paused balancing when a member joins; then balancing goes on.
pub(super) fn a_paused_balance_moves_nothing() -> Result<(), String> {
    let mut m = joined(Some(BalanceChange::Pause(Paused::Operator)))?;
    let moving = learners(&m)?;
    m.verdict()?;
    if !moving.is_empty() {
        return Err(format!(
            "{} partitions move for balance, which is paused",
            moving.len()
        ));
    }
    m.input(
        1,
        Input::Admin {
            ticket: 2,
            request: AdminRequest::Balance(BalanceChange::Resume),
        },
    );
    m.until(3000, "learner once it goes on", |m| {
        learners(m).is_ok_and(|l| !l.is_empty())
    })?;
    m.verdict()
}

/// No copy for a newcomer ever succeeds.
pub(super) fn moves_that_keep_failing_pause_the_balance() -> Result<(), String> {
    let mut m = joined(None)?;
    let mut failed = 0;
    for _ in 0..60 {
        failed += ask(&mut m, InSyncChange::Abandon)?;
        m.run(500);
    }
    m.verdict()?;
    match m.table(1)?.settings.balancing.paused {
        Some(Paused::Failures) => Ok(()),
        paused if failed >= 3 => Err(format!(
            "{failed} moves for balance failed, and balancing is not paused by that: {paused:?}"
        )),
        _ => Err("the check did not reach its situation: nothing was to move".into()),
    }
}

/// A member is drained: its copies are made elsewhere, one after the other.
pub(super) fn a_member_reported_as_drained_is_empty() -> Result<(), String> {
    let mut m = Members::of(Setup::of(3))?;
    m.input(
        1,
        Input::Admin {
            ticket: 1,
            request: AdminRequest::Drain { name: "n3".into() },
        },
    );
    let said = |m: &Members| {
        let drained = |e: &Event| matches!(e, Event::Drained { name } if name == "n3");
        m.process(1).is_some_and(|p| p.events.iter().any(drained))
    };
    for _ in 0..40 {
        m.run(200);
        let held = m
            .table(1)?
            .partitions()
            .filter(|(_, p)| p.replicas.iter().any(|r| r.member == id(3)))
            .count();
        m.verdict()?;
        match (said(&m), held) {
            (true, 0) => return Ok(()),
            (true, held) => {
                return Err(format!(
                    "n3 is reported as empty, and holds {held} partitions"
                ));
            }
            (false, _) => _ = ask(&mut m, InSyncChange::Admit)?,
        }
    }
    Err(format!("I16: n3 is never empty: {}", m.summary()))
}

/// All other members are drained when the last one that holds data is asked to leave. They live,
/// and take its data.
pub(super) fn the_last_leaver_hands_over_to_drained_members() -> Result<(), String> {
    let mut m = Members::of(Setup::of(3))?;
    for (ticket, name) in [(1, "n2"), (2, "n3")] {
        m.input(
            1,
            Input::Admin {
                ticket,
                request: AdminRequest::Drain { name: name.into() },
            },
        );
        for _ in 0..10 {
            m.run(200);
            ask(&mut m, InSyncChange::Admit)?;
        }
    }
    let held = |m: &Members, place: u64| {
        m.table(1).map(|t| {
            t.partitions()
                .filter(|(_, p)| p.replicas.iter().any(|r| r.member == id(place)))
                .count()
        })
    };
    if held(&m, 2)? + held(&m, 3)? > 0 {
        return Err(
            "the check did not reach its situation: a drained member holds something".into(),
        );
    }
    // First it listens for newcomers. After that, it would use the drained members anyway.
    m.input(1, Input::Leave(HandOverUrgency::AtOnce));
    for _ in 0..50 {
        m.run(200);
        m.verdict()?;
        let gone = m.process(1).is_none_or(|p| p.handed_over);
        match (
            gone,
            m.table(2)?.partitions().all(|(_, p)| p.primary() != id(1)),
        ) {
            (true, true) => return Ok(()),
            (true, false) => {
                return Err(format!(
                    "I14: n1 leaves with all that it holds, while n2 and n3 live: {}",
                    m.summary()
                ));
            }
            (false, _) => _ = ask(&mut m, InSyncChange::Admit)?,
        }
    }
    Err(format!("I16: n1 never goes: {}", m.summary()))
}

/// A leaver that alone holds something dies before another member has it. It is silent, and its
/// partitions begin empty if their keyspace says so.
pub(super) fn a_leaver_that_dies_is_dead() -> Result<(), String> {
    let mut m = Members::of(Setup {
        backups: 0,
        on_loss: OnLoss::Reset { after_ms: 2_000 },
        ..Setup::of(3)
    })?;
    m.input(3, Input::Leave(HandOverUrgency::Repair));
    let state = |m: &Members| m.table(1).ok().and_then(|t| Some(t.member(id(3))?.state));
    m.until(1000, "hand-over that goes on", |m| {
        state(m) == Some(MemberState::Draining)
    })?;
    m.kill(3);
    m.until(10_000, "end of what is dead", |m| state(m).is_none())?;
    m.verdict()
}
