//! Values in the oldest encoding that can hold them.

use crate::error::RdbError;
use crate::stream::put_stream;
use crate::types;
use crate::value::RdbValue;

/// The number of a value's type, and the value.
pub(crate) fn value<B: AsRef<[u8]>>(value: &RdbValue<B>) -> Result<(u8, Vec<u8>), RdbError> {
    let mut out = Vec::with_capacity(value.weight());
    let kind = match value {
        RdbValue::String(bytes) => {
            string(&mut out, bytes.as_ref());
            types::STRING
        }
        RdbValue::List(all) => {
            elements(&mut out, all);
            types::LIST
        }
        RdbValue::Set(all) => {
            elements(&mut out, all);
            types::SET
        }
        RdbValue::SortedSet(all) => {
            length(&mut out, all.len() as u64);
            for it in all {
                string(&mut out, it.member.as_ref());
                out.extend_from_slice(&it.score.to_le_bytes());
            }
            types::ZSET_2
        }
        RdbValue::Hash(all) => {
            let least = all.iter().filter_map(|it| it.deadline).min();
            if let Some(least) = least {
                out.extend_from_slice(&least.to_le_bytes());
            }
            length(&mut out, all.len() as u64);
            for it in all {
                if let Some(least) = least {
                    let distance = it
                        .deadline
                        .map_or(0, |time| (time - least).saturating_add(1));
                    length(&mut out, distance);
                }
                string(&mut out, it.field.as_ref());
                string(&mut out, it.value.as_ref());
            }
            match least {
                Some(_) => types::HASH_METADATA,
                None => types::HASH,
            }
        }
        RdbValue::Stream(it) => {
            put_stream(&mut out, it);
            types::STREAM_LISTPACKS_2
        }
        RdbValue::Unread(_) => {
            let what = format!("a value of the type {}", value.type_name());
            return Err(RdbError::Unknown { at: 0, what });
        }
    };
    Ok((kind, out))
}

fn elements<B: AsRef<[u8]>>(out: &mut Vec<u8>, all: &[B]) {
    length(out, all.len() as u64);
    for element in all {
        string(out, element.as_ref());
    }
}

/// A string as it is.
pub(crate) fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    length(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A length in as few bytes as it needs.
#[expect(
    clippy::cast_possible_truncation,
    reason = "each arm has the range that fits"
)]
pub(crate) fn length(out: &mut Vec<u8>, length: u64) {
    match length {
        0..0x40 => out.push(length as u8),
        0x40..0x4000 => out.extend_from_slice(&(0x4000 | length as u16).to_be_bytes()),
        0x4000..0x1_0000_0000 => {
            out.push(0x80);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
        _ => {
            out.push(0x81);
            out.extend_from_slice(&length.to_be_bytes());
        }
    }
}
