//! Steps of moves, splits and merges. This part of the next table can wait for a moment, so that
//! many steps share one table.

use super::super::api::AdminRequest;
use super::super::context::Context;
use super::super::event::Event;
use super::{CoordinatorTasks, Draft};
use crate::mutant::{self, broken};
use crate::time::Time;
use doyen_placement::loads::Loads;
use doyen_placement::planner::{
    self, BalanceChange, InSyncChange, MoveLimits, PlannedChanges, Waits,
};
use doyen_placement::{
    KeyspaceId, Mode, PartitionId, PartitionRef, Paused, Reshape, Table, TableName,
};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

/// A learner that failed waits for this long, and for twice as long after each further failure.
const BACKOFF: Duration = Duration::from_secs(1);
/// The longest such wait.
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// The number of copies that are under way at the same time.
const MOVES: MoveLimits = MoveLimits {
    learners_per_source: 256,
    learners_per_target: 512,
    learners: 1024,
};
/// Two neighbouring ranges can be merged only if the same members hold both, so their copies may
/// have to move first. At most so many pairs move for that reason at a time.
const TOGETHER_MAX: usize = 64;
/// How long such a pair may take.
const TOGETHER_PATIENCE: Duration = Duration::from_secs(60);
/// Writes wait while a partition is split or merged. After this long, the split or merge is given
/// up.
pub(super) const RESHAPE_PATIENCE: Duration = Duration::from_secs(1);
/// How long other splits and merges wait after one was given up.
const RESHAPE_PAUSE: Duration = Duration::from_secs(5);
/// After this many failed moves in a row, balancing is paused.
const FAILED_MAX: u32 = 3;
/// The number of partitions of a keyspace that are halved at the same time.
pub(super) const HALVED_MAX: usize = 16;

/// Requests of primaries, goals, and the next steps towards them.
pub(super) fn draft_moves(
    cx: &mut Context,
    tasks: &mut CoordinatorTasks,
    base: TableName,
    table: &mut Cow<'_, Table>,
    draft: &mut Draft,
) {
    if tasks.failed >= FAILED_MAX && !broken(&mutant::FAILS_FOR_EVER) {
        // A person should look for the cause of the failures. Lost copies are still
        // repaired. The pause comes one table after the last failure: it takes away goals, and in
        // the same table the failure would be reported as a copy that is no longer wanted.
        tasks.failed = 0;
        *table = Cow::Owned(planner::balance(
            table,
            &BalanceChange::Pause(Paused::Failures),
        ));
        draft.altered = true;
    }
    if !tasks.in_sync.is_empty() {
        let requests = std::mem::take(&mut tasks.in_sync);
        let (next, done) = planner::change_in_sync(table, &requests);
        for (request, _) in requests.iter().zip(&done).filter(|(_, done)| **done) {
            let balances = planner::ranges::may_stay(table, request.partition);
            match request.change {
                InSyncChange::NoRoom(m) => {
                    draft.unplanned = true;
                    if tasks
                        .rooms
                        .refused(cx.now, table, request.partition, m, &tasks.told.loads)
                    {
                        let name = table
                            .member(m)
                            .map_or_else(|| m.to_string(), |m| m.name.clone());
                        cx.event(Event::NoRoom { name });
                    }
                }
                InSyncChange::Abandon(m) | InSyncChange::Withdraw(m) | InSyncChange::Remove(m) => {
                    if let Some(partition) = table.partition(request.partition) {
                        tasks.reach.complain(cx.now, partition.primary(), m);
                    }
                    draft.unplanned = true;
                    let (until, length) = tasks
                        .backoff
                        .entry((request.partition, m))
                        .or_insert((cx.now, BACKOFF / 2));
                    *length = (*length * 2).min(BACKOFF_MAX);
                    // Learners that failed together do not start again together.
                    *until = cx.now + cx.jitter(*length, *length * 3 / 2);
                    tasks.failed +=
                        u32::from(balances && !matches!(request.change, InSyncChange::Remove(_)));
                }
                InSyncChange::Admit(m) => {
                    tasks.reach.reached(m);
                    tasks
                        .rooms
                        .admitted(cx.now, table, request.partition, m, &tasks.told.loads);
                    tasks.failed = if balances { 0 } else { tasks.failed };
                }
                InSyncChange::Split(_) | InSyncChange::WritesStopped { .. } => {}
            }
        }
        if done.contains(&true) {
            *table = Cow::Owned(next);
        }
    }
    for member in tasks
        .reach
        .judge(cx.now, table)
        .into_iter()
        .filter_map(|m| table.member(m))
    {
        cx.event(Event::Unreached {
            name: member.name.clone(),
            data: member.addresses.data.to_string(),
        });
    }
    let unreached = tasks.reach.unreached(cx.now);
    if tasks.told.loads.unreached() != &unreached {
        tasks.told.loads.set_unreached(unreached);
        (tasks.plan_wanted, tasks.stuck) = (true, None);
    }
    let full = tasks.rooms.full();
    if tasks.told.loads.full() != &full {
        tasks.told.loads.set_full(full);
        tasks.plan_wanted = true;
    }
    draft_reshapes(cx, tasks, table, draft);
    if let Some((
        planned,
        PlannedChanges {
            mut goals,
            hot,
            reshapes,
            heirs,
        },
    )) = tasks.proposal.take()
    {
        // If this table asks for more copies, an older plan would drop a copy that is needed.
        if planned != base || draft.altered {
            tasks.plan_wanted = true;
        } else {
            if !heirs.is_empty() {
                *table = Cow::Owned(planner::inherit(table, &heirs));
            }
            // A plan for balance would send away a partition that was brought to its neighbour's
            // members.
            let comes = |at: &PartitionRef| {
                tasks
                    .together
                    .keys()
                    .any(|(k, pair)| *k == at.keyspace && pair.contains(&at.partition))
            };
            goals.retain(|(at, _)| !(comes(at) && planner::ranges::may_stay(table, *at)));
            if !goals.is_empty() {
                *table = Cow::Owned(planner::adopt(table, &goals));
                (tasks.moving, tasks.stuck) = (true, None);
                tasks
                    .hot
                    .retain(|at| table.partition(*at).is_some_and(|p| p.goal.is_some()));
                tasks.hot.extend(hot);
            }
            if cx.now >= tasks.reshape_at {
                begin_reshapes(table, reshapes);
            }
        }
    }
    let unchanged = matches!(table, Cow::Borrowed(_));
    // Every ping comes here, and looking for steps goes over all partitions.
    let stuck = |(at, until): (TableName, Option<Time>)| {
        at == base && until.is_none_or(|until| cx.now < until)
    };
    if tasks.moving && !(unchanged && tasks.stuck.is_some_and(stuck)) {
        let mut paused = tasks.rooms.paused(cx.now, table, &tasks.told.loads);
        paused.extend(
            tasks
                .backoff
                .iter()
                .filter(|(_, (until, _))| *until > cx.now)
                .map(|(key, _)| *key),
        );
        let waits = Waits {
            paused,
            hot: std::mem::take(&mut tasks.hot),
        };
        let next = planner::advance(table, &MOVES, &waits);
        tasks.hot = waits.hot;
        if let Some(next) = next {
            *table = Cow::Owned(next);
        } else if unchanged {
            tasks.stuck = Some((base, tasks.retry(cx.now)));
        }
    }
}

/// Splits and merges: finishes those that are ready, gives up those that take too long, because
/// writes wait for them, and begins some more.
fn draft_reshapes(
    cx: &Context,
    tasks: &mut CoordinatorTasks,
    table: &mut Cow<'_, Table>,
    draft: &mut Draft,
) {
    let is_reshaped = |at: &PartitionRef| {
        table
            .keyspace(at.keyspace)
            .is_some_and(|k| k.is_reshaped(at.partition))
    };
    tasks.stopped.retain(|at, stopped| {
        is_reshaped(at)
            && table
                .partition(*at)
                .is_some_and(|p| p.epoch == stopped.epoch)
    });
    if let Some(next) = planner::reshape::finish(table, |at| tasks.stopped.get(&at).copied()) {
        *table = Cow::Owned(next);
        draft.unplanned = true;
    }
    let under_way = table
        .keyspaces
        .iter()
        .flat_map(|k| k.reshaping.under_way.iter().map(|r| (k.id, r.clone())));
    let under_way: BTreeSet<(KeyspaceId, Reshape)> = under_way.collect();
    tasks
        .reshaping
        .retain(|reshape, _| under_way.contains(reshape));
    under_way
        .into_iter()
        .for_each(|reshape| _ = tasks.reshaping.entry(reshape).or_insert(cx.now));
    let late = |since: &Time| cx.now.since(*since) >= RESHAPE_PATIENCE;
    if tasks.reshaping.values().any(late) {
        let given_up = |keyspace, reshape: &Reshape| {
            tasks
                .reshaping
                .get(&(keyspace, reshape.clone()))
                .is_some_and(late)
        };
        *table = Cow::Owned(planner::reshape::cancel(table, given_up));
        tasks.reshape_at = cx.now + RESHAPE_PAUSE;
    }
    if cx.now < tasks.reshape_at {
        return;
    }
    tasks.plan_wanted |= std::mem::replace(&mut tasks.reshape_at, Time::ZERO) > Time::ZERO;
    let halves = table.keyspaces.iter().flat_map(|k| {
        planner::reshape::doublings(k, HALVED_MAX)
            .into_iter()
            .map(|r| (k.id, r))
    });
    let halves: Vec<(KeyspaceId, Reshape)> = halves.collect();
    begin_reshapes(table, halves);
    begin_reshapes(table, std::mem::take(&mut tasks.told.splits));
    let cold = std::mem::take(&mut tasks.told.merges);
    let room = TOGETHER_MAX.saturating_sub(tasks.together.len());
    cold.into_iter()
        .take(room)
        .for_each(|pair| _ = tasks.together.entry(pair).or_insert(cx.now));
    let there = |(keyspace, pair): &(KeyspaceId, [PartitionId; 2])| {
        table
            .keyspace(*keyspace)
            .is_some_and(|k| pair.iter().all(|p| k.partition(*p).is_some()))
    };
    // The target has no room for it.
    let refused = |(keyspace, pair): &(KeyspaceId, [PartitionId; 2])| {
        pair.iter()
            .map(|partition| PartitionRef {
                keyspace: *keyspace,
                partition: *partition,
            })
            .any(|at| {
                let mut wanted = table
                    .partition(at)
                    .into_iter()
                    .flat_map(|p| p.goal.iter().flatten());
                wanted.any(|m| tasks.told.loads.refuses(table, at, *m))
            })
    };
    tasks.together.retain(|pair, since| {
        there(pair) && cx.now.since(*since) < TOGETHER_PATIENCE && !refused(pair)
    });
    for &(keyspace, pair) in tasks.together.keys() {
        match planner::ranges::together(table, keyspace, pair, &tasks.told.loads) {
            Some(Ok(merge)) => begin_reshapes(table, vec![(keyspace, merge)]),
            Some(Err(goals)) => {
                *table = Cow::Owned(planner::adopt(table, &goals));
                tasks.moving = true;
            }
            None => {}
        }
    }
}

/// Neighbours that an operator wants to merge, and that must come to the same members first.
pub(super) fn apart(
    table: &Table,
    request: &AdminRequest,
    loads: &Loads,
) -> Option<(KeyspaceId, [PartitionId; 2])> {
    let AdminRequest::MergeAt { keyspace, map, key } = request else {
        return None;
    };
    let keyspace = table
        .keyspace_named(keyspace)
        .filter(|k| k.mode == Mode::Range)?;
    let pair = planner::neighbours_at(keyspace, *map, key).ok()?;
    matches!(
        planner::ranges::together(table, keyspace.id, pair, loads),
        Some(Err(_))
    )
    .then_some((keyspace.id, pair))
}

/// Splits and merges that cannot begin now are planned again for a later table.
fn begin_reshapes(table: &mut Cow<'_, Table>, reshapes: Vec<(KeyspaceId, Reshape)>) {
    for (keyspace, reshape) in reshapes {
        if let Ok(next) = planner::reshape::begin(table, keyspace, reshape) {
            *table = Cow::Owned(next);
        }
    }
}
