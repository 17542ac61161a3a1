//! Streams of server-sent events: those of `GET /events?follow=true`, and of the console.
//!
//! A stream ends when the node stops, and when the token of its caller is taken no more. While it
//! has nothing to say, it sends signs of life.

use super::HttpState;
use super::credentials::HttpCaller;
use super::failure::{HttpAnswer, HttpFailure};
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// A stream sends a sign of life this often: an idle connection would be closed, and the reader
/// could not tell it from a cut one.
pub(super) const ALIVE: Duration = Duration::from_secs(5);

/// What a stream sends.
pub(super) trait SseSource: Send + 'static {
    /// The next text; `None`: the stream ends. The future is dropped when a sign of life is due,
    /// and nothing may be lost with it.
    fn next(&mut self) -> impl Future<Output = Option<String>> + Send;
}

/// How far a stream has got.
struct SseStream<S> {
    source: S,
    stopped: watch::Receiver<bool>,
    state: Arc<HttpState>,
    caller: HttpCaller,
}

impl<S: SseSource> SseStream<S> {
    async fn next(&mut self) -> Option<String> {
        let text = tokio::select! {
            text = self.source.next() => text?,
            () = super::wait(&mut self.stopped) => return None,
            () = tokio::time::sleep(ALIVE) => ": nothing\n\n".into(),
        };
        // Judged at each send: the token may be revoked meanwhile.
        let takes = self.state.credentials.still_takes(&self.caller);
        takes.then_some(text)
    }
}

/// Sends what a source says, to this caller.
pub(super) fn follow(
    state: Arc<HttpState>,
    caller: HttpCaller,
    source: impl SseSource,
) -> Response {
    let stream = SseStream {
        source,
        stopped: state.stopped.clone(),
        state,
        caller,
    };
    let texts = futures_util::stream::unfold(stream, |mut stream| async move {
        let text = stream.next().await?;
        Some((Ok::<_, Infallible>(text), stream))
    });
    let head = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (head, Body::from_stream(texts)).into_response()
}

/// An event in the format of server-sent events.
pub(super) fn sent(name: &str, json: &str) -> String {
    format!("event: {name}\ndata: {json}\n\n")
}

/// Refuses a stream that a page of another site opens, as an image or a script. Such a request has
/// no `Origin`, and its page could read nothing; but each stream takes a place that others need.
///
/// # Errors
/// Another page than this node's own asks. Programs do not send this header.
pub(super) fn from_own_page(headers: &HeaderMap) -> HttpAnswer<()> {
    let from = headers.get("sec-fetch-site").map(|site| site.as_bytes());
    if from.is_none_or(|site| [&b"same-origin"[..], b"none"].contains(&site)) {
        return Ok(());
    }
    let why = "a page of another site asks for a stream: open the console of this node itself";
    Err(HttpFailure(StatusCode::FORBIDDEN, why.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    /// Pages of other sites took the places of streams at a node without credentials.
    #[test]
    fn only_programs_and_pages_of_the_node_itself_open_streams() {
        let mut headers = HeaderMap::new();
        assert!(from_own_page(&headers).is_ok(), "a program asks");
        for (site, may) in [
            ("same-origin", true),
            ("none", true),
            ("same-site", false),
            ("cross-site", false),
            ("", false),
        ] {
            headers.insert("sec-fetch-site", HeaderValue::from_static(site));
            let status = from_own_page(&headers).map_err(|HttpFailure(status, _)| status);
            let expected = if may {
                Ok(())
            } else {
                Err(StatusCode::FORBIDDEN)
            };
            assert_eq!(status, expected, "{site:?}");
        }
    }
}
