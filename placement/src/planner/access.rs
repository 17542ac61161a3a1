//! Changes of who may do what.

use crate::access::{
    Access, AccessChange, AccessToken, AccessUser, AccessWeight, Grant, TokenChange, TokenRole,
    UserChange, WeightChange,
};
use crate::table::{Invalid, Table};
use std::collections::BTreeMap;
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
/// A user, a token or an allowed weight is not as it was said to be before, or there would be too many
/// or too much text.
pub fn change_access(table: &Table, change: &AccessChange) -> Result<Option<Table>, NotGranted> {
    let access = &table.access;
    // A request that is repeated finds its own change, and that is no conflict.
    let has_user = |user: &UserChange| access.rules(&user.name) == user.after.as_deref();
    let has_token = |token: &TokenChange| access.grant(&token.name) == token.after;
    let has_weight = |weight: &WeightChange| access.weight(&weight.name) == weight.after;
    if change.users.iter().all(has_user)
        && change.tokens.iter().all(has_token)
        && change.weights.iter().all(has_weight)
    {
        return Ok(None);
    }
    let all = access.users.iter();
    let mut users: BTreeMap<_, _> = all
        .map(|user| (user.name.clone(), user.rules.clone()))
        .collect();
    for user in &change.users {
        let (before, after) = (user.before.as_ref(), user.after.as_ref());
        replace(&mut users, &user.name, before, after).map_err(|()| NotGranted::Changed {
            what: "user",
            name: String::from_utf8_lossy(&user.name).into_owned(),
        })?;
    }
    let all = access.tokens.iter();
    let mut tokens: BTreeMap<_, _> = all.map(|token| (token.name.clone(), token.grant)).collect();
    for token in &change.tokens {
        let (before, after) = (token.before.as_ref(), token.after.as_ref());
        replace(&mut tokens, &token.name, before, after).map_err(|()| NotGranted::Changed {
            what: "token",
            name: token.name.clone(),
        })?;
    }
    let all = access.weights.iter();
    let mut weights: BTreeMap<_, _> = all
        .map(|allowed| (allowed.name.clone(), allowed.weight))
        .collect();
    for weight in &change.weights {
        let (before, after) = (weight.before.as_ref(), weight.after.as_ref());
        replace(&mut weights, &weight.name, before, after).map_err(|()| NotGranted::Changed {
            what: "weight that is allowed for",
            name: weight.name.clone(),
        })?;
    }
    let operates = |grant: &Grant| grant.role == TokenRole::Operate;
    if change.keep_operate && !tokens.is_empty() && !tokens.values().any(operates) {
        return Err(NotGranted::NoOperator);
    }
    let users = users.into_iter();
    let tokens = tokens.into_iter();
    let weights = weights.into_iter();
    let mut next = table.clone();
    next.access = Arc::new(Access {
        users: users
            .map(|(name, rules)| AccessUser { name, rules })
            .collect(),
        tokens: tokens
            .map(|(name, grant)| AccessToken { name, grant })
            .collect(),
        weights: weights
            .map(|(name, weight)| AccessWeight { name, weight })
            .collect(),
    });
    next.validate()?;
    Ok(Some(next))
}

/// Replaces an entry that must be as it is said to be before.
fn replace<N: Ord + Clone, V: PartialEq + Clone>(
    entries: &mut BTreeMap<N, V>,
    name: &N,
    before: Option<&V>,
    after: Option<&V>,
) -> Result<(), ()> {
    if entries.get(name) != before {
        return Err(());
    }
    match after {
        Some(value) => entries.insert(name.clone(), value.clone()),
        None => entries.remove(name),
    };
    Ok(())
}
