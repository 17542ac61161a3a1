//! Small operations at a steady rate. One thread for each node reads and writes in turn.

use crate::resp::{Client, Reply};
use hdrhistogram::Histogram;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Keys, over all partitions.
const KEYS: u64 = 4_096;
/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(12);

/// A running probe.
pub(super) struct Probe {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Counted>>,
}

/// What a probe saw.
pub(super) struct Counted {
    /// Microseconds from when an operation was due to its answer.
    pub(super) latencies: Histogram<u64>,
    /// The longest delay of the probe itself, in microseconds: it was not waiting for an answer,
    /// but was woken late.
    pub(super) late: u64,
    /// Operations that failed.
    pub(super) failures: u64,
}

impl Counted {
    fn new() -> Self {
        // The bounds are right: 1 is at least 1, and the other one is more than twice that.
        let latencies =
            Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("bounds of a histogram");
        Self {
            latencies,
            late: 0,
            failures: 0,
        }
    }
}

impl Probe {
    /// Starts this many operations a second, shared by these addresses.
    pub(super) fn start(addresses: &[SocketAddr], rate: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let every = Duration::from_secs(1) / rate.max(1);
        let (nodes, began) = (addresses.len() as u32, Instant::now());
        let threads = addresses.iter().zip(0..).map(|(address, n)| {
            let (stop, address) = (stop.clone(), *address);
            // The threads take turns.
            std::thread::spawn(move || probe(address, began + every * n, every * nodes, &stop))
        });
        let threads = threads.collect();
        Self { stop, threads }
    }

    /// What was seen.
    pub(super) fn finish(self) -> Counted {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Counted::new();
        for thread in self.threads {
            let counted = thread.join().expect("a probe does not panic");
            all.latencies += counted.latencies;
            all.late = all.late.max(counted.late);
            all.failures += counted.failures;
        }
        all
    }
}

fn probe(address: SocketAddr, mut due: Instant, every: Duration, stop: &AtomicBool) -> Counted {
    let mut counted = Counted::new();
    let (mut client, mut n, mut free_since) = (None, 0_u64, Instant::now());
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if free_since <= due {
            counted.late = counted.late.max(micros(due.elapsed()));
        }
        n += 1;
        let key = format!("probe:{}", n / 2 % KEYS);
        let words: &[&[u8]] = if n.is_multiple_of(2) {
            &[b"SET", key.as_bytes(), b"value"]
        } else {
            &[b"GET", key.as_bytes()]
        };
        if client.is_none() {
            client = Client::connect(address, ANSWER_MAX).ok();
        }
        match client.as_mut().map(|c| c.command(words)) {
            Some(Ok(reply)) => counted.failures += u64::from(matches!(reply, Reply::Error(_))),
            Some(Err(_)) | None => {
                counted.failures += 1;
                client = None;
            }
        }
        free_since = Instant::now();
        counted
            .latencies
            .saturating_record(micros(free_since.duration_since(due)).max(1));
        due += every;
    }
    counted
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
