//! Garbage, too much, too large: clear errors or closed connections, and no harm to other clients.

use doyen_tests::cluster::Cluster;
use doyen_tests::load::Load;
use doyen_tests::process::PATIENCE;
use doyen_tests::resp::{Client, Reply};
use rand::{RngCore, SeedableRng};
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");

fn error(reply: &Reply) -> &str {
    match reply {
        Reply::Error(text) => text,
        other => panic!("an error was expected: {other:?}"),
    }
}

#[test]
fn garbage_at_every_port_disturbs_no_client() {
    let mut cluster = Cluster::of(BINARY, 3);
    let term = cluster.status("n0").expect("a status")["term"].clone();
    let load = Load::start(cluster.resp_addresses(), 3);
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(20);
    let mut bytes = vec![0; 1_200];
    let target = cluster.node("n1").ready.clone();
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for round in 0..200 {
        rng.fill_bytes(&mut bytes);
        if round % 2 == 0 {
            // This looks like the first packet of a QUIC connection.
            bytes[..5].copy_from_slice(&[0xc3, 0, 0, 0, 1]);
        }
        for address in [target.listen, target.data] {
            udp.send_to(&bytes, address).expect("the socket sends");
        }
        for address in [target.resp, target.resp_cluster, target.http] {
            if let Ok(mut stream) = TcpStream::connect(address) {
                let garbage = match round % 4 {
                    0 => bytes.clone(),
                    1 => b"*1000000000\r\n$5\r\nhello\r\n".to_vec(),
                    2 => b"*2\r\n$-7\r\n$99999999999999999999\r\n".to_vec(),
                    _ => format!(
                        "GET /{} HTTP/9.9\r\n{}",
                        "x".repeat(20_000),
                        "y: z\r\n".repeat(50)
                    )
                    .into_bytes(),
                };
                // The node may close the connection at once; that is an answer too.
                let _ = stream.write_all(&garbage);
            }
        }
    }
    let from = load.acknowledged();
    cluster.eventually("writes go on", |_| load.acknowledged() > from + 200);
    let tally = load.finish();
    assert_eq!(
        (tally.refused, tally.unknown, tally.stale.len()),
        (0, 0, 0),
        "{:?}",
        tally.errors
    );
    assert!(
        cluster.nodes.values_mut().all(|p| !p.ended()),
        "a process ended"
    );
    cluster.await_safe(3);
    assert_eq!(
        cluster.status("n0").expect("a status")["term"],
        term,
        "the cluster was disturbed"
    );
}

#[test]
fn a_name_in_a_path_that_is_no_text_gets_an_error_in_json() {
    let cluster = Cluster::of(BINARY, 1);
    let said = cluster.nodes["n0"]
        .http("/keyspaces/%FF")
        .expect_err("there is none")
        .to_string();
    assert!(
        said.contains(r#"400 Bad Request {"error":"the path has no name"#),
        "{said}"
    );
}

/// What a node answers to a request, as it stands on the wire.
fn answer(request: &str) -> String {
    let cluster = Cluster::of(BINARY, 1);
    let mut stream = TcpStream::connect(cluster.nodes["n0"].ready.http).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("an answer");
    said
}

/// A client that adds `?wait=true` to a drain expects an effect. A 200 would promise one.
#[test]
fn an_unknown_parameter_of_a_change_is_refused() {
    let said = answer(
        "POST /members/n0/drain?wait=true HTTP/1.1\r\nhost: n0\r\nconnection: close\r\n\r\n",
    );
    assert!(
        said.starts_with("HTTP/1.1 400 ")
            && said.contains(r#"{"error":"`?wait=true` is not taken"#),
        "{said}"
    );
}

/// The refusal comes before any of the body, and not when the body has taken too long.
#[test]
fn a_body_announced_as_too_long_is_refused_at_once() {
    let said = answer(
        "POST /rebalance HTTP/1.1\r\nhost: n0\r\nconnection: close\r\n\
         content-length: 1000000000000\r\n\r\n",
    );
    assert!(
        said.starts_with("HTTP/1.1 413 ")
            && said.contains(r#"{"error":"the body is too large: send at most "#),
        "{said}"
    );
}

#[test]
fn a_value_above_the_limit_is_refused_and_the_connection_stays() {
    let mut cluster = Cluster::new(BINARY);
    cluster
        .options
        .extend(["--value-max", "64kb"].map(str::to_owned));
    cluster.join("n0");
    cluster.await_safe(1);
    let mut client = cluster.client("n0");
    let fits = vec![b'x'; 60_000];
    assert_eq!(
        client.command(&[b"SET", b"a", &fits]).expect("a reply"),
        Reply::Simple("OK".into())
    );
    let reply = client.command(&[b"APPEND", b"a", &fits]).expect("a reply");
    assert!(!error(&reply).is_empty());
    assert_eq!(
        client.command(&[b"STRLEN", b"a"]).expect("a reply"),
        Reply::Int(60_000)
    );
    // The second is far above the limit of a whole command, too: it is skipped as it comes.
    for large in [vec![b'x'; 70_000], vec![b'x'; 20 << 20]] {
        let refused = client.command(&[b"SET", b"a", &large]).expect("a reply");
        assert_eq!(
            error(&refused),
            "ERR the argument is too large: at most 65536 bytes (--value-max)"
        );
    }
    assert_eq!(
        client.command(&[b"STRLEN", b"a"]).expect("a reply"),
        Reply::Int(60_000)
    );
}

/// The most memory that a node may use in the test below: its data, twice the share of answers, and
/// what is on its way to each peer and client. The test asks for some twenty gigabytes.
const RSS_MAX: u64 = 1 << 30;

/// Resident memory at its highest so far, in bytes.
fn rss_peak(pid: u32) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:"))
        .expect("Linux says so");
    line.trim()
        .trim_end_matches(" kB")
        .parse::<u64>()
        .expect("a number")
        << 10
}

/// A client pipelined a hundred reads of large values through a node that is not their primary, and
/// never took the answers. The primary grew by gigabytes, and was expelled.
#[test]
fn large_values_that_are_asked_for_and_never_taken_cost_bounded_memory() {
    const VALUE: usize = 16 << 20;
    let cluster = Cluster::of(BINARY, 3);
    let term = cluster.status("n0").expect("a status")["term"].clone();
    let mut client = cluster.client("n0");
    let value = vec![b'v'; VALUE];
    for i in 0..4 {
        let set = client
            .command(&[b"SET", format!("large-{i}").as_bytes(), &value])
            .expect("a reply");
        assert_eq!(set, Reply::Simple("OK".into()));
    }
    let load = Load::start(cluster.resp_addresses(), 3);
    let mut held = Vec::new();
    for name in ["n0", "n1", "n2"] {
        for _ in 0..4 {
            let mut greedy = cluster.client(name);
            if name == "n1" {
                // Small answers first, so that the node expects small ones and asks for all at
                // once.
                for i in 0..100 {
                    assert_eq!(
                        greedy
                            .command(&[b"GET", format!("small-{i}").as_bytes()])
                            .expect("a reply"),
                        Reply::Nil
                    );
                }
            }
            for i in 0..100 {
                greedy
                    .send(&[b"GET", format!("large-{}", i % 4).as_bytes()])
                    .expect("the node reads a while");
            }
            greedy
                .send(
                    &[&b"MGET"[..]]
                        .into_iter()
                        .chain([&b"large-1"[..]; 20])
                        .collect::<Vec<_>>(),
                )
                .expect("the same");
            held.push(greedy);
        }
    }
    let from = load.acknowledged();
    cluster.eventually("others are served meanwhile", |_| {
        load.acknowledged() > from + 500
    });
    // A client that reads its answers gets them, in spite of the others.
    for i in 0..4 {
        let found = client
            .command(&[b"GET", format!("large-{i}").as_bytes()])
            .expect("a reply");
        assert!(
            matches!(&found, Reply::Bulk(v) if *v == value),
            "{}",
            clip(&found)
        );
    }
    let from = load.acknowledged();
    cluster.eventually("others are still served", |_| {
        load.acknowledged() > from + 500
    });
    // One of the greedy clients reads at last, and gets a reply for each command.
    let mut greedy = held.pop().expect("it is there");
    let mut values = 0;
    for i in 0..100 {
        let found = greedy.reply().expect("a reply");
        // Its commands wait for room, and on a slow machine some wait for too long.
        let late = matches!(&found, Reply::Error(why) if why.starts_with("TRYAGAIN"));
        assert!(
            late || matches!(&found, Reply::Bulk(v) if *v == value),
            "{i}: {}",
            clip(&found)
        );
        values += usize::from(!late);
    }
    assert!(values >= 10, "{values} of 100 commands got their value");
    drop(greedy);
    let peaks: Vec<u64> = cluster
        .nodes
        .values()
        .map(|p| rss_peak(p.pid()) >> 20)
        .collect();
    println!("peaks of resident memory: {peaks:?} MiB");
    assert!(
        peaks.iter().all(|mib| mib << 20 <= RSS_MAX),
        "{peaks:?} MiB"
    );
    let tally = load.finish();
    assert_eq!(
        (tally.refused, tally.unknown, tally.stale.len()),
        (0, 0, 0),
        "{:?}",
        tally.errors
    );
    drop(held);
    cluster.await_safe(3);
    assert_eq!(
        cluster.status("n0").expect("a status")["term"],
        term,
        "the cluster was disturbed"
    );
}

fn clip(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => format!("{} bytes", bytes.len()),
        other => format!("{other:?}").chars().take(200).collect(),
    }
}

#[test]
fn too_many_connections_are_refused_and_the_others_stay() {
    let mut cluster = Cluster::new(BINARY);
    cluster
        .options
        .extend(["--connections-max", "8"].map(str::to_owned));
    cluster.join("n0");
    cluster.await_safe(1);
    let address = cluster.node("n0").ready.resp;
    let mut held: Vec<Client> = (0..8)
        .map(|_| Client::connect(address, PATIENCE).expect("a connection"))
        .collect();
    for client in &mut held {
        assert_eq!(
            client.command(&[b"PING"]).expect("a reply"),
            Reply::Simple("PONG".into())
        );
    }
    let ninth = Client::connect(address, PATIENCE).and_then(|mut c| c.reply());
    if let Ok(reply) = &ninth {
        assert!(error(reply).contains("max number of clients"), "{reply:?}");
    }
    for client in &mut held {
        assert_eq!(
            client.command(&[b"PING"]).expect("a reply"),
            Reply::Simple("PONG".into())
        );
    }
    drop(held);
    cluster.eventually("there is room again", |_| {
        Client::connect(address, PATIENCE)
            .and_then(|mut c| c.command(&[b"PING"]))
            .is_ok_and(|r| r == Reply::Simple("PONG".into()))
    });
}

#[test]
fn a_full_memory_refuses_writes_and_reads_go_on() {
    let mut cluster = Cluster::new(BINARY);
    cluster
        .options
        .extend(["--memory-max", "64mb"].map(str::to_owned));
    cluster.join("n0");
    cluster.join("n1");
    cluster.await_safe(2);
    let mut client = cluster.client("n0");
    let value = vec![b'v'; 256 << 10];
    let mut written = 0;
    let full = loop {
        match client
            .command(&[b"SET", format!("key-{written}").as_bytes(), &value])
            .expect("a reply")
        {
            Reply::Simple(_) => written += 1,
            refused => break refused,
        }
        assert!(written < 2_000, "64 MB held 500 MB");
    };
    assert!(error(&full).starts_with("OOM"), "{full:?}");
    assert!(written > 10, "full after {written} values of 256 KiB");
    for i in 0..written {
        let found = client
            .command(&[b"GET", format!("key-{i}").as_bytes()])
            .expect("a reply");
        assert_eq!(found, Reply::Bulk(value.clone()), "key-{i}");
    }
    // Deleting makes room.
    for i in 0..written / 2 {
        assert_eq!(
            client
                .command(&[b"DEL", format!("key-{i}").as_bytes()])
                .expect("a reply"),
            Reply::Int(1)
        );
    }
    cluster.eventually("writes go on", |_| {
        matches!(
            client.command(&[b"SET", b"again", b"1"]),
            Ok(Reply::Simple(_))
        )
    });
    cluster.await_safe(2);
}

/// The reader of a log may have ended, or its disk may be full. A node panicked at its next line,
/// and soon all nodes did.
#[test]
fn a_log_that_cannot_be_written_harms_no_node() {
    let mut cluster = Cluster::new(BINARY);
    for n in 0..3 {
        std::os::unix::fs::symlink("/dev/full", cluster.file(&format!("n{n}-{}.log", n + 1)))
            .expect("a link");
        cluster.join(&format!("n{n}"));
    }
    cluster.await_safe(3);
    // Both other nodes log its death.
    cluster.kill("n2");
    cluster.await_safe(2);
    for name in ["n0", "n1"] {
        assert_eq!(
            cluster.command_at(name, &["PING"]),
            Reply::Simple("PONG".into())
        );
        assert!(cluster.leave(name).success());
    }
}

#[test]
fn an_endless_secret_file_is_refused_before_it_is_read_whole() {
    let cluster = Cluster::new(BINARY);
    for flag in ["--secret-file", "--config"] {
        let output = cluster.command(&["run", flag, "/dev/zero"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains("at most 1048576 bytes are expected"),
            "{said}"
        );
    }
    let output = cluster.command(&[
        "chaos",
        "--minutes",
        "0.1",
        "--report",
        "/nowhere/report.html",
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && said.contains("cannot write /nowhere/report.html"),
        "{said}"
    );
}
