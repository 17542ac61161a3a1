//! Who is let in: which requests a browser can be made to send, and which tokens open what.
//!
//! A web page can make its own name lead to this machine (DNS rebinding), and then read what nodes
//! answer as if they were its own server. The browser sends that name as `Host`. So a node answers
//! to addresses, to `localhost` and to the names that it was given, and to no others. A request of
//! a page to another server than its own carries an `Origin`.

use super::HttpState;
use super::credentials::{CredentialSource, HttpCaller};
use super::failure::HttpFailure;
use super::token::TOKEN_PREFIX;
use crate::audit::{Audit, AuditOutcome};
use crate::clock;
use crate::login_throttle::LoginThrottle;
use crate::metrics::Metrics;
use crate::net::identity::LOCAL_TOKEN;
use axum::extract::{Request, State as Shared};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use doyen_placement::access::TokenRole;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use zeroize::Zeroizing;

/// How much of a refused host's name the error repeats.
const SHOWN_CHARS: usize = 64;

/// Refuses requests for other hosts than this node, and those that pages of other servers make.
pub(super) async fn addressed(
    Shared(state): Shared<Arc<HttpState>>,
    request: Request,
    next: Next,
) -> Response {
    match misled(&state.hosts, request.uri().authority(), request.headers()) {
        Some(failure) => failure.into_response(),
        None => next.run(request).await,
    }
}

fn misled(
    hosts: &[String],
    target: Option<&Authority>,
    headers: &HeaderMap,
) -> Option<HttpFailure> {
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
        return Some(HttpFailure(StatusCode::MISDIRECTED_REQUEST, why));
    }
    let origin = headers.get(header::ORIGIN)?.to_str().unwrap_or_default();
    let of = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    if of.is_some_and(|of| asked.iter().any(|host| host.eq_ignore_ascii_case(of))) {
        return None;
    }
    let shown: String = origin.escape_debug().take(SHOWN_CHARS).collect();
    Some(HttpFailure(
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

/// What a request needs, once this node has any credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RouteNeeds {
    /// The role `read`: it asks for the state of the cluster.
    Read,
    /// The role `operate`, because the answer shows keys, or where data lies. An open node answers
    /// everyone, unless RESP clients need a password.
    Data,
    /// The role `operate`: it asks for a change, or for what tells of credentials. An open node
    /// demands the word `loopback`, which no web page can send.
    Operate,
    /// It changes the users of Redis clients, and so may open all data, or asks for values: an
    /// operator's secret
    /// ([`Credentials::may_change_users`](super::credentials::Credentials::may_change_users)).
    Users,
}

impl RouteNeeds {
    const fn role(self) -> TokenRole {
        match self {
            Self::Read => TokenRole::Read,
            Self::Data | Self::Operate | Self::Users => TokenRole::Operate,
        }
    }
}

/// The request itself, as far as the audit log shows it: the route says it, because it knows where
/// keys and secrets are.
#[derive(Debug, Clone, Default)]
pub(super) struct Summary(Arc<OnceLock<String>>);

impl Summary {
    /// The first text counts.
    pub(super) fn say(&self, text: String) {
        let _ = self.0.set(text);
    }
}

/// Lets requests through that may do what they ask for, and audits changes.
pub(super) async fn admit(
    Shared((state, needs)): Shared<(Arc<HttpState>, RouteNeeds)>,
    mut request: Request,
    next: Next,
) -> Response {
    let from = request
        .extensions()
        .get::<HttpPeer>()
        .map_or(UNKNOWN, |p| p.0);
    let is_change = ![Method::GET, Method::HEAD].contains(request.method());
    let what = format!("{} {}", request.method(), request.uri().path());
    let summary = Summary::default();
    let sent = token(request.headers()).map(|token| Zeroizing::new(token.to_vec()));
    let judged = judge(&state, needs, sent.as_ref().map(|token| &***token), from).await;
    let audit = |who: String, outcome| Audit {
        who,
        interface: "http",
        from,
        what: match summary.0.get() {
            Some(more) => format!("{what} {more}"),
            None => what.clone(),
        },
        outcome,
    };
    let holder = match judged {
        Ok(holder) => holder,
        Err((refusal, failure)) => {
            // A read without a token is no attempt at anything.
            if is_change || refusal != GuardRefusal::Missing {
                let why = AuditOutcome::Refused(refusal.reason().into());
                state.control.audit(&audit(refusal.who(), why));
            }
            return failure.into_response();
        }
    };
    request.extensions_mut().insert(holder.clone());
    if !is_change {
        return next.run(request).await;
    }
    request.extensions_mut().insert(summary.clone());
    let who = holder.source.to_string();
    // If the caller hangs up, or it takes too long, this is dropped before there is an answer.
    let mut unanswered = Unanswered(Some(|| {
        let outcome = AuditOutcome::Failed("the caller got no answer: it may be done".into());
        state.control.audit(&audit(who.clone(), outcome));
    }));
    let response = next.run(request).await;
    unanswered.0 = None;
    drop(unanswered);
    let status = response.status();
    let outcome = match status.as_u16() {
        200..300 => AuditOutcome::Done,
        504 => AuditOutcome::Failed("504: it may be done".into()),
        status => AuditOutcome::Failed(status.to_string()),
    };
    state.control.audit(&audit(who.clone(), outcome));
    response
}

/// Runs when it is dropped.
struct Unanswered<F: FnMut()>(Option<F>);

impl<F: FnMut()> Drop for Unanswered<F> {
    fn drop(&mut self) {
        if let Some(run) = &mut self.0 {
            run();
        }
    }
}

/// Where a request came from.
#[derive(Debug, Clone, Copy)]
pub(super) struct HttpPeer(pub(super) IpAddr);

/// Of a request that no connection brought, as in tests.
const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Why a request is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
enum GuardRefusal {
    /// It has no token.
    Missing,
    /// Its token opens nothing.
    Wrong,
    /// The role of this token is too low.
    Role(CredentialSource),
    /// It is no operator's secret, and this needs one.
    Users(CredentialSource),
}

impl GuardRefusal {
    fn who(&self) -> String {
        match self {
            Self::Missing => "a caller without a token".into(),
            Self::Wrong => "a caller with a wrong token".into(),
            Self::Role(source) | Self::Users(source) => source.to_string(),
        }
    }

    const fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "no token",
            Self::Wrong => "this token opens nothing here",
            Self::Role(_) => "the role is read, and this needs operate",
            Self::Users(_) => "this is for an operator's secret alone",
        }
    }
}

/// The token of a request. The scheme may be written in any case, as in every HTTP server.
pub(super) fn token(headers: &HeaderMap) -> Option<&[u8]> {
    let said = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, rest) = said.split_at_checked(BEARER.len())?;
    let token = rest.strip_prefix(b" ")?.trim_ascii();
    (scheme.eq_ignore_ascii_case(BEARER) && !token.is_empty()).then_some(token)
}

const BEARER: &[u8] = b"bearer";

async fn judge(
    state: &HttpState,
    needs: RouteNeeds,
    sent: Option<&[u8]>,
    from: IpAddr,
) -> Result<HttpCaller, (GuardRefusal, HttpFailure)> {
    let credentials = &state.credentials;
    let is_open = credentials.is_open();
    if is_open {
        let data_is_open = !state.guarded && !credentials.has_users();
        if needs == RouteNeeds::Read || needs == RouteNeeds::Data && data_is_open {
            return Ok(HttpCaller::open());
        }
    }
    if credentials.takes_nothing() {
        return Err((
            GuardRefusal::Missing,
            HttpFailure(StatusCode::FORBIDDEN, TAKES_NOTHING.into()),
        ));
    }
    // The word proves nothing, so it is no attempt to guess a token.
    let sent = sent.filter(|token| is_open || *token != LOCAL_TOKEN.as_bytes());
    let Some(sent) = sent else {
        return Err((
            GuardRefusal::Missing,
            HttpFailure(
                StatusCode::UNAUTHORIZED,
                if is_open { MISSING_LOCAL } else { MISSING }.into(),
            ),
        ));
    };
    // Meanwhile another token of this address may have been judged, and wrong.
    while let Some(wait) = state.throttle.wait(from) {
        tokio::time::sleep(wait).await;
    }
    let Some(holder) = credentials.find(sent) else {
        if !credentials.knows_names() && sent.starts_with(TOKEN_PREFIX.as_bytes()) {
            return Err((
                GuardRefusal::Missing,
                HttpFailure(StatusCode::UNAUTHORIZED, KNOWS_NO_NAMES.into()),
            ));
        }
        state.throttle.failed(from, &state.metrics);
        return Err((
            GuardRefusal::Wrong,
            HttpFailure(StatusCode::UNAUTHORIZED, WRONG.into()),
        ));
    };
    if holder.role < needs.role() {
        let why = format!(
            "{} has the role read, and this needs operate: `doyen token new NAME --role operate` \
             makes such a token",
            holder.source
        );
        return Err((
            GuardRefusal::Role(holder.source),
            HttpFailure(StatusCode::FORBIDDEN, why),
        ));
    }
    if needs == RouteNeeds::Users && !credentials.may_change_users(&holder.source) {
        let why = format!(
            "{} may neither read values nor change users of Redis clients, because a user may read \
             all data: send the request with the operator's file (`doyen ... --secret-file \
             operator`). In a cluster without a secret, change users by `ACL SETUSER` as a Redis \
             client",
            holder.source
        );
        return Err((
            GuardRefusal::Users(holder.source),
            HttpFailure(StatusCode::FORBIDDEN, why),
        ));
    }
    Ok(holder)
}

const TAKES_NOTHING: &str = "this node has no token yet, and takes no requests but /healthz and \
    /readyz: start a node with --http-token-file FILE, and make tokens for all nodes with \
    `doyen token new NAME --http-token-file FILE`";
const MISSING: &str = "this needs a token (Authorization: Bearer TOKEN): the commands of `doyen` \
    send it if they get --secret-file (the operators' or the members') or --http-token-file; for \
    other programs, `doyen token new NAME` makes one";
const MISSING_LOCAL: &str = "this node has no secret and no tokens: send the word `loopback` in \
    place of a token (Authorization: Bearer loopback), which keeps web pages out";
const WRONG: &str = "this token opens nothing here: it was revoked, is mistyped, or belongs to \
    another cluster. The commands of `doyen` take this cluster's --secret-file, or \
    --http-token-file; for other programs, `doyen token new NAME` makes a token";
const KNOWS_NO_NAMES: &str = "this node is no member of a cluster yet, so it knows no named \
    tokens: try again later, or send the operators' token";

/// Wrong tokens of all callers. The lock is held for moments. It is there because hyper wants
/// `Send`; one thread runs all of it.
#[derive(Debug)]
pub(super) struct Guard(Mutex<LoginThrottle>);

impl Guard {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LoginThrottle::new()))
    }

    fn throttle(&self) -> std::sync::MutexGuard<'_, LoginThrottle> {
        // No holder of the lock panics, and each change leaves the map whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the next token of this address waits before it is judged.
    fn wait(&self, from: IpAddr) -> Option<Duration> {
        let now = clock::now();
        let until = self.throttle().waits_until(now, from)?;
        Some(until.since(now))
    }

    fn failed(&self, from: IpAddr, metrics: &Metrics) {
        let due = {
            let mut throttle = self.throttle();
            let due = throttle.failed(clock::now(), from);
            metrics.http_auth_failures(throttle.failures());
            due
        };
        if let Some(others) = due {
            tracing::warn!(
                "an HTTP client at {from} sent a wrong token: programs must send a token of this \
                 cluster (`doyen token list` names them), and further requests from there are \
                 slowed{others}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderValue, Uri};

    #[test]
    fn a_token_stands_behind_its_scheme() {
        let read = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_static(text));
            token(&headers).map(<[u8]>::to_vec)
        };
        for text in ["Bearer abc", "bearer abc", "BEARER  abc ", "Bearer abc\t"] {
            assert_eq!(read(text).as_deref(), Some(&b"abc"[..]), "{text:?}");
        }
        for text in [
            "",
            "abc",
            "Bearer",
            "Bearer ",
            "Bearerabc",
            "Basic abc",
            "Beare",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    fn status(hosts: &[&str], uri: &str, headers: &[(header::HeaderName, &str)]) -> Option<u16> {
        let hosts: Vec<String> = hosts.iter().map(|h| (*h).to_owned()).collect();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, HeaderValue::from_str(value).expect("a header"));
        }
        let uri: Uri = uri.parse().expect("a URI");
        misled(&hosts, uri.authority(), &map).map(|HttpFailure(status, _)| status.as_u16())
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
