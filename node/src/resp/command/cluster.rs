//! Commands on the cluster.

use super::table::{Access, Description, NO_KEYS};
use super::{
    All, Call, ClusterCommand, ConnectionCommand, ErrorText, NOT_AN_INTEGER, Parsed, Request,
    connection, container, help,
};
use crate::resp::cluster::Topology;
use doyen_engine::integer;

pub(super) const ROWS: &[Description] = &[
    Description {
        name: "asking",
        since: "3.0.0",
        arity: 1,
        flags: &["fast"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "cluster",
        categories: &["connection"],
        summary: "Accepted and without effect: moves never need it",
        parse: |_| connection(ConnectionCommand::Accept),
    },
    Description {
        name: "cluster",
        since: "3.0.0",
        arity: -2,
        flags: &[],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "cluster",
        categories: &[],
        summary: "A container for cluster commands",
        parse: container,
    },
    Description {
        name: "cluster|countkeysinslot",
        since: "3.0.0",
        arity: 3,
        flags: &["stale"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "cluster",
        categories: &[],
        summary: "Return the number of keys in a slot",
        parse: |c| {
            Ok(Request::All(All::CountInSlot(
                slot(c)?.ok_or("ERR Invalid slot")?,
            )))
        },
    },
    Description {
        name: "cluster|getkeysinslot",
        since: "3.0.0",
        arity: 4,
        flags: &["stale"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "cluster",
        categories: &[],
        summary: "Return the names of some keys of a slot",
        parse: keys_in_slot,
    },
    Description {
        name: "cluster|help",
        since: "5.0.0",
        arity: 2,
        flags: &["loading", "stale"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "cluster",
        categories: &[],
        summary: "Show helpful text about the different subcommands",
        parse: help,
    },
    Description {
        name: "cluster|info",
        since: "3.0.0",
        arity: 2,
        flags: &["stale"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "cluster",
        categories: &[],
        summary: "Return information about the cluster",
        parse: |_| cluster(ClusterCommand::Info),
    },
    Description {
        name: "cluster|keyslot",
        since: "3.0.0",
        arity: 3,
        flags: &["stale"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "cluster",
        categories: &[],
        summary: "Return the slot of a key",
        parse: |c| {
            let slot = doyen_placement::hash::slot(c.args.get(2));
            cluster(ClusterCommand::KeySlot(slot))
        },
    },
    Description {
        name: "cluster|links",
        since: "7.0.0",
        arity: 2,
        flags: &["stale"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "cluster",
        categories: &[],
        summary: "Return the links of the cluster bus: there are none",
        parse: |_| cluster(ClusterCommand::Links),
    },
    Description {
        name: "cluster|myid",
        since: "3.0.0",
        arity: 2,
        flags: &["stale"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "cluster",
        categories: &[],
        summary: "Return the id of this node",
        parse: |_| cluster(ClusterCommand::MyId),
    },
    Description {
        name: "cluster|myshardid",
        since: "7.2.0",
        arity: 2,
        flags: &["stale"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "cluster",
        categories: &[],
        summary: "Return the id of this node's shard",
        parse: |_| cluster(ClusterCommand::MyShardId),
    },
    Description {
        name: "cluster|nodes",
        since: "3.0.0",
        arity: 2,
        flags: &["stale"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "cluster",
        categories: &[],
        summary: "Return the nodes of the cluster",
        parse: |_| cluster(ClusterCommand::Topology(Topology::Nodes)),
    },
    Description {
        name: "cluster|replicas",
        since: "5.0.0",
        arity: 3,
        flags: &["admin", "stale"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "cluster",
        categories: &[],
        summary: "List the replicas of a node: there are none",
        parse: |c| cluster(ClusterCommand::Replicas(c.args.bytes(2))),
    },
    Description {
        name: "cluster|shards",
        since: "7.0.0",
        arity: 2,
        flags: &["loading", "stale"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "cluster",
        categories: &[],
        summary: "Return which shard has which slots",
        parse: |_| cluster(ClusterCommand::Topology(Topology::Shards)),
    },
    Description {
        name: "cluster|slaves",
        since: "3.0.0",
        arity: 3,
        flags: &["admin", "stale"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "cluster",
        categories: &[],
        summary: "List the replicas of a node: there are none",
        parse: |c| cluster(ClusterCommand::Replicas(c.args.bytes(2))),
    },
    Description {
        name: "cluster|slots",
        since: "3.0.0",
        arity: 2,
        flags: &["loading", "stale"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "cluster",
        categories: &[],
        summary: "Return which node has which slots",
        parse: |_| cluster(ClusterCommand::Topology(Topology::Slots)),
    },
    Description {
        name: "readonly",
        since: "3.0.0",
        arity: 1,
        flags: &["loading", "stale", "fast"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "cluster",
        categories: &["connection"],
        summary: "Accepted and without effect: every node answers reads",
        parse: |_| connection(ConnectionCommand::Accept),
    },
    Description {
        name: "readwrite",
        since: "3.0.0",
        arity: 1,
        flags: &["loading", "stale", "fast"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "cluster",
        categories: &["connection"],
        summary: "Accepted and without effect",
        parse: |_| connection(ConnectionCommand::Accept),
    },
];

const fn cluster(asked: ClusterCommand) -> Parsed {
    Ok(Request::Cluster(asked))
}

/// The slot that is named; `None`: there is no such slot.
fn slot(c: Call<'_>) -> Result<Option<u16>, ErrorText> {
    let number = integer(c.args.get(2)).ok_or(NOT_AN_INTEGER)?;
    let slot = u16::try_from(number).ok();
    Ok(slot.filter(|slot| *slot < doyen_placement::hash::SLOTS))
}

fn keys_in_slot(c: Call<'_>) -> Parsed {
    let (slot, count) = (slot(c)?, integer(c.args.get(3)).ok_or(NOT_AN_INTEGER)?);
    let wrong = "ERR Invalid slot or number of keys";
    let count = u64::try_from(count).map_err(|_| wrong)?;
    Ok(Request::All(All::KeysInSlot {
        slot: slot.ok_or(wrong)?,
        // No reply has room for more keys than this.
        count: u32::try_from(count).unwrap_or(u32::MAX),
    }))
}
