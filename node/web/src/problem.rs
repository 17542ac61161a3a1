//! Answers that say what is wrong, in the form of RFC 9457 (`application/problem+json`).

use bytes::Bytes;
use doyen::Error;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use std::time::Duration;

/// When a client may try again after an error that says that this may help.
const RETRY: Duration = Duration::from_secs(1);

/// An answer of this crate instead of a handler's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProblemResponse {
    pub(crate) status: StatusCode,
    pub(crate) detail: String,
    pub(crate) retry_after: Option<Duration>,
}

impl ProblemResponse {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            retry_after: None,
        }
    }

    /// The client may try again after this time. HTTP counts whole seconds: at least one, so that
    /// no client asks at once.
    pub(crate) const fn retry_after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }

    /// The answer to a client for an error of the grid. If the client cannot help, it gets no
    /// details: they name maps and types of the program.
    pub(crate) fn of_error(why: &Error) -> Self {
        let status = match why {
            why if why.retryable() => StatusCode::SERVICE_UNAVAILABLE,
            Error::Closed => StatusCode::SERVICE_UNAVAILABLE,
            Error::Changed | Error::Fenced => StatusCode::CONFLICT,
            Error::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Error::OutOfMemory => StatusCode::INSUFFICIENT_STORAGE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let detail = match why {
            Error::Unknown | Error::Unexpected(_) => {
                "It is not known whether this happened: read before you try again."
            }
            _ if status == StatusCode::INTERNAL_SERVER_ERROR => "The request failed.",
            Error::Changed | Error::Fenced => {
                "Another request has changed this meanwhile: read it again."
            }
            Error::TooLarge => "The request is too large to be stored.",
            Error::OutOfMemory => "There is no memory left to store this.",
            _ => "The cluster cannot answer at the moment: nothing happened; try again later.",
        };
        let problem = Self::new(status, detail);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            problem.retry_after(RETRY)
        } else {
            problem
        }
    }

    pub(crate) fn response<B: From<Bytes>>(&self) -> Response<B> {
        let body = serde_json::json!({
            "title": self.status.canonical_reason().unwrap_or_default(),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        let mut response = Response::new(B::from(Bytes::from(body.to_string())));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/problem+json");
        headers.insert(CONTENT_TYPE, json);
        if let Some(time) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(time).max(1)));
        }
        response
    }
}

/// The seconds of a time, rounded up, so that what is said to be over is over.
pub(crate) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs()
        .saturating_add(u64::from(time.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_whether_to_try_again_and_hides_what_the_program_is_made_of() {
        let cases = [
            (Error::Unavailable, 503, true),
            (Error::Overloaded, 503, true),
            (Error::Closed, 503, true),
            (Error::Changed, 409, false),
            (Error::Fenced, 409, false),
            (Error::TooLarge, 413, false),
            (Error::OutOfMemory, 507, false),
            (Error::Unknown, 500, false),
            (Error::Refused("the map secret-map".into()), 500, false),
        ];
        for (why, status, retry) in cases {
            let problem = ProblemResponse::of_error(&why);
            assert_eq!(problem.status.as_u16(), status, "{why}");
            assert_eq!(problem.retry_after.is_some(), retry, "{why}");
            assert!(!problem.detail.contains("secret-map"));
        }
    }

    #[test]
    fn seconds_are_rounded_up_and_never_say_at_once() {
        assert_eq!(whole_seconds(Duration::from_millis(1_001)), 2);
        assert_eq!(whole_seconds(Duration::from_secs(2)), 2);
        let soon = ProblemResponse::new(StatusCode::CONFLICT, "wait").retry_after(Duration::ZERO);
        let response = soon.response::<Bytes>();
        assert_eq!(response.headers()[RETRY_AFTER], "1");
    }
}
