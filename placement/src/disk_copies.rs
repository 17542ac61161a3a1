//! What a directory has of partitions.

use crate::id::{KeyspaceId, Lineage, PartitionId, PartitionRef, Version};
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

/// The complete copies that a directory has: their partitions, the lineage of each copy, and for
/// which setting of its keyspace's durability it was made (`Keyspace::durable_since`).
///
/// ```
/// # use doyen_placement as doyen;
/// use doyen::{DiskCopies, KeyspaceId, Lineage, PartitionId, PartitionRef, Version};
///
/// let at = |n| PartitionRef::new(KeyspaceId(0), PartitionId(n));
/// let of = (Lineage(1), Version(7));
/// let copies: DiskCopies = (0..512).map(|n| (at(n), of)).collect();
/// assert_eq!(copies.get(at(511)), Some(of));
/// assert_eq!(copies.get(at(512)), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct DiskCopies {
    /// In order of partition.
    #[n(0)]
    runs: Vec<CopyRun>,
}

/// Copies of partitions whose numbers follow each other, of one lineage and setting.
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
    #[n(4)]
    since: Version,
}

impl DiskCopies {
    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The lineage and the setting of the copy of this partition, if there is one.
    #[must_use]
    pub fn get(&self, at: PartitionRef) -> Option<(Lineage, Version)> {
        // A peer may list runs in any order: then it has fewer copies than it says.
        let begins = |run: &CopyRun| PartitionRef::new(run.keyspace, run.first) <= at;
        let run = self.runs[..self.runs.partition_point(begins)].last()?;
        let offset = at.partition.0.checked_sub(run.first.0)?;
        (run.keyspace == at.keyspace && offset < run.count).then_some((run.lineage, run.since))
    }
}

impl FromIterator<(PartitionRef, (Lineage, Version))> for DiskCopies {
    fn from_iter<I>(copies: I) -> Self
    where
        I: IntoIterator<Item = (PartitionRef, (Lineage, Version))>,
    {
        let copies: BTreeMap<_, _> = copies.into_iter().collect();
        let mut runs: Vec<CopyRun> = Vec::new();
        for (at, (lineage, since)) in copies {
            match runs.last_mut() {
                Some(run)
                    if (run.keyspace, run.lineage, run.since) == (at.keyspace, lineage, since)
                        && run.first.0 + run.count == at.partition.0 =>
                {
                    run.count += 1;
                }
                _ => runs.push(CopyRun {
                    keyspace: at.keyspace,
                    first: at.partition,
                    count: 1,
                    lineage,
                    since,
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
            (at(1, 7), (Lineage(1), Version(0))),
            (at(0, 3), (Lineage(1), Version(0))),
            (at(0, 4), (Lineage(1), Version(0))),
            (at(0, 5), (Lineage(2), Version(0))),
            (at(1, 6), (Lineage(1), Version(5))),
        ];
        let copies: DiskCopies = listed.into_iter().collect();
        let found = (0..3).flat_map(|k| (0..10).map(move |p| at(k, p)));
        let found = found.filter_map(|at| Some((at, copies.get(at)?)));
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
        let of = (Lineage(1), Version(9));
        let all: DiskCopies = (0..16_384).map(|n| (at(0, n), of)).collect();
        let every_third = (0..16_384).step_by(3).map(|n| (at(0, n), of));
        let (all, third) = (size(&all), size(&every_third.collect()));
        assert!(all < 20 && third < 60_000, "{all} and {third} bytes");
    }
}
