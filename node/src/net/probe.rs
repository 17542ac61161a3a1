//! Notices within a moment that no process listens on a peer's port any more.
//!
//! UDP does not report the death of a process, but its host does: it answers a datagram to a closed
//! port with "port unreachable" (ICMP). So one byte goes to the control port of each pinged peer
//! every 100 ms, from a separate socket. The system at the other end drops it ([`ignore`]), so it
//! wakes no process; QUIC would ignore it. A refusal is a hint: it starts suspicion, but proves
//! nothing.
//!
//! ICMP does not prove its sender, and a refusal from any host on the path arrives at the socket.
//! So the socket asks for the errors themselves (IP_RECVERR). Only an error that the peer's own
//! address sent counts, one for each probe. A host that can send in the name of that address can
//! still forge them. That is why hints only shorten the awaited silence (`doyen_gossip::detector`).

use doyen_placement::MemberId;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// The time between two probes of a peer.
const INTERVAL: Duration = Duration::from_millis(100);
/// The same for a peer that refused the last probe, until [`CLEAR`].
const INTERVAL_REFUSED: Duration = Duration::from_millis(25);
/// Refusals in a row after which a peer is clearly gone. (Linux sends a few ICMP errors to one
/// address at once, and then one a second.)
pub const CLEAR: u32 = 3;
/// Sockets, at most; further members are noticed only by their silence.
const SOCKETS_MAX: usize = 128;
/// Errors and datagrams that are read from one socket at a time. More than these are forged.
const READ_MAX: usize = 16;
/// Not a QUIC packet: the fixed bit is not set, and it is too short for any header.
const BYTE: [u8; 1] = [0];

/// One connected socket for each peer.
#[derive(Debug)]
pub struct Probes {
    peers: BTreeMap<MemberId, Probed>,
    /// When all of them are probed next.
    round_at: Instant,
}

#[derive(Debug)]
struct Probed {
    address: SocketAddr,
    socket: UdpSocket,
    /// Refusals in a row.
    refused: u32,
}

impl Default for Probes {
    fn default() -> Self {
        Self {
            peers: BTreeMap::new(),
            round_at: Instant::now(),
        }
    }
}

impl Probes {
    /// When `probe` is due next.
    #[must_use]
    pub fn due(&self, now: Instant) -> Instant {
        let soon = now + INTERVAL_REFUSED;
        if self.peers.values().any(Probed::is_looked_at_closely) {
            self.round_at.min(soon)
        } else {
            self.round_at
        }
    }

    /// Probes exactly these peers, or only those under suspicion. Returns the peers without a
    /// listener, and for how many probes in a row.
    pub fn probe(
        &mut self,
        targets: &BTreeMap<MemberId, SocketAddr>,
        now: Instant,
    ) -> Vec<(MemberId, u32)> {
        self.peers
            .retain(|id, probed| targets.get(id) == Some(&probed.address));
        let round = self.round_at <= now;
        if round {
            self.round_at = now + INTERVAL;
            self.open(targets);
        }
        let mut refused = Vec::new();
        for (id, probed) in self
            .peers
            .iter_mut()
            .filter(|(_, probed)| round || probed.is_looked_at_closely())
        {
            if probed.probe() {
                probed.refused = probed.refused.saturating_add(1);
                refused.push((*id, probed.refused));
            } else {
                probed.refused = 0;
            }
        }
        refused
    }

    fn open(&mut self, targets: &BTreeMap<MemberId, SocketAddr>) {
        for (&id, &address) in targets {
            if self.peers.contains_key(&id) || self.peers.len() >= SOCKETS_MAX {
                continue;
            }
            match connect(address) {
                Ok(socket) => {
                    _ = self.peers.insert(
                        id,
                        Probed {
                            address,
                            socket,
                            refused: 0,
                        },
                    )
                }
                Err(e) => tracing::debug!(%address, "cannot open a probe: {e}"),
            }
        }
    }
}

impl Probed {
    fn is_looked_at_closely(&self) -> bool {
        (1..CLEAR).contains(&self.refused)
    }

    /// Sends a probe. Returns whether the peer's host refused the former probe, or already this
    /// one: on one machine the error arrives at once.
    fn probe(&self) -> bool {
        let before = is_refused(&self.socket, self.address.ip());
        // Fails with the error of an earlier probe, which was read just now.
        let _ = self.socket.send(&BYTE);
        let now = is_refused(&self.socket, self.address.ip());
        // No peer sends to this socket. Drain it, so that strangers cannot fill it.
        for _ in 0..READ_MAX {
            if self.socket.recv(&mut [0; 16]).is_err() {
                break;
            }
        }
        before || now
    }
}

fn connect(address: SocketAddr) -> io::Result<UdpSocket> {
    let any = if address.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let socket = UdpSocket::bind(any)?;
    socket.set_nonblocking(true)?;
    tell_errors(&socket, address)?;
    socket.connect(address)?;
    Ok(socket)
}

/// Lets the system queue the ICMP errors of this socket's datagrams.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn tell_errors(socket: &UdpSocket, address: SocketAddr) -> io::Result<()> {
    use nix::sys::socket::{setsockopt, sockopt};
    if address.is_ipv4() {
        setsockopt(socket, sockopt::Ipv4RecvErr, &true)
    } else {
        setsockopt(socket, sockopt::Ipv6RecvErr, &true)
    }?;
    Ok(())
}

/// Reads the waiting errors. Returns whether this peer itself refused its port.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_refused(socket: &UdpSocket, peer: IpAddr) -> bool {
    use nix::libc::{sock_extended_err, sockaddr_in6};
    use nix::sys::socket::{MsgFlags, recvmsg};
    use std::io::IoSliceMut;
    use std::os::fd::AsRawFd;

    let mut refused = false;
    for _ in 0..READ_MAX {
        let mut bytes = [0; BYTE.len()];
        // Room for one error with its sender's address; there are no other control messages.
        let mut control = nix::cmsg_space!(sock_extended_err, sockaddr_in6);
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let mut bytes = [IoSliceMut::new(&mut bytes)];
        let Ok(message) = recvmsg::<()>(socket.as_raw_fd(), &mut bytes, Some(&mut control), flags)
        else {
            break;
        };
        let Ok(errors) = message.cmsgs() else {
            continue;
        };
        refused |= errors
            .filter_map(|error| IcmpError::from(&error))
            .any(|error| error.refuses(peer));
    }
    refused
}

/// An ICMP message and its sender.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[derive(Debug, Clone, Copy)]
struct IcmpError {
    origin: u8,
    kind: u8,
    code: u8,
    offender: Option<IpAddr>,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl IcmpError {
    /// The error came from the network, not from this machine's own view of it
    /// (`linux/errqueue.h`).
    const ORIGIN_ICMP: u8 = 2;
    const ORIGIN_ICMP6: u8 = 3;
    /// Destination unreachable, port unreachable (RFC 792; RFC 4443, section 3.1).
    const PORT_UNREACHABLE: (u8, u8) = (3, 3);
    const PORT_UNREACHABLE_6: (u8, u8) = (1, 4);

    fn from(message: &nix::sys::socket::ControlMessageOwned) -> Option<Self> {
        use nix::sys::socket::ControlMessageOwned::{Ipv4RecvErr, Ipv6RecvErr};
        use std::net::{Ipv4Addr, Ipv6Addr};
        let (error, offender) = match message {
            Ipv4RecvErr(error, from) => (
                error,
                from.map(|from| Ipv4Addr::from(u32::from_be(from.sin_addr.s_addr)).into()),
            ),
            Ipv6RecvErr(error, from) => (
                error,
                from.map(|from| Ipv6Addr::from(from.sin6_addr.s6_addr).into()),
            ),
            _ => return None,
        };
        Some(Self {
            origin: error.ee_origin,
            kind: error.ee_type,
            code: error.ee_code,
            offender,
        })
    }

    /// Whether this peer itself says that no process listens on the port.
    fn refuses(&self, peer: IpAddr) -> bool {
        let says = (self.kind, self.code);
        let unreachable = match peer {
            IpAddr::V4(_) => self.origin == Self::ORIGIN_ICMP && says == Self::PORT_UNREACHABLE,
            IpAddr::V6(_) => self.origin == Self::ORIGIN_ICMP6 && says == Self::PORT_UNREACHABLE_6,
        };
        unreachable && self.offender == Some(peer)
    }
}

/// This system does not report the sender of an error, so no error is believed.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn tell_errors(_socket: &UdpSocket, _address: SocketAddr) -> io::Result<()> {
    Ok(())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_refused(_socket: &UdpSocket, _peer: IpAddr) -> bool {
    false
}

/// Lets the system drop probes before they wake the reader of this socket: they caused a third of
/// an idle node's wake-ups. A port with a filter still has a listener, so nothing is refused.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn ignore(socket: &UdpSocket) {
    use socket2::SockFilter;
    /// Classic BPF: load the length, jump if it is at least `k`, return how much to keep.
    const LOAD_LENGTH: u16 = 0x80;
    const JUMP_AT_LEAST: u16 = 0x35;
    const KEEP: u16 = 0x06;
    /// A filter also sees the UDP header.
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

/// This system has no filters: probes wake this node, and are ignored.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn ignore(_socket: &UdpSocket) {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// Probes as fast as possible until there are enough refusals, or this many rounds are over.
    fn refusals(
        probes: &mut Probes,
        targets: &BTreeMap<MemberId, SocketAddr>,
        rounds: usize,
    ) -> BTreeMap<MemberId, u32> {
        let mut most = BTreeMap::new();
        for _ in 0..rounds {
            let due = probes.due(Instant::now());
            for (id, in_a_row) in probes.probe(targets, due) {
                let known: &mut u32 = most.entry(id).or_default();
                *known = in_a_row.max(*known);
            }
            // The system may take a moment to report it.
            std::thread::yield_now();
        }
        most
    }

    fn a_closed_port_is_refused(on: IpAddr) {
        let bound = || UdpSocket::bind((on, 0)).unwrap();
        let (open, closed) = (bound(), bound());
        let targets = BTreeMap::from([
            (MemberId(1), open.local_addr().unwrap()),
            (MemberId(2), closed.local_addr().unwrap()),
        ]);
        let mut probes = Probes::default();
        assert_eq!(refusals(&mut probes, &targets, 3), BTreeMap::new());
        drop(closed);
        let refused = refusals(&mut probes, &targets, 100);
        assert_eq!(refused.keys().collect::<Vec<_>>(), [&MemberId(2)]);
        assert!(refused[&MemberId(2)] >= CLEAR, "{refused:?}");
        assert_eq!(probes.probe(&BTreeMap::new(), Instant::now()), []);
        assert!(probes.peers.is_empty());
    }

    #[test]
    fn a_closed_port_is_refused_by_its_own_host_and_an_open_one_is_not() {
        a_closed_port_is_refused(Ipv4Addr::LOCALHOST.into());
        if UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
            a_closed_port_is_refused(Ipv6Addr::LOCALHOST.into());
        }
    }

    #[test]
    fn a_peer_that_refused_is_probed_again_soon_until_it_is_clear() {
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap();
        let targets = BTreeMap::from([(MemberId(1), closed.local_addr().unwrap())]);
        drop(closed);
        let mut probes = Probes::default();
        let mut now = probes.round_at;
        for in_a_row in 1..CLEAR {
            assert_eq!(probes.probe(&targets, now), [(MemberId(1), in_a_row)]);
            assert_eq!(probes.due(now), now + INTERVAL_REFUSED);
            now += INTERVAL_REFUSED;
        }
        assert_eq!(probes.probe(&targets, now), [(MemberId(1), CLEAR)]);
        assert_eq!(probes.due(now), probes.round_at);
    }

    /// Any host on the path could claim that a peer's port is closed, and a live member was
    /// expelled for it.
    #[test]
    fn only_the_peer_itself_is_believed_and_only_of_its_port() {
        let (peer, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 66]));
        let refusal = IcmpError {
            origin: IcmpError::ORIGIN_ICMP,
            kind: 3,
            code: 3,
            offender: Some(peer),
        };
        assert!(refusal.refuses(peer));
        for forged in [
            IcmpError {
                offender: Some(other),
                ..refusal
            },
            IcmpError {
                offender: None,
                ..refusal
            },
            // No route to the host, a firewall, an error of this machine's own, and one of the
            // other family.
            IcmpError { code: 1, ..refusal },
            IcmpError {
                code: 13,
                ..refusal
            },
            IcmpError {
                origin: 1,
                ..refusal
            },
            IcmpError {
                origin: IcmpError::ORIGIN_ICMP6,
                kind: 1,
                code: 4,
                ..refusal
            },
        ] {
            assert!(!forged.refuses(peer), "{forged:?}");
        }
        let six = IpAddr::from(Ipv6Addr::LOCALHOST);
        let refusal = IcmpError {
            origin: IcmpError::ORIGIN_ICMP6,
            kind: 1,
            code: 4,
            offender: Some(six),
        };
        assert!(refusal.refuses(six) && !refusal.refuses(peer));
        assert!(
            !IcmpError { code: 3, ..refusal }.refuses(six),
            "address unreachable"
        );
    }

    /// A raw socket needs root. Without root, only the test above runs.
    #[test]
    fn another_hosts_claim_about_an_open_port_is_not_believed() {
        use socket2::{Domain, Protocol, Socket, Type};
        let Ok(raw) = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)) else {
            return;
        };
        let open = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = open.local_addr().unwrap();
        let targets = BTreeMap::from([(MemberId(1), at)]);
        let mut probes = Probes::default();
        assert_eq!(refusals(&mut probes, &targets, 1), BTreeMap::new());
        let probe = probes.peers[&MemberId(1)].socket.local_addr().unwrap();

        // "Port unreachable", with the headers of the probe that it answers.
        let mut icmp = vec![3, 3, 0, 0, 0, 0, 0, 0];
        icmp.extend([
            0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1,
        ]);
        icmp.extend(
            [
                probe.port().to_be_bytes(),
                at.port().to_be_bytes(),
                [0, 9],
                [0, 0],
            ]
            .concat(),
        );
        let sum: u32 = icmp
            .chunks(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        let say = |from: Ipv4Addr| {
            raw.bind(&SocketAddr::from((from, 0)).into()).unwrap();
            raw.send_to(&icmp, &SocketAddr::from(([127, 0, 0, 1], 0)).into())
                .unwrap();
        };
        say(Ipv4Addr::new(127, 0, 0, 66));
        assert_eq!(refusals(&mut probes, &targets, 20), BTreeMap::new());
        // The same message from the peer's own address, to show that the sender makes the
        // difference.
        say(Ipv4Addr::LOCALHOST);
        assert_eq!(
            refusals(&mut probes, &targets, 1),
            BTreeMap::from([(MemberId(1), 1)])
        );
    }

    #[test]
    fn a_socket_that_ignores_probes_still_receives_everything_else() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        ignore(&socket);
        let targets = BTreeMap::from([(MemberId(1), socket.local_addr().unwrap())]);
        assert_eq!(
            refusals(&mut Probes::default(), &targets, 10),
            BTreeMap::new()
        );
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(b"hi", socket.local_addr().unwrap()).unwrap();
        let mut bytes = [0; 16];
        assert_eq!(socket.recv(&mut bytes).unwrap(), 2);
        socket.set_nonblocking(true).unwrap();
        assert_eq!(
            socket.recv(&mut bytes).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
    }
}
