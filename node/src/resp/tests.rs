//! One node, end to end: real TCP, the real shard, and a view made by hand. The test takes the
//! place of the control thread.

use super::client::{Reply, RespClient as Client};
use super::front_end::RespOptions;
use crate::control::shared::Shared;
use crate::data::DataHandle;
use crate::data::tests::{ME, Running, addresses, limits, member as member_at, operation, view_of};
use crate::net::identity::ports::Ports;
use doyen_engine::Limits;
use doyen_engine::op::{Action, Failure, Operation, Outcome};
use doyen_gossip::Time;
use doyen_gossip::agreement::View;
use doyen_placement::{
    Addresses, Age, ClusterId, Eviction, Keyspace, KeyspaceId, MapId, Member, MemberId, Mode,
    PartitionRef, Settings, Table, ThreadPorts,
};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

mod access;
mod apart;
mod apart_lists;
mod bounds;
mod databases;
mod hashes;
mod looks;
mod notices;
mod pops;
mod pubsub;
mod scripts;
mod sets;
mod several;
mod strangers;
mod sweeps;
mod threads;
mod timing;
mod tls;
mod tracking;
mod transactions;
mod unread;
mod vanished;

struct Node {
    running: Running,
    handle: DataHandle,
    shared: Arc<Shared>,
    resp: SocketAddr,
    /// The port of the first thread, and the ports of all.
    cluster: SocketAddr,
    clusters: Vec<SocketAddr>,
}

impl Node {
    fn start(password: Option<&str>, connections_max: usize) -> Self {
        Self::with(password, connections_max, limits())
    }

    fn with(password: Option<&str>, connections_max: usize, limits: Limits) -> Self {
        Self::of_threads(1, password, connections_max, limits)
    }

    fn of_threads(
        threads: usize,
        password: Option<&str>,
        connections_max: usize,
        limits: Limits,
    ) -> Self {
        Self::impatient(threads, password, connections_max, limits, (None, None))
    }

    /// With timeouts for authentication and for idle clients.
    fn impatient(
        threads: usize,
        password: Option<&str>,
        connections_max: usize,
        limits: Limits,
        timeouts: (Option<Duration>, Option<Duration>),
    ) -> Self {
        let told = |options: &mut RespOptions| {
            options.password = password.map(str::to_owned);
            options.connections_max = connections_max;
            (options.auth_timeout, options.idle_timeout) = timeouts;
        };
        Self::told(threads, limits, told)
    }

    /// With TLS.
    fn secured(tls: Arc<Ports>, auth_timeout: Option<Duration>) -> Self {
        Self::told(1, limits(), |options| {
            (options.tls, options.auth_timeout) = (Some(tls), auth_timeout);
        })
    }

    /// With other options.
    fn told(threads: usize, limits: Limits, tell: impl FnOnce(&mut RespOptions)) -> Self {
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (plain, cluster) = (listen(), (0..threads).map(|_| listen()));
        let cluster: Vec<TcpListener> = cluster.collect();
        let resp = plain.local_addr().unwrap();
        let clusters: Vec<SocketAddr> = cluster
            .iter()
            .map(|listener| listener.local_addr().unwrap())
            .collect();
        let mut options = RespOptions {
            plain: Some(plain),
            cluster: cluster.into_iter().map(Some).collect(),
            tls: None,
            password: None,
            users: None,
            auth_timeout: None,
            idle_timeout: None,
            tcp_keepalive: Duration::from_secs(300),
            key_events: crate::key_events::KeyEvents::default(),
            strict_transactions: false,
            connections_max: 100,
            memory_bytes_max: limits.memory_bytes_max,
        };
        tell(&mut options);
        let fronts = super::front_end::fronts(options);
        let running = Running::start(fronts, limits, view(ME, resp, &clusters));
        Self {
            handle: running.handle.clone(),
            shared: running.shared.clone(),
            running,
            resp,
            cluster: clusters[0],
            clusters,
        }
    }

    async fn client(&self) -> Client {
        Client::connect(self.resp).await.unwrap()
    }

    async fn stop(self) {
        self.running.stop().await;
    }
}

fn view(me: MemberId, resp: SocketAddr, clusters: &[SocketAddr]) -> View {
    view_of(vec![member(me, resp, clusters)], 1)
}

fn member(me: MemberId, resp: SocketAddr, clusters: &[SocketAddr]) -> Member {
    let further = clusters[1..].iter().zip(2..).map(|(at, data)| ThreadPorts {
        data,
        resp_cluster: Some(at.port()),
    });
    let addresses = Addresses {
        resp: Some(resp),
        resp_cluster: Some(clusters[0]),
        further: further.collect(),
        ..addresses()
    };
    member_at(me, addresses)
}

/// Sends the words of this line.
async fn ask(client: &mut Client, line: &str) -> Reply {
    client.command(&words(line)).await.unwrap()
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Sends bytes as they are, then reads until the server closes.
async fn raw(at: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// The files say which server was asked.
#[tokio::test]
async fn commands_are_answered_as_redis_answers_them() {
    let node = Node::start(None, 10);
    let files = [
        include_str!("tests/replies.txt"),
        include_str!("tests/replies_7_2.txt"),
    ];
    for case in files
        .iter()
        .flat_map(|file| file.lines())
        .filter(|l| !l.starts_with('#') && !l.is_empty())
    {
        let (line, expected) = case.split_once(" => ").unwrap();
        let command = words(line)
            .iter()
            .map(|w| format!("${}\r\n{w}\r\n", w.len()))
            .collect::<String>();
        let answer = raw(
            node.resp,
            format!("*{}\r\n{command}", words(line).len()).as_bytes(),
        )
        .await;
        assert_eq!(
            answer.replace("\r\n", " "),
            format!("{expected} "),
            "{line}"
        );
    }
    node.stop().await;
}

#[tokio::test]
async fn a_pipeline_is_answered_in_order() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    let mut commands: Vec<Vec<String>> = (0..2000)
        .map(|i| words(&format!("SET key:{i} {i}")))
        .collect();
    commands.push(words("PING"));
    commands.push(words("DBSIZE"));
    commands.extend((0..2000).map(|i| words(&format!("GET key:{i}"))));
    commands.push(words("MGET key:7 absent key:8"));
    let replies = client.pipeline(&commands).await.unwrap();
    assert!(
        replies[..2000]
            .iter()
            .all(|r| *r == Reply::Simple("OK".to_owned())),
        "{:?}",
        &replies[..3]
    );
    assert_eq!(
        replies[2000..2002],
        [Reply::Simple("PONG".to_owned()), Reply::Int(2000)]
    );
    for (i, reply) in replies[2002..4002].iter().enumerate() {
        assert_eq!(*reply, Reply::Bulk(i.to_string().into_bytes()));
    }
    assert_eq!(
        replies[4002],
        Reply::Array(vec![
            Reply::Bulk(b"7".to_vec()),
            Reply::Nil,
            Reply::Bulk(b"8".to_vec())
        ])
    );
    node.stop().await;
}

/// Regression: each group of commands whose answers might be large waited for itself, so forty
/// commands took 45 s.
#[tokio::test]
async fn a_pipeline_to_partitions_without_a_primary_waits_once() {
    let park = Duration::from_secs(1);
    let node = Node::with(
        None,
        10,
        Limits {
            park,
            value_bytes_max: 16 << 20,
            ..limits()
        },
    );
    let me = member(ME, node.resp, &node.clusters);
    let silent = Member {
        id: MemberId(0xdef0),
        age: Age(2),
        name: "two".to_owned(),
        ..me.clone()
    };
    node.shared.publish(crate::control::shared::LocalView {
        me: ME,
        view: Some(view_of(vec![me, silent], 0)),
    });
    let mut client = node.client().await;
    let commands: Vec<_> = (0..300)
        .map(|i| {
            words(&format!(
                "{} key:{i}{}",
                ["GET", "SET"][i % 2],
                ["", " 1"][i % 2]
            ))
        })
        .collect();
    let began = std::time::Instant::now();
    let replies = client.pipeline(&commands).await.unwrap();
    let took = began.elapsed();
    let not_served = |r: &&Reply| {
        matches!(r, Reply::Error(why)
            if why.starts_with("TRYAGAIN") || why.starts_with("UNKNOWN"))
    };
    let (failed, served) = (
        replies.iter().filter(not_served).count(),
        replies.iter().filter(|r| !not_served(r)).count(),
    );
    assert!(
        failed > 100 && served > 100,
        "{failed} failed, {served} did not: half of the keys are this node's"
    );
    // The groups are halved until the answers are expected to be small. There are fifteen at most,
    // and only the first waits for all of `park`.
    assert!(took >= park && took < 5 * park, "{took:?}");
    // Later commands do not wait for anything that came before them.
    let began = std::time::Instant::now();
    let of_silent = (0..300).find(|i| not_served(&&replies[*i])).unwrap();
    client
        .command(&["GET".to_owned(), format!("key:{of_silent}")])
        .await
        .unwrap();
    assert!(began.elapsed() >= park);
    node.stop().await;
}

/// Regression: each new connection expected the largest value as its first answer of another node.
/// All these bytes counted as memory, so writes were refused while nothing was stored.
#[tokio::test]
async fn answers_that_are_only_expected_leave_room_for_writes() {
    const CLIENTS: usize = 40;
    let node = Node::with(
        None,
        2 * CLIENTS,
        Limits {
            park: Duration::from_secs(600),
            value_bytes_max: 16 << 20,
            memory_bytes_max: 200 << 20,
            ..limits()
        },
    );
    let me = member(ME, node.resp, &node.clusters);
    let silent = Member {
        id: MemberId(0xdef0),
        age: Age(2),
        name: "two".to_owned(),
        ..me.clone()
    };
    let view = view_of(vec![me, silent], 0);
    let keyspace = view.installed.keyspaces[0].clone();
    let led_by = |id: MemberId| {
        (0..).map(|i| format!("key:{i}")).find(|key| {
            let partition = keyspace.partition_of(MapId(0), key.as_bytes());
            partition
                .and_then(|p| keyspace.partition(p))
                .map(|p| p.primary())
                == Some(id)
        })
    };
    let (own, other) = (led_by(ME).unwrap(), led_by(MemberId(0xdef0)).unwrap());
    node.shared.publish(crate::control::shared::LocalView {
        me: ME,
        view: Some(view),
    });
    let mut waiting = Vec::new();
    for n in 0..CLIENTS {
        let mut client = node.client().await;
        // Beyond the share, commands of many keys wait for their turn.
        let command = if n == 0 { "MGET" } else { "GET" };
        client.send(&[vec![command, other.as_str()]]).await.unwrap();
        waiting.push(client);
    }
    while node.handle.stats().await.shard.parked < CLIENTS as u64 {
        tokio::task::yield_now().await;
    }
    let reply = node.client().await.command(&["SET", &own, "1"]).await;
    assert_eq!(reply.unwrap(), Reply::Simple("OK".to_owned()));
    let stats = node.handle.stats().await;
    assert_eq!((stats.answer_bytes, stats.shard.refused), (0, 0));
    drop(waiting);
    node.stop().await;
}

#[tokio::test]
async fn flushing_in_a_pipeline_spares_what_is_written_after_it() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    let commands: Vec<_> = ["SET a 1", "FLUSHALL", "SET b 2", "DBSIZE", "EXISTS a b"]
        .map(words)
        .to_vec();
    let ok = || Reply::Simple("OK".to_owned());
    assert_eq!(
        client.pipeline(&commands).await.unwrap(),
        [ok(), ok(), ok(), Reply::Int(1), Reply::Int(1)]
    );
    node.stop().await;
}

#[tokio::test]
async fn large_values_come_back_and_larger_ones_are_refused() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    let value: Vec<u8> = (0..4_u32 << 20).map(|i| ((i * 31) >> 3) as u8).collect();
    let set: [&[u8]; 3] = [b"SET", b"big", &value];
    assert_eq!(
        client.command(&set).await.unwrap(),
        Reply::Simple("OK".to_owned())
    );
    assert_eq!(
        client.command(&["GET", "big"]).await.unwrap(),
        Reply::Bulk(value)
    );
    let larger = vec![b'x'; (4 << 20) + 1];
    let set: [&[u8]; 3] = [b"SET", b"big", &larger];
    let refused = "ERR the argument is too large: at most 4194304 bytes (--value-max)";
    assert_eq!(
        client.command(&set).await.unwrap(),
        Reply::Error(refused.to_owned())
    );
    let mget = vec![&b"MGET"[..]; 1]
        .into_iter()
        .chain(std::iter::repeat_n(&b"big"[..], 40))
        .collect::<Vec<_>>();
    let Reply::Array(values) = client.command(&mget).await.unwrap() else {
        panic!("no array")
    };
    assert!(
        values.len() == 40
            && values
                .iter()
                .all(|v| matches!(v, Reply::Bulk(v) if v.len() == 4 << 20)),
        "encoded in parts"
    );
    assert_eq!(
        client.command(&["PING"]).await.unwrap(),
        Reply::Simple("PONG".to_owned())
    );
    node.stop().await;
}

#[tokio::test]
async fn a_scan_gives_every_key_once_while_nothing_changes() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    let commands: Vec<_> = (0..3000)
        .map(|i| words(&format!("SET key:{i} x")))
        .collect();
    client.pipeline(&commands).await.unwrap();
    let (mut cursor, mut found) = (b"0".to_vec(), Vec::new());
    loop {
        let scan: [&[u8]; 4] = [b"SCAN", &cursor, b"COUNT", b"100"];
        let Reply::Array(reply) = client.command(&scan).await.unwrap() else {
            panic!("no array")
        };
        let [Reply::Bulk(next), Reply::Array(keys)] = &reply[..] else {
            panic!("{reply:?}")
        };
        found.extend(keys.iter().cloned().map(|k| {
            if let Reply::Bulk(k) = k {
                k
            } else {
                panic!("{k:?}")
            }
        }));
        cursor.clone_from(next);
        if cursor == b"0" {
            break;
        }
    }
    found.sort();
    let mut expected: Vec<_> = (0..3000).map(|i| format!("key:{i}").into_bytes()).collect();
    expected.sort();
    assert_eq!(found, expected);
    let Reply::Array(keys) = client.command(&["KEYS", "key:29?9"]).await.unwrap() else {
        panic!("no array")
    };
    assert_eq!(keys.len(), 10);
    node.stop().await;
}

/// Regression: 32,768 arguments were one slice, and held the thread for tens of milliseconds.
#[tokio::test]
async fn commands_with_thousands_of_keys_run_in_slices_and_answer_in_order() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    let keys: Vec<String> = (0..16_000).map(|i| format!("key:{i}")).collect();
    let of = |name: &str| {
        std::iter::once(name.to_owned())
            .chain(keys.iter().cloned())
            .collect::<Vec<_>>()
    };
    let set = std::iter::once("MSET".to_owned())
        .chain(keys.iter().flat_map(|k| [k.clone(), k.clone()]))
        .collect();
    let commands: [Vec<String>; 7] = [
        set,
        words("PING"),
        of("MGET"),
        of("EXISTS"),
        of("DEL"),
        words("DBSIZE"),
        std::iter::repeat_n("EXISTS".to_owned(), 2).collect(),
    ];
    let replies = client.pipeline(&commands).await.unwrap();
    let values = keys
        .iter()
        .map(|k| Reply::Bulk(k.clone().into_bytes()))
        .collect();
    let n = Reply::Int(16_000);
    let (ok, pong) = (
        Reply::Simple("OK".to_owned()),
        Reply::Simple("PONG".to_owned()),
    );
    assert!(
        replies
            == [
                ok,
                pong,
                Reply::Array(values),
                n.clone(),
                n,
                Reply::Int(0),
                Reply::Int(0)
            ],
        "{:?}",
        &replies[3..]
    );
    node.stop().await;
}

/// Regression: such a command was `BUSY` on an idle node.
#[tokio::test]
async fn a_command_with_more_keys_than_may_wait_goes_on_as_outcomes_come() {
    for (waiting_max, count) in [(100, 1_000), (100_000, 131_071)] {
        let node = Node::with(
            None,
            10,
            Limits {
                waiting_max,
                ..limits()
            },
        );
        let mut client = node.client().await;
        let keys: Vec<String> = (0..count).map(|i| i.to_string()).collect();
        for half in keys.chunks(65_000) {
            let set: Vec<&str> = std::iter::once("MSET")
                .chain(half.iter().flat_map(|k| [k.as_str(), k.as_str()]))
                .collect();
            assert_eq!(
                client.command(&set).await.unwrap(),
                Reply::Simple("OK".to_owned())
            );
        }
        let of = |name: &'static str| {
            std::iter::once(name)
                .chain(keys.iter().map(String::as_str))
                .collect::<Vec<_>>()
        };
        let values = keys
            .iter()
            .map(|k| Reply::Bulk(k.clone().into_bytes()))
            .collect();
        assert!(client.command(&of("MGET")).await.unwrap() == Reply::Array(values));
        for (name, then) in [("EXISTS", count), ("DEL", count), ("UNLINK", 0)] {
            assert_eq!(
                client.command(&of(name)).await.unwrap(),
                Reply::Int(then),
                "{name}"
            );
        }
        node.stop().await;
    }
}

/// Regression: one such comparison took a tenth of a second for each key.
#[tokio::test]
async fn a_costly_pattern_is_matched_in_slices() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    let long = "a".repeat(20_000);
    for key in [format!("{long}b"), format!("{long}c"), "short".to_owned()] {
        client.command(&["SET", &key, "x"]).await.unwrap();
    }
    let pattern = format!("*{}b", "a".repeat(500));
    assert_eq!(
        client.command(&["KEYS", &pattern]).await.unwrap(),
        Reply::Array(vec![Reply::Bulk(format!("{long}b").into_bytes())])
    );
    let Reply::Array(reply) = client
        .command(&["SCAN", "0", "COUNT", "1000", "MATCH", &pattern])
        .await
        .unwrap()
    else {
        panic!("no array")
    };
    assert!(
        matches!(&reply[1], Reply::Array(keys) if keys.len() == 1),
        "{}",
        reply.len()
    );
    node.stop().await;
}

/// Regression: every connection could have sixteen megabytes of an unfinished command read, however
/// much the others had.
#[tokio::test]
async fn unfinished_commands_share_a_budget_and_all_come_through() {
    const CLIENTS: usize = 20;
    let node = Node::start(None, CLIENTS + 1);
    let value = vec![b'v'; 4 << 20];
    let mut command = b"*7\r\n$4\r\nMSET\r\n".to_vec();
    for i in 0..3 {
        command.extend(format!("$1\r\n{i}\r\n${}\r\n", value.len()).bytes());
        command.extend_from_slice(&value);
        command.extend_from_slice(b"\r\n");
    }
    let (first, last) = command.split_at(command.len() - 10);
    let mut halves = Vec::new();
    for _ in 0..CLIENTS {
        let (first, last) = (first.to_vec(), last.to_vec());
        let (reader, mut writer) = TcpStream::connect(node.resp).await.unwrap().into_split();
        let writing = tokio::spawn(async move {
            writer.write_all(&first).await.unwrap();
            writer.write_all(&last).await.unwrap();
            writer
        });
        halves.push((reader, writing));
    }
    // The clients sent 240 MB. The share is a quarter of the memory, 64 MiB, and one connection may
    // exceed it.
    let most = 64 << 20;
    let mut seen = 0;
    for (mut reader, writing) in halves {
        let mut answer = [0; 5];
        let mut read = std::pin::pin!(reader.read_exact(&mut answer));
        loop {
            seen = seen.max(node.handle.stats().await.input_bytes);
            tokio::select! {
                done = &mut read => { done.unwrap(); break }
                () = tokio::task::yield_now() => {}
            }
        }
        assert_eq!(&answer, b"+OK\r\n");
        writing.await.unwrap();
    }
    assert!(
        seen > 12 << 20 && seen < most + (32 << 20),
        "{seen} bytes were held"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_client_without_the_password_gets_nothing() {
    let node = Node::start(Some("secret"), 10);
    let mut client = node.client().await;
    let mut ask = async |line: &str| client.command(&words(line)).await.unwrap();
    let error = |text: &str| Reply::Error(text.to_owned());
    assert_eq!(ask("GET a").await, error("NOAUTH Authentication required."));
    assert_eq!(
        ask("AUTH wrong").await,
        error("WRONGPASS invalid username-password pair or user is disabled.")
    );
    assert!(matches!(ask("HELLO 3").await, Reply::Error(text)
        if text.starts_with("NOAUTH HELLO must be called")));
    assert_eq!(ask("AUTH secret").await, Reply::Simple("OK".to_owned()));
    assert_eq!(ask("GET a").await, Reply::Nil);
    let misnamed = "ERR Client names cannot contain spaces, newlines or special characters.";
    assert_eq!(ask("CLIENT SETNAME a\u{1}").await, error(misnamed));
    assert_eq!(ask("RESET").await, Reply::Simple("RESET".to_owned()));
    assert_eq!(ask("GET a").await, error("NOAUTH Authentication required."));
    assert_eq!(
        raw(node.resp, b"*11\r\n").await,
        "-ERR Protocol error: unauthenticated multibulk length\r\n"
    );
    let answer = raw(
        node.resp,
        b"HELLO 3 AUTH default secret SETNAME me\r\nCLIENT GETNAME\r\nGET nothing\r\nQUIT\r\n",
    )
    .await;
    assert!(
        answer.starts_with("%7\r\n") && answer.ends_with("$2\r\nme\r\n_\r\n+OK\r\n"),
        "{answer}"
    );
    node.stop().await;
}

#[tokio::test]
async fn too_many_connections_are_refused_with_the_text_of_redis() {
    let node = Node::start(None, 1);
    let mut client = node.client().await;
    client.command(&["PING"]).await.unwrap();
    let mut refused = TcpStream::connect(node.resp).await.unwrap();
    let mut answer = String::new();
    refused.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "-ERR max number of clients reached\r\n");
    assert_eq!(node.handle.stats().await.front.connections_rejected, 1);
    node.stop().await;
}

#[tokio::test]
async fn draining_answers_what_was_received_and_closes_without_a_reset() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    client.command(&["SET", "a", "1"]).await.unwrap();
    let mut stream = TcpStream::connect(node.resp).await.unwrap();
    stream.write_all(&b"INCR a\r\n".repeat(1000)).await.unwrap();
    let mut first = [0; 4];
    stream.read_exact(&mut first).await.unwrap();
    node.handle.drain().await;
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.ends_with(":1001\r\n"));
    assert!(client.command(&["PING"]).await.is_err());
    assert!(TcpStream::connect(node.resp).await.is_err());
    assert_eq!(node.handle.stats().await.connections, 0);
    node.stop().await;
}

#[tokio::test]
async fn nothing_is_answered_without_a_lease_and_everything_once_it_is_back() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    client.command(&["SET", "a", "1"]).await.unwrap();
    node.shared.extend_lease(Time::ZERO);
    let read = client.command(&["GET", "a"]);
    let mut read = std::pin::pin!(read);
    assert!(
        tokio::time::timeout(Duration::from_millis(50), &mut read)
            .await
            .is_err()
    );
    node.shared.extend_lease(Time(u64::MAX));
    assert_eq!(read.await.unwrap(), Reply::Bulk(b"1".to_vec()));
    node.stop().await;
}

/// Reads are encoded before it is judged whether they may leave.
#[tokio::test]
async fn replies_taken_back_are_answered_in_order_once_there_is_a_lease() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    let set: Vec<_> = ["SET a 1", "SET b 2"].map(words).to_vec();
    client.pipeline(&set).await.unwrap();
    node.shared.extend_lease(Time::ZERO);
    let commands = [
        "GET a",
        "PING",
        "GET b",
        "GET absent",
        "SET a 3",
        "GET a",
        "PING",
        "GET b",
    ]
    .map(words);
    let replies = client.pipeline(&commands);
    let mut replies = std::pin::pin!(replies);
    assert!(
        tokio::time::timeout(Duration::from_millis(50), &mut replies)
            .await
            .is_err()
    );
    node.shared.extend_lease(Time(u64::MAX));
    let replies = replies.await.unwrap();
    let (bulk, pong) = (
        |value: &[u8]| Reply::Bulk(value.to_vec()),
        || Reply::Simple("PONG".to_owned()),
    );
    let ok = Reply::Simple("OK".to_owned());
    assert_eq!(
        replies,
        [
            bulk(b"1"),
            pong(),
            bulk(b"2"),
            Reply::Nil,
            ok,
            bulk(b"3"),
            pong(),
            bulk(b"2")
        ]
    );
    node.stop().await;
}

/// Regression: if a node was expelled, a read that was under way waited there as long as any other,
/// though other nodes could answer it.
#[tokio::test]
async fn an_expelled_node_gives_reads_back_long_before_parked_ones() {
    let node = Node::with(
        None,
        10,
        Limits {
            park: Duration::from_secs(3600),
            ..limits()
        },
    );
    let mut client = node.client().await;
    client.command(&["SET", "a", "1"]).await.unwrap();
    node.shared.extend_lease(Time::ZERO);
    let read = node.handle.clone();
    let read = tokio::spawn(async move { read.execute(operation(Action::Get)).await });
    while node.handle.stats().await.shard.executed < 2 {
        tokio::task::yield_now().await;
    }
    node.shared.publish(crate::control::shared::LocalView {
        me: MemberId(0xbee0),
        view: None,
    });
    let given_back = tokio::time::timeout(Duration::from_secs(60), read)
        .await
        .expect("not after an hour")
        .unwrap();
    assert_eq!(given_back, Outcome::Failed(Failure::Unavailable));
    node.stop().await;
}

/// Regression: a command that came during a pass met the view that the pass had begun with.
#[tokio::test]
async fn a_client_that_has_seen_a_table_is_served_by_it() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    let first = view(ME, node.resp, &node.clusters);
    for n in 1..=400 {
        let mut table = (*first.installed).clone();
        let made = Keyspace {
            id: KeyspaceId(n),
            name: format!("made-{n}"),
            ..table.keyspaces[0].clone()
        };
        let opens = made.partitions.iter().map(|p| {
            (
                PartitionRef {
                    keyspace: made.id,
                    partition: p.id,
                },
                p.since,
                Time::ZERO,
            )
        });
        let opens_at = first.opens_at.iter().copied().chain(opens).collect();
        table.keyspaces.push(made);
        table.version.0 += u64::from(n);
        let table = Arc::new(table);
        let view = View {
            installed: table.clone(),
            accepted: table,
            opens_at: Arc::new(opens_at),
        };
        node.shared.publish(crate::control::shared::LocalView {
            me: ME,
            view: Some(view),
        });
        if n % 2 == 0 {
            let asked = Operation {
                keyspace: KeyspaceId(n),
                ..operation(Action::Strlen)
            };
            assert_eq!(node.handle.execute(asked).await, Outcome::Int(0), "{n}");
        } else {
            let answer = client
                .command(&[
                    "CLIENT".to_owned(),
                    "KEYSPACE".to_owned(),
                    format!("made-{n}"),
                ])
                .await
                .unwrap();
            assert_eq!(answer, Reply::Simple("OK".to_owned()), "{n}");
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn the_cluster_port_refuses_keys_of_several_slots_and_names_itself() {
    let node = Node::start(None, 10);
    let mut client = Client::connect(node.cluster).await.unwrap();
    let mut ask = async |line: &str| client.command(&words(line)).await.unwrap();
    assert_eq!(
        ask("MGET a b").await,
        Reply::Error("CROSSSLOT Keys in request don't hash to the same slot".to_owned())
    );
    assert_eq!(
        ask("MSET {t}a 1 {t}b 2").await,
        Reply::Simple("OK".to_owned())
    );
    assert_eq!(
        ask("SELECT 1").await,
        Reply::Error("ERR SELECT is not allowed in cluster mode".to_owned())
    );
    let slot = doyen_placement::hash::slot(b"t");
    assert_eq!(
        ask(&format!("CLUSTER COUNTKEYSINSLOT {slot}")).await,
        Reply::Int(2)
    );
    let id = Reply::Bulk(crate::resp::cluster::node_id(ME).into_bytes());
    assert_eq!(ask("CLUSTER MYID").await, id);
    let endpoint = [
        Reply::Bulk(b"127.0.0.1".to_vec()),
        Reply::Int(node.cluster.port().into()),
        id,
        Reply::Array(Vec::new()),
    ];
    let slots = Reply::Array(vec![Reply::Array(vec![
        Reply::Int(0),
        Reply::Int(16383),
        Reply::Array(endpoint.to_vec()),
    ])]);
    assert_eq!(ask("CLUSTER SLOTS").await, slots);
    node.stop().await;
}
