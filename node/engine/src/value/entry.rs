//! A stored key with its value, in one allocation.
//!
//! ```text
//!   ThinArc ─> count | mark and version, deadline, large | length | key length, key, value
//!                                                  └─> the value, if it is not small
//! ```
//!
//! Most of the cost of a small key is pointers. With key, value and their counts apart, and version
//! and deadline in the tree, a key of 14 bytes and a value of 100 took 266 bytes. This layout takes
//! 182. Store, log and undo records share entries.

use super::dated;
use super::deadline;
use crate::value::kind::Kind;
use std::cell::RefCell;
use std::fmt;
use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};
use triomphe::{Arc, ThinArc};

/// A key by itself, for a deletion or a place in a scan.
pub(crate) type Key = std::sync::Arc<[u8]>;

/// The work of an entry that is in no cache, in handled bytes.
pub(crate) const ENTRY_WORK: usize = 1024;
/// The largest value that is stored beside its key. A larger one is copied in one go, which needs
/// an allocation of its own.
const INLINE_MAX: usize = 512;
/// Keys of this length or more have their length in four more bytes.
const LONG_KEY: u8 = u8::MAX;

/// Whether the key was used since eviction last looked: a bit of the version, which is a count and
/// never so high.
const MARK: u64 = 1 << 63;
/// Whether the value is a collection: another such bit. So a string takes nothing for its kind.
const COLLECTION: u64 = 1 << 62;
/// Whether that collection is a table: its fields are rows of their own (see `store/fields.rs`).
const TABLE: u64 = 1 << 61;
/// Which collection it is, in three more bits: the number of its kind, from 1 on. (The two bits
/// between are those of rows in chunks, see `wire/frame.rs`.)
const KIND_SHIFT: u32 = 56;
const KIND: u64 = 0b111 << KIND_SHIFT;
/// All that a version says of a value's kind.
const KINDS: u64 = COLLECTION | TABLE | KIND;

/// What a version says of a value of this kind.
fn bits_of(kind: Kind) -> u64 {
    match u64::from(kind.number()).checked_sub(1) {
        None => 0,
        Some(number) => COLLECTION | (number << KIND_SHIFT),
    }
}

/// The kind that a version says. `None`: this program does not know it.
pub(crate) fn kind_of_stamp(stamp: u64) -> Option<Kind> {
    let number = ((stamp & KIND) >> KIND_SHIFT) as u8;
    match stamp & COLLECTION {
        0 if number == 0 => Some(Kind::String),
        0 => None,
        _ => Kind::of_number(number + 1),
    }
}

/// Whether a table is unfinished: a bit of its birth, which is a sequence and never so high.
const UNFINISHED: u64 = 1 << 63;

/// The largest entry that is recycled, and how many are kept: entries that a pass writes are given
/// up after it.
const RECYCLED_BYTES_MAX: usize = INLINE_MAX + 16;
const SPARE_MAX: usize = 1024;

/// What an entry takes besides its key and value: counts, version, deadline, the pointer to a large
/// value, lengths.
const HEAD_BYTES: usize = size_of::<EntryHead>() + 2 * size_of::<usize>();
/// What a value with an allocation of its own takes besides its bytes: counts and length.
const VALUE_HEAD_BYTES: usize = 2 * size_of::<usize>();

thread_local! {
    /// Entries that were given up, for reuse of their memory.
    static SPARE: RefCell<SpareEntries> = const { RefCell::new(SpareEntries::NONE) };
}

/// Entries that are not used, by the length of their bytes: runs of a list have many lengths in
/// turn.
struct SpareEntries {
    by_length: Vec<Vec<Entry>>,
    count: usize,
}

impl SpareEntries {
    const NONE: Self = Self {
        by_length: Vec::new(),
        count: 0,
    };

    fn push(&mut self, entry: Entry) {
        if self.count == SPARE_MAX {
            return;
        }
        if self.by_length.is_empty() {
            self.by_length.resize_with(RECYCLED_BYTES_MAX + 1, Vec::new);
        }
        if let Some(same) = self.by_length.get_mut(entry.0.slice.len()) {
            same.push(entry);
            self.count += 1;
        }
    }

    fn pop(&mut self, length: usize) -> Option<Entry> {
        let entry = self.by_length.get_mut(length).and_then(Vec::pop);
        if entry.is_some() {
            self.count -= 1;
        } else if self.count == SPARE_MAX {
            // Entries of these lengths are not needed any more.
            *self = Self::NONE;
        }
        entry
    }
}

/// A key with its value.
#[derive(Clone)]
pub(crate) struct Entry(ThinArc<EntryHead, u8>);

/// Atomic because values go to other threads. Only the store that holds the entry changes these.
struct EntryHead {
    version: AtomicU64,
    deadline: AtomicU64,
    large: Option<ThinArc<(), u8>>,
}

impl Entry {
    /// An entry of a string. Key and value are copied. `deadline` is as `deadline` makes it; 0 is
    /// never. `version` is the sequence of the write. The entry is marked as used.
    pub(crate) fn new(key: &[u8], value: &[u8], deadline: u64, version: u64) -> Self {
        Self::of_stamp(key, value, deadline, version)
    }

    #[inline]
    fn head(&self) -> &EntryHead {
        &self.0.header.header
    }

    /// Its value, if that is stored apart.
    #[inline]
    fn large(&self) -> Option<&ThinArc<(), u8>> {
        self.head().large.as_ref()
    }

    /// An entry of a string or a small collection. Its deadline and version are set when it is
    /// applied.
    pub(crate) fn of_kind(kind: Kind, key: &[u8], value: &[u8]) -> Self {
        Self::of_stamp(key, value, 0, bits_of(kind))
    }

    /// The entry of a collection that is a table. `born` is the sequence that made it one.
    pub(crate) fn of_table(kind: Kind, key: &[u8], born: u64) -> Self {
        Self::of_stamp(key, &born.to_le_bytes(), 0, bits_of(kind) | TABLE)
    }

    /// The same with its value: its birth, and the cuts of its rows.
    pub(crate) fn of_table_value(kind: Kind, key: &[u8], value: &[u8]) -> Self {
        Self::of_stamp(key, value, 0, bits_of(kind) | TABLE)
    }

    /// The same of a table that another key's value is being given to, part by part. Until it is
    /// finished, commands do not see it.
    pub(crate) fn of_unfinished(kind: Kind, key: &[u8], born: u64) -> Self {
        Self::of_table(kind, key, born | UNFINISHED)
    }

    /// The row of a field. Its version is set when it is applied.
    pub(crate) fn of_row(field: &[u8], value: &[u8], deadline: u64) -> Self {
        Self::of_stamp(field, value, deadline, 0)
    }

    /// The same with the version and the kind of another entry (see `stamp`).
    pub(crate) fn of_stamp(key: &[u8], value: &[u8], deadline: u64, stamp: u64) -> Self {
        let long = (key.len() as u32).to_le_bytes();
        let long: &[u8] = if key.len() < usize::from(LONG_KEY) {
            &[]
        } else {
            &long
        };
        let large = (value.len() > INLINE_MAX).then(|| ThinArc::from_header_and_slice((), value));
        let inline: &[u8] = if large.is_some() { &[] } else { value };
        let head = EntryHead {
            version: AtomicU64::new(stamp | MARK),
            deadline: AtomicU64::new(deadline),
            large,
        };
        let length = 1 + long.len() + key.len() + inline.len();
        let spare = SPARE.with_borrow_mut(|spare| spare.pop(length));
        let (mut entry, head) = match spare {
            Some(spare) => (spare.0, Some(head)),
            None => (
                ThinArc::from_header_and_iter(head, iter::repeat_n(0, length)),
                None,
            ),
        };
        entry.with_arc_mut(|entry| {
            // The entry is not shared yet, so this is never absent.
            let Some(entry) = Arc::get_mut(entry) else {
                return;
            };
            if let Some(head) = head {
                *entry.header_mut() = head;
            }
            let mut rest = entry.slice_mut();
            rest[0] = if long.is_empty() {
                key.len() as u8
            } else {
                LONG_KEY
            };
            rest = &mut rest[1..];
            for part in [long, key, inline] {
                let (to, after) = rest.split_at_mut(part.len());
                to.copy_from_slice(part);
                rest = after;
            }
        });
        Self(entry)
    }

    /// The range of its key.
    #[inline]
    fn bounds(&self) -> (usize, usize) {
        let bytes = &self.0.slice;
        match bytes[0] {
            LONG_KEY => (
                5,
                5 + u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]) as usize,
            ),
            length => (1, 1 + usize::from(length)),
        }
    }

    /// Its key.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        let (begin, end) = self.bounds();
        &self.0.slice[begin..end]
    }

    /// Its value.
    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        match self.large() {
            Some(large) => &large.slice,
            None => &self.0.slice[self.bounds().1..],
        }
    }

    /// Its address. Taking it loads the pointer, but not the entry.
    pub(crate) fn address(&self) -> u64 {
        ThinArc::as_ptr(&self.0) as usize as u64
    }

    /// Reads its head, its key and its end, so that they are in a cache.
    pub(crate) fn touch(&self) -> u64 {
        let bytes = &self.0.slice;
        let at = |i: usize| bytes.get(i).map_or(0, |b| u64::from(*b));
        self.version() ^ at(usize::from(bytes[0])) ^ at(bytes.len() - 1)
    }

    /// Reads the beginning of its value if that is stored apart.
    pub(crate) fn touch_value(&self) -> u64 {
        self.large()
            .and_then(|large| large.slice.first())
            .map_or(0, |b| u64::from(*b))
    }

    /// Gives the entry up. If it is not shared, the next entry of its size reuses its memory, which
    /// is in a cache because it was just used. Memory from the allocator would not be.
    pub(crate) fn recycle(mut self) {
        let length = self.0.slice.len();
        if length > RECYCLED_BYTES_MAX || self.is_shared() {
            return;
        }
        self.0.with_arc_mut(|entry| {
            if let Some(entry) = Arc::get_mut(entry) {
                entry.header_mut().large = None;
            }
        });
        SPARE.with_borrow_mut(|spare| spare.push(self));
    }

    /// Frees the recycled entries that were not reused.
    pub(crate) fn forget_spare() {
        SPARE.with_borrow_mut(|spare| *spare = SpareEntries::NONE);
    }

    /// Its address and how many bytes it takes there, without a value that is stored apart.
    pub(crate) fn allocation(&self) -> (u64, usize) {
        (self.address(), HEAD_BYTES + self.0.slice.len())
    }

    /// The same for a value that is stored apart.
    pub(crate) fn value_allocation(&self) -> Option<(u64, usize)> {
        self.large().map(LargeValue::allocation_of)
    }

    /// Whether the entry or its value is shared outside of a store, which `holds` it this many
    /// times.
    pub(crate) fn is_held_beside(&self, holds: usize) -> bool {
        let value = self
            .large()
            .is_some_and(|large| ThinArc::strong_count(large) > 1);
        value || ThinArc::strong_count(&self.0) > holds
    }

    /// A copy at another place, with this value instead of the one that is stored apart.
    pub(crate) fn moved(&self, value: Option<&LargeValue>) -> Self {
        let head = self.head();
        let large = value.map(|value| &value.0).or(head.large.as_ref()).cloned();
        // The mark is a part of the version.
        let version = AtomicU64::new(head.version.load(Ordering::Relaxed));
        let head = EntryHead {
            version,
            deadline: AtomicU64::new(self.deadline()),
            large,
        };
        Self(ThinArc::from_header_and_slice(head, &self.0.slice))
    }

    /// A copy of its value that is stored apart.
    pub(crate) fn copy_value(&self) -> LargeValue {
        LargeValue(ThinArc::from_header_and_slice((), self.value()))
    }

    /// Bytes of key and value.
    pub(crate) fn len(&self) -> usize {
        self.0.slice.len() - self.bounds().0 + self.large().map_or(0, |large| large.slice.len())
    }

    /// When it expires (see `deadline`); 0: never.
    pub(crate) fn deadline(&self) -> u64 {
        self.head().deadline.load(Ordering::Relaxed)
    }

    /// The sequence of the write that made it.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.stamp() & !KINDS
    }

    /// Its version, and in some of its bits what its value is: as copies get it.
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        self.head().version.load(Ordering::Relaxed) & !MARK
    }

    /// What its value is.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        // A kind that this program does not know is refused when it arrives.
        kind_of_stamp(self.stamp()).unwrap_or(Kind::String)
    }

    /// Whether it is a collection whose fields are rows of their own.
    #[inline]
    pub(crate) fn is_table(&self) -> bool {
        self.stamp() & (COLLECTION | TABLE) == COLLECTION | TABLE
    }

    /// The sequence that made it a table. 0: a learner knows some of its rows, but not the table
    /// itself.
    pub(crate) fn born(&self) -> u64 {
        self.birth() & !UNFINISHED
    }

    /// Whether it is a table that commands do not see yet.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.is_table() && self.birth() & UNFINISHED != 0
    }

    fn birth(&self) -> u64 {
        let bytes = self.value().first_chunk().copied();
        bytes.map_or(0, u64::from_le_bytes)
    }

    /// Marks the key as used. Stored only if that changes something: otherwise the cache line would
    /// have to be written back.
    #[inline]
    pub(crate) fn mark(&self) {
        let version = &self.head().version;
        let marked = version.load(Ordering::Relaxed);
        if marked & MARK == 0 {
            version.store(marked | MARK, Ordering::Relaxed);
        }
    }

    /// Whether the key was used since the last call.
    pub(crate) fn take_mark(&self) -> bool {
        let version = &self.head().version;
        let marked = version.load(Ordering::Relaxed);
        version.store(marked & !MARK, Ordering::Relaxed);
        marked & MARK != 0
    }

    /// The same, without clearing the mark.
    #[cfg(test)]
    pub(crate) fn is_marked(&self) -> bool {
        self.head().version.load(Ordering::Relaxed) & MARK != 0
    }

    /// Whether it is past its deadline.
    pub(crate) fn overdue(&self, clock: u64) -> bool {
        deadline::is_over(self.deadline(), clock)
    }

    /// The earliest deadline of its fields, if it is a collection that is one value; 0: never.
    #[inline]
    pub(crate) fn fields_due(&self) -> u64 {
        match self.stamp() & (COLLECTION | TABLE) {
            COLLECTION if self.kind().collection().is_some() => dated::first_due(self.value()),
            _ => 0,
        }
    }

    /// Whether it is a collection that is one value, and fields of it are overdue.
    #[inline]
    pub(crate) fn has_overdue_fields(&self, clock: u64) -> bool {
        deadline::is_over(self.fields_due(), clock)
    }

    /// Gives it another deadline, as of another write. Only for an entry that is not shared: others
    /// would see the change.
    pub(crate) fn date(&self, deadline: u64, version: u64) {
        let kind = self.stamp() & KINDS;
        self.head().deadline.store(deadline, Ordering::Relaxed);
        self.head()
            .version
            .store(version | kind | MARK, Ordering::Relaxed);
    }

    /// Whether the entry is shared.
    pub(crate) fn is_shared(&self) -> bool {
        ThinArc::strong_count(&self.0) > 1
    }

    /// A copy that is not shared.
    pub(crate) fn copy(&self) -> Self {
        Self::of_stamp(self.key(), self.value(), self.deadline(), self.stamp())
    }
}

/// A value with an allocation of its own.
#[derive(Debug)]
pub(crate) struct LargeValue(ThinArc<(), u8>);

impl LargeValue {
    /// Its address and how many bytes it takes there.
    pub(crate) fn allocation(&self) -> (u64, usize) {
        Self::allocation_of(&self.0)
    }

    fn allocation_of(value: &ThinArc<(), u8>) -> (u64, usize) {
        (
            ThinArc::as_ptr(value) as usize as u64,
            VALUE_HEAD_BYTES + value.slice.len(),
        )
    }
}

/// Entries are equal if key and value are. Version and deadline concern only the store.
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.key(), self.kind(), self.value()) == (other.key(), other.kind(), other.value())
    }
}

impl Eq for Entry {}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}={:?}", self.key(), self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_of_every_length_come_back() {
        for key in [0, 1, 14, 253, 254, 255, 256, 65_536] {
            for value in [0, 1, 100, INLINE_MAX, INLINE_MAX + 1, 100_000] {
                let (key, value) = (vec![b'k'; key], vec![b'v'; value]);
                let entry = Entry::new(&key, &value, 7, 9);
                assert_eq!((entry.key(), entry.value()), (&*key, &*value));
                assert_eq!(
                    (entry.deadline(), entry.version(), entry.len()),
                    (7, 9, key.len() + value.len())
                );
            }
        }
    }

    #[test]
    fn a_mark_is_taken_once_and_changes_nothing_else() {
        let entry = Entry::new(b"k", b"v", 3, 7);
        assert!(entry.take_mark(), "it is used when it is written");
        assert!(!entry.take_mark() && !entry.is_marked());
        entry.mark();
        assert_eq!(
            (entry.is_marked(), entry.version(), entry.deadline()),
            (true, 7, 3)
        );
        assert!(entry.take_mark());
        assert_eq!((entry.version(), entry.copy().version()), (7, 7));
        entry.date(0, 8);
        assert!(entry.take_mark());
    }

    #[test]
    fn a_copied_entry_has_a_deadline_of_its_own() {
        let entry = Entry::new(b"k", b"v", 0, 1);
        let (shared, copy) = (entry.clone(), entry.copy());
        entry.date(5, 2);
        assert_eq!((shared.deadline(), shared.version()), (5, 2));
        assert_eq!((copy.deadline(), copy.version()), (0, 1));
    }

    #[test]
    fn the_memory_of_a_row_and_of_a_value_that_are_given_up_is_reused() {
        Entry::forget_spare();
        let pair = || {
            [
                Entry::of_row(b"field", b"1", 0),
                Entry::new(b"key", b"field 1", 0, 1),
            ]
        };
        let former = pair();
        let places = former.each_ref().map(Entry::address);
        former.into_iter().for_each(Entry::recycle);
        let again = pair();
        assert_eq!(again.each_ref().map(Entry::address), places);
        Entry::forget_spare();
    }
}
