//! Scans of a map. A cursor is a place in the order of the index, which is the same at every member: nothing is remembered
//! of a scan, and it goes on wherever the partition is led. A range is asked for by its keys, and goes on behind the last one.

use super::op::RangeQuery;
use super::store::Store;
use bytes::Bytes;
use doyen_placement::MapId;

/// A cursor is the first 48 bits of an order: the clients' cursor has the partition above them.
const ORDER_SHIFT: u32 = 16;
/// Keys looked at, at most, for one answer,
const COUNT_MAX: u32 = 10_000;
/// and bytes of keys in it, about. Keys that share a cursor are in one answer all the same, however many they are: by chance
/// hardly ever two, by intent as many as somebody finds who knows the cluster's id.
const ANSWER_BYTES: usize = 512 << 10;

/// Some keys of a map from `cursor` on, about `count`, and where to go on. 0 begins a scan, and says that it is over.
pub(super) fn scan(store: &Store, map: MapId, cursor: u64, count: u32, clock: u64) -> (u64, Vec<Bytes>) {
    let (mut keys, mut bytes, mut looked, mut next) = (Vec::new(), 0, 0, 0);
    for entry in store.at_or_after(map, cursor << ORDER_SHIFT) {
        let place = store.order(entry.key()) >> ORDER_SHIFT;
        if place >= next && (looked >= count.clamp(1, COUNT_MAX) || bytes >= ANSWER_BYTES) {
            return (next, keys);
        }
        looked += 1;
        // Never 0; and where it does not fit into 48 bits, nothing follows that would make it an answer.
        next = place + 1;
        if !entry.overdue(clock) {
            bytes += entry.key().len();
            keys.push(Bytes::copy_from_slice(entry.key()));
        }
    }
    (0, keys)
}

/// Keys of a range in order, with their values where they are wanted, and whether more may follow. At least one, if any is there.
pub(super) fn range(store: &Store, map: MapId, query: &RangeQuery, clock: u64) -> (bool, Vec<Bytes>) {
    let RangeQuery { from, to, count, reverse, values } = query;
    let (mut found, mut bytes, mut keys) = (Vec::new(), 0, 0);
    for (looked, entry) in (0_u32..).zip(store.range(map, from, to, *reverse)) {
        // What is overdue and was looked at is behind the last key, too: there is none to go on after.
        if keys >= *count || (keys > 0 && (looked >= COUNT_MAX || bytes >= ANSWER_BYTES)) {
            return (true, found);
        }
        if entry.overdue(clock) {
            continue;
        }
        keys += 1;
        bytes += entry.key().len();
        found.push(Bytes::copy_from_slice(entry.key()));
        if *values {
            bytes += entry.value().len();
            found.push(Bytes::copy_from_slice(entry.value()));
        }
    }
    (false, found)
}
