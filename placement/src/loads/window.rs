//! Whether a load has been uneven for so long that it is worth moving something.

use std::time::Duration;

/// How long it must be uneven.
const HOLD: Duration = Duration::from_secs(60);

/// Looks at one condition again and again, and reports when it has held at each look for a minute.
/// The minute begins again with a look at which it does not hold. So it does with a report, because
/// the remedy takes time to show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadWindow {
    since: Option<Duration>,
}

impl LoadWindow {
    /// A look at this time, on any clock that does not go back. Returns true if it is time to act.
    pub fn look(&mut self, now: Duration, uneven: bool) -> bool {
        if !uneven {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let noticed = now.saturating_sub(since) >= HOLD;
        if noticed {
            self.since = Some(now);
        }
        noticed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_lasts_is_reported_once_a_minute() {
        let mut window = LoadWindow::default();
        let noticed: Vec<u64> = (0..200)
            .filter(|s| window.look(Duration::from_secs(*s), true))
            .collect();
        assert_eq!(noticed, [60, 120, 180]);
    }

    #[test]
    fn one_look_at_which_all_is_even_begins_anew() {
        let mut window = LoadWindow::default();
        assert!((0..1000).all(|s| !window.look(Duration::from_secs(s), s % 59 != 0)));
    }
}
