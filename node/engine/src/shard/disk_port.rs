//! What a shard gives a disk, and gets back from it.

use crate::log::disk_tail::{DiskWalk, GivenPart};
use crate::role::disk::{BatchUnderWay, DiskBatch, DiskRecordKind};
use crate::role::host::Host;
use crate::role::partition::Held;
use crate::role::restoring::{DiskReading, RestoredPartition};
use crate::role::slots::Slots;
use crate::role::timers::Duty;
use crate::shard::machine::Shard;
use doyen_gossip::Time;
use doyen_placement::{Lineage, PartitionRef};
use std::collections::BTreeSet;
use std::time::Duration;

/// A snapshot that cannot begin is looked at again after this.
const WALK_PAUSE: Duration = Duration::from_millis(50);
/// The log of the disk may have this many times the memory of its data thread, and this much more,
/// before snapshots free its oldest part.
const LOG_FACTOR: u64 = 2;
const LOG_BYTES_LEAST: u64 = 64 << 20;

/// The disk of a shard.
#[derive(Debug)]
pub struct DiskPort<'a> {
    slots: &'a mut Slots,
    host: &'a mut Host,
}

impl<'a> DiskPort<'a> {
    /// That of this shard.
    pub fn of(shard: &'a mut Shard, now: Time) -> Self {
        let host = &mut shard.cx.host;
        host.now = host.now.max(now);
        let slots = &mut shard.slots;
        Self { slots, host }
    }

    /// From now on, there is a disk. In keyspaces with durability `log`, an entry counts here once
    /// `synced` says that the disk has it.
    pub fn begin(&mut self) {
        self.host.disk.on = true;
    }
}

impl DiskPort<'_> {
    /// The next records for the disk, if there are any. Call it after each batch of inputs.
    /// `unix_ms`: wall time.
    pub fn poll(&mut self, unix_ms: u64) -> Option<DiskBatch> {
        let Self { slots, host } = self;
        if !host.disk.on {
            return None;
        }
        host.wall = (unix_ms, host.now);
        for _ in 0..host.disk.noted.len() {
            if !host.disk.has_room() {
                break;
            }
            let at = host.disk.noted.pop_front()?;
            if let Some(held) = held_mut(slots, at) {
                held.give(host);
            }
        }
        self.walk_on();
        let Self { slots, host } = self;
        if host.disk.records.is_empty() {
            return None;
        }
        host.disk.batches += 1;
        let disk = &mut host.disk;
        let parts = std::mem::take(&mut disk.touched).into_iter();
        let parts = parts.filter_map(|(at, ends)| {
            let log = &slots.get(at)?.held.as_ref()?.log;
            let part = GivenPart {
                number: log.disk.number,
                undos: log.disk.undos,
                seq: log.disk.given,
                ends,
            };
            Some((at, part))
        });
        let number = disk.batches;
        let under_way = BatchUnderWay {
            number,
            parts: parts.collect(),
            bytes: std::mem::take(&mut disk.bytes),
            walked: std::mem::take(&mut disk.walked),
        };
        disk.under_way.push_back(under_way);
        let records = std::mem::take(&mut disk.records);
        Some(DiskBatch { number, records })
    }

    /// Goes on with snapshots, as far as the disk follows.
    fn walk_on(&mut self) {
        self.host.timers.cancel(Duty::Disk);
        // Each that waits is looked at once.
        let mut looks = self.host.disk.queue.len() + 1;
        while self.host.disk.may_walk() {
            let Some(mut walk) = self.host.disk.walk.take() else {
                if looks == 0 || !self.begin_next() {
                    return;
                }
                looks -= 1;
                continue;
            };
            let Self { slots, host } = self;
            let held = held_mut(slots, walk.at);
            let Some(held) = held.filter(|held| held.log.disk.number == walk.number) else {
                continue;
            };
            // The records of a partition are in the order in which things happened.
            held.give(host);
            if !matches!(held.log.disk.walk, DiskWalk::Walking | DiskWalk::Walked(_)) {
                continue;
            }
            let stays = held.walk(host, &mut walk);
            let walked = held.log.disk.walk;
            let waits = matches!(walked, DiskWalk::Walked(end) if !held.may_end_walk(end));
            if stays {
                host.disk.walk = Some(walk);
            }
            if waits {
                return;
            }
        }
    }

    /// Begins the next snapshot. False: none waits.
    fn begin_next(&mut self) -> bool {
        let Self { slots, host } = self;
        let Some(at) = host.disk.queue.pop_front() else {
            return false;
        };
        let Some(held) = held_mut(slots, at) else {
            return true;
        };
        if held.log.disk.walk == DiskWalk::Waiting && !held.walk_from_here(host) {
            host.disk.queue.push_back(at);
            host.timers.set(Duty::Disk, host.now + WALK_PAUSE);
        }
        true
    }

    /// The disk has all records up to those of this batch.
    pub fn synced(&mut self, number: u64) {
        let Self { slots, host } = self;
        let mut primaries = BTreeSet::new();
        let under_way = &mut host.disk.under_way;
        let synced = under_way.iter().take_while(|b| b.number <= number).count();
        let synced: Vec<BatchUnderWay> = under_way.drain(..synced).collect();
        for batch in synced {
            for (at, part) in batch.parts {
                let Some(slot) = slots.get_mut(at) else {
                    continue;
                };
                let held = slot.held.as_mut();
                if !held.is_some_and(|held| held.log.disk.sync(&part)) {
                    continue;
                }
                slot.advance(host);
                if let Some(mut following) = slot.following() {
                    primaries.extend(following.acknowledge_synced(host));
                }
                host.notice(slot);
            }
        }
        for primary in primaries {
            host.send_acks(primary);
        }
        if host.disk.walk.is_some() || !host.disk.queue.is_empty() {
            host.timers.set(Duty::Disk, host.now);
        }
    }

    /// The log of the disk has this many bytes, and its oldest part is there for one partition. If
    /// it has grown too long, that partition gets another snapshot.
    pub fn free(&mut self, bytes: u64, oldest: PartitionRef) {
        let Self { slots, host } = self;
        let most = LOG_BYTES_LEAST + LOG_FACTOR * host.memory.bytes as u64;
        if bytes <= most {
            return;
        }
        match held_mut(slots, oldest) {
            Some(held) if held.log.disk.is_kept() => {
                if held.log.disk.walk == DiskWalk::Idle {
                    held.log.want_walk(host, oldest);
                }
            }
            // Nothing here needs what the log has of it.
            _ => {
                let of = (oldest, Lineage(0));
                host.disk.put(DiskRecordKind::Dropped, of, (0, 0), None);
            }
        }
    }

    /// Takes what was read from the disk, before the first view. Returns which partitions that are,
    /// and why others are refused. `unix_ms`: wall time, by which deadlines have gone on.
    pub fn take(
        &mut self,
        unix_ms: u64,
        restoring: DiskReading,
    ) -> (Vec<RestoredPartition>, Vec<(PartitionRef, &'static str)>) {
        restoring.finish(self.slots, self.host, unix_ms)
    }
}

fn held_mut(slots: &mut Slots, at: PartitionRef) -> Option<&mut Held> {
    slots.get_mut(at)?.held.as_deref_mut()
}
