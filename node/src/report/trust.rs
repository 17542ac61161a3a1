//! What a node trusts, and how long its own certificate is good: `GET /trust`.

use serde::{Deserialize, Serialize};

/// What a node trusts.
///
/// ```
/// use doyen::report::trust::TrustReport;
///
/// let answered = r#"{"name": "n1", "secrets": ["5f0c", "9ae1"], "certificate_ends": null,
///     "reloads": 1, "reloads_failed": 0}"#;
/// let trust: TrustReport = serde_json::from_str(answered)?;
/// assert_eq!(trust.secrets[0], "5f0c", "it signs");
/// # Ok::<(), serde_json::Error>(())
/// ```
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
    /// The ports for clients whose certificate the first secret should sign and has not: why.
    #[serde(default)]
    pub ports_behind: Vec<String>,
    /// The step of `doyen secret rotate` that the node's secret file says: `added`, `used` or
    /// `removed`. Absent: no rotation is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation: Option<String>,
}
