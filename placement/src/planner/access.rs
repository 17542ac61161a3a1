//! Changes of the users of Redis clients.

use crate::access::{Access, AccessUser, UserChange};
use crate::level::ACCESS;
use crate::table::{Invalid, Table};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why users are not changed. The table stays as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotGranted {
    /// The level of the table is too low.
    #[error(
        "users are kept by clusters of level {ACCESS}, and this one has level {0}: update every member first"
    )]
    Level(u16),
    /// A user is not as it was said to be.
    #[error("the user {0} was changed meanwhile: try again")]
    Changed(String),
    /// The resulting table would be invalid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl NotGranted {
    /// Whether this is the text of [`NotGranted::Changed`], of this node or another one.
    #[must_use]
    pub fn is_changed(text: &str) -> bool {
        text.starts_with("the user ") && text.ends_with(" was changed meanwhile: try again")
    }
}

/// The table with these changes of users: all of them or none. `None`: it has them already.
///
/// # Errors
/// A user is not as it was said to be before, the users would have too much text, or the level of
/// the table is too low.
pub fn change_users(table: &Table, changes: &[UserChange]) -> Result<Option<Table>, NotGranted> {
    if table.level < ACCESS {
        return Err(NotGranted::Level(table.level));
    }
    // A request that is repeated finds its own change, and that is no conflict.
    let is_so = |change: &UserChange| table.access.rules(&change.name) == change.after.as_deref();
    if changes.iter().all(is_so) {
        return Ok(None);
    }
    let all = table.access.users.iter();
    let mut users: BTreeMap<Box<[u8]>, Box<[u8]>> = all
        .map(|user| (user.name.clone(), user.rules.clone()))
        .collect();
    for UserChange {
        name,
        before,
        after,
    } in changes
    {
        if users.get(name) != before.as_ref() {
            let name = String::from_utf8_lossy(name).into_owned();
            return Err(NotGranted::Changed(name));
        }
        match after {
            Some(rules) => users.insert(name.clone(), rules.clone()),
            None => users.remove(name),
        };
    }
    let users = users
        .into_iter()
        .map(|(name, rules)| AccessUser { name, rules });
    let mut next = table.clone();
    next.access = Arc::new(Access {
        users: users.collect(),
    });
    next.validate()?;
    Ok(Some(next))
}
