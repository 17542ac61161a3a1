//! Effects of log entries, and what they replaced.

use super::cuts::{FreedRows, RowSpan};
use super::fields::Dropped;
use super::map::StoredMap;
use crate::mutant::{self, broken};
use crate::value::cause::Cause;
use crate::value::dated;
use crate::value::entry::{Entry, Key};
use crate::value::kind::Kind;
use doyen_placement::MapId;

/// The effect of a log entry. Effects are replicated, never commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The key has this value and deadline.
    Put {
        map: MapId,
        entry: Entry,
        deadline: u64,
        before: Before,
    },
    /// The key is deleted.
    Delete { map: MapId, key: Key, cause: Cause },
    /// The key has this deadline.
    Deadline { map: MapId, key: Key, deadline: u64 },
    /// A field of a table has the value and the deadline of this row.
    Row {
        map: MapId,
        key: Key,
        kind: Kind,
        row: Entry,
    },
    /// A field of a collection that is one value has the value of this row. It is logged only if
    /// every copy has the value that the collection had before.
    Field {
        map: MapId,
        key: Key,
        kind: Kind,
        row: Entry,
    },
    /// A field of a collection is deleted. If that is one value, it is logged as `Field` is, and
    /// from the level on that has deadlines there.
    RowDelete {
        map: MapId,
        key: Key,
        kind: Kind,
        field: Key,
    },
    /// The rows of a table in a range are hidden, but for those of later writes (`cuts.rs`).
    RowsCut {
        map: MapId,
        key: Key,
        kind: Kind,
        span: RowSpan,
    },
    /// Some rows that are hidden are freed. No command sees a difference.
    RowsFreed {
        map: MapId,
        key: Key,
        kind: Kind,
        freed: Box<FreedRows>,
    },
    /// The map is empty.
    Clear { map: MapId },
    /// All of these, in order. None of them is such a list or a `Clear`.
    Many(Box<[Effect]>),
}

/// What a key had before a `Put`. Its primary says it, because only the primary's clock decides
/// whether a value that is still stored has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Before {
    /// A value.
    Value,
    /// Nothing.
    Nothing,
    /// A value that had expired, and no entry of the log has deleted it.
    Overdue,
}

/// What an effect in a list costs besides its key and value.
pub(super) const PART_OVERHEAD: usize = size_of::<Effect>() + size_of::<Undo>();

impl Effect {
    /// The effects that it consists of.
    pub(crate) fn parts(&self) -> &[Self] {
        match self {
            Self::Many(parts) => parts,
            one => std::slice::from_ref(one),
        }
    }

    /// Bytes of its keys and values.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Put { entry, .. } => entry.len(),
            Self::Delete { key, .. } | Self::Deadline { key, .. } => key.len(),
            Self::Row { key, row, .. } | Self::Field { key, row, .. } => key.len() + row.len(),
            Self::RowDelete { key, field, .. } => key.len() + field.len(),
            Self::RowsCut { key, span, .. } => key.len() + span.bytes(),
            Self::RowsFreed { key, freed, .. } => key.len() + freed.bytes(),
            Self::Clear { .. } => 0,
            Self::Many(parts) => parts.iter().map(|part| part.bytes() + PART_OVERHEAD).sum(),
        }
    }

    /// Notes what the key had before, once it was applied at its primary. `clock`: the time of the
    /// partition.
    #[inline]
    pub(crate) fn note_before(&mut self, undo: &Undo, clock: &impl Fn() -> u64) {
        match (self, undo) {
            (Self::Put { before, .. }, Undo::Absent) => *before = Before::Nothing,
            (Self::Put { before, .. }, undo) => {
                if broken(&mutant::TELLS_UPDATES_AS_INSERTS) {
                    *before = Before::Nothing;
                } else if undo.is_overdue(clock) {
                    *before = Before::Overdue;
                }
            }
            // It was set again and deleted meanwhile, by the same operation.
            (Self::Delete { cause, .. }, undo) if undo.is_overdue(clock) => {
                *cause = Cause::Expired;
            }
            (Self::Many(parts), Undo::Many(undos)) => {
                for (part, undo) in parts.iter_mut().zip(undos) {
                    part.note_before(undo, clock);
                }
            }
            _ => {}
        }
    }

    /// The field that it changes, if it is about a row.
    pub(crate) fn field(&self) -> Option<&[u8]> {
        match self {
            Self::Row { row, .. } => Some(row.key()),
            Self::RowDelete { field, .. } => Some(field),
            Self::Put { .. }
            | Self::Delete { .. }
            | Self::Deadline { .. }
            | Self::Field { .. }
            | Self::RowsCut { .. }
            | Self::RowsFreed { .. }
            | Self::Clear { .. }
            | Self::Many(_) => None,
        }
    }

    /// The map and the key that it changes, if it is about one key.
    pub(crate) fn place(&self) -> Option<(MapId, &[u8])> {
        match self {
            Self::Put { map, entry, .. } => Some((*map, entry.key())),
            Self::Delete { map, key, .. }
            | Self::Deadline { map, key, .. }
            | Self::Row { map, key, .. }
            | Self::Field { map, key, .. }
            | Self::RowDelete { map, key, .. }
            | Self::RowsCut { map, key, .. }
            | Self::RowsFreed { map, key, .. } => Some((*map, key)),
            Self::Clear { .. } | Self::Many(_) => None,
        }
    }

    /// Whether a key may be absent because of it.
    pub(crate) fn deletes(&self) -> bool {
        match self {
            Self::Delete { .. } => true,
            Self::Clear { .. } => !broken(&mutant::READS_CLEARS),
            // Who reads a table waits for its latest change.
            Self::Row { .. } | Self::RowDelete { .. } => false,
            Self::RowsCut { .. } | Self::RowsFreed { .. } => false,
            Self::Put { .. } | Self::Deadline { .. } | Self::Field { .. } => false,
            Self::Many(parts) => parts.iter().any(Self::deletes),
        }
    }

    /// Gives it up. The next entries reuse the memory of its entries.
    pub(crate) fn recycle(self) {
        match self {
            Self::Put { entry: it, .. }
            | Self::Row { row: it, .. }
            | Self::Field { row: it, .. } => it.recycle(),
            Self::Many(parts) => parts.into_iter().for_each(Self::recycle),
            Self::Delete { .. }
            | Self::Deadline { .. }
            | Self::RowDelete { .. }
            | Self::RowsCut { .. }
            | Self::RowsFreed { .. }
            | Self::Clear { .. } => {}
        }
    }
}

/// What an effect replaced.
#[derive(Debug, Default)]
pub(crate) enum Undo {
    /// Nothing to undo: the entry is committed, or it changed nothing.
    #[default]
    Nothing,
    /// The key was absent.
    Absent,
    /// The key had this entry.
    Was(Entry),
    /// The entry had this deadline and version.
    Dated(u64, u64),
    /// The key had this table.
    Table(Box<Dropped>),
    /// The field had this row, and the table this version.
    Row(Option<Entry>, u64),
    /// The table had this entry, and these rows, which were hidden.
    Freed(Box<(Entry, Vec<Entry>)>),
    /// The map had these entries.
    Map(Box<StoredMap>),
    /// Each effect of a list replaced this.
    Many(Box<[Undo]>),
}

impl Undo {
    /// What each effect of a list replaced.
    pub(crate) fn parts(&self) -> &[Self] {
        match self {
            Self::Many(parts) => parts,
            one => std::slice::from_ref(one),
        }
    }

    /// A table that it would bring back, if this walk is in it.
    pub(crate) fn walked(&mut self, number: u64) -> Option<&mut StoredMap> {
        match self {
            Self::Table(dropped) => dropped.walked(number),
            Self::Many(parts) => parts.iter_mut().find_map(|part| part.walked(number)),
            _ => None,
        }
    }

    /// Whether it replaced a value that had expired.
    pub(super) fn is_overdue(&self, clock: &impl Fn() -> u64) -> bool {
        match self {
            Self::Was(entry) => {
                let all_fields = |at| dated::without_overdue(entry.value(), at).0.is_empty();
                let of_fields = || entry.fields_due() != 0 && all_fields(clock());
                (entry.deadline() != 0 && entry.overdue(clock())) || of_fields()
            }
            Self::Table(dropped) => dropped.is_overdue(clock()),
            _ => false,
        }
    }

    /// The string that it replaced.
    pub(crate) fn string(&self) -> Option<&Entry> {
        match self {
            Self::Was(entry) => Some(entry).filter(|entry| entry.kind() == Kind::String),
            _ => None,
        }
    }

    /// Bytes of the strings that it replaced.
    pub(crate) fn string_bytes(&self) -> usize {
        match self {
            Self::Many(parts) => parts.iter().map(Self::string_bytes).sum(),
            one => one.string().map_or(0, Entry::len),
        }
    }

    /// Keeps only strings, which subscribers may be told, and gives the rest up.
    pub(crate) fn into_strings(self, garbage: &mut Vec<StoredMap>) -> Self {
        match self {
            Self::Many(parts) => {
                let strings = parts.into_iter().map(|part| part.into_strings(garbage));
                Self::Many(strings.collect())
            }
            one if one.string().is_some() => one,
            other => {
                other.recycle(garbage);
                Self::Nothing
            }
        }
    }

    /// Gives it up. The next entries reuse the memory of its entries. Whole maps are freed in
    /// slices by the caller.
    pub(crate) fn recycle(self, garbage: &mut Vec<StoredMap>) {
        match self {
            Self::Map(map) => garbage.push(*map),
            Self::Table(dropped) => garbage.push(dropped.into_table()),
            Self::Was(entry) | Self::Row(Some(entry), _) => entry.recycle(),
            Self::Freed(was) => was.1.into_iter().for_each(Entry::recycle),
            Self::Many(parts) => parts.into_iter().for_each(|part| part.recycle(garbage)),
            Self::Nothing | Self::Absent | Self::Dated(..) | Self::Row(None, _) => {}
        }
    }
}
