//! The disk of a data thread: a log in the directory of the node, and the thread that writes it.
//!
//! ```text
//!   data thread ── DiskBatch, one a pass ──> channel ──> disk thread: all that waits is one write
//!        ^                                                and one sync
//!        └── news: synced up to this batch, the length of the log; wakes the data thread ──┘
//! ```
//! What the log has is read back before the data thread serves anybody. A write that fails ends the
//! node: nobody knows what the disk has then, and other copies go on.

use crate::clock;
use crate::directory::log_files::{DataDirectory, LogFiles};
use doyen_disk::{DiskError, FoundInLog, LogEnd, LogName, LogWriter};
use doyen_engine::{
    DiskBatch, DiskPlan, DiskPort, DiskReading, DiskRecordKind, Limits, RestoredPartition, Shard,
    thread_of,
};
use doyen_gossip::Time;
use doyen_placement::PartitionRef;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// A file of the log takes no further records from this size on.
const SEGMENT_BYTES: u64 = 64 << 20;
/// About how many bytes are written together.
const GROUP_BYTES: usize = 16 << 20;

/// What the disk thread has done since it was last asked.
#[derive(Debug, Default)]
struct DiskNews {
    /// The machine and the number of the last synced batch.
    synced: Option<(u64, u64)>,
    /// The length of the log, and the partition for which its oldest file is there.
    bytes: u64,
    oldest: Option<PartitionRef>,
    failed: Option<String>,
    figures: DiskFigures,
}

/// What a disk has done since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskFigures {
    /// Syncs.
    pub syncs: u64,
    /// Records that were written.
    pub records: u64,
    /// Bytes of the log now.
    pub bytes: u64,
}

impl DiskFigures {
    pub(super) fn add(&mut self, other: &Self) {
        self.syncs += other.syncs;
        self.records += other.records;
        self.bytes += other.bytes;
    }
}

/// Reads and writes the log of one data thread.
#[derive(Debug)]
pub(super) struct DataDisk {
    /// The number of the present shard of this thread. Batches of an earlier one count no more.
    machine: u64,
    /// `None`: it ends.
    batches: Option<Sender<(u64, DiskBatch)>>,
    news: Arc<Mutex<DiskNews>>,
    thread: Option<JoinHandle<()>>,
}

fn lock(news: &Mutex<DiskNews>) -> MutexGuard<'_, DiskNews> {
    // A panic elsewhere leaves it whole: each change is an assignment.
    news.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DataDisk {
    /// Reads the log of a thread into its shard, and starts to write it. `wake` wakes the data
    /// thread.
    ///
    /// # Errors
    /// The log cannot be read, or it is of another number of threads.
    pub(super) fn open(
        directory: &DataDirectory,
        (thread, threads): (u8, u8),
        limits: &Limits,
        shard: &mut Shard,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<(Self, Vec<RestoredPartition>)> {
        let begun = Instant::now();
        let files = LogFiles::new(&directory.path);
        files.refuse_threads_from(threads)?;
        let name = LogName {
            directory: directory.id,
            thread,
        };
        let (mut plan, mut seen, mut elsewhere) = (DiskPlan::default(), BTreeMap::new(), false);
        let end = doyen_disk::read(&files, name, &mut |found| {
            if let FoundInLog::Record { head, place, .. } = found {
                elsewhere |= thread_of(head.at.partition, threads) != thread;
                seen.insert(head.at, place);
                plan.note(&head, place);
            }
        });
        let end = end.map_err(io::Error::other)?;
        if elsewhere {
            return Err(io::Error::other(format!(
                "--dir {}: its logs are of another number of data threads: start the node with \
                 --threads as before",
                directory.path.display()
            )));
        }
        let mut covers: BTreeMap<PartitionRef, u64> = plan.covers().collect();
        DiskPort::of(shard, clock::now()).begin();
        let mut restored = Vec::new();
        if let Some(table) = &directory.table {
            let now = clock::now();
            let mut restoring = DiskReading::new(table.clone(), limits.clone(), plan, now);
            let read = doyen_disk::read(&files, name, &mut |found| match found {
                FoundInLog::Record { head, place, body } => restoring.record(&head, place, body),
                FoundInLog::Damage(damage) => {
                    tracing::error!(
                        file = damage.file,
                        bytes = damage.bytes,
                        "a part of a log is damaged: the partitions that miss something are learned \
                         from other copies"
                    );
                    restoring.damage();
                }
            });
            read.map_err(io::Error::other)?;
            let refused;
            (restored, refused) = DiskPort::of(shard, now).take(clock::unix_ms(), restoring);
            for (at, why) in refused {
                tracing::error!(partition = %at, "its log is refused, because {why}");
            }
            tracing::info!(
                thread,
                partitions = restored.len(),
                took = ?begun.elapsed(),
                "read what was on the disk"
            );
        } else {
            covers.clear();
        }
        let disk = Self::write(files, name, end, (seen, covers), wake);
        Ok((disk.map_err(io::Error::other)?, restored))
    }

    /// Starts the thread that goes on with the log.
    fn write(
        files: LogFiles,
        name: LogName,
        end: LogEnd,
        (seen, covers): (BTreeMap<PartitionRef, u64>, BTreeMap<PartitionRef, u64>),
        wake: impl Fn() + Send + 'static,
    ) -> Result<Self, DiskError> {
        let mut writer = LogWriter::resume(files, name, SEGMENT_BYTES, end)?;
        let ends = writer.place();
        for at in seen.into_keys() {
            writer.cover(at, covers.get(&at).copied().unwrap_or(ends))?;
        }
        let news = Arc::new(Mutex::new(DiskNews::default()));
        let (batches, received) = channel();
        let thread = std::thread::Builder::new().name(format!("doyen-log-{}", name.thread));
        let shown = news.clone();
        let thread = thread.spawn(move || {
            let mut log = ThreadLog {
                writer,
                begun: BTreeMap::new(),
                figures: DiskFigures::default(),
            };
            log.run(&received, &shown, &wake);
        });
        let thread = thread.map_err(|source| DiskError::System {
            file: "the thread that writes the log".into(),
            what: "it cannot be started",
            source,
        })?;
        Ok(Self {
            machine: 0,
            batches: Some(batches),
            news,
            thread: Some(thread),
        })
    }

    /// Another shard has taken the place of the one before. What that one has on the disk counts no
    /// more.
    pub(super) fn restart(&mut self, shard: &mut Shard) {
        self.machine += 1;
        DiskPort::of(shard, clock::now()).begin();
    }

    /// Tells the shard what the disk has done.
    ///
    /// # Errors
    /// The disk has failed.
    pub(super) fn hear(&self, now: Time, shard: &mut Shard) -> io::Result<()> {
        let (synced, bytes, oldest) = {
            let mut news = lock(&self.news);
            if let Some(why) = news.failed.take() {
                return Err(io::Error::other(why));
            }
            (news.synced.take(), news.bytes, news.oldest)
        };
        if let Some((machine, batch)) = synced
            && machine == self.machine
        {
            let mut port = DiskPort::of(shard, now);
            port.synced(batch);
            if let Some(oldest) = oldest {
                port.free(bytes, oldest);
            }
        }
        Ok(())
    }

    /// Whether it has done nothing since it was last heard.
    pub(super) fn is_quiet(&self) -> bool {
        let news = lock(&self.news);
        news.synced.is_none() && news.failed.is_none()
    }

    /// Hands on what the shard has for the disk.
    pub(super) fn give(&self, (now, unix_ms): (Time, u64), shard: &mut Shard) {
        while let Some(batch) = DiskPort::of(shard, now).poll(unix_ms) {
            if let Some(batches) = &self.batches {
                // It fails only if the thread has ended, and then it has said why.
                _ = batches.send((self.machine, batch));
            }
        }
    }

    pub(super) fn figures(&self) -> DiskFigures {
        lock(&self.news).figures
    }
}

impl Drop for DataDisk {
    /// Waits until what was handed over is synced.
    fn drop(&mut self) {
        self.batches = None;
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            tracing::error!("the thread that writes a log panicked");
        }
    }
}

/// The log, at the thread that writes it.
struct ThreadLog {
    writer: LogWriter<LogFiles>,
    /// Where snapshots begin that have not ended.
    begun: BTreeMap<PartitionRef, u64>,
    figures: DiskFigures,
}

impl ThreadLog {
    fn run(
        &mut self,
        batches: &Receiver<(u64, DiskBatch)>,
        news: &Mutex<DiskNews>,
        wake: &impl Fn(),
    ) {
        while let Ok(first) = batches.recv() {
            let mut group = vec![first];
            let mut bytes = bytes_of(&group[0].1);
            while bytes < GROUP_BYTES
                && let Ok(next) = batches.try_recv()
            {
                bytes += bytes_of(&next.1);
                group.push(next);
            }
            let written = self.write(&group);
            let failed = written.is_err();
            {
                let mut news = lock(news);
                match written {
                    Ok(()) => news.synced = group.last().map(|(machine, b)| (*machine, b.number)),
                    Err(why) => news.failed = Some(why.to_string()),
                }
                (news.bytes, news.oldest) = (self.writer.bytes(), self.writer.uncovered());
                self.figures.bytes = news.bytes;
                news.figures = self.figures;
            }
            wake();
            if failed {
                return;
            }
        }
    }

    fn write(&mut self, group: &[(u64, DiskBatch)]) -> Result<(), DiskError> {
        let mut covers = Vec::new();
        for record in group.iter().flat_map(|(_, batch)| &batch.records) {
            let (at, place) = (record.head.at, self.writer.place());
            match DiskRecordKind::of(record.head.kind) {
                Some(DiskRecordKind::Begins) => _ = self.begun.insert(at, place),
                Some(DiskRecordKind::Ends) => {
                    covers.extend(self.begun.remove(&at).map(|begun| (at, begun)));
                }
                Some(DiskRecordKind::Dropped) => {
                    self.begun.remove(&at);
                    covers.push((at, place + 1));
                }
                _ => {}
            }
            self.writer.append(&record.head, &record.body)?;
            self.figures.records += 1;
        }
        self.writer.sync()?;
        self.figures.syncs += 1;
        for (at, place) in covers {
            if let Err(why) = self.writer.cover(at, place) {
                // It is tried again with the next one.
                tracing::warn!("{why}");
            }
        }
        Ok(())
    }
}

fn bytes_of(batch: &DiskBatch) -> usize {
    batch.records.iter().map(|record| record.body.len()).sum()
}
