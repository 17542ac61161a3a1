use super::super::{op::RangeQuery, scan};
use super::*;
use bytes::Bytes;
use proptest::prelude::*;

fn key(n: u8) -> Key {
    Key::from([b'k', n].as_slice())
}

/// No deadline, or one of a few.
fn deadlines() -> impl Strategy<Value = u64> {
    (0u64..4).prop_map(|n| {
        if n == 0 {
            0
        } else {
            deadline::new(n, 50_000 + n)
        }
    })
}

fn effects() -> impl Strategy<Value = Effect> {
    prop_oneof![
        12 => on_one_key(),
        1 => (0u32..3).prop_map(|map| Effect::Clear { map: MapId(map) }),
        3 => prop::collection::vec(on_one_key(), 0..5).prop_map(|parts| {
            let places = |effect: &Effect| effect.place().map(|(map, key)| (map, Key::from(key)));
            let parts: BTreeMap<_, _> = parts.into_iter().map(|e| (places(&e), e)).collect();
            Effect::Many(parts.into_values().collect())
        }),
    ]
}

fn on_one_key() -> impl Strategy<Value = Effect> {
    let map = (0u32..3).prop_map(MapId);
    prop_oneof![
        6 => (map.clone(), 0u8..12, any::<u8>(), deadlines()).prop_map(
            |(map, k, v, deadline)| Effect::Put {
                map,
                entry: Entry::new(&key(k), &[v], 0, 0),
                deadline,
            },
        ),
        3 => (map.clone(), 0u8..12).prop_map(|(map, k)| Effect::Delete { map, key: key(k) }),
        2 => (map, 0u8..12, deadlines()).prop_map(|(map, k, deadline)| Effect::Deadline {
            map,
            key: key(k),
            deadline,
        }),
    ]
}

/// Value, deadline, version.
type Model = BTreeMap<(MapId, Key), (Vec<u8>, u64, u64)>;

fn model_apply(model: &mut Model, seq: u64, effect: &Effect) {
    match effect.clone() {
        Effect::Put {
            map,
            entry,
            deadline,
        } => {
            model.insert(
                (map, entry.key().into()),
                (entry.value().to_vec(), deadline, seq),
            );
        }
        Effect::Delete { map, key } => {
            model.remove(&(map, key));
        }
        Effect::Deadline { map, key, deadline } => {
            if let Some(e) = model.get_mut(&(map, key)) {
                (e.1, e.2) = (deadline, seq);
            }
        }
        Effect::Clear { map } => model.retain(|(m, _), _| *m != map),
        Effect::Many(parts) => parts.iter().for_each(|part| model_apply(model, seq, part)),
    }
}

fn contents(store: &Store) -> Model {
    store
        .following(&None)
        .map(|(m, e)| {
            (
                (m, e.key().into()),
                (e.value().to_vec(), e.deadline(), e.version()),
            )
        })
        .collect()
}

fn check(store: &Store, model: &Model) {
    assert_eq!(&contents(store), model);
    assert_eq!(store.keys(), model.len());
    let place = if store.sorted { SORTED_OVERHEAD } else { 0 };
    assert_eq!(
        store.bytes(),
        model
            .iter()
            .map(|((_, k), (v, d, _))| cost(&Entry::new(k, v, *d, 0)) + place)
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
            let mut expected: Vec<&[u8]> = model
                .keys()
                .filter(|(m, k)| *m == map && within(k))
                .map(|(_, k)| &**k)
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
    let expiring: BTreeSet<_> = model
        .iter()
        .filter(|(_, e)| e.1 != 0)
        .map(|((m, k), e)| (*m, e.1, k.clone()))
        .collect();
    let indexed: BTreeSet<_> = store
        .maps
        .iter()
        .flat_map(|(id, m)| {
            m.expiring
                .iter()
                .map(|(d, e)| (*id, *d, Key::from(e.0.key())))
        })
        .collect();
    assert_eq!(expiring, indexed);
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
        later in prop::collection::vec(effects(), 0..40),
        slice in 1usize..5,
    ) {
        let mut store = Store::new(OrderKey(3));
        let mut seq = 0;
        for e in &first {
            seq += 1;
            store.apply(seq, e);
        }
        store.begin_sum(1);
        for e in &later {
            store.advance_sum(1, slice);
            seq += 1;
            store.apply(seq, e);
        }
        while !store.advance_sum(1, slice).0 {}
        store.begin_sum(2);
        while !store.advance_sum(2, 1000).0 {}
        prop_assert_eq!(store.sum(1), store.sum(2));
    }

    #[test]
    fn a_fuzzy_snapshot_and_the_log_in_any_interleaving_give_the_same_store(
        first in prop::collection::vec(effects(), 0..40),
        later in prop::collection::vec(effects(), 0..40),
        slice in 1usize..6,
        late in any::<bool>(),
        sifted in 0usize..6,
        sorted in any::<bool>(),
    ) {
        // Deadlines are logged as puts while a snapshot is under way.
        let is_logged = |e: &Effect| {
            !e.parts().iter().any(|part| matches!(part, Effect::Deadline { .. }))
        };
        let later: Vec<_> = later.into_iter().filter(is_logged).collect();
        let empty = || Store::new(OrderKey(3)).sorted(sorted);
        let (mut from, mut to) = (empty(), empty());
        let mut seq = 0;
        for e in &first {
            seq += 1;
            from.apply(seq, e);
        }
        to.keep_tombstones(true);
        let mut cursor: Cursor = None;
        let mut chunks = Vec::new();
        let mut log = Vec::new();
        let mut chunk = |from: &Store| {
            let next = from.following(&cursor).take(slice);
            let c: Vec<_> = next.map(|(m, e)| (m, e.copy())).collect();
            if let Some((m, e)) = c.last() {
                cursor = Some((*m, Key::from(e.key())));
            }
            c
        };
        for e in &later {
            chunks.push(chunk(&from));
            seq += 1;
            from.apply(seq, e);
            log.push((seq, e.clone()));
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
        to.begin_sum(1);
        let take = |to: &mut Store| {
            for chunk in &chunks {
                let adopted = chunk.iter().filter(|(m, e)| to.adopt(*m, e.copy())).count();
                to.advance_sum(1, adopted.saturating_sub(1));
            }
        };
        if !late {
            take(&mut to);
        }
        let mut garbage = Vec::new();
        for (seq, e) in &log {
            to.apply_fuzzy(*seq, e);
            to.sift(sifted, &mut garbage);
        }
        if late {
            take(&mut to);
        }
        while !to.sift(1, &mut garbage) {}
        check(&to, &contents(&from));
        while !to.advance_sum(1, slice).0 {}
        assert_eq!(to.sum(1), Some(from.content()));
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
        .map(|(m, e)| {
            (
                (m, Key::from(e.key())),
                (e.value().to_vec(), e.deadline(), e.version()),
            )
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
        .filter(|(m, k)| *m == map && *from <= **k && **k < *to)
        .map(|(_, k)| &**k)
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
    let (more, found) = scan::range(store, map, &query, 0);
    assert!(
        found.len() <= count as usize
            && (more || found.len() == expected.len())
            && found.is_empty() == expected.is_empty()
    );
    assert_eq!(found, expected[..found.len()]);
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
    garbage: Vec<Map>,
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
            Happens::Drawn(count) => store.draw_some(count, garbage),
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
                let (mut found, mut cursor) = (Vec::new(), 0);
                loop {
                    let (next, keys) = scan::scan(store, MapId(2), (cursor, count, None), 0);
                    found.extend(keys.into_iter().map(|key| (MapId(2), Key::from(&*key))));
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
                        .filter(|(map, _)| *map == MapId(2))
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
            let late = |(value, deadline, version): &(Vec<u8>, u64, u64)| {
                (
                    value.clone(),
                    deadline::moved(*deadline, *behind_ms),
                    *version,
                )
            };
            next.model.extend(
                course
                    .model
                    .iter()
                    .map(|(key, entry)| (key.clone(), late(entry))),
            );
        }
        let portion = next.portion.clone();
        next.model.retain(|(map, key), _| portion.holds(*map, key));
        let mut former = Vec::new();
        for (course, behind_ms) in &mut from {
            let store = std::mem::replace(&mut course.store, Store::new(OrderKey(3)));
            former.push(store.into_former(*behind_ms, &mut course.garbage));
        }
        let shared_by = if from.len() == 1 { 2 } else { 1 };
        let portion: Arc<dyn Portion> = next.portion.clone();
        next.store = Store::new(OrderKey(3))
            .sorted(next.store.sorted)
            .draw_from(&former, shared_by, &portion);
        assert_eq!(everything(&next.store), next.model);
        next
    }

    /// Draws everything, undoes everything, and frees everything.
    fn ends(mut self) {
        while !self.store.is_whole() {
            self.store.draw_some(3, &mut self.garbage);
            assert_eq!(everything(&self.store), self.model);
        }
        check(&self.store, &self.model);
        while let Some((before, effect, undo)) = self.past.pop() {
            self.store.undo(&effect, undo);
            // Keys that a map had when it was cleared are still drawn.
            while !self.store.is_whole() {
                self.store.draw_some(1, &mut self.garbage);
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
        (store.keys(), garbage.iter().map(Map::len).sum::<usize>()),
        (100, 0)
    );
    store.keep_tombstones(false);
    assert!(store.following(&None).all(|(_, e)| e.version() == 2_001));
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
            },
        );
    }
    store.begin_sum(1);
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
