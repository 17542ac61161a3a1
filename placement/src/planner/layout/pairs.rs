//! How often two members hold the same partitions. If a member shares partitions with many others,
//! all of those help to repair its copies when it dies.

use super::seats::Seats;

/// The largest number of members for which this is counted, because it takes a number for each
/// pair. With more members, the layout scatters well enough.
const MEMBERS_MAX: usize = 1_024;

/// A count for each pair of members.
pub(super) struct MemberPairs {
    members: usize,
    counts: Vec<u32>,
}

impl MemberPairs {
    /// The number of partitions that both members hold.
    pub(super) fn held(seats: &Seats<'_>) -> Self {
        let mut pairs = Self::none(seats.topology.len());
        for seating in &seats.partitions {
            for (seat, &one) in seating.members.iter().enumerate() {
                seating.members[..seat]
                    .iter()
                    .for_each(|&other| pairs.both(one, other, true));
            }
        }
        pairs
    }

    fn none(members: usize) -> Self {
        let members = if members > MEMBERS_MAX { 0 } else { members };
        Self {
            members,
            counts: vec![0; members * members],
        }
    }

    /// The count of two members. 0 if there are too many members.
    pub(super) fn of(&self, one: usize, other: usize) -> u32 {
        if self.members == 0 {
            0
        } else {
            self.counts[one * self.members + other]
        }
    }

    /// The average over all pairs, rounded up.
    pub(super) fn mean(&self) -> u32 {
        let (all, pairs) = (
            self.counts
                .iter()
                .map(|count| u64::from(*count))
                .sum::<u64>(),
            self.members * self.members.saturating_sub(1),
        );
        u32::try_from(all.div_ceil(pairs.max(1) as u64)).unwrap_or(u32::MAX)
    }

    /// The largest count.
    pub(super) fn most(&self) -> u32 {
        self.counts.iter().copied().max().unwrap_or(0)
    }

    /// A copy beside these others goes from one member to another.
    pub(super) fn reseat(
        &mut self,
        others: impl Iterator<Item = usize>,
        giver: usize,
        taker: usize,
    ) {
        for other in others {
            self.both(giver, other, false);
            self.both(taker, other, true);
        }
    }

    fn both(&mut self, one: usize, other: usize, more: bool) {
        self.note(one, other, more);
        self.note(other, one, more);
    }

    fn note(&mut self, one: usize, other: usize, more: bool) {
        if self.members > 0 {
            let count = &mut self.counts[one * self.members + other];
            *count = if more {
                count.saturating_add(1)
            } else {
                count.saturating_sub(1)
            };
        }
    }
}
