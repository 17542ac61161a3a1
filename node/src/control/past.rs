//! What was before: tables, and members that went.

use super::GoneFor;
use doyen_gossip::Time;
use doyen_placement::{MemberId, Table};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Former tables that are kept, to tell what is new since then.
const FORMER_MAX: usize = 8;

#[derive(Default)]
pub(super) struct Past {
    /// Tables that were in force before, to tell what is new since then.
    tables: VecDeque<Arc<Table>>,
    /// Since when this node has known each member that went, and whether it went before that.
    gone: BTreeMap<MemberId, (Time, bool)>,
}

impl Past {
    /// This table is in force no more.
    pub(super) fn replaced(&mut self, table: Arc<Table>) {
        self.tables.push_back(table);
        if self.tables.len() > FORMER_MAX {
            self.tables.pop_front();
        }
    }

    pub(super) fn tables(&self) -> Vec<Arc<Table>> {
        self.tables.iter().cloned().collect()
    }

    /// Counts for how long members have been gone. `first`: this node was no member before, so it
    /// does not know what went before.
    pub(super) fn follow_gone(&mut self, now: Time, first: bool, table: &Table) {
        let gone = &table.annex.gone;
        self.gone
            .retain(|id, _| gone.iter().any(|gone| gone.id == *id));
        for gone in gone {
            self.gone.entry(gone.id).or_insert((now, first));
        }
    }

    pub(super) fn gone(&self, now: Time) -> BTreeMap<MemberId, GoneFor> {
        let gone = self.gone.iter().map(|(id, (since, longer))| {
            let (known, longer) = (now.since(*since), *longer);
            (*id, GoneFor { known, longer })
        });
        gone.collect()
    }
}
