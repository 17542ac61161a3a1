//! Threads with a connection each, which write keys. Keys are in no order among each other.

use super::link::{NodeLink, Server, no_database};
use super::progress::{MigrationProgress, READ};
use super::restoring::Restoring;
use crate::CommandFailed;
use doyen::resp::client::{Reply, nothing_happened};
use doyen_rdb::{RdbError, RdbReader};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What a connection sends at once.
const BATCH_KEYS: usize = 256;
const BATCH_BYTES: usize = 512 << 10;
/// Keys that wait for a connection.
const QUEUE: usize = 1_024;
/// How long keys that nodes do not take at the moment are tried.
pub(super) const RETRY_MAX: Duration = Duration::from_secs(60);
pub(super) const RETRY_EVERY: Duration = Duration::from_millis(100);
/// What is said of a key that was deleted, and of whose parts a node refused one.
const IN_PART: &str = "; only a part of the key is there now: delete it, or import it again";

/// What was done.
#[derive(Debug)]
pub(super) struct MigrationTally {
    began: Instant,
    pub(super) keys: u64,
    pub(super) expired: u64,
    pub(super) commands: u64,
    /// Libraries of functions that were left out.
    pub(super) functions: u64,
    /// What was refused, by what it is and why.
    pub(super) refused: BTreeMap<(String, String), RefusedKeys>,
    /// All keys before this one are done, and those.
    next: u64,
    done: BTreeSet<u64>,
}

/// Keys that were refused for one reason.
#[derive(Debug, Default)]
pub(super) struct RefusedKeys {
    pub(super) count: u64,
    pub(super) first: Vec<u8>,
}

impl MigrationTally {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            keys: 0,
            expired: 0,
            commands: 0,
            functions: 0,
            refused: BTreeMap::new(),
            next: 0,
            done: BTreeSet::new(),
        }
    }

    pub(super) fn took(&self) -> Duration {
        self.began.elapsed()
    }

    /// How many keys are done from the first on.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Whether nothing was refused.
    pub(super) fn is_whole(&self) -> bool {
        self.refused.is_empty()
    }

    pub(super) fn refuse(&mut self, what: &str, why: &str, key: &[u8]) {
        // The words of a node about unknown commands repeat arguments.
        let why = why.split(", with args").next().unwrap_or(why);
        let refused = self
            .refused
            .entry((what.to_owned(), why.to_owned()))
            .or_default();
        refused.count += 1;
        if refused.count == 1 {
            refused.first = key.to_vec();
        }
    }

    fn is_done(&mut self, number: u64) {
        self.done.insert(number);
        while self.done.remove(&self.next) {
            self.next += 1;
        }
    }
}

/// What the threads share.
#[derive(Debug)]
struct Shared {
    tally: Mutex<MigrationTally>,
    /// Why one of them ended.
    failed: Mutex<Option<CommandFailed>>,
    has_failed: AtomicBool,
    /// The largest value that all nodes take.
    value_max: AtomicUsize,
}

impl Shared {
    fn tally(&self) -> MutexGuard<'_, MigrationTally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, why: CommandFailed) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert(why);
        self.has_failed.store(true, Ordering::Relaxed);
    }
}

pub(super) struct Writers {
    shared: Arc<Shared>,
    queue: SyncSender<(u64, Restoring)>,
    threads: Vec<JoinHandle<()>>,
    put: std::cell::Cell<u64>,
}

type RestoreQueue = Arc<Mutex<Receiver<(u64, Restoring)>>>;

impl Writers {
    /// Writes the keys of a file, of this database or of all. The file has this many bytes, if that
    /// is known.
    pub(super) fn put_file<R: Read>(
        &self,
        file: &mut RdbReader<R>,
        (size, database): (Option<u64>, Option<u64>),
        failed: impl Fn(RdbError) -> CommandFailed,
    ) -> Result<(), CommandFailed> {
        let (mut progress, mut number) = (MigrationProgress::new(READ, size), 0);
        while let Some(found) = file.next() {
            let found = found.map_err(&failed)?;
            number += 1;
            progress.show(number, file.offset());
            if database.is_none_or(|only| only == found.database) {
                self.put(Restoring::new(found))?;
            }
        }
        progress.end();
        self.shared.tally().functions += file.functions();
        Ok(())
    }

    /// Starts the threads, which are spread over the servers.
    pub(super) fn start(servers: &[Server], connections: u16) -> Result<Self, CommandFailed> {
        let shared = Arc::new(Shared {
            tally: Mutex::new(MigrationTally::new()),
            failed: Mutex::new(None),
            has_failed: AtomicBool::new(false),
            value_max: AtomicUsize::new(usize::MAX),
        });
        let (queue, taken) = sync_channel(QUEUE);
        let taken: RestoreQueue = Arc::new(Mutex::new(taken));
        let mut threads = Vec::new();
        for number in 0..usize::from(connections) {
            let mut servers = servers.to_vec();
            let first = number % servers.len();
            servers.rotate_left(first);
            let mut node = NodeLink::connect(&servers)?;
            let value_max = node.link()?.value_max()?;
            shared.value_max.fetch_min(value_max, Ordering::Relaxed);
            let (shared, taken) = (Arc::clone(&shared), Arc::clone(&taken));
            threads.push(std::thread::spawn(move || {
                let mut writer = Writer {
                    shared: &shared,
                    node,
                };
                while let Some(batch) = next_batch(&taken) {
                    // What is left in the queue stays undone then.
                    if !shared.has_failed.load(Ordering::Relaxed)
                        && let Err(failed) = writer.write(batch)
                    {
                        shared.fail(failed);
                    }
                }
            }));
        }
        Ok(Self {
            shared,
            queue,
            threads,
            put: std::cell::Cell::new(0),
        })
    }

    /// A connection will write this key.
    ///
    /// # Errors
    /// Some earlier key could not be written.
    pub(super) fn put(&self, restoring: Restoring) -> Result<(), CommandFailed> {
        if self.shared.has_failed.load(Ordering::Relaxed) {
            return Err(CommandFailed::new("some keys could not be written"));
        }
        let number = self.put.replace(self.put.get() + 1);
        let gone = |_| CommandFailed::new("the threads that write have ended");
        self.queue.send((number, restoring)).map_err(gone)
    }

    /// Waits for all keys, from the one with this number on.
    pub(super) fn finish(self, first: u64) -> (MigrationTally, Result<(), CommandFailed>) {
        drop(self.queue);
        for thread in self.threads {
            // A thread that panicked has said why, and its keys are not done.
            if thread.join().is_err() {
                self.shared
                    .fail(CommandFailed::new("a thread that writes has ended"));
            }
        }
        let mut tally = std::mem::replace(&mut *self.shared.tally(), MigrationTally::new());
        tally.next += first;
        let mut failed = self
            .shared
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        (tally, failed.take().map_or(Ok(()), Err))
    }
}

/// The keys that are sent together. `None`: there are no more.
fn next_batch(queue: &RestoreQueue) -> Option<Vec<(u64, Restoring)>> {
    let queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    let first = queue.recv().ok()?;
    let mut bytes = first.1.bytes;
    let mut batch = vec![first];
    while batch.len() < BATCH_KEYS
        && bytes < BATCH_BYTES
        && let Ok(next) = queue.try_recv()
    {
        bytes += next.1.bytes;
        batch.push(next);
    }
    Some(batch)
}

struct Writer<'a> {
    shared: &'a Shared,
    node: NodeLink,
}

impl Writer<'_> {
    /// Writes keys, until each is written or refused.
    fn write(&mut self, batch: Vec<(u64, Restoring)>) -> Result<(), CommandFailed> {
        let began = Instant::now();
        let mut by_database: BTreeMap<u64, Vec<(u64, Restoring)>> = BTreeMap::new();
        for (number, restoring) in batch {
            if restoring.has_expired(now_ms()) {
                let mut tally = self.shared.tally();
                tally.expired += 1;
                tally.is_done(number);
                continue;
            }
            let database = by_database.entry(restoring.of.database).or_default();
            database.push((number, restoring));
        }
        for (database, mut left) in by_database {
            while !left.is_empty() {
                match self.attempt(database, left) {
                    (rest, None) => left = rest,
                    (_, Some(failed)) if began.elapsed() >= RETRY_MAX => return Err(failed),
                    (rest, Some(_)) => {
                        left = rest;
                        std::thread::sleep(RETRY_EVERY);
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes keys of a database once. Returns those that are to be tried again, and why.
    fn attempt(
        &mut self,
        database: u64,
        batch: Vec<(u64, Restoring)>,
    ) -> (Vec<(u64, Restoring)>, Option<CommandFailed>) {
        let link = match self.node.link() {
            Ok(link) => link,
            Err(failed) => return (batch, Some(failed)),
        };
        let value_max = self.shared.value_max.load(Ordering::Relaxed);
        let (mut commands, mut counts) = (Vec::new(), Vec::new());
        for (_, restoring) in &batch {
            let of_key = restoring.commands(value_max);
            counts.push(of_key.as_ref().map(Vec::len).map_err(Clone::clone));
            commands.extend(of_key.unwrap_or_default());
        }
        let replies = match link.try_select(database) {
            Ok(None) => link.pipeline(&commands).map(Ok),
            Ok(Some(why)) => Ok(Err(why)),
            Err(failed) => Err(failed),
        };
        let replies = match replies {
            Ok(Ok(replies)) => replies,
            Ok(Err(why)) if nothing_happened(&why) => return (batch, Some(link.failed(why))),
            Ok(Err(why)) => {
                self.has_no_database(batch, (database, why));
                return (Vec::new(), None);
            }
            // What was sent may be done, and is done again.
            Err(failed) => {
                self.node.leave();
                return (batch, Some(failed));
            }
        };
        let (mut again, mut why) = (Vec::new(), None);
        let mut replies = replies.into_iter();
        let mut tally = self.shared.tally();
        for ((number, restoring), count) in batch.into_iter().zip(counts) {
            let refused = match count {
                Err(why) => Some(why),
                Ok(count) => {
                    let error = |(at, reply)| match reply {
                        Reply::Error(why) if at == 0 => Some(why),
                        Reply::Error(why) => Some(format!("{why}{IN_PART}")),
                        _ => None,
                    };
                    let errors = replies.by_ref().take(count).enumerate().filter_map(error);
                    // All replies of the key are taken.
                    errors.fold(None, |first, why| first.or(Some(why)))
                }
            };
            match refused {
                Some(error) if nothing_happened(&error) || error.starts_with("UNKNOWN") => {
                    why = Some(link.failed(error));
                    again.push((number, restoring));
                    continue;
                }
                Some(why) => tally.refuse(restoring.of.value.type_name(), &why, &restoring.of.key),
                None => tally.keys += 1,
            }
            tally.is_done(number);
        }
        (again, why)
    }

    /// A node refuses the database of these keys.
    fn has_no_database(&self, batch: Vec<(u64, Restoring)>, (database, why): (u64, String)) {
        let (mut tally, why) = (self.shared.tally(), no_database(database, &why));
        for (number, restoring) in batch {
            tally.refuse(restoring.of.value.type_name(), &why, &restoring.of.key);
            tally.is_done(number);
        }
    }
}

/// The wall time in milliseconds.
pub(super) fn now_ms() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
