//! A node with several data threads: one server on the plain port, several nodes on the
//! cluster-aware ports.

use super::*;
use doyen_placement::PartitionId;
use std::collections::BTreeSet;

fn node(threads: usize) -> Node {
    Node::of_threads(threads, None, 20, limits())
}

async fn ask(at: SocketAddr, line: &str) -> Reply {
    Client::connect(at)
        .await
        .unwrap()
        .command(&words(line))
        .await
        .unwrap()
}

async fn fill(node: &Node, keys: i64) {
    let commands: Vec<_> = (0..keys)
        .map(|i| words(&format!("SET key:{i} {i}")))
        .collect();
    let replies = node.client().await.pipeline(&commands).await.unwrap();
    assert!(
        replies.iter().all(|r| *r == Reply::Simple("OK".to_owned())),
        "{:?}",
        &replies[..3]
    );
}

fn number(reply: Reply) -> i64 {
    let Reply::Int(number) = reply else {
        panic!("{reply:?}")
    };
    number
}

fn text(reply: Reply) -> String {
    let Reply::Bulk(text) = reply else {
        panic!("{reply:?}")
    };
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn the_plain_port_answers_for_all_keys_whichever_thread_a_connection_is_at() {
    let node = node(3);
    fill(&node, 500).await;
    for _ in 0..3 {
        let mut client = node.client().await;
        let commands: Vec<_> = (0..500).map(|i| words(&format!("GET key:{i}"))).collect();
        let replies = client.pipeline(&commands).await.unwrap();
        assert!(
            replies
                .into_iter()
                .enumerate()
                .all(|(i, r)| r == Reply::Bulk(i.to_string().into_bytes()))
        );
        assert_eq!(client.command(&["DBSIZE"]).await.unwrap(), Reply::Int(500));
        let Reply::Array(keys) = client.command(&["KEYS", "*"]).await.unwrap() else {
            panic!("no array")
        };
        assert_eq!(keys.len(), 500);
        let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
        loop {
            let Reply::Array(reply) = client
                .command(&["SCAN", &cursor, "COUNT", "50"])
                .await
                .unwrap()
            else {
                panic!("no array")
            };
            let [Reply::Bulk(next), Reply::Array(keys)] = &reply[..] else {
                panic!("{reply:?}")
            };
            found.extend(keys.clone());
            cursor = String::from_utf8(next.clone()).unwrap();
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(found.len(), 500);
    }
    assert_eq!(ask(node.resp, "MGET key:1 absent key:2 key:3").await, {
        let bulk = |n: &str| Reply::Bulk(n.as_bytes().to_vec());
        Reply::Array(vec![bulk("1"), Reply::Nil, bulk("2"), bulk("3")])
    });
    assert_eq!(
        ask(node.resp, "FLUSHALL").await,
        Reply::Simple("OK".to_owned())
    );
    assert_eq!(node.handle.stats().await.shard.keys, 0);
    node.stop().await;
}

#[tokio::test]
async fn connections_of_the_plain_port_spread_evenly_and_count_together() {
    let node = Node::of_threads(2, None, 6, limits());
    let mut clients = Vec::new();
    let mut at: Vec<String> = Vec::new();
    for _ in 0..4 {
        let mut client = node.client().await;
        at.push(text(client.command(&["CLUSTER", "MYID"]).await.unwrap()));
        clients.push(client);
    }
    at.sort();
    let mut both = [0, 0, 1, 1].map(|thread| crate::resp::cluster::node_id(ME.thread(thread)));
    both.sort();
    assert_eq!(at, both);
    for cluster in &node.clusters {
        let mut client = Client::connect(*cluster).await.unwrap();
        client.command(&["PING"]).await.unwrap();
        clients.push(client);
    }
    let ids: BTreeSet<i64> = {
        let mut ids = BTreeSet::new();
        for client in &mut clients {
            ids.insert(number(client.command(&["CLIENT", "ID"]).await.unwrap()));
        }
        ids
    };
    assert_eq!(ids.len(), 6, "numbers of connections are the node's");
    for at in [node.resp, node.clusters[1]] {
        let mut refused = TcpStream::connect(at).await.unwrap();
        let mut answer = String::new();
        refused.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "-ERR max number of clients reached\r\n");
    }
    // A client that leaves makes room at every thread.
    clients.remove(0);
    while node.handle.stats().await.connections > 5 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        ask(node.resp, "PING").await,
        Reply::Simple("PONG".to_owned())
    );
    node.stop().await;
}

#[tokio::test]
async fn info_and_client_list_show_the_node_on_the_plain_port_and_a_thread_on_the_other() {
    let node = node(2);
    fill(&node, 200).await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(node.client().await);
    }
    for client in &mut clients {
        client.command(&["PING"]).await.unwrap();
    }
    let mut on_thread = Client::connect(node.clusters[1]).await.unwrap();
    let own = text(on_thread.command(&["CLIENT", "LIST"]).await.unwrap())
        .lines()
        .count();
    assert!(own < 5, "{own} of this thread");
    for client in &mut clients {
        let list = text(client.command(&["CLIENT", "LIST"]).await.unwrap());
        let ids: Vec<u64> = list
            .lines()
            .map(|l| l.split(['=', ' ']).nth(1).unwrap().parse().unwrap())
            .collect();
        assert!(ids.len() >= 5 && ids.is_sorted(), "{list}");
        let info = text(client.command(&["INFO"]).await.unwrap());
        assert!(
            info.contains("db0:keys=200,")
                && info.contains(&format!("maxmemory:{}\r\n", 256 << 20)),
            "{info}"
        );
    }
    let mut keys = 0;
    for at in &node.clusters {
        let info = text(ask(*at, "INFO").await);
        assert!(
            info.contains(&format!("maxmemory:{}\r\n", 128 << 20)),
            "{info}"
        );
        let line = info
            .lines()
            .find_map(|l| l.strip_prefix("db0:keys="))
            .unwrap();
        keys += line.split(',').next().unwrap().parse::<u64>().unwrap();
    }
    assert_eq!(keys, 200);
    node.stop().await;
}

/// In a pipeline, the answers of the other threads keep their place among the replies.
#[tokio::test]
async fn a_command_that_asks_other_threads_is_answered_in_its_place() {
    let node = node(2);
    let mut client = node.client().await;
    let commands = [
        "SET a 1",
        "CLIENT LIST",
        "GET a",
        "INFO keyspace",
        "PING",
        "GET a",
    ]
    .map(words);
    let replies = client.pipeline(&commands).await.unwrap();
    let one = || Reply::Bulk(b"1".to_vec());
    assert_eq!(
        [&replies[0], &replies[2], &replies[4], &replies[5]],
        [
            &Reply::Simple("OK".to_owned()),
            &one(),
            &Reply::Simple("PONG".to_owned()),
            &one()
        ]
    );
    assert!(text(replies[1].clone()).starts_with("id="));
    assert!(text(replies[3].clone()).starts_with("# Keyspace"));
    node.stop().await;
}

#[tokio::test]
async fn to_cluster_aware_clients_each_thread_is_a_node() {
    let node = node(2);
    fill(&node, 300).await;
    let slots = ask(node.clusters[1], "CLUSTER SLOTS").await;
    let Reply::Array(runs) = &slots else {
        panic!("{slots:?}")
    };
    let threads: Vec<u8> = (0..64)
        .map(|p| doyen_engine::thread_of(PartitionId(p), 2))
        .collect();
    assert_eq!(
        runs.len(),
        threads.chunk_by(|a, b| a == b).count(),
        "neighbours at one thread are one run"
    );
    let mut owners = vec![None; 16_384];
    for run in runs {
        let Reply::Array(run) = run else {
            panic!("{run:?}")
        };
        let [Reply::Int(from), Reply::Int(to), Reply::Array(owner)] = &run[..] else {
            panic!("{run:?}")
        };
        let Reply::Int(port) = owner[1] else {
            panic!("{owner:?}")
        };
        (*from..=*to).for_each(|slot| owners[slot as usize] = Some(port as u16));
    }
    let ports: Vec<u16> = node.clusters.iter().map(SocketAddr::port).collect();
    let nodes = text(ask(node.clusters[0], "CLUSTER NODES").await);
    assert!(
        nodes.lines().count() == 2 && nodes.lines().next().unwrap().contains("myself"),
        "{nodes}"
    );
    let mut held = 0;
    for (thread, at) in node.clusters.iter().enumerate() {
        held += number(ask(*at, "DBSIZE").await);
        let mut client = Client::connect(*at).await.unwrap();
        for i in 0..300 {
            let key = format!("key:{i}");
            let slot = doyen_placement::hash::slot(key.as_bytes());
            let owner = owners[usize::from(slot)].unwrap();
            let reply = client.command(&["GET", &key]).await.unwrap();
            if owner == ports[thread] {
                assert_eq!(reply, Reply::Bulk(i.to_string().into_bytes()));
            } else {
                assert_eq!(
                    reply,
                    Reply::Error(format!("MOVED {slot} 127.0.0.1:{owner}"))
                );
            }
        }
    }
    assert_eq!(held, 300);
    let forwarded = node.handle.stats().await.shard.forwarded;
    assert!(forwarded > 0, "the filling went through one connection");
    assert_eq!(
        ask(node.clusters[1], "FLUSHALL").await,
        Reply::Simple("OK".to_owned())
    );
    assert_eq!(number(ask(node.clusters[1], "DBSIZE").await), 0);
    assert_eq!(
        number(ask(node.resp, "DBSIZE").await),
        number(ask(node.clusters[0], "DBSIZE").await)
    );
    assert_eq!(
        node.handle.stats().await.shard.forwarded - forwarded,
        32,
        "but for the sweep of the plain port"
    );
    node.stop().await;
}

#[tokio::test]
async fn another_incarnation_of_all_threads_begins_empty_and_goes_on() {
    let node = node(3);
    fill(&node, 100).await;
    let me = MemberId(0xbee0);
    node.shared.publish(crate::control::shared::LocalView {
        me,
        view: Some(view(me, node.resp, &node.clusters)),
    });
    fill(&node, 50).await;
    assert_eq!(ask(node.resp, "DBSIZE").await, Reply::Int(50));
    assert_eq!(node.handle.stats().await.shard.keys, 50);
    node.stop().await;
}

#[tokio::test]
async fn draining_reaches_all_threads() {
    let node = node(2);
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(node.client().await);
    }
    for client in &mut clients {
        client.command(&["PING"]).await.unwrap();
    }
    node.handle.drain().await;
    for client in &mut clients {
        assert!(client.command(&["PING"]).await.is_err());
    }
    assert!(TcpStream::connect(node.clusters[1]).await.is_err());
    assert_eq!(node.handle.stats().await.connections, 0);
    node.stop().await;
}

/// Regression: one `MGET` of large values of another thread was gathered whole by each connection
/// before it was found too large.
#[tokio::test]
async fn large_values_of_another_thread_are_asked_for_as_far_as_there_is_room() {
    // Each thread has a share of 8 MiB.
    let node = Node::of_threads(
        2,
        None,
        40,
        Limits {
            value_bytes_max: 1 << 20,
            memory_bytes_max: 128 << 20,
            ..limits()
        },
    );
    let value = vec![b'v'; 1 << 20];
    let set: [&[u8]; 3] = [b"SET", b"large", &value];
    let mut clients = [node.client().await, node.client().await];
    assert_eq!(
        clients[0].command(&set).await.unwrap(),
        Reply::Simple("OK".to_owned())
    );
    assert_eq!(
        clients[1].command(&["PING"]).await.unwrap(),
        Reply::Simple("PONG".to_owned()),
        "each is at a thread of its own"
    );
    let mget = |count: usize| {
        ["MGET"]
            .into_iter()
            .chain(std::iter::repeat_n("large", count))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let whole = |reply: &Reply, count| {
        matches!(reply, Reply::Array(values)
            if *values == vec![Reply::Bulk(value.clone()); count])
    };
    let too_large = Reply::Error("ERR the reply would be too large".to_owned());
    let mut refused = 0;
    for client in &mut clients {
        let replies = client
            .pipeline(&[mget(600), mget(12), words("PING"), mget(100)])
            .await
            .unwrap();
        assert!(
            replies[0] == too_large
                && whole(&replies[1], 12)
                && replies[2] == Reply::Simple("PONG".to_owned())
        );
        // The thread that leads the keys copies nothing.
        assert!(
            replies[3] == too_large || whole(&replies[3], 100),
            "{:.300}",
            format!("{:?}", replies[3])
        );
        refused += usize::from(replies[3] == too_large);
    }
    assert_eq!(refused, 1, "one connection is at the other thread");
    drop(clients);
    while node.handle.stats().await.connections > 0 {
        tokio::task::yield_now().await;
    }
    // All together hold little more than twice the share of that thread, and each gets its reply.
    let mut clients = Vec::new();
    for _ in 0..30 {
        let mut client = node.client().await;
        client.send(&[mget(4), mget(4)]).await.unwrap();
        clients.push(client);
    }
    // No client reads, and sockets do not hold that much.
    let mut most = 0;
    while most <= 4 << 20 {
        most = most.max(node.handle.stats().await.answer_bytes);
    }
    let takers = clients.into_iter().map(|mut client| {
        tokio::spawn(async move { [client.reply().await.unwrap(), client.reply().await.unwrap()] })
    });
    for taker in takers.collect::<Vec<_>>() {
        while !taker.is_finished() {
            most = most.max(node.handle.stats().await.answer_bytes);
        }
        assert!(taker.await.unwrap().iter().all(|r| whole(r, 4)));
    }
    assert!(most < 80 << 20, "{most} bytes were held");
    while node.handle.stats().await.connections > 0 {
        tokio::task::yield_now().await;
    }
    // Clients that leave in the middle leave nothing behind.
    for _ in 0..10 {
        let mut stream = TcpStream::connect(node.resp).await.unwrap();
        let parts = "$5\r\nlarge\r\n".repeat(50);
        stream
            .write_all(format!("*51\r\n$4\r\nMGET\r\n{parts}").as_bytes())
            .await
            .unwrap();
        while node.handle.stats().await.connections == 0 {
            tokio::task::yield_now().await;
        }
        drop(stream);
        while node.handle.stats().await.connections > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(node.handle.stats().await.answer_bytes, 0);
    }
    let reply = node.client().await.command(&mget(12)).await.unwrap();
    assert!(whole(&reply, 12), "{:.100}", format!("{reply:?}"));
    node.stop().await;
}
