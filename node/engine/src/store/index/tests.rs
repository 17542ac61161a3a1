use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const SEED: OrderKey = OrderKey(7);

/// An order with three values for all keys. One of them is the last that exists.
struct Crowded;

impl Order for Crowded {
    fn order(&self, key: &[u8]) -> u64 {
        [0x5555_0000_0000_0001, 0x5555_0000_0000_0002, u64::MAX][SEED.order(key) as usize % 3]
    }
}

fn key(n: u16) -> Vec<u8> {
    format!("k{n}").into_bytes()
}

impl<O: Order> Index<O> {
    fn put(&mut self, key: &[u8], value: u8) -> Option<Entry> {
        self.replace(self.seed.order(key), Entry::new(key, &[value], 0, 0))
    }

    fn find(&self, key: &[u8]) -> Option<&Entry> {
        self.get(self.seed.order(key), key)
    }

    fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        self.take(self.seed.order(key), key)
    }

    /// Every entry is in its segment and in its place. The number of segments is right, unless some
    /// were shed.
    fn check(&self, shed: bool) {
        let all: Vec<&Segment> = self.blocks.iter().flatten().collect();
        assert_eq!(all.len(), self.segments);
        assert_eq!(all.iter().map(|s| s.entries.len()).sum::<usize>(), self.len);
        assert!(self.blocks.iter().rev().skip(1).all(|b| b.len() == BLOCK));
        assert!(shed || self.len <= self.segments * LOAD_MAX);
        for (number, segment) in all.into_iter().enumerate() {
            assert_eq!(segment.tags.len(), segment.entries.len());
            let orders: Vec<_> = segment
                .entries
                .iter()
                .map(|e| (self.seed.order(e.key()), e.key()))
                .collect();
            assert!(orders.is_sorted());
            for (tag, (order, _)) in segment.tags.iter().zip(orders) {
                assert_eq!(*tag, tag_of(order));
                assert_eq!(self.number(*tag).0, number);
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put(u16, u8),
    PutMany(u16, u16),
    Take(u16),
    TakeMany(u16, u16),
    After(u16),
    From(u64),
    Shed(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let n = 0u16..2_000;
    let step = prop_oneof![
        8 => (n.clone(), any::<u8>()).prop_map(|(n, v)| Step::Put(n, v)),
        2 => (n.clone(), 0u16..800).prop_map(|(n, count)| Step::PutMany(n, count)),
        8 => n.clone().prop_map(Step::Take),
        3 => (n.clone(), 0u16..800).prop_map(|(n, count)| Step::TakeMany(n, count)),
        2 => n.prop_map(Step::After),
        2 => any::<u64>().prop_map(Step::From),
        1 => (0usize..300).prop_map(Step::Shed),
    ];
    prop::collection::vec(step, 0..40)
}

/// Runs steps on the index and on a model that is sorted by (order, key).
fn run<O: Order>(mut index: Index<O>, steps: Vec<Step>) {
    let mut model: BTreeMap<(u64, Vec<u8>), u8> = BTreeMap::new();
    let mut shed = false;
    let pair = |e: &Entry| (e.key().to_vec(), e.value()[0]);
    for step in steps {
        let mut put = |index: &mut Index<O>, n: u16, value: u8| {
            let key = key(n);
            let old = index.put(&key, value).map(|e| pair(&e));
            assert_eq!(
                old,
                model
                    .insert((index.seed.order(&key), key.clone()), value)
                    .map(|v| (key, v))
            );
        };
        match step {
            Step::Put(n, value) => put(&mut index, n, value),
            Step::PutMany(n, count) => (n..n + count).for_each(|n| put(&mut index, n, n as u8)),
            Step::Take(n) => {
                let old = index.remove(&key(n)).map(|e| pair(&e));
                assert_eq!(
                    old,
                    model
                        .remove(&(index.seed.order(&key(n)), key(n)))
                        .map(|v| (key(n), v))
                );
            }
            Step::TakeMany(n, count) => {
                for n in n..n + count {
                    let old = index.remove(&key(n)).is_some();
                    assert_eq!(
                        old,
                        model.remove(&(index.seed.order(&key(n)), key(n))).is_some()
                    );
                }
            }
            Step::After(n) => {
                let after = (index.seed.order(&key(n)), key(n));
                let expected: Vec<_> = model
                    .range(after.clone()..)
                    .filter(|(k, _)| **k != after)
                    .map(|((_, k), v)| (k.clone(), *v))
                    .collect();
                assert_eq!(
                    index
                        .iter_after(Some(&key(n)))
                        .map(pair)
                        .collect::<Vec<_>>(),
                    expected
                );
            }
            Step::From(order) => {
                let expected: Vec<_> = model
                    .range((order, Vec::new())..)
                    .map(|((_, k), v)| (k.clone(), *v))
                    .collect();
                assert_eq!(
                    index.iter_from(order).map(pair).collect::<Vec<_>>(),
                    expected
                );
            }
            Step::Shed(count) => {
                let before = index.len();
                index.shed(count);
                assert!(
                    before - index.len() <= count
                        && (index.len() < before || before == 0 || count <= index.segments)
                );
                let left: BTreeSet<Vec<u8>> =
                    index.iter_after(None).map(|e| e.key().to_vec()).collect();
                model.retain(|(_, k), _| left.contains(k));
                // Shedding removes segments before the number of entries asks for it.
                shed |= count > 0;
            }
        }
        assert_eq!(index.len(), model.len());
        for n in (0..2_000).step_by(37) {
            let expected = model
                .get(&(index.seed.order(&key(n)), key(n)))
                .map(|v| (key(n), *v));
            assert_eq!(index.find(&key(n)).map(pair), expected);
        }
        assert!(
            index
                .iter_after(None)
                .map(pair)
                .eq(model.iter().map(|((_, k), v)| (k.clone(), *v)))
        );
        index.check(shed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_index_is_a_sorted_map_under_any_steps(steps in steps()) {
        run(Index::new(SEED), steps);
    }

    #[test]
    fn keys_with_equal_orders_are_kept_apart(steps in steps()) {
        run(Index::new(Crowded), steps);
    }

    #[test]
    fn a_resumed_iteration_gives_every_lasting_key_exactly_once(
        first in 0u16..3_000,
        pace in 20usize..200,
        churn in prop::collection::vec((0u16..3_000, any::<bool>(), 0u16..1_500), 1..30),
    ) {
        let stays = |n: u16| n < 400;
        let mut index = Index::new(SEED);
        for n in (0..400).chain(400..400 + first) { index.put(&key(n), 0); }
        let (mut seen, mut after): (Vec<Vec<u8>>, Option<Vec<u8>>) = (Vec::new(), None);
        let mut churn = churn.into_iter().cycle();
        loop {
            let before = seen.len();
            seen.extend(index.iter_after(after.as_deref()).take(pace).map(|e| e.key().to_vec()));
            if seen.len() == before { break; }
            after = seen.last().cloned();
            let (from, grow, count) = churn.next().unwrap();
            for n in from..from + count {
                if grow { index.put(&key(n), 1); } else if !stays(n) { index.remove(&key(n)); }
            }
        }
        let distinct: BTreeSet<_> = seen.iter().collect();
        prop_assert_eq!(distinct.len(), seen.len());
        prop_assert!((0..400).all(|n| distinct.contains(&key(n))));
    }
}

#[test]
fn thousands_of_keys_with_one_order_end_no_split() {
    struct One;
    impl Order for One {
        fn order(&self, _: &[u8]) -> u64 {
            42
        }
    }
    let mut index = Index::new(One);
    for n in 0..5_000 {
        assert!(index.put(&key(n), 0).is_none());
    }
    assert!(index.segments <= 5_000 / LOAD_MAX + 1);
    assert_eq!(index.iter_after(None).count(), 5_000);
    assert!((0..5_000).all(|n| index.find(&key(n)).is_some()));
    assert!((0..5_000).all(|n| index.remove(&key(n)).is_some()));
    assert!(index.is_empty());
}

#[test]
fn a_small_map_is_small_and_an_empty_one_nothing() {
    let mut index = Index::new(SEED);
    assert_eq!(index.blocks.capacity(), 0);
    index.put(b"a", 1);
    assert_eq!((index.segments, index.blocks[0].capacity()), (1, 1));
    assert!(index.blocks[0][0].entries.capacity() <= 4);
}

#[test]
fn the_index_shrinks_as_it_grew() {
    let mut index = Index::new(SEED);
    (0..60_000).for_each(|n| drop(index.put(&key(n), 0)));
    let most = index.segments;
    (50..60_000).for_each(|n| drop(index.remove(&key(n))));
    index.check(false);
    assert!(
        most > 1_000 && index.segments <= JOIN_BELOW + 1,
        "{most}, {}",
        index.segments
    );
}

/// A scan's cursor is such a number, and the scan continues at other members with other versions. A
/// change here would end scans early.
#[test]
fn orders_are_the_same_for_ever() {
    assert_eq!(OrderKey(0).order(b""), 0xd1fb_a762_150c_532c);
    let long = |length| vec![b'k'; length];
    let known = [
        (b"key".to_vec(), 0xedac_eb33_3595_2986),
        (b"user:1000:profile".to_vec(), 0x35f5_3168_5028_d556),
        (long(100), 0x6d73_88f0_0f2e_13bc),
        (long(200), 0x53d6_1de9_dbe5_1532),
        (long(1000), 0xd2c6_733f_bb6b_9a18),
    ];
    known
        .iter()
        .for_each(|(key, order)| assert_eq!(OrderKey(7).order(key), *order));
    assert_eq!(
        OrderKey(7 << 64).order(b"key"),
        0x01c6_f240_16ad_d23c,
        "both halves of the seed count"
    );
}
