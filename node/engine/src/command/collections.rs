//! What commands on collections of several types have in common: procedures on fields, and how
//! arguments are read.

use super::{CommandCall, ErrorText, Parsed, SYNTAX, Shape, is};
use crate::command::glob;
use crate::command::operation::{Action, Footprint, stores};
use crate::command::procedure::{Inputs, Procedure, count};
use crate::command::rows::Rows;
use crate::store::budget::Budget;
use crate::store::collection::{self, CollectionView, Edit, FieldDeadline, UnpackedItems};
use crate::store::run_context::RunContext;
use crate::store::{FoundKey, RowTable};
use crate::value::entry::Entry;
use crate::value::items::packed;
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome, Value};
use bytes::Bytes;
use doyen_placement::MapId;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};

/// What an item of an answer takes besides its bytes.
pub(super) const ITEM_OVERHEAD: usize = 32;

/// What comparisons with a pattern may do in one operation: some milliseconds.
const MATCHING_WORK: usize = 8 << 20;

/// If no more than this part of a table is drawn, fields are drawn one by one.
const DRAWN_PART: usize = 4;

/// A random field is one of this many behind a random place: gaps between places are uneven.
const NEIGHBOURS: usize = 16;

/// Rows that are looked at for one that is not overdue.
const ROWS_LOOKED: usize = 4_000;

/// What a procedure on fields answers and changes.
pub(super) type CollectionDone<'a> = (Option<Outcome>, Edit<'a>);

pub(super) const TOO_LARGE: CollectionDone<'static> = failed(Failure::TooLarge);

pub(super) const fn failed(failure: Failure) -> CollectionDone<'static> {
    (Some(Outcome::Failed(failure)), Edit::None)
}

/// Gives a key a collection of these fields, whatever it holds; deletes it if there are none. →
/// `Int`, how many fields
pub(super) fn store_fields(
    (map, key): (MapId, &[u8]),
    (kind, fields): (Kind, &[u8]),
    rows: &mut Rows<'_>,
) -> Outcome {
    let exists = rows.find(map, key).is_some();
    if fields.is_empty() {
        if exists {
            rows.step(map, key, &Action::Delete);
        }
        return Outcome::Int(0);
    }
    let (cx, unpacked) = (*rows.cx(), UnpackedItems::new());
    let Some(empty) = CollectionView::of(kind, FoundKey::default(), &unpacked, &cx) else {
        return Outcome::Failed(Failure::WrongType);
    };
    let edit = Edit::Set(kind.pairs(fields), FieldDeadline::Never);
    match empty.edited(edit, &cx) {
        (stored, Ok(change)) => {
            rows.replace((map, key), change);
            count(stored)
        }
        (_, Err(failure)) => Outcome::Failed(failure),
    }
}

/// What a procedure does that changes fields.
pub(super) fn writes(inputs: &Inputs) -> Footprint {
    stores(inputs.bytes.first().map_or(&[], |bytes| &bytes[..]))
}

/// How many fields there are. → `Int`
pub(super) fn length<'a>(
    _: &'a Inputs,
    view: CollectionView<'a>,
    _: &RunContext,
) -> CollectionDone<'a> {
    (Some(count(view.len())), Edit::None)
}

/// Whether there is a field. → `Int`
pub(super) fn has<'a>(
    inputs: &'a Inputs,
    view: CollectionView<'a>,
    _: &RunContext,
) -> CollectionDone<'a> {
    let found = view.get(&inputs.bytes[0]);
    (Some(Outcome::Int(i64::from(found.is_some()))), Edit::None)
}

/// Random fields. The numbers: how many, with (1) or without their values, and the seed. A negative
/// number of fields draws a field again and again; a number that is not negative, each field at
/// most once. → `Many`, or `Nil`: the key is absent
pub(super) fn random<'a>(
    inputs: &'a Inputs,
    view: CollectionView<'a>,
    cx: &RunContext,
) -> CollectionDone<'a> {
    let [wanted, with_values, seed] = inputs.numbers[..] else {
        return failed(Failure::NotAnInteger);
    };
    if view.len() == 0 {
        return (Some(Outcome::Nil), Edit::None);
    }
    let (mut drawn, mut bytes) = (Vec::new(), 0);
    let fits = draw(view, wanted, seed, |(field, value)| {
        bytes += field.len() + value.len() + ITEM_OVERHEAD;
        drawn.push(Outcome::Bulk(Value::from(field)));
        if with_values == 1 {
            drawn.push(Outcome::Bulk(Value::from(&*view.shown(value))));
        }
        bytes <= collection::answer_max(cx)
    });
    if fits {
        (Some(Outcome::Many(drawn)), Edit::None)
    } else {
        TOO_LARGE
    }
}

/// Draws fields as [`random`] says. False: one was not taken.
pub(super) fn draw<'a>(
    view: CollectionView<'a>,
    wanted: i64,
    seed: i64,
    mut take: impl FnMut((&'a [u8], &'a [u8])) -> bool,
) -> bool {
    let (length, mut random) = (view.len(), Random(seed.cast_unsigned()));
    let budget = view.budget();
    let mut take =
        |pair: (&'a [u8], &'a [u8])| budget.element_of(pair.0.len() + pair.1.len()) && take(pair);
    let times = usize::try_from(wanted.unsigned_abs()).unwrap_or(usize::MAX);
    let few = times.saturating_mul(DRAWN_PART) < length;
    match view.table() {
        // Others would have to be looked at for each that is drawn.
        Some((table, clock)) if wanted < 0 || few => {
            let mut seen = BTreeSet::new();
            let mut left = times;
            let mut fits = true;
            while left > 0 && fits {
                let Some(row) = random.row(table, clock, budget) else {
                    break;
                };
                if wanted < 0 || seen.insert(row.key()) {
                    fits = take((row.key(), row.value()));
                    left -= 1;
                }
            }
            fits
        }
        _ if times >= length && wanted >= 0 => view.pairs().all(take),
        _ => {
            let mut all: Vec<(&[u8], &[u8])> = view.pairs().collect();
            (0..times).all(|_| {
                let at = random.below(all.len());
                take(if wanted < 0 {
                    all[at]
                } else {
                    all.swap_remove(at)
                })
            })
        }
    }
}

/// Fields from a place on that match a pattern. The numbers: the place, about how many, and with
/// (1) or without their values. → `Keys`
pub(super) fn scan<'a>(
    inputs: &'a Inputs,
    view: CollectionView<'a>,
    _: &RunContext,
) -> CollectionDone<'a> {
    let [cursor, wanted, with_values] = inputs.numbers[..] else {
        return failed(Failure::NotAnInteger);
    };
    let pattern = &inputs.bytes[0];
    let mut work = MATCHING_WORK;
    let mut page = ScanPage::new(cursor, wanted);
    let mut keys = Vec::new();
    for ((field, value), counts) in view.looked_from(page.from()) {
        if let Some((table, _)) = view.table()
            && !page.takes(table.order_of(field))
        {
            let next = page.next;
            return (Some(Outcome::Keys { next, keys }), Edit::None);
        }
        if !counts {
            continue;
        }
        let before = work;
        let matches = glob::Matching::default().run(pattern, field, &mut work);
        view.budget().copy(before - work);
        match matches {
            Some(true) => {
                page.bytes += field.len() + ITEM_OVERHEAD;
                keys.push(Bytes::copy_from_slice(field));
                if with_values == 1 {
                    let value = view.shown(value);
                    page.bytes += value.len();
                    keys.push(Bytes::from(value.into_owned()));
                }
            }
            Some(false) => {}
            None => return failed(Failure::Overloaded),
        }
    }
    (Some(Outcome::Keys { next: 0, keys }), Edit::None)
}

/// A page of a scan of a table. Its cursor is the first 32 bits of an order, as that of SCAN.
struct ScanPage {
    cursor: u64,
    wanted: usize,
    looked: usize,
    bytes: usize,
    /// Where to continue.
    next: u64,
}

impl ScanPage {
    const SHIFT: u32 = 32;
    const FIELDS_MAX: i64 = 10_000;
    const BYTES_MAX: usize = 512 << 10;

    fn new(cursor: i64, wanted: i64) -> Self {
        Self {
            cursor: cursor.cast_unsigned(),
            wanted: wanted.clamp(1, Self::FIELDS_MAX) as usize,
            looked: 0,
            bytes: 0,
            next: 0,
        }
    }

    /// The order from which it reads.
    const fn from(&self) -> u64 {
        self.cursor << Self::SHIFT
    }

    /// Whether a field of this order belongs to it. Fields that share a cursor are in one page.
    const fn takes(&mut self, order: u64) -> bool {
        let place = order >> Self::SHIFT;
        if place >= self.next && (self.looked >= self.wanted || self.bytes >= Self::BYTES_MAX) {
            return false;
        }
        self.looked += 1;
        self.next = place + 1;
        true
    }
}

/// Random numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// A random row. `None`: none was found that is not overdue.
    fn row<'a>(&mut self, table: &'a RowTable, clock: u64, budget: &Budget) -> Option<&'a Entry> {
        if let Some(ranked) = table.ranked() {
            budget.element();
            return ranked.rows_from(self.below(ranked.len()), false).next();
        }
        let skipped = self.below(NEIGHBOURS.min(table.len()));
        let behind = table.rows_from(self.next());
        let around = behind.chain(table.rows_from(0)).take(ROWS_LOOKED);
        let around = around.take_while(|_| budget.element());
        around.filter(|row| !row.overdue(clock)).nth(skipped)
    }
}

/// The arguments from this place on, in one run of bytes.
pub(super) fn rest(c: CommandCall<'_>, from: usize) -> Bytes {
    packed(c.args_from(from))
}

/// A call of a procedure that draws `wanted` fields, with or without their values.
pub(super) fn drawing(procedure: &'static Procedure, wanted: i64, values: bool) -> Action {
    Action::call(procedure, &[wanted, i64::from(values), seed()], Vec::new())
}

/// A seed for [`draw`].
pub(super) fn seed() -> i64 {
    RandomState::new().hash_one(0).cast_signed()
}

/// How many fields the second argument of a command that draws them wants.
pub(super) fn wanted(c: CommandCall<'_>) -> Result<i64, ErrorText> {
    match c.number(2)? {
        i64::MIN => Err(
            "ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807"
                .into(),
        ),
        wanted => Ok(wanted),
    }
}

/// A call of a procedure that scans fields. They are answered with their `values`, unless the
/// option is given that says not to.
pub(super) fn scanning(
    c: CommandCall<'_>,
    procedure: &'static Procedure,
    (mut values, no_values): (bool, Option<&str>),
) -> Parsed {
    let cursor = c.cursor(2)?;
    let (mut wanted, mut pattern) = (10, Bytes::from_static(b"*"));
    let mut at = 3;
    while at < c.args.len() {
        let option = c.args.get(at);
        if no_values.is_some_and(|name| is(option, name)) {
            values = false;
            at += 1;
            continue;
        }
        if at + 1 >= c.args.len() {
            return Err(SYNTAX.into());
        }
        if is(option, "COUNT") {
            wanted = c.number(at + 1)?;
            if wanted < 1 {
                return Err(SYNTAX.into());
            }
        } else if is(option, "MATCH") {
            pattern = c.args.bytes(at + 1);
        } else {
            return Err(SYNTAX.into());
        }
        at += 2;
    }
    let inputs = [cursor.cast_signed(), wanted, i64::from(values)];
    c.shaped(Action::call(procedure, &inputs, [pattern]), Shape::Page)
}
