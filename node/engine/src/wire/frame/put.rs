//! Writes fields.

use super::*;

/// The tag of a scan of keys that hold one kind of value.
pub(super) const SCAN_OF_KIND: u8 = 4;
/// The tag of a page of a large collection.
pub(super) const FIELDS: u8 = 5;
/// The tag of a query for strings.
pub(super) const FIND: u8 = 6;
/// The tag of a question for the sizes of maps.
pub(super) const SIZES: u8 = 7;

/// The tag of an effect that puts a small collection.
pub(super) const PACKED: u8 = 5;
/// The tags of effects on tables.
pub(super) const TABLE_MADE: u8 = 6;
pub(super) const ROW: u8 = 7;
pub(super) const ROW_DELETE: u8 = 8;
/// The tags of deletions that no command caused.
pub(super) const EXPIRED: u8 = 9;
pub(super) const EVICTED: u8 = 10;
/// The tag of an effect on a field of a collection that is one value.
pub(super) const FIELD_PUT: u8 = 11;
/// Before the tag of an effect that puts a value: what the key had before, if that was no value.
pub(super) const BEFORE: u8 = 12;
pub(super) const NOTHING: u8 = 0;
pub(super) const OVERDUE: u8 = 1;

/// Before the tag of an effect on a collection: the number of its kind, if it is not [`UNSAID`].
/// Only since version 16 are there others.
pub(super) const OF_KIND: u8 = 13;
pub(super) const UNSAID: Kind = Kind::ALL[1];

// The tags of changes that subscribers are told of.
pub(super) const STRING: u8 = 0;
pub(super) const STRING_VALUE: u8 = 1;
pub(super) const COLLECTION: u8 = 2;
pub(super) const FIELD: u8 = 3;
pub(super) const FIELD_VALUE: u8 = 4;
pub(super) const FIELD_GONE: u8 = 5;
pub(super) const DATED: u8 = 6;
pub(super) const REMOVED: u8 = 7;
pub(super) const CLEARED: u8 = 8;
/// Before the tag of a change of a collection: the number of its kind, if it is not [`UNSAID`].
pub(super) const CHANGE_OF_KIND: u8 = 9;

/// A call has so many runs of bytes or more: their number follows.
pub(super) const MANY_RUNS: u8 = u8::MAX;

pub(super) fn put_at(out: &mut Out, at: PartitionRef) {
    out.bytes.put_u16_le(at.keyspace.0);
    out.bytes.put_u32_le(at.partition.0);
}

pub(super) fn put_name(out: &mut Out, name: TableName) {
    out.bytes.put_u128_le(name.cluster.0);
    out.bytes.put_u64_le(name.term.0);
    out.bytes.put_u64_le(name.version.0);
    out.bytes.put_u64_le(name.hash);
}

pub(super) fn put_session(out: &mut Out, at: PartitionRef, session: u32) {
    put_at(out, at);
    out.bytes.put_u32_le(session);
}

pub(super) fn put_forwarded(out: &mut Out, forwarded: &Forwarded) {
    put_at(out, forwarded.at);
    out.bytes.put_u32_le(forwarded.lineage.0);
    out.bytes.put_u64_le(forwarded.n);
    out.bytes.put_u64_le(forwarded.finished);
    out.bytes.put_u32_le(forwarded.attempt);
}

pub(super) fn put_head(out: &mut Out, head: &Head) {
    put_at(out, head.at);
    out.bytes.put_u64_le(head.epoch.0);
    out.bytes.put_u32_le(head.session);
    out.bytes.put_u64_le(head.committed);
    out.bytes.put_u64_le(head.clock);
    out.bytes.put_u64_le(head.first);
}

pub(super) fn put_bytes(out: &mut Out, bytes: &[u8]) {
    out.bytes.put_u32_le(bytes.len() as u32);
    out.bytes.put_slice(bytes);
}

/// The same for bytes that may be as large as a value, and are shared with their other holders.
fn put_run(out: &mut Out, bytes: &[u8], share: impl FnOnce() -> Bytes) {
    out.bytes.put_u32_le(bytes.len() as u32);
    out.put_shared(bytes, share);
}

pub(super) fn put_large(out: &mut Out, bytes: &Bytes) {
    put_run(out, bytes, || bytes.clone());
}

pub(super) fn put_value(out: &mut Out, value: &Value) {
    put_run(out, value, || Bytes::from_owner(value.clone()));
}

/// The value of an entry.
pub(super) fn put_stored(out: &mut Out, entry: &Entry) {
    put_run(out, entry.value(), || Bytes::from_owner(Value::of(entry)));
}

pub(super) fn put_logged(out: &mut Out, logged: &Logged) {
    out.bytes.put_u64_le(logged.epoch.0);
    match &logged.op {
        None => out.bytes.put_u8(0),
        Some(op) => {
            out.bytes.put_u8(1);
            out.bytes.put_u64_le(op.origin.0);
            out.bytes.put_u64_le(op.n);
            out.bytes.put_u64_le(op.finished);
            put_outcome(out, &logged.outcome);
        }
    }
    put_effect(out, &logged.effect);
}

fn put_effect(out: &mut Out, effect: &Effect) {
    match effect {
        Effect::Put {
            map,
            entry,
            deadline,
            before,
        } => {
            match before {
                Before::Value => {}
                Before::Nothing => out.bytes.put_slice(&[BEFORE, NOTHING]),
                Before::Overdue => out.bytes.put_slice(&[BEFORE, OVERDUE]),
            }
            match entry.kind() {
                Kind::String => out.bytes.put_u8(0),
                kind => {
                    let table = entry.is_table();
                    put_kind(out, OF_KIND, kind);
                    out.bytes.put_u8(if table { TABLE_MADE } else { PACKED });
                }
            }
            out.bytes.put_u32_le(map.0);
            put_bytes(out, entry.key());
            put_stored(out, entry);
            out.bytes.put_u64_le(*deadline);
        }
        Effect::Delete { map, key, cause } => {
            out.bytes.put_u8(match cause {
                Cause::Command => 1,
                Cause::Expired => EXPIRED,
                Cause::Evicted => EVICTED,
            });
            out.bytes.put_u32_le(map.0);
            put_bytes(out, key);
        }
        Effect::Deadline { map, key, deadline } => {
            out.bytes.put_u8(2);
            out.bytes.put_u32_le(map.0);
            put_bytes(out, key);
            out.bytes.put_u64_le(*deadline);
        }
        Effect::Row {
            map,
            key,
            kind,
            row,
        } => {
            put_kind(out, OF_KIND, *kind);
            out.bytes.put_u8(ROW);
            out.bytes.put_u32_le(map.0);
            put_bytes(out, key);
            put_bytes(out, row.key());
            put_stored(out, row);
            out.bytes.put_u64_le(row.deadline());
        }
        Effect::Field {
            map,
            key,
            kind,
            row,
        } => {
            put_kind(out, OF_KIND, *kind);
            out.bytes.put_u8(FIELD_PUT);
            out.bytes.put_u32_le(map.0);
            put_bytes(out, key);
            put_bytes(out, row.key());
            put_stored(out, row);
        }
        Effect::RowDelete {
            map,
            key,
            kind,
            field,
        } => {
            put_kind(out, OF_KIND, *kind);
            out.bytes.put_u8(ROW_DELETE);
            out.bytes.put_u32_le(map.0);
            put_bytes(out, key);
            put_bytes(out, field);
        }
        Effect::Clear { map } => {
            out.bytes.put_u8(3);
            out.bytes.put_u32_le(map.0);
        }
        Effect::Many(parts) => {
            out.bytes.put_u8(4);
            out.bytes.put_u32_le(parts.len() as u32);
            parts.iter().for_each(|part| put_effect(out, part));
        }
    }
}

/// The kind of a collection, if it must be said.
fn put_kind(out: &mut Out, tag: u8, kind: Kind) {
    if kind != UNSAID {
        out.bytes.put_slice(&[tag, kind.number()]);
    }
}

pub(super) fn put_change(out: &mut Out, change: &Change) {
    match &change.what {
        What::Put(Kind::String, _) => {}
        What::Put(kind, _) | What::Field(kind, ..) | What::FieldRemoved(kind, _) => {
            put_kind(out, CHANGE_OF_KIND, *kind);
        }
        What::Deadline | What::Removed(_) | What::Cleared => {}
    }
    let tag = match &change.what {
        What::Put(Kind::String, None) => STRING,
        What::Put(Kind::String, Some(_)) => STRING_VALUE,
        What::Put(..) => COLLECTION,
        What::Field(_, _, None) => FIELD,
        What::Field(_, _, Some(_)) => FIELD_VALUE,
        What::FieldRemoved(..) => FIELD_GONE,
        What::Deadline => DATED,
        What::Removed(_) => REMOVED,
        What::Cleared => CLEARED,
    };
    out.bytes.put_u8(tag);
    out.bytes.put_u64_le(change.position.seq);
    out.bytes.put_u16_le(change.by.unwrap_or(By::UNKNOWN).0);
    out.bytes.put_u32_le(change.map.0);
    put_bytes(out, &change.key);
    match &change.before {
        Former::Nothing => out.bytes.put_u8(0),
        Former::Value(None) => out.bytes.put_u8(1),
        Former::Value(Some(old)) => {
            out.bytes.put_u8(2);
            put_large(out, old);
        }
    }
    match &change.what {
        What::Put(Kind::String, Some(value)) => put_large(out, value),
        What::Field(_, field, value) => {
            put_bytes(out, field);
            if let Some(value) = value {
                put_large(out, value);
            }
        }
        What::FieldRemoved(_, field) => put_bytes(out, field),
        What::Removed(cause) => out.bytes.put_u8(match cause {
            Cause::Command => 0,
            Cause::Expired => 1,
            Cause::Evicted => 2,
        }),
        What::Put(..) | What::Deadline | What::Cleared => {}
    }
}

pub(super) fn put_outcome(out: &mut Out, outcome: &Outcome) {
    match outcome {
        Outcome::Ok => out.bytes.put_u8(0),
        Outcome::Nil => out.bytes.put_u8(1),
        Outcome::Int(n) => {
            out.bytes.put_u8(2);
            out.bytes.put_i64_le(*n);
        }
        Outcome::Bulk(value) => {
            out.bytes.put_u8(3);
            put_value(out, value);
        }
        Outcome::Keys { next, keys } => {
            out.bytes.put_u8(4);
            out.bytes.put_u64_le(*next);
            out.bytes.put_u32_le(keys.len() as u32);
            keys.iter().for_each(|k| put_bytes(out, k));
        }
        Outcome::Many(outcomes) => {
            out.bytes.put_u8(6);
            out.bytes.put_u32_le(outcomes.len() as u32);
            outcomes
                .iter()
                .for_each(|outcome| put_outcome(out, outcome));
        }
        Outcome::Failed(failure) => {
            out.bytes.put_u8(5);
            out.bytes.put_u8(match failure {
                Failure::NotAnInteger => 0,
                Failure::NotAFloat => 1,
                Failure::Overflow => 2,
                Failure::TooLarge => 3,
                Failure::OutOfMemory => 4,
                Failure::TooFewCopies => 5,
                Failure::NoPartition => 6,
                // Only callers of the process itself are told that it has stopped.
                Failure::Unavailable | Failure::Stopped => 7,
                Failure::Unknown => 8,
                Failure::Overloaded => 9,
                Failure::Overtaken => 10,
                Failure::Stale => 11,
                Failure::CrossPartition => 12,
                Failure::OldMembers => 13,
                Failure::WrongType => 14,
                Failure::NoScripts => 15,
                Failure::MapFull => 16,
                Failure::Dropped => 17,
                Failure::TooMuchWork => 18,
            });
        }
    }
}

pub(super) fn put_expiry(out: &mut Out, expiry: Expiry) {
    let (kind, ms) = match expiry {
        Expiry::Keep => (0, 0),
        Expiry::None => (1, 0),
        Expiry::In(ms) => (2, ms),
        Expiry::At(ms) => (3, ms),
    };
    out.bytes.put_u8(kind);
    out.bytes.put_i64_le(ms);
}

pub(super) fn put_work(out: &mut Out, work: &Work) {
    match work {
        Work::Key(op) => {
            out.bytes.put_u8(0);
            out.bytes.put_u16_le(op.keyspace.0);
            out.bytes.put_u32_le(op.map.0);
            put_bytes(out, &op.key);
            put_action(out, &op.action);
        }
        Work::Partition(op) => {
            out.bytes.put_u8(1);
            out.bytes.put_u16_le(op.keyspace.0);
            out.bytes.put_u32_le(op.partition.0);
            out.bytes.put_u32_le(op.map.0);
            match &op.action {
                PartitionAction::Count => out.bytes.put_u8(0),
                PartitionAction::Scan {
                    cursor,
                    count,
                    kind,
                } => {
                    out.bytes
                        .put_u8(if kind.is_none() { 1 } else { SCAN_OF_KIND });
                    out.bytes.put_u64_le(*cursor);
                    out.bytes.put_u32_le(*count);
                    if let Some(kind) = kind {
                        out.bytes.put_u8(kind.number());
                    }
                }
                PartitionAction::Clear => out.bytes.put_u8(2),
                PartitionAction::Sizes => out.bytes.put_u8(SIZES),
                PartitionAction::Range(RangeQuery {
                    from,
                    to,
                    count,
                    reverse,
                    values,
                }) => {
                    out.bytes.put_u8(3);
                    put_bytes(out, from);
                    put_bytes(out, to);
                    out.bytes.put_u32_le(*count);
                    out.bytes.put_u8(u8::from(*reverse));
                    out.bytes.put_u8(u8::from(*values));
                }
                PartitionAction::Find(FindQuery {
                    cursor,
                    count,
                    prefix,
                    values,
                    holding,
                }) => {
                    out.bytes.put_u8(FIND);
                    out.bytes.put_u64_le(*cursor);
                    out.bytes.put_u32_le(*count);
                    put_bytes(out, prefix);
                    out.bytes.put_u8(u8::from(*values));
                    out.bytes.put_u8(u8::from(holding.is_some()));
                    if let Some(tag) = holding {
                        put_bytes(out, tag);
                    }
                }
                PartitionAction::Fields { walk, page } => {
                    out.bytes.put_u8(FIELDS);
                    out.bytes.put_u64_le(*walk);
                    out.bytes.put_u32_le(*page);
                }
            }
        }
        Work::Script(call) => {
            out.bytes.put_u8(3);
            put_script_call(out, call);
        }
        Work::Transaction(transaction) => {
            out.bytes.put_u8(2);
            out.bytes.put_u16_le(transaction.keyspace.0);
            out.bytes.put_u32_le(transaction.watched.len() as u32);
            for Watched { map, key, version } in &transaction.watched {
                out.bytes.put_u32_le(map.0);
                put_bytes(out, key);
                out.bytes.put_u8(u8::from(version.is_some()));
                out.bytes.put_i64_le(version.unwrap_or_default());
            }
            out.bytes.put_u32_le(transaction.steps.len() as u32);
            for step in &transaction.steps {
                match step {
                    Step::Key { map, key, action } => {
                        out.bytes.put_u8(0);
                        out.bytes.put_u32_le(map.0);
                        put_bytes(out, key);
                        put_action(out, action);
                    }
                    Step::Script(call) => {
                        out.bytes.put_u8(1);
                        put_script_call(out, call);
                    }
                }
            }
        }
    }
}

fn put_script_call(out: &mut Out, call: &ScriptCall) {
    out.bytes.put_u16_le(call.keyspace.0);
    out.bytes.put_u32_le(call.map.0);
    put_large(out, &call.body);
    for list in [&call.keys, &call.args] {
        out.bytes.put_u32_le(list.len() as u32);
        list.iter().for_each(|bytes| put_large(out, bytes));
    }
    out.bytes.put_u8(u8::from(call.read_only));
    out.bytes.put_u8(u8::from(call.resp3));
    put_large(out, &call.grants);
}

pub(super) fn put_action(out: &mut Out, action: &Action) {
    match action {
        Action::Get => out.bytes.put_u8(0),
        Action::Strlen => out.bytes.put_u8(1),
        Action::Exists => out.bytes.put_u8(2),
        Action::PTtl => out.bytes.put_u8(3),
        Action::PExpireTime => out.bytes.put_u8(4),
        Action::Set {
            value,
            condition,
            expiry,
            get,
        } => {
            out.bytes.put_u8(5);
            put_large(out, value);
            out.bytes.put_u8(match condition {
                Condition::Always => 0,
                Condition::IfAbsent => 1,
                Condition::IfPresent => 2,
            });
            put_expiry(out, *expiry);
            out.bytes.put_u8(u8::from(*get));
        }
        Action::CompareAndSwap { expected, value } => {
            out.bytes.put_u8(6);
            out.bytes.put_u8(u8::from(expected.is_some()));
            put_large(out, expected.as_ref().unwrap_or(&Bytes::new()));
            put_large(out, value);
        }
        Action::GetEx { expiry } => {
            out.bytes.put_u8(7);
            put_expiry(out, *expiry);
        }
        Action::GetDel => out.bytes.put_u8(8),
        Action::Append { value } => {
            out.bytes.put_u8(9);
            put_large(out, value);
        }
        Action::IncrBy(by) => {
            out.bytes.put_u8(10);
            out.bytes.put_i64_le(*by);
        }
        Action::IncrByFloat(by) => {
            out.bytes.put_u8(11);
            let (negative, mantissa, exponent) = by.parts();
            out.bytes.put_u8(u8::from(negative));
            out.bytes.put_u64_le(mantissa);
            out.bytes.put_i32_le(exponent);
        }
        Action::Delete => out.bytes.put_u8(12),
        Action::Expire { expiry, condition } => {
            out.bytes.put_u8(13);
            put_expiry(out, *expiry);
            out.bytes.put_u8(match condition {
                ExpireCondition::Always => 0,
                ExpireCondition::IfNone => 1,
                ExpireCondition::IfSome => 2,
                ExpireCondition::IfLater => 3,
                ExpireCondition::IfEarlier => 4,
                ExpireCondition::IfSomeEarlier => 5,
            });
        }
        Action::Persist => out.bytes.put_u8(14),
        Action::Touch => out.bytes.put_u8(15),
        Action::Encoding => out.bytes.put_u8(16),
        Action::Footprint => out.bytes.put_u8(17),
        Action::Peek => out.bytes.put_u8(18),
        Action::PeekLength => out.bytes.put_u8(19),
        Action::Version => out.bytes.put_u8(20),
        Action::Call(call) => {
            out.bytes.put_u8(21);
            out.bytes.put_u16_le(call.called.number());
            // Few numbers are taken, and at most some thousand runs.
            out.bytes.put_u8(call.inputs.numbers.len() as u8);
            let numbers = call.inputs.numbers.iter();
            numbers.for_each(|number| out.bytes.put_i64_le(*number));
            match call.inputs.bytes.len() {
                few if few < usize::from(MANY_RUNS) => out.bytes.put_u8(few as u8),
                many => {
                    out.bytes.put_u8(MANY_RUNS);
                    out.bytes.put_u16_le(many as u16);
                }
            }
            let runs = call.inputs.bytes.iter();
            runs.for_each(|bytes| put_large(out, bytes));
        }
    }
}
