//! How much of each map a partition holds: what a primary answers to
//! [`PartitionAction::Sizes`](crate::command::operation::PartitionAction::Sizes).

use crate::store::Store;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use doyen_placement::MapId;

/// What a partition holds of a map.
///
/// ```
/// use doyen_engine::sizes::MapSize;
/// use doyen_placement::MapId;
///
/// let size = MapSize { map: MapId(7), keys: 3, bytes: 400 };
/// assert_eq!(MapSize::decode(&size.encode()), Some(size));
/// assert_eq!(MapSize::decode(b"short"), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapSize {
    /// The map. It may be dropped, and not cleared yet.
    pub map: MapId,
    /// Its keys here. While a partition is split or merged, about as many.
    pub keys: u64,
    /// What they cost in memory at one copy: keys, values and what each entry takes besides.
    pub bytes: u64,
}

impl MapSize {
    const BYTES: usize = 20;

    /// As it travels.
    #[must_use]
    pub fn encode(self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(Self::BYTES);
        bytes.put_u32_le(self.map.0);
        bytes.put_u64_le(self.keys);
        bytes.put_u64_le(self.bytes);
        bytes.freeze()
    }

    /// What travelled. `None`: these bytes say no size.
    #[must_use]
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        (bytes.len() == Self::BYTES).then(|| Self {
            map: MapId(bytes.get_u32_le()),
            keys: bytes.get_u64_le(),
            bytes: bytes.get_u64_le(),
        })
    }
}

/// The size of each map that has keys in a store.
pub(crate) fn of(store: &Store) -> impl Iterator<Item = MapSize> {
    store.map_ids().map(|map| {
        let (keys, bytes) = store.size_of(map);
        MapSize {
            map,
            keys: keys as u64,
            bytes: bytes as u64,
        }
    })
}
