//! Directories: what is synced counts, and what is not may be forgotten (rule 14).

use super::*;
use doyen_placement::MemberState;
use doyen_placement::level::LEVELS;

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
        let former = net.process(0).process;
        kill_all(&mut net);
        net.start(0);
        net.run_ms(10_000);
        assert!(net.leaders().is_empty(), "seed {seed}");
        // What its former process held is gone, though that is in the table.
        let heir = net.process(0);
        assert_eq!(heir.agreement.status(net.local(heir)).heirs, [former]);
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

/// Regression: the directory of a node that left in order has the table without it. Its next
/// process waited until the others made another table.
#[test]
fn a_node_that_left_in_order_joins_again_though_no_other_table_follows() {
    for seed in 0..10 {
        let mut net = cluster(seed, 3);
        let slot = usize::try_from(seed % 3).unwrap();
        net.input(slot, Input::Leave(HandOverUrgency::Repair));
        net.until(20_000, |net| net.process(slot).handed_over);
        net.input(slot, Input::Depart);
        net.until(5000, |net| net.process(slot).left);
        net.run_ms(3000);
        net.kill(slot);
        net.start(slot);
        net.until(5000, Net::healed);
        assert_eq!(net.clusters().len(), 1, "seed {seed}");
    }
}

/// Regression: the coordinator pinged an heir in its own name while the table that has it was being
/// committed, and dropped it in the next table because it had not answered.
#[test]
fn an_heir_stays_though_its_table_takes_longer_than_a_member_may_be_silent() {
    for seed in 0..10 {
        let mut net = cluster(seed, 3);
        let leads = |slot: &usize| net.process(*slot).agreement.leading();
        let slot = (0..3).find(|slot| !leads(slot)).unwrap();
        net.kill(slot);
        let id = net.start(slot);
        net.sync = 4000 * MS;
        net.run_ms(20_000);
        net.sync = 10 * MS;
        net.until(20_000, Net::healed);
        assert_eq!(net.at(slot), Some(id), "seed {seed}");
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

/// Regression: an heir with the name of another member got no seat and did not end, and what it
/// should have held was not served. If it coordinated, it did not even hear why.
#[test]
fn an_heir_with_the_name_of_another_member_says_why_and_ends() {
    for seed in 0..10 {
        let swapped = [(0, "n1"), (1, "n0")];
        for named in [&swapped[..], &swapped[1..]] {
            let mut net = cluster(seed, 3);
            kill_all(&mut net);
            let names = named.iter().map(|(slot, name)| (*slot, (*name).to_owned()));
            net.names.extend(names);
            (0..3).for_each(|slot| _ = net.start(slot));
            net.run_ms(15_000);
            let why = |slot| net.process(slot).fatal.clone();
            for (slot, name) in named {
                let said = why(*slot).unwrap();
                assert!(
                    said.contains(&format!("the name {name} is taken")),
                    "{said}"
                );
                assert!(said.contains(&format!("is that of n{slot}")), "{said}");
            }
            assert_eq!(why(2), None);
            named.iter().for_each(|(slot, _)| net.kill(*slot));
            if named.len() == 1 {
                // An heir that dies before it has its place is silent, as any member.
                let live = [0, 2].map(|slot| net.process(slot).process);
                net.until(10_000, |net| {
                    net.agreed().is_some_and(|table| {
                        let mut members = table.members.iter();
                        members.all(|m| m.state == MemberState::Silent || live.contains(&m.id))
                    })
                });
            }
            net.names.clear();
            named.iter().for_each(|(slot, _)| _ = net.start(*slot));
            net.until(20_000, Net::healed);
        }
    }
}

/// A name is free once the member that had it is gone.
#[test]
fn heirs_may_have_new_names_and_that_of_a_silent_member() {
    for seed in 0..10 {
        let mut net = cluster(seed, 3);
        kill_all(&mut net);
        net.names
            .extend([(0, "n2".to_owned()), (1, "n7".to_owned())]);
        net.start(0);
        net.start(1);
        let is_named = |net: &Net, slot: usize, name: &str| {
            let id = net.process(slot).process;
            let table = net.agreed();
            table.is_some_and(|t| t.member(id).is_some_and(|m| m.name == name))
        };
        net.until(30_000, |net| {
            is_named(net, 0, "n2") && is_named(net, 1, "n7")
        });
    }
}

#[test]
fn an_heir_that_speaks_less_than_its_cluster_says_why_and_ends() {
    let mut net = cluster(7, 3);
    net.kill(2);
    net.levels.insert(2, LEVELS.0);
    net.start(2);
    net.run_ms(13_000);
    let why = net.process(2).fatal.clone().unwrap();
    assert!(
        why.contains(&format!("no more than level {}", LEVELS.0)),
        "{why}"
    );
    // The program before was not its last.
    net.kill(2);
    net.levels.clear();
    net.start(2);
    net.until(20_000, Net::healed);
}
