//! Finds the keys of one map: a hash index that grows and shrinks a segment at a time, and keeps
//! its order.
//!
//! ```text
//!   key ── SipHash, keyed ──> its order, 64 bits     segments, by the first bits of the order:
//!
//!   first 32 bits  0110 1...   tag                  0..  ┌ tags    [u32]  sorted, in one array
//!                  ^^                               10.  └ entries [pointer]  in the same places
//!                  the segment                      11.
//! ```
//! Linear hashing: there are n = 2^k + p segments, and the first p and the last p are one bit
//! deeper than the others. If there are too many entries, segment p is split. If there are too few,
//! the last segment is joined to the one that it came from. So no operation ever costs more than a
//! segment. A table that doubles would block for seconds with ten million keys.
//!
//! Segments are numbered by the *reversed* first bits of the order (as Redis's cursors are), so a
//! split takes nothing from any other segment. Within a segment, entries are sorted. So the order
//! of iteration, (order, key), does not depend on n or on the node: scans, snapshots and checksums
//! continue after a key while the index grows and shrinks.
//!
//! A segment is two sorted arrays and not a small hash table. The arrays are exactly as large as
//! necessary: 12 bytes an entry and a twelfth in reserve, where tables of a power of two take 11 to
//! 23 bytes. A split cuts them and touches no entry, and iteration sorts nothing. Hashes are spread
//! evenly, so a position is guessed from the tag, and 32 tags around it are compared at once. A
//! lookup touches a segment's header, two cache lines of tags, one of pointers, and the entry.

use crate::store::surveyor::Surveyor;
use crate::value::entry::Entry;
use doyen_placement::OrderKey;
use siphasher::sip::SipHasher13;
use std::mem;

/// If segments have more entries than this on average, one is split.
const LOAD_MAX: usize = 48;
/// If the average is below this part of `LOAD_MAX`, two segments are joined.
const JOIN_BELOW: usize = 4;
/// Segments in one block. The vector of blocks stays so small that growing it costs nothing.
const BLOCK: usize = 64;
/// Beyond this many segments (800 million keys), segments just become larger: tags must tell keys
/// apart.
const SEGMENTS_MAX: usize = 1 << 24;
/// Tags that are compared around the guessed position.
const WINDOW: usize = 32;
/// Freeing this many bytes takes as long as freeing a small entry.
const FREED_BYTES: usize = 8 << 10;
/// Lookups that are warmed together. With more, a core would wait for more loads than it can have
/// under way.
pub(crate) const WARM_GROUP: usize = 16;

/// The order of keys.
pub(crate) trait Order {
    /// A number that is the same at every member. Keys with equal numbers are ordered by their
    /// bytes.
    fn order(&self, key: &[u8]) -> u64;
}

/// Orders keys by a keyed hash, evenly, so that a client without the cluster's key cannot choose
/// keys that collide. A fast hash with a secret seed is no defence: for xxh3, keys that collide
/// under any seed can be computed. This hash costs some 7 ns more for a short key.
impl Order for OrderKey {
    fn order(&self, key: &[u8]) -> u64 {
        SipHasher13::new_with_keys(self.0 as u64, (self.0 >> 64) as u64).hash(key)
    }
}

/// The index.
#[derive(Debug)]
pub(crate) struct Index<O = OrderKey> {
    seed: O,
    /// All blocks except the last are full.
    blocks: Vec<Vec<Segment>>,
    segments: usize,
    len: usize,
}

/// Entries whose orders begin with the same bits, sorted by (order, key).
#[derive(Debug, Default)]
struct Segment {
    /// The first 32 bits of each order.
    tags: Vec<u32>,
    entries: Vec<Entry>,
}

/// The first bits of an order.
const fn tag_of(order: u64) -> u32 {
    (order >> 32) as u32
}

impl Index {
    /// The seed of its order.
    pub(crate) const fn seed(&self) -> OrderKey {
        self.seed
    }
}

impl<O: Order> Index<O> {
    /// An empty index. It has allocated nothing.
    pub(crate) const fn new(seed: O) -> Self {
        Self {
            seed,
            blocks: Vec::new(),
            segments: 0,
            len: 0,
        }
    }

    /// The order of a key.
    pub(crate) fn order(&self, key: &[u8]) -> u64 {
        self.seed.order(key)
    }

    /// How many entries there are.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entry of a key with this order.
    pub(crate) fn get(&self, order: u64, key: &[u8]) -> Option<&Entry> {
        let (segment, depth) = self.segment(tag_of(order))?;
        let at = segment.find(&self.seed, depth, order, key).ok()?;
        Some(&segment.entries[at])
    }

    /// Loads what looking up these orders will touch. Every step of a lookup waits for memory. The
    /// same step of many lookups waits only once.
    pub(crate) fn warm<'a>(mut lookups: impl Iterator<Item = (&'a Self, u64)>)
    where
        O: 'a,
    {
        loop {
            let mut group = [None; WARM_GROUP];
            let mut count = 0;
            for (place, (index, order)) in group.iter_mut().zip(&mut lookups) {
                *place = index
                    .segment(tag_of(order))
                    .map(|(segment, depth)| (segment, depth, tag_of(order)));
                count += 1;
            }
            let group = &group[..count];
            let mut sum = 0;
            for (segment, depth, tag) in group.iter().flatten() {
                sum ^= segment
                    .tags
                    .get(segment.estimate(*depth, *tag))
                    .map_or(0, |tag| u64::from(*tag));
            }
            let mut found = [None; WARM_GROUP];
            for ((segment, depth, tag), found) in group.iter().flatten().zip(&mut found) {
                *found = segment.entries.get(segment.first(*depth, *tag));
                sum ^= found.map_or(0, Entry::address);
            }
            for entry in found.iter().flatten() {
                sum ^= entry.touch();
            }
            std::hint::black_box(sum);
            if count < WARM_GROUP {
                return;
            }
        }
    }

    /// Puts an entry in its place. Returns the former entry of its key. `order` is the order of its
    /// key.
    pub(crate) fn replace(&mut self, order: u64, entry: Entry) -> Option<Entry> {
        if self.segments == 0 {
            self.push(Segment::default());
        }
        let (number, depth) = self.number(tag_of(order));
        let segment = &mut self.blocks[number / BLOCK][number % BLOCK];
        match segment.find(&self.seed, depth, order, entry.key()) {
            Ok(at) => Some(mem::replace(&mut segment.entries[at], entry)),
            Err(at) => {
                segment.insert(at, tag_of(order), entry);
                self.len += 1;
                if self.len > self.segments * LOAD_MAX && self.segments < SEGMENTS_MAX {
                    self.split();
                }
                None
            }
        }
    }

    /// Removes the entry of a key.
    pub(crate) fn take(&mut self, order: u64, key: &[u8]) -> Option<Entry> {
        if self.segments == 0 {
            return None;
        }
        let (number, depth) = self.number(tag_of(order));
        let segment = &mut self.blocks[number / BLOCK][number % BLOCK];
        let at = segment.find(&self.seed, depth, order, key).ok()?;
        let entry = segment.remove(at);
        self.len -= 1;
        if self.segments > 1 && self.len * JOIN_BELOW < self.segments * LOAD_MAX {
            self.join();
        }
        Some(entry)
    }

    /// Drops up to `count` entries, in no order. A large one counts as several, because the system
    /// takes its memory back page by page.
    pub(crate) fn shed(&mut self, count: usize) {
        let mut left = count;
        while left > 0 {
            let Some(segment) = self.blocks.last_mut().and_then(|b| b.last_mut()) else {
                return;
            };
            let dropped = segment.entries.pop();
            segment.tags.pop();
            let empty = segment.entries.is_empty();
            self.len -= usize::from(dropped.is_some());
            // Passing an empty segment costs as much as an entry.
            left = left.saturating_sub(1 + dropped.map_or(0, |entry| entry.len() / FREED_BYTES));
            if empty {
                self.pop();
            }
        }
    }

    /// Lets a segment be looked at, and replaces each entry for which `look` returns another.
    /// False: there is no such segment.
    pub(crate) fn survey<S: Surveyor>(
        &mut self,
        number: usize,
        surveyor: &mut S,
        mut look: impl FnMut(&Entry, &mut S) -> Option<Entry>,
    ) -> bool {
        let Some(segment) = self
            .blocks
            .get_mut(number / BLOCK)
            .and_then(|block| block.get_mut(number % BLOCK))
        else {
            return false;
        };
        if let Some(mut tags) = surveyor.table(
            segment.tags.as_ptr() as usize as u64,
            segment.tags.capacity(),
        ) {
            tags.append(&mut segment.tags);
            segment.tags = tags;
        }
        if let Some(mut entries) = surveyor.table(
            segment.entries.as_ptr() as usize as u64,
            segment.entries.capacity(),
        ) {
            entries.append(&mut segment.entries);
            segment.entries = entries;
        }
        for entry in &mut segment.entries {
            if let Some(moved) = look(entry, surveyor) {
                *entry = moved;
            }
        }
        true
    }

    /// Removes some entry. Only for an index that is being dropped: lookups fail afterwards.
    pub(crate) fn take_any(&mut self) -> Option<Entry> {
        while self.len > 0 {
            let segment = self.blocks.last_mut()?.last_mut()?;
            if let Some(entry) = segment.entries.pop() {
                segment.tags.pop();
                self.len -= 1;
                return Some(entry);
            }
            self.pop();
        }
        None
    }

    /// The entries after a key, in order. Without a key, all of them.
    pub(crate) fn iter_after(&self, after: Option<&[u8]>) -> Iter<'_, O> {
        let Some(key) = after else {
            return self.iter_from(0);
        };
        let order = self.seed.order(key);
        self.iter_at(tag_of(order), |segment, depth| {
            segment
                .find(&self.seed, depth, order, key)
                .map_or_else(|at| at, |at| at + 1)
        })
    }

    /// The entries whose keys have this order or a later one, in order.
    pub(crate) fn iter_from(&self, order: u64) -> Iter<'_, O> {
        self.iter_at(tag_of(order), |segment, depth| {
            let (from, same) = segment.run(depth, tag_of(order));
            from + segment.entries[from..from + same]
                .partition_point(|e| self.seed.order(e.key()) < order)
        })
    }

    fn iter_at(&self, tag: u32, place: impl Fn(&Segment, u32) -> usize) -> Iter<'_, O> {
        let mut iter = Iter {
            index: self,
            entries: [].iter(),
            next: None,
        };
        if let Some((segment, depth)) = self.segment(tag) {
            iter.entries = segment.entries[place(segment, depth)..].iter();
            iter.next = after_segment(tag, depth);
        }
        iter
    }

    /// The segment of a tag, and how many bits its tags have in common.
    fn segment(&self, tag: u32) -> Option<(&Segment, u32)> {
        if self.segments == 0 {
            return None;
        }
        let (number, depth) = self.number(tag);
        Some((&self.blocks[number / BLOCK][number % BLOCK], depth))
    }

    /// The number of a tag's segment, and its depth. The index must not be empty.
    fn number(&self, tag: u32) -> (usize, u32) {
        let bits = self.segments.ilog2();
        let whole = 1_usize << bits;
        let number = tag.reverse_bits() as usize & (2 * whole - 1);
        // Its other half was not split off yet.
        let number = if number >= self.segments {
            number - whole
        } else {
            number
        };
        let split = number < self.segments - whole || number >= whole;
        (number, bits + u32::from(split))
    }

    /// Splits the next segment in two.
    fn split(&mut self) {
        let bits = self.segments.ilog2();
        let number = self.segments - (1 << bits);
        let half = self.blocks[number / BLOCK][number % BLOCK].split(1 << (31 - bits));
        self.push(half);
    }

    /// Joins the last segment to the one that it was split from.
    fn join(&mut self) {
        let Some(half) = self.pop() else { return };
        let number = self.segments - (1 << self.segments.ilog2());
        self.blocks[number / BLOCK][number % BLOCK].append(half);
    }

    fn push(&mut self, segment: Segment) {
        if self.segments.is_multiple_of(BLOCK) {
            // Most maps are small.
            self.blocks.push(Vec::with_capacity(if self.segments == 0 {
                1
            } else {
                BLOCK
            }));
        }
        if let Some(block) = self.blocks.last_mut() {
            block.push(segment);
            self.segments += 1;
        }
    }

    fn pop(&mut self) -> Option<Segment> {
        let block = self.blocks.last_mut()?;
        let segment = block.pop();
        if block.is_empty() {
            self.blocks.pop();
        }
        self.segments -= usize::from(segment.is_some());
        segment
    }
}

impl Segment {
    /// Where a key is, or where it belongs.
    fn find(&self, seed: &impl Order, depth: u32, order: u64, key: &[u8]) -> Result<usize, usize> {
        let (from, same) = self.run(depth, tag_of(order));
        match &self.entries[from..from + same] {
            [] => Err(from),
            [one] if one.key() == key => Ok(from),
            all => {
                let place =
                    all.binary_search_by(|e| (seed.order(e.key()), e.key()).cmp(&(order, key)));
                place.map(|at| from + at).map_err(|at| from + at)
            }
        }
    }

    /// The first position with this tag or a later one, and how many from there have this tag:
    /// rarely more than one.
    fn run(&self, depth: u32, tag: u32) -> (usize, usize) {
        let from = self.first(depth, tag);
        (
            from,
            self.tags[from..].iter().take_while(|t| **t == tag).count(),
        )
    }

    /// The first position with this tag or a later one.
    fn first(&self, depth: u32, tag: u32) -> usize {
        let tags = &*self.tags;
        if tags.len() <= WINDOW {
            return tags.iter().map(|t| usize::from(*t < tag)).sum();
        }
        let guess = self.estimate(depth, tag);
        let low = guess.saturating_sub(WINDOW / 2).min(tags.len() - WINDOW);
        let high = low + WINDOW;
        let before: u32 = tags[low..high].iter().map(|t| u32::from(*t < tag)).sum();
        let within = (low == 0 || before > 0) && (high == tags.len() || (before as usize) < WINDOW);
        if within {
            low + before as usize
        } else {
            tags.partition_point(|t| *t < tag)
        }
    }

    /// About how many tags are before this one, by the bits that differ within the segment.
    fn estimate(&self, depth: u32, tag: u32) -> usize {
        let part = u64::from(tag << depth);
        ((part * self.tags.len() as u64) >> 32) as usize
    }

    fn insert(&mut self, at: usize, tag: u32, entry: Entry) {
        if self.tags.len() == self.tags.capacity() {
            // As the size classes of allocators grow: four to a power of two.
            let step = (self.tags.len().next_power_of_two() / 8).max(4);
            let more = step - self.tags.len() % step;
            self.tags.reserve_exact(more);
            self.entries.reserve_exact(more);
        }
        self.tags.insert(at, tag);
        self.entries.insert(at, entry);
    }

    fn remove(&mut self, at: usize) -> Entry {
        self.tags.remove(at);
        let entry = self.entries.remove(at);
        if self.tags.capacity() > 2 * self.tags.len() + 8 {
            self.tags.shrink_to_fit();
            self.entries.shrink_to_fit();
        }
        entry
    }

    /// Cuts off the upper part: the entries whose tags have this bit, which is the first that they
    /// do not all have in common.
    fn split(&mut self, bit: u32) -> Self {
        let at = self.tags.partition_point(|t| t & bit == 0);
        let half = Self {
            tags: self.tags.split_off(at),
            entries: self.entries.split_off(at),
        };
        self.tags.shrink_to_fit();
        self.entries.shrink_to_fit();
        half
    }

    fn append(&mut self, mut half: Self) {
        self.tags.reserve_exact(half.tags.len());
        self.entries.reserve_exact(half.entries.len());
        self.tags.append(&mut half.tags);
        self.entries.append(&mut half.entries);
    }
}

/// The first tag of the segment that follows the one of `tag` in order; `None` after the last.
fn after_segment(tag: u32, depth: u32) -> Option<u32> {
    (tag | u32::MAX >> depth).checked_add(1)
}

/// Entries of an index, in order.
#[derive(Debug)]
pub(crate) struct Iter<'a, O = OrderKey> {
    index: &'a Index<O>,
    entries: std::slice::Iter<'a, Entry>,
    /// The first tag of the next segment.
    next: Option<u32>,
}

impl<'a, O: Order> Iterator for Iter<'a, O> {
    type Item = &'a Entry;

    fn next(&mut self) -> Option<&'a Entry> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Some(entry);
            }
            let tag = self.next.take()?;
            let (segment, depth) = self.index.segment(tag)?;
            self.entries = segment.entries.iter();
            self.next = after_segment(tag, depth);
        }
    }
}

#[cfg(test)]
mod tests;
