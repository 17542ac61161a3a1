//! Who may do what: the users of Redis clients, the tokens of HTTP, and the weights that operators
//! allow.
//!
//! The table has them, so that all members have them at once, and a newcomer with its first table.
//! What the rules of users mean, only the front end knows: here, they are a line of text. Of a
//! token, the table has only the hash.

use crate::table::Invalid;
use crate::table::validate::{self, WEIGHT_MAX};
use minicbor::{Decode, Encode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// Limit of users of a cluster.
pub const USERS_MAX: usize = 10_000;
/// Limit of bytes of the name of a user.
pub const USER_NAME_BYTES_MAX: usize = 256;
/// Limit of bytes of the rules of one user.
pub const USER_RULES_BYTES_MAX: usize = 64 << 10;
/// Limit of bytes of the names and rules of all users together: a table must fit into one message.
pub const ACCESS_BYTES_MAX: usize = 2 << 20;

/// Limit of tokens of a cluster.
pub const TOKENS_MAX: usize = 256;
/// Limit of bytes of the name of a token.
pub const TOKEN_NAME_BYTES_MAX: usize = 64;

/// Limit of allowed weights of a cluster.
pub const WEIGHTS_MAX: usize = 1024;

/// Who may do what.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AccessSettings {
    /// The users of Redis clients, in order of name.
    pub users: Vec<AccessUser>,
    /// The tokens of HTTP, in order of name.
    pub tokens: Vec<AccessToken>,
    /// The weights that newcomers may have though they are far above those of the members, in order
    /// of name ([`too_heavy`](crate::planner::too_heavy)).
    pub weights: Vec<AccessWeight>,
}

/// A user of Redis clients.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AccessUser {
    /// Its name: 1 to 256 bytes, without spaces.
    pub name: Box<[u8]>,
    /// Its rules, in one line of at most 64 KiB.
    pub rules: Box<[u8]>,
}

/// A token of HTTP.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AccessToken {
    /// Its name, as [`may_be_token`] takes it.
    pub name: String,
    /// What it opens.
    pub grant: TokenGrant,
}

/// A weight that is allowed for members of a name, however much the others' weights are below it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AccessWeight {
    /// The name of the member: 1 to 64 bytes. It need not be a member yet.
    pub name: String,
    /// The highest weight that is allowed for it: 1 to 100,000.
    pub weight: u32,
}

/// What a token opens, and how it is recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TokenGrant {
    /// What its holder may do.
    pub role: TokenRole,
    /// The SHA-256 of the token.
    pub sha256: [u8; 32],
    /// When it was made, in Unix seconds.
    pub made: u64,
}

/// What the holder of a token may do. A higher role includes the lower one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TokenRole {
    /// See the state of the cluster, without keys.
    Read,
    /// See everything, and change the cluster.
    Operate,
}

crate::tagged!(TokenRole {
    0 => Read {},
    1 => Operate {},
});

impl fmt::Display for TokenRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Operate => "operate",
        })
    }
}

/// There is no such role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the role of a token is read or operate")]
pub struct NoTokenRole;

impl FromStr for TokenRole {
    type Err = NoTokenRole;

    fn from_str(text: &str) -> Result<Self, NoTokenRole> {
        match text {
            "read" => Ok(Self::Read),
            "operate" => Ok(Self::Operate),
            _ => Err(NoTokenRole),
        }
    }
}

/// A change of users, tokens and allowed weights: all of it or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct AccessChange {
    /// The users that change.
    #[n(0)]
    pub users: Vec<UserChange>,
    /// The tokens that change.
    #[n(1)]
    pub tokens: Vec<TokenChange>,
    /// The allowed weights that change.
    #[n(2)]
    pub weights: Vec<WeightChange>,
    /// Whether one of the tokens that are left, if there are any, must have the role operate: the
    /// node that was asked takes no other proof of an operator.
    #[n(3)]
    pub keep_operate: bool,
}

/// A change of one entry of a list. It is made only if the entry is as it is said to be before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryChange<N, V> {
    /// Its name.
    pub name: N,
    /// What it has before; `None`: there is no such entry.
    pub before: Option<V>,
    /// What it has afterwards; `None`: there is no such entry any more.
    pub after: Option<V>,
}

/// A change of one user: its rules.
pub type UserChange = EntryChange<Box<[u8]>, Box<[u8]>>;
/// A change of one token: what it opens.
pub type TokenChange = EntryChange<String, TokenGrant>;
/// A change of one weight that is allowed for members of a name.
pub type WeightChange = EntryChange<String, u32>;

/// The difference of two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccessDelta {
    users: ListDelta<AccessUser>,
    tokens: ListDelta<AccessToken>,
    weights: ListDelta<AccessWeight>,
}

/// The difference of two lists that are in order of name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound = "E: AccessEntry")]
struct ListDelta<E: AccessEntry> {
    gone: Vec<E::Name>,
    /// New or changed entries.
    put: Vec<E>,
}

/// An entry of a list that is in order of name.
trait AccessEntry: Clone + PartialEq + Serialize + DeserializeOwned {
    type Name: Ord + Clone + Serialize + DeserializeOwned + fmt::Debug + AsRef<[u8]>;
    type Value: Clone + PartialEq;

    /// What it is, for people.
    const WHAT: &'static str;

    fn new(name: Self::Name, value: Self::Value) -> Self;
    fn name(&self) -> &Self::Name;
    fn value(&self) -> &Self::Value;
}

impl AccessEntry for AccessUser {
    type Name = Box<[u8]>;
    type Value = Box<[u8]>;

    const WHAT: &'static str = "user";

    fn new(name: Box<[u8]>, rules: Box<[u8]>) -> Self {
        Self { name, rules }
    }

    fn name(&self) -> &Box<[u8]> {
        &self.name
    }

    fn value(&self) -> &Box<[u8]> {
        &self.rules
    }
}

impl AccessEntry for AccessToken {
    type Name = String;
    type Value = TokenGrant;

    const WHAT: &'static str = "token";

    fn new(name: String, grant: TokenGrant) -> Self {
        Self { name, grant }
    }

    fn name(&self) -> &String {
        &self.name
    }

    fn value(&self) -> &TokenGrant {
        &self.grant
    }
}

impl AccessEntry for AccessWeight {
    type Name = String;
    type Value = u32;

    const WHAT: &'static str = "weight that is allowed for";

    fn new(name: String, weight: u32) -> Self {
        Self { name, weight }
    }

    fn name(&self) -> &String {
        &self.name
    }

    fn value(&self) -> &u32 {
        &self.weight
    }
}

/// What the entry of this name has.
fn find<'a, E: AccessEntry, N: Ord + ?Sized>(entries: &'a [E], name: &N) -> Option<&'a E::Value>
where
    E::Name: Borrow<N>,
{
    let at = entries.binary_search_by(|entry| Borrow::<N>::borrow(entry.name()).cmp(name));
    at.ok().map(|at| entries[at].value())
}

/// Whether a list is as these changes make it.
fn has<E: AccessEntry>(entries: &[E], changes: &[EntryChange<E::Name, E::Value>]) -> bool {
    let has = |change: &EntryChange<_, _>| find(entries, &change.name) == change.after.as_ref();
    changes.iter().all(has)
}

/// A list with these changes.
///
/// # Errors
/// What is not as it is said to be before, and its name.
fn changed<E: AccessEntry>(
    entries: &[E],
    changes: &[EntryChange<E::Name, E::Value>],
) -> Result<Vec<E>, (&'static str, String)> {
    let all = entries.iter().map(|entry| (entry.name(), entry.value()));
    let mut all: BTreeMap<_, _> = all.collect();
    for EntryChange {
        name,
        before,
        after,
    } in changes
    {
        if all.get(name).copied() != before.as_ref() {
            let name = String::from_utf8_lossy(name.as_ref()).into_owned();
            return Err((E::WHAT, name));
        }
        match after {
            Some(value) => all.insert(name, value),
            None => all.remove(name),
        };
    }
    let all = all.into_iter();
    Ok(all
        .map(|(name, value)| E::new(name.clone(), value.clone()))
        .collect())
}

impl AccessSettings {
    /// These users, in order of name, and nothing else.
    #[must_use]
    pub fn of_users(users: Vec<AccessUser>) -> Self {
        Self {
            users,
            ..Self::default()
        }
    }

    /// The rules of the user of this name.
    #[must_use]
    pub fn rules(&self, name: &[u8]) -> Option<&[u8]> {
        find(&self.users, name).map(|rules| &**rules)
    }

    /// What the token of this name opens.
    #[must_use]
    pub fn grant(&self, name: &str) -> Option<TokenGrant> {
        find(&self.tokens, name).copied()
    }

    /// The weight that is allowed for members of this name.
    #[must_use]
    pub fn weight(&self, name: &str) -> Option<u32> {
        find(&self.weights, name).copied()
    }

    /// Whether it is as this change makes it.
    pub(crate) fn has(&self, change: &AccessChange) -> bool {
        has(&self.users, &change.users)
            && has(&self.tokens, &change.tokens)
            && has(&self.weights, &change.weights)
    }

    /// The same with this change.
    ///
    /// # Errors
    /// What is not as it is said to be before, and its name.
    pub(crate) fn changed(&self, change: &AccessChange) -> Result<Self, (&'static str, String)> {
        Ok(Self {
            users: changed(&self.users, &change.users)?,
            tokens: changed(&self.tokens, &change.tokens)?,
            weights: changed(&self.weights, &change.weights)?,
        })
    }

    /// Checks what must hold of every table.
    ///
    /// # Errors
    /// The first fault that is found.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.validate_users()?;
        self.validate_tokens()?;
        self.validate_weights()
    }

    fn validate_users(&self) -> Result<(), Invalid> {
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

    fn validate_tokens(&self) -> Result<(), Invalid> {
        if self.tokens.len() > TOKENS_MAX {
            return Err(Invalid::TooMany {
                what: "tokens of HTTP",
                max: TOKENS_MAX,
            });
        }
        if self.tokens.iter().any(|token| !may_be_token(&token.name)) {
            return Err(Invalid::TokenName);
        }
        if !self.tokens.is_sorted_by(|a, b| a.name < b.name) {
            return Err(Invalid::TokenOrder);
        }
        // Revoking one of two names of a token would leave it valid.
        let mut hashes = BTreeMap::new();
        for token in &self.tokens {
            if let Some(other) = hashes.insert(&token.grant.sha256, &token.name) {
                return Err(Invalid::SameToken([other.clone(), token.name.clone()]));
            }
        }
        Ok(())
    }

    fn validate_weights(&self) -> Result<(), Invalid> {
        if self.weights.len() > WEIGHTS_MAX {
            return Err(Invalid::TooMany {
                what: "allowed weights",
                max: WEIGHTS_MAX,
            });
        }
        for allowed in &self.weights {
            may_stand(&allowed.name, allowed.weight)?;
        }
        if !self.weights.is_sorted_by(|a, b| a.name < b.name) {
            return Err(Invalid::WeightOrder);
        }
        Ok(())
    }
}

/// Whether a weight may be allowed for members of this name.
///
/// # Errors
/// The name is empty or too long, or the weight is out of range.
pub fn may_be_allowed(name: &str, weight: u32) -> Result<(), Invalid> {
    // No member has another name, and it stands in logs and at terminals.
    if !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Invalid::Invisible { what: "member" });
    }
    may_stand(name, weight)
}

/// Whether it may stand in a table. One of the first release may have any name of this length.
fn may_stand(name: &str, weight: u32) -> Result<(), Invalid> {
    validate::name("member", name)?;
    if !(1..=WEIGHT_MAX).contains(&weight) {
        return Err(Invalid::AllowedWeight(name.into()));
    }
    Ok(())
}

/// Whether a user may have this name: it stands in lines of words.
#[must_use]
pub fn may_be_user(name: &[u8]) -> bool {
    let is_space = |byte: &u8| matches!(byte, 0 | b'\t'..=b'\r' | b' ');
    (1..=USER_NAME_BYTES_MAX).contains(&name.len()) && !name.iter().any(is_space)
}

/// Whether a token may have this name: it stands in paths, lists and logs. `.` and `..` would be
/// steps of a path.
#[must_use]
pub fn may_be_token(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=TOKEN_NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_plain)
        && ![".", ".."].contains(&name)
}

impl AccessDelta {
    pub(crate) fn between(old: &AccessSettings, new: &AccessSettings) -> Self {
        Self {
            users: ListDelta::between(&old.users, &new.users),
            tokens: ListDelta::between(&old.tokens, &new.tokens),
            weights: ListDelta::between(&old.weights, &new.weights),
        }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.users.is_nothing() && self.tokens.is_nothing() && self.weights.is_nothing()
    }

    pub(crate) fn apply(&self, old: &AccessSettings) -> AccessSettings {
        AccessSettings {
            users: self.users.apply(&old.users),
            tokens: self.tokens.apply(&old.tokens),
            weights: self.weights.apply(&old.weights),
        }
    }
}

impl<E: AccessEntry> Default for ListDelta<E> {
    fn default() -> Self {
        Self {
            gone: Vec::new(),
            put: Vec::new(),
        }
    }
}

impl<E: AccessEntry> ListDelta<E> {
    fn between(old: &[E], new: &[E]) -> Self {
        let known: BTreeMap<_, _> = old.iter().map(|entry| (entry.name(), entry)).collect();
        let kept: BTreeSet<_> = new.iter().map(AccessEntry::name).collect();
        let gone = old.iter().map(AccessEntry::name);
        let put = new.iter();
        Self {
            gone: gone.filter(|name| !kept.contains(name)).cloned().collect(),
            put: put
                .filter(|entry| known.get(entry.name()) != Some(entry))
                .cloned()
                .collect(),
        }
    }

    fn is_nothing(&self) -> bool {
        self.gone.is_empty() && self.put.is_empty()
    }

    fn apply(&self, old: &[E]) -> Vec<E> {
        let all = old.iter().map(|entry| (entry.name(), entry));
        let mut entries: BTreeMap<_, _> = all.collect();
        self.gone.iter().for_each(|name| _ = entries.remove(name));
        entries.extend(self.put.iter().map(|entry| (entry.name(), entry)));
        entries.into_values().cloned().collect()
    }
}
