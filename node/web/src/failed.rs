//! Errors of the grid as answers of handlers.

use crate::problem::ProblemResponse;
use axum::response::{IntoResponse, Response};
use doyen::Error;
use std::fmt;

/// An [`Error`] that a handler returns with `?`.
///
/// ```no_run
/// use axum::extract::{Path, State};
/// use doyen::Map;
/// use doyen_web::Failed;
///
/// async fn note(
///     State(notes): State<Map<u64, String>>,
///     Path(id): Path<u64>,
/// ) -> Result<String, Failed> {
///     Ok(notes.get(&id).await?.unwrap_or_default())
/// }
/// ```
///
/// Its answer is a problem of RFC 9457, and says whether trying again may help:
///
/// | error | answer |
/// |---|---|
/// | [`Error::retryable`], [`Error::Closed`] | 503 with `Retry-After` |
/// | [`Error::Changed`], [`Error::Fenced`] | 409 |
/// | [`Error::TooLarge`] | 413 |
/// | [`Error::OutOfMemory`] | 507 |
/// | others | 500, without details; `tracing` has them |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed(pub Error);

impl From<Error> for Failed {
    fn from(why: Error) -> Self {
        Self(why)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Failed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let problem = ProblemResponse::of_error(&self.0);
        if problem.status.is_server_error() {
            tracing::warn!("a request failed: {}", self.0);
        }
        problem.response()
    }
}
