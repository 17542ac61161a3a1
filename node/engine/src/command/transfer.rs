//! The steps by which a key's value is given to a key of another partition, or to one whose value
//! is too large for one record: read at the source, stored at the target, and, if it was a
//! renaming, deleted at the source if nothing has changed it. The caller takes one step after the
//! other.
//!
//! ```text
//!   read ──> store                                            one record, so it is seen whole
//!   read ──> begin ──> read ──> add ──> .. ──> read ──> end   a table that is too large for one
//!     ▲        └ unfinished until the end: a key that is absent for all others, and that expires
//!     │          by itself if its caller is gone
//!     └ each answers the version of the source: if it changes, the caller begins again
//! ```
//! What travels is an entry with its rows and deadlines, and no command that made it, so the steps
//! are the same for each kind of value.

use crate::command::operation::{Action, stores};
use crate::command::procedure::{Inputs, JOINT, Joint, WRITES, values};
use crate::command::rows::{ROW_OVERHEAD, Rows, fits};
use crate::store::change::KeyChange;
use crate::store::collection::collection_of;
use crate::store::run_context::{self, RunContext};
use crate::value::dated::{DatedField, DatedFields};
use crate::value::deadline;
use crate::value::entry::Entry;
use crate::value::items::{Items, put};
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome, Value};
use bytes::Bytes;
use doyen_placement::MapId;

/// The first of these numbers.
const NUMBER: u16 = 50;
/// About how many bytes of a large table travel at once.
const PAGE_BYTES: usize = 1 << 20;
/// The runs of bytes of each row.
const PARTS: usize = 4;
/// An unfinished table expires after so long without another part.
const UNFINISHED_MS: u64 = 30_000;

pub(crate) static JOINTS: &[&Joint] = &[&READ, &MOVED, &COPIED, &REMOVE];

/// What a key holds: all of it, or the next part of a large table after a row. Numbers: whether a
/// row is given, and how long the key is to which it goes. → `Nil`, or `Many`: version, 1 if more
/// follows, form, deadline (time left, wall time), content
static READ: Joint = Joint {
    number: NUMBER,
    name: "read whole",
    level: 0,
    numbers: 2,
    others: |runs| (runs == 1).then_some((0..0, 1)),
    footprint: values,
    run: |inputs, (map, key), rows| {
        let Some(entry) = rows.find(map, key) else {
            return Outcome::Nil;
        };
        let after = (inputs.numbers[0] != 0).then(|| &*inputs.bytes[0]);
        let longest = key
            .len()
            .max(usize::try_from(inputs.numbers[1]).unwrap_or(0));
        let most = rows.value_bytes_max();
        let cx = *rows.cx();
        let found = rows.held(map, key);
        let (table, more, content) = match found.table {
            Some(table) => {
                let whole = after.is_none() && fits(found, longest, most);
                let most = if whole {
                    usize::MAX
                } else {
                    PAGE_BYTES.min(most / 4)
                };
                let (mut content, mut taken, mut more) = (Vec::new(), 0, false);
                for row in table
                    .rows_after(after)
                    .take_while(|row| cx.budget.element_of(row.len()))
                {
                    if row.overdue(cx.clock) || table.hides(row) {
                        continue;
                    }
                    if taken > 0 && taken + row.len() > most {
                        more = true;
                        break;
                    }
                    taken += row.len() + longest + ROW_OVERHEAD;
                    put_row(&mut content, (row.key(), row.value(), row.deadline()), &cx);
                }
                (true, more, Value::from(&content[..]))
            }
            // Its deadlines are by the clock of this partition.
            None if entry.fields_due() != 0 => {
                let mut content = Vec::new();
                for (field, value, at) in DatedFields::of(entry.value()) {
                    put_row(&mut content, (field, value, at), &cx);
                }
                (true, false, Value::from(&content[..]))
            }
            None => (false, false, Value::of(&entry)),
        };
        let form = ContentForm {
            kind: entry.kind(),
            table,
        };
        let version = run_context::version(found.entry, &cx).unwrap_or(0);
        let [left, wall] = dated(entry.deadline(), &cx);
        Outcome::Many(vec![
            Outcome::Int(version),
            Outcome::Int(i64::from(more)),
            Outcome::Int(form.number()),
            Outcome::Int(left),
            Outcome::Int(wall),
            Outcome::Bulk(content),
        ])
    },
    ..JOINT
};

/// Gives a key what was read of a key that is renamed. Numbers: stage, condition, the number that
/// it compares, form, deadline (time left, wall time). → `Int`, the key's version, or the birth of
/// its unfinished table; `Nil` if the condition is not met
static MOVED: Joint = Joint {
    number: NUMBER + 1,
    name: "store renamed",
    event: "rename",
    ..STORE
};

/// The same of a key that is copied.
static COPIED: Joint = Joint {
    number: NUMBER + 2,
    name: "store copied",
    event: "copy",
    ..STORE
};

const STORE: Joint = Joint {
    level: 0,
    numbers: 6,
    others: |runs| (runs == 1).then_some((0..0, 1)),
    footprint: |inputs| stores(&inputs.bytes[0]),
    run: store,
    ..JOINT
};

/// Deletes a key that was renamed, if it has this version. → `Int` 1 or 0; `Nil`: it is absent
static REMOVE: Joint = Joint {
    number: NUMBER + 3,
    name: "remove renamed",
    event: "rename",
    level: 0,
    numbers: 1,
    footprint: |_| WRITES,
    run: |inputs, (map, key), rows| {
        if rows.find(map, key).is_none() {
            return Outcome::Nil;
        }
        let cx = *rows.cx();
        if run_context::version(rows.held(map, key).entry, &cx) != Some(inputs.numbers[0]) {
            return Outcome::Int(0);
        }
        rows.step(map, key, &Action::Delete)
    },
    ..JOINT
};

/// How a value lies in its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ContentForm {
    kind: Kind,
    /// As rows: field, value, and two numbers for its deadline, or empty ones. If not, as it is.
    table: bool,
}

impl ContentForm {
    /// Its number in a step.
    fn number(self) -> i64 {
        2 * i64::from(self.kind.number()) + i64::from(self.table)
    }

    fn of_number(number: i64) -> Option<Self> {
        let kind = Kind::of_number(u8::try_from(number / 2).ok()?)?;
        let table = number % 2 == 1;
        let known = kind.has_rows() || !table;
        known.then_some(Self { kind, table })
    }
}

/// Which part of a value is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreStage {
    Whole,
    Begin,
    Add,
    End,
}

impl StoreStage {
    const fn of_number(number: i64) -> Option<Self> {
        Some(match number {
            0 => Self::Whole,
            1 => Self::Begin,
            2 => Self::Add,
            3 => Self::End,
            _ => return None,
        })
    }
}

/// What the target must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Must {
    /// Anything.
    Be,
    /// Nothing.
    BeAbsent,
    /// What an earlier step stored.
    BeOwn,
    /// Nothing, or what an earlier step stored.
    BeAbsentOrOwn,
}

impl Must {
    const fn of_number(number: i64) -> Option<Self> {
        Some(match number {
            0 => Self::Be,
            1 => Self::BeAbsent,
            2 => Self::BeOwn,
            3 => Self::BeAbsentOrOwn,
            _ => return None,
        })
    }

    fn is_met(self, found: Option<i64>, own: i64) -> bool {
        match self {
            Self::Be => true,
            Self::BeAbsent => found.is_none(),
            Self::BeOwn => found == Some(own),
            Self::BeAbsentOrOwn => found.is_none_or(|found| found == own),
        }
    }
}

fn store(inputs: &Inputs, (map, key): (MapId, &[u8]), rows: &mut Rows<'_>) -> Outcome {
    let [stage, must, own, form, left, wall] = inputs.numbers[..] else {
        return Outcome::Nil;
    };
    let known = (
        StoreStage::of_number(stage),
        Must::of_number(must),
        ContentForm::of_number(form),
    );
    let (Some(stage), Some(must), Some(form)) = known else {
        return Outcome::Nil;
    };
    let cx = *rows.cx();
    let content = &inputs.bytes[0];
    let kind = form.kind;
    let parts = if form.table {
        Items(content).count() / PARTS
    } else {
        1
    };
    if content.len() + parts * (key.len() + ROW_OVERHEAD) > 2 * rows.value_bytes_max() {
        return Outcome::Failed(Failure::TooLarge);
    }
    let found = rows.find(map, key);
    let found = found.and_then(|_| run_context::version(rows.held(map, key).entry, &cx));
    let deadline = dated_at([left, wall], &cx);
    match (stage, form.table) {
        (StoreStage::Whole | StoreStage::Begin, _) if !must.is_met(found, own) => {
            return Outcome::Nil;
        }
        (StoreStage::Whole, false) => {
            let change = KeyChange::of_value(kind, content.clone(), deadline);
            rows.replace((map, key), change);
        }
        (StoreStage::Whole, true) => {
            let rows_of = rows_in(content, &cx).collect();
            let change = collection_of(kind, rows_of, deadline, &cx);
            rows.replace((map, key), change);
        }
        (_, false) => return Outcome::Nil,
        (StoreStage::Begin, true) => {
            let until = cx.after(UNFINISHED_MS);
            let born = rows.begin_table((map, key), (kind, until), rows_in(content, &cx));
            return Outcome::Int(born.cast_signed());
        }
        (StoreStage::Add | StoreStage::End, true) => {
            let begun = |entry: &&Entry| {
                entry.is_unfinished()
                    && entry.kind() == kind
                    && entry.born() == own.cast_unsigned()
                    && !entry.overdue(cx.clock)
            };
            if rows.held(map, key).entry.filter(begun).is_none() {
                return Outcome::Nil;
            }
            let ends = stage == StoreStage::End;
            let deadline = if ends {
                deadline
            } else {
                cx.after(UNFINISHED_MS)
            };
            let more = rows_in(content, &cx);
            let table = (kind, own.cast_unsigned());
            rows.add_to_table((map, key), table, (ends, deadline), more);
            if !ends {
                return Outcome::Int(own);
            }
        }
    }
    run_context::version(rows.held(map, key).entry, &cx).map_or(Outcome::Nil, Outcome::Int)
}

/// Appends a row as it travels.
fn put_row(content: &mut Vec<u8>, (field, value, at): DatedField<'_>, cx: &RunContext) {
    put(content, field);
    put(content, value);
    let [left, wall] = dated(at, cx).map(i64::to_le_bytes);
    put(content, if at == 0 { &[] } else { &left });
    put(content, if at == 0 { &[] } else { &wall });
}

/// A deadline: the time that is left, and the wall time. Both are 0 if there is none.
fn dated(deadline: u64, cx: &RunContext) -> [i64; 2] {
    match deadline {
        0 => [0, 0],
        at => [
            deadline::clock(at).saturating_sub(cx.clock),
            cx.unix_ms_of(at),
        ]
        .map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)),
    }
}

/// The same deadline on the clock of this partition.
fn dated_at([left, wall]: [i64; 2], cx: &RunContext) -> u64 {
    if wall == 0 {
        return 0;
    }
    let [left, wall] = [left, wall].map(|ms| u64::try_from(ms).unwrap_or(0));
    deadline::new(cx.clock.saturating_add(left), wall)
}

/// The rows of a table's content.
fn rows_in<'a>(content: &'a [u8], cx: &'a RunContext) -> impl Iterator<Item = Entry> + 'a {
    let mut items = Items(content);
    std::iter::from_fn(move || {
        let (field, value) = (items.next()?, items.next()?);
        let mut number = || items.next()?.first_chunk().copied().map(i64::from_le_bytes);
        let [left, wall] = [number(), number()].map(|n| n.unwrap_or(0));
        Some(Entry::of_row(field, value, dated_at([left, wall], cx)))
    })
}

/// A command that gives a key's value to another key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// The map of the other key, and the key.
    pub to: (MapId, Bytes),
    /// Whether the first key is deleted then.
    pub renames: bool,
    /// Whether it is done only if the other key is absent.
    pub only_new: bool,
}

/// A step of a [`Transfer`].
#[derive(Debug, Clone, PartialEq)]
pub struct ContentRead {
    /// The version of the source.
    pub version: i64,
    /// Whether more of it follows.
    pub more: bool,
    form: i64,
    deadline: [i64; 2],
    content: Bytes,
}

impl ContentRead {
    /// Reads a key, or what follows a row of it. It is to be stored at a key of at most this
    /// length. → [`ContentRead::of`], or `Nil` if it is absent
    pub(super) fn read(after: Option<Bytes>, longest: usize) -> Action {
        let longest = i64::try_from(longest).unwrap_or(i64::MAX);
        let numbers = [i64::from(after.is_some()), longest];
        Action::call(&READ, &numbers, [after.unwrap_or_default()])
    }

    /// What [`Transfer::read`] answered. `None`: that is something else.
    #[must_use]
    pub fn of(outcome: &Outcome) -> Option<Self> {
        let Outcome::Many(parts) = outcome else {
            return None;
        };
        let [
            Outcome::Int(version),
            Outcome::Int(more),
            Outcome::Int(form),
            Outcome::Int(left),
            Outcome::Int(wall),
            Outcome::Bulk(content),
        ] = &parts[..]
        else {
            return None;
        };
        Some(Self {
            version: *version,
            more: *more != 0,
            form: *form,
            deadline: [*left, *wall],
            content: Bytes::copy_from_slice(content),
        })
    }

    /// Bytes of its content.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.content.len()
    }

    /// What the key holds.
    pub(super) fn kind(&self) -> Option<Kind> {
        ContentForm::of_number(self.form).map(|form| form.kind)
    }

    /// Appends the fields of a collection of this kind as commands give them. Returns their number.
    pub(super) fn unpack(&self, kind: Kind, out: &mut Vec<u8>) -> usize {
        let table = ContentForm::of_number(self.form).is_some_and(|form| form.table);
        let Some(collection) = kind.collection().filter(|_| !table) else {
            let (mut items, form) = (Items(&self.content), kind.pairs(&[]));
            let mut count = 0;
            while let (Some(field), Some(value)) = (items.next(), items.next()) {
                form.put(out, field, value);
                // Its deadline.
                items.by_ref().take(PARTS - 2).for_each(drop);
                count += 1;
            }
            return count;
        };
        out.extend_from_slice(&collection.packing.items(&self.content));
        collection.packing.len(&self.content)
    }

    /// The last row that it has.
    #[must_use]
    pub fn last(&self) -> Option<Bytes> {
        let mut rows = Items(&self.content).step_by(PARTS);
        let last = std::iter::from_fn(|| rows.next()).last();
        last.map(Bytes::copy_from_slice)
    }
}

impl Transfer {
    /// Reads the first key, or what follows a row of it. → [`ContentRead::of`], or `Nil` if it is
    /// absent
    #[must_use]
    pub fn read(&self, after: Option<Bytes>) -> Action {
        ContentRead::read(after, self.to.1.len())
    }

    /// Gives the other key what was read. `begun`: what the part before it answered. `own`: the
    /// version that an earlier try stored. → `Int`: its version, or what the next part is given as
    /// `begun`. `Nil`: it holds something else
    #[must_use]
    pub fn store(&self, read: &ContentRead, begun: Option<i64>, own: Option<i64>) -> Action {
        let joint = if self.renames { &MOVED } else { &COPIED };
        let stage = match (begun, read.more) {
            (None, false) => StoreStage::Whole,
            (None, true) => StoreStage::Begin,
            (Some(_), true) => StoreStage::Add,
            (Some(_), false) => StoreStage::End,
        };
        let (must, version) = match (begun, own) {
            (Some(begun), _) => (Must::BeOwn, begun),
            (None, _) if !self.only_new => (Must::Be, 0),
            (None, None) => (Must::BeAbsent, 0),
            (None, Some(own)) => (Must::BeAbsentOrOwn, own),
        };
        let [left, wall] = read.deadline;
        let numbers = [stage as i64, must as i64, version, read.form, left, wall];
        Action::call(joint, &numbers, [read.content.clone()])
    }

    /// Deletes the first key if it has this version. → `Int` 1 or 0, or `Nil` if it is absent
    #[must_use]
    pub fn remove(version: i64) -> Action {
        Action::call(&REMOVE, &[version], Vec::new())
    }
}
