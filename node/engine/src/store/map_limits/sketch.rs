//! How often keys are used: a count-min sketch of small counters that are halved now and then, as
//! TinyLFU describes (Einziger, Friedman, Manes: <https://arxiv.org/abs/1512.00727>).
//!
//! Each key has four counters of four bits. Its frequency is the least of them. After many uses,
//! all counters are halved, so what was used long ago counts less.

/// Words of 16 counters for each key.
const WORDS_EACH: u64 = 2;
/// Uses before all counters are halved, for each key. Half as many forget too much between two uses
/// of a key; twice as many keep what is not used any more.
const USES_EACH: u64 = 20;
/// The fewest and the most words: 16 MiB, for a million keys. More keys share counters, so that all
/// counters are halved in a moment.
const WORDS: (usize, usize) = (128, 1 << 21);
/// All counters of a word without their highest bit, after a shift.
const HALVES: u64 = 0x7777_7777_7777_7777;

/// The frequencies of about `keys` keys.
#[derive(Debug)]
pub(crate) struct Sketch {
    words: Box<[u64]>,
    /// The keys that it is made for.
    keys: u64,
    uses: u64,
}

impl Sketch {
    /// For `keys`: 16 bytes each.
    pub(crate) fn new(keys: u64) -> Self {
        let words = usize::try_from(keys.saturating_mul(WORDS_EACH)).unwrap_or(usize::MAX);
        Self {
            words: vec![0; words.clamp(WORDS.0, WORDS.1)].into(),
            keys: keys.max(1),
            uses: 0,
        }
    }

    /// What it takes in memory.
    pub(crate) const fn bytes(&self) -> usize {
        self.words.len() * size_of::<u64>()
    }

    /// The keys that it is made for.
    pub(crate) const fn keys(&self) -> u64 {
        self.keys
    }

    /// Its four words and counters for a key.
    fn places(&self, order: u64) -> [(usize, u32); 4] {
        // The order of keys decides where they are stored, so its bits are mixed once more.
        let hash = order.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let hash = (hash ^ (hash >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        [0, 1, 2, 3].map(|row| {
            let hash = hash
                .rotate_left(17 * row)
                .wrapping_mul(0xA076_1D64_78BD_642F);
            (
                (hash >> 24) as usize % self.words.len(),
                (hash >> 60) as u32 * 4,
            )
        })
    }

    /// A key is used.
    pub(crate) fn count(&mut self, order: u64) {
        let mut counted = false;
        for (word, shift) in self.places(order) {
            let word = &mut self.words[word];
            if (*word >> shift) & 0xF < 0xF {
                *word += 1 << shift;
                counted = true;
            }
        }
        self.uses += u64::from(counted);
        if self.uses >= self.keys.saturating_mul(USES_EACH) {
            self.uses /= 2;
            for word in &mut self.words {
                *word = (*word >> 1) & HALVES;
            }
        }
    }

    /// About how often a key was used lately, 15 at most.
    pub(crate) fn frequency(&self, order: u64) -> u64 {
        let of = |(word, shift): (usize, u32)| (self.words[word] >> shift) & 0xF;
        self.places(order).into_iter().map(of).min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_keys_are_told_from_others_and_forgotten() {
        let mut sketch = Sketch::new(1_000);
        let key = |n: u64| n.wrapping_mul(0x2545_F491_4F6C_DD1D);
        for round in 0..9 {
            for n in 0..1_000 {
                if n < 100 || round == 0 {
                    sketch.count(key(n));
                }
            }
        }
        let often = (0..100).filter(|n| sketch.frequency(key(*n)) >= 9).count();
        assert_eq!(often, 100);
        let seldom = (100..1_000).filter(|n| sketch.frequency(key(*n)) <= 2);
        assert!(seldom.count() > 850);
        // Later uses of other keys halve what they had.
        for n in 0..60_000 {
            sketch.count(key(1_000 + n % 5_000));
        }
        assert!(
            sketch.frequency(key(5)) <= 7,
            "{}",
            sketch.frequency(key(5))
        );
    }
}
