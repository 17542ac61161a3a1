//! What a directory has of partitions.

use crate::id::{KeyspaceId, Lineage, PartitionId, PartitionRef};
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

/// The complete copies that a directory has: their partitions, and the lineage of each copy.
///
/// ```
/// # use doyen_placement as doyen;
/// use doyen::{DiskCopies, KeyspaceId, Lineage, PartitionId, PartitionRef};
///
/// let at = |n| PartitionRef::new(KeyspaceId(0), PartitionId(n));
/// let copies: DiskCopies = (0..512).map(|n| (at(n), Lineage(1))).collect();
/// assert_eq!(copies.lineage(at(511)), Some(Lineage(1)));
/// assert_eq!(copies.lineage(at(512)), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct DiskCopies {
    /// In order of partition.
    #[n(0)]
    runs: Vec<CopyRun>,
}

/// Copies of partitions whose numbers follow each other, of one lineage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
struct CopyRun {
    #[n(0)]
    keyspace: KeyspaceId,
    #[n(1)]
    first: PartitionId,
    #[n(2)]
    count: u32,
    #[n(3)]
    lineage: Lineage,
}

impl DiskCopies {
    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The lineage of the copy of this partition, if there is one.
    #[must_use]
    pub fn lineage(&self, at: PartitionRef) -> Option<Lineage> {
        // A peer may list runs in any order: then it has fewer copies than it says.
        let begins = |run: &CopyRun| PartitionRef::new(run.keyspace, run.first) <= at;
        let run = self.runs[..self.runs.partition_point(begins)].last()?;
        let offset = at.partition.0.checked_sub(run.first.0)?;
        (run.keyspace == at.keyspace && offset < run.count).then_some(run.lineage)
    }
}

impl FromIterator<(PartitionRef, Lineage)> for DiskCopies {
    fn from_iter<I: IntoIterator<Item = (PartitionRef, Lineage)>>(copies: I) -> Self {
        let copies: BTreeMap<PartitionRef, Lineage> = copies.into_iter().collect();
        let mut runs: Vec<CopyRun> = Vec::new();
        for (at, lineage) in copies {
            match runs.last_mut() {
                Some(run)
                    if (run.keyspace, run.lineage) == (at.keyspace, lineage)
                        && run.first.0 + run.count == at.partition.0 =>
                {
                    run.count += 1;
                }
                _ => runs.push(CopyRun {
                    keyspace: at.keyspace,
                    first: at.partition,
                    count: 1,
                    lineage,
                }),
            }
        }
        Self { runs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    fn at(keyspace: u16, partition: u32) -> PartitionRef {
        PartitionRef::new(KeyspaceId(keyspace), PartitionId(partition))
    }

    #[test]
    fn copies_are_found_by_partition_and_only_those() {
        let listed = [
            (at(1, 7), Lineage(1)),
            (at(0, 3), Lineage(1)),
            (at(0, 4), Lineage(1)),
            (at(0, 5), Lineage(2)),
            (at(1, 6), Lineage(1)),
        ];
        let copies: DiskCopies = listed.into_iter().collect();
        let found = (0..3).flat_map(|k| (0..10).map(move |p| at(k, p)));
        let found = found.filter_map(|at| Some((at, copies.lineage(at)?)));
        let mut listed = listed.to_vec();
        listed.sort_unstable_by_key(|(at, _)| *at);
        assert_eq!(found.collect::<Vec<_>>(), listed);
        assert!(DiskCopies::default().is_empty() && !copies.is_empty());
    }

    #[test]
    fn thousands_of_copies_take_few_bytes() {
        let size = |copies: &DiskCopies| {
            let bytes = codec::encode_numbered(copies, codec::BYTES_MAX).expect("it is small");
            let read = codec::decode_numbered::<DiskCopies>(&bytes, codec::BYTES_MAX);
            assert_eq!(read.as_ref(), Ok(copies));
            bytes.len()
        };
        let all: DiskCopies = (0..16_384).map(|n| (at(0, n), Lineage(1))).collect();
        let every_third = (0..16_384).step_by(3).map(|n| (at(0, n), Lineage(1)));
        let (all, third) = (size(&all), size(&every_third.collect()));
        assert!(all < 16 && third < 50_000, "{all} and {third} bytes");
    }
}
