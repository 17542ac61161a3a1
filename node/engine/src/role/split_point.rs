//! Finds the key at which to split a range that has grown too large: the key that halves its bytes.
//!
//! The primary looks for that key a slice at a time, and asks the coordinator to split there. If
//! splits are off or others are under way, the request has no effect, and the primary asks again.

use crate::role::holding::Leading;
use crate::role::host::Host;
use crate::store::{Key, Store};
use doyen_gossip::agreement::InSyncChange;
use doyen_placement::MapId;
use doyen_placement::division::{Cut, SPLIT_BYTES_MAX};
use std::time::Duration;

/// Keys of one slice.
const LOOKED_AT: usize = 4_000;
/// How long until the primary asks again.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// A search for the key that halves a store.
#[derive(Debug)]
pub(crate) struct SplitPointSearch {
    /// Half of all bytes.
    goal: usize,
    /// Bytes of the keys so far.
    bytes: usize,
    last: Option<(MapId, Key)>,
}

impl SplitPointSearch {
    /// A search in a store of `bytes`.
    pub(crate) const fn new(bytes: usize) -> Self {
        Self {
            goal: bytes / 2,
            bytes: 0,
            last: None,
        }
    }

    /// Looks at some more keys. `None`: not found yet. `Some(None)`: there is no such key.
    pub(crate) fn look(&mut self, store: &Store, count: usize) -> Option<Option<Cut>> {
        let known = self.last.clone();
        let known = known.as_ref().map(|(map, key)| (*map, &**key));
        let mut following = store.sorted_after(known);
        let mut last: Option<(MapId, &[u8])> = None;
        for _ in 0..count {
            let Some((map, entry)) = following.next() else {
                return Some(None);
            };
            let before = last.or(known);
            let bytes = store.cost(entry);
            // Before or after this key, whichever is nearer to the half.
            if self.bytes + bytes / 2 >= self.goal
                && let Some((before, key)) = before
                && let Some(cut) = between((before, key), (map, entry.key()))
            {
                return Some(Some(cut));
            }
            self.bytes += bytes;
            last = Some((map, entry.key()));
        }
        if let Some((map, key)) = last {
            self.last = Some((map, Key::from(key)));
        }
        None
    }
}

/// The shortest place after the one and not after the other. `None` if it would be too long.
fn between(one: (MapId, &[u8]), other: (MapId, &[u8])) -> Option<Cut> {
    if one.0 != other.0 {
        return Some(Cut::Key {
            map: other.0,
            key: Box::default(),
        });
    }
    let same = one
        .1
        .iter()
        .zip(other.1)
        .take_while(|(one, other)| one == other)
        .count();
    let key = other
        .1
        .get(..=same)
        .filter(|key| key.len() <= SPLIT_BYTES_MAX)?;
    Some(Cut::Key {
        map: other.0,
        key: key.into(),
    })
}

impl Leading<'_> {
    /// Asks for a split of a range that has grown too large.
    pub(crate) fn search_split_point(&mut self, cx: &mut Host) {
        let now = cx.now;
        let large = self.store.bytes() > cx.limits.range_bytes_max;
        let Self { lead, store, .. } = self;
        if !self.ranged
            || self.frozen
            || !store.is_whole()
            || !lead.open
            || !lead.serving
            || !large
            || lead.halve_at.is_some_and(|at| now < at)
        {
            lead.search = None;
            return;
        }
        let found = lead
            .search
            .get_or_insert_with(|| Box::new(SplitPointSearch::new(store.bytes())))
            .look(store, LOOKED_AT);
        let Some(found) = found else { return };
        lead.search = None;
        lead.halve_at = Some(now + ASK_AGAIN);
        if let Some(cut) = found {
            cx.outbox.ask(self.at, self.epoch, InSyncChange::Split(cut));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Before, Effect};
    use crate::value::entry::Entry;
    use doyen_placement::OrderKey;

    fn store(entries: &[(u32, &str, usize)]) -> Store {
        let mut store = Store::new(OrderKey(7)).sorted(true);
        for (seq, (map, key, size)) in (1..).zip(entries) {
            let entry = Entry::new(key.as_bytes(), &vec![b'x'; *size], 0, 0);
            store.apply(
                seq,
                &Effect::Put {
                    map: MapId(*map),
                    entry,
                    deadline: 0,
                    before: Before::Value,
                },
            );
        }
        store
    }

    fn found(store: &Store, slice: usize) -> Option<Cut> {
        let mut search = SplitPointSearch::new(store.bytes());
        loop {
            if let Some(found) = search.look(store, slice) {
                return found;
            }
        }
    }

    fn cut(map: u32, key: &str) -> Option<Cut> {
        Some(Cut::Key {
            map: MapId(map),
            key: key.as_bytes().into(),
        })
    }

    #[test]
    fn the_split_key_halves_the_bytes_for_any_slice_of_keys() {
        let even = store(&[
            (0, "a", 100),
            (0, "bertha", 100),
            (0, "beta", 100),
            (0, "d", 100),
        ]);
        let late = store(&[(0, "a", 1), (0, "b", 1), (0, "c", 1), (0, "d", 9000)]);
        let early = store(&[(0, "a", 9000), (0, "b", 1), (0, "c", 1), (0, "d", 1)]);
        let maps = store(&[(0, "a", 100), (3, "a", 100)]);
        for slice in [1, 2, 3, 100] {
            assert_eq!(
                found(&even, slice),
                cut(0, "bet"),
                "the least that tells them apart"
            );
            assert_eq!(found(&late, slice), cut(0, "d"));
            assert_eq!(found(&early, slice), cut(0, "b"));
            assert_eq!(found(&maps, slice), cut(3, ""));
            assert_eq!(found(&store(&[(0, "a", 9000)]), slice), None);
            assert_eq!(found(&store(&[]), slice), None);
        }
    }

    #[test]
    fn keys_with_too_long_a_common_prefix_are_not_split() {
        let alike = |end: &str| format!("{}{end}", "k".repeat(SPLIT_BYTES_MAX));
        let (one, other) = (alike("a"), alike("b"));
        assert_eq!(found(&store(&[(0, &one, 1), (0, &other, 1)]), 10), None);
        assert_eq!(
            found(&store(&[(0, &one, 1), (0, &other, 1), (0, "l", 1)]), 10),
            cut(0, "l")
        );
    }
}
