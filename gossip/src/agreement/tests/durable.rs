//! Directories: what is synced counts, and what is not may be forgotten (rule 14).

use super::*;
use doyen_placement::level::LEVELS;
use doyen_placement::{Lineage, MemberState, Version};

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

fn durable_keyspace() -> AdminRequest {
    AdminRequest::CreateKeyspace(NewKeyspace {
        durability: Some(Durability::Log),
        ..wanted("orders", Mode::Fixed { partitions: 8 }, Division::Slots)
    })
}

/// The directory of a process is in its hello, so the table says what each member has.
#[test]
fn the_table_has_the_starts_of_directories_and_they_rise() {
    let mut net = cluster(1, 3);
    let starts = |net: &Net| -> Vec<Option<u64>> {
        let table = net.agreed().unwrap();
        table.members.iter().map(|m| m.start).collect()
    };
    let before = starts(&net);
    assert!(before.iter().all(Option::is_some), "{before:?}");
    let name = net.table(0).members[1].name.clone();
    let slot = (0..3).find(|slot| name == format!("n{slot}")).unwrap();
    net.kill(slot);
    net.start(slot);
    net.until(20_000, Net::healed);
    let table = net.agreed().unwrap();
    let heir = table.members.iter().find(|m| m.name == name).unwrap();
    assert!(heir.start > before[1], "{:?} {before:?}", heir.start);
}

#[test]
fn a_former_state_of_a_directory_does_not_take_the_place_of_a_later_one() {
    let mut net = cluster(2, 3);
    let table = net.agreed().unwrap();
    let start = table.members.iter().filter_map(|m| m.start).max().unwrap();
    net.kill(2);
    // Its count is lower than that of the process before it.
    net.next_id = start - 2;
    net.start(2);
    net.until(20_000, |net| net.process(2).fatal.is_some());
    let why = net.process(2).fatal.clone().unwrap();
    assert!(
        why.contains("the directory of n2 was started later"),
        "{why}"
    );
}

#[test]
fn what_is_on_disk_is_held_by_members_with_directories_alone() {
    let mut net = cluster(3, 3);
    let reply = asked(&mut net, 0, 1, durable_keyspace());
    assert_eq!(reply, AdminReply::Done(None));
    net.directories = false;
    net.start(3);
    net.until(20_000, |net| net.process(3).fatal.is_some());
    let why = net.process(3).fatal.clone().unwrap();
    assert!(why.contains("and n3 has no directory"), "{why}");

    let mut net = Net::cluster(4, 3);
    let AdminReply::Refused(why) = asked(&mut net, 0, 1, durable_keyspace()) else {
        panic!("no member has a directory")
    };
    assert!(why.contains("have no directory"), "{why}");
}

/// A cluster of three nodes that keep their data on disk.
fn on_disk(seed: u64, durability: Durability, on_loss: OnLoss) -> Net {
    let mut net = Net::cluster_with(seed, 3, |net| {
        (net.directories, net.durability, net.on_loss) = (true, durability, on_loss);
    });
    net.until(3000, Net::healed);
    net.run_ms(500);
    net
}

/// The directory of this slot has what its process holds in sync, but for the lineages.
fn keeps_copies(net: &mut Net, slot: usize, lineage: impl Fn(Lineage) -> Lineage) {
    let (process, table) = (net.process(slot).process, net.table(slot));
    let held = table
        .partitions()
        .filter(|(_, p)| p.in_sync().any(|m| m == process));
    let copies = held
        .map(|(at, p)| (at, (lineage(p.lineage), Version(0))))
        .collect();
    net.copies.insert(slot, copies);
}

fn lineages(net: &Net) -> Vec<Lineage> {
    let table = net.agreed().unwrap();
    table.partitions().map(|(_, p)| p.lineage).collect()
}

/// The data is there again, as it was, though every process is another one.
#[test]
fn what_is_on_the_disks_of_nodes_that_were_all_killed_is_held_again() {
    for seed in 0..10 {
        let mut net = on_disk(seed, Durability::Log, OnLoss::Wait);
        let before = lineages(&net);
        (0..3).for_each(|slot| keeps_copies(&mut net, slot, |had| had));
        kill_all(&mut net);
        for slot in 0..3 {
            net.start((slot + usize::try_from(seed).unwrap()) % 3);
            let late = net.below(2500);
            net.run_ms(late);
        }
        net.until(20_000, Net::healed);
        assert_eq!(lineages(&net), before, "seed {seed}");
    }
}

/// A disk that lacks a copy, or has it of another time, gives up nothing.
#[test]
fn without_the_copies_what_is_on_disk_waits_and_what_is_in_memory_begins_empty() {
    let later = |had: Lineage| Lineage(had.0 + 1);
    for (seed, durability, has_other) in [
        (1, Durability::Log, false),
        (2, Durability::Log, true),
        (3, Durability::None, true),
    ] {
        let on_loss = OnLoss::Reset { after_ms: 60_000 };
        let mut net = on_disk(seed, durability, on_loss);
        let before = lineages(&net);
        if has_other {
            (0..3).for_each(|slot| keeps_copies(&mut net, slot, later));
        }
        kill_all(&mut net);
        (0..3).for_each(|slot| _ = net.start(slot));
        net.run_ms(20_000);
        let waits = lineages(&net) == before;
        assert_eq!(waits, durability == Durability::Log, "seed {seed}");
        assert_eq!(net.healed(), !waits);
        // Their times are over. What is given up first may delay the others.
        net.until(200_000, Net::healed);
        assert_ne!(lineages(&net), before);
    }
}

#[test]
fn a_node_that_starts_again_while_the_others_live_learns_what_it_has_on_disk() {
    for seed in 0..10 {
        let mut net = on_disk(seed, Durability::Log, OnLoss::Wait);
        let before = lineages(&net);
        let slot = usize::try_from(seed % 3).unwrap();
        let former = net.process(slot).process;
        let held: Vec<PartitionRef> = (net.agreed().unwrap().partitions())
            .filter(|(_, p)| p.in_sync().any(|m| m == former))
            .map(|(at, _)| at)
            .collect();
        keeps_copies(&mut net, slot, |had| had);
        net.kill(slot);
        net.start(slot);
        let heir = net.process(slot).process;
        let other = (slot + 1) % 3;
        net.until(20_000, |net| net.table(other).member(heir).is_some());
        let table = net.table(other);
        let learns = |at: &PartitionRef| {
            let partition = table.partition(*at).unwrap();
            partition.learners().any(|m| m == heir)
        };
        assert!(!held.is_empty() && held.iter().all(learns), "seed {seed}");
        net.until(20_000, Net::healed);
        assert_eq!(lineages(&net), before);
    }
}

/// A later process of its name at its address proves that the process is gone, and not its disk.
#[test]
fn a_process_of_the_name_without_the_directory_does_not_prove_that_a_disk_is_lost() {
    let mut net = Net::cluster_with(5, 3, |net| {
        (net.directories, net.durability, net.on_loss) = (true, Durability::Log, OnLoss::Wait);
        net.backups = 0;
    });
    net.until(3000, Net::healed);
    let before = lineages(&net);
    net.kill(2);
    net.synced.remove(&2);
    net.start(2);
    net.run_ms(10_000);
    assert_eq!(
        net.agreed().unwrap().members.len(),
        4,
        "its former process is waited for"
    );
    assert_eq!(lineages(&net), before);
}
