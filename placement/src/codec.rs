//! Encodes values as bytes and decodes them. No other module names bincode.
//!
//! Peers' messages and users' values both pass through here. Decoding has a byte limit, allocates
//! no more than a small multiple of what arrived, and refuses bytes that follow the value.
//!
//! | form | by | a field or a kind is known by |
//! |---|---|---|
//! | [`encode()`] | bincode, over serde | its place: nothing can be added |
//! | [`encode_numbered`] | CBOR, over minicbor | its number: unknown fields are skipped |
//!
//! A value within a numbered one whose layout has rules of its own, such as a table, is a run of
//! bytes in the first form ([`bridge`], [`bridged!`](crate::bridged!)).

use minicbor::decode::{self, Decoder};
use minicbor::encode::{self, Encoder, Write};
use minicbor::{Decode, Encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The limit of any encoding.
pub const BYTES_MAX: usize = 64 << 20;

/// How many times its encoding a value may take in memory, as far as its parts are counted before
/// they are read.
const MEMORY_FACTOR: usize = 16;

/// Why a value could not be encoded or decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The encoding exceeds the limit.
    #[error("the value has {bytes} bytes, but at most {limit} are allowed: store less")]
    TooLarge {
        /// The size of the encoding.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The value cannot be encoded, or the bytes are not a value of this type.
    #[error("{0}")]
    Invalid(String),
    /// A part of the value is of a kind that this program does not know.
    #[error("{0}: the program that sent it is newer")]
    UnknownKind(String),
    /// There are bytes after the value.
    #[error("{0} bytes follow the value; send one value alone")]
    Trailing(usize),
}

/// Encodes a value.
///
/// # Errors
/// The encoding would exceed `limit`, or the value cannot be serialized.
pub fn encode<T: Serialize + ?Sized>(value: &T, limit: usize) -> Result<Vec<u8>, CodecError> {
    let bytes = bincode::serde::encode_to_vec(value, bincode::config::standard())
        .map_err(|e| CodecError::Invalid(e.to_string()))?;
    fits(bytes.len(), limit).map(|()| bytes)
}

/// Encodes a value whose kinds and fields have numbers.
///
/// # Errors
/// As for [`encode()`].
pub fn encode_numbered<T: Encode<()>>(value: &T, limit: usize) -> Result<Vec<u8>, CodecError> {
    let bytes = minicbor::to_vec(value).map_err(|e| CodecError::Invalid(e.to_string()))?;
    fits(bytes.len(), limit).map(|()| bytes)
}

fn fits(bytes: usize, limit: usize) -> Result<(), CodecError> {
    let limit = limit.min(BYTES_MAX);
    if bytes > limit {
        return Err(CodecError::TooLarge { bytes, limit });
    }
    Ok(())
}

/// Decodes exactly one value.
///
/// # Errors
/// There are more than `limit` bytes, the bytes are not a value of this type, or bytes follow the
/// value.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], limit: usize) -> Result<T, CodecError> {
    fits(bytes.len(), limit)?;
    // bincode's limit is part of a type. It bounds what a length prefix can make bincode allocate,
    // because room for a text is reserved before its bytes are read. bincode counts the memory of
    // elements, which is up to 16 times their encoding: a `u128` below 251 takes one byte. So use
    // the next class of sizes, and 16 times that.
    let (value, read) = match bytes.len() {
        0..=0x400 => limited::<T, { 0x400 * MEMORY_FACTOR }>(bytes),
        0x401..=0x2000 => limited::<T, { 0x2000 * MEMORY_FACTOR }>(bytes),
        0x2001..=0x1_0000 => limited::<T, { 0x1_0000 * MEMORY_FACTOR }>(bytes),
        0x1_0001..=0x8_0000 => limited::<T, { 0x8_0000 * MEMORY_FACTOR }>(bytes),
        0x8_0001..=0x40_0000 => limited::<T, { 0x40_0000 * MEMORY_FACTOR }>(bytes),
        _ => limited::<T, { BYTES_MAX * MEMORY_FACTOR }>(bytes),
    }?;
    whole(value, bytes.len() - read)
}

/// Decodes exactly one value whose kinds and fields have numbers. Fields with unknown numbers are
/// skipped. A field that is missing gets its default, if it has one.
///
/// # Errors
/// As for [`decode()`], and if the value or a part of it is of an unknown kind.
pub fn decode_numbered<T>(bytes: &[u8], limit: usize) -> Result<T, CodecError>
where
    T: for<'b> Decode<'b, ()>,
{
    fits(bytes.len(), limit)?;
    let mut decoder = Decoder::new(bytes);
    // Lists grow with the elements that are read, and the types bound the depth.
    let value = decoder.decode().map_err(|e| match e.is_unknown_variant() {
        true => CodecError::UnknownKind(e.to_string()),
        false => CodecError::Invalid(e.to_string()),
    })?;
    whole(value, bytes.len() - decoder.position())
}

fn whole<T>(value: T, left: usize) -> Result<T, CodecError> {
    match left {
        0 => Ok(value),
        left => Err(CodecError::Trailing(left)),
    }
}

/// Lays out a part of a numbered value as a run of bytes, in the form of [`encode()`]:
/// `#[cbor(with = "doyen_placement::codec::bridge")]`.
pub mod bridge {
    use super::*;

    /// Appends the value.
    ///
    /// # Errors
    /// As for [`encode()`](super::encode()).
    pub fn encode<C, T: Serialize, W: Write>(
        value: &T,
        to: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        let bytes = super::encode(value, BYTES_MAX).map_err(encode::Error::message)?;
        to.bytes(&bytes)?.ok()
    }

    /// Reads the value.
    ///
    /// # Errors
    /// As for [`decode()`](super::decode()).
    pub fn decode<C, T: DeserializeOwned>(
        from: &mut Decoder<'_>,
        _: &mut C,
    ) -> Result<T, decode::Error> {
        super::decode(from.bytes()?, BYTES_MAX).map_err(decode::Error::message)
    }
}

/// Lets values of these types be parts of numbered ones, as [`bridge`](crate::codec::bridge) lays
/// them out.
#[macro_export]
macro_rules! bridged {
    ($($name:ty),* $(,)?) => {$(
        impl<C> ::minicbor::Encode<C> for $name {
            fn encode<W: ::minicbor::encode::Write>(
                &self,
                to: &mut ::minicbor::Encoder<W>,
                context: &mut C,
            ) -> Result<(), ::minicbor::encode::Error<W::Error>> {
                $crate::codec::bridge::encode(self, to, context)
            }
        }

        impl<'b, C> ::minicbor::Decode<'b, C> for $name {
            fn decode(
                from: &mut ::minicbor::Decoder<'b>,
                context: &mut C,
            ) -> Result<Self, ::minicbor::decode::Error> {
                $crate::codec::bridge::decode(from, context)
            }
        }
    )*};
}

// The layouts of tables, of their parts and of reports have rules of their own.
crate::bridged!(
    crate::access::TokenChange,
    crate::access::UserChange,
    crate::access::WeightChange,
    crate::division::Cut,
    crate::loads::Report,
    crate::BranchId,
    crate::ClusterId,
    crate::Division,
    crate::Durability,
    crate::Eviction,
    crate::Loads,
    crate::MapEntry,
    crate::MapLimits,
    crate::Member,
    crate::Mode,
    crate::MoveRate,
    crate::OnLoss,
    crate::Paused,
    crate::Rule,
    crate::Schedulers,
    crate::TableDelta,
    crate::TableName,
    crate::Window,
);

fn limited<T: DeserializeOwned, const LIMIT: usize>(
    bytes: &[u8],
) -> Result<(T, usize), CodecError> {
    bincode::serde::decode_from_slice(bytes, bincode::config::standard().with_limit::<LIMIT>())
        .map_err(|e| CodecError::Invalid(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::NewKeyspace;
    use crate::{
        Addresses, ClusterId, Division, Eviction, KeyspaceId, Location, Member, MemberId, Mode,
        OnLoss, Settings, Table, TableDelta, planner,
    };
    use proptest::prelude::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    enum Sample {
        Unit,
        Text(String),
        Nested {
            list: Vec<(u64, Option<String>)>,
            map: BTreeMap<String, Vec<u8>>,
        },
    }

    /// A table as in large clusters: 16,384 partitions in three copies on 100 members with random
    /// ids.
    fn large_table() -> Table {
        let member = |n: u64| Member {
            location: Location {
                zone: format!("zone-{}", n % 3),
                rack: format!("rack-{}", n % 9),
                host: format!("host-{n}"),
            },
            ..Member::new(
                MemberId(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) & !0xF),
                format!("node-{n:04}.rack-{}.example.org", n % 9),
                Addresses {
                    resp: Some(([10, 0, 0, n as u8], 7379).into()),
                    resp_cluster: Some(([10, 0, 0, n as u8], 7380).into()),
                    http: Some(([10, 0, 0, n as u8], 7480).into()),
                    ..Addresses::new(
                        ([10, 0, 0, n as u8], 7400).into(),
                        ([10, 0, 0, n as u8], 7401).into(),
                    )
                },
            )
        };
        let keyspace = NewKeyspace {
            name: "default".into(),
            mode: Mode::Fixed { partitions: 16_384 },
            division: Division::Slots,
            backups: 2,
            min_in_sync: 1,
            on_loss: OnLoss::Wait,
            default_ttl_ms: None,
            eviction: Eviction::None,
            ordered: false,
            rules: Vec::new(),
            durability: None,
        }
        .numbered(KeyspaceId(0));
        let settings = Settings::default();
        planner::first(
            ClusterId(1 << 100),
            settings,
            keyspace,
            (1..=100).map(member).collect(),
        )
    }

    #[test]
    fn a_large_table_and_its_changes_are_encoded_small() {
        let table = large_table();
        let whole = encode(&table, BYTES_MAX).expect("it can be written");
        assert_eq!(decode::<Table>(&whole, BYTES_MAX), Ok(table.clone()));
        let mut next = table.clone();
        for partition in &mut next.keyspaces[0].partitions[5000..5010] {
            let partition = Arc::make_mut(partition);
            partition.epoch = partition.epoch.next();
            partition.replicas.swap(0, 1);
        }
        let delta =
            encode(&TableDelta::between(&table, &next), BYTES_MAX).expect("it can be written");
        eprintln!(
            "the table has {} bytes, a change of ten partitions {}",
            whole.len(),
            delta.len()
        );
        assert!(whole.len() < 600_000, "{} bytes", whole.len());
        assert!(delta.len() < 4_000, "{} bytes", delta.len());
    }

    #[test]
    fn a_table_that_names_an_unlisted_member_is_refused() {
        let mut table = large_table();
        table.members.truncate(99);
        let bytes = encode(&table, BYTES_MAX).expect("it can be written");
        let CodecError::Invalid(why) =
            decode::<Table>(&bytes, BYTES_MAX).expect_err("it is no table")
        else {
            panic!("another error")
        };
        assert!(
            why.contains("names a member that it does not list"),
            "{why}"
        );
    }

    /// A message as a program has it, and as the next one has it.
    #[derive(Debug, Clone, PartialEq, Encode, Decode)]
    #[cbor(flat)]
    enum Asked {
        #[n(0)]
        Nothing,
        #[n(1)]
        Share {
            #[n(0)]
            name: String,
            #[n(1)]
            parts: Option<Vec<(u64, bool)>>,
        },
    }

    #[derive(Debug, Clone, PartialEq, Encode, Decode)]
    #[cbor(flat)]
    enum AskedMore {
        #[n(0)]
        Nothing,
        #[n(1)]
        Share {
            #[n(0)]
            name: String,
            #[n(1)]
            parts: Option<Vec<(u64, bool)>>,
            #[n(2)]
            until: Option<u64>,
            #[cbor(n(3), default)]
            places: BTreeMap<String, u64>,
        },
        #[n(2)]
        Forget,
    }

    fn asked_more() -> impl Strategy<Value = AskedMore> {
        let parts = proptest::collection::vec(any::<(u64, bool)>(), 0..9);
        let places = proptest::collection::btree_map(".{0,9}", any::<u64>(), 0..9);
        let share = (
            ".{0,40}",
            proptest::option::of(parts),
            any::<Option<u64>>(),
            places,
        );
        share.prop_map(|(name, parts, until, places)| AskedMore::Share {
            name,
            parts,
            until,
            places,
        })
    }

    fn sample() -> impl Strategy<Value = Sample> {
        prop_oneof![
            Just(Sample::Unit),
            ".{0,40}".prop_map(Sample::Text),
            (
                proptest::collection::vec((any::<u64>(), proptest::option::of(".{0,9}")), 0..20),
                proptest::collection::btree_map(
                    ".{0,9}",
                    proptest::collection::vec(any::<u8>(), 0..50),
                    0..9
                )
            )
                .prop_map(|(list, map)| Sample::Nested { list, map }),
        ]
    }

    proptest! {
        #[test]
        fn encoded_values_come_back(value in sample()) {
            let bytes = encode(&value, 1 << 20).unwrap();
            prop_assert_eq!(decode::<Sample>(&bytes, 1 << 20).unwrap(), value);
        }

        #[test]
        fn any_bytes_give_a_value_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..2000),
        ) {
            let _ = decode::<Sample>(&bytes, 1 << 20);
            let _ = decode::<Vec<String>>(&bytes, 1 << 20);
        }

        #[test]
        fn changed_bytes_give_a_value_or_an_error(
            value in sample(),
            at in any::<prop::sample::Index>(),
            to in any::<u8>(),
        ) {
            let mut bytes = encode(&value, 1 << 20).unwrap();
            let i = at.index(bytes.len());
            bytes[i] = to;
            let _ = decode::<Sample>(&bytes, 1 << 20);
        }

        #[test]
        fn fields_of_a_newer_program_are_skipped_and_those_of_an_older_one_get_defaults(
            newer in asked_more(),
        ) {
            let AskedMore::Share { name, parts, .. } = newer.clone() else {
                unreachable!("only this one is made")
            };
            let bytes = encode_numbered(&newer, 1 << 20).unwrap();
            prop_assert_eq!(decode_numbered::<AskedMore>(&bytes, 1 << 20), Ok(newer));
            let older = Asked::Share { name: name.clone(), parts: parts.clone() };
            prop_assert_eq!(decode_numbered::<Asked>(&bytes, 1 << 20), Ok(older.clone()));

            let bytes = encode_numbered(&older, 1 << 20).unwrap();
            let (until, places) = (None, BTreeMap::new());
            let newer = AskedMore::Share { name, parts, until, places };
            prop_assert_eq!(decode_numbered::<AskedMore>(&bytes, 1 << 20), Ok(newer));
        }

        #[test]
        fn numbered_bytes_that_are_cut_changed_or_followed_are_no_value_or_another_one(
            value in asked_more(),
            at in any::<prop::sample::Index>(),
            to in any::<u8>(),
        ) {
            let mut bytes = encode_numbered(&value, 1 << 20).unwrap();
            let at = at.index(bytes.len());
            prop_assert!(decode_numbered::<AskedMore>(&bytes[..at], 1 << 20).is_err());
            let followed = [&bytes[..], &[0]].concat();
            prop_assert_eq!(
                decode_numbered::<AskedMore>(&followed, 1 << 20),
                Err(CodecError::Trailing(1))
            );
            bytes[at] = to;
            let _ = decode_numbered::<AskedMore>(&bytes, 1 << 20);
        }

        #[test]
        fn trailing_bytes_are_an_error(value in sample(), extra in 1usize..9) {
            let mut bytes = encode(&value, 1 << 20).unwrap();
            bytes.extend(std::iter::repeat_n(0, extra));
            prop_assert_eq!(decode::<Sample>(&bytes, 1 << 20), Err(CodecError::Trailing(extra)));
        }
    }

    #[test]
    fn an_unknown_kind_of_a_numbered_value_is_told_from_malformed_bytes() {
        let bytes = encode_numbered(&AskedMore::Forget, 100).unwrap();
        let unknown = decode_numbered::<Asked>(&bytes, 100);
        assert!(
            matches!(unknown, Err(CodecError::UnknownKind(_))),
            "{unknown:?}"
        );
        let malformed = decode_numbered::<Asked>(b"no", 100);
        assert!(
            matches!(malformed, Err(CodecError::Invalid(_))),
            "{malformed:?}"
        );
        // A list of 2^60 elements, and a field that is nested 100,000 times.
        for begun in [
            vec![0x83, 1, 0x60, 0x9b, 16, 0, 0, 0, 0, 0, 0, 0],
            [&[0x84, 1, 0x60, 0xf6][..], &[0x81; 100_000]].concat(),
        ] {
            let malformed = decode_numbered::<Asked>(&begun, 1 << 20);
            assert!(
                matches!(malformed, Err(CodecError::Invalid(_))),
                "{malformed:?}"
            );
        }
    }

    #[test]
    fn a_length_prefix_alone_allocates_nothing() {
        // 253 announces a length of eight bytes: here a string of 2^60 bytes.
        let mut bytes = vec![253];
        bytes.extend((1u64 << 60).to_le_bytes());
        assert!(matches!(
            decode::<String>(&bytes, 1 << 20),
            Err(CodecError::Invalid(_))
        ));
        assert!(matches!(
            decode::<Vec<u64>>(&bytes, 1 << 20),
            Err(CodecError::Invalid(_))
        ));
        assert!(matches!(
            decode::<Vec<String>>(&bytes, 1 << 20),
            Err(CodecError::Invalid(_))
        ));
    }

    /// Regression: lists of small numbers were refused, because the limit came from the encoded
    /// bytes and counted the decoded ones.
    #[test]
    fn values_larger_in_memory_than_encoded_come_back() {
        for length in [0, 100, 340, 1020, 1024, 8189, 8192, 10_000, 65_533, 200_000] {
            let numbers = vec![7_u64; length];
            assert_eq!(
                decode::<Vec<u64>>(&encode(&numbers, BYTES_MAX).unwrap(), BYTES_MAX).unwrap(),
                numbers
            );
            let wide = vec![7_u128; length];
            assert_eq!(
                decode::<Vec<u128>>(&encode(&wide, BYTES_MAX).unwrap(), BYTES_MAX).unwrap(),
                wide
            );
            let nothing = vec![None::<[u64; 16]>; length];
            assert_eq!(
                decode::<Vec<Option<[u64; 16]>>>(&encode(&nothing, BYTES_MAX).unwrap(), BYTES_MAX)
                    .unwrap(),
                nothing
            );
        }
    }

    #[test]
    fn limits_hold_both_ways() {
        let text = "x".repeat(100);
        assert_eq!(
            encode(&text, 50),
            Err(CodecError::TooLarge {
                bytes: 101,
                limit: 50
            })
        );
        let bytes = encode(&text, 200).unwrap();
        assert_eq!(
            decode::<String>(&bytes, 50),
            Err(CodecError::TooLarge {
                bytes: 101,
                limit: 50
            })
        );
        for size in [0, 1 << 10, (1 << 14) + 1, 1 << 18, 5 << 20] {
            let value = "y".repeat(size);
            assert_eq!(
                decode::<String>(&encode(&value, BYTES_MAX).unwrap(), BYTES_MAX).unwrap(),
                value
            );
        }
    }
}
