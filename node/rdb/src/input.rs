//! Numbers, lengths and strings, as they lie in every value.

use crate::error::RdbError;
use crate::{CHECKSUM, ELEMENT_OVERHEAD, lzf};
use crc::{Digest, Table};
use std::borrow::Cow;
use std::io::Read;

/// What is allocated before its bytes are there.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// Bytes that are read once, from the first to the last.
pub(crate) struct RdbInput<R> {
    from: R,
    /// How many were read.
    at: u64,
    sum: Option<Digest<'static, u64, Table<16>>>,
    /// What the value that is being read may still take, and the limit that it began with.
    left: usize,
    limit: usize,
}

/// What a length's first byte says.
pub(crate) enum RdbLength {
    Plain(u64),
    /// A string that is an integer or compressed.
    Special(u8),
}

impl<R: Read> RdbInput<R> {
    pub(crate) fn new(from: R, is_summed: bool) -> Self {
        Self {
            from,
            at: 0,
            sum: is_summed.then(|| CHECKSUM.digest()),
            left: usize::MAX,
            limit: usize::MAX,
        }
    }

    pub(crate) const fn at(&self) -> u64 {
        self.at
    }

    /// The checksum of all that was read.
    pub(crate) fn sum(&self) -> u64 {
        self.sum.clone().map_or(0, |sum| sum.finalize())
    }

    pub(crate) fn into_inner(self) -> R {
        self.from
    }

    /// A value begins that may take this much.
    pub(crate) const fn begin_value(&mut self, limit: usize) {
        (self.left, self.limit) = (limit, limit);
    }

    /// Counts an element of this many bytes.
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), RdbError> {
        match self
            .left
            .checked_sub(bytes.saturating_add(ELEMENT_OVERHEAD))
        {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(self.too_large()),
        }
    }

    fn too_large(&self) -> RdbError {
        let (at, limit) = (self.at, self.limit);
        RdbError::TooLarge { at, limit }
    }

    pub(crate) fn malformed(&self, expected: impl Into<Cow<'static, str>>) -> RdbError {
        RdbError::Malformed {
            at: self.at,
            expected: expected.into(),
        }
    }

    /// An error about the last byte that was read.
    pub(crate) fn unknown(&self, what: String) -> RdbError {
        let at = self.at.saturating_sub(1);
        RdbError::Unknown { at, what }
    }

    fn cut_off(&self, expected: &'static str) -> RdbError {
        RdbError::CutOff {
            at: self.at,
            expected: expected.into(),
        }
    }

    /// The next `N` bytes, which are what the text says.
    pub(crate) fn array<const N: usize>(
        &mut self,
        expected: &'static str,
    ) -> Result<[u8; N], RdbError> {
        let mut out = [0; N];
        match self.from.read_exact(&mut out) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err(self.cut_off(expected));
            }
            Err(e) => return Err(e.into()),
        }
        self.at += N as u64;
        if let Some(sum) = &mut self.sum {
            sum.update(&out);
        }
        Ok(out)
    }

    pub(crate) fn byte(&mut self, expected: &'static str) -> Result<u8, RdbError> {
        Ok(self.array::<1>(expected)?[0])
    }

    /// The next `length` bytes; memory grows as they come.
    fn bytes(&mut self, length: u64, expected: &'static str) -> Result<Vec<u8>, RdbError> {
        let wanted = usize::try_from(length).unwrap_or(usize::MAX);
        if wanted > self.left {
            return Err(self.too_large());
        }
        let mut out = Vec::with_capacity(wanted.min(AHEAD_BYTES_MAX));
        (&mut self.from).take(length).read_to_end(&mut out)?;
        self.at += out.len() as u64;
        if let Some(sum) = &mut self.sum {
            sum.update(&out);
        }
        if out.len() < wanted {
            return Err(self.cut_off(expected));
        }
        Ok(out)
    }

    /// A length, or how a string lies.
    pub(crate) fn length_or_encoding(
        &mut self,
        expected: &'static str,
    ) -> Result<RdbLength, RdbError> {
        let first = self.byte(expected)?;
        let low = first & 0x3F;
        Ok(match first >> 6 {
            0 => RdbLength::Plain(low.into()),
            1 => RdbLength::Plain(u64::from(low) << 8 | u64::from(self.byte(expected)?)),
            3 => RdbLength::Special(low),
            _ => match first {
                0x80 => RdbLength::Plain(u32::from_be_bytes(self.array(expected)?).into()),
                0x81 => RdbLength::Plain(u64::from_be_bytes(self.array(expected)?)),
                _ => return Err(self.malformed(expected)),
            },
        })
    }

    /// A length.
    pub(crate) fn length(&mut self, expected: &'static str) -> Result<u64, RdbError> {
        match self.length_or_encoding(expected)? {
            RdbLength::Plain(length) => Ok(length),
            RdbLength::Special(_) => Err(self.malformed(expected)),
        }
    }

    /// A string of any encoding.
    pub(crate) fn string(&mut self, expected: &'static str) -> Result<Vec<u8>, RdbError> {
        let integer = match self.length_or_encoding(expected)? {
            RdbLength::Plain(length) => return self.bytes(length, expected),
            RdbLength::Special(0) => i32::from(i8::from_le_bytes(self.array(expected)?)),
            RdbLength::Special(1) => i32::from(i16::from_le_bytes(self.array(expected)?)),
            RdbLength::Special(2) => i32::from_le_bytes(self.array(expected)?),
            RdbLength::Special(3) => {
                let compressed = self.length("the length of a compressed string")?;
                let length = self.length("the length of a string before it was compressed")?;
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                if length > self.left {
                    return Err(self.too_large());
                }
                let bytes = self.bytes(compressed, expected)?;
                let whole = lzf::decompress(&bytes, length);
                return whole.ok_or_else(|| self.malformed("a string that LZF can decompress"));
            }
            RdbLength::Special(_) => return Err(self.malformed(expected)),
        };
        Ok(itoa::Buffer::new().format(integer).as_bytes().to_vec())
    }

    /// A string that is an element of a value.
    pub(crate) fn element(&mut self, expected: &'static str) -> Result<Vec<u8>, RdbError> {
        let element = self.string(expected)?;
        self.charge(element.len())?;
        Ok(element)
    }
}
