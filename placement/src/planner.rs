//! Turns a table into the next. Each file has one concern and consists of pure functions.
//!
//! ```text
//!  beginning   first ── assign
//!  keyspaces   create_keyspace   alter_keyspace   drop_keyspace   want_map
//!  members     admit   elders   remove (failover)   revive   hand_over (leaving)   stop   take_over
//!              drain ── fill   reset, begin_anew (giving up)
//!  partitions  change_in_sync (requests of primaries)
//!  shape       reshape::{begin ── finish or cancel} (splits and merges)   lasting (which)
//!  moves       plan (propose) ──> adopt or apply (goals) ──> advance ──> ... ──> goals are gone
//!  weights     too_heavy (newcomers that wait)   allow_present
//!  people      schedule   balance (pause, pace)   call_off   cancel   forget
//!  the gone    note_gone
//!  reporting   health   holds_anything   rules_unmet   operators   surplus
//! ```
//!
//! Every function returns a table of the same term and version, because agreement sets those. The
//! new table shares with the old one everything that does not change. Only `reset`, `begin_anew`,
//! and `remove` of dead members (if the keyspace says so) drop the last in-sync copy of a
//! partition, and begin another lineage. The same input gives the same output on every platform.

mod access;
mod admit;
mod adopt;
mod advance;
mod apply;
mod assign;
mod balance;
mod change_in_sync;
mod drain;
mod due;
mod edit;
mod first;
mod gone;
mod hand_over;
mod health;
mod keyspaces;
pub(crate) mod layout;
mod operators;
mod plan;
pub mod ranges;
mod remove;
mod reset;
pub mod reshape;
mod revive;
mod ring;
mod stop;
mod surplus;
mod take_over;
mod unmet;
mod voters;
mod weights;

pub use access::{NotGranted, change_access, tell_of_keys};
pub use admit::admit;
pub use adopt::adopt;
pub use advance::{MoveFacts, MoveLimits, advance};
pub use apply::{NotApplied, apply};
pub use assign::assign;
pub use balance::{BalanceChange, NotCancelled, at_minute, balance, call_off, cancel, schedule};
pub use change_in_sync::{InSyncChange, InSyncRequest, change_in_sync};
pub use drain::{NotDrained, drain, fill, leaving, named, refill};
pub use first::first;
pub use gone::{NotForgotten, forget, note_gone};
pub use hand_over::{HandOverUrgency, hand_over};
pub use health::{Health, health, holds_anything};
pub use keyspaces::{
    DEFAULT_KEYSPACE, KeyspaceChange, NewKeyspace, Refused, alter_keyspace, check_directories,
    create_keyspace, drop_keyspace, merge_at, neighbours_at, note_limits, split_at, want_map,
};
pub use operators::{Operator, OperatorAction, Reason, operators};
pub use plan::{plan, plan_for, plans_alike};
pub use remove::{Absence, remove};
pub use reset::{begin_anew, lost, reset};
pub use reshape::{NotReshaped, WritesStopped};
pub use revive::revive;
pub use ring::inherit;
pub use stop::{stop, stops};
pub use surplus::{Surplus, surplus};
pub use take_over::{SeatHeir, beside_on_disk, is_outdated, take_over};
pub use unmet::{Unmet, Why, rules_unmet};
pub use voters::choose_voters;
pub use weights::{TooHeavy, WEIGHT_FACTOR, allow_present, too_heavy};

pub use edit::may_receive;

use crate::id::{KeyspaceId, MemberId, PartitionId, PartitionRef};
use crate::loads::{Loads, Uneven};
use crate::table::{Reshape, Table};
use crate::token::Token;
use layout::{Seen, shapes};
use std::collections::BTreeSet;

/// The goals of partitions: for each, the replicas that it shall have, primary first.
pub type Plan = Vec<(PartitionRef, Vec<MemberId>)>;

/// The changes that a table needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlannedChanges {
    /// The goals of partitions.
    pub goals: Plan,
    /// The partitions that move because of measured loads. They go before other moves for balance.
    pub hot: BTreeSet<PartitionRef>,
    /// Splits and merges that can begin.
    pub reshapes: Vec<(KeyspaceId, Reshape)>,
    /// Tokens of rings that members take over from members that are gone.
    pub heirs: Vec<(KeyspaceId, Token, MemberId)>,
}

/// The changes that this table needs: [`plan`], and the splits and merges of rings whose members
/// have changed.
#[must_use]
pub fn propose(table: &Table, loads: &Loads) -> PlannedChanges {
    let heirs = ring::heirs(table);
    // A token that is taken over need not be merged, and needs no other split.
    let inherited = inherit(table, &heirs);
    let goals = plan(&inherited, loads);
    let mut hot = BTreeSet::new();
    if loads.uneven().work {
        let mut even = loads.clone();
        even.set_uneven(Uneven {
            work: false,
            ..loads.uneven()
        });
        let others: BTreeSet<_> = plan(&inherited, &even).into_iter().collect();
        hot.extend(
            goals
                .iter()
                .filter(|goal| !others.contains(goal))
                .map(|(at, _)| *at),
        );
    }
    // Measured loads must last before anything is split or merged for them.
    let seen = Seen {
        table: &inherited,
        loads: &Loads::default(),
        range_bytes_max: None,
    };
    let reshapes = shapes(&seen)
        .into_iter()
        .map(|(keyspace, reshape, _)| (keyspace, reshape))
        .collect();
    PlannedChanges {
        goals,
        hot,
        reshapes,
        heirs,
    }
}

/// The splits and merges that would follow if the measured loads lasted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lasting {
    /// Ranges to split.
    pub splits: Vec<(KeyspaceId, Reshape)>,
    /// Neighbours to merge.
    pub merges: Vec<(KeyspaceId, [PartitionId; 2])>,
}

/// The splits and merges that would follow if these loads lasted. A range with `range_bytes_max`
/// bytes is split.
#[must_use]
pub fn lasting(table: &Table, loads: &Loads, range_bytes_max: u64) -> Lasting {
    let mut lasting = Lasting::default();
    for (keyspace, reshape, reason) in shapes(&Seen {
        table,
        loads,
        range_bytes_max: Some(range_bytes_max),
    }) {
        match reshape {
            // Splits and merges for members that came and went need not wait.
            _ if reason == Reason::Tokens => {}
            Reshape::Split { .. } => lasting.splits.push((keyspace, reshape)),
            Reshape::Merge { partitions } => lasting.merges.push((keyspace, partitions)),
        }
    }
    lasting
}
