//! How a change is asked for: of whom, for how long, and what its answer means.

use super::error::{AdminError, Refusal};
use super::refusal;
use super::{CHANGE_MAX, LOOK};
use crate::control::shared::Shared;
use crate::control::{ControlClosed, ControlHandle};
use crate::error::within_runtime;
use doyen_gossip::agreement::{AdminReply, AdminRequest};
use doyen_placement::access::AccessChange;
use doyen_placement::{MapEntry, Table, WantedMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Asks the cluster for changes.
#[derive(Debug, Clone)]
pub(crate) struct ChangeRequests {
    pub(super) control: ControlHandle,
    pub(super) shared: Arc<Shared>,
    pub(super) change_max: Duration,
}

impl ChangeRequests {
    pub(super) const fn new(control: ControlHandle, shared: Arc<Shared>) -> Self {
        Self {
            control,
            shared,
            change_max: CHANGE_MAX,
        }
    }

    /// When a change that begins now is given up.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.change_max
    }

    /// Asks the coordinator for a change and waits for its answer.
    pub(super) async fn ask(
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
    pub(super) async fn refused(
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
    pub(super) async fn await_coordinator(&self, until: Instant) -> Result<(), AdminError> {
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
    pub(super) async fn await_table(
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
    pub(super) fn installed(&self) -> Option<Arc<Table>> {
        let local = self.shared.local();
        local.view.as_ref().map(|view| view.installed.clone())
    }

    /// Why the control thread does not answer.
    pub(super) fn stopped(&self) -> AdminError {
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

    /// Lets a map be as it is wanted, and waits until it is so here.
    pub(crate) async fn want_map(&self, wanted: WantedMap) -> Result<MapEntry, AdminError> {
        let (until, wish) = (self.deadline(), wanted.wish);
        let entry = self.ask(until, AdminRequest::of_map(wanted)).await?;
        let entry = entry.ok_or_else(|| AdminError::Unknown {
            why: "the coordinator did not say which map it is".into(),
        })?;
        self.await_table(until, |table| wish.met(table, &entry))
            .await?;
        // Replies do not carry limits.
        let table = self.installed();
        let map = table.and_then(|table| table.map(entry.id).cloned());
        Ok(map.unwrap_or(entry))
    }

    pub(super) async fn change(&self, request: AdminRequest) -> Result<(), AdminError> {
        self.ask(self.deadline(), request).await.map(|_| ())
    }

    /// Changes who may do what.
    pub(super) async fn change_access(
        &self,
        until: Instant,
        change: AccessChange,
    ) -> Result<(), AdminError> {
        let asked = self.ask(until, AdminRequest::ChangeAccess(change));
        asked.await.map(|_| ())
    }

    /// The newest table, as far as another member tells it in time.
    pub(super) async fn newest(&self, until: Instant) -> Result<Arc<Table>, AdminError> {
        self.await_coordinator(until).await?;
        let _ = tokio::time::timeout_at(until.into(), self.control.catch_up()).await;
        self.table_or_not_member()
    }

    pub(super) fn table_or_not_member(&self) -> Result<Arc<Table>, AdminError> {
        self.installed().ok_or_else(|| AdminError::NotMember {
            why: "it was expelled, and joins again: try again in a moment".into(),
        })
    }

    pub(super) fn serves(&self, keyspace: &str) -> bool {
        self.installed().is_some_and(|table| {
            table
                .keyspace_named(keyspace)
                .is_some_and(|k| !k.partitions.is_empty())
        })
    }
}
