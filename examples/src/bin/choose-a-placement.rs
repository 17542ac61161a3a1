//! The classic comparison, and the reason why Doyen has partitions: a fifth node joins four. How
//! many of a hundred thousand keys have to move?
//!
//! ```text
//! cargo run -p doyen-examples --bin choose-a-placement
//! ```
//!
//! With `hash mod N`, four of five keys move, because almost every hash has another remainder. With
//! partitions, one of five keys moves: those that the newcomer shall hold. `doyen simulate` answers
//! more such questions, also for your own keys and nodes.
//!
//! `doyen_placement` has no clock, no socket and no thread, so a program can ask it what a cluster
//! would do.

use doyen_placement::planner;
use doyen_placement::ring::{Ring, allocate};
use doyen_placement::{
    Addresses, Age, ClusterId, Keyspace, Loads, MapId, Member, MemberId, Settings, Token,
};
use std::sync::Arc;

const KEYS: u32 = 100_000;
const PARTITIONS: u16 = 1024;
/// Tokens that each node brings to the ring.
const TOKENS: usize = 16;

fn main() {
    for (name, moved) in [
        ("hash mod N", moved_by_modulo()),
        ("partitions", moved_by_partitions()),
        ("ring of 16 tokens", moved_on_a_ring()),
    ] {
        println!("{name:<20}{:>5.1} % of the keys moved", moved * 100.0);
    }
}

/// The share of the keys that `before` and `after` give to different nodes.
fn share_moved(before: impl Fn(&[u8]) -> MemberId, after: impl Fn(&[u8]) -> MemberId) -> f64 {
    let keys = (0..KEYS).map(|number| format!("user:{number}").into_bytes());
    let moved = keys.filter(|key| before(key) != after(key)).count();
    moved as f64 / f64::from(KEYS)
}

fn moved_by_modulo() -> f64 {
    let node = |nodes: u64| move |key: &[u8]| MemberId(Token::of(key).place() % nodes);
    share_moved(node(4), node(5))
}

/// The planner of production moves no more partitions than the newcomer shall hold.
fn moved_by_partitions() -> f64 {
    let founders = (1..=4).map(node).collect();
    let before = planner::first(ClusterId(1), Settings::default(), keyspace(), founders);
    let joined = planner::admit(&before, vec![node(5)]);
    let plan = planner::plan(&joined, &Loads::default());
    let keyspace = &before.keyspaces[0];
    let partition = |key: &[u8]| {
        keyspace
            .partition_of(MapId(0), key)
            .expect("each key has a partition")
    };
    let old = |key: &[u8]| keyspace.partitions[partition(key).0 as usize].primary();
    share_moved(old, |key| {
        let goal = plan
            .iter()
            .find(|(at, _)| at.partition == partition(key))
            .and_then(|(_, goal)| goal.first().copied());
        goal.unwrap_or_else(|| old(key))
    })
}

/// A newcomer takes the arcs that end at its tokens; all other arcs stay where they are.
fn moved_on_a_ring() -> f64 {
    let members: Vec<Arc<Member>> = (1..=5).map(|number| Arc::new(node(number))).collect();
    let mut rings = vec![Ring::default()];
    for present in 1..=members.len() {
        let ring = &rings[present - 1];
        let id = members[present - 1].id;
        let tokens = allocate(ring, &members[..present], id, TOKENS, 1, 0);
        rings.push(ring.join(id, tokens).expect("its tokens are new"));
    }
    let owner = |ring: &Ring| {
        let ring = ring.clone();
        move |key: &[u8]| ring.owner_of(Token::of(key)).expect("the ring has tokens")
    };
    share_moved(owner(&rings[4]), owner(&rings[5]))
}

/// One copy of everything, because the classic comparison knows no backups.
fn keyspace() -> Keyspace {
    Keyspace::fixed(PARTITIONS, 0)
}

fn node(number: u8) -> Member {
    Member {
        age: Age(number.into()),
        ..Member::new(
            MemberId(u64::from(number) << 4),
            format!("node{number}"),
            Addresses::new(
                ([10, 0, 0, number], 7400).into(),
                ([10, 0, 0, number], 7401).into(),
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_of_five_keys_move_by_modulo_and_one_of_five_otherwise() {
        for (moved, expected) in [
            (moved_by_modulo(), 0.8),
            (moved_by_partitions(), 0.2),
            (moved_on_a_ring(), 0.2),
        ] {
            assert!((moved - expected).abs() < 0.02, "{moved}, not {expected}");
        }
    }
}
