//! Messages of publishers between nodes, and what the death of a node does to them.

use doyen_tests::cluster::Cluster;
use doyen_tests::resp::{Client, Reply};

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const EACH: usize = 200;

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

fn subscriber(cluster: &Cluster, name: &str) -> Client {
    let mut client = cluster.client(name);
    let confirmed = client.command(&[b"SUBSCRIBE", b"news"]).expect("a reply");
    let expected = [bulk("subscribe"), bulk("news"), Reply::Int(1)];
    assert_eq!(confirmed, Reply::Array(expected.to_vec()));
    client
}

/// Publishes at each node to the `subscribers`, and returns what each of them gets, one text a
/// publisher.
fn publish(cluster: &Cluster, round: &str, subscribers: usize) -> Vec<String> {
    let mut texts = Vec::new();
    for name in cluster.nodes.keys() {
        let mut publisher = cluster.client(name);
        for n in 0..EACH {
            let text = format!("{round} {name} {n}");
            let reply = publisher.command(&[b"PUBLISH", b"news", text.as_bytes()]);
            assert_eq!(
                reply.expect("a reply"),
                Reply::Int(subscribers as i64),
                "{name}"
            );
        }
        texts.push(format!("{round} {name}"));
    }
    texts
}

/// Every node counts the subscribers of all.
fn count(cluster: &Cluster, expected: i64) {
    for name in cluster.nodes.keys() {
        let mut client = cluster.client(name);
        let counted = client.command(&[b"PUBSUB", b"NUMSUB", b"news", b"none"]);
        let expected = [
            bulk("news"),
            Reply::Int(expected),
            bulk("none"),
            Reply::Int(0),
        ];
        let counted = counted.expect("a reply");
        assert_eq!(counted, Reply::Array(expected.to_vec()), "{name}");
    }
}

/// Every message of these publishers comes once, and those of each in order.
fn gets_all(subscriber: &mut Client, publishers: &[String]) {
    let mut next = vec![0; publishers.len()];
    for _ in 0..EACH * publishers.len() {
        let Ok(Reply::Array(message)) = subscriber.reply() else {
            panic!("no message: {next:?}")
        };
        let [kind, channel, Reply::Bulk(text)] = &message[..] else {
            panic!("{message:?}")
        };
        assert_eq!((kind, channel), (&bulk("message"), &bulk("news")));
        let text = String::from_utf8_lossy(text);
        let (publisher, n) = text.rsplit_once(' ').expect("a publisher and a number");
        let at = publishers.iter().position(|p| p == publisher);
        let at = at.unwrap_or_else(|| panic!("{text} came again, or too late"));
        assert_eq!(n, next[at].to_string(), "of {publisher}");
        next[at] += 1;
    }
}

#[test]
fn every_message_reaches_the_subscribers_of_all_nodes_once_also_after_a_death() {
    let mut cluster = Cluster::new(BINARY);
    cluster.join_with("n0", &["--threads", "2"]);
    cluster.join_with("n1", &[]);
    cluster.join_with("n2", &["--threads", "3"]);
    cluster.await_safe(3);
    // Two at each node: they are at different threads if there are several.
    let subscribers = |cluster: &Cluster| {
        let names = cluster.nodes.keys().flat_map(|name| [name, name]);
        names
            .map(|name| (name.clone(), subscriber(cluster, name)))
            .collect::<Vec<_>>()
    };
    let mut before = subscribers(&cluster);
    count(&cluster, 6);
    let publishers = publish(&cluster, "first", 6);
    before
        .iter_mut()
        .for_each(|(_, subscriber)| gets_all(subscriber, &publishers));
    cluster.kill("n1");
    cluster.await_safe(2);
    before.retain(|(name, _)| name != "n1");
    count(&cluster, 4);
    cluster.join_with("n3", &["--threads", "2"]);
    cluster.await_safe(3);
    // A newcomer learns which members have subscribers, and they learn of its own.
    let mut after = subscribers(&cluster);
    let publishers = publish(&cluster, "second", before.len() + after.len());
    let all = before.iter_mut().chain(&mut after);
    all.for_each(|(_, subscriber)| gets_all(subscriber, &publishers));
}

/// Regression: `PUBLISH` and `PUBSUB CHANNELS` and `NUMPAT` counted the node that was asked, so
/// what a client learned depended on where it was connected.
#[test]
fn the_plain_ports_of_all_nodes_count_the_subscribers_of_the_cluster() {
    let mut cluster = Cluster::new(BINARY);
    cluster.join_with("n0", &["--threads", "2"]);
    cluster.join_with("n1", &[]);
    cluster.join_with("n2", &[]);
    cluster.await_safe(3);
    let asked = |cluster: &Cluster, name: &str, line: &str| {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        cluster.client(name).command(&words).expect("a reply")
    };
    // Without subscribers, and with one at each place.
    for name in ["n0", "n1", "n2"] {
        assert_eq!(asked(&cluster, name, "PUBLISH only x"), Reply::Int(0));
        assert_eq!(asked(&cluster, name, "PUBSUB NUMPAT"), Reply::Int(0));
    }
    let mut held = Vec::new();
    for (name, line) in [
        ("n0", "SUBSCRIBE all only"),
        ("n1", "SUBSCRIBE all"),
        ("n2", "SUBSCRIBE all"),
        ("n1", "PSUBSCRIBE on* a*"),
        ("n2", "PSUBSCRIBE on*"),
    ] {
        let mut client = cluster.client(name);
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        client.command(&words).expect("a reply");
        held.push(client);
    }
    let list = |names: &[&str]| Reply::Array(names.iter().map(|name| bulk(name)).collect());
    for name in ["n0", "n1", "n2"] {
        for (line, reply) in [
            ("PUBLISH all x", Reply::Int(4)),
            ("PUBLISH only x", Reply::Int(3)),
            ("PUBLISH none x", Reply::Int(0)),
            ("SPUBLISH all x", Reply::Int(0)),
            ("PUBSUB CHANNELS", list(&["all", "only"])),
            ("PUBSUB CHANNELS o*", list(&["only"])),
            ("PUBSUB CHANNELS x*", list(&[])),
            ("PUBSUB NUMPAT", Reply::Int(2)),
        ] {
            assert_eq!(asked(&cluster, name, line), reply, "{name}: {line}");
        }
        // In a transaction, and in a pipeline with what it waits for.
        let mut client = cluster.client(name);
        for line in ["MULTI", "PUBLISH all x", "PUBLISH only x", "PUBLISH none x"] {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            client.command(&words).expect("a reply");
        }
        let counts = [4, 3, 0].map(Reply::Int).to_vec();
        assert_eq!(
            client.command(&[b"EXEC"]).expect("a reply"),
            Reply::Array(counts)
        );
    }
}
