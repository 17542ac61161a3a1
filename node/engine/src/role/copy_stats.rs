//! What a shard counts of copies and learners.

/// Adds these figures of another thread. The others are named, too, so that none is forgotten.
macro_rules! add_figures {
    ($to:ident, $from:ident, [$($figure:ident)*] and [$($other:ident)*]) => {
        let Self { $($figure,)* $($other: _,)* } = $from;
        $($to.$figure += *$figure;)*
    };
}
pub(super) use add_figures;

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
        add_figures!(self, other, [
            replicated snapshot_bytes continued caught_up checksum_mismatches
        ] and []);
    }
}
