//! The load that the flags ask for, and each thread's part of it. It is the same for all targets.

use super::CommandFailed;
use super::keys::{BenchKeys, KEYS_MAX};
use super::plan::{BenchPlan, OperationKind};
use super::schedule::Schedule;
use crate::{KEYS, counted};
use clap::ValueEnum;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng, distr::Alphanumeric};
use std::time::Duration;

/// The highest rate. Each start is scheduled by itself, so a higher one would only cost time.
const RATE_MAX: f64 = 1e7;
/// The largest value.
const VALUE_BYTES_MAX: usize = 1 << 29;
/// A day.
const SECONDS_MAX: f64 = 86_400.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TestedOperations {
    Get,
    Set,
    Mixed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KeyDistribution {
    Uniform,
    Zipf,
}

/// The load.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Load")]
pub(super) struct BenchLoad {
    /// Which operations to run
    #[arg(long, value_enum, default_value = "mixed", value_name = "WHICH")]
    operation: TestedOperations,
    /// Share of reads among mixed operations, in percent [default: 80]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    reads: Option<u8>,
    /// Number of keys: key:000000000000 and so on
    #[arg(
        long,
        default_value_t = 100_000,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..=KEYS_MAX)
    )]
    keys: u64,
    /// How keys are drawn: all equally often, or some of them much more often
    #[arg(long, value_enum, default_value = "uniform", value_name = "HOW")]
    distribution: KeyDistribution,
    /// Zipf's exponent: the larger, the hotter the first keys [default: 0.99]
    #[arg(long, value_name = "S")]
    exponent: Option<f64>,
    /// Size of a value in bytes
    #[arg(long, default_value_t = 100, value_name = "N")]
    value_bytes: usize,
    /// Connections of all threads together
    #[arg(
        long,
        default_value_t = 50,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    connections: u16,
    /// Unanswered operations of one connection at a time
    #[arg(
        long,
        default_value_t = 1,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    in_flight: u16,
    /// Wait for the replies to all operations in flight, then send the next ones at once
    #[arg(long)]
    batch: bool,
    /// Open loop: start this many operations a second, however fast the replies come. Latency
    /// counts from the intended start
    #[arg(long, value_name = "OPS")]
    rate: Option<f64>,
    /// Length of the measurement in seconds
    #[arg(long, default_value_t = 5.0, value_name = "S")]
    seconds: f64,
    /// Seconds of the same load before the measurement
    #[arg(long, default_value_t = 1.0, value_name = "S")]
    warmup: f64,
    /// Write every key once before the measurement, so that reads find values
    #[arg(long)]
    fill: bool,
    /// Leave the keys there that were written. Without it, all of --keys are deleted in the end,
    /// unless nothing was written, or the server still owes replies
    #[arg(long)]
    keep: bool,
    /// Threads that generate load
    #[arg(
        long,
        default_value_t = 1,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=256)
    )]
    threads: u16,
    /// Seed for operations, keys and values: the same seed gives the same load
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    seed: u64,
}

impl BenchLoad {
    /// Checks what depends on several flags.
    pub(super) fn check(&self) -> Result<(), CommandFailed> {
        let wrong = |what: String| Err(CommandFailed::usage(what));
        if !(self.seconds > 0.0 && self.seconds <= SECONDS_MAX) {
            return wrong(format!(
                "--seconds {} is too short or too long: give more than 0 and at most {SECONDS_MAX}",
                self.seconds
            ));
        }
        if !(self.warmup >= 0.0 && self.warmup <= SECONDS_MAX) {
            return wrong(format!(
                "--warmup {} is not a time: give 0 to {SECONDS_MAX} seconds",
                self.warmup
            ));
        }
        if let Some(rate) = self.rate.filter(|rate| !(*rate > 0.0 && *rate <= RATE_MAX)) {
            return wrong(format!(
                "--rate {rate} is not a rate: give operations a second, {RATE_MAX} at most, or \
                 omit it for the closed loop"
            ));
        }
        if self.value_bytes > VALUE_BYTES_MAX {
            return wrong(format!(
                "--value-bytes {} is too large: give at most {VALUE_BYTES_MAX}",
                self.value_bytes
            ));
        }
        if self.threads > self.connections {
            return wrong(format!(
                "--threads {} leaves threads without a connection: give at least as many \
                 --connections as --threads",
                self.threads
            ));
        }
        if self.reads.is_some() && self.operation != TestedOperations::Mixed {
            return wrong(format!(
                "--reads does not apply to --operation {}: use it with --operation mixed",
                self.operation()
            ));
        }
        if self.exponent.is_some() && matches!(self.distribution, KeyDistribution::Uniform) {
            return wrong(
                "--exponent does not apply to uniform keys: use it with --distribution zipf".into(),
            );
        }
        self.drawn().map(drop)
    }

    fn reads(&self) -> u8 {
        self.reads.unwrap_or(80)
    }

    fn exponent(&self) -> f64 {
        self.exponent.unwrap_or(0.99)
    }

    /// Whether anything is written, apart from `--fill`.
    pub(super) fn writes(&self) -> bool {
        self.operation != TestedOperations::Get
    }

    pub(super) fn operation(&self) -> &'static str {
        match self.operation {
            TestedOperations::Get => "get",
            TestedOperations::Set => "set",
            TestedOperations::Mixed => "mixed",
        }
    }

    pub(super) fn keys(&self) -> u64 {
        self.keys
    }

    pub(super) fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.into()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.into()
    }

    pub(super) fn batch(&self) -> bool {
        self.batch
    }

    pub(super) fn fill(&self) -> bool {
        self.fill
    }

    pub(super) fn threads(&self) -> usize {
        self.threads.into()
    }

    pub(super) fn seconds(&self) -> f64 {
        self.seconds
    }

    pub(super) fn warmup(&self) -> Duration {
        Duration::from_secs_f64(self.warmup)
    }

    /// The connections of one thread.
    pub(super) fn lanes(&self, thread: usize) -> usize {
        let (all, threads) = (usize::from(self.connections), self.threads());
        all / threads + usize::from(thread < all % threads)
    }

    /// The bytes of every value: letters and digits, which are readable in a dump and do not
    /// compress to nothing.
    pub(super) fn value(&self) -> Vec<u8> {
        StdRng::seed_from_u64(self.seed)
            .sample_iter(Alphanumeric)
            .take(self.value_bytes)
            .collect()
    }

    /// Whether the keys are deleted in the end.
    pub(super) fn empties(&self) -> bool {
        !self.keep && (self.fill || self.writes())
    }

    /// The keys that one thread writes for `--fill`, or deletes in the end.
    pub(super) fn every(&self, thread: usize, kind: OperationKind) -> BenchPlan {
        let bound = |thread: usize| {
            (u128::from(self.keys) * thread as u128 / self.threads() as u128) as u64
        };
        BenchPlan::every(kind, bound(thread)..bound(thread + 1))
    }

    /// The operations of one thread.
    pub(super) fn plan(&self, thread: usize) -> Result<BenchPlan, CommandFailed> {
        let reads = match self.operation {
            TestedOperations::Get => 100,
            TestedOperations::Set => 0,
            TestedOperations::Mixed => self.reads(),
        };
        // Each thread needs operations of its own. Neighbouring seeds give unrelated sequences.
        Ok(BenchPlan::drawn(
            self.drawn()?,
            reads,
            self.seed.wrapping_add(1 + thread as u64),
        ))
    }

    /// When the operations of one thread start.
    pub(super) fn schedule(&self, thread: usize, starts_at: u64) -> Schedule {
        let ends_at = starts_at
            + self.warmup().as_nanos() as u64
            + Duration::from_secs_f64(self.seconds).as_nanos() as u64;
        let Some(rate) = self.rate else {
            return Schedule::closed(ends_at);
        };
        let lanes = self.lanes(thread);
        // The starts of the threads are interleaved.
        let offset = (thread as f64 * 1e9 / rate) as u64;
        Schedule::open(
            rate * lanes as f64 / f64::from(self.connections),
            lanes,
            starts_at + offset,
            ends_at,
        )
    }

    fn drawn(&self) -> Result<BenchKeys, CommandFailed> {
        match self.distribution {
            KeyDistribution::Uniform => Ok(BenchKeys::uniform(self.keys)),
            KeyDistribution::Zipf => {
                BenchKeys::zipf(self.keys, self.exponent()).map_err(CommandFailed::usage)
            }
        }
    }

    /// The load in words; `native`: through the native client.
    pub(super) fn words(&self, native: bool) -> String {
        let mut words = self.operation().to_owned();
        if self.operation == TestedOperations::Mixed {
            words += &format!(" ({} % reads)", self.reads());
        }
        words += &match self.distribution {
            KeyDistribution::Uniform => format!(", {}", counted(self.keys, KEYS)),
            KeyDistribution::Zipf => {
                let keys = counted(self.keys, KEYS);
                format!(", {keys} by Zipf ({})", self.exponent())
            }
        };
        let (connections, in_flight) = (self.connections, self.in_flight);
        let who = if native {
            let callers = u32::from(connections) * u32::from(in_flight);
            let callers = counted(callers, ("caller", "callers"));
            format!("{callers} with one operation in flight")
        } else {
            let connections = counted(connections, ("connection", "connections"));
            format!("{connections} with {in_flight} in flight")
        };
        let bytes = counted(self.value_bytes, ("byte", "bytes"));
        words += &format!(", values of {bytes}; {who}");
        if self.batch {
            words += " in batches";
        }
        match self.rate {
            Some(rate) => words + &format!(", open loop of {rate} a second"),
            None => words + ", closed loop",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        load: BenchLoad,
    }

    fn load(flags: &str) -> BenchLoad {
        Alone::try_parse_from(std::iter::once("bench").chain(flags.split_whitespace()))
            .expect("flags")
            .load
    }

    #[test]
    fn threads_share_keys_connections_and_rate() {
        let load =
            load("--threads 3 --connections 10 --keys 100 --rate 1000 --seconds 2 --warmup 0");
        assert_eq!((0..3).map(|t| load.lanes(t)).collect::<Vec<_>>(), [4, 3, 3]);
        let filled: Vec<u64> = (0..3)
            .flat_map(|t| load.every(t, OperationKind::Set))
            .map(|o| o.key)
            .collect();
        assert_eq!(filled, (0..100).collect::<Vec<_>>());
        let starts: u64 = (0..3).map(|t| load.schedule(t, 0).behind()).sum();
        assert!((1996..=2001).contains(&starts), "{starts}");
    }

    #[test]
    fn flags_that_make_no_load_are_refused_by_name() {
        assert!(load("").check().is_ok());
        for (wrong, name) in [
            ("--seconds 0", "--seconds"),
            ("--seconds NaN", "--seconds"),
            ("--warmup=-1", "--warmup"),
            ("--rate 0", "--rate"),
            ("--rate inf", "--rate"),
            ("--rate 1e12", "--rate"),
            ("--value-bytes 9999999999", "--value-bytes"),
            ("--threads 2 --connections 1", "--threads"),
            ("--distribution zipf --exponent=-1", "--exponent"),
        ] {
            let failed = load(wrong).check().expect_err(wrong);
            assert!(
                failed.status == 2 && failed.message.contains(name),
                "{wrong}: {failed:?}"
            );
        }
    }

    #[test]
    fn values_have_the_requested_length() {
        assert_eq!(load("--value-bytes 33").value().len(), 33);
        assert!(
            load("--value-bytes 33")
                .value()
                .iter()
                .all(u8::is_ascii_alphanumeric)
        );
        assert!(load("--value-bytes 0").value().is_empty());
    }
}
