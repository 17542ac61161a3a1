//! One node as a process: started, asked where it listens, hurt by signals, ended by its id.

use crate::node::Node;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// Where a node listens, as its first line says: `ready name=ada listen=127.0.0.1:7400 ...`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ready {
    /// In the order of the line.
    fields: Vec<(String, String)>,
}

impl Ready {
    /// What a program that embeds this node prints, in a line of its own, for a [`Cluster`](super::Cluster) to find it.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        let addresses = node.addresses();
        let port = |address: Option<SocketAddr>| address.map_or_else(|| "off".to_owned(), |a| a.to_string());
        let fields = vec![
            ("name".to_owned(), node.name().to_owned()),
            ("listen".to_owned(), addresses.control.to_string()),
            ("data".to_owned(), addresses.data.to_string()),
            ("resp".to_owned(), port(addresses.resp)),
            ("resp-cluster".to_owned(), port(addresses.resp_cluster)),
            ("http".to_owned(), port(addresses.http)),
            ("threads".to_owned(), addresses.threads().to_string()),
        ];
        Self { fields }
    }

    /// With another address: where the program itself listens.
    #[must_use]
    pub fn and(mut self, of: &str, address: SocketAddr) -> Self {
        self.fields.push((of.to_owned(), address.to_string()));
        self
    }

    /// `None`: this is another line.
    ///
    /// ```
    /// let ready = doyen::testkit::Ready::parse("ready name=ada listen=127.0.0.1:7400 resp=off").unwrap();
    /// assert_eq!(ready.name(), "ada");
    /// assert_eq!(ready.address("listen").unwrap().port(), 7400);
    /// assert_eq!(ready.address("resp"), None);
    /// ```
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let rest = line.trim_end().strip_prefix("ready ")?;
        let fields = rest.split_whitespace().filter_map(|word| word.split_once('='));
        Some(Self { fields: fields.map(|(key, value)| (key.to_owned(), value.to_owned())).collect() })
    }

    /// The node's name; empty where the line has none.
    #[must_use]
    pub fn name(&self) -> &str {
        self.field("name").unwrap_or_default()
    }

    /// An address of the line: `listen`, `data`, `resp`, `resp-cluster`, `http`, or whatever the program adds. `None`: it has none, or it is off.
    #[must_use]
    pub fn address(&self, of: &str) -> Option<SocketAddr> {
        self.field(of)?.parse().ok()
    }

    fn field(&self, of: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == of).map(|(_, value)| value.as_str())
    }
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ready")?;
        self.fields.iter().try_for_each(|(key, value)| write!(f, " {key}={value}"))
    }
}

/// A process that did not come up.
#[derive(Debug)]
pub struct NotStarted {
    /// The node's name.
    pub name: String,
    /// How it ended; `None`: it never ran, or was killed because it took too long.
    pub status: Option<ExitStatus>,
    /// What it wrote to stderr.
    pub log: String,
}

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} did not start: {}", self.name, last_line(&self.log))
    }
}

impl std::error::Error for NotStarted {}

/// A node's process. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    ready: Ready,
    log: PathBuf,
    /// Its sender goes when the process has closed its stdout, which it does by ending.
    closed: watch::Receiver<()>,
    /// The child ends when this closes, which the system does even if we are killed.
    _stdin: Option<ChildStdin>,
}

impl Process {
    /// Starts the command and waits for its `ready` line. Its stderr goes to `log`; its stdin stays open for as long as this lives.
    ///
    /// # Errors
    /// It cannot be started, ended before it was ready, or was not ready within `patience`; then it does not run any more.
    pub async fn start(name: &str, mut command: Command, log: &Path, patience: Duration) -> Result<Self, NotStarted> {
        let failed = |status, log: String| NotStarted { name: name.to_owned(), status, log };
        let cannot = |e: std::io::Error| failed(None, format!("cannot start {}: {e}", Path::new(command.get_program()).display()));
        let stderr = File::create(log).map_err(cannot)?;
        let cannot = |e: std::io::Error, command: &Command| failed(None, format!("{}: {e}", Path::new(command.get_program()).display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().map_err(|e| cannot(e, &command))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (open, closed) = watch::channel(());
        // From here on the process ends with this value, also when something below fails.
        let mut process = Self { child, ready: Ready::default(), log: log.to_owned(), closed, _stdin: stdin };
        let (ready, line) = oneshot::channel();
        if let Some(stdout) = stdout {
            // Ends with the child. It reads on so that the child never waits for a full pipe.
            let read = move || {
                let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
                if let Some(found) = lines.by_ref().find_map(|line| Ready::parse(&line)) {
                    let _ = ready.send(found);
                    lines.for_each(drop);
                }
                drop(open);
            };
            let spawned = std::thread::Builder::new().name("doyen-stdout".into()).spawn(read);
            spawned.map_err(|e| cannot(e, &command))?;
        }
        match tokio::time::timeout(patience, line).await {
            Ok(Ok(ready)) => {
                process.ready = ready;
                Ok(process)
            }
            Ok(Err(_)) => {
                let status = process.child.wait().ok();
                Err(failed(status, process.log()))
            }
            Err(_) => {
                process.kill();
                Err(failed(None, process.log()))
            }
        }
    }

    /// Where it listens.
    #[must_use]
    pub const fn ready(&self) -> &Ready {
        &self.ready
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        // An error says that it has ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGSTOP. Returns when every thread stands still: until then the process still answers, and rightly so.
    pub fn pause(&mut self) {
        if let Some(pid) = self.signal(Signal::STOP) {
            // `EXITED`, too: what has just ended stops no more. `NOWAIT`: the end stays to be waited for.
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        }
    }

    /// SIGCONT.
    pub fn resume(&mut self) {
        self.signal(Signal::CONT);
    }

    /// SIGTERM, without waiting: a node leaves in order.
    pub fn terminate(&mut self) {
        self.signal(Signal::TERM);
    }

    /// Waits until it has ended by itself.
    ///
    /// # Errors
    /// The system does not say how it ended.
    pub async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        // Nothing is ever sent: it only goes away.
        while self.closed.changed().await.is_ok() {}
        self.child.wait()
    }

    /// How it ended, if it has.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// What it wrote to stderr so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The last thing that it wrote to stderr.
    #[must_use]
    pub fn last_words(&self) -> String {
        last_line(&self.log()).to_owned()
    }

    fn signal(&mut self, signal: Signal) -> Option<Pid> {
        // Only to a process that was not waited for: its id is still its own.
        if self.status().is_some() {
            return None;
        }
        let pid = Pid::from_raw(i32::try_from(self.child.id()).ok()?)?;
        kill_process(pid, signal).ok().map(|()| pid)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL ends a paused process, too.
        self.kill();
    }
}

fn last_line(log: &str) -> &str {
    log.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("it said nothing")
}
