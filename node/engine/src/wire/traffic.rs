//! Bytes to a peer and from it: what it was given, and what has arrived as it reports.

use super::api::Lane;
use super::frame::{Ack, Frame, Headroom};
use doyen_gossip::Time;
use std::time::Duration;

/// A peer reports arrived bytes each time that this part of the allowed bytes under way has arrived
/// (256 KiB).
const TOLD_PART: u64 = 32;
/// At each check, a peer reports arrived bytes if they exceed this part (64 KiB). Less may never be
/// reported.
pub(super) const UNTOLD_PART: u64 = 128;

/// Bytes of each lane.
pub(crate) type Lanes = [u64; 2];

pub(super) const CALLS: usize = index(Lane::Calls);
pub(super) const BULK: usize = index(Lane::Bulk);

/// The place of a lane in `Lanes`.
pub(crate) const fn index(lane: Lane) -> usize {
    match lane {
        Lane::Calls => 0,
        Lane::Bulk => 1,
    }
}

/// Bytes to a peer and from it since it connected.
#[derive(Debug, Default)]
pub(crate) struct PeerTraffic {
    /// Bytes of whole frames received since it connected, and when the last ones came.
    pub(crate) received: Lanes,
    /// Bytes of frames that have arrived in part.
    pub(crate) partial: Lanes,
    pub(crate) heard: Time,
    /// The last report to it: this node's memory, and the received bytes.
    pub(crate) told: (Headroom, Lanes),
    /// Most bytes of calls on their way to it; from then on it is crowded. `None`: it does not
    /// report what has arrived.
    pub(super) ahead_max: Option<u64>,
    /// How fast it takes bytes.
    flow: Flow,
    /// Whether missing copies are made from here or here.
    pub(super) repairing: bool,
    /// Bytes given to it since it connected.
    pub(super) sent: Lanes,
    /// How many of those it has reported as received.
    pub(super) said: Lanes,
    /// When it last reported more than before.
    pub(super) progressed: Time,
}

impl PeerTraffic {
    /// If the peer reports arrived bytes, it is crowded when `ahead_max` of calls are on their way.
    pub(super) fn new(ahead_max: Option<u64>, repairing: bool, now: Time) -> Self {
        Self {
            ahead_max,
            repairing,
            progressed: now,
            ..Self::default()
        }
    }

    /// How many bytes of calls may be on their way to it now. `None`: it does not report them.
    pub(super) fn ahead_most(&self) -> Option<u64> {
        let most = self.ahead_max?;
        Some(self.flow.ahead(most, self.repairing))
    }

    /// How many bytes a second it takes, if that is known.
    pub(super) fn rate(&self) -> Option<u64> {
        self.flow.rate
    }

    /// It reports arrived bytes. `waiting`: bytes of calls that are not sent yet. A report may be
    /// late, so one of fewer bytes than before is ignored.
    pub(super) fn says(&mut self, arrived: Lanes, waiting: u64, now: Time) {
        // Bytes that were not sent cannot have arrived.
        let more = |lane: usize| arrived[lane].min(self.sent[lane]).max(self.said[lane]);
        let said = [more(CALLS), more(BULK)];
        if said[CALLS] > self.said[CALLS] {
            self.progressed = now;
        }
        self.said = said;
        let idle = self.sent[CALLS] + waiting <= said[CALLS];
        self.flow.note(said[CALLS], idle, now);
    }

    /// Bytes of a lane that have arrived from it, in whole frames or not.
    pub(crate) fn arrived(&self) -> Lanes {
        [
            self.received[CALLS] + self.partial[CALLS],
            self.received[BULK] + self.partial[BULK],
        ]
    }

    /// Arrived bytes that were not reported to it.
    fn untold(&self) -> u64 {
        let (arrived, told) = (self.arrived(), self.told.1);
        arrived[CALLS].saturating_sub(told[CALLS]) + arrived[BULK].saturating_sub(told[BULK])
    }

    /// Whether these are enough to be reported at once.
    pub(crate) fn is_told_at_once(&self) -> bool {
        self.ahead_max
            .is_some_and(|most| self.untold() > most / TOLD_PART)
    }

    /// Whether these are enough to be reported at a check: more than `step`, or less if less may be
    /// on its way.
    pub(crate) fn is_told_at_look(&self, step: u64) -> bool {
        self.untold()
            > self
                .ahead_max
                .map_or(step, |most| step.min(most / UNTOLD_PART))
    }

    /// The report to it with these acks. Frames that have arrived in part will take memory, too.
    pub(crate) fn tell(&mut self, headroom: Headroom, acks: Vec<Ack>) -> Frame {
        let arrived = self.arrived();
        self.told = (headroom, arrived);
        let left = headroom.left.saturating_sub(self.partial.iter().sum());
        Frame::Acks {
            headroom: Headroom { left, ..headroom },
            arrived,
            acks,
        }
    }
}

/// How fast a peer takes bytes while some are always on their way.
#[derive(Debug, Default, Clone, Copy)]
struct Flow {
    /// The arrived bytes and the time when the present sample began.
    from: Option<(u64, Time)>,
    /// Bytes a second, in the last sample.
    rate: Option<u64>,
}

/// The shortest sample.
const FLOW_SAMPLE: Duration = Duration::from_millis(100);
/// Even to a slow peer, this part of the allowed bytes may be on their way (256 KiB).
const AHEAD_PART: u64 = 32;
/// While a missing copy is made, only this part of what may otherwise be on its way is: each of the
/// few questions and answers between a source and its learner is behind that.
const REPAIR_AHEAD_PART: u64 = 8;

impl Flow {
    /// Samples the rate: `arrived` bytes have arrived by now.
    fn note(&mut self, arrived: u64, idle: bool, now: Time) {
        match self.from {
            Some((before, since)) if now.since(since) >= FLOW_SAMPLE => {
                let micros = u64::try_from(now.since(since).as_micros())
                    .unwrap_or(u64::MAX)
                    .max(1);
                self.rate = Some(arrived.saturating_sub(before).saturating_mul(1_000_000) / micros);
                self.from = (!idle).then_some((arrived, now));
            }
            // The peer could have taken more.
            _ if idle => self.from = None,
            Some(_) => {}
            None => self.from = Some((arrived, now)),
        }
    }

    /// How much may be on its way, so that the last byte arrives within a second, and sooner while
    /// a missing copy is made.
    fn ahead(&self, most: u64, repairing: bool) -> u64 {
        let part = if repairing { REPAIR_AHEAD_PART } else { 1 };
        let ahead = self.rate.map_or(most, |rate| rate.min(most)) / part;
        ahead.max(most / AHEAD_PART)
    }
}
