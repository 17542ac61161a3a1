//! Redis Cluster: three masters, three replicas, nothing on disk.

use super::{Installed, Kind, PATIENCE, System, address, free_ports, text_of};
use crate::measure::children::{Child, Cores, run, until};
use anyhow::{Context, Result, bail};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PROCESSES: usize = 6;
/// How long slots may take to move to another member.
const GROWN_MAX: Duration = Duration::from_secs(600);
/// The distance from a member's client port to the port on which members speak to each other.
const BUS: u16 = 10_000;

pub(super) fn find(cores: Cores) -> Result<Installed> {
    let said = run(
        &cores.anywhere(&["redis-server", "--version"]),
        None,
        Duration::from_secs(10),
    )
    .context("needs redis-server")?;
    for tool in ["redis-cli", "redis-benchmark"] {
        run(
            &cores.anywhere(&[tool, "--version"]),
            None,
            Duration::from_secs(10),
        )
        .with_context(|| format!("needs {tool}"))?;
    }
    let version = said
        .split_whitespace()
        .find_map(|w| w.strip_prefix("v="))
        .unwrap_or("unknown")
        .to_owned();
    Ok(Installed {
        kind: Kind::Redis,
        version,
        program: "redis-server".into(),
    })
}

pub(super) fn start(installed: &Installed, cores: Cores) -> Result<System> {
    let dir = TempDir::new()?;
    let ports = free_ports(PROCESSES, BUS)?;
    let program = installed.program.to_string_lossy();
    let mut children = Vec::new();
    for port in &ports {
        children.push(process(&program, *port, dir.path(), cores)?);
    }
    let addresses: Vec<_> = ports.iter().map(|p| address(*p)).collect();
    let mut all = |what: &str, holds: &dyn Fn(std::net::SocketAddr) -> bool| -> Result<()> {
        let came = until(Instant::now() + PATIENCE, || {
            children
                .iter_mut()
                .try_for_each(|(child, log)| child.is_alive(log))?;
            Ok(addresses.iter().all(|a| holds(*a)))
        })?;
        if !came {
            bail!("{what} did not come in time")
        } else {
            Ok(())
        }
    };
    all("an answer of every process", &|a| {
        text_of(a, "PING").is_some()
    })?;
    let names: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let mut words = vec!["redis-cli", "--cluster", "create"];
    words.extend(names.iter().map(String::as_str));
    words.extend(["--cluster-replicas", "1", "--cluster-yes"]);
    run(&cores.anywhere(&words), None, PATIENCE)?;
    // Every replica is in sync before the measurement.
    all("a whole cluster", &|a| {
        let replication = text_of(a, "INFO replication").unwrap_or_default();
        let in_sync = match replication.contains("role:master") {
            true => {
                replication.contains("connected_slaves:1") && replication.contains("state=online")
            }
            false => replication.contains("master_link_status:up"),
        };
        in_sync && text_of(a, "CLUSTER INFO").is_some_and(|i| i.contains("cluster_state:ok"))
    })?;
    let masters = addresses
        .into_iter()
        .filter(|a| text_of(*a, "INFO replication").is_some_and(|i| i.contains("role:master")))
        .collect();
    let children = children.into_iter().map(|(child, _)| child).collect();
    Ok(System {
        kind: Kind::Redis,
        client: None,
        plain: Vec::new(),
        cluster: masters,
        memcached: Vec::new(),
        nodes: Vec::new(),
        children,
        dir,
    })
}

type Logged = (Child, PathBuf);

fn process(program: &str, port: u16, dir: &Path, cores: Cores) -> Result<Logged> {
    let home = dir.join(port.to_string());
    std::fs::create_dir(&home)?;
    let (port, directory) = (port.to_string(), home.to_string_lossy());
    let words = [
        "--port",
        &port,
        "--bind",
        "127.0.0.1",
        "--cluster-enabled",
        "yes",
        "--dir",
        &directory,
    ];
    let words = [
        &[program],
        &words[..],
        &["--save", "", "--appendonly", "no"],
    ]
    .concat();
    Ok((
        Child::start(&cores.member(&words), &home.join("log"))?,
        home.join("log"),
    ))
}

/// Adds another primary and its replica, and then divides the slots among all primaries, as the
/// manual says.
pub(super) fn grow(system: &mut System, installed: &Installed, cores: Cores) -> Result<()> {
    let program = installed.program.to_string_lossy();
    let known = system
        .cluster
        .first()
        .context("the cluster has no members")?
        .to_string();
    let cli = |words: &[&str]| {
        run(
            &cores.anywhere(&[&["redis-cli", "--cluster"], words].concat()),
            None,
            GROWN_MAX,
        )
    };
    let mut new = Vec::new();
    for port in free_ports(2, BUS)? {
        let (mut child, log) = process(&program, port, system.dir.path(), cores)?;
        let at = address(port);
        until(Instant::now() + PATIENCE, || {
            child.is_alive(&log)?;
            Ok(text_of(at, "PING").is_some())
        })?;
        system.children.push(child);
        new.push(at);
    }
    let (primary, replica) = (new[0], new[1]);
    let everybody_knows = |count: usize, all: &[SocketAddr]| {
        let knows = |a: &SocketAddr| {
            text_of(*a, "CLUSTER INFO")
                .is_some_and(|i| i.contains(&format!("cluster_known_nodes:{count}")))
        };
        until(Instant::now() + PATIENCE, || Ok(all.iter().all(knows)))
    };
    cli(&["add-node", &primary.to_string(), &known])?;
    system.cluster.push(primary);
    let members = PROCESSES + 1;
    if !everybody_knows(members, &system.cluster)? {
        bail!("the cluster did not accept the seventh process in time");
    }
    let id = text_of(primary, "CLUSTER MYID").context("the new process has no id")?;
    cli(&[
        "add-node",
        &replica.to_string(),
        &known,
        "--cluster-slave",
        "--cluster-master-id",
        id.trim(),
    ])?;
    if !everybody_knows(members + 1, &system.cluster)? {
        bail!("the cluster did not accept the eighth process in time");
    }
    cli(&["rebalance", &known, "--cluster-use-empty-masters"])?;
    Ok(())
}
