//! What happened: a digest always, readable lines on demand.

use std::collections::VecDeque;

/// Lines kept for a failure.
const LINES_MAX: usize = 400;

/// What happened so far.
#[derive(Debug)]
pub(crate) struct Trace {
    digest: u64,
    keep: bool,
    print: bool,
    lines: VecDeque<String>,
}

impl Trace {
    pub(crate) fn new(keep: bool, print: bool) -> Self {
        Self { digest: 0xcbf2_9ce4_8422_2325, keep, print, lines: VecDeque::new() }
    }

    /// Takes a number into the digest.
    pub(crate) fn number(&mut self, n: u64) {
        self.digest = (self.digest ^ n).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
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

    /// Takes a line, made only if somebody reads it.
    pub(crate) fn line(&mut self, at: u64, line: impl FnOnce() -> String) {
        if !self.keep {
            return;
        }
        let line = format!("{:12.6} {}", at as f64 / 1e9, line());
        if self.print {
            println!("{line}");
        }
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}
