//! Lists: elements, each at a place that counts from 0.
//!
//! ```text
//!   run        count of its elements, 2 bytes, little-endian | element element ...   (items.rs)
//!   small      one run
//!   large      rows: position, 8 bytes, big-endian ─> run, in the order of the positions
//! ```
//! Positions leave gaps, so that rows may come between others. They are never seen.

use super::{Layout, OrderedRows, RowOrder, Type, TypeEvents};
use crate::value::items::Items;
use crate::value::kind::Encoding;
use doyen_placement::level::SORTED;

pub(super) static LIST: Type = Type {
    name: "list",
    level: SORTED,
    encodings: &[PACKED, RUNS],
    events: TypeEvents {
        class: b'l',
        put: "rpush",
        removed: "lpop",
    },
    layout: Layout::Ordered(&OrderedRows {
        order: RowOrder {
            // Mostly a comparison of two numbers.
            compare: |one, other| {
                let (one, other) = (one.key(), other.key());
                let order = position(one).cmp(&position(other));
                order.then_with(|| one.cmp(other))
            },
            number: |row| position(row.key()),
            weight: |row| ElementRun(row.value()).len().max(1),
            valued: false,
            grows_at_ends: true,
        },
        encoding,
    }),
};

const PACKED: Encoding = Encoding::new(10, "listpack");
const RUNS: Encoding = Encoding::new(11, "quicklist");

/// Redis keeps this many bytes packed.
const PACKED_BYTES: usize = 8 << 10;

/// How Redis would store a list of this many bytes.
const fn encoding(bytes: usize) -> Encoding {
    if bytes > PACKED_BYTES { RUNS } else { PACKED }
}

/// What the count of a run takes.
pub(crate) const COUNT_BYTES: usize = size_of::<u16>();

/// The most bytes that the elements of a run have together, unless it is a single one: an entry
/// keeps the whole run beside its key (`entry.rs`).
pub(crate) const RUN_ITEMS_MAX: usize = 512 - COUNT_BYTES;

/// The count with which a run of elements begins.
pub(crate) fn count_bytes(count: usize) -> [u8; COUNT_BYTES] {
    u16::try_from(count).unwrap_or(u16::MAX).to_le_bytes()
}

/// The position that the key of a row says.
pub(crate) fn position(key: &[u8]) -> u64 {
    key.first_chunk().copied().map_or(0, u64::from_be_bytes)
}

/// A run as it lies in a value. No bytes are no elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ElementRun<'a>(pub(crate) &'a [u8]);

impl<'a> ElementRun<'a> {
    /// How many elements it says that it has.
    pub(crate) fn len(self) -> usize {
        let count = self.0.first_chunk().copied();
        count.map_or(0, u16::from_le_bytes).into()
    }

    /// Its elements. What a peer sent wrong ends them early.
    pub(crate) fn elements(self) -> Items<'a> {
        Items(self.0.get(COUNT_BYTES..).unwrap_or_default())
    }

    /// A run of these elements, which fit into one.
    pub(crate) fn of(count: usize, items: &[u8]) -> Vec<u8> {
        [&count_bytes(count)[..], items].concat()
    }
}
