//! Evicts keys because memory is full: which members are full, and how much each primary evicts.
//!
//! ```text
//!   of --memory-max, or of a data thread's part of it:
//!   0 ──────────── 88 % ── 90 % ── 92.5 % ──────── 100 %
//!     no eviction    <──────┤ full: writes that grow make room or are refused, primaries evict
//!                           ├─ lent ─┤ only to a write that makes its own room
//!                           ├─ kept: tails, data under way ─┤ no write that grows
//! ```
//! A member is full by everything that it holds, as primary and as copy. Acks say how full other
//! members are. Only primaries evict, by deletions in the log, as for expiry. So all copies lose
//! the same keys, and a full copy is relieved by the primaries of its partitions. Every 100 ms, a
//! primary checks how much is too much, and evicts no more than that until the next check. A
//! deletion frees memory only once it is committed and out of the log, so a primary that did not
//! wait would evict far too much. For the same reason, a member that has not reported since the
//! last check does not count.
//!
//! A write that finds a member full makes its own room (`Host::make_room`), so writes cannot
//! outrun eviction, however fast they come. If its partition has nothing to evict, other partitions
//! make room for it. They may be slower, so only a small part is lent meanwhile.
//!
//! A value may be larger than all of that. Then its write waits, and the next check evicts as much
//! more at the members that lack the room (`Pressure::lack`). If this thread leads no keys there
//! that may be evicted, only other primaries can help. After a second without any such keys, writes
//! are refused at once.
//!
//! An evicted key may be larger than the write for which it goes; then the next writes to the
//! partition take what it left over. Evicting a key for each of them would free no memory sooner:
//! where values of another size lay, memory is free only after compaction (`role/compaction.rs`).
//!
//! If only writes evicted, the work would not be fair: a primary that hears later that there is
//! room again evicts more, until its partitions keep keys only for a moment. So if a write had to
//! make room, the next check treats the member as full, and evicts down to 88 %. It takes from each
//! partition in proportion to its size.

use super::partition::{Held, Slot};
use super::timers::Duty;
use super::upkeep_queue::UPKEEP;
use crate::role::calls::{CallSource, PendingCall};
use crate::role::host::Host;
use crate::role::room::{Room, needed};
use crate::role::slots::Slots;
use crate::store::{Effect, EvictionQuota, Victim};
use crate::value::cause::{By, Cause};
use crate::value::outcome::{Failure, Outcome};
use crate::wire::frame::Headroom;
use crate::wire::pressure::lacking_max;
use doyen_gossip::Time;
use doyen_placement::loads::FULL;
use doyen_placement::{Eviction, MapId, PartitionRef};
use std::time::Duration;

/// Time between two checks of how much is too much.
const LOOK: Duration = UPKEEP.saturating_mul(2);
/// Most keys that one step evicts from all partitions, and the pause after it: 40,000 keys a
/// second.
const STEP: usize = 200;
const PAUSE: Duration = Duration::from_millis(5);
/// In its turn, each partition gives this part of its keys, whether it is small or large.
const TURN_PART: usize = 128;
/// Most keys that one write evicts.
const BY_WRITE: usize = 16;
/// A write without any room checks again after this.
const ROOM_PAUSE: Duration = Duration::from_millis(5);
/// After the last write that looked for room, each check looks for so long whether there are keys
/// that could be evicted.
const SURVEYS: Duration = Duration::from_secs(10);
/// A local write that waits for room is refused so long before its caller gives up, and a peer's
/// write this part of the patience earlier, so that the caller hears the reason.
const REFUSE_BEFORE: Duration = UPKEEP.saturating_mul(2);
const REFUSE_PEERS_PART: u32 = 5;

/// How many evicted keys are remembered.
#[cfg(any(test, feature = "fuzz"))]
const GONE_MAX: usize = 1024;

/// How it stands with the members that have too little room for a write.
struct Outlook {
    /// One of them has less left than is kept, even without that write.
    full: bool,
    /// One of them has not had anything to evict for long.
    hopeless: bool,
    /// The write needs more than is evicted at one of them.
    too_large: bool,
}

/// What happens to a write that found no room.
pub(crate) enum Made {
    /// There is room now.
    Room,
    /// There will be room once deletions are committed.
    Soon,
    /// The write is refused.
    No(Failure),
}

impl Slots {
    /// Checks which members are full.
    pub(crate) fn look_at_memory(&mut self, host: &mut Host, now: Time) {
        let cx = &mut *host;
        if now < cx.memory.evicting.next_look || cx.me.is_client() {
            return;
        }
        cx.memory.evicting.next_look = now + LOOK;
        self.look_at_loose(host, now);
        self.look_at_bounds(host);
        let cx = &mut *host;
        // Every thread with primaries of that member's partitions does its part. For this member
        // itself, it is all that this thread leads.
        let members = cx
            .tables
            .view
            .as_ref()
            .map_or(1, |v| v.installed.members.len()) as u64;
        let pressed = std::mem::take(&mut cx.memory.evicting.pressed);
        let waiting = std::mem::take(&mut cx.memory.evicting.waiting);
        for (at, bytes) in &waiting {
            let slot = self.get(*at);
            let waits = slot.filter(|slot| !slot.calls.parked.is_empty());
            if let Some(held) = waits.and_then(|slot| slot.held.as_deref()) {
                cx.memory.evicting.own.lack(*bytes);
                held.copies().for_each(|id| cx.peers.lack(id, *bytes));
            }
        }
        cx.memory.evicting.waited = waiting;
        let room = cx.headroom();
        cx.look_at_readers(room);
        cx.memory.evicting.own.look(room, 1, pressed);
        cx.peers.look_at_memory(members, pressed);
        if !cx.has_excess() {
            cx.memory.evicting.queue.clear();
            cx.timers.cancel(Duty::Evict);
        }
        if !cx.has_excess() && now.since(cx.memory.evicting.sought) >= SURVEYS {
            cx.memory.evicting.own.forget_survey();
            cx.peers.forget_survey();
        } else if cx.memory.evicting.queue.is_empty() {
            self.note_evictable(host);
        }
    }

    /// Gives each partition its turn, in which it may lose keys, and notes for which members there
    /// are none.
    fn note_evictable(&mut self, host: &mut Host) {
        let cx = &mut *host;
        // The first turn goes to a random partition, in proportion to its keys. Often there is
        // little to do and the first does all of it: a partition that was always first would lose
        // everything.
        let (mut first, mut seen) = (0, 0);
        // The same among all, in case that each has too few keys for a turn.
        let (mut any, mut all) = (None, 0);
        for slot in self.iter() {
            let policy = slot.evicts_by();
            let held = slot.held.as_deref();
            let Some(held) = held.filter(|held| held.evicts(cx, policy)) else {
                continue;
            };
            let keys = held.store.evictable(policy);
            if keys == 0 {
                continue;
            }
            cx.memory.evicting.own.bears();
            held.copies().for_each(|id| cx.peers.bears(id));
            if held.excess_of(cx) == 0 {
                continue;
            }
            all += keys as u64;
            if cx.random() % all < keys as u64 {
                any = Some(slot.at);
            }
            // The fraction of a key is rounded at random.
            let more = (cx.random() % TURN_PART as u64) < (keys % TURN_PART) as u64;
            let turn = keys / TURN_PART + usize::from(more);
            if turn > 0 {
                seen += keys as u64;
                if cx.random() % seen < keys as u64 {
                    first = cx.memory.evicting.queue.len();
                }
                cx.memory.evicting.queue.push_back((slot.at, turn));
            }
        }
        let evicting = &mut cx.memory.evicting;
        evicting.own.end_survey(cx.now);
        cx.peers.end_survey(cx.now);
        evicting.queue.rotate_left(first);
        if evicting.queue.is_empty() {
            evicting.queue.extend(any.map(|at| (at, 1)));
        }
        if !evicting.queue.is_empty() {
            cx.timers.want(Duty::Evict);
        }
    }

    /// Evicts some keys.
    pub(crate) fn evict_due(&mut self, host: &mut Host, now: Time) {
        if !host.timers.take(Duty::Evict, now) {
            return;
        }
        host.timers.rest(Duty::Evict, now + PAUSE);
        let mut left = STEP;
        while left > 0
            && let Some((at, turn)) = host.memory.evicting.queue.pop_front()
        {
            let Some(slot) = self.get_mut(at) else {
                continue;
            };
            let some = turn.min(left);
            if turn > some {
                host.memory.evicting.queue.push_front((at, turn - some));
            }
            slot.evict_some(host, some);
            host.notice(slot);
            left -= some;
        }
        if !host.memory.evicting.queue.is_empty() {
            host.timers.want(Duty::Evict);
        } else if host.has_excess() {
            self.note_evictable(host);
        }
    }
}

impl Host {
    /// The memory that this thread has left.
    pub(crate) fn headroom(&self) -> Headroom {
        let (left, kept) = self.left_and_kept();
        Headroom {
            left,
            kept,
            loose: self.loosening(),
        }
    }

    /// The bytes that this thread has left, and how many of them it keeps.
    pub(crate) fn left_and_kept(&self) -> (u64, u64) {
        let max = self.limits.memory_bytes_max;
        let left = max.saturating_sub(self.memory_held()) as u64;
        (left, max as u64 / 100 * (100 - u64::from(FULL)))
    }

    fn has_excess(&self) -> bool {
        self.memory.evicting.own.excess() > 0 || self.peers.has_excess()
    }

    /// Whether a write waits too long for room, and is refused. It is not executed until then, so
    /// its caller hears the reason.
    pub(crate) fn is_late(&mut self, call: &PendingCall) -> bool {
        let before = match call.source {
            CallSource::Local(_) | CallSource::Waiter { .. } => REFUSE_BEFORE,
            CallSource::Peer { .. } => self.limits.park / REFUSE_PEERS_PART,
        };
        let late = !call.maybe && call.until <= self.now + before;
        self.stats.refused += u64::from(late);
        late
    }

    fn wait_for_eviction(&mut self, at: PartitionRef, bytes: usize) -> Made {
        self.memory
            .evicting
            .waiting
            .insert(at, needed(bytes) as u64);
        self.soon(at)
    }

    /// The calls of a partition wait a moment.
    pub(crate) fn soon(&mut self, at: PartitionRef) -> Made {
        self.timers.wake(at, self.now + ROOM_PAUSE);
        Made::Soon
    }

    fn no_room(&mut self) -> Made {
        self.stats.refused += 1;
        Made::No(Failure::OutOfMemory)
    }
}

impl Held {
    /// Whether this thread may evict keys of a partition: its policy allows it, all of it is here,
    /// and this thread serves it as the primary.
    fn evicts(&self, host: &Host, policy: Eviction) -> bool {
        policy != Eviction::None && self.leads_whole(host)
    }

    /// Whether all of a partition is here, and this thread serves it as the primary.
    pub(crate) fn leads_whole(&self, host: &Host) -> bool {
        host.used && self.store.is_whole() && self.lead().is_some_and(|l| l.open && l.serving)
    }

    /// How much is too much at this member, or at one of the members with a copy of this partition.
    fn excess_of(&self, host: &Host) -> u64 {
        let copies = self.copies().map(|id| host.peers.excess(id));
        copies.fold(host.memory.evicting.own.excess(), u64::max)
    }

    /// Deletes keys, as logged effects without an operation.
    pub(crate) fn evict(&mut self, host: &mut Host, victims: Vec<Victim>) {
        for Victim {
            map,
            order,
            key,
            bytes,
        } in victims
        {
            #[cfg(any(test, feature = "fuzz"))]
            {
                host.memory.evicting.gone.truncate(GONE_MAX - 1);
                host.memory
                    .evicting
                    .gone
                    .push_front((self.at, map, key.clone()));
            }
            let cause = Cause::Evicted;
            let effect = Effect::Delete { map, key, cause };
            self.log(host, order, effect, (None, By::UNKNOWN), Outcome::Ok);
            host.stats.evicted += 1;
            host.memory.evicting.own.relieve(bytes);
            for (id, _) in self.lead().into_iter().flat_map(|l| l.links.iter()) {
                host.peers.relieve(*id, bytes);
            }
        }
    }

    /// A write of `bytes` to this key found only this `room`. Other keys are evicted, if any may
    /// be.
    pub(crate) fn make_room(
        &mut self,
        host: &mut Host,
        policy: Eviction,
        key: (MapId, &[u8]),
        bytes: usize,
        room: Room,
    ) -> Made {
        let at = self.at;
        if host.squeeze_readers() {
            return host.soon(at);
        }
        // If memory is given back in a moment, a pause is better.
        let soon = self.settled_room(host, bytes) > room;
        if policy == Eviction::None {
            return if soon { host.soon(at) } else { host.no_room() };
        }
        let Outlook {
            full, too_large, ..
        } = self.outlook(host, bytes);
        if too_large {
            return if soon { host.soon(at) } else { host.no_room() };
        }
        host.memory.evicting.sought = host.now;
        // More deletions would only make it worse while earlier ones are not committed.
        let waits = room == Room::None && (soon || self.log.committed() < self.log.last());
        let evicts = !waits && self.evicts(host, policy);
        let mut makes = waits;
        if evicts && room != Room::None && self.store.takes_surplus(needed(bytes)) {
            makes = true;
        } else if evicts {
            let random = host.random();
            let wanted = EvictionQuota {
                keys: BY_WRITE,
                bytes: needed(bytes),
                urgent: true,
            };
            let victims = self.store.victims(policy, wanted, random, Some(key));
            let freed = victims.iter().map(|victim| victim.bytes).sum();
            makes |= !victims.is_empty();
            host.memory.evicting.pressed |= !victims.is_empty();
            self.store.leaves_surplus(freed, needed(bytes));
            self.evict(host, victims);
        }
        let hopeless = self.outlook(host, bytes).hopeless;
        match self.room(host, bytes) {
            Room::Plenty => Made::Room,
            // A member that is not full yet is full with this value. Then all primaries evict.
            Room::Kept | Room::Lent if makes || !full => Made::Room,
            // If nothing of this partition may be evicted, other partitions make room.
            Room::Lent if !hopeless => Made::Room,
            Room::None if makes => host.wait_for_eviction(at, bytes),
            Room::None | Room::Kept if !hopeless => host.wait_for_eviction(at, bytes),
            Room::None | Room::Kept | Room::Lent => host.no_room(),
        }
    }

    /// Whether waiting will help: which members lack room for a write of `bytes`, and whether they
    /// free it.
    fn outlook(&self, host: &Host, bytes: usize) -> Outlook {
        let needed = needed(bytes) as u64;
        let copies = self.copies().map(|id| {
            let (room, under_way) = host.peers.said(id);
            (room, under_way, host.peers.pressure(id))
        });
        let own = std::iter::once((host.headroom(), 0, host.memory.evicting.own));
        let mut outlook = Outlook {
            full: false,
            hopeless: false,
            too_large: false,
        };
        for (room, under_way, pressure) in own.chain(copies) {
            let left = room.left.saturating_sub(under_way);
            if left.saturating_sub(needed) < room.kept {
                outlook.full |= left < room.kept;
                outlook.hopeless |= pressure.is_hopeless(host.now);
                outlook.too_large |= needed > lacking_max(room);
            }
        }
        outlook
    }
}

impl Slot {
    /// Evicts some keys of one partition.
    fn evict_some(&mut self, host: &mut Host, keys: usize) {
        let (policy, random) = (self.evicts_by(), host.random());
        let Some(held) = self
            .held
            .as_deref_mut()
            .filter(|held| held.evicts(host, policy))
        else {
            return;
        };
        let bytes = usize::try_from(held.excess_of(host)).unwrap_or(usize::MAX);
        let victims = held.store.victims(
            policy,
            EvictionQuota {
                keys,
                bytes,
                urgent: false,
            },
            random,
            None,
        );
        held.evict(host, victims);
        // Without copies, no ack will commit it.
        self.advance(host);
    }
}
