//! Connects to servers, with a password if there is one, and finds the masters of a cluster. All of
//! it blocks, and none of it is measured.

use super::super::CommandFailed;
use super::connection::foreign;
use super::route::Router;
use crate::runtime;
use doyen::resp::client::{Reply, RespClient, RespError};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long a server may take to answer before there is load.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// How to connect to servers.
#[derive(Debug, Clone)]
pub(super) struct Dial {
    pub(super) password: Option<String>,
}

impl Dial {
    /// A connection that is ready for commands and does not block.
    pub(super) fn connect(&self, address: SocketAddr) -> Result<TcpStream, CommandFailed> {
        let stream = match self.password {
            None => TcpStream::connect_timeout(&address, ANSWER_MAX)
                .map_err(|e| no_answer(address, &e.to_string()))?,
            Some(_) => block_on(address, async {
                self.client(address)
                    .await?
                    .into_std()
                    .map_err(|e| no_answer(address, &e.to_string()))
            })?,
        };
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_nonblocking(true))
            .map_err(|e| no_answer(address, &e.to_string()))?;
        Ok(stream)
    }

    /// Asks the first server that answers which master owns which slots.
    pub(super) fn router(
        &self,
        addresses: &[SocketAddr],
        keys: u64,
    ) -> Result<Router, CommandFailed> {
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
                    Reply::Error(why) => Err(CommandFailed::new(format!(
                        "{address} is not a member of a Redis Cluster: {why}"
                    ))),
                    reply => runs(*address, reply).ok_or_else(|| foreign(*address)),
                }
            });
            match asked {
                Ok(runs) => return Router::new(keys, &runs).map_err(CommandFailed::new),
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        Err(failed.unwrap_or_else(|| CommandFailed::usage("--resp names no server")))
    }

    async fn client(&self, address: SocketAddr) -> Result<RespClient, CommandFailed> {
        let mut client = RespClient::connect(address)
            .await
            .map_err(|e| no_answer(address, &e.to_string()))?;
        if let Some(password) = &self.password {
            match client
                .command(&["AUTH", password])
                .await
                .map_err(|e| unanswered(address, &e))?
            {
                Reply::Error(why) => {
                    return Err(CommandFailed::new(format!(
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
    work: impl Future<Output = Result<T, CommandFailed>>,
) -> Result<T, CommandFailed> {
    // A timer needs the runtime, so it is created within.
    let within = async { tokio::time::timeout(ANSWER_MAX, work).await };
    runtime()?.block_on(within).unwrap_or_else(|_| {
        Err(no_answer(
            address,
            &format!("nothing within {ANSWER_MAX:?}"),
        ))
    })
}

fn no_answer(address: SocketAddr, why: &str) -> CommandFailed {
    CommandFailed::new(format!(
        "no answer from {address} ({why}): give the addresses of running servers with --resp"
    ))
}

fn unanswered(address: SocketAddr, e: &RespError) -> CommandFailed {
    match e {
        RespError::Protocol(_) => foreign(address),
        RespError::Io(e) => no_answer(address, &e.to_string()),
    }
}

/// Reads the reply of `CLUSTER SLOTS`: `[[from, to, [host, port, ..], ..], ..]`. A host is an IP
/// address or a name. An empty host means the server that was asked.
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
    fn masters_are_read_from_the_reply_of_cluster_slots() {
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
    fn malformed_slots_are_refused() {
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
