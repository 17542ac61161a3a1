//! Checks of votes, proposals, voters, and of silent members (rules 1, 3, 4, 6 and 7).

use super::members::{Fate, Letter, Members, Place, Setup, find, id};
use super::orders::every_course;
use doyen_gossip::Input;
use doyen_gossip::agreement::{AdminRequest, InSyncChange, InSyncRequest, VotersGone};
use doyen_gossip::wire::{Ballot, CommitNotice, Heartbeat, Message, Payload, Proposal};
use doyen_placement::planner::HandOverUrgency;
use doyen_placement::{Epoch, MemberState, Version};
use std::cell::Cell;
use std::rc::Rc;

/// The number of messages of an election whose delays a course chooses.
const CHOSEN_MAX: usize = 14;
/// The least delay of a message between members that are far apart, in milliseconds. The other two
/// constants say by how much delays differ between courses, and how many delays there are.
const FAR: u64 = 55;
const FURTHER: u64 = 15;
const FARTHEST: usize = 5;
/// The additional delay of a late message.
const LATER: u64 = 60;

fn create(map: &str) -> Input {
    let request = AdminRequest::CreateMap {
        name: map.into(),
        keyspace: "default".into(),
    };
    Input::Admin { ticket: 1, request }
}

/// The version that a proposal, its ack or its commit is about.
fn version(letter: &Letter) -> Option<Version> {
    match &letter.message {
        Message::Propose(proposal) => Some(proposal.name.version),
        Message::Ack(ack) => Some(ack.name.version),
        Message::Commit(commit) => Some(commit.name.version),
        Message::Committed(committed) => Some(committed.name.version),
        _ => None,
    }
}

/// The coordinator hears no others, and steps down. Two members that are far apart stand for
/// election in one term; the third one only votes. The messages of the election take more or less
/// time, in every order within a bound.
pub(super) fn two_candidates_of_one_term_are_not_both_elected() -> Result<(), String> {
    every_course(2, |course| {
        let mut m = Members::of(Setup::of(3))?;
        let far = FAR + FURTHER * course.pick(FARTHEST) as u64;
        let (course, mut stands) = (course.clone(), false);
        m.post(move |letter| {
            let travel = if letter.between(2, 3) { far } else { 1 };
            match &letter.message {
                Message::Pong(_) | Message::PreVote(_) if letter.touches(1) => Fate::Lost,
                Message::Admin { .. } if letter.to == 1 => Fate::Lost,
                // No member hears of the others' terms from pings, or of their elections.
                Message::Ping(_) | Message::Pong(_) | Message::ElectionProof(_) if stands => {
                    Fate::Lost
                }
                Message::Ping(_) | Message::Pong(_) => Fate::Arrives,
                Message::PreVote(_)
                | Message::PreVoteAnswer(_)
                | Message::Vote(_)
                | Message::VoteAnswer(..)
                    if course.point() < CHOSEN_MAX =>
                {
                    stands = true;
                    Fate::Late(travel + LATER * course.pick(2) as u64)
                }
                _ => Fate::Late(travel),
            }
        });
        // The elected coordinator has something to publish.
        m.input(2, create("a"));
        m.input(3, create("b"));
        m.run(1500);
        m.verdict()
    })
}

/// A candidate asks for a vote. It would get the vote, but the request takes long. Meanwhile a
/// table is committed that the candidate lacks.
pub(super) fn a_candidate_that_lacks_a_committed_table_loses() -> Result<(), String> {
    let mut m = Members::of(Setup::of(3))?;
    m.post(|letter| match &letter.message {
        Message::Pong(_) if letter.from == 1 => Fate::Lost,
        Message::Admin { .. } | Message::PreVote(_) | Message::Vote(_) if letter.to == 1 => {
            Fate::Lost
        }
        Message::PreVote(_) if letter.from == 2 => Fate::Lost,
        Message::Propose(_) if letter.goes(1, 3) => Fate::Lost,
        // The voter does not hear that the table is committed.
        Message::Commit(_) | Message::Pull { .. } => Fate::Lost,
        Message::Vote(_) => Fate::Waits,
        _ => Fate::Arrives,
    });
    m.input(3, create("b"));
    let asks = |letter: &Letter| letter.goes(3, 2) && matches!(letter.message, Message::Vote(_));
    m.until(2000, "candidate", |m| m.waits(asks))?;
    m.input(1, create("a"));
    m.run(5);
    m.let_go(asks);
    m.run(1000);
    m.verdict()
}

/// A member says that it coordinates a later term, in which no member has voted: by a ping, and by
/// a proposal.
pub(super) fn a_term_without_an_election_is_not_joined() -> Result<(), String> {
    for proposes in [false, true] {
        let mut m = Members::of(Setup::of(3))?;
        let mut table = (*m.table(3)?).clone();
        let committed = table.name();
        (table.term, table.version) = (table.term.next(), table.version.next());
        table.voters = vec![id(3)];
        let (name, payload) = (table.name(), Payload::Whole(table.clone().into()));
        let message = if proposes {
            Message::Propose(Box::new(Proposal {
                name,
                committed,
                commit: None,
                voters: vec![id(1), id(2), id(3)],
                payload,
            }))
        } else {
            Message::Ping(Heartbeat {
                cluster: table.cluster,
                sequence: 1,
                term: table.term,
                coordinator: Some(id(3)),
                accepted: committed,
                committed,
            })
        };
        m.says(3, 2, message);
        let follows = |m: &Members| m.coordinator_of(2) == Some(id(3));
        for _ in 0..20 {
            m.run(1);
            if follows(&m) {
                return Err("rule 1: n2 follows a member that was not elected".into());
            }
        }
        m.verdict()?;
    }
    Ok(())
}

/// A member asks for votes while the coordinator works, with the name of a table that is later than
/// any other.
pub(super) fn a_member_that_asks_for_votes_replaces_no_coordinator() -> Result<(), String> {
    let mut m = Members::of(Setup::of(3))?;
    let voted = Rc::new(Cell::new(false));
    let seen = voted.clone();
    m.post(move |letter| {
        if let Message::VoteAnswer(answer, _) = &letter.message {
            seen.set(seen.get() || answer.granted);
        }
        Fate::Arrives
    });
    let mut accepted = m.table(3)?.name();
    accepted.term = accepted.term.next();
    let term = accepted.term;
    m.says(3, 2, Message::Vote(Ballot { term, accepted }));
    m.run(5);
    if voted.get() {
        return Err("rule 1: n2 votes for another member than the coordinator it hears".into());
    }
    m.verdict()
}

/// A member says that a table is committed which no coordinator has made.
pub(super) fn a_table_that_any_member_hands_out_is_not_installed() -> Result<(), String> {
    let mut m = Members::of(Setup::of(3))?;
    let before = m.table(2)?.name();
    let mut table = (*m.table(3)?).clone();
    table.version = table.version.next();
    table.voters = vec![id(3)];
    let (name, payload) = (table.name(), Payload::Whole(table.clone().into()));
    let ping = Message::Ping(Heartbeat {
        cluster: table.cluster,
        sequence: 1,
        term: table.term,
        coordinator: None,
        accepted: name,
        committed: name,
    });
    m.says(3, 2, ping);
    m.run(2);
    let commit = None;
    let committed = CommitNotice {
        name,
        payload,
        commit,
    };
    m.says(3, 2, Message::Committed(Box::new(committed)));
    m.run(2);
    if m.table(2)?.name() != before {
        return Err("rule 11: n2 acts on a table that no coordinator has made".into());
    }
    m.verdict()
}

/// A proposal of the first coordinator arrives after another one was elected. It arrives at every
/// moment until that one is heard.
pub(super) fn a_late_proposal_of_a_former_term_is_refused() -> Result<(), String> {
    (0..=200).step_by(20).try_for_each(|after| {
        let mut m = Members::of(Setup::of(3))?;
        let (stands, voted) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        let seen = (stands.clone(), voted.clone());
        m.post(move |letter| {
            let (stands, voted) = &seen;
            match &letter.message {
                Message::Pong(_) if letter.from == 1 => Fate::Lost,
                Message::Admin { .. } | Message::PreVote(_) | Message::Vote(_)
                    if letter.to == 1 =>
                {
                    Fate::Lost
                }
                Message::Propose(_) if letter.goes(1, 2) => Fate::Lost,
                Message::Propose(_) => Fate::Waits,
                // The proof of its election is on its way as well.
                Message::ElectionProof(_) if letter.goes(2, 3) => Fate::Waits,
                // No other member learns what the first coordinator has committed.
                Message::Commit(_) | Message::Pull { .. } if letter.touches(1) => Fate::Lost,
                Message::Vote(_) => {
                    stands.set(true);
                    Fate::Arrives
                }
                Message::VoteAnswer(answer, _) => {
                    voted.set(voted.get() || answer.granted);
                    Fate::Arrives
                }
                Message::Ping(_) | Message::Pong(_) | Message::ElectionProof(_)
                    if stands.get() && (letter.touches(1) || letter.goes(2, 3)) =>
                {
                    Fate::Lost
                }
                _ => Fate::Arrives,
            }
        });
        m.input(1, create("a"));
        m.input(2, create("b"));
        m.until(2000, "second coordinator", |m| voted.get() && m.leads(2))?;
        m.run(after);
        m.let_go(|letter| letter.goes(1, 3));
        m.run(5);
        m.let_go(|letter| letter.goes(2, 3));
        m.run(1000);
        m.verdict()
    })
}

/// The cluster grows from two voters to three, and the table reaches each subset of the other
/// members. Once it is in force, its proposer may die: two of three voters are left.
pub(super) fn three_voters_survive_the_death_of_one() -> Result<(), String> {
    for reached in [&[][..], &[2], &[3], &[2, 3]] {
        let mut m = Members::of(Setup::of(2))?;
        let grown = Version(m.table(1)?.version.0 + 2);
        m.post(move |letter| match &letter.message {
            Message::Propose(_)
                if version(letter) == Some(grown) && !reached.contains(&letter.to) =>
            {
                Fate::Lost
            }
            _ => Fate::Arrives,
        });
        m.start(3, &[1, 2], None);
        let votes = |m: &Members| m.table(1).is_ok_and(|t| t.voters.len() == 3);
        let grew = m.until(1000, "table of three voters", votes);
        m.verdict()?;
        match (grew, reached) {
            // A coordinator without acks commits nothing that needs one.
            (Err(_), []) => continue,
            (Err(what), _) => return Err(what),
            (Ok(_), _) => {}
        }
        m.kill(1);
        m.until(
            5000,
            &format!("cluster of the two that are left ({reached:?} had the table)"),
            Members::is_well,
        )?;
        m.verdict()?;
    }
    Ok(())
}

/// A table replaces one voter. It reaches the new voter, but neither the replaced one nor the third
/// voter. These two are then on one side of a cut, and are a majority of the former voters.
pub(super) fn former_voters_must_accept_their_replacement() -> Result<(), String> {
    let mut m = Members::of(Setup {
        voters_max: 3,
        ..Setup::of(4)
    })?;
    let apart = |place| place == 2 || place == 3;
    m.post(move |letter| match &letter.message {
        Message::Propose(_) | Message::Commit(_) | Message::Committed(_) if apart(letter.to) => {
            Fate::Lost
        }
        _ => Fate::Arrives,
    });
    m.input(2, Input::Leave(HandOverUrgency::AtOnce));
    m.run(300);
    m.post(move |letter| {
        if apart(letter.from) == apart(letter.to) {
            Fate::Arrives
        } else {
            Fate::Lost
        }
    });
    m.until(3000, "coordinator of those two", |m| {
        m.leads(2) || m.leads(3)
    })?;
    m.run(2000);
    m.verdict()
}

/// A primary leaves, and does not hear for long that all its partitions are handed over. The
/// proposer of that table answers its pings, while the ack of another voter is late.
pub(super) fn a_proposer_gives_no_lease_against_its_proposal() -> Result<(), String> {
    let mut m = Members::of(Setup::of(3))?;
    let deaf = Rc::new(Cell::new(true));
    let unheard = deaf.clone();
    m.post(move |letter| match &letter.message {
        Message::Ping(_) if letter.goes(3, 2) || (letter.goes(3, 1) && unheard.get()) => Fate::Lost,
        Message::Propose(_) | Message::Commit(_) | Message::Committed(_) if letter.to == 3 => {
            Fate::Lost
        }
        Message::Ack(_) if letter.goes(2, 1) => Fate::Late(300),
        _ => Fate::Arrives,
    });
    m.run(400);
    m.input(3, Input::Leave(HandOverUrgency::AtOnce));
    m.run(3);
    deaf.set(false);
    m.run(1500);
    m.verdict()
}

/// One of two members dies while a third is admitted: the older one and the newcomer form a
/// cluster.
pub(super) fn a_newcomer_is_admitted_without_its_own_vote() -> Result<(), String> {
    let mut m = Members::of(Setup::of(2))?;
    m.kill(2);
    m.start(3, &[1, 2], None);
    m.until(
        5000,
        "cluster of the older one and the newcomer",
        Members::is_well,
    )?;
    m.verdict()
}

/// A fourth member becomes a voter, by a table that does not get through. Another coordinator
/// cannot settle that table, and proposes another set of voters. A third coordinator settles the
/// first set and commits with it. Then the second one is heard again.
pub(super) fn voters_change_only_from_settled_voters() -> Result<(), String> {
    let mut m = Members::of(Setup::of(3))?;
    let grown = Version(m.table(1)?.version.0 + 2);
    m.post(move |letter| match &letter.message {
        Message::Ack(_) if letter.to == 1 && version(letter) >= Some(grown) => Fate::Lost,
        Message::Propose(_) if letter.to == 4 && version(letter) >= Some(grown) => Fate::Lost,
        _ => Fate::Arrives,
    });
    m.start(4, &[1, 2, 3], None);
    let accepted = |m: &Members, place| {
        m.view(place)
            .is_some_and(|v| v.accepted.version == grown && v.accepted.voters.len() == 4)
    };
    m.until(2000, "proposal of four voters", |m| {
        accepted(m, 2) && accepted(m, 3) && m.view(4).is_some()
    })?;

    m.post(|letter| {
        if letter.touches(1) || (letter.from == 2 && version(letter).is_some()) {
            Fate::Lost
        } else {
            Fate::Arrives
        }
    });
    m.until(3000, "second coordinator", |m| {
        m.leads(2)
            && m.view(2)
                .is_some_and(|v| v.accepted.term == v.installed.term.next())
    })?;

    m.post(|letter| match &letter.message {
        _ if letter.touches(2) => Fate::Lost,
        Message::PreVote(_) if letter.from == 3 => Fate::Lost,
        Message::Pull { .. } if letter.from == 3 => Fate::Lost,
        _ if letter.to == 3 && version(letter).is_some() => Fate::Lost,
        _ => Fate::Arrives,
    });
    m.until(5000, "third coordinator's table", |m| {
        m.leads(1) && m.table(1).is_ok_and(|t| t.version > grown)
    })?;

    m.post(|letter| {
        if letter.between(2, 3) {
            Fate::Arrives
        } else {
            Fate::Lost
        }
    });
    m.run(3000);
    m.verdict()
}

/// Whether a member has accepted a table of this version.
fn has_accepted(m: &Members, place: Place, version: Version) -> bool {
    m.view(place).is_some_and(|v| v.accepted.version == version)
}

/// Five members. The second has a proposal of the first that no other member has. Also the version
/// of that proposal.
fn proposed_to_the_second() -> Result<(Members, Version), String> {
    let mut m = Members::of(Setup::of(5))?;
    m.plans_nothing();
    let grown = Version(m.table(1)?.version.0 + 1);
    m.post(|letter| match &letter.message {
        Message::Propose(_) if letter.to != 2 => Fate::Lost,
        Message::Ack(_) => Fate::Lost,
        _ => Fate::Arrives,
    });
    m.input(1, create("a"));
    m.until(500, "proposal", |m| has_accepted(m, 2, grown))?;
    Ok((m, grown))
}

/// The first coordinator dies, and a table of another coordinator with the same version is in
/// force. The member that stored the first one's table hears of it with the next proposal.
pub(super) fn tables_of_one_version_differ_by_their_term() -> Result<(), String> {
    let (mut m, grown) = proposed_to_the_second()?;
    m.kill(1);
    m.post(|letter| match &letter.message {
        Message::PreVote(_) | Message::Vote(_) if letter.touches(2) => Fate::Lost,
        Message::Propose(_) | Message::Commit(_) | Message::Committed(_) if letter.to == 2 => {
            Fate::Lost
        }
        Message::Pull { .. } if letter.from == 2 => Fate::Lost,
        _ => Fate::Arrives,
    });
    m.until(3000, "second coordinator's table", |m| {
        (3..=5).all(|place| m.table(place).is_ok_and(|t| t.version == grown))
    })?;
    m.post(|letter| match &letter.message {
        Message::Commit(_) | Message::Committed(_) if letter.to == 2 => Fate::Lost,
        Message::Pull { .. } if letter.from == 2 => Fate::Lost,
        _ => Fate::Arrives,
    });
    m.input(3, create("b"));
    m.until(1000, "next proposal", |m| has_accepted(m, 2, grown.next()))?;
    m.verdict()
}

/// A coordinator has proposed to itself alone. It is elected again by members that have stored
/// another coordinator's table of that version.
pub(super) fn a_winner_settles_its_own_proposal() -> Result<(), String> {
    let (mut m, grown) = proposed_to_the_second()?;
    let old = |place| place <= 2;
    m.post(move |letter| match &letter.message {
        Message::Pong(_) if letter.from == 1 => Fate::Lost,
        Message::PreVote(_) | Message::Vote(_) if letter.from != 3 || old(letter.to) => Fate::Lost,
        Message::Propose(_) => Fate::Lost,
        Message::Admin { .. } if letter.to == 1 => Fate::Lost,
        _ => Fate::Arrives,
    });
    m.until(3000, "second coordinator", |m| m.leads(3))?;
    m.input(3, create("b"));
    m.until(1000, "proposal to itself", |m| has_accepted(m, 3, grown))?;
    m.post(|_| Fate::Lost);
    m.until(3000, "end of its term", |m| {
        (1..=5).all(|place| !m.leads(place))
    })?;
    m.post(move |letter| match &letter.message {
        Message::PreVote(_) | Message::Vote(_) if letter.from != 3 || !old(letter.to) => Fate::Lost,
        Message::Propose(_) => Fate::Lost,
        _ => Fate::Arrives,
    });
    m.until(5000, "second term", |m| m.leads(3))?;
    m.run(20);
    m.verdict()?;
    m.post(|_| Fate::Arrives);
    m.until(5000, "cluster of all", Members::is_well)?;
    m.verdict()
}

/// Two of five members are dead. The first had committed a table with them, and is suspended now.
/// An operator says that the two are dead. The other two members do not know that table, and must
/// wait for the first.
pub(super) fn an_operators_word_needs_all_other_members() -> Result<(), String> {
    let mut m = Members::of(Setup {
        backups: 2,
        ..Setup::of(5)
    })?;
    let before = m.table(1)?.version;
    let unaware = |place| place == 2 || place == 3;
    m.post(move |letter| match &letter.message {
        Message::Propose(_) | Message::Commit(_) | Message::Committed(_) if unaware(letter.to) => {
            Fate::Lost
        }
        Message::Pull { .. } if unaware(letter.from) => Fate::Lost,
        _ => Fate::Arrives,
    });
    m.input(1, create("a"));
    m.until(500, "table", |m| {
        m.table(1).is_ok_and(|t| t.version > before)
    })?;
    m.sleeps(1);
    m.kill(4);
    m.kill(5);
    m.post(|_| Fate::Arrives);
    m.run(1500);
    m.input(
        2,
        Input::Recover {
            dead: vec!["n4".into(), "n5".into()],
            gone: VotersGone { gone: 2, voters: 5 },
            ticket: 1,
        },
    );
    m.run(3000);
    m.verdict()?;
    m.wakes(1);
    m.until(8000, "cluster of those who are left", Members::is_well)?;
    m.verdict()
}

/// One member gets no answers from the coordinator, which works all the same.
pub(super) fn a_working_coordinator_is_not_replaced() -> Result<(), String> {
    let mut m = Members::of(Setup::of(3))?;
    let term = m.table(2)?.term;
    m.post(|letter| {
        if letter.goes(1, 3) && matches!(letter.message, Message::Pong(_)) {
            Fate::Lost
        } else {
            Fate::Arrives
        }
    });
    m.run(3000);
    m.verdict()?;
    let led = (m.coordinators(), m.table(2)?.term);
    if led == (vec![1], term) {
        Ok(())
    } else {
        Err(format!(
            "a coordinator that works was pre-empted: {}",
            m.summary()
        ))
    }
}

/// The coordinator gets no answers to its pings at all. All other members hear it and each other.
pub(super) fn a_coordinator_that_hears_no_member_expels_none() -> Result<(), String> {
    let mut m = Members::of(Setup {
        backups: 2,
        ..Setup::of(3)
    })?;
    m.post(|letter| {
        if letter.to == 1 && matches!(letter.message, Message::Pong(_)) {
            Fate::Lost
        } else {
            Fate::Arrives
        }
    });
    m.run(2000);
    m.post(|_| Fate::Arrives);
    no_member_is_expelled(&mut m)
}

/// A coordinator takes a member for silent, and dies before the table that says so is committed.
/// The new coordinator is that very member. (It stayed silent while it coordinated, so its data was
/// never copied, and nothing moved to it.)
pub(super) fn a_coordinator_is_not_silent() -> Result<(), String> {
    let mut m = Members::of(Setup {
        backups: 0,
        ..Setup::of(4)
    })?;
    m.post(|letter| match &letter.message {
        Message::Ping(_) if letter.goes(1, 3) => Fate::Lost,
        Message::Ack(_) => Fate::Lost,
        _ => Fate::Arrives,
    });
    let held = |m: &Members, place| {
        m.view(place).is_some_and(|v| {
            v.accepted
                .member(id(3))
                .is_some_and(|m| m.state == MemberState::Silent)
        })
    };
    m.until(2000, "table in which n3 is silent", |m| {
        (2..=4).all(|place| held(m, place))
    })?;
    m.kill(1);
    m.post(|letter| {
        if letter.from != 3 && matches!(letter.message, Message::PreVote(_)) {
            Fate::Lost
        } else {
            Fate::Arrives
        }
    });
    m.until(3000, "coordinator", |m| m.leads(3))?;
    m.until(3000, "table in which n3, which coordinates, lives", |m| {
        m.table(3).is_ok_and(|t| t.version > Version(2)) && !held(m, 3)
    })?;
    m.verdict()
}

/// Five pings to a member are lost. The sixth is answered just when the machine that all of them
/// run on is suspended.
pub(super) fn a_suspended_coordinator_expels_no_member() -> Result<(), String> {
    let mut m = Members::of(Setup::of(3))?;
    let pings = Rc::new(Cell::new(0));
    let sent = pings.clone();
    m.post(move |letter| match &letter.message {
        Message::Ping(_) if letter.goes(1, 3) => {
            sent.set(sent.get() + 1);
            if sent.get() <= 5 {
                Fate::Lost
            } else {
                Fate::Arrives
            }
        }
        _ => Fate::Arrives,
    });
    m.until(2000, "sixth ping", |_| pings.get() == 6)?;
    (1..=3).for_each(|place| m.sleeps(place));
    m.run(10_000);
    for place in 1..=3 {
        m.wakes(place);
        m.run(3);
    }
    no_member_is_expelled(&mut m)
}

fn no_member_is_expelled(m: &mut Members) -> Result<(), String> {
    let lives = |m: &Members| (1..=3).all(|place| m.lives(place));
    m.until(5000, "cluster of all", |m| m.is_well() || !lives(m))?;
    m.verdict()?;
    if lives(m) {
        Ok(())
    } else {
        Err(format!(
            "a member that answers was expelled: {}",
            m.summary()
        ))
    }
}

/// A copy is dropped only if its primary asks for that in the present epoch: not if another member
/// asks, and not if the primary asked in an earlier epoch.
pub(super) fn only_the_primary_asks() -> Result<(), String> {
    for stale in [false, true] {
        let mut m = Members::of(Setup::of(3))?;
        let table = m.table(1)?;
        let partition = find(&table, |p| {
            p.primary() == id(2) && p.in_sync().any(|m| m == id(3))
        })?;
        let now = table.partition(partition).map_or(Epoch(0), |p| p.epoch);
        let (from, epoch) = if stale {
            (2, Epoch(now.0.wrapping_sub(1)))
        } else {
            (3, now)
        };
        let change = InSyncChange::Remove(id(3));
        m.asks(
            from,
            1,
            InSyncRequest {
                partition,
                epoch,
                change,
            },
        );
        m.run(500);
        m.verdict()?;
        let kept = m
            .table(1)?
            .partition(partition)
            .is_some_and(|p| p.in_sync().any(|m| m == id(3)));
        if !kept {
            return Err(format!(
                "I14: n3 was dropped from {partition}, for which its primary had not asked"
            ));
        }
    }
    Ok(())
}
