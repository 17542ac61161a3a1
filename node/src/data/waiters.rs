//! Who waits for which operation.

use super::desk::Slot;
use crate::resp::session::Connection;
use std::rc::Rc;

/// Who waits.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// A reply of a connection: which slot of its queue, and which part of it. `read`: nothing is
    /// lost with the outcome.
    Reply {
        connection: Rc<Connection>,
        slot: u64,
        part: u32,
        read: bool,
    },
    /// A caller of the library.
    Call(Slot),
}

/// Waiters by token. Tokens are reused under another number, so that a late outcome finds nobody.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Entry {
    uses: u32,
    waiter: Option<Waiter>,
}

impl Waiters {
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    pub(crate) fn insert(&mut self, waiter: Waiter) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry {
                uses: 0,
                waiter: None,
            });
            // As many waiters as fit into memory are fewer than 2^32: each takes more than a
            // hundred bytes.
            u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
        });
        let entry = &mut self.entries[index as usize];
        entry.uses = entry.uses.wrapping_add(1);
        entry.waiter = Some(waiter);
        u64::from(entry.uses) << 32 | u64::from(index)
    }

    pub(crate) fn remove(&mut self, token: u64) -> Option<Waiter> {
        let index = token as u32;
        let entry = self
            .entries
            .get_mut(index as usize)
            .filter(|e| u64::from(e.uses) == token >> 32)?;
        let waiter = entry.waiter.take()?;
        self.free.push(index);
        Some(waiter)
    }

    pub(crate) fn get(&self, token: u64) -> Option<&Waiter> {
        let entry = self
            .entries
            .get(token as u32 as usize)
            .filter(|e| u64::from(e.uses) == token >> 32)?;
        entry.waiter.as_ref()
    }

    pub(crate) fn contains(&self, token: u64) -> bool {
        self.get(token).is_some()
    }

    /// Everything that waits.
    pub(crate) fn tokens(&self) -> Vec<u64> {
        let waiting = self
            .entries
            .iter()
            .zip(0_u64..)
            .filter(|(e, _)| e.waiter.is_some());
        waiting.map(|(e, i)| u64::from(e.uses) << 32 | i).collect()
    }
}
