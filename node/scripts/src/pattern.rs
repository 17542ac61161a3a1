//! Lua's patterns, with a bound on the work.
//!
//! Lua's own matcher runs in C, where no hook counts, and some patterns take exponential time
//! (`.-.-.-.-b`) or one stack frame for each of their items. This one counts its steps and bounds
//! its depth. It treats every pattern as Lua 5.1 does, such as a zero byte that ends the pattern.

use std::ops::Range;

/// The most captures of a pattern, as in Lua.
const CAPTURES_MAX: usize = 32;
/// The most nested items of a pattern that are tried at a time. Each takes a stack frame.
const DEPTH_MAX: usize = 200;

const ESCAPE: u8 = b'%';

/// Why a pattern could not be matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatternError {
    /// The pattern is wrong.
    Malformed(&'static str),
    /// The steps are used up.
    Exhausted,
}

use PatternError::{Exhausted, Malformed};

/// What a capture holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Bytes(usize),
    Unfinished,
    /// The capture `()`: a place, without bytes.
    Place,
}

/// A capture as the script gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    Bytes(Range<usize>),
    /// Counted from 1.
    Place(usize),
}

/// A pattern that is matched against a subject.
pub(crate) struct Matcher<'a> {
    subject: &'a [u8],
    pattern: &'a [u8],
    captures: [(usize, Length); CAPTURES_MAX],
    level: usize,
    depth: usize,
    steps_left: u64,
}

type Matched = Result<Option<usize>, PatternError>;

impl<'a> Matcher<'a> {
    pub(crate) fn new(subject: &'a [u8], pattern: &'a [u8], steps_max: u64) -> Matcher<'a> {
        Matcher {
            subject,
            pattern,
            captures: [(0, Length::Unfinished); CAPTURES_MAX],
            level: 0,
            depth: 0,
            steps_left: steps_max,
        }
    }

    pub(crate) fn steps_left(&self) -> u64 {
        self.steps_left
    }

    /// Matches at one place of the subject, with the pattern from `pattern_at` on. Returns the end
    /// of the match.
    pub(crate) fn match_at(&mut self, place: usize, pattern_at: usize) -> Matched {
        self.level = 0;
        self.depth = 0;
        self.step(1)?;
        self.run(place, pattern_at)
    }

    /// The captures of the last match. Without any in the pattern, it is the whole match.
    pub(crate) fn captures(&self, start: usize, end: usize) -> Result<Vec<Capture>, PatternError> {
        (0..self.level.max(1))
            .map(|index| self.capture(index, start, end))
            .collect()
    }

    /// One capture of the last match.
    pub(crate) fn capture(
        &self,
        index: usize,
        start: usize,
        end: usize,
    ) -> Result<Capture, PatternError> {
        if index >= self.level {
            return match index {
                0 => Ok(Capture::Bytes(start..end)),
                _ => Err(Malformed("invalid capture index")),
            };
        }
        match self.captures[index] {
            (at, Length::Bytes(length)) => Ok(Capture::Bytes(at..at + length)),
            (at, Length::Place) => Ok(Capture::Place(at + 1)),
            (_, Length::Unfinished) => Err(Malformed("unfinished capture")),
        }
    }

    pub(crate) fn has_captures(&self) -> bool {
        self.level > 0
    }

    fn step(&mut self, steps: usize) -> Result<(), PatternError> {
        self.steps_left = self.steps_left.checked_sub(steps as u64).ok_or(Exhausted)?;
        Ok(())
    }

    /// The byte of the pattern, or zero behind its end, as in a string of C.
    fn at(&self, at: usize) -> u8 {
        self.pattern.get(at).copied().unwrap_or(0)
    }

    /// Matches the pattern from `p` on at the place `s`.
    fn run(&mut self, mut s: usize, mut p: usize) -> Matched {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Malformed("pattern too complex"));
        }
        let matched = loop {
            self.step(1)?;
            match (self.at(p), self.at(p + 1)) {
                (b'(', b')') => break self.start_capture(s, p + 2, Length::Place)?,
                (b'(', _) => break self.start_capture(s, p + 1, Length::Unfinished)?,
                (b')', _) => break self.end_capture(s, p + 1)?,
                (0, _) => break Some(s),
                (b'$', 0) => break (s == self.subject.len()).then_some(s),
                (ESCAPE, b'b') => match self.balance(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => break None,
                },
                (ESCAPE, b'f') => match self.frontier(s, p + 2)? {
                    Some(next) => p = next,
                    None => break None,
                },
                (ESCAPE, digit @ b'0'..=b'9') => match self.repeated(s, digit)? {
                    Some(end) => (s, p) = (end, p + 2),
                    None => break None,
                },
                _ => {
                    let next = self.class_end(p)?;
                    let matches = self.single(s, p, next)?;
                    match self.at(next) {
                        b'?' => {
                            if matches && let Some(end) = self.run(s + 1, next + 1)? {
                                break Some(end);
                            }
                            p = next + 1;
                        }
                        b'*' => break self.most(s, p, next)?,
                        b'+' if matches => break self.most(s + 1, p, next)?,
                        b'+' => break None,
                        b'-' => break self.fewest(s, p, next)?,
                        _ if matches => (s, p) = (s + 1, next),
                        _ => break None,
                    }
                }
            }
        };
        self.depth -= 1;
        Ok(matched)
    }

    /// The end of the item that begins at `p`.
    fn class_end(&mut self, p: usize) -> Result<usize, PatternError> {
        match self.at(p) {
            ESCAPE if self.at(p + 1) == 0 => Err(Malformed("malformed pattern (ends with '%')")),
            ESCAPE => Ok(p + 2),
            b'[' => {
                let mut p = p + 1;
                if self.at(p) == b'^' {
                    p += 1;
                }
                loop {
                    self.step(1)?;
                    if self.at(p) == 0 {
                        return Err(Malformed("malformed pattern (missing ']')"));
                    }
                    p += 1;
                    if self.at(p - 1) == ESCAPE && self.at(p) != 0 {
                        p += 1;
                    }
                    if self.at(p) == b']' {
                        return Ok(p + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Whether the byte at `s` is of the item from `p` to `end`.
    fn single(&mut self, s: usize, p: usize, end: usize) -> Result<bool, PatternError> {
        let Some(byte) = self.subject.get(s).copied() else {
            return Ok(false);
        };
        self.step(1)?;
        match self.at(p) {
            b'.' => Ok(true),
            ESCAPE => Ok(is_of_class(byte, self.at(p + 1))),
            b'[' => self.is_of_set(byte, p, end - 1),
            other => Ok(other == byte),
        }
    }

    /// Whether a byte is of the set from `p` (its bracket) to `last` (the closing one).
    fn is_of_set(&mut self, byte: u8, mut p: usize, last: usize) -> Result<bool, PatternError> {
        self.step((last - p) / 4)?;
        let positive = self.at(p + 1) != b'^';
        if !positive {
            p += 1;
        }
        p += 1;
        while p < last {
            if self.at(p) == ESCAPE {
                p += 1;
                if is_of_class(byte, self.at(p)) {
                    return Ok(positive);
                }
            } else if self.at(p + 1) == b'-' && p + 2 < last {
                p += 2;
                if self.at(p - 2) <= byte && byte <= self.at(p) {
                    return Ok(positive);
                }
            } else if self.at(p) == byte {
                return Ok(positive);
            }
            p += 1;
        }
        Ok(!positive)
    }

    fn balance(&mut self, s: usize, p: usize) -> Matched {
        let (open, close) = (self.at(p), self.at(p + 1));
        if open == 0 || close == 0 {
            return Err(Malformed("unbalanced pattern"));
        }
        if self.subject.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut nested = 1;
        for at in s + 1..self.subject.len() {
            self.step(1)?;
            let byte = self.subject[at];
            if byte == close {
                nested -= 1;
                if nested == 0 {
                    return Ok(Some(at + 1));
                }
            } else if byte == open {
                nested += 1;
            }
        }
        Ok(None)
    }

    fn frontier(&mut self, s: usize, p: usize) -> Matched {
        if self.at(p) != b'[' {
            return Err(Malformed("missing '[' after '%f' in pattern"));
        }
        let end = self.class_end(p)?;
        let before = if s == 0 { 0 } else { self.subject[s - 1] };
        let here = self.subject.get(s).copied().unwrap_or(0);
        let begins = !self.is_of_set(before, p, end - 1)? && self.is_of_set(here, p, end - 1)?;
        Ok(begins.then_some(end))
    }

    fn repeated(&mut self, s: usize, digit: u8) -> Matched {
        let index = usize::from(digit).checked_sub(usize::from(b'1'));
        let (at, length) = match index.filter(|index| *index < self.level) {
            Some(index) => self.captures[index],
            None => return Err(Malformed("invalid capture index")),
        };
        match length {
            Length::Unfinished => Err(Malformed("invalid capture index")),
            Length::Place => Ok(None),
            Length::Bytes(length) => {
                self.step(length / 16)?;
                let same = self.subject[s..].starts_with(&self.subject[at..at + length]);
                Ok(same.then_some(s + length))
            }
        }
    }

    /// As many of the item as possible.
    fn most(&mut self, s: usize, p: usize, next: usize) -> Matched {
        let mut count = 0;
        while self.single(s + count, p, next)? {
            count += 1;
        }
        loop {
            if let Some(end) = self.run(s + count, next + 1)? {
                return Ok(Some(end));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    /// As few of the item as possible.
    fn fewest(&mut self, mut s: usize, p: usize, next: usize) -> Matched {
        loop {
            if let Some(end) = self.run(s, next + 1)? {
                return Ok(Some(end));
            }
            if !self.single(s, p, next)? {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn start_capture(&mut self, s: usize, p: usize, length: Length) -> Matched {
        if self.level >= CAPTURES_MAX {
            return Err(Malformed("too many captures"));
        }
        self.captures[self.level] = (s, length);
        self.level += 1;
        let matched = self.run(s, p)?;
        if matched.is_none() {
            self.level -= 1;
        }
        Ok(matched)
    }

    fn end_capture(&mut self, s: usize, p: usize) -> Matched {
        let open = (0..self.level)
            .rev()
            .find(|index| self.captures[*index].1 == Length::Unfinished);
        let Some(open) = open else {
            return Err(Malformed("invalid pattern capture"));
        };
        self.captures[open].1 = Length::Bytes(s - self.captures[open].0);
        let matched = self.run(s, p)?;
        if matched.is_none() {
            self.captures[open].1 = Length::Unfinished;
        }
        Ok(matched)
    }
}

fn is_of_class(byte: u8, class: u8) -> bool {
    let is = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is != class.is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(subject: &str, pattern: &str) -> Result<Option<Range<usize>>, PatternError> {
        let mut matcher = Matcher::new(subject.as_bytes(), pattern.as_bytes(), 100_000);
        for start in 0..=subject.len() {
            if let Some(end) = matcher.match_at(start, 0)? {
                return Ok(Some(start..end));
            }
        }
        Ok(None)
    }

    #[test]
    fn every_kind_of_item_matches_as_in_lua() {
        for (subject, pattern, found) in [
            ("hello", "l+", Some(2..4)),
            ("hello", "l-o", Some(2..5)),
            ("hello", "x?e", Some(1..2)),
            ("a.b", "%.", Some(1..2)),
            ("k=(v(w))", "%b()", Some(2..8)),
            ("THE (quick) fox", "%f[%a]%a+%f[%A]", Some(0..3)),
            ("abab", "(ab)%1", Some(0..4)),
            ("a-b", "[%w-]+", Some(0..3)),
            ("x]y", "[]]", Some(1..2)),
            ("x^y", "[x^]+", Some(0..2)),
            ("a1", "%D%d$", Some(0..2)),
            ("a1", "%d%D", None),
            ("a\0b", "a%zb", Some(0..3)),
        ] {
            assert_eq!(find(subject, pattern), Ok(found), "{subject} {pattern}");
        }
    }

    #[test]
    fn a_wrong_pattern_is_named() {
        for (pattern, text) in [
            ("[a", "malformed pattern (missing ']')"),
            ("a%", "malformed pattern (ends with '%')"),
            ("%f", "missing '[' after '%f' in pattern"),
            ("%b", "unbalanced pattern"),
            ("%1", "invalid capture index"),
            ("a)", "invalid pattern capture"),
        ] {
            assert_eq!(find("aaa", pattern), Err(Malformed(text)), "{pattern}");
        }
        let many = "()".repeat(33);
        assert_eq!(find("a", &many), Err(Malformed("too many captures")));
    }

    #[test]
    fn a_pattern_of_exponential_time_ends() {
        let subject = "a".repeat(1000);
        assert_eq!(find(&subject, ".-.-.-.-.-.-.-.-b"), Err(Exhausted));
        assert_eq!(find(&subject, "(.*)*(.*)*(.*)*(.*)*(.*)*b"), Err(Exhausted));
    }

    #[test]
    fn a_pattern_of_many_items_does_not_use_up_the_stack() {
        let pattern = "a?".repeat(100_000);
        assert_eq!(
            find(&"a".repeat(100_000), &pattern),
            Err(Malformed("pattern too complex"))
        );
    }
}
