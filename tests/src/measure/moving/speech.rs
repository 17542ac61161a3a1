//! The protocols in which readers and writers speak to each system.

use crate::resp::{Client, Reply};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(12);
/// How often a client of Redis Cluster is redirected, or told to try again, before it gives up.
const REDIRECTS_MAX: u32 = 64;
/// The pause before it tries again.
const TRY_AGAIN: Duration = Duration::from_millis(5);
/// Slots of a Redis Cluster.
const SLOTS: u16 = 16_384;

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speech {
    /// Any node takes any command: Doyen.
    Resp,
    /// The client finds the node and follows redirections: Redis Cluster.
    Redirected,
    /// Memcached's text protocol, in which any member takes any key: Hazelcast.
    Memcached,
}

/// A system's answer: an error that it reports is no failure of the connection.
type Said<T> = io::Result<Result<T, String>>;

/// A connection, or all connections that a client has.
pub(super) trait Asker: Send {
    fn set(&mut self, key: &str, value: &[u8]) -> Said<()>;

    fn get(&mut self, key: &str) -> Said<Option<Vec<u8>>>;

    /// Many writes, which are not measured.
    fn set_all(&mut self, pairs: &[(String, Vec<u8>)]) -> Said<()> {
        for (key, value) in pairs {
            if let Err(why) = self.set(key, value)? {
                return Ok(Err(why));
            }
        }
        Ok(Ok(()))
    }
}

impl Speech {
    pub(super) fn connect(self, address: SocketAddr) -> io::Result<Box<dyn Asker>> {
        Ok(match self {
            Self::Resp => Box::new(Client::connect(address, ANSWER_MAX)?),
            Self::Redirected => Box::new(Redirected::connect(address)?),
            Self::Memcached => Box::new(Memcached::connect(address)?),
        })
    }
}

fn done(reply: Reply) -> Result<(), String> {
    match reply {
        Reply::Simple(_) => Ok(()),
        Reply::Error(why) => Err(why),
        other => Err(format!("{other:?}")),
    }
}

fn value(reply: Reply) -> Result<Option<Vec<u8>>, String> {
    match reply {
        Reply::Bulk(value) => Ok(Some(value)),
        Reply::Nil => Ok(None),
        Reply::Error(why) => Err(why),
        other => Err(format!("{other:?}")),
    }
}

impl Asker for Client {
    fn set(&mut self, key: &str, value: &[u8]) -> Said<()> {
        self.command(&[b"SET", key.as_bytes(), value]).map(done)
    }

    fn get(&mut self, key: &str) -> Said<Option<Vec<u8>>> {
        self.command(&[b"GET", key.as_bytes()]).map(value)
    }

    fn set_all(&mut self, pairs: &[(String, Vec<u8>)]) -> Said<()> {
        for (key, value) in pairs {
            self.send(&[b"SET", key.as_bytes(), value])?;
        }
        let mut all = Ok(());
        for _ in pairs {
            all = all.and(done(self.reply()?));
        }
        Ok(all)
    }
}

/// A client that knows where slots are, and learns where they went.
struct Redirected {
    any: SocketAddr,
    slots: BTreeMap<u16, SocketAddr>,
    connections: BTreeMap<SocketAddr, Client>,
}

/// CRC-16 as Redis Cluster computes it (XMODEM): polynomial 0x1021, from 0.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    })
}

/// The slot and the address of `MOVED 866 127.0.0.1:7001`, and of `ASK`.
fn redirected(error: &str) -> Option<(u16, SocketAddr)> {
    let mut words = error.split(' ').skip(1);
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

impl Redirected {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        let mut first = Client::connect(address, ANSWER_MAX)?;
        let Reply::Array(ranges) = first.command(&[b"CLUSTER", b"SLOTS"])? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let mut slots = BTreeMap::new();
        for range in ranges {
            // The range: first slot, last slot, and the primary with its host, port and id.
            let Reply::Array(range) = range else { continue };
            let [Reply::Int(from), Reply::Int(to), Reply::Array(primary), ..] = &range[..] else {
                continue;
            };
            let [Reply::Bulk(host), Reply::Int(port), ..] = &primary[..] else {
                continue;
            };
            let Ok(owner) = format!("{}:{port}", String::from_utf8_lossy(host)).parse() else {
                continue;
            };
            slots.extend((*from..=*to).filter_map(|slot| Some((u16::try_from(slot).ok()?, owner))));
        }
        Ok(Self {
            any: address,
            slots,
            connections: BTreeMap::from([(address, first)]),
        })
    }

    fn at(&mut self, address: SocketAddr) -> io::Result<&mut Client> {
        match self.connections.entry(address) {
            std::collections::btree_map::Entry::Occupied(known) => Ok(known.into_mut()),
            std::collections::btree_map::Entry::Vacant(new) => {
                Ok(new.insert(Client::connect(address, ANSWER_MAX)?))
            }
        }
    }

    fn ask(&mut self, key: &str, words: &[&[u8]]) -> io::Result<Reply> {
        let slot = crc16(key.as_bytes()) % SLOTS;
        let mut once = None;
        for _ in 0..REDIRECTS_MAX {
            let owner = once.unwrap_or_else(|| self.slots.get(&slot).copied().unwrap_or(self.any));
            let client = self.at(owner)?;
            if once.take().is_some() {
                client.command(&[b"ASKING"])?;
            }
            match client.command(words)? {
                Reply::Error(error) if error.starts_with("MOVED ") => {
                    let (slot, owner) = redirected(&error).ok_or(io::ErrorKind::InvalidData)?;
                    self.slots.insert(slot, owner);
                }
                Reply::Error(error) if error.starts_with("ASK ") => {
                    once = redirected(&error).map(|(_, owner)| owner)
                }
                Reply::Error(error) if error.starts_with("TRYAGAIN") => {
                    std::thread::sleep(TRY_AGAIN)
                }
                reply => return Ok(reply),
            }
        }
        Ok(Reply::Error(
            "redirected from node to node without end".into(),
        ))
    }
}

impl Asker for Redirected {
    fn set(&mut self, key: &str, value: &[u8]) -> Said<()> {
        self.ask(key, &[b"SET", key.as_bytes(), value]).map(done)
    }

    fn get(&mut self, key: &str) -> Said<Option<Vec<u8>>> {
        self.ask(key, &[b"GET", key.as_bytes()]).map(value)
    }
}

struct Memcached {
    stream: BufReader<TcpStream>,
}

impl Memcached {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(3))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    fn send(&mut self, head: &str, value: Option<&[u8]>) -> io::Result<()> {
        let mut out = head.as_bytes().to_vec();
        out.extend_from_slice(value.unwrap_or_default());
        out.extend_from_slice(b"\r\n");
        self.stream.get_mut().write_all(&out)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Asker for Memcached {
    fn set(&mut self, key: &str, value: &[u8]) -> Said<()> {
        self.send(&format!("set {key} 0 0 {}\r\n", value.len()), Some(value))?;
        let line = self.line()?;
        Ok(if line == "STORED" { Ok(()) } else { Err(line) })
    }

    fn get(&mut self, key: &str) -> Said<Option<Vec<u8>>> {
        self.send(&format!("get {key}"), None)?;
        let line = self.line()?;
        if line == "END" {
            return Ok(Ok(None));
        }
        // VALUE key flags bytes
        let Some(length) = line
            .strip_prefix("VALUE ")
            .and_then(|rest| rest.split(' ').nth(2)?.parse::<usize>().ok())
        else {
            return Ok(Err(line));
        };
        let mut value = vec![0; length + 2];
        self.stream.read_exact(&mut value)?;
        value.truncate(length);
        let end = self.line()?;
        Ok(if end == "END" {
            Ok(Some(value))
        } else {
            Err(end)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(crc16(b"foo") % SLOTS, 12_182);
    }

    #[test]
    fn redirections_are_parsed() {
        assert_eq!(
            redirected("MOVED 3999 127.0.0.1:6381"),
            Some((3999, "127.0.0.1:6381".parse().expect("an address")))
        );
        assert_eq!(redirected("MOVED"), None);
    }
}
