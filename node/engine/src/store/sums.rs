//! Checksums of contents: digests of entries and rows, and the part that a sum covers.

use crate::value::entry::{Entry, Key};
use doyen_placement::MapId;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// About how many bytes of entries, with the cost of looking at them, are summed in one slice: a
/// tenth of a millisecond or two.
pub(super) const SUM_BYTES: usize = 128 << 10;

/// A checksum that is being built. It covers everything up to and including `upto`, and writes keep
/// it right.
#[derive(Debug)]
pub(super) struct Sum {
    pub(super) session: u32,
    pub(super) upto: Option<(u64, EntryPosition)>,
    pub(super) done: bool,
    /// The digests of the keys of each map, and of the rows of each table: dropped as a whole.
    pub(super) maps: BTreeMap<MapId, u64>,
    pub(super) tables: BTreeMap<(MapId, Key), u64>,
}

impl Sum {
    pub(super) fn covers(&self, spot: Spot<'_>) -> bool {
        self.done
            || self.upto.as_ref().is_some_and(|(order, upto)| {
                let field = upto.field.as_ref();
                let upto = Spot {
                    map: upto.map,
                    order: *order,
                    key: &upto.key,
                    row: field.map(|(order, field)| (*order, &**field)),
                };
                spot <= upto
            })
    }

    /// The total that an entry or a row counts in.
    pub(super) fn total(&mut self, map: MapId, table: Option<&[u8]>) -> &mut u64 {
        match table {
            None => self.maps.entry(map).or_default(),
            Some(key) => self.tables.entry((map, key.into())).or_default(),
        }
    }
}

/// The checksums that are being built, by their sessions.
#[derive(Debug)]
pub(crate) struct Sums(pub(super) Vec<Sum>);

impl Sums {
    /// No checksum.
    pub(super) const NONE: Self = Self(Vec::new());

    /// Begins a checksum. `Store::advance_sum` covers more and more of the store, and writes keep
    /// the covered part right.
    pub(crate) fn begin(&mut self, session: u32) {
        self.end(session);
        self.0.push(Sum {
            session,
            upto: None,
            done: false,
            maps: BTreeMap::new(),
            tables: BTreeMap::new(),
        });
    }

    /// Whether a checksum has begun.
    pub(crate) fn has(&self, session: u32) -> bool {
        self.0.iter().any(|s| s.session == session)
    }

    /// The checksum, once it covers everything.
    pub(crate) fn of(&self, session: u32) -> Option<u64> {
        let sum = self.0.iter().find(|s| s.session == session && s.done)?;
        let all = sum.maps.values().chain(sum.tables.values());
        Some(all.fold(0, |all, one| all.wrapping_add(*one)))
    }

    /// Ends a checksum.
    pub(crate) fn end(&mut self, session: u32) {
        self.0.retain(|s| s.session != session);
    }

    /// Ends all checksums.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether any checksum covers this. Only then must its digest be computed.
    pub(super) fn covers(&self, spot: Spot<'_>) -> bool {
        self.0.iter().any(|s| s.covers(spot))
    }

    /// The covered part of checksums changed.
    pub(super) fn changed(&mut self, spot: Spot<'_>, added: u64, removed: u64) {
        for sum in self.0.iter_mut().filter(|s| s.covers(spot)) {
            let total = sum.total(spot.map, spot.row.map(|_| spot.key));
            *total = total.wrapping_add(added).wrapping_sub(removed);
        }
    }

    /// Checksums do not count a table any more. Returns what they had counted.
    pub(super) fn drop_table(&mut self, map: MapId, key: &[u8]) -> Vec<(u32, u64)> {
        let at = (map, Key::from(key));
        let sums = self.0.iter_mut();
        sums.filter_map(|sum| Some((sum.session, sum.tables.remove(&at)?)))
            .collect()
    }

    /// Checksums do not count a map any more.
    pub(super) fn drop_map(&mut self, map: MapId) {
        for sum in &mut self.0 {
            sum.maps.remove(&map);
            sum.tables.retain(|(of, _), _| *of != map);
        }
    }
}

/// Where an entry or a row stands in the order of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Spot<'a> {
    pub(super) map: MapId,
    pub(super) order: u64,
    pub(super) key: &'a [u8],
    /// Order and field of a row, which stands behind its key.
    pub(super) row: Option<(u64, &'a [u8])>,
}

impl<'a> Spot<'a> {
    /// Of an entry.
    pub(super) const fn of((map, order, key): (MapId, u64, &'a [u8])) -> Self {
        Self {
            map,
            order,
            key,
            row: None,
        }
    }

    /// Of one of its rows.
    pub(super) const fn row(self, order: u64, field: &'a [u8]) -> Self {
        Self {
            row: Some((order, field)),
            ..self
        }
    }
}

/// An entry, or a row of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub(crate) map: MapId,
    /// The key whose row it is.
    pub(crate) of: Option<&'a [u8]>,
    pub(crate) entry: &'a Entry,
}

impl Piece<'_> {
    pub(super) fn digest(&self) -> u64 {
        match self.of {
            None => digest(self.map, self.entry),
            Some(key) => digest_row(self.map, key, self.entry),
        }
    }
}

/// The place of an entry or of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntryPosition {
    pub(super) map: MapId,
    pub(super) key: Key,
    /// Order and field of a row.
    pub(super) field: Option<(u64, Key)>,
}

/// The position of a snapshot: after this, in the order of the map's index.
pub(crate) type SumCursor = Option<EntryPosition>;

/// A 64-bit digest of one entry. Copies are compared by the sum of all digests, which does not
/// depend on the order of writes.
pub(super) fn digest(map: MapId, entry: &Entry) -> u64 {
    // Key and value are hashed separately, so that a byte cannot move from one to the other
    // unnoticed.
    digest_words([
        u64::from(map.0),
        entry.stamp(),
        entry.deadline(),
        xxh3_64(entry.key()),
        xxh3_64(entry.value()),
    ])
}

/// The same of a row of a key's table.
pub(super) fn digest_row(map: MapId, key: &[u8], row: &Entry) -> u64 {
    digest_words([xxh3_64(key), digest(map, row)])
}

pub(super) fn digest_words<const N: usize>(words: [u64; N]) -> u64 {
    let mut digest = Xxh3::new();
    for word in words {
        digest.update(&word.to_le_bytes());
    }
    digest.digest()
}

/// The digest of bytes in pieces, wherever they are cut: for snapshot chunks.
pub(crate) fn digest_bytes<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut digest = Xxh3::new();
    pieces.into_iter().for_each(|piece| digest.update(piece));
    digest.digest()
}
