//! Why bytes were refused.

use std::borrow::Cow;
use std::io;

/// Why a file or a payload was not read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RdbError {
    /// The reader or the writer failed.
    #[error(transparent)]
    Io(#[from] io::Error),

    /// The input ended within something.
    #[error("the input ends at byte {at}, where {expected} was expected; it was cut off")]
    CutOff {
        /// How many bytes there were.
        at: u64,
        /// What was missing.
        expected: Cow<'static, str>,
    },

    /// The bytes are not what RDB has there.
    #[error("at byte {at}: {expected} was expected; the input is damaged, or not of this format")]
    Malformed {
        /// Where.
        at: u64,
        /// What was expected.
        expected: Cow<'static, str>,
    },

    /// The input may be right, but this crate does not read it.
    #[error("at byte {at}: {what} is not known here")]
    Unknown {
        /// Where.
        at: u64,
        /// What was found.
        what: String,
    },

    /// The value takes more than its reader allows.
    #[error("at byte {at}: the value takes more than the {limit} bytes that are allowed")]
    TooLarge {
        /// Where.
        at: u64,
        /// The limit.
        limit: usize,
    },

    /// The checksum at the end does not fit.
    #[error("the checksum is {found:016x}, but the bytes before it have {computed:016x}")]
    Checksum {
        /// The stored one.
        found: u64,
        /// That of the bytes.
        computed: u64,
    },

    /// The payload of a DUMP has another version or checksum.
    #[error("the payload's version or checksum is wrong")]
    Footer,

    /// The value needs a newer version than the file has.
    #[error("its value needs RDB version {needed}, and the file has version {version}")]
    Version {
        /// The oldest version that can hold it.
        needed: u16,
        /// The file's.
        version: u16,
    },

    /// A line of JSON is refused.
    #[error("line {line}: {why}: correct the line, or remove it")]
    Line {
        /// Its number, from 1 on.
        line: u64,
        /// What is wrong.
        why: String,
    },

    /// A value was refused.
    #[error("key \"{}\": {source}", shown_key(key))]
    OfKey {
        /// Its key.
        key: Vec<u8>,
        /// Why.
        source: Box<RdbError>,
    },
}

impl RdbError {
    /// The same error, about this key.
    #[must_use]
    pub fn of_key(self, key: &[u8]) -> Self {
        Self::OfKey {
            key: key.to_vec(),
            source: Box::new(self),
        }
    }
}

/// The most bytes of a key that are shown.
const SHOWN_BYTES_MAX: usize = 200;

/// A key or a name for a person to read. Of a long one, only its beginning and its length.
#[must_use]
pub fn shown_key(key: &[u8]) -> String {
    match key.split_at_checked(SHOWN_BYTES_MAX) {
        Some((begins, rest)) if !rest.is_empty() => {
            format!("{}... ({} bytes)", begins.escape_ascii(), key.len())
        }
        _ => key.escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_key_the_beginning_is_shown() {
        assert_eq!(shown_key(b"a\xff\n"), "a\\xff\\n");
        assert_eq!(shown_key(&[b'k'; 200]), "k".repeat(200));
        let long = RdbError::Footer.of_key(&[b'k'; 70_000]).to_string();
        assert!(long.contains("k... (70000 bytes)\": "), "{long}");
        assert!(long.len() < 400, "{long}");
    }
}
