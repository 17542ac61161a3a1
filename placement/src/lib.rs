//! Which members own which partitions in a Doyen cluster.
//!
//! Everything in this crate is a pure function of its arguments: no clock, socket, task, thread or
//! source of randomness. A [`Table`] lists the members and the partitions that each of them holds.
//! The planner turns one table into the next.

pub mod access;
mod balancing;
pub mod codec;
mod disk_copies;
pub mod division;
mod durability;
pub mod hash;
pub mod id;
pub mod level;
pub mod loads;
pub mod lookup;
mod mode;
#[doc(hidden)]
pub mod mutant;
pub mod planner;
pub mod quorum;
pub mod ring;
pub mod rule;
mod scheduler;
pub mod table;
pub mod tagged;
mod tags;
pub mod token;
mod vote_key;
pub mod words;

pub use balancing::{Balancing, MoveRate, NoWindow, Paused, Window};
pub use disk_copies::DiskCopies;
pub use division::Division;
pub use durability::{Durability, NoDurability};
pub use id::{
    Age, ClusterId, Epoch, KeyspaceId, Lineage, MapId, MemberId, OrderKey, PartitionId,
    PartitionRef, THREADS_MAX, Term, Version,
};
pub use loads::Loads;
pub use mode::NoRange;
pub use rule::{Label, Place, Rule, RuleError, RulesError};
pub use scheduler::{NoScheduler, Scheduler, Schedulers};
pub use table::{
    Addresses, Assignment, Branch, BranchId, DeltaError, Eviction, Invalid, Keyspace, Location,
    MapEntry, MapLimits, MapWish, Member, MemberState, Mode, NamedDead, NoTableName, OnLoss,
    Origin, Partition, Replica, ReplicaState, Reshape, Reshaping, Role, Settings, Table,
    TableDelta, TableName, ThreadPorts, WantedMap,
};
pub use tags::Tags;
pub use token::Token;
pub use vote_key::VoteKey;
