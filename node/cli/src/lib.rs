//! The command line. A command that fails prints one line on stderr, which says what to do, and
//! ends with a status that is not 0:
//!
//! | status | |
//! |---|---|
//! | 0 | success; for `run`: the node left in order |
//! | 1 | failure |
//! | 2 | a flag, a file or a variable is wrong |
//! | 3 | `run` left, and keys are lost that no other member has |
//! | 130 | `demo` was interrupted; or `chaos`, twice or before its first fault |
//! | 141 | the reader of the output closed the pipe |
//! | 128 + n | `run` was told twice to end (signal n), and ended at once |

mod admin;
mod bench;
mod chaos;
mod demo;
mod describe;
mod dev;
mod migrate;
mod run;
mod screen;
mod secret;
mod simulate;
mod stay;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use doyen::InvalidField;
use doyen::config::ConfigError;
use doyen::testkit::{NotStarted, TestkitError};
use doyen_placement::words::{COPIES, ENTRIES, KEYS, PARTITIONS, counted};
use std::fmt;
use std::io::Write;
use std::process::ExitCode;

/// The reader of stdout closed the pipe. The status is that of a program that SIGPIPE ended.
const READER_LEFT: i32 = 141;

/// A peer-to-peer in-memory data grid that speaks Redis.
#[derive(Debug, Parser)]
#[command(name = "doyen", version, max_term_width = 110, after_help = STATUS_HELP)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

const STATUS_HELP: &str = "Status: 0 success; 1 failure; 2 a flag, a file or a variable is wrong; \
                           3 `run` left, and keys are lost that no other member has; 130 `demo` \
                           was interrupted, or `chaos` was interrupted twice. A command that \
                           fails prints the reason in one line on stderr.";

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run a node
    Run(Box<run::RunCommand>),
    /// Start a cluster on this machine, kill its coordinator under load, and count lost writes
    Demo(demo::Demo),
    /// Start a cluster on this machine that stays until Ctrl-C
    Dev(dev::Dev),
    /// Start a cluster on this machine, inject faults, and check every answer that clients got
    Chaos(chaos::Chaos),
    /// Put load on servers that speak Redis, and measure throughput and latency
    Bench(Box<bench::Bench>),
    /// Compare ways of placing keys on nodes that come and go; no cluster is needed
    Simulate(Box<simulate::Simulate>),
    /// Bring data from an RDB, AOF or NDJSON file, or from a running Redis or Valkey
    Import(Box<migrate::Import>),
    /// Write all keys to an RDB file, for Redis and Valkey, or to lines of JSON (NDJSON)
    Export(Box<migrate::Export>),
    #[command(flatten)]
    Admin(admin::AdminCommand),
    /// Print the alert rules for Prometheus, which docs/operations.md explains
    Alerts,
    /// Print completions for a shell
    Completions(describe::CompletionsCommand),
    /// Write pages for `man`
    Man(describe::ManCommand),
    /// Show the release, its commit, the levels that it speaks, and what is built in
    Version,
}

/// A command failed: the message, and the exit status.
#[derive(Debug)]
struct CommandFailed {
    message: String,
    status: u8,
}

impl CommandFailed {
    fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            status: 1,
        }
    }

    fn usage(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            status: 2,
        }
    }
}

impl From<ConfigError> for CommandFailed {
    fn from(e: ConfigError) -> Self {
        Self::usage(e.0)
    }
}

impl From<InvalidField> for CommandFailed {
    fn from(e: InvalidField) -> Self {
        Self::usage(e.why)
    }
}

impl From<TestkitError> for CommandFailed {
    fn from(e: TestkitError) -> Self {
        Self::new(e.to_string())
    }
}

impl From<NotStarted> for CommandFailed {
    fn from(e: NotStarted) -> Self {
        Self::new(e.to_string())
    }
}

/// The whole program.
pub fn main() -> ExitCode {
    let done = match parse::<Cli>().command {
        CliCommand::Run(run) => run.main(),
        CliCommand::Demo(demo) => demo.main(),
        CliCommand::Dev(dev) => dev.main(),
        CliCommand::Chaos(chaos) => chaos.main(),
        CliCommand::Bench(bench) => bench.main(),
        CliCommand::Simulate(simulate) => simulate.main(),
        CliCommand::Import(import) => import.main(),
        CliCommand::Export(export) => export.main(),
        CliCommand::Admin(admin) => block_on(admin.main()),
        CliCommand::Alerts => {
            say(format_args!("{}", doyen::ALERT_RULES));
            Ok(ExitCode::SUCCESS)
        }
        CliCommand::Completions(completions) => completions.main(),
        CliCommand::Man(man) => man.main(),
        CliCommand::Version => {
            describe::version();
            Ok(ExitCode::SUCCESS)
        }
    };
    done.unwrap_or_else(|failed| fail(&failed))
}

/// Parses the command line of a program: of this one, and of Doyen's own tools. Help goes to
/// stdout. If the command line is wrong, the program prints one line on stderr and ends with status
/// 2.
#[must_use]
pub fn parse<P: Parser>() -> P {
    P::try_parse().unwrap_or_else(|e| {
        if !e.use_stderr() {
            // Help and version.
            end_unless_printed(e.print().and_then(|()| std::io::stdout().flush()));
            std::process::exit(0);
        }
        let program = P::command();
        let _ = writeln!(
            std::io::stderr(),
            "{}: {}",
            program.get_name(),
            one_line(&e, &program)
        );
        std::process::exit(2);
    })
}

/// Prints to stdout. If the reader closed the pipe, the program ends as SIGPIPE would end it, and
/// does not panic.
fn say(text: fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    end_unless_printed(out.write_fmt(text).and_then(|()| out.flush()));
}

/// If stdout took nothing, the program says why and ends with status 1. If the reader closed the
/// pipe, it ends quietly.
fn end_unless_printed(printed: std::io::Result<()>) {
    match printed {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {
            std::process::exit(READER_LEFT);
        }
        Err(e) => {
            complain(format_args!("cannot write to stdout: {e}"));
            std::process::exit(1);
        }
    }
}

fn fail(failed: &CommandFailed) -> ExitCode {
    // A message of the system or of a peer may have several lines.
    let line = failed
        .message
        .split('\n')
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    complain(format_args!("{line}"));
    ExitCode::from(failed.status)
}

/// Prints to stderr. If stderr is closed, the exit status alone says that something failed.
fn complain(what: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "doyen: {what}");
}

/// Clap's message of several lines, in one line.
fn one_line(e: &clap::Error, program: &clap::Command) -> String {
    let name = program.get_name();
    let names = |command: &clap::Command| -> Vec<String> {
        command
            .get_subcommands()
            .map(|c| c.get_name().to_owned())
            .collect()
    };
    let commands = names(program);
    if e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // The usage begins with the command that lacks one of its own: "Usage: doyen keyspace ...".
        let text = e.to_string();
        let usage = text
            .lines()
            .find_map(|l| l.trim().strip_prefix("Usage: "))
            .unwrap_or_default();
        let (mut at, mut path) = (program, name.to_owned());
        for word in usage.split_whitespace().skip(1) {
            let Some(command) = at.find_subcommand(word) else {
                break;
            };
            at = command;
            path = format!("{path} {word}");
        }
        return format!(
            "name a command: {path} {}; `{path} --help` explains them",
            names(at).join(", ")
        );
    }
    let text = e.to_string();
    let mut parts = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("Usage:") || line.starts_with("For more information") {
            break;
        }
        if !line.is_empty() {
            parts.push(
                line.trim_start_matches("error: ")
                    .replace("tip: ", "- ")
                    .replace("[possible values", "- [possible values"),
            );
        }
    }
    // The standard library's words for a wrong number do not help an operator.
    let mut said = parts.join(" ");
    for cryptic in [
        "invalid digit found in string",
        "cannot parse integer from empty string",
    ] {
        said = said.replace(cryptic, "a whole number is expected");
    }
    if let Some(variable) = variable_of(e) {
        said = format!("the variable {variable}: {said}");
    }
    let each = if commands.is_empty() {
        String::new()
    } else {
        format!(", `{name} COMMAND --help`")
    };
    format!("{said} (see `{name} --help`{each})")
}

/// The variable that a wrong value came from; `None` if it came from a flag.
fn variable_of(e: &clap::Error) -> Option<String> {
    let (Some(ContextValue::String(arg)), Some(ContextValue::String(value))) = (
        e.get(ContextKind::InvalidArg),
        e.get(ContextKind::InvalidValue),
    ) else {
        return None;
    };
    let flag = arg.split_whitespace().next()?;
    let typed = |word: String| {
        word == flag
            || word
                .strip_prefix(flag)
                .is_some_and(|rest| rest.starts_with('='))
    };
    if std::env::args_os()
        .filter_map(|word| word.into_string().ok())
        .any(typed)
    {
        return None;
    }
    let variable = format!(
        "DOYEN_{}",
        flag.trim_start_matches('-')
            .replace('-', "_")
            .to_uppercase()
    );
    (std::env::var(&variable).ok()? == *value).then_some(variable)
}

/// A number of bytes with a unit.
#[allow(clippy::cast_precision_loss)] // one digit after the point
fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..10_000_000 => format!("{:.1} KB", count as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.1} GB", count as f64 / 1e9),
    }
}

/// Breaks a text into lines of at most `columns`. A longer word gets a line of its own.
fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(last) = lines.last_mut() else { break };
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= columns {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn runtime() -> Result<tokio::runtime::Runtime, CommandFailed> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| CommandFailed::new(format!("cannot start: {e}")))
}

/// Waits for Ctrl-C or SIGTERM. The processes that the command started end with their owner.
async fn interrupted(command: &str) -> CommandFailed {
    let Ok(mut interrupts) = stay::Interrupts::new() else {
        return std::future::pending().await;
    };
    interrupts.next().await;
    ended_by_hand(command)
}

fn ended_by_hand(command: &str) -> CommandFailed {
    CommandFailed {
        message: format!("interrupted: every node of the {command} was stopped"),
        status: 130,
    }
}

fn block_on(
    work: impl Future<Output = Result<ExitCode, CommandFailed>>,
) -> Result<ExitCode, CommandFailed> {
    runtime()?.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn wrong_flags_end_in_one_line() {
        for wrong in [
            &["doyen", "run", "--sead", "x"][..],
            &["doyen", "run", "--weight", "much"],
            &["doyen", "fly"],
            &["doyen"],
        ] {
            let e = Cli::try_parse_from(wrong).expect_err("wrong");
            let line = one_line(&e, &Cli::command());
            assert!(!line.contains('\n') && line.contains("doyen"), "{line}");
        }
    }

    #[test]
    fn every_change_that_the_documentation_lists_has_a_command() {
        let page = include_str!("../../../docs/http.md");
        let command = Cli::command();
        let mut changes = 0;
        for row in page.lines() {
            let methods = ["POST", "PUT", "PATCH", "DELETE"];
            let is_change = |method: &&str| row.starts_with(&format!("| `{method} /"));
            // Single keys are data: for those there is redis-cli.
            if !methods.iter().any(is_change) || row.contains(" /console/key`") {
                continue;
            }
            changes += 1;
            let said = row.trim_end_matches(" |").rsplit("| `doyen ").next();
            let said = said.and_then(|said| said.split('`').next());
            let mut at = &command;
            for word in said.unwrap_or_default().split(' ') {
                if at.has_subcommands() {
                    at = at.find_subcommand(word).unwrap_or_else(|| panic!("{row}"));
                }
            }
            assert!(!at.has_subcommands(), "{row}");
        }
        assert!(changes > 20, "{changes}");
    }

    #[test]
    fn every_option_is_a_flag_a_variable_and_a_key() {
        let command = Cli::command();
        let run = command.find_subcommand("run").expect("there is run");
        for flag in run
            .get_arguments()
            .filter_map(|a| Some((a.get_long()?, a.get_env())))
        {
            if let (name, Some(variable)) = flag {
                assert_eq!(
                    variable.to_string_lossy(),
                    format!("DOYEN_{}", name.replace('-', "_").to_uppercase())
                );
                // If the value is wrong, the known key is not called unknown.
                let read = toml::from_str::<doyen::config::Options>(&format!("{name} = []"));
                let unknown = read.is_err_and(|e| e.message().contains("unknown field"));
                assert!(
                    !unknown || name == "config",
                    "--{name} is no key of the file"
                );
            }
        }
    }
}
