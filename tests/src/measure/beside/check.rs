//! Whether Doyen has become slower since the committed figures, as ratios to Redis Cluster in the
//! same run.

use super::cases::{Case, Subject};
use super::report::{Results, paired};
use super::suite::{CaseRuns, Suite};
use super::systems::Installed;
use crate::measure::children::Cores;
use crate::measure::stats::{CHANCE_MAX, Comparison, FLOOR};
use anyhow::{Result, ensure};
use std::path::Path;

/// How the verdict is made, as a text.
#[must_use]
pub fn how(rounds: usize) -> String {
    format!(
        "Decides by ratios: Doyen's figure divided by Redis Cluster's in the same round, {rounds} \
         rounds now beside the committed ones.\n\
         A figure has dropped if the median ratio is more than {:.0} % worse than the committed \
         one, and \
         if unchanged code would rank as low with a probability of {:.1} % at most (exact \
         one-sided \
         Mann-Whitney).\n\
         A case that dropped is measured once more with fresh clusters. It fails if it drops \
         again.",
        FLOOR * 100.0,
        CHANCE_MAX * 100.0
    )
}

/// One figure of one case beside its committed one.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// [`Case::id`].
    pub id: String,
    /// The case and the figure, as a text.
    pub what: String,
    /// `None` if there is nothing to compare with.
    pub comparison: Option<Comparison>,
}

impl Line {
    /// Whether it is worse than noise explains.
    #[must_use]
    pub fn dropped(&self) -> bool {
        self.comparison.as_ref().is_some_and(Comparison::dropped)
    }

    /// The line of the report.
    #[must_use]
    pub fn told(&self) -> String {
        let Some(c) = &self.comparison else {
            return format!("{:<52} nothing to compare", self.what);
        };
        let verdict = if c.dropped() { "DROPPED" } else { "holds" };
        let change = (c.change() - 1.0) * 100.0;
        format!(
            "{:<52} {:.3}, committed {:.3}: {change:+.1} %, by chance {:.1} %  {verdict}",
            self.what,
            c.now,
            c.committed,
            c.chance * 100.0
        )
    }
}

/// Compares this run with the committed one. Processor time enters as its inverse, so that a larger
/// figure is always better.
#[must_use]
pub fn compare(committed: &[CaseRuns], now: &[CaseRuns]) -> Vec<Line> {
    let mut lines = Vec::new();
    for case in now {
        let before = committed.iter().find(|c| c.id == case.id);
        for (what, figure) in [
            ("operations a second", 0),
            ("operations by processor time", 1),
        ] {
            let ratios = |case: &CaseRuns| match figure {
                0 => paired(case, Subject::Doyen, Subject::Redis, |m| m.throughput),
                _ => paired(case, Subject::Redis, Subject::Doyen, |m| m.cpu_us),
            };
            let comparison =
                before.and_then(|before| Comparison::of(&ratios(before), &ratios(case)));
            lines.push(Line {
                id: case.id.clone(),
                what: format!("{}, {what}", case.title),
                comparison,
            });
        }
    }
    lines
}

/// Measures and judges. A case that dropped is measured twice. Returns the lines that dropped both
/// times.
///
/// # Errors
/// A system does not start, there is nothing to compare, or a signal asks this process to end.
pub fn check(
    committed: &Results,
    installed: &[Installed],
    cases: &[Case],
    binary: &Path,
    cores: Cores,
    seconds: f64,
    rounds: usize,
) -> Result<Vec<Line>> {
    let measure = |cases: &[Case]| -> Result<Vec<Line>> {
        let mut suite = Suite::start(installed, cases, binary, cores, seconds)?;
        let now = suite.rounds(cases, rounds)?;
        ensure!(
            suite.problems.is_empty(),
            "runs failed: {}",
            suite.problems.join("; ")
        );
        let lines = compare(&committed.cases, &now);
        for line in &lines {
            println!("{}", line.told());
        }
        Ok(lines)
    };
    let lines = measure(cases)?;
    ensure!(
        lines.iter().any(|l| l.comparison.is_some()),
        "the committed figures have none of these cases; run `just bench` to write new ones"
    );
    let dropped: Vec<Line> = lines.into_iter().filter(Line::dropped).collect();
    let again: Vec<Case> = cases
        .iter()
        .filter(|c| dropped.iter().any(|l| l.id == c.id))
        .cloned()
        .collect();
    if again.is_empty() {
        return Ok(Vec::new());
    }
    println!("\nOnce more, with fresh clusters:");
    let twice = measure(&again)?;
    Ok(twice
        .into_iter()
        .filter(|line| line.dropped() && dropped.iter().any(|before| before.what == line.what))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::results;
    use super::*;

    const REDIS: [f64; 5] = [100_000.0, 90_000.0, 110_000.0, 105_000.0, 95_000.0];

    fn lines(committed: f64, now: f64) -> Vec<Line> {
        // On a machine of another speed, all systems are half as fast.
        let doyen = |share: f64, speed: f64| REDIS.map(|r| r * share * speed);
        let committed = results(&doyen(committed, 1.0), &REDIS);
        let now = results(&doyen(now, 0.5), &REDIS.map(|r| r * 0.5));
        compare(&committed.cases, &now.cases)
    }

    #[test]
    fn a_slower_machine_is_no_drop() {
        assert!(lines(1.0, 1.0).iter().all(|l| !l.dropped()));
    }

    #[test]
    fn a_slower_doyen_is_a_drop() {
        let lines = lines(1.0, 0.8);
        assert!(lines.iter().all(Line::dropped), "{lines:?}");
        assert!(lines[0].told().contains("-20.0 %"), "{}", lines[0].told());
        assert!(lines[0].told().ends_with("DROPPED"));
    }

    #[test]
    fn a_case_without_committed_figures_is_named_and_fails_nothing() {
        let now = results(&REDIS, &REDIS);
        let lines = compare(&[], &now.cases);
        assert!(
            lines
                .iter()
                .all(|l| !l.dropped() && l.told().contains("nothing to compare"))
        );
    }
}
