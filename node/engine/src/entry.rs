//! A stored key and what stands under it, in one allocation.
//!
//! ```text
//!   ThinArc ─> count | mark and version, deadline, large | length | length of the key, key, value
//!                                           └─> the value, where it is not small
//! ```
//!
//! Pointers are what small keys cost: key, value and their counts apart, with version and deadline
//! in the tree, were 266 bytes for a key of 14 and a value of 100; this is 182. Store, log and undo
//! records share it.

use super::deadline;
use std::cell::RefCell;
use std::fmt;
use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};
use triomphe::{Arc, ThinArc};

/// The largest value that stands beside its key. Larger ones are copied in one go, which only an
/// allocation of their own can be.
const INLINE_MAX: usize = 512;
/// Keys from this length on say it in four more bytes.
const LONG_KEY: u8 = u8::MAX;

/// Whether it was used since somebody looked: a bit of its version, which is a count and never so
/// high.
const MARK: u64 = 1 << 63;

/// The largest that is recycled, and how many wait for it: what a pass writes is given up after it.
const RECYCLED_BYTES_MAX: usize = 512;
const SPARE_MAX: usize = 1024;

/// What an entry takes beside its key and value: counts, version, deadline, the place of a large
/// value, lengths.
const HEAD_BYTES: usize = size_of::<Head>() + 2 * size_of::<usize>();
/// What a value takes that stands by itself: counts and length.
const VALUE_HEAD_BYTES: usize = 2 * size_of::<usize>();

thread_local! {
    /// Entries that nobody has any more, for the room that they take.
    static SPARE: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// What stands under a key, with the key.
#[derive(Clone)]
pub(super) struct Entry(ThinArc<Head, u8>);

/// Atomic because values go to other threads; only the store that holds the entry changes these.
struct Head {
    version: AtomicU64,
    deadline: AtomicU64,
    large: Option<ThinArc<(), u8>>,
}

impl Entry {
    /// Copies key and value. `deadline`: as `deadline` makes it, 0 is never. `version`: the
    /// sequence of the write that made it so. It is marked: it is used just now.
    pub(super) fn new(key: &[u8], value: &[u8], deadline: u64, version: u64) -> Self {
        let long = (key.len() as u32).to_le_bytes();
        let long: &[u8] = if key.len() < usize::from(LONG_KEY) {
            &[]
        } else {
            &long
        };
        let large = (value.len() > INLINE_MAX).then(|| ThinArc::from_header_and_slice((), value));
        let inline: &[u8] = if large.is_some() { &[] } else { value };
        let head = Head {
            version: AtomicU64::new(version | MARK),
            deadline: AtomicU64::new(deadline),
            large,
        };
        let length = 1 + long.len() + key.len() + inline.len();
        let spare = if length <= RECYCLED_BYTES_MAX {
            Self::spare(length)
        } else {
            None
        };
        let (mut entry, head) = match spare {
            Some(spare) => (spare.0, Some(head)),
            None => (
                ThinArc::from_header_and_iter(head, iter::repeat_n(0, length)),
                None,
            ),
        };
        entry.with_arc_mut(|entry| {
            // Nobody else has it yet, so this is never absent.
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

    /// Where its key begins and ends.
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
    pub(super) fn key(&self) -> &[u8] {
        let (begin, end) = self.bounds();
        &self.0.slice[begin..end]
    }

    /// Its value.
    #[inline]
    pub(super) fn value(&self) -> &[u8] {
        match &self.0.header.header.large {
            Some(large) => &large.slice,
            None => &self.0.slice[self.bounds().1..],
        }
    }

    /// Where it is, so that looking at it loads the pointer and not what it points to.
    pub(super) fn address(&self) -> u64 {
        ThinArc::as_ptr(&self.0) as usize as u64
    }

    /// Looks at its head, its key and its end, so that they are in a cache.
    pub(super) fn touch(&self) -> u64 {
        let bytes = &self.0.slice;
        let at = |i: usize| bytes.get(i).map_or(0, |b| u64::from(*b));
        self.version() ^ at(usize::from(bytes[0])) ^ at(bytes.len() - 1)
    }

    /// Looks at the beginning of its value, where that stands by itself.
    pub(super) fn touch_value(&self) -> u64 {
        self.0
            .header
            .header
            .large
            .as_ref()
            .and_then(|large| large.slice.first())
            .map_or(0, |b| u64::from(*b))
    }

    /// Gives it up. Where nobody else has it, the next entry of its size takes its place in memory:
    /// what was just looked at is in a cache, and what the allocator would give is not.
    pub(super) fn recycle(mut self) {
        let length = self.0.slice.len();
        if length > RECYCLED_BYTES_MAX || self.is_shared() {
            return;
        }
        self.0.with_arc_mut(|entry| {
            if let Some(entry) = Arc::get_mut(entry) {
                entry.header_mut().large = None;
            }
        });
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < SPARE_MAX {
                spare.push(self);
            }
        });
    }

    /// Room for so many bytes that is given up, if the last that were have that size.
    fn spare(length: usize) -> Option<Self> {
        SPARE.with_borrow_mut(|spare| {
            let fits = spare.last().is_some_and(|e| e.0.slice.len() == length);
            let found = if fits { spare.pop() } else { None };
            if !fits && spare.len() >= SPARE_MAX {
                // Of a size that nobody wants any more.
                spare.clear();
            }
            found
        })
    }

    /// Gives back the room of those that were recycled and are not used again.
    pub(super) fn forget_spare() {
        SPARE.with_borrow_mut(Vec::clear);
    }

    /// Where it lies and how many bytes it takes there, without a value that stands by itself.
    pub(super) fn allocation(&self) -> (u64, usize) {
        (self.address(), HEAD_BYTES + self.0.slice.len())
    }

    /// The same of a value that stands by itself.
    pub(super) fn value_allocation(&self) -> Option<(u64, usize)> {
        self.0
            .header
            .header
            .large
            .as_ref()
            .map(LargeValue::allocation_of)
    }

    /// Whether it is held elsewhere than in a store that holds it so many times, or its value is.
    pub(super) fn is_held_beside(&self, holds: usize) -> bool {
        let value = self
            .0
            .header
            .header
            .large
            .as_ref()
            .is_some_and(|large| ThinArc::strong_count(large) > 1);
        value || ThinArc::strong_count(&self.0) > holds
    }

    /// The same in another place, with this value in place of the one that stands by itself.
    pub(super) fn moved(&self, value: Option<&LargeValue>) -> Self {
        let head = &self.0.header.header;
        let large = value.map(|value| &value.0).or(head.large.as_ref()).cloned();
        // Whether it was used since is in the version.
        let version = AtomicU64::new(head.version.load(Ordering::Relaxed));
        let head = Head {
            version,
            deadline: AtomicU64::new(self.deadline()),
            large,
        };
        Self(ThinArc::from_header_and_slice(head, &self.0.slice))
    }

    /// A copy of its value that stands by itself.
    pub(super) fn copy_value(&self) -> LargeValue {
        LargeValue(ThinArc::from_header_and_slice((), self.value()))
    }

    /// Bytes of key and value.
    pub(super) fn len(&self) -> usize {
        self.0.slice.len() - self.bounds().0
            + self
                .0
                .header
                .header
                .large
                .as_ref()
                .map_or(0, |large| large.slice.len())
    }

    /// When it expires (see `deadline`); 0: never.
    pub(super) fn deadline(&self) -> u64 {
        self.0.header.header.deadline.load(Ordering::Relaxed)
    }

    /// Sequence of the write that made it so.
    pub(super) fn version(&self) -> u64 {
        self.0.header.header.version.load(Ordering::Relaxed) & !MARK
    }

    /// Somebody used it. Stored only where it says something new: the line of memory would have to
    /// be written back.
    #[inline]
    pub(super) fn mark(&self) {
        let version = &self.0.header.header.version;
        let marked = version.load(Ordering::Relaxed);
        if marked & MARK == 0 {
            version.store(marked | MARK, Ordering::Relaxed);
        }
    }

    /// Whether somebody used it since this was asked last.
    pub(super) fn take_mark(&self) -> bool {
        let version = &self.0.header.header.version;
        let marked = version.load(Ordering::Relaxed);
        version.store(marked & !MARK, Ordering::Relaxed);
        marked & MARK != 0
    }

    /// The same, and it stays so.
    #[cfg(test)]
    pub(super) fn is_marked(&self) -> bool {
        self.0.header.header.version.load(Ordering::Relaxed) & MARK != 0
    }

    /// Whether it is past its deadline.
    pub(super) fn overdue(&self, clock: u64) -> bool {
        deadline::is_over(self.deadline(), clock)
    }

    /// Gives it another deadline, as of another write. For the store that holds it alone: whoever
    /// else has this entry sees that too.
    pub(super) fn date(&self, deadline: u64, version: u64) {
        self.0
            .header
            .header
            .deadline
            .store(deadline, Ordering::Relaxed);
        self.0
            .header
            .header
            .version
            .store(version | MARK, Ordering::Relaxed);
    }

    /// Whether anybody else has it.
    pub(super) fn is_shared(&self) -> bool {
        ThinArc::strong_count(&self.0) > 1
    }

    /// The same, shared with nobody.
    pub(super) fn copy(&self) -> Self {
        Self::new(self.key(), self.value(), self.deadline(), self.version())
    }
}

/// A value that stands by itself.
#[derive(Debug)]
pub(super) struct LargeValue(ThinArc<(), u8>);

impl LargeValue {
    /// Where it lies and how many bytes it takes there.
    pub(super) fn allocation(&self) -> (u64, usize) {
        Self::allocation_of(&self.0)
    }

    fn allocation_of(value: &ThinArc<(), u8>) -> (u64, usize) {
        (
            ThinArc::as_ptr(value) as usize as u64,
            VALUE_HEAD_BYTES + value.slice.len(),
        )
    }
}

/// Key and value: what a write says of an entry. When it was written and until when it counts is
/// the store's business.
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key() && self.value() == other.value()
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
    fn a_copy_is_dated_by_itself() {
        let entry = Entry::new(b"k", b"v", 0, 1);
        let (shared, copy) = (entry.clone(), entry.copy());
        entry.date(5, 2);
        assert_eq!((shared.deadline(), shared.version()), (5, 2));
        assert_eq!((copy.deadline(), copy.version()), (0, 1));
    }
}
