//! The thread that writes a directory, so that nothing else waits for the disk.
//!
//! ```text
//!   control thread ── the latest of: what to store, a new key ──> slot ──> writer thread
//!         ^                                                                  │ write, sync
//!         └────────────────── DiskEvent::Synced{machine, write} ─────────────┘
//! ```
//! What is stored replaces all before it, so only the latest is written.

use super::file::{FileKind, remove};
use super::work::{AGAIN, DirectoryJob, DirectoryWork, DiskEvent};
use super::{Directory, DirectoryError, DirectoryFiles, DirectoryKey};
use doyen_gossip::agreement::Durable;
use doyen_placement::codec;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::mpsc::UnboundedSender;

/// What waits for the thread.
#[derive(Debug, Default)]
struct WriterSlot {
    work: DirectoryWork,
    ended: bool,
}

#[derive(Debug, Default)]
struct WriterQueue {
    slot: Mutex<WriterSlot>,
    changed: Condvar,
}

impl WriterQueue {
    /// A panic elsewhere leaves it whole: each change is an assignment.
    fn slot(&self) -> MutexGuard<'_, WriterSlot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hands work to the thread.
#[derive(Debug)]
pub(crate) struct DirectoryWriter {
    shared: Arc<WriterQueue>,
    thread: Option<JoinHandle<()>>,
}

impl DirectoryWriter {
    /// Starts the thread. What it says goes to `events`.
    pub(crate) fn start(
        directory: Directory,
        events: UnboundedSender<DiskEvent>,
    ) -> io::Result<Self> {
        let shared = Arc::new(WriterQueue::default());
        let mut files = directory.files;
        let thread = std::thread::Builder::new().name("doyen-disk".into());
        let thread = {
            let shared = shared.clone();
            thread.spawn(move || run(&mut files, &shared, &events))?
        };
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Stores this, instead of all before it.
    pub(crate) fn store(&self, write: u64, durable: Box<Durable>) {
        self.shared.slot().work.store(write, durable);
        self.shared.changed.notify_one();
    }

    /// The cluster went on without this process: the directory forgets everything, and has this key
    /// from now on. Returns the number of the next machine.
    pub(crate) fn begin_again(&self, seed: [u8; 32]) -> u64 {
        let machine = self.shared.slot().work.begin_again(seed);
        self.shared.changed.notify_one();
        machine
    }
}

impl Drop for DirectoryWriter {
    /// Waits until what was handed over is written, or has failed once.
    fn drop(&mut self) {
        self.shared.slot().ended = true;
        self.shared.changed.notify_one();
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            tracing::error!("the thread that writes the directory panicked");
        }
    }
}

fn run(files: &mut DirectoryFiles, shared: &WriterQueue, events: &UnboundedSender<DiskEvent>) {
    // It fails only if the control thread has ended.
    let say = |event| _ = events.send(event);
    let mut slot = shared.slot();
    loop {
        let Some(job) = slot.work.take() else {
            if slot.ended {
                return;
            }
            let woken = shared.changed.wait(slot);
            slot = woken.unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(slot);
        if let Err(why) = files.is_own() {
            return say(DiskEvent::Lost(why));
        }
        let done = carry_out(files, &job);
        slot = shared.slot();
        match done {
            Ok(()) => job.synced().into_iter().for_each(say),
            Err(e) => {
                say(DiskEvent::Failed(e.to_string()));
                if slot.ended {
                    return;
                }
                slot.work.again(job);
                let woken = shared.changed.wait_timeout(slot, AGAIN);
                slot = woken.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

fn carry_out(files: &mut DirectoryFiles, job: &DirectoryJob) -> Result<(), DirectoryError> {
    if let Some(seed) = &job.forget {
        // From then on, what is there does not count.
        files.key = DirectoryKey::new(seed.clone());
        files.write_key()?;
        remove(&files.path, FileKind::Agreement)?;
    }
    if let Some((_, durable)) = &job.store {
        let content = codec::encode_numbered(&**durable, codec::BYTES_MAX)
            .map_err(|e| FileKind::Agreement.refused(&files.path, &e.to_string()))?;
        files.replace(FileKind::Agreement, &content)?;
        if !files.key.has_agreed {
            files.key.has_agreed = true;
            let written = files.write_key();
            files.key.has_agreed = written.is_ok();
            written?;
        }
    }
    Ok(())
}
