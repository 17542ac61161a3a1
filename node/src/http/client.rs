//! As much of an HTTP client as the command line and the demo need: one request, one answer, one connection.

use serde::de::DeserializeOwned;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An answer at most: the table of 16384 partitions with long names fits.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// No answer, or not the one that was hoped for.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Nobody there, or the connection broke.
    #[error("no answer from {address}: {why}")]
    Connection {
        /// Who was asked.
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
    /// Something else than a Doyen node answered.
    #[error("{address} does not answer like a Doyen node: is this its --http address?")]
    Foreign {
        /// Who was asked.
        address: String,
    },
}

/// Asks a node.
///
/// # Errors
/// When there is no answer, or it is not a success.
pub async fn get<T: DeserializeOwned>(address: &str, path: &str) -> Result<T, HttpError> {
    request(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")).await
}

/// Asks a node to change something.
///
/// # Errors
/// When there is no answer, or it is not a success.
pub async fn post<T: DeserializeOwned>(address: &str, path: &str, token: &str, body: &str) -> Result<T, HttpError> {
    let head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n");
    request(address, &format!("{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await
}

async fn request<T: DeserializeOwned>(address: &str, request: &str) -> Result<T, HttpError> {
    let connection = |why: String| HttpError::Connection { address: address.into(), why };
    let answer = match tokio::time::timeout(ANSWER_MAX, exchange(address, request)).await {
        Ok(answer) => answer.map_err(|e| connection(reason(&e)))?,
        Err(_) => return Err(connection(format!("nothing within {ANSWER_MAX:?}"))),
    };
    let foreign = || HttpError::Foreign { address: address.into() };
    let split = answer.windows(4).position(|w| w == b"\r\n\r\n").ok_or_else(foreign)?;
    let (head, body) = answer.split_at(split);
    let body = body.get(4..).unwrap_or_default();
    let head = std::str::from_utf8(head).map_err(|_| foreign())?;
    let status: u16 = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(foreign)?;
    if (200..300).contains(&status) {
        return serde_json::from_slice(body).map_err(|_| foreign());
    }
    let message = serde_json::from_slice::<serde_json::Value>(body).ok().and_then(|v| Some(v.get("error")?.as_str()?.to_owned()));
    Err(HttpError::Refused { status, message: message.ok_or_else(foreign)? })
}

async fn exchange(address: &str, request: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    // To the end: `Connection: close` was asked for. Our server always knows an answer's length and never chunks it.
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
    Ok(answer)
}

fn reason(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::ConnectionRefused => "nobody listens there; is the node running, and is this its --http address?".into(),
        _ => e.to_string(),
    }
}
