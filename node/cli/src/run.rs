//! `doyen run`: runs one node until it is asked to leave.

mod log;
mod phrases;
mod service;

use super::{CommandFailed, KEYS, PARTITIONS, counted, runtime};
use doyen::Error;
use doyen::config::{self, Config, ConfigError, Defaults, Options};
use doyen::testkit::Ready;
use doyen::{Departure, Node};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Run a node.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every option is also a variable (DOYEN_VALUE_MAX) and a key of the file (value-max). A flag wins \
over a variable, and a variable over the file.

SIGTERM or Ctrl-C: the node hands over its data and leaves. A second one: it ends at once.
SIGHUP: the node reads its secrets or PEM files again, as it does by itself some seconds after \
they change. Every other change needs a restart.

Status: 0 left in order; 1 failure (a port is in use, no seed accepts this node, its name is \
taken); 2 a flag, a file or a variable is wrong; 3 left, and keys are lost that no other member \
has; 128 + n told twice to end by signal n.")]
pub(super) struct RunCommand {
    /// TOML file with options
    #[arg(long, env = "DOYEN_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// End at once when stdin ends: for a parent process that must not leave nodes behind
    #[arg(long, hide = true)]
    exit_with_stdin: bool,
    #[command(flatten)]
    options: Options,
}

impl RunCommand {
    pub(super) fn main(self) -> Result<ExitCode, CommandFailed> {
        // Before anything else: a closing terminal sends SIGHUP, and many programs reload on it. It
        // never ends this node, also not while it starts or leaves.
        let runtime = runtime()?;
        let hangup = {
            let _context = runtime.enter();
            signal(SignalKind::hangup()).map_err(|e| no_signals(&e))?
        };
        let mut options = self.options;
        if options.secret_file.is_none() {
            options.secret = std::env::var("DOYEN_SECRET")
                .ok()
                .filter(|s| !s.is_empty())
                .map(String::into_bytes);
        }
        let typed = options.given();
        if let Some(path) = &self.config {
            options = options.or(Options::from_file(path)?);
        }
        let placed = |error: ConfigError| match &self.config {
            Some(path) => error.in_file(path, &typed),
            None => error,
        };
        let logged = options.log.take().unwrap_or_else(|| "info".into());
        let filter = tracing_subscriber::EnvFilter::try_new(&logged).map_err(|_| {
            placed(ConfigError(format!(
                "--log `{logged}` is not a filter: use error, warn, info, debug, or doyen=debug"
            )))
        })?;
        let log_format = options.log_format.take();
        let config = options.resolve(Defaults::Binary).map_err(placed)?;
        phrases::judge(&config.trust)?;
        log::begin(filter, log_format);
        let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        config::unread_variables(variables)
            .iter()
            .for_each(|unread| tracing::warn!("{unread}"));
        stop_loudly();
        allow_many_files();
        if self.exit_with_stdin {
            exit_with_stdin()?;
        }
        runtime.block_on(run(config, hangup))
    }
}

async fn run(config: Config, mut hangup: Signal) -> Result<ExitCode, CommandFailed> {
    // Before the node starts: a signal that arrives in between must not kill it.
    let mut terminate = signal(SignalKind::terminate()).map_err(|e| no_signals(&e))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|e| no_signals(&e))?;
    let (connections_max, leave_timeout, takes_no_commands) = (
        config.resp.connections_max,
        config.leave_timeout,
        config.takes_no_commands(),
    );
    let node = doyen::start(config).await.map_err(|e| match e {
        Error::Config(e) => e.into(),
        // The configuration names a file, and that file is missing or wrong.
        Error::Identity(_) => CommandFailed::usage(e.to_string()),
        _ => CommandFailed::new(e.to_string()),
    })?;
    // Not before the start: if a port is in use, that error stands alone.
    if node.insecure() {
        tracing::warn!(
            "no secret is given (--secret-file or DOYEN_SECRET): this node talks only to nodes on \
             this machine"
        );
    }
    if takes_no_commands {
        tracing::warn!(
            "no token is given: by HTTP, this node answers only /healthz and /readyz until the \
             cluster has named tokens. Start a node with --http-token-file FILE, and make them \
             with `doyen token new NAME --http-token-file FILE`"
        );
    }
    for warning in doyen::doctor::machine_warnings(connections_max) {
        tracing::warn!("{warning}");
    }
    announce(&node)?;
    let mut service = std::pin::pin!(service::follow(&node));
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            Some(()) = hangup.recv() => match node.reload() {
                true => tracing::info!("SIGHUP: all other options need a restart"),
                false => tracing::info!(
                    "SIGHUP: there is nothing to read again without --secret-file, \
                     --http-token-file or --tls-* files; all other options need a restart"
                ),
            },
            () = &mut service => {}
            end = node.closed() => {
                let why = match end {
                    Err(why) => why.to_string(),
                    Ok(departure) => format!("the node has left ({departure:?})"),
                };
                node.kill().await;
                return Err(CommandFailed::new(why));
            }
        }
    }
    service::leaves(leave_timeout);
    if node.is_member() {
        tracing::info!(
            "leaving: handing over the data of this node (a second signal ends it at once)"
        );
    }
    let leave = node.shutdown();
    tokio::pin!(leave);
    tokio::select! {
        departure = &mut leave => Ok(match departure {
            Departure::Complete => {
                tracing::info!("left");
                ExitCode::SUCCESS
            }
            Departure::Outside => {
                tracing::info!("stopped: this node was part of no cluster, so nothing is lost");
                ExitCode::SUCCESS
            }
            Departure::Unrepaired => {
                tracing::warn!(
                    "left after --leave-timeout: other members hold all data, \
                     some of it in fewer copies than it should have"
                );
                ExitCode::SUCCESS
            }
            Departure::Alone => {
                tracing::warn!(
                    "left: this node never had another member, so the keys that it held are lost"
                );
                ExitCode::SUCCESS
            }
            Departure::Last { keys } => {
                let keys = counted(keys, KEYS);
                tracing::error!(
                    "left, and no member stayed or came to take over: this node held {keys}, and \
                     that data is lost"
                );
                ExitCode::from(3)
            }
            Departure::TimedOut { partitions: 0 } => {
                tracing::warn!(
                    "left before everything was handed over (--leave-timeout): other members hold \
                     all keys that this node held; `doyen status` says `safe` when each key has \
                     all its copies again"
                );
                ExitCode::SUCCESS
            }
            Departure::TimedOut { partitions } => {
                let partitions = counted(partitions, PARTITIONS);
                tracing::error!(
                    "left before everything was handed over (--leave-timeout): the keys of \
                     {partitions} are lost, because no member that answers and stays \
                     has a copy of them"
                );
                ExitCode::from(3)
            }
        }),
        // No destructors: they would wait for the very threads that are too slow.
        _ = terminate.recv() => std::process::exit(128 + SignalKind::terminate().as_raw_value()),
        _ = interrupt.recv() => std::process::exit(128 + SignalKind::interrupt().as_raw_value()),
    }
}

fn no_signals(e: &std::io::Error) -> CommandFailed {
    CommandFailed::new(format!("cannot watch signals: {e}"))
}

/// Prints the ports that the node listens on, in one line that programs can read.
fn announce(node: &Node) -> Result<(), CommandFailed> {
    let line = Ready::of(node);
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|e| CommandFailed::new(format!("cannot write to stdout: {e}")))
}

/// A broken invariant in one thread must not leave a node half alive: the other members would wait
/// for it forever.
fn stop_loudly() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::abort();
    }));
}

/// Raises the limit on open files. Each connection is an open file, and shells allow few.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(e) = setrlimit(Resource::Nofile, wanted) {
        tracing::debug!("the limit on open files stays at {:?}: {e}", limit.current);
    }
}

fn exit_with_stdin() -> Result<(), CommandFailed> {
    let watch = || {
        let mut byte = [0];
        // When the parent dies, its end of the pipe closes. Bytes that it writes mean nothing.
        while !matches!(std::io::stdin().read(&mut byte), Ok(0) | Err(_)) {}
        std::process::exit(1);
    };
    std::thread::Builder::new()
        .name("doyen-stdin".into())
        .spawn(watch)
        .map_err(|e| CommandFailed::new(format!("cannot start: {e}")))?;
    Ok(())
}
