//! The network between slots: which directions are cut, how long packets take, and the data
//! connections.
//!
//! Control messages travel as datagrams (pings: lost, late, twice, in any order) or each on a
//! stream of its own (late, in any order, lost only with the connection). Data travels on ordered
//! lanes of a connection: a cut stalls it until the connection breaks, and what was in flight is
//! gone.

use super::process::{ProcessId, ThreadId};
use super::schedule::{MS, Nanos};
use doyen_engine::Lane;
use doyen_placement::MemberId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Names a connection.
pub(crate) type ConnectionId = u64;

/// A stalled lane tries again after this long.
pub(crate) const STALL: Nanos = 50 * MS;

/// A peer to which more calls are under way is congested: a few frames, so that it happens often.
pub(crate) const CONGESTED_BYTES: usize = 512;

/// What arrives at once on a connection with little bandwidth, at most.
pub(crate) const NARROW_PIECE: usize = 1 << 10;

/// Which traffic a cut stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Plane {
    Control,
    Data,
}

/// One data connection, between two data threads. End 0 dialled.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) ends: [(ThreadId, MemberId); 2],
    pub(crate) broken: bool,
    /// Bytes under way to each end, by lane.
    pub(crate) lanes: [[VecDeque<Vec<u8>>; 2]; 2],
    /// When the last chunk of a lane arrives, so that the next does not overtake it.
    pub(crate) last: [[Nanos; 2]; 2],
    /// Until when bytes to an end take all the bandwidth, both lanes together.
    pub(crate) busy_until: [Nanos; 2],
    /// Since when bytes to an end are stalled.
    pub(crate) stalled: [Option<Nanos>; 2],
    /// Whether more calls are under way to an end than `CONGESTED_BYTES`: the other end was told.
    pub(crate) congested: [bool; 2],
}

impl Connection {
    pub(crate) fn new(ends: [(ThreadId, MemberId); 2]) -> Self {
        Self {
            ends,
            broken: false,
            lanes: Default::default(),
            last: Default::default(),
            busy_until: [0; 2],
            stalled: [None; 2],
            congested: [false; 2],
        }
    }

    /// Bytes of calls under way to an end.
    pub(crate) fn calls_under_way(&self, end: usize) -> usize {
        self.lanes[end][lane_index(Lane::Calls)]
            .iter()
            .map(Vec::len)
            .sum()
    }
}

/// An index for a lane.
pub(crate) fn lane_index(lane: Lane) -> usize {
    match lane {
        Lane::Calls => 0,
        Lane::Bulk => 1,
    }
}

/// The network.
#[derive(Debug, Default)]
pub(crate) struct Network {
    /// How often each direction is cut (cuts overlap).
    cuts: BTreeMap<(Plane, usize, usize), u32>,
    /// Slots whose packets are slow, with the factor and until when.
    pub(crate) slow: BTreeMap<usize, (u64, Nanos)>,
    /// Datagrams lost, per mille, on top of the mix's, and until when.
    pub(crate) burst: (u32, Nanos),
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    pub(crate) next_connection: ConnectionId,
    /// Times that a peer was congested.
    pub(crate) congested: u64,
    /// When each process dials again by itself.
    next_dial: BTreeMap<ProcessId, Nanos>,
    /// Pairs of data threads that are dialling.
    pub(crate) dialling: BTreeSet<(ThreadId, ThreadId)>,
}

impl Network {
    /// Whether packets from one slot reach another.
    pub(crate) fn reaches(&self, plane: Plane, from: usize, to: usize) -> bool {
        from == to || self.cuts.get(&(plane, from, to)).is_none_or(|n| *n == 0)
    }

    /// Whether the process's own chain of dials goes on from here.
    pub(crate) fn dial_due(&mut self, p: ProcessId, now: Nanos, wait: Nanos) -> bool {
        let due = self.next_dial.get(&p).is_none_or(|at| *at <= now);
        if due {
            self.next_dial.insert(p, now + wait);
        }
        due
    }

    pub(crate) fn cut(&mut self, cut: &(Plane, usize, usize)) {
        *self.cuts.entry(*cut).or_default() += 1;
    }

    pub(crate) fn heal(&mut self, cut: &(Plane, usize, usize)) {
        if let Some(n) = self.cuts.get_mut(cut) {
            *n = n.saturating_sub(1);
        }
    }

    pub(crate) fn heal_all(&mut self) {
        self.cuts.clear();
        self.slow.clear();
        self.burst = (0, 0);
    }

    /// Whether anything of what a slot sends or receives is cut or slow.
    pub(crate) fn touched(&self, slot: usize) -> bool {
        let cut = self.cuts.iter().any(|((plane, from, to), n)| {
            *n > 0 && *plane == Plane::Control && (*from == slot || *to == slot)
        });
        cut || self.slow.contains_key(&slot)
    }

    /// How much slower packets between these slots are.
    pub(crate) fn slowness(&self, from: usize, to: usize) -> u64 {
        let factor = |slot| self.slow.get(slot).map_or(1, |(factor, _)| *factor);
        factor(&from).max(factor(&to))
    }
}
