//! A member that makes up elections, votes and tables.

use super::*;
use crate::agreement::AdminReply;
use crate::signing::{Signature, SigningKey, SigningSeed, Vote};
use crate::time::Time;
use crate::wire::ElectionProof;
use doyen_placement::ClusterId;

/// The key of a process in `Net`.
fn key(id: MemberId) -> SigningKey {
    SigningKey::new(&SigningSeed::of_test(id.0))
}

/// An election proof with the true signatures of these members.
fn elected(cluster: ClusterId, term: Term, candidate: MemberId, by: &[MemberId]) -> ElectionProof {
    let vote = Vote {
        cluster,
        term,
        candidate,
    };
    let mut votes: Vec<(MemberId, Option<Signature>)> =
        by.iter().map(|v| (*v, Some(key(*v).sign(&vote)))).collect();
    votes.sort_unstable_by_key(|(voter, _)| *voter);
    ElectionProof {
        cluster,
        term,
        candidate,
        votes,
    }
}

/// Everything that a member can say to be followed in a term.
fn claims(table: &Table, term: Term, me: MemberId) -> Vec<Message> {
    let next = made_up(table, term);
    let heartbeat = Heartbeat {
        cluster: table.cluster,
        sequence: u64::MAX,
        term,
        coordinator: Some(me),
        accepted: next.name(),
        committed: next.name(),
    };
    let commit = Commit {
        name: next.name(),
        predecessor: table.name(),
        ages: Vec::new(),
        seals: Vec::new(),
    };
    vec![
        Message::Ping(heartbeat),
        propose(&next, table.name()),
        Message::Commit(Box::new(commit)),
        Message::Refuse {
            name: table.name(),
            term,
            coordinator: Some(me),
            whole: false,
        },
        committed(&next),
    ]
}

/// A table in which one member alone votes, which follows another table.
fn made_up(table: &Table, term: Term) -> Table {
    let mut next = table.clone();
    (next.term, next.version) = (term, next.version.next());
    next.voters.truncate(1);
    assert_eq!(next.validate(), Ok(()));
    next
}

fn committed(table: &Table) -> Message {
    let (name, payload) = (table.name(), Payload::Whole(table.clone().into()));
    Message::Committed(Box::new(CommitNotice {
        name,
        payload,
        commit: None,
    }))
}

fn coordinator(net: &Net, slot: Slot) -> Option<MemberId> {
    let status = net.process(slot).agreement.status(Time::ZERO);
    status.coordinator
}

/// Four members whose first coordinator has died and was replaced, the faulty member, and the
/// election proof of the present coordinator.
fn four(seed: u64) -> (Net, Slot, ElectionProof) {
    let mut net = Net::cluster(seed, 4);
    net.until(3000, Net::healed);
    let first = net.leaders()[0];
    net.kill(first);
    net.until(5000, |net| {
        net.agreed().is_some_and(|t| t.members.len() == 3)
    });
    net.start(first);
    net.until(10_000, |net| net.healed() && keyed(net));
    let leader = net.leaders()[0];
    let broken = (leader + 1) % 4;
    let proof = proof(&mut net, leader, broken);
    (net, broken, proof)
}

/// The election proof of a coordinator, as it answers a member that asks. Its term may be later
/// than that of the last table.
pub(in crate::agreement) fn proof(net: &mut Net, leader: Slot, asks: Slot) -> ElectionProof {
    let (cluster, of) = (net.table(leader).cluster, net.table(leader).term);
    let mut answers = (0..8).flat_map(|later| {
        let term = Term(of.0 + later);
        net.ask(leader, asks, Message::AskElectionProof { cluster, term })
    });
    match answers.next() {
        Some(Message::ElectionProof(proof)) => *proof,
        other => panic!("the coordinator was elected: {other:?}"),
    }
}

fn keyed(net: &Net) -> bool {
    net.agreed()
        .is_some_and(|t| t.members.iter().all(|m| m.vote_key.is_some()))
}

/// A way to make up an election proof for a term: from the election proof of the present
/// coordinator and the members, the faulty one first.
type Lie = fn(&ElectionProof, Term, &[MemberId]) -> Option<ElectionProof>;

const LIES: [(&str, Lie); 11] = [
    ("no election proof", |_, _, _| None),
    ("no vote", |real, term, ids| {
        Some(elected(real.cluster, term, ids[0], &[]))
    }),
    ("its own vote", |real, term, ids| {
        Some(elected(real.cluster, term, ids[0], &ids[..1]))
    }),
    ("its own vote, many times", |real, term, ids| {
        Some(elected(real.cluster, term, ids[0], &[ids[0]; 4]))
    }),
    ("unsigned votes", |real, term, ids| {
        let mut proof = elected(real.cluster, term, ids[0], ids);
        let others = proof.votes.iter_mut().filter(|(v, _)| *v != ids[0]);
        others.for_each(|(_, signature)| *signature = None);
        Some(proof)
    }),
    ("its own signature as that of all", |real, term, ids| {
        let mut proof = elected(real.cluster, term, ids[0], ids);
        let own = key(ids[0]).sign(&proof.vote());
        (proof.votes.iter_mut()).for_each(|(_, signature)| *signature = Some(own));
        Some(proof)
    }),
    ("signatures made up", |real, term, ids| {
        let mut proof = elected(real.cluster, term, ids[0], ids);
        let made_up = Signature::new([[7; 32]; 2]);
        let others = proof.votes.iter_mut().filter(|(v, _)| *v != ids[0]);
        others.for_each(|(_, signature)| *signature = Some(made_up));
        Some(proof)
    }),
    ("votes of another term", |real, term, ids| {
        let proof = elected(real.cluster, Term(term.0 - 1), ids[0], ids);
        Some(ElectionProof { term, ..proof })
    }),
    ("votes of another cluster", |real, term, ids| {
        let proof = elected(ClusterId(real.cluster.0 ^ 1), term, ids[0], ids);
        let cluster = real.cluster;
        Some(ElectionProof { cluster, ..proof })
    }),
    ("votes for another candidate", |real, term, ids| {
        let proof = elected(real.cluster, term, ids[1], ids);
        let candidate = ids[0];
        Some(ElectionProof { candidate, ..proof })
    }),
    ("ten thousand votes", |real, term, ids| {
        let mut proof = elected(real.cluster, term, ids[0], ids);
        let signature = proof.votes[0].1;
        let more = (0..10_000).map(|n| (MemberId((n + 1) << 40), signature));
        proof.votes.extend(more);
        Some(proof)
    }),
];

/// If keys came after the members, each founder and each newcomer would cost one more table, and
/// its vote would count unsigned until then.
#[test]
fn the_first_table_and_the_table_that_admits_a_member_have_the_keys() {
    let mut net = Net::new(55, vec![(0..5).collect(); 5]);
    let look = |net: &Net| {
        for view in net.processes.values().filter_map(|p| p.view.as_ref()) {
            for member in &view.accepted.members {
                let key = SigningSeed::of_test(member.id.0).vote_key();
                assert_eq!(member.vote_key, Some(key), "{:?}", view.accepted.name());
            }
        }
    };
    let grows = |net: &mut Net, count: usize| {
        net.until(10_000, |net| {
            look(net);
            net.healed() && net.agreed().is_some_and(|t| t.members.len() == count)
        });
    };
    (0..5).for_each(|slot| _ = net.start(slot));
    grows(&mut net, 5);
    net.kill(1);
    grows(&mut net, 4);
    net.start(1);
    grows(&mut net, 5);
}

/// A member announced a term in which no member had voted, and the others followed it.
#[test]
fn no_member_makes_up_an_election() {
    let (mut net, broken, real) = four(51);
    let leader = net.leaders()[0];
    let me = net.at(broken).unwrap();
    let others: Vec<Slot> = (0..4).filter(|s| *s != broken).collect();
    let ids: Vec<MemberId> = [broken]
        .iter()
        .chain(&others)
        .map(|slot| net.at(*slot).unwrap())
        .collect();
    let mut term = Term(net.table(broken).term.0 + 1000);
    for (lie, proof) in LIES {
        for _ in 0..30 {
            term = term.next();
            let table = net.table(broken);
            let mut said: Vec<Message> = proof(&real, term, &ids)
                .into_iter()
                .map(|m| Message::ElectionProof(Box::new(m)))
                .collect();
            said.extend(claims(&table, term, me));
            // The election proof of the present coordinator, by another member.
            said.push(Message::ElectionProof(Box::new(real.clone())));
            for to in &others {
                (said.iter()).for_each(|m| net.say(broken, *to, m.clone()));
            }
            net.run_ms(10);
            for to in &others {
                assert_ne!(coordinator(&net, *to), Some(me), "{lie}: n{to} follows it");
                let view = net.process(*to).view.as_ref().unwrap();
                assert!(view.accepted.voters.len() == 4, "{lie}: n{to} stored it");
                assert!(net.holds_lease(*to), "{lie}: n{to} may not serve");
            }
        }
        assert_eq!(net.leaders(), [leader], "{lie}");
    }
    goes_on(&mut net, 3000);
}

/// The control: with true votes, the same member is followed at once. So the signatures make the
/// difference. Half of four need the oldest.
#[test]
fn a_member_with_the_votes_of_a_majority_is_followed() {
    let (mut net, broken, real) = four(52);
    let me = net.at(broken).unwrap();
    let table = net.table(broken);
    let oldest = table.voters[0];
    let younger: Vec<MemberId> = table.voters[1..].to_vec();
    let others: Vec<Slot> = (0..4).filter(|s| *s != broken).collect();
    let mut term = Term(table.term.0 + 10);
    for (voters, enough) in [
        (&younger[..1], false),
        (&younger[..2], false),
        (&[oldest][..], false),
        (&[oldest, younger[0]][..], true),
        (&younger[..], true),
        (&table.voters[..], true),
    ] {
        term = Term(term.0 + 10);
        let proof = elected(real.cluster, term, me, voters);
        for to in &others {
            let answers = net.ask(*to, broken, Message::ElectionProof(Box::new(proof.clone())));
            let follows = coordinator(&net, *to) == Some(me);
            assert_eq!((follows, answers), (enough, vec![]), "n{to}, {voters:?}");
        }
    }
    // It coordinates nothing, so it is given up.
    goes_on(&mut net, 5000);
}

/// A member that was asked for a table handed out one that no coordinator had made, and that said
/// that the others are the cluster no more.
#[test]
fn a_table_that_another_member_than_the_coordinator_calls_committed_is_not_installed() {
    let (mut net, leader, broken) = three(53);
    let before = net.table(leader);
    served_throughout(&mut net, broken, 1500, |net, _| {
        let table = net.table(broken);
        let next = made_up(&table, table.term);
        let mut alone = next.clone();
        alone.members.retain(|m| m.id == table.voters[0]);
        alone.keyspaces.clear();
        let says = |name| {
            Message::Ping(Heartbeat {
                cluster: table.cluster,
                sequence: u64::MAX,
                term: table.term,
                coordinator: None,
                accepted: name,
                committed: name,
            })
        };
        let names = [next.name(), alone.name()].map(says);
        names
            .into_iter()
            .chain([&next, &alone].map(committed))
            .collect()
    });
    assert_eq!(net.leaders(), [leader]);
    for slot in 0..3 {
        assert_eq!(net.table(slot).name(), before.name(), "n{slot}");
    }
    // The control: a member that missed a table gets it from the coordinator.
    let behind = others(broken).find(|s| *s != leader).unwrap();
    (0..3)
        .filter(|s| *s != behind)
        .for_each(|s| net.cut(s, behind));
    let request = AdminRequest::CreateMap {
        name: "missed".into(),
        keyspace: "default".into(),
    };
    net.input(leader, Input::Admin { ticket: 7, request });
    let done = |net: &Net| {
        let mut replies = net.process(leader).replies.iter();
        replies.any(|(ticket, reply)| *ticket == 7 && matches!(reply, AdminReply::Done(_)))
    };
    net.until(300, done);
    assert!(net.table(behind).map_named("missed").is_none());
    net.cuts.clear();
    net.until(500, |net| net.table(behind).map_named("missed").is_some());
    goes_on(&mut net, 2000);
}

/// A member asked for votes while the coordinator worked, in a later term and with the name of a
/// later table than any other. It got them, and coordinated.
#[test]
fn a_voter_that_hears_a_coordinator_votes_for_no_other() {
    let (mut net, leader, broken) = three(54);
    let voter = others(broken).find(|s| *s != leader).unwrap();
    let cluster = net.table(leader).cluster;
    let ballot = |net: &Net, ahead: u64| {
        let name = net.table(broken).name();
        let term = Term(name.term.0 + ahead);
        let accepted = TableName { term, ..name };
        Ballot { term, accepted }
    };
    let refused = |answers: &[Message]| matches!(answers, [Message::VoteAnswer(answer, None), ..] if !answer.granted);
    let asked = ballot(&net, 5);
    let answers = net.ask(voter, broken, Message::Vote(asked));
    assert!(refused(&answers), "{answers:?}");
    // The control: the coordinator itself stands again, above the term that it was told.
    let answers = net.ask(voter, leader, Message::Vote(asked));
    let [Message::VoteAnswer(answer, Some(signature))] = answers[..] else {
        panic!("{answers:?}");
    };
    let (voted, candidate) = (net.at(voter).unwrap(), net.at(leader).unwrap());
    let vote = Vote {
        cluster,
        term: asked.term,
        candidate,
    };
    assert!(answer.granted && signature.is_of(&key(voted).vote_key(), &vote));
    // Before it has won, no other member gets a vote either.
    let later = ballot(&net, 6);
    let answers = net.ask(voter, broken, Message::Vote(later));
    assert!(refused(&answers), "{answers:?}");
    // Nor does the coordinator vote for another member.
    let answers = net.ask(leader, broken, Message::Vote(later));
    assert!(refused(&answers), "{answers:?}");
    goes_on(&mut net, 3000);
}

/// The coordinator was elected again, in a later term, by voters that a member does not know. The
/// member followed it in the former term, and could neither join the later one nor notice that it
/// knew no coordinator.
#[test]
fn a_coordinator_that_names_a_later_term_without_proof_is_not_followed_in_the_former_one() {
    let (mut net, leader, broken) = three(57);
    let follower = others(broken).find(|s| *s != leader).unwrap();
    let (id, table) = (net.at(leader).unwrap(), net.table(leader));
    let term = Term(table.term.0 + 10);
    let ping = Message::Ping(Heartbeat {
        cluster: table.cluster,
        sequence: 1,
        term,
        coordinator: Some(id),
        accepted: table.name(),
        committed: table.name(),
    });
    assert_eq!(coordinator(&net, follower), Some(id));
    let answers = net.ask(follower, leader, ping);
    assert!(matches!(answers[..], [Message::AskElectionProof { term: of, .. }] if of == term));
    assert_eq!(coordinator(&net, follower), None);
    // The control: the proof.
    let proof = elected(table.cluster, term, id, &table.voters);
    net.ask(follower, leader, Message::ElectionProof(Box::new(proof)));
    assert_eq!(coordinator(&net, follower), Some(id));
    goes_on(&mut net, 5000);
}

/// A majority of the voters dies, and an operator lets the rest go on. The members without a vote
/// cannot check that, and follow after they have known no coordinator for a while.
#[test]
fn members_without_a_vote_follow_a_coordinator_that_an_operator_made() {
    let mut net = Net::cluster(56, 9);
    net.until(5000, Net::healed);
    let table = net.table(0);
    for voter in &table.voters[..4] {
        let slot = net.processes[voter].slot;
        net.kill(slot);
    }
    net.run_ms(1500);
    let (slot, dead) = net.stuck().expect("no majority of the voters is left");
    net.recover(slot, dead);
    net.until(12_000, Net::healed);
    assert_eq!(net.table(slot).members.len(), 5);
}
