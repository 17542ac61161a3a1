//! What a member knows of a native client, and a client of a member.

use doyen_gossip::Time;
use doyen_placement::TableName;
use std::time::Duration;

/// How long a client tries to get an operation done.
pub const PARK: Duration = Duration::from_secs(5);
/// The greatest age of a client's write at its arrival.
pub(crate) const FRESH: Duration = Duration::from_secs(5);
/// How long the outcomes of a client's operations are kept at least: half as much again as both
/// together.
pub(crate) const RETENTION: Duration = Duration::from_secs(15);

/// What a member knows of a connected client, or a client of a connected member.
#[derive(Debug, Default)]
pub(crate) struct Visit {
    /// At a member: the last clock that it told the client.
    pub(crate) told: u64,
    /// At a member: the last clock that the client had heard. 0: none.
    pub(crate) heard: u64,
    /// At a member: the last table that it sent to the client.
    pub(crate) table: Option<TableName>,
    /// At a member: the tables since which that one was sent.
    pub(crate) since: Vec<Option<TableName>>,
    /// At a client: the largest value that the member accepts. `None`: it has not said that it is
    /// ready.
    pub(crate) value_bytes_max: Option<u64>,
    /// At a client: the member's last clock, and when it arrived. `None` once it was sent back.
    pub(crate) clock: Option<(u64, Time)>,
    /// At a client: when the member last did not send a table that it had named.
    pub(crate) broke_word: Option<Time>,
}
