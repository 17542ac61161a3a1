//! Chooses the keys to evict when memory is full.
//!
//! *lru* is CLOCK, a hand that goes round the keys in the order of the index:
//! ```text
//!   hand ─> used since it came by ── unmarked, passed ─> not used ── a victim ─> ...
//! ```
//! A read or a write marks the entry of its key, with a bit that the entry has anyway. A queue in
//! the order of use would move a key at every read, and cost two pointers a key.
//!
//! *random* takes the keys after a random place. *ttl* takes the keys that expire first. Deadlines
//! are sorted, but each map has its own, so it looks at some maps at a time.
//!
//! Scripts that clients loaded ([`SCRIPTS`]) are never evicted: a client that loads one relies on
//! it.

use super::contents::Store;

use super::map::{ByKey, StoredMap};
use super::maps::AllMaps;
use crate::value::entry::{Entry, Key};
use doyen_placement::Eviction;
use doyen_placement::MapId;

/// The map of the scripts that clients loaded, in the keyspace `default`. Its keys are never
/// evicted. The databases have the numbers above.
pub const SCRIPTS: MapId = MapId(u32::MAX - MapId::DATABASES);

/// Entries that the hand looks at for each wanted victim, and in addition to those.
const LOOKS_EACH: usize = 4;
const LOOKS_MORE: usize = 16;
/// The same if something must be evicted. It is more, because a key that is passed twice in a row
/// would have had no second chance.
const LOOKS_URGENT: usize = 512;
/// Maps that are looked at for one pick. There may be thousands.
const MAPS_LOOKED: usize = 16;

/// Most bytes of evicted keys that writes may still take, in one partition.
const SURPLUS_BYTES_MAX: usize = 16 << 10;

/// The position of the hand: before the first key of this map with this order or a later one.
pub(super) type Hand = (MapId, u64);

/// How much to evict: at most `keys`, and no more once `bytes` are reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EvictionQuota {
    pub(crate) keys: usize,
    pub(crate) bytes: usize,
    /// Whether something must be evicted even if all keys that the hand sees were used: it goes
    /// over the same keys once more.
    pub(crate) urgent: bool,
}

/// A key to evict.
#[derive(Debug)]
pub(crate) struct Victim {
    pub(crate) map: MapId,
    pub(crate) order: u64,
    pub(crate) key: Key,
    /// Its cost.
    pub(crate) bytes: usize,
}

/// The keys that were picked so far.
struct Picked {
    wanted: EvictionQuota,
    bytes: usize,
    victims: Vec<Victim>,
}

impl Picked {
    fn is_enough(&self) -> bool {
        self.victims.len() >= self.wanted.keys || self.bytes >= self.wanted.bytes
    }

    fn add(&mut self, store: &AllMaps, map: MapId, entry: &Entry) {
        let victim = store.victim_of(map, entry);
        self.bytes += victim.bytes;
        self.victims.push(victim);
    }
}

impl Store {
    /// Picks keys by a policy, except the one that is kept. `random` is a new random number for
    /// each pick.
    pub(crate) fn victims(
        &mut self,
        policy: Eviction,
        wanted: EvictionQuota,
        random: u64,
        kept: Option<(MapId, &[u8])>,
    ) -> Vec<Victim> {
        let mut picked = Picked {
            wanted,
            bytes: 0,
            victims: Vec::new(),
        };
        match policy {
            // Keyspaces do not evict by frequency.
            Eviction::None | Eviction::Lfu => {}
            Eviction::Lru => {
                let began = self.hand;
                self.sweep(&mut picked, kept);
                if wanted.urgent && picked.victims.is_empty() {
                    // These keys had their second chance.
                    self.hand = began;
                    self.sweep(&mut picked, kept);
                }
            }
            Eviction::Random => {
                let place = self.place(random);
                for (map, entry) in self
                    .round(place)
                    .filter(|(map, entry)| Some((*map, entry.key())) != kept)
                {
                    if picked.is_enough() {
                        break;
                    }
                    picked.add(self, map, entry);
                }
            }
            Eviction::Ttl => self.soonest(&mut picked, kept),
        }
        picked.victims
    }

    /// Whether earlier writes have evicted enough for a write of `bytes`, which takes it. An
    /// evicted key may be much larger than the write for which it goes. If values of another size
    /// cannot take its place, that memory is free only after compaction; meanwhile, further
    /// deletions would not help.
    pub(crate) const fn takes_surplus(&mut self, bytes: usize) -> bool {
        let enough = self.surplus >= bytes;
        if enough {
            self.surplus -= bytes;
        }
        enough
    }

    /// Keys that had `freed` bytes were evicted for a write of `bytes`.
    pub(crate) fn leaves_surplus(&mut self, freed: usize, bytes: usize) {
        let surplus = self.surplus.saturating_add(freed).saturating_sub(bytes);
        self.surplus = surplus.min(SURPLUS_BYTES_MAX);
    }

    /// Picks a key of one map by a policy, as [`Store::victims`] does among all maps. If no key
    /// expires, *ttl* picks at random.
    pub(crate) fn victim_by(
        &mut self,
        map: MapId,
        policy: Eviction,
        random: u64,
    ) -> Option<Victim> {
        let of = self.maps.all.get(&map)?;
        let (entry, hand) = match policy {
            Eviction::None | Eviction::Lfu => return None,
            Eviction::Lru => {
                let mut last = None;
                let looked = of.round(of.hand).take(LOOKS_URGENT);
                let unused = looked
                    .inspect(|entry| last = Some(*entry))
                    .find(|entry| !entry.take_mark());
                // If all of them were used, the first of them had its second chance.
                let entry = unused.or_else(|| of.round(of.hand).next());
                let hand = last.map(|entry| self.order(entry.key()).wrapping_add(1));
                (entry, hand)
            }
            Eviction::Ttl if !of.expiring.is_empty() => {
                (of.expiring.first().map(|(_, ByKey(entry))| entry), None)
            }
            Eviction::Ttl | Eviction::Random => (of.round(random).next(), None),
        };
        let victim = self.victim_of(map, entry?);
        if let (Some(hand), Some(of)) = (hand, self.maps.all.get_mut(&map)) {
            of.hand = hand;
        }
        Some(victim)
    }

    /// Moves the hand until it has found enough, or looked at enough.
    fn sweep(&mut self, picked: &mut Picked, kept: Option<(MapId, &[u8])>) {
        let mut last = None;
        let looks = if picked.wanted.urgent {
            LOOKS_URGENT
        } else {
            picked.wanted.keys * LOOKS_EACH + LOOKS_MORE
        };
        for (map, entry) in self.round(self.hand).take(looks) {
            if picked.is_enough() {
                break;
            }
            last = Some((map, entry));
            if Some((map, entry.key())) != kept && !entry.take_mark() {
                picked.add(self, map, entry);
            }
        }
        if let Some((map, entry)) = last {
            // Keys with equal orders are as rare as collisions of 64-bit hashes.
            self.hand = match self.order(entry.key()).checked_add(1) {
                Some(order) => (map, order),
                None => (MapId(map.0.wrapping_add(1)), 0),
            };
        }
    }

    /// The keys that expire first in some maps, from the hand's map on.
    fn soonest(&mut self, picked: &mut Picked, kept: Option<(MapId, &[u8])>) {
        let maps = self.maps.all.len();
        let first = self
            .maps
            .all
            .iter()
            .position(|(id, _)| *id >= self.hand.0)
            .unwrap_or(0);
        let mut found = Vec::new();
        let (mut looked, mut passed) = (0, 0);
        while passed < maps && looked < MAPS_LOOKED {
            if let Some((id, map)) = self.maps.all.get_indexed((first + passed) % maps)
                && *id != SCRIPTS
            {
                looked += usize::from(!map.expiring.is_empty());
                let others = map
                    .expiring
                    .iter()
                    .filter(|(_, ByKey(entry))| Some((*id, entry.key())) != kept);
                found.extend(
                    others
                        .take(picked.wanted.keys)
                        .map(|(deadline, ByKey(entry))| (*deadline, *id, entry)),
                );
            }
            passed += 1;
        }
        found.sort_by_key(|(deadline, ..)| *deadline);
        for (_, map, entry) in found {
            if picked.is_enough() {
                break;
            }
            picked.add(self, map, entry);
        }
        if passed < maps
            && let Some((id, _)) = self.maps.all.get_indexed((first + passed) % maps)
        {
            self.hand.0 = *id;
        }
    }
}

impl AllMaps {
    /// How many keys this policy may evict.
    pub(crate) fn evictable(&self, policy: Eviction) -> usize {
        match policy {
            Eviction::None | Eviction::Lfu => 0,
            Eviction::Lru | Eviction::Random => self.evicted().map(|(_, map)| map.len()).sum(),
            Eviction::Ttl => self.evicted().map(|(_, map)| map.expiring.len()).sum(),
        }
    }

    /// The maps whose keys may be evicted.
    fn evicted(&self) -> impl Iterator<Item = (&MapId, &StoredMap)> {
        self.all.iter().filter(|(id, _)| **id != SCRIPTS)
    }

    /// The key of a map with this order, to evict it.
    pub(crate) fn victim(&self, map: MapId, order: u64) -> Option<Victim> {
        Some(self.victim_of(map, self.of_order(map, order)?))
    }

    fn victim_of(&self, map: MapId, entry: &Entry) -> Victim {
        let order = self.order(entry.key());
        let table = self.found(map, order, entry.key()).table;
        Victim {
            map,
            order,
            key: entry.key().into(),
            bytes: self.cost(entry) + table.map_or(0, StoredMap::table_cost),
        }
    }

    /// Whether a map has a key with this order.
    pub(crate) fn has_order(&self, map: MapId, order: u64) -> bool {
        self.of_order(map, order).is_some()
    }

    fn of_order(&self, map: MapId, order: u64) -> Option<&Entry> {
        let entry = self.all.get(&map)?.index.iter_from(order).next()?;
        (self.order(entry.key()) == order).then_some(entry)
    }

    /// The orders of the keys of a map, beginning with this one or the next, and whether each was
    /// used since it was in a sample before.
    pub(crate) fn sample(&self, map: MapId, order: u64) -> impl Iterator<Item = (u64, bool)> {
        let all = self.all.get(&map).into_iter();
        all.flat_map(move |map| map.round(order))
            .map(|entry| (self.order(entry.key()), entry.take_mark()))
    }

    /// All entries once, starting at a place.
    fn round(&self, (first, order): Hand) -> impl Iterator<Item = (MapId, &Entry)> {
        let all = self.evicted().map(|(_, map)| map.len()).sum();
        let behind = self.evicted().filter(move |(id, _)| **id >= first);
        let behind = behind.flat_map(move |(id, map)| {
            map.index
                .iter_from(if *id == first { order } else { 0 })
                .map(|entry| (*id, entry))
        });
        let before = self
            .evicted()
            .flat_map(|(id, map)| map.index.iter_from(0).map(|entry| (*id, entry)));
        behind.chain(before).take(all)
    }

    /// A random place: a map, in proportion to its keys, and a place in its order.
    fn place(&self, random: u64) -> Hand {
        let maps = self.all.len();
        let first = (random % maps.max(1) as u64) as usize;
        let looked = || {
            (0..maps.min(MAPS_LOOKED))
                .filter_map(|n| self.all.get_indexed((first + n) % maps))
                .filter(|(id, _)| **id != SCRIPTS)
        };
        let all: usize = looked().map(|(_, map)| map.len()).sum();
        // Other bits of the number than those for the order.
        let mut nth = (random.rotate_left(32) % all.max(1) as u64) as usize;
        for (id, map) in looked() {
            if nth < map.len() {
                return (*id, random);
            }
            nth -= map.len();
        }
        (MapId(0), random)
    }
}

impl StoredMap {
    /// All entries once, starting at a place.
    fn round(&self, order: u64) -> impl Iterator<Item = &Entry> {
        let (behind, before) = (self.index.iter_from(order), self.index.iter_from(0));
        behind.chain(before).take(self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Before, Effect};
    use super::*;
    use doyen_placement::OrderKey;

    const MAP: MapId = MapId(0);

    fn put(store: &mut Store, map: MapId, key: &str, deadline: u64) {
        store.apply(
            1,
            &Effect::Put {
                map,
                entry: Entry::new(key.as_bytes(), b"value", 0, 0),
                deadline,
                before: Before::Value,
            },
        );
    }

    fn filled(keys: usize) -> Store {
        let mut store = Store::new(OrderKey(7));
        (0..keys).for_each(|n| put(&mut store, MapId(n as u32 % 3), &format!("k{n}"), 0));
        store
    }

    const fn keys(keys: usize) -> EvictionQuota {
        EvictionQuota {
            keys,
            bytes: usize::MAX,
            urgent: false,
        }
    }

    fn evict(
        store: &mut Store,
        policy: Eviction,
        wanted: EvictionQuota,
        random: u64,
        kept: Option<(MapId, &[u8])>,
    ) -> Vec<(MapId, String)> {
        let victims = store.victims(policy, wanted, random, kept);
        for victim in &victims {
            assert_eq!(store.order(&victim.key), victim.order);
            let before = store.bytes();
            store.apply(
                2,
                &Effect::Delete {
                    map: victim.map,
                    key: victim.key.clone(),
                    cause: crate::Cause::Command,
                },
            );
            assert_eq!(before - store.bytes(), victim.bytes, "each was there, once");
        }
        victims
            .into_iter()
            .map(|v| (v.map, String::from_utf8_lossy(&v.key).into_owned()))
            .collect()
    }

    #[test]
    fn the_hand_passes_used_keys_once() {
        let mut store = filled(300);
        assert!(
            evict(&mut store, Eviction::Lru, keys(1), 0, None).is_empty(),
            "all were written just now"
        );
        assert!(
            store
                .following(&None)
                .filter(|piece| piece.entry.take_mark())
                .count()
                > 200
        );
        let used: Vec<String> = (0..300).step_by(2).map(|n| format!("k{n}")).collect();
        store
            .following(&None)
            .map(|piece| piece.entry)
            .filter(|e| used.iter().any(|k| k.as_bytes() == e.key()))
            .for_each(Entry::mark);
        let mut gone = Vec::new();
        while gone.len() < 100 {
            gone.extend(evict(&mut store, Eviction::Lru, keys(7), 0, None));
        }
        assert!(gone.iter().all(|(_, key)| !used.contains(key)), "{gone:?}");
        while store.evictable(Eviction::Lru) > 0 {
            evict(&mut store, Eviction::Lru, keys(7), 0, None);
        }
    }

    #[test]
    fn loaded_scripts_are_never_evicted() {
        for policy in [Eviction::Lru, Eviction::Random, Eviction::Ttl] {
            let mut store = Store::new(OrderKey(7));
            for n in 0..50 {
                put(&mut store, SCRIPTS, &format!("s{n}"), 1);
                put(&mut store, MapId(u32::MAX), &format!("k{n}"), 2);
                put(&mut store, MAP, &format!("k{n}"), 3);
            }
            assert_eq!(store.evictable(policy), 100);
            let mut gone = 0;
            for random in 0..1_000_u64 {
                let random = random.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                for (map, _) in evict(&mut store, policy, keys(4), random, None) {
                    assert_ne!(map, SCRIPTS);
                    gone += 1;
                }
            }
            assert_eq!((gone, store.evictable(policy)), (100, 0), "{policy:?}");
        }
    }

    #[test]
    fn an_urgent_sweep_finds_a_victim_among_used_keys() {
        let mut store = filled(300);
        let wanted = EvictionQuota {
            urgent: true,
            ..keys(2)
        };
        assert_eq!(evict(&mut store, Eviction::Lru, wanted, 0, None).len(), 2);
        let mut one = filled(1);
        assert!(
            evict(&mut one, Eviction::Lru, wanted, 0, Some((MAP, b"k0"))).is_empty(),
            "except the key that is kept"
        );
        assert_eq!(
            evict(&mut one, Eviction::Lru, wanted, 0, None),
            [(MAP, "k0".to_owned())]
        );
        assert!(evict(&mut one, Eviction::Lru, wanted, 0, None).is_empty());
    }

    #[test]
    fn random_picks_any_key_and_in_the_end_the_last_one() {
        let mut store = filled(300);
        let mut random = 1_u64;
        let mut draw = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            random
        };
        let mut of = [0; 3];
        for left in (1..=300).rev() {
            assert_eq!(store.evictable(Eviction::Random), left);
            let gone = evict(&mut store, Eviction::Random, keys(1), draw(), None);
            assert_eq!(gone.len(), 1);
            if left > 200 {
                of[gone[0].0.0 as usize] += 1;
            }
        }
        assert!(of.iter().all(|count| (15..=55).contains(count)), "{of:?}");
        assert!(evict(&mut store, Eviction::Random, keys(1), draw(), None).is_empty());
    }

    #[test]
    fn ttl_picks_only_keys_that_expire_earliest_first() {
        let mut store = filled(100);
        for n in 0..50_u64 {
            put(
                &mut store,
                MapId(n as u32 % 3),
                &format!("t{n:02}"),
                1 + (n * 7) % 50,
            );
        }
        assert_eq!(store.evictable(Eviction::Ttl), 50);
        let mut gone = Vec::new();
        loop {
            let some = evict(
                &mut store,
                Eviction::Ttl,
                keys(4),
                0,
                Some((MapId(0), b"t00")),
            );
            if some.is_empty() {
                break;
            }
            gone.extend(some);
        }
        let mut expected: Vec<u64> = (1..50).collect();
        expected.sort_by_key(|n| n * 7 % 50);
        assert_eq!(
            gone.iter().map(|(_, key)| key.clone()).collect::<Vec<_>>(),
            expected
                .iter()
                .map(|n| format!("t{n:02}"))
                .collect::<Vec<_>>()
        );
        assert_eq!(
            store.keys(),
            101,
            "those that stay, and the one that was kept"
        );
    }

    #[test]
    fn ttl_gives_every_map_its_turn() {
        let mut store = Store::new(OrderKey(7));
        (0..100).for_each(|n| put(&mut store, MapId(n), "k", 1 + u64::from(n)));
        let mut gone = 0;
        for _ in 0..100 {
            gone += evict(&mut store, Eviction::Ttl, keys(1), 0, None).len();
        }
        assert_eq!((gone, store.keys()), (100, 0));
    }

    #[test]
    fn no_more_victims_are_picked_than_wanted() {
        let mut store = filled(300);
        let one = store.victims(Eviction::Random, keys(1), 5, None)[0].bytes;
        for policy in [Eviction::Random, Eviction::Lru] {
            let wanted = EvictionQuota {
                keys: 16,
                bytes: 5 * one / 2,
                urgent: true,
            };
            assert_eq!(
                store.victims(policy, wanted, 5, None).len(),
                3,
                "{policy:?}"
            );
        }
        assert!(store.victims(Eviction::None, keys(16), 5, None).is_empty());
    }
}
