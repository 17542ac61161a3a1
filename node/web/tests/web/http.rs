//! Requests to an app in the process of a test, without a socket.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, request};
use tower::ServiceExt;

/// An answer with its whole body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    /// A header; empty if there is none.
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().expect("it is text"))
    }
}

pub(crate) fn post(path: &str) -> request::Builder {
    Request::post(path)
}

pub(crate) async fn send(app: &Router, request: request::Builder, body: impl Into<Body>) -> Answer {
    let request = request.body(body.into()).expect("a request");
    let answer = match app.clone().oneshot(request).await {
        Ok(answer) => answer,
        Err(never) => match never {},
    };
    let (parts, body) = answer.into_parts();
    let body = to_bytes(body, usize::MAX).await.expect("a whole body");
    Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: String::from_utf8(body.to_vec()).expect("it is text"),
    }
}
