//! What an action may use besides its key, and the deadlines that follow from it.

use crate::store::budget::Budget;
use crate::value::deadline;
use crate::value::entry::Entry;

/// What an action may use besides its key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunContext<'a> {
    /// The partition's clock, in milliseconds.
    pub(crate) clock: u64,
    /// The same moment as wall time, in milliseconds, to convert deadlines.
    pub(crate) unix_ms: u64,
    /// Time to live of keys that are written without one.
    pub(crate) default_ttl_ms: Option<u64>,
    /// Largest value.
    pub(crate) value_bytes_max: usize,
    /// Largest collection that is one value.
    pub(crate) packed_bytes_max: usize,
    /// The same of a hash whose fields are small.
    pub(crate) packed_small_bytes_max: usize,
    /// The level of the table: what every member knows.
    pub(crate) level: u16,
    /// What the numbers of the partition's versions count from.
    pub(crate) versions_from: u64,
    /// The number of the write that this action may make. It is above those of all earlier writes
    /// of the same cluster to its key.
    pub(crate) next_write: u64,
    /// How many callers wait for a change of the key, and were there before this one.
    pub(crate) waiting: usize,
    /// What the operation has done.
    pub(crate) budget: &'a Budget,
}

#[cfg(test)]
impl RunContext<'static> {
    /// For tests: at this time of both clocks, in a map without limits of its own, and without a
    /// bound of work.
    pub(crate) fn at(clock: u64, unix_ms: u64) -> Self {
        Self {
            clock,
            unix_ms,
            default_ttl_ms: None,
            value_bytes_max: 1 << 20,
            packed_bytes_max: 2 << 10,
            packed_small_bytes_max: 2 << 10,
            level: u16::MAX,
            versions_from: 0,
            next_write: 0,
            waiting: 0,
            budget: Budget::endless(),
        }
    }
}

impl RunContext<'_> {
    /// The moment by both clocks.
    pub(crate) const fn now(&self) -> (u64, u64) {
        (self.clock, self.unix_ms)
    }

    /// The deadline `ms` milliseconds from now.
    pub(crate) fn after(&self, ms: u64) -> u64 {
        after(self.now(), ms)
    }

    /// The wall time of a deadline, as it was given.
    pub(crate) const fn unix_ms_of(&self, deadline: u64) -> u64 {
        deadline::unix_ms(deadline, self.now())
    }
}

/// A number that no other write to the key has: the sequence of the write, counted from a number
/// that the cluster and the lineage of the partition choose, because sequences begin at 1 in each.
pub(crate) fn version(entry: Option<&Entry>, cx: &RunContext) -> Option<i64> {
    Some(
        cx.versions_from
            .wrapping_add(entry?.version())
            .cast_signed(),
    )
}

/// The deadline of a key that is created without a time to live, at a moment of the partition's
/// clock and the wall clock.
pub(crate) fn fresh(default_ttl_ms: Option<u64>, now: impl FnOnce() -> (u64, u64)) -> u64 {
    default_ttl_ms.map_or(0, |ttl| after(now(), ttl.max(1)))
}

/// The deadline `ms` milliseconds after this moment. It is never 0, which means none: the
/// partition's clock begins at 1.
pub(crate) fn after((clock, unix_ms): (u64, u64), ms: u64) -> u64 {
    deadline::new(clock.saturating_add(ms), unix_ms.saturating_add(ms))
}

/// The deadline of a key that is written without one: an existing key keeps its own.
pub(crate) fn kept(entry: Option<&Entry>, cx: &RunContext) -> u64 {
    entry.map_or_else(|| fresh(cx.default_ttl_ms, || cx.now()), |e| e.deadline())
}
