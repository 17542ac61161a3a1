//! The named tokens of a cluster: `GET /tokens`.

use doyen_placement::access::{AccessToken, TokenRole};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Digits of a fingerprint.
const FINGERPRINT_BYTES: usize = 8;

/// A named token. The token itself is nowhere in the cluster.
///
/// As JSON: `{"name": "prometheus", "role": "read", "made": 1790000000, "fingerprint":
/// "ba7816bf8f01cfea"}`.
///
/// ```no_run
/// # async fn example(node: doyen::Node) -> Result<(), doyen::ReportError> {
/// for token in node.admin().tokens().await? {
///     println!("{}: {}", token.name, token.role);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenReport {
    /// Its name.
    pub name: String,
    /// What it opens.
    #[serde(with = "role")]
    pub role: TokenRole,
    /// When it was made, in Unix seconds.
    pub made: u64,
    /// The first 16 hexadecimal digits of its SHA-256.
    pub fingerprint: String,
}

impl TokenReport {
    pub(crate) fn new(token: &AccessToken) -> Self {
        let mut fingerprint = String::new();
        for byte in &token.grant.sha256[..FINGERPRINT_BYTES] {
            // Writing to a text does not fail.
            let _ = write!(fingerprint, "{byte:02x}");
        }
        Self {
            name: token.name.clone(),
            role: token.grant.role,
            made: token.grant.made,
            fingerprint,
        }
    }
}

/// Roles as words: on the wire of nodes, they are numbers.
pub(crate) mod role {
    use doyen_placement::access::TokenRole;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(role: &TokenRole, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(role)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<TokenRole, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}
