//! Whether something has been uneven for so long that it is worth moving something.

use std::time::Duration;

/// How long.
const HOLD: Duration = Duration::from_secs(60);

/// Looks at one thing again and again, and notices when it has been so each time for a minute. One
/// look at which it is not so begins anew; so does having noticed, for what is done about it takes
/// time to show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadWindow {
    since: Option<Duration>,
}

impl LoadWindow {
    /// A look at this time, on any clock that does not go back. True: it is time to do something
    /// about it.
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
    fn what_holds_for_a_minute_is_noticed_once_a_minute() {
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
