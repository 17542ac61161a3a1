//! The reasons for which copies move, and which of them are on.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A reason for which the planner moves copies, or splits and merges partitions. No scheduler
/// undoes what an earlier one has reached.
///
/// Example: [`Schedulers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheduler {
    /// Partitions with too few or too many copies.
    Repair,
    /// Copies on members that drain.
    Drain,
    /// Copies that break a rule of their keyspace, or stand nearer to others than necessary.
    Place,
    /// Members that hold more or fewer copies than their share.
    Copies,
    /// Members that lead more or fewer partitions than their share.
    Primaries,
    /// Members whose measured work is far above their share.
    Hot,
    /// Ranges that have become large or busy, and are split.
    Splits,
    /// Neighbouring ranges that are small and idle, and are merged.
    Merges,
}

/// Schedulers that are on.
///
/// ```
/// # use doyen_placement as doyen;
/// use doyen::{Scheduler, Schedulers};
///
/// assert!(!Schedulers::MANUAL.has(Scheduler::Hot));
/// // All but those that split and merge ranges:
/// let reshape = [Scheduler::Splits, Scheduler::Merges];
/// let moves: Schedulers = Schedulers::ALL.iter().filter(|each| !reshape.contains(each)).collect();
/// assert!(moves.move_everything());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Schedulers(u16);

/// Why a text names no scheduler.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no reason to move anything: there are repair, drain, place, copies, primaries, hot, \
     splits and merges"
)]
pub struct NoScheduler(String);

impl Scheduler {
    /// All of them, the most important first.
    pub const ALL: [Self; 8] = [
        Self::Repair,
        Self::Drain,
        Self::Place,
        Self::Copies,
        Self::Primaries,
        Self::Hot,
        Self::Splits,
        Self::Merges,
    ];

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl Schedulers {
    /// Everything moves by itself.
    pub const ALL: Self = Self((1 << Scheduler::ALL.len()) - 1);
    /// Lost or misplaced copies are repaired. Nothing moves for balance alone.
    pub const MANUAL: Self =
        Self(Scheduler::Repair.bit() | Scheduler::Drain.bit() | Scheduler::Place.bit());

    /// Whether this one is on.
    #[must_use]
    pub const fn has(self, scheduler: Scheduler) -> bool {
        self.0 & scheduler.bit() != 0
    }

    /// Whether every scheduler that moves copies or primaries is on.
    #[must_use]
    pub fn move_everything(self) -> bool {
        use Scheduler::{Copies, Drain, Place, Primaries, Repair};
        [Repair, Drain, Place, Copies, Primaries]
            .into_iter()
            .all(|scheduler| self.has(scheduler))
    }

    /// The schedulers that are on, the most important first.
    pub fn iter(self) -> impl Iterator<Item = Scheduler> {
        Scheduler::ALL
            .into_iter()
            .filter(move |scheduler| self.has(*scheduler))
    }

    /// Whether all of these exist. A number from another member may be anything.
    #[must_use]
    pub const fn exist(self) -> bool {
        self.0 & !Self::ALL.0 == 0
    }
}

impl FromIterator<Scheduler> for Schedulers {
    fn from_iter<I: IntoIterator<Item = Scheduler>>(schedulers: I) -> Self {
        Self(
            schedulers
                .into_iter()
                .fold(0, |bits, scheduler| bits | scheduler.bit()),
        )
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Repair => "repair",
            Self::Drain => "drain",
            Self::Place => "place",
            Self::Copies => "copies",
            Self::Primaries => "primaries",
            Self::Hot => "hot",
            Self::Splits => "splits",
            Self::Merges => "merges",
        })
    }
}

impl FromStr for Scheduler {
    type Err = NoScheduler;

    fn from_str(text: &str) -> Result<Self, NoScheduler> {
        let named = Self::ALL
            .into_iter()
            .find(|scheduler| scheduler.to_string() == text);
        named.ok_or_else(|| NoScheduler(text.chars().take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedulers_are_told_apart() {
        for one in Scheduler::ALL {
            let only: Schedulers = [one].into_iter().collect();
            assert_eq!(only.iter().collect::<Vec<_>>(), [one]);
            assert_eq!(one.to_string().parse(), Ok(one));
        }
        assert_eq!(
            Scheduler::ALL.into_iter().collect::<Schedulers>(),
            Schedulers::ALL
        );
        assert!(Schedulers::ALL.exist() && !Schedulers(256).exist());
        assert!("balance".parse::<Scheduler>().is_err());
    }
}
