//! The users of Redis clients by HTTP: the operators' way, which needs no user.

use super::HttpState;
use super::changes::{ChangeBody, Done, SentChange, done};
use super::failure::HttpAnswer;
use super::routes::PathName;
use crate::report::users::UserReport;
use axum::Json;
use axum::extract::State as Shared;
#[cfg(feature = "fuzz")]
use doyen_placement::access::Access;
use doyen_placement::access::USER_RULES_BYTES_MAX;
use serde::Deserialize;
use std::sync::Arc;

/// Largest body for a user: its rules. JSON may write each byte of them as several.
pub(super) const USER_BYTES_MAX: usize = 4 * USER_RULES_BYTES_MAX;

/// Rules for a user, as `ACL SETUSER` takes them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rules {
    rules: Vec<String>,
}

impl ChangeBody for Rules {
    const EXAMPLE: &'static str = r#"{"rules": ["on", ">PASSWORD", "~app:*", "+@read"]}"#;
    const BYTES_MAX: usize = USER_BYTES_MAX;

    fn summary(&self, _: &[u8]) -> String {
        // They may have passwords.
        format!("{} rules", self.rules.len())
    }
}

/// Reads any bytes as the body of a request for a user.
#[cfg(feature = "fuzz")]
pub(super) fn read(bytes: &[u8]) {
    use crate::resp::acl::operator;
    use crate::resp::acl::password::Hashing;
    if let Ok(new) = super::changes::parse::<Rules>(bytes) {
        assert_eq!(new.summary(bytes), format!("{} rules", new.rules.len()));
        let words = new
            .rules
            .iter()
            .flat_map(|rule| rule.split_ascii_whitespace());
        let words = words.map(str::as_bytes);
        let _ = operator::set(&Access::default(), b"app", words, Hashing::Redis);
    }
}

pub(super) async fn list(
    Shared(state): Shared<Arc<HttpState>>,
) -> HttpAnswer<Json<Vec<UserReport>>> {
    Ok(Json(state.admin.users().await?))
}

pub(super) async fn set(
    Shared(state): Shared<Arc<HttpState>>,
    PathName(name): PathName,
    SentChange(Rules { rules }): SentChange<Rules>,
) -> Done {
    state.admin.set_user(&name, &rules).await?;
    done("set", name)
}

pub(super) async fn remove(
    Shared(state): Shared<Arc<HttpState>>,
    PathName(name): PathName,
) -> Done {
    state.admin.remove_user(&name).await?;
    done("removed", name)
}
