//! Cuts what clients send into commands: arrays of bulk strings, and lines as people type them.
//!
//! The parser looks at the connection's read buffer and remembers positions only. So a value that
//! arrives in many pieces is looked at once, and nothing is copied. When some commands are whole,
//! the caller freezes that part of the buffer, and every argument is a slice of it.

use bytes::Bytes;
use doyen_engine::command::Arguments;
use doyen_engine::integer;

/// Longest line: an inline command, or the header of an array or of a bulk string.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// Beyond this many arguments Redis calls the number invalid.
const REDIS_ARGS_MAX: i64 = 1 << 20;
/// Most arguments of one command. Redis accepts a million. The memory that a command needs besides
/// its bytes is not counted, so the limit here is lower.
pub const ARGS_MAX: usize = 1 << 17;
/// Redis's limits before a client has authenticated: most arguments, longest argument, longest
/// line.
const UNAUTHENTICATED_ARGS_MAX: usize = 10;
const UNAUTHENTICATED_BULK_MAX: usize = 16 << 10;
const UNAUTHENTICATED_LINE_MAX: usize = 16 << 10;
/// The same for the longest command: one such argument and room for the others. A stranger holds no
/// more than that.
const UNAUTHENTICATED_COMMAND_MAX: usize = 20 << 10;

/// A bulk string longer than this is an error that closes the connection. A shorter one above the
/// value limit is skipped as it comes, and refused. This is Redis's `proto-max-bulk-len`.
const SKIPPED_BULK_MAX: usize = 512 << 20;
/// The first byte of a client that speaks TLS. No command begins with it.
const TLS_HANDSHAKE: u8 = 22;
/// A line of an HTTP request begins with one of these. No command has such a name.
const HTTP: [&[u8]; 2] = [b"POST", b"Host:"];
/// If the arguments took more room than this, it is given back once the command is done.
const ARGS_KEPT_MAX: usize = 1 << 10;

/// Why a command was skipped instead of kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooLarge {
    /// One argument is above the limit.
    Argument,
    /// The whole command is above the limit.
    Command,
}

/// The client does not speak the protocol; its connection is closed with this text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ERR Protocol error: {0}")]
pub struct ProtocolError(pub String);

/// One argument: its place in the buffer, or the text that an inline command's quotes stand for.
#[derive(Debug, Clone)]
enum Arg {
    At { start: usize, end: usize },
    Unquoted(Bytes),
}

/// The arguments of one command, over the frozen part of the read buffer. Empty only if it was
/// skipped.
#[derive(Debug, Clone, Copy)]
pub struct Args<'a> {
    chunk: &'a Bytes,
    base: usize,
    args: &'a [Arg],
    too_large: Option<TooLarge>,
}

impl<'a> Args<'a> {
    /// No arguments.
    pub(super) const fn none() -> Self {
        static EMPTY: Bytes = Bytes::new();
        Self {
            chunk: &EMPTY,
            base: 0,
            args: &[],
            too_large: None,
        }
    }

    /// How many, the command's name among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.args.len()
    }

    /// Why the command was skipped, if it was.
    #[must_use]
    pub fn too_large(&self) -> Option<TooLarge> {
        self.too_large
    }

    /// Whether there are no arguments.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.args.is_empty()
    }

    /// The bytes of one argument; empty if it is not there.
    #[must_use]
    pub fn get(&self, index: usize) -> &'a [u8] {
        match self.args.get(index) {
            Some(Arg::At { start, end }) => self
                .chunk
                .get(self.base + start..self.base + end)
                .unwrap_or_default(),
            Some(Arg::Unquoted(bytes)) => bytes,
            None => &[],
        }
    }

    /// One argument, shared with the read buffer; empty if it is not there.
    #[must_use]
    pub fn bytes(&self, index: usize) -> Bytes {
        match self.args.get(index) {
            Some(Arg::At { start, end }) if self.base + end <= self.chunk.len() => {
                self.chunk.slice(self.base + start..self.base + end)
            }
            Some(Arg::Unquoted(bytes)) => bytes.clone(),
            Some(Arg::At { .. }) | None => Bytes::new(),
        }
    }

    /// The arguments from `from` on.
    pub fn iter_from(self, from: usize) -> impl Iterator<Item = &'a [u8]> {
        (from..self.len()).map(move |i| self.get(i))
    }
}

impl Arguments for Args<'_> {
    fn len(&self) -> usize {
        self.len()
    }

    fn get(&self, at: usize) -> &[u8] {
        self.get(at)
    }

    fn bytes(&self, at: usize) -> Bytes {
        self.bytes(at)
    }
}

/// A whole command: where it begins in the chunk, and where its arguments end in the list of them.
#[derive(Debug, Clone, Copy)]
struct Whole {
    base: usize,
    args_end: usize,
    too_large: Option<TooLarge>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParserState {
    Start,
    Array { left: usize, bulk: Option<usize> },
}

/// Cuts one connection's bytes into commands.
#[derive(Debug)]
pub struct Parser {
    bulk_bytes_max: usize,
    command_bytes_max: usize,
    state: ParserState,
    /// How much of the present command has been parsed, from its first byte.
    at: usize,
    args: Vec<Arg>,
    whole: Vec<Whole>,
    /// The present command is skipped.
    too_large: Option<TooLarge>,
}

impl Parser {
    /// Accepts bulk strings up to `bulk_bytes_max`, and whole commands up to four times that, but
    /// at least 1 MiB.
    #[must_use]
    pub fn new(bulk_bytes_max: usize) -> Self {
        let command_bytes_max = bulk_bytes_max.saturating_mul(4).max(1 << 20);
        Self {
            bulk_bytes_max,
            command_bytes_max,
            state: ParserState::Start,
            at: 0,
            args: Vec::new(),
            whole: Vec::new(),
            too_large: None,
        }
    }

    /// Finds whole commands, at most `commands_max`, and says how many bytes they take. Call
    /// `commands` with just those bytes, then `clear`, before the next call.
    ///
    /// # Errors
    /// What follows the commands found so far is not the protocol.
    pub fn parse(
        &mut self,
        buffer: &[u8],
        authenticated: bool,
        commands_max: usize,
    ) -> (usize, Result<(), ProtocolError>) {
        let mut base = 0;
        while self.whole.len() < commands_max && base < buffer.len() {
            let args_before = self.whole.last().map_or(0, |w| w.args_end);
            match self.step(&buffer[base..], authenticated) {
                Ok(true) => {
                    let too_large = self.too_large.take();
                    if too_large.is_some() {
                        self.args.truncate(args_before);
                    }
                    if self.args.len() > args_before || too_large.is_some() {
                        self.whole.push(Whole {
                            base,
                            args_end: self.args.len(),
                            too_large,
                        });
                    }
                    base += self.at;
                    self.at = 0;
                    self.state = ParserState::Start;
                }
                Ok(false) if self.too_large.is_some() => {
                    // The command is skipped, so its arguments go at once.
                    self.args.truncate(args_before);
                    base += self.skip(buffer.len() - base);
                    break;
                }
                Ok(false) => break,
                Err(why) => return (base, Err(why)),
            }
        }
        (base, Ok(()))
    }

    /// Drops those of the `available` bytes that belong to the present command. Returns how many
    /// were dropped.
    fn skip(&mut self, available: usize) -> usize {
        let mut gone = self.at.min(available);
        if let ParserState::Array {
            bulk: Some(length), ..
        } = &mut self.state
        {
            let skipped = (available - gone).min(*length);
            *length -= skipped;
            gone += skipped;
        }
        self.at = 0;
        gone
    }

    /// About how many bytes of memory the parser holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.args.capacity() * size_of::<Arg>()
    }

    /// The whole commands found, over the bytes that they took.
    pub fn commands<'a>(&'a self, chunk: &'a Bytes) -> impl Iterator<Item = Args<'a>> + Clone {
        let mut from = 0;
        self.whole.iter().map(move |w| {
            let args = Args {
                chunk,
                base: w.base,
                args: &self.args[from..w.args_end],
                too_large: w.too_large,
            };
            from = w.args_end;
            args
        })
    }

    /// Forgets the whole commands. What was parsed of the next one stays.
    pub fn clear(&mut self) {
        if let Some(last) = self.whole.last() {
            self.args.drain(..last.args_end);
            self.whole.clear();
            if self.args.capacity() > ARGS_KEPT_MAX && self.args.is_empty() {
                self.args = Vec::new();
            }
        }
    }

    /// Continues with the command that begins with `rest`. True if the command is whole; then `at`
    /// is its length.
    fn step(&mut self, rest: &[u8], authenticated: bool) -> Result<bool, ProtocolError> {
        let line_max = if authenticated {
            LINE_BYTES_MAX
        } else {
            UNAUTHENTICATED_LINE_MAX
        };
        loop {
            match self.state {
                ParserState::Start if rest.first() != Some(&b'*') => {
                    return self.inline(rest, line_max);
                }
                ParserState::Start => {
                    let Some((line, next)) = line(rest, 1, line_max, "too big mbulk count string")?
                    else {
                        return Ok(false);
                    };
                    let count = integer(line)
                        .filter(|n| *n <= REDIS_ARGS_MAX)
                        .ok_or_else(|| error("invalid multibulk length"))?;
                    if count > ARGS_MAX as i64 {
                        return Err(error(&format!(
                            "one command has {count} arguments: at most {ARGS_MAX} are allowed; \
                             send several commands"
                        )));
                    }
                    self.at = next;
                    let count = usize::try_from(count).unwrap_or(0);
                    if count == 0 {
                        return Ok(true);
                    }
                    if !authenticated && count > UNAUTHENTICATED_ARGS_MAX {
                        return Err(error("unauthenticated multibulk length"));
                    }
                    self.state = ParserState::Array {
                        left: count,
                        bulk: None,
                    };
                }
                ParserState::Array { left, bulk: None } => {
                    let Some(&first) = rest.get(self.at) else {
                        return Ok(false);
                    };
                    if first != b'$' {
                        return Err(error(&format!("expected '$', got '{}'", printable(first))));
                    }
                    let Some((line, next)) =
                        line(rest, self.at + 1, line_max, "too big bulk count string")?
                    else {
                        return Ok(false);
                    };
                    let length = integer(line).and_then(|n| usize::try_from(n).ok());
                    let length = length.ok_or_else(|| error("invalid bulk length"))?;
                    if !authenticated
                        && (length > UNAUTHENTICATED_BULK_MAX
                            || next + length > UNAUTHENTICATED_COMMAND_MAX)
                    {
                        return Err(error("unauthenticated bulk length"));
                    }
                    if length > SKIPPED_BULK_MAX.max(self.bulk_bytes_max) {
                        return Err(error(&format!(
                            "invalid bulk length: at most {} bytes (--value-max)",
                            self.bulk_bytes_max
                        )));
                    }
                    if length > self.bulk_bytes_max {
                        self.too_large = Some(TooLarge::Argument);
                    } else if next + length > self.command_bytes_max {
                        self.too_large.get_or_insert(TooLarge::Command);
                    }
                    self.at = next;
                    self.state = ParserState::Array {
                        left,
                        bulk: Some(length),
                    };
                }
                ParserState::Array {
                    left,
                    bulk: Some(length),
                } => {
                    let end = self.at + length;
                    if rest.len() < end + 2 {
                        return Ok(false);
                    }
                    self.args.push(Arg::At {
                        start: self.at,
                        end,
                    });
                    // As in Redis, any two bytes in place of CR LF are skipped.
                    self.at = end + 2;
                    if left == 1 {
                        return Ok(true);
                    }
                    self.state = ParserState::Array {
                        left: left - 1,
                        bulk: None,
                    };
                }
            }
        }
    }

    fn inline(&mut self, rest: &[u8], line_max: usize) -> Result<bool, ProtocolError> {
        // Such a client would wait for ever: its first message need not have the end of a line.
        if rest.first() == Some(&TLS_HANDSHAKE) {
            return Err(error("this port does not speak TLS: connect without it"));
        }
        let Some(newline) = rest.iter().take(line_max + 1).position(|&b| b == b'\n') else {
            return if rest.len() > line_max {
                Err(error("too big inline request"))
            } else {
                Ok(false)
            };
        };
        let line = rest[..newline]
            .strip_suffix(b"\r")
            .unwrap_or(&rest[..newline]);
        let words = words(line).ok_or_else(|| error("unbalanced quotes in request"))?;
        // A web page can make its reader's browser send such a line here, and commands of the
        // page's choice after it. Redis closes, too.
        if words
            .first()
            .is_some_and(|word| HTTP.iter().any(|http| word.eq_ignore_ascii_case(http)))
        {
            return Err(error(
                "this port speaks RESP; for HTTP, use the port of --http",
            ));
        }
        self.args.extend(words.into_iter().map(Arg::Unquoted));
        self.at = newline + 1;
        Ok(true)
    }
}

fn error(text: &str) -> ProtocolError {
    ProtocolError(text.to_owned())
}

/// A byte as it may appear in an error line.
fn printable(byte: u8) -> char {
    if byte.is_ascii_graphic() || byte == b' ' {
        char::from(byte)
    } else {
        '?'
    }
}

/// The line that begins at `from`, of `most` bytes at most, and where the next begins.
fn line<'a>(
    rest: &'a [u8],
    from: usize,
    most: usize,
    too_long: &str,
) -> Result<Option<(&'a [u8], usize)>, ProtocolError> {
    let line = rest.get(from..).unwrap_or_default();
    match line.iter().take(most + 1).position(|&b| b == b'\r') {
        // The byte after CR is skipped without a check, as in Redis, but it must be there.
        Some(end) if from + end + 1 < rest.len() => Ok(Some((&line[..end], from + end + 2))),
        Some(_) => Ok(None),
        None if line.len() > most => Err(error(too_long)),
        None => Ok(None),
    }
}

/// The words of a line with Redis's quotes; `None` if the quotes are not balanced.
fn words(line: &[u8]) -> Option<Vec<Bytes>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        while let [blank, after @ ..] = rest
            && blank.is_ascii_whitespace()
        {
            rest = after;
        }
        if rest.is_empty() {
            return Some(words);
        }
        let (word, after) = word(rest)?;
        words.push(Bytes::from(word));
        rest = after;
    }
}

fn word(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    let mut quote = None;
    loop {
        let (taken, after): (Option<u8>, &[u8]) = match (quote, rest) {
            (None, []) => return Some((word, rest)),
            (Some(_), []) => return None,
            (None, [b, ..]) if b.is_ascii_whitespace() => return Some((word, rest)),
            (None, [b @ (b'"' | b'\''), after @ ..]) => {
                quote = Some(*b);
                (None, after)
            }
            (Some(b'"'), [b'\\', b'x', high, low, after @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (Some(hex(*high) << 4 | hex(*low)), after)
            }
            (Some(b'"'), [b'\\', escaped, after @ ..]) => (Some(unescape(*escaped)), after),
            (Some(b'\''), [b'\\', b'\'', after @ ..]) => (Some(b'\''), after),
            (Some(open), [b, after @ ..]) if open == *b => {
                // A closing quote ends the word: a blank or the end must follow.
                return after
                    .first()
                    .is_none_or(u8::is_ascii_whitespace)
                    .then_some((word, after));
            }
            (_, [b, after @ ..]) => (Some(*b), after),
        };
        word.extend(taken);
        rest = after;
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        b'A'..=b'F' => digit - b'A' + 10,
        _ => 0,
    }
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

#[cfg(test)]
mod tests;
