//! Points in the life of a move at which a test may end this process, as a power cut would: nothing
//! more is said, nothing is finished.
//!
//! Without the feature `fault-points`, which nobody but our tests should want, no process can be
//! told to, and passing a point is nothing at all.
//!
//! ```text
//!   source    Begin ── Chunk ─────── Finish ── Compare ── asks for the admission
//!   target      └─ begins ── receives ── finishes ── compares
//!   anybody   a table with this stage is accepted ── is installed
//! ```

#[cfg(feature = "fault-points")]
mod armed;

#[cfg(feature = "fault-points")]
pub use armed::{Unknown, arm, pass_tables};

/// Where a process may end. It has done what the point is named after; what it said there may not
/// have left yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// A source has told a learner that a copy begins.
    SourceBegins,
    /// A source has sent the first part of a snapshot.
    SourceSends,
    /// A source has sent the last part.
    SourceFinishes,
    /// A source has sent its checksum.
    SourceCompares,
    /// A source knows that the copy is equal, and asks for its admission.
    SourceAdmits,
    /// A learner has emptied itself.
    TargetBegins,
    /// A learner has taken a part of a snapshot.
    TargetReceives,
    /// A learner has everything, and says so.
    TargetFinishes,
    /// A learner has compared.
    TargetCompares,
    /// A table that adds learners was accepted.
    CopyingAccepted,
    /// Such a table was installed.
    CopyingInstalled,
    /// A table in which learners count was accepted.
    InSyncAccepted,
    /// Such a table was installed.
    InSyncInstalled,
    /// A table in which others lead was accepted.
    SwitchedAccepted,
    /// Such a table was installed.
    SwitchedInstalled,
    /// A table without old copies was accepted.
    DroppedAccepted,
    /// Such a table was installed.
    DroppedInstalled,
}

/// This process has come to this point.
#[cfg(feature = "fault-points")]
pub(crate) use armed::pass;

/// This process has come to this point.
#[cfg(not(feature = "fault-points"))]
#[inline(always)]
pub(crate) const fn pass(_: Point) {}
