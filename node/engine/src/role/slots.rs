//! The partitions of a shard, found by their place.

use super::partition::Slot;
use doyen_placement::{KeyspaceId, PartitionId, PartitionRef};

/// Slots, sorted by keyspace and partition.
///
/// A lookup in a tree of a thousand slots would touch several places that are in no cache. Here, a
/// partition's number is its position, unless some before it are gone.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    keyspaces: Vec<(KeyspaceId, Vec<Slot>)>,
}

/// Where a partition is, or where it belongs.
fn place(slots: &[Slot], id: PartitionId) -> Result<usize, usize> {
    let guess = id.0 as usize;
    if slots.get(guess).is_some_and(|slot| slot.at.partition == id) {
        return Ok(guess);
    }
    slots.binary_search_by_key(&id, |slot| slot.at.partition)
}

impl Slots {
    /// The slot of a partition.
    #[inline]
    pub(crate) fn get(&self, at: PartitionRef) -> Option<&Slot> {
        let (_, slots) = self.keyspaces.iter().find(|(id, _)| *id == at.keyspace)?;
        Some(&slots[place(slots, at.partition).ok()?])
    }

    /// The slot of a partition.
    #[inline]
    pub(crate) fn get_mut(&mut self, at: PartitionRef) -> Option<&mut Slot> {
        let (_, slots) = self
            .keyspaces
            .iter_mut()
            .find(|(id, _)| *id == at.keyspace)?;
        let place = place(slots, at.partition).ok()?;
        Some(&mut slots[place])
    }

    /// The slot of a partition. If there is none, a new one.
    pub(crate) fn get_or_insert(&mut self, at: PartitionRef) -> &mut Slot {
        let keyspace = match self
            .keyspaces
            .binary_search_by_key(&at.keyspace, |(id, _)| *id)
        {
            Ok(keyspace) => keyspace,
            Err(keyspace) => {
                self.keyspaces.insert(keyspace, (at.keyspace, Vec::new()));
                keyspace
            }
        };
        let slots = &mut self.keyspaces[keyspace].1;
        let place = place(slots, at.partition).unwrap_or_else(|place| {
            slots.insert(place, Slot::new(at));
            place
        });
        &mut slots[place]
    }

    /// Forgets the slots for which this returns false.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Slot) -> bool) {
        for (_, slots) in &mut self.keyspaces {
            slots.retain(&mut keep);
        }
    }

    /// Forgets the keyspaces that are gone and have nothing left here.
    pub(crate) fn prune(&mut self, is_gone: impl Fn(KeyspaceId) -> bool) {
        self.keyspaces.retain(|(id, slots)| {
            !is_gone(*id)
                || slots
                    .iter()
                    .any(|slot| slot.held.is_some() || !slot.calls.is_empty())
        });
    }

    /// All, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.keyspaces.iter().flat_map(|(_, slots)| slots)
    }

    /// All, in order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.keyspaces.iter_mut().flat_map(|(_, slots)| slots)
    }

    /// All, in order.
    pub(crate) fn into_iter(self) -> impl Iterator<Item = Slot> {
        self.keyspaces.into_iter().flat_map(|(_, slots)| slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn at(keyspace: u16, partition: u32) -> PartitionRef {
        PartitionRef::new(KeyspaceId(keyspace), PartitionId(partition))
    }

    #[test]
    fn partitions_are_found_whichever_numbers_they_have() {
        let mut slots = Slots::default();
        let mut all = BTreeSet::new();
        for (keyspace, partition) in [
            (0, 0),
            (0, 1),
            (0, 2),
            (7, 5),
            (7, 900),
            (7, 1),
            (3, 2),
            (0, 4),
            (7, 0),
            (7, 2),
        ] {
            assert!(
                slots.get(at(keyspace, partition)).is_none()
                    && slots.get_mut(at(keyspace, partition)).is_none()
            );
            slots.get_or_insert(at(keyspace, partition)).min_in_sync = partition as u8;
            all.insert(at(keyspace, partition));
            let found: Vec<_> = slots.iter().map(|slot| slot.at).collect();
            assert_eq!(found, all.iter().copied().collect::<Vec<_>>());
            for at in &all {
                assert_eq!(
                    slots.get(*at).map(|s| s.min_in_sync),
                    Some(at.partition.0 as u8)
                );
                assert!(slots.get_mut(*at).is_some());
            }
        }
        assert_eq!(slots.iter_mut().count(), all.len());
        assert_eq!(slots.into_iter().count(), all.len());
    }
}
