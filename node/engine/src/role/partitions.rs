//! What the shell asks of the partitions of a shard, without changing them.

use super::host::Host;
use super::recovery::{KeysPage, KeysWanted};
use super::slots::Slots;
use crate::command::sizes::{self, MapSize};
use doyen_gossip::Time;
use doyen_placement::{KeyspaceId, MapId, PartitionId, PartitionRef};
use std::collections::BTreeMap;

/// A page of how much each map has that a shard leads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SizesPage {
    /// Maps of one page. A map is in many pages, once in each.
    pub sizes: Vec<(KeyspaceId, MapSize)>,
    /// The partition after which the next page begins. `None`: this is the last one.
    pub next: Option<PartitionRef>,
}

/// The partitions of a shard.
#[derive(Debug, Clone, Copy)]
pub struct Partitions<'a> {
    pub(crate) slots: &'a Slots,
    pub(crate) host: &'a Host,
}

impl SizesPage {
    fn new(sums: BTreeMap<(KeyspaceId, MapId), MapSize>, next: Option<PartitionRef>) -> Self {
        let sizes = sums
            .into_iter()
            .map(|((keyspace, _), size)| (keyspace, size));
        Self {
            sizes: sizes.collect(),
            next,
        }
    }
}

impl Partitions<'_> {
    /// A page of what this node holds that was written since a recovery, with or without a lease.
    /// `None`: it does not hold the partition, or has not all of it yet.
    pub fn keys_since(&self, now: Time, wanted: &KeysWanted) -> Option<KeysPage> {
        self.slots.keys_since(now, wanted)
    }

    /// Whether this thread is the primary of a key in the installed table.
    pub fn leads(&self, keyspace: KeyspaceId, map: MapId, key: &[u8]) -> bool {
        let slot = self
            .host
            .tables
            .place(keyspace, map, key)
            .and_then(|at| self.slots.get(at));
        slot.is_some_and(|slot| slot.primary() == Some(self.host.me))
    }

    /// How many keys of each of these maps this shard leads, and how many of them expire.
    #[must_use]
    pub fn led<const N: usize>(&self, keyspace: KeyspaceId, maps: [MapId; N]) -> [(u64, u64); N] {
        let mut all = [(0, 0); N];
        let led = self
            .slots
            .iter()
            .filter(|slot| slot.at.keyspace == keyspace && slot.serving());
        for held in led.filter_map(|slot| slot.held.as_ref()) {
            held.store.each_of(&maps, |place, keys, expire| {
                all[place].0 += keys as u64;
                all[place].1 += expire as u64;
            });
        }
        all
    }

    /// How much each map has that this shard leads, page by page: a page ends with the partition
    /// after which more than `steps` figures were read.
    #[must_use]
    pub fn sizes_led(&self, after: Option<PartitionRef>, steps: usize) -> SizesPage {
        let mut sums: BTreeMap<(KeyspaceId, MapId), MapSize> = BTreeMap::new();
        let (mut read, mut next) = (0, None);
        let slots = self.slots.iter().filter(|slot| Some(slot.at) > after);
        for slot in slots.filter(|slot| slot.serving()) {
            if read > steps {
                return SizesPage::new(sums, next);
            }
            for size in slot.held.iter().flat_map(|held| sizes::of(&held.store)) {
                let sum = sums.entry((slot.at.keyspace, size.map)).or_insert(MapSize {
                    keys: 0,
                    bytes: 0,
                    ..size
                });
                sum.keys = sum.keys.saturating_add(size.keys);
                sum.bytes = sum.bytes.saturating_add(size.bytes);
                read += 1;
            }
            (read, next) = (read + 1, Some(slot.at));
        }
        SizesPage::new(sums, None)
    }

    /// How many bytes the keys of a map take that this shard leads.
    #[must_use]
    pub fn bytes_led(&self, keyspace: KeyspaceId, map: MapId) -> u64 {
        let led = self
            .slots
            .iter()
            .filter(|slot| slot.at.keyspace == keyspace && slot.serving());
        led.filter_map(|slot| slot.held.as_ref())
            .map(|held| held.store.bytes_of(map) as u64)
            .sum()
    }

    /// How many keys of a map a partition has, if this node can tell at once: it leads the
    /// partition, nothing waits there, and everything is committed. The number holds if
    /// `may_answer` agrees, with a clock, a lease and a generation that were read *after* this,
    /// while the view is the same. If it does not, ask again.
    #[must_use]
    pub fn keys_of(
        &self,
        keyspace: KeyspaceId,
        partition: PartitionId,
        map: MapId,
    ) -> Option<usize> {
        let slot = self.slots.get(PartitionRef::new(keyspace, partition))?;
        let waits = !slot.calls.parked.is_empty() || !slot.calls.later.is_empty();
        let held = slot.held.as_deref().filter(|_| slot.serving() && !waits)?;
        let open = held.lead().is_some_and(|lead| lead.open);
        (open && held.store.is_whole() && held.log.last() <= held.log.committed())
            .then(|| held.store.count(map))
    }
}
