//! Checks of leases, of the wait of a new primary, and of seals (rules 8 to 10): no two members
//! serve a partition at the same time.
//!
//! In most of them, a member is cut off in part: it still leads by the answers of some voters,
//! while others take it for dead.

use super::members::{Fate, Letter, Members, Place, Setup, find, id};
use doyen_gossip::Input;
use doyen_gossip::agreement::AdminRequest;
use doyen_gossip::wire::Message;
use doyen_placement::planner::{HandOverUrgency, NewKeyspace};
use doyen_placement::{Division, Eviction, Mode, OnLoss, Partition, Version};
use std::cell::Cell;
use std::rc::Rc;

fn is_ping(letter: &Letter, from: Place, to: Place) -> bool {
    letter.goes(from, to) && matches!(letter.message, Message::Ping(_))
}

/// Whether the message tells its receiver of a table.
fn tells(letter: &Letter) -> bool {
    matches!(
        letter.message,
        Message::Propose(_) | Message::Commit(_) | Message::Committed(_)
    )
}

fn version(letter: &Letter) -> Option<Version> {
    match &letter.message {
        Message::Propose(proposal) => Some(proposal.name.version),
        Message::Commit(commit) => Some(commit.name.version),
        Message::Committed(committed) => Some(committed.name.version),
        _ => None,
    }
}

/// Five members. The three oldest vote.
fn five(backups: u8) -> Result<Members, String> {
    let mut m = Members::of(Setup {
        voters_max: 3,
        backups,
        ..Setup::of(5)
    })?;
    m.plans_nothing();
    Ok(m)
}

/// Whether these two are the primary and the first backup of a partition.
fn led_by(partition: &Partition, first: Place, second: Place) -> bool {
    partition.in_sync().take(2).eq([id(first), id(second)])
}

/// Of the two members that do not vote: the primary of a partition, and its backup.
fn pair(m: &Members) -> Result<(Place, Place), String> {
    let table = m.table(1)?;
    if find(&table, |p| led_by(p, 4, 5)).is_ok() {
        return Ok((4, 5));
    }
    find(&table, |p| led_by(p, 5, 4)).map(|_| (5, 4))
}

/// Answers to a primary are late, and then it is cut off.
pub(super) fn a_lease_counts_from_the_ping() -> Result<(), String> {
    let mut m = Members::of(Setup::of(3))?;
    m.post(|letter| {
        if letter.to == 3 && matches!(letter.message, Message::Pong(_)) {
            Fate::Late(400)
        } else {
            Fate::Arrives
        }
    });
    m.run(300);
    m.post(|letter| {
        if letter.touches(3) {
            Fate::Lost
        } else {
            Fate::Arrives
        }
    });
    m.run(2000);
    m.verdict()
}

/// A primary still leads by its lease when its successor is taken for dead, too. What is known of
/// the successor's lease says nothing of the first one's.
pub(super) fn a_short_tenure_does_not_hide_the_one_before() -> Result<(), String> {
    (0..=300).step_by(50).try_for_each(a_successor_is_gone)
}

/// The successor is cut off this many milliseconds after the coordinator has stopped hearing the
/// first.
fn a_successor_is_gone(after: u64) -> Result<(), String> {
    let mut m = five(2)?;
    let (first, second) = pair(&m)?;
    // While another voter does not answer the second one, it asks the coordinator.
    m.post(move |letter| {
        if is_ping(letter, second, 2) {
            Fate::Lost
        } else {
            Fate::Arrives
        }
    });
    m.run(500);
    let cut = Rc::new(Cell::new(false));
    let is_cut = cut.clone();
    m.post(move |letter| {
        let deaf = is_ping(letter, 1, first) || (letter.to == first && tells(letter));
        let gone = letter.touches(second) && (is_cut.get() || tells(letter));
        if deaf || gone {
            Fate::Lost
        } else {
            Fate::Arrives
        }
    });
    m.run(after);
    cut.set(true);
    m.run(2000);
    m.verdict()?;
    if m.table(1)?.members.len() == 3 {
        Ok(())
    } else {
        Err(format!(
            "the check did not reach its situation: {}",
            m.summary()
        ))
    }
}

/// A keyspace is created, and one member does not hear of it. Then the first primary of a partition
/// in it is taken for dead, and that member is the next primary.
pub(super) fn a_member_that_missed_a_table_waits_for_every_lease() -> Result<(), String> {
    let mut m = five(1)?;
    let made = m.table(1)?.version.next();
    m.post(move |letter| {
        let missed = letter.to == 5 && tells(letter) && version(letter) == Some(made);
        if missed || (letter.from == 5 && matches!(letter.message, Message::Pull { .. })) {
            Fate::Lost
        } else {
            Fate::Arrives
        }
    });
    let mode = Mode::Fixed { partitions: 64 };
    let wanted = NewKeyspace {
        name: "other".into(),
        mode,
        division: Division::Slots,
        backups: 1,
        min_in_sync: 1,
        on_loss: OnLoss::Wait,
        default_ttl_ms: None,
        eviction: Eviction::None,
        ordered: false,
        rules: Vec::new(),
        durability: None,
    };
    m.input(
        1,
        Input::Admin {
            ticket: 1,
            request: AdminRequest::CreateKeyspace(wanted),
        },
    );
    m.until(500, "keyspace", |m| {
        m.table(4).is_ok_and(|t| t.keyspaces.len() == 2)
    })?;
    let table = m.table(4)?;
    if !table.keyspaces[1]
        .partitions
        .iter()
        .any(|p| led_by(p, 4, 5))
    {
        return Err("the check needs a partition that the table does not have".into());
    }
    m.run(500);
    m.post(move |letter| {
        let deaf = is_ping(letter, 1, 4) || (letter.to == 4 && tells(letter));
        let missed = letter.to == 5 && tells(letter) && version(letter) == Some(made);
        if deaf || missed {
            Fate::Lost
        } else {
            Fate::Arrives
        }
    });
    m.until(2000, "table without n4", |m| {
        m.table(5)
            .is_ok_and(|t| t.keyspaces.len() == 2 && t.member(id(4)).is_none())
    })?;
    m.run(1500);
    m.verdict()
}

/// A voter is replaced. A primary leads by the answers of the former voters, and a majority of the
/// present voters never answered it.
pub(super) fn new_voters_know_nothing_of_leases_before() -> Result<(), String> {
    (0..=300)
        .step_by(50)
        .try_for_each(|after| a_voter_is_replaced(after, false))
}

/// The same, with a primary that has accepted the table with the present voters, but does not know
/// that it is in force.
pub(super) fn former_voters_give_no_lease() -> Result<(), String> {
    (0..=300)
        .step_by(50)
        .try_for_each(|after| a_voter_is_replaced(after, true))
}

/// The coordinator stops hearing a voter, and this many milliseconds later it stops hearing the
/// primary. `accepts`: whether the primary accepts the table without that voter.
fn a_voter_is_replaced(after: u64, accepts: bool) -> Result<(), String> {
    let mut m = five(1)?;
    let table = m.table(1)?;
    find(&table, |p| led_by(p, 5, 1) || led_by(p, 5, 4))?;
    let replaced = Version(m.table(1)?.version.0 + 1);
    let accepted = move |letter: &Letter| {
        version(letter) == Some(replaced) && matches!(letter.message, Message::Propose(_))
    };
    let mute = Rc::new(Cell::new(false));
    let is_mute = mute.clone();
    m.post(move |letter| {
        let lost = (letter.between(1, 3) && letter.is_datagram())
            || (is_mute.get() && letter.goes(5, 1) && letter.is_datagram())
            || (letter.to == 3 && tells(letter))
            || (letter.to == 5 && tells(letter) && !(accepts && accepted(letter)))
            || (letter.goes(1, 2) && version(letter).is_some_and(|v| v > replaced));
        if lost { Fate::Lost } else { Fate::Arrives }
    });
    m.run(after);
    mute.set(true);
    m.until(2000, "table without n3", |m| {
        m.table(1).is_ok_and(|t| t.voters == [id(1), id(2), id(4)])
    })?;
    m.run(1500);
    m.verdict()?;
    if m.table(1)?.member(id(5)).is_none() {
        Ok(())
    } else {
        Err(format!(
            "the check did not reach its situation: {}",
            m.summary()
        ))
    }
}

/// A primary that still leads by its lease is taken for dead, and its successor leaves at once.
/// `told`: whether the successor knows that it is the successor.
fn a_successor_leaves(told: bool) -> Result<(), String> {
    let mut m = five(2)?;
    let (first, second) = pair(&m)?;
    let taken = Version(m.table(1)?.version.0 + 1);
    m.post(move |letter| {
        let deaf = is_ping(letter, 1, first) || (letter.to == first && tells(letter));
        let pulls = letter.from == second && matches!(letter.message, Message::Pull { .. });
        let untold = !told && (pulls || (letter.to == second && version(letter) == Some(taken)));
        if deaf || untold {
            Fate::Lost
        } else {
            Fate::Arrives
        }
    });
    let knows = if told { second } else { 1 };
    m.until(2000, "table without the first", |m| {
        m.table(knows)
            .is_ok_and(|t| t.version == taken && t.members.len() == 4)
    })?;
    m.input(second, Input::Leave(HandOverUrgency::AtOnce));
    m.until(1000, "hand-over", |m| {
        m.process(second).is_none_or(|p| p.handed_over)
    })?;
    m.run(1500);
    m.verdict()
}

/// A primary that has not opened a partition does not seal it.
pub(super) fn an_unopened_primary_seals_nothing() -> Result<(), String> {
    a_successor_leaves(true)
}

/// A primary that does not know of its partition does not seal it.
pub(super) fn an_unaware_primary_seals_nothing() -> Result<(), String> {
    a_successor_leaves(false)
}

/// A primary has accepted the last proposal of a coordinator that dies. No other member has it. A
/// table of the next coordinator has the same version and deposes the primary.
pub(super) fn voters_of_another_term_give_no_lease() -> Result<(), String> {
    let mut m = Members::of(Setup {
        backups: 2,
        ..Setup::of(5)
    })?;
    m.plans_nothing();
    let grown = Version(m.table(1)?.version.0 + 1);
    m.post(|letter| match &letter.message {
        Message::Propose(_) if letter.to != 5 => Fate::Lost,
        Message::Ack(_) => Fate::Lost,
        Message::Ping(_) if letter.goes(2, 5) => Fate::Lost,
        _ => Fate::Arrives,
    });
    let request = AdminRequest::CreateMap {
        name: "a".into(),
        keyspace: "default".into(),
    };
    m.input(1, Input::Admin { ticket: 1, request });
    m.until(500, "proposal", |m| {
        m.view(5).is_some_and(|v| v.accepted.version == grown)
    })?;
    // The second one takes it for dead before the first one does.
    m.run(300);
    m.kill(1);
    m.post(|letter| match &letter.message {
        Message::Ping(_) if letter.goes(2, 5) => Fate::Lost,
        Message::PreVote(_) | Message::Vote(_) if letter.from != 2 => Fate::Lost,
        Message::Pull { .. } if letter.from == 5 => Fate::Lost,
        _ if letter.to == 5 && tells(letter) => Fate::Lost,
        _ => Fate::Arrives,
    });
    m.until(3000, "second coordinator", |m| m.leads(2))?;
    let deposed = |m: &Members| {
        m.table(2)
            .is_ok_and(|t| t.version == grown && t.member(id(5)).is_none())
    };
    m.until(
        2000,
        "table without n5, of the version of the first one's",
        deposed,
    )?;
    m.run(1500);
    m.verdict()
}

/// A primary misses two tables. The second deposes it. When it hears of the first, answers of
/// voters that had the second must still not count.
pub(super) fn an_answer_counts_with_its_own_table() -> Result<(), String> {
    let mut m = Members::of(Setup::of(3))?;
    m.plans_nothing();
    let first = Version(m.table(1)?.version.0 + 1);
    m.post(move |letter| match &letter.message {
        Message::Ping(_) if letter.goes(1, 3) => Fate::Lost,
        Message::Propose(_) if letter.to == 3 && version(letter) == Some(first) => Fate::Waits,
        Message::Pull { .. } if letter.from == 3 => Fate::Lost,
        _ if letter.to == 3 && tells(letter) => Fate::Lost,
        _ => Fate::Arrives,
    });
    m.run(300);
    let request = AdminRequest::CreateMap {
        name: "a".into(),
        keyspace: "default".into(),
    };
    m.input(1, Input::Admin { ticket: 1, request });
    m.until(2000, "table without n3", |m| {
        m.table(1)
            .is_ok_and(|t| t.version == first.next() && t.member(id(3)).is_none())
    })?;
    m.run(400);
    if m.let_go(|_| true) == 0 {
        return Err("the check did not reach its situation: no answer waits".into());
    }
    m.run(1500);
    m.verdict()
}

/// The clock of a primary is 1 % slow, and that of its successor 1 % fast. This is tried at every
/// moment between two pings.
pub(super) fn leases_hold_while_two_clocks_drift() -> Result<(), String> {
    (0..100).try_for_each(|after| {
        let rate = |place| match place {
            1 => 1010,
            3 => 990,
            _ => 1000,
        };
        let mut m = Members::of(Setup {
            rate,
            ..Setup::of(3)
        })?;
        m.plans_nothing();
        let table = m.table(1)?;
        find(&table, |p| led_by(p, 3, 1))?;
        m.run(after);
        m.post(|letter| match &letter.message {
            Message::Ping(_) if letter.goes(1, 3) => Fate::Lost,
            Message::Pull { .. } if letter.from == 3 => Fate::Lost,
            _ if letter.to == 3 && tells(letter) => Fate::Lost,
            _ => Fate::Arrives,
        });
        m.until(2000, "table without n3", |m| {
            m.table(1).is_ok_and(|t| t.member(id(3)).is_none())
        })?;
        m.run(600);
        m.verdict()
    })
}
