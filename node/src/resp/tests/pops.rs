//! Pops that wait: in order, for a time, until another client wakes them, and with nothing lost if
//! their client is gone.

use super::*;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

/// What a pop of a member like `m1`, whose score is its number, answers.
fn popped(key: &str, score: &str) -> Reply {
    Reply::Array(vec![bulk(key), bulk(&format!("m{score}")), bulk(score)])
}

fn error(text: &str) -> Reply {
    Reply::Error(text.to_owned())
}

/// A client that has sent a command, and waits for its reply.
struct Waiting {
    task: tokio::task::JoinHandle<Vec<Reply>>,
    id: i64,
}

impl Node {
    /// A client sends these commands together. The first one waits, once this many clients wait.
    async fn waits(&self, lines: &[&str], all: usize) -> Waiting {
        let mut client = self.client().await;
        let Reply::Int(id) = ask(&mut client, "CLIENT ID").await else {
            panic!("no id")
        };
        let commands: Vec<Vec<String>> = lines.iter().map(|line| words(line)).collect();
        let task = tokio::spawn(async move { client.pipeline(&commands).await.unwrap() });
        self.blocked(all).await;
        Waiting { task, id }
    }

    /// Returns once this many clients wait.
    pub(super) async fn blocked(&self, all: usize) {
        let mut client = self.client().await;
        let wanted = format!("blocked_clients:{all}\r\n");
        let until = std::time::Instant::now() + PATIENCE;
        loop {
            let Reply::Bulk(info) = ask(&mut client, "INFO clients").await else {
                panic!("no text")
            };
            if String::from_utf8_lossy(&info).contains(&wanted) {
                return;
            }
            assert!(std::time::Instant::now() < until, "not {wanted}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl Waiting {
    async fn replies(self) -> Vec<Reply> {
        tokio::time::timeout(PATIENCE, self.task)
            .await
            .expect("it is answered")
            .unwrap()
    }
}

#[tokio::test]
async fn a_pop_waits_and_later_commands_wait_behind_it() {
    let node = Node::of_threads(2, None, 50, limits());
    let mut client = node.client().await;
    let first = node.waits(&["BZPOPMIN a b 0", "GET x"], 1).await;
    let second = node.waits(&["BZPOPMIN b a 0", "PING"], 2).await;
    assert_eq!(
        ask(&mut client, "SET x later").await,
        Reply::Simple("OK".into())
    );
    assert_eq!(ask(&mut client, "ZADD a 1 m1").await, Reply::Int(1));
    assert_eq!(first.replies().await, [popped("a", "1"), bulk("later")]);
    node.blocked(1).await;
    assert_eq!(ask(&mut client, "ZADD b 2 m2").await, Reply::Int(1));
    assert_eq!(
        second.replies().await,
        [popped("b", "2"), Reply::Simple("PONG".into())]
    );
    node.blocked(0).await;
    // timeouts
    let began = std::time::Instant::now();
    assert_eq!(ask(&mut client, "BZPOPMIN a b 0.1").await, Reply::Nil);
    assert!(began.elapsed() >= Duration::from_millis(100));
    for (line, why) in [
        ("BZPOPMIN a x", "ERR timeout is not a float or out of range"),
        ("BZPOPMIN a -1", "ERR timeout is negative"),
        ("BZPOPMIN a 1e30", "ERR timeout is out of range"),
        (
            "BZPOPMIN x 0",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
    ] {
        assert_eq!(ask(&mut client, line).await, error(why), "{line}");
    }
    for (how, reply) in [
        ("", Reply::Nil),
        (" TIMEOUT", Reply::Nil),
        (
            " ERROR",
            error("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
        ),
    ] {
        let waiting = node.waits(&["BZPOPMIN a b c 0"], 1).await;
        let Reply::Bulk(list) = ask(&mut client, &format!("CLIENT LIST ID {}", waiting.id)).await
        else {
            panic!("no list")
        };
        let list = String::from_utf8_lossy(&list);
        assert!(
            list.contains(" flags=b ") && list.contains(" cmd=bzpopmin "),
            "{list}"
        );
        let unblock = format!("CLIENT UNBLOCK {}{how}", waiting.id);
        assert_eq!(ask(&mut client, &unblock).await, Reply::Int(1));
        assert_eq!(waiting.replies().await, [reply]);
        assert_eq!(ask(&mut client, &unblock).await, Reply::Int(0));
    }
    node.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_takes_nothing() {
    let node = Node::of_threads(2, None, 50, limits());
    let mut client = node.client().await;
    let gone = node.waits(&["BZPOPMIN a b 0"], 1).await;
    gone.task.abort();
    node.blocked(0).await;
    assert_eq!(ask(&mut client, "ZADD a 1 m1").await, Reply::Int(1));
    assert_eq!(ask(&mut client, "ZCARD a").await, Reply::Int(1));
    let waiting = node.waits(&["BZPOPMIN c 0"], 1).await;
    let killed = format!("CLIENT KILL ID {}", waiting.id);
    assert_eq!(ask(&mut client, &killed).await, Reply::Int(1));
    node.blocked(0).await;
    drop(waiting);
    // MULTI and scripts
    for (line, reply) in [
        ("MULTI", Reply::Simple("OK".into())),
        ("BZPOPMIN a 0", Reply::Simple("QUEUED".into())),
        ("BZPOPMIN a 0", Reply::Simple("QUEUED".into())),
        ("EXEC", Reply::Array(vec![popped("a", "1"), Reply::Nil])),
    ] {
        assert_eq!(ask(&mut client, line).await, reply, "{line}");
    }
    node.stop().await;
}

/// The reply of a pop is not written when its client goes: what it took is in the key again. A
/// reply that was written is its client's.
#[tokio::test]
async fn what_was_not_written_is_put_back() {
    let large = Limits {
        value_bytes_max: 32 << 20,
        memory_bytes_max: 256 << 20,
        ..limits()
    };
    let node = Node::of_threads(1, None, 50, large);
    let mut client = node.client().await;
    let value = "v".repeat(16 << 20);
    let set = client.command(&["SET", "large", &value]).await.unwrap();
    assert_eq!(set, Reply::Simple("OK".into()));
    assert_eq!(ask(&mut client, "ZADD a 1 m1").await, Reply::Int(1));
    assert_eq!(ask(&mut client, "ZADD b 2 m2").await, Reply::Int(1));
    let mut leaves = TcpStream::connect(node.resp).await.unwrap();
    leaves
        .write_all(b"BZPOPMIN b 0\r\nGET large\r\nBZPOPMIN a 0\r\n")
        .await
        .unwrap();
    let until = std::time::Instant::now() + PATIENCE;
    while ask(&mut client, "ZCARD a").await != Reply::Int(0) {
        assert!(std::time::Instant::now() < until, "it takes nothing");
    }
    // It has read the first reply, and not the last one.
    leaves
        .read_exact(&mut [0; "*3\r\n$1\r\nb\r\n$2\r\nm2\r\n$1\r\n2\r\n".len()])
        .await
        .unwrap();
    drop(leaves);
    while ask(&mut client, "ZCARD a").await != Reply::Int(1) {
        assert!(std::time::Instant::now() < until, "it is lost");
    }
    assert_eq!(ask(&mut client, "ZCARD b").await, Reply::Int(0));
    node.stop().await;
}

/// Lists wait as sorted sets do. What moves is in the other list before its client hears of it.
#[tokio::test]
async fn pops_and_moves_of_lists_wait() {
    let node = Node::of_threads(2, None, 50, limits());
    let mut client = node.client().await;
    let element = |key: &str, of: &str| Reply::Array(vec![bulk(key), bulk(of)]);
    let first = node.waits(&["BLPOP a b 0"], 1).await;
    let second = node.waits(&["BRPOP b 0"], 2).await;
    assert_eq!(ask(&mut client, "RPUSH b 1 2 3").await, Reply::Int(3));
    assert_eq!(first.replies().await, [element("b", "1")]);
    assert_eq!(second.replies().await, [element("b", "3")]);
    let moves = node.waits(&["BLMOVE {t}a {t}b LEFT RIGHT 0"], 1).await;
    assert_eq!(ask(&mut client, "RPUSH {t}a x").await, Reply::Int(1));
    assert_eq!(moves.replies().await, [bulk("x")]);
    assert_eq!(ask(&mut client, "RPOP {t}b").await, bulk("x"));
    let some = node.waits(&["BLMPOP 0 2 {t}c {t}d RIGHT COUNT 2"], 1).await;
    assert_eq!(ask(&mut client, "RPUSH {t}d 1 2 3").await, Reply::Int(3));
    let two = Reply::Array(vec![bulk("3"), bulk("2")]);
    assert_eq!(
        some.replies().await,
        [Reply::Array(vec![bulk("{t}d"), two])]
    );
    for line in [
        "BLPOP none 0.01",
        "BLMOVE {t}n {t}m LEFT LEFT 0.01",
        "LPOP n 3",
    ] {
        assert_eq!(ask(&mut client, line).await, Reply::Nil, "{line}");
    }
    let timed_out = ask(&mut client, "BLMOVE none b LEFT LEFT 0.01").await;
    assert_eq!(timed_out, Reply::Nil);
    for (line, reply) in [
        ("MULTI", Reply::Simple("OK".into())),
        ("BLPOP {t}d {t}n 0", Reply::Simple("QUEUED".into())),
        ("BRPOPLPUSH {t}d {t}n 0", Reply::Simple("QUEUED".into())),
        ("EXEC", Reply::Array(vec![element("{t}d", "1"), Reply::Nil])),
        ("RPUSH {t}d 4", Reply::Int(1)),
    ] {
        assert_eq!(ask(&mut client, line).await, reply, "{line}");
    }
    let body = "return redis.call('BLPOP', KEYS[1], 0)";
    for reply in [element("{t}d", "4"), Reply::Nil] {
        let answer = client.command(&["EVAL", body, "1", "{t}d"]).await.unwrap();
        assert_eq!(answer, reply);
    }
    // The element that wakes a client stays for the next one, if it cannot go where it should.
    let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
    assert_eq!(ask(&mut client, "SADD {t}set m").await, Reply::Int(1));
    let wrongly = node.waits(&["BLMOVE {t}e {t}set LEFT LEFT 0"], 1).await;
    let rightly = node.waits(&["BLMOVE {t}e {t}f LEFT LEFT 0"], 2).await;
    assert_eq!(ask(&mut client, "RPUSH {t}e x").await, Reply::Int(1));
    assert_eq!(wrongly.replies().await, [error(wrong)]);
    assert_eq!(rightly.replies().await, [bulk("x")]);
    assert_eq!(ask(&mut client, "LLEN {t}e").await, Reply::Int(0));
    node.stop().await;
}

/// Reads of streams wait as pops do, but what comes is for all of them.
#[tokio::test]
async fn reads_of_streams_wait_for_entries() {
    let node = Node::of_threads(2, None, 50, limits());
    let mut client = node.client().await;
    let entry = |key: &str, id: &str| {
        let fields = Reply::Array(vec![bulk("f"), bulk("v")]);
        let entry = Reply::Array(vec![bulk(id), fields]);
        Reply::Array(vec![bulk(key), Reply::Array(vec![entry])])
    };
    let made = ask(&mut client, "XGROUP CREATE s g $ MKSTREAM").await;
    assert_eq!(made, Reply::Simple("OK".into()));
    let first = node
        .waits(&["XREAD BLOCK 0 STREAMS r s $ $", "PING"], 1)
        .await;
    let second = node.waits(&["XREAD BLOCK 0 STREAMS s $"], 2).await;
    let group = "XREADGROUP GROUP g c BLOCK 0 STREAMS s >";
    let third = node.waits(&[group], 3).await;
    let fourth = node.waits(&[group], 4).await;
    assert_eq!(ask(&mut client, "XADD s 1-0 f v").await, bulk("1-0"));
    let one = || Reply::Array(vec![entry("s", "1-0")]);
    assert_eq!(first.replies().await, [one(), Reply::Simple("PONG".into())]);
    assert_eq!(second.replies().await, [one()]);
    assert_eq!(third.replies().await, [one()]);
    node.blocked(1).await;
    assert_eq!(ask(&mut client, "XADD s 2-0 f v").await, bulk("2-0"));
    let two = Reply::Array(vec![entry("s", "2-0")]);
    assert_eq!(fourth.replies().await, [two]);
    // What is there is answered at once, of all keys.
    assert_eq!(ask(&mut client, "XADD {s}t 3-0 f v").await, bulk("3-0"));
    let both = Reply::Array(vec![entry("s", "2-0"), entry("{s}t", "3-0")]);
    let line = "XREAD BLOCK 0 STREAMS s {s}t 1 1";
    assert_eq!(ask(&mut client, line).await, both);
    for (line, reply) in [
        ("XREAD BLOCK 1 STREAMS s none $ $", Reply::Nil),
        (
            "XREAD BLOCK -1 STREAMS s $",
            error("ERR timeout is negative"),
        ),
        (
            "XREAD BLOCK x STREAMS s $",
            error("ERR timeout is not an integer or out of range"),
        ),
        ("XREAD STREAMS s 2-0", Reply::Nil),
    ] {
        assert_eq!(ask(&mut client, line).await, reply, "{line}");
    }
    let fifth = node.waits(&[group], 1).await;
    assert_eq!(ask(&mut client, "XGROUP DESTROY s g").await, Reply::Int(1));
    let [Reply::Error(why)] = &fifth.replies().await[..] else {
        panic!("no error")
    };
    assert!(why.starts_with("NOGROUP"), "{why}");
    let made = ask(&mut client, "XGROUP CREATE s g $").await;
    assert_eq!(made, Reply::Simple("OK".into()));
    let both = [node.waits(&[group], 1).await, node.waits(&[group], 2).await];
    let set = ask(&mut client, "SET s text").await;
    assert_eq!(set, Reply::Simple("OK".into()));
    for waiting in both {
        let [Reply::Error(why)] = &waiting.replies().await[..] else {
            panic!("no error")
        };
        assert!(why.starts_with("WRONGTYPE"), "{why}");
    }
    assert_eq!(ask(&mut client, "DEL s").await, Reply::Int(1));
    assert_eq!(ask(&mut client, "XADD s 2-0 f v").await, bulk("2-0"));
    // Nothing waits in a transaction.
    ask(&mut client, "MULTI").await;
    ask(&mut client, "XREAD BLOCK 0 STREAMS s $").await;
    assert_eq!(
        ask(&mut client, "EXEC").await,
        Reply::Array(vec![Reply::Nil])
    );
}
