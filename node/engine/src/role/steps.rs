//! Steps of work by the clock, each a bounded one for all partitions.

use super::host::Host;
use super::slots::Slots;
use super::timers::Duty;
use crate::mutant::{self, broken};
use crate::wire::visit;
use doyen_gossip::Time;
use std::time::Duration;

/// Keys expired in one step of all partitions, and the pause after it: 40,000 keys a second.
const EXPIRE_STEP: usize = 200;
const EXPIRE_PAUSE: Duration = Duration::from_millis(5);
/// Work on snapshots in one step, in handled bytes, which is some tenths of a millisecond; and the
/// pause after it, if clients wait.
const COPY_WORK_MAX: usize = 256 << 10;
const COPY_PAUSE: Duration = Duration::from_millis(1);

impl Slots {
    /// Forgets outcomes of clients.
    pub(crate) fn retire_due(&mut self, host: &mut Host, now: Time) {
        if !host.timers.take(Duty::Retire, now) {
            return;
        }
        let next = if broken(&mutant::RETIRES_EARLY) {
            visit::FRESH
        } else {
            visit::RETENTION
        };
        host.timers.set(Duty::Retire, now + next);
        self.iter_mut()
            .filter_map(|s| s.held.as_mut())
            .for_each(|h| h.dedup.retire_clients());
    }

    /// Checks whether a missing copy is on its way. It goes before copies that only balance load.
    pub(crate) fn look_for_repairs(&mut self, host: &mut Host) {
        let repairing = self
            .iter()
            .any(|slot| slot.is_repaired(&host.tables.leaving));
        host.copying.rate.set_repairing(repairing);
        host.peers.set_repairing(repairing);
    }

    /// Expires some keys of the partitions with overdue keys.
    pub(crate) fn expire_due(&mut self, host: &mut Host, now: Time) {
        if !host.timers.take(Duty::Expire, now) {
            return;
        }
        host.timers.rest(Duty::Expire, now + EXPIRE_PAUSE);
        let mut left = EXPIRE_STEP;
        while left > 0
            && let Some(at) = host.upkeep.expiring.pop_front()
        {
            let Some(slot) = self.get_mut(at) else {
                continue;
            };
            slot.expiring = slot.expire_some(host, &mut left);
            if slot.expiring {
                host.upkeep.expiring.push_back(at);
            }
            host.notice(slot);
        }
        let more = !host.upkeep.expiring.is_empty();
        host.timers.settle(Duty::Expire, more);
    }

    /// Sends some parts of the snapshots whose learners have room.
    pub(crate) fn copy_due(&mut self, host: &mut Host, now: Time) {
        if !host.timers.take(Duty::Copy, now) {
            return;
        }
        host.timers.rest(Duty::Copy, now + COPY_PAUSE);
        host.copying.rate_limited = false;
        let before = host.worked;
        let mut waiting = 0;
        while host.worked - before < COPY_WORK_MAX && waiting < host.copying.to_copy.len() {
            if let Err(next) = host.copying.rate.may_send(now) {
                let next = next.max(now + COPY_PAUSE);
                host.timers.rest(Duty::Copy, next);
                host.copying.rate_limited = true;
                break;
            }
            let Some((at, id)) = host.copying.to_copy.pop_front() else {
                break;
            };
            if host.peers.copies_wait(id) {
                host.copying.to_copy.push_back((at, id));
                waiting += 1;
            } else if let Some(slot) = self.get_mut(at) {
                if let Some(mut leading) = slot.leading() {
                    leading.send_chunk(host, id);
                }
                host.notice(slot);
            }
        }
        host.copying.stuck = waiting > 0 && waiting >= host.copying.to_copy.len();
        let more = !host.copying.to_copy.is_empty();
        host.timers.settle(Duty::Copy, more);
        host.worked = before;
    }
}
