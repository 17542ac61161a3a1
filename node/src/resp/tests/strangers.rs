//! Clients that have not authenticated, and clients that are idle.

use super::*;
use std::time::Instant;

fn bytes(of: &str) -> Reply {
    Reply::Simple(of.to_owned())
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut rest = Vec::new();
    // A reset ends the connection, too.
    let _ = stream.read_to_end(&mut rest).await;
    String::from_utf8_lossy(&rest).into_owned()
}

/// Regression: four thousand strangers held 127 KiB each.
#[tokio::test]
async fn unauthenticated_clients_make_the_node_hold_little() {
    const STRANGERS: usize = 100;
    let node = Node::start(Some("secret"), STRANGERS + 10);
    let mut all = Vec::new();
    for _ in 0..STRANGERS {
        let mut unfinished = TcpStream::connect(node.resp).await.unwrap();
        unfinished
            .write_all(&[&b"*3\r\n$4\r\nAUTH\r\n$16384\r\n"[..], &[b'x'; 16000]].concat())
            .await
            .unwrap();
        all.push(unfinished);
    }
    // The node reads all that it may hold, and no more of any of them.
    let most = STRANGERS * (20 << 10);
    while node.handle.stats().await.input_bytes < STRANGERS as u64 * 16000 {
        tokio::task::yield_now().await;
    }
    assert!(node.handle.stats().await.input_bytes < most as u64);
    for line in [
        &[b'x'; 17 << 10][..],
        &[&b"*2\r\n$16384\r\n"[..], &[b'x'; 16384], b"\r\n$16384\r\n"].concat(),
    ] {
        let mut stranger = TcpStream::connect(node.resp).await.unwrap();
        stranger.write_all(line).await.unwrap();
        let told = rest(&mut stranger).await;
        assert!(
            told.is_empty() || told.starts_with("-ERR Protocol error: "),
            "{told}"
        );
    }
    // Answers that are not read do not grow either.
    let mut deaf = TcpStream::connect(node.resp).await.unwrap();
    let flood = b"GET a\r\n".repeat(10_000);
    while tokio::time::timeout(Duration::from_millis(500), deaf.write_all(&flood))
        .await
        .is_ok_and(|written| written.is_ok())
    {}
    let stats = node.handle.stats().await;
    assert!(
        stats.answer_bytes < 64 << 10 && stats.spilled_bytes == 0,
        "{} bytes of answers",
        stats.answer_bytes
    );
    assert_eq!(stats.front.connections_expelled, 0);
    node.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_authenticate_in_time_is_told_so_and_disconnected() {
    let limit = Duration::from_millis(300);
    let node = Node::impatient(2, Some("secret"), 10, limits(), (Some(limit), None));
    let mut known = node.client().await;
    assert_eq!(
        known.command(&["AUTH", "secret"]).await.unwrap(),
        bytes("OK")
    );
    let mut again = node.client().await;
    assert_eq!(
        again.command(&["AUTH", "secret"]).await.unwrap(),
        bytes("OK")
    );
    assert_eq!(again.command(&["RESET"]).await.unwrap(), bytes("RESET"));
    let began = Instant::now();
    let mut silent = TcpStream::connect(node.resp).await.unwrap();
    let mut on_cluster_port = TcpStream::connect(node.clusters[1]).await.unwrap();
    let mut halfway = TcpStream::connect(node.resp).await.unwrap();
    halfway
        .write_all(b"*2\r\n$4\r\nAUTH\r\n$6\r\nsec")
        .await
        .unwrap();
    for stranger in [&mut silent, &mut on_cluster_port, &mut halfway] {
        assert_eq!(
            rest(stranger).await,
            "-NOAUTH no AUTH came within 300ms: connect again and authenticate first\r\n"
        );
    }
    assert!(began.elapsed() >= limit);
    // A reply to an earlier command, or the end of the connection.
    let again = again.command(&["PING"]).await;
    assert!(
        !matches!(&again, Ok(reply) if *reply == bytes("PONG")),
        "{again:?}"
    );
    assert_eq!(
        known.command(&["PING"]).await.unwrap(),
        bytes("PONG"),
        "it has said the password"
    );
    let stats = node.handle.stats().await;
    assert_eq!(
        (stats.front.auth_timeouts, stats.front.idle_timeouts),
        (4, 0)
    );
    node.stop().await;
}

#[tokio::test]
async fn an_idle_client_is_disconnected_if_a_timeout_is_set() {
    let node = Node::impatient(1, None, 10, limits(), (None, Some(Duration::from_secs(3))));
    let (mut idle, mut busy) = (
        TcpStream::connect(node.resp).await.unwrap(),
        node.client().await,
    );
    let mut end = std::pin::pin!(rest(&mut idle));
    loop {
        assert_eq!(busy.command(&["PING"]).await.unwrap(), bytes("PONG"));
        if let Ok(told) = tokio::time::timeout(Duration::from_millis(20), &mut end).await {
            assert_eq!(told, "");
            break;
        }
    }
    assert_eq!(busy.command(&["PING"]).await.unwrap(), bytes("PONG"));
    assert_eq!(node.handle.stats().await.front.idle_timeouts, 1);
    node.stop().await;
}

/// The attack: many clients that connect and say nothing. The control: those with the password
/// stay, and come in as before.
#[tokio::test]
async fn strangers_take_no_place_of_clients_that_authenticate() {
    const PLACES: usize = 20;
    let node = Node::start(Some("secret"), PLACES);
    let mut known = node.client().await;
    assert_eq!(ask(&mut known, "AUTH secret").await, bytes("OK"));
    let mut strangers = Vec::new();
    for _ in 0..400 {
        strangers.push(TcpStream::connect(node.resp).await.unwrap());
    }
    for _ in 0..PLACES / 2 {
        let mut late = node.client().await;
        assert_eq!(ask(&mut late, "AUTH secret").await, bytes("OK"));
        assert_eq!(ask(&mut late, "SET a 1").await, bytes("OK"));
        strangers.push(TcpStream::connect(node.resp).await.unwrap());
    }
    assert_eq!(ask(&mut known, "GET a").await, Reply::Bulk(b"1".to_vec()));
    // The one that was here longest is gone.
    assert_eq!(rest(&mut strangers[0]).await, "");
    let stats = node.handle.stats().await;
    assert!(stats.connections <= PLACES as u64, "{}", stats.connections);
    assert!(
        stats.front.strangers_ended >= 400 - PLACES as u64,
        "{}",
        stats.front.strangers_ended
    );
    node.stop().await;
}

/// Regression: passwords could be guessed as fast as the network allows.
#[tokio::test]
async fn wrong_passwords_are_counted_and_make_the_next_ones_of_their_address_wait() {
    let node = Node::start(Some("secret"), 10);
    let mut known = node.client().await;
    assert_eq!(
        known.command(&["AUTH", "secret"]).await.unwrap(),
        bytes("OK")
    );
    let began = Instant::now();
    for n in 0..6 {
        // Each guess on a connection of its own.
        let mut guesser = node.client().await;
        let guess: &[&str] = if n % 2 == 0 {
            &["AUTH", "wrong"]
        } else {
            &["HELLO", "3", "AUTH", "default", "wrong"]
        };
        assert!(
            matches!(guesser.command(guess).await.unwrap(), Reply::Error(why)
            if why.starts_with("WRONGPASS"))
        );
    }
    // 50 ms after the first wrong password, and twice as long after each further one.
    assert!(
        began.elapsed() >= Duration::from_millis(50 + 100 + 200 + 400 + 800),
        "{:?}",
        began.elapsed()
    );
    let mut late = TcpStream::connect(node.resp).await.unwrap();
    late.write_all(b"AUTH secret\r\nSET a 1\r\nGET a\r\n")
        .await
        .unwrap();
    // A client that has authenticated is served meanwhile.
    let info = match known.command(&["INFO", "stats"]).await.unwrap() {
        Reply::Bulk(text) => String::from_utf8(text).unwrap(),
        other => panic!("{other:?}"),
    };
    assert!(info.contains("\r\nacl_access_denied_auth:6\r\n"), "{info}");
    let mut answers = [0; 17];
    late.read_exact(&mut answers).await.unwrap();
    assert_eq!(&answers, b"+OK\r\n+OK\r\n$1\r\n1\r\n");
    assert!(
        began.elapsed() >= Duration::from_millis(1550 + 1600),
        "the right one waits as well"
    );
    assert_eq!(node.handle.stats().await.front.auth_failures, 6);
    node.stop().await;
}
