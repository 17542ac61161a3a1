//! Which versions of everything that travels this program speaks.
//!
//! There is one number. The *version* of a connection is the highest that both its ends speak;
//! each says its range in its hello. The *level* of a cluster stands in the table: every member
//! speaks it, the coordinator raises it once every member is known to speak more, and it never
//! falls (I17). So a process speaks two versions: the one before is what a rolling upgrade needs.
//!
//! | what | is laid out by |
//! |---|---|
//! | frames and messages | the version of their connection |
//! | tables and deltas | their own level, which their bytes say from [`MARKED`] on |
//! | what a new version makes possible | the level of the table: it is used from that level on |
//!
//! # To add something
//!
//! Raise [`LEVELS`] by one if the last release has its upper end, and then:
//!
//! - **a frame or a message**: give it the next free tag in its list of tags. Send it only over
//!   connections of the new version, or only once the table has the new level where what it says
//!   must be understood by every member.
//! - **a field of a frame or a message**: make a new kind with a new tag, and send the old kind
//!   over connections of the version before. A kind never changes its layout.
//! - **a field of a table**: give it a value that means what tables of the level before mean, add
//!   it to the name of the table from the new level on only, and lay it out from the new level on
//!   only (`table/leveled.rs`). `Table::at_level` takes it away for those who speak less.
//! - **a row, an effect or an outcome**: write it into a log only while the table has the new
//!   level. A copy of the version before must never be given one.
//! - **what must not happen**: a process is sent a kind that it does not know. A node drops it,
//!   counts it and says so once, if the sender's program is newer and it came over the control
//!   network. Otherwise the connection ends, because a hole in a lane of data would be worse.
//! - **in every case**: write the corpus of the new version (`just corpus`), and name what is new
//!   in `CHANGELOG.md`.
//!
//! # To take something away
//!
//! When the next version is begun, [`LEVELS`] loses its lower end: take away what is laid out for
//! that version alone, its corpus, and the tags that only it used. Tags are not given again.

/// The lowest and the highest version that this program speaks.
pub const LEVELS: (u16, u16) = (13, 14);

/// From this level on, the bytes of a table or a delta say their level.
pub const MARKED: u16 = 14;
