//! Child processes: on which core they run, and that none outlives this process.
//!
//! Every child is owned by a value that kills it by its id when dropped, so errors and panics leave
//! no child behind. Ctrl-C only sets a flag: code that waits looks at it and returns an error. If
//! this process is killed, the kernel kills the children (through `setpriv --pdeathsig`, if it is
//! installed).

use crate::procfs::{cpu_list, field};
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// The pause between two looks at what is waited for.
const LOOK: Duration = Duration::from_millis(5);

/// From now on, SIGINT, SIGTERM and SIGHUP make waiting code return an error, and do not end this
/// process.
///
/// # Errors
/// The thread cannot be started.
pub fn watch_signals() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (ready, watching) = mpsc::channel();
    let watch = async move {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ];
        let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = kinds.map(signal) else {
            return;
        };
        let _ = ready.send(());
        loop {
            tokio::select! {
                _ = interrupt.recv() => {},
                _ = terminate.recv() => {},
                _ = hangup.recv() => {}
            }
            INTERRUPTED.store(true, Ordering::SeqCst);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    // This thread ends with the process.
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || runtime.block_on(watch))?;
    watching.recv().context("cannot watch for signals")
}

/// Whether a signal has asked this process to end.
#[must_use]
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Errors
/// A signal has asked this process to end.
pub fn go_on() -> Result<()> {
    if interrupted() {
        bail!("interrupted");
    }
    Ok(())
}

/// Sleeps.
///
/// # Errors
/// A signal has asked this process to end.
pub fn pause(span: Duration) -> Result<()> {
    until(Instant::now() + span, || Ok(false)).map(drop)
}

/// Waits until something is true. Returns whether it became true before the deadline.
///
/// # Errors
/// The function failed, or a signal has asked this process to end.
pub fn until(deadline: Instant, mut holds: impl FnMut() -> Result<bool>) -> Result<bool> {
    loop {
        go_on()?;
        if holds()? {
            return Ok(true);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        std::thread::sleep(left.min(LOOK));
    }
}

/// The processors of members and generators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cores {
    /// The processor of all members.
    pub members: Option<usize>,
    /// The processor of the generator.
    pub generator: Option<usize>,
    dies_with_parent: bool,
}

impl Cores {
    /// The first two processors that this process may run on. There are none if it may use fewer
    /// than two, or if `taskset` is missing.
    #[must_use]
    pub fn of_this_process() -> Self {
        let works = |words: &[&str]| {
            Command::new(words[0])
                .args(&words[1..])
                .output()
                .is_ok_and(|o| o.status.success())
        };
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let cpus = field(&status, "Cpus_allowed_list")
            .map(cpu_list)
            .unwrap_or_default();
        let (members, generator) = match cpus[..] {
            [first, second, ..] if works(&["taskset", "-c", &first.to_string(), "true"]) => {
                (Some(first), Some(second))
            }
            _ => (None, None),
        };
        Self {
            members,
            generator,
            dies_with_parent: works(&["setpriv", "--pdeathsig", "KILL", "true"]),
        }
    }

    /// All processes may run everywhere.
    #[must_use]
    pub fn shared() -> Self {
        Self {
            members: None,
            generator: None,
            ..Self::of_this_process()
        }
    }

    /// The pinning, as a text.
    #[must_use]
    pub fn described(&self) -> String {
        match (self.members, self.generator) {
            (Some(members), Some(generator)) => {
                format!("members pinned to processor {members}, generators to {generator}")
            }
            _ => "NOT pinned, so these figures cannot be compared: \
                  pinning takes two processors and taskset"
                .into(),
        }
    }

    /// The words that start a member on its processor.
    #[must_use]
    pub fn member(&self, words: &[&str]) -> Vec<String> {
        self.on(self.members, words)
    }

    /// The words that start a generator on its processor.
    #[must_use]
    pub fn generator(&self, words: &[&str]) -> Vec<String> {
        self.on(self.generator, words)
    }

    /// The words that start a generator of low priority. It is not measured itself, and the
    /// generator that measures must wait for the system alone.
    #[must_use]
    pub fn generator_behind(&self, words: &[&str]) -> Vec<String> {
        let nice: Vec<&str> = ["nice", "-n", "10"].iter().chain(words).copied().collect();
        self.on(self.generator, &nice)
    }

    /// The words that start a program whose speed is not measured.
    #[must_use]
    pub fn anywhere(&self, words: &[&str]) -> Vec<String> {
        self.on(None, words)
    }

    fn on(&self, core: Option<usize>, words: &[&str]) -> Vec<String> {
        let mut all = Vec::new();
        if let Some(core) = core {
            all.extend(["taskset".to_owned(), "-c".to_owned(), core.to_string()]);
        }
        if self.dies_with_parent {
            all.extend(["setpriv", "--pdeathsig", "KILL"].map(str::to_owned));
        }
        all.extend(words.iter().map(ToString::to_string));
        all
    }
}

/// A child. It is killed when this is dropped.
#[derive(Debug)]
pub struct Child {
    child: std::process::Child,
    name: String,
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Child {
    fn spawn(words: &[String], configure: impl FnOnce(&mut Command)) -> Result<Self> {
        let (program, arguments) = words
            .split_first()
            .context("there is no program to start")?;
        let mut command = Command::new(program);
        command.args(arguments);
        configure(&mut command);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        Ok(Self {
            child,
            name: words.join(" "),
        })
    }

    /// Starts a member. Its output goes to a file.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(words: &[String], log: &Path) -> Result<Self> {
        let out = File::create(log)?;
        let err = out.try_clone()?;
        Self::spawn(words, |command| {
            command.stdin(Stdio::piped()).stdout(out).stderr(err);
        })
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Errors
    /// The process has ended.
    pub fn is_alive(&mut self, log: &Path) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!(
                "{} ended ({status}):\n{}",
                self.name,
                crate::cluster::last_lines(&std::fs::read_to_string(log).unwrap_or_default(), 10)
            );
        }
        Ok(())
    }
}

/// The output of a program that has ended.
#[derive(Debug)]
pub struct Output {
    /// Whether it succeeded.
    pub success: bool,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// A program that runs to its end, beside others.
#[derive(Debug)]
pub struct Running {
    child: Child,
    deadline: Instant,
    stdout: mpsc::Receiver<String>,
    stderr: mpsc::Receiver<String>,
}

impl Running {
    /// Starts a program that must end within this time.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(words: &[String], directory: Option<&Path>, patience: Duration) -> Result<Self> {
        let mut child = Child::spawn(words, |command| {
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            directory.map(|d| command.current_dir(d));
        })?;
        let (stdout, stderr) = (
            collect(child.child.stdout.take()),
            collect(child.child.stderr.take()),
        );
        Ok(Self {
            child,
            deadline: Instant::now() + patience,
            stdout,
            stderr,
        })
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It took too long, or a signal has asked this process to end.
    pub fn finish(mut self) -> Result<Output> {
        let mut status = None;
        let child = &mut self.child;
        let ended = until(self.deadline, || {
            status = child.child.try_wait()?;
            Ok(status.is_some())
        })?;
        if !ended {
            bail!("{} took too long and was killed", self.child.name);
        }
        let text = |stream: &mpsc::Receiver<String>| {
            stream
                .recv_timeout(Duration::from_secs(5))
                .unwrap_or_default()
        };
        Ok(Output {
            success: status.is_some_and(|s| s.success()),
            stdout: text(&self.stdout),
            stderr: text(&self.stderr),
        })
    }

    /// Waits for its end, and returns its standard output.
    ///
    /// # Errors
    /// As [`Running::finish`], or the program failed.
    pub fn succeed(self) -> Result<String> {
        let name = self.child.name.clone();
        let output = self.finish()?;
        if !output.success {
            let said = if output.stderr.trim().is_empty() {
                &output.stdout
            } else {
                &output.stderr
            };
            bail!(
                "{name} failed: {}",
                crate::cluster::last_lines(said.trim(), 5)
            );
        }
        Ok(output.stdout)
    }
}

/// Reads a stream to its end in a thread, so that its writer never waits.
fn collect(stream: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.map(|mut s| s.read_to_end(&mut bytes));
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// Runs a program to its end, and returns its standard output.
///
/// # Errors
/// The program failed or took longer than `patience`, or a signal has asked this process to end.
pub fn run(words: &[String], directory: Option<&Path>, patience: Duration) -> Result<String> {
    Running::start(words, directory, patience)?.succeed()
}

/// A program that answers each line with a line.
#[derive(Debug)]
pub struct Conversation {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Conversation {
    /// Starts it. Its standard error goes to a file.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(words: &[String], log: &Path) -> Result<Self> {
        let err = File::create(log)?;
        let mut child = Child::spawn(words, |command| {
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(err);
        })?;
        let (sender, lines) = mpsc::channel();
        let stdout = child.child.stdout.take().context("a pipe")?;
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// Its next line.
    ///
    /// # Errors
    /// No line came in time, or the program has ended.
    pub fn line(&self, patience: Duration) -> Result<String> {
        let mut line = None;
        let came = until(Instant::now() + patience, || match self.lines.try_recv() {
            Ok(said) => {
                line = Some(said);
                Ok(true)
            }
            Err(mpsc::TryRecvError::Empty) => Ok(false),
            Err(mpsc::TryRecvError::Disconnected) => bail!("{} ended", self.child.name),
        })?;
        if !came {
            bail!("{} says nothing", self.child.name);
        }
        Ok(line.unwrap_or_default())
    }

    /// Sends a line, and returns the answer.
    ///
    /// # Errors
    /// No answer came in time.
    pub fn ask(&mut self, question: &str, patience: Duration) -> Result<String> {
        writeln!(
            self.child.child.stdin.as_mut().context("a pipe")?,
            "{question}"
        )?;
        self.line(patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_program_that_fails_says_why() {
        let error = run(&words("ls /no/such/file"), None, Duration::from_secs(10))
            .expect_err("there is none");
        assert!(error.to_string().contains("No such file"), "{error}");
    }

    #[test]
    fn a_program_that_takes_too_long_is_killed() {
        let began = Instant::now();
        assert!(run(&words("sleep 60"), None, Duration::from_millis(50)).is_err());
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn much_output_does_not_block_its_writer() {
        let text = run(
            &words("head -c 1000000 /dev/zero"),
            None,
            Duration::from_secs(20),
        )
        .expect("it runs");
        assert_eq!(text.len(), 1_000_000);
    }

    #[test]
    fn a_conversation_answers_line_by_line() {
        let dir = tempfile::TempDir::new().expect("a directory");
        let mut cat =
            Conversation::start(&words("cat"), &dir.path().join("log")).expect("it starts");
        assert_eq!(
            cat.ask("one", Duration::from_secs(10)).expect("an answer"),
            "one"
        );
        assert_eq!(
            cat.ask("two", Duration::from_secs(10)).expect("an answer"),
            "two"
        );
    }

    #[test]
    fn words_pin_a_program_to_its_processor() {
        let cores = Cores {
            members: Some(2),
            generator: Some(3),
            dies_with_parent: true,
        };
        assert_eq!(
            cores.member(&["a", "b"]),
            words("taskset -c 2 setpriv --pdeathsig KILL a b")
        );
        let cores = Cores {
            members: None,
            generator: None,
            dies_with_parent: false,
        };
        assert_eq!(cores.generator(&["a"]), words("a"));
        assert!(cores.described().contains("NOT pinned"));
    }
}
