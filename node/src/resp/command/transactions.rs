//! Transactions.

use super::table::{Access, NO_KEYS, RespDescription, command};
use super::{ConnectionCommand, connection};
use doyen_engine::command::ALL_KEYS;

const FLAGS: &str = "noscript loading stale fast allow_busy";

pub(super) const ROWS: &[RespDescription] = &[
    command("discard", "2.0.0", 1, "transactions", FLAGS)
        .on(NO_KEYS, Access::Nothing, "transaction")
        .about("Discards a transaction.")
        .parse(|_| connection(ConnectionCommand::Discard)),
    command(
        "exec",
        "1.2.0",
        1,
        "transactions",
        "noscript loading stale skip_slowlog",
    )
    .on(NO_KEYS, Access::Nothing, "transaction")
    .about(
        "Executes all commands in a transaction: whole if its keys are in one partition, \
             else in as many parts.",
    )
    .parse(|_| connection(ConnectionCommand::Exec)),
    command("multi", "1.2.0", 1, "transactions", FLAGS)
        .on(NO_KEYS, Access::Nothing, "transaction")
        .about("Starts a transaction.")
        .parse(|_| connection(ConnectionCommand::Multi)),
    command("unwatch", "2.2.0", 1, "transactions", FLAGS)
        .on(NO_KEYS, Access::Nothing, "transaction")
        .about("Forget about all watched keys")
        .parse(|_| connection(ConnectionCommand::Unwatch)),
    command("watch", "2.2.0", -2, "transactions", FLAGS)
        .on(ALL_KEYS, Access::TOUCH, "transaction")
        .about("Monitors changes to keys to determine the execution of a transaction.")
        .parse(|_| connection(ConnectionCommand::Watch)),
];
