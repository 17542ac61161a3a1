//! Makes hostile bytes from valid ones, by a seed.

use super::INPUT_BYTES_MAX;

/// Numbers at which behaviour changes: sizes, signs, limits, prefixes of bincode's numbers.
const NUMBERS: [u64; 16] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0xffff,
    1 << 20,
    i32::MAX as u64,
    u32::MAX as u64,
    1 << 62,
    (1 << 62) + 1,
    i64::MAX as u64,
    1 << 63,
    (1 << 63) + 1,
    u64::MAX - 1,
    u64::MAX,
];
/// Texts that replace numbers in texts.
const TEXTS: [&str; 10] = [
    "0",
    "-1",
    "1000000000",
    "2147483648",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "1e308",
    "nan",
    "99999999999999999999",
];
/// Changes of one input, at most.
const CHANGES_MAX: u64 = 6;

/// Draws inputs. The same seed draws the same inputs.
#[derive(Debug)]
pub struct Mutator {
    random: u64,
}

impl Mutator {
    /// From a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { random: seed }
    }

    /// SplitMix64: neighbouring seeds give unrelated numbers.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is above 0.
    fn below(&mut self, n: usize) -> usize {
        (self.random() % n.max(1) as u64) as usize
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most + 1);
        (0..length).map(|_| self.random() as u8).collect()
    }

    /// A changed valid input; now and then arbitrary bytes.
    pub fn input(&mut self, valid: &[Vec<u8>]) -> Vec<u8> {
        if valid.is_empty() || self.below(16) == 0 {
            return self.bytes(600);
        }
        let seed = self.below(valid.len());
        let mut input = valid[seed].clone();
        for _ in 0..=self.random() % CHANGES_MAX {
            self.change(&mut input, valid);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, valid: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        let to = at + self.below((input.len() - at).min(64) + 1);
        match self.below(11) {
            0 => input.truncate(at),
            1 => _ = input.drain(at..to),
            2 => _ = input.splice(at..at, self.bytes(20)),
            3 => {
                // Repeat a part: a frame, an entry, an element.
                let part = input[at..to].to_vec();
                input.splice(at..at, part);
            }
            4 => {
                // Continue with the rest of another input.
                let other = self.below(valid.len());
                let from = self.below(valid[other].len() + 1);
                input.splice(at.., valid[other][from..].iter().copied());
            }
            5 => {
                // Append another input.
                let other = self.below(valid.len());
                input.extend_from_slice(&valid[other]);
            }
            6 => {
                let number = NUMBERS[self.below(NUMBERS.len())].to_le_bytes();
                let width = [1, 2, 4, 8][self.below(4)];
                let end = (at + width).min(input.len());
                input[at..end].copy_from_slice(&number[..end - at]);
            }
            7 => {
                // Replace a byte by a number as bincode writes large ones, in two, four or eight
                // bytes.
                let number = NUMBERS[self.below(NUMBERS.len())].to_le_bytes();
                let kind = self.below(3);
                let long =
                    std::iter::once(251 + kind as u8).chain(number[..2 << kind].iter().copied());
                let end = (at + 1).min(input.len());
                input.splice(at..end, long);
            }
            8 => {
                // Replace a number in a text by another one.
                let digits = |b: &u8| b.is_ascii_digit();
                let Some(from) = input[at..].iter().position(digits).map(|n| at + n) else {
                    return;
                };
                let end = input[from..]
                    .iter()
                    .position(|b| !digits(b))
                    .map_or(input.len(), |n| from + n);
                let text = TEXTS[self.below(TEXTS.len())];
                input.splice(from..end, text.bytes());
            }
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << self.below(8);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_draws_the_same_input_again_and_others_draw_others() {
        let valid = [b"$5\r\nhello\r\n".to_vec(), vec![7; 40]];
        let drawn: Vec<_> = (0..200)
            .map(|seed| Mutator::new(seed).input(&valid))
            .collect();
        assert_eq!(
            drawn,
            (0..200)
                .map(|seed| Mutator::new(seed).input(&valid))
                .collect::<Vec<_>>()
        );
        assert!(
            drawn.iter().collect::<BTreeSet<_>>().len() > 180,
            "they hardly differ"
        );
        assert!(
            drawn.iter().any(|input| input.len() > 51)
                && drawn.iter().any(|input| input.len() < 11)
        );
    }
}
