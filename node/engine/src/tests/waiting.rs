//! Callers that wait at the primary of a key: in order, over failovers, moves and splits, with
//! deadlines, and gone without a trace.

use super::*;
use crate::command::cached::{self, CacheLookup, ClaimVerdict};
use crate::command::sync::{
    Acquired, Owner, Permits, acquire, cancel, look, read_acquired, read_done, read_looked, release,
};
use crate::wire::api::Malformed;
use crate::wire::frame::Frame;
use doyen_placement::Reshape;
use doyen_placement::division::Cut;

mod pops;
mod streams;

const LONG: Duration = Duration::from_secs(60);

fn owner(n: u16) -> Owner {
    Owner(u128::from(n).to_be_bytes())
}

/// An operation on the key of a lock.
fn on(key: &str, action: Action) -> Operation {
    Operation {
        keyspace: KeyspaceId(0),
        map: MapId(0),
        key: Bytes::copy_from_slice(key.as_bytes()),
        action,
    }
}

impl World {
    /// An owner waits for a lock at a node.
    fn wait_for(&mut self, n: u64, key: &str, of: u16, limit: Option<Duration>) -> CallToken {
        let token = self.next_token;
        self.next_token += 1;
        let operation = on(key, acquire(owner(of), Permits::ONE, 60_000, 0));
        let until = limit.map(|limit| self.now + limit);
        self.wait_with(n, token, operation, until);
        token
    }

    fn wait_with(&mut self, n: u64, token: CallToken, operation: Operation, until: Option<Time>) {
        let age = Duration::ZERO;
        let patience = Patience::InLine { age, until };
        let shard = &mut self.nodes.get_mut(&n).unwrap().shard;
        shard.submit(self.now, 1_700_000_000_000, token, operation, patience);
        self.drain(n);
    }

    /// What a peer sends that asks to wait.
    fn wait_frame(&self, n: u64, operation: Operation) -> Frame {
        let table = &self.tables[0].keyspaces[0];
        let partition = table.partition_of(operation.map, &operation.key);
        Frame::Wait {
            at: PartitionRef::new(operation.keyspace, partition.unwrap()),
            n,
            age_ms: 0,
            stamp: 1,
            work: Work::Key(operation),
        }
    }

    /// A peer asks node 1 to let it wait.
    fn asks_to_wait(&mut self, peer: u64, n: u64, operation: Operation) -> Result<bool, Malformed> {
        let mut bytes = self.wait_frame(n, operation).wire();
        let shard = &mut self.nodes.get_mut(&1).unwrap().shard;
        let received = shard.receive(self.now, 0, id(peer), Lane::Calls, &mut bytes);
        self.drain(1);
        received
    }

    fn leave(&mut self, n: u64, token: CallToken) {
        self.nodes.get_mut(&n).unwrap().shard.forget(token);
        self.drain(n);
    }

    /// The token that a waiter was granted, if it was.
    fn waited(&self, token: CallToken) -> Option<u64> {
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
    let mut waiting: Vec<(u16, u64, CallToken)> = Vec::new();
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
    let others: Vec<CallToken> = (0..2_000)
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
    let late: Vec<CallToken> = [1, 2, 3, client]
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
    let operation = on(&key, acquire(owner(3), two, 60_000, 0));
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
    let mut limits = Limits::of_test();
    limits.tickets_max = 5;
    let mut w = World::with_limits(90, 2, |_| 1, &limits, |_| vec![1, 2]);
    let key = key_of(0);
    let first = w.wait_for(1, &key, 100, None);
    w.settle(Duration::from_millis(20));
    let waiting: Vec<CallToken> = (0..7).map(|of| w.wait_for(1, &key, of, None)).collect();
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
fn no_peer_waits_for_what_is_never_blocked() {
    let mut w = World::new(91, 2, |_| vec![1, 2]);
    assert!(
        w.asks_to_wait(2, 1, on(&key_of(0), Action::Delete))
            .is_err()
    );
}

/// A peer may ask with what the library never asks with.
#[test]
fn what_would_not_stay_blocked_is_refused_at_the_door() {
    let mut w = World::new(92, 2, |_| vec![1, 2]);
    let key = key_of(0);
    w.wait_for(1, &key, 1, None);
    w.settle(Duration::from_millis(20));
    // It would write with each attempt, or be tried a thousand times a second.
    let queues = acquire(owner(2), Permits::ONE, 60_000, 1);
    let renews = cached::renew([2; 16], LONG);
    for (n, action) in [(1, queues), (2, renews)] {
        assert!(w.asks_to_wait(2, n, on(&key, action)).is_err());
    }
    // No table names the map yet, so its caller asks again when it likes.
    let mut unknown = on(&key, acquire(owner(2), Permits::ONE, 60_000, 0));
    unknown.map = MapId(5);
    assert_eq!(w.asks_to_wait(2, 3, unknown), Ok(false));
    let host = &w.nodes[&1].shard.cx.host;
    assert!(host.waiting.is_empty() && !w.wires[&(1, 2, Lane::Calls)].is_empty());
}

#[test]
fn a_ticket_keeps_nothing_of_the_buffer_that_it_came_in() {
    let mut w = World::new(93, 2, |_| vec![1, 2]);
    let at = |name: &str| on(name, acquire(owner(1), Permits::ONE, 60_000, 0));
    for key in ["k1", "k2"] {
        w.ask(1, key, at(key).action);
    }
    w.ask(1, "k3", cached::claim_for([1; 16], LONG, Duration::ZERO));
    for (n, operation) in [
        on("k1", acquire(owner(2), Permits::ONE, 60_000, 0)),
        on("k3", cached::claim_for([2; 16], LONG, Duration::ZERO)),
    ]
    .into_iter()
    .enumerate()
    {
        let mut bytes = w.wait_frame(n as u64, operation).wire();
        let whole = bytes.capacity();
        let shard = &mut w.nodes.get_mut(&1).unwrap().shard;
        let received = shard.receive(w.now, 0, id(2), Lane::Calls, &mut bytes);
        assert_eq!(received, Ok(false));
        assert_eq!(shard.cx.host.waiting.len(), 1 + n);
        assert!(bytes.try_reclaim(whole), "nothing else has a part of it");
    }
}

#[test]
fn a_peer_that_fills_the_room_leaves_a_place_to_each_other_one() {
    let mut limits = Limits::of_test();
    limits.tickets_max = 8;
    let mut w = World::with_limits(94, 3, |_| 1, &limits, |_| vec![1, 2]);
    let key = key_of(0);
    w.wait_for(1, &key, 100, None);
    w.settle(Duration::from_millis(20));
    for n in 0..100 {
        let action = acquire(owner(200 + n), Permits::ONE, 60_000, 0);
        let asked = w.asks_to_wait(2, u64::from(n), on(&key, action));
        assert_eq!(asked, Ok(false));
    }
    let room = |w: &World| w.nodes[&1].shard.cx.host.waiting.len();
    assert_eq!(room(&w), 8, "half of it");
    let others: Vec<CallToken> = (1..=6).map(|of| w.wait_for(3, &key, of, None)).collect();
    let client = w.add_client(1);
    w.settle(Duration::from_millis(50));
    let waits = |w: &World| {
        let out = others.iter().filter(|t| w.outcomes.contains_key(t));
        6 - out.count()
    };
    assert_eq!(waits(&w), 4, "half of the rest");
    assert_eq!(room(&w), 12);
    let late = w.wait_for(client, &key, 50, None);
    w.settle(Duration::from_millis(50));
    let full = Outcome::Failed(Failure::Overloaded);
    assert_eq!(w.outcomes.get(&late), Some(&full), "members come first");
    // What one leaves is room for all.
    w.disconnect(2, 1);
    let token = w.wait_for(3, &key, 7, None);
    w.settle(Duration::from_millis(50));
    assert_eq!((w.outcomes.get(&token), room(&w)), (None, 5));
}

/// A line is tried again when something has happened to it, and not because its partition has other
/// work.
#[test]
fn a_timer_of_a_partition_looks_at_none_that_wait_for_other_things() {
    let mut w = World::new(95, 2, |_| vec![1, 2]);
    let keys: Vec<String> = (0..1_000).map(|n| format!("k{n}")).collect();
    for (of, key) in (0..).zip(&keys) {
        w.ask(1, key, acquire(owner(of), Permits::ONE, 60_000, 0));
        w.wait_for(2, key, 2_000 + of, None);
    }
    w.settle(Duration::from_millis(200));
    let node = w.nodes.get_mut(&1).unwrap();
    assert_eq!(node.shard.cx.host.waiting.len(), 1_000);
    for partition in 0..u32::from(PARTITIONS) {
        let at = PartitionRef::new(KeyspaceId(0), PartitionId(partition));
        node.shard.cx.host.timers.wake(at, w.now);
    }
    node.shard.tick(w.now);
    assert!(!node.shard.cx.host.waiting.has_woken());
}

/// Many keys change in one pass, more than a pass looks at, some of them again and again.
#[test]
fn each_of_many_keys_goes_to_the_caller_that_came_first() {
    let mut w = World::new(96, 3, |_| vec![1, 2]);
    let keys: Vec<String> = (0..200).map(|n| format!("k{n}")).collect();
    let mut held = Vec::new();
    for key in &keys {
        let taken = w.ask(1, key, acquire(owner(0), Permits::ONE, 60_000, 0));
        let Ok(Acquired::Granted { token, .. }) = read_acquired(&taken) else {
            panic!("it was free: {taken:?}");
        };
        held.push(token);
    }
    let mut waiting: Vec<Vec<(u64, u16, CallToken)>> = vec![Vec::new(); keys.len()];
    for round in 0..4_u16 {
        for (at, key) in keys.iter().enumerate() {
            // The callers of each key come in another order, from all nodes.
            let n = 1 + (u64::from(round) + at as u64) % 3;
            let of = 1 + (round + at as u16) % 7;
            waiting[at].push((n, of, w.wait_for(n, key, of, None)));
        }
        w.settle(Duration::from_millis(20));
    }
    for round in 0..4 {
        // All of them before the next pass of the primary.
        w.released = false;
        for (at, key) in keys.iter().enumerate() {
            let (n, of) = match round {
                0 => (1, 0),
                _ => (waiting[at][round - 1].0, waiting[at][round - 1].1),
            };
            w.submit(n, key, release(owner(of), held[at]));
        }
        w.released = true;
        w.settle(Duration::from_millis(100));
        for (at, line) in waiting.iter().enumerate() {
            let granted: Vec<bool> = line
                .iter()
                .map(|(.., token)| w.outcomes.contains_key(token))
                .collect();
            let wanted: Vec<bool> = (0..4).map(|place| place <= round).collect();
            assert_eq!(granted, wanted, "{}", keys[at]);
            held[at] = w.waited(line[round].2).expect("it is granted");
        }
    }
}

/// The answer to a grant is under way when its caller's time is over.
#[test]
fn what_is_granted_as_its_caller_gives_up_is_given_back() {
    let mut w = World::new(97, 3, |_| vec![1, 2]);
    let key = key_of(0);
    let limit = Duration::from_millis(300);
    let claim = |id: u8| cached::claim_for([id; 16], LONG, Duration::ZERO);
    let first = [
        acquire(owner(1), Permits::ONE, 60_000, 0),
        cached::claim_for([1; 16], LONG, Duration::ZERO),
    ];
    let late = [acquire(owner(2), Permits::ONE, 60_000, 0), claim(2)];
    let gives_back = [cancel(owner(1)), cached::release([1; 16], Duration::ZERO)];
    let gives_up = [cancel(owner(2)), cached::release([2; 16], Duration::ZERO)];
    for (kind, key) in [(0, key.as_str()), (1, "k9")] {
        w.ask(1, key, first[kind].clone());
        let token = w.next_token;
        w.next_token += 1;
        let until = Some(w.now + limit);
        w.wait_with(3, token, on(key, late[kind].clone()), until);
        w.settle(Duration::from_millis(100));
        w.submit(1, key, gives_back[kind].clone());
        for _ in 0..10 {
            w.deliver((1, 2, Lane::Calls), true);
            w.deliver((2, 1, Lane::Calls), true);
        }
        let answered = w.wires.contains_key(&(1, 3, Lane::Calls));
        assert!(answered, "it is granted, and its answer is under way");
        // The time passes at its caller's node first.
        w.now = w.now + limit;
        let (now, node) = (w.now, w.nodes.get_mut(&3).unwrap());
        node.shard.tick(now);
        w.drain(3);
        assert_eq!(w.outcomes.get(&token), Some(&Outcome::Nil));
        let gave = w.ask(3, key, gives_up[kind].clone());
        assert_eq!(gave, Outcome::Int(1), "it had it");
    }
    let free = w.ask(1, &key, acquire(owner(3), Permits::ONE, 60_000, 0));
    assert!(matches!(read_acquired(&free), Ok(Acquired::Granted { .. })));
    let (verdict, _) = CacheLookup::of_claim(w.ask(1, "k9", claim(3))).unwrap();
    assert_eq!(verdict, ClaimVerdict::Claimed);
}

/// The process is another member now. Its callers still wait, in their order and for as long as
/// they said.
#[test]
fn callers_wait_again_as_the_next_member_of_their_process() {
    let mut w = World::new(98, 4, |_| vec![1, 2]);
    let key = key_of(0);
    let first = w.wait_for(1, &key, 1, None);
    w.settle(Duration::from_millis(20));
    let limit = Some(Duration::from_secs(2));
    let waiting: Vec<CallToken> = (2..=4).map(|of| w.wait_for(3, &key, of, None)).collect();
    let late = w.wait_for(3, &key, 5, limit);
    w.settle(Duration::from_millis(50));
    let last = w.wait_for(2, &key, 6, None);
    w.settle(Duration::from_millis(50));
    assert_eq!(w.looked(1, &key), (1, 5));
    // Before it has a table, it asks nothing and fails nothing.
    let mut heir = Shard::new(id(4), Limits::of_test(), 4, w.now);
    let dead = Shard::new(id(3), Limits::of_test(), 3, w.now);
    let former = std::mem::replace(&mut w.nodes.get_mut(&3).unwrap().shard, dead);
    w.kill(3);
    let mut in_line: Vec<CallToken> = former
        .into_calls(&mut heir)
        .map(|caller| match caller {
            OpenCaller::InLine(token) => token,
            OpenCaller::Call(..) => panic!("it waits: {caller:?}"),
        })
        .collect();
    in_line.sort_unstable();
    assert_eq!(in_line, [&waiting[..], &[late]].concat());
    heir.release(w.now, w.now + LEASE, true);
    assert!(heir.poll_outcome().is_none());
    for n in [1, 2, 3] {
        w.disconnect(4, n);
    }
    w.nodes.get_mut(&4).unwrap().shard = heir;
    w.show(4, true);
    for n in [1, 2] {
        w.connect(4, n);
    }
    w.settle(Duration::from_millis(100));
    assert_eq!(w.looked(1, &key), (1, 5));
    let mut token = w.waited(first).expect("it was free");
    let mut holder = (1, 1);
    // Their age counts.
    for (of, next) in (2..).zip(waiting) {
        w.release(holder.0, &key, holder.1, token);
        w.settle(Duration::from_millis(30));
        token = w
            .waited(next)
            .unwrap_or_else(|| panic!("{of} is the next one"));
        holder = (4, of);
    }
    assert!(!w.outcomes.contains_key(&late));
    w.settle(Duration::from_secs(2));
    assert_eq!(w.outcomes.get(&late), Some(&Outcome::Nil));
    assert_eq!(w.looked(1, &key), (1, 1));
    w.release(4, &key, 4, token);
    w.settle(Duration::from_millis(30));
    assert!(w.waited(last).is_some());
}
