//! What people say of moves: whether anything moves for balance, at what time of day, how fast, and
//! what had better stay.

use crate::id::{MemberId, PartitionRef};
use crate::mutant::{self, broken};
use crate::scheduler::{Scheduler, Schedulers};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Minutes of a day.
const DAY: u16 = 24 * 60;

/// What people say of moves. It stands in the table, so that a successor of the coordinator goes on
/// with it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Balancing {
    /// Nothing moves for balance alone, and by whose word. What is lost is mended all the same.
    pub paused: Option<Paused>,
    /// At which time of day there is balancing; `None`: at any.
    pub window: Option<Window>,
    /// It is another time of day than that, as the coordinator's clock says.
    pub closed: bool,
    /// How fast copies are made.
    pub rate: MoveRate,
    /// Partitions whose move was cancelled, in order: they stay where they are for as long as they
    /// have all their copies, until somebody resumes, or members come or go.
    pub held: Vec<PartitionRef>,
    /// Members that somebody wants emptied, in order. They stay, and may hold data again once
    /// somebody says so, or once nobody else is left.
    pub drained: Vec<MemberId>,
}

/// Who said that nothing shall move for balance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Paused {
    /// A person.
    Operator,
    /// Moves failed one after the other.
    Failures,
}

/// How fast copies are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum MoveRate {
    /// As fast as those who read and write do not notice.
    #[default]
    Adaptive,
    /// So many bytes a second from each member and to each member, whatever anybody notices.
    Bytes(u64),
}

impl fmt::Display for MoveRate {
    /// In the largest unit of which it is a whole number, as it can be said.
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

/// A time of day, in UTC: from a minute on, and until another, maybe of the next day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Window {
    from: u16,
    to: u16,
}

/// Why a text is no window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no window: say from when to when in UTC, as in 22:00-06:00, from 00:00 to 23:59 and not as long as a day; or `always`"
)]
pub struct NoWindow(String);

impl Balancing {
    /// The slowest that may be asked for: below it, copies are given up because they seem to stand
    /// still.
    pub const RATE_LEAST: u64 = 64 << 10;
    /// Partitions that are held at most.
    pub const HELD_MAX: usize = 1 << 16;

    /// Whether somebody wants this member emptied.
    #[must_use]
    pub fn drains(&self, member: MemberId) -> bool {
        self.drained.binary_search(&member).is_ok()
    }

    /// Somebody wants it emptied, or does not any more.
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

    /// Those of these schedulers that may act now.
    #[must_use]
    pub fn active(&self, on: Schedulers) -> Schedulers {
        use Scheduler::{Drain, Place, Repair, Splits};
        if !self.rests() || broken(&mutant::BALANCES_PAUSED) {
            return on;
        }
        // A range that grows too large is split at any time: that moves nothing.
        [Repair, Drain, Place, Splits]
            .into_iter()
            .filter(|scheduler| on.has(*scheduler))
            .collect()
    }

    /// Whether it is coherent: what came from elsewhere may be anything.
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
    /// Whether this minute of the day, counted from midnight in UTC, is within it.
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
    fn whoever_rests_still_mends() {
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
