//! Runs many seeds of the simulation and prints what happened in them: `cargo run --release -p
//! doyen-tests --bin sim -- --seeds 2000`.

use clap::Parser;
use doyen_tests::sim::{self, Case, Failed, Report, Tell};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

// As in the binary: a simulation allocates much.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How often a long run prints its progress.
const SAYS_EVERY: Duration = Duration::from_secs(60);

/// At most one in this many histories may be too large to judge.
const UNDECIDED_PART: u64 = 50;

/// More seeds than any machine runs in the longest time that `--hours` takes.
const SEEDS_OF_HOURS: u64 = 1 << 40;

/// Most runs to make one failure small.
const SHRINK_RUNS: usize = 400;

/// Simulates clusters under faults, each from a seed, and checks the invariants. A seed that fails
/// is made small: fewer faults, nodes, clients and keys. The run fails if a seed fails, or if
/// nothing was committed, moved or compared.
#[derive(Debug, Parser)]
#[command(name = "sim")]
struct Options {
    /// Number of seeds
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    seeds: u64,
    /// Hours to run, instead of a number of seeds
    #[arg(long, value_name = "HOURS", conflicts_with = "seeds", value_parser = hours)]
    hours: Option<f64>,
    /// The first seed; with --hours, it is another one each time
    #[arg(long, value_name = "SEED")]
    from: Option<u64>,
    /// Seeds that run at the same time; one for each core if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    threads: Option<u64>,
    /// Do not make failures small
    #[arg(long)]
    no_shrink: bool,
    /// Run this seed alone, and print its story
    #[arg(
        long,
        value_name = "SEED",
        conflicts_with_all = ["seeds", "hours", "from", "threads", "no_shrink"]
    )]
    seed: Option<u64>,
    /// With --seed: print every message
    #[arg(long)]
    all: bool,
    /// With --seed: only these faults, by number, with commas in between, or `none`
    #[arg(long, value_name = "NUMBERS", value_parser = faults)]
    faults: Option<Faults>,
    /// With --seed: at most this many nodes
    #[arg(long, value_name = "N", value_parser = some)]
    nodes: Option<usize>,
    /// With --seed: at most this many clients
    #[arg(long, value_name = "N", value_parser = some)]
    clients: Option<usize>,
    /// With --seed: at most this many keys of each kind
    #[arg(long, value_name = "N", value_parser = some)]
    keys: Option<usize>,
    /// With --seed: another course of events
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        value_parser = clap::value_parser!(u64).range(..1 << 31)
    )]
    salt: u64,
}

#[derive(Debug, Clone)]
struct Faults(BTreeSet<u32>);

fn faults(text: &str) -> Result<Faults, String> {
    if text == "none" {
        return Ok(Faults(BTreeSet::new()));
    }
    let number = |part: &str| {
        part.trim().parse().map_err(|_| {
            format!(
                "{part:?} is not the number of a fault; \
                write numbers with commas, such as 3,17, or none"
            )
        })
    };
    text.split(',')
        .map(number)
        .collect::<Result<_, _>>()
        .map(Faults)
}

fn hours(text: &str) -> Result<f64, String> {
    let hours = text
        .parse()
        .ok()
        .filter(|h: &f64| *h > 0.0 && *h <= 10_000.0);
    hours.ok_or_else(|| "this is no number of hours; write one above 0, such as 8 or 0.5".into())
}

fn some(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| "this is no number from 1; write one".into())
}

fn main() -> ExitCode {
    let options: Options = doyen_cli::parse();
    if let Err(status) = doyen_tests::can_catch_panics("sim") {
        return status;
    }
    // This is checked by hand, because clap does not require a flag that excludes others.
    let of_one = [
        ("--all", options.all),
        ("--faults", options.faults.is_some()),
        ("--nodes", options.nodes.is_some()),
        ("--clients", options.clients.is_some()),
        ("--keys", options.keys.is_some()),
        ("--salt", options.salt != 0),
    ];
    if let (None, Some((flag, _))) = (options.seed, of_one.iter().find(|(_, said)| *said)) {
        return doyen_tests::refuse(
            "sim",
            &format!("{flag} is for one seed; name it with --seed SEED"),
        );
    }
    doyen_tests::quiet_panics();
    match options.seed {
        Some(seed) => one(&options, seed),
        None => many(&options),
    }
}

/// Runs one case, and prints its story.
fn one(options: &Options, seed: u64) -> ExitCode {
    let faults = options.faults.clone().map(|f| f.0);
    let case = Case {
        seed,
        salt: options.salt,
        faults,
        nodes: options.nodes,
        clients: options.clients,
        keys: options.keys,
    };
    if let Some(unknown) = case.unknown_fault() {
        return doyen_tests::refuse("sim", &unknown);
    }
    match sim::run(
        &case,
        if options.all {
            Tell::Everything
        } else {
            Tell::Story
        },
    ) {
        Ok(report) => {
            println!(
                "holds; trace {:016x}\n{}",
                report.trace,
                sim::summary(&report)
            );
            ExitCode::SUCCESS
        }
        Err(failed) => {
            println!(
                "{case} at {:.6} s: {}",
                failed.at_ns as f64 / 1e9,
                failed.what
            );
            ExitCode::FAILURE
        }
    }
}

/// The sums of all seeds so far.
#[derive(Default)]
struct Sum {
    total: Report,
    seeds: u64,
    failures: Vec<Failed>,
    said: Option<Instant>,
}

fn many(options: &Options) -> ExitCode {
    let began = Instant::now();
    let end = options
        .hours
        .map(|hours| began + Duration::from_secs_f64(hours * 3_600.0));
    // A run each night shall have other seeds each night.
    let of_today = || {
        std::time::UNIX_EPOCH
            .elapsed()
            .map_or(0, |since| since.as_secs())
            << 20
    };
    let first = options
        .from
        .unwrap_or_else(|| end.map_or(0, |_| of_today()));
    let seeds = match sim::seeds(
        first,
        if end.is_some() {
            SEEDS_OF_HOURS
        } else {
            options.seeds
        },
    ) {
        Ok(seeds) => seeds,
        Err(why) => return doyen_tests::refuse("sim", &why),
    };
    let threads = options
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u64));
    println!("seeds from {first}, {threads} at a time");
    let (sum, busy) = (Mutex::new(Sum::default()), AtomicU64::new(0));
    sim::run_many(seeds, Some(threads), |seed| {
        let started = processor_time();
        let result = sim::run(&seed.into(), Tell::Nothing);
        busy.fetch_add(
            u64::try_from((processor_time() - started).as_nanos()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
        let Ok(mut sum) = sum.lock() else {
            return ControlFlow::Break(());
        };
        sum.seeds += 1;
        match result {
            Ok(report) => sum.total.add(&report),
            Err(failed) => {
                println!(
                    "seed {seed} at {:.3} s: {}",
                    failed.at_ns as f64 / 1e9,
                    failed.what.lines().next().unwrap_or_default()
                );
                sum.failures.push(failed);
            }
        }
        if sum.said.unwrap_or(began).elapsed() > SAYS_EVERY {
            sum.said = Some(Instant::now());
            println!(
                "{:6.0} s: {} seeds, {:.1} cluster-hours, {} failed",
                began.elapsed().as_secs_f64(),
                sum.seeds,
                sum.total.hours(),
                sum.failures.len()
            );
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let mut sum = sum.into_inner().unwrap_or_default();
    let busy = busy.into_inner() as f64 / 1e9;
    println!(
        "{} seeds, {} failed, in {:.1} s: {:.0} times real time a core",
        sum.seeds,
        sum.failures.len(),
        began.elapsed().as_secs_f64(),
        sum.total.hours() * 3_600.0 / busy
    );
    println!("{}", sim::summary(&sum.total));
    if !options.no_shrink {
        // Sorted by kind, because most failures are one defect again.
        sum.failures.sort_by(|a, b| a.kind().cmp(b.kind()));
        sum.failures.dedup_by(|a, b| a.kind() == b.kind());
        sum.failures.iter().for_each(tell_smallest);
    }
    let idle = sum.total.tables == 0 || sum.total.moves == 0 || sum.total.compared == 0;
    if sum.failures.is_empty() && idle {
        println!(
            "nothing was committed, moved or compared, so these seeds prove nothing; \
             run more with --seeds"
        );
    }
    let unjudged = sum.total.undecided * UNDECIDED_PART > sum.total.judged;
    if unjudged {
        println!("too many histories are too large to judge, so these seeds prove too little");
    }
    if sum.failures.is_empty() && !idle && !unjudged {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Processor time that this thread has used.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.try_into().unwrap_or(0),
        time.tv_nsec.try_into().unwrap_or(0),
    )
}

fn tell_smallest(failed: &Failed) {
    let (smallest, runs) = sim::smallest(failed, SHRINK_RUNS);
    println!(
        "\n{} as a small case, after {runs} runs:\n{smallest}",
        failed.case
    );
    println!(
        "run it again: cargo run --profile tools -p doyen-tests --bin sim -- {}",
        smallest.case
    );
}
