//! One real process, for tests that block: `doyen::testkit` starts and ends it, and this module
//! waits for it.

use doyen::testkit;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

pub use doyen::testkit::PATIENCE;

/// Where a process listens, as its `ready` line says.
#[derive(Debug, Clone)]
pub struct Ready {
    /// Its name.
    pub name: String,
    /// Control.
    pub listen: SocketAddr,
    /// Data.
    pub data: SocketAddr,
    /// The RESP port for any client.
    pub resp: SocketAddr,
    /// The RESP port for cluster-aware clients.
    pub resp_cluster: SocketAddr,
    /// HTTP.
    pub http: SocketAddr,
}

impl Ready {
    fn of(ready: &testkit::Ready) -> Option<Self> {
        Some(Self {
            name: ready.name().to_owned(),
            listen: ready.address("listen")?,
            data: ready.address("data")?,
            resp: ready.address("resp")?,
            resp_cluster: ready.address("resp-cluster")?,
            http: ready.address("http")?,
        })
    }
}

/// A process. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    process: testkit::Process,
    /// Where it listens.
    pub ready: Ready,
    /// What its HTTP is asked with.
    credential: Credential,
}

/// A file whose content opens HTTP. It is read for each request, because tests replace it.
#[derive(Debug, Clone)]
enum Credential {
    None,
    Secret(PathBuf),
    Token(PathBuf),
}

impl Credential {
    /// The one that these arguments of `doyen run` name.
    fn of(arguments: &[String]) -> Self {
        let after = |flag: &str| {
            let at = arguments.iter().position(|argument| argument == flag)?;
            arguments.get(at + 1).map(PathBuf::from)
        };
        match (after("--http-token-file"), after("--secret-file")) {
            (Some(file), _) => Self::Token(file),
            (None, Some(file)) => Self::Secret(file),
            (None, None) => Self::None,
        }
    }

    fn token(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Secret(file) => operator_token(file),
            Self::Token(file) => {
                let tokens = doyen::config::http_tokens(file, "--http-token-file").ok()?;
                tokens.first().map(|token| token.to_string())
            }
        }
    }
}

/// The token of operators by the secret in a file.
#[must_use]
pub fn operator_token(file: &Path) -> Option<String> {
    let secrets = doyen::config::secrets_of(file, "--secret-file").ok()?;
    secrets
        .first()
        .operator_token()
        .map(|token| token.to_string())
}

/// A process that ended before it was ready.
#[derive(Debug)]
pub struct Refused {
    /// How it ended; `None` if it was killed because it took too long.
    pub status: Option<ExitStatus>,
    /// Its stderr.
    pub stderr: String,
}

impl From<testkit::NotStarted> for Refused {
    fn from(e: testkit::NotStarted) -> Self {
        match e.why {
            testkit::Unready::Ended(status) => Self {
                status: Some(status),
                stderr: e.log,
            },
            testkit::Unready::Silent(_) => Self {
                status: None,
                stderr: e.log,
            },
            testkit::Unready::Unstarted(why) => Self {
                status: None,
                stderr: why,
            },
        }
    }
}

/// Runs a future to its end, since these tests have no runtime of their own.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
        .block_on(work)
}

impl Process {
    /// Starts `binary` with these arguments and waits until it is ready. `dies_at` names a point of
    /// a move at which it ends (see `doyen-under-test`).
    ///
    /// # Errors
    /// It ended, or was not ready in time.
    pub fn start(
        binary: &Path,
        arguments: &[String],
        dies_at: Option<&str>,
        log: PathBuf,
    ) -> Result<Self, Refused> {
        let mut command = Command::new(binary);
        command.args(arguments).env_remove("DOYEN_SECRET");
        if let Some(point) = dies_at {
            command.env("DIES_AT", point);
        }
        let process = block_on(testkit::Process::start(
            "under test",
            command,
            &log,
            PATIENCE,
        ))?;
        match Ready::of(process.ready()) {
            Some(ready) => Ok(Self {
                process,
                ready,
                credential: Credential::of(arguments),
            }),
            None => Err(Refused {
                status: None,
                stderr: format!("{} lacks an address", process.ready()),
            }),
        }
    }

    fn signal(&mut self, signal: Signal) {
        // Only if the process was not waited for: otherwise its id may belong to another one.
        if !self.ended()
            && let Ok(pid) = i32::try_from(self.process.pid())
            && let Some(pid) = Pid::from_raw(pid)
        {
            kill_process(pid, signal).expect("a process that runs takes a signal");
        }
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(mut self) {
        self.process.kill();
    }

    /// SIGSTOP.
    ///
    /// Returns when every thread has stopped: until then the process still answers, and rightly so.
    pub fn stop(&mut self) {
        self.process.pause();
    }

    /// SIGCONT.
    pub fn resume(&mut self) {
        self.process.resume();
    }

    /// Sets its wall clock an hour forward (see `doyen-under-test`), without waiting.
    pub fn set_clock_forward(&mut self) {
        self.signal(Signal::USR1);
    }

    /// Sets its wall clock an hour back, without waiting.
    pub fn set_clock_back(&mut self) {
        self.signal(Signal::USR2);
    }

    /// SIGHUP, without waiting.
    pub fn hang_up(&mut self) {
        self.signal(Signal::HUP);
    }

    /// SIGTERM, without waiting.
    pub fn terminate(&mut self) {
        self.process.terminate();
    }

    /// Waits until it has ended by itself.
    pub fn wait(mut self) -> ExitStatus {
        match block_on(async { tokio::time::timeout(PATIENCE, self.process.ended()).await }) {
            Ok(status) => status.expect("a child of ours can be waited for"),
            Err(_) => panic!("{} did not end; its log:\n{}", self.ready.name, self.log()),
        }
    }

    /// Whether it has ended.
    pub fn ended(&mut self) -> bool {
        self.process.status().is_some()
    }

    /// Its stderr so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Its HTTP is asked with the token of operators by the secret in this file.
    pub fn ask_with_secret(&mut self, file: PathBuf) {
        self.credential = Credential::Secret(file);
    }

    /// The token that its HTTP is asked with.
    #[must_use]
    pub fn token(&self) -> Option<String> {
        self.credential.token()
    }

    /// One request by HTTP; the body of a 200.
    ///
    /// # Errors
    /// No answer, or another status.
    pub fn http(&self, path: &str) -> io::Result<String> {
        http(self.ready.http, path, self.token().as_deref())
    }
}

/// `GET path` with a token; the body of a 200.
///
/// # Errors
/// No answer, or another status.
pub fn http(address: SocketAddr, path: &str, token: Option<&str>) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{}\r\n",
        token.unwrap_or_default()
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text
        .split_once("\r\n\r\n")
        .ok_or(io::ErrorKind::InvalidData)?;
    if !head.starts_with("HTTP/1.1 200") {
        return Err(io::Error::other(format!(
            "{} {body}",
            head.lines().next().unwrap_or_default()
        )));
    }
    Ok(body.to_owned())
}
