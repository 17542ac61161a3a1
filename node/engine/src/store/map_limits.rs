//! Limits of maps: how much each holds, and which of its keys are evicted beyond that. Also maps
//! that were dropped.
//!
//! ```text
//!   put ── a new key ──> newcomers (the last 1 %) ── the oldest ──> ┐ the one that is used
//!                                       a sample of the others ──> ┘ less often is evicted
//! ```
//! A data thread leads some of a map's partitions, and holds that part of its limit. It evicts only
//! by deletions in the log, as for memory, and soon after writes, not at each: a map holds a little
//! more than its limit for some milliseconds. What it holds is counted as writes happen, and from
//! all keys when other partitions are led.
//!
//! *lfu* is W-TinyLFU: a sketch says how often keys were used lately, whether they are there or
//! not. A new key stays for a while, and then must have been used more often than the least used
//! one of a sample. So neither a scan nor a loop drives out what is used often. *lru*, *random* and
//! *ttl* choose as they do for memory, among the keys of the map. With *none*, new keys are
//! refused.
//!
//! What a dropped map leaves is cleared by the primaries, in the log, too.

pub(crate) mod sketch;

use super::effect::{Effect, Undo};
use super::map::cost;
use doyen_placement::{Eviction, KeyspaceId, MapId, MapLimits, PartitionRef, Table};
use sketch::Sketch;
use std::collections::{BTreeMap, VecDeque};

/// The maps of databases, which have no limits, have this number or a higher one, or 0.
const FIRST_DATABASE: MapId = MapId(u32::MAX - 64);
/// Newcomers are this part of all entries.
const NEWCOMERS_PART: u64 = 100;

/// What this thread knows of maps besides their keys.
#[derive(Debug, Default)]
pub(crate) struct MapBounds {
    /// The maps of the installed table, in order.
    pub(crate) maps: Vec<(MapId, Option<Box<Bounded>>)>,
    /// Maps from this number on are not known yet.
    pub(crate) next: MapId,
    /// Some map was dropped. Numbers of maps are not given twice, so a table tells.
    pub(crate) any_dropped: bool,
    /// Some partition may have keys of a dropped map.
    pub(crate) remains: bool,
    /// The partitions of each keyspace that this thread leads.
    pub(crate) led: BTreeMap<KeyspaceId, Led>,
    /// The map whose keys are all counted next, in case that something was not counted.
    pub(crate) turn: usize,
    /// What all sketches take.
    pub(crate) bytes: usize,
}

/// The partitions of a keyspace that this thread leads.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Led {
    pub(crate) at: Vec<PartitionRef>,
    /// How many partitions the keyspace has.
    pub(crate) all: u64,
}

/// A map with limits.
#[derive(Debug)]
pub(crate) struct Bounded {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) limits: MapLimits,
    /// What this thread may hold of it, and what it holds.
    pub(crate) may: MapHolds,
    pub(crate) holds: MapHolds,
    /// What it holds is not known.
    pub(crate) stale: bool,
    /// How often keys are used, for *lfu*.
    pub(crate) sketch: Option<Sketch>,
    /// The keys that came last, the oldest first, for *lfu*.
    pub(crate) newcomers: VecDeque<(PartitionRef, u64)>,
}

/// Entries and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MapHolds {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

impl Bounded {
    pub(crate) fn new(keyspace: KeyspaceId, limits: MapLimits) -> Self {
        Self {
            keyspace,
            limits,
            // No more than all of it, until its part is known.
            may: MapHolds {
                entries: limits.entries.unwrap_or(u64::MAX),
                bytes: limits.bytes.unwrap_or(u64::MAX),
            },
            holds: MapHolds::default(),
            stale: true,
            sketch: None,
            newcomers: VecDeque::new(),
        }
    }

    /// Makes the sketch fit the entries that there are. It grows with them, so a limit that is
    /// never reached costs nothing.
    pub(crate) fn fit_sketch(&mut self) {
        if !self.limits.bounds() || self.limits.eviction != Eviction::Lfu {
            self.sketch = None;
            return self.newcomers.clear();
        }
        let keys = self.holds.entries.min(self.may.entries);
        // A new one knows nothing, so it is not made for small changes.
        let fits = |sketch: &Sketch| sketch.keys() >= keys && sketch.keys() / 8 <= keys;
        if !self.sketch.as_ref().is_some_and(fits) {
            let keys = keys.saturating_mul(2).min(self.may.entries);
            self.sketch = Some(Sketch::new(keys));
        }
    }

    /// How many keys are newcomers.
    pub(crate) fn newcomers_max(&self) -> u64 {
        (self.may.entries.min(self.holds.entries) / NEWCOMERS_PART).max(1)
    }

    /// About how many keys are too many.
    pub(crate) fn over(&self) -> u64 {
        let entries = self.holds.entries.saturating_sub(self.may.entries);
        let bytes = self.holds.bytes.saturating_sub(self.may.bytes);
        let each = (self.holds.bytes / self.holds.entries.max(1)).max(1);
        entries.max(bytes.div_ceil(each))
    }

    /// Where there was room, keys are no newcomers any more once others came.
    pub(crate) fn settle_newcomers(&mut self) {
        let most = self.newcomers_max().saturating_add(self.over());
        let settled = (self.newcomers.len() as u64).saturating_sub(most);
        // A number of elements of this list.
        self.newcomers.drain(..settled as usize);
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.holds.entries > self.may.entries || self.holds.bytes > self.may.bytes
    }

    /// Whether new keys are refused once it is full.
    pub(crate) fn may_refuse(&self) -> bool {
        self.limits.bounds() && self.limits.eviction == Eviction::None
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.holds.entries >= self.may.entries || self.holds.bytes >= self.may.bytes
    }

    pub(crate) fn lost(&mut self, bytes: usize) {
        self.holds.entries = self.holds.entries.saturating_sub(1);
        self.holds.bytes = self.holds.bytes.saturating_sub(bytes as u64);
    }

    /// An effect on a key replaced something.
    pub(crate) fn counts(&mut self, effect: &Effect, undo: &Undo) {
        if let Effect::Put { entry, .. } = effect {
            self.holds.entries += 1;
            self.holds.bytes += cost(entry) as u64;
        }
        match (effect, undo) {
            (Effect::Put { .. } | Effect::Delete { .. }, Undo::Was(old)) => self.lost(cost(old)),
            (Effect::Put { .. } | Effect::Delete { .. }, Undo::Table(_)) => self.stale = true,
            _ => {}
        }
    }
}

impl MapBounds {
    /// Takes the maps of a table. Returns whether there is something to look at.
    pub(crate) fn install(&mut self, table: &Table) -> bool {
        let mut before = std::mem::take(&mut self.maps).into_iter().peekable();
        for map in &table.maps {
            while before.next_if(|(id, _)| *id < map.id).is_some() {}
            let known = before.next_if(|(id, _)| *id == map.id);
            let known = known.and_then(|(_, bounded)| bounded);
            let limited = map.limits != MapLimits::NONE;
            let bounded = limited.then(|| match known {
                Some(mut known) => {
                    known.limits = map.limits;
                    known.stale = true;
                    known
                }
                None => Box::new(Bounded::new(map.keyspace, map.limits)),
            });
            self.maps.push((map.id, bounded));
        }
        self.next = table.next_map;
        let given = usize::try_from(table.next_map.0).unwrap_or(usize::MAX);
        self.any_dropped = given > table.maps.len() + 1;
        self.remains = self.any_dropped;
        self.is_due()
    }

    pub(crate) fn is_due(&self) -> bool {
        self.remains || self.bounded().next().is_some()
    }

    /// The maps with limits of how much they hold.
    pub(crate) fn bounded(&self) -> impl Iterator<Item = &Bounded> {
        let limited = self.maps.iter().filter_map(|(_, it)| it.as_deref());
        limited.filter(|bounded| bounded.limits.bounds())
    }

    pub(crate) fn bounded_mut(&mut self) -> impl Iterator<Item = &mut Bounded> {
        let limited = self.maps.iter_mut().filter_map(|(_, it)| it.as_deref_mut());
        limited.filter(|bounded| bounded.limits.bounds())
    }

    /// Whether a map is one of a newer table than the installed one. What its limits are is not
    /// known here yet.
    #[inline]
    pub(crate) fn is_unknown(&self, map: MapId) -> bool {
        map >= self.next && self.next > MapId(0) && map < FIRST_DATABASE
    }

    /// What it takes in memory, besides what is small.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where a map is. Databases of Redis clients have no place, and no limits.
    #[inline]
    pub(crate) fn place(&self, map: MapId) -> Option<Result<usize, usize>> {
        (map != MapId(0) && map < self.next)
            .then(|| self.maps.binary_search_by_key(&map, |(id, _)| *id))
    }

    #[inline]
    pub(crate) fn get(&self, map: MapId) -> Option<&Bounded> {
        self.maps[self.place(map)?.ok()?].1.as_deref()
    }

    pub(crate) fn get_mut(&mut self, map: MapId) -> Option<&mut Bounded> {
        let at = self.place(map)?.ok()?;
        self.maps[at].1.as_deref_mut()
    }

    /// Whether some map was dropped.
    #[inline]
    pub(crate) const fn any_dropped(&self) -> bool {
        self.any_dropped
    }

    /// Whether a map was dropped.
    #[inline]
    pub(crate) fn is_dropped(&self, map: MapId) -> bool {
        self.place(map).is_some_and(|place| place.is_err())
    }

    /// How long entries of a map may be unused, in milliseconds.
    #[inline]
    pub(crate) fn idle_ms(&self, map: MapId) -> Option<u64> {
        self.get(map)?.limits.idle_ms
    }

    /// Whether every operation on this map must be executed in the ordinary way.
    #[inline]
    pub(crate) fn is_special(&self, map: MapId) -> bool {
        match self.place(map) {
            None => self.is_unknown(map),
            Some(Err(_)) => true,
            Some(Ok(at)) => (self.maps[at].1.as_ref())
                .is_some_and(|it| it.may_refuse() || it.limits.idle_ms.is_some()),
        }
    }

    /// A key is used, whether it is there or not. Returns whether the entry is to be marked. Writes
    /// are counted when they are logged.
    #[inline]
    pub(crate) fn used(&mut self, map: MapId, order: u64, writes: bool) -> bool {
        let Some(bounded) = self.get_mut(map) else {
            return false;
        };
        if let Some(sketch) = bounded.sketch.as_mut().filter(|_| !writes) {
            sketch.count(order);
        }
        bounded.limits.bounds() && matches!(bounded.limits.eviction, Eviction::Lru | Eviction::Lfu)
    }

    /// Whether a new key of a map is refused.
    pub(crate) fn refuses(&self, map: MapId) -> bool {
        let bounded = self.get(map);
        bounded.is_some_and(|bounded| bounded.may_refuse() && bounded.is_full())
    }

    /// An effect was logged, which replaced something. `order` is that of its key. Returns whether
    /// there is something to look at.
    pub(crate) fn logged(
        &mut self,
        at: PartitionRef,
        (effect, undo): (&Effect, &Undo),
        order: impl Fn(&[u8]) -> u64,
    ) -> bool {
        let mut due = false;
        for (effect, undo) in effect.parts().iter().zip(undo.parts()) {
            if let Effect::Clear { map } = effect
                && let Some(bounded) = self.get_mut(*map)
            {
                bounded.holds = MapHolds::default();
                continue;
            }
            let Some((map, key)) = effect.place() else {
                continue;
            };
            let Some(bounded) = self.get_mut(map).filter(|it| it.limits.bounds()) else {
                continue;
            };
            bounded.counts(effect, undo);
            due |= bounded.is_over() || bounded.stale;
            if let (Effect::Put { .. }, Some(sketch)) = (effect, &mut bounded.sketch) {
                let order = order(key);
                if matches!(undo, Undo::Absent) {
                    due |= sketch.keys() < bounded.holds.entries.min(bounded.may.entries);
                    bounded.newcomers.push_back((at, order));
                    due |= bounded.newcomers.len() as u64 > 2 * bounded.newcomers_max() + 16;
                } else {
                    sketch.count(order);
                }
            }
        }
        due
    }
}
