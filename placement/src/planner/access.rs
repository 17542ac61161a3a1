//! Changes of who may do what.

use crate::access::{AccessChange, AccessToken, TokenRole};
use crate::table::{Annex, Invalid, Table};
use std::sync::Arc;

/// Why users, tokens and allowed weights are not changed. The table stays as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotGranted {
    /// A user, a token or an allowed weight is not as it was said to be.
    #[error("the {what} {name} was changed meanwhile: try again")]
    Changed {
        /// `user`, `token` or `weight that is allowed for`.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// No token with the role operate would be left.
    #[error(
        "with this, requests would need a token and none could make changes: first make a token \
         with the role operate (`doyen token new NAME --role operate`), or revoke all others"
    )]
    NoOperator,
    /// The resulting table would be invalid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// The table with this change of users, tokens and allowed weights: all of it or nothing. `None`:
/// it has it already.
///
/// # Errors
/// A user, a token or an allowed weight is not as it was said to be before, or there would be too
/// many or too much text.
pub fn change_access(table: &Table, change: &AccessChange) -> Result<Option<Table>, NotGranted> {
    // A request that is repeated finds its own change, and that is no conflict.
    if table.access.has(change) {
        return Ok(None);
    }
    let access = table.access.changed(change);
    let access = access.map_err(|(what, name)| NotGranted::Changed { what, name })?;
    let operates = |token: &AccessToken| token.grant.role == TokenRole::Operate;
    if change.keep_operate && !access.tokens.is_empty() && !access.tokens.iter().any(operates) {
        return Err(NotGranted::NoOperator);
    }
    let next = Table {
        access: Arc::new(access),
        ..table.clone()
    };
    next.validate()?;
    Ok(Some(next))
}

/// The table in which all nodes tell Redis clients these messages about keys. `None`: it has that
/// already.
#[must_use]
pub fn tell_of_keys(table: &Table, events: u32) -> Option<Table> {
    let annex = Annex {
        key_events: Some(events),
        ..(*table.annex).clone()
    };
    (annex != *table.annex).then(|| Table {
        annex: Arc::new(annex),
        ..table.clone()
    })
}
