//! Messages of members about agreement. The node encodes these; here they are values.
//!
//! Every message but the probes names its cluster, and a member of another cluster drops it.
//! `doyen_placement::level` says how to add kinds.

use crate::agreement::{AdminReply, AdminRequest};
use crate::signing::{Signature, Vote};
use doyen_placement::loads::Report;
use doyen_placement::planner::{HandOverUrgency, InSyncRequest};
use doyen_placement::table::TableDelta;
use doyen_placement::{
    BranchId, ClusterId, DiskCopies, Epoch, Member, MemberId, PartitionRef, Table, TableName, Term,
    Version,
};
use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Message {
    /// Asks whether a peer answers. Members ping voters, and the coordinator pings all members.
    #[n(0)]
    Ping(#[n(0)] Heartbeat),
    /// The answer, with the number of the ping.
    #[n(1)]
    Pong(#[n(0)] Heartbeat),
    /// Asks the process at an address for its status, if that process is unknown or may not be a
    /// member.
    #[n(2)]
    Probe(#[n(0)] Box<ProcessStatus>),
    /// The answer to a probe.
    #[n(3)]
    ProbeAnswer(#[n(0)] Box<ProcessStatus>),
    /// Bootstrap: the first table, which needs the promise of every member in it.
    #[n(4)]
    Found {
        /// The table.
        #[cbor(n(0), with = "doyen_placement::codec::bridge")]
        table: Arc<Table>,
        /// The present status of its writer, which pursues this table. It replaces every former
        /// status.
        #[n(1)]
        status: Box<ProcessStatus>,
    },
    /// Bootstrap: the sender promises the first table of this name.
    #[n(5)]
    Promise(#[n(0)] TableName),
    /// A newcomer asks to be admitted. Members pass this on to the coordinator.
    #[n(6)]
    Join {
        /// The cluster that it wants to join.
        #[n(0)]
        cluster: ClusterId,
        /// The newcomer. Age and state are ignored.
        #[n(1)]
        member: Box<Member>,
        /// The newest version of that cluster's table that the newcomer had heard of. A request
        /// from before the removal of a member does not count: the newcomer may be that member.
        #[n(2)]
        seen: Version,
        /// The complete copies in the directory of an heir.
        #[n(3)]
        copies: Option<DiskCopies>,
    },
    /// A newcomer cannot be admitted as it is, or not yet.
    #[n(7)]
    JoinRefused {
        /// The cluster that refuses.
        #[n(0)]
        cluster: ClusterId,
        /// The refused newcomer.
        #[n(1)]
        member: MemberId,
        /// The reason, for people.
        #[n(2)]
        why: String,
        /// Whether the newcomer may wait: nothing is wrong with the newcomer itself.
        #[n(3)]
        for_now: bool,
    },
    /// Asks whether the receiver would vote for the sender.
    #[n(8)]
    PreVote(#[n(0)] Ballot),
    /// The answer to `PreVote`.
    #[n(9)]
    PreVoteAnswer(#[n(0)] BallotAnswer),
    /// Asks for a vote.
    #[n(10)]
    Vote(#[n(0)] Ballot),
    /// The answer to `Vote`. A vote that is granted has the signature of the voter.
    #[n(11)]
    VoteAnswer(#[n(0)] BallotAnswer, #[n(1)] Option<Signature>),
    /// Who elected the coordinator of a term. The coordinator sends it to every member once it is
    /// elected, and every member that has it to those that ask.
    #[n(26)]
    ElectionProof(#[n(0)] Box<ElectionProof>),
    /// Asks for the election proof of a term.
    #[n(27)]
    AskElectionProof {
        /// The cluster.
        #[n(0)]
        cluster: ClusterId,
        /// The term.
        #[n(1)]
        term: Term,
    },
    /// The next table.
    #[n(12)]
    Propose(#[n(0)] Box<Proposal>),
    /// The proposal is stored.
    #[n(13)]
    Ack(#[n(0)] Box<ProposalAck>),
    /// The proposal is not stored.
    #[n(14)]
    Refuse {
        /// The proposal.
        #[n(0)]
        name: TableName,
        /// The term of the refusing member.
        #[n(1)]
        term: Term,
        /// The coordinator of that term, if the refusing member knows one.
        #[n(2)]
        coordinator: Option<MemberId>,
        /// The delta could not be applied: send the whole table.
        #[n(3)]
        whole: bool,
    },
    /// The proposal is committed.
    #[n(15)]
    Commit(#[n(0)] Box<Commit>),
    /// Asks for the last committed table.
    #[n(16)]
    Pull {
        /// The cluster.
        #[n(0)]
        cluster: ClusterId,
        /// The last committed table that the sender has.
        #[n(1)]
        have: Option<TableName>,
    },
    /// The last committed table.
    #[n(17)]
    Committed(#[n(0)] Box<CommitNotice>),
    /// A primary asks the coordinator for changes. Members do not pass this on.
    #[n(18)]
    InSync {
        /// The cluster.
        #[n(0)]
        cluster: ClusterId,
        /// The primary that asks.
        #[n(1)]
        origin: MemberId,
        /// The requested changes, each independent of the others.
        #[n(2)]
        requests: Vec<InSyncRequest>,
    },
    /// A primary reports to the coordinator which of its partitions acknowledge.
    #[n(19)]
    Opened {
        /// The cluster.
        #[n(0)]
        cluster: ClusterId,
        /// Counts the sender's reports.
        #[n(1)]
        sequence: u64,
        /// Partitions, with the epochs in which the tenures began.
        #[n(2)]
        partitions: Vec<(PartitionRef, Epoch)>,
    },
    /// The coordinator has read that report.
    #[n(20)]
    OpenedSeen {
        /// The cluster.
        #[n(0)]
        cluster: ClusterId,
        /// The sequence number of the report.
        #[n(1)]
        sequence: u64,
    },
    /// The loads of a member and of the partitions that it leads. Members send this to the
    /// coordinator regularly, and do not pass it on.
    #[n(21)]
    Loads {
        /// The cluster.
        #[n(0)]
        cluster: ClusterId,
        /// The member that measured the loads.
        #[n(1)]
        origin: MemberId,
        /// What has changed.
        #[n(2)]
        report: Box<Report>,
    },
    /// A request of a person or a program. Members pass this on to the coordinator.
    #[n(22)]
    Admin {
        /// The cluster.
        #[n(0)]
        cluster: ClusterId,
        /// The member that took the request.
        #[n(1)]
        origin: MemberId,
        /// The number of the request there.
        #[n(2)]
        ticket: u64,
        /// The request.
        #[n(3)]
        request: AdminRequest,
    },
    /// The answer to `Admin`.
    #[n(23)]
    AdminReply {
        /// The cluster.
        #[n(0)]
        cluster: ClusterId,
        /// The number of the request at the member that took it.
        #[n(1)]
        ticket: u64,
        /// The answer.
        #[n(2)]
        reply: AdminReply,
    },
    /// A member hands over and leaves. It tells the coordinator itself, and members do not pass
    /// this on.
    #[n(24)]
    Leave {
        /// The cluster.
        #[n(0)]
        cluster: ClusterId,
        /// The member that leaves.
        #[n(1)]
        member: MemberId,
        /// The step that it asks for.
        #[n(2)]
        step: LeaveStep,
    },
    /// Which tables a process follows: its own word, or that of another process that is passed on.
    #[n(28)]
    Descent(#[n(0)] Box<Descent>),
}

/// Which tables a process follows, signed by it. Processes of two halves of one cluster tell each
/// other (rule 13), and pass on what others said.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Descent {
    /// The cluster.
    #[n(0)]
    pub cluster: ClusterId,
    /// The process that says so.
    #[n(1)]
    pub member: MemberId,
    /// The last table that it knows to be committed.
    #[n(2)]
    pub committed: TableName,
    /// Whether it knows a coordinator.
    #[n(3)]
    pub led: bool,
    /// The branches of that table, with the tables at which they began, and how often an operator
    /// kept each.
    #[n(4)]
    pub branches: Vec<(BranchId, TableName, u32)>,
    /// By the key of its votes.
    #[n(5)]
    pub signature: Signature,
}

/// The request of a leaver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum LeaveStep {
    /// Hand over the leaver's data.
    #[n(0)]
    HandOver(#[n(0)] HandOverUrgency),
    /// Everything is handed over: continue without the leaver.
    #[n(1)]
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
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ProcessStatus {
    /// The process.
    #[n(0)]
    pub member: Member,
    /// Counts the statuses of the process, because they may arrive in another order.
    #[n(1)]
    pub number: u64,
    /// The membership of the process.
    #[n(2)]
    pub state: ProcessState,
}

/// The membership of a process.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum ProcessState {
    /// No member yet. The process would found a cluster.
    #[n(0)]
    Forming {
        /// Its list of founders: the processes at its seeds, itself included. While some have not
        /// answered, the list is shorter than `expect`.
        #[n(0)]
        initial: Vec<MemberId>,
        /// The number of founders that it expects.
        #[n(1)]
        expect: u16,
        /// Whether an operator gave that number. Then founders need not be at its seeds.
        #[n(2)]
        told: bool,
        /// The first table that it promised. The promise excludes every other first table.
        #[n(3)]
        promise: Option<TableName>,
        /// Other forming processes, with their addresses.
        #[n(4)]
        known: Vec<(MemberId, SocketAddr)>,
    },
    /// No member yet. The process asks to join a cluster.
    #[n(1)]
    Joining,
    /// A member of a cluster.
    #[n(2)]
    Member {
        /// The cluster.
        #[n(0)]
        cluster: ClusterId,
        /// Whether the cluster was ever used. A fresh cluster of one may give way to it.
        #[n(1)]
        used: bool,
        /// The table that the process acts on.
        #[n(2)]
        version: Version,
    },
}

/// A candidate's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Ballot {
    /// The term in which it would coordinate.
    #[n(0)]
    pub term: Term,
    /// The candidate's last accepted table.
    #[n(1)]
    pub accepted: TableName,
}

/// The answer of a voter to a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct BallotAnswer {
    /// The term of the candidate's request.
    #[n(0)]
    pub term: Term,
    /// Whether the voter says yes.
    #[n(1)]
    pub granted: bool,
    /// The voter's term.
    #[n(2)]
    pub mine: Term,
    /// The voter's last accepted table.
    #[n(3)]
    pub accepted: TableName,
}

/// The votes that made a member the coordinator of a term (rule 1).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ElectionProof {
    /// The cluster.
    #[n(0)]
    pub cluster: ClusterId,
    /// The term.
    #[n(1)]
    pub term: Term,
    /// The member that was elected.
    #[n(2)]
    pub candidate: MemberId,
    /// The voters in order of id, each once. A voter whose key the candidate did not know is listed
    /// without a signature.
    #[n(3)]
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
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Payload {
    /// The whole table.
    #[n(0)]
    Whole(#[cbor(n(0), with = "doyen_placement::codec::bridge")] Arc<Table>),
    /// The difference from a table that the receiver has.
    #[n(1)]
    Delta(#[n(0)] Box<TableDelta>),
}

/// A coordinator proposes the next table.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Proposal {
    /// Its name; its term is the coordinator's.
    #[n(0)]
    pub name: TableName,
    /// The last table that the coordinator knows to be committed.
    #[n(1)]
    pub committed: TableName,
    /// What is known of that commit. The proposal may overtake the commit, and without this a new
    /// primary would wait (rule 9).
    #[n(2)]
    pub commit: Option<Commit>,
    /// The voters of the last committed configuration (rule 3).
    #[n(3)]
    pub voters: Vec<MemberId>,
    /// The table.
    #[n(4)]
    pub payload: Payload,
}

/// A member has stored a proposal, and its data threads act on it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ProposalAck {
    /// The proposal.
    #[n(0)]
    pub name: TableName,
    /// For each primary that the proposal deposes (rule 9): the time in milliseconds for which the
    /// sender has given that primary no answer that a lease could rest on. `None`: unknown, because
    /// the sender has not installed the predecessor.
    #[n(1)]
    pub ages: Option<Vec<(MemberId, u64)>>,
    /// If the proposal deposes the sender: the partitions that the sender had not opened. It has
    /// closed all others (rule 9).
    #[n(2)]
    pub seal: Option<Vec<PartitionRef>>,
}

/// A proposal is committed. It carries what new primaries need to know about their predecessors
/// (rule 9).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Commit {
    /// The proposal.
    #[n(0)]
    pub name: TableName,
    /// The committed table before it. A member that has not installed that one cannot use the ages
    /// and seals.
    #[n(1)]
    pub predecessor: TableName,
    /// The least ages that a committing quorum reported, in milliseconds, by deposed primary. The
    /// age of a primary that is not listed is unknown.
    #[n(2)]
    pub ages: Vec<(MemberId, u64)>,
    /// Deposed primaries that sealed, with the partitions that they had not opened.
    #[n(3)]
    pub seals: Vec<(MemberId, Vec<PartitionRef>)>,
}

/// A committed table for a member that lacks it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CommitNotice {
    /// Its name.
    #[n(0)]
    pub name: TableName,
    /// The table.
    #[n(1)]
    pub payload: Payload,
    /// What is known of its commit.
    #[n(2)]
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
            Self::PreVoteAnswer(answer) | Self::VoteAnswer(answer, _) => {
                Some(answer.term.max(answer.mine))
            }
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
            Self::PreVoteAnswer(answer) | Self::VoteAnswer(answer, _) => {
                Some(answer.accepted.cluster)
            }
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

doyen_placement::bridged!(Heartbeat, Signature);
