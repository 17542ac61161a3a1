//! The speed of copying: the fastest that clients do not notice, or what an operator has set.
//!
//! ```text
//!   what is seen                        what copies do
//!   answers take longer than normal,    half as fast
//!     by ratio and by gap (p99)
//!   more than one in a hundred fails    pause
//!   others want the processor, or       a little slower
//!     answers take a little longer
//!   none of these                       faster; without clients, at will
//! ```
//! If copies are missing, the pace never falls below a gigabyte a minute. Each end keeps its own
//! pace: the source with what it sends, the target with what it acknowledges, because the source
//! sends little more than that.

use doyen_gossip::Time;
use doyen_placement::MoveRate;
use std::time::Duration;

/// Time between two judgements. It is longer if there are fewer answers than a p99 needs.
const WINDOW: Duration = Duration::from_millis(250);
const ANSWERS_ENOUGH: u32 = 500;
/// The longest time between two judgements.
const WINDOW_MAX: Duration = Duration::from_secs(1);
/// The pace at which copies begin while clients are active, and the slowest pace, in bytes a
/// second.
const BEGIN: u64 = 8 << 20;
const LEAST: u64 = 1 << 20;
/// The slowest pace while copies are missing: the longer that lasts, the likelier another failure
/// loses data.
const REPAIR: u64 = 24 << 20;
/// Practically unlimited.
const MOST: u64 = 16 << 30;
/// With fewer answers than this in a window, its p99 says little: copies are never slower then than
/// they begin.
const ANSWERS_LEAST: u32 = 50;
/// Answers are late if they take this much longer than normal, by ratio, in percent, and by gap.
const LATE: Longer = Longer {
    percent: 150,
    gap: Duration::from_micros(300),
};
/// Answers are a little late. A p99 varies by a quarter without a cause. So one window must not
/// weigh much, and copies go so fast that every other window stays below this.
const LATISH: Longer = Longer {
    percent: 125,
    gap: Duration::from_micros(100),
};
/// How many milliseconds' worth of the pace may be sent at once. More would delay clients all at
/// once.
const BURST: u64 = 10;
/// How many milliseconds' worth of the pace one part of a snapshot is, and the smallest part. A
/// receiver does nothing else while it handles a part. Of two processes with the same share of a
/// processor, the one that uses it in smaller pieces disturbs less.
const PART: u64 = 2;
const PART_LEAST: u64 = 8 << 10;

/// More load makes answers take longer, too, and copies would crawl until they end. So at the
/// slowest pace, each late window moves what is normal towards itself by this part at most.
const CREEP: u32 = 64;
/// If no pace was set, a large part delays the next ones by this at most: a source gives up a
/// learner that acknowledges nothing for long (`copying`), and one value may be all that comes in
/// seconds.
const DEBT_MAX: Duration = Duration::from_secs(2);

/// How much longer than normal.
struct Longer {
    percent: u128,
    gap: Duration,
}

impl Longer {
    fn is(&self, p99: Duration, normal: Duration) -> bool {
        p99.as_micros() * 100 > normal.as_micros() * self.percent && p99 > normal + self.gap
    }
}

/// The pace of one data thread.
#[derive(Debug)]
pub(crate) struct CopyRate {
    /// This thread's part of the pace that an operator has set.
    fixed: Option<u64>,
    /// The present pace, in bytes a second.
    allowed: u64,
    /// There were no operations in the window before.
    quiet: bool,
    sent: Bucket,
    taken: Bucket,
    answers: LatencyHistogram,
    failed: u32,
    /// The p99 of answers while nothing is copied.
    normal: Option<Duration>,
    /// Whether `normal` is the p99 of a window with copies, because there was no other.
    assumed: bool,
    /// Something was copied in this window.
    copied: bool,
    began: Time,
    /// Other processes want the processor as well.
    short_of_time: bool,
    /// The copies replace missing ones.
    repairing: bool,
}

/// How many bytes may pass.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// If it is negative, too many bytes have passed: by its absolute value.
    left: i64,
    filled: Time,
}

impl Bucket {
    fn fill(&mut self, now: Time, rate: u64) {
        let micros = u64::try_from(now.since(self.filled).as_micros())
            .unwrap_or(u64::MAX)
            .min(10_000_000);
        let added =
            i64::try_from(u128::from(rate) * u128::from(micros) / 1_000_000).unwrap_or(i64::MAX);
        if added > 0 {
            self.left = self
                .left
                .saturating_add(added)
                .min(i64::try_from(rate / 1000 * BURST).unwrap_or(i64::MAX));
            self.filled = now;
        }
    }

    fn take(&mut self, bytes: usize) {
        self.left = self
            .left
            .saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// When the next bytes may pass.
    fn next(&self, now: Time, rate: u64) -> Time {
        let lacking = u128::from(self.left.min(0).unsigned_abs()) + 1;
        let micros = lacking * 1_000_000 / u128::from(rate.max(1)) + 1;
        now + Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX).min(1_000_000))
    }
}

impl CopyRate {
    pub(crate) fn new(now: Time) -> Self {
        let bucket = Bucket {
            left: 0,
            filled: now,
        };
        Self {
            fixed: None,
            // There were no operations yet.
            allowed: MOST,
            quiet: true,
            sent: bucket,
            taken: bucket,
            answers: LatencyHistogram::default(),
            failed: 0,
            normal: None,
            assumed: false,
            copied: false,
            began: now,
            short_of_time: false,
            repairing: false,
        }
    }

    /// Sets the pace of the node. Each of its threads has a part of it.
    pub(crate) fn set(&mut self, rate: MoveRate, threads: u8) {
        self.fixed = match rate {
            MoveRate::Adaptive => None,
            MoveRate::Bytes(bytes) => Some((bytes / u64::from(threads.max(1))).max(1)),
        };
    }

    /// Whether other processes want the processor on which this thread runs.
    pub(crate) fn set_short_of_time(&mut self, short: bool) {
        self.short_of_time = short;
    }

    /// Whether the copies replace missing ones, and do not only balance load.
    pub(crate) fn set_repairing(&mut self, repairing: bool) {
        self.repairing = repairing;
    }

    /// The last value that was set.
    pub(crate) fn repairing(&self) -> bool {
        self.repairing
    }

    /// The pace, in bytes a second.
    pub(crate) fn rate(&self) -> u64 {
        self.fixed.unwrap_or(if self.repairing {
            self.allowed.max(REPAIR)
        } else {
            self.allowed
        })
    }

    /// The size of a part of a snapshot.
    pub(crate) fn part(&self) -> usize {
        usize::try_from((self.rate() / 1000 * PART).max(PART_LEAST)).unwrap_or(usize::MAX)
    }

    /// `count` answers leave, each `after` its call came.
    #[inline]
    pub(crate) fn answered(&mut self, after: Duration, count: u32) {
        self.answers.note(after, count);
    }

    /// An operation failed because no member served it.
    pub(crate) fn failed(&mut self) {
        self.failed += 1;
    }

    /// Whether a part may be sent now. Otherwise, when.
    pub(crate) fn may_send(&mut self, now: Time) -> Result<(), Time> {
        self.judge(now);
        let rate = self.rate();
        self.sent.fill(now, rate);
        if self.sent.left > 0 {
            Ok(())
        } else {
            Err(self.sent.next(now, rate))
        }
    }

    /// Counts bytes of copies that were sent.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.copied = true;
        self.sent.take(bytes);
    }

    /// Whether an arrived part may be acknowledged now. Otherwise, when.
    pub(crate) fn may_take(&mut self, now: Time) -> Result<(), Time> {
        self.judge(now);
        let rate = self.rate();
        self.taken.fill(now, rate);
        if self.taken.left > 0 {
            Ok(())
        } else {
            Err(self.taken.next(now, rate))
        }
    }

    /// Counts bytes of copies that arrived.
    pub(crate) fn taken(&mut self, bytes: usize) {
        self.copied = true;
        self.taken.take(bytes);
        if self.fixed.is_none() {
            let most =
                i64::try_from(self.rate().saturating_mul(DEBT_MAX.as_secs())).unwrap_or(i64::MAX);
            self.taken.left = self.taken.left.max(-most);
        }
    }

    /// Judges the window at its end.
    pub(crate) fn judge(&mut self, now: Time) {
        let lasted = now.since(self.began);
        let few = (1..ANSWERS_ENOUGH).contains(&self.answers.count) && self.failed == 0;
        if lasted < if few { WINDOW_MAX } else { WINDOW } {
            return;
        }
        let (count, p99) = (self.answers.count, self.answers.p99());
        let failed = std::mem::take(&mut self.failed);
        let copied = std::mem::take(&mut self.copied);
        self.began = now;
        self.answers = LatencyHistogram::default();
        if count > 0 && !copied {
            // Normal is the average of the last quiet seconds. One bad window does not change it
            // much, and neither does a good one.
            let before = self.normal.filter(|_| !self.assumed).unwrap_or(p99);
            (self.normal, self.assumed) = (Some((before * 7 + p99) / 8), false);
        } else if self.normal.is_none() && count >= ANSWERS_LEAST && self.allowed <= BEGIN {
            // Copies were made since the start, so there was no quiet window. The first window
            // counts as normal, so that copies do not make answers later than that.
            (self.normal, self.assumed) = (Some(p99), true);
        }
        let is = |longer: &Longer| self.normal.is_some_and(|normal| longer.is(p99, normal));
        let (late, latish) = (is(&LATE), is(&LATISH));
        if latish && copied && self.allowed == LEAST {
            // The copies are not the only reason for late answers: little by little, their times
            // become normal.
            self.normal = self
                .normal
                .map(|normal| normal + p99.saturating_sub(normal).min(normal) / CREEP);
        }
        // After a window without operations or copies, the earlier pace says little.
        let from_rest = std::mem::replace(&mut self.quiet, count == 0) || !copied;
        self.allowed = if failed > 0 && failed * 100 > count {
            0
        } else if count == 0 {
            MOST
        } else if from_rest {
            BEGIN
        } else if count < ANSWERS_LEAST {
            // The slowest of a few answers says little. It is no reason to be slower than at first,
            // and a reason to be faster only while all answers are quick.
            if late {
                BEGIN
            } else {
                (self.allowed / 8 * 9).clamp(BEGIN, MOST)
            }
        } else if late {
            (self.allowed / 2).clamp(LEAST, MOST)
        } else if latish || self.short_of_time {
            // Clients hardly notice yet, but would soon: slow down as much as it would otherwise
            // speed up.
            (self.allowed / 9 * 8).clamp(LEAST, MOST)
        } else {
            (self.allowed / 8 * 9).clamp(LEAST, MOST)
        };
    }
}

/// A histogram of the times of answers. Each bucket begins a sixteenth of a doubling after the one
/// before; below 16 us there is one for each microsecond.
#[derive(Debug)]
struct LatencyHistogram {
    buckets: [u32; BUCKETS],
    count: u32,
}

/// Up to two seconds. Longer times are in the last bucket.
const BUCKETS: usize = 16 * 18;

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self {
            buckets: [0; BUCKETS],
            count: 0,
        }
    }
}

impl LatencyHistogram {
    #[inline]
    fn note(&mut self, after: Duration, count: u32) {
        self.buckets[bucket(after)] += count;
        self.count += count;
    }

    /// The upper bound of the bucket with the p99.
    fn p99(&self) -> Duration {
        let mut left = u64::from(self.count) * 99 / 100;
        for (number, count) in self.buckets.iter().enumerate() {
            if u64::from(*count) > left {
                return bound(number);
            }
            left -= u64::from(*count);
        }
        Duration::ZERO
    }
}

fn bucket(after: Duration) -> usize {
    let micros = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
    if micros < 16 {
        return micros as usize;
    }
    let doublings = micros.ilog2() - 4;
    let sixteenth = (micros >> doublings) & 15;
    (16 + doublings as usize * 16 + sixteenth as usize).min(BUCKETS - 1)
}

fn bound(number: usize) -> Duration {
    let (doublings, sixteenth) = ((number / 16).saturating_sub(1), number % 16);
    let from = if number < 16 { 0 } else { 16 };
    Duration::from_micros((from + sixteenth as u64 + 1) << doublings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(1000 + ms)
    }

    /// A second of windows with `count` answers that `took` this long, while copies are made or
    /// not. Returns the pace afterwards.
    fn second(
        pace: &mut CopyRate,
        from: &mut u64,
        took: Duration,
        count: u32,
        copies: bool,
    ) -> u64 {
        for _ in 0..4 {
            pace.answered(took, count);
            if copies {
                pace.sent(1);
            }
            *from += 250;
            pace.judge(at(*from));
        }
        pace.rate()
    }

    /// A pace that late answers have slowed down to the least, and the time of that.
    fn at_least() -> (CopyRate, u64) {
        let (mut pace, mut now) = (CopyRate::new(at(0)), 0);
        second(&mut pace, &mut now, Duration::from_micros(300), 1000, false);
        (0..10).for_each(|_| _ = second(&mut pace, &mut now, Duration::from_millis(5), 1000, true));
        assert_eq!(pace.rate(), LEAST);
        (pace, now)
    }

    #[test]
    fn a_slower_pace_has_smaller_parts() {
        let mut pace = CopyRate::new(at(0));
        second(&mut pace, &mut 0, Duration::from_micros(300), 1000, false);
        assert_eq!(pace.part() as u64, BEGIN / 1000 * PART);
        pace.set(MoveRate::Bytes(1 << 20), 1);
        assert_eq!(pace.part() as u64, PART_LEAST, "each costs something");
        pace.set(MoveRate::Bytes(64 << 20), 2);
        assert_eq!(
            pace.part() as u64,
            (32 << 20) / 1000 * PART,
            "of a thread's part"
        );
    }

    #[test]
    fn buckets_hold_times_below_their_bounds() {
        for micros in (0..5000).chain([70_000, 1 << 20, (1 << 21) - 1]) {
            let after = Duration::from_micros(micros);
            let upper = bound(bucket(after));
            assert!(
                after < upper && upper.as_micros() as u64 * 16 <= micros * 17 + 16,
                "{micros} us: {upper:?}"
            );
        }
        assert_eq!(
            bound(bucket(Duration::from_secs(3600))),
            Duration::from_micros(1 << 21),
            "as good as never"
        );
        let mut answers = LatencyHistogram::default();
        answers.note(Duration::from_micros(100), 980);
        answers.note(Duration::from_millis(10), 20);
        assert!(answers.p99() > Duration::from_millis(9));
        answers.note(Duration::from_micros(100), 3000);
        assert!(answers.p99() < Duration::from_micros(108));
    }

    #[test]
    fn copies_slow_down_while_answers_take_longer_than_normal() {
        let (mut pace, mut now) = (CopyRate::new(at(0)), 0);
        let quick = Duration::from_micros(300);
        second(&mut pace, &mut now, quick, 1000, false);
        assert_eq!(pace.rate(), BEGIN);
        let faster = second(&mut pace, &mut now, quick, 1000, true);
        assert!(faster > BEGIN, "no client notices");
        let slower = second(&mut pace, &mut now, Duration::from_millis(5), 1000, true);
        assert!(slower < faster / 2, "{slower}");
        let slowest = (0..10)
            .map(|_| second(&mut pace, &mut now, Duration::from_millis(5), 1000, true))
            .last();
        assert_eq!(slowest, Some(LEAST), "never to a halt");
        assert!(second(&mut pace, &mut now, quick, 1000, true) > LEAST);
        let (mut pace, mut now, quick) = (CopyRate::new(at(0)), 0, Duration::from_micros(100));
        (0..10).for_each(|_| {
            second(&mut pace, &mut now, quick, 1000, false);
        });
        let faster = second(&mut pace, &mut now, Duration::from_micros(190), 1000, true);
        assert!(faster > BEGIN, "a large ratio of little is noise");
    }

    /// Regression: one window of every few is late by chance. When each late one halved the pace,
    /// copies went half as fast as clients could bear.
    #[test]
    fn copies_keep_every_other_window_below_a_quarter_above_normal() {
        let (mut pace, mut now) = (CopyRate::new(at(0)), 0);
        let micros = Duration::from_micros;
        second(&mut pace, &mut now, micros(500), 1000, false);
        let before = pace.rate();
        for _ in 0..10 {
            second(&mut pace, &mut now, micros(500), 1000, true);
            second(&mut pace, &mut now, micros(670), 1000, true);
        }
        assert!(
            pace.rate().abs_diff(before) < before / 20,
            "{} instead of {before}",
            pace.rate()
        );
        let slower = (0..3)
            .map(|_| second(&mut pace, &mut now, micros(670), 1000, true))
            .last()
            .unwrap_or_default();
        assert!(
            (before / 8..before / 2).contains(&slower),
            "{slower}: little by little"
        );
    }

    #[test]
    fn answers_that_are_late_for_other_reasons_become_normal() {
        let (mut pace, mut now) = (CopyRate::new(at(0)), 0);
        let micros = Duration::from_micros;
        second(&mut pace, &mut now, micros(500), 1000, false);
        let slowest = (0..10)
            .map(|_| second(&mut pace, &mut now, micros(900), 1000, true))
            .last();
        assert_eq!(slowest, Some(LEAST));
        (0..60).for_each(|_| _ = second(&mut pace, &mut now, micros(900), 1000, true));
        assert!(
            pace.rate() > BEGIN,
            "{}: twice as many ask since",
            pace.rate()
        );
        // A very late window moves it little.
        let normal = pace.normal;
        (0..10).for_each(|_| _ = second(&mut pace, &mut now, Duration::from_secs(1), 1000, true));
        assert!(
            normal < pace.normal && pace.normal < normal.map(|n| n * 2),
            "{:?}, and {normal:?} before",
            pace.normal
        );
    }

    /// Regression: a thread that had made copies since its start had no normal, and made answers as
    /// late as it liked.
    #[test]
    fn without_a_quiet_window_the_first_one_counts_as_normal() {
        let (mut pace, mut now) = (CopyRate::new(at(0)), 0);
        let micros = Duration::from_micros;
        assert_eq!(second(&mut pace, &mut now, Duration::ZERO, 0, true), MOST);
        // Answers say nothing while the pace is unlimited.
        pace.answered(micros(50_000), 1000);
        pace.sent(1);
        now += 250;
        pace.judge(at(now));
        assert_eq!((pace.rate(), pace.normal), (BEGIN, None));
        second(&mut pace, &mut now, micros(500), 1000, true);
        let before = pace.rate();
        assert!(
            second(&mut pace, &mut now, micros(5_000), 1000, true) < before / 8,
            "it slows down"
        );
        second(&mut pace, &mut now, micros(200), 1000, false);
        assert!(
            pace.normal.is_some_and(|normal| normal < micros(220)),
            "{:?}: that was quiet",
            pace.normal
        );
    }

    #[test]
    fn the_largest_value_delays_others_only_briefly() {
        let (mut pace, now) = at_least();
        assert!(pace.may_take(at(now)).is_ok());
        pace.taken(64 << 20);
        assert!(pace.may_take(at(now)).is_err());
        assert_eq!(
            pace.taken.left,
            -2 * LEAST.cast_signed(),
            "it would be a minute"
        );
        pace.set(MoveRate::Bytes(LEAST), 1);
        pace.taken(64 << 20);
        assert!(
            pace.taken.left < -60 * LEAST.cast_signed(),
            "the pace that was set is kept"
        );
    }

    #[test]
    fn copies_slow_down_a_little_while_others_want_the_processor() {
        let (mut pace, mut now) = (CopyRate::new(at(0)), 0);
        let quick = Duration::from_micros(300);
        second(&mut pace, &mut now, quick, 1000, false);
        pace.set_short_of_time(true);
        let slower = second(&mut pace, &mut now, quick, 1000, true);
        assert!(
            (BEGIN / 2..BEGIN).contains(&slower),
            "{slower}: no client notices yet"
        );
        pace.set_short_of_time(false);
        let again = second(&mut pace, &mut now, quick, 1000, true);
        assert!(
            again > slower && again.abs_diff(BEGIN) < BEGIN / 100,
            "{again}: as much faster as it became slower"
        );
        pace.set_short_of_time(true);
        let slowest = (0..10)
            .map(|_| second(&mut pace, &mut now, quick, 1000, true))
            .last();
        assert_eq!(slowest, Some(LEAST), "never to a halt");
    }

    #[test]
    fn copies_are_fast_while_there_are_no_clients() {
        let (mut pace, mut now) = (CopyRate::new(at(0)), 0);
        assert_eq!(pace.rate(), MOST, "no client has asked yet");
        assert_eq!(second(&mut pace, &mut now, Duration::ZERO, 0, true), MOST);
        pace.answered(Duration::from_micros(100), 1000);
        pace.sent(1);
        now += 250;
        pace.judge(at(now));
        assert_eq!(
            pace.rate(),
            BEGIN,
            "a client asks while something is copied"
        );
        pace.answered(Duration::from_micros(100), 1000);
        (0..30).for_each(|_| pace.failed());
        pace.judge(at(now + 250));
        now += 250;
        assert_eq!(pace.rate(), 0, "three in a hundred fail");
        // After a pause, the saved-up bytes pass and then none. The pace is judged again soon.
        while pace.may_send(at(now)).is_ok() {
            pace.sent(1 << 20);
        }
        let next = pace.may_send(at(now)).expect_err("it pauses");
        assert!(next <= at(now) + Duration::from_secs(1));
        second(&mut pace, &mut now, Duration::from_micros(100), 1000, true);
        assert!(pace.rate() >= LEAST, "nothing fails any more");
    }

    /// Regression: if a client sent an operation now and then, copies stayed at the pace at which
    /// they begin.
    #[test]
    fn a_few_operations_are_no_reason_to_stay_slow() {
        let (mut pace, mut now) = (CopyRate::new(at(0)), 0);
        let mut few = |pace: &mut CopyRate, took: u64, copies: bool| {
            pace.answered(Duration::from_micros(took), 5);
            if copies {
                pace.sent(1);
            }
            now += 1_000;
            pace.judge(at(now));
            pace.rate()
        };
        (0..3).for_each(|_| _ = few(&mut pace, 300, false));
        let faster = (0..20)
            .map(|_| few(&mut pace, 300, true))
            .last()
            .unwrap_or_default();
        assert!(faster > 8 * BEGIN, "{faster}");
        assert_eq!(few(&mut pace, 5_000, true), BEGIN, "one of a few was slow");
        assert_eq!(
            few(&mut pace, 5_000, true),
            BEGIN,
            "never slower than at first"
        );
        // A hundred answers a second are judged by all of them.
        let from = now;
        for quarter in 1..=4 {
            pace.answered(Duration::from_millis(5), 25);
            pace.sent(1);
            pace.judge(at(from + quarter * 250));
            assert_eq!(pace.rate(), if quarter < 4 { BEGIN } else { BEGIN / 2 });
        }
    }

    /// Regression: the p99 of a hundred answers is their slowest. Judged by that, copies crawled
    /// though no client was disturbed.
    #[test]
    fn a_slow_answer_among_few_is_no_reason_to_slow_down() {
        let (mut pace, mut now, mut random) = (CopyRate::new(at(0)), 0, 1_u64);
        let mut quarter = |pace: &mut CopyRate, copies: bool| {
            for _ in 0..150 {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                // Five in a thousand are slow, with or without copies.
                let took = if (random >> 33) % 1000 < 5 {
                    6_000
                } else {
                    400
                };
                pace.answered(Duration::from_micros(took), 1);
            }
            if copies {
                pace.sent(1);
            }
            now += 250;
            pace.judge(at(now));
        };
        (0..40).for_each(|_| quarter(&mut pace, false));
        (0..200).for_each(|_| quarter(&mut pace, true));
        assert!(pace.rate() > BEGIN, "{}", pace.rate());
    }

    #[test]
    fn missing_copies_are_made_faster_than_balancing_ones() {
        let (mut pace, _) = at_least();
        pace.set_repairing(true);
        assert_eq!(pace.rate(), REPAIR);
        pace.set(MoveRate::Bytes(1000), 1);
        assert_eq!(pace.rate(), 1000, "as an operator has set it");
    }

    #[test]
    fn the_pace_that_an_operator_sets_is_kept() {
        let mut pace = CopyRate::new(at(0));
        pace.set(MoveRate::Bytes(2_000_000), 2);
        let (mut sent, mut now) = (0_u64, at(0));
        while now < at(10_000) {
            match pace.may_send(now) {
                Ok(()) => {
                    pace.sent(64 << 10);
                    sent += 64 << 10;
                }
                Err(next) => {
                    assert!(next > now);
                    now = next;
                }
            }
        }
        assert!(
            (9_900_000..10_200_000).contains(&sent),
            "{sent} bytes in 10 s"
        );
    }
}
