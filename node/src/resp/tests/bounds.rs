//! Users that are bound to a database: nothing outside of it is read, written, named or heard.

use super::*;
use crate::resp::command::table::{COMMANDS, RespSpec};
use doyen_engine::command::NO_KEYS;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// What nothing outside of its database may show to a user.
const SECRETS: [&str; 3] = ["sesame", "topsecret", "hidden"];
/// The database of the user, and one that is not.
const OWN: i64 = 5;

/// A node with the keyspaces `default` and `other`, and secrets in both.
async fn node_with_secrets() -> (Node, Client) {
    let node = Node::of_threads(
        2,
        None,
        20,
        Limits {
            memory_bytes_max: 1 << 30,
            ..limits()
        },
    );
    let mut view = view(ME, node.resp, &node.clusters);
    let mut table = (*view.installed).clone();
    table.version.0 += 1;
    let mut other = table.keyspaces[0].clone();
    (other.id, other.name) = (KeyspaceId(7), "other".to_owned());
    table.keyspaces.push(other);
    table.next_keyspace = KeyspaceId(8);
    let mut opens_at = (*view.opens_at).clone();
    for (place, since, at) in view.opens_at.iter() {
        let place = PartitionRef {
            keyspace: KeyspaceId(7),
            ..*place
        };
        opens_at.push((place, *since, *at));
    }
    (view.installed, view.opens_at) = (Arc::new(table), Arc::new(opens_at));
    view.accepted = view.installed.clone();
    node.shared.publish(crate::control::shared::LocalView {
        me: ME,
        view: Some(view),
    });
    let mut admin = node.client().await;
    ok(
        &mut admin,
        "ACL SETUSER bound on nopass ~* &* +@all keyspace=default/5",
    )
    .await;
    ok(
        &mut admin,
        "CONFIG SET slowlog-log-slower-than 0 notify-keyspace-events KEA",
    )
    .await;
    for keyspace in ["default", "other"] {
        ok(&mut admin, &format!("CLIENT KEYSPACE {keyspace}")).await;
        for database in [0, 9] {
            ok(&mut admin, &format!("SELECT {database}")).await;
            for line in [
                "MSET victim{s} sesame topsecret{s} sesame",
                "HSET hash{s} hidden sesame other x",
                "EXPIRE topsecret{s} 100000",
            ] {
                let reply = ask(&mut admin, line).await;
                assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
            }
        }
    }
    (node, admin)
}

async fn ok(client: &mut Client, line: &str) {
    let reply = ask(client, line).await;
    assert_eq!(reply, Reply::Simple("OK".to_owned()), "{line}");
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Simple(text) | Reply::Error(text) => text.clone(),
        Reply::Int(number) => number.to_string(),
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Nil => "nil".to_owned(),
        Reply::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(" "),
    }
}

/// Everything outside of the user's database.
async fn outside(admin: &mut Client) -> Vec<String> {
    let mut all = Vec::new();
    for keyspace in ["default", "other"] {
        all.push(words(&format!("CLIENT KEYSPACE {keyspace}")));
        for database in (0..16).filter(|database| (keyspace, *database) != ("default", OWN)) {
            all.push(words(&format!("SELECT {database}")));
            for line in [
                "DBSIZE",
                "MGET victim{s} topsecret{s}",
                "HGETALL hash{s}",
                "EXPIRETIME topsecret{s}",
            ] {
                all.push(words(line));
            }
        }
    }
    admin
        .pipeline(&all)
        .await
        .unwrap()
        .iter()
        .map(text)
        .collect()
}

/// Words of arguments: names that are taken outside, options, numbers, and a slot.
fn argument(random: &mut ChaCha8Rng, slot: &str, key: bool) -> String {
    let keys = ["victim{s}", "hash{s}", "own{s}"];
    let others = [
        "0",
        "1",
        "9",
        "5",
        "-1",
        "*",
        "100",
        "DB",
        "REPLACE",
        "GET",
        "NX",
        "MATCH",
        "COUNT",
        "FIELDS",
        "KEYS",
        "x",
        "u8",
        "+",
        "default",
        "other",
        "LIMIT",
        "EX",
        "ID",
        "bound",
        "all",
        "other",
        "getkeysinslot",
        "return redis.call('GET',KEYS[1])",
        "victim{s}",
        "hash{s}",
        "copy",
        "hgetall",
        "encoding",
        "usage",
    ];
    let draw = |words: &[&str], random: &mut ChaCha8Rng| {
        words[random.random_range(0..words.len())].to_owned()
    };
    match random.random_range(0..10) {
        0 => slot.to_owned(),
        1..=6 if key => draw(&keys, random),
        _ => draw(&others, random),
    }
}

fn command_of(spec: &RespSpec, random: &mut ChaCha8Rng, slot: &str) -> Vec<String> {
    let mut words: Vec<String> = spec.name.split('|').map(str::to_owned).collect();
    let least = usize::try_from(spec.arity.unsigned_abs()).unwrap_or(1);
    let more = if spec.arity < 0 {
        random.random_range(0..7)
    } else {
        0
    };
    while words.len() < least + more {
        let at = words.len();
        let (first, ..) = spec.keys;
        let key = spec.keys != NO_KEYS && at as i64 >= first;
        words.push(argument(random, slot, key));
    }
    words
}

/// Commands that end the connection or change what it is, and `AUTH`.
fn is_passed_over(name: &str) -> bool {
    let passed = [
        "quit",
        "reset",
        "auth",
        "hello",
        "client|kill",
        "client|reply",
        "client|pause",
    ];
    // What is subscribed to is heard, below.
    passed.contains(&name) || name.ends_with("subscribe") || name.starts_with("acl|")
}

/// Regression: COPY with two databases wrote elsewhere, and CLUSTER GETKEYSINSLOT named keys of
/// database 0. Here, every command of the table is tried with many arguments.
#[tokio::test]
async fn no_command_of_a_bound_user_reads_writes_or_names_anything_outside() {
    let (node, mut admin) = node_with_secrets().await;
    let slot = text(&ask(&mut admin, "CLUSTER KEYSLOT {s}").await);
    let before = outside(&mut admin).await;
    assert!(before.concat().contains("sesame"));
    let mut random = ChaCha8Rng::seed_from_u64(54);
    let own = format!("SELECT {OWN}");
    let clusters = node.clusters.clone();
    let mut tried = 0;
    for spec in COMMANDS
        .all()
        .iter()
        .filter(|spec| !is_passed_over(spec.name))
    {
        let mut clients = Vec::new();
        for at in std::iter::once(node.resp).chain(clusters.clone()) {
            let client = Client::connect(at).await.unwrap();
            clients.push(client);
        }
        for round in 0..40 {
            let client = if round % 5 == 4 {
                let at = 1 + round % (clients.len() - 1);
                &mut clients[at]
            } else {
                &mut clients[0]
            };
            let command = command_of(spec, &mut random, &slot);
            // In database 0, in its own, and in transactions of both. What may wait would wait there
            // alone for ever, so it is tried in transactions, which never wait.
            let form = if spec.has_flag("blocking") {
                2 + round % 2
            } else {
                round % 4
            };
            let mut all = vec![words("RESET"), words("AUTH bound x")];
            all.extend(match form {
                0 => vec![command.clone()],
                1 => vec![words(&own), command.clone()],
                2 => vec![words("MULTI"), command.clone(), words("EXEC")],
                _ => vec![words("MULTI"), words(&own), command.clone(), words("EXEC")],
            });
            let replies = client.pipeline(&all).await.unwrap();
            tried += 1;
            let shown = replies.iter().map(text).collect::<Vec<_>>().join(" ");
            // What the client itself has sent may come back.
            let sent = command.join(" ");
            let leaks = SECRETS
                .iter()
                .any(|s| shown.contains(s) && !sent.contains(s));
            assert!(!leaks, "{command:?}: {shown}");
        }
        let after = outside(&mut admin).await;
        assert_eq!(after, before, "{}", spec.name);
    }
    assert!(tried > 5_000, "{tried}");
    node.stop().await;
}

/// Each case is one that was once wrong, or a form of one.
#[tokio::test]
async fn commands_that_name_other_databases_are_judged_by_what_they_would_execute() {
    let (node, mut admin) = node_with_secrets().await;
    let slot = text(&ask(&mut admin, "CLUSTER KEYSLOT {s}").await);
    let mut bound = node.client().await;
    ok(&mut bound, "AUTH bound x").await;
    let here = "in this keyspace or database";
    for line in [
        format!("CLUSTER GETKEYSINSLOT {slot} 10"),
        format!("CLUSTER COUNTKEYSINSLOT {slot}"),
        "SLOWLOG GET 100".to_owned(),
        "ACL LOG".to_owned(),
        "SELECT 0".to_owned(),
        "SELECT 16".to_owned(),
        "CLIENT KEYSPACE other".to_owned(),
        "WATCH victim{s}".to_owned(),
        "RANDOMKEY".to_owned(),
        "KEYS *".to_owned(),
        "SCAN 0".to_owned(),
        "DBSIZE".to_owned(),
        "OBJECT ENCODING victim{s}".to_owned(),
        "MEMORY USAGE victim{s}".to_owned(),
        "EVAL return(1) 0".to_owned(),
        "FLUSHALL".to_owned(),
    ] {
        let reply = ask(&mut bound, &line).await;
        assert!(text(&reply).contains(here), "{line}: {reply:?}");
    }
    ok(&mut bound, &format!("SELECT {OWN}")).await;
    ok(&mut bound, "SET mine{s} evil").await;
    for line in [
        "COPY mine{s} victim{s} DB 5 REPLACE DB 0",
        "COPY mine{s} victim{s} DB 0 REPLACE",
        "copy mine{s} victim{s} db 5 db 5 db 9 replace",
        "FLUSHALL",
        "SELECT 9",
        "CLIENT KEYSPACE other",
    ] {
        let reply = ask(&mut bound, line).await;
        assert!(text(&reply).contains(here), "{line}: {reply:?}");
        ok(&mut bound, "MULTI").await;
        let reply = ask(&mut bound, line).await;
        assert!(text(&reply).contains(here), "MULTI {line}: {reply:?}");
        ok(&mut bound, "DISCARD").await;
    }
    // The last database counts, and it is the user's own.
    let line = "COPY mine{s} copied{s} DB 0 DB 5";
    assert_eq!(ask(&mut bound, line).await, Reply::Int(1));
    assert_eq!(
        ask(&mut bound, "GET copied{s}").await,
        Reply::Bulk(b"evil".to_vec())
    );
    let found = ask(&mut bound, &format!("CLUSTER COUNTKEYSINSLOT {slot}")).await;
    assert_eq!(found, Reply::Int(2));
    let info = text(&ask(&mut bound, "INFO keyspace").await);
    assert!(
        info.contains("db5:") && !info.contains("db0:") && !info.contains("db9:"),
        "{info}"
    );
    node.stop().await;
}

/// Messages about keys belong to the database of the keys, whatever the subscriber has selected.
#[tokio::test]
async fn a_bound_user_hears_of_keys_of_its_own_database_alone() {
    let (node, mut admin) = node_with_secrets().await;
    let mut bound = node.client().await;
    ok(&mut bound, "AUTH bound x").await;
    let channel = "NOPERM No permissions to access a channel";
    for line in [
        "SUBSCRIBE __keyspace@0__:topsecret{s}",
        "SUBSCRIBE news __keyevent@9__:set",
        "PSUBSCRIBE __keyspace@0__:*",
        "PSUBSCRIBE a* __keyevent@0__:*",
    ] {
        assert_eq!(
            ask(&mut bound, line).await,
            Reply::Error(channel.into()),
            "{line}"
        );
    }
    // These may also be about other databases, and get messages about the user's own alone.
    let patterns = ["*", "__key*", "__keyspace@*__:*", "__keyevent@?__:s[e]t"];
    for pattern in patterns {
        ask(&mut bound, &format!("PSUBSCRIBE {pattern}")).await;
    }
    ask(&mut bound, "SUBSCRIBE __keyspace@5__:end").await;
    for keyspace in ["other", "default"] {
        ok(&mut admin, &format!("CLIENT KEYSPACE {keyspace}")).await;
        for database in [0, 9] {
            ok(&mut admin, &format!("SELECT {database}")).await;
            ok(&mut admin, "SET topsecret{s} sesame").await;
        }
    }
    ask(&mut admin, "PUBLISH __keyspace@0__:topsecret{s} forged").await;
    ok(&mut admin, "SELECT 5").await;
    ok(&mut admin, "SET own x").await;
    ask(&mut admin, "SET end x").await;
    let (mut heard, patience) = (Vec::new(), Duration::from_secs(60));
    loop {
        let reply = tokio::time::timeout(patience, bound.reply()).await;
        let message = text(&reply.expect("a message in time").unwrap());
        let last = message.starts_with("message ");
        heard.push(message);
        if last {
            break;
        }
    }
    for message in &heard {
        assert!(!SECRETS.iter().any(|s| message.contains(s)), "{message}");
        assert!(
            !message.contains("@0__") && !message.contains("@9__"),
            "{message}"
        );
    }
    for pattern in &patterns[..3] {
        let told = format!("pmessage {pattern} __keyspace@5__:own set");
        assert!(heard.contains(&told), "{told}: {heard:?}");
    }
    // The names of what others subscribe to are names of keys.
    let mut other = node.client().await;
    ask(&mut other, "SUBSCRIBE __keyspace@0__:topsecret{s}").await;
    let mut bound = node.client().await;
    ok(&mut bound, "AUTH bound x").await;
    let listed = text(&ask(&mut bound, "PUBSUB CHANNELS").await);
    assert_eq!(listed, "__keyspace@5__:end");
    node.stop().await;
}
