//! From a key to its range, in the order of bytes.
//!
//! ```text
//!  splits:   tenant07:a  tenant07:b  tenant12:0001..  tenant12:0002..  tenant12:0003..  tenant31:x
//!
//!  layer     after "tenant": words of 8 bytes, as numbers      07:a  07:b  12:0001..  31:x
//!    └ layer of those that begin with this word                            └─ after nothing: 1..  2..  3..
//! ```
//! As in Masstree: eight bytes at a time are compared as one number, and only what agrees in them needs another layer. What all splits of a layer
//! have in common is skipped, so that long common prefixes cost one comparison. In a layer every sixteenth number is written out once
//! more, and of those every sixteenth: a search reads some short runs that lie together.

use std::cmp::Ordering;
use std::ops::Range;

/// Bytes that are compared at a time.
const WORD: usize = 8;
/// Numbers that are looked at one after the other.
const RUN: usize = 16;

/// Splits of a keyspace are in disorder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// An empty key splits nothing.
    #[error("split {0} is empty: every key is behind it")]
    Empty(usize),
    /// It stands behind a greater one.
    #[error("split {0} stands behind a greater one")]
    Disorder(usize),
    /// It stands behind an equal one.
    #[error("split {0} is there twice")]
    Twice(usize),
    /// All splits together are too much.
    #[error("the splits have more than 4 GiB together")]
    Large,
}

/// Ranges of keys, compiled. Range 0 has every key below the first split, range `i` those from split `i - 1` on.
///
/// ```
/// use doyen_placement::lookup::RangeLookup;
/// let lookup = RangeLookup::new(&["h", "p"])?;
/// assert_eq!(["alma", "h", "piet"].map(|key| lookup.range_of(key.as_bytes())), [0, 1, 2]);
/// # Ok::<(), doyen_placement::lookup::SplitError>(())
/// ```
#[derive(Debug, Clone)]
pub struct RangeLookup {
    /// The bytes of all splits, one after the other.
    bytes: Vec<u8>,
    /// Where each split begins in them; one more at the end.
    begins: Vec<u32>,
    /// The first layer is the one where every search begins.
    layers: Vec<Layer>,
}

/// Splits that agree up to some byte.
#[derive(Debug, Clone)]
struct Layer {
    /// The first of them.
    first: u32,
    /// How many bytes of a key have been compared before it.
    depth: u32,
    /// How many more all of them have in common.
    skip: u32,
    /// The eight bytes that follow, without repetition. Bytes that are not there are 0.
    words: Words,
    /// For each word, and one more that says where the splits end.
    entries: Vec<Entry>,
}

/// Splits that agree in a word, too.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The first of them.
    first: u32,
    /// How many of them end within the word, shorter ones first. They differ in how many zeros they have.
    short: u32,
    /// Where the others are told apart: none if there is at most one.
    layer: Option<u32>,
}

/// Sorted numbers, and sparser copies of them.
#[derive(Debug, Clone)]
struct Words {
    /// The sparsest first; each holds the first of every run of the one behind it, which is last.
    levels: Vec<Vec<u64>>,
}

impl Words {
    fn new(words: Vec<u64>) -> Self {
        let mut levels = vec![words];
        while levels[0].len() > RUN {
            levels.insert(0, levels[0].iter().copied().step_by(RUN).collect());
        }
        Self { levels }
    }

    /// How many numbers are not above this one.
    fn upto(&self, word: u64) -> usize {
        let mut found: usize = 0;
        for level in &self.levels {
            // The run that begins with the last number that is not above it, in the sparser level.
            let from = found.saturating_sub(1) * RUN;
            let run = &level[from..level.len().min(from + RUN)];
            // Without branches: which way a comparison goes is anybody's guess.
            found = from + run.iter().map(|w| usize::from(*w <= word)).sum::<usize>();
            if found == 0 {
                return 0;
            }
        }
        found
    }

    fn bytes(&self) -> usize {
        self.levels.iter().map(|level| size_of_val(&**level)).sum()
    }
}

impl RangeLookup {
    /// For these splits, which stand in order.
    ///
    /// # Errors
    /// A split that is empty, or not greater than the one before it; more than 4 GiB of them.
    pub fn new<K: AsRef<[u8]>>(splits: &[K]) -> Result<Self, SplitError> {
        if splits.first().is_some_and(|first| first.as_ref().is_empty()) {
            return Err(SplitError::Empty(0));
        }
        for (number, two) in splits.windows(2).enumerate() {
            match two[0].as_ref().cmp(two[1].as_ref()) {
                Ordering::Less => {}
                Ordering::Equal => return Err(SplitError::Twice(number + 1)),
                Ordering::Greater => return Err(SplitError::Disorder(number + 1)),
            }
        }
        let mut lookup = Self { bytes: Vec::new(), begins: vec![0], layers: Vec::new() };
        for split in splits {
            lookup.bytes.extend_from_slice(split.as_ref());
            lookup.begins.push(u32::try_from(lookup.bytes.len()).map_err(|_| SplitError::Large)?);
        }
        lookup.build();
        Ok(lookup)
    }

    /// How many ranges there are.
    #[must_use]
    pub fn ranges(&self) -> usize {
        self.begins.len()
    }

    /// The number of the range that this key is in.
    #[must_use]
    pub fn range_of(&self, key: &[u8]) -> usize {
        let mut at = 0;
        while let Some(layer) = self.layers.get(at) {
            let rest = &key[layer.depth as usize..];
            let first = layer.first as usize;
            let skip = layer.skip as usize;
            let entries = &layer.entries;
            if skip > 0 {
                let common = &self.split(first)[layer.depth as usize..][..skip];
                match rest[..rest.len().min(skip)].cmp(common) {
                    Ordering::Less => return first,
                    Ordering::Equal => {}
                    // The last entry of a layer only says where its splits end.
                    Ordering::Greater => return entries[entries.len() - 1].first as usize,
                }
            }
            let rest = &rest[skip..];
            let word = word_of(rest);
            let upto = layer.words.upto(word);
            let Some(last) = upto.checked_sub(1) else { return first };
            let (entry, behind) = (entries[last], entries[upto].first as usize);
            if layer.words.levels[layer.words.levels.len() - 1][last] < word {
                return behind;
            }
            let (first, long) = (entry.first as usize, (entry.first + entry.short) as usize);
            if rest.len() <= WORD {
                // They agree in all that the key has: those that are not longer are not above it.
                let depth = layer.depth as usize + skip;
                return (first..long).find(|&split| self.split(split).len() - depth > rest.len()).unwrap_or(long);
            }
            match entry.layer {
                Some(layer) => at = layer as usize,
                None if long == behind => return behind,
                None => {
                    let depth = layer.depth as usize + skip + WORD;
                    return long + usize::from(self.split(long)[depth..] <= rest[WORD..]);
                }
            }
        }
        0
    }

    /// What it takes in memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let layer = |layer: &Layer| size_of::<Layer>() + layer.words.bytes() + size_of_val(&*layer.entries);
        self.bytes.len() + size_of_val(&*self.begins) + self.layers.iter().map(layer).sum::<usize>()
    }

    fn split(&self, number: usize) -> &[u8] {
        &self.bytes[self.begins[number] as usize..self.begins[number + 1] as usize]
    }

    /// Makes all layers. A list of what is to be done instead of recursion: how deep it goes is the splits' choice.
    fn build(&mut self) {
        let mut wanted = vec![Wanted { splits: 0..self.begins.len() - 1, depth: 0, by: None }];
        while let Some(Wanted { splits, depth, by }) = wanted.pop() {
            if splits.is_empty() {
                continue;
            }
            let number = self.layers.len() as u32;
            let layer = self.layer(splits, depth);
            let below = (layer.depth + layer.skip) as usize + WORD;
            for (entry, two) in layer.entries.windows(2).enumerate() {
                let long = (two[0].first + two[0].short) as usize..two[1].first as usize;
                if long.len() > 1 {
                    wanted.push(Wanted { splits: long, depth: below, by: Some((number, entry)) });
                }
            }
            self.layers.push(layer);
            if let Some((above, entry)) = by {
                self.layers[above as usize].entries[entry].layer = Some(number);
            }
        }
    }

    /// The layer of these splits, which agree in `depth` bytes and have more.
    fn layer(&self, splits: Range<usize>, depth: usize) -> Layer {
        let (least, greatest) = (&self.split(splits.start)[depth..], &self.split(splits.end - 1)[depth..]);
        // They stand in order: what the first and the last have in common all have.
        let skip = least.iter().zip(greatest).take_while(|(a, b)| a == b).count();
        let mut words: Vec<u64> = Vec::new();
        let mut entries: Vec<Entry> = Vec::new();
        for number in splits.clone() {
            let split = &self.split(number)[depth + skip..];
            let word = word_of(split);
            if words.last() != Some(&word) {
                words.push(word);
                entries.push(Entry { first: number as u32, short: 0, layer: None });
            }
            if let Some(entry) = entries.last_mut().filter(|_| split.len() <= WORD) {
                entry.short += 1;
            }
        }
        entries.push(Entry { first: splits.end as u32, short: 0, layer: None });
        Layer { first: splits.start as u32, depth: depth as u32, skip: skip as u32, words: Words::new(words), entries }
    }
}

/// A layer that is still to be made.
struct Wanted {
    splits: Range<usize>,
    depth: usize,
    /// The layer and the entry of it that lead there.
    by: Option<(u32, usize)>,
}

/// The first eight bytes as a number: numbers are in the order of the bytes.
fn word_of(bytes: &[u8]) -> u64 {
    if let Some(word) = bytes.first_chunk::<WORD>() {
        return u64::from_be_bytes(*word);
    }
    let mut word = [0; WORD];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn naive(splits: &[Vec<u8>], key: &[u8]) -> usize {
        splits.iter().filter(|split| split.as_slice() <= key).count()
    }

    /// Keys that have much in common, end early, and have zeros where others end.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let crowded = prop::collection::vec(prop_oneof![Just(0), Just(1), Just(255), any::<u8>()], 0..4);
        let prefix =
            prop_oneof![Just(""), Just("tenant"), Just("tenant:0000000000000000"), Just("tenant:0000000000000001:user"), Just("zz")];
        let zeros = 0_usize..12;
        (prefix, zeros, crowded).prop_map(|(prefix, zeros, end)| [prefix.as_bytes(), &vec![0; zeros], &end].concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn it_finds_what_a_search_of_all_finds(splits in prop::collection::btree_set(key(), 0..200), asked in prop::collection::vec(key(), 50)) {
            let splits: Vec<Vec<u8>> = splits.into_iter().filter(|split| !split.is_empty()).collect();
            let lookup = RangeLookup::new(&splits).expect("in order");
            prop_assert_eq!(lookup.ranges(), splits.len() + 1);
            for key in asked.iter().chain(&splits) {
                prop_assert_eq!(lookup.range_of(key), naive(&splits, key), "{:?}", key);
                let longer = [key.as_slice(), &[0]].concat();
                prop_assert_eq!(lookup.range_of(&longer), naive(&splits, &longer), "{:?}", longer);
            }
        }
    }

    #[test]
    fn thousands_of_splits_are_found() {
        let splits: BTreeSet<Vec<u8>> =
            (0..5000_u64).map(|i| format!("t{}:{:08}", i % 37, i.wrapping_mul(0x9E37_79B9) % 100_000_000).into_bytes()).collect();
        let splits: Vec<Vec<u8>> = splits.into_iter().collect();
        let lookup = RangeLookup::new(&splits).expect("in order");
        for (number, split) in splits.iter().enumerate() {
            assert_eq!(lookup.range_of(split), number + 1);
            assert_eq!(lookup.range_of(&split[..split.len() - 1]), naive(&splits, &split[..split.len() - 1]));
        }
        assert!(lookup.bytes() > 5000 * 11);
    }

    #[test]
    fn splits_that_do_not_stand_in_order_are_refused() {
        assert_eq!(RangeLookup::new(&[""]).err(), Some(SplitError::Empty(0)));
        assert_eq!(RangeLookup::new(&["a", "c", "b"]).err(), Some(SplitError::Disorder(2)));
        assert_eq!(RangeLookup::new(&["a", "a"]).err(), Some(SplitError::Twice(1)));
        assert_eq!(RangeLookup::new::<&str>(&[]).expect("one range").range_of(b"any"), 0);
    }
}
