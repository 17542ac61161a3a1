//! A small blocking Redis client, independent of Doyen's own.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`.
    Simple(String),
    /// `-ERR ...`.
    Error(String),
    /// `:1`.
    Int(i64),
    /// `$..`.
    Bulk(Vec<u8>),
    /// Nothing.
    Nil,
    /// `*..`, and `~..`, `>..` and `%..` of RESP3.
    Array(Vec<Reply>),
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects; no reply may take longer than `patience`.
    ///
    /// # Errors
    /// Nothing listens there.
    pub fn connect(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(3))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// One command and its reply.
    ///
    /// # Errors
    /// No reply came.
    pub fn command(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        self.send(words)?;
        self.reply()
    }

    /// Sends a command without waiting.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn send(&mut self, words: &[&[u8]]) -> io::Result<()> {
        let mut out = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            out.extend_from_slice(word);
            out.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&out)
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Sends bytes as they are. What the socket does not take at once is lost.
    pub fn raw_if_taken(&mut self, bytes: &[u8]) {
        let stream = self.stream.get_mut();
        if stream.set_nonblocking(true).is_ok() {
            // The socket is full, or the other end has closed it: the next request fails and says
            // so.
            let _ = stream.write(bytes);
            let _ = stream.set_nonblocking(false);
        }
    }

    /// The next reply.
    ///
    /// # Errors
    /// None came.
    pub fn reply(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let bad = || io::Error::from(io::ErrorKind::InvalidData);
        let text = line.trim_end().get(1..).ok_or_else(bad)?;
        Ok(match line.as_bytes().first() {
            Some(b'+') => Reply::Simple(text.to_owned()),
            Some(b'-') => Reply::Error(text.to_owned()),
            Some(b':') => Reply::Int(text.parse().map_err(|_| bad())?),
            Some(b'$') => match text.parse::<i64>().map_err(|_| bad())? {
                -1 => Reply::Nil,
                length => {
                    let mut bytes = vec![0; usize::try_from(length).map_err(|_| bad())? + 2];
                    self.stream.read_exact(&mut bytes)?;
                    bytes.truncate(bytes.len() - 2);
                    Reply::Bulk(bytes)
                }
            },
            Some(b'_') => Reply::Nil,
            Some(kind @ (b'*' | b'~' | b'>' | b'%')) => {
                let count: i64 = text.parse().map_err(|_| bad())?;
                let count = if *kind == b'%' { 2 * count } else { count };
                Reply::Array(
                    (0..count)
                        .map(|_| self.reply())
                        .collect::<io::Result<_>>()?,
                )
            }
            _ => return Err(bad()),
        })
    }
}
