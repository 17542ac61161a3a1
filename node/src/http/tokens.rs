//! Named tokens by HTTP.

use super::State;
use super::changes::{Body, Done, Sent, done};
use super::failure::{Answer, Failure};
use super::routes::PathName;
use crate::admin::{AdminError, Refusal};
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

impl Body for NewToken {
    const EXAMPLE: &'static str =
        r#"{"role": "read", "sha256": "THE SHA-256 OF THE TOKEN, IN 64 HEXADECIMAL DIGITS"}"#;

    fn summary(&self, _: &[u8]) -> String {
        let hash: [u8; 32] = unhex(self.sha256.as_bytes()).unwrap_or_default();
        format!("role {}, fingerprint {}", self.role, hex(&hash[..8]))
    }
}

pub(super) async fn list(Shared(state): Shared<Arc<State>>) -> Answer<Json<Vec<TokenReport>>> {
    Ok(Json(state.admin.tokens().await?))
}

pub(super) async fn create(
    Shared(state): Shared<Arc<State>>,
    PathName(name): PathName,
    Sent(new): Sent<NewToken>,
) -> Done {
    let sha256 = unhex(new.sha256.as_bytes()).ok_or_else(|| {
        Failure::bad_request(format!(
            "sha256 is no SHA-256: send {}; `doyen token new NAME` does all of it",
            NewToken::EXAMPLE
        ))
    })?;
    if new.role < TokenRole::Operate && state.credentials.needs_names() {
        let tokens = state.admin.tokens().await?;
        if !tokens.iter().any(|t| t.role == TokenRole::Operate) {
            return Err(locked_out(
                "with this token, every request to this node would need one, and none could make \
                 changes: first make a token with the role operate (`doyen token new NAME --role \
                 operate`)",
            ));
        }
    }
    state.admin.create_token(&name, new.role, sha256).await?;
    done("created", name)
}

pub(super) async fn revoke(Shared(state): Shared<Arc<State>>, PathName(name): PathName) -> Done {
    if state.credentials.needs_names() {
        let tokens = state.admin.tokens().await?;
        let (this, others): (Vec<_>, Vec<_>) = tokens.iter().partition(|t| t.name == name);
        let may_operate = |t: &&TokenReport| t.role == TokenRole::Operate;
        if this.iter().any(may_operate) && !others.is_empty() && !others.iter().any(may_operate) {
            return Err(locked_out(
                "without this token, none could make changes at this node: first make another one \
                 with the role operate, or revoke all others",
            ));
        }
    }
    state.admin.revoke_token(&name).await?;
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

fn locked_out(why: &str) -> Failure {
    AdminError::from(Refusal::Unsafe { why: why.into() }).into()
}
