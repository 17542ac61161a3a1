//! Reads of tables in pages while the tables change.

use super::*;

/// What happens to a store.
#[derive(Debug, Clone)]
enum Happens {
    /// An effect, which may be undone.
    Effect(Effect, bool),
    /// Something begins to cursor through the table of this key.
    Begin(u8),
    /// One of the cursors goes on.
    Page(usize),
}

/// A cursor, and what it must find.
struct RowReader {
    number: u64,
    key: Key,
    born: Vec<u8>,
    pages: u32,
    found: BTreeMap<Vec<u8>, Vec<u8>>,
    expected: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Its table was gone meanwhile.
    may_be_lost: bool,
}

const MAP: MapId = MapId(0);
/// Rows that are overdue then do not count.
const CLOCK: u64 = 2;

fn happens() -> impl Strategy<Value = Happens> {
    let on_rows = (0u8..2, 0u8..24, any::<u8>(), deadlines());
    let row = on_rows.prop_map(|(k, f, v, deadline)| Effect::Row {
        map: MAP,
        key: key(k),
        kind: Kind::Hash,
        row: Entry::of_row(&[f], &[v], deadline),
    });
    let deleted = (0u8..2, 0u8..24).prop_map(|(k, f)| Effect::RowDelete {
        map: MAP,
        key: key(k),
        kind: Kind::Hash,
        field: Key::from([f].as_slice()),
    });
    let made = (0u8..2).prop_map(|k| Effect::Put {
        map: MAP,
        entry: Entry::of_table(Kind::Hash, &key(k), 0),
        deadline: 0,
        before: Before::Value,
    });
    let effect = prop_oneof![14 => row, 6 => deleted, 2 => made, 1 => effects()];
    prop_oneof![
        8 => (effect, prop::bool::weighted(0.2)).prop_map(|(e, undone)| Happens::Effect(e, undone)),
        1 => (0u8..2).prop_map(Happens::Begin),
        3 => any::<prop::sample::Index>().prop_map(|n| Happens::Page(n.index(64))),
    ]
}

fn table<'a>(model: &'a Model, key: &Key) -> Option<&'a Held> {
    model
        .get(&(MAP, key.clone(), None))
        .filter(|held| held.table)
}

fn rows_of(model: &Model, key: &Key) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let rows = model.iter().filter_map(|((map, of, field), held)| {
        let is_over = deadline::is_over(held.deadline, CLOCK);
        let counts = (map, of) == (&MAP, key) && !(held.deadline != 0 && is_over);
        let field = field.as_ref().filter(|_| counts)?;
        Some((field.to_vec(), held.value.clone()))
    });
    rows.collect()
}

proptest! {
    #[test]
    fn a_walk_finds_a_table_as_it_was_when_it_began(
        first in prop::collection::vec(happens(), 0..60),
        then in prop::collection::vec(happens(), 0..120),
        rows in 1usize..6,
    ) {
        let (mut store, mut model) = (Store::new(OrderKey(3)), Model::new());
        for k in 0..2 {
            let entry = Entry::of_table(Kind::Hash, &key(k), u64::from(k) + 1);
            let made = Effect::Put { map: MAP, entry, deadline: 0, before: Before::Value };
            store.apply(u64::from(k) + 1, &made);
            model_apply(&mut model, u64::from(k) + 1, &made);
        }
        let mut cursors: Vec<RowReader> = Vec::new();
        for (happens, seq) in first.into_iter().chain(then).zip(3..) {
            match happens {
                Happens::Effect(effect, is_undone) => {
                    let effect = made_real(&model, seq, &effect, false);
                    let before = model.clone();
                    let undo = store.apply(seq, &effect);
                    model_apply(&mut model, seq, &effect);
                    for cursor in &mut cursors {
                        let stays = table(&model, &cursor.key).is_some_and(|t| t.value == cursor.born);
                        cursor.may_be_lost |= !stays;
                    }
                    if is_undone {
                        store.undo(&effect, undo);
                        model = before;
                    }
                }
                Happens::Begin(k) => {
                    if let Some(held) = table(&model, &key(k)) {
                        prop_assert!(store.begin_cursor((MAP, &key(k)), seq, CLOCK));
                        cursors.push(RowReader {
                            number: seq,
                            key: key(k),
                            born: held.value.clone(),
                            pages: 0,
                            found: BTreeMap::new(),
                            expected: rows_of(&model, &key(k)),
                            may_be_lost: false,
                        });
                    }
                }
                Happens::Page(n) if !cursors.is_empty() => {
                    let at = n % cursors.len();
                    let cursor = &mut cursors[at];
                    let of = (MAP, &*cursor.key);
                    let Some(page) = store.read_page(of, (cursor.number, cursor.pages), rows) else {
                        prop_assert!(cursor.may_be_lost);
                        cursors.swap_remove(at);
                        continue;
                    };
                    cursor.pages += 1;
                    for (field, value) in Kind::Hash.pairs(&page.fields) {
                        let twice = cursor.found.insert(field.to_vec(), value.to_vec());
                        prop_assert_eq!(twice, None);
                    }
                    if page.is_last {
                        prop_assert_eq!(&cursor.found, &cursor.expected);
                        let cursor = cursors.swap_remove(at);
                        prop_assert!(store.read_page((MAP, &cursor.key), (cursor.number, cursor.pages), rows).is_none());
                    }
                }
                Happens::Page(_) => {}
            }
        }
        for cursor in cursors {
            store.end_cursor((MAP, &cursor.key), cursor.number);
        }
        // Nothing is kept for them any more.
        check(&store, &model);
    }
}

fn put(field: u32, value: &[u8]) -> Effect {
    Effect::Row {
        map: MAP,
        key: key(0),
        kind: Kind::Hash,
        row: Entry::of_row(&field.to_be_bytes(), value, 0),
    }
}

fn table_of(rows: u32, value: &[u8]) -> Store {
    let mut store = Store::new(OrderKey(3));
    let made = Effect::Put {
        map: MAP,
        entry: Entry::of_table(Kind::Hash, &key(0), 1),
        deadline: 0,
        before: Before::Value,
    };
    store.apply(1, &made);
    (0..rows).for_each(|n| drop(store.apply(2, &put(n, value))));
    store
}

#[test]
fn the_oldest_walk_is_lost_if_too_much_is_kept() {
    let mut store = table_of(12, &vec![b'x'; 1 << 20]);
    assert!(store.begin_cursor((MAP, &key(0)), 7, CLOCK));
    (0..4).for_each(|n| drop(store.apply(3, &put(n, b""))));
    assert!(store.bytes() > 12 << 20, "what is kept counts");
    assert!(store.begin_cursor((MAP, &key(0)), 8, CLOCK));
    (4..7).for_each(|n| drop(store.apply(4, &put(n, b""))));
    assert!(store.read_page((MAP, &key(0)), (7, 0), 100).is_none());
    let mut found = 0;
    for page in 0.. {
        let read = store.read_page((MAP, &key(0)), (8, page), 100).unwrap();
        found += Kind::Hash.pairs(&read.fields).count();
        if read.is_last {
            break;
        }
    }
    assert_eq!(found, 12);
    assert!(store.bytes() < 6 << 20, "nothing is kept any more");
}

#[test]
fn many_walks_keep_a_former_row_once() {
    let mut store = table_of(100, &[b'x'; 1_000]);
    let before = store.bytes();
    for n in 0..500 {
        assert!(store.begin_cursor((MAP, &key(0)), n, CLOCK));
    }
    (0..10).for_each(|n| drop(store.apply(3, &put(n, &[b'y'; 1_000]))));
    assert!(store.bytes() < before + 20_000);
    // A cursor that began later needs the row as it was then.
    assert!(store.begin_cursor((MAP, &key(0)), 1_000, CLOCK));
    store.apply(4, &put(0, b"z"));
    for (cursor, value) in [(3, b'x'), (1_000, b'y')] {
        let page = store.read_page((MAP, &key(0)), (cursor, 0), 200).unwrap();
        let first = Kind::Hash
            .pairs(&page.fields)
            .get(&0u32.to_be_bytes())
            .map(<[u8]>::to_vec);
        assert_eq!(first, Some(vec![value; 1_000]));
        assert!(page.is_last);
    }
}
