//! The last members of a cluster leave: for whom they wait, and for whom not.

use super::super::Input;
use super::super::net::{Net, Slot};
use super::absence::{LONG, losses};
use doyen_placement::planner::{self, Pace};
use std::collections::BTreeMap;

/// Each node was told to leave and started again, the next one at once: the last one left while the others were at its door.
#[test]
fn a_rolling_restart_that_waits_for_nothing_loses_nothing() {
    for seed in 0..10 {
        for backups in [0, 1] {
            let mut net = Net::cluster_with(seed, 3, |net| (net.backups, net.on_loss) = (backups, LONG));
            net.until(3000, Net::healed);
            let cluster = net.table(0).cluster;
            for slot in 0..3 {
                net.input(slot, Input::Leave(Pace::Repair));
                net.until(20_000, |net| net.process(slot).handed_over);
                let id = net.at(slot).unwrap();
                assert!(!planner::holds_anything(&net.table(slot), id), "seed {seed}: n{slot} goes with what it holds");
                net.input(slot, Input::Depart);
                net.until(5000, |net| net.process(slot).left);
                net.kill(slot);
                net.start(slot);
            }
            net.until(15_000, Net::healed);
            let table = net.table(0);
            assert_eq!((table.cluster, losses(&table), table.members.len()), (cluster, 0, 3), "seed {seed}");
        }
    }
}

#[test]
fn a_cluster_that_is_stopped_as_a_whole_listens_for_a_moment_and_stops() {
    let mut net = Net::cluster(5, 3);
    net.until(3000, Net::healed);
    (0..3).for_each(|slot| net.input(slot, Input::Leave(Pace::Repair)));
    let took = net.until(5000, |net| (0..3).all(|slot| net.process(slot).handed_over));
    assert!((1900..3000).contains(&took), "{took} ms");
}

/// They are not told at the same moment, and those who go first are silent to the others: nobody waits for them.
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
                    net.input(*slot, Input::Leave(Pace::Repair));
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
            assert!(took < 10_000, "seed {seed}, {apart} ms apart: {:#?}", net.summary());
        }
    }
}

#[test]
fn a_node_that_was_always_alone_leaves_at_once() {
    let mut net = Net::new(6, vec![vec![]]);
    net.start(0);
    net.until(1000, Net::healed);
    net.input(0, Input::Leave(Pace::Repair));
    assert!(net.until(1000, |net| net.process(0).handed_over) < 500);
}
