//! Changes that subscribers receive.

use super::layouts::*;
use super::logged::{UNSAID, put_tag};
use super::*;

const STRING: u8 = 0;
const STRING_VALUE: u8 = 1;
const COLLECTION: u8 = 2;
const FIELD: u8 = 3;
const FIELD_VALUE: u8 = 4;
const FIELD_GONE: u8 = 5;
const DATED: u8 = 6;
const REMOVED: u8 = 7;
const CLEARED: u8 = 8;
/// Before the tag of a change of a collection: its kind, if it is not [`UNSAID`].
const OF_KIND: u8 = 9;
/// Before everything else: the number of the operation, if the subscriber submitted that.
const OWN: u8 = 10;

/// What a key had before: nothing, a value that is not told, or this string.
impl Field for Former {
    fn put(&self, out: &mut Out) {
        match self {
            Self::Nothing => 0_u8.put(out),
            Self::Value(None) => 1_u8.put(out),
            Self::Value(Some(old)) => {
                put!(out, 2_u8, old);
            }
        }
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        Ok(match from.get::<u8>()? {
            0 => Self::Nothing,
            1 => Self::Value(None),
            2 => Self::Value(Some(from.get()?)),
            _ => return Err(Malformed("an unknown former state of a key")),
        })
    }
}

/// The frame says the partition, and the subscriber knows the lineage.
impl Field for Change {
    fn put(&self, out: &mut Out) {
        let (kind, tag) = match &self.what {
            What::Put(Kind::String, None) => (UNSAID, STRING),
            What::Put(Kind::String, Some(_)) => (UNSAID, STRING_VALUE),
            What::Put(kind, _) => (*kind, COLLECTION),
            What::Field(kind, _, None) => (*kind, FIELD),
            What::Field(kind, _, Some(_)) => (*kind, FIELD_VALUE),
            What::FieldRemoved(kind, _) => (*kind, FIELD_GONE),
            What::Deadline => (UNSAID, DATED),
            What::Removed(_) => (UNSAID, REMOVED),
            What::Cleared => (UNSAID, CLEARED),
        };
        if let Some(n) = self.own {
            put!(out, OWN, n);
        }
        put_tag(out, (OF_KIND, kind), tag);
        put!(
            out,
            self.position.seq,
            self.by.unwrap_or(By::UNKNOWN),
            self.map,
            self.key,
            self.before
        );
        match &self.what {
            What::Put(Kind::String, Some(value)) => value.put(out),
            What::Field(_, field, value) => {
                field.put(out);
                value.iter().for_each(|value| value.put(out));
            }
            What::FieldRemoved(_, field) => field.put(out),
            What::Removed(cause) => cause.put(out),
            What::Put(..) | What::Deadline | What::Cleared => {}
        }
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        let (first, own) = match from.get()? {
            OWN => {
                let own = Some(from.get()?);
                (from.get()?, own)
            }
            tag => (tag, None),
        };
        let (tag, kind) = match first {
            OF_KIND => {
                let (kind, tag) = (from.get()?, from.get()?);
                if !matches!(tag, COLLECTION | FIELD | FIELD_VALUE | FIELD_GONE) {
                    return Err(Malformed("the kind of what is no collection"));
                }
                (tag, kind)
            }
            tag => (tag, UNSAID),
        };
        let position = Position {
            partition: PartitionId(0),
            lineage: Lineage(0),
            seq: from.get()?,
        };
        let by = Some(from.get()?).filter(|by| *by != By::UNKNOWN);
        let (map, key, before) = (from.get()?, from.get()?, from.get()?);
        let what = match tag {
            STRING => What::Put(Kind::String, None),
            STRING_VALUE => What::Put(Kind::String, Some(from.get()?)),
            COLLECTION => What::Put(kind, None),
            FIELD => What::Field(kind, from.get()?, None),
            FIELD_VALUE => What::Field(kind, from.get()?, Some(from.get()?)),
            FIELD_GONE => What::FieldRemoved(kind, from.get()?),
            DATED => What::Deadline,
            REMOVED => What::Removed(from.get()?),
            CLEARED => What::Cleared,
            _ => return Err(Malformed("an unknown change")),
        };
        Ok(Self {
            position,
            map,
            key,
            what,
            before,
            by,
            own,
        })
    }
}
