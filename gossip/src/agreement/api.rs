//! What goes into the agreement machine and what comes out of it.

use super::durable::Durable;
use super::event::Event;
use super::problem::Explain;
use super::split::Split;
use super::timing::Timing;
use crate::hints::Hint;
use crate::signing::SigningSeed;
use crate::time::Time;
use crate::wire::Message;
use doyen_placement::access::AccessChange;
use doyen_placement::level::{DURABILITY, LEVELS};
use doyen_placement::loads::Report;
use doyen_placement::planner::{
    BalanceChange, HandOverUrgency, InSyncRequest, KeyspaceChange, NewKeyspace, PlannedChanges,
};
use doyen_placement::{
    Addresses, Age, BranchId, ClusterId, DiskCopies, Durability, Epoch, Keyspace, Loads, Location,
    MapEntry, MapId, MapWish, Member, MemberId, MemberState, OrderKey, PartitionRef, Role,
    Schedulers, Settings, Table, TableName, VoteKey, WantedMap,
};
use minicbor::{Decode, Encode};
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// The addresses at which a node looks for others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seeds {
    /// Addresses of control ports: those that were given, and those that names resolve to at
    /// present.
    pub addresses: Vec<SocketAddr>,
    /// Seeds that are names. A name may resolve to other addresses later.
    pub names: Vec<String>,
    /// Names that do not resolve at present.
    pub unresolved: Vec<String>,
}

impl Seeds {
    /// Whether there is no seed. Such a node forms a cluster of its own.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.addresses.is_empty() && self.names.is_empty()
    }
}

impl FromIterator<SocketAddr> for Seeds {
    fn from_iter<T: IntoIterator<Item = SocketAddr>>(addresses: T) -> Self {
        Self {
            addresses: addresses.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// The configuration of a node.
#[derive(Debug, Clone)]
pub struct AgreementConfig {
    /// A range of keys with this many bytes is split. Neighbours that are much smaller are merged.
    pub range_bytes_max: u64,
    /// The id of this process, drawn at random at each start.
    pub id: MemberId,
    /// Its name, unique among living members.
    pub name: String,
    /// Whether it holds data or only votes.
    pub role: Role,
    /// Where others reach it.
    pub addresses: Addresses,
    /// Its zone, rack and host.
    pub location: Location,
    /// Its capacity; 100 is the default.
    pub weight: u32,
    /// An operator wanted this process emptied before the cluster went on without it. So it joins
    /// and receives no copies.
    pub drained: bool,
    /// Where it looks for others. The shell replaces the seeds through `Input::Seeds` when it
    /// resolves names again.
    pub seeds: Seeds,
    /// The number of initial members that form the first cluster. `None`: the number of distinct
    /// seeds, this node included.
    pub expect: Option<u16>,
    /// The settings of the first table, if this node writes it.
    pub settings: Settings,
    /// The keyspace `default` of the first table, if this node writes it. Its partitions are empty.
    pub default_keyspace: Keyspace,
    /// The durations of the protocol.
    pub timing: Timing,
    /// What the node tells people about a problem.
    pub explain: Explain,
    /// The key of the order of keys, if this node writes the first table. It must come from a
    /// generator that outsiders cannot foresee. The machine's own generator will not do: the
    /// cluster's id comes from it and is published.
    pub order_key: OrderKey,
    /// The highest level that this process speaks (`doyen_placement::level`).
    pub level_max: u16,
    /// The seed of the key with which this process signs its votes.
    pub signing_seed: SigningSeed,
    /// The seed of the machine's own random numbers.
    pub rng_seed: u64,
    /// How often processes began with the directory of this process, this one included: then what
    /// it promises counts once it is synced. `None`: it has no directory.
    pub directory: Option<u64>,
    /// The complete copies in it, which a process before this one held (rule 7).
    pub copies: DiskCopies,
}

impl AgreementConfig {
    /// A data member at this address, with 16 partitions and no seed: for simulations and tests,
    /// which must replay exactly.
    #[doc(hidden)]
    #[must_use]
    pub fn of_test(id: MemberId, name: impl Into<String>, control: SocketAddr) -> Self {
        Self {
            range_bytes_max: 64 << 20,
            id,
            name: name.into(),
            role: Role::Data,
            addresses: Addresses::new(control, control),
            location: Location::default(),
            weight: 100,
            drained: false,
            seeds: Seeds::default(),
            expect: None,
            settings: Settings::default(),
            default_keyspace: Keyspace::fixed(16, 1),
            timing: Timing::default(),
            explain: Explain::default(),
            order_key: OrderKey(7),
            level_max: LEVELS.1,
            signing_seed: SigningSeed::of_test(id.0),
            rng_seed: id.0,
            directory: None,
            copies: DiskCopies::default(),
        }
    }

    /// This process as a member. The coordinator sets the age, the key and the start.
    pub(super) fn member(&self) -> Member {
        let Self {
            id,
            name,
            role,
            addresses,
            location,
            weight,
            drained,
            ..
        } = self;
        let state = if *drained {
            MemberState::Draining
        } else {
            MemberState::Live
        };
        let (name, addresses, location) = (name.clone(), addresses.clone(), location.clone());
        Member {
            id: *id,
            age: Age(0),
            name,
            role: *role,
            state,
            addresses,
            location,
            weight: *weight,
            vote_key: None,
            start: None,
        }
    }
}

/// The receiver of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// A process that said its id on the connection.
    Member(MemberId),
    /// An address that was configured or gossiped. The process there is not known yet.
    Address(SocketAddr),
}

/// A change that a person or a program asks for. Every node takes it and passes it to the
/// coordinator.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum AdminRequest {
    /// Ensures that a map of this name exists.
    #[n(0)]
    CreateMap {
        /// Its name.
        #[n(0)]
        name: String,
        /// The name of its keyspace.
        #[n(1)]
        keyspace: String,
    },
    /// Ensures that a keyspace of this name and with these settings exists.
    #[n(1)]
    CreateKeyspace(#[n(0)] NewKeyspace),
    /// Changes a keyspace. Copies are made or dropped for that afterwards.
    #[n(2)]
    AlterKeyspace {
        /// Its name.
        #[n(0)]
        name: String,
        /// The change.
        #[n(1)]
        change: KeyspaceChange,
    },
    /// Drops a keyspace with its maps and all their keys.
    #[n(3)]
    DropKeyspace {
        /// Its name.
        #[n(0)]
        name: String,
    },
    /// Splits a range of a keyspace at a key. The second part begins with that key.
    #[n(4)]
    SplitAt {
        /// The name of the keyspace.
        #[n(0)]
        keyspace: String,
        /// The map of the key.
        #[n(1)]
        map: MapId,
        /// The key.
        #[cbor(n(2), with = "minicbor::bytes")]
        key: Box<[u8]>,
    },
    /// Merges the range that begins with a key with the range before it.
    #[n(5)]
    MergeAt {
        /// The name of the keyspace.
        #[n(0)]
        keyspace: String,
        /// The map of the key.
        #[n(1)]
        map: MapId,
        /// The key.
        #[cbor(n(2), with = "minicbor::bytes")]
        key: Box<[u8]>,
    },
    /// Gives up a silent member. The data that it alone held is lost.
    #[n(6)]
    GiveUp {
        /// Its name.
        #[n(0)]
        name: String,
    },
    /// Applies a plan that a person has seen. The plan must be made for the table in force.
    #[n(7)]
    ApplyPlan {
        /// The table that it was made for.
        #[n(0)]
        base: TableName,
        /// The replicas that partitions shall have.
        #[n(1)]
        goals: doyen_placement::planner::Plan,
    },
    /// Sets the reasons for which copies move by themselves.
    #[n(8)]
    Schedule(#[n(0)] Schedulers),
    /// Sets whether, when and how fast copies move for balance.
    #[n(9)]
    Balance(#[n(0)] BalanceChange),
    /// Stops the move of a partition. It stays where it is until balancing is resumed, or members
    /// come or go. `None`: stops all moves for balance, and pauses balancing.
    #[n(10)]
    Cancel(#[n(0)] Option<PartitionRef>),
    /// Ensures that a map has limits, or does not exist.
    #[n(13)]
    WantMap(#[n(0)] WantedMap),
    /// Changes users of Redis clients and tokens of HTTP: all of them, or none.
    #[n(14)]
    ChangeAccess(#[n(0)] AccessChange),
    /// Sets which messages about keys Redis clients get.
    #[n(17)]
    TellOfKeys {
        /// As [`Annex::key_events`](doyen_placement::table::Annex::key_events).
        #[n(0)]
        events: u32,
    },
    /// Keeps the half of a split that has this branch: the members that were asserted dead are
    /// forgotten.
    #[n(15)]
    KeepHalf(#[n(0)] BranchId),
    /// Empties a member.
    #[n(11)]
    Drain {
        /// Its name.
        #[n(0)]
        name: String,
    },
    /// Lets a member that was being emptied hold data again.
    #[n(12)]
    Fill {
        /// Its name.
        #[n(0)]
        name: String,
    },
    /// Forgets a member that went.
    #[n(16)]
    Forget {
        /// Its name.
        #[n(0)]
        name: String,
    },
}

impl AdminRequest {
    /// What a program wants of a map.
    #[must_use]
    pub fn of_map(wanted: WantedMap) -> Self {
        match wanted.wish {
            MapWish::Exists => Self::CreateMap {
                name: wanted.name,
                keyspace: wanted.keyspace,
            },
            MapWish::Limited(_) | MapWish::Dropped | MapWish::Replaced(_) => Self::WantMap(wanted),
        }
    }

    /// The level from which on every coordinator understands all of it.
    pub(super) fn level(&self) -> u16 {
        let durability = match self {
            Self::CreateKeyspace(wanted) => wanted.durability,
            Self::AlterKeyspace { change, .. } => change.durability,
            _ => None,
        };
        if durability.unwrap_or_default() == Durability::None {
            LEVELS.0
        } else {
            DURABILITY
        }
    }
}

/// The outcome of an [`AdminRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum AdminReply {
    /// The change is committed. If it is about a map, with the map.
    #[n(0)]
    Done(#[n(0)] Option<MapEntry>),
    /// The change was not made, for this reason.
    #[n(1)]
    Refused(#[n(0)] String),
    /// The change was not made, because what it begins from was changed meanwhile: for this reason.
    #[n(2)]
    Outdated(#[n(0)] String),
}

impl AdminReply {
    const BUSY: &str = "too many requests wait already: try again later";
    const UNKNOWN: &str = "it is not known whether the change was made";

    /// Too many requests wait, so this one was not taken.
    #[must_use]
    pub fn busy() -> Self {
        Self::Refused(Self::BUSY.into())
    }

    /// The change was under way when this happened, and may be made or not.
    #[must_use]
    pub fn unknown(happened: &str) -> Self {
        Self::Refused(format!("{happened}: {}", Self::UNKNOWN))
    }

    /// Whether this is [`AdminReply::busy`], of this node or another one.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Refused(why) if why == Self::BUSY)
    }

    /// Whether this is [`AdminReply::unknown`], of this node or another one. Only the text travels,
    /// so the text decides.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Refused(why) if why.ends_with(Self::UNKNOWN))
    }
}

/// The inputs of the machine.
#[derive(Debug)]
pub enum Input {
    /// Time passed (`poll_timeout`).
    Tick,
    /// A message of a peer whose connection said who it is.
    Message {
        /// The sender.
        from: MemberId,
        /// The message.
        message: Message,
    },
    /// An address that was dialled answered with this process id.
    Identified {
        /// The address.
        address: SocketAddr,
        /// The process there.
        id: MemberId,
    },
    /// What the hello of a process said: told before what it says. It never changes, because a
    /// process that starts again is another one.
    Speaks {
        /// The member in whose name it speaks.
        id: MemberId,
        /// The process. It differs from `id` if it has the directory of that member.
        process: MemberId,
        /// The highest level that it speaks.
        level: u16,
        /// The key of its votes, if it showed that it has the private part.
        key: Option<VoteKey>,
        /// How often processes began with its directory. `None`: it has none.
        start: Option<u64>,
    },
    /// An answer to `Output::Scout`: this process is there.
    Scouted {
        /// The process that answered.
        id: MemberId,
        /// The address at which it says that others reach it.
        address: SocketAddr,
    },
    /// What `Output::Store` of this number had is synced, and all before it.
    Stored(u64),
    /// A hint, which may be wrong.
    Hint(Hint),
    /// Seeds after another resolution of their names.
    Seeds(Seeds),
    /// This node's data threads have opened these partitions, in tenures that began at these
    /// epochs.
    Opened(Vec<(PartitionRef, Epoch)>),
    /// This node, as primary, asks for changes.
    InSync(Vec<InSyncRequest>),
    /// This node's data threads made progress. If that is missing for two leases, the node falls
    /// silent (rule 12).
    DataThreadAlive,
    /// This node is about to apply its first write, so a cluster of one becomes *used*.
    Used,
    /// A person or a program makes a request. `Output::AdminReply` answers it with the same ticket.
    Admin {
        /// The number of the request.
        ticket: u64,
        /// The request.
        request: AdminRequest,
    },
    /// The measurements of one of this node's data threads: of itself, and of the partitions that
    /// it leads and that changed. Every few seconds.
    Loads {
        /// The number of the thread.
        thread: u8,
        /// The measurements.
        report: Report,
    },
    /// The plan of the shell in answer to `Output::Plan`.
    Planned {
        /// The table that it was made for. If another table is in force, the plan is void.
        base: TableName,
        /// The plan.
        proposal: PlannedChanges,
    },
    /// Ping every member at once, and again for a second ([`Agreement::unproven`]).
    ///
    /// [`Agreement::unproven`]: super::Agreement::unproven
    Prove,
    /// The minute of the day, in UTC. The shell says each new minute.
    Minute(u16),
    /// Leave the cluster in order (rule 10): hand over everything. `Output::HandedOver` answers it.
    /// A second `Leave` with `Pace::AtOnce` ends the wait for copies elsewhere.
    Leave(HandOverUrgency),
    /// After `Output::HandedOver`: give up the membership. `Output::Left` answers it.
    Depart,
    /// The data path heard of a newer committed table: pull it from a voter.
    Pull(TableName),
    /// An operator says that these members are dead (`recover`).
    Recover {
        /// The names of the dead members.
        dead: Vec<String>,
        /// How many voters they are, and of how many. If that is wrong, nothing happens.
        gone: VotersGone,
        /// The number of the request. `Output::AdminReply` answers it.
        ticket: u64,
    },
}

/// How many of how many voters an operator asserts to be dead (`recover`): `3/4`.
///
/// ```
/// # use doyen_gossip::agreement as doyen;
/// use doyen::VotersGone;
///
/// let gone: VotersGone = "3/4".parse()?;
/// assert_eq!((gone.gone, gone.voters), (3, 4));
/// assert_eq!(gone.to_string(), "3/4");
/// assert!("3".parse::<VotersGone>().is_err());
/// assert!("03/04".parse::<VotersGone>().is_err()); // it may be half of something else
/// # Ok::<(), doyen::NoVotersGone>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VotersGone {
    /// The number of voters that are dead.
    pub gone: usize,
    /// The number of all voters.
    pub voters: usize,
}

/// A text that says no [`VotersGone`]. Example: [`VotersGone`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write how many of how many voters are gone for good, such as 3/4")]
pub struct NoVotersGone;

impl FromStr for VotersGone {
    type Err = NoVotersGone;

    fn from_str(text: &str) -> Result<Self, NoVotersGone> {
        let (gone, voters) = text.split_once('/').ok_or(NoVotersGone)?;
        let number = |text: &str| match text.parse::<u16>() {
            // `02/03` may be the half of something else, such as a date.
            Ok(number) if number.to_string() == text => Ok(usize::from(number)),
            _ => Err(NoVotersGone),
        };
        Ok(Self {
            gone: number(gone)?,
            voters: number(voters)?,
        })
    }
}

impl fmt::Display for VotersGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.gone, self.voters)
    }
}

/// What the machine wants done, in this order.
#[derive(Debug)]
pub enum Output {
    /// Send a message. Pings and pongs go as datagrams, everything else on a stream.
    Send {
        /// The receiver.
        to: Peer,
        /// The message.
        message: Message,
    },
    /// Ask this seed once more which process is there, from another port: behind a balancer, that
    /// may reach another node. `Input::Scouted` answers, or nothing.
    Scout(SocketAddr),
    /// These tables are in force from now on. The shell makes them visible to the data threads
    /// before it carries out any output that follows.
    View(View),
    /// The lease lasts until then. The shell shows it to the data threads at once.
    Lease(Time),
    /// Write this with this number, and sync it. `Input::Stored` answers it. Each one replaces all
    /// before it.
    Store(u64, Box<Durable>),
    /// This process speaks in another name from now on (`Agreement::id`): it says so in its hellos,
    /// and has no lease until it gets one.
    Renamed,
    /// Plan for this table and these loads, away from the control thread. Answer with
    /// `Input::Planned`.
    Plan(Arc<Table>, Arc<Loads>),
    /// The answer to `Input::Admin` or `Input::Recover`.
    AdminReply {
        /// The ticket of the request.
        ticket: u64,
        /// The answer.
        reply: AdminReply,
    },
    /// Something that operators want to know.
    Event(Event),
    /// The cluster went on without this process. Stop, take a new identity, and start again as a
    /// new member.
    Expelled,
    /// Answers `Input::Used`: the mark is set or was not needed. The write may be applied.
    UsedOk,
    /// Everything is handed over, or no other member is left that could take it. This node is still
    /// a member, so that it can forward.
    HandedOver,
    /// The leave is complete: a majority has installed a table without this node.
    Left,
    /// This process cannot be a member, and another attempt will not help.
    Fatal(String),
}

/// The tables that a node acts on (rule 5).
#[derive(Debug, Clone)]
pub struct View {
    /// The last table known to be committed.
    pub installed: Arc<Table>,
    /// The last table accepted. Equal to `installed` if no proposal is open.
    pub accepted: Arc<Table>,
    /// For each partition whose tenure with this node as primary began in `installed`: when the
    /// node may acknowledge (rule 9).
    pub opens_at: Arc<Vec<(PartitionRef, Epoch, Time)>>,
}

/// What this node knows of the cluster.
#[derive(Debug, Clone, Encode, Decode)]
pub struct Status {
    /// This process.
    #[n(0)]
    pub me: MemberId,
    /// The coordinator, as far as this node knows.
    #[n(1)]
    pub coordinator: Option<MemberId>,
    /// Whether this node coordinates and a majority answers it.
    #[n(2)]
    pub leading: bool,
    /// The last committed table that it knows.
    #[n(3)]
    pub installed: Option<TableName>,
    /// Partitions whose primary has not reported them open. Complete at the coordinator, and empty
    /// elsewhere.
    #[n(4)]
    pub closed: Vec<PartitionRef>,
    /// This node coordinates and has not planned yet for the present members, so the next moves are
    /// not known.
    #[n(5)]
    pub planning: bool,
    /// Members that do not answer this node. The coordinator asks all members, the others ask those
    /// whose votes they need.
    #[n(6)]
    pub unanswered: Vec<MemberId>,
    /// How much of its memory each member has filled, in percent, as it told the coordinator. Empty
    /// elsewhere.
    #[n(7)]
    pub filled: Vec<(MemberId, u8)>,
    /// Why nothing goes on, if nothing does, and what to type: for people.
    #[n(8)]
    pub waiting: Option<String>,
    /// The same without what to type: for probes and errors. Only the node itself knows it.
    #[cbor(skip)]
    pub why: Option<String>,
    /// The voters of the tables in force: what `recover` counts. Only the node itself knows it.
    #[cbor(skip)]
    pub voters: Vec<MemberId>,
    /// Members whose processes are gone: other processes speak for them, because they have their
    /// directories and none of their data. Only the node itself knows it.
    #[cbor(skip)]
    pub heirs: Vec<MemberId>,
    /// Other clusters with data that this node has met lately.
    #[n(9)]
    pub others: Vec<OtherCluster>,
    /// Another half of this cluster, if one lives. Only the node itself knows it.
    #[cbor(skip)]
    pub split: Option<Split>,
}

/// Another cluster of the same secret.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct OtherCluster {
    /// Its id.
    #[n(0)]
    pub cluster: ClusterId,
    /// The name of its member that was met last.
    #[n(1)]
    pub name: String,
    /// That member's control port.
    #[n(2)]
    pub address: SocketAddr,
}

/// What the coordinator alone sees of moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Oversight {
    /// For how long the moves of some primary have made no progress. Zero if nothing moves. Exact
    /// to about five seconds.
    pub moves_standing: Duration,
    /// The number of moves for balance that failed one after the other. The third failure pauses
    /// balancing, and resets the count.
    pub moves_failed: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_primary_waits_for_a_lease_by_two_clocks_that_are_wrong() {
        let timing = Timing::default();
        let (slow, fast) = (0.99, 1.01);
        assert!(timing.takeover_wait() >= timing.lease.mul_f64(fast / slow) + timing.margin);
    }
}
