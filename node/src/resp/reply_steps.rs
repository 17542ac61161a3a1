//! Replies of one data thread that are not whole yet: those whose next step is due, those whose
//! clients wait in line, and those that are left of connections that have ended.

use super::session::Connection;
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

/// A connection, and the number of its reply.
type ReplyOf = (Rc<Connection>, u64);

/// Replies that are not whole yet.
#[derive(Debug, Default)]
pub(super) struct ReplySteps {
    /// Those whose next step is due.
    due: VecDeque<ReplyOf>,
    /// How many clients wait in line. In a cell, because their replies count themselves.
    waiting: Rc<Cell<u64>>,
    /// Connections that have ended, with operations that put back what was taken for them.
    leaving: Vec<Rc<Connection>>,
}

impl ReplySteps {
    /// A reply has a next step.
    pub(super) fn push(&mut self, reply: ReplyOf) {
        self.due.push_back(reply);
    }

    /// Takes the reply whose step was due first.
    pub(super) fn next(&mut self) -> Option<ReplyOf> {
        self.due.pop_front()
    }

    /// How many steps are due.
    pub(super) fn len(&self) -> usize {
        self.due.len()
    }

    /// Clients that wait in line are counted here.
    pub(super) const fn waiting(&self) -> &Rc<Cell<u64>> {
        &self.waiting
    }

    /// A connection has ended, and something is put back that was taken for it.
    pub(super) fn leaves(&mut self, connection: Rc<Connection>) {
        self.leaving.retain(|connection| !connection.is_answered());
        self.leaving.push(connection);
    }

    /// Whether all is put back.
    pub(super) fn is_put_back(&self) -> bool {
        self.leaving
            .iter()
            .all(|connection| connection.is_answered())
    }
}
