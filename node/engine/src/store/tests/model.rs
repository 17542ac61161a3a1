//! What a store must hold: a model, and effects as a primary would log them.

use super::*;
use crate::store::cuts::{FreedRows, RowCut, RowSpan, cuts_of, with_cuts};
use crate::value::dated::{self, FieldDeadline};

pub(super) fn key(n: u8) -> Key {
    Key::from([b'k', n].as_slice())
}

/// No deadline, or one of a few.
pub(super) fn deadlines() -> impl Strategy<Value = u64> {
    (0u64..4).prop_map(|n| {
        if n == 0 {
            0
        } else {
            deadline::new(n, 50_000 + n)
        }
    })
}

pub(super) fn effects() -> impl Strategy<Value = Effect> {
    prop_oneof![
        12 => on_one_key(),
        1 => (0u32..3).prop_map(|map| Effect::Clear { map: MapId(map) }),
        3 => prop::collection::vec(on_one_key(), 0..5).prop_map(|parts| {
            let places = |effect: &Effect| {
                let place = effect.place().map(|(map, key)| (map, Key::from(key)));
                (place, effect.field().map(Key::from))
            };
            let parts: BTreeMap<_, _> = parts.into_iter().map(|e| (places(&e), e)).collect();
            Effect::Many(parts.into_values().collect())
        }),
    ]
}

/// A small hash with this row.
fn with_field(packed: &[u8], row: &Entry) -> Vec<u8> {
    let hash = Kind::Hash.collection().expect("it has fields");
    let timing = FieldDeadline::At(row.deadline());
    let field = (row.key(), row.value());
    hash.packing.with_one(packed, field, timing).0
}

fn on_one_key() -> impl Strategy<Value = Effect> {
    let map = (0u32..3).prop_map(MapId);
    prop_oneof![
        6 => (map.clone(), 0u8..12, any::<u8>(), deadlines()).prop_map(
            |(map, k, v, deadline)| Effect::Put {
                map,
                entry: Entry::new(&key(k), &[v], 0, 0),
                deadline,
                before: Before::Value,
            },
        ),
        3 => (map.clone(), 0u8..12).prop_map(|(map, k)| Effect::Delete { map, key: key(k), cause: Cause::Command }),
        2 => (map.clone(), 0u8..12, deadlines()).prop_map(|(map, k, deadline)| Effect::Deadline {
            map,
            key: key(k),
            deadline,
        }),
        // Few keys, so that tables get rows. See `made_real`.
        3 => (map.clone(), 0u8..3, deadlines()).prop_map(|(map, k, deadline)| Effect::Put {
            map,
            entry: Entry::of_table(Kind::Hash, &key(k), 0),
            deadline,
            before: Before::Value,
        }),
        8 => (map.clone(), 0u8..3, 0u8..6, any::<u8>(), deadlines()).prop_map(
            |(map, k, f, v, deadline)| Effect::Row {
                map,
                key: key(k),
                kind: Kind::Hash,
                row: Entry::of_row(&[f], &[v], deadline),
            },
        ),
        3 => (map.clone(), 0u8..3, 0u8..6, deadlines(), deadlines()).prop_map(
            |(map, k, f, of_field, deadline)| {
                let packed = with_field(&[], &Entry::of_row(&[f], &[f], of_field));
                Effect::Put {
                    map,
                    entry: Entry::of_kind(Kind::Hash, &key(k), &packed),
                    deadline,
                    before: Before::Value,
                }
            },
        ),
        6 => (map.clone(), 0u8..3, 0u8..6, any::<u8>(), deadlines()).prop_map(
            |(map, k, f, v, deadline)| Effect::Field {
                map,
                key: key(k),
                kind: Kind::Hash,
                row: Entry::of_row(&[f], &[v], deadline),
            },
        ),
        3 => (map.clone(), 0u8..3, 0u8..6).prop_map(|(map, k, f)| Effect::RowDelete {
            map,
            key: key(k),
            kind: Kind::Hash,
            field: Key::from([f].as_slice()),
        }),
        16 => on_sorted_set(map),
    ]
}

/// Few sorted sets with more rows. Ranges of them are removed and freed.
fn on_sorted_set(map: impl Strategy<Value = MapId> + Clone) -> impl Strategy<Value = Effect> {
    let end = |value: u8, field| Entry::of_row(&[field], &[value], 0);
    let place = (map, 3u8..5);
    let (kind, value) = (Kind::SortedSet, 0u8..20);
    prop_oneof![
        2 => place.clone().prop_map(move |(map, k)| Effect::Put {
            map,
            entry: Entry::of_table(kind, &key(k), 0),
            deadline: 0,
            before: Before::Value,
        }),
        12 => (place.clone(), 0u8..16, value.clone()).prop_map(move |((map, k), f, v)| Effect::Row {
            map,
            key: key(k),
            kind,
            row: Entry::of_row(&[f], &[v], 0),
        }),
        3 => (place.clone(), 0u8..16).prop_map(move |((map, k), f)| Effect::RowDelete {
            map,
            key: key(k),
            kind,
            field: Key::from([f].as_slice()),
        }),
        4 => (place.clone(), value.clone(), value, 0u8..16).prop_map(move |((map, k), one, other, f)| {
            let span = RowSpan {
                first: end(one.min(other), f),
                last: end(one.max(other), 15),
            };
            Effect::RowsCut { map, key: key(k), kind, span }
        }),
        // See `made_real`: here, the number of the cut says how many rows there are at most.
        4 => (place, 0u64..4, Just(end(0, 0))).prop_map(move |((map, k), seq, none)| {
            let span = RowSpan { first: none.clone(), last: none };
            let (cut, upto) = (RowCut { seq, span }, None);
            let freed = Box::new(FreedRows { cut, upto });
            Effect::RowsFreed { map, key: key(k), kind, freed }
        }),
    ]
}

/// The rows of a table that its first cut hides, in order.
fn first_hidden(model: &Model, map: MapId, key: &Key) -> Option<(RowCut, Vec<Entry>)> {
    let cut = cuts_of(&entry_of(model, map, key)?).into_iter().next()?;
    let order = Kind::SortedSet.row_order()?;
    let rows = model.iter().filter_map(|((of, at, field), held)| {
        let row = Entry::of_row(field.as_deref()?, &held.value, 0);
        row.date(0, held.version);
        ((*of, at) == (map, key) && cut.hides(&row, order)).then_some(row)
    });
    let mut rows: Vec<Entry> = rows.collect();
    rows.sort_by(order.compare);
    Some((cut, rows))
}

/// The entry of a key that is a sorted set in rows.
pub(super) fn entry_of(model: &Model, map: MapId, key: &Key) -> Option<Entry> {
    let held = model.get(&(map, key.clone(), None))?;
    let is_ordered = held.table && held.kind == Kind::SortedSet;
    is_ordered.then(|| Entry::of_table_value(Kind::SortedSet, key, &held.value))
}

/// The effect as a primary would log it: a key becomes a table when it was none of this kind, or its
/// table gets another deadline; and only tables have rows. `whole`: a copy may lack what a key held
/// before.
pub(super) fn made_real(model: &Model, seq: u64, effect: &Effect, whole: bool) -> Effect {
    let mut model = model.clone();
    let mut real = |effect: &Effect| {
        let place = effect.place().map(|(map, key)| (map, Key::from(key)));
        let held = place
            .clone()
            .and_then(|(map, key)| model.get(&(map, key, None)));
        let born = held
            .filter(|held| held.table)
            .and_then(|held| held.value.first_chunk().copied())
            .map(u64::from_le_bytes);
        let effect = match (effect.clone(), place) {
            (
                Effect::Put {
                    map,
                    entry,
                    deadline,
                    ..
                },
                _,
            ) => Effect::Put {
                map,
                entry: if entry.is_table() {
                    // Another deadline changes nothing else. One of another kind takes its place.
                    let same = held.filter(|held| held.table && held.kind == entry.kind());
                    let value = same.map(|held| &held.value[..]);
                    let value = value.unwrap_or(&seq.to_le_bytes()).to_vec();
                    Entry::of_table_value(entry.kind(), entry.key(), &value)
                } else {
                    entry.copy()
                },
                deadline,
                before: Before::Value,
            },
            // So is a whole value without a field.
            (Effect::RowDelete { field, .. }, Some((map, key)))
                if held.is_some_and(|held| held.hash && !held.table) =>
            {
                let value = held.map_or(&[][..], |held| &held.value);
                let left = dated::only(value, |(name, ..)| **name != *field).0;
                match (left.is_empty(), whole) {
                    (true, _) => Effect::Delete {
                        map,
                        key,
                        cause: Cause::Command,
                    },
                    (false, true) => Effect::Put {
                        map,
                        entry: Entry::of_kind(Kind::Hash, &key, &left),
                        deadline: held.map_or(0, |held| held.deadline),
                        before: Before::Value,
                    },
                    (false, false) => effect.clone(),
                }
            }
            (
                Effect::Row { .. } | Effect::RowDelete { .. } | Effect::RowsCut { .. },
                Some((map, key)),
            ) if born.is_none() => Effect::Delete {
                map,
                key,
                cause: Cause::Command,
            },
            (Effect::RowsCut { span, .. }, Some((map, key))) => {
                real_cut(&model, seq, (map, key), span)
            }
            (Effect::RowsFreed { freed, .. }, Some((map, key))) => {
                real_freed(&model, (map, key), freed.cut.seq)
            }
            (
                Effect::Row {
                    map,
                    key,
                    kind,
                    row,
                },
                _,
            ) => Effect::Row {
                map,
                key,
                kind,
                row: row.copy(),
            },
            // To a copy that may lack the hash, its whole value is sent.
            (
                Effect::Field {
                    map,
                    key,
                    kind,
                    row,
                },
                _,
            ) => {
                let held = model.get(&(map, key.clone(), None));
                match held.filter(|held| held.hash && !held.table) {
                    None => Effect::Delete {
                        map,
                        key,
                        cause: Cause::Command,
                    },
                    Some(held) if whole => {
                        let packed = with_field(&held.value, &row);
                        Effect::Put {
                            map,
                            entry: Entry::of_kind(kind, &key, &packed),
                            deadline: held.deadline,
                            before: Before::Value,
                        }
                    }
                    Some(_) => Effect::Field {
                        map,
                        key,
                        kind,
                        row,
                    },
                }
            }
            (effect, _) => effect,
        };
        model_apply(&mut model, seq, &effect);
        effect
    };
    match effect {
        Effect::Many(parts) => Effect::Many(parts.iter().map(real).collect()),
        one => real(one),
    }
}

/// What a key or a field has.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Held {
    pub(super) value: Vec<u8>,
    pub(super) deadline: u64,
    pub(super) version: u64,
    pub(super) table: bool,
    pub(super) hash: bool,
    pub(super) kind: Kind,
}

impl Held {
    pub(super) fn of(entry: &Entry) -> Self {
        Self {
            value: entry.value().to_vec(),
            deadline: entry.deadline(),
            version: entry.version(),
            table: entry.is_table(),
            hash: entry.kind() == Kind::Hash,
            kind: entry.kind(),
        }
    }
}

/// Keys, and fields of tables.
pub(super) type Model = BTreeMap<(MapId, Key, Option<Key>), Held>;

pub(super) fn model_apply(model: &mut Model, seq: u64, effect: &Effect) {
    let drop_rows = |model: &mut Model, map, key: &Key| {
        model.retain(|(m, k, f), _| (*m, k) != (map, key) || f.is_none());
    };
    match effect.clone() {
        Effect::Put {
            map,
            entry,
            deadline,
            ..
        } => {
            let key: Key = entry.key().into();
            let held = Held {
                deadline,
                version: seq,
                ..Held::of(&entry)
            };
            let old = model.insert((map, key.clone(), None), held.clone());
            if !old.is_some_and(|old| old.table && held.table && old.value == held.value) {
                drop_rows(model, map, &key);
            }
        }
        Effect::Delete { map, key, .. } => {
            drop_rows(model, map, &key);
            model.remove(&(map, key, None));
        }
        Effect::Deadline { map, key, deadline } => {
            if let Some(held) = model.get_mut(&(map, key, None)) {
                (held.deadline, held.version) = (deadline, seq);
            }
        }
        Effect::Row { map, key, row, .. } => {
            if let Some(held) = model.get_mut(&(map, key.clone(), None)).filter(|h| h.table) {
                held.version = seq;
                let held = Held {
                    version: seq,
                    ..Held::of(&row)
                };
                model.insert((map, key, Some(row.key().into())), held);
            }
        }
        Effect::Field { map, key, row, .. } => {
            let held = model.get_mut(&(map, key, None));
            if let Some(held) = held.filter(|held| held.hash && !held.table) {
                held.value = with_field(&held.value, &row);
                held.version = seq;
            }
        }
        Effect::RowDelete {
            map, key, field, ..
        } => match model.get_mut(&(map, key.clone(), None)) {
            Some(held) if held.table => {
                held.version = seq;
                model.remove(&(map, key, Some(field)));
            }
            Some(held) if held.hash => {
                held.value = dated::only(&held.value, |(name, ..)| **name != *field).0;
                held.version = seq;
            }
            Some(_) | None => {}
        },
        Effect::RowsCut { map, key, span, .. } => {
            if let Some(entry) = entry_of(model, map, &key) {
                let mut cuts = cuts_of(&entry);
                cuts.push(RowCut { seq, span });
                let held = model.get_mut(&(map, key, None)).expect("it is there");
                held.value = with_cuts(&entry, &cuts).value().to_vec();
                held.version = seq;
            }
        }
        Effect::RowsFreed {
            map, key, freed, ..
        } => {
            let Some((cut, rows)) = first_hidden(model, map, &key) else {
                return;
            };
            let count = rows.iter().position(|row| {
                let next = freed.upto.as_ref().map(|(_, next)| next);
                next.is_some_and(|next| next.key() == row.key())
            });
            for row in &rows[..count.unwrap_or(rows.len())] {
                model.remove(&(map, key.clone(), Some(row.key().into())));
            }
            let entry = entry_of(model, map, &key).expect("it has cuts");
            let mut cuts = cuts_of(&entry);
            let at = cuts.iter().position(|known| known.is_same(&cut));
            let at = at.expect("it is one of them");
            match &freed.upto {
                Some((_, next)) => cuts[at].span.first = next.clone(),
                None => _ = cuts.remove(at),
            }
            let held = model.get_mut(&(map, key, None)).expect("it is there");
            held.value = with_cuts(&entry, &cuts).value().to_vec();
        }
        Effect::Clear { map } => model.retain(|(m, ..), _| *m != map),
        Effect::Many(parts) => parts.iter().for_each(|part| model_apply(model, seq, part)),
    }
}

/// The rows of a sorted set that are not hidden, in order.
fn live(model: &Model, map: MapId, key: &Key) -> Vec<Entry> {
    let cuts = entry_of(model, map, key).map(|entry| cuts_of(&entry));
    let order = Kind::SortedSet.row_order().expect("it has one");
    let mut rows: Vec<Entry> = Vec::new();
    for ((of, at, field), held) in model {
        if let Some(field) = field.as_deref().filter(|_| (*of, at) == (map, key)) {
            let row = Entry::of_row(field, &held.value, 0);
            row.date(0, held.version);
            rows.push(row);
        }
    }
    rows.retain(|row| !cuts.iter().flatten().any(|cut| cut.hides(row, order)));
    rows.sort_by(order.compare);
    rows
}

/// What commands see of sorted sets is what no cut hides.
pub(super) fn check_ordered(store: &Store, model: &Model) {
    let mut cut = BTreeSet::new();
    for ((map, key, field), held) in model {
        if field.is_some() || !held.table || held.kind != Kind::SortedSet {
            continue;
        }
        let rows = live(model, *map, key);
        let found = store.found(*map, store.order(key), key);
        let table = found.table.expect("it is a table");
        let ranked = table.ranked().expect("it is ordered");
        assert!(ranked.rows_from(0, false).eq(&rows));
        assert_eq!((ranked.len(), table.len()), (rows.len(), rows.len()));
        let bytes = rows.iter().map(Entry::len).sum::<usize>();
        assert_eq!(table.content_bytes(), bytes);
        for row in &rows {
            assert_eq!(table.row(row.key()), Some(row));
        }
        for n in 0..16 {
            let is_live = rows.iter().any(|row| row.key() == [n]);
            assert_eq!(table.row(&[n]).is_some(), is_live);
        }
        let names = cuts_of(found.entry.expect("it is there"));
        assert!(ranked.cuts().eq(&names));
        if !names.is_empty() {
            cut.insert((*map, key.clone()));
        }
    }
    let known = store.maps.all.iter();
    let known = known.flat_map(|(map, held)| held.cut.iter().map(|key| (*map, key.clone())));
    assert_eq!(known.collect::<BTreeSet<_>>(), cut);
}

/// A cut as a primary would log it: it ends with a row that it hides. Cuts of one record
/// differ by that row.
fn real_cut(model: &Model, seq: u64, (map, key): (MapId, Key), mut span: RowSpan) -> Effect {
    let kind = Kind::SortedSet;
    let order = kind.row_order().expect("it has one");
    let shown = live(model, map, &key);
    let within = |row: &&Entry| {
        !span.begins_behind(row, order) && span.ends_behind(row, order) && row.version() < seq
    };
    let last = shown.iter().rfind(within);
    let Some(last) = last.map(|row| RowSpan::end(row, order)) else {
        return deleted(map, key);
    };
    span.last = last;
    Effect::RowsCut {
        map,
        key,
        kind,
        span,
    }
}

/// Some rows of the first cut are freed, `count` and one at most.
fn real_freed(model: &Model, (map, key): (MapId, Key), count: u64) -> Effect {
    let Some((cut, rows)) = first_hidden(model, map, &key) else {
        return deleted(map, key);
    };
    let next = usize::try_from(count).expect("it is small") + 1;
    let upto = rows.get(next - 1).cloned().zip(rows.get(next).cloned());
    Effect::RowsFreed {
        map,
        key,
        kind: Kind::SortedSet,
        freed: Box::new(FreedRows { cut, upto }),
    }
}

fn deleted(map: MapId, key: Key) -> Effect {
    Effect::Delete {
        map,
        key,
        cause: Cause::Command,
    }
}
