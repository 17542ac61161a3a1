//! Tables and their parts, for tests.

use doyen_placement::loads::Loads;
use doyen_placement::planner;
use doyen_placement::{
    Addresses, ClusterId, Keyspace, Member, MemberId, OnLoss, PartitionRef, Replica, ReplicaState,
    Settings, Table,
};
use std::sync::Arc;

/// A keyspace with one backup, as in a first table.
pub(in crate::agreement) fn keyspace(partitions: u16) -> Keyspace {
    Keyspace {
        on_loss: OnLoss::Reset { after_ms: 3000 },
        ..Keyspace::fixed(partitions, 1)
    }
}

pub(in crate::agreement) fn member(number: u64) -> Member {
    let control = ([127, 0, 0, 1], 7400).into();
    Member::new(
        MemberId(number << 4),
        format!("n{number}"),
        Addresses::new(control, control),
    )
}

/// A table with this many members.
pub(in crate::agreement) fn members(count: u64) -> Table {
    planner::first(
        ClusterId(7),
        Settings::default(),
        keyspace(16),
        (1..=count).map(member).collect(),
    )
}

/// A table of two members, with a plan that gives a third its share of this many partitions.
pub(in crate::agreement) fn planned(partitions: u16) -> Table {
    let table = planner::first(
        ClusterId(7),
        Settings::default(),
        keyspace(partitions),
        vec![member(1), member(2)],
    );
    let table = planner::admit(&table, vec![member(3)]);
    planner::adopt(&table, &planner::plan(&table, &Loads::default()))
}

/// The same, with the moves under way.
pub(in crate::agreement) fn moving(table: &Table) -> Table {
    let limits = planner::MoveLimits {
        learners_per_source: 9,
        learners_per_target: 9,
        learners: 9,
    };
    planner::advance(table, &limits, &planner::MoveFacts::default()).expect("copies begin")
}

/// The same, without another member that holds this partition.
pub(in crate::agreement) fn alone(table: &Table, at: PartitionRef, holder: MemberId) -> Table {
    let mut table = table.clone();
    let keyspace = table
        .keyspaces
        .iter_mut()
        .find(|k| k.id == at.keyspace)
        .expect("it is there");
    let partition = keyspace
        .partitions
        .iter_mut()
        .find(|p| p.id == at.partition)
        .expect("it is there");
    Arc::make_mut(partition).replicas = vec![Replica {
        member: holder,
        state: ReplicaState::InSync,
    }];
    table
}
