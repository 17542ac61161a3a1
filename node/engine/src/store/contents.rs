//! The contents of one partition: a map of each number, and what all of them have together.

use super::effect::{Effect, Key, Undo};
use super::index::{Index, Order};
use super::map::{Map, Replaced, SORTED_OVERHEAD, cost};
use super::prefetch::Ahead;
use super::sums::{Cursor, Piece, Position, SUM_BYTES, Spot, Sum, digest};
use super::surveyor::Surveyor;
use super::victims::Hand;
use crate::mutant::{self, broken};
use crate::value::deadline;
use crate::value::entry::{ENTRY_WORK, Entry};
use bytes::Bytes;
use doyen_placement::{MapId, OrderKey};
use litemap::LiteMap;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The position of a survey: this segment of the index of this map, or of a table in it, is next.
#[derive(Debug, Clone, Default)]
pub(crate) struct Place {
    pub(super) map: MapId,
    pub(super) table: Option<Key>,
    pub(super) segment: usize,
}

/// Deletions that a copy remembers while a snapshot of older entries is still arriving.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    pub(super) keys: BTreeMap<(MapId, Key), u64>,
    pub(super) rows: BTreeMap<(MapId, Key), BTreeMap<Key, u64>>,
    pub(super) clears: BTreeMap<MapId, u64>,
    /// The former contents of maps that were cleared in the meantime, and of tables that were
    /// replaced. Nearly all of it is older, but each entry must be checked.
    pub(super) cleared: Vec<Cleared>,
}

/// What was cleared at a sequence.
#[derive(Debug)]
pub(super) struct Cleared {
    pub(super) map: MapId,
    /// The key whose table it was. `None`: the map.
    pub(super) table: Option<Key>,
    pub(super) seq: u64,
    pub(super) was: Map,
}

/// The contents of one partition.
#[derive(Debug)]
pub(crate) struct Store {
    pub(super) seed: OrderKey,
    /// Whether keys are also kept in the order of their bytes.
    pub(super) sorted: bool,
    pub(super) maps: LiteMap<MapId, Map>,
    /// The cost of all maps in bytes.
    pub(super) bytes: usize,
    pub(super) sums: Vec<Sum>,
    pub(super) tombstones: Option<Box<Tombstones>>,
    /// Number of maps that still have keys to draw.
    pub(super) parts: usize,
    pub(super) hand: Hand,
}

impl Store {
    /// An empty store. The seed decides the order of keys. It is the same at all members.
    pub(crate) const fn new(seed: OrderKey) -> Self {
        Self {
            seed,
            sorted: false,
            maps: LiteMap::new_vec(),
            bytes: 0,
            sums: Vec::new(),
            tombstones: None,
            parts: 0,
            hand: (MapId(0), 0),
        }
    }

    /// The same store. If `sorted`, it keeps keys in the order of their bytes, too.
    pub(crate) fn sorted(self, sorted: bool) -> Self {
        Self { sorted, ..self }
    }

    /// Whether it keeps keys in the order of their bytes, too.
    pub(crate) const fn is_sorted(&self) -> bool {
        self.sorted
    }

    /// An empty store with the same settings.
    pub(crate) fn emptied(&self) -> Self {
        Self::new(self.seed).sorted(self.sorted)
    }

    /// The place of a key in every map's order. An operation with several lookups computes it once.
    pub(crate) fn order(&self, key: &[u8]) -> u64 {
        self.seed.order(key)
    }

    /// The entry of a key, overdue or not.
    pub(crate) fn entry(&self, map: MapId, order: u64, key: &[u8]) -> Option<&Entry> {
        self.maps.get(&map)?.index.get(order, key)
    }

    /// The index and the order for looking up a key.
    pub(crate) fn lookup(&self, map: MapId, key: &[u8]) -> Option<(&Index, u64)> {
        Some((&self.maps.get(&map)?.index, self.order(key)))
    }

    /// The same for a field of a table.
    pub(crate) fn lookup_row(&self, map: MapId, key: &[u8], field: &[u8]) -> Option<(&Index, u64)> {
        let map = self.maps.get(&map).filter(|map| !map.tables.is_empty())?;
        Some((&map.tables.get(key)?.index, self.order(field)))
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
            .maps
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
        self.maps
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

    /// Lets the next entries be looked at, which may move them in memory. False: there are no more.
    pub(crate) fn survey(&mut self, place: &mut Place, surveyor: &mut impl Surveyor) -> bool {
        let Some((id, map)) = self.maps.iter_mut().find(|(id, _)| **id >= place.map) else {
            return false;
        };
        if *id != place.map {
            *place = Place {
                map: *id,
                ..Place::default()
            };
        }
        let looked = match &place.table {
            None => map.survey(place.segment, surveyor),
            Some(key) => map
                .tables
                .get_mut(key)
                .is_some_and(|table| table.survey(place.segment, surveyor)),
        };
        if looked {
            place.segment += 1;
            return true;
        }
        place.segment = 0;
        let behind = place
            .table
            .as_deref()
            .map_or(Bound::Unbounded, Bound::Excluded);
        let mut tables = map.tables.range::<[u8], _>((behind, Bound::Unbounded));
        place.table = tables.next().map(|(key, _)| key.clone());
        if place.table.is_none() {
            let Some(next) = place.map.0.checked_add(1) else {
                return false;
            };
            place.map = MapId(next);
        }
        true
    }

    /// The cost of an entry here.
    pub(crate) fn cost(&self, entry: &Entry) -> usize {
        cost(entry) + if self.sorted { SORTED_OVERHEAD } else { 0 }
    }

    /// The maps that have keys here.
    pub(crate) fn map_ids(&self) -> impl Iterator<Item = MapId> {
        self.maps.iter().map(|(id, _)| *id)
    }

    /// How many keys of a map are here, and their cost in bytes.
    pub(crate) fn size_of(&self, map: MapId) -> (usize, usize) {
        let map = self.maps.get(&map);
        map.map_or((0, 0), |map| (map.about(), map.bytes))
    }

    /// How many keys a map has.
    pub(crate) fn count(&self, map: MapId) -> usize {
        self.maps.get(&map).map_or(0, Map::len)
    }

    /// The cost of the keys of a map.
    pub(crate) fn bytes_of(&self, map: MapId) -> usize {
        self.maps.get(&map).map_or(0, |map| map.bytes)
    }

    /// For each of these maps that is here: its place in the list, about how many keys it has, and
    /// how many of those expire.
    pub(crate) fn each_of(&self, maps: &[MapId], mut tell: impl FnMut(usize, usize, usize)) {
        // Most partitions have one map or two.
        if self.maps.len() < maps.len() {
            for (id, map) in &self.maps {
                maps.iter()
                    .position(|wanted| wanted == id)
                    .into_iter()
                    .for_each(|place| tell(place, map.about(), map.expiring.len()));
            }
        } else {
            let here = maps
                .iter()
                .enumerate()
                .filter_map(|(place, id)| Some((place, self.maps.get(id)?)));
            here.for_each(|(place, map)| tell(place, map.about(), map.expiring.len()));
        }
    }

    /// How many keys there are; only about, while some are still to be drawn.
    pub(crate) fn keys(&self) -> usize {
        self.maps.values().map(Map::about).sum()
    }

    /// Their cost in bytes; only about, while some are still to be drawn.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Applies an effect as of sequence `seq`. Returns what it replaced.
    pub(crate) fn apply(&mut self, seq: u64, effect: &Effect) -> Undo {
        let order = effect.place().map_or(0, |(_, key)| self.order(key));
        self.apply_at(order, seq, effect)
    }

    /// The same, with the order of the effect's key.
    pub(crate) fn apply_at(&mut self, order: u64, seq: u64, effect: &Effect) -> Undo {
        if let Some((map, key)) = effect
            .place()
            .filter(|_| !broken(&mutant::REPLACES_UNDRAWN))
        {
            // The replaced entry must be known, so that it can be brought back.
            self.draw(map, order, key);
        }
        match effect {
            Effect::Put {
                map,
                entry,
                deadline,
                ..
            } => {
                entry.date(*deadline, seq);
                let replaced = self.insert(*map, order, entry.clone());
                self.undo_of(*map, replaced, Undo::Absent)
            }
            Effect::Delete { map, key, .. } => {
                let replaced = self.remove(*map, order, key);
                self.undo_of(*map, replaced, Undo::Nothing)
            }
            Effect::Row { map, key, row, .. } => self.put_row(seq, (*map, order, key), row),
            Effect::Field {
                map,
                key,
                kind,
                row,
            } => self.put_field(seq, (*map, order, key), (*kind, row)),
            Effect::RowDelete {
                map, key, field, ..
            } => self.delete_row(seq, (*map, order, key), field),
            Effect::Deadline { map, key, deadline } => self
                .date(*map, order, key, *deadline, seq)
                .map_or(Undo::Nothing, |(deadline, version)| {
                    Undo::Dated(deadline, version)
                }),
            Effect::Clear { map } => {
                self.unsum_map(*map);
                let Some(map) = self.maps.remove(map) else {
                    return Undo::Nothing;
                };
                self.bytes -= map.bytes;
                self.parts -= usize::from(map.rest.is_some());
                Undo::Map(Box::new(map))
            }
            Effect::Many(parts) => {
                Undo::Many(parts.iter().map(|part| self.apply(seq, part)).collect())
            }
        }
    }

    /// Takes an effect back. Effects are undone in the reverse order of `apply`.
    pub(crate) fn undo(&mut self, effect: &Effect, undo: Undo) {
        let order = effect.place().map_or(0, |(_, key)| self.order(key));
        match (effect, undo) {
            (_, Undo::Nothing) => {}
            (Effect::Put { map, entry, .. }, Undo::Absent) => {
                self.remove(*map, order, entry.key());
            }
            (
                Effect::Put { map, .. } | Effect::Delete { map, .. } | Effect::Field { map, .. },
                Undo::Was(entry),
            ) => {
                self.insert(*map, order, entry);
            }
            (Effect::Put { map, .. } | Effect::Delete { map, .. }, Undo::Table(dropped)) => {
                self.bring_back(*map, order, *dropped);
            }
            (
                Effect::Row { map, key, .. } | Effect::RowDelete { map, key, .. },
                Undo::Row(row, version),
            ) => {
                let field = effect.field().unwrap_or_default();
                self.undo_row((*map, order, key), field, row, version);
            }
            (Effect::Deadline { map, key, .. }, Undo::Dated(deadline, version)) => {
                self.date(*map, order, key, deadline, version);
            }
            (Effect::Clear { map }, Undo::Map(entries)) => {
                self.bytes += entries.bytes;
                self.parts += usize::from(entries.rest.is_some());
                self.maps.insert(*map, *entries);
            }
            (Effect::Many(parts), Undo::Many(undos)) => {
                let most = if broken(&mutant::UNDOES_ONE) {
                    1
                } else {
                    parts.len()
                };
                for (part, undo) in parts.iter().zip(undos).rev().take(most) {
                    self.undo(part, undo);
                }
            }
            // `apply` makes no other pairs.
            (effect, undo) => unreachable!("{effect:?} cannot have replaced {undo:?}"),
        }
    }

    /// Applies an effect while a snapshot is still arriving. Newer entries stay. An operation may
    /// change a key more than once: its effects are applied in order, so the last one holds.
    pub(crate) fn apply_fuzzy(&mut self, seq: u64, effect: &Effect) {
        let order = effect.place().map_or(0, |(_, key)| self.order(key));
        match effect {
            Effect::Many(parts) => parts.iter().for_each(|part| self.apply_fuzzy(seq, part)),
            Effect::Put {
                map,
                entry,
                deadline,
                ..
            } => {
                if self
                    .entry(*map, order, entry.key())
                    .is_none_or(|e| e.version() <= seq)
                {
                    entry.date(*deadline, seq);
                    let replaced = self.insert(*map, order, entry.clone());
                    self.set_aside(*map, replaced, u64::MAX);
                }
            }
            Effect::Delete { map, key, .. } => {
                if self
                    .entry(*map, order, key)
                    .is_some_and(|e| e.version() <= seq)
                {
                    // What is newer in its table comes again with the log.
                    let replaced = self.remove(*map, order, key);
                    self.set_aside(*map, replaced, u64::MAX);
                }
                if let Some(t) = &mut self.tombstones {
                    t.keys.insert((*map, key.clone()), seq);
                }
            }
            Effect::Row {
                map,
                key,
                kind,
                row,
            } => self.put_row_fuzzy(seq, (*map, order, key), (*kind, row)),
            // While a snapshot is under way, its primary logs whole values.
            Effect::Field {
                map,
                key,
                kind,
                row,
            } => {
                let old = self.entry(*map, order, key);
                if old.is_some_and(|old| old.version() < seq) {
                    self.put_field(seq, (*map, order, key), (*kind, row));
                }
            }
            Effect::RowDelete {
                map,
                key,
                kind,
                field,
            } => {
                self.delete_row_fuzzy(seq, (*map, order, key), (*kind, field));
            }
            // While a snapshot is under way, its primary logs changes of deadlines as puts, because
            // the entry may still be on its way here.
            Effect::Deadline { map, key, deadline } => {
                if self
                    .entry(*map, order, key)
                    .is_some_and(|old| old.version() <= seq)
                {
                    self.date(*map, order, key, *deadline, seq);
                }
            }
            // The map is set aside as a whole, and `sift` brings newer entries back. There may be
            // millions, too many to delete in one go.
            Effect::Clear { map } => {
                let was = self.maps.remove(map);
                self.bytes -= was.as_ref().map_or(0, |was| was.bytes);
                self.unsum_map(*map);
                if let Some(t) = &mut self.tombstones {
                    t.clears.insert(*map, seq);
                    t.cleared.extend(was.map(|was| Cleared {
                        map: *map,
                        table: None,
                        seq,
                        was,
                    }));
                }
            }
        }
    }

    /// Takes an entry of a snapshot, unless its key has a newer one. Returns whether it did.
    pub(crate) fn adopt(&mut self, map: MapId, entry: Entry) -> bool {
        if let Some(t) = &self.tombstones {
            let cleared = t.clears.get(&map).is_some_and(|seq| *seq > entry.version());
            let deleted = || {
                t.keys
                    .get(&(map, Key::from(entry.key())))
                    .is_some_and(|seq| *seq > entry.version())
            };
            // Few snapshots meet deletions, and a lookup needs a key of its own.
            if cleared || (!t.keys.is_empty() && deleted()) {
                return false;
            }
        }
        let order = self.order(entry.key());
        if entry.is_table() {
            return self.adopt_table(map, order, entry);
        }
        let newer = self
            .entry(map, order, entry.key())
            .is_none_or(|e| e.version() < entry.version());
        if newer {
            let replaced = self.insert(map, order, entry);
            self.set_aside(map, replaced, u64::MAX);
        }
        newer
    }

    /// Whether `sift` has nothing left to do. Before that, entries that are newer than the clearing
    /// of their map may still be missing from the contents, so no checksum may be built.
    pub(crate) fn is_sifted(&self) -> bool {
        self.tombstones
            .as_ref()
            .is_none_or(|t| t.cleared.is_empty())
    }

    /// Looks at up to `count` entries of maps that were cleared while a snapshot arrives, and keeps
    /// the newer ones like parts of the snapshot. True once nothing is left. Dropped maps go to the
    /// garbage.
    pub(crate) fn sift(&mut self, count: usize, garbage: &mut Vec<Map>) -> bool {
        for _ in 0..count {
            let Some(t) = &mut self.tombstones else {
                return true;
            };
            let Some(cleared) = t.cleared.last_mut() else {
                return true;
            };
            let (map, seq) = (cleared.map, cleared.seq);
            match (cleared.was.index.take_any(), cleared.table.clone()) {
                (Some(row), Some(key)) if row.version() >= seq => {
                    _ = self.adopt_row(map, &key, row);
                }
                // A table comes again with the log, because its rows would have to, too.
                (Some(entry), None) if entry.version() > seq && !entry.is_table() => {
                    _ = self.adopt(map, entry);
                }
                (Some(_), _) => {}
                (None, _) => garbage.extend(t.cleared.pop().map(|cleared| cleared.was)),
            }
        }
        self.is_sifted()
    }

    /// Remembers deletions from now on (a snapshot arrives), or forgets them (it is complete, and
    /// sifted).
    pub(crate) fn keep_tombstones(&mut self, keep: bool) {
        self.tombstones = keep.then(Box::default);
    }

    /// Some keys of a map that are overdue, earliest deadline first, and some fields with their
    /// keys.
    pub(crate) fn overdue(&self, clock: u64, limit: usize) -> Vec<(MapId, Key, Option<Key>)> {
        let mut found = Vec::new();
        for (id, map) in &self.maps {
            let left = limit - found.len();
            found.extend(
                map.expiring
                    .iter()
                    .take_while(|(d, _)| deadline::is_over(*d, clock))
                    .take(left)
                    .map(|(_, e)| (*id, e.0.key().into(), None)),
            );
            let tables = map.due.iter();
            for (_, key) in tables.take_while(|(d, _)| deadline::is_over(*d, clock)) {
                let left = limit - found.len();
                let rows = map.tables.get(key).into_iter();
                let rows = rows.flat_map(|table| table.overdue_rows(clock)).take(left);
                found.extend(rows.map(|row| (*id, key.clone(), Some(row.key().into()))));
                if found.len() == limit {
                    return found;
                }
            }
        }
        found
    }

    /// Whether any key or field is overdue.
    pub(crate) fn is_overdue(&self, clock: u64) -> bool {
        self.maps.values().any(|m| {
            let key = m.expiring.first().map(|(deadline, _)| *deadline);
            let field = m.due.first().map(|(deadline, _)| *deadline);
            [key, field]
                .into_iter()
                .flatten()
                .any(|deadline| deadline::is_over(deadline, clock))
        })
    }

    /// Whether any key or field here expires, or may be drawn that does.
    pub(crate) fn expires(&self) -> bool {
        self.maps
            .values()
            .any(|m| !m.expiring.is_empty() || !m.due.is_empty() || m.rest.is_some())
    }

    /// The place of a key, or of a field of it.
    pub(crate) fn position_of(&self, map: MapId, key: &[u8], field: Option<Bytes>) -> Position {
        Position {
            map,
            key: key.into(),
            field: field.map(|field| (self.order(&field), Key::from(&*field))),
        }
    }

    /// The entries that follow `after`, over all maps.
    pub(crate) fn following<'a>(
        &'a self,
        after: &Cursor,
    ) -> impl Iterator<Item = Piece<'a>> + use<'a> {
        let first_map = after.as_ref().map_or(MapId(0), |at| at.map);
        let skip = after.clone();
        self.maps
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
        self.maps
            .get(&map)
            .map(|m| m.index.iter_from(order))
            .into_iter()
            .flatten()
    }

    /// Begins a checksum. `advance_sum` covers more and more of the store, and writes keep the
    /// covered part right.
    pub(crate) fn begin_sum(&mut self, session: u32) {
        self.end_sum(session);
        self.sums.push(Sum {
            session,
            upto: None,
            done: false,
            maps: BTreeMap::new(),
            tables: BTreeMap::new(),
        });
    }

    /// Whether a checksum has begun.
    pub(crate) fn sums(&self, session: u32) -> bool {
        self.sums.iter().any(|s| s.session == session)
    }

    /// Covers the next entries, at most `count` and about [`SUM_BYTES`]. Returns true once
    /// everything is covered, and how many bytes were looked at.
    pub(crate) fn advance_sum(&mut self, session: u32, count: usize) -> (bool, usize) {
        let Some(at) = self.sums.iter().position(|s| s.session == session) else {
            return (false, 0);
        };
        if self.sums[at].done {
            return (true, 0);
        }
        let after = self.sums[at].upto.as_ref().map(|(_, upto)| upto.clone());
        let mut added = Vec::new();
        let (mut last, mut bytes) = (None, 0);
        let mut following = Ahead::of(self.following(&after));
        let mut done = false;
        for _ in 0..count {
            let next = if bytes < SUM_BYTES {
                following.next()
            } else {
                break;
            };
            let Some(piece) = next else {
                done = true;
                break;
            };
            match added.last_mut() {
                Some((map, of, sum)) if (*map, *of) == (piece.map, piece.of) => {
                    *sum = piece.digest().wrapping_add(*sum);
                }
                _ => added.push((piece.map, piece.of, piece.digest())),
            }
            last = Some(piece);
            bytes += piece.entry.len() + ENTRY_WORK;
        }
        drop(following);
        let last = last.map(|piece| {
            let position = piece.position(self);
            (self.order(&position.key), position)
        });
        let added: Vec<_> = added
            .into_iter()
            .map(|(map, of, more)| (map, of.map(Key::from), more))
            .collect();
        let sum = &mut self.sums[at];
        for (map, of, more) in added {
            let total = sum.total(map, of.as_deref());
            *total = total.wrapping_add(more);
        }
        if last.is_some() {
            sum.upto = last;
        }
        sum.done = done;
        (done, bytes)
    }

    /// The checksum, once it covers everything.
    pub(crate) fn sum(&self, session: u32) -> Option<u64> {
        let sum = self.sums.iter().find(|s| s.session == session && s.done)?;
        let all = sum.maps.values().chain(sum.tables.values());
        Some(all.fold(0, |all, one| all.wrapping_add(*one)))
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

    /// All contents, drawn or not, each row with its key: for inspection only.
    pub(crate) fn contents(&self) -> impl Iterator<Item = (MapId, Option<Key>, Entry)> {
        self.following(&None)
            .map(|piece| (piece.map, piece.of.map(Key::from), piece.entry.clone()))
            .chain(self.undrawn())
    }

    /// Ends a checksum.
    pub(crate) fn end_sum(&mut self, session: u32) {
        self.sums.retain(|s| s.session != session);
    }

    /// Ends all checksums.
    pub(crate) fn end_sums(&mut self) {
        self.sums.clear();
    }

    /// Takes all contents out, to be freed in slices.
    pub(crate) fn take(&mut self) -> Vec<Map> {
        self.sums.clear();
        (self.bytes, self.parts) = (0, 0);
        let cleared = self
            .tombstones
            .take()
            .into_iter()
            .flat_map(|t| t.cleared)
            .map(|cleared| cleared.was);
        std::mem::take(&mut self.maps)
            .into_iter()
            .map(|(_, map)| map)
            .chain(cleared)
            .collect()
    }

    pub(super) fn insert(&mut self, map: MapId, order: u64, entry: Entry) -> Replaced {
        let covered = self.covered(Spot::of((map, order, entry.key())));
        let summed = covered.then(|| entry.clone());
        let entries = self
            .maps
            .entry(map)
            .or_insert_with(|| Map::new(self.seed, self.sorted));
        let before = entries.bytes;
        let old = entries.insert(order, entry);
        self.bytes = self.bytes + entries.bytes - before;
        if let Some(entry) = summed {
            let spot = Spot::of((map, order, entry.key()));
            let former = old.entry.as_ref().map_or(0, |e| digest(map, e));
            self.summed(spot, digest(map, &entry), former);
        }
        old
    }

    pub(super) fn date(
        &mut self,
        map: MapId,
        order: u64,
        key: &[u8],
        deadline: u64,
        version: u64,
    ) -> Option<(u64, u64)> {
        let spot = Spot::of((map, order, key));
        let covered = self.covered(spot);
        let digested = |store: &Self| {
            if covered {
                store.entry(map, order, key).map_or(0, |e| digest(map, e))
            } else {
                0
            }
        };
        let before = digested(self);
        let entries = self.maps.get_mut(&map)?;
        let bytes = entries.bytes;
        let old = entries.date(order, key, deadline, version)?;
        self.bytes = self.bytes + entries.bytes - bytes;
        self.summed(spot, digested(self), before);
        Some(old)
    }

    /// Whether any checksum covers this. Only then must its digest be computed.
    pub(super) fn covered(&self, spot: Spot<'_>) -> bool {
        self.sums.iter().any(|s| s.covers(spot))
    }

    /// The covered part of checksums changed.
    pub(super) fn summed(&mut self, spot: Spot<'_>, added: u64, removed: u64) {
        for sum in self.sums.iter_mut().filter(|s| s.covers(spot)) {
            let total = sum.total(spot.map, spot.row.map(|_| spot.key));
            *total = total.wrapping_add(added).wrapping_sub(removed);
        }
    }

    pub(super) fn remove(&mut self, map: MapId, order: u64, key: &[u8]) -> Replaced {
        let Some(entries) = self.maps.get_mut(&map) else {
            return Replaced::default();
        };
        let before = entries.bytes;
        let old = entries.remove(order, key);
        self.bytes = self.bytes + entries.bytes - before;
        if entries.index.is_empty() && entries.rest.is_none() {
            self.maps.remove(&map);
        }
        let spot = Spot::of((map, order, key));
        if let Some(entry) = &old.entry
            && self.covered(spot)
        {
            self.summed(spot, 0, digest(map, entry));
        }
        old
    }
}
