//! Hashes of Redis clients, in both protocols.

use super::*;
use std::collections::BTreeMap;

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

#[tokio::test]
async fn hashes_are_written_and_read_on_both_ports() {
    let node = Node::start(None, 10);
    let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
    for at in [node.resp, node.cluster] {
        let mut client = Client::connect(at).await.unwrap();
        ask(&mut client, "DEL {t}h").await;
        ask(&mut client, "SET {t}s text").await;
        let error = |text: &str| Reply::Error(text.to_owned());
        let array = |items: &[&str]| Reply::Array(items.iter().map(|item| bulk(item)).collect());
        for (line, reply) in [
            ("HSET {t}h a 1 b two", Reply::Int(2)),
            ("HGET {t}h a", bulk("1")),
            ("HGET {t}h none", Reply::Nil),
            ("HGETALL {t}h", array(&["a", "1", "b", "two"])),
            ("HKEYS {t}h", array(&["a", "b"])),
            ("HVALS {t}h", array(&["1", "two"])),
            (
                "HINCRBY {t}h b 1",
                error("ERR hash value is not an integer"),
            ),
            (
                "HINCRBYFLOAT {t}h b 1",
                error("ERR hash value is not a float"),
            ),
            ("HINCRBYFLOAT {t}h a 0.5", bulk("1.5")),
            ("HRANDFIELD {t}h 5", array(&["a", "b"])),
            (
                "HGETDEL {t}h FIELDS 2 b b",
                Reply::Array(vec![bulk("two"), Reply::Nil]),
            ),
            ("HLEN {t}h", Reply::Int(1)),
            ("TYPE {t}h", Reply::Simple("hash".to_owned())),
            ("GET {t}h", error(wrong)),
            ("HGET {t}s a", error(wrong)),
            (
                "MGET {t}s {t}h",
                Reply::Array(vec![bulk("text"), Reply::Nil]),
            ),
            ("HDEL {t}h a", Reply::Int(1)),
            ("EXISTS {t}h", Reply::Int(0)),
            ("HGETALL {t}h", Reply::Array(Vec::new())),
            ("HMSET {t}h a 1", Reply::Simple("OK".to_owned())),
            (
                "HMSET {t}h a",
                error("ERR wrong number of arguments for 'hmset' command"),
            ),
        ] {
            assert_eq!(ask(&mut client, line).await, reply, "{line}");
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn a_hash_is_a_map_in_the_newer_protocol() {
    let node = Node::start(None, 10);
    let mut client = Client::connect(node.resp).await.unwrap();
    ask(&mut client, "HSET h a 1").await;
    for (line, reply) in [
        ("HGETALL h", "%1\r\n$1\r\na\r\n$1\r\n1\r\n"),
        ("HGETALL none", "%0\r\n"),
        ("HKEYS h", "*1\r\n$1\r\na\r\n"),
        (
            "HRANDFIELD h 3 WITHVALUES",
            "*1\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n",
        ),
        ("HGET h none", "_\r\n"),
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

/// Writes a hash with this number of `fields`, all with this value.
async fn fill(client: &mut Client, key: &str, fields: usize, value: &str) {
    for first in (0..fields).step_by(1_000) {
        let mut words = vec!["HSET".to_owned(), key.to_owned()];
        for n in first..fields.min(first + 1_000) {
            words.extend([format!("f{n}"), value.to_owned()]);
        }
        client.command(&words).await.unwrap();
    }
}

/// The fields of a reply and their values.
fn fields(reply: Reply) -> BTreeMap<String, String> {
    let Reply::Array(items) = reply else {
        panic!("{reply:?}");
    };
    let text = |item: &Reply| match item {
        Reply::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        other => panic!("{other:?}"),
    };
    let pairs = items.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1])));
    let all: BTreeMap<_, _> = pairs.collect();
    assert_eq!(all.len(), items.len() / 2, "no field comes twice");
    all
}

#[tokio::test]
async fn a_large_hash_comes_as_it_was_when_it_was_asked_for() {
    let node = Node::start(None, 10);
    let mut client = Client::connect(node.resp).await.unwrap();
    let count = 12_000;
    fill(&mut client, "h", count, "before").await;
    // The later commands of the pipeline do not wait, and none of them is seen.
    let mut later = vec![words("HGETALL h")];
    later.extend(
        (0..count)
            .step_by(7)
            .map(|n| words(&format!("HSET h f{n} after"))),
    );
    later.push(words("HDEL h f1 f2 f3"));
    later.push(words("HSET h new 1"));
    later.push(words("HLEN h"));
    let mut replies = client.pipeline(&later).await.unwrap();
    assert_eq!(replies.pop(), Some(Reply::Int(count as i64 - 2)));
    let all = fields(replies.swap_remove(0));
    assert_eq!(all.len(), count);
    assert!(all.values().all(|value| value == "before"));
    // Nor is it seen that all of it is deleted, in whatever way.
    for line in [
        "DEL h",
        "SET h text",
        "RENAME h {h}other",
        "PEXPIRE h 0",
        "FLUSHDB",
        "FLUSHALL",
    ] {
        ask(&mut client, "DEL h").await;
        fill(&mut client, "h", count, line).await;
        let asked = [words("HGETALL h"), words("HVALS h"), words(line)];
        let mut replies = client.pipeline(&asked).await.unwrap();
        assert!(!matches!(replies.pop(), Some(Reply::Error(_))), "{line}");
        let Some(Reply::Array(values)) = replies.pop() else {
            panic!("{line}");
        };
        assert_eq!(values.len(), count, "{line}");
        let all = fields(replies.remove(0));
        assert_eq!(all.len(), count, "{line}");
        assert!(all.values().all(|value| value == line));
    }
    node.stop().await;
}

#[tokio::test]
async fn a_large_hash_comes_whole_in_transactions_and_scripts() {
    let node = Node::start(None, 10);
    let mut client = Client::connect(node.resp).await.unwrap();
    fill(&mut client, "h", 9_000, "v").await;
    let asked = [
        words("MULTI"),
        words("HGETALL h"),
        words("DEL h"),
        words("EXEC"),
    ];
    let replies = client.pipeline(&asked).await.unwrap();
    let Some(Reply::Array(mut all)) = replies.into_iter().next_back() else {
        panic!("no transaction");
    };
    assert_eq!(fields(all.remove(0)).len(), 9_000);
    fill(&mut client, "h", 9_000, "v").await;
    let script = ["EVAL", "return #redis.call('HGETALL', KEYS[1])", "1", "h"];
    assert_eq!(client.command(&script).await.unwrap(), Reply::Int(18_000));
    node.stop().await;
}
