//! Ordered ranges, split so that each has the same number of bytes. The planner of production
//! places them like partitions.

use super::super::keys::SimulatedKeys;
use super::Strategy;
use super::fixed::Fixed;
use doyen_placement::id::MemberId;
use doyen_placement::lookup::RangeLookup;
use doyen_placement::table::Member;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct RangeStrategy {
    lookup: RangeLookup,
    /// The bytes of all splits, and their number.
    splits: (usize, usize),
    placed: Fixed,
}

impl RangeStrategy {
    pub(super) fn new(ranges: u16, copies: usize, keys: &SimulatedKeys) -> Self {
        let splits = splits(ranges, keys);
        let bytes = splits.iter().map(|split| split.len()).sum();
        // The splits are distinct, in order and not empty. If they ever are not, use one range.
        let lookup = RangeLookup::new(&splits).or_else(|_| RangeLookup::new::<&[u8]>(&[]));
        let lookup = lookup.expect("no splits are in order");
        Self {
            lookup,
            splits: (bytes, splits.len()),
            placed: Fixed::new(ranges, copies),
        }
    }
}

/// Keys that divide all bytes about evenly.
fn splits(ranges: u16, keys: &SimulatedKeys) -> Vec<&[u8]> {
    let mut sorted: Vec<(&[u8], u64)> = keys.iter().map(|key| (key.name, key.size)).collect();
    sorted.sort_unstable();
    let all: u128 = sorted.iter().map(|(_, size)| u128::from(*size)).sum();
    let mut splits: Vec<&[u8]> = Vec::new();
    let mut before = 0_u128;
    for (name, size) in sorted {
        let due = before * u128::from(ranges) >= all * (splits.len() as u128 + 1);
        if due
            && splits.len() + 1 < usize::from(ranges)
            && !name.is_empty()
            && splits.last() != Some(&name)
        {
            splits.push(name);
        }
        before += u128::from(size);
    }
    splits
}

impl Strategy for RangeStrategy {
    fn follow(&mut self, nodes: &[Arc<Member>]) {
        self.placed.follow(nodes);
    }

    fn holders(&self, key: &[u8], holders: &mut Vec<MemberId>) {
        holders.extend(self.placed.holders_of(self.lookup.range_of(key)));
    }

    fn table_bytes(&self) -> usize {
        let (bytes, count) = self.splits;
        self.placed.table_bytes() + bytes + count * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_equal_bytes() {
        let mut keys = SimulatedKeys::default();
        (0..1000_u32).for_each(|n| keys.push(format!("{:04}", n * 7 % 1000).as_bytes(), 10, 1.0));
        let splits = splits(4, &keys);
        assert_eq!(splits, [b"0250", b"0500", b"0750"]);
    }

    #[test]
    fn one_key_makes_no_splits() {
        let mut keys = SimulatedKeys::default();
        (0..10).for_each(|_| keys.push(b"", 10, 1.0));
        assert!(splits(4, &keys).is_empty() && splits(4, &SimulatedKeys::default()).is_empty());
    }
}
