//! A deterministic simulation of whole clusters: the production machines, `Agreement` and `Shard`,
//! in one thread.
//!
//! ```text
//!   seed ─> Mix (cluster, network, faults) ─> World: one queue of events in virtual time
//!     ├─ Process: what control.rs and data.rs are in production
//!     ├─ Network: datagrams, streams, data connections; cuts, loss, delay
//!     ├─ Directory: what is synced, and what a power cut leaves
//!     ├─ Client:  operations with timeouts, and their history
//!     ├─ Locker:  clients that take and release locks
//!     └─ Oracle:  the invariants of docs/agreement.md, after every step
//! ```
//!
//! Nothing here reads a clock, the system's randomness or an address of memory, so a seed replays
//! exactly. The hash of its trace proves that.

/// Fails the run with this message if an invariant does not hold.
macro_rules! hold {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(format!($($text)*));
        }
    };
}

mod blocked;
mod case;
mod client;
mod control;
mod data;
mod disk;
mod fault;
mod finder;
mod halves;
mod heirs;
mod jobs;
mod judge;
mod links;
mod locker;
mod logs;
mod mix;
mod models;
mod names;
mod network;
pub(crate) mod oracle;
mod power;
mod process;
mod schedule;
mod shrink;
mod story;
mod streams;
mod subscriber;
mod trace;
mod tracker;
mod worker;
mod world;

pub use case::Case;
pub use mix::Mix;
pub use trace::Tell;

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a run did.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// Digest of everything that happened, in order.
    pub trace: u64,
    /// Virtual time that has passed.
    pub virtual_ns: u64,
    /// Events that were handled.
    pub events: u64,
    /// Tables committed.
    pub tables: u64,
    /// Copies that learned a partition and were admitted.
    pub moves: u64,
    /// Partitions that splits and merges made.
    pub reshaped: u64,
    /// How often a primary changed.
    pub failovers: u64,
    /// Operations called.
    pub operations: u64,
    /// Operations answered with a result.
    pub answered: u64,
    /// Operations that were refused because memory was full.
    pub full: u64,
    /// Queries for keys that went through all partitions.
    pub finds: u64,
    /// Keys that queries showed.
    pub found: u64,
    /// Transactions that were executed.
    pub transactions: u64,
    /// Transactions that were not executed because a watched key had changed.
    pub transactions_in_vain: u64,
    /// Keys that expired.
    pub expired: u64,
    /// Keys that were evicted.
    pub evicted: u64,
    /// Named maps.
    pub maps: u64,
    /// Learners that caught up from the log, without a snapshot.
    pub caught_up: u64,
    /// Snapshots that continued after their connection was lost.
    pub continued: u64,
    /// Reads that were answered in the pass in which they came.
    pub read_at_once: u64,
    /// Reads that were executed and then not answered, because the lease was over or the table had
    /// changed.
    pub reads_again: u64,
    /// Writes that took the short way (`Shard::set`).
    pub set_at_once: u64,
    /// Operations without effect whose outcome was lost and that a later write on the key had
    /// overtaken: those that were asked again, and those that were refused because their client had
    /// other operations under way.
    pub overtaken: [u64; 2],
    /// Batches of bytes between data threads of a process.
    pub handed_over: u64,
    /// Locks and semaphores: grants, those of owners that had waited in line, and permits that were
    /// lost because their time was over.
    pub locks: [u64; 3],
    /// Keys at which clients waited in line for an element, and grants of one.
    pub waits: [u64; 2],
    /// Entries of streams, and jobs of queues: added, given to a worker, done, and left at the end.
    pub work: [u64; 4],
    /// Values that clients kept which track, those that became stale meanwhile, and how often all
    /// was forgotten.
    pub tracked: [u64; 3],
    /// Changes that subscribers were told.
    pub told: u64,
    /// Values that were replaced, with these changes.
    pub old_values: u64,
    /// How often a subscriber went on after a bookmark.
    pub resumed: u64,
    /// How often a subscriber was told that changes are missing.
    pub missed: u64,
    /// Operations whose outcome is unknown.
    pub unknown: u64,
    /// Operations that were refused; nothing happened.
    pub refused: u64,
    /// Keys whose history was judged.
    pub judged: u64,
    /// Keys whose history was too large to judge.
    pub undecided: u64,
    /// Copies that were compared with another copy at the same position of the log.
    pub compared: u64,
    /// How often a peer was congested.
    pub congested: u64,
    /// Partitions that began empty.
    pub lost: u64,
    /// Virtual time from the end of the faults until all was well again.
    pub healed_ns: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
}

impl Report {
    /// Virtual time in hours.
    #[must_use]
    pub fn hours(&self) -> f64 {
        self.virtual_ns as f64 / 3.6e12
    }

    /// Adds another run's figures.
    pub fn add(&mut self, other: &Self) {
        self.virtual_ns += other.virtual_ns;
        self.events += other.events;
        self.tables += other.tables;
        self.moves += other.moves;
        self.reshaped += other.reshaped;
        self.failovers += other.failovers;
        self.operations += other.operations;
        self.answered += other.answered;
        self.unknown += other.unknown;
        self.refused += other.refused;
        self.full += other.full;
        self.finds += other.finds;
        self.found += other.found;
        self.transactions += other.transactions;
        self.transactions_in_vain += other.transactions_in_vain;
        self.expired += other.expired;
        self.evicted += other.evicted;
        self.maps += other.maps;
        self.caught_up += other.caught_up;
        self.continued += other.continued;
        self.read_at_once += other.read_at_once;
        self.reads_again += other.reads_again;
        self.set_at_once += other.set_at_once;
        (0..2).for_each(|i| self.overtaken[i] += other.overtaken[i]);
        self.handed_over += other.handed_over;
        (0..3).for_each(|i| self.locks[i] += other.locks[i]);
        (0..2).for_each(|i| self.waits[i] += other.waits[i]);
        (0..4).for_each(|i| self.work[i] += other.work[i]);
        (0..3).for_each(|i| self.tracked[i] += other.tracked[i]);
        self.told += other.told;
        self.old_values += other.old_values;
        self.resumed += other.resumed;
        self.missed += other.missed;
        self.judged += other.judged;
        self.undecided += other.undecided;
        self.compared += other.compared;
        self.congested += other.congested;
        self.lost += other.lost;
        self.healed_ns = self.healed_ns.max(other.healed_ns);
        for (kind, count) in &other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
    }
}

/// A run that broke an invariant, panicked, or did nothing.
#[derive(Debug, Clone)]
pub struct Failed {
    /// The case that ran.
    pub case: Box<Case>,
    /// Virtual time of the failure.
    pub at_ns: u64,
    /// The invariant or rule that broke, with details.
    pub what: String,
    /// Faults that had begun by then.
    pub faults_begun: u32,
    /// The story of the run, if it was asked for.
    pub story: Vec<String>,
}

impl Failed {
    /// What broke, without details: the invariant or the rule, or else the beginning of the text.
    #[must_use]
    pub fn kind(&self) -> &str {
        let head = self.what.split([':', '\n']).next().unwrap_or_default();
        if head.starts_with('I') || head.starts_with("rule ") {
            return head;
        }
        // For a panic, up to the first number.
        self.what
            .split(|c: char| c.is_ascii_digit() || c == '\n')
            .next()
            .unwrap_or_default()
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.story {
            writeln!(f, "{line}")?;
        }
        write!(
            f,
            "{} at {:.6} s: {}",
            self.case,
            self.at_ns as f64 / 1e9,
            self.what
        )
    }
}

/// Runs a seed, or the smaller case that shrinking made of it.
///
/// # Errors
/// The first invariant that broke.
pub fn run(case: &Case, tell: Tell) -> Result<Report, Failed> {
    let mut world = match catch_unwind(|| world::World::new(case, trace::Trace::new(tell))) {
        Ok(world) => world,
        Err(panic) => {
            let what = panic_text(panic.as_ref());
            return Err(Failed {
                case: Box::new(case.clone()),
                at_ns: 0,
                what,
                faults_begun: 0,
                story: Vec::new(),
            });
        }
    };
    let end = catch_unwind(AssertUnwindSafe(|| world.run()));
    let what = match end {
        Ok(Ok(report)) => return Ok(report),
        Ok(Err(what)) => what,
        Err(panic) => panic_text(panic.as_ref()),
    };
    let (case, at_ns, faults_begun) = (Box::new(world.case.clone()), world.now(), world.next_fault);
    Err(Failed {
        case,
        at_ns,
        what,
        faults_begun,
        story: world.into_story(),
    })
}

/// The text of a panic.
#[must_use]
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    format!(
        "panic: {}",
        text.or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or_default()
    )
}

/// Runs seeds, some at a time (by default as many as there are cores), until none are left or
/// `each` says to stop. Seeds that are under way then are finished.
pub fn run_many(
    seeds: impl Iterator<Item = u64> + Send,
    threads: Option<u64>,
    run: impl Fn(u64) -> ControlFlow<()> + Sync,
) {
    let threads = threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u64));
    let seeds = Mutex::new(seeds.fuse());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let next = seeds.lock().ok().and_then(|mut seeds| seeds.next());
                    let Some(seed) = next else { return };
                    if run(seed).is_break() {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

/// The range of this many seeds from this one on.
///
/// # Errors
/// There are not that many.
pub fn seeds(from: u64, count: u64) -> Result<Range<u64>, String> {
    let end = from.checked_add(count).ok_or_else(|| {
        format!(
            "--from {from}: there are not {count} seeds from there on; it may be {} at most",
            u64::MAX - count
        )
    })?;
    Ok(from..end)
}

/// The figures of many runs, in few lines.
#[must_use]
pub fn summary(total: &Report) -> String {
    let faults: Vec<String> = total
        .faults
        .iter()
        .map(|(kind, n)| format!("{n} {kind}"))
        .collect();
    format!(
        "{:.2} cluster-hours, {} events\n\
         cluster: {} tables, {} failovers, {} moves ({} without a snapshot, {} continued), \
         {} partitions made by splits and merges, {} partitions lost, {} maps\n\
         operations: {}, of them {} answered ({} reads at once, {} read again; {} writes by the \
         short way; {} overtaken and asked again, {} overtaken and refused; {} batches between \
         threads of a process), {} refused ({} for memory), {} unknown; {} transactions, {} not \
         executed because their key had changed; {} queries for keys, which showed {}\n\
         locks: {} granted, {} of them to owners that had waited in line, {} lost by time\n\
         waiting: {} times in line for an element, {} granted\n\
         streams and jobs: {} added, {} given to workers, {} done, {} left\n\
         tracking: {} values kept, {} stale for a while, {} times all was forgotten\n\
         subscribers: told {} changes, {} values before them, {} times went on after a bookmark, and {} times that some are missing\n\
         keys: {} expired, {} evicted; {} judged, {} undecided; \
         {} copies compared; peers congested {} times\n\
         healed within {:.2} s at worst; faults: {}",
        total.hours(),
        total.events,
        total.tables,
        total.failovers,
        total.moves,
        total.caught_up,
        total.continued,
        total.reshaped,
        total.lost,
        total.maps,
        total.operations,
        total.answered,
        total.read_at_once,
        total.reads_again,
        total.set_at_once,
        total.overtaken[0],
        total.overtaken[1],
        total.handed_over,
        total.refused,
        total.full,
        total.unknown,
        total.transactions,
        total.transactions_in_vain,
        total.finds,
        total.found,
        total.locks[0],
        total.locks[1],
        total.locks[2],
        total.waits[0],
        total.waits[1],
        total.work[0],
        total.work[1],
        total.work[2],
        total.work[3],
        total.tracked[0],
        total.tracked[1],
        total.tracked[2],
        total.told,
        total.old_values,
        total.resumed,
        total.missed,
        total.expired,
        total.evicted,
        total.judged,
        total.undecided,
        total.compared,
        total.congested,
        total.healed_ns as f64 / 1e9,
        faults.join(", ")
    )
}

/// Makes a failure small (`shrink` says how), and returns it with its story.
pub fn smallest(first: &Failed, runs_max: usize) -> (Failed, usize) {
    let (smallest, runs) =
        shrink::shrink(first, runs_max, |case| run(case, Tell::Nothing).map(|_| ()));
    match run(&smallest.case, Tell::OnFailure) {
        Err(told) => (told, runs),
        Ok(_) => (
            Failed {
                what: format!(
                    "{} (but the replay holds: this seed is not deterministic)",
                    smallest.what
                ),
                ..smallest
            },
            runs,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn kind(what: &str) -> String {
        Failed {
            case: Box::new(Case::from(1)),
            at_ns: 0,
            what: what.into(),
            faults_begun: 0,
            story: Vec::new(),
        }
        .kind()
        .to_owned()
    }

    #[test]
    fn seeds_beyond_the_last_are_refused_and_do_not_wrap() {
        assert_eq!(seeds(7, 3), Ok(7..10));
        assert_eq!(seeds(u64::MAX - 3, 3), Ok(u64::MAX - 3..u64::MAX));
        assert!(seeds(u64::MAX - 2, 3).is_err_and(|why| why.contains(&(u64::MAX - 3).to_string())));
    }

    #[test]
    fn faults_that_a_seed_does_not_have_are_refused() {
        for seed in 0..20 {
            let mut case = Case {
                faults: Some(BTreeSet::new()),
                ..Case::from(seed)
            };
            assert_eq!(
                case.unknown_fault(),
                None,
                "none of them is always possible"
            );
            let world = || world::World::new(&case, trace::Trace::new(Tell::Nothing));
            let (counted, mut run) = (world().count_faults(), world());
            assert!(run.run().is_ok(), "seed {seed} holds without faults");
            assert_eq!(
                run.next_fault, counted,
                "seed {seed}: what was counted before is what came"
            );
            case.faults = Some(BTreeSet::from([0, counted]));
            assert!(
                case.unknown_fault()
                    .is_some_and(|why| why.contains(&format!("number {counted}"))),
                "seed {seed}"
            );
            case.faults = counted.checked_sub(1).map(|last| BTreeSet::from([0, last]));
            assert_eq!(case.unknown_fault(), None, "seed {seed}");
        }
    }

    #[test]
    fn failures_of_one_kind_are_told_from_others_wherever_they_were_seen() {
        assert_eq!(kind("I5: 1a2b acknowledges 7 of 0/3 (at p3)"), "I5");
        assert_eq!(kind("I10: list-1 is not linearizable:\n1 2"), "I10");
        assert_eq!(kind("rule 9: 1.2 -> 1.3: partition 0/1"), "rule 9");
        assert_eq!(kind("table 3.4 is not valid: NoVoters"), "table ");
        assert_eq!(
            kind("panic: index out of bounds: the len is 3"),
            kind("panic: index out of bounds: the len is 4")
        );
        assert_ne!(
            kind("panic: a majority"),
            kind("panic: index out of bounds: the len is 4")
        );
    }
}
