//! The forms that keys and their parts have in JSON. One form serves both directions, so that what
//! is written is read.

use crate::error::shown_key;
use crate::stream::{
    RdbPendingEntry, RdbStream, RdbStreamConsumer, RdbStreamEntry, RdbStreamGroup, RdbStreamId,
};
use crate::value::{HashField, RdbValue, ScoredMember};
use base64::Engine;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;

/// A row as an object. What serde derives also takes an array of the fields, in their order.
pub(super) struct JsonObject<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::deserialize(ObjectDeserializer(from)).map(Self)
    }
}

/// Gives a struct an object alone.
struct ObjectDeserializer<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ObjectDeserializer<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}

fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    let rows = Vec::<JsonObject<T>>::deserialize(from)?;
    Ok(rows.into_iter().map(|row| row.0).collect())
}

/// A whole line.
#[derive(Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with `key`, `type` and `value`"
)]
pub(super) struct KeyRow<'a, V> {
    pub(super) key: JsonBytes<'a>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) database: u64,
    #[serde(rename = "type")]
    pub(super) kind: LineType,
    pub(super) value: V,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expires_at_ms: Option<JsonNumber>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The types of values, by the names that Redis's documentation has for them.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LineType {
    String,
    List,
    Set,
    /// `zset` is what TYPE answers.
    #[serde(rename = "sorted set", alias = "zset")]
    SortedSet,
    Hash,
    Stream,
}

/// Bytes: a string if they are UTF-8, else an object with their Base64.
#[derive(Debug)]
pub(super) struct JsonBytes<'a>(Cow<'a, [u8]>);

impl<'a> JsonBytes<'a> {
    pub(super) fn of<B: AsRef<[u8]> + ?Sized>(bytes: &'a B) -> Self {
        Self(Cow::Borrowed(bytes.as_ref()))
    }
}

impl From<JsonBytes<'_>> for Vec<u8> {
    fn from(bytes: JsonBytes<'_>) -> Self {
        bytes.0.into_owned()
    }
}

impl Serialize for JsonBytes<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if let Ok(text) = str::from_utf8(&self.0) {
            return to.serialize_str(text);
        }
        let base64 = Base64Display::new(&self.0, &STANDARD);
        to.collect_map([("base64", Displayed(base64))])
    }
}

/// A string of JSON that is written in parts.
struct Displayed<T>(T);

impl<T: fmt::Display> Serialize for Displayed<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for JsonBytes<'_> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(JsonBytesVisitor)
            .map(|bytes| Self(Cow::Owned(bytes)))
    }
}

struct JsonBytesVisitor;

impl<'de> Visitor<'de> for JsonBytesVisitor {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, or {\"base64\":\"...\"} for bytes that are no UTF-8")
    }

    fn visit_str<E>(self, text: &str) -> Result<Vec<u8>, E> {
        Ok(text.as_bytes().to_vec())
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Vec<u8>, M::Error> {
        let row = Base64Row::deserialize(MapAccessDeserializer::new(map))?;
        let bytes = STANDARD.decode(&*row.base64);
        bytes.map_err(|e| M::Error::custom(format_args!("no Base64 with padding: {e}")))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Base64Row<'a> {
    #[serde(borrow)]
    base64: Cow<'a, str>,
}

/// A time or a count. Redis has signed numbers for them.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "u64")]
pub(super) struct JsonNumber(pub(super) u64);

impl TryFrom<u64> for JsonNumber {
    type Error = &'static str;

    fn try_from(number: u64) -> Result<Self, Self::Error> {
        match i64::try_from(number) {
            Ok(_) => Ok(Self(number)),
            Err(_) => Err("a number is above 9223372036854775807"),
        }
    }
}

impl From<JsonNumber> for u64 {
    fn from(number: JsonNumber) -> Self {
        number.0
    }
}

/// A score: a number, or a string if it is infinite, which no number of JSON is.
struct JsonScore(f64);

impl Serialize for JsonScore {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            f64::INFINITY => to.serialize_str("inf"),
            f64::NEG_INFINITY => to.serialize_str("-inf"),
            score => to.serialize_f64(score),
        }
    }
}

impl<'de> Deserialize<'de> for JsonScore {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // The last digit of serde_json's own numbers may be wrong.
        let score = match <&RawValue>::deserialize(from)?.get() {
            "\"inf\"" => Some(f64::INFINITY),
            "\"-inf\"" => Some(f64::NEG_INFINITY),
            text => text.parse().ok().filter(|score: &f64| score.is_finite()),
        };
        let expected = "a score is a number of 64 bits, \"inf\" or \"-inf\"";
        score.map(Self).ok_or_else(|| D::Error::custom(expected))
    }
}

/// A value on its way into a line.
pub(super) struct ValueRows<'a, B>(pub(super) &'a RdbValue<B>);

impl<B: AsRef<[u8]>> Serialize for ValueRows<'_, B> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            RdbValue::String(bytes) => JsonBytes::of(bytes).serialize(to),
            RdbValue::List(all) | RdbValue::Set(all) => {
                to.collect_seq(all.iter().map(JsonBytes::of))
            }
            RdbValue::SortedSet(all) => to.collect_seq(all.iter().map(MemberRow::of)),
            RdbValue::Hash(all) => to.collect_seq(all.iter().map(FieldRow::of)),
            RdbValue::Stream(stream) => StreamRow::of(stream).serialize(to),
            RdbValue::Unread(_) => Err(serde::ser::Error::custom("it was not read")),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `member` and `score`")]
pub(super) struct MemberRow<'a> {
    member: JsonBytes<'a>,
    score: JsonScore,
}

impl<'a> MemberRow<'a> {
    fn of<B: AsRef<[u8]>>(it: &'a ScoredMember<B>) -> Self {
        Self {
            member: JsonBytes::of(&it.member),
            score: JsonScore(it.score),
        }
    }

    pub(super) fn into_member(self) -> ScoredMember {
        ScoredMember {
            member: self.member.into(),
            score: self.score.0,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `field` and `value`")]
pub(super) struct FieldRow<'a> {
    field: JsonBytes<'a>,
    value: JsonBytes<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<JsonNumber>,
}

impl<'a> FieldRow<'a> {
    fn of<B: AsRef<[u8]>>(it: &'a HashField<B>) -> Self {
        Self {
            field: JsonBytes::of(&it.field),
            value: JsonBytes::of(&it.value),
            expires_at_ms: it.deadline.map(JsonNumber),
        }
    }

    pub(super) fn into_field(self) -> HashField {
        HashField {
            field: self.field.into(),
            value: self.value.into(),
            deadline: self.expires_at_ms.map(u64::from),
        }
    }
}

/// A stream. Its names are those that XINFO has.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `entries`")]
pub(super) struct StreamRow<'a> {
    #[serde(deserialize_with = "objects")]
    entries: Vec<EntryRow<'a>>,
    /// Without it, the id of the last entry.
    #[serde(default)]
    last_generated_id: Option<JsonId>,
    /// Without it, the count of the entries.
    #[serde(default)]
    entries_added: Option<JsonNumber>,
    #[serde(default)]
    max_deleted_entry_id: JsonId,
    #[serde(default, deserialize_with = "objects")]
    groups: Vec<GroupRow<'a>>,
}

impl<'a> StreamRow<'a> {
    fn of<B: AsRef<[u8]>>(it: &'a RdbStream<B>) -> Self {
        Self {
            entries: it.entries.iter().map(EntryRow::of).collect(),
            last_generated_id: Some(JsonId(it.last)),
            entries_added: Some(JsonNumber(it.added)),
            max_deleted_entry_id: JsonId(it.deleted),
            groups: it.groups.iter().map(GroupRow::of).collect(),
        }
    }

    pub(super) fn into_stream(self) -> Result<RdbStream, String> {
        in_order("entries", self.entries.iter().map(|entry| entry.id))?;
        let bare = self.entries.iter().find(|entry| entry.fields.is_empty());
        if let Some(entry) = bare {
            return Err(format!("the entry {} has no fields", entry.id));
        }
        let top = self.entries.last().map(|entry| entry.id);
        let last = self.last_generated_id.or(top).unwrap_or_default();
        if let Some(top) = top.filter(|top| top.0 > last.0) {
            return Err(format!("last_generated_id {last} is below the entry {top}"));
        }
        distinct("group", self.groups.iter().map(|it| &*it.name.0))?;
        let groups = self.groups.into_iter().map(GroupRow::into_group);
        let count = self.entries.len() as u64;
        Ok(RdbStream {
            last: last.0,
            added: self.entries_added.map_or(count, u64::from),
            deleted: self.max_deleted_entry_id.0,
            groups: groups.collect::<Result<_, _>>()?,
            entries: self.entries.into_iter().map(EntryRow::into_entry).collect(),
        })
    }
}

/// Refuses names that are not all different.
pub(super) fn distinct<'a>(
    what: &str,
    names: impl Iterator<Item = &'a [u8]>,
) -> Result<(), String> {
    let mut seen = HashSet::with_capacity(names.size_hint().0);
    for name in names {
        if !seen.insert(name) {
            let name = shown_key(name);
            return Err(format!("the {what} \"{name}\" is there twice"));
        }
    }
    Ok(())
}

/// Refuses ids that are not in order, and 0-0, which no entry has.
fn in_order(what: &str, ids: impl Iterator<Item = JsonId>) -> Result<(), String> {
    let mut before = JsonId::default();
    for id in ids {
        if id.0 <= before.0 {
            return Err(format!(
                "{what} are in the order of their ids, and {id} is behind {before}"
            ));
        }
        before = id;
    }
    Ok(())
}

/// An id, as `MS-SEQ`.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(try_from = "Cow<'_, str>")]
struct JsonId(RdbStreamId);

impl TryFrom<Cow<'_, str>> for JsonId {
    type Error = &'static str;

    fn try_from(text: Cow<'_, str>) -> Result<Self, Self::Error> {
        let number = |digits: &str| {
            let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
            digits.parse().ok().filter(|_| is_number)
        };
        let parts = text.split_once('-');
        let id = parts.and_then(|(ms, seq)| {
            Some(RdbStreamId {
                ms: number(ms)?,
                seq: number(seq)?,
            })
        });
        id.map(Self)
            .ok_or("an id is two numbers of 64 bits with - between them, such as \"5-0\"")
    }
}

impl fmt::Display for JsonId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.ms, self.0.seq)
    }
}

impl Serialize for JsonId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `id` and `fields`")]
struct EntryRow<'a> {
    id: JsonId,
    /// Names with values, in their order. A name may be there twice.
    fields: Vec<(JsonBytes<'a>, JsonBytes<'a>)>,
}

impl<'a> EntryRow<'a> {
    fn of<B: AsRef<[u8]>>(it: &'a RdbStreamEntry<B>) -> Self {
        let pair = |(field, value): &'a (B, B)| (JsonBytes::of(field), JsonBytes::of(value));
        Self {
            id: JsonId(it.id),
            fields: it.fields.iter().map(pair).collect(),
        }
    }

    fn into_entry(self) -> RdbStreamEntry {
        let pair = |(field, value): (JsonBytes<'_>, JsonBytes<'_>)| (field.into(), value.into());
        RdbStreamEntry {
            id: self.id.0,
            fields: self.fields.into_iter().map(pair).collect(),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with `name` and `last_delivered_id`"
)]
struct GroupRow<'a> {
    name: JsonBytes<'a>,
    last_delivered_id: JsonId,
    /// Without it, that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entries_read: Option<JsonNumber>,
    #[serde(default, deserialize_with = "objects")]
    consumers: Vec<ConsumerRow<'a>>,
    #[serde(default, deserialize_with = "objects")]
    pending: Vec<PendingRow<'a>>,
}

impl<'a> GroupRow<'a> {
    fn of<B: AsRef<[u8]>>(it: &'a RdbStreamGroup<B>) -> Self {
        let consumer = |it: &'a RdbStreamConsumer<B>| ConsumerRow {
            name: JsonBytes::of(&it.name),
            seen_at_ms: JsonNumber(it.seen),
            active_at_ms: it.active.map(JsonNumber),
        };
        let name = |index: usize| {
            it.consumers
                .get(index)
                .map_or(&[][..], |it| it.name.as_ref())
        };
        let pending = |it: &RdbPendingEntry| PendingRow {
            id: JsonId(it.id),
            consumer: JsonBytes::of(name(it.consumer)),
            delivered_at_ms: JsonNumber(it.given),
            deliveries: JsonNumber(it.times),
        };
        Self {
            name: JsonBytes::of(&it.name),
            last_delivered_id: JsonId(it.last),
            entries_read: it.read.map(JsonNumber),
            consumers: it.consumers.iter().map(consumer).collect(),
            pending: it.pending.iter().map(pending).collect(),
        }
    }

    fn into_group(self) -> Result<RdbStreamGroup, String> {
        in_order("pending entries", self.pending.iter().map(|it| it.id))?;
        distinct("consumer", self.consumers.iter().map(|it| &*it.name.0))?;
        let names = self.consumers.iter().map(|it| &*it.name.0);
        let numbers: HashMap<&[u8], usize> = names.zip(0..).collect();
        let pending = self.pending.iter().map(|it| {
            let consumer = numbers.get(&*it.consumer.0).copied();
            Ok(RdbPendingEntry {
                id: it.id.0,
                given: it.delivered_at_ms.0,
                times: it.deliveries.0,
                consumer: consumer.ok_or_else(|| {
                    format!("the consumer of the pending entry {} is not there", it.id)
                })?,
            })
        });
        let pending = pending.collect::<Result<_, String>>()?;
        let consumer = |it: ConsumerRow<'_>| RdbStreamConsumer {
            name: it.name.into(),
            seen: it.seen_at_ms.0,
            active: it.active_at_ms.map(u64::from),
        };
        Ok(RdbStreamGroup {
            name: self.name.into(),
            last: self.last_delivered_id.0,
            read: self.entries_read.map(u64::from),
            consumers: self.consumers.into_iter().map(consumer).collect(),
            pending,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with `name` and `seen_at_ms`"
)]
struct ConsumerRow<'a> {
    name: JsonBytes<'a>,
    seen_at_ms: JsonNumber,
    /// Without it, it never got an entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    active_at_ms: Option<JsonNumber>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `id` and `consumer`")]
struct PendingRow<'a> {
    id: JsonId,
    consumer: JsonBytes<'a>,
    delivered_at_ms: JsonNumber,
    deliveries: JsonNumber,
}
