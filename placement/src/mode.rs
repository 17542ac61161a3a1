//! How a key finds its partition: one file for each placement mode, and here the choice between
//! them.

mod fixed;

use crate::division::Division;
use crate::hash::SLOTS;
use crate::id::{MapId, PartitionId};
use crate::table::{Keyspace, Mode};
use std::ops::RangeInclusive;

/// Why a keyspace cannot list the keys between two keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRange {
    /// Its keys have no order.
    #[error("the keyspace keeps no order of its keys")]
    Unordered,
    /// Its keys have an order within a partition only.
    #[error(
        "the keyspace keeps keys in order within a {{tag}} only: begin both keys with the same \
         {{tag}}"
    )]
    Tag,
}

/// The tag at the beginning of a key, with its braces.
fn tag_of(key: &[u8]) -> Option<&[u8]> {
    key.iter()
        .position(|byte| *byte == b'}')
        .filter(|end| key.starts_with(b"{") && *end > 1)
        .map(|end| &key[..=end])
}

/// The first key behind all keys that begin with this tag.
fn behind(tag: &[u8]) -> Vec<u8> {
    let mut end = tag.to_vec();
    // The last byte is a brace.
    end.iter_mut()
        .last()
        .into_iter()
        .for_each(|last| *last += 1);
    end
}

impl Keyspace {
    /// The number of partitions, now or once the keyspace is assigned. Before that, a ring counts
    /// as one.
    #[must_use]
    pub fn count(&self) -> usize {
        match (self.mode, &self.division) {
            (_, Division::Runs(runs)) => runs.starts().len(),
            (Mode::Fixed { partitions }, _) => partitions.into(),
            (_, Division::Ranges(ranges)) => ranges.starts().len(),
            _ => self.partitions.len().max(1),
        }
    }

    /// The partition of this key of this map. `None` while the keyspace is not assigned.
    ///
    /// In databases, a `{tag}` decides alone, except for ranges ([`Tags`](crate::Tags)). In other
    /// maps, the map's number is hashed with the key, so that equal keys of several maps spread.
    #[must_use]
    pub fn partition_of(&self, map: MapId, key: &[u8]) -> Option<PartitionId> {
        match &self.division {
            Division::Slots | Division::Runs(_) => {
                self.partition_of_slot(self.tags.hashed(map, key).slot())
            }
            _ if self.partitions.is_empty() => None,
            Division::Arcs(arcs) => arcs.partition_of(self.tags.hashed(map, key).token()),
            Division::Ranges(ranges) => Some(ranges.partition_of(map, key)),
        }
    }

    /// The partitions that may have keys of a map between two keys, in order. The first key is
    /// included and the second is not. An empty second key means no end.
    ///
    /// # Errors The keyspace has no ranges and keeps no order, or the two keys do not begin with
    /// the same `{tag}`, so that the keys between them are in several partitions.
    pub fn partitions_within(
        &self,
        map: MapId,
        from: &[u8],
        to: &[u8],
    ) -> Result<Vec<PartitionId>, NoRange> {
        if let Division::Ranges(ranges) = &self.division {
            return Ok(ranges.within(map, from, to));
        }
        if !self.ordered {
            return Err(NoRange::Unordered);
        }
        // Keys between two keys with the same beginning have that beginning, too.
        match tag_of(from)
            .filter(|tag| self.tags.count_in(map) && (to.starts_with(tag) || behind(tag) == to))
        {
            Some(_) => Ok(self
                .partition_of(map, from)
                .filter(|_| from < to)
                .into_iter()
                .collect()),
            None => Err(NoRange::Tag),
        }
    }

    /// The end of a list of keys that begins with this key, if no end is given. There is none,
    /// unless the keyspace keeps order within a tag alone: then the end is behind the `{tag}` of
    /// the first key.
    #[must_use]
    pub fn end_from(&self, from: &[u8]) -> Vec<u8> {
        let tags = !matches!(self.division, Division::Ranges(_));
        tag_of(from)
            .filter(|_| tags)
            .map(behind)
            .unwrap_or_default()
    }

    /// The partition of this slot. `None` while the keyspace is not assigned, if it has no slots,
    /// and for a number that is no slot.
    #[must_use]
    pub fn partition_of_slot(&self, slot: u16) -> Option<PartitionId> {
        let Mode::Fixed { partitions } = self.mode else {
            return None;
        };
        if let Division::Runs(runs) = &self.division {
            return runs
                .partition_of_slot(slot)
                .filter(|_| !self.partitions.is_empty());
        }
        let partition = (slot < SLOTS).then(|| fixed::partition_of_slot(partitions, slot))?;
        ((partition.0 as usize) < self.partitions.len()).then_some(partition)
    }

    /// The slots of a partition. The range is empty if no partition has this number, or the
    /// keyspace has no slots.
    #[must_use]
    pub fn slots_of(&self, partition: PartitionId) -> RangeInclusive<u16> {
        let Mode::Fixed { partitions } = self.mode else {
            return fixed::NO_SLOTS;
        };
        if let Division::Runs(runs) = &self.division {
            return runs.slots_of(partition).unwrap_or(fixed::NO_SLOTS);
        }
        fixed::slots_of(partitions, partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::MemberId;
    use crate::table::Partition;
    use crate::tags::Tags;
    use std::sync::Arc;

    #[test]
    fn keys_with_a_tag_are_in_one_partition_and_others_are_not_looked_for() {
        let partition = |id| Arc::new(Partition::new(PartitionId(id), [MemberId(16)]));
        let mut keyspace = Keyspace {
            name: "k".into(),
            ordered: true,
            tags: Tags::Zero,
            partitions: (0..16).map(partition).collect(),
            ..Keyspace::fixed(16, 0)
        };
        let within = |keyspace: &Keyspace, from: &str, to: &str| {
            keyspace.partitions_within(MapId(0), from.as_bytes(), to.as_bytes())
        };
        let own = keyspace
            .partition_of(MapId(0), b"{u}1")
            .expect("it is assigned");
        assert_eq!(within(&keyspace, "{u}1", "{u}5"), Ok(vec![own]));
        assert_eq!(within(&keyspace, "{u}5", "{u}1"), Ok(vec![]));
        let end = String::from_utf8(keyspace.end_from(b"{u}1")).expect("text");
        assert!(
            "{u}\u{10ffff}" < &*end && within(&keyspace, "{u}1", &end) == Ok(vec![own]),
            "{end}"
        );
        assert_eq!(
            (keyspace.end_from(b"u1"), keyspace.end_from(b"{}1")),
            (vec![], vec![])
        );
        for (from, to) in [
            ("{u}1", "{v}1"),
            ("{u}1", ""),
            ("u1", "u2"),
            ("{}1", "{}2"),
            ("x{u}1", "x{u}2"),
            ("", ""),
        ] {
            assert_eq!(
                within(&keyspace, from, to),
                Err(NoRange::Tag),
                "{from} {to}"
            );
        }
        let database = MapId::database(3).expect("there is one");
        let within_it =
            |keyspace: &Keyspace| keyspace.partitions_within(database, b"{u}1", b"{u}5");
        assert_eq!(within_it(&keyspace), Err(NoRange::Tag));
        keyspace.tags = Tags::Databases;
        assert_eq!(within_it(&keyspace), Ok(vec![own]));
        keyspace.ordered = false;
        assert_eq!(within(&keyspace, "{u}1", "{u}5"), Err(NoRange::Unordered));
    }
}
