//! `MULTI`, `EXEC`, `WATCH`: whole within a partition, in parts across several.

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

fn simple(text: &str) -> Reply {
    Reply::Simple(text.to_owned())
}

/// The reply to `EXEC` after these commands, sent one by one.
async fn transact(client: &mut Client, lines: &[&str]) -> Reply {
    assert_eq!(ask(client, "MULTI").await, simple("OK"));
    for line in lines {
        assert_eq!(ask(client, line).await, simple("QUEUED"), "{line}");
    }
    ask(client, "EXEC").await
}

#[tokio::test]
async fn a_transaction_is_executed_in_order_however_its_commands_come() {
    let node = Node::start(None, 10);
    for at in [node.resp, node.cluster] {
        let mut client = Client::connect(at).await.unwrap();
        ask(&mut client, "DEL {t}a").await;
        ask(&mut client, "DEL {t}b").await;
        let lines = [
            "SET {t}a 1",
            "INCR {t}a",
            "GET {t}a",
            "SET {t}a x EX",
            "INCRBYFLOAT {t}a 0.5",
            "INCR {t}a",
            "MSET {t}b 7 {t}c 8",
            "MGET {t}a {t}b {t}none",
            "EXISTS {t}a {t}b {t}none",
            "PING",
            "ECHO hello",
            "TTL {t}a",
            "DEL {t}b {t}c",
            "TYPE {t}a",
        ];
        let expected = vec![
            simple("OK"),
            Reply::Int(2),
            bulk("2"),
            Reply::Error("ERR syntax error".to_owned()),
            bulk("2.5"),
            Reply::Error("ERR value is not an integer or out of range".to_owned()),
            simple("OK"),
            Reply::Array(vec![bulk("2.5"), bulk("7"), Reply::Nil]),
            Reply::Int(2),
            simple("PONG"),
            bulk("hello"),
            Reply::Int(-1),
            Reply::Int(2),
            simple("string"),
        ];
        assert_eq!(
            transact(&mut client, &lines).await,
            Reply::Array(expected.clone())
        );
        // In one go, as clients with pipelines send it, with commands before and after.
        let commands: Vec<_> = ["SET {t}z before", "MULTI"]
            .into_iter()
            .chain(lines)
            .chain(["EXEC", "GET {t}a", "GET {t}z"])
            .map(words)
            .collect();
        let replies = client.pipeline(&commands).await.unwrap();
        let (last, rest) = replies.split_at(lines.len() + 2);
        assert!(last[2..].iter().all(|reply| *reply == simple("QUEUED")));
        assert_eq!(rest, [Reply::Array(expected), bulk("2.5"), bulk("before")]);
        assert_eq!(transact(&mut client, &[]).await, Reply::Array(Vec::new()));
        assert_eq!(
            transact(&mut client, &["PING"]).await,
            Reply::Array(vec![simple("PONG")])
        );
    }
    node.stop().await;
}

/// Every text was compared with redis-server 7.0.15.
#[tokio::test]
async fn a_command_that_cannot_be_queued_makes_exec_execute_none() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    let aborted = "EXECABORT Transaction discarded because of previous errors.";
    for (line, refused) in [
        (
            "NONSENSE",
            "ERR unknown command 'NONSENSE', with args beginning with: ",
        ),
        ("GET", "ERR wrong number of arguments for 'get' command"),
        (
            "MULTI now",
            "ERR wrong number of arguments for 'multi' command",
        ),
        (
            "DISCARD now",
            "ERR wrong number of arguments for 'discard' command",
        ),
        (
            "KEYS *",
            "ERR KEYS is not supported inside MULTI: send it before MULTI or after EXEC",
        ),
        (
            "CLIENT LIST",
            "ERR CLIENT LIST is not supported inside MULTI: send it before MULTI or after EXEC",
        ),
    ] {
        assert_eq!(ask(&mut client, "MULTI").await, simple("OK"));
        assert_eq!(ask(&mut client, "SET bal 7").await, simple("QUEUED"));
        assert_eq!(error(&ask(&mut client, line).await), refused);
        assert_eq!(error(&ask(&mut client, "EXEC").await), aborted, "{line}");
    }
    // These do not.
    for (line, refused) in [
        ("MULTI", "ERR MULTI calls can not be nested"),
        ("WATCH bal", "ERR WATCH inside MULTI is not allowed"),
    ] {
        assert_eq!(ask(&mut client, "MULTI").await, simple("OK"));
        assert_eq!(error(&ask(&mut client, line).await), refused);
        assert_eq!(ask(&mut client, "EXEC").await, Reply::Array(Vec::new()));
    }
    for end in ["DISCARD", "RESET"] {
        ask(&mut client, "MULTI").await;
        ask(&mut client, "SET bal 7").await;
        assert!(matches!(ask(&mut client, end).await, Reply::Simple(_)));
        assert_eq!(
            error(&ask(&mut client, "EXEC").await),
            "ERR EXEC without MULTI"
        );
    }
    ask(&mut client, "MULTI").await;
    assert_eq!(
        error(&ask(&mut client, "EXEC now").await),
        "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command"
    );
    assert_eq!(
        error(&ask(&mut client, "DISCARD").await),
        "ERR DISCARD without MULTI"
    );
    // The same without MULTI: nothing is watched any more.
    ask(&mut client, "WATCH bal").await;
    assert!(error(&ask(&mut client, "EXEC now").await).starts_with("EXECABORT"));
    ask(&mut client, "SET bal 1").await;
    assert_eq!(
        transact(&mut client, &["DEL bal"]).await,
        Reply::Array(vec![Reply::Int(1)])
    );
    assert_eq!(ask(&mut client, "GET bal").await, Reply::Nil);
    let answer = raw(node.resp, b"MULTI\r\nINCR bal\r\nQUIT\r\n").await;
    assert_eq!(answer, "+OK\r\n+QUEUED\r\n+OK\r\n");
    assert_eq!(ask(&mut client, "GET bal").await, Reply::Nil);
    node.stop().await;
}

#[tokio::test]
async fn a_watched_key_that_changed_makes_exec_execute_none() {
    let node = Node::start(None, 10);
    for at in [node.resp, node.cluster] {
        let mut client = Client::connect(at).await.unwrap();
        let mut other = Client::connect(at).await.unwrap();
        ask(&mut client, "SET {w}a 1").await;
        ask(&mut client, "DEL {w}b").await;
        // What another client did: `None` leaves the keys as they are.
        for (change, executed) in [
            (None, true),
            (Some("GET {w}a"), true),
            (Some("SET {w}other 1"), true),
            (Some("SET {w}a 1"), false),
            (Some("EXPIRE {w}a 1000"), false),
            (Some("SET {w}b 1"), false),
            (Some("DEL {w}b"), false),
            (Some("UNWATCH"), true),
        ] {
            assert_eq!(ask(&mut client, "WATCH {w}a {w}b").await, simple("OK"));
            if let Some(change) = change {
                ask(&mut other, change).await;
            }
            let reply = transact(&mut client, &["INCR {w}n"]).await;
            assert_eq!(matches!(reply, Reply::Array(_)), executed, "{change:?}");
            if !executed {
                assert_eq!(reply, Reply::Nil);
            }
            // The next one does not depend on the keys.
            ask(&mut other, "INCR {w}a").await;
            assert!(matches!(
                transact(&mut client, &["INCR {w}n"]).await,
                Reply::Array(_)
            ));
        }
        for forgets in ["UNWATCH", "MULTI|DISCARD", "RESET"] {
            ask(&mut client, "WATCH {w}a").await;
            ask(&mut other, "INCR {w}a").await;
            for line in forgets.split('|') {
                ask(&mut client, line).await;
            }
            assert_eq!(
                transact(&mut client, &["PING"]).await,
                Reply::Array(vec![simple("PONG")]),
                "{forgets}"
            );
        }
        // Even if no command touches a key.
        ask(&mut client, "WATCH {w}a").await;
        ask(&mut other, "INCR {w}a").await;
        assert_eq!(transact(&mut client, &["PING"]).await, Reply::Nil);
        // One that was sent together with WATCH depends on it, too.
        let commands = ["WATCH {w}a", "MULTI", "INCR {w}a", "EXEC"].map(words);
        let replies = client.pipeline(&commands).await.unwrap();
        assert!(matches!(replies[3], Reply::Array(_)), "{replies:?}");
    }
    node.stop().await;
}

/// Regression: the connection kept the database and the name of a transaction that was not
/// executed.
#[tokio::test]
async fn a_connection_is_as_before_if_a_watched_key_has_changed() {
    let node = Node::start(None, 10);
    let (mut client, mut other) = (node.client().await, node.client().await);
    ask(&mut client, "CLIENT SETNAME before").await;
    ask(&mut client, "WATCH bal").await;
    ask(&mut other, "SET bal 1").await;
    let lines = ["SELECT 3", "CLIENT SETNAME after", "SET bal 3"];
    assert_eq!(transact(&mut client, &lines).await, Reply::Nil);
    assert_eq!(ask(&mut client, "CLIENT GETNAME").await, bulk("before"));
    assert_eq!(ask(&mut client, "GET bal").await, bulk("1"));
    // One that is executed changes both.
    transact(&mut client, &lines).await;
    assert_eq!(ask(&mut client, "CLIENT GETNAME").await, bulk("after"));
    assert_eq!(ask(&mut other, "GET bal").await, bulk("1"));
    assert_eq!(ask(&mut client, "GET bal").await, bulk("3"));
    node.stop().await;
}

#[tokio::test]
async fn keys_of_several_partitions_make_several_parts_or_none() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    let lines: Vec<String> = (0..40).map(|n| format!("INCRBY k{n} {n}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let expected: Vec<Reply> = (0..40).map(Reply::Int).collect();
    assert_eq!(transact(&mut client, &lines).await, Reply::Array(expected));
    ask(&mut client, "WATCH k0").await;
    let refused = transact(&mut client, &["SET k1 x", "SET k2 x"]).await;
    assert!(
        error(&refused).starts_with("CROSSSLOT the watched keys"),
        "{refused:?}"
    );
    assert_eq!(ask(&mut client, "GET k1").await, bulk("1"));
    // A cluster-aware client sends each transaction to one slot.
    let mut client = Client::connect(node.cluster).await.unwrap();
    let refused = transact(&mut client, &["SET k1 x", "SET k2 x"]).await;
    assert!(error(&refused).starts_with("CROSSSLOT"), "{refused:?}");
    assert_eq!(ask(&mut client, "GET k1").await, bulk("1"));
    node.stop().await;
}

#[tokio::test]
async fn databases_of_a_transaction_are_those_that_it_selected() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    let reply = transact(
        &mut client,
        &[
            "SET k zero",
            "SELECT 3",
            "SET k three",
            "SELECT 99",
            "GET k",
        ],
    )
    .await;
    let out_of_range = Reply::Error("ERR DB index is out of range".to_owned());
    assert_eq!(
        reply,
        Reply::Array(vec![
            simple("OK"),
            simple("OK"),
            simple("OK"),
            out_of_range,
            bulk("three")
        ])
    );
    assert_eq!(ask(&mut client, "GET k").await, bulk("three"));
    ask(&mut client, "MULTI").await;
    ask(&mut client, "SELECT 0").await;
    ask(&mut client, "DISCARD").await;
    assert_eq!(ask(&mut client, "GET k").await, bulk("three"));
    ask(&mut client, "SELECT 0").await;
    assert_eq!(ask(&mut client, "GET k").await, bulk("zero"));
    node.stop().await;
}

/// A part for each partition would answer the same, so `WATCH` shows that there is one part.
#[tokio::test]
async fn a_tag_keeps_keys_together_in_every_database() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    for database in [0, 1, 7, 15] {
        ask(&mut client, &format!("SELECT {database}")).await;
        ask(&mut client, "WATCH {t}0").await;
        let lines: Vec<String> = (0..20).map(|n| format!("INCRBY {{t}}{n} {n}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let expected: Vec<Reply> = (0..20).map(Reply::Int).collect();
        let reply = transact(&mut client, &lines).await;
        assert_eq!(reply, Reply::Array(expected), "database {database}");
        assert_eq!(ask(&mut client, "DBSIZE").await, Reply::Int(20));
    }
    // Also across databases.
    ask(&mut client, "WATCH {t}0").await;
    let lines = ["SELECT 1", "INCR {t}1", "SELECT 7", "INCR {t}2"];
    let expected = vec![simple("OK"), Reply::Int(2), simple("OK"), Reply::Int(3)];
    let reply = transact(&mut client, &lines).await;
    assert_eq!(reply, Reply::Array(expected));
    node.stop().await;
}

#[tokio::test]
async fn a_transaction_that_is_too_large_is_refused_and_holds_nothing_afterwards() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    let value = "x".repeat(1 << 20);
    ask(&mut client, "MULTI").await;
    let mut refused = None;
    for _ in 0..64 {
        let reply = client.command(&["SET", "{t}large", &value]).await.unwrap();
        if reply != simple("QUEUED") {
            refused = Some(reply);
            break;
        }
    }
    let refused = refused.expect("64 MB are queued");
    assert!(
        ["ERR the transaction is too large", "BUSY "]
            .iter()
            .any(|text| error(&refused).starts_with(text)),
        "{refused:?}"
    );
    assert!(error(&ask(&mut client, "EXEC").await).starts_with("EXECABORT"));
    // What one record of the log cannot hold is refused whole, too.
    ask(&mut client, "MULTI").await;
    ask(&mut client, "SET {t}small 1").await;
    for n in 0..20 {
        let key = format!("{{t}}large{n}");
        let reply = client.command(&["SET", &key, &value]).await.unwrap();
        assert_eq!(reply, simple("QUEUED"));
    }
    let reply = ask(&mut client, "EXEC").await;
    assert!(
        error(&reply).starts_with("ERR the transaction writes or reads more"),
        "{reply:?}"
    );
    assert_eq!(ask(&mut client, "GET {t}small").await, Reply::Nil);
    assert_eq!(
        transact(&mut client, &["SET {t}small 1"]).await,
        Reply::Array(vec![simple("OK")])
    );
    node.stop().await;
}

#[tokio::test]
async fn a_transaction_of_a_client_that_said_no_password_is_refused_for_that() {
    let node = Node::start(Some("secret"), 10);
    let answer = raw(
        node.resp,
        b"MULTI\r\nAUTH secret\r\nMULTI\r\nINCR bal\r\nEXEC\r\nGET bal\r\n",
    )
    .await;
    let lines: Vec<_> = answer
        .lines()
        .map(|l| l.split(' ').next().unwrap_or_default())
        .collect();
    assert_eq!(
        lines,
        ["-NOAUTH", "+OK", "+OK", "+QUEUED", "*1", ":1", "$1", "1"],
        "{answer}"
    );
    node.stop().await;
}
