//! Breaks the rules one at a time, and runs seeds of the simulation until one notices:
//! `cargo run --release -p doyen-tests --features mutants --bin mutants`.

use clap::Parser;
use doyen_placement::mutant::{Mutant, choose};
use doyen_tests::sim;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

// As in the binary: a simulation allocates much.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Mutants that no seed kills, and why that is so. They are run all the same: one that is killed after all must go from here.
const SURVIVORS: &[(Mutant, &str)] = &[];

/// Breaks each rule of the design on purpose, one at a time, and simulates clusters under faults until an invariant breaks. A
/// seed counts only if it holds where nothing is broken. Fails if a mutant survives that is not known to.
#[derive(Debug, Parser)]
#[command(name = "mutants")]
struct Options {
    /// Seeds that each may take
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first of them
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Only mutants whose names contain this
    #[arg(long, value_name = "PATTERN", default_value = "")]
    only: String,
    /// Seeds at a time: as many as there are cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    threads: Option<u64>,
    /// Only say which there are
    #[arg(long)]
    list: bool,
}

/// A seed that noticed.
struct Killer {
    seed: u64,
    what: String,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let chosen: Vec<Mutant> = Mutant::ALL.iter().copied().filter(|m| m.id().contains(&options.only)).collect();
    if options.list {
        for mutant in chosen {
            println!("{:<24} {:<22} {}", mutant.id(), mutant.rule(), mutant.what());
        }
        return ExitCode::SUCCESS;
    }
    if chosen.is_empty() {
        eprintln!("no mutant is called anything like {}: --list says which there are", options.only);
        return ExitCode::FAILURE;
    }
    // A panic of a machine is a result here: one line, not a backtrace.
    std::panic::set_hook(Box::new(|_| {}));
    let (mut killed, mut survived, mut wrong) = (0, 0, 0);
    for mutant in chosen {
        let began = Instant::now();
        let found = hunt(mutant, &options);
        let known = SURVIVORS.iter().find(|(m, _)| *m == mutant).map(|(_, why)| *why);
        let (name, rule, took) = (mutant.id(), mutant.rule(), began.elapsed().as_secs_f64());
        match (found, known) {
            (Ok((killer, seeds)), None) => {
                killed += 1;
                println!("killed    {name:<24} {rule:<22} {seeds:>5} seeds {took:>6.1} s  seed {}: {}", killer.seed, killer.what);
            }
            (Ok((killer, _)), Some(_)) => {
                wrong += 1;
                println!("KILLED    {name:<24} {rule:<22} but it is listed as a survivor; seed {}: {}", killer.seed, killer.what);
            }
            (Err(seeds), Some(why)) => {
                survived += 1;
                println!("survives  {name:<24} {rule:<22} {seeds:>5} seeds {took:>6.1} s  known: {why}");
            }
            (Err(seeds), None) => {
                wrong += 1;
                println!("SURVIVES  {name:<24} {rule:<22} {seeds:>5} seeds {took:>6.1} s  {}", mutant.what());
            }
        }
    }
    println!("{killed} killed, {survived} known to survive, {wrong} not as they should be");
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The seeds, those in which most goes wrong first.
fn seeds(options: &Options) -> Vec<u64> {
    let mut seeds: Vec<u64> = (options.from..options.from.saturating_add(options.seeds)).collect();
    seeds.sort_by_key(|seed| !sim::Mix::may_be_hell(*seed));
    seeds
}

/// The first seed found that breaks with this mutant and holds without it, and how many were run; or only how many.
fn hunt(mutant: Mutant, options: &Options) -> Result<(Killer, usize), usize> {
    let seeds = seeds(options);
    let mut from = 0;
    loop {
        choose(Some(mutant));
        let found = first_failure(&seeds[from..], options.threads);
        choose(None);
        match found {
            None => return Err(seeds.len()),
            // What fails by itself proves nothing about the mutant.
            Some((place, killer)) if sim::run(&killer.seed.into(), sim::Tell::Nothing).is_ok() => return Ok((killer, from + place + 1)),
            Some((place, killer)) => {
                println!("          seed {} fails by itself: {}", killer.seed, killer.what);
                from += place + 1;
            }
        }
    }
}

/// The first of these seeds, by its place, that was found to fail.
fn first_failure(seeds: &[u64], threads: Option<u64>) -> Option<(usize, Killer)> {
    let found = Mutex::new(None::<(usize, Killer)>);
    sim::run_many(seeds.iter().copied(), threads, |seed| {
        let Err(failed) = sim::run(&seed.into(), sim::Tell::Nothing) else { return ControlFlow::Continue(()) };
        let place = seeds.iter().position(|s| *s == seed).unwrap_or(seeds.len());
        let what = failed.what.lines().next().unwrap_or_default().chars().take(120).collect();
        if let Ok(mut found) = found.lock()
            && found.as_ref().is_none_or(|(first, _)| place < *first)
        {
            *found = Some((place, Killer { seed, what }));
        }
        ControlFlow::Break(())
    });
    found.into_inner().ok().flatten()
}
