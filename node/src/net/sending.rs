//! Datagrams that the system does not send: which are tried again, and what is counted and logged.
//!
//! A datagram that is not sent is lost, as the network might lose it, and QUIC sends its content
//! again. But QUIC takes each loss for congestion, so a machine that is short of buffers for a
//! moment (`ENOBUFS`) would slow down a whole connection. So these are tried again at once.

use super::endpoint::Purpose;
use crate::log_limit::{A_MINUTE, LogLimit};
use rustix::io::Errno;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// How often a datagram is tried again at once.
const AGAIN_MAX: u32 = 4;

/// The errors that have a name in metrics. All others are `other`.
const NAMED: [(Errno, &str); 8] = [
    (Errno::NOBUFS, "ENOBUFS"),
    (Errno::PERM, "EPERM"),
    (Errno::ACCESS, "EACCES"),
    (Errno::INVAL, "EINVAL"),
    (Errno::IO, "EIO"),
    (Errno::NETUNREACH, "ENETUNREACH"),
    (Errno::HOSTUNREACH, "EHOSTUNREACH"),
    (Errno::CONNREFUSED, "ECONNREFUSED"),
];
const NAMES: usize = NAMED.len() + 1;
/// The ports in the order of [`place`].
const PORTS: [&str; 2] = ["control", "data"];

const fn place(port: Purpose) -> usize {
    match port {
        Purpose::Control => 0,
        Purpose::Data => 1,
    }
}

/// What is sent between nodes, and errors of sends, by port and error.
#[derive(Debug)]
pub struct SendErrors {
    /// Of both ports, as are the counts.
    bytes: [AtomicU64; 2],
    counts: [[AtomicU64; NAMES]; 2],
    /// A lock, because several threads send. It is held for moments, when a send has failed.
    told: Mutex<LogLimit>,
}

impl Default for SendErrors {
    fn default() -> Self {
        Self {
            bytes: Default::default(),
            counts: Default::default(),
            told: Mutex::new(LogLimit::new(A_MINUTE)),
        }
    }
}

impl SendErrors {
    /// What was counted: the port, the error, and how often.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let ports = PORTS.into_iter().zip(&self.counts);
        ports.flat_map(|(port, counts)| {
            let names = NAMED.iter().map(|(_, name)| *name).chain(["other"]);
            let counts = counts.iter().map(|count| count.load(Ordering::Relaxed));
            names
                .zip(counts)
                .map(move |(name, times)| (port, name, times))
        })
    }

    /// Bytes of datagrams sent to other nodes by port, with those that were sent again.
    pub fn bytes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let bytes = self.bytes.iter().map(|sent| sent.load(Ordering::Relaxed));
        PORTS.into_iter().zip(bytes)
    }

    /// Sends a datagram, or a train of them, with a content of `bytes`, by `attempt`.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] alone: the socket has no room. Of any other error, the datagram is
    /// lost.
    pub(super) fn send(
        &self,
        port: Purpose,
        to: SocketAddr,
        bytes: usize,
        attempt: impl Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut again = 0;
        loop {
            let Err(e) = attempt() else {
                self.bytes[place(port)].fetch_add(bytes as u64, Ordering::Relaxed);
                return Ok(());
            };
            let errno = Errno::from_io_error(&e);
            match (e.kind(), errno) {
                (ErrorKind::WouldBlock, _) => return Err(e),
                (ErrorKind::Interrupted, _) => continue,
                // QUIC finds out in this way how large datagrams may be.
                (_, Some(Errno::MSGSIZE)) => return Ok(()),
                _ => self.count(port, errno),
            }
            if errno != Some(Errno::NOBUFS) || again == AGAIN_MAX {
                self.tell(port, to, &e);
                return Ok(());
            }
            again += 1;
        }
    }

    fn count(&self, port: Purpose, errno: Option<Errno>) {
        let named = NAMED.iter().position(|(known, _)| Some(*known) == errno);
        self.counts[place(port)][named.unwrap_or(NAMED.len())].fetch_add(1, Ordering::Relaxed);
    }

    fn tell(&self, port: Purpose, to: SocketAddr, e: &io::Error) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(others) = told.happened(Instant::now()) {
            tracing::warn!(
                "the system does not send from the {port} to {to}: {e}. Look at this machine's \
                 network and firewall; doyen_udp_send_errors_total counts such errors{others}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Sends with these outcomes, one after the other. Returns whether there was room, how many
    /// attempts there were, and what was counted.
    fn sent(outcomes: &[Errno]) -> (bool, usize, Vec<(&'static str, u64)>) {
        let (errors, attempts) = (SendErrors::default(), Cell::new(0));
        let attempt = || match outcomes.get(attempts.replace(attempts.get() + 1)) {
            Some(errno) => Err((*errno).into()),
            None => Ok(()),
        };
        let to = ([127, 0, 0, 1], 1).into();
        let had_room = errors.send(Purpose::Data, to, 100, attempt).is_ok();
        let counted = errors.all().filter(|(_, _, times)| *times > 0);
        let counted = counted.map(|(port, name, times)| {
            assert_eq!(port, "data");
            (name, times)
        });
        let went = attempts.get() > outcomes.len();
        let data = if went { 100 } else { 0 };
        let sent: Vec<_> = errors.bytes().collect();
        assert_eq!(sent, [("control", 0), ("data", data)]);
        (had_room, attempts.get(), counted.collect())
    }

    /// Regression: one `ENOBUFS` in ten datagrams slowed writes down to a twentieth.
    #[test]
    fn a_datagram_without_a_buffer_is_tried_again_at_once_and_each_error_is_counted() {
        let short = Errno::NOBUFS;
        assert_eq!(sent(&[]), (true, 1, vec![]));
        assert_eq!(sent(&[short]), (true, 2, vec![("ENOBUFS", 1)]));
        assert_eq!(sent(&[short; 3]), (true, 4, vec![("ENOBUFS", 3)]));
        assert_eq!(
            sent(&[short; 99]),
            (true, 5, vec![("ENOBUFS", 5)]),
            "it is lost"
        );
        let refused = [short, Errno::PERM, short];
        assert_eq!(
            sent(&refused),
            (true, 2, vec![("ENOBUFS", 1), ("EPERM", 1)])
        );
        assert_eq!(sent(&[Errno::INTR, Errno::INTR]), (true, 3, vec![]));
        assert_eq!(sent(&[Errno::MSGSIZE]), (true, 1, vec![]), "a probe");
        assert_eq!(
            sent(&[Errno::AGAIN]),
            (false, 1, vec![]),
            "the socket is full"
        );
        assert_eq!(sent(&[Errno::NOSYS]), (true, 1, vec![("other", 1)]));
    }
}
