//! A stream as procedures read and edit it: a table of rows (`value/types/stream.rs`).
//!
//! Rows lie in the order of their keys, so a range of ids is a range of rows, and its length is
//! known without a walk. An edit is a set of rows that come and go.

use super::budget::Budget;
use super::change::{KeyChange, RowChange};
use super::cuts::{self, RowSpan};
use super::ranked::Ranked;
use super::run_context::{RunContext, kept};
use super::{FoundKey, RowTable};
use crate::value::entry::Entry;
use crate::value::items::{Pairs, put};
use crate::value::kind::Kind;
use crate::value::types::stream::{
    GROUPS, META, PendingEntry, StreamConsumer, StreamGroup, StreamId, StreamMeta, consumer_key,
    entry_key, group_key, id_of_key, pending_key, pending_keys,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// All ids.
pub(crate) const ALL_IDS: RangeInclusive<StreamId> = StreamId::ZERO..=StreamId::MAX;

/// A stream as a procedure reads it.
#[derive(Clone, Copy)]
pub(crate) struct StreamView<'a> {
    entry: Option<&'a Entry>,
    table: Option<&'a RowTable>,
    budget: &'a Budget,
}

impl<'a> StreamView<'a> {
    /// What a key with a stream holds. An absent stream is empty.
    pub(crate) const fn of(found: FoundKey<'a>, cx: &RunContext<'a>) -> Self {
        Self {
            entry: found.entry,
            table: found.table,
            budget: cx.budget,
        }
    }

    /// Whether its key exists.
    pub(crate) const fn exists(self) -> bool {
        self.entry.is_some()
    }

    fn ranked(self) -> Option<&'a Ranked> {
        self.table.and_then(RowTable::ranked)
    }

    fn row(self, key: &[u8]) -> Option<&'a Entry> {
        self.budget.element();
        self.table?.row(key)
    }

    /// How many rows have keys below this one.
    fn rows_below(self, key: &[u8]) -> usize {
        self.budget.element();
        let below = |ranked: &Ranked| ranked.len_while(|row| row.key() < key);
        self.ranked().map_or(0, below)
    }

    /// The rows whose keys are between these, in order or in reverse. They end early once the
    /// operation has done too much.
    fn rows_between(
        self,
        (from, to): (Vec<u8>, Vec<u8>),
        reverse: bool,
    ) -> impl Iterator<Item = &'a Entry> {
        let first = if reverse {
            let not_above = |ranked: &Ranked| ranked.len_while(|row| row.key() <= &to[..]);
            self.ranked().map_or(0, not_above).checked_sub(1)
        } else {
            Some(self.rows_below(&from))
        };
        let rows = self.ranked().zip(first);
        let rows = rows.map(|(ranked, first)| ranked.rows_from(first, reverse));
        let budget = self.budget;
        rows.into_iter()
            .flatten()
            .take_while(move |row| row.key() >= &from[..] && row.key() <= &to[..])
            .take_while(move |row| budget.element_of(row.len()))
    }

    /// The rows whose keys begin so, each with the rest of its key.
    fn rows_of(self, prefix: Vec<u8>) -> impl Iterator<Item = (&'a [u8], &'a Entry)> {
        let first = self.rows_below(&prefix);
        let rows = self.ranked().map(|ranked| ranked.rows_from(first, false));
        let budget = self.budget;
        rows.into_iter()
            .flatten()
            .map_while(move |row| Some((row.key().strip_prefix(&prefix[..])?, row)))
            .take_while(move |(_, row)| budget.element_of(row.len()))
    }

    /// What is to be known of it besides its entries.
    pub(crate) fn meta(self) -> StreamMeta {
        let row = self.row(META);
        row.map_or_else(StreamMeta::default, |row| StreamMeta::of_value(row.value()))
    }

    /// How many entries it has.
    pub(crate) fn len(self) -> usize {
        self.len_within(ALL_IDS)
    }

    /// How many entries have ids in a range.
    pub(crate) fn len_within(self, ids: RangeInclusive<StreamId>) -> usize {
        let below = self.rows_below(&entry_key(*ids.start()));
        let end = match ids.end().next() {
            Some(next) => self.rows_below(&entry_key(next)),
            // Keys of entries end there.
            None => self.rows_below(b"f"),
        };
        end.saturating_sub(below)
    }

    /// The entries with ids in a range, in order or in reverse. The value of a row has the fields.
    pub(crate) fn entries(
        self,
        ids: RangeInclusive<StreamId>,
        reverse: bool,
    ) -> impl Iterator<Item = (StreamId, &'a Entry)> {
        let keys = [ids.start(), ids.end()].map(|id| entry_key(*id).to_vec());
        let [from, to] = keys;
        let rows = self.rows_between((from, to), reverse);
        rows.map(|row| (id_of_key(row.key()), row))
    }

    /// The entries from one on, by its place.
    pub(crate) fn entries_from(self, n: usize) -> impl Iterator<Item = (StreamId, &'a Entry)> {
        let first = self.rows_below(&entry_key(StreamId::ZERO));
        let rows = self.ranked();
        let rows = rows.map(|ranked| ranked.rows_from(first.saturating_add(n), false));
        let end = entry_key(StreamId::MAX);
        let budget = self.budget;
        rows.into_iter()
            .flatten()
            .take_while(move |row| row.key() <= &end[..] && budget.element_of(row.len()))
            .map(|row| (id_of_key(row.key()), row))
    }

    /// The row of an entry.
    pub(crate) fn entry(self, id: StreamId) -> Option<&'a Entry> {
        self.row(&entry_key(id))
    }

    /// The id of the first entry; 0-0, if there is none.
    pub(crate) fn first_id(self) -> StreamId {
        let first = self.entries(ALL_IDS, false).next();
        first.map_or(StreamId::ZERO, |(id, _)| id)
    }

    /// The id of the last entry; 0-0, if there is none.
    pub(crate) fn top_id(self) -> StreamId {
        let last = self.entries(ALL_IDS, true).next();
        last.map_or(StreamId::ZERO, |(id, _)| id)
    }

    /// How the key changes if it has entries or had some, and the last one is appended, with these
    /// fields. `None`: it is absent.
    pub(crate) fn with_entry(self, meta: StreamMeta, fields: &[u8]) -> Option<KeyChange> {
        self.table?;
        let row = |key: &[u8], value: &[u8]| RowChange::Put(Entry::of_row(key, value, 0));
        let rows = vec![row(&entry_key(meta.last), fields), row(META, &meta.value())];
        let kind = Kind::Stream;
        Some(KeyChange::Rows { kind, rows })
    }

    /// A group of consumers.
    pub(crate) fn group(self, name: &[u8]) -> Option<StreamGroup> {
        let row = self.row(&group_key(name))?;
        Some(StreamGroup::of_value(row.value()))
    }

    /// All groups, by their names.
    pub(crate) fn groups(self) -> impl Iterator<Item = (&'a [u8], StreamGroup)> {
        let rows = self.rows_of(GROUPS.to_vec());
        rows.map(|(name, row)| (name, StreamGroup::of_value(row.value())))
    }

    /// A consumer of a group.
    pub(crate) fn consumer(self, group: &[u8], name: &[u8]) -> Option<StreamConsumer> {
        let row = self.row(&consumer_key(group, name))?;
        Some(StreamConsumer::of_value(row.value()))
    }

    /// All consumers of a group, by their names.
    pub(crate) fn consumers(
        self,
        group: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], StreamConsumer)> {
        let rows = self.rows_of(consumer_key(group, &[]));
        rows.map(|(name, row)| (name, StreamConsumer::of_value(row.value())))
    }

    /// A pending entry of a group.
    pub(crate) fn pending(self, group: &[u8], id: StreamId) -> Option<PendingEntry> {
        let row = self.row(&pending_key(group, id))?;
        Some(PendingEntry::of_value(row.value()))
    }

    /// The pending entries of a group with ids in a range.
    pub(crate) fn all_pending(
        self,
        group: &[u8],
        ids: RangeInclusive<StreamId>,
    ) -> impl Iterator<Item = (StreamId, PendingEntry)> {
        let from = pending_key(group, *ids.start());
        let to = pending_key(group, *ids.end());
        let rows = self.rows_between((from, to), false);
        rows.map(|row| (id_of_key(row.key()), PendingEntry::of_value(row.value())))
    }

    /// How many pending entries a group has.
    pub(crate) fn pending_len(self, group: &[u8]) -> usize {
        let first = self.rows_below(&pending_keys(group));
        let last = pending_key(group, StreamId::MAX);
        let not_above = |ranked: &Ranked| ranked.len_while(|row| row.key() <= &last[..]);
        self.ranked().map_or(0, not_above).saturating_sub(first)
    }
}

/// How a stream changes: rows that come, and rows that go. The last word on a row counts.
#[derive(Debug, Default)]
pub(crate) struct StreamEdit {
    rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Ranges that go as a whole.
    cut: Vec<RowSpan>,
}

impl StreamEdit {
    pub(crate) fn put_meta(&mut self, meta: StreamMeta) {
        self.rows.insert(META.to_vec(), Some(meta.value().to_vec()));
    }

    /// An entry comes with these fields.
    pub(crate) fn put_entry(&mut self, id: StreamId, fields: &[u8]) {
        self.rows
            .insert(entry_key(id).to_vec(), Some(fields.to_vec()));
    }

    /// An entry goes, which is there.
    pub(crate) fn delete_entry(&mut self, id: StreamId) {
        self.rows.insert(entry_key(id).to_vec(), None);
    }

    /// The first entries go, as many as these.
    pub(crate) fn delete_first(&mut self, stream: StreamView<'_>, count: usize, cx: &RunContext) {
        if count == 0 {
            return;
        }
        let count = count.min(stream.len());
        let mut ends = [0, count.saturating_sub(1)]
            .into_iter()
            .filter_map(|n| stream.entries_from(n).next().map(|(_, row)| row));
        let ends = ends.next().zip(ends.next());
        if !self.cuts(stream, ends, count, cx) {
            for (id, _) in stream.entries(ALL_IDS, false).take(count) {
                self.delete_entry(id);
            }
        }
    }

    /// The rows whose keys begin so go.
    fn delete_rows_of(&mut self, stream: StreamView<'_>, prefix: Vec<u8>, cx: &RunContext) {
        let first = stream.rows_below(&prefix);
        let behind = |ranked: &Ranked| {
            ranked.len_while(|row| row.key() <= &prefix[..] || row.key().starts_with(&prefix))
        };
        let count = stream.ranked().map_or(0, behind).saturating_sub(first);
        let row = |n| stream.ranked()?.rows_from(n, false).next();
        let ends = row(first).zip(row(first + count.saturating_sub(1)));
        if !self.cuts(stream, ends, count, cx) {
            let rows = stream.rows_of(prefix).map(|(_, row)| row.key().to_vec());
            self.rows.extend(rows.map(|key| (key, None)));
        }
    }

    /// These rows go as one range, if they are enough for that.
    fn cuts(
        &mut self,
        stream: StreamView<'_>,
        ends: Option<(&Entry, &Entry)>,
        count: usize,
        cx: &RunContext,
    ) -> bool {
        let ends = stream.table.zip(ends);
        let span = ends.and_then(|(table, ends)| cuts::removal(table, ends, count, cx));
        let is_cut = span.is_some();
        self.cut.extend(span);
        is_cut
    }

    /// Whether an entry goes.
    pub(crate) fn deletes(&self, id: StreamId) -> bool {
        self.rows.get(&entry_key(id)[..]) == Some(&None)
    }

    pub(crate) fn put_group(&mut self, name: &[u8], group: StreamGroup) {
        self.rows.insert(group_key(name), Some(group.value()));
    }

    /// A group goes with all that it has.
    pub(crate) fn delete_group(&mut self, stream: StreamView<'_>, name: &[u8], cx: &RunContext) {
        self.delete_rows_of(stream, consumer_key(name, &[]), cx);
        self.delete_rows_of(stream, pending_keys(name), cx);
        self.rows.insert(group_key(name), None);
    }

    pub(crate) fn put_consumer(&mut self, group: &[u8], name: &[u8], consumer: StreamConsumer) {
        let key = consumer_key(group, name);
        self.rows.insert(key, Some(consumer.value()));
    }

    /// A consumer goes, which is there.
    pub(crate) fn delete_consumer(&mut self, group: &[u8], name: &[u8]) {
        self.rows.insert(consumer_key(group, name), None);
    }

    pub(crate) fn put_pending(&mut self, group: &[u8], id: StreamId, pending: &PendingEntry) {
        let key = pending_key(group, id);
        self.rows.insert(key, Some(pending.value()));
    }

    /// A pending entry goes, which is there.
    pub(crate) fn delete_pending(&mut self, group: &[u8], id: StreamId) {
        self.rows.insert(pending_key(group, id), None);
    }

    /// The rows that come, in one run of bytes.
    pub(crate) fn packed(self) -> Bytes {
        let mut all = Vec::new();
        for (key, value) in self.rows {
            if let Some(value) = value {
                put(&mut all, &key);
                put(&mut all, &value);
            }
        }
        all.into()
    }

    /// What such a run of bytes has.
    pub(crate) fn of_packed(rows: &[u8], budget: &Budget) -> Self {
        let rows = Pairs::of(rows, true).take_while(|_| budget.sort());
        let rows = rows.map(|(key, value)| (key.to_vec(), Some(value.to_vec())));
        Self {
            rows: rows.collect(),
            cut: Vec::new(),
        }
    }

    /// How the key changes. A stream that is made by it has what `put_meta` says.
    pub(crate) fn into_change(self, stream: StreamView<'_>, cx: &RunContext) -> KeyChange {
        if self.rows.is_empty() && self.cut.is_empty() {
            return KeyChange::None;
        }
        if stream.table.is_some() {
            let rows = self.rows.into_iter().map(|(key, value)| match value {
                Some(value) => RowChange::Put(Entry::of_row(&key, &value, 0)),
                None => RowChange::Delete(Bytes::from(key)),
            });
            let rows = self.cut.into_iter().map(RowChange::Cut).chain(rows);
            return KeyChange::Rows {
                kind: Kind::Stream,
                rows: rows.collect(),
            };
        }
        let rows = self.rows.into_iter();
        let rows = rows.filter_map(|(key, value)| Some(Entry::of_row(&key, &value?, 0)));
        KeyChange::Table {
            kind: Kind::Stream,
            rows: rows.collect(),
            deadline: kept(stream.entry, cx),
        }
    }
}
