//! Copies that do not acknowledge: which are slow, and which are silent.

use super::traffic::{CALLS, PeerTraffic, UNTOLD_PART};
use crate::mutant::{self, broken};
use doyen_gossip::Time;
use doyen_placement::MemberId;
use std::collections::BTreeSet;
use std::time::Duration;

/// A link that carries less than this, in bytes a second, is too slow for a copy: writes would wait
/// for it until their callers give up.
const RATE_LEAST: u64 = 512 << 10;
/// An ack may be behind this many parts of the bytes that may be on their way to a peer, because
/// the peer sends much, too.
const BACK_PARTS: u64 = 4;
/// A copy that has acknowledged nothing of what has arrived there for this long is silent, however
/// late threads are.
const LATE_SILENCE_MAX: Duration = Duration::from_secs(10);

/// What a copy has not acknowledged: since when, and since when it could have.
///
/// A copy is silent only if it could acknowledge and does not. Its entries may be behind megabytes
/// that its peer was sent earlier, also for other partitions, and its ack behind megabytes that the
/// peer sends. While bytes flow, the copy is slow and not silent. Once nothing arrives in either
/// direction, or less than `RATE_LEAST`, it is silent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AckWait {
    /// When the wait began, or when the copy last acknowledged something.
    since: Time,
    /// What it was given. `None`: the missing entries are still in the log, or are about to be sent
    /// again.
    given: Option<GivenBytes>,
    /// The missing entries were sent before.
    again: bool,
    /// When all that it had been given had first arrived.
    arrived: Option<Time>,
    /// How late this thread and the copy's had been when the wait began, in total. `None`: that is
    /// taken at the first look.
    late: Option<Duration>,
}

/// The bytes of calls that a peer had been given when the last unacknowledged entry was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct GivenBytes {
    pub(super) bytes: u64,
    /// How many of these were on their way then.
    pub(super) ahead: u64,
    /// Bytes that had come from the peer by then, or by the time when all of those had arrived
    /// there.
    pub(super) back: u64,
    /// When all of them had arrived.
    pub(super) arrived: Option<Time>,
    /// How late both threads had been by then, in total.
    pub(super) late: Duration,
}

impl AckWait {
    /// A wait for entries that it was not given yet.
    pub(crate) const fn for_room(since: Time) -> Self {
        Self {
            since,
            given: None,
            again: false,
            arrived: None,
            late: None,
        }
    }

    /// The missing entries are sent once more, on this connection or another one. That does not
    /// change when the copy counts as silent.
    pub(crate) fn again(self) -> Self {
        let arrived = self.given.and_then(|given| given.arrived);
        Self {
            since: arrived.map_or(self.since, |arrived| arrived.max(self.since)),
            given: None,
            again: true,
            ..self
        }
    }

    /// For how long it could have acknowledged something. `peer` is `None` if it is not connected,
    /// and `late` says how late both threads have been in total. That time does not count, up to a
    /// limit: otherwise a peer that is always late would hold up writes for ever.
    pub(super) fn silence(
        &mut self,
        now: Time,
        peer: Option<&PeerTraffic>,
        late: Duration,
    ) -> Duration {
        let silence = self.flows(now, peer);
        let before = *self.late.get_or_insert(late);
        // What was refused is sent again and arrives again, so the first arrival counts.
        let unacknowledged = self.arrived.map_or(Duration::ZERO, |at| now.since(at));
        let most = silence.max(unacknowledged);
        if most >= LATE_SILENCE_MAX && !broken(&mutant::BELIEVES_LATE_FOR_EVER) {
            return most;
        }
        silence.saturating_sub(late.saturating_sub(before))
    }

    /// The same, however late threads are.
    fn flows(&mut self, now: Time, peer: Option<&PeerTraffic>) -> Duration {
        let Some(peer) = peer.filter(|_| !broken(&mutant::SLOW_IS_SILENT)) else {
            return now.since(self.since);
        };
        let flowed = peer.progressed.max(peer.heard);
        let Some(given) = &mut self.given else {
            return now.since(self.since.max(flowed));
        };
        let most = peer.ahead_max.unwrap_or_default();
        let came = peer.arrived()[CALLS];
        if given.arrived.is_none()
            && peer.said[CALLS].saturating_add(most / UNTOLD_PART) >= given.bytes
        {
            given.arrived = Some(now);
            given.back = came;
            self.arrived.get_or_insert(now);
        }
        let (since, ahead) = match given.arrived {
            Some(arrived) => (arrived.max(self.since), 0),
            None => (self.since, given.ahead),
        };
        let back = came
            .saturating_sub(given.back)
            .min(most.saturating_mul(BACK_PARTS));
        let takes = Duration::from_millis((ahead + back).saturating_mul(1000) / RATE_LEAST);
        now.since(since.max(flowed))
            .max(now.since(since).saturating_sub(takes))
    }

    /// For how long everything that it was given has been there, as of the last check. A peer
    /// reports arrived bytes in the frame of their acks. So entries that are not acknowledged then
    /// were refused, however much other data flows.
    pub(crate) fn arrived_for(&self, now: Time) -> Duration {
        let arrived = self.given.and_then(|given| given.arrived);
        arrived.map_or(Duration::ZERO, |arrived| now.since(arrived.max(self.since)))
    }
}

/// The result of sending a log entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppendSent {
    /// Whether the head was sent with it.
    pub(crate) head: bool,
    pub(super) given: GivenBytes,
}

impl AppendSent {
    /// From now on, the ack of the copy is awaited, if it is not already.
    pub(crate) fn note(self, wait: &mut Option<AckWait>, now: Time) {
        note_given(wait, self.given, now);
    }
}

/// A copy was given something: its ack is awaited from now on. An earlier wait is not changed.
pub(super) fn note_given(wait: &mut Option<AckWait>, given: GivenBytes, now: Time) {
    match wait {
        Some(AckWait { given: Some(_), .. }) => {}
        Some(wait @ AckWait { again: true, .. }) => {
            wait.given = Some(given);
            wait.again = false;
            wait.late.get_or_insert(given.late);
        }
        _ => {
            *wait = Some(AckWait {
                given: Some(given),
                late: Some(given.late),
                ..AckWait::for_room(now)
            })
        }
    }
}

/// Peers that did not acknowledge in time, and have acknowledged nothing since: other partitions
/// need not wait for them as long again.
#[derive(Debug, Default)]
pub(crate) struct Silent(BTreeSet<MemberId>);

impl Silent {
    /// A copy at this peer did not acknowledge in time.
    pub(crate) fn note(&mut self, id: MemberId) {
        self.0.insert(id);
    }

    /// A copy at this peer acknowledges.
    #[inline]
    pub(crate) fn note_heard(&mut self, id: MemberId) {
        if !self.0.is_empty() {
            self.0.remove(&id);
        }
    }

    /// Whether a copy at this peer did not acknowledge in time, and has acknowledged nothing since.
    pub(crate) fn has(&self, id: MemberId) -> bool {
        self.0.contains(&id)
    }

    /// Forgets those that are no members.
    pub(crate) fn retain(&mut self, member: impl Fn(MemberId) -> bool) {
        self.0.retain(|id| member(*id));
    }
}
