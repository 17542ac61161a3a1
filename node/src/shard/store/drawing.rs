//! A store that takes over what other stores held, while it is in use: those of partitions that were split or merged.
//!
//! Nothing of them changes any more, so that several can draw from them. Each operation draws the key that it is about before it looks, and the
//! rest is drawn a slice at a time. What was drawn is found here from then on, or among those that are gone:
//! ```text
//!   here ─────────> found, whatever the former ones have: it is newer
//!   gone ─────────> deleted here, though the former ones have it
//!   neither ──────> as in the former ones: it is drawn
//! ```
//! So a key may be drawn in any order, at any time, and at every member in another one.

use super::super::entry::Entry;
use super::super::index::{Index, Seed};
use super::{ByKey, Key, Map, MapId, Store};
use doyen_placement::mutant::{Mutant, broken};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// What is looked at and is not of this partition costs so much less than what is drawn.
const PASSED_BY: usize = 8;
/// Keys that are drawn at once, at least, for a scan.
const SCANNED: usize = 64;

/// What one partition held that is no more.
#[derive(Debug, Clone)]
pub(in super::super) struct Former {
    maps: Vec<(MapId, Arc<Map>)>,
    /// How far its clock is behind that of those who draw from it.
    behind_ms: u64,
}

/// Which keys are drawn.
pub(in super::super) type Belongs = Arc<dyn Fn(MapId, &[u8]) -> bool + Send + Sync>;

/// What of a map is still in former ones.
pub(super) struct Rest {
    /// Each with how far its clock is behind. The first is drawn from first.
    former: VecDeque<(Arc<Map>, u64)>,
    belongs: Belongs,
    /// The last key that was looked at in the first of them.
    after: Option<Key>,
    /// What they have and was deleted since.
    gone: Index<Seed>,
    /// Bytes and keys that are still to come, about: they are in the map's accounts already.
    bytes: usize,
    keys: usize,
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rest")
            .field("former", &self.former)
            .field("after", &self.after)
            .field("gone", &self.gone.len())
            .finish_non_exhaustive()
    }
}

impl Rest {
    /// The entry under a key in former ones, and how far the clock of its deadline is behind.
    fn find(&self, order: u64, key: &[u8]) -> Option<(&Entry, u64)> {
        self.former.iter().find_map(|(map, behind_ms)| Some((map.index.get(order, key)?, *behind_ms)))
    }

    /// About how many keys are to come.
    pub(super) const fn keys(&self) -> usize {
        self.keys
    }

    /// A key is deleted.
    pub(super) fn forget(&mut self, order: u64, key: &[u8]) {
        if let Some((entry, _)) = self.find(order, key).filter(|_| !broken(Mutant::DrawsTheDead)) {
            let entry = entry.clone();
            self.gone.replace(order, entry);
        }
    }

    /// Drops some of what it remembers; what nobody else draws from is given back, to be dropped in slices, too.
    pub(super) fn shed(&mut self, count: usize) -> Option<Map> {
        self.gone.shed(count);
        if !self.gone.is_empty() {
            return None;
        }
        while let Some((former, _)) = self.former.pop_front() {
            if let Some(map) = Arc::into_inner(former) {
                return Some(map);
            }
        }
        None
    }

    /// Whether nothing is left to be dropped.
    pub(super) fn is_shed(&self) -> bool {
        self.gone.is_empty() && self.former.is_empty()
    }
}

impl Map {
    /// Whether a key that is not here is in former ones.
    fn lacks(&self, order: u64, key: &[u8]) -> bool {
        (self.index.get(order, key).is_none() || broken(Mutant::DrawsOver))
            && self.rest.as_ref().is_some_and(|rest| rest.gone.get(order, key).is_none())
    }

    /// Bytes that were to come have come.
    fn came(&mut self, bytes: usize) -> usize {
        let Some(rest) = &mut self.rest else { return 0 };
        let bytes = bytes.min(rest.bytes);
        rest.bytes -= bytes;
        rest.keys = rest.keys.saturating_sub(1);
        self.bytes -= bytes;
        bytes
    }

    /// The entries behind a key, in the order in which another map takes them fastest: that of the keys, where they are sorted, since a set
    /// that grows at its end stays in the caches, and else that of the index.
    fn entries_behind(&self, after: Option<&[u8]>) -> impl Iterator<Item = &Entry> {
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let sorted = self.sorted.as_ref().map(|sorted| sorted.range::<[u8], _>((begin, Bound::Unbounded)).map(|ByKey(entry)| entry));
        let indexed = sorted.is_none().then(|| self.index.iter_after(after));
        sorted.into_iter().flatten().chain(indexed.into_iter().flatten())
    }
}

impl Store {
    /// Everything that it holds, for others to draw from. What is left goes to the garbage.
    pub(in super::super) fn into_former(mut self, behind_ms: u64, garbage: &mut Vec<Map>) -> Former {
        while !self.is_whole() {
            // It is still drawing itself: rare, because whoever does takes writes and is not split or merged before it has all.
            self.draw_some(usize::MAX, garbage);
        }
        let maps = std::mem::take(&mut self.maps).into_iter().map(|(id, map)| (id, Arc::new(map))).collect();
        garbage.extend(self.take());
        Former { maps, behind_ms }
    }

    /// An empty one draws from former ones from now on, beside so many others that have about as much of it.
    pub(in super::super) fn draw_from(mut self, former: &[Former], shared_by: usize, belongs: &Belongs) -> Self {
        for Former { maps, behind_ms } in former {
            for (id, from) in maps {
                let map = self.maps.entry(*id).or_insert_with(|| Map::new(self.seed, self.sorted));
                let rest = map.rest.get_or_insert_with(|| {
                    self.parts += 1;
                    let belongs = belongs.clone();
                    Box::new(Rest { former: VecDeque::new(), belongs, after: None, gone: Index::new(self.seed), bytes: 0, keys: 0 })
                });
                let bytes = from.bytes / shared_by.max(1);
                rest.former.push_back((from.clone(), *behind_ms));
                rest.bytes += bytes;
                rest.keys += from.len() / shared_by.max(1);
                map.bytes += bytes;
                self.bytes += bytes;
            }
        }
        self
    }

    /// Whether nothing is left to be drawn.
    pub(in super::super) const fn is_whole(&self) -> bool {
        self.parts == 0
    }

    /// Whether a map may have any keys.
    pub(in super::super) fn has(&self, map: MapId) -> bool {
        self.maps.get(&map).is_some_and(|map| map.len() > 0 || map.rest.is_some())
    }

    /// Draws a key: from now on it is here, if it is anywhere.
    #[inline]
    pub(in super::super) fn draw(&mut self, map: MapId, order: u64, key: &[u8]) {
        if !self.is_whole() {
            self.draw_key(map, order, key);
        }
    }

    #[cold]
    fn draw_key(&mut self, map: MapId, order: u64, key: &[u8]) {
        let Some(here) = self.maps.get(&map).filter(|here| here.lacks(order, key)) else { return };
        let found = here.rest.as_ref().and_then(|rest| rest.find(order, key)).map(|(entry, behind_ms)| (entry.clone(), behind_ms));
        if let Some((entry, behind_ms)) = found {
            self.draw_in(map, order, entry, behind_ms);
        }
    }

    /// Takes what belongs here of some entries of a former map, and has not been drawn.
    fn draw_all(&mut self, map: MapId, entries: Vec<Entry>, behind_ms: u64) -> usize {
        let Some(belongs) = self.maps.get(&map).and_then(|here| here.rest.as_ref()).map(|rest| rest.belongs.clone()) else { return 0 };
        let mut drawn = 0;
        for entry in entries.into_iter().filter(|entry| belongs(map, entry.key())) {
            let order = self.order(entry.key());
            if self.maps.get(&map).is_some_and(|here| here.lacks(order, entry.key())) {
                self.draw_in(map, order, entry, behind_ms);
                drawn += 1;
            }
        }
        drawn
    }

    fn draw_in(&mut self, map: MapId, order: u64, entry: Entry, behind_ms: u64) {
        if behind_ms > 0 && entry.deadline() != 0 {
            // Nobody else draws it.
            entry.date(entry.deadline().saturating_add(behind_ms), entry.version());
        }
        let bytes = self.cost(&entry);
        self.insert(map, order, entry);
        if let Some(here) = self.maps.get_mut(&map) {
            self.bytes -= here.came(bytes);
        }
    }

    /// Draws about so many entries more; what is drawn from no more goes to the garbage.
    pub(in super::super) fn draw_some(&mut self, count: usize, garbage: &mut Vec<Map>) {
        let mut left = count;
        while left > 0
            && let Some(map) = self.maps.iter().find(|(_, map)| map.rest.is_some()).map(|(id, _)| *id)
        {
            let Some(rest) = self.maps.get_mut(&map).and_then(|here| here.rest.as_mut()) else { return };
            let Some((former, behind_ms)) = rest.former.front().cloned() else {
                self.drawn_up(map, garbage);
                continue;
            };
            let entries: Vec<Entry> = former.entries_behind(rest.after.as_deref()).take(left).cloned().collect();
            drop(former);
            rest.after = entries.last().map(|entry| entry.key().into());
            if rest.after.is_none() {
                garbage.extend(rest.former.pop_front().and_then(|(former, _)| Arc::into_inner(former)));
                continue;
            }
            let looked = entries.len();
            let drawn = self.draw_all(map, entries, behind_ms);
            left = left.saturating_sub(drawn + (looked - drawn) / PASSED_BY + 1);
        }
    }

    /// All of a map is here.
    fn drawn_up(&mut self, map: MapId, garbage: &mut Vec<Map>) {
        let Some(here) = self.maps.get_mut(&map) else { return };
        let Some(rest) = here.rest.take() else { return };
        self.parts -= 1;
        here.bytes -= rest.bytes;
        self.bytes -= rest.bytes;
        if !rest.is_shed() {
            garbage.push(Map { rest: Some(rest), ..Map::new(self.seed, false) });
        }
        if here.index.is_empty() {
            self.maps.remove(&map);
        }
    }

    /// Draws the first keys of a range, or the last ones, about so many. The last of them, if there may be more to be drawn: up to it all are
    /// here.
    pub(in super::super) fn draw_range(&mut self, map: MapId, from: &[u8], to: &[u8], count: usize, reverse: bool) -> Option<Key> {
        let rest = self.maps.get(&map).and_then(|here| here.rest.as_ref())?;
        let mut upto: Option<Key> = None;
        for (former, behind_ms) in rest.former.clone() {
            let mut range = former.range(from, to);
            let next = || if reverse { range.next_back() } else { range.next() };
            let entries: Vec<Entry> = std::iter::from_fn(next).take(count.max(SCANNED)).cloned().collect();
            if let Some(last) = entries.last().filter(|_| entries.len() >= count.max(SCANNED)) {
                let nearer = upto.as_deref().is_none_or(|upto| if reverse { last.key() > upto } else { last.key() < upto });
                upto = if nearer { Some(last.key().into()) } else { upto };
            }
            self.draw_all(map, entries, behind_ms);
        }
        upto
    }

    /// Draws the keys of some places from one on, where a place is what is left of an order after a shift. The last of them, if there may
    /// be more: up to it all are here.
    pub(in super::super) fn draw_places(&mut self, map: MapId, from: u64, shift: u32, count: usize) -> Option<u64> {
        let rest = self.maps.get(&map).and_then(|here| here.rest.as_ref())?;
        let mut upto: Option<u64> = None;
        for (former, behind_ms) in rest.former.clone() {
            let mut entries: Vec<Entry> = Vec::new();
            let mut last = None;
            for entry in former.index.iter_from(from << shift) {
                let place = self.order(entry.key()) >> shift;
                // Keys of one place come together.
                if entries.len() >= count.max(SCANNED) && last != Some(place) {
                    upto = Some(upto.map_or(place - 1, |upto| upto.min(place - 1)));
                    break;
                }
                last = Some(place);
                entries.push(entry.clone());
            }
            self.draw_all(map, entries, behind_ms);
        }
        upto
    }

    /// What is still to be drawn, as it will be: for inspection only.
    pub(super) fn undrawn(&self) -> impl Iterator<Item = (MapId, Entry)> {
        self.maps.iter().filter_map(|(id, here)| Some((*id, here, here.rest.as_ref()?))).flat_map(move |(id, here, rest)| {
            let all = rest.former.iter().flat_map(|(former, behind_ms)| former.index.iter_from(0).map(|entry| (entry, *behind_ms)));
            let lacking = all.filter(move |(entry, _)| here.lacks(self.order(entry.key()), entry.key()) && (rest.belongs)(id, entry.key()));
            lacking.map(move |(entry, behind_ms)| {
                let entry = entry.copy();
                let deadline = if entry.deadline() == 0 { 0 } else { entry.deadline().saturating_add(behind_ms) };
                entry.date(deadline, entry.version());
                (id, entry)
            })
        })
    }
}
