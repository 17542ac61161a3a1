//! What it takes until a lock that is given back is the next caller's, beside a bare round trip;
//! and what callers cost that wait, in one run.
//!
//! ```text
//! just locks
//! ```

use doyen::{Map, Node};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How often a lock changes hands.
const HANDOVERS: usize = 1_000;
/// Callers of one lock that each hold it once.
const CALLERS: usize = 1_000;
/// Callers that wait while nothing happens, and for how long.
const IDLE: usize = 10_000;
const REST: Duration = Duration::from_secs(5);
/// A guard against hangs.
const PATIENCE: Duration = Duration::from_secs(600);

async fn node(seed: Option<&Node>) -> Node {
    let seeds: Vec<String> = seed
        .iter()
        .map(|n| n.addresses().control.to_string())
        .collect();
    let node = Node::builder()
        .listen("127.0.0.1:0")
        .seeds(seeds)
        .memory_max(1 << 30);
    node.start().await.expect("it starts")
}

async fn client(node: &Node) -> Node {
    let seed = node.addresses().data.to_string();
    let client = Node::builder().client().seed(seed).start().await;
    client.expect("it connects")
}

/// The processor time of this process.
fn processor() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

fn show(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    println!("{what:32} p50 {:9.1?}   p99 {:9.1?}", at(50), at(99));
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let one = node(None).await;
        let two = node(Some(&one)).await;
        while !one
            .status()
            .await
            .is_ok_and(|status| status.safe && status.members.len() == 2)
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let callers = [client(&one).await, client(&one).await];
        hand_over(&callers).await;
        queue(&callers).await;
        idle(&callers).await;
        drop((one, two));
    });
}

/// Two callers give a lock to each other, and write between.
async fn hand_over(callers: &[Node; 2]) {
    let map: Map<u64, u64> = callers[0].map("numbers").await.expect("a map");
    let (mut bare, mut handed) = (Vec::new(), Vec::new());
    let mut held = callers[0]
        .lock("job")
        .acquire(PATIENCE)
        .await
        .expect("free");
    for n in 0..HANDOVERS {
        let began = Instant::now();
        map.insert(&1, &(n as u64)).await.expect("written");
        bare.push(began.elapsed());
        let lock = callers[(n + 1) % 2].lock("job");
        let state = callers[0].lock("job");
        let next = tokio::spawn(async move { (lock.acquire(PATIENCE).await, Instant::now()) });
        while state.state().await.expect("read").waiters == 0 {
            tokio::task::yield_now().await;
        }
        let began = Instant::now();
        drop(held);
        let (grant, at) = next.await.expect("it runs");
        handed.push(at - began);
        held = grant.expect("it is the next one");
    }
    show("write with one copy", bare);
    show("lock given back, next has it", handed);
}

/// Many callers of one lock: each has it once.
async fn queue(callers: &[Node; 2]) {
    let (done, mut all) = mpsc::channel(CALLERS);
    let held = callers[0]
        .lock("queue")
        .acquire(PATIENCE)
        .await
        .expect("free");
    for n in 0..CALLERS {
        let (lock, done) = (callers[n % 2].lock("queue"), done.clone());
        tokio::spawn(async move {
            let grant = lock.acquire(PATIENCE).await.expect("its turn comes");
            grant.release().await.expect("released");
            done.send(()).await.expect("counted");
        });
    }
    let lock = callers[0].lock("queue");
    while lock.state().await.expect("read").waiters < CALLERS {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (began, processor_before) = (Instant::now(), processor());
    drop(held);
    for _ in 0..CALLERS {
        all.recv().await.expect("it holds it once");
    }
    let (took, used) = (began.elapsed(), processor() - processor_before);
    println!("{CALLERS} callers in turn: {took:.1?}, {used:.1?} of processor time");
}

/// Callers that wait while nothing happens.
async fn idle(callers: &[Node; 2]) {
    let rest = async || {
        let before = processor();
        tokio::time::sleep(REST).await;
        (processor() - before).as_secs_f64() * 1e3 / REST.as_secs_f64()
    };
    let without = rest().await;
    let held = callers[0]
        .lock("idle")
        .acquire(PATIENCE)
        .await
        .expect("free");
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..IDLE {
        let lock = callers[n % 2].lock("idle");
        waiting.spawn(async move { lock.acquire(PATIENCE).await.map(drop) });
    }
    let lock = callers[0].lock("idle");
    let began = Instant::now();
    while lock.state().await.expect("read").waiters < IDLE && began.elapsed() < PATIENCE / 10 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let waiters = lock.state().await.expect("read").waiters;
    let with = rest().await;
    println!(
        "{waiters} callers wait: {with:.1} ms of processor time a second, {without:.1} without them"
    );
    waiting.abort_all();
    drop(held);
}
