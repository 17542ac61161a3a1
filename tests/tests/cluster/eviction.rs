//! Real processes with full memory: keys are evicted by their keyspace's policy, or writes are
//! refused, and no member holds more than it may.

use doyen_tests::cluster::Cluster;
use doyen_tests::resp::{Client, Reply};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const NODES: [&str; 3] = ["n0", "n1", "n2"];
const MEMORY: f64 = (16 << 20) as f64;
/// Each key is on two of three nodes: some 45 MB a node.
const KEYS: usize = 60_000;
const BATCH: usize = 50;

fn metric(cluster: &Cluster, node: &str, name: &str) -> f64 {
    let text = cluster.nodes[node].http("/metrics").expect("it answers");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    line.unwrap_or_else(|| panic!("{name} is not one of the metrics"))
}

/// Writes keys from this one on, in batches, through each node in turn, until one is refused.
/// Returns how many were taken, and the first refusal.
fn write(
    cluster: &Cluster,
    clients: &mut [Client],
    name: &str,
    count: usize,
) -> (usize, Option<String>) {
    let value = vec![b'v'; 1_000];
    for batch in 0..count / BATCH {
        let client = &mut clients[batch % NODES.len()];
        for n in 0..BATCH {
            let key = format!("{name}{}", batch * BATCH + n);
            client
                .send(&[b"SET", key.as_bytes(), &value])
                .expect("the socket takes it");
        }
        let replies: Vec<Reply> = (0..BATCH)
            .map(|_| client.reply().expect("a reply"))
            .collect();
        if let Some((n, refused)) = replies
            .into_iter()
            .enumerate()
            .find(|(_, reply)| *reply != Reply::Simple("OK".into()))
        {
            let Reply::Error(why) = refused else {
                panic!("{refused:?}")
            };
            return (batch * BATCH + n, Some(why));
        }
        if batch % 50 == 0 {
            for node in NODES {
                let held = metric(cluster, node, "doyen_memory_bytes ");
                assert!(held <= MEMORY, "{node} holds {held} after {batch} batches");
            }
        }
    }
    (count, None)
}

fn said(client: &mut Client, words: &[&[u8]]) -> String {
    match client.command(words).expect("a reply") {
        Reply::Bulk(text) => String::from_utf8_lossy(&text).into_owned(),
        other => format!("{other:?}"),
    }
}

fn alter(cluster: &Cluster, policy: &str) {
    let (altered, why) = cluster.keyspace("n1", &["alter", "default", "--eviction", policy]);
    assert!(altered, "{why}");
    for node in NODES {
        cluster.eventually("every node knows the policy", |c| {
            let (_, list) = c.keyspace(node, &["list", "--json"]);
            serde_json::from_str::<Value>(&list).is_ok_and(|list| list[0]["eviction"] == policy)
        });
    }
}

#[test]
fn a_full_memory_evicts_or_refuses_as_the_policy_says() {
    let mut cluster = Cluster::new(BINARY);
    cluster
        .options
        .extend(["--memory-max", "16mb", "--eviction", "lru"].map(str::to_owned));
    NODES.into_iter().for_each(|name| cluster.join(name));
    cluster.await_safe(3);
    let mut clients: Vec<Client> = NODES.iter().map(|node| cluster.client(node)).collect();

    let (taken, refused) = write(&cluster, &mut clients, "key-", KEYS);
    assert_eq!((taken, refused), (KEYS, None));
    let evicted: f64 = NODES
        .iter()
        .map(|node| metric(&cluster, node, "doyen_evicted_keys_total "))
        .sum();
    let Reply::Int(left) = clients[0].command(&[b"DBSIZE"]).expect("a reply") else {
        panic!("a number")
    };
    assert!(
        left > 10_000 && evicted >= (KEYS - 30_000) as f64,
        "{left} are left, {evicted} were evicted"
    );
    let last = format!("key-{}", KEYS - 1);
    assert_ne!(
        said(&mut clients[0], &[b"GET", last.as_bytes()]),
        "Nil",
        "the latest keys are there"
    );
    let info = said(&mut clients[1], &[b"INFO"]);
    assert!(
        info.contains("maxmemory_policy:allkeys-lru\r\n") && !info.contains("evicted_keys:0\r\n"),
        "{info}"
    );
    let policy = clients[2]
        .command(&[b"CONFIG", b"GET", b"maxmemory-policy"])
        .expect("a reply");
    assert_eq!(
        policy,
        Reply::Array(
            [&b"maxmemory-policy"[..], b"allkeys-lru"]
                .map(|text| Reply::Bulk(text.to_vec()))
                .to_vec()
        )
    );

    // Without a policy, memory fills up, and only writes that need memory are refused.
    alter(&cluster, "none");
    let (_, refused) = write(&cluster, &mut clients, "more-", KEYS);
    assert!(
        refused.as_ref().is_some_and(|why| why.starts_with("OOM ")),
        "{refused:?}"
    );
    assert_ne!(said(&mut clients[0], &[b"GET", last.as_bytes()]), "Nil");
    assert_eq!(
        clients[0]
            .command(&[b"DEL", last.as_bytes()])
            .expect("a reply"),
        Reply::Int(1)
    );

    alter(&cluster, "random");
    let mut clients: Vec<Client> = NODES.iter().map(|node| cluster.client(node)).collect();
    let (taken, refused) = write(&cluster, &mut clients, "again-", KEYS / 4);
    assert_eq!((taken, refused), (KEYS / 4, None));
}
