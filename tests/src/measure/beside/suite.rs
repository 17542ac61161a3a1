//! Rounds of cases: each system with its generator, one after the other, and the figures.

use super::cases::{Case, Operation, Subject, Work};
use super::generators::{self, Native, RedisBenchmark};
use super::memory::Memory;
use super::parse::Load;
use super::systems::{Installed, Kind, System};
use crate::measure::children::{Cores, go_on, interrupted};
use crate::procfs::Cpu;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// The first guess at the number of operations of a run.
const CALIBRATION: u64 = 20_000;
/// A run that is shorter than this is not yet a good guess.
const CALIBRATION_SECONDS: f64 = 1.0;

/// What one run gave.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measure {
    /// Operations a second.
    pub throughput: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile of latency.
    pub p99_us: f64,
    /// Percentile 99.9 of latency.
    pub p999_us: f64,
    /// Processor time of all members for each operation, user and system.
    pub cpu_us: f64,
    /// How much of a core all members used.
    pub busy: f64,
}

/// All runs of a case, by subject and round. `None`: that run failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CaseRuns {
    /// [`Case::id`].
    pub id: String,
    /// [`Case::title`].
    pub title: String,
    /// Whether the operations a second were set, and not measured.
    pub rated: bool,
    /// In the order of the table, Doyen first.
    pub runs: Vec<(Subject, Vec<Option<Measure>>)>,
}

impl CaseRuns {
    /// The runs of one subject.
    #[must_use]
    pub fn of(&self, subject: Subject) -> &[Option<Measure>] {
        self.runs
            .iter()
            .find(|(s, _)| *s == subject)
            .map_or(&[], |(_, runs)| runs)
    }
}

/// One figure of some runs, by round. A run that failed has none.
#[must_use]
pub fn values(runs: &[Option<Measure>], what: fn(&Measure) -> f64) -> Vec<f64> {
    runs.iter()
        .map(|run| run.as_ref().map_or(f64::NAN, what))
        .collect()
}

/// All systems, running side by side.
#[derive(Debug)]
pub struct Suite<'a> {
    binary: &'a Path,
    cores: Cores,
    seconds: f64,
    systems: BTreeMap<Kind, System>,
    /// The operations a second that a subject last reached.
    rates: BTreeMap<(String, Subject), f64>,
    /// Problems, each once.
    pub problems: Vec<String>,
}

impl<'a> Suite<'a> {
    /// Starts all systems, and fills them with the keys that these cases read.
    ///
    /// # Errors
    /// A system does not start.
    pub fn start(
        installed: &[Installed],
        cases: &[Case],
        binary: &'a Path,
        cores: Cores,
        seconds: f64,
    ) -> Result<Self> {
        let mut suite = Self {
            binary,
            cores,
            seconds,
            systems: BTreeMap::new(),
            rates: BTreeMap::new(),
            problems: Vec::new(),
        };
        for one in installed.iter().filter(|i| {
            cases
                .iter()
                .any(|c| c.subjects.iter().any(|s| s.kind() == i.kind))
        }) {
            eprintln!("starting {} {}", one.kind.name(), one.version);
            let mut system = one.start(cores)?;
            generators::fill(&mut system, generators::KEYS).context("filling")?;
            if !system.cluster.is_empty() && cases.iter().any(|c| !c.needs_native()) {
                RedisBenchmark::fill(&system, cores).context("filling by redis-benchmark")?;
            }
            if one.kind == Kind::Doyen
                && cases
                    .iter()
                    .any(|c| c.subjects.contains(&Subject::DoyenClient))
            {
                Native {
                    fill: true,
                    own_client: true,
                    ..Native::closed(binary, Operation::Get, 50, 1.0)
                }
                .run(&system, cores)
                .context("filling by its own client")?;
            }
            if cases.iter().any(|c| {
                matches!(c.work, Work::Large | Work::Small { .. })
                    && c.subjects.iter().any(|s| s.kind() == one.kind)
            }) {
                generators::fill_large(&system).context("filling with large values")?;
            }
            suite.systems.insert(one.kind, system);
        }
        Ok(suite)
    }

    /// Runs all cases in this many rounds. Each round begins with another system, so that none
    /// always follows the same one.
    ///
    /// # Errors
    /// A signal has asked this process to end. A run that fails is listed as a problem, and is no
    /// error.
    pub fn rounds(&mut self, cases: &[Case], rounds: usize) -> Result<Vec<CaseRuns>> {
        let mut table: Vec<CaseRuns> = Vec::new();
        for case in cases {
            let subjects = case
                .subjects
                .iter()
                .filter(|s| self.systems.contains_key(&s.kind()));
            let runs = subjects.map(|s| (*s, Vec::new())).collect();
            table.push(CaseRuns {
                id: case.id.clone(),
                title: case.title.clone(),
                rated: case.is_rated(),
                runs,
            });
        }
        let all: usize = rounds * table.iter().map(|c| c.runs.len()).sum::<usize>();
        let (began, mut done) = (Instant::now(), 0);
        for round in 0..rounds {
            for (case, of_case) in cases.iter().zip(&mut table) {
                let subjects = of_case.runs.len();
                for n in 0..subjects {
                    let (subject, runs) = &mut of_case.runs[(n + round) % subjects];
                    let measured = self.measure(case, *subject);
                    go_on()?;
                    done += 1;
                    let left = began.elapsed().as_secs_f64() / done as f64 * (all - done) as f64;
                    let told = match &measured {
                        Ok(m) => format!(
                            "{:>9.0}/s  p99 {:>8.0} us  {:>7.2} us CPU",
                            m.throughput, m.p99_us, m.cpu_us
                        ),
                        Err(e) => format!("{e:#}").replace('\n', " "),
                    };
                    let clock = format!("{}:{:02}", left as u64 / 60, left as u64 % 60);
                    eprintln!(
                        "round {}/{rounds}, {clock} left  {:<44} {:<16} {told}",
                        round + 1,
                        case.title,
                        subject.name()
                    );
                    if measured.is_err() {
                        self.problem(format!("{}, {}: {told}", case.title, subject.name()));
                    }
                    runs.push(measured.ok());
                }
            }
        }
        Ok(table)
    }

    fn problem(&mut self, problem: String) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn measure(&mut self, case: &Case, subject: Subject) -> Result<Measure> {
        self.calibrate(case, subject)?;
        let pids = self.system(subject)?.pids();
        let (before, began) = (Cpu::of(&pids), Instant::now());
        let load = self.load(case, subject, self.seconds)?;
        let (used, took) = (Cpu::of(&pids).microseconds_since(&before), began.elapsed());
        ensure!(
            load.operations >= 1.0 && load.throughput > 0.0,
            "no operation was done"
        );
        if matches!(case.work, Work::Clients { .. }) {
            self.rates
                .insert((case.id.clone(), subject), load.throughput);
        }
        if let Some(errors) = &load.errors {
            self.problem(format!(
                "{}, {}: answered with errors: {errors}",
                case.title,
                subject.name()
            ));
        }
        if load.behind > 0.0 {
            self.problem(format!(
                "{}, {}: not all operations that were due were sent",
                case.title,
                subject.name()
            ));
        }
        let tenths = |value: f64| (value * 10.0).round() / 10.0;
        Ok(Measure {
            throughput: load.throughput.round(),
            p50_us: tenths(load.p50_us),
            p99_us: tenths(load.p99_us),
            p999_us: tenths(load.p999_us),
            cpu_us: (used / load.operations * 1000.0).round() / 1000.0,
            busy: (used / took.as_micros() as f64 * 1000.0).round() / 1000.0,
        })
    }

    /// Finds out, before a subject's first run of a case, how many operations last as long as a
    /// run, or what its peak is. This warms the system up, too.
    fn calibrate(&mut self, case: &Case, subject: Subject) -> Result<()> {
        let key = (case.id.clone(), subject);
        if self.rates.contains_key(&key) {
            return Ok(());
        }
        let rate = match case.work {
            Work::Clients {
                operation,
                clients,
                pipeline,
            } if subject != Subject::Hazelcast => {
                let benchmark = RedisBenchmark {
                    operation,
                    clients,
                    pipeline,
                };
                let guess = benchmark
                    .run(self.system(subject)?, self.cores, CALIBRATION)?
                    .throughput;
                benchmark
                    .run(
                        self.system(subject)?,
                        self.cores,
                        (guess * CALIBRATION_SECONDS) as u64 + 1,
                    )?
                    .throughput
            }
            Work::HalfPeak { operation, clients } => {
                Native::closed(self.binary, operation, clients, self.seconds)
                    .run(self.system(subject)?, self.cores)?
                    .throughput
            }
            // The JVMs need some time to compile their busiest code.
            Work::Clients { .. } => self.load(case, subject, 3.0 * self.seconds)?.throughput,
            Work::OwnClients { .. } if subject == Subject::Hazelcast => {
                self.load(case, subject, 3.0 * self.seconds)?.throughput
            }
            Work::OwnClients { .. }
            | Work::Wait { .. }
            | Work::OneNode { .. }
            | Work::Large
            | Work::Small { .. } => self.load(case, subject, CALIBRATION_SECONDS)?.throughput,
        };
        self.rates.insert(key, rate);
        Ok(())
    }

    fn load(&mut self, case: &Case, subject: Subject, seconds: f64) -> Result<Load> {
        let (binary, cores) = (self.binary, self.cores);
        let rate = self.rates.get(&(case.id.clone(), subject)).copied();
        let system = self
            .systems
            .get_mut(&subject.kind())
            .context("the system was not started")?;
        match case.work {
            Work::Clients {
                operation, clients, ..
            } if subject == Subject::Hazelcast => {
                generators::hazelcast(system, operation, clients, seconds)
            }
            Work::Clients {
                operation,
                clients,
                pipeline,
            } => {
                let operations = (rate.context("calibrated before")? * seconds) as u64 + 1;
                RedisBenchmark {
                    operation,
                    clients,
                    pipeline,
                }
                .run(system, cores, operations)
            }
            Work::OwnClients {
                operation,
                in_flight,
            } if subject == Subject::Hazelcast => {
                generators::hazelcast(system, operation, in_flight, seconds)
            }
            Work::OwnClients {
                operation,
                in_flight,
            } => {
                let closed = Native::closed(binary, operation, in_flight, seconds);
                Native {
                    own_client: subject == Subject::DoyenClient,
                    ..closed
                }
                .run(system, cores)
            }
            Work::Wait { clients } => {
                let closed = Native::closed(binary, Operation::Set, clients, seconds);
                Native {
                    wait: true,
                    ..closed
                }
                .run(system, cores)
            }
            Work::OneNode { operation, clients } => {
                let closed = Native::closed(binary, operation, clients, seconds);
                Native {
                    one_node: subject != Subject::Doyen,
                    ..closed
                }
                .run(system, cores)
            }
            Work::HalfPeak { operation, clients } => {
                let closed = Native::closed(binary, operation, clients, seconds);
                Native {
                    rate: Some(rate.context("calibrated before")? / 2.0),
                    ..closed
                }
                .run(system, cores)
            }
            Work::Large => Native::large(binary, seconds).run(system, cores),
            Work::Small {
                beside_large: false,
            } => Native::small(binary, seconds).run(system, cores),
            Work::Small { beside_large: true } => {
                let large = Native {
                    behind: true,
                    ..Native::large(binary, seconds)
                }
                .start(system, cores)?;
                let small = Native::small(binary, seconds).run(system, cores)?;
                let large = generators::finish(large)?;
                ensure!(
                    large.errors.is_none(),
                    "large GETs failed: {:?}",
                    large.errors
                );
                // The large GETs are most of the work, so the processor time counts for them, too.
                Ok(Load {
                    operations: small.operations + large.operations,
                    ..small
                })
            }
        }
    }

    fn system(&self, subject: Subject) -> Result<&System> {
        self.systems
            .get(&subject.kind())
            .context("the system was not started")
    }
}

/// Measures the memory of every system. Each is started alone, in turn.
///
/// # Errors
/// A signal has asked this process to end. If a system fails, that is a problem, and no error.
pub fn memory(
    installed: &[Installed],
    cores: Cores,
    rounds: usize,
    keys: u32,
    problems: &mut Vec<String>,
) -> Result<Vec<(Kind, Vec<Memory>)>> {
    let mut all: Vec<(Kind, Vec<Memory>)> =
        installed.iter().map(|i| (i.kind, Vec::new())).collect();
    for round in 0..rounds {
        for (one, (kind, runs)) in installed.iter().zip(&mut all) {
            let seen = one
                .start(cores)
                .and_then(|mut system| Memory::of(&mut system, keys, cores));
            if interrupted() {
                go_on()?;
            }
            match seen {
                Ok(memory) => {
                    let key = memory.key_bytes.unwrap_or(f64::NAN);
                    eprintln!(
                        "memory, round {}/{rounds}  {:<16} {key:>7.0} B per key and copy, \
                         {:.1} MB idle",
                        round + 1,
                        kind.name(),
                        memory.idle_mb
                    );
                    runs.push(memory);
                }
                Err(e) => problems.push(format!("memory, {}: {e:#}", kind.name())),
            }
        }
    }
    Ok(all)
}
