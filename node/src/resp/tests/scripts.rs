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
    }
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
