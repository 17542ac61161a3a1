//! Rate limiters.

use super::*;

fn decision(allowed: bool, remaining: u64, retry_ms: Option<u64>, reset_ms: u64) -> PermitDecision {
    PermitDecision {
        allowed,
        remaining,
        retry_ms,
        reset_ms,
    }
}

#[test]
fn a_bucket_allows_a_burst_and_then_what_is_refilled() {
    let take = |cost| TokenBucket::new(10, 2, 1_000).unwrap().take(cost);
    let mut key = Key::new();
    assert_eq!(key.decide(&take(0)), decision(true, 10, Some(0), 0));
    assert!(key.entry.is_none(), "a look writes nothing");
    assert_eq!(key.decide(&take(10)), decision(true, 0, Some(0), 5_000));
    assert_eq!(key.decide(&take(1)), decision(false, 0, Some(500), 5_000));
    key.clock += 499;
    assert_eq!(key.decide(&take(1)), decision(false, 0, Some(1), 4_501));
    let writes = key.writes;
    key.clock += 1;
    assert_eq!(writes, 1, "a refused call writes nothing");
    assert_eq!(key.decide(&take(1)), decision(true, 0, Some(0), 5_000));
    assert_eq!(key.decide(&take(11)), decision(false, 0, None, 5_000));
    key.clock += 5_000;
    assert_eq!(key.decide(&take(0)), decision(true, 10, Some(0), 0));
    assert!(key.entry.is_none(), "a full bucket is gone");
}

#[test]
fn a_bucket_that_is_asked_at_odd_moments_loses_no_part_of_a_token() {
    // Three tokens in 1,000 ms: none comes at a whole millisecond.
    let take = TokenBucket::new(3, 3, 1_000).unwrap().take(1);
    let mut key = Key::new();
    let mut taken = 0;
    for _ in 0..100_000 {
        taken += u64::from(key.decide(&take).allowed);
        key.clock += 1;
    }
    // A burst of 3, and 3 in each of 100 s. The last one comes with the next moment.
    assert_eq!(taken, 3 + 300 - 1);
}

#[test]
fn a_bucket_of_other_numbers_goes_on_with_what_is_missing() {
    let of = |capacity, refill, period| TokenBucket::new(capacity, refill, period).unwrap();
    let mut key = Key::new();
    key.decide(&of(10, 1, 1_000).take(6));
    assert_eq!(key.decide(&of(10, 2, 500).take(0)).remaining, 4);
    assert_eq!(key.decide(&of(20, 1, 1_000).take(0)).remaining, 14);
    assert_eq!(
        key.decide(&of(5, 1, 1_000).take(0)),
        decision(true, 0, Some(0), 5_000)
    );
}

#[test]
fn the_largest_numbers_neither_overflow_nor_are_refused() {
    let mut key = Key::new();
    let bucket = TokenBucket::new(AMOUNT_MAX, AMOUNT_MAX, MS_MAX).unwrap();
    assert_eq!(
        key.decide(&bucket.take(AMOUNT_MAX)),
        decision(true, 0, Some(0), MS_MAX)
    );
    assert_eq!(key.decide(&bucket.take(u64::MAX)).retry_ms, None);
    assert_eq!(key.decide(&bucket.take(AMOUNT_MAX)).retry_ms, Some(MS_MAX));
    assert_eq!(
        TokenBucket::new(AMOUNT_MAX, 1, MS_MAX),
        None,
        "it would never be full"
    );
    assert!(TokenBucket::new(AMOUNT_MAX, 1, 1).is_some());
    let mut key = Key::new();
    let window = SlidingWindow::new(AMOUNT_MAX, MS_MAX).unwrap();
    assert_eq!(
        key.decide(&window.count(AMOUNT_MAX)),
        decision(true, 0, Some(0), 2 * MS_MAX)
    );
    assert_eq!(key.decide(&window.count(u64::MAX)).retry_ms, None);
    assert_eq!(
        key.decide(&window.count(AMOUNT_MAX)).retry_ms,
        Some(2 * MS_MAX)
    );
    assert!(SlidingWindow::new(0, 1).is_none() && SlidingWindow::new(1, 0).is_none());
    assert!(TokenBucket::new(AMOUNT_MAX + 1, AMOUNT_MAX, 1).is_none());
}

#[test]
fn a_window_counts_the_part_of_the_one_before_that_it_covers() {
    let count = |cost| SlidingWindow::new(10, 1_000).unwrap().count(cost);
    let mut key = Key::new();
    assert_eq!(key.decide(&count(0)), decision(true, 10, Some(0), 0));
    assert_eq!(key.decide(&count(8)), decision(true, 2, Some(0), 2_000));
    key.clock += 500;
    // Three have room when less than eight in ten of the window before are covered.
    assert_eq!(key.decide(&count(3)), decision(false, 2, Some(625), 1_500));
    key.clock += 624;
    assert!(!key.decide(&count(3)).allowed);
    key.clock += 1;
    assert_eq!(key.decide(&count(3)), decision(true, 0, Some(0), 1_875));
    assert_eq!(key.decide(&count(11)), decision(false, 0, None, 1_875));
    key.clock += 1_875;
    assert_eq!(key.decide(&count(10)), decision(true, 0, Some(0), 2_000));
}

#[test]
fn a_window_of_another_length_begins_with_what_counted() {
    let mut key = Key::new();
    key.decide(&SlidingWindow::new(10, 1_000).unwrap().count(8));
    key.clock += 1_500;
    let minute = SlidingWindow::new(10, 60_000).unwrap();
    // Half of the window before is covered.
    assert_eq!(
        key.decide(&minute.count(1)),
        decision(true, 5, Some(0), 120_000)
    );
    // A lower limit may be exceeded already.
    let lower = SlidingWindow::new(3, 60_000).unwrap();
    assert_eq!(key.decide(&lower.count(0)).remaining, 0);
    assert!(!key.decide(&lower.count(1)).allowed);
}

#[test]
fn a_clock_that_goes_back_gives_no_more_than_the_limit() {
    let mut key = Key::new();
    let bucket = TokenBucket::new(10, 1, 1_000).unwrap();
    key.decide(&bucket.take(10));
    key.clock -= 700;
    assert_eq!(
        key.decide(&bucket.take(1)),
        decision(false, 0, Some(1_000), 10_000)
    );
    let mut key = Key::new();
    let window = SlidingWindow::new(10, 1_000).unwrap();
    key.decide(&window.count(10));
    key.clock -= 700;
    let refused = key.decide(&window.count(1));
    assert!(!refused.allowed && refused.remaining == 0);
}

/// What a bucket has, counted each millisecond, in units: a millisecond brings `refill` of them.
#[derive(Debug, Clone)]
struct SlowBucket {
    units: u128,
    full: u128,
    refill: u128,
}

impl SlowBucket {
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.units = (self.units + self.refill).min(self.full);
        }
    }

    /// In how many milliseconds it has `units`.
    fn until(&self, units: u128) -> u64 {
        let mut later = self.clone();
        let mut ms = 0;
        while later.units < units {
            later.pass(1);
            ms += 1;
        }
        ms
    }
}

/// What a sliding window was asked for and allowed, at which moments.
#[derive(Debug, Default)]
struct SlowWindow {
    anchor: u64,
    allowed: Vec<(u64, u64)>,
}

impl SlowWindow {
    /// What was counted in this window and in the one before.
    fn counted(&self, now: u64, window: u64) -> (u64, u64) {
        let at = (now - self.anchor) / window;
        let of = |window_at: u64| {
            let events = self.allowed.iter().filter(|(time, _)| {
                *time >= self.anchor && (*time - self.anchor) / window == window_at
            });
            events.map(|(_, cost)| *cost).sum()
        };
        (of(at), at.checked_sub(1).map_or(0, of))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_bucket_is_that_of_an_exact_model(
        capacity in 1_u64..40,
        refill in 1_u64..40,
        period_ms in 1_u64..400,
        course in prop::collection::vec((0_u64..60, 0_u64..30, 0_u64..300), 1..60),
    ) {
        let bucket = TokenBucket::new(capacity, refill, period_ms).unwrap();
        let (period, full) = (u128::from(period_ms), u128::from(capacity * period_ms));
        let mut slow = SlowBucket { units: full, full, refill: refill.into() };
        let mut key = Key::new();
        for (cost, pass, ahead) in course {
            let said = key.decide(&bucket.take(cost));
            let units = u128::from(cost) * period;
            prop_assert_eq!(said.allowed, units <= slow.units);
            let retry = (cost <= capacity).then(|| slow.until(units));
            prop_assert_eq!(said.retry_ms, retry);
            if said.allowed {
                slow.units -= units;
            }
            prop_assert_eq!(u128::from(said.remaining), slow.units / period);
            prop_assert_eq!(said.reset_ms, slow.until(full));
            prop_assert_eq!(key.entry.as_ref().map(|e| deadline::clock(e.deadline())),
                (said.reset_ms > 0).then_some(key.clock + said.reset_ms));
            key.clock += pass;
            slow.pass(pass);
            // A merge changes nothing.
            key.merge(ahead);
            if key.entry.as_ref().is_some_and(|e| e.overdue(key.clock)) {
                key.vanish();
            }
        }
    }

    #[test]
    fn a_window_is_that_of_an_exact_model_and_never_allows_twice_the_limit(
        limit in 1_u64..40,
        window_ms in 1_u64..400,
        course in prop::collection::vec((0_u64..45, 0_u64..150), 1..80),
    ) {
        let window = SlidingWindow::new(limit, window_ms).unwrap();
        let (mut key, mut slow) = (Key::new(), SlowWindow::default());
        slow.anchor = key.clock;
        for (cost, pass) in course {
            let now = key.clock;
            if slow.counted(now, window_ms) == (0, 0) {
                slow.anchor = now;
            }
            let (this, before) = slow.counted(now, window_ms);
            let covered = window_ms - (now - slow.anchor) % window_ms;
            let used = this * window_ms + before * covered;
            let fits = cost == 0 || used + cost * window_ms <= limit * window_ms;
            let mut later = key.clone();
            let said = key.decide(&window.count(cost));
            prop_assert_eq!(said.allowed, fits);
            let left = (limit * window_ms - used) / window_ms;
            prop_assert_eq!(said.remaining, if fits { left - cost } else { left });
            if fits && cost > 0 {
                slow.allowed.push((now, cost));
            }
            let ends = |(this, before): (u64, u64)| match (this, before) {
                (0, 0) => 0,
                (0, _) => covered,
                _ => covered + window_ms,
            };
            prop_assert_eq!(said.reset_ms, ends(slow.counted(now, window_ms)));
            match said.retry_ms {
                _ if fits => prop_assert_eq!(said.retry_ms, Some(0)),
                None => prop_assert!(cost > limit),
                Some(ms) => {
                    later.clock += ms - 1;
                    prop_assert!(!later.decide(&window.count(cost)).allowed);
                    later.clock += 1;
                    prop_assert!(later.decide(&window.count(cost)).allowed);
                }
            }
            let span = slow.allowed.iter().filter(|(time, _)| *time + window_ms > now);
            let span: u64 = span.map(|(_, cost)| *cost).sum();
            prop_assert!(span < 2 * limit || span == limit, "{} of {}", span, limit);
            key.clock += pass;
        }
    }
}
