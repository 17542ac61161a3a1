//! What members say to each other about agreement. The node encodes these; here they are values.
//!
//! Every message but the probes names the cluster that it is about: a member of another cluster
//! drops it. Each kind travels by its tag, which stands at the end of this file.
//! `doyen_placement::level` says how to add to them.

use crate::agreement::{AdminReply, AdminRequest};
use doyen_placement::loads::Report;
use doyen_placement::planner::{InSyncRequest, Pace};
use doyen_placement::table::TableDelta;
use doyen_placement::{
    ClusterId, Epoch, Member, MemberId, PartitionRef, Table, TableName, Term, Version,
};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Are you there? Asked of every voter, and by the coordinator of everybody.
    Ping(Pulse),
    /// The answer, with the number of the ping.
    Pong(Pulse),
    /// To an address whose process is not known, or not known to be a member: how do you stand?
    Probe(Box<ProcessStatus>),
    /// The answer to a probe.
    ProbeAnswer(Box<ProcessStatus>),
    /// Bootstrap: the first table, which needs the promise of everybody in it.
    Found {
        /// The table.
        table: Arc<Table>,
        /// How its writer stands by now: whatever it said before, it pursues this table.
        status: Box<ProcessStatus>,
    },
    /// Bootstrap: the promise.
    Promise(TableName),
    /// A newcomer asks to be admitted; passed on to the coordinator.
    Join {
        /// The cluster that it wants to join.
        cluster: ClusterId,
        /// What it says of itself. Age and state are ignored.
        member: Box<Member>,
        /// The newest version of that cluster's table of which it had heard: what it asked before a
        /// member was removed counts no more, for it may be that member.
        seen: Version,
    },
    /// A newcomer cannot be admitted as it is, or not yet.
    JoinRefused {
        /// The cluster that refuses.
        cluster: ClusterId,
        /// Whom.
        member: MemberId,
        /// Why: for people.
        why: String,
        /// It may be waited for: nothing is wrong with the newcomer itself.
        for_now: bool,
    },
    /// Would you vote for me?
    PreVote(Ballot),
    /// The answer to `PreVote`.
    PreVoteAnswer(BallotAnswer),
    /// Vote for me.
    Vote(Ballot),
    /// The answer to `Vote`.
    VoteAnswer(BallotAnswer),
    /// The next table.
    Propose(Box<Proposal>),
    /// The proposal is stored.
    Ack(Box<Ack>),
    /// The proposal is not stored.
    Refuse {
        /// The proposal.
        name: TableName,
        /// The term of whoever refuses.
        term: Term,
        /// Who coordinates in that term, as far as it knows.
        coordinator: Option<MemberId>,
        /// The difference could not be applied: send the whole table.
        whole: bool,
    },
    /// The proposal is committed.
    Commit(Box<Commit>),
    /// Tell me the last committed table; this is what I have.
    Pull {
        /// The cluster.
        cluster: ClusterId,
        /// The last committed table that the sender has.
        have: Option<TableName>,
    },
    /// The last committed table.
    Committed(Box<Committed>),
    /// A primary asks the coordinator for changes, each for itself: passed on by nobody.
    InSync {
        /// The cluster.
        cluster: ClusterId,
        /// The primary that asks.
        origin: MemberId,
        /// What it asks.
        requests: Vec<InSyncRequest>,
    },
    /// A primary reports to the coordinator which of its partitions acknowledge.
    Opened {
        /// The cluster.
        cluster: ClusterId,
        /// Counts the sender's reports.
        sequence: u64,
        /// Partitions, with the epochs in which the tenures began.
        partitions: Vec<(PartitionRef, Epoch)>,
    },
    /// The coordinator has read that report.
    OpenedSeen {
        /// The cluster.
        cluster: ClusterId,
        /// Which one.
        sequence: u64,
    },
    /// What a member and the partitions that it leads have to carry, said every now and then to the
    /// coordinator: passed on by nobody.
    Loads {
        /// The cluster.
        cluster: ClusterId,
        /// Who measured it.
        origin: MemberId,
        /// What has changed.
        report: Box<Report>,
    },
    /// A person's request; passed on to the coordinator.
    Admin {
        /// The cluster.
        cluster: ClusterId,
        /// Where it was asked.
        origin: MemberId,
        /// Its number there.
        ticket: u64,
        /// What is asked.
        request: AdminRequest,
    },
    /// The answer to `Admin`.
    AdminReply {
        /// The cluster.
        cluster: ClusterId,
        /// Its number where it was asked.
        ticket: u64,
        /// The answer.
        reply: AdminReply,
    },
    /// A member hands over and leaves, and tells the coordinator so itself: passed on by nobody.
    Leave {
        /// The cluster.
        cluster: ClusterId,
        /// Who leaves.
        member: MemberId,
        /// How far it is.
        step: LeaveStep,
    },
}

/// What a leaver asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaveStep {
    /// Hand over what it holds.
    HandOver(Pace),
    /// Everything is handed over: go on without it.
    Gone,
}

/// A ping or a pong: of fixed size, and small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pulse {
    /// The cluster.
    pub cluster: ClusterId,
    /// The number of the ping.
    pub sequence: u64,
    /// The sender's term.
    pub term: Term,
    /// Who coordinates in that term, as far as the sender knows.
    pub coordinator: Option<MemberId>,
    /// The last table that the sender accepted.
    pub accepted: TableName,
    /// The last table that the sender knows to be committed.
    pub committed: TableName,
}

/// How a process stands, said to processes that may not be of its cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Itself.
    pub member: Member,
    /// Counts what the process has said of itself: what it said first may arrive last.
    pub number: u64,
    /// What it is part of.
    pub state: ProcessState,
}

/// What a process is part of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessState {
    /// Nothing yet; it would found a cluster.
    Forming {
        /// Its list: the processes at its seeds, itself among them. Shorter than `expect` while
        /// some have not answered.
        initial: Vec<MemberId>,
        /// How many founders it expects.
        expect: u16,
        /// Whether it was told that number, so that others than its seeds may be founders.
        told: bool,
        /// The first table that it has promised not to found another one beside.
        promise: Option<TableName>,
        /// Others that form, and where.
        known: Vec<(MemberId, SocketAddr)>,
    },
    /// Nothing yet; it asks to join.
    Joining,
    /// A cluster.
    Member {
        /// Which.
        cluster: ClusterId,
        /// Whether anything was ever done in it. A fresh cluster of one may surrender to it.
        used: bool,
        /// The table that the process acts on.
        version: Version,
    },
}

/// A candidate's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ballot {
    /// The term to be.
    pub term: Term,
    /// The candidate's last accepted table.
    pub accepted: TableName,
}

/// What a voter says to a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BallotAnswer {
    /// The term that was asked for.
    pub term: Term,
    /// Yes.
    pub granted: bool,
    /// The voter's term.
    pub mine: Term,
    /// The voter's last accepted table.
    pub accepted: TableName,
}

/// A table on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Payload {
    /// All of it.
    Whole(Arc<Table>),
    /// What differs.
    Delta(Box<TableDelta>),
}

/// A coordinator proposes the next table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// Its name; its term is the coordinator's.
    pub name: TableName,
    /// The last table that the coordinator knows to be committed.
    pub committed: TableName,
    /// What is known of that commit: it may overtake the commit itself, and whoever installed it
    /// without would wait (rule 9).
    pub commit: Option<Commit>,
    /// The voters of the last committed configuration (rule 3).
    pub voters: Vec<MemberId>,
    /// The table.
    pub payload: Payload,
}

/// A member has stored a proposal, and shows it to its data threads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// The proposal.
    pub name: TableName,
    /// For each primary that it deposes (rule 9), for how many milliseconds at least the sender
    /// gave that primary nothing to hold a lease with. `None`: unknown, because the sender has not
    /// installed the predecessor.
    pub ages: Option<Vec<(MemberId, u64)>>,
    /// The sender is deposed by the proposal and has closed everything; it had not opened these
    /// (rule 9).
    pub seal: Option<Vec<PartitionRef>>,
}

/// A proposal is committed, and what new primaries need to know about their predecessors (rule 9).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The proposal.
    pub name: TableName,
    /// The committed table before it. Whoever has not installed that one knows nothing of its
    /// predecessors.
    pub predecessor: TableName,
    /// Least ages that a committing quorum reported, in milliseconds, by deposed primary. Not
    /// listed: unknown.
    pub ages: Vec<(MemberId, u64)>,
    /// Deposed primaries that sealed, and the partitions that they had not opened.
    pub seals: Vec<(MemberId, Vec<PartitionRef>)>,
}

/// A committed table for somebody who lacks it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// Its name.
    pub name: TableName,
    /// The table.
    pub payload: Payload,
    /// What is known of its commit.
    pub commit: Option<Commit>,
}

impl Message {
    /// Whether it travels as a datagram: small, of fixed size, and worthless when late.
    #[must_use]
    pub const fn is_datagram(&self) -> bool {
        matches!(self, Self::Ping(_) | Self::Pong(_))
    }

    /// The highest term that it names, where it names any.
    #[must_use]
    pub fn term(&self) -> Option<Term> {
        match self {
            Self::Ping(pulse) | Self::Pong(pulse) => Some(
                pulse
                    .term
                    .max(pulse.accepted.term)
                    .max(pulse.committed.term),
            ),
            Self::PreVote(ballot) | Self::Vote(ballot) => {
                Some(ballot.term.max(ballot.accepted.term))
            }
            Self::PreVoteAnswer(answer) | Self::VoteAnswer(answer) => {
                Some(answer.term.max(answer.mine))
            }
            Self::Propose(proposal) => Some(proposal.name.term),
            Self::Refuse { term, .. } => Some(*term),
            Self::Commit(commit) => Some(commit.name.term),
            Self::Committed(committed) => Some(committed.name.term),
            _ => None,
        }
    }

    /// The cluster that it is about.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        match self {
            Self::Ping(pulse) | Self::Pong(pulse) => Some(pulse.cluster),
            Self::Probe(_) | Self::ProbeAnswer(_) => None,
            Self::Found { table, .. } => Some(table.cluster),
            Self::PreVote(ballot) | Self::Vote(ballot) => Some(ballot.accepted.cluster),
            Self::PreVoteAnswer(answer) | Self::VoteAnswer(answer) => Some(answer.accepted.cluster),
            Self::Propose(proposal) => Some(proposal.name.cluster),
            Self::Ack(ack) => Some(ack.name.cluster),
            Self::Promise(name) | Self::Refuse { name, .. } => Some(name.cluster),
            Self::Commit(commit) => Some(commit.name.cluster),
            Self::Committed(committed) => Some(committed.name.cluster),
            Self::Join { cluster, .. }
            | Self::JoinRefused { cluster, .. }
            | Self::Pull { cluster, .. }
            | Self::InSync { cluster, .. }
            | Self::Opened { cluster, .. }
            | Self::OpenedSeen { cluster, .. }
            | Self::Loads { cluster, .. }
            | Self::Admin { cluster, .. }
            | Self::AdminReply { cluster, .. }
            | Self::Leave { cluster, .. } => Some(*cluster),
        }
    }
}

doyen_placement::tagged!(Message {
    0 => Ping(pulse),
    1 => Pong(pulse),
    2 => Probe(status),
    3 => ProbeAnswer(status),
    4 => Found { table, status },
    5 => Promise(name),
    6 => Join { cluster, member, seen },
    7 => JoinRefused { cluster, member, why, for_now },
    8 => PreVote(ballot),
    9 => PreVoteAnswer(answer),
    10 => Vote(ballot),
    11 => VoteAnswer(answer),
    12 => Propose(proposal),
    13 => Ack(ack),
    14 => Refuse { name, term, coordinator, whole },
    15 => Commit(commit),
    16 => Pull { cluster, have },
    17 => Committed(committed),
    18 => InSync { cluster, origin, requests },
    19 => Opened { cluster, sequence, partitions },
    20 => OpenedSeen { cluster, sequence },
    21 => Loads { cluster, origin, report },
    22 => Admin { cluster, origin, ticket, request },
    23 => AdminReply { cluster, ticket, reply },
    24 => Leave { cluster, member, step },
});
