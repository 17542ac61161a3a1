//! The reports of a cluster: its status, where data lies, loads and moves.

use super::Admin;
use super::error::ReportError;
use crate::control::{ClusterStatus, ControlClosed};
use crate::error::within_runtime;
use crate::events::{Events, LoggedEvent};
use crate::report::loads::{LoadsReport, Placement};
use crate::report::moves::{BalanceReport, MovesReport};
use crate::report::rebalance::RebalancePlan;
use crate::report::status::{ClusterReport, KeyspaceReport};
use crate::report::table::{TableReport, TableVersion};
use doyen_placement::planner::Refused;
use doyen_placement::{Loads, Table};
use std::sync::Arc;
use tokio::sync::watch;

impl Admin {
    /// The cluster as the coordinator knows it. If the coordinator does not answer within 300 ms,
    /// the cluster as this node knows it.
    ///
    /// It is called safe only after every member has answered a ping that was sent after the call.
    /// If one does not answer within a second, the report names it in `unsafe_for`.
    ///
    /// # Errors
    /// [`ReportError::Stopped`] alone.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn status(&self) -> Result<ClusterReport, ReportError> {
        let known = self.known().await?;
        let mut report = ClusterReport::new(&known);
        if report.safe {
            // Until a death is noticed, everything looks safe.
            let silent = self.changes.control.unproven().await.map_err(stopped)?;
            let members = known.installed.iter().flat_map(|table| &table.members);
            let names = members.filter(|m| silent.contains(&m.id));
            // The death may have been noticed meanwhile: a member that went is asked no more.
            report = ClusterReport::new(&self.known().await?);
            report.note_silent(names.map(|m| m.name.as_str()));
        }
        Ok(report)
    }

    /// The members that hold each partition.
    ///
    /// Example: [`TableReport`].
    ///
    /// # Errors
    /// [`ReportError::Stopped`] alone: a node that is no member has an empty table.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn table(&self) -> Result<TableReport, ReportError> {
        self.known().await.map(|known| TableReport::new(&known))
    }

    /// Changes in the table since this one. If this node does not know that table any more, the
    /// whole table (`since` is `None` then).
    ///
    /// ```no_run
    /// # async fn example(admin: doyen::Admin) -> Result<(), doyen::ReportError> {
    /// use doyen::report::table::TableVersion;
    ///
    /// let whole = admin.table().await?;
    /// let seen = TableVersion { term: whole.term, version: whole.version };
    /// // Later:
    /// let news = admin.table_since(seen).await?;
    /// if news.since.is_none() {
    ///     println!("begin again with the whole table {}.{}", news.term, news.version);
    /// }
    /// for keyspace in &news.keyspaces {
    ///     println!("{}: {} partitions have changed", keyspace.name, keyspace.partitions.len());
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ReportError::Stopped`] alone.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn table_since(&self, since: TableVersion) -> Result<TableReport, ReportError> {
        let known = self.known().await?;
        Ok(TableReport::since(&known, since))
    }

    /// The keyspaces with their settings.
    ///
    /// # Errors
    /// [`ReportError::NotMember`] until this node is a member.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn keyspaces(&self) -> Result<Vec<KeyspaceReport>, ReportError> {
        self.table_in_force().await?;
        self.status().await.map(|report| report.keyspaces)
    }

    /// One keyspace with its settings. Finds a keyspace that another member has just created.
    ///
    /// # Errors
    /// - [`ReportError::NotMember`] until this node is a member.
    /// - [`ReportError::NotFound`]: there is no such keyspace.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn keyspace(&self, name: &str) -> Result<KeyspaceReport, ReportError> {
        let mut keyspaces = self.keyspaces().await?;
        if !keyspaces.iter().any(|k| k.name == name) {
            self.changes.control.catch_up().await;
            keyspaces = self.keyspaces().await?;
        }
        let unknown = Refused::no_keyspace(name, keyspaces.iter().map(|k| &k.name)).to_string();
        keyspaces
            .into_iter()
            .find(|k| k.name == name)
            .ok_or(ReportError::NotFound { why: unknown })
    }

    /// The loads of partitions and members, as the coordinator was told within the last seconds.
    ///
    /// # Errors
    /// [`ReportError::NotMember`] until this node is a member.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn loads(&self) -> Result<LoadsReport, ReportError> {
        let (table, loads) = self.loaded().await?;
        made(move || LoadsReport::new(&table, &loads)).await
    }

    /// What moves, the loads of the members, and those of the busiest partitions: what a page shows
    /// again and again.
    #[cfg_attr(
        not(feature = "console"),
        allow(dead_code, reason = "only pages ask for it")
    )]
    pub(crate) async fn moves_and_busiest(
        &self,
        most: usize,
    ) -> Result<(MovesReport, LoadsReport), ReportError> {
        let (table, loads) = self.loaded().await?;
        let halted = self.known().await?.halted();
        let both = move || {
            let busiest = LoadsReport::of_busiest(&table, &loads, most);
            (MovesReport::new(&table, &loads, halted), busiest)
        };
        made(both).await
    }

    /// The input of `doyen simulate --from-cluster`: the table with its loads.
    ///
    /// ```no_run
    /// # async fn example(admin: doyen::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// // For `doyen simulate --from-cluster placement.json`.
    /// let file = std::fs::File::create("placement.json")?;
    /// serde_json::to_writer(file, &admin.placement().await?)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ReportError::NotMember`] until this node is a member.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn placement(&self) -> Result<Placement, ReportError> {
        let (table, loads) = self.loaded().await?;
        made(move || Placement::new(&table, &loads)).await
    }

    /// What moves, how far it is, and why; the settings of balancing; and which members are being
    /// drained.
    ///
    /// # Errors
    /// [`ReportError::NotMember`] until this node is a member.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn moves(&self) -> Result<MovesReport, ReportError> {
        let (table, loads) = self.loaded().await?;
        let halted = self.known().await?.halted();
        made(move || MovesReport::new(&table, &loads, halted)).await
    }

    /// The settings of balancing: whether, when and how fast data moves for balance.
    ///
    /// # Errors
    /// [`ReportError::NotMember`] until this node is a member.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn balance(&self) -> Result<BalanceReport, ReportError> {
        Ok(BalanceReport::new(&*self.table_in_force().await?))
    }

    /// The moves that the table in force would have if every scheduler were on, step by step.
    /// [`Admin::rebalance`] applies them.
    ///
    /// # Errors
    /// - [`ReportError::NotMember`] until this node is a member.
    /// - [`ReportError::NoCoordinator`]: no member coordinates, so loads are not known and nothing
    ///   could be applied.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn rebalance_plan(&self) -> Result<RebalancePlan, ReportError> {
        let (table, loads) = self.loaded().await?;
        if let Some(why) = self.known().await?.halted() {
            return Err(ReportError::NoCoordinator { why });
        }
        made(move || RebalancePlan::new(&table, &loads)).await
    }

    /// Events from now on: members that join and leave, coordinators, losses.
    #[must_use]
    pub fn events(&self) -> Events {
        self.changes.control.events()
    }

    /// The events after the one with this number (0: all of them). A node keeps about the last
    /// thousand that it has learned of.
    #[must_use]
    pub fn logged_events(&self, since: u64) -> Vec<LoggedEvent> {
        self.changes.control.logged_events(since)
    }

    /// The number of the last event. It changes with every event.
    ///
    /// ```no_run
    /// # async fn example(admin: doyen::Admin) {
    /// let mut last = admin.last_event();
    /// let mut seen = 0;
    /// while last.changed().await.is_ok() {
    ///     for event in admin.logged_events(seen) {
    ///         println!("{}", event.text);
    ///         seen = event.number;
    ///     }
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn last_event(&self) -> watch::Receiver<u64> {
        self.changes.control.watch_events()
    }

    async fn known(&self) -> Result<ClusterStatus, ReportError> {
        self.changes.control.status().await.map_err(stopped)
    }

    /// The table in force, and what its partitions and members carry.
    async fn loaded(&self) -> Result<(Arc<Table>, Loads), ReportError> {
        let table = self.table_in_force().await?;
        let loads = self.changes.control.loads().await.map_err(stopped)?;
        Ok((table, loads))
    }

    pub(super) async fn table_in_force(&self) -> Result<Arc<Table>, ReportError> {
        let known = self.known().await?;
        let why = || {
            let waiting = known.status.waiting;
            waiting.unwrap_or_else(|| "wait a moment, and try again".into())
        };
        known
            .installed
            .ok_or_else(|| ReportError::NotMember { why: why() })
    }
}

/// Makes a report on another thread: some go through a table of 65,536 partitions.
async fn made<T: Send + 'static>(
    report: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ReportError> {
    within_runtime().map_err(|_| ReportError::NoRuntime)?;
    tokio::task::spawn_blocking(report)
        .await
        .map_err(|_| ReportError::Stopped)
}

fn stopped(_: ControlClosed) -> ReportError {
    ReportError::Stopped
}
