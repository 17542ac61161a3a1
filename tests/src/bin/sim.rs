//! Runs many seeds of the simulation and prints what they did: `cargo run --release -p doyen-tests --bin sim -- --seeds 2000`.

use clap::Parser;
use doyen_tests::sim;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

// As in the binary: a simulation allocates much.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Simulates clusters under faults, each from a seed, and checks the invariants. What a seed did can be seen again with --seed.
#[derive(Debug, Parser)]
#[command(name = "sim")]
struct Options {
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 100)]
    seeds: u64,
    /// The first of them
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Only this one, with its whole trace
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Seeds at a time: as many as there are cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    threads: Option<u64>,
    /// Tell of a failure more than its first line
    #[arg(long)]
    show: bool,
}

fn main() -> std::process::ExitCode {
    let options = Options::parse();
    if let Some(seed) = options.seed {
        return match sim::run(seed, true, true) {
            Ok(report) => {
                println!("{report:#?}");
                std::process::ExitCode::SUCCESS
            }
            Err(failed) => {
                println!("seed {} at {:.6} s: {}", failed.seed, failed.at_ns as f64 / 1e9, failed.what);
                std::process::ExitCode::FAILURE
            }
        };
    }
    let (first, seeds) = (options.from, options.seeds);
    let (total, failures) = (Mutex::new(sim::Report::default()), AtomicU64::new(0));
    // A panic of a machine is a result here: one line, not a backtrace.
    std::panic::set_hook(Box::new(|_| {}));
    sim::run_many(first..first.saturating_add(seeds), options.threads, |seed| {
        match sim::run(seed, false, false) {
            Ok(report) => {
                if let Ok(mut total) = total.lock() {
                    total.add(&report);
                }
            }
            Err(failed) => {
                failures.fetch_add(1, Ordering::Relaxed);
                let lines = if options.show { usize::MAX } else { 1 };
                let what: Vec<&str> = failed.what.lines().take(lines).collect();
                println!("seed {} at {:.3} s: {}", failed.seed, failed.at_ns as f64 / 1e9, what.join("\n"));
            }
        }
        ControlFlow::Continue(())
    });
    let total = total.into_inner().unwrap_or_default();
    let failures = failures.into_inner();
    println!("{seeds} seeds, {failures} failed");
    println!("{}", sim::summary(&total));
    if failures == 0 { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}
