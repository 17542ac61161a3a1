//! Commands on the cluster.

use super::table::{Access, Description, NO_KEYS};
use super::{
    All, Arguments, Call, ClusterCommand, ConnectionCommand, ErrorText, NOT_AN_INTEGER, Parsed,
    Request, connection, lower, unknown_subcommand, wrong_arity,
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
        parse: cluster,
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

/// The subcommand in small letters, if it accepts so many arguments in all.
fn subcommand(
    container: &str,
    args: &dyn Arguments,
    known: &[(&str, i64)],
) -> Result<String, ErrorText> {
    let name = lower(args.get(1));
    let Some((_, takes)) = known.iter().find(|(word, _)| *word == name) else {
        return Err(unknown_subcommand(container, args));
    };
    let least = usize::try_from(takes.unsigned_abs()).unwrap_or(usize::MAX);
    let fits = if *takes < 0 {
        args.len() >= least
    } else {
        args.len() == least
    };
    if fits {
        Ok(name)
    } else {
        Err(wrong_arity(&format!("{}|{name}", container.to_lowercase())))
    }
}

fn cluster(c: Call<'_>) -> Parsed {
    let args = c.args;
    let known = [
        ("slots", 2),
        ("shards", 2),
        ("nodes", 2),
        ("info", 2),
        ("myid", 2),
        ("myshardid", 2),
        ("links", 2),
        ("replicas", 3),
        ("slaves", 3),
        ("keyslot", 3),
        ("countkeysinslot", 3),
        ("getkeysinslot", 4),
    ];
    let subcommand = subcommand("CLUSTER", args, &known)?;
    let slot = || {
        integer(args.get(2)).ok_or(NOT_AN_INTEGER).map(|n| {
            u16::try_from(n)
                .ok()
                .filter(|s| *s < doyen_placement::hash::SLOTS)
        })
    };
    Ok(Request::Cluster(match subcommand.as_str() {
        "slots" => ClusterCommand::Topology(Topology::Slots),
        "shards" => ClusterCommand::Topology(Topology::Shards),
        "nodes" => ClusterCommand::Topology(Topology::Nodes),
        "info" => ClusterCommand::Info,
        "myid" => ClusterCommand::MyId,
        "myshardid" => ClusterCommand::MyShardId,
        "links" => ClusterCommand::Links,
        "replicas" | "slaves" => ClusterCommand::Replicas(args.bytes(2)),
        "keyslot" => ClusterCommand::KeySlot(doyen_placement::hash::slot(args.get(2))),
        "getkeysinslot" => {
            let (slot, count) = (slot()?, integer(args.get(3)).ok_or(NOT_AN_INTEGER)?);
            let wrong = "ERR Invalid slot or number of keys";
            // No reply has room for more keys than this.
            let count = u64::try_from(count)
                .map_err(|_| wrong)?
                .min(u32::MAX.into());
            return Ok(Request::All(All::KeysInSlot {
                slot: slot.ok_or(wrong)?,
                count: u32::try_from(count).unwrap_or(u32::MAX),
            }));
        }
        _ => {
            return Ok(Request::All(All::CountInSlot(
                slot()?.ok_or("ERR Invalid slot")?,
            )));
        }
    }))
}
