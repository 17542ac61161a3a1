//! Values as people write them: `512mb`, `30s`, `off`, `reset:10m`. They parse alike from a flag,
//! the environment and TOML, and an error says what was expected.

use super::Options;
use crate::address::canonical;
pub use crate::key_events::KeyEvents;
pub use crate::net::identity::TlsMin;
use doyen_placement::{Assignment, Eviction, OnLoss, Rule};
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::{Serialize, Serializer};
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes: `16777216`, `16mb`, `2GiB`. Units are powers of 1024.
///
/// ```
/// use doyen::config::value::Size;
///
/// assert_eq!("16mb".parse(), Ok(Size(16 << 20)));
/// assert!("16 apples".parse::<Size>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "`{text}` is not a size: write bytes, or a number with kb, mb or gb, as in 512mb"
            )
        };
        let (number, unit) = split(text).ok_or_else(expected)?;
        let factor: u64 = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "kib" => 1 << 10,
            "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            "t" | "tb" | "tib" => 1 << 40,
            _ => return Err(expected()),
        };
        number.checked_mul(factor).map(Self).ok_or_else(expected)
    }
}

/// A duration: `500ms`, `30s`, `2m`, `1h`. A number without a unit is refused unless it is 0: some
/// would read it as seconds, others as milliseconds.
///
/// ```
/// use doyen::config::value::DurationOption;
/// use std::time::Duration;
///
/// assert_eq!("90s".parse(), Ok(DurationOption(Duration::from_secs(90))));
/// assert_eq!(DurationOption(Duration::from_secs(120)).to_string(), "2m");
/// assert!("90".parse::<DurationOption>().is_err(), "90 of what?");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurationOption(pub Duration);

impl FromStr for DurationOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("`{text}` is not a duration: write a number with ms, s, m or h, as in 30s");
        let (number, unit) = split(text).ok_or_else(expected)?;
        let factor: u64 = match unit {
            "" if number > 0 => {
                return Err(format!(
                    "`{text}` has no unit: write {number}s for seconds, or ms, m or h"
                ));
            }
            "ms" => 1,
            "" | "s" => 1000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            _ => return Err(expected()),
        };
        number
            .checked_mul(factor)
            .map(|ms| Self(Duration::from_millis(ms)))
            .ok_or_else(expected)
    }
}

impl fmt::Display for DurationOption {
    /// In the largest unit that gives a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        let units = [(3_600_000, "h"), (60_000, "m"), (1000, "s")];
        // 90 s stays `90s`, and 2 h becomes `2h`.
        match units
            .into_iter()
            .find(|(unit, _)| ms > 0 && ms.is_multiple_of(*unit))
        {
            Some((unit, name)) => write!(f, "{}{name}", ms / unit),
            None => write!(f, "{ms}ms"),
        }
    }
}

/// The lifetime of a key: a duration, or `none` for ever.
///
/// ```
/// use doyen::config::value::Lifetime;
///
/// assert_eq!("60s".parse::<Lifetime>()?.millis(), Some(60_000));
/// assert_eq!("none".parse(), Ok(Lifetime(None)));
/// # Ok::<_, String>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime(pub Option<Duration>);

impl Lifetime {
    /// The lifetime in milliseconds.
    #[must_use]
    pub fn millis(self) -> Option<u64> {
        self.0
            .map(|lifetime| u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX))
    }
}

impl FromStr for Lifetime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        match text.parse() {
            Ok(DurationOption(Duration::ZERO)) => {
                Err("a key cannot live for 0 s: write a duration as in 60s, or none".into())
            }
            Ok(DurationOption(lifetime)) => Ok(Self(Some(lifetime))),
            Err(why) => Err(format!("{why}, or none")),
        }
    }
}

impl fmt::Display for Lifetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("none"),
            Some(lifetime) => DurationOption(lifetime).fmt(f),
        }
    }
}

/// An option that the word `off` switches off.
///
/// ```
/// use doyen::config::value::Toggle;
///
/// assert_eq!("off".parse(), Ok(Toggle::Off));
/// assert_eq!("127.0.0.1:7379".parse(), Ok(Toggle::On("127.0.0.1:7379".to_owned())));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Toggle {
    /// Switched off.
    Off,
    /// Switched on, with this text.
    On(String),
}

impl FromStr for Toggle {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("write an address, or the word off".into()),
            "off" | "none" => Ok(Self::Off),
            _ => Ok(Self::On(text.into())),
        }
    }
}

/// Bytes of an address or a name, at most.
const ADDRESS_BYTES_MAX: usize = 255;

/// An address: `HOST`, `HOST:PORT` or `:PORT`. A host is a name or an IP address. An IPv6 address
/// with a port stands in brackets. Every flag with an address uses this parser.
///
/// ```
/// use doyen::config::value::Address;
///
/// let seed: Address = "orders-1.internal".parse()?;
/// assert_eq!((seed.name(), seed.port()), (Some("orders-1.internal"), None));
/// assert_eq!(seed.with_port(7400)?, "orders-1.internal:7400");
///
/// let local: Address = ":9000".parse()?;
/// let default = "127.0.0.1:7400".parse().expect("an address");
/// assert_eq!(local.resolve(default)?, ["127.0.0.1:9000".parse().expect("an address")]);
/// # Ok::<_, String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    host: HostName,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostName {
    /// The text has no host.
    Default,
    /// An IP address, with its scope and without a port.
    Ip(SocketAddr),
    /// A name.
    Name(String),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |hint: &str| Err(format!("`{}` is not an address: write {hint}", shown(text)));
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            // A resolver takes a bare number for an address: 7440 would be 0.0.29.16.
            return wrong(&format!(":{} for the port, or HOST:PORT", shown(text)));
        }
        let ip = |address: SocketAddr| {
            let mut host = canonical(address);
            host.set_port(0);
            HostName::Ip(host)
        };
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self {
                host: ip(address),
                port: Some(address.port()),
            });
        }
        let bare = text
            .strip_prefix('[')
            .and_then(|t| t.strip_suffix(']'))
            .unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(Self {
                host: ip(SocketAddr::new(address, 0)),
                port: None,
            });
        }
        let (host, port) = match text.rsplit_once(':') {
            None => (text, None),
            Some((host, port)) => match port.parse() {
                Ok(port) => (host, Some(port)),
                Err(_) => {
                    return wrong("HOST:PORT with a port from 0 to 65535, as in 10.0.0.1:7400");
                }
            },
        };
        let is_name = |host: &str| {
            host.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
        };
        match (host, port) {
            ("", Some(_)) => Ok(Self {
                host: HostName::Default,
                port,
            }),
            ("", None) => wrong("HOST:PORT, as in 10.0.0.1:7400"),
            (name, _) if text.len() <= ADDRESS_BYTES_MAX && is_name(name) => Ok(Self {
                host: HostName::Name(name.to_owned()),
                port,
            }),
            (ip, Some(port)) if ip.parse::<std::net::Ipv6Addr>().is_ok() => {
                wrong(&format!("[{ip}]:{port}"))
            }
            _ => wrong("HOST:PORT, as in 10.0.0.1:7400 or [2001:db8::1]:7400"),
        }
    }
}

/// The part of a text that an error repeats.
fn shown(text: &str) -> String {
    text.chars()
        .take(ADDRESS_BYTES_MAX)
        .collect::<String>()
        .escape_debug()
        .to_string()
}

impl Address {
    /// The port, if the text has one.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// The name, if the host is not an IP address.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.host {
            HostName::Name(name) => Some(name),
            HostName::Default | HostName::Ip(_) => None,
        }
    }

    /// `HOST:PORT`, with this port if the text has none. Names are not resolved.
    ///
    /// # Errors
    /// The text has no host.
    pub fn with_port(&self, port: u16) -> Result<String, String> {
        let port = self.port.unwrap_or(port);
        match &self.host {
            HostName::Default => Err(format!(
                "`:{port}` has no host: write HOST:PORT, as in 10.0.0.1:{port}"
            )),
            HostName::Ip(ip) => {
                let mut address = *ip;
                address.set_port(port);
                Ok(address.to_string())
            }
            HostName::Name(name) => Ok(format!("{name}:{port}")),
        }
    }

    /// The socket addresses that it stands for, at least one. Missing parts come from `default`.
    /// Blocks while a name is resolved.
    ///
    /// # Errors
    /// The name does not resolve.
    pub fn resolve(&self, default: SocketAddr) -> Result<Vec<SocketAddr>, String> {
        let port = self.port.unwrap_or(default.port());
        let at = |mut address: SocketAddr| {
            address.set_port(port);
            vec![address]
        };
        let name = match &self.host {
            HostName::Default => return Ok(at(default)),
            HostName::Ip(ip) => return Ok(at(*ip)),
            HostName::Name(name) => name,
        };
        let cannot = |why: &str| {
            format!("cannot resolve `{name}` ({why}): check the name, or write an IP address")
        };
        match (name.as_str(), port).to_socket_addrs() {
            Ok(found) => Some(found.map(canonical).collect::<Vec<_>>())
                .filter(|f| !f.is_empty())
                .ok_or_else(|| cannot("no address")),
            Err(e) => {
                let why = e.to_string();
                Err(cannot(
                    why.strip_prefix("failed to lookup address information: ")
                        .unwrap_or(&why),
                ))
            }
        }
    }
}

/// What happens to lost partitions: `wait`, `reset` or `reset:10m`.
///
/// ```
/// use doyen::OnLoss;
/// use doyen::config::value::LossPolicy;
///
/// let policy: LossPolicy = "reset:10m".parse()?;
/// assert_eq!(policy.0, OnLoss::Reset { after_ms: 600_000 });
/// assert_eq!("wait".parse(), Ok(LossPolicy(OnLoss::Wait)));
/// # Ok::<_, String>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossPolicy(pub OnLoss);

/// The default delay of `reset`. It is longer than most cuts and reboots: a silent holder that
/// comes back still has its data.
pub const RESET_AFTER_MS: u64 = 600_000;

impl FromStr for LossPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let after = match text {
            "wait" => return Ok(Self(OnLoss::Wait)),
            "reset" => {
                return Ok(Self(OnLoss::Reset {
                    after_ms: RESET_AFTER_MS,
                }));
            }
            _ => text
                .strip_prefix("reset:")
                .or_else(|| text.strip_prefix("reset after ")),
        };
        let DurationOption(after) = after
            .ok_or_else(|| format!("`{text}` is not a policy: write wait, reset or reset:10m"))?
            .trim()
            .parse()?;
        // The delay was parsed from u64 milliseconds.
        Ok(Self(OnLoss::Reset {
            after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
        }))
    }
}

impl fmt::Display for LossPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            OnLoss::Wait => f.write_str("wait"),
            OnLoss::Reset { after_ms } => {
                write!(
                    f,
                    "reset:{}",
                    DurationOption(Duration::from_millis(after_ms))
                )
            }
        }
    }
}

/// Which keys are evicted when memory is full: `none`, `lru`, `random` or `ttl`.
///
/// ```
/// use doyen::Eviction;
/// use doyen::config::value::EvictionPolicy;
///
/// assert_eq!("lru".parse(), Ok(EvictionPolicy(Eviction::Lru)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvictionPolicy(pub Eviction);

impl FromStr for EvictionPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [
            Eviction::None,
            Eviction::Lru,
            Eviction::Random,
            Eviction::Ttl,
        ];
        let found = all.into_iter().find(|policy| policy.name() == text);
        found.map(Self).ok_or_else(|| {
            format!("`{text}` is not a policy of eviction: write none, lru, random or ttl")
        })
    }
}

impl fmt::Display for EvictionPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// The most entries or bytes of a map: a number, a size as in `200mb`, or `none` for any number.
///
/// ```
/// use doyen::config::value::Most;
///
/// assert_eq!("200mb".parse(), Ok(Most(Some(200 << 20))));
/// assert_eq!("none".parse(), Ok(Most(None)));
/// assert!("0".parse::<Most>().is_err(), "it would keep nothing");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most(pub Option<u64>);

impl FromStr for Most {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        match text.parse() {
            Ok(Size(0)) => Err("a map with a limit of 0 would keep nothing: give more".into()),
            Ok(Size(most)) => Ok(Self(Some(most))),
            Err(why) => Err(format!("{why}, or none")),
        }
    }
}

impl fmt::Display for Most {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("none"),
            Some(most) => write!(f, "{most}"),
        }
    }
}

/// Which entries of a map go beyond its limits: `lfu`, `lru`, `random`, `ttl` or `none`.
///
/// ```
/// use doyen::Eviction;
/// use doyen::config::value::MapEviction;
///
/// assert_eq!("lfu".parse(), Ok(MapEviction(Eviction::Lfu)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapEviction(pub Eviction);

impl FromStr for MapEviction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == Eviction::Lfu.name() {
            return Ok(Self(Eviction::Lfu));
        }
        let policy = text.parse::<EvictionPolicy>();
        policy.map(|policy| Self(policy.0)).map_err(|_| {
            format!("`{text}` is not a policy of eviction: write lfu, lru, random, ttl or none")
        })
    }
}

impl fmt::Display for MapEviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// How partitions are first assigned: `round-robin` or `rendezvous`.
///
/// ```
/// use doyen::Assignment;
/// use doyen::config::value::AssignmentName;
///
/// assert_eq!("rendezvous".parse(), Ok(AssignmentName(Assignment::Rendezvous)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssignmentName(pub Assignment);

impl FromStr for AssignmentName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "round-robin" => Ok(Self(Assignment::RoundRobin)),
            "rendezvous" => Ok(Self(Assignment::Rendezvous)),
            _ => Err(format!(
                "`{text}` is not an assignment: write round-robin or rendezvous"
            )),
        }
    }
}

/// Several options by one name, for those that are not given.
///
/// ```
/// use doyen::config::value::Preset;
/// use doyen::config::{Defaults, Options};
///
/// let options = Options { preset: Some("one-server".parse()?), ..Options::default() };
/// let config = options.resolve(Defaults::Binary)?;
/// assert_eq!(config.first.keyspace.backups, 2);
/// assert_eq!(Preset::OneServer.to_string(), "one-server");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// All keys in one partition, and a copy of it at each of three nodes: they are one Redis
    /// server that goes on when one of them dies.
    OneServer,
}

impl Preset {
    /// The options that it stands for.
    pub(super) fn options(self) -> Options {
        match self {
            Self::OneServer => Options {
                partitions: Some(1),
                backups: Some(2),
                ..Options::default()
            },
        }
    }
}

impl FromStr for Preset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "one-server" => Ok(Self::OneServer),
            _ => Err(format!("`{text}` is no preset: write one-server")),
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneServer => "one-server",
        })
    }
}

/// A rule of placement as text: `primary in zone=a`.
///
/// ```
/// use doyen::config::value::RuleText;
///
/// let rule: RuleText = "copies 1 per zone".parse()?;
/// assert_eq!(rule.to_string(), "copies 1 per zone");
/// # Ok::<_, String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleText(pub Rule);

impl FromStr for RuleText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse()
            .map(Self)
            .map_err(|why: doyen_placement::RuleError| why.to_string())
    }
}

impl fmt::Display for RuleText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number, and the text after it.
fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit.trim()))
}

/// A TOML value that may be a string or an integer.
struct ValueText<T>(std::marker::PhantomData<T>);

impl<T: FromStr<Err = String>> Visitor<'_> for ValueText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a number")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_bool<E: serde::de::Error>(self, on: bool) -> Result<T, E> {
        if on {
            Err(E::custom("write an address, or false"))
        } else {
            self.visit_str("off")
        }
    }
}

/// How the binary writes its log: `text`, `json`, an object a line, or `journald`.
///
/// ```
/// use doyen::config::value::LogFormat;
///
/// assert_eq!("json".parse(), Ok(LogFormat::Json));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// An object a line: `timestamp`, `level`, `target` and `message`.
    Json,
    /// Lines that begin with their priority, as `<4>`, and have no times: journald has both.
    Journald,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            "journald" => Ok(Self::Journald),
            _ => Err(format!(
                "`{text}` is not a format of logs: give text, json or journald"
            )),
        }
    }
}

macro_rules! from_text {
    ($($name:ty),*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                d.deserialize_any(ValueText(std::marker::PhantomData)).map_err(D::Error::custom)
            }
        }
    )*};
}

macro_rules! to_text {
    ($($name:ty),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
    )*};
}

from_text!(
    LogFormat,
    MapEviction,
    Most,
    Size,
    DurationOption,
    Lifetime,
    Toggle,
    LossPolicy,
    EvictionPolicy,
    AssignmentName,
    Preset,
    KeyEvents,
    RuleText,
    TlsMin
);
to_text!(
    Lifetime,
    LossPolicy,
    EvictionPolicy,
    MapEviction,
    Most,
    RuleText
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_as_people_write_them() {
        assert_eq!("16mb".parse(), Ok(Size(16 << 20)));
        assert_eq!("2 GiB".parse(), Ok(Size(2 << 30)));
        assert_eq!("4096".parse(), Ok(Size(4096)));
        for wrong in ["", "mb", "-1", "1.5gb", "3 apples", "99999999999tb"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_parse_as_people_write_them() {
        assert_eq!("30s".parse(), Ok(DurationOption(Duration::from_secs(30))));
        assert_eq!(
            "250ms".parse(),
            Ok(DurationOption(Duration::from_millis(250)))
        );
        assert_eq!("0".parse(), Ok(DurationOption(Duration::ZERO)));
        assert!(
            "5".parse::<DurationOption>()
                .is_err_and(|why| why.contains("5s"))
        );
        assert!("soon".parse::<DurationOption>().is_err());
        assert!("18446744073709551615h".parse::<DurationOption>().is_err());
    }

    #[test]
    fn addresses_parse_as_people_write_them() {
        let default = SocketAddr::from(([127, 0, 0, 1], 7400));
        let read = |text: &str| {
            text.parse::<Address>()
                .and_then(|a| a.resolve(default))
                .map(|found| found[0].to_string())
        };
        for (text, means) in [
            ("127.0.0.2", "127.0.0.2:7400"),
            ("127.0.0.2:1", "127.0.0.2:1"),
            (":0", "127.0.0.1:0"),
            ("::1", "[::1]:7400"),
            ("[::1]", "[::1]:7400"),
            ("[::1]:9", "[::1]:9"),
            ("[fe80::1%3]:9", "[fe80::1%3]:9"),
            ("::ffff:10.0.0.1", "10.0.0.1:7400"),
            ("[::ffff:10.0.0.1]:9", "10.0.0.1:9"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(means), "{text}");
        }
        for (text, says) in [
            ("7440", "write :7440"),
            ("", "is not an address"),
            ("no such name at all:1", "is not an address"),
            ("http://a:1", "is not an address"),
            ("a:b:c", "is not an address"),
            ("127.0.0.1:99999", "a port from 0 to 65535"),
            ("fe80::1%3", "is not an address"),
            (
                "no-such-host.invalid:1",
                "cannot resolve `no-such-host.invalid`",
            ),
        ] {
            assert!(
                read(text).is_err_and(|why| why.contains(says)),
                "{text}: {:?}",
                read(text)
            );
        }
    }

    #[test]
    fn names_stay_names_and_get_the_default_port() {
        let with_port = |text: &str| text.parse::<Address>().and_then(|a| a.with_port(7400));
        assert_eq!(with_port("db.internal").as_deref(), Ok("db.internal:7400"));
        assert_eq!(with_port("db_1:9").as_deref(), Ok("db_1:9"));
        assert_eq!(with_port("::ffff:10.0.0.1").as_deref(), Ok("10.0.0.1:7400"));
        assert!(with_port(":9").is_err_and(|why| why.contains("has no host")));
    }

    #[test]
    fn loss_policies_parse_as_people_write_them() {
        assert_eq!("wait".parse(), Ok(LossPolicy(OnLoss::Wait)));
        assert_eq!(
            "reset".parse(),
            Ok(LossPolicy(OnLoss::Reset { after_ms: 600_000 }))
        );
        assert_eq!(
            "reset:5s".parse(),
            Ok(LossPolicy(OnLoss::Reset { after_ms: 5_000 }))
        );
        assert!("forget".parse::<LossPolicy>().is_err());
    }

    #[test]
    fn printed_values_parse_again() {
        for text in [
            "wait",
            "reset:60ms",
            "reset:1m",
            "reset:90s",
            "reset:2h",
            "reset:0ms",
        ] {
            assert_eq!(
                text.parse::<LossPolicy>().expect("a policy").to_string(),
                text
            );
        }
        for text in ["none", "1500ms", "3h"] {
            assert_eq!(
                text.parse::<Lifetime>().expect("a lifetime").to_string(),
                text
            );
        }
        for text in ["none", "lru", "random", "ttl"] {
            assert_eq!(
                text.parse::<EvictionPolicy>()
                    .expect("a policy")
                    .to_string(),
                text
            );
        }
        assert!(
            "lfu"
                .parse::<EvictionPolicy>()
                .is_err_and(|why| why.contains("none, lru, random or ttl"))
        );
        assert!("0s".parse::<Lifetime>().is_err() && "soon".parse::<Lifetime>().is_err());
    }
}
