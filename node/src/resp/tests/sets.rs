//! Sets of Redis clients, in both protocols.

use super::*;

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

fn error(text: &str) -> Reply {
    Reply::Error(text.to_owned())
}

#[tokio::test]
async fn sets_are_written_and_read_on_both_ports() {
    let node = Node::start(None, 10);
    let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
    for at in [node.resp, node.cluster] {
        let mut client = Client::connect(at).await.unwrap();
        ask(&mut client, "DEL {t}m {t}o {t}to").await;
        ask(&mut client, "SET {t}s text").await;
        let array = |items: &[&str]| Reply::Array(items.iter().map(|item| bulk(item)).collect());
        let ints = |all: &[i64]| Reply::Array(all.iter().copied().map(Reply::Int).collect());
        for (line, reply) in [
            ("SADD {t}m 3 1 2 1", Reply::Int(3)),
            ("SADD {t}m 1", Reply::Int(0)),
            ("TYPE {t}m", Reply::Simple("set".to_owned())),
            ("OBJECT ENCODING {t}m", bulk("intset")),
            ("SMEMBERS {t}m", array(&["1", "2", "3"])),
            ("SCARD {t}m", Reply::Int(3)),
            ("SISMEMBER {t}m 2", Reply::Int(1)),
            ("SMISMEMBER {t}m 2 x", ints(&[1, 0])),
            ("SRANDMEMBER {t}m 5", array(&["1", "2", "3"])),
            (
                "SSCAN {t}m 0",
                Reply::Array(vec![bulk("0"), array(&["1", "2", "3"])]),
            ),
            ("SADD {t}o 3 a", Reply::Int(2)),
            ("OBJECT ENCODING {t}o", bulk("listpack")),
            ("SINTER {t}m {t}o", array(&["3"])),
            ("SDIFF {t}m {t}o", array(&["1", "2"])),
            ("SUNION {t}m {t}o", array(&["1", "2", "3", "a"])),
            ("SINTERCARD 2 {t}m {t}o LIMIT 5", Reply::Int(1)),
            ("SUNIONSTORE {t}to {t}m {t}o", Reply::Int(4)),
            ("SMOVE {t}o {t}m a", Reply::Int(1)),
            ("SREM {t}m a 1 none", Reply::Int(2)),
            ("COPY {t}m {t}o REPLACE", Reply::Int(1)),
            ("RENAME {t}o {t}to", Reply::Simple("OK".to_owned())),
            ("SMEMBERS {t}to", array(&["2", "3"])),
            ("SCAN 0 TYPE set COUNT 1000", Reply::Array(Vec::new())),
            ("GET {t}m", error(wrong)),
            ("SADD {t}s a", error(wrong)),
            ("HGET {t}m a", error(wrong)),
            ("SPOP {t}m 0", Reply::Array(Vec::new())),
            (
                "SPOP {t}m -1",
                error("ERR value is out of range, must be positive"),
            ),
            ("SPOP {t}m 1 2", error("ERR syntax error")),
            (
                "SINTERCARD 0 {t}m",
                error("ERR numkeys should be greater than 0"),
            ),
            (
                "SINTERCARD 2 {t}m",
                error("ERR Number of keys can't be greater than number of args"),
            ),
            (
                "SINTERCARD 1 {t}m LIMIT -1",
                error("ERR LIMIT can't be negative"),
            ),
            ("SINTERSTORE {t}to {t}m {t}none", Reply::Int(0)),
            ("EXISTS {t}to", Reply::Int(0)),
            ("SREM {t}m 2 3", Reply::Int(2)),
            ("EXISTS {t}m", Reply::Int(0)),
            ("SMEMBERS {t}m", Reply::Array(Vec::new())),
            ("SPOP {t}m", Reply::Nil),
            ("SRANDMEMBER {t}m", Reply::Nil),
        ] {
            if line.starts_with("SCAN ") {
                let Reply::Array(parts) = ask(&mut client, line).await else {
                    panic!("{line}");
                };
                let Reply::Array(keys) = &parts[1] else {
                    panic!("{line}");
                };
                assert!(keys.iter().all(|key| *key != bulk("{t}s")), "{keys:?}");
                continue;
            }
            assert_eq!(ask(&mut client, line).await, reply, "{line}");
        }
        // Inside of transactions and scripts, too.
        ask(&mut client, "MULTI").await;
        ask(&mut client, "SADD {t}m 1 2").await;
        ask(&mut client, "SMEMBERS {t}m").await;
        let done = Reply::Array(vec![Reply::Int(2), array(&["1", "2"])]);
        assert_eq!(ask(&mut client, "EXEC").await, done);
    }
    node.stop().await;
}

#[tokio::test]
async fn members_are_a_set_in_the_newer_protocol() {
    let node = Node::start(None, 10);
    let mut client = Client::connect(node.resp).await.unwrap();
    ask(&mut client, "SADD {t}m 1").await;
    ask(&mut client, "SADD {t}p 1").await;
    for (line, reply) in [
        ("SMEMBERS {t}m", "~1\r\n$1\r\n1\r\n"),
        ("SMEMBERS none", "~0\r\n"),
        ("SUNION {t}m {t}none", "~1\r\n$1\r\n1\r\n"),
        ("SRANDMEMBER {t}m 2", "*1\r\n$1\r\n1\r\n"),
        ("SPOP {t}p 2", "~1\r\n$1\r\n1\r\n"),
        ("SPOP {t}p", "_\r\n"),
    ] {
        let mut raw = TcpStream::connect(node.resp).await.unwrap();
        raw.write_all(format!("HELLO 3\r\n{line}\r\nQUIT\r\n").as_bytes())
            .await
            .unwrap();
        let mut bytes = Vec::new();
        raw.read_to_end(&mut bytes).await.unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.ends_with(&format!("{reply}+OK\r\n")), "{line}: {text}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_large_set_is_answered_whole() {
    let node = Node::start(None, 10);
    let mut client = Client::connect(node.resp).await.unwrap();
    let names: Vec<String> = (0..40_000).map(|n| format!("member-{n}")).collect();
    for part in names.chunks(1_000) {
        let mut words = vec!["SADD".to_owned(), "large".to_owned()];
        words.extend(part.iter().cloned());
        let reply = client.command(&words).await.unwrap();
        assert_eq!(reply, Reply::Int(1_000));
    }
    let Reply::Array(members) = ask(&mut client, "SMEMBERS large").await else {
        panic!("no members");
    };
    let mut found: Vec<String> = members
        .into_iter()
        .map(|member| match member {
            Reply::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    found.sort_unstable();
    let mut expected = names;
    expected.sort_unstable();
    assert_eq!(found, expected);
    node.stop().await;
}
