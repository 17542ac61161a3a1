//! Some hundreds of seeds of the simulation. A failure is made small and printed, with the command
//! that runs it again.

use doyen_tests::sim::{Failed, Report, Tell, run, run_many, smallest, summary};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Mutex;

/// Number of seeds in the ordinary test run.
const SEEDS: u64 = 300;

/// How many of them run twice.
const TWICE: u64 = 100;

/// Most runs to make a failure small.
const SHRINK_RUNS: usize = 100;

/// Runs the seeds. Returns their reports, by seed.
fn run_all(seeds: std::ops::Range<u64>) -> BTreeMap<u64, Report> {
    let (reports, failure) = (Mutex::new(BTreeMap::new()), Mutex::new(None::<Failed>));
    run_many(seeds, None, |seed| match run(&seed.into(), Tell::Nothing) {
        Ok(report) => {
            reports.lock().unwrap().insert(seed, report);
            ControlFlow::Continue(())
        }
        Err(failed) => {
            *failure.lock().unwrap() = Some(failed);
            ControlFlow::Break(())
        }
    });
    if let Some(failed) = failure.into_inner().unwrap() {
        let (smallest, _) = smallest(&failed, SHRINK_RUNS);
        panic!(
            "{failed}\nmade small:\n{smallest}\nagain: cargo run -p doyen-tests --bin sim -- {}",
            smallest.case
        );
    }
    reports.into_inner().unwrap()
}

#[test]
fn invariants_hold_under_every_mix_of_faults_and_a_seed_replays_exactly() {
    let reports = run_all(0..SEEDS);
    let mut total = Report::default();
    reports.values().for_each(|report| total.add(report));
    println!("{SEEDS} seeds: {}", summary(&total));
    // A suite that did nothing would prove nothing.
    assert!(
        total.tables > SEEDS && total.failovers > 0 && total.moves > 0 && total.congested > 0,
        "{}",
        summary(&total)
    );
    assert!(
        total.answered > total.operations / 2 && total.compared > 0 && total.unknown > 0,
        "{}",
        summary(&total)
    );
    assert!(
        total.read_at_once > 0
            && total.reads_again > 0
            && total.set_at_once > 0
            && total.handed_over > 0,
        "{}",
        summary(&total)
    );
    assert!(
        total.overtaken.iter().sum::<u64>() > 0,
        "{}",
        summary(&total)
    );
    assert!(
        total.caught_up > 0
            && total.expired > 0
            && total.maps > 0
            && total.full > 0
            && total.evicted > 0,
        "{}",
        summary(&total)
    );
    assert!(
        total.finds > 0 && total.found > total.finds,
        "{}",
        summary(&total)
    );
    assert!(
        ["upgrade", "refused for its level"]
            .iter()
            .all(|kind| total.faults.contains_key(kind)),
        "{}",
        summary(&total)
    );
    assert!(
        total.undecided * 50 <= total.judged,
        "too many histories could not be judged: {}",
        summary(&total)
    );

    for (seed, again) in run_all(0..TWICE) {
        let first = &reports[&seed];
        assert_eq!(
            (first.trace, first.events),
            (again.trace, again.events),
            "seed {seed} is not deterministic"
        );
    }
}
