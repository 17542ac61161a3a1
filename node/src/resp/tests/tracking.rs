//! `CLIENT TRACKING`, with several data threads.

use super::*;
use std::collections::BTreeMap;
use tokio::io::{AsyncBufReadExt, BufReader};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
const FORGET_ALL: &str = ">2 invalidate _";

/// A client that shows replies and messages as text, in one line each: `>2 invalidate *1 a`.
struct TrackingClient {
    stream: BufReader<TcpStream>,
    id: u64,
}

impl TrackingClient {
    /// A client that speaks RESP2.
    async fn connect(node: &Node) -> Self {
        let stream = TcpStream::connect(node.resp).await.unwrap();
        let mut client = Self {
            stream: BufReader::new(stream),
            id: 0,
        };
        let id = client.ask("CLIENT ID").await;
        client.id = id.strip_prefix(':').unwrap().parse().unwrap();
        client
    }

    /// A client that speaks RESP3.
    async fn three(node: &Node) -> Self {
        let mut client = Self::connect(node).await;
        let hello = client.ask("HELLO 3").await;
        assert!(hello.starts_with("%7 server redis"), "{hello}");
        client
    }

    /// A client that speaks RESP3 and has sent this.
    async fn on(node: &Node, line: &str) -> Self {
        let mut client = Self::three(node).await;
        client.ok(line).await;
        client
    }

    async fn send(&mut self, line: &str) {
        let words = words(line);
        let mut bytes = format!("*{}\r\n", words.len());
        for word in words {
            bytes += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.write_all(bytes.as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> String {
        let read = tokio::time::timeout(PATIENCE, self.read());
        read.await.expect("something comes in time")
    }

    async fn read(&mut self) -> String {
        let (mut left, mut parts) = (1, Vec::new());
        while left > 0 {
            left -= 1;
            let mut line = String::new();
            assert!(
                self.stream.read_line(&mut line).await.unwrap() > 0,
                "closed"
            );
            let line = line.trim_end();
            let number = || line[1..].parse::<i64>().unwrap();
            match line.as_bytes()[0] {
                b'*' | b'>' | b'~' => left += number().max(0),
                b'%' => left += 2 * number(),
                b'$' | b'=' if number() >= 0 => {
                    let mut bulk = vec![0; usize::try_from(number()).unwrap() + 2];
                    self.stream.read_exact(&mut bulk).await.unwrap();
                    parts.push(String::from_utf8_lossy(&bulk).trim_end().to_owned());
                    continue;
                }
                _ => {}
            }
            parts.push(line.to_owned());
        }
        parts.join(" ")
    }

    /// The reply to a command. A node may always tell its clients to forget everything.
    async fn ask(&mut self, line: &str) -> String {
        self.send(line).await;
        loop {
            let heard = self.next().await;
            if heard != FORGET_ALL {
                return heard;
            }
        }
    }

    async fn ok(&mut self, line: &str) {
        assert_eq!(self.ask(line).await, "+OK", "{line}");
    }

    /// Nothing has come so far.
    async fn quiet(&mut self) {
        assert_eq!(self.ask("PING").await, "+PONG");
    }

    /// It has to forget this key, or everything.
    async fn forgets(&mut self, key: &str) {
        let heard = self.next().await;
        if heard != FORGET_ALL {
            assert_eq!(heard, format!(">2 invalidate *1 {key}"));
        }
    }

    async fn forgets_all(&mut self) {
        assert_eq!(self.next().await, FORGET_ALL);
    }
}

fn node() -> Node {
    Node::of_threads(3, None, 20, limits())
}

/// A change that was made just before a read may be told after it, so each key is changed once.
#[tokio::test]
async fn a_client_is_told_once_that_a_key_has_changed_that_it_has_read() {
    let node = node();
    let mut writer = TrackingClient::connect(&node).await;
    for key in ["a", "b", "c", "d", "e", "g"] {
        writer.ok(&format!("SET {key} 1")).await;
    }
    writer.ok("SET f 1 PX 3000").await;
    let mut client = TrackingClient::on(&node, "CLIENT TRACKING ON").await;
    if client.ask("GET f").await == "1" {
        client.forgets("f").await;
    }
    assert_eq!(client.ask("GET a").await, "1");
    writer.ok("SET b 2").await;
    writer.ok("SET a 2").await;
    client.forgets("a").await;
    // It has no value any more.
    writer.ok("SET a 3").await;
    client.quiet().await;
    assert_eq!(client.ask("MGET c none").await, "*2 1 _");
    writer.ok("SET none 1").await;
    client.forgets("none").await;
    assert_eq!(writer.ask("DEL c").await, ":1");
    client.forgets("c").await;
    // Its own changes count, too.
    assert_eq!(client.ask("GET d").await, "1");
    client.ok("SET d 2").await;
    client.forgets("d").await;
    assert_eq!(client.ask("TTL e").await, ":-1");
    assert_eq!(writer.ask("EXPIRE e 100").await, ":1");
    client.forgets("e").await;
    // A transaction, and a script.
    client.ok("MULTI").await;
    assert_eq!(client.ask("GET {t}a").await, "+QUEUED");
    assert_eq!(client.ask("SET {t}b x").await, "+QUEUED");
    assert_eq!(client.ask("EXEC").await, "*2 _ +OK");
    writer.ok("SET {t}b 1").await;
    writer.ok("SET {t}a 1").await;
    client.forgets("{t}a").await;
    let script = "EVAL return(redis.call('get',KEYS[1])) 1 g";
    assert_eq!(client.ask(script).await, "1");
    writer.ok("SET g 2").await;
    client.forgets("g").await;
    client.ask("GET h").await;
    client.ok("CLIENT TRACKING OFF").await;
    writer.ok("SET h 1").await;
    client.quiet().await;
    node.stop().await;
}

#[tokio::test]
async fn a_client_does_not_hear_of_its_own_changes_if_it_asks_for_that() {
    let node = node();
    let [from, to, _] = super::several::apart(&mut node.client().await).await;
    let mut writer = TrackingClient::connect(&node).await;
    let mut other = TrackingClient::on(&node, "CLIENT TRACKING ON NOLOOP").await;
    let mut client = TrackingClient::on(&node, "CLIENT TRACKING ON NOLOOP").await;
    let info = client.ask("CLIENT TRACKINGINFO").await;
    assert_eq!(info, "%3 flags ~2 on noloop redirect :0 prefixes *0");
    // Keys of several data threads, and writes of all sorts.
    for n in 0..12 {
        let key = format!("{{k{n}}}");
        for reader in [&mut client, &mut other] {
            assert_eq!(reader.ask(&format!("GET {key}")).await, "_");
        }
        match n % 4 {
            0 => client.ok(&format!("SET {key} 1")).await,
            1 => assert_eq!(client.ask(&format!("INCR {key}")).await, ":1"),
            2 => {
                client.ok("MULTI").await;
                client.ask(&format!("SET {key} 1")).await;
                assert_eq!(client.ask("EXEC").await, "*1 +OK");
            }
            _ => {
                let script = format!("EVAL return(redis.call('incr',KEYS[1])) 1 {key}");
                assert_eq!(client.ask(&script).await, ":1");
            }
        }
        other.forgets(&key).await;
        // It has what it wrote, so it hears when another client changes that.
        assert_eq!(writer.ask(&format!("INCR {key}")).await, ":2");
        client.forgets(&key).await;
    }
    client.quiet().await;
    other.quiet().await;
    // Keys of two partitions, in steps.
    for key in [&from, &to] {
        client.ask(&format!("LLEN {key}")).await;
    }
    client.ask(&format!("RPUSH {from} x")).await;
    let moved = client.ask(&format!("LMOVE {from} {to} LEFT LEFT")).await;
    assert_eq!(moved, "x");
    writer.ask(&format!("DEL {to}")).await;
    client.forgets(&to).await;
    // Without the option, it hears of its own changes again.
    client.ok("CLIENT TRACKING OFF").await;
    client.ok("CLIENT TRACKING ON").await;
    assert_eq!(client.ask("GET k").await, "_");
    client.ok("SET k 1").await;
    client.forgets("k").await;
    node.stop().await;
}

#[tokio::test]
async fn a_client_in_broadcast_mode_does_not_hear_of_its_own_changes_if_it_asks_for_that() {
    let node = node();
    let line = "CLIENT TRACKING ON BCAST PREFIX k NOLOOP";
    let mut client = TrackingClient::on(&node, line).await;
    let mut other = TrackingClient::on(&node, line).await;
    for n in 0..6 {
        client.ok(&format!("SET k{n} 1")).await;
        other.forgets(&format!("k{n}")).await;
    }
    other.ok("SET k9 1").await;
    client.forgets("k9").await;
    client.quiet().await;
    other.quiet().await;
    node.stop().await;
}

#[tokio::test]
async fn a_client_chooses_which_reads_are_tracked() {
    let node = node();
    let mut writer = TrackingClient::connect(&node).await;
    let mut client = TrackingClient::on(&node, "CLIENT TRACKING ON OPTIN").await;
    client.ask("GET a").await;
    client.ok("CLIENT CACHING YES").await;
    client.ask("GET b").await;
    client.ask("GET c").await;
    for key in ["a", "c", "b"] {
        writer.ok(&format!("SET {key} 1")).await;
    }
    client.forgets("b").await;
    // It is for a whole transaction.
    client.ok("CLIENT CACHING YES").await;
    client.ok("MULTI").await;
    client.ask("GET {t}a").await;
    client.ask("GET {t}b").await;
    client.ask("EXEC").await;
    client.ask("GET {t}c").await;
    for key in ["{t}c", "{t}a", "{t}b"] {
        writer.ok(&format!("SET {key} 1")).await;
    }
    client.forgets("{t}a").await;
    client.forgets("{t}b").await;
    let info = client.ask("CLIENT TRACKINGINFO").await;
    assert_eq!(info, "%3 flags ~2 on optin redirect :0 prefixes *0");
    let why = client.ask("CLIENT TRACKING ON OPTOUT").await;
    assert!(
        why.starts_with("-ERR You can't switch OPTIN/OPTOUT mode"),
        "{why}"
    );
    client.ok("CLIENT TRACKING OFF").await;
    client.ok("CLIENT TRACKING ON OPTOUT").await;
    client.ok("CLIENT CACHING NO").await;
    client.ask("GET d").await;
    client.ask("GET e").await;
    for key in ["d", "e"] {
        writer.ok(&format!("SET {key} 1")).await;
    }
    client.forgets("e").await;
    client.quiet().await;
    node.stop().await;
}

#[tokio::test]
async fn in_broadcast_mode_a_client_is_told_of_all_keys_with_its_prefixes() {
    let node = node();
    let mut writer = TrackingClient::connect(&node).await;
    let mut client =
        TrackingClient::on(&node, "CLIENT TRACKING ON BCAST PREFIX a: PREFIX b:").await;
    for key in ["a", "d:1", "a:1"] {
        writer.ok(&format!("SET {key} 1")).await;
    }
    client.forgets("a:1").await;
    client.ok("CLIENT TRACKING ON BCAST PREFIX c:").await;
    writer.ok("SET c:1 1").await;
    client.forgets("c:1").await;
    // One message for the keys of each prefix.
    writer.ok("MULTI").await;
    for key in ["b:{t}1", "a:{t}1", "b:{t}2"] {
        assert_eq!(writer.ask(&format!("SET {key} 1")).await, "+QUEUED");
    }
    assert_eq!(writer.ask("EXEC").await, "*3 +OK +OK +OK");
    client.forgets("a:{t}1").await;
    assert_eq!(client.next().await, ">2 invalidate *2 b:{t}1 b:{t}2");
    let info = client.ask("CLIENT TRACKINGINFO").await;
    assert_eq!(
        info,
        "%3 flags ~2 on bcast redirect :0 prefixes *3 a: b: c:"
    );
    let line = client.ask("CLIENT INFO").await;
    assert!(
        line.contains(" flags=tB ") && line.contains(" redir=0 "),
        "{line}"
    );
    let why = client.ask("CLIENT TRACKING ON").await;
    assert!(
        why.starts_with("-ERR You can't switch BCAST mode on/off"),
        "{why}"
    );
    assert_eq!(client.ask("RESET").await, "+RESET");
    assert_eq!(client.ask("CLIENT GETREDIR").await, ":-1");
    // Who may not read a key is not told of it.
    writer
        .ok("ACL SETUSER bound on nopass +@all ~a:* keyspace=default/5")
        .await;
    client.ask("HELLO 3 AUTH bound x").await;
    client.ok("SELECT 5").await;
    client.ok("CLIENT TRACKING ON BCAST").await;
    writer.ok("SET a:1 2").await;
    writer.ok("SELECT 5").await;
    writer.ok("SET b:1 2").await;
    writer.ok("SET a:2 2").await;
    client.forgets("a:2").await;
    node.stop().await;
}

#[tokio::test]
async fn invalidations_go_to_another_connection_of_any_thread_and_protocol() {
    let node = node();
    let mut writer = TrackingClient::connect(&node).await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut target = TrackingClient::connect(&node).await;
        let subscribed = target.ask("SUBSCRIBE __redis__:invalidate").await;
        assert_eq!(subscribed, "*3 subscribe __redis__:invalidate :1");
        let mut client = TrackingClient::connect(&node).await;
        client
            .ok(&format!("CLIENT TRACKING ON REDIRECT {}", target.id))
            .await;
        let redirection = format!(":{}", target.id);
        assert_eq!(client.ask("CLIENT GETREDIR").await, redirection);
        client.ask("GET a").await;
        clients.push((client, target));
    }
    writer.ok("SET a 1").await;
    for (client, target) in &mut clients {
        assert_eq!(target.next().await, "*3 message __redis__:invalidate *1 a");
        client.ask("GET a").await;
    }
    // A target that speaks RESP3 need not subscribe.
    let mut target = TrackingClient::three(&node).await;
    let mut client = TrackingClient::three(&node).await;
    client
        .ok(&format!("CLIENT TRACKING ON REDIRECT {}", target.id))
        .await;
    client.ask("GET h").await;
    writer.ok("SET h 2").await;
    target.forgets("h").await;
    // If it is gone, the client hears so.
    client.ask("GET i").await;
    let gone = target.id;
    drop(target);
    let redirect = format!("CLIENT TRACKING ON REDIRECT {gone}");
    let why = "-ERR The client ID you want redirect to does not exist";
    while writer.ask(&redirect).await != why {}
    writer.ok("SET i 3").await;
    let broken = format!(">2 tracking-redir-broken :{gone}");
    assert_eq!(client.next().await, broken);
    let info = client.ask("CLIENT TRACKINGINFO").await;
    let flags = "%3 flags ~2 on broken_redirect";
    assert_eq!(info, format!("{flags} redirect :{gone} prefixes *0"));
    let line = client.ask("CLIENT INFO").await;
    assert!(
        line.contains(" flags=tR ") && line.contains(&format!(" redir={gone} ")),
        "{line}"
    );
    // All keys are deleted.
    writer.ok("FLUSHALL").await;
    for (_, target) in &mut clients {
        assert_eq!(target.next().await, "*3 message __redis__:invalidate $-1");
    }
    node.stop().await;
}

#[tokio::test]
async fn clients_forget_everything_if_all_keys_are_deleted() {
    let node = node();
    let mut writer = TrackingClient::connect(&node).await;
    for command in ["FLUSHALL", "FLUSHDB"] {
        writer.ok("SET b 1").await;
        let mut client = TrackingClient::on(&node, "CLIENT TRACKING ON").await;
        let mut broadcast = TrackingClient::on(&node, "CLIENT TRACKING ON BCAST PREFIX x").await;
        client.ask("GET a").await;
        writer.ok(command).await;
        client.forgets_all().await;
        broadcast.forgets_all().await;
        // It hears so once, because it has read nothing since.
        client.send("PING").await;
        assert_eq!(client.next().await, "+PONG");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_client_that_waits_in_line_is_told_meanwhile() {
    let node = node();
    let mut writer = TrackingClient::connect(&node).await;
    let mut client = TrackingClient::on(&node, "CLIENT TRACKING ON").await;
    client.ask("GET a").await;
    client.send("BZPOPMIN line 0").await;
    writer.ok("SET a 1").await;
    client.forgets("a").await;
    assert_eq!(writer.ask("ZADD line 1 x").await, ":1");
    assert_eq!(client.next().await, "*3 line x ,1");
    node.stop().await;
}

/// What a client has of each key.
#[derive(Debug, Default)]
struct Cached(BTreeMap<String, String>);

impl Cached {
    /// Whether this is an invalidation.
    fn hears(&mut self, heard: &str) -> bool {
        if heard == FORGET_ALL {
            self.0.clear();
            return true;
        }
        let key = heard.strip_prefix(">2 invalidate *1 ");
        if let Some(key) = key {
            self.0.remove(key);
        }
        key.is_some()
    }
}

/// A value that was read before a change may arrive after the client was told of the change. Then
/// the client hears of it again, so it keeps the newest value, or none.
#[tokio::test]
async fn no_client_keeps_a_stale_value_however_reads_and_writes_meet() {
    const KEYS: [&str; 3] = ["x", "y", "z"];
    let node = node();
    let at = node.resp;
    let writes = tokio::spawn(async move {
        let mut writer = Client::connect(at).await.unwrap();
        for n in 1..=400 {
            let commands = KEYS.map(|key| words(&format!("SET {key} {n}")));
            writer.pipeline(&commands).await.unwrap();
        }
    });
    let mut client = TrackingClient::on(&node, "CLIENT TRACKING ON").await;
    let mut cached = Cached::default();
    while !writes.is_finished() {
        for key in KEYS {
            client.send(&format!("GET {key}")).await;
        }
        for key in KEYS {
            let mut heard = client.next().await;
            while cached.hears(&heard) {
                heard = client.next().await;
            }
            cached.0.insert(key.to_owned(), heard);
        }
    }
    writes.await.unwrap();
    while cached.0.values().any(|value| value != "400") {
        let heard = client.next().await;
        assert!(cached.hears(&heard), "{heard}");
    }
    node.stop().await;
}

/// The primary of half of the partitions answers nothing.
#[tokio::test]
async fn clients_forget_everything_while_changes_may_be_missing() {
    let park = Duration::from_secs(1);
    let node = Node::of_threads(2, None, 10, Limits { park, ..limits() });
    let mut client = TrackingClient::on(&node, "CLIENT TRACKING ON").await;
    assert_eq!(client.ask("GET a").await, "_");
    let me = member(ME, node.resp, &node.clusters);
    let silent = Member {
        id: MemberId(0xdef0),
        age: Age(2),
        name: "two".to_owned(),
        ..me.clone()
    };
    let mut half = view_of(vec![me, silent], 0);
    let mut table = (*half.installed).clone();
    table.version.0 += 2;
    half.installed = Arc::new(table);
    half.accepted = half.installed.clone();
    node.shared.publish(crate::control::shared::LocalView {
        me: ME,
        view: Some(half),
    });
    client.forgets_all().await;
    // Again, if it has read something since.
    let read = client.ask("GET a").await;
    assert!(read == "_" || read.starts_with("-TRYAGAIN"), "{read}");
    client.forgets_all().await;
    // Nothing begins that cannot be kept.
    let mut other = TrackingClient::three(&node).await;
    let why = loop {
        let reply = other.ask("CLIENT TRACKING ON").await;
        if reply != "+OK" {
            break reply;
        }
        other.ok("CLIENT TRACKING OFF").await;
    };
    assert!(why.starts_with("-TRYAGAIN "), "{why}");
    node.stop().await;
}

#[tokio::test]
async fn mistakes_are_answered_as_redis_answers_them() {
    let node = node();
    let mut client = TrackingClient::three(&node).await;
    for (line, why) in [
        ("CLIENT TRACKING x", "ERR syntax error"),
        ("CLIENT TRACKING ON x", "ERR syntax error"),
        ("CLIENT TRACKING ON REDIRECT", "ERR syntax error"),
        (
            "CLIENT TRACKING ON REDIRECT x",
            "ERR value is not an integer or out of range",
        ),
        (
            "CLIENT TRACKING ON REDIRECT 999",
            "ERR The client ID you want redirect to does not exist",
        ),
        (
            "CLIENT TRACKING ON REDIRECT 1 REDIRECT 2",
            "ERR A client can only redirect to a single other client",
        ),
        (
            "CLIENT TRACKING ON PREFIX a",
            "ERR PREFIX option requires BCAST mode to be enabled",
        ),
        (
            "CLIENT TRACKING ON BCAST OPTIN",
            "ERR OPTIN and OPTOUT are not compatible with BCAST",
        ),
        (
            "CLIENT TRACKING ON OPTIN OPTOUT",
            "ERR You can't specify both OPTIN mode and OPTOUT mode",
        ),
        (
            "CLIENT CACHING YES",
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN \
             or OPTOUT mode enabled",
        ),
    ] {
        assert_eq!(client.ask(line).await, format!("-{why}"), "{line}");
    }
    client.ok("CLIENT TRACKING ON").await;
    for (line, why) in [
        (
            "CLIENT CACHING YES",
            "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
        ),
        (
            "CLIENT CACHING NO",
            "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        ),
        ("CLIENT CACHING x", "ERR syntax error"),
    ] {
        assert_eq!(client.ask(line).await, format!("-{why}"), "{line}");
    }
    let why = client.ask("CLIENT KEYSPACE other").await;
    assert!(why.starts_with("-ERR this client tracks keys"), "{why}");
    node.stop().await;
}
