//! Publish and subscribe: the answers of a server on which nothing subscribes.

use super::table::{Description, NO_KEYS};
use super::{Call, Constant, Parsed, ServerCommand, constant, container, help, names, server};

pub(super) const ROWS: &[Description] = &[
    Description {
        name: "pubsub",
        since: "2.8.0",
        arity: -2,
        flags: &[],
        keys: NO_KEYS,
        group: "pubsub",
        summary: "A container for Pub/Sub commands",
        parse: container,
    },
    Description {
        name: "pubsub|channels",
        since: "2.8.0",
        arity: -2,
        flags: &["pubsub", "loading", "stale"],
        keys: NO_KEYS,
        group: "pubsub",
        summary: "List active channels",
        parse: channels,
    },
    Description {
        name: "pubsub|help",
        since: "6.2.0",
        arity: 2,
        flags: &["loading", "stale"],
        keys: NO_KEYS,
        group: "pubsub",
        summary: "Show helpful text about the different subcommands",
        parse: help,
    },
    Description {
        name: "pubsub|numpat",
        since: "2.8.0",
        arity: 2,
        flags: &["pubsub", "loading", "stale"],
        keys: NO_KEYS,
        group: "pubsub",
        summary: "Get the count of unique patterns pattern subscriptions",
        parse: |_| constant(Constant::Integer(0)),
    },
    Description {
        name: "pubsub|numsub",
        since: "2.8.0",
        arity: -2,
        flags: &["pubsub", "loading", "stale"],
        keys: NO_KEYS,
        group: "pubsub",
        summary: "Get the count of subscribers for channels",
        parse: |c| server(ServerCommand::NoSubscribers(names(c, 2)?)),
    },
    Description {
        name: "pubsub|shardchannels",
        since: "7.0.0",
        arity: -2,
        flags: &["pubsub", "loading", "stale"],
        keys: NO_KEYS,
        group: "pubsub",
        summary: "List active shard channels",
        parse: channels,
    },
    Description {
        name: "pubsub|shardnumsub",
        since: "7.0.0",
        arity: -2,
        flags: &["pubsub", "loading", "stale"],
        keys: NO_KEYS,
        group: "pubsub",
        summary: "Get the count of subscribers for shard channels",
        parse: |c| server(ServerCommand::NoSubscribers(names(c, 2)?)),
    },
];

fn channels(c: Call<'_>) -> Parsed {
    if c.args.len() > 3 {
        return c.refused();
    }
    constant(Constant::Array)
}
