//! Notices within a moment that nobody listens on a peer's port any more.
//!
//! UDP does not say that a process died, but its host does: a *connected* UDP socket is told ECONNREFUSED. So one byte goes to
//! the control port of each pinged peer every 50 ms, from a socket of its own; QUIC at the other end ignores it. What
//! comes of it is a hint: it lets suspicion begin, and proves nothing.

use doyen_placement::MemberId;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// Between two datagrams to a peer.
pub const INTERVAL: Duration = Duration::from_millis(50);
/// Sockets at most; members beyond that are noticed by their silence alone.
const SOCKETS_MAX: usize = 128;
/// No QUIC packet: the fixed bit is not set, and it is too short for any header.
const BYTE: [u8; 1] = [0];

/// One connected socket a peer.
#[derive(Debug, Default)]
pub struct Probes {
    sockets: BTreeMap<MemberId, (SocketAddr, UdpSocket)>,
}

impl Probes {
    /// Probes exactly these peers, and yields those where nobody listens.
    pub fn probe(&mut self, targets: &BTreeMap<MemberId, SocketAddr>) -> Vec<MemberId> {
        self.sockets.retain(|id, (address, _)| targets.get(id) == Some(address));
        let mut refused = Vec::new();
        for (&id, &address) in targets {
            if !self.sockets.contains_key(&id) {
                if self.sockets.len() >= SOCKETS_MAX {
                    continue;
                }
                match connect(address) {
                    Ok(socket) => self.sockets.insert(id, (address, socket)),
                    Err(e) => {
                        tracing::debug!(%address, "cannot open a probe: {e}");
                        continue;
                    }
                };
            }
            if let Some((_, socket)) = self.sockets.get(&id)
                && is_refused(socket)
            {
                refused.push(id);
            }
        }
        refused
    }
}

fn connect(address: SocketAddr) -> io::Result<UdpSocket> {
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.set_nonblocking(true)?;
    socket.connect(address)?;
    Ok(socket)
}

/// The error of an earlier datagram comes with the next call; on one machine that is the `recv` just after.
fn is_refused(socket: &UdpSocket) -> bool {
    let refused = |e: &io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
    let sent = socket.send(&BYTE);
    let heard = socket.recv(&mut [0; 16]);
    sent.as_ref().is_err_and(refused) || heard.as_ref().is_err_and(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_port_is_refused_and_an_open_one_is_not() {
        let (open, closed) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let targets = BTreeMap::from([(MemberId(1), open.local_addr().unwrap()), (MemberId(2), closed.local_addr().unwrap())]);
        let mut probes = Probes::default();
        assert_eq!(probes.probe(&targets), []);
        drop(closed);
        // The system may take a moment to say so.
        let mut refused = Vec::new();
        for _ in 0..1000 {
            refused = probes.probe(&targets);
            if !refused.is_empty() {
                break;
            }
            std::thread::yield_now();
        }
        assert_eq!(refused, [MemberId(2)]);
        assert_eq!(probes.probe(&BTreeMap::new()), []);
        assert!(probes.sockets.is_empty());
    }
}
