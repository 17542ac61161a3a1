//! Hashes of Redis clients, in both protocols.

use super::*;

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

async fn ask(client: &mut Client, line: &str) -> Reply {
    client.command(&words(line)).await.unwrap()
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
