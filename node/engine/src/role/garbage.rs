//! Dropped contents. They are freed in slices, because freeing many entries takes long.

use super::timers::{Duty, Timers};
use crate::log::partition_log::Log;
use crate::store::StoredMap;

/// Maps and logs that are not freed yet.
#[derive(Debug, Default)]
pub(crate) struct Garbage {
    pub(crate) maps: Vec<StoredMap>,
    /// Tables that are still read in pages.
    walked: Vec<StoredMap>,
    pub(crate) logs: Vec<Log>,
}

impl Garbage {
    /// Adds the maps that this drops.
    #[inline]
    pub(crate) fn collect<R>(
        &mut self,
        timers: &mut Timers,
        drop: impl FnOnce(&mut Vec<StoredMap>) -> R,
    ) -> R {
        let before = self.maps.len();
        let result = drop(&mut self.maps);
        if self.maps[before..].iter().any(StoredMap::has_cursors) {
            let walked = self.maps.extract_if(before.., |map| map.has_cursors());
            self.walked.extend(walked);
        }
        if !self.maps.is_empty() {
            timers.want(Duty::Free);
        }
        result
    }

    /// A table, if this cursor is in it.
    pub(crate) fn walked(&mut self, number: u64) -> Option<&mut StoredMap> {
        self.walked.iter_mut().find_map(|map| map.walked(number))
    }

    /// Some cursors are over: their tables may be freed.
    pub(crate) fn free_walked(&mut self, timers: &mut Timers) {
        let over = self.walked.extract_if(.., |map| !map.has_cursors());
        self.maps.extend(over);
        if !self.maps.is_empty() {
            timers.want(Duty::Free);
        }
    }

    /// Adds a log.
    pub(crate) fn add(&mut self, log: Log, timers: &mut Timers) {
        self.logs.push(log);
        timers.want(Duty::Free);
    }

    /// Adds all that another shard dropped.
    pub(crate) fn inherit(&mut self, mut other: Self, timers: &mut Timers) {
        self.maps.append(&mut other.maps);
        self.maps.append(&mut other.walked);
        self.logs.append(&mut other.logs);
        if !self.is_empty() {
            timers.want(Duty::Free);
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.maps.is_empty() && self.logs.is_empty()
    }

    /// Each map and log counts as a whole until all of it is freed.
    pub(crate) fn bytes(&self) -> u64 {
        let maps = self.maps.iter().chain(&self.walked);
        let maps = maps.map(StoredMap::bytes).sum::<usize>();
        (maps + self.logs.iter().map(Log::bytes).sum::<usize>()) as u64
    }

    /// Frees about this number of `entries`.
    pub(crate) fn free(&mut self, entries: usize) {
        if let Some(map) = self.maps.last_mut() {
            if !map.shed(entries) {
                let shed = self.maps.pop();
                self.maps
                    .extend(shed.into_iter().flat_map(StoredMap::into_former));
            }
        } else if let Some(log) = self.logs.last_mut()
            && !log.shed(entries, &mut self.maps)
        {
            self.logs.pop();
        }
    }
}
