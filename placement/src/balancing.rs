//! The operators' settings for moves: whether anything moves for balance, at what time of day, how
//! fast, and which partitions stay.

use crate::id::{MemberId, PartitionRef};
use crate::mutant::{self, broken};
use crate::scheduler::{Scheduler, Schedulers};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The minutes of a day.
const DAY: u16 = 24 * 60;

/// The operators' settings for moves. They stand in the table, so another coordinator continues
/// with them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Balancing {
    /// Nothing moves for balance alone. The value says what paused it. Lost copies are repaired
    /// anyway.
    pub paused: Option<Paused>,
    /// The time of day at which balancing is allowed. `None`: at any time.
    pub window: Option<Window>,
    /// Whether the coordinator's clock is outside of that time.
    pub closed: bool,
    /// The rate of copying.
    pub rate: MoveRate,
    /// Partitions whose move was cancelled, in order. As long as they have all their copies, they
    /// stay where they are, until balancing is resumed or members come or go.
    pub held: Vec<PartitionRef>,
    /// Members that an operator wants emptied, in order. They stay members. They may hold data
    /// again once an operator says so, or once no other member is left that could.
    pub drained: Vec<MemberId>,
}

/// What paused the moves for balance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Paused {
    /// An operator.
    Operator,
    /// Moves that failed one after the other.
    Failures,
}

/// The rate of copying.
///
/// ```
/// # use doyen_placement as doyen;
/// use doyen::MoveRate;
///
/// assert_eq!(MoveRate::Bytes(20 << 20).to_string(), "20mb a second");
/// assert_eq!(MoveRate::default().to_string(), "adaptive");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum MoveRate {
    /// As fast as possible without clients noticing.
    #[default]
    Adaptive,
    /// This many bytes a second from each member and to each member, even if clients notice.
    Bytes(u64),
}

impl fmt::Display for MoveRate {
    /// Shows the rate in the largest unit that gives a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Bytes(bytes) = *self else {
            return f.write_str("adaptive");
        };
        let units = [(1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb")];
        match units
            .into_iter()
            .find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit))
        {
            Some((unit, name)) => write!(f, "{}{name} a second", bytes / unit),
            None => write!(f, "{bytes} bytes a second"),
        }
    }
}

/// A time of day, in UTC: from one minute until another, perhaps of the next day.
///
/// ```
/// # use doyen_placement as doyen;
/// use doyen::Window;
///
/// let night: Window = "22:00-06:00".parse()?;
/// assert!(night.has(23 * 60) && !night.has(12 * 60)); // minutes of the day
/// # Ok::<_, doyen_placement::NoWindow>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Window {
    from: u16,
    to: u16,
}

/// Why a text is no window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no window: give two times in UTC, as in 22:00-06:00, from 00:00 to 23:59 and not \
     as long as a day; or `always`"
)]
pub struct NoWindow(String);

impl Balancing {
    /// The lowest rate. A slower copy would be given up because it seems to stand still.
    pub const RATE_LEAST: u64 = 64 << 10;
    /// The largest number of partitions that are held.
    pub const HELD_MAX: usize = 1 << 16;

    /// Whether an operator wants this member emptied.
    #[must_use]
    pub fn drains(&self, member: MemberId) -> bool {
        self.drained.binary_search(&member).is_ok()
    }

    /// Notes whether an operator wants this member emptied.
    pub(crate) fn set_drained(&mut self, member: MemberId, drained: bool) {
        match (self.drained.binary_search(&member), drained) {
            (Ok(at), false) => _ = self.drained.remove(at),
            (Err(at), true) => self.drained.insert(at, member),
            (Ok(_), true) | (Err(_), false) => {}
        }
    }

    /// Whether nothing may move for balance now.
    #[must_use]
    pub const fn rests(&self) -> bool {
        self.paused.is_some() || self.closed
    }

    /// The schedulers among these that may act now.
    #[must_use]
    pub fn active(&self, on: Schedulers) -> Schedulers {
        use Scheduler::{Drain, Place, Repair, Splits};
        if !self.rests() || broken(&mutant::BALANCES_PAUSED) {
            return on;
        }
        // A range that grows too large is split at any time, because that moves no data.
        [Repair, Drain, Place, Splits]
            .into_iter()
            .filter(|scheduler| on.has(*scheduler))
            .collect()
    }

    /// Whether the settings are consistent. A table from another member may contain anything.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let sorted =
            self.held.len() <= Self::HELD_MAX && self.held.windows(2).all(|pair| pair[0] < pair[1]);
        let sorted = sorted && self.drained.windows(2).all(|pair| pair[0] < pair[1]);
        let window = self
            .window
            .is_none_or(|w| w.from < DAY && w.to < DAY && w.from != w.to);
        let rate = match self.rate {
            MoveRate::Adaptive => true,
            MoveRate::Bytes(bytes) => bytes >= Self::RATE_LEAST,
        };
        sorted && window && rate && (self.window.is_some() || !self.closed)
    }
}

impl Window {
    /// Whether the window contains this minute of the day, counted from midnight in UTC.
    #[must_use]
    pub const fn has(self, minute: u16) -> bool {
        if self.from < self.to {
            self.from <= minute && minute < self.to
        } else {
            self.from <= minute || minute < self.to
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to } = self;
        write!(
            f,
            "{:02}:{:02}-{:02}:{:02}",
            from / 60,
            from % 60,
            to / 60,
            to % 60
        )
    }
}

impl FromStr for Window {
    type Err = NoWindow;

    fn from_str(text: &str) -> Result<Self, NoWindow> {
        let minute = |time: &str| {
            let (hours, minutes) = time.trim().split_once(':')?;
            let number = |digits: &str| {
                digits
                    .parse::<u16>()
                    .ok()
                    .filter(|_| digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit()))
            };
            let (hours, minutes) = (number(hours)?, number(minutes)?);
            (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
        };
        let both = text
            .split_once('-')
            .and_then(|(from, to)| minute(from).zip(minute(to)));
        let no = || NoWindow(text.chars().take(40).collect());
        both.filter(|(from, to)| from != to)
            .map(|(from, to)| Self { from, to })
            .ok_or_else(no)
    }
}

impl fmt::Display for Paused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Operator => "by an operator",
            Self::Failures => "because moves failed one after the other",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_may_pass_midnight() {
        let night: Window = "22:00-06:00".parse().expect("it is one");
        assert!(night.has(22 * 60) && night.has(0) && night.has(6 * 60 - 1));
        assert!(!night.has(6 * 60) && !night.has(12 * 60) && !night.has(22 * 60 - 1));
        let noon: Window = "11:30-12:15".parse().expect("it is one");
        assert!(noon.has(690) && noon.has(734) && !noon.has(735) && !noon.has(689));
        assert_eq!(
            (night.to_string().as_str(), noon.to_string().as_str()),
            ("22:00-06:00", "11:30-12:15")
        );
        for wrong in [
            "",
            "22:00",
            "22-06",
            "24:00-06:00",
            "22:60-06:00",
            "22:00-22:00",
            "+2:00-06:00",
            "2:00-06:00",
            "22:00-06:00-07:00",
        ] {
            assert!(wrong.parse::<Window>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn while_balancing_rests_lost_copies_are_repaired() {
        let paused = Balancing {
            paused: Some(Paused::Operator),
            ..Balancing::default()
        };
        let active = paused.active(Schedulers::ALL);
        assert!(
            active.has(Scheduler::Repair)
                && active.has(Scheduler::Drain)
                && !active.has(Scheduler::Copies)
        );
        assert!(
            !paused
                .active([Scheduler::Hot].into_iter().collect())
                .has(Scheduler::Repair),
            "what is off stays off"
        );
        assert_eq!(
            Balancing::default().active(Schedulers::MANUAL),
            Schedulers::MANUAL
        );
    }
}
