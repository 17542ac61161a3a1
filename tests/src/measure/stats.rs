//! Medians, ratios of runs of the same round, and whether a drop can be noise.

/// The smallest drop of a median that counts, however certain it is: another build of the same code
/// may cost this much.
pub const FLOOR: f64 = 0.05;
/// A drop counts only if unchanged code would rank as low with at most this probability. Five runs
/// that are all below five others have 1 in 252.
pub const CHANCE_MAX: f64 = 0.005;

/// The median. Of an even number of values, it is the mean of the two in the middle. `None` if
/// there are no values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let (upper, lower) = (
        sorted.get(sorted.len() / 2)?,
        sorted.get((sorted.len() - 1) / 2)?,
    );
    Some((upper + lower) / 2.0)
}

/// The median for a table: not a number if there are no values.
#[must_use]
pub fn typical(values: &[f64]) -> f64 {
    median(values).unwrap_or(f64::NAN)
}

/// The largest value; not a number if there are none.
#[must_use]
pub fn worst(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::max)
}

/// The smallest and the largest value. `None` if there are no values.
#[must_use]
pub fn spread(values: &[f64]) -> Option<(f64, f64)> {
    let finite = || values.iter().copied().filter(|v| v.is_finite());
    Some((
        finite().min_by(f64::total_cmp)?,
        finite().max_by(f64::total_cmp)?,
    ))
}

/// Ratios of `ours` to `theirs`, round by round. A round counts only if both have a value.
#[must_use]
pub fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    ours.iter()
        .zip(theirs)
        .map(|(o, t)| o / t)
        .filter(|r| r.is_finite() && *r > 0.0)
        .collect()
}

/// The probability that `low` ranks this low among `reference` if both come from the same
/// distribution: the exact one-sided test of Mann and Whitney. Equal values speak against a drop.
#[must_use]
pub fn chance_of_ranking_as_low(low: &[f64], reference: &[f64]) -> f64 {
    let (m, n) = (low.len(), reference.len());
    if m == 0 || n == 0 {
        return 1.0;
    }
    let above = low
        .iter()
        .map(|l| reference.iter().filter(|r| l >= *r).count())
        .sum::<usize>();
    // ways[i][j][u]: in how many orders of i of ours and j of theirs do u pairs have ours above
    // theirs? Either the largest of all is ours, above all j of theirs, or it is theirs, which adds
    // no pair.
    let mut ways = vec![vec![vec![0.0; m * n + 1]; n + 1]; m + 1];
    for i in 0..=m {
        for j in 0..=n {
            for u in 0..=i * j {
                ways[i][j][u] = if i == 0 || j == 0 {
                    1.0
                } else {
                    let ours_is_largest = if u >= j { ways[i - 1][j][u - j] } else { 0.0 };
                    ours_is_largest + ways[i][j - 1][u]
                };
            }
        }
    }
    let all: f64 = ways[m][n].iter().sum();
    ways[m][n][..=above].iter().sum::<f64>() / all
}

/// Ratios of this run beside committed ones. Larger is better.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Median of the committed ratios.
    pub committed: f64,
    /// Median of this run's.
    pub now: f64,
    /// See [`chance_of_ranking_as_low`].
    pub chance: f64,
}

impl Comparison {
    /// `None` if one of them is empty.
    #[must_use]
    pub fn of(committed: &[f64], now: &[f64]) -> Option<Self> {
        Some(Self {
            committed: median(committed)?,
            now: median(now)?,
            chance: chance_of_ranking_as_low(now, committed),
        })
    }

    /// The ratio of this run's median to the committed one.
    #[must_use]
    pub fn change(&self) -> f64 {
        self.now / self.committed
    }

    /// Whether the median is lower by more than [`FLOOR`], and noise is no explanation.
    #[must_use]
    pub fn dropped(&self) -> bool {
        self.change() < 1.0 - FLOOR && self.chance <= CHANCE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_does_not_depend_on_the_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[f64::NAN, 5.0]), Some(5.0));
    }

    #[test]
    fn the_spread_is_from_the_smallest_to_the_largest() {
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some((1.0, 3.0)));
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn ratios_pair_runs_of_the_same_round() {
        assert_eq!(ratios(&[10.0, 30.0, 5.0], &[5.0, 10.0, 0.0]), [2.0, 3.0]);
        assert_eq!(ratios(&[1.0, f64::NAN], &[2.0, 2.0]), [0.5]);
    }

    #[test]
    fn ranks_have_the_probabilities_of_published_tables() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        // All five below all five: one order of 252.
        assert!(near(
            chance_of_ranking_as_low(&[1., 2., 3., 4., 5.], &[6., 7., 8., 9., 10.]),
            1.0 / 252.0
        ));
        // One pair the other way: two orders (U <= 1).
        assert!(near(
            chance_of_ranking_as_low(&[1., 2., 3., 4., 6.], &[5., 7., 8., 9., 10.]),
            2.0 / 252.0
        ));
        // Three and four, all below: one order of 35. U <= 2 holds for 1 + 1 + 2 of them.
        assert!(near(
            chance_of_ranking_as_low(&[1., 2., 3.], &[4., 5., 6., 7.]),
            1.0 / 35.0
        ));
        assert!(near(
            chance_of_ranking_as_low(&[1., 2., 6.], &[3., 5., 7., 8.]),
            4.0 / 35.0
        ));
        // All above: the probability to rank as low is 1.
        assert!(near(chance_of_ranking_as_low(&[8., 9.], &[1., 2.]), 1.0));
        assert!(near(chance_of_ranking_as_low(&[], &[1.]), 1.0));
    }

    #[test]
    fn equal_values_speak_against_a_drop() {
        assert!(chance_of_ranking_as_low(&[1.0; 5], &[1.0; 5]) > 0.99);
    }

    #[test]
    fn a_clear_drop_counts() {
        let comparison = Comparison::of(
            &[1.00, 1.02, 0.98, 1.01, 0.99],
            &[0.90, 0.91, 0.89, 0.92, 0.90],
        )
        .expect("values");
        assert!(comparison.dropped(), "{comparison:?}");
    }

    #[test]
    fn a_certain_drop_below_the_floor_does_not_count() {
        let comparison = Comparison::of(
            &[1.000, 1.001, 0.999, 1.002, 0.998],
            &[0.970, 0.971, 0.969, 0.972, 0.970],
        )
        .expect("values");
        assert!(comparison.chance <= CHANCE_MAX);
        assert!(!comparison.dropped(), "{comparison:?}");
    }

    #[test]
    fn a_large_drop_that_noise_explains_does_not_count() {
        let comparison = Comparison::of(&[1.3, 0.7, 1.0, 1.1, 0.8], &[0.9, 0.6, 1.2, 0.75, 0.85])
            .expect("values");
        assert!(comparison.change() < 0.95);
        assert!(!comparison.dropped(), "{comparison:?}");
    }

    #[test]
    fn a_gain_is_no_drop() {
        let comparison =
            Comparison::of(&[0.90, 0.91, 0.89, 0.92, 0.90], &[1.0; 5]).expect("values");
        assert!(!comparison.dropped());
    }
}
