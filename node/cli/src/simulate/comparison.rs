//! Runs one strategy through the stages of a cluster, and counts how it places the keys.

use super::cluster::SimulatedStage;
use super::figures::{Imbalance, StrategyOutcome, Tally};
use super::keys::SimulatedKeys;
use super::strategy::Strategy;
use doyen_placement::id::MemberId;

/// Stands for a copy that does not exist.
pub(super) const NO_HOLDER: MemberId = MemberId(u64::MAX);

/// Runs a strategy through the stages, and returns the figures for these keys. With `salt`, it also
/// computes the load of the last stage with the hottest key spread over `salt` names.
#[must_use]
pub(super) fn run(
    name: &str,
    strategy: &mut dyn Strategy,
    stages: &[SimulatedStage],
    keys: &SimulatedKeys,
    copies: usize,
    salt: Option<u32>,
) -> StrategyOutcome {
    let mut figures = Vec::with_capacity(stages.len());
    let mut before: Vec<MemberId> = Vec::new();
    let mut holders = Vec::with_capacity(copies);
    for (number, stage) in stages.iter().enumerate() {
        strategy.follow(&stage.nodes);
        let mut tally = Tally::new(&stage.nodes, copies);
        let mut now = Vec::with_capacity(keys.len() * copies);
        for key in keys.iter() {
            holders.clear();
            strategy.holders(key.name, &mut holders);
            let was = before.get(now.len()..now.len() + copies);
            tally.add(&key, &holders, was);
            now.extend(
                holders
                    .iter()
                    .copied()
                    .chain(std::iter::repeat(NO_HOLDER))
                    .take(copies),
            );
        }
        let from = number
            .checked_sub(1)
            .map(|before| stages[before].nodes.as_slice());
        figures.push(tally.figures(stage, from));
        before = now;
    }
    let load_salted =
        salt.and_then(|parts| Some(salted(&*strategy, stages.last()?, keys, copies, parts)));
    StrategyOutcome {
        strategy: name.to_owned(),
        stages: figures,
        load_salted,
        table_bytes: strategy.table_bytes(),
        lookup_ns: None,
    }
}

fn salted(
    strategy: &dyn Strategy,
    stage: &SimulatedStage,
    keys: &SimulatedKeys,
    copies: usize,
    parts: u32,
) -> Imbalance {
    let keys = keys.with_hottest_salted(parts);
    let mut tally = Tally::new(&stage.nodes, copies);
    let mut holders = Vec::with_capacity(copies);
    for key in keys.iter() {
        holders.clear();
        strategy.holders(key.name, &mut holders);
        tally.add(&key, &holders, None);
    }
    tally.figures(stage, None).load
}
