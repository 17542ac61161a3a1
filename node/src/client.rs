//! A client: a program that uses the cluster and is not a member.
//!
//! ```text
//!   callers (any task) ── inbox ──> data thread: Shard without partitions ── QUIC ──> primary
//!                                       table <── any member, whenever there is a newer one
//! ```
//! It is the data thread of a node, without partitions, RESP and a control thread. It forwards,
//! retries and keeps order as a node does. Only the few frames in `shard::clients` differ.

mod builder;

pub use builder::ClientBuilder;

use crate::control::shared::Shared;
use crate::data::{Data, DataHandle};
use crate::error::ClientError;
use crate::map::{Database, OpenMap};
use doyen_placement::planner::{DEFAULT_KEYSPACE, Refused};
use doyen_placement::{KeyspaceId, MapEntry};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How long making a map may take.
const MAP_MAX: Duration = Duration::from_secs(10);
/// How long one member may take to make a map, before another one is asked.
const MAP_ANSWER_MAX: Duration = Duration::from_secs(2);
/// How long a client waits for an unknown keyspace. It is longer than the second after which
/// members send newer tables.
const KEYSPACE_MAX: Duration = Duration::from_secs(2);
/// The pause before members are asked again, if none is connected.
const LOOK: Duration = Duration::from_millis(20);

/// A connection to a cluster, for a program that is not a member.
///
/// It knows which node leads which key, and asks that node: one hop. Any number of tasks may use it
/// at the same time, on any runtime. Operations that are under way at the same time share packets.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = doyen::Client::builder()
///     .seed("10.0.0.1:7401")
///     .secret_file("/etc/doyen/secret")
///     .connect()
///     .await?;
/// let users = client.map::<u64, String>("users").await?;
/// users.insert(&7, &"Ada".to_owned()).await?;
/// assert_eq!(users.get(&7).await?.as_deref(), Some("Ada"));
/// client.close().await;
/// # Ok(()) }
/// ```
///
/// The promises of a node hold here as well: an acknowledged write is on every copy in sync, reads
/// are linearizable, and an error says whether anything happened. While members join or leave,
/// operations wait (for 5 s at most) and then go to the new primary of their key. No operation is
/// applied twice.
///
/// Limits: 65,536 operations may wait at a time; further ones end at once as `Overloaded`. A key
/// has at most 64 KiB. The nodes limit the size of values (`--value-max`).
///
/// Dropping a client ends it, like [`Client::close`]. Its maps then answer `Unavailable`.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    data: DataHandle,
    thread: Option<Data>,
    /// The task that resolves the names of seeds again, if there are any.
    names: Option<JoinHandle<()>>,
}

impl Client {
    /// A builder for a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    const fn new(
        shared: Arc<Shared>,
        data: DataHandle,
        thread: Data,
        names: Option<JoinHandle<()>>,
    ) -> Self {
        Self {
            shared,
            data,
            thread: Some(thread),
            names,
        }
    }

    /// Opens the map of this name, which is made if it does not exist. Await it; before that, give
    /// it options, such as a keyspace, a codec and a schema ([`OpenMap`]). Takes at most 10 s.
    ///
    /// # Errors
    /// The cluster refuses, or no member answers.
    pub fn map<K, V>(&self, name: &str) -> OpenMap<'_, K, V, ClientError> {
        OpenMap::new(DEFAULT_KEYSPACE, name, move |keyspace, name| {
            Box::pin(async move {
                let entry = self.map_entry(&keyspace, &name).await?;
                Ok((entry, self.data.clone()))
            })
        })
    }

    async fn map_entry(&self, keyspace: &str, name: &str) -> Result<MapEntry, ClientError> {
        let known = self
            .shared
            .local()
            .view
            .as_ref()
            .and_then(|v| v.installed.map_in(keyspace, name).cloned());
        match known {
            Some(entry) => Ok(entry),
            None => {
                let made = tokio::time::timeout(MAP_MAX, self.make_map(keyspace, name)).await;
                let entry = made.unwrap_or_else(|_| {
                    Err(ClientError::NotReady(format!(
                        "no member has made the map within {MAP_MAX:?}"
                    )))
                })?;
                self.wait_for(entry.keyspace).await?;
                Ok(entry)
            }
        }
    }

    /// Asks one member after the other. Asking twice does not make a second map.
    async fn make_map(&self, keyspace: &str, name: &str) -> Result<MapEntry, ClientError> {
        loop {
            match tokio::time::timeout(MAP_ANSWER_MAX, self.data.map(keyspace, name)).await {
                Ok(Some(made)) => return made.map_err(ClientError::Refused),
                Ok(None) if self.is_over() => return Err(ClientError::Closed),
                Ok(None) => tokio::time::sleep(LOOK).await,
                Err(_) => {}
            }
        }
    }

    /// Waits for a keyspace. The table with the map's keyspace may be newer than this client's
    /// table. Members send newer tables each second.
    async fn wait_for(&self, keyspace: KeyspaceId) -> Result<(), ClientError> {
        let until = Instant::now() + MAP_MAX;
        let is_known = || {
            self.shared
                .local()
                .view
                .as_ref()
                .and_then(|v| v.installed.keyspace(keyspace))
                .is_some_and(|k| !k.partitions.is_empty())
        };
        while !is_known() {
            if self.is_over() {
                return Err(ClientError::Closed);
            }
            if Instant::now() >= until {
                return Err(ClientError::NotReady(format!(
                    "no member has sent a table with the map's keyspace within {MAP_MAX:?}"
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(Data::is_finished)
    }

    /// Map 0, which Redis clients use, as bytes.
    #[must_use]
    pub fn database(&self) -> Database {
        Database::new(KeyspaceId(0), self.data.clone())
    }

    /// Map 0 of another keyspace, as bytes. Members send newer tables to a client each second, so
    /// this waits up to two seconds for a keyspace that was just made.
    ///
    /// # Errors
    /// There is no such keyspace, or this client is closed.
    pub async fn database_in(&self, keyspace: &str) -> Result<Database, ClientError> {
        let until = Instant::now() + KEYSPACE_MAX;
        loop {
            let view = self.shared.local().view.clone();
            if let Some(found) = view
                .as_ref()
                .and_then(|v| v.installed.keyspace_named(keyspace))
            {
                return Ok(Database::new(found.id, self.data.clone()));
            }
            if self.is_over() {
                return Err(ClientError::Closed);
            }
            if Instant::now() >= until {
                let known: Vec<String> = view
                    .iter()
                    .flat_map(|v| &v.installed.keyspaces)
                    .map(|k| k.name.clone())
                    .collect();
                return Err(ClientError::Refused(
                    Refused::no_keyspace(keyspace, known.iter()).to_string(),
                ));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends the client, and waits until the members have been told. Operations without an answer
    /// end: reads as `Unavailable`, writes as `Unknown`.
    pub async fn close(mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // Joining blocks, but only for a moment.
            if let Err(e) = tokio::task::spawn_blocking(move || thread.join()).await {
                tracing::error!("the thread of this client panicked: {e}");
            }
        }
    }

    fn stop(&self) {
        if let Some(names) = &self.names {
            names.abort();
        }
        self.data.stop();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Without joining: a runtime's thread may drop the client, and must not block.
        self.stop();
    }
}
