//! What a member tells the coordinator of its loads, and when that is worth saying.

use super::{Measured, MemberLoad, PartitionLoad, Progress};
use crate::id::{Epoch, KeyspaceId, PartitionId, PartitionRef};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A report's size at most, about.
pub const REPORT_BYTES_MAX: usize = 32 << 10;
/// Of one partition in a report beside the key of its skew, at most: its name and six numbers.
const ENTRY_BYTES: usize = 64;
/// After so many reports everything is said anew: what the coordinator forgot or never believed is not missing for long.
const ROUND: u32 = 30;
/// Begins and ends a range of nothing.
const NOBODY: PartitionRef = PartitionRef { keyspace: KeyspaceId(0), partition: PartitionId(0) };

/// A member's loads, or some of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Its own.
    pub member: MemberLoad,
    /// Of partitions that it leads.
    pub partitions: Vec<Measured>,
    /// Of copies that it sends.
    pub moves: Vec<Progress>,
}

/// Chooses what to say: what differs from what was said last, in turn as far as a report reaches.
#[derive(Debug, Default)]
pub struct Reporter {
    present: BTreeMap<PartitionRef, PartitionLoad>,
    /// With the tenure in which that was: of another one the coordinator knows nothing.
    said: BTreeMap<PartitionRef, (Epoch, PartitionLoad)>,
    /// The last one that was said: others are next.
    last: Option<PartitionRef>,
    reports: u32,
}

impl Reporter {
    /// These were measured.
    pub fn measure(&mut self, loads: impl IntoIterator<Item = Measured>) {
        self.present.extend(loads);
    }

    /// Whoever is told next knows nothing.
    pub fn forget(&mut self) {
        self.said.clear();
    }

    /// What is to be said now of the partitions that this member leads, each in the tenure that began at this epoch.
    pub fn report(&mut self, tenure: impl Fn(PartitionRef) -> Option<Epoch>) -> Vec<Measured> {
        self.present.retain(|at, _| tenure(*at).is_some());
        self.reports += 1;
        if self.reports >= ROUND {
            self.reports = 0;
            self.forget();
        }
        self.said.retain(|at, (since, _)| self.present.contains_key(at) && tenure(*at) == Some(*since));
        let in_turn = match self.last {
            Some(last) => self.present.range((Bound::Excluded(last), Bound::Unbounded)).chain(self.present.range(..=last)),
            None => self.present.range(..).chain(self.present.range(NOBODY..NOBODY)),
        };
        let nothing = PartitionLoad::default();
        let mut left = REPORT_BYTES_MAX;
        let mut chosen = Vec::new();
        for (at, load) in in_turn {
            if !load.differs(self.said.get(at).map_or(&nothing, |(_, said)| said)) {
                continue;
            }
            let Some(rest) = left.checked_sub(ENTRY_BYTES + load.skew.len()) else { break };
            left = rest;
            chosen.push((*at, load.clone()));
        }
        self.last = chosen.last().map(|(at, _)| *at).or(self.last);
        self.said.extend(chosen.iter().filter_map(|(at, load)| Some((*at, (tenure(*at)?, load.clone())))));
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::MapId;
    use crate::loads::Skew;
    use std::collections::BTreeSet;

    fn at(partition: u32) -> PartitionRef {
        PartitionRef { keyspace: KeyspaceId(0), partition: PartitionId(partition) }
    }

    fn leads(_: PartitionRef) -> Option<Epoch> {
        Some(Epoch(1))
    }

    fn load(reads: u64) -> PartitionLoad {
        PartitionLoad { reads, ..PartitionLoad::default() }
    }

    #[test]
    fn what_has_not_changed_is_not_said_again() {
        let mut reporter = Reporter::default();
        reporter.measure([(at(0), load(0)), (at(1), load(1000)), (at(2), load(2000))]);
        assert_eq!(reporter.report(leads), [(at(1), load(1000)), (at(2), load(2000))], "nothing is not worth saying");
        reporter.measure([(at(1), load(1050))]);
        assert!(reporter.report(leads).is_empty());
        reporter.measure([(at(1), load(0))]);
        assert_eq!(reporter.report(leads), [(at(1), load(0))], "that there is nothing any more is");
        reporter.forget();
        assert_eq!(reporter.report(leads), [(at(2), load(2000))]);
    }

    #[test]
    fn what_is_led_no_more_is_not_said_and_is_said_anew_when_it_is_again() {
        let mut reporter = Reporter::default();
        reporter.measure([(at(1), load(1000))]);
        assert_eq!(reporter.report(leads).len(), 1);
        assert!(reporter.report(|_| None).is_empty());
        reporter.measure([(at(1), load(1000))]);
        assert_eq!(reporter.report(leads).len(), 1);
        assert_eq!(
            reporter.report(|_| Some(Epoch(3))).len(),
            1,
            "somebody else led it in between, and the coordinator believes of whoever leads only"
        );
    }

    #[test]
    fn a_report_is_bounded_and_the_rest_has_its_turn() {
        let mut reporter = Reporter::default();
        let mut said = BTreeSet::new();
        let many = 5000;
        let mut reports = 0;
        while said.len() < many as usize {
            // Everything changes all the time: without turns the first ones alone would be heard of.
            let reads = 1000 * (1 + reports % 2);
            reporter.measure((0..many).map(|n| (at(n), PartitionLoad { skew: Skew::OneKey(MapId(0), vec![0; 64]), ..load(reads) })));
            let report = reporter.report(leads);
            assert!(report.len() * (ENTRY_BYTES + 64) <= REPORT_BYTES_MAX && !report.is_empty());
            said.extend(report.into_iter().map(|(at, _)| at));
            reports += 1;
            assert!(reports < 100, "all have their turn");
        }
    }
}
