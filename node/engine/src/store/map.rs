//! The keys of one map: an index, and the orders beside it.

use super::index::Index;
use super::key_tables::KeyTables;
use super::lazy_migration::MigrationRest;
use super::ranked::Ranked;
use super::surveyor::Surveyor;
use super::table_pages::RowCursors;
use crate::mutant::{self, broken};
use crate::value::entry::{Entry, Key};
use crate::value::types::RowOrder;
use doyen_placement::OrderKey;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;

/// What an entry costs besides the bytes of its key and value: its header, its place in the index,
/// and the rounding of the allocator.
pub(crate) const ENTRY_OVERHEAD: usize = 80;
/// What an entry that expires costs in the set of deadlines.
pub(super) const EXPIRY_OVERHEAD: usize = 32;
/// What an entry costs in the order of keys.
pub(super) const SORTED_OVERHEAD: usize = 16;
/// What a row costs in the order of its table.
pub(super) const RANKED_OVERHEAD: usize = 18;
/// What a table costs besides its rows.
pub(super) const TABLE_OVERHEAD: usize = 448;

/// The keys of one map, or the fields of one table.
#[derive(Debug)]
pub(crate) struct StoredMap {
    pub(super) index: Index,
    /// The same entries in the order of their keys, if the keyspace keeps it.
    pub(super) sorted: Option<BTreeSet<ByKey>>,
    /// The rows of a table in the order of its type, if that has one.
    pub(super) ranked: Option<Box<Ranked>>,
    pub(super) expiring: BTreeSet<(u64, ByKey)>,
    /// The entries whose fields expire, by the first deadline of each.
    pub(super) fields_due: BTreeSet<(u64, ByKey)>,
    /// The rows of each collection that is a table.
    pub(super) tables: KeyTables<Self>,
    /// The tables with rows that expire, by the deadline of the first.
    pub(super) due: BTreeSet<(u64, Key)>,
    /// The tables with rows to free.
    pub(super) cut: BTreeSet<Key>,
    /// The cost of the entries and rows, including those that are still to be migrated.
    pub(super) bytes: usize,
    pub(super) rest: Option<Box<MigrationRest>>,
    /// Where eviction by the limits of this map goes on.
    pub(super) hand: u64,
    /// What cursors through it, if it is a table.
    pub(super) cursors: Option<Box<RowCursors>>,
}

/// An entry that is ordered by its key.
#[derive(Debug, Clone)]
pub(super) struct ByKey(pub(super) Entry);

/// So that a set of entries can be searched by key.
impl Borrow<[u8]> for ByKey {
    fn borrow(&self) -> &[u8] {
        self.0.key()
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ByKey {}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key().cmp(other.0.key())
    }
}

impl StoredMap {
    pub(super) fn new(seed: OrderKey, sorted: bool) -> Self {
        Self {
            index: Index::new(seed),
            sorted: sorted.then(BTreeSet::new),
            ranked: None,
            expiring: BTreeSet::new(),
            fields_due: BTreeSet::new(),
            tables: KeyTables::new(),
            due: BTreeSet::new(),
            cut: BTreeSet::new(),
            bytes: 0,
            rest: None,
            hand: 0,
            cursors: None,
        }
    }

    /// A table for rows of a type that orders them so.
    pub(super) fn table(seed: OrderKey, order: Option<&'static RowOrder>) -> Self {
        Self {
            ranked: order.map(|order| Box::new(Ranked::new(order))),
            ..Self::new(seed, false)
        }
    }

    /// The cost of its keys in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many keys it has, or how many rows that are not hidden.
    pub(crate) fn len(&self) -> usize {
        self.index.len() - self.hidden().0
    }

    /// The same, including about how many are still to be migrated.
    pub(super) fn about(&self) -> usize {
        self.len() + self.rest.as_ref().map_or(0, |rest| rest.keys())
    }

    /// Drops up to `count` keys, fewer if they are large. Returns whether any are left. Large maps
    /// are freed in slices.
    pub(crate) fn shed(&mut self, count: usize) -> bool {
        self.index.shed(count);
        for _ in 0..count.min(self.expiring.len()) {
            self.expiring.pop_first();
        }
        for _ in 0..count.min(self.fields_due.len()) {
            self.fields_due.pop_first();
        }
        let sorted = self.sorted.get_or_insert_default();
        for _ in 0..count.min(sorted.len()) {
            sorted.pop_first();
        }
        let ranked = self
            .ranked
            .as_mut()
            .is_some_and(|ranked| ranked.shed(count));
        let dates = !self.expiring.is_empty() || !self.fields_due.is_empty();
        if ranked || dates || !self.index.is_empty() || !sorted.is_empty() {
            return true;
        }
        if self.tables.shed(|table| table.shed(count)) {
            return true;
        }
        self.rest.as_mut().is_some_and(|rest| rest.shed(count))
    }

    pub(super) fn insert(&mut self, order: u64, entry: Entry) -> Replaced {
        self.bytes += self.cost(&entry);
        let dated = |at| (at != 0).then(|| (at, ByKey(entry.clone())));
        let (expires, due) = (dated(entry.deadline()), dated(entry.fields_due()));
        if let Some(sorted) = &mut self.sorted {
            sorted.replace(ByKey(entry.clone()));
        }
        let made = entry.is_table().then(|| entry.clone());
        let ranked = self.ranked.as_ref().map(|_| entry.clone());
        let old = self.index.replace(order, entry);
        if let Some((ranked, row)) = self.ranked.as_mut().zip(ranked) {
            let leaves = |_: &&Entry| !broken(&mutant::RANKS_AS_BEFORE);
            ranked.put(old.as_ref().filter(leaves), row);
        }
        self.drop_old(&old);
        self.expiring.extend(expires);
        self.fields_due.extend(due);
        let table = self.exchange(order, old.as_ref(), made.as_ref());
        Replaced { entry: old, table }
    }

    /// Subtracts the cost of an entry that left the index.
    pub(super) fn drop_old(&mut self, old: &Option<Entry>) {
        let Some(old) = old else { return };
        self.bytes -= self.cost(old);
        if old.deadline() != 0 {
            self.expiring.remove(&(old.deadline(), ByKey(old.clone())));
        }
        let due = old.fields_due();
        if due != 0 {
            self.fields_due.remove(&(due, ByKey(old.clone())));
        }
    }

    pub(super) fn remove(&mut self, order: u64, key: &[u8]) -> Replaced {
        let old = self.index.take(order, key);
        if let Some(sorted) = &mut self.sorted {
            sorted.remove(key);
        }
        if let Some(rest) = &mut self.rest {
            rest.forget(order, key);
        }
        if let Some((ranked, row)) = self.ranked.as_mut().zip(old.as_ref()) {
            ranked.remove(row);
        }
        self.drop_old(&old);
        let table = self.exchange(order, old.as_ref(), None);
        Replaced { entry: old, table }
    }

    /// Gives an entry another deadline and version. Returns the former ones.
    pub(super) fn date(
        &mut self,
        order: u64,
        key: &[u8],
        deadline: u64,
        version: u64,
    ) -> Option<(u64, u64)> {
        let entry = self.index.get(order, key)?.clone();
        let old = (entry.deadline(), entry.version());
        self.bytes -= self.cost(&entry);
        if old.0 != 0 {
            self.expiring.remove(&(old.0, ByKey(entry.clone())));
        }
        entry.date(deadline, version);
        self.bytes += self.cost(&entry);
        if deadline != 0 {
            self.expiring.insert((deadline, ByKey(entry)));
        }
        Some(old)
    }

    /// Lets a segment of the index be looked at. False: there is none with this number.
    pub(super) fn survey(&mut self, number: usize, surveyor: &mut impl Surveyor) -> bool {
        let Self {
            index,
            sorted,
            ranked,
            expiring,
            fields_due,
            ..
        } = self;
        index.survey(number, surveyor, |entry, surveyor| {
            let deadline = entry.deadline();
            let orders = usize::from(sorted.is_some()) + usize::from(ranked.is_some());
            let due = entry.fields_due();
            let holds = 1 + orders + usize::from(deadline != 0) + usize::from(due != 0);
            let moved = surveyor.entry(entry, holds)?;
            if let Some(ranked) = ranked {
                ranked.put(Some(entry), moved.clone());
            }
            if let Some(sorted) = sorted {
                sorted.replace(ByKey(moved.clone()));
            }
            if deadline != 0 {
                expiring.replace((deadline, ByKey(moved.clone())));
            }
            if due != 0 {
                fields_due.replace((due, ByKey(moved.clone())));
            }
            Some(moved)
        })
    }

    pub(super) fn cost(&self, entry: &Entry) -> usize {
        cost(entry) + self.orders_cost()
    }

    /// What each entry costs in the orders beside the index.
    pub(super) fn orders_cost(&self) -> usize {
        let order = |is_there: bool, cost: usize| if is_there { cost } else { 0 };
        order(self.sorted.is_some(), SORTED_OVERHEAD)
            + order(self.ranked.is_some(), RANKED_OVERHEAD)
    }

    /// Sorted entries from one key up to, but not including, another. An empty end means none.
    pub(super) fn range(&self, from: &[u8], to: &[u8]) -> impl DoubleEndedIterator<Item = &Entry> {
        let end = if to.is_empty() {
            Bound::Unbounded
        } else {
            Bound::Excluded(to)
        };
        // The range of a set panics if its end is before its beginning.
        let sorted = self.sorted.as_ref().filter(|_| to.is_empty() || from < to);
        sorted
            .into_iter()
            .flat_map(move |sorted| sorted.range::<[u8], _>((Bound::Included(from), end)))
            .map(|ByKey(entry)| entry)
    }
}

/// The fields of a hash that are rows.
pub(crate) type RowTable = StoredMap;

/// What a key had.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    pub(super) entry: Option<Entry>,
    /// In a box, so that the many changes without one do not move the room for it.
    pub(super) table: Option<Box<StoredMap>>,
}

/// The cost of an entry without the order of keys.
pub(crate) fn cost(entry: &Entry) -> usize {
    let dates = usize::from(entry.deadline() != 0) + usize::from(entry.fields_due() != 0);
    entry.len() + ENTRY_OVERHEAD + dates * EXPIRY_OVERHEAD
}
