//! Locks and rate limiters over failovers, resets and merges.

use super::*;
use crate::command::sync::{
    Acquired, Owner, Permits, TokenBucket, acquire, look, read_acquired, read_decision, read_done,
    read_looked, read_renewed, release, renew,
};
use doyen_placement::Reshape;
use doyen_placement::planner::reshape::{self, WritesStopped};

fn owner(n: u8) -> Owner {
    Owner([n; 16])
}

impl World {
    fn acquire(&mut self, n: u64, key: &str, of: u8, ttl_ms: u64, wait_ms: u64) -> Acquired {
        let action = acquire(owner(of), Permits::ONE, ttl_ms, wait_ms);
        read_acquired(&self.ask(n, key, action)).unwrap()
    }

    fn granted(&mut self, n: u64, key: &str, of: u8, ttl_ms: u64) -> (u64, u64) {
        match self.acquire(n, key, of, ttl_ms, 0) {
            Acquired::Granted {
                token,
                remaining_ms,
            } => (token, remaining_ms),
            other => panic!("{other:?}"),
        }
    }

    fn released(&mut self, n: u64, key: &str, of: u8, token: u64) -> bool {
        read_done(&self.ask(n, key, release(owner(of), token))).unwrap()
    }

    /// How far the clock of a partition at its primary is ahead of the monotonic clock.
    fn ahead_ms(&self, n: u64, at: PartitionRef) -> i64 {
        let held = self.nodes[&n].shard.slots.get(at).unwrap();
        let clock = held.held.as_ref().unwrap().clock.advance(self.now);
        clock as i64 - self.now.since(Time::ZERO).as_millis() as i64
    }
}

#[test]
fn a_lock_and_its_line_survive_the_primary_and_tokens_grow() {
    let mut w = World::new(70, 3, |_| vec![1, 2]);
    let key = key_of(0);
    let (token, _) = w.granted(3, &key, 1, 60_000);
    let queued = |acquired: Acquired, at: usize| {
        assert!(
            matches!(acquired, Acquired::Queued { place, .. } if place == at),
            "{acquired:?}"
        );
    };
    queued(w.acquire(2, &key, 2, 60_000, 100_000), 0);
    queued(w.acquire(3, &key, 3, 60_000, 100_000), 1);
    w.kill(1);
    w.propose(|t| remove(t, 1));
    w.settle(Duration::from_secs(1));
    queued(w.acquire(2, &key, 3, 60_000, 100_000), 1);
    let (same, _) = w.granted(3, &key, 1, 60_000);
    assert_eq!(same, token);
    assert_eq!(
        read_renewed(&w.ask(3, &key, renew(owner(1), token, 70_000))),
        Ok(Some(70_000))
    );
    let looked = read_looked(&w.ask(3, &key, look())).unwrap();
    assert_eq!(
        (looked.holders, looked.waiters, looked.token),
        (1, 2, Some(token))
    );
    assert!(w.released(3, &key, 1, token));
    queued(w.acquire(3, &key, 3, 60_000, 100_000), 1);
    assert!(w.granted(3, &key, 2, 60_000).0 > token);
}

/// The time to live is that of the partition's clock, so a wall clock that jumps changes nothing.
#[test]
fn a_lock_ends_by_the_partitions_clock_and_its_entry_expires() {
    let mut w = World::new(71, 2, |_| vec![1, 2]);
    let key = key_of(1);
    let (first, _) = w.granted(2, &key, 1, 2_000);
    w.settle(Duration::from_millis(1_900));
    assert!(matches!(
        w.acquire(2, &key, 2, 1_000, 0),
        Acquired::Busy { place: 0, .. }
    ));
    w.settle(Duration::from_millis(1_000));
    assert_eq!(w.contents(1, 1), Vec::new(), "nothing is left of it");
    assert_eq!(w.contents(2, 1), Vec::new());
    let (second, _) = w.granted(1, &key, 2, 1_000);
    assert!(second > first);
    assert!(!w.released(1, &key, 1, first));
}

#[test]
fn tokens_grow_over_a_reset_and_a_deleted_key() {
    let mut w = World::new(72, 3, |_| vec![1]);
    let key = key_of(0);
    let mut last = 0;
    for n in 0..20 {
        let (token, _) = w.granted(2, &key, n, 60_000);
        assert!(token > last);
        last = token;
        assert_eq!(w.ask(2, &key, Action::Delete), Outcome::Int(1));
    }
    w.kill(1);
    w.propose(|t| {
        remove(t, 1);
        (0..4).for_each(|p| lose(t, PartitionId(p), 2));
    });
    w.settle(Duration::from_millis(1_500));
    assert!(
        w.granted(3, &key, 1, 60_000).0 > last,
        "a partition that begins empty"
    );
}

#[test]
fn deadlines_and_tokens_of_merged_partitions_go_on() {
    let mut w = World::new(73, 2, |_| vec![1, 2]);
    w.propose(|t| {
        t.keyspaces[0].mode = Mode::Range;
        t.keyspaces[0].division = Division::split_at(["k2", "k4", "k6"]).unwrap();
    });
    w.settle(Duration::from_secs(20));
    // It begins with a clock of its own, 20 s behind, and a higher lineage, but fewer writes.
    w.propose(|t| {
        let p = partition_mut(t, PartitionId(1));
        (p.epoch, p.since, p.lineage) = (p.epoch.next(), p.epoch.next(), Lineage(2));
    });
    w.settle(Duration::from_secs(2));
    for n in 0..30 {
        w.set(1, "k1x", &n.to_string());
    }
    let older = w.granted(1, "k1", 1, 60_000).0;
    let newer = w.granted(1, "k3", 1, 60_000).0;
    let bucket = TokenBucket::new(60, 1, 1_000).unwrap();
    assert_eq!(
        read_decision(&w.ask(1, "k3b", bucket.take(50)))
            .unwrap()
            .remaining,
        10
    );
    w.settle(Duration::from_secs(1));
    let at = |partition| PartitionRef::new(KeyspaceId(0), PartitionId(partition));
    let apart = w.ahead_ms(1, at(0)) - w.ahead_ms(1, at(1));
    assert!(apart >= 20_000, "{apart}: this tests nothing");
    let ahead: BTreeMap<PartitionId, i64> = [0, 1]
        .map(|p| (PartitionId(p), w.ahead_ms(1, at(p))))
        .into();
    w.propose(|t| {
        let reshape = Reshape::Merge {
            partitions: [PartitionId(0), PartitionId(1)],
        };
        let begun = reshape::begin(t, KeyspaceId(0), reshape).unwrap();
        let still = |at: PartitionRef| {
            let partition = begun.keyspaces[0].partition(at.partition)?;
            Some(WritesStopped {
                epoch: partition.epoch,
                ahead_ms: *ahead.get(&at.partition)?,
            })
        };
        *t = reshape::finish(&begun, still).unwrap();
    });
    w.settle(Duration::from_secs(1));
    for (key, token) in [("k1", older), ("k3", newer)] {
        let Acquired::Busy { ask_within_ms, .. } = w.acquire(2, key, 2, 1_000, 0) else {
            panic!("{key} is held");
        };
        assert!(
            (57_000..=58_000).contains(&ask_within_ms),
            "{key}: {ask_within_ms}"
        );
        assert!(w.released(2, key, 1, token));
        assert!(w.granted(2, key, 2, 1_000).0 > token, "{key}");
    }
    let left = read_decision(&w.ask(2, "k3b", bucket.take(0)))
        .unwrap()
        .remaining;
    assert_eq!(left, 12, "two seconds have passed");
}

#[test]
fn two_steps_of_a_transaction_on_one_lock_see_each_other() {
    let mut w = World::new(74, 2, |_| vec![1, 2]);
    let key = key_of(0);
    let step = |action| OperationStep::Key {
        map: MapId(0),
        key: Bytes::copy_from_slice(key.as_bytes()),
        action,
    };
    let two = Permits::new(2).unwrap();
    let asks = [1, 2, 3].map(|n| step(acquire(owner(n), two, 1_000, 1_000)));
    let token = w.submit_work(
        2,
        OperationBatch {
            keyspace: KeyspaceId(0),
            watched: Vec::new(),
            steps: asks.into(),
        },
    );
    let Outcome::Many(outcomes) = w.outcome(token) else {
        panic!("it is executed");
    };
    let acquired: Vec<Acquired> = outcomes.iter().map(|o| read_acquired(o).unwrap()).collect();
    match acquired[..] {
        [
            Acquired::Granted { token: one, .. },
            Acquired::Granted { token: two, .. },
            Acquired::Queued { place: 0, .. },
        ] => assert!(one < two),
        _ => panic!("{acquired:?}"),
    }
}
