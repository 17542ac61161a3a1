//! Samples of everything that travels between processes, as bytes of one wire version: the corpus
//! that later versions must read. `tests/tests/protocol/wire.rs` compares them with the files in
//! `tests/corpus/v*`.

use super::members::id;
use super::targets::lived;
use crate::net::endpoint::Purpose;
use crate::net::envelope::Envelope;
use crate::net::hello::Hello;
use crate::net::identity::Proof;
use doyen_engine::codec;
use doyen_gossip::Signature;
use doyen_gossip::agreement::{AdminReply, AdminRequest, OtherCluster, Status};
use doyen_gossip::wire::{
    Ack, Ballot, BallotAnswer, Commit, Committed, Descent, LeaveStep, Mandate, Message, Payload,
    ProcessState, ProcessStatus, Proposal, Pulse,
};
use doyen_placement::access::{
    AccessChange, Grant, TokenChange, TokenRole, UserChange, WeightChange,
};
use doyen_placement::division::Cut;
use doyen_placement::level::LEVELS;
use doyen_placement::loads::{CopyPhase, MemberLoad, PartitionLoad, Progress, Report, Skew};
use doyen_placement::planner::{
    self, BalanceChange, InSyncChange, InSyncRequest, KeyspaceChange, NewKeyspace, Pace,
};
use doyen_placement::{
    BranchId, ClusterId, Division, Epoch, Eviction, KeyspaceId, Label, Loads, MapEntry, MapId,
    MapLimits, MapWish, MemberId, Mode, MoveRate, OnLoss, Origin, PartitionId, PartitionRef,
    Paused, Place, Reshape, Rule, Schedulers, Table, TableDelta, TableName, Tags, Term, Token,
    Version, VoteKey, WantedMap,
};
use std::sync::Arc;

pub use doyen_engine::fuzz::Sample;

/// One layer of the wire.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// Its name, and that of its file.
    pub name: &'static str,
    /// At least one sample of each kind, encoded in this wire version.
    pub samples: fn(u16) -> Vec<Sample>,
    /// Decodes a sample of this wire version, and encodes it again.
    pub again: fn(u16, &[u8]) -> Result<Vec<u8>, String>,
    /// The kinds that these samples lack.
    pub lacking: fn(&[Sample]) -> Vec<String>,
}

/// All layers.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "frames",
        samples: doyen_engine::fuzz::samples,
        again: doyen_engine::fuzz::again,
        lacking: |samples| {
            let is_there = |kind| samples.iter().any(|(_, bytes)| bytes[4] == kind);
            let kinds = doyen_engine::fuzz::kinds().into_iter();
            kinds
                .filter(|kind| !is_there(*kind))
                .map(|kind| kind.to_string())
                .collect()
        },
    },
    Section {
        name: "chunks",
        samples: doyen_engine::fuzz::chunk_samples,
        again: doyen_engine::fuzz::chunk_again,
        lacking: |_| Vec::new(),
    },
    Section {
        name: "envelopes",
        samples: envelopes,
        again: envelope,
        lacking: lacking_envelopes,
    },
    Section {
        name: "tables",
        samples: |version| {
            tables(version)
                .into_iter()
                .map(|(name, t)| (name, encode(&t)))
                .collect()
        },
        again: |_, bytes| again::<Table>(bytes),
        lacking: |_| Vec::new(),
    },
    Section {
        name: "deltas",
        samples: |version| {
            deltas(version)
                .into_iter()
                .map(|(name, d)| (name, encode(&d)))
                .collect()
        },
        again: |_, bytes| again::<TableDelta>(bytes),
        lacking: |_| Vec::new(),
    },
    Section {
        name: "clients",
        samples: |version| doyen_engine::fuzz::published(&tables(version), &deltas(version)),
        again: doyen_engine::fuzz::published_again,
        lacking: |_| Vec::new(),
    },
    Section {
        name: "hello",
        samples: hellos,
        again: |_, bytes| Hello::decode(bytes).map(|hello| hello.encode()),
        lacking: |_| Vec::new(),
    },
];

fn encode<T: serde::Serialize>(value: &T) -> Vec<u8> {
    codec::encode(value, codec::BYTES_MAX).expect("it is small")
}

fn again<T: serde::Serialize + serde::de::DeserializeOwned>(
    bytes: &[u8],
) -> Result<Vec<u8>, String> {
    let value: T = codec::decode(bytes, codec::BYTES_MAX).map_err(|e| e.to_string())?;
    codec::encode(&value, codec::BYTES_MAX).map_err(|e| e.to_string())
}

/// The name of a value's variant: the first word of its debug form.
fn variant(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    text.chars()
        .take_while(char::is_ascii_alphanumeric)
        .collect()
}

// ---- tables

/// Tables that together have every feature of a table.
fn tables(version: u16) -> Vec<(String, Table)> {
    let mut tables: Vec<(String, Table)> = (0..)
        .zip(lived())
        .map(|(n, table)| (format!("lived-{n}"), table))
        .collect();
    let mut full = tables[0].1.clone();
    let wanted = |name: &str, mode, division, ordered| NewKeyspace {
        name: name.into(),
        mode,
        division,
        backups: 2,
        min_in_sync: 2,
        on_loss: OnLoss::Reset { after_ms: 60_000 },
        default_ttl_ms: Some(5_000),
        eviction: Eviction::Ttl,
        ordered,
        rules: vec![
            Rule::Primary(Place {
                inside: true,
                label: Label::Zone,
                value: "a".into(),
            }),
            Rule::Per {
                most: 1,
                label: Label::Rack,
            },
        ],
    };
    let ranges = Division::split_at(["m"].iter()).expect("one key is in order");
    for keyspace in [
        wanted(
            "ring",
            Mode::Ring {
                tokens: 2,
                random: false,
            },
            Division::no_arcs(),
            true,
        ),
        wanted("range", Mode::Range, ranges, false),
    ] {
        full = planner::create_keyspace(&full, keyspace)
            .expect("its name is free")
            .expect("it is new");
    }
    full = planner::assign(&full);
    for (map, keyspace) in [("users", "default"), ("events", "range")] {
        let entries = (keyspace != "range").then_some(1_000);
        let (table, _) = planner::want_map(
            &full,
            &WantedMap {
                keyspace: keyspace.into(),
                name: map.into(),
                wish: MapWish::Limited(MapLimits {
                    entries,
                    idle_ms: Some(60_000),
                    ..MapLimits::NONE
                }),
            },
        )
        .expect("its name is free");
        full = table.expect("it is new");
    }
    let user = UserChange {
        name: b"bob"[..].into(),
        before: None,
        after: Some(b"off resetchannels -@all"[..].into()),
    };
    let access = AccessChange {
        users: vec![user],
        tokens: vec![TokenChange {
            name: "prometheus".into(),
            before: None,
            after: Some(grant(TokenRole::Read)),
        }],
        weights: vec![WeightChange {
            name: "n9".into(),
            before: None,
            after: Some(900),
        }],
        keep_operate: false,
    };
    full = planner::change_access(&full, &access)
        .expect("its name is free")
        .expect("it is new");
    let balancing = &mut full.settings.balancing;
    balancing.paused = Some(Paused::Failures);
    balancing.window = Some("22:00-06:00".parse().expect("a window"));
    balancing.rate = MoveRate::Bytes(1 << 20);
    balancing.held = vec![at(0)];
    balancing.drained = vec![full.members[2].id];
    let member = Arc::make_mut(&mut full.members[1]);
    member.location.zone = "a".into();
    member.addresses.hostname = Some("n1.example.org".into());
    let v6 = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    member.addresses.resp = Some((v6, 7379).into());
    let keyspace = &mut full.keyspaces[0];
    keyspace.reshaping.next = PartitionId(9);
    keyspace.reshaping.under_way = vec![Reshape::Merge {
        partitions: [PartitionId(0), PartitionId(1)],
    }];
    let partition = Arc::make_mut(&mut keyspace.partitions[0]);
    partition.goal = Some(partition.in_sync().collect());
    partition.from = vec![Origin {
        partition: PartitionId(7),
        behind_ms: 3,
    }];
    full.version = Version(99);
    full.keyspaces[0].tags = Tags::default(); // as if the level had risen since it was made
    tables.push(("full".into(), full));
    tables
        .into_iter()
        .map(|(name, table)| (name, table.at_level(version)))
        .collect()
}

/// Deltas from the first table to each other one, and back; also to one with a higher level.
fn deltas(version: u16) -> Vec<(String, TableDelta)> {
    let tables = tables(version);
    let (_, first) = &tables[0];
    let lower = first.at_level(LEVELS.0);
    let raised = (version > LEVELS.0).then(|| TableDelta::between(&lower, first));
    let raised = raised.map(|delta| ("raised".to_owned(), delta));
    tables[1..]
        .iter()
        .flat_map(|(name, table)| {
            [
                (format!("to-{name}"), TableDelta::between(first, table)),
                (format!("from-{name}"), TableDelta::between(table, first)),
            ]
        })
        .chain(raised)
        .collect()
}

fn at(partition: u32) -> PartitionRef {
    PartitionRef {
        keyspace: KeyspaceId(0),
        partition: PartitionId(partition),
    }
}

// ---- the control network

fn envelopes(version: u16) -> Vec<Sample> {
    let messages = messages(version);
    let mut samples: Vec<Sample> = messages
        .into_iter()
        .map(|message| {
            let name = match &message {
                Message::Admin { request, .. } => format!("Admin/{}", variant(request)),
                other => variant(other),
            };
            (name, encode(&Envelope::Agreement(message)))
        })
        .collect();
    samples.extend(
        others(version)
            .iter()
            .map(|other| (variant(other), encode(other))),
    );
    samples
}

fn envelope(_: u16, bytes: &[u8]) -> Result<Vec<u8>, String> {
    again::<Envelope>(bytes)
}

fn lacking_envelopes(samples: &[Sample]) -> Vec<String> {
    let of_agreement = |name: &str| {
        let prefix = format!("{name}/");
        let is = |(known, _): &Sample| known == name || known.starts_with(&prefix);
        samples.iter().any(is)
    };
    let requests = AdminRequest::TAGS
        .iter()
        .map(|(_, name)| format!("Admin/{name}"));
    let others = Envelope::TAGS
        .iter()
        .filter(|(_, name)| *name != "Agreement");
    let kinds = Message::TAGS.iter().chain(others);
    kinds
        .map(|(_, name)| (*name).to_owned())
        .chain(requests)
        .filter(|name| !of_agreement(name))
        .collect()
}

/// Envelopes that are not messages of agreement.
fn others(version: u16) -> Vec<Envelope> {
    let (_, table) = tables(version).swap_remove(0);
    let status = Status {
        me: id(0),
        coordinator: Some(id(1)),
        leading: false,
        installed: Some(table.name()),
        closed: vec![at(1)],
        planning: true,
        unanswered: vec![id(2)],
        filled: vec![(id(0), 40)],
        waiting: Some("why".into()),
        why: None,
        voters: Vec::new(),
        others: vec![OtherCluster {
            cluster: ClusterId(8),
            name: "x".into(),
            address: ([10, 0, 0, 9], 7400).into(),
        }],
        split: None,
    };
    let mut loads = Loads::default();
    loads.tell(&table, id(0), report());
    vec![
        Envelope::StatusRequest { ticket: 300 },
        Envelope::StatusReply {
            ticket: 300,
            status: Box::new(status),
        },
        Envelope::LoadsRequest { ticket: 4 },
        Envelope::LoadsReply { ticket: 4, loads },
        Envelope::Gossip(vec![1, 2, 3]),
    ]
}

fn report() -> Report {
    let load = PartitionLoad {
        bytes: 70_000,
        keys: 300,
        reads: 9,
        writes: 8,
        read_bytes: 900,
        written_bytes: 800,
        skew: Skew::Halves(MapId(0), b"m".to_vec()),
    };
    Report {
        member: MemberLoad {
            memory: 1 << 20,
            memory_max: 1 << 30,
            cpu: 500,
            busy: true,
        },
        partitions: vec![(at(0), load.clone()), (at(1), load)],
        moves: vec![Progress {
            partition: at(1),
            learner: id(1),
            phase: CopyPhase::Comparing,
            keys: 300,
            keys_sent: 200,
            bytes_sent: 40_000,
            rate: 1_000,
        }],
        unheard: vec![id(2)],
    }
}

/// Every message of members, in the order of the corpus.
fn messages(version: u16) -> Vec<Message> {
    let tables = tables(version);
    let (table, next) = (Arc::new(tables[0].1.clone()), Arc::new(tables[1].1.clone()));
    let (name, cluster) = (table.name(), table.cluster);
    let admin = |request| Message::Admin {
        cluster,
        origin: id(1),
        ticket: 9,
        request,
    };
    let mut messages = of_elections(&table);
    messages.extend(of_publications(&table, &next));
    messages.extend(of_requests(cluster));
    messages.extend(requests(&next, name).into_iter().map(admin));
    messages
}

/// Messages of processes that meet, and of elections.
fn of_elections(table: &Arc<Table>) -> Vec<Message> {
    let (name, cluster) = (table.name(), table.cluster);
    let pulse = Pulse {
        cluster,
        sequence: 7,
        term: Term(2),
        coordinator: Some(id(0)),
        accepted: name,
        committed: name,
    };
    let status = |state| {
        Box::new(ProcessStatus {
            member: (*table.members[0]).clone(),
            number: 3,
            state,
        })
    };
    let forming = ProcessState::Forming {
        initial: vec![id(0), id(1)],
        expect: 3,
        told: true,
        promise: Some(name),
        known: vec![(id(1), ([10, 0, 0, 2], 7400).into())],
    };
    let member = ProcessState::Member {
        cluster,
        used: true,
        version: Version(9),
    };
    let ballot = Ballot {
        term: Term(4),
        accepted: name,
    };
    let answer = BallotAnswer {
        term: Term(4),
        granted: true,
        mine: Term(3),
        accepted: name,
    };
    let signature = Signature::new([[1; 32], [2; 32]]);
    vec![
        Message::Ping(pulse),
        Message::Pong(pulse),
        Message::Probe(status(forming)),
        Message::ProbeAnswer(status(ProcessState::Joining)),
        Message::Found {
            table: table.clone(),
            status: status(member),
        },
        Message::Promise(name),
        Message::Join {
            cluster,
            member: Box::new((*table.members[0]).clone()),
            seen: Version(5),
        },
        Message::JoinRefused {
            cluster,
            member: id(2),
            why: "the name is taken".into(),
            for_now: true,
        },
        Message::PreVote(ballot),
        Message::PreVoteAnswer(answer),
        Message::Vote(ballot),
        Message::VoteAnswer(answer),
        Message::SignedVote(answer, signature),
        Message::Mandate(Box::new(Mandate {
            cluster,
            term: Term(3),
            candidate: id(0),
            votes: vec![(id(0), Some(signature)), (id(1), None)],
        })),
        Message::AskMandate {
            cluster,
            term: Term(3),
        },
        Message::Descent(Box::new(Descent {
            cluster,
            member: id(0),
            committed: name,
            led: true,
            branches: vec![(BranchId(7), name, 1)],
            signature,
        })),
    ]
}

/// Messages about the next table.
fn of_publications(table: &Table, next: &Arc<Table>) -> Vec<Message> {
    let (name, cluster) = (table.name(), table.cluster);
    let commit = Commit {
        name,
        predecessor: name,
        ages: vec![(id(1), 40)],
        seals: vec![(id(1), vec![at(2)])],
    };
    let delta = Payload::Delta(Box::new(TableDelta::between(table, next)));
    let proposal = |payload| {
        Box::new(Proposal {
            name: next.name(),
            committed: name,
            commit: Some(commit.clone()),
            voters: table.voters.clone(),
            payload,
        })
    };
    vec![
        Message::Propose(proposal(delta.clone())),
        Message::Propose(proposal(Payload::Whole(next.clone()))),
        Message::Ack(Box::new(Ack {
            name,
            ages: Some(vec![(id(1), 40)]),
            seal: Some(vec![at(2)]),
        })),
        Message::Refuse {
            name,
            term: Term(3),
            coordinator: Some(id(0)),
            whole: true,
        },
        Message::Commit(Box::new(commit.clone())),
        Message::Pull {
            cluster,
            have: Some(name),
        },
        Message::Committed(Box::new(Committed {
            name,
            payload: delta,
            commit: Some(commit),
        })),
    ]
}

/// Messages of members to the coordinator, and its answers.
fn of_requests(cluster: ClusterId) -> Vec<Message> {
    let in_sync = |change| InSyncRequest {
        partition: at(1),
        epoch: Epoch(4),
        change,
    };
    let reply = |reply| Message::AdminReply {
        cluster,
        ticket: 9,
        reply,
    };
    vec![
        Message::InSync {
            cluster,
            origin: id(1),
            requests: [
                InSyncChange::Remove(id(0)),
                InSyncChange::Admit(id(0)),
                InSyncChange::Abandon(id(0)),
                InSyncChange::NoRoom(id(0)),
                InSyncChange::Withdraw(id(0)),
                InSyncChange::Split(Cut::Half),
                InSyncChange::Split(Cut::Token {
                    token: Token(-9),
                    by: id(0),
                }),
                InSyncChange::Split(Cut::Key {
                    map: MapId(0),
                    key: b"m"[..].into(),
                }),
                InSyncChange::WritesStopped { ahead_ms: -5 },
            ]
            .map(in_sync)
            .into(),
        },
        Message::Opened {
            cluster,
            sequence: 3,
            partitions: vec![(at(0), Epoch(2))],
        },
        Message::OpenedSeen {
            cluster,
            sequence: 3,
        },
        Message::Loads {
            cluster,
            origin: id(0),
            report: Box::new(report()),
        },
        reply(AdminReply::Done(Some(MapEntry {
            id: MapId(3),
            name: "users".into(),
            keyspace: KeyspaceId(0),
            limits: MapLimits::NONE,
        }))),
        reply(AdminReply::Refused("no".into())),
        reply(AdminReply::Outdated("no".into())),
        Message::Leave {
            cluster,
            member: id(1),
            step: LeaveStep::HandOver(Pace::Repair),
        },
        Message::Leave {
            cluster,
            member: id(1),
            step: LeaveStep::Gone,
        },
    ]
}

/// Every request of operators and programs.
fn requests(table: &Table, base: TableName) -> Vec<AdminRequest> {
    let keyspace = || "default".to_owned();
    vec![
        AdminRequest::WantMap(WantedMap {
            keyspace: "default".into(),
            name: "users".into(),
            wish: MapWish::Dropped,
        }),
        AdminRequest::CreateMap {
            name: "users".into(),
            keyspace: keyspace(),
        },
        AdminRequest::CreateKeyspace(NewKeyspace {
            name: "other".into(),
            mode: Mode::Fixed { partitions: 8 },
            division: Division::Slots,
            backups: 1,
            min_in_sync: 1,
            on_loss: OnLoss::Wait,
            default_ttl_ms: None,
            eviction: Eviction::Lru,
            ordered: false,
            rules: Vec::new(),
        }),
        AdminRequest::AlterKeyspace {
            name: keyspace(),
            change: KeyspaceChange {
                backups: Some(2),
                default_ttl_ms: Some(None),
                partitions: Some(16),
                ..KeyspaceChange::default()
            },
        },
        AdminRequest::DropKeyspace { name: keyspace() },
        AdminRequest::SplitAt {
            keyspace: keyspace(),
            map: MapId(0),
            key: b"m"[..].into(),
        },
        AdminRequest::MergeAt {
            keyspace: keyspace(),
            map: MapId(0),
            key: b"m"[..].into(),
        },
        AdminRequest::GiveUp { name: "n2".into() },
        AdminRequest::Forget { name: "n2".into() },
        AdminRequest::ApplyPlan {
            base,
            goals: planner::plan(table, &Loads::default()),
        },
        AdminRequest::Schedule(Schedulers::ALL),
        AdminRequest::Balance(BalanceChange::Rate(MoveRate::Bytes(1 << 20))),
        AdminRequest::Cancel(Some(at(1))),
        AdminRequest::TellOfKeys { events: 0x1ff },
        AdminRequest::Drain { name: "n1".into() },
        AdminRequest::Fill { name: "n1".into() },
        AdminRequest::KeepHalf(BranchId(7)),
        AdminRequest::ChangeAccess(AccessChange {
            users: vec![
                UserChange {
                    name: b"alice"[..].into(),
                    before: None,
                    after: Some(b"on nopass resetchannels -@all"[..].into()),
                },
                UserChange {
                    name: b"bob"[..].into(),
                    before: Some(b"off resetchannels -@all"[..].into()),
                    after: None,
                },
            ],
            tokens: vec![TokenChange {
                name: "prometheus".into(),
                before: Some(grant(TokenRole::Read)),
                after: Some(grant(TokenRole::Operate)),
            }],
            weights: vec![WeightChange {
                name: "n9".into(),
                before: Some(900),
                after: Some(1600),
            }],
            keep_operate: true,
        }),
    ]
}

fn grant(role: TokenRole) -> Grant {
    Grant {
        role,
        sha256: [7; 32],
        made: 1_700_000_000,
    }
}

// ---- hello

fn hellos(version: u16) -> Vec<Sample> {
    let node = Hello::new(Purpose::Control, MemberId(0x70), "alpha");
    let client = Hello::new(Purpose::Data, MemberId::of_client(7), "a client");
    let at = ([10, 0, 0, 1], 7400).into();
    [
        ("node", node.clone()),
        ("client", client),
        ("somewhere", node.clone().at(at)),
        ("passing", node.clone().at(at).passing()),
        (
            "answering",
            Hello {
                certificate: Some(vec![7; 40].into()),
                ..node.clone().at(at)
            },
        ),
        (
            "proving",
            Hello {
                proof: Some(Proof {
                    key: VoteKey([3; 32]),
                    signature: Signature::new([[1; 32], [2; 32]]),
                }),
                ..node.at(at)
            },
        ),
    ]
    .into_iter()
    .map(|(name, hello)| {
        let hello = Hello {
            versions: (version.min(hello.versions.0), version),
            ..hello
        };
        (name.to_owned(), hello.encode())
    })
    .collect()
}
