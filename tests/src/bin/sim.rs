//! Runs many seeds of the simulation and prints what they did: `cargo run --release -p doyen-tests --bin sim -- --seeds 2000`.

use doyen_tests::sim;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

fn number(name: &str) -> Option<u64> {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|a| a == name)?;
    arguments.get(at + 1)?.parse().ok()
}

fn main() -> std::process::ExitCode {
    if let Some(seed) = number("--seed") {
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
    let (first, seeds) = (number("--from").unwrap_or(0), number("--seeds").unwrap_or(100));
    let threads = number("--threads").unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u64));
    let (next, total, failures) = (AtomicU64::new(first), Mutex::new(sim::Report::default()), AtomicU64::new(0));
    let shown = number("--show").unwrap_or(0);
    // A panic of a machine is a result here: one line, not a backtrace.
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        return;
                    }
                    match sim::run(seed, false, false) {
                        Ok(report) => {
                            if let Ok(mut total) = total.lock() {
                                total.add(&report);
                            }
                        }
                        Err(failed) => {
                            failures.fetch_add(1, Ordering::Relaxed);
                            let lines = if shown > 0 { usize::MAX } else { 1 };
                            let what: Vec<&str> = failed.what.lines().take(lines).collect();
                            println!("seed {} at {:.3} s: {}", failed.seed, failed.at_ns as f64 / 1e9, what.join("\n"));
                        }
                    }
                }
            });
        }
    });
    let total = total.into_inner().unwrap_or_default();
    let failures = failures.into_inner();
    println!("{seeds} seeds, {failures} failed");
    println!("{}", sim::summary(&total));
    if failures == 0 { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}
