//! A plan that a person confirms becomes goals: all of it or nothing, and only in the table that it
//! was made for.

use super::edit::{may_receive, states};
use super::health::copies_wanted;
use super::{Plan, adopt};
use crate::id::{MemberId, PartitionRef};
use crate::table::{MemberState, Table, TableName};
use std::collections::BTreeSet;

/// Why a plan is not applied. The table stays as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotApplied {
    /// It was made for another table.
    #[error(
        "the plan was made for table {made_for}, and table {in_force} is in force: make another \
         plan"
    )]
    OtherTable {
        /// The one that it was made for.
        made_for: TableName,
        /// The one in force.
        in_force: TableName,
    },
    /// One of its goals is not possible.
    #[error("the plan cannot be applied: partition {at} {why}")]
    Goal {
        /// The partition.
        at: PartitionRef,
        /// What is wrong.
        why: &'static str,
    },
}

/// The table with these goals.
///
/// # Errors The plan was made for another table, or a goal names a partition or members that do not
/// exist, or too many or too few members.
pub fn apply(table: &Table, made_for: TableName, goals: &Plan) -> Result<Table, NotApplied> {
    let in_force = table.name();
    if made_for != in_force {
        return Err(NotApplied::OtherTable { made_for, in_force });
    }
    let receivers: BTreeSet<MemberId> = table
        .members
        .iter()
        .filter(|m| may_receive(m))
        .map(|m| m.id)
        .collect();
    let states = states(table);
    let mut known = BTreeSet::new();
    for (at, goal) in goals {
        let wrong = |why| Err(NotApplied::Goal { at: *at, why });
        let (Some(partition), Some(keyspace)) = (table.partition(*at), table.keyspace(at.keyspace))
        else {
            return wrong("is not there");
        };
        if !known.insert(*at) {
            return wrong("is named twice");
        }
        if states.get(&partition.primary()) == Some(&MemberState::Silent) {
            return wrong("has a primary that does not answer");
        }
        if goal.iter().any(|m| !receivers.contains(m)) {
            return wrong("would go to a process that is no member that may hold data");
        }
        if goal.iter().collect::<BTreeSet<_>>().len() != goal.len() {
            return wrong("would have two copies on one member");
        }
        if goal.len() != copies_wanted(keyspace, receivers.len()) {
            return wrong("would have another number of copies than its keyspace wants");
        }
    }
    Ok(adopt(table, goals))
}
