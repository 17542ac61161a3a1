//! Which tokens this node takes, and what they open.
//!
//! | token | role | where this node has it from |
//! |---|---|---|
//! | the operators' | operate | derived from its secrets |
//! | a line of `--http-token-file` | operate | that file, which is read again when it changes |
//! | a named one | its own | the table, which has its hash |
//!
//! A node without any of them, whose HTTP is on loopback, is *open*: it takes the word `loopback`
//! in place of a token, which proves nothing, but which no web page can send.
//!
//! Only an operator's secret changes the users of Redis clients (`may_change_users`).
//!
//! Tokens are compared by their hashes, and each with all, so how long it takes says nothing of
//! them.

use crate::config::{ConfigError, http_tokens};
use crate::control::shared::Shared;
use crate::log_limit::{A_MINUTE, LogLimit};
use crate::net::identity::{Identity, LOCAL_TOKEN, Stamp, hash_of, stamp};
use doyen_placement::access::{AccessSettings, TokenRole};
use doyen_placement::words::counted;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use subtle::ConstantTimeEq;

/// The SHA-256 of a token.
type Hash = [u8; 32];

/// The tokens that this node takes.
#[derive(Debug)]
pub(crate) struct Credentials {
    identity: Arc<Identity>,
    shared: Arc<Shared>,
    file: Option<TokenFile>,
    /// There is neither a secret nor a certificate, and HTTP is on loopback.
    may_be_open: bool,
}

/// Whose token it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CredentialSource {
    /// Every process on this machine: the node is open.
    Open,
    /// The secrets.
    Secret,
    /// The file.
    File,
    /// The table.
    Named(String),
}

impl fmt::Display for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("anyone on this machine"),
            Self::Secret => f.write_str("an operator's secret"),
            Self::File => f.write_str("a token of --http-token-file"),
            Self::Named(name) => write!(f, "token {name}"),
        }
    }
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HttpCaller {
    pub(super) source: CredentialSource,
    pub(super) role: TokenRole,
    hash: Hash,
}

impl Credentials {
    pub(crate) fn new(
        identity: Arc<Identity>,
        shared: Arc<Shared>,
        file: Option<TokenFile>,
        may_be_open: bool,
    ) -> Self {
        Self {
            identity,
            shared,
            file,
            may_be_open,
        }
    }

    /// Reads the file again. Returns false if there is none.
    pub(super) fn reload(&self) -> bool {
        let Some(file) = &self.file else { return false };
        file.read_again(true);
        true
    }

    /// Who may do what, by the installed table. `None`: this node is no member.
    fn access(&self) -> Option<Arc<AccessSettings>> {
        let local = self.shared.local();
        local
            .view
            .as_ref()
            .map(|view| view.installed.access.clone())
    }

    /// Whether this node is a member, and so knows the named tokens.
    pub(super) fn knows_names(&self) -> bool {
        self.access().is_some()
    }

    /// Whether there is no credential at all, so that every process on this machine may ask.
    pub(super) fn is_open(&self) -> bool {
        let has_names = |access: Arc<AccessSettings>| !access.tokens.is_empty();
        self.may_be_open && self.file.is_none() && !self.access().is_some_and(has_names)
    }

    /// Whether the users of RESP clients are restricted by the table.
    pub(super) fn has_users(&self) -> bool {
        self.access().is_some_and(|access| !access.users.is_empty())
    }

    /// Whether only named tokens can open this node.
    pub(super) fn needs_names(&self) -> bool {
        self.file.is_none() && !self.identity.has_operators()
    }

    /// Whether the holder of such a token may change the users of Redis clients. A named token may
    /// not: it would be a password for all data. A line of `--http-token-file` may only where there
    /// is no secret, because nothing else could there.
    pub(super) fn may_change_users(&self, source: &CredentialSource) -> bool {
        match source {
            CredentialSource::Open | CredentialSource::Secret => true,
            CredentialSource::File => !self.identity.has_operators(),
            CredentialSource::Named(_) => false,
        }
    }

    /// Whether no token opens this node.
    pub(super) fn takes_nothing(&self) -> bool {
        let has_names = |access: Arc<AccessSettings>| !access.tokens.is_empty();
        !self.may_be_open && self.needs_names() && !self.access().is_some_and(has_names)
    }

    /// Whose token it is.
    pub(super) fn find(&self, token: &[u8]) -> Option<HttpCaller> {
        if self.is_open() {
            return (token == LOCAL_TOKEN.as_bytes()).then(HttpCaller::open);
        }
        self.find_hash(hash_of(token))
    }

    fn find_hash(&self, hash: Hash) -> Option<HttpCaller> {
        let mut found = None;
        let mut compare = |known: &Hash, source: &dyn Fn() -> CredentialSource, role| {
            if bool::from(known.ct_eq(&hash)) {
                found = Some(HttpCaller {
                    source: source(),
                    role,
                    hash,
                });
            }
        };
        for known in self.identity.operator_hashes() {
            compare(&known, &|| CredentialSource::Secret, TokenRole::Operate);
        }
        for known in self.file.iter().flat_map(TokenFile::hashes) {
            compare(&known, &|| CredentialSource::File, TokenRole::Operate);
        }
        if let Some(access) = self.access() {
            for token in &access.tokens {
                let name = || CredentialSource::Named(token.name.clone());
                compare(&token.grant.sha256, &name, token.grant.role);
            }
        }
        found
    }

    /// Whether this caller would be let in again with the same role.
    pub(super) fn still_takes(&self, holder: &HttpCaller) -> bool {
        if holder.source == CredentialSource::Open {
            return self.is_open();
        }
        // A process that is no member for a moment knows no names, and revokes none.
        let is_named = matches!(holder.source, CredentialSource::Named(_));
        is_named && !self.knows_names() || self.find_hash(holder.hash).as_ref() == Some(holder)
    }
}

impl HttpCaller {
    /// Any process, at an open node.
    pub(super) const fn open() -> Self {
        Self {
            source: CredentialSource::Open,
            role: TokenRole::Operate,
            hash: [0; 32],
        }
    }
}

/// `--http-token-file`: one token a line. Each of them is accepted.
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    /// Held while the file is read: it is small.
    read: Mutex<ReadTokens>,
}

#[derive(Debug)]
struct ReadTokens {
    stamp: Option<Stamp>,
    hashes: Vec<Hash>,
    told: LogLimit,
}

impl TokenFile {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or has something else than tokens.
    pub(crate) fn open(path: PathBuf) -> Result<Self, ConfigError> {
        let read = ReadTokens {
            stamp: stamp(&path),
            hashes: hashes(&path)?,
            told: LogLimit::new(A_MINUTE),
        };
        Ok(Self {
            path,
            read: Mutex::new(read),
        })
    }

    /// Looks at the file's date each time, which takes some microseconds of a request. In exchange,
    /// a token that was taken out of the file opens nothing from then on.
    fn hashes(&self) -> Vec<Hash> {
        self.read_again(false)
    }

    /// Reads the file if it has changed. If it cannot be used, its former tokens stay in force.
    fn read_again(&self, forced: bool) -> Vec<Hash> {
        // A poisoned lock means that a thread panicked. The content is replaced as a whole, so it
        // is still good.
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the content: what changes meanwhile is read again.
        let stamp = stamp(&self.path);
        if forced || stamp != read.stamp {
            match hashes(&self.path) {
                Ok(hashes) => {
                    (read.stamp, read.hashes) = (stamp, hashes);
                    tracing::info!(
                        "the file of HTTP tokens was read again: {} in it",
                        counted(read.hashes.len(), ("token is", "tokens are"))
                    );
                }
                // It may be half written: it is read again with the next request.
                Err(e) => {
                    if let Some(others) = read.told.happened(Instant::now()) {
                        tracing::warn!(
                            "the file of HTTP tokens changed, but cannot be used; the former \
                             tokens stay in force: {e}{others}"
                        );
                    }
                }
            }
        }
        read.hashes.clone()
    }
}

fn hashes(path: &std::path::Path) -> Result<Vec<Hash>, ConfigError> {
    let tokens = http_tokens(path, "--http-token-file")?;
    Ok(tokens
        .iter()
        .map(|token| hash_of(token.as_bytes()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_tokens_is_read_again_when_it_changes_and_keeps_what_was_good() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("tokens");
        let write = |text: &str| std::fs::write(&path, text).expect("written");
        let (old, new) = ("0123456789abcdef", "fedcba9876543210");
        write(&format!("{old}\n"));
        let file = TokenFile::open(path.clone()).expect("it has a token");
        assert_eq!(file.hashes(), [hash_of(old.as_bytes())]);
        write(&format!("# both, for a while\n{new}\n\n{old}\n"));
        assert_eq!(
            file.hashes(),
            [hash_of(new.as_bytes()), hash_of(old.as_bytes())]
        );
        write("short\n");
        assert_eq!(file.hashes().len(), 2, "the former ones stay");
        write(&format!("{new}\n"));
        assert_eq!(file.hashes(), [hash_of(new.as_bytes())]);
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(file.hashes(), [hash_of(new.as_bytes())]);
        assert!(TokenFile::open(path).is_err());
    }
}
