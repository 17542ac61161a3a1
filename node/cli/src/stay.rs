//! Nodes on this machine that stay until Ctrl-C.

use super::{CommandFailed, say};
use doyen::testkit::Process;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long the nodes may take to hand over and to end.
const END_MAX: Duration = Duration::from_secs(20);
/// The interval at which the nodes are looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Ctrl-C and SIGTERM, from the moment of `new` on.
#[derive(Debug)]
pub(super) struct Interrupts(Signal, Signal);

impl Interrupts {
    pub(super) fn new() -> Result<Self, CommandFailed> {
        let on = |kind| signal(kind).map_err(cannot_start);
        Ok(Self(
            on(SignalKind::interrupt())?,
            on(SignalKind::terminate())?,
        ))
    }

    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

pub(super) fn cannot_start(e: std::io::Error) -> CommandFailed {
    CommandFailed::new(format!("cannot start: {e}"))
}

/// Keeps the nodes until the first interrupt, and ends them. Of each node that ends before, it says
/// so, and what `remedy` says of its name.
pub(super) async fn stay(
    mut nodes: Vec<(String, Process)>,
    mut interrupts: Interrupts,
    remedy: impl Fn(&str) -> String,
) -> Result<(), CommandFailed> {
    loop {
        tokio::select! {
            () = interrupts.next() => break,
            () = tokio::time::sleep(LOOK) => {}
        }
        nodes.retain_mut(|(name, process)| {
            let Some(status) = process.status() else {
                return true;
            };
            let why = why(status, process);
            say(format_args!("{name} has ended: {why}\n{}", remedy(name)));
            false
        });
        if nodes.is_empty() {
            return Err(CommandFailed::new("every node has ended"));
        }
    }
    say(format_args!("stopping\n"));
    for (_, process) in &mut nodes {
        process.terminate();
    }
    let all = async {
        for (_, process) in &mut nodes {
            // One that does not end is killed with this command.
            let _ = process.ended().await;
        }
    };
    let _ = tokio::time::timeout(END_MAX, all).await;
    Ok(())
}

/// Of a node that ended by itself, the last line of its log says why.
fn why(status: ExitStatus, process: &Process) -> String {
    match status.code() {
        Some(_) => process.last_words(),
        None => status.to_string(),
    }
}
