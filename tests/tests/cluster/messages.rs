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

/// Publishes at each node, and returns what each subscriber gets, one text a publisher.
fn publish(cluster: &Cluster, round: &str) -> Vec<String> {
    let mut texts = Vec::new();
    for name in cluster.nodes.keys() {
        let mut publisher = cluster.client(name);
        for n in 0..EACH {
            let text = format!("{round} {name} {n}");
            let reply = publisher.command(&[b"PUBLISH", b"news", text.as_bytes()]);
            assert!(matches!(reply, Ok(Reply::Int(1..))), "{reply:?}");
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
    let publishers = publish(&cluster, "first");
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
    let publishers = publish(&cluster, "second");
    let all = before.iter_mut().chain(&mut after);
    all.for_each(|(_, subscriber)| gets_all(subscriber, &publishers));
}
