//! Checks of votes, proposals and voters, and of who is heard (rules 1, 3, 4, 6 and 7).

use super::members::{Fate, Letter, Members, Place, Setup, find, id};
use super::orders::every_course;
use doyen_gossip::Input;
use doyen_gossip::agreement::{AdminRequest, InSyncChange, InSyncRequest};
use doyen_gossip::wire::Message;
use doyen_placement::planner::Pace;
use doyen_placement::{Epoch, MemberState, Version};
use std::cell::Cell;
use std::rc::Rc;

/// Letters of an election of which a course chooses how long they take.
const CHOSEN_MAX: usize = 14;
/// How long a letter takes at least between members that are far from each other, in milliseconds;
/// by how much this differs between courses, and how many ways there are.
const FAR: u64 = 55;
const FURTHER: u64 = 15;
const FARTHEST: usize = 5;
/// And how much longer one takes that is late.
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

/// Two that are far from each other find the coordinator silent, which still hears them, and stand
/// in one term. The letters of their election take more or less time, in every order of a bound.
pub(super) fn two_stand_at_once() -> Result<(), String> {
    every_course(2, |course| {
        let mut m = Members::of(Setup::of(3))?;
        let far = FAR + FURTHER * course.pick(FARTHEST) as u64;
        let (course, mut stands) = (course.clone(), false);
        m.post(move |letter| {
            let travel = if letter.between(2, 3) { far } else { 1 };
            match &letter.message {
                Message::Pong(_) if letter.from == 1 => Fate::Lost,
                Message::Admin { .. } if letter.to == 1 => Fate::Lost,
                // Nor do they hear of each other's terms by the way.
                Message::Ping(_) | Message::Pong(_) if stands => Fate::Lost,
                Message::Ping(_) | Message::Pong(_) => Fate::Arrives,
                Message::PreVote(_)
                | Message::PreVoteAnswer(_)
                | Message::Vote(_)
                | Message::VoteAnswer(_)
                    if course.point() < CHOSEN_MAX =>
                {
                    stands = true;
                    Fate::Late(travel + LATER * course.pick(2) as u64)
                }
                _ => Fate::Late(travel),
            }
        });
        // Whoever coordinates has something to publish.
        m.input(2, create("a"));
        m.input(3, create("b"));
        m.run(1500);
        m.verdict()
    })
}

/// A member that would be voted for asks for a vote, and that takes so long that a table is
/// committed meanwhile which it does not have.
pub(super) fn a_candidate_lacks_what_is_committed_by_then() -> Result<(), String> {
    let mut m = Members::of(Setup::of(3))?;
    m.post(|letter| match &letter.message {
        Message::Pong(_) if letter.from == 1 => Fate::Lost,
        Message::Admin { .. } | Message::PreVote(_) | Message::Vote(_) if letter.to == 1 => {
            Fate::Lost
        }
        Message::PreVote(_) if letter.from == 2 => Fate::Lost,
        Message::Propose(_) if letter.goes(1, 3) => Fate::Lost,
        // The voter does not hear that it is committed.
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

/// A proposal of the first coordinator arrives when another one has been elected, at every moment
/// until that one is heard.
pub(super) fn a_proposal_of_a_former_term_comes_late() -> Result<(), String> {
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
                Message::Vote(_) => {
                    stands.set(true);
                    Fate::Arrives
                }
                Message::VoteAnswer(answer) => {
                    voted.set(voted.get() || answer.granted);
                    Fate::Arrives
                }
                Message::Ping(_) | Message::Pong(_)
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

/// The cluster grows from two voters to three, and that table reaches each subset of the others.
/// Once it is in force, whoever made it may die: two of three voters are left.
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
            // Who has nobody's ack commits nothing that needs one.
            (Err(_), []) => continue,
            (Err(what), _) => return Err(what),
            (Ok(_), _) => {}
        }
        m.kill(1);
        m.until(
            5000,
            &format!("cluster of the two that are left, of which {reached:?} had the table"),
            Members::is_well,
        )?;
        m.verdict()?;
    }
    Ok(())
}

/// A voter is replaced by a table that reaches the one who takes its place and neither it nor the
/// third one; then these two are on one side of a cut, a majority of those that voted before.
pub(super) fn those_who_voted_before_have_their_say() -> Result<(), String> {
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
    m.input(2, Input::Leave(Pace::AtOnce));
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

/// A primary leaves, and does not hear for long that everything of it is handed over. Whoever
/// proposed that answers its pings while the ack of another voter takes its time.
pub(super) fn who_proposes_gives_no_lease_against_it() -> Result<(), String> {
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
    m.input(3, Input::Leave(Pace::AtOnce));
    m.run(3);
    deaf.set(false);
    m.run(1500);
    m.verdict()
}

/// One of two dies while a third is let in: the older one and the newcomer are a cluster.
pub(super) fn who_joins_needs_no_vote_of_its_own() -> Result<(), String> {
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

/// A fourth becomes a voter, by a table that does not get through; a coordinator that could not
/// settle that proposes another set of voters; a third one settles the first set and commits by it;
/// and then the second one is heard again.
pub(super) fn voters_change_from_settled_ones_only() -> Result<(), String> {
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

/// Five, of which the second has a proposal of the first that nobody else has; and the version of
/// that.
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

/// The first coordinator dies, another one's table of the same version is in force, and who has
/// stored the first one's hears of that by the next proposal.
pub(super) fn what_is_in_force_has_a_name() -> Result<(), String> {
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

/// A coordinator has proposed to nobody but itself, and is elected again by those who have stored
/// another one's table of that version.
pub(super) fn who_wins_counts_what_it_proposed() -> Result<(), String> {
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

/// Two of five are dead, with which the first one, which stands still, has committed a table. An
/// operator says that they are; the two others do not know of that table, and must wait for the
/// first one.
pub(super) fn an_operator_s_word_needs_all_others() -> Result<(), String> {
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
            ticket: 1,
        },
    );
    m.run(3000);
    m.verdict()?;
    m.wakes(1);
    m.until(8000, "cluster of those who are left", Members::is_well)?;
    m.verdict()
}

/// One member does not get answers of the coordinator, which works all the same.
pub(super) fn who_works_stays_coordinator() -> Result<(), String> {
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

/// The coordinator does not get answers to its pings, of nobody. All others hear it, and each
/// other.
pub(super) fn who_hears_nobody_expels_nobody() -> Result<(), String> {
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
    nobody_is_expelled(&mut m)
}

/// A coordinator holds a member for silent, and is gone before that table is committed; who is
/// elected with it is that member. (It was silent for as long as it coordinated: what it held was
/// never copied, and nothing moved to it.)
pub(super) fn who_coordinates_is_not_silent() -> Result<(), String> {
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

/// Five pings to a member are lost, and the sixth is answered just when the machine that all of
/// them run on is suspended.
pub(super) fn who_slept_expels_nobody() -> Result<(), String> {
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
    nobody_is_expelled(&mut m)
}

fn nobody_is_expelled(m: &mut Members) -> Result<(), String> {
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

/// A copy is dropped only if its primary asks for it, in its epoch: not if somebody else does, nor
/// if the primary did in another one.
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
