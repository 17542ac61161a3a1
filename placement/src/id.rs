//! Newtypes for everything that a table counts or names.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! number {
    ($(#[$meta:meta])* $name:ident($inner:ty)) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl $name {
            /// The number that follows.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// How senior a member is: the coordinator numbers members as it admits them, and a lower number is older.
    Age(u64)
}
number! {
    /// A coordinator's term of office. At most one coordinator publishes in a term.
    Term(u64)
}
number! {
    /// A table's place in the sequence of tables. One committed table has it.
    Version(u64)
}
number! {
    /// Counts the changes of a partition's primary or of its in-sync set; fences whoever acts on an older one.
    Epoch(u64)
}
number! {
    /// Counts how often a partition began empty. Data of another lineage is not this partition's data.
    Lineage(u32)
}
number! {
    /// A keyspace's number, unique in a cluster's life.
    KeyspaceId(u16)
}
number! {
    /// A partition's number within its keyspace.
    PartitionId(u32)
}
number! {
    /// A map's number, unique in a cluster's life. Map 0 is database 0 of Redis clients.
    MapId(u32)
}

/// One process start. What comes back after a crash has another.
///
/// Clients that are no members draw theirs from the upper half of the numbers, so that none of them ever passes for a member:
/// no table names such an id, and no connection is let in whose sender says that it is one thing and whose id the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId(pub u64);

impl MemberId {
    const CLIENT: u64 = 1 << 63;

    /// A member's, of random bits.
    #[must_use]
    pub const fn of_member(random: u64) -> Self {
        Self(random & !Self::CLIENT)
    }

    /// A client's, of random bits.
    #[must_use]
    pub const fn of_client(random: u64) -> Self {
        Self(random | Self::CLIENT)
    }

    /// Whether it is that of a client, and so of no member.
    #[must_use]
    pub const fn is_client(self) -> bool {
        self.0 & Self::CLIENT != 0
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One bootstrap. Clusters with different ids refuse each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A partition of a keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartitionRef {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The partition within it.
    pub partition: PartitionId,
}

impl fmt::Display for PartitionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.keyspace, self.partition)
    }
}
