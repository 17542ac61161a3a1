//! The report of a run, for people and for programs.

use super::book::{Book, Fault, Second};
use super::follow::FollowVerdict;
use super::load::READER;
use super::locks::Locks;
use super::near::NearVerdict;
use super::queues::Queues;
use doyen::testkit::linear::Call;
use doyen::testkit::{DatagramCounts, Violation, Wrong};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Violations that are printed in full, at most.
const TOLD_MAX: usize = 5;

/// Explains the last line.
const LEGEND: &str = "\
unknown: writes that may or may not have happened; refused: operations that did not happen
keys: lost, an acknowledged write is gone; stale, an overwritten value was read;
      unexplained, no order of events explains an answer;
      undecided, too many orders to try them all; unread, no answer in the end
subscriber: told, changes that came; missed, said to be missing; untold, acknowledged and not told;
      twice, told again
near cache: reads; copies, those in the process; old, less than was acknowledged before its bound
locks: grants; lost, before they were given back; fenced, late writes of former
      holders that were refused; broken, promises that did not hold: too many holders, a token that
      did not grow, a grant lost too early, a wrong outcome of a fenced write, a lock that is stuck
queues: elements that were pushed; open, missing with a pop whose outcome is not known; wrong,
      popped twice, never pushed, missing, or a queue that cannot be read";

/// The report. Times are in seconds.
#[derive(Debug, Serialize)]
pub(super) struct ChaosReport {
    pub(super) seed: u64,
    pub(super) nodes: u8,
    pub(super) backups: u8,
    pub(super) seconds: f64,
    /// Ctrl-C ended the run early.
    pub(super) by_hand: bool,
    /// Operations with an answer.
    pub(super) operations: u64,
    pub(super) unknown: u64,
    pub(super) refused: u64,
    pub(super) keys: usize,
    /// Keys whose acknowledged write was missing in the end, or never seen.
    pub(super) lost: usize,
    /// Keys with a read of an overwritten value.
    pub(super) stale: usize,
    /// Keys with another answer that no order of events explains.
    pub(super) unexplained: usize,
    /// Keys that the search did not decide within its limits.
    pub(super) undecided: usize,
    /// Keys that could not be read back.
    pub(super) unread: u64,
    /// What the subscriber was told.
    pub(super) told: FollowVerdict,
    /// What the near cache gave.
    pub(super) near: NearVerdict,
    /// What callers of locks saw.
    pub(super) locks: Locks,
    /// What became of the elements of queues.
    pub(super) queues: Queues,
    /// What is wrong with the cluster, if it did not heal.
    pub(super) unhealed: Option<String>,
    /// The directory of the logs, if something is wrong.
    pub(super) logs: Option<String>,
    /// What the relays did to datagrams.
    pub(super) datagrams: DatagramCounts,
    pub(super) kinds: Vec<KindReport>,
    pub(super) faults: Vec<FaultReport>,
    pub(super) timeline: Vec<Second>,
    pub(super) violations: Vec<String>,
}

/// All faults of one kind that were not cut short.
#[derive(Debug, Serialize)]
pub(super) struct KindReport {
    pub(super) kind: String,
    pub(super) faults: usize,
    /// The longest wait of a client for each of them, until all data was safe.
    pub(super) unavailable: Spread,
    /// The time from the end of each of them until all data was safe.
    pub(super) healing: Spread,
}

/// The distribution of several spans.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) p99: f64,
    pub(super) worst: f64,
}

/// One fault.
#[derive(Debug, Serialize)]
pub(super) struct FaultReport {
    pub(super) kind: String,
    pub(super) text: String,
    pub(super) began: f64,
    pub(super) ended: f64,
    pub(super) healed: f64,
    pub(super) safe: bool,
    /// The run ended before the fault did, so no count of faults includes it.
    /// By the nearest rank; zero if there are no spans.
    pub(super) cut_short: bool,
    pub(super) unavailable: f64,
}

impl Spread {
    /// By the nearest rank. Nothing of nothing.
    fn of(mut spans: Vec<Duration>) -> Self {
        spans.sort_unstable();
        let at = |share: f64| {
            let rank = (share * spans.len() as f64).ceil() as usize;
            spans
                .get(rank.saturating_sub(1))
                .map_or(0.0, Duration::as_secs_f64)
        };
        Self {
            median: at(0.5),
            p99: at(0.99),
            worst: at(1.0),
        }
    }
}

impl ChaosReport {
    pub(super) fn new(
        book: &Book,
        seed: u64,
        nodes: u8,
        backups: u8,
        elapsed: Duration,
        violations: Vec<Violation>,
    ) -> Self {
        let mut kinds: BTreeMap<&str, Vec<&Fault>> = BTreeMap::new();
        for fault in book.faults.iter().filter(|f| !f.cut_short) {
            kinds.entry(&fault.kind).or_default().push(fault);
        }
        let count = |what: ChaosVerdict| violations.iter().filter(|v| verdict(v) == what).count();
        Self {
            seed,
            nodes,
            backups,
            seconds: elapsed.as_secs_f64(),
            by_hand: false,
            operations: book.total(|s| s.answered),
            unknown: book.total(|s| s.unknown),
            refused: book.total(|s| s.refused),
            keys: 0,
            lost: count(ChaosVerdict::Lost),
            stale: count(ChaosVerdict::Stale),
            unexplained: count(ChaosVerdict::Unexplained),
            undecided: count(ChaosVerdict::Undecided),
            unread: 0,
            told: FollowVerdict::default(),
            near: NearVerdict::default(),
            locks: Locks::default(),
            queues: Queues::default(),
            unhealed: None,
            logs: None,
            datagrams: DatagramCounts::default(),
            kinds: kinds
                .into_iter()
                .map(|(kind, faults)| KindReport {
                    kind: kind.to_owned(),
                    faults: faults.len(),
                    unavailable: Spread::of(faults.iter().map(|f| book.unavailable(f)).collect()),
                    healing: Spread::of(faults.iter().map(|f| f.healing()).collect()),
                })
                .collect(),
            faults: book
                .faults
                .iter()
                .map(|fault| FaultReport {
                    kind: fault.kind.clone(),
                    text: fault.text.clone(),
                    began: fault.began.as_secs_f64(),
                    ended: fault.ended.as_secs_f64(),
                    healed: fault.healed.as_secs_f64(),
                    safe: fault.safe,
                    cut_short: fault.cut_short,
                    unavailable: book.unavailable(fault).as_secs_f64(),
                })
                .collect(),
            timeline: book.seconds.clone(),
            violations: violations
                .iter()
                .take(TOLD_MAX)
                .map(ToString::to_string)
                .collect(),
        }
    }

    /// The number of faults that were not cut short.
    pub(super) fn whole(&self) -> usize {
        self.faults.iter().filter(|f| !f.cut_short).count()
    }

    /// The violations that are printed in full.
    pub(super) fn told_in_full(&self) -> impl Iterator<Item = &String> {
        let of_locks = self.locks.violations.iter();
        let of_queues = self.queues.violations.iter();
        self.violations.iter().chain(of_locks).chain(of_queues)
    }

    /// Whether Doyen kept all its promises.
    pub(super) fn holds(&self) -> bool {
        self.lost + self.stale + self.unexplained + self.undecided == 0
            && self.unread == 0
            && self.told.holds()
            && self.near.holds()
            && self.locks.holds()
            && self.queues.holds()
            && self.unhealed.is_none()
            // Without operations, the run shows nothing.
            && self.operations > 0
    }
}

/// The total of all rounds.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct ReportSum {
    rounds: u32,
    hours: f64,
    faults: usize,
    operations: u64,
    unknown: u64,
    refused: u64,
    lost: usize,
    stale: usize,
    unexplained: usize,
    undecided: usize,
    unread: u64,
    /// Changes that subscribers were told, and those that are missing without a word, or came
    /// twice.
    told: u64,
    untold: u64,
    /// Reads of near caches, and those that were older than their bound.
    near: u64,
    old: u64,
    /// Grants of locks, and promises about them that did not hold.
    locks: u64,
    broken: u64,
    /// Elements of queues, and promises about them that did not hold.
    queues: u64,
    wrong: u64,
    unhealed: u32,
    /// The longest wait of a client for an answer, in seconds.
    waited: f64,
}

impl ReportSum {
    pub(super) fn add(&mut self, report: &ChaosReport) {
        self.rounds += 1;
        self.hours += report.seconds / 3600.0;
        self.faults += report.whole();
        self.operations += report.operations;
        self.unknown += report.unknown;
        self.refused += report.refused;
        self.lost += report.lost;
        self.stale += report.stale;
        self.unexplained += report.unexplained;
        self.undecided += report.undecided;
        self.unread += report.unread;
        self.told += report.told.changes;
        self.untold += report.told.untold + report.told.twice;
        self.near += report.near.reads;
        self.old += report.near.old;
        self.locks += report.locks.grants;
        self.broken += report.locks.broken();
        self.queues += report.queues.pushed;
        self.wrong += report.queues.broken();
        self.unhealed += u32::from(report.unhealed.is_some());
        self.waited = report
            .faults
            .iter()
            .map(|f| f.unavailable)
            .fold(self.waited, f64::max);
    }
}

impl fmt::Display for ReportSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "total: rounds {}  hours {:.2}  faults {}  operations {}  unknown {}  refused {}  \
             lost {}  stale {}  unexplained {}  undecided {}  unread {}  told {}  untold {}  \
             near {}  old {}  locks {}  broken {}  queues {}  wrong {}  \
             unhealed {}  longest wait {:.2} s",
            self.rounds,
            self.hours,
            self.faults,
            self.operations,
            self.unknown,
            self.refused,
            self.lost,
            self.stale,
            self.unexplained,
            self.undecided,
            self.unread,
            self.told,
            self.untold,
            self.near,
            self.old,
            self.locks,
            self.broken,
            self.queues,
            self.wrong,
            self.unhealed,
            self.waited,
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChaosVerdict {
    Lost,
    Stale,
    Unexplained,
    Undecided,
}

/// If the final reading gives an overwritten value, the write is lost rather than the read stale.
fn verdict(violation: &Violation) -> ChaosVerdict {
    let in_the_end = violation
        .entry
        .as_ref()
        .is_some_and(|entry| entry.client == READER && entry.call == Call::Get);
    match violation.wrong {
        Wrong::Missing => ChaosVerdict::Lost,
        Wrong::Stale if in_the_end => ChaosVerdict::Lost,
        Wrong::Stale => ChaosVerdict::Stale,
        Wrong::Answer => ChaosVerdict::Unexplained,
        Wrong::Undecided => ChaosVerdict::Undecided,
    }
}

impl fmt::Display for ChaosReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{:<22}{:>6}   {:^27}   {:^27}",
            "fault", "times", "longest wait of a client, s", "safe again after, s"
        )?;
        writeln!(
            f,
            "{:<28}   {:>9}{:>9}{:>9}   {:>9}{:>9}{:>9}",
            "", "median", "p99", "worst", "median", "p99", "worst"
        )?;
        for KindReport {
            kind,
            faults,
            unavailable: u,
            healing: h,
        } in &self.kinds
        {
            let spread = |s: &Spread| format!("{:>9.2}{:>9.2}{:>9.2}", s.median, s.p99, s.worst);
            writeln!(f, "{kind:<22}{faults:>6}   {}   {}", spread(u), spread(h))?;
        }
        let DatagramCounts {
            received,
            dropped,
            duplicated,
            corrupted,
            delayed,
        } = &self.datagrams;
        writeln!(
            f,
            "\n{received} datagrams between nodes: {dropped} dropped, {delayed} delayed, \
             {duplicated} duplicated, {corrupted} corrupted"
        )?;
        for fault in self.faults.iter().filter(|fault| fault.cut_short) {
            writeln!(
                f,
                "cut short by the end of the run, and not counted: {}",
                fault.text
            )?;
        }
        self.told_in_full()
            .try_for_each(|violation| writeln!(f, "\n{violation}"))?;
        if self.by_hand {
            writeln!(f, "interrupted after {:.1} s", self.seconds)?;
        }
        if self.operations == 0 {
            writeln!(f, "no operation was answered, so the run shows nothing")?;
        }
        if let Some(why) = &self.unhealed {
            writeln!(f, "\nthe cluster did not heal: {why}")?;
        }
        if let Some(logs) = &self.logs {
            writeln!(f, "\nthe logs of the nodes are in {logs}")?;
        }
        writeln!(f, "\n{LEGEND}")?;
        writeln!(
            f,
            "seed {}  faults {}  operations {}  unknown {}  refused {}  keys {}  lost {}  stale \
             {}  unexplained {}  undecided {}  unread {}  told {}  missed {}  untold {}  twice {}  \
             near {} (copies {})  old {}  locks {} (lost {})  fenced {}  broken {}  \
             queues {} (open {})  wrong {}  healed {}",
            self.seed,
            self.whole(),
            self.operations,
            self.unknown,
            self.refused,
            self.keys,
            self.lost,
            self.stale,
            self.unexplained,
            self.undecided,
            self.unread,
            self.told.changes,
            self.told.missed,
            self.told.untold,
            self.told.twice,
            self.near.reads,
            self.near.copies,
            self.near.old,
            self.locks.grants,
            self.locks.lost,
            self.locks.fenced,
            self.locks.broken(),
            self.queues.pushed,
            self.queues.open,
            self.queues.broken(),
            if self.unhealed.is_none() {
                "always"
            } else {
                "NOT"
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doyen::testkit::History;
    use doyen::testkit::linear::Answer;

    fn report(history: &History) -> ChaosReport {
        let mut book = Book::new(false);
        book.second.answered = 1;
        ChaosReport::new(&book, 1, 3, 1, Duration::from_secs(1), history.judge())
    }

    #[test]
    fn a_value_missing_in_the_end_is_lost_and_an_old_one_read_before_is_stale() {
        for (reader, lost, stale) in [(READER, 1, 0), (2, 0, 1)] {
            let history = History::new();
            history
                .call("k", 1, Call::Set(b"old".to_vec()))
                .answered(Answer::Ok);
            history
                .call("k", 1, Call::Set(b"new".to_vec()))
                .answered(Answer::Ok);
            assert!(report(&history).holds());
            history
                .call("k", reader, Call::Get)
                .answered(Answer::Bulk(b"old".to_vec()));
            let report = report(&history);
            assert_eq!(
                (report.lost, report.stale, report.holds()),
                (lost, stale, false),
                "{report}"
            );
        }
    }

    #[test]
    fn a_key_that_cannot_be_read_and_a_cluster_that_does_not_heal_are_failures() {
        let mut unread = report(&History::new());
        assert!(unread.holds());
        unread.unread = 1;
        assert!(!unread.holds());
        let mut untold = report(&History::new());
        untold.told.untold = 1;
        assert!(!untold.holds());
        let mut old = report(&History::new());
        old.near.old = 1;
        assert!(!old.holds() && old.to_string().contains("old 1"));
        let mut broken = report(&History::new());
        broken.locks.crowded = 1;
        broken.locks.violations = vec!["lock: two holders".into()];
        let text = broken.to_string();
        assert!(
            !broken.holds() && text.contains("broken 1") && text.contains("\nlock: two holders")
        );
        let mut wrong = report(&History::new());
        wrong.queues.twice = 1;
        assert!(!wrong.holds() && wrong.to_string().contains("wrong 1"));
        let mut unhealed = report(&History::new());
        unhealed.unhealed = Some("ada is silent".into());
        assert!(!unhealed.holds() && unhealed.to_string().contains("healed NOT"));
    }

    #[test]
    fn a_fault_cut_short_is_reported_but_not_counted() {
        let mut book = Book::new(false);
        book.second.answered = 1;
        for (text, cut_short) in [("SIGKILL to ada", false), ("SIGSTOP to boris", true)] {
            book.faults.push(Fault {
                cut_short,
                ..Fault::begin(&book, "kill", text.into())
            });
        }
        let report = ChaosReport::new(&book, 1, 3, 1, Duration::from_secs(1), Vec::new());
        let text = report.to_string();
        assert!(
            text.contains("faults 1 ")
                && text.contains(
                    "cut short by the end of the run, and not counted: SIGSTOP to \
                                  boris"
                ),
            "{text}"
        );
        assert_eq!((report.kinds[0].faults, report.faults.len()), (1, 2));
    }

    #[test]
    fn a_run_of_hours_sums_up_its_rounds() {
        let mut first = report(&History::new());
        first.lost = 2;
        let mut second = report(&History::new());
        second.unhealed = Some("ada is silent".into());
        let mut sum = ReportSum::default();
        [first, second].iter().for_each(|report| sum.add(report));
        assert_eq!(
            (sum.rounds, sum.operations, sum.lost, sum.unhealed),
            (2, 2, 2, 1),
            "{sum}"
        );
    }

    #[test]
    fn spreads_are_by_nearest_rank() {
        let spans = (1..=200).map(Duration::from_secs).collect();
        assert_eq!(
            Spread::of(spans),
            Spread {
                median: 100.0,
                p99: 198.0,
                worst: 200.0
            }
        );
        assert_eq!(
            Spread::of(Vec::new()),
            Spread {
                median: 0.0,
                p99: 0.0,
                worst: 0.0
            }
        );
    }
}
