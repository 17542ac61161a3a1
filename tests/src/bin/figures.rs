//! Measures the figures of docs/performance.md on this machine. `figures --help` lists them, and
//! the `Justfile` has the commands.

use clap::{Args, Parser, Subcommand};
use doyen_tests::measure::failover::{self, Harm, Victim};
use doyen_tests::measure::{costs, gaps, moving, scale, stall};
use std::process::ExitCode;

/// Measures what Doyen does on this machine, and prints the figures
#[derive(Debug, Parser)]
#[command(name = "figures")]
struct Options {
    #[command(subcommand)]
    what: What,
    /// The program to measure: cargo build --release -p doyen-cli
    #[arg(
        long,
        value_name = "PATH",
        default_value = "target/release/doyen",
        global = true
    )]
    binary: String,
}

#[derive(Debug, Subcommand)]
enum What {
    /// How long writes stall when a node is killed (SIGKILL)
    Kill(Failover),
    /// How long writes stall when a node is stopped (SIGSTOP), as if its machine hung
    Stop(Failover),
    /// How long writes stall when a node leaves (SIGTERM)
    Term(Failover),
    /// How long three fresh nodes take from the start to the first acknowledged write
    Start {
        /// Number of runs
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = at_least_one())]
        runs: u64,
    },
    /// How long a fourth node takes to join a cluster with 100 MB
    Join {
        /// Number of runs
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one())]
        runs: u64,
    },
    /// Processor time and memory of an idle node, and of idle connections
    Idle,
    /// Memory used by each key
    Bytes {
        /// Number of keys
        #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = at_least_one())]
        keys: u64,
    },
    /// What a larger cluster costs
    Scale(scale::Plan),
    /// The longest stalls while a cluster grows, expires, copies and drops (some minutes, 6 GB)
    Stall(stall::Plan),
    /// What readers and writers notice while a node joins, is drained, dies, or all are restarted
    /// one after the other (some minutes, 4 GB)
    Move(moving::Plan),
    /// What applications notice of a fault, by client library (tests/gaps/build.sh first)
    Gaps(gaps::GapPlan),
    /// A program that embeds a member, for `gaps`
    #[command(hide = true)]
    GapsMember(gaps::EmbeddedMember),
    /// A program that is a native client, for `gaps`
    #[command(hide = true)]
    GapsClient(gaps::EmbeddedClient),
}

#[derive(Debug, Args)]
struct Failover {
    /// Number of runs: 20 (stop, term: 5)
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    runs: Option<u64>,
    /// Which node is hurt
    #[arg(long, value_name = "WHO", value_enum, default_value = "coordinator")]
    victim: Victim,
}

impl Failover {
    fn run(&self, binary: &str, harm: Harm, runs: u64) {
        failover::run(binary, harm, self.victim, self.runs.unwrap_or(runs));
    }
}

fn at_least_one() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..)
}

fn ended(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why:#}");
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    let Options { what, binary } = doyen_cli::parse();
    match what {
        What::GapsMember(member) => return ended(member.run()),
        What::GapsClient(client) => return ended(client.run()),
        _ if !std::path::Path::new(&binary).is_file() => {
            eprintln!(
                "figures: {binary} does not exist; build it with \
                 cargo build --release -p doyen-cli, or name another with --binary"
            );
            return ExitCode::from(2);
        }
        What::Kill(plan) => plan.run(&binary, Harm::Kill, 20),
        What::Stop(plan) => plan.run(&binary, Harm::Stop, 5),
        What::Term(plan) => plan.run(&binary, Harm::Term, 5),
        What::Start { runs } => costs::start(&binary, runs),
        What::Join { runs } => costs::join(&binary, runs),
        What::Idle => costs::idle(&binary),
        What::Bytes { keys } => costs::bytes(&binary, keys),
        What::Scale(plan) => scale::run(&binary, &plan),
        What::Stall(plan) => stall::run(&binary, &plan),
        What::Move(plan) => return ended(moving::run(&binary, plan)),
        What::Gaps(plan) => return ended(gaps::run(&binary, &plan)),
    }
    ExitCode::SUCCESS
}
