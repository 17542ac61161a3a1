//! Load through the native client, on few keys that all tasks share. Every question and answer is
//! noted, and [`linear`](crate::linear) judges whether the answers can be explained.
//!
//! A lost write, a write that is applied twice and a stale read have no explanation: every value is
//! written once, and compare-and-swap tells whether it found what it should.

use crate::linear::{Answer, Call, HistoryEntry, Verdict, check};
use doyen::{Error, Happened, Map, Node};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Keys that are used at a time.
const KEYS: usize = 24;
/// Operations on a key, after which another one takes its place: long histories take long to judge.
const HISTORY_MAX: usize = 300;

/// What the load did, and what it saw.
#[derive(Debug, Default)]
pub struct Tally {
    /// Operations that were answered.
    pub answered: u64,
    /// Writes whose outcome the client does not know.
    pub unknown: u64,
    /// Errors that say that nothing happened, and how often each came.
    pub refused: BTreeMap<String, u64>,
    /// The longest time that an operation took.
    pub longest: Duration,
    /// What was asked and answered, by key.
    histories: BTreeMap<String, Vec<HistoryEntry>>,
}

impl Tally {
    /// Keys whose history nothing explains, and what is wrong.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let judged = self
            .histories
            .iter()
            .filter_map(|(key, history)| match check(history) {
                Verdict::Linearizable => None,
                Verdict::Undecided => Some(format!("{key}: undecided")),
                Verdict::Violated(at) => {
                    let mut ordered = history.clone();
                    ordered.sort_by_key(|e| e.called);
                    Some(format!(
                        "{key}: {:?}",
                        &ordered[at.saturating_sub(12)..(at + 3).min(ordered.len())]
                    ))
                }
            });
        judged.collect()
    }
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// Orders calls and answers of all tasks.
    moments: AtomicU64,
    tally: Mutex<Tally>,
}

impl Shared {
    fn moment(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::SeqCst)
    }

    fn tally(&self) -> std::sync::MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self, slot: usize) -> String {
        let tally = self.tally();
        let name = |round: usize| format!("key {slot}, {round}");
        let rounds = (0..).map(name);
        rounds
            .into_iter()
            .find(|name| {
                tally
                    .histories
                    .get(name)
                    .is_none_or(|h| h.len() < HISTORY_MAX)
            })
            .unwrap_or_default()
    }
}

/// A running load.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Load {
    /// Connects one client to these data ports, and starts this many tasks that use it.
    #[must_use]
    pub fn start(seeds: Vec<SocketAddr>, secret: PathBuf, tasks: u32) -> Self {
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(drive(seeds, &secret, tasks, of_thread));
        });
        Self { shared, thread }
    }

    /// Operations answered so far.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.shared.tally().answered
    }

    /// Ends the load.
    #[must_use]
    pub fn finish(self) -> Tally {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the load does not panic");
        std::mem::take(&mut self.shared.tally())
    }
}

async fn drive(seeds: Vec<SocketAddr>, secret: &Path, tasks: u32, shared: Arc<Shared>) {
    let connect = || {
        Node::builder()
            .client()
            .seeds(seeds.iter().map(ToString::to_string))
            .secret_file(secret)
            .start()
    };
    let client = connect().await.expect("a client connects");
    let map: Map<String, String> = client.map("shared").await.expect("a map");
    let running: Vec<_> = (0..tasks)
        .map(|id| tokio::spawn(run(id, map.clone(), shared.clone())))
        .collect();
    for task in running {
        task.await.expect("a task does not panic");
    }
    // The final values are part of what must be explained.
    let keys: Vec<String> = shared.tally().histories.keys().cloned().collect();
    for key in keys {
        read(tasks, &map, key, &shared).await;
    }
    client.shutdown().await;
}

async fn run(id: u32, map: Map<String, String>, shared: Arc<Shared>) {
    let mut rng = StdRng::seed_from_u64(id.into());
    let mut serial = 0_u64;
    // The last value that each key gave: a swap expects it.
    let mut seen: BTreeMap<String, Option<String>> = BTreeMap::new();
    while !shared.stop.load(Ordering::Relaxed) {
        let key = shared.key(rng.random_range(0..KEYS));
        serial += 1;
        let value = format!("{id}.{serial}");
        let bytes = value.clone().into_bytes();
        match rng.random_range(0..10) {
            0..4 => {
                let found = read(id, &map, key.clone(), &shared).await;
                found
                    .into_iter()
                    .for_each(|found| drop(seen.insert(key.clone(), found)));
            }
            4..6 => {
                let asked = map.insert(&key, &value);
                write(id, &key, Call::Set(bytes), &shared, async {
                    asked.await.map(|()| Answer::Ok)
                })
                .await;
            }
            6..9 => {
                let expected = seen.get(&key).cloned().flatten();
                let call = Call::CompareAndSwap {
                    expected: expected.clone().map(String::into_bytes),
                    value: bytes,
                };
                let asked = swap(&map, &key, expected.as_ref(), &value);
                write(id, &key, call, &shared, async {
                    asked.await.map(|done| Answer::Int(done.into()))
                })
                .await;
                seen.insert(key, Some(value));
            }
            _ => {
                let asked = map.remove(&key);
                write(id, &key, Call::Delete, &shared, async {
                    asked.await.map(|done| Answer::Int(done.into()))
                })
                .await;
            }
        }
    }
}

/// Writes a value if the key has the expected one.
async fn swap(
    map: &Map<String, String>,
    key: &String,
    expected: Option<&String>,
    value: &String,
) -> Result<bool, Error> {
    loop {
        let seen = map.get_versioned(key).await?;
        if seen.value() != expected {
            return Ok(false);
        }
        if map.compare_and_swap(&seen, value).await? {
            return Ok(true);
        }
    }
}

/// Reads; what was found, if anything was answered.
async fn read(
    id: u32,
    map: &Map<String, String>,
    key: String,
    shared: &Shared,
) -> Option<Option<String>> {
    let (called, began) = (shared.moment(), Instant::now());
    let found = map.get(&key).await;
    let answered = shared.moment();
    let mut tally = shared.tally();
    tally.longest = tally.longest.max(began.elapsed());
    match found {
        Ok(found) => {
            let answer = found
                .clone()
                .map_or(Answer::Nil, |value| Answer::Bulk(value.into_bytes()));
            tally.answered += 1;
            let entry = HistoryEntry {
                client: id,
                call: Call::Get,
                called,
                answered: Some((answered, answer)),
                waited: answered,
            };
            tally.histories.entry(key).or_default().push(entry);
            Some(found)
        }
        Err(error @ (Error::Unavailable | Error::Overloaded)) => {
            *tally.refused.entry(error.to_string()).or_default() += 1;
            None
        }
        Err(error) => panic!("{key}: {error}"),
    }
}

async fn write(
    id: u32,
    key: &str,
    call: Call,
    shared: &Shared,
    asked: impl Future<Output = Result<Answer, Error>>,
) {
    let (called, began) = (shared.moment(), Instant::now());
    let outcome = asked.await;
    let answered = shared.moment();
    let mut tally = shared.tally();
    tally.longest = tally.longest.max(began.elapsed());
    let (waited, answered) = match outcome {
        Ok(answer) => {
            tally.answered += 1;
            (answered, Some((answered, answer)))
        }
        Err(error) if error.happened() != Happened::No => {
            tally.unknown += 1;
            (answered, None)
        }
        Err(error) => {
            *tally.refused.entry(error.to_string()).or_default() += 1;
            return;
        }
    };
    tally
        .histories
        .entry(key.to_owned())
        .or_default()
        .push(HistoryEntry {
            client: id,
            call,
            called,
            answered,
            waited,
        });
}
