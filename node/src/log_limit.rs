//! Limits log lines that a stranger can cause: one line per interval, with the number of lines that
//! were left out.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// The usual interval.
pub(crate) const A_MINUTE: Duration = Duration::from_secs(60);

/// Says when the next line is due.
#[derive(Debug)]
pub(crate) struct LogLimit {
    every: Duration,
    due: Option<Instant>,
    left_out: u64,
}

impl LogLimit {
    /// One line per interval `every`.
    pub(crate) const fn new(every: Duration) -> Self {
        Self {
            every,
            due: None,
            left_out: 0,
        }
    }

    /// Notes an occurrence. If a line is due, returns the occurrences since the last line that were
    /// not logged.
    pub(crate) fn happened(&mut self, now: Instant) -> Option<LeftOut> {
        if self.due.is_some_and(|due| now < due) {
            self.left_out += 1;
            return None;
        }
        self.due = Some(now + self.every);
        Some(LeftOut(std::mem::take(&mut self.left_out)))
    }
}

/// Adds up what is lost, for one line per interval that says the sum. What is lost while no line is
/// due is said by a later line.
#[cfg(feature = "resp")]
#[derive(Debug)]
pub(crate) struct Losses {
    every: Duration,
    due: Option<Instant>,
    untold: u64,
}

#[cfg(feature = "resp")]
impl Losses {
    /// One line per interval `every`.
    pub(crate) const fn new(every: Duration) -> Self {
        Self {
            every,
            due: None,
            untold: 0,
        }
    }

    /// `count` more are lost.
    pub(crate) const fn add(&mut self, count: u64) {
        self.untold = self.untold.saturating_add(count);
    }

    /// The sum since the last line, if there is a loss and a line is due.
    pub(crate) fn told(&mut self, now: Instant) -> Option<u64> {
        if self.untold == 0 || self.due.is_some_and(|due| now < due) {
            return None;
        }
        self.due = Some(now + self.every);
        self.rest()
    }

    /// The sum since the last line, if there is a loss: no other line follows.
    pub(crate) fn rest(&mut self) -> Option<u64> {
        Some(std::mem::take(&mut self.untold)).filter(|count| *count > 0)
    }
}

/// How many lines were left out, as the end of the line that is logged: nothing if there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeftOut(u64);

impl LeftOut {
    /// The number of lines.
    pub(crate) const fn count(self) -> u64 {
        self.0
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            lines => write!(f, " ({lines} more since the last such line)"),
        }
    }
}

/// The network of one customer of a provider: an IPv4 address, or 64 bits of an IPv6 address.
pub(crate) fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(u128::from(v6) & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "resp")]
    #[test]
    fn each_loss_is_in_the_sum_of_one_line() {
        let (mut losses, begin) = (Losses::new(A_MINUTE), Instant::now());
        assert_eq!(losses.told(begin), None, "nothing is lost");
        losses.add(3);
        assert_eq!(losses.told(begin), Some(3));
        losses.add(4);
        losses.add(5);
        assert_eq!(losses.told(begin + Duration::from_secs(59)), None);
        assert_eq!(losses.told(begin + A_MINUTE), Some(9));
        assert_eq!(
            (losses.told(begin + 3 * A_MINUTE), losses.rest()),
            (None, None)
        );
        losses.add(2);
        assert_eq!((losses.rest(), losses.rest()), (Some(2), None));
    }

    #[test]
    fn the_first_line_is_logged_and_then_one_per_interval_with_the_number_of_the_others() {
        let (mut log_limit, begin) = (LogLimit::new(A_MINUTE), Instant::now());
        assert_eq!(log_limit.happened(begin), Some(LeftOut(0)));
        let told = (1..60)
            .filter_map(|second| log_limit.happened(begin + Duration::from_secs(second)))
            .count();
        assert_eq!(told, 0);
        assert_eq!(log_limit.happened(begin + A_MINUTE), Some(LeftOut(59)));
        assert_eq!(log_limit.happened(begin + A_MINUTE), None);
        assert_eq!(LeftOut(0).to_string(), "");
        assert_eq!(LeftOut(2).to_string(), " (2 more since the last such line)");
    }
}
