//! Plans of moves, made on another thread.

use doyen_placement::planner::{self, PlannedChanges};
use doyen_placement::{Loads, Table, TableName};
use std::sync::Arc;
use tokio::sync::mpsc::Sender;

/// Plans one table at a time. Of the tables that wait, only the newest matters.
pub(super) struct Planning {
    under_way: bool,
    next: Option<(Arc<Table>, Arc<Loads>)>,
    done: Sender<(TableName, PlannedChanges)>,
}

impl Planning {
    pub(super) fn new(done: Sender<(TableName, PlannedChanges)>) -> Self {
        Self {
            under_way: false,
            next: None,
            done,
        }
    }

    pub(super) fn plan(&mut self, table: Arc<Table>, loads: Arc<Loads>) {
        if self.under_way {
            self.next = Some((table, loads));
            return;
        }
        self.under_way = true;
        let done = self.done.clone();
        // The runtime owns the task, and waits for it when the thread ends.
        tokio::task::spawn_blocking(move || {
            let proposal = planner::propose(&table, &loads);
            // Sending fails only if the control thread is ending.
            let _ = done.blocking_send((table.name(), proposal));
        });
    }

    /// A plan is made: the table that waits comes next.
    pub(super) fn done(&mut self) {
        self.under_way = false;
        if let Some((table, loads)) = self.next.take() {
            self.plan(table, loads);
        }
    }

    /// The table that waits is of a cluster that has expelled this node.
    pub(super) fn forget(&mut self) {
        self.next = None;
    }
}
