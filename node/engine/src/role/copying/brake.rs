//! Answers to committed writes wait for a learner that replaces a missing copy, as long as the
//! learner lags. So the learner catches up however fast clients write.

use super::SnapshotPhase;
use crate::log::partition_log::Logged;
use crate::mutant::{self, broken};
use crate::role::calls::CallSource;
use crate::role::holding::Leading;
use crate::role::host::Host;
use doyen_placement::MemberId;
use std::time::Duration;

/// Bytes of the log that a learner may be behind when writes begin to wait for it, or as much as it
/// takes in `SMALL_WAIT`.
const ADMITTED_LAG: u64 = 256 << 10;
/// Until then, small writes wait for a learner only if it is behind by more than this.
const SMALL_LAG: u64 = 1 << 20;
/// A write of more bytes of keys and values than this is large. A write of several keys may have
/// this many times as much.
const SMALL_BYTES: usize = 128 << 10;
const SMALL_PARTS: usize = 8;
/// How long the answer to a small write waits for a learner at most, since the write came.
const SMALL_WAIT: Duration = Duration::from_millis(40);
/// How long the answer to a large write waits for a learner at most, in parts of the time after
/// which its caller gives up. A peer's caller asked it earlier.
const LARGE_WAIT_PARTS: u32 = 10;
const LARGE_WAIT: u32 = 6;
const LARGE_WAIT_PEERS: u32 = 4;

/// How answers to committed writes wait for a learner that replaces a missing copy. So writes in a
/// closed loop are no faster than what the repair leaves, and the learner catches up. Such a write
/// was executed: it cannot fail any more, it is not refused, and others do not wait behind it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Brake {
    /// How much of the log the learner has.
    acked: u64,
    /// Large writes are answered only once its acks are required.
    to_the_end: bool,
    /// Whether small writes wait for a moment, too: it lags far behind.
    small: bool,
}

impl Host {
    /// How much of the log a learner may lack when writes begin to wait for it.
    pub(super) fn admitted_lag(&self, id: MemberId) -> u64 {
        ADMITTED_LAG.max(self.peers.takes_within(id, SMALL_WAIT))
    }
}

impl Leading<'_> {
    /// How answers wait for the learners that replace missing copies. `None`: there is none.
    pub(crate) fn brake(&self, cx: &Host) -> Option<Brake> {
        if !self.lead.teaches()
            || !self.is_repaired(&cx.tables.leaving)
            || broken(&mutant::OUTRUNS_LEARNERS)
        {
            return None;
        }
        let learners = self.lead.links.iter().filter_map(|(id, link)| {
            let teaching = link.teaching.as_ref().filter(|t| t.started())?;
            if link.required || !cx.peers.up(*id) {
                return None;
            }
            let lag = self.log.bytes_between(link.acked, self.log.last());
            let (to_the_end, least) = match teaching.phase {
                SnapshotPhase::Verified(_) => (true, 0),
                SnapshotPhase::Comparable | SnapshotPhase::Comparing => (true, SMALL_LAG),
                _ => (false, SMALL_LAG),
            };
            Some(Brake {
                acked: link.acked,
                to_the_end,
                small: lag > cx.admitted_lag(*id).max(least),
            })
        });
        learners.reduce(|a, b| Brake {
            acked: a.acked.min(b.acked),
            to_the_end: a.to_the_end || b.to_the_end,
            small: a.small || b.small,
        })
    }

    /// Whether the answer to a committed call waits for a learner still.
    pub(crate) fn holds_back(&mut self, cx: &mut Host, brake: &Brake, place: usize) -> bool {
        let Some(executed) = self.calls.waiting.get_mut(place) else {
            return false;
        };
        if !executed.logged || executed.hurried {
            return false;
        }
        let lags = executed.seq > brake.acked;
        // Once the learner has the entry, it may have left the log.
        let large = executed.paced.unwrap_or_else(|| {
            let entry = self.log.entry(executed.seq);
            entry.is_some_and(|Logged { effect, .. }| {
                effect.bytes() > SMALL_BYTES * effect.parts().len().clamp(1, SMALL_PARTS)
            })
        });
        let (waits, most) = match executed.asker.source {
            _ if !large => (lags && brake.small, SMALL_WAIT),
            CallSource::Local(_) | CallSource::Waiter { .. } => (
                lags || brake.to_the_end,
                cx.limits.park / LARGE_WAIT_PARTS * LARGE_WAIT,
            ),
            CallSource::Peer { .. } => (
                lags || brake.to_the_end,
                cx.limits.park / LARGE_WAIT_PARTS * LARGE_WAIT_PEERS,
            ),
        };
        let waited = cx.limits.park.saturating_sub(executed.until.since(cx.now));
        if !waits || waited >= most {
            return false;
        }
        executed.paced = Some(large);
        if !large {
            cx.timers.wake(self.at, cx.now + (most - waited));
        }
        true
    }
}
