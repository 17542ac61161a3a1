//! Passwords. Only their SHA-256 is kept.
//!
//! `#` and 64 digits are Redis's form: the hash of the password. The cluster's own form has a salt
//! before it, 32 digits and a colon, so that the table does not show which users have the same
//! password, and no list of hashes made beforehand fits.

use crate::hex::{hex, unhex};
use ring::digest::{SHA256, digest};
use std::fmt;
use subtle::ConstantTimeEq;

/// How new passwords are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hashing {
    /// In Redis's form.
    Redis,
    /// With a salt.
    Salted,
}

/// The hash of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Password {
    salt: Option<[u8; 16]>,
    hash: [u8; 32],
}

impl Password {
    /// The hash of a new password.
    pub(super) fn new(text: &[u8], hashing: Hashing) -> Self {
        let salt = (hashing == Hashing::Salted).then(rand::random);
        Self {
            salt,
            hash: hash(salt, text),
        }
    }

    /// Parses what follows `#`.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (salt, hash) = match text.iter().position(|byte| *byte == b':') {
            Some(at) => (Some(digits(&text[..at])?), &text[at + 1..]),
            None => (None, text),
        };
        Some(Self {
            salt,
            hash: digits(hash)?,
        })
    }

    /// Whether it is the hash of this password.
    pub(super) fn is(&self, given: &[u8]) -> bool {
        hash(self.salt, given).ct_eq(&self.hash).into()
    }
}

/// What follows `#`.
impl fmt::Display for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(salt) = self.salt {
            write!(f, "{}:", hex(&salt))?;
        }
        f.write_str(&hex(&self.hash))
    }
}

/// Written by hand: hashes of passwords do not belong in logs.
impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

fn hash(salt: Option<[u8; 16]>, text: &[u8]) -> [u8; 32] {
    let salt = salt.as_ref().map_or(&[][..], |salt| salt);
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, &[salt, text].concat()).as_ref());
    out
}

/// As many bytes from digits, which must be small, as in Redis.
fn digits<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    unhex(text).filter(|_| !text.iter().any(u8::is_ascii_uppercase))
}
