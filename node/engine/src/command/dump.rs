//! Values in Redis's own format (`doyen-rdb`): `DUMP` and `RESTORE`.
//!
//! ```text
//!   DUMP ────> the primary writes the payload of what it holds
//!   RESTORE ─> the node that the client asks reads the payload ─> the primary stores what it held
//! ```
//! So bad payloads get no further than to the node that got them, and what travels and is logged is
//! an ordinary change. A new type is a line in each of [`dumped`] and [`content`].

use super::dump_streams::{rows_of, stream_of};
use super::reply::TOO_LARGE_ANSWER;
use super::{
    Access, CommandCall, Description, ErrorText, ONE_KEY, ParseFn, Parsed, SYNTAX, Shape, Words,
    command, is,
};
use crate::command::action::field_deadline;
use crate::command::operation::{Action, Expiry, Footprint, ValueSizes, stores};
use crate::command::procedure::{Inputs, JOINT, Joint, WRITES, values};
use crate::command::rows::Rows;
use crate::store::FoundKey;
use crate::store::change::KeyChange;
use crate::store::collection::{self, CollectionView, Edit, FieldDeadline, UnpackedItems};
use crate::store::run_context::{self, RunContext};
use crate::store::runs::{ListView, list_of};
use crate::store::stream_view::{StreamEdit, StreamView};
use crate::value::entry::Entry;
use crate::value::items::{packed, put};
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome, Value};
use crate::value::types::sorted_set::{score_of, stored_score};
use bytes::Bytes;
use doyen_placement::MapId;
use doyen_placement::level::DUMPS;
use doyen_rdb::{HashField, RdbError, RdbValue, ScoredMember};
use std::collections::BTreeMap;

/// What a payload may unfold to. A record of the log takes less.
const UNFOLDED_BYTES_MAX: usize = 64 << 20;

/// A deadline of a field in the second run of bytes. 0: none.
const DEADLINE_BYTES: usize = 8;

pub(super) const ROWS: &[Description<ParseFn>] = &[
    command("dump", "2.6.0", 2, "generic", "readonly")
        .on(ONE_KEY, Access::READ, "keyspace")
        .about("Return a serialized version of the value stored at the specified key.")
        .parse(|c| c.shaped(Action::call(&DUMP, &[], Vec::new()), DUMPED)),
    command("restore", "2.6.0", -4, "generic", "write denyoom")
        .on(ONE_KEY, Access::WRITE, "keyspace dangerous")
        .about("Create a key using the provided serialized value, previously obtained using DUMP.")
        .parse(restore),
];

pub(crate) static JOINTS: &[&Joint] = &[&DUMP, &RESTORE];

const DUMPED: Shape = Shape::Worded(&Words {
    too_large: TOO_LARGE_ANSWER,
    ..Words::PLAIN
});

/// The first of these numbers.
const NUMBER: u16 = 54;

/// What a key holds, as a payload. → `Bulk`, or `Nil`: it is absent
static DUMP: Joint = Joint {
    number: NUMBER,
    name: "dump",
    level: DUMPS,
    footprint: values,
    run: |_, (map, key), rows| {
        let Some(entry) = rows.find(map, key) else {
            return Outcome::Nil;
        };
        match dumped(&entry, rows.held(map, key), rows.cx()) {
            Ok(payload) => Outcome::Bulk(Value::from(&payload[..])),
            Err(failure) => Outcome::Failed(failure),
        }
    },
    ..JOINT
};

/// Gives a key a value. The numbers: whether it may replace one, the kind, and the deadline as two
/// numbers. The runs: the value, as commands give it, and the deadlines of its fields if any of
/// them expires. → `Ok`, or `Nil`: there is one that must not be replaced
static RESTORE: Joint = Joint {
    number: NUMBER + 1,
    name: "restore",
    event: "restore",
    level: DUMPS,
    numbers: 4,
    others: |runs| (runs == 2).then_some((0..0, 1)),
    footprint: |inputs| match inputs.bytes[0].len() {
        // An empty string is stored, too.
        0 => Footprint {
            given: ValueSizes::NOTHING,
            ..WRITES
        },
        _ => stores(&inputs.bytes[0]),
    },
    run: |inputs, key, rows| match restored(inputs, key, rows) {
        Ok(outcome) => outcome,
        Err(failure) => Outcome::Failed(failure),
    },
    ..JOINT
};

/// The payload of an entry.
///
/// # Errors
/// It is too large for an answer.
fn dumped(entry: &Entry, found: FoundKey<'_>, cx: &RunContext<'_>) -> Result<Vec<u8>, Failure> {
    let kind = entry.kind();
    let unpacked = UnpackedItems::new();
    let held = FoundKey {
        entry: Some(entry),
        ..found
    };
    let view = CollectionView::of(kind, held, &unpacked, cx);
    if found
        .table
        .is_some_and(|it| it.content_bytes() > collection::answer_max(cx))
    {
        return Err(Failure::TooLarge);
    }
    let fields = || view.into_iter().flat_map(CollectionView::fields);
    let pairs = fields().map(|(field, value, _)| (field, value));
    let value = match kind {
        Kind::SortedSet => RdbValue::SortedSet(
            pairs
                .map(|(member, score)| ScoredMember {
                    member,
                    score: score_of(score),
                })
                .collect(),
        ),
        Kind::String => RdbValue::String(entry.value()),
        Kind::List => RdbValue::List(ListView::of(held, cx).from(0).collect()),
        Kind::Stream => RdbValue::Stream(stream_of(StreamView::of(held, cx))),
        Kind::Set => RdbValue::Set(pairs.map(|(member, _)| member).collect()),
        Kind::Hash => RdbValue::Hash(
            fields()
                .map(|(field, value, at)| HashField {
                    field,
                    value,
                    deadline: (at != 0).then(|| cx.unix_ms_of(at)),
                })
                .collect(),
        ),
    };
    doyen_rdb::dump(&value).map_err(|_| Failure::WrongType)
}

fn restored(
    inputs: &Inputs,
    (map, key): (MapId, &[u8]),
    rows: &mut Rows<'_>,
) -> Result<Outcome, Failure> {
    let [replaces, kind, unit, ms] = inputs.numbers[..] else {
        return Err(Failure::NotAnInteger);
    };
    let kind = u8::try_from(kind).ok().and_then(Kind::of_number);
    let kind = kind.ok_or(Failure::OldMembers)?;
    let exists = rows.find(map, key).is_some();
    if exists && replaces == 0 {
        return Ok(Outcome::Nil);
    }
    let cx = *rows.cx();
    let deadline = match Expiry::of_numbers([unit, ms]) {
        Expiry::None => Some(run_context::fresh(cx.default_ttl_ms, || cx.now())),
        expiry => field_deadline(expiry, &cx),
    };
    let change = match deadline {
        Some(deadline) => stored(kind, inputs, deadline, &cx)?,
        None => KeyChange::Delete,
    };
    if change != KeyChange::Delete {
        rows.replace((map, key), change);
    } else if exists {
        rows.step(map, key, &Action::Delete);
    }
    Ok(Outcome::Ok)
}

/// The change that gives a key such a value.
fn stored(kind: Kind, inputs: &Inputs, at: u64, cx: &RunContext<'_>) -> Result<KeyChange, Failure> {
    let (value, deadlines) = (&inputs.bytes[0], &inputs.bytes[1]);
    if value.len() > cx.value_bytes_max {
        return Err(Failure::TooLarge);
    }
    if kind.level() > cx.level {
        return Err(Failure::OldMembers);
    }
    let dated = |mut change| {
        if let KeyChange::Packed { deadline, .. } | KeyChange::Table { deadline, .. } = &mut change
        {
            *deadline = at;
        }
        change
    };
    match kind {
        Kind::String => return Ok(KeyChange::put(value.clone(), at)),
        Kind::List => return list_of(value, cx).map(dated),
        Kind::Stream => {
            let rows = StreamEdit::of_packed(value, cx.budget);
            let none = StreamView::of(FoundKey::default(), cx);
            return Ok(dated(rows.into_change(none, cx)));
        }
        Kind::Hash | Kind::Set | Kind::SortedSet => {}
    }
    let given = kind.pairs(value);
    if deadlines.is_empty() {
        let unpacked = UnpackedItems::new();
        let empty = CollectionView::of(kind, FoundKey::default(), &unpacked, cx);
        let empty = empty.ok_or(Failure::WrongType)?;
        return empty
            .edited(Edit::Set(given, FieldDeadline::Never), cx)
            .1
            .map(dated);
    }
    // Fields that have expired are left out.
    let mut all = BTreeMap::new();
    let dates = deadlines.chunks_exact(DEADLINE_BYTES);
    let dates = dates.map(|date| date.try_into().map_or(0, i64::from_le_bytes));
    for ((field, value), date) in given.zip(dates).take_while(|_| cx.budget.sort()) {
        let expiry = match date {
            0 => Expiry::None,
            _ => Expiry::At(date),
        };
        if let Some(deadline) = field_deadline(expiry, cx) {
            all.insert(field, Entry::of_row(field, value, deadline));
        }
    }
    if all.is_empty() {
        return Ok(KeyChange::Delete);
    }
    let rows = all.into_values().collect();
    Ok(collection::collection_of(kind, rows, at, cx))
}

fn restore(c: CommandCall<'_>) -> Parsed {
    let (mut replaces, mut is_absolute, mut idle, mut frequency) = (false, false, false, false);
    let mut at = 4;
    while at < c.args.len() {
        let option = c.args.get(at);
        let has_value = at + 1 < c.args.len();
        if is(option, "REPLACE") {
            replaces = true;
        } else if is(option, "ABSTTL") {
            is_absolute = true;
        } else if is(option, "IDLETIME") && has_value && !frequency {
            // Both are checked, and not kept: an entry has a bit instead.
            if c.number(at + 1)? < 0 {
                return Err("ERR Invalid IDLETIME value, must be >= 0".into());
            }
            (idle, at) = (true, at + 1);
        } else if is(option, "FREQ") && has_value && !idle {
            if !(0..=255).contains(&c.number(at + 1)?) {
                return Err("ERR Invalid FREQ value, must be >= 0 and <= 255".into());
            }
            (frequency, at) = (true, at + 1);
        } else {
            return Err(SYNTAX.into());
        }
        at += 1;
    }
    let expiry = match c.number(2)? {
        ..0 => return Err("ERR Invalid TTL value, must be >= 0".into()),
        0 => Expiry::None,
        ms if is_absolute => Expiry::At(ms),
        ms => Expiry::In(ms),
    };
    let value = doyen_rdb::restore(c.args.get(3), UNFOLDED_BYTES_MAX).map_err(|why| match why {
        RdbError::Footer => ErrorText::from("ERR DUMP payload version or checksum are wrong"),
        RdbError::TooLarge { .. } => Shape::Restored.failure(Failure::TooLarge).into(),
        _ => "ERR Bad data format".into(),
    })?;
    let (kind, value, deadlines) = content(&value)?;
    let [unit, ms] = expiry.numbers();
    let numbers = [i64::from(replaces), kind.number().into(), unit, ms];
    c.shaped(
        Action::call(&RESTORE, &numbers, vec![value, deadlines]),
        Shape::Restored,
    )
}

/// What a value travels as, and the deadlines of its fields, if any of them has one.
///
/// # Errors
/// There are no values of its type.
fn content(value: &RdbValue) -> Result<(Kind, Bytes, Bytes), ErrorText> {
    Ok(match value {
        RdbValue::String(bytes) => (Kind::String, Bytes::copy_from_slice(bytes), Bytes::new()),
        RdbValue::Set(members) => {
            let members = packed(members.iter().map(|member| &member[..]));
            (Kind::Set, members, Bytes::new())
        }
        RdbValue::List(elements) => {
            let elements = packed(elements.iter().map(|element| &element[..]));
            (Kind::List, elements, Bytes::new())
        }
        RdbValue::SortedSet(members) => {
            let mut all = Vec::new();
            for it in members {
                put(&mut all, &it.member);
                put(&mut all, &stored_score(it.score));
            }
            (Kind::SortedSet, all.into(), Bytes::new())
        }
        RdbValue::Hash(fields) => {
            let (mut all, mut dates) = (Vec::new(), Vec::new());
            let expires = fields.iter().any(|it| it.deadline.is_some());
            for it in fields {
                put(&mut all, &it.field);
                put(&mut all, &it.value);
                if expires {
                    // 0 is a deadline in the past, and here it would be none.
                    let date = it.deadline.map_or(0, |date| date.max(1));
                    let date = i64::try_from(date).unwrap_or(i64::MAX);
                    dates.extend_from_slice(&date.to_le_bytes());
                }
            }
            (Kind::Hash, all.into(), dates.into())
        }
        RdbValue::Stream(stream) => (Kind::Stream, rows_of(stream).packed(), Bytes::new()),
        other => {
            let name = other.type_name();
            return Err(format!("ERR values of the type {name} are not restored here").into());
        }
    })
}
