//! The demo's nodes: child processes of this very binary, which end when the demo does, however that ends.

use crate::cli::Failed;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// How long a process may take to open its ports.
const OPEN_MAX: Duration = Duration::from_secs(10);
/// What the nodes are called: in the order of the alphabet, which is the order of their age.
const NAMES: [&str; 12] = ["ada", "boris", "clara", "dmitri", "emma", "felix", "greta", "hugo", "ida", "jonas", "klara", "leo"];

/// Starts nodes that share a secret of their own.
#[derive(Debug)]
pub(super) struct Nursery {
    /// Secret and logs; removed at the end.
    dir: TempDir,
    secret: PathBuf,
    born: usize,
    members_min: u8,
}

/// A node's process. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) control: SocketAddr,
    pub(super) resp: SocketAddr,
    pub(super) http: SocketAddr,
    child: Child,
    log: PathBuf,
    /// The child ends when this closes, which the system does even if the demo is killed.
    _stdin: Option<ChildStdin>,
}

impl Nursery {
    pub(super) fn new(members_min: u8) -> Result<Self, Failed> {
        let cannot = |e: std::io::Error| Failed::new(format!("cannot write to {}: {e}", std::env::temp_dir().display()));
        let dir = tempfile::Builder::new().prefix("doyen-demo-").tempdir().map_err(cannot)?;
        let secret = dir.path().join("secret");
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&secret).map_err(cannot)?;
        let bytes: [u8; 32] = rand::random();
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        file.write_all(hex.as_bytes()).map_err(cannot)?;
        Ok(Self { dir, secret, born: 0, members_min })
    }

    /// Starts a node that finds the others through these, and waits until its ports are open.
    pub(super) async fn start(&mut self, seeds: &[SocketAddr]) -> Result<Process, Failed> {
        let name = NAMES.get(self.born).map_or_else(|| format!("node-{}", self.born + 1), |n| (*n).to_owned());
        self.born += 1;
        let cannot = |e: std::io::Error| Failed::new(format!("cannot start node {name}: {e}"));
        let log = self.dir.path().join(format!("{name}.log"));
        let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
        command.args(["run", "--name", &name, "--exit-with-stdin", "--log", "info"]);
        for port in ["--listen", "--data", "--resp", "--resp-cluster", "--http"] {
            command.args([port, "127.0.0.1:0"]);
        }
        command.args(["--members-min", &self.members_min.to_string()]).arg("--secret-file").arg(&self.secret);
        for seed in seeds {
            command.args(["--seed", &seed.to_string()]);
        }
        // What the person's shell says to nodes of their own must not reach these.
        for (variable, _) in std::env::vars_os().filter(|(v, _)| v.to_string_lossy().starts_with("DOYEN_")) {
            command.env_remove(variable);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log).map_err(cannot)?);
        let mut child = command.spawn().map_err(cannot)?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take();
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        // From here on the process ends with this value, also when something below fails.
        let mut process = Process { name, control: nowhere, resp: nowhere, http: nowhere, child, log, _stdin: stdin };
        let (ready, line) = tokio::sync::oneshot::channel();
        if let Some(stdout) = stdout {
            // Ends with the child. It reads on so that the child never waits for a full pipe.
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
                let _ = ready.send(lines.find(|l| l.starts_with("ready ")));
                lines.for_each(drop);
            });
        }
        let Ok(Ok(Some(line))) = tokio::time::timeout(OPEN_MAX, line).await else { return Err(process.failed("did not start")) };
        let port = |key: &str| line.split(' ').find_map(|field| field.strip_prefix(key)?.parse().ok());
        match (port("listen="), port("resp="), port("http=")) {
            (Some(control), Some(resp), Some(http)) => (process.control, process.resp, process.http) = (control, resp, http),
            _ => return Err(process.failed("did not say its ports")),
        }
        Ok(process)
    }
}

impl Process {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self) {
        // An error says that it has ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Whether it ended although nobody killed it.
    pub(super) fn check(&mut self) -> Result<(), Failed> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(self.failed("ended unexpectedly")),
        }
    }

    /// What happened, with the last thing that the node itself said.
    pub(super) fn failed(&mut self, what: &str) -> Failed {
        self.kill();
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("it said nothing");
        Failed::new(format!("node {} {what}: {last}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
