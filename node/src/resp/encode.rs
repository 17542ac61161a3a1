//! Replies, in RESP2 or RESP3, appended to a connection's output buffer.

use bytes::BytesMut;
use doyen_engine::command::{CommandReply, Part};

/// Which protocol a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// RESP2, as every connection begins.
    #[default]
    Resp2,
    /// RESP3, after `HELLO 3`.
    Resp3,
}

/// Appends replies to a buffer.
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut BytesMut,
    protocol: Protocol,
    errors: u64,
}

impl<'a> Encoder<'a> {
    /// Appends to `out`.
    pub fn new(out: &'a mut BytesMut, protocol: Protocol) -> Self {
        Self {
            out,
            protocol,
            errors: 0,
        }
    }

    /// Bytes in the buffer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Error lines that were appended.
    #[must_use]
    pub const fn errors(&self) -> u64 {
        self.errors
    }

    /// Whether the buffer is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// A command's reply.
    pub fn reply(&mut self, reply: &CommandReply) {
        match reply {
            CommandReply::Status(text) => self.simple(text),
            CommandReply::Error(why) => self.error(&why.0),
            CommandReply::Int(number) => self.integer(*number),
            CommandReply::Bulk(value) => self.bulk(value),
            CommandReply::Double(text) if self.protocol == Protocol::Resp3 => {
                self.line(b',', text);
            }
            CommandReply::Double(text) => self.bulk(text),
            CommandReply::Encoded(reply) => self.encoded(reply),
            CommandReply::Nil => self.nil(),
            CommandReply::NilArray => self.nil_array(),
            CommandReply::Pairs(parts) if self.protocol == Protocol::Resp3 => {
                self.array(parts.len() / 2);
                for pair in parts.chunks(2) {
                    self.array(pair.len());
                    pair.iter().for_each(|part| self.reply(part));
                }
            }
            CommandReply::Fields(fields) => {
                let items = fields.iter();
                self.fields(items.clone().count(), fields.part());
                items.for_each(|item| self.bulk(item));
            }
            CommandReply::Map(parts) | CommandReply::Keyed(parts)
                if self.protocol == Protocol::Resp3 =>
            {
                self.map(parts.len() / 2);
                parts.iter().for_each(|part| self.reply(part));
            }
            CommandReply::Keyed(parts) => {
                self.array(parts.len() / 2);
                for pair in parts.chunks(2) {
                    self.array(pair.len());
                    pair.iter().for_each(|part| self.reply(part));
                }
            }
            CommandReply::Array(parts) | CommandReply::Pairs(parts) | CommandReply::Map(parts) => {
                self.array(parts.len());
                parts.iter().for_each(|part| self.reply(part));
            }
        }
    }

    /// `+OK` and the like; `text` has no line break.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error line, such as `ERR syntax error`. Line breaks become blanks.
    pub fn error(&mut self, text: &str) {
        self.errors += 1;
        self.out.extend_from_slice(b"-");
        self.out.extend(
            text.bytes()
                .map(|b| if matches!(b, b'\r' | b'\n') { b' ' } else { b }),
        );
        self.out.extend_from_slice(b"\r\n");
    }

    /// A reply that was encoded before, for the same protocol.
    pub fn encoded(&mut self, reply: &[u8]) {
        self.errors += u64::from(reply.first() == Some(&b'-'));
        self.out.extend_from_slice(reply);
    }

    /// An integer.
    pub fn integer(&mut self, value: i64) {
        self.line(b':', itoa::Buffer::new().format(value).as_bytes());
    }

    /// A string of bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.bulk_head(bytes.len());
        self.out.extend_from_slice(bytes);
        self.bulk_end();
    }

    /// The head of a string of `length` bytes.
    pub fn bulk_head(&mut self, length: usize) {
        self.line(b'$', itoa::Buffer::new().format(length).as_bytes());
    }

    /// The end of a string, after `bulk_head` and its bytes.
    pub fn bulk_end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// A text for people: a verbatim string in RESP3, a bulk string in RESP2.
    pub fn text(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.line(b'=', itoa::Buffer::new().format(text.len() + 4).as_bytes());
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// A null reply.
    pub fn nil(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.out.extend_from_slice(b"$-1\r\n"),
            Protocol::Resp3 => self.out.extend_from_slice(b"_\r\n"),
        }
    }

    /// A null reply where an array is expected.
    pub fn nil_array(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.out.extend_from_slice(b"*-1\r\n"),
            Protocol::Resp3 => self.out.extend_from_slice(b"_\r\n"),
        }
    }

    /// A number that need not be whole. A string in RESP2.
    pub fn double(&mut self, value: f64) {
        let text = value.to_string();
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => self.line(b',', text.as_bytes()),
        }
    }

    /// The head of an array; its elements follow.
    pub fn array(&mut self, elements: usize) {
        self.line(b'*', itoa::Buffer::new().format(elements).as_bytes());
    }

    /// The head of a message that answers no command; its elements follow. An array in RESP2.
    pub fn push(&mut self, elements: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(elements),
            Protocol::Resp3 => self.line(b'>', itoa::Buffer::new().format(elements).as_bytes()),
        }
    }

    /// The head of a map; keys and values follow in turn. A flat array in RESP2.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(pairs * 2),
            Protocol::Resp3 => self.line(b'%', itoa::Buffer::new().format(pairs).as_bytes()),
        }
    }

    /// The head of a part of a collection; `items` follow.
    pub fn fields(&mut self, items: usize, part: Part) {
        match part {
            Part::Whole => self.map(items / 2),
            Part::Fields | Part::Values | Part::Elements => self.array(items),
            Part::Members => self.set(items),
        }
    }

    /// The head of a set. An array in RESP2.
    pub fn set(&mut self, elements: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(elements),
            Protocol::Resp3 => self.line(b'~', itoa::Buffer::new().format(elements).as_bytes()),
        }
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.extend_from_slice(&[kind]);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_reply_is_encoded_in_both_protocols() {
        let reply = CommandReply::Array(vec![
            CommandReply::OK,
            CommandReply::Error("ERR a\nb".to_owned().into()),
            CommandReply::Int(-7),
            CommandReply::Bulk(b"v"[..].into()),
            CommandReply::Array(vec![CommandReply::Nil]),
        ]);
        for (protocol, nil) in [(Protocol::Resp2, "$-1"), (Protocol::Resp3, "_")] {
            let mut out = BytesMut::new();
            let mut encoder = Encoder::new(&mut out, protocol);
            encoder.reply(&reply);
            assert_eq!(encoder.errors(), 1);
            let expected = format!("*5\r\n+OK\r\n-ERR a b\r\n:-7\r\n$1\r\nv\r\n*1\r\n{nil}\r\n");
            assert_eq!(out, expected.as_bytes());
        }
    }
}
