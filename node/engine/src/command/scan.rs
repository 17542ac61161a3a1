//! Scans of a map. A cursor is a place in the order of the index, which is the same at every
//! member. So a scan has no state here, and it continues at any primary. A range is asked for by
//! its keys, and continues after the last one. A query for strings goes on as a scan does.

use super::idle;
use crate::command::operation::{FindQuery, RangeQuery};
use crate::mutant::{self, broken};
use crate::store::Store;
use crate::store::budget::Budget;
use crate::value::entry::Entry;
use crate::value::kind::Kind;
use crate::value::tags;
use bytes::Bytes;
use doyen_placement::MapId;

/// A cursor is the first 32 bits of an order. In the clients' cursor, the partition is above them.
const ORDER_SHIFT: u32 = 32;
/// Most keys that are looked at for one answer.
const COUNT_MAX: u32 = 10_000;
/// About how many bytes of keys an answer has at most. Keys that share a cursor are in one answer
/// all the same: by chance hardly ever more than one, but a client that knows the cluster's id can
/// make many.
const ANSWER_BYTES: usize = 512 << 10;

/// Most keys that are drawn for one look, if a store draws from others.
const DRAWN_MAX: usize = 1_000;

/// About `count` keys of a map from `cursor` on, those of them that hold what is wanted, and where
/// to continue. 0 begins a scan, and is the end of it.
pub(crate) fn scan(
    store: &mut Store,
    map: MapId,
    (cursor, count, kind): (u64, u32, Option<Kind>),
    (clock, budget): (u64, &Budget),
) -> (u64, Vec<Bytes>) {
    let mut keys = Vec::new();
    let next = walk(store, map, (cursor, ORDER_SHIFT, count), |entry| {
        budget.element_of(entry.key().len());
        let other = kind.is_some_and(|kind| kind != entry.kind());
        if other || entry.overdue(clock) || entry.is_unfinished() {
            return 0;
        }
        keys.push(Bytes::copy_from_slice(entry.key()));
        entry.key().len()
    });
    (next, keys)
}

/// Looks at about `count` keys of a map, from a cursor on. A cursor is an order without its lowest
/// `shift` bits. `take` says how many bytes it took of each key. Returns the next cursor, or 0 at
/// the end.
fn walk(
    store: &mut Store,
    map: MapId,
    (cursor, shift, count): (u64, u32, u32),
    mut take: impl FnMut(&Entry) -> usize,
) -> u64 {
    let count = count.clamp(1, COUNT_MAX);
    let upto = store.migrate_places(map, cursor, shift, (count as usize).min(DRAWN_MAX));
    let (mut bytes, mut looked, mut last) = (0, 0, None);
    for entry in store.at_or_after(map, cursor << shift) {
        let place = store.order(entry.key()) >> shift;
        if let Some(last) = last.filter(|last| *last != place)
            && (looked >= count || bytes >= ANSWER_BYTES)
        {
            // Never 0, and it fits, because a later place follows.
            return last + 1;
        }
        if upto.is_some_and(|upto| place > upto) {
            break;
        }
        looked += 1;
        last = Some(place);
        bytes += take(entry);
    }
    upto.map_or(0, |upto| upto + 1)
}

/// The strings that match a query, on a page.
struct MatchingPage<'a> {
    query: &'a FindQuery,
    clock: u64,
    budget: &'a Budget,
    /// Each key, and its value behind it if values are wanted.
    keys: Vec<Bytes>,
}

impl<'a> MatchingPage<'a> {
    const fn new(query: &'a FindQuery, (clock, budget): (u64, &'a Budget)) -> Self {
        Self {
            query,
            clock,
            budget,
            keys: Vec::new(),
        }
    }

    /// Takes a key if it matches. Returns how many bytes were taken, or read of its tags.
    fn take(&mut self, entry: &Entry) -> usize {
        let FindQuery {
            prefix,
            values,
            holding,
            ..
        } = self.query;
        let (key, value) = (entry.key(), entry.value());
        self.budget.element_of(key.len());
        if !key.starts_with(prefix) || entry.kind() != Kind::String || entry.overdue(self.clock) {
            return 0;
        }
        let mut bytes = 0;
        if let Some(tag) = holding {
            let value = idle::content(value);
            bytes += tags::head_bytes_max(value);
            if !tags::holds(value, tag) {
                return bytes;
            }
        }
        bytes += key.len();
        self.keys.push(Bytes::copy_from_slice(key));
        if *values {
            bytes += value.len();
            self.keys.push(Bytes::copy_from_slice(value));
        }
        bytes
    }
}

/// A page of the strings of a map that match a query, and where to continue. 0 begins, and is the
/// end.
///
/// The cursor is a whole order, unlike that of `scan`: values that shared a cursor would share a
/// page, however large they are.
pub(crate) fn find(
    store: &mut Store,
    map: MapId,
    query: &FindQuery,
    at: (u64, &Budget),
) -> (u64, Vec<Bytes>) {
    if let Some(all) = find_in_order(store, map, query, at) {
        return (0, all);
    }
    let mut found = MatchingPage::new(query, at);
    let next = walk(store, map, (query.cursor, 0, query.count), |entry| {
        found.take(entry)
    });
    if next != 0 && broken(&mutant::HIDES_KEYS) {
        return (next.saturating_add(u64::MAX / 16), found.keys);
    }
    (next, found.keys)
}

/// All matches at once, if the store knows the order of keys, and a page has room for all keys with
/// the prefix. Otherwise the whole map must be walked through: the cursor is no place in this
/// order.
fn find_in_order(
    store: &mut Store,
    map: MapId,
    query: &FindQuery,
    at: (u64, &Budget),
) -> Option<Vec<Bytes>> {
    if query.cursor != 0 || query.prefix.is_empty() || !store.is_sorted() {
        return None;
    }
    let count = query.count.clamp(1, COUNT_MAX);
    let (from, to) = (&*query.prefix, behind(&query.prefix));
    let drawn = (count as usize).min(DRAWN_MAX);
    if store.migrate_range(map, from, &to, drawn, false).is_some() {
        return None;
    }
    let (mut found, mut bytes) = (MatchingPage::new(query, at), 0);
    for (looked, entry) in (0..).zip(store.range(map, from, &to, false)) {
        if looked >= count || bytes >= ANSWER_BYTES {
            return None;
        }
        bytes += found.take(entry);
    }
    Some(found.keys)
}

/// The first key behind all keys with a prefix. Empty: there is none.
fn behind(prefix: &[u8]) -> Vec<u8> {
    let kept = prefix
        .iter()
        .rposition(|byte| *byte != u8::MAX)
        .map_or(0, |last| last + 1);
    let mut end = prefix[..kept].to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// Some keys of a range in order, with their values if they are wanted, and whether more may
/// follow. At least one, if there is any and the budget is not spent before it is found.
pub(crate) fn range(
    store: &mut Store,
    map: MapId,
    query: &RangeQuery,
    at: (u64, &Budget),
) -> (bool, Vec<Bytes>) {
    let (mut from, mut to) = (query.from.clone(), query.to.clone());
    loop {
        let upto = store.migrate_range(
            map,
            &from,
            &to,
            (query.count as usize).min(DRAWN_MAX),
            query.reverse,
        );
        let Some(upto) = upto else {
            return range_of(store, map, (&from, &to), query, at);
        };
        let behind = Bytes::from([&*upto, &[0]].concat());
        let upto = Bytes::copy_from_slice(&upto);
        let here = if query.reverse {
            (&*upto, &*to)
        } else {
            (&*from, &*behind)
        };
        let (_, found) = range_of(store, map, here, query, at);
        if !found.is_empty() || at.1.is_spent() {
            return (true, found);
        }
        if query.reverse {
            to = upto;
        } else {
            from = behind;
        }
    }
}

/// The same if all keys are here.
fn range_of(
    store: &Store,
    map: MapId,
    (from, to): (&[u8], &[u8]),
    query: &RangeQuery,
    (clock, budget): (u64, &Budget),
) -> (bool, Vec<Bytes>) {
    let (mut found, mut bytes, mut keys) = (Vec::new(), 0, 0);
    for (looked, entry) in (0_u32..).zip(store.range(map, from, to, query.reverse)) {
        if !budget.element_of(entry.key().len()) {
            return (true, found);
        }
        // Overdue keys that were looked at may be after the last key, too, so without a key there
        // is no place to continue.
        if keys >= query.count || (keys > 0 && (looked >= COUNT_MAX || bytes >= ANSWER_BYTES)) {
            return (true, found);
        }
        let other = query.values && entry.kind() != Kind::String;
        if other || entry.overdue(clock) || entry.is_unfinished() {
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
