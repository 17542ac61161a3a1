//! Points of a move at which a test may end this process, as a power cut would: without another
//! message, and without finishing anything.
//!
//! Only our own tests need the feature `fault-points`. Without it, a process cannot be told to end
//! so, and passing a point costs nothing.
//!
//! ```text
//!   source    Begin ── Chunk ─────── Finish ── Compare ── asks for the admission
//!   target      └─ begins ── receives ── finishes ── compares
//!   any       a table with this stage is accepted ── is installed
//! ```

#[cfg(feature = "fault-points")]
mod armed;

#[cfg(feature = "fault-points")]
pub use armed::{UnknownFault, arm, pass_tables};

/// A point at which a process may end. The step that the point is named after is done, but its
/// messages may not have been sent yet.
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
    /// A source knows that the copy is equal, and has asked for its admission.
    SourceAdmits,
    /// A learner has dropped what it held.
    TargetBegins,
    /// A learner has taken a part of a snapshot.
    TargetReceives,
    /// A learner has everything, and has said so.
    TargetFinishes,
    /// A learner has compared the checksums.
    TargetCompares,
    /// A table that adds learners was accepted.
    CopyingAccepted,
    /// Such a table was installed.
    CopyingInstalled,
    /// A table in which learners count was accepted.
    InSyncAccepted,
    /// Such a table was installed.
    InSyncInstalled,
    /// A table in which other members lead was accepted.
    SwitchedAccepted,
    /// Such a table was installed.
    SwitchedInstalled,
    /// A table without old copies was accepted.
    DroppedAccepted,
    /// Such a table was installed.
    DroppedInstalled,
}

/// Ends this process if it was told to end at this point.
#[cfg(feature = "fault-points")]
pub(crate) use armed::pass;

/// Ends this process if it was told to end at this point.
#[cfg(not(feature = "fault-points"))]
#[inline(always)]
pub(crate) const fn pass(_: Point) {}
