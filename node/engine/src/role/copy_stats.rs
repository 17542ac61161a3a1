//! What a shard counts of copies and learners.

/// Counters of what is sent to copies and learners.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyStats {
    /// Log entries sent to copies.
    pub replicated: u64,
    /// Bytes of snapshots sent.
    pub snapshot_bytes: u64,
    /// Snapshots that continued after their connection was lost, or in another epoch.
    pub continued: u64,
    /// Learners that caught up from the log, without a snapshot.
    pub caught_up: u64,
    /// Learners whose checksum differed.
    pub checksum_mismatches: u64,
}

impl CopyStats {
    /// Adds the figures of another thread of the node.
    pub fn add(&mut self, other: &Self) {
        self.replicated += other.replicated;
        self.snapshot_bytes += other.snapshot_bytes;
        self.continued += other.continued;
        self.caught_up += other.caught_up;
        self.checksum_mismatches += other.checksum_mismatches;
    }
}
