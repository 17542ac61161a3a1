//! Callers that wait at the primary of a key: in order, over failovers, moves and splits, with
//! deadlines, and gone without a trace.

use super::*;
use crate::command::sync::{
    Acquired, Owner, Permits, acquire, look, read_acquired, read_done, read_looked, release,
};
use crate::wire::frame::Frame;
use doyen_placement::Reshape;
use doyen_placement::division::Cut;

fn owner(n: u16) -> Owner {
    Owner(u128::from(n).to_be_bytes())
}

impl World {
    /// An owner waits for a lock at a node.
    fn wait_for(&mut self, n: u64, key: &str, of: u16, limit: Option<Duration>) -> Token {
        let token = self.next_token;
        self.next_token += 1;
        let operation = Operation {
            keyspace: KeyspaceId(0),
            map: MapId(0),
            key: Bytes::copy_from_slice(key.as_bytes()),
            action: acquire(owner(of), Permits::ONE, 60_000, 0),
        };
        let until = limit.map(|limit| self.now + limit);
        self.wait_with(n, token, operation, until);
        token
    }

    fn wait_with(&mut self, n: u64, token: Token, operation: Operation, until: Option<Time>) {
        let age = Duration::ZERO;
        let patience = Patience::InLine { age, until };
        let shard = &mut self.nodes.get_mut(&n).unwrap().shard;
        shard.submit(self.now, 1_700_000_000_000, token, operation, patience);
        self.drain(n);
    }

    fn leave(&mut self, n: u64, token: Token) {
        self.nodes.get_mut(&n).unwrap().shard.forget(token);
        self.drain(n);
    }

    /// The token that a waiter was granted, if it was.
    fn waited(&self, token: Token) -> Option<u64> {
        let Outcome::Many(parts) = self.outcomes.get(&token)? else {
            return None;
        };
        let [Outcome::Int(since), outcome] = &parts[..] else {
            panic!("{parts:?}");
        };
        assert!((1..=self.now.0).contains(&(*since as u64)));
        match read_acquired(outcome).unwrap() {
            Acquired::Granted { token, .. } => Some(token),
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, n: u64, key: &str, of: u16, token: u64) {
        let outcome = self.ask(n, key, release(owner(of), token));
        assert_eq!(read_done(&outcome), Ok(true));
    }

    fn executed(&self, n: u64) -> u64 {
        self.nodes[&n].shard.stats().executed
    }

    /// All holders and all that wait for a lock.
    fn looked(&mut self, n: u64, key: &str) -> (usize, usize) {
        let looked = read_looked(&self.ask(n, key, look())).unwrap();
        (looked.holders, looked.waiters)
    }
}

#[test]
fn a_lock_that_is_freed_goes_to_the_next_that_waits_wherever_it_asked() {
    let mut w = World::new(80, 3, |_| vec![1, 2]);
    let key = key_of(0);
    let mut waiting: Vec<(u16, u64, Token)> = Vec::new();
    for of in 1..=6 {
        let n = 1 + u64::from(of) % 3;
        waiting.push((of, n, w.wait_for(n, &key, of, None)));
        w.settle(Duration::from_millis(20));
    }
    let client = w.add_client(1);
    w.settle(Duration::from_millis(50));
    waiting.push((7, client, w.wait_for(client, &key, 7, None)));
    w.settle(Duration::from_millis(20));
    assert_eq!(w.looked(2, &key), (1, 6));
    // A caller that does not wait does not overtake them.
    let tried = w.ask(2, &key, acquire(owner(99), Permits::ONE, 1_000, 0));
    assert!(matches!(
        read_acquired(&tried),
        Ok(Acquired::Busy { place: 6, .. })
    ));
    let mut last = 0;
    for (of, n, token) in waiting {
        let granted = w
            .waited(token)
            .unwrap_or_else(|| panic!("{of} is the next one"));
        assert!(granted > last);
        last = granted;
        w.release(n, &key, of, granted);
        w.settle(Duration::from_millis(20));
    }
    assert_eq!(w.looked(2, &key), (0, 0));
    assert_eq!(w.contents(1, 0), Vec::new(), "nothing is left of it");
    w.settle(Duration::from_millis(200));
    w.check_copies();
}

/// The release and the next grant travel to the copies together.
#[test]
fn a_release_and_the_next_grant_take_one_round_trip_to_the_copies() {
    let mut w = World::new(81, 2, |_| vec![1, 2]);
    let key = key_of(0);
    let first = w.wait_for(1, &key, 1, None);
    w.settle(Duration::from_millis(20));
    let second = w.wait_for(1, &key, 2, None);
    let token = w.waited(first).expect("it was free");
    let released = w.submit(1, &key, release(owner(1), token));
    assert!(
        w.waited(second).is_none(),
        "the copy has not acknowledged it"
    );
    w.deliver((1, 2, Lane::Calls), true);
    w.deliver((2, 1, Lane::Calls), true);
    assert!(w.outcomes.contains_key(&released));
    assert!(w.waited(second).is_some());
}

#[test]
fn those_that_wait_cost_nothing_while_nothing_happens() {
    let mut w = World::new(82, 2, |_| vec![1, 2]);
    let key = key_of(0);
    let first = w.wait_for(1, &key, 0, None);
    w.settle(Duration::from_millis(20));
    let others: Vec<Token> = (0..2_000)
        .map(|n: u16| w.wait_for(1 + u64::from(n) % 2, &key, 1 + n, None))
        .collect();
    w.settle(Duration::from_millis(200));
    let before = (w.executed(1), w.executed(2));
    let carried: u64 = w.carried.values().sum();
    w.settle(Duration::from_secs(10));
    assert_eq!((w.executed(1), w.executed(2)), before);
    // Acks, clocks and tables of an idle cluster; no frame for those that wait.
    let idle = w.carried.values().sum::<u64>() - carried;
    assert!(idle < 20_000, "{idle}");
    assert!(others.iter().all(|token| !w.outcomes.contains_key(token)));
    let token = w.waited(first).expect("it was free");
    w.release(1, &key, 0, token);
    w.settle(Duration::from_millis(20));
    let granted: Vec<bool> = others.iter().map(|t| w.waited(*t).is_some()).collect();
    assert!(
        granted[0] && !granted[1..].contains(&true),
        "one release wakes one"
    );
    // The release, the grant, and the next one, which is blocked and not executed to its end.
    assert_eq!(w.executed(1) - before.0, 2);
}

#[test]
fn a_line_survives_the_primary_in_its_order() {
    let mut w = World::new(83, 4, |_| vec![1, 2]);
    let key = key_of(0);
    let mut waiting = Vec::new();
    for of in 1..=5 {
        let n = 3 + u64::from(of) % 2;
        waiting.push((of, n, w.wait_for(n, &key, of, None)));
        w.settle(Duration::from_millis(30));
    }
    w.kill(1);
    w.propose(|t| remove(t, 1));
    w.settle(Duration::from_secs(1));
    assert_eq!(w.looked(3, &key), (1, 4));
    for (of, n, token) in waiting {
        let granted = w
            .waited(token)
            .unwrap_or_else(|| panic!("{of} is the next one"));
        w.release(n, &key, of, granted);
        w.settle(Duration::from_millis(30));
    }
}

/// An answer that was lost with its primary was not lost for good: the caller asks again, and finds
/// what it has.
#[test]
fn a_grant_whose_answer_was_lost_is_found_again() {
    let mut w = World::new(84, 3, |_| vec![1, 2]);
    let key = key_of(0);
    let first = w.wait_for(3, &key, 1, None);
    w.settle(Duration::from_millis(20));
    let second = w.wait_for(3, &key, 2, None);
    w.settle(Duration::from_millis(20));
    let token = w.waited(first).expect("it was free");
    w.submit(2, &key, release(owner(1), token));
    for _ in 0..10 {
        w.deliver((2, 1, Lane::Calls), true);
        w.deliver((1, 2, Lane::Calls), true);
    }
    w.wires.remove(&(1, 3, Lane::Calls));
    w.kill(1);
    assert!(w.waited(second).is_none(), "its answer is lost");
    w.propose(|t| remove(t, 1));
    w.settle(Duration::from_secs(1));
    assert!(w.waited(second).is_some());
    assert_eq!(w.looked(3, &key), (1, 0));
}

#[test]
fn a_caller_waits_no_longer_than_it_said_and_leaves_nothing_behind() {
    let mut w = World::new(85, 3, |_| vec![1, 2]);
    let client = w.add_client(1);
    w.settle(Duration::from_millis(50));
    let key = key_of(0);
    let first = w.wait_for(1, &key, 1, None);
    w.settle(Duration::from_millis(20));
    let limit = Some(Duration::from_millis(300));
    let late: Vec<Token> = [1, 2, 3, client]
        .map(|n| w.wait_for(n, &key, 2, limit))
        .into();
    let gone = w.wait_for(3, &key, 3, None);
    let last = w.wait_for(2, &key, 4, None);
    w.settle(Duration::from_millis(250));
    assert_eq!(w.looked(2, &key), (1, 6));
    assert!(late.iter().all(|token| !w.outcomes.contains_key(token)));
    w.settle(Duration::from_millis(100));
    assert!(late.iter().all(|token| w.outcomes[token] == Outcome::Nil));
    w.leave(3, gone);
    w.settle(Duration::from_millis(20));
    assert_eq!(w.looked(2, &key), (1, 1));
    let token = w.waited(first).expect("it was free");
    w.release(1, &key, 1, token);
    w.settle(Duration::from_millis(20));
    assert!(w.waited(last).is_some());
    assert!(!w.outcomes.contains_key(&gone));
}

#[test]
fn those_of_a_process_that_is_gone_are_not_served() {
    let mut w = World::new(86, 4, |_| vec![1, 2]);
    let key = key_of(0);
    let first = w.wait_for(1, &key, 1, None);
    w.settle(Duration::from_millis(20));
    w.wait_for(4, &key, 2, None);
    w.settle(Duration::from_millis(20));
    let last = w.wait_for(3, &key, 3, None);
    w.settle(Duration::from_millis(20));
    w.disconnect(4, 1);
    let token = w.waited(first).expect("it was free");
    w.release(1, &key, 1, token);
    w.settle(Duration::from_millis(50));
    assert!(w.waited(last).is_some());
}

#[test]
fn a_connection_that_is_lost_and_comes_back_costs_no_waiter() {
    let mut w = World::new(87, 3, |_| vec![1, 2]);
    let key = key_of(0);
    let first = w.wait_for(1, &key, 1, None);
    let second = w.wait_for(3, &key, 2, None);
    w.settle(Duration::from_millis(20));
    w.disconnect(3, 1);
    assert_eq!(w.looked(1, &key), (1, 0));
    w.connect(3, 1);
    w.settle(Duration::from_millis(20));
    assert_eq!(w.looked(1, &key), (1, 1));
    let token = w.waited(first).expect("it was free");
    w.release(1, &key, 1, token);
    w.settle(Duration::from_millis(20));
    assert!(w.waited(second).is_some());
}

/// A holder that dies gives nothing back: its time ends, and the next one goes on then.
#[test]
fn the_next_one_goes_on_when_the_time_of_the_holder_is_over() {
    let mut w = World::new(88, 3, |_| vec![1, 2]);
    let key = key_of(0);
    let two = Permits::new(2).unwrap();
    for (of, ttl) in [(1, 400), (2, 60_000)] {
        let taken = w.ask(2, &key, acquire(owner(of), two, ttl, 0));
        assert!(matches!(
            read_acquired(&taken),
            Ok(Acquired::Granted { .. })
        ));
    }
    let token = w.next_token;
    w.next_token += 1;
    let operation = Operation {
        keyspace: KeyspaceId(0),
        map: MapId(0),
        key: key.clone().into(),
        action: acquire(owner(3), two, 60_000, 0),
    };
    w.wait_with(3, token, operation, None);
    w.settle(Duration::from_millis(300));
    assert!(w.waited(token).is_none());
    w.settle(Duration::from_millis(150));
    assert!(w.waited(token).is_some());
}

#[test]
fn those_that_wait_follow_a_partition_that_moves_or_is_split() {
    let mut w = World::new(89, 3, |_| vec![1, 2]);
    w.propose(|t| {
        t.keyspaces[0].mode = Mode::Range;
        t.keyspaces[0].division = Division::split_at(["k2", "k4", "k6"]).unwrap();
    });
    w.settle(Duration::from_secs(1));
    let first = w.wait_for(3, "k1", 1, None);
    w.settle(Duration::from_millis(20));
    let second = w.wait_for(3, "k1", 2, None);
    w.settle(Duration::from_millis(20));
    let third = w.wait_for(1, "k1", 3, None);
    w.settle(Duration::from_millis(20));
    // Node 2 leads instead of node 1.
    w.propose(|t| {
        let p = partition_mut(t, PartitionId(0));
        p.replicas.swap(0, 1);
        (p.epoch, p.since) = (p.epoch.next(), p.epoch.next());
    });
    w.settle(Duration::from_secs(1));
    assert_eq!(w.looked(3, "k1"), (1, 2));
    let token = w.waited(first).expect("it was free");
    w.release(3, "k1", 1, token);
    w.settle(Duration::from_millis(20));
    let token = w.waited(second).expect("it is the next one");
    w.propose(|t| {
        let cut = Cut::Key {
            map: MapId(0),
            key: b"k15".as_slice().into(),
        };
        let partition = PartitionId(0);
        *t = super::reshaping::reshaped(t, Reshape::Split { partition, cut });
    });
    w.settle(Duration::from_secs(1));
    assert_eq!(w.looked(3, "k1"), (1, 1));
    w.release(3, "k1", 2, token);
    w.settle(Duration::from_millis(50));
    assert!(w.waited(third).is_some());
}

#[test]
fn a_room_that_is_full_says_so_and_serves_those_that_are_in_it() {
    let mut limits = limits();
    limits.waiting_max = 5;
    let mut w = World::with_limits(90, 2, |_| 1, &limits, |_| vec![1, 2]);
    let key = key_of(0);
    let first = w.wait_for(1, &key, 100, None);
    w.settle(Duration::from_millis(20));
    let waiting: Vec<Token> = (0..7).map(|of| w.wait_for(1, &key, of, None)).collect();
    let refused = Outcome::Failed(Failure::Overloaded);
    let full: Vec<bool> = waiting
        .iter()
        .map(|t| w.outcomes.get(t) == Some(&refused))
        .collect();
    assert_eq!(full, [false, false, false, false, false, true, true]);
    let token = w.waited(first).expect("it was free");
    w.release(1, &key, 100, token);
    w.settle(Duration::from_millis(20));
    assert!(w.waited(waiting[0]).is_some());
}

#[test]
fn a_member_of_the_level_before_is_not_asked_and_no_peer_waits_for_what_is_never_blocked() {
    let mut w = World::new(91, 2, |_| vec![1, 2]);
    let old = LEVELS.0;
    w.propose(|t| t.level = old);
    w.settle(Duration::from_millis(50));
    let token = w.wait_for(2, &key_of(0), 1, None);
    assert_eq!(w.outcomes[&token], Outcome::Failed(Failure::OldMembers));
    let operation = Operation {
        keyspace: KeyspaceId(0),
        map: MapId(0),
        key: key_of(0).into(),
        action: Action::Delete,
    };
    let wait = Frame::Wait {
        at: PartitionRef {
            keyspace: KeyspaceId(0),
            partition: PartitionId(0),
        },
        n: 1,
        age_ms: 0,
        stamp: 1,
        work: Work::Key(operation),
    };
    let shard = &mut w.nodes.get_mut(&1).unwrap().shard;
    let received = shard.receive(w.now, 0, id(2), Lane::Calls, &mut wait.wire());
    assert!(received.is_err());
}
