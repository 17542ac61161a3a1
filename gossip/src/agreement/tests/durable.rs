//! Directories: what is synced counts, and what is not may be forgotten (rule 14).

use super::*;

/// A cluster of nodes with directories.
fn cluster(seed: u64, count: usize) -> Net {
    let mut net = Net::cluster_with(seed, count, |net| net.directories = true);
    net.until(3000, Net::healed);
    net.run_ms(500);
    net
}

fn kill_all(net: &mut Net) {
    for slot in 0..7 {
        if net.at(slot).is_some() {
            net.kill(slot);
        }
    }
}

#[test]
fn nodes_that_were_all_killed_are_the_same_cluster_again() {
    for seed in 0..30 {
        let mut net = cluster(seed, 3);
        let before = net.agreed().unwrap();
        kill_all(&mut net);
        net.run_ms(2000);
        for slot in 0..3 {
            net.start((slot + usize::try_from(seed).unwrap()) % 3);
            let late = net.below(2500);
            net.run_ms(late);
        }
        net.until(20_000, Net::healed);
        let after = net.agreed().unwrap();
        assert_eq!((after.cluster, net.clusters().len()), (before.cluster, 1));
        assert!(after.version > before.version);
    }
}

#[test]
fn two_of_three_directories_are_enough_and_one_is_not() {
    for seed in 0..10 {
        let mut net = cluster(seed, 3);
        let before = net.agreed().unwrap();
        kill_all(&mut net);
        net.start(0);
        net.run_ms(10_000);
        assert!(net.leaders().is_empty(), "seed {seed}");
        net.start(1);
        net.until(20_000, |net| {
            net.agreed().is_some_and(|t| t.members.len() == 2)
        });
        assert_eq!(net.agreed().unwrap().cluster, before.cluster);
        net.start(2);
        net.until(20_000, Net::healed);
        assert_eq!(net.clusters().len(), 1);
    }
}

#[test]
fn a_node_that_starts_again_while_the_others_live_is_a_member_without_copies() {
    for seed in 0..10 {
        let mut net = cluster(seed, 3);
        let slot = usize::try_from(net.below(3)).unwrap();
        net.kill(slot);
        let late = net.below(4000);
        net.run_ms(late);
        net.start(slot);
        net.until(20_000, Net::healed);
        assert_eq!(net.clusters().len(), 1);
    }
}

fn storm_with_power_cuts(seed: u64) {
    let count = 3 + usize::try_from(seed % 3).unwrap();
    let mut net = cluster(seed, count);
    let before = net.agreed().unwrap().cluster;
    net.hints = net.below(2) == 0;
    for _ in 0..16 {
        let slot = usize::try_from(net.below(count as u64)).unwrap();
        let other = usize::try_from(net.below(count as u64)).unwrap();
        match net.below(12) {
            0 | 1 if net.at(slot).is_some() => net.kill(slot),
            2..=4 if net.at(slot).is_none() => _ = net.start(slot),
            5 if net.at(slot).is_some() => {
                let ms = 50 + net.below(3000);
                net.pause_ms(slot, ms);
            }
            6 if slot != other => net.cut(slot, other),
            7 => net.loss_percent = net.below(30),
            8 => net.cuts.clear(),
            9 => net.sync = [1, 10, 400][usize::try_from(net.below(3)).unwrap()] * MS,
            10 => kill_all(&mut net),
            _ => {}
        }
        let ms = net.below(1500);
        net.run_ms(ms);
    }
    net.cuts.clear();
    net.loss_percent = 0;
    net.sync = 10 * MS;
    for slot in 0..count {
        if net.at(slot).is_none() {
            net.start(slot);
        }
    }
    net.until(60_000, Net::healed);
    assert_eq!(net.agreed().unwrap().cluster, before);
}

#[test]
fn storms_with_power_cuts_break_nothing_and_heal_without_an_operator() {
    for seed in storms() {
        let result = std::panic::catch_unwind(|| storm_with_power_cuts(seed));
        if let Err(panic) = result {
            println!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// The first table is promised by what is synced, and in force at its writer once it is synced.
#[test]
fn power_cuts_while_a_cluster_forms_leave_one_cluster() {
    for seed in storms() {
        let mut net = Net::new(seed, vec![(0..3).collect(); 3]);
        net.directories = true;
        net.sync = [1, 10, 400][usize::try_from(net.below(3)).unwrap()] * MS;
        for _ in 0..8 {
            for slot in 0..3 {
                if net.at(slot).is_none() && net.below(3) > 0 {
                    net.start(slot);
                }
            }
            let ms = net.below(2500);
            net.run_ms(ms);
            match net.below(3) {
                0 => kill_all(&mut net),
                slot if net.at(usize::try_from(slot).unwrap()).is_some() => {
                    net.kill(usize::try_from(slot).unwrap());
                }
                _ => {}
            }
        }
        for slot in 0..3 {
            if net.at(slot).is_none() {
                net.start(slot);
            }
        }
        net.until(60_000, Net::healed);
        assert_eq!(net.clusters().len(), 1, "seed {seed}");
    }
}
