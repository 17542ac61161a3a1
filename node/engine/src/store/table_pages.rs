//! Reads of a large table in pages, as its rows were when the first page was read.
//!
//! ```text
//!   begin: number n ─> page ─> page ─> .. ─> over
//!                        ▲
//!   each page: the rows of the table, and where a row has changed since n, what it was then
//!   each change: what the row was, once for all cursors that began since the row last changed
//! ```
//! So cursors cost as much memory as changes meanwhile, up to a limit, however many they are.
//! Beyond it, the oldest cursor is lost. A table that is dropped goes with its cursors, first to
//! the log, as what undoing would bring back, and then to the garbage, which frees it once they are
//! over. Cursors are lost, too, if the map is cleared, if the partition is split or merged, or if
//! another member leads it.

use super::contents::Store;
use super::cuts::RowCut;
use super::index::Index;
use super::map::{ENTRY_OVERHEAD, StoredMap};
use super::ranked::Ranked;
use crate::value::entry::{Entry, Key};
use crate::value::kind::Kind;
use bytes::Bytes;
use doyen_placement::MapId;
use std::collections::BTreeMap;
use std::ops::Bound;

/// About how many bytes a page has at most.
const PAGE_BYTES: usize = 256 << 10;
/// A table of more pages is read in pages, so that others need not wait for it.
const WHOLE_PAGES_MAX: usize = 4;
/// Cursors in one table.
const CURSORS_MAX: usize = 1_024;
/// What former rows may take: this many bytes, or this part of the table. There are never more than
/// `FORMER_MAX`, because they are dropped at once.
const FORMER_BYTES: usize = 4 << 20;
const FORMER_PART: usize = 2;
const FORMER_MAX: usize = 30_000;
/// Former rows that no cursor needs any more may take this much before they are looked for.
const LOOSE_BYTES: usize = 256 << 10;

/// Former rows by their places in the order of the index.
type OldRows = BTreeMap<(u64, Key), Vec<(u64, Option<Entry>)>>;

/// The cursors through the rows of a table.
#[derive(Debug, Default)]
pub(super) struct RowCursors {
    all: Vec<RowCursor>,
    /// How many cursors have begun: the number of the newest.
    begun: u64,
    /// Rows that have changed, by their places. Each was this when it first changed after the
    /// cursor of this number had begun, and before a newer one did. `None`: there was none.
    former: OldRows,
    former_bytes: usize,
    /// How many there are.
    former_count: usize,
    /// From this many bytes on, those that no cursor needs are looked for.
    prune_at: usize,
}

/// A cursor through the rows of a table.
#[derive(Debug)]
struct RowCursor {
    number: u64,
    /// How many pages were read.
    pages: u32,
    /// When it began: rows that were overdue then do not count.
    clock: u64,
    /// The kind of the table, and its version when it began.
    kind: Kind,
    version: u64,
    /// Which one of the table's cursors it is.
    n: u64,
    /// The rows that were hidden then.
    cuts: Vec<RowCut>,
    /// The last row that was read.
    after: Option<(u64, Key)>,
}

/// A page of a cursor.
#[derive(Debug)]
pub(crate) struct Page {
    /// Fields with their values, in one run of bytes.
    pub(crate) fields: Bytes,
    /// Whether no page follows.
    pub(crate) is_last: bool,
    /// The version of what was read.
    pub(crate) version: u64,
}

/// What a former row costs.
fn former_cost(field: &[u8], row: Option<&Entry>) -> usize {
    row.map_or(field.len(), Entry::len) + ENTRY_OVERHEAD
}

impl RowCursors {
    /// A row changes that was this.
    fn keep(&mut self, at: (u64, &[u8]), row: Option<&Entry>, bytes_max: usize) {
        if let Some(row) = row
            && self.all.iter().all(|cursor| cursor.hides(row))
        {
            return;
        }
        let begun = self.begun;
        let kept = self.former.entry((at.0, at.1.into())).or_default();
        if kept.last().is_some_and(|(n, _)| *n >= begun) {
            // Every cursor finds it as it was.
            return;
        }
        kept.push((begun, row.cloned()));
        self.former_bytes += former_cost(at.1, row);
        self.former_count += 1;
        let is_too_much =
            |cursors: &Self| cursors.former_bytes > bytes_max || cursors.former_count > FORMER_MAX;
        if self.former_bytes >= self.prune_at || is_too_much(self) {
            self.prune();
            while is_too_much(self) && !self.all.is_empty() {
                let oldest = self.all.iter().map(|cursor| cursor.n).min();
                self.all.retain(|cursor| Some(cursor.n) != oldest);
                self.prune();
            }
        }
    }

    /// Drops the former rows that no cursor needs.
    fn prune(&mut self) {
        let Some(oldest) = self.all.iter().map(|cursor| cursor.n).min() else {
            *self = Self {
                begun: self.begun,
                ..Self::default()
            };
            return;
        };
        let (mut bytes, mut count) = (0, 0);
        self.former.retain(|(_, field), kept| {
            kept.retain(|(n, _)| *n >= oldest);
            count += kept.len();
            bytes += kept
                .iter()
                .map(|(_, row)| former_cost(field, row.as_ref()))
                .sum::<usize>();
            !kept.is_empty()
        });
        (self.former_bytes, self.former_count) = (bytes, count);
        self.prune_at = 2 * bytes + LOOSE_BYTES;
    }

    /// A cursor is over.
    fn end(&mut self, number: u64) {
        let before = self.all.len();
        self.all.retain(|cursor| cursor.number != number);
        if self.all.is_empty() && before > 0 {
            self.prune();
        }
    }
}

/// What a row was when a cursor began. `None`: what it is now.
fn at_begin(kept: &[(u64, Option<Entry>)], cursor: u64) -> Option<Option<&Entry>> {
    let first = kept.iter().find(|(n, _)| *n >= cursor);
    first.map(|(_, row)| row.as_ref())
}

/// As a table.
impl StoredMap {
    /// Whether it is large enough to be read in pages of `rows`.
    pub(crate) fn is_paged(&self, rows: usize) -> bool {
        self.len() > rows * WHOLE_PAGES_MAX || self.bytes > PAGE_BYTES * WHOLE_PAGES_MAX
    }

    /// Whether something cursors through it.
    pub(crate) fn has_cursors(&self) -> bool {
        self.cursors
            .as_ref()
            .is_some_and(|cursors| !cursors.all.is_empty())
    }

    /// Its cursors are lost.
    pub(super) fn lose_cursors(&mut self) {
        self.cursors = None;
    }

    /// The table, if this cursor is in it.
    pub(crate) fn walked(&mut self, number: u64) -> Option<&mut Self> {
        let mut cursors = self.cursors.iter().flat_map(|cursors| &cursors.all);
        let own = cursors.any(|cursor| cursor.number == number);
        own.then_some(self)
    }

    /// Ends a cursor, if it is not over.
    pub(crate) fn end_cursor(&mut self, number: u64) {
        if let Some(cursors) = &mut self.cursors {
            cursors.end(number);
        }
    }

    /// What its cursors keep.
    pub(super) fn cursors_cost(&self) -> usize {
        self.cursors
            .as_ref()
            .map_or(0, |cursors| cursors.former_bytes)
    }

    /// A row changes that was this.
    pub(super) fn note_former(&mut self, field: &[u8], row: Option<&Entry>) {
        if let Some(cursors) = self
            .cursors
            .as_deref_mut()
            .filter(|cursors| !cursors.all.is_empty())
        {
            let bytes_max = FORMER_BYTES.max(self.bytes / FORMER_PART);
            cursors.keep((self.index.order(field), field), row, bytes_max);
        }
    }

    fn begin_cursor(&mut self, number: u64, clock: u64, (kind, version): (Kind, u64)) -> bool {
        let cuts = self.ranked().into_iter().flat_map(Ranked::cuts);
        let cuts = cuts.cloned().collect();
        let cursors = self.cursors.get_or_insert_default();
        if cursors.all.len() >= CURSORS_MAX {
            return false;
        }
        cursors.begun += 1;
        cursors.all.push(RowCursor {
            number,
            pages: 0,
            clock,
            kind,
            version,
            n: cursors.begun,
            cuts,
            after: None,
        });
        true
    }

    /// Page `page` of cursor `number`, with at most `rows`. `None`: the cursor is lost.
    pub(crate) fn read_page(&mut self, (number, page): (u64, u32), rows: usize) -> Option<Page> {
        let cursors = self.cursors.as_deref_mut()?;
        let cursor = cursors
            .all
            .iter_mut()
            .find(|cursor| cursor.number == number)?;
        let in_turn = cursor.pages == page;
        let page = in_turn.then(|| cursor.next_page(&self.index, &cursors.former, rows));
        if page.as_ref().is_none_or(|page| page.is_last) {
            cursors.end(number);
        }
        page
    }
}

impl RowCursor {
    /// Whether a row was hidden when it began.
    fn hides(&self, row: &Entry) -> bool {
        let order = self.kind.row_order();
        order.is_some_and(|order| self.cuts.iter().any(|cut| cut.hides(row, order)))
    }

    fn next_page(&mut self, index: &Index, former: &OldRows, rows: usize) -> Page {
        self.pages += 1;
        let form = self.kind.pairs(&[]);
        let after = self.after.take();
        let now = index.iter_after(after.as_ref().map(|(_, field)| &**field));
        let mut now = now
            .map(|row| ((index.order(row.key()), row.key()), row))
            .peekable();
        let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut was = former
            .range((from, Bound::Unbounded))
            .map(|((order, field), kept)| ((*order, &**field), kept))
            .peekable();
        let (mut fields, mut left, mut last) = (Vec::new(), rows.max(1), None);
        let is_last = loop {
            let at = match (now.peek(), was.peek()) {
                (None, None) => break true,
                (Some((at, _)), None) => *at,
                (None, Some((at, _))) => *at,
                (Some((now, _)), Some((was, _))) => *now.min(was),
            };
            if left == 0 || fields.len() >= PAGE_BYTES {
                break false;
            }
            left -= 1;
            let current = now.next_if(|(place, _)| *place == at).map(|(_, row)| row);
            let kept = was.next_if(|(place, _)| *place == at);
            let kept = kept.and_then(|(_, kept)| at_begin(kept, self.n));
            let row = kept.unwrap_or(current);
            if let Some(row) = row.filter(|row| !row.overdue(self.clock) && !self.hides(row)) {
                form.put(&mut fields, row.key(), row.value());
            }
            last = Some(at);
        };
        self.after = last.map(|(order, field)| (order, field.into()));
        Page {
            fields: fields.into(),
            is_last,
            version: self.version,
        }
    }
}

impl Store {
    /// Begins to cursor through the table of a key. False: too many cursor already.
    pub(crate) fn begin_cursor(
        &mut self,
        (map, key): (MapId, &[u8]),
        number: u64,
        clock: u64,
    ) -> bool {
        let order = self.order(key);
        let table = self.entry(map, order, key);
        let Some(of) = table.map(|entry| (entry.kind(), entry.version())) else {
            return false;
        };
        let begin = |table: &mut StoredMap| table.begin_cursor(number, clock, of);
        self.in_table((map, order, key), begin).unwrap_or(false)
    }

    /// The same of the table of a key.
    pub(crate) fn read_page(
        &mut self,
        (map, key): (MapId, &[u8]),
        cursor: (u64, u32),
        rows: usize,
    ) -> Option<Page> {
        let place = (map, self.order(key), key);
        self.in_table(place, |table| table.read_page(cursor, rows))?
    }

    /// Ends a cursor through the table of a key, if it is not over.
    pub(crate) fn end_cursor(&mut self, (map, key): (MapId, &[u8]), number: u64) {
        let place = (map, self.order(key), key);
        self.in_table(place, |table| table.end_cursor(number));
    }
}
