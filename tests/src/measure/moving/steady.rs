//! A steady load. Each connection reads and writes keys of its own at set times, however long the
//! answers take, and knows what its keys hold.

use super::speech::{Asker, Speech};
use crate::measure::recorder::Recorder;
use crate::measure::stats::median;
use crate::procfs::machine;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The least and the most bytes of a value. Half of the values are below a thousand bytes.
const LEAST: u64 = 100;
const MOST: u64 = 10_000;
/// Writes that are sent at once while data is loaded.
const BATCH: usize = 64;
/// How long the cluster's capacity is measured, and how long the cost of a rate.
const CAPACITY: Duration = Duration::from_secs(4);
/// The pause after that, because what was loaded a moment ago still causes work.
pub(super) const SETTLE: Duration = Duration::from_secs(5);
/// How many rates are tried to find one of the wanted cost.
const TRIALS: usize = 5;

/// The size of the value of a key.
fn size(key: u64) -> u64 {
    // SplitMix64, for a fraction that is the same in every run.
    let mut z = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let fraction = ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
    (LEAST as f64 * (MOST as f64 / LEAST as f64).powf(fraction)) as u64
}

/// How many keys have about this many bytes of values.
fn keys_of(bytes: u64) -> u64 {
    // The mean of a size whose logarithm is evenly distributed.
    let mean = (MOST - LEAST) as f64 / (MOST as f64 / LEAST as f64).ln();
    ((bytes as f64 / mean) as u64).max(1)
}

fn name(key: u64) -> String {
    format!("key:{key:09}")
}

fn value(key: u64, version: u64) -> Vec<u8> {
    let mut value = format!("{version:020}").into_bytes();
    value.resize(size(key).max(20) as usize, b'v');
    value
}

/// Bytes of all keys and values.
pub(super) fn stored_bytes(bytes: u64) -> u64 {
    (0..keys_of(bytes))
        .map(|key| size(key).max(20) + name(key).len() as u64)
        .sum()
}

/// The addresses of readers and writers, and their protocol.
#[derive(Debug, Clone)]
pub(super) struct EntryPoints {
    pub(super) speech: Speech,
    pub(super) addresses: Vec<SocketAddr>,
}

/// Writes everything once.
pub(super) fn fill(fronts: &EntryPoints, bytes: u64, connections: usize) {
    let (keys, step) = (keys_of(bytes), connections as u64);
    std::thread::scope(|scope| {
        for first in 0..step {
            let address = fronts.addresses[first as usize % fronts.addresses.len()];
            scope.spawn(move || {
                let mut client = fronts
                    .speech
                    .connect(address)
                    .expect("a node takes clients");
                let mine: Vec<u64> = (first..keys).step_by(connections).collect();
                for batch in mine.chunks(BATCH) {
                    let pairs: Vec<(String, Vec<u8>)> = batch
                        .iter()
                        .map(|key| (name(*key), value(*key, 0)))
                        .collect();
                    let written = client.set_all(&pairs).expect("a node answers");
                    assert_eq!(written, Ok(()), "a write was refused");
                }
            });
        }
    });
}

/// What was measured since the previous phase.
pub(super) struct Counted {
    what: String,
    /// Ticks of all processors, including the clients': busy and all. Zero if this is not Linux.
    ticks: (u64, u64),
    /// By the second since the load began, so that a second in which the machine stalled spoils no
    /// other second.
    seconds: BTreeMap<u64, Recorder>,
    /// Reads that gave a wrong value.
    lost: u64,
}

impl Counted {
    pub(super) fn new() -> Self {
        Self {
            what: String::new(),
            ticks: (0, 0),
            seconds: BTreeMap::new(),
            lost: 0,
        }
    }

    /// Adds another phase to this one. The result has that phase's name.
    pub(super) fn add(&mut self, other: Self) {
        self.what = other.what;
        self.ticks = (self.ticks.0 + other.ticks.0, self.ticks.1 + other.ticks.1);
        self.seconds.extend(other.seconds);
        self.lost += other.lost;
    }

    /// The p99 of the median second, in milliseconds.
    pub(super) fn p99_of_a_second(&self) -> f64 {
        let p99s = self.seconds.values().map(|second| second.quantile(0.99));
        median(&p99s.collect::<Vec<_>>()).unwrap_or_default()
    }

    /// All seconds together.
    fn whole(&self) -> Recorder {
        let mut whole = Recorder::new();
        self.seconds.values().for_each(|second| whole.add(second));
        whole
    }

    pub(super) fn row(&self) -> String {
        let whole = self.whole();
        let (failed, reason) = whole.failures();
        let first = reason.map_or_else(String::new, |why| format!("  ({why})"));
        let lost = if self.lost > 0 {
            format!("  {} READS WERE WRONG", self.lost)
        } else {
            String::new()
        };
        let (count, longest) = (whole.count(), whole.longest());
        let (used, all) = self.ticks;
        let busy = (100 * used)
            .checked_div(all)
            .map_or_else(String::new, |busy| format!("{busy} %"));
        format!(
            "{:<34} {count:>9} {busy:>5} {:>8.2} {:>8.2} {:>10.2} {:>8.2} \
             {longest:>8.1} {failed:>7}{first}{lost}",
            self.what,
            whole.quantile(0.5),
            whole.quantile(0.99),
            self.p99_of_a_second(),
            whole.quantile(0.999)
        )
    }
}

/// The head of the table. *its median* is the median of the p99 of each second.
pub(super) fn head() -> String {
    format!(
        "{:<34} {:>9} {:>5} {:>8} {:>8} {:>10} {:>8} {:>8} {:>7}",
        "milliseconds, while",
        "operations",
        "busy",
        "p50",
        "p99",
        "its median",
        "p99.9",
        "longest",
        "failed"
    )
}

/// What all connections share.
struct Shared {
    stop: AtomicBool,
    phase: AtomicUsize,
    /// Ticks of all processors when the phase began: busy and all.
    ticks: Mutex<(u64, u64)>,
    fronts: Mutex<EntryPoints>,
    counted: Mutex<BTreeMap<usize, Counted>>,
}

impl Shared {
    fn fronts(&self) -> EntryPoints {
        self.fronts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// The load, as a percentage of the cluster's capacity.
pub(super) enum Load<'a> {
    /// The percentage is of the operations that the cluster gets done if each connection always
    /// waits for its answer.
    Operations(u64),
    /// The percentage is of the processor time that its nodes have. Single operations cost more of
    /// it than batches. The function returns how many processor seconds the nodes have used so far.
    Processor(u64, &'a dyn Fn() -> f64),
}

/// A running load.
pub(super) struct Steady {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<BTreeMap<u64, Held>>>,
    capacity: u64,
    rate: u64,
}

/// What a key may hold.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    acknowledged: u64,
    /// Later writes whose outcome is unknown.
    tried: u64,
}

impl Steady {
    /// Measures the capacity, and starts a load of a part of it. The first phase begins when that
    /// load has settled.
    pub(super) fn start(
        fronts: &EntryPoints,
        bytes: u64,
        connections: usize,
        load: &Load<'_>,
    ) -> Self {
        let every = |rate: u64| Duration::from_secs_f64(connections as f64 / rate as f64);
        let (done, mut held) = Self::trial(fronts, bytes, vec![BTreeMap::new(); connections], None);
        let capacity = done / CAPACITY.as_secs();
        let rate = match load {
            Load::Operations(percent) => (capacity * percent / 100).max(1),
            Load::Processor(percent, used) => {
                let mut rate = (capacity * percent / 100).max(1);
                for _ in 0..TRIALS {
                    let before = used();
                    held = Self::trial(fronts, bytes, held, Some(every(rate))).1;
                    let part = (used() - before) / CAPACITY.as_secs_f64();
                    // The cost of a rate is not proportional to it, so several are tried, none far
                    // from the one before.
                    let times = (*percent as f64 / 100.0 / part.max(0.01)).clamp(0.4, 1.6);
                    rate = ((rate as f64 * times) as u64).max(1);
                }
                rate
            }
        };
        let (shared, threads) = Self::threads(fronts, bytes, held, Some(every(rate)));
        let steady = Self {
            shared,
            threads,
            capacity,
            rate,
        };
        std::thread::sleep(SETTLE);
        drop(steady.phase("settling"));
        steady
    }

    /// Some seconds of a load. Returns the number of operations, and what keys hold by then.
    fn trial(
        fronts: &EntryPoints,
        bytes: u64,
        held: Vec<BTreeMap<u64, Held>>,
        every: Option<Duration>,
    ) -> (u64, Vec<BTreeMap<u64, Held>>) {
        let (shared, threads) = Self::threads(fronts, bytes, held, every);
        std::thread::sleep(CAPACITY);
        shared.stop.store(true, Ordering::Relaxed);
        let held = threads
            .into_iter()
            .map(|t| t.join().expect("a client does not panic"))
            .collect();
        let counted = shared
            .counted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        (counted.values().map(|c| c.whole().count()).sum(), held)
    }

    fn threads(
        fronts: &EntryPoints,
        bytes: u64,
        held: Vec<BTreeMap<u64, Held>>,
        every: Option<Duration>,
    ) -> (Arc<Shared>, Vec<JoinHandle<BTreeMap<u64, Held>>>) {
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            phase: AtomicUsize::new(0),
            ticks: Mutex::new(machine()),
            fronts: Mutex::new(fronts.clone()),
            counted: Mutex::new(BTreeMap::new()),
        });
        let (began, connections) = (Instant::now(), held.len());
        let connection = |(n, held): (usize, BTreeMap<u64, Held>)| {
            let shared = shared.clone();
            let mine: Vec<u64> = (n as u64..keys_of(bytes)).step_by(connections).collect();
            let first = began
                + every
                    .unwrap_or_default()
                    .mul_f64(n as f64 / connections as f64);
            std::thread::spawn(move || {
                Connection {
                    held,
                    ..Connection::new(shared, n, mine)
                }
                .run(first, every)
            })
        };
        let threads = held.into_iter().enumerate().map(connection).collect();
        (shared, threads)
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    /// From now on, new connections go to these addresses.
    pub(super) fn redirect(&self, addresses: &[SocketAddr]) {
        self.shared
            .fronts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .addresses = addresses.to_vec();
    }

    /// What was measured since the last phase ended.
    pub(super) fn phase(&self, what: &str) -> Counted {
        let ended = self.shared.phase.fetch_add(1, Ordering::Relaxed);
        // All connections see the new phase once their current operations are over.
        std::thread::sleep(Duration::from_millis(300));
        let (used_now, all_now) = machine();
        let mut ticks = self
            .shared
            .ticks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (used, all) = std::mem::replace(&mut *ticks, (used_now, all_now));
        let spent = (used_now.saturating_sub(used), all_now.saturating_sub(all));
        let mut counted = self
            .shared
            .counted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Counted {
            what: what.to_owned(),
            ticks: spent,
            ..counted.remove(&ended).unwrap_or_else(Counted::new)
        }
    }

    /// Ends the load, and counts the acknowledged writes that are missing.
    pub(super) fn finish(self) -> u64 {
        self.shared.stop.store(true, Ordering::Relaxed);
        let held: Vec<BTreeMap<u64, Held>> = self
            .threads
            .into_iter()
            .map(|t| t.join().expect("a client does not panic"))
            .collect();
        let fronts = self.shared.fronts();
        let count = |held: BTreeMap<u64, Held>| {
            let mut client = fronts
                .speech
                .connect(fronts.addresses[0])
                .expect("a node takes clients");
            let wrong = |(key, held): &(u64, Held)| {
                let read = client.get(&name(*key)).expect("a node answers");
                !read.is_ok_and(|read| is_right(read.as_deref(), *held))
            };
            held.into_iter().filter(wrong).count() as u64
        };
        std::thread::scope(|scope| {
            let counts: Vec<_> = held
                .into_iter()
                .map(|held| scope.spawn(|| count(held)))
                .collect();
            counts
                .into_iter()
                .map(|count| count.join().expect("a client does not panic"))
                .sum()
        })
    }
}

fn is_right(read: Option<&[u8]>, held: Held) -> bool {
    let version = read.and_then(|value| {
        std::str::from_utf8(value.get(..20)?)
            .ok()?
            .parse::<u64>()
            .ok()
    });
    version.is_some_and(|version| {
        version >= held.acknowledged && version <= held.acknowledged.max(held.tried)
    })
}

/// What a connection sees in one second of a phase. It is given away at the end of the second,
/// because all seconds of all connections would take much memory.
struct Mine {
    phase: usize,
    number: u64,
    recorder: Recorder,
    lost: u64,
}

impl Mine {
    fn new(phase: usize, number: u64) -> Self {
        let recorder = Recorder::new();
        Self {
            phase,
            number,
            recorder,
            lost: 0,
        }
    }

    /// Adds this to the common figures of the phase.
    fn give(self, shared: &Shared) {
        let mut all = shared
            .counted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let all = all.entry(self.phase).or_insert_with(Counted::new);
        all.lost += self.lost;
        let second = all.seconds.entry(self.number);
        second.or_insert_with(Recorder::new).add(&self.recorder);
    }
}

struct Connection {
    shared: Arc<Shared>,
    number: usize,
    keys: Vec<u64>,
    held: BTreeMap<u64, Held>,
    client: Option<Box<dyn Asker>>,
    opened: usize,
}

impl Connection {
    fn new(shared: Arc<Shared>, number: usize, keys: Vec<u64>) -> Self {
        Self {
            shared,
            number,
            keys,
            held: BTreeMap::new(),
            client: None,
            opened: 0,
        }
    }

    /// Operates until it is stopped: every `every`, or without pause.
    fn run(mut self, mut due: Instant, every: Option<Duration>) -> BTreeMap<u64, Held> {
        let began = due;
        let mut mine = Mine::new(0, 0);
        let mut random = self.number as u64;
        while !self.shared.stop.load(Ordering::Relaxed) {
            match every {
                Some(_) => std::thread::sleep(due.saturating_duration_since(Instant::now())),
                None => due = Instant::now(),
            }
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let key = self.keys[(random >> 33) as usize % self.keys.len()];
            let failed = self.operate(key, random & (1 << 20) == 0);
            let phase = self.shared.phase.load(Ordering::Relaxed);
            let number = due.saturating_duration_since(began).as_secs();
            if (phase, number) != (mine.phase, mine.number) {
                std::mem::replace(&mut mine, Mine::new(phase, number)).give(&self.shared);
            }
            mine.recorder.took(due.elapsed());
            match failed {
                Ok(()) => {}
                Err(Some(why)) => mine.recorder.failed(why),
                Err(None) => mine.lost += 1,
            }
            due += every.unwrap_or_default();
        }
        mine.give(&self.shared);
        self.held
    }

    /// One operation. `Err(None)`: a read gave a wrong value.
    fn operate(&mut self, key: u64, write: bool) -> Result<(), Option<String>> {
        let held = self.held.get(&key).copied().unwrap_or_default();
        let version = held.acknowledged.max(held.tried) + 1;
        let (label, text) = (
            name(key),
            if write {
                value(key, version)
            } else {
                Vec::new()
            },
        );
        if write {
            self.held.entry(key).or_default().tried = version;
        }
        // A node that ends closes its connections between two operations. Then this connects to
        // another node and asks again.
        for _ in 0..3 {
            let Some(client) = self.connected() else {
                continue;
            };
            let answered = if write {
                client.set(&label, &text).map(|set| set.map(|()| None))
            } else {
                client.get(&label)
            };
            match answered {
                Ok(Ok(_)) if write => {
                    self.held.insert(
                        key,
                        Held {
                            acknowledged: version,
                            tried: version,
                        },
                    );
                    return Ok(());
                }
                Ok(Ok(read)) => {
                    return if is_right(read.as_deref(), held) {
                        Ok(())
                    } else {
                        Err(None)
                    };
                }
                Ok(Err(why)) => return Err(Some(why)),
                Err(_) => self.client = None,
            }
        }
        Err(Some("no connection".into()))
    }

    fn connected(&mut self) -> Option<&mut (dyn Asker + 'static)> {
        if self.client.is_none() {
            let fronts = self.shared.fronts();
            let address = fronts
                .addresses
                .get((self.number + self.opened) % fronts.addresses.len().max(1))?;
            self.opened += 1;
            self.client = fronts.speech.connect(*address).ok();
        }
        self.client.as_deref_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_spread_over_two_decades_and_add_up_to_the_wanted_bytes() {
        let bytes = 10_000_000;
        let stored: u64 = (0..keys_of(bytes)).map(size).sum();
        assert!(stored.abs_diff(bytes) < bytes / 20, "{stored}");
        let sizes: Vec<u64> = (0..1000).map(size).collect();
        assert!(sizes.iter().all(|s| (LEAST..=MOST).contains(s)));
        let small = sizes.iter().filter(|s| **s < 1000).count();
        assert!(
            (400..600).contains(&small),
            "{small} of 1000 are below 1000 bytes"
        );
    }

    #[test]
    fn a_second_in_which_the_machine_stalled_spoils_no_other() {
        let mut counted = Counted::new();
        for (number, took) in (0..).zip([1_000, 900_000, 1_200, 800, 1_100]) {
            let mut second = Recorder::new();
            second.took(Duration::from_micros(took));
            counted.seconds.insert(number, second);
        }
        let p99 = counted.p99_of_a_second();
        assert!((p99 - 1.1).abs() <= 0.011, "{p99}");
    }

    #[test]
    fn a_read_may_give_the_acknowledged_value_or_a_later_attempt() {
        let held = Held {
            acknowledged: 3,
            tried: 5,
        };
        let right = |version| is_right(Some(&value(7, version)), held);
        assert!(!right(2) && right(3) && right(5) && !right(6));
        assert!(!is_right(None, held));
    }
}
