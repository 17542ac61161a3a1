//! Streams in Redis's own format: what a payload has of the rows of a stream, and the rows of what
//! a payload has.

use crate::store::stream_view::{ALL_IDS, StreamEdit, StreamView};
use crate::value::items::{Items, put};
use crate::value::types::stream::{
    PendingEntry, StreamConsumer, StreamGroup, StreamId, StreamMeta,
};
use doyen_rdb as rdb;
use std::collections::BTreeMap;

/// What a stream holds.
pub(super) fn stream_of(stream: StreamView<'_>) -> rdb::RdbStream<&[u8]> {
    let meta = stream.meta();
    let entries = stream.entries(ALL_IDS, false).map(|(id, row)| {
        let mut items = Items(row.value());
        rdb::RdbStreamEntry {
            id: id.into(),
            fields: std::iter::from_fn(|| Some((items.next()?, items.next()?))).collect(),
        }
    });
    rdb::RdbStream {
        entries: entries.collect(),
        last: meta.last.into(),
        added: meta.added,
        deleted: meta.deleted.into(),
        groups: stream
            .groups()
            .map(|(name, group)| group_of(stream, name, group))
            .collect(),
    }
}

fn group_of<'a>(
    stream: StreamView<'a>,
    name: &'a [u8],
    group: StreamGroup,
) -> rdb::RdbStreamGroup<&'a [u8]> {
    let (mut consumers, mut places) = (Vec::new(), BTreeMap::new());
    for (name, consumer) in stream.consumers(name) {
        places.insert(name, consumers.len());
        consumers.push(rdb::RdbStreamConsumer {
            name,
            seen: consumer.seen_ms,
            active: consumer.active_ms,
        });
    }
    let pending = stream.all_pending(name, ALL_IDS).filter_map(|(id, it)| {
        Some(rdb::RdbPendingEntry {
            id: id.into(),
            given: it.given_ms,
            times: it.times,
            consumer: *places.get(&it.consumer[..])?,
        })
    });
    rdb::RdbStreamGroup {
        name,
        last: group.last.into(),
        read: group.read,
        pending: pending.collect(),
        consumers,
    }
}

/// The rows of a stream.
pub(super) fn rows_of(stream: &rdb::RdbStream) -> StreamEdit {
    let mut edit = StreamEdit::default();
    edit.put_meta(StreamMeta {
        last: stream.last.into(),
        added: stream.added,
        deleted: stream.deleted.into(),
    });
    for entry in &stream.entries {
        let mut fields = Vec::new();
        for (field, value) in &entry.fields {
            put(&mut fields, field);
            put(&mut fields, value);
        }
        edit.put_entry(entry.id.into(), &fields);
    }
    for group in &stream.groups {
        let name = &group.name;
        let (last, read) = (group.last.into(), group.read);
        edit.put_group(name, StreamGroup { last, read });
        for it in &group.consumers {
            let consumer = StreamConsumer {
                seen_ms: it.seen,
                active_ms: it.active,
            };
            edit.put_consumer(name, &it.name, consumer);
        }
        for it in &group.pending {
            // A payload that was read names a consumer of the group.
            let Some(consumer) = group.consumers.get(it.consumer) else {
                continue;
            };
            let pending = PendingEntry {
                given_ms: it.given,
                times: it.times,
                consumer: consumer.name.clone(),
            };
            edit.put_pending(name, it.id.into(), &pending);
        }
    }
    edit
}

impl From<StreamId> for rdb::RdbStreamId {
    fn from(id: StreamId) -> Self {
        let StreamId { ms, seq } = id;
        Self { ms, seq }
    }
}

impl From<rdb::RdbStreamId> for StreamId {
    fn from(id: rdb::RdbStreamId) -> Self {
        let rdb::RdbStreamId { ms, seq } = id;
        Self { ms, seq }
    }
}
