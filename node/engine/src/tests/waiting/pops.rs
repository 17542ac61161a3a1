//! Callers that wait with a read and take in an ordinary operation, as blocking pops do: what a key
//! holds is granted to one of them each.

use super::super::hashes::of;
use super::*;

/// A sorted set, whose members are taken one by one.
const KEY: &str = "k1";

impl World {
    /// A caller waits at a node until the key holds something.
    fn wait_to_pop(&mut self, n: u64, age: Duration) -> CallToken {
        let token = self.next_token;
        self.next_token += 1;
        let until = None;
        let patience = Patience::InLine { age, until };
        let shard = &mut self.nodes.get_mut(&n).unwrap().shard;
        let operation = on(KEY, of("ZCARD k1"));
        shard.submit(self.now, 1_700_000_000_000, token, operation, patience);
        self.drain(n);
        self.settle(Duration::from_millis(20));
        token
    }

    /// The callers that were told to take.
    fn told_to_pop(&self, waiting: &[(u64, CallToken)]) -> Vec<bool> {
        let is_told = |token: &CallToken| match self.outcomes.get(token) {
            None => false,
            Some(Outcome::Many(parts)) if matches!(parts[1], Outcome::Int(1..)) => true,
            other => panic!("{other:?}"),
        };
        waiting.iter().map(|(_, token)| is_told(token)).collect()
    }

    /// One of them takes, and withdraws its ticket.
    fn pop(&mut self, (n, token): (u64, CallToken)) -> Outcome {
        let taken = match self.ask(n, KEY, of("ZPOPMIN k1")) {
            Outcome::Many(taken) => taken.into_iter().next().unwrap_or(Outcome::Nil),
            other => other,
        };
        self.leave(n, token);
        self.settle(Duration::from_millis(20));
        taken
    }

    fn add(&mut self, members: &str) {
        let scored = members.split(' ').map(|member| format!(" 1 {member}"));
        self.ask(
            2,
            KEY,
            of(&format!("ZADD k1{}", scored.collect::<String>())),
        );
        self.settle(Duration::from_millis(20));
    }

    /// Two at each of the nodes, one after the other.
    fn six_that_wait(&mut self) -> Vec<(u64, CallToken)> {
        let nodes = [3, 1, 2, 3, 1, 2];
        let wait = |n| (n, self.wait_to_pop(n, Duration::ZERO));
        nodes.map(wait).into()
    }
}

#[test]
fn each_thing_that_comes_wakes_the_next_one_alone() {
    let mut w = World::new(100, 3, |_| vec![1, 2]);
    let waiting = w.six_that_wait();
    assert_eq!(w.told_to_pop(&waiting), [false; 6]);
    w.add("a");
    let first = |count: usize| (0..6).map(|at| at < count).collect::<Vec<_>>();
    assert_eq!(w.told_to_pop(&waiting), first(1));
    // It takes it, and nothing is left for the others.
    assert!(matches!(w.pop(waiting[0]), Outcome::Bulk(_)));
    assert_eq!(w.told_to_pop(&waiting), first(1));
    w.add("a b");
    assert_eq!(w.told_to_pop(&waiting), first(3));
    // One more than is granted.
    w.add("c");
    assert_eq!(w.told_to_pop(&waiting), first(4));
    for at in [2, 3, 1] {
        assert!(matches!(w.pop(waiting[at]), Outcome::Bulk(_)));
    }
    assert_eq!(w.told_to_pop(&waiting), first(4));
    w.add("a b c d");
    assert_eq!(w.told_to_pop(&waiting), first(6));
}

#[test]
fn a_grant_that_is_not_used_is_the_next_ones() {
    for withdrawn in [true, false] {
        let mut w = World::new(101, 3, |_| vec![1, 2]);
        let waiting = w.six_that_wait();
        w.add("a");
        assert_eq!(w.told_to_pop(&waiting)[..3], [true, false, false]);
        if withdrawn {
            w.leave(waiting[0].0, waiting[0].1);
            w.settle(Duration::from_millis(20));
        } else {
            // The first one takes nothing, for one lease.
            w.settle(Limits::of_test().takeover_wait - Duration::from_millis(40));
            assert_eq!(w.told_to_pop(&waiting)[..3], [true, false, false]);
            w.settle(Duration::from_millis(60));
        }
        assert_eq!(w.told_to_pop(&waiting)[..3], [true, true, false]);
        // It comes too late.
        assert!(matches!(w.pop(waiting[1]), Outcome::Bulk(_)));
        assert_eq!(w.pop(waiting[0]), Outcome::Nil);
        let room = &w.nodes[&1].shard.cx.host.waiting;
        assert_eq!(room.len(), 4, "nothing is left of the two");
    }
}

/// A caller that does not wait was faster than the one that was told to take.
#[test]
fn a_caller_that_found_nothing_waits_again_at_its_place() {
    let mut w = World::new(102, 3, |_| vec![1, 2]);
    let mut waiting = w.six_that_wait();
    w.settle(Duration::from_secs(5));
    w.add("a");
    assert!(matches!(w.ask(2, KEY, of("ZPOPMIN k1")), Outcome::Many(_)));
    assert_eq!(w.pop(waiting[0]), Outcome::Nil);
    let age = Duration::from_secs(6);
    waiting[0] = (3, w.wait_to_pop(3, age));
    w.add("a");
    assert_eq!(w.told_to_pop(&waiting)[..2], [true, false]);
}

#[test]
fn a_key_of_another_kind_is_nothing_to_wait_for() {
    let mut w = World::new(103, 3, |_| vec![1, 2]);
    let waiting = w.six_that_wait();
    w.ask(2, KEY, Action::set("text".into()));
    w.settle(Duration::from_millis(20));
    assert_eq!(w.told_to_pop(&waiting), [false; 6]);
    w.ask(2, KEY, Action::Delete);
    w.add("a");
    assert_eq!(w.told_to_pop(&waiting)[..2], [true, false]);
}

/// The one that was told to take is gone, with its process.
#[test]
fn a_grant_ends_with_its_process() {
    let mut w = World::new(104, 4, |_| vec![1, 2]);
    let mut waiting = vec![(4, w.wait_to_pop(4, Duration::ZERO))];
    waiting.push((3, w.wait_to_pop(3, Duration::ZERO)));
    w.add("a");
    assert_eq!(w.told_to_pop(&waiting), [true, false]);
    w.disconnect(4, 1);
    w.settle(Duration::from_millis(20));
    assert_eq!(w.told_to_pop(&waiting), [true, true]);
}

#[test]
fn those_that_wait_keep_their_order_and_find_each_thing_once_at_the_next_primary() {
    let mut w = World::new(105, 4, |_| vec![1, 2]);
    let mut waiting = Vec::new();
    for n in [3, 4, 2, 3] {
        waiting.push((n, w.wait_to_pop(n, Duration::ZERO)));
    }
    w.add("a");
    assert_eq!(w.told_to_pop(&waiting), [true, false, false, false]);
    // It has not taken when the primary dies.
    w.kill(1);
    w.propose(|t| remove(t, 1));
    w.settle(Duration::from_secs(1));
    // The next primary knows nothing of the grant.
    assert_eq!(w.told_to_pop(&waiting), [true, true, false, false]);
    assert!(matches!(w.pop(waiting[0]), Outcome::Bulk(_)));
    assert_eq!(w.pop(waiting[1]), Outcome::Nil);
    waiting[1] = (4, w.wait_to_pop(4, Duration::from_secs(2)));
    w.add("a");
    assert_eq!(w.told_to_pop(&waiting), [true, true, false, false]);
    w.add("b");
    assert_eq!(w.told_to_pop(&waiting), [true, true, true, false]);
    for at in [1, 2] {
        assert!(matches!(w.pop(waiting[at]), Outcome::Bulk(_)));
    }
    assert_eq!(w.told_to_pop(&waiting)[3..], [false]);
}

#[test]
fn those_that_wait_to_take_follow_a_partition_that_is_split() {
    let mut w = World::new(106, 3, |_| vec![1, 2]);
    w.propose(|t| {
        t.keyspaces[0].mode = Mode::Range;
        t.keyspaces[0].division = Division::split_at(["k2", "k4", "k6"]).unwrap();
    });
    w.settle(Duration::from_secs(1));
    let waiting = w.six_that_wait();
    w.add("a");
    w.propose(|t| {
        let cut = Cut::Key {
            map: MapId(0),
            key: b"k0".as_slice().into(),
        };
        let partition = PartitionId(0);
        *t = super::super::reshaping::reshaped(t, Reshape::Split { partition, cut });
    });
    w.settle(Duration::from_secs(1));
    assert_eq!(w.told_to_pop(&waiting)[..3], [true, true, false]);
    assert!(matches!(w.pop(waiting[0]), Outcome::Bulk(_)));
    assert_eq!(w.pop(waiting[1]), Outcome::Nil);
    w.add("a b");
    assert_eq!(
        w.told_to_pop(&waiting),
        [true, true, true, true, false, false]
    );
}

/// The tenure is over before the answer with the grant is out: its caller waits again at its place.
#[test]
fn a_grant_that_was_never_told_is_told_again() {
    let mut w = World::new(107, 3, |_| vec![1, 2]);
    let waiting = w.six_that_wait();
    // The copies do not acknowledge, so what was pushed is not committed.
    let pushed = w.submit(1, KEY, of("ZADD k1 1 a"));
    assert!(!w.outcomes.contains_key(&pushed));
    w.propose(|t| {
        let p = t.keyspaces[0]
            .partition_of(MapId(0), KEY.as_bytes())
            .unwrap();
        let p = partition_mut(t, p);
        p.replicas.swap(0, 1);
        (p.epoch, p.since) = (p.epoch.next(), p.epoch.next());
    });
    w.settle(Duration::from_secs(1));
    let told = w.told_to_pop(&waiting);
    assert_eq!(told.iter().filter(|told| **told).count(), 1, "{told:?}");
}
