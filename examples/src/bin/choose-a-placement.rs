//! The classic comparison, and why Doyen has partitions: a fifth node joins four, and how many of a
//! hundred thousand keys have to move?
//!
//! ```text
//! cargo run -p doyen-examples --bin choose-a-placement
//! ```
//!
//! By `hash mod N` four of five keys move, since almost every number has another remainder. By
//! partitions one of five does, which is what the newcomer shall hold. `doyen simulate` answers
//! more such questions, about your own keys and nodes as well.

use doyen_placement::simulate::{Cluster, Distribution, Event, Keys, Kind, Moved, Options, run};

fn main() -> anyhow::Result<()> {
    for (name, kind) in [
        ("hash mod N", Kind::Modulo),
        ("partitions", Kind::Fixed),
        (
            "ring of 16 tokens",
            Kind::Ring {
                tokens: 16,
                random: false,
            },
        ),
    ] {
        let Moved { keys, .. } = moved(kind)?;
        println!("{name:<20}{:>5.1} % of the keys moved", keys * 100.0);
    }
    Ok(())
}

/// What moves when a fifth node joins four.
fn moved(kind: Kind) -> anyhow::Result<Moved> {
    let keys = Keys::drawn(100_000, Distribution::Uniform, 1);
    let stages = Cluster::new(4, &[], &[])?.stages(&[Event::Join(1)])?;
    // One copy of everything: the classic comparison knows no backups.
    let copies = 1;
    let mut strategy = kind.strategy(&Options {
        copies,
        partitions: 1024,
        seed: 1,
        keys: &keys,
    });
    let outcome = run(
        &kind.to_string(),
        strategy.as_mut(),
        &stages,
        &keys,
        copies,
        None,
    );
    outcome.stages[1]
        .moved
        .ok_or_else(|| anyhow::anyhow!("nothing happened"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_of_five_keys_move_by_modulo_and_one_of_five_by_partitions() {
        let keys = |kind| moved(kind).expect("possible").keys;
        assert!(
            (keys(Kind::Modulo) - 0.8).abs() < 0.01,
            "{}",
            keys(Kind::Modulo)
        );
        assert!(
            (keys(Kind::Fixed) - 0.2).abs() < 0.01,
            "{}",
            keys(Kind::Fixed)
        );
    }
}
