//! Where a node listens, and where others reach it.

use super::value::{Address, Toggle};
use super::{ConfigError, Defaults, Options, Trust, fail};
use crate::address::{AddressFamilies, canonical};
use doyen_placement::THREADS_MAX;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

/// The default control port.
pub const CONTROL_PORT: u16 = 7400;
/// The default data port: the one after the control port.
pub const DATA_PORT: u16 = CONTROL_PORT + 1;
/// The default RESP port.
pub const RESP_PORT: u16 = 7379;
/// The default port for cluster-aware RESP clients.
pub const RESP_CLUSTER_PORT: u16 = 7380;
/// The default HTTP port.
pub const HTTP_PORT: u16 = 7480;

/// The ports of a node, and the addresses at which others reach them.
/// Example: [`Config`](super::Config).
#[derive(Debug, Clone)]
pub struct PortsConfig {
    /// QUIC: agreement, gossip, joins.
    pub listen: SocketAddr,
    /// QUIC: data; `None`: the port after `listen`'s. Like `resp_cluster`, it belongs to the first
    /// data thread. The other data threads have the ports that follow.
    pub data: Option<SocketAddr>,
    /// Data threads.
    pub threads: u8,
    /// RESP for the whole cluster.
    pub resp: Option<SocketAddr>,
    /// RESP for cluster-aware clients, as a Redis Cluster node answers.
    pub resp_cluster: Option<SocketAddr>,
    /// HTTP.
    pub http: Option<SocketAddr>,
    /// Where other nodes reach this one, if that is not `listen`. Port 0 means the port of
    /// `listen`.
    pub advertise: Option<SocketAddr>,
    /// Where clients reach `resp`, `resp_cluster` and `http`, if that is not where they listen. Its
    /// port is that of `resp`.
    pub advertise_resp: Option<ClientAddress>,
    /// Where clients reach `resp_cluster`, if `advertise_resp` does not say it.
    pub advertise_resp_cluster: Option<ClientAddress>,
}

impl PortsConfig {
    pub(super) fn resolve(
        options: &Options,
        defaults: Defaults,
        trust: &Trust,
    ) -> Result<Self, ConfigError> {
        let advertise = (options.advertise.as_deref())
            .map(|a| candidates("--advertise", a))
            .transpose()?;
        let (listen, data) = between_nodes(options, trust, advertise.as_deref())?;
        let client_port = |flag, said: &Option<Toggle>, port, built: bool| {
            let default = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            match (said, defaults) {
                (Some(Toggle::Off), _) | (None, Defaults::Embedded) => Ok(None),
                // A build without this protocol has no such default.
                (None, Defaults::Binary) => Ok(built.then_some(default)),
                (Some(Toggle::On(text)), _) => address(flag, Some(text), default).map(Some),
            }
        };
        let (resp, http) = (cfg!(feature = "resp"), cfg!(feature = "http"));
        let cluster = &options.resp_cluster;
        let client = |flag, text: &Option<String>| {
            let address = text.as_deref().map(|a| ClientAddress::of(flag, a));
            address.transpose()
        };
        let ports = Self {
            listen,
            data,
            threads: threads(options)?,
            resp: client_port("--resp", &options.resp, RESP_PORT, resp)?,
            resp_cluster: client_port("--resp-cluster", cluster, RESP_CLUSTER_PORT, resp)?,
            http: client_port("--http", &options.http, HTTP_PORT, http)?,
            advertise: advertise
                .map(|found| reachable(&found, listen, data))
                .transpose()?,
            advertise_resp: client("--advertise-resp", &options.advertise_resp)?,
            advertise_resp_cluster: client(
                "--advertise-resp-cluster",
                &options.advertise_resp_cluster,
            )?,
        };
        ports.are_built()?;
        ports.told_to_clients()?;
        Ok(ports)
    }

    /// Whether the ports of clients are part of this build.
    ///
    /// # Errors
    /// One is not, and how to change that.
    pub(crate) fn are_built(&self) -> Result<(), ConfigError> {
        let fronts = [("--resp", self.resp), ("--resp-cluster", self.resp_cluster)];
        is_built("RESP", "resp", cfg!(feature = "resp"), &fronts)?;
        let front = [("--http", self.http)];
        is_built("HTTP", "http", cfg!(feature = "http"), &front)
    }

    /// Checks that there is a port for each address that clients get.
    fn told_to_clients(&self) -> Result<(), ConfigError> {
        let (resp, cluster) = (&self.advertise_resp, &self.advertise_resp_cluster);
        if self.resp.is_none() && resp.as_ref().is_some_and(|a| a.port.is_some()) {
            return fail(
                "--advertise-resp gives a port for --resp, which is off: leave the port out, or \
                 give --advertise-resp-cluster"
                    .into(),
            );
        }
        if self.resp_cluster.is_none() && cluster.is_some() {
            return fail(
                "--advertise-resp-cluster needs --resp-cluster, which is off: turn it on".into(),
            );
        }
        let threads = self.threads;
        match cluster.as_ref().and_then(|a| a.port) {
            Some(port) if port.checked_add(u16::from(threads) - 1).is_none() => fail(format!(
                "--advertise-resp-cluster begins at port {port}, and each of --threads {threads} \
                 needs a port from there on: give a lower port"
            )),
            _ => Ok(()),
        }
    }

    /// The address at which others reach a socket that listens on `bound`.
    ///
    /// # Errors
    /// The socket listens on every interface, and no interface is clearly the right one.
    pub(crate) fn advertised(
        &self,
        bound: SocketAddr,
        seeds: &[String],
    ) -> Result<SocketAddr, ConfigError> {
        let ip = match self.advertise {
            Some(a) => a.ip(),
            None if !bound.ip().is_unspecified() => bound.ip(),
            None => outgoing_ip(seeds, bound).ok_or_else(|| {
                ConfigError(format!(
                    "--listen {bound} does not say where other nodes reach this \
                                     one: give --advertise ADDRESS"
                ))
            })?,
        };
        Ok(SocketAddr::new(ip, bound.port()))
    }
}

/// The address at which clients reach a port of a node, as the operator gives it.
///
/// ```
/// use doyen::config::{Defaults, Options};
///
/// let options = Options { advertise_resp: Some("192.0.2.7:9379".parse()?), ..Options::default() };
/// let config = options.resolve(Defaults::Binary)?;
/// let address = config.ports.advertise_resp.expect("it was given");
/// assert_eq!((address.ip.to_string(), address.port), ("192.0.2.7".to_owned(), Some(9379)));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAddress {
    /// The IP address; of a name, the first address that it resolves to on this machine.
    pub ip: IpAddr,
    /// The name, if one was given. Cluster-aware clients are sent to that name.
    pub name: Option<String>,
    /// The port, if it is not the one that the node listens on.
    pub port: Option<u16>,
}

impl ClientAddress {
    fn of(flag: &str, text: &str) -> Result<Self, ConfigError> {
        let address = parsed(flag, text)?;
        let found = candidates(flag, text)?;
        let ip = found
            .iter()
            .find(|a| a.is_ipv4())
            .or(found.first())
            .map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), SocketAddr::ip);
        match address.port() {
            Some(0) => fail(format!(
                "{flag}: `{text}` has port 0, which no client can reach: give the port, or leave \
                 it out"
            )),
            port => Ok(Self {
                ip,
                name: address.name().map(str::to_owned),
                port,
            }),
        }
    }
}

/// `--listen` and `--data`.
fn between_nodes(
    options: &Options,
    trust: &Trust,
    advertise: Option<&[SocketAddr]>,
) -> Result<(SocketAddr, Option<SocketAddr>), ConfigError> {
    // If the advertised address is IPv6, listen at an IPv6 address.
    let v6 = advertise.is_some_and(|found| found.iter().all(SocketAddr::is_ipv6));
    let ip: IpAddr = match (*trust == Trust::Loopback, v6) {
        (true, false) => Ipv4Addr::LOCALHOST.into(),
        (true, true) => Ipv6Addr::LOCALHOST.into(),
        (false, false) => Ipv4Addr::UNSPECIFIED.into(),
        (false, true) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let default = SocketAddr::from((ip, CONTROL_PORT));
    let listen = address("--listen", options.listen.as_deref(), default)?;
    let data = (options.data.as_deref())
        .map(|a| address("--data", Some(a), SocketAddr::from((listen.ip(), 0))))
        .transpose()?;
    if *trust == Trust::Loopback {
        for (flag, address) in [("--listen", Some(listen)), ("--data", data)] {
            if let Some(a) = address.filter(|a| !a.ip().is_loopback()) {
                return fail(format!(
                    "{flag} {a} is not a loopback address, and without a secret a node binds \
                     only to loopback addresses: give --secret-file FILE (or DOYEN_SECRET), \
                     or --tls-ca, --tls-cert and --tls-key"
                ));
            }
        }
    }
    Ok((listen, data))
}

fn threads(options: &Options) -> Result<u8, ConfigError> {
    let said = options.threads.unwrap_or(1);
    match u8::try_from(said)
        .ok()
        .filter(|n| (1..=THREADS_MAX).contains(n))
    {
        Some(threads) => Ok(threads),
        None => fail(format!(
            "--threads {said}: a node has 1 to {THREADS_MAX} data threads"
        )),
    }
}

/// Refuses the addresses of a front end that this program is built without.
pub(super) fn is_built(
    front: &str,
    feature: &str,
    built: bool,
    addresses: &[(&str, Option<SocketAddr>)],
) -> Result<(), ConfigError> {
    for (flag, address) in addresses {
        if let (Some(address), false) = (address, built) {
            return fail(format!(
                "this program is built without {front}, which {flag} {address} asks for: switch on \
                 the feature `{feature}` of the crate `doyen`, or leave {flag} out"
            ));
        }
    }
    Ok(())
}

/// The address that this machine would use towards the first seed. Connecting a UDP socket
/// sends nothing.
fn outgoing_ip(seeds: &[String], bound: SocketAddr) -> Option<IpAddr> {
    let reach = AddressFamilies::of(bound);
    let seeds = seeds
        .iter()
        .filter_map(|s| s.to_socket_addrs().ok())
        .flatten()
        .map(canonical);
    // Without seeds, use an address that is reserved for documentation.
    let anywhere: [IpAddr; 2] = [
        Ipv4Addr::new(192, 0, 2, 1).into(),
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    ];
    let towards = seeds
        .chain(anywhere.map(|ip| SocketAddr::new(ip, 9)))
        .filter(|a| reach.takes(a.ip()));
    let from = |towards: SocketAddr| {
        // Use a socket of the destination's family: a socket on [::] does not connect to an
        // IPv4 address.
        let any: IpAddr = if towards.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
        socket.connect(towards).ok()?;
        Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
    };
    towards.into_iter().find_map(from)
}

/// The address that a flag gives. Missing parts come from `default`.
///
/// ```
/// use doyen::config::address;
///
/// let default = "127.0.0.1:7400".parse()?;
/// assert_eq!(address("--listen", Some(":9000"), default)?.to_string(), "127.0.0.1:9000");
/// assert_eq!(address("--listen", None, default)?, default);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub fn address(
    flag: &str,
    said: Option<&str>,
    default: SocketAddr,
) -> Result<SocketAddr, ConfigError> {
    let Some(text) = said else { return Ok(default) };
    let found = parsed(flag, text)?
        .resolve(default)
        .map_err(|why| of_flag(flag, &why))?;
    Ok(found.first().copied().unwrap_or(default))
}

/// All addresses that a flag may mean. A missing port is 0.
fn candidates(flag: &str, text: &str) -> Result<Vec<SocketAddr>, ConfigError> {
    let found = parsed(flag, text)?
        .resolve(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
        .map_err(|why| of_flag(flag, &why))?;
    let names_none = |ip: IpAddr| {
        ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST)
    };
    match found.iter().any(|a| names_none(a.ip())) {
        true => fail(format!(
            "{flag}: `{text}` is not the address of a machine: give the address at which other \
             nodes reach this one"
        )),
        false => Ok(found),
    }
}

/// The first address of `--advertise` at which this node would receive datagrams.
fn reachable(
    advertise: &[SocketAddr],
    listen: SocketAddr,
    data: Option<SocketAddr>,
) -> Result<SocketAddr, ConfigError> {
    let ports = [Some(("--listen", listen)), data.map(|d| ("--data", d))];
    let deaf = |a: &SocketAddr| {
        ports
            .into_iter()
            .flatten()
            .find(|(_, port)| !AddressFamilies::of(*port).takes(a.ip()))
    };
    if let Some(found) = advertise.iter().find(|a| deaf(a).is_none()) {
        return Ok(*found);
    }
    let Some((first, (flag, at))) = advertise.first().and_then(|a| Some((a, deaf(a)?))) else {
        return fail(
            "--advertise gives no address: give the one at which other nodes reach this one".into(),
        );
    };
    let (has, takes) = if first.is_ipv4() {
        ("IPv4", "IPv6")
    } else {
        ("IPv6", "IPv4")
    };
    let (ip, port) = (first.ip(), at.port());
    fail(format!(
        "--advertise {ip} is an {has} address, but {flag} {at} takes only {takes}: give {flag} \
         [::]:{port}, which takes both"
    ))
}

pub(super) fn parsed(flag: &str, text: &str) -> Result<Address, ConfigError> {
    text.parse().map_err(|why: String| of_flag(flag, &why))
}

pub(super) fn of_flag(flag: &str, why: &str) -> ConfigError {
    ConfigError(format!("{flag}: {why}"))
}
