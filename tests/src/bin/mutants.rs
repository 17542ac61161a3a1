//! Breaks the rules one at a time. For each, it runs the check of that rule, or seeds of the
//! simulation if there is no check, until one notices: `cargo run --profile tools -p doyen-tests
//! --features mutants --bin mutants`.

use clap::Parser;
use doyen_placement::mutant::{BREAKABLE, Mutant, choose};
use doyen_tests::{mutants, rules, sim};
use std::ops::ControlFlow;
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::ptr;
use std::sync::Mutex;
use std::time::Instant;

// As in the binary: a simulation allocates much.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Mutants that nothing kills, each with the reason. They are run all the same: if one is killed
/// after all, it must be removed from here.
static SURVIVORS: &[(&Mutant, &str)] = &[];

/// Breaks each rule of docs/agreement.md on purpose, one at a time. If a check drives the machines
/// into the very situation, the check must notice. Otherwise clusters are simulated under faults
/// until an invariant breaks. A check or a seed counts only if it holds without the mutant. Fails
/// if a mutant survives that is not listed as a survivor.
#[derive(Debug, Parser)]
#[command(name = "mutants")]
struct Options {
    /// Most seeds to run for each mutant
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2_000,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Only mutants whose names contain this
    #[arg(long, value_name = "PATTERN", default_value = "")]
    only: String,
    /// Seeds that run at the same time; one for each core if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    threads: Option<u64>,
    /// Only mutants with a check of their own (seconds)
    #[arg(long)]
    checks: bool,
    /// Simulate also those with a check of their own, and do not run the checks
    #[arg(long, conflicts_with = "checks")]
    simulate: bool,
    /// List the mutants, and end
    #[arg(long)]
    list: bool,
}

/// How a mutant was noticed.
enum Noticed {
    /// The check of its rule noticed it, and says this.
    Check(String),
    /// A seed noticed it, after this many.
    Seed(Killer, usize),
}

/// A seed that noticed.
struct Killer {
    seed: u64,
    what: String,
}

fn main() -> ExitCode {
    let options: Options = doyen_cli::parse();
    if let Err(status) = doyen_tests::can_catch_panics("mutants") {
        return status;
    }
    if let Err(why) = sim::seeds(options.from, options.seeds) {
        return doyen_tests::refuse("mutants", &why);
    }
    if !BREAKABLE {
        return doyen_tests::refuse(
            "mutants",
            "this build cannot break rules; build it with --features mutants",
        );
    }
    doyen_tests::quiet_panics();
    let fits = |m: &&Mutant| {
        m.id().contains(&options.only) && (!options.checks || rules::check(m).is_some())
    };
    let chosen: Vec<&Mutant> = mutants::all().filter(fits).collect();
    if options.list {
        for mutant in chosen {
            let by = if rules::check(mutant).is_some() {
                "check"
            } else {
                "simulation"
            };
            println!(
                "{:<24} {:<22} {by:<11} {}",
                mutant.id(),
                mutant.rule(),
                mutant.what()
            );
        }
        return ExitCode::SUCCESS;
    }
    if chosen.is_empty() && options.checks && mutants::all().any(|m| m.id().contains(&options.only))
    {
        return doyen_tests::refuse(
            "mutants",
            &format!(
                "no mutant like {} has a check of its own; leave out --checks",
                options.only
            ),
        );
    }
    if chosen.is_empty() {
        return doyen_tests::refuse(
            "mutants",
            &format!(
                "no mutant has a name like {}; --list shows all",
                options.only
            ),
        );
    }
    let (mut killed, mut survived, mut wrong) = (0, 0, 0);
    for mutant in chosen {
        let began = Instant::now();
        let noticed = notice(mutant, &options);
        let known = SURVIVORS
            .iter()
            .find(|(m, _)| ptr::eq(*m, mutant))
            .map(|(_, why)| *why);
        let (name, rule, took) = (mutant.id(), mutant.rule(), began.elapsed().as_secs_f64());
        let line = |word: &str, by: &str, what: &str| {
            println!("{word:<9} {name:<24} {rule:<22} {by:<23} {took:>6.1} s  {what}")
        };
        match (noticed, known) {
            (Ok(noticed), None) => {
                killed += 1;
                match noticed {
                    Noticed::Check(what) => line("killed", "check", &what),
                    Noticed::Seed(killer, seeds) => {
                        line(
                            "killed",
                            &format!("simulation, {seeds:>4} seeds"),
                            &format!("seed {}: {}", killer.seed, killer.what),
                        );
                    }
                }
            }
            (Ok(Noticed::Check(what) | Noticed::Seed(Killer { what, .. }, _)), Some(_)) => {
                wrong += 1;
                line("KILLED", "listed as a survivor", &what);
            }
            (Err(by), Some(why)) => {
                survived += 1;
                line("survives", &by, &format!("known: {why}"));
            }
            (Err(by), None) => {
                wrong += 1;
                line("SURVIVES", &by, mutant.what());
            }
        }
    }
    println!("{killed} killed, {survived} known to survive, {wrong} not as they should be");
    if wrong == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// What noticed this mutant; otherwise, what did not.
fn notice(mutant: &'static Mutant, options: &Options) -> Result<Noticed, String> {
    if let Some(check) = rules::check(mutant).filter(|_| !options.simulate) {
        choose(None);
        if let Err(what) = verdict(check) {
            return Err(format!("check fails by itself: {what}"));
        }
        choose(Some(mutant));
        let broken = verdict(check);
        choose(None);
        return broken
            .err()
            .map(Noticed::Check)
            .ok_or_else(|| "check".into());
    }
    match hunt(mutant, options) {
        Ok((killer, seeds)) => Ok(Noticed::Seed(killer, seeds)),
        Err(seeds) => Err(format!("simulation, {seeds:>4} seeds")),
    }
}

/// The verdict of a check. If a machine stops with a panic, it has noticed.
fn verdict(check: rules::Check) -> Result<(), String> {
    let said = catch_unwind(check).unwrap_or_else(|panic| Err(sim::panic_text(panic.as_ref())));
    said.map_err(|what| brief(&what))
}

/// The beginning of a message, for one line of a list.
fn brief(what: &str) -> String {
    what.lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(160)
        .collect()
}

/// The seeds, in an order that begins with those of most faults.
fn seeds(options: &Options) -> Vec<u64> {
    let mut seeds: Vec<u64> = (options.from..options.from.saturating_add(options.seeds)).collect();
    seeds.sort_by_key(|seed| !sim::Mix::may_be_hell(*seed));
    seeds
}

/// The first seed found that fails with this mutant and holds without it, and how many were run. If
/// there is none, only how many were run.
fn hunt(mutant: &'static Mutant, options: &Options) -> Result<(Killer, usize), usize> {
    let seeds = seeds(options);
    let mut from = 0;
    loop {
        choose(Some(mutant));
        let found = first_failure(&seeds[from..], options.threads);
        choose(None);
        match found {
            None => return Err(seeds.len()),
            // A seed that fails without the mutant proves nothing about it.
            Some((place, killer)) if sim::run(&killer.seed.into(), sim::Tell::Nothing).is_ok() => {
                return Ok((killer, from + place + 1));
            }
            Some((place, killer)) => {
                println!(
                    "          seed {} fails without the mutant: {}",
                    killer.seed, killer.what
                );
                from += place + 1;
            }
        }
    }
}

/// The first of these seeds that was found to fail, with its place.
fn first_failure(seeds: &[u64], threads: Option<u64>) -> Option<(usize, Killer)> {
    let found = Mutex::new(None::<(usize, Killer)>);
    sim::run_many(seeds.iter().copied(), threads, |seed| {
        let Err(failed) = sim::run(&seed.into(), sim::Tell::Nothing) else {
            return ControlFlow::Continue(());
        };
        let place = seeds.iter().position(|s| *s == seed).unwrap_or(seeds.len());
        let what = brief(&failed.what);
        if let Ok(mut found) = found.lock()
            && found.as_ref().is_none_or(|(first, _)| place < *first)
        {
            *found = Some((place, Killer { seed, what }));
        }
        ControlFlow::Break(())
    });
    found.into_inner().ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(
        not(any(feature = "mutants", debug_assertions)),
        ignore = "this build cannot break rules"
    )]
    fn every_check_notices_its_mutant_and_nothing_else() {
        let options = Options::parse_from(["mutants"]);
        let checked: Vec<&Mutant> = mutants::all()
            .filter(|m| rules::check(m).is_some())
            .collect();
        let missed = checked.iter().filter_map(|m| {
            notice(m, &options)
                .err()
                .map(|why| format!("{}: {why}", m.id()))
        });
        let missed: Vec<String> = missed.collect();
        assert!(!checked.is_empty() && missed.is_empty(), "{missed:#?}");
    }
}
