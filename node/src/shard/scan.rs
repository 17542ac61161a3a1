//! Cursors of scans. A cursor is a digest of the last key given, so that it means the same at every primary.

use super::PartitionRef;
use super::entry::Entry;
use super::store::{Key, Store, digest_bytes};
use bytes::Bytes;
use doyen_placement::MapId;
use std::collections::{BTreeMap, VecDeque};

/// Positions that are remembered, to find them without a search.
const REMEMBERED_MAX: usize = 4_096;
/// Keys that a search for a forgotten position looks at; beyond it the scan starts again (which repeats, and misses nothing).
const SEARCH_MAX: usize = 50_000;
/// Bytes of keys that it looks at: as long as this many keys of ordinary length.
const SEARCH_BYTES_MAX: usize = 4 << 20;
/// Keys looked at, at most, for one answer.
const COUNT_MAX: u32 = 10_000;
/// Bytes of keys in one answer, about.
const ANSWER_BYTES: usize = 512 << 10;

/// Positions of scans under way.
#[derive(Debug, Default)]
pub(super) struct Scans {
    at: BTreeMap<(PartitionRef, MapId, u64), Key>,
    age: VecDeque<(PartitionRef, MapId, u64)>,
}

/// 48 bits, never 0: 0 begins a scan and ends it.
fn cursor_of(key: &[u8]) -> u64 {
    (digest_bytes(key) >> 16).max(1)
}

impl Scans {
    /// Some keys from `cursor` on, about `count`, and where to go on.
    pub(super) fn scan(&mut self, at: PartitionRef, store: &Store, map: MapId, cursor: u64, count: u32, clock: u64) -> (u64, Vec<Bytes>) {
        let after = if cursor == 0 { None } else { self.position(at, store, map, cursor) };
        let (mut keys, mut bytes, mut last, mut looked) = (Vec::new(), 0, None, 0);
        for entry in store.following_in(map, after.as_deref()) {
            if looked >= count.clamp(1, COUNT_MAX) || bytes >= ANSWER_BYTES {
                // There is more: `last` is where to go on.
                let Some(last) = last else { break };
                return (self.remember(at, map, last), keys);
            }
            looked += 1;
            last = Some(entry.key());
            if !entry.overdue(clock) {
                bytes += entry.key().len();
                keys.push(Bytes::copy_from_slice(entry.key()));
            }
        }
        (0, keys)
    }

    fn remember(&mut self, at: PartitionRef, map: MapId, key: &[u8]) -> u64 {
        let cursor = cursor_of(key);
        if self.at.insert((at, map, cursor), key.into()).is_none() {
            self.age.push_back((at, map, cursor));
        }
        if self.age.len() > REMEMBERED_MAX
            && let Some(oldest) = self.age.pop_front()
        {
            self.at.remove(&oldest);
        }
        cursor
    }

    fn position(&self, at: PartitionRef, store: &Store, map: MapId, cursor: u64) -> Option<Key> {
        let known = self.at.get(&(at, map, cursor)).cloned();
        known.or_else(|| {
            let mut bytes = 0;
            let keys = store.following_in(map, None).take(SEARCH_MAX).map(Entry::key);
            let mut keys = keys.take_while(|k| {
                bytes += k.len();
                bytes <= SEARCH_BYTES_MAX
            });
            keys.find(|k| cursor_of(k) == cursor).map(Key::from)
        })
    }
}
