//! Limits of maps: how much each holds, and which of its keys are evicted beyond that. Also maps
//! that were dropped.
//!
//! ```text
//!   put ── a new key ──> newcomers (the last 1 %) ── the oldest ──> ┐ the one that is used
//!                                       a sample of the others ──> ┘ less often is evicted
//! ```
//! A data thread leads some of a map's partitions, and holds that part of its limit. It evicts only
//! by deletions in the log, as for memory, and soon after writes, not at each: a map holds a little
//! more than its limit for some milliseconds. What it holds is counted as writes happen, and anew
//! when other partitions are led.
//!
//! *lfu* is W-TinyLFU: a sketch says how often keys were used lately, whether they are there or
//! not. A new key stays for a while, and then must have been used more often than the least used
//! one of a sample. So neither a scan nor a loop drives out what is used often. *lru*, *random* and
//! *ttl* choose as they do for memory, among the keys of the map. With *none*, new keys are
//! refused.
//!
//! What a dropped map leaves is cleared by the primaries, in the log, too.

mod sketch;

use crate::role::partition::Held as PartitionHeld;
use crate::role::timers::Duty;
use crate::shard::context::Context;
use crate::shard::machine::Shard;
use crate::store::{Effect, Undo, Victim, cost};
use crate::value::cause::By;
use crate::value::outcome::Outcome;
use doyen_gossip::Time;
use doyen_placement::{Eviction, KeyspaceId, MapId, MapLimits, PartitionRef, Table};
use sketch::Sketch;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Pause between two steps.
const PAUSE: Duration = Duration::from_millis(1);
/// The most keys that one step evicts, from all maps.
const STEP: usize = 512;
/// About how many partitions one step looks at to count what maps hold.
const COUNTED: usize = 16_384;
/// The most partitions that are looked at for one victim.
const LOOKED: usize = 256;
/// The least used key of so many is a victim.
const SAMPLE: usize = 16;
/// The maps of databases, which have no limits, have this number or a higher one, or 0.
const FIRST_DATABASE: MapId = MapId(u32::MAX - 64);
/// Newcomers are this part of all entries.
const NEWCOMERS_PART: u64 = 100;

/// What this thread knows of maps besides their keys.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    /// The maps of the installed table, in order.
    maps: Vec<(MapId, Option<Box<Bounded>>)>,
    /// Maps from this number on are not known yet.
    next: MapId,
    /// Some map was dropped. Numbers of maps are not given twice, so a table tells.
    any_dropped: bool,
    /// Some partition may have keys of a dropped map.
    remains: bool,
    /// The partitions of each keyspace that this thread leads.
    led: BTreeMap<KeyspaceId, Led>,
    /// The map that is counted anew next, in case that something was not counted.
    turn: usize,
    /// What all sketches take.
    bytes: usize,
}

/// The partitions of a keyspace that this thread leads.
#[derive(Debug, Default, PartialEq, Eq)]
struct Led {
    at: Vec<PartitionRef>,
    /// How many partitions the keyspace has.
    all: u64,
}

/// A map with limits.
#[derive(Debug)]
struct Bounded {
    keyspace: KeyspaceId,
    limits: MapLimits,
    /// What this thread may hold of it, and what it holds.
    may: Held,
    holds: Held,
    /// What it holds is not known.
    stale: bool,
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
        Self {
            keyspace,
            limits,
            // No more than all of it, until its part is known.
            may: Held {
                entries: limits.entries.unwrap_or(u64::MAX),
                bytes: limits.bytes.unwrap_or(u64::MAX),
            },
            holds: Held::default(),
            stale: true,
            sketch: None,
            newcomers: VecDeque::new(),
        }
    }

    /// Makes the sketch fit the entries that there are. It grows with them, so a limit that is
    /// never reached costs nothing.
    fn fit_sketch(&mut self) {
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
    fn newcomers_max(&self) -> u64 {
        (self.may.entries.min(self.holds.entries) / NEWCOMERS_PART).max(1)
    }

    /// About how many keys are too many.
    fn over(&self) -> u64 {
        let entries = self.holds.entries.saturating_sub(self.may.entries);
        let bytes = self.holds.bytes.saturating_sub(self.may.bytes);
        let each = (self.holds.bytes / self.holds.entries.max(1)).max(1);
        entries.max(bytes.div_ceil(each))
    }

    /// Where there was room, keys are no newcomers any more once others came.
    fn settle_newcomers(&mut self) {
        let most = self.newcomers_max().saturating_add(self.over());
        let settled = (self.newcomers.len() as u64).saturating_sub(most);
        // A number of elements of this list.
        self.newcomers.drain(..settled as usize);
    }

    const fn is_over(&self) -> bool {
        self.holds.entries > self.may.entries || self.holds.bytes > self.may.bytes
    }

    /// Whether new keys are refused once it is full.
    fn may_refuse(&self) -> bool {
        self.limits.bounds() && self.limits.eviction == Eviction::None
    }

    const fn is_full(&self) -> bool {
        self.holds.entries >= self.may.entries || self.holds.bytes >= self.may.bytes
    }

    fn lost(&mut self, bytes: usize) {
        self.holds.entries = self.holds.entries.saturating_sub(1);
        self.holds.bytes = self.holds.bytes.saturating_sub(bytes as u64);
    }

    /// An effect on a key replaced something.
    fn counts(&mut self, effect: &Effect, undo: &Undo) {
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

impl Bounds {
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

    fn is_due(&self) -> bool {
        self.remains || self.bounded().next().is_some()
    }

    /// The maps with limits of how much they hold.
    fn bounded(&self) -> impl Iterator<Item = &Bounded> {
        let limited = self.maps.iter().filter_map(|(_, it)| it.as_deref());
        limited.filter(|bounded| bounded.limits.bounds())
    }

    fn bounded_mut(&mut self) -> impl Iterator<Item = &mut Bounded> {
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
                bounded.holds = Held::default();
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

impl Shard {
    /// Keeps maps within their limits, and clears those that were dropped.
    pub(crate) fn bound_due(&mut self, now: Time) {
        if !self.cx.timers.take(Duty::Bound, now) {
            return;
        }
        self.cx.timers.rest(Duty::Bound, now + PAUSE);
        let mut bounds = std::mem::take(&mut self.cx.bounds);
        if bounds.remains {
            bounds.remains = self.clear_dropped(&bounds);
        }
        if bounds.bounded().any(|bounded| bounded.stale) {
            self.find_led(&mut bounds);
        }
        let Bounds { maps, led, .. } = &mut bounds;
        let (mut counted, mut left) = (0, STEP);
        let mut more = false;
        for (map, bounded) in maps {
            let Some(bounded) = bounded.as_mut().filter(|it| it.limits.bounds()) else {
                continue;
            };
            let Some(led) = led.get(&bounded.keyspace) else {
                continue;
            };
            if bounded.stale && counted < COUNTED {
                self.count_anew(*map, bounded, led);
                counted += led.at.len();
            }
            bounded.fit_sketch();
            bounded.settle_newcomers();
            if bounded.is_over() && bounded.limits.eviction != Eviction::None {
                self.keep_within(*map, bounded, &led.at, &mut left);
                more |= bounded.is_over();
            }
            more |= bounded.stale;
        }
        bounds.bytes = bounds
            .bounded()
            .filter_map(|bounded| bounded.sketch.as_ref())
            .map(Sketch::bytes)
            .sum();
        self.cx.bounds = bounds;
        if more {
            self.cx.timers.want(Duty::Bound);
        }
    }

    /// Looks anew at what dropped maps have left: this member may lead other partitions now.
    pub(crate) fn look_for_remains(&mut self) {
        self.cx.bounds.remains |= self.cx.bounds.any_dropped;
    }

    /// Counts one map anew, and all if other partitions are led than before.
    pub(crate) fn look_at_bounds(&mut self) {
        if !self.cx.bounds.is_due() {
            return;
        }
        let mut bounds = std::mem::take(&mut self.cx.bounds);
        self.find_led(&mut bounds);
        let count = bounds.bounded().count().max(1);
        bounds.turn = (bounds.turn + 1) % count;
        let turn = bounds.turn;
        let next = bounds.bounded_mut().nth(turn);
        next.into_iter().for_each(|bounded| bounded.stale = true);
        self.cx.bounds = bounds;
        self.cx.timers.want(Duty::Bound);
    }

    /// Finds the partitions that this thread leads. What maps hold there is not known if they are
    /// others than before.
    fn find_led(&self, bounds: &mut Bounds) {
        let mut led: BTreeMap<KeyspaceId, Led> = BTreeMap::new();
        for bounded in bounds.bounded() {
            led.entry(bounded.keyspace).or_default();
        }
        for slot in self.slots.iter().filter(|slot| slot.installed.is_some()) {
            let Some(led) = led.get_mut(&slot.at.keyspace) else {
                continue;
            };
            led.all += 1;
            let held = slot.held.as_deref();
            let lead = held.and_then(|held| held.lead());
            if lead.is_some_and(|lead| lead.open && lead.serving) {
                led.at.push(slot.at);
            }
        }
        for bounded in bounds.maps.iter_mut().filter_map(|(_, it)| it.as_mut()) {
            let (before, now) = (
                bounds.led.get(&bounded.keyspace),
                led.get(&bounded.keyspace),
            );
            bounded.stale |= before != now;
        }
        bounds.led = led;
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

    /// Counts what this thread holds of a map, and what it may hold.
    fn count_anew(&self, map: MapId, bounded: &mut Bounded, led: &Led) {
        bounded.stale = false;
        bounded.holds = Held::default();
        for at in &led.at {
            let held = self.slots.get(*at).and_then(|slot| slot.held.as_deref());
            let (keys, bytes) = held.map_or((0, 0), |held| held.store.size_of(map));
            bounded.holds.entries += keys as u64;
            bounded.holds.bytes += bytes as u64;
        }
        let part = |limit: Option<u64>| {
            limit.map_or(u64::MAX, |limit| {
                let part = u128::from(limit) * led.at.len() as u128 / u128::from(led.all.max(1));
                // A small limit is not rounded down to nothing.
                u64::try_from(part).unwrap_or(u64::MAX).max(1)
            })
        };
        bounded.may = Held {
            entries: part(bounded.limits.entries),
            bytes: part(bounded.limits.bytes),
        };
    }

    /// Evicts what is too much of a map, so far as one step goes.
    fn keep_within(
        &mut self,
        map: MapId,
        bounded: &mut Bounded,
        led: &[PartitionRef],
        left: &mut usize,
    ) {
        while bounded.is_over() && *left > 0 {
            *left -= 1;
            let random = self.cx.random();
            let evicted = match bounded.limits.eviction {
                Eviction::Lfu => self.evict_least_used(map, bounded, led, random),
                policy => self.evict_by(map, policy, led, random),
            };
            match evicted {
                Some(bytes) => bounded.lost(bytes),
                // Nothing may be evicted now.
                None => return,
            }
        }
    }

    /// Some partitions, from a random one on, which have keys of a map that may be evicted.
    fn around<'a>(
        &'a self,
        map: MapId,
        led: &'a [PartitionRef],
        random: u64,
    ) -> impl Iterator<Item = (PartitionRef, &'a PartitionHeld)> {
        let first = (random % led.len().max(1) as u64) as usize;
        let places = (0..led.len().min(LOOKED)).map(move |n| led[(first + n) % led.len()]);
        places.filter_map(move |at| {
            let slot = self.slots.get(at).filter(|slot| !slot.still)?;
            let held = slot.held.as_deref()?;
            let may = held.store.count(map) > 0 && self.cx.leads_whole(held);
            may.then_some((at, held))
        })
    }

    /// Evicts the oldest newcomer, or the least used key of a sample. Returns its cost.
    fn evict_least_used(
        &mut self,
        map: MapId,
        bounded: &mut Bounded,
        led: &[PartitionRef],
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
        let (mut seen, mut picks) = (0, random);
        for (at, held) in self.around(map, led, random) {
            picks = picks.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17) ^ random;
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
        map: MapId,
        policy: Eviction,
        led: &[PartitionRef],
        random: u64,
    ) -> Option<usize> {
        let (at, _) = self.around(map, led, random).next()?;
        let held = self.slots.get_mut(at)?.held.as_deref_mut()?;
        let victim = held.store.victim_by(map, policy, random.rotate_left(32))?;
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

impl Context {
    /// An effect was logged.
    #[inline]
    pub(crate) fn bound(
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
