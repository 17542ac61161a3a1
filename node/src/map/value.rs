//! Values as bytes, with a label that says how they were encoded.
//!
//! ```text
//!   D0+codec, the value                                      no schema was given
//!   D8+codec, 4 bytes of the schema's name, 2 bytes of its version, the value
//! ```
//! Values of [`Codec::Bytes`] have no label: they are what the program gave.

use super::key;
use crate::error::ValueError;
use bytes::Bytes;
use doyen_engine::{fenced, idle};
use doyen_placement::MapLimits;
use doyen_placement::codec::{self, BYTES_MAX};
use serde::de::{DeserializeOwned, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_reflection::{ContainerFormat, Format, FormatHolder, Registry, Tracer, TracerConfig};
use std::borrow::Cow;
use std::fmt;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// How the values of a map are encoded. Every program gives a map the same codec.
///
/// Example: [`OpenMap`](crate::OpenMap).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Codec {
    /// MessagePack with the names of fields and variants: for everything, unless there is a reason
    /// for another codec. Fields may be added (with `#[serde(default)]`, or as an `Option`),
    /// removed and put in another order, variants may be added anywhere, and numbers may change
    /// their size: each program reads what the others wrote.
    #[default]
    MessagePack,
    /// bincode's standard encoding: smaller and faster, but only the positions of fields and
    /// variants tell what they are. So each value is labelled with a fingerprint of its type, or
    /// with the schema that you give. A program with another type gets an error.
    Bincode,
    /// JSON, for values that other tools read.
    Json,
    /// The bytes themselves, for values that are texts or bytes (`String`, `Vec<u8>`). They have no
    /// label.
    Bytes,
}

impl Codec {
    const fn number(self) -> u8 {
        match self {
            Self::MessagePack => 0,
            Self::Bincode => 1,
            Self::Json => 2,
            Self::Bytes => 3,
        }
    }

    const fn of_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::MessagePack,
            1 => Self::Bincode,
            2 => Self::Json,
            _ => return None,
        })
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MessagePack => "MessagePack",
            Self::Bincode => "bincode",
            Self::Json => "JSON",
            Self::Bytes => "bytes",
        })
    }
}

/// What a map does with a value that it cannot decode: another program wrote it, with another codec
/// or schema.
///
/// Example: [`OpenMap`](crate::OpenMap).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Undecodable {
    /// The operation fails and changes nothing.
    #[default]
    Error,
    /// The key counts as absent. `insert_if_absent` and `compare_and_swap` write over such a value.
    Miss,
}

/// What a value was encoded as, or is read as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Schema {
    /// Nothing is known of it.
    None,
    /// The name and the version that the program gave.
    Named(Cow<'static, str>, u16),
    /// A fingerprint of its type.
    Fingerprint(u32),
}

impl Schema {
    fn label(&self) -> Option<(u32, u16)> {
        match self {
            Self::None => None,
            Self::Named(name, version) => Some((number_of(name), *version)),
            Self::Fingerprint(print) => Some((*print, 0)),
        }
    }

    /// The schema of a stored label, as a person sees it beside this one.
    fn show(&self, label: Option<(u32, u16)>) -> String {
        match (label, self) {
            (None, _) => "no schema".to_owned(),
            (label, own) if label == own.label() => own.to_string(),
            (Some((name, version)), Self::Named(own, _)) if name == number_of(own) => {
                format!("schema {own} version {version}")
            }
            (Some((print, 0)), _) => format!("a type with the fingerprint {print:08x}"),
            (Some((name, version)), _) => format!("another schema ({name:08x}) version {version}"),
        }
    }
}

/// The number that stands for a name.
pub(super) fn number_of(name: &str) -> u32 {
    xxh3_64(name.as_bytes()) as u32
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no schema"),
            Self::Named(name, version) => write!(f, "schema {name} version {version}"),
            Self::Fingerprint(print) => write!(f, "a type with the fingerprint {print:08x}"),
        }
    }
}

/// How a map encodes its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Form {
    /// The name of the map, for errors.
    pub(super) map: String,
    pub(super) codec: Codec,
    pub(super) schema: Schema,
    pub(super) undecodable: Undecodable,
    /// What each value begins with.
    label: Vec<u8>,
    /// Whether entries that are not used expire, so that values have a head (`doyen_engine::idle`).
    idle: bool,
    /// Whether the codec may lose a Some that holds nothing.
    loses_some: bool,
}

/// The label of a value without a schema begins here, and that of one with a schema there.
const PLAIN: u8 = 0xD0;
const LABELLED: u8 = 0xD8;

impl Form {
    pub(super) fn new(map: String, codec: Codec, schema: Schema, undecodable: Undecodable) -> Self {
        let number = codec.number();
        let label = match (codec, schema.label()) {
            (Codec::Bytes, _) => Vec::new(),
            (_, None) => vec![PLAIN + number],
            (_, Some((name, version))) => {
                let mut label = vec![LABELLED + number];
                label.extend(name.to_le_bytes());
                label.extend(version.to_le_bytes());
                label
            }
        };
        Self {
            map,
            codec,
            schema,
            undecodable,
            label,
            idle: false,
            loses_some: false,
        }
    }

    /// The same for values of this type.
    pub(super) fn typed<V: DeserializeOwned>(self) -> Self {
        let by_name = matches!(self.codec, Codec::MessagePack | Codec::Json);
        Self {
            loses_some: by_name && has_hollow_some::<V>(self.codec),
            ..self
        }
    }

    /// The same for a map with these limits.
    pub(super) fn limited(self, limits: &MapLimits) -> Self {
        Self {
            idle: limits.idle_ms.is_some(),
            ..self
        }
    }

    /// Whether entries that are not used expire.
    pub(super) const fn expires_unused(&self) -> bool {
        self.idle
    }

    /// A value as it is written: with the head that it has in this map.
    pub(super) fn headed(&self, value: Bytes) -> Bytes {
        if self.idle {
            idle::headed(None, &value)
        } else {
            value
        }
    }

    /// A value as operations answer it, of one as it is stored.
    pub(super) fn content<'a>(&self, stored: &'a [u8]) -> &'a [u8] {
        // A map may get an idle time after it was opened here. No label looks like a head.
        if self.idle || self.has_label() {
            idle::content(stored)
        } else {
            stored
        }
    }

    /// Writes a value, and reads it back, so that nothing is stored that cannot be read.
    pub(super) fn write<V: Serialize + DeserializeOwned>(
        &self,
        value: &V,
        out: &mut Vec<u8>,
    ) -> Result<(), Encode> {
        let refuse = |why: &dyn fmt::Display| {
            Encode::Invalid(ValueError(format!(
                "a value for the map {} was not written: {why}",
                self.map
            )))
        };
        out.extend_from_slice(&self.label);
        let begin = out.len();
        self.encode_into(value, out).map_err(|why| refuse(&why))?;
        if out.len() > BYTES_MAX {
            return Err(Encode::TooLarge);
        }
        let back: V = self.decode_body(&out[begin..]).map_err(|why| {
            refuse(&format!(
                "{} could not read it back ({why}): change the type (fields that are left out need \
                 #[serde(default)]), or give the map another codec",
                self.codec
            ))
        })?;
        if self.codec == Codec::Bincode {
            // By positions, a part that was left out can pass for the one behind it.
            let mut again = Vec::new();
            self.encode_into(&back, &mut again)
                .map_err(|why| refuse(&why))?;
            // Sets and maps may come back in another order.
            if again != out[begin..] && !is_same(value, &back) {
                return Err(refuse(
                    &"bincode reads another value back: do not leave fields out \
                      (skip_serializing_if), or give the map the codec MessagePack",
                ));
            }
        } else if self.loses_some && options(value) != options(&back) {
            return Err(refuse(&format!(
                "{} keeps no Some that holds nothing (Some(None), Some(()), Some(NaN) in JSON), and \
                 would read None: use an enum, or give the map the codec Bincode",
                self.codec
            )));
        }
        Ok(())
    }

    fn encode_into<V: Serialize>(&self, value: &V, out: &mut Vec<u8>) -> Result<(), String> {
        match self.codec {
            Codec::MessagePack => value
                .serialize(&mut rmp_serde::Serializer::new(&mut *out).with_struct_map())
                .map_err(|why| why.to_string())?,
            Codec::Bincode => {
                out.extend(codec::encode(value, BYTES_MAX).map_err(|why| why.to_string())?);
            }
            Codec::Json => {
                serde_json::to_writer(&mut *out, value).map_err(|why| why.to_string())?;
            }
            Codec::Bytes => key::encode_into(value, out).map_err(|why| why.to_string())?,
        }
        Ok(())
    }

    fn decode_body<V: DeserializeOwned>(&self, body: &[u8]) -> Result<V, String> {
        match self.codec {
            Codec::MessagePack => {
                let mut left = body;
                let value = V::deserialize(&mut rmp_serde::Deserializer::new(&mut left))
                    .map_err(|why| why.to_string())?;
                match left.len() {
                    0 => Ok(value),
                    left => Err(format!("{left} bytes follow the value")),
                }
            }
            Codec::Bincode => codec::decode(body, BYTES_MAX).map_err(|why| why.to_string()),
            Codec::Json => serde_json::from_slice(body).map_err(|why| why.to_string()),
            Codec::Bytes => key::decode(body).map_err(|why| why.to_string()),
        }
    }

    /// The value of these bytes. `None`: it cannot be decoded, and counts as absent.
    pub(super) fn decode<V: DeserializeOwned>(
        &self,
        bytes: &[u8],
    ) -> Result<Option<V>, ValueError> {
        let decoded = self.body(bytes).and_then(|body| {
            self.decode_body(body).map_err(|why| {
                format!(
                    "it was stored as {}, {}, as this program reads it, but with another type \
                     ({why}): give a field that is new #[serde(default)], or make it an Option; \
                     otherwise use the same type, or another schema(NAME, VERSION)",
                    self.codec, self.schema
                )
            })
        });
        match decoded {
            Ok(value) => Ok(Some(value)),
            Err(_) if self.undecodable == Undecodable::Miss => Ok(None),
            Err(why) => Err(ValueError(format!(
                "a value of the map {} cannot be read: {why}",
                self.map
            ))),
        }
    }

    /// Whether values of another form are encoded as these are.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.codec, &self.label) == (other.codec, &other.label)
    }

    /// The numbers of the schema's name, or of the fingerprint, and of its version.
    pub(super) fn schema_label(&self) -> Option<(u32, u16)> {
        self.schema.label()
    }

    /// Whether values have a label, and so may have something before it.
    pub(super) fn has_label(&self) -> bool {
        self.codec != Codec::Bytes
    }

    /// What follows the label, if the label is that of this map.
    fn body<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], String> {
        if self.codec == Codec::Bytes {
            return Ok(bytes);
        }
        let bytes = fenced::unfenced(bytes);
        if let Some(body) = bytes.strip_prefix(&self.label[..]) {
            return Ok(body);
        }
        let stored = match bytes {
            [first, label @ ..] if *first >= LABELLED && label.len() >= 6 => {
                Codec::of_number(first - LABELLED).map(|codec| {
                    let name = u32::from_le_bytes([label[0], label[1], label[2], label[3]]);
                    (
                        codec,
                        Some((name, u16::from_le_bytes([label[4], label[5]]))),
                    )
                })
            }
            [first, ..] if (PLAIN..LABELLED).contains(first) => {
                Codec::of_number(first - PLAIN).map(|codec| (codec, None))
            }
            _ => None,
        };
        let stored = match stored {
            Some((codec, label)) => format!("as {codec}, {}", self.schema.show(label)),
            None => {
                return Err(format!(
                    "it was stored by a cache or counters of this name, by a map of the codec \
                     Bytes, or by a Redis client, and this program reads {}, {}: use another name \
                     for one of them",
                    self.codec, self.schema
                ));
            }
        };
        Err(format!(
            "it was stored {stored}, and this program reads {}, {}: give the map the same codec and \
             schema, or on_undecodable(Undecodable::Miss), and write it again",
            self.codec, self.schema
        ))
    }
}

/// Whether two values are the same but for the order of what they hold.
fn is_same<V: Serialize>(one: &V, other: &V) -> bool {
    let canonical = |value: &V| {
        let bytes = rmp_serde::to_vec_named(value).ok()?;
        rmp_serde::from_slice::<Unordered>(&bytes).ok()
    };
    match (canonical(one), canonical(other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// A number of a value that does not depend on the order of lists, sets and maps in it.
#[derive(PartialEq)]
struct Unordered(u64);

impl Unordered {
    fn of(kind: u8, bytes: &[u8]) -> Self {
        Self(xxh3_64_with_seed(bytes, kind.into()))
    }

    /// What holds parts with this sum.
    fn whole(kind: u8, sum: u64) -> Self {
        Self::of(kind, &sum.to_le_bytes())
    }
}

impl<'de> Deserialize<'de> for Unordered {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Parts;

        /// A scalar is its kind and its bytes.
        macro_rules! scalars {
            ($($visit:ident($type:ty) $kind:literal;)*) => {$(
                fn $visit<E>(self, value: $type) -> Result<Unordered, E> {
                    Ok(Unordered::of($kind, &value.to_le_bytes()))
                }
            )*};
        }

        impl<'de> Visitor<'de> for Parts {
            type Value = Unordered;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }

            scalars! {
                visit_u64(u64) 1;
                visit_i64(i64) 2;
                visit_f32(f32) 3;
                visit_f64(f64) 4;
            }

            fn visit_bool<E>(self, value: bool) -> Result<Unordered, E> {
                Ok(Unordered::of(5, &[value.into()]))
            }

            fn visit_str<E>(self, value: &str) -> Result<Unordered, E> {
                Ok(Unordered::of(6, value.as_bytes()))
            }

            fn visit_bytes<E>(self, value: &[u8]) -> Result<Unordered, E> {
                Ok(Unordered::of(7, value))
            }

            fn visit_unit<E>(self) -> Result<Unordered, E> {
                Ok(Unordered::of(8, &[]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Unordered, A::Error> {
                let mut sum = 0_u64;
                while let Some(Unordered(part)) = seq.next_element()? {
                    sum = sum.wrapping_add(part);
                }
                Ok(Unordered::whole(9, sum))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unordered, A::Error> {
                let mut sum = 0_u64;
                while let Some((Unordered(key), Unordered(value))) = map.next_entry()? {
                    let both = [key.to_le_bytes(), value.to_le_bytes()].concat();
                    sum = sum.wrapping_add(Unordered::of(10, &both).0);
                }
                Ok(Unordered::whole(11, sum))
            }
        }
        from.deserialize_any(Parts)
    }
}

/// The number and the sum of the bytes of a value in a codec that keeps every Some, whatever the
/// order of sets and maps in it is. `None`: it has none.
fn options<V: Serialize>(value: &V) -> Option<(usize, u64)> {
    let bytes = codec::encode(value, BYTES_MAX).ok()?;
    Some((bytes.len(), bytes.iter().copied().map(u64::from).sum()))
}

/// Whether what an Option holds may be written as nothing is.
fn is_hollow<'a>(mut format: &'a Format, registry: &'a Registry, codec: Codec) -> bool {
    // A name stands for nothing if what it holds does.
    for _ in 0..=registry.len() {
        match format {
            Format::Unit | Format::Option(_) => return true,
            Format::F32 | Format::F64 => return codec == Codec::Json,
            Format::TypeName(name) => match registry.get(name) {
                Some(ContainerFormat::UnitStruct) => return true,
                Some(ContainerFormat::NewTypeStruct(inner)) => format = inner,
                Some(
                    ContainerFormat::TupleStruct(_)
                    | ContainerFormat::Struct(_)
                    | ContainerFormat::Enum(_),
                )
                | None => return false,
            },
            _ => return false,
        }
    }
    true
}

/// Whether a type has an Option whose content may be written as nothing is. If that cannot be found
/// out, each value is looked at.
fn has_hollow_some<V: DeserializeOwned>(codec: Codec) -> bool {
    let mut tracer = Tracer::new(TracerConfig::default());
    let (Ok((mut format, _)), Ok(registry)) = (tracer.trace_simple_type::<V>(), tracer.registry())
    else {
        return true;
    };
    format.reduce();
    let mut found = false;
    let mut look = |format: &Format| {
        if let Format::Option(inner) = format {
            found |= is_hollow(inner, &registry, codec);
        }
        Ok(())
    };
    let looked = format.visit(&mut look).is_ok()
        && registry
            .values()
            .all(|container| container.visit(&mut look).is_ok());
    found || !looked
}

/// Why a value was not encoded.
#[derive(Debug)]
pub(super) enum Encode {
    TooLarge,
    Invalid(ValueError),
}

#[cfg(test)]
mod tests {
    use super::super::open::fingerprint;
    use super::*;
    use std::collections::{BTreeMap, HashMap, HashSet};

    impl Form {
        fn encode<V: Serialize + DeserializeOwned>(&self, value: &V) -> Result<Vec<u8>, Encode> {
            let mut out = Vec::new();
            self.write(value, &mut out).map(|()| out)
        }
    }

    fn form(codec: Codec) -> Form {
        with(codec, Schema::None)
    }

    fn with(codec: Codec, schema: Schema) -> Form {
        Form::new("users".into(), codec, schema, Undecodable::Error)
    }

    /// The form of a map of values of this type, as it is opened.
    fn typed<V: DeserializeOwned>(codec: Codec) -> Form {
        let schema = match codec {
            Codec::Bincode => fingerprint::<V>().expect("it has a shape"),
            _ => Schema::None,
        };
        with(codec, schema)
    }

    fn named(codec: Codec, name: &'static str, version: u16) -> Form {
        with(codec, Schema::Named(name.into(), version))
    }

    fn refused<V: Serialize + DeserializeOwned>(form: &Form, value: &V) -> String {
        match form.encode(value) {
            Err(Encode::Invalid(why)) => why.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct User {
        name: String,
        visits: u64,
    }

    fn ada() -> User {
        User {
            name: "Ada".into(),
            visits: 7,
        }
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Reordered {
        visits: u64,
        name: String,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Grown {
        name: String,
        visits: i32,
        #[serde(default)]
        mail: Option<String>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Shrunk {
        visits: u64,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Plan {
        Free,
        Paid { cents: u32 },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum LaterPlan {
        Trial,
        Free,
        Paid { cents: u32 },
    }

    #[test]
    fn every_codec_gives_back_what_was_stored() {
        for codec in [Codec::MessagePack, Codec::Bincode, Codec::Json] {
            let form = typed::<User>(codec);
            let bytes = form.encode(&ada()).unwrap();
            assert_eq!(form.decode::<User>(&bytes).unwrap(), Some(ada()), "{codec}");
        }
        let form = form(Codec::Bytes);
        assert_eq!(form.encode(&"text".to_owned()).unwrap(), b"text");
        assert_eq!(form.encode(&vec![0u8, 255]).unwrap(), [0, 255]);
        assert_eq!(
            form.decode::<Vec<u8>>(&[0, 255]).unwrap(),
            Some(vec![0, 255])
        );
        assert_eq!(form.decode::<String>(b"").unwrap(), Some(String::new()));
    }

    #[test]
    fn fields_and_variants_may_come_go_and_move_in_self_describing_codecs() {
        for codec in [Codec::MessagePack, Codec::Json] {
            let form = form(codec);
            let bytes = form.encode(&ada()).unwrap();
            let moved: Option<Reordered> = form.decode(&bytes).unwrap();
            assert_eq!(
                moved.map(|user| (user.visits, user.name)),
                Some((7, "Ada".into()))
            );
            let grown: Option<Grown> = form.decode(&bytes).unwrap();
            assert_eq!(grown.map(|user| (user.visits, user.mail)), Some((7, None)));
            assert_eq!(form.decode(&bytes).unwrap(), Some(Shrunk { visits: 7 }));
            let bytes = form.encode(&Plan::Free).unwrap();
            assert_eq!(form.decode(&bytes).unwrap(), Some(LaterPlan::Free));
            let bytes = form.encode(&Plan::Paid { cents: 3 }).unwrap();
            assert_eq!(
                form.decode(&bytes).unwrap(),
                Some(LaterPlan::Paid { cents: 3 })
            );
            let number = form.encode(&7u64).unwrap();
            assert_eq!(form.decode(&number).unwrap(), Some(7i64));
            let number = form.encode(&u64::MAX).unwrap();
            assert!(form.decode::<i64>(&number).is_err());
        }
    }

    #[test]
    fn a_positional_codec_reads_no_value_of_another_type() {
        let user = typed::<User>(Codec::Bincode).encode(&ada()).unwrap();
        for other in [
            typed::<Reordered>(Codec::Bincode)
                .decode::<Reordered>(&user)
                .err(),
            typed::<Grown>(Codec::Bincode).decode::<Grown>(&user).err(),
            typed::<Shrunk>(Codec::Bincode)
                .decode::<Shrunk>(&user)
                .err(),
        ] {
            let why = other.expect("another type").to_string();
            assert!(
                why.contains("the map users") && why.contains("fingerprint"),
                "{why}"
            );
        }
        let plan = typed::<Plan>(Codec::Bincode).encode(&Plan::Free).unwrap();
        assert!(
            typed::<LaterPlan>(Codec::Bincode)
                .decode::<LaterPlan>(&plan)
                .is_err()
        );
        let number = typed::<u64>(Codec::Bincode).encode(&7u64).unwrap();
        assert!(typed::<i64>(Codec::Bincode).decode::<i64>(&number).is_err());
        assert_eq!(
            typed::<u64>(Codec::Bincode).decode(&number).unwrap(),
            Some(7u64)
        );
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Skips {
        #[serde(skip_serializing_if = "Option::is_none")]
        first: Option<u8>,
        rest: Vec<u8>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Unreadable {
        #[serde(skip_serializing_if = "String::is_empty")]
        name: String,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        Number(u64),
        Text(String),
    }

    #[test]
    fn what_could_not_be_read_back_is_refused_when_it_is_written() {
        let skips = Skips {
            first: None,
            rest: vec![1, 5],
        };
        assert!(form(Codec::MessagePack).encode(&skips).is_ok());
        // Two bytes with their length pass for something and a list of one byte.
        let why = refused(&named(Codec::Bincode, "skips", 1), &skips);
        assert!(why.contains("the map users"), "{why}");
        let empty = Unreadable {
            name: String::new(),
        };
        for codec in [Codec::MessagePack, Codec::Json, Codec::Bincode] {
            let why = refused(&named(codec, "unreadable", 1), &empty);
            assert!(why.contains("was not written"), "{why}");
        }
        for value in [Untagged::Number(7), Untagged::Text("x".into())] {
            let form = form(Codec::MessagePack);
            let bytes = form.encode(&value).unwrap();
            assert_eq!(form.decode(&bytes).unwrap(), Some(value));
        }
        let why = refused(&named(Codec::Bincode, "u", 1), &Untagged::Number(7));
        assert!(
            why.contains("MessagePack") || why.contains("another codec"),
            "{why}"
        );
        let json = serde_json::json!({"a": [1, null, "x"], "b": {"c": 1.5}});
        for codec in [Codec::MessagePack, Codec::Json] {
            let bytes = form(codec).encode(&json).unwrap();
            assert_eq!(form(codec).decode(&bytes).unwrap(), Some(json.clone()));
        }
        refused(&named(Codec::Bincode, "json", 1), &json);
        assert!(fingerprint::<serde_json::Value>().is_err());
        assert!(fingerprint::<Untagged>().is_err());
    }

    /// Their order is by chance, so one of them alone may pass by chance.
    #[test]
    fn maps_and_sets_are_read_back_whatever_their_order_is() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Basket {
            of: HashMap<String, HashSet<u64>>,
            rest: Vec<HashMap<(u8, u8), f64>>,
        }
        for count in 0..40_u32 {
            let map: HashMap<u32, u32> = (0..count).map(|n| (n, n * n)).collect();
            let set: HashSet<String> = (0..count).map(|n| n.to_string()).collect();
            let basket = Basket {
                of: [("a", 0..count), ("b", 7..count)]
                    .map(|(name, of)| (name.to_owned(), of.map(u64::from).collect()))
                    .into(),
                rest: vec![(0..count as u8).map(|n| ((n, 1), f64::from(n))).collect()],
            };
            for codec in [Codec::MessagePack, Codec::Json, Codec::Bincode] {
                let form = named(codec, "many", 1);
                let bytes = form.encode(&map).unwrap();
                assert_eq!(form.decode(&bytes).unwrap(), Some(map.clone()), "{codec}");
                let bytes = form.encode(&set).unwrap();
                assert_eq!(form.decode(&bytes).unwrap(), Some(set.clone()), "{codec}");
                if codec != Codec::Json {
                    let bytes = form.encode(&basket).unwrap();
                    assert_eq!(
                        form.decode::<Basket>(&bytes).unwrap().as_ref(),
                        Some(&basket)
                    );
                }
            }
        }
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Wrapped(Option<u8>);

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Profile {
        /// Unknown, known to have none, or a name.
        nickname: Option<Option<String>>,
    }

    /// A value is stored as it is, or refused.
    #[test]
    fn no_some_that_holds_nothing_becomes_none() {
        fn check<V>(value: &V, codecs: &[Codec])
        where
            V: Serialize + DeserializeOwned + PartialEq + fmt::Debug,
        {
            for codec in [Codec::MessagePack, Codec::Json, Codec::Bincode] {
                let form = named(codec, "options", 1).typed::<V>();
                if codecs.contains(&codec) {
                    let why = refused(&form, value);
                    assert!(why.contains("Some that holds nothing"), "{why}");
                } else {
                    let bytes = form.encode(value).unwrap();
                    assert_eq!(form.decode::<V>(&bytes).unwrap().as_ref(), Some(value));
                }
            }
        }
        let by_name = [Codec::MessagePack, Codec::Json];
        check(&Some(None::<u8>), &by_name);
        check(&Some(Some(7_u8)), &[]);
        check(&None::<Option<u8>>, &[]);
        check(&Some(()), &by_name);
        check(&Some(Wrapped(None)), &by_name);
        check(&Some(Wrapped(Some(1))), &[]);
        check(&vec![Some(None), None, Some(Some(1_u8))], &by_name);
        let profile = |nickname| Profile { nickname };
        check(&profile(Some(None)), &by_name);
        check(&profile(Some(Some("Ada".into()))), &[]);
        check(&profile(None), &[]);
        check(&vec![Some(1.5_f64), None], &[]);
        let json = form(Codec::Json).typed::<Option<f64>>();
        refused(&json, &Some(f64::NAN));
        let json = form(Codec::MessagePack).typed::<Option<serde_json::Value>>();
        refused(&json, &Some(serde_json::Value::Null));
        assert!(!form(Codec::MessagePack).typed::<User>().loses_some);
        assert!(
            !form(Codec::MessagePack).typed::<Grown>().loses_some,
            "it costs nothing"
        );
    }

    #[test]
    fn another_schema_is_an_error_that_names_both_or_a_miss() {
        let old = named(Codec::MessagePack, "user", 1);
        let new = named(Codec::MessagePack, "user", 2);
        let bytes = old.encode(&ada()).unwrap();
        let why = new.decode::<User>(&bytes).unwrap_err().to_string();
        for part in [
            "the map users",
            "schema user version 1",
            "schema user version 2",
            "on_undecodable",
        ] {
            assert!(why.contains(part), "{part}: {why}");
        }
        let other = named(Codec::Json, "order", 2);
        let why = other.decode::<User>(&bytes).unwrap_err().to_string();
        assert!(why.contains("MessagePack") && why.contains("JSON"), "{why}");
        let plain = form(Codec::MessagePack);
        let why = plain.decode::<User>(&bytes).unwrap_err().to_string();
        assert!(why.contains("no schema"), "{why}");
        let why = old
            .decode::<BTreeMap<u8, u8>>(&bytes)
            .unwrap_err()
            .to_string();
        assert!(why.contains("another type"), "{why}");
        let lenient = Form {
            undecodable: Undecodable::Miss,
            ..new
        };
        assert_eq!(lenient.decode::<User>(&bytes).unwrap(), None);
        for garbage in [
            &b""[..],
            b"\xD0",
            b"\xD9\x01",
            b"text",
            b"\xDF\xFF\xFF\xFF\xFF\xFF\xFF",
        ] {
            assert!(old.decode::<User>(garbage).is_err());
            assert_eq!(lenient.decode::<User>(garbage).unwrap(), None);
        }
    }
}
