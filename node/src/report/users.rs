//! The users of Redis clients: `GET /users`.

use serde::{Deserialize, Serialize};

/// A user of Redis clients, as the table of the cluster has it.
///
/// ```
/// use doyen::report::users::UserReport;
///
/// let answered = r#"{"name": "app", "passwords": 1, "rules": "on sanitize-payload ~app:* +@all"}"#;
/// let user: UserReport = serde_json::from_str(answered)?;
/// assert!(user.rules.starts_with("on "));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserReport {
    /// Its name.
    pub name: String,
    /// How many passwords it has.
    pub passwords: usize,
    /// Its rules, as `ACL LIST` shows them, without its passwords.
    pub rules: String,
}
