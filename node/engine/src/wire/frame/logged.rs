//! Entries of logs, and outcomes.

use super::layouts::*;
use super::*;
use crate::store::cuts::{FreedRows, RowCut, RowSpan};

/// The tag of an outcome that is a list of them.
const OUTCOMES: u8 = 6;
/// The outcome of a transaction holds those of its steps, which may be lists, as of a key and what was
/// taken from it. A list within those is refused.
const LISTS_MAX: u8 = 3;

/// The tags of effects.
const PUT: u8 = 0;
const DELETE: u8 = 1;
const DEADLINE: u8 = 2;
const CLEAR: u8 = 3;
const MANY: u8 = 4;
/// A small collection is put.
const PACKED: u8 = 5;
const TABLE_MADE: u8 = 6;
const ROW: u8 = 7;
const ROW_DELETE: u8 = 8;
/// Deletions that no command caused.
const EXPIRED: u8 = 9;
const EVICTED: u8 = 10;
/// On a field of a collection that is one value.
const FIELD_PUT: u8 = 11;
/// Before the tag of an effect that puts a value: what the key had before, if that was no value.
const BEFORE: u8 = 12;
const NOTHING: u8 = 0;
const OVERDUE: u8 = 1;
/// Before the tag of an effect on a collection: its kind, if it is not [`UNSAID`].
const OF_KIND: u8 = 13;
/// On a range of rows. The kind is always said.
const ROWS_CUT: u8 = 14;
const ROWS_FREED: u8 = 15;
pub(super) const UNSAID: Kind = Kind::ALL[1];
/// On a field of a collection that is one value: it expires.
const FIELD_DATED: u8 = 16;

impl Field for Outcome {
    fn put(&self, out: &mut Out) {
        match self {
            Self::Ok => 0_u8.put(out),
            Self::Nil => 1_u8.put(out),
            Self::Int(n) => {
                put!(out, 2_u8, n);
            }
            Self::Bulk(value) => {
                put!(out, 3_u8, value);
            }
            Self::Keys { next, keys } => {
                put!(out, 4_u8, next, keys);
            }
            Self::Failed(failure) => {
                put!(out, 5_u8, failure);
            }
            Self::Many(outcomes) => {
                put!(out, OUTCOMES, outcomes);
            }
        }
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        outcome(from, LISTS_MAX)
    }
}

/// An outcome in which at most this many `lists` lie within each other.
fn outcome<B: Buf>(from: &mut FrameReader<B>, lists: u8) -> Decoded<Outcome> {
    Ok(match from.get::<u8>()? {
        0 => Outcome::Ok,
        1 => Outcome::Nil,
        2 => Outcome::Int(from.get()?),
        3 => Outcome::Bulk(from.get()?),
        4 => Outcome::Keys {
            next: from.get()?,
            keys: from.get()?,
        },
        5 => Outcome::Failed(from.get()?),
        OUTCOMES if lists > 0 => {
            let mut outcomes = Vec::new();
            for _ in 0..from.get::<u32>()? {
                outcomes.push(outcome(from, lists - 1)?);
            }
            Outcome::Many(outcomes)
        }
        _ => return Err(Malformed("unknown outcome")),
    })
}

impl Field for Logged {
    fn put(&self, out: &mut Out) {
        put!(out, self.epoch, self.op.is_some());
        if let Some(op) = &self.op {
            put!(out, op, self.outcome);
        }
        self.effect.put(out);
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        let epoch = from.get()?;
        let (op, outcome) = match from.get()? {
            true => (Some(from.get()?), from.get()?),
            false => (None, Outcome::Ok),
        };
        Ok(Self {
            epoch,
            effect: from.get()?,
            op,
            outcome,
        })
    }
}

/// A tag, and before it the kind of a collection, if it must be said.
pub(super) fn put_tag(out: &mut Out, (of_kind, kind): (u8, Kind), tag: u8) {
    if kind != UNSAID {
        put!(out, of_kind, kind);
    }
    tag.put(out);
}

impl Field for Effect {
    fn put(&self, out: &mut Out) {
        match self {
            Self::Put {
                map,
                entry,
                deadline,
                before,
            } => {
                match before {
                    Before::Value => {}
                    Before::Nothing => [BEFORE, NOTHING].put(out),
                    Before::Overdue => [BEFORE, OVERDUE].put(out),
                }
                match entry.kind() {
                    Kind::String => PUT.put(out),
                    kind if entry.is_table() => put_tag(out, (OF_KIND, kind), TABLE_MADE),
                    kind => put_tag(out, (OF_KIND, kind), PACKED),
                }
                put!(out, map, entry, deadline);
            }
            Self::Delete { map, key, cause } => {
                let tag = match cause {
                    Cause::Command => DELETE,
                    Cause::Expired => EXPIRED,
                    Cause::Evicted => EVICTED,
                };
                put!(out, tag, map, key);
            }
            Self::Deadline { map, key, deadline } => {
                put!(out, DEADLINE, map, key, deadline);
            }
            Self::Row {
                map,
                key,
                kind,
                row,
            } => {
                put_tag(out, (OF_KIND, *kind), ROW);
                put!(out, map, key, row, row.deadline());
            }
            Self::Field {
                map,
                key,
                kind,
                row,
            } => match row.deadline() {
                0 => {
                    put_tag(out, (OF_KIND, *kind), FIELD_PUT);
                    put!(out, map, key, row);
                }
                at => {
                    put_tag(out, (OF_KIND, *kind), FIELD_DATED);
                    put!(out, map, key, row, at);
                }
            },
            Self::RowDelete {
                map,
                key,
                kind,
                field,
            } => {
                put_tag(out, (OF_KIND, *kind), ROW_DELETE);
                put!(out, map, key, field);
            }
            Self::RowsCut {
                map,
                key,
                kind,
                span,
            } => {
                put!(out, OF_KIND, *kind, ROWS_CUT, map, key, span);
            }
            Self::RowsFreed {
                map,
                key,
                kind,
                freed,
            } => {
                put!(out, OF_KIND, *kind, ROWS_FREED, map, key, freed.cut.seq);
                put!(out, freed.cut.span, freed.upto.is_some());
                if let Some((last, next)) = &freed.upto {
                    put!(out, last, next);
                }
            }
            Self::Clear { map } => {
                put!(out, CLEAR, map);
            }
            Self::Many(parts) => {
                put!(out, MANY, parts.len() as u32);
                parts.iter().for_each(|part| part.put(out));
            }
        }
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        match from.get()? {
            MANY => {
                let mut parts = Vec::new();
                for _ in 0..from.get::<u32>()? {
                    let tag = from.get()?;
                    let part = effect(from, tag)?;
                    if part.place().is_none() {
                        return Err(Malformed("an effect on a whole map in a list of effects"));
                    }
                    parts.push(part);
                }
                Ok(Self::Many(parts.into()))
            }
            tag => effect(from, tag),
        }
    }
}

/// Whether a kind may be said before this tag.
const fn is_of_collection(tag: u8) -> bool {
    matches!(
        tag,
        PACKED | TABLE_MADE | ROW | FIELD_PUT | FIELD_DATED | ROW_DELETE
    )
}

/// An effect that is no list.
fn effect<B: Buf>(from: &mut FrameReader<B>, tag: u8) -> Decoded<Effect> {
    if tag == BEFORE {
        let what = match from.get()? {
            NOTHING => Before::Nothing,
            OVERDUE => Before::Overdue,
            _ => return Err(Malformed("an unknown state of a key")),
        };
        let tag = from.get()?;
        if !matches!(tag, PUT | PACKED | TABLE_MADE | OF_KIND) {
            return Err(Malformed("the former state of what is not put"));
        }
        let mut effect = effect(from, tag)?;
        let Effect::Put { before, .. } = &mut effect else {
            return Err(Malformed("the former state of what is not put"));
        };
        *before = what;
        return Ok(effect);
    }
    let (tag, kind) = match tag {
        OF_KIND => {
            let (kind, tag) = (from.get()?, from.get()?);
            if matches!(tag, ROWS_CUT | ROWS_FREED) {
                return on_range(from, kind, tag);
            }
            if !is_of_collection(tag) {
                return Err(Malformed("the kind of what is no collection"));
            }
            (tag, kind)
        }
        PUT => (tag, Kind::String),
        tag => (tag, UNSAID),
    };
    let map = from.get()?;
    Ok(match tag {
        PUT | PACKED => Effect::Put {
            map,
            // The deadline is set when it is applied.
            entry: from.pair(|key, value| Entry::of_kind(kind, key, value))?,
            deadline: from.get()?,
            before: Before::Value,
        },
        TABLE_MADE => {
            let (key, value): (Bytes, Bytes) = (from.get()?, from.get()?);
            if value.len() < size_of::<u64>() {
                return Err(Malformed("a table without a birth"));
            }
            Effect::Put {
                map,
                entry: Entry::of_table_value(kind, &key, &value),
                deadline: from.get()?,
                before: Before::Value,
            }
        }
        ROW => {
            let key = from.get()?;
            let (field, value): (Bytes, Bytes) = (from.get()?, from.get()?);
            Effect::Row {
                map,
                key,
                kind,
                row: Entry::of_row(&field, &value, from.get()?),
            }
        }
        FIELD_PUT => Effect::Field {
            map,
            key: from.get()?,
            kind,
            row: from.pair(|field, value| Entry::of_row(field, value, 0))?,
        },
        FIELD_DATED => {
            let key = from.get()?;
            let (field, value): (Bytes, Bytes) = (from.get()?, from.get()?);
            Effect::Field {
                map,
                key,
                kind,
                row: Entry::of_row(&field, &value, from.get()?),
            }
        }
        ROW_DELETE => Effect::RowDelete {
            map,
            key: from.get()?,
            kind,
            field: from.get()?,
        },
        DELETE | EXPIRED | EVICTED => Effect::Delete {
            map,
            key: from.get()?,
            cause: match tag {
                EXPIRED => Cause::Expired,
                EVICTED => Cause::Evicted,
                _ => Cause::Command,
            },
        },
        DEADLINE => Effect::Deadline {
            map,
            key: from.get()?,
            deadline: from.get()?,
        },
        CLEAR => Effect::Clear { map },
        _ => return Err(Malformed("unknown effect")),
    })
}

/// An effect on a range of rows.
fn on_range<B: Buf>(from: &mut FrameReader<B>, kind: Kind, tag: u8) -> Decoded<Effect> {
    if kind.row_order().is_none() {
        return Err(Malformed("a range of rows that have no order"));
    }
    let (map, key) = (from.get()?, from.get()?);
    if tag == ROWS_CUT {
        let span = from.get()?;
        return Ok(Effect::RowsCut {
            map,
            key,
            kind,
            span,
        });
    }
    let (seq, span) = (from.get()?, from.get()?);
    let upto = match from.get()? {
        true => Some((row(from)?, row(from)?)),
        false => None,
    };
    let cut = RowCut { seq, span };
    Ok(Effect::RowsFreed {
        map,
        key,
        kind,
        freed: Box::new(FreedRows { cut, upto }),
    })
}

fn row<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Entry> {
    from.pair(|field, value| Entry::of_row(field, value, 0))
}

impl Field for RowSpan {
    fn put(&self, out: &mut Out) {
        put!(out, self.first, self.last);
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        Ok(Self {
            first: row(from)?,
            last: row(from)?,
        })
    }
}
