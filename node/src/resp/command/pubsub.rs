//! Publish and subscribe.

use super::table::{Description, NO_KEYS};
use super::{Call, Parsed, PubSubCommand, Request, container, help, names, pattern_at};
use crate::resp::pubsub::Kind;
use doyen_engine::command::{ALL_KEYS, ONE_KEY};

const SUBSCRIBES: &[&str] = &["pubsub", "noscript", "loading", "stale"];
const PUBLISHES: &[&str] = &["pubsub", "loading", "stale", "fast"];
const ASKS: &[&str] = &["pubsub", "loading", "stale"];

pub(super) const ROWS: &[Description] = &[
    Description {
        name: "psubscribe",
        since: "2.0.0",
        arity: -2,
        flags: SUBSCRIBES,
        keys: NO_KEYS,
        group: "pubsub",
        summary: "Listen for messages published to channels matching the given patterns",
        parse: |_| command(PubSubCommand::Subscribe(Kind::Pattern)),
    },
    Description {
        name: "publish",
        since: "2.0.0",
        arity: 3,
        flags: PUBLISHES,
        keys: NO_KEYS,
        group: "pubsub",
        summary: "Post a message to a channel",
        parse: |_| command(PubSubCommand::Publish { sharded: false }),
    },
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
        flags: ASKS,
        keys: NO_KEYS,
        group: "pubsub",
        summary: "List active channels",
        parse: |c| channels(c, Kind::Channel),
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
        flags: ASKS,
        keys: NO_KEYS,
        group: "pubsub",
        summary: "Get the count of unique patterns pattern subscriptions",
        parse: |_| command(PubSubCommand::Patterns),
    },
    Description {
        name: "pubsub|numsub",
        since: "2.8.0",
        arity: -2,
        flags: ASKS,
        keys: NO_KEYS,
        group: "pubsub",
        summary: "Get the count of subscribers for channels",
        parse: |c| command(PubSubCommand::Subscribers(Kind::Channel, names(c, 2)?)),
    },
    Description {
        name: "pubsub|shardchannels",
        since: "7.0.0",
        arity: -2,
        flags: ASKS,
        keys: NO_KEYS,
        group: "pubsub",
        summary: "List active shard channels",
        parse: |c| channels(c, Kind::Shard),
    },
    Description {
        name: "pubsub|shardnumsub",
        since: "7.0.0",
        arity: -2,
        flags: ASKS,
        keys: NO_KEYS,
        group: "pubsub",
        summary: "Get the count of subscribers for shard channels",
        parse: |c| command(PubSubCommand::Subscribers(Kind::Shard, names(c, 2)?)),
    },
    Description {
        name: "punsubscribe",
        since: "2.0.0",
        arity: -1,
        flags: SUBSCRIBES,
        keys: NO_KEYS,
        group: "pubsub",
        summary: "Stop listening for messages posted to channels matching the given patterns",
        parse: |_| command(PubSubCommand::Unsubscribe(Kind::Pattern)),
    },
    Description {
        name: "spublish",
        since: "7.0.0",
        arity: 3,
        flags: PUBLISHES,
        keys: ONE_KEY,
        group: "pubsub",
        summary: "Post a message to a shard channel",
        parse: |_| command(PubSubCommand::Publish { sharded: true }),
    },
    Description {
        name: "ssubscribe",
        since: "7.0.0",
        arity: -2,
        flags: SUBSCRIBES,
        keys: ALL_KEYS,
        group: "pubsub",
        summary: "Listen for messages published to the given shard channels",
        parse: |_| command(PubSubCommand::Subscribe(Kind::Shard)),
    },
    Description {
        name: "subscribe",
        since: "2.0.0",
        arity: -2,
        flags: SUBSCRIBES,
        keys: NO_KEYS,
        group: "pubsub",
        summary: "Listen for messages published to the given channels",
        parse: |_| command(PubSubCommand::Subscribe(Kind::Channel)),
    },
    Description {
        name: "sunsubscribe",
        since: "7.0.0",
        arity: -1,
        flags: SUBSCRIBES,
        keys: ALL_KEYS,
        group: "pubsub",
        summary: "Stop listening for messages posted to the given shard channels",
        parse: |_| command(PubSubCommand::Unsubscribe(Kind::Shard)),
    },
    Description {
        name: "unsubscribe",
        since: "2.0.0",
        arity: -1,
        flags: SUBSCRIBES,
        keys: NO_KEYS,
        group: "pubsub",
        summary: "Stop listening for messages posted to the given channels",
        parse: |_| command(PubSubCommand::Unsubscribe(Kind::Channel)),
    },
];

const fn command(command: PubSubCommand) -> Parsed {
    Ok(Request::PubSub(command))
}

fn channels(c: Call<'_>, kind: Kind) -> Parsed {
    let pattern = match c.args.len() {
        2 => None,
        3 => Some(pattern_at(c.args, 2)?),
        _ => return c.refused(),
    };
    command(PubSubCommand::Channels(kind, pattern))
}
