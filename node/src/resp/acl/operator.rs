//! Changes of the users of a table, for `ACL SETUSER`, `ACL DELUSER` and the operators' HTTP.

use super::DEFAULT;
use super::compiled::{Compiled, Home};
use super::password::Hashing;
use super::rules::User;
use crate::resp::command::table::COMMANDS;
use doyen_engine::command::Arguments;
use doyen_placement::access::{AccessSettings, AccessUser, UserChange, may_be_user};

const BAD_NAME: &str = "Usernames can't contain spaces or null characters";
const LONG_NAME: &str = "the name of a user must have 1 to 256 bytes";

/// The user as its rules say, to be changed.
///
/// # Errors
/// This version does not know some of the rules.
pub(super) fn stored(access: &AccessSettings, name: &[u8]) -> Result<Option<User>, String> {
    let newer = |_| {
        format!(
            "the rules of user {} are from a newer version of Doyen: change them at a member that \
             runs it",
            String::from_utf8_lossy(name)
        )
    };
    match access.rules(name) {
        Some(rules) => User::parse(rules).map(Some).map_err(newer),
        None if name == DEFAULT => Ok(Some(User::of_default())),
        None => Ok(None),
    }
}

/// The change that lets a user follow these rules, after those that it has. `None`: it has them.
///
/// # Errors
/// The name or a rule is wrong. The text may repeat a password.
pub(crate) fn set<'a>(
    access: &AccessSettings,
    name: &[u8],
    rules: impl IntoIterator<Item = &'a [u8]>,
    hashing: Hashing,
) -> Result<Option<UserChange>, String> {
    if !may_be_user(name) {
        let length = name.is_empty() || name.len() > 256;
        return Err(if length { LONG_NAME } else { BAD_NAME }.to_owned());
    }
    let mut user = stored(access, name)?.unwrap_or_default();
    user.apply_all(rules, hashing)
        .map_err(|why| why.to_string())?;
    let change = UserChange {
        name: name.into(),
        before: access.rules(name).map(Into::into),
        after: Some(user.print().into()),
    };
    Ok((change.before != change.after).then_some(change))
}

/// The change that removes a user. `None`: there is none.
///
/// # Errors
/// It is `default`, which stays.
pub(crate) fn remove(access: &AccessSettings, name: &[u8]) -> Result<Option<UserChange>, String> {
    if name == DEFAULT {
        return Err("The 'default' user cannot be removed".to_owned());
    }
    Ok(access.rules(name).map(|rules| UserChange {
        name: name.into(),
        before: Some(rules.into()),
        after: None,
    }))
}

/// All users in order of name: each with its number of passwords, and its rules without them.
#[cfg(feature = "http")]
pub(crate) fn list(access: &AccessSettings) -> Vec<(Vec<u8>, usize, Vec<u8>)> {
    let told = |name: &[u8], mut user: User| {
        let passwords = std::mem::take(&mut user.passwords);
        (name.to_vec(), passwords.len(), user.print())
    };
    let all = access.users.iter();
    let mut all: Vec<_> = all
        .map(|user| {
            let known = User::parse_known(&user.rules).unwrap_or_default();
            told(&user.name, known)
        })
        .collect();
    if access.rules(DEFAULT).is_none() {
        all.push(told(DEFAULT, User::of_default()));
        all.sort_unstable();
    }
    all
}

/// Whether a client can become a user who may run `ACL SETUSER`.
pub(crate) fn has_administrator(access: &AccessSettings) -> bool {
    let default = access.rules(DEFAULT).is_none();
    default || access.users.iter().any(administers)
}

fn administers(user: &AccessUser) -> bool {
    // Most users have nothing of that, and there may be thousands of them.
    const GIVING: [&[u8]; 5] = [b"+@all", b"+acl", b"+@admin", b"+@dangerous", b"+@slow"];
    let gives = |word: &[u8]| GIVING.iter().any(|giving| word.starts_with(giving));
    let words = user.rules.split(|byte| *byte == b' ');
    if !words.map(|word| word.trim_ascii_start()).any(gives) {
        return false;
    }
    let Ok(known) = User::parse_known(&user.rules) else {
        return false;
    };
    // A node may have a password of its own for `default`.
    let has_password = known.nopass || !known.passwords.is_empty() || *user.name == *DEFAULT;
    let may_log_in = known.on && has_password;
    let args = ["ACL", "SETUSER", "u"].map(|word| bytes::Bytes::from_static(word.as_bytes()));
    let args: &dyn Arguments = &&args[..];
    let spec = COMMANDS.named(b"acl|setuser");
    let may = |spec| Compiled::new(&user.name, None, known).judge(spec, args, Home::ANY);
    may_log_in && spec.is_some_and(|spec| may(spec).is_ok())
}

/// Says in the log that no client can become a user who may change the users: of a file, or else of
/// the table.
pub(crate) fn warn_without_administrator(access: &AccessSettings, of_file: bool) {
    if !has_administrator(access) {
        let way_out = if of_file {
            "change the file of --resp-acl-file, and restart this node"
        } else {
            "operators still change users, with `doyen acl set NAME RULES`"
        };
        tracing::warn!("no user of Redis clients may run ACL SETUSER any more: {way_out}");
    }
}
