//! Connections that have something to do.

use std::cell::RefCell;

/// Numbers of the connections for the next pass. A connection that is listed twice finds nothing to
/// do the second time.
#[derive(Debug, Default)]
pub(crate) struct ReadyClients(RefCell<Vec<usize>>);

impl ReadyClients {
    /// This connection has something to do.
    pub(crate) fn push(&self, at: usize) {
        self.0.borrow_mut().push(at);
    }

    /// Moves all numbers to this list.
    pub(crate) fn append_to(&self, numbers: &mut Vec<usize>) {
        numbers.append(&mut self.0.borrow_mut());
    }

    /// Whether no connection has anything to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}
