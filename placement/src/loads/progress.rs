//! How far the copying of a partition to a learner has come.

use super::MEASURE_MAX;
use crate::id::{MemberId, PartitionRef};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Of a report at most: others are told once these are done.
pub const PROGRESS_MAX: usize = 256;

/// How far a copy has come that is on its way to a learner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// What is copied.
    pub partition: PartitionRef,
    /// Who learns it.
    pub learner: MemberId,
    /// What is done just now.
    pub phase: CopyPhase,
    /// Keys that are there,
    pub keys: u64,
    /// and those of them that were sent.
    pub keys_sent: u64,
    /// Bytes of them.
    pub bytes_sent: u64,
    /// Bytes a second, lately.
    pub rate: u64,
}

/// What is done just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CopyPhase {
    /// The snapshot is sent.
    Copying,
    /// It was sent; the learner takes the last of it, and what was written meanwhile.
    CatchingUp,
    /// Both sum what they have.
    Comparing,
    /// It is equal, and is to be counted.
    Equal,
}

impl Progress {
    /// Bytes that are still to be sent, about: as large as those that were.
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

    /// As it may be counted with: what came from elsewhere may be any number.
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
    fn what_is_left_is_as_large_as_what_was_sent() {
        let at = PartitionRef {
            keyspace: KeyspaceId(0),
            partition: PartitionId(0),
        };
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
            "nobody knows yet"
        );
        assert_eq!(of(CopyPhase::Comparing, 100, 25, 1000).bytes_left(), 0);
        let odd = of(CopyPhase::Copying, 0, u64::MAX, u64::MAX).bounded();
        assert!(odd.keys >= odd.keys_sent && odd.bytes_left() == 0);
    }
}
