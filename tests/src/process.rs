//! One real process: started on ports of the system's choosing, ended by its id.

use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up: a guard against hangs, no measure of speed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Where a process listens, as its `ready` line says.
#[derive(Debug, Clone)]
pub struct Ready {
    /// Its name.
    pub name: String,
    /// Control.
    pub listen: SocketAddr,
    /// Data.
    pub data: SocketAddr,
    /// RESP for the whole cluster.
    pub resp: SocketAddr,
    /// RESP as a Redis Cluster node answers.
    pub resp_cluster: SocketAddr,
    /// HTTP.
    pub http: SocketAddr,
}

impl Ready {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        if words.next() != Some("ready") {
            return None;
        }
        let fields: std::collections::BTreeMap<&str, &str> = words.filter_map(|w| w.split_once('=')).collect();
        let address = |name: &str| fields.get(name)?.parse().ok();
        Some(Self {
            name: (*fields.get("name")?).to_owned(),
            listen: address("listen")?,
            data: address("data")?,
            resp: address("resp")?,
            resp_cluster: address("resp-cluster")?,
            http: address("http")?,
        })
    }
}

/// A process. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Where it listens.
    pub ready: Ready,
    log: PathBuf,
    stopped: bool,
}

/// A process that ended before it was ready.
#[derive(Debug)]
pub struct Refused {
    /// How it ended; `None`: it was killed because it took too long.
    pub status: Option<ExitStatus>,
    /// What it wrote to stderr.
    pub stderr: String,
}

impl Process {
    /// Starts `binary run` with these arguments and waits until it is ready.
    ///
    /// # Errors
    /// It ended, or was not ready in time.
    pub fn start(binary: &Path, arguments: &[String], log: PathBuf) -> Result<Self, Refused> {
        let refused = |status, log: &Path| Refused { status, stderr: std::fs::read_to_string(log).unwrap_or_default() };
        let failed = |e: io::Error| Refused { status: None, stderr: format!("cannot start: {e}") };
        let stderr = File::create(&log).map_err(failed)?;
        let mut child = Command::new(binary)
            .args(arguments)
            .env_remove("DOYEN_SECRET")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .map_err(failed)?;
        let (sender, lines) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            // Ends with the process, whose stdout closes then.
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if let Some(ready) = Ready::parse(&line) {
                        let _ = sender.send(ready);
                    }
                }
            });
        }
        match lines.recv_timeout(PATIENCE) {
            Ok(ready) => Ok(Self { child, ready, log, stopped: false }),
            Err(e) => {
                let status = if e == mpsc::RecvTimeoutError::Disconnected { child.wait().ok() } else { None };
                let _ = child.kill();
                let _ = child.wait();
                Err(refused(status, &log))
            }
        }
    }

    fn signal(&self, signal: Signal) {
        // Only a process that was not waited for: its id is still its own.
        if let Ok(pid) = i32::try_from(self.child.id())
            && let Some(pid) = Pid::from_raw(pid)
        {
            kill_process(pid, signal).expect("a process that runs takes a signal");
        }
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGSTOP.
    ///
    /// Returns when every thread stands still: until then the process still answers, and rightly so.
    pub fn stop(&mut self) {
        self.signal(Signal::STOP);
        self.stopped = true;
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.stands_still() {
            assert!(Instant::now() < deadline, "{} does not stop", self.ready.name);
            std::thread::yield_now();
        }
    }

    fn stands_still(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("the process is there");
        tasks.flatten().all(|task| {
            // "pid (name) state ...": the name may hold anything but the last parenthesis.
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
        })
    }

    /// SIGCONT.
    pub fn resume(&mut self) {
        self.signal(Signal::CONT);
        self.stopped = false;
    }

    /// Sets its wall clock an hour forward (see `doyen-under-test`), without waiting.
    pub fn set_clock_forward(&self) {
        self.signal(Signal::USR1);
    }

    /// Sets its wall clock an hour back, without waiting.
    pub fn set_clock_back(&self) {
        self.signal(Signal::USR2);
    }

    /// SIGTERM, without waiting.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Waits until it has ended by itself.
    pub fn wait(mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours can be waited for") {
                return status;
            }
            assert!(Instant::now() < deadline, "{} did not end; its log:\n{}", self.ready.name, self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether it has ended.
    pub fn ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// What it wrote to stderr so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// One request by HTTP; the body of a 200.
    ///
    /// # Errors
    /// No answer, or another status.
    pub fn http(&self, path: &str) -> io::Result<String> {
        http(self.ready.http, path)
    }
}

/// `GET path`; the body of a 200.
///
/// # Errors
/// No answer, or another status.
pub fn http(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: doyen\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    if !head.starts_with("HTTP/1.1 200") {
        return Err(io::Error::other(format!("{} {body}", head.lines().next().unwrap_or_default())));
    }
    Ok(body.to_owned())
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL ends a stopped process too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
