//! Keys: their names, sizes and loads.

use super::strategy::mixed;

/// The number of keys, at most.
pub(super) const KEYS_MAX: usize = 20_000_000;

/// The names and loads of simulated keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SimulatedDistribution {
    /// Random names with equal loads.
    Uniform,
    /// Random names; the load of the `n`-th hottest is in proportion to `1 / n^exponent`.
    Zipf(f64),
    /// Numbers that count up, with equal loads.
    Sequential,
    /// Times that count up. The newest have the most load; it halves with each fiftieth of all
    /// keys.
    TimeSeries,
}

/// A key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SimulatedKey<'a> {
    /// Its name.
    pub(super) name: &'a [u8],
    /// Bytes of key and value.
    pub(super) size: u64,
    /// Its load, in any unit.
    pub(super) load: f64,
}

/// Many keys. All names are in one buffer, so that millions of keys fit.
#[derive(Debug, Clone, Default)]
pub(super) struct SimulatedKeys {
    names: Vec<u8>,
    ends: Vec<usize>,
    sizes: Vec<u64>,
    loads: Vec<f64>,
}

impl SimulatedKeys {
    /// Draws `count` keys from a seed, each of 64 to 4096 bytes. Sizes are spread evenly over the
    /// factors of two.
    #[must_use]
    pub(super) fn drawn(count: usize, distribution: SimulatedDistribution, seed: u64) -> Self {
        let mut keys = Self::default();
        for number in 0..count.min(KEYS_MAX) as u64 {
            let draw = mixed(seed, number);
            let name = match distribution {
                SimulatedDistribution::Uniform | SimulatedDistribution::Zipf(_) => {
                    format!("user:{:012}", draw % 1_000_000_000_000)
                }
                SimulatedDistribution::Sequential => format!("order:{number:012}"),
                SimulatedDistribution::TimeSeries => {
                    format!(
                        "2026-01-{:02}T{:09}:sensor{:02}",
                        number / 1_000_000_000 + 1,
                        number % 1_000_000_000,
                        draw % 100
                    )
                }
            };
            let load = match distribution {
                SimulatedDistribution::Uniform | SimulatedDistribution::Sequential => 1.0,
                // Names are drawn at random, so the loads need no shuffling.
                SimulatedDistribution::Zipf(exponent) => (number as f64 + 1.0).powf(-exponent),
                SimulatedDistribution::TimeSeries => {
                    (-((count as u64 - 1 - number) as f64) * 50.0 / count as f64).exp2()
                }
            };
            let size = 64.0 * (6.0 * unit(mixed(seed, !number))).exp2();
            keys.push(name.as_bytes(), size as u64, load);
        }
        keys
    }

    /// Adds a key.
    pub(super) fn push(&mut self, name: &[u8], size: u64, load: f64) {
        self.names.extend_from_slice(name);
        self.ends.push(self.names.len());
        self.sizes.push(size);
        self.loads.push(load);
    }

    /// The number of keys.
    #[must_use]
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no keys.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The key of this number, which is below [`Self::len`].
    #[must_use]
    pub(super) fn key(&self, number: usize) -> SimulatedKey<'_> {
        let begin = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        SimulatedKey {
            name: &self.names[begin..self.ends[number]],
            size: self.sizes[number],
            load: self.loads[number],
        }
    }

    /// All keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = SimulatedKey<'_>> {
        (0..self.len()).map(|number| self.key(number))
    }

    /// These keys, with the hottest one replaced by `parts` keys that share its load: `name#0`,
    /// `name#1` and so on.
    #[must_use]
    pub(super) fn with_hottest_salted(&self, parts: u32) -> Self {
        let Some(hottest) =
            (0..self.len()).max_by(|a, b| self.loads[*a].total_cmp(&self.loads[*b]))
        else {
            return Self::default();
        };
        let mut keys = self.clone();
        keys.loads[hottest] = 0.0;
        let SimulatedKey { name, size, load } = self.key(hottest);
        for part in 0..parts {
            keys.push(
                &[name, format!("#{part}").as_bytes()].concat(),
                size,
                load / f64::from(parts),
            );
        }
        keys
    }
}

/// Maps a draw to the interval from 0 to 1.
fn unit(draw: u64) -> f64 {
    (draw >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_keys_again() {
        let names = |seed| {
            SimulatedKeys::drawn(100, SimulatedDistribution::Zipf(0.99), seed)
                .iter()
                .map(|k| (k.name.to_vec(), k.size))
                .collect::<Vec<_>>()
        };
        assert_eq!((names(1) == names(1), names(1) == names(2)), (true, false));
        assert!(names(1).iter().all(|(_, size)| (64..=4096).contains(size)));
    }

    #[test]
    fn loads_follow_the_distribution() {
        let loads = |distribution| {
            SimulatedKeys::drawn(1000, distribution, 7)
                .iter()
                .map(|k| k.load)
                .collect::<Vec<f64>>()
        };
        assert!(
            loads(SimulatedDistribution::Sequential)
                .iter()
                .all(|load| *load == 1.0)
        );
        let zipf = loads(SimulatedDistribution::Zipf(1.0));
        assert!((zipf[0] / zipf[9] - 10.0).abs() < 1e-9);
        let newest = loads(SimulatedDistribution::TimeSeries);
        assert!((newest[999] / newest[979] - 2.0).abs() < 1e-9);
    }

    #[test]
    fn ordered_names_are_in_order() {
        for distribution in [
            SimulatedDistribution::Sequential,
            SimulatedDistribution::TimeSeries,
        ] {
            assert!(
                SimulatedKeys::drawn(2000, distribution, 7)
                    .iter()
                    .map(|k| k.name.to_vec())
                    .is_sorted()
            );
        }
    }

    #[test]
    fn salting_divides_the_load_of_the_hottest_key() {
        let mut keys = SimulatedKeys::default();
        keys.push(b"cold", 10, 1.0);
        keys.push(b"hot", 20, 8.0);
        let salted = keys.with_hottest_salted(4);
        let told: Vec<(&[u8], f64)> = salted.iter().map(|k| (k.name, k.load)).collect();
        assert_eq!(
            told,
            [
                (&b"cold"[..], 1.0),
                (b"hot", 0.0),
                (b"hot#0", 2.0),
                (b"hot#1", 2.0),
                (b"hot#2", 2.0),
                (b"hot#3", 2.0)
            ]
        );
        assert!(SimulatedKeys::default().with_hottest_salted(4).is_empty());
    }
}
