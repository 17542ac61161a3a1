//! Named tokens by HTTP.

use super::HttpState;
use super::changes::{ChangeBody, Done, SentChange, done};
use super::failure::{HttpAnswer, HttpFailure};
use super::routes::PathName;
use crate::hex::{hex, unhex};
use crate::report::tokens::{TokenReport, role};
use axum::Json;
use axum::extract::State as Shared;
use doyen_placement::access::TokenRole;
use serde::Deserialize;
use std::sync::Arc;

/// A token to make: its hash, never the token.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewToken {
    #[serde(with = "role")]
    role: TokenRole,
    sha256: String,
}

impl ChangeBody for NewToken {
    const EXAMPLE: &'static str =
        r#"{"role": "read", "sha256": "THE SHA-256 OF THE TOKEN, IN 64 HEXADECIMAL DIGITS"}"#;

    fn summary(&self, _: &[u8]) -> String {
        let hash: [u8; 32] = unhex(self.sha256.as_bytes()).unwrap_or_default();
        format!("role {}, fingerprint {}", self.role, hex(&hash[..8]))
    }
}

pub(super) async fn list(
    Shared(state): Shared<Arc<HttpState>>,
) -> HttpAnswer<Json<Vec<TokenReport>>> {
    Ok(Json(state.admin.tokens().await?))
}

pub(super) async fn create(
    Shared(state): Shared<Arc<HttpState>>,
    PathName(name): PathName,
    SentChange(new): SentChange<NewToken>,
) -> Done {
    let sha256 = unhex(new.sha256.as_bytes()).ok_or_else(|| {
        HttpFailure::bad_request(format!(
            "sha256 is no SHA-256: send {}; `doyen token new NAME` does all of it",
            NewToken::EXAMPLE
        ))
    })?;
    let keeps = state.credentials.needs_names();
    let grant = (new.role, sha256);
    state.admin.add_token(&name, grant, keeps).await?;
    done("created", name)
}

pub(super) async fn revoke(
    Shared(state): Shared<Arc<HttpState>>,
    PathName(name): PathName,
) -> Done {
    let keeps = state.credentials.needs_names();
    state.admin.remove_token(&name, keeps).await?;
    done("revoked", name)
}

/// Reads any bytes as the body of a request for a token.
#[cfg(feature = "fuzz")]
pub(super) fn read(bytes: &[u8]) {
    if let Ok(new) = super::changes::parse::<NewToken>(bytes) {
        assert!(!new.summary(bytes).contains(&new.sha256) || new.sha256.len() <= 16);
        if let Some(hash) = unhex::<32>(new.sha256.as_bytes()) {
            assert!(hex(&hash).eq_ignore_ascii_case(&new.sha256));
        }
    }
}
