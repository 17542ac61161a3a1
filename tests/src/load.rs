//! Load from outside: writers that remember every acknowledged write, and check what they read.
//!
//! Each writer owns its keys and writes them one after the other, so a read must give the last
//! acknowledged value. If the outcome of a write is unknown, the key is retired: from then on, both
//! values are right.

use crate::resp::{Client, Reply};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Keys that a writer goes round.
const KEYS: u64 = 40;
/// How long a writer waits for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(12);

/// What one key may hold.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The last acknowledged value.
    pub acknowledged: Option<String>,
    /// Values of writes with an unknown outcome, after which the key was not written again.
    pub possible: Vec<String>,
}

/// What the load did.
#[derive(Debug, Default)]
pub struct Tally {
    /// Acknowledged writes.
    pub acknowledged: u64,
    /// Reads that were right.
    pub reads: u64,
    /// Errors that say that nothing happened.
    pub refused: u64,
    /// Operations whose outcome is unknown.
    pub unknown: u64,
    /// Connections that ended between two operations and were opened again.
    pub reconnected: u64,
    /// The longest time that a writer had to wait for an operation, with all attempts.
    pub longest: Duration,
    /// Texts of errors, and how often each came.
    pub errors: BTreeMap<String, u64>,
    /// Reads that gave something else than the last acknowledged value.
    pub stale: Vec<String>,
    /// What every key may hold.
    pub keys: BTreeMap<String, Known>,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    addresses: Mutex<Vec<SocketAddr>>,
    acknowledged: AtomicU64,
}

/// A running load.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<Tally>>,
}

impl Load {
    /// Starts this many writers against these addresses.
    #[must_use]
    pub fn start(addresses: Vec<SocketAddr>, workers: u32) -> Self {
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            addresses: Mutex::new(addresses),
            acknowledged: AtomicU64::new(0),
        });
        let workers = (0..workers)
            .map(|id| {
                let shared = shared.clone();
                std::thread::spawn(move || {
                    Worker {
                        id,
                        shared,
                        client: None,
                        turn: u64::from(id),
                        tally: Tally::default(),
                    }
                    .run()
                })
            })
            .collect();
        Self { shared, workers }
    }

    /// From now on, clients connect to these addresses.
    pub fn redirect(&self, addresses: Vec<SocketAddr>) {
        *self
            .shared
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    /// Writes acknowledged so far.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.shared.acknowledged.load(Ordering::Relaxed)
    }

    /// Ends the load.
    #[must_use]
    pub fn finish(self) -> Tally {
        self.shared.stop.store(true, Ordering::Relaxed);
        let mut total = Tally::default();
        for worker in self.workers {
            let tally = worker.join().expect("a writer does not panic");
            total.acknowledged += tally.acknowledged;
            total.reads += tally.reads;
            total.refused += tally.refused;
            total.unknown += tally.unknown;
            total.reconnected += tally.reconnected;
            total.longest = total.longest.max(tally.longest);
            total.stale.extend(tally.stale);
            total.keys.extend(tally.keys);
            for (text, count) in tally.errors {
                *total.errors.entry(text).or_default() += count;
            }
        }
        total
    }
}

impl Tally {
    /// Reads every key back through one client: every acknowledged value must be there. Returns
    /// what is wrong.
    #[must_use]
    pub fn lost(&self, client: &mut Client) -> Vec<String> {
        let mut wrong = Vec::new();
        for (key, known) in &self.keys {
            let found = match client.command(&[b"GET", key.as_bytes()]) {
                Ok(Reply::Bulk(value)) => Some(String::from_utf8_lossy(&value).into_owned()),
                Ok(Reply::Nil) => None,
                other => {
                    wrong.push(format!("{key}: {other:?}"));
                    continue;
                }
            };
            let right = found == known.acknowledged
                || found.as_ref().is_some_and(|f| known.possible.contains(f));
            if !right {
                wrong.push(format!("{key}: {found:?} instead of {known:?}"));
            }
        }
        wrong
    }
}

struct Worker {
    id: u32,
    shared: Arc<Shared>,
    client: Option<Client>,
    turn: u64,
    tally: Tally,
}

enum Outcome {
    Done(Reply),
    /// The connection ended before anything of an answer came.
    Closed,
    Unknown,
}

impl Worker {
    fn run(mut self) -> Tally {
        let mut generation = vec![0u64; usize::try_from(KEYS).unwrap_or(0)];
        let mut serial = 0u64;
        while !self.shared.stop.load(Ordering::Relaxed) {
            serial += 1;
            let slot = serial % KEYS;
            let index = usize::try_from(slot).unwrap_or(0);
            let key = format!("w{}-{slot}-{}", self.id, generation[index]);
            let value = format!("{serial}");
            let began = Instant::now();
            let retired = self.write(&key, &value);
            self.waited_since(began);
            if retired {
                generation[index] += 1;
            } else if serial.is_multiple_of(4) {
                let began = Instant::now();
                self.read(&key);
                self.waited_since(began);
            }
        }
        self.tally
    }

    fn waited_since(&mut self, began: Instant) {
        self.tally.longest = self.tally.longest.max(began.elapsed());
    }

    /// Writes; says whether the key must be retired.
    fn write(&mut self, key: &str, value: &str) -> bool {
        let mut maybe = false;
        loop {
            let outcome = self.command(&[b"SET", key.as_bytes(), value.as_bytes()]);
            let known = self.tally.keys.entry(key.to_owned()).or_default();
            match outcome {
                Outcome::Done(Reply::Simple(ok)) if ok == "OK" => {
                    self.tally.acknowledged += 1;
                    self.shared.acknowledged.fetch_add(1, Ordering::Relaxed);
                    known.acknowledged = Some(value.to_owned());
                    // If a copy of this write still hangs somewhere, it writes the same value,
                    // which does no harm until the next write.
                    return maybe;
                }
                Outcome::Done(Reply::Error(text)) => {
                    let unknown = text.starts_with("UNKNOWN");
                    *self.tally.errors.entry(text).or_default() += 1;
                    if unknown {
                        self.tally.unknown += 1;
                        known.possible.push(value.to_owned());
                        return true;
                    }
                    self.tally.refused += 1;
                    if self.shared.stop.load(Ordering::Relaxed) {
                        return maybe;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                Outcome::Done(other) => {
                    self.tally.stale.push(format!("SET {key} gave {other:?}"));
                    return true;
                }
                Outcome::Closed => {
                    // It may have happened. To repeat the write is harmless, because no other
                    // writer has this key.
                    known.possible.push(value.to_owned());
                    maybe = true;
                    self.tally.reconnected += 1;
                    if self.shared.stop.load(Ordering::Relaxed) {
                        return true;
                    }
                }
                Outcome::Unknown => {
                    self.tally.unknown += 1;
                    *self
                        .tally
                        .errors
                        .entry("no answer in time".into())
                        .or_default() += 1;
                    known.possible.push(value.to_owned());
                    return true;
                }
            }
        }
    }

    fn read(&mut self, key: &str) {
        let known = self.tally.keys.get(key).cloned().unwrap_or_default();
        match self.command(&[b"GET", key.as_bytes()]) {
            Outcome::Done(Reply::Bulk(value)) => {
                let value = String::from_utf8_lossy(&value).into_owned();
                if known.acknowledged.as_ref() == Some(&value) || known.possible.contains(&value) {
                    self.tally.reads += 1;
                } else {
                    self.tally
                        .stale
                        .push(format!("{key}: read {value}, known {known:?}"));
                }
            }
            Outcome::Done(Reply::Nil) if known.acknowledged.is_none() => self.tally.reads += 1,
            Outcome::Done(Reply::Error(text)) => {
                self.tally.refused += 1;
                *self.tally.errors.entry(text).or_default() += 1;
            }
            Outcome::Done(other) => self
                .tally
                .stale
                .push(format!("{key}: read {other:?}, known {known:?}")),
            Outcome::Closed | Outcome::Unknown => self.tally.reconnected += 1,
        }
    }

    fn command(&mut self, words: &[&[u8]]) -> Outcome {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => match self.connect() {
                Some(client) => client,
                None => return Outcome::Closed,
            },
        };
        match client.command(words) {
            Ok(reply) => {
                self.client = Some(client);
                Outcome::Done(reply)
            }
            Err(e)
                if matches!(
                    e.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) =>
            {
                Outcome::Unknown
            }
            Err(_) => Outcome::Closed,
        }
    }

    fn connect(&mut self) -> Option<Client> {
        self.turn += 1;
        let addresses = self
            .shared
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let address =
            addresses.get(usize::try_from(self.turn).unwrap_or(0) % addresses.len().max(1))?;
        let client = Client::connect(*address, ANSWER_MAX).ok();
        if client.is_none() {
            // Nothing listens there: do not spin while the process starts.
            std::thread::sleep(Duration::from_millis(5));
        }
        client
    }
}
