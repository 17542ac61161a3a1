//! Connecting: with a password where there is one, and finding the masters of a cluster. All of it
//! waits; none of it is measured.

use super::super::Failed;
use super::connection::foreign;
use super::route::Router;
use crate::runtime;
use doyen::resp::client::{Client, ClientError, Reply};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long a server may take to answer before any load is on it.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// How servers are connected to.
#[derive(Debug, Clone)]
pub(super) struct Dial {
    pub(super) password: Option<String>,
}

impl Dial {
    /// A connection that is ready for commands, and does not block.
    pub(super) fn connect(&self, address: SocketAddr) -> Result<TcpStream, Failed> {
        let stream = match self.password {
            None => TcpStream::connect_timeout(&address, ANSWER_MAX)
                .map_err(|e| nobody(address, &e.to_string()))?,
            Some(_) => block_on(address, async {
                self.client(address)
                    .await?
                    .into_std()
                    .map_err(|e| nobody(address, &e.to_string()))
            })?,
        };
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_nonblocking(true))
            .map_err(|e| nobody(address, &e.to_string()))?;
        Ok(stream)
    }

    /// Asks the first server that answers which slots are whose.
    pub(super) fn router(&self, addresses: &[SocketAddr], keys: u64) -> Result<Router, Failed> {
        let mut failed = None;
        for address in addresses {
            let asked = block_on(*address, async {
                let reply = self
                    .client(*address)
                    .await?
                    .command(&["CLUSTER", "SLOTS"])
                    .await
                    .map_err(|e| unanswered(*address, &e))?;
                match reply {
                    Reply::Error(why) => Err(Failed::new(format!(
                        "{address} is no member of a Redis Cluster: {why}"
                    ))),
                    reply => runs(*address, reply).ok_or_else(|| foreign(*address)),
                }
            });
            match asked {
                Ok(runs) => return Router::new(keys, &runs).map_err(Failed::new),
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        Err(failed.unwrap_or_else(|| Failed::usage("--resp names no server")))
    }

    async fn client(&self, address: SocketAddr) -> Result<Client, Failed> {
        let mut client = Client::connect(address)
            .await
            .map_err(|e| nobody(address, &e.to_string()))?;
        if let Some(password) = &self.password {
            match client
                .command(&["AUTH", password])
                .await
                .map_err(|e| unanswered(address, &e))?
            {
                Reply::Error(why) => {
                    return Err(Failed::new(format!(
                        "{address} refuses the password (--password-file): {why}"
                    )));
                }
                _ => return Ok(client),
            }
        }
        Ok(client)
    }
}

fn block_on<T>(
    address: SocketAddr,
    work: impl Future<Output = Result<T, Failed>>,
) -> Result<T, Failed> {
    // The timer, too, belongs to the runtime.
    let within = async { tokio::time::timeout(ANSWER_MAX, work).await };
    runtime()?
        .block_on(within)
        .unwrap_or_else(|_| Err(nobody(address, &format!("nothing within {ANSWER_MAX:?}"))))
}

fn nobody(address: SocketAddr, why: &str) -> Failed {
    Failed::new(format!(
        "no answer from {address} ({why}): give the addresses of running servers with --resp"
    ))
}

fn unanswered(address: SocketAddr, e: &ClientError) -> Failed {
    match e {
        ClientError::Protocol(_) => foreign(address),
        ClientError::Io(e) => nobody(address, &e.to_string()),
    }
}

/// `[[from, to, [host, port, ..], ..], ..]`; a host is an IP address or a name, and an empty one is
/// the one that was asked.
fn runs(asked: SocketAddr, reply: Reply) -> Option<Vec<(u16, u16, SocketAddr)>> {
    let Reply::Array(runs) = reply else {
        return None;
    };
    runs.into_iter()
        .map(|run| {
            let Reply::Array(run) = run else { return None };
            let [Reply::Int(from), Reply::Int(to), Reply::Array(master), ..] = &run[..] else {
                return None;
            };
            let [host, Reply::Int(port), ..] = &master[..] else {
                return None;
            };
            let port: u16 = (*port).try_into().ok()?;
            let master = match host {
                Reply::Bulk(host) if !host.is_empty() => {
                    let host = std::str::from_utf8(host).ok()?;
                    let mut found = (host, port).to_socket_addrs().ok()?;
                    found.next()?
                }
                _ => SocketAddr::new(asked.ip(), port),
            };
            Some(((*from).try_into().ok()?, (*to).try_into().ok()?, master))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(from: i64, to: i64, host: Reply, port: i64) -> Reply {
        Reply::Array(vec![
            Reply::Int(from),
            Reply::Int(to),
            Reply::Array(vec![host, Reply::Int(port), Reply::Bulk(b"id".to_vec())]),
        ])
    }

    #[test]
    fn masters_are_read_from_what_a_cluster_says() {
        let asked = SocketAddr::from(([10, 0, 0, 9], 1));
        let reply = Reply::Array(vec![
            run(0, 5, Reply::Bulk(b"10.0.0.1".to_vec()), 7),
            run(6, 9, Reply::Bulk(Vec::new()), 8),
            run(10, 11, Reply::Nil, 9),
            run(12, 13, Reply::Bulk(b"::1".to_vec()), 10),
        ]);
        let expected = [
            ("10.0.0.1:7", 0, 5),
            ("10.0.0.9:8", 6, 9),
            ("10.0.0.9:9", 10, 11),
            ("[::1]:10", 12, 13),
        ]
        .map(|(at, from, to)| (from, to, at.parse().expect("an address")));
        assert_eq!(runs(asked, reply), Some(expected.to_vec()));
        let named = runs(
            asked,
            Reply::Array(vec![run(0, 1, Reply::Bulk(b"localhost".to_vec()), 7)]),
        )
        .expect("it resolves");
        assert!(
            matches!(named[..], [(0, 1, at)] if at.ip().is_loopback() && at.port() == 7),
            "{named:?}"
        );
    }

    #[test]
    fn what_no_cluster_says_is_none() {
        let asked = SocketAddr::from(([10, 0, 0, 9], 1));
        let host = || Reply::Bulk(b"10.0.0.1".to_vec());
        for wrong in [
            Reply::Nil,
            run(0, 1, host(), 1),
            Reply::Array(vec![run(-1, 1, host(), 1)]),
            Reply::Array(vec![run(0, 1, host(), 70_000)]),
        ] {
            assert_eq!(runs(asked, wrong), None);
        }
    }
}
