//! What input may cost at most: for every decoder, memory in proportion to the input; for peers
//! without a certificate, a bounded amount of memory and no change.

use bytes::BytesMut;
use doyen_tests::cluster::Cluster;
use doyen_tests::fuzz::{self, INPUT_BYTES_MAX, Mutator, TARGETS};
use doyen_tests::load::Load;
use doyen_tests::procfs;
use doyen_tests::resp::Reply;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig};
use rustls::RootCertStore;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Allocations are counted for the whole process, so one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Tries the committed inputs of a decoder, its own, and changed ones: bits flipped, cut off,
/// lengthened, spliced, or with huge lengths and numbers. None may panic, or allocate out of
/// proportion to its length.
#[track_caller]
fn hold(name: &str) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let allocated = || ALLOCATOR.stats().bytes_allocated;
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = target.expect("a target of this name");
    let kept = fuzz::read(Path::new(fuzz::CORPUS), target).expect("the inputs are there");
    assert!(!kept.is_empty(), "{name} has no committed inputs");
    let seeds: Vec<Vec<u8>> = kept.into_iter().chain((target.seeds)()).collect();
    assert!(seeds.iter().all(|seed| seed.len() <= INPUT_BYTES_MAX));
    let changed = (0..target.rounds).map(|round| Mutator::new(round.into()).input(&seeds));
    for input in seeds.iter().cloned().chain(changed) {
        if let Err(why) = fuzz::run(target, &input, allocated) {
            panic!("{name}: {why}\n{input:?}");
        }
    }
}

macro_rules! targets {
    ($($test:ident: $name:literal),* $(,)?) => {
        $(#[test]
        fn $test() {
            hold($name);
        })*

        #[test]
        fn every_target_is_run() {
            assert_eq!(TARGETS.iter().map(|t| t.name).collect::<Vec<_>>(), [$($name),*]);
        }
    };
}

targets! {
    any_bytes_are_data_frames_or_an_error: "frames",
    a_pair_of_shards_survives_whatever_a_peer_sends: "shard",
    any_bytes_are_control_messages_or_an_error: "envelopes",
    agreement_survives_whatever_a_member_says: "agreement",
    a_table_that_is_taken_can_be_planned_on: "tables",
    a_delta_that_applies_gives_a_table_that_can_be_planned_on: "deltas",
    any_bytes_are_a_hello_or_an_error: "hello",
    any_bytes_are_files_of_a_directory_or_an_error: "directory",
    any_bytes_are_the_file_of_a_log_or_an_error: "log",
    any_bytes_are_carried_or_an_error: "carried",
    any_bytes_are_gossip_or_an_error: "gossip",
    any_bytes_are_commands_or_an_error: "requests",
    any_bytes_are_replies_or_an_error: "replies",
    any_text_is_a_file_of_users_or_an_error: "users",
    any_text_is_a_configuration_or_an_error: "config",
    any_bytes_are_secrets_or_an_error: "secrets",
    any_bytes_are_tokens_or_an_error: "tokens",
    any_bytes_are_an_answer_of_http_or_an_error: "answers",
    any_bytes_are_a_file_of_redis_or_an_error: "rdb",
    any_bytes_are_lines_of_keys_or_an_error: "ndjson",
}

/// Sends the first packets of connections, and never goes on with them.
struct Dialler {
    endpoint: Endpoint,
    config: ClientConfig,
    socket: UdpSocket,
}

impl Dialler {
    fn new() -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13]);
        let mut tls = tls
            .expect("ring has TLS 1.3")
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"doyen/1".to_vec()];
        let config = ClientConfig::new(Arc::new(
            QuicClientConfig::try_from(tls).expect("TLS 1.3 has what QUIC needs"),
        ));
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        Self {
            endpoint: Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None),
            config,
            socket,
        }
    }

    fn dial(&mut self, to: SocketAddr) {
        let now = Instant::now();
        let (_, mut connection) = self
            .endpoint
            .connect(now, self.config.clone(), to, "doyen")
            .expect("any address can be dialled");
        let mut packet = Vec::new();
        while let Some(transmit) = connection.poll_transmit(now, 1, &mut packet) {
            // A full buffer loses some packets, but there are enough.
            let _ = self.socket.send_to(&packet[..transmit.size], to);
            packet.clear();
        }
    }
}

/// A client without a certificate begins ten thousand connections at both ports of a node, and
/// never goes on with them.
#[test]
fn a_flood_of_handshakes_costs_bounded_memory_and_the_cluster_serves() {
    const CONNECTIONS: usize = 10_000;
    const GROWTH_MAX: u64 = 64 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cluster = Cluster::of(BINARY, 3);
    let term = cluster.status("n0").expect("a status")["term"].clone();
    let load = Load::start(cluster.resp_addresses(), 2);
    cluster.eventually("writes go on", |_| load.acknowledged() > 500);
    let (target, pid) = (cluster.node("n1").ready.clone(), cluster.node("n1").pid());
    let (before, _) = procfs::memory(pid);
    let mut client = cluster.client("n1");
    let mut diallers: Vec<Dialler> = (0..8).map(|_| Dialler::new()).collect();
    let mut most = 0;
    for n in 0..CONNECTIONS {
        let to = if n % 2 == 0 {
            target.listen
        } else {
            target.data
        };
        diallers[n / 2 % 8].dial(to);
        if n % 50 == 0 {
            // It answers, so it has also read what came before.
            assert_eq!(
                client.command(&[b"PING"]).expect("a reply"),
                Reply::Simple("PONG".into())
            );
            most = most.max(procfs::memory(pid).0);
        }
    }
    let (from, late) = (load.acknowledged(), procfs::memory(pid).0);
    cluster.eventually("writes go on", |_| load.acknowledged() > from + 500);
    let growth = most.max(late).saturating_sub(before);
    assert!(
        growth < GROWTH_MAX,
        "{CONNECTIONS} half-open connections cost {} MiB",
        growth >> 20
    );
    let tally = load.finish();
    assert_eq!(
        (tally.refused, tally.unknown, tally.stale.len()),
        (0, 0, 0),
        "{:?}",
        tally.errors
    );
    assert_eq!(
        cluster.status("n0").expect("a status")["term"],
        term,
        "the cluster was disturbed"
    );
    // Members with a certificate are still admitted.
    let mut cluster = cluster;
    cluster.join("n3");
    cluster.await_safe(4);
}

/// Begins connections from one address, and goes on with them until only the certificate is
/// missing: it proves that it receives at its address, and then says nothing more.
struct Staller {
    endpoint: Endpoint,
    config: ClientConfig,
    socket: UdpSocket,
    connections: HashMap<ConnectionHandle, quinn_proto::Connection>,
}

impl Staller {
    fn new(address: Ipv4Addr) -> Self {
        let Dialler {
            endpoint, config, ..
        } = Dialler::new();
        let socket = UdpSocket::bind((address, 0)).expect("a port");
        socket.set_nonblocking(true).expect("a socket can");
        let connections = HashMap::new();
        Self {
            endpoint,
            config,
            socket,
            connections,
        }
    }

    /// Begins a connection, and answers the retries that came meanwhile. The number of retries.
    fn go_on(&mut self, to: SocketAddr) -> usize {
        let now = Instant::now();
        let (handle, connection) = self
            .endpoint
            .connect(now, self.config.clone(), to, "doyen")
            .expect("any address can be dialled");
        self.connections.insert(handle, connection);
        self.send(now, handle, to);
        let (mut datagram, mut proofs) = ([0; 2048], 0);
        while let Ok((len, from)) = self.socket.recv_from(&mut datagram) {
            // The first byte of a retry of version 1 (RFC 9000, section 17.2.5).
            if datagram[0] & 0xf0 != 0xf0 {
                continue;
            }
            proofs += 1;
            let bytes = BytesMut::from(&datagram[..len]);
            let event = self
                .endpoint
                .handle(now, from, None, None, bytes, &mut Vec::new());
            if let Some(DatagramEvent::ConnectionEvent(handle, event)) = event
                && let Some(connection) = self.connections.get_mut(&handle)
            {
                connection.handle_event(event);
                self.send(now, handle, to);
            }
        }
        // What is older than a retry takes is forgotten.
        if self.connections.len() > 4096 {
            self.connections.clear();
        }
        proofs
    }

    fn send(&mut self, now: Instant, handle: ConnectionHandle, to: SocketAddr) {
        let Some(connection) = self.connections.get_mut(&handle) else {
            return;
        };
        let mut packet = Vec::new();
        while let Some(transmit) = connection.poll_transmit(now, 1, &mut packet) {
            let _ = self.socket.send_to(&packet[..transmit.size], to);
            packet.clear();
        }
    }
}

/// Four addresses begin thousands of connections each second at a node, prove themselves, and then
/// stall. A newcomer whose only seed is that node still joins.
#[test]
fn a_newcomer_joins_beside_a_flood_from_few_addresses() {
    const EACH_SECOND: usize = 10_000;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cluster = Cluster::of(BINARY, 1);
    let ready = cluster.node("n0").ready.clone();
    let over = Arc::new(AtomicBool::new(false));
    let flood = {
        let over = over.clone();
        std::thread::spawn(move || {
            let hosts = 2..=5;
            let mut all: Vec<Staller> = hosts
                .map(|n| Staller::new(Ipv4Addr::new(127, 0, 0, n)))
                .collect();
            let (begun, mut packets, mut proofs) = (Instant::now(), 0, 0);
            while !over.load(Ordering::Relaxed) {
                // If the machine is too slow for the rate, the flood is as fast as it can be.
                if packets as f64 / EACH_SECOND as f64 > begun.elapsed().as_secs_f64() {
                    std::thread::yield_now();
                    continue;
                }
                let to = [ready.listen, ready.data][packets / 4 % 2];
                proofs += all[packets % 4].go_on(to);
                packets += 1;
            }
            (packets as f64 / begun.elapsed().as_secs_f64(), proofs)
        })
    };
    // The control: the flood takes the places that one address may have.
    cluster.eventually("handshakes are passed over", |cluster| {
        let metrics = cluster.node("n0").http("/metrics").unwrap_or_default();
        ["control", "data"].iter().all(|port| {
            let lines = metrics.lines().filter(|line| {
                line.starts_with("doyen_handshakes_total")
                    && line.contains(&format!("port=\"{port}\""))
                    && line.contains("outcome=\"passed_over\"")
            });
            lines.filter(|line| !line.ends_with(" 0")).count() == 1
        })
    });
    let from = Instant::now();
    cluster.join("n1");
    cluster.await_safe(2);
    let joined = from.elapsed();
    over.store(true, Ordering::Relaxed);
    let (rate, proofs) = flood.join().expect("the flood does not fail");
    println!("joined in {joined:?} beside {rate:.0} connections/s, {proofs} proofs of addresses");
    assert!(proofs > 0, "no address was asked to prove itself");
}

/// Valid HTTP requests, some with tokens, are mutated. None may change anything, and each is
/// answered or its connection closed.
#[test]
fn mutated_requests_of_http_change_nothing_and_are_answered_or_closed() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cluster = Cluster::new(BINARY);
    cluster.join("n0");
    cluster.await_safe(1);
    let http = cluster.node("n0").ready.http;
    let token = "0123456789abcdef".repeat(4);
    let body = "{\"assert_dead\":[\"n0\"],\"gone\":\"1/1\"}";
    let post = format!(
        "POST /recover HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer \
         {token}\r\n\
            Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let chunked = "POST /recover HTTP/1.1\r\nHost: localhost\r\n\
        Transfer-Encoding: chunked\r\n\r\n5\r\n{\"ass\r\n0\r\n\r\n"
        .to_owned();
    let paths = [
        "/status",
        "/table",
        "/healthz",
        "/readyz",
        "/metrics",
        "/x?y=z%00",
    ];
    let gets = paths.map(|path| {
        format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: */*\r\n\r\n"
        )
    });
    let valid: Vec<Vec<u8>> = gets
        .into_iter()
        .chain([post, chunked])
        .map(String::into_bytes)
        .collect();
    let mut mutator = Mutator::new(3);
    let mutated: Vec<Vec<u8>> = (0..400).map(|_| mutator.input(&valid)).collect();
    let mut answers = 0;
    for request in valid.iter().chain(&mutated) {
        let mut stream = TcpStream::connect(http).expect("it listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a socket has one");
        // The node may close the connection at once; that is an answer too. Our end is closed, so
        // that no request waits for more.
        let _ = stream.write_all(request);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        if let Err(e) = stream.read_to_end(&mut answer) {
            assert_eq!(
                e.kind(),
                std::io::ErrorKind::ConnectionReset,
                "neither answered nor closed: {request:?}"
            );
        }
        answers += usize::from(answer.starts_with(b"HTTP/1.1 "));
        let text = String::from_utf8_lossy(&answer);
        assert!(!text.contains("\"recovered\""), "{request:?}");
    }
    assert!(answers > 100, "{answers} were answered");
    let health = cluster.node("n0").http("/healthz").expect("it is healthy");
    assert!(health.contains("true"), "{health}");
}
