//! `doyen simulate`: how each way of placing keys would serve a cluster, without a cluster.
//!
//! ```text
//!   Cluster ── Event, Event, .. ──> nodes at each stage ──┐
//!   Keys: names, sizes, loads ────────────────────────────┴─> run(strategy) ──> Outcome
//! ```
//!
//! A [`StrategyOutcome`] says how even the cluster is and how much moved. Doyen's own strategies
//! run its own code: the planner of production drives `fixed`, and [`doyen_placement::ring`] drives
//! `ring`. So a prediction says what a cluster does. The other strategies are for comparison.
//!
//! The flags, the files, the clock that measures look-ups, and the printed text are here too.

mod cluster;
mod comparison;
mod figures;
mod key_file;
mod keys;
mod live;
mod plot;
mod print;
mod strategy;
#[cfg(test)]
mod tests;

use super::admin::AdminCredentials;
use super::{COPIES, CommandFailed, counted};
use clap::ValueEnum;
use cluster::{SimulatedCluster, SimulatedEvent, SimulatedStage};
use comparison::run;
use doyen::http::api;
use figures::StrategyOutcome;
use keys::{KEYS_MAX, SimulatedDistribution, SimulatedKeys};
use live::what_if;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use strategy::{StrategyKind, StrategyOptions};

/// The most copies beside the primary that a keyspace may have.
const BACKUPS_MAX: i64 = doyen_placement::table::validate::BACKUPS_MAX as i64;
/// How long look-ups of one strategy are measured.
const MEASURED_FOR: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DistributionName {
    Uniform,
    Zipf,
    Sequential,
    TimeSeries,
}

/// Compares ways of placing keys.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Events: +2 (two nodes join), -node3 (node3 leaves), x2 (twice as many nodes), node1=200 (another \
weight; 100 is the default).
Strategies: mod, fixed, ring-16, ring-16-random (or another number of tokens), range, rendezvous, \
jump.

Status: 0 success; 1 a file could not be written; 2 a flag or the file of keys is wrong.")]
pub(super) struct Simulate {
    /// Nodes at the start: node1, node2 and so on
    #[arg(long, default_value_t = 4, value_name = "N")]
    nodes: usize,
    /// Weights of the nodes, in order; 100 for the others
    #[arg(long, value_name = "WEIGHT", value_delimiter = ',')]
    weights: Vec<u32>,
    /// Zones, which the nodes get in turn
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    zones: Vec<String>,
    /// Events, in order, for example +1,-node3,x2
    #[arg(
        long,
        value_name = "EVENT",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    events: Vec<SimulatedEvent>,
    /// Number of keys, each of 64 to 4096 bytes
    #[arg(
        long,
        default_value_t = 100_000,
        value_name = "N",
        conflicts_with = "key_file"
    )]
    keys: usize,
    /// Names and loads of the keys: random names with equal loads, or with most of the load on some
    /// of them; numbers that count up; or times, the newest with the most load
    #[arg(
        long,
        value_enum,
        default_value = "uniform",
        value_name = "WHICH",
        conflicts_with = "key_file"
    )]
    distribution: DistributionName,
    /// Zipf's exponent: the larger, the hotter the first keys [default: 0.99]
    #[arg(long, value_name = "S")]
    exponent: Option<f64>,
    /// File with a key, its bytes and its number of operations on each line, separated by blanks
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Strategies to compare [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    strategies: Vec<StrategyKind>,
    /// Copies beside the primary
    #[arg(
        long,
        default_value_t = 1,
        value_name = "N",
        value_parser = clap::value_parser!(u8).range(0..=BACKUPS_MAX)
    )]
    backups: u8,
    /// Partitions of fixed, and ranges of range: a power of two up to 16384
    #[arg(long, default_value_t = 1024, value_name = "N")]
    partitions: u16,
    /// Show how even the load is if the hottest key is spread over this many names
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100_000))]
    salt: Option<u32>,
    /// Seed for keys and tokens: the same seed gives the same figures
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Start from a running cluster: take the table and the loads from this node's --http address
    #[arg(
        long,
        value_name = "ADDR",
        value_parser = super::admin::http_address,
        conflicts_with_all = [
            "nodes", "weights", "zones", "keys", "distribution", "exponent", "key_file",
            "strategies", "backups", "partitions", "salt",
        ]
    )]
    from_cluster: Option<String>,
    #[command(flatten)]
    credentials: AdminCredentials,
    /// Print JSON with every stage and every node
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV, one line for each strategy and stage
    #[arg(long)]
    csv: bool,
    /// Write charts to this file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

impl Simulate {
    pub(super) fn main(self) -> Result<ExitCode, CommandFailed> {
        let (outcomes, words) = match &self.from_cluster {
            Some(address) => self.of_cluster(address)?,
            None => self.of_strategies()?,
        };
        if self.json {
            super::say(format_args!(
                "{}\n",
                serde_json::to_string(&outcomes).map_err(|e| CommandFailed::new(e.to_string()))?
            ));
        } else if self.csv {
            super::say(format_args!("{}", print::csv(&outcomes)));
        } else {
            super::say(format_args!("{words}\n\n{}", print::table(&outcomes)));
        }
        if let Some(path) = &self.plot {
            let svg = plot::svg(&outcomes, &words)
                .map_err(|e| CommandFailed::new(format!("cannot draw: {e}")))?;
            std::fs::write(path, svg)
                .map_err(|e| CommandFailed::new(format!("cannot write {}: {e}", path.display())))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn of_strategies(&self) -> Result<(Vec<StrategyOutcome>, String), CommandFailed> {
        let stages = self.stages()?;
        let keys = self.keys()?;
        Ok((
            self.kinds()
                .iter()
                .map(|kind| self.outcome(*kind, &stages, &keys))
                .collect(),
            self.words(&keys),
        ))
    }

    fn of_cluster(&self, address: &str) -> Result<(Vec<StrategyOutcome>, String), CommandFailed> {
        let client = self.credentials.client(address)?;
        let asked = super::runtime()?.block_on(client.ask(&api::PLACEMENT));
        let asked = asked.map_err(|e| CommandFailed::new(e.to_string()))?;
        let (table, loads) = asked.checked().map_err(|e| {
            CommandFailed::new(format!("{address} answers with an invalid table: {e}"))
        })?;
        let words = format!(
            "the cluster at {address}: table {}, {} partitions, each counted as a key",
            table.version,
            table.partitions().count()
        );
        let outcome = what_if(table, &loads, &self.events)
            .map_err(|e| CommandFailed::usage(e.to_string()))?;
        Ok((vec![outcome], words))
    }

    fn stages(&self) -> Result<Vec<SimulatedStage>, CommandFailed> {
        if !self.partitions.is_power_of_two() || self.partitions > doyen_placement::hash::SLOTS {
            return Err(CommandFailed::usage(format!(
                "--partitions {}: give a power of two up to 16384",
                self.partitions
            )));
        }
        if let Some(wrong) = self.zones.iter().find(|zone| {
            zone.is_empty() || zone.len() > doyen_placement::table::validate::NAME_BYTES_MAX
        }) {
            return Err(CommandFailed::usage(format!(
                "--zones: `{wrong}` is not the name of a zone: give 1 to {} bytes",
                doyen_placement::table::validate::NAME_BYTES_MAX
            )));
        }
        let cluster = SimulatedCluster::new(self.nodes, &self.weights, &self.zones);
        cluster
            .and_then(|cluster| cluster.stages(&self.events))
            .map_err(|e| CommandFailed::usage(e.to_string()))
    }

    fn keys(&self) -> Result<SimulatedKeys, CommandFailed> {
        if let Some(path) = &self.key_file {
            return key_file::read(path).map_err(CommandFailed::usage);
        }
        if !(1..=KEYS_MAX).contains(&self.keys) {
            return Err(CommandFailed::usage(format!(
                "--keys {}: give 1 to {KEYS_MAX}",
                self.keys
            )));
        }
        let distribution = match (self.distribution, self.exponent) {
            (DistributionName::Zipf, exponent) => {
                SimulatedDistribution::Zipf(exponent.unwrap_or(0.99))
            }
            (_, Some(_)) => {
                return Err(CommandFailed::usage(
                    "--exponent does not apply: use it with --distribution zipf",
                ));
            }
            (DistributionName::Uniform, None) => SimulatedDistribution::Uniform,
            (DistributionName::Sequential, None) => SimulatedDistribution::Sequential,
            (DistributionName::TimeSeries, None) => SimulatedDistribution::TimeSeries,
        };
        match distribution {
            SimulatedDistribution::Zipf(exponent) if !(0.0..=100.0).contains(&exponent) => {
                Err(CommandFailed::usage(format!(
                    "--exponent {exponent} is not an exponent of Zipf's law: give 0 to 100"
                )))
            }
            _ => Ok(SimulatedKeys::drawn(self.keys, distribution, self.seed)),
        }
    }

    fn kinds(&self) -> Vec<StrategyKind> {
        if self.strategies.is_empty() {
            StrategyKind::ALL.to_vec()
        } else {
            self.strategies.clone()
        }
    }

    fn outcome(
        &self,
        kind: StrategyKind,
        stages: &[SimulatedStage],
        keys: &SimulatedKeys,
    ) -> StrategyOutcome {
        let copies = 1 + usize::from(self.backups);
        let mut strategy = kind.strategy(&StrategyOptions {
            copies,
            partitions: self.partitions,
            seed: self.seed,
            keys,
        });
        let mut outcome = run(
            &kind.to_string(),
            strategy.as_mut(),
            stages,
            keys,
            copies,
            self.salt,
        );
        let mut holders = Vec::with_capacity(copies);
        let (began, mut looked_up) = (Instant::now(), 0_u64);
        // At least one round. Each reading of the clock covers many look-ups.
        'measured: while looked_up == 0 || began.elapsed() < MEASURED_FOR {
            for number in 0..keys.len() {
                holders.clear();
                strategy.holders(keys.key(number).name, &mut holders);
                std::hint::black_box(&holders);
                looked_up += 1;
                if looked_up.is_multiple_of(4096) && began.elapsed() >= MEASURED_FOR {
                    break 'measured;
                }
            }
        }
        outcome.lookup_ns = Some(began.elapsed().as_secs_f64() * 1e9 / looked_up as f64);
        outcome
    }

    /// The simulated cluster and its keys, in words.
    fn words(&self, keys: &SimulatedKeys) -> String {
        let kind = match (&self.key_file, self.distribution) {
            (Some(path), _) => format!("keys of {}", path.display()),
            (None, DistributionName::Uniform) => "keys with equal loads".to_owned(),
            (None, DistributionName::Zipf) => "keys with loads by Zipf's law".to_owned(),
            (None, DistributionName::Sequential) => "keys that count up".to_owned(),
            (None, DistributionName::TimeSeries) => {
                "keys in order of time, the newest with the most load".to_owned()
            }
        };
        let events: Vec<String> = self.events.iter().map(ToString::to_string).collect();
        let events = if events.is_empty() {
            String::new()
        } else {
            format!(", then {}", events.join(", "))
        };
        let zones = if self.zones.is_empty() {
            String::new()
        } else {
            format!(" in {} zones", self.zones.len())
        };
        let (nodes, copies) = (
            counted(self.nodes, ("node", "nodes")),
            counted(1 + usize::from(self.backups), COPIES),
        );
        format!(
            "{nodes}{zones}{events}; {} {kind}, {copies} of each",
            keys.len()
        )
    }
}
