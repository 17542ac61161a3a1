//! The simulator must show the known properties of each strategy.

use super::cluster::{SimulatedCluster, SimulatedEvent};
use super::comparison::run;
use super::figures::StrategyOutcome;
use super::keys::{SimulatedDistribution, SimulatedKeys};
use super::strategy::{Strategy, StrategyKind, StrategyOptions};
use doyen_placement::MemberId;
use std::collections::BTreeSet;

const KEYS: usize = 20_000;

fn simulated(
    kind: StrategyKind,
    nodes: usize,
    events: &[&str],
    copies: usize,
    zones: &[&str],
    keys: &SimulatedKeys,
) -> StrategyOutcome {
    let events: Vec<SimulatedEvent> = events
        .iter()
        .map(|e| e.parse().expect("an event"))
        .collect();
    let zones: Vec<String> = zones.iter().map(|z| (*z).to_owned()).collect();
    let stages = SimulatedCluster::new(nodes, &[], &zones)
        .and_then(|c| c.stages(&events))
        .expect("possible");
    let mut strategy = kind.strategy(&StrategyOptions {
        copies,
        partitions: 1024,
        seed: 7,
        keys,
    });
    run(
        &kind.to_string(),
        strategy.as_mut(),
        &stages,
        keys,
        copies,
        Some(16),
    )
}

fn uniform() -> SimulatedKeys {
    SimulatedKeys::drawn(KEYS, SimulatedDistribution::Uniform, 7)
}

#[test]
fn the_classic_comparison_holds() {
    let keys = uniform();
    let moved = |kind| {
        simulated(kind, 4, &["+1"], 1, &[], &keys).stages[1]
            .moved
            .expect("an event")
            .keys
    };
    assert!(
        (moved(StrategyKind::Modulo) - 0.8).abs() < 0.01,
        "a key stays where hash mod 4 is hash mod 5: 4 of 20"
    );
    for kind in StrategyKind::ALL.into_iter().filter(|kind| {
        !matches!(
            kind,
            StrategyKind::Modulo
                | StrategyKind::Ring { random: true, .. }
                | StrategyKind::Ring { tokens: 1, .. }
        )
    }) {
        assert!((moved(kind) - 0.2).abs() < 0.02, "{kind}: {}", moved(kind));
    }
}

#[test]
fn all_but_modulo_move_hardly_more_than_the_least() {
    let keys = uniform();
    for kind in [
        StrategyKind::Fixed,
        StrategyKind::Range,
        StrategyKind::Rendezvous,
        StrategyKind::Ring {
            tokens: 16,
            random: false,
        },
    ] {
        let outcome = simulated(kind, 6, &["+1", "-node2", "x2"], 2, &[], &keys);
        for stage in &outcome.stages[1..] {
            let times = stage
                .moved
                .and_then(|m| m.times())
                .expect("something must move");
            assert!(
                (0.85..1.25).contains(&times),
                "{kind}, {}: {times}",
                stage.event
            );
        }
    }
    let modulo = simulated(StrategyKind::Modulo, 6, &["+1"], 2, &[], &keys);
    assert!(
        modulo.stages[1]
            .moved
            .and_then(|m| m.times())
            .expect("something must move")
            > 2.0
    );
}

#[test]
fn every_strategy_keeps_copies_on_different_nodes_and_zones() {
    let keys = SimulatedKeys::drawn(500, SimulatedDistribution::Zipf(0.99), 7);
    let zones: Vec<String> = ["a", "b", "c"].map(Into::into).to_vec();
    let stages = SimulatedCluster::new(6, &[], &zones)
        .and_then(|c| c.stages(&["+3".parse().expect("an event")]))
        .expect("possible");
    for kind in StrategyKind::ALL {
        let mut strategy: Box<dyn Strategy> = kind.strategy(&StrategyOptions {
            copies: 3,
            partitions: 64,
            seed: 7,
            keys: &keys,
        });
        for stage in &stages {
            strategy.follow(&stage.nodes);
            let zone = |id: &MemberId| {
                stage
                    .nodes
                    .iter()
                    .find(|n| n.id == *id)
                    .map(|n| n.location.zone.clone())
                    .expect("a node that is there")
            };
            for key in keys.iter() {
                let mut holders = Vec::new();
                strategy.holders(key.name, &mut holders);
                let zones: BTreeSet<String> = holders.iter().map(zone).collect();
                assert_eq!((holders.len(), zones.len()), (3, 3), "{kind}: {holders:?}");
            }
            assert!(strategy.table_bytes() > 0);
        }
    }
}

#[test]
fn weights_count_if_the_strategy_knows_them() {
    let keys = uniform();
    for kind in [
        StrategyKind::Fixed,
        StrategyKind::Rendezvous,
        StrategyKind::Ring {
            tokens: 256,
            random: false,
        },
    ] {
        let outcome = simulated(kind, 4, &["node1=300"], 1, &[], &keys);
        assert!(
            outcome.stages[1].keys.max < 1.1,
            "{kind}: {:?}",
            outcome.stages[1].keys
        );
        assert!(outcome.stages[1].nodes[0].keys > 9000);
    }
}

#[test]
fn a_hot_key_shows_and_salting_it_helps() {
    let mut keys = uniform();
    keys.push(b"hot", 100, KEYS as f64);
    let outcome = simulated(StrategyKind::Fixed, 4, &[], 1, &[], &keys);
    let (plain, salted) = (
        outcome.stages[0].load.max,
        outcome.load_salted.expect("asked").max,
    );
    // Half of the load and an eighth of the rest: 2.5 times the fair quarter.
    assert!(
        (2.4..2.6).contains(&plain) && salted < 1.6,
        "{plain}, {salted}"
    );
}

#[test]
fn hashing_spreads_the_newest_keys_and_ranges_follow_the_bytes() {
    let newest = SimulatedKeys::drawn(KEYS, SimulatedDistribution::TimeSeries, 7);
    let load = simulated(StrategyKind::Fixed, 4, &[], 1, &[], &newest).stages[0]
        .load
        .max;
    assert!(load < 1.3, "{load}");
    let counted = SimulatedKeys::drawn(KEYS, SimulatedDistribution::Sequential, 7);
    let bytes = simulated(StrategyKind::Range, 4, &[], 1, &[], &counted).stages[0]
        .bytes
        .max;
    assert!(bytes < 1.05, "{bytes}");
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    for kind in StrategyKind::ALL {
        let told = || {
            format!(
                "{:?}",
                simulated(
                    kind,
                    5,
                    &["+1", "-node1"],
                    2,
                    &["a", "b"],
                    &SimulatedKeys::drawn(300, SimulatedDistribution::Uniform, 3)
                )
            )
        };
        assert_eq!(told(), told());
    }
}

#[test]
fn strategies_are_parsed_by_name() {
    for kind in StrategyKind::ALL {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    for wrong in [
        "",
        "ring",
        "ring-0",
        "ring-16-",
        "ring-5000",
        "fixed2",
        "ring-x-random",
    ] {
        assert!(
            wrong
                .parse::<StrategyKind>()
                .is_err_and(|e| e.to_string().contains("is not a strategy")),
            "{wrong}"
        );
    }
}
