//! The contents of one partition: a map of each number, and what all of them have together.

use super::absences::Absences;
use super::cuts::{FreedRows, RangeRemoval};
use super::effect::{Effect, Undo};
use super::fields::LearnedRows;
use super::map::{Replaced, StoredMap};
use super::maps::AllMaps;
use super::prefetch::Ahead;
use super::sums::{SUM_BYTES, Spot, Sums, digest};
use super::surveyor::Surveyor;
use super::victims::Hand;
use crate::mutant::{self, broken};
use crate::value::entry::{ENTRY_WORK, Entry, Key};
use crate::value::kind::Kind;
use doyen_placement::{MapId, OrderKey};
use std::collections::BTreeMap;
use std::ops::Deref;

/// The position of a survey: this segment of the index of this map, or of a table in it, is next.
#[derive(Debug, Clone, Default)]
pub(crate) struct SurveyPosition {
    pub(super) map: MapId,
    pub(super) table: Option<Key>,
    pub(super) segment: usize,
}

/// Deletions that a copy remembers while a snapshot of older entries is still arriving.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    pub(super) keys: BTreeMap<(MapId, Key), u64>,
    pub(super) rows: BTreeMap<(MapId, Key), BTreeMap<Key, u64>>,
    /// What of each cut was freed, from the first row that was.
    pub(super) freed: BTreeMap<(MapId, Key), Vec<FreedRows>>,
    pub(super) clears: BTreeMap<MapId, u64>,
    /// The former contents of maps that were cleared in the meantime, and of tables that were
    /// replaced. Nearly all of it is older, but each entry must be checked.
    pub(super) cleared: Vec<Cleared>,
}

impl Tombstones {
    /// Whether a row of a snapshot was deleted since, by itself or with its table or map.
    pub(super) fn is_dead(&self, map: MapId, key: &[u8], (kind, row): (Kind, &Entry)) -> bool {
        let newer = |seq: &u64| *seq > row.version();
        if self.clears.get(&map).is_some_and(newer) {
            return true;
        }
        if self.keys.is_empty() && self.rows.is_empty() && self.freed.is_empty() {
            return false;
        }
        let at = (map, Key::from(key));
        let rows = self.rows.get(&at);
        let mut freed = self.freed.get(&at).into_iter().flatten();
        if let Some(order) = kind.row_order()
            && freed.any(|freed| freed.holds(row, order))
        {
            return true;
        }
        self.keys.get(&at).is_some_and(newer)
            || rows.is_some_and(|rows| rows.get(row.key()).is_some_and(newer))
    }
}

/// What was cleared at a sequence.
#[derive(Debug)]
pub(super) struct Cleared {
    pub(super) map: MapId,
    /// The key whose table it was. `None`: the map.
    pub(super) table: Option<Key>,
    pub(super) seq: u64,
    pub(super) was: StoredMap,
}

/// The contents of one partition: its maps, which all may read, and what each write keeps right
/// beside them.
#[derive(Debug)]
pub(crate) struct Store {
    pub(super) maps: AllMaps,
    pub(crate) sums: Sums,
    pub(super) tombstones: Option<Box<Tombstones>>,
    /// When absent keys were deleted, once a client has watched one.
    absences: Option<Absences>,
    pub(super) hand: Hand,
    /// Bytes that writes have evicted beyond what they took: later writes take them.
    pub(super) surplus: usize,
}

/// What only reads is asked of the maps. There is no `DerefMut`: a write that passed by the store
/// would leave its checksums wrong.
impl Deref for Store {
    type Target = AllMaps;

    #[inline]
    fn deref(&self) -> &AllMaps {
        &self.maps
    }
}

impl Store {
    /// An empty store. The seed decides the order of keys. It is the same at all members.
    pub(crate) const fn new(seed: OrderKey) -> Self {
        Self {
            maps: AllMaps::new(seed),
            sums: Sums::NONE,
            tombstones: None,
            absences: None,
            hand: (MapId(0), 0),
            surplus: 0,
        }
    }

    /// The same store. If `sorted`, it keeps keys in the order of their bytes, too.
    pub(crate) fn sorted(mut self, sorted: bool) -> Self {
        self.maps.sorted = sorted;
        self
    }

    /// An empty store with the same settings.
    pub(crate) fn emptied(&self) -> Self {
        Self::new(self.maps.seed).sorted(self.maps.sorted)
    }

    /// Lets the next entries be looked at, which may move them in memory. False: there are no more.
    pub(crate) fn survey(
        &mut self,
        place: &mut SurveyPosition,
        surveyor: &mut impl Surveyor,
    ) -> bool {
        let Some((id, map)) = self.maps.all.iter_mut().find(|(id, _)| **id >= place.map) else {
            return false;
        };
        if *id != place.map {
            *place = SurveyPosition {
                map: *id,
                ..SurveyPosition::default()
            };
        }
        let looked = match &place.table {
            None => map.survey(place.segment, surveyor),
            Some(key) => map
                .tables
                .get_mut(map.index.order(key), key)
                .is_some_and(|table| table.survey(place.segment, surveyor)),
        };
        if looked {
            place.segment += 1;
            return true;
        }
        place.segment = 0;
        let next = match place.table.as_deref() {
            Some(key) => map.tables.after(map.index.order(key), key),
            None => map.tables.first(),
        };
        place.table = next.cloned();
        if place.table.is_none() {
            let Some(next) = place.map.0.checked_add(1) else {
                return false;
            };
            place.map = MapId(next);
        }
        true
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
            self.migrate(map, order, key);
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
                if let Some(absences) = &mut self.absences {
                    absences.deleted(order, seq);
                }
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
                map,
                key,
                kind,
                field,
            } => self.delete_row(seq, (*map, order, key), (*kind, field)),
            Effect::RowsCut { map, key, span, .. } => {
                RangeRemoval(self).cut_rows(seq, (*map, order, key), span)
            }
            Effect::RowsFreed {
                map, key, freed, ..
            } => RangeRemoval(self).free_rows((*map, order, key), freed),
            Effect::Deadline { map, key, deadline } => self
                .date(*map, order, key, *deadline, seq)
                .map_or(Undo::Nothing, |(deadline, version)| {
                    Undo::Dated(deadline, version)
                }),
            Effect::Clear { map } => {
                if let Some(absences) = &mut self.absences {
                    absences.cleared(seq);
                }
                self.sums.drop_map(*map);
                let Some(map) = self.maps.all.remove(map) else {
                    return Undo::Nothing;
                };
                self.maps.bytes -= map.bytes;
                self.maps.parts -= usize::from(map.rest.is_some());
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
                Effect::Put { map, .. }
                | Effect::Delete { map, .. }
                | Effect::Field { map, .. }
                | Effect::RowDelete { map, .. }
                | Effect::RowsCut { map, .. },
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
            (Effect::RowsFreed { map, key, .. }, Undo::Freed(was)) => {
                let (entry, rows) = *was;
                RangeRemoval(self).undo_freed((*map, order, key), entry, rows);
            }
            (Effect::Deadline { map, key, .. }, Undo::Dated(deadline, version)) => {
                self.date(*map, order, key, deadline, version);
            }
            (Effect::Clear { map }, Undo::Map(entries)) => {
                self.maps.bytes += entries.bytes;
                self.maps.parts += usize::from(entries.rest.is_some());
                self.maps.all.insert(*map, *entries);
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
            } => LearnedRows(self).put(seq, (*map, order, key), (*kind, row)),
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
                LearnedRows(self).delete(seq, (*map, order, key), (*kind, field));
            }
            Effect::RowsCut {
                map,
                key,
                kind,
                span,
            } => RangeRemoval(self).cut_rows_fuzzy(seq, (*map, order, key), (*kind, span)),
            Effect::RowsFreed {
                map, key, freed, ..
            } => RangeRemoval(self).free_rows_fuzzy((*map, order, key), freed),
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
                let was = self.maps.all.remove(map);
                self.maps.bytes -= was.as_ref().map_or(0, |was| was.bytes);
                self.sums.drop_map(*map);
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
    pub(crate) fn sift(&mut self, count: usize, garbage: &mut Vec<StoredMap>) -> bool {
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
        // Deletions come out of order now.
        self.absences = None;
    }

    /// The sequence of the latest deletion of an absent key of this order, or of a later moment.
    /// `last`: that of the latest change of all.
    pub(crate) fn absent_since(&mut self, order: u64, last: u64) -> u64 {
        let absences = self.absences.get_or_insert_with(|| Absences::since(last));
        absences.of(order)
    }

    /// Covers the next entries, at most `count` and about [`SUM_BYTES`]. Returns true once
    /// everything is covered, and how many bytes were looked at.
    pub(crate) fn advance_sum(&mut self, session: u32, count: usize) -> (bool, usize) {
        let Some(at) = self.sums.0.iter().position(|s| s.session == session) else {
            return (false, 0);
        };
        if self.sums.0[at].done {
            return (true, 0);
        }
        let after = self.sums.0[at].upto.as_ref().map(|(_, upto)| upto.clone());
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
        let sum = &mut self.sums.0[at];
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

    /// Takes all contents out, to be freed in slices.
    pub(crate) fn take(&mut self) -> Vec<StoredMap> {
        self.sums.clear();
        (self.maps.bytes, self.maps.parts) = (0, 0);
        let cleared = self
            .tombstones
            .take()
            .into_iter()
            .flat_map(|t| t.cleared)
            .map(|cleared| cleared.was);
        std::mem::take(&mut self.maps.all)
            .into_iter()
            .map(|(_, map)| map)
            .chain(cleared)
            .collect()
    }

    pub(super) fn insert(&mut self, map: MapId, order: u64, entry: Entry) -> Replaced {
        let covered = self.sums.covers(Spot::of((map, order, entry.key())));
        let summed = covered.then(|| entry.clone());
        let entries = self
            .maps
            .all
            .entry(map)
            .or_insert_with(|| StoredMap::new(self.maps.seed, self.maps.sorted));
        let before = entries.bytes;
        let old = entries.insert(order, entry);
        self.maps.bytes = self.maps.bytes + entries.bytes - before;
        if let Some(entry) = summed {
            let spot = Spot::of((map, order, entry.key()));
            let former = old.entry.as_ref().map_or(0, |e| digest(map, e));
            self.sums.changed(spot, digest(map, &entry), former);
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
        let covered = self.sums.covers(spot);
        let digested = |store: &Self| {
            if covered {
                store.entry(map, order, key).map_or(0, |e| digest(map, e))
            } else {
                0
            }
        };
        let before = digested(self);
        let entries = self.maps.all.get_mut(&map)?;
        let bytes = entries.bytes;
        let old = entries.date(order, key, deadline, version)?;
        self.maps.bytes = self.maps.bytes + entries.bytes - bytes;
        self.sums.changed(spot, digested(self), before);
        Some(old)
    }

    pub(super) fn remove(&mut self, map: MapId, order: u64, key: &[u8]) -> Replaced {
        let Some(entries) = self.maps.all.get_mut(&map) else {
            return Replaced::default();
        };
        let before = entries.bytes;
        let old = entries.remove(order, key);
        self.maps.bytes = self.maps.bytes + entries.bytes - before;
        if entries.index.is_empty() && entries.rest.is_none() {
            self.maps.all.remove(&map);
        }
        let spot = Spot::of((map, order, key));
        if let Some(entry) = &old.entry
            && self.sums.covers(spot)
        {
            self.sums.changed(spot, 0, digest(map, entry));
        }
        old
    }
}
