//! Laying out fields.

use super::*;

pub(super) fn put_at(out: &mut BytesMut, at: PartitionRef) {
    out.put_u16_le(at.keyspace.0);
    out.put_u32_le(at.partition.0);
}

pub(super) fn put_name(out: &mut BytesMut, name: TableName) {
    out.put_u128_le(name.cluster.0);
    out.put_u64_le(name.term.0);
    out.put_u64_le(name.version.0);
    out.put_u64_le(name.hash);
}

pub(super) fn put_session(out: &mut BytesMut, at: PartitionRef, session: u32) {
    put_at(out, at);
    out.put_u32_le(session);
}

pub(super) fn put_forwarded(out: &mut BytesMut, forwarded: &Forwarded) {
    put_at(out, forwarded.at);
    out.put_u32_le(forwarded.lineage.0);
    out.put_u64_le(forwarded.n);
    out.put_u64_le(forwarded.finished);
    out.put_u32_le(forwarded.attempt);
}

pub(super) fn put_head(out: &mut BytesMut, head: &Head) {
    put_at(out, head.at);
    out.put_u64_le(head.epoch.0);
    out.put_u32_le(head.session);
    out.put_u64_le(head.committed);
    out.put_u64_le(head.clock);
    out.put_u64_le(head.first);
}

pub(super) fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32_le(bytes.len() as u32);
    out.put_slice(bytes);
}

pub(super) fn put_logged(out: &mut BytesMut, logged: &Logged) {
    out.put_u64_le(logged.epoch.0);
    match &logged.op {
        None => out.put_u8(0),
        Some(op) => {
            out.put_u8(1);
            out.put_u64_le(op.origin.0);
            out.put_u64_le(op.n);
            out.put_u64_le(op.finished);
            put_outcome(out, &logged.outcome);
        }
    }
    match &logged.effect {
        Effect::Put { map, entry, deadline } => {
            out.put_u8(0);
            out.put_u32_le(map.0);
            put_bytes(out, entry.key());
            put_bytes(out, entry.value());
            out.put_u64_le(*deadline);
        }
        Effect::Delete { map, key } => {
            out.put_u8(1);
            out.put_u32_le(map.0);
            put_bytes(out, key);
        }
        Effect::Deadline { map, key, deadline } => {
            out.put_u8(2);
            out.put_u32_le(map.0);
            put_bytes(out, key);
            out.put_u64_le(*deadline);
        }
        Effect::Clear { map } => {
            out.put_u8(3);
            out.put_u32_le(map.0);
        }
    }
}

pub(super) fn put_outcome(out: &mut BytesMut, outcome: &Outcome) {
    match outcome {
        Outcome::Ok => out.put_u8(0),
        Outcome::Nil => out.put_u8(1),
        Outcome::Int(n) => {
            out.put_u8(2);
            out.put_i64_le(*n);
        }
        Outcome::Bulk(value) => {
            out.put_u8(3);
            put_bytes(out, value);
        }
        Outcome::Keys { next, keys } => {
            out.put_u8(4);
            out.put_u64_le(*next);
            out.put_u32_le(keys.len() as u32);
            keys.iter().for_each(|k| put_bytes(out, k));
        }
        Outcome::Failed(failure) => {
            out.put_u8(5);
            out.put_u8(match failure {
                Failure::NotAnInteger => 0,
                Failure::NotAFloat => 1,
                Failure::Overflow => 2,
                Failure::TooLarge => 3,
                Failure::OutOfMemory => 4,
                Failure::TooFewCopies => 5,
                Failure::NoPartition => 6,
                Failure::Unavailable => 7,
                Failure::Unknown => 8,
                Failure::Overloaded => 9,
            });
        }
    }
}

pub(super) fn put_expiry(out: &mut BytesMut, expiry: Expiry) {
    let (kind, ms) = match expiry {
        Expiry::Keep => (0, 0),
        Expiry::None => (1, 0),
        Expiry::In(ms) => (2, ms),
        Expiry::At(ms) => (3, ms),
    };
    out.put_u8(kind);
    out.put_i64_le(ms);
}

pub(super) fn put_work(out: &mut BytesMut, work: &Work) {
    match work {
        Work::Key(op) => {
            out.put_u8(0);
            out.put_u16_le(op.keyspace.0);
            out.put_u32_le(op.map.0);
            put_bytes(out, &op.key);
            put_action(out, &op.action);
        }
        Work::Partition(op) => {
            out.put_u8(1);
            out.put_u16_le(op.keyspace.0);
            out.put_u32_le(op.partition.0);
            out.put_u32_le(op.map.0);
            match &op.action {
                PartitionAction::Count => out.put_u8(0),
                PartitionAction::Scan { cursor, count } => {
                    out.put_u8(1);
                    out.put_u64_le(*cursor);
                    out.put_u32_le(*count);
                }
                PartitionAction::Clear => out.put_u8(2),
            }
        }
    }
}

pub(super) fn put_action(out: &mut BytesMut, action: &Action) {
    match action {
        Action::Get => out.put_u8(0),
        Action::Strlen => out.put_u8(1),
        Action::Exists => out.put_u8(2),
        Action::PTtl => out.put_u8(3),
        Action::PExpireTime => out.put_u8(4),
        Action::Set { value, condition, expiry, get } => {
            out.put_u8(5);
            put_bytes(out, value);
            out.put_u8(match condition {
                Condition::Always => 0,
                Condition::IfAbsent => 1,
                Condition::IfPresent => 2,
            });
            put_expiry(out, *expiry);
            out.put_u8(u8::from(*get));
        }
        Action::CompareAndSwap { expected, value } => {
            out.put_u8(6);
            out.put_u8(u8::from(expected.is_some()));
            put_bytes(out, expected.as_deref().unwrap_or_default());
            put_bytes(out, value);
        }
        Action::GetEx { expiry } => {
            out.put_u8(7);
            put_expiry(out, *expiry);
        }
        Action::GetDel => out.put_u8(8),
        Action::Append { value } => {
            out.put_u8(9);
            put_bytes(out, value);
        }
        Action::IncrBy(by) => {
            out.put_u8(10);
            out.put_i64_le(*by);
        }
        Action::IncrByFloat(by) => {
            out.put_u8(11);
            out.put_f64_le(*by);
        }
        Action::Delete => out.put_u8(12),
        Action::Expire { expiry, condition } => {
            out.put_u8(13);
            put_expiry(out, *expiry);
            out.put_u8(match condition {
                ExpireCondition::Always => 0,
                ExpireCondition::IfNone => 1,
                ExpireCondition::IfSome => 2,
                ExpireCondition::IfLater => 3,
                ExpireCondition::IfEarlier => 4,
                ExpireCondition::IfSomeEarlier => 5,
            });
        }
        Action::Persist => out.put_u8(14),
    }
}
