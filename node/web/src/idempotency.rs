//! Requests with an `Idempotency-Key` run once in the cluster.
//!
//! ```text
//!   request ── key, fingerprint ──> claim (the map: if absent)
//!                 │ claimed                     │ there is an entry
//!                 v                             ├─ another fingerprint: 422
//!              the handler, in a task,          ├─ it runs: 409
//!              the claim renewed meanwhile      └─ it is done: the stored answer
//!                 ├─ 408, 425, 429, 5xx, panic: the entry is removed
//!                 └─ other answers are stored over the claim
//! ```
//! The header and the statuses are those of the IETF draft
//! `draft-ietf-httpapi-idempotency-key-header`.

mod answer;
mod key;
mod record;
mod run;

pub use record::{RequestKey, StoredRequest};

use crate::problem::ProblemResponse;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use bytes::Bytes;
use doyen::Map;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, Limited};
use run::GuardedRequest;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument;

/// A tower layer for axum: a request with the header `Idempotency-Key` is executed once in the
/// cluster, and a repeat gets the stored answer, from any node.
///
/// ```no_run
/// # async fn pay() {}
/// # async fn example(node: &doyen::Node) -> Result<axum::Router, doyen::Error> {
/// use axum::extract::Request;
/// use axum::routing::post;
/// use axum::Router;
/// use doyen_web::IdempotencyLayer;
///
/// // The caller, so that no caller gets the answer to another one's request.
/// let caller = |request: &Request| match request.headers().get("authorization") {
///     Some(token) => token.to_str().unwrap_or_default().to_owned(),
///     None => String::new(),
/// };
/// let once = IdempotencyLayer::new(node.map("requests").await?, caller).required();
/// let app = Router::new().route("/payments", post(pay)).layer(once);
/// # Ok(app) }
/// ```
///
/// | request | answer |
/// |---|---|
/// | without the header | the handler's; 400 if the key is [`required`](Self::required) |
/// | `GET`, `HEAD`, `OPTIONS`, `TRACE` | the handler's: such requests change nothing |
/// | a key that is empty, above 255 bytes or sent twice | 400 |
/// | a body above [`request_max`](Self::request_max) | 413 |
/// | the first one with its key | the handler's |
/// | a repeat | the stored answer, with `Idempotent-Replayed: true` |
/// | a repeat while the first one runs | 409 with `Retry-After` |
/// | another request with a known key | 422 |
/// | a repeat whose answer was not kept ([`response_max`](Self::response_max)) | 409 |
/// | the grid does not answer | 503 with `Retry-After`; the handler is not called |
///
/// Requests are the same if method, path, query, content type and body are. An answer is stored
/// with its status, body and headers, but without `Set-Cookie`, `Date` and what belongs to one
/// connection. An answer that asks to try again (408, 425, 429, 5xx) is not stored, and neither is
/// a panic: a repeat runs again.
///
/// # Never twice at a time
/// The handler runs in a task of its own. If the client goes away, it runs to its end, and a repeat
/// gets its answer. While it runs, its node renews a [`lease`](Self::lease). If the node dies, a
/// repeat may run when the lease has ended. If the node cannot renew it, the handler's future is
/// dropped before the lease ends, and the answer is 503. What the handler has given to other tasks
/// or threads goes on then, and so does what it has sent to other systems: the layer cannot know
/// whether that took effect.
///
/// # What an entry needs
/// The promise holds as long as the map keeps its entries: use a keyspace without eviction. The
/// time to live of the map does not matter.
#[derive(Clone)]
pub struct IdempotencyLayer {
    settings: Arc<IdempotencySettings>,
}

/// Which caller sends a request.
type Caller = Arc<dyn Fn(&Request) -> String + Send + Sync>;

#[derive(Clone)]
struct IdempotencySettings {
    requests: Map<RequestKey, StoredRequest>,
    caller: Caller,
    required: bool,
    keep_for: Duration,
    lease: Duration,
    request_max: usize,
    response_max: usize,
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("map", &self.settings.requests.name())
            .field("required", &self.settings.required)
            .field("keep_for", &self.settings.keep_for)
            .field("lease", &self.settings.lease)
            .finish_non_exhaustive()
    }
}

impl IdempotencyLayer {
    /// How long answers are kept.
    const KEEP_FOR: Duration = Duration::from_secs(24 * 60 * 60);
    /// How long a node may be silent until another one may run its request. A failover takes some
    /// seconds, and the lease must outlast it.
    const LEASE: Duration = Duration::from_secs(30);
    /// The shortest one. A node gives a claim up 1.3 s and 2 % before its end, because clocks
    /// differ, and renews it after a third.
    const LEASE_MIN: Duration = Duration::from_secs(5);
    /// As much as axum's extractors read.
    const REQUEST_MAX: usize = 2 << 20;
    const RESPONSE_MAX: usize = 1 << 20;

    /// Keeps requests in this map. `caller` says who sends a request, such as the user: callers may
    /// use the same keys, and none gets the answer to another one's request.
    #[must_use]
    pub fn new(
        requests: Map<RequestKey, StoredRequest>,
        caller: impl Fn(&Request) -> String + Send + Sync + 'static,
    ) -> Self {
        Self {
            settings: Arc::new(IdempotencySettings {
                requests,
                caller: Arc::new(caller),
                required: false,
                keep_for: Self::KEEP_FOR,
                lease: Self::LEASE,
                request_max: Self::REQUEST_MAX,
                response_max: Self::RESPONSE_MAX,
            }),
        }
    }

    /// Refuses `POST` and `PATCH` without the header with 400.
    #[must_use]
    pub fn required(self) -> Self {
        self.with(|settings| settings.required = true)
    }

    /// How long answers are kept. Without this: 24 hours.
    #[must_use]
    pub fn keep_for(self, time: Duration) -> Self {
        self.with(|settings| settings.keep_for = time)
    }

    /// How long after the death of its node a request may run again. Without this: 30 seconds. At
    /// least 5 seconds.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|settings| settings.lease = lease.max(Self::LEASE_MIN))
    }

    /// The largest body of a request with a key, in bytes. Without this: 2 MiB.
    #[must_use]
    pub fn request_max(self, bytes: usize) -> Self {
        self.with(|settings| settings.request_max = bytes)
    }

    /// The largest answer that is stored, headers included, in bytes. Without this: 1 MiB. A larger
    /// one is delivered, and repeats get 409.
    #[must_use]
    pub fn response_max(self, bytes: usize) -> Self {
        self.with(|settings| settings.response_max = bytes)
    }

    fn with(mut self, change: impl FnOnce(&mut IdempotencySettings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Idempotency<S> {
        Idempotency {
            inner,
            settings: self.settings.clone(),
        }
    }
}

/// The service of an [`IdempotencyLayer`].
#[derive(Clone)]
pub struct Idempotency<S> {
    inner: S,
    settings: Arc<IdempotencySettings>,
}

impl<S: fmt::Debug> fmt::Debug for Idempotency<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<S> Service<Request> for Idempotency<S>
where
    S: Service<Request, Response = Response> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // The service that was polled is the one that is ready.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let key = match self.settings.key(&request) {
            Ok(Some(key)) => key,
            Ok(None) => return Box::pin(inner.call(request)),
            Err(problem) => return Box::pin(async move { Ok(problem.response()) }),
        };
        let settings = self.settings.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = match whole(body, settings.request_max).await {
                Ok(body) => body,
                Err(problem) => return Ok(problem.response()),
            };
            let run = GuardedRequest::new(settings, key, &parts, &body);
            let request = Request::from_parts(parts, Body::from(body));
            // A task of its own, so that a client that goes away neither ends the handler half way
            // nor leaves a claim behind that nobody runs for.
            let task = run.run(async move { inner.call(request).await });
            match tokio::spawn(task.in_current_span()).await {
                Ok(answer) => answer,
                // The handler panicked. Layers around this one catch that, or not.
                Err(ended) => match ended.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Ok(stopping().response()),
                },
            }
        })
    }
}

impl IdempotencySettings {
    /// The key of a request that is to run once. `None`: it just runs.
    fn key(&self, request: &Request) -> Result<Option<RequestKey>, ProblemResponse> {
        let method = request.method();
        if method.is_safe() {
            return Ok(None);
        }
        match key::of_headers(request.headers())? {
            Some(key) => Ok(Some(RequestKey::new(&(self.caller)(request), &key))),
            None if self.required && !method.is_idempotent() => Err(ProblemResponse::new(
                StatusCode::BAD_REQUEST,
                "This request needs the header Idempotency-Key, with a value that is new for each \
                 request and the same in its repeats.",
            )),
            None => Ok(None),
        }
    }
}

/// The whole body of a request.
async fn whole(body: Body, limit: usize) -> Result<Bytes, ProblemResponse> {
    let too_large = || {
        ProblemResponse::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("A request with an Idempotency-Key may have {limit} bytes at most."),
        )
    };
    let announced = body.size_hint().lower();
    if usize::try_from(announced).is_ok_and(|bytes| bytes <= limit) {
        match Limited::new(body, limit).collect().await {
            Ok(whole) => return Ok(whole.to_bytes()),
            Err(why) if why.is::<http_body_util::LengthLimitError>() => {}
            Err(_) => {
                let detail = "The body of the request did not arrive whole.";
                return Err(ProblemResponse::new(StatusCode::BAD_REQUEST, detail));
            }
        }
    }
    Err(too_large())
}

/// The runtime ends before the handler does.
fn stopping() -> ProblemResponse {
    let detail = "This server is stopping: repeat the request.";
    ProblemResponse::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        .retry_after(Duration::from_secs(1))
}

/// The parts of a request that make it the same request.
fn fingerprinted<'a>(parts: &'a Parts, body: &'a [u8]) -> [&'a [u8]; 4] {
    let target = parts.uri.path_and_query();
    let kind = parts.headers.get(axum::http::header::CONTENT_TYPE);
    [
        parts.method.as_str().as_bytes(),
        target.map_or("/", |target| target.as_str()).as_bytes(),
        kind.map_or(&[], |kind| kind.as_bytes()),
        body,
    ]
}
