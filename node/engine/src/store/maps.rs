//! All maps of a partition, as they are read.

use super::index::{Index, Order};
use super::map::{SORTED_OVERHEAD, StoredMap, cost};
use super::sums::{EntryPosition, Piece, SumCursor};
use crate::value::deadline;
use crate::value::entry::{Entry, Key};
use bytes::Bytes;
use doyen_placement::{MapId, OrderKey};
use litemap::LiteMap;
use std::ops::Bound;

/// What is overdue of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OverduePart {
    /// All of it.
    Key,
    /// Fields of a collection that is one value.
    Fields,
    /// This row of its table.
    Row(Key),
}

/// All maps of a partition.
#[derive(Debug)]
pub(crate) struct AllMaps {
    pub(super) seed: OrderKey,
    /// Whether keys are also kept in the order of their bytes.
    pub(super) sorted: bool,
    pub(super) all: LiteMap<MapId, StoredMap>,
    /// The cost of all maps in bytes.
    pub(super) bytes: usize,
    /// Number of maps that still have keys to migrate.
    pub(super) parts: usize,
}

impl AllMaps {
    /// No maps. The seed decides the order of keys.
    pub(super) const fn new(seed: OrderKey) -> Self {
        Self {
            seed,
            sorted: false,
            all: LiteMap::new_vec(),
            bytes: 0,
            parts: 0,
        }
    }

    /// Whether it keeps keys in the order of their bytes, too.
    pub(crate) const fn is_sorted(&self) -> bool {
        self.sorted
    }

    /// The place of a key in every map's order. An operation with several lookups computes it once.
    pub(crate) fn order(&self, key: &[u8]) -> u64 {
        self.seed.order(key)
    }

    /// The entry of a key, overdue or not.
    pub(crate) fn entry(&self, map: MapId, order: u64, key: &[u8]) -> Option<&Entry> {
        self.all.get(&map)?.index.get(order, key)
    }

    /// The index and the order for looking up a key.
    pub(crate) fn lookup(&self, map: MapId, key: &[u8]) -> Option<(&Index, u64)> {
        Some((&self.all.get(&map)?.index, self.order(key)))
    }

    /// The same for a field of a table.
    pub(crate) fn lookup_row(&self, map: MapId, key: &[u8], field: &[u8]) -> Option<(&Index, u64)> {
        let map = self.all.get(&map).filter(|map| !map.tables.is_empty())?;
        let (_, table) = map.tables.get(self.order(key), key)?;
        Some((&table.index, self.order(field)))
    }

    /// Entries of a map in the order of their keys, from one up to another. None if the order is
    /// not kept.
    pub(crate) fn range(
        &self,
        map: MapId,
        from: &[u8],
        to: &[u8],
        reverse: bool,
    ) -> impl Iterator<Item = &Entry> {
        let mut range = self
            .all
            .get(&map)
            .into_iter()
            .flat_map(move |map| map.range(from, to));
        std::iter::from_fn(move || {
            if reverse {
                range.next_back()
            } else {
                range.next()
            }
        })
    }

    /// Entries after a key of a map, in the order of maps and keys, if that is kept.
    pub(crate) fn sorted_after<'a>(
        &'a self,
        after: Option<(MapId, &'a [u8])>,
    ) -> impl Iterator<Item = (MapId, &'a Entry)> {
        let first = after.map_or(MapId(0), |(map, _)| map);
        self.all
            .iter()
            .filter(move |(id, _)| **id >= first)
            .flat_map(move |(id, map)| {
                let begin = after
                    .filter(|(map, _)| map == id)
                    .map_or(Bound::Unbounded, |(_, key)| Bound::Excluded(key));
                let sorted = map.sorted.as_ref().into_iter();
                sorted
                    .flat_map(move |sorted| sorted.range::<[u8], _>((begin, Bound::Unbounded)))
                    .map(|entry| (*id, &entry.0))
            })
    }

    /// The cost of an entry here.
    pub(crate) fn cost(&self, entry: &Entry) -> usize {
        cost(entry) + if self.sorted { SORTED_OVERHEAD } else { 0 }
    }

    /// The maps that have keys here.
    pub(crate) fn map_ids(&self) -> impl Iterator<Item = MapId> {
        self.all.iter().map(|(id, _)| *id)
    }

    /// How many keys of a map are here, and their cost in bytes.
    pub(crate) fn size_of(&self, map: MapId) -> (usize, usize) {
        let map = self.all.get(&map);
        map.map_or((0, 0), |map| (map.about(), map.bytes))
    }

    /// How many keys a map has.
    pub(crate) fn count(&self, map: MapId) -> usize {
        self.all.get(&map).map_or(0, StoredMap::len)
    }

    /// The cost of the keys of a map.
    pub(crate) fn bytes_of(&self, map: MapId) -> usize {
        self.all.get(&map).map_or(0, |map| map.bytes)
    }

    /// For each of these maps that is here: its place in the list, about how many keys it has, and
    /// how many of those expire.
    pub(crate) fn each_of(&self, maps: &[MapId], mut tell: impl FnMut(usize, usize, usize)) {
        // Most partitions have one map or two.
        if self.all.len() < maps.len() {
            for (id, map) in &self.all {
                maps.iter()
                    .position(|wanted| wanted == id)
                    .into_iter()
                    .for_each(|place| tell(place, map.about(), map.expiring.len()));
            }
        } else {
            let here = maps
                .iter()
                .enumerate()
                .filter_map(|(place, id)| Some((place, self.all.get(id)?)));
            here.for_each(|(place, map)| tell(place, map.about(), map.expiring.len()));
        }
    }

    /// How many keys there are; only about, while some are still to be migrated.
    pub(crate) fn keys(&self) -> usize {
        self.all.values().map(StoredMap::about).sum()
    }

    /// Their cost in bytes; only about, while some are still to be migrated.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Some keys that are overdue or have something overdue, earliest deadline first.
    pub(crate) fn overdue(&self, clock: u64, limit: usize) -> Vec<(MapId, Key, OverduePart)> {
        let mut found = Vec::new();
        for (id, map) in &self.all {
            let left = limit - found.len();
            found.extend(
                map.expiring
                    .iter()
                    .take_while(|(d, _)| deadline::is_over(*d, clock))
                    .take(left)
                    .map(|(_, e)| (*id, e.0.key().into(), OverduePart::Key)),
            );
            let left = limit - found.len();
            let small = map.fields_due.iter();
            let small = small.take_while(|(due, _)| deadline::is_over(*due, clock));
            let small = small.map(|(_, e)| (*id, e.0.key().into(), OverduePart::Fields));
            found.extend(small.take(left));
            let tables = map.due.iter();
            for (_, key) in tables.take_while(|(d, _)| deadline::is_over(*d, clock)) {
                let left = limit - found.len();
                let rows = map.tables.get(self.order(key), key).into_iter();
                let rows = rows.flat_map(|(_, table)| table.overdue_rows(clock));
                let rows = rows.take(left);
                let part = |row: &Entry| OverduePart::Row(row.key().into());
                found.extend(rows.map(|row| (*id, key.clone(), part(row))));
                if found.len() == limit {
                    return found;
                }
            }
        }
        found
    }

    /// Whether any key or field is overdue.
    pub(crate) fn is_overdue(&self, clock: u64) -> bool {
        self.all.values().any(|m| {
            let key = m.expiring.first().map(|(deadline, _)| *deadline);
            let field = m.due.first().map(|(deadline, _)| *deadline);
            let small = m.fields_due.first().map(|(deadline, _)| *deadline);
            [key, field, small]
                .into_iter()
                .flatten()
                .any(|deadline| deadline::is_over(deadline, clock))
        })
    }

    /// Whether any key or field here expires, or may be migrated that does.
    pub(crate) fn expires(&self) -> bool {
        let fields = |m: &StoredMap| !m.due.is_empty() || !m.fields_due.is_empty();
        let mut all = self.all.values();
        all.any(|m| !m.expiring.is_empty() || fields(m) || m.rest.is_some())
    }

    /// The place of a key, or of a field of it.
    pub(crate) fn position_of(
        &self,
        map: MapId,
        key: &[u8],
        field: Option<Bytes>,
    ) -> EntryPosition {
        EntryPosition {
            map,
            key: key.into(),
            field: field.map(|field| (self.order(&field), Key::from(&*field))),
        }
    }

    /// The entries that follow `after`, over all maps.
    pub(crate) fn following<'a>(
        &'a self,
        after: &SumCursor,
    ) -> impl Iterator<Item = Piece<'a>> + use<'a> {
        let first_map = after.as_ref().map_or(MapId(0), |at| at.map);
        let skip = after.clone();
        self.all
            .iter()
            .filter(move |(id, _)| **id >= first_map)
            .flat_map(move |(id, map)| {
                let after = skip.as_ref().filter(|at| at.map == *id);
                map.pieces(*id, after)
            })
    }

    /// The entries of one map with this order or a later one.
    pub(crate) fn at_or_after(
        &self,
        map: MapId,
        order: u64,
    ) -> impl Iterator<Item = &Entry> + use<'_> {
        self.all
            .get(&map)
            .map(|m| m.index.iter_from(order))
            .into_iter()
            .flatten()
    }

    /// The checksum of all contents, at once: for inspection only.
    pub(crate) fn content(&self) -> u64 {
        let contents = self.contents();
        contents.fold(0, |sum, (map, of, entry)| {
            let piece = Piece {
                map,
                of: of.as_deref(),
                entry: &entry,
            };
            sum.wrapping_add(piece.digest())
        })
    }

    /// All contents, migrated or not, each row with its key: for inspection only.
    pub(crate) fn contents(&self) -> impl Iterator<Item = (MapId, Option<Key>, Entry)> {
        self.following(&None)
            .map(|piece| (piece.map, piece.of.map(Key::from), piece.entry.clone()))
            .chain(self.unmigrated())
    }
}

impl Piece<'_> {
    /// Where it stands.
    pub(crate) fn position(&self, store: &AllMaps) -> EntryPosition {
        let own: Key = self.entry.key().into();
        match self.of {
            None => EntryPosition {
                map: self.map,
                key: own,
                field: None,
            },
            Some(key) => EntryPosition {
                map: self.map,
                key: key.into(),
                field: Some((store.order(&own), own)),
            },
        }
    }
}
