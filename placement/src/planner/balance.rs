//! What people say of moves: which go by themselves, when and how fast, and which had better not.

use super::edit::change_partitions;
use super::health::copies_wanted;
use super::plan::has_begun;
use super::{may_receive, ranges};
use crate::balancing::{Balancing, MoveRate, Paused, Window};
use crate::id::{MemberId, PartitionRef};
use crate::loads::Loads;
use crate::scheduler::Schedulers;
use crate::table::{Partition, Settings, Table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What is said of moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BalanceChange {
    /// Nothing new is moved for balance.
    Pause(Paused),
    /// Balance goes on, also that of partitions whose move was cancelled.
    Resume,
    /// At which time of day there is balancing; `None`: at any.
    Window(Option<Window>),
    /// How fast copies are made.
    Rate(MoveRate),
}

/// Why a move is not cancelled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCancelled {
    /// It is not there.
    #[error("there is no partition {0}")]
    NoPartition(String),
    /// It stands still.
    #[error("partition {0} does not move")]
    NoMove(String),
    /// It mends something, and would begin again at once.
    #[error(
        "partition {0} lacks copies, or a member that drains holds it: such a move is not cancelled, as it would begin again at once"
    )]
    Mends(String),
}

/// The table in which copies move for these reasons. What was planned for others and has not begun
/// is given up.
#[must_use]
pub fn schedule(table: &Table, schedulers: Schedulers) -> Table {
    with_settings(
        table,
        Settings {
            schedulers,
            ..table.settings.clone()
        },
    )
}

/// The table in which this is said of moves. What is being copied goes on; what has not begun is
/// given up, where it may not begin any more.
#[must_use]
pub fn balance(table: &Table, change: &BalanceChange) -> Table {
    let mut balancing = table.settings.balancing.clone();
    match *change {
        BalanceChange::Pause(by) => {
            balancing.paused = Some(
                balancing
                    .paused
                    .filter(|_| by == Paused::Failures)
                    .unwrap_or(by),
            )
        }
        BalanceChange::Resume => {
            balancing = Balancing {
                paused: None,
                held: Vec::new(),
                ..balancing
            }
        }
        // Whether it is that time is the coordinator's to say.
        BalanceChange::Window(window) => {
            balancing = Balancing {
                window,
                closed: false,
                ..balancing
            }
        }
        BalanceChange::Rate(rate) => balancing.rate = rate,
    }
    with_settings(
        table,
        Settings {
            balancing,
            ..table.settings.clone()
        },
    )
}

/// The table at this minute of the day (UTC), as far as that matters.
#[must_use]
pub fn at_minute(table: &Table, minute: u16) -> Option<Table> {
    let balancing = &table.settings.balancing;
    let closed = balancing.window.is_some_and(|window| !window.has(minute));
    let changed = || Settings {
        balancing: Balancing {
            closed,
            ..balancing.clone()
        },
        ..table.settings.clone()
    };
    (closed != balancing.closed).then(|| with_settings(table, changed()))
}

fn with_settings(table: &Table, settings: Settings) -> Table {
    let fewer = settings.forbids_more_than(&table.settings);
    let mut next = change_partitions(table, |_, partition| {
        let idle = partition
            .goal
            .as_ref()
            .is_some_and(|goal| !has_begun(partition, goal));
        (idle && fewer).then(|| Partition {
            goal: None,
            ..partition.clone()
        })
    });
    next.settings = settings;
    next
}

/// The table in which this partition moves no more: who holds it in sync holds it, and what was
/// only being copied is dropped. It stays there while it lacks nothing (`Balancing::held`). With
/// `None`, the same for all that move for balance, and balancing is paused: other partitions would
/// move in their stead.
///
/// # Errors
/// Of a partition that was named: it is not there, does not move, or moves because it lacks
/// something.
pub fn cancel(table: &Table, partition: Option<PartitionRef>) -> Result<Table, NotCancelled> {
    let moves = |p: &Partition| p.goal.is_some() || p.learners().next().is_some();
    if let Some(at) = partition {
        let found = table
            .partition(at)
            .ok_or_else(|| NotCancelled::NoPartition(table.name_of(at)))?;
        if !moves(found) {
            return Err(NotCancelled::NoMove(table.name_of(at)));
        }
        if !ranges::may_stay(table, at) {
            return Err(NotCancelled::Mends(table.name_of(at)));
        }
    }
    let mut next = stop(table, |at, found| {
        partition.is_none_or(|named| named == at) && moves(found)
    });
    let mut held: BTreeSet<PartitionRef> = table.settings.balancing.held.iter().copied().collect();
    held.extend(
        table
            .partitions()
            .filter(|(at, p)| moves(p) && next.partition(*at).is_some_and(|p| !moves(p)))
            .map(|(at, _)| at),
    );
    held.retain(|at| table.partition(*at).is_some());
    next.settings.balancing.held = held.into_iter().take(Balancing::HELD_MAX).collect();
    if partition.is_none() {
        next.settings
            .balancing
            .paused
            .get_or_insert(Paused::Operator);
    }
    Ok(next)
}

/// The table without those moves for balance of which no copy has begun, as far as is known
/// (`loads`): nothing new begins, where that was said. What is copied is finished, and so is what
/// already has a copy more than it should: it would have been made for nothing.
#[must_use]
pub fn call_off(table: &Table, loads: &Loads) -> Table {
    let wanted = wanted(table);
    stop(table, |at, found| {
        let told = loads.member(found.primary()).is_some();
        let waits = found.learners().next().is_some()
            && found
                .learners()
                .all(|learner| loads.progress(at, learner).is_none());
        told && waits && found.in_sync().count() <= wanted(at)
    })
}

/// The table in which these partitions move no more, of those that lack nothing: who holds one in
/// sync holds it.
pub(super) fn stop(table: &Table, named: impl Fn(PartitionRef, &Partition) -> bool) -> Table {
    let wanted = wanted(table);
    change_partitions(table, |at, found| {
        if !named(at, found) || !ranges::may_stay(table, at) {
            return None;
        }
        // Who was counted last goes: those before held it when the move began, or lead it by now.
        let stay: Vec<MemberId> = found.in_sync().take(wanted(at)).collect();
        Some(Partition {
            goal: None,
            ..found.with_replicas(&stay, &[])
        })
    })
}

/// How many copies a partition should have.
fn wanted(table: &Table) -> impl Fn(PartitionRef) -> usize {
    let receivers = table.members.iter().filter(|m| may_receive(m)).count();
    move |at| {
        table
            .keyspace(at.keyspace)
            .map_or(1, |k| copies_wanted(k, receivers))
            .max(1)
    }
}

/// Members come, go or come back: what an operator held in place is released, because its place has
/// changed.
pub(super) fn release_held(table: &mut Table) {
    table.settings.balancing.held = Vec::new();
}
