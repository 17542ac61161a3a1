//! The partition table: a version, the members in order of age, the voters, the keyspaces, and the
//! members that hold each partition.
//!
//! A table is a value. A change makes the next table, and agreement decides which table is in
//! force.

pub mod annex;
pub mod delta;
mod leveled;
mod name;
mod packed;
pub mod validate;

pub use annex::{Annex, Branch, BranchId, NamedDead};
pub use delta::{DeltaError, TableDelta};
pub use name::NoTableName;
pub use validate::Invalid;

use crate::access::AccessSettings;
use crate::balancing::Balancing;
use crate::division::{Cut, Division};
use crate::durability::Durability;
use crate::hash::Digest;
use crate::id::{
    Age, ClusterId, Epoch, KeyspaceId, Lineage, MapId, MemberId, OrderKey, PartitionId,
    PartitionRef, THREADS_MAX, Term, Version,
};
use crate::level::{DURABILITY, LEVELS};
use crate::rule::Rule;
use crate::scheduler::Schedulers;
use crate::tags::Tags;
use crate::vote_key::VoteKey;
use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The name of a table: never its version alone.
///
/// Ordered by term, then version: the order in which accepted tables are compared (rule 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TableName {
    /// The cluster.
    pub cluster: ClusterId,
    /// The term in which it was proposed.
    pub term: Term,
    /// Its place in the sequence of tables.
    pub version: Version,
    /// A digest of everything else in the table.
    pub hash: u64,
}

/// The members and the holders of every partition, at one version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Table {
    /// The level that every member speaks ([`level`](crate::level)). It rises in a table once all
    /// members can speak more, and never falls.
    pub level: u16,
    /// The cluster.
    pub cluster: ClusterId,
    /// The term in which this table was proposed.
    pub term: Term,
    /// Its place in the sequence of tables.
    pub version: Version,
    /// The key of the order of keys. The founder draws it, it never changes, and it is not part of
    /// a table's name.
    pub order_key: OrderKey,
    /// Settings that every member must share.
    pub settings: Settings,
    /// Members in order of age, oldest first.
    pub members: Vec<Arc<Member>>,
    /// Voters (elders), in order of age; each is a member.
    pub voters: Vec<MemberId>,
    /// Age of the next member that is admitted.
    pub next_age: Age,
    /// Keyspaces in order of id.
    pub keyspaces: Vec<Keyspace>,
    /// Number of the next keyspace. The number of a dropped keyspace is not reused.
    pub next_keyspace: KeyspaceId,
    /// Maps in order of id. Map 0 is not listed: it always exists in every keyspace.
    pub maps: Vec<MapEntry>,
    /// Number of the next map. The number of a dropped map is not reused.
    pub next_map: MapId,
    /// Who may do what.
    pub access: Arc<AccessSettings>,
    /// Fields beside those above.
    pub annex: Arc<Annex>,
}

/// Settings that every member must share, so that a successor decides as its predecessor did.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Settings {
    /// The largest number of voters.
    pub voters_max: u8,
    /// The number of members with data that must be present before partitions are first assigned.
    pub members_min: u16,
    /// How partitions are first assigned.
    pub assignment: Assignment,
    /// The reasons for which copies move by themselves.
    pub schedulers: Schedulers,
    /// When they may move, and how fast.
    pub balancing: Balancing,
}

impl Default for Settings {
    /// At most seven voters, partitions from the first member on, assigned in turn, and all moves
    /// by themselves.
    fn default() -> Self {
        Self {
            voters_max: 7,
            members_min: 1,
            assignment: Assignment::RoundRobin,
            schedulers: Schedulers::ALL,
            balancing: Balancing::default(),
        }
    }
}

impl Settings {
    /// The schedulers that may act now.
    #[must_use]
    pub fn active(&self) -> Schedulers {
        self.balancing.active(self.schedulers)
    }

    /// Whether these settings forbid moves that `before` allowed: a scheduler is off now, or
    /// balancing is paused.
    #[must_use]
    pub fn forbids_more_than(&self, before: &Self) -> bool {
        let (now, was) = (&self.balancing, &before.balancing);
        let rests = (now.paused.is_some() && was.paused.is_none()) || (now.closed && !was.closed);
        rests
            || before
                .active()
                .iter()
                .any(|scheduler| !self.active().has(scheduler))
    }
}

/// How partitions are first assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Assignment {
    /// In turn, by order of age.
    RoundRobin,
    /// By rendezvous hashing with a bound on each member's load.
    Rendezvous,
}

/// One member: a process start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its identity.
    pub id: MemberId,
    /// Its seniority.
    pub age: Age,
    /// Its name, unique among the members.
    pub name: String,
    /// Whether it holds data.
    pub role: Role,
    /// Its state.
    pub state: MemberState,
    /// Its addresses.
    pub addresses: Addresses,
    /// Its location, for placement.
    pub location: Location,
    /// Its capacity relative to others; 100 is the default.
    pub weight: u32,
    /// The key with which its votes are checked. It tells the coordinator once it is a member, so a
    /// new member has none for a moment. The key never changes.
    #[serde(skip, default)] // `leveled` encodes it.
    pub vote_key: Option<VoteKey>,
    /// How often processes began with its directory, this one included. `None`: it has no
    /// directory, or that is not known yet. It never changes.
    #[serde(skip, default)] // `leveled` encodes it.
    pub start: Option<u64>,
}

/// The addresses of a member. Addresses are not identities.
///
/// A member has one or several data threads, each with its own port. `data` and `resp_cluster`
/// belong to the first one.
///
/// ```
/// # use doyen_placement as doyen;
/// use doyen::Addresses;
///
/// /// What a person types to reach the node with redis-cli.
/// fn redis_cli(addresses: &Addresses) -> Option<String> {
///     let resp = addresses.resp?;
///     Some(format!("redis-cli -h {} -p {}", resp.ip(), resp.port()))
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// QUIC: agreement, gossip, joins.
    pub control: SocketAddr,
    /// QUIC: peers and native clients.
    pub data: SocketAddr,
    /// RESP for the whole cluster.
    pub resp: Option<SocketAddr>,
    /// RESP as a Redis Cluster node answers.
    pub resp_cluster: Option<SocketAddr>,
    /// HTTP.
    pub http: Option<SocketAddr>,
    /// Ports of further data threads, the second one first; empty if the member has one thread.
    pub further: Vec<ThreadPorts>,
    /// The name by which cluster-aware RESP clients are sent to `resp_cluster`, in place of its IP
    /// address.
    pub hostname: Option<String>,
}

/// The ports of a further data thread. Its IP addresses are those of the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ThreadPorts {
    /// QUIC: peers and native clients.
    pub data: u16,
    /// RESP as a Redis Cluster node answers, if the first thread has that.
    pub resp_cluster: Option<u16>,
}

/// The location of a member: copies of a partition are kept apart at the widest level that differs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Location {
    /// Availability zone; empty if none was named.
    pub zone: String,
    /// Rack; empty if none was named.
    pub rack: String,
    /// Host; empty if none was named: then the member counts as a host of its own.
    pub host: String,
}

/// Whether a member holds data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Holds partitions, and votes if it is among the oldest.
    Data,
    /// Votes, and holds no partitions.
    Witness,
}

/// The state of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemberState {
    /// Takes part.
    Live,
    /// Keeps what it holds, and receives no more copies.
    Draining,
    /// Has handed over everything, and goes when the others know. If every member with data is in
    /// this state, the cluster ends, and the members go with their data (`planner::stop`).
    Leaving,
    /// Does not answer, and remains a member because it is the last in-sync holder of a partition.
    /// Never a voter.
    Silent,
}

/// Keys with the same settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keyspace {
    /// Its number.
    pub id: KeyspaceId,
    /// Its name.
    pub name: String,
    /// How a key finds its partition.
    pub mode: Mode,
    /// The division of keys among its partitions.
    pub division: Division,
    /// Copies beside the primary.
    pub backups: u8,
    /// The fewest copies, including the primary, with which writes are acknowledged.
    pub min_in_sync: u8,
    /// What happens when every in-sync copy of a partition is gone.
    pub on_loss: OnLoss,
    /// Where a write is when it is acknowledged.
    #[serde(skip, default)] // `leveled` encodes it.
    pub durability: Durability,
    /// The version of the table in which its durability was last set. What a disk has of another
    /// setting may lack writes, and does not count.
    #[serde(skip, default)] // `leveled` encodes it.
    pub durable_since: Version,
    /// Expiry for keys that are written without one.
    pub default_ttl_ms: Option<u64>,
    /// Which keys are evicted if memory is full.
    pub eviction: Eviction,
    /// Whether each partition keeps its keys in order. Partitions of ranges do so anyway.
    pub ordered: bool,
    /// The databases in which a `{tag}` alone decides the partition of a key. It never changes.
    #[serde(skip, default)] // `leveled` encodes it.
    pub tags: Tags,
    /// Which members may hold and lead its partitions.
    pub rules: Vec<Rule>,
    /// Partitions in order of id; empty until the first assignment.
    pub partitions: Vec<Arc<Partition>>,
    /// Splits and merges.
    pub reshaping: Reshaping,
}

/// Splits and merges of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Reshaping {
    /// Numbers from this one on were never used for a partition: numbers of split and merged
    /// partitions are not reused. 0 if nothing was split or merged.
    pub next: PartitionId,
    /// Splits and merges under way, in order.
    pub under_way: Vec<Reshape>,
}

/// A partition that is split, or two that are merged. Until that is done, they take no writes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reshape {
    /// One partition becomes two.
    Split {
        /// The partition.
        partition: PartitionId,
        /// The place of the cut.
        cut: Cut,
    },
    /// Two neighbours become one partition.
    Merge {
        /// The partitions, in their order.
        partitions: [PartitionId; 2],
    },
}

/// How a key finds its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// `crc16(hash tag or key) mod 16384`, then contiguous runs of slots: `partitions` of them, a
    /// power of two up to 16384.
    Fixed {
        /// The number of partitions.
        partitions: u16,
    },
    /// Murmur3 tokens, as Cassandra's: arcs of a ring.
    Ring {
        /// The number of tokens that a member of weight 100 brings.
        tokens: u16,
        /// Whether tokens are drawn at random. Otherwise they are chosen so that members lead and
        /// hold their fair share.
        random: bool,
    },
    /// The keys in the order of their bytes.
    Range,
}

/// What happens when every in-sync copy of a partition is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OnLoss {
    /// The partition begins empty, with an event that says so: at once if every holder is proved
    /// dead, otherwise after this long.
    Reset {
        /// For how long all holders must have been silent.
        after_ms: u64,
    },
    /// The partition is unavailable until a holder returns or an operator gives it up.
    Wait,
}

/// Which keys of a keyspace are evicted if memory is full.
///
/// ```
/// # use doyen_placement as doyen;
/// use doyen::Eviction;
///
/// assert_eq!(Eviction::default(), Eviction::None);
/// assert_eq!(Eviction::Lfu.name(), "lfu");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Eviction {
    /// None: writes that need room are refused.
    #[default]
    None,
    /// The least recently used keys, approximately.
    Lru,
    /// Random keys.
    Random,
    /// Of the keys that expire, those that expire soonest, approximately.
    Ttl,
    /// The keys that are used least often, approximately (W-TinyLFU). Only for the limits of a map.
    Lfu,
}

impl Eviction {
    /// The text that people write.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lru => "lru",
            Self::Random => "random",
            Self::Ttl => "ttl",
            Self::Lfu => "lfu",
        }
    }
}

/// The members that hold a partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Partition {
    /// Its number.
    pub id: PartitionId,
    /// The holders: the primary first, then the other in-sync copies, then learners. Never empty.
    pub replicas: Vec<Replica>,
    /// Rises with every change of the primary or of the in-sync set, and when a learner is dropped.
    /// Adding a learner does not change it.
    pub epoch: Epoch,
    /// The epoch in which the present primary's tenure began.
    pub since: Epoch,
    /// Rises each time that the partition begins empty.
    pub lineage: Lineage,
    /// The goal of a move under way: the replicas that the partition shall have, primary first.
    pub goal: Option<Vec<MemberId>>,
    /// The former partitions from which a split or a merge made this one. Empty: it began with its
    /// keyspace.
    pub from: Vec<Origin>,
}

/// A former partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The partition, which does not exist any more.
    pub partition: PartitionId,
    /// How many milliseconds its clock was behind this partition's clock. Deadlines of its keys are
    /// that much later by this clock.
    pub behind_ms: u64,
}

/// One copy of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Replica {
    /// The member that holds it.
    pub member: MemberId,
    /// Whether it counts.
    pub state: ReplicaState,
}

/// Whether a copy counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReplicaState {
    /// It has every acknowledged write.
    InSync,
    /// It is catching up.
    Learner,
}

/// A named map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapEntry {
    /// Its number.
    pub id: MapId,
    /// Its name, unique in its keyspace.
    pub name: String,
    /// The keyspace of its keys.
    pub keyspace: KeyspaceId,
    /// How much it may hold, and for how long.
    #[serde(skip, default)] // `leveled` encodes it.
    pub limits: MapLimits,
}

/// How much a map may hold, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct MapLimits {
    /// The most keys.
    pub entries: Option<u64>,
    /// The most bytes of keys and values, each with what it costs besides.
    pub bytes: Option<u64>,
    /// Which keys are evicted beyond that. `None`: writes of new keys are refused.
    pub eviction: Eviction,
    /// An entry that is not used for this many milliseconds expires.
    pub idle_ms: Option<u64>,
}

impl MapLimits {
    /// No limits.
    pub const NONE: Self = Self {
        entries: None,
        bytes: None,
        eviction: Eviction::None,
        idle_ms: None,
    };

    /// These limits, raised to others where those are higher. A limit that is missing is higher
    /// than any other, except that a time after which unused entries expire may be added.
    #[must_use]
    pub fn raised_to(self, wanted: Self) -> Self {
        let higher = |now: Option<u64>, wanted: Option<u64>| Some(now?.max(wanted.unwrap_or(0)));
        Self {
            entries: higher(self.entries, wanted.entries),
            bytes: higher(self.bytes, wanted.bytes),
            eviction: self.eviction,
            idle_ms: match (self.idle_ms, wanted.idle_ms) {
                (Some(now), Some(wanted)) => Some(now.max(wanted)),
                (now, wanted) => now.or(wanted),
            },
        }
    }

    /// Whether it bounds how much the map holds.
    #[must_use]
    pub const fn bounds(&self) -> bool {
        self.entries.is_some() || self.bytes.is_some()
    }
}

/// What a program wants of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Encode, Decode)]
#[cbor(flat)]
pub enum MapWish {
    /// It exists, with the limits that it has, or none.
    #[n(0)]
    Exists,
    /// It exists, with these limits or higher ones.
    #[n(1)]
    Limited(#[n(0)] MapLimits),
    /// It does not exist.
    #[n(2)]
    Dropped,
    /// It exists, with these limits, lower ones than it has or not.
    #[n(3)]
    Replaced(#[n(0)] MapLimits),
}

impl MapWish {
    /// Whether a table has the map as it is wanted. `map` is how the coordinator made it.
    #[must_use]
    pub fn met(self, table: &Table, map: &MapEntry) -> bool {
        let there = table.map(map.id);
        let home = table.keyspace(map.keyspace);
        match self {
            Self::Exists => there.is_some() && home.is_some_and(|k| !k.partitions.is_empty()),
            Self::Limited(limits) | Self::Replaced(limits) => {
                let met = |there: MapLimits| match self {
                    Self::Limited(_) => there.raised_to(limits) == there,
                    _ => there == limits,
                };
                there.is_some_and(|there| met(there.limits))
                    && home.is_some_and(|k| !k.partitions.is_empty())
            }
            Self::Dropped => there.is_none() && map.id < table.next_map,
        }
    }
}

/// A map that a program names, and what it wants of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct WantedMap {
    /// The name of its keyspace.
    #[n(0)]
    pub keyspace: String,
    /// Its name.
    #[n(1)]
    pub name: String,
    /// What is wanted.
    #[n(2)]
    pub wish: MapWish,
}

impl Member {
    /// A live data member of the default weight, before the coordinator gives it an age.
    #[must_use]
    pub fn new(id: MemberId, name: impl Into<String>, addresses: Addresses) -> Self {
        Self {
            id,
            age: Age(0),
            name: name.into(),
            role: Role::Data,
            state: MemberState::Live,
            addresses,
            location: Location::default(),
            weight: 100,
            vote_key: None,
            start: None,
        }
    }
}

/// Written by hand, without the key and the start: `Table::name` adds them.
impl Hash for Member {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            id,
            age,
            name,
            role,
            state: stands,
            addresses,
            location,
            weight,
            vote_key: _,
            start: _,
        } = self;
        (id, age, name, role, stands, addresses, location, weight).hash(state);
    }
}

/// Written by hand, without the limits: `Table::name` adds them.
impl Hash for MapEntry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.id, &self.name, self.keyspace).hash(state);
    }
}

impl MapEntry {
    /// Whether this is the same map, whatever its limits are.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        (self.id, &self.name, self.keyspace) == (other.id, &other.name, other.keyspace)
    }
}

impl TableName {
    /// The order of tables: a later term wins, and within a term a later version.
    #[must_use]
    pub const fn order(&self) -> (Term, Version) {
        (self.term, self.version)
    }
}

/// Written by hand, without the tags and the durability: `Table::name` adds them.
impl Hash for Keyspace {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            id,
            name,
            mode,
            division,
            backups,
            min_in_sync,
            on_loss,
            durability: _,
            durable_since: _,
            default_ttl_ms,
            eviction,
            ordered,
            tags: _,
            rules,
            partitions,
            reshaping,
        } = self;
        (id, name, mode, division, backups, min_in_sync).hash(state);
        (on_loss, default_ttl_ms, eviction, ordered).hash(state);
        (rules, partitions, reshaping).hash(state);
    }
}

/// Written by hand: the standard library hashes IP addresses in the byte order of the machine, and
/// a digest must not differ between machines.
impl Hash for Addresses {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            control,
            data,
            resp,
            resp_cluster,
            http,
            further,
            hostname,
        } = self;
        for address in [
            Some(control),
            Some(data),
            resp.as_ref(),
            resp_cluster.as_ref(),
            http.as_ref(),
        ] {
            match address {
                None => state.write_u8(0),
                Some(address) => {
                    match address.ip() {
                        IpAddr::V4(ip) => state.write(&ip.octets()),
                        IpAddr::V6(ip) => state.write(&ip.octets()),
                    }
                    state.write_u16(address.port());
                    if let SocketAddr::V6(address) = address {
                        state.write_u32(address.flowinfo());
                        state.write_u32(address.scope_id());
                    }
                }
            }
        }
        further.hash(state);
        hostname.hash(state);
    }
}

impl Addresses {
    /// The addresses of a member with one data thread and no ports for clients.
    #[must_use]
    pub const fn new(control: SocketAddr, data: SocketAddr) -> Self {
        Self {
            control,
            data,
            resp: None,
            resp_cluster: None,
            http: None,
            further: Vec::new(),
            hostname: None,
        }
    }

    /// How many data threads the member has: 1 to `THREADS_MAX`, in a valid table.
    #[must_use]
    pub fn threads(&self) -> u8 {
        u8::try_from(self.further.len() + 1).unwrap_or(THREADS_MAX)
    }

    /// Whether only programs on the member's machine reach this port of it: it is on loopback,
    /// while other members reach the control port from elsewhere.
    #[must_use]
    pub fn on_its_machine_only(&self, port: SocketAddr) -> bool {
        let is_loopback = |at: SocketAddr| at.ip().to_canonical().is_loopback();
        is_loopback(port) && !is_loopback(self.control)
    }

    /// The address of the data thread of this number for peers and native clients.
    #[must_use]
    pub fn data_of(&self, thread: u8) -> Option<SocketAddr> {
        match usize::from(thread).checked_sub(1) {
            None => Some(self.data),
            Some(further) => Some(SocketAddr::new(
                self.data.ip(),
                self.further.get(further)?.data,
            )),
        }
    }

    /// The address at which the data thread of this number answers as a Redis Cluster node does.
    #[must_use]
    pub fn resp_cluster_of(&self, thread: u8) -> Option<SocketAddr> {
        match usize::from(thread).checked_sub(1) {
            None => self.resp_cluster,
            Some(further) => Some(SocketAddr::new(
                self.resp_cluster?.ip(),
                self.further.get(further)?.resp_cluster?,
            )),
        }
    }
}

impl Partition {
    /// A partition in its first epoch. These members hold it in sync, the primary first.
    #[must_use]
    pub fn new(id: PartitionId, in_sync: impl IntoIterator<Item = MemberId>) -> Self {
        let replica = |member| Replica {
            member,
            state: ReplicaState::InSync,
        };
        Self {
            id,
            replicas: in_sync.into_iter().map(replica).collect(),
            epoch: Epoch(1),
            since: Epoch(1),
            lineage: Lineage(1),
            goal: None,
            from: Vec::new(),
        }
    }

    /// The primary.
    #[must_use]
    pub fn primary(&self) -> MemberId {
        // A valid table has at least one replica in each partition (`validate`).
        self.replicas[0].member
    }

    /// The members whose copies count, the primary first.
    pub fn in_sync(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.replicas
            .iter()
            .filter(|r| r.state == ReplicaState::InSync)
            .map(|r| r.member)
    }

    /// The members that are catching up.
    pub fn learners(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.replicas
            .iter()
            .filter(|r| r.state == ReplicaState::Learner)
            .map(|r| r.member)
    }
}

impl Reshape {
    /// The partitions that take part.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + use<> {
        let (first, second) = match self {
            Self::Split { partition, .. } => (*partition, None),
            Self::Merge {
                partitions: [first, second],
            } => (*first, Some(*second)),
        };
        std::iter::once(first).chain(second)
    }
}

impl Keyspace {
    /// The keyspace `default` with a fixed number of partitions, before the first assignment.
    #[must_use]
    pub fn fixed(partitions: u16, backups: u8) -> Self {
        Self {
            id: KeyspaceId(0),
            name: "default".into(),
            mode: Mode::Fixed { partitions },
            division: Division::Slots,
            backups,
            min_in_sync: 1,
            on_loss: OnLoss::Wait,
            durability: Durability::None,
            durable_since: Version(0),
            default_ttl_ms: None,
            eviction: Eviction::None,
            ordered: false,
            tags: Tags::default(),
            rules: Vec::new(),
            partitions: Vec::new(),
            reshaping: Reshaping::default(),
        }
    }

    /// The partition of this id.
    #[must_use]
    pub fn partition(&self, id: PartitionId) -> Option<&Arc<Partition>> {
        self.place(id).map(|place| &self.partitions[place])
    }

    /// The place of the partition with this id in the list: usually its number.
    #[must_use]
    pub(crate) fn place(&self, id: PartitionId) -> Option<usize> {
        let guess = id.0 as usize;
        match self.partitions.get(guess) {
            Some(there) if there.id == id => Some(guess),
            _ => self.partitions.binary_search_by_key(&id, |p| p.id).ok(),
        }
    }

    /// The least number that no partition has or had.
    #[must_use]
    pub fn next_partition(&self) -> PartitionId {
        let last = self
            .partitions
            .last()
            .map_or(0, |p| p.id.0.saturating_add(1));
        PartitionId(self.reshaping.next.0.max(last))
    }

    /// Whether this partition is being split or merged, and takes no writes.
    #[must_use]
    pub fn is_reshaped(&self, id: PartitionId) -> bool {
        self.reshaping
            .under_way
            .iter()
            .any(|reshape| reshape.partitions().any(|p| p == id))
    }
}

impl Table {
    /// A table of these members, from the oldest to the youngest, with this keyspace as it is: for
    /// tests and benchmarks.
    #[doc(hidden)]
    #[must_use]
    pub fn of_test(members: impl IntoIterator<Item = Member>, keyspace: Keyspace) -> Self {
        let aged = (1..).zip(members).map(|(age, member)| Member {
            age: Age(age),
            ..member
        });
        let members: Vec<Arc<Member>> = aged.map(Arc::new).collect();
        let settings = Settings::default();
        let voters = members.iter().map(|member| member.id);
        Self {
            level: LEVELS.1,
            annex: Arc::default(),
            cluster: ClusterId(7),
            order_key: OrderKey(7),
            term: Term(1),
            version: Version(1),
            voters: voters.take(settings.voters_max.into()).collect(),
            settings,
            next_age: Age(members.len() as u64 + 1),
            members,
            next_keyspace: keyspace.id.next(),
            keyspaces: vec![keyspace],
            maps: Vec::new(),
            next_map: MapId(1),
            access: Arc::default(),
        }
    }

    /// The name of this table. Computing it goes through the whole table, so keep the name if it is
    /// needed often.
    #[must_use]
    pub fn name(&self) -> TableName {
        let Self {
            level,
            cluster,
            order_key: _,
            term,
            version,
            settings,
            members,
            voters,
            next_age,
            keyspaces,
            next_keyspace,
            maps,
            next_map,
            access,
            annex,
        } = self;
        let mut digest = Digest::new();
        (
            settings,
            members,
            voters,
            next_age,
            keyspaces,
            next_keyspace,
            maps,
            next_map,
            level,
        )
            .hash(&mut digest);
        keyspaces
            .iter()
            .for_each(|keyspace| keyspace.tags.hash(&mut digest));
        maps.iter().for_each(|map| map.limits.hash(&mut digest));
        access.hash(&mut digest);
        members
            .iter()
            .for_each(|member| member.vote_key.hash(&mut digest));
        annex.hash(&mut digest);
        if *level >= DURABILITY {
            keyspaces
                .iter()
                .filter(|keyspace| keyspace.durability != Durability::None)
                .for_each(|k| (k.id, k.durability, k.durable_since).hash(&mut digest));
            members
                .iter()
                .for_each(|member| member.start.hash(&mut digest));
        }
        TableName {
            cluster: *cluster,
            term: *term,
            version: *version,
            hash: digest.finish(),
        }
    }

    /// The same table for a process that speaks no more than this level and is no member. Its name
    /// differs.
    #[must_use]
    pub fn at_level(&self, level: u16) -> Self {
        let mut shown = self.clone();
        shown.level = self.level.min(level);
        if shown.level < DURABILITY {
            for keyspace in &mut shown.keyspaces {
                keyspace.durability = Durability::None;
                keyspace.durable_since = Version(0);
            }
            for member in shown.members.iter_mut().filter(|m| m.start.is_some()) {
                Arc::make_mut(member).start = None;
            }
        }
        shown
    }

    /// Whether this cluster never had more than one member.
    #[must_use]
    pub fn always_alone(&self) -> bool {
        // The first member has age 1.
        self.next_age <= Age(2)
    }

    /// Whether this may be the next table after `committed`, or any later one: level, ages and
    /// epochs only rise, what is assigned stays assigned, a keyspace keeps its tags, a member its
    /// key and the table its branches. Every step of the planner satisfies this, so a table that
    /// does not was made from another one than `committed`.
    #[must_use]
    pub fn may_follow(&self, committed: &Self) -> bool {
        // An heir has the age and the key of its predecessor, which counts as a newcomer then.
        let young = |m: &Member| m.age >= committed.next_age;
        let keeps = |before: &Member, now: &Member| {
            let same = before.age == now.age || (young(now) && now.state == MemberState::Silent);
            same && (before.vote_key.is_none() || before.vote_key == now.vote_key)
                && (before.start.is_none() || before.start == now.start)
        };
        let inherits = |m: &Member| {
            let mut before = committed.members.iter();
            before.any(|b| {
                let later = b.start.is_none() || b.start < m.start;
                b.age == m.age && b.vote_key.is_some() && b.vote_key == m.vote_key && later
            })
        };
        let member = |m: &Arc<Member>| {
            committed
                .member(m.id)
                .map_or_else(|| young(m) || inherits(m), |before| keeps(before, m))
        };
        let later = |before: &Arc<Partition>, now: &Arc<Partition>| {
            Arc::ptr_eq(before, now)
                || (now.epoch >= before.epoch
                    && now.since >= before.since
                    && now.lineage >= before.lineage)
        };
        // A missing partition was split or merged. Its number is not reused either.
        let partition = |before: &Keyspace, now: &Arc<Partition>| {
            before
                .partition(now.id)
                .map_or(now.id >= before.next_partition(), |known| later(known, now))
        };
        let same = |before: &Keyspace, now: &Keyspace| {
            before.tags == now.tags
                && (before.partitions.is_empty() || !now.partitions.is_empty())
                && now.next_partition() >= before.next_partition()
                && now.partitions.iter().all(|p| partition(before, p))
        };
        // A missing keyspace was dropped. Its number is not reused.
        let keyspace = |k: &Keyspace| {
            committed
                .keyspace(k.id)
                .map_or(k.id >= committed.next_keyspace, |before| same(before, k))
        };
        let map = |m: &MapEntry| {
            committed
                .map(m.id)
                .map_or(m.id >= committed.next_map, |before| before.is(m))
        };
        self.cluster == committed.cluster
            && self.annex.descends_from(&committed.annex)
            && self.level >= committed.level
            && self.next_age >= committed.next_age
            && self.next_keyspace >= committed.next_keyspace
            && self.next_map >= committed.next_map
            && self.members.iter().all(member)
            && self.keyspaces.iter().all(keyspace)
            && self.maps.iter().all(map)
    }

    /// Whether there was a map of this number, which was dropped.
    #[must_use]
    pub fn has_dropped(&self, map: MapId) -> bool {
        map != MapId(0) && map < self.next_map && self.map(map).is_none()
    }

    /// The oldest member that the voters name, which has the casting vote.
    #[must_use]
    pub fn oldest_voter(&self) -> Option<MemberId> {
        self.voters.first().copied()
    }

    /// The member of this id.
    #[must_use]
    pub fn member(&self, id: MemberId) -> Option<&Arc<Member>> {
        self.members.iter().find(|m| m.id == id)
    }

    /// The keyspace of this id.
    #[must_use]
    pub fn keyspace(&self, id: KeyspaceId) -> Option<&Keyspace> {
        self.keyspaces
            .binary_search_by_key(&id, |k| k.id)
            .ok()
            .map(|i| &self.keyspaces[i])
    }

    /// The text for a partition: `default/17`.
    #[must_use]
    pub fn name_of(&self, at: PartitionRef) -> String {
        self.keyspace(at.keyspace).map_or_else(
            || at.to_string(),
            |k| format!("{}/{}", k.name, at.partition),
        )
    }

    /// Parses that text.
    #[must_use]
    pub fn partition_named(&self, name: &str) -> Option<PartitionRef> {
        let (keyspace, number) = name.rsplit_once('/')?;
        let at = PartitionRef::new(
            self.keyspace_named(keyspace)?.id,
            PartitionId(number.parse().ok()?),
        );
        self.partition(at).map(|_| at)
    }

    /// The partition with this id.
    #[must_use]
    pub fn partition(&self, at: PartitionRef) -> Option<&Arc<Partition>> {
        self.keyspace(at.keyspace)?.partition(at.partition)
    }

    /// Every partition, with its id.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionRef, &Arc<Partition>)> {
        let name = |k: &Keyspace, p: &Partition| PartitionRef::new(k.id, p.id);
        self.keyspaces
            .iter()
            .flat_map(move |k| k.partitions.iter().map(move |p| (name(k, p), p)))
    }

    /// The keyspace of this name.
    #[must_use]
    pub fn keyspace_named(&self, name: &str) -> Option<&Keyspace> {
        self.keyspaces.iter().find(|k| k.name == name)
    }

    /// The map of this id. Map 0 is not listed.
    #[must_use]
    pub fn map(&self, id: MapId) -> Option<&MapEntry> {
        self.maps
            .binary_search_by_key(&id, |m| m.id)
            .ok()
            .map(|i| &self.maps[i])
    }

    /// The map of this name, if it is in the keyspace of this name.
    #[must_use]
    pub fn map_in(&self, keyspace: &str, name: &str) -> Option<&MapEntry> {
        let home = self.keyspace_named(keyspace)?.id;
        let named = |map: &&MapEntry| map.keyspace == home && map.name == name;
        self.maps.iter().find(named)
    }

    /// The first map of this name in any keyspace.
    #[must_use]
    pub fn map_named(&self, name: &str) -> Option<&MapEntry> {
        self.maps.iter().find(|m| m.name == name)
    }
}
