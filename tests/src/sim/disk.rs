//! Directories (rule 14): what is on the disk of each slot, how long a sync takes, and what is left
//! when a process ends.
//!
//! ```text
//!   machine ── Output::Store ──> DirectoryWork (of production) ──> a step: written ──> synced
//!      ^                                                               │ a kill leaves either
//!      └──────────── Input::Stored ─── DiskEvent::Synced <─────────────┘ a power cut: rarely
//! ```
//! A step replaces a file as a whole, as production does with a file beside it. Files themselves,
//! their checks and the lock are not simulated.

use super::process::{ControlInput, ProcessId};
use super::schedule::{Event, MS, Nanos, SECOND};
use super::world::World;
use doyen::directory::work::{AGAIN, DirectoryJob, DirectoryWork, DiskEvent, next_start};
use doyen::net::starts::DirectoryStart;
use doyen_gossip::agreement::Durable;
use doyen_gossip::{Input, SigningSeed};
use doyen_placement::{MemberId, codec};
use rand::Rng;
use std::collections::VecDeque;

/// The longest sync, but for slow disks.
const SYNC_MAX: Nanos = 2 * SECOND;

/// What the files of a directory have.
#[derive(Debug, Clone)]
pub(crate) struct DirectoryContent {
    pub(crate) starts: u64,
    pub(crate) seed: [u8; 32],
    pub(crate) agreement: Option<Box<Durable>>,
}

/// The directory of a slot.
#[derive(Debug, Default)]
pub(crate) struct SlotDirectory {
    pub(crate) synced: Option<DirectoryContent>,
    /// What is written and may be there after a power cut, or not.
    written: Option<DirectoryContent>,
    pub(crate) slow_until: Nanos,
    pub(crate) fails_until: Nanos,
}

/// What a process does with its directory.
#[derive(Debug, Default)]
pub(crate) struct DiskWriter {
    work: DirectoryWork,
    job: Option<DirectoryJob>,
    /// What the directory has after each step of the job.
    steps: VecDeque<DirectoryContent>,
    /// The number of the machine.
    pub(crate) machine: u64,
    /// How many processes began with the directory.
    pub(crate) starts: u64,
    /// The event for which it waits. Others are out of date.
    awaits: u64,
}

impl DiskWriter {
    /// What hellos of this process say of its directory.
    pub(crate) const fn start(&self, process: MemberId) -> DirectoryStart {
        DirectoryStart::of(process, self.starts, self.machine)
    }
}

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It is killed: the system keeps what it wrote.
    Kill,
    /// The power fails.
    Power,
    /// It ends in order, and waits for its disk.
    Order,
}

impl World {
    /// A process takes the directory of its slot. Returns what does the writes, the seed of its
    /// key, and what its predecessor wrote.
    pub(crate) fn open_directory(
        &mut self,
        slot: usize,
    ) -> Option<(DiskWriter, [u8; 32], Option<Durable>)> {
        if !self.mix.directories {
            return None;
        }
        let seed = self.disks.random();
        let directory = &mut self.slots[slot].directory;
        let content = directory.synced.get_or_insert(DirectoryContent {
            starts: 0,
            seed,
            agreement: None,
        });
        content.starts = next_start(content.starts);
        let writer = DiskWriter {
            starts: content.starts,
            ..DiskWriter::default()
        };
        let (seed, agreement) = (content.seed, content.agreement.clone());
        let read = agreement.map(|durable| match reread(&durable) {
            Ok(read) => read,
            Err(why) => {
                self.broken(format!("rule 14: n{slot} cannot read its directory: {why}"));
                *durable
            }
        });
        Some((writer, seed, read))
    }

    /// The machine of a process has something to write.
    pub(crate) fn store(&mut self, p: ProcessId, write: u64, durable: Box<Durable>) {
        if let Some(writer) = &mut self.processes[p].writer {
            writer.work.store(write, durable);
            self.write_on(p);
        }
    }

    /// The cluster went on without a process: its directory forgets everything. Returns the seed of
    /// its next key.
    pub(crate) fn forget_directory(&mut self, p: ProcessId) -> Option<[u8; 32]> {
        let seed = self.disks.random();
        let me = self.processes[p].me;
        let writer = self.processes[p].writer.as_mut()?;
        writer.machine = writer.work.begin_again(seed);
        self.oracle.heirs.forgets(me);
        self.write_on(p);
        Some(seed)
    }

    /// How long a sync takes: mostly some milliseconds.
    fn sync_time(&mut self, slot: usize) -> Nanos {
        let slow = self.slots[slot].directory.slow_until > self.schedule.now();
        let most = match self.disks.random_range(0..100) {
            _ if slow => SYNC_MAX,
            0 => SYNC_MAX,
            1..10 => 200 * MS,
            _ => 10 * MS,
        };
        self.disks.random_range(MS / 10..most)
    }

    /// The thread of a directory begins its next step, if it is free.
    fn write_on(&mut self, p: ProcessId) {
        let slot = self.processes[p].slot;
        let Some(mut writer) = self.processes[p].writer.take() else {
            return;
        };
        if writer.job.is_none()
            && let Some(job) = writer.work.take()
        {
            let directory = &self.slots[slot].directory;
            let mut content = directory.synced.clone();
            if content.as_ref().is_none_or(|c| c.starts != writer.starts) {
                let lost = DiskEvent::Lost("another process has begun with it".into());
                self.disk_says(p, lost);
                return self.processes[p].writer = Some(writer);
            }
            let mut step = |change: &dyn Fn(&mut DirectoryContent)| {
                if let Some(content) = &mut content {
                    change(content);
                    writer.steps.push_back(content.clone());
                }
            };
            if let Some(seed) = &job.forget {
                step(&|content| content.agreement = None);
                step(&|content| content.seed = **seed);
            }
            if let Some((_, durable)) = &job.store {
                step(&|content| content.agreement = Some(durable.clone()));
            }
            writer.job = Some(job);
            self.begin_step(p, &mut writer);
        }
        self.processes[p].writer = Some(writer);
    }

    fn begin_step(&mut self, p: ProcessId, writer: &mut DiskWriter) {
        let slot = self.processes[p].slot;
        self.slots[slot].directory.written = writer.steps.front().cloned();
        let takes = self.sync_time(slot);
        writer.awaits += 1;
        self.schedule.after(takes, Event::Disk(p, writer.awaits));
    }

    /// A sync is over, or it is time to try again.
    pub(crate) fn disk(&mut self, p: ProcessId, event: u64) {
        let (now, slot) = (self.schedule.now(), self.processes[p].slot);
        if self.processes[p].paused_until > now {
            let until = self.processes[p].paused_until;
            return self.schedule.at(until, Event::Disk(p, event));
        }
        let Some(mut writer) = self.processes[p].writer.take() else {
            return;
        };
        if writer.awaits == event
            && let Some(job) = writer.job.take()
        {
            let fails = self.slots[slot].directory.fails_until > now;
            if fails && self.disks.random_bool(0.8) {
                // What was written may be there later or not.
                if self.disks.random_bool(0.5) {
                    self.slots[slot].directory.written = None;
                }
                writer.steps.clear();
                writer.work.again(job);
                writer.awaits += 1;
                let again = u64::try_from(AGAIN.as_nanos()).unwrap_or(SECOND);
                self.schedule.after(again, Event::Disk(p, writer.awaits));
                *self.faults.entry("failed sync").or_default() += 1;
                self.processes[p].writer = Some(writer);
                return;
            }
            let directory = &mut self.slots[slot].directory;
            directory.synced = writer.steps.pop_front();
            directory.written = None;
            if writer.steps.is_empty() {
                if let Some(said) = job.synced() {
                    self.disk_says(p, said);
                }
            } else {
                writer.job = Some(job);
                self.begin_step(p, &mut writer);
            }
        }
        self.processes[p].writer = Some(writer);
        self.write_on(p);
    }

    fn disk_says(&mut self, p: ProcessId, event: DiskEvent) {
        let delay = self.disks.random_range(1_000..200_000);
        self.schedule
            .after(delay, Event::Control(p, ControlInput::Disk(event)));
    }

    /// Does what control.rs does with what the disk says.
    pub(crate) fn on_disk(&mut self, p: ProcessId, event: DiskEvent) {
        let now = self.processes[p].clock(self.schedule.now());
        match event {
            DiskEvent::Synced { machine, write } => {
                let process = &mut self.processes[p];
                if process
                    .writer
                    .as_ref()
                    .is_some_and(|w| w.machine == machine)
                {
                    process.agreement.handle(now, Input::Stored(write));
                }
            }
            DiskEvent::Failed(_) => {}
            DiskEvent::Lost(why) => {
                self.broken(format!("rule 14: the directory of p{p} is lost: {why}"));
            }
        }
    }

    /// A process ends. What its directory has is decided here.
    pub(crate) fn close_directory(&mut self, p: ProcessId, ending: Ending) {
        let slot = self.processes[p].slot;
        let Some(mut writer) = self.processes[p].writer.take() else {
            return;
        };
        let stays = match ending {
            Ending::Order => true,
            Ending::Kill => self.disks.random_bool(0.5),
            Ending::Power => self.disks.random_bool(0.1),
        };
        let fails = self.slots[slot].directory.fails_until > self.schedule.now();
        let directory = &mut self.slots[slot].directory;
        if let Some(written) = directory.written.take().filter(|_| stays) {
            directory.synced = Some(written);
        }
        if ending != Ending::Order || fails {
            return;
        }
        if let Some(last) = writer.steps.pop_back() {
            directory.synced = Some(last);
        }
        if let (Some(job), Some(content)) = (writer.work.take(), &mut directory.synced) {
            if let Some(seed) = job.forget {
                (content.agreement, content.seed) = (None, *seed);
            }
            if let Some((_, durable)) = job.store {
                content.agreement = Some(durable);
            }
        }
    }

    /// The key of the directory of a slot, if a process of it was a member when it wrote last.
    pub(crate) fn has_seat(&self, slot: usize) -> bool {
        let Some(content) = &self.slots[slot].directory.synced else {
            return false;
        };
        let Some(durable) = &content.agreement else {
            return false;
        };
        let key = Some(SigningSeed::new(content.seed).vote_key());
        !durable.promised && durable.accepted.members.iter().any(|m| m.vote_key == key)
    }

    /// Signs as the directory says from now on.
    pub(crate) fn signs(&mut self, p: ProcessId, me: MemberId, seed: [u8; 32]) {
        let key = SigningSeed::new(seed).vote_key();
        self.processes[p].key = key;
        self.oracle.heirs.signs(me, key);
    }
}

/// What a process reads of what was written.
fn reread(durable: &Durable) -> Result<Durable, String> {
    let bytes = codec::encode_numbered(durable, codec::BYTES_MAX).map_err(|e| e.to_string())?;
    let read: Durable =
        codec::decode_numbered(&bytes, codec::BYTES_MAX).map_err(|e| e.to_string())?;
    hold!(read == *durable, "it says something else");
    Ok(read)
}
