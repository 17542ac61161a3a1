//! What happened: always a digest, and on demand the story, or every message.

use std::io::Write as _;

/// The most lines of the story that are kept for a failure.
const LINES_MAX: usize = 5_000;

/// What is printed of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tell {
    /// Nothing.
    Nothing,
    /// The story, with a failure.
    OnFailure,
    /// The story, as it happens.
    Story,
    /// The story and every message, as they happen.
    Everything,
}

/// What happened so far.
#[derive(Debug)]
pub(crate) struct Trace {
    digest: u64,
    tell: Tell,
    lines: Vec<String>,
}

impl Trace {
    pub(crate) fn new(tell: Tell) -> Self {
        Self {
            digest: 0xcbf2_9ce4_8422_2325,
            tell,
            lines: Vec::new(),
        }
    }

    /// Takes a number into the digest.
    pub(crate) fn number(&mut self, n: u64) {
        self.digest = (self.digest ^ n)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(23);
    }

    /// Takes bytes into the digest.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.number(u64::from_le_bytes(word));
        }
    }

    /// Whether the story is read.
    pub(crate) fn tells(&self) -> bool {
        self.tell > Tell::Nothing
    }

    /// A line of the story.
    pub(crate) fn story(&mut self, at: u64, line: &str) {
        if self.lines.len() < LINES_MAX && self.tells() {
            self.lines.push(format!("{:10.4} {line}", at as f64 / 1e9));
        }
        self.print(Tell::Story, at, line);
    }

    /// Adds a line that only serves to look for a defect. It is made only then.
    pub(crate) fn line(&mut self, at: u64, line: impl FnOnce() -> String) {
        if self.tell == Tell::Everything {
            self.print(Tell::Everything, at, &line());
        }
    }

    fn print(&self, least: Tell, at: u64, line: &str) {
        if self.tell >= least {
            // If the reader stops, it has read enough.
            let _ = writeln!(std::io::stdout(), "{:10.4} {line}", at as f64 / 1e9);
        }
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn into_story(self) -> Vec<String> {
        self.lines
    }
}
