//! The states of a partition when the cluster was recovered.

use doyen_gossip::Time;
use doyen_placement::Lineage;

/// How far a partition is committed. Sequences begin again in each lineage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Committed {
    /// Its lineage.
    pub lineage: Lineage,
    /// The last sequence that is known to be committed.
    pub seq: u64,
}

/// The marks of a partition, the earliest recovery first. There are at most `BRANCHES_MAX`.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    pub(crate) of: Vec<PartitionMark>,
    /// What was committed when upkeep last looked. `None`: this node held no whole copy then.
    pub(crate) seen: Option<u64>,
}

/// The state of a partition when the cluster was recovered.
#[derive(Debug)]
pub(crate) struct PartitionMark {
    /// The first recovery has number 1. All tables of a half have its branches in one order.
    pub(crate) recovery: u32,
    /// Later entries may have been acknowledged afterwards. `None`: this node held no whole copy.
    pub(crate) committed: Option<Committed>,
    /// Every in-sync copy was in this half, so the other one has nothing of the partition.
    pub(crate) alone: bool,
    /// When the first and the last change since were seen.
    pub(crate) changed: Option<(Time, Time)>,
}

impl Marks {
    pub(crate) fn add(&mut self, recovery: u32, committed: Option<Committed>, alone: bool) {
        self.of.push(PartitionMark {
            recovery,
            committed,
            alone,
            changed: None,
        });
    }

    pub(crate) fn has(&self, recovery: u32) -> bool {
        self.of.iter().any(|mark| mark.recovery == recovery)
    }
}
