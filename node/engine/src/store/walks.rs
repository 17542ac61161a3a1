//! Reads of a large table in pages, as its rows were when the first page was read.
//!
//! ```text
//!   begin ─> page ─> page ─> .. ─> what changed before its page was read ─> over
//!              ▲                              ▲
//!   rows of the table                a row that changes before its page is kept as it was
//! ```
//! So a walk costs as much memory as changes ahead of it, up to a limit. A table that is dropped
//! goes with its walks, first to the log, as what undoing would bring back, and then to the
//! garbage, which frees it once they are over. Walks are lost if the map is cleared, if the
//! partition is split or merged, or if another member leads it.

use super::{ENTRY_OVERHEAD, Entry, Key, Map, MapId, Store};
use crate::hash;
use bytes::Bytes;
use std::collections::BTreeMap;

/// About how many bytes a page has at most.
const PAGE_BYTES: usize = 256 << 10;
/// Walks in one table.
const WALKS_MAX: usize = 64;
/// Bytes of former rows that a walk keeps.
const FORMER_BYTES_MAX: usize = 4 << 20;

/// A table of more pages is read in pages, so that others need not wait for it.
const WHOLE_PAGES_MAX: usize = 4;

/// A walk through the rows of a table.
#[derive(Debug)]
pub(super) struct Walk {
    number: u64,
    /// How many pages were read.
    pages: u32,
    /// When it began: rows that were overdue then do not count.
    clock: u64,
    /// The version of the table when it began.
    version: u64,
    place: Place,
    /// Rows that have changed before their page was read, as they were. `None`: there was none.
    former: BTreeMap<Key, Option<Entry>>,
    former_bytes: usize,
}

/// How far a walk has come.
#[derive(Debug)]
enum Place {
    Beginning,
    After(Key),
    /// Only former rows are left.
    End,
}

/// A page of a walk.
#[derive(Debug)]
pub(in super::super) struct Page {
    /// Fields with their values, in one run of bytes.
    pub(in super::super) fields: Bytes,
    /// Whether no page follows.
    pub(in super::super) is_last: bool,
    /// The version of what was read.
    pub(in super::super) version: u64,
}

impl Walk {
    /// What it keeps.
    pub(super) const fn cost(&self) -> usize {
        self.former_bytes
    }

    /// Keeps a row as it was, unless it is kept already. False: that is too much.
    fn keep(&mut self, field: &[u8], former: Option<&Entry>) -> bool {
        if !self.former.contains_key(field) {
            let bytes = former.map_or(field.len(), Entry::len) + ENTRY_OVERHEAD;
            self.former_bytes += bytes;
            self.former.insert(field.into(), former.cloned());
        }
        self.former_bytes <= FORMER_BYTES_MAX
    }

    /// Takes a row that was kept.
    fn take(&mut self, field: &[u8]) -> Option<Option<Entry>> {
        let (field, former) = self.former.remove_entry(field)?;
        self.give_up(&field, former.as_ref());
        Some(former)
    }

    fn give_up(&mut self, field: &[u8], former: Option<&Entry>) {
        self.former_bytes -= former.map_or(field.len(), Entry::len) + ENTRY_OVERHEAD;
    }
}

/// The next page, as it grows.
#[derive(Debug)]
struct Growing {
    bytes: Vec<u8>,
    /// How many more rows it may have.
    rows: usize,
}

impl Growing {
    const fn is_full(&self) -> bool {
        self.rows == 0 || self.bytes.len() >= PAGE_BYTES
    }

    fn put(&mut self, row: Option<&Entry>, clock: u64) {
        self.rows = self.rows.saturating_sub(1);
        if let Some(row) = row.filter(|row| !row.overdue(clock)) {
            hash::put(&mut self.bytes, row.key());
            hash::put(&mut self.bytes, row.value());
        }
    }
}

/// As a table.
impl Map {
    /// Whether it is so large that it is read in pages of so many rows.
    pub(in super::super) fn is_paged(&self, rows: usize) -> bool {
        self.len() > rows * WHOLE_PAGES_MAX || self.bytes > PAGE_BYTES * WHOLE_PAGES_MAX
    }

    /// Whether something walks through it.
    pub(in super::super) const fn is_walked(&self) -> bool {
        !self.walks.is_empty()
    }

    /// Its walks are lost.
    pub(super) fn lose_walks(&mut self) {
        self.walks = Vec::new();
    }

    /// The table, if this walk is in it.
    pub(in super::super) fn walked(&mut self, number: u64) -> Option<&mut Self> {
        let own = self.walks.iter().any(|walk| walk.number == number);
        own.then_some(self)
    }

    /// Ends a walk, if it is not over.
    pub(in super::super) fn end_walk(&mut self, number: u64) {
        self.walks.retain(|walk| walk.number != number);
    }

    /// What its walks keep.
    pub(super) fn walks_cost(&self) -> usize {
        self.walks.iter().map(Walk::cost).sum()
    }

    /// A row has changed that was this.
    pub(super) fn note_former(&mut self, field: &[u8], former: Option<&Entry>) {
        if !self.is_walked() {
            return;
        }
        let place = |field: &[u8]| self.index.order(field);
        let at = (place(field), field);
        let walks = std::mem::take(&mut self.walks).into_iter();
        let goes_on = walks.filter_map(|mut walk| {
            let is_ahead = match &walk.place {
                Place::Beginning => true,
                Place::After(last) => (place(last), &**last) < at,
                Place::End => false,
            };
            (!is_ahead || walk.keep(field, former)).then_some(walk)
        });
        self.walks = goes_on.collect();
    }

    /// The page after so many of a walk, with so many rows at most. `None`: the walk is lost.
    pub(in super::super) fn read_page(
        &mut self,
        (number, page): (u64, u32),
        rows: usize,
    ) -> Option<Page> {
        let at = self.walks.iter().position(|walk| walk.number == number)?;
        let mut walk = self.walks.swap_remove(at);
        if walk.pages != page {
            return None;
        }
        walk.pages += 1;
        let mut growing = Growing {
            bytes: Vec::new(),
            rows: rows.max(1),
        };
        let after = match &walk.place {
            Place::Beginning => Some(None),
            Place::After(last) => Some(Some(last.clone())),
            Place::End => None,
        };
        if let Some(after) = after {
            let mut rows = self.index.iter_after(after.as_deref());
            let mut last = None;
            while !growing.is_full() {
                last = rows.next();
                let Some(row) = last else { break };
                match walk.take(row.key()) {
                    Some(former) => growing.put(former.as_ref(), walk.clock),
                    None => growing.put(Some(row), walk.clock),
                }
            }
            walk.place = last.map_or(Place::End, |row| Place::After(row.key().into()));
        }
        if matches!(walk.place, Place::End) {
            while !growing.is_full()
                && let Some((field, former)) = walk.former.pop_first()
            {
                walk.give_up(&field, former.as_ref());
                growing.put(former.as_ref(), walk.clock);
            }
        }
        let is_last = matches!(walk.place, Place::End) && walk.former.is_empty();
        let version = walk.version;
        if !is_last {
            self.walks.push(walk);
        }
        Some(Page {
            fields: growing.bytes.into(),
            is_last,
            version,
        })
    }
}

impl Store {
    /// Begins to walk through the table of a key. False: so many do that one more may not.
    pub(in super::super) fn begin_walk(
        &mut self,
        (map, key): (MapId, &[u8]),
        number: u64,
        clock: u64,
    ) -> bool {
        let order = self.order(key);
        let Some(version) = self.entry(map, order, key).map(Entry::version) else {
            return false;
        };
        let begin = |table: &mut Map| {
            let may = table.walks.len() < WALKS_MAX;
            if may {
                table.walks.push(Walk {
                    number,
                    pages: 0,
                    clock,
                    version,
                    place: Place::Beginning,
                    former: BTreeMap::new(),
                    former_bytes: 0,
                });
            }
            may
        };
        self.in_table(map, key, begin).unwrap_or(false)
    }

    /// The same of the table of a key.
    pub(in super::super) fn read_page(
        &mut self,
        (map, key): (MapId, &[u8]),
        walk: (u64, u32),
        rows: usize,
    ) -> Option<Page> {
        self.in_table(map, key, |table| table.read_page(walk, rows))?
    }

    /// Ends a walk through the table of a key, if it is not over.
    pub(in super::super) fn end_walk(&mut self, (map, key): (MapId, &[u8]), number: u64) {
        self.in_table(map, key, |table| table.end_walk(number));
    }
}
