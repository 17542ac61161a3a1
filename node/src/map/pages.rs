//! Keys and values of a map, page by page: all of them, or those that begin with a prefix.
//!
//! A keyspace of ranges keeps its keys in order, so pages come in that order (`range`). Other
//! keyspaces are read partition by partition, in no order. If a partition is split or merged
//! meanwhile, those that have its keys now are read from their beginning. So a key that stays is
//! returned at least once.

use super::range::{RENEWED_MAX, RangeScan};
use super::{KeyOf, Map, encode_key, key};
use crate::data::DataHandle;
use crate::error::Error;
use bytes::Bytes;
use doyen_engine::op::{Failure, FindQuery, Outcome, PartitionAction, PartitionOperation};
use doyen_placement::{KeyspaceId, MapId, PartitionId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

/// Keys that are looked at for one page.
const PAGE: u32 = 1_000;

/// A stored key and its value.
type Pair = (Bytes, Bytes);

/// The entries of a map, from [`Map::iter`], [`Map::prefix`] or [`Map::range`]. Pages are read as
/// they are needed.
///
/// ```no_run
/// # async fn example(prices: doyen::Map<String, u64>) -> Result<(), doyen::Error> {
/// let mut entries = prices.prefix("fruit/");
/// while let Some((name, price)) = entries.next().await? {
///     println!("{name} costs {price}");
/// }
/// # Ok(()) }
/// ```
pub struct Entries<K, V> {
    map: Map<K, V>,
    source: PageSource,
    page: VecDeque<Pair>,
    /// Where that page began, or the key that was returned last.
    place: Option<PagePlace>,
    kinds: PhantomData<fn() -> (K, V)>,
}

/// How far entries were returned. The numbers of partitions only grow: those of a split or a merge
/// are behind all others, so one number says which were read.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PagePlace {
    /// In order: up to this key.
    Key(Bytes),
    /// All partitions before this one, and it up to this cursor.
    Cursor(PartitionId, u64),
}

impl PagePlace {
    /// `None`: the text is no place.
    fn read(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_at_checked(1)?;
        match kind {
            "k" => {
                let digits = rest.as_bytes().chunks(2);
                let digit = |digit: u8| char::from(digit).to_digit(16);
                let byte = |two: &[u8]| {
                    let [high, low] = two else { return None };
                    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
                };
                let key: Option<Vec<u8>> = digits.map(byte).collect();
                Some(Self::Key(key?.into()))
            }
            "p" => {
                let (partition, cursor) = rest.split_once('.')?;
                let partition = PartitionId(partition.parse().ok()?);
                Some(Self::Cursor(partition, cursor.parse().ok()?))
            }
            _ => None,
        }
    }
}

impl fmt::Display for PagePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => {
                f.write_str("k")?;
                key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Self::Cursor(partition, cursor) => write!(f, "p{}.{cursor}", partition.0),
        }
    }
}

#[derive(Debug)]
enum PageSource {
    Ordered(RangeScan),
    Partitions(Pages),
}

impl<K, V> fmt::Debug for Entries<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries")
            .field("map", &self.map.name())
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl<K: Serialize, V: Serialize + DeserializeOwned> Map<K, V> {
    /// All entries. A key that exists all the time is returned, in a keyspace of ranges in order
    /// and once, in others in no order and at least once. Keys that are written or removed
    /// meanwhile may be returned or not.
    pub fn iter(&self) -> Entries<K, V> {
        self.beginning_with(Bytes::new())
    }

    /// The entries whose keys begin with this: texts that begin with a text, tuples that begin with
    /// some elements (`prefix(&("ada",))`). As for [`Map::iter`]. In a keyspace of ranges it costs
    /// what it returns, in others a look at every key of the map.
    pub fn prefix<Q: Serialize + ?Sized>(&self, prefix: &Q) -> Entries<K, V> {
        // A prefix that cannot be encoded is that of no key.
        match encode_key(prefix) {
            Ok(prefix) => self.beginning_with(prefix),
            Err(_) => Entries {
                map: self.clone(),
                source: PageSource::Partitions(Pages::over(self.data.clone())),
                page: VecDeque::new(),
                place: None,
                kinds: PhantomData,
            },
        }
    }

    /// The entries whose keys are in a range, in the order of the keys.
    ///
    /// ```no_run
    /// # async fn example(readings: doyen::Map<u64, f64>) -> Result<(), doyen::Error> {
    /// let mut hour = readings.range(3600..7200)?;
    /// while let Some((second, reading)) = hour.next().await? {
    ///     println!("{second}: {reading}");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Refused`]: the keyspace keeps no order. [`Error::Key`]: an end of the range cannot
    /// be encoded.
    pub fn range<Q: KeyOf<K>>(&self, range: impl RangeBounds<Q>) -> Result<Entries<K, V>, Error> {
        // The first key behind another one is that key and a byte of 0.
        let behind = |key: Bytes| Bytes::from([&key[..], &[0]].concat());
        let from = match range.start_bound() {
            Bound::Included(from) => encode_key(from)?,
            Bound::Excluded(before) => behind(encode_key(before)?),
            Bound::Unbounded => Bytes::new(),
        };
        let to = match range.end_bound() {
            Bound::Included(to) => behind(encode_key(to)?),
            Bound::Excluded(to) => encode_key(to)?,
            Bound::Unbounded => Bytes::new(),
        };
        let place = (self.entry.keyspace, self.entry.id);
        let scan = RangeScan::of(&self.data, place, from, to).ok_or_else(|| {
            Error::Refused(format!(
                "the map {} keeps no order: put it into a keyspace of ranges \
                 (KeyspaceOptions::ranges, or doyen keyspace create --mode range)",
                self.entry.name
            ))
        })?;
        Ok(self.ordered(scan))
    }

    fn ordered(&self, scan: RangeScan) -> Entries<K, V> {
        Entries {
            map: self.clone(),
            source: PageSource::Ordered(scan),
            page: VecDeque::new(),
            place: None,
            kinds: PhantomData,
        }
    }

    fn beginning_with(&self, prefix: Bytes) -> Entries<K, V> {
        let place = (self.entry.keyspace, self.entry.id);
        let end = end_of_prefix(&prefix);
        if let Some(scan) = RangeScan::of(&self.data, place, prefix.clone(), end) {
            return self.ordered(scan);
        }
        let pages = Pages::new(place, self.data.clone(), prefix).with_values();
        Entries {
            map: self.clone(),
            source: PageSource::Partitions(pages),
            page: VecDeque::new(),
            place: None,
            kinds: PhantomData,
        }
    }
}

impl<K, V> Entries<K, V> {
    /// How far the entries were read, as a text: another process goes on from here, with
    /// [`after`](Entries::after). `None`: none was read yet.
    #[must_use]
    pub fn place(&self) -> Option<String> {
        self.place.as_ref().map(PagePlace::to_string)
    }

    /// Goes on where entries of the same map and the same range or prefix were read before, in this
    /// or another process. In a keyspace of ranges no entry comes twice. In others, entries of the
    /// last page (up to 1,000) come again.
    ///
    /// ```no_run
    /// # async fn example(prices: doyen::Map<String, u64>) -> Result<(), doyen::Error> {
    /// let mut entries = prices.iter();
    /// let first = entries.next().await?;
    /// let place = entries.place();
    /// // Later, or elsewhere:
    /// let mut rest = match place {
    ///     Some(place) => prices.iter().after(&place)?,
    ///     None => prices.iter(),
    /// };
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Refused`]: the text is no place, or not one of a map whose keys are read like
    /// these.
    pub fn after(mut self, place: &str) -> Result<Self, Error> {
        let read = PagePlace::read(place);
        match (&mut self.source, &read) {
            (PageSource::Ordered(scan), Some(PagePlace::Key(key))) => scan.go_behind(key),
            (PageSource::Partitions(pages), Some(PagePlace::Cursor(partition, cursor))) => {
                pages.go_on_at(*partition, *cursor);
            }
            _ => {
                return Err(Error::Refused(format!(
                    "{place:?} is no place of these entries: give what place() returned for \
                     entries of the same map"
                )));
            }
        }
        self.place = read;
        Ok(self)
    }
}

impl<K: DeserializeOwned, V: Serialize + DeserializeOwned> Entries<K, V> {
    /// The next entry; `None` at the end. After an error it may be called again, and goes on.
    ///
    /// # Errors
    /// No node serves some of the keys for 5 s. [`Error::Key`], [`Error::Value`]: an entry is of
    /// another type; the next call goes on behind it.
    ///
    /// # Cancel safety
    /// Dropping the future loses no entry, so this may stand in a `select!`.
    pub async fn next(&mut self) -> Result<Option<(K, V)>, Error> {
        loop {
            while let Some((key, value)) = self.page.pop_front() {
                if let PageSource::Ordered(_) = self.source {
                    self.place = Some(PagePlace::Key(key.clone()));
                }
                // With `Undecodable::Miss` a value of another schema counts as absent.
                let form = &self.map.form;
                let value = form.decode(form.content(&value)).map_err(Error::Value)?;
                if let Some(value) = value {
                    return Ok(Some((key::decode(&key).map_err(Error::Key)?, value)));
                }
            }
            let page = match &mut self.source {
                PageSource::Ordered(scan) => scan.next().await?,
                PageSource::Partitions(pages) => {
                    let page = pages.next().await?;
                    self.place = pages.began.clone();
                    page
                }
            };
            match page {
                Some(page) => self.page = page.into(),
                None => return Ok(None),
            }
        }
    }
}

/// The first key behind all that begin with these bytes; empty: there is none.
fn end_of_prefix(prefix: &[u8]) -> Bytes {
    let kept = prefix.iter().rposition(|byte| *byte != u8::MAX);
    match kept {
        Some(at) => {
            let mut end = prefix[..=at].to_vec();
            end[at] += 1;
            end.into()
        }
        None => Bytes::new(),
    }
}

/// Keys of all partitions of a map, page by page.
#[derive(Debug)]
pub(super) struct Pages {
    place: (KeyspaceId, MapId),
    data: DataHandle,
    query: FindQuery,
    /// Partitions to read, the first one from the cursor on; `None` before the first page.
    left: Option<VecDeque<PartitionId>>,
    /// Partitions that are or were read.
    known: BTreeSet<PartitionId>,
    renewed: u32,
    /// Partitions before this one were read already.
    from: PartitionId,
    /// Where the page that was returned last began.
    began: Option<PagePlace>,
}

impl Pages {
    pub(super) fn new(place: (KeyspaceId, MapId), data: DataHandle, prefix: Bytes) -> Self {
        Self {
            place,
            data,
            query: FindQuery {
                cursor: 0,
                count: PAGE,
                prefix,
                values: false,
                holding: None,
            },
            left: None,
            known: BTreeSet::new(),
            renewed: 0,
            from: PartitionId(0),
            began: None,
        }
    }

    /// Leaves out what was read before.
    fn go_on_at(&mut self, partition: PartitionId, cursor: u64) {
        self.from = partition;
        self.query.cursor = cursor;
    }

    /// No pages.
    fn over(data: DataHandle) -> Self {
        Self {
            left: Some(VecDeque::new()),
            ..Self::new((KeyspaceId(0), MapId(0)), data, Bytes::new())
        }
    }

    fn with_values(mut self) -> Self {
        self.query.values = true;
        self
    }

    /// Only keys whose values have this tag, or are being loaded.
    pub(super) fn holding(mut self, tag: Bytes) -> Self {
        self.query.holding = Some(tag);
        self
    }

    /// The partitions of the keyspace that were not read.
    fn unread(&mut self) -> Result<Vec<PartitionId>, Error> {
        let table = self.data.table().ok_or(Error::Unavailable)?;
        let keyspace = table.keyspace(self.place.0).ok_or(Error::Unavailable)?;
        let all = keyspace.partitions.iter().map(|partition| partition.id);
        let all = all.filter(|id| *id >= self.from);
        Ok(all.filter(|id| self.known.insert(*id)).collect())
    }

    /// The next page: keys, each with its value or an empty one. `None` at the end. After an error
    /// it may be called again.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Pair>>, Error> {
        if self.left.is_none() {
            let left: VecDeque<_> = self.unread()?.into();
            if left.front() != Some(&self.from) {
                // The partition of the cursor is gone. Those that have its keys are read whole.
                self.query.cursor = 0;
            }
            self.left = Some(left);
        }
        while let Some(partition) = self.left.as_ref().and_then(|left| left.front().copied()) {
            let operation = PartitionOperation {
                keyspace: self.place.0,
                partition,
                map: self.place.1,
                action: PartitionAction::Find(self.query.clone()),
            };
            match self.data.execute_partition(operation).await {
                Outcome::Keys { next, keys } => {
                    self.began = Some(PagePlace::Cursor(partition, self.query.cursor));
                    self.query.cursor = next;
                    if next == 0 {
                        self.end_partition();
                    }
                    if !keys.is_empty() {
                        return Ok(Some(self.pairs(keys)));
                    }
                }
                // Other partitions have its keys now.
                Outcome::Failed(Failure::Stale) if self.renewed < RENEWED_MAX => {
                    self.renewed += 1;
                    self.query.cursor = 0;
                    let new = self.unread()?;
                    if !new.is_empty() {
                        self.end_partition();
                        self.left.iter_mut().for_each(|left| left.extend(&new));
                    }
                }
                Outcome::Failed(failure) => return Err(Error::of_read(failure)),
                other => return Err(Error::unexpected(other)),
            }
        }
        Ok(None)
    }

    fn end_partition(&mut self) {
        self.query.cursor = 0;
        if let Some(left) = &mut self.left {
            left.pop_front();
        }
    }

    fn pairs(&self, found: Vec<Bytes>) -> Vec<Pair> {
        let mut found = found.into_iter();
        if self.query.values {
            return std::iter::from_fn(|| Some((found.next()?, found.next()?))).collect();
        }
        found.map(|key| (key, Bytes::new())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_texts_that_are_read_again() {
        for place in [
            PagePlace::Key(Bytes::new()),
            PagePlace::Key(Bytes::from_static(&[0, 255, b'k'])),
            PagePlace::Cursor(PartitionId(7), u64::MAX),
        ] {
            assert_eq!(PagePlace::read(&place.to_string()), Some(place));
        }
        for text in [
            "", "k1", "kxx", "k+1", "p", "p1", "p1.", "p1.-1", "x", "\u{e9}", "k\u{e9}",
        ] {
            assert_eq!(PagePlace::read(text), None, "{text}");
        }
    }

    #[test]
    fn the_end_of_a_prefix_is_behind_all_that_begin_with_it() {
        let end = |prefix: &[u8]| end_of_prefix(prefix).to_vec();
        assert_eq!(end(b"ab"), b"ac");
        assert_eq!(end(&[1, 255, 255]), [2]);
        assert_eq!(end(&[255]), [0; 0], "no key is behind");
        assert_eq!(end(&[]), [0; 0]);
    }
}
