//! Who may read: which requests a browser can be made to send, and which reports need the token.
//!
//! A web page can make its own name lead to this machine (DNS rebinding), and then read what nodes
//! answer as if they were its own server. The browser sends that name as `Host`. So a node answers
//! to addresses, to `localhost` and to the names that it was given, and to no others. A request of
//! a page to another server than its own carries an `Origin`.

use super::State;
use super::failure::Failure;
use crate::net::identity::Identity;
use axum::extract::{FromRequestParts, Request, State as Shared};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::Arc;

/// How much of a refused host's name the error repeats.
const SHOWN_CHARS: usize = 64;

/// Refuses requests for other hosts than this node, and those that pages of other servers make.
pub(super) async fn addressed(
    Shared(state): Shared<Arc<State>>,
    request: Request,
    next: Next,
) -> Response {
    match misled(&state.hosts, request.uri().authority(), request.headers()) {
        Some(failure) => failure.into_response(),
        None => next.run(request).await,
    }
}

fn misled(hosts: &[String], target: Option<&Authority>, headers: &HeaderMap) -> Option<Failure> {
    let said = headers
        .get_all(header::HOST)
        .iter()
        .map(|host| host.to_str().unwrap_or_default());
    let asked: Vec<&str> = said.chain(target.map(Authority::as_str)).collect();
    if let Some(foreign) = asked.iter().find(|host| !is_own(hosts, host)) {
        let shown: String = foreign.escape_debug().take(SHOWN_CHARS).collect();
        let why = format!(
            "this node does not answer as `{shown}`: ask for its IP address or localhost, \
             or start it with --http-host NAME"
        );
        return Some(Failure(StatusCode::MISDIRECTED_REQUEST, why));
    }
    let origin = headers.get(header::ORIGIN)?.to_str().unwrap_or_default();
    let of = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    if of.is_some_and(|of| asked.iter().any(|host| host.eq_ignore_ascii_case(of))) {
        return None;
    }
    let shown: String = origin.escape_debug().take(SHOWN_CHARS).collect();
    Some(Failure(
        StatusCode::FORBIDDEN,
        format!(
            "a page of `{shown}` asks: nodes answer programs, so send the request without Origin"
        ),
    ))
}

/// Whether this node is meant by `HOST` or `HOST:PORT`.
fn is_own(hosts: &[String], said: &str) -> bool {
    let host = match said.rsplit_once(':') {
        // An IPv6 address stands in brackets and has colons of its own.
        Some((host, port))
            if port.bytes().all(|b| b.is_ascii_digit())
                && !host.ends_with(':')
                && (host.ends_with(']') || !host.contains(':')) =>
        {
            host
        }
        _ => said,
    };
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    let name = host.strip_suffix('.').unwrap_or(host);
    bare.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|own| {
            own.strip_suffix('.')
                .unwrap_or(own)
                .eq_ignore_ascii_case(name)
        })
}

/// What a request for a change must carry.
#[derive(Debug)]
pub(crate) enum Token {
    /// No request may change anything.
    Nothing,
    /// This token.
    Fixed(String),
    /// A token that is derived from one of the secrets, which may change.
    OfSecrets(Arc<Identity>),
}

impl Token {
    /// Whether any request may change something.
    pub(crate) const fn is_something(&self) -> bool {
        !matches!(self, Self::Nothing)
    }

    fn takes(&self, token: &[u8]) -> bool {
        match self {
            Self::Nothing => false,
            Self::Fixed(wanted) => same(token, wanted.as_bytes()),
            Self::OfSecrets(identity) => identity.is_operator(token),
        }
    }
}

/// Refuses requests without the token.
pub(super) fn authorize(state: &State, headers: &HeaderMap) -> Result<(), Failure> {
    if !state.token.is_something() {
        let hint = "this node has neither a secret nor --http-token-file: \
         restart it with one of them, or ask a node that has";
        return Err(Failure(StatusCode::FORBIDDEN, hint.into()));
    }
    let token = headers
        .get(header::AUTHORIZATION)
        .and_then(|v| v.as_bytes().strip_prefix(b"Bearer "));
    if token.is_some_and(|token| state.token.takes(token)) {
        return Ok(());
    }
    let hint = if token.is_some() {
        "this is not the cluster's token: give the commands of `doyen` the --secret-file or the \
         --http-token-file of the nodes; a program of your own sends what is in the nodes' \
         --http-token-file"
    } else {
        "this needs the cluster's token (Authorization: Bearer TOKEN): the commands of `doyen` \
         send it, with --secret-file FILE if the cluster has a secret; for a program of your own, \
         start the nodes with --http-token-file FILE, and send what is in it"
    };
    Err(Failure(StatusCode::UNAUTHORIZED, hint.into()))
}

/// The request has the token, so it may change something.
pub(super) struct Authorized;

impl FromRequestParts<Arc<State>> for Authorized {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<State>) -> Result<Self, Failure> {
        authorize(state, &parts.headers).map(|()| Self)
    }
}

/// The request may see keys, and where data lies: it has the token, or this node shows the data
/// itself to every client.
pub(super) struct MaySee;

impl FromRequestParts<Arc<State>> for MaySee {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<State>) -> Result<Self, Failure> {
        if state.guarded {
            authorize(state, &parts.headers)?;
        }
        Ok(Self)
    }
}

/// Compares in a time that does not depend on where two texts differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (x, y)| differs | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderValue, Uri};

    #[test]
    fn tokens_are_the_same_or_not() {
        assert!(same(b"abc", b"abc"));
        assert!(!same(b"abc", b"abd") && !same(b"abc", b"ab") && !same(b"", b"a"));
    }

    fn status(hosts: &[&str], uri: &str, headers: &[(header::HeaderName, &str)]) -> Option<u16> {
        let hosts: Vec<String> = hosts.iter().map(|h| (*h).to_owned()).collect();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, HeaderValue::from_str(value).expect("a header"));
        }
        let uri: Uri = uri.parse().expect("a URI");
        misled(&hosts, uri.authority(), &map).map(|Failure(status, _)| status.as_u16())
    }

    #[test]
    fn a_node_answers_to_addresses_to_localhost_and_to_names_that_it_was_told() {
        let asked = |host| status(&["ada.example", "bob."], "/status", &[(header::HOST, host)]);
        let own = [
            "127.0.0.1",
            "127.0.0.1:7480",
            "10.1.2.3:1",
            "[::1]",
            "[::1]:7480",
            "localhost",
            "LocalHost:7480",
            "localhost.",
            "ada.example:80",
        ];
        for host in own.into_iter().chain(["ADA.example.", "bob", "bob.:7480"]) {
            assert_eq!(asked(host), None, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7480",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            "ada.example.evil",
            "[",
            "x:y:z",
            "1",
        ] {
            assert_eq!(asked(host), Some(421), "{host}");
        }
        assert_eq!(
            status(&[], "/status", &[]),
            None,
            "no browser leaves it out"
        );
        assert_eq!(
            status(
                &[],
                "http://evil.example/status",
                &[(header::HOST, "localhost")]
            ),
            Some(421)
        );
        assert_eq!(
            status(
                &[],
                "/status",
                &[(header::HOST, "localhost"), (header::HOST, "evil.example")]
            ),
            Some(421)
        );
    }

    #[test]
    fn pages_of_other_servers_are_refused() {
        let asked = |origin| {
            status(
                &[],
                "/status",
                &[(header::HOST, "127.0.0.1:7480"), (header::ORIGIN, origin)],
            )
        };
        assert_eq!(asked("http://127.0.0.1:7480"), None);
        for origin in [
            "http://evil.example",
            "null",
            "http://127.0.0.1:8080",
            "http://127.0.0.1",
            "file://127.0.0.1:7480",
            "",
        ] {
            assert_eq!(asked(origin), Some(403), "{origin}");
        }
    }
}
