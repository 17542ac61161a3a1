//! How the keys of a keyspace are divided among its partitions.
//!
//! ```text
//!  fixed   {tag} or key ── crc16 ──> slot     ── runs of slots ──> partition    Slots, Runs
//!  ring    {tag} or key ── murmur3 ──> token  ── arcs of a ring ──> partition   Arcs
//!  range   map, key                           ── ordered ranges ──> partition   Ranges
//! ```
//!
//! In maps that are no databases, the number of the map is hashed with the key
//! ([`Tags`](crate::Tags)).
//!
//! A division is made whole, with its look-up compiled, and never changes: a split or a merge makes
//! another one. So tables share a division as long as it is the same, and a look-up can never
//! belong to another table. Only the boundaries travel over the wire.

mod arcs;
mod cut;
mod ranges;
mod runs;

pub use arcs::{Arcs, ArcsError, Brought};
pub use cut::{Cut, NotDivided};
pub use ranges::{RangeStart, Ranges, RangesError, SPLIT_BYTES_MAX, splits_of_sample};
pub use runs::{RunStart, Runs, RunsError};

use crate::id::PartitionId;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The division of keys among partitions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Division {
    /// Runs of slots of equal length. The mode says how many there are.
    #[default]
    Slots,
    /// Runs of slots, after some of them were split.
    Runs(Arc<Runs>),
    /// Arcs of a ring. There are none before members have brought tokens.
    Arcs(Arc<Arcs>),
    /// Ranges of keys in the order of their bytes.
    Ranges(Arc<Ranges>),
}

impl Division {
    /// A ring without tokens: the first assignment gives them.
    #[must_use]
    pub fn no_arcs() -> Self {
        Self::Arcs(Arc::default())
    }

    /// Ranges of the keys of map 0 that begin at these splits, and one before the first. Keys of
    /// other maps are behind the last split.
    ///
    /// ```
    /// use doyen_placement::division::Division;
    /// use doyen_placement::MapId;
    /// let division = Division::split_at(["h", "p"])?;
    /// let Division::Ranges(ranges) = division else { unreachable!() };
    /// let partition = |key: &str| ranges.partition_of(MapId(0), key.as_bytes()).0;
    /// assert_eq!(["alma", "h", "piet"].map(partition), [0, 1, 2]);
    /// # Ok::<(), doyen_placement::division::RangesError>(())
    /// ```
    ///
    /// # Errors
    /// A split that is empty or longer than [`SPLIT_BYTES_MAX`], or not greater than the one before
    /// it.
    pub fn split_at<K: AsRef<[u8]>>(
        splits: impl IntoIterator<Item = K>,
    ) -> Result<Self, RangesError> {
        Ranges::split_at(splits).map(|ranges| Self::Ranges(Arc::new(ranges)))
    }

    /// The numbers of the partitions, in their order. None for equal runs of slots, whose number
    /// the mode knows.
    #[must_use]
    pub fn partitions(&self) -> Vec<PartitionId> {
        match self {
            Self::Slots => Vec::new(),
            Self::Runs(runs) => runs.partitions().collect(),
            Self::Arcs(arcs) => arcs.partitions().collect(),
            Self::Ranges(ranges) => ranges.partitions().collect(),
        }
    }
}
