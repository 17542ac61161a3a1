//! A member's reports of its loads to the coordinator: what they contain, and when they are worth
//! sending.

use super::{MeasuredPartition, MemberLoad, PartitionLoad, Progress};
use crate::id::{Epoch, KeyspaceId, MemberId, PartitionId, PartitionRef};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The approximate largest size of a report.
pub const REPORT_BYTES_MAX: usize = 32 << 10;
/// The largest size of one partition in a report, without the key of its skew: its name and six
/// numbers.
const ENTRY_BYTES: usize = 64;
/// After this many reports, everything is reported again. So a load that the coordinator forgot or
/// did not believe is not missing for long.
const ROUND: u32 = 30;
/// The largest error of the sum over all partitions: this part of it, or this number.
const DRIFT: u64 = 10;
const WORK_GAP: u64 = 20;
/// Begins and ends an empty range.
const PLACEHOLDER: PartitionRef = PartitionRef::new(KeyspaceId(0), PartitionId(0));

/// The measurements of a member, or of one of its data threads: those of its partitions that have
/// changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The member's own load.
    pub member: MemberLoad,
    /// Loads of partitions that it leads.
    pub partitions: Vec<MeasuredPartition>,
    /// All copies that it sends.
    pub moves: Vec<Progress>,
    /// Live members whose data ports it has no connection with.
    pub unheard: Vec<MemberId>,
}

/// Chooses what to report: loads that differ from their last report, in turn, as far as a report
/// has room.
#[derive(Debug, Default)]
pub struct Reporter {
    present: BTreeMap<PartitionRef, PartitionLoad>,
    /// With the tenure of the report: the coordinator forgets reports of other tenures.
    said: BTreeMap<PartitionRef, (Epoch, PartitionLoad)>,
    /// The last partition that was reported. The next report begins behind it.
    last: Option<PartitionRef>,
    reports: u32,
}

impl Reporter {
    /// Takes new measurements.
    pub fn measure(&mut self, loads: impl IntoIterator<Item = MeasuredPartition>) {
        self.present.extend(loads);
    }

    /// The next receiver knows nothing.
    pub fn forget(&mut self) {
        self.said.clear();
    }

    /// The next report of the partitions that this member leads. `tenure` gives the epoch at which
    /// each tenure began.
    pub fn report(
        &mut self,
        tenure: impl Fn(PartitionRef) -> Option<Epoch>,
    ) -> Vec<MeasuredPartition> {
        self.present.retain(|at, _| tenure(*at).is_some());
        self.reports += 1;
        if self.reports >= ROUND {
            self.reports = 0;
            self.forget();
        }
        self.said
            .retain(|at, (since, _)| self.present.contains_key(at) && tenure(*at) == Some(*since));
        let in_turn = match self.last {
            Some(last) => self
                .present
                .range((Bound::Excluded(last), Bound::Unbounded))
                .chain(self.present.range(..=last)),
            None => self
                .present
                .range(..)
                .chain(self.present.range(PLACEHOLDER..PLACEHOLDER)),
        };
        let nothing = PartitionLoad::default();
        let drifts = self.drifts();
        let mut left = REPORT_BYTES_MAX;
        let mut chosen = Vec::new();
        for (at, load) in in_turn {
            let said = self.said.get(at).map_or(&nothing, |(_, said)| said);
            if !(load.differs(said) || drifts && load.work() != said.work()) {
                continue;
            }
            let Some(rest) = left.checked_sub(ENTRY_BYTES + load.skew.len()) else {
                break;
            };
            left = rest;
            chosen.push((*at, load.clone()));
        }
        self.last = chosen.last().map(|(at, _)| *at).or(self.last);
        self.said.extend(
            chosen
                .iter()
                .filter_map(|(at, load)| Some((*at, (tenure(*at)?, load.clone())))),
        );
        chosen
    }

    /// Whether the sum of all reported loads is far from the true sum: a small difference of very
    /// many partitions is large.
    fn drifts(&self) -> bool {
        let work = |all: &mut dyn Iterator<Item = &PartitionLoad>| {
            all.map(PartitionLoad::work).fold(0, u64::saturating_add)
        };
        let (now, said) = (
            work(&mut self.present.values()),
            work(&mut self.said.values().map(|(_, load)| load)),
        );
        now.abs_diff(said) > (now.max(said) / DRIFT).max(WORK_GAP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::MapId;
    use crate::loads::Skew;
    use std::collections::BTreeSet;

    fn at(partition: u32) -> PartitionRef {
        PartitionRef::new(KeyspaceId(0), PartitionId(partition))
    }

    fn leads(_: PartitionRef) -> Option<Epoch> {
        Some(Epoch(1))
    }

    fn load(reads: u64) -> PartitionLoad {
        PartitionLoad {
            reads,
            ..PartitionLoad::default()
        }
    }

    #[test]
    fn an_unchanged_load_is_not_reported_again() {
        let mut reporter = Reporter::default();
        reporter.measure([(at(0), load(0)), (at(1), load(1000)), (at(2), load(2000))]);
        assert_eq!(
            reporter.report(leads),
            [(at(1), load(1000)), (at(2), load(2000))],
            "nothing is not worth saying"
        );
        reporter.measure([(at(1), load(1050))]);
        assert!(reporter.report(leads).is_empty());
        reporter.measure([(at(1), load(0))]);
        assert_eq!(
            reporter.report(leads),
            [(at(1), load(0))],
            "that there is nothing any more is"
        );
        reporter.forget();
        assert_eq!(reporter.report(leads), [(at(2), load(2000))]);
    }

    /// A thousand partitions with twenty operations a second each counted as nothing.
    #[test]
    fn a_little_of_each_of_many_is_said() {
        let mut reporter = Reporter::default();
        let mut said = BTreeMap::new();
        for turn in 0..20 {
            reporter.measure((0..1000).map(|n| (at(n), load((n as u64 + turn) % 3))));
            said.extend(reporter.report(leads));
        }
        let all: u64 = said.values().map(|load| load.reads).sum();
        assert!((850..=1150).contains(&all), "{all}");
        reporter.measure((0..1000).map(|n| (at(n), load(1))));
        let settled = (0..5).map(|_| reporter.report(leads).len()).last();
        assert_eq!(settled, Some(0), "and not again and again");
        reporter.measure((0..1000).map(|n| (at(n), load(0))));
        for _ in 0..5 {
            said.extend(reporter.report(leads));
        }
        assert_eq!(said.values().map(|load| load.reads).sum::<u64>(), 0);
    }

    #[test]
    fn a_partition_is_not_reported_while_another_member_leads_it() {
        let mut reporter = Reporter::default();
        reporter.measure([(at(1), load(1000))]);
        assert_eq!(reporter.report(leads).len(), 1);
        assert!(reporter.report(|_| None).is_empty());
        reporter.measure([(at(1), load(1000))]);
        assert_eq!(reporter.report(leads).len(), 1);
        assert_eq!(
            reporter.report(|_| Some(Epoch(3))).len(),
            1,
            "another member led it in between, and the coordinator believes the primary alone"
        );
    }

    #[test]
    fn a_report_is_bounded_and_the_rest_has_its_turn() {
        let mut reporter = Reporter::default();
        let mut said = BTreeSet::new();
        let many = 5000;
        let mut reports = 0;
        while said.len() < many as usize {
            // Everything changes all the time. Without turns, only the first partitions would be
            // reported.
            let reads = 1000 * (1 + reports % 2);
            reporter.measure((0..many).map(|n| {
                (
                    at(n),
                    PartitionLoad {
                        skew: Skew::OneKey(MapId(0), vec![0; 64]),
                        ..load(reads)
                    },
                )
            }));
            let report = reporter.report(leads);
            assert!(report.len() * (ENTRY_BYTES + 64) <= REPORT_BYTES_MAX && !report.is_empty());
            said.extend(report.into_iter().map(|(at, _)| at));
            reports += 1;
            assert!(reports < 100, "all have their turn");
        }
    }
}
