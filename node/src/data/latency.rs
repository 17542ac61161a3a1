//! How long commands and operations take: counted in classes, by family.
//!
//! No clock is read for each of them. The time of the pass in which one came is noted with it, and
//! the clock is read once in a pass for all that leave (`LatencyMeter`).

use crate::clock;
use doyen_engine::op::Work;
use doyen_gossip::Time;
use std::time::Duration;

/// Times are counted in this many classes. Each is twice as long as the one before, the first ends
/// at 1.024 µs, and the last has no end.
const CLASSES: usize = 24;
/// If there are more notes in one pass, they are counted at once: they take memory.
const NOTES_MAX: usize = 4096;

/// Times, by their classes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LatencyCounts {
    classes: [u64; CLASSES],
    nanos: u64,
}

/// The class of a time.
fn class(nanos: u64) -> usize {
    let units = nanos.saturating_sub(1) >> 10;
    ((u64::BITS - units.leading_zeros()) as usize).min(CLASSES - 1)
}

/// The longest time of a class, in nanoseconds.
const fn longest(class: usize) -> u64 {
    1 << (10 + class)
}

impl LatencyCounts {
    /// The longest time of each class. The last one has longer times as well.
    pub fn longest() -> impl ExactSizeIterator<Item = Duration> {
        (0..CLASSES).map(|class| Duration::from_nanos(longest(class)))
    }

    /// Counts `took`, `times` times.
    #[inline]
    pub fn count(&mut self, took: Duration, times: u64) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.classes[class(nanos)] += times;
        self.nanos = self.nanos.saturating_add(nanos.saturating_mul(times));
    }

    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &Self) {
        for (mine, other) in self.classes.iter_mut().zip(other.classes) {
            *mine += other;
        }
        self.nanos = self.nanos.saturating_add(other.nanos);
    }

    /// What was counted since `before`, an earlier state of the same counts.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = *self;
        for (mine, before) in since.classes.iter_mut().zip(before.classes) {
            *mine = mine.saturating_sub(before);
        }
        since.nanos = self.nanos.saturating_sub(before.nanos);
        since
    }

    /// How many times are counted in each class.
    #[must_use]
    pub const fn classes(&self) -> &[u64] {
        &self.classes
    }

    /// How many times are counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// The sum of all times.
    #[must_use]
    pub const fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// The time within which this part of all ended, for example 0.99. Within a class, times are
    /// taken to be spread evenly, as Prometheus does. `None`: nothing was counted.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let total = self.total();
        if total == 0 {
            return None;
        }
        let mut wanted = part.clamp(0.0, 1.0) * total as f64;
        let last = self.classes.iter().rposition(|n| *n > 0).unwrap_or(0);
        for (class, n) in self.classes[..=last].iter().enumerate() {
            let n = *n as f64;
            if n > 0.0 && (wanted <= n || class == last) {
                let from = if class == 0 { 0 } else { longest(class - 1) };
                let spread = (longest(class) - from) as f64;
                let within = spread * (wanted / n).clamp(0.0, 1.0);
                return Some(Duration::from_nanos(from + within as u64));
            }
            wanted -= n;
        }
        None
    }
}

/// A family of commands, or of operations of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandFamily {
    /// They read keys.
    Read,
    /// They write keys.
    Write,
    /// They run scripts, or are about them.
    Script,
    /// They make a transaction.
    Transaction,
    /// All others.
    Other,
}

impl CommandFamily {
    /// Each with its name.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Read, "read"),
        (Self::Write, "write"),
        (Self::Script, "script"),
        (Self::Transaction, "transaction"),
        (Self::Other, "other"),
    ];

    /// The family of an operation of the library.
    pub(super) fn of(work: &Work) -> Self {
        match work {
            Work::Key(_) if work.is_write() => Self::Write,
            Work::Key(_) => Self::Read,
            Work::Script(_) => Self::Script,
            Work::Transaction(_) => Self::Transaction,
            // It is on all keys of a partition.
            Work::Partition(_) => Self::Other,
        }
    }
}

/// Latencies by family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FamilyLatencies([LatencyCounts; CommandFamily::ALL.len()]);

impl FamilyLatencies {
    /// Those of a family.
    #[must_use]
    pub const fn of(&self, family: CommandFamily) -> &LatencyCounts {
        &self.0[family as usize]
    }

    /// Those of all families together.
    #[must_use]
    pub fn all(&self) -> LatencyCounts {
        let mut all = LatencyCounts::default();
        self.0.iter().for_each(|counts| all.add(counts));
        all
    }

    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &Self) {
        for (mine, other) in self.0.iter_mut().zip(&other.0) {
            mine.add(other);
        }
    }
}

/// Counts the latencies of a data thread.
#[derive(Debug, Default)]
pub(crate) struct LatencyMeter {
    /// What leaves in this pass.
    notes: Vec<LatencyNote>,
    counts: FamilyLatencies,
}

/// Some that came in the same pass, and leave in the same pass.
#[derive(Debug)]
struct LatencyNote {
    family: CommandFamily,
    came: Time,
    times: u64,
}

impl LatencyMeter {
    /// `times` leave in this pass. They came in the pass that began at `came`.
    #[inline]
    pub(crate) fn note(&mut self, family: CommandFamily, came: Time, times: u64) {
        if let Some(last) = self.notes.last_mut()
            && last.family == family
            && last.came == came
        {
            last.times += times;
            return;
        }
        if self.notes.len() >= NOTES_MAX {
            self.count();
        }
        self.notes.push(LatencyNote {
            family,
            came,
            times,
        });
    }

    /// What was noted has left.
    pub(crate) fn count(&mut self) {
        if self.notes.is_empty() {
            return;
        }
        let now = clock::now();
        for note in self.notes.drain(..) {
            self.counts.0[note.family as usize].count(now.since(note.came), note.times);
        }
    }

    pub(crate) const fn counts(&self) -> &FamilyLatencies {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counted(nanos: &[u64]) -> LatencyCounts {
        let mut counts = LatencyCounts::default();
        for nanos in nanos {
            counts.count(Duration::from_nanos(*nanos), 1);
        }
        counts
    }

    #[test]
    fn classes_double() {
        assert_eq!(
            [0, 1, 1024, 1025, 2048, 2049, u64::MAX].map(class),
            [0, 0, 0, 1, 1, 2, CLASSES - 1]
        );
        let longest: Vec<_> = LatencyCounts::longest().collect();
        assert_eq!(longest[0], Duration::from_nanos(1024));
        assert!(longest.windows(2).all(|pair| pair[1] == 2 * pair[0]));
        assert!(longest[CLASSES - 1] > Duration::from_secs(8));
    }

    #[test]
    fn times_are_spread_evenly_within_a_class() {
        assert_eq!(LatencyCounts::default().quantile(0.5), None);
        // Four in the class from 8192 ns to 16,384 ns, and one far above.
        let counts = counted(&[9_000, 9_000, 10_000, 16_000, 3_000_000]);
        let at = |part| counts.quantile(part).expect("five are counted").as_nanos();
        assert_eq!(at(0.0), 8192);
        assert_eq!(at(0.4), 8192 + 4096);
        assert_eq!(at(0.8), 16_384);
        assert_eq!(at(1.0), 1 << 22);
        assert_eq!(counts.sum(), Duration::from_nanos(3_044_000));
    }

    #[test]
    fn what_leaves_together_is_counted_with_one_reading_of_the_clock() {
        let mut meter = LatencyMeter::default();
        let came = clock::now();
        for _ in 0..100 {
            meter.note(CommandFamily::Read, came, 2);
        }
        meter.note(CommandFamily::Write, Time::ZERO, 1);
        assert_eq!(meter.notes.len(), 2);
        assert_eq!(meter.counts().all().total(), 0, "they have not left");
        meter.count();
        let reads = meter.counts().of(CommandFamily::Read);
        let classes = reads.classes().iter().filter(|n| **n > 0).count();
        assert_eq!((reads.total(), classes), (200, 1));
        // The clock began at the start of the machine.
        assert_eq!(meter.counts().of(CommandFamily::Write).total(), 1);
        for n in 0..2 * NOTES_MAX as u64 {
            meter.note(CommandFamily::Other, Time(n), 1);
        }
        assert!(meter.notes.len() <= NOTES_MAX, "notes take bounded memory");
        meter.count();
        let others = meter.counts().of(CommandFamily::Other).total();
        assert_eq!(others, 2 * NOTES_MAX as u64);
    }

    proptest! {
        /// A quantile lies in the class of the time that has its rank.
        #[test]
        fn a_quantile_lies_in_the_class_of_its_rank(
            mut nanos in proptest::collection::vec(0..8_000_000_000_u64, 1..200),
            part in 0.0..=1.0_f64,
        ) {
            let counts = counted(&nanos);
            nanos.sort_unstable();
            let rank = (part * nanos.len() as f64).ceil().max(1.0) as usize - 1;
            let class = class(nanos[rank.min(nanos.len() - 1)]);
            let from = if class == 0 { 0 } else { longest(class - 1) };
            let found = u64::try_from(counts.quantile(part).unwrap().as_nanos()).unwrap();
            prop_assert!((from..=longest(class)).contains(&found), "{found} {from}");
        }

        /// Quantiles rise with the part, and the difference of two states is what came between.
        #[test]
        fn quantiles_rise_and_states_differ_by_what_came_between(
            before in proptest::collection::vec(any::<u32>(), 0..50),
            after in proptest::collection::vec(any::<u32>(), 1..50),
            parts in (0.0..=1.0_f64, 0.0..=1.0_f64),
        ) {
            let wide = |all: &[u32]| all.iter().map(|n| u64::from(*n)).collect::<Vec<_>>();
            let (before, between) = (counted(&wide(&before)), counted(&wide(&after)));
            let mut all = before;
            all.add(&between);
            prop_assert_eq!(all.since(&before), between);
            prop_assert_eq!(all.total(), before.total() + between.total());
            let (low, high) = (parts.0.min(parts.1), parts.0.max(parts.1));
            prop_assert!(all.quantile(low) <= all.quantile(high));
        }
    }
}
