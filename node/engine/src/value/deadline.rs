//! The deadline of a key: a moment on the partition's clock, and the wall time that was asked for.
//!
//! ```text
//!   63                               16 15                    0
//!  ┌───────────────────────────────────┬───────────────────────┐
//!  │ the partition's clock, in ms      │ wall time, mod 2^16 ms│   0: never
//!  └───────────────────────────────────┴───────────────────────┘
//! ```
//! The key expires by the partition's clock, which needs no wall clock and goes on under another
//! primary. A client that gave a wall time wants to read the same one back, although the two clocks
//! never tick together. So the lower bits keep the end of the wall time as it was given. The rest
//! follows from both clocks at any later moment, unless they have moved apart by half of 2^16 ms
//! (32 s): by a step of the wall clock, or because another member's wall clock differs. If they
//! have, the answer is the present wall time of the deadline, to within 33 s.
//!
//! Deadlines have the order of their numbers. One number instead of two keeps keys that expire as
//! small as others.

/// Bits of wall time.
const WALL_BITS: u32 = 16;
const WALL_SPAN: u64 = 1 << WALL_BITS;
/// The latest moment that the clock's part can express: some 8,900 years. Later deadlines are cut
/// to it.
const CLOCK_MAX: u64 = (1 << (u64::BITS - WALL_BITS)) - 1;

/// A deadline at this moment of the partition's clock, which was given as this wall time.
pub(crate) const fn new(clock: u64, unix_ms: u64) -> u64 {
    let clock = if clock > CLOCK_MAX { CLOCK_MAX } else { clock };
    (clock << WALL_BITS) | (unix_ms % WALL_SPAN)
}

/// The moment on the partition's clock, in milliseconds.
pub(crate) const fn clock(deadline: u64) -> u64 {
    deadline >> WALL_BITS
}

/// The wall time as it was given, in milliseconds. `now` is one moment on the partition's clock and
/// on the wall clock.
pub(crate) const fn unix_ms(deadline: u64, (now, unix_now): (u64, u64)) -> u64 {
    let about = unix_now.saturating_add(clock(deadline)).saturating_sub(now);
    // The nearest time that ends with these bits.
    let least = about.saturating_sub(WALL_SPAN / 2);
    least.saturating_add((deadline % WALL_SPAN).wrapping_sub(least) % WALL_SPAN)
}

/// Whether the deadline has passed.
pub(crate) const fn is_over(deadline: u64, clock: u64) -> bool {
    deadline != 0 && self::clock(deadline) <= clock
}

/// The same deadline on a clock that is `ahead_ms` ahead.
pub(crate) const fn moved(deadline: u64, ahead_ms: u64) -> u64 {
    if deadline == 0 {
        0
    } else {
        new(
            clock(deadline).saturating_add(ahead_ms),
            deadline % WALL_SPAN,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The clocks tick at different moments and drift, and another member has another wall
        /// clock.
        #[test]
        fn a_wall_time_comes_back_as_it_was_given_while_the_clocks_agree_to_half_a_minute(
            given in 1_700_000_000_000_u64..260_000_000_000_000,
            unix_now in 1_600_000_000_000_u64..1_700_000_000_000,
            now in 1_u64..1 << 40,
            later in 0_u64..1 << 36,
            apart in -32_700_i64..32_700,
            ahead in 0_u64..1 << 30,
        ) {
            let deadline = new(now + given - unix_now, given);
            prop_assert!(deadline > 0 && clock(deadline) == now + given - unix_now);
            let unix_later = (unix_now + later).saturating_add_signed(apart);
            prop_assert_eq!(unix_ms(deadline, (now + later, unix_later)), given);
            prop_assert_eq!(unix_ms(moved(deadline, ahead), (now + ahead, unix_now)), given);
        }

        #[test]
        fn after_clocks_moved_apart_the_present_wall_time_is_told_to_within_half_a_minute(
            left in 0_u64..1 << 40,
            unix_now in 0_u64..1 << 44,
            given in any::<u64>(),
            now in 1_u64..1 << 40,
        ) {
            let told = unix_ms(new(now + left, given), (now, unix_now));
            let expected = unix_now + left;
            prop_assert!(told.abs_diff(expected) <= WALL_SPAN, "{told} {expected}");
        }
    }

    #[test]
    fn deadlines_beyond_the_clock_are_the_latest() {
        let latest = new(u64::MAX, 5);
        assert_eq!((clock(latest), moved(latest, 9)), (CLOCK_MAX, latest));
        assert!(!is_over(latest, CLOCK_MAX - 1) && is_over(latest, CLOCK_MAX));
        assert!(!is_over(0, CLOCK_MAX) && moved(0, 9) == 0);
        assert!(unix_ms(latest, (0, u64::MAX)) > 0);
    }
}
