//! Limits of maps: how much each holds, and which of its keys are evicted beyond that. Also maps
//! that were dropped.
//!
//! ```text
//!   put ── a new key ──> newcomers (the last 1 %) ── the oldest ──> ┐ the one that is used
//!                                       a sample of the others ──> ┘ less often is evicted
//! ```
//! A data thread leads some of a map's partitions, and holds that part of its limit. It evicts only
//! by deletions in the log, as for memory. It counts what it holds soon after writes, not at each,
//! so a map holds a little more than its limit for some milliseconds.
//!
//! *lfu* is W-TinyLFU: a sketch says how often keys were used lately, whether they are there or
//! not. A new key stays for a while, and then must have been used more often than the least used
//! one of a sample. So neither a scan nor a loop drives out what is used often. *lru*, *random* and
//! *ttl* choose as they do for memory, among the keys of the map. With *none*, new keys are
//! refused.
//!
//! What a dropped map leaves is cleared by the primaries, in the log, too.

mod sketch;

use super::changes::By;
use super::context::Context;
use super::op::Outcome;
use super::shard::Shard;
use super::store::{Effect, Undo, Victim, Wanted};
use super::timers::Duty;
use doyen_gossip::Time;
use doyen_placement::{Eviction, KeyspaceId, MapId, MapLimits, PartitionRef, Table};
use sketch::Sketch;
use std::collections::VecDeque;
use std::time::Duration;

/// Pause between two steps: what is counted looks at every partition.
const PAUSE: Duration = Duration::from_millis(1);
/// The most keys that one step evicts.
const STEP: usize = 2_048;
/// The least used key of so many is a victim.
const SAMPLE: usize = 16;
/// Newcomers are this part of all entries.
const NEWCOMERS_PART: u64 = 100;

/// What this thread knows of maps besides their keys.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    /// The maps of the installed table, in order.
    maps: Vec<(MapId, Option<Box<Bounded>>)>,
    /// Maps from this number on are not known yet.
    next: MapId,
    /// Some map was dropped. Numbers of maps are not given twice, so a table tells.
    any_dropped: bool,
    /// Some partition may have keys of a dropped map.
    remains: bool,
}

/// A map with limits.
#[derive(Debug)]
struct Bounded {
    keyspace: KeyspaceId,
    limits: MapLimits,
    /// What this thread may hold of it, and what it holds, as counted last.
    may: Held,
    holds: Held,
    /// Something was written since then.
    written: bool,
    /// How often keys are used, for *lfu*.
    sketch: Option<Sketch>,
    /// The keys that came last, the oldest first, for *lfu*.
    newcomers: VecDeque<(PartitionRef, u64)>,
}

/// Entries and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Held {
    entries: u64,
    bytes: u64,
}

impl Bounded {
    fn new(keyspace: KeyspaceId, limits: MapLimits) -> Self {
        let all = Held {
            entries: u64::MAX,
            bytes: u64::MAX,
        };
        let mut bounded = Self {
            keyspace,
            limits,
            may: all,
            holds: Held::default(),
            written: true,
            sketch: None,
            newcomers: VecDeque::new(),
        };
        bounded.fit_sketch();
        bounded
    }

    fn counts(&self) -> bool {
        self.limits.bounds() && self.limits.eviction == Eviction::Lfu
    }

    /// Makes the sketch fit the entries that there may be. If only bytes are limited, those are
    /// not known, and it is made for twice as many as there are.
    fn fit_sketch(&mut self) {
        if !self.counts() {
            self.sketch = None;
            return self.newcomers.clear();
        }
        let (keys, more) = match self.limits.entries {
            Some(most) => (self.may.entries.min(most), 1),
            None => (self.holds.entries, 2),
        };
        // A new one knows nothing, so it is not made for small changes.
        let fits = |sketch: &Sketch| sketch.keys() >= keys && sketch.keys() / 8 <= keys;
        if !self.sketch.as_ref().is_some_and(fits) {
            self.sketch = Some(Sketch::new(keys.saturating_mul(more)));
        }
    }

    /// How many keys are newcomers.
    fn newcomers_max(&self) -> u64 {
        (self.may.entries.min(self.holds.entries) / NEWCOMERS_PART).max(1)
    }

    /// Where there was room, keys are no newcomers any more once others came.
    fn settle_newcomers(&mut self) {
        let over = self.holds.entries.saturating_sub(self.may.entries);
        let most = self.newcomers_max().saturating_add(over);
        let settled = (self.newcomers.len() as u64).saturating_sub(most);
        // A number of elements of this list.
        self.newcomers.drain(..settled as usize);
    }

    const fn is_over(&self) -> bool {
        self.holds.entries > self.may.entries || self.holds.bytes > self.may.bytes
    }

    const fn is_full(&self) -> bool {
        self.holds.entries >= self.may.entries || self.holds.bytes >= self.may.bytes
    }
}

impl Bounds {
    /// Takes the maps of a table. Returns whether there is something to look at.
    pub(super) fn install(&mut self, table: &Table) -> bool {
        let mut before = std::mem::take(&mut self.maps).into_iter().peekable();
        for map in &table.maps {
            while before.next_if(|(id, _)| *id < map.id).is_some() {}
            let known = before.next_if(|(id, _)| *id == map.id);
            let known = known.and_then(|(_, bounded)| bounded);
            let limited = map.limits != MapLimits::NONE;
            let bounded = limited.then(|| match known {
                Some(mut known) => {
                    known.limits = map.limits;
                    known.written = true;
                    known.fit_sketch();
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

    fn is_due(&self) -> bool {
        let mut bounded = self.maps.iter().filter_map(|(_, bounded)| bounded.as_ref());
        self.remains || bounded.any(|bounded| bounded.limits.bounds())
    }

    /// Where a map is. Databases of Redis clients have no place, and no limits.
    #[inline]
    fn place(&self, map: MapId) -> Option<Result<usize, usize>> {
        (map != MapId(0) && map < self.next)
            .then(|| self.maps.binary_search_by_key(&map, |(id, _)| *id))
    }

    #[inline]
    fn get(&self, map: MapId) -> Option<&Bounded> {
        self.maps[self.place(map)?.ok()?].1.as_deref()
    }

    fn get_mut(&mut self, map: MapId) -> Option<&mut Bounded> {
        let at = self.place(map)?.ok()?;
        self.maps[at].1.as_deref_mut()
    }

    /// Whether some map was dropped.
    #[inline]
    pub(super) const fn any_dropped(&self) -> bool {
        self.any_dropped
    }

    /// Whether a map was dropped.
    #[inline]
    pub(super) fn is_dropped(&self, map: MapId) -> bool {
        self.place(map).is_some_and(|place| place.is_err())
    }

    /// How long entries of a map may be unused, in milliseconds.
    #[inline]
    pub(super) fn idle_ms(&self, map: MapId) -> Option<u64> {
        self.get(map)?.limits.idle_ms
    }

    /// Whether every operation on this map must be executed in the ordinary way.
    #[inline]
    pub(super) fn is_special(&self, map: MapId) -> bool {
        match self.place(map) {
            None => false,
            Some(Err(_)) => true,
            Some(Ok(at)) => self.maps[at].1.as_ref().is_some_and(|bounded| {
                let refuses = bounded.limits.bounds() && bounded.limits.eviction == Eviction::None;
                refuses || bounded.limits.idle_ms.is_some()
            }),
        }
    }

    /// A key is used, whether it is there or not. Returns whether the entry is to be marked. Writes
    /// are counted when they are logged.
    #[inline]
    pub(super) fn used(&mut self, map: MapId, order: u64, writes: bool) -> bool {
        let Some(bounded) = self.get_mut(map) else {
            return false;
        };
        if let Some(sketch) = bounded.sketch.as_mut().filter(|_| !writes) {
            sketch.count(order);
        }
        bounded.limits.bounds() && matches!(bounded.limits.eviction, Eviction::Lru | Eviction::Lfu)
    }

    /// Whether a new key of a map is refused.
    pub(super) fn refuses(&self, map: MapId) -> bool {
        self.get(map).is_some_and(|bounded| {
            bounded.limits.bounds()
                && bounded.limits.eviction == Eviction::None
                && bounded.is_full()
        })
    }

    /// An effect was logged, which replaced something. `order` is that of its key. Returns whether
    /// there is something to look at.
    pub(super) fn logged(
        &mut self,
        at: PartitionRef,
        (effect, undo): (&Effect, &Undo),
        order: impl Fn(&[u8]) -> u64,
    ) -> bool {
        let (effects, undos) = (effect.parts(), undo.parts());
        let mut due = false;
        for (effect, undo) in effects.iter().zip(undos) {
            let Some((map, key)) = effect.place() else {
                continue;
            };
            let Some(bounded) = self.get_mut(map).filter(|it| it.limits.bounds()) else {
                continue;
            };
            let grows = !matches!(effect, Effect::Delete { .. } | Effect::Deadline { .. });
            // What a primary that refuses new keys has room for must be known soon.
            bounded.written |= grows || bounded.limits.eviction == Eviction::None;
            due = true;
            if !matches!(effect, Effect::Put { .. }) {
                continue;
            }
            let order = order(key);
            match undo {
                Undo::Absent => {
                    bounded.holds.entries += 1;
                    if bounded.sketch.is_some() {
                        bounded.newcomers.push_back((at, order));
                    }
                }
                _ => {
                    if let Some(sketch) = &mut bounded.sketch {
                        sketch.count(order);
                    }
                }
            }
        }
        due
    }
}

impl Shard {
    /// Keeps maps within their limits, and clears those that were dropped.
    pub(super) fn bound_due(&mut self, now: Time) {
        if !self.cx.timers.take(Duty::Bound, now) {
            return;
        }
        self.cx.timers.rest(Duty::Bound, now + PAUSE);
        let mut bounds = std::mem::take(&mut self.cx.bounds);
        if bounds.remains {
            bounds.remains = self.clear_dropped(&bounds);
        }
        let mut more = false;
        for (map, bounded) in &mut bounds.maps {
            let Some(bounded) = bounded.as_mut().filter(|it| it.limits.bounds()) else {
                continue;
            };
            if std::mem::take(&mut bounded.written) {
                self.keep_within(*map, bounded);
                more |= bounded.written;
            }
        }
        self.cx.bounds = bounds;
        if more {
            self.cx.timers.want(Duty::Bound);
        }
    }

    /// Looks anew at what dropped maps have left: this member may lead other partitions now.
    pub(super) fn look_for_remains(&mut self) {
        self.cx.bounds.remains |= self.cx.bounds.any_dropped;
    }

    /// Looks at all limits anew: partitions may have come or gone.
    pub(super) fn look_at_bounds(&mut self) {
        if self.cx.bounds.is_due() {
            let maps = self.cx.bounds.maps.iter_mut();
            let bounded = maps.filter_map(|(_, bounded)| bounded.as_mut());
            bounded.for_each(|bounded| bounded.written = true);
            self.cx.timers.want(Duty::Bound);
        }
    }

    /// Clears what dropped maps have left in the partitions that this thread leads. Returns whether
    /// other partitions may have more.
    fn clear_dropped(&mut self, bounds: &Bounds) -> bool {
        let mut left = false;
        for slot in self.slots.iter_mut() {
            let Some(held) = slot.held.as_deref_mut() else {
                continue;
            };
            let gone: Vec<MapId> = held
                .store
                .map_ids()
                .filter(|map| bounds.is_dropped(*map))
                .collect();
            // Another primary clears it, or this one once it may.
            left |= !gone.is_empty();
            if !self.cx.leads_whole(held) || slot.still {
                continue;
            }
            for map in gone {
                let effect = Effect::Clear { map };
                self.cx
                    .log(held, 0, effect, (None, By::UNKNOWN), Outcome::Ok);
            }
            self.cx.advance(slot);
            self.cx.notice(slot);
        }
        left
    }

    /// Counts what this thread holds of a map, and evicts what is too much, so far as one step goes.
    fn keep_within(&mut self, map: MapId, bounded: &mut Bounded) {
        let (mut partitions, mut led, mut all) = (Vec::new(), 0_u64, 0_u64);
        let mut holds = Held::default();
        let of_keyspace = |at: PartitionRef| at.keyspace == bounded.keyspace;
        for slot in self.slots.iter().filter(|slot| of_keyspace(slot.at)) {
            all += u64::from(slot.installed.is_some());
            let Some(held) = slot.held.as_deref() else {
                continue;
            };
            if !held.lead().is_some_and(|lead| lead.open && lead.serving) {
                continue;
            }
            led += 1;
            let (keys, bytes) = held.store.size_of(map);
            holds.entries += keys as u64;
            holds.bytes += bytes as u64;
            if keys > 0 && !slot.still && self.cx.leads_whole(held) {
                partitions.push((slot.at, keys as u64));
            }
        }
        let part = |limit: Option<u64>| {
            limit.map_or(u64::MAX, |limit| {
                let part = u128::from(limit) * u128::from(led) / u128::from(all.max(1));
                // A small limit is not rounded down to nothing.
                u64::try_from(part).unwrap_or(u64::MAX).max(1)
            })
        };
        bounded.holds = holds;
        bounded.may = Held {
            entries: part(bounded.limits.entries),
            bytes: part(bounded.limits.bytes),
        };
        bounded.fit_sketch();
        if bounded.limits.eviction == Eviction::None {
            return;
        }
        bounded.settle_newcomers();
        let mut left = STEP;
        while bounded.is_over() && !partitions.is_empty() && left > 0 {
            left -= 1;
            let random = self.cx.random();
            let evicted = match bounded.limits.eviction {
                Eviction::Lfu => self.evict_least_used(map, bounded, &partitions, random),
                policy => {
                    let at = drawn(&partitions, random);
                    let pick = self.cx.random();
                    self.evict_by(at, map, policy, pick)
                }
            };
            match evicted {
                Some(bytes) => {
                    bounded.holds.entries = bounded.holds.entries.saturating_sub(1);
                    bounded.holds.bytes = bounded.holds.bytes.saturating_sub(bytes as u64);
                }
                // It had none that may be evicted: the next draw may.
                None if left.is_multiple_of(64) => break,
                None => {}
            }
        }
        bounded.written |= bounded.is_over();
    }

    /// Evicts the oldest newcomer, or the least used key of a sample. Returns its cost.
    fn evict_least_used(
        &mut self,
        map: MapId,
        bounded: &mut Bounded,
        partitions: &[(PartitionRef, u64)],
        random: u64,
    ) -> Option<usize> {
        let sketch = bounded.sketch.as_ref()?;
        let most = bounded.newcomers_max();
        let mut candidate = None;
        while candidate.is_none() && bounded.newcomers.len() as u64 > most {
            let (at, order) = bounded.newcomers.pop_front()?;
            let slot = self.slots.get(at);
            let held = slot.and_then(|slot| slot.held.as_deref());
            if held.is_some_and(|held| held.store.has_order(map, order)) {
                candidate = Some((at, order));
            }
        }
        let mut least: Option<(u64, bool, PartitionRef, u64)> = None;
        let first = place(partitions, random);
        let (mut seen, mut picks) = (0, random);
        for step in 0..partitions.len().min(SAMPLE) {
            let (at, _) = partitions[(first + step) % partitions.len()];
            picks = picks.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17) ^ random;
            let held = self.slots.get(at).and_then(|slot| slot.held.as_deref());
            let Some(held) = held else { continue };
            for (order, marked) in held.store.sample(map, picks).take(SAMPLE - seen) {
                seen += 1;
                if Some((at, order)) == candidate {
                    continue;
                }
                // Of several, one that was not used since it was in a sample before.
                let found = (sketch.frequency(order), marked, at, order);
                if least.is_none_or(|least| (found.0, found.1) < (least.0, least.1)) {
                    least = Some(found);
                }
            }
            if seen >= SAMPLE {
                break;
            }
        }
        let (at, order) = match (candidate, least) {
            (Some((at, order)), Some((frequency, ..))) if sketch.frequency(order) <= frequency => {
                (at, order)
            }
            (_, Some((.., at, order))) => (at, order),
            (Some(candidate), None) => candidate,
            (None, None) => return None,
        };
        let held = self.slots.get(at)?.held.as_deref()?;
        let victim = held.store.victim(map, order)?;
        self.evict_from(at, victim)
    }

    /// Evicts one key of a map by a policy. Returns its cost.
    fn evict_by(
        &mut self,
        at: PartitionRef,
        map: MapId,
        policy: Eviction,
        random: u64,
    ) -> Option<usize> {
        let wanted = Wanted {
            keys: 1,
            bytes: usize::MAX,
            urgent: true,
        };
        let held = self.slots.get_mut(at)?.held.as_deref_mut()?;
        let victims = held.store.victims_of(map, policy, wanted, random);
        let victim = victims.into_iter().next()?;
        self.evict_from(at, victim)
    }

    fn evict_from(&mut self, at: PartitionRef, victim: Victim) -> Option<usize> {
        let slot = self.slots.get_mut(at)?;
        let bytes = victim.bytes;
        let held = slot.held.as_deref_mut()?;
        self.cx.evict(held, vec![victim]);
        // Without copies, no ack will commit it.
        self.cx.advance(slot);
        self.cx.notice(slot);
        Some(bytes)
    }
}

/// A place in a list, in proportion to the keys there.
fn place(partitions: &[(PartitionRef, u64)], random: u64) -> usize {
    let all: u64 = partitions.iter().map(|(_, keys)| keys).sum();
    let mut nth = random % all.max(1);
    for (at, (_, keys)) in partitions.iter().enumerate() {
        if nth < *keys {
            return at;
        }
        nth -= keys;
    }
    0
}

/// A partition, in proportion to its keys. The list is not empty.
fn drawn(partitions: &[(PartitionRef, u64)], random: u64) -> PartitionRef {
    partitions[place(partitions, random)].0
}

impl Context {
    /// An effect was logged.
    #[inline]
    pub(super) fn bound(
        &mut self,
        at: PartitionRef,
        logged: (&Effect, &Undo),
        order: impl Fn(&[u8]) -> u64,
    ) {
        if self.bounds.logged(at, logged, order) {
            self.timers.want(Duty::Bound);
        }
    }
}
