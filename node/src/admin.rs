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
pub(crate) mod tokens;
#[cfg(all(feature = "http", feature = "resp"))]
mod users;
mod weights;

pub use crate::config::keyspace;
pub use error::{AdminError, InvalidField, Refusal, ReportError};

use crate::control::shared::Shared;
use crate::control::{ControlClosed, ControlHandle};
use crate::data::DataHandle;
use crate::error::within_runtime;
use doyen_gossip::agreement::{AdminReply, AdminRequest};
use doyen_placement::{MapEntry, Table};
use std::sync::Arc;
use std::time::{Duration, Instant};

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
/// Every change takes 9 s at most ([`Admin::recover`]: 11 s). It first waits until this node is a
/// member and knows a coordinator. If that takes too long, nothing was changed.
#[derive(Debug, Clone)]
pub struct Admin {
    control: ControlHandle,
    shared: Arc<Shared>,
    data: DataHandle,
    change_max: Duration,
}

impl Admin {
    pub(crate) const fn new(control: ControlHandle, shared: Arc<Shared>, data: DataHandle) -> Self {
        Self {
            control,
            shared,
            data,
            change_max: CHANGE_MAX,
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
        self.change_max = limit.min(CHANGE_MAX);
        self
    }

    /// When a change that begins now is given up.
    fn deadline(&self) -> Instant {
        Instant::now() + self.change_max
    }

    /// Asks the coordinator for a change and waits for its answer.
    async fn ask(
        &self,
        until: Instant,
        request: AdminRequest,
    ) -> Result<Option<MapEntry>, AdminError> {
        self.await_coordinator(until).await?;
        let asked = request.clone();
        let answer = tokio::time::timeout_at(until.into(), self.control.admin(request)).await;
        match answer {
            Ok(Ok(AdminReply::Done(entry))) => Ok(entry),
            Ok(Ok(AdminReply::Outdated(why))) => Err(Refusal::Conflict { why }.into()),
            Ok(Ok(reply @ AdminReply::Refused(_))) => Err(self.refused(until, &asked, reply).await),
            Ok(Err(ControlClosed)) => Err(self.stopped()),
            Err(_) => Err(AdminError::Unknown {
                why: self.waits_for().await,
            }),
        }
    }

    /// The meaning of a reply that is no success. The reply is only a text, so the kind comes from
    /// the table that this node has, judged by the functions that the coordinator uses.
    async fn refused(
        &self,
        until: Instant,
        request: &AdminRequest,
        reply: AdminReply,
    ) -> AdminError {
        let (is_unknown, is_busy) = (reply.is_unknown(), reply.is_busy());
        let why = match reply {
            AdminReply::Refused(why) | AdminReply::Outdated(why) => why,
            AdminReply::Done(_) => String::new(),
        };
        if is_unknown {
            return AdminError::Unknown { why };
        }
        if is_busy {
            return Refusal::NotYet { why }.into();
        }
        // The coordinator may have judged by a newer table than this node has.
        let _ = tokio::time::timeout_at(until.into(), self.control.catch_up()).await;
        match self.installed() {
            Some(table) => refusal::classify(&table, request, why).into(),
            None => AdminError::NotMember { why },
        }
    }

    /// Waits until this node is a member and knows a coordinator. Without one, no request leaves
    /// this node, so that a failure is certain to have changed nothing.
    async fn await_coordinator(&self, until: Instant) -> Result<(), AdminError> {
        within_runtime().map_err(|_| AdminError::NoRuntime)?;
        loop {
            let cluster = self.control.status().await.map_err(|_| self.stopped())?;
            let is_member = cluster.installed.is_some();
            if is_member && cluster.status.coordinator.is_some() {
                return Ok(());
            }
            let fatal = self.control.fatal().borrow().clone();
            if fatal.is_some() || Instant::now() >= until {
                let obstacle = fatal.as_deref().or(cluster.obstacle());
                let why = obstacle
                    .unwrap_or("wait a moment, and try again")
                    .to_owned();
                return Err(if is_member {
                    AdminError::NoCoordinator { why }
                } else {
                    AdminError::NotMember { why }
                });
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until this node acts on a table of this kind.
    async fn await_table(
        &self,
        until: Instant,
        holds: impl Fn(&Table) -> bool,
    ) -> Result<(), AdminError> {
        while !self.installed().is_some_and(|table| holds(&table)) {
            if self.control.fatal().has_changed().is_err() {
                return Err(AdminError::Stopped);
            }
            if Instant::now() >= until {
                return Err(AdminError::NotInForce {
                    why: self.waits_for().await,
                });
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// The committed table that this node acts on.
    fn installed(&self) -> Option<Arc<Table>> {
        let local = self.shared.local();
        local.view.as_ref().map(|view| view.installed.clone())
    }

    /// Why the control thread does not answer.
    fn stopped(&self) -> AdminError {
        if self.shared.local().me.is_client() {
            return AdminError::NotMember {
                why: "it is a client; ask a node, the program `doyen`, or HTTP".into(),
            };
        }
        AdminError::Stopped
    }

    /// What this node waits for, for people.
    pub(crate) async fn waits_for(&self) -> String {
        let cluster = self.control.status().await.ok();
        let obstacle = cluster.as_ref().and_then(|cluster| cluster.obstacle());
        obstacle.unwrap_or("no answer came in time").to_owned()
    }
}
