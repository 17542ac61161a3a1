//! Clients that vanish without an end of their connection, and clients that let output wait.

use super::*;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// In how many seconds the system asks this client for a sign of life, as the server's socket has
/// it; `None`: never. It is in the system's list of sockets.
fn asked_in(client: SocketAddr, server: SocketAddr) -> Option<u64> {
    let hexed = |at: SocketAddr| match at.ip() {
        std::net::IpAddr::V4(ip) => {
            format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), at.port())
        }
        std::net::IpAddr::V6(_) => panic!("the tests use IPv4"),
    };
    let (client, server) = (hexed(client), hexed(server));
    let list = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let line = list.lines().find(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        words.next() == Some(&server) && words.next() == Some(&client)
    });
    let timer = line
        .expect("the socket is open")
        .split_ascii_whitespace()
        .nth(5);
    let (kind, left) = timer.unwrap().split_once(':').unwrap();
    // 2 is the timer of keepalive, in hundredths of a second.
    (kind == "02").then(|| u64::from_str_radix(left, 16).unwrap().div_ceil(100))
}

/// Waits until the server's socket of this client has this timer.
async fn awaits(client: SocketAddr, server: SocketAddr, wanted: Option<u64>) {
    let until = std::time::Instant::now() + PATIENCE;
    // The timer counts down while the test runs.
    let close = |seen: Option<u64>| match (seen, wanted) {
        (Some(seen), Some(wanted)) => (wanted - 20..=wanted).contains(&seen),
        (seen, wanted) => seen == wanted,
    };
    loop {
        let seen = asked_in(client, server);
        if close(seen) {
            return;
        }
        assert!(
            std::time::Instant::now() < until,
            "{seen:?}, not {wanted:?}"
        );
        tokio::task::yield_now().await;
    }
}

/// Regression: no socket of a client had keepalive, so clients that vanished kept their places for
/// ever.
#[tokio::test]
async fn the_system_asks_silent_clients_of_every_port_for_a_sign_of_life() {
    let node = Node::of_threads(2, None, 20, limits());
    let mut clients = Vec::new();
    for server in [node.resp, node.resp, node.clusters[0], node.clusters[1]] {
        let mut client = TcpStream::connect(server).await.unwrap();
        client.write_all(b"PING\r\n").await.unwrap();
        client.read_exact(&mut [0; 7]).await.unwrap();
        awaits(client.local_addr().unwrap(), server, Some(300)).await;
        clients.push((client, server));
    }
    let mut admin = node.client().await;
    for (set, timer) in [("60", Some(60)), ("0", None), ("900", Some(900))] {
        let set = ask(&mut admin, &format!("CONFIG SET tcp-keepalive {set}")).await;
        assert_eq!(set, Reply::Simple("OK".to_owned()));
        for (client, server) in &clients {
            awaits(client.local_addr().unwrap(), *server, timer).await;
        }
    }
    let Reply::Array(pair) = ask(&mut admin, "CONFIG GET tcp-keepalive").await else {
        panic!("no pair")
    };
    assert_eq!(pair[1], Reply::Bulk(b"900".to_vec()));
    // A client that comes later.
    let client = TcpStream::connect(node.resp).await.unwrap();
    awaits(client.local_addr().unwrap(), node.resp, Some(900)).await;
    node.stop().await;
}

/// Waits until the server has closed the `wanted` numbers of normal clients and subscribers.
async fn await_closed(node: &Node, wanted: (u64, u64)) {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        let stats = node.handle.stats().await;
        let now = (stats.front.output_limited, stats.subscribers_expelled);
        if now == wanted {
            return;
        }
        assert!(std::time::Instant::now() < until, "{now:?}, not {wanted:?}");
    }
}

/// Waits until the server has closed this connection, and reads what it sent before.
async fn closed(mut client: TcpStream) -> usize {
    let mut read = 0;
    let end = async {
        let mut into = vec![0; 1 << 20];
        while let Ok(more @ 1..) = client.read(&mut into).await {
            read += more;
        }
    };
    tokio::time::timeout(PATIENCE, end)
        .await
        .expect("it is closed");
    read
}

async fn line_of_info(client: &mut Client, name: &str) -> String {
    let Reply::Bulk(text) = ask(client, "INFO").await else {
        panic!("no text")
    };
    let text = String::from_utf8(text).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().to_owned()
}

/// As the limits of Redis, by class of client. Afterwards its place is free.
#[tokio::test]
async fn a_client_that_lets_too_much_output_wait_is_closed_and_counted() {
    const PLACES: usize = 3;
    let node = Node::with(
        None,
        PLACES,
        Limits {
            memory_bytes_max: 1 << 30,
            ..limits()
        },
    );
    let mut admin = node.client().await;
    let big = vec![b'x'; 4 << 20];
    let set: [&[u8]; 3] = [b"SET", b"big", &big];
    let reply = admin.command(&set).await.unwrap();
    assert_eq!(reply, Reply::Simple("OK".to_owned()));
    let limit = async |admin: &mut Client, limit: &str| {
        let set = ["CONFIG", "SET", "client-output-buffer-limit", limit];
        let reply = admin.command(&set).await.unwrap();
        assert_eq!(reply, Reply::Simple("OK".to_owned()), "{limit}");
    };
    let asks = async |command: &[u8]| {
        let mut client = TcpStream::connect(node.resp).await.unwrap();
        client.write_all(command).await.unwrap();
        client
    };
    // Without a limit, a client may read its answers late.
    let mut late = asks(&b"GET big\r\n".repeat(4)).await;
    late.read_exact(&mut vec![0; 4 * ((4 << 20) + 12)])
        .await
        .unwrap();
    // At once, and after a time.
    for (now, text) in [(1, "normal 6mb 0 0"), (2, "normal 0 6mb 0")] {
        limit(&mut admin, text).await;
        // The buffers of the system take some of it.
        let client = asks(&b"GET big\r\n".repeat(12)).await;
        await_closed(&node, (now, 0)).await;
        assert!(closed(client).await < 48 << 20, "{text}");
        limit(&mut admin, "normal 0 0 0").await;
    }
    late.write_all(b"PING\r\n").await.unwrap();
    late.read_exact(&mut [0; 7]).await.unwrap();
    drop(late);
    // Subscribers have limits of their own.
    let text = vec![b'x'; 1 << 20];
    for (now, limits) in [(1, "pubsub 2mb 0 0"), (2, "pubsub 0 2mb 0")] {
        limit(&mut admin, limits).await;
        let mut subscriber = asks(b"SUBSCRIBE news\r\n").await;
        subscriber.read_exact(&mut [0; 33]).await.unwrap();
        let publish: [&[u8]; 3] = [b"PUBLISH", b"news", &text];
        for _ in 0..20 {
            admin.command(&publish).await.unwrap();
        }
        await_closed(&node, (2, now)).await;
        assert!(closed(subscriber).await < 20 << 20);
    }
    let counted = line_of_info(&mut admin, "client_output_buffer_limit_disconnections").await;
    assert_eq!(counted, "4");
    // All places are free.
    let mut others = Vec::new();
    while others.len() < PLACES - 1 {
        let mut other = node.client().await;
        if let Ok(Reply::Simple(_)) = other.command(&["PING"]).await {
            others.push(other);
        }
    }
    node.stop().await;
}
