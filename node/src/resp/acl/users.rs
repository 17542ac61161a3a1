//! The users of a node, as one data thread sees them: those of the table, or those of a file.

use super::DEFAULT;
use super::compiled::Compiled;
use super::password::{Hashing, Password};
use super::rules::User;
use doyen_placement::access::AccessSettings;
use std::collections::BTreeMap;
use std::sync::Arc;

/// From this many compiled users on, those without a session are forgotten.
const COMPILED_MAX: usize = 1024;

/// The users, and the compiled rules of those that have sessions.
#[derive(Debug)]
pub(crate) struct Users {
    access: Arc<AccessSettings>,
    /// The password of `default` that this node was given.
    password: Option<String>,
    compiled: BTreeMap<Box<[u8]>, Arc<Compiled>>,
    /// The user of clients that have not authenticated.
    default: Arc<Compiled>,
}

impl Users {
    pub(crate) fn new(access: Arc<AccessSettings>, password: Option<String>) -> Self {
        let default = Arc::new(
            compile(&access, password.as_deref(), DEFAULT).unwrap_or_else(
                // There is always a `default`.
                || Compiled::new(DEFAULT, None, User::default()),
            ),
        );
        Self {
            access,
            password,
            compiled: BTreeMap::new(),
            default,
        }
    }

    /// The names and rules of all users but `default`, if that has no rules of its own.
    pub(crate) fn access(&self) -> &Arc<AccessSettings> {
        &self.access
    }

    /// Replaces them. True if there was a change.
    pub(crate) fn replace(&mut self, access: &Arc<AccessSettings>) -> bool {
        if Arc::ptr_eq(&self.access, access) || self.access.users == access.users {
            return false;
        }
        self.access = access.clone();
        let access = &self.access;
        let is_so = |user: &Compiled| access.rules(user.name()) == user.source();
        self.compiled.retain(|_, user| is_so(user));
        if !is_so(&self.default)
            && let Some(default) = compile(&self.access, self.password.as_deref(), DEFAULT)
        {
            self.default = Arc::new(default);
        }
        true
    }

    /// The user of clients that have not authenticated.
    pub(crate) fn default(&self) -> &Arc<Compiled> {
        &self.default
    }

    /// Whether clients need not authenticate.
    pub(crate) fn is_open(&self) -> bool {
        let default = self.default.user();
        default.on && default.nopass
    }

    /// The user of this name.
    pub(crate) fn find(&mut self, name: &[u8]) -> Option<Arc<Compiled>> {
        if name == DEFAULT {
            return Some(self.default.clone());
        }
        if let Some(known) = self.compiled.get(name) {
            return Some(known.clone());
        }
        let user = Arc::new(compile(&self.access, None, name)?);
        if self.compiled.len() >= COMPILED_MAX {
            self.compiled.retain(|_, user| Arc::strong_count(user) > 1);
        }
        if self.compiled.len() < COMPILED_MAX {
            self.compiled.insert(name.into(), user.clone());
        }
        Some(user)
    }

    /// The names of all users, in order.
    pub(crate) fn names(&self) -> Vec<&[u8]> {
        let mut names: Vec<&[u8]> = self.access.users.iter().map(|user| &*user.name).collect();
        if let Err(at) = names.binary_search(&DEFAULT) {
            names.insert(at, DEFAULT);
        }
        names
    }

    /// The rules of a user of these names, as one line.
    pub(crate) fn line(&self, name: &[u8]) -> Vec<u8> {
        if name == DEFAULT {
            return self.default.user().print();
        }
        self.access.rules(name).unwrap_or_default().to_vec()
    }
}

/// The user of this name with the rules that this version knows. Rules that are damaged make a user
/// as whom no client can log in.
fn compile(access: &AccessSettings, password: Option<&str>, name: &[u8]) -> Option<Compiled> {
    let rules = access.rules(name);
    let mut user = match rules {
        Some(rules) => User::parse_known(rules).unwrap_or_default(),
        None if name == DEFAULT => User::of_default(),
        None => return None,
    };
    if let Some(password) = password {
        user.require(password);
    }
    Some(Compiled::new(name, rules, user))
}

impl User {
    /// The password of `default` that a node was given: without it, or another password of the
    /// user, no client is `default` there.
    fn require(&mut self, password: &str) {
        self.nopass = false;
        if !self.is_password(password.as_bytes()) {
            let password = Password::new(password.as_bytes(), Hashing::Redis);
            self.passwords.push(password);
        }
    }
}
