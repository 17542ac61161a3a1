//! What a key, an idle node and an idle connection cost.

use super::generators::fill;
use super::parse;
use super::systems::{Kind, System};
use crate::measure::children::{Cores, pause, run};
use crate::procfs::{Cpu, resident};
use crate::resp::Client;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Copies of each key.
const COPIES: f64 = 2.0;
/// Idle connections.
const CONNECTIONS: usize = 1_000;
/// How long a system may still work on what it was told to do.
const SETTLE: Duration = Duration::from_secs(3);

/// The figures of a system that was started for this alone. `None` means that there is no such
/// figure.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Memory {
    /// Growth for each key and copy when all are written.
    pub key_bytes: Option<f64>,
    /// How many processes there are.
    pub processes: usize,
    /// Resident memory of a process that has just started.
    pub idle_mb: f64,
    /// Processor time while idle, in percent of one core, all members together.
    pub idle_cpu_percent: f64,
    /// Growth for each idle connection.
    pub connection_kb: Option<f64>,
}

impl Memory {
    /// Measures a system that was just started.
    ///
    /// # Errors
    /// It does not take keys or connections.
    pub fn of(system: &mut System, keys: u32, cores: Cores) -> Result<Self> {
        let pids = system.pids();
        pause(SETTLE)?;
        let (cpu, began) = (Cpu::of(&pids), Instant::now());
        pause(SETTLE)?;
        let idle_cpu_percent =
            Cpu::of(&pids).microseconds_since(&cpu) / began.elapsed().as_micros() as f64 * 100.0;
        let idle = resident(&pids);
        let connection_kb = if system.kind == Kind::Hazelcast {
            None
        } else {
            Some(connections(system, idle)?)
        };
        let before = held(system, cores)?;
        fill(system, keys)?;
        pause(SETTLE)?;
        let grown = held(system, cores)?.saturating_sub(before);
        Ok(Self {
            key_bytes: Some(grown as f64 / (f64::from(keys) * COPIES)),
            processes: pids.len(),
            idle_mb: idle as f64 / 1e6 / pids.len() as f64,
            idle_cpu_percent,
            connection_kb,
        })
    }
}

/// Kilobytes for each connection.
fn connections(system: &System, before: u64) -> Result<f64> {
    let at = system.resp()?;
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = Client::connect(at, Duration::from_secs(10))?;
        client.command(&[b"PING"])?;
        clients.push(client);
    }
    pause(Duration::from_secs(1))?;
    let grown = resident(&system.pids()).saturating_sub(before);
    drop(clients);
    pause(Duration::from_secs(1))?;
    Ok(grown as f64 / 1e3 / CONNECTIONS as f64)
}

/// Resident memory. For a JVM, the used part of its heap after a full collection: the memory that a
/// JVM takes from the system does not depend on its keys.
fn held(system: &System, cores: Cores) -> Result<u64> {
    let pids = system.pids();
    if system.kind != Kind::Hazelcast {
        return Ok(resident(&pids));
    }
    let ask = |pid: &u32, what: &str| {
        run(
            &cores.anywhere(&["jcmd", &pid.to_string(), what]),
            None,
            Duration::from_secs(60),
        )
    };
    pids.iter()
        .map(|pid| {
            ask(pid, "GC.run")?;
            parse::java_heap(&ask(pid, "GC.heap_info")?).context("jcmd shows no heap")
        })
        .sum()
}
