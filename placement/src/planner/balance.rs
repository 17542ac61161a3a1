//! The operators' changes of moves: which happen by themselves, when and how fast, and which do not
//! happen.

use super::edit::change_partitions;
use super::health::copies_wanted;
use super::plan::has_begun;
use super::{may_receive, ranges};
use crate::balancing::{Balancing, MoveRate, Paused, Window};
use crate::id::{MemberId, PartitionRef};
use crate::loads::Loads;
use crate::scheduler::Schedulers;
use crate::table::{Partition, Settings, Table};
use minicbor::{Decode, Encode};
use std::collections::BTreeSet;

/// A change of the settings for moves.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum BalanceChange {
    /// Nothing new is moved for balance.
    #[n(0)]
    Pause(#[n(0)] Paused),
    /// Balancing goes on, also for partitions whose move was cancelled.
    #[n(1)]
    Resume,
    /// The time of day at which balancing is allowed. `None`: at any time.
    #[n(2)]
    Window(#[n(0)] Option<Window>),
    /// The rate of copying.
    #[n(3)]
    Rate(#[n(0)] MoveRate),
}

/// Why a move is not cancelled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCancelled {
    /// The partition does not exist.
    #[error("there is no partition {0}")]
    NoPartition(String),
    /// The partition does not move.
    #[error("partition {0} does not move")]
    NoMove(String),
    /// The move repairs something, and would begin again at once.
    #[error(
        "partition {0} lacks copies, or a member that drains holds it: such a move is not \
         cancelled, because it would begin again at once"
    )]
    Mends(String),
}

/// The table in which copies move for these reasons. Plans for other reasons that have not begun
/// are given up.
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

/// The table with this change. Copies that have begun go on. Moves that have not begun and may not
/// begin any more are given up.
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
        // The coordinator says whether it is that time.
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

/// The table in which this partition moves no more: the members that hold it in sync keep it, and
/// copies that are under way are dropped. It stays there while it lacks nothing
/// (`Balancing::held`). With `None`, the same for all partitions that move for balance, and
/// balancing is paused: otherwise other partitions would move instead.
///
/// # Errors The named partition does not exist, does not move, or moves because it lacks something.
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

/// The table without the moves for balance whose copy has not begun, as far as `loads` shows.
/// Copies that have begun are finished. So are moves that already have a copy too many, because
/// that copy would have been made for nothing.
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

/// The table in which the named partitions move no more, if they lack nothing. The members that
/// hold them in sync keep them.
pub(super) fn stop(table: &Table, named: impl Fn(PartitionRef, &Partition) -> bool) -> Table {
    let wanted = wanted(table);
    change_partitions(table, |at, found| {
        if !named(at, found) || !ranges::may_stay(table, at) {
            return None;
        }
        // The copies that were counted last go: the others were there when the move began, or lead
        // by now.
        let stay: Vec<MemberId> = found.in_sync().take(wanted(at)).collect();
        Some(Partition {
            goal: None,
            ..found.with_replicas(&stay, &[])
        })
    })
}

/// The number of copies that a partition should have.
fn wanted(table: &Table) -> impl Fn(PartitionRef) -> usize {
    let receivers = table.members.iter().filter(|m| may_receive(m)).count();
    move |at| {
        table
            .keyspace(at.keyspace)
            .map_or(1, |k| copies_wanted(k, receivers))
            .max(1)
    }
}

/// Members come, go or return, so partitions that an operator held in place are released.
pub(super) fn release_held(table: &mut Table) {
    table.settings.balancing.held = Vec::new();
}
