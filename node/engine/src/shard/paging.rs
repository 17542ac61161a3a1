//! Reads of large collections in pages, at their primary (`store/table_pages.rs` has the cursors).
//!
//! A cursor that nothing goes on with for some seconds ends.

use super::context::ShardContext;
use crate::role::partition::Held;
use crate::role::timers::Duty;
use crate::shard::machine::Shard;
use crate::store::Key;
use crate::value::outcome::Outcome;
use doyen_gossip::Time;
use doyen_placement::{MapId, PartitionRef};
use std::collections::BTreeMap;
use std::time::Duration;

/// Cursors of a data thread.
const CURSORS_MAX: usize = 4_096;
/// A cursor whose next page is not asked for in this time ends.
const IDLE_MAX: Duration = Duration::from_secs(3);

/// Spreads the numbers of data threads over all bits: an odd number, so that no two become one.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The cursors of a data thread, by their numbers.
pub(crate) type PageCursors = BTreeMap<u64, PageCursor>;

/// Where something cursors.
#[derive(Debug)]
pub(crate) struct PageCursor {
    at: PartitionRef,
    map: MapId,
    key: Key,
    /// Unless its next page is asked for by then, it ends.
    until: Time,
}

impl ShardContext {
    /// Reads the first page of a collection whose fields are rows. `None`: too much is read in
    /// pages already.
    pub(crate) fn begin_cursor(
        &mut self,
        held: &mut Held,
        (map, key): (MapId, &[u8]),
        clock: u64,
    ) -> Option<Outcome> {
        if self.cursors.len() >= CURSORS_MAX {
            return None;
        }
        // The next primary must not take a cursor of this one for one of its own.
        let number = (self.host.random() ^ self.host.me.0.wrapping_mul(SPREAD)).max(1);
        let before = held.bytes();
        let began = held.store.begin_cursor((map, key), number, clock);
        self.host.memory.recount(before, held.bytes());
        if !began {
            return None;
        }
        let (at, key) = (held.at, Key::from(key));
        let until = self.host.now + IDLE_MAX;
        if self.cursors.is_empty() {
            self.host.timers.set(Duty::Walk, until);
        }
        let walking = PageCursor {
            at,
            map,
            key,
            until,
        };
        self.cursors.insert(number, walking);
        self.go_on(held, number, 0).map(|(outcome, _)| outcome)
    }

    /// Reads page `page` of the cursor `number`. Returns the version that must be committed before
    /// it is answered. `None`: the cursor is lost.
    pub(crate) fn go_on(
        &mut self,
        held: &mut Held,
        number: u64,
        page: u32,
    ) -> Option<(Outcome, u64)> {
        let walking = self.cursors.get_mut(&number).filter(|w| w.at == held.at)?;
        walking.until = self.host.now + IDLE_MAX;
        let before = held.bytes();
        let place = (walking.map, &*walking.key);
        let (cursor, rows) = ((number, page), self.host.limits.page_rows);
        let garbage = &mut self.host.memory.garbage;
        let page = held
            .store
            .read_page(place, cursor, rows)
            .or_else(|| held.log.walked(number)?.read_page(cursor, rows))
            .or_else(|| garbage.walked(number)?.read_page(cursor, rows));
        if page.as_ref().is_none_or(|page| page.is_last) {
            self.cursors.remove(&number);
            self.host.memory.garbage.free_walked(&mut self.host.timers);
        }
        self.host.memory.recount(before, held.bytes());
        let page = page?;
        let outcome = Outcome::Keys {
            next: if page.is_last { 0 } else { number },
            keys: vec![page.fields],
        };
        Some((outcome, page.version))
    }
}

impl Shard {
    /// Ends the cursors that nothing went on with.
    pub(crate) fn end_cursors(&mut self, now: Time) {
        if !self.cx.host.timers.take(Duty::Walk, now) {
            return;
        }
        let (over, go_on) = std::mem::take(&mut self.cx.cursors)
            .into_iter()
            .partition(|(_, walking)| walking.until <= now);
        self.cx.cursors = go_on;
        for (number, walking) in PageCursors::into_iter(over) {
            let slot = self.slots.get_mut(walking.at);
            if let Some(held) = slot.and_then(|slot| slot.held.as_deref_mut()) {
                let before = held.bytes();
                held.store.end_cursor((walking.map, &walking.key), number);
                held.log
                    .walked(number)
                    .into_iter()
                    .for_each(|table| table.end_cursor(number));
                self.cx.host.memory.recount(before, held.bytes());
            }
            if let Some(table) = self.cx.host.memory.garbage.walked(number) {
                table.end_cursor(number);
            }
        }
        self.cx
            .host
            .memory
            .garbage
            .free_walked(&mut self.cx.host.timers);
        if let Some(next) = self.cx.cursors.values().map(|walking| walking.until).min() {
            self.cx.host.timers.set(Duty::Walk, next);
        }
    }
}
