//! Access lists (`ACL`): users of Redis clients, and what each of them may do.
//!
//! ```text
//!   ACL SETUSER ──words──> rules: User ──print──> Table.access, or a file
//!                                                       │
//!   AUTH ──name, password──> users ──compile──> Compiled│<── each session holds one
//!                                                 │
//!   a command, its keys and channels ──judge──> allowed, or Denied ──> log, NOPERM
//! ```
//!
//! The member that a client is connected with judges its commands, with the table that it has
//! installed, also if other members execute them. What a script does is judged where it runs, by
//! the grants that travel with it (`doyen_engine::grants`).

pub(crate) mod compiled;
pub(crate) mod file;
pub(crate) mod log;
pub(crate) mod operator;
pub(crate) mod password;
pub mod rules;
pub(crate) mod users;

#[cfg(test)]
mod tests;

/// The user that clients are until they authenticate.
pub(crate) const DEFAULT: &[u8] = b"default";

/// Why a rule is refused, in Redis's words where Redis has some.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AclRuleError {
    /// It is no rule.
    #[error("Syntax error")]
    Syntax,
    /// It names a command or a category that does not exist.
    #[error("Unknown command or category name in ACL")]
    Unknown,
    /// All keys are allowed already.
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not \
         have any effect. Try 'resetkeys' to start with an empty list of patterns"
    )]
    AllKeys,
    /// All channels are allowed already.
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does \
         not have any effect. Try 'resetchannels' to start with an empty list of channels"
    )]
    AllChannels,
    /// The user does not have the password.
    #[error("The password you are trying to remove from the user does not exist")]
    NoPassword,
    /// It is no hash of a password.
    #[error(
        "The password hash must be exactly 64 characters and contain only lowercase hexadecimal \
         characters"
    )]
    Hash,
    /// It names the argument of a subcommand.
    #[error("Allowing first-arg of a subcommand is not supported")]
    FirstOfSubcommand,
    /// The pattern is too long.
    #[error("The pattern is too long: at most 1024 bytes")]
    LongPattern,
    /// There are too many passwords.
    #[error("A user has at most 64 passwords: remove one first")]
    ManyPasswords,
}

/// Reads these bytes as a file of users, and as what a script's caller may do.
#[cfg(feature = "fuzz")]
pub fn fuzz(bytes: &[u8]) {
    use doyen_engine::command::Rights;
    let grants = doyen_engine::grants::Grants::parse(bytes);
    let keys = [(1, Rights::BOTH, &b"key"[..])];
    let _ = grants.judge(("set", Some(b"key")), keys.into_iter(), (0..0, |_| &[][..]));
    let Ok(read) = file::parse(bytes) else {
        return;
    };
    let mut again = file::parse(&file::print(&read)).expect("it was printed");
    if read.rules(DEFAULT).is_none() {
        again.users.retain(|user| *user.name != *DEFAULT);
    }
    assert_eq!(again, read, "printed users are the same");
    let names: Vec<Box<[u8]>> = read.users.iter().map(|user| user.name.clone()).collect();
    let mut users = users::Users::new(std::sync::Arc::new(read), None);
    for name in names {
        let user = users.find(&name).expect("it is there");
        let _ = user.may_plainly(0, Rights::READ, b"key");
        let _ = user.grants(compiled::Home::ANY);
    }
}
