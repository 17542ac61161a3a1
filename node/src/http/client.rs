//! The parts of an HTTP client that the command line and the demo need. A connection carries one
//! request and one answer.
//!
//! An address is `HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`. Without a scheme, a node is
//! asked in TLS. If it is on this machine and speaks no TLS, it is asked in the clear, as nodes
//! listen there by default.

pub use crate::net::identity::ports::Trusted;

use super::row::{ChangeBody, Report, Verb};
use crate::net::identity::LOCAL_TOKEN;
use rustls_pki_types::ServerName;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use zeroize::Zeroizing;

/// Largest answer: the table of 16384 partitions with long names fits.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// How long a whole answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// How long the answer to a report may take to begin. A healthy node needs some 300 ms.
const LOOK_MAX: Duration = Duration::from_secs(3);
/// How long it may take to connect.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// The first bytes of every HTTP answer.
const GREETING: &[u8] = b"HTTP/";
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
    pub async fn ask<T: DeserializeOwned>(&self, report: &Report<T>) -> Result<T, HttpError> {
        self.request("GET", report.route.path, "").await
    }

    /// The same, with options of the report: `since=7`.
    ///
    /// # Errors
    /// When there is no answer, or it is not a success.
    pub async fn ask_with<T: DeserializeOwned>(
        &self,
        report: &Report<T>,
        query: &str,
    ) -> Result<T, HttpError> {
        let path = format!("{}?{query}", report.route.path);
        self.request("GET", &path, "").await
    }

    /// Makes a change: a row of [`api`](super::api), with the names in its path.
    ///
    /// # Errors
    /// When there is no answer, or it is not a success.
    pub async fn make<const N: usize, B: ChangeBody>(
        &self,
        verb: &Verb<N, B>,
        names: [&str; N],
        body: &B,
    ) -> Result<(), HttpError> {
        let body = verb.body(body);
        let path = verb.path(names);
        let done = self.request::<Value>(verb.route.method.as_str(), &path, &body);
        done.await.map(|_| ())
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
        let reads = method == "GET";
        let rest = if reads {
            "\r\n".to_owned()
        } else {
            format!(
                "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        self.send(
            if reads { LOOK_MAX } else { ANSWER_MAX },
            method,
            path,
            &rest,
        )
        .await
    }

    /// `rest` is what follows the headers that every request has.
    async fn send<T: DeserializeOwned>(
        &self,
        begins_within: Duration,
        method: &str,
        path: &str,
        rest: &str,
    ) -> Result<T, HttpError> {
        let token = self.token.as_str();
        let head = Zeroizing::new(format!(
            "{method} {path} HTTP/1.1\r\nAuthorization: Bearer {token}\r\n"
        ));
        let to = (&*self.address, self.trusted.as_ref());
        request(to, begins_within, &head, rest)
            .await
            .map_err(|e| unsent(e, token))
    }
}

/// The token of nodes without a secret proves nothing, so a caller that sent it counts as one
/// without a token.
fn unsent(e: HttpError, token: &str) -> HttpError {
    match e {
        HttpError::Refused { status: 401, .. } if token == LOCAL_TOKEN => HttpError::NoToken,
        e => e,
    }
}

/// `head` is the first lines, `rest` what follows the headers that every request has.
async fn request<T: DeserializeOwned>(
    (address, trusted): (&str, Option<&Trusted>),
    begins_within: Duration,
    head: &str,
    rest: &str,
) -> Result<T, HttpError> {
    let connection = |why: String| HttpError::Connection {
        address: address.into(),
        why,
    };
    let answer = match tokio::time::timeout(
        ANSWER_MAX,
        exchange(address, trusted, begins_within, head, rest),
    )
    .await
    {
        Ok(Ok(answer)) => answer,
        Ok(Err(Broken::Known(e))) => return Err(e),
        Ok(Err(Broken::Io(e))) => return Err(connection(reason(&e))),
        Err(_) => return Err(connection(format!("nothing within {ANSWER_MAX:?}"))),
    };
    understand(address, &answer)
}

/// Decodes a whole answer.
fn understand<T: DeserializeOwned>(address: &str, answer: &[u8]) -> Result<T, HttpError> {
    let foreign = || HttpError::Foreign {
        address: address.into(),
    };
    let split = answer
        .windows(4)
        .position(|w| w == b"\r\n\r\n")
        .ok_or_else(foreign)?;
    let (head, body) = answer.split_at(split);
    let body = body.get(4..).unwrap_or_default();
    let head = std::str::from_utf8(head).map_err(|_| foreign())?;
    let status: u16 = head
        .split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .ok_or_else(foreign)?;
    if (200..300).contains(&status) {
        return serde_json::from_slice(body).map_err(|_| foreign());
    }
    let message = serde_json::from_slice::<Value>(body)
        .ok()
        .and_then(|v| Some(v.get("error")?.as_str()?.to_owned()));
    Err(HttpError::Refused {
        status,
        message: message.ok_or_else(foreign)?,
    })
}

/// Decodes any bytes that a server might answer.
#[cfg(feature = "fuzz")]
pub fn read(bytes: &[u8]) {
    let _ = understand::<crate::report::status::ClusterReport>("127.0.0.1:1", bytes);
    let _ = understand::<Value>("127.0.0.1:1", bytes);
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
    begins_within: Duration,
    head: &str,
    rest: &str,
) -> Result<Vec<u8>, Broken> {
    let (scheme, bare) = match address.split_once("://") {
        Some((scheme, bare)) => (Some(scheme), bare.trim_end_matches('/')),
        None => (None, address),
    };
    let stream = connect(bare).await?;
    // The Host header carries the address, not the name: a node answers to few names.
    let peer = stream.peer_addr()?;
    let host = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    // `None`: TLS, or else in the clear.
    let encrypted = match scheme {
        Some(scheme) => Some(scheme.eq_ignore_ascii_case("https")),
        None => (!host.ip().is_loopback()).then_some(true),
    };
    let request = Zeroizing::new(format!("{head}Host: {host}\r\nConnection: close\r\n{rest}"));
    let asked = (address, &**request, begins_within);
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
    // A request follows the end of the TLS handshake, and would wait until the node acknowledged that.
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
    (address, _, begins_within): (&str, &str, Duration),
) -> Result<TlsStream<TcpStream>, Broken> {
    let address = || address.to_owned();
    let handshake = TlsConnector::from(trusted.config()).connect(name, stream);
    let begun = tokio::time::timeout(begins_within, handshake).await;
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
    asked @ (address, ..): (&str, &str, Duration),
) -> Result<Vec<u8>, Broken> {
    let answer = ask(stream, asked).await?;
    if answer.ends_with(SPEAKS_HTTPS.as_bytes()) {
        let address = address.to_owned();
        return Err(Broken::Known(HttpError::Encrypted { address }));
    }
    Ok(answer)
}

/// The first byte of what other TLS servers answer to bytes that are no TLS: an alert.
const TLS_ALERT: u8 = 21;

/// Reads the whole answer. An answer that does not begin like HTTP ends this at once: other servers
/// (Redis, this node's RESP ports) keep a connection open after they have refused a request that
/// they did not understand.
async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    (address, request, begins_within): (&str, &str, Duration),
) -> Result<Vec<u8>, Broken> {
    let address = || address.to_owned();
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut greeting = [0; GREETING.len()];
    match tokio::time::timeout(begins_within, stream.read_exact(&mut greeting))
        .await
        .map_err(late)?
    {
        Ok(_) if greeting == GREETING => {}
        Err(e) if e.kind() != io::ErrorKind::UnexpectedEof => return Err(e.into()),
        Ok(_) | Err(_) if greeting[0] == TLS_ALERT => {
            return Err(Broken::Known(HttpError::Encrypted { address: address() }));
        }
        // A node without a free place, or a server of another protocol, closes the connection or
        // answers something else.
        Ok(_) | Err(_) => return Err(Broken::Known(HttpError::Foreign { address: address() })),
    }
    let mut answer = greeting.to_vec();
    // Read to the end: the request asks for `Connection: close`. Our server always sends the length
    // of an answer and never chunks it.
    let read = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await;
    match read {
        // Of TLS, a connection that just ends. The length of the answer is in its head.
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {}
        read => _ = read?,
    }
    Ok(answer)
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
