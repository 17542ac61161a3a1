//! A dropped keyspace is not served any more, and its contents are freed.

use super::*;

#[test]
fn a_dropped_keyspace_is_not_served_once_its_drop_is_stored() {
    let mut w = World::new(40, 2, |_| vec![1, 2]);
    assert_eq!(w.set(1, "a", "1"), Outcome::Ok);
    w.propose(|t| t.keyspaces.clear());
    let proposed = w.tables.len() - 1;
    w.nodes.get_mut(&1).unwrap().accepted = proposed;
    w.show(1, false);
    // Other members may have committed the drop, and another keyspace of this name may be written
    // to.
    let read = w.submit(1, "a", Action::Get);
    for _ in 0..20 {
        w.pass(Duration::from_millis(5));
    }
    assert_eq!(w.outcomes.get(&read), None);
    // The proposal fails: the operations that waited are answered.
    w.nodes.get_mut(&1).unwrap().accepted = 0;
    w.show(1, false);
    w.pass(Duration::from_millis(5));
    assert_eq!(w.outcomes.get(&read), Some(&text("1")));
}

#[test]
fn the_contents_of_a_dropped_keyspace_are_freed() {
    let mut w = World::new(41, 2, |_| vec![1, 2]);
    for n in 0..40 {
        assert_eq!(w.set(1, &format!("k{n}"), "1"), Outcome::Ok);
    }
    let before: Vec<u64> = w
        .members()
        .iter()
        .map(|n| w.nodes[n].shard.stats().memory_bytes)
        .collect();
    w.propose(|t| t.keyspaces.clear());
    w.settle(Duration::from_millis(50));
    assert_eq!(
        w.ask(2, "k0", Action::Get),
        Outcome::Failed(Failure::NoPartition)
    );
    w.settle(DROP_DELAY + Duration::from_secs(1));
    for (n, before) in w.members().into_iter().zip(before) {
        let shard = &w.nodes[&n].shard;
        assert!(
            shard.stats().memory_bytes < before,
            "its contents are freed"
        );
        assert_eq!(
            shard
                .slots
                .iter()
                .filter(|slot| slot.held.is_some())
                .count(),
            0
        );
    }
    // With the next table, nothing of it is left.
    w.propose(|_| {});
    w.settle(Duration::from_millis(50));
    assert!(
        w.members()
            .iter()
            .all(|n| w.nodes[n].shard.slots.iter().next().is_none())
    );
}
