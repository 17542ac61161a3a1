//! Four systems, each as its users would run it here: three members (for Redis Cluster: three
//! masters and three replicas), one backup.

mod doyen;
mod hazelcast;
mod olric;
mod redis;

use crate::measure::children::{Child, Conversation, Cores};
use crate::process::Process;
use crate::resp::{Client, Reply};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// How long a step may take that is not measured.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// Doyen's secret, in the system's directory.
const SECRET_FILE: &str = "secret";
/// Bytes of the values.
pub const VALUE_BYTES: usize = 100;

/// The four systems.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Doyen.
    Doyen,
    /// Redis Cluster 7.
    Redis,
    /// Hazelcast 5.7.
    Hazelcast,
    /// Olric 0.7.
    Olric,
}

impl Kind {
    /// All, in the order of tables.
    pub const ALL: [Self; 4] = [Self::Doyen, Self::Redis, Self::Hazelcast, Self::Olric];

    /// The name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Doyen => "Doyen",
            Self::Redis => "Redis Cluster",
            Self::Hazelcast => "Hazelcast",
            Self::Olric => "Olric",
        }
    }

    /// The name in flags and files.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Doyen => "doyen",
            Self::Redis => "redis",
            Self::Hazelcast => "hazelcast",
            Self::Olric => "olric",
        }
    }
}

/// A system that can be started here.
#[derive(Debug, Clone)]
pub struct Installed {
    /// Which system it is.
    pub kind: Kind,
    /// Its version, as it prints it.
    pub version: String,
    /// The program, or the directory of the Java classes.
    pub program: PathBuf,
}

impl Installed {
    /// Finds the system, or builds it in the cache directory.
    ///
    /// # Errors
    /// The system is not available here; the error says why.
    pub fn find(kind: Kind, binary: &Path, cores: Cores) -> Result<Self> {
        match kind {
            Kind::Doyen => doyen::find(binary, cores),
            Kind::Redis => redis::find(cores),
            Kind::Hazelcast => hazelcast::build(&cache()?, cores),
            Kind::Olric => olric::build(&cache()?, cores),
        }
    }

    /// Starts its members and waits until every one of them serves.
    ///
    /// # Errors
    /// A member does not serve in time.
    pub fn start(&self, cores: Cores) -> Result<System> {
        match self.kind {
            Kind::Doyen => doyen::start(self, cores),
            Kind::Redis => redis::start(self, cores),
            Kind::Hazelcast => hazelcast::start(self, cores),
            Kind::Olric => olric::start(self, cores),
        }
        .with_context(|| format!("{} does not start", self.kind.name()))
    }
}

/// Running members. All of them are killed when this is dropped.
#[derive(Debug)]
pub struct System {
    /// Which system it is.
    pub kind: Kind,
    /// Its own client, if it speaks no RESP. The client ends before the members do.
    pub client: Option<Conversation>,
    /// Addresses that take any key; empty if there are none.
    pub plain: Vec<SocketAddr>,
    /// Addresses for a client that knows Redis Cluster.
    pub cluster: Vec<SocketAddr>,
    /// Addresses that take any key by memcached's protocol.
    pub memcached: Vec<SocketAddr>,
    nodes: Vec<Process>,
    children: Vec<Child>,
    // After the processes, because they write to it.
    dir: TempDir,
}

impl System {
    /// The processes of all members, replicas included.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.nodes
            .iter()
            .map(Process::pid)
            .chain(self.children.iter().map(Child::pid))
            .collect()
    }

    /// For Doyen: the addresses at which its own client begins, and the file with the secret.
    #[must_use]
    pub fn data(&self) -> (Vec<SocketAddr>, PathBuf) {
        (
            self.nodes.iter().map(|n| n.ready.data).collect(),
            self.dir.path().join(SECRET_FILE),
        )
    }

    /// Starts a fourth member, and returns when that has its share.
    ///
    /// # Errors
    /// The member does not get its share, or this bench cannot grow such a system.
    pub fn grow(&mut self, installed: &Installed, cores: Cores) -> Result<()> {
        match self.kind {
            Kind::Redis => redis::grow(self, installed, cores),
            Kind::Hazelcast => hazelcast::grow(self, installed, cores),
            Kind::Doyen | Kind::Olric => bail!(
                "{} cannot be grown here; choose redis or hazelcast",
                self.kind.name()
            ),
        }
    }

    /// An address that speaks RESP.
    ///
    /// # Errors
    /// The system speaks no RESP.
    pub fn resp(&self) -> Result<SocketAddr> {
        self.plain
            .first()
            .or(self.cluster.first())
            .copied()
            .with_context(|| format!("{} speaks no RESP", self.kind.name()))
    }
}

/// The directory in which rivals are built: outside of the repository, and kept for the next time.
fn cache() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .filter(|v| !v.is_empty())
        .map(PathBuf::from);
    let base = base.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let dir = base
        .context("neither XDG_CACHE_HOME nor HOME is set; set one, to build the rivals there")?
        .join("doyen-bench");
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// TCP ports that were free a moment ago, below the range of the system's own choices. For each of
/// them, `port + beside` is free too.
fn free_ports(count: usize, beside: u16) -> Result<Vec<u16>> {
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let mut found = BTreeSet::new();
    for _ in 0..10_000 {
        let port = rand::random_range(20_000..22_000u16);
        if !found.contains(&port) && free(port) && free(port + beside) {
            found.insert(port);
            if found.len() == count {
                return Ok(found.into_iter().collect());
            }
        }
    }
    bail!("no free ports")
}

fn address(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// The text of a reply; `None` if there is none, or an error.
fn text_of(at: SocketAddr, command: &str) -> Option<String> {
    let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
    match Client::connect(at, Duration::from_secs(5))
        .and_then(|mut c| c.command(&words))
        .ok()?
    {
        Reply::Simple(text) => Some(text),
        Reply::Bulk(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Reply::Int(n) => Some(n.to_string()),
        Reply::Error(_) | Reply::Nil | Reply::Array(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_are_distinct() {
        let ports = free_ports(6, 10_000).expect("there are free ports");
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 6);
    }
}
