//! What a row of the [table](super::api) is: a report or a change, with all that serves it and
//! all that asks for it.

use super::HttpState;
use super::failure::{HttpAnswer, HttpFailure};
use super::guard::{RouteNeeds, Summary};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Path, Request, State};
use axum::http::{Method, StatusCode};
use axum::routing::{MethodRouter, get, on};
use serde::de::{DeserializeOwned, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Largest body of a change, unless it says another limit.
pub(super) const BODY_BYTES_MAX: usize = 16 << 10;

/// A path, how it is asked, and what that needs.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) method: Method,
    /// Names in it stand as `{name}`.
    pub(super) path: &'static str,
    /// `None`: anyone may ask.
    pub(super) needs: Option<RouteNeeds>,
}

/// A row of the table, as it is served.
pub(super) trait HttpRow: Sync {
    fn route(&self) -> &Route;
    fn serve(&'static self) -> MethodRouter<Arc<HttpState>>;
}

/// A report, which is answered as JSON of this type.
pub struct HttpReport<T> {
    pub(super) route: Route,
    handler: fn() -> MethodRouter<Arc<HttpState>>,
    answers: PhantomData<fn() -> T>,
}

impl<T> HttpReport<T> {
    pub(super) const fn new(
        path: &'static str,
        needs: RouteNeeds,
        handler: fn() -> MethodRouter<Arc<HttpState>>,
    ) -> Self {
        let mut report = Self::open(path, handler);
        report.route.needs = Some(needs);
        report
    }

    /// Anyone may ask for it.
    pub(super) const fn open(
        path: &'static str,
        handler: fn() -> MethodRouter<Arc<HttpState>>,
    ) -> Self {
        Self {
            route: Route {
                method: Method::GET,
                path,
                needs: None,
            },
            handler,
            answers: PhantomData,
        }
    }
}

impl<T> HttpRow for HttpReport<T> {
    fn route(&self) -> &Route {
        &self.route
    }

    fn serve(&'static self) -> MethodRouter<Arc<HttpState>> {
        (self.handler)()
    }
}

/// Answers a report that takes no options.
pub(super) fn report<T, E, F>(
    make: impl Fn(Arc<HttpState>) -> F + Clone + Send + Sync + 'static,
) -> MethodRouter<Arc<HttpState>>
where
    T: Serialize,
    E: Into<HttpFailure>,
    F: Future<Output = Result<T, E>> + Send,
{
    get(move |State(state): State<Arc<HttpState>>| {
        let made = make(state);
        async move { made.await.map(Json).map_err(E::into) }
    })
}

/// A change, with `N` names in its path and this body. `()`: it takes none.
pub struct Verb<const N: usize, B> {
    pub(super) route: Route,
    /// What is answered: `{"dropped": "orders"}`, or `true` if the path has no name.
    done: &'static str,
    act: Act<N, B>,
}

/// Makes a change. `Some`: what is answered in place of the last name in the path.
type Act<const N: usize, B> = fn(Arc<HttpState>, [String; N], B) -> Acting;
type Acting = Pin<Box<dyn Future<Output = HttpAnswer<Option<Value>>> + Send>>;

/// A change that is answered with the last name in its path.
pub(super) fn act<E: Into<HttpFailure>>(
    work: impl Future<Output = Result<(), E>> + Send + 'static,
) -> Acting {
    Box::pin(async move { work.await.map(|()| None).map_err(E::into) })
}

/// A change that is answered with something else.
pub(super) fn answer<T: Into<Value>>(
    work: impl Future<Output = HttpAnswer<T>> + Send + 'static,
) -> Acting {
    Box::pin(async move { work.await.map(|answer| Some(answer.into())) })
}

impl<const N: usize, B> Verb<N, B> {
    /// A change that needs the role `operate`.
    pub(super) const fn new(
        method: Method,
        path: &'static str,
        done: &'static str,
        act: Act<N, B>,
    ) -> Self {
        let needs = Some(RouteNeeds::Operate);
        let route = Route {
            method,
            path,
            needs,
        };
        Self { route, done, act }
    }

    /// The same, for an operator's secret alone.
    #[cfg(any(feature = "resp", feature = "console"))]
    pub(super) const fn of_users(mut self) -> Self {
        self.route.needs = Some(RouteNeeds::Users);
        self
    }

    /// The path with these names.
    pub(super) fn path(&self, names: [&str; N]) -> String {
        let mut names = names.into_iter();
        let steps = self.route.path.split('/').map(|step| {
            let name = step.starts_with('{').then(|| names.next()).flatten();
            name.map_or_else(|| step.to_owned(), escaped)
        });
        steps.collect::<Vec<_>>().join("/")
    }
}

impl<const N: usize, B: ChangeBody> HttpRow for Verb<N, B> {
    fn route(&self) -> &Route {
        &self.route
    }

    fn serve(&'static self) -> MethodRouter<Arc<HttpState>> {
        let handler = |State(state), PathNames(names): PathNames<N>, SentBody(body)| async {
            let last = names.last().map_or(json!(true), |name| json!(name));
            let answer = (self.act)(state, names, body).await?;
            HttpAnswer::Ok(Json(json!({ self.done: answer.unwrap_or(last) })))
        };
        // Rows have methods that axum serves.
        let method = self.route.method.clone().try_into();
        on(method.expect("a method"), handler).layer(DefaultBodyLimit::max(B::BYTES_MAX))
    }
}

impl<const N: usize, B: ChangeBody> Verb<N, B> {
    /// A body as it is sent.
    pub(super) fn body(&self, body: &B) -> String {
        match B::EXAMPLE {
            "" => String::new(),
            // What is sent are texts, numbers and lists of them.
            _ => serde_json::to_string(body).unwrap_or_default(),
        }
    }
}

/// A name as one segment of a URL's path.
fn escaped(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~');
    name.bytes()
        .map(|b| {
            if plain(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

/// The names in a path.
pub(super) struct PathNames<const N: usize>(pub(super) [String; N]);

impl<const N: usize> FromRequestParts<Arc<HttpState>> for PathNames<N> {
    type Rejection = HttpFailure;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        state: &Arc<HttpState>,
    ) -> HttpAnswer<Self> {
        let what = if N == 1 { "no name" } else { "no such names" };
        let wrong = |why: &dyn fmt::Display| {
            HttpFailure::bad_request(format!("the path has {what}: {why}"))
        };
        let names = Path::<Vec<String>>::from_request_parts(parts, state).await;
        let Path(names) = names.map_err(|why| wrong(&why))?;
        let names = <[String; N]>::try_from(names);
        names.map(Self).map_err(|_| wrong(&"it has others"))
    }
}

/// A body that a change takes.
pub trait ChangeBody: Serialize + DeserializeOwned + Send + 'static {
    /// An example, for a caller that sent something else.
    const EXAMPLE: &'static str;
    /// Fields that are read and that this change always refuses: no caller is advised to send them.
    const REFUSED: &'static [&'static str] = &[];
    /// The largest such body.
    const BYTES_MAX: usize = BODY_BYTES_MAX;

    /// What the audit log shows of it: nothing that is a key or a secret. It is the body itself, as
    /// it was sent.
    fn summary(&self, sent: &[u8]) -> String {
        String::from_utf8_lossy(sent.trim_ascii()).into_owned()
    }
}

/// No body: what is sent is not read.
impl ChangeBody for () {
    const EXAMPLE: &'static str = "";
}

/// The body of a request. The guard has let the caller in before it is read.
struct SentBody<B>(B);

/// Bodies that may be as large as this are read one at a time, so that many of them do not take the
/// memory of data.
const LARGE_BODY: usize = 32 << 20;
static ONE_LARGE_BODY: Semaphore = Semaphore::const_new(1);

impl<B: ChangeBody> FromRequest<Arc<HttpState>> for SentBody<B> {
    type Rejection = HttpFailure;

    async fn from_request(request: Request, state: &Arc<HttpState>) -> HttpAnswer<Self> {
        if B::EXAMPLE.is_empty() {
            let none = serde_json::from_value(Value::Null);
            return none.map(Self).map_err(|e| misread::<B>(&e));
        }
        let summary = request.extensions().get::<Summary>().cloned();
        let _alone = match B::BYTES_MAX {
            ..LARGE_BODY => None,
            _ => Some(ONE_LARGE_BODY.try_acquire().map_err(|_| {
                let why = "another large body is being read: send this one again in a moment";
                HttpFailure::unavailable(why)
            })?),
        };
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|e| unread::<B>(e.status(), &e.body_text()))?;
        let read: B = parse(&body)?;
        if let Some(summary) = summary {
            summary.say(read.summary(&body));
        }
        Ok(Self(read))
    }
}

/// A body could not be read.
fn unread<B: ChangeBody>(status: StatusCode, why: &str) -> HttpFailure {
    let text = if status == StatusCode::PAYLOAD_TOO_LARGE {
        too_large(B::BYTES_MAX)
    } else {
        format!("the body cannot be read ({why}): send {}", B::EXAMPLE)
    };
    HttpFailure(status, text)
}

/// The answer to a caller whose body exceeds this limit.
pub(super) fn too_large(most: usize) -> String {
    format!("the body is too large: send at most {most} bytes")
}

fn misread<B: ChangeBody>(why: &dyn fmt::Display) -> HttpFailure {
    // serde lists all fields that are read: "expected one of `a`, `b`".
    let why = B::REFUSED.iter().fold(why.to_string(), |why, field| {
        why.replace(&format!("`{field}`, "), "")
            .replace(&format!(", `{field}`"), "")
    });
    HttpFailure::bad_request(format!("send {}: {why}", B::EXAMPLE))
}

pub(super) fn parse<B: ChangeBody>(body: &[u8]) -> HttpAnswer<B> {
    // serde would also take an array of the fields in their order here. No caller means that.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(misread::<B>(&"this is no JSON object"));
    }
    // Some readers would take the last of two equal keys, and others the first.
    serde_json::from_slice::<Distinct>(body).map_err(|e| misread::<B>(&e))?;
    serde_json::from_slice(body).map_err(|e| misread::<B>(&e))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::keyspace::SplitRequest;
    use crate::http::api::{KEYSPACE_BYTES_MAX, NewKeyspaceBody};
    use crate::report::rebalance::{PLAN_BYTES_MAX, RebalancePlan};

    #[test]
    fn a_name_is_one_segment_of_a_path() {
        assert_eq!(escaped("10.0.0.1:7400"), "10.0.0.1%3A7400");
        assert_eq!(escaped("a/../b"), "a%2F..%2Fb");
    }

    #[test]
    fn a_body_that_is_too_large_is_refused_with_the_limit_of_its_route() {
        let large = StatusCode::PAYLOAD_TOO_LARGE;
        let texts = [
            unread::<SplitRequest>(large, "no").1,
            unread::<NewKeyspaceBody>(large, "no").1,
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
}
