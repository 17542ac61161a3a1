//! Allowed weights by HTTP.

use super::HttpState;
use super::changes::{ChangeBody, Done, SentChange, done};
use super::failure::HttpAnswer;
use super::routes::PathName;
use crate::report::weights::WeightReport;
use axum::Json;
use axum::extract::State as Shared;
use serde::Deserialize;
use std::sync::Arc;

/// A weight to allow.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Allowed {
    weight: u32,
}

impl ChangeBody for Allowed {
    const EXAMPLE: &'static str = r#"{"weight": 1600}"#;
}

pub(super) async fn list(
    Shared(state): Shared<Arc<HttpState>>,
) -> HttpAnswer<Json<Vec<WeightReport>>> {
    Ok(Json(state.admin.weights().await?))
}

pub(super) async fn allow(
    Shared(state): Shared<Arc<HttpState>>,
    PathName(name): PathName,
    SentChange(Allowed { weight }): SentChange<Allowed>,
) -> Done {
    state.admin.allow_weight(&name, weight).await?;
    done("allowed", name)
}

pub(super) async fn forget(
    Shared(state): Shared<Arc<HttpState>>,
    PathName(name): PathName,
) -> Done {
    state.admin.forget_weight(&name).await?;
    done("forgotten", name)
}

#[cfg(test)]
mod tests {
    use super::super::changes::parse;
    use super::super::failure::HttpFailure;
    use super::*;

    #[test]
    fn a_weight_is_a_number_and_comes_alone() {
        let read = parse::<Allowed>(br#"{"weight": 1600}"#).map(|allowed| allowed.weight);
        assert!(matches!(read, Ok(1600)));
        for body in [
            "",
            "{}",
            "1600",
            r#"{"weight": "1600"}"#,
            r#"{"weight": -1}"#,
            r#"{"weight": 1.5}"#,
            r#"{"weight": 4294967296}"#,
            r#"{"weight": 1, "weight": 2}"#,
            r#"{"weight": 1, "name": "n1"}"#,
        ] {
            let failure = parse::<Allowed>(body.as_bytes()).map(|_| ()).err();
            assert!(
                matches!(&failure, Some(HttpFailure(status, text))
                    if status.as_u16() == 400 && text.contains(r#"{"weight": 1600}"#)),
                "{body}: {failure:?}"
            );
        }
    }
}
