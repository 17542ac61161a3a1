//! A kill test of the service `notes`, as its team would write it: two of its three processes die.

use doyen::testkit::linear::{Answer, Call};
use doyen::testkit::{Cluster, History, PATIENCE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_note_outlives_the_services_that_took_it() -> anyhow::Result<()> {
    let mut cluster = Cluster::builder()
        .binary(env!("CARGO_BIN_EXE_notes"))
        .arguments(["--web", "127.0.0.1:0"])
        .start(3)
        .await?;
    assert_eq!(
        http(&cluster, 0, "PUT", "buy milk").await?,
        (204, String::new())
    );
    cluster.kill(0);
    let answer = http(&cluster, 1, "GET", "").await?;
    assert_eq!(answer, (200, "buy milk".into()), "the other copy has it");
    cluster.restart(0).await?;
    cluster.await_safe(PATIENCE).await?;
    cluster.kill(1);
    let answer = http(&cluster, 2, "GET", "").await?;
    assert_eq!(
        answer,
        (200, "buy milk".into()),
        "there were two copies again"
    );
    Ok(())
}

#[tokio::test]
async fn every_answer_around_a_death_has_an_explanation() -> anyhow::Result<()> {
    let mut cluster = Cluster::builder()
        .binary(env!("CARGO_BIN_EXE_notes"))
        .arguments(["--web", "127.0.0.1:0"])
        .start(3)
        .await?;
    let history = History::new();
    for round in 0..20 {
        if round == 5 {
            cluster.kill(0);
        }
        let text = format!("milk {round}");
        let write = history.call("note 7", 1, Call::Set(text.clone().into()));
        match http(&cluster, 1, "PUT", &text).await {
            Ok((204, _)) => write.answered(Answer::Ok),
            // The write may have happened, or may still happen.
            _ => write.unknown(),
        }
        let read = history.call("note 7", 2, Call::Get);
        match http(&cluster, 2, "GET", "").await {
            Ok((200, text)) => read.answered(Answer::Bulk(text.into())),
            Ok((404, _)) => read.answered(Answer::Nil),
            // The read gave no answer.
            _ => read.refused(),
        }
    }
    let violations = history.judge();
    assert!(violations.is_empty(), "{violations:#?}");
    Ok(())
}

/// Sends a request to one of the services. Returns its status and its body.
async fn http(
    cluster: &Cluster,
    node: usize,
    method: &str,
    body: &str,
) -> anyhow::Result<(u16, String)> {
    let address = cluster
        .ready(node)
        .and_then(|ready| ready.address("web"))
        .ok_or_else(|| anyhow::anyhow!("it does not run"))?;
    let mut stream = TcpStream::connect(address).await?;
    let length = body.len();
    stream
        .write_all(
            format!(
                "{method} /notes/7 HTTP/1.1\r\nHost: notes\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        )
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| anyhow::anyhow!("no answer: {answer}"))?;
    Ok((
        head.split(' ').nth(1).unwrap_or_default().parse()?,
        body.to_owned(),
    ))
}
