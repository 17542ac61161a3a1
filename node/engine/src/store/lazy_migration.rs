//! A store that takes over the contents of other stores while it is in use: the stores of
//! partitions that were split or merged.
//!
//! The former stores do not change any more, so several can migrate from them. Each operation
//! migrates its key before it looks it up. The rest is migrated a slice at a time. From then on, a
//! key that was migrated is found here, or among the keys that are gone:
//! ```text
//!   here ─────────> found: it is newer than in the former stores
//!   gone ─────────> deleted here, though a former store has it
//!   neither ──────> as in the former stores: it is migrated
//! ```
//! So keys may be migrated in any order, at any time, and differently at every member. If a
//! partition that is migrating is itself split or merged, the new ones migrate from it as it is:
//! first from what is there, and then from what it would have migrated, except for keys that are
//! gone there.

use super::contents::Store;
use super::key_tables::KeyTables;
use super::map::{ByKey, StoredMap};
use super::maps::AllMaps;
use crate::mutant::{self, broken};
use crate::store::index::Index;
use crate::value::dated;
use crate::value::deadline;
use crate::value::entry::{Entry, Key};
use doyen_placement::MapId;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

/// A key that is looked at and does not belong here costs this many times less than one that is
/// migrated.
const PASSED_BY: usize = 8;
/// What a map costs besides its keys. There may be thousands of maps, most of them empty.
const PER_MAP: usize = 64;
/// Least number of keys that are migrated at once for a scan.
const SCANNED: usize = 64;

/// Decides which keys are migrated.
pub(crate) trait Portion: fmt::Debug + Send + Sync {
    /// Whether this key is migrated.
    fn holds(&self, map: MapId, key: &[u8]) -> bool;

    /// The keys of a map lie from one key up to, but not including, another. An empty end means
    /// none. `None`: there are no keys.
    fn span(&self, _map: MapId) -> Option<(&[u8], &[u8])> {
        Some((&[], &[]))
    }
}

/// The contents of a former partition.
#[derive(Debug, Clone)]
pub(crate) struct ParentContents {
    maps: Vec<(MapId, Arc<StoredMap>, ParentTables)>,
    /// How far its clock is behind the clock of the stores that migrate from it.
    behind_ms: u64,
}

/// The tables of a former map. They are not shared: who migrates the entry of one takes it.
type ParentTables = Arc<Mutex<KeyTables<StoredMap>>>;

/// A former map.
#[derive(Debug, Clone)]
struct InheritedMap {
    map: Arc<StoredMap>,
    tables: ParentTables,
    /// How far the clock of its deadlines is behind.
    behind_ms: u64,
    /// Whether all of it was migrated. Then only its gone keys count.
    migrated: bool,
}

impl InheritedMap {
    fn get(&self, order: u64, key: &[u8]) -> Option<&Entry> {
        self.map.index.get(order, key).filter(|_| !self.migrated)
    }

    /// The table of an entry that is migrated.
    fn take_table(&self, entry: &Entry) -> Option<StoredMap> {
        if !entry.is_table() {
            return None;
        }
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, mut table) = tables.take(self.map.index.order(entry.key()), entry.key())?;
        table.lose_cursors();
        Some(table)
    }

    /// The map with what was not migrated of its tables, if no other store shares it.
    fn into_map(self) -> Option<StoredMap> {
        let mut map = Arc::into_inner(self.map)?;
        if let Some(tables) = Arc::into_inner(self.tables) {
            map.tables = tables.into_inner().unwrap_or_else(PoisonError::into_inner);
        }
        Some(map)
    }
}

/// The keys of a map that are still in former stores.
#[derive(Debug)]
pub(super) struct MigrationRest {
    /// Former maps, in the order of migrating. A key that an earlier one has, or that is gone
    /// there, hides the key in later ones.
    layers: Vec<InheritedMap>,
    portion: Arc<dyn Portion>,
    /// The last key that was looked at in the first map that is not all migrated.
    after: Option<Key>,
    /// Keys of former maps that were deleted since.
    gone: Index,
    /// About how many bytes and keys are still to be migrated. They are in the map's accounts
    /// already.
    bytes: usize,
    keys: usize,
}

impl MigrationRest {
    /// The entry of a key in former maps, and the layer that has it.
    fn find(&self, order: u64, key: &[u8]) -> Option<(&Entry, &InheritedMap)> {
        for layer in &self.layers {
            match layer.get(order, key) {
                Some(entry) => return Some((entry, layer)),
                None if layer.map.is_gone(order, key) => return None,
                None => {}
            }
        }
        None
    }

    /// Whether a layer's entry of a key does not count, because an earlier layer has the key, or it
    /// is gone there.
    fn is_hidden(&self, layer: usize, order: u64, key: &[u8]) -> bool {
        self.layers
            .iter()
            .take(layer)
            .any(|earlier| earlier.get(order, key).is_some() || earlier.map.is_gone(order, key))
    }

    /// The former maps that are not all migrated, with the numbers of their layers.
    fn unmigrated(&self) -> Vec<(usize, Arc<StoredMap>)> {
        let layers = self.layers.iter().enumerate();
        let layers = layers.filter(|(_, layer)| !layer.migrated);
        layers.map(|(at, layer)| (at, layer.map.clone())).collect()
    }

    /// About how many keys are still to be migrated.
    pub(super) const fn keys(&self) -> usize {
        self.keys
    }

    /// A key is deleted.
    pub(super) fn forget(&mut self, order: u64, key: &[u8]) {
        if let Some((entry, _)) = self
            .find(order, key)
            .filter(|_| !broken(&mutant::DRAWS_THE_DEAD))
        {
            let entry = entry.clone();
            self.gone.replace(order, entry);
        }
    }

    /// Drops some of its gone keys. Returns whether any are left.
    pub(super) fn shed(&mut self, count: usize) -> bool {
        self.gone.shed(count);
        !self.gone.is_empty()
    }
}

impl StoredMap {
    fn is_gone(&self, order: u64, key: &[u8]) -> bool {
        self.rest
            .as_ref()
            .is_some_and(|rest| rest.gone.get(order, key).is_some())
    }

    /// Whether a key that is not here may be in former maps.
    fn lacks(&self, order: u64, key: &[u8]) -> bool {
        (self.index.get(order, key).is_none() || broken(&mutant::DRAWS_OVER))
            && self.rest.is_some()
            && !self.is_gone(order, key)
    }

    /// A key was migrated, with `bytes`.
    fn came(&mut self, bytes: usize) -> usize {
        let Some(rest) = &mut self.rest else { return 0 };
        let bytes = bytes.min(rest.bytes);
        rest.bytes -= bytes;
        rest.keys = rest.keys.saturating_sub(1);
        self.bytes -= bytes;
        bytes
    }

    /// The entries of a span after a key, in the order in which another map takes them fastest. If
    /// keys are sorted, that is their order, because a set that grows at its end stays in the
    /// caches. Otherwise it is the order of the index, for every span.
    fn entries_behind<'a>(
        &'a self,
        after: Option<&'a [u8]>,
        (from, to): (&'a [u8], &'a [u8]),
    ) -> impl Iterator<Item = &'a Entry> {
        let begin = after.map_or(Bound::Included(from), Bound::Excluded);
        let end = if to.is_empty() {
            Bound::Unbounded
        } else {
            Bound::Excluded(to)
        };
        // The range of a set panics if its end is before its beginning.
        let some = to.is_empty() || after.map_or(from < to, |after| after < to);
        let sorted = self.sorted.as_ref().filter(|_| some);
        let sorted = sorted.map(|sorted| {
            sorted
                .range::<[u8], _>((begin, end))
                .map(|ByKey(entry)| entry)
        });
        let indexed = self.sorted.is_none().then(|| self.index.iter_after(after));
        sorted
            .into_iter()
            .flatten()
            .chain(indexed.into_iter().flatten())
    }

    /// The former stores, if no other store shares them: they are dropped in slices, too.
    pub(crate) fn into_former(self) -> impl Iterator<Item = Self> {
        self.rest
            .into_iter()
            .flat_map(|rest| rest.layers)
            .filter_map(InheritedMap::into_map)
    }
}

impl Store {
    /// Takes its contents for others to migrate from. The rest goes to the garbage.
    pub(crate) fn into_former(
        mut self,
        behind_ms: u64,
        garbage: &mut Vec<StoredMap>,
    ) -> ParentContents {
        let maps = std::mem::take(&mut self.maps.all)
            .into_iter()
            .map(|(id, mut map)| {
                let tables = std::mem::take(&mut map.tables);
                (id, Arc::new(map), Arc::new(Mutex::new(tables)))
            })
            .collect();
        garbage.extend(self.take());
        ParentContents { maps, behind_ms }
    }

    /// Lets an empty store migrate from former ones from now on. Each of `shared_by` stores
    /// migrates about the same share of them.
    pub(crate) fn migrate_from(
        mut self,
        former: &[ParentContents],
        shared_by: usize,
        portion: &Arc<dyn Portion>,
    ) -> Self {
        for ParentContents { maps, behind_ms } in former {
            for (id, from, tables) in maps {
                let map = self
                    .maps
                    .all
                    .entry(*id)
                    .or_insert_with(|| StoredMap::new(self.maps.seed, self.maps.sorted));
                let rest = map.rest.get_or_insert_with(|| {
                    self.maps.parts += 1;
                    let (portion, gone) = (portion.clone(), Index::new(self.maps.seed));
                    Box::new(MigrationRest {
                        layers: Vec::new(),
                        portion,
                        after: None,
                        gone,
                        bytes: 0,
                        keys: 0,
                    })
                });
                rest.layers.push(InheritedMap {
                    map: from.clone(),
                    tables: tables.clone(),
                    behind_ms: *behind_ms,
                    migrated: false,
                });
                let bytes = from.bytes / shared_by.max(1);
                rest.bytes += bytes;
                rest.keys += from.len() / shared_by.max(1);
                if let Some(before) = &from.rest {
                    let behind = |layer: &InheritedMap| InheritedMap {
                        behind_ms: layer.behind_ms.saturating_add(*behind_ms),
                        ..layer.clone()
                    };
                    rest.layers.extend(before.layers.iter().map(behind));
                    rest.keys += before.keys / shared_by.max(1);
                }
                map.bytes += bytes;
                self.maps.bytes += bytes;
            }
        }
        self
    }

    /// Migrates a key: from now on it is here, if it exists.
    #[inline]
    pub(crate) fn migrate(&mut self, map: MapId, order: u64, key: &[u8]) {
        if !self.is_whole() {
            self.migrate_key(map, order, key);
        }
    }

    #[cold]
    fn migrate_key(&mut self, map: MapId, order: u64, key: &[u8]) {
        let here = self.maps.all.get(&map);
        if let Some(here) = here.filter(|here| here.lacks(order, key))
            && let Some((entry, layer)) = here.rest.as_ref().and_then(|r| r.find(order, key))
        {
            let (entry, table) = (entry.clone(), layer.take_table(entry));
            let behind_ms = layer.behind_ms;
            self.migrate_layer((map, order), entry, table, behind_ms);
        }
    }

    /// Migrates the entries of a layer that belong here and have not been migrated.
    fn migrate_all(&mut self, map: MapId, entries: Vec<Entry>, layer: usize) -> usize {
        let Some(rest) = self.maps.rest(map) else {
            return 0;
        };
        let Some(from) = rest.layers.get(layer).cloned() else {
            return 0;
        };
        let (portion, mut migrated) = (rest.portion.clone(), 0);
        let mut entries = entries;
        entries.retain(|entry| portion.holds(map, entry.key()));
        for entry in entries {
            let order = self.order(entry.key());
            let lacks = |here: &StoredMap| {
                let hidden = |rest: &MigrationRest| rest.is_hidden(layer, order, entry.key());
                here.lacks(order, entry.key()) && !here.rest.as_deref().is_none_or(hidden)
            };
            if self.maps.all.get(&map).is_some_and(lacks) {
                let table = from.take_table(&entry);
                self.migrate_layer((map, order), entry, table, from.behind_ms);
                migrated += 1;
            }
        }
        migrated
    }

    fn migrate_layer(
        &mut self,
        (map, order): (MapId, u64),
        entry: Entry,
        table: Option<StoredMap>,
        behind_ms: u64,
    ) {
        let bytes = self.cost(&entry) + table.as_ref().map_or(0, StoredMap::table_cost);
        let entry = on_clock_ahead(entry, behind_ms);
        let mut table = table;
        if behind_ms > 0
            && let Some(table) = &mut table
        {
            table.move_deadlines(behind_ms);
        }
        let key = table.as_ref().map(|_| Key::from(entry.key()));
        self.insert(map, order, entry);
        if let Some(here) = self.maps.all.get_mut(&map) {
            if let Some((key, table)) = key.zip(table) {
                let before = here.bytes;
                here.put_table(order, key, table);
                self.maps.bytes = self.maps.bytes + here.bytes - before;
            }
            self.maps.bytes -= here.came(bytes);
        }
    }

    /// Migrates about `count` more entries. Former maps that are all migrated go to the garbage.
    pub(crate) fn migrate_some(&mut self, count: usize, garbage: &mut Vec<StoredMap>) {
        let mut left = count;
        while left > 0 {
            let mut maps = self.maps.all.iter_mut();
            let Some((map, rest)) = maps.find_map(|(id, map)| Some((*id, map.rest.as_mut()?)))
            else {
                return;
            };
            let Some(number) = rest.layers.iter().position(|layer| !layer.migrated) else {
                self.migrated_whole(map, garbage);
                left = left.saturating_sub(PER_MAP);
                continue;
            };
            let former = rest.layers[number].map.clone();
            let portion = rest.portion.clone();
            let span = portion.span(map);
            let entries = span.map(|span| {
                former
                    .entries_behind(rest.after.as_deref(), span)
                    .take(left)
                    .cloned()
                    .collect()
            });
            let entries: Vec<Entry> = entries.unwrap_or_default();
            drop(former);
            rest.after = entries.last().map(|entry| entry.key().into());
            if rest.after.is_none() {
                if rest.layers[number].map.rest.is_some() {
                    rest.layers[number].migrated = true;
                } else {
                    garbage.extend(rest.layers.remove(number).into_map());
                }
                continue;
            }
            let looked = entries.len();
            let migrated = self.migrate_all(map, entries, number);
            left = left.saturating_sub(migrated + (looked - migrated) / PASSED_BY + 1);
        }
    }

    /// All keys of a map are here.
    fn migrated_whole(&mut self, map: MapId, garbage: &mut Vec<StoredMap>) {
        let Some(here) = self.maps.all.get_mut(&map) else {
            return;
        };
        let Some(rest) = here.rest.take() else { return };
        self.maps.parts -= 1;
        here.bytes -= rest.bytes;
        self.maps.bytes -= rest.bytes;
        garbage.push(StoredMap {
            rest: Some(rest),
            ..StoredMap::new(self.maps.seed, false)
        });
        if here.index.is_empty() {
            self.maps.all.remove(&map);
        }
    }

    /// Migrates about `count` of the first keys of a range, or of the last ones. Returns the last
    /// of them if more may be left: up to it, all keys are here.
    pub(crate) fn migrate_range(
        &mut self,
        map: MapId,
        from: &[u8],
        to: &[u8],
        count: usize,
        reverse: bool,
    ) -> Option<Key> {
        let rest = self.maps.rest(map)?;
        let (portion, layers) = (rest.portion.clone(), rest.unmigrated());
        // Keys outside of the portion belong to other partitions, however many they are.
        let (first, end) = portion.span(map)?;
        let from = from.max(first);
        let to = if to.is_empty() || (!end.is_empty() && end < to) {
            end
        } else {
            to
        };
        let mut upto: Option<Key> = None;
        for (number, former) in layers {
            let mut range = former.range(from, to);
            let next = || {
                if reverse {
                    range.next_back()
                } else {
                    range.next()
                }
            };
            let entries: Vec<Entry> = std::iter::from_fn(next)
                .take(count.max(SCANNED))
                .cloned()
                .collect();
            if let Some(last) = entries
                .last()
                .filter(|_| entries.len() >= count.max(SCANNED))
            {
                let nearer = upto.as_deref().is_none_or(|upto| {
                    if reverse {
                        last.key() > upto
                    } else {
                        last.key() < upto
                    }
                });
                upto = if nearer {
                    Some(last.key().into())
                } else {
                    upto
                };
            }
            self.migrate_all(map, entries, number);
        }
        upto
    }

    /// Migrates the keys of some places from one on, where a place is an order without its lowest
    /// bits. Returns the last place if more may be left: up to it, all keys are here.
    pub(crate) fn migrate_places(
        &mut self,
        map: MapId,
        from: u64,
        shift: u32,
        count: usize,
    ) -> Option<u64> {
        let mut upto: Option<u64> = None;
        for (number, former) in self.maps.rest(map)?.unmigrated() {
            let mut entries: Vec<Entry> = Vec::new();
            let mut last = None;
            for entry in former.index.iter_from(from << shift) {
                let place = self.order(entry.key()) >> shift;
                // Keys of one place are migrated together.
                if entries.len() >= count.max(SCANNED) && last != Some(place) {
                    upto = Some(upto.map_or(place - 1, |upto| upto.min(place - 1)));
                    break;
                }
                last = Some(place);
                entries.push(entry.clone());
            }
            self.migrate_all(map, entries, number);
        }
        upto
    }
}

/// An entry that no other store shares, with its deadlines on a clock that is so far ahead.
fn on_clock_ahead(entry: Entry, ms: u64) -> Entry {
    if ms == 0 {
        return entry;
    }
    let entry = if entry.fields_due() == 0 {
        entry
    } else {
        let value = dated::moved(entry.value(), ms);
        Entry::of_stamp(entry.key(), &value, entry.deadline(), entry.stamp())
    };
    if entry.deadline() != 0 {
        entry.date(deadline::moved(entry.deadline(), ms), entry.version());
    }
    entry
}

impl AllMaps {
    /// The keys of a map that are still in former stores, if any may be.
    fn rest(&self, map: MapId) -> Option<&MigrationRest> {
        self.all.get(&map)?.rest.as_deref()
    }

    /// Whether nothing is left to be migrated.
    pub(crate) const fn is_whole(&self) -> bool {
        self.parts == 0
    }

    /// Whether a map may have any keys.
    pub(crate) fn has(&self, map: MapId) -> bool {
        self.all
            .get(&map)
            .is_some_and(|map| map.len() > 0 || map.rest.is_some())
    }

    /// The keys that are still to be migrated, as they will be: for inspection only.
    pub(super) fn unmigrated(&self) -> impl Iterator<Item = (MapId, Option<Key>, Entry)> {
        self.all
            .iter()
            .filter_map(|(id, here)| Some((*id, here, here.rest.as_ref()?)))
            .flat_map(move |(id, here, rest)| {
                let layers = rest
                    .layers
                    .iter()
                    .enumerate()
                    .filter(|(_, layer)| !layer.migrated);
                let all = layers.flat_map(|(number, layer)| {
                    let entries = layer.map.index.iter_from(0);
                    entries.map(move |entry| (number, entry, layer))
                });
                let lacking = all.filter(move |(number, entry, _)| {
                    let order = self.order(entry.key());
                    here.lacks(order, entry.key())
                        && !rest.is_hidden(*number, order, entry.key())
                        && rest.portion.holds(id, entry.key())
                });
                lacking.flat_map(move |(_, entry, layer)| {
                    let key = Key::from(entry.key());
                    let entry = on_clock_ahead(entry.copy(), layer.behind_ms);
                    let mut all = vec![(id, None, entry)];
                    let tables = layer.tables.lock().unwrap_or_else(PoisonError::into_inner);
                    let table = tables.get(self.order(&key), &key);
                    if let Some((_, table)) = table.filter(|_| all[0].2.is_table()) {
                        let rows = table.rows_from(0).map(Entry::copy);
                        for row in rows {
                            let moved = deadline::moved(row.deadline(), layer.behind_ms);
                            row.date(moved, row.version());
                            all.push((id, Some(key.clone()), row));
                        }
                    }
                    all
                })
            })
    }
}
