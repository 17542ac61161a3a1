//! The parts of an HTTP client that the command line and the demo need. A connection carries one
//! request and one answer.
//!
//! An address is `HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`. Without a scheme, a node
//! is asked in TLS. If it is on this machine and speaks no TLS, it is asked in the clear, as nodes
//! listen there by default.

pub use crate::net::identity::ports::Trusted;

use super::row::{ChangeBody, HttpReport, Verb};
use crate::net::identity::LOCAL_TOKEN;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderValue, Request, header};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use zeroize::Zeroizing;

/// Largest answer: the table of 16384 partitions with long names fits.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// How long a whole answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// A node that sends no sign of life on a stream for this long does not answer. One comes in 5 s.
const SIGN_MAX: Duration = Duration::from_secs(11);
/// How long the answer to a report may take to begin. A healthy node needs some 300 ms.
const LOOK_MAX: Duration = Duration::from_secs(3);
/// Parts of a stream that a reader may have before it.
const PARTS_AHEAD: usize = 16;
/// How long it may take to connect.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// What a port that speaks TLS answers to HTTP in the clear.
pub(super) const SPEAKS_HTTPS: &str =
    "this port speaks HTTPS: ask https://, and trust the cluster's ca.pem\n";

/// There was no answer, or it was not a success.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// No process listens there, or the connection broke.
    #[error("no answer from {address}: {why}")]
    Connection {
        /// The address that was asked.
        address: String,
        /// Why.
        why: String,
    },
    /// The node refuses, and says why.
    #[error("{message}")]
    Refused {
        /// HTTP's status.
        status: u16,
        /// What the node says.
        message: String,
    },
    /// The node wants a token, and the caller has none.
    #[error("the node wants a token, and none was sent: give --secret-file FILE")]
    NoToken,
    /// The node speaks TLS, and nothing says which certificates to trust.
    #[error(
        "{address} is asked in TLS, and nothing says which certificate to trust: give \
         --secret-file FILE, or --http-ca FILE with the cluster's ca.pem, or with the authority \
         that signed the node's certificate. If the node runs with --http-insecure, ask \
         http://{address}"
    )]
    NoTrust {
        /// The address that was asked.
        address: String,
    },
    /// The node's certificate is not trusted. Nothing was sent.
    #[error(
        "the certificate at {address} is not one of this cluster, so nothing was sent to it \
         ({why}): give the cluster's own --secret-file, as it is since the last `doyen secret \
         rotate`, or --http-ca ca.pem"
    )]
    Untrusted {
        /// The address that was asked.
        address: String,
        /// Why.
        why: String,
    },
    /// The node does not speak TLS. Nothing was sent.
    #[error(
        "{address} does not speak TLS, so nothing was sent to it: if it is a node with \
         --http-insecure, ask it with the scheme http://"
    )]
    Clear {
        /// The address that was asked.
        address: String,
    },
    /// The node speaks TLS, was asked in the clear, and nothing says which certificate to trust.
    #[error(
        "{address} speaks TLS, and nothing says which certificate to trust: give --secret-file \
         FILE, or --http-ca FILE with the cluster's ca.pem, or with the authority that signed the \
         node's certificate"
    )]
    Encrypted {
        /// The address that was asked.
        address: String,
    },
    /// The answer did not come from a Doyen node.
    #[error(
        "{address} does not answer like a Doyen node's HTTP: give the node's --http address, \
         which it prints when it starts"
    )]
    Foreign {
        /// The address that was asked.
        address: String,
    },
}

/// A node that is asked by HTTP, and the token that it is sent.
#[derive(Debug, Clone)]
pub struct Client {
    address: String,
    token: Zeroizing<String>,
    trusted: Option<Trusted>,
}

impl Client {
    /// Asks the node at `HOST:PORT` with a token.
    pub fn new(address: impl Into<String>, token: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            token: Zeroizing::new(token.into()),
            trusted: None,
        }
    }

    /// Sends nothing to a node that speaks TLS and has no such certificate.
    #[must_use]
    pub fn trusting(mut self, trusted: Option<Trusted>) -> Self {
        self.trusted = trusted;
        self
    }

    /// Asks a node that takes requests from every program on its machine.
    pub fn of_open(address: impl Into<String>) -> Self {
        Self::new(address, LOCAL_TOKEN)
    }

    /// The same credential, for another node.
    #[must_use]
    pub fn at(&self, address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            token: self.token.clone(),
            trusted: self.trusted.clone(),
        }
    }

    /// The address that is asked.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Asks for a report: a row of [`api`](super::api).
    ///
    /// # Errors
    /// When there is no answer, or it is not a success.
    pub async fn ask<T: DeserializeOwned>(&self, report: &HttpReport<T>) -> Result<T, HttpError> {
        self.request("GET", report.route.path, "").await
    }

    /// The same, with options of the report: `since=7`.
    ///
    /// # Errors
    /// When there is no answer, or it is not a success.
    pub async fn ask_with<T: DeserializeOwned>(
        &self,
        report: &HttpReport<T>,
        query: &str,
    ) -> Result<T, HttpError> {
        let path = format!("{}?{query}", report.route.path);
        self.request("GET", &path, "").await
    }

    /// Makes a change: a row of [`api`](super::api), with the names in its path. Returns what was
    /// done.
    ///
    /// # Errors
    /// When there is no answer, or it is not a success.
    pub async fn make<const N: usize, B: ChangeBody>(
        &self,
        verb: &Verb<N, B>,
        names: [&str; N],
        body: &B,
    ) -> Result<Value, HttpError> {
        let method = verb.route.method.as_str();
        self.request(method, &verb.path(names), &verb.body(body))
            .await
    }

    /// Asks in any way, as tests do.
    ///
    /// # Errors
    /// When there is no answer, or it is not a success.
    pub async fn request<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<T, HttpError> {
        let (address, token) = (&*self.address, &*self.token);
        let asked = HttpQuestion {
            method,
            path,
            body,
            token,
            begins_within: if method == "GET" {
                LOOK_MAX
            } else {
                ANSWER_MAX
            },
            parts: None,
        };
        let answer = exchange(address, self.trusted.as_ref(), &asked);
        match tokio::time::timeout(ANSWER_MAX, answer).await {
            Ok(Ok(answer)) => answer.understand(address).map_err(|e| unsent(e, token)),
            Ok(Err(broken)) => Err(broken.at(address)),
            Err(_) => {
                let why = format!("nothing within {ANSWER_MAX:?}");
                Err(Broken::Silent(why).at(address))
            }
        }
    }

    /// Follows a stream of server-sent events, and gives each to `each`: its name, and its data as
    /// JSON. Returns why the stream ended.
    ///
    /// # Cancel safety
    /// If the future is dropped, the stream is closed.
    pub async fn follow(&self, path: &str, mut each: impl FnMut(&str, &str)) -> HttpError {
        let (address, token) = (&*self.address, &*self.token);
        let (parts, mut came) = mpsc::channel(PARTS_AHEAD);
        let asked = HttpQuestion {
            method: "GET",
            path,
            body: "",
            token,
            begins_within: LOOK_MAX,
            parts: Some(&parts),
        };
        let mut answer = pin!(exchange(address, self.trusted.as_ref(), &asked));
        let mut text = SentEvents::default();
        let ended = loop {
            tokio::select! {
                part = tokio::time::timeout(SIGN_MAX, came.recv()) => match part {
                    Ok(Some(part)) if text.add(&part, &mut each) => {}
                    Ok(Some(_)) => break Err(Broken::Silent("an event is too large".into())),
                    Ok(None) | Err(_) => {
                        break Err(Broken::Silent(format!("nothing within {SIGN_MAX:?}")));
                    }
                },
                ended = &mut answer => {
                    // Parts may have come together with the end.
                    while came.try_recv().is_ok_and(|part| text.add(&part, &mut each)) {}
                    break ended;
                }
            }
        };
        let broken = match ended {
            Ok(answer) if answer.status == 200 => Broken::Silent("it ended the stream".into()),
            Ok(answer) => {
                let refused = answer.understand::<Value>(address).err();
                let foreign = || HttpError::Foreign {
                    address: address.into(),
                };
                return unsent(refused.unwrap_or_else(foreign), token);
            }
            Err(broken) => broken,
        };
        broken.at(address)
    }
}

/// What a node is asked.
#[derive(Clone, Copy)]
struct HttpQuestion<'a> {
    method: &'a str,
    path: &'a str,
    body: &'a str,
    token: &'a str,
    /// How long the answer may take to begin.
    begins_within: Duration,
    /// The parts of a successful answer go here as they come, and it has no end.
    parts: Option<&'a mpsc::Sender<Bytes>>,
}

/// The token of nodes without a secret proves nothing, so a caller that sent it counts as one
/// without a token.
fn unsent(e: HttpError, token: &str) -> HttpError {
    match e {
        HttpError::Refused { status: 401, .. } if token == LOCAL_TOKEN => HttpError::NoToken,
        e => e,
    }
}

/// A whole answer.
struct HttpReply {
    status: u16,
    body: Bytes,
}

impl HttpReply {
    fn understand<T: DeserializeOwned>(&self, address: &str) -> Result<T, HttpError> {
        let foreign = || HttpError::Foreign {
            address: address.into(),
        };
        if (200..300).contains(&self.status) {
            return serde_json::from_slice(&self.body).map_err(|_| foreign());
        }
        let said = serde_json::from_slice::<Value>(&self.body).ok();
        let message = said.and_then(|said| Some(said.get("error")?.as_str()?.to_owned()));
        Err(HttpError::Refused {
            status: self.status,
            message: message.ok_or_else(foreign)?,
        })
    }
}

/// Decodes any bytes that a server might answer, behind a status.
#[cfg(feature = "fuzz")]
pub fn read(bytes: &[u8]) {
    let (status, body) = bytes.split_first_chunk().unwrap_or((&[0, 200], bytes));
    let answer = HttpReply {
        status: u16::from_be_bytes(*status),
        body: Bytes::copy_from_slice(body),
    };
    let _ = answer.understand::<crate::report::status::ClusterReport>("127.0.0.1:1");
    let _ = answer.understand::<Value>("127.0.0.1:1");
}

/// Why there is no answer.
enum Broken {
    Io(io::Error),
    Known(HttpError),
    /// The connection stands, and what was to come does not.
    Silent(String),
}

impl Broken {
    fn at(self, address: &str) -> HttpError {
        let why = match self {
            Self::Known(e) => return e,
            Self::Io(e) => reason(&e),
            Self::Silent(why) => why,
        };
        HttpError::Connection {
            address: address.into(),
            why,
        }
    }
}

/// Text of server-sent events, as far as it has come.
#[derive(Default)]
struct SentEvents(Vec<u8>);

impl SentEvents {
    /// Adds what came, and gives each whole event to `each`. `false`: an event is too large.
    fn add(&mut self, part: &[u8], mut each: impl FnMut(&str, &str)) -> bool {
        // The end of an event may lie on both sides of a cut.
        let mut seen = self.0.len().saturating_sub(1);
        self.0.extend_from_slice(part);
        let mut begun = 0;
        while let Some(end) = self.0[seen..].windows(2).position(|two| two == b"\n\n") {
            let text = String::from_utf8_lossy(&self.0[begun..seen + end]);
            let field = |name| text.lines().find_map(|line| line.strip_prefix(name));
            // A comment is a sign of life.
            if let (Some(event), Some(data)) = (field("event: "), field("data: ")) {
                each(event, data);
            }
            seen += end + 2;
            begun = seen;
        }
        self.0.drain(..begun);
        self.0.len() <= ANSWER_BYTES_MAX
    }
}

impl From<io::Error> for Broken {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

/// Connects, and reads the whole answer.
async fn exchange(
    address: &str,
    trusted: Option<&Trusted>,
    asked: &HttpQuestion<'_>,
) -> Result<HttpReply, Broken> {
    let (scheme, bare) = match address.split_once("://") {
        Some((scheme, bare)) => (Some(scheme), bare.trim_end_matches('/')),
        None => (None, address),
    };
    let stream = connect(bare).await?;
    let peer = stream.peer_addr()?;
    let host = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    // `None`: TLS, or else in the clear.
    let encrypted = match scheme {
        Some(scheme) => Some(scheme.eq_ignore_ascii_case("https")),
        None => (!host.ip().is_loopback()).then_some(true),
    };
    let asked = (address, host, asked);
    let Some(trusted) = trusted else {
        let address = bare.to_owned();
        return match encrypted {
            Some(true) => Err(Broken::Known(HttpError::NoTrust { address })),
            _ => ask_clear(stream, asked).await,
        };
    };
    let stream = match encrypted {
        Some(false) => match ask_clear(stream, asked).await {
            // It did not understand the request, so it can be sent again, in TLS.
            Err(Broken::Known(HttpError::Encrypted { .. })) => connect(host).await?,
            answered => return answered,
        },
        _ => stream,
    };
    // Names are in certificates of files. Of an address, the certificate must name that.
    let name = bare.rsplit_once(':').map_or(bare, |(name, _)| name);
    let name = ServerName::try_from(name.to_owned()).unwrap_or_else(|_| host.ip().into());
    match encrypt(stream, trusted, name, asked).await {
        // Only on this machine: what speaks for a node elsewhere without TLS may be anything.
        Err(Broken::Known(HttpError::Clear { .. })) if encrypted.is_none() => {
            ask_clear(connect(host).await?, asked).await
        }
        stream => ask(stream?, asked).await,
    }
}

async fn connect(to: impl ToSocketAddrs) -> io::Result<TcpStream> {
    let connecting = tokio::time::timeout(CONNECT_MAX, TcpStream::connect(to));
    let stream = connecting.await.map_err(late)??;
    // A request follows the end of the TLS handshake, and would wait until the node acknowledged
    // that.
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn late(_: tokio::time::error::Elapsed) -> io::Error {
    io::ErrorKind::TimedOut.into()
}

/// Begins TLS with a node that has a certificate of those trusted.
async fn encrypt(
    stream: TcpStream,
    trusted: &Trusted,
    name: ServerName<'static>,
    (address, _, asked): (&str, SocketAddr, &HttpQuestion<'_>),
) -> Result<TlsStream<TcpStream>, Broken> {
    let address = || address.to_owned();
    let handshake = TlsConnector::from(trusted.config()).connect(name, stream);
    let begun = tokio::time::timeout(asked.begins_within, handshake).await;
    begun.map_err(late)?.map_err(|e| {
        let why = e.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
        match why {
            Some(rustls::Error::InvalidMessage(_)) => {
                Broken::Known(HttpError::Clear { address: address() })
            }
            Some(why) => Broken::Known(HttpError::Untrusted {
                address: address(),
                why: why.to_string(),
            }),
            None => e.into(),
        }
    })
}

/// Asks in the clear.
async fn ask_clear(
    stream: TcpStream,
    asked @ (address, ..): (&str, SocketAddr, &HttpQuestion<'_>),
) -> Result<HttpReply, Broken> {
    let answer = ask(stream, asked).await?;
    if *answer.body == *SPEAKS_HTTPS.as_bytes() {
        let address = address.to_owned();
        return Err(Broken::Known(HttpError::Encrypted { address }));
    }
    Ok(answer)
}

/// The first byte of what other TLS servers answer to bytes that are no TLS: an alert.
const TLS_ALERT: u8 = 21;

/// Asks over a connection, and reads the whole answer. An answer that does not begin like HTTP ends
/// this at once: other servers (Redis, this node's RESP ports) keep a connection open after they
/// have refused a request that they did not understand.
async fn ask(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    (address, host, asked): (&str, SocketAddr, &HttpQuestion<'_>),
) -> Result<HttpReply, Broken> {
    let mut token = HeaderValue::try_from(format!("Bearer {}", asked.token)).map_err(io_error)?;
    token.set_sensitive(true);
    let request = Request::builder()
        .method(asked.method)
        .uri(asked.path)
        // The address, not the name: a node answers to few names.
        .header(header::HOST, host.to_string())
        .header(header::AUTHORIZATION, token)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close")
        .body(Body::from(asked.body.to_owned()))
        .map_err(io_error)?;
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, mut connection) = handshake.map_err(io_error)?;
    let asking = async {
        let begins = tokio::time::timeout(asked.begins_within, sender.send_request(request));
        let answer = begins.await.map_err(late)?.map_err(io_error)?;
        let status = answer.status().as_u16();
        if let (200, Some(parts)) = (status, asked.parts) {
            let mut body = Body::new(answer.into_body()).into_data_stream();
            while let Some(part) = body.next().await {
                // A reader that has gone drops this, too.
                let _ = parts.send(part.map_err(io_error)?).await;
            }
            let body = Bytes::new();
            return Ok(HttpReply { status, body });
        }
        let body = to_bytes(Body::new(answer.into_body()), ANSWER_BYTES_MAX).await;
        let body = body.map_err(io_error)?;
        Ok(HttpReply { status, body })
    };
    let answer = match select(pin!(asking), &mut connection).await {
        Either::Left((answer, _)) => answer,
        Either::Right((_, asking)) => asking.await,
    };
    let address = || address.to_owned();
    answer.map_err(|e: io::Error| {
        if e.kind() != io::ErrorKind::Other {
            return e.into();
        }
        // A node without a free place, or a server of another protocol, closes the connection or
        // answers something else.
        let answered = connection.into_parts().read_buf;
        Broken::Known(match answered.first() {
            Some(&TLS_ALERT) => HttpError::Encrypted { address: address() },
            _ => HttpError::Foreign { address: address() },
        })
    })
}

/// The error of the connection below this error; `Other`: what came is no answer of HTTP.
fn io_error(e: impl Error + 'static) -> io::Error {
    let mut below: Option<&(dyn Error + 'static)> = Some(&e);
    while let Some(e) = below {
        if let Some(io) = e.downcast_ref::<io::Error>()
            && io.kind() != io::ErrorKind::UnexpectedEof
        {
            return io::Error::new(io.kind(), io.to_string());
        }
        below = e.source();
    }
    io::Error::other(e.to_string())
}

fn reason(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::ConnectionRefused => {
            "no process listens there; is the node running, and is this its --http address? ask \
             another node with --http ADDRESS"
                .into()
        }
        io::ErrorKind::TimedOut => {
            "no answer came in time; is this the node's --http address?".into()
        }
        _ => e.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    async fn asked_of(answer: &'static [u8]) -> (HttpError, Duration) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("known").to_string();
        // It answers and then keeps the connection, as a RESP server does.
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            stream.write_all(answer).await.expect("written");
            std::future::pending::<()>().await;
        });
        let started = Instant::now();
        let client = Client::of_open(address);
        let error = client
            .request::<Value>("GET", "/status", "")
            .await
            .expect_err("that is no HTTP");
        (error, started.elapsed())
    }

    /// A command without a secret was told that its token was refused.
    #[test]
    fn no_token_is_not_a_refused_one() {
        let refused = || HttpError::Refused {
            status: 401,
            message: "no".into(),
        };
        assert!(matches!(unsent(refused(), LOCAL_TOKEN), HttpError::NoToken));
        assert!(matches!(
            unsent(refused(), "another"),
            HttpError::Refused { .. }
        ));
        let other = HttpError::Refused {
            status: 409,
            message: "no".into(),
        };
        assert!(matches!(
            unsent(other, LOCAL_TOKEN),
            HttpError::Refused { status: 409, .. }
        ));
    }

    /// `status --http` with a RESP port hung for 15 s.
    #[tokio::test]
    async fn another_protocol_is_noticed_at_once() {
        let (error, took) = asked_of(b"-ERR wrong number of arguments for 'get' command\r\n").await;
        assert!(matches!(error, HttpError::Foreign { .. }), "{error}");
        assert!(took < Duration::from_secs(2), "{took:?}");
    }

    #[tokio::test]
    async fn a_stream_is_followed_until_it_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("known").to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            // A socket that is closed with unread bytes resets its connection.
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                stream.read_buf(&mut asked).await.expect("a request");
            }
            let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            stream.write_all(head).await.expect("written");
            stream
                .write_all(b"event: one\ndata: 1\n\n: nothing\n\nevent: two\ndata: 2\n\n")
                .await
                .expect("written");
        });
        let mut came = Vec::new();
        let ended = Client::of_open(address)
            .follow("/events?follow=true", |name, data| {
                came.push(format!("{name} {data}"));
            })
            .await;
        assert_eq!(came, ["one 1", "two 2"], "{ended}");
        assert!(matches!(ended, HttpError::Connection { .. }), "{ended}");
    }

    #[test]
    fn events_are_read_wherever_their_text_is_cut() {
        let text = b"event: a\ndata: {}\n\n: nothing\n\nid: 7\nevent: b\ndata: 1\n\n";
        for cut in 1..=text.len() {
            let (mut events, mut came) = (SentEvents::default(), Vec::new());
            for part in text.chunks(cut) {
                let kept = events.add(part, |name, data| came.push(format!("{name} {data}")));
                assert!(kept);
            }
            assert_eq!(came, ["a {}", "b 1"], "cut into {cut} bytes");
        }
    }

    #[tokio::test]
    async fn silence_is_given_up_soon() {
        let (error, took) = asked_of(b"").await;
        assert!(matches!(error, HttpError::Connection { .. }), "{error}");
        assert!(took < ANSWER_MAX / 3, "{took:?}");
    }
}
