//! Members that went: the table remembers the last of them, so that a machine that died overnight
//! is missed in the morning, although the cluster is whole again.

use crate::table::annex::{GONE_MAX, Gone, GoneMember};
use crate::table::{Annex, MemberState, Table};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Why a member that went cannot be forgotten.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotForgotten {
    /// No member of this name went.
    #[error("no member {name:?} is remembered as gone: {}", remembered(.known))]
    Unknown {
        /// The name.
        name: String,
        /// The names that are remembered.
        known: Vec<String>,
    },
}

fn remembered(names: &[String]) -> String {
    match names {
        [] => "none is".to_owned(),
        names => format!("there are {}", names.join(", ")),
    }
}

/// The table with the members that `before` has and it has not, by name. A name that a member has
/// is not remembered: a process of that name came back. `None`: nothing changes.
///
/// A member in state `Leaving` went in order, whatever happened to it at the end.
#[must_use]
pub fn note_gone(before: &Table, table: &Table) -> Option<Table> {
    let ids: BTreeSet<_> = table.members.iter().map(|m| m.id).collect();
    let names: BTreeSet<&str> = table.members.iter().map(|m| &*m.name).collect();
    // A former process whose name a newcomer has is called `NAME~AGE`: the newcomer counts.
    let went = before
        .members
        .iter()
        .filter(|m| !ids.contains(&m.id) && !m.name.contains('~'));
    let went = went.map(|m| Gone {
        id: m.id,
        name: m.name.clone(),
        why: match m.state {
            MemberState::Leaving => GoneMember::Left,
            MemberState::Live | MemberState::Draining | MemberState::Silent => GoneMember::Silent,
        },
    });
    let known = &table.annex.gone;
    let mut gone: Vec<Gone> = known.clone();
    for one in went {
        gone.retain(|known| known.name != one.name);
        gone.push(one);
    }
    gone.retain(|gone| !names.contains(&*gone.name));
    gone.drain(..gone.len().saturating_sub(GONE_MAX));
    (gone != *known).then(|| with(table, gone))
}

/// The table that does not remember this member.
///
/// # Errors
/// No member of this name went.
pub fn forget(table: &Table, name: &str) -> Result<Table, NotForgotten> {
    let mut gone = table.annex.gone.clone();
    gone.retain(|gone| gone.name != name);
    if gone.len() < table.annex.gone.len() {
        return Ok(with(table, gone));
    }
    Err(NotForgotten::Unknown {
        name: name.chars().take(64).collect(),
        known: gone.into_iter().map(|gone| gone.name).collect(),
    })
}

fn with(table: &Table, gone: Vec<Gone>) -> Table {
    let mut annex = Annex::clone(&table.annex);
    annex.gone = gone;
    Table {
        annex: Arc::new(annex),
        ..table.clone()
    }
}
