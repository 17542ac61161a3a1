//! Transactions.

use super::table::{Access, Description, NO_KEYS};
use super::{ConnectionCommand, connection};
use doyen_engine::command::ALL_KEYS;

const FLAGS: &[&str] = &["noscript", "loading", "stale", "fast", "allow_busy"];

pub(super) const ROWS: &[Description] = &[
    Description {
        name: "discard",
        since: "2.0.0",
        arity: 1,
        flags: FLAGS,
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "transactions",
        categories: &["transaction"],
        summary: "Discards a transaction.",
        parse: |_| connection(ConnectionCommand::Discard),
    },
    Description {
        name: "exec",
        since: "1.2.0",
        arity: 1,
        flags: &["noscript", "loading", "stale", "skip_slowlog"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "transactions",
        categories: &["transaction"],
        summary: "Executes all commands in a transaction: whole if its keys are in one partition, else in as many parts.",
        parse: |_| connection(ConnectionCommand::Exec),
    },
    Description {
        name: "multi",
        since: "1.2.0",
        arity: 1,
        flags: FLAGS,
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "transactions",
        categories: &["transaction"],
        summary: "Starts a transaction.",
        parse: |_| connection(ConnectionCommand::Multi),
    },
    Description {
        name: "unwatch",
        since: "2.2.0",
        arity: 1,
        flags: FLAGS,
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "transactions",
        categories: &["transaction"],
        summary: "Forget about all watched keys",
        parse: |_| connection(ConnectionCommand::Unwatch),
    },
    Description {
        name: "watch",
        since: "2.2.0",
        arity: -2,
        flags: FLAGS,
        keys: ALL_KEYS,
        access: Access::TOUCH,
        group: "transactions",
        categories: &["transaction"],
        summary: "Monitors changes to keys to determine the execution of a transaction.",
        parse: |_| connection(ConnectionCommand::Watch),
    },
];
