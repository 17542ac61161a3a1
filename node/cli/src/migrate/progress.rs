//! One line that says how far it is. On a terminal it is drawn again and again. If stderr is no
//! terminal, there is a line every ten seconds.

use crate::bytes;
use doyen_placement::words::counted;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How wide the bar is.
const BAR: u64 = 30;

/// What is done with what an import takes in.
pub(super) const READ: (&str, &str) = ("key was read", "keys were read");
pub(super) const EXECUTED: (&str, &str) = ("command was executed", "commands were executed");

pub(super) struct MigrationProgress {
    /// What was done with one key or command, and with several.
    what: (&'static str, &'static str),
    /// How many bytes there are in all, if that is known.
    size: Option<u64>,
    began: Instant,
    shown: Instant,
    every: Duration,
    is_terminal: bool,
}

impl MigrationProgress {
    pub(super) fn new(what: (&'static str, &'static str), size: Option<u64>) -> Self {
        let (is_terminal, now) = (std::io::stderr().is_terminal(), Instant::now());
        let every = if is_terminal {
            Duration::from_millis(200)
        } else {
            Duration::from_secs(10)
        };
        Self {
            what,
            size,
            began: now,
            shown: now,
            every,
            is_terminal,
        }
    }

    /// Shows that `count` keys and `done` bytes are done, if it is time.
    pub(super) fn show(&mut self, count: u64, done: u64) {
        if self.shown.elapsed() < self.every {
            return;
        }
        self.shown = Instant::now();
        let line = self.line(self.began.elapsed(), count, done);
        let mut err = std::io::stderr();
        // If stderr is closed, no one sees the line.
        let _ = if self.is_terminal {
            write!(err, "\r\x1b[K{line}").and_then(|()| err.flush())
        } else {
            writeln!(err, "{line}")
        };
    }

    /// Leaves an empty line for what follows.
    pub(super) fn end(&self) {
        if self.is_terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    fn line(&self, took: Duration, count: u64, done: u64) -> String {
        let seconds = took.as_secs().max(1);
        let text = format!(
            "{}, {} a second",
            counted(count, self.what),
            count / seconds
        );
        let Some(size) = self.size.filter(|size| *size > 0) else {
            return text;
        };
        let done = done.min(size);
        let filled = usize::try_from(done * BAR / size).unwrap_or(0);
        let bar = "#".repeat(filled) + &"-".repeat(BAR as usize - filled);
        let left = (size - done) * seconds / done.max(1);
        let (percent, size) = (done * 100 / size, bytes(size));
        format!("[{bar}] {percent} % of {size}: {text}, about {left} s left")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_the_part_the_rate_and_the_time_left() {
        let progress = MigrationProgress::new(READ, Some(4_000));
        let line = progress.line(Duration::from_secs(2), 100, 1_000);
        assert_eq!(
            line,
            "[#######-----------------------] 25 % of 4000 B: 100 keys were read, 50 a second, \
             about 6 s left"
        );
    }
}
