//! The report: a block of text for people, or one JSON object for programs.

use super::recorder::Recorder;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The width of the longest bar.
const BAR: u64 = 50;
/// Latencies from here on are printed in seconds.
const SECOND_US: f64 = 1e6;

/// The figures of a run. The names are those of the JSON, and must not change.
#[derive(Debug, Serialize)]
pub(super) struct BenchReport {
    operation: &'static str,
    /// Operations that succeeded.
    operations: u64,
    /// The time from the beginning of the measurement to its last reply.
    seconds: f64,
    /// Operations a second.
    throughput: f64,
    errors: BTreeMap<String, u64>,
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    p9999_us: f64,
    max_us: f64,
    longest_stall_us: f64,
    /// Starts of the open loop that were due before the end, but were never sent.
    behind: u64,
    /// Reads that found a value.
    hits: u64,
    /// The full text of the first error.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_error: Option<String>,
    #[serde(skip)]
    gets: u64,
    /// The requested load, in words.
    #[serde(skip)]
    load: String,
    #[serde(skip)]
    bars: Vec<Bar>,
}

/// How many latencies lie between the bound before this one and this bound.
#[derive(Debug, PartialEq)]
struct Bar {
    below_us: f64,
    count: u64,
}

impl BenchReport {
    /// `seconds` is the length of the measurement at least.
    pub(super) fn new(
        operation: &'static str,
        load: String,
        seconds: f64,
        behind: u64,
        recorder: &Recorder,
    ) -> Self {
        let latencies = recorder.latencies();
        let at = |quantile| us(latencies.value_at_quantile(quantile));
        let seconds = seconds.max(recorder.span() as f64 / 1e9);
        let (gets, hits) = recorder.gets_and_hits();
        Self {
            operation,
            operations: recorder.operations(),
            seconds: rounded(seconds),
            throughput: rounded(recorder.operations() as f64 / seconds),
            errors: recorder.errors().clone(),
            mean_us: rounded(latencies.mean() / 1e3),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            p9999_us: at(0.9999),
            max_us: us(latencies.max()),
            longest_stall_us: us(recorder.longest_stall()),
            behind,
            hits,
            first_error: recorder.first_error().map(str::to_owned),
            gets,
            load,
            bars: bars(recorder),
        }
    }
}

/// Counts between the bounds 1, 2, 5, 10, 20, 50, .. microseconds, from the first to the last that
/// is not empty.
fn bars(recorder: &Recorder) -> Vec<Bar> {
    let latencies = recorder.latencies();
    let mut bars: Vec<Bar> = Vec::new();
    let (mut from, mut told, mut decade) = (0, 0, 1_000_u64);
    while told < latencies.len() {
        for step in [1, 2, 5] {
            let below = decade * step;
            let count = latencies
                .count_between(from, below - 1)
                .min(latencies.len() - told);
            if (count > 0 || !bars.is_empty()) && told < latencies.len() {
                bars.push(Bar {
                    below_us: us(below),
                    count,
                });
            }
            told += count;
            // The histogram counts in steps. The step that contains the bound was counted with the
            // values below it.
            from = latencies.highest_equivalent(below - 1) + 1;
        }
        decade *= 10;
    }
    bars
}

/// Advice for errors that wrong flags cause.
const HINTS: [(&str, &str); 2] = [
    (
        "MOVED",
        "these ports are for cluster-aware clients: add --cluster, or ask the --resp ports",
    ),
    (
        "NOAUTH",
        "the servers require a password: give --password-file",
    ),
];

impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.load)?;
        writeln!(
            f,
            "operations     {:>12}  in {:.2} s",
            self.operations, self.seconds
        )?;
        writeln!(f, "throughput     {:>12.0}  a second", self.throughput)?;
        if self.gets > 0 {
            writeln!(
                f,
                "hits           {:>12}  of {} reads",
                self.hits, self.gets
            )?;
        }
        let errors: Vec<String> = self
            .errors
            .iter()
            .map(|(kind, n)| format!("{kind} {n}"))
            .collect();
        let line = format!(
            "errors         {:>12}  {}",
            self.errors.values().sum::<u64>(),
            errors.join(", ")
        );
        writeln!(f, "{}", line.trim_end())?;
        if let Some(first) = &self.first_error {
            writeln!(f, "{:<15}the first: {first}", "")?;
        }
        for (kind, hint) in HINTS {
            if self.errors.keys().any(|k| k == kind) {
                writeln!(f, "{:<15}{kind}: {hint}", "")?;
            }
        }
        if self.behind > 0 {
            writeln!(
                f,
                "behind by      {:>12}  starts that were due, warm-up included, but never sent; \
                 the latencies below do not include them",
                self.behind
            )?;
        }
        if self.operations == 0 {
            return writeln!(f, "latency                   -  no operation succeeded");
        }
        let latencies = [
            ("mean", self.mean_us),
            ("p50", self.p50_us),
            ("p90", self.p90_us),
            ("p99", self.p99_us),
            ("p99.9", self.p999_us),
            ("p99.99", self.p9999_us),
            ("max", self.max_us),
            ("longest stall", self.longest_stall_us),
        ];
        for (name, value) in latencies {
            writeln!(f, "{name:<13}  {value:>12.1}  us")?;
        }
        let most = self.bars.iter().map(|b| b.count).max().unwrap_or(0).max(1);
        for (n, Bar { below_us, count }) in self.bars.iter().enumerate() {
            let share = *count as f64 * 100.0 / self.operations.max(1) as f64;
            let bar = "#".repeat((count * BAR).div_ceil(most) as usize);
            let line = format!("below {:<7}  {share:>11.3}%  {bar}", bound(*below_us));
            writeln!(f, "{}{}", if n == 0 { "\n" } else { "" }, line.trim_end())?;
        }
        Ok(())
    }
}

/// A bound, in the largest unit that fits.
fn bound(us: f64) -> String {
    match us {
        _ if us >= SECOND_US => format!("{} s", us / SECOND_US),
        _ if us >= 1e3 => format!("{} ms", us / 1e3),
        _ => format!("{us} us"),
    }
}

fn us(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

/// Rounds to three digits after the point. Further digits mean nothing.
fn rounded(figure: f64) -> f64 {
    (figure * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::super::plan::OperationKind;
    use super::*;

    /// 90 reads of 150 us, 9 of 3 ms, 1 of 1.2 s, and an error.
    fn report(behind: u64) -> BenchReport {
        let mut recorder = Recorder::new();
        recorder.measure_from(0);
        for (count, latency) in [(90, 150_000), (9, 3_000_000), (1, 1_200_000_000)] {
            for _ in 0..count {
                recorder.sent(0);
                recorder.heard(latency);
                recorder.answered(OperationKind::Get, latency < 1_000_000, 0, latency);
            }
        }
        recorder.sent(0);
        recorder.failed("BUSY too much");
        BenchReport::new("get", "get of 100 keys".into(), 1.0, behind, &recorder)
    }

    #[test]
    fn the_json_has_stable_names_and_microseconds() {
        let json = serde_json::to_value(report(7)).expect("JSON");
        let names: Vec<&str> = json
            .as_object()
            .expect("an object")
            .keys()
            .map(String::as_str)
            .collect();
        let mut expected = vec![
            "operation",
            "operations",
            "seconds",
            "throughput",
            "errors",
            "mean_us",
            "p50_us",
            "p90_us",
            "p99_us",
        ];
        expected.extend([
            "p999_us",
            "p9999_us",
            "max_us",
            "longest_stall_us",
            "behind",
            "hits",
            "first_error",
        ]);
        expected.sort_unstable();
        let mut names = names;
        names.sort_unstable();
        assert_eq!(names, expected);
        assert_eq!(
            (
                json["operations"].as_u64(),
                json["hits"].as_u64(),
                json["behind"].as_u64()
            ),
            (Some(100), Some(90), Some(7))
        );
        // The last reply came after the requested time.
        assert_eq!(
            (json["seconds"].as_f64(), json["errors"]["BUSY"].as_u64()),
            (Some(1.2), Some(1))
        );
        for (name, expected) in [
            ("p50_us", 150.0),
            ("p90_us", 150.0),
            ("p99_us", 3000.0),
            ("p999_us", 1_200_000.0),
            ("max_us", 1_200_000.0),
        ] {
            let told = json[name].as_f64().expect("a number");
            assert!((told / expected - 1.0).abs() < 0.001, "{name}: {told}");
        }
        let mean = json["mean_us"].as_f64().expect("a number");
        assert!((mean / 12_405.0 - 1.0).abs() < 0.001, "{mean}");
    }

    #[test]
    fn bars_cover_all_latencies_in_log_steps() {
        let told: Vec<(String, u64)> = report(0)
            .bars
            .iter()
            .map(|b| (bound(b.below_us), b.count))
            .collect();
        assert_eq!(told.first(), Some(&("200 us".to_owned(), 90)));
        assert_eq!(
            told.iter().find(|(b, _)| b == "5 ms").map(|(_, n)| *n),
            Some(9)
        );
        assert_eq!(told.last(), Some(&("2 s".to_owned(), 1)));
        assert_eq!(
            (told.len(), told.iter().map(|(_, n)| n).sum::<u64>()),
            (13, 100)
        );
    }

    #[test]
    fn the_text_is_one_aligned_block() {
        let text = report(0).to_string();
        assert!(
            text.starts_with("get of 100 keys\n\noperations              100  in 1.20 s\n"),
            "{text}"
        );
        assert!(
            text.contains(
                "\nhits                     90  of 100 reads\nerrors                    1  BUSY 1\n"
            ),
            "{text}"
        );
        assert!(
            text.contains("\n               the first: BUSY too much\n"),
            "{text}"
        );
        assert!(
            text.contains(&format!(
                "\nbelow 200 us        90.000%  {}\n",
                "#".repeat(50)
            )),
            "{text}"
        );
        assert!(
            text.contains("\nbelow 10 ms          0.000%\n") && !text.contains("behind"),
            "{text}"
        );
        assert!(
            report(7)
                .to_string()
                .contains("\nbehind by                 7  starts")
        );
        let mut nothing = Recorder::new();
        nothing.measure_from(0);
        let nothing = BenchReport::new("set", "set".into(), 1.0, 0, &nothing).to_string();
        assert!(
            nothing.ends_with("latency                   -  no operation succeeded\n"),
            "{nothing}"
        );
    }

    #[test]
    fn a_run_without_operations_is_reported_as_well() {
        let text = BenchReport::new("set", "set".into(), 5.0, 0, &Recorder::new()).to_string();
        assert!(
            text.contains("operations                0  in 5.00 s") && !text.contains("below"),
            "{text}"
        );
    }
}
