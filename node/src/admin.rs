//! Administration of a cluster. The library, HTTP and, through HTTP, the command line all use
//! [`Admin`]; there is no second way.
//!
//! ```text
//!   node.admin() ─┐                                        ┌─> installed table (Shared)
//!   HTTP routes ──┴─> Admin ── AdminRequest ── control ────┤
//!                       │                      thread      └─> coordinator, of any node
//!                       └─ reports: made from the table and what the coordinator was told
//! ```
//!
//! A change is agreed on by the cluster, so it has a coordinator to ask, an answer to wait for, and
//! an effect that this node sees a moment later. [`Admin`] does all three within a time limit, and
//! its errors say whether the change may have been made.

pub mod balance;
mod changes;
mod error;
pub mod maps;
mod plan;
mod refusal;
mod reports;
mod requests;
pub(crate) mod tokens;
#[cfg(all(feature = "http", feature = "resp"))]
mod users;
mod weights;

pub use crate::config::keyspace;
pub use error::{AdminError, InvalidField, Refusal, ReportError};

use crate::control::ControlHandle;
use crate::control::shared::Shared;
use crate::data::DataHandle;
use requests::ChangeRequests;
use std::sync::Arc;
use std::time::Duration;

/// How long a change may take in all. The node itself asks the coordinator for 10 s: this is less,
/// so that a change without an answer ends here, with an error that says so.
const CHANGE_MAX: Duration = Duration::from_secs(9);
/// How long `recover` may take: longer than the 10 s for which the voters that are left may take
/// to agree.
const RECOVER_MAX: Duration = Duration::from_secs(11);
/// Interval between two checks of a state that has no event.
const LOOK: Duration = Duration::from_millis(20);

/// Administers the cluster of a node: reads reports and makes changes.
///
/// A handle is cheap to clone, and any task may use it. It does not keep the node running: once the
/// node has stopped, every call fails with `Stopped`.
///
/// ```no_run
/// use doyen::{AdminError, KeyspaceOptions, Refusal};
///
/// # async fn example(node: doyen::Node) -> Result<(), Box<dyn std::error::Error>> {
/// let admin = node.admin();
/// match admin.create_keyspace("orders", &KeyspaceOptions::new().backups(2)).await {
///     Ok(()) => {}
///     Err(AdminError::Refused(Refusal::Conflict { .. })) => {
///         admin.alter_keyspace("orders", &KeyspaceOptions::new().backups(2)).await?;
///     }
///     Err(other) => return Err(other.into()),
/// }
/// println!("{} members", admin.status().await?.members.len());
/// # Ok(()) }
/// ```
///
/// | methods | what they do |
/// |---|---|
/// | `create_keyspace`, `alter_keyspace`, `drop_keyspace`, `split_at`, `merge_at` | change keyspaces |
/// | `maps`, `limit_map`, `drop_map` | tell what maps hold, limit and drop maps |
/// | `drain`, `fill`, `remove_lost`, `forget`, `forget_all`, `may_recover`, `recover`, `keep_half` | empty members, or go on without dead ones |
/// | `rebalance_plan`, `rebalance`, `rebalance_automatically`, `pause_balance`, `resume_balance`, `set_move_rate`, `set_balance_window`, `set_balance`, `cancel_move`, `cancel_moves` | move data |
/// | `create_token`, `revoke_token`, `tokens` | named tokens that open HTTP |
/// | `allow_weight`, `forget_weight`, `weights` | newcomers with a far higher weight |
/// | `status`, `table`, `table_since`, `keyspaces`, `keyspace`, `loads`, `placement`, `moves`, `balance` | report |
/// | `events`, `logged_events`, `last_event` | tell what this node learns of |
///
/// Every change takes 9 s at most ([`Admin::recover`]: 11 s). It first waits until this node is a
/// member and knows a coordinator. If that takes too long, nothing was changed.
#[derive(Debug, Clone)]
pub struct Admin {
    pub(crate) changes: ChangeRequests,
    data: DataHandle,
}

impl Admin {
    pub(crate) const fn new(control: ControlHandle, shared: Arc<Shared>, data: DataHandle) -> Self {
        Self {
            changes: ChangeRequests::new(control, shared),
            data,
        }
    }

    /// The same, with a shorter time limit for changes; 9 s remain the most. [`Admin::recover`] and
    /// the reports keep their own limits.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(node: doyen::Node) -> Result<(), doyen::AdminError> {
    /// node.admin().within(Duration::from_secs(2)).pause_balance().await
    /// # }
    /// ```
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Self {
        self.changes.change_max = limit.min(CHANGE_MAX);
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn the_documentation_lists_every_method_of_admin() {
        let sources = [
            include_str!("admin/changes.rs"),
            include_str!("admin/maps.rs"),
            include_str!("admin/reports.rs"),
            include_str!("admin/tokens.rs"),
            include_str!("admin/weights.rs"),
        ];
        let name = |line: &'static str| {
            let rest = line.strip_prefix("    pub ")?;
            let rest = rest.strip_prefix("async ").unwrap_or(rest);
            rest.strip_prefix("fn ")?.split('(').next()
        };
        let methods: BTreeSet<&str> = sources
            .iter()
            .flat_map(|source| source.lines())
            .filter_map(name)
            .collect();
        let rows = include_str!("admin.rs").lines();
        let cells = rows.filter_map(|row| row.strip_prefix("/// | `")?.split_once("` |"));
        let documented = cells.flat_map(|(names, _)| names.split("`, `"));
        assert_eq!(documented.collect::<BTreeSet<_>>(), methods);
    }
}
