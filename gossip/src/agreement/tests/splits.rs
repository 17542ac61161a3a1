//! Halves of a cluster that an operator's word split (rule 13).

use super::super::net::{Net, Slot};
use super::super::{AdminRequest, Event, Half, Input, Split};
use crate::signing::{Signature, SigningKey, SigningSeed};
use crate::wire::{Descent, Message};

/// A cluster of the slots of these groups, which do not reach each other.
fn apart(seed: u64, groups: &[&[Slot]]) -> Net {
    let count = groups.iter().map(|group| group.len()).sum();
    let mut net = Net::cluster_with(seed, count, |net| {
        net.backups = 2;
        net.split = true;
    });
    net.until(5000, Net::healed);
    for one in groups {
        for other in groups.iter().filter(|other| *other != one) {
            let pairs = one.iter().flat_map(|a| other.iter().map(|b| (*a, *b)));
            net.cuts.extend(pairs);
        }
    }
    net.run_ms(5000);
    net
}

/// An operator says at a slot that all others are dead, but for these.
fn recover(net: &mut Net, slot: Slot, count: usize, living: &[Slot]) {
    let dead = (0..count).filter(|other| !living.contains(other));
    net.recover(slot, dead.map(|other| format!("n{other}")).collect());
    net.until(5000, |net| leads(net, slot));
    net.run_ms(2000);
}

/// A cluster, cut in two. The part that is cut off has no majority, and is recovered.
fn halves(seed: u64, count: usize, cut_off: &[Slot]) -> Net {
    let others: Vec<Slot> = (0..count).filter(|slot| !cut_off.contains(slot)).collect();
    let mut net = apart(seed, &[cut_off, &others]);
    recover(&mut net, cut_off[0], count, cut_off);
    net
}

fn leads(net: &Net, slot: Slot) -> bool {
    net.process(slot).agreement.leading()
}

fn split(net: &Net, slot: Slot) -> Option<Split> {
    let process = net.process(slot);
    process.agreement.status(net.local(process)).split
}

fn half(net: &Net, slot: Slot) -> Option<Half> {
    split(net, slot).map(|split| split.half)
}

fn holds_a_lease(net: &Net, slot: Slot) -> bool {
    let process = net.process(slot);
    process.lease > net.local(process)
}

fn events(net: &Net, slot: Slot) -> usize {
    let of_split = |e: &&Event| matches!(e, Event::Split { .. });
    net.process(slot).events.iter().filter(of_split).count()
}

/// Both halves served for ever, and gave different answers to one key.
#[test]
fn a_recovered_half_stops_and_the_half_with_a_majority_serves_on() {
    const STOPPED: Half = Half::Stopped { both: false };
    let all: [(usize, Vec<Slot>); 7] = [
        (4, vec![0]),
        (4, vec![1]),
        (4, vec![2]),
        (4, vec![3]),
        (3, vec![1]),
        (5, vec![1, 3]),
        (7, vec![0, 2, 6]),
    ];
    for (seed, (count, cut_off)) in all.into_iter().enumerate() {
        let mut net = halves(900 + seed as u64, count, &cut_off);
        let stays: Vec<Slot> = (0..count).filter(|slot| !cut_off.contains(slot)).collect();
        let members = |net: &Net, slot| net.table(slot).members.len();
        net.until(5000, |net| members(net, cut_off[0]) == cut_off.len());
        assert_eq!(members(&net, stays[0]), stays.len());
        assert!(net.table(stays[0]).annex.branches.is_empty());
        for slot in 0..count {
            assert_eq!(
                (half(&net, slot), holds_a_lease(&net, slot)),
                (None, true),
                "n{slot}"
            );
        }
        net.cuts.clear();
        let stops = |net: &Net| cut_off.iter().all(|s| half(net, *s) == Some(STOPPED));
        net.until(4000, stops);
        for slot in &cut_off {
            assert!(!holds_a_lease(&net, *slot), "n{slot} stops at once");
        }
        for _ in 0..100 {
            net.run_ms(100);
            for slot in &cut_off {
                assert!(!holds_a_lease(&net, *slot), "n{slot}");
            }
            for slot in &stays {
                assert!(holds_a_lease(&net, *slot), "n{slot}");
            }
        }
        for slot in 0..count {
            let expected = if cut_off.contains(&slot) {
                STOPPED
            } else {
                Half::Serves
            };
            assert_eq!(
                (half(&net, slot), events(&net, slot)),
                (Some(expected), 1),
                "n{slot}"
            );
            let of_half = if cut_off.contains(&slot) {
                cut_off.len()
            } else {
                stays.len()
            };
            assert_eq!(members(&net, slot), of_half, "n{slot}");
        }
        // The operator does what the status says.
        for slot in &cut_off {
            net.kill(*slot);
        }
        for slot in &cut_off {
            net.start(*slot);
        }
        net.until(15_000, |net| {
            net.healed() && net.table(stays[0]).members.len() == count
        });
        assert!(
            net.table(0).annex.branches.is_empty(),
            "the other half's table is gone"
        );
        net.run_ms(35_000);
        assert_eq!(half(&net, stays[0]), None, "it is forgotten");
    }
}

/// Two of five are cut off from two others, and the fifth from all. Both pairs are recovered.
#[test]
fn two_recovered_halves_stop_until_an_operator_keeps_one() {
    const BOTH: Half = Half::Stopped { both: true };
    let mut net = apart(920, &[&[0, 1], &[2, 3], &[4]]);
    recover(&mut net, 0, 5, &[0, 1]);
    recover(&mut net, 2, 5, &[2, 3]);
    net.cuts.clear();
    net.until(5000, |net| {
        [0, 1, 2, 3].iter().all(|s| half(net, *s) == Some(BOTH))
    });
    net.run_ms(5000);
    for slot in [0, 1, 2, 3] {
        assert!(!holds_a_lease(&net, slot), "n{slot}");
    }
    let request = AdminRequest::KeepHalf(net.table(2).annex.branches[0].id);
    net.input(2, Input::Admin { ticket: 7, request });
    net.until(5000, |net| holds_a_lease(net, 2) && holds_a_lease(net, 3));
    assert!(!holds_a_lease(&net, 0));
    net.run_ms(3000);
    assert!(holds_a_lease(&net, 2) && !holds_a_lease(&net, 0));
    // The fifth, which was left behind, may have joined either half.
    let branch = net.table(2).annex.branches[0].id;
    let stays = |net: &Net, slot| {
        let view = net.process(slot).view.as_ref();
        view.is_some_and(|view| view.installed.annex.branch(branch).is_some())
    };
    let others: Vec<Slot> = (0..5).filter(|slot| !stays(&net, *slot)).collect();
    others.iter().for_each(|slot| net.kill(*slot));
    others.iter().for_each(|slot| _ = net.start(*slot));
    net.until(20_000, |net| {
        net.healed() && net.table(2).members.len() == 5
    });
}

/// Operators keep both halves in the same moment: neither half had heard of the other's keep.
#[test]
fn two_halves_that_are_kept_at_once_stop_again() {
    const BOTH: Half = Half::Stopped { both: true };
    let mut net = apart(950, &[&[0, 1], &[2, 3], &[4]]);
    recover(&mut net, 0, 5, &[0, 1]);
    recover(&mut net, 2, 5, &[2, 3]);
    net.cuts.clear();
    let all_stop = |net: &Net| [0, 1, 2, 3].iter().all(|s| half(net, *s) == Some(BOTH));
    net.until(5000, all_stop);
    let keep = |net: &mut Net, slot: Slot| {
        let branches = &net.table(slot).annex.branches;
        let request = AdminRequest::KeepHalf(branches.last().expect("a branch").id);
        net.input(slot, Input::Admin { ticket: 7, request });
    };
    keep(&mut net, 0);
    keep(&mut net, 2);
    net.until(10_000, |net| {
        let kept = |s: Slot| net.table(s).annex.branches[0].kept == 1;
        kept(0) && kept(2) && all_stop(net)
    });
    net.run_ms(5000);
    assert!(all_stop(&net), "neither serves");
    assert!((0..4).all(|slot| !holds_a_lease(&net, slot)));
    keep(&mut net, 2);
    net.until(5000, |net| holds_a_lease(net, 2) && holds_a_lease(net, 3));
    net.run_ms(5000);
    assert!(holds_a_lease(&net, 2) && !holds_a_lease(&net, 0));
    assert_eq!(half(&net, 0), Some(Half::Stopped { both: false }));
}

/// An operator kept the recovered half, because the others seemed to be gone. They were not.
#[test]
fn a_half_that_was_kept_stops_again_when_the_others_come_back() {
    let mut net = halves(960, 5, &[4]);
    let cuts = net.cuts.clone();
    net.cuts.clear();
    const STOPPED: Half = Half::Stopped { both: false };
    net.until(5000, |net| half(net, 4) == Some(STOPPED));
    net.cuts = cuts;
    net.run_ms(2000);
    let request = AdminRequest::KeepHalf(net.table(4).annex.branches[0].id);
    net.input(4, Input::Admin { ticket: 7, request });
    net.until(5000, |net| holds_a_lease(net, 4));
    net.cuts.clear();
    net.until(10_000, |net| half(net, 4) == Some(STOPPED));
    net.run_ms(3000);
    assert!(!holds_a_lease(&net, 4));
    assert!((0..4).all(|slot| holds_a_lease(&net, slot)));
}

/// The majority lost two of three later, and was recovered as well. Its branch does not name the
/// minority, which stops because of it: the half that serves is ready.
#[test]
fn the_half_that_serves_alone_is_ready_though_it_was_recovered_later() {
    let mut net = halves(970, 5, &[3, 4]);
    net.until(10_000, |net| net.table(0).members.len() == 3);
    net.run_ms(2000);
    net.kill(1);
    net.kill(2);
    net.run_ms(3000);
    net.recover(0, vec!["n1".into(), "n2".into()]);
    net.until(5000, |net| holds_a_lease(net, 0));
    net.cuts.clear();
    let stops = |net: &Net, s| matches!(half(net, s), Some(Half::Stopped { .. }));
    net.until(10_000, |net| stops(net, 3) && stops(net, 4));
    net.until(10_000, |net| half(net, 0) == Some(Half::Serves));
    net.run_ms(40_000);
    assert!(holds_a_lease(&net, 0) && !holds_a_lease(&net, 3));
    assert!(half(&net, 0) != Some(Half::Doubted), "it is ready");
}

/// A named member that did not go on joins again, as before: that is no split.
#[test]
fn a_named_member_that_was_left_behind_joins_again() {
    let mut net = apart(930, &[&[0], &[1], &[2]]);
    recover(&mut net, 0, 3, &[0]);
    net.cuts.clear();
    net.until(20_000, |net| {
        net.healed() && net.table(0).members.len() == 3
    });
    assert_eq!((half(&net, 0), events(&net, 0)), (None, 0));
    assert!(holds_a_lease(&net, 0));
}

/// All named members were replaced before the halves meet. What they said is shown by those that
/// came after them.
#[test]
fn what_named_members_said_is_shown_when_they_are_gone() {
    let mut net = halves(940, 4, &[3]);
    for slot in 0..3 {
        net.kill(slot);
        net.until(10_000, |net| {
            net.leaders().iter().any(|l| *l < 3) && net.table((slot + 1) % 3).members.len() == 2
        });
        net.start(slot);
        net.until(10_000, |net| {
            (0..3).all(|s| {
                net.process(s)
                    .view
                    .as_ref()
                    .is_some_and(|v| v.installed.members.len() == 3)
            })
        });
        net.run_ms(1000);
    }
    net.cuts.clear();
    net.until(5000, |net| {
        half(net, 3) == Some(Half::Stopped { both: false })
    });
    assert!(!holds_a_lease(&net, 3));
}

/// Who was not asserted dead stops no half, and neither does who only says that it was.
#[test]
fn only_the_key_of_a_named_member_stops_a_half() {
    let mut net = halves(950, 5, &[3, 4]);
    net.until(5000, |net| net.table(4).members.len() == 2);
    let (table, other) = (net.table(3), net.table(0));
    let (named, member) = (other.members[0].id, net.at(4).unwrap());
    let mut said = Descent {
        cluster: table.cluster,
        member: named,
        committed: other.name(),
        led: true,
        branches: Vec::new(),
        signature: Signature::new([[0; 32]; 2]),
    };
    let key = |id: u64| SigningKey::new(&SigningSeed::of_test(id));
    let forged: Vec<Descent> = [(named, member.0), (member, member.0), (member, named.0)]
        .into_iter()
        .map(|(speaker, signs)| {
            said.member = speaker;
            said.signature = key(signs).state(&said);
            said.clone()
        })
        .collect();
    for said in &forged {
        net.say(4, 3, Message::Descent(Box::new(said.clone())));
    }
    net.run_ms(2000);
    assert_eq!((half(&net, 3), holds_a_lease(&net, 3)), (None, true));
    // The control: the named member's own words, also if another process brings them.
    said.member = named;
    said.signature = key(named.0).state(&said);
    net.say(4, 3, Message::Descent(Box::new(said)));
    net.until(500, |net| {
        half(net, 3) == Some(Half::Stopped { both: false })
    });
    assert!(!holds_a_lease(&net, 3));
    net.until(500, |net| half(net, 4).is_some());
}

/// A cluster that was never recovered is stopped by no statement.
#[test]
fn a_cluster_that_was_not_recovered_serves_whatever_is_said() {
    let mut net = halves(960, 4, &[3]);
    net.cuts.clear();
    net.until(4000, |net| half(net, 3).is_some());
    net.run_ms(60_000);
    for slot in 0..3 {
        assert_eq!(
            (half(&net, slot), holds_a_lease(&net, slot)),
            (Some(Half::Serves), true)
        );
    }
    assert_eq!(net.leaders().iter().filter(|l| **l < 3).count(), 1);
}
