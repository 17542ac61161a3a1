//! Some hundreds of seeds of the simulation. A failure prints its seed; `DOYEN_SEED=n cargo test -p doyen-tests --test
//! simulation` replays one with its whole trace.

use doyen_tests::sim::{Report, run, run_many, run_with_trace_on_failure, summary};
use std::ops::ControlFlow;
use std::sync::Mutex;

// As in the binary: a simulation allocates much.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Seeds of the ordinary test run.
const SEEDS: u64 = 300;

/// Seeds that once failed, and for what; each has a unit test, too, because another change may make another run of a seed.
/// 2001: a write was applied again after every copy was lost. 2517 and 4784: a learner never got in with a tail of 1 KiB.
/// 3691: what a dead member alone held waited, though there was somebody to take it. 1707: a member that was cut off until everybody it knew had another identity was never told.
/// 2517, later: a key ended too early because a copy's clock was ahead of its new primary's.
const REGRESSIONS: [u64; 5] = [1707, 2001, 2517, 3691, 4784];

fn replayed() -> Option<u64> {
    std::env::var("DOYEN_SEED").ok()?.parse().ok()
}

fn run_all(seeds: std::ops::Range<u64>) -> Report {
    let (total, failure) = (Mutex::new(Report::default()), Mutex::new(None));
    run_many(seeds, None, |seed| match run_with_trace_on_failure(seed) {
        Ok(report) => {
            total.lock().unwrap().add(&report);
            ControlFlow::Continue(())
        }
        Err(failed) => {
            *failure.lock().unwrap() = Some(failed);
            ControlFlow::Break(())
        }
    });
    if let Some(failed) = failure.into_inner().unwrap() {
        panic!("{failed}\nreplay it: DOYEN_SEED={} cargo test -p doyen-tests --test simulation -- --nocapture", failed.seed);
    }
    total.into_inner().unwrap()
}

#[test]
fn invariants_hold_under_every_mix_of_faults() {
    if let Some(seed) = replayed() {
        match run(seed, true, true) {
            Ok(report) => return println!("{report:#?}"),
            Err(failed) => panic!("{}", failed.what),
        }
    }
    let total = run_all(0..SEEDS);
    println!("{SEEDS} seeds: {}", summary(&total));
    // A suite that did nothing would prove nothing.
    assert!(total.tables > SEEDS && total.failovers > 0 && total.moves > 0 && total.congested > 0, "{}", summary(&total));
    assert!(total.answered > total.operations / 2 && total.compared > 0 && total.unknown > 0, "{}", summary(&total));
    assert!(total.read_at_once > 0 && total.reads_again > 0 && total.set_at_once > 0 && total.handed_over > 0, "{}", summary(&total));
    assert!(total.overtaken.iter().sum::<u64>() > 0, "{}", summary(&total));
    assert!(total.caught_up > 0 && total.expired > 0 && total.maps > 0 && total.full > 0, "{}", summary(&total));
    assert!(total.undecided * 50 <= total.judged, "too many histories could not be judged: {}", summary(&total));
}

#[test]
fn seeds_that_failed_once_hold() {
    if replayed().is_some() {
        return;
    }
    for seed in REGRESSIONS {
        run_all(seed..seed + 1);
    }
}

#[test]
fn a_seed_replays_exactly() {
    if replayed().is_some() {
        return;
    }
    for seed in [3, 14, 15] {
        let (first, second) = (run_with_trace_on_failure(seed), run_with_trace_on_failure(seed));
        match (first, second) {
            (Ok(first), Ok(second)) => {
                assert_eq!((first.trace, first.events), (second.trace, second.events), "seed {seed} is not deterministic");
            }
            (Err(failed), _) | (_, Err(failed)) => panic!("{failed}"),
        }
    }
}

#[test]
#[ignore = "long: thousands of seeds"]
fn invariants_hold_under_thousands_of_seeds() {
    let total = run_all(10_000..12_000);
    println!("{}", summary(&total));
}
