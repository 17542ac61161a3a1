//! Connections to servers that speak Redis, which block.

use crate::{CommandFailed, runtime};
use doyen::resp::client::{Reply, RespClient};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;
use tokio::runtime::Runtime;

/// How long a server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
const PORT: u16 = 6379;

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
    /// Its only database that counts. `None`: all of them.
    pub(super) database: Option<u64>,
}

impl Server {
    /// A server by its host and port.
    pub(super) fn of(name: &str) -> Result<Self, CommandFailed> {
        let has_port = name
            .rsplit_once(':')
            .is_some_and(|(host, _)| !host.ends_with(':'));
        let name = if has_port && !name.ends_with(']') {
            name.to_owned()
        } else {
            format!("{name}:{PORT}")
        };
        let server = Self {
            name,
            user: None,
            password: None,
            database: None,
        };
        server.addresses()?;
        Ok(server)
    }

    /// A server by `redis://[user:password@]host[:port][/database]`.
    pub(super) fn of_url(url: &str) -> Result<Self, CommandFailed> {
        let wrong = |what: &str| {
            CommandFailed::usage(format!(
                "{what}: a source is redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]"
            ))
        };
        let rest = url.strip_prefix("redis://").unwrap_or(url);
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
        let mut server = Self::of(host)?;
        if let Some(login) = login {
            let (user, password) = login.split_once(':').unwrap_or(("", login));
            let decoded = |text| decoded(text).ok_or_else(|| wrong("there is a wrong % in it"));
            let user = Some(decoded(user)?).filter(|user| !user.is_empty());
            server = server.with_login(user, Some(decoded(password)?));
        }
        server.database = database;
        Ok(server)
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

    /// A connection of the system, before any command.
    pub(super) fn dial(&self) -> Result<std::net::TcpStream, CommandFailed> {
        let mut failed = None;
        for address in self.addresses()? {
            match std::net::TcpStream::connect_timeout(&address, ANSWER_MAX) {
                Ok(stream) => return Ok(stream),
                Err(e) => failed = Some(e),
            }
        }
        let failed = failed.map_or_else(|| "it has no address".to_owned(), |e| e.to_string());
        Err(self.failed(format!("{failed}; is the server running?")))
    }
}

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
    client: RespClient,
    database: u64,
    /// It is a node of a Redis Cluster, which has one database.
    clustered: bool,
}

impl SourceLink {
    pub(super) fn connect(server: &Server) -> Result<Self, CommandFailed> {
        let runtime = runtime()?;
        let mut failed = server.failed("it has no address");
        for address in server.addresses()? {
            match runtime.block_on(async {
                tokio::time::timeout(ANSWER_MAX, RespClient::connect(address)).await
            }) {
                Ok(Ok(client)) => {
                    let mut link = Self {
                        server: server.clone(),
                        runtime,
                        client,
                        database: 0,
                        clustered: false,
                    };
                    link.log_in()?;
                    link.look_at_server()?;
                    return Ok(link);
                }
                Ok(Err(e)) => failed = server.failed(format!("{e}; is the server running?")),
                Err(_) => failed = server.failed("it does not answer"),
            }
        }
        Err(failed)
    }

    fn log_in(&mut self) -> Result<(), CommandFailed> {
        let login = self.server.login().map(|login| {
            let words = login.into_iter().map(|word| word.as_bytes().to_vec());
            words.collect::<Words>()
        });
        for command in login.into_iter().chain([words([b"PING"])]) {
            if let Reply::Error(why) = self.ask(command)? {
                return Err(self.server.failed(why));
            }
        }
        Ok(())
    }

    /// Notes whether it is clustered. The cluster-aware port of a node of Doyen is refused: it has
    /// the keys of that node alone.
    fn look_at_server(&mut self) -> Result<(), CommandFailed> {
        let Reply::Bulk(text) = self.ask(words([b"INFO", b"server"]))? else {
            return Ok(());
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let says = |what: &str| text.lines().any(|line| line.starts_with(what));
        self.clustered = says("redis_mode:cluster");
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
        let client = &mut self.client;
        let replies = self
            .runtime
            .block_on(async { tokio::time::timeout(ANSWER_MAX, client.pipeline(commands)).await });
        match replies {
            Ok(Ok(replies)) => Ok(replies),
            Ok(Err(e)) => Err(self.server.failed(e)),
            Err(_) => Err(self.server.failed("it does not answer any more")),
        }
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
            Reply::Error(why) => return Err(self.server.failed(format!("INFO: {why}"))),
            _ => return Err(self.server.failed("INFO keyspace has no text")),
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let number = |line: &str| line.strip_prefix("db")?.split_once(':')?.0.parse().ok();
        Ok(text.lines().filter_map(number).collect())
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
