//! Transactions are refused as a whole.

use super::*;

fn error(reply: &Reply) -> &str {
    let Reply::Error(text) = reply else {
        panic!("no error: {reply:?}")
    };
    text
}

/// Regression: only `MULTI` was refused, and the commands that the client had sent after it were
/// executed. A retry counted twice.
#[tokio::test]
async fn nothing_of_a_refused_transaction_is_executed() {
    let node = Node::start(None, 10);
    for at in [node.resp, node.cluster] {
        let mut client = Client::connect(at).await.unwrap();
        client.command(&["DEL", "bal"]).await.unwrap();
        // Commands that the connection executes at once, commands that take several steps, and
        // nonsense.
        let within = [
            "INCR bal",
            "SET bal 7",
            "GET bal",
            "MSET bal 1",
            "PING",
            "KEYS *",
            "GET",
            "WATCH bal",
            "EXEC now",
            "nonsense",
        ];
        for end in ["EXEC", "DISCARD"] {
            let commands: Vec<_> = ["GET bal", "MULTI"]
                .into_iter()
                .chain(within)
                .chain([end, "GET bal", "PING"])
                .map(words)
                .collect();
            let replies = client.pipeline(&commands).await.unwrap();
            assert_eq!(replies[0], Reply::Nil);
            assert!(
                error(&replies[1]).starts_with("ERR MULTI is not supported"),
                "{:?}",
                replies[1]
            );
            for (command, reply) in commands[2..].iter().zip(&replies[2..2 + within.len()]) {
                assert!(
                    error(reply).starts_with("ERR not executed"),
                    "{command:?}: {reply:?}"
                );
            }
            let [ended, after, pong] = &replies[2 + within.len()..] else {
                panic!("{replies:?}")
            };
            match end {
                "EXEC" => assert!(
                    error(ended)
                        .starts_with("EXECABORT Transaction discarded because of previous errors"),
                    "{ended:?}"
                ),
                _ => assert_eq!(*ended, Reply::Simple("OK".to_owned())),
            }
            assert_eq!(
                (after, pong),
                (&Reply::Nil, &Reply::Simple("PONG".to_owned()))
            );
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn a_refused_transaction_lasts_until_the_client_ends_it_however_its_commands_come() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    let mut ask = async |line: &str| client.command(&words(line)).await.unwrap();
    assert!(error(&ask("WATCH bal").await).starts_with("ERR WATCH is not supported"));
    assert_eq!(
        ask("INCR bal").await,
        Reply::Int(1),
        "WATCH alone begins nothing"
    );
    assert_eq!(error(&ask("EXEC").await), "ERR EXEC without MULTI");
    assert_eq!(error(&ask("DISCARD").await), "ERR DISCARD without MULTI");
    for multi in ["multi", "MULTI and more"] {
        assert!(error(&ask(multi).await).starts_with("ERR MULTI is not supported"));
        assert!(error(&ask("INCR bal").await).starts_with("ERR not executed"));
        assert_eq!(
            error(&ask("MULTI").await),
            "ERR MULTI calls can not be nested"
        );
        assert!(error(&ask("CLIENT SETNAME me").await).starts_with("ERR not executed"));
        assert_eq!(ask("RESET").await, Reply::Simple("RESET".to_owned()));
        assert_eq!(ask("GET bal").await, Reply::Bulk(b"1".to_vec()));
    }
    let answer = raw(node.resp, b"MULTI\r\nINCR bal\r\nQUIT\r\n").await;
    assert!(
        answer.ends_with("+OK\r\n") && answer.lines().count() == 3,
        "{answer}"
    );
    assert_eq!(ask("GET bal").await, Reply::Bulk(b"1".to_vec()));
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
        ["-ERR", "+OK", "-ERR", "-ERR", "-EXECABORT", "$-1"],
        "{answer}"
    );
    node.stop().await;
}
