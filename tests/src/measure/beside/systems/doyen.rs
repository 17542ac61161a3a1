//! Doyen: three nodes with a secret, so that their traffic is encrypted, as across machines.

use super::{Installed, Kind, PATIENCE, SECRET_FILE, System};
use crate::measure::children::{Cores, run, until};
use crate::process::Process;
use anyhow::{Context, Result, anyhow, bail};
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MEMBERS: usize = 3;

pub(super) fn find(binary: &Path, cores: Cores) -> Result<Installed> {
    let program = binary.canonicalize().with_context(|| {
        format!(
            "{} does not exist; build it with cargo build --release -p doyen-cli",
            binary.display()
        )
    })?;
    let said = run(
        &cores.anywhere(&[&program.to_string_lossy(), "--version"]),
        None,
        Duration::from_secs(10),
    )?;
    Ok(Installed {
        kind: Kind::Doyen,
        version: said.trim().trim_start_matches("doyen ").to_owned(),
        program,
    })
}

pub(super) fn start(installed: &Installed, cores: Cores) -> Result<System> {
    let dir = TempDir::new()?;
    let secret = dir.path().join(SECRET_FILE);
    std::fs::write(
        &secret,
        format!(
            "{:032x}{:032x}\n",
            rand::random::<u128>(),
            rand::random::<u128>()
        ),
    )?;
    let (program, secret) = (
        installed.program.to_string_lossy(),
        secret.to_string_lossy(),
    );
    let mut nodes: Vec<Process> = Vec::new();
    for n in 0..MEMBERS {
        let name = format!("n{n}");
        let seed = nodes.first().map(|first| first.ready.listen.to_string());
        let mut words = vec![
            &*program,
            "run",
            "--name",
            &name,
            "--exit-with-stdin",
            "--secret-file",
            &*secret,
            "--members-min",
            "3",
        ];
        for flag in ["--listen", "--data", "--resp", "--resp-cluster", "--http"] {
            words.extend([flag, "127.0.0.1:0"]);
        }
        if let Some(seed) = &seed {
            words.extend(["--seed", seed]);
        }
        let words = cores.member(&words);
        let (program, arguments) = words
            .split_first()
            .context("there is no program to start")?;
        let started = Process::start(
            Path::new(program),
            arguments,
            None,
            dir.path().join(format!("{name}.log")),
        );
        nodes.push(started.map_err(|refused| anyhow!("{name}: {}", refused.stderr))?);
    }
    let safe = |node: &Process| {
        let status: serde_json::Value = node
            .http("/status")
            .ok()
            .and_then(|s| serde_json::from_str(&s).ok())
            .unwrap_or_default();
        status["safe"] == true
            && status["members"]
                .as_array()
                .is_some_and(|m| m.len() == MEMBERS && m.iter().all(|m| m["state"] == "live"))
    };
    if !until(Instant::now() + PATIENCE, || Ok(nodes.iter().all(safe)))? {
        bail!(
            "never safe:\n{}",
            nodes.iter().map(Process::log).collect::<String>()
        );
    }
    let plain = nodes.iter().map(|n| n.ready.resp).collect();
    let cluster = nodes.iter().map(|n| n.ready.resp_cluster).collect();
    Ok(System {
        kind: Kind::Doyen,
        client: None,
        plain,
        cluster,
        memcached: Vec::new(),
        nodes,
        children: Vec::new(),
        dir,
    })
}
