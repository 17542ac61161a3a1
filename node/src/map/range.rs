//! Keys in order, page by page, from a keyspace of ranges.

use crate::data::DataHandle;
use crate::error::Error;
use bytes::Bytes;
use doyen_engine::op::{Failure, Outcome, PartitionAction, PartitionOperation, RangeQuery};
use doyen_placement::{Division, KeyspaceId, MapId};

/// How often a page is requested again because partitions were split or merged meanwhile.
pub(super) const RENEWED_MAX: u32 = 16;
/// Keys of a page, by default.
const PAGE: u32 = 1000;

/// Keys in the order of their bytes, each with its value, page by page: from
/// [`Database::range`](crate::Database::range).
///
/// Each page is read from one partition, at one moment. A key that exists all the time is returned
/// exactly once, even if partitions move meanwhile. Only partitions that may hold some of the keys
/// are read.
///
/// ```no_run
/// # async fn example(node: &doyen::Node) -> Result<(), Box<dyn std::error::Error>> {
/// let names = node.database_in("names").await?;
/// let mut scan = names.range("a", "m").ok_or("its keys have no order")?.page(100);
/// while let Some(page) = scan.next().await? {
///     for (key, value) in page {
///         println!("{} = {}", key.escape_ascii(), value.escape_ascii());
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct RangeScan {
    keyspace: KeyspaceId,
    map: MapId,
    data: DataHandle,
    query: RangeQuery,
    over: bool,
}

impl RangeScan {
    /// The keys of a map from `from` up to `to`. `None`: its keyspace keeps no order, or none
    /// between these keys, or is not known yet.
    pub(super) fn of(
        data: &DataHandle,
        (keyspace, map): (KeyspaceId, MapId),
        from: Bytes,
        mut to: Bytes,
    ) -> Option<Self> {
        let table = data.table()?;
        let known = table.keyspace(keyspace)?;
        if to.is_empty() && map == MapId(0) {
            to = known.end_from(&from).into();
        }
        known.partitions_within(map, &from, &to).ok()?;
        Some(Self::new((keyspace, map), data.clone(), from, to))
    }

    fn new((keyspace, map): (KeyspaceId, MapId), data: DataHandle, from: Bytes, to: Bytes) -> Self {
        let over = !to.is_empty() && from >= to;
        Self {
            keyspace,
            map,
            data,
            query: RangeQuery {
                from,
                to,
                count: PAGE,
                reverse: false,
                values: true,
            },
            over,
        }
    }

    /// Leaves out all keys up to this one.
    pub(super) fn go_behind(&mut self, key: &[u8]) {
        let behind: Bytes = [key, &[0]].concat().into();
        self.query.from = behind.max(std::mem::take(&mut self.query.from));
        self.over |= !self.query.to.is_empty() && self.query.from >= self.query.to;
    }

    /// Reverses the order: from the last key to the first.
    #[must_use]
    pub const fn reverse(mut self) -> Self {
        self.query.reverse = true;
        self
    }

    /// Sets the number of keys of a page, 1 to 10,000; 1000 by default. A page ends earlier if it
    /// has half a megabyte.
    #[must_use]
    pub fn page(mut self, keys: u32) -> Self {
        self.query.count = keys.clamp(1, 10_000);
        self
    }

    /// The rest, as `(from, to)`: a scan of it continues where this one is, also in another
    /// process. `None`: nothing is left.
    ///
    /// ```no_run
    /// # async fn example(names: doyen::Database) -> Result<(), Box<dyn std::error::Error>> {
    /// let scan = |from: &[u8], to: &[u8]| {
    ///     let scan = names.range(from.to_vec(), to.to_vec()).ok_or("its keys have no order")?;
    ///     Ok::<_, &str>(scan.reverse().page(100))
    /// };
    /// let mut last = scan(b"a", b"")?;
    /// let last_names = last.next().await?;
    /// // The next page, perhaps in another process:
    /// if let Some((from, to)) = last.rest() {
    ///     let names_before = scan(&from, &to)?.next().await?;
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn rest(&self) -> Option<(Bytes, Bytes)> {
        (!self.over).then(|| (self.query.from.clone(), self.query.to.clone()))
    }

    /// The next page, which has at least one key; `None` at the end. After an error it may be
    /// called again, and continues where it was.
    ///
    /// # Errors
    /// No node serves a partition of the range for 5 s, or the keyspace is gone.
    ///
    /// # Cancel safety
    /// If the future is dropped, the next call reads the same page again. No key is left out.
    pub async fn next(&mut self) -> Result<Option<Vec<(Bytes, Bytes)>>, Error> {
        let mut renewed = 0;
        while !self.over {
            let table = self.data.table().ok_or(Error::Unavailable)?;
            let keyspace = table.keyspace(self.keyspace).ok_or(Error::Unavailable)?;
            let within = keyspace.partitions_within(self.map, &self.query.from, &self.query.to);
            let within = within.map_err(|_| Error::Unavailable)?;
            let place = if self.query.reverse {
                within.len().checked_sub(1)
            } else {
                Some(0)
            };
            let Some(&partition) = place.and_then(|place| within.get(place)) else {
                break;
            };
            let action = PartitionAction::Range(self.query.clone());
            let operation = PartitionOperation {
                keyspace: self.keyspace,
                partition,
                map: self.map,
                action,
            };
            let (more, found) = match self.data.execute_partition(operation).await {
                Outcome::Keys { next, keys } => (next != 0, keys),
                // The partition was split or merged since: other partitions have its keys.
                Outcome::Failed(Failure::Stale) if renewed < RENEWED_MAX => {
                    renewed += 1;
                    continue;
                }
                Outcome::Failed(failure) => return Err(Error::of_read(failure)),
                other => return Err(Error::unexpected(other)),
            };
            let begins = |partition| match &keyspace.division {
                Division::Ranges(ranges) => ranges
                    .starts()
                    .iter()
                    .find(|s| s.partition == partition)
                    .filter(|s| s.map == self.map)
                    .map(|s| Bytes::copy_from_slice(&s.key)),
                _ => None,
            };
            match found.chunks_exact(2).last().map(|last| last[0].clone()) {
                Some(last) if more && self.query.reverse => self.query.to = last,
                Some(last) if more => self.query.from = [&*last, &[0]].concat().into(),
                // The partition has no more keys: continue with the next one, if any.
                _ if within.len() == 1 => self.over = true,
                _ if self.query.reverse => {
                    self.query.to = begins(partition).ok_or(Error::Unavailable)?
                }
                _ => self.query.from = begins(within[1]).ok_or(Error::Unavailable)?,
            }
            if !found.is_empty() {
                let mut found = found.into_iter();
                return Ok(Some(
                    std::iter::from_fn(|| Some((found.next()?, found.next()?))).collect(),
                ));
            }
        }
        self.over = true;
        Ok(None)
    }
}
