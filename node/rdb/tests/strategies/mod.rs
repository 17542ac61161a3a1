//! Values of every type, for tests of properties.

use doyen_rdb::{
    HashField, RdbPendingEntry, RdbStream, RdbStreamConsumer, RdbStreamEntry, RdbStreamGroup,
    RdbStreamId, RdbValue, ScoredMember,
};
use proptest::prelude::*;

pub(crate) fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        2 => prop::collection::vec(any::<u8>(), 0..20),
        2 => any::<String>().prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 60..70),
        1 => Just(vec![7; 20_000]),
    ]
}

pub(crate) fn value() -> impl Strategy<Value = RdbValue> {
    let some = || prop::collection::vec(bytes(), 1..8);
    let field =
        (bytes(), bytes(), any::<Option<u64>>()).prop_map(|(field, value, deadline)| HashField {
            field,
            value,
            deadline,
        });
    let member = (bytes(), prop::num::f64::NORMAL | prop::num::f64::INFINITE)
        .prop_map(|(member, score)| ScoredMember { member, score });
    prop_oneof![
        bytes().prop_map(RdbValue::String),
        some().prop_map(RdbValue::List),
        some().prop_map(RdbValue::Set),
        prop::collection::vec(field, 1..8).prop_map(RdbValue::Hash),
        prop::collection::vec(member, 1..8).prop_map(RdbValue::SortedSet),
        streams().prop_map(RdbValue::Stream),
    ]
}

fn streams() -> impl Strategy<Value = RdbStream> {
    let ids = || (1..u64::MAX, any::<u64>()).prop_map(|(ms, seq)| RdbStreamId { ms, seq });
    let fields = || prop::collection::vec((prop::sample::select(vec![b"f", b"g"]), bytes()), 1..3);
    let entries = prop::collection::btree_map(ids(), fields(), 0..300);
    let pending = (0..1_u64 << 62, 0..1_u64 << 62, any::<prop::sample::Index>());
    let group = (
        prop::collection::btree_map(bytes(), 0..1_u64 << 62, 1..4),
        prop::collection::btree_map(ids(), pending, 0..20),
        (ids(), any::<Option<u32>>()),
    );
    let groups = prop::collection::btree_map(bytes(), group, 0..3);
    (entries, groups, any::<u32>(), ids()).prop_map(|(entries, groups, added, deleted)| RdbStream {
        last: entries.keys().last().copied().unwrap_or_default(),
        entries: entries
            .into_iter()
            .map(|(id, fields)| {
                let owned = |(field, value): (&[u8; 1], Vec<u8>)| (field.to_vec(), value);
                let fields = fields.into_iter().map(owned).collect();
                RdbStreamEntry { id, fields }
            })
            .collect(),
        added: added.into(),
        deleted,
        groups: groups
            .into_iter()
            .map(|(name, (consumers, pending, (last, read)))| {
                let consumers: Vec<RdbStreamConsumer> = consumers
                    .into_iter()
                    .map(|(name, seen)| RdbStreamConsumer {
                        name,
                        seen,
                        active: Some(seen),
                    })
                    .collect();
                let held = |(id, (given, times, consumer)): (_, (_, _, prop::sample::Index))| {
                    let consumer = consumer.index(consumers.len());
                    RdbPendingEntry {
                        id,
                        given,
                        times,
                        consumer,
                    }
                };
                let pending = pending.into_iter().map(held).collect();
                let read = read.map(u64::from);
                RdbStreamGroup {
                    name,
                    last,
                    read,
                    consumers,
                    pending,
                }
            })
            .collect(),
    })
}

/// Deadlines travel as a signed number, and one behind its end is the last.
pub(crate) fn is_exact(value: &RdbValue) -> bool {
    let exact = |it: &HashField| it.deadline.is_none_or(|time| time < 1 << 62);
    !matches!(value, RdbValue::Hash(all) if !all.iter().all(exact))
}
