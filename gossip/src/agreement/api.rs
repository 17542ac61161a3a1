//! What goes into the agreement machine and what comes out of it.

use super::event::Event;
use crate::hints::Hint;
use crate::mutant::{self, broken};
use crate::time::Time;
use crate::wire::Message;
use doyen_placement::loads::Report;
use doyen_placement::planner::{
    BalanceChange, InSyncRequest, KeyspaceChange, NewKeyspace, Pace, Proposal,
};
use doyen_placement::{
    Addresses, ClusterId, Epoch, Loads, Location, MapEntry, MapId, MemberId, OrderKey,
    PartitionRef, Role, Schedulers, Settings, Table, TableName,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Where a node looks for others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seeds {
    /// Addresses (control ports): those that were given, and what names resolve to at present.
    pub addresses: Vec<SocketAddr>,
    /// Seeds that are names. What a name resolves to changes: addresses may come yet.
    pub names: Vec<String>,
    /// Those of the names that do not resolve at present.
    pub unresolved: Vec<String>,
}

impl Seeds {
    /// Whether there is none: such a node forms a cluster of itself.
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

/// What an operator's command has to show to this node: only for hints to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Nothing: the node trusts its machine.
    #[default]
    Open,
    /// The cluster's secret.
    Secret,
    /// The token of `--http-token-file`.
    Token,
    /// It has neither, so it refuses all commands that change something.
    Nothing,
}

/// What a node is told when it starts.
#[derive(Debug, Clone)]
pub struct Config {
    /// Bytes from which on a range of keys is split: neighbours that are much smaller are merged.
    pub range_bytes_max: u64,
    /// This process: a fresh random id.
    pub id: MemberId,
    /// Its name; unique among living members.
    pub name: String,
    /// Data or witness.
    pub role: Role,
    /// Where others reach it.
    pub addresses: Addresses,
    /// Where it stands.
    pub location: Location,
    /// Its capacity; 100 is the default.
    pub weight: u32,
    /// Somebody wanted this process emptied before the cluster went on without it: it joins, and is
    /// given nothing.
    pub drained: bool,
    /// Where it looks for others; the shell replaces them through `Input::Seeds` when it resolves
    /// names again.
    pub seeds: Seeds,
    /// How many initial members form the first cluster; `None`: the distinct seeds with oneself
    /// among them.
    pub expect: Option<u16>,
    /// What the first table says if this node writes it.
    pub settings: Settings,
    /// The keyspace `default` if this node writes the first table (its partitions are empty).
    pub default_keyspace: doyen_placement::Keyspace,
    /// Durations of the protocol.
    pub timing: Timing,
    /// What an operator's command has to show here.
    pub access: Access,
    /// What keys are ordered by if this node writes the first table. Drawn by a generator that
    /// strangers cannot foresee, as that of the machine is not: the cluster's id comes of it, and
    /// is published.
    pub order_key: OrderKey,
    /// The highest level that this process speaks (`doyen_placement::level`).
    pub level_max: u16,
    /// Seed of the machine's own random numbers.
    pub rng_seed: u64,
}

/// Durations of the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// How long an answered ping lets a primary serve: 500 ms.
    pub lease: Duration,
    /// Between pings: 100 ms.
    pub ping_interval: Duration,
    /// Added to every wait for a lease to end: 5 ms.
    pub margin: Duration,
    /// Unanswered pings after which a member is expelled: 6.
    pub pings_missed_max: u32,
    /// Least distance between two tables that only change in-sync sets or move data: 20 ms.
    pub batch: Duration,
    /// How long a fresh node listens before a cluster is formed: 1 s.
    pub listen: Duration,
    /// For how long much has to be asked of a range before it is split for that: 15 s.
    pub busy_for: Duration,
    /// For how long neighbouring ranges have to be small and at rest before they are merged: 5
    /// minutes.
    pub cold_for: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_millis(500),
            ping_interval: Duration::from_millis(100),
            margin: Duration::from_millis(5),
            pings_missed_max: 6,
            batch: Duration::from_millis(20),
            listen: Duration::from_secs(1),
            busy_for: Duration::from_secs(15),
            cold_for: Duration::from_secs(300),
        }
    }
}

impl Timing {
    /// Two clocks that may each be wrong by 1 %: (1 + 0.01) / (1 - 0.01), rounded up.
    const DRIFT: f64 = 1.0204;

    /// How long a new primary waits for a predecessor of which it knows nothing (rule 9).
    #[must_use]
    pub fn takeover_wait(&self) -> Duration {
        let drift = if broken(&mutant::WAITS_WITHOUT_DRIFT) {
            1.0
        } else {
            Self::DRIFT
        };
        self.lease.mul_f64(drift) + self.margin
    }
}

/// Whom a message goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// A process that said its id on the connection.
    Member(MemberId),
    /// An address that was configured or gossiped; who answers there is not known yet.
    Address(SocketAddr),
}

/// A change that a person or a program asks for. Every node takes it and passes it to the
/// coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminRequest {
    /// Makes sure that a map of this name exists.
    CreateMap {
        /// Its name.
        name: String,
        /// The name of its keyspace.
        keyspace: String,
    },
    /// Makes sure that a keyspace of this name and with these settings exists.
    CreateKeyspace(NewKeyspace),
    /// Changes a keyspace; copies are made or dropped for that afterwards.
    AlterKeyspace {
        /// Its name.
        name: String,
        /// What changes.
        change: KeyspaceChange,
    },
    /// Drops a keyspace with its maps and all that is in them.
    DropKeyspace {
        /// Its name.
        name: String,
    },
    /// Splits a range of a keyspace at a key, which begins the second part.
    SplitAt {
        /// The name of the keyspace.
        keyspace: String,
        /// The map of the key.
        map: MapId,
        /// The key.
        key: Box<[u8]>,
    },
    /// Merges the range that begins with a key with the one before it.
    MergeAt {
        /// The name of the keyspace.
        keyspace: String,
        /// The map of the key.
        map: MapId,
        /// The key.
        key: Box<[u8]>,
    },
    /// Gives up a silent member: what it alone held is lost.
    GiveUp {
        /// Its name.
        name: String,
    },
    /// Puts a plan into force that a person has seen: it must be made for the table in force.
    ApplyPlan {
        /// The table that it was made for.
        base: TableName,
        /// Where partitions shall go.
        goals: doyen_placement::planner::Plan,
    },
    /// Says for which reasons copies move by themselves.
    Schedule(Schedulers),
    /// Says whether, when and how fast copies move for balance.
    Balance(BalanceChange),
    /// Moves a partition no further: it stays where it is until somebody resumes, or members come
    /// or go. `None`: none that moves for balance, and pauses balancing.
    Cancel(Option<PartitionRef>),
    /// Empties a member.
    Drain {
        /// Its name.
        name: String,
    },
    /// Lets a member hold data again that was being emptied.
    Fill {
        /// Its name.
        name: String,
    },
}

doyen_placement::tagged!(AdminRequest {
    0 => CreateMap { name, keyspace },
    1 => CreateKeyspace(wanted),
    2 => AlterKeyspace { name, change },
    3 => DropKeyspace { name },
    4 => SplitAt { keyspace, map, key },
    5 => MergeAt { keyspace, map, key },
    6 => GiveUp { name },
    7 => ApplyPlan { base, goals },
    8 => Schedule(schedulers),
    9 => Balance(change),
    10 => Cancel(partition),
    11 => Drain { name },
    12 => Fill { name },
});

/// What became of an [`AdminRequest`].
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum AdminReply {
    /// Committed; for `CreateMap`, the map.
    Done(Option<MapEntry>),
    /// Not done, and why.
    Refused(String),
}

/// What the machine is told.
#[derive(Debug)]
pub enum Input {
    /// Time passed (`poll_timeout`).
    Tick,
    /// A message of a peer whose connection said who it is.
    Message {
        /// Who sent it.
        from: MemberId,
        /// What it says.
        message: Message,
    },
    /// An address that was dialled answered with this process id.
    Identified {
        /// The address.
        address: SocketAddr,
        /// Who is there.
        id: MemberId,
    },
    /// The highest level that a process speaks, by its hello: told before what it says. It never
    /// changes, because a process that starts again is another one.
    Speaks {
        /// Which process.
        id: MemberId,
        /// The level.
        level: u16,
    },
    /// The answer to `Output::Scout`, where there was one: this process is there.
    Scouted {
        /// Who answered.
        id: MemberId,
        /// Where it says that others reach it.
        address: SocketAddr,
    },
    /// Something that may be true.
    Hint(Hint),
    /// Seeds, resolved anew.
    Seeds(Seeds),
    /// This node's data threads have opened these partitions, in tenures that began at these
    /// epochs.
    Opened(Vec<(PartitionRef, Epoch)>),
    /// This node, as primary, asks for changes.
    InSync(Vec<InSyncRequest>),
    /// This node's data threads made progress. Without it for two leases the node falls silent
    /// (rule 12).
    DataThreadAlive,
    /// This node's first write is about to be applied: a cluster of one becomes *used*.
    Used,
    /// A person or program asks; answered by `Output::AdminReply` with the same ticket.
    Admin {
        /// Names the request.
        ticket: u64,
        /// The request.
        request: AdminRequest,
    },
    /// What one of this node's data threads measured of itself and of partitions that it leads,
    /// each some seconds: those of which something has changed.
    Loads {
        /// Its number.
        thread: u8,
        /// What it measured.
        report: Report,
    },
    /// What the shell planned for `Output::Plan`.
    Planned {
        /// The table that was planned for; another one in force makes the plan void.
        base: TableName,
        /// What is to be done.
        proposal: Proposal,
    },
    /// The minute of the day, in UTC: said when it is another one.
    Minute(u16),
    /// Leave the cluster in order (rule 10): hand over everything; answered by
    /// `Output::HandedOver`. Said again with `Pace::AtOnce`, it ends the wait for copies elsewhere.
    Leave(Pace),
    /// After `Output::HandedOver`: be a member no longer; answered by `Output::Left`.
    Depart,
    /// The data path heard of a newer committed table: pull it from any voter.
    Pull(TableName),
    /// The operator's word: these members are dead (`recover`).
    Recover {
        /// Names of the dead.
        dead: Vec<String>,
        /// Names the request; answered by `Output::AdminReply`.
        ticket: u64,
    },
}

/// What the machine wants done, in order.
#[derive(Debug)]
pub enum Output {
    /// Send this. Pings and pongs go as datagrams, everything else on a stream.
    Send {
        /// To whom.
        to: Peer,
        /// What.
        message: Message,
    },
    /// Ask this seed once more who is there, from a port of its own: behind a balancer that is
    /// another node each time. Answered by `Input::Scouted`, or by nothing.
    Scout(SocketAddr),
    /// These tables are in force from now on. The shell makes them visible to the data threads
    /// before it carries out any output that follows.
    View(View),
    /// The lease reaches to here. Visible to the data threads at once.
    Lease(Time),
    /// Plan for this table and these loads, away from the control thread, and answer with
    /// `Input::Planned`.
    Plan(Arc<Table>, Arc<Loads>),
    /// The answer to `Input::Admin` or `Input::Recover`.
    AdminReply {
        /// The ticket of the request.
        ticket: u64,
        /// The answer.
        reply: AdminReply,
    },
    /// Something that people want to know.
    Event(Event),
    /// The cluster went on without this process: stop, take a fresh identity, start again as a new
    /// member.
    Expelled,
    /// The answer to `Input::Used`: the mark is set (or was not needed), and the write may be
    /// applied.
    UsedOk,
    /// Everything is handed over, or nobody is left who could take it. This node is still a member,
    /// so that it can forward.
    HandedOver,
    /// The leave is complete: a majority has installed a table without this node.
    Left,
    /// This process cannot be a member, and trying again will not help.
    Fatal(String),
}

/// What a node acts on (rule 5).
#[derive(Debug, Clone)]
pub struct View {
    /// The last table known to be committed.
    pub installed: Arc<Table>,
    /// The last table accepted; equal to `installed` when nothing is in flight.
    pub accepted: Arc<Table>,
    /// For partitions whose tenure with this node as primary began in `installed`: when it may
    /// acknowledge (rule 9).
    pub opens_at: Arc<Vec<(PartitionRef, Epoch, Time)>>,
}

/// What this node knows of the cluster.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Status {
    /// This process.
    pub me: MemberId,
    /// Who coordinates, as far as this node knows.
    pub coordinator: Option<MemberId>,
    /// Whether this node coordinates and a majority answers it.
    pub leading: bool,
    /// The last committed table that it knows.
    pub installed: Option<TableName>,
    /// Partitions whose primary has not reported them open. Complete only at the coordinator; empty
    /// elsewhere.
    pub closed: Vec<PartitionRef>,
    /// This node coordinates, and has still to plan for the members that are here: what moves next
    /// is not known yet.
    pub planning: bool,
    /// Members that do not answer this node, which asks those whose votes it needs; the coordinator
    /// asks all.
    pub unanswered: Vec<MemberId>,
    /// How much of its memory each member has filled, in percent, as it told the coordinator; empty
    /// elsewhere.
    pub filled: Vec<(MemberId, u8)>,
    /// Why nothing moves, where nothing does: for people.
    pub waiting: Option<String>,
    /// Other clusters that this node has met lately, and that hold data as its own does.
    pub others: Vec<OtherCluster>,
}

/// A cluster of the same secret that is not the node's own.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct OtherCluster {
    /// Which one.
    pub cluster: ClusterId,
    /// The name of the member of it that was met last.
    pub name: String,
    /// That member's control port.
    pub address: SocketAddr,
}

/// What only a coordinator sees of moves, for those who watch the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Oversight {
    /// For how long nothing has gone on of all that some primary is to copy or to hand over; zero
    /// where nothing moves. To some five seconds.
    pub moves_standing: Duration,
    /// Moves for balance that failed, one after the other. The third pauses balancing, and this
    /// begins anew.
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
