//! Connections that have something to do.

use std::cell::RefCell;

/// Numbers of connections for the next pass. One that comes twice looks twice, and finds nothing
/// the second time.
#[derive(Debug, Default)]
pub(crate) struct Ready(RefCell<Vec<usize>>);

impl Ready {
    /// This connection has something to do.
    pub(crate) fn push(&self, at: usize) {
        self.0.borrow_mut().push(at);
    }

    /// Moves all of them so far.
    pub(crate) fn append_to(&self, numbers: &mut Vec<usize>) {
        numbers.append(&mut self.0.borrow_mut());
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}
