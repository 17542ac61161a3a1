//! The last members of a cluster leave: the processes that they wait for, and those that they do
//! not.

use super::super::Input;
use super::super::net::{Net, Slot};
use super::absence::{LONG, losses};
use doyen_placement::planner::{self, HandOverUrgency};
use std::collections::{BTreeMap, BTreeSet};

/// Each node was told to leave and started again, the next one at once. The last one left while the
/// others were waiting to join it.
#[test]
fn a_rolling_restart_that_waits_for_nothing_loses_nothing() {
    for seed in 0..10 {
        for backups in [0, 1] {
            let mut net =
                Net::cluster_with(seed, 3, |net| (net.backups, net.on_loss) = (backups, LONG));
            net.until(3000, Net::healed);
            let cluster = net.table(0).cluster;
            for slot in 0..3 {
                net.input(slot, Input::Leave(HandOverUrgency::Repair));
                net.until(20_000, |net| net.process(slot).handed_over);
                let id = net.at(slot).unwrap();
                assert!(
                    !planner::holds_anything(&net.table(slot), id),
                    "seed {seed}: n{slot} goes with what it holds"
                );
                net.input(slot, Input::Depart);
                net.until(5000, |net| net.process(slot).left);
                net.kill(slot);
                net.start(slot);
            }
            net.until(15_000, Net::healed);
            let table = net.table(0);
            assert_eq!(
                (table.cluster, losses(&table), table.members.len()),
                (cluster, 0, 3),
                "seed {seed}"
            );
        }
    }
}

/// Tells each of the first slots to leave, this many milliseconds after the one before. Each is
/// started again `restart` milliseconds after it has ended. Returns how many ended with data that
/// they held.
fn restart_all(net: &mut Net, slots: usize, apart: u64, restart: u64) -> usize {
    let mut due: BTreeMap<Slot, u64> = (0..slots).map(|slot| (slot, slot as u64 * apart)).collect();
    let mut starts: BTreeMap<Slot, u64> = BTreeMap::new();
    let mut departing = BTreeSet::new();
    let (mut took, mut lost, mut again) = (0, 0, 0);
    while again < slots {
        due.retain(|slot, at| {
            if *at <= took {
                net.input(*slot, Input::Leave(HandOverUrgency::Repair));
            }
            *at > took
        });
        net.run_ms(10);
        took += 10;
        for slot in 0..slots {
            if starts.get(&slot).is_some_and(|at| *at <= took) {
                starts.remove(&slot);
                net.start(slot);
                again += 1;
                continue;
            }
            let Some(id) = net.at(slot) else { continue };
            if net.process(slot).left {
                net.kill(slot);
                starts.insert(slot, took + restart);
            } else if net.process(slot).handed_over && departing.insert(id) {
                lost += usize::from(planner::holds_anything(&net.table(slot), id));
                net.input(slot, Input::Depart);
            }
        }
        assert!(
            took < 25_000,
            "{apart} ms apart, after {took} ms: {:#?}",
            net.summary()
        );
    }
    lost
}

/// Each leaver listened for newcomers by a clock of its own. So several ended at the same moment,
/// with their data and half of the votes, and the others could admit none of the nodes that were
/// started again.
#[test]
fn a_rolling_restart_in_which_all_leave_at_the_same_time_loses_nothing() {
    for (seed, slots) in (0..).zip([2, 3, 4, 5, 7]) {
        for apart in [0, 20, 150, 300, 700] {
            for (backups, hints) in [(1, true), (2, false)] {
                let own =
                    |net: &mut Net| (net.backups, net.on_loss, net.hints) = (backups, LONG, hints);
                let mut net = Net::cluster_with(seed, slots, own);
                net.until(5000, Net::healed);
                let cluster = net.table(0).cluster;
                let lost = restart_all(&mut net, slots, apart, 300);
                net.until(20_000, Net::healed);
                let table = net.table(0);
                let which = format!("{slots} members, {apart} ms apart, {backups} backups");
                assert_eq!(
                    (lost, table.cluster, losses(&table), table.members.len()),
                    (0, cluster, 0, slots),
                    "{which}"
                );
            }
        }
    }
}

/// Without backups no member holds what another one holds: while all leave, none can be let go.
#[test]
fn a_member_that_alone_holds_something_is_not_let_go_before_the_others() {
    let mut net = Net::cluster_with(3, 3, |net| net.backups = 0);
    net.until(3000, Net::healed);
    (0..3).for_each(|slot| net.input(slot, Input::Leave(HandOverUrgency::Repair)));
    net.run_ms(1500);
    assert!(
        (0..3).all(|slot| !net.process(slot).handed_over),
        "{:#?}",
        net.summary()
    );
    net.start(3);
    net.until(10_000, |net| {
        (0..3).all(|slot| net.process(slot).handed_over)
    });
    let holds = |slot: Slot| planner::holds_anything(&net.table(slot), net.at(slot).unwrap());
    assert!((0..3).all(|slot| !holds(slot)), "{:#?}", net.summary());
}

/// Each leaver that goes costs copies, so the next one waits for a newcomer.
#[test]
fn one_leaver_at_a_time_is_let_go_while_all_leave() {
    let mut net = Net::cluster_with(4, 5, |net| net.backups = 3);
    net.until(3000, Net::healed);
    (0..5).for_each(|slot| net.input(slot, Input::Leave(HandOverUrgency::Repair)));
    let gone = |net: &Net| (0..5).filter(|slot| net.process(*slot).handed_over).count();
    net.until(1000, |net| gone(net) == 1);
    net.run_ms(1000);
    assert_eq!(gone(&net), 1, "{:#?}", net.summary());
    let coordinates = net.leaders();
    assert!(
        coordinates
            .iter()
            .all(|slot| !net.process(*slot).handed_over),
        "the coordinator goes last"
    );
}

/// The coordinator dies after all were told to leave, and its copies and its vote are gone.
#[test]
fn a_full_stop_ends_though_the_coordinator_dies_meanwhile() {
    for seed in 0..6 {
        let slots = 2 + seed as usize % 3;
        let mut net = Net::cluster_with(seed, slots, |net| net.on_loss = LONG);
        net.until(3000, Net::healed);
        (0..slots).for_each(|slot| net.input(slot, Input::Leave(HandOverUrgency::Repair)));
        net.run_ms(200 * (1 + seed));
        let coordinator = net.leaders()[0];
        net.kill(coordinator);
        let mut took = 0;
        while !net.processes.is_empty() {
            net.run_ms(50);
            took += 50;
            for slot in 0..slots {
                if net.at(slot).is_some() && net.process(slot).left {
                    net.kill(slot);
                } else if net.at(slot).is_some() && net.process(slot).handed_over {
                    net.input(slot, Input::Depart);
                }
            }
            assert!(took < 10_000, "seed {seed}: {:#?}", net.summary());
        }
    }
}

#[test]
fn a_cluster_that_is_stopped_as_a_whole_listens_for_a_moment_and_stops() {
    let mut net = Net::cluster(5, 3);
    net.until(3000, Net::healed);
    (0..3).for_each(|slot| net.input(slot, Input::Leave(HandOverUrgency::Repair)));
    let took = net.until(5000, |net| (0..3).all(|slot| net.process(slot).handed_over));
    assert!((1900..3000).contains(&took), "{took} ms");
}

/// The members are not told at the same moment, and the first ones that go are silent to the
/// others. No member waits for them.
#[test]
fn a_cluster_that_is_stopped_node_by_node_waits_for_none_that_has_gone() {
    for (seed, apart) in (0..12).zip([100, 400, 700, 1000, 1500, 2500].into_iter().cycle()) {
        let mut net = Net::cluster_with(seed, 3, |net| (net.hints, net.on_loss) = (true, LONG));
        net.until(3000, Net::healed);
        let mut due: BTreeMap<Slot, u64> = (0..3).map(|slot| (slot, slot as u64 * apart)).collect();
        let mut took = 0;
        while !net.processes.is_empty() {
            due.retain(|slot, at| {
                if *at <= took {
                    net.input(*slot, Input::Leave(HandOverUrgency::Repair));
                }
                *at > took
            });
            net.run_ms(50);
            took += 50;
            for slot in 0..3 {
                if net.at(slot).is_some_and(|id| net.processes[&id].left) {
                    net.kill(slot);
                } else if net.at(slot).is_some() && net.process(slot).handed_over {
                    net.input(slot, Input::Depart);
                }
            }
            assert!(
                took < 10_000,
                "seed {seed}, {apart} ms apart: {:#?}",
                net.summary()
            );
        }
    }
}

#[test]
fn a_node_that_was_always_alone_leaves_at_once() {
    let mut net = Net::new(6, vec![vec![]]);
    net.start(0);
    net.until(1000, Net::healed);
    net.input(0, Input::Leave(HandOverUrgency::Repair));
    assert!(net.until(1000, |net| net.process(0).handed_over) < 500);
}
