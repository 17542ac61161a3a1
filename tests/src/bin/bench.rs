//! `just bench`, `just bench quick` and `just bench-check`.

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use doyen_tests::bench::cases::{self, Case, Subject};
use doyen_tests::bench::children::{self, Cores};
use doyen_tests::bench::machine::Machine;
use doyen_tests::bench::report::Results;
use doyen_tests::bench::suite::{self, Suite};
use doyen_tests::bench::systems::{Installed, Kind};
use doyen_tests::bench::{check, generators};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Everything, medians of five; writes a page into docs/notes
    Full,
    /// The most important of it below ten minutes, medians of three; writes nothing
    Quick,
    /// A few ratios to Redis Cluster beside the committed ones; fails if Doyen has become slower
    Check,
}

/// Doyen beside Redis Cluster, Hazelcast and Olric on this machine, in one run: a table with the
/// ratios.
///
/// Redis Cluster needs redis-server and redis-tools, Hazelcast a JDK 17 and Maven, Olric Go. The
/// latter two are built in $XDG_CACHE_HOME/doyen-bench the first time. What is not there is named,
/// and left out. Members run on the first processor that this process may use, generators on the
/// second. Stop with Ctrl-C at any time: nothing stays behind.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Options {
    /// How much
    #[arg(value_enum, default_value = "full")]
    mode: Mode,
    /// Only cases whose name contains this (set-50-p1, wait-50, one-node-get-512, half-set, large,
    /// memory, ..)
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// How many runs a median is of: 5 (quick: 3)
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Seconds of a run: 5 (quick: 3)
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Beside whom
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "redis,olric,hazelcast"
    )]
    rivals: Vec<String>,
    /// Doyen, as it is given out: cargo build --profile dist -p doyen-cli
    #[arg(long, value_name = "PATH", default_value = "target/dist/doyen")]
    binary: PathBuf,
    /// Keys of which memory is measured: 1000000 (quick: 300000)
    #[arg(long, value_name = "N")]
    memory_keys: Option<u32>,
    /// Write the report and the figures, however little was measured
    #[arg(long)]
    write: bool,
    /// Where the report goes, if not into docs/notes, under the date
    #[arg(long, value_name = "PATH")]
    report: Option<PathBuf>,
    /// Where the figures for machines go to and come from
    #[arg(long, value_name = "PATH", default_value = "tests/rivals/figures.json")]
    figures: PathBuf,
    /// Only say which cases there are
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
            bail!("--rivals {unknown}: there are redis, olric and hazelcast");
        }
        Ok(Kind::ALL
            .into_iter()
            .filter(|k| *k == Kind::Doyen || self.rivals.iter().any(|r| r == k.id()))
            .collect())
    }

    /// Doyen and who can be had of the others; and who cannot.
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

/// Those that this binary can do; what it cannot is named.
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
            "{}: this binary has no `doyen bench`, which makes their load",
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
        "no case of that name: bench --list says which there are"
    );
    eprintln!("{}; {}", machine.described(), cores.described());
    if machine.load_before > 0.5 {
        eprintln!(
            "the load average is {}: somebody else works here, and these figures are no good",
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
        "Medians of {}; xN: Doyen's figure divided by that system's, the median of the rounds.",
        results.rounds
    );
    let report = options.report(&results.machine);
    let whole =
        options.mode == Mode::Full && options.only.is_none() && options.kinds()? == Kind::ALL;
    if !(whole || options.write) {
        println!(
            "Nothing was written: only the whole list (`just bench`) goes into {}; --write says otherwise.",
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

/// What a person would type to have this again.
fn command() -> String {
    let rest: Vec<String> = std::env::args().skip(1).collect();
    format!("just bench {}", rest.join(" ")).trim().to_owned()
}

fn checked(options: &Options) -> Result<ExitCode> {
    let committed = Results::load(&options.figures)
        .context("there are no committed figures: `just bench` writes them")?;
    let cores = Cores::of_this_process();
    let machine = Machine::here();
    println!("{}\n", check::how(options.rounds()));
    if machine.processor != committed.machine.processor {
        println!(
            "The committed figures are of another machine ({}): ratios may differ for that alone.\n",
            committed.machine.processor
        );
    }
    let (installed, missing) = options.find(&[Kind::Doyen, Kind::Redis], cores)?;
    ensure!(
        missing.is_empty(),
        "there is nothing to compare with: {}",
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
    ensure!(!cases.is_empty(), "no case of that name is checked");
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
