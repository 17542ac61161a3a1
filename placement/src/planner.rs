//! Turns a table into the next.

use crate::id::{MemberId, PartitionRef};

/// Where partitions shall go: for each, its replicas as they shall be, primary first.
pub type Plan = Vec<(PartitionRef, Vec<MemberId>)>;
