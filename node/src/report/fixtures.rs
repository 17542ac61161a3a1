//! Clusters for tests of reports.

use crate::config::{Defaults, Options};
use crate::control::ClusterStatus;
use doyen_gossip::agreement::Status;
use doyen_placement::planner;
use doyen_placement::{Addresses, ClusterId, Member, MemberId, PartitionRef, Table};
use std::net::SocketAddr;
use std::sync::Arc;

/// The identity of the member with this number.
pub(crate) fn id(number: u64) -> MemberId {
    MemberId(number << 4)
}

/// A live member with this number.
pub(crate) fn member(number: u64) -> Member {
    let at =
        |port: u64| SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).expect("a small port")));
    Member::new(
        id(number),
        format!("node-{number}"),
        Addresses {
            resp: Some(at(number + 200)),
            ..Addresses::new(at(number), at(number + 100))
        },
    )
}

/// A cluster of this many members, with 16 partitions.
pub(crate) fn cluster(members: u64) -> Table {
    let config = Options {
        partitions: Some(16),
        ..Options::default()
    }
    .resolve(Defaults::Binary)
    .expect("holds");
    planner::first(
        ClusterId(7),
        config.first.settings,
        config.first.keyspace,
        (1..=members).map(member).collect(),
    )
}

/// What a node knows of this table.
pub(crate) fn seen(
    table: Table,
    closed: Vec<PartitionRef>,
    from_coordinator: bool,
) -> ClusterStatus {
    let status = Status {
        me: id(1),
        coordinator: Some(id(1)),
        leading: true,
        installed: Some(table.name()),
        closed,
        planning: false,
        unanswered: Vec::new(),
        filled: Vec::new(),
        waiting: None,
        why: None,
        voters: Vec::new(),
        heirs: Vec::new(),
        others: Vec::new(),
        split: None,
    };
    ClusterStatus {
        status,
        from_coordinator,
        level_max: table.level,
        installed: Some(Arc::new(table)),
        former: Vec::new(),
        unheard: Vec::new(),
        gone: Default::default(),
        directory: None,
    }
}
