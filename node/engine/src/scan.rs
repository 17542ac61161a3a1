//! Scans of a map. A cursor is a place in the order of the index, which is the same at every
//! member: nothing is remembered of a scan, and it goes on wherever the partition is led. A range
//! is asked for by its keys, and goes on behind the last one.

use super::op::RangeQuery;
use super::store::Store;
use bytes::Bytes;
use doyen_placement::MapId;

/// A cursor is the first 32 bits of an order: the clients' cursor has the partition above them.
const ORDER_SHIFT: u32 = 32;
/// Keys looked at, at most, for one answer,
const COUNT_MAX: u32 = 10_000;
/// and bytes of keys in it, about. Keys that share a cursor are in one answer all the same, however
/// many they are: by chance hardly ever two, by intent as many as somebody finds who knows the
/// cluster's id.
const ANSWER_BYTES: usize = 512 << 10;

/// Keys that are drawn for one look at most, where a store draws from others.
const DRAWN_MAX: usize = 1_000;

/// Some keys of a map from `cursor` on, about `count`, and where to go on. 0 begins a scan, and
/// says that it is over.
pub(super) fn scan(
    store: &mut Store,
    map: MapId,
    cursor: u64,
    count: u32,
    clock: u64,
) -> (u64, Vec<Bytes>) {
    let count = count.clamp(1, COUNT_MAX);
    let upto = store.draw_places(map, cursor, ORDER_SHIFT, (count as usize).min(DRAWN_MAX));
    let (mut keys, mut bytes, mut looked, mut next) = (Vec::new(), 0, 0, 0);
    for entry in store.at_or_after(map, cursor << ORDER_SHIFT) {
        let place = store.order(entry.key()) >> ORDER_SHIFT;
        if place >= next && (looked >= count || bytes >= ANSWER_BYTES) {
            return (next, keys);
        }
        if upto.is_some_and(|upto| place > upto) {
            break;
        }
        looked += 1;
        // Never 0; and where it does not fit into 32 bits, nothing follows that would make it an
        // answer.
        next = place + 1;
        if !entry.overdue(clock) {
            bytes += entry.key().len();
            keys.push(Bytes::copy_from_slice(entry.key()));
        }
    }
    (upto.map_or(0, |upto| upto + 1), keys)
}

/// Keys of a range in order, with their values where they are wanted, and whether more may follow.
/// At least one, if any is there.
pub(super) fn range(
    store: &mut Store,
    map: MapId,
    query: &RangeQuery,
    clock: u64,
) -> (bool, Vec<Bytes>) {
    let (mut from, mut to) = (query.from.clone(), query.to.clone());
    loop {
        let upto = store.draw_range(
            map,
            &from,
            &to,
            (query.count as usize).min(DRAWN_MAX),
            query.reverse,
        );
        let Some(upto) = upto else {
            return range_of(store, map, (&from, &to), query, clock);
        };
        let behind = Bytes::from([&*upto, &[0]].concat());
        let upto = Bytes::copy_from_slice(&upto);
        let here = if query.reverse {
            (&*upto, &*to)
        } else {
            (&*from, &*behind)
        };
        let (_, found) = range_of(store, map, here, query, clock);
        if !found.is_empty() {
            return (true, found);
        }
        if query.reverse {
            to = upto;
        } else {
            from = behind;
        }
    }
}

/// The same, of keys that are all here.
fn range_of(
    store: &Store,
    map: MapId,
    (from, to): (&[u8], &[u8]),
    query: &RangeQuery,
    clock: u64,
) -> (bool, Vec<Bytes>) {
    let (mut found, mut bytes, mut keys) = (Vec::new(), 0, 0);
    for (looked, entry) in (0_u32..).zip(store.range(map, from, to, query.reverse)) {
        // What is overdue and was looked at is behind the last key, too: there is none to go on
        // after.
        if keys >= query.count || (keys > 0 && (looked >= COUNT_MAX || bytes >= ANSWER_BYTES)) {
            return (true, found);
        }
        if entry.overdue(clock) {
            continue;
        }
        keys += 1;
        bytes += entry.key().len();
        found.push(Bytes::copy_from_slice(entry.key()));
        if query.values {
            bytes += entry.value().len();
            found.push(Bytes::copy_from_slice(entry.value()));
        }
    }
    (false, found)
}
