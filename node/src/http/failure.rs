//! Errors of HTTP. This is the only place that gives each kind of error its status.

use crate::admin::{AdminError, Refusal, ReportError};
use crate::error::{Error, Happened};
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use std::borrow::Cow;

/// The middle of a longer text is left out.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// An error, as JSON: `{"error": "what is wrong, and what to do"}`.
#[derive(Debug)]
pub(super) struct HttpFailure(pub(super) StatusCode, pub(super) String);

pub(super) type HttpAnswer<T> = Result<T, HttpFailure>;

impl HttpFailure {
    pub(super) fn bad_request(why: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, why.into())
    }

    pub(super) fn unavailable(why: impl Into<String>) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, why.into())
    }

    /// The node stops and answers nothing any more.
    pub(super) fn stopped() -> Self {
        ReportError::Stopped.into()
    }
}

impl IntoResponse for HttpFailure {
    fn into_response(self) -> Response {
        (self.0, Json(serde_json::json!({ "error": short(&self.1) }))).into_response()
    }
}

/// The text, without its middle if it is long: it may repeat megabytes that the caller sent. What
/// is wrong stands at the beginning, and what to do at the end.
fn short(text: &str) -> Cow<'_, str> {
    let bytes = text.len();
    if bytes <= TEXT_BYTES_MAX {
        return Cow::Borrowed(text);
    }
    let (first, last) = (TEXT_BYTES_MAX / 4 * 3, bytes - TEXT_BYTES_MAX / 4);
    // The start and the end of the text are boundaries.
    let is_boundary = |at: &usize| text.is_char_boundary(*at);
    let first = (0..=first).rev().find(is_boundary).unwrap_or(0);
    let last = (last..=bytes).find(is_boundary).unwrap_or(bytes);
    Cow::Owned(format!(
        "{} ... ({} bytes are left out) ... {}",
        &text[..first],
        last - first,
        &text[last..]
    ))
}

impl From<AdminError> for HttpFailure {
    fn from(error: AdminError) -> Self {
        let status = match &error {
            AdminError::Refused(refusal) => match refusal {
                Refusal::NotFound { .. } => StatusCode::NOT_FOUND,
                Refusal::Invalid { .. } => StatusCode::BAD_REQUEST,
                Refusal::Conflict { .. } | Refusal::Unsafe { .. } | Refusal::NotYet { .. } => {
                    StatusCode::CONFLICT
                }
            },
            AdminError::NotMember { .. }
            | AdminError::NoCoordinator { .. }
            | AdminError::Stopped
            | AdminError::NoRuntime => StatusCode::SERVICE_UNAVAILABLE,
            AdminError::Unknown { .. } | AdminError::NotInForce { .. } => {
                StatusCode::GATEWAY_TIMEOUT
            }
        };
        Self(status, error.to_string())
    }
}

/// An operation on data failed.
impl From<Error> for HttpFailure {
    fn from(error: Error) -> Self {
        let status = match error.happened() {
            Happened::Unknown => StatusCode::GATEWAY_TIMEOUT,
            _ if error.retryable() || matches!(error, Error::Closed) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::CONFLICT,
        };
        Self(status, error.to_string())
    }
}

impl From<ReportError> for HttpFailure {
    fn from(error: ReportError) -> Self {
        let status = match &error {
            ReportError::NotFound { .. } => StatusCode::NOT_FOUND,
            ReportError::NotMember { .. }
            | ReportError::NoCoordinator { .. }
            | ReportError::Split { .. }
            | ReportError::Stopped
            | ReportError::NoRuntime => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self(status, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the answer repeated a name of 3 MB.
    #[test]
    fn a_long_text_keeps_its_beginning_and_its_end() {
        let named = |name: &str| format!("there is no member {name}: name one of those in /status");
        assert_eq!(short(&named("ada")), named("ada"));
        for name in ["a".repeat(3 << 20), "\u{e9}".repeat(3 << 20)] {
            let told = short(&named(&name)).into_owned();
            assert!(told.len() < TEXT_BYTES_MAX + 100, "{} bytes", told.len());
            assert!(told.starts_with("there is no member ") && told.ends_with(" in /status"));
            assert!(told.contains(" bytes are left out"));
        }
    }

    #[test]
    fn every_error_of_a_change_has_the_status_that_the_documentation_says() {
        let why = || "why".to_owned();
        let field = "rate";
        let refused = [
            (Refusal::NotFound { why: why() }, 404),
            (Refusal::Invalid { field, why: why() }, 400),
            (Refusal::Conflict { why: why() }, 409),
            (Refusal::Unsafe { why: why() }, 409),
            (Refusal::NotYet { why: why() }, 409),
        ];
        for (refusal, status) in refused {
            let error = AdminError::from(refusal);
            assert!(!error.may_have_happened(), "{error:?}");
            let HttpFailure(code, text) = error.into();
            assert_eq!((code.as_u16(), &*text), (status, "why"));
        }
        let others = [
            (AdminError::NotMember { why: why() }, false, 503),
            (AdminError::NoCoordinator { why: why() }, false, 503),
            (AdminError::Stopped, true, 503),
            (AdminError::Unknown { why: why() }, true, 504),
            (AdminError::NotInForce { why: why() }, true, 504),
        ];
        for (error, may_have_happened, status) in others {
            assert_eq!(error.may_have_happened(), may_have_happened, "{error:?}");
            assert_eq!(HttpFailure::from(error).0.as_u16(), status);
        }
    }

    #[test]
    fn an_operation_on_data_that_may_have_happened_is_answered_with_its_own_status() {
        for (error, status) in [
            (Error::Unknown, 504),
            (Error::Unavailable, 503),
            (Error::Closed, 503),
            (Error::TooLarge, 409),
            (Error::WrongType, 409),
        ] {
            assert_eq!(HttpFailure::from(error).0.as_u16(), status);
        }
    }

    #[test]
    fn every_error_of_a_report_has_the_status_that_the_documentation_says() {
        let why = || "why".to_owned();
        let errors = [
            (ReportError::NotFound { why: why() }, 404),
            (ReportError::NotMember { why: why() }, 503),
            (ReportError::NoCoordinator { why: why() }, 503),
            (ReportError::Stopped, 503),
        ];
        for (error, status) in errors {
            assert_eq!(HttpFailure::from(error).0.as_u16(), status);
        }
    }
}
