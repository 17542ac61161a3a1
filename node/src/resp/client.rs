//! A small RESP2 client for the demo, the command line and tests: one connection, pipelines, no
//! reconnection.

use bytes::{Buf, BytesMut};
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// Largest reply that is accepted.
const REPLY_BYTES_MAX: usize = 1 << 30;
/// Limit on arrays within arrays.
const DEPTH_MAX: usize = 16;

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// `+OK` and the like.
    Simple(String),
    /// An error that the server answered.
    Error(String),
    /// A number.
    Int(i64),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// A null reply.
    Nil,
    /// Several replies.
    Array(Vec<Reply>),
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum RespError {
    /// The connection failed or ended. The commands that were sent may or may not have been
    /// executed.
    #[error("the connection to the server failed: {0}")]
    Io(#[from] io::Error),
    /// The server did not send a valid reply.
    #[error("the server sent an invalid reply: {0}")]
    Protocol(&'static str),
}

/// Whether an error of a node says that the command was not executed. Any other error leaves it
/// open.
pub fn nothing_happened(error: &str) -> bool {
    // The whole word: BUSYKEY and BUSYGROUP stay as they are, however often a command is repeated.
    let code = error.split(' ').next().unwrap_or_default();
    [
        "TRYAGAIN",
        "CLUSTERDOWN",
        "LOADING",
        "NOREPLICAS",
        "OOM",
        "BUSY",
    ]
    .contains(&code)
}

/// A connection to a server, over TCP or another stream. After an error it is of no further use.
#[derive(Debug)]
pub struct RespClient<S = TcpStream> {
    stream: S,
    input: BytesMut,
    output: BytesMut,
}

impl RespClient {
    /// Connects.
    ///
    /// # Errors
    /// The server does not accept the connection.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self::over(stream))
    }

    /// The connection, for use by other code. Every reply must have been taken.
    ///
    /// # Errors
    /// The system does not release the socket.
    pub fn into_std(self) -> io::Result<std::net::TcpStream> {
        self.stream.into_std()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> RespClient<S> {
    /// A client on a connection that stands already.
    pub fn over(stream: S) -> Self {
        Self {
            stream,
            input: BytesMut::new(),
            output: BytesMut::new(),
        }
    }

    /// Sends one command and waits for its reply. An error that the server answers is
    /// `Ok(Reply::Error(_))`.
    ///
    /// # Errors
    /// No reply came.
    pub async fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Reply, RespError> {
        self.push(args);
        self.flush().await?;
        self.reply().await
    }

    /// Sends all commands at once and waits for all replies, in order.
    ///
    /// # Errors
    /// Not all replies came.
    pub async fn pipeline<A: AsRef<[u8]>>(
        &mut self,
        commands: &[Vec<A>],
    ) -> Result<Vec<Reply>, RespError> {
        let mut replies = Vec::with_capacity(commands.len());
        self.pipeline_into(commands, &mut replies).await?;
        Ok(replies)
    }

    /// The same. If it fails, `replies` has the replies of the first commands.
    ///
    /// # Errors
    /// Not all replies came.
    pub async fn pipeline_into<A: AsRef<[u8]>>(
        &mut self,
        commands: &[Vec<A>],
        replies: &mut Vec<Reply>,
    ) -> Result<(), RespError> {
        self.send(commands).await?;
        for _ in commands {
            replies.push(self.reply().await?);
        }
        Ok(())
    }

    /// Sends all commands at once. Take the replies with `reply`.
    pub(crate) async fn send<A: AsRef<[u8]>>(
        &mut self,
        commands: &[Vec<A>],
    ) -> Result<(), RespError> {
        commands.iter().for_each(|args| self.push(args));
        self.flush().await
    }

    /// Appends a command to the bytes that `flush` sends.
    fn push<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        self.output
            .extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
        for arg in args {
            self.output
                .extend_from_slice(format!("${}\r\n", arg.as_ref().len()).as_bytes());
            self.output.extend_from_slice(arg.as_ref());
            self.output.extend_from_slice(b"\r\n");
        }
    }

    /// Sends, and receives at the same time, so that a long pipeline cannot block both sides.
    async fn flush(&mut self) -> Result<(), RespError> {
        let (mut read, mut write) = tokio::io::split(&mut self.stream);
        while !self.output.is_empty() {
            tokio::select! {
                written = write.write(&self.output) => match written? {
                    0 => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                    n => self.output.advance(n),
                },
                got = read.read_buf(&mut self.input) => if got? == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                },
            }
        }
        // TLS may still hold a part of it.
        Ok(write.flush().await?)
    }

    /// The next reply.
    pub(crate) async fn reply(&mut self) -> Result<Reply, RespError> {
        loop {
            let mut rest = &self.input[..];
            let before = rest.len();
            if let Some(reply) = parse(&mut rest, 0)? {
                let taken = before - rest.len();
                self.input.advance(taken);
                return Ok(reply);
            }
            if self.input.len() > REPLY_BYTES_MAX {
                return Err(RespError::Protocol("a reply is too long"));
            }
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }
}

/// Parses a server's bytes as far as they are replies.
#[cfg(feature = "fuzz")]
pub fn read_all(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some(_)) = parse(&mut rest, 0) {}
}

/// One reply from the front; `None` while it is not whole.
fn parse(rest: &mut &[u8], depth: usize) -> Result<Option<Reply>, RespError> {
    let Some(end) = rest.windows(2).position(|w| w == b"\r\n") else {
        return Ok(None);
    };
    let (line, after) = (&rest[..end], &rest[end + 2..]);
    let (kind, text) = line
        .split_first()
        .ok_or(RespError::Protocol("an empty line"))?;
    let text = String::from_utf8_lossy(text);
    let number = || {
        text.parse::<i64>()
            .map_err(|_| RespError::Protocol("a bad number"))
    };
    let mut after = after;
    let reply = match kind {
        b'+' => Reply::Simple(text.into_owned()),
        b'-' => Reply::Error(text.into_owned()),
        b':' => Reply::Int(number()?),
        b'_' => Reply::Nil,
        b'$' | b'*' if number()? < 0 => Reply::Nil,
        b'$' => {
            let length = usize::try_from(number()?)
                .ok()
                .filter(|n| *n <= REPLY_BYTES_MAX);
            let length = length.ok_or(RespError::Protocol("a reply is too long"))?;
            if after.len() < length + 2 {
                return Ok(None);
            }
            let bulk = after[..length].to_vec();
            after = &after[length + 2..];
            Reply::Bulk(bulk)
        }
        b'*' if depth < DEPTH_MAX => {
            let mut elements = Vec::new();
            for _ in 0..number()? {
                match parse(&mut after, depth + 1)? {
                    Some(element) => elements.push(element),
                    None => return Ok(None),
                }
            }
            Reply::Array(elements)
        }
        _ => return Err(RespError::Protocol("an unknown kind")),
    };
    *rest = after;
    Ok(Some(reply))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Imports repeated commands for a minute that could never be executed.
    #[test]
    fn what_stays_refused_is_told_from_what_passes() {
        for passes in ["BUSY too many operations are waiting", "OOM", "LOADING it"] {
            assert!(nothing_happened(passes), "{passes}");
        }
        for stays in [
            "BUSYKEY Target key name already exists.",
            "BUSYGROUP Consumer Group name already exists",
            "ERR BUSY",
            "",
        ] {
            assert!(!nothing_happened(stays), "{stays}");
        }
    }
}
