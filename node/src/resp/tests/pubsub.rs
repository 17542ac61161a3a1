//! Publish and subscribe, with several clients and data threads.

use super::*;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection whose replies are compared byte by byte.
struct Talker(TcpStream);

impl Talker {
    async fn at(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    async fn resp3(address: SocketAddr) -> Self {
        let mut talker = Self::at(address).await;
        talker.send("HELLO 3").await;
        loop {
            let line = talker.line().await;
            if line == "modules" {
                assert_eq!(talker.line().await, "*0");
                return talker;
            }
        }
    }

    async fn send(&mut self, line: &str) {
        let line = format!("{line}\r\n");
        self.0.write_all(line.as_bytes()).await.unwrap();
    }

    /// Reads as many bytes as this text has. Blanks stand for line ends.
    async fn reads(&mut self, expected: &str) {
        let expected = expected.replace(' ', "\r\n") + "\r\n";
        let mut got = vec![0; expected.len()];
        let read = tokio::time::timeout(PATIENCE, self.0.read_exact(&mut got));
        let read = read
            .await
            .unwrap_or_else(|_| panic!("waits for {expected}"));
        read.unwrap_or_else(|why| panic!("waits for {expected}: {why}"));
        assert_eq!(String::from_utf8_lossy(&got), expected);
    }

    async fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.push(self.0.read_u8().await.unwrap());
        }
        line.truncate(line.len() - 2);
        String::from_utf8(line).unwrap()
    }

    async fn asks(&mut self, line: &str, expected: &str) {
        self.send(line).await;
        self.reads(expected).await;
    }

    /// Nothing else has come.
    async fn is_at_end(&mut self, pong: &str) {
        self.asks("PING end", pong).await;
    }
}

fn bulk(text: &str) -> String {
    format!("${} {text}", text.len())
}

/// A message of RESP2 (`*`) or RESP3 (`>`).
fn message(kind: char, channel: &str, text: &str) -> String {
    format!("{kind}3 $7 message {} {}", bulk(channel), bulk(text))
}

/// Every reply was compared with redis-server 7.0.15, where a client that gets its own message gets
/// it before the reply.
#[tokio::test]
async fn subscribers_are_answered_as_redis_answers_them() {
    let node = Node::start(None, 10);
    for (first, lines) in [
        (
            Talker::at(node.resp).await,
            include_str!("subscribers2.txt"),
        ),
        (
            Talker::resp3(node.cluster).await,
            include_str!("subscribers3.txt"),
        ),
    ] {
        let mut client = first;
        let cases = lines.lines().filter(|l| !l.starts_with('#'));
        for case in cases.filter(|l| !l.is_empty()) {
            let (line, expected) = case.split_once(" =>").unwrap();
            client.send(line).await;
            if let Some(expected) = expected.strip_prefix(" -") {
                assert_eq!(client.line().await, format!("-{expected}"), "{line}");
            } else if let Some(expected) = expected.strip_prefix(' ') {
                client.reads(expected).await;
            }
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn a_message_reaches_the_subscribers_of_all_threads_in_the_order_of_its_publisher() {
    let node = Node::of_threads(3, None, 30, limits());
    let mut subscribers = Vec::new();
    for n in 0..6 {
        let (mut client, kind) = if n % 2 == 0 {
            (Talker::at(node.resp).await, '*')
        } else {
            (Talker::resp3(node.clusters[n % 3]).await, '>')
        };
        client
            .asks(
                "SUBSCRIBE news",
                &format!("{kind}3 $9 subscribe $4 news :1"),
            )
            .await;
        client
            .asks(
                "PSUBSCRIBE n?ws x*",
                &format!("{kind}3 $10 psubscribe $4 n?ws :2 {kind}3 $10 psubscribe $2 x* :3"),
            )
            .await;
        subscribers.push((client, kind));
    }
    let mut publishers = Vec::new();
    for _ in 0..3 {
        publishers.push(Talker::at(node.resp).await);
    }
    const EACH: usize = 100;
    for (p, publisher) in publishers.iter_mut().enumerate() {
        for n in 0..EACH {
            publisher.send(&format!("PUBLISH news {p}-{n:03}")).await;
        }
        publisher.send("PUBLISH other nothing").await;
    }
    for publisher in &mut publishers {
        for _ in 0..EACH {
            publisher.reads(":12").await;
        }
        publisher.reads(":0").await;
    }
    for (client, kind) in &mut subscribers {
        let mut next = [0; 3];
        for _ in 0..EACH * 3 {
            // The message of the channel, then that of the pattern.
            client
                .reads(&format!("{kind}3 $7 message $4 news $5"))
                .await;
            let text = client.line().await;
            client
                .reads(&format!(
                    "{kind}4 $8 pmessage $4 n?ws $4 news {}",
                    bulk(&text)
                ))
                .await;
            let (publisher, n) = text.split_once('-').unwrap();
            let publisher: usize = publisher.parse().unwrap();
            assert_eq!(n.parse(), Ok(next[publisher]));
            next[publisher] += 1;
        }
        let pong = if *kind == '*' {
            "*2 $4 pong $3 end"
        } else {
            "$3 end"
        };
        client.is_at_end(pong).await;
    }
    // The plain port answers for the node, the other ports for their threads.
    let publisher = &mut publishers[0];
    publisher.asks("PUBSUB NUMSUB news", "*2 $4 news :6").await;
    publisher.asks("PUBSUB NUMPAT", ":2").await;
    publisher.asks("PUBSUB CHANNELS", "*1 $4 news").await;
    let mut sum = 0;
    for at in &node.clusters {
        let mut client = Talker::at(*at).await;
        client.send("PUBSUB NUMSUB news").await;
        client.reads("*2 $4 news").await;
        sum += client.line().await[1..].parse::<i32>().unwrap();
    }
    assert_eq!(sum, 6);
    node.stop().await;
}

/// The other thread answers the reads, so their replies come later than those of `PING`.
#[tokio::test]
async fn confirmations_and_messages_keep_their_places_among_replies() {
    let node = Node::of_threads(2, None, 20, limits());
    let mut publisher = Talker::at(node.resp).await;
    for n in 0..8 {
        publisher.asks(&format!("SET key:{n} {n}"), "+OK").await;
    }
    for _ in 0..20 {
        let mut client = Talker::resp3(node.resp).await;
        let (mut lines, mut expected) = (String::new(), String::new());
        for n in 0..8 {
            lines += &format!("GET key:{n}\r\nSUBSCRIBE {n}\r\nPING\r\n");
            expected += &format!("$1 {n} >3 $9 subscribe $1 {n} :{} +PONG ", n + 1);
        }
        for n in 0..8 {
            lines += &format!("GET key:{n}\r\nUNSUBSCRIBE {n}\r\nECHO {n}\r\n");
            expected += &format!("$1 {n} >3 $11 unsubscribe $1 {n} :{} $1 {n} ", 7 - n);
        }
        client.send(lines.trim_end()).await;
        client.reads(expected.trim_end()).await;
    }
    node.stop().await;
}

/// The subscriber reads the key that a message names, at another connection than the writer's.
#[tokio::test]
async fn a_message_does_not_overtake_the_write_before_it() {
    let node = Node::of_threads(2, None, 20, limits());
    let (mut writer, mut reader) = (Talker::at(node.resp).await, Talker::at(node.resp).await);
    let mut subscriber = Talker::at(node.resp).await;
    subscriber
        .asks("SUBSCRIBE changed", "*3 $9 subscribe $7 changed :1")
        .await;
    for n in 100..400 {
        writer
            .send(&format!("SET key:{n} v{n}\r\nPUBLISH changed key:{n}"))
            .await;
        subscriber
            .reads(&message('*', "changed", &format!("key:{n}")))
            .await;
        reader
            .asks(&format!("GET key:{n}"), &format!("$4 v{n}"))
            .await;
        writer.reads("+OK :1").await;
    }
    node.stop().await;
}

/// A transaction publishes once it is executed, and nothing if it is not.
#[tokio::test]
async fn a_transaction_publishes_when_it_is_executed() {
    let node = Node::of_threads(2, None, 20, limits());
    let mut writer = Talker::at(node.resp).await;
    let mut subscriber = Talker::at(node.resp).await;
    subscriber
        .asks("SUBSCRIBE changed", "*3 $9 subscribe $7 changed :1")
        .await;
    // The keys are at both threads, so some transactions have several parts.
    for n in 0..50 {
        let lines = format!(
            "MULTI\r\nSET key:{n} v\r\nPUBLISH changed {n:02}\r\nSET other:{n} v\r\nPING\r\nEXEC"
        );
        writer
            .asks(
                &lines,
                "+OK +QUEUED +QUEUED +QUEUED +QUEUED *4 +OK :1 +OK +PONG",
            )
            .await;
        subscriber
            .reads(&message('*', "changed", &format!("{n:02}")))
            .await;
    }
    let aborted = "WATCH key:1\r\nSET key:1 w\r\nMULTI\r\nPUBLISH changed no\r\nEXEC";
    writer.asks(aborted, "+OK +OK +OK +QUEUED *-1").await;
    let discarded = "MULTI\r\nPUBLISH changed no\r\nDISCARD";
    writer.asks(discarded, "+OK +QUEUED +OK").await;
    // Without keys, and with a key that did not change.
    let bare = "MULTI\r\nPUBLISH changed a\r\nPUBLISH other b\r\nEXEC";
    writer.asks(bare, "+OK +QUEUED +QUEUED *2 :1 :0").await;
    let watched = "WATCH key:1\r\nMULTI\r\nPUBLISH changed b\r\nEXEC";
    writer.asks(watched, "+OK +OK +QUEUED *1 :1").await;
    // The text of a script is looked up first, or stored as well.
    let by_digest = format!("EVALSHA {} 0", "0".repeat(40));
    for (more, text, after) in [("PING", "c", "+PONG :1"), ("SET a 1", "d", "+OK :1")] {
        let lines = format!("MULTI\r\n{by_digest}\r\n{more}\r\nPUBLISH changed {text}\r\nEXEC");
        writer.asks(&lines, "+OK +QUEUED +QUEUED +QUEUED *3").await;
        assert!(writer.line().await.starts_with("-NOSCRIPT "));
        writer.reads(after).await;
    }
    let stored = "MULTI\r\nEVAL return{} 0\r\nPUBLISH changed e\r\nEXEC";
    writer.asks(stored, "+OK +QUEUED +QUEUED *2 *0 :1").await;
    for text in ["a", "b", "c", "d", "e"] {
        subscriber.reads(&message('*', "changed", text)).await;
    }
    subscriber.is_at_end("*2 $4 pong $3 end").await;
    node.stop().await;
}

#[tokio::test]
async fn a_client_that_is_reset_or_gone_or_has_no_subscription_left_gets_no_messages() {
    let node = Node::of_threads(2, None, 20, limits());
    let mut publisher = Talker::at(node.resp).await;
    let mut gone = Talker::at(node.resp).await;
    gone.asks("SUBSCRIBE a", "*3 $9 subscribe $1 a :1").await;
    let mut client = Talker::at(node.resp).await;
    client
        .asks("SSUBSCRIBE a", "*3 $10 ssubscribe $1 a :1")
        .await;
    client.asks("SUBSCRIBE a", "*3 $9 subscribe $1 a :1").await;
    publisher.asks("PUBLISH a 1", ":2").await;
    publisher.asks("SPUBLISH a 2", ":1").await;
    client.reads(&message('*', "a", "1")).await;
    client.reads("*3 $8 smessage $1 a $1 2").await;
    client.asks("RESET", "+RESET").await;
    drop(gone);
    loop {
        publisher.send("PUBSUB NUMSUB a").await;
        publisher.reads("*2 $1 a").await;
        if publisher.line().await == ":0" {
            break;
        }
    }
    publisher.asks("PUBLISH a 3", ":0").await;
    publisher.asks("SPUBLISH a 4", ":0").await;
    client.asks("SUBSCRIBE a", "*3 $9 subscribe $1 a :1").await;
    publisher.asks("PUBLISH a 5", ":1").await;
    client.reads(&message('*', "a", "5")).await;
    client
        .asks("UNSUBSCRIBE", "*3 $11 unsubscribe $1 a :0")
        .await;
    publisher.asks("PUBLISH a 6", ":0").await;
    client.asks("GET a", "$-1").await;
    assert_eq!(node.handle.stats().await.subscribers, 0);
    node.stop().await;
}

#[tokio::test]
async fn many_subscriptions_are_made_and_ended_by_one_command() {
    const MANY: usize = 100_000;
    let limits = Limits {
        memory_bytes_max: 2 << 30,
        ..limits()
    };
    let node = Node::of_threads(2, None, 20, limits);
    let mut client = Talker::at(node.resp).await;
    let mut publisher = Talker::at(node.resp).await;
    let names = |from: usize, count: usize| {
        let names = (from..from + count).map(|n| format!(" channel:{n:05}"));
        names.collect::<String>()
    };
    // Inline commands have a limit, so this one is an array.
    let command = |name: &str, names: &str| {
        let words: Vec<&str> = [name].into_iter().chain(names.split_whitespace()).collect();
        let mut bytes = format!("*{}", words.len());
        for word in words {
            bytes += &format!("\r\n${}\r\n{word}", word.len());
        }
        bytes
    };
    client.send(&command("SUBSCRIBE", &names(0, MANY))).await;
    client.send("PING").await;
    for n in 0..MANY {
        let expected = format!("*3 $9 subscribe $13 channel:{n:05} :{}", n + 1);
        client.reads(&expected).await;
    }
    client.reads("*2 $4 pong $0 ").await;
    publisher.asks("PUBLISH channel:65535 x", ":1").await;
    client.reads(&message('*', "channel:65535", "x")).await;
    publisher
        .asks(
            "PUBSUB CHANNELS *:0000[12]",
            "*2 $13 channel:00001 $13 channel:00002",
        )
        .await;
    client.send("UNSUBSCRIBE").await;
    for n in 0..MANY {
        let left = MANY - 1 - n;
        let expected = format!("*3 $11 unsubscribe $13 channel:{n:05} :{left}");
        client.reads(&expected).await;
    }
    // A reset ends as many, and the same client may subscribe to the same channels at once.
    client.send(&command("SUBSCRIBE", &names(0, MANY))).await;
    for n in 0..MANY {
        let expected = format!("*3 $9 subscribe $13 channel:{n:05} :{}", n + 1);
        client.reads(&expected).await;
    }
    client.send("RESET\r\nSUBSCRIBE channel:65535").await;
    client
        .reads("+RESET *3 $9 subscribe $13 channel:65535 :1")
        .await;
    publisher.asks("PUBLISH channel:65535 y", ":1").await;
    client.reads(&message('*', "channel:65535", "y")).await;
    publisher
        .asks("PUBSUB CHANNELS", "*1 $13 channel:65535")
        .await;
    let long = "n".repeat(1025);
    for command in [
        format!("PSUBSCRIBE {long}"),
        format!("SUBSCRIBE {long}"),
        format!("PUBLISH {long} x"),
    ] {
        publisher.send(&command).await;
        let why = publisher.line().await;
        assert!(why.ends_with("is too long: at most 1024 bytes"), "{why}");
    }
    node.stop().await;
}

/// Regression: a client had 65,536 subscriptions at most, and of a command beyond that, or beyond
/// the memory for subscriptions, no channel was subscribed to.
#[tokio::test]
async fn subscriptions_are_bounded_by_bytes_and_those_that_fit_are_made() {
    let limits = Limits {
        memory_bytes_max: 2 << 20,
        ..limits()
    };
    let node = Node::with(None, 20, limits);
    let mut client = Talker::at(node.resp).await;
    let mut publisher = Talker::at(node.resp).await;
    let (mut made, mut refused) = (0, None);
    for n in 0..100 {
        let names = (0..100).map(|at| format!(" channel:{n:03}:{at:03}"));
        client
            .send(&format!("SUBSCRIBE{}", names.collect::<String>()))
            .await;
        for at in 0..100 {
            let line = client.line().await;
            if line.starts_with('-') {
                refused = Some((line, format!("channel:{n:03}:{at:03}")));
                break;
            }
            for _ in 0..4 {
                client.line().await;
            }
            assert_eq!(client.line().await, format!(":{}", made + 1));
            made += 1;
        }
        if refused.is_some() {
            break;
        }
    }
    let (why, first) = refused.expect("the memory has an end");
    assert!(
        why.contains("take too much memory") && why.contains("--memory-max"),
        "{why}"
    );
    assert!(made > 500, "{made}");
    publisher.asks(&format!("PUBLISH {first} x"), ":0").await;
    publisher.asks("PUBLISH channel:000:000 x", ":1").await;
    client.reads(&message('*', "channel:000:000", "x")).await;
    // There is room again once some have ended.
    client.send("UNSUBSCRIBE channel:000:000").await;
    client
        .reads(&format!(
            "*3 $11 unsubscribe $15 channel:000:000 :{}",
            made - 1
        ))
        .await;
    client.send(&format!("SUBSCRIBE {first}")).await;
    client
        .reads(&format!("*3 $9 subscribe $15 {first} :{made}"))
        .await;
    node.stop().await;
}

fn large_memory() -> Limits {
    Limits {
        memory_bytes_max: 4 << 30,
        ..limits()
    }
}

/// Publishes `count` long messages, and waits for the replies.
async fn publish(publisher: &mut Talker, count: usize) {
    let command = format!("PUBLISH news {}", "x".repeat(LONG));
    for _ in 0..count {
        publisher.send(&command).await;
        assert!(publisher.line().await.starts_with(':'));
    }
}

const LONG: usize = 32 << 10;

#[tokio::test]
async fn a_subscriber_that_reads_nothing_is_disconnected_and_disturbs_no_other() {
    let node = Node::of_threads(2, None, 20, large_memory());
    let mut publisher = Talker::at(node.resp).await;
    let mut slow = Vec::new();
    for _ in 0..2 {
        let mut client = Talker::at(node.resp).await;
        client
            .asks("SUBSCRIBE news", "*3 $9 subscribe $4 news :1")
            .await;
        slow.push(client);
    }
    let mut quick = Talker::at(node.resp).await;
    quick
        .asks("SUBSCRIBE news", "*3 $9 subscribe $4 news :1")
        .await;
    // What fits into the buffers of the system comes on top.
    let count = (64 << 20) / LONG;
    let reader = tokio::spawn(async move {
        let expected = message('*', "news", &"x".repeat(LONG));
        for _ in 0..count {
            quick.reads(&expected).await;
        }
        quick
    });
    publish(&mut publisher, count).await;
    let mut quick = reader.await.unwrap();
    publisher.asks("PUBSUB NUMSUB news", "*2 $4 news :1").await;
    quick.is_at_end("*2 $4 pong $3 end").await;
    assert_eq!(node.handle.stats().await.subscribers_expelled, 2);
    for mut client in slow {
        // It gets some messages, and then the end.
        let end = async {
            let mut got = vec![0; 1 << 20];
            while !matches!(client.0.read(&mut got).await, Ok(0) | Err(_)) {}
        };
        tokio::time::timeout(PATIENCE, end).await.unwrap();
    }
    node.stop().await;
}

/// The messages for all of them together are bounded, but each is held only once.
#[tokio::test]
async fn subscribers_share_the_messages_that_wait_for_them() {
    let limits = Limits {
        memory_bytes_max: 128 << 20,
        ..limits()
    };
    let node = Node::of_threads(1, None, 40, limits);
    let mut publisher = Talker::at(node.resp).await;
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut client = Talker::at(node.resp).await;
        client
            .asks("SUBSCRIBE news", "*3 $9 subscribe $4 news :1")
            .await;
        slow.push(client);
    }
    // The share of all subscribers is 16 MiB.
    publish(&mut publisher, (12 << 20) / LONG).await;
    let stats = node.handle.stats().await;
    assert_eq!((stats.subscribers, stats.subscribers_expelled), (20, 0));
    publish(&mut publisher, (24 << 20) / LONG).await;
    let stats = node.handle.stats().await;
    assert!(stats.subscribers_expelled > 0, "{stats:?}");
    publisher.asks("PING", "+PONG").await;
    node.stop().await;
}
