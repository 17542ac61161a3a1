//! Changes by HTTP. Each route reads its path and its body, asks [`Admin`](crate::admin::Admin),
//! and says what was done.

use super::State;
use super::failure::{Answer, Failure};
use super::guard::{Authorized, authorize};
use super::routes::PathName;
use crate::admin::AdminError;
use crate::admin::balance::{self, BalanceOptions, CancelRequest};
use crate::admin::keyspace::{KeyspaceOptions, SplitRequest};
use crate::report::rebalance::RebalancePlan;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request, State as Shared};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::fmt;
use std::sync::Arc;

type Done = Answer<Json<Value>>;

/// A body that a change takes.
pub(super) trait Body: DeserializeOwned {
    /// An example, for a caller that sent something else.
    const EXAMPLE: &'static str;
}

/// The body of a request that has the token. Without the token, nothing of the body is read.
pub(super) struct Sent<T>(T);

impl<T: Body> FromRequest<Arc<State>> for Sent<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &Arc<State>) -> Result<Self, Failure> {
        authorize(state, request.headers())?;
        let body = Bytes::from_request(request, state).await.map_err(|e| {
            let (text, example) = (e.body_text(), T::EXAMPLE);
            Failure(
                e.status(),
                format!("the body cannot be read ({text}): send {example}"),
            )
        })?;
        parse(&body).map(Self)
    }
}

fn parse<T: Body>(body: &[u8]) -> Answer<T> {
    let misread =
        |why: &dyn fmt::Display| Failure::bad_request(format!("send {}: {why}", T::EXAMPLE));
    // serde would also take an array of the fields in their order here. No caller means that.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(misread(&"this is no JSON object"));
    }
    serde_json::from_slice(body).map_err(|e| misread(&e))
}

/// A keyspace to create: its name beside its options.
#[derive(Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub(super) struct NewKeyspace {
    name: String,
    options: KeyspaceOptions,
}

impl TryFrom<Map<String, Value>> for NewKeyspace {
    type Error = String;

    fn try_from(mut fields: Map<String, Value>) -> Result<Self, String> {
        let Some(Value::String(name)) = fields.remove("name") else {
            return Err("the name is missing".into());
        };
        let options = serde_json::from_value(fields.into()).map_err(|e| e.to_string())?;
        Ok(Self { name, options })
    }
}

/// The reasons for which copies and primaries move by themselves.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Automatic {
    automatic: Vec<String>,
}

/// Names of members that are dead and will not come back.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recovery {
    assert_dead: Vec<String>,
}

impl Body for NewKeyspace {
    const EXAMPLE: &'static str = r#"{"name": "NAME", "partitions": 1024, "backups": 1}"#;
}

impl Body for KeyspaceOptions {
    const EXAMPLE: &'static str = r#"{"backups": 2}"#;
}

impl Body for SplitRequest {
    const EXAMPLE: &'static str = r#"{"at": "KEY"}"#;
}

impl Body for RebalancePlan {
    const EXAMPLE: &'static str = "what GET /rebalance answers";
}

impl Body for Automatic {
    const EXAMPLE: &'static str = concat!(
        r#"{"automatic": ["repair", "drain", "place", "copies", "primaries", "#,
        r#""hot", "splits", "merges"]}"#
    );
}

impl Body for BalanceOptions {
    const EXAMPLE: &'static str = r#"{"paused": false, "rate": "adaptive", "window": "always"}"#;
}

impl Body for CancelRequest {
    const EXAMPLE: &'static str = r#"{"id": "KEYSPACE/PARTITION"} or {"all": true}"#;
}

impl Body for Recovery {
    const EXAMPLE: &'static str = r#"{"assert_dead": ["NAME", ...]}"#;
}

pub(super) async fn create_keyspace(
    Shared(state): Shared<Arc<State>>,
    Sent(NewKeyspace { name, options }): Sent<NewKeyspace>,
) -> Done {
    match state.admin.create_keyspace(&name, &options).await {
        // It is created all the same. `GET /keyspaces/NAME` shows when it is served.
        Ok(()) | Err(AdminError::NotInForce { .. }) => done("created", name),
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn alter_keyspace(
    Shared(state): Shared<Arc<State>>,
    PathName(name): PathName,
    Sent(options): Sent<KeyspaceOptions>,
) -> Done {
    state.admin.alter_keyspace(&name, &options).await?;
    done("altered", name)
}

pub(super) async fn split_range(
    Shared(state): Shared<Arc<State>>,
    PathName(keyspace): PathName,
    Sent(SplitRequest { at }): Sent<SplitRequest>,
) -> Done {
    state.admin.split_at(&keyspace, &at.0).await?;
    done("splitting", keyspace)
}

pub(super) async fn merge_ranges(
    Shared(state): Shared<Arc<State>>,
    PathName(keyspace): PathName,
    Sent(SplitRequest { at }): Sent<SplitRequest>,
) -> Done {
    state.admin.merge_at(&keyspace, &at.0).await?;
    done("merging", keyspace)
}

pub(super) async fn drop_keyspace(
    _: Authorized,
    Shared(state): Shared<Arc<State>>,
    PathName(name): PathName,
) -> Done {
    state.admin.drop_keyspace(&name).await?;
    done("dropped", name)
}

pub(super) async fn apply_plan(
    Shared(state): Shared<Arc<State>>,
    Sent(plan): Sent<RebalancePlan>,
) -> Done {
    state.admin.rebalance(&plan).await?;
    done("applied", plan.goals.len())
}

pub(super) async fn schedule(
    Shared(state): Shared<Arc<State>>,
    Sent(Automatic { automatic }): Sent<Automatic>,
) -> Done {
    let schedulers = balance::schedulers(&automatic).map_err(AdminError::from)?;
    state.admin.rebalance_automatically(schedulers).await?;
    done("automatic", automatic)
}

pub(super) async fn set_balance(
    Shared(state): Shared<Arc<State>>,
    Sent(options): Sent<BalanceOptions>,
) -> Done {
    state.admin.set_balance(&options).await?;
    Ok(Json(json!({ "changed": options })))
}

pub(super) async fn cancel_moves(
    Shared(state): Shared<Arc<State>>,
    Sent(cancel): Sent<CancelRequest>,
) -> Done {
    match cancel.which().map_err(AdminError::from)? {
        Some(id) => {
            state.admin.cancel_move(id).await?;
            done("cancelled", id)
        }
        None => {
            state.admin.cancel_moves().await?;
            done("cancelled", "all")
        }
    }
}

pub(super) async fn drain(
    _: Authorized,
    Shared(state): Shared<Arc<State>>,
    PathName(name): PathName,
) -> Done {
    state.admin.drain(&name).await?;
    done("draining", name)
}

pub(super) async fn fill(
    _: Authorized,
    Shared(state): Shared<Arc<State>>,
    PathName(name): PathName,
) -> Done {
    state.admin.fill(&name).await?;
    done("filling", name)
}

pub(super) async fn remove_lost(
    _: Authorized,
    Shared(state): Shared<Arc<State>>,
    PathName(name): PathName,
) -> Done {
    state.admin.remove_lost(&name).await?;
    done("removed", name)
}

pub(super) async fn recover(
    Shared(state): Shared<Arc<State>>,
    Sent(Recovery { assert_dead }): Sent<Recovery>,
) -> Done {
    state.admin.recover(&assert_dead).await?;
    done("recovered", true)
}

/// `{"dropped": "orders"}`.
fn done(what: &str, of: impl Into<Value>) -> Done {
    let mut fields = Map::new();
    fields.insert(what.to_owned(), of.into());
    Ok(Json(Value::Object(fields)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_is_no_such_object_is_refused_with_an_example() {
        for body in ["", "[\"a\"]", "{\"at\": 7}", "{\"to\": \"a\"}", "{", "7"] {
            let failure = parse::<SplitRequest>(body.as_bytes()).map(|_| ()).err();
            assert!(
                matches!(&failure, Some(Failure(status, text))
                    if status.as_u16() == 400 && text.contains(r#"{"at": "KEY"}"#)),
                "{body}: {failure:?}"
            );
        }
    }

    #[test]
    fn a_new_keyspace_is_a_name_beside_options_that_are_known() {
        let read = |body: &str| parse::<NewKeyspace>(body.as_bytes()).map(|new| new.name);
        let read = |body: &str| read(body).map_err(|Failure(_, text)| text);
        assert_eq!(
            read(r#"{"name": "orders", "backups": 2}"#).as_deref(),
            Ok("orders")
        );
        for (body, wrong) in [
            (r#"{"backups": 2}"#, "the name is missing"),
            (r#"{"name": 7}"#, "the name is missing"),
            (r#"{"name": "orders", "backup": 2}"#, "backup"),
        ] {
            let text = read(body).expect_err("it is refused");
            assert!(text.contains(wrong), "{text}");
        }
    }
}
