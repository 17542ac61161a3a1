//! Counters of one partition, and the rates that follow from them.

use super::sample::Sample;
use crate::id::MapId;
use std::time::Duration;

/// The counters that operations add to. Nothing here reads a clock or allocates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadCounters {
    /// Operations that read.
    pub reads: u64,
    /// Operations that write.
    pub writes: u64,
    /// Bytes answered.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// The time over which rates decay.
const DECAY: Duration = Duration::from_secs(10);
/// One of this many operations puts its key into the sample. A power of two.
const SAMPLED: u64 = 64;
/// The rate of operations a second from which keys are sampled: a less busy partition needs no
/// memory for that. Below half of it, the sample is out of date.
const SAMPLED_FROM: f64 = 100.0;
/// If a counter should have risen by this much and did not rise, the requests have stopped, and its
/// rate decays this many times as fast. Chance is as quiet once in three thousand times.
const QUIET: f64 = 8.0;
const STOPPED: i32 = 4;
/// A lower rate counts as none. It is far below one, because there are many partitions.
const LEAST: f64 = 0.01;

/// One partition's counters and rates.
#[derive(Debug, Clone, Default)]
pub struct Meter {
    counted: LoadCounters,
    /// The counters at the last look, from which rates are computed.
    looked: LoadCounters,
    /// Rates per second, with decay.
    rates: [f64; 4],
    sample: Option<Box<Sample>>,
}

impl Meter {
    /// Counts a read and the bytes answered. Returns true if its key is to be sampled.
    #[inline]
    pub const fn read(&mut self, bytes: usize) -> bool {
        self.counted.reads += 1;
        self.counted.read_bytes = self.counted.read_bytes.saturating_add(bytes as u64);
        self.counted
            .reads
            .wrapping_add(self.counted.writes)
            .is_multiple_of(SAMPLED)
    }

    /// Counts a write and the bytes written. Returns true if its key is to be sampled.
    #[inline]
    pub const fn write(&mut self, bytes: usize) -> bool {
        self.counted.writes += 1;
        self.counted.written_bytes = self.counted.written_bytes.saturating_add(bytes as u64);
        self.counted
            .reads
            .wrapping_add(self.counted.writes)
            .is_multiple_of(SAMPLED)
    }

    /// Puts a key into the sample, if the partition is busy enough to need one.
    #[cold]
    pub fn sample(&mut self, map: MapId, key: &[u8]) {
        if self.sample.is_none() && self.rates[0] + self.rates[1] < SAMPLED_FROM {
            return;
        }
        let sample = self.sample.get_or_insert_default();
        sample.take(self.counted.reads + self.counted.writes, map, key);
    }

    /// How the requests spread over keys, as far as they were sampled.
    #[must_use]
    pub fn sampled(&self) -> Option<&Sample> {
        self.sample.as_deref()
    }

    /// The counts so far.
    #[must_use]
    pub const fn counted(&self) -> LoadCounters {
        self.counted
    }

    /// Whether all rates are zero and stay so.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.counted == self.looked && self.rates.iter().all(|rate| *rate < LEAST)
    }

    /// The rates per second, this long after the last look.
    pub fn look(&mut self, since: Duration) -> Rates {
        let seconds = since.as_secs_f64();
        let (now, then) = (
            self.counted,
            std::mem::replace(&mut self.looked, self.counted),
        );
        let counted = [
            now.reads - then.reads,
            now.writes - then.writes,
            now.read_bytes - then.read_bytes,
            now.written_bytes - then.written_bytes,
        ];
        if seconds > 0.0 {
            let decayed = (-seconds / DECAY.as_secs_f64()).exp();
            let stopped = now == then && (self.rates[0] + self.rates[1]) * seconds >= QUIET;
            let kept = if stopped {
                decayed.powi(STOPPED)
            } else {
                decayed
            };
            for (rate, counted) in self.rates.iter_mut().zip(counted) {
                *rate = *rate * kept + counted as f64 / seconds * (1.0 - kept);
            }
        }
        if self.is_idle() {
            self.rates = [0.0; 4];
        }
        if self.rates[0] + self.rates[1] < SAMPLED_FROM / 2.0 {
            self.sample = None;
        }
        Rates(self.rates)
    }
}

/// The requests to a partition per second: reads, writes, bytes read, bytes written.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rates([f64; 4]);

/// Rounds the rates of one partition after another so that their sum is right. With a thousand
/// partitions that each get one request in three seconds, each rate would round to nothing.
#[derive(Debug, Default)]
pub struct Rounding {
    left: [f64; 4],
}

impl Rounding {
    /// As whole numbers.
    pub fn round(&mut self, Rates(rates): Rates) -> LoadCounters {
        let mut whole = [0_u64; 4];
        for ((whole, left), rate) in whole.iter_mut().zip(&mut self.left).zip(rates) {
            // A rate of nothing stays nothing.
            if rate >= LEAST {
                let rounded = (rate + *left).round().max(0.0);
                (*whole, *left) = (rounded as u64, *left + rate - rounded);
            }
        }
        let [reads, writes, read_bytes, written_bytes] = whole;
        LoadCounters {
            reads,
            writes,
            read_bytes,
            written_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn rates_follow_the_counters_and_decay() {
        let mut meter = Meter::default();
        let mut rates = LoadCounters::default();
        for _ in 0..60 {
            (0..1000).for_each(|_| _ = meter.read(100));
            (0..200).for_each(|_| _ = meter.write(10));
            rates = looked(&mut meter, SECOND);
        }
        assert!(
            (990..=1000).contains(&rates.reads) && (195..=200).contains(&rates.writes),
            "{rates:?}"
        );
        assert!(
            (99_000..=100_000).contains(&rates.read_bytes)
                && (1_950..=2_000).contains(&rates.written_bytes),
            "{rates:?}"
        );
        (0..100).for_each(|_| _ = meter.read(0));
        let after = looked(&mut meter, DECAY);
        assert!(
            (355..=390).contains(&after.reads),
            "a third is left after the time of decay: {after:?}"
        );
        let stopped = looked(&mut meter, SECOND);
        assert!(
            (230..=262).contains(&stopped.reads),
            "where nothing comes any more, it takes a quarter of that time: {stopped:?}"
        );
        (0..20).for_each(|_| _ = meter.look(DECAY));
        assert!(meter.is_idle() && meter.sampled().is_none());
    }

    #[test]
    fn one_key_of_many_operations_is_sampled() {
        let mut meter = Meter::default();
        let sampled = (0..6400)
            .filter(|n| {
                if n % 2 == 0 {
                    meter.read(1)
                } else {
                    meter.write(1)
                }
            })
            .count();
        assert_eq!(sampled, 100);
    }

    /// Each rate was rounded to nothing, and so was their sum.
    #[test]
    fn many_partitions_that_are_asked_for_little_are_asked_for_much() {
        let mut meters = vec![Meter::default(); 1000];
        let mut all = 0;
        for second in 0..60 {
            let mut rounding = Rounding::default();
            all = 0;
            for (n, meter) in meters.iter_mut().enumerate() {
                if (n + second) % 3 == 0 {
                    meter.read(1);
                }
                all += rounding.round(meter.look(SECOND)).reads;
            }
        }
        assert!((325..=340).contains(&all), "{all}");
        let left = meters
            .iter_mut()
            .map(|meter| (0..200).any(|_| meter.look(SECOND) == Rates::default()))
            .filter(|idle| !idle)
            .count();
        assert_eq!(left, 0, "and nothing in the end");
    }

    fn looked(meter: &mut Meter, since: Duration) -> LoadCounters {
        Rounding::default().round(meter.look(since))
    }

    proptest! {
        #[test]
        fn a_rate_lies_within_the_counted_rates(
            counts in prop::collection::vec(0u64..5000, 1..40),
            millis in 100u64..5000,
        ) {
            let mut meter = Meter::default();
            let most = counts.iter().max().copied().unwrap_or(0) as f64 * 1000.0 / millis as f64;
            for count in &counts {
                (0..*count).for_each(|_| _ = meter.read(0));
                let rates = looked(&mut meter, Duration::from_millis(millis));
                prop_assert!(rates.reads as f64 <= most + 1.0);
                prop_assert_eq!((rates.writes, rates.read_bytes), (0, 0));
            }
        }
    }
}
