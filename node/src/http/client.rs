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
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use zeroize::Zeroizing;

/// Largest answer: the table of 16384 partitions with long names fits.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// How long a whole answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// How long the answer to a report may take to begin. A healthy node needs some 300 ms.
const LOOK_MAX: Duration = Duration::from_secs(3);
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
        };
        let broken = |why: String| HttpError::Connection {
            address: address.into(),
            why,
        };
        let answer = exchange(address, self.trusted.as_ref(), &asked);
        match tokio::time::timeout(ANSWER_MAX, answer).await {
            Ok(Ok(answer)) => answer.understand(address).map_err(|e| unsent(e, token)),
            Ok(Err(Broken::Known(e))) => Err(e),
            Ok(Err(Broken::Io(e))) => Err(broken(reason(&e))),
            Err(_) => Err(broken(format!("nothing within {ANSWER_MAX:?}"))),
        }
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
    use tokio::io::AsyncWriteExt;
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
    async fn silence_is_given_up_soon() {
        let (error, took) = asked_of(b"").await;
        assert!(matches!(error, HttpError::Connection { .. }), "{error}");
        assert!(took < ANSWER_MAX / 3, "{took:?}");
    }
}
