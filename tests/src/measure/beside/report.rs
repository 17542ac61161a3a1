//! The table and the figures of the same runs.

use super::cases::Subject;
use super::machine::Machine;
use super::memory::Memory;
use super::suite::{CaseRuns, Measure, values};
use super::systems::Kind;
use crate::measure::stats::{median, ratios, spread};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;

/// All results of one run of the bench.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    /// The machine, the date and the commit.
    pub machine: Machine,
    /// How members and generators were kept apart.
    pub cores: String,
    /// The command that was typed.
    pub command: String,
    /// Rounds.
    pub rounds: usize,
    /// Seconds of a run.
    pub seconds: f64,
    /// Keys of the memory measurements.
    pub memory_keys: u32,
    /// Versions of the measured systems.
    pub versions: Vec<(Kind, String)>,
    /// Systems that were missing, and why.
    pub missing: Vec<String>,
    /// Problems during the run.
    pub problems: Vec<String>,
    /// The runs of all cases.
    pub cases: Vec<CaseRuns>,
    /// The memory measurements.
    pub memory: Vec<(Kind, Vec<Memory>)>,
}

impl Results {
    /// The tables, for the terminal and for the page.
    #[must_use]
    pub fn tables(&self) -> String {
        let mut text = String::new();
        if !self.cases.is_empty() {
            let _ = writeln!(text, "{}", runs_table(&self.cases));
        }
        if !self.memory.is_empty() {
            let _ = writeln!(text, "{}", memory_table(&self.memory));
        }
        for missing in &self.missing {
            let _ = writeln!(text, "MISSING: {missing}\n");
        }
        for problem in &self.problems {
            let _ = writeln!(text, "PROBLEM: {problem}\n");
        }
        text
    }

    /// The page, with a link to the figures.
    #[must_use]
    pub fn markdown(&self, figures: &str) -> String {
        let versions: String = self
            .versions
            .iter()
            .map(|(kind, version)| format!("- {} {version}\n", kind.name()))
            .collect();
        let machine = &self.machine;
        format!(
            "# Doyen beside its rivals
Written by `just bench`; do not edit. {date}, commit {commit}, by `{command}`.

- {machine}, load average before: {load:.2}; {cores}
{versions}
Three members with one backup each (Redis Cluster: three masters and three replicas), in memory,
all on one machine. Doyen, Hazelcast and Olric acknowledge a write when the backup has it. Redis
Cluster replicates afterwards, unless WAIT asks for more. Traffic between Doyen's nodes is encrypted
(they have a secret); the others send plain text. Hazelcast runs with `-Xmx2g` and what Java chooses
for one processor. All systems run at the same time and their runs alternate; each round begins with
another system. Values have {value} bytes.

- Each figure is the median of {rounds} runs of {seconds} s; `[a..b]` are the smallest and the
  largest.
- `xN` is Doyen's figure divided by that system's: the median of the ratios round by round. Above 1
  is better for operations a second, below 1 for everything else.
- *CPU*: microseconds of processor time for each operation, user and system, all members together.
  *Core*: how much of their one core the members used. If it is well below 1.00, the generator was
  the limit of the run, and CPU says more than operations a second.
- Generators: `redis-benchmark` for the lines that give only clients and pipeline. For Doyen and
  Redis Cluster it runs with `--cluster`, and puts the keys of each master into one slot. For Olric,
  which has no cluster protocol, it uses one member. Hazelcast's own client takes its place: it
  knows which member has a key, runs in a JVM of its own, and has as many operations in flight as
  there are clients. All other lines use `doyen bench`, for Olric through all three members, unless
  the line says one node.
- INCR counts up one of as many counters as there are keys. HSET writes fields of one hash for each
  master, with as many fields as there are keys.
- By its own client: one client in one process, with this many operations in flight, one system at a
  time. The clients of Doyen and Hazelcast know which member has a key. Olric's client speaks RESP,
  and `doyen bench` does that for it, on as many connections.
- Half of its own peak: every system gets half of its own throughput in the closed loop, so
  operations a second are no comparison. Latency counts from when an operation was due.
- All values of 1 MB belong to one member, and the small values beside them to all three. The
  generator of large GETs then runs with `nice -n 10`: both generators share a processor, and small
  GETs must wait for the system, not for that generator.

{tables}Memory: growth of resident memory of all processes (Hazelcast: of the heap after a full
collection) by {keys} keys of 16 bytes, two copies of each. Each system was started alone for it.
Idle memory and connections are those of processes that have just started.

Every run of every round is in [{figures}]({figures}); `just bench-check` compares with it.
",
            date = machine.date,
            commit = machine.commit,
            command = self.command,
            machine = machine.described(),
            load = machine.load_before,
            cores = self.cores,
            value = super::systems::VALUE_BYTES,
            rounds = self.rounds,
            seconds = self.seconds,
            keys = self.memory_keys,
            tables = self.tables(),
        )
    }

    /// Writes the figures, with one case a line, so that `diff` shows which cases differ.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut value = serde_json::to_value(self)?;
        let fields = value.as_object_mut().context("an object")?;
        let mut text = String::from("{\n");
        for (n, (name, field)) in fields.iter().enumerate() {
            let comma = if n + 1 < fields.len() { "," } else { "" };
            match field.as_array().filter(|_| name == "cases") {
                Some(cases) => {
                    let lines: Vec<String> =
                        cases.iter().map(|case| format!("    {case}")).collect();
                    let _ = writeln!(text, "  \"cases\": [\n{}\n  ]{comma}", lines.join(",\n"));
                }
                None => drop(writeln!(text, "  \"{name}\": {field}{comma}")),
            }
        }
        text.push_str("}\n");
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads what [`Results::save`] wrote.
    ///
    /// # Errors
    /// There is no such file, or it holds something else.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)?;
        serde_json::from_str(&text).with_context(|| {
            format!(
                "{} holds no figures; `just bench` writes them",
                path.display()
            )
        })
    }
}

fn runs_table(cases: &[CaseRuns]) -> String {
    let mut rows = vec![
        [
            "",
            "",
            "operations a second",
            "p50",
            "p99",
            "p99.9",
            "CPU",
            "core",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for case in cases {
        let ours = case.runs.first().map_or(&[][..], |(_, runs)| runs);
        for (n, (subject, runs)) in case.runs.iter().enumerate() {
            let title = if n == 0 {
                case.title.clone()
            } else {
                String::new()
            };
            let theirs = if n == 0 { None } else { Some(ours) };
            let mut row = vec![
                title,
                subject.name().to_owned(),
                cell(
                    runs,
                    theirs.filter(|_| !case.rated),
                    |m| m.throughput,
                    thousands,
                    true,
                ),
            ];
            let latencies: [fn(&Measure) -> f64; 3] = [|m| m.p50_us, |m| m.p99_us, |m| m.p999_us];
            for what in latencies {
                row.push(cell(runs, theirs, what, latency, false));
            }
            row.push(cell(
                runs,
                theirs,
                |m| m.cpu_us,
                |v| format!("{v:.2} us"),
                false,
            ));
            row.push(cell(runs, None, |m| m.busy, |v| format!("{v:.2}"), false));
            rows.push(row);
        }
    }
    aligned(&rows)
}

/// A median, its spread if wanted, and Doyen's ratio to it.
fn cell(
    runs: &[Option<Measure>],
    ours: Option<&[Option<Measure>]>,
    what: fn(&Measure) -> f64,
    told: fn(f64) -> String,
    wide: bool,
) -> String {
    let all = values(runs, what);
    let mut text = number(&all, told);
    if let Some((least, most)) = spread(&all).filter(|_| wide && all.len() > 1) {
        let _ = write!(text, " [{}..{}]", told(least), told(most));
    }
    text + &ours
        .map(|ours| ratio(&values(ours, what), &all))
        .unwrap_or_default()
}

fn number(values: &[f64], told: fn(f64) -> String) -> String {
    median(values).map_or_else(|| "-".to_owned(), told)
}

fn ratio(ours: &[f64], theirs: &[f64]) -> String {
    median(&ratios(ours, theirs)).map_or_else(String::new, |r| format!(" x{r:.2}"))
}

fn thousands(value: f64) -> String {
    if value < 10_000.0 {
        format!("{:.2}k", value / 1e3)
    } else {
        format!("{:.1}k", value / 1e3)
    }
}

fn latency(us: f64) -> String {
    if us < 10_000.0 {
        format!("{us:.0} us")
    } else {
        format!("{:.1} ms", us / 1e3)
    }
}

fn memory_table(memory: &[(Kind, Vec<Memory>)]) -> String {
    let header = [
        "memory",
        "bytes per key and copy",
        "an idle process",
        "all processes",
        "idle, of a core",
        "an idle connection",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let ours = memory
        .first()
        .filter(|(kind, _)| *kind == Kind::Doyen)
        .map_or(&[][..], |(_, runs)| runs);
    for (kind, runs) in memory {
        let cell = |what: fn(&Memory) -> f64, told: fn(f64) -> String| {
            let (all, mine): (Vec<f64>, Vec<f64>) = (
                runs.iter().map(what).collect(),
                ours.iter().map(what).collect(),
            );
            number(&all, told)
                + &if *kind == Kind::Doyen {
                    String::new()
                } else {
                    ratio(&mine, &all)
                }
        };
        rows.push(vec![
            kind.name().to_owned(),
            cell(|m| m.key_bytes.unwrap_or(f64::NAN), |v| format!("{v:.0}"))
                + if *kind == Kind::Hazelcast {
                    " (heap)"
                } else {
                    ""
                },
            cell(|m| m.idle_mb, |v| format!("{v:.1} MB")),
            cell(|m| m.idle_mb * m.processes as f64, |v| format!("{v:.0} MB")),
            cell(|m| m.idle_cpu_percent, |v| format!("{v:.1} %")),
            cell(
                |m| m.connection_kb.unwrap_or(f64::NAN),
                |v| format!("{v:.1} kB"),
            ),
        ]);
    }
    aligned(&rows)
}

/// A Markdown table that is readable as plain text, too. The first row is the header.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|r| r.get(column))
            .map(|c| c.chars().count())
            .max()
            .unwrap_or(0)
            .max(3)
    };
    let mut text = String::new();
    for (n, row) in rows.iter().enumerate() {
        let cells: Vec<String> = (0..columns)
            .map(|c| format!("{:<1$}", row.get(c).map_or("", String::as_str), width(c)))
            .collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
        if n == 0 {
            let lines: Vec<String> = (0..columns).map(|c| "-".repeat(width(c) + 2)).collect();
            let _ = writeln!(text, "|{}|", lines.join("|"));
        }
    }
    text
}

/// Ratios of two subjects of a case, round by round.
#[must_use]
pub fn paired(
    case: &CaseRuns,
    ours: Subject,
    theirs: Subject,
    what: fn(&Measure) -> f64,
) -> Vec<f64> {
    ratios(&values(case.of(ours), what), &values(case.of(theirs), what))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn measure(throughput: f64) -> Option<Measure> {
        let us = 1e6 / throughput;
        Some(Measure {
            throughput,
            p50_us: us,
            p99_us: 20_000.0,
            p999_us: 50_000.0,
            cpu_us: us,
            busy: 0.9,
        })
    }

    pub(crate) fn results(doyen: &[f64], redis: &[f64]) -> Results {
        let runs = |values: &[f64]| {
            values
                .iter()
                .map(|v| if v.is_nan() { None } else { measure(*v) })
                .collect()
        };
        let case = CaseRuns {
            id: "set-50-p1".into(),
            title: "SET, 50 clients".into(),
            rated: false,
            runs: vec![(Subject::Doyen, runs(doyen)), (Subject::Redis, runs(redis))],
        };
        let memory = |key_bytes| Memory {
            key_bytes,
            processes: 3,
            idle_mb: 10.0,
            idle_cpu_percent: 0.5,
            connection_kb: None,
        };
        Results {
            machine: Machine::here(),
            cores: "not pinned".into(),
            command: "just bench".into(),
            rounds: doyen.len(),
            seconds: 3.0,
            memory_keys: 1000,
            versions: vec![(Kind::Doyen, "0.1.0".into())],
            missing: vec!["Olric: needs Go".into()],
            problems: Vec::new(),
            cases: vec![case],
            memory: vec![
                (Kind::Doyen, vec![memory(Some(150.0))]),
                (Kind::Redis, vec![memory(Some(300.0))]),
            ],
        }
    }

    #[test]
    fn each_rival_s_row_has_the_ratio_to_doyen() {
        let tables = results(
            &[100_000.0, 120_000.0, 110_000.0],
            &[50_000.0, 80_000.0, 55_000.0],
        )
        .tables();
        assert!(tables.contains("110.0k [100.0k..120.0k]"), "{tables}");
        // Ratios 2, 1.5 and 2.
        assert!(tables.contains("55.0k [50.0k..80.0k] x2.00"), "{tables}");
        assert!(tables.contains("300 x0.50"), "{tables}");
        assert!(tables.contains("20.0 ms x1.00"), "{tables}");
        assert!(tables.contains("MISSING: Olric: needs Go"), "{tables}");
    }

    #[test]
    fn failed_runs_are_left_out_and_a_dash_stands_for_none_left() {
        let tables = results(&[100_000.0, f64::NAN, 100_000.0], &[f64::NAN; 3]).tables();
        assert!(tables.contains("100.0k [100.0k..100.0k]"), "{tables}");
        assert!(tables.contains("| Redis Cluster | - "), "{tables}");
    }

    #[test]
    fn figures_are_read_as_they_were_written() {
        let dir = tempfile::TempDir::new().expect("a directory");
        let path = dir.path().join("figures.json");
        let written = results(&[1.0, f64::NAN, 3.0], &[2.0; 3]);
        written.save(&path).expect("written");
        let read = Results::load(&path).expect("read");
        assert_eq!(
            serde_json::to_value(&read).expect("JSON"),
            serde_json::to_value(&written).expect("JSON")
        );
        assert_eq!(
            paired(&read.cases[0], Subject::Doyen, Subject::Redis, |m| m
                .throughput),
            [0.5, 1.5]
        );
    }
}
