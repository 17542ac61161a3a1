//! Notices within a moment that nobody listens on a peer's port any more.
//!
//! UDP does not say that a process died, but its host does: a *connected* UDP socket is told ECONNREFUSED. So one byte goes to
//! the control port of each pinged peer every 100 ms, from a socket of its own; the system at the other end drops it ([`ignore`]), so that it
//! wakes nobody, and QUIC would ignore it. What comes of it is a hint: it lets suspicion begin, and proves nothing.

use doyen_placement::MemberId;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// Between two datagrams to a peer.
pub const INTERVAL: Duration = Duration::from_millis(100);
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

/// Lets the system drop probes before they wake whoever reads this socket: they were a third of an idle node's wake-ups.
/// A port with a filter is a port where somebody listens: nothing is refused.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn ignore(socket: &UdpSocket) {
    use socket2::SockFilter;
    /// Classic BPF: load the length, jump if it is at least `k`, return how much to keep.
    const LOAD_LENGTH: u16 = 0x80;
    const JUMP_AT_LEAST: u16 = 0x35;
    const KEEP: u16 = 0x06;
    /// A filter sees the UDP header too.
    const PROBE_BYTES: u32 = 8 + BYTE.len() as u32;
    let program = [
        SockFilter::new(LOAD_LENGTH, 0, 0, 0),
        SockFilter::new(JUMP_AT_LEAST, 0, 1, PROBE_BYTES + 1),
        SockFilter::new(KEEP, 0, 0, u32::MAX),
        SockFilter::new(KEEP, 0, 0, 0),
    ];
    if let Err(e) = socket2::SockRef::from(socket).attach_filter(&program) {
        tracing::debug!("probes will wake this node: no filter: {e}");
    }
}

/// There are no filters here: probes wake this node, and are ignored.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn ignore(_socket: &UdpSocket) {}

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

    #[test]
    fn who_ignores_probes_still_hears_everything_else_and_refuses_nothing() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        ignore(&socket);
        let targets = BTreeMap::from([(MemberId(1), socket.local_addr().unwrap())]);
        let mut probes = Probes::default();
        for _ in 0..10 {
            assert_eq!(probes.probe(&targets), []);
        }
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(b"hi", socket.local_addr().unwrap()).unwrap();
        let mut bytes = [0; 16];
        assert_eq!(socket.recv(&mut bytes).unwrap(), 2);
        socket.set_nonblocking(true).unwrap();
        assert_eq!(socket.recv(&mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
