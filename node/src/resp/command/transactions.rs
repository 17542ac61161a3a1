//! Transactions: `UNWATCH` where nothing is watched.

use super::table::{Description, NO_KEYS};
use super::{Constant, constant};

pub(super) const ROWS: &[Description] = &[Description {
    name: "unwatch",
    since: "2.2.0",
    arity: 1,
    flags: &["noscript", "loading", "stale", "fast", "allow_busy"],
    keys: NO_KEYS,
    group: "transactions",
    summary: "Forget about all watched keys",
    parse: |_| constant(Constant::Ok),
}];
