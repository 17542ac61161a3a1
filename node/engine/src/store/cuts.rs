//! Ranges of a table's rows that were removed at once.
//!
//! ```text
//!   rows in order   a b c d e f g h          one record: c to f go, as of a sequence
//!   live            a b         g h          what commands see from then on
//!   hidden              c d e f              freed from the front, some in each further record
//! ```
//! To take a million rows out of the index of a table takes a second. To cut them out of its order
//! (`ranked.rs`) takes a moment, so that is all that the record of a removal does, at the primary
//! and at each copy. It is undone by putting them back.
//!
//! A hidden row stays in the index until it is freed, so snapshots have it, checksums count it, and
//! it takes memory. A row is hidden if it lies in the range of a cut and is older. So it is hidden
//! at each member that has it, however and in which order it came there, and what is written into
//! the range later is not. The cuts of a table are a part of its entry: they are digested, copied
//! and moved with it.

use super::contents::Store;
use super::effect::Undo;
use super::fields::KeyPlace;
use super::map::{RowTable, StoredMap};
use super::ranked::Ranked;
use super::run_context::RunContext;
use crate::value::entry::{Entry, Key};
use crate::value::items::{Items, put};
use crate::value::kind::Kind;
use crate::value::types::RowOrder;
use doyen_placement::MapId;
use doyen_placement::level::CUTS;
use std::cmp::Ordering;

/// Fewer rows are removed one by one.
#[cfg(not(test))]
const CUT_LEAST: usize = 256;
#[cfg(test)]
const CUT_LEAST: usize = 4;
/// The most cuts of a table whose rows are not all freed. If there are as many, rows are removed
/// one by one.
const CUTS_MAX: usize = 32;
/// The most bytes of an end of a cut. Beyond it, rows are removed one by one.
const END_BYTES_MAX: usize = 1 << 10;
/// Rows that are freed by one record.
const FREED_ROWS: usize = 500;
/// Freeing this many bytes takes as long as freeing a small row.
const FREED_BYTES: usize = 8 << 10;

/// Rows from one to another one, both included, in the order of their table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowSpan {
    pub(crate) first: Entry,
    pub(crate) last: Entry,
}

impl RowSpan {
    /// What the order of rows compares of a row.
    pub(super) fn end(row: &Entry, order: &RowOrder) -> Entry {
        let value = if order.valued { row.value() } else { &[] };
        Entry::of_row(row.key(), value, 0)
    }

    pub(super) fn begins_behind(&self, row: &Entry, order: &RowOrder) -> bool {
        (order.compare)(row, &self.first) == Ordering::Less
    }

    pub(super) fn ends_behind(&self, row: &Entry, order: &RowOrder) -> bool {
        (order.compare)(row, &self.last) != Ordering::Greater
    }

    fn holds(&self, row: &Entry, order: &RowOrder) -> bool {
        !self.begins_behind(row, order) && self.ends_behind(row, order)
    }

    /// Bytes of its ends.
    pub(crate) fn bytes(&self) -> usize {
        self.first.len() + self.last.len()
    }
}

/// A range of rows that were removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowCut {
    /// When: older rows are hidden.
    pub(crate) seq: u64,
    /// Those that are not freed yet. The last one tells cuts of one moment apart.
    pub(crate) span: RowSpan,
}

impl RowCut {
    pub(super) fn hides(&self, row: &Entry, order: &RowOrder) -> bool {
        row.version() < self.seq && self.span.holds(row, order)
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.seq, &self.span.last) == (other.seq, &other.span.last)
    }
}

/// Some rows of a cut that are freed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FreedRows {
    /// The cut, as it was before.
    pub(crate) cut: RowCut,
    /// The last row that is freed, and the first one that is not. `None`: all are freed.
    pub(crate) upto: Option<(Entry, Entry)>,
}

impl FreedRows {
    /// The rows that are freed.
    fn span(&self) -> RowSpan {
        let last = self.upto.as_ref().map(|(last, _)| last);
        RowSpan {
            first: self.cut.span.first.clone(),
            last: last.unwrap_or(&self.cut.span.last).clone(),
        }
    }

    /// Whether a row is one of them.
    pub(super) fn holds(&self, row: &Entry, order: &RowOrder) -> bool {
        row.version() < self.cut.seq && self.span().holds(row, order)
    }

    /// Bytes of the ends that it names.
    pub(crate) fn bytes(&self) -> usize {
        let upto = self.upto.as_ref();
        self.cut.span.bytes() + upto.map_or(0, |(last, next)| last.len() + next.len())
    }
}

/// The bytes of a table's birth, which come first in the value of its entry.
const BIRTH_BYTES: usize = size_of::<u64>();

/// The cuts that the entry of a table names, the earliest first.
pub(super) fn cuts_of(entry: &Entry) -> Vec<RowCut> {
    let mut items = Items(entry.value().get(BIRTH_BYTES..).unwrap_or_default());
    let cuts = std::iter::from_fn(|| {
        let seq = u64::from_le_bytes(*items.next()?.first_chunk()?);
        let mut end = || Some(Entry::of_row(items.next()?, items.next()?, 0));
        let span = RowSpan {
            first: end()?,
            last: end()?,
        };
        Some(RowCut { seq, span })
    });
    // One operation may cut once more where the last one was allowed to.
    cuts.take(2 * CUTS_MAX).collect()
}

/// The entry of a table with these cuts instead of its own.
pub(super) fn with_cuts(entry: &Entry, cuts: &[RowCut]) -> Entry {
    let mut value = entry.value().to_vec();
    value.truncate(BIRTH_BYTES);
    for RowCut { seq, span } in cuts {
        put(&mut value, &seq.to_le_bytes());
        for end in [&span.first, &span.last] {
            put(&mut value, end.key());
            put(&mut value, end.value());
        }
    }
    Entry::of_stamp(entry.key(), &value, entry.deadline(), entry.stamp())
}

/// The removal of `count` rows of a table as one change, from the first to the last. `None`: they
/// are few, or must be removed one by one.
pub(crate) fn removal(
    table: &RowTable,
    (first, last): (&Entry, &Entry),
    count: usize,
    cx: &RunContext<'_>,
) -> Option<RowSpan> {
    let ranked = table.ranked()?;
    if count < CUT_LEAST || cx.level < CUTS || ranked.cuts().count() >= CUTS_MAX {
        return None;
    }
    let [first, last] = [first, last].map(|row| RowSpan::end(row, ranked.order()));
    let is_short = |end: &Entry| end.len() <= END_BYTES_MAX;
    (is_short(&first) && is_short(&last)).then_some(RowSpan { first, last })
}

/// As a table.
impl StoredMap {
    /// Whether a row was removed with others, and is only not freed yet.
    pub(crate) fn hides(&self, row: &Entry) -> bool {
        self.ranked().is_some_and(|ranked| ranked.hides(row))
    }

    /// Whether a row is in a range.
    pub(crate) fn spans(&self, span: &RowSpan, row: &Entry) -> bool {
        self.ranked()
            .is_some_and(|ranked| span.holds(row, ranked.order()))
    }

    /// How many rows are hidden, and their bytes.
    pub(super) fn hidden(&self) -> (usize, usize) {
        self.ranked().map_or((0, 0), Ranked::hidden)
    }

    /// Its cuts are those that its entry names.
    pub(super) fn align_cuts(&mut self, entry: &Entry) {
        if let Some(ranked) = &mut self.ranked {
            ranked.set_cuts(cuts_of(entry));
        }
    }

    /// Whether it has rows to free.
    pub(super) fn has_cuts(&self) -> bool {
        self.ranked()
            .is_some_and(|ranked| ranked.cuts().next().is_some())
    }

    /// The rows to free next.
    fn next_freed(&self) -> Option<FreedRows> {
        let ranked = self.ranked()?;
        let (cut, rows) = ranked.first_hidden()?;
        let (mut last, mut work, mut upto) = (None, 0, None);
        for row in rows {
            if let Some(last) = last.filter(|_| work >= FREED_ROWS) {
                let end = |row| RowSpan::end(row, ranked.order());
                upto = Some((end(last), end(row)));
                break;
            }
            work += 1 + row.len() / FREED_BYTES;
            last = Some(row);
        }
        let cut = cut.clone();
        Some(FreedRows { cut, upto })
    }
}

/// Removes ranges of rows from the tables of a store.
pub(super) struct RangeRemoval<'a>(pub(super) &'a mut Store);

impl RangeRemoval<'_> {
    /// Rows of a table are hidden. It changes nothing if the key is no table.
    pub(super) fn cut_rows(&mut self, seq: u64, place: KeyPlace<'_>, span: &RowSpan) -> Undo {
        let Some(entry) = table_entry(self.0, place) else {
            return Undo::Nothing;
        };
        let mut cuts = cuts_of(&entry);
        let span = span.clone();
        cuts.push(RowCut { seq, span });
        let cut = with_cuts(&entry, &cuts);
        cut.date(entry.deadline(), seq);
        self.0.insert(place.0, place.1, cut);
        Undo::Was(entry)
    }

    /// Rows that are hidden are freed. It changes nothing if the key is no table.
    pub(super) fn free_rows(&mut self, place: KeyPlace<'_>, freed: &FreedRows) -> Undo {
        let Some(entry) = table_entry(self.0, place) else {
            return Undo::Nothing;
        };
        let found = self.0.found(place.0, place.1, place.2);
        let ranked = found.table.and_then(StoredMap::ranked);
        let rows = ranked.map(|ranked| ranked.hidden_in(&freed.cut, &freed.span()));
        let rows = rows.unwrap_or_default();
        for row in &rows {
            self.0.remove_row(place, row.key());
        }
        self.set_freed(place, &entry, freed);
        Undo::Freed(Box::new((entry, rows)))
    }

    /// Undoes it.
    pub(super) fn undo_freed(&mut self, place: KeyPlace<'_>, entry: Entry, rows: Vec<Entry>) {
        self.0.insert(place.0, place.1, entry);
        for row in rows {
            self.0.insert_row(place, row);
        }
    }

    /// A cut has no rows before what is left of it.
    fn set_freed(&mut self, (map, order, _): KeyPlace<'_>, entry: &Entry, freed: &FreedRows) {
        let row_order = entry.kind().row_order();
        let mut cuts = cuts_of(entry);
        let Some(at) = cuts.iter().position(|cut| cut.is_same(&freed.cut)) else {
            return;
        };
        match (&freed.upto, row_order) {
            (Some((_, next)), Some(row_order)) => {
                // What a snapshot said may be further already.
                if cuts[at].span.begins_behind(next, row_order) {
                    return;
                }
                cuts[at].span.first = next.clone();
            }
            _ => _ = cuts.remove(at),
        }
        self.0.insert(map, order, with_cuts(entry, &cuts));
    }

    /// The same at a learner: the entry may still come, or be newer than this.
    pub(super) fn cut_rows_fuzzy(
        &mut self,
        seq: u64,
        place: KeyPlace<'_>,
        (kind, span): (Kind, &RowSpan),
    ) {
        let (map, order, key) = place;
        let entry = match self.0.entry(map, order, key) {
            Some(entry) if !entry.is_table() || entry.born() > seq => return,
            Some(entry) => entry.clone(),
            None => {
                let entry = Entry::of_table(kind, key, 0);
                entry.date(0, seq);
                entry
            }
        };
        let span = span.clone();
        let cut = RowCut { seq, span };
        let mut cuts = cuts_of(&entry);
        if !cuts.iter().any(|known| known.is_same(&cut)) {
            let at = cuts.partition_point(|known| known.seq <= seq);
            cuts.insert(at, cut);
        }
        let version = entry.version().max(seq);
        let entry = with_cuts(&entry, &cuts);
        entry.date(entry.deadline(), version);
        self.0.insert(map, order, entry);
    }

    /// The same at a learner: rows may come later that are freed already.
    pub(super) fn free_rows_fuzzy(&mut self, place: KeyPlace<'_>, freed: &FreedRows) {
        let (map, order, key) = place;
        if let Some(t) = &mut self.0.tombstones {
            let all = t.freed.entry((map, Key::from(key))).or_default();
            match all.iter_mut().find(|all| all.cut.is_same(&freed.cut)) {
                Some(all) => all.upto.clone_from(&freed.upto),
                None => all.push(freed.clone()),
            }
        }
        let Some(entry) = table_entry(self.0, place) else {
            return;
        };
        let span = freed.span();
        let found = self.0.found(map, order, key);
        let rows = found.table.and_then(StoredMap::ranked).map(|ranked| {
            // What the log brought before the cut, whose entry the snapshot has brought since.
            let mut rows = ranked.older_in(freed.cut.seq, &span);
            rows.extend(ranked.hidden_in(&freed.cut, &span));
            rows
        });
        for row in rows.unwrap_or_default() {
            self.0.remove_row(place, row.key());
        }
        self.set_freed(place, &entry, freed);
    }
}

/// The entry of a key, if that is a table.
fn table_entry(store: &Store, (map, order, key): KeyPlace<'_>) -> Option<Entry> {
    let entry = store.entry(map, order, key)?;
    entry.is_table().then(|| entry.clone())
}

/// The entry of a table that a snapshot brings, with the cuts that the log has brought.
pub(super) fn with_known_cuts(store: &Store, place: KeyPlace<'_>, entry: Entry) -> Entry {
    let known = table_entry(store, place).map(|known| cuts_of(&known));
    let known = known.unwrap_or_default();
    let freed = store.tombstones.as_ref().and_then(|t| {
        let at = (place.0, Key::from(place.2));
        t.freed.get(&at)
    });
    let freed = freed.map_or(&[][..], Vec::as_slice);
    if known.is_empty() && freed.is_empty() {
        return entry;
    }
    let mut cuts = cuts_of(&entry);
    cuts.retain(|cut| !known.iter().any(|known| known.is_same(cut)));
    cuts.retain_mut(|cut| {
        let freed = freed.iter().find(|freed| freed.cut.is_same(cut));
        match freed.map(|freed| &freed.upto) {
            Some(None) => false,
            Some(Some((_, next))) => {
                let order = entry.kind().row_order();
                if order.is_some_and(|order| !cut.span.begins_behind(next, order)) {
                    cut.span.first = next.clone();
                }
                true
            }
            None => true,
        }
    });
    let born = entry.born();
    cuts.extend(known.into_iter().filter(|known| known.seq > born));
    cuts.sort_by_key(|cut| cut.seq);
    with_cuts(&entry, &cuts)
}

/// Whether any table has rows to free.
pub(crate) fn has_cuts(store: &Store) -> bool {
    store.maps.all.values().any(|map| !map.cut.is_empty())
}

/// Some table that has rows to free, and those to free next.
pub(crate) fn next_freed(store: &Store) -> Option<(MapId, Key, Kind, FreedRows)> {
    store.maps.all.iter().find_map(|(map, held)| {
        let key = held.cut.first()?;
        let order = store.order(key);
        let kind = held.index.get(order, key)?.kind();
        let freed = held.tables.get(order, key)?.1.next_freed()?;
        Some((*map, key.clone(), kind, freed))
    })
}
