//! Log lines that an outsider can cause: at most one in a while, with the number of those that were
//! left out.

use std::time::{Duration, Instant};

/// The usual distance between two such lines.
pub(crate) const A_MINUTE: Duration = Duration::from_secs(60);

/// Says when the next line is due.
#[derive(Debug)]
pub(crate) struct Seldom {
    every: Duration,
    due: Option<Instant>,
    left_out: u64,
}

impl Seldom {
    /// One line in `every`.
    pub(crate) const fn new(every: Duration) -> Self {
        Self {
            every,
            due: None,
            left_out: 0,
        }
    }

    /// Something happened. If a line is due: how often the same happened since the last line and
    /// was not logged.
    pub(crate) fn happened(&mut self, now: Instant) -> Option<u64> {
        if self.due.is_some_and(|due| now < due) {
            self.left_out += 1;
            return None;
        }
        self.due = Some(now + self.every);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_and_then_one_in_a_while_with_the_number_of_the_others() {
        let (mut seldom, begin) = (Seldom::new(A_MINUTE), Instant::now());
        assert_eq!(seldom.happened(begin), Some(0));
        let told = (1..60)
            .filter_map(|second| seldom.happened(begin + Duration::from_secs(second)))
            .count();
        assert_eq!(told, 0);
        assert_eq!(seldom.happened(begin + A_MINUTE), Some(59));
        assert_eq!(seldom.happened(begin + A_MINUTE), None);
    }
}
