//! Keeps maps within their limits, and clears those that were dropped.

use crate::role::host::Host;
use crate::role::partition::Held;
use crate::role::slots::Slots;
use crate::role::timers::Duty;
use crate::store::map_limits::sketch::Sketch;
use crate::store::map_limits::{Bounded, Led, MapBounds, MapHolds};
use crate::store::{Effect, Undo, Victim};
use crate::value::cause::By;
use crate::value::outcome::Outcome;
use doyen_gossip::Time;
use doyen_placement::{Eviction, KeyspaceId, MapId, PartitionRef};
use std::collections::BTreeMap;
use std::time::Duration;

/// Pause between two steps.
const PAUSE: Duration = Duration::from_millis(1);
/// The most keys that one step evicts, from all maps.
const STEP: usize = 512;
/// About how many partitions one step looks at to count what maps hold.
const COUNTED: usize = 16_384;
/// The most partitions that are looked at for one victim.
const LOOKED: usize = 256;
/// The least used key of this many is a victim.
const SAMPLE: usize = 16;

impl Slots {
    /// Keeps maps within their limits, and clears those that were dropped.
    pub(crate) fn bound_due(&mut self, host: &mut Host, now: Time) {
        if !host.timers.take(Duty::Bound, now) {
            return;
        }
        host.timers.rest(Duty::Bound, now + PAUSE);
        let mut bounds = std::mem::take(&mut host.bounds);
        if bounds.remains {
            bounds.remains = self.clear_dropped(host, &bounds);
        }
        if bounds.bounded().any(|bounded| bounded.stale) {
            self.find_led(&mut bounds);
        }
        let MapBounds { maps, led, .. } = &mut bounds;
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
                self.keep_within(host, *map, bounded, &led.at, &mut left);
                more |= bounded.is_over();
            }
            more |= bounded.stale;
        }
        bounds.bytes = bounds
            .bounded()
            .filter_map(|bounded| bounded.sketch.as_ref())
            .map(Sketch::bytes)
            .sum();
        host.bounds = bounds;
        if more {
            host.timers.want(Duty::Bound);
        }
    }

    /// Looks again at what dropped maps have left: this member may lead other partitions now.
    pub(crate) fn look_for_remains(&mut self, host: &mut Host) {
        host.bounds.remains |= host.bounds.any_dropped;
    }

    /// Counts one map from its keys, and all maps if other partitions are led than before.
    pub(crate) fn look_at_bounds(&mut self, host: &mut Host) {
        if !host.bounds.is_due() {
            return;
        }
        let mut bounds = std::mem::take(&mut host.bounds);
        self.find_led(&mut bounds);
        let count = bounds.bounded().count().max(1);
        bounds.turn = (bounds.turn + 1) % count;
        let turn = bounds.turn;
        let next = bounds.bounded_mut().nth(turn);
        next.into_iter().for_each(|bounded| bounded.stale = true);
        host.bounds = bounds;
        host.timers.want(Duty::Bound);
    }

    /// Finds the partitions that this thread leads. What maps hold there is not known if they are
    /// others than before.
    fn find_led(&self, bounds: &mut MapBounds) {
        let mut led: BTreeMap<KeyspaceId, Led> = BTreeMap::new();
        for bounded in bounds.bounded() {
            led.entry(bounded.keyspace).or_default();
        }
        for slot in self.iter().filter(|slot| slot.installed.is_some()) {
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
    fn clear_dropped(&mut self, host: &mut Host, bounds: &MapBounds) -> bool {
        let mut left = false;
        for slot in self.iter_mut() {
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
            if !held.leads_whole(host) || slot.frozen {
                continue;
            }
            for map in gone {
                let effect = Effect::Clear { map };
                held.log(host, 0, effect, (None, By::UNKNOWN), Outcome::Ok);
            }
            slot.advance(host);
            host.notice(slot);
        }
        left
    }

    /// Counts what this thread holds of a map, and what it may hold.
    fn count_anew(&self, map: MapId, bounded: &mut Bounded, led: &Led) {
        bounded.stale = false;
        bounded.holds = MapHolds::default();
        for at in &led.at {
            let held = self.get(*at).and_then(|slot| slot.held.as_deref());
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
        bounded.may = MapHolds {
            entries: part(bounded.limits.entries),
            bytes: part(bounded.limits.bytes),
        };
    }

    /// Evicts what is too much of a map, so far as one step goes.
    fn keep_within(
        &mut self,
        host: &mut Host,
        map: MapId,
        bounded: &mut Bounded,
        led: &[PartitionRef],
        left: &mut usize,
    ) {
        while bounded.is_over() && *left > 0 {
            *left -= 1;
            let random = host.random();
            let evicted = match bounded.limits.eviction {
                Eviction::Lfu => self.evict_least_used(host, map, bounded, led, random),
                policy => self.evict_by(host, map, policy, led, random),
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
        host: &Host,
        map: MapId,
        led: &'a [PartitionRef],
        random: u64,
    ) -> impl Iterator<Item = (PartitionRef, &'a Held)> {
        let first = (random % led.len().max(1) as u64) as usize;
        let places = (0..led.len().min(LOOKED)).map(move |n| led[(first + n) % led.len()]);
        places.filter_map(move |at| {
            let slot = self.get(at).filter(|slot| !slot.frozen)?;
            let held = slot.held.as_deref()?;
            let may = held.store.count(map) > 0 && held.leads_whole(host);
            may.then_some((at, held))
        })
    }

    /// Evicts the oldest newcomer, or the least used key of a sample. Returns its cost.
    fn evict_least_used(
        &mut self,
        host: &mut Host,
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
            let slot = self.get(at);
            let held = slot.and_then(|slot| slot.held.as_deref());
            if held.is_some_and(|held| held.store.has_order(map, order)) {
                candidate = Some((at, order));
            }
        }
        let mut least: Option<(u64, bool, PartitionRef, u64)> = None;
        let (mut seen, mut picks) = (0, random);
        for (at, held) in self.around(host, map, led, random) {
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
        let held = self.get(at)?.held.as_deref()?;
        let victim = held.store.victim(map, order)?;
        self.evict_from(host, at, victim)
    }

    /// Evicts one key of a map by a policy. Returns its cost.
    fn evict_by(
        &mut self,
        host: &mut Host,
        map: MapId,
        policy: Eviction,
        led: &[PartitionRef],
        random: u64,
    ) -> Option<usize> {
        let (at, _) = self.around(host, map, led, random).next()?;
        let held = self.get_mut(at)?.held.as_deref_mut()?;
        let victim = held.store.victim_by(map, policy, random.rotate_left(32))?;
        self.evict_from(host, at, victim)
    }

    fn evict_from(&mut self, host: &mut Host, at: PartitionRef, victim: Victim) -> Option<usize> {
        let slot = self.get_mut(at)?;
        let bytes = victim.bytes;
        let held = slot.held.as_deref_mut()?;
        held.evict(host, vec![victim]);
        // Without copies, no ack will commit it.
        slot.advance(host);
        host.notice(slot);
        Some(bytes)
    }
}

impl Host {
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
