//! The open ports of a node.

use crate::config::{ClientAddress, PortsConfig};
use crate::error::Error;
use doyen_placement::{Addresses, ThreadPorts};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

/// The open ports of one data thread.
pub(super) struct ThreadSockets {
    /// The port of `--data`, or one after it.
    pub(super) data: UdpSocket,
    /// RESP as a Redis Cluster node answers. To cluster-aware clients, each thread is a node.
    pub(super) resp_cluster: Option<TcpListener>,
}

/// The open ports of a node.
pub(super) struct NodeSockets {
    pub(super) control: UdpSocket,
    /// One entry for each data thread; at least one.
    pub(super) threads: Vec<ThreadSockets>,
    pub(super) resp: Option<TcpListener>,
    pub(super) http: Option<TcpListener>,
}

impl NodeSockets {
    /// Opens all ports or none. A node that opened only half of them would be noticed later.
    pub(super) fn open(ports: &PortsConfig) -> Result<Self, Error> {
        own_ports(ports)?;
        let control = udp("--listen", ports.listen)?;
        let port = local("--listen", ports.listen, control.local_addr())?.port();
        // The port after the control port. If the system chose that one, it chooses this one too.
        let next = if ports.listen.port() == 0 {
            0
        } else {
            port.wrapping_add(1)
        };
        let data = ports
            .data
            .unwrap_or_else(|| SocketAddr::new(ports.listen.ip(), next));
        let optional =
            |flag, address: Option<SocketAddr>| address.map(|a| tcp(flag, a)).transpose();
        let thread = |number: u8| {
            let data = udp("--data", nth("--data", data, number)?)?;
            let resp_cluster = ports
                .resp_cluster
                .map(|a| tcp("--resp-cluster", nth("--resp-cluster", a, number)?))
                .transpose()?;
            Ok::<_, Error>(ThreadSockets { data, resp_cluster })
        };
        Ok(Self {
            control,
            threads: (0..ports.threads).map(thread).collect::<Result<_, _>>()?,
            resp: optional("--resp", ports.resp)?,
            http: optional("--http", ports.http)?,
        })
    }

    /// The addresses at which others reach these.
    /// `seeds`: the other nodes, which say which of this machine's addresses they reach.
    pub(super) fn addresses(
        &self,
        ports: &PortsConfig,
        seeds: &[String],
    ) -> Result<Addresses, Error> {
        let control = local("--listen", ports.listen, self.control.local_addr())?;
        let data = |thread: &ThreadSockets| local("--data", ports.listen, thread.data.local_addr());
        let mut advertised = ports.advertised(control, seeds)?;
        if let Some(port) = ports.advertise.map(|a| a.port()).filter(|&p| p != 0) {
            advertised.set_port(port);
        }
        let host = ports.advertise_resp.as_ref();
        let cluster_host = ports.advertise_resp_cluster.as_ref().or(host);
        let client =
            |listener: &Option<TcpListener>, host: Option<&ClientAddress>, port: Option<u16>| {
                let Some(listener) = listener else {
                    return Ok(None);
                };
                let mut address = local("--resp", ports.listen, listener.local_addr())?;
                if let Some(host) = host {
                    address = SocketAddr::new(host.ip, address.port());
                } else if address.ip().is_unspecified() {
                    address.set_ip(advertised.ip());
                }
                address.set_port(port.unwrap_or(address.port()));
                Ok::<_, Error>(Some(address))
            };
        let cluster = |thread: &ThreadSockets, number: u16| {
            // `resolve` has checked that all of them are ports.
            let port = ports
                .advertise_resp_cluster
                .as_ref()
                .and_then(|a| a.port)
                .map(|first| first.saturating_add(number));
            client(&thread.resp_cluster, cluster_host, port)
        };
        let further = |(thread, number): (&ThreadSockets, u16)| {
            let resp_cluster = cluster(thread, number)?.map(|a| a.port());
            Ok::<_, Error>(ThreadPorts {
                data: data(thread)?.port(),
                resp_cluster,
            })
        };
        let [first, others @ ..] = &self.threads[..] else {
            return Err(Error::System("a node has at least one data thread".into()));
        };
        Ok(Addresses {
            control: advertised,
            data: ports.advertised(data(first)?, seeds)?,
            resp: client(&self.resp, host, host.and_then(|h| h.port))?,
            resp_cluster: cluster(first, 0)?,
            http: client(&self.http, host, None)?,
            further: others
                .iter()
                .zip(1..)
                .map(further)
                .collect::<Result<_, _>>()?,
            hostname: cluster_host
                .and_then(|h| h.name.clone())
                .filter(|_| first.resp_cluster.is_some()),
        })
    }
}

/// The address of the data thread of this number: the first one's port plus the number. If the
/// system chose that port, it chooses this one too.
fn nth(flag: &'static str, first: SocketAddr, number: u8) -> Result<SocketAddr, Error> {
    let port = match first.port() {
        0 => Some(0),
        port => port.checked_add(number.into()),
    };
    let why = || {
        format!(
            "there is no port for data thread {number} so far above it: choose a lower one with \
             {flag}"
        )
    };
    Ok(SocketAddr::new(
        first.ip(),
        port.ok_or_else(|| Error::Bind {
            flag,
            address: first,
            why: why(),
        })?,
    ))
}

/// Checks that no two of the ports that a node is to open are the same. The system's own error
/// would name only the second one.
fn own_ports(ports: &PortsConfig) -> Result<(), Error> {
    let threads = u16::from(ports.threads);
    // Each flag, its first port, and how many ports it takes.
    let udp = [
        ("--data", ports.data, threads),
        ("--listen", Some(ports.listen), 1),
    ];
    let tcp = [
        ("--resp-cluster", ports.resp_cluster, threads),
        ("--resp", ports.resp, 1),
        ("--http", ports.http, 1),
    ];
    apart(&udp).and_then(|()| apart(&tcp))
}

fn apart(asked: &[(&'static str, Option<SocketAddr>, u16)]) -> Result<(), Error> {
    let asked: Vec<_> = asked
        .iter()
        .filter_map(|(flag, address, count)| Some((*flag, (*address)?, *count)))
        .collect();
    let taken = |address: SocketAddr, count: u16| {
        u32::from(address.port())..u32::from(address.port()) + u32::from(count)
    };
    for (place, &(flag, address, count)) in asked.iter().enumerate() {
        let clashes = |&&(_, there, many): &&(&str, SocketAddr, u16)| {
            let (ours, theirs) = (taken(address, count), taken(there, many));
            let reach = address.ip() == there.ip()
                || address.ip().is_unspecified()
                || there.ip().is_unspecified();
            reach
                && address.port() != 0
                && there.port() != 0
                && ours.start < theirs.end
                && theirs.start < ours.end
        };
        if let Some((other, there, many)) = asked[..place].iter().find(clashes) {
            let all = if *many > 1 {
                format!("{many} ports from {} on, one a data thread", there.port())
            } else {
                "that port".into()
            };
            let why = format!("{other} of this node takes {all}: choose another with {flag}");
            return Err(Error::Bind { flag, address, why });
        }
    }
    Ok(())
}

fn udp(flag: &'static str, address: SocketAddr) -> Result<UdpSocket, Error> {
    let socket = UdpSocket::bind(address).map_err(|e| bind(flag, address, &e))?;
    socket
        .set_nonblocking(true)
        .map_err(|e| bind(flag, address, &e))?;
    Ok(socket)
}

/// Connections that may wait to be accepted, if the system allows that many (net.core.somaxconn).
const BACKLOG: i32 = 4096;

fn tcp(flag: &'static str, address: SocketAddr) -> Result<TcpListener, Error> {
    let listener = TcpListener::bind(address).map_err(|e| bind(flag, address, &e))?;
    // The standard library lets 128 wait. After a restart many clients come at once, and those that
    // do not fit wait a second.
    rustix::net::listen(&listener, BACKLOG).map_err(|e| bind(flag, address, &e.into()))?;
    listener
        .set_nonblocking(true)
        .map_err(|e| bind(flag, address, &e))?;
    Ok(listener)
}

fn local(
    flag: &'static str,
    wanted: SocketAddr,
    found: io::Result<SocketAddr>,
) -> Result<SocketAddr, Error> {
    found.map_err(|e| bind(flag, wanted, &e))
}

fn bind(flag: &'static str, address: SocketAddr, e: &io::Error) -> Error {
    let why = match e.kind() {
        io::ErrorKind::AddrInUse => format!(
            "the port is in use: stop what uses it, or choose another with {flag} (port 0 takes \
             any)"
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("this machine has no such address: choose another with {flag}")
        }
        io::ErrorKind::PermissionDenied => {
            format!("permission denied: choose a port above 1023 with {flag}")
        }
        _ => e.to_string(),
    };
    Error::Bind { flag, address, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use std::time::{Duration, Instant};

    /// Beyond the 128 connections of the standard library's backlog, each took a second or more.
    #[test]
    fn hundreds_of_connections_may_wait_to_be_accepted() {
        let listener =
            tcp("--resp", "127.0.0.1:0".parse().expect("an address")).expect("it listens");
        let at = listener.local_addr().expect("known");
        let connect = |_| TcpStream::connect_timeout(&at, Duration::from_secs(60));
        // Nothing is accepted meanwhile. A connection that does not fit is tried again after a
        // second, and then after two.
        let began = Instant::now();
        let waiting: Vec<_> = (0..300)
            .map(connect)
            .collect::<Result<_, _>>()
            .expect("they connect");
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "{} took {:?}",
            waiting.len(),
            began.elapsed()
        );
    }
}
