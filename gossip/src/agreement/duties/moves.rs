//! Steps of moves, of splits and of merges: the part of the next table that can wait for a moment,
//! so that many share one.

use super::super::api::AdminRequest;
use super::super::context::Context;
use super::super::event::Event;
use super::{Draft, Duties};
use crate::mutant::{self, broken};
use crate::time::Time;
use doyen_placement::loads::Loads;
use doyen_placement::planner::{self, BalanceChange, InSyncChange, MoveLimits, Proposal, Waits};
use doyen_placement::{
    KeyspaceId, Mode, PartitionId, PartitionRef, Paused, Reshape, Table, TableName,
};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

/// A learner that failed is not tried again for this long, and twice as long each time after.
const BACKOFF: Duration = Duration::from_secs(1);
/// But never longer than this.
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Copies under way at the same time.
const MOVES: MoveLimits = MoveLimits {
    learners_per_source: 256,
    learners_per_target: 512,
    learners: 1024,
};
/// Neighbours that are brought to the same members at a time, to be merged,
const TOGETHER_MAX: usize = 64;
/// and for how long that is tried.
const TOGETHER_PATIENCE: Duration = Duration::from_secs(60);
/// Writes of a partition that is split or merged wait: what is not done after this long is given
/// up,
pub(super) const RESHAPE_PATIENCE: Duration = Duration::from_secs(1);
/// and others begin after this.
const RESHAPE_PAUSE: Duration = Duration::from_secs(5);
/// Moves for balance that fail one after the other until there are no more.
const FAILED_MAX: u32 = 3;
/// Partitions of a keyspace that are halved at the same time.
pub(super) const HALVED_MAX: usize = 16;

/// Requests of primaries, goals and the next steps towards them.
pub(super) fn draft_moves(
    cx: &mut Context,
    duties: &mut Duties,
    base: TableName,
    table: &mut Cow<'_, Table>,
    draft: &mut Draft,
) {
    if duties.failed >= FAILED_MAX && !broken(&mutant::FAILS_FOR_EVER) {
        // Whatever it is that makes them fail, a person had better look at it; what is lost is
        // mended all the same. A table later than the last failure: the pause takes goals, and what
        // failed would be told as what is not wanted any more.
        duties.failed = 0;
        *table = Cow::Owned(planner::balance(
            table,
            &BalanceChange::Pause(Paused::Failures),
        ));
        draft.altered = true;
    }
    if !duties.in_sync.is_empty() {
        let requests = std::mem::take(&mut duties.in_sync);
        let (next, done) = planner::change_in_sync(table, &requests);
        for (request, _) in requests.iter().zip(&done).filter(|(_, done)| **done) {
            let balances = planner::ranges::may_stay(table, request.partition);
            match request.change {
                InSyncChange::NoRoom(m) => {
                    draft.unplanned = true;
                    if duties
                        .rooms
                        .refused(cx.now, table, request.partition, m, &duties.told.loads)
                    {
                        let name = table
                            .member(m)
                            .map_or_else(|| m.to_string(), |m| m.name.clone());
                        cx.event(Event::NoRoom { name });
                    }
                }
                InSyncChange::Abandon(m) | InSyncChange::Withdraw(m) | InSyncChange::Remove(m) => {
                    if let Some(partition) = table.partition(request.partition) {
                        duties.reach.complain(cx.now, partition.primary(), m);
                    }
                    draft.unplanned = true;
                    let (until, length) = duties
                        .backoff
                        .entry((request.partition, m))
                        .or_insert((cx.now, BACKOFF / 2));
                    *length = (*length * 2).min(BACKOFF_MAX);
                    // Many that failed together do not begin together again.
                    *until = cx.now + cx.jitter(*length, *length * 3 / 2);
                    duties.failed +=
                        u32::from(balances && !matches!(request.change, InSyncChange::Remove(_)));
                }
                InSyncChange::Admit(m) => {
                    duties.reach.reached(m);
                    duties
                        .rooms
                        .admitted(cx.now, table, request.partition, m, &duties.told.loads);
                    duties.failed = if balances { 0 } else { duties.failed };
                }
                InSyncChange::Split(_) | InSyncChange::Still { .. } => {}
            }
        }
        if done.contains(&true) {
            *table = Cow::Owned(next);
        }
    }
    for member in duties
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
    let unreached = duties.reach.unreached(cx.now);
    if duties.told.loads.unreached() != &unreached {
        duties.told.loads.set_unreached(unreached);
        (duties.plan_wanted, duties.stuck) = (true, None);
    }
    let full = duties.rooms.full();
    if duties.told.loads.full() != &full {
        duties.told.loads.set_full(full);
        duties.plan_wanted = true;
    }
    draft_reshapes(cx, duties, table, draft);
    if let Some((
        planned,
        Proposal {
            mut goals,
            hot,
            reshapes,
            heirs,
        },
    )) = duties.proposal.take()
    {
        // With more copies wanted by this very table it would drop one that is needed.
        if planned != base || draft.altered {
            duties.plan_wanted = true;
        } else {
            if !heirs.is_empty() {
                *table = Cow::Owned(planner::inherit(table, &heirs));
            }
            // Whoever evens out what one brings to the other's members would send that one away.
            let comes = |at: &PartitionRef| {
                duties
                    .together
                    .keys()
                    .any(|(k, pair)| *k == at.keyspace && pair.contains(&at.partition))
            };
            goals.retain(|(at, _)| !(comes(at) && planner::ranges::may_stay(table, *at)));
            if !goals.is_empty() {
                *table = Cow::Owned(planner::adopt(table, &goals));
                (duties.moving, duties.stuck) = (true, None);
                duties
                    .hot
                    .retain(|at| table.partition(*at).is_some_and(|p| p.goal.is_some()));
                duties.hot.extend(hot);
            }
            if cx.now >= duties.reshape_at {
                begin_reshapes(table, reshapes);
            }
        }
    }
    let unchanged = matches!(table, Cow::Borrowed(_));
    // Every ping comes by here, and looking for steps is work for every partition.
    let stuck = |(at, until): (TableName, Option<Time>)| {
        at == base && until.is_none_or(|until| cx.now < until)
    };
    if duties.moving && !(unchanged && duties.stuck.is_some_and(stuck)) {
        let mut paused = duties.rooms.paused(cx.now, table, &duties.told.loads);
        paused.extend(
            duties
                .backoff
                .iter()
                .filter(|(_, (until, _))| *until > cx.now)
                .map(|(key, _)| *key),
        );
        let waits = Waits {
            paused,
            hot: std::mem::take(&mut duties.hot),
        };
        let next = planner::advance(table, &MOVES, &waits);
        duties.hot = waits.hot;
        if let Some(next) = next {
            *table = Cow::Owned(next);
        } else if unchanged {
            duties.stuck = Some((base, duties.retry(cx.now)));
        }
    }
}

/// What is split and merged: what is ready is done, what takes too long is given up, because writes
/// wait for it, and some more begins.
fn draft_reshapes(
    cx: &Context,
    duties: &mut Duties,
    table: &mut Cow<'_, Table>,
    draft: &mut Draft,
) {
    let is_reshaped = |at: &PartitionRef| {
        table
            .keyspace(at.keyspace)
            .is_some_and(|k| k.is_reshaped(at.partition))
    };
    duties.still.retain(|at, still| {
        is_reshaped(at) && table.partition(*at).is_some_and(|p| p.epoch == still.epoch)
    });
    if let Some(next) = planner::reshape::finish(table, |at| duties.still.get(&at).copied()) {
        *table = Cow::Owned(next);
        draft.unplanned = true;
    }
    let under_way = table
        .keyspaces
        .iter()
        .flat_map(|k| k.reshaping.under_way.iter().map(|r| (k.id, r.clone())));
    let under_way: BTreeSet<(KeyspaceId, Reshape)> = under_way.collect();
    duties
        .reshaping
        .retain(|reshape, _| under_way.contains(reshape));
    under_way
        .into_iter()
        .for_each(|reshape| _ = duties.reshaping.entry(reshape).or_insert(cx.now));
    let late = |since: &Time| cx.now.since(*since) >= RESHAPE_PATIENCE;
    if duties.reshaping.values().any(late) {
        let given_up = |keyspace, reshape: &Reshape| {
            duties
                .reshaping
                .get(&(keyspace, reshape.clone()))
                .is_some_and(late)
        };
        *table = Cow::Owned(planner::reshape::cancel(table, given_up));
        duties.reshape_at = cx.now + RESHAPE_PAUSE;
    }
    if cx.now < duties.reshape_at {
        return;
    }
    duties.plan_wanted |= std::mem::replace(&mut duties.reshape_at, Time::ZERO) > Time::ZERO;
    let halves = table.keyspaces.iter().flat_map(|k| {
        planner::reshape::doublings(k, HALVED_MAX)
            .into_iter()
            .map(|r| (k.id, r))
    });
    let halves: Vec<(KeyspaceId, Reshape)> = halves.collect();
    begin_reshapes(table, halves);
    begin_reshapes(table, std::mem::take(&mut duties.told.splits));
    let cold = std::mem::take(&mut duties.told.merges);
    let room = TOGETHER_MAX.saturating_sub(duties.together.len());
    cold.into_iter()
        .take(room)
        .for_each(|pair| _ = duties.together.entry(pair).or_insert(cx.now));
    let there = |(keyspace, pair): &(KeyspaceId, [PartitionId; 2])| {
        table
            .keyspace(*keyspace)
            .is_some_and(|k| pair.iter().all(|p| k.partition(*p).is_some()))
    };
    // Who was to get the one has no room for it.
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
                wanted.any(|m| duties.told.loads.refuses(table, at, *m))
            })
    };
    duties.together.retain(|pair, since| {
        there(pair) && cx.now.since(*since) < TOGETHER_PATIENCE && !refused(pair)
    });
    for &(keyspace, pair) in duties.together.keys() {
        match planner::ranges::together(table, keyspace, pair, &duties.told.loads) {
            Some(Ok(merge)) => begin_reshapes(table, vec![(keyspace, merge)]),
            Some(Err(goals)) => {
                *table = Cow::Owned(planner::adopt(table, &goals));
                duties.moving = true;
            }
            None => {}
        }
    }
}

/// Neighbours that somebody wants merged, and that first have to come to the same members.
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

/// What cannot begin now is thought of again with a later table.
fn begin_reshapes(table: &mut Cow<'_, Table>, reshapes: Vec<(KeyspaceId, Reshape)>) {
    for (keyspace, reshape) in reshapes {
        if let Ok(next) = planner::reshape::begin(table, keyspace, reshape) {
            *table = Cow::Owned(next);
        }
    }
}
