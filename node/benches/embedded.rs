//! What a program that embeds a node pays: near caches and local operations beside moka, and
//! operations of a client on two nodes beside a bare round trip over QUIC, and beside redis-rs with
//! a redis-server on this machine (the package redis-server), in one run.
//!
//! ```text
//! just embedded
//! ```
//! Each line is the median of rounds that take turns, so a slower moment of the machine slows both.

mod redis_rs;

use doyen::net::identity::{Identity, SERVER_NAME};
use doyen::{KeyspaceOptions, Map, NearMap, Node};
use redis_rs::Redis;
use std::future::Future;
use std::time::{Duration, Instant};

/// Keys of the caches.
const KEYS: u64 = 10_000;
/// Rounds of each measurement.
const ROUNDS: usize = 9;
/// Reads of one round.
const READS: u64 = 200_000;
/// Operations of one round with one in flight.
const CALLS: u64 = 5_000;
/// Keys of one call that reads many.
const BATCH: u64 = 1_000;
/// Operations in flight.
const FLIGHT: u64 = 512;
/// Operations of one round with many in flight.
const MANY: u64 = 200_000;

/// A connection that answers what it is sent, over QUIC with the same TLS as nodes: the least that
/// an operation elsewhere can take.
struct Echo {
    send: quinn::SendStream,
    receive: quinn::RecvStream,
    _endpoint: quinn::Endpoint,
}

impl Echo {
    async fn begin() -> Self {
        let identity = Identity::insecure_loopback("echo").expect("an identity");
        let (tell, told) = std::sync::mpsc::channel();
        let server = identity.server_config();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async move {
                let any = "127.0.0.1:0".parse().expect("an address");
                let endpoint = quinn::Endpoint::server(server, any).expect("a socket");
                tell.send(endpoint.local_addr().expect("bound"))
                    .expect("wanted");
                let incoming = endpoint.accept().await.expect("dialled");
                let connection = incoming.await.expect("it connects");
                let (mut send, mut receive) = connection.accept_bi().await.expect("a stream");
                let mut bytes = [0; 64];
                while receive.read_exact(&mut bytes).await.is_ok() {
                    send.write_all(&bytes).await.expect("sent");
                }
            });
        });
        let address = told.recv().expect("it listens");
        let any = "127.0.0.1:0".parse().expect("an address");
        let endpoint = quinn::Endpoint::client(any).expect("a socket");
        let client = identity.client_config();
        let connecting = endpoint
            .connect_with(client, address, SERVER_NAME)
            .expect("dialled");
        let connection = connecting.await.expect("it connects");
        let (send, receive) = connection.open_bi().await.expect("a stream");
        Self {
            send,
            receive,
            _endpoint: endpoint,
        }
    }

    async fn round_trip(&mut self) {
        let mut bytes = [7; 64];
        self.send.write_all(&bytes).await.expect("sent");
        self.receive.read_exact(&mut bytes).await.expect("answered");
    }
}

/// Operations of a client on two nodes, with a copy of each entry, beside a bare round trip and
/// redis-rs.
async fn remote(node: &Node) {
    let seed = node.addresses().control.to_string();
    let other = Node::builder()
        .listen("127.0.0.1:0")
        .seeds([seed])
        .memory_max(1 << 30)
        .start()
        .await
        .expect("it starts");
    while !node
        .status()
        .await
        .is_ok_and(|status| status.safe && status.members.len() == 2)
    {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let seed = node.addresses().data.to_string();
    let client = Node::builder().client().seed(seed).start().await;
    let client = client.expect("it connects");
    let map: Map<u64, u64> = client.map("numbers").await.expect("a map");
    let mut echo = Echo::begin().await;
    let redis = Redis::begin().await;
    let (mut bare, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for _ in 0..CALLS {
            echo.round_trip().await;
        }
        bare.push(began.elapsed().as_nanos() as f64 / CALLS as f64);
        ours.push(ours_once(&map).await);
        if let Ok(redis) = &redis {
            theirs.push(theirs_once(redis).await);
        }
    }
    let ours = Remote::medians(&ours);
    let bare = median(bare);
    println!(
        "remote get, one in flight  {:8.0} ns   bare QUIC {bare:6.0} ns   {:.2}x",
        ours.get,
        ours.get / bare
    );
    println!("remote insert, one in flight, one copy {:8.0} ns", ours.put);
    println!(
        "remote get, {FLIGHT} in flight, one copy    {:8.0} k/s",
        ours.gets / 1e3
    );
    println!(
        "remote insert, {FLIGHT} in flight, one copy {:8.0} k/s",
        ours.puts / 1e3
    );
    match redis {
        Ok(redis) => ours.print_beside(&Remote::medians(&theirs), &redis),
        Err(why) => println!("NOT MEASURED: redis-rs, because {why}"),
    }
    client.kill().await;
    other.kill().await;
}

/// What a client measures: nanoseconds of an operation, and operations a second with many in
/// flight.
struct Remote {
    get: f64,
    put: f64,
    gets: f64,
    puts: f64,
    /// A call that reads many keys.
    batch: f64,
}

impl Remote {
    fn medians(rounds: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(rounds.iter().map(figure).collect());
        Self {
            get: of(|round| round.get),
            put: of(|round| round.put),
            gets: of(|round| round.gets),
            puts: of(|round| round.puts),
            batch: of(|round| round.batch),
        }
    }

    /// The figures of redis-rs, and how many times those ours are.
    fn print_beside(&self, theirs: &Self, redis: &Redis) {
        println!("redis-rs at {}, no copy and no TLS:", redis.version());
        for (what, ours, theirs) in [("get", self.get, theirs.get), ("set", self.put, theirs.put)] {
            println!(
                "  {what}, one in flight       {theirs:8.0} ns   Doyen {ours:6.0} ns   {:.2}x",
                ours / theirs
            );
        }
        println!(
            "  MGET of {BATCH}             {:8.0} ns   get_many {:6.0} ns   {:.2}x",
            theirs.batch,
            self.batch,
            self.batch / theirs.batch
        );
        for (what, ours, theirs) in [
            ("get", self.gets, theirs.gets),
            ("set", self.puts, theirs.puts),
        ] {
            println!(
                "  {what}, {FLIGHT} in flight       {:8.0} k/s  Doyen {:6.0} k/s  {:.2}x",
                theirs / 1e3,
                ours / 1e3,
                ours / theirs
            );
        }
    }
}

async fn ours_once(map: &Map<u64, u64>) -> Remote {
    let get = |n| {
        let map = map.clone();
        async move { map.get(&n).await.expect("read").expect("it is there") }
    };
    let put = |n| {
        let map = map.clone();
        async move { map.insert(&n, &n).await.expect("written") }
    };
    let (reads, writes, many) = (map.clone(), map.clone(), map.clone());
    let keys: Vec<u64> = (0..BATCH).collect();
    let batch = steps(CALLS / 50, |_| async {
        let found = many.get_many(&keys).await.expect("read");
        assert_eq!(found.iter().flatten().count(), keys.len());
    });
    let batch = batch.await;
    Remote {
        batch,
        get: steps(CALLS, get).await,
        put: steps(CALLS, put).await,
        gets: flight(move |n| {
            let map = reads.clone();
            async move { map.get(&n).await.expect("read").expect("it is there") }
        })
        .await,
        puts: flight(move |n| {
            let map = writes.clone();
            async move { map.insert(&n, &n).await.expect("written") }
        })
        .await,
    }
}

async fn theirs_once(redis: &Redis) -> Remote {
    let (get, put) = (redis.connection(), redis.connection());
    let get = move |n| redis_rs::get(get.clone(), n);
    let put = move |n| redis_rs::set(put.clone(), n);
    let keys: Vec<u64> = (0..BATCH).collect();
    let batch = steps(CALLS / 50, |_| {
        redis_rs::get_many(redis.connection(), &keys)
    });
    let batch = batch.await;
    Remote {
        batch,
        get: steps(CALLS, get.clone()).await,
        put: steps(CALLS, put.clone()).await,
        gets: flight(get).await,
        puts: flight(put).await,
    }
}

fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

/// The key of a step: all of them, in an order without pattern.
fn key(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % KEYS
}

/// Nanoseconds of a step.
async fn steps<F: Future>(count: u64, mut step: impl FnMut(u64) -> F) -> f64 {
    let began = Instant::now();
    for n in 0..count {
        step(key(n)).await;
    }
    began.elapsed().as_nanos() as f64 / count as f64
}

/// Operations a second with many in flight.
async fn flight<F: Future + Send + 'static>(step: impl Fn(u64) -> F + Clone + Send + 'static) -> f64
where
    F::Output: Send,
{
    let began = Instant::now();
    let tasks: Vec<_> = (0..FLIGHT)
        .map(|task| {
            let step = step.clone();
            tokio::spawn(async move {
                for n in 0..MANY / FLIGHT {
                    step(key(task * (MANY / FLIGHT) + n)).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no operation panics");
    }
    MANY as f64 / began.elapsed().as_secs_f64()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // `cargo test` runs benches, too, to see that they work.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let node = Node::builder()
        .listen("127.0.0.1:0")
        .memory_max(1 << 30)
        .start()
        .await
        .expect("it starts");
    let map: Map<u64, u64> = node.map("numbers").await.expect("a map");
    // Writes would drop the copies of the near cache.
    let written: Map<u64, u64> = node.map("written").await.expect("a map");
    let near: NearMap<u64, u64> = map
        .near(Duration::from_secs(60))
        .capacity(KEYS * 2)
        .await
        .expect("opened");
    // A map beside near caches, and one in a keyspace without any.
    let followed: Map<u64, u64> = node.map("followed").await.expect("a map");
    let follower = followed.near(Duration::from_secs(1)).await.expect("opened");
    let options = KeyspaceOptions::new();
    let made = node.admin().create_keyspace("alone", &options).await;
    made.expect("made");
    let alone = node.map("alone").keyspace("alone").await;
    let alone: Map<u64, u64> = alone.expect("a map");
    let moka = moka::sync::Cache::new(KEYS * 2);
    for n in 0..KEYS {
        map.insert(&n, &n).await.expect("written");
        moka.insert(n, n);
        near.get(&n).await.expect("read");
    }
    let hits = near.stats().hits;
    let mut rounds: [Vec<f64>; 8] = Default::default();
    let mut beside: [Vec<f64>; 2] = Default::default();
    for _ in 0..ROUNDS {
        rounds[0].push(steps(READS, |n| std::future::ready(moka.get(&n))).await);
        rounds[1].push(
            steps(READS, |n| {
                let near = &near;
                async move { near.get(&n).await }
            })
            .await,
        );
        rounds[2].push(steps(CALLS, |n| std::future::ready(moka.get(&n))).await);
        rounds[3].push(
            steps(CALLS, |n| {
                let map = &map;
                async move { map.get(&n).await }
            })
            .await,
        );
        rounds[4].push(
            steps(CALLS, |n| {
                moka.insert(n, n);
                std::future::ready(())
            })
            .await,
        );
        rounds[5].push(
            steps(CALLS, |n| {
                let map = &written;
                async move { map.insert(&n, &n).await }
            })
            .await,
        );
        for (of, map) in beside.iter_mut().zip([&alone, &followed]) {
            let put = |n| async move { map.insert(&n, &n).await.expect("written") };
            of.push(steps(CALLS, put).await);
        }
        let (reads, writes) = (map.clone(), written.clone());
        rounds[6].push(
            flight(move |n| {
                let map = reads.clone();
                async move { map.get(&n).await.expect("read") }
            })
            .await,
        );
        rounds[7].push(
            flight(move |n| {
                let map = writes.clone();
                async move { map.insert(&n, &n).await.expect("written") }
            })
            .await,
        );
    }
    let served = near.stats().hits - hits;
    // A change that was told late dropped a copy, which the next read made again.
    let most = READS * ROUNDS as u64 / 100 * 99;
    assert!(served >= most, "{served} reads were hits");
    let [
        moka_get,
        near_get,
        moka_one,
        get,
        moka_insert,
        insert,
        gets,
        inserts,
    ] = rounds.map(median);
    println!(
        "near cache, hit            {near_get:8.0} ns   moka {moka_get:6.0} ns   {:.2}x",
        near_get / moka_get
    );
    println!("local get, one in flight   {get:8.0} ns   moka {moka_one:6.0} ns");
    println!("local insert, one in flight{insert:8.0} ns   moka {moka_insert:6.0} ns");
    let [without, with] = beside.map(median);
    let read = follower.get(&0).await.expect("read");
    assert_eq!(read, Some(0), "it follows what was written");
    println!(
        "local insert, near cache   {with:8.0} ns   without {without:6.0} ns   {:.2}x",
        with / without
    );
    println!("local get, {FLIGHT} in flight    {:8.0} k/s", gets / 1e3);
    println!("local insert, {FLIGHT} in flight {:8.0} k/s", inserts / 1e3);
    remote(&node).await;
    node.kill().await;
}
