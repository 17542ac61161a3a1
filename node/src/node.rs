//! A running node: its threads, and what a program may ask of it.

pub(crate) mod builder;

pub use builder::{Builder, start};

use crate::admin::keyspace::KeyspaceOptions;
use crate::config::{Config, Trust};
use crate::control::shared::Shared;
use crate::control::{Control, ControlHandle};
use crate::data::{Data, DataHandle};
use crate::error::NodeError;
#[cfg(feature = "http")]
use crate::http::Admin;
use crate::map::{Database, Map};
use crate::net::identity::Identity;
use crate::report::events::LoggedEvent;
use crate::report::moves::{CancelRequest, MovesReport};
use crate::report::rebalance::RebalancePlan;
use crate::report::status::ClusterReport;
use doyen_gossip::agreement::{AdminReply, AdminRequest, BalanceChange, Event};
use doyen_placement::planner::{self, DEFAULT_KEYSPACE, Pace, Refused};
use doyen_placement::{
    Addresses, KeyspaceId, MapEntry, MapId, MemberId, MemberState, MoveRate, Partition, Paused,
    Schedulers, Table, Window,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{broadcast, watch};

/// How long `map` waits for a cluster.
const READY_MAX: Duration = Duration::from_secs(30);
/// How long a change may take until the coordinator has answered.
const ADMIN_MAX: Duration = Duration::from_secs(10);
/// How often something is looked at that nobody reports.
const LOOK: Duration = Duration::from_millis(20);
/// How long dropping what other members hold too may take, once `leave_timeout` is over.
const HASTE_MAX: Duration = Duration::from_secs(2);
/// A node ends at the latest this long after `leave_timeout`. With the default of 25 s that is
/// within the 30 s which orchestrators give a process before they kill it.
const OVERTIME_MAX: Duration = Duration::from_secs(4);
/// How long a node that gives up leaving in order asks each of its own threads what may be lost.
const STATUS_MAX: Duration = Duration::from_secs(1);
/// How long the last step of leaving may take: a majority installs the table without this node.
const DEPART_MAX: Duration = Duration::from_secs(5);
/// How long answers to requests that were received may take, when leaving: an operation is parked
/// for 5 s at most.
const DRAIN_MAX: Duration = Duration::from_secs(6);

/// A running member of a cluster.
///
/// Dropping it stops it like a crash: the others notice, and nothing is handed over.
/// [`Node::shutdown`] leaves in order.
#[derive(Debug)]
pub struct Node {
    name: String,
    addresses: Addresses,
    leave_timeout: Duration,
    insecure: bool,
    identity: Arc<Identity>,
    shared: Arc<Shared>,
    control: ControlHandle,
    data: DataHandle,
    threads: Option<Threads>,
}

/// What joins when the node ends.
#[derive(Debug)]
struct Threads {
    control: Control,
    data: Data,
    #[cfg(feature = "http")]
    admin: Admin,
}

/// What `builder` started.
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) addresses: Addresses,
    pub(crate) config: Config,
    pub(crate) shared: Arc<Shared>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) control: ControlHandle,
    pub(crate) data: DataHandle,
    pub(crate) control_thread: Control,
    pub(crate) data_thread: Data,
    #[cfg(feature = "http")]
    pub(crate) admin: Admin,
}

/// How a node left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// Everything was handed over (or there was nothing to hand over), and a majority knows that
    /// this node is gone.
    Complete,
    /// As `Complete`, but after `leave_timeout`: other members hold everything, some of it in fewer
    /// copies than it should have.
    Unrepaired,
    /// It was no member of a cluster.
    Outside,
    /// It never had another member to hand over to: what it held is gone, which survives nowhere
    /// else by design.
    Alone,
    /// No other member stayed to take over, nor did one come: what it held is gone.
    Last {
        /// So many keys.
        keys: u64,
    },
    /// It took longer than `leave_timeout`: what only this node held is gone.
    TimedOut {
        /// So many partitions with data. No other member that answers and stays has a copy of them,
        /// by the last table that this node knows.
        partitions: usize,
    },
}

impl Departure {
    /// Whether this node, or the cluster with it, lost what it had promised to keep.
    #[must_use]
    pub const fn loses(self) -> bool {
        matches!(self, Self::Last { .. } | Self::TimedOut { partitions: 1.. })
    }
}

impl Node {
    /// Begins to build a node.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            name: parts.name,
            addresses: parts.addresses,
            leave_timeout: parts.config.leave_timeout,
            insecure: parts.config.trust == Trust::Loopback,
            identity: parts.identity,
            shared: parts.shared,
            control: parts.control,
            data: parts.data,
            threads: Some(Threads {
                control: parts.control_thread,
                data: parts.data_thread,
                #[cfg(feature = "http")]
                admin: parts.admin,
            }),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is reached: the real ports.
    #[must_use]
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Whether it runs without a secret, on loopback only.
    #[must_use]
    pub const fn insecure(&self) -> bool {
        self.insecure
    }

    /// What it tells of: members that come and go, coordinators, losses. A receiver that lags
    /// misses the oldest.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.control.events()
    }

    /// Why this node cannot be a member, or goes on as one no more, once that is certain.
    #[must_use]
    pub fn fatal(&self) -> watch::Receiver<Option<String>> {
        self.control.fatal()
    }

    /// The cluster, as the coordinator knows it, or this node if that does not answer within 300
    /// ms.
    ///
    /// # Errors
    /// When the node has stopped.
    pub async fn status(&self) -> Result<ClusterReport, NodeError> {
        self.control
            .status()
            .await
            .map(|s| ClusterReport::new(&s))
            .map_err(|_| NodeError::Stopped)
    }

    /// Waits until this node is a member and keys have owners.
    ///
    /// # Errors
    /// When it cannot become one.
    pub async fn wait_ready(&self) -> Result<(), NodeError> {
        let mut fatal = self.control.fatal();
        loop {
            if self.is_ready() {
                return Ok(());
            }
            if let Some(why) = fatal.borrow_and_update().clone() {
                return Err(NodeError::Fatal(why));
            }
            if fatal.has_changed().is_err() {
                return Err(NodeError::Stopped);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Whether this node is a member, keys have owners, and it serves those that it has.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let local = self.shared.local();
        !self.data.has_ended()
            && local.view.as_ref().is_some_and(|view| {
                let table = &view.installed;
                table.member(local.me).is_some()
                    && table.keyspaces.iter().all(|k| !k.partitions.is_empty())
            })
    }

    /// The map of this name in the keyspace `default`; it is made if it is not there. Waits up to
    /// 30 s for the cluster.
    ///
    /// # Errors
    /// When there is no cluster, or it refuses.
    pub async fn map<K, V>(&self, name: &str) -> Result<Map<K, V>, NodeError>
    where
        K: Serialize,
        V: Serialize + DeserializeOwned,
    {
        self.map_in(DEFAULT_KEYSPACE, name).await
    }

    /// The map of this name in this keyspace, which must be there ([`Node::create_keyspace`]); the
    /// map is made if it is not. Waits up to 30 s for the cluster.
    ///
    /// # Errors
    /// When there is no cluster, or it refuses.
    pub async fn map_in<K, V>(&self, keyspace: &str, name: &str) -> Result<Map<K, V>, NodeError>
    where
        K: Serialize,
        V: Serialize + DeserializeOwned,
    {
        match tokio::time::timeout(READY_MAX, self.wait_ready()).await {
            Ok(ready) => ready?,
            Err(_) => return Err(NodeError::NotReady(self.waits_for().await)),
        }
        Ok(Map::new(
            self.map_entry(keyspace, name).await?,
            self.data.clone(),
        ))
    }

    /// Makes a keyspace, unless it is there already with the same settings, and waits until it is
    /// served.
    ///
    /// ```no_run
    /// # async fn example(node: doyen::Node) -> Result<(), Box<dyn std::error::Error>> {
    /// node.create_keyspace("orders", &doyen::KeyspaceOptions::new().partitions(64).backups(2)).await?;
    /// let open = node.map_in::<u64, String>("orders", "open").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// What was asked for cannot hold, there is another keyspace of this name, or there is no
    /// cluster.
    pub async fn create_keyspace(
        &self,
        name: &str,
        options: &KeyspaceOptions,
    ) -> Result<(), NodeError> {
        let wanted = options.create(name).map_err(|e| NodeError::Refused(e.0))?;
        self.administer(AdminRequest::CreateKeyspace(wanted))
            .await?;
        self.wait_until(|table| {
            table
                .keyspace_named(name)
                .is_some_and(|k| !k.partitions.is_empty())
        })
        .await
    }

    /// Changes a keyspace while it is used. When this returns, the change is agreed on; copies are
    /// made or dropped afterwards ([`Node::status`] shows them).
    ///
    /// # Errors
    /// There is no such keyspace, what was asked for cannot hold, or there is no cluster.
    pub async fn alter_keyspace(
        &self,
        name: &str,
        options: &KeyspaceOptions,
    ) -> Result<(), NodeError> {
        let request = options.alter(name).map_err(|e| NodeError::Refused(e.0))?;
        self.administer(request).await.map(|_| ())
    }

    /// Splits a range of a keyspace at a key, which begins the second part. When this returns, it
    /// is agreed on; it is done some milliseconds later, and writes to that range wait for it.
    /// Where a range begins there already nothing happens.
    ///
    /// # Errors
    /// There is no such keyspace, it has no ranges, the range is moving just now, or there is no
    /// cluster.
    pub async fn split_at(&self, keyspace: &str, key: &[u8]) -> Result<(), NodeError> {
        self.administer(AdminRequest::SplitAt {
            keyspace: keyspace.into(),
            map: MapId(0),
            key: key.into(),
        })
        .await
        .map(|_| ())
    }

    /// Merges the range that begins with this key with the one before it, likewise. Both must be
    /// held by the same members.
    ///
    /// # Errors
    /// As [`Node::split_at`], or no range begins there.
    pub async fn merge_at(&self, keyspace: &str, key: &[u8]) -> Result<(), NodeError> {
        self.administer(AdminRequest::MergeAt {
            keyspace: keyspace.into(),
            map: MapId(0),
            key: key.into(),
        })
        .await
        .map(|_| ())
    }

    /// Drops a keyspace with its maps and all that is in them.
    ///
    /// # Errors
    /// There is no such keyspace, it is `default`, or there is no cluster.
    pub async fn drop_keyspace(&self, name: &str) -> Result<(), NodeError> {
        self.administer(AdminRequest::DropKeyspace { name: name.into() })
            .await?;
        self.wait_until(|table| table.keyspace_named(name).is_none())
            .await
    }

    /// Map 0, which Redis clients use, as bytes.
    #[must_use]
    pub fn database(&self) -> Database {
        Database::new(KeyspaceId(0), self.data.clone())
    }

    /// What a plan for the table in force would move, for all reasons, and every step of it.
    ///
    /// # Errors
    /// There is no cluster yet.
    pub async fn rebalance_plan(&self) -> Result<RebalancePlan, NodeError> {
        let table = self.installed().await?;
        let loads = self.control.loads().await.map_err(|_| NodeError::Stopped)?;
        tokio::task::spawn_blocking(move || RebalancePlan::new(&table, &loads))
            .await
            .map_err(|_| NodeError::Stopped)
    }

    /// Moves what this plan says, if the table that it was made for is still in force.
    ///
    /// # Errors
    /// Another table is in force, the plan names what is not there, or there is no cluster. Nothing
    /// moves then.
    pub async fn rebalance(&self, plan: &RebalancePlan) -> Result<(), NodeError> {
        let request = plan
            .request(&*self.installed().await?)
            .map_err(|why| NodeError::Refused(why.to_string()))?;
        self.administer(request).await.map(|_| ())
    }

    /// For which reasons copies and primaries move by themselves: `Schedulers::ALL`, which is the
    /// default; `Schedulers::MANUAL`, which mends what is lost or breaks a rule, and leaves balance
    /// to [`Node::rebalance`]; or any others.
    ///
    /// # Errors
    /// There is no cluster.
    pub async fn rebalance_automatically(&self, schedulers: Schedulers) -> Result<(), NodeError> {
        self.administer(AdminRequest::Schedule(schedulers))
            .await
            .map(|_| ())
    }

    /// What moves, how far it has come and why; and what was said of moves.
    ///
    /// # Errors
    /// There is no cluster yet.
    pub async fn moves(&self) -> Result<MovesReport, NodeError> {
        let table = self.installed().await?;
        let loads = self.control.loads().await.map_err(|_| NodeError::Stopped)?;
        let halted = self
            .control
            .status()
            .await
            .map_err(|_| NodeError::Stopped)?
            .halted();
        tokio::task::spawn_blocking(move || MovesReport::new(&table, &loads, halted))
            .await
            .map_err(|_| NodeError::Stopped)
    }

    /// Moves nothing more for balance, until [`Node::resume_balance`]: what is lost is mended, and
    /// members are emptied, all the same. What is being copied is finished.
    ///
    /// # Errors
    /// There is no cluster.
    pub async fn pause_balance(&self) -> Result<(), NodeError> {
        self.administer(AdminRequest::Balance(BalanceChange::Pause(
            Paused::Operator,
        )))
        .await
        .map(|_| ())
    }

    /// Lets balancing go on, also that of partitions whose move was cancelled.
    ///
    /// # Errors
    /// There is no cluster.
    pub async fn resume_balance(&self) -> Result<(), NodeError> {
        self.administer(AdminRequest::Balance(BalanceChange::Resume))
            .await
            .map(|_| ())
    }

    /// How fast copies are made.
    ///
    /// # Errors
    /// There is no cluster, or it is below 64 KiB a second.
    pub async fn set_move_rate(&self, rate: MoveRate) -> Result<(), NodeError> {
        self.administer(AdminRequest::Balance(BalanceChange::Rate(rate)))
            .await
            .map(|_| ())
    }

    /// At which time of day, in UTC, there is balancing; `None`: at any. What is lost is mended at
    /// any time.
    ///
    /// # Errors
    /// There is no cluster.
    pub async fn set_balance_window(&self, window: Option<Window>) -> Result<(), NodeError> {
        self.administer(AdminRequest::Balance(BalanceChange::Window(window)))
            .await
            .map(|_| ())
    }

    /// Gives a move up (`KEYSPACE/PARTITION`, as [`Node::moves`] tells it): the partition stays
    /// where it is until [`Node::resume_balance`], or until members come or go. With `None`, gives
    /// all up that are for balance, and pauses balancing.
    ///
    /// # Errors
    /// There is no such partition, it does not move, or its move mends something; or there is no
    /// cluster.
    pub async fn cancel_move(&self, id: Option<&str>) -> Result<(), NodeError> {
        let request = CancelRequest {
            id: id.map(str::to_owned),
            all: id.is_none(),
        };
        let request = request
            .request(&*self.installed().await?)
            .map_err(NodeError::Refused)?;
        self.administer(request).await.map(|_| ())
    }

    /// Begins to empty a member: what it leads goes to others at once, its copies as they are made
    /// elsewhere. [`Node::moves`] tells how far it is (`draining`); once it holds nothing it may be
    /// stopped without anything being lost.
    ///
    /// # Errors
    /// There is no such member, it holds no data, or no other may hold any; or there is no cluster.
    pub async fn drain(&self, member: &str) -> Result<(), NodeError> {
        self.administer(AdminRequest::Drain {
            name: member.into(),
        })
        .await
        .map(|_| ())
    }

    /// Lets a member hold data again that was being emptied.
    ///
    /// # Errors
    /// It was not being emptied, or there is no cluster.
    pub async fn fill(&self, member: &str) -> Result<(), NodeError> {
        self.administer(AdminRequest::Fill {
            name: member.into(),
        })
        .await
        .map(|_| ())
    }

    /// Goes on without a silent member whose machine will not return: what it alone held is lost.
    ///
    /// # Errors
    /// It answers, there is no such member, or there is no cluster.
    pub async fn remove_lost(&self, member: &str) -> Result<(), NodeError> {
        self.administer(AdminRequest::GiveUp {
            name: member.into(),
        })
        .await
        .map(|_| ())
    }

    /// What has happened in the cluster since the event of this number (0: since the first one), as
    /// far as this node has learned and still knows: the last thousand. [`Node::events`] tells what
    /// comes.
    #[must_use]
    pub fn logged_events(&self, since: u64) -> Vec<LoggedEvent> {
        self.control.logged_events(since)
    }

    /// Map 0 of another keyspace, as bytes: what a Redis client uses after `CLIENT KEYSPACE NAME`.
    /// A keyspace that another member has just made is found.
    ///
    /// # Errors
    /// There is no such keyspace, or no cluster.
    pub async fn database_in(&self, keyspace: &str) -> Result<Database, NodeError> {
        let found = || {
            Some(
                self.shared
                    .local()
                    .view
                    .as_ref()?
                    .installed
                    .keyspace_named(keyspace)?
                    .id,
            )
        };
        if found().is_none() {
            self.control.catch_up().await;
        }
        match found() {
            Some(id) => Ok(Database::new(id, self.data.clone())),
            None => {
                let table = self.installed().await?;
                let refused =
                    Refused::no_keyspace(keyspace, table.keyspaces.iter().map(|k| &k.name));
                Err(NodeError::Refused(refused.to_string()))
            }
        }
    }

    async fn map_entry(&self, keyspace: &str, name: &str) -> Result<MapEntry, NodeError> {
        let known = self
            .shared
            .local()
            .view
            .as_ref()
            .and_then(|v| v.installed.map_in(keyspace, name).cloned());
        if let Some(entry) = known {
            return Ok(entry);
        }
        let request = AdminRequest::CreateMap {
            name: name.into(),
            keyspace: keyspace.into(),
        };
        let entry = self.administer(request).await?;
        let entry = entry.ok_or_else(|| {
            NodeError::Refused(format!("the cluster did not say which map `{name}` is"))
        })?;
        // What leads to the map's keyspace may be newer than what this node has installed.
        self.wait_until(|table| {
            table
                .keyspace(entry.keyspace)
                .is_some_and(|k| !k.partitions.is_empty())
        })
        .await?;
        Ok(entry)
    }

    async fn installed(&self) -> Result<Arc<Table>, NodeError> {
        let installed = self
            .shared
            .local()
            .view
            .as_ref()
            .map(|view| view.installed.clone());
        match installed {
            Some(table) => Ok(table),
            None => Err(NodeError::NotReady(self.waits_for().await)),
        }
    }

    async fn administer(&self, request: AdminRequest) -> Result<Option<MapEntry>, NodeError> {
        match tokio::time::timeout(ADMIN_MAX, self.control.admin(request)).await {
            Ok(Ok(AdminReply::Done(entry))) => Ok(entry),
            Ok(Ok(AdminReply::Refused(why))) => Err(NodeError::Refused(why)),
            Ok(Err(_)) => Err(NodeError::Stopped),
            Err(_) => Err(NodeError::NotReady(self.waits_for().await)),
        }
    }

    /// Waits until the table that this node has installed is so.
    async fn wait_until(&self, so: impl Fn(&Table) -> bool) -> Result<(), NodeError> {
        let until = Instant::now() + ADMIN_MAX;
        while !self
            .shared
            .local()
            .view
            .as_ref()
            .is_some_and(|view| so(&view.installed))
        {
            if self.control.fatal().has_changed().is_err() {
                return Err(NodeError::Stopped);
            }
            if Instant::now() >= until {
                return Err(NodeError::NotReady(self.waits_for().await));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    async fn waits_for(&self) -> String {
        let waiting = self.status().await.ok().and_then(|s| s.waiting);
        waiting.unwrap_or_else(|| "no coordinator has answered".into())
    }

    /// Reads again what may change while a node runs: the PEM files. False: it was given none.
    pub fn reload(&self) -> bool {
        self.identity.refresh()
    }

    /// Leaves in order: hands everything over, answers what was received, waits until the others
    /// know, stops.
    pub async fn shutdown(mut self) -> Departure {
        #[cfg(feature = "http")]
        if let Some(threads) = &self.threads {
            threads.admin.leaving();
        }
        let departure = self.leave().await;
        self.stop();
        if let Some(threads) = self.threads.take() {
            // Joining blocks, if only for moments.
            let joined = tokio::task::spawn_blocking(move || threads.join()).await;
            if let Err(e) = joined {
                tracing::error!("a thread of this node ended badly: {e}");
            }
        }
        departure
    }

    /// Stops at once, like a crash, and waits for the threads: nothing is handed over.
    pub async fn kill(mut self) {
        self.stop();
        if let Some(threads) = self.threads.take() {
            let _ = tokio::task::spawn_blocking(move || threads.join()).await;
        }
    }

    async fn leave(&self) -> Departure {
        if !self.is_member() {
            return Departure::Outside;
        }
        if self.data.has_ended() {
            // What it had is gone with the thread: there is nothing to hand over, and no thread to
            // do it.
            return Departure::TimedOut {
                partitions: self.holds_alone().await,
            };
        }
        let end = Instant::now() + self.leave_timeout + OVERTIME_MAX;
        let left = |limit: Duration| limit.min(end.saturating_duration_since(Instant::now()));
        let within = |limit, pace| tokio::time::timeout(limit, self.control.hand_over(pace));
        let departure = if matches!(within(self.leave_timeout, Pace::Repair).await, Ok(Ok(()))) {
            // Copies of nothing are no loss.
            let keys = if self.table_says(planner::holds_anything) {
                self.data.stats().await.shard.keys
            } else {
                0
            };
            match keys {
                0 => Departure::Complete,
                _ if self.table_says(|table, _| table.always_alone()) => Departure::Alone,
                keys => Departure::Last { keys },
            }
        } else if matches!(within(HASTE_MAX, Pace::AtOnce).await, Ok(Ok(())))
            && !self.table_says(planner::holds_anything)
        {
            Departure::Unrepaired
        } else {
            // Copies of nothing are no loss. If the data threads do not say, there may be keys.
            let stats = tokio::time::timeout(STATUS_MAX, self.data.stats()).await;
            let empty = stats.is_ok_and(|stats| stats.shard.keys == 0);
            Departure::TimedOut {
                partitions: if empty { 0 } else { self.holds_alone().await },
            }
        };
        let drain_max = left(DRAIN_MAX);
        if tokio::time::timeout(drain_max, self.data.drain())
            .await
            .is_err()
        {
            tracing::warn!(
                "some requests were not answered within {drain_max:.1?}: their connections are closed"
            );
        }
        if matches!(departure, Departure::TimedOut { .. }) {
            return departure;
        }
        // What it held is with others (or with nobody), whether they know that it is gone or have
        // to notice.
        let depart_max = left(DEPART_MAX);
        if !matches!(
            tokio::time::timeout(depart_max, self.control.depart()).await,
            Ok(Ok(()))
        ) {
            tracing::warn!(
                "no majority has confirmed within {depart_max:.1?} that this node is gone: it stops all the same"
            );
        }
        departure
    }

    /// Whether it is part of a cluster, as far as it knows by itself: the coordinator is not asked.
    pub fn is_member(&self) -> bool {
        self.shared.local().view.is_some()
    }

    /// What the table in force says of this node; `false` where there is none.
    fn table_says(&self, what: impl Fn(&Table, MemberId) -> bool) -> bool {
        let local = self.shared.local();
        local
            .view
            .as_ref()
            .is_some_and(|view| what(&view.installed, local.me))
    }

    /// Partitions without a copy that counts at another member that answers and stays.
    async fn holds_alone(&self) -> usize {
        // Takes some 300 ms, and longer only if the control thread hangs.
        let status = tokio::time::timeout(STATUS_MAX, self.control.status()).await;
        let unanswered = status
            .ok()
            .and_then(Result::ok)
            .map(|status| status.status.unanswered)
            .unwrap_or_default();
        let local = self.shared.local();
        let Some(view) = &local.view else { return 0 };
        let table = &view.installed;
        let leaving = planner::leaving(table);
        let silent = |m: MemberId| {
            table
                .member(m)
                .is_none_or(|m| m.state == MemberState::Silent)
                || unanswered.contains(&m)
        };
        let keeps = |m: MemberId| m != local.me && !leaving.contains(&m) && !silent(m);
        let holds = |p: &Partition| p.in_sync().any(|m| m == local.me);
        table
            .partitions()
            .filter(|(_, p)| holds(p) && !p.in_sync().any(keeps))
            .count()
    }

    fn stop(&self) {
        #[cfg(feature = "http")]
        if let Some(threads) = &self.threads {
            threads.admin.stop();
        }
        self.control.stop();
        self.data.stop();
    }
}

impl Threads {
    fn join(self) {
        #[cfg(feature = "http")]
        self.admin.join();
        self.data.join();
        self.control.join();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Without joining: a drop may happen on a runtime's thread, which must not block.
        self.stop();
    }
}

#[cfg(test)]
mod tests;
