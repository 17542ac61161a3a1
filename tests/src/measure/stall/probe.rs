//! Small operations at a steady rate. One thread for each node reads and writes in turn.

use crate::measure::recorder::Recorder;
use crate::resp::{Client, Reply};
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

/// What a probe saw: latencies count from when an operation was due.
pub(super) struct Counted {
    pub(super) recorder: Recorder,
    /// The longest delay of the probe itself: it was not waiting for an answer, but was woken late.
    pub(super) late: Duration,
}

impl Counted {
    fn new() -> Self {
        let recorder = Recorder::new();
        Self {
            recorder,
            late: Duration::ZERO,
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
            all.recorder.add(&counted.recorder);
            all.late = all.late.max(counted.late);
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
            counted.late = counted.late.max(due.elapsed());
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
            Some(Ok(Reply::Error(why))) => counted.recorder.failed(why),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => {
                counted.recorder.failed("no connection");
                client = None;
            }
        }
        free_since = Instant::now();
        counted.recorder.took(free_since.duration_since(due));
        due += every;
    }
    counted
}
