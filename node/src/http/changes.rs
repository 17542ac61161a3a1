//! Changes by HTTP. Each route reads its path and its body, asks [`Admin`](crate::admin::Admin),
//! and says what was done.

use super::HttpState;
use super::failure::{HttpAnswer, HttpFailure};
use super::guard::Summary;
use super::routes::{BODY_BYTES_MAX, KEYSPACE_BYTES_MAX, PathName, too_large};
use crate::admin::balance::{self, BalanceOptions, CancelRequest};
use crate::admin::keyspace::{KeyspaceOptions, SplitRequest};
use crate::admin::{AdminError, InvalidField};
use crate::report::rebalance::{PLAN_BYTES_MAX, RebalancePlan};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request, State as Shared};
use axum::http::StatusCode;
use doyen_gossip::agreement::VotersGone;
use serde::de::{DeserializeOwned, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

pub(super) type Done = HttpAnswer<Json<Value>>;

/// A body that a change takes.
pub(super) trait ChangeBody: DeserializeOwned {
    /// An example, for a caller that sent something else.
    const EXAMPLE: &'static str;
    /// The largest such body. The route has the same limit.
    const BYTES_MAX: usize = BODY_BYTES_MAX;

    /// What the audit log shows of it: nothing that is a key or a secret. It is the body itself, as
    /// it was sent.
    fn summary(&self, sent: &[u8]) -> String {
        String::from_utf8_lossy(sent.trim_ascii()).into_owned()
    }
}

/// The body of a request. The guard has let the caller in before it is read.
pub(super) struct SentChange<T>(pub(super) T);

impl<T: ChangeBody> FromRequest<Arc<HttpState>> for SentChange<T> {
    type Rejection = HttpFailure;

    async fn from_request(request: Request, state: &Arc<HttpState>) -> Result<Self, HttpFailure> {
        let summary = request.extensions().get::<Summary>().cloned();
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|e| unread::<T>(e.status(), &e.body_text()))?;
        let read: T = parse(&body)?;
        if let Some(summary) = summary {
            summary.say(read.summary(&body));
        }
        Ok(Self(read))
    }
}

/// A body could not be read.
fn unread<T: ChangeBody>(status: StatusCode, why: &str) -> HttpFailure {
    let text = if status == StatusCode::PAYLOAD_TOO_LARGE {
        too_large(T::BYTES_MAX)
    } else {
        format!("the body cannot be read ({why}): send {}", T::EXAMPLE)
    };
    HttpFailure(status, text)
}

pub(super) fn parse<T: ChangeBody>(body: &[u8]) -> HttpAnswer<T> {
    let misread =
        |why: &dyn fmt::Display| HttpFailure::bad_request(format!("send {}: {why}", T::EXAMPLE));
    // serde would also take an array of the fields in their order here. No caller means that.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(misread(&"this is no JSON object"));
    }
    // Some readers would take the last of two equal keys, and others the first.
    serde_json::from_slice::<Distinct>(body).map_err(|e| misread(&e))?;
    serde_json::from_slice(body).map_err(|e| misread(&e))
}

/// Any JSON whose objects have no key twice. It keeps nothing of it.
struct Distinct;

impl<'de> Deserialize<'de> for Distinct {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Distinct {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut keys = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            map.next_value::<Self>()?;
            if let Some(twice) = keys.replace(key) {
                return Err(A::Error::custom(format!("`{twice}` is given twice")));
            }
        }
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }
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
    /// How many of how many voters they are: a person must have counted.
    gone: String,
}

impl ChangeBody for NewKeyspace {
    const EXAMPLE: &'static str = r#"{"name": "NAME", "partitions": 1024, "backups": 1}"#;
    const BYTES_MAX: usize = KEYSPACE_BYTES_MAX;

    fn summary(&self, _: &[u8]) -> String {
        // The options may have keys, at which ranges begin.
        self.name.clone()
    }
}

impl ChangeBody for KeyspaceOptions {
    const EXAMPLE: &'static str = r#"{"backups": 2}"#;
}

impl ChangeBody for SplitRequest {
    const EXAMPLE: &'static str = r#"{"at": "KEY"}"#;

    fn summary(&self, _: &[u8]) -> String {
        "at a key".into()
    }
}

impl ChangeBody for RebalancePlan {
    const EXAMPLE: &'static str = "what GET /rebalance answers";
    const BYTES_MAX: usize = PLAN_BYTES_MAX;

    fn summary(&self, _: &[u8]) -> String {
        format!("of {} partitions", self.goals.len())
    }
}

impl ChangeBody for Automatic {
    const EXAMPLE: &'static str = concat!(
        r#"{"automatic": ["repair", "drain", "place", "copies", "primaries", "#,
        r#""hot", "splits", "merges"]}"#
    );
}

impl ChangeBody for BalanceOptions {
    const EXAMPLE: &'static str = r#"{"paused": false, "rate": "adaptive", "window": "always"}"#;
}

impl ChangeBody for CancelRequest {
    const EXAMPLE: &'static str = r#"{"id": "KEYSPACE/PARTITION"} or {"all": true}"#;
}

impl ChangeBody for Recovery {
    const EXAMPLE: &'static str = r#"{"assert_dead": ["NAME", ...], "gone": "2/3"}"#;
}

pub(super) async fn create_keyspace(
    Shared(state): Shared<Arc<HttpState>>,
    SentChange(NewKeyspace { name, options }): SentChange<NewKeyspace>,
) -> Done {
    match state.admin.create_keyspace(&name, &options).await {
        // It is created all the same. `GET /keyspaces/NAME` shows when it is served.
        Ok(()) | Err(AdminError::NotInForce { .. }) => done("created", name),
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn alter_keyspace(
    Shared(state): Shared<Arc<HttpState>>,
    PathName(name): PathName,
    SentChange(options): SentChange<KeyspaceOptions>,
) -> Done {
    state.admin.alter_keyspace(&name, &options).await?;
    done("altered", name)
}

pub(super) async fn split_range(
    Shared(state): Shared<Arc<HttpState>>,
    PathName(keyspace): PathName,
    SentChange(SplitRequest { at }): SentChange<SplitRequest>,
) -> Done {
    state.admin.split_at(&keyspace, &at.0).await?;
    done("splitting", keyspace)
}

pub(super) async fn merge_ranges(
    Shared(state): Shared<Arc<HttpState>>,
    PathName(keyspace): PathName,
    SentChange(SplitRequest { at }): SentChange<SplitRequest>,
) -> Done {
    state.admin.merge_at(&keyspace, &at.0).await?;
    done("merging", keyspace)
}

pub(super) async fn drop_keyspace(
    Shared(state): Shared<Arc<HttpState>>,
    PathName(name): PathName,
) -> Done {
    state.admin.drop_keyspace(&name).await?;
    done("dropped", name)
}

pub(super) async fn apply_plan(
    Shared(state): Shared<Arc<HttpState>>,
    SentChange(plan): SentChange<RebalancePlan>,
) -> Done {
    state.admin.rebalance(&plan).await?;
    done("applied", plan.goals.len())
}

pub(super) async fn schedule(
    Shared(state): Shared<Arc<HttpState>>,
    SentChange(Automatic { automatic }): SentChange<Automatic>,
) -> Done {
    let schedulers = balance::schedulers(&automatic).map_err(AdminError::from)?;
    state.admin.rebalance_automatically(schedulers).await?;
    done("automatic", automatic)
}

pub(super) async fn set_balance(
    Shared(state): Shared<Arc<HttpState>>,
    SentChange(options): SentChange<BalanceOptions>,
) -> Done {
    state.admin.set_balance(&options).await?;
    Ok(Json(json!({ "changed": options })))
}

pub(super) async fn cancel_moves(
    Shared(state): Shared<Arc<HttpState>>,
    SentChange(cancel): SentChange<CancelRequest>,
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

pub(super) async fn drain(Shared(state): Shared<Arc<HttpState>>, PathName(name): PathName) -> Done {
    state.admin.drain(&name).await?;
    done("draining", name)
}

pub(super) async fn fill(Shared(state): Shared<Arc<HttpState>>, PathName(name): PathName) -> Done {
    state.admin.fill(&name).await?;
    done("filling", name)
}

pub(super) async fn remove_lost(
    Shared(state): Shared<Arc<HttpState>>,
    PathName(name): PathName,
) -> Done {
    state.admin.remove_lost(&name).await?;
    done("removed", name)
}

pub(super) async fn forget(
    Shared(state): Shared<Arc<HttpState>>,
    PathName(name): PathName,
) -> Done {
    state.admin.forget(&name).await?;
    done("forgotten", name)
}

pub(super) async fn recover(
    Shared(state): Shared<Arc<HttpState>>,
    SentChange(Recovery { assert_dead, gone }): SentChange<Recovery>,
) -> Done {
    let gone = gone.parse::<VotersGone>();
    let gone = gone.map_err(|why| AdminError::from(InvalidField::new("gone", why.to_string())))?;
    state.admin.recover(&assert_dead, gone).await?;
    done("recovered", true)
}

pub(super) async fn keep_half(Shared(state): Shared<Arc<HttpState>>) -> Done {
    state.admin.keep_half().await?;
    done("kept", true)
}

/// `{"dropped": "orders"}`.
pub(super) fn done(what: &str, of: impl Into<Value>) -> Done {
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
                matches!(&failure, Some(HttpFailure(status, text))
                    if status.as_u16() == 400 && text.contains(r#"{"at": "KEY"}"#)),
                "{body}: {failure:?}"
            );
        }
    }

    /// Regression: the last value was taken silently.
    #[test]
    fn a_key_that_is_given_twice_is_refused_in_every_body() {
        fn told<T: ChangeBody>(body: &str) -> String {
            match parse::<T>(body.as_bytes()) {
                Ok(_) => "taken".to_owned(),
                Err(HttpFailure(status, text)) => format!("{}: {text}", status.as_u16()),
            }
        }
        let twice = r#"{"name": "a", "backups": 1, "backups": 2}"#;
        let nested =
            r#"{"name": "a", "backups": [{"x": null, "y": [1.5, -1, {"x": true}], "x": 0}]}"#;
        let escaped = "{\"name\": \"a\", \"n\\u0061me\": \"b\"}";
        for (body, key) in [(twice, "backups"), (nested, "x"), (escaped, "name")] {
            let why = told::<NewKeyspace>(body);
            assert!(
                why.starts_with("400: ") && why.contains(&format!("`{key}` is given twice")),
                "{body}: {why}"
            );
        }
        let why = told::<Recovery>(r#"{"assert_dead": ["a"], "assert_dead": []}"#);
        assert!(why.contains("`assert_dead` is given twice"), "{why}");
        let uncounted = told::<Recovery>(r#"{"assert_dead": ["a"]}"#);
        assert!(uncounted.contains("missing field `gone`"), "{uncounted}");
        let counted = r#"{"assert_dead": ["a", "a"], "gone": "1/3"}"#;
        assert_eq!(told::<Recovery>(counted), "taken");
    }

    #[test]
    fn a_body_that_is_too_large_is_refused_with_the_limit_of_its_route() {
        let large = StatusCode::PAYLOAD_TOO_LARGE;
        let texts = [
            unread::<SplitRequest>(large, "no").1,
            unread::<NewKeyspace>(large, "no").1,
            unread::<RebalancePlan>(large, "no").1,
        ];
        let limits = [BODY_BYTES_MAX, KEYSPACE_BYTES_MAX, PLAN_BYTES_MAX];
        for (text, limit) in texts.into_iter().zip(limits) {
            assert_eq!(
                text,
                format!("the body is too large: send at most {limit} bytes")
            );
        }
        let HttpFailure(status, text) = unread::<SplitRequest>(StatusCode::BAD_REQUEST, "it ended");
        assert!(status == StatusCode::BAD_REQUEST && text.contains("(it ended): send {\"at\""));
    }

    #[test]
    fn a_new_keyspace_is_a_name_beside_options_that_are_known() {
        let read = |body: &str| parse::<NewKeyspace>(body.as_bytes()).map(|new| new.name);
        let read = |body: &str| read(body).map_err(|HttpFailure(_, text)| text);
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
