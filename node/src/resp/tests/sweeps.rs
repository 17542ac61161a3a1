//! Sweeps over partitions that are mostly empty.

use super::*;
use std::collections::BTreeSet;

/// A view in which this node is alone and has this number of `partitions`.
fn divided(node: &Node, partitions: u16) -> View {
    let view = view(ME, node.resp, &node.clusters);
    let mut keyspace = view.installed.keyspaces[0].clone();
    (keyspace.mode, keyspace.partitions) = (Mode::Fixed { partitions }, Vec::new());
    let members = view
        .installed
        .members
        .iter()
        .map(|m| (**m).clone())
        .collect();
    let table: Arc<Table> = Arc::new(doyen_placement::planner::first(
        ClusterId(7),
        Settings::default(),
        keyspace,
        members,
    ));
    let opens = table.keyspaces[0].partitions.iter();
    let opens_at = opens
        .map(|p| {
            (
                PartitionRef {
                    keyspace: KeyspaceId(0),
                    partition: p.id,
                },
                p.since,
                Time::ZERO,
            )
        })
        .collect();
    View {
        installed: table.clone(),
        accepted: table,
        opens_at: Arc::new(opens_at),
    }
}

async fn with_partitions(threads: usize, partitions: u16) -> Node {
    let node = Node::of_threads(threads, None, 10, limits());
    let view = divided(&node, partitions);
    // This is another member, so the first table's partitions are gone.
    node.shared.publish(crate::control::shared::LocalView {
        me: ME,
        view: Some(view),
    });
    node
}

/// All keys of a scan, how many calls it took, and its largest cursor.
async fn scan(client: &mut Client, options: &str) -> (Vec<Vec<u8>>, usize, u64) {
    let (mut cursor, mut found, mut calls, mut largest) = ("0".to_owned(), Vec::new(), 0, 0);
    loop {
        let Reply::Array(reply) = client
            .command(&words(&format!("SCAN {cursor}{options}")))
            .await
            .unwrap()
        else {
            panic!("no array")
        };
        let [Reply::Bulk(next), Reply::Array(keys)] = &reply[..] else {
            panic!("{reply:?}")
        };
        found.extend(keys.iter().map(|k| {
            if let Reply::Bulk(k) = k {
                k.clone()
            } else {
                panic!("{k:?}")
            }
        }));
        cursor = String::from_utf8(next.clone()).unwrap();
        largest = largest.max(cursor.parse().unwrap());
        calls += 1;
        if cursor == "0" {
            return (found, calls, largest);
        }
    }
}

/// Regression: a scan asked one partition at a time, and slept for 5 ms after each four of them: 16
/// s for 16,384 empty partitions. Now this thread looks at the partitions that it leads, and asks
/// the last one.
#[tokio::test]
async fn empty_partitions_cost_a_sweep_next_to_nothing() {
    for threads in [1, 2] {
        let node = with_partitions(threads, 16_384).await;
        let mut client = node.client().await;
        // By now the table is installed.
        client.command(&["DBSIZE"]).await.unwrap();
        let before = node.handle.stats().await.shard.executed;
        assert_eq!(scan(&mut client, "").await, (Vec::new(), 1, 0));
        assert_eq!(client.command(&["DBSIZE"]).await.unwrap(), Reply::Int(0));
        assert_eq!(
            client.command(&["KEYS", "*"]).await.unwrap(),
            Reply::Array(Vec::new())
        );
        let executed = node.handle.stats().await.shard.executed - before;
        let most = if threads == 1 { 1_000 } else { 3 * 16_384 };
        assert!(
            executed <= most,
            "{executed} questions to partitions of {threads} threads"
        );
        node.stop().await;
    }
}

/// Regression: JavaScript has no whole numbers from 2^53 on. A client took the cursor for another
/// one, and its scan never ended.
#[tokio::test]
async fn a_scan_of_sparse_partitions_gives_every_key_once_with_small_cursors() {
    let keys = 3_000;
    for threads in [1, 2] {
        let node = with_partitions(threads, 16_384).await;
        let mut client = node.client().await;
        let sets: Vec<_> = (0..keys)
            .map(|n| words(&format!("SET key:{n} x")))
            .collect();
        client.pipeline(&sets).await.unwrap();
        let expected: BTreeSet<Vec<u8>> =
            (0..keys).map(|n| format!("key:{n}").into_bytes()).collect();
        for (options, most) in [
            ("", 10),
            (" COUNT 100", 100),
            (" COUNT 1000", 1000),
            (" COUNT 100000", 100_000),
        ] {
            let (found, calls, largest) = scan(&mut client, options).await;
            assert_eq!(
                found.len(),
                keys,
                "{options}: none is missing or there twice"
            );
            assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
            assert!(largest < 1 << 53, "{largest}");
            // Each call except the last returns what was asked for, and hardly more.
            assert!(calls <= keys.div_ceil(most) + 1, "{calls} calls {options}");
        }
        let (found, ..) = scan(&mut client, " MATCH key:29?9 COUNT 50").await;
        assert_eq!(found.len(), 10);
        assert_eq!(
            scan(&mut client, " TYPE list").await.0,
            Vec::<Vec<u8>>::new()
        );
        assert_eq!(
            client.command(&["DBSIZE"]).await.unwrap(),
            Reply::Int(keys as i64)
        );
        assert_eq!(
            client.command(&["FLUSHALL"]).await.unwrap(),
            Reply::Simple("OK".to_owned())
        );
        assert_eq!(client.command(&["DBSIZE"]).await.unwrap(), Reply::Int(0));
        node.stop().await;
    }
}

#[tokio::test]
async fn a_scan_of_the_cluster_port_covers_what_its_thread_leads() {
    let node = with_partitions(2, 1_024).await;
    let mut client = node.client().await;
    let sets: Vec<_> = (0..2_000)
        .map(|n| words(&format!("SET key:{n} x")))
        .collect();
    client.pipeline(&sets).await.unwrap();
    let mut all = BTreeSet::new();
    for at in &node.clusters {
        let mut client = Client::connect(*at).await.unwrap();
        let (found, ..) = scan(&mut client, " COUNT 100").await;
        assert!(!found.is_empty() && found.into_iter().all(|key| all.insert(key)));
    }
    assert_eq!(all.len(), 2_000);
    node.stop().await;
}

/// Keys that a thread only looked at are not answered without a lease, nor by a table that is not
/// installed any more.
#[tokio::test]
async fn a_sweep_without_a_lease_waits_for_it_and_is_right_under_the_next_table() {
    let node = with_partitions(1, 1_024).await;
    let mut client = node.client().await;
    assert_eq!(client.command(&["DBSIZE"]).await.unwrap(), Reply::Int(0));
    node.shared.extend_lease(Time::ZERO);
    for command in ["DBSIZE", "SCAN 0", "KEYS *"] {
        let mut waiting = Client::connect(node.resp).await.unwrap();
        let asked = words(command);
        let reply = waiting.command(&asked);
        let mut reply = std::pin::pin!(reply);
        assert!(
            tokio::time::timeout(Duration::from_millis(50), &mut reply)
                .await
                .is_err(),
            "{command}"
        );
        node.shared.publish(crate::control::shared::LocalView {
            me: ME,
            view: Some(divided(&node, 1_024)),
        });
        node.shared.extend_lease(Time(u64::MAX));
        let expected = match command {
            "DBSIZE" => Reply::Int(0),
            "KEYS *" => Reply::Array(Vec::new()),
            _ => Reply::Array(vec![Reply::Bulk(b"0".to_vec()), Reply::Array(Vec::new())]),
        };
        assert_eq!(reply.await.unwrap(), expected, "{command}");
        node.shared.extend_lease(Time::ZERO);
    }
    node.stop().await;
}
