//! Scenarios, each named after what must happen.

use super::context::NamedTable;
use super::net::{MS, Net};
use super::{AdminReply, AdminRequest, Event, Input, Output, Phase, VotersGone};
use crate::time::Time;
use crate::wire::{Ballot, BallotAnswer, Commit, Message, Payload, Proposal};
use doyen_placement::access::{AccessChange, TokenChange, TokenGrant, TokenRole};
use doyen_placement::planner::{HandOverUrgency, KeyspaceChange, NewKeyspace};
use doyen_placement::{
    Age, Division, Durability, Eviction, KeyspaceId, MemberId, Mode, OnLoss, PartitionId,
    PartitionRef, Table, TableName, Term, Version,
};
use std::collections::BTreeMap;

mod absence;
mod durable;
mod leaving;
mod levels;
mod splits;
mod weights;

#[test]
fn a_node_without_seeds_is_a_cluster_at_once() {
    let mut net = Net::new(1, vec![vec![]]);
    net.start(0);
    let took = net.until(200, Net::healed);
    assert!(took < 100, "{took}");
}

/// The last newcomer got its partitions with the table that admitted it. It did not know that they
/// never had a primary, and waited half a second for the lease of one.
#[test]
fn partitions_that_waited_for_members_open_as_soon_as_these_are_there() {
    let waits = |seed| {
        let mut net = Net::new(seed, vec![vec![], vec![0], vec![0]]);
        net.members_min = 3;
        (0..3).for_each(|slot| _ = net.start(slot));
        let installed = |net: &Net, slot| {
            let view = net.process(slot).view.as_ref();
            view.is_some_and(|view| !view.installed.keyspaces[0].partitions.is_empty())
        };
        net.until(2000, |net| (0..3).all(|slot| installed(net, slot)));
        (0..3).any(|slot| {
            let process = net.process(slot);
            let (view, now) = (process.view.as_ref().unwrap(), net.local(process));
            view.opens_at.iter().any(|(_, _, opens)| *opens > now)
        })
    };
    let waiting: Vec<u64> = (0..20).filter(|seed| waits(*seed)).collect();
    assert_eq!(waiting, [], "seeds");
}

#[test]
fn two_start_at_once_form_one_cluster() {
    for seed in 0..20 {
        let mut net = Net::new(seed, vec![vec![1], vec![0]]);
        (0..2).for_each(|s| _ = net.start(s));
        net.until(3000, Net::healed);
        assert_eq!(net.clusters().len(), 1);
    }
}

#[test]
fn five_start_at_once_form_one_cluster() {
    for seed in 0..20 {
        let mut net = Net::cluster(seed, 5);
        net.until(2000, Net::healed);
        assert_eq!(net.clusters().len(), 1);
    }
}

#[test]
fn a_fourth_joins_and_gets_its_share() {
    let mut net = Net::cluster(3, 3);
    net.until(2000, Net::healed);
    net.start(3);
    let led = |t: &Table, m: MemberId| {
        t.keyspaces[0]
            .partitions
            .iter()
            .filter(|p| p.primary() == m)
            .count()
    };
    let shared =
        |t: &Table| t.members.len() == 4 && t.voters.len() == 4 && led(t, t.members[3].id) == 2;
    net.until(4000, |net| {
        net.healed() && net.agreed().is_some_and(|t| shared(&t))
    });
}

#[test]
fn death_of_the_coordinator_is_noticed_without_a_hint() {
    for seed in 0..20 {
        let mut net = Net::cluster(seed, 3);
        net.until(2000, Net::healed);
        let leader = net.leaders()[0];
        net.kill(leader);
        let took = net.until(2000, |net| {
            net.agreed().is_some_and(|t| t.members.len() == 2)
        });
        assert!((550..1000).contains(&took), "{took}");
        assert!(net.until(1000, Net::healed) < 100);
    }
}

#[test]
fn death_of_the_coordinator_with_a_hint_is_a_table_soon() {
    for seed in 0..20 {
        let mut net = Net::cluster(seed, 3);
        net.hints = true;
        net.until(2000, Net::healed);
        let leader = net.leaders()[0];
        net.kill(leader);
        let took = net.until(2000, |net| {
            net.agreed().is_some_and(|t| t.members.len() == 2)
        });
        assert!(took < 280, "{took}");
        let open = took + net.until(2000, Net::healed);
        assert!(open < 800, "{open}");
    }
}

#[test]
fn two_nodes_survive_the_death_of_the_younger() {
    let mut net = Net::cluster(5, 2);
    net.until(2000, Net::healed);
    let leader = net.leaders()[0];
    net.kill(1 - leader);
    net.until(1500, |net| {
        net.agreed().is_some_and(|t| t.members.len() == 1)
    });
    net.until(2000, Net::healed);
}

#[test]
fn elder_pair_refuses_after_death_of_the_older_and_recover_goes_on() {
    let mut net = Net::cluster(6, 2);
    net.until(2000, Net::healed);
    let leader = net.leaders()[0];
    net.kill(leader);
    net.run_ms(5000);
    let left = 1 - leader;
    assert!(net.leaders().is_empty());
    let said = |e: &Event| {
        matches!(e, Event::NoCoordinator { why }
            if why.contains("no majority") && why.contains(&format!("n{leader}")))
    };
    assert!(
        net.process(left).events.iter().any(said),
        "{:?}",
        net.process(left).events
    );
    net.input(
        left,
        Input::Recover {
            dead: vec![format!("n{leader}")],
            gone: VotersGone { gone: 1, voters: 2 },
            ticket: 9,
        },
    );
    net.until(1000, |net| {
        net.agreed().is_some_and(|t| t.members.len() == 1)
    });
    net.until(2000, Net::healed);
    assert_eq!(net.process(left).replies, [(9, AdminReply::Done(None))]);
}

/// One survivor knows a table that the other never got, so the other cannot lead. If `recover` is
/// called there, the answer says where to call it.
#[test]
fn a_member_that_cannot_recover_the_cluster_says_which_one_can() {
    let mut net = Net::cluster(8, 4);
    net.until(2000, Net::healed);
    let leader = net.leaders()[0];
    let [knows, knows_not, dies] = [1, 2, 3].map(|n| (leader + n) % 4);
    net.cuts.extend([(leader, knows_not), (leader, dies)]);
    net.input(
        leader,
        Input::Admin {
            ticket: 1,
            request: AdminRequest::Drain {
                name: format!("n{dies}"),
            },
        },
    );
    let accepted = |net: &Net, slot| {
        net.process(slot)
            .view
            .as_ref()
            .map(|view| view.accepted.name().order())
    };
    net.until(300, |net| accepted(net, knows) > accepted(net, knows_not));
    [leader, dies].into_iter().for_each(|slot| net.kill(slot));
    net.cuts.clear();
    net.run_ms(5000);
    assert!(net.leaders().is_empty());
    let dead: Vec<String> = [leader, dies].map(|slot| format!("n{slot}")).into();
    let gone = VotersGone { gone: 2, voters: 4 };
    net.input(
        knows_not,
        Input::Recover {
            dead: dead.clone(),
            gone,
            ticket: 2,
        },
    );
    net.run_ms(500);
    let [(2, AdminReply::Refused(why))] = &net.process(knows_not).replies[..] else {
        panic!("{:?}", net.process(knows_not).replies)
    };
    assert!(why.contains(&format!("recover at n{knows}")), "{why}");
    net.input(
        knows,
        Input::Recover {
            dead,
            gone,
            ticket: 3,
        },
    );
    net.until(2000, |net| {
        net.agreed().is_some_and(|t| t.members.len() == 2)
    });
    assert_eq!(net.process(knows).replies, [(3, AdminReply::Done(None))]);
}

#[test]
fn a_paused_coordinator_expels_no_member() {
    for seed in 0..10 {
        let mut net = Net::cluster(seed, 3);
        net.until(2000, Net::healed);
        let leader = net.leaders()[0];
        net.pause_ms(leader, 10_000);
        net.run_ms(9_900);
        let version = net.table((leader + 1) % 3).version;
        assert_eq!(net.table((leader + 1) % 3).members.len(), 2);
        assert_eq!(net.leaders().iter().filter(|l| **l != leader).count(), 1);
        net.until(5000, |net| net.healed() && net.processes.len() == 3);
        let expelled = |e: &Event| matches!(e, Event::Expelled { .. });
        for slot in (0..3).filter(|s| *s != leader) {
            assert_eq!(
                net.process(slot)
                    .events
                    .iter()
                    .filter(|e| expelled(e))
                    .count(),
                1,
                "{version:?}"
            );
        }
    }
}

#[test]
fn graceful_leave_needs_no_wait() {
    for seed in 0..10 {
        let mut net = Net::cluster(seed, 3);
        net.until(2000, Net::healed);
        let leader = net.leaders()[0];
        for slot in [(leader + 1) % 3, leader] {
            net.input(slot, Input::Leave(HandOverUrgency::Repair));
            net.until(1500, |net| net.process(slot).handed_over);
            // The successors acknowledge at once, because the leaver sealed.
            let id = net.at(slot).unwrap();
            let by_others = |net: &Net| {
                (0..8).all(|p| {
                    let at = PartitionRef::new(KeyspaceId(0), PartitionId(p));
                    let found = net.acknowledgers(at);
                    found.len() == 1 && found[0].0 != id
                })
            };
            assert!(net.until(300, by_others) < 50);
            net.input(slot, Input::Depart);
            net.until(500, |net| net.process(slot).left);
            net.kill(slot);
            net.run_ms(100);
            net.start(slot);
            net.until(5000, |net| net.healed() && net.processes.len() == 3);
        }
    }
}

#[test]
fn a_restarted_seed_joins_the_living_cluster() {
    for seed in 0..10 {
        let mut net = Net::cluster(seed, 3);
        net.until(2000, Net::healed);
        net.kill(0);
        net.run_ms(seed * 150);
        net.start(0);
        net.until(8000, |net| net.healed() && net.processes.len() == 3);
        assert_eq!(net.clusters().len(), 1);
    }
}

/// All members that a member knows may have been replaced while it was cut off. Then only their
/// addresses lead back to the cluster.
#[test]
fn a_member_that_was_cut_off_until_all_it_knew_had_left_comes_back() {
    for seed in 0..5 {
        let mut net = Net::new(seed, vec![vec![1], vec![0], vec![0, 1], vec![0, 1]]);
        (0..2).for_each(|slot| _ = net.start(slot));
        net.until(5000, |net| net.healed() && net.processes.len() == 2);
        (2..4).for_each(|slot| _ = net.start(slot));
        net.until(5000, |net| net.healed() && net.processes.len() == 4);
        let others = [0, 1, 3];
        others.iter().for_each(|slot| net.cut(2, *slot));
        let well = |net: &Net| {
            let tables: Vec<_> = others
                .iter()
                .filter_map(|s| net.at(*s))
                .map(|id| net.processes[&id].view.clone())
                .collect();
            let mut names = tables.iter().map(|v| {
                v.as_ref()
                    .map(|v| (v.installed.name(), v.installed.members.len()))
            });
            let first = names.next().flatten();
            tables.len() == 3
                && first.is_some_and(|(_, members)| members == 3)
                && names.all(|n| n == first)
        };
        net.until(8000, well);
        for slot in others {
            net.kill(slot);
            net.start(slot);
            let id = net.at(slot).unwrap();
            net.until(8000, |net| well(net) && net.processes[&id].view.is_some());
            net.run_ms(1000);
        }
        net.cuts.clear();
        net.until(15_000, |net| {
            net.healed() && net.agreed().is_some_and(|t| t.members.len() == 4)
        });
        assert_eq!(net.clusters().len(), 1);
    }
}

/// Seed 1157 of the simulation: a member was expelled while it was cut off, and its old request to
/// join arrived once more. It went on as the member that it had been, though no member remembered
/// any more which of its operations were applied.
#[test]
fn a_member_that_was_removed_and_admitted_again_begins_anew() {
    let mut net = Net::cluster(91, 4);
    let away = (0..4).find(|slot| !net.leaders().contains(slot)).unwrap();
    let id = net.at(away).unwrap();
    // Two tables later: the first is without it, and the second has it again, as a newcomer.
    let mut table = (*net.table(away)).clone();
    table.version = table.version.next().next();
    table.voters.retain(|voter| *voter != id);
    let at = table.members.iter().position(|m| m.id == id).unwrap();
    let mut member = (*table.members.remove(at)).clone();
    member.age = table.next_age;
    table.next_age = Age(table.next_age.0 + 1);
    table.members.push(member.into());
    let agreement = &mut net.processes.get_mut(&id).unwrap().agreement;
    let Phase::Member(core) = &mut agreement.phase else {
        panic!("a member")
    };
    core.install(&mut agreement.cx, NamedTable::new(table.into()), None);
    let outputs: Vec<Output> = std::iter::from_fn(|| agreement.poll_output()).collect();
    assert!(
        outputs.iter().any(|o| matches!(o, Output::Expelled))
            && !outputs.iter().any(|o| matches!(o, Output::View(_))),
        "{outputs:?}"
    );
}

/// A member that only the coordinator did not reach was expelled, joined through other members, and
/// was expelled again, until the cut ended. Each time tables changed and copies moved.
#[test]
fn a_newcomer_stays_outside_until_the_coordinator_hears_it() {
    for (seed, ways) in (0..30).zip(
        [[true, true], [true, false], [false, true]]
            .into_iter()
            .cycle(),
    ) {
        let mut net = Net::cluster(seed, 5);
        net.until(3000, Net::healed);
        let leader = net.leaders()[0];
        let apart = (leader + 1) % 5;
        let cuts = [(leader, apart), (apart, leader)];
        net.cuts.extend(
            cuts.into_iter()
                .zip(ways)
                .filter(|(_, cut)| *cut)
                .map(|(cut, _)| cut),
        );
        net.until(3000, |net| net.table(leader).members.len() == 4);
        // The tables that follow an expulsion, and the time after which the member that is apart
        // believes others than the coordinator.
        net.run_ms(5000);
        let (id, tables) = (net.at(apart), net.published);
        net.run_ms(30_000);
        assert_eq!(
            (net.leaders(), net.table(leader).members.len()),
            (vec![leader], 4),
            "seed {seed}: {:#?}",
            net.summary()
        );
        assert_eq!(
            (net.at(apart), net.published),
            (id, tables),
            "seed {seed}: tables change"
        );
        let waits = net.process(apart);
        assert!(waits.fatal.is_none() && waits.view.is_none(), "seed {seed}");
        let why = waits.agreement.status(Time::ZERO).waiting.unwrap();
        assert!(
            why.contains("does not answer the coordinator"),
            "seed {seed}: {why}"
        );
        let told =
            |e: &&Event| matches!(e, Event::Note { text: note } if note.contains("stays outside"));
        assert_eq!(
            net.process(leader).events.iter().filter(told).count(),
            1,
            "seed {seed}"
        );
        net.cuts.clear();
        net.until(3000, |net| net.healed() && net.processes.len() == 5);
        assert_eq!(net.at(apart), id, "seed {seed}");
    }
}

/// It makes only a moment's difference whether a newcomer finds the coordinator first or another
/// member.
#[test]
fn a_newcomer_that_joins_through_another_member_is_soon_admitted() {
    for seed in 0..20 {
        let mut net = Net::cluster(seed, 3);
        net.until(2000, Net::healed);
        let leader = net.leaders()[0];
        net.seeds[3] = vec![(leader + 1) % 3];
        net.start(3);
        let took = net.until(4000, |net| net.process(3).view.is_some());
        assert!(took < 300, "seed {seed}: {took}");
    }
}

#[test]
fn a_fresh_cluster_of_one_gives_way_to_the_living_cluster() {
    let mut net = Net::new(8, vec![vec![], vec![0], vec![0]]);
    net.start(0);
    net.run_ms(100);
    (1..3).for_each(|s| _ = net.start(s));
    net.until(5000, |net| net.healed() && net.processes.len() == 3);
    net.kill(0);
    net.run_ms(3000);
    net.start(0);
    net.until(8000, |net| {
        net.healed() && net.agreed().is_some_and(|t| t.members.len() == 3)
    });
}

#[test]
fn a_used_cluster_of_one_never_gives_way() {
    let mut net = Net::new(8, vec![vec![], vec![0], vec![0]]);
    (0..3).for_each(|s| _ = net.start(s));
    net.until(5000, |net| net.healed() && net.processes.len() == 3);
    net.kill(0);
    net.run_ms(3000);
    let mut alone = net;
    alone.start(0);
    alone.run_ms(1);
    alone.input(0, Input::Used);
    alone.run_ms(5000);
    assert_eq!(alone.process(0).used_ok, 1);
    assert_eq!(alone.table(0).members.len(), 1);
    // Both sides say so, until nothing was heard of the other for half a minute.
    let told = |net: &Net, slot| {
        net.process(slot)
            .events
            .iter()
            .filter(|e| matches!(e, Event::OtherCluster { .. }))
            .count()
    };
    let met = |net: &Net, slot| net.others(slot);
    assert_eq!(
        (told(&alone, 0), met(&alone, 0)),
        (1, vec![alone.table(1).cluster])
    );
    assert!(
        (1..3).any(|slot| told(&alone, slot) == 1 && met(&alone, slot) == [alone.table(0).cluster])
    );
    alone.run_ms(40_000);
    assert_eq!(met(&alone, 0).len(), 1, "they still hear each other");
    alone.kill(0);
    alone.run_ms(28_000);
    assert!((1..3).any(|slot| met(&alone, slot).len() == 1));
    alone.run_ms(4_000);
    for slot in 1..3 {
        assert_eq!(met(&alone, slot), []);
        let gone = alone
            .process(slot)
            .events
            .iter()
            .filter(|e| matches!(e, Event::OtherClusterGone { .. }))
            .count();
        assert_eq!(
            (told(&alone, slot), gone),
            if gone == 1 { (1, 1) } else { (0, 0) }
        );
    }
}

/// A member of the other cluster was started again and joined this one. This cluster's members were
/// not ready for half a minute all the same.
#[test]
fn another_cluster_is_forgotten_once_its_member_joins_this_one() {
    let mut net = Net::new(8, vec![vec![], vec![0], vec![0]]);
    (0..3).for_each(|s| _ = net.start(s));
    net.until(5000, |net| net.healed() && net.processes.len() == 3);
    net.kill(0);
    net.run_ms(3000);
    net.start(0);
    net.run_ms(1);
    net.input(0, Input::Used);
    net.run_ms(5000);
    let other = net.table(0).cluster;
    let told: Vec<usize> = (1..3).filter(|slot| net.others(*slot) == [other]).collect();
    assert!(!told.is_empty());
    net.kill(0);
    net.run_ms(1000);
    assert!(
        told.iter().all(|slot| net.others(*slot) == [other]),
        "it may only be out of reach"
    );
    net.start(0);
    net.until(8000, |net| {
        net.healed() && net.agreed().is_some_and(|t| t.members.len() == 3)
    });
    // Well within the half minute of silence.
    net.until(3000, |net| (0..3).all(|slot| net.others(slot).is_empty()));
    for slot in told {
        let gone = |e: &Event| {
            matches!(e, Event::OtherClusterGone { cluster, joined: Some(_) }
                if *cluster == other.to_string())
        };
        assert_eq!(
            net.process(slot).events.iter().filter(|e| gone(e)).count(),
            1
        );
    }
}

/// A newcomer said only which cluster it waits for. And the survivor's hint named a process that
/// had just been started again.
#[test]
fn a_newcomer_at_a_cluster_without_a_majority_says_at_which_member_it_waits() {
    let mut net = Net::new(8, vec![vec![], vec![0], vec![0], vec![0, 1, 2]]);
    (0..3).for_each(|s| _ = net.start(s));
    net.until(5000, |net| net.healed() && net.processes.len() == 3);
    (0..2).for_each(|slot| net.kill(slot));
    net.start(3);
    net.run_ms(5_000);
    let waiting = |slot| {
        let process = net.process(slot);
        process
            .agreement
            .status(net.local(process))
            .waiting
            .unwrap_or_default()
    };
    let cluster = net.table(2).cluster;
    let newcomer = waiting(3);
    let by = format!(
        "waits to be admitted to {cluster} by n2 at {}, for ",
        super::net::address(2)
    );
    assert!(
        newcomer.starts_with(&by) && !newcomer.contains("for 0 s"),
        "{newcomer}"
    );
    let survivor = waiting(2);
    assert!(
        survivor.starts_with("this node is probably the one that is cut off: it reaches 1 of 3"),
        "{survivor}"
    );
}

/// A warning said "2 of 2 initial members are here".
#[test]
fn initial_members_that_are_all_here_are_no_warning() {
    for after in (2_300..2_600).step_by(2) {
        let mut net = Net::new(after, vec![vec![0, 1], vec![0, 1]]);
        net.expect = Some(2);
        net.start(0);
        net.run_ms(after);
        net.start(1);
        net.until(5_000, |net| {
            net.agreed().is_some_and(|t| t.members.len() == 2)
        });
        let said = |e: &Event| matches!(e, Event::NoCoordinator { why } if why.contains("2 of 2"));
        assert!(
            !net.processes.values().any(|p| p.events.iter().any(said)),
            "after {after} ms"
        );
    }
}

/// Nodes with one seed, which leads each of them to another node, and some to themselves.
fn behind_a_balancer(seed: u64, count: usize) -> Net {
    const FRONT: usize = 90;
    let mut net = Net::new(seed, vec![vec![FRONT]; count]);
    let backs = (0..count)
        .map(|_| net.below(count as u64) as usize)
        .collect();
    net.balancer = Some((FRONT, backs));
    net
}

/// A node that was led to itself began a cluster, and so did each two nodes that were led to each
/// other. There were two clusters, and no node said a word.
#[test]
fn nodes_behind_a_balancer_are_one_cluster() {
    for seed in 0..30 {
        let mut net = behind_a_balancer(seed, 4);
        (0..4).for_each(|slot| _ = net.start(slot));
        net.run_ms(9_000);
        assert!(
            net.processes.values().all(|p| p.view.is_none()),
            "seed {seed}: {:#?}",
            net.summary()
        );
        let by_itself = "begins one by itself";
        let waits =
            |e: &Event| matches!(e, Event::NoCoordinator { why } if why.contains(by_itself));
        assert!(
            net.processes.values().all(|p| p.events.iter().any(waits)),
            "seed {seed}"
        );
        net.until(40_000, |net| {
            net.healed() && net.agreed().is_some_and(|t| t.members.len() == 4)
        });
        assert_eq!(
            net.clusters().len(),
            1,
            "seed {seed}: one begins, and the others join it"
        );
    }
}

/// The node said that no other node was found at the seeds, though there were others, and that it
/// had looked for 10 s, though it was 20 s.
#[test]
fn a_node_that_begins_by_itself_says_what_it_found_and_for_how_long_it_looked() {
    let said = |net: &Net, slot: usize| {
        let notes = net.process(slot).events.iter().filter_map(|e| {
            if let Event::Note { text } = e {
                Some(text.clone())
            } else {
                None
            }
        });
        notes
            .filter(|text| text.contains("begins a cluster by itself"))
            .collect::<Vec<_>>()
    };
    for seed in 0..5 {
        let mut net = behind_a_balancer(seed, 2);
        net.balancer = Some((90, vec![1, 0]));
        let ids = [0, 1].map(|slot| net.start(slot));
        let (first, second) = if ids[0] < ids[1] { (0, 1) } else { (1, 0) };
        let held_up = seed % 2 == 1;
        if held_up {
            // The node whose turn it is waits for a seed at which no node answers.
            let seeds = [90, 89].map(super::net::address).into_iter().collect();
            net.input(first, Input::Seeds(seeds));
        }
        net.run_ms(5_000);
        let waiting = net
            .process(second)
            .agreement
            .status(Time::ZERO)
            .waiting
            .unwrap();
        assert!(
            waiting.contains(&format!(
                "n{first} is to begin a cluster by itself, which this node then joins"
            )),
            "{waiting}"
        );
        assert!(
            waiting.contains("leads to nodes at other addresses"),
            "{waiting}"
        );
        net.until(40_000, |net| {
            net.agreed().is_some_and(|t| t.members.len() == 2)
        });
        let (begins, other, seconds) = if held_up {
            (second, first, 20)
        } else {
            (first, second, 10)
        };
        let note = format!(
            "leads to nodes at other addresses (those found: n{other}), and no cluster was found \
             for {seconds} s: this node"
        );
        assert!(
            matches!(&said(&net, begins)[..], [text] if text.contains(&note)),
            "seed {seed}: {:?}",
            said(&net, begins)
        );
        assert_eq!(said(&net, other), Vec::<String>::new(), "seed {seed}");
    }
    let mut net = Net::new(1, vec![vec![0]]);
    net.named = true;
    net.start(0);
    net.until(20_000, |net| net.process(0).view.is_some());
    assert!(
        matches!(&said(&net, 0)[..], [text]
            if text.contains("no other node answered at the seeds (doyen:7000) for 10 s")),
        "{:?}",
        said(&net, 0)
    );
}

/// Under load, the node whose turn it was to begin said nothing for more than a second, just when
/// the others had looked for long enough. Then two nodes began a cluster, and each got a member
/// before it heard of the other cluster.
#[test]
fn a_node_whose_turn_it_is_may_be_silent_for_a_moment() {
    for seed in 0..10 {
        let mut net = behind_a_balancer(seed, 2);
        // Each is led to itself, and finds the other one when it looks from another port.
        net.balancer = Some((90, vec![0, 1]));
        let ids = [0, 1].map(|slot| net.start(slot));
        let (first, second) = if ids[0] < ids[1] { (0, 1) } else { (1, 0) };
        net.run_ms(8_500);
        net.pause_ms(first, 4_000);
        net.run_ms(3_900);
        assert!(
            net.process(second).view.is_none(),
            "seed {seed}: it began, though it had heard the other one"
        );
        net.until(20_000, |net| {
            net.agreed().is_some_and(|t| t.members.len() == 2)
        });
        let begins = |e: &Event| matches!(e, Event::Note { text } if text.contains("begins a"));
        assert!(net.process(first).events.iter().any(begins), "seed {seed}");
        assert_eq!(net.clusters().len(), 1, "seed {seed}");
    }
}

/// The control: a node whose turn it was and that died holds up the others for 20 s at most.
#[test]
fn a_node_whose_turn_it_was_and_that_died_is_not_waited_for() {
    let mut net = behind_a_balancer(1, 2);
    net.balancer = Some((90, vec![0, 1]));
    let ids = [0, 1].map(|slot| net.start(slot));
    let (first, second) = if ids[0] < ids[1] { (0, 1) } else { (1, 0) };
    net.run_ms(5_000);
    net.kill(first);
    net.until(20_000, |net| net.process(second).view.is_some());
}

#[test]
fn nodes_behind_a_balancer_that_know_their_number_do_not_wait() {
    for seed in 0..30 {
        let mut net = behind_a_balancer(seed, 4);
        net.expect = Some(4);
        (0..4).for_each(|slot| _ = net.start(slot));
        net.until(9_000, |net| {
            net.healed() && net.agreed().is_some_and(|t| t.members.len() == 4)
        });
    }
}

/// Two clusters that hold data, and one balancer before both.
#[test]
fn clusters_behind_one_balancer_hear_of_each_other() {
    let mut net = behind_a_balancer(3, 4);
    net.balancer = Some((90, vec![1, 0, 3, 2]));
    net.seeds = vec![vec![0, 1], vec![0, 1], vec![2, 3], vec![2, 3]];
    (0..4).for_each(|slot| _ = net.start(slot));
    net.until(5_000, |net| {
        net.processes.values().all(|p| {
            p.view
                .as_ref()
                .is_some_and(|v| v.installed.members.len() == 2)
        })
    });
    net.run_ms(5_000);
    assert!((0..4).all(|slot| net.others(slot).is_empty()));
    (0..4).for_each(|slot| {
        net.input(
            slot,
            Input::Seeds([super::net::address(90)].into_iter().collect()),
        )
    });
    net.until(20_000, |net| (0..4).all(|slot| net.others(slot).len() == 1));
}

/// A name with one address for each node that runs. Each node found itself alone at first, and
/// began a cluster of its own.
#[test]
fn nodes_whose_name_is_not_complete_yet_wait_for_each_other() {
    for seed in 0..10 {
        let mut net = Net::new(seed, (0..3).map(|slot| vec![slot]).collect());
        net.named = true;
        (0..3).for_each(|slot| _ = net.start(slot));
        net.run_ms(5_000);
        assert!(net.processes.values().all(|p| p.view.is_none()));
        (0..3).for_each(|slot| net.resolve(slot, vec![0, 1, 2]));
        net.until(4_000, |net| {
            net.agreed().is_some_and(|t| t.members.len() == 3)
        });
        assert_eq!(net.clusters().len(), 1);
    }
}

/// One of the nodes is too late: it begins alone, and gives way to the others when it hears of
/// them.
#[test]
fn a_node_that_began_alone_by_its_name_joins_the_others() {
    let mut net = Net::new(5, (0..3).map(|slot| vec![slot]).collect());
    net.named = true;
    net.start(0);
    net.until(12_000, |net| net.process(0).view.is_some());
    let said = |e: &Event| {
        matches!(e, Event::Note { text }
            if text.contains("doyen:7000") && text.contains("by itself"))
    };
    assert!(
        net.process(0).events.iter().any(said),
        "{:?}",
        net.process(0).events
    );
    net.seeds[1] = vec![1, 2];
    net.seeds[2] = vec![1, 2];
    (1..3).for_each(|slot| _ = net.start(slot));
    net.until(4_000, |net| {
        net.process(1).view.is_some() && net.process(2).view.is_some()
    });
    net.resolve(0, vec![0, 1, 2]);
    net.until(5_000, |net| {
        net.healed() && net.agreed().is_some_and(|t| t.members.len() == 3)
    });
}

#[test]
fn a_node_that_is_alone_at_its_seed_waits_unless_it_is_told_or_has_its_own_address() {
    let began = |seeds: Vec<usize>, named, expect| {
        let mut net = Net::new(7, vec![seeds]);
        (net.named, net.expect, net.drift) = (named, expect, false);
        net.start(0);
        net.until(30_000, |net| net.process(0).view.is_some())
    };
    assert!(began(vec![], false, None) < 10);
    for (named, expect) in [(false, None), (false, Some(1)), (true, Some(1))] {
        let after = began(vec![0], named, expect);
        assert!(
            (1_000..1_500).contains(&after),
            "named {named}, expect {expect:?}: {after} ms"
        );
    }
    let after = began(vec![0], true, None);
    assert!((10_000..11_500).contains(&after), "{after} ms");
}

/// A resolver that failed for a moment took the seeds away, and a node without seeds is a cluster
/// at once.
#[test]
fn a_name_that_does_not_resolve_begins_nothing() {
    let mut net = Net::new(7, vec![vec![0]; 2]);
    net.named = true;
    net.start(0);
    net.run_ms(500);
    net.resolve(0, vec![]);
    net.run_ms(60_000);
    assert!(net.process(0).view.is_none());
    let says = |e: &Event| {
        matches!(e, Event::NoCoordinator { why }
            if why.contains("1 of 2") && why.contains("doyen:7000"))
    };
    assert!(
        net.process(0).events.iter().any(says),
        "{:?}",
        net.process(0).events.last()
    );
    // Its time begins when the name leads to an address again.
    net.resolve(0, vec![0]);
    net.run_ms(8_000);
    assert!(net.process(0).view.is_none());
    net.until(4_000, |net| net.process(0).view.is_some());
}

#[test]
fn a_node_that_waits_for_initial_members_names_those_that_are_here() {
    let mut net = Net::new(11, vec![vec![0]; 2]);
    net.expect = Some(3);
    (0..2).for_each(|slot| _ = net.start(slot));
    net.run_ms(10_000);
    for slot in 0..2 {
        let waiting = net
            .process(slot)
            .agreement
            .status(crate::time::Time(u64::MAX))
            .waiting
            .unwrap();
        assert!(
            waiting.contains("2 of 3") && waiting.contains("n0") && waiting.contains("n1"),
            "{waiting}"
        );
    }
}

#[test]
fn a_hung_data_thread_deposes_its_node() {
    let mut net = Net::cluster(9, 3);
    net.until(2000, Net::healed);
    let leader = net.leaders()[0];
    let id = net.at(leader).unwrap();
    net.processes.get_mut(&id).unwrap().data_hangs = true;
    net.until(4000, |net| {
        net.leaders().len() == 1 && net.leaders()[0] != leader
    });
}

#[test]
fn a_map_is_created_once_from_any_node() {
    let mut net = Net::cluster(10, 3);
    for slot in 0..3 {
        let request = AdminRequest::CreateMap {
            name: "users".into(),
            keyspace: "default".into(),
        };
        net.input(slot, Input::Admin { ticket: 1, request });
    }
    net.run_ms(1000);
    for slot in 0..3 {
        let [(1, AdminReply::Done(Some(entry)))] = &net.process(slot).replies[..] else {
            panic!("{:?}", net.process(slot).replies)
        };
        assert_eq!(entry.id.0, 1);
    }
}

/// After each of these, `doyen status` said `not safe` until a plan was made that changed nothing.
#[test]
fn a_map_or_a_user_needs_no_plan_and_a_keyspace_does() {
    let mut net = Net::cluster(10, 3);
    net.until(3000, |net| net.healed() && !plans(net));
    net.run_ms(1000);
    let map = AdminRequest::CreateMap {
        name: "users".into(),
        keyspace: "default".into(),
    };
    let token = AccessChange {
        tokens: vec![TokenChange {
            name: "ci".into(),
            before: None,
            after: Some(TokenGrant {
                role: TokenRole::Read,
                sha256: [7; 32],
                made: 0,
            }),
        }],
        ..AccessChange::default()
    };
    let keyspace = wanted("orders", Mode::Fixed { partitions: 8 }, Division::Slots);
    for (slot, request, planned) in [
        (2, AdminRequest::CreateKeyspace(keyspace), true),
        (0, map, false),
        (1, AdminRequest::ChangeAccess(token), false),
    ] {
        let version = net.table(0).version;
        net.input(slot, Input::Admin { ticket: 7, request });
        assert!(!plans(&net));
        let mut seen = false;
        for _ in 0..1000 {
            net.run_ms(1);
            seen |= plans(&net);
        }
        assert!(net.table(0).version > version, "it is committed");
        assert_eq!(seen, planned, "at version {version:?}");
    }
}

/// Whether a coordinator waits for a plan, or has one that is not in a table yet.
fn plans(net: &Net) -> bool {
    net.leaders().into_iter().any(|slot| {
        let process = net.process(slot);
        process.agreement.status(net.local(process)).planning
    })
}

/// A keyspace without backups, as people ask for it.
fn wanted(name: &str, mode: Mode, division: Division) -> NewKeyspace {
    NewKeyspace {
        name: name.into(),
        mode,
        division,
        backups: 0,
        min_in_sync: 1,
        on_loss: OnLoss::Wait,
        default_ttl_ms: None,
        eviction: Eviction::None,
        ordered: false,
        rules: Vec::new(),
        durability: None,
    }
}

/// Nine members, of whom two do not vote: no ordinary member asks those two.
#[test]
fn a_question_to_all_members_names_those_that_do_not_answer() {
    let mut net = Net::cluster(12, 9);
    let unproven = |net: &Net, since| {
        let process = net.process(0);
        process.agreement.unproven(since)
    };
    for victim in [None, Some(8), Some(1)] {
        let id = victim.and_then(|slot| net.at(slot));
        if let Some(slot) = victim {
            net.kill(slot);
        }
        let since = net.local(net.process(0));
        let members = net.table(0).members.len() - 1;
        assert_eq!(
            unproven(&net, since).len(),
            members,
            "no member was asked yet"
        );
        net.input(0, Input::Prove);
        net.run_ms(250);
        assert_eq!(unproven(&net, since), Vec::from_iter(id));
        net.run_ms(6_000);
    }
}

/// The answer to a request at one node.
fn asked(net: &mut Net, slot: usize, ticket: u64, request: AdminRequest) -> AdminReply {
    net.input(slot, Input::Admin { ticket, request });
    net.until(5000, |net| {
        net.process(slot).replies.iter().any(|(t, _)| *t == ticket)
    });
    let reply = net.process(slot).replies.iter().find(|(t, _)| *t == ticket);
    reply.map(|(_, reply)| reply.clone()).expect("it came")
}

#[test]
fn keyspaces_come_change_and_go_while_the_cluster_lives() {
    let mut net = Net::cluster(11, 3);
    let wanted = wanted("orders", Mode::Fixed { partitions: 8 }, Division::Slots);
    for ticket in 1..3 {
        let reply = asked(
            &mut net,
            2,
            ticket,
            AdminRequest::CreateKeyspace(wanted.clone()),
        );
        assert_eq!(reply, AdminReply::Done(None), "asked again it is there");
    }
    let other = NewKeyspace {
        backups: 1,
        ..wanted
    };
    assert!(matches!(
        asked(&mut net, 1, 3, AdminRequest::CreateKeyspace(other)),
        AdminReply::Refused(_)
    ));
    let change = KeyspaceChange {
        backups: Some(2),
        ..KeyspaceChange::default()
    };
    assert_eq!(
        asked(
            &mut net,
            1,
            4,
            AdminRequest::AlterKeyspace {
                name: "orders".into(),
                change
            }
        ),
        AdminReply::Done(None)
    );
    let copied = |table: &Table| {
        let orders = table.keyspace_named("orders").expect("it is there");
        orders
            .partitions
            .iter()
            .all(|p| p.in_sync().count() == 3 && p.goal.is_none())
    };
    net.until(10_000, |net| {
        net.agreed().is_some_and(|table| copied(&table))
    });
    assert_eq!(
        asked(
            &mut net,
            0,
            5,
            AdminRequest::DropKeyspace {
                name: "orders".into()
            }
        ),
        AdminReply::Done(None)
    );
    net.until(2000, |net| {
        net.agreed()
            .is_some_and(|table| table.keyspace_named("orders").is_none())
    });
    assert!(matches!(
        asked(
            &mut net,
            0,
            6,
            AdminRequest::DropKeyspace {
                name: "orders".into()
            }
        ),
        AdminReply::Refused(_)
    ));
}

#[test]
fn neighbours_that_are_held_elsewhere_come_together_to_be_merged() {
    let mut net = Net::cluster(12, 3);
    let wanted = wanted("names", Mode::Range, Division::split_at(["m"]).unwrap());
    assert_eq!(
        asked(&mut net, 1, 1, AdminRequest::CreateKeyspace(wanted)),
        AdminReply::Done(None)
    );
    let names = |net: &Net| {
        net.agreed()
            .and_then(|table| table.keyspace_named("names").cloned())
    };
    net.until(5000, |net| {
        names(net).is_some_and(|k| k.partitions.len() == 2)
    });
    let before = names(&net).unwrap();
    assert_ne!(
        before.partitions[0].primary(),
        before.partitions[1].primary(),
        "the test needs them apart"
    );
    let merge = AdminRequest::MergeAt {
        keyspace: "names".into(),
        map: doyen_placement::MapId(0),
        key: b"m".as_slice().into(),
    };
    assert_eq!(asked(&mut net, 2, 2, merge.clone()), AdminReply::Done(None));
    net.until(20_000, |net| {
        names(net).is_some_and(|k| k.partitions.len() == 1)
    });
    assert!(
        matches!(asked(&mut net, 0, 3, merge), AdminReply::Refused(_)),
        "no range begins there any more"
    );
}

#[test]
fn three_of_seven_killed_at_once_leave_a_working_cluster() {
    for seed in 0..5 {
        let mut net = Net::cluster(seed, 7);
        net.until(4000, Net::healed);
        let leader = net.leaders()[0];
        for slot in [leader, (leader + 1) % 7, (leader + 2) % 7] {
            net.kill(slot);
        }
        net.until(12_000, |net| {
            net.healed() && net.agreed().is_some_and(|t| t.members.len() == 4)
        });
    }
}

#[test]
fn stale_term_vote_is_refused_with_the_term() {
    let mut net = Net::cluster(11, 3);
    net.until(2000, Net::healed);
    let leader = net.leaders()[0];
    let (voter, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let accepted = net.table(voter).name();
    let ballot = Ballot {
        term: accepted.term,
        accepted,
    };
    let answer = net.ask(voter, other, Message::Vote(ballot));
    assert!(
        matches!(
            answer[..],
            [Message::VoteAnswer(BallotAnswer { granted: false, mine, .. }, None)]
                if mine == accepted.term
        ),
        "{answer:?}"
    );
    // A member that hears a coordinator would not even vote in the term after.
    let answer = net.ask(
        voter,
        other,
        Message::PreVote(Ballot {
            term: accepted.term.next(),
            accepted,
        }),
    );
    assert!(
        matches!(
            answer[..],
            [Message::PreVoteAnswer(BallotAnswer { granted: false, .. })]
        ),
        "{answer:?}"
    );
}

#[test]
fn a_voter_votes_once_a_term_and_never_for_a_candidate_with_an_older_table() {
    let mut net = Net::cluster(12, 3);
    net.until(2000, Net::healed);
    let leader = net.leaders()[0];
    let (voter, other) = ((leader + 1) % 3, (leader + 2) % 3);
    // A voter that hears a coordinator gives no vote.
    net.cut(voter, leader);
    net.cut(voter, other);
    net.run_ms(1500);
    let accepted = net.table(voter).name();
    let term = accepted.term.next();
    let behind = TableName {
        version: Version(accepted.version.0 - 1),
        ..accepted
    };
    let granted = |answer: &[Message]| {
        matches!(
            answer,
            [Message::VoteAnswer(
                BallotAnswer { granted: true, .. },
                Some(_)
            )]
        )
    };
    assert!(!granted(&net.ask(
        voter,
        other,
        Message::Vote(Ballot {
            term,
            accepted: behind
        })
    )));
    assert!(granted(&net.ask(
        voter,
        other,
        Message::Vote(Ballot { term, accepted })
    )));
    assert!(granted(&net.ask(
        voter,
        other,
        Message::Vote(Ballot { term, accepted })
    )));
    assert!(!granted(&net.ask(
        voter,
        leader,
        Message::Vote(Ballot { term, accepted })
    )));
}

#[test]
fn proposals_and_commits_of_strangers_and_of_old_terms_change_nothing() {
    let mut net = Net::cluster(13, 3);
    net.until(2000, Net::healed);
    let leader = net.leaders()[0];
    let (follower, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let mut next = (*net.table(follower)).clone();
    let committed = next.name();
    next.version = next.version.next();
    let (voters, name) = (next.voters.clone(), next.name());
    let propose = |table: Table| {
        let (name, payload) = (table.name(), Payload::Whole(table.into()));
        Message::Propose(Box::new(Proposal {
            name,
            committed,
            commit: None,
            voters: voters.clone(),
            payload,
        }))
    };
    // Another member coordinates in this term.
    assert_eq!(net.ask(follower, other, propose(next.clone())), []);
    let commit = Commit {
        name,
        predecessor: committed,
        ages: Vec::new(),
        seals: Vec::new(),
    };
    assert!(
        !net.ask(follower, other, Message::Commit(Box::new(commit)))
            .iter()
            .any(|m| matches!(m, Message::Ack(_)))
    );
    // An old term is refused, with the present one.
    next.term = Term(next.term.0 - 1);
    let answer = net.ask(follower, other, propose(next.clone()));
    assert!(
        matches!(answer[..], [Message::Refuse { term, .. }] if term == committed.term),
        "{answer:?}"
    );
    // A term that no number of elections reaches, and an invalid table.
    next.term = Term(u64::MAX);
    assert_eq!(net.ask(follower, other, propose(next.clone())), []);
    next.term = committed.term.next();
    next.voters.clear();
    // A later term needs a proof.
    let answer = net.ask(follower, other, propose(next));
    assert!(
        matches!(answer[..], [Message::AskElectionProof { .. }]),
        "{answer:?}"
    );
    assert_eq!(net.table(follower).name(), committed);
    assert!(net.process(follower).agreement.ignored() >= 2);
}

/// Random faults, and then none. The cluster must heal, and all invariants must hold all the time
/// (`Net` checks after every event).
fn storm(seed: u64) {
    let mut net = Net::new(seed, vec![(0..3).collect(); 7]);
    let count = 3 + usize::try_from(net.below(3)).unwrap();
    (0..count).for_each(|s| _ = net.start(s));
    net.hints = net.below(2) == 0;
    net.run_ms(2500);
    for _ in 0..12 {
        let slot = usize::try_from(net.below(count as u64)).unwrap();
        let other = usize::try_from(net.below(count as u64)).unwrap();
        match net.below(9) {
            0 if net.at(slot).is_some() && net.processes.len() > 2 => net.kill(slot),
            1 if net.at(slot).is_none() => _ = net.start(slot),
            2 if net.at(slot).is_some() => {
                let ms = 50 + net.below(3000);
                net.pause_ms(slot, ms);
            }
            3 if slot != other => _ = net.cuts.insert((slot, other)),
            4 if slot != other => net.cut(slot, other),
            5 => net.loss_percent = net.below(30),
            6 => net.delay = (MS / 5, MS * (1 + net.below(80))),
            7 => net.cuts.clear(),
            _ => {}
        }
        let ms = net.below(1500);
        net.run_ms(ms);
    }
    net.cuts.clear();
    net.loss_percent = 0;
    net.delay = (MS / 5, 2 * MS);
    for slot in 0..count {
        if net.at(slot).is_none() {
            net.start(slot);
        }
    }
    net.run_ms(3000);
    // The operator helps if a majority of the voters is gone for good.
    for _ in 0..3 {
        if let Some((slot, dead)) = net.stuck() {
            net.forget_commits_of_the_dead();
            net.recover(slot, dead);
            net.run_ms(3000);
        } else if net.leaders().is_empty() {
            // All survivors were expelled by members that are gone now. That cluster is lost, and
            // no member claims otherwise.
            return;
        }
    }
    net.until(30_000, Net::healed);
}

/// The seeds; `DOYEN_STORM=first..last` selects others.
fn storms() -> std::ops::Range<u64> {
    let text = std::env::var("DOYEN_STORM").unwrap_or_default();
    let range = text
        .split_once("..")
        .and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    range.unwrap_or(0..150)
}

#[test]
fn random_storms_break_nothing_and_heal() {
    for seed in storms() {
        let result = std::panic::catch_unwind(|| storm(seed));
        if let Err(panic) = result {
            println!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn a_crowd_is_let_in_and_asks_no_more_than_it_needs() {
    for seed in 0..2 {
        let mut net = Net::crowd(seed, 20);
        net.run_ms(1000);
        let table = net.table(0);
        let leader = net.process(net.leaders()[0]).agreement.id();
        net.pings.clear();
        net.run_ms(1000);
        for member in &table.members {
            let sent = |to: &dyn Fn(MemberId) -> bool| {
                net.pings
                    .iter()
                    .filter(|((f, t), _)| *f == member.id && to(*t))
                    .map(|(_, n)| n)
                    .sum::<u32>()
            };
            let votes = |m: MemberId| table.voters.contains(&m);
            let (voters, others) = (sent(&votes), sent(&|m| !votes(m)));
            if member.id == leader {
                // Six other voters at ten a second, thirteen others at five.
                assert!(
                    (54..=72).contains(&voters) && (58..=72).contains(&others),
                    "{voters} {others}"
                );
            } else if votes(member.id) {
                assert!(
                    (54..=72).contains(&voters) && others == 0,
                    "{voters} {others}"
                );
            } else {
                // A majority of seven at five a second.
                assert!(
                    (16..=26).contains(&voters) && others == 0,
                    "{voters} {others}"
                );
                assert_eq!(
                    sent(&|m| m == leader),
                    0,
                    "the coordinator has enough to do"
                );
            }
        }
    }
}

#[test]
fn in_a_crowd_a_death_is_noticed_without_a_hint_and_no_lease_waits_for_the_dead() {
    for seed in 0..2 {
        for voter in [true, false] {
            let mut net = Net::crowd(seed, 20);
            net.run_ms(1000);
            let (table, leader) = (net.table(0), net.leaders()[0]);
            let fits = |slot: &usize| {
                *slot != leader
                    && table.voters.contains(&net.process(*slot).agreement.id()) == voter
            };
            let victim = (0..20).find(fits).unwrap();
            net.kill(victim);
            let leases = |net: &Net| {
                (0..20)
                    .filter(|s| *s != victim && net.holds_lease(*s))
                    .count()
            };
            let (mut took, mut least) = (0, usize::MAX);
            while net.agreed().is_none_or(|t| t.members.len() != 19) {
                net.run_ms(10);
                took += 10;
                least = least.min(leases(&net));
                assert!(took <= 1000, "seed {seed}, voter {voter}");
            }
            assert_eq!(least, 19, "seed {seed}, voter {voter}: a lease lapsed");
        }
    }
}

#[test]
fn in_a_crowd_the_death_of_the_coordinator_is_noticed_by_all() {
    for seed in 0..2 {
        let mut net = Net::crowd(seed, 20);
        net.run_ms(1000);
        let leader = net.leaders()[0];
        net.kill(leader);
        let (mut took, mut least) = (0, usize::MAX);
        while net.agreed().is_none_or(|t| t.members.len() != 19) {
            net.run_ms(10);
            took += 10;
            least = least.min(
                (0..20)
                    .filter(|s| *s != leader && net.holds_lease(*s))
                    .count(),
            );
            assert!(took < 1200, "seed {seed}");
        }
        assert!(took > 550, "{took}");
        assert_eq!(least, 19, "seed {seed}: a lease lapsed");
    }
}

/// Prints what a table costs, too: `cargo test -p doyen-gossip fifty -- --nocapture`.
#[test]
fn fifty_members_have_a_table_within_200_ms() {
    let mut net = Net::new(1, vec![vec![0, 1, 2]; 50]);
    net.partitions = 256;
    net.delay = (MS, MS + 1);
    (0..50).for_each(|slot| _ = net.start(slot));
    let mut waited = 0;
    while !net.healed() {
        net.run_ms(100);
        waited += 100;
        assert!(waited < 60_000, "{:#?}", net.summary());
    }
    let leader = net.leaders()[0];
    let map = AdminRequest::CreateMap {
        name: "users".into(),
        keyspace: "default".into(),
    };
    let backups = |n| AdminRequest::AlterKeyspace {
        name: "default".into(),
        change: KeyspaceChange {
            backups: Some(n),
            ..KeyspaceChange::default()
        },
    };
    for (what, request) in [
        ("a map", map),
        ("the number of copies of a keyspace", backups(0)),
    ] {
        let before = net.table(leader);
        net.sent = Some(BTreeMap::new());
        net.input(leader, Input::Admin { ticket: 1, request });
        // Others may follow it, until no member has the table before it any more.
        let took = net.until(5000, |net| {
            (0..50).all(|slot| net.table(slot).version > before.version)
        });
        let sent = net.sent.take().expect("it was counted");
        let leads = net.process(leader).agreement.id();
        let others = sent
            .iter()
            .filter(|(id, _)| **id != leads)
            .map(|(_, bytes)| bytes)
            .sum::<usize>();
        println!(
            "{what}: at all 50 after {took} ms, the coordinator sent {} bytes, all others {others}",
            sent[&leads]
        );
        assert!(took <= 200, "{what}: {took} ms");
        assert!(sent[&leads] > 49 * 20, "it told every member");
    }
}
