//! Connections to servers that speak Redis, which block.

use super::tls::ServerTrust;
use crate::{CommandFailed, complain, runtime};
use doyen::config::RESP_PORT;
use doyen::resp::client::{Reply, RespClient};
use socket2::Socket;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::client::TlsStream;

/// How long a server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How long a connection may take to begin.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The port of Redis.
const REDIS_PORT: u16 = 6379;
/// The databases of a server that says nothing of them.
const DATABASES_MAX: u64 = 1_024;

/// A command: its words.
pub(super) type Words = Vec<Vec<u8>>;

/// The words of a command.
pub(super) fn words<const N: usize>(words: [&[u8]; N]) -> Words {
    words.into_iter().map(<[u8]>::to_vec).collect()
}

/// What is said of what is not written, because the nodes refuse its database.
pub(super) fn no_database(database: u64, why: &str) -> String {
    format!(
        "nodes refuse its database {database} ({why}): give it another one, with MOVE at the \
         source or as `database` in lines of JSON, and import it again"
    )
}

/// How to connect to a server.
#[derive(Debug, Clone)]
pub(super) struct Server {
    /// As it was given.
    name: String,
    user: Option<String>,
    password: Option<String>,
    tls: Option<ServerTrust>,
    /// Its only database that counts. `None`: all of them.
    pub(super) database: Option<u64>,
}

impl Server {
    /// A node by its host and port.
    pub(super) fn of(name: &str) -> Result<Self, CommandFailed> {
        let refused = |why: &str| Err(CommandFailed::usage(format!("{name}: {why}")));
        if name.contains("://") {
            return refused("HOST:PORT of a node is expected; for TLS, give --tls-ca FILE");
        }
        let port = name.strip_prefix(':').unwrap_or(name);
        if port.parse::<u16>().is_ok() {
            return refused(&format!("a host is missing: write 127.0.0.1:{port}"));
        }
        Self::at(name, RESP_PORT)
    }

    /// A server by its host and port, which may be left out.
    fn at(name: &str, port: u16) -> Result<Self, CommandFailed> {
        let has_port = name
            .rsplit_once(':')
            .is_some_and(|(host, _)| !host.ends_with(':'));
        let name = if has_port && !name.ends_with(']') {
            name.to_owned()
        } else {
            format!("{name}:{port}")
        };
        let server = Self {
            name,
            user: None,
            password: None,
            tls: None,
            database: None,
        };
        server.addresses()?;
        Ok(server)
    }

    /// A server by `redis://[user:password@]host[:port][/database]`, or `rediss://`.
    pub(super) fn of_url(url: &str) -> Result<Self, CommandFailed> {
        let wrong = |what: &str| {
            CommandFailed::usage(format!(
                "{what}: a source is redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], or rediss://"
            ))
        };
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (Some(login), rest),
            None => (None, rest),
        };
        let (host, database) = match rest.split_once('/') {
            Some((host, "")) => (host, None),
            Some((host, number)) => {
                let number = number
                    .parse()
                    .map_err(|_| wrong("the database is no number"))?;
                (host, Some(number))
            }
            None => (rest, None),
        };
        if host.is_empty() {
            return Err(wrong("there is no host"));
        }
        let mut server = Self::at(host, REDIS_PORT)?;
        if let Some(login) = login {
            let (user, password) = login.split_once(':').unwrap_or(("", login));
            let decoded = |text| decoded(text).ok_or_else(|| wrong("there is a wrong % in it"));
            let user = Some(decoded(user)?).filter(|user| !user.is_empty());
            server = server.with_login(user, Some(decoded(password)?));
        }
        server.database = database;
        Ok(server)
    }

    /// The server is asked in TLS, and must be one of those trusted.
    pub(super) fn with_tls(mut self, tls: Option<ServerTrust>) -> Self {
        self.tls = tls;
        self
    }

    pub(super) fn with_login(mut self, user: Option<String>, password: Option<String>) -> Self {
        (self.user, self.password) = (user, password);
        self
    }

    pub(super) fn with_password(mut self, password: String) -> Self {
        self.password = Some(password);
        self
    }

    fn addresses(&self) -> Result<Vec<SocketAddr>, CommandFailed> {
        let found = self.name.to_socket_addrs();
        let found = found.map_err(|e| CommandFailed::usage(format!("{}: {e}", self.name)))?;
        Ok(found.collect())
    }

    /// An error about it.
    pub(super) fn failed(&self, why: impl std::fmt::Display) -> CommandFailed {
        CommandFailed::new(format!("{}: {why}", self.name))
    }

    /// The command that shows the password, if there is one.
    pub(super) fn login(&self) -> Option<Vec<&str>> {
        let password = self.password.as_deref()?;
        Some(match &self.user {
            Some(user) => vec!["AUTH", user, password],
            None => vec!["AUTH", password],
        })
    }

    /// A connection of the system, before any command. What blocks knows no TLS, so that is
    /// spoken by a thread which ends with the connection.
    pub(super) fn dial(&self) -> Result<Socket, CommandFailed> {
        let failed = |e: std::io::Error| self.failed(e);
        let runtime = runtime()?;
        let stream = runtime.block_on(self.tcp())?;
        let Some(tls) = &self.tls else {
            let stream = stream.into_std().map_err(failed)?;
            stream.set_nonblocking(false).map_err(failed)?;
            return Ok(stream.into());
        };
        let mut stream = runtime.block_on(self.encrypt(tls, stream))?;
        let (near, far) = UnixStream::pair().map_err(failed)?;
        far.set_nonblocking(true).map_err(failed)?;
        let mut far = runtime
            .block_on(async { tokio::net::UnixStream::from_std(far) })
            .map_err(failed)?;
        std::thread::spawn(move || {
            // If one side fails, both are closed, and the near one is at its end.
            let _ = runtime.block_on(copy_bidirectional(&mut stream, &mut far));
        });
        Ok(near.into())
    }

    async fn tcp(&self) -> Result<TcpStream, CommandFailed> {
        let mut failed = self.failed("it has no address");
        for address in self.addresses()? {
            match tokio::time::timeout(CONNECT_MAX, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    stream.set_nodelay(true).map_err(|e| self.failed(e))?;
                    return Ok(stream);
                }
                Ok(Err(e)) => failed = self.failed(format!("{e}; is the server running?")),
                Err(_) => failed = self.failed("it does not answer"),
            }
        }
        Err(failed)
    }

    async fn encrypt(
        &self,
        tls: &ServerTrust,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, CommandFailed> {
        let begun = tokio::time::timeout(CONNECT_MAX, tls.begin(&self.name, stream)).await;
        let begun = begun.unwrap_or_else(|_| {
            Err("it does not answer in TLS: does this port speak it?".to_owned())
        });
        begun.map_err(|why| self.failed(why))
    }

    /// A connection before any command, in TLS or without.
    async fn wire(&self) -> Result<Box<dyn Wire>, CommandFailed> {
        let stream = self.tcp().await?;
        Ok(match &self.tls {
            None => Box::new(stream),
            Some(tls) => Box::new(self.encrypt(tls, stream).await?),
        })
    }
}

/// What a connection goes over.
trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Wire for S {}

/// A text with `%` and two hexadecimal digits for some bytes.
fn decoded(text: &str) -> Option<String> {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let (digits, after) = rest.split_first_chunk::<2>()?;
            let digits = str::from_utf8(digits).ok()?;
            out.push(u8::from_str_radix(digits, 16).ok()?);
            rest = after;
        } else {
            out.push(*first);
        }
    }
    String::from_utf8(out).ok()
}

/// A connection that is logged in.
pub(super) struct SourceLink {
    server: Server,
    runtime: Runtime,
    client: RespClient<Box<dyn Wire>>,
    database: u64,
    /// It is a node of a Redis Cluster, which has one database.
    clustered: bool,
    /// The server, or the cluster of the node. `None`: the user may not ask.
    run: Option<String>,
}

/// Why not all replies came.
pub(super) struct LinkBroken {
    pub(super) why: CommandFailed,
    /// The connection stands, so the server may still execute what it was sent, at any time.
    pub(super) is_silent: bool,
}

impl SourceLink {
    pub(super) fn connect(server: &Server) -> Result<Self, CommandFailed> {
        let runtime = runtime()?;
        let wire = runtime.block_on(server.wire())?;
        let mut link = Self {
            server: server.clone(),
            runtime,
            client: RespClient::over(wire),
            database: 0,
            clustered: false,
            run: None,
        };
        link.log_in()?;
        link.look_at_server()?;
        Ok(link)
    }

    fn log_in(&mut self) -> Result<(), CommandFailed> {
        let login = self.server.login().map(|login| {
            let words = login.into_iter().map(|word| word.as_bytes().to_vec());
            words.collect::<Words>()
        });
        for command in login.into_iter().chain([words([b"PING"])]) {
            if let Reply::Error(why) = self.ask(command)? {
                return Err(self.server.failed(if why.contains("speaks TLS") {
                    "it speaks TLS: give --tls-ca FILE with the cluster's ca.pem; for a source, \
                     write rediss:// and give --source-tls-ca FILE"
                } else {
                    &why
                }));
            }
        }
        Ok(())
    }

    /// Notes which server it is, and whether it is clustered. The cluster-aware port of a node of
    /// Doyen is refused: it has the keys of that node alone.
    fn look_at_server(&mut self) -> Result<(), CommandFailed> {
        let Reply::Bulk(text) = self.ask(words([b"INFO", b"server"]))? else {
            return Ok(());
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let says = |what: &str| text.lines().any(|line| line.starts_with(what));
        self.clustered = says("redis_mode:cluster");
        // Nodes of a cluster have the same keys.
        let said = |what: &str| text.lines().find_map(|line| line.strip_prefix(what));
        let run = said("doyen_cluster_id:").or_else(|| said("run_id:"));
        self.run = run.map(str::to_owned);
        if self.clustered && says("doyen_version") {
            let why = "this is the port for cluster-aware clients (--resp-cluster), which has the \
                       keys of one node alone: give the port that answers for all keys (--resp)";
            return Err(self.server.failed(why));
        }
        Ok(())
    }

    /// The reply of one command.
    pub(super) fn ask(&mut self, command: Words) -> Result<Reply, CommandFailed> {
        let mut replies = self.pipeline(&[command])?;
        replies
            .pop()
            .ok_or_else(|| self.server.failed("there is no reply"))
    }

    /// The replies of commands, in their order.
    pub(super) fn pipeline(&mut self, commands: &[Words]) -> Result<Vec<Reply>, CommandFailed> {
        let mut replies = Vec::with_capacity(commands.len());
        match self.pipeline_into(commands, &mut replies) {
            Ok(()) => Ok(replies),
            Err(broken) => Err(broken.why),
        }
    }

    /// The same. If it fails, `replies` has those of the first commands.
    pub(super) fn pipeline_into(
        &mut self,
        commands: &[Words],
        replies: &mut Vec<Reply>,
    ) -> Result<(), LinkBroken> {
        let answered = self.client.pipeline_into(commands, replies);
        let answered = self
            .runtime
            .block_on(async { tokio::time::timeout(ANSWER_MAX, answered).await });
        match answered {
            Ok(Ok(())) => Ok(()),
            Ok(Err(e)) => Err(LinkBroken {
                why: self.server.failed(e),
                is_silent: false,
            }),
            Err(_) => Err(LinkBroken {
                why: self.server.failed("it does not answer any more"),
                is_silent: true,
            }),
        }
    }

    /// An error about the server.
    pub(super) fn failed(&self, why: impl std::fmt::Display) -> CommandFailed {
        self.server.failed(why)
    }

    /// Whether both are connected with the same server, or with the same cluster of nodes.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.run.is_some() && self.run == other.run
    }

    /// Further commands are about this database.
    ///
    /// # Errors
    /// The server refuses it, or the connection failed.
    pub(super) fn select(&mut self, database: u64) -> Result<(), CommandFailed> {
        match self.try_select(database)? {
            None => Ok(()),
            Some(why) => Err(self.server.failed(format!("database {database}: {why}"))),
        }
    }

    /// The same. `Some`: why the server refuses it.
    pub(super) fn try_select(&mut self, database: u64) -> Result<Option<String>, CommandFailed> {
        if self.database != database {
            let number = database.to_string();
            if let Reply::Error(why) = self.ask(words([b"SELECT", number.as_bytes()]))? {
                return Ok(Some(why));
            }
            self.database = database;
        }
        Ok(None)
    }

    /// The largest value that the server takes. `usize::MAX`: the user may not ask.
    pub(super) fn value_max(&mut self) -> Result<usize, CommandFailed> {
        let number = self.setting(b"proto-max-bulk-len")?;
        Ok(number
            .and_then(|number| number.try_into().ok())
            .unwrap_or(usize::MAX))
    }

    /// A setting that is a number. `None`: the user may not ask.
    fn setting(&mut self, name: &[u8]) -> Result<Option<u64>, CommandFailed> {
        let reply = self.ask(words([b"CONFIG", b"GET", name]))?;
        let number = match &reply {
            Reply::Array(pair) => match &pair[..] {
                [_, Reply::Bulk(number)] => str::from_utf8(number).ok(),
                _ => None,
            },
            _ => None,
        };
        Ok(number.and_then(|number| number.parse().ok()))
    }

    /// The numbers of the databases that may have keys. A node of Doyen answers for all keys, and its
    /// INFO counts those alone that it leads.
    pub(super) fn databases(&mut self) -> Result<Vec<u64>, CommandFailed> {
        if let Some(only) = self.server.database {
            return Ok(vec![only]);
        }
        if self.clustered {
            return Ok(vec![0]);
        }
        if let Some(count) = self.setting(b"databases")? {
            return Ok((0..count).collect());
        }
        let text = match self.ask(words([b"INFO", b"keyspace"]))? {
            Reply::Bulk(text) => text,
            Reply::Error(_) => return self.databases_by_trying(),
            _ => return Err(self.server.failed("INFO keyspace has no text")),
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let number = |line: &str| line.strip_prefix("db")?.split_once(':')?.0.parse().ok();
        Ok(text.lines().filter_map(number).collect())
    }

    /// The databases that the server lets this user select, who has no right to `CONFIG GET` and
    /// to `INFO`.
    fn databases_by_trying(&mut self) -> Result<Vec<u64>, CommandFailed> {
        let mut all = vec![0];
        while let Some(next) = Some(all.len() as u64).filter(|next| *next < DATABASES_MAX) {
            if let Some(why) = self.try_select(next)? {
                if why.starts_with("NOPERM") {
                    complain(format_args!(
                        "keys of database 0 alone are read: the user may ask neither INFO nor \
                         CONFIG GET, and not SELECT another one ({why})"
                    ));
                }
                break;
            }
            all.push(next);
        }
        Ok(all)
    }
}

/// A connection with the first of some nodes that answers, and after an error with another one.
pub(super) struct NodeLink {
    servers: Vec<Server>,
    link: Option<SourceLink>,
}

impl NodeLink {
    pub(super) fn connect(servers: &[Server]) -> Result<Self, CommandFailed> {
        let servers = servers.to_vec();
        let mut node = Self {
            servers,
            link: None,
        };
        node.link()?;
        Ok(node)
    }

    /// The connection. If there is none, each node is tried once.
    pub(super) fn link(&mut self) -> Result<&mut SourceLink, CommandFailed> {
        let mut failed = None;
        for _ in 0..self.servers.len() {
            if self.link.is_some() {
                break;
            }
            match SourceLink::connect(&self.servers[0]) {
                Ok(link) => self.link = Some(link),
                Err(e) => {
                    self.servers.rotate_left(1);
                    failed.get_or_insert(e);
                }
            }
        }
        let failed = || failed.unwrap_or_else(|| CommandFailed::new("there is no node to ask"));
        self.link.as_mut().ok_or_else(failed)
    }

    /// The connection failed: the next node is asked from now on.
    pub(super) fn leave(&mut self) {
        self.link = None;
        self.servers.rotate_left(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_login_a_port_and_a_database() {
        let server = Server::of_url("redis://me:a%40b@127.0.0.1:7000/3").expect("it is one");
        assert_eq!(server.login(), Some(vec!["AUTH", "me", "a@b"]));
        assert_eq!(
            (&*server.name, server.database),
            ("127.0.0.1:7000", Some(3))
        );
        let server = Server::of_url("redis://:secret@127.0.0.1").expect("it is one");
        assert_eq!(server.login(), Some(vec!["AUTH", "secret"]));
        assert_eq!((&*server.name, server.database), ("127.0.0.1:6379", None));
        let server = Server::of_url("redis://[::1]/").expect("it is one");
        assert_eq!(&*server.name, "[::1]:6379");
        // The port of nodes is another one.
        let node = Server::of("127.0.0.1").expect("it is one");
        assert_eq!(&*node.name, "127.0.0.1:7379");
        for (no_node, words) in [
            ("7379", "write 127.0.0.1:7379"),
            (":7379", "write 127.0.0.1:7379"),
            ("rediss://127.0.0.1", "--tls-ca"),
        ] {
            let why = Server::of(no_node).expect_err("it is none").message;
            assert!(why.contains(words), "{why}");
        }
        for wrong in [
            "redis://",
            "redis://127.0.0.1/x",
            "redis://a:%4@127.0.0.1",
            "redis://:1/",
        ] {
            assert!(Server::of_url(wrong).is_err(), "{wrong}");
        }
    }
}
