//! Messages of members about agreement. The node encodes these; here they are values.
//!
//! Every message but the probes names its cluster, and a member of another cluster drops it. Each
//! kind has a tag on the wire; the tags stand at the end of this file. `doyen_placement::level`
//! says how to add kinds.

use crate::agreement::{AdminReply, AdminRequest};
use crate::signing::{Signature, Vote};
use doyen_placement::loads::Report;
use doyen_placement::planner::{HandOverUrgency, InSyncRequest};
use doyen_placement::table::TableDelta;
use doyen_placement::{
    BranchId, ClusterId, Epoch, Member, MemberId, PartitionRef, Table, TableName, Term, Version,
};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Asks whether a peer answers. Members ping voters, and the coordinator pings all members.
    Ping(Heartbeat),
    /// The answer, with the number of the ping.
    Pong(Heartbeat),
    /// Asks the process at an address for its status, if that process is unknown or may not be a
    /// member.
    Probe(Box<ProcessStatus>),
    /// The answer to a probe.
    ProbeAnswer(Box<ProcessStatus>),
    /// Bootstrap: the first table, which needs the promise of every member in it.
    Found {
        /// The table.
        table: Arc<Table>,
        /// The present status of its writer, which pursues this table. It replaces every former
        /// status.
        status: Box<ProcessStatus>,
    },
    /// Bootstrap: the sender promises the first table of this name.
    Promise(TableName),
    /// A newcomer asks to be admitted. Members pass this on to the coordinator.
    Join {
        /// The cluster that it wants to join.
        cluster: ClusterId,
        /// The newcomer. Age and state are ignored.
        member: Box<Member>,
        /// The newest version of that cluster's table that the newcomer had heard of. A request
        /// from before the removal of a member does not count: the newcomer may be that member.
        seen: Version,
    },
    /// A newcomer cannot be admitted as it is, or not yet.
    JoinRefused {
        /// The cluster that refuses.
        cluster: ClusterId,
        /// The refused newcomer.
        member: MemberId,
        /// The reason, for people.
        why: String,
        /// Whether the newcomer may wait: nothing is wrong with the newcomer itself.
        for_now: bool,
    },
    /// Asks whether the receiver would vote for the sender.
    PreVote(Ballot),
    /// The answer to `PreVote`.
    PreVoteAnswer(BallotAnswer),
    /// Asks for a vote.
    Vote(Ballot),
    /// The answer to `Vote`, if the vote is refused.
    VoteAnswer(BallotAnswer),
    /// The answer to `Vote` that grants it, with the signature of the voter.
    SignedVote(BallotAnswer, Signature),
    /// Who elected the coordinator of a term. The coordinator sends it to every member once it is
    /// elected, and every member that has it to those that ask.
    ElectionProof(Box<ElectionProof>),
    /// Asks for the election proof of a term.
    AskElectionProof {
        /// The cluster.
        cluster: ClusterId,
        /// The term.
        term: Term,
    },
    /// The next table.
    Propose(Box<Proposal>),
    /// The proposal is stored.
    Ack(Box<ProposalAck>),
    /// The proposal is not stored.
    Refuse {
        /// The proposal.
        name: TableName,
        /// The term of the refusing member.
        term: Term,
        /// The coordinator of that term, if the refusing member knows one.
        coordinator: Option<MemberId>,
        /// The delta could not be applied: send the whole table.
        whole: bool,
    },
    /// The proposal is committed.
    Commit(Box<Commit>),
    /// Asks for the last committed table.
    Pull {
        /// The cluster.
        cluster: ClusterId,
        /// The last committed table that the sender has.
        have: Option<TableName>,
    },
    /// The last committed table.
    Committed(Box<CommitNotice>),
    /// A primary asks the coordinator for changes. Members do not pass this on.
    InSync {
        /// The cluster.
        cluster: ClusterId,
        /// The primary that asks.
        origin: MemberId,
        /// The requested changes, each independent of the others.
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
        /// The sequence number of the report.
        sequence: u64,
    },
    /// The loads of a member and of the partitions that it leads. Members send this to the
    /// coordinator regularly, and do not pass it on.
    Loads {
        /// The cluster.
        cluster: ClusterId,
        /// The member that measured the loads.
        origin: MemberId,
        /// What has changed.
        report: Box<Report>,
    },
    /// A request of a person or a program. Members pass this on to the coordinator.
    Admin {
        /// The cluster.
        cluster: ClusterId,
        /// The member that took the request.
        origin: MemberId,
        /// The number of the request there.
        ticket: u64,
        /// The request.
        request: AdminRequest,
    },
    /// The answer to `Admin`.
    AdminReply {
        /// The cluster.
        cluster: ClusterId,
        /// The number of the request at the member that took it.
        ticket: u64,
        /// The answer.
        reply: AdminReply,
    },
    /// A member hands over and leaves. It tells the coordinator itself, and members do not pass
    /// this on.
    Leave {
        /// The cluster.
        cluster: ClusterId,
        /// The member that leaves.
        member: MemberId,
        /// The step that it asks for.
        step: LeaveStep,
    },
    /// Which tables a process follows: its own word, or that of another process that is passed on.
    /// From version 16 on.
    Descent(Box<Descent>),
}

/// Which tables a process follows, signed by it. Processes of two halves of one cluster tell each
/// other (rule 13), and pass on what others said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descent {
    /// The cluster.
    pub cluster: ClusterId,
    /// The process that says so.
    pub member: MemberId,
    /// The last table that it knows to be committed.
    pub committed: TableName,
    /// Whether it knows a coordinator.
    pub led: bool,
    /// The branches of that table, with the tables at which they began, and how often an operator
    /// kept each.
    pub branches: Vec<(BranchId, TableName, u32)>,
    /// By the key of its votes.
    pub signature: Signature,
}

/// The request of a leaver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaveStep {
    /// Hand over the leaver's data.
    HandOver(HandOverUrgency),
    /// Everything is handed over: continue without the leaver.
    Gone,
}

/// The content of a ping or a pong: small, and of fixed size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The cluster.
    pub cluster: ClusterId,
    /// The number of the ping.
    pub sequence: u64,
    /// The sender's term.
    pub term: Term,
    /// The coordinator of that term, if the sender knows one.
    pub coordinator: Option<MemberId>,
    /// The last table that the sender accepted.
    pub accepted: TableName,
    /// The last table that the sender knows to be committed.
    pub committed: TableName,
}

/// The status of a process, for processes that may belong to another cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// The process.
    pub member: Member,
    /// Counts the statuses of the process, because they may arrive in another order.
    pub number: u64,
    /// The membership of the process.
    pub state: ProcessState,
}

/// The membership of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessState {
    /// No member yet. The process would found a cluster.
    Forming {
        /// Its list of founders: the processes at its seeds, itself included. While some have not
        /// answered, the list is shorter than `expect`.
        initial: Vec<MemberId>,
        /// The number of founders that it expects.
        expect: u16,
        /// Whether an operator gave that number. Then founders need not be at its seeds.
        told: bool,
        /// The first table that it promised. The promise excludes every other first table.
        promise: Option<TableName>,
        /// Other forming processes, with their addresses.
        known: Vec<(MemberId, SocketAddr)>,
    },
    /// No member yet. The process asks to join a cluster.
    Joining,
    /// A member of a cluster.
    Member {
        /// The cluster.
        cluster: ClusterId,
        /// Whether the cluster was ever used. A fresh cluster of one may give way to it.
        used: bool,
        /// The table that the process acts on.
        version: Version,
    },
}

/// A candidate's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ballot {
    /// The term in which it would coordinate.
    pub term: Term,
    /// The candidate's last accepted table.
    pub accepted: TableName,
}

/// The answer of a voter to a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BallotAnswer {
    /// The term of the candidate's request.
    pub term: Term,
    /// Whether the voter says yes.
    pub granted: bool,
    /// The voter's term.
    pub mine: Term,
    /// The voter's last accepted table.
    pub accepted: TableName,
}

/// The votes that made a member the coordinator of a term (rule 1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElectionProof {
    /// The cluster.
    pub cluster: ClusterId,
    /// The term.
    pub term: Term,
    /// The member that was elected.
    pub candidate: MemberId,
    /// The voters in order of id, each once. A voter whose key the candidate did not know is listed
    /// without a signature.
    pub votes: Vec<(MemberId, Option<Signature>)>,
}

impl ElectionProof {
    /// What each voter signed.
    #[must_use]
    pub const fn vote(&self) -> Vote {
        Vote {
            cluster: self.cluster,
            term: self.term,
            candidate: self.candidate,
        }
    }
}

/// A table on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Payload {
    /// The whole table.
    Whole(Arc<Table>),
    /// The difference from a table that the receiver has.
    Delta(Box<TableDelta>),
}

/// A coordinator proposes the next table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// Its name; its term is the coordinator's.
    pub name: TableName,
    /// The last table that the coordinator knows to be committed.
    pub committed: TableName,
    /// What is known of that commit. The proposal may overtake the commit, and without this a new
    /// primary would wait (rule 9).
    pub commit: Option<Commit>,
    /// The voters of the last committed configuration (rule 3).
    pub voters: Vec<MemberId>,
    /// The table.
    pub payload: Payload,
}

/// A member has stored a proposal, and its data threads act on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposalAck {
    /// The proposal.
    pub name: TableName,
    /// For each primary that the proposal deposes (rule 9): the time in milliseconds for which the
    /// sender has given that primary no answer that a lease could rest on. `None`: unknown, because
    /// the sender has not installed the predecessor.
    pub ages: Option<Vec<(MemberId, u64)>>,
    /// If the proposal deposes the sender: the partitions that the sender had not opened. It has
    /// closed all others (rule 9).
    pub seal: Option<Vec<PartitionRef>>,
}

/// A proposal is committed. It carries what new primaries need to know about their predecessors
/// (rule 9).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The proposal.
    pub name: TableName,
    /// The committed table before it. A member that has not installed that one cannot use the ages
    /// and seals.
    pub predecessor: TableName,
    /// The least ages that a committing quorum reported, in milliseconds, by deposed primary. The
    /// age of a primary that is not listed is unknown.
    pub ages: Vec<(MemberId, u64)>,
    /// Deposed primaries that sealed, with the partitions that they had not opened.
    pub seals: Vec<(MemberId, Vec<PartitionRef>)>,
}

/// A committed table for a member that lacks it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitNotice {
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

    /// The highest term that it names, if it names any.
    #[must_use]
    pub fn term(&self) -> Option<Term> {
        match self {
            Self::Ping(heartbeat) | Self::Pong(heartbeat) => Some(
                heartbeat
                    .term
                    .max(heartbeat.accepted.term)
                    .max(heartbeat.committed.term),
            ),
            Self::PreVote(ballot) | Self::Vote(ballot) => {
                Some(ballot.term.max(ballot.accepted.term))
            }
            Self::PreVoteAnswer(answer) | Self::VoteAnswer(answer) => {
                Some(answer.term.max(answer.mine))
            }
            Self::SignedVote(answer, _) => Some(answer.term.max(answer.mine)),
            Self::ElectionProof(proof) => Some(proof.term),
            Self::AskElectionProof { term, .. } => Some(*term),
            Self::Propose(proposal) => Some(proposal.name.term),
            Self::Refuse { term, .. } => Some(*term),
            Self::Commit(commit) => Some(commit.name.term),
            Self::Committed(committed) => Some(committed.name.term),
            _ => None,
        }
    }

    /// The cluster that it names.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        match self {
            Self::Ping(heartbeat) | Self::Pong(heartbeat) => Some(heartbeat.cluster),
            Self::Probe(_) | Self::ProbeAnswer(_) => None,
            Self::Found { table, .. } => Some(table.cluster),
            Self::PreVote(ballot) | Self::Vote(ballot) => Some(ballot.accepted.cluster),
            Self::PreVoteAnswer(answer) | Self::VoteAnswer(answer) => Some(answer.accepted.cluster),
            Self::SignedVote(answer, _) => Some(answer.accepted.cluster),
            Self::ElectionProof(proof) => Some(proof.cluster),
            Self::Propose(proposal) => Some(proposal.name.cluster),
            Self::Ack(ack) => Some(ack.name.cluster),
            Self::Promise(name) | Self::Refuse { name, .. } => Some(name.cluster),
            Self::Commit(commit) => Some(commit.name.cluster),
            Self::Committed(committed) => Some(committed.name.cluster),
            Self::Descent(said) => Some(said.cluster),
            Self::Join { cluster, .. }
            | Self::JoinRefused { cluster, .. }
            | Self::AskElectionProof { cluster, .. }
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
    0 => Ping(heartbeat),
    1 => Pong(heartbeat),
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
    25 => SignedVote(answer, signature),
    26 => ElectionProof(proof),
    27 => AskElectionProof { cluster, term },
    28 => Descent(said),
});
