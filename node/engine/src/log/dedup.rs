//! Outcomes of operations that may be sent again: for each origin, the operations that it has not
//! finished.
//!
//! They are replicated with every log entry, so that a retry finds its outcome at the next primary.
//! Either the outcome of an operation is here, or the origin's mark is above it. So nothing is
//! applied twice.

use crate::log::partition_log::begin_anew;
use crate::value::outcome::Outcome;
use doyen_placement::MemberId;
use litemap::LiteMap;
use std::collections::VecDeque;

/// Names an operation: its origin, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpId {
    /// The process that submitted it.
    pub(crate) origin: MemberId,
    /// Its number, ascending at the origin.
    pub(crate) n: u64,
    /// Every operation of the origin on this partition below this number is finished.
    pub(crate) finished: u64,
}

/// What a partition knows of one origin, as in a snapshot: the origin, its mark, [(number,
/// sequence, outcome)].
pub(crate) type Remembered = (MemberId, u64, Vec<(u64, u64, Outcome)>);

/// What is known of an operation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Known {
    /// Nothing: it was never applied.
    New,
    /// It is in the log at this sequence, with this outcome.
    Applied(u64, Outcome),
    /// The origin has finished with it: a late duplicate.
    Finished,
}

#[derive(Debug, Default, Clone, PartialEq)]
struct OriginOutcomes {
    finished: u64,
    applied: VecDeque<(u64, u64, Outcome)>,
    /// Whether something was remembered since `retire_clients` last looked.
    touched: bool,
}

/// The outcomes kept by one partition.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Dedup {
    origins: LiteMap<MemberId, OriginOutcomes>,
}

impl Dedup {
    /// What is known of this operation.
    pub(crate) fn known(&self, id: OpId) -> Known {
        let Some(origin) = self.origins.get(&id.origin) else {
            return Known::New;
        };
        if id.n < origin.finished {
            return Known::Finished;
        }
        if origin.applied.back().is_none_or(|(n, ..)| *n < id.n) {
            return Known::New;
        }
        match origin.applied.binary_search_by_key(&id.n, |(n, ..)| *n) {
            Ok(at) => Known::Applied(origin.applied[at].1, origin.applied[at].2.clone()),
            Err(_) => Known::New,
        }
    }

    /// The sequence of an origin's first operation from this number on, if there is any; 0 if that
    /// was long ago.
    pub(crate) fn reached(&self, origin: MemberId, n: u64) -> Option<u64> {
        let origin = self.origins.get(&origin)?;
        let at = origin.applied.partition_point(|(applied, ..)| *applied < n);
        origin
            .applied
            .get(at)
            .map(|(_, seq, _)| *seq)
            .or_else(|| (n < origin.finished).then_some(0))
    }

    /// Remembers an operation that was logged at `seq`.
    pub(crate) fn remember(&mut self, id: OpId, seq: u64, outcome: Outcome) {
        let origin = self.origins.entry(id.origin).or_default();
        origin.touched = true;
        origin.finished = origin.finished.max(id.finished);
        while origin
            .applied
            .front()
            .is_some_and(|(n, ..)| *n < origin.finished)
        {
            origin.applied.pop_front();
        }
        begin_anew(&mut origin.applied);
        if id.n < origin.finished {
            return;
        }
        if origin.applied.back().is_none_or(|(n, ..)| *n < id.n) {
            return origin.applied.push_back((id.n, seq, outcome));
        }
        match origin.applied.binary_search_by_key(&id.n, |(n, ..)| *n) {
            Ok(at) => origin.applied[at] = (id.n, seq, outcome),
            Err(at) => origin.applied.insert(at, (id.n, seq, outcome)),
        }
    }

    /// Forgets an operation whose log entry at `seq` is undone.
    pub(crate) fn forget(&mut self, id: OpId, seq: u64) {
        if let Some(origin) = self.origins.get_mut(&id.origin)
            && let Ok(at) = origin.applied.binary_search_by_key(&id.n, |(n, ..)| *n)
            && origin.applied[at].1 == seq
        {
            origin.applied.remove(at);
        }
    }

    /// Forgets origins that are no members any more: their operations are refused. `retire_clients`
    /// is for clients.
    pub(crate) fn retain(&mut self, member: impl Fn(MemberId) -> bool) {
        self.origins.retain(|id, _| id.is_client() || member(*id));
    }

    /// Forgets clients without new outcomes since the last call. That call must be long enough ago
    /// for everything that they sent before it to have arrived (`clients::RETENTION`).
    pub(crate) fn retire_clients(&mut self) {
        self.origins
            .retain(|id, origin| !id.is_client() || origin.touched);
        self.origins
            .iter_mut()
            .for_each(|(_, origin)| origin.touched = false);
    }

    /// The outcomes of a partition that was split off or merged. If an origin has finished with
    /// some operations in one of two partitions, that says nothing of the other one, where an
    /// operation with a lower number may be under way. Only unfinished operations are sent again.
    pub(crate) fn of_all<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = all.into_iter();
        let mut joined = all.next().cloned().unwrap_or_default();
        for other in all {
            for (id, own) in joined.origins.iter_mut() {
                let theirs = other.origins.get(id);
                own.finished = theirs.map_or(0, |theirs| own.finished.min(theirs.finished));
                let theirs = theirs
                    .into_iter()
                    .flat_map(|theirs| theirs.applied.iter().cloned());
                let mut applied: Vec<_> = std::mem::take(&mut own.applied)
                    .into_iter()
                    .chain(theirs)
                    .collect();
                applied.sort_by_key(|(n, ..)| *n);
                // Both may be parts of one partition that had this outcome.
                applied.dedup_by_key(|(n, ..)| *n);
                (own.applied, own.touched) = (applied.into(), true);
            }
            for (id, theirs) in other
                .origins
                .iter()
                .filter(|(id, _)| joined.origins.get(id).is_none())
                .collect::<Vec<_>>()
            {
                joined.origins.insert(
                    *id,
                    OriginOutcomes {
                        finished: 0,
                        touched: true,
                        ..theirs.clone()
                    },
                );
            }
        }
        joined
    }

    /// All outcomes, for a snapshot: (origin, finished, [(n, seq, outcome)]).
    pub(crate) fn all(
        &self,
    ) -> impl Iterator<Item = (MemberId, u64, &VecDeque<(u64, u64, Outcome)>)> {
        self.origins
            .iter()
            .map(|(id, o)| (*id, o.finished, &o.applied))
    }

    /// Takes the outcomes of an origin from a snapshot, besides those that came by the log.
    pub(crate) fn adopt(
        &mut self,
        origin: MemberId,
        finished: u64,
        applied: Vec<(u64, u64, Outcome)>,
    ) {
        let known = self.origins.entry(origin).or_default();
        known.finished = known.finished.max(finished);
        known.touched = true;
        for (n, seq, outcome) in applied {
            self.remember(
                OpId {
                    origin,
                    n,
                    finished,
                },
                seq,
                outcome,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u64, finished: u64) -> OpId {
        OpId {
            origin: MemberId(1),
            n,
            finished,
        }
    }

    #[test]
    fn a_retry_finds_its_outcome_until_the_origin_has_finished_it() {
        let mut d = Dedup::default();
        assert_eq!(d.known(id(5, 5)), Known::New);
        d.remember(id(5, 5), 100, Outcome::Int(1));
        d.remember(id(7, 5), 101, Outcome::Int(2));
        assert_eq!(d.known(id(5, 5)), Known::Applied(100, Outcome::Int(1)));
        d.remember(id(8, 7), 102, Outcome::Ok);
        assert_eq!(d.known(id(5, 5)), Known::Finished);
        assert_eq!(d.known(id(7, 7)), Known::Applied(101, Outcome::Int(2)));
    }

    #[test]
    fn outcomes_of_a_client_are_kept_for_a_while_and_those_of_a_member_until_it_is_removed() {
        let (client, member) = (MemberId::of_client(1), MemberId(1));
        let id = |origin, n| OpId {
            origin,
            n,
            finished: n,
        };
        let mut d = Dedup::default();
        d.remember(id(client, 5), 100, Outcome::Ok);
        d.remember(id(member, 5), 101, Outcome::Ok);
        d.retain(|origin| origin == member);
        d.retire_clients();
        assert_eq!(
            d.known(id(client, 5)),
            Known::Applied(100, Outcome::Ok),
            "it was touched since"
        );
        d.retire_clients();
        assert_eq!(d.known(id(client, 5)), Known::New);
        assert_eq!(d.known(id(member, 5)), Known::Applied(101, Outcome::Ok));
        d.retain(|_| false);
        assert_eq!(d.known(id(member, 5)), Known::New);
    }

    #[test]
    fn an_operation_knows_whether_later_ones_were_applied() {
        let mut d = Dedup::default();
        assert_eq!(d.reached(MemberId(1), 5), None);
        d.remember(id(5, 3), 100, Outcome::Int(1));
        d.remember(id(9, 3), 104, Outcome::Int(1));
        assert_eq!(
            [5, 6, 9, 10].map(|n| d.reached(MemberId(1), n)),
            [Some(100), Some(104), Some(104), None]
        );
        assert_eq!(d.reached(MemberId(2), 5), None);
        d.remember(id(12, 12), 105, Outcome::Ok);
        d.forget(id(12, 12), 105);
        assert_eq!(
            [11, 12].map(|n| d.reached(MemberId(1), n)),
            [Some(0), None],
            "it said that it is done with it"
        );
    }

    #[test]
    fn marks_of_two_merged_partitions_do_not_count_for_each_other() {
        let (mut one, mut other) = (Dedup::default(), Dedup::default());
        one.remember(id(61, 61), 100, Outcome::Ok);
        let both =
            |one: &Dedup, other: &Dedup| [Dedup::of_all([one, other]), Dedup::of_all([other, one])];
        for merged in both(&one, &other) {
            assert_eq!(
                merged.known(id(60, 60)),
                Known::New,
                "it may be under way at the other one"
            );
            assert_eq!(merged.known(id(61, 60)), Known::Applied(100, Outcome::Ok));
        }
        other.remember(id(50, 40), 7, Outcome::Int(1));
        other.remember(id(61, 40), 100, Outcome::Ok);
        for merged in both(&one, &other) {
            assert_eq!(merged.known(id(39, 39)), Known::Finished);
            assert_eq!(
                [50, 60, 61].map(|n| merged.reached(MemberId(1), n)),
                [Some(7), Some(100), Some(100)]
            );
            let applied: Vec<u64> = merged
                .all()
                .flat_map(|(_, _, applied)| applied.iter().map(|(n, ..)| *n))
                .collect();
            assert_eq!(applied, [50, 61], "an outcome of both is there once");
        }
        assert_eq!(
            Dedup::of_all([&one]),
            one,
            "a part knows the outcomes of the whole"
        );
    }

    #[test]
    fn an_undone_entry_is_forgotten() {
        let mut d = Dedup::default();
        d.remember(id(5, 5), 100, Outcome::Ok);
        d.forget(id(5, 5), 99);
        assert_eq!(d.known(id(5, 5)), Known::Applied(100, Outcome::Ok));
        d.forget(id(5, 5), 100);
        assert_eq!(d.known(id(5, 5)), Known::New);
    }
}
