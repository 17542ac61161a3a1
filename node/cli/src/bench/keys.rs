//! The keys: names of one length, drawn evenly or by Zipf's law.

use rand::Rng;
use rand::distr::{Distribution, Uniform};
use rand_distr::Zipf;

/// The name of the first key. All names have its length, so all commands have one length as well.
pub(super) const FIRST: &[u8; 16] = b"key:000000000000";
/// Where the digits of a name begin.
pub(super) const DIGITS_AT: usize = 4;
/// The number of names that the digits can tell apart.
pub(super) const KEYS_MAX: u64 = 1_000_000_000_000;

/// The name of a key.
pub(super) fn name(key: u64) -> [u8; FIRST.len()] {
    let mut name = *FIRST;
    write_digits(key, &mut name[DIGITS_AT..]);
    name
}

/// Writes the number of a key over digits that are all zero.
pub(super) fn write_digits(mut key: u64, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        if key == 0 {
            break;
        }
        *digit = b'0' + (key % 10) as u8;
        key /= 10;
    }
}

/// How keys are drawn.
#[derive(Debug, Clone, Copy)]
pub(super) enum BenchKeys {
    /// Every key equally often.
    Uniform(Uniform<u64>),
    /// Key `k` in proportion to `1 / (k + 1)^exponent`: the first key is the hottest.
    Zipf(Zipf<f64>),
}

impl BenchKeys {
    /// Draws from `keys` keys evenly; `keys` is at least 1.
    pub(super) fn uniform(keys: u64) -> Self {
        // The range is not empty: it has at least one key.
        Self::Uniform(Uniform::new(0, keys.max(1)).expect("there are keys"))
    }

    /// Draws from `keys` keys by rank, by Zipf's law.
    ///
    /// # Errors
    /// The exponent is not a number from 0 on.
    pub(super) fn zipf(keys: u64, exponent: f64) -> Result<Self, String> {
        // Zipf::new accepts infinity.
        let zipf = if exponent.is_finite() {
            Zipf::new(keys.max(1) as f64, exponent).ok()
        } else {
            None
        };
        zipf.map(Self::Zipf).ok_or_else(|| {
            format!("--exponent {exponent} is not an exponent of Zipf's law: give 0 or more")
        })
    }

    pub(super) fn draw(&self, rng: &mut impl Rng) -> u64 {
        match self {
            Self::Uniform(uniform) => uniform.sample(rng),
            Self::Zipf(zipf) => zipf.sample(rng) as u64 - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    const DRAWS: usize = 200_000;

    fn counts(keys: BenchKeys, n: usize) -> Vec<usize> {
        let mut rng = StdRng::seed_from_u64(7);
        let mut counts = vec![0; n];
        (0..DRAWS).for_each(|_| counts[keys.draw(&mut rng) as usize] += 1);
        counts
    }

    #[test]
    fn names_have_one_length() {
        assert_eq!(&name(0), b"key:000000000000");
        assert_eq!(&name(12_345), b"key:000000012345");
        assert_eq!(&name(KEYS_MAX - 1), b"key:999999999999");
    }

    #[test]
    fn zipf_draws_ranks_as_often_as_the_law_says() {
        for (n, exponent) in [(1000, 0.99), (1000, 1.0), (100, 1.5), (10, 0.0)] {
            let counts = counts(BenchKeys::zipf(n as u64, exponent).expect("an exponent"), n);
            let weight = |rank: usize| (rank as f64).powf(-exponent);
            let all: f64 = (1..=n).map(weight).sum();
            for rank in [1, 2, 5, 10] {
                let (drawn, expected) =
                    (counts[rank - 1] as f64, DRAWS as f64 * weight(rank) / all);
                // Five standard deviations.
                assert!(
                    (drawn - expected).abs() < 5.0 * expected.sqrt(),
                    "n {n}, exponent {exponent}, rank {rank}: {drawn}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn uniform_draws_all_keys_equally_often() {
        for drawn in counts(BenchKeys::uniform(10), 10) {
            assert!(
                (drawn as f64 - DRAWS as f64 / 10.0).abs() < 1000.0,
                "{drawn}"
            );
        }
    }

    #[test]
    fn one_key_is_enough() {
        let mut rng = StdRng::seed_from_u64(7);
        assert!((0..100).all(|_| BenchKeys::uniform(1).draw(&mut rng) == 0));
        assert!((0..100).all(|_| {
            BenchKeys::zipf(1, 0.99)
                .expect("an exponent")
                .draw(&mut rng)
                == 0
        }));
    }

    #[test]
    fn invalid_exponents_are_refused() {
        for wrong in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(BenchKeys::zipf(10, wrong).is_err_and(|why| why.contains("--exponent")));
        }
    }
}
