//! A member that is admitted and faulty. It may send anything, and the others must continue with
//! tables that they made.
//!
//! The faulty process continues normally beside the messages that the test sends in its name, so
//! its silence does not hide their effect.

mod elections;

pub(super) use elections::proof;

use super::api::{AdminRequest, Input};
use super::net::{Net, Slot};
use crate::hints::Hint;
use crate::wire::{
    Ballot, BallotAnswer, Commit, CommitNotice, Heartbeat, LeaveStep, Message, Payload, Proposal,
    ProposalAck,
};
use doyen_placement::loads::{MemberLoad, PartitionLoad, Report, Skew};
use doyen_placement::planner::{HandOverUrgency, InSyncChange, InSyncRequest};
use doyen_placement::table::validate::COUNT_MAX;
use doyen_placement::{
    Age, Epoch, KeyspaceId, MapId, Member, MemberId, PartitionId, PartitionRef, Table, TableName,
    Term, Version,
};

/// Three serving members: the coordinator, and one of the others, which will be the faulty one.
fn three(seed: u64) -> (Net, Slot, Slot) {
    let mut net = Net::cluster(seed, 3);
    net.until(2000, Net::healed);
    let leader = net.leaders()[0];
    (net, leader, (leader + 1) % 3)
}

fn others(broken: Slot) -> impl Iterator<Item = Slot> {
    (0..3).filter(move |s| *s != broken)
}

/// Checks that the members are one cluster that serves everything and commits requests.
#[track_caller]
fn goes_on(net: &mut Net, ms_max: u64) {
    net.until(ms_max, Net::healed);
    let leader = net.leaders()[0];
    let name = format!("map{}", net.table(leader).maps.len());
    let request = AdminRequest::CreateMap {
        name: name.clone(),
        keyspace: "default".into(),
    };
    net.input(leader, Input::Admin { ticket: 1, request });
    net.until(2000, |net| {
        net.agreed().is_some_and(|t| t.map_named(&name).is_some())
    });
    assert_eq!(net.clusters().len(), 1);
}

/// The faulty member sends this message to the others every 10 ms for some time. They must serve
/// all the time.
fn served_throughout(
    net: &mut Net,
    broken: Slot,
    ms: u64,
    mut says: impl FnMut(&Net, Slot) -> Vec<Message>,
) {
    for _ in 0..ms / 10 {
        for to in others(broken) {
            for message in says(net, to) {
                net.say(broken, to, message);
            }
        }
        net.run_ms(10);
        for slot in others(broken) {
            assert!(
                net.holds_lease(slot),
                "n{slot} may not serve: {:#?}",
                net.summary()
            );
        }
    }
}

fn propose(table: &Table, committed: TableName) -> Message {
    let (name, payload) = (table.name(), Payload::Whole(table.clone().into()));
    Message::Propose(Box::new(Proposal {
        name,
        committed,
        commit: None,
        voters: table.voters.clone(),
        payload,
    }))
}

const AT: PartitionRef = PartitionRef::new(KeyspaceId(0), PartitionId(1));

#[test]
fn requests_with_wrong_epochs_change_nothing() {
    let (mut net, _, broken) = three(31);
    let (before, me) = (net.table(broken), net.at(broken).unwrap());
    served_throughout(&mut net, broken, 1000, |net, _| {
        let table = net.table(broken);
        let wrong = |epoch: Epoch| {
            [
                Epoch(0),
                epoch.next(),
                Epoch(epoch.0 + 1000),
                Epoch(u64::MAX),
            ]
        };
        let mut said = Vec::new();
        for partition in &table.keyspaces[0].partitions {
            let at = PartitionRef::new(KeyspaceId(0), partition.id);
            for epoch in wrong(partition.epoch) {
                let requests = table.members.iter().flat_map(|m| {
                    [
                        InSyncChange::Remove,
                        InSyncChange::Admit,
                        InSyncChange::Abandon,
                        InSyncChange::NoRoom,
                        InSyncChange::Withdraw,
                    ]
                    .map(|change| InSyncRequest {
                        partition: at,
                        epoch,
                        change: change(m.id),
                    })
                });
                said.push(Message::InSync {
                    cluster: table.cluster,
                    origin: me,
                    requests: requests.collect(),
                });
                said.push(Message::Opened {
                    cluster: table.cluster,
                    sequence: u64::MAX,
                    partitions: vec![(at, epoch)],
                });
            }
        }
        said
    });
    assert_eq!(
        net.table(broken).name(),
        before.name(),
        "the faulty message became a table"
    );
    goes_on(&mut net, 2000);
}

#[test]
fn versions_and_tables_from_the_future_are_asked_for_and_never_waited_for() {
    let (mut net, leader, broken) = three(32);
    let before = net.table(leader).name();
    served_throughout(&mut net, broken, 2000, |net, _| {
        let now = net.table(broken).name();
        let names = [
            now.version.next(),
            Version(now.version.0 + 1000),
            Version(u64::MAX),
        ]
        .map(|version| TableName {
            version,
            hash: 3,
            ..now
        });
        let mut said = Vec::new();
        for name in names {
            let heartbeat = Heartbeat {
                cluster: now.cluster,
                sequence: u64::MAX,
                term: now.term,
                coordinator: None,
                accepted: name,
                committed: name,
            };
            let commit = Commit {
                name,
                predecessor: now,
                ages: vec![(MemberId(3), u64::MAX)],
                seals: vec![(MemberId(3), vec![AT])],
            };
            said.extend([
                Message::Ping(heartbeat),
                Message::Pong(heartbeat),
                Message::Commit(Box::new(commit.clone())),
            ]);
            said.push(Message::Pull {
                cluster: now.cluster,
                have: Some(name),
            });
            said.push(Message::Ack(Box::new(ProposalAck {
                name,
                ages: Some(vec![(MemberId(3), u64::MAX)]),
                seal: Some(vec![AT]),
            })));
            said.push(Message::Refuse {
                name,
                term: now.term,
                coordinator: None,
                whole: true,
            });
            // A table under the name of another.
            let payload = Payload::Whole(net.table(broken));
            said.push(Message::Committed(Box::new(CommitNotice {
                name,
                payload,
                commit: Some(commit),
            })));
        }
        said
    });
    assert_eq!(net.leaders(), [leader], "no other member took its place");
    assert_eq!(net.table(leader).name(), before);
    goes_on(&mut net, 2000);
}

#[test]
fn a_proposal_of_another_member_than_the_coordinator_changes_nothing() {
    let (mut net, leader, broken) = three(33);
    let before = net.table(leader).name();
    served_throughout(&mut net, broken, 1000, |net, _| {
        let mut table = (*net.table(broken)).clone();
        let committed = table.name();
        table.version = table.version.next();
        table.voters.truncate(1);
        let now = propose(&table, committed);
        table.term = Term(table.term.0 - 1);
        vec![now, propose(&table, committed)]
    });
    assert_eq!(
        (net.leaders(), net.table(leader).name()),
        (vec![leader], before)
    );
    goes_on(&mut net, 2000);
}

/// Every member stored a proposal with the last version that a table can have, in a term in which
/// no member had voted. Later coordinators could propose no later version, so no table was ever
/// committed again.
#[test]
fn a_table_that_skips_versions_is_refused() {
    let (mut net, _, broken) = three(34);
    for version in [Version(COUNT_MAX), Version(COUNT_MAX - 1), Version(1 << 40)] {
        let table = net.table(broken);
        let committed = table.name();
        let skipping = Table {
            version,
            term: table.term.next(),
            ..(*table).clone()
        };
        others(broken).for_each(|to| net.say(broken, to, propose(&skipping, committed)));
        net.run_ms(500);
        goes_on(&mut net, 10_000);
        assert!(
            net.table(broken).version < Version(1000),
            "{:?}",
            net.table(broken).name()
        );
    }
}

/// Tables in which partitions go back to former epochs, or ages are given again, or that follow
/// another table than the one in force. For any cause,
/// they are no successors of the committed table.
#[test]
fn a_table_that_does_not_descend_from_the_committed_one_is_refused() {
    let (mut net, _, broken) = three(35);
    let table = net.table(broken);
    let changed = |change: &dyn Fn(&mut Table)| {
        let mut next = (*table).clone();
        (next.term, next.version) = (next.term.next(), next.version.next());
        change(&mut next);
        next
    };
    let epoch = |next: &mut Table| {
        let mut partition = (*next.keyspaces[0].partitions[1]).clone();
        (partition.epoch, partition.since) = (Epoch(0), Epoch(0));
        next.keyspaces[0].partitions[1] = partition.into();
    };
    let ages = |next: &mut Table| {
        let mut member = (*next.members[2]).clone();
        member.age = Age(member.age.0 + 1);
        next.next_age = next.next_age.next();
        next.members[2] = member.into();
    };
    let fewer = |next: &mut Table| _ = next.keyspaces.pop();
    let elsewhere = TableName {
        hash: table.name().hash ^ 1,
        ..table.name()
    };
    for (next, committed) in [
        (changed(&epoch), table.name()),
        (changed(&ages), table.name()),
        (changed(&fewer), table.name()),
        (changed(&|_| {}), elsewhere),
    ] {
        assert_eq!(next.validate(), Ok(()), "by itself it is valid");
        others(broken).for_each(|to| net.say(broken, to, propose(&next, committed)));
        net.run_ms(300);
        for slot in others(broken) {
            let known = net.process(slot).view.as_ref().unwrap();
            assert_ne!(
                known.accepted.name().hash,
                next.name().hash,
                "n{slot} stored it"
            );
        }
        goes_on(&mut net, 5000);
    }
}

/// A member said once that it proposes a table, in a term in which no member had voted for it. The
/// others took it for the coordinator from then on, because it answered their pings. But it
/// coordinated nothing, and the others refused other candidates, because they heard a coordinator.
#[test]
fn a_supposed_coordinator_that_does_not_coordinate_is_given_up() {
    let (mut net, _, broken) = three(36);
    let table = net.table(broken);
    let mut next = (*table).clone();
    (next.term, next.version) = (table.term.next(), table.version.next());
    others(broken).for_each(|to| net.say(broken, to, propose(&next, table.name())));
    net.run_ms(100);
    goes_on(&mut net, 5000);
}

#[test]
fn terms_from_the_future_and_elections_without_end_stop_no_lease_and_then_all_agree_again() {
    let (mut net, _, broken) = three(37);
    let mut term = net.table(broken).term;
    served_throughout(&mut net, broken, 3000, |net, _| {
        term = Term(term.0 + 1000);
        let accepted = TableName {
            version: Version(u64::MAX),
            term,
            ..net.table(broken).name()
        };
        let answer = BallotAnswer {
            term,
            granted: true,
            mine: term,
            accepted,
        };
        let far = Ballot {
            term: Term(u64::MAX),
            accepted,
        };
        vec![
            Message::Vote(Ballot { term, accepted }),
            Message::PreVote(Ballot { term, accepted }),
            Message::VoteAnswer(answer, None),
            Message::PreVoteAnswer(answer),
            Message::Vote(far),
            Message::PreVote(far),
        ]
    });
    goes_on(&mut net, 3000);
}

#[test]
fn newcomers_by_the_thousand_that_do_not_exist_take_no_vote_and_are_gone_soon() {
    let (mut net, leader, broken) = three(38);
    let (table, model) = (net.table(broken), net.table(broken).members[0].clone());
    let mut made_up = 0_u64;
    served_throughout(&mut net, broken, 1500, |_, _| {
        let newcomers = (0..20).map(|_| {
            made_up += 1;
            let control =
                std::net::SocketAddr::from(([10, 9, 9, 9], 7000 + (made_up % 50_000) as u16));
            let mut addresses = model.addresses.clone();
            (addresses.control, addresses.data) = (control, control);
            Member {
                id: MemberId(made_up << 32),
                name: format!("absent{made_up}"),
                age: Age(u64::MAX),
                addresses,
                ..(*model).clone()
            }
        });
        newcomers
            .map(|member| Message::Join {
                copies: None,
                cluster: table.cluster,
                member: Box::new(member),
                seen: Version(1 << 40),
            })
            .collect()
    });
    assert!(made_up >= 5000);
    assert_eq!(net.leaders(), [leader]);
    let real: Vec<MemberId> = net.processes.keys().copied().collect();
    assert!(
        net.table(leader).voters.iter().all(|v| real.contains(v)),
        "{:#?}",
        net.summary()
    );
    assert!(
        net.table(leader).members.len() < 200,
        "admission is not faster than a real join"
    );
    goes_on(&mut net, 20_000);
}

#[test]
fn endless_hints_expel_no_member() {
    let (mut net, leader, broken) = three(41);
    let before = net.table(leader).name();
    let members: Vec<MemberId> = net.processes.keys().copied().collect();
    for round in 0..300_u16 {
        for slot in 0..3 {
            for member in members
                .iter()
                .copied()
                .chain([MemberId(u64::from(round) << 8), MemberId(u64::MAX)])
            {
                for hint in [
                    Hint::Suspected(member),
                    Hint::Refused(member),
                    Hint::Alive(member),
                ] {
                    net.input(slot, Input::Hint(hint));
                }
            }
            net.input(
                slot,
                Input::Hint(Hint::Address(
                    ([10, 7, (round >> 8) as u8, round as u8], 7000).into(),
                )),
            );
        }
        net.run_ms(10);
        assert!(
            (0..3).all(|slot| net.holds_lease(slot)),
            "{:#?}",
            net.summary()
        );
    }
    assert_eq!(
        (net.leaders(), net.table(broken).name()),
        (vec![leader], before)
    );
    goes_on(&mut net, 2000);
}

/// Each member sends reports and requests about itself alone. Otherwise one member could make the
/// coordinator drop the copies of another, or hand over another's partitions and go on without it.
#[test]
fn no_member_speaks_for_another() {
    let (mut net, leader, broken) = three(39);
    let third = others(broken).find(|s| *s != leader).unwrap();
    let (before, cluster) = (net.table(leader).name(), net.table(leader).cluster);
    let victim = net.at(third).unwrap();
    served_throughout(&mut net, broken, 1000, |net, _| {
        let table = net.table(broken);
        let mut said: Vec<Message> = [
            LeaveStep::HandOver(HandOverUrgency::Repair),
            LeaveStep::Gone,
        ]
        .map(|step| Message::Leave {
            cluster,
            member: victim,
            step,
        })
        .into();
        for partition in table.keyspaces[0]
            .partitions
            .iter()
            .filter(|p| p.primary() == victim)
        {
            let at = PartitionRef::new(KeyspaceId(0), partition.id);
            let change = InSyncChange::Remove(partition.replicas[1].member);
            let requests = vec![InSyncRequest {
                partition: at,
                epoch: partition.epoch,
                change,
            }];
            said.push(Message::InSync {
                cluster,
                origin: victim,
                requests,
            });
        }
        said
    });
    assert_eq!(net.table(leader).name(), before, "{:#?}", net.summary());
    goes_on(&mut net, 2000);
}

/// A member reports loads of partitions that others lead, and that it reaches no other member.
#[test]
fn loads_of_partitions_that_another_member_leads_are_not_believed() {
    let (mut net, leader, broken) = three(42);
    let me = net.at(broken).unwrap();
    let load = PartitionLoad {
        bytes: u64::MAX,
        keys: u64::MAX,
        reads: u64::MAX,
        writes: u64::MAX,
        read_bytes: u64::MAX,
        written_bytes: u64::MAX,
        skew: Skew::Halves(MapId(0), vec![7; 64]),
    };
    served_throughout(&mut net, broken, 1000, |net, _| {
        let table = net.table(broken);
        let report = Report {
            member: MemberLoad {
                memory: u64::MAX,
                memory_max: u64::MAX,
                cpu: u16::MAX,
                busy: true,
            },
            partitions: table
                .partitions()
                .map(|(at, _)| (at, load.clone()))
                .collect(),
            moves: Vec::new(),
            unheard: table
                .members
                .iter()
                .map(|m| m.id)
                .chain([MemberId(1)])
                .collect(),
        };
        vec![Message::Loads {
            cluster: table.cluster,
            origin: me,
            report: Box::new(report),
        }]
    });
    let (table, mut own) = (net.table(leader), 0);
    let loads = net.process(leader).agreement.loads().unwrap();
    for (at, told) in loads.partitions().filter(|(_, told)| told.bytes > 0) {
        assert_eq!(table.partition(at).unwrap().primary(), me, "{at}: {told:?}");
        own += 1;
    }
    assert!(own > 0, "the control: what it leads itself is believed");
    assert_eq!((net.leaders(), table.members.len()), (vec![leader], 3));
}

/// Only the coordinator says that it has read a report. A report that another member called read
/// was not sent again, even if it was lost. Then the coordinator took partitions for closed that
/// were served.
#[test]
fn that_reports_were_read_is_believed_of_the_coordinator_alone() {
    for seed in 40..50 {
        let mut net = Net::cluster(seed, 4);
        net.until(2000, Net::healed);
        let (leader, cluster) = (net.leaders()[0], net.table(0).cluster);
        let broken = (leader + 1) % 4;
        net.kill(leader);
        net.loss_percent = 30;
        let open = |net: &Net| {
            net.leaders().first().is_some_and(|leads| {
                let process = net.process(*leads);
                net.table(*leads).members.len() == 3
                    && process.agreement.status(process.lease).closed.is_empty()
            })
        };
        for round in 0.. {
            assert!(round < 600, "seed {seed}: {:#?}", net.summary());
            if round == 200 {
                net.loss_percent = 0;
            }
            if round > 200 && open(&net) {
                break;
            }
            for to in (0..4).filter(|s| *s != broken && *s != leader) {
                net.say(
                    broken,
                    to,
                    Message::OpenedSeen {
                        cluster,
                        sequence: u64::MAX,
                    },
                );
            }
            net.run_ms(10);
        }
        net.until(5000, Net::healed);
    }
}
