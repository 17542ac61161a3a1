//! A redis-server on this machine, and a connection to it as a service in Rust has one: the crate
//! `redis` with tokio, all tasks on one connection.

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, Client};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long the server may take to answer its first command.
const START_MAX: Duration = Duration::from_secs(10);
/// How long one command may take, as in Doyen.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The port was free a moment ago. Another process may take it.
const PORTS_TRIED: usize = 5;

/// A server and the one connection to it.
pub(crate) struct Redis {
    version: String,
    connection: MultiplexedConnection,
    _server: Server,
    _directory: TempDir,
}

/// The process ends when this is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Redis {
    /// Starts it, with all keys. The error says why not.
    pub(crate) async fn begin() -> Result<Self, String> {
        let version = Command::new("redis-server").arg("--version").output();
        let version = version
            .map_err(|why| format!("redis-server does not run ({why}): install redis-server"))?;
        let version = String::from_utf8_lossy(&version.stdout);
        let version = version.split(" sha=").next().unwrap_or_default().trim();
        let mut last = String::new();
        for _ in 0..PORTS_TRIED {
            match Self::start(version).await {
                Ok(started) => return Ok(started),
                Err(why) => last = why,
            }
        }
        Err(last)
    }

    async fn start(version: &str) -> Result<Self, String> {
        let directory = TempDir::new().map_err(|why| why.to_string())?;
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|free| free.local_addr())
            .map_err(|why| why.to_string())?
            .port();
        let server = Command::new("redis-server")
            // Nothing is written to the disk.
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no"])
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .map(Server)
            .map_err(|why| format!("redis-server does not start: {why}"))?;
        let client = Client::open(format!("redis://127.0.0.1:{port}"));
        let client = client.map_err(|why| why.to_string())?;
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER_MAX));
        let began = Instant::now();
        let mut connection = loop {
            match client
                .get_multiplexed_async_connection_with_config(&config)
                .await
            {
                Ok(connection) => break connection,
                Err(why) if began.elapsed() > START_MAX => {
                    return Err(format!("redis-server does not answer: {why}"));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        for n in 0..super::KEYS {
            let written: Result<(), _> = connection.set(n, n).await;
            written.map_err(|why| why.to_string())?;
        }
        Ok(Self {
            version: version.to_owned(),
            connection,
            _server: server,
            _directory: directory,
        })
    }

    /// The version of the server, as it says it.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// The one connection, for another task.
    pub(crate) fn connection(&self) -> MultiplexedConnection {
        self.connection.clone()
    }
}

/// Reads a number, which must be there.
pub(crate) async fn get(mut connection: MultiplexedConnection, key: u64) -> u64 {
    connection.get(key).await.expect("read")
}

/// Writes a number.
pub(crate) async fn set(mut connection: MultiplexedConnection, key: u64) {
    connection.set::<_, _, ()>(key, key).await.expect("written")
}

/// Reads numbers, which must be there.
pub(crate) async fn get_many(mut connection: MultiplexedConnection, keys: &[u64]) {
    let found: Vec<u64> = connection.mget(keys).await.expect("read");
    assert_eq!(found.len(), keys.len());
}
