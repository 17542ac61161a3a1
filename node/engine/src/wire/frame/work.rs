//! What is asked for: the layouts of operations that are more than their fields.

use super::layouts::*;
use super::*;
use crate::value::extended::Extended;

/// A call has this many runs of bytes or more: their number follows.
const MANY_RUNS: u8 = u8::MAX;

/// The tags of actions on partitions.
const COUNT: u8 = 0;
const SCAN: u8 = 1;
const CLEAR: u8 = 2;
const RANGE: u8 = 3;
/// A scan of keys that hold one kind of value.
const SCAN_OF_KIND: u8 = 4;
/// A page of a large collection.
const FIELDS: u8 = 5;
const FIND: u8 = 6;
const SIZES: u8 = 7;

impl Field for Expiry {
    fn put(&self, out: &mut Out) {
        let (kind, ms): (u8, i64) = match *self {
            Self::Keep => (0, 0),
            Self::None => (1, 0),
            Self::In(ms) => (2, ms),
            Self::At(ms) => (3, ms),
        };
        put!(out, kind, ms);
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        let (kind, ms) = (from.get::<u8>()?, from.get()?);
        match kind {
            0 if ms == 0 => Ok(Self::Keep),
            1 if ms == 0 => Ok(Self::None),
            2 => Ok(Self::In(ms)),
            3 => Ok(Self::At(ms)),
            _ => Err(Malformed("unknown expiry")),
        }
    }
}

impl Field for Extended {
    fn put(&self, out: &mut Out) {
        self.parts().put(out);
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        let (negative, mantissa, exponent) = from.get()?;
        Self::of_parts(negative, mantissa, exponent)
            .ok_or(Malformed("a number that cannot be represented"))
    }
}

impl Field for ProcedureCall {
    fn put(&self, out: &mut Out) {
        self.called.number().put(out);
        // Few numbers are taken, and at most some thousand runs.
        (self.inputs.numbers.len() as u8).put(out);
        self.inputs.numbers.iter().for_each(|n| n.put(out));
        match self.inputs.bytes.len() {
            few if few < usize::from(MANY_RUNS) => (few as u8).put(out),
            many => {
                put!(out, MANY_RUNS, many as u16);
            }
        }
        self.inputs.bytes.iter().for_each(|bytes| bytes.put(out));
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        let called = Called::of_number(from.get()?).ok_or(Malformed("an unknown procedure"))?;
        let (mut numbers, mut bytes) = (Vec::new(), Vec::new());
        for _ in 0..from.get::<u8>()? {
            numbers.push(from.get()?);
        }
        let count = match from.get()? {
            MANY_RUNS => match from.get()? {
                few if few < u16::from(MANY_RUNS) => {
                    return Err(Malformed("a small number in the place of a large one"));
                }
                many => many,
            },
            few => few.into(),
        };
        for _ in 0..count {
            bytes.push(from.get()?);
        }
        Self::new(called, &numbers, bytes)
            .ok_or(Malformed("a procedure with other inputs than it takes"))
    }
}

impl Field for PartitionAction {
    fn put(&self, out: &mut Out) {
        match self {
            Self::Count => COUNT.put(out),
            Self::Scan {
                cursor,
                count,
                kind,
            } => {
                let tag = if kind.is_none() { SCAN } else { SCAN_OF_KIND };
                put!(out, tag, cursor, count);
                kind.iter().for_each(|kind| kind.put(out));
            }
            Self::Clear => CLEAR.put(out),
            Self::Range(query) => {
                put!(out, RANGE, query);
            }
            Self::Fields { walk, page } => {
                put!(out, FIELDS, walk, page);
            }
            Self::Find(query) => {
                put!(out, FIND, query);
            }
            Self::Sizes => SIZES.put(out),
        }
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        Ok(match from.get()? {
            COUNT => Self::Count,
            tag @ (SCAN | SCAN_OF_KIND) => Self::Scan {
                cursor: from.get()?,
                count: from.get()?,
                kind: match tag {
                    SCAN => None,
                    _ => Some(from.get()?),
                },
            },
            CLEAR => Self::Clear,
            RANGE => Self::Range(from.get()?),
            FIELDS => Self::Fields {
                walk: from.get()?,
                page: from.get()?,
            },
            FIND => Self::Find(from.get()?),
            SIZES => Self::Sizes,
            _ => return Err(Malformed("unknown partition action")),
        })
    }
}

impl Field for FindQuery {
    fn put(&self, out: &mut Out) {
        put!(
            out,
            self.cursor,
            self.count,
            self.prefix,
            self.values,
            self.holding.is_some()
        );
        self.holding.iter().for_each(|tag| tag.put(out));
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        Ok(Self {
            cursor: from.get()?,
            count: from.get()?,
            prefix: from.get()?,
            values: from.get()?,
            holding: match from.get()? {
                true => Some(from.get()?),
                false => None,
            },
        })
    }
}
