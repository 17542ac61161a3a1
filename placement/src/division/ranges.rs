//! Ranges of keys in the order of their bytes, each a partition. Map comes before map, and in a map
//! key before key.
//!
//! ```text
//!  starts    (0, "")   (0, "h")   (0, "p")        (7, "m")
//!  ranges    |---------|----------|---------------|----------->
//!                                       (map 3)        (map 9)
//! ```

use crate::id::{MapId, PartitionId};
use crate::lookup::RangeLookup;
use crate::table::validate::PARTITIONS_MAX;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

/// The largest number of bytes of a split. A prefix of a long key divides as well.
pub const SPLIT_BYTES_MAX: usize = 1024;

/// The start of a range, with its partition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RangeStart {
    /// The map.
    pub map: MapId,
    /// The first key, which is in the range.
    pub key: Box<[u8]>,
    /// The partition.
    pub partition: PartitionId,
}

/// Ranges of keys: everything from one start up to the next.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "Vec<RangeStart>", into = "Vec<RangeStart>")]
pub struct Ranges {
    starts: Vec<RangeStart>,
    /// The maps in which ranges begin, in order; the first is map 0.
    maps: Vec<InMap>,
}

/// The ranges that begin in one map.
#[derive(Debug, Clone)]
struct InMap {
    map: MapId,
    /// The range of its first key.
    first: usize,
    lookup: RangeLookup,
}

/// Starts that make no ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RangesError {
    /// An empty key divides nothing.
    #[error("a split is empty: every key is behind it")]
    Empty,
    /// A split is too long.
    #[error("a split has more than {SPLIT_BYTES_MAX} bytes: a prefix divides as well")]
    Long,
    /// A start stands behind a greater one.
    #[error("split {0} stands behind a greater one: name them in order")]
    Disorder(usize),
    /// A start stands behind an equal one.
    #[error("split {0} is there twice")]
    Twice(usize),
    /// There are too many ranges.
    #[error("more than {PARTITIONS_MAX} ranges")]
    Many,
    /// Some keys have no range.
    #[error("the first range does not begin with the first key")]
    First,
    /// Two ranges have the same partition.
    #[error("partition {0} is two ranges")]
    Partition(PartitionId),
}

impl Ranges {
    /// Ranges with these starts. The first must be the empty key of map 0.
    ///
    /// # Errors The first thing found wrong.
    pub fn new(starts: Vec<RangeStart>) -> Result<Self, RangesError> {
        if starts.len() > PARTITIONS_MAX {
            return Err(RangesError::Many);
        }
        if starts
            .first()
            .is_none_or(|first| first.map != MapId(0) || !first.key.is_empty())
        {
            return Err(RangesError::First);
        }
        if starts.iter().any(|start| start.key.len() > SPLIT_BYTES_MAX) {
            return Err(RangesError::Long);
        }
        for (number, two) in starts.windows(2).enumerate() {
            match (two[0].map, &two[0].key).cmp(&(two[1].map, &two[1].key)) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return Err(RangesError::Twice(number + 1)),
                std::cmp::Ordering::Greater => return Err(RangesError::Disorder(number + 1)),
            }
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = starts.iter().find(|start| !seen.insert(start.partition)) {
            return Err(RangesError::Partition(twice.partition));
        }
        let mut maps: Vec<InMap> = Vec::new();
        let mut at = 0;
        while at < starts.len() {
            let map = starts[at].map;
            let end = at + starts[at..].partition_point(|start| start.map == map);
            // If no range begins with the map, its first keys are in the range before.
            let begins = starts[at].key.is_empty();
            let splits: Vec<&[u8]> = starts[at..end]
                .iter()
                .map(|start| &*start.key)
                .filter(|key| !key.is_empty())
                .collect();
            let lookup = RangeLookup::new(&splits).map_err(|_| RangesError::Disorder(at))?;
            maps.push(InMap {
                map,
                first: if begins { at } else { at - 1 },
                lookup,
            });
            at = end;
        }
        Ok(Self { starts, maps })
    }

    /// Ranges of the keys of map 0, numbered in order.
    ///
    /// # Errors
    /// As [`super::Division::split_at`].
    pub fn split_at<K: AsRef<[u8]>>(
        splits: impl IntoIterator<Item = K>,
    ) -> Result<Self, RangesError> {
        let start = |(key, number): (Box<[u8]>, u32)| RangeStart {
            map: MapId(0),
            key,
            partition: PartitionId(number),
        };
        let splits: Vec<Box<[u8]>> = splits
            .into_iter()
            .map(|split| split.as_ref().into())
            .collect();
        if splits.iter().any(|split| split.is_empty()) {
            return Err(RangesError::Empty);
        }
        Self::new(
            std::iter::once(Box::default())
                .chain(splits)
                .zip(0..)
                .map(start)
                .collect(),
        )
    }

    /// The starts, in order.
    #[must_use]
    pub fn starts(&self) -> &[RangeStart] {
        &self.starts
    }

    /// The bytes of all first keys.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.starts.iter().map(|start| start.key.len()).sum()
    }

    /// The partition of each range, in order.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.starts.iter().map(|start| start.partition)
    }

    /// The range of this key.
    #[must_use]
    pub fn partition_of(&self, map: MapId, key: &[u8]) -> PartitionId {
        let range = match self.maps.binary_search_by_key(&map, |m| m.map) {
            Ok(at) => self.maps[at].first + self.maps[at].lookup.range_of(key),
            // Map 0 is always present, and no map stands before it.
            Err(behind) => self.maps[behind - 1].first + self.maps[behind - 1].lookup.ranges() - 1,
        };
        self.starts[range].partition
    }

    /// The ranges that may have keys of a map between two keys, in order. The first key is included
    /// and the second is not. An empty second key means no end.
    #[must_use]
    pub fn within(&self, map: MapId, from: &[u8], to: &[u8]) -> Vec<PartitionId> {
        if !to.is_empty() && from >= to {
            return Vec::new();
        }
        let first = self
            .starts
            .partition_point(|s| (s.map, &*s.key) <= (map, from))
            .saturating_sub(1);
        let behind =
            |s: &RangeStart| s.map > map || (s.map == map && !to.is_empty() && *s.key >= *to);
        self.starts[first..]
            .iter()
            .take_while(|s| !behind(s))
            .map(|s| s.partition)
            .collect()
    }
}

/// Splits that divide keys like these into this many ranges of nearly equal count; fewer if keys
/// are repeated. Splits are cut to [`SPLIT_BYTES_MAX`].
///
/// ```
/// use doyen_placement::division::splits_of_sample;
/// let keys = ["e", "a", "d", "b", "c", "f"].map(|key| key.as_bytes().to_vec());
/// assert_eq!(splits_of_sample(keys.to_vec(), 3), [b"c", b"e"]);
/// ```
#[must_use]
pub fn splits_of_sample(mut keys: Vec<Vec<u8>>, ranges: usize) -> Vec<Vec<u8>> {
    keys.sort_unstable();
    let ranges = ranges.clamp(1, PARTITIONS_MAX);
    let cuts = (1..ranges).filter_map(|i| keys.get(i * keys.len() / ranges));
    let mut splits: Vec<Vec<u8>> = cuts
        .map(|key| key[..key.len().min(SPLIT_BYTES_MAX)].to_vec())
        .collect();
    splits.dedup();
    // Keys below the least key of the sample are not known, so a split there would divide nothing.
    splits.retain(|split| !split.is_empty() && keys.first().is_some_and(|least| split > least));
    splits
}

impl TryFrom<Vec<RangeStart>> for Ranges {
    type Error = RangesError;

    fn try_from(starts: Vec<RangeStart>) -> Result<Self, RangesError> {
        Self::new(starts)
    }
}

impl From<Ranges> for Vec<RangeStart> {
    fn from(ranges: Ranges) -> Self {
        ranges.starts
    }
}

/// The look-ups follow from the starts.
impl PartialEq for Ranges {
    fn eq(&self, other: &Self) -> bool {
        self.starts == other.starts
    }
}

impl Eq for Ranges {}

impl Hash for Ranges {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.starts.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn start(map: u32, key: &str, partition: u32) -> RangeStart {
        RangeStart {
            map: MapId(map),
            key: key.as_bytes().into(),
            partition: PartitionId(partition),
        }
    }

    /// The last start that is not above the key.
    fn naive(starts: &[RangeStart], map: MapId, key: &[u8]) -> PartitionId {
        starts
            .iter()
            .rev()
            .find(|s| (s.map, &*s.key) <= (map, key))
            .expect("the first is below everything")
            .partition
    }

    proptest! {
        #[test]
        fn a_key_is_in_the_range_that_begins_last_before_it(
            splits in prop::collection::btree_set((0_u32..4, "[a-c]{0,3}"), 0..12),
            asked in prop::collection::vec((0_u32..6, "[a-d]{0,4}"), 30),
        ) {
            let splits = splits
                .iter()
                .filter(|(map, key)| *map > 0 || !key.is_empty());
            let all = std::iter::once((0, "")).chain(splits.map(|(map, key)| (*map, key.as_str())));
            let starts: Vec<RangeStart> = all
                .zip((0..100).rev())
                .map(|((map, key), p)| start(map, key, p))
                .collect();
            let ranges = Ranges::new(starts.clone()).expect("in order");
            for (map, key) in asked {
                prop_assert_eq!(
                    ranges.partition_of(MapId(map), key.as_bytes()),
                    naive(&starts, MapId(map), key.as_bytes()),
                    "{} {}",
                    map,
                    key
                );
            }
        }

        #[test]
        fn a_span_of_keys_is_in_the_ranges_of_its_keys_and_in_no_others(
            splits in prop::collection::btree_set((0_u32..3, "[a-c]{0,2}"), 0..12),
            from in "[a-d]{0,3}",
            to in "[a-d]{0,3}",
        ) {
            let splits = splits
                .iter()
                .filter(|(map, key)| *map > 0 || !key.is_empty());
            let all = std::iter::once((0, "")).chain(splits.map(|(map, key)| (*map, key.as_str())));
            let ranges = Ranges::new(
                all.zip(0..)
                    .map(|((map, key), p)| start(map, key, p))
                    .collect(),
            )
            .expect("in order");
            let letters = ["", "a", "b", "c", "d"];
            let pairs = letters
                .iter()
                .flat_map(|a| letters.map(|b| format!("{a}{b}")));
            let keys = pairs.flat_map(|pair| letters.map(|c| format!("{pair}{c}")));
            let span: Vec<String> = keys
                .filter(|key| *key >= from && (to.is_empty() || *key < to))
                .collect();
            for map in 0..4 {
                let within = ranges.within(MapId(map), from.as_bytes(), to.as_bytes());
                prop_assert!(within.is_sorted());
                let used: BTreeSet<PartitionId> = span
                    .iter()
                    .map(|key| ranges.partition_of(MapId(map), key.as_bytes()))
                    .collect();
                prop_assert!(used.iter().all(|p| within.contains(p)), "{map} {from} {to}");
                // The first and the last range may have keys that are not among these.
                prop_assert!(
                    within.len() <= used.len() + 1,
                    "{map} {from} {to}: {within:?} {used:?}"
                );
            }
        }

        #[test]
        fn a_sample_is_cut_into_equal_parts(
            keys in prop::collection::vec("[a-z]{1,4}", 1..200),
            count in 1_usize..20,
        ) {
            let keys: Vec<Vec<u8>> = keys.into_iter().map(String::into_bytes).collect();
            let splits = splits_of_sample(keys.clone(), count);
            prop_assert!(splits.len() < count);
            let ranges = Ranges::split_at(&splits).expect("in order");
            let distinct: BTreeSet<&Vec<u8>> = keys.iter().collect();
            if distinct.len() == keys.len() && keys.len() >= count {
                prop_assert_eq!(ranges.starts().len(), count);
                for part in ranges.partitions() {
                    let within = keys
                        .iter()
                        .filter(|key| ranges.partition_of(MapId(0), key) == part)
                        .count();
                    prop_assert!(within.abs_diff(keys.len() / count) <= 1);
                }
            }
        }
    }

    #[test]
    fn splits_that_make_no_ranges_are_refused() {
        let new = |starts: &[RangeStart]| Ranges::new(starts.to_vec()).map(|_| ());
        assert_eq!(new(&[]), Err(RangesError::First));
        assert_eq!(new(&[start(0, "a", 0)]), Err(RangesError::First));
        assert_eq!(
            new(&[start(0, "", 0), start(0, "b", 1), start(0, "a", 2)]),
            Err(RangesError::Disorder(2))
        );
        assert_eq!(
            new(&[start(0, "", 0), start(0, "b", 1), start(0, "b", 2)]),
            Err(RangesError::Twice(2))
        );
        assert_eq!(
            new(&[start(0, "", 0), start(1, "", 0)]),
            Err(RangesError::Partition(PartitionId(0)))
        );
        assert_eq!(Ranges::split_at([""]), Err(RangesError::Empty));
        assert_eq!(
            Ranges::split_at([vec![7; SPLIT_BYTES_MAX + 1]]),
            Err(RangesError::Long)
        );
    }
}
