//! The last hour of the whole cluster: what its members say of theirs, summed.
//!
//! ```text
//!   round of five seconds ─ hear(member, its new samples) for each ─ close() ─> a sum is added
//! ```
//!
//! A member that did not answer in a round is asked again in the next one, and what it did
//! meanwhile is added to the sums of that time. So a member that is slow is missing for moments,
//! not for the hour.

use crate::history::{SAMPLES, Sample, Samples};
use doyen_placement::MemberId;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// What all members did in one interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct ClusterSample {
    commands: u64,
    operations: u64,
    errors: u64,
    /// Of the typical member: the mean over all, by commands.
    p50_us: Option<u64>,
    /// Of the slowest member.
    p99_us: Option<u64>,
    hits: u64,
    misses: u64,
    client_bytes: u64,
    peer_bytes: u64,
    memory: u64,
    memory_max: u64,
    clients: u64,
    /// The members' `p50_us`, each as often as it had commands, and how many commands these were.
    #[serde(skip)]
    halves: (u128, u128),
}

impl ClusterSample {
    /// Adds what another member did.
    fn add(&mut self, sample: &Sample) {
        self.commands += sample.commands;
        self.operations += sample.operations;
        self.errors += sample.errors;
        self.hits += sample.hits;
        self.misses += sample.misses;
        self.client_bytes += sample.client_bytes;
        self.peer_bytes += sample.peer_bytes;
        self.memory += sample.memory;
        self.memory_max += sample.memory_max;
        self.clients += sample.clients;
        self.p99_us = self.p99_us.max(sample.p99_us);
        if let Some(p50) = sample.p50_us {
            let commands = u128::from(sample.commands.max(1));
            self.halves.0 += u128::from(p50) * commands;
            self.halves.1 += commands;
            let mean = self.halves.0.checked_div(self.halves.1);
            self.p50_us = mean.map(|mean| u64::try_from(mean).unwrap_or(u64::MAX));
        }
    }
}

/// What was heard of a member.
#[derive(Debug)]
struct HeardMember {
    /// How many samples it had taken.
    next: u64,
    last: Sample,
    /// It answered in this round.
    answered: bool,
    /// How many of the last sums lack it.
    missed: usize,
}

/// The last hour of the cluster.
#[derive(Debug, Default)]
pub(super) struct ClusterHour {
    /// Oldest first.
    sums: VecDeque<ClusterSample>,
    heard: BTreeMap<MemberId, HeardMember>,
    /// A sum of former rounds has changed in this round.
    mended: bool,
}

impl ClusterHour {
    /// The sums, oldest first.
    pub(super) const fn sums(&self) -> &VecDeque<ClusterSample> {
        &self.sums
    }

    /// The number of the first sample that is wanted of a member.
    pub(super) fn wanted(&self, member: MemberId) -> u64 {
        self.heard.get(&member).map_or(0, |heard| heard.next)
    }

    /// A member answers with its samples from that number on. If it has taken none, or did not
    /// answer, there are none.
    pub(super) fn hear(&mut self, member: MemberId, new: &Samples) {
        let known = self.heard.get(&member);
        // Members do not take samples at the same moment: the next one may be due.
        let last = new.samples.last().copied();
        let last = last.or_else(|| known.map(|known| known.last));
        let Some(last) = last.filter(|_| new.next > 0) else {
            return;
        };
        let missed = known.map_or(SAMPLES, |known| known.missed);
        // The newest one belongs to this round.
        let before = &new.samples[..new.samples.len().saturating_sub(1)];
        let before = &before[before.len().saturating_sub(missed)..];
        while self.sums.len() < before.len() {
            self.sums.push_front(ClusterSample::default());
        }
        for (sum, sample) in self.sums.iter_mut().rev().zip(before.iter().rev()) {
            sum.add(sample);
            self.mended = true;
        }
        let heard = HeardMember {
            next: new.next,
            last,
            answered: true,
            missed: 0,
        };
        self.heard.insert(member, heard);
    }

    /// Ends a round in which these were members. Returns its sum, and whether former sums have
    /// changed.
    pub(super) fn close(&mut self, is_member: impl Fn(MemberId) -> bool) -> (ClusterSample, bool) {
        self.heard.retain(|id, _| is_member(*id));
        let mut sum = ClusterSample::default();
        for heard in self.heard.values_mut() {
            if std::mem::take(&mut heard.answered) {
                sum.add(&heard.last);
            } else {
                heard.missed = (heard.missed + 1).min(SAMPLES);
            }
        }
        while self.sums.len() >= SAMPLES {
            self.sums.pop_front();
        }
        self.sums.push_back(sum.clone());
        (sum, std::mem::take(&mut self.mended))
    }

    /// The last samples of the members whose samples are in the last sum.
    pub(super) fn last(&self) -> impl Iterator<Item = (MemberId, &Sample)> {
        let heard = self.heard.iter().filter(|(_, heard)| heard.missed == 0);
        heard.map(|(id, heard)| (*id, &heard.last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(commands: u64, p50_us: Option<u64>) -> Sample {
        Sample {
            commands,
            p50_us,
            p99_us: p50_us.map(|p50| p50 * 10),
            ..Sample::default()
        }
    }

    /// These samples, of a member that has taken `next` in all.
    fn samples(next: u64, commands: &[u64]) -> Samples {
        let samples = commands.iter().map(|n| sample(*n, None)).collect();
        Samples { next, samples }
    }

    fn commands(hour: &ClusterHour) -> Vec<u64> {
        hour.sums.iter().map(|sum| sum.commands).collect()
    }

    #[test]
    fn the_hours_of_members_are_summed_from_the_newest_sample_back() {
        let mut hour = ClusterHour::default();
        let of = [&[1, 2, 3][..], &[10], &[], &[7, 0, 0, 0]];
        for (id, of) in (0..).map(MemberId).zip(of) {
            hour.hear(id, &samples(of.len() as u64, of));
        }
        let (sum, mended) = hour.close(|_| true);
        assert_eq!((sum.commands, mended), (13, true));
        assert_eq!(commands(&hour), [7, 1, 2, 13]);
        assert_eq!(hour.wanted(MemberId(0)), 3);
        assert_eq!(hour.last().count(), 3, "one has none");
    }

    /// A member that did not answer the first question was missing from the curves for an hour.
    #[test]
    fn a_member_that_answers_late_is_added_to_the_time_that_lacks_it() {
        let (quick, slow) = (MemberId(1), MemberId(2));
        let mut hour = ClusterHour::default();
        hour.hear(quick, &samples(3, &[1, 1, 1]));
        hour.hear(slow, &Samples::default());
        hour.close(|_| true);
        assert_eq!(commands(&hour), [1, 1, 1]);
        assert_eq!(hour.wanted(slow), 0, "it is asked for all again");

        hour.hear(quick, &samples(4, &[1]));
        hour.hear(slow, &samples(3, &[10, 20, 30]));
        assert_eq!(hour.close(|_| true).0.commands, 31);
        assert_eq!(commands(&hour), [1, 11, 21, 31]);

        // Silent for two rounds, and then back.
        for next in [5, 6] {
            hour.hear(quick, &samples(next, &[1]));
            hour.hear(slow, &Samples::default());
            assert!(!hour.close(|_| true).1);
        }
        hour.hear(quick, &samples(7, &[1]));
        hour.hear(slow, &samples(6, &[40, 50, 60]));
        assert!(hour.close(|_| true).1);
        assert_eq!(commands(&hour), [1, 11, 21, 31, 41, 51, 61]);
    }

    #[test]
    fn a_sample_that_is_not_due_yet_is_counted_once() {
        let mut hour = ClusterHour::default();
        hour.hear(MemberId(1), &samples(1, &[5]));
        hour.close(|_| true);
        hour.hear(MemberId(1), &samples(1, &[]));
        assert_eq!(hour.close(|_| true).0.commands, 5, "as before");
        hour.hear(MemberId(1), &samples(3, &[6, 7]));
        assert!(!hour.close(|_| true).1);
        assert_eq!(commands(&hour), [5, 5, 7]);
        hour.close(|_| false);
        assert_eq!(hour.last().count(), 0, "it is no member any more");
    }

    #[test]
    fn an_hour_is_kept() {
        let mut hour = ClusterHour::default();
        for next in 1..=SAMPLES as u64 + 2 {
            hour.hear(MemberId(1), &samples(next, &[next]));
            hour.close(|_| true);
        }
        assert_eq!(hour.sums.len(), SAMPLES);
        assert_eq!(hour.sums[0].commands, 3);
    }

    #[test]
    fn latency_is_of_the_typical_and_of_the_slowest_member() {
        let mut sum = ClusterSample::default();
        assert_eq!(sum.p50_us, None);
        for of in [
            sample(300, Some(100)),
            sample(100, Some(500)),
            sample(0, None),
        ] {
            sum.add(&of);
        }
        assert_eq!((sum.p50_us, sum.p99_us), (Some(200), Some(5000)));
    }
}
