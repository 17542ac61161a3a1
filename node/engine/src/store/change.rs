//! How an action changes a key.

use super::cuts::RowSpan;
use super::effect::{Before, Effect};
use crate::value::cause::Cause;
use crate::value::entry::{Entry, Key};
use crate::value::kind::Kind;
use bytes::Bytes;
use doyen_placement::MapId;
use smallvec::SmallVec;

/// Fields with their values. Mostly it is one.
pub(crate) type FewFields = SmallVec<[Entry; 2]>;

/// How an action changes the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyChange {
    /// The key does not change.
    None,
    /// The key has this string and deadline.
    Put { value: Bytes, deadline: u64 },
    /// The key has the text of this number as its string, and this deadline.
    Number { number: i64, deadline: u64 },
    /// The same with a string in an entry that is made already, and not known to any store.
    Entry { entry: Entry, deadline: u64 },
    /// The key has this small collection and deadline. If it had one before, with the same
    /// deadline, these few fields may be all that was set, or removed.
    Packed {
        kind: Kind,
        packed: Bytes,
        deadline: u64,
        fields: FewFields,
        removes: bool,
    },
    /// The key has a table of these rows, and this deadline.
    Table {
        kind: Kind,
        rows: Vec<Entry>,
        deadline: u64,
    },
    /// These rows of the key's table come or go.
    Rows { kind: Kind, rows: Vec<RowChange> },
    /// The key is deleted.
    Delete,
    /// The key has this deadline.
    Deadline(u64),
}

/// How a row changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RowChange {
    /// Its field has this value and this deadline.
    Put(Entry),
    /// This field is deleted.
    Delete(Bytes),
    /// The rows of this range are removed.
    Cut(RowSpan),
}

impl KeyChange {
    /// The key has this string, or this small collection, and this deadline.
    pub(crate) fn of_value(kind: Kind, value: Bytes, deadline: u64) -> Self {
        if kind.has_rows() {
            Self::Packed {
                kind,
                packed: value,
                deadline,
                fields: FewFields::new(),
                removes: false,
            }
        } else {
            Self::Put { value, deadline }
        }
    }

    /// The same with a number as a string of bytes.
    pub(crate) fn in_bytes(self) -> Self {
        match self {
            Self::Number { number, deadline } => {
                let mut text = itoa::Buffer::new();
                let text = Bytes::copy_from_slice(text.format(number).as_bytes());
                Self::put(text, deadline)
            }
            other => other,
        }
    }

    /// The key has this string and deadline.
    pub(crate) const fn put(value: Bytes, deadline: u64) -> Self {
        Self::Put { value, deadline }
    }

    /// Bytes that it writes besides the key, and how many entries and rows. `None`: it only
    /// deletes, or changes a deadline.
    pub(crate) fn written(&self) -> Option<(usize, usize)> {
        match self {
            Self::None | Self::Delete | Self::Deadline(_) => None,
            Self::Put { value, .. } | Self::Packed { packed: value, .. } => Some((value.len(), 1)),
            Self::Number { number, .. } => Some((itoa::Buffer::new().format(*number).len(), 1)),
            Self::Entry { entry, .. } => Some((entry.value().len(), 1)),
            Self::Table { rows, .. } => Some((rows.iter().map(Entry::len).sum(), 1 + rows.len())),
            Self::Rows { rows, .. } => {
                let put = rows.iter().filter_map(|row| match row {
                    RowChange::Put(row) => Some(row.len()),
                    RowChange::Delete(_) | RowChange::Cut(_) => None,
                });
                put.fold(None, |sum, bytes| {
                    let (all, count) = sum.unwrap_or_default();
                    Some((all + bytes, count + 1))
                })
            }
        }
    }

    /// How many rows of a table come or go, one by one.
    pub(crate) const fn rows(&self) -> usize {
        match self {
            Self::Rows { rows, .. } => rows.len(),
            _ => 0,
        }
    }

    /// The effect that puts the whole collection, if only fields of it are logged.
    pub(crate) fn whole_of_fields(&self, map: MapId, key: &[u8], teaches: bool) -> Option<Effect> {
        match self {
            Self::Packed {
                kind,
                packed,
                deadline,
                fields,
                ..
            } if !fields.is_empty() && !teaches => Some(Effect::Put {
                map,
                entry: Entry::of_kind(*kind, key, packed),
                deadline: *deadline,
                before: Before::Value,
            }),
            _ => None,
        }
    }

    /// As an effect on a key that has this entry, at a sequence. Deadlines are logged with their
    /// entries while a copy may not have all of them. `None`: it changes nothing.
    pub(crate) fn into_effect(
        self,
        map: MapId,
        key: &[u8],
        (found, known, seq, teaches): (Option<&Entry>, Option<Key>, u64, bool),
    ) -> Option<Effect> {
        // A table's key is shared with its effects.
        let own = || known.unwrap_or_else(|| Key::from(key));
        let put = |entry, deadline| Effect::Put {
            map,
            entry,
            deadline,
            before: Before::Value,
        };
        let put_row = |kind, key: &Key, row| Effect::Row {
            map,
            key: key.clone(),
            kind,
            row,
        };
        Some(match self {
            Self::None => return None,
            Self::Put { value, deadline } => put(Entry::new(key, &value, 0, 0), deadline),
            Self::Number { number, deadline } => {
                let mut text = itoa::Buffer::new();
                let text = text.format(number).as_bytes();
                put(Entry::new(key, text, 0, 0), deadline)
            }
            Self::Entry { entry, deadline } => put(entry, deadline),
            Self::Packed {
                kind,
                fields,
                removes,
                ..
            } if !fields.is_empty() && !teaches => {
                let own = own();
                let effect = |row: Entry| {
                    let key = own.clone();
                    match removes {
                        false => Effect::Field {
                            map,
                            key,
                            kind,
                            row,
                        },
                        true => Effect::RowDelete {
                            map,
                            key,
                            kind,
                            field: row.key().into(),
                        },
                    }
                };
                one_or_many(fields.into_iter().map(effect))?
            }
            Self::Packed {
                kind,
                packed,
                deadline,
                ..
            } => put(Entry::of_kind(kind, key, &packed), deadline),
            Self::Table {
                kind,
                rows,
                deadline,
            } => {
                let key = own();
                let table = put(Entry::of_table(kind, &key, seq), deadline);
                let rows = rows.into_iter().map(|row| put_row(kind, &key, row));
                Effect::Many(std::iter::once(table).chain(rows).collect())
            }
            Self::Rows { kind, rows } => {
                let key = own();
                let effect = |change: RowChange| match change {
                    RowChange::Put(row) => put_row(kind, &key, row),
                    RowChange::Delete(field) => Effect::RowDelete {
                        map,
                        key: key.clone(),
                        kind,
                        field: Key::from(&*field),
                    },
                    RowChange::Cut(span) => Effect::RowsCut {
                        map,
                        key: key.clone(),
                        kind,
                        span,
                    },
                };
                one_or_many(rows.into_iter().map(effect))?
            }
            Self::Delete => Effect::Delete {
                map,
                key: own(),
                cause: Cause::Command,
            },
            Self::Deadline(deadline) => match found.filter(|_| teaches) {
                // A copy, because the store changes its date and undo needs the former one.
                Some(entry) => put(entry.copy(), deadline),
                None => Effect::Deadline {
                    map,
                    key: own(),
                    deadline,
                },
            },
        })
    }
}

/// These effects as one.
fn one_or_many(mut effects: impl ExactSizeIterator<Item = Effect>) -> Option<Effect> {
    match effects.len() {
        1 => effects.next(),
        _ => Some(Effect::Many(effects.collect())),
    }
}
