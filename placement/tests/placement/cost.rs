//! Planning stays cheap. Wall time is not for the test command: run with `cargo test --release -p
//! doyen-placement --test placement cost:: -- --ignored --nocapture`.

use crate::common::*;
use doyen_placement::planner::{self, Absence};
use doyen_placement::{Loads, TableDelta};
use std::collections::BTreeMap;
use std::time::Instant;

#[test]
#[ignore = "prints times"]
fn cost_of_planning() {
    for (partitions, members) in [(1024, 10), (16384, 30), (16384, 100)] {
        for zones in [0, 3, 1] {
            println!("{partitions} partitions, {members} members, {zones} zones");
            let sketches: Vec<Sketch> = (0..members)
                .map(|m| Sketch {
                    zone: if zones == 0 { 0 } else { m % zones + 1 },
                    ..PLAIN
                })
                .collect();
            let table = timed("assign", || cluster(partitions, 1, &sketches));
            timed("plan nothing", || planner::plan(&table, &Loads::default()));
            let joined = planner::admit(&table, vec![member(1000, &sketches[0])]);
            let plan = timed("plan a join", || planner::plan(&joined, &Loads::default()));
            let adopted = timed("adopt", || planner::adopt(&joined, &plan));
            timed("advance", || {
                planner::advance(&adopted, &LIMITS, &planner::MoveFacts::default())
            });
            let left = timed("remove", || {
                planner::remove(&table, &BTreeMap::from([(id(1), Absence::Dead)]))
            });
            timed("plan repair", || planner::plan(&left, &Loads::default()));
            timed("validate", || left.validate()).expect("valid");
            timed("name", || left.name());
            let delta = timed("delta", || TableDelta::between(&table, &left));
            timed("apply", || delta.apply(&table)).expect("applies");
        }
    }
}

fn timed<T>(what: &str, f: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = f();
    println!("  {what:12} {:8.3} ms", start.elapsed().as_secs_f64() * 1e3);
    result
}
