//! A running node or client: its threads, and what a program may ask of it.

#[cfg(all(feature = "http", feature = "internals"))]
mod before_start;
pub(crate) mod builder;
mod client;
mod leaving;
pub(crate) mod limiters;
mod sockets;

#[cfg(all(feature = "http", feature = "internals"))]
pub use before_start::preflight;
pub use builder::{Builder, start};
pub use leaving::Departure;

use crate::admin::Admin;
use crate::control::shared::Shared;
use crate::control::{Control, ControlHandle};
use crate::data::{Data, DataHandle};
use crate::error::{Error, within_runtime};
use crate::events::{Events, LoggedEvent};
#[cfg(feature = "http")]
use crate::http::Server;
use crate::map::{
    Codec, Database, OpenCache, OpenCounters, OpenJobQueue, OpenList, OpenMap, OpenSet,
    OpenSortedSet, begin_idle_times, schemas_of,
};
#[cfg(feature = "metrics")]
use crate::metrics::Metrics;
use crate::net::identity::Identity;
use crate::report::status::ClusterReport;
use client::Companion;
use doyen_placement::planner::{DEFAULT_KEYSPACE, Refused};
use doyen_placement::{Addresses, Eviction, KeyspaceId, MapEntry, MapWish, WantedMap};
use limiters::Limiters;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Interval between two checks of a state that has no event.
const LOOK: Duration = Duration::from_millis(20);
/// How long a client waits for an unknown keyspace. It is longer than the second after which
/// members send newer tables.
const KEYSPACE_MAX: Duration = Duration::from_secs(2);

/// A running node: a member of a cluster, or a client of one ([`Builder::client`]). Both have the
/// same maps, databases, locks and limits. Cheap to clone: all clones are the same node.
///
/// It has threads of its own, so it needs no particular runtime. When the last clone is dropped,
/// the node stops like a crash: the others notice, and nothing is handed over. [`Node::shutdown`]
/// leaves in order.
///
/// | | member | witness | client |
/// |---|---|---|---|
/// | how | [`Node::builder`] | [`Builder::witness`] | [`Builder::client`] |
/// | holds data | yes | no | no |
/// | votes | yes | yes | no |
/// | its seeds are | control addresses (port 7400) | control addresses | data addresses (port 7401) |
/// | accepts connections | yes | yes | no |
///
/// ```no_run
/// use doyen::{Map, Node};
/// use std::time::Duration;
///
/// # async fn serve(_: Map<u64, String>) {}
/// # async fn example() -> Result<(), doyen::Error> {
/// let node = Node::builder().name("orders-1").seeds(["10.0.0.1:7400"]).start().await?;
/// node.wait_ready(Duration::from_secs(60)).await?;
/// println!("{} is ready at {}", node.name(), node.addresses().control);
/// serve(node.map("orders").await?).await; // until the service ends
/// let departure = node.shutdown().await;
/// if departure.loses() {
///     eprintln!("data was lost: {departure:?}");
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Node(Arc<NodeInner>);

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("name", &self.0.name)
            .field("client", &self.0.is_client())
            .finish_non_exhaustive()
    }
}

/// What all clones share.
struct NodeInner {
    name: String,
    addresses: Addresses,
    leave_timeout: Duration,
    ready_timeout: Duration,
    insecure: bool,
    identity: Arc<Identity>,
    shared: Arc<Shared>,
    control: ControlHandle,
    data: DataHandle,
    #[cfg(feature = "metrics")]
    metrics: Arc<Metrics>,
    /// Until they are joined. A lock that is held for moments.
    threads: Mutex<Option<Threads>>,
    /// It leaves or stops.
    ending: AtomicBool,
    /// How it ended.
    end: watch::Sender<Option<Result<Departure, Error>>>,
    limiters: Limiters,
}

/// The threads of a node.
struct Threads {
    driver: NodeDriver,
    data: Data,
    #[cfg(feature = "http")]
    http: Option<Server>,
}

/// What drives a node besides its data threads.
enum NodeDriver {
    /// A member agrees with the others.
    Member(Control),
    /// A client looks its seeds up.
    Client(Companion),
}

/// Everything that `builder` started.
pub(crate) struct NodeParts {
    pub(crate) name: String,
    pub(crate) addresses: Addresses,
    pub(crate) leave_timeout: Duration,
    pub(crate) ready_timeout: Duration,
    pub(crate) insecure: bool,
    pub(crate) shared: Arc<Shared>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) control: ControlHandle,
    pub(crate) data: DataHandle,
    threads: Threads,
    #[cfg(feature = "metrics")]
    pub(crate) metrics: Arc<Metrics>,
}

impl Node {
    /// Begins to build a node.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(parts: NodeParts) -> Self {
        Self(Arc::new(NodeInner {
            name: parts.name,
            addresses: parts.addresses,
            leave_timeout: parts.leave_timeout,
            ready_timeout: parts.ready_timeout,
            insecure: parts.insecure,
            identity: parts.identity,
            shared: parts.shared,
            control: parts.control,
            data: parts.data,
            #[cfg(feature = "metrics")]
            metrics: parts.metrics,
            threads: Mutex::new(Some(parts.threads)),
            ending: AtomicBool::new(false),
            end: watch::Sender::new(None),
            limiters: Limiters::default(),
        }))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its addresses, with the real ports. A client accepts no connections: it has the address from
    /// which it asks.
    #[must_use]
    pub fn addresses(&self) -> &Addresses {
        &self.0.addresses
    }

    /// Whether it is a client, which is no member.
    #[must_use]
    pub fn is_client(&self) -> bool {
        self.0.is_client()
    }

    /// Whether it runs without a secret, on loopback only.
    #[must_use]
    pub fn insecure(&self) -> bool {
        self.0.insecure
    }

    /// Administers its cluster: keyspaces, members, moves, and reports of all of them. A client
    /// administers nothing: every call fails with `NotMember`.
    #[must_use]
    pub fn admin(&self) -> Admin {
        let NodeInner {
            control,
            shared,
            data,
            ..
        } = &*self.0;
        Admin::new(control.clone(), shared.clone(), data.clone())
    }

    /// Events from now on: members that join and leave, coordinators, losses. A client gets none.
    #[must_use]
    pub fn events(&self) -> Events {
        self.0.control.events()
    }

    /// The events after the one with this number (0: all of them). A node keeps about the last
    /// thousand that it has learned of; [`Node::events`] gives those that come.
    #[must_use]
    pub fn logged_events(&self, since: u64) -> Vec<LoggedEvent> {
        self.0.control.logged_events(since)
    }

    /// The cluster as the coordinator knows it. If the coordinator does not answer within 300 ms,
    /// the cluster as this node knows it. The same as [`Admin::status`].
    ///
    /// ```no_run
    /// # async fn example(node: doyen::Node) -> Result<(), doyen::Error> {
    /// let status = node.status().await?;
    /// if !status.safe {
    ///     println!("not safe: {}", status.unsafe_for.unwrap_or_default());
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Closed`]. [`Error::Refused`]: a client has no status.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn status(&self) -> Result<ClusterReport, Error> {
        if self.is_client() {
            return Err(Error::Refused(
                "a client does not know how the cluster is: ask a node, or its HTTP port".into(),
            ));
        }
        Ok(self.admin().status().await?)
    }

    /// This node's metrics as text, in the format that Prometheus reads: what `/metrics` answers,
    /// for a program that has an HTTP server of its own. Needs the feature `metrics`.
    ///
    /// ```no_run
    /// # async fn example(node: doyen::Node) -> Result<(), doyen::Error> {
    /// let text = node.metrics_text().await?;
    /// assert!(text.contains("doyen_operations_executed_total"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Closed`] alone.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has happened, except that
    /// `doyen_data_pass_longest_seconds` begins at 0 again.
    #[cfg(feature = "metrics")]
    pub async fn metrics_text(&self) -> Result<String, Error> {
        self.runs()?;
        Ok(self.0.metrics.text().await)
    }

    /// Writes this node's metrics into the recorder of the crate `metrics` that the program has
    /// installed. Call it before each export, or every few seconds. Without a recorder it does
    /// nothing that is seen. Needs the feature `metrics`.
    ///
    /// The names and meanings are those of [`Node::metrics_text`]. Each metric also has the label
    /// `node`, with this node's name. Counters are absolute, so a node that is started again in one
    /// process under the same name counts on only where the former one stopped. A gauge that no
    /// longer applies becomes NaN: that of a dropped keyspace, or of a former coordinator. What
    /// this process asked of a map is not among the metrics: `Map::stats` has it.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(node: doyen::Node) {
    /// let mut every = tokio::time::interval(Duration::from_secs(5));
    /// tokio::spawn(async move {
    ///     while node.report_metrics().await.is_ok() {
    ///         every.tick().await;
    ///     }
    /// });
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Closed`] alone.
    ///
    /// # Cancel safety
    /// As for [`Node::metrics_text`]: all figures are written at once, or none.
    #[cfg(feature = "metrics")]
    pub async fn report_metrics(&self) -> Result<(), Error> {
        self.runs()?;
        self.0.metrics.report().await;
        Ok(())
    }

    #[cfg(feature = "metrics")]
    fn runs(&self) -> Result<(), Error> {
        match self.0.data.has_ended() {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }

    /// Waits until this node is ready ([`Node::is_ready`]), for so long at most.
    ///
    /// # Errors
    /// [`Error::NotReady`]: it is not ready in time; the text says what it waits for.
    /// [`Error::Fatal`]: it will never be ready. [`Error::Closed`]: it was shut down.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn wait_ready(&self, limit: Duration) -> Result<(), Error> {
        within_runtime()?;
        let until = Instant::now() + limit;
        let mut fatal = self.0.control.fatal();
        loop {
            if self.is_ready() {
                return Ok(());
            }
            if let Some(why) = fatal.borrow_and_update().clone() {
                return Err(Error::Fatal(why));
            }
            if fatal.has_changed().is_err() {
                return Err(Error::Closed);
            }
            if Instant::now() >= until {
                return Err(Error::NotReady(self.admin().changes.waits_for().await));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Whether it serves: it is a member (or connected to one, as a client), keys have owners, and
    /// a majority of the cluster answers. A client does not know about the majority.
    ///
    /// ```
    /// /// What the probe of a load balancer is answered.
    /// fn readiness(node: &doyen::Node) -> (u16, &'static str) {
    ///     if node.is_ready() { (200, "ready") } else { (503, "not ready") }
    /// }
    /// ```
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let local = self.0.shared.local();
        let leased = self.is_client() || self.0.shared.lease() >= crate::clock::now();
        leased
            && !self.0.data.has_ended()
            && local.view.as_ref().is_some_and(|view| {
                let table = &view.installed;
                (self.is_client() || table.member(local.me).is_some())
                    && table.keyspaces.iter().all(|k| !k.partitions.is_empty())
            })
    }

    /// Whether it is part of a cluster, as far as it knows itself. The coordinator is not asked.
    #[must_use]
    pub fn is_member(&self) -> bool {
        !self.is_client() && self.0.is_member()
    }

    /// Opens the map of this name, which is created if it does not exist. Await it; before that,
    /// give it options, such as a keyspace, a codec and a schema ([`OpenMap`]). Waits for the
    /// cluster for [`Builder::ready_timeout`] at most. Give a map, a cache and counters different
    /// names: they store their values in different ways.
    ///
    /// # Errors
    /// When there is no cluster, or it refuses.
    pub fn map<K, V>(&self, name: &str) -> OpenMap<'_, K, V> {
        OpenMap::new(DEFAULT_KEYSPACE, name, move |wanted, codec| {
            Box::pin(async move {
                self.wait_ready(self.0.ready_timeout).await?;
                let table = self.0.data.table();
                let known = table.and_then(|t| t.map_in(&wanted.keyspace, &wanted.name).cloned());
                let was_endless = known.is_some_and(|known| known.limits.idle_ms.is_none());
                let (MapWish::Limited(limits) | MapWish::Replaced(limits)) = wanted.wish else {
                    let entry = self.map_entry(wanted).await?;
                    return Ok((entry, self.0.data.clone()));
                };
                let adds_idle = was_endless && limits.idle_ms.is_some();
                if adds_idle && codec == Codec::Bytes {
                    return Err(Error::Refused(format!(
                        "the map {} was made without max_idle, and with the codec Bytes it cannot \
                         get one: leave it out, or use another name",
                        wanted.name
                    )));
                }
                let entry = self.map_entry(wanted).await?;
                if adds_idle {
                    begin_idle_times(&entry, &self.0.data);
                }
                Ok((entry, self.0.data.clone()))
            })
        })
    }

    /// Opens the counters of this name, as [`Node::map`] opens a map.
    ///
    /// # Errors
    /// As for [`Node::map`].
    pub fn counters<K>(&self, name: &str) -> OpenCounters<'_, K> {
        OpenCounters::new(self.map(name))
    }

    /// Opens the cache of this name, as [`Node::map`] opens a map. Await it; before that, say how
    /// long its entries are fresh ([`OpenCache`]). Do not open a map and a cache of one name.
    ///
    /// # Errors
    /// As for [`Node::map`].
    pub fn cache<K, V>(&self, name: &str) -> OpenCache<'_, K, V> {
        OpenCache::new([self.map(name), self.map(&schemas_of(name))])
    }

    /// Opens the set of this name. Await it; before that, give it options ([`OpenSet`]).
    ///
    /// # Errors
    /// As for [`Node::map`].
    pub fn set<T>(&self, name: &str) -> OpenSet<'_, T> {
        OpenSet::new(|map| self.map(map), name)
    }

    /// Opens the sorted set of this name: members in the order of their scores. Await it; before
    /// that, give it options ([`OpenSortedSet`]).
    ///
    /// # Errors
    /// As for [`Node::map`].
    pub fn sorted_set<T>(&self, name: &str) -> OpenSortedSet<'_, T> {
        OpenSortedSet::new(|map| self.map(map), name)
    }

    /// Opens the list of this name. Await it; before that, give it options ([`OpenList`]).
    ///
    /// # Errors
    /// As for [`Node::map`].
    pub fn list<T>(&self, name: &str) -> OpenList<'_, T> {
        OpenList::new(|map| self.map(map), name)
    }

    /// Opens the queue of jobs of this name. Await it; before that, give it options
    /// ([`OpenJobQueue`]).
    ///
    /// # Errors
    /// As for [`Node::map`]. [`Error::Refused`]: the keyspace evicts keys or lets them expire.
    pub fn queue<T>(&self, name: &str) -> OpenJobQueue<'_, T> {
        OpenJobQueue::new(|map| self.map(map), name)
    }

    /// The rate limiters that this process has open.
    pub(crate) fn limiters(&self) -> &Limiters {
        &self.0.limiters
    }

    /// Finds a map, and whether its keyspace evicts keys.
    pub(crate) async fn place_of(
        &self,
        keyspace: &str,
        map: &str,
    ) -> Result<(MapEntry, DataHandle, bool), Error> {
        self.wait_ready(self.0.ready_timeout).await?;
        let entry = self
            .map_entry(WantedMap {
                keyspace: keyspace.to_owned(),
                name: map.to_owned(),
                wish: MapWish::Exists,
            })
            .await?;
        let local = self.0.shared.local();
        let table = local.view.as_ref().map(|view| &view.installed);
        let evicts = table
            .and_then(|table| table.keyspace(entry.keyspace))
            .is_some_and(|keyspace| keyspace.eviction != Eviction::None);
        Ok((entry, self.0.data.clone(), evicts))
    }

    /// Map 0, which Redis clients use, as bytes. Typed maps are separate: no Redis client sees
    /// them.
    #[must_use]
    pub fn database(&self) -> Database {
        Database::new(KeyspaceId(0), self.0.data.clone())
    }

    /// Map 0 of another keyspace, as bytes: the keys that a Redis client sees after `CLIENT
    /// KEYSPACE NAME`. A keyspace that another member has just created is found.
    ///
    /// # Errors
    /// There is no such keyspace, or no cluster.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn database_in(&self, keyspace: &str) -> Result<Database, Error> {
        within_runtime()?;
        let found = || {
            let local = self.0.shared.local();
            Some(local.view.as_ref()?.installed.keyspace_named(keyspace)?.id)
        };
        if found().is_none() {
            self.catch_up(|| found().is_some()).await?;
        }
        if let Some(id) = found() {
            return Ok(Database::new(id, self.0.data.clone()));
        }
        match &self.0.shared.local().view {
            Some(view) => {
                let known = view.installed.keyspaces.iter().map(|k| &k.name);
                let refused = Refused::no_keyspace(keyspace, known);
                Err(Error::Refused(refused.to_string()))
            }
            None => Err(Error::NotReady(self.admin().changes.waits_for().await)),
        }
    }

    /// Waits until what is looked for is found, or this node knows all that others knew before.
    async fn catch_up(&self, is_found: impl Fn() -> bool) -> Result<(), Error> {
        if !self.is_client() {
            self.0.control.catch_up().await;
            return Ok(());
        }
        // Members send newer tables to a client each second.
        let until = Instant::now() + KEYSPACE_MAX;
        while !is_found() && Instant::now() < until {
            if self.0.data.has_ended() {
                return Err(Error::Closed);
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Finds a map that is as it is wanted.
    async fn map_entry(&self, wanted: WantedMap) -> Result<MapEntry, Error> {
        let local = self.0.shared.local();
        if let Some(table) = local.view.as_ref().map(|view| &view.installed) {
            let known = table.map_in(&wanted.keyspace, &wanted.name);
            if let Some(entry) = known.filter(|entry| wanted.wish.met(table, entry)) {
                return Ok(entry.clone());
            }
        }
        if self.is_client() {
            return self.0.want_map_as_client(wanted).await;
        }
        Ok(self.admin().changes.want_map(wanted).await?)
    }

    /// Drops a map, or a cache, with all its entries, for the whole cluster. Returns whether there
    /// was such a map. Operations on its handles, in every process, are refused from then on
    /// ([`Error::Dropped`]), and subscriptions end. A map that is opened under this name later is
    /// another one. A near cache may serve a copy once more, within its bound. `doyen map drop`
    /// does the same.
    ///
    /// ```no_run
    /// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
    /// let existed = node.drop_map("default", "sessions").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// There is no such keyspace, or no cluster. [`Error::Unknown`]: it may be dropped or not.
    ///
    /// # Cancel safety
    /// If the future is dropped, the map may be dropped or not.
    pub async fn drop_map(&self, keyspace: &str, name: &str) -> Result<bool, Error> {
        self.wait_ready(self.0.ready_timeout).await?;
        // A cache may have entries with a schema beside it.
        let of_schemas = self.drop_one(keyspace, &schemas_of(name)).await?;
        Ok(self.drop_one(keyspace, name).await? || of_schemas)
    }

    async fn drop_one(&self, keyspace: &str, name: &str) -> Result<bool, Error> {
        let found = || {
            let local = self.0.shared.local();
            Some(local.view.as_ref()?.installed.map_in(keyspace, name)?.id)
        };
        if found().is_none() {
            self.catch_up(|| found().is_some()).await?;
        }
        if found().is_none() {
            // The keyspace is looked for, so that its name is not mistyped.
            return self.database_in(keyspace).await.map(|_| false);
        }
        let wanted = WantedMap {
            keyspace: keyspace.to_owned(),
            name: name.to_owned(),
            wish: MapWish::Dropped,
        };
        match self.map_entry(wanted).await {
            Ok(_) => Ok(true),
            Err(Error::Refused(why)) => {
                // Another program may have dropped it meanwhile.
                self.catch_up(|| found().is_none()).await?;
                match found() {
                    None => Ok(false),
                    Some(_) => Err(Error::Refused(why)),
                }
            }
            Err(why) => Err(why),
        }
    }

    /// Reads the files of secrets, certificates and HTTP tokens again now. A node also does so by
    /// itself some seconds after they change. If the files cannot be used, the log says why, and
    /// what was read before stays in force. Blocks for the time of reading; for a phrase, that is
    /// some tenths of a second. Returns false if the node has no such files.
    #[must_use]
    pub fn reload(&self) -> bool {
        #[cfg(feature = "http")]
        let has_tokens = self.0.threads().as_ref().is_some_and(|threads| {
            let http = threads.http.as_ref();
            http.is_some_and(Server::reload)
        });
        #[cfg(not(feature = "http"))]
        let has_tokens = false;
        self.0.identity.reload() || has_tokens
    }

    /// Leaves in order: hands everything over, answers the requests that were received, waits until
    /// the other members know, and stops. All clones end. A client only stops: its operations
    /// without an answer end, reads as `Unavailable` and writes as `Unknown`.
    ///
    /// It takes `leave_timeout` and 4 s at most. Several callers wait for the same departure. It
    /// needs no runtime.
    ///
    /// # Cancel safety
    /// If the future is dropped, the node leaves all the same.
    pub async fn shutdown(&self) -> Departure {
        self.0.begin_to_leave();
        match self.0.ended().await {
            Ok(departure) => departure,
            // It was killed meanwhile.
            Err(_) => Departure::TimedOut { partitions: 0 },
        }
    }

    /// Stops at once, like a crash, and waits for the threads: nothing is handed over. It
    /// needs no runtime.
    ///
    /// # Cancel safety
    /// If the future is dropped, the node ends all the same.
    pub async fn kill(&self) {
        self.0.begin_to_stop();
        // Only that it has ended matters.
        let _ = self.0.ended().await;
    }

    /// Begins to stop, like a crash, and waits for nothing.
    #[cfg(feature = "testkit-local")]
    pub(crate) fn begin_to_stop(&self) {
        self.0.begin_to_stop();
    }

    /// Runs each of its threads once. Returns when all of them have answered.
    #[cfg(feature = "testkit-local")]
    pub(crate) async fn nudge(&self) {
        // Only that they run matters. A client has no control thread, and no answer of it.
        let _ = tokio::join!(self.0.control.coordinated(), self.0.data.stats());
    }

    /// Waits until this node has ended: how it left, if it was shut down. It may be awaited by any
    /// number of tasks, for the life of the program.
    ///
    /// ```no_run
    /// # async fn serve() {}
    /// # async fn example(node: doyen::Node) {
    /// tokio::select! {
    ///     () = serve() => {}
    ///     end = node.closed() => eprintln!("the node has ended: {end:?}"),
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Fatal`]: it cannot be a member any more, or one of its threads has failed. It
    /// serves nothing: shut it down. [`Error::Closed`]: it was killed.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed. It may stand in a `select!`.
    pub async fn closed(&self) -> Result<Departure, Error> {
        let mut fatal = self.0.control.fatal();
        let failed = async {
            let why = fatal.wait_for(Option::is_some).await;
            why.ok().map(|why| why.clone().unwrap_or_default())
        };
        tokio::select! {
            biased;
            end = self.0.ended() => end,
            why = failed => match why {
                Some(why) => Err(Error::Fatal(why)),
                // It was told to end, and will.
                None if self.0.ending.load(Ordering::SeqCst) => self.0.ended().await,
                None => Err(Error::Fatal("the control thread ended: this is a defect".into())),
            },
        }
    }
}

impl NodeInner {
    fn is_client(&self) -> bool {
        self.shared.local().me.is_client()
    }

    fn threads(&self) -> MutexGuard<'_, Option<Threads>> {
        // Each change of it is one step.
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it has ended.
    async fn ended(&self) -> Result<Departure, Error> {
        let mut end = self.end.subscribe();
        let end = end.wait_for(Option::is_some).await;
        // The sender lives as long as this does.
        end.ok()
            .and_then(|end| end.clone())
            .unwrap_or(Err(Error::Closed))
    }

    fn stop(&self) {
        if let Some(threads) = &*self.threads() {
            #[cfg(feature = "http")]
            if let Some(http) = &threads.http {
                http.stop();
            }
            if let NodeDriver::Client(companion) = &threads.driver {
                companion.stop();
            }
        }
        self.control.stop();
        self.data.stop();
    }

    /// Waits for the threads. Call `stop` first.
    fn join(&self) {
        let Some(threads) = self.threads().take() else {
            return;
        };
        #[cfg(feature = "http")]
        if let Some(http) = threads.http {
            http.join();
        }
        threads.data.join();
        match threads.driver {
            NodeDriver::Member(control) => control.join(),
            NodeDriver::Client(companion) => companion.join(),
        }
    }
}

impl Drop for NodeInner {
    fn drop(&mut self) {
        // Without joining: a drop may happen on a runtime's thread, which must not block.
        self.stop();
    }
}

/// Checks that timers can be made here, before a node starts.
pub(crate) fn with_timers() -> Result<(), Error> {
    within_runtime()?;
    // Only to make one tells, and it panics if there are none.
    let timer = || drop(tokio::time::sleep(Duration::ZERO));
    std::panic::catch_unwind(timer).map_err(|_| Error::NoRuntime)
}

#[cfg(test)]
mod tests;
