//! The wire versions that this program speaks.
//!
//! There is one sequence of numbers. The *version* of a connection is the highest that both its
//! ends speak; each end gives its range in its hello. The *level* of a cluster stands in the table.
//! Every member speaks it, the coordinator raises it when every member is known to speak more, and
//! it never falls (I17). So a process speaks two versions: a rolling upgrade needs the one before.
//!
//! | what | is laid out by |
//! |---|---|
//! | frames and messages | the version of their connection |
//! | tables and deltas | their own level, which their bytes say |
//! | what a new version makes possible | the level of the table: it is used from that level on |
//!
//! # To add something
//!
//! Raise [`LEVELS`] by one if the last release has its upper end. Then:
//!
//! - **a field of a message of control threads** (`Message`, `AdminRequest`, `Status` and what they
//!   are made of): one line with the next number, at its declaration. It is an `Option`, or has a
//!   default: programs that do not know the field leave it out, and skip it. For example, a member
//!   that acknowledges a proposal may say how long it took to store it:
//!
//!   ```text
//!   pub struct ProposalAck {
//!       ...
//!       #[n(2)]
//!       pub seal: Option<Vec<PartitionRef>>,
//!       /// How long it took to store the proposal.
//!       #[n(3)]
//!       pub stored_ms: Option<u64>,
//!   }
//!   ```
//!
//!   A field that others must not overlook is no such field: add a message, from the new level on.
//!   A number is never used again, and the type of a field never changes.
//! - **a message of control threads**: a variant with the next number. Send it only over
//!   connections of the new version. If every member must understand it, send it only once the
//!   table has the new level.
//! - **a frame** of the data plane: give it the next free tag in its list of tags. Send it as such
//!   a message.
//! - **a field of a frame**, or of a datagram: make a new kind with a new tag, and send the old
//!   kind over connections of the version before (`Peer::version` in the engine). A kind of frame
//!   never changes its layout: a copy that skips an effect is no copy.
//! - **a field of a table**: give it a value that means what tables of the level before mean. Add
//!   it to the name of the table, and encode it, only from the new level on (`table/leveled.rs`).
//!   `Table::at_level` removes it for processes that speak less.
//! - **a row, an effect or an outcome**: write it into a log only while the table has the new
//!   level. A copy of the version before must never receive one.
//! - **unknown kinds**: a process should never receive a kind that it does not know. If it does,
//!   and the sender's program is newer and used the control network, a node drops the message,
//!   counts it and logs it once. Otherwise the connection ends, because a hole in a lane of data
//!   would be worse.
//! - **in every case**: write the corpus of the new version (`just corpus`), and describe it in
//!   `CHANGELOG.md`.
//!
//! # To remove something
//!
//! When the next version begins, [`LEVELS`] loses its lower end. Remove the encodings for that
//! version alone, its corpus, and the tags that only it used. Tags are not reused.

/// The lowest and the highest version that this program speaks.
pub const LEVELS: (u16, u16) = (16, 17);

/// From this level on, values may be sorted sets and lists.
pub const SORTED: u16 = 17;

/// From this level on, values are dumped and restored in Redis's format.
pub const DUMPS: u16 = 17;

/// From this level on, fields of a small collection expire without making it a table, and are
/// deleted one by one in the log.
pub const DATED_FIELDS: u16 = 17;

/// From this level on, a key that is watched while it is absent is watched for what comes and goes.
pub const ABSENCES: u16 = 17;

/// From this level on, a subscriber learns which of its own operations made a change.
pub const OWN_CHANGES: u16 = 17;

/// From this level on, a range of rows is removed by one record of a log.
pub const CUTS: u16 = 17;

/// From this level on, strings are counts of distinct elements, are combined and compared, and
/// elements are sorted.
pub const STRINGS_TOGETHER: u16 = 17;

/// From this level on, a key is given what was gathered from several partitions.
pub const GATHERED: u16 = 17;

/// From this level on, a keyspace may have a durability, and a member the count of its starts.
pub const DURABILITY: u16 = 17;
