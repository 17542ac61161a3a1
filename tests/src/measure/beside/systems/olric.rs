//! Olric: three members with one synchronous backup; every member takes any key.

use super::{Installed, Kind, PATIENCE, System, address, free_ports, text_of};
use crate::measure::children::{Child, Cores, pause, run, until};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MEMBERS: usize = 3;
const VERSION: &str = "0.7.0";
/// Go fetches it the first time.
const BUILD_MAX: Duration = Duration::from_secs(600);

pub(super) fn build(cache: &Path, cores: Cores) -> Result<Installed> {
    let home = cache.join("olric");
    let (program, built) = (home.join("olric-server"), home.join("built"));
    let go = |arguments: &[&str]| {
        let words = [&["env", "GOFLAGS=-mod=mod", "go"], arguments].concat();
        run(&cores.anywhere(&words), Some(&home), BUILD_MAX)
    };
    if !program.exists()
        || fs::read_to_string(&built)
            .unwrap_or_default()
            .lines()
            .next()
            != Some(VERSION)
    {
        fs::create_dir_all(&home)?;
        eprintln!("building Olric {VERSION} in {}", home.display());
        if !home.join("go.mod").exists() {
            go(&["mod", "init", "rival"]).context("needs Go 1.23 or later")?;
        }
        go(&["get", &format!("github.com/olric-data/olric@v{VERSION}")])?;
        go(&[
            "build",
            "-o",
            "olric-server",
            "github.com/olric-data/olric/cmd/olric-server",
        ])?;
        let compiler = go(&["env", "GOVERSION"])?;
        fs::write(&built, format!("{VERSION}\n{compiler}"))?;
    }
    let compiler = fs::read_to_string(&built)
        .unwrap_or_default()
        .lines()
        .nth(1)
        .unwrap_or("?")
        .to_owned();
    Ok(Installed {
        kind: Kind::Olric,
        version: format!("{VERSION} ({compiler})"),
        program,
    })
}

/// The defaults of `olric-server-local.yaml`, with one synchronous backup and fewer log lines.
fn configuration(resp: u16, gossip: u16, peers: &[u16]) -> String {
    let peers: String = peers
        .iter()
        .map(|p| format!("\n    - \"127.0.0.1:{p}\""))
        .collect();
    format!(
        "server: {{bindAddr: 127.0.0.1, bindPort: {resp}, keepAlivePeriod: 300s, \
         bootstrapTimeout: 5s, partitionCount: 271,
  replicaCount: 2, writeQuorum: 1, readQuorum: 1, readRepair: false, replicationMode: 0, \
  memberCountQuorum: 1,
  routingTablePushInterval: 1m, enableClusterEventsChannel: true}}
client: {{dialTimeout: 5s, readTimeout: 3s, writeTimeout: 3s}}
logging: {{verbosity: 3, level: WARN, output: stderr}}
memberlist:
  environment: lan
  bindAddr: 127.0.0.1
  bindPort: {gossip}
  enableCompression: false
  joinRetryInterval: 1s
  maxJoinAttempts: 10
  peers:{peers}
dmaps: {{engine: {{name: kvstore, config: {{tableSize: 524288}}}}}}
"
    )
}

pub(super) fn start(installed: &Installed, cores: Cores) -> Result<System> {
    let dir = TempDir::new()?;
    let ports = free_ports(2 * MEMBERS, 0)?;
    let (resp, gossip) = ports.split_at(MEMBERS);
    let addresses: Vec<_> = resp.iter().map(|p| address(*p)).collect();
    let program = installed.program.to_string_lossy();
    let mut children = Vec::new();
    for (port, own) in resp.iter().zip(gossip) {
        let peers: Vec<u16> = gossip.iter().copied().filter(|p| p != own).collect();
        let file = dir.path().join(format!("{port}.yaml"));
        let log = dir.path().join(format!("{port}.log"));
        fs::write(&file, configuration(*port, *own, &peers))?;
        children.push((
            Child::start(
                &cores.member(&[&program, "-c", &file.to_string_lossy()]),
                &log,
            )?,
            log,
        ));
    }
    // A member is ready when it lists all members and takes a write.
    let ready = |at: &std::net::SocketAddr| {
        let told = text_of(*at, "STATS")
            .and_then(|s| serde_json::from_str::<serde_json::Value>(&s).ok())
            .unwrap_or_default();
        let members = told["cluster_members"]
            .as_object()
            .map_or(0, serde_json::Map::len);
        members == MEMBERS && text_of(*at, "DM.PUT probe key value").is_some()
    };
    let came = until(Instant::now() + PATIENCE, || {
        children
            .iter_mut()
            .try_for_each(|(child, log)| child.is_alive(log))?;
        // Its statistics are long, so ask seldom.
        pause(Duration::from_millis(100))?;
        Ok(addresses.iter().all(ready))
    })?;
    if !came {
        bail!("the members never found each other");
    }
    let children = children.into_iter().map(|(child, _)| child).collect();
    Ok(System {
        kind: Kind::Olric,
        client: None,
        plain: addresses,
        cluster: Vec::new(),
        memcached: Vec::new(),
        nodes: Vec::new(),
        children,
        dir,
    })
}
