//! Deadlines of fields in a collection that is one value.
//!
//! ```text
//!   field value field value ...                                     no field expires
//!   80 00   first deadline (8)   field value deadline field ...     some do
//! ```
//! A deadline is a run of bytes (`items.rs`) without the zeros at its end, so a field that never
//! expires has an empty one. The earliest stands in front: an index of deadlines needs no more. No
//! packed form of a type begins with 80 00, which is no length as `items::put` writes it.

use super::deadline;
use super::items::{Items, Pairs, is_same, put};
use std::collections::BTreeMap;

const MARK: [u8; 2] = [0x80, 0x00];
/// What is before the first field: the mark and the earliest deadline.
const HEAD_BYTES: usize = MARK.len() + size_of::<u64>();

/// When fields that are set expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldDeadline {
    Never,
    /// As before.
    Keep,
    /// At this deadline; 0: never.
    At(u64),
}

impl FieldDeadline {
    /// The deadline of a field that had this one before, or none.
    pub(crate) fn after(self, held: impl FnOnce() -> u64) -> u64 {
        match self {
            Self::Never => 0,
            Self::Keep => held(),
            Self::At(deadline) => deadline,
        }
    }
}

/// A field, its value and its deadline.
pub(crate) type DatedField<'a> = (&'a [u8], &'a [u8], u64);

/// What follows the mark, if there is one.
#[inline]
fn dated(packed: &[u8]) -> Option<(u64, &[u8])> {
    let (first, fields) = packed.strip_prefix(&MARK)?.split_first_chunk()?;
    Some((u64::from_le_bytes(*first), fields))
}

/// Whether some of its fields expire.
#[inline]
pub(crate) fn is_dated(packed: &[u8]) -> bool {
    dated(packed).is_some()
}

/// The earliest deadline of its fields; 0: none of them expires.
#[inline]
pub(crate) fn first_due(packed: &[u8]) -> u64 {
    dated(packed).map_or(0, |(first, _)| first)
}

/// Fields with their deadlines, however they are packed. What a peer sent wrong ends them early.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DatedFields<'a> {
    items: Items<'a>,
    dated: bool,
}

impl<'a> DatedFields<'a> {
    pub(crate) fn of(packed: &'a [u8]) -> Self {
        let dated = dated(packed);
        Self {
            items: Items(dated.map_or(packed, |(_, fields)| fields)),
            dated: dated.is_some(),
        }
    }
}

impl<'a> Iterator for DatedFields<'a> {
    type Item = DatedField<'a>;

    #[inline]
    fn next(&mut self) -> Option<DatedField<'a>> {
        let (field, value) = (self.items.next()?, self.items.next()?);
        let deadline = if self.dated {
            number(self.items.next()?)
        } else {
            0
        };
        Some((field, value, deadline))
    }
}

/// A deadline from its bytes.
fn number(bytes: &[u8]) -> u64 {
    let mut whole = [0; size_of::<u64>()];
    let length = bytes.len().min(whole.len());
    whole[..length].copy_from_slice(&bytes[..length]);
    u64::from_le_bytes(whole)
}

/// The deadlines of fields in their order. They do not end.
pub(crate) fn deadlines(packed: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let some = is_dated(packed).then(|| DatedFields::of(packed));
    let some = some.into_iter().flatten().map(|(_, _, deadline)| deadline);
    some.chain(std::iter::repeat(0))
}

/// The fields alone, with their values.
pub(crate) fn undated(packed: &[u8]) -> Vec<u8> {
    let (mut out, form) = (Vec::with_capacity(packed.len()), Pairs::of(&[], true));
    for (field, value, _) in DatedFields::of(packed) {
        form.put(&mut out, field, value);
    }
    out
}

/// These fields in one run of bytes, with deadlines if any of them has one.
fn pack(fields: &[DatedField<'_>], bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes);
    let deadlines = fields.iter().map(|(.., deadline)| *deadline);
    let first = deadlines.filter(|deadline| *deadline != 0).min();
    if let Some(first) = first {
        out.extend(MARK);
        out.extend(first.to_le_bytes());
    }
    for (field, value, deadline) in fields {
        put(&mut out, field);
        put(&mut out, value);
        if first.is_some() {
            put_deadline(&mut out, *deadline);
        }
    }
    out
}

fn put_deadline(out: &mut Vec<u8>, deadline: u64) {
    let zeros = deadline.leading_zeros() / u8::BITS;
    let length = size_of::<u64>() - zeros as usize;
    put(out, &deadline.to_le_bytes()[..length]);
}

/// The same with one field, where some expired before and some do afterwards: what stands before
/// and behind it is copied in one go. `None`: otherwise.
fn with_one(
    packed: &[u8],
    (field, value): (&[u8], &[u8]),
    timing: FieldDeadline,
) -> Option<(Vec<u8>, usize)> {
    let (_, all) = dated(packed)?;
    let mut left = DatedFields::of(packed);
    let (mut found, mut whole, mut first) = (None, 0, None::<u64>);
    while let Some((name, _, at)) = left.next() {
        let begin = std::mem::replace(&mut whole, all.len() - left.items.0.len());
        if found.is_none() && is_same(name, field) {
            found = Some((begin..whole, at));
        } else if at != 0 {
            first = Some(first.map_or(at, |first| first.min(at)));
        }
    }
    let added = usize::from(found.is_none());
    let (span, held) = found.unwrap_or((whole..whole, 0));
    let deadline = timing.after(|| held);
    if deadline != 0 {
        first = Some(first.map_or(deadline, |first| first.min(deadline)));
    }
    let first = first?;
    let more = HEAD_BYTES + size_of::<DatedField<'_>>();
    let mut out = Vec::with_capacity(packed.len() + field.len() + value.len() + more);
    out.extend(MARK);
    out.extend(first.to_le_bytes());
    out.extend_from_slice(&all[..span.start]);
    put(&mut out, field);
    put(&mut out, value);
    put_deadline(&mut out, deadline);
    out.extend_from_slice(&all[span.end..whole]);
    Some((out, added))
}

/// The same with these fields, and how many of them are new. If a field is given twice, the later
/// value counts.
pub(crate) fn with(packed: &[u8], given: Pairs<'_>, timing: FieldDeadline) -> (Vec<u8>, usize) {
    if given.has_at_most(1)
        && let Some(pair) = { given }.next()
        && let Some(changed) = with_one(packed, pair, timing)
    {
        return changed;
    }
    let mut all: Vec<DatedField<'_>> = DatedFields::of(packed).collect();
    let before = all.len();
    let more = given.bytes() + HEAD_BYTES + size_of::<DatedField<'_>>();
    let mut set = |place: Option<usize>, (field, value)| match place {
        Some(at) => {
            let held = all[at].2;
            (all[at].1, all[at].2) = (value, timing.after(|| held));
            at
        }
        None => {
            all.push((field, value, timing.after(|| 0)));
            all.len() - 1
        }
    };
    let held = DatedFields::of(packed).enumerate();
    let mut places: BTreeMap<&[u8], usize> = held.map(|(at, (field, ..))| (field, at)).collect();
    for (field, value) in given {
        let at = set(places.get(field).copied(), (field, value));
        places.insert(field, at);
    }
    (pack(&all, packed.len() + more), all.len() - before)
}

/// The same with these deadlines of fields that are there.
pub(crate) fn with_deadlines(packed: &[u8], dates: &BTreeMap<&[u8], u64>) -> Vec<u8> {
    if dates.len() == 1
        && let Some((field, at)) = dates.first_key_value()
        && let Some((_, value, _)) = DatedFields::of(packed).find(|(name, ..)| is_same(name, field))
        && let Some((after, _)) = with_one(packed, (field, value), FieldDeadline::At(*at))
    {
        return after;
    }
    let fields = DatedFields::of(packed).map(|(field, value, held)| {
        let deadline = dates.get(field).copied().unwrap_or(held);
        (field, value, deadline)
    });
    let more = HEAD_BYTES + (1 + size_of::<u64>()) * dates.len();
    pack(&fields.collect::<Vec<_>>(), packed.len() + more)
}

/// The same without fields that are no longer `kept`, and how many there were.
pub(crate) fn only(packed: &[u8], kept: impl Fn(&DatedField<'_>) -> bool) -> (Vec<u8>, usize) {
    let mut removed = 0;
    let left = DatedFields::of(packed).filter(|field| {
        let is_kept = kept(field);
        removed += usize::from(!is_kept);
        is_kept
    });
    let left: Vec<_> = left.collect();
    (pack(&left, packed.len()), removed)
}

/// The same without fields that are overdue, and how many there were.
pub(crate) fn without_overdue(packed: &[u8], clock: u64) -> (Vec<u8>, usize) {
    only(packed, |(.., at)| !deadline::is_over(*at, clock))
}

/// The same deadlines on a clock that is `ahead_ms` ahead.
pub(crate) fn moved(packed: &[u8], ahead_ms: u64) -> Vec<u8> {
    let fields = DatedFields::of(packed);
    let fields = fields.map(|(field, value, at)| (field, value, deadline::moved(at, ahead_ms)));
    let fields: Vec<_> = fields.collect();
    pack(&fields, packed.len() + fields.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Fields with their deadlines, beside a plain map.
    type Model = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

    #[derive(Debug, Clone)]
    enum Change {
        Set(Vec<(Vec<u8>, Vec<u8>)>, FieldDeadline),
        Date(BTreeMap<Vec<u8>, u64>),
        Remove(Vec<u8>),
        Purge(u64),
        Move(u64),
    }

    fn at() -> impl Strategy<Value = u64> {
        prop_oneof![
            Just(0),
            (1_u64..40).prop_map(|ms| deadline::new(ms, ms)),
            (1_u64 << 40)..(1 << 60)
        ]
    }

    fn changes() -> impl Strategy<Value = Change> {
        let field = || prop::collection::vec(0_u8..3, 0..3);
        let value = || prop::collection::vec(any::<u8>(), 0..140);
        let timing = prop_oneof![
            Just(FieldDeadline::Never),
            Just(FieldDeadline::Keep),
            at().prop_map(FieldDeadline::At),
        ];
        prop_oneof![
            3 => (prop::collection::vec((field(), value()), 1..4), timing)
                .prop_map(|(given, timing)| Change::Set(given, timing)),
            3 => prop::collection::btree_map(field(), at(), 0..4).prop_map(Change::Date),
            1 => field().prop_map(Change::Remove),
            1 => (0_u64..50).prop_map(Change::Purge),
            1 => (0_u64..9).prop_map(Change::Move),
        ]
    }

    fn check(packed: &[u8], model: &Model) {
        let all: Vec<_> = DatedFields::of(packed).collect();
        assert_eq!(all.len(), model.len(), "no field stands twice");
        for (field, value, at) in &all {
            assert_eq!(model.get(*field), Some(&(value.to_vec(), *at)));
        }
        let dates = all.iter().map(|(.., at)| *at);
        assert!(deadlines(packed).take(all.len()).eq(dates.clone()));
        let first = dates.filter(|at| *at != 0).min().unwrap_or(0);
        assert_eq!((first_due(packed), is_dated(packed)), (first, first != 0));
        let alone = undated(packed);
        assert!(Pairs::of(&alone, true).eq(all.iter().map(|(field, value, _)| (*field, *value))));
        assert_eq!(first == 0, alone == packed);
    }

    proptest! {
        #[test]
        fn fields_with_deadlines_are_changed_as_a_map_is(
            all in prop::collection::vec(changes(), 0..20)
        ) {
            let (mut packed, mut model) = (Vec::new(), Model::new());
            for change in all {
                let before = model.len();
                let (after, changed) = match change {
                    Change::Set(given, timing) => {
                        let mut items = Vec::new();
                        for (field, value) in &given {
                            put(&mut items, field);
                            put(&mut items, value);
                        }
                        let (after, added) = with(&packed, Pairs::of(&items, true), timing);
                        // A copy gets fields one by one, each with its deadline.
                        let mut one_by_one = packed.clone();
                        for (field, value) in given {
                            let held = model.get(&field).map_or(0, |held| held.1);
                            let at = timing.after(|| held);
                            let mut item = Vec::new();
                            put(&mut item, &field);
                            put(&mut item, &value);
                            let one = Pairs::of(&item, true);
                            one_by_one = with(&one_by_one, one, FieldDeadline::At(at)).0;
                            model.insert(field, (value, at));
                        }
                        prop_assert_eq!(&one_by_one, &after);
                        prop_assert_eq!(added, model.len() - before);
                        (after, added)
                    }
                    Change::Date(dates) => {
                        let given = dates.iter().map(|(field, at)| (&field[..], *at)).collect();
                        for (field, at) in &dates {
                            model.entry(field.clone()).and_modify(|held| held.1 = *at);
                        }
                        (with_deadlines(&packed, &given), 0)
                    }
                    Change::Remove(field) => {
                        model.remove(&field);
                        only(&packed, |(held, ..)| **held != field[..])
                    }
                    Change::Purge(clock) => {
                        model.retain(|_, (_, at)| !deadline::is_over(*at, clock));
                        without_overdue(&packed, clock)
                    }
                    Change::Move(ahead) => {
                        model.values_mut().for_each(|(_, at)| *at = deadline::moved(*at, ahead));
                        (moved(&packed, ahead), 0)
                    }
                };
                prop_assert_eq!(changed, model.len().abs_diff(before));
                packed = after;
                check(&packed, &model);
            }
        }

        #[test]
        fn any_bytes_are_read_and_become_right_by_the_next_change(
            tail in prop::collection::vec(any::<u8>(), 0..90), marked in any::<bool>()
        ) {
            let bytes = if marked { [&MARK[..], &tail].concat() } else { tail };
            prop_assert!(DatedFields::of(&bytes).count() <= bytes.len());
            for clock in [0, 5, u64::MAX] {
                let (after, _) = without_overdue(&bytes, clock);
                prop_assert!(!deadline::is_over(first_due(&after), clock));
                prop_assert_eq!(without_overdue(&after, clock), (after, 0));
            }
        }
    }
}
