//! Publish and subscribe.

use super::table::{Access, NO_KEYS, RespDescription, command};
use super::{
    CommandCall, ParsedCommand, PubSubCommand, RespRequest, container, help_of, names, pattern_at,
};
use crate::resp::pubsub::ChannelKind;
use doyen_engine::command::{ALL_KEYS, ONE_KEY};

const SUBSCRIBES: &str = "pubsub noscript loading stale";
const PUBLISHES: &str = "pubsub loading stale fast";
const ASKS: &str = "pubsub loading stale";

pub(super) const ROWS: &[RespDescription] = &[
    command("psubscribe", "2.0.0", -2, "pubsub", SUBSCRIBES)
        .on(NO_KEYS, Access::Patterns, "")
        .about("Listen for messages published to channels matching the given patterns")
        .parse(|_| asks(PubSubCommand::Subscribe(ChannelKind::Pattern))),
    command("publish", "2.0.0", 3, "pubsub", PUBLISHES)
        .on(NO_KEYS, Access::Channel, "")
        .about("Post a message to a channel")
        .parse(|_| asks(PubSubCommand::Publish { sharded: false })),
    command("pubsub", "2.8.0", -2, "pubsub", "")
        .about("A container for Pub/Sub commands")
        .parse(container),
    command("pubsub|channels", "2.8.0", -2, "pubsub", ASKS)
        .about("List active channels")
        .parse(|c| channels(c, ChannelKind::Channel)),
    help_of("pubsub|help", "6.2.0", "pubsub"),
    command("pubsub|numpat", "2.8.0", 2, "pubsub", ASKS)
        .about("Get the count of unique patterns pattern subscriptions")
        .parse(|_| asks(PubSubCommand::Patterns)),
    command("pubsub|numsub", "2.8.0", -2, "pubsub", ASKS)
        .about("Get the count of subscribers for channels")
        .parse(|c| {
            asks(PubSubCommand::Subscribers(
                ChannelKind::Channel,
                names(c, 2)?,
            ))
        }),
    command("pubsub|shardchannels", "7.0.0", -2, "pubsub", ASKS)
        .about("List active shard channels")
        .parse(|c| channels(c, ChannelKind::Shard)),
    command("pubsub|shardnumsub", "7.0.0", -2, "pubsub", ASKS)
        .about("Get the count of subscribers for shard channels")
        .parse(|c| asks(PubSubCommand::Subscribers(ChannelKind::Shard, names(c, 2)?))),
    command("punsubscribe", "2.0.0", -1, "pubsub", SUBSCRIBES)
        .about("Stop listening for messages posted to channels matching the given patterns")
        .parse(|_| asks(PubSubCommand::Unsubscribe(ChannelKind::Pattern))),
    command("spublish", "7.0.0", 3, "pubsub", PUBLISHES)
        .on(ONE_KEY, Access::Channel, "")
        .about("Post a message to a shard channel")
        .parse(|_| asks(PubSubCommand::Publish { sharded: true })),
    command("ssubscribe", "7.0.0", -2, "pubsub", SUBSCRIBES)
        .on(ALL_KEYS, Access::Channels, "")
        .about("Listen for messages published to the given shard channels")
        .parse(|_| asks(PubSubCommand::Subscribe(ChannelKind::Shard))),
    command("subscribe", "2.0.0", -2, "pubsub", SUBSCRIBES)
        .on(NO_KEYS, Access::Channels, "")
        .about("Listen for messages published to the given channels")
        .parse(|_| asks(PubSubCommand::Subscribe(ChannelKind::Channel))),
    command("sunsubscribe", "7.0.0", -1, "pubsub", SUBSCRIBES)
        .on(ALL_KEYS, Access::Nothing, "")
        .about("Stop listening for messages posted to the given shard channels")
        .parse(|_| asks(PubSubCommand::Unsubscribe(ChannelKind::Shard))),
    command("unsubscribe", "2.0.0", -1, "pubsub", SUBSCRIBES)
        .about("Stop listening for messages posted to the given channels")
        .parse(|_| asks(PubSubCommand::Unsubscribe(ChannelKind::Channel))),
];

const fn asks(command: PubSubCommand) -> ParsedCommand {
    Ok(RespRequest::PubSub(command))
}

fn channels(c: CommandCall<'_>, kind: ChannelKind) -> ParsedCommand {
    let pattern = match c.args.len() {
        2 => None,
        3 => Some(pattern_at(c.args, 2)?),
        _ => return c.refused(),
    };
    asks(PubSubCommand::Channels(kind, pattern))
}
