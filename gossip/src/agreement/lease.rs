//! Leases (rule 8), and how long a new primary has to wait (rule 9).

use super::context::NamedTable;
use crate::mutant::{self, broken};
use crate::time::Time;
use crate::wire::Commit;
use doyen_placement::quorum::majority;
use doyen_placement::{Epoch, MemberId, Origin, PartitionRef, Table, Term, Version};
use std::collections::BTreeMap;
use std::time::Duration;

/// The number of answers of one voter that are kept until this node has accepted the tables that
/// they name.
const NEWER_ANSWERS_MAX: usize = 4;

/// Answers to pings, as far as they may count for a lease.
#[derive(Debug, Default)]
pub(super) struct LeaseAnswers {
    voters: BTreeMap<MemberId, Voter>,
    /// The last lease that was given out. A lease never goes back.
    given: Time,
}

#[derive(Debug, Default)]
struct Voter {
    /// When the youngest ping was sent whose answer counts.
    counted: Option<Time>,
    /// Answers that name newer tables than this node's. Once this node has accepted such a table,
    /// they count from the time of their ping.
    newer: BTreeMap<(Term, Version), Time>,
}

impl LeaseAnswers {
    /// A voter answered a ping that was sent at `sent` and named its accepted table.
    pub(super) fn take(
        &mut self,
        voter: MemberId,
        sent: Time,
        theirs: (Term, Version),
        ours: (Term, Version),
    ) {
        let voter = self.voters.entry(voter).or_default();
        let known = theirs <= ours || (theirs.1 <= ours.1 && broken(&mutant::LEASE_BY_VERSION));
        if known || broken(&mutant::LEASE_FROM_NEWER) {
            voter.counted = voter.counted.max(Some(sent));
            return;
        }
        if voter.newer.len() >= NEWER_ANSWERS_MAX {
            voter.newer.pop_first();
        }
        let at = voter.newer.entry(theirs).or_insert(sent);
        *at = sent.max(*at);
    }

    /// This node accepted a newer table.
    pub(super) fn accepted(&mut self, ours: (Term, Version)) {
        for voter in self.voters.values_mut() {
            while let Some(entry) = voter
                .newer
                .first_entry()
                .filter(|e| *e.key() <= ours || broken(&mutant::LEASE_FROM_LATER))
            {
                voter.counted = voter.counted.max(Some(entry.remove()));
            }
        }
    }

    pub(super) fn retain(&mut self, voters: impl Fn(MemberId) -> bool) {
        self.voters.retain(|v, _| voters(*v));
    }

    /// The latest time such that majorities of both configurations answered pings that were sent
    /// then or later. This node always answers itself.
    fn answered(
        &self,
        me: MemberId,
        now: Time,
        installed: &[MemberId],
        accepted: &[MemberId],
    ) -> Option<Time> {
        let at = |v: MemberId| {
            if v == me {
                Some(now)
            } else {
                self.voters.get(&v)?.counted
            }
        };
        let mut times: Vec<Time> = installed
            .iter()
            .chain(accepted)
            .filter_map(|v| at(*v))
            .collect();
        times.sort_unstable();
        times.dedup();
        let enough = |s: &Time| {
            majority(installed, |v| at(v) >= Some(*s))
                && (majority(accepted, |v| at(v) >= Some(*s))
                    || broken(&mutant::LEASE_BY_INSTALLED))
        };
        times.into_iter().rev().find(enough)
    }

    /// The lease, if it reaches further than the last one that was given out.
    pub(super) fn lease(
        &mut self,
        me: MemberId,
        now: Time,
        installed: &[MemberId],
        accepted: &[MemberId],
        length: Duration,
    ) -> Option<Time> {
        let until = self.answered(me, now, installed, accepted)? + length;
        if until <= self.given {
            return None;
        }
        self.given = until;
        Some(until)
    }
}

/// The epoch in which partitions begin with their keyspace. Every change of a primary raises it.
const FIRST: Epoch = Epoch(1);

/// What this node knows about tenures: its own, and those of primaries that it gave leases to.
#[derive(Debug, Default)]
pub(super) struct Tenures {
    /// When each partition's present tenure was installed here.
    began: BTreeMap<PartitionRef, (Epoch, Time)>,
    /// When the present voters were installed here.
    voters_since: Time,
    /// When this node last answered each member.
    answered: BTreeMap<MemberId, Time>,
    /// Tenures of this node that have not opened, and when they may open.
    pub(super) opens_at: BTreeMap<PartitionRef, (Epoch, Time)>,
    /// Tenures of this node that have opened.
    pub(super) opened: BTreeMap<PartitionRef, Epoch>,
}

impl Tenures {
    /// This node answers a ping of `peer` now.
    pub(super) fn answer(&mut self, peer: MemberId, now: Time) {
        self.answered.insert(peer, now);
    }

    /// Forgets primaries that are no members any more.
    pub(super) fn forget(&mut self, member: impl Fn(MemberId) -> bool) {
        self.answered.retain(|m, _| member(*m));
    }

    /// Another table is installed. `commit` says what is known of it, if `old` is its predecessor.
    pub(super) fn install(
        &mut self,
        me: MemberId,
        now: Time,
        old: Option<&NamedTable>,
        new: &NamedTable,
        commit: Option<&Commit>,
        whole: Duration,
    ) {
        if old.is_none_or(|old| old.voters != new.voters) {
            self.voters_since = now;
        }
        let consecutive = |c: &&Commit, old: &NamedTable| {
            let next = c.predecessor == old.name && old.version.next() == new.version;
            c.name == new.name && (next || broken(&mutant::COMMIT_OF_OTHERS))
        };
        let known = old.and_then(|old| commit.filter(|c| consecutive(c, old)));
        for (at, partition) in new.partitions() {
            let before = old.and_then(|old| old.partition(at));
            if before
                .is_some_and(|b| b.since == partition.since && b.primary() == partition.primary())
            {
                continue;
            }
            self.began.insert(at, (partition.since, now));
            self.opened.remove(&at);
            self.opens_at.remove(&at);
            if partition.primary() != me {
                continue;
            }
            // If the partition comes from a split or a merge, its predecessors count.
            let former = |from: &Origin| PartitionRef {
                partition: from.partition,
                ..at
            };
            let formers = partition
                .from
                .iter()
                .map(former)
                .filter(|_| before.is_none());
            let mut before = before
                .is_some()
                .then_some(at)
                .into_iter()
                .chain(formers)
                .peekable();
            // The tenure that began with the keyspace. A newcomer knows that it had no predecessor,
            // although it knows no table before this one.
            let is_first = partition.since == FIRST && partition.from.is_empty();
            let wait = match known {
                _ if is_first => Duration::ZERO,
                // The partition never had a primary.
                Some(_) if before.peek().is_none() => Duration::ZERO,
                // The predecessor is the primary in the table before. The commit says what is known
                // of it (rule 9).
                Some(commit) => {
                    let led = |at| Some((at, old?.partition(at)?.primary()));
                    before
                        .map(|at| {
                            led(at).map_or(whole, |(at, primary)| wait(commit, at, primary, whole))
                        })
                        .max()
                        .unwrap_or(whole)
                }
                None if old.is_none() && new.version == Version(1) => Duration::ZERO,
                None => whole,
            };
            self.opens_at.insert(at, (partition.since, now + wait));
        }
        // This costs a pass over all partitions, and few tables have fewer of them.
        if old.is_none_or(|old| old.partitions().any(|(at, _)| new.partition(at).is_none())) {
            let there = |at: &PartitionRef| new.partition(*at).is_some();
            self.began.retain(|at, _| there(at));
            self.opened.retain(|at, _| there(at));
            self.opens_at.retain(|at, _| there(at));
        }
    }

    /// This node's data threads opened a partition.
    pub(super) fn open(&mut self, at: PartitionRef, since: Epoch) -> bool {
        if self.opens_at.get(&at).is_none_or(|(s, _)| *s != since) {
            return false;
        }
        self.opens_at.remove(&at);
        self.opened.insert(at, since);
        true
    }

    /// For each primary that `next` deposes: the time for which this node has given it no answer
    /// that a lease could rest on, in milliseconds.
    pub(super) fn ages(
        &self,
        me: MemberId,
        now: Time,
        installed: &Table,
        next: &Table,
    ) -> Vec<(MemberId, u64)> {
        let age = |at: Time| u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX);
        let deposed = deposed(installed, next);
        let least = |primary: MemberId, partitions: &[PartitionRef]| {
            // This node's own lease ends with its own ack. Other members learn of that from the
            // seal.
            let answered = if primary == me {
                None
            } else {
                self.answered.get(&primary)
            };
            let answered = answered.filter(|_| !broken(&mutant::AGES_WITHOUT_ANSWERS));
            let tenures = partitions
                .iter()
                .map(|at| self.began.get(at).map_or(0, |(_, began)| age(*began)));
            let tenures = tenures.filter(|_| !broken(&mutant::AGES_WITHOUT_TENURE));
            let least = tenures
                .chain(answered.map(|at| age(*at)))
                .min()
                .unwrap_or(0);
            if broken(&mutant::AGES_WITHOUT_VOTERS) {
                least
            } else {
                least.min(age(self.voters_since))
            }
        };
        deposed
            .iter()
            .map(|(primary, partitions)| (*primary, least(*primary, partitions)))
            .collect()
    }

    /// This node's seal, if `next` deposes it: the partitions that it had not opened.
    pub(super) fn seal(
        &self,
        me: MemberId,
        installed: &Table,
        next: &Table,
    ) -> Option<Vec<PartitionRef>> {
        let mine = deposed(installed, next).remove(&me)?;
        let open = |at: &PartitionRef| {
            installed
                .partition(*at)
                .is_some_and(|p| self.opened.get(at) == Some(&p.since))
                || broken(&mutant::SEALS_UNOPENED)
        };
        Some(mine.into_iter().filter(|at| !open(at)).collect())
    }
}

fn wait(commit: &Commit, at: PartitionRef, predecessor: MemberId, whole: Duration) -> Duration {
    if broken(&mutant::OPENS_AT_ONCE)
        || commit
            .seals
            .iter()
            .any(|(m, unopened)| *m == predecessor && !unopened.contains(&at))
    {
        return Duration::ZERO;
    }
    let age = commit
        .ages
        .iter()
        .find(|(m, _)| *m == predecessor)
        .map_or(0, |(_, ms)| *ms);
    whole.saturating_sub(Duration::from_millis(age))
}

/// The primaries whose tenures end between two tables, with their partitions.
pub(super) fn deposed(old: &Table, new: &Table) -> BTreeMap<MemberId, Vec<PartitionRef>> {
    let mut deposed: BTreeMap<MemberId, Vec<PartitionRef>> = BTreeMap::new();
    for (at, partition) in old.partitions() {
        if new
            .partition(at)
            .is_none_or(|p| p.since != partition.since || p.primary() != partition.primary())
        {
            deposed.entry(partition.primary()).or_default().push(at);
        }
    }
    deposed
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_millis(500);
    const ME: MemberId = MemberId(1);
    const OTHER: MemberId = MemberId(2);
    const THIRD: MemberId = MemberId(3);

    fn at(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    fn name(version: u64) -> (Term, Version) {
        (Term(1), Version(version))
    }

    #[test]
    fn a_lease_counts_from_when_the_ping_was_sent() {
        let voters = [ME, OTHER, THIRD];
        let mut answers = LeaseAnswers::default();
        assert_eq!(answers.lease(ME, at(1000), &voters, &voters, LEASE), None);
        answers.take(OTHER, at(900), name(5), name(5));
        assert_eq!(
            answers.lease(ME, at(1000), &voters, &voters, LEASE),
            Some(at(1400))
        );
        // An older answer adds nothing, and a lease never goes back.
        answers.take(THIRD, at(800), name(5), name(5));
        assert_eq!(answers.lease(ME, at(1000), &voters, &voters, LEASE), None);
    }

    #[test]
    fn answers_from_newer_voters_count_only_after_acceptance() {
        let voters = [OTHER, ME, THIRD];
        let mut answers = LeaseAnswers::default();
        answers.take(OTHER, at(900), name(6), name(5));
        assert_eq!(answers.lease(ME, at(1000), &voters, &voters, LEASE), None);
        answers.accepted(name(6));
        // It counts from the time of its ping.
        assert_eq!(
            answers.lease(ME, at(1200), &voters, &voters, LEASE),
            Some(at(1400))
        );
    }

    #[test]
    fn a_lease_needs_majorities_of_the_installed_and_of_the_accepted_voters() {
        let (installed, accepted) = ([ME, OTHER], [OTHER, THIRD, ME]);
        let mut answers = LeaseAnswers::default();
        // The older of the two voters has the casting vote, but the accepted configuration must
        // agree as well.
        assert_eq!(
            answers.lease(ME, at(1000), &installed, &accepted, LEASE),
            None
        );
        answers.take(THIRD, at(950), name(5), name(5));
        assert_eq!(
            answers.lease(ME, at(1000), &installed, &accepted, LEASE),
            Some(at(1450))
        );
    }
}
