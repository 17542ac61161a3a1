//! A broken member of the cluster: however it behaves, the others serve what was written and lose
//! nothing.
//!
//! Its shard works normally, and a test sends frames in its name. If bytes are refused, the
//! connection begins again, as in the network.

use super::*;
use crate::log::partition_log::Logged;
use frame::{Ack, FrameHead, Headroom};

/// The broken member.
const BROKEN: u64 = 3;

/// Three members. Each leads some partitions, with one copy at the next.
fn three(seed: u64) -> World {
    let mut w = World::new(seed, 3, |p| {
        vec![1 + u64::from(p) % 3, 1 + u64::from(p + 1) % 3]
    });
    for n in 0..30 {
        assert_eq!(
            w.set(1 + n % 3, &format!("key{n}"), &n.to_string()),
            Outcome::Ok
        );
    }
    w.settle(Duration::from_millis(200));
    w
}

fn at(p: u32) -> PartitionRef {
    PartitionRef::new(KeyspaceId(0), PartitionId(p))
}

impl World {
    fn say(&mut self, from: u64, to: u64, frame: &Frame) {
        let bulk = matches!(
            frame,
            Frame::Chunk { .. }
                | Frame::Outcomes { .. }
                | Frame::Finish { .. }
                | Frame::Table { .. }
        );
        let lane = if bulk { Lane::Bulk } else { Lane::Calls };
        let mut bytes = frame.wire();
        let (now, node) = (self.now, self.nodes.get_mut(&to).unwrap());
        let mut received = Ok(true);
        while received == Ok(true) {
            received = node
                .shard
                .receive(now, 1_700_000_000_000, id(from), lane, &mut bytes);
        }
        self.drain(to);
        if received.is_err() {
            self.disconnect(from, to);
            self.connect(from, to);
        }
    }

    fn last(&self, n: u64, p: u32) -> u64 {
        self.nodes[&n]
            .shard
            .slots
            .get(at(p))
            .unwrap()
            .held
            .as_ref()
            .unwrap()
            .log
            .last()
    }

    /// Everything that `three` wrote is read everywhere, more is written, and copies are equal.
    #[track_caller]
    fn serves(&mut self) {
        for n in 0..30u64 {
            assert_eq!(
                self.get(1 + (n + 1) % 3, &format!("key{n}")),
                text(&n.to_string()),
                "key{n}"
            );
        }
        for n in 0..9u64 {
            assert_eq!(self.set(1 + n % 3, &format!("more{n}"), "1"), Outcome::Ok);
        }
        self.settle(Duration::from_millis(500));
        self.check_copies();
    }
}

fn put(epoch: Epoch, key: &str, value: &str) -> Logged {
    let effect = store::Effect::Put {
        map: MapId(0),
        entry: crate::value::entry::Entry::new(key.as_bytes(), value.as_bytes(), 0, 0),
        deadline: 0,
        before: store::Before::Value,
    };
    Logged {
        epoch,
        effect,
        op: None,
        outcome: Outcome::Ok,
    }
}

#[test]
fn frames_of_wrong_epochs_and_of_other_members_than_the_primary_change_nothing() {
    let mut w = three(51);
    for p in 0..u32::from(PARTITIONS) {
        let leads = w.tables[0].keyspaces[0].partitions[p as usize].primary() == id(BROKEN);
        for epoch in [Epoch(0), Epoch(1), Epoch(2), Epoch(u64::MAX)]
            .into_iter()
            .filter(|e| !leads || *e != Epoch(1))
        {
            for to in [1, 2] {
                let last = w.nodes[&to]
                    .shard
                    .slots
                    .get(at(p))
                    .and_then(|s| s.held.as_ref())
                    .map_or(0, |h| h.log.last());
                let entries = vec![put(epoch, "key1", "wrong"), put(epoch, "key2", "wrong")];
                for first in [1, last + 1] {
                    let head = FrameHead {
                        at: at(p),
                        epoch,
                        session: 0,
                        committed: first + 1,
                        clock: 1 << 61,
                        first,
                    };
                    w.say(
                        BROKEN,
                        to,
                        &Frame::Append {
                            head,
                            entries: entries.clone(),
                        },
                    );
                    w.say(
                        BROKEN,
                        to,
                        &Frame::Align {
                            head,
                            base: first - 1,
                            last: first + 1,
                            entries: entries.clone(),
                        },
                    );
                }
                let (lineage, session) = (Lineage(1), 1);
                w.say(
                    BROKEN,
                    to,
                    &Frame::Begin {
                        at: at(p),
                        epoch,
                        lineage,
                        session,
                        kept: 0,
                        seq: 0,
                        bytes: 0,
                    },
                );
                w.say(
                    BROKEN,
                    to,
                    &Frame::Finish {
                        at: at(p),
                        session,
                        chunks: 0,
                        seq: 0,
                    },
                );
                w.say(
                    BROKEN,
                    to,
                    &Frame::Compare {
                        at: at(p),
                        session,
                        seq: 0,
                        sum: 0,
                        clock: 0,
                    },
                );
                w.say(
                    BROKEN,
                    to,
                    &Frame::Want {
                        at: at(p),
                        epoch,
                        session,
                        next: u64::MAX,
                    },
                );
                w.say(
                    BROKEN,
                    to,
                    &Frame::Acks {
                        headroom: Headroom {
                            left: 1 << 40,
                            kept: 0,
                            loose: 0,
                        },
                        arrived: [u64::MAX; 2],
                        acks: vec![Ack {
                            at: at(p),
                            epoch,
                            session: 0,
                            seq: u64::MAX,
                        }],
                    },
                );
                w.settle(Duration::from_millis(10));
            }
        }
    }
    assert_eq!(
        w.committed,
        0,
        "and no member was asked out: {:?}",
        w.tables.last()
    );
    w.serves();
}

#[test]
fn entries_out_of_order_leave_no_gap_and_come_again() {
    let mut w = three(52);
    // Member 3 leads partition 2, and member 1 holds the copy. Its entries arrive in every wrong
    // order.
    let key = key_of(2);
    let before = w.last(1, 2);
    let tokens: Vec<_> = (0..4)
        .map(|n| w.submit(BROKEN, &key, set(&n.to_string())))
        .collect();
    w.wires.clear();
    let entry = |n: u64| put(Epoch(1), &key, &n.to_string());
    let head = |first| FrameHead {
        at: at(2),
        epoch: Epoch(1),
        session: 0,
        committed: 0,
        clock: 9,
        first,
    };
    for n in [3, 1, 2, 3] {
        w.say(
            BROKEN,
            1,
            &Frame::Append {
                head: head(before + 1 + n),
                entries: vec![entry(n)],
            },
        );
        assert_eq!(w.last(1, 2), before, "something is missing before it");
    }
    // The same with a gap in an alignment.
    w.say(
        BROKEN,
        1,
        &Frame::Align {
            head: head(before + 3),
            base: before + 1,
            last: before + 3,
            entries: vec![entry(2)],
        },
    );
    assert_eq!(w.last(1, 2), before);
    w.settle(Duration::from_secs(2));
    assert!(
        tokens
            .iter()
            .all(|t| w.outcomes.get(t) == Some(&Outcome::Ok)),
        "its own shard sent them again, in order"
    );
    assert_eq!(w.get(1, &key), text("3"));
    w.serves();
}

/// Regression: entries that waited in the log for a stalled copy were acknowledged by that copy,
/// and then by its primary. They were on one node.
#[test]
fn an_ack_of_what_was_not_sent_commits_nothing() {
    let mut w = three(53);
    // Member 3 holds the copy of partition 1, which member 2 leads.
    let key = key_of(1);
    w.nodes
        .get_mut(&2)
        .unwrap()
        .shard
        .congested(w.now, id(BROKEN), true);
    let write = w.submit(2, &key, set("new"));
    let last = w.last(2, 1);
    assert_eq!(
        (w.last(BROKEN, 1), w.wires.get(&(2, BROKEN, Lane::Calls))),
        (last - 1, None),
        "it was not sent"
    );
    for seq in [last, last + 1, u64::MAX] {
        w.say(
            BROKEN,
            2,
            &Frame::Acks {
                headroom: Headroom {
                    left: u64::MAX,
                    kept: u64::MAX,
                    loose: u64::MAX,
                },
                arrived: [u64::MAX; 2],
                acks: vec![Ack {
                    at: at(1),
                    epoch: Epoch(1),
                    session: 0,
                    seq,
                }],
            },
        );
    }
    assert!(
        !w.outcomes.contains_key(&write),
        "acknowledged, and on one node"
    );
    w.nodes
        .get_mut(&2)
        .unwrap()
        .shard
        .congested(w.now, id(BROKEN), false);
    w.settle(Duration::from_millis(50));
    assert_eq!(w.outcomes[&write], Outcome::Ok);
    w.serves();
}

#[test]
fn a_learner_that_lies_about_its_checksum_is_given_up_and_delays_no_others() {
    for equal in [true, false] {
        let mut w = World::new(54, 3, |_| vec![1, 2]);
        for n in 0..30 {
            assert_eq!(
                w.set(1 + n % 2, &format!("k{n}"), &n.to_string()),
                Outcome::Ok
            );
        }
        w.propose(|t| {
            for p in 0..4 {
                partition_mut(t, PartitionId(p)).replicas.push(Replica {
                    member: id(BROKEN),
                    state: ReplicaState::Learner,
                });
            }
        });
        w.agree(true);
        // It never stores anything, and claims that everything is there and equal, or that it is
        // not, for any session.
        let mut session = 0;
        for round in 0..600 {
            w.wires.retain(|(_, to, _), _| *to != BROKEN);
            w.wires.retain(|(from, ..), _| *from != BROKEN);
            session = session % 40 + 1;
            for p in 0..4 {
                for frame in [
                    Frame::Finished { at: at(p), session },
                    Frame::Verdict {
                        at: at(p),
                        session,
                        equal,
                    },
                    Frame::ChunkAck {
                        at: at(p),
                        session,
                        index: u32::MAX,
                    },
                    Frame::Holds {
                        at: at(p),
                        session,
                        committed: u64::MAX,
                    },
                ] {
                    w.say(BROKEN, 1, &frame);
                }
            }
            w.agree(true);
            for wire in w.wires.keys().copied().collect::<Vec<_>>() {
                w.deliver(wire, true);
            }
            w.pass(Duration::from_millis(10));
            if round % 50 == 0 {
                assert_eq!(
                    w.tables[w.committed].keyspaces[0].partitions[0]
                        .in_sync()
                        .count(),
                    2,
                    "it was let in"
                );
            }
        }
        assert!(w.nodes[&1].shard.stats().copies.checksum_mismatches > 0);
        let table = w.tables[w.committed].clone();
        assert!(
            table.keyspaces[0]
                .partitions
                .iter()
                .all(|p| p.in_sync().all(|m| m != id(BROKEN))),
            "it was let in"
        );
        w.kill(BROKEN);
        for n in 0..30u64 {
            assert_eq!(
                w.get(1 + (n + 1) % 2, &format!("k{n}")),
                text(&n.to_string())
            );
        }
        w.check_copies();
    }
}

/// Regression: one member named a table that does not exist. Tables that others named afterwards
/// were older than that, so they were not asked for.
#[test]
fn a_name_of_a_future_table_does_not_keep_members_from_existing_ones() {
    let mut w = three(55);
    let name = w.tables[0].name();
    let future = TableName {
        version: Version(u64::MAX),
        hash: 1,
        ..name
    };
    w.say(BROKEN, 1, &Frame::View(future));
    let shard = &mut w.nodes.get_mut(&1).unwrap().shard;
    let next = TableName {
        version: name.version.next(),
        hash: 2,
        ..name
    };
    let mut bytes = Frame::View(next).wire();
    shard
        .receive(w.now, 0, id(2), Lane::Calls, &mut bytes)
        .unwrap();
    assert_eq!(shard.poll_request(), Some(ShardRequest::Newer(next)));
    w.say(
        BROKEN,
        1,
        &Frame::View(TableName {
            cluster: ClusterId(8),
            ..next
        }),
    );
    w.serves();
}

/// Regression: a client asked the member that named it for that table, and from then on no other
/// member for any.
#[test]
fn a_client_asks_another_member_if_a_named_table_does_not_come() {
    let mut w = three(56);
    let client = w.add_client(1);
    w.settle(Duration::from_secs(1));
    assert_eq!(w.get(client, "key1"), text("1"));
    let future = TableName {
        version: Version(u64::MAX),
        hash: 1,
        ..w.tables[0].name()
    };
    w.say(BROKEN, client, &Frame::View(future));
    // A partition moves to another member, and the client must hear of it from some member.
    w.propose(|t| promote(t, PartitionId(0), 2));
    for step in 0..800 {
        if step % 100 == 0 {
            w.say(BROKEN, client, &Frame::View(future));
        }
        // The broken member does not answer requests.
        w.wires
            .retain(|(from, to, _), _| (*from, *to) != (client, BROKEN));
        w.agree(true);
        for wire in w.wires.keys().copied().collect::<Vec<_>>() {
            w.deliver(wire, true);
        }
        w.pass(Duration::from_millis(5));
    }
    let knows = w.nodes[&client]
        .shard
        .cx
        .host
        .tables
        .name
        .map(|n| n.version);
    assert_eq!(
        knows,
        Some(w.tables[w.committed].version),
        "it never learned of the table in force"
    );
    assert_eq!(w.get(client, &key_of(0)), Outcome::Nil);
}

#[test]
fn silence_in_a_frame_does_not_delay_other_peers() {
    let mut w = three(57);
    let frame = Frame::Append {
        head: FrameHead {
            at: at(2),
            epoch: Epoch(1),
            session: 0,
            committed: 0,
            clock: 9,
            first: 1,
        },
        entries: vec![],
    };
    for to in [1, 2] {
        let whole = frame.wire();
        let mut begun = BytesMut::from(&whole[..whole.len() - 1]);
        let node = w.nodes.get_mut(&to).unwrap();
        assert_eq!(
            node.shard
                .receive(w.now, 0, id(BROKEN), Lane::Calls, &mut begun),
            Ok(false)
        );
        assert_eq!(begun.len(), whole.len() - 1, "it waits for the rest");
    }
    // Everything between the two others goes on, however long that takes.
    for n in 0..50u64 {
        let token = w.submit(1, &key_of(0), set(&n.to_string()));
        w.wires
            .retain(|(from, to, _), _| *from != BROKEN || *to == BROKEN);
        w.settle(Duration::from_millis(20));
        assert_eq!(w.outcomes.get(&token), Some(&Outcome::Ok));
    }
}

#[test]
fn numbers_as_large_as_can_be_are_refused_and_count_nothing() {
    let mut w = World::new(90, 2, |_| vec![1, 2]);
    for _ in 0..3 {
        let huge = format!("SETRANGE k {} v", i64::MAX - 1);
        let outcome = w.ask(1, "k", super::hashes::of(&huge));
        assert_eq!(outcome, Outcome::Failed(Failure::TooLarge));
    }
    let line = format!("MSETEX {} k 1", i64::MAX);
    let words: Vec<Bytes> = line
        .split(' ')
        .map(|word| Bytes::copy_from_slice(word.as_bytes()))
        .collect();
    let args: &dyn crate::command::Arguments = &words.as_slice();
    let spec = crate::command::COMMANDS.find(args).unwrap();
    let refused = spec.request(args, 0).unwrap_err();
    assert_eq!(refused.0, "ERR wrong number of key-value pairs");
}
