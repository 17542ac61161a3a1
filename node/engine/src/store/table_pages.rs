//! Reads of a large table in pages, as its rows were when the first page was read.
//!
//! ```text
//!   begin: number n ─> page ─> page ─> .. ─> over
//!                        ▲
//!   each page: the rows of the table, and where a row has changed since n, what it was then
//!   each change: what the row was, once for all walks that began since the row last changed
//! ```
//! So walks cost as much memory as changes meanwhile, up to a limit, however many they are. Beyond
//! it, the oldest walk is lost. A table that is dropped goes with its walks, first to the log, as
//! what undoing would bring back, and then to the garbage, which frees it once they are over. Walks
//! are lost, too, if the map is cleared, if the partition is split or merged, or if another member
//! leads it.

use super::contents::Store;

use super::index::Index;
use super::map::{ENTRY_OVERHEAD, Map};
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
/// Walks in one table.
const WALKS_MAX: usize = 1_024;
/// What former rows may take: this many bytes, or this part of the table. There are never more than
/// `FORMER_MAX`, because they are dropped at once.
const FORMER_BYTES: usize = 4 << 20;
const FORMER_PART: usize = 2;
const FORMER_MAX: usize = 30_000;
/// Former rows that no walk needs any more may take this much before they are looked for.
const LOOSE_BYTES: usize = 256 << 10;

/// Former rows by their places in the order of the index.
type FormerRows = BTreeMap<(u64, Key), Vec<(u64, Option<Entry>)>>;

/// The walks through the rows of a table.
#[derive(Debug, Default)]
pub(super) struct TableWalks {
    all: Vec<Walk>,
    /// How many walks have begun: the number of the newest.
    begun: u64,
    /// Rows that have changed, by their places. Each was this when it first changed after the walk
    /// of this number had begun, and before a newer one did. `None`: there was none.
    former: FormerRows,
    former_bytes: usize,
    /// How many there are.
    former_count: usize,
    /// From this many bytes on, those that no walk needs are looked for.
    prune_at: usize,
}

/// A walk through the rows of a table.
#[derive(Debug)]
struct Walk {
    number: u64,
    /// How many pages were read.
    pages: u32,
    /// When it began: rows that were overdue then do not count.
    clock: u64,
    /// The kind of the table, and its version when it began.
    kind: Kind,
    version: u64,
    /// Which one of the table's walks it is.
    n: u64,
    /// The last row that was read.
    after: Option<(u64, Key)>,
}

/// A page of a walk.
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

impl TableWalks {
    /// A row changes that was this.
    fn keep(&mut self, at: (u64, &[u8]), row: Option<&Entry>, bytes_max: usize) {
        let begun = self.begun;
        let kept = self.former.entry((at.0, at.1.into())).or_default();
        if kept.last().is_some_and(|(n, _)| *n >= begun) {
            // Every walk finds it as it was.
            return;
        }
        kept.push((begun, row.cloned()));
        self.former_bytes += former_cost(at.1, row);
        self.former_count += 1;
        let is_too_much =
            |walks: &Self| walks.former_bytes > bytes_max || walks.former_count > FORMER_MAX;
        if self.former_bytes >= self.prune_at || is_too_much(self) {
            self.prune();
            while is_too_much(self) && !self.all.is_empty() {
                let oldest = self.all.iter().map(|walk| walk.n).min();
                self.all.retain(|walk| Some(walk.n) != oldest);
                self.prune();
            }
        }
    }

    /// Drops the former rows that no walk needs.
    fn prune(&mut self) {
        let Some(oldest) = self.all.iter().map(|walk| walk.n).min() else {
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

    /// A walk is over.
    fn end(&mut self, number: u64) {
        let before = self.all.len();
        self.all.retain(|walk| walk.number != number);
        if self.all.is_empty() && before > 0 {
            self.prune();
        }
    }
}

/// What a row was when a walk began. `None`: what it is now.
fn at_begin(kept: &[(u64, Option<Entry>)], walk: u64) -> Option<Option<&Entry>> {
    let first = kept.iter().find(|(n, _)| *n >= walk);
    first.map(|(_, row)| row.as_ref())
}

/// As a table.
impl Map {
    /// Whether it is large enough to be read in pages of `rows`.
    pub(crate) fn is_paged(&self, rows: usize) -> bool {
        self.len() > rows * WHOLE_PAGES_MAX || self.bytes > PAGE_BYTES * WHOLE_PAGES_MAX
    }

    /// Whether something walks through it.
    pub(crate) fn is_walked(&self) -> bool {
        self.walks
            .as_ref()
            .is_some_and(|walks| !walks.all.is_empty())
    }

    /// Its walks are lost.
    pub(super) fn lose_walks(&mut self) {
        self.walks = None;
    }

    /// The table, if this walk is in it.
    pub(crate) fn walked(&mut self, number: u64) -> Option<&mut Self> {
        let mut walks = self.walks.iter().flat_map(|walks| &walks.all);
        let own = walks.any(|walk| walk.number == number);
        own.then_some(self)
    }

    /// Ends a walk, if it is not over.
    pub(crate) fn end_walk(&mut self, number: u64) {
        if let Some(walks) = &mut self.walks {
            walks.end(number);
        }
    }

    /// What its walks keep.
    pub(super) fn walks_cost(&self) -> usize {
        self.walks.as_ref().map_or(0, |walks| walks.former_bytes)
    }

    /// A row changes that was this.
    pub(super) fn note_former(&mut self, field: &[u8], row: Option<&Entry>) {
        if let Some(walks) = self
            .walks
            .as_deref_mut()
            .filter(|walks| !walks.all.is_empty())
        {
            let bytes_max = FORMER_BYTES.max(self.bytes / FORMER_PART);
            walks.keep((self.index.order(field), field), row, bytes_max);
        }
    }

    fn begin_walk(&mut self, number: u64, clock: u64, (kind, version): (Kind, u64)) -> bool {
        let walks = self.walks.get_or_insert_default();
        if walks.all.len() >= WALKS_MAX {
            return false;
        }
        walks.begun += 1;
        walks.all.push(Walk {
            number,
            pages: 0,
            clock,
            kind,
            version,
            n: walks.begun,
            after: None,
        });
        true
    }

    /// Page `page` of walk `number`, with at most `rows`. `None`: the walk is lost.
    pub(crate) fn read_page(&mut self, (number, page): (u64, u32), rows: usize) -> Option<Page> {
        let walks = self.walks.as_deref_mut()?;
        let walk = walks.all.iter_mut().find(|walk| walk.number == number)?;
        let in_turn = walk.pages == page;
        let page = in_turn.then(|| walk.next_page(&self.index, &walks.former, rows));
        if page.as_ref().is_none_or(|page| page.is_last) {
            walks.end(number);
        }
        page
    }
}

impl Walk {
    fn next_page(&mut self, index: &Index, former: &FormerRows, rows: usize) -> Page {
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
            if let Some(row) = row.filter(|row| !row.overdue(self.clock)) {
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
    /// Begins to walk through the table of a key. False: too many walk already.
    pub(crate) fn begin_walk(
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
        let begin = |table: &mut Map| table.begin_walk(number, clock, of);
        self.in_table(map, key, begin).unwrap_or(false)
    }

    /// The same of the table of a key.
    pub(crate) fn read_page(
        &mut self,
        (map, key): (MapId, &[u8]),
        walk: (u64, u32),
        rows: usize,
    ) -> Option<Page> {
        self.in_table(map, key, |table| table.read_page(walk, rows))?
    }

    /// Ends a walk through the table of a key, if it is not over.
    pub(crate) fn end_walk(&mut self, (map, key): (MapId, &[u8]), number: u64) {
        self.in_table(map, key, |table| table.end_walk(number));
    }
}
