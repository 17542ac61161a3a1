//! A running node: its threads, and what a program may ask of it.

pub(crate) mod builder;

pub use builder::{Builder, start};

use crate::admin::Admin;
use crate::config::{Config, Trust};
use crate::control::shared::Shared;
use crate::control::{Control, ControlHandle};
use crate::data::{Data, DataHandle};
use crate::error::NodeError;
#[cfg(feature = "http")]
use crate::http::Server;
use crate::map::{Database, OpenMap};
use crate::net::identity::Identity;
use crate::report::events::LoggedEvent;
use crate::report::status::ClusterReport;
use doyen_gossip::agreement::Event;
use doyen_placement::planner::{self, DEFAULT_KEYSPACE, Pace, Refused};
use doyen_placement::{Addresses, KeyspaceId, MapEntry, MemberId, MemberState, Partition, Table};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{broadcast, watch};

/// How long `map` waits for a cluster.
const READY_MAX: Duration = Duration::from_secs(30);
/// Interval between two checks of a state that has no event.
const LOOK: Duration = Duration::from_millis(20);
/// After `leave_timeout`, copies that other members hold as well are dropped. This is how long that
/// may take.
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

/// Threads that are joined when the node ends.
#[derive(Debug)]
struct Threads {
    control: Control,
    data: Data,
    #[cfg(feature = "http")]
    admin: Server,
}

/// Everything that `builder` started.
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
    pub(crate) admin: Server,
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
    /// It never had another member to hand over to. Its data is gone; by design, no other copy of
    /// it exists.
    Alone,
    /// No other member stayed or came to take over. Its data is gone.
    Last {
        /// This many keys.
        keys: u64,
    },
    /// It took longer than `leave_timeout`. Data that only this node held is gone.
    TimedOut {
        /// This many partitions with data. By the last table that this node knows, no other member
        /// that answers and stays has a copy of them.
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

    /// Its addresses, with the real ports.
    #[must_use]
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Whether it runs without a secret, on loopback only.
    #[must_use]
    pub const fn insecure(&self) -> bool {
        self.insecure
    }

    /// Administers its cluster: keyspaces, members, moves, and reports of all of them.
    #[must_use]
    pub fn admin(&self) -> Admin {
        Admin::new(self.control.clone(), self.shared.clone())
    }

    /// Events from now on: members that join and leave, coordinators, losses. A receiver that lags
    /// misses the oldest ones.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.control.events()
    }

    /// Why this node cannot become or remain a member, once that is certain.
    #[must_use]
    pub fn fatal(&self) -> watch::Receiver<Option<String>> {
        self.control.fatal()
    }

    /// The cluster as the coordinator knows it. If the coordinator does not answer within 300 ms,
    /// the cluster as this node knows it. The same as [`Admin::status`].
    ///
    /// # Errors
    /// [`NodeError::Stopped`] alone.
    pub async fn status(&self) -> Result<ClusterReport, NodeError> {
        Ok(self.admin().status().await?)
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

    /// Opens the map of this name, which is created if it does not exist. Await it; before that,
    /// give it options, such as a keyspace, a codec and a schema ([`OpenMap`]). Waits up to 30 s
    /// for the cluster.
    ///
    /// # Errors
    /// When there is no cluster, or it refuses.
    pub fn map<K, V>(&self, name: &str) -> OpenMap<'_, K, V, NodeError> {
        OpenMap::new(DEFAULT_KEYSPACE, name, move |keyspace, name| {
            Box::pin(async move {
                match tokio::time::timeout(READY_MAX, self.wait_ready()).await {
                    Ok(ready) => ready?,
                    Err(_) => return Err(NodeError::NotReady(self.admin().waits_for().await)),
                }
                let entry = self.map_entry(&keyspace, &name).await?;
                Ok((entry, self.data.clone()))
            })
        })
    }

    /// Map 0, which Redis clients use, as bytes.
    #[must_use]
    pub fn database(&self) -> Database {
        Database::new(KeyspaceId(0), self.data.clone())
    }

    /// The events after the one with this number (0: all of them). A node keeps about the last
    /// thousand that it has learned of; [`Node::events`] gives those that come.
    #[must_use]
    pub fn logged_events(&self, since: u64) -> Vec<LoggedEvent> {
        self.control.logged_events(since)
    }

    /// Map 0 of another keyspace, as bytes: the keys that a Redis client sees after `CLIENT
    /// KEYSPACE NAME`. A keyspace that another member has just created is found.
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
        if let Some(id) = found() {
            return Ok(Database::new(id, self.data.clone()));
        }
        match &self.shared.local().view {
            Some(view) => {
                let known = view.installed.keyspaces.iter().map(|k| &k.name);
                let refused = Refused::no_keyspace(keyspace, known);
                Err(NodeError::Refused(refused.to_string()))
            }
            None => Err(NodeError::NotReady(self.admin().waits_for().await)),
        }
    }

    async fn map_entry(&self, keyspace: &str, name: &str) -> Result<MapEntry, NodeError> {
        let known = self
            .shared
            .local()
            .view
            .as_ref()
            .and_then(|v| v.installed.map_in(keyspace, name).cloned());
        match known {
            Some(entry) => Ok(entry),
            None => Ok(self.admin().create_map(keyspace, name).await?),
        }
    }

    /// Reads the PEM files again, which may change while a node runs. Returns false if it has none.
    pub fn reload(&self) -> bool {
        self.identity.refresh()
    }

    /// Leaves in order: hands everything over, answers the requests that were received, waits until
    /// the other members know, and stops.
    pub async fn shutdown(mut self) -> Departure {
        #[cfg(feature = "http")]
        if let Some(threads) = &self.threads {
            threads.admin.leaving();
        }
        let departure = self.leave().await;
        self.stop();
        if let Some(threads) = self.threads.take() {
            // Joining blocks for moments.
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
            // The data of that thread is gone with it: there is nothing to hand over.
            return Departure::TimedOut {
                partitions: self.holds_alone().await,
            };
        }
        let end = Instant::now() + self.leave_timeout + OVERTIME_MAX;
        let left = |limit: Duration| limit.min(end.saturating_duration_since(Instant::now()));
        let within = |limit, pace| tokio::time::timeout(limit, self.control.hand_over(pace));
        let departure = if matches!(within(self.leave_timeout, Pace::Repair).await, Ok(Ok(()))) {
            // Copies of empty partitions are no loss.
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
            // Copies of empty partitions are no loss. If the data threads do not answer, assume
            // that there are keys.
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
                "some requests were not answered within {drain_max:.1?}: their connections are \
                 closed"
            );
        }
        if matches!(departure, Departure::TimedOut { .. }) {
            return departure;
        }
        // The other members have its data, or the data is lost. They know that this node is gone,
        // or notice it.
        let depart_max = left(DEPART_MAX);
        if !matches!(
            tokio::time::timeout(depart_max, self.control.depart()).await,
            Ok(Ok(()))
        ) {
            tracing::warn!(
                "no majority has confirmed within {depart_max:.1?} that this node is gone: it \
                 stops anyway"
            );
        }
        departure
    }

    /// Whether it is part of a cluster, as far as it knows itself. The coordinator is not asked.
    pub fn is_member(&self) -> bool {
        self.shared.local().view.is_some()
    }

    /// What the table in force says of this node; `false` if there is no table.
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
