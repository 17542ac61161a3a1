//! From a key to its range, in the order of bytes.
//!
//! ```text
//!  splits:   tenant07:a  tenant07:b  tenant12:0001..  tenant12:0002..  tenant12:0003..  tenant31:x
//!
//!  layer     after "tenant": words of 8 bytes, as numbers      07:a  07:b  12:0001..  31:x
//!    └ layer of the splits that begin with this word             after nothing: └─ 1..  2..  3..
//! ```
//! As in Masstree, eight bytes at a time are compared as one number, and only splits that agree in
//! them need another layer. The bytes that all splits of a layer share are skipped, so long common
//! prefixes cost one comparison. A layer has several levels: every seventh number is written again
//! in the level above, of those every seventh again, and so on. A search reads one cache line of
//! each level. All levels but the last two are small enough to stay in the cache, and the last line
//! gives the split.

use std::cmp::Ordering;
use std::ops::Range;

/// The number of bytes that are compared at a time.
const WORD: usize = 8;
/// The number of words in a run. With its other fields, a run fills a cache line.
const RUN: usize = 7;
/// The largest number of levels of one layer: `u32::MAX` words need no more.
const LEVELS_MAX: usize = 12;
/// There is no layer.
const NONE: u32 = u32::MAX;

/// Splits of a keyspace are in disorder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// An empty key splits nothing.
    #[error("split {0} is empty: every key is behind it")]
    Empty(usize),
    /// A split stands behind a greater one.
    #[error("split {0} stands behind a greater one")]
    Disorder(usize),
    /// A split stands behind an equal one.
    #[error("split {0} is there twice")]
    Twice(usize),
    /// All splits together are too long.
    #[error("the splits have more than 4 GiB together")]
    Large,
}

/// Ranges of keys, compiled. Range 0 has every key below the first split, range `i` those from
/// split `i - 1` on.
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
    /// Every search begins in the first layer.
    layers: Vec<Layer>,
    /// What the splits of a layer have in common, layer by layer.
    common: Vec<u8>,
    /// The words of all layers, level by level.
    runs: Vec<BoundaryRun>,
    /// For each word of each layer, the first split with that word. One more for each layer, where
    /// its splits end.
    firsts: Vec<u32>,
    /// For each of those, data that matters only if a key has the same word.
    ties: Vec<Tie>,
}

/// Words that are compared together.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct BoundaryRun {
    words: [u64; RUN],
    /// In the last level: the first split with the first word.
    first: u32,
    /// In the last level: whether every word has one split only, so that the others follow from the
    /// first.
    plain: bool,
}

/// Splits that agree up to some byte.
#[derive(Debug, Clone)]
struct Layer {
    /// The number of bytes of a key that were compared before this layer.
    depth: u32,
    /// The number of further bytes that all splits of this layer share. `common` has them.
    skip: u32,
    common: u32,
    /// The number of different words that follow. Missing bytes are 0.
    words: u32,
    /// Where they begin in `firsts` and `ties`.
    entries: u32,
    /// The number of levels.
    levels: u32,
    /// Where each level begins among the runs: the sparsest first, and the one with all words last.
    starts: [u32; LEVELS_MAX],
}

/// Splits that agree in a word, too.
#[derive(Debug, Clone, Copy)]
struct Tie {
    /// The number of splits that end within the word. They come first, and differ in their number
    /// of zeros.
    short: u32,
    /// The layer that tells the other splits apart, if there are several.
    layer: u32,
}

impl RangeLookup {
    /// For these splits, which stand in order.
    ///
    /// # Errors
    /// A split that is empty, or not greater than the one before it; more than 4 GiB of them.
    pub fn new<K: AsRef<[u8]>>(splits: &[K]) -> Result<Self, SplitError> {
        if splits
            .first()
            .is_some_and(|first| first.as_ref().is_empty())
        {
            return Err(SplitError::Empty(0));
        }
        for (number, two) in splits.windows(2).enumerate() {
            match two[0].as_ref().cmp(two[1].as_ref()) {
                Ordering::Less => {}
                Ordering::Equal => return Err(SplitError::Twice(number + 1)),
                Ordering::Greater => return Err(SplitError::Disorder(number + 1)),
            }
        }
        let mut lookup = Self {
            bytes: Vec::new(),
            begins: vec![0],
            layers: Vec::new(),
            common: Vec::new(),
            runs: Vec::new(),
            firsts: Vec::new(),
            ties: Vec::new(),
        };
        for split in splits {
            lookup.bytes.extend_from_slice(split.as_ref());
            lookup
                .begins
                .push(u32::try_from(lookup.bytes.len()).map_err(|_| SplitError::Large)?);
        }
        lookup.build();
        Ok(lookup)
    }

    /// The number of ranges.
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
            let skip = layer.skip as usize;
            let firsts = &self.firsts[layer.entries as usize..];
            if skip > 0 {
                let common = &self.common[layer.common as usize..][..skip];
                match rest[..rest.len().min(skip)].cmp(common) {
                    Ordering::Less => return firsts[0] as usize,
                    Ordering::Equal => {}
                    Ordering::Greater => return firsts[layer.words as usize] as usize,
                }
            }
            let rest = &rest[skip..];
            let word = word_of(rest);
            let Some((last, run)) = self.last_upto(layer, word) else {
                return firsts[0] as usize;
            };
            let place = last % RUN;
            if run.words[place] < word {
                return if run.plain {
                    run.first as usize + place + 1
                } else {
                    firsts[last + 1] as usize
                };
            }
            let Tie {
                short,
                layer: below,
            } = self.ties[layer.entries as usize + last];
            let (first, behind) = (firsts[last] as usize, firsts[last + 1] as usize);
            let long = first + short as usize;
            if rest.len() <= WORD {
                // They agree in all bytes of the key. Splits that are not longer are not above the
                // key.
                let depth = (layer.depth + layer.skip) as usize;
                return (first..long)
                    .find(|&split| self.split(split).len() - depth > rest.len())
                    .unwrap_or(long);
            }
            if below == NONE {
                let depth = (layer.depth + layer.skip) as usize + WORD;
                return long
                    + usize::from(long < behind && self.split(long)[depth..] <= rest[WORD..]);
            }
            at = below as usize;
        }
        0
    }

    /// The last word of a layer that is not above this one, with its run.
    fn last_upto(&self, layer: &Layer, word: u64) -> Option<(usize, &BoundaryRun)> {
        let words = layer.words as usize;
        let (&last, sparser) = layer.starts[..layer.levels as usize].split_last()?;
        if word == u64::MAX {
            // No word is above it, and the last run may be filled up with it.
            return Some((words - 1, &self.runs[last as usize + (words - 1) / RUN]));
        }
        // Without branches, because the results of the comparisons cannot be predicted.
        let upto = |run: &BoundaryRun| {
            run.words
                .iter()
                .map(|w| usize::from(*w <= word))
                .sum::<usize>()
        };
        let mut at = 0;
        for &start in sparser {
            at = at * RUN + upto(&self.runs[start as usize + at]).checked_sub(1)?;
        }
        let run = &self.runs[last as usize + at];
        Some((at * RUN + upto(run).checked_sub(1)?, run))
    }

    /// The memory that it takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let Self {
            bytes,
            begins,
            layers,
            common,
            runs,
            firsts,
            ties,
        } = self;
        let numbers = size_of_val(&**begins) + size_of_val(&**firsts) + size_of_val(&**ties);
        bytes.len() + common.len() + numbers + size_of_val(&**layers) + size_of_val(&**runs)
    }

    fn split(&self, number: usize) -> &[u8] {
        &self.bytes[self.begins[number] as usize..self.begins[number + 1] as usize]
    }

    /// Makes all layers, with a list of tasks instead of recursion: the splits decide the depth.
    fn build(&mut self) {
        let mut wanted = vec![Wanted {
            splits: 0..self.begins.len() - 1,
            depth: 0,
            by: None,
        }];
        while let Some(Wanted { splits, depth, by }) = wanted.pop() {
            if splits.is_empty() {
                continue;
            }
            let number = self.layers.len() as u32;
            let layer = self.layer(splits, depth);
            let below = (layer.depth + layer.skip) as usize + WORD;
            for entry in layer.entries as usize..(layer.entries + layer.words) as usize {
                let long = (self.firsts[entry] + self.ties[entry].short) as usize
                    ..self.firsts[entry + 1] as usize;
                if long.len() > 1 {
                    wanted.push(Wanted {
                        splits: long,
                        depth: below,
                        by: Some(entry),
                    });
                }
            }
            self.layers.push(layer);
            if let Some(entry) = by {
                self.ties[entry].layer = number;
            }
        }
    }

    /// The layer of these splits, which agree in `depth` bytes and have more.
    fn layer(&mut self, splits: Range<usize>, depth: usize) -> Layer {
        let (least, greatest) = (
            &self.split(splits.start)[depth..],
            &self.split(splits.end - 1)[depth..],
        );
        // They are in order, so all of them share what the first and the last share.
        let skip = least
            .iter()
            .zip(greatest)
            .take_while(|(a, b)| a == b)
            .count();
        let common = self.common.len();
        let from = self.begins[splits.start] as usize + depth;
        self.common
            .extend_from_slice(&self.bytes[from..from + skip]);
        let entries = self.firsts.len();
        let mut words: Vec<u64> = Vec::new();
        for number in splits.clone() {
            let split = &self.split(number)[depth + skip..];
            let (word, is_short) = (word_of(split), split.len() <= WORD);
            if words.last() != Some(&word) {
                words.push(word);
                self.firsts.push(number as u32);
                self.ties.push(Tie {
                    short: 0,
                    layer: NONE,
                });
            }
            if let Some(tie) = self.ties.last_mut().filter(|_| is_short) {
                tie.short += 1;
            }
        }
        self.firsts.push(splits.end as u32);
        self.ties.push(Tie {
            short: 0,
            layer: NONE,
        });
        let (levels, starts) = self.levels(&words, entries);
        Layer {
            depth: depth as u32,
            skip: skip as u32,
            common: common as u32,
            words: words.len() as u32,
            entries: entries as u32,
            levels,
            starts,
        }
    }

    /// Writes the levels of these words, whose entries begin at `entries`. Returns the number of
    /// levels, and where each begins.
    fn levels(&mut self, words: &[u64], entries: usize) -> (u32, [u32; LEVELS_MAX]) {
        let mut levels = vec![words.to_vec()];
        while levels[levels.len() - 1].len() > RUN {
            levels.push(
                levels[levels.len() - 1]
                    .iter()
                    .copied()
                    .step_by(RUN)
                    .collect(),
            );
        }
        let mut starts = [0; LEVELS_MAX];
        for (start, level) in starts.iter_mut().zip(levels.iter().rev()) {
            *start = self.runs.len() as u32;
            for (number, words) in level.chunks(RUN).enumerate() {
                let mut run = BoundaryRun {
                    words: [u64::MAX; RUN],
                    first: 0,
                    plain: false,
                };
                run.words[..words.len()].copy_from_slice(words);
                // Only the last level has as many words as there are entries. In other levels this
                // value is not used.
                let firsts = &self.firsts[entries + (number * RUN).min(levels[0].len())..];
                run.first = firsts[0];
                run.plain = firsts
                    .iter()
                    .zip(firsts[0]..)
                    .take(words.len() + 1)
                    .all(|(first, plain)| *first == plain);
                self.runs.push(run);
            }
        }
        (levels.len() as u32, starts)
    }
}

/// A layer that is still to be made.
struct Wanted {
    splits: Range<usize>,
    depth: usize,
    /// The tie that leads there.
    by: Option<usize>,
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
        splits
            .iter()
            .filter(|split| split.as_slice() <= key)
            .count()
    }

    /// Keys that share long beginnings, end early, and have zeros where others end.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let crowded =
            prop::collection::vec(prop_oneof![Just(0), Just(1), Just(255), any::<u8>()], 0..4);
        let prefix = prop_oneof![
            Just(""),
            Just("tenant"),
            Just("tenant:0000000000000000"),
            Just("tenant:0000000000000001:user"),
            Just("zz")
        ];
        let zeros = 0_usize..12;
        (prefix, zeros, crowded)
            .prop_map(|(prefix, zeros, end)| [prefix.as_bytes(), &vec![0; zeros], &end].concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn it_agrees_with_a_linear_search(
            splits in prop::collection::btree_set(key(), 0..200),
            asked in prop::collection::vec(key(), 50),
        ) {
            let splits: Vec<Vec<u8>> = splits
                .into_iter()
                .filter(|split| !split.is_empty())
                .collect();
            let lookup = RangeLookup::new(&splits).expect("in order");
            prop_assert_eq!(lookup.ranges(), splits.len() + 1);
            for key in asked.iter().chain(&splits) {
                prop_assert_eq!(lookup.range_of(key), naive(&splits, key), "{:?}", key);
                let longer = [key.as_slice(), &[0]].concat();
                prop_assert_eq!(
                    lookup.range_of(&longer),
                    naive(&splits, &longer),
                    "{:?}",
                    longer
                );
            }
        }
    }

    #[test]
    fn thousands_of_splits_are_found() {
        let splits: BTreeSet<Vec<u8>> = (0..5000_u64)
            .map(|i| {
                format!(
                    "t{}:{:08}",
                    i % 37,
                    i.wrapping_mul(0x9E37_79B9) % 100_000_000
                )
                .into_bytes()
            })
            .collect();
        let splits: Vec<Vec<u8>> = splits.into_iter().collect();
        let lookup = RangeLookup::new(&splits).expect("in order");
        for (number, split) in splits.iter().enumerate() {
            assert_eq!(lookup.range_of(split), number + 1);
            assert_eq!(
                lookup.range_of(&split[..split.len() - 1]),
                naive(&splits, &split[..split.len() - 1])
            );
        }
        assert!(lookup.bytes() > 5000 * 11);
    }

    /// Runs are filled up with the greatest word. A key with that word was searched behind their
    /// end.
    #[test]
    fn the_greatest_word_is_found_where_it_is_and_only_there() {
        for greatest in [false, true] {
            let mut splits: Vec<Vec<u8>> = (0..77_u8).map(|i| vec![i, i]).collect();
            splits.extend(greatest.then(|| vec![255; 8]));
            let lookup = RangeLookup::new(&splits).expect("in order");
            for length in 0..20 {
                let key = vec![255; length];
                assert_eq!(
                    lookup.range_of(&key),
                    naive(&splits, &key),
                    "{greatest}, {length}"
                );
            }
        }
    }

    #[test]
    fn splits_that_do_not_stand_in_order_are_refused() {
        assert_eq!(RangeLookup::new(&[""]).err(), Some(SplitError::Empty(0)));
        assert_eq!(
            RangeLookup::new(&["a", "c", "b"]).err(),
            Some(SplitError::Disorder(2))
        );
        assert_eq!(
            RangeLookup::new(&["a", "a"]).err(),
            Some(SplitError::Twice(1))
        );
        assert_eq!(
            RangeLookup::new::<&str>(&[])
                .expect("one range")
                .range_of(b"any"),
            0
        );
    }
}
