//! Gives decoders what a peer should not send: `cargo run --profile tools -p doyen-tests --bin fuzz
//! -- --target frames --seconds 600`. It stops at a panic, or if one input makes a target allocate
//! more than it may. Then it prints the smallest input that it finds to do so.

use clap::Parser;
use doyen_tests::fuzz::{self, Mutator, TARGETS, Target};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Mutates valid inputs of a decoder, from a seed, until one makes it panic or allocate too much
#[derive(Debug, Parser)]
#[command(name = "fuzz", after_help = format!("Decoders: {}.", decoders()))]
struct Options {
    /// The decoder, or `all`, one after the other
    #[arg(long, value_name = "NAME", default_value = "all", value_parser = targets)]
    target: Targets,
    /// Seconds for each decoder
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    seconds: u64,
    /// Number that the inputs are made from: the same seed makes the same inputs
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
    /// Inputs to begin with: a directory with a directory for each decoder
    #[arg(long, value_name = "DIR", default_value = fuzz::CORPUS)]
    corpus: PathBuf,
    /// Run only this input, and say whether it passes
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Write the decoder's own inputs into the directory, and end
    #[arg(long)]
    write: bool,
}

#[derive(Debug, Clone)]
struct Targets(Vec<&'static Target>);

fn decoders() -> String {
    TARGETS
        .iter()
        .map(|t| t.name)
        .collect::<Vec<_>>()
        .join(", ")
}

fn targets(name: &str) -> Result<Targets, String> {
    let chosen: Vec<&Target> = TARGETS
        .iter()
        .filter(|t| name == "all" || name == t.name)
        .collect();
    if chosen.is_empty() {
        Err(format!(
            "no decoder has this name; choose from {}, or all",
            decoders()
        ))
    } else {
        Ok(Targets(chosen))
    }
}

fn allocated() -> usize {
    ALLOCATOR.stats().bytes_allocated
}

fn main() -> ExitCode {
    let options: Options = doyen_cli::parse();
    if let Err(status) = doyen_tests::can_catch_panics("fuzz") {
        return status;
    }
    if !options.write && !options.corpus.is_dir() {
        let corpus = options.corpus.display();
        return doyen_tests::refuse(
            "fuzz",
            &format!(
                "--corpus {corpus} is no directory; name one with a directory \
             for each decoder, or leave it out"
            ),
        );
    }
    // A panic is a result here: it is printed once, with its input.
    std::panic::set_hook(Box::new(|_| {}));
    for target in &options.target.0 {
        if let Err(why) = work(target, &options) {
            eprintln!("{}: {why}", target.name);
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn work(target: &Target, options: &Options) -> Result<(), String> {
    let said = |e: std::io::Error| e.to_string();
    if options.write {
        let written = fuzz::write(&options.corpus, target).map_err(said)?;
        println!("{}: {written} inputs", target.name);
        return Ok(());
    }
    if let Some(file) = &options.input {
        let input = std::fs::read(file)
            .map_err(|e| format!("cannot read {} (--input): {e}", file.display()))?;
        fuzz::run(target, &input, allocated)?;
        println!("{}: passed", target.name);
        return Ok(());
    }
    let mut seeds = (target.seeds)();
    seeds.extend(fuzz::read(&options.corpus, target).map_err(said)?);
    let mut mutator = Mutator::new(options.seed);
    let (began, mut told, mut runs) = (Instant::now(), Instant::now(), 0_u64);
    let mut pending = seeds.clone().into_iter();
    while began.elapsed() < Duration::from_secs(options.seconds) {
        let input = pending.next().unwrap_or_else(|| mutator.input(&seeds));
        if let Err(why) = fuzz::run(target, &input, allocated) {
            let least =
                fuzz::minimise(&input, |input| fuzz::run(target, input, allocated).is_err());
            let file = PathBuf::from(format!("fuzz-{}-{}", target.name, options.seed));
            std::fs::write(&file, &least).map_err(said)?;
            return Err(format!(
                "run {runs} of seed {}: {why}\n{} bytes are enough, in {}; \
                 run them again with --target {} --input {}\n{least:?}",
                options.seed,
                least.len(),
                file.display(),
                target.name,
                file.display()
            ));
        }
        runs += 1;
        if told.elapsed() >= Duration::from_secs(10) {
            told = Instant::now();
            println!(
                "{}: {runs} runs, {:.0} a second",
                target.name,
                runs as f64 / began.elapsed().as_secs_f64()
            );
        }
    }
    println!(
        "{}: {runs} runs, {:.0} a second, nothing found",
        target.name,
        runs as f64 / began.elapsed().as_secs_f64()
    );
    Ok(())
}
