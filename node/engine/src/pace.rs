//! How fast copies are made: as fast as those who read and write do not notice, or as fast as
//! somebody said.
//!
//! ```text
//!   answers that leave ──> how long they took: p99 of a window ──┐     well above what is normal, by ratio and by gap: half as fast
//!   failures ────────────────────────────────────────────────────┼──>  more than one in a hundred fails:               not at all
//!   others want the processor ───────────────────────────────────┘     this, or a little above normal:                 a little slower
//!                                                                      else faster, and where nobody asks: at will
//! ```
//! Where copies are lacking, it never goes below what repairs a gigabyte in a minute. Either end
//! keeps to its own pace: the source with what it sends, the target with what it acknowledges,
//! without which little more comes.

use doyen_gossip::Time;
use doyen_placement::MoveRate;
use std::time::Duration;

/// Between two judgements; more while there are too few answers for a p99 that is worth the name,
const WINDOW: Duration = Duration::from_millis(250);
const ANSWERS_ENOUGH: u32 = 500;
/// but never more than this.
const WINDOW_MAX: Duration = Duration::from_secs(1);
/// Where copies begin while others want something, and the least that they are slowed down to, in
/// bytes a second.
const BEGIN: u64 = 8 << 20;
const LEAST: u64 = 1 << 20;
/// The least while copies are lacking: the longer that lasts, the likelier another death takes data
/// with it.
const REPAIR: u64 = 24 << 20;
/// As good as unlimited.
const MOST: u64 = 16 << 30;
/// Answers in a window from which on its p99 says something: of fewer, copies are never slower than
/// they begin.
const ANSWERS_LEAST: u32 = 50;
/// Answers are late that take so much longer than is normal, by ratio, in percent, and by gap.
const LATE: Longer = Longer {
    percent: 150,
    gap: Duration::from_micros(300),
};
/// Likewise, a little late. A p99 varies by a quarter without anybody's doing: what is judged by
/// one window must not weigh much, so copies go as fast as leaves every other window below this.
const LATISH: Longer = Longer {
    percent: 125,
    gap: Duration::from_micros(100),
};
/// How many milliseconds' worth of what is allowed may go at once: what does is in the way of
/// others all at once, too.
const BURST: u64 = 10;
/// How many milliseconds' worth of it is one part of a snapshot, and the least that one is: whoever
/// takes it does nothing else meanwhile, and of two processes that take the same time of a
/// processor the one that takes it in smaller pieces is noticed less.
const PART: u64 = 2;
const PART_LEAST: u64 = 8 << 10;

/// Who asks more than before makes answers take longer, too, and copies would crawl until they
/// ended: at the least pace, a window that is late brings what is normal so much nearer to it, and
/// by no more than this part of itself.
const CREEP: u32 = 64;
/// What was taken keeps what follows waiting for so long at most, where nobody said how fast: a
/// source gives up who acknowledges nothing for long (`copying`), and one value may be all that
/// comes in seconds.
const DEBT_MAX: Duration = Duration::from_secs(2);

/// How much longer than is normal.
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
pub(super) struct Pace {
    /// Of this thread's part, if somebody said how fast.
    fixed: Option<u64>,
    /// Bytes a second, as things stand.
    allowed: u64,
    /// Nobody asked for anything in the window before.
    quiet: bool,
    sent: Bucket,
    taken: Bucket,
    answers: Answers,
    failed: u32,
    /// The p99 of answers while nothing is copied,
    normal: Option<Duration>,
    /// or as it was when the first of them left, where something was copied from the beginning.
    assumed: bool,
    /// Something was copied in this window.
    copied: bool,
    began: Time,
    /// Others want the processor as well.
    short_of_time: bool,
    /// What is copied is lacking.
    repairing: bool,
}

/// Bytes that may pass.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Below zero: so many too many have passed.
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

    /// When something may pass again.
    fn next(&self, now: Time, rate: u64) -> Time {
        let lacking = u128::from(self.left.min(0).unsigned_abs()) + 1;
        let micros = lacking * 1_000_000 / u128::from(rate.max(1)) + 1;
        now + Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX).min(1_000_000))
    }
}

impl Pace {
    pub(super) fn new(now: Time) -> Self {
        let bucket = Bucket {
            left: 0,
            filled: now,
        };
        Self {
            fixed: None,
            // Nobody has asked for anything yet.
            allowed: MOST,
            quiet: true,
            sent: bucket,
            taken: bucket,
            answers: Answers::default(),
            failed: 0,
            normal: None,
            assumed: false,
            copied: false,
            began: now,
            short_of_time: false,
            repairing: false,
        }
    }

    /// What somebody said, of which each thread of a node has its part.
    pub(super) fn set(&mut self, rate: MoveRate, threads: u8) {
        self.fixed = match rate {
            MoveRate::Adaptive => None,
            MoveRate::Bytes(bytes) => Some((bytes / u64::from(threads.max(1))).max(1)),
        };
    }

    /// Whether others want the processor on which this thread runs.
    pub(super) fn set_short_of_time(&mut self, short: bool) {
        self.short_of_time = short;
    }

    /// Whether what is copied is lacking, and does not only make loads even.
    pub(super) fn set_repairing(&mut self, repairing: bool) {
        self.repairing = repairing;
    }

    /// As it was said last.
    pub(super) fn repairing(&self) -> bool {
        self.repairing
    }

    /// Bytes a second.
    pub(super) fn rate(&self) -> u64 {
        self.fixed.unwrap_or(if self.repairing {
            self.allowed.max(REPAIR)
        } else {
            self.allowed
        })
    }

    /// How much goes at a time.
    pub(super) fn part(&self) -> usize {
        usize::try_from((self.rate() / 1000 * PART).max(PART_LEAST)).unwrap_or(usize::MAX)
    }

    /// So many answers leave that were wanted for so long.
    #[inline]
    pub(super) fn answered(&mut self, after: Duration, count: u32) {
        self.answers.note(after, count);
    }

    /// An operation failed, because nobody served it.
    pub(super) fn failed(&mut self) {
        self.failed += 1;
    }

    /// Whether something may be sent now; otherwise when.
    pub(super) fn may_send(&mut self, now: Time) -> Result<(), Time> {
        self.judge(now);
        let rate = self.rate();
        self.sent.fill(now, rate);
        if self.sent.left > 0 {
            Ok(())
        } else {
            Err(self.sent.next(now, rate))
        }
    }

    /// So many bytes were sent.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.copied = true;
        self.sent.take(bytes);
    }

    /// Whether what arrived may be acknowledged now; otherwise when.
    pub(super) fn may_take(&mut self, now: Time) -> Result<(), Time> {
        self.judge(now);
        let rate = self.rate();
        self.taken.fill(now, rate);
        if self.taken.left > 0 {
            Ok(())
        } else {
            Err(self.taken.next(now, rate))
        }
    }

    /// So many bytes arrived.
    pub(super) fn taken(&mut self, bytes: usize) {
        self.copied = true;
        self.taken.take(bytes);
        if self.fixed.is_none() {
            let most =
                i64::try_from(self.rate().saturating_mul(DEBT_MAX.as_secs())).unwrap_or(i64::MAX);
            self.taken.left = self.taken.left.max(-most);
        }
    }

    /// Looks at what the window has shown, at its end.
    pub(super) fn judge(&mut self, now: Time) {
        let lasted = now.since(self.began);
        let few = (1..ANSWERS_ENOUGH).contains(&self.answers.count) && self.failed == 0;
        if lasted < if few { WINDOW_MAX } else { WINDOW } {
            return;
        }
        let (count, p99) = (self.answers.count, self.answers.p99());
        let failed = std::mem::take(&mut self.failed);
        let copied = std::mem::take(&mut self.copied);
        self.began = now;
        self.answers = Answers::default();
        if count > 0 && !copied {
            // Of the last few seconds that were quiet. One bad window makes nothing normal, and one
            // good one does not end that.
            let before = self.normal.filter(|_| !self.assumed).unwrap_or(p99);
            (self.normal, self.assumed) = (Some((before * 7 + p99) / 8), false);
        } else if self.normal.is_none() && count >= ANSWERS_LEAST && self.allowed <= BEGIN {
            // Who came a moment ago has known no quiet, and is not to make it worse than it began.
            (self.normal, self.assumed) = (Some(p99), true);
        }
        let is = |longer: &Longer| self.normal.is_some_and(|normal| longer.is(p99, normal));
        let (late, latish) = (is(&LATE), is(&LATISH));
        if latish && copied && self.allowed == LEAST {
            // It is not what is copied that makes answers late, or not that alone: little by little
            // what they take becomes normal.
            self.normal = self
                .normal
                .map(|normal| normal + p99.saturating_sub(normal).min(normal) / CREEP);
        }
        // How it was when nobody asked, or when something was copied last, says little by now.
        let anew = std::mem::replace(&mut self.quiet, count == 0) || !copied;
        self.allowed = if failed > 0 && failed * 100 > count {
            0
        } else if count == 0 {
            MOST
        } else if anew {
            BEGIN
        } else if count < ANSWERS_LEAST {
            // The slowest of a few says little: there is no reason to be slower than at first, and
            // one to be faster only while all are quick.
            if late {
                BEGIN
            } else {
                (self.allowed / 8 * 9).clamp(BEGIN, MOST)
            }
        } else if late {
            (self.allowed / 2).clamp(LEAST, MOST)
        } else if latish || self.short_of_time {
            // Hardly anybody notices yet, and would soon: as much slower as it would else be
            // faster.
            (self.allowed / 9 * 8).clamp(LEAST, MOST)
        } else {
            (self.allowed / 8 * 9).clamp(LEAST, MOST)
        };
    }
}

/// How long answers took, in buckets of which each begins a sixteenth of a doubling after the one
/// before, by microseconds below 16 us.
#[derive(Debug)]
struct Answers {
    buckets: [u32; BUCKETS],
    count: u32,
}

/// Up to two seconds: whatever takes longer is in the last one.
const BUCKETS: usize = 16 * 18;

impl Default for Answers {
    fn default() -> Self {
        Self {
            buckets: [0; BUCKETS],
            count: 0,
        }
    }
}

impl Answers {
    #[inline]
    fn note(&mut self, after: Duration, count: u32) {
        self.buckets[bucket(after)] += count;
        self.count += count;
    }

    /// The upper bound of the bucket within which it is.
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

    /// A second of windows with so many answers that take so long, while something is copied or
    /// not; what is allowed then.
    fn second(pace: &mut Pace, from: &mut u64, took: Duration, count: u32, copies: bool) -> u64 {
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

    /// A pace that answers that are late have brought to the least, and when that is.
    fn at_least() -> (Pace, u64) {
        let (mut pace, mut now) = (Pace::new(at(0)), 0);
        second(&mut pace, &mut now, Duration::from_micros(300), 1000, false);
        (0..10).for_each(|_| _ = second(&mut pace, &mut now, Duration::from_millis(5), 1000, true));
        assert_eq!(pace.rate(), LEAST);
        (pace, now)
    }

    #[test]
    fn the_slower_the_smaller_the_parts() {
        let mut pace = Pace::new(at(0));
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
    fn buckets_hold_what_is_below_their_bounds() {
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
        let mut answers = Answers::default();
        answers.note(Duration::from_micros(100), 980);
        answers.note(Duration::from_millis(10), 20);
        assert!(answers.p99() > Duration::from_millis(9));
        answers.note(Duration::from_micros(100), 3000);
        assert!(answers.p99() < Duration::from_micros(108));
    }

    #[test]
    fn copies_slow_down_where_answers_take_longer_than_before_and_go_on_when_they_do_not() {
        let (mut pace, mut now) = (Pace::new(at(0)), 0);
        let quick = Duration::from_micros(300);
        second(&mut pace, &mut now, quick, 1000, false);
        assert_eq!(pace.rate(), BEGIN);
        let faster = second(&mut pace, &mut now, quick, 1000, true);
        assert!(faster > BEGIN, "nobody notices");
        let slower = second(&mut pace, &mut now, Duration::from_millis(5), 1000, true);
        assert!(slower < faster / 2, "{slower}");
        let slowest = (0..10)
            .map(|_| second(&mut pace, &mut now, Duration::from_millis(5), 1000, true))
            .last();
        assert_eq!(slowest, Some(LEAST), "never to a halt");
        assert!(second(&mut pace, &mut now, quick, 1000, true) > LEAST);
        let (mut pace, mut now, quick) = (Pace::new(at(0)), 0, Duration::from_micros(100));
        (0..10).for_each(|_| {
            second(&mut pace, &mut now, quick, 1000, false);
        });
        let faster = second(&mut pace, &mut now, Duration::from_micros(190), 1000, true);
        assert!(faster > BEGIN, "a large ratio of little is noise");
    }

    /// One window of every few is late by chance: judged by halves, copies went half as fast as
    /// everybody could bear.
    #[test]
    fn copies_go_as_fast_as_leaves_every_other_window_a_quarter_above_what_is_normal() {
        let (mut pace, mut now) = (Pace::new(at(0)), 0);
        let micros = Duration::from_micros;
        second(&mut pace, &mut now, micros(500), 1000, false);
        let before = pace.rate();
        for _ in 0..10 {
            second(&mut pace, &mut now, micros(500), 1000, true);
            second(&mut pace, &mut now, micros(670), 1000, true);
        }
        assert!(
            pace.rate().abs_diff(before) < before / 20,
            "{} beside {before}",
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
    fn what_takes_longer_for_other_reasons_becomes_normal() {
        let (mut pace, mut now) = (Pace::new(at(0)), 0);
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
        // One that is very late moves little.
        let normal = pace.normal;
        (0..10).for_each(|_| _ = second(&mut pace, &mut now, Duration::from_secs(1), 1000, true));
        assert!(
            normal < pace.normal && pace.normal < normal.map(|n| n * 2),
            "{:?}, and {normal:?} before",
            pace.normal
        );
    }

    /// Nothing but copies since it came: it had no normal, and made answers as late as it liked.
    #[test]
    fn who_has_known_no_quiet_takes_what_it_began_with_as_normal_until_there_is_some() {
        let (mut pace, mut now) = (Pace::new(at(0)), 0);
        let micros = Duration::from_micros;
        assert_eq!(second(&mut pace, &mut now, Duration::ZERO, 0, true), MOST);
        // What leaves while it goes at will says nothing.
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
    fn the_largest_value_keeps_nobody_waiting_for_long() {
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
            "what was said is kept to"
        );
    }

    #[test]
    fn copies_slow_down_a_little_where_others_want_the_processor() {
        let (mut pace, mut now) = (Pace::new(at(0)), 0);
        let quick = Duration::from_micros(300);
        second(&mut pace, &mut now, quick, 1000, false);
        pace.set_short_of_time(true);
        let slower = second(&mut pace, &mut now, quick, 1000, true);
        assert!(
            (BEGIN / 2..BEGIN).contains(&slower),
            "{slower}: nobody notices yet"
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
    fn nobody_is_disturbed_where_nobody_asks() {
        let (mut pace, mut now) = (Pace::new(at(0)), 0);
        assert_eq!(pace.rate(), MOST, "nobody has asked yet");
        assert_eq!(second(&mut pace, &mut now, Duration::ZERO, 0, true), MOST);
        pace.answered(Duration::from_micros(100), 1000);
        pace.sent(1);
        now += 250;
        pace.judge(at(now));
        assert_eq!(
            pace.rate(),
            BEGIN,
            "somebody asks, while something is copied"
        );
        pace.answered(Duration::from_micros(100), 1000);
        (0..30).for_each(|_| pace.failed());
        pace.judge(at(now + 250));
        now += 250;
        assert_eq!(pace.rate(), 0, "three in a hundred fail");
        // What may pass after a pause is let pass, then nothing does, and it is judged again before
        // long.
        while pace.may_send(at(now)).is_ok() {
            pace.sent(1 << 20);
        }
        let next = pace.may_send(at(now)).expect_err("it pauses");
        assert!(next <= at(now) + Duration::from_secs(1));
        second(&mut pace, &mut now, Duration::from_micros(100), 1000, true);
        assert!(pace.rate() >= LEAST, "nothing fails any more");
    }

    /// Whoever asked for something now and then had copies go no faster than they begin, for as
    /// long as that went on.
    #[test]
    fn a_few_who_ask_are_no_reason_to_stay_slow() {
        let (mut pace, mut now) = (Pace::new(at(0)), 0);
        let mut few = |pace: &mut Pace, took: u64, copies: bool| {
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
        // A hundred a second are judged by all of them.
        let from = now;
        for quarter in 1..=4 {
            pace.answered(Duration::from_millis(5), 25);
            pace.sent(1);
            pace.judge(at(from + quarter * 250));
            assert_eq!(pace.rate(), if quarter < 4 { BEGIN } else { BEGIN / 2 });
        }
    }

    /// The p99 of a hundred answers is their slowest: judged by that, copies crawled where nobody
    /// was disturbed.
    #[test]
    fn a_slow_answer_among_few_is_no_reason_to_slow_down() {
        let (mut pace, mut now, mut random) = (Pace::new(at(0)), 0, 1_u64);
        let mut quarter = |pace: &mut Pace, copies: bool| {
            for _ in 0..150 {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                // Five in a thousand are slow, whatever is copied.
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
    fn what_is_lacking_is_copied_faster_than_what_makes_loads_even() {
        let (mut pace, _) = at_least();
        pace.set_repairing(true);
        assert_eq!(pace.rate(), REPAIR);
        pace.set(MoveRate::Bytes(1000), 1);
        assert_eq!(pace.rate(), 1000, "whatever somebody said");
    }

    #[test]
    fn what_was_said_is_kept_to() {
        let mut pace = Pace::new(at(0));
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
