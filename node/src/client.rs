//! A program that is no member and uses the cluster all the same.
//!
//! ```text
//!   callers (any task) ── desk ──> data thread: Shard without partitions ── QUIC ──> the primary of each key
//!                                     table <── any member, whenever there is a newer one
//! ```
//! It is the data thread of a node without partitions, without RESP and without a control thread:
//! what forwards, retries and keeps order there does so here. `shard::clients` has the few frames
//! that differ.

mod builder;

pub use builder::ClientBuilder;

use crate::control::shared::Shared;
use crate::data::{Data, DataHandle};
use crate::error::ClientError;
use crate::map::{Database, Map};
use doyen_placement::planner::{DEFAULT_KEYSPACE, Refused};
use doyen_placement::{KeyspaceId, MapEntry};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How long making a map may take.
const MAP_MAX: Duration = Duration::from_secs(10);
/// How long one member may take for it, before another one is asked.
const MAP_ANSWER_MAX: Duration = Duration::from_secs(2);
/// How long a keyspace that is not known is waited for: longer than the second after which members
/// tell of newer tables.
const KEYSPACE_MAX: Duration = Duration::from_secs(2);
/// Before a member is asked again, where none is connected.
const LOOK: Duration = Duration::from_millis(20);

/// A connection to a cluster, of a program that is no member of it.
///
/// It knows who holds which key, and asks there: one hop. Any number of tasks may use it at a time,
/// on any runtime; operations that are under way together travel together.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = doyen::Client::builder().seed("10.0.0.1:7401").secret_file("/etc/doyen/secret").connect().await?;
/// let users = client.map::<u64, String>("users").await?;
/// users.insert(&7, &"Ada".to_owned()).await?;
/// assert_eq!(users.get(&7).await?.as_deref(), Some("Ada"));
/// client.close().await;
/// # Ok(()) }
/// ```
///
/// What a node promises holds here as well: a write that was acknowledged is on every copy in sync,
/// reads are linearizable, and an error says whether anything happened. While members come and go,
/// operations wait (for 5 s at most) and go to whoever leads their key then; none is applied twice.
///
/// Limits: 65,536 operations may wait at a time, others end as `Overloaded` at once. Keys are at
/// most 64 KiB, values at most what the nodes take (`--value-max`).
///
/// Dropping it ends it, as [`Client::close`] does; its maps answer `Unavailable` from then on.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    data: DataHandle,
    thread: Option<Data>,
    /// Resolves names of seeds again, where there are any.
    names: Option<JoinHandle<()>>,
}

impl Client {
    /// Begins to build a client.
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

    /// The map of this name in the keyspace `default`; it is made if it is not there. Takes 10 s at
    /// most.
    ///
    /// # Errors
    /// The cluster refuses, or nobody answers.
    pub async fn map<K, V>(&self, name: &str) -> Result<Map<K, V>, ClientError>
    where
        K: Serialize,
        V: Serialize + DeserializeOwned,
    {
        self.map_in(DEFAULT_KEYSPACE, name).await
    }

    /// The map of this name in this keyspace, which must be there; the map is made if it is not.
    /// Takes 10 s at most.
    ///
    /// # Errors
    /// The cluster refuses, or nobody answers.
    pub async fn map_in<K, V>(&self, keyspace: &str, name: &str) -> Result<Map<K, V>, ClientError>
    where
        K: Serialize,
        V: Serialize + DeserializeOwned,
    {
        let known = self
            .shared
            .local()
            .view
            .as_ref()
            .and_then(|v| v.installed.map_in(keyspace, name).cloned());
        let entry = match known {
            Some(entry) => entry,
            None => {
                let made = tokio::time::timeout(MAP_MAX, self.make_map(keyspace, name)).await;
                let entry = made.unwrap_or_else(|_| {
                    Err(ClientError::NotReady(format!(
                        "no member has made the map within {MAP_MAX:?}"
                    )))
                })?;
                self.wait_for(entry.keyspace).await?;
                entry
            }
        };
        Ok(Map::new(entry, self.data.clone()))
    }

    /// Asks one member after the other. Asking twice makes no second map.
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

    /// What leads to a map's keyspace may be newer than what this client has. Members tell of it
    /// each second.
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
                    "no member has told of the map's keyspace within {MAP_MAX:?}"
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

    /// Map 0 of another keyspace, as bytes. Members tell a client of newer tables each second: a
    /// keyspace that has just been made is waited for, two seconds at most.
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

    /// Ends it, and waits until the members have been told. Operations that are not answered end:
    /// reads as `Unavailable`, writes as `Unknown`.
    pub async fn close(mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // Joining blocks, if only for moments.
            if let Err(e) = tokio::task::spawn_blocking(move || thread.join()).await {
                tracing::error!("the thread of this client ended badly: {e}");
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
        // Without joining: a drop may happen on a runtime's thread, which must not block.
        self.stop();
    }
}
