//! Newtypes for everything that a table counts or names.

use minicbor::{Decode, Encode};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

macro_rules! number {
    ($(#[$meta:meta])* $name:ident($inner:ty)) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[derive(Serialize, Deserialize, Encode, Decode)]
        #[cbor(transparent)]
        pub struct $name(#[n(0)] pub $inner);

        impl $name {
            /// The next number.
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
    /// The seniority of a member. The coordinator numbers members as it admits them, and a lower
    /// number is older.
    Age(u64)
}
number! {
    /// A coordinator's term. At most one coordinator publishes in a term.
    Term(u64)
}
number! {
    /// A table's place in the sequence of tables. Only one committed table has it.
    Version(u64)
}
number! {
    /// Counts the changes of a partition's primary or in-sync set. A member that acts on an older
    /// epoch is fenced off.
    Epoch(u64)
}
number! {
    /// Counts how often a partition began empty. Data of another lineage is not data of this
    /// partition.
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

impl MapId {
    /// The number of databases of Redis clients.
    pub const DATABASES: u32 = 16;

    /// The map of a database, if there is such a database. Database 0 is map 0. Each other database
    /// is a map of its own.
    ///
    /// The numbers of these maps are reserved, so that nothing must be made, agreed on or looked up
    /// before the first key. They are the last numbers but one that a map can have. The cluster
    /// numbers other maps from 1 on, and would have to make four billion of them first.
    #[must_use]
    pub const fn database(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self(0)),
            1..Self::DATABASES => Some(Self(u32::MAX - number)),
            _ => None,
        }
    }

    /// The number of the database whose map this is.
    #[must_use]
    pub fn database_number(self) -> Option<u32> {
        (0..Self::DATABASES).find(|number| Self::database(*number) == Some(self))
    }

    /// Whether this is the map of a database.
    #[must_use]
    pub const fn is_database(self) -> bool {
        self.0 == 0 || (self.0 > u32::MAX - Self::DATABASES && self.0 < u32::MAX)
    }
}

/// The largest number of data threads of a member: the free bits of its id can tell as many apart.
pub const THREADS_MAX: u8 = 16;

/// One start of a process. A process that starts again after a crash has another id.
///
/// Clients are no members, and draw their ids from the upper half of the numbers. So no client can
/// pass for a member: no table names such an id, and a connection is refused if its sender claims
/// the other kind.
///
/// The lowest bits of a member's id are free. On the data plane they say which of its data threads
/// is meant ([`MemberId::thread`]). Tables name members, so in a table these bits are 0.
///
/// ```
/// # use doyen_placement as doyen;
/// use doyen::MemberId;
///
/// assert_eq!(MemberId(0x2a0).to_string(), "00000000000002a0"); // as logs and reports have it
/// ```
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Encode, Decode,
)]
#[cbor(transparent)]
pub struct MemberId(#[n(0)] pub u64);

impl MemberId {
    const CLIENT: u64 = 1 << 63;
    const THREAD: u64 = THREADS_MAX as u64 - 1;

    /// An id for a member, from random bits.
    #[must_use]
    pub const fn of_member(random: u64) -> Self {
        Self(random & !Self::CLIENT & !Self::THREAD)
    }

    /// An id for a client, from random bits.
    #[must_use]
    pub const fn of_client(random: u64) -> Self {
        Self(random | Self::CLIENT)
    }

    /// Whether this is the id of a client, and so of no member.
    #[must_use]
    pub const fn is_client(self) -> bool {
        self.0 & Self::CLIENT != 0
    }

    /// The id of a member's data thread with this number, which is below `THREADS_MAX`. The first
    /// thread has the id of the member.
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

    /// The number of this data thread at its member.
    #[must_use]
    pub const fn thread_number(self) -> u8 {
        // The result is at most 15.
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

/// The key by which the members of a cluster order keys. The founder draws it, and it stays.
///
/// It is a secret of the members. A client that knew it could choose keys that collide, and each of
/// them would cost as much as all before it together. So it stands in no name of a table, in no
/// report and in no log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct OrderKey(pub u128);

/// Written by hand: formats for people, such as JSON, are those of reports. They get none.
impl Serialize for OrderKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_unit()
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for OrderKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            <()>::deserialize(deserializer).map(|()| Self::default())
        } else {
            u128::deserialize(deserializer).map(Self)
        }
    }
}

impl fmt::Debug for OrderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrderKey")
    }
}

/// A partition of a keyspace.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Encode, Decode,
)]
pub struct PartitionRef {
    /// The keyspace.
    #[n(0)]
    pub keyspace: KeyspaceId,
    /// The partition within it.
    #[n(1)]
    pub partition: PartitionId,
}

impl PartitionRef {
    /// This partition of this keyspace.
    #[must_use]
    pub const fn new(keyspace: KeyspaceId, partition: PartitionId) -> Self {
        Self {
            keyspace,
            partition,
        }
    }
}

impl PartitionId {
    /// The data thread that has this partition, of a member with this many threads. A hash of the
    /// number decides: the planner deals partitions to members in turn, so by the number itself a
    /// member of two would have only even ones, and its second thread none.
    #[must_use]
    pub const fn thread(self, threads: u8) -> u8 {
        // Fibonacci hashing: multiples of the golden ratio lie evenly, also those of every n-th
        // number. Each member computes this by itself, so it must never change.
        let hash = self.0.wrapping_mul(0x9E37_79B9) as u64;
        let threads = if threads == 0 { 1 } else { threads as u64 };
        // The result is below the number of threads.
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
