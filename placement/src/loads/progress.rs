//! The progress of copying a partition to a learner.

use super::MEASURE_MAX;
use crate::id::{MemberId, PartitionRef};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of copies in a report. The others are reported once these are done.
pub const PROGRESS_MAX: usize = 256;

/// The progress of a copy that is on its way to a learner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The partition.
    pub partition: PartitionRef,
    /// The learner.
    pub learner: MemberId,
    /// The phase.
    pub phase: CopyPhase,
    /// The number of its keys.
    pub keys: u64,
    /// The number of keys that were sent.
    pub keys_sent: u64,
    /// The bytes that were sent.
    pub bytes_sent: u64,
    /// Bytes a second, lately.
    pub rate: u64,
}

/// The phases of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CopyPhase {
    /// The snapshot is sent.
    Copying,
    /// The snapshot was sent. The learner takes the last of it, and the writes that were made
    /// meanwhile.
    CatchingUp,
    /// Source and learner compute their checksums.
    Comparing,
    /// The copy is equal, and about to count.
    Equal,
}

impl Progress {
    /// The bytes that are still to be sent, if the remaining keys are as large as those before.
    #[must_use]
    pub fn bytes_left(&self) -> u64 {
        let left =
            u128::from(self.keys.saturating_sub(self.keys_sent)) * u128::from(self.bytes_sent);
        match self.phase {
            CopyPhase::Copying => left
                .checked_div(u128::from(self.keys_sent))
                .and_then(|left| u64::try_from(left).ok())
                .unwrap_or(0),
            CopyPhase::CatchingUp | CopyPhase::Comparing | CopyPhase::Equal => 0,
        }
    }

    /// The same, with limits: numbers from another member may be anything.
    pub(super) fn bounded(mut self) -> Self {
        for measure in [
            &mut self.keys,
            &mut self.keys_sent,
            &mut self.bytes_sent,
            &mut self.rate,
        ] {
            *measure = (*measure).min(MEASURE_MAX);
        }
        self.keys = self.keys.max(self.keys_sent);
        self
    }
}

impl fmt::Display for CopyPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Copying => "copying",
            Self::CatchingUp => "catching up",
            Self::Comparing => "comparing",
            Self::Equal => "equal",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{KeyspaceId, PartitionId};

    #[test]
    fn remaining_keys_count_like_sent_ones() {
        let at = PartitionRef::new(KeyspaceId(0), PartitionId(0));
        let of = |phase, keys, keys_sent, bytes_sent| Progress {
            partition: at,
            learner: MemberId(16),
            phase,
            keys,
            keys_sent,
            bytes_sent,
            rate: 0,
        };
        assert_eq!(of(CopyPhase::Copying, 100, 25, 1000).bytes_left(), 3000);
        assert_eq!(
            of(CopyPhase::Copying, 100, 0, 0).bytes_left(),
            0,
            "it is not known yet"
        );
        assert_eq!(of(CopyPhase::Comparing, 100, 25, 1000).bytes_left(), 0);
        let odd = of(CopyPhase::Copying, 0, u64::MAX, u64::MAX).bounded();
        assert!(odd.keys >= odd.keys_sent && odd.bytes_left() == 0);
    }
}
