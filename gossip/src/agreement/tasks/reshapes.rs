//! Splits and merges, and neighbours that come to the same members so that they can be merged.

use super::super::api::AdminRequest;
use super::super::context::Context;
use super::super::loads::ReportedLoads;
use super::TableDraft;
use super::moves::MoveTask;
use crate::time::Time;
use doyen_placement::loads::Loads;
use doyen_placement::planner::{self, WritesStopped};
use doyen_placement::{Keyspace, KeyspaceId, Mode, PartitionId, PartitionRef, Reshape, Table};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Two neighbouring ranges can be merged only if the same members hold both, so their copies may
/// have to move first. At most this many pairs move for that reason at a time.
const TOGETHER_MAX: usize = 64;
/// How long such a pair may take.
const TOGETHER_PATIENCE: Duration = Duration::from_secs(60);
/// Writes wait while a partition is split or merged. After this long, the split or merge is given
/// up.
const RESHAPE_PATIENCE: Duration = Duration::from_secs(1);
/// How long other splits and merges wait after one was given up.
const RESHAPE_PAUSE: Duration = Duration::from_secs(5);
/// The number of partitions of a keyspace that are halved at the same time.
const SHRUNK_MAX: usize = 16;

/// What a coordinator knows of splits and merges.
#[derive(Debug, Default)]
pub(super) struct Reshapes {
    /// Partitions that take no more writes, because they are about to be split or merged, as their
    /// primaries reported.
    stopped: BTreeMap<PartitionRef, WritesStopped>,
    /// Since when this coordinator has known each split and merge.
    under_way: BTreeMap<(KeyspaceId, Reshape), Time>,
    /// When other splits and merges may begin after one that failed. Zero if none failed.
    not_before: Time,
    /// Neighbours that are brought to the same members, so that they can be merged, and since when.
    together: BTreeMap<(KeyspaceId, [PartitionId; 2]), Time>,
}

impl Reshapes {
    /// A primary takes no more writes of a partition that is about to be split or merged.
    pub(super) fn stopped(&mut self, at: PartitionRef, stopped: WritesStopped) {
        self.stopped.insert(at, stopped);
    }

    /// An operator wants these neighbours merged, which are at different members.
    pub(super) fn bring_together(&mut self, now: Time, pair: (KeyspaceId, [PartitionId; 2])) {
        self.together.entry(pair).or_insert(now);
    }

    /// Whether a plan for balance would send away this partition, which was brought to its
    /// neighbour's members.
    pub(super) fn brings(&self, at: PartitionRef) -> bool {
        let is_of = |(k, pair): &(KeyspaceId, [PartitionId; 2])| {
            *k == at.keyspace && pair.contains(&at.partition)
        };
        self.together.keys().any(is_of)
    }

    /// Whether primaries have stopped writes for them.
    pub(super) fn has_stopped(&self) -> bool {
        !self.stopped.is_empty()
    }

    /// Whether writes wait, or may soon.
    pub(super) fn presses(&self) -> bool {
        self.has_stopped() || !self.under_way.is_empty()
    }

    /// Whether splits and merges may begin.
    pub(super) fn may_begin(&self, now: Time) -> bool {
        now >= self.not_before
    }

    /// When one is given up, and when others may begin after one that failed.
    pub(super) fn due(&self, now: Time) -> [Option<Time>; 2] {
        let given_up = self
            .under_way
            .values()
            .map(|since| *since + RESHAPE_PATIENCE);
        let begins = (self.not_before > now).then_some(self.not_before);
        [given_up.min(), begins]
    }

    /// Finishes those that are ready, gives up those that take too long, because writes wait for
    /// them, and begins some more.
    pub(super) fn draft(
        &mut self,
        cx: &Context,
        moves: &mut MoveTask,
        told: &mut ReportedLoads,
        table: &mut Cow<'_, Table>,
        draft: &mut TableDraft,
    ) {
        let is_reshaped = |at: &PartitionRef| {
            table
                .keyspace(at.keyspace)
                .is_some_and(|k| k.is_reshaped(at.partition))
        };
        self.stopped.retain(|at, stopped| {
            is_reshaped(at)
                && table
                    .partition(*at)
                    .is_some_and(|p| p.epoch == stopped.epoch)
        });
        if let Some(next) = planner::reshape::finish(table, |at| self.stopped.get(&at).copied()) {
            *table = Cow::Owned(next);
            draft.unplanned = true;
        }
        let under_way = table
            .keyspaces
            .iter()
            .flat_map(|k| k.reshaping.under_way.iter().map(|r| (k.id, r.clone())));
        let under_way: BTreeSet<(KeyspaceId, Reshape)> = under_way.collect();
        self.under_way
            .retain(|reshape, _| under_way.contains(reshape));
        under_way
            .into_iter()
            .for_each(|reshape| _ = self.under_way.entry(reshape).or_insert(cx.now));
        let late = |since: &Time| cx.now.since(*since) >= RESHAPE_PATIENCE;
        if self.under_way.values().any(late) {
            let given_up = |keyspace, reshape: &Reshape| {
                self.under_way
                    .get(&(keyspace, reshape.clone()))
                    .is_some_and(late)
            };
            *table = Cow::Owned(planner::reshape::cancel(table, given_up));
            self.not_before = cx.now + RESHAPE_PAUSE;
        }
        if cx.now < self.not_before {
            return;
        }
        let goes_on = std::mem::replace(&mut self.not_before, Time::ZERO) > Time::ZERO;
        moves.plan_again_if(goes_on);
        let halves = table.keyspaces.iter().flat_map(|k| {
            planner::reshape::doublings(k, SHRUNK_MAX)
                .into_iter()
                .map(|r| (k.id, r))
        });
        let halves: Vec<(KeyspaceId, Reshape)> = halves.collect();
        begin_reshapes(table, halves);
        begin_reshapes(table, std::mem::take(&mut told.splits));
        self.draft_neighbours(cx, moves, told, table);
    }

    /// Brings neighbours to the same members, and merges those that are there.
    fn draft_neighbours(
        &mut self,
        cx: &Context,
        moves: &mut MoveTask,
        told: &mut ReportedLoads,
        table: &mut Cow<'_, Table>,
    ) {
        let cold = std::mem::take(&mut told.merges);
        let room = TOGETHER_MAX.saturating_sub(self.together.len());
        cold.into_iter()
            .take(room)
            .for_each(|pair| _ = self.together.entry(pair).or_insert(cx.now));
        let there = |(keyspace, pair): &(KeyspaceId, [PartitionId; 2])| {
            table
                .keyspace(*keyspace)
                .is_some_and(|k| pair.iter().all(|p| k.partition(*p).is_some()))
        };
        // The target has no room for it.
        let refused = |(keyspace, pair): &(KeyspaceId, [PartitionId; 2])| {
            pair.iter()
                .map(|partition| PartitionRef::new(*keyspace, *partition))
                .any(|at| {
                    let mut wanted = table
                        .partition(at)
                        .into_iter()
                        .flat_map(|p| p.goal.iter().flatten());
                    wanted.any(|m| told.loads.refuses(table, at, *m))
                })
        };
        self.together.retain(|pair, since| {
            there(pair) && cx.now.since(*since) < TOGETHER_PATIENCE && !refused(pair)
        });
        for &(keyspace, pair) in self.together.keys() {
            match planner::ranges::together(table, keyspace, pair, &told.loads) {
                Some(Ok(merge)) => begin_reshapes(table, vec![(keyspace, merge)]),
                Some(Err(goals)) => {
                    *table = Cow::Owned(planner::adopt(table, &goals));
                    moves.begins();
                }
                None => {}
            }
        }
    }
}

/// Whether a partition of this keyspace is about to be halved.
pub(super) fn is_shrunk(keyspace: &Keyspace) -> bool {
    !planner::reshape::doublings(keyspace, SHRUNK_MAX).is_empty()
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
pub(super) fn begin_reshapes(table: &mut Cow<'_, Table>, reshapes: Vec<(KeyspaceId, Reshape)>) {
    for (keyspace, reshape) in reshapes {
        if let Ok(next) = planner::reshape::begin(table, keyspace, reshape) {
            *table = Cow::Owned(next);
        }
    }
}
