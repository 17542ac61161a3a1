//! Commands on the cluster.

use super::table::{Access, NO_KEYS, RespDescription, command};
use super::{
    All, ClusterCommand, CommandCall, ConnectionCommand, ErrorText, NOT_AN_INTEGER, ParsedCommand,
    RespRequest, connection, container, help_of,
};
use crate::resp::cluster::SlotTopology;
use doyen_engine::integer;

pub(super) const ROWS: &[RespDescription] = &[
    command("asking", "3.0.0", 1, "cluster", "fast")
        .on(NO_KEYS, Access::Nothing, "connection")
        .about("Accepted and without effect: moves never need it")
        .parse(|_| connection(ConnectionCommand::Accept)),
    command("cluster", "3.0.0", -2, "cluster", "")
        .about("A container for cluster commands")
        .parse(container),
    command("cluster|countkeysinslot", "3.0.0", 3, "cluster", "stale")
        .about("Return the number of keys in a slot")
        .parse(|c| {
            Ok(RespRequest::All(All::CountInSlot(
                slot(c)?.ok_or("ERR Invalid slot")?,
            )))
        }),
    command("cluster|getkeysinslot", "3.0.0", 4, "cluster", "stale")
        .about("Return the names of some keys of a slot")
        .parse(keys_in_slot),
    help_of("cluster|help", "5.0.0", "cluster"),
    command("cluster|info", "3.0.0", 2, "cluster", "stale")
        .about("Return information about the cluster")
        .parse(|_| cluster(ClusterCommand::Info)),
    command("cluster|keyslot", "3.0.0", 3, "cluster", "stale")
        .about("Return the slot of a key")
        .parse(|c| {
            let slot = doyen_placement::hash::slot(c.args.get(2));
            cluster(ClusterCommand::KeySlot(slot))
        }),
    command("cluster|links", "7.0.0", 2, "cluster", "stale")
        .about("Return the links of the cluster bus: there are none")
        .parse(|_| cluster(ClusterCommand::Links)),
    command("cluster|myid", "3.0.0", 2, "cluster", "stale")
        .about("Return the id of this node")
        .parse(|_| cluster(ClusterCommand::MyId)),
    command("cluster|myshardid", "7.2.0", 2, "cluster", "stale")
        .about("Return the id of this node's shard")
        .parse(|_| cluster(ClusterCommand::MyShardId)),
    command("cluster|nodes", "3.0.0", 2, "cluster", "stale")
        .about("Return the nodes of the cluster")
        .parse(|_| cluster(ClusterCommand::Topology(SlotTopology::Nodes))),
    command("cluster|replicas", "5.0.0", 3, "cluster", "admin stale")
        .about("List the replicas of a node: there are none")
        .parse(|c| cluster(ClusterCommand::Replicas(c.args.bytes(2)))),
    command("cluster|shards", "7.0.0", 2, "cluster", "loading stale")
        .about("Return which shard has which slots")
        .parse(|_| cluster(ClusterCommand::Topology(SlotTopology::Shards))),
    command("cluster|slaves", "3.0.0", 3, "cluster", "admin stale")
        .about("List the replicas of a node: there are none")
        .parse(|c| cluster(ClusterCommand::Replicas(c.args.bytes(2)))),
    command("cluster|slots", "3.0.0", 2, "cluster", "loading stale")
        .about("Return which node has which slots")
        .parse(|_| cluster(ClusterCommand::Topology(SlotTopology::Slots))),
    command("readonly", "3.0.0", 1, "cluster", "loading stale fast")
        .on(NO_KEYS, Access::Nothing, "connection")
        .about("Accepted and without effect: every node answers reads")
        .parse(|_| connection(ConnectionCommand::Accept)),
    command("readwrite", "3.0.0", 1, "cluster", "loading stale fast")
        .on(NO_KEYS, Access::Nothing, "connection")
        .about("Accepted and without effect")
        .parse(|_| connection(ConnectionCommand::Accept)),
];

const fn cluster(asked: ClusterCommand) -> ParsedCommand {
    Ok(RespRequest::Cluster(asked))
}

/// The slot that is named; `None`: there is no such slot.
fn slot(c: CommandCall<'_>) -> Result<Option<u16>, ErrorText> {
    let number = integer(c.args.get(2)).ok_or(NOT_AN_INTEGER)?;
    let slot = u16::try_from(number).ok();
    Ok(slot.filter(|slot| *slot < doyen_placement::hash::SLOTS))
}

fn keys_in_slot(c: CommandCall<'_>) -> ParsedCommand {
    let (slot, count) = (slot(c)?, integer(c.args.get(3)).ok_or(NOT_AN_INTEGER)?);
    let wrong = "ERR Invalid slot or number of keys";
    let count = u64::try_from(count).map_err(|_| wrong)?;
    Ok(RespRequest::All(All::KeysInSlot {
        slot: slot.ok_or(wrong)?,
        // No reply has room for more keys than this.
        count: u32::try_from(count).unwrap_or(u32::MAX),
    }))
}
