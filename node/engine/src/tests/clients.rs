//! Clients among members: what they may send, what they are sent, and that none of their writes is
//! applied twice.

use super::*;
use crate::value::entry::Entry;
use crate::wire::frame::{Forwarded, Headroom};
use crate::wire::visit::RETENTION;
use doyen_placement::{MapEntry, MapLimits, MapWish, WantedMap};

/// A cluster in which node 1 leads everything, node 2 has copies, and a client is connected to
/// both.
fn world(seed: u64) -> (World, u64) {
    let mut w = World::new(seed, 2, |_| vec![1, 2]);
    let client = w.add_client(1);
    w.settle(Duration::from_millis(50));
    (w, client)
}

fn receive(
    w: &mut World,
    from: u64,
    to: u64,
    lane: Lane,
    frame: &Frame,
) -> Result<bool, Malformed> {
    w.nodes
        .get_mut(&to)
        .unwrap()
        .shard
        .receive(w.now, 0, id(from), lane, &mut frame.wire())
}

fn at(key: &str) -> PartitionRef {
    let partition = table(1, |_| vec![1]).keyspaces[0]
        .partition_of(MapId(0), key.as_bytes())
        .unwrap();
    PartitionRef::new(KeyspaceId(0), partition)
}

fn forward(key: &str, n: u64, action: Action) -> Frame {
    let operation = Operation {
        keyspace: KeyspaceId(0),
        map: MapId(0),
        key: Bytes::copy_from_slice(key.as_bytes()),
        action,
    };
    let forwarded = Forwarded {
        at: at(key),
        lineage: Lineage(1),
        n,
        finished: n,
        attempt: 0,
    };
    Frame::Forward {
        forwarded,
        before: None,
        work: Work::Key(operation),
    }
}

#[test]
fn a_client_asks_the_primary_at_once() {
    let (mut w, client) = world(1);
    assert_eq!(w.set(client, "a", "1"), Outcome::Ok);
    assert_eq!(w.get(client, "a"), text("1"));
    assert_eq!(w.get(2, "a"), text("1"));
    w.settle(Duration::from_millis(200));
    w.check_copies();
    let stats = w.nodes[&client].shard.stats();
    assert_eq!((stats.forwarded, stats.keys, stats.executed), (2, 0, 0));
}

#[test]
fn a_client_that_was_idle_for_long_is_served_at_its_first_try() {
    let (mut w, client) = world(2);
    w.settle(Duration::from_secs(40));
    assert_eq!(w.set(client, "a", "1"), Outcome::Ok);
    assert_eq!(w.nodes[&client].shard.stats().forwarded, 1);
}

#[test]
fn a_client_learns_of_a_newer_table_and_goes_to_the_new_primary() {
    let (mut w, client) = world(3);
    w.set(client, "a", "1");
    w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
    w.settle(Duration::from_millis(700));
    assert_eq!(
        w.nodes[&client].shard.cx.host.tables.name,
        Some(w.tables[w.committed].name())
    );
    assert_eq!(w.get(client, "a"), text("1"));
    assert!(w.nodes[&2].shard.stats().executed > 0);
}

/// Regression: a client is no member, so the level rises without it. It would be sent tables that
/// it cannot read, and use the last readable one for ever.
#[test]
fn a_client_of_the_former_program_is_shown_every_table_as_one_that_it_can_read() {
    let mut w = World::new(4, 2, |_| vec![1, 2]);
    let client = MemberId::of_client(1).0;
    w.speaks.insert(client, LEVELS.0);
    w.add_client(1);
    w.settle(Duration::from_millis(50));
    assert_eq!(w.tables[w.committed].level, LEVELS.1);
    for round in 0..3_u32 {
        let installed = w.nodes[&client]
            .shard
            .cx
            .host
            .tables
            .view
            .clone()
            .unwrap()
            .installed;
        let shown = w.tables[w.committed].at_level(LEVELS.0);
        assert_eq!(*installed, shown, "round {round}");
        assert_eq!(
            w.nodes[&client].shard.cx.host.tables.name,
            Some(shown.name())
        );
        assert_eq!(w.set(client, "a", &round.to_string()), Outcome::Ok);
        w.propose(|t| promote(t, PartitionId(round), 2));
        w.settle(Duration::from_millis(700));
    }
    assert_eq!(w.get(client, "a"), text("2"));
    assert_eq!(w.get(1, "a"), text("2"));
}

#[test]
fn what_came_with_a_level_is_refused_until_the_table_has_it() {
    let mut w = World::new(38, 2, |_| vec![1]);
    let needs = |w: &World, level| w.nodes[&1].shard.cx.host.tables.need_level(level);
    w.propose(|t| t.level = LEVELS.0);
    w.settle(Duration::from_millis(50));
    assert_eq!(needs(&w, LEVELS.0), Ok(()));
    assert_eq!(needs(&w, LEVELS.1), Err(Failure::OldMembers));
    w.propose(|t| t.level = LEVELS.1);
    w.settle(Duration::from_millis(50));
    assert_eq!(needs(&w, LEVELS.1), Ok(()));
}

/// Bytes of tables on their way to a client.
fn bytes_of_tables(w: &World, client: u64) -> usize {
    w.wires
        .iter()
        .filter(|((_, to, lane), _)| *to == client && *lane == Lane::Bulk)
        .map(|(_, bytes)| bytes.len())
        .sum()
}

#[test]
fn a_client_is_sent_the_changes_since_its_table() {
    let (mut w, client) = world(15);
    let name = |t: &mut Table, n: u32| {
        t.maps.push(MapEntry {
            id: MapId(n),
            name: format!("{n:->60}"),
            keyspace: KeyspaceId(0),
            limits: MapLimits::NONE,
        });
        t.next_map = MapId(n + 1);
    };
    w.propose(|t| (1..=1_000).for_each(|n| name(t, n)));
    w.settle(Duration::from_millis(100));
    // Another table. The bytes of its news are counted before they arrive.
    let told = |w: &mut World, change: &dyn Fn(&mut Table), missed: bool| {
        w.propose(change);
        w.agree(true);
        w.agree(true);
        if missed {
            return 0;
        }
        let (mut most, until) = (0, w.now + Duration::from_secs(2));
        while w.now < until
            && w.nodes[&client].shard.cx.host.tables.name != Some(w.tables[w.committed].name())
        {
            let wires: Vec<_> = w.wires.keys().copied().collect();
            wires.into_iter().for_each(|wire| w.deliver(wire, true));
            most = most.max(bytes_of_tables(w, client));
            w.pass(Duration::from_millis(5));
        }
        assert_eq!(
            w.nodes[&client]
                .shard
                .cx
                .host
                .tables
                .view
                .as_ref()
                .unwrap()
                .installed,
            w.tables[w.committed]
        );
        most
    };
    let few = told(&mut w, &|t| name(t, 1_001), false);
    assert!((1..1_000).contains(&few), "{few} bytes for one more map");
    // The client has missed more tables than those whose changes are known.
    w.disconnect(1, client);
    w.disconnect(2, client);
    (0..10).for_each(|n| _ = told(&mut w, &|t| name(t, 1_002 + n), true));
    w.connect(1, client);
    w.connect(2, client);
    let all = told(&mut w, &|t| name(t, 1_012), false);
    assert!(all > 60_000, "{all} bytes for all maps");
}

#[test]
fn a_client_s_write_is_not_applied_twice_after_a_failover() {
    let mut w = World::new(4, 3, |_| vec![1, 2]);
    let client = w.add_client(1);
    w.settle(Duration::from_millis(50));
    let key = key_of(0);
    assert_eq!(w.ask(client, &key, Action::IncrBy(5)), Outcome::Int(5));
    let token = w.submit(client, &key, Action::IncrBy(5));
    // The write reaches the primary and its copy, but the answer is lost with the primary.
    w.deliver((client, 1, Lane::Calls), true);
    w.deliver((1, 2, Lane::Calls), true);
    w.kill(1);
    w.propose(|t| remove(t, 1));
    w.settle(Duration::from_millis(1_500));
    assert_eq!(w.outcomes[&token], Outcome::Int(10));
    assert_eq!(w.get(client, &key), text("10"));
}

#[test]
fn a_client_s_write_that_arrives_late_is_not_applied() {
    let (mut w, client) = world(5);
    assert_eq!(w.ask(client, "a", Action::IncrBy(1)), Outcome::Int(1));
    let token = w.submit(client, "a", Action::IncrBy(1));
    // It stays on its way until its outcome may be forgotten.
    for _ in 0..60 {
        w.pass(Duration::from_millis(100));
    }
    assert_eq!(w.outcomes[&token], Outcome::Failed(Failure::Unknown));
    w.deliver((client, 1, Lane::Calls), true);
    w.settle(Duration::from_millis(300));
    assert_eq!(w.get(2, "a"), text("1"));
    // From then on the client knows the time.
    w.settle(Duration::from_secs(2));
    assert_eq!(w.ask(client, "a", Action::IncrBy(1)), Outcome::Int(2));
}

#[test]
fn outcomes_of_clients_are_forgotten_in_time() {
    let (mut w, client) = world(6);
    w.set(client, "a", "1");
    let held = |w: &World| {
        w.nodes[&1]
            .shard
            .slots
            .get(at("a"))
            .unwrap()
            .held
            .as_ref()
            .unwrap()
            .dedup
            .all()
            .count()
    };
    assert_eq!(held(&w), 1);
    w.settle(RETENTION);
    assert_eq!(held(&w), 1, "too soon");
    w.settle(RETENTION + Duration::from_secs(2));
    assert_eq!(held(&w), 0);
}

#[test]
fn a_client_may_say_few_things_and_a_member_few_to_it() {
    let (mut w, client) = world(7);
    let (at, epoch) = (at("a"), Epoch(1));
    let head = crate::wire::frame::FrameHead {
        at,
        epoch,
        session: 0,
        committed: 0,
        clock: 0,
        first: 1,
    };
    let name = w.tables[0].name();
    let of_members = [
        Frame::View(name),
        Frame::Reply {
            at,
            n: 1,
            attempt: 0,
            outcome: Outcome::Ok,
        },
        Frame::NotServing {
            at,
            n: 1,
            attempt: 0,
        },
        Frame::Align {
            head,
            base: 0,
            last: 0,
            entries: Vec::new(),
        },
        Frame::Append {
            head,
            entries: Vec::new(),
        },
        Frame::Acks {
            headroom: Headroom {
                left: 0,
                kept: 0,
                loose: 0,
            },
            arrived: [0, 0],
            acks: Vec::new(),
        },
        Frame::Want {
            at,
            epoch,
            session: 0,
            next: 1,
        },
        Frame::Begin {
            at,
            epoch,
            lineage: Lineage(1),
            session: 1,
            kept: 0,
            seq: 0,
            bytes: 0,
        },
        Frame::NoRoom { at, session: 1 },
        Frame::Later {
            at,
            session: 1,
            ms: 1,
        },
        Frame::Holds {
            at,
            session: 1,
            committed: 0,
        },
        Frame::ChunkAck {
            at,
            session: 1,
            index: 0,
        },
        Frame::Finished { at, session: 1 },
        Frame::Compare {
            at,
            session: 1,
            seq: 0,
            sum: 0,
            clock: 0,
        },
        Frame::Verdict {
            at,
            session: 1,
            equal: true,
        },
        Frame::Tick {
            clock: 1,
            value_bytes_max: 1,
            table: name,
        },
        Frame::MapMade {
            ticket: 1,
            made: Err(String::new()),
        },
    ];
    for frame in &of_members {
        assert!(
            receive(&mut w, client, 1, Lane::Calls, frame).is_err(),
            "{frame:?}"
        );
    }
    let of_bulk = [
        Frame::Chunk {
            at,
            session: 1,
            index: 0,
            digest: 0,
            body: Bytes::new(),
        },
        Frame::Outcomes {
            at,
            session: 1,
            dedup: Vec::new(),
        },
        Frame::Finish {
            at,
            session: 1,
            chunks: 0,
            seq: 0,
        },
        Frame::Table {
            name,
            part: 0,
            parts: 1,
            body: Bytes::new(),
        },
    ];
    for frame in &of_bulk {
        assert!(
            receive(&mut w, client, 1, Lane::Bulk, frame).is_err(),
            "{frame:?}"
        );
    }
    // A clock that the member never told it.
    let clock = w.now.0 + 1;
    assert!(receive(&mut w, client, 1, Lane::Calls, &Frame::Heard { clock }).is_err());
    for frame in [
        Frame::Heard { clock: 1 },
        Frame::Pull { have: None },
        Frame::MakeMap {
            ticket: 1,
            keyspace: "k".into(),
            name: "m".into(),
        },
        Frame::WantMap {
            ticket: 1,
            wanted: WantedMap {
                keyspace: "k".into(),
                name: "m".into(),
                wish: MapWish::Dropped,
            },
        },
    ] {
        assert!(
            receive(&mut w, 2, 1, Lane::Calls, &frame).is_err(),
            "of a member: {frame:?}"
        );
        assert!(
            receive(&mut w, 1, client, Lane::Calls, &frame).is_err(),
            "to a client: {frame:?}"
        );
    }
    assert!(
        receive(
            &mut w,
            1,
            client,
            Lane::Calls,
            &forward("a", 1, Action::Get)
        )
        .is_err()
    );
    assert!(receive(&mut w, 1, client, Lane::Calls, &of_members[4]).is_err());
    assert_eq!(w.nodes[&1].shard.stats().keys, 0);
}

#[test]
fn an_operation_that_does_not_belong_to_its_partition_is_malformed_from_a_client_too() {
    let (mut w, client) = world(8);
    let Frame::Forward {
        forwarded, work, ..
    } = forward("a", 1, Action::Get)
    else {
        unreachable!()
    };
    let elsewhere = (0..)
        .map(|p| PartitionRef::new(KeyspaceId(0), PartitionId(p)))
        .find(|p| *p != at("a"))
        .unwrap();
    let frame = Frame::Forward {
        forwarded: Forwarded {
            at: elsewhere,
            ..forwarded
        },
        before: None,
        work,
    };
    assert!(receive(&mut w, client, 1, Lane::Calls, &frame).is_err());
}

/// Plain writes go another way than other operations. They must not be applied twice there either.
#[test]
fn a_repeated_plain_write_does_not_undo_later_ones() {
    let (mut w, _) = world(12);
    let write = |at, n, finished, value: &str| {
        let forwarded = Forwarded {
            at,
            lineage: Lineage(1),
            n,
            finished,
            attempt: 0,
        };
        Frame::ForwardSet {
            forwarded,
            map: MapId(0),
            entry: Entry::new(b"a", value.as_bytes(), 0, 0),
        }
    };
    let first = write(at("a"), 1, 1, "1");
    for frame in [&first, &write(at("a"), 2, 1, "2"), &first] {
        receive(&mut w, 2, 1, Lane::Calls, frame).unwrap();
    }
    w.settle(Duration::from_millis(100));
    assert_eq!(w.get(2, "a"), text("2"));
    w.check_copies();
    let elsewhere = PartitionRef {
        partition: PartitionId((at("a").partition.0 + 1) % 4),
        ..at("a")
    };
    assert!(receive(&mut w, 2, 1, Lane::Calls, &write(elsewhere, 3, 1, "3")).is_err());
    assert!(receive(&mut w, 2, 1, Lane::Calls, &write(at("a"), 3, 4, "3")).is_err());
    // For a lineage that is lost, the write is refused and not executed.
    let Frame::ForwardSet {
        forwarded,
        map,
        entry,
    } = write(at("a"), 3, 1, "3")
    else {
        unreachable!()
    };
    let lost = Frame::ForwardSet {
        forwarded: Forwarded {
            lineage: Lineage(0),
            ..forwarded
        },
        map,
        entry,
    };
    receive(&mut w, 2, 1, Lane::Calls, &lost).unwrap();
    assert_eq!(w.get(2, "a"), text("2"));
}

/// Regression: unknown partitions were noted, one entry each.
#[test]
fn partitions_without_end_are_refused_without_a_trace() {
    let (mut w, client) = world(9);
    for p in 0..1000 {
        let Frame::Forward {
            forwarded, work, ..
        } = forward("a", p + 1, Action::Get)
        else {
            unreachable!()
        };
        let at = PartitionRef::new(KeyspaceId(9), PartitionId(p as u32));
        receive(
            &mut w,
            client,
            1,
            Lane::Calls,
            &Frame::Forward {
                forwarded: Forwarded { at, ..forwarded },
                before: None,
                work,
            },
        )
        .unwrap();
    }
    assert!(
        w.nodes
            .get_mut(&1)
            .unwrap()
            .shard
            .cx
            .host
            .peers
            .get(id(client))
            .unwrap()
            .refused
            .is_empty()
    );
}

#[test]
fn a_value_that_the_primary_would_not_take_is_refused_before_it_is_sent() {
    let (mut w, client) = world(10);
    let value = "x".repeat(Limits::of_test().value_bytes_max + 1);
    assert_eq!(
        w.set(client, "a", &value),
        Outcome::Failed(Failure::TooLarge)
    );
    let swap = Action::CompareAndSwap {
        expected: Some(value.into()),
        value: "1".into(),
    };
    assert_eq!(w.ask(client, "a", swap), Outcome::Failed(Failure::TooLarge));
    assert_eq!(w.nodes[&client].shard.stats().forwarded, 0);
    assert_eq!(w.set(client, "a", "1"), Outcome::Ok);
}

#[test]
fn large_calls_of_clients_wait_at_the_client() {
    let (mut w, client) = world(11);
    let (small, large) = (key_of(0), key_of(1));
    // The primary knows its successor, which leads nothing yet.
    w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
    let accepted = w.tables.len() - 1;
    w.nodes.get_mut(&1).unwrap().accepted = accepted;
    w.show(1, false);
    let tokens = [
        w.submit(client, &small, set("1")),
        w.submit(client, &large, set(&"x".repeat(5_000))),
    ];
    w.deliver((client, 1, Lane::Calls), true);
    let parked = |w: &World| w.nodes[&1].shard.stats().parked;
    assert_eq!(parked(&w), 1, "the small one");
    w.settle(Duration::from_millis(1_500));
    assert!(tokens.iter().all(|t| w.outcomes[t] == Outcome::Ok));
    assert_eq!(w.get(2, &large), text(&"x".repeat(5_000)));
}

#[test]
fn a_large_table_comes_in_parts_and_a_torn_one_is_malformed() {
    let (mut w, client) = world(12);
    w.propose(|t| {
        t.next_map = MapId(3_001);
        t.maps = (1..=3_000)
            .map(|n| MapEntry {
                id: MapId(n),
                name: format!("{n:->60}"),
                keyspace: KeyspaceId(0),
                limits: MapLimits::NONE,
            })
            .collect();
    });
    w.settle(Duration::from_millis(200));
    let view = w.nodes[&client].shard.cx.host.tables.view.clone().unwrap();
    assert_eq!(view.installed.maps.len(), 3_000);

    let name = TableName {
        version: Version(99),
        ..view.installed.name()
    };
    let bytes = crate::wire::published::whole(&view.installed);
    // Changes since a table that the client does not have.
    let news = {
        let newer = |version| {
            Arc::new(Table {
                version: Version(version),
                ..(*view.installed).clone()
            })
        };
        let mut published = crate::wire::published::Published::default();
        [newer(98), newer(99)]
            .iter()
            .for_each(|table| published.install(table.name(), table, true));
        published.encoded(Some(newer(98).name()), LEVELS.1).unwrap()
    };
    let part = |part, parts, body: &Bytes| Frame::Table {
        name,
        part,
        parts,
        body: body.clone(),
    };
    // The client did not ask for it.
    assert_eq!(
        receive(&mut w, 1, client, Lane::Bulk, &part(0, 1, &bytes)),
        Ok(false)
    );
    for frames in [
        vec![part(1, 2, &bytes)],
        vec![part(0, 2, &bytes), part(0, 2, &bytes), part(2, 3, &bytes)],
        vec![part(0, 0, &bytes)],
        vec![part(0, 1, &Bytes::from_static(b"no table"))],
        // The table does not have this name.
        vec![part(0, 1, &bytes)],
    ] {
        w.disconnect(client, 1);
        w.connect(client, 1);
        assert_eq!(
            receive(&mut w, 1, client, Lane::Calls, &Frame::View(name)),
            Ok(false)
        );
        let results: Vec<_> = frames
            .iter()
            .map(|f| receive(&mut w, 1, client, Lane::Bulk, f))
            .collect();
        assert!(results.iter().any(Result::is_err), "{results:?}");
    }
    // Changes since another table than the client has: it asks again, and names its table.
    w.disconnect(client, 1);
    w.connect(client, 1);
    receive(&mut w, 1, client, Lane::Calls, &Frame::View(name)).unwrap();
    w.drain(client);
    w.wires.clear();
    assert_eq!(
        receive(&mut w, 1, client, Lane::Bulk, &part(0, 1, &news)),
        Ok(false)
    );
    w.drain(client);
    let asked = w.wires.remove(&(client, 1, Lane::Calls)).unwrap();
    assert_eq!(
        asked,
        Frame::Pull {
            have: Some(view.installed.name())
        }
        .wire()
    );
    assert_eq!(
        w.nodes[&client]
            .shard
            .cx
            .host
            .tables
            .view
            .as_ref()
            .unwrap()
            .installed
            .version,
        view.installed.version
    );
}

#[test]
fn a_client_asks_members_of_another_cluster_nothing() {
    let (mut w, client) = world(13);
    let name = TableName {
        cluster: ClusterId(8),
        version: Version(99),
        ..w.tables[0].name()
    };
    receive(&mut w, 1, client, Lane::Calls, &Frame::View(name)).unwrap();
    let node = w.nodes.get_mut(&client).unwrap();
    assert_eq!(
        node.shard.poll_request(),
        Some(ShardRequest::OtherCluster(name))
    );
    assert_eq!(node.shard.poll_transmit(), None);
}

#[test]
fn stalled_clients_share_what_one_member_may_be_owed() {
    let large = Limits {
        memory_bytes_max: 2 << 30,
        ..Limits::of_test()
    };
    let mut w = World::with_limits(14, 2, |_| 1, &large, |_| vec![1, 2]);
    let clients: Vec<u64> = (1..=6).map(|n| w.add_client(n)).collect();
    w.settle(Duration::from_millis(100));
    let large = "x".repeat(1 << 20);
    assert_eq!(w.set(1, "a", &large), Outcome::Ok);
    let reads: Vec<CallToken> = clients
        .iter()
        .flat_map(|c| {
            (0..80)
                .map(|_| w.submit(*c, "a", Action::Get))
                .collect::<Vec<_>>()
        })
        .collect();
    for client in &clients {
        w.nodes
            .get_mut(&1)
            .unwrap()
            .shard
            .congested(w.now, id(*client), true);
        w.deliver((*client, 1, Lane::Calls), true);
    }
    w.settle(Duration::from_millis(50));
    let refused = |w: &World| {
        reads
            .iter()
            .filter(|t| w.outcomes.get(t) == Some(&Outcome::Failed(Failure::Overloaded)))
            .count()
    };
    // 64 for each of the first four clients, then one for each.
    assert_eq!(refused(&w), 6 * 80 - 4 * 64 - 2);
    // One client leaves, and the others take their share.
    w.disconnect(clients[0], 1);
    for client in &clients[1..] {
        w.nodes
            .get_mut(&1)
            .unwrap()
            .shard
            .congested(w.now, id(*client), false);
    }
    w.settle(Duration::from_millis(100));
    assert!(reads[80..].iter().all(|t| matches!(
        &w.outcomes[t],
        Outcome::Bulk(_) | Outcome::Failed(Failure::Overloaded)
    )));
    w.connect(clients[0], 1);
    w.settle(Duration::from_millis(100));
    assert!(clients.iter().all(|c| w.get(*c, "a") == text(&large)));
}
