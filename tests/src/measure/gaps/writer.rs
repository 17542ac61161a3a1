//! A program that writes: starts it, reads what it says of each write, and judges that.

use anyhow::{Context as _, Result, ensure};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Tasks of each program.
pub(super) const TASKS: usize = 4;
/// A gap that is longer at the end is one that has not ended.
const STALLED: Duration = Duration::from_secs(1);
/// Time between two looks at what a program has said.
const LOOK: Duration = Duration::from_millis(20);

/// What a program says of one write: `+ TASK NUMBER`, or `- TASK NUMBER ERROR`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WriteLine {
    at: Instant,
    task: usize,
    number: u64,
    error: Option<String>,
}

impl WriteLine {
    /// `None`: the line is of another kind.
    fn parse(line: &str, at: Instant) -> Option<Self> {
        let mut words = line.splitn(4, ' ');
        let sign = words.next()?;
        let task = words.next()?.parse().ok().filter(|task| *task < TASKS)?;
        let number = words.next()?.parse().ok()?;
        let error = words.next().unwrap_or_default().to_owned();
        Some(Self {
            at,
            task,
            number,
            error: match sign {
                "+" => None,
                "-" => Some(error),
                _ => return None,
            },
        })
    }
}

/// All that a program said.
#[derive(Debug, Default, Clone)]
pub(super) struct WriteLog {
    lines: Vec<WriteLine>,
}

impl WriteLog {
    fn times(&self, task: usize) -> impl Iterator<Item = Instant> {
        let of_task = self.lines.iter().filter(move |line| line.task == task);
        of_task
            .filter(|line| line.error.is_none())
            .map(|line| line.at)
    }

    /// Errors before the fault: then something else is wrong.
    pub(super) fn errors_before(&self, struck: Instant) -> usize {
        let before = self.lines.iter().filter(|line| line.at < struck);
        before.filter(|line| line.error.is_some()).count()
    }

    /// The number of errors, and the first one.
    pub(super) fn errors(&self) -> (usize, Option<String>) {
        let errors = || self.lines.iter().filter_map(|line| line.error.as_ref());
        (errors().count(), errors().next().cloned())
    }

    /// The keys that were written, with their values.
    pub(super) fn acknowledged(&self, prefix: &str) -> Vec<(String, u64)> {
        let written = self.lines.iter().filter(|line| line.error.is_none());
        written
            .map(|line| {
                (
                    format!("{prefix}:{}:{}", line.task, line.number),
                    line.number,
                )
            })
            .collect()
    }

    /// The longest time between two acknowledged writes of any task, and whether it ended. The
    /// second one comes after the fault.
    pub(super) fn longest_gap(&self, struck: Instant, end: Instant) -> (Duration, bool) {
        let mut longest = (Duration::ZERO, true);
        for task in 0..TASKS {
            let mut last = None;
            for at in self.times(task) {
                let gap = at.saturating_duration_since(last.unwrap_or(at));
                if at > struck && gap > longest.0 {
                    longest = (gap, true);
                }
                last = Some(at);
            }
            let rest = end.saturating_duration_since(last.unwrap_or(struck));
            if rest > longest.0 {
                longest = (rest, rest < STALLED);
            }
        }
        longest
    }
}

/// A program that writes. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Writer {
    child: Option<Child>,
    log: Arc<Mutex<WriteLog>>,
}

impl Writer {
    /// Starts a program that says on its stdout what it does.
    pub(super) fn of(mut command: Command, name: &str) -> Result<Self> {
        let errors = std::env::temp_dir().join(format!("gaps-{name}.log"));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(errors)?)
            .spawn()
            .with_context(|| format!("{command:?}"))?;
        let said = child.stdout.take().context("it has a stdout")?;
        let mut writer = Self::reading(said)?;
        writer.child = Some(child);
        Ok(writer)
    }

    /// A program that says the same on a connection. It ends with its cluster.
    pub(super) fn connected(connection: TcpStream) -> Result<Self> {
        Self::reading(connection)
    }

    fn reading(said: impl Read + Send + 'static) -> Result<Self> {
        let log = Arc::new(Mutex::new(WriteLog::default()));
        let reader = log.clone();
        // The thread ends with the program.
        std::thread::Builder::new()
            .name("gaps-reader".into())
            .spawn(move || {
                for line in BufReader::new(said).lines().map_while(Result::ok) {
                    if let Some(line) = WriteLine::parse(&line, Instant::now()) {
                        let mut log = reader.lock().unwrap_or_else(PoisonError::into_inner);
                        log.lines.push(line);
                    }
                }
            })?;
        Ok(Self { child: None, log })
    }

    fn log(&self) -> WriteLog {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits until every task has written.
    pub(super) async fn await_first_writes(&mut self, patience: Duration) -> Result<()> {
        let began = Instant::now();
        loop {
            let log = self.log();
            if (0..TASKS).all(|task| log.times(task).next().is_some()) {
                return Ok(());
            }
            if let Some(child) = &mut self.child
                && let Some(status) = child.try_wait()?
            {
                anyhow::bail!("it ended with {status}: see gaps-*.log among temporary files");
            }
            ensure!(began.elapsed() < patience, "nothing within {patience:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// All that the program has said so far. Then it ends.
    pub(super) fn end(self) -> WriteLog {
        self.log()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It has ended already if this fails.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(began: Instant, lines: &[(u64, &str)]) -> WriteLog {
        let at = |ms| began + Duration::from_millis(ms);
        let parsed = lines
            .iter()
            .map(|(ms, line)| WriteLine::parse(line, at(*ms)).expect("a line"));
        WriteLog {
            lines: parsed.collect(),
        }
    }

    #[test]
    fn a_gap_belongs_to_one_task_and_ends_after_the_fault() {
        let began = Instant::now();
        let ms = |n| began + Duration::from_millis(n);
        let mut lines = vec![
            (0, "+ 0 0"),
            (900, "+ 0 1"),
            (1_300, "- 0 2 a word"),
            (1_500, "+ 0 3"),
        ];
        for (at, line) in [
            (1_000, "+ 1 0"),
            (1_400, "+ 2 0"),
            (1_400, "+ 3 0"),
            (1_490, "+ 1 1"),
        ] {
            lines.push((at, line));
        }
        let seen = log(began, &lines);
        assert_eq!(
            seen.longest_gap(ms(1_000), ms(1_600)),
            (Duration::from_millis(600), true)
        );
        assert_eq!(seen.errors(), (1, Some("a word".to_owned())));
        assert_eq!(seen.errors_before(ms(1_000)), 0);
        assert_eq!(seen.acknowledged("p").len(), 7);
        assert!(seen.acknowledged("p").contains(&("p:0:3".to_owned(), 3)));
        // Nothing is written any more.
        assert_eq!(
            seen.longest_gap(ms(1_000), ms(9_000)),
            (Duration::from_millis(7_600), false)
        );
    }

    #[test]
    fn lines_of_other_kinds_are_skipped() {
        let now = Instant::now();
        for other in ["", "a warning", "+ 9 0", "+ 0", "* 0 0", "- x 0 error"] {
            assert_eq!(WriteLine::parse(other, now), None, "{other}");
        }
    }
}
