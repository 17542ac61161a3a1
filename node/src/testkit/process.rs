//! One node as a process: starts it, reads its addresses, sends it signals, ends it by its id.

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
use tokio::time::Instant;

/// Lines of a log that an error shows.
const LINES_TOLD: usize = 8;
/// Time between two checks whether a process with a closed stdout has ended.
const LOOK: Duration = Duration::from_millis(10);

/// The addresses of a node, from its first line: `ready name=ada listen=127.0.0.1:7400 ...`.
///
/// ```no_run
/// # async fn example(node: &doyen::Node) -> std::io::Result<()> {
/// // In a program that embeds a node and serves the web, for a test with its processes:
/// let web = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// println!("{}", doyen::testkit::Ready::of(node).and("web", web.local_addr()?));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ready {
    /// In the order of the line.
    fields: Vec<(String, String)>,
}

impl Ready {
    /// The line that a program with an embedded node must print, so that a
    /// [`Cluster`](super::Cluster) finds the node.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        let addresses = node.addresses();
        let port = |address: Option<SocketAddr>| {
            address.map_or_else(|| "off".to_owned(), |a| a.to_string())
        };
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

    /// Adds another address, at which the program itself listens.
    #[must_use]
    pub fn and(mut self, of: &str, address: SocketAddr) -> Self {
        self.fields.push((of.to_owned(), address.to_string()));
        self
    }

    /// Parses the line; `None`: this is another line.
    ///
    /// ```
    /// let line = "ready name=ada listen=127.0.0.1:7400 resp=off";
    /// let ready = doyen::testkit::Ready::parse(line).unwrap();
    /// assert_eq!(ready.name(), "ada");
    /// assert_eq!(ready.address("listen").unwrap().port(), 7400);
    /// assert_eq!(ready.address("resp"), None);
    /// ```
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let rest = line.trim_end().strip_prefix("ready ")?;
        let fields = rest
            .split_whitespace()
            .filter_map(|word| word.split_once('='));
        Some(Self {
            fields: fields
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        })
    }

    /// The node's name; empty if the line has none.
    #[must_use]
    pub fn name(&self) -> &str {
        self.field("name").unwrap_or_default()
    }

    /// An address of the line: `listen`, `data`, `resp`, `resp-cluster`, `http`, or one that the
    /// program added. `None`: the line has no such address, or it is off.
    #[must_use]
    pub fn address(&self, of: &str) -> Option<SocketAddr> {
        self.field(of)?.parse().ok()
    }

    fn field(&self, of: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(key, _)| key == of)
            .map(|(_, value)| value.as_str())
    }
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ready")?;
        self.fields
            .iter()
            .try_for_each(|(key, value)| write!(f, " {key}={value}"))
    }
}

/// A process did not start.
///
/// ```no_run
/// use doyen::testkit::{Cluster, TestkitError, Unready};
///
/// # async fn example() {
/// match Cluster::builder().option("memory-max", "1kb").start(3).await {
///     Err(TestkitError::Start(failed)) if matches!(failed.why, Unready::Ended(_)) => {
///         println!("{} says: {}", failed.name, failed.log);
///     }
///     other => panic!("so little memory is refused: {other:?}"),
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct NotStarted {
    /// The node's name.
    pub name: String,
    /// The reason.
    pub why: Unready,
    /// Its stderr.
    pub log: String,
}

/// Why a process did not start.
///
/// Example: [`NotStarted`].
#[derive(Debug)]
pub enum Unready {
    /// The system refused to start it.
    Unstarted(String),
    /// It ended before it printed its `ready` line.
    Ended(ExitStatus),
    /// It printed no `ready` line within this time, and was killed.
    Silent(Duration),
}

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.why {
            Unready::Unstarted(why) => return write!(f, "node {name} did not start: {why}"),
            Unready::Ended(status) => write!(
                f,
                "node {name} did not start: it ended with {status} before it printed its `ready` \
                 line"
            )?,
            Unready::Silent(patience) => write!(
                f,
                "node {name} did not start: it printed no `ready` line within {patience:?} (a \
                 program that embeds a node prints `testkit::Ready::of(&node)` in a line of its \
                 own once the node runs)"
            )?,
        }
        match last_lines(&self.log, LINES_TOLD).as_slice() {
            [] => f.write_str("; it wrote nothing to stderr"),
            lines => write!(f, "; its last lines on stderr:\n{}", lines.join("\n")),
        }
    }
}

impl std::error::Error for NotStarted {}

/// A node's process. It is killed when this is dropped.
///
/// Example: [`Household`](super::Household).
#[derive(Debug)]
pub struct Process {
    child: Child,
    ready: Ready,
    log: PathBuf,
    /// The sender is dropped when the process closes its stdout, usually by ending.
    closed: watch::Receiver<()>,
    /// The child ends when this closes. The system closes it even if this process is killed.
    _stdin: Option<ChildStdin>,
}

impl Process {
    /// Starts the command and waits for its `ready` line. Its stderr goes to `log`. Its stdin stays
    /// open as long as this lives.
    ///
    /// It cannot be started, ended before it was ready, or was not ready within `patience`. The
    /// process does not run then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the process ends.
    pub async fn start(
        name: &str,
        mut command: Command,
        log: &Path,
        patience: Duration,
    ) -> Result<Self, NotStarted> {
        let failed = |why, log| NotStarted {
            name: name.to_owned(),
            why,
            log,
        };
        let cannot = |e: std::io::Error, what: &Path| {
            failed(
                Unready::Unstarted(format!("{}: {e}", what.display())),
                String::new(),
            )
        };
        let stderr = File::create(log).map_err(|e| cannot(e, log))?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr);
        let program = Path::new(command.get_program()).to_owned();
        let mut child = command.spawn().map_err(|e| cannot(e, &program))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (open, closed) = watch::channel(());
        // From here on the process ends with this value, also if something below fails.
        let mut process = Self {
            child,
            ready: Ready::default(),
            log: log.to_owned(),
            closed,
            _stdin: stdin,
        };
        let (ready, line) = oneshot::channel();
        if let Some(stdout) = stdout {
            // Ends with the child. It reads on, so that the child never waits for a full pipe.
            let read = move || {
                let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
                if let Some(found) = lines.by_ref().find_map(|line| Ready::parse(&line)) {
                    let _ = ready.send(found);
                    lines.for_each(drop);
                }
                drop(open);
            };
            let spawned = std::thread::Builder::new()
                .name("doyen-stdout".into())
                .spawn(read);
            spawned.map_err(|e| cannot(e, &program))?;
        }
        let until = Instant::now() + patience;
        if let Ok(Ok(ready)) = tokio::time::timeout_at(until, line).await {
            process.ready = ready;
            return Ok(process);
        }
        // Most processes close their stdout by ending. A child of an ended process may keep it
        // open.
        while process.status().is_none() && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
        }
        let why = process
            .status()
            .map_or(Unready::Silent(patience), Unready::Ended);
        process.kill();
        Err(failed(why, process.log()))
    }

    /// Its addresses.
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
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGSTOP. Returns when every thread is stopped. Until then the process may still answer.
    pub fn pause(&mut self) {
        if let Some(pid) = self.signal(Signal::STOP) {
            // `EXITED`, too: a process that has just ended does not stop any more. `NOWAIT`: keep
            // the end for a later wait.
            let _ = waitid(
                WaitId::Pid(pid),
                WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
            );
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
    /// The system does not report how it ended.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        // Nothing is ever sent: the sender is only dropped.
        while self.closed.changed().await.is_ok() {}
        self.child.wait()
    }

    /// Its exit status, if it has ended.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Its stderr so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The last line of its stderr.
    #[must_use]
    pub fn last_words(&self) -> String {
        last_line(&self.log()).to_owned()
    }

    fn signal(&mut self, signal: Signal) -> Option<Pid> {
        // Signal only a process that was not waited for: its id is still its own.
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
    last_lines(log, 1)
        .first()
        .copied()
        .unwrap_or("it wrote nothing")
}

fn last_lines(log: &str, count: usize) -> Vec<&str> {
    let mut lines: Vec<&str> = log
        .lines()
        .rev()
        .filter(|l| !l.trim().is_empty())
        .take(count)
        .collect();
    lines.reverse();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error about a program that is not a node, after this patience.
    async fn refused(script: &str, patience: Duration) -> NotStarted {
        let directory = tempfile::tempdir().expect("a directory");
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start("ada", command, &directory.path().join("log"), patience)
            .await
            .expect_err("it is no node")
    }

    #[tokio::test]
    async fn a_program_that_ends_is_told_with_its_status_and_its_last_lines() {
        let told = refused("seq 1 20 >&2; exit 7", super::super::PATIENCE).await;
        assert!(
            matches!(told.why, Unready::Ended(status) if status.code() == Some(7)),
            "{told:?}"
        );
        let text = told.to_string();
        assert!(
            text.contains("exit status: 7")
                && text.contains("\n13\n")
                && text.ends_with("\n20")
                && !text.contains("\n12\n"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_program_without_a_ready_line_is_told_what_to_print() {
        // Both run until their stdin ends. The second one closes its stdout, which is not an end.
        for script in ["echo hello; exec cat", "exec >&-; read line"] {
            let told = refused(script, Duration::from_millis(100)).await;
            assert!(matches!(told.why, Unready::Silent(_)), "{told:?}");
            let text = told.to_string();
            assert!(
                text.contains("no `ready` line within 100ms")
                    && text.contains("testkit::Ready::of"),
                "{text}"
            );
        }
    }
}
