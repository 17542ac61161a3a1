//! Which client of this thread submitted which operation, for clients that do not hear of their own
//! changes (`CLIENT TRACKING ... NOLOOP`).
//!
//! A primary tells with a change the number of its operation, if this thread submitted it. So
//! nothing besides travels with operations, and other clients cost nothing. Only the latest
//! operations are kept: at worst a client hears of a change that it made itself.

use std::collections::VecDeque;
use std::ops::Range;

/// Operations of a thread that are kept, 16 bytes each.
const KEPT_MAX: usize = 65_536;

/// The latest operations of clients that do not hear of their own changes.
#[derive(Debug, Default)]
pub(super) struct OwnOperations {
    /// Their numbers in ascending order, and their clients.
    latest: VecDeque<(u64, u64)>,
}

impl OwnOperations {
    /// A client has submitted the operations with these numbers.
    pub(super) fn note(&mut self, numbers: Range<u64>, client: u64) {
        for n in numbers {
            if self.latest.len() >= KEPT_MAX {
                self.latest.pop_front();
            }
            self.latest.push_back((n, client));
        }
    }

    /// The client that has submitted this operation, if it is kept.
    pub(super) fn client_of(&self, n: u64) -> Option<u64> {
        let at = self.latest.binary_search_by_key(&n, |(n, _)| *n).ok()?;
        self.latest.get(at).map(|(_, client)| *client)
    }

    /// Forgets all: the numbers begin again, or no client needs them.
    pub(super) fn clear(&mut self) {
        self.latest = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_operations_are_known_by_their_clients() {
        let mut own = OwnOperations::default();
        own.note(3..5, 7);
        own.note(5..5, 7);
        own.note(9..10, 8);
        let clients: Vec<_> = [2, 3, 4, 5, 9].map(|n| own.client_of(n)).into();
        assert_eq!(clients, [None, Some(7), Some(7), None, Some(8)]);
        let first = 10;
        own.note(first..first + KEPT_MAX as u64, 9);
        assert_eq!((own.client_of(9), own.client_of(10)), (None, Some(9)));
        own.clear();
        assert_eq!(own.client_of(10), None);
    }
}
