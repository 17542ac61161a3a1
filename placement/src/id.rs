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
    /// How senior a member is: the coordinator numbers members as it admits them, and a lower
    /// number is older.
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
    /// Counts the changes of a partition's primary or of its in-sync set; fences whoever acts on an
    /// older one.
    Epoch(u64)
}
number! {
    /// Counts how often a partition began empty. Data of another lineage is not this partition's
    /// data.
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

/// Data threads of a member at most: as many as the free bits of its id can tell apart.
pub const THREADS_MAX: u8 = 16;

/// One process start. What comes back after a crash has another.
///
/// Clients that are no members draw theirs from the upper half of the numbers, so that none of them
/// ever passes for a member: no table names such an id, and no connection is let in whose sender
/// says that it is one thing and whose id the other.
///
/// The lowest bits of a member's are free: on the data plane they say which of its data threads is
/// meant ([`MemberId::thread`]). Tables name members, so no id in a table has any of them set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId(pub u64);

impl MemberId {
    const CLIENT: u64 = 1 << 63;
    const THREAD: u64 = THREADS_MAX as u64 - 1;

    /// A member's, of random bits.
    #[must_use]
    pub const fn of_member(random: u64) -> Self {
        Self(random & !Self::CLIENT & !Self::THREAD)
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

    /// Of a member: what its data thread of this number is called, which is below `THREADS_MAX`.
    /// The first is called as the member itself.
    #[must_use]
    pub const fn thread(self, number: u8) -> Self {
        Self(self.0 | (number as u64 & Self::THREAD))
    }

    /// The member whose data thread this is. A client has one thread, which is the client.
    #[must_use]
    pub const fn member(self) -> Self {
        if self.is_client() {
            self
        } else {
            Self(self.0 & !Self::THREAD)
        }
    }

    /// Which of the data threads of its member this is.
    #[must_use]
    pub const fn thread_number(self) -> u8 {
        // At most 15.
        if self.is_client() {
            0
        } else {
            (self.0 & Self::THREAD) as u8
        }
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

/// What the members of a cluster order keys by: the founder draws it, and it stays.
///
/// It is a secret of the members. A client that knew it could choose keys that collide, and each of
/// them would cost as much as all before it. So it stands in no name of a table, no report and no
/// log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct OrderKey(pub u128);

impl fmt::Debug for OrderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrderKey")
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

impl PartitionId {
    /// Which data thread of a member with so many has it. By a hash of its number: the planner
    /// deals partitions to members in turn, and by the number itself a member of two would have
    /// only even ones, and nothing for its second thread.
    #[must_use]
    pub const fn thread(self, threads: u8) -> u8 {
        // Fibonacci hashing: multiples of the golden ratio lie evenly, and those of every n-th
        // number, too. Members tell it by themselves: it must stay what it is.
        let hash = self.0.wrapping_mul(0x9E37_79B9) as u64;
        let threads = if threads == 0 { 1 } else { threads as u64 };
        // Below the number of threads.
        ((hash * threads) >> 32) as u8
    }
}

impl fmt::Display for PartitionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.keyspace, self.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_member_are_told_apart_and_lead_back_to_it() {
        let member = MemberId::of_member(u64::MAX);
        let threads: Vec<_> = (0..THREADS_MAX).map(|n| member.thread(n)).collect();
        assert_eq!(threads[0], member);
        assert!(threads.is_sorted() && threads.windows(2).all(|two| two[0] != two[1]));
        for (thread, number) in threads.into_iter().zip(0..) {
            assert_eq!((thread.member(), thread.thread_number()), (member, number));
        }
    }

    #[test]
    fn a_client_is_its_only_thread() {
        let client = MemberId::of_client(7);
        assert_eq!(
            (client.member(), client.thread_number(), client.thread(0)),
            (client, 0, client)
        );
    }
}
