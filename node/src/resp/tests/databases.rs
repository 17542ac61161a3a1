//! `SELECT`: databases that do not see each other's keys.

use super::*;

/// Regression: a client that selected another database was told that it does not exist, and then
/// used database 0 without a notice.
#[tokio::test]
async fn each_database_has_keys_of_its_own() {
    for threads in [1, 2] {
        let node = Node::of_threads(threads, None, 10, limits());
        let mut client = node.client().await;
        let mut ask = async |line: &str| client.command(&words(line)).await.unwrap();
        let (ok, bulk) = (
            || Reply::Simple("OK".to_owned()),
            |text: &str| Reply::Bulk(text.as_bytes().to_vec()),
        );
        for n in 0..16 {
            assert_eq!(ask(&format!("SELECT {n}")).await, ok());
            assert_eq!(ask("GET key").await, Reply::Nil, "{n}");
            assert_eq!(ask(&format!("SET key {n}")).await, ok());
            assert_eq!(ask(&format!("MSET a {n} only:{n} x")).await, ok());
            assert_eq!(ask("EXPIRE a 100").await, Reply::Int(1));
        }
        for n in 0..16 {
            ask(&format!("SELECT {n}")).await;
            let n = n.to_string();
            assert_eq!(
                ask("MGET key a").await,
                Reply::Array(vec![bulk(&n), bulk(&n)])
            );
            assert_eq!(
                (ask("GET key").await, ask("DBSIZE").await),
                (bulk(&n), Reply::Int(3))
            );
            let only = bulk(&format!("only:{n}"));
            assert_eq!(ask("KEYS only:*").await, Reply::Array(vec![only.clone()]));
            assert_eq!(
                ask("SCAN 0 MATCH only:* COUNT 1000").await,
                Reply::Array(vec![bulk("0"), Reply::Array(vec![only])])
            );
            let Reply::Bulk(info) = ask("INFO keyspace").await else {
                panic!("no text")
            };
            assert!(
                String::from_utf8(info)
                    .unwrap()
                    .contains(&format!("db{n}:keys=3,expires=1,avg_ttl=0"))
            );
        }
        assert_eq!(ask("FLUSHDB").await, ok());
        assert_eq!(
            (
                ask("DBSIZE").await,
                ask("SELECT 3").await,
                ask("DBSIZE").await
            ),
            (Reply::Int(0), ok(), Reply::Int(3))
        );
        for index in ["16", "-1", "4294967295"] {
            assert!(
                matches!(ask(&format!("SELECT {index}")).await, Reply::Error(_)),
                "{index}"
            );
        }
        assert_eq!(ask("GET key").await, bulk("3"), "a mistake changes nothing");
        for (command, instead) in [
            ("MOVE key 1", "COPY key key DB n"),
            ("SWAPDB 0 1", "COPY key key DB n"),
            ("VADD g 1 1 m", "there are no vector sets here"),
            ("SAVE", "nothing is written to disk"),
            ("waitaof 1 1 1", "WAIT tells how many nodes have a write"),
            ("MIGRATE h 1 key 0 9", "DUMP and RESTORE move a value"),
            ("FCALL f 0", "EVAL and EVALSHA run Lua scripts"),
            ("JSON.SET key $ 1", "there are no modules here"),
            ("REPLICAOF NO ONE", "fail over by themselves"),
            ("SHUTDOWN", "SIGTERM"),
        ] {
            let Reply::Error(why) = ask(command).await else {
                panic!("{command} is known")
            };
            let name = command.split(' ').next().expect("a word").to_uppercase();
            let begins = format!("ERR unknown command '{name}': ");
            assert!(why.starts_with(&begins) && why.contains(instead), "{why}");
        }
        for (command, begins) in [
            (
                "CLUSTER ADDSLOTS 1",
                "ERR unknown subcommand 'ADDSLOTS': nodes join",
            ),
            (
                "function load code",
                "ERR unknown subcommand 'LOAD': there are no functions",
            ),
            (
                "CLUSTER NONSENSE",
                "ERR unknown subcommand 'NONSENSE'. Try CLUSTER HELP.",
            ),
        ] {
            let why = ask(command).await;
            assert!(
                matches!(&why, Reply::Error(why) if why.starts_with(begins)),
                "{command}: {why:?}"
            );
        }
        let Reply::Bulk(line) = ask("CLIENT INFO").await else {
            panic!("no text")
        };
        assert!(String::from_utf8(line).unwrap().contains(" db=3 "));
        assert_eq!(
            ask("CONFIG GET databases").await,
            Reply::Array(vec![bulk("databases"), bulk("16")])
        );
        assert_eq!(ask("FLUSHALL").await, ok());
        for n in 0..16 {
            ask(&format!("SELECT {n}")).await;
            assert_eq!(ask("DBSIZE").await, Reply::Int(0), "{n}");
        }
        assert_eq!(ask("SET key 15").await, ok());
        assert_eq!(ask("RESET").await, Reply::Simple("RESET".to_owned()));
        assert_eq!(ask("GET key").await, Reply::Nil, "database 0");
        node.stop().await;
    }
}

#[tokio::test]
async fn a_reply_taken_back_is_read_again_from_its_database() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    client
        .pipeline(&["SET a 0", "SELECT 1", "SET a 1"].map(words))
        .await
        .unwrap();
    node.shared.extend_lease(Time::ZERO);
    let commands = ["GET a", "SELECT 0", "GET a", "SELECT 2", "GET a"].map(words);
    let replies = client.pipeline(&commands);
    let mut replies = std::pin::pin!(replies);
    assert!(
        tokio::time::timeout(Duration::from_millis(50), &mut replies)
            .await
            .is_err()
    );
    node.shared.extend_lease(Time(u64::MAX));
    let (ok, bulk) = (Reply::Simple("OK".to_owned()), |value: &[u8]| {
        Reply::Bulk(value.to_vec())
    });
    assert_eq!(
        replies.await.unwrap(),
        [bulk(b"1"), ok.clone(), bulk(b"0"), ok, Reply::Nil]
    );
    node.stop().await;
}
