//! Which data thread of a member has a partition.
//!
//! ```text
//!   the table          member ── holds ──> partition p
//!   the data plane     member.thread(thread_of(p, threads of member)) ── holds ──> partition p
//! ```
//! Tables and requests to the control thread name members, because only members join and fail. The
//! data plane addresses threads: peers, links, calls and their origins. Members of one cluster may
//! have different numbers of threads, so the threads that hold two copies of a partition may have
//! different numbers.

use doyen_placement::{MemberId, PartitionId, Table};
use litemap::LiteMap;

/// The number of data threads of each member.
#[derive(Debug, Default)]
pub struct MemberThreads {
    /// The members with more than one. If there are none, no lookup is needed.
    several: LiteMap<MemberId, u8>,
}

impl MemberThreads {
    /// The numbers in these tables.
    pub fn of(tables: &[&Table]) -> Self {
        let members = tables.iter().flat_map(|t| &t.members);
        let several = members
            .map(|m| (m.id, m.addresses.threads()))
            .filter(|(_, threads)| *threads > 1);
        Self {
            several: several.collect(),
        }
    }

    /// The thread of a member that has a partition, if that member has it.
    pub fn peer_of(&self, member: MemberId, partition: PartitionId) -> MemberId {
        match self.several.get(&member) {
            Some(threads) => member.thread(thread_of(partition, *threads)),
            None => member,
        }
    }
}

/// Whether a thread tells another one which table it acts on. All threads of a node act on the same
/// table, so not every two threads of two members need to.
pub(crate) fn tells_tables(me: MemberId, peer: MemberId) -> bool {
    peer.is_client() || (peer.member() != me.member() && peer.thread_number() == me.thread_number())
}

/// The thread that has a partition, at a member with `threads`.
#[must_use]
pub const fn thread_of(partition: PartitionId, threads: u8) -> u8 {
    partition.thread(threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_has_its_part_for_any_number_of_threads() {
        for members in 1..=8_u32 {
            for threads in 1..=16_u8 {
                for member in 0..members {
                    let mut counts = vec![0_u32; usize::from(threads)];
                    let mine = (0..1024).filter(|p| p % members == member);
                    mine.for_each(|p| counts[usize::from(thread_of(PartitionId(p), threads))] += 1);
                    let (least, most) = (
                        counts.iter().min().copied().unwrap_or(0),
                        counts.iter().max().copied().unwrap_or(0),
                    );
                    let fair = 1024 / members / u32::from(threads);
                    assert!(
                        least * 2 >= fair.saturating_sub(4) && most <= fair * 2 + 4,
                        "{members} members, {threads} threads: {counts:?}"
                    );
                }
            }
        }
    }
}
