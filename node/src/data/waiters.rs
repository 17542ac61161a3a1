//! The recipients of outcomes.

use super::inbox::InboxSlot;
use super::latency::CommandFamily;
use doyen_gossip::Time;

/// The recipient of the outcome of an operation.
#[derive(Debug)]
pub(super) enum Recipient<W> {
    /// A client of the front end.
    Client(W),
    /// A caller of the library. If its time is counted: what it asked for, and when the pass began
    /// that took it.
    Call(InboxSlot, Option<(CommandFamily, Time)>),
}

/// Recipients by token. A reused token has another number, so a late outcome finds no recipient.
#[derive(Debug)]
pub(super) struct Waiters<W> {
    entries: Vec<WaiterEntry<W>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct WaiterEntry<W> {
    uses: u32,
    recipient: Option<Recipient<W>>,
}

impl<W> Waiters<W> {
    pub(super) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    pub(super) fn insert(&mut self, recipient: Recipient<W>) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(WaiterEntry {
                uses: 0,
                recipient: None,
            });
            // Fewer than 2^32 waiters fit into memory: each takes more than a hundred bytes.
            u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
        });
        let entry = &mut self.entries[index as usize];
        entry.uses = entry.uses.wrapping_add(1);
        entry.recipient = Some(recipient);
        u64::from(entry.uses) << 32 | u64::from(index)
    }

    pub(super) fn remove(&mut self, token: u64) -> Option<Recipient<W>> {
        let index = token as u32;
        let entry = self
            .entries
            .get_mut(index as usize)
            .filter(|e| u64::from(e.uses) == token >> 32)?;
        let recipient = entry.recipient.take()?;
        self.free.push(index);
        Some(recipient)
    }

    pub(super) fn get(&self, token: u64) -> Option<&Recipient<W>> {
        let entry = self
            .entries
            .get(token as u32 as usize)
            .filter(|e| u64::from(e.uses) == token >> 32)?;
        entry.recipient.as_ref()
    }

    pub(super) fn contains(&self, token: u64) -> bool {
        self.get(token).is_some()
    }

    /// The tokens of all waiters.
    pub(super) fn tokens(&self) -> Vec<u64> {
        let waiting = self
            .entries
            .iter()
            .zip(0_u64..)
            .filter(|(e, _)| e.recipient.is_some());
        waiting.map(|(e, i)| u64::from(e.uses) << 32 | i).collect()
    }
}
