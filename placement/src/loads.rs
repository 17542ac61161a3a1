//! The loads of partitions and members, as they measure them.
//!
//! Loads are soft state: a coordinator hears them from the primaries, and believes only those. No
//! table holds them, and the primaries report them to each new coordinator. So they decide what
//! would be better, and never what is right.
//!
//! ```text
//!  a primary's counters ──> PartitionLoad ──Reporter──> Report ──> Loads ──> planner::plan
//!                                                                    └────> LoadWindow: uneven?
//! ```

mod ledger;
mod meter;
mod progress;
mod report;
mod sample;
mod window;

pub use ledger::Loads;
pub use meter::{LoadCounters, Meter, Rates, Rounding};
pub use progress::{CopyPhase, PROGRESS_MAX, Progress};
pub use report::{REPORT_BYTES_MAX, Report, Reporter};
pub use sample::{KEY_BYTES_MAX, Sample, Skew};
pub use window::LoadWindow;

use crate::id::{MemberId, PartitionRef};
use serde::{Deserialize, Serialize};

/// No measurement counts for more than this, so that sums over a cluster do not overflow.
const MEASURE_MAX: u64 = 1 << 44;
/// Watermarks of a member's memory, in percent. Above the first, it gets no copy that another
/// member can hold. Above the second, copies move away from it. Above the third, its primaries
/// refuse writes that need more memory.
pub const WATERMARKS: [u8; 3] = [FILLED, EVACUATED, FULL];
/// The first watermark.
pub const FILLED: u8 = 70;
/// The second watermark.
pub const EVACUATED: u8 = 80;
/// The third watermark.
pub const FULL: u8 = 90;
/// The number of bytes that cost about as much as one more operation.
const BYTES_AN_OPERATION: u64 = 4096;

/// The load of one partition. Rates are per second, and decay over about ten seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionLoad {
    /// Bytes of keys and values as they are stored, with their overhead.
    pub bytes: u64,
    /// The number of keys.
    pub keys: u64,
    /// Reads a second.
    pub reads: u64,
    /// Writes a second.
    pub writes: u64,
    /// Bytes answered a second.
    pub read_bytes: u64,
    /// Bytes written a second.
    pub written_bytes: u64,
    /// How the requests spread over its keys.
    pub skew: Skew,
}

/// The load of one member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberLoad {
    /// Bytes of its data, log tails and snapshots.
    pub memory: u64,
    /// Its limit for them.
    pub memory_max: u64,
    /// The part of a core that each of its data threads took, in thousandths.
    pub cpu: u16,
    /// Whether it has no time to spare.
    pub busy: bool,
}

/// What has been uneven for long enough to move something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uneven {
    /// The work of members.
    pub work: bool,
    /// The bytes that members hold.
    pub bytes: bool,
    /// A member's memory is nearly full, and has been for some time.
    pub memory: bool,
}

/// The ratio to a member's share, and the gap to it, from which members count as unevenly loaded.
/// Both are needed: among small numbers any ratio is noise, and among large numbers any gap.
#[derive(Debug, Clone, Copy)]
pub struct Threshold {
    /// The ratio, in percent of the share.
    pub percent: u64,
    /// The gap, in the unit of the values.
    pub gap: u64,
}

impl Threshold {
    /// For work, in operations a second.
    pub const WORK: Self = Self {
        percent: 125,
        gap: 2_000,
    };
    /// For bytes.
    pub const BYTES: Self = Self {
        percent: 125,
        gap: 64 << 20,
    };

    /// The threshold at which evening out stops. It is nearer to the share than the one at which it
    /// begins, so that the result lasts.
    #[must_use]
    pub const fn reached(self) -> Self {
        Self {
            percent: 100 + (self.percent - 100) / 2,
            gap: self.gap / 2,
        }
    }

    /// Whether one of these (burden, weight) is too far above its share of the sum.
    #[must_use]
    pub fn is_exceeded(self, burdens: impl Iterator<Item = (u64, u64)> + Clone) -> bool {
        let total = burdens.clone().fold((0, 0), |(b, w), (burden, weight)| {
            (b + u128::from(burden), w + u128::from(weight))
        });
        burdens.into_iter().any(|(burden, weight)| {
            // This is burden / weight > percent of total.0 / total.1, without fractions.
            let share = total.0 * u128::from(weight);
            let ratio = u128::from(burden) * total.1 * 100 > share * u128::from(self.percent);
            ratio && u128::from(burden) * total.1 > share + u128::from(self.gap) * total.1
        })
    }
}

impl MemberLoad {
    /// Whether a copy of this many bytes fits into the memory that copies may fill. A copy that
    /// only balances must leave more, because copies move away from a member that is filled that
    /// far. A member that did not report a limit has room for anything.
    #[must_use]
    pub fn has_room(&self, bytes: u64, balances: bool) -> bool {
        let most = if balances { EVACUATED } else { FULL };
        Self {
            memory: self.memory.saturating_add(bytes),
            ..*self
        }
        .filled()
            < most
    }

    /// The filled part of its memory in percent, for people. Writes that do not fit below the last
    /// watermark are refused, so a member that refuses writes or evicts has filled slightly less.
    /// It counts as full.
    #[must_use]
    pub fn told(&self) -> u8 {
        match self.filled() {
            almost if almost + 1 == FULL => FULL,
            filled => filled,
        }
    }

    /// The filled part of its memory, in percent.
    #[must_use]
    pub fn filled(&self) -> u8 {
        let percent = (u128::from(self.memory) * 100)
            .checked_div(u128::from(self.memory_max))
            .unwrap_or(0);
        u8::try_from(percent).unwrap_or(u8::MAX).min(100)
    }
}

impl PartitionLoad {
    /// The primary's work for this partition, in operations a second.
    #[must_use]
    pub fn work(&self) -> u64 {
        self.work_of_reads() + self.work_of_writes()
    }

    /// The part of the work that goes with the lead alone.
    #[must_use]
    pub fn work_of_reads(&self) -> u64 {
        self.reads + self.read_bytes / BYTES_AN_OPERATION
    }

    /// The work of every copy.
    #[must_use]
    pub fn work_of_writes(&self) -> u64 {
        self.writes + self.written_bytes / BYTES_AN_OPERATION
    }

    /// Whether it differs from `said`, by ratio and by gap.
    #[must_use]
    pub fn differs(&self, said: &Self) -> bool {
        let far = |now: u64, then: u64, gap: u64| now.abs_diff(then) > gap.max(now.max(then) / 5);
        far(self.bytes, said.bytes, 4 << 10)
            || far(self.keys, said.keys, 20)
            || far(self.work_of_reads(), said.work_of_reads(), 20)
            || far(self.work_of_writes(), said.work_of_writes(), 20)
            || (self.skew != said.skew && self.work() > 20)
            // A small load on very many partitions is a large load.
            || (self.work() == 0 && said.work() > 0)
    }

    /// The same, with limits: numbers from another member may be anything.
    pub(crate) fn bounded(mut self) -> Self {
        for measure in [
            &mut self.bytes,
            &mut self.keys,
            &mut self.reads,
            &mut self.writes,
            &mut self.read_bytes,
            &mut self.written_bytes,
        ] {
            *measure = (*measure).min(MEASURE_MAX);
        }
        self.skew.bound();
        self
    }
}

/// A partition and its load.
pub type MeasuredPartition = (PartitionRef, PartitionLoad);

/// A member and its load.
pub type MeasuredMember = (MemberId, MemberLoad);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_uneven_by_ratio_and_by_gap() {
        let exceeded = |loads: &[(u64, u64)]| {
            Threshold {
                percent: 125,
                gap: 100,
            }
            .is_exceeded(loads.iter().copied())
        };
        assert!(exceeded(&[(1000, 1), (500, 1)]));
        assert!(!exceeded(&[(10, 1), (1, 1)]), "a large ratio of little");
        assert!(
            !exceeded(&[(11_000, 1), (10_000, 1)]),
            "a large gap of much"
        );
        assert!(
            !exceeded(&[(2000, 200), (1000, 100)]),
            "shares go by weight"
        );
        assert!(exceeded(&[(2000, 100), (1000, 200)]));
        assert!(!exceeded(&[]) && !exceeded(&[(5000, 1)]));
        assert!(exceeded(&[(u64::MAX, 1), (0, u64::from(u32::MAX))]));
    }

    #[test]
    fn little_changes_are_not_worth_saying() {
        let load = |reads| PartitionLoad {
            reads,
            ..PartitionLoad::default()
        };
        assert!(!load(1).differs(&load(19)) && !load(1000).differs(&load(1100)));
        assert!(
            load(0).differs(&load(19)) && !load(0).differs(&load(0)),
            "that nothing goes on any more is"
        );
        assert!(load(1000).differs(&load(0)) && load(0).differs(&load(1000)));
    }
}
