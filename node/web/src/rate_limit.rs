//! Limits on requests that the whole cluster counts.

use crate::problem::{ProblemResponse, whole_seconds};
use bytes::Bytes;
use doyen::{Decision, Error, RateLimiter};
use futures_util::future::BoxFuture;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

const LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// A tower layer that asks a [`RateLimiter`] before each request: what a caller has left is the
/// same at every node.
///
/// ```no_run
/// # use axum::Router;
/// # async fn example(node: &doyen::Node, app: Router) -> Result<Router, doyen::Error> {
/// use axum::extract::Request;
/// use doyen_web::RateLimitLayer;
/// use std::time::Duration;
///
/// let minute = Duration::from_secs(60);
/// let limiter = node.rate_limiter::<String>("api").sliding_window(100, minute).await?;
/// // `None`: the request is not limited.
/// let user = |request: &Request| {
///     let user = request.headers().get("x-user")?;
///     Some(user.to_str().ok()?.to_owned())
/// };
/// let app = app.layer(RateLimitLayer::new(limiter, user).policy("api", 100, minute));
/// # Ok(app) }
/// ```
///
/// | request | answer |
/// |---|---|
/// | within the limit | the service's |
/// | above the limit | 429 with `Retry-After`; the service is not called |
/// | its key is none that the grid takes | 400 |
/// | the grid does not answer [in time](Self::timeout) | the service's; 503 with [`fail_closed`](Self::fail_closed) |
/// | the limiter fails with an error that does not pass by itself, such as a full memory | 503 |
///
/// The first two have the headers of the IETF draft `draft-ietf-httpapi-ratelimit-headers`:
/// `RateLimit: "api";r=99;t=60` says that 99 requests are left, and that the limit is as new in 60
/// seconds. [`policy`](Self::policy) adds `RateLimit-Policy: "api";q=100;w=60`.
///
/// Limit by what a caller cannot change at will: by the user rather than by a header that any
/// client may set. A key is stored until its limit is as new.
pub struct RateLimitLayer<K, F> {
    limiter: RateLimiter<K>,
    key: F,
    settings: Arc<RateSettings>,
}

#[derive(Debug, Clone)]
struct RateSettings {
    name: String,
    policy: Option<HeaderValue>,
    closed: bool,
    timeout: Duration,
}

impl<K, F: Clone> Clone for RateLimitLayer<K, F> {
    fn clone(&self) -> Self {
        Self {
            limiter: self.limiter.clone(),
            key: self.key.clone(),
            settings: self.settings.clone(),
        }
    }
}

impl<K, F> fmt::Debug for RateLimitLayer<K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("limiter", &self.limiter)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl<K, F> RateLimitLayer<K, F> {
    /// A limit that takes this long to ask for protects nobody.
    const TIMEOUT: Duration = Duration::from_secs(1);

    /// Limits requests by their key. `None`: the request is not limited.
    #[must_use]
    pub fn new<B>(limiter: RateLimiter<K>, key: F) -> Self
    where
        F: Fn(&Request<B>) -> Option<K>,
    {
        Self {
            limiter,
            key,
            settings: Arc::new(RateSettings {
                name: quoted("default"),
                policy: None,
                closed: false,
                timeout: Self::TIMEOUT,
            }),
        }
    }

    /// The limit's name and numbers in answers to clients. The numbers should be those of the
    /// limiter. Without this call the name is `default`, and answers have no numbers.
    #[must_use]
    pub fn policy(self, name: &str, limit: u64, window: Duration) -> Self {
        self.with(|settings| {
            settings.name = quoted(name);
            let window = whole_seconds(window);
            settings.policy = value(format!("{};q={limit};w={window}", settings.name));
        })
    }

    /// Refuses requests with 503 while the grid does not answer. Without this they pass.
    #[must_use]
    pub fn fail_closed(self) -> Self {
        self.with(|settings| settings.closed = true)
    }

    /// How long the grid may take to answer. Without this: one second.
    #[must_use]
    pub fn timeout(self, limit: Duration) -> Self {
        self.with(|settings| settings.timeout = limit)
    }

    fn with(mut self, change: impl FnOnce(&mut RateSettings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

impl<S, K, F: Clone> Layer<S> for RateLimitLayer<K, F> {
    type Service = RateLimit<S, K, F>;

    fn layer(&self, inner: S) -> RateLimit<S, K, F> {
        RateLimit {
            inner,
            layer: self.clone(),
        }
    }
}

/// The service of a [`RateLimitLayer`].
pub struct RateLimit<S, K, F> {
    inner: S,
    layer: RateLimitLayer<K, F>,
}

impl<S: Clone, K, F: Clone> Clone for RateLimit<S, K, F> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

impl<S: fmt::Debug, K, F> fmt::Debug for RateLimit<S, K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .field("layer", &self.layer)
            .finish()
    }
}

impl<S, K, F, B, R> Service<Request<B>> for RateLimit<S, K, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    K: Serialize + Send + Sync + 'static,
    F: Fn(&Request<B>) -> Option<K>,
    B: Send + 'static,
    R: From<Bytes>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<R>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that was polled is the one that is ready.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let Some(key) = (self.layer.key)(&request) else {
            return Box::pin(inner.call(request));
        };
        let limiter = self.layer.limiter.clone();
        let settings = self.layer.settings.clone();
        Box::pin(async move {
            let decision = match settings.ask(&limiter, &key).await {
                Ok(decision) => decision,
                Err(problem) => return Ok(problem.response()),
            };
            let mut response = match decision {
                Some(decision) if !decision.allowed => refusal(&decision).response(),
                _ => inner.call(request).await?,
            };
            if let Some(decision) = decision {
                settings.tell(&decision, response.headers_mut());
            }
            Ok(response)
        })
    }
}

impl RateSettings {
    /// What the limiter decides. `None`: the request passes without a decision.
    async fn ask<K: Serialize>(
        &self,
        limiter: &RateLimiter<K>,
        key: &K,
    ) -> Result<Option<Decision>, ProblemResponse> {
        let asked = tokio::time::timeout(self.timeout, limiter.check(key)).await;
        let why = match asked {
            Ok(Ok(decision)) => return Ok(Some(decision)),
            // Otherwise a client could choose a key that nothing counts.
            Ok(Err(Error::Key(_) | Error::TooLarge)) => {
                let detail = "What this request is limited by is too long or malformed.";
                return Err(ProblemResponse::new(StatusCode::BAD_REQUEST, detail));
            }
            Ok(Err(why)) => why,
            Err(_) => Error::Unavailable,
        };
        tracing::warn!("a rate limit is not known: {why}");
        if self.closed || !passes(&why) {
            return Err(ProblemResponse::of_error(&Error::Unavailable));
        }
        Ok(None)
    }

    /// Tells the client what it has left. Several layers tell one after the other.
    fn tell(&self, decision: &Decision, headers: &mut HeaderMap) {
        let Decision {
            remaining,
            reset_after,
            ..
        } = decision;
        let reset = whole_seconds(*reset_after);
        if let Some(left) = value(format!("{};r={remaining};t={reset}", self.name)) {
            headers.append(LIMIT, left);
        }
        if let Some(policy) = &self.policy {
            headers.append(POLICY, policy.clone());
        }
    }
}

/// Whether the grid only does not answer at the moment. Any other error would let all requests pass
/// for as long as a person does not help.
const fn passes(why: &Error) -> bool {
    why.retryable() || matches!(why, Error::Unknown | Error::Closed)
}

fn refusal(decision: &Decision) -> ProblemResponse {
    let detail = "There were too many requests: send the next one later.";
    let problem = ProblemResponse::new(StatusCode::TOO_MANY_REQUESTS, detail);
    match decision.retry_after {
        Some(time) => problem.retry_after(time),
        None => problem,
    }
}

/// A name as a string of RFC 9651, which has printable ASCII only: other characters are left out.
fn quoted(name: &str) -> String {
    let mut quoted = String::from("\"");
    for c in name.chars().filter(|c| matches!(c, ' '..='~')) {
        if matches!(c, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.push('"');
    quoted
}

fn value(text: String) -> Option<HeaderValue> {
    HeaderValue::try_from(text).ok()
}

#[cfg(test)]
mod tests {
    use super::{passes, quoted};
    use doyen::Error;

    #[test]
    fn only_errors_that_pass_let_requests_pass() {
        for open in [
            Error::Unavailable,
            Error::Overloaded,
            Error::Unknown,
            Error::Closed,
        ] {
            assert!(passes(&open), "{open:?}");
        }
        for closed in [
            Error::WrongType,
            Error::OutOfMemory,
            Error::MapFull,
            Error::Dropped,
        ] {
            assert!(!passes(&closed), "{closed:?}");
        }
    }

    #[test]
    fn any_name_is_a_string_of_a_header() {
        assert_eq!(quoted("api"), r#""api""#);
        assert_eq!(quoted("a\"b\\c"), r#""a\"b\\c""#);
        assert_eq!(quoted("é\r\nx"), r#""x""#);
    }
}
