//! Three members in virtual time; one of them sends arbitrary messages.

use doyen::net::envelope::{Envelope, FRAME_BYTES_MAX};
use doyen_gossip::agreement::{AdminRequest, Agreement, AgreementConfig, Input, Output, Peer};
use doyen_gossip::hints::Hint;
use doyen_gossip::wire::{Descent, LeaveStep, Message};
use doyen_gossip::{Signature, Time};
use doyen_placement::level::LEVELS;
use doyen_placement::loads::{MemberLoad, PartitionLoad, Report, Skew};
use doyen_placement::planner::{
    self, HandOverUrgency, InSyncChange, InSyncRequest, KeyspaceChange,
};
use doyen_placement::{
    BranchId, Durability, Epoch, Keyspace, KeyspaceId, Label, MapId, MemberId, OnLoss, PartitionId,
    PartitionRef, Place, Rule, Schedulers, Table, TableName,
};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The number of members.
pub(super) const MEMBERS: usize = 3;
/// The member that sends arbitrary messages.
pub(super) const BROKEN: usize = 2;
/// The step of virtual time. Every message takes one step.
const STEP: Duration = Duration::from_millis(5);
/// Frames of one input that are delivered, at most.
const FRAMES_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct Members {
    now: Time,
    members: Vec<Agreement>,
    tables: Vec<Option<Arc<Table>>>,
    queue: VecDeque<(usize, usize, Message)>,
    /// All messages that were sent, if they are kept.
    said: Option<Vec<Message>>,
}

fn address(place: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 7000 + place as u16))
}

pub(super) fn id(place: usize) -> MemberId {
    MemberId((place as u64 + 1) << 4)
}

fn config(place: usize) -> AgreementConfig {
    let (control, seeds) = (address(place), (0..MEMBERS).map(address).collect());
    AgreementConfig {
        seeds,
        default_keyspace: Keyspace {
            on_loss: OnLoss::Reset { after_ms: 3000 },
            ..Keyspace::fixed(4, 1)
        },
        rng_seed: 7,
        ..AgreementConfig::of_test(id(place), format!("n{place}"), control)
    }
}

/// Requests that only operators make.
fn of_operators(base: TableName, at: PartitionRef) -> Vec<AdminRequest> {
    vec![
        AdminRequest::GiveUp { name: "n2".into() },
        AdminRequest::AlterKeyspace {
            name: "default".into(),
            change: KeyspaceChange {
                on_loss: Some(OnLoss::Wait),
                durability: Some(Durability::Log),
                ..Default::default()
            },
        },
        AdminRequest::AlterKeyspace {
            name: "default".into(),
            change: KeyspaceChange {
                rules: Some(vec![
                    Rule::Per {
                        most: 1,
                        label: Label::Zone,
                    },
                    Rule::Primary(Place {
                        inside: false,
                        label: Label::Name,
                        value: "n1".into(),
                    }),
                ]),
                ..Default::default()
            },
        },
        AdminRequest::DropKeyspace {
            name: "default".into(),
        },
        AdminRequest::CreateMap {
            name: "x".into(),
            keyspace: "default".into(),
        },
        AdminRequest::ApplyPlan {
            base,
            goals: vec![(at, vec![id(1), id(0)])],
        },
        AdminRequest::Schedule(Schedulers::MANUAL),
        AdminRequest::KeepHalf(BranchId(7)),
        AdminRequest::Forget { name: "n2".into() },
        AdminRequest::TellOfKeys { events: 9 },
    ]
}

impl Members {
    /// Three members that have formed a cluster.
    pub(super) fn new() -> Self {
        Self::begin(None)
    }

    /// Messages from the first probe to an election and a death: valid ones of nearly every kind,
    /// and some that only operators and primaries cause.
    pub(super) fn messages() -> Vec<Message> {
        let mut members = Self::begin(Some(Vec::new()));
        let table = members.table(0).expect("they have formed a cluster");
        let (cluster, at) = (
            table.cluster,
            PartitionRef {
                keyspace: KeyspaceId(0),
                partition: PartitionId(1),
            },
        );
        members.input(
            1,
            Input::Admin {
                ticket: 5,
                request: AdminRequest::CreateMap {
                    name: "users".into(),
                    keyspace: "default".into(),
                },
            },
        );
        members.pass(Duration::from_millis(300));
        members.input(0, Input::Hint(Hint::Refused(id(1))));
        // The coordinator pauses, and another member is elected.
        let leader = (0..MEMBERS)
            .find(|m| members.members[*m].leading())
            .expect("there is a leader");
        for _ in 0..300 {
            members.step(Some(leader));
        }
        members.pass(Duration::from_secs(1));
        let mut said = members.said.take().unwrap_or_default();
        let requests = [
            InSyncChange::Remove(id(1)),
            InSyncChange::Admit(id(2)),
            InSyncChange::Abandon(id(0)),
            InSyncChange::Withdraw(id(1)),
        ]
        .map(|change| InSyncRequest {
            partition: at,
            epoch: Epoch(1),
            change,
        });
        said.push(Message::InSync {
            cluster,
            origin: id(2),
            requests: requests.into(),
        });
        said.push(Message::Opened {
            cluster,
            sequence: 9,
            partitions: vec![(at, Epoch(1))],
        });
        let load = PartitionLoad {
            reads: u64::MAX,
            bytes: u64::MAX,
            skew: Skew::OneKey(MapId(1), vec![7; 99]),
            ..PartitionLoad::default()
        };
        let report = Box::new(Report {
            member: MemberLoad::default(),
            partitions: vec![(at, load)],
            moves: Vec::new(),
            unheard: Vec::new(),
        });
        said.push(Message::Loads {
            cluster,
            origin: id(2),
            report,
        });
        said.push(Message::JoinRefused {
            cluster,
            member: id(0),
            why: "no".into(),
            for_now: false,
        });
        said.push(Message::Descent(Box::new(Descent {
            cluster,
            member: id(2),
            committed: table.name(),
            led: true,
            branches: vec![(BranchId(7), table.name(), 1)],
            signature: Signature::new([[1; 32], [2; 32]]),
        })));
        for step in [
            LeaveStep::HandOver(HandOverUrgency::Repair),
            LeaveStep::HandOver(HandOverUrgency::AtOnce),
            LeaveStep::Gone,
        ] {
            said.push(Message::Leave {
                cluster,
                member: id(2),
                step,
            });
        }
        for request in of_operators(table.name(), at) {
            said.push(Message::Admin {
                cluster,
                origin: id(2),
                ticket: 1,
                request,
            });
        }
        said
    }

    fn begin(said: Option<Vec<Message>>) -> Self {
        let now = Time(1_000_000_000_000);
        let members = (0..MEMBERS)
            .map(|place| Agreement::new(config(place), now))
            .collect();
        let mut members = Self {
            now,
            members,
            tables: vec![None; MEMBERS],
            queue: VecDeque::new(),
            said,
        };
        members.pass(Duration::from_secs(3));
        members
    }

    /// The table in force, as this member knows it.
    pub(super) fn table(&self, place: usize) -> Option<Arc<Table>> {
        self.tables[place].clone()
    }

    /// Delivers the bytes of a control stream from the broken member to both others.
    pub(super) fn hear(&mut self, mut stream: &[u8]) {
        for _ in 0..FRAMES_MAX {
            let Some((length, rest)) = stream.split_first_chunk::<4>() else {
                return;
            };
            let length = u32::from_le_bytes(*length) as usize;
            if length > FRAME_BYTES_MAX || rest.len() < length {
                return;
            }
            let (frame, rest) = rest.split_at(length);
            stream = rest;
            for place in 0..MEMBERS - 1 {
                let Ok(Envelope::Agreement(message)) = Envelope::decode(frame) else {
                    return;
                };
                self.input(
                    place,
                    Input::Message {
                        from: id(BROKEN),
                        message,
                    },
                );
            }
        }
    }

    /// Whether one member leads, and all others follow it.
    pub(super) fn agrees(&self) -> bool {
        let status = |m: &Agreement| m.status(self.now);
        let coordinator = status(&self.members[0]).coordinator;
        coordinator.is_some()
            && self
                .members
                .iter()
                .all(|m| status(m).coordinator == coordinator)
    }

    /// Whether the members agree, and all of them install a change that one of them requests here.
    pub(super) fn commits(&mut self) -> bool {
        let request = AdminRequest::CreateMap {
            name: "after".into(),
            keyspace: "default".into(),
        };
        if self
            .tables
            .iter()
            .all(|t| t.as_ref().is_some_and(|t| t.map_named("after").is_some()))
        {
            return self.agrees();
        }
        self.input(
            0,
            Input::Admin {
                ticket: 77,
                request,
            },
        );
        false
    }

    pub(super) fn summary(&self) -> String {
        let status = |m: &Agreement| format!("{:?} ignored {}", m.status(self.now), m.ignored());
        self.members
            .iter()
            .map(status)
            .collect::<Vec<_>>()
            .join("\n")
    }

    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.step(None);
        }
    }

    /// Lets one step pass; one of the members may be paused.
    fn step(&mut self, still: Option<usize>) {
        self.now = self.now + STEP;
        for (from, to, message) in std::mem::take(&mut self.queue) {
            if still != Some(to) {
                // The hello of their connection has said this.
                let key = Some(self.members[from].vote_key());
                self.input(
                    to,
                    Input::Speaks {
                        id: id(from),
                        process: id(from),
                        level: LEVELS.1,
                        key,
                        start: None,
                    },
                );
                self.input(
                    to,
                    Input::Message {
                        from: id(from),
                        message,
                    },
                );
            }
        }
        for place in (0..MEMBERS).filter(|p| still != Some(*p)) {
            self.input(place, Input::DataThreadAlive);
            if self.members[place]
                .poll_timeout()
                .is_some_and(|due| due <= self.now)
            {
                self.input(place, Input::Tick);
            }
        }
    }

    pub(super) fn input(&mut self, place: usize, input: Input) {
        self.members[place].handle(self.now, input);
        let mut then = Vec::new();
        while let Some(output) = self.members[place].poll_output() {
            match output {
                Output::Send { to, message } => {
                    if let Some(said) = &mut self.said {
                        said.push(message.clone());
                    }
                    let to = match to {
                        Peer::Member(member) => (0..MEMBERS).find(|p| id(*p) == member),
                        Peer::Address(at) => {
                            let there = (0..MEMBERS).find(|p| address(*p) == at);
                            then.extend(there.map(|there| Input::Identified {
                                address: at,
                                id: id(there),
                            }));
                            there
                        }
                    };
                    self.queue
                        .extend(to.filter(|to| *to != place).map(|to| (place, to, message)));
                }
                Output::View(view) => self.tables[place] = Some(view.installed),
                Output::Plan(table, loads) => then.push(Input::Planned {
                    base: table.name(),
                    proposal: planner::propose(&table, &loads),
                }),
                Output::Expelled | Output::Left => {
                    // The member acts like a process that starts again, but keeps its id.
                    self.members[place] = Agreement::new(config(place), self.now);
                    self.tables[place] = None;
                }
                Output::Scout(_)
                | Output::Lease(_)
                | Output::AdminReply { .. }
                | Output::Event(_)
                | Output::UsedOk
                | Output::HandedOver
                | Output::Store(..)
                | Output::Renamed
                | Output::Fatal(_) => {}
            }
        }
        then.into_iter().for_each(|input| self.input(place, input));
    }
}

/// A message as the content of a frame.
pub(super) fn encoded(message: Message) -> Vec<u8> {
    let envelope = Envelope::Agreement(message);
    envelope.encode().expect("it fits")
}

/// The same as it travels on a control stream.
pub(super) fn framed(body: Vec<u8>) -> Vec<u8> {
    let length = body.len() as u32;
    [&length.to_le_bytes()[..], &body].concat()
}
