//! `just bench`, `just bench quick` and `just bench-check`.

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use doyen_tests::measure::beside::cases::{self, Case, Subject};
use doyen_tests::measure::beside::machine::Machine;
use doyen_tests::measure::beside::report::Results;
use doyen_tests::measure::beside::suite::{self, Suite};
use doyen_tests::measure::beside::systems::{Installed, Kind};
use doyen_tests::measure::beside::{check, generators};
use doyen_tests::measure::children::{self, Cores};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Everything, as medians of five runs; writes a page into docs/notes
    Full,
    /// The most important cases, in less than ten minutes, as medians of three; writes nothing
    Quick,
    /// A few ratios to Redis Cluster beside the committed ones; fails if Doyen has become slower
    Check,
}

/// Measures Doyen beside Redis Cluster, Hazelcast and Olric on this machine, in one run, and prints
/// a table with the ratios.
///
/// Redis Cluster needs redis-server and redis-tools, Hazelcast a JDK 17 and Maven, Olric Go. The
/// latter two are built in $XDG_CACHE_HOME/doyen-bench the first time. A system that is missing is
/// named and left out. Members run on the first processor that this process may use, generators on
/// the second. Ctrl-C stops it at any time, and leaves nothing behind.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Options {
    /// How much to measure
    #[arg(value_enum, default_value = "full")]
    mode: Mode,
    /// Only cases whose name contains this (set-50-p1, wait-50, one-node-get-512, half-set, large,
    /// memory, ..)
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// Number of runs for each median: 5 (quick: 3)
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Seconds of a run: 5 (quick: 3)
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// The systems to compare with
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "redis,olric,hazelcast"
    )]
    rivals: Vec<String>,
    /// The binary to measure: cargo build --profile dist -p doyen-cli
    #[arg(long, value_name = "PATH", default_value = "target/dist/doyen")]
    binary: PathBuf,
    /// Number of keys for the memory cases: 1000000 (quick: 300000)
    #[arg(long, value_name = "N")]
    memory_keys: Option<u32>,
    /// Write the report and the figures, even if only a part was measured
    #[arg(long)]
    write: bool,
    /// Where to write the report, instead of docs/notes
    #[arg(long, value_name = "PATH")]
    report: Option<PathBuf>,
    /// File of the figures of each machine, to read and to write
    #[arg(long, value_name = "PATH", default_value = "tests/rivals/figures.json")]
    figures: PathBuf,
    /// List the cases, and end
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let options: Options = doyen_cli::parse();
    let done = children::watch_signals().and_then(|()| match options.mode {
        Mode::Check => checked(&options),
        Mode::Full | Mode::Quick => measured(&options).map(|()| ExitCode::SUCCESS),
    });
    match done {
        Ok(code) => code,
        Err(_) if children::interrupted() => {
            eprintln!("bench: interrupted");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Options {
    fn quick(&self) -> bool {
        self.mode != Mode::Full
    }

    fn wants(&self, id: &str) -> bool {
        self.only
            .as_ref()
            .is_none_or(|pattern| id.contains(pattern.as_str()))
    }

    fn rounds(&self) -> usize {
        self.rounds
            .unwrap_or(if self.mode == Mode::Quick { 3 } else { 5 })
            .max(1)
    }

    fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(if self.quick() { 3.0 } else { 5.0 })
    }

    fn memory_keys(&self) -> u32 {
        self.memory_keys
            .unwrap_or(if self.quick() { 300_000 } else { 1_000_000 })
    }

    fn report(&self, machine: &Machine) -> PathBuf {
        let day = machine.date.split(' ').next().unwrap_or_default();
        self.report.clone().unwrap_or_else(|| {
            Path::new("docs/notes")
                .join(format!("{day}-bench"))
                .with_extension("md")
        })
    }

    fn kinds(&self) -> Result<Vec<Kind>> {
        if let Some(unknown) = self
            .rivals
            .iter()
            .find(|r| !Kind::ALL.iter().any(|k| k.id() == *r))
        {
            bail!("--rivals knows no {unknown}; choose from redis, olric and hazelcast");
        }
        Ok(Kind::ALL
            .into_iter()
            .filter(|k| *k == Kind::Doyen || self.rivals.iter().any(|r| r == k.id()))
            .collect())
    }

    /// The systems that are there, Doyen first, and a line for each that is missing.
    fn find(&self, kinds: &[Kind], cores: Cores) -> Result<(Vec<Installed>, Vec<String>)> {
        let (mut installed, mut missing) = (Vec::new(), Vec::new());
        for kind in kinds {
            match Installed::find(*kind, &self.binary, cores) {
                Ok(one) => installed.push(one),
                Err(error) if *kind == Kind::Doyen => return Err(error),
                Err(error) => {
                    children::go_on()?;
                    missing.push(format!("{}: {error:#}", kind.name()));
                }
            }
        }
        missing.iter().for_each(|m| eprintln!("MISSING: {m}"));
        Ok((installed, missing))
    }
}

/// The cases that this binary can run. Cases that it cannot run are named.
fn possible(
    wanted: Vec<Case>,
    options: &Options,
    cores: Cores,
    missing: &mut Vec<String>,
) -> Vec<Case> {
    if generators::has_native(&options.binary, cores) {
        return wanted;
    }
    let (without, cases): (Vec<Case>, Vec<Case>) = wanted.into_iter().partition(Case::needs_native);
    if !without.is_empty() {
        let titles: Vec<&str> = without.iter().map(|c| c.title.as_str()).collect();
        missing.push(format!(
            "{}: left out, because the binary has no `doyen bench` to make their load",
            titles.join("; ")
        ));
    }
    cases
}

fn measured(options: &Options) -> Result<()> {
    let wanted: Vec<Case> = cases::all()
        .into_iter()
        .filter(|c| options.wants(&c.id) && (c.quick || options.mode == Mode::Full))
        .collect();
    if options.list {
        wanted
            .iter()
            .for_each(|c| println!("{:<20} {}", c.id, c.title));
        return Ok(());
    }
    let cores = Cores::of_this_process();
    let machine = Machine::here();
    let with_memory = options.wants("memory");
    ensure!(
        !wanted.is_empty() || with_memory,
        "no case has a name like that; bench --list shows all"
    );
    eprintln!("{}; {}", machine.described(), cores.described());
    if machine.load_before > 0.5 {
        eprintln!(
            "the load average is {}: other programs use this machine, \
             so these figures are no good; \
             try again when it is idle",
            machine.load_before
        );
    }
    let (installed, mut missing) = options.find(&options.kinds()?, cores)?;
    let cases = possible(wanted, options, cores, &mut missing);
    let mut problems = Vec::new();
    let memory_rounds = if options.quick() { 1 } else { options.rounds() };
    let memory = match with_memory {
        true => suite::memory(
            &installed,
            cores,
            memory_rounds,
            options.memory_keys(),
            &mut problems,
        )?,
        false => Vec::new(),
    };
    let runs = match cases.is_empty() {
        true => Vec::new(),
        false => {
            let mut suite = Suite::start(
                &installed,
                &cases,
                &options.binary,
                cores,
                options.seconds(),
            )?;
            let runs = suite.rounds(&cases, options.rounds())?;
            problems.append(&mut suite.problems);
            runs
        }
    };
    let results = Results {
        command: command(),
        cores: cores.described(),
        rounds: options.rounds(),
        seconds: options.seconds(),
        memory_keys: options.memory_keys(),
        versions: installed
            .iter()
            .map(|i| (i.kind, i.version.clone()))
            .collect(),
        machine,
        missing,
        problems,
        cases: runs,
        memory,
    };
    println!("\n{}", results.tables());
    println!(
        "Medians of {}. xN: Doyen's figure divided by that system's, the median of the rounds.",
        results.rounds
    );
    let report = options.report(&results.machine);
    let whole =
        options.mode == Mode::Full && options.only.is_none() && options.kinds()? == Kind::ALL;
    if !(whole || options.write) {
        println!(
            "Nothing was written: only the whole list (`just bench`) goes into {}; \
             add --write to write this part of it.",
            report.display()
        );
        return Ok(());
    }
    let figures = options.figures.to_string_lossy();
    // The link in the page is relative to the page.
    let up = "../".repeat(
        report
            .parent()
            .map_or(0, |directory| directory.components().count()),
    );
    let beside = if options.figures.is_absolute() || report.is_absolute() {
        figures.into_owned()
    } else {
        format!("{up}{figures}")
    };
    std::fs::write(&report, results.markdown(&beside))
        .with_context(|| format!("cannot write {}", report.display()))?;
    results.save(&options.figures)?;
    println!(
        "Written: {} and {}.",
        report.display(),
        options.figures.display()
    );
    Ok(())
}

/// The command that makes these figures again.
fn command() -> String {
    let rest: Vec<String> = std::env::args().skip(1).collect();
    format!("just bench {}", rest.join(" ")).trim().to_owned()
}

fn checked(options: &Options) -> Result<ExitCode> {
    let committed = Results::load(&options.figures).context(
        "there are no committed figures to compare with; run `just bench` to write them",
    )?;
    let cores = Cores::of_this_process();
    let machine = Machine::here();
    println!("{}\n", check::how(options.rounds()));
    if machine.processor != committed.machine.processor {
        println!(
            "The committed figures are from another machine ({}), so ratios may differ.\n",
            committed.machine.processor
        );
    }
    let (installed, missing) = options.find(&[Kind::Doyen, Kind::Redis], cores)?;
    ensure!(
        missing.is_empty(),
        "there is nothing to compare with; install what is missing: {}",
        missing.join("; ")
    );
    let mut not_possible = Vec::new();
    let mut cases: Vec<Case> = cases::all()
        .into_iter()
        .filter(|c| c.checked && options.wants(&c.id))
        .collect();
    cases.iter_mut().for_each(|c| {
        c.subjects
            .retain(|s| matches!(s, Subject::Doyen | Subject::Redis))
    });
    let cases = possible(cases, options, cores, &mut not_possible);
    not_possible.iter().for_each(|m| println!("MISSING: {m}"));
    ensure!(
        !cases.is_empty(),
        "no case that is checked has a name like that; leave out --only"
    );
    let dropped = check::check(
        &committed,
        &installed,
        &cases,
        &options.binary,
        cores,
        options.seconds(),
        options.rounds(),
    )?;
    if dropped.is_empty() {
        println!("\nNothing dropped.");
        return Ok(ExitCode::SUCCESS);
    }
    println!("\nDropped, twice:");
    dropped.iter().for_each(|line| println!("{}", line.told()));
    Ok(ExitCode::FAILURE)
}
