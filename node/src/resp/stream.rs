//! The connection of a Redis client: TCP, or TLS over TCP.
//!
//! Both kinds behave like a socket that does not block. What TLS has encrypted and the socket did
//! not take yet waits in here, so `flush` is called whenever the socket has room again.

use crate::net::identity::certificate::common_name_of;
use mio::net::TcpStream;
use rustls::{InvalidMessage, ServerConfig, ServerConnection};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

/// The most bytes that TLS holds while the socket takes none: a few records.
const HELD_BYTES_MAX: usize = 64 << 10;

/// The answer to a client that speaks no TLS.
const SPEAKS_TLS: &[u8] =
    b"-ERR this port speaks TLS: connect with --tls (redis-cli) or rediss://\r\n";

/// A connection of a client.
#[derive(Debug)]
pub(super) struct ClientStream {
    tcp: TcpStream,
    tls: Option<Box<ServerConnection>>,
}

impl ClientStream {
    /// The connection over a socket, with TLS if there is a configuration for it.
    pub(super) fn new(tcp: TcpStream, tls: Option<Arc<ServerConfig>>) -> io::Result<Self> {
        let start = |config| {
            let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
            tls.set_buffer_limit(Some(HELD_BYTES_MAX));
            Ok::<_, io::Error>(Box::new(tls))
        };
        Ok(Self {
            tcp,
            tls: tls.map(start).transpose()?,
        })
    }

    /// The socket, to register it with the poll.
    pub(super) fn socket(&mut self) -> &mut TcpStream {
        &mut self.tcp
    }

    /// Whether the client has not shown yet that it speaks TLS, although it must.
    pub(super) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// The common name of the certificate that the client has shown, and that is trusted.
    pub(super) fn common_name(&self) -> Option<String> {
        let shown = self.tls.as_ref()?.peer_certificates()?;
        common_name_of(shown.first()?)
    }

    /// Whether something that TLS has to say was not taken by the socket yet.
    pub(super) fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Reads until `into` is full or nothing is left to read; 0 is the end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return Raw(&self.tcp).read(into);
        };
        let (mut read, mut stopped) = (0, None);
        loop {
            match tls.reader().read(&mut into[read..]) {
                Ok(0) => return Ok(read),
                Ok(more) => {
                    read += more;
                    if read == into.len() {
                        return Ok(read);
                    }
                    continue;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                // The client closed the connection without saying so in TLS, as many do.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(read),
                Err(e) => return Err(e),
            }
            if let Some(stopped) = stopped {
                return if read > 0 { Ok(read) } else { Err(stopped) };
            }
            match tls.read_tls(&mut Raw(&self.tcp)) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => {
                    stopped = Some(e);
                    continue;
                }
            }
            if let Err(why) = tls.process_new_packets() {
                // The client gets the error, if its socket takes it: in its own words, if it speaks
                // no TLS.
                let _ = match why {
                    rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                        Raw(&self.tcp).write(SPEAKS_TLS)
                    }
                    _ => tls.write_tls(&mut Raw(&self.tcp)),
                };
                return Err(io::Error::new(ErrorKind::InvalidData, why));
            }
        }
    }

    /// Whether the socket has room, after all that was written was taken (`whole`) or a part of it.
    pub(super) fn has_room(&self, whole: bool) -> bool {
        match &self.tls {
            // TLS takes a part at a time, even if the socket takes more.
            Some(tls) => !tls.wants_write(),
            None => whole,
        }
    }

    /// Sends what TLS has to say. [`ErrorKind::WouldBlock`]: the socket has no room for the rest.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        while tls.wants_write() {
            match tls.write_tls(&mut Raw(&self.tcp)) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Hands plain bytes to TLS, and sends what the socket takes of them. Returns how many TLS
    /// took.
    fn encrypt(
        &mut self,
        hand_over: impl FnOnce(&mut rustls::Writer<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        // Nothing is added to what the socket refuses.
        self.flush()?;
        let Some(tls) = &mut self.tls else {
            return Ok(0);
        };
        let taken = hand_over(&mut tls.writer())?;
        match self.flush() {
            Err(e) if e.kind() != ErrorKind::WouldBlock => Err(e),
            // The rest waits in TLS.
            _ => Ok(taken),
        }
    }

    /// Ends the sending side in order.
    pub(super) fn shutdown(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            // If the socket is full, the client sees the end of TCP alone.
            let _ = self.flush();
        }
        self.tcp.shutdown(Shutdown::Write)
    }

    /// Reads and drops what the client still sends.
    pub(super) fn drop_input(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Raw(&self.tcp).read(into)
    }
}

impl Write for ClientStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.tls.is_none() {
            return Raw(&self.tcp).write(bytes);
        }
        self.encrypt(|tls| tls.write(bytes))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.tls.is_none() {
            return Raw(&self.tcp).write_vectored(slices);
        }
        self.encrypt(|tls| tls.write_vectored(slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::flush(self)
    }
}

/// A socket that is used by the kernel's own calls. The C library's calls are thread cancellation
/// points, and each call notes that.
struct Raw<'a>(&'a TcpStream);

impl Read for Raw<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(self.0, into, rustix::net::RecvFlags::empty())?.0)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // If the client is gone, that is an error here and not a signal.
        Ok(rustix::net::send(
            self.0,
            bytes,
            rustix::net::SendFlags::NOSIGNAL,
        )?)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut nothing = rustix::net::SendAncillaryBuffer::default();
        Ok(rustix::net::sendmsg(
            self.0,
            slices,
            &mut nothing,
            rustix::net::SendFlags::NOSIGNAL,
        )?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
