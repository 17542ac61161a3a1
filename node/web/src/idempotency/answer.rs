//! Answers: what is stored of them, and how a repeat gets them.

use axum::body::{Body, HttpBody};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};

/// A header of stored answers that tells them from new ones.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Headers that belong to one answer or one connection.
const NOT_STORED: [HeaderName; 11] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::DATE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    // A repeat may come from another browser than the first request.
    header::SET_COOKIE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// An answer that repeats get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredAnswer {
    status: u16,
    headers: Vec<(String, Bytes)>,
    body: Bytes,
}

impl StoredAnswer {
    fn new(status: StatusCode, headers: &HeaderMap, body: Bytes) -> Self {
        let stored = headers
            .iter()
            .filter(|(name, _)| !NOT_STORED.contains(name))
            .map(|(name, value)| {
                let value = Bytes::copy_from_slice(value.as_bytes());
                (name.as_str().to_owned(), value)
            });
        Self {
            status: status.as_u16(),
            headers: stored.collect(),
            body,
        }
    }

    fn bytes(&self) -> usize {
        let headers = self.headers.iter();
        let headers: usize = headers.map(|(name, value)| name.len() + value.len()).sum();
        headers + self.body.len()
    }

    /// The answer again. `None`: what is stored is no answer.
    pub(super) fn replay(self) -> Option<Response> {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = StatusCode::from_u16(self.status).ok()?;
        let headers = response.headers_mut();
        for (name, value) in self.headers {
            let name = HeaderName::try_from(name).ok()?;
            headers.append(name, HeaderValue::from_maybe_shared(value).ok()?);
        }
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
        Some(response)
    }
}

/// Whether a status asks to send the same request again, so that it must not be stored.
pub(super) fn asks_to_repeat(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        )
}

/// Reads an answer. Returns it for the client, and what is stored of it; `None`: it has more than
/// `limit` bytes, or broke off.
pub(super) async fn split(response: Response, limit: usize) -> (Response, Option<StoredAnswer>) {
    let (parts, mut body) = response.into_parts();
    let (mut read, mut bytes) = (Vec::new(), 0);
    let announced = body.size_hint().lower();
    let mut fits = usize::try_from(announced).is_ok_and(|bytes| bytes <= limit);
    while fits {
        match body.frame().await {
            None => {
                let whole = Bytes::from(read.concat());
                let stored = StoredAnswer::new(parts.status, &parts.headers, whole.clone());
                let stored = Some(stored).filter(|stored| stored.bytes() <= limit);
                return (Response::from_parts(parts, Body::from(whole)), stored);
            }
            Some(Ok(frame)) => {
                // Trailers are dropped: no repeat could have them.
                if let Ok(data) = frame.into_data() {
                    bytes += data.len();
                    read.push(data);
                }
                fits = bytes <= limit;
            }
            Some(Err(why)) => {
                // The client sees that it breaks off, too.
                let broken = stream::iter(read.into_iter().map(Ok).chain([Err(why)]));
                return (Response::from_parts(parts, Body::from_stream(broken)), None);
            }
        }
    }
    let rest = stream::iter(read.into_iter().map(Ok)).chain(body.into_data_stream());
    (Response::from_parts(parts, Body::from_stream(rest)), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn text(response: Response) -> Option<String> {
        let whole = response.into_body().collect().await.ok()?;
        String::from_utf8(whole.to_bytes().to_vec()).ok()
    }

    fn streamed(parts: &[Result<&'static str, &'static str>]) -> Body {
        let parts: Vec<_> = parts
            .iter()
            .map(|part| part.map_err(std::io::Error::other))
            .collect();
        Body::from_stream(stream::iter(parts))
    }

    #[tokio::test]
    async fn an_answer_is_replayed_without_what_belongs_to_one_client() {
        let mut response = Response::new(Body::from("paid"));
        *response.status_mut() = StatusCode::CREATED;
        let headers = response.headers_mut();
        headers.append("link", HeaderValue::from_static("<a>"));
        headers.append("link", HeaderValue::from_static("<b>"));
        headers.insert(header::SET_COOKIE, HeaderValue::from_static("id=1"));
        let (answer, stored) = split(response, 100).await;
        assert_eq!(answer.headers()[header::SET_COOKIE], "id=1");
        assert_eq!(text(answer).await.as_deref(), Some("paid"));

        let replayed = stored.and_then(StoredAnswer::replay).expect("it is stored");
        assert_eq!(replayed.status(), StatusCode::CREATED);
        let links: Vec<_> = replayed.headers().get_all("link").iter().collect();
        assert_eq!(links, ["<a>", "<b>"]);
        assert!(!replayed.headers().contains_key(header::SET_COOKIE));
        assert_eq!(replayed.headers()[REPLAYED], "true");
        assert_eq!(text(replayed).await.as_deref(), Some("paid"));
    }

    #[tokio::test]
    async fn an_answer_above_the_limit_is_delivered_whole_and_not_stored() {
        for body in [
            Body::from("123456"),
            streamed(&[Ok("123"), Ok("45"), Ok("6")]),
        ] {
            let (answer, stored) = split(Response::new(body), 5).await;
            assert_eq!(stored, None);
            assert_eq!(text(answer).await.as_deref(), Some("123456"));
        }
        let (_, stored) = split(Response::new(streamed(&[Ok("123"), Ok("45")])), 5).await;
        assert!(stored.is_some(), "it has just the limit");
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_does_so_for_the_client_and_is_not_stored() {
        let body = streamed(&[Ok("12"), Err("lost")]);
        let (answer, stored) = split(Response::new(body), 100).await;
        assert_eq!(stored, None);
        assert_eq!(text(answer).await, None);
    }

    #[test]
    fn stored_bytes_that_are_no_answer_are_not_replayed() {
        let answer = |status, name: &str, value: &'static [u8]| StoredAnswer {
            status,
            headers: vec![(name.to_owned(), Bytes::from_static(value))],
            body: Bytes::new(),
        };
        assert!(answer(200, "a", b"b").replay().is_some());
        for broken in [
            answer(7, "a", b"b"),
            answer(200, "a b", b"b"),
            answer(200, "a", b"\n"),
        ] {
            assert!(broken.replay().is_none());
        }
    }
}
