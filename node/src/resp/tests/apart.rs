//! Sets, sorted sets and lists whose keys are in several partitions, at the plain port.

use super::several::apart;
use super::*;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

fn error(reply: &Reply) -> &str {
    let Reply::Error(text) = reply else {
        panic!("no error: {reply:?}")
    };
    text
}

/// Members of sets come in any order.
fn unordered(line: &str, reply: Reply) -> Reply {
    let sets = ["SINTER ", "SUNION ", "SDIFF ", "SMEMBERS "];
    match reply {
        Reply::Array(mut items) if sets.iter().any(|name| line.starts_with(name)) => {
            items.sort_by_key(|item| format!("{item:?}"));
            Reply::Array(items)
        }
        reply => reply,
    }
}

/// The line about these keys in place of A, B and C.
fn about(line: &str, [a, b, c]: &[String; 3]) -> String {
    let words = line.split(' ').map(|word| match word {
        "A" => a,
        "B" => b,
        "C" => c,
        word => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

const LINES: &[&str] = &[
    "DEL A B C",
    "SADD A 1 2 3",
    "SADD B 2 3 x",
    "SADD C 3 y",
    "SINTER A B",
    "SINTER A B C",
    "SINTER A B none",
    "SUNION A B C",
    "SUNION A none B A",
    "SDIFF A B C",
    "SDIFF A A B",
    "SDIFF A B none B",
    "SDIFF none A B",
    "SINTERCARD 3 A B C",
    "SINTERCARD 2 A B",
    "SINTERCARD 2 A B LIMIT 1",
    "SET C text EX 1000",
    "SUNIONSTORE C A B",
    "TYPE C",
    "TTL C",
    "OBJECT ENCODING C",
    "SMEMBERS C",
    "SINTERSTORE C C A",
    "OBJECT ENCODING C",
    "SMEMBERS C",
    "SDIFFSTORE A A B",
    "SMEMBERS A",
    "SINTERSTORE C A none B",
    "EXISTS C",
    // Moves of members.
    "SMOVE A B none",
    "SMOVE A B 1",
    "SMOVE A B 1",
    "EXISTS A",
    "SMEMBERS B",
    "SADD A 2 4",
    "SMOVE A B 2",
    "SMOVE A C 4",
    "SMEMBERS C",
    "SMOVE none C 4",
    // Other types.
    "SET A text",
    "SINTER B A",
    "SINTER none B A",
    "SUNIONSTORE B C A",
    "SINTERCARD 2 A B",
    "SMOVE A B text",
    "SMOVE B A x",
    "SMOVE B A none",
    "SMOVE none A x",
    "SMEMBERS B",
    "SUNIONSTORE A B C",
    "TYPE A",
    // Moves of elements.
    "DEL A B C",
    "RPUSH A 1 2 2 3 4",
    "LMOVE A B LEFT RIGHT",
    "LMOVE A B LEFT LEFT",
    "LMOVE A B RIGHT LEFT",
    "LMOVE A B RIGHT RIGHT",
    "LRANGE A 0 -1",
    "LRANGE B 0 -1",
    "RPOPLPUSH A B",
    "EXISTS A",
    "RPOPLPUSH A B",
    "BRPOPLPUSH A B 0.01",
    "LRANGE B 0 -1",
    "BLMOVE B A LEFT RIGHT 0",
    "BRPOPLPUSH B A 0",
    "LRANGE A 0 -1",
    "SET C text",
    "LMOVE A C LEFT LEFT",
    "BLMOVE A C LEFT LEFT 0",
    "LMOVE C A LEFT LEFT",
    "BLMOVE C A LEFT LEFT 0",
    "LMOVE none C LEFT LEFT",
    "LRANGE A 0 -1",
    // Streams.
    "DEL A B C",
    "XADD A 1-1 f v",
    "XADD A 2-1 f v",
    "XADD B 1-1 g w",
    "XREAD STREAMS A B 0 0",
    "XREAD STREAMS B none A 0 0 1-1",
    "XREAD COUNT 1 STREAMS A none 0 0",
    "XREAD STREAMS none A B 0 $ $",
    "XREAD BLOCK 0 STREAMS A B 0 0",
    "XREAD BLOCK 1 STREAMS A B $ $",
    "XGROUP CREATE A g 0",
    "XGROUP CREATE B g 0",
    "XREADGROUP GROUP g c COUNT 1 STREAMS A B > >",
    "XREADGROUP GROUP g c NOACK STREAMS B A > >",
    "XREADGROUP GROUP g c STREAMS A B > >",
    "XREADGROUP GROUP g c BLOCK 1 STREAMS A B > >",
    "SET C text",
    "XREAD STREAMS C A 0 0",
    "XREAD BLOCK 0 STREAMS C A 0 0",
    // Sorted sets, and a set.
    "DEL A B C",
    "ZADD A 1 a 2 b 3 c",
    "ZADD B 10 b 20 c -5 d 0.1 e inf f",
    "SADD C b z",
    "ZUNION 3 A B C WITHSCORES",
    "ZUNION 3 A B C",
    "ZUNION 3 A A B WITHSCORES",
    "ZUNION 3 A B C WEIGHTS 2 -3 0.5 AGGREGATE MAX WITHSCORES",
    "ZUNION 3 A A B WEIGHTS 1 5 0 AGGREGATE SUM WITHSCORES",
    "ZINTER 2 A B WITHSCORES",
    "ZINTER 3 A B C AGGREGATE MIN WITHSCORES",
    "ZDIFF 2 A B WITHSCORES",
    "ZDIFF 3 B none A WITHSCORES",
    "ZINTERCARD 2 A B",
    "ZINTERCARD 2 A B LIMIT 1",
    "ZINTERCARD 3 A B none",
    "ZUNIONSTORE C 2 A B WEIGHTS 1 2",
    "ZRANGE C 0 -1 WITHSCORES",
    "ZINTERSTORE C 3 A B C AGGREGATE MAX",
    "ZRANGE C 0 -1 WITHSCORES",
    "ZDIFFSTORE C 2 B A",
    "ZRANGE C 0 -1 WITHSCORES",
    "OBJECT ENCODING C",
    "ZRANGESTORE C A 0 1",
    "ZRANGE C 0 -1 WITHSCORES",
    "ZRANGESTORE C B (0.1 +inf BYSCORE LIMIT 1 5",
    "ZRANGE C 0 -1 WITHSCORES",
    "ZRANGESTORE C B 0 1 REV",
    "ZRANGE C 0 -1 WITHSCORES",
    "ZRANGESTORE C A [b + BYLEX",
    "ZRANGE C 0 -1 WITHSCORES",
    "ZRANGESTORE C none 0 -1",
    "EXISTS C",
    "ZDIFFSTORE C 3 A B A",
    "EXISTS C",
    "ZUNIONSTORE C 2 none B WEIGHTS 1 0",
    "ZRANGE C 0 -1 WITHSCORES",
    // Places.
    "DEL A B C",
    "GEOADD A 13.361389 38.115556 Palermo 15.087269 37.502669 Catania 2.35 48.86 Paris",
    "GEOSEARCHSTORE B A FROMLONLAT 15 37 BYRADIUS 200 km",
    "ZRANGE B 0 -1 WITHSCORES",
    "GEOSEARCHSTORE B A FROMMEMBER Catania BYBOX 400 400 km DESC COUNT 1 STOREDIST",
    "ZRANGE B 0 -1 WITHSCORES",
    "GEORADIUS A 15 37 200 km STOREDIST C ASC",
    "ZRANGE C 0 -1 WITHSCORES",
    "GEORADIUSBYMEMBER A Paris 10 m STORE B",
    "ZRANGE B 0 -1 WITHSCORES",
    "GEOSEARCHSTORE B A FROMMEMBER missing BYRADIUS 1 km",
    "EXISTS B",
    "GEOSEARCHSTORE B none FROMMEMBER missing BYRADIUS 1 km",
    "EXISTS B",
    "SET C text",
    "GEOSEARCHSTORE B C FROMLONLAT 1 1 BYRADIUS 1 km",
    // Counts of distinct elements.
    "DEL A B C",
    "PFADD A 1 2 3",
    "PFADD B 3 4",
    "PFCOUNT A B none",
    "PFMERGE C A B",
    "PFCOUNT C",
    "STRLEN C",
    "PFADD C 9",
    "PFMERGE C none A",
    "PFCOUNT C A B",
    "SET A text",
    "PFCOUNT A B",
    "PFMERGE B A",
    "PFMERGE A B",
    "DEL A",
    "RPUSH A 1",
    "PFCOUNT B A",
    "PFMERGE B A",
    "PFMERGE A B",
    "PFCOUNT B",
    // Bits.
    "DEL A B C",
    "SET A foobar",
    "SET B abcdefghi",
    "BITOP AND C A B",
    "GET C",
    "BITOP OR C B A none",
    "GET C",
    "BITOP XOR C A A",
    "GET C",
    "BITOP NOT B A",
    "BITCOUNT B",
    "BITOP AND A A B",
    "GET A",
    "BITOP OR C none",
    "EXISTS C",
    "RPUSH C 1",
    "BITOP OR A A C",
    "BITOP OR C A",
    "GET C",
    // What strings have in common.
    "DEL A B C",
    "SET A ohmytext",
    "SET B mynewtext",
    "LCS A B",
    "LCS A B LEN",
    "LCS B A IDX WITHMATCHLEN",
    "LCS A none IDX",
    "LCS A A LEN",
    "RPUSH C 1",
    "LCS A C",
    "LCS C A LEN",
    // Sorted elements.
    "DEL A B C",
    "RPUSH A 3 1 2",
    "SORT A STORE B",
    "LRANGE B 0 -1",
    "SORT A BY nosort DESC LIMIT 0 2 GET # GET nothing STORE B",
    "LRANGE B 0 -1",
    "SORT none STORE B",
    "EXISTS B",
    "RPUSH A word",
    "SORT A STORE B",
    "SORT A ALPHA STORE A",
    "LRANGE A 0 -1",
    "SET C text",
    "SORT C STORE B",
    "SORT A ALPHA DESC STORE C",
    "LRANGE C 0 -1",
    // Pops that do not wait.
    "DEL A B C",
    "ZADD A 1 a 2 b 3 c",
    "ZADD B 10 b 20 c",
    "ZADD C 1 c",
    "ZMPOP 3 none A B MIN",
    "ZMPOP 2 A B MAX COUNT 10",
    "ZMPOP 2 A B MAX COUNT 2",
    "ZMPOP 2 A B MIN",
    "DEL B C",
    "ZMPOP 3 A B C MIN",
    // Other types.
    "SET A text",
    "SADD B x",
    "ZADD C 1 x",
    "ZUNION 2 C A",
    "ZUNIONSTORE B 2 C A",
    "ZRANGESTORE B A 0 -1",
    "ZRANGESTORE C B 0 -1",
    "ZMPOP 2 A C MIN",
    "ZMPOP 2 C A MIN",
    "SINTER B A",
    "TYPE B",
    "ZUNIONSTORE A 2 B A",
];

#[tokio::test]
async fn sets_of_several_partitions_are_combined_as_those_of_one() {
    for threads in [1, 2] {
        let node = Node::of_threads(threads, None, 10, limits());
        let mut client = node.client().await;
        let apart = apart(&mut client).await;
        let together = ["{t}a", "{t}b", "{t}c"].map(str::to_owned);
        let none = "{t}none";
        for line in LINES {
            let here = about(line, &together).replace("none", none);
            let wanted = format!("{:?}", unordered(line, ask(&mut client, &here).await));
            let wanted = together
                .iter()
                .zip(&apart)
                .fold(wanted, |text, (one, other)| {
                    text.replace(
                        &format!("{:?}", one.as_bytes()),
                        &format!("{:?}", other.as_bytes()),
                    )
                });
            let there = about(line, &apart);
            let found = format!("{:?}", unordered(line, ask(&mut client, &there).await));
            assert_eq!(found, wanted, "{line}, {threads} threads");
            assert!(!wanted.contains("CROSSSLOT"), "{line}");
        }
        node.stop().await;
    }
}

#[tokio::test]
async fn one_connection_sees_what_its_steps_did_and_others_keep_their_errors() {
    let node = Node::of_threads(2, None, 10, limits());
    let mut client = node.client().await;
    let keys = apart(&mut client).await;
    // In one pipeline, each command sees what the one before did.
    let lines = [
        "SADD A 1 2",
        "SADD B 2 3",
        "SUNIONSTORE C A B",
        "SCARD C",
        "SMOVE A C x",
        "SMOVE A B 1",
        "SCARD A",
        "SINTERSTORE C A B",
        "SMEMBERS C",
    ];
    let all: Vec<_> = lines
        .iter()
        .map(|line| words(&about(line, &keys)))
        .collect();
    let replies = client.pipeline(&all).await.unwrap();
    let ints = |at: usize| matches!(&replies[at], Reply::Int(_)).then(|| replies[at].clone());
    let found: Vec<_> = (0..8).filter_map(ints).collect();
    let wanted = [2, 2, 3, 3, 0, 1, 1, 1].map(Reply::Int);
    assert_eq!(found, wanted, "{replies:?}");
    assert_eq!(replies[8], Reply::Array(vec![Reply::Bulk(b"2".to_vec())]));
    // Transactions and scripts are about keys of one partition, and so is MSETNX.
    for line in [
        "SUNION A B",
        "SMOVE A B 2",
        "ZMPOP 2 A B MIN",
        "ZUNIONSTORE C 2 A B",
        "LMOVE A B LEFT LEFT",
        "BLMOVE A B LEFT LEFT 0",
        "XREAD STREAMS A B 0 0",
    ] {
        ask(&mut client, "MULTI").await;
        ask(&mut client, &about(line, &keys)).await;
        let refused = ask(&mut client, "EXEC").await;
        assert!(error(&refused).starts_with("CROSSSLOT"), "{refused:?}");
    }
    let script = format!(
        "EVAL return(redis.call('SUNION',KEYS[1],KEYS[2])) 2 {} {}",
        keys[0], keys[1]
    );
    let refused = ask(&mut client, &script).await;
    assert!(error(&refused).starts_with("CROSSSLOT"), "{refused:?}");
    let refused = ask(&mut client, &about("MSETNX A 1 B 2", &keys)).await;
    let why = error(&refused);
    assert!(why.contains("{tag}") && why.contains("one-server"), "{why}");
    // A cluster-aware client gets the text that it knows.
    let mut cluster = Client::connect(node.cluster).await.unwrap();
    for line in [
        "SUNION a b",
        "SMOVE a b x",
        "ZMPOP 2 a b MIN",
        "ZRANGESTORE a b 0 -1",
        "LMOVE a b LEFT LEFT",
        "BLMOVE a b LEFT LEFT 0",
    ] {
        let text = "CROSSSLOT Keys in request don't hash to the same slot";
        assert_eq!(ask(&mut cluster, line).await, Reply::Error(text.to_owned()));
    }
    node.stop().await;
}

/// What was read of a stream is answered although a later key fails.
#[tokio::test]
async fn entries_that_were_delivered_are_answered_though_a_later_stream_fails() {
    let node = Node::of_threads(2, None, 10, limits());
    let mut client = node.client().await;
    let keys = apart(&mut client).await;
    for line in ["XADD A 1-1 f v", "XADD B 1-1 f v", "XGROUP CREATE A g 0"] {
        ask(&mut client, &about(line, &keys)).await;
    }
    let read = about("XREADGROUP GROUP g c STREAMS A B > >", &keys);
    let Reply::Array(streams) = ask(&mut client, &read).await else {
        panic!("no entries")
    };
    assert_eq!(streams.len(), 1, "{streams:?}");
    let refused = ask(&mut client, &read).await;
    assert!(error(&refused).starts_with("NOGROUP"), "{refused:?}");
    let pending = about("XPENDING A g - + 10", &keys);
    let Reply::Array(pending) = ask(&mut client, &pending).await else {
        panic!("no pending entries")
    };
    assert_eq!(pending.len(), 1);
    node.stop().await;
}

/// Adds members to a set or, with a score, to a sorted set.
async fn fill(client: &mut Client, key: &str, (first, end): (usize, usize), scored: bool) {
    let members: Vec<usize> = (first..end).collect();
    for part in members.chunks(500) {
        let mut words = vec![
            if scored { "ZADD" } else { "SADD" }.to_owned(),
            key.to_owned(),
        ];
        for member in part {
            words.extend(scored.then(|| member.to_string()));
            words.push(format!("member-{member}"));
        }
        client.command(&words).await.unwrap();
    }
}

#[tokio::test]
async fn large_sets_of_several_partitions_are_read_in_parts() {
    let limits = Limits {
        value_bytes_max: 128 << 10,
        ..limits()
    };
    let node = Node::of_threads(2, None, 10, limits);
    let mut client = node.client().await;
    let keys = apart(&mut client).await;
    for scored in [false, true] {
        let z = if scored { "Z" } else { "S" };
        ask(&mut client, &about("DEL A B C", &keys)).await;
        fill(&mut client, &keys[0], (0, 8_000), scored).await;
        fill(&mut client, &keys[1], (6_000, 14_000), scored).await;
        fill(&mut client, &keys[2], (7_990, 8_005), scored).await;
        let line = format!("{z}INTERCARD 2 A B");
        assert_eq!(
            ask(&mut client, &about(&line, &keys)).await,
            Reply::Int(2_000)
        );
        let line = format!("{z}INTERCARD 3 A B C");
        assert_eq!(ask(&mut client, &about(&line, &keys)).await, Reply::Int(10));
        let lines = if scored {
            ["ZINTERSTORE C 2 A C", "ZUNIONSTORE C 2 A B", "ZCARD C"]
        } else {
            ["SINTERSTORE C A C", "SUNIONSTORE C A B", "SCARD C"]
        };
        let lines = lines.map(|line| about(line, &keys));
        assert_eq!(ask(&mut client, &lines[0]).await, Reply::Int(10));
        // What is too large to be stored leaves the destination as it is.
        let refused = ask(&mut client, &lines[1]).await;
        assert!(
            error(&refused).contains("nothing was written"),
            "{refused:?}"
        );
        assert_eq!(ask(&mut client, &lines[2]).await, Reply::Int(10));
    }
    // Another client changes one of them meanwhile, so it is read again.
    let (mut writer, key) = (node.client().await, keys[0].clone());
    let writing = tokio::spawn(async move {
        for n in 0..300 {
            let name = if n % 2 == 0 { "ZADD" } else { "ZREM" };
            let score = if n % 2 == 0 { "1 " } else { "" };
            ask(&mut writer, &format!("{name} {key} {score}member-9000")).await;
        }
    });
    while !writing.is_finished() {
        match ask(&mut client, &about("ZINTERCARD 2 A B", &keys)).await {
            Reply::Int(count) => assert!((2_000..=2_001).contains(&count), "{count}"),
            reply => assert!(error(&reply).starts_with("TRYAGAIN"), "{reply:?}"),
        }
    }
    let count = ask(&mut client, &about("ZINTERCARD 2 A B", &keys)).await;
    assert_eq!(count, Reply::Int(2_000));
    node.stop().await;
}

#[tokio::test]
async fn a_member_that_is_moved_is_always_in_one_of_the_sets_and_moved_once() {
    const MEMBERS: usize = 200;
    let node = Node::of_threads(2, None, 20, limits());
    let mut client = node.client().await;
    let [a, b, _] = apart(&mut client).await;
    fill(&mut client, &a, (0, MEMBERS), false).await;
    let over = Arc::new(AtomicBool::new(false));
    let (mut watcher, is_over) = (node.client().await, over.clone());
    let (from, to) = (a.clone(), b.clone());
    let watching = tokio::spawn(async move {
        for n in (0..MEMBERS).cycle() {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let is_in = |key: &str| format!("SISMEMBER {key} member-{n}");
            let first = ask(&mut watcher, &is_in(&from)).await;
            let second = ask(&mut watcher, &is_in(&to)).await;
            assert!(first == Reply::Int(1) || second == Reply::Int(1), "{n}");
        }
    });
    let mut movers = Vec::new();
    for _ in 0..4 {
        let (mut client, from, to) = (node.client().await, a.clone(), b.clone());
        movers.push(tokio::spawn(async move {
            let mut moved = Vec::new();
            for n in 0..MEMBERS {
                let line = format!("SMOVE {from} {to} member-{n}");
                match ask(&mut client, &line).await {
                    Reply::Int(1) => moved.push(n),
                    reply => assert_eq!(reply, Reply::Int(0)),
                }
            }
            moved
        }));
    }
    let mut moved = Vec::new();
    for mover in movers {
        moved.extend(mover.await.unwrap());
    }
    over.store(true, Ordering::Relaxed);
    watching.await.unwrap();
    let once: BTreeSet<usize> = moved.iter().copied().collect();
    assert_eq!((moved.len(), once.len()), (MEMBERS, MEMBERS));
    assert_eq!(
        ask(&mut client, &format!("EXISTS {a}")).await,
        Reply::Int(0)
    );
    let count = Reply::Int(MEMBERS as i64);
    assert_eq!(ask(&mut client, &format!("SCARD {b}")).await, count);
    node.stop().await;
}

#[tokio::test]
async fn subscribers_are_told_what_the_steps_write() {
    let node = Node::of_threads(2, None, 10, limits());
    let (mut client, mut subscriber) = (node.client().await, node.client().await);
    let keys = apart(&mut client).await;
    ask(&mut client, "CONFIG SET notify-keyspace-events EA").await;
    ask(&mut subscriber, "PSUBSCRIBE __keyevent@0__:*").await;
    for (line, events) in [
        ("SADD A 1", &["sadd A"][..]),
        ("SADD B 2", &["sadd B"]),
        ("SUNIONSTORE C A B", &["sunionstore C"]),
        ("SDIFFSTORE C A B", &["sdiffstore C"]),
        ("SINTERSTORE C A B", &["del C"]),
        ("SMOVE A B 1", &["sadd B", "srem A", "del A"]),
        ("ZUNIONSTORE C 2 A B", &["zunionstore C"]),
        ("ZRANGESTORE A C 0 1", &["zrangestore A"]),
        ("ZMPOP 2 A B MIN", &["zpopmin A"]),
        ("DEL A B", &["del A", "del B"]),
        ("RPUSH A x", &["rpush A"]),
        ("LMOVE A B LEFT RIGHT", &["rpush B", "lpop A", "del A"]),
        ("RPOPLPUSH B A", &["lpush A", "rpop B", "del B"]),
    ] {
        ask(&mut client, &about(line, &keys)).await;
        for event in events {
            let Reply::Array(parts) = subscriber.reply().await.unwrap() else {
                panic!("{line}")
            };
            let (name, key) = event.split_once(' ').unwrap();
            let channel = format!("__keyevent@0__:{name}");
            let told = [channel, about(key, &keys)].map(|text| Reply::Bulk(text.into_bytes()));
            assert_eq!(parts[2..], told, "{line}");
        }
    }
    node.stop().await;
}

/// Regression: each of two moves found the member at its target, and both removed it.
#[tokio::test]
async fn members_that_are_moved_in_opposite_directions_are_never_lost() {
    const MEMBERS: usize = 20;
    let node = Node::of_threads(2, None, 20, limits());
    let mut client = node.client().await;
    let keys = apart(&mut client).await;
    for rows in [false, true] {
        // A set with a long member has a row for each.
        let long = "x".repeat(5_000);
        ask(&mut client, &about("DEL A B C", &keys)).await;
        for key in keys.iter().filter(|_| rows) {
            ask(&mut client, &format!("SADD {key} {long}")).await;
        }
        fill(&mut client, &keys[0], (0, MEMBERS), false).await;
        let mut movers = Vec::new();
        for n in 0..9 {
            let (mut client, keys) = (node.client().await, keys.clone());
            movers.push(tokio::spawn(async move {
                let mut moved = 0;
                for round in 0..300 {
                    let (from, to) = (n % 3, (n % 3 + 1 + n % 2) % 3);
                    let member = (round + n) % MEMBERS;
                    let line = format!("SMOVE {} {} member-{member}", keys[from], keys[to]);
                    match ask(&mut client, &line).await {
                        Reply::Int(count) => moved += count,
                        reply => panic!("{line}: {reply:?}"),
                    }
                }
                moved
            }));
        }
        let mut moved = 0;
        for mover in movers {
            moved += mover.await.unwrap();
        }
        assert!(moved > 0);
        let Reply::Array(members) = ask(&mut client, &about("SUNION A B C", &keys)).await else {
            panic!("no members")
        };
        assert_eq!(
            members.len(),
            MEMBERS + usize::from(rows),
            "after {moved} moves"
        );
    }
    node.stop().await;
}

#[tokio::test]
async fn steps_that_a_silent_primary_does_not_answer_end_with_an_error() {
    let limits = Limits {
        park: Duration::from_millis(200),
        ..limits()
    };
    let node = Node::with(None, 10, limits);
    let me = member(ME, node.resp, &node.clusters);
    let silent = Member {
        id: MemberId(0xdef0),
        age: Age(2),
        name: "two".to_owned(),
        ..me.clone()
    };
    let view = view_of(vec![me, silent], 0);
    let keyspace = view.installed.keyspaces[0].clone();
    let led_by = |prefix: &str, id: MemberId| {
        (0..).map(|i| format!("{prefix}:{i}")).find(|key| {
            let partition = keyspace.partition_of(MapId(0), key.as_bytes());
            let partition = partition.and_then(|p| keyspace.partition(p));
            partition.map(|p| p.primary()) == Some(id)
        })
    };
    let (own, list) = (led_by("key", ME).unwrap(), led_by("list", ME).unwrap());
    let other = led_by("key", MemberId(0xdef0)).unwrap();
    node.shared.publish(crate::control::shared::LocalView {
        me: ME,
        view: Some(view),
    });
    let mut client = node.client().await;
    assert_eq!(
        ask(&mut client, &format!("SADD {own} x")).await,
        Reply::Int(1)
    );
    ask(&mut client, &format!("RPUSH {list} x")).await;
    for (line, is_known) in [
        (format!("SUNION {own} {other}"), true),
        (format!("SUNIONSTORE {own} {own} {other}"), true),
        // Its write may have happened.
        (format!("SUNIONSTORE {other} {own}"), false),
        (format!("SMOVE {own} {other} x"), true),
        (format!("SMOVE {other} {own} x"), true),
        // The push may have happened.
        (format!("LMOVE {list} {other} LEFT LEFT"), false),
        (format!("LMOVE {other} {own} LEFT LEFT"), true),
        (format!("ZINTERCARD 2 {own} {other}"), true),
        (format!("ZMPOP 2 none:{own} {other} MIN"), false),
    ] {
        let reply = ask(&mut client, &line).await;
        let unknown = error(&reply).starts_with("UNKNOWN");
        let known = error(&reply).starts_with("TRYAGAIN");
        assert!(known || unknown && !is_known, "{line}: {reply:?}");
    }
    let members = Reply::Array(vec![Reply::Bulk(b"x".to_vec())]);
    assert_eq!(ask(&mut client, &format!("SMEMBERS {own}")).await, members);
    node.stop().await;
}
