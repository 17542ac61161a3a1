//! The fixed mode: contiguous runs of slots make a partition, and their number never changes.

use crate::hash::SLOTS;
use crate::id::PartitionId;
use std::ops::RangeInclusive;

/// The slots of a partition that has none.
pub(super) const NO_SLOTS: RangeInclusive<u16> = RangeInclusive::new(1, 0);

/// The partition of a slot, of this many partitions.
pub(super) fn partition_of_slot(partitions: u16, slot: u16) -> PartitionId {
    PartitionId(u32::from(slot / slots_each(partitions)))
}

/// The slots of a partition, of this many partitions.
pub(super) fn slots_of(partitions: u16, partition: PartitionId) -> RangeInclusive<u16> {
    let each = slots_each(partitions);
    match u16::try_from(partition.0) {
        Ok(number) if number < partitions.min(SLOTS) => number * each..=number * each + (each - 1),
        _ => NO_SLOTS,
    }
}

/// The number of slots of one partition. A valid table has 1 to 16384 partitions. Other numbers
/// must not cause a division by zero.
fn slots_each(partitions: u16) -> u16 {
    SLOTS / partitions.clamp(1, SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_one_partition_that_names_it() {
        for partitions in (0..=14).map(|power| 1_u16 << power) {
            let mut next = 0;
            for partition in (0..partitions).map(|p| PartitionId(p.into())) {
                for slot in slots_of(partitions, partition) {
                    assert_eq!(slot, next);
                    assert_eq!(partition_of_slot(partitions, slot), partition);
                    next += 1;
                }
            }
            assert_eq!(next, SLOTS);
        }
    }

    #[test]
    fn an_unknown_partition_has_no_slots() {
        assert!(slots_of(16, PartitionId(16)).is_empty());
        assert!(slots_of(16, PartitionId(u32::MAX)).is_empty());
        assert!(slots_of(0, PartitionId(0)).is_empty());
    }
}
