//! `ACL LOG`: the latest refusals, those that are alike as one entry.
//!
//! All data threads of a node share it. Its lock is taken only where a command or a password was
//! refused, and where the log is read.

use super::compiled::Denied;
use crate::resp::encode::Encoder;
use bytes::Bytes;
use doyen_engine::grants::{Lacks, OBJECT_BYTES_MAX};
use std::collections::VecDeque;

/// Entries that are kept at first. `CONFIG SET acllog-max-len` changes it.
pub(crate) const ENTRIES_MAX: usize = 128;
/// Refusals within this time may be one entry.
const ALIKE_MS: u64 = 60_000;
/// Entries that a refusal is compared with.
const ALIKE_LOOKED_AT: usize = 10;
/// Entries that `ACL LOG` shows if it names no number.
pub(crate) const TOLD: usize = 10;

/// The log.
#[derive(Debug, Default)]
pub(crate) struct AclLog {
    /// The newest first.
    entries: VecDeque<AclLogEntry>,
    next: u64,
}

/// Why something was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DenialReason {
    Command,
    Keyspace,
    Key,
    Channel,
    /// A wrong password.
    Auth,
}

impl From<Denied> for DenialReason {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Command => Self::Command,
            Denied::Keyspace => Self::Keyspace,
            Denied::Key(_) => Self::Key,
            Denied::Channel(_) => Self::Channel,
        }
    }
}

impl From<Lacks> for DenialReason {
    fn from(lacks: Lacks) -> Self {
        match lacks {
            Lacks::Command => Self::Command,
            Lacks::Key(_) => Self::Key,
            Lacks::Channel(_) => Self::Channel,
        }
    }
}

/// Where a command was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Within {
    /// A client sent it by itself.
    Nothing,
    /// It was to be queued by a transaction.
    Transaction,
    /// A script called it. The log does not know the script's client: it may be connected with
    /// another member.
    Script,
}

/// A refusal.
#[derive(Debug)]
pub(crate) struct AclRefusal<'a> {
    pub(crate) reason: DenialReason,
    pub(crate) within: Within,
    /// The command, key or channel that was refused.
    pub(crate) object: &'a [u8],
    /// The user, or the name that came with the password.
    pub(crate) user: &'a [u8],
    /// The client's line of `CLIENT LIST`; empty for a script.
    pub(crate) client: String,
}

#[derive(Debug)]
struct AclLogEntry {
    id: u64,
    count: u64,
    reason: DenialReason,
    within: Within,
    object: Bytes,
    user: Bytes,
    client: String,
    created_ms: u64,
    updated_ms: u64,
}

impl AclLog {
    /// Keeps a refusal, and at most `most` entries.
    pub(crate) fn add(&mut self, unix_ms: u64, refusal: AclRefusal<'_>, most: usize) {
        let kept = |text: &[u8]| Bytes::copy_from_slice(&text[..text.len().min(OBJECT_BYTES_MAX)]);
        let (object, user) = (kept(refusal.object), kept(refusal.user));
        let is_alike = |entry: &AclLogEntry| {
            entry.reason == refusal.reason
                && entry.within == refusal.within
                && unix_ms.abs_diff(entry.updated_ms) <= ALIKE_MS
                && entry.object == object
                && entry.user == user
        };
        let alike = self.entries.iter().take(ALIKE_LOOKED_AT).position(is_alike);
        let entry = match alike.and_then(|at| self.entries.remove(at)) {
            Some(entry) => AclLogEntry {
                count: entry.count + 1,
                client: refusal.client,
                updated_ms: unix_ms,
                ..entry
            },
            None => {
                self.next += 1;
                AclLogEntry {
                    id: self.next - 1,
                    count: 1,
                    reason: refusal.reason,
                    within: refusal.within,
                    object,
                    user,
                    client: refusal.client,
                    created_ms: unix_ms,
                    updated_ms: unix_ms,
                }
            }
        };
        self.entries.push_front(entry);
        self.entries.truncate(most);
    }

    /// Forgets all entries.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Tells the newest entries.
    pub(crate) fn encode(&self, encoder: &mut Encoder<'_>, unix_ms: u64, count: usize) {
        let told = self.entries.iter().take(count);
        encoder.array(told.len());
        for entry in told {
            let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
            encoder.map(10);
            encoder.bulk(b"count");
            encoder.integer(number(entry.count));
            let reason: &[u8] = match entry.reason {
                DenialReason::Command => b"command",
                DenialReason::Keyspace => b"keyspace",
                DenialReason::Key => b"key",
                DenialReason::Channel => b"channel",
                DenialReason::Auth => b"auth",
            };
            let context: &[u8] = match entry.within {
                Within::Nothing => b"toplevel",
                Within::Transaction => b"multi",
                Within::Script => b"lua",
            };
            for (name, value) in [
                (&b"reason"[..], reason),
                (b"context", context),
                (b"object", &entry.object),
                (b"username", &entry.user),
            ] {
                encoder.bulk(name);
                encoder.bulk(value);
            }
            encoder.bulk(b"age-seconds");
            let age_ms = unix_ms.saturating_sub(entry.updated_ms);
            encoder.double(age_ms as f64 / 1000.0);
            encoder.bulk(b"client-info");
            encoder.bulk(entry.client.trim_end().as_bytes());
            for (name, value) in [
                (&b"entry-id"[..], entry.id),
                (b"timestamp-created", entry.created_ms),
                (b"timestamp-last-updated", entry.updated_ms),
            ] {
                encoder.bulk(name);
                encoder.integer(number(value));
            }
        }
    }
}
