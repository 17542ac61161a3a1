//! The level of a cluster with programs of two versions.

use super::*;
use crate::agreement::hostile::proof;
use doyen_placement::MemberState;
use doyen_placement::level::LEVELS;

const FORMER: u16 = LEVELS.0;
const PRESENT: u16 = LEVELS.1;

/// A cluster of founders. These of them run the program before the present one.
fn founded(former: &[usize], count: usize) -> Net {
    let mut net = Net::cluster_with(9, count, |net| {
        net.levels.extend(former.iter().map(|slot| (*slot, FORMER)))
    });
    net.until(3000, Net::healed);
    net
}

fn level(net: &Net) -> Option<u16> {
    net.agreed().map(|table| table.level)
}

fn said(net: &Net, slot: usize, what: &str) -> bool {
    net.process(slot)
        .events
        .iter()
        .any(|e| e.to_string().contains(what))
}

#[test]
fn a_new_cluster_begins_at_the_level_of_all_founders() {
    for count in 1..=3 {
        let net = founded(&[], count);
        assert_eq!(level(&net), Some(PRESENT));
        assert!(!said(&net, 0, "level"), "it never had another one");
    }
    let mut net = founded(&[1], 3);
    net.run_ms(5_000);
    assert_eq!(level(&net), Some(FORMER));
}

/// Each process is replaced by one of the present program. The level rises when the last process of
/// the former program is gone, and every member reports it.
#[test]
fn the_level_rises_once_the_last_process_of_the_former_program_is_gone() {
    let mut net = founded(&[0, 1, 2], 3);
    for slot in 0..3 {
        assert_eq!(level(&net), Some(FORMER));
        net.kill(slot);
        net.until(3000, |net| {
            net.agreed().is_some_and(|t| t.members.len() == 2)
        });
        net.levels.remove(&slot);
        net.start(slot);
        let copied = |t: &Table| t.partitions().all(|(_, p)| p.in_sync().count() == 2);
        net.until(10_000, |net| {
            net.healed()
                && net
                    .agreed()
                    .is_some_and(|t| t.members.len() == 3 && copied(&t))
        });
    }
    net.until(1000, |net| level(net) == Some(PRESENT));
    let risen = format!("every member speaks level {PRESENT}");
    assert!((0..2).all(|slot| said(&net, slot, &risen)));
    net.run_ms(500);
    let leader = net.leaders()[0];
    let proof = proof(&mut net, leader, (leader + 1) % 3);
    assert!(proof.votes.len() >= 2, "{proof:?}");
    assert!(proof.votes.iter().all(|(_, signature)| signature.is_some()));
}

/// A member's level is known only from its hello. A coordinator that has not heard the hello does
/// not guess. The member is silent, and remains in the table because it alone holds data.
#[test]
fn a_silent_member_of_the_former_program_keeps_the_level() {
    let mut net = Net::cluster_with(3, 3, |net| {
        net.levels.insert(2, FORMER);
        net.backups = 0;
        net.on_loss = OnLoss::Wait;
    });
    net.until(3000, Net::healed);
    let silent = net.at(2).expect("it runs");
    net.kill(2);
    let is_silent = |t: &Table| {
        t.member(silent)
            .is_some_and(|m| m.state == MemberState::Silent)
    };
    net.until(3000, |net| net.agreed().is_some_and(|t| is_silent(&t)));
    net.run_ms(5_000);
    assert_eq!(level(&net), Some(FORMER));
    net.input(
        0,
        Input::Admin {
            ticket: 3,
            request: AdminRequest::GiveUp { name: "n2".into() },
        },
    );
    net.until(3000, |net| level(net) == Some(PRESENT));
}

#[test]
fn a_process_of_the_former_program_is_refused_once_the_level_has_risen() {
    let mut net = founded(&[], 2);
    net.levels.insert(2, FORMER);
    net.start(2);
    let why =
        format!("this cluster runs at level {PRESENT}, and n2 speaks no more than level {FORMER}");
    net.until(5000, |net| said(net, 2, &why));
    assert_eq!(net.process(2).fatal, None, "another cluster may be meant");
    net.until(12_000, |net| net.process(2).fatal.is_some());
    assert_eq!(net.process(2).fatal.as_deref(), Some(&*why));
    assert_eq!(net.table(0).members.len(), 2);
}

/// The process could not read the table that says so, and would never be a member of anything.
#[test]
fn a_process_that_was_cut_off_while_the_level_rose_learns_that_it_is_out() {
    let mut net = founded(&[2], 3);
    let out = net.at(2).expect("it runs");
    for other in 0..2 {
        net.cut(2, other);
        net.cut(other, 2);
    }
    net.until(5000, |net| {
        net.table(0).level == PRESENT && net.table(1).level == PRESENT
    });
    assert!(net.table(0).member(out).is_none());
    net.cuts.clear();
    net.until(5000, |net| net.at(2).is_none_or(|id| id != out));
    let out_of_date = format!("speaks no more than level {FORMER}");
    net.until(5000, |net| said(net, 2, &out_of_date));
}

/// A coordinator of the former program would create the keyspace without its durability.
#[test]
fn a_durability_is_refused_until_every_member_speaks_it() {
    let mut net = Net::cluster_with(9, 3, |net| {
        net.levels.insert(0, FORMER);
        net.directories = true;
    });
    net.until(3000, Net::healed);
    let durable = || NewKeyspace {
        durability: Some(Durability::Log),
        ..wanted("orders", Mode::Fixed { partitions: 8 }, Division::Slots)
    };
    let create =
        |net: &mut Net, ticket| asked(net, 1, ticket, AdminRequest::CreateKeyspace(durable()));
    let AdminReply::Refused(why) = create(&mut net, 1) else {
        panic!("a member does not speak it")
    };
    assert!(why.contains(&format!("level {FORMER}")), "{why}");
    net.kill(0);
    net.until(5000, |net| level(net) == Some(PRESENT));
    let counted = |table: &Table| table.members.iter().all(|m| m.start.is_some());
    net.until(3000, |net| {
        net.agreed().is_some_and(|table| counted(&table))
    });
    assert_eq!(create(&mut net, 2), AdminReply::Done(None));
    let durable = |table: &Table| {
        let orders = table.keyspace_named("orders");
        orders.is_some_and(|orders| orders.durability == Durability::Log)
    };
    net.until(3000, |net| {
        net.agreed().is_some_and(|table| durable(&table))
    });
}
