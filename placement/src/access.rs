//! Who may do what: the users of Redis clients.
//!
//! The table has their names and rules, so that all members have them at once, and a newcomer with
//! its first table. What rules mean, only the front door knows: here, they are a line of text.

use crate::table::Invalid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Limit of users of a cluster.
pub const USERS_MAX: usize = 10_000;
/// Limit of bytes of the name of a user.
pub const USER_NAME_BYTES_MAX: usize = 256;
/// Limit of bytes of the rules of one user.
pub const USER_RULES_BYTES_MAX: usize = 64 << 10;
/// Limit of bytes of the names and rules of all users together: a table must fit into one message.
pub const ACCESS_BYTES_MAX: usize = 2 << 20;

/// Who may do what.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Access {
    /// The users of Redis clients, in order of name.
    pub users: Vec<AccessUser>,
}

/// A user of Redis clients.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AccessUser {
    /// Its name: 1 to 256 bytes, without spaces.
    pub name: Box<[u8]>,
    /// Its rules, in one line of at most 64 KiB.
    pub rules: Box<[u8]>,
}

/// A change of one user. It is made only if the user is as it is said to be before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserChange {
    /// Its name.
    pub name: Box<[u8]>,
    /// Its rules before; `None`: there is no such user.
    pub before: Option<Box<[u8]>>,
    /// Its rules afterwards; `None`: there is no such user any more.
    pub after: Option<Box<[u8]>>,
}

/// The difference of two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccessDelta {
    gone: Vec<Box<[u8]>>,
    /// New or changed users.
    users: Vec<AccessUser>,
}

impl Access {
    /// The rules of the user of this name.
    #[must_use]
    pub fn rules(&self, name: &[u8]) -> Option<&[u8]> {
        let at = self.users.binary_search_by(|user| (*user.name).cmp(name));
        at.ok().map(|at| &*self.users[at].rules)
    }

    /// Checks what must hold of every table.
    ///
    /// # Errors
    /// The first fault that is found.
    pub fn validate(&self) -> Result<(), Invalid> {
        if self.users.len() > USERS_MAX {
            return Err(Invalid::TooMany {
                what: "users of Redis clients",
                max: USERS_MAX,
            });
        }
        let (mut bytes, mut after): (usize, &[u8]) = (0, b"");
        for user in &self.users {
            if !may_be_user(&user.name) {
                return Err(Invalid::UserName);
            }
            if *user.name <= *after {
                return Err(Invalid::UserOrder);
            }
            let breaks = |byte: &u8| matches!(byte, b'\n' | b'\r' | 0);
            if user.rules.len() > USER_RULES_BYTES_MAX || user.rules.iter().any(breaks) {
                let name = String::from_utf8_lossy(&user.name).into_owned();
                return Err(Invalid::UserRules(name));
            }
            after = &user.name;
            bytes += user.name.len() + user.rules.len();
        }
        if bytes > ACCESS_BYTES_MAX {
            return Err(Invalid::TooMany {
                what: "bytes of the rules of all users together",
                max: ACCESS_BYTES_MAX,
            });
        }
        Ok(())
    }
}

/// Whether a user may have this name: it stands in lines of words.
#[must_use]
pub fn may_be_user(name: &[u8]) -> bool {
    let is_space = |byte: &u8| matches!(byte, 0 | b'\t'..=b'\r' | b' ');
    (1..=USER_NAME_BYTES_MAX).contains(&name.len()) && !name.iter().any(is_space)
}

impl AccessDelta {
    pub(crate) fn between(old: &Access, new: &Access) -> Self {
        let gone = old.users.iter().map(|user| &user.name);
        let users = new.users.iter();
        Self {
            gone: gone
                .filter(|name| new.rules(name).is_none())
                .cloned()
                .collect(),
            users: users
                .filter(|user| old.rules(&user.name) != Some(&*user.rules))
                .cloned()
                .collect(),
        }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.gone.is_empty() && self.users.is_empty()
    }

    pub(crate) fn apply(&self, old: &Access) -> Access {
        let all = old.users.iter().map(|user| (&user.name, user));
        let mut users: BTreeMap<&Box<[u8]>, &AccessUser> = all.collect();
        self.gone.iter().for_each(|name| _ = users.remove(name));
        for user in &self.users {
            users.insert(&user.name, user);
        }
        Access {
            users: users.into_values().cloned().collect(),
        }
    }
}
