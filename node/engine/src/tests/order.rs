//! Several operations on one key are under way when a tenure ends: each is executed before those
//! that were submitted after it.

use super::*;

const OVERTAKEN: Outcome = Outcome::Failed(Failure::Overtaken);

/// Node 1 leads, node 2 has the copies, and both know that.
fn world(seed: u64) -> World {
    let mut w = World::new(seed, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    w
}

fn outcomes(w: &World, tokens: [CallToken; 2]) -> [Outcome; 2] {
    tokens.map(|token| w.outcomes[&token].clone())
}

/// Node 1 leads, and loses its partitions to node 2 without hearing of it.
fn depose(w: &mut World) {
    w.nodes.get_mut(&1).unwrap().cut = true;
    w.disconnect(1, 2);
    w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
    w.settle(Duration::from_millis(700));
    w.released = true;
    w.nodes.get_mut(&1).unwrap().cut = false;
    w.connect(1, 2);
    w.settle(Duration::from_millis(900));
}

#[test]
fn a_read_of_a_deposed_primary_holds_if_the_write_after_it_survived() {
    for (first, found) in [
        (Action::Delete, Outcome::Int(0)),
        (Action::Get, Outcome::Nil),
    ] {
        let mut w = world(31);
        let key = key_of(0);
        w.released = false;
        let asked = [w.submit(1, &key, first), w.submit(1, &key, set("v"))];
        w.deliver((1, 2, Lane::Calls), true);
        depose(&mut w);
        assert_eq!(outcomes(&w, asked), [found, Outcome::Ok]);
        assert_eq!(w.get(2, &key), text("v"));
        w.settle(Duration::from_millis(300));
        w.check_copies();
    }
}

#[test]
fn a_read_of_a_deposed_primary_is_repeated_if_the_write_after_it_is_lost() {
    let mut w = world(32);
    let key = key_of(0);
    w.released = false;
    let asked = [w.submit(1, &key, Action::Get), w.submit(1, &key, set("v"))];
    // Another node writes at the successor first.
    w.nodes.get_mut(&1).unwrap().cut = true;
    w.disconnect(1, 2);
    w.disconnect(1, 3);
    w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
    w.settle(Duration::from_millis(700));
    w.released = true;
    assert_eq!(
        w.tables[w.committed].keyspaces[0].partitions[0].primary(),
        id(2)
    );
    let other = w.submit(3, &key, set("theirs"));
    w.settle(Duration::from_millis(50));
    w.nodes.get_mut(&1).unwrap().cut = false;
    w.connect(1, 2);
    w.connect(1, 3);
    w.settle(Duration::from_millis(900));
    assert_eq!(w.outcomes[&other], Outcome::Ok);
    assert_eq!(outcomes(&w, asked), [text("theirs"), Outcome::Ok]);
    assert_eq!(w.get(2, &key), text("v"));
}

#[test]
fn a_read_of_a_dead_primary_is_left_to_the_caller_if_the_write_after_it_survived() {
    for first in [Action::Delete, Action::Get] {
        let mut w = world(33);
        let key = key_of(0);
        let asked = [
            w.submit(3, &key, first.clone()),
            w.submit(3, &key, set("v")),
        ];
        w.deliver((3, 1, Lane::Calls), true);
        w.deliver((1, 2, Lane::Calls), true);
        w.kill(1);
        w.propose(|t| remove(t, 1));
        w.settle(Duration::from_millis(1_500));
        assert_eq!(outcomes(&w, asked), [OVERTAKEN, Outcome::Ok]);
        assert_eq!(w.get(3, &key), text("v"));
        // Nothing of it is left.
        assert_eq!(w.nodes[&3].shard.cx.host.callers.outstanding, 0);
        assert_eq!(w.ask(3, &key, Action::Delete), Outcome::Int(1));
    }
}

#[test]
fn a_read_of_a_dead_primary_is_repeated_if_the_write_after_it_is_lost() {
    let mut w = world(34);
    let key = key_of(0);
    let asked = [
        w.submit(3, &key, Action::Delete),
        w.submit(3, &key, set("v")),
    ];
    w.deliver((3, 1, Lane::Calls), true);
    w.kill(1);
    w.propose(|t| remove(t, 1));
    w.settle(Duration::from_millis(1_500));
    assert_eq!(outcomes(&w, asked), [Outcome::Int(0), Outcome::Ok]);
    assert_eq!(w.get(3, &key), text("v"));
}

#[test]
fn a_large_answer_that_waited_is_not_read_again_after_an_answered_write() {
    let mut w = world(35);
    let key = key_of(0);
    w.set(3, &key, &"x".repeat(10_000));
    let now = w.now;
    w.nodes
        .get_mut(&1)
        .unwrap()
        .shard
        .congested(now, id(3), true);
    let asked = [w.submit(3, &key, Action::Get), w.submit(3, &key, set("v"))];
    w.settle(Duration::from_millis(50));
    assert!(!w.outcomes.contains_key(&asked[0]), "it waits for room");
    assert_eq!(w.outcomes[&asked[1]], Outcome::Ok);
    w.kill(1);
    w.propose(|t| remove(t, 1));
    w.settle(Duration::from_millis(1_500));
    assert_eq!(outcomes(&w, asked), [OVERTAKEN, Outcome::Ok]);
}

#[test]
fn an_operation_does_not_come_after_itself() {
    let mut w = world(36);
    let key = key_of(0);
    let at = PartitionRef::new(KeyspaceId(0), PartitionId(0));
    let operation = Operation {
        keyspace: KeyspaceId(0),
        map: MapId(0),
        key: Bytes::from(key.into_bytes()),
        action: Action::Get,
    };
    let forwarded = crate::wire::frame::Forwarded {
        at,
        lineage: Lineage(1),
        n: 7,
        finished: 7,
        attempt: 0,
    };
    let mut read = |before| {
        let mut bytes = Frame::Forward {
            forwarded,
            before: Some(before),
            work: Work::Key(operation.clone()),
        }
        .wire();
        let now = w.now;
        w.nodes
            .get_mut(&1)
            .unwrap()
            .shard
            .receive(now, 0, id(2), Lane::Calls, &mut bytes)
            .map(|_| ())
    };
    assert!(read(7).is_err() && read(0).is_err());
    assert!(read(8).is_ok() && read(u64::MAX).is_ok());
}

/// A primary answers late, and its caller has asked the next one in the meantime.
#[test]
fn an_answer_of_an_abandoned_attempt_is_ignored() {
    let mut w = world(37);
    let key = key_of(0);
    let delete = w.submit(3, &key, Action::Delete);
    w.deliver((3, 1, Lane::Calls), true);
    let late = w.wires.remove(&(1, 3, Lane::Calls)).expect("an answer");
    w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
    w.agree(true);
    let again = w
        .wires
        .remove(&(3, 2, Lane::Calls))
        .expect("the call is asked again");
    w.wires
        .entry((1, 3, Lane::Calls))
        .or_default()
        .extend_from_slice(&late);
    w.settle(Duration::from_millis(700));
    assert!(
        !w.outcomes.contains_key(&delete),
        "it is under way to the successor, where it may change something"
    );
    assert_eq!(w.set(2, &key, "theirs"), Outcome::Ok);
    let mut all = again;
    all.extend_from_slice(&w.wires.remove(&(3, 2, Lane::Calls)).unwrap_or_default());
    w.wires.insert((3, 2, Lane::Calls), all);
    w.settle(Duration::from_millis(100));
    assert_eq!(w.outcomes[&delete], Outcome::Int(1));
    assert_eq!(w.get(2, &key), Outcome::Nil);
}

#[test]
fn a_write_that_may_be_applied_and_meets_a_crowded_copy_is_unknown() {
    let mut w = world(38);
    let key = key_of(0);
    let token = w.submit(3, &key, Action::IncrBy(1));
    w.deliver((3, 1, Lane::Calls), true);
    w.deliver((1, 2, Lane::Calls), true);
    let full = w.nodes.get_mut(&2).unwrap();
    full.shard.cx.host.limits.waiting_max = 0;
    w.kill(1);
    w.propose(|t| remove(t, 1));
    w.settle(Duration::from_millis(1_500));
    assert_eq!(w.outcomes[&token], Outcome::Failed(Failure::Unknown));
    w.nodes
        .get_mut(&2)
        .unwrap()
        .shard
        .cx
        .host
        .limits
        .waiting_max = 100;
    assert_eq!(w.get(3, &key), text("1"));
}

/// Regression: outcomes that are committed and wait for a lease are in the order of their commits.
/// A read was behind one with a later deadline, so it outlived the delete that was submitted after
/// it. Then the next primary executed it after that delete.
#[test]
fn a_read_is_given_up_no_later_than_a_later_write() {
    let mut w = world(39);
    let (key, another) = (key_of(0), key_of(1));
    assert_eq!(w.set(1, &key, "old"), Outcome::Ok);
    w.settle(Duration::from_millis(100));
    w.released = false;
    let (_, read) = (
        w.submit(1, &key, set("new")),
        w.submit(1, &key, Action::Get),
    );
    w.deliver((1, 2, Lane::Calls), true);
    let acks = w.wires.remove(&(2, 1, Lane::Calls)).expect("an ack");
    let delete = w.submit(1, &key, Action::Delete);
    w.deliver((1, 2, Lane::Calls), true);
    w.pass(Duration::from_secs(1));
    // This read waits only for the lease.
    let ahead = w.submit(1, &another, Action::Get);
    w.wires.insert((2, 1, Lane::Calls), acks);
    w.deliver((2, 1, Lane::Calls), true);
    for _ in 0..41 {
        w.pass(Duration::from_millis(100));
    }
    assert_eq!(w.outcomes[&delete], Outcome::Failed(Failure::Unknown));
    assert!(!w.outcomes.contains_key(&ahead), "it has time left");
    depose(&mut w);
    assert_eq!(w.outcomes[&read], Outcome::Failed(Failure::Unavailable));
    assert_eq!(w.outcomes[&ahead], Outcome::Nil);
    assert_eq!(w.get(2, &key), Outcome::Nil, "the delete was applied");
}
