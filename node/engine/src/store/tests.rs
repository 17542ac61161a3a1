use super::budget::Budget;
use super::map::{RANKED_OVERHEAD, SORTED_OVERHEAD, TABLE_OVERHEAD, cost};
use super::*;
use crate::command::operation::{FindQuery, RangeQuery};
use crate::command::scan;
use crate::value::cause::Cause;
use crate::value::dated;
use crate::value::deadline;
use crate::value::entry::Entry;
use crate::value::kind::Kind;
use bytes::Bytes;
use doyen_placement::{MapId, OrderKey};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

mod cursors;
mod model;

use model::{
    Held, Model, check_ordered, deadlines, effects, entry_of, key, made_real, model_apply,
};

fn contents(store: &Store) -> Model {
    store
        .following(&None)
        .map(|piece| {
            let own: Key = piece.entry.key().into();
            let place = match piece.of {
                None => (piece.map, own, None),
                Some(key) => (piece.map, key.into(), Some(own)),
            };
            (place, Held::of(piece.entry))
        })
        .collect()
}

fn check(store: &Store, model: &Model) {
    assert_eq!(&contents(store), model);
    check_ordered(store, model);
    let keys = || model.iter().filter(|((_, _, field), _)| field.is_none());
    assert_eq!(store.keys(), keys().count());
    let place = if store.sorted { SORTED_OVERHEAD } else { 0 };
    assert_eq!(
        store.bytes(),
        model
            .iter()
            .map(|((map, key, field), held)| {
                let of_key = place + if held.table { TABLE_OVERHEAD } else { 0 };
                let is_ordered = entry_of(model, *map, key).is_some();
                let of_row = if is_ordered { RANKED_OVERHEAD } else { 0 };
                let (key, more) = field
                    .as_ref()
                    .map_or((key, of_key), |field| (field, of_row));
                let small = held.hash && !held.table;
                let kind = if small { Kind::Hash } else { Kind::String };
                let entry = Entry::of_kind(kind, key, &held.value);
                entry.date(held.deadline, 0);
                cost(&entry) + more
            })
            .sum::<usize>()
    );
    for map in (0..3).map(MapId) {
        for (from, to) in [
            (&b""[..], &b""[..]),
            (b"k\x03", b"k\x07"),
            (b"k\x07", b""),
            (b"k\x07", b"k\x07"),
            (b"x", b"a"),
        ] {
            let within = |key: &[u8]| store.sorted && key >= from && (to.is_empty() || key < to);
            let mut expected: Vec<&[u8]> = keys()
                .filter(|((m, k, _), _)| *m == map && within(k))
                .map(|((_, k, _), _)| &**k)
                .collect();
            assert_eq!(
                store
                    .range(map, from, to, false)
                    .map(Entry::key)
                    .collect::<Vec<_>>(),
                expected
            );
            expected.reverse();
            assert_eq!(
                store
                    .range(map, from, to, true)
                    .map(Entry::key)
                    .collect::<Vec<_>>(),
                expected
            );
        }
    }
    let expiring: BTreeSet<_> = keys()
        .filter(|(_, held)| held.deadline != 0)
        .map(|((m, k, _), held)| (*m, held.deadline, k.clone()))
        .collect();
    let indexed: BTreeSet<_> = store
        .maps
        .all
        .iter()
        .flat_map(|(id, m)| {
            m.expiring
                .iter()
                .map(|(d, e)| (*id, *d, Key::from(e.0.key())))
        })
        .collect();
    assert_eq!(expiring, indexed);
    let fields = model
        .iter()
        .filter(|((.., field), held)| field.is_some() && held.deadline != 0);
    let mut expected: BTreeMap<_, u64> = BTreeMap::new();
    for ((map, key, _), held) in fields {
        let first = expected.entry((*map, key.clone())).or_insert(u64::MAX);
        *first = held.deadline.min(*first);
    }
    let due = store.maps.all.iter().flat_map(|(id, map)| {
        map.due
            .iter()
            .map(|(deadline, key)| ((*id, key.clone()), *deadline))
    });
    assert_eq!(due.collect::<BTreeMap<_, _>>(), expected);
    let small = keys().filter(|(_, held)| held.hash && !held.table);
    let small = small.map(|((m, key, _), held)| (*m, dated::first_due(&held.value), key.clone()));
    let small: BTreeSet<_> = small.filter(|(_, due, _)| *due != 0).collect();
    let of_map = |(id, map): (&MapId, &StoredMap)| {
        let due = map.fields_due.iter();
        due.map(|(due, entry)| (*id, *due, Key::from(entry.0.key())))
            .collect::<Vec<_>>()
    };
    let indexed: BTreeSet<_> = store.maps.all.iter().flat_map(of_map).collect();
    assert_eq!(indexed, small);
}

proptest! {
    #[test]
    fn effects_are_applied_and_undone_exactly(
        effects in prop::collection::vec(effects(), 0..60),
        sorted in any::<bool>(),
    ) {
        let (mut store, mut model) = (Store::new(OrderKey(3)).sorted(sorted), Model::new());
        let mut past = Vec::new();
        for (i, effect) in effects.into_iter().enumerate() {
            let effect = made_real(&model, i as u64 + 1, &effect, false);
            past.push((model.clone(), effect.clone(), store.apply(i as u64 + 1, &effect)));
            model_apply(&mut model, i as u64 + 1, &effect);
            check(&store, &model);
        }
        while let Some((before, effect, undo)) = past.pop() {
            store.undo(&effect, undo);
            check(&store, &before);
        }
    }

    #[test]
    fn a_checksum_built_in_slices_under_writes_equals_one_built_at_rest(
        first in prop::collection::vec(effects(), 0..40),
        later in prop::collection::vec((effects(), any::<bool>()), 0..40),
        slice in 1usize..5,
    ) {
        let (mut store, mut model) = (Store::new(OrderKey(3)), Model::new());
        let mut seq = 0;
        let mut apply = |store: &mut Store, e: &Effect, is_undone: bool| {
            seq += 1;
            let e = made_real(&model, seq, e, false);
            let undo = store.apply(seq, &e);
            // A checksum does not outlive that a clearing is undone.
            if is_undone && !matches!(e, Effect::Clear { .. }) {
                store.undo(&e, undo);
            } else {
                model_apply(&mut model, seq, &e);
            }
        };
        for e in &first {
            apply(&mut store, e, false);
        }
        store.sums.begin(1);
        for (e, is_undone) in &later {
            store.advance_sum(1, slice);
            apply(&mut store, e, *is_undone);
        }
        while !store.advance_sum(1, slice).0 {}
        store.sums.begin(2);
        while !store.advance_sum(2, 1000).0 {}
        prop_assert_eq!(store.sums.of(1), store.sums.of(2));
    }

    #[test]
    fn a_fuzzy_snapshot_and_the_log_in_any_interleaving_give_the_same_store(
        first in prop::collection::vec(effects(), 0..40),
        later in prop::collection::vec(effects(), 0..40),
        slice in 1usize..6,
        // Whether a chunk is read before a step.
        reads in prop::collection::vec(prop::bool::weighted(0.3), 40),
        // The chunks that arrive before the log, and after each step of it.
        ahead in 0usize..4,
        between in prop::collection::vec(prop_oneof![3 => Just(0usize), 1 => 0usize..8], 40),
        sifted in 0usize..6,
        sorted in any::<bool>(),
    ) {
        // Deadlines are logged as puts while a snapshot is under way.
        let is_logged = |e: &Effect| {
            !e.parts().iter().any(|part| matches!(part, Effect::Deadline { .. }))
        };
        let later: Vec<_> = later.into_iter().filter(is_logged).collect();
        let empty = || Store::new(OrderKey(3)).sorted(sorted);
        let (mut from, mut to, mut model) = (empty(), empty(), Model::new());
        let mut seq = 0;
        let mut apply = |from: &mut Store, e: &Effect| {
            seq += 1;
            let here = made_real(&model, seq, e, true);
            // Stores of different members share no entries.
            let there = made_real(&model, seq, e, true);
            from.apply(seq, &here);
            model_apply(&mut model, seq, &here);
            (seq, there)
        };
        for e in &first {
            apply(&mut from, e);
        }
        to.keep_tombstones(true);
        let mut cursor: SumCursor = None;
        let mut chunks = Vec::new();
        let mut log = Vec::new();
        let mut chunk = |from: &Store| {
            let next: Vec<_> = from.following(&cursor).take(slice).collect();
            if let Some(last) = next.last() {
                cursor = Some(last.position(from));
            }
            let copied = next.iter().map(|p| (p.map, p.of.map(Key::from), p.entry.copy()));
            copied.collect::<Vec<_>>()
        };
        for (e, reads) in later.iter().zip(reads) {
            if reads {
                chunks.push(chunk(&from));
            }
            log.push(apply(&mut from, e));
        }
        loop {
            let c = chunk(&from);
            if c.is_empty() {
                break;
            }
            chunks.push(c);
        }
        // The sum advances one entry behind the snapshot, so that some entries arrive in its
        // covered part and some outside of it.
        to.sums.begin(1);
        let mut chunks = chunks.into_iter();
        let mut take = |to: &mut Store, most: usize| {
            for chunk in chunks.by_ref().take(most) {
                let mut adopted = 0;
                for (map, of, entry) in chunk {
                    adopted += usize::from(match of {
                        None => to.adopt(map, entry),
                        Some(key) => to.adopt_row(map, &key, entry),
                    });
                }
                to.advance_sum(1, adopted.saturating_sub(1));
            }
        };
        let mut garbage = Vec::new();
        take(&mut to, ahead);
        for ((seq, e), arrives) in log.iter().zip(between) {
            to.apply_fuzzy(*seq, e);
            to.sift(sifted, &mut garbage);
            take(&mut to, arrives);
        }
        take(&mut to, usize::MAX);
        while !to.sift(1, &mut garbage) {}
        check(&to, &contents(&from));
        while !to.advance_sum(1, slice).0 {}
        assert_eq!(to.sums.of(1), Some(from.content()));
    }
}

/// The steps of a store that draws from others.
#[derive(Debug, Clone)]
enum Happens {
    Applied(Effect),
    /// The last effect is undone.
    Undone,
    Drawn(usize),
    /// Some keys of a range are asked for, or of the places of a scan.
    Ranged {
        from: u8,
        to: u8,
        count: u32,
        reverse: bool,
    },
    Scanned(u32),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => effects().prop_map(Happens::Applied),
        2 => Just(Happens::Undone),
        2 => (1usize..4).prop_map(Happens::Drawn),
        1 => (0u8..12, 0u8..13, 1u32..4, any::<bool>()).prop_map(|(from, to, count, reverse)| {
            Happens::Ranged { from, to, count, reverse }
        }),
        1 => (1u32..4).prop_map(Happens::Scanned),
    ]
}

fn everything(store: &Store) -> Model {
    let all: Vec<_> = store
        .contents()
        .map(|(map, of, entry)| {
            let own: Key = entry.key().into();
            let place = match of {
                None => (map, own, None),
                Some(key) => (map, key, Some(own)),
            };
            (place, Held::of(&entry))
        })
        .collect();
    let found: Model = all.iter().cloned().collect();
    assert_eq!(found.len(), all.len(), "nothing is there twice");
    found
}

/// A range returns the first keys that exist, and whether more may follow.
fn check_range(
    store: &mut Store,
    model: &Model,
    map: MapId,
    (from, to): (u8, u8),
    count: u32,
    reverse: bool,
) {
    let (from, to) = (
        Bytes::copy_from_slice(&key(from)),
        Bytes::copy_from_slice(&key(to)),
    );
    let mut expected: Vec<&[u8]> = model
        .keys()
        .filter(|(m, k, field)| *m == map && *from <= **k && **k < *to && field.is_none())
        .map(|(_, k, _)| &**k)
        .collect();
    if reverse {
        expected.reverse();
    }
    let query = RangeQuery {
        from,
        to,
        count,
        reverse,
        values: false,
    };
    let (more, found) = scan::range(store, map, &query, (0, Budget::endless()));
    assert!(
        found.len() <= count as usize
            && (more || found.len() == expected.len())
            && found.is_empty() == expected.is_empty()
    );
    assert_eq!(found, expected[..found.len()]);
}

/// A query for strings finds each one once, with its value.
fn check_find(store: &mut Store, model: &Model, map: MapId, prefix: &[u8], count: u32) {
    let (mut found, mut cursor) = (Vec::new(), 0);
    loop {
        let query = FindQuery {
            cursor,
            count,
            prefix: Bytes::copy_from_slice(prefix),
            values: true,
            holding: None,
        };
        let (next, keys) = scan::find(store, map, &query, (0, Budget::endless()));
        assert!(keys.len() <= 2 * count as usize && next != cursor || next == 0);
        found.extend(
            keys.chunks(2)
                .map(|pair| (pair[0].to_vec(), pair[1].to_vec())),
        );
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    found.sort();
    let expected = model.iter().filter(|((m, key, field), held)| {
        let is_string = held.kind == Kind::String;
        *m == map && key.starts_with(prefix) && field.is_none() && is_string
    });
    let expected = expected.map(|((_, key, _), held)| (key.to_vec(), held.value.clone()));
    assert_eq!(found, expected.collect::<Vec<_>>());
}

#[test]
fn a_key_whose_deadline_has_passed_is_not_found() {
    for sorted in [false, true] {
        let mut store = Store::new(OrderKey(3)).sorted(sorted);
        for (k, deadline) in [(1, 0), (2, deadline::new(10, 50_010))] {
            store.apply(
                1,
                &Effect::Put {
                    map: MapId(0),
                    entry: Entry::new(&key(k), b"v", 0, 0),
                    deadline,
                    before: Before::Value,
                },
            );
        }
        let query = FindQuery {
            cursor: 0,
            count: 10,
            prefix: Bytes::from_static(b"k"),
            values: false,
            holding: None,
        };
        let mut at = |clock| {
            let (next, mut keys) =
                scan::find(&mut store, MapId(0), &query, (clock, Budget::endless()));
            keys.sort();
            assert_eq!(next, 0);
            keys
        };
        assert_eq!(at(9), [&*key(1), &*key(2)]);
        assert_eq!(at(11), [&*key(1)]);
    }
}

/// The keys whose number, divided by four, leaves one of these remainders.
#[derive(Debug)]
struct Quarters(Vec<u8>);

impl Portion for Quarters {
    fn holds(&self, _map: MapId, key: &[u8]) -> bool {
        self.0.contains(&(key[1] % 4))
    }
}

/// A store in use, its expected contents, and how to undo its effects.
struct Course {
    store: Store,
    portion: Arc<Quarters>,
    model: Model,
    past: Vec<(Model, Effect, Undo)>,
    garbage: Vec<StoredMap>,
}

impl Course {
    fn new(sorted: bool, quarters: &[u8]) -> Self {
        let (portion, store) = (
            Arc::new(Quarters(quarters.to_vec())),
            Store::new(OrderKey(3)).sorted(sorted),
        );
        Self {
            store,
            portion,
            model: Model::new(),
            past: Vec::new(),
            garbage: Vec::new(),
        }
    }

    fn happens(&mut self, seq: u64, happens: Happens) {
        let Self {
            store,
            portion,
            model,
            past,
            garbage,
        } = self;
        match happens {
            Happens::Applied(effect) => {
                let effect = made_real(model, seq, &effect, false);
                let held = |part: &Effect| {
                    part.place()
                        .is_none_or(|(_, key)| portion.holds(MapId(0), key))
                };
                if effect.parts().iter().all(held) {
                    past.push((model.clone(), effect.clone(), store.apply(seq, &effect)));
                    model_apply(model, seq, &effect);
                }
            }
            Happens::Undone => {
                if let Some((before, effect, undo)) = past.pop() {
                    store.undo(&effect, undo);
                    *model = before;
                }
            }
            Happens::Drawn(count) => store.migrate_some(count, garbage),
            Happens::Ranged {
                from,
                to,
                count,
                reverse,
            } if store.sorted => {
                check_range(store, model, MapId(1), (from, to), count, reverse);
            }
            Happens::Ranged { .. } => {}
            Happens::Scanned(count) => {
                check_find(store, model, MapId(1), b"k", count);
                check_find(store, model, MapId(1), &[b'k', count as u8], count);
                let (mut found, mut cursor) = (Vec::new(), 0);
                loop {
                    let (next, keys) = scan::scan(
                        store,
                        MapId(2),
                        (cursor, count, None),
                        (0, Budget::endless()),
                    );
                    found.extend(
                        keys.into_iter()
                            .map(|key| (MapId(2), Key::from(&*key), None)),
                    );
                    cursor = next;
                    if cursor == 0 {
                        break;
                    }
                }
                found.sort();
                assert_eq!(
                    found,
                    model
                        .keys()
                        .filter(|(map, _, field)| *map == MapId(2) && field.is_none())
                        .cloned()
                        .collect::<Vec<_>>()
                );
            }
        }
        assert_eq!(everything(store), *model);
    }

    /// The store of these quarters, made from these stores. With each comes how far its clock is
    /// behind.
    fn of(mut from: Vec<(Self, u64)>, quarters: &[u8]) -> Self {
        let mut next = Self::new(from[0].0.store.sorted, quarters);
        for (course, behind_ms) in &from {
            let late = |held: &Held| Held {
                deadline: deadline::moved(held.deadline, *behind_ms),
                value: match held.hash && !held.table && dated::is_dated(&held.value) {
                    true => dated::moved(&held.value, *behind_ms),
                    false => held.value.clone(),
                },
                ..held.clone()
            };
            next.model.extend(
                course
                    .model
                    .iter()
                    .map(|(key, entry)| (key.clone(), late(entry))),
            );
        }
        let portion = next.portion.clone();
        next.model
            .retain(|(map, key, _), _| portion.holds(*map, key));
        let mut former = Vec::new();
        for (course, behind_ms) in &mut from {
            let store = std::mem::replace(&mut course.store, Store::new(OrderKey(3)));
            former.push(store.into_former(*behind_ms, &mut course.garbage));
        }
        let shared_by = if from.len() == 1 { 2 } else { 1 };
        let portion: Arc<dyn Portion> = next.portion.clone();
        next.store = Store::new(OrderKey(3))
            .sorted(next.store.sorted)
            .migrate_from(&former, shared_by, &portion);
        assert_eq!(everything(&next.store), next.model);
        next
    }

    /// Draws everything, undoes everything, and frees everything.
    fn ends(mut self) {
        while !self.store.is_whole() {
            self.store.migrate_some(3, &mut self.garbage);
            assert_eq!(everything(&self.store), self.model);
        }
        check(&self.store, &self.model);
        while let Some((before, effect, undo)) = self.past.pop() {
            self.store.undo(&effect, undo);
            // Keys that a map had when it was cleared are still drawn.
            while !self.store.is_whole() {
                self.store.migrate_some(1, &mut self.garbage);
            }
            check(&self.store, &before);
        }
        self.garbage.extend(self.store.take());
        while let Some(mut map) = self.garbage.pop() {
            while map.shed(2) {}
            self.garbage.extend(map.into_former());
        }
    }
}

fn course() -> impl Strategy<Value = Vec<Happens>> {
    prop::collection::vec(happens(), 0..30)
}

proptest! {
    #[test]
    fn a_drawing_store_has_the_former_contents_and_later_changes(
        first in course(),
        second in course(),
        third in course(),
        fourth in course(),
        sorted in any::<bool>(),
        merges in any::<bool>(),
        behind_ms in 0u64..4,
    ) {
        let mut seq = 0;
        let mut go = |course: &mut Course, all: &[Happens]| {
            for happens in all {
                seq += 1;
                course.happens(seq, happens.clone());
            }
        };
        let last = if merges {
            // Two stores, one after the other, are merged. Then the result is merged with a third
            // while it draws.
            let of = |quarter: [u8; 1]| Course::new(sorted, &quarter);
            let [mut one, mut other, mut third_one] = [[0], [1], [2]].map(of);
            go(&mut one, &first);
            go(&mut other, &second);
            let mut both = Course::of(vec![(one, behind_ms), (other, 0)], &[0, 1]);
            go(&mut both, &third);
            go(&mut third_one, &first);
            let mut all = Course::of(vec![(both, 0), (third_one, behind_ms)], &[0, 1, 2]);
            go(&mut all, &fourth);
            all
        } else {
            // A store is split, split again while it draws, and once more.
            let mut whole = Course::new(sorted, &[0, 1, 2, 3]);
            go(&mut whole, &first);
            let mut part = Course::of(vec![(whole, 0)], &[0, 1, 2]);
            go(&mut part, &second);
            let mut part = Course::of(vec![(part, 0)], &[0, 1]);
            go(&mut part, &third);
            let mut part = Course::of(vec![(part, 0)], &[0]);
            go(&mut part, &fourth);
            part
        };
        last.ends();
    }
}

/// Regression: a FLUSHALL while a snapshot arrived was a deletion for each key in one go, which
/// took seconds for millions.
#[test]
fn a_clear_while_a_snapshot_arrives_looks_at_no_entry_and_is_sifted_in_steps() {
    let (mut store, mut garbage) = (Store::new(OrderKey(3)), Vec::new());
    store.keep_tombstones(true);
    let map = MapId(0);
    for n in 0..1_000_u64 {
        // Every tenth key was sent after the map had been cleared, and overtook the clearing.
        store.adopt(
            map,
            Entry::new(
                &n.to_be_bytes(),
                b"v",
                n % 2,
                if n % 10 == 0 { 2_001 } else { n },
            ),
        );
    }
    store.apply_fuzzy(2_000, &Effect::Clear { map });
    assert_eq!(
        (store.keys(), store.bytes(), store.is_sifted()),
        (0, 0, false)
    );
    let mut steps = 0;
    while !store.sift(100, &mut garbage) {
        steps += 1;
        assert!(store.keys() <= steps * 100);
    }
    assert!((10..=11).contains(&steps) && store.is_sifted(), "{steps}");
    assert_eq!(
        (
            store.keys(),
            garbage.iter().map(StoredMap::len).sum::<usize>()
        ),
        (100, 0)
    );
    store.keep_tombstones(false);
    assert!(
        store
            .following(&None)
            .all(|piece| piece.entry.version() == 2_001)
    );
}

/// Regression: the entry of a table overtook the deletion of a row that the log had brought before.
/// The deletion was skipped as older, and the row stayed.
#[test]
fn a_row_is_deleted_though_the_entry_of_its_table_is_newer_already() {
    let (map, kind) = (MapId(0), Kind::Hash);
    let table = |born| Effect::Put {
        map,
        entry: Entry::of_table(kind, b"h", born),
        deadline: 0,
        before: Before::Value,
    };
    let row = |field: &[u8]| Effect::Row {
        map,
        key: Key::from(b"h".as_slice()),
        kind,
        row: Entry::of_row(field, b"v", 0),
    };
    let deleted = |field: &[u8]| Effect::RowDelete {
        map,
        key: Key::from(b"h".as_slice()),
        kind,
        field: Key::from(field),
    };
    for knows_table in [false, true] {
        let (mut from, mut to) = (Store::new(OrderKey(3)), Store::new(OrderKey(3)));
        to.keep_tombstones(true);
        let log = || {
            [
                table(1),
                row(b"kept"),
                row(b"gone"),
                deleted(b"gone"),
                row(b"last"),
            ]
        };
        for (seq, effect) in (1..).zip(&log()) {
            from.apply(seq, effect);
        }
        let steps = (1..).zip(log()).skip(usize::from(!knows_table));
        let (before, after): (Vec<_>, Vec<_>) = steps.partition(|(seq, _)| *seq < 4);
        before
            .iter()
            .for_each(|(seq, effect)| to.apply_fuzzy(*seq, effect));
        for piece in from.following(&None) {
            _ = match piece.of {
                None => to.adopt(map, piece.entry.copy()),
                Some(key) => to.adopt_row(map, key, piece.entry.copy()),
            };
        }
        while !to.sift(9, &mut Vec::new()) {}
        after
            .iter()
            .for_each(|(seq, effect)| to.apply_fuzzy(*seq, effect));
        check(&to, &contents(&from));
    }
}

/// Regression: the log had brought a row of a table whose entry was on its way, when another table
/// took its place. That one kept the row, and the order of rows of the former kind.
#[test]
fn a_table_takes_the_place_of_one_whose_entry_is_on_its_way() {
    let (map, key) = (MapId(0), || Key::from(b"k".as_slice()));
    let table = |kind, born| Effect::Put {
        map,
        entry: Entry::of_table(kind, b"k", born),
        deadline: 0,
        before: Before::Value,
    };
    let row = |kind, row| Effect::Row {
        map,
        key: key(),
        kind,
        row,
    };
    let hash_row = |field: &[u8]| row(Kind::Hash, Entry::of_row(field, b"v", 0));
    let score = |score: u8| Entry::of_row(&[score], &[score; 8], 0);
    for is_deleted in [false, true] {
        let (mut from, mut to) = (Store::new(OrderKey(3)), Store::new(OrderKey(3)));
        to.keep_tombstones(true);
        let second = if is_deleted {
            Effect::RowDelete {
                map,
                key: key(),
                kind: Kind::Hash,
                field: Key::from(b"first".as_slice()),
            }
        } else {
            hash_row(b"second")
        };
        let log = [
            table(Kind::Hash, 1),
            hash_row(b"first"),
            second,
            table(Kind::SortedSet, 4),
            row(Kind::SortedSet, score(9)),
            row(Kind::SortedSet, score(7)),
        ];
        for (seq, effect) in (1..).zip(&log) {
            from.apply(seq, effect);
        }
        for (seq, effect) in (1..).zip(&log).skip(2) {
            to.apply_fuzzy(seq, effect);
        }
        for piece in from.following(&None) {
            _ = match piece.of {
                None => to.adopt(map, piece.entry.copy()),
                Some(key) => to.adopt_row(map, key, piece.entry.copy()),
            };
        }
        while !to.sift(9, &mut Vec::new()) {}
        check(&to, &contents(&from));
    }
}

/// Regression: a slice was a number of keys, however large. Some values of 16 MiB were summed while
/// clients waited.
#[test]
fn large_values_are_summed_and_freed_a_few_at_a_time() {
    let mut store = Store::new(OrderKey(3));
    let (map, value) = (MapId(0), vec![b'v'; 1 << 19]);
    for n in 0..20_u64 {
        store.apply(
            n + 1,
            &Effect::Put {
                map,
                entry: Entry::new(&n.to_be_bytes(), &value, 0, 0),
                deadline: 0,
                before: Before::Value,
            },
        );
    }
    store.sums.begin(1);
    let mut steps = 0;
    while !store.advance_sum(1, 1_000).0 {
        steps += 1;
    }
    assert_eq!(steps, 20, "one in a step");
    let mut map = store.take().pop().expect("it was there");
    assert!(map.shed(500));
    assert!(
        (11..=14).contains(&map.len()),
        "{} of 20 are left after one step",
        map.len()
    );
}

#[test]
fn a_digest_is_the_same_however_the_bytes_are_cut() {
    let bytes: Vec<u8> = (0..2_000).map(|n: u32| (n * 7 / 3) as u8).collect();
    for length in [0, 1, 7, 8, 9, 16, 100, 240, 241, 2_000] {
        let whole = digest_bytes([&bytes[..length]]);
        for cut in [1, 2, 3, 19, 64, 255, 1_023] {
            assert_eq!(digest_bytes(bytes[..length].chunks(cut)), whole);
            let (first, rest) = bytes[..length].split_at(cut.min(length));
            assert_eq!(digest_bytes([first, &[], rest]), whole);
        }
    }
    assert_ne!(digest_bytes([&bytes[..9]]), digest_bytes([&bytes[..10]]));
}
