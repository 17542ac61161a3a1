//! `EVAL`, `EVALSHA`, `SCRIPT`.

use super::*;

fn error(reply: &Reply) -> &str {
    let Reply::Error(text) = reply else {
        panic!("no error: {reply:?}")
    };
    text
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

const INCREMENT: &str = "return redis.call('INCRBY', KEYS[1], ARGV[1])";
/// Its digest.
const DIGEST: &str = "7dbf7ab4b54cf3ee5e4ed3ba5f0ef1e6b2f1b7c9";

/// Redis answers for any number. More than 256 were refused.
#[tokio::test]
async fn script_exists_answers_for_as_many_digests_as_are_asked() {
    let node = Node::start(None, 10);
    let digest = doyen_scripts::sha1_hex(INCREMENT);
    for at in [node.resp, node.cluster] {
        let mut client = Client::connect(at).await.unwrap();
        let loaded = client.command(&["SCRIPT", "LOAD", INCREMENT]).await;
        assert_eq!(loaded.unwrap(), bulk(&digest));
        for count in [257, 512, 513, 1_500] {
            let mut asked: Vec<String> = (0..count).map(|n| format!("{n:040}")).collect();
            for known in [0, 256, count - 1] {
                asked[known].clone_from(&digest);
            }
            asked[1] = "no digest".into();
            let mut command = vec!["SCRIPT", "EXISTS"];
            command.extend(asked.iter().map(String::as_str));
            let known = asked.iter().map(|one| Reply::Int((*one == digest).into()));
            let known: Vec<Reply> = known.collect();
            assert_eq!(
                client.command(&command).await.unwrap(),
                Reply::Array(known),
                "{count}"
            );
        }
    }
}

#[tokio::test]
async fn a_script_that_was_evaluated_or_loaded_is_known_by_its_digest() {
    let node = Node::start(None, 10);
    let digest = doyen_scripts::sha1_hex(INCREMENT);
    for at in [node.resp, node.cluster] {
        let mut client = Client::connect(at).await.unwrap();
        client.command(&["DEL", "n"]).await.unwrap();
        let flushed = client.command(&["SCRIPT", "FLUSH"]).await.unwrap();
        assert_eq!(flushed, Reply::Simple("OK".to_owned()));
        let by_digest = ["EVALSHA", &digest, "1", "n", "5"];
        let unknown = client.command(&by_digest).await.unwrap();
        assert_eq!(
            error(&unknown),
            "NOSCRIPT No matching script. Please use EVAL."
        );
        let exists = ["SCRIPT", "EXISTS", &digest, DIGEST];
        assert_eq!(
            client.command(&exists).await.unwrap(),
            Reply::Array(vec![Reply::Int(0), Reply::Int(0)])
        );
        let evaluated = client
            .command(&["EVAL", INCREMENT, "1", "n", "5"])
            .await
            .unwrap();
        assert_eq!(evaluated, Reply::Int(5));
        assert_eq!(client.command(&by_digest).await.unwrap(), Reply::Int(10));
        let upper = digest.to_uppercase();
        let upper = ["evalsha", &upper, "1", "n", "5"];
        assert_eq!(client.command(&upper).await.unwrap(), Reply::Int(15));
        assert_eq!(
            client.command(&exists).await.unwrap(),
            Reply::Array(vec![Reply::Int(1), Reply::Int(0)])
        );
        client.command(&["SCRIPT", "FLUSH"]).await.unwrap();
        assert!(error(&client.command(&by_digest).await.unwrap()).starts_with("NOSCRIPT"));
        let loaded = client
            .command(&["SCRIPT", "LOAD", INCREMENT])
            .await
            .unwrap();
        assert_eq!(loaded, bulk(&digest));
        assert_eq!(client.command(&by_digest).await.unwrap(), Reply::Int(20));
        let keys = client.command(&["DBSIZE"]).await.unwrap();
        assert_eq!(keys, Reply::Int(1), "scripts are no keys");
    }
    node.stop().await;
}

/// Regression: the other threads answered NOSCRIPT.
#[tokio::test]
async fn a_script_that_was_evaluated_at_one_thread_is_known_and_forgotten_by_all() {
    let node = Node::of_threads(2, None, 10, limits());
    let mut one = Client::connect(node.clusters[0]).await.unwrap();
    let mut other = Client::connect(node.clusters[1]).await.unwrap();
    let digest = doyen_scripts::sha1_hex("return 7");
    let seven = one.command(&["EVAL", "return 7", "0"]).await.unwrap();
    assert_eq!(seven, Reply::Int(7));
    let by_digest = ["EVALSHA", &digest, "0"];
    assert_eq!(other.command(&by_digest).await.unwrap(), Reply::Int(7));
    other.command(&["SCRIPT", "FLUSH"]).await.unwrap();
    for client in [&mut one, &mut other] {
        let reply = client.command(&by_digest).await.unwrap();
        assert!(error(&reply).starts_with("NOSCRIPT"), "{reply:?}");
        let exists = client.command(&["SCRIPT", "EXISTS", &digest]).await;
        assert_eq!(exists.unwrap(), Reply::Array(vec![Reply::Int(0)]));
    }
    node.stop().await;
}

#[tokio::test]
async fn texts_that_are_evaluated_take_no_memory_of_the_data() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    let loaded = client
        .command(&["SCRIPT", "LOAD", INCREMENT])
        .await
        .unwrap();
    assert_eq!(loaded, bulk(&doyen_scripts::sha1_hex(INCREMENT)));
    let field = |info: &Reply, name: &str| -> u64 {
        let Reply::Bulk(info) = info else {
            panic!("no text: {info:?}")
        };
        let info = String::from_utf8_lossy(info).into_owned();
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.strip_prefix(':')?.parse().ok())
            .unwrap()
    };
    for n in 0..600 {
        let text = format!("return {n}");
        let reply = client.command(&["EVAL", &text, "0"]).await.unwrap();
        assert_eq!(reply, Reply::Int(n));
    }
    let info = client.command(&["INFO", "memory"]).await.unwrap();
    // The loaded one, and those that came last.
    assert_eq!(field(&info, "number_of_cached_scripts"), 501);
    assert!(field(&info, "used_memory_scripts") > 500 * 8);
    let digest = |n: u32| doyen_scripts::sha1_hex(format!("return {n}"));
    let exists = [
        "SCRIPT",
        "EXISTS",
        &loaded_digest(),
        &digest(0),
        &digest(599),
    ];
    let exists = client.command(&exists).await.unwrap();
    let expected = [1, 0, 1].map(Reply::Int);
    assert_eq!(exists, Reply::Array(expected.to_vec()));
    let last = ["EVALSHA", &digest(599), "0"];
    assert_eq!(client.command(&last).await.unwrap(), Reply::Int(599));
    let first = ["EVALSHA", &digest(0), "0"];
    assert!(error(&client.command(&first).await.unwrap()).starts_with("NOSCRIPT"));
    node.stop().await;
}

fn loaded_digest() -> String {
    doyen_scripts::sha1_hex(INCREMENT)
}

#[tokio::test]
async fn others_have_their_turn_between_texts_that_are_slow_to_compile() {
    let node = Node::start(None, 10);
    let (mut client, mut other) = (node.client().await, node.client().await);
    let slow = format!("return {}1", "1 or ".repeat(60_000));
    let done = std::cell::Cell::new(false);
    let attack = async {
        let commands: Vec<Vec<String>> = (0..40)
            .map(|_| ["EVAL", &slow, "0"].map(str::to_owned).to_vec())
            .collect();
        let replies = client.pipeline(&commands).await.unwrap();
        done.set(true);
        for reply in replies {
            let text = error(&reply);
            assert!(
                text.contains("it takes more than 20 ms of processor time"),
                "{text}"
            );
        }
    };
    let mut pings = 0;
    tokio::join!(attack, async {
        while !done.get() {
            other.command(&["PING"]).await.unwrap();
            pings += 1;
        }
    });
    // The 40 texts take 0.8 s. If all were judged in one pass, no PING would come between them.
    assert!(pings > 10, "{pings}");
    let mut replies = Vec::new();
    for command in ["LOAD", "EXISTS"] {
        replies.push(client.command(&["SCRIPT", command, &slow]).await.unwrap());
    }
    assert!(error(&replies[0]).starts_with("ERR Error compiling script"));
    assert_eq!(replies[1], Reply::Array(vec![Reply::Int(0)]));
    let large = "x".repeat((1 << 20) + 1);
    let reply = client.command(&["EVAL", &large, "0"]).await.unwrap();
    assert!(error(&reply).starts_with("ERR the script's text is too large"));
    node.stop().await;
}

#[tokio::test]
async fn scripts_in_a_pipeline_are_answered_in_order() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    let commands: Vec<Vec<String>> = (0..100)
        .map(|n| {
            let key = format!("k{}", n % 7);
            ["EVAL", INCREMENT, "1", &key, "1"]
                .map(str::to_owned)
                .to_vec()
        })
        .collect();
    let replies = client.pipeline(&commands).await.unwrap();
    for (n, reply) in replies.iter().enumerate() {
        assert_eq!(*reply, Reply::Int(n as i64 / 7 + 1));
    }
    node.stop().await;
}

/// Every text was compared with redis-server 7.0.15.
#[tokio::test]
async fn mistakes_get_the_texts_of_redis() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    for (command, text) in [
        (
            &["EVAL", "return 1", "x"][..],
            "ERR value is not an integer or out of range",
        ),
        (
            &["EVAL", "return 1", "-1"],
            "ERR Number of keys can't be negative",
        ),
        (
            &["EVAL", "return 1", "2", "a"],
            "ERR Number of keys can't be greater than number of args",
        ),
        (
            &["EVAL", "return 1"],
            "ERR wrong number of arguments for 'eval' command",
        ),
        (
            &["EVALSHA", "abc", "x"],
            "NOSCRIPT No matching script. Please use EVAL.",
        ),
        (
            &["EVALSHA_RO", "abc", "-1"],
            "NOSCRIPT No matching script. Please use EVAL.",
        ),
        (
            &["EVALSHA", DIGEST, "x"],
            "ERR value is not an integer or out of range",
        ),
        (
            &["EVALSHA", DIGEST, "1"],
            "ERR Number of keys can't be greater than number of args",
        ),
        (
            &["SCRIPT", "KILL"],
            "NOTBUSY No scripts in execution right now.",
        ),
        (
            &["EVAL_RO", "return redis.call('SET', KEYS[1], 1)", "1", "a"],
            "ERR Write commands are not allowed from read-only scripts.",
        ),
    ] {
        let reply = client.command(command).await.unwrap();
        assert!(error(&reply).starts_with(text), "{command:?}: {reply:?}");
    }
    for body in ["retrun 1", "return '"] {
        for command in [&["EVAL", body, "0"][..], &["SCRIPT", "LOAD", body]] {
            let reply = client.command(command).await.unwrap();
            assert!(
                error(&reply)
                    .starts_with("ERR Error compiling script (new function): user_script:1:"),
                "{reply:?}"
            );
        }
        let digest = doyen_scripts::sha1_hex(body);
        let exists = client.command(&["SCRIPT", "EXISTS", &digest]).await;
        assert_eq!(exists.unwrap(), Reply::Array(vec![Reply::Int(0)]), "{body}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_script_calls_no_command_on_connections_or_the_server() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    for spec in crate::resp::command::table::COMMANDS.all() {
        let name = spec.name;
        if name.contains('|')
            || doyen_engine::command::COMMANDS
                .named(name.as_bytes())
                .is_some()
        {
            continue;
        }
        let body = "local r = redis.pcall(unpack(ARGV))
            return type(r) == 'table' and r.err or 'called'";
        let args = usize::try_from(spec.arity.unsigned_abs()).unwrap();
        let count = args.to_string();
        let mut command = vec!["EVAL", body, "0", name];
        command.resize(3 + args, "1");
        let reply = client.command(&command).await.unwrap();
        let Reply::Bulk(text) = &reply else {
            panic!("{name}: {reply:?}");
        };
        let allowed = ["echo", "ping", "publish", "spublish", "time"].contains(&name);
        let refused = text.starts_with(b"ERR This Redis command is not allowed from script");
        assert_ne!(allowed, refused, "{name} with {count}: {reply:?}");
    }
    node.stop().await;
}

/// What an `EXEC` answers after these commands.
async fn transact(client: &mut Client, commands: &[&[&str]]) -> Reply {
    client.command(&["MULTI"]).await.unwrap();
    for command in commands {
        let queued = client.command(command).await.unwrap();
        assert_eq!(queued, Reply::Simple("QUEUED".to_owned()), "{command:?}");
    }
    client.command(&["EXEC"]).await.unwrap()
}

#[tokio::test]
async fn scripts_run_in_transactions() {
    let node = Node::start(None, 10);
    let digest = doyen_scripts::sha1_hex(INCREMENT);
    let other = "return redis.call('GET', KEYS[1])";
    let other_digest = doyen_scripts::sha1_hex(other);
    for at in [node.resp, node.cluster] {
        let mut client = Client::connect(at).await.unwrap();
        client.command(&["FLUSHALL"]).await.unwrap();
        client.command(&["SCRIPT", "FLUSH"]).await.unwrap();
        // A text that comes in a transaction is known by its digest afterwards.
        let reply = transact(
            &mut client,
            &[
                &["SET", "{t}n", "1"],
                &["EVAL", INCREMENT, "1", "{t}n", "5"],
                &["PING"],
                &["EVALSHA", &other_digest, "1", "{t}n"],
                &["EVAL", "return {1, 'x'}", "0"],
                &["EVALSHA", "abc", "0"],
                &["EVAL", "retrun 1", "0"],
                &["EVAL", "return 1", "x"],
                &["MGET", "{t}n", "{t}m"],
            ],
        )
        .await;
        let Reply::Array(replies) = reply else {
            panic!("{reply:?}");
        };
        let no_script = "NOSCRIPT No matching script. Please use EVAL.";
        assert_eq!(replies[0], Reply::Simple("OK".to_owned()));
        assert_eq!(replies[1], Reply::Int(6));
        assert_eq!(replies[2], Reply::Simple("PONG".to_owned()));
        assert_eq!(error(&replies[3]), no_script);
        assert_eq!(replies[4], Reply::Array(vec![Reply::Int(1), bulk("x")]));
        assert_eq!(error(&replies[5]), no_script);
        assert!(error(&replies[6]).starts_with("ERR Error compiling script"));
        assert!(error(&replies[7]).starts_with("ERR value is not an integer"));
        assert_eq!(replies[8], Reply::Array(vec![bulk("6"), Reply::Nil]));
        assert_eq!(replies.len(), 9);
        let exists = ["SCRIPT", "EXISTS", &digest, &other_digest];
        let exists = client.command(&exists).await.unwrap();
        assert_eq!(exists, Reply::Array(vec![Reply::Int(1), Reply::Int(0)]));
        let info = client.command(&["INFO", "memory"]).await.unwrap();
        let Reply::Bulk(info) = info else {
            panic!("{info:?}");
        };
        let info = String::from_utf8(info).unwrap();
        // The other one is that of `return {1, 'x'}`.
        assert!(info.contains("number_of_cached_scripts:2\r\n"), "{info}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_script_that_another_node_stored_runs_in_a_transaction() {
    let node = Node::start(None, 10);
    let (mut client, mut other) = (node.client().await, node.client().await);
    let digest = doyen_scripts::sha1_hex(INCREMENT);
    client
        .command(&["SCRIPT", "LOAD", INCREMENT])
        .await
        .unwrap();
    // What a thread saw lately is forgotten here, but the script stays stored.
    tokio::time::sleep(crate::resp::scripts::BELIEVED_FOR).await;
    let by_digest: &[&str] = &["EVALSHA", &digest, "1", "{t}n", "5"];
    let reply = transact(&mut other, &[by_digest, &["ECHO", "x"], by_digest]).await;
    let expected = vec![Reply::Int(5), bulk("x"), Reply::Int(10)];
    assert_eq!(reply, Reply::Array(expected.clone()));
    // What is sent behind EXEC waits for it, though the text is looked up first.
    tokio::time::sleep(crate::resp::scripts::BELIEVED_FOR).await;
    let commands = ["MULTI", "EVALSHA", "EXEC", "GET"].map(|name| match name {
        "EVALSHA" => by_digest.iter().map(|word| (*word).to_owned()).collect(),
        "GET" => vec!["GET".to_owned(), "{t}n".to_owned()],
        name => vec![name.to_owned()],
    });
    let replies = other.pipeline(&commands).await.unwrap();
    assert_eq!(replies[2], Reply::Array(vec![Reply::Int(15)]));
    assert_eq!(replies[3], bulk("15"));
    // Watched keys count for it.
    client.command(&["WATCH", "{t}n"]).await.unwrap();
    other.command(&["SET", "{t}n", "0"]).await.unwrap();
    tokio::time::sleep(crate::resp::scripts::BELIEVED_FOR).await;
    let reply = transact(&mut client, &[by_digest]).await;
    assert_eq!(reply, Reply::Nil);
    // Keys of several partitions are refused for one script, and make several parts otherwise.
    let apart = ["EVAL", "return 1", "2", "a", "b"];
    let reply = transact(&mut client, &[&apart]).await;
    assert!(error(&reply).starts_with("CROSSSLOT"), "{reply:?}");
    let reply = transact(
        &mut client,
        &[
            &["EVAL", INCREMENT, "1", "a", "1"],
            &["EVAL", INCREMENT, "1", "b", "2"],
            &["EVAL", "return 3", "0"],
        ],
    )
    .await;
    let expected = (1..=3).map(Reply::Int).collect();
    assert_eq!(reply, Reply::Array(expected));
    node.stop().await;
}

#[tokio::test]
async fn a_reply_has_the_version_of_resp_that_its_client_speaks() {
    let node = Node::start(None, 10);
    let eval = "*3\r\n$4\r\nEVAL\r\n$12\r\nreturn false\r\n$1\r\n0\r\n";
    let answer = raw(node.resp, eval.as_bytes()).await;
    assert_eq!(answer, "$-1\r\n");
    let hello = "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n";
    let answer = raw(node.resp, format!("{hello}{eval}").as_bytes()).await;
    assert!(answer.ends_with("_\r\n"), "{answer}");
    node.stop().await;
}

#[tokio::test]
async fn a_script_that_runs_for_ever_is_stopped_and_others_go_on() {
    let node = Node::start(None, 10);
    let (mut client, mut other) = (node.client().await, node.client().await);
    client.command(&["SET", "k", "before"]).await.unwrap();
    let endless = "redis.call('SET', KEYS[1], 'after'); while true do end";
    let reply = client.command(&["EVAL", endless, "1", "k"]).await.unwrap();
    assert!(error(&reply).contains("nothing"), "{reply:?}");
    assert_eq!(other.command(&["GET", "k"]).await.unwrap(), bulk("before"));
    node.stop().await;
}
