//! Socket addresses in one form each, and the addresses that a socket can reach.
//!
//! A socket on `[::]` serves both families. The system names its IPv4 peers `::ffff:a.b.c.d`, so
//! the same peer would have two addresses. Every address that enters the process is made canonical
//! ([`canonical`]): datagrams, accepted connections, flags and resolved names. The mapped form
//! exists at the moment of sending only ([`AddressFamilies::wire`]).

use std::net::{IpAddr, SocketAddr};

/// Turns an IPv4 address in IPv6 form into an IPv4 address. Other addresses stay as they are, with
/// their scope.
#[must_use]
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// The families of addresses that a bound socket can send to and receive from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressFamilies {
    /// It is bound to an IPv4 address.
    V4,
    /// It is bound to one IPv6 address.
    V6,
    /// It is bound to `[::]`.
    Both,
}

impl AddressFamilies {
    /// The reach of a socket that is bound to this address.
    #[must_use]
    pub(crate) fn of(bound: SocketAddr) -> Self {
        match canonical(bound).ip() {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(ip) if ip.is_unspecified() => Self::Both,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Whether the socket reaches this (canonical) address.
    #[must_use]
    pub(crate) const fn takes(self, ip: IpAddr) -> bool {
        matches!(
            (self, ip),
            (Self::Both, _) | (Self::V4, IpAddr::V4(_)) | (Self::V6, IpAddr::V6(_))
        )
    }

    /// The form in which the socket takes a (canonical) destination.
    #[must_use]
    pub(crate) fn wire(self, to: SocketAddr) -> SocketAddr {
        match (self, to.ip()) {
            (Self::Both | Self::V6, IpAddr::V4(ip)) => {
                SocketAddr::new(ip.to_ipv6_mapped().into(), to.port())
            }
            _ => to,
        }
    }

    /// Why a socket with this reach cannot talk to this address, and what to do.
    #[must_use]
    pub(crate) fn refusal(self, to: SocketAddr) -> String {
        let (has, lacks) = if self == Self::V4 {
            ("IPv4", "IPv6")
        } else {
            ("IPv6", "IPv4")
        };
        format!(
            "this process has only an {has} socket, which cannot reach the {lacks} address {to}: \
             start it with --listen [::]:PORT"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_mapped_address_is_the_ipv4_address_that_it_stands_for() {
        assert_eq!(canonical(at("[::ffff:10.0.0.1]:7400")), at("10.0.0.1:7400"));
        // The deprecated form without ffff is an IPv6 address, and so is loopback.
        for same in [
            "10.0.0.1:7400",
            "[::1]:7400",
            "[::]:0",
            "[::10.0.0.1]:7400",
            "[fe80::1%3]:7400",
        ] {
            assert_eq!(canonical(at(same)), at(same));
        }
    }

    #[test]
    fn a_socket_reaches_the_families_that_it_is_bound_for() {
        let (v4, v6) = (at("10.0.0.1:7400"), at("[2001:db8::1]:7400"));
        for (bound, takes_v4, takes_v6) in [
            ("0.0.0.0:1", true, false),
            ("127.0.0.1:1", true, false),
            ("[::ffff:127.0.0.1]:1", true, false),
            ("[::]:1", true, true),
            ("[::1]:1", false, true),
        ] {
            let reach = AddressFamilies::of(at(bound));
            assert_eq!(
                (reach.takes(v4.ip()), reach.takes(v6.ip())),
                (takes_v4, takes_v6),
                "{bound}"
            );
        }
    }

    #[test]
    fn an_ipv6_socket_is_told_ipv4_destinations_in_mapped_form() {
        assert_eq!(
            AddressFamilies::Both.wire(at("10.0.0.1:7400")),
            at("[::ffff:10.0.0.1]:7400")
        );
        assert_eq!(
            AddressFamilies::Both.wire(at("[::1]:7400")),
            at("[::1]:7400")
        );
        assert_eq!(
            AddressFamilies::V4.wire(at("10.0.0.1:7400")),
            at("10.0.0.1:7400")
        );
    }
}
