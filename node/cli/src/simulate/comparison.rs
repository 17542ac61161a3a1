//! Runs one strategy through the stages of a cluster, and counts what it does to the keys.

use super::cluster::Stage;
use super::figures::{Imbalance, Outcome, Tally};
use super::keys::Keys;
use super::strategy::Strategy;
use doyen_placement::id::MemberId;

/// In place of a copy that there is not.
pub(super) const NOBODY: MemberId = MemberId(u64::MAX);

/// Lets a strategy follow a cluster through its stages, and tells what it does to these keys. With
/// `salt`, the hottest key's load in the last stage is also spread over so many names.
#[must_use]
pub(super) fn run(
    name: &str,
    strategy: &mut dyn Strategy,
    stages: &[Stage],
    keys: &Keys,
    copies: usize,
    salt: Option<u32>,
) -> Outcome {
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
                    .chain(std::iter::repeat(NOBODY))
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
    Outcome {
        strategy: name.to_owned(),
        stages: figures,
        load_salted,
        table_bytes: strategy.table_bytes(),
        lookup_ns: None,
    }
}

fn salted(
    strategy: &dyn Strategy,
    stage: &Stage,
    keys: &Keys,
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
