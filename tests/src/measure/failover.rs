//! How long writes stall when a node dies, hangs or leaves.
//!
//! Failover is judged for each partition by its longest gap between two acknowledged writes. One
//! connection writes to a handful of partitions in turn, so that a partition that waits delays few
//! others.

use super::stats::{typical, worst};
use super::verdict;
use crate::cluster::Cluster;
use crate::resp::{Client, Reply};
use clap::ValueEnum;
use doyen_placement::hash::slot;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Partitions of the measured clusters.
const PARTITIONS: usize = 64;
/// How long a writer waits for an answer before it connects again.
const ANSWER_MAX: Duration = Duration::from_secs(8);

/// What happens to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, as if its machine hung.
    Stop,
    /// SIGTERM: it leaves.
    Term,
}

/// Which node it happens to.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Victim {
    /// The oldest member
    Coordinator,
    /// The member between the oldest and the youngest
    Middle,
    /// The member that joined last
    Youngest,
}

/// The longest gap between acknowledged writes, by partition.
#[derive(Debug)]
struct Gaps {
    began: Instant,
    /// Microseconds since `began` of the last acknowledged write, and the longest gap.
    partitions: Vec<(AtomicU64, AtomicU64)>,
    stop: AtomicBool,
    unexpected: AtomicU64,
    /// The last acknowledged number of each key, and whether a later one is in doubt.
    acknowledged: Mutex<BTreeMap<String, (u64, bool)>>,
}

impl Gaps {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            partitions: (0..PARTITIONS)
                .map(|_| (AtomicU64::new(0), AtomicU64::new(0)))
                .collect(),
            stop: AtomicBool::new(false),
            unexpected: AtomicU64::new(0),
            acknowledged: Mutex::new(BTreeMap::new()),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn written(&self, partition: usize) {
        let now = self.now();
        let (last, longest) = &self.partitions[partition];
        let gap = now.saturating_sub(last.swap(now, Ordering::Relaxed));
        longest.fetch_max(gap, Ordering::Relaxed);
    }

    /// From here on gaps count.
    fn begin(&self) {
        for (_, longest) in &self.partitions {
            longest.store(0, Ordering::Relaxed);
        }
    }

    /// The gaps in milliseconds. A gap that has not ended counts with its length so far.
    fn milliseconds(&self) -> Vec<f64> {
        let now = self.now();
        let gap = |(last, longest): &(AtomicU64, AtomicU64)| {
            longest
                .load(Ordering::Relaxed)
                .max(now.saturating_sub(last.load(Ordering::Relaxed))) as f64
                / 1_000.0
        };
        self.partitions.iter().map(gap).collect()
    }
}

/// A key of each partition.
fn keys() -> Vec<String> {
    let mut keys = vec![String::new(); PARTITIONS];
    let mut missing = PARTITIONS;
    for i in 0u32.. {
        let key = format!("key-{i}");
        let partition = usize::from(slot(key.as_bytes())) * PARTITIONS / 16_384;
        if keys[partition].is_empty() {
            keys[partition] = key;
            missing -= 1;
            if missing == 0 {
                break;
            }
        }
    }
    keys
}

/// Writes to these partitions in turn, through one of `addresses` that answers.
fn write(gaps: &Gaps, mine: &[(usize, String)], addresses: &[SocketAddr], first: usize) {
    let mut turn = first;
    let mut number = 0u64;
    let mut client = None;
    while !gaps.stop.load(Ordering::Relaxed) {
        for (partition, key) in mine {
            number += 1;
            let mut doubt = false;
            loop {
                if gaps.stop.load(Ordering::Relaxed) {
                    break;
                }
                if client.is_none() {
                    turn += 1;
                    client = Client::connect(addresses[turn % addresses.len()], ANSWER_MAX).ok();
                }
                let Some(open) = &mut client else {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                };
                match open.command(&[b"SET", key.as_bytes(), number.to_string().as_bytes()]) {
                    Ok(Reply::Simple(_)) => {
                        gaps.written(*partition);
                        let mut all = gaps
                            .acknowledged
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner);
                        all.insert(key.clone(), (number, false));
                        break;
                    }
                    Ok(_) => {
                        gaps.unexpected.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    Err(_) => client = None,
                }
                // After an error, this number may have been written in spite of it.
                if !doubt {
                    doubt = true;
                    let mut all = gaps
                        .acknowledged
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner);
                    all.entry(key.clone()).or_default().1 = true;
                }
            }
        }
    }
}

/// Measures this many times, and prints.
pub fn run(binary: &str, harm: Harm, victim: Victim, runs: u64) {
    let which = victim;
    let (mut worsts, mut lost) = (Vec::new(), 0);
    for run in 0..runs {
        let mut cluster = Cluster::of(binary, 3);
        let ages = cluster.by_age();
        let victim = match which {
            Victim::Coordinator => cluster.coordinator(),
            Victim::Middle => ages[1].clone(),
            Victim::Youngest => ages[2].clone(),
        };
        let others: Vec<SocketAddr> = cluster
            .nodes
            .iter()
            .filter(|(n, _)| **n != victim)
            .map(|(_, p)| p.ready.resp)
            .collect();
        let gaps = Arc::new(Gaps::new());
        let all: Vec<(usize, String)> = keys().into_iter().enumerate().collect();
        let writers: Vec<_> = all
            .chunks(2)
            .enumerate()
            .map(|(i, mine)| {
                let (gaps, mine, others) = (gaps.clone(), mine.to_vec(), others.clone());
                std::thread::spawn(move || write(&gaps, &mine, &others, i))
            })
            .collect();
        std::thread::sleep(Duration::from_secs(2));
        gaps.begin();
        match harm {
            Harm::Kill => cluster.kill(&victim),
            Harm::Stop => cluster.nodes.get_mut(&victim).expect("it runs").stop(),
            Harm::Term => {
                cluster.leave(&victim);
            }
        }
        let most = if harm == Harm::Stop { 8 } else { 4 };
        std::thread::sleep(Duration::from_secs(most));
        gaps.stop.store(true, Ordering::Relaxed);
        let measured = gaps.milliseconds();
        for writer in writers {
            let _ = writer.join();
        }
        let reader = cluster
            .nodes
            .keys()
            .find(|n| **n != victim)
            .expect("others run")
            .clone();
        let mut client = cluster.client(&reader);
        let all = gaps
            .acknowledged
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (key, (acknowledged, doubt)) in all.iter() {
            let found = match client.command(&[b"GET", key.as_bytes()]) {
                Ok(Reply::Bulk(value)) => {
                    String::from_utf8_lossy(&value).parse::<u64>().unwrap_or(0)
                }
                _ => 0,
            };
            if found != *acknowledged && !(*doubt && found > *acknowledged) {
                lost += 1;
            }
        }
        let longest = worst(&measured);
        println!(
            "run {run}: {victim} {harm:?}; longest gap of a partition {longest:.0} ms, \
             median partition {:.0} ms, {} refused",
            typical(&measured),
            gaps.unexpected.load(Ordering::Relaxed)
        );
        worsts.push(longest);
    }
    worsts.sort_by(f64::total_cmp);
    let (typical, most) = (typical(&worsts), worst(&worsts));
    println!(
        "{harm:?} {which:?}, {runs} runs: worst partition {typical:.0} ms at the median, \
         {most:.0} ms at worst; {lost} acknowledged writes lost"
    );
    let at = |share: f64| {
        worsts
            .get(((worsts.len() as f64 * share) as usize).min(worsts.len().saturating_sub(1)))
            .copied()
            .unwrap_or(f64::NAN)
    };
    println!(
        "longest gap: min {:.0}, p50 {:.0}, p90 {:.0}, p99 {:.0}, worst {most:.0} ms",
        at(0.0),
        at(0.5),
        at(0.9),
        at(0.99)
    );
    if harm == Harm::Kill {
        println!(
            "p50 below 800 ms: {}; worst below 2 s: {}; nothing lost: {}",
            verdict(typical < 800.0),
            verdict(most < 2_000.0),
            verdict(lost == 0)
        );
    }
}
