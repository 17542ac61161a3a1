//! What a node trusts, and how long its own certificate is good: `GET /trust`.

use serde::{Deserialize, Serialize};

/// What a node trusts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustReport {
    /// The node's name.
    pub name: String,
    /// The fingerprints of its secrets: the first one signs, and all are trusted. Empty if it has
    /// certificates from files, or no secret.
    pub secrets: Vec<String>,
    /// When the first certificate of its chain ends, in Unix seconds; `None` if no certificate
    /// tells.
    pub certificate_ends: Option<i64>,
    /// How often changed files came into force.
    pub reloads: u64,
    /// How often changed files could not be used.
    pub reloads_failed: u64,
}
