//! Whole files: a header, keys with their values, the end and a checksum.

use crate::error::RdbError;
use crate::input::RdbInput;
use crate::payload::dialect;
use crate::read::{self, Dialect};
use crate::value::RdbValue;
use crate::{CHECKSUM, VALUE_BYTES_MAX, VERSION_MAX, write};
use crc::{Digest, Table};
use std::io::{Read, Write};

/// What stands where a type may stand.
mod marks {
    pub(super) const SLOT_INFO: u8 = 244;
    pub(super) const FUNCTION: u8 = 245;
    pub(super) const MODULE_AUX: u8 = 247;
    pub(super) const IDLE: u8 = 248;
    pub(super) const FREQUENCY: u8 = 249;
    pub(super) const AUX: u8 = 250;
    pub(super) const RESIZE: u8 = 251;
    pub(super) const DEADLINE_MS: u8 = 252;
    pub(super) const DEADLINE_S: u8 = 253;
    pub(super) const DATABASE: u8 = 254;
    pub(super) const END: u8 = 255;
}

/// A key of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct RdbKey {
    /// Its database.
    pub database: u64,
    /// The key.
    pub key: Vec<u8>,
    /// When it expires, in milliseconds since 1970.
    pub deadline: Option<u64>,
    /// What it holds.
    pub value: RdbValue,
}

/// Reads a file, key by key. It ends after the first error. It reads not one byte behind the file's
/// end, so other bytes may follow; the reader that it is given should have a buffer.
#[derive(Debug)]
pub struct RdbReader<R> {
    input: RdbInput<R>,
    version: u16,
    dialect: Dialect,
    database: u64,
    functions: u64,
    is_done: bool,
}

impl<R> std::fmt::Debug for RdbInput<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RdbInput").finish_non_exhaustive()
    }
}

impl<R: Read> RdbReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// It is no header of a version that is known here.
    pub fn new(from: R) -> Result<Self, RdbError> {
        let mut input = RdbInput::new(from, true);
        let expected = "the header of an RDB file (REDIS and four digits)";
        let header: [u8; 9] = input.array(expected)?;
        let digits = header
            .strip_prefix(b"REDIS")
            .or(header.strip_prefix(b"VALKEY"));
        let version = digits.and_then(|digits| str::from_utf8(digits).ok());
        let version = version.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
        let Some(version) = version.and_then(|digits| digits.parse::<u16>().ok()) else {
            return Err(RdbError::Malformed {
                at: 0,
                expected: expected.into(),
            });
        };
        let dialect = dialect(version)
            .ok_or_else(|| input.unknown(format!("version {version} of RDB (newer than this)")))?;
        Ok(Self {
            input,
            version,
            dialect,
            database: 0,
            functions: 0,
            is_done: false,
        })
    }

    /// The version in its header.
    pub const fn version(&self) -> u16 {
        self.version
    }

    /// How many bytes were read.
    pub const fn offset(&self) -> u64 {
        self.input.at()
    }

    /// How many libraries of functions were passed over.
    pub const fn functions(&self) -> u64 {
        self.functions
    }

    /// What the file was read from. After the end of the file, its next byte is the one behind.
    pub fn into_inner(self) -> R {
        self.input.into_inner()
    }

    /// The next key, or `None` behind the last one.
    fn read_key(&mut self) -> Result<Option<RdbKey>, RdbError> {
        let input = &mut self.input;
        let mut deadline = None;
        loop {
            input.begin_value(VALUE_BYTES_MAX);
            match input.byte("a key, or the end of the file")? {
                marks::AUX => {
                    input.string("the name of a field about the file")?;
                    input.string("the value of a field about the file")?;
                }
                marks::DATABASE => self.database = input.length("the number of a database")?,
                marks::RESIZE => {
                    input.length("a count of keys")?;
                    input.length("a count of keys that expire")?;
                }
                marks::SLOT_INFO => {
                    for _ in 0..3 {
                        input.length("a number of a slot")?;
                    }
                }
                marks::FUNCTION => {
                    input.string("a library of functions")?;
                    self.functions += 1;
                }
                marks::MODULE_AUX => {
                    input.length("the number of a module's type")?;
                    // It says when the value is to be loaded, as an integer with its mark.
                    input.length("the mark of a module's integer")?;
                    input.length("an integer of a module")?;
                    read::module_values(input)?;
                }
                marks::IDLE => _ = input.length("how long a key was idle")?,
                marks::FREQUENCY => _ = input.byte("how often a key was used")?,
                marks::DEADLINE_MS => deadline = Some(read::time(input)?),
                marks::DEADLINE_S => {
                    let time = i32::from_le_bytes(input.array("a time in seconds")?);
                    deadline = Some(u64::try_from(time).unwrap_or(0) * 1_000);
                }
                marks::END => {
                    if self.version >= 5 {
                        let computed = input.sum();
                        let found = u64::from_le_bytes(input.array("the checksum of the file")?);
                        // 0: its writer had checksums switched off.
                        if found != 0 && found != computed {
                            return Err(RdbError::Checksum { found, computed });
                        }
                    }
                    return Ok(None);
                }
                kind => {
                    let key = input.string("a key")?;
                    let value = read::value(input, (kind, self.dialect), VALUE_BYTES_MAX)
                        .map_err(|e| e.of_key(&key))?;
                    return Ok(Some(RdbKey {
                        database: self.database,
                        key,
                        deadline,
                        value,
                    }));
                }
            }
        }
    }
}

impl<R: Read> Iterator for RdbReader<R> {
    type Item = Result<RdbKey, RdbError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let found = self.read_key().transpose();
        self.is_done = !matches!(found, Some(Ok(_)));
        found
    }
}

/// Writes a file, key by key. It is whole only after [`Self::finish`].
#[derive(Debug)]
pub struct RdbWriter<W> {
    to: W,
    version: u16,
    database: Option<u64>,
    sum: WrittenSum,
}

/// The checksum of what was written.
struct WrittenSum(Digest<'static, u64, Table<16>>);

impl std::fmt::Debug for WrittenSum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WrittenSum")
    }
}

impl<W: Write> RdbWriter<W> {
    /// Writes the header of this version, from 9 on. Redis 5 and everything newer reads version 9;
    /// fields that expire need version 12 (Redis 7.4).
    ///
    /// # Errors
    /// The version is not written here, or the writer failed.
    pub fn new(to: W, version: u16) -> Result<Self, RdbError> {
        if !(9..=VERSION_MAX).contains(&version) {
            let what = format!("how to write version {version} of RDB");
            return Err(RdbError::Unknown { at: 0, what });
        }
        let mut this = Self {
            to,
            version,
            database: None,
            sum: WrittenSum(CHECKSUM.digest()),
        };
        this.put(format!("REDIS{version:04}").as_bytes())?;
        Ok(this)
    }

    /// Writes a key of a database. Keys of one database should come together.
    ///
    /// # Errors
    /// The value needs a newer version, or is one that is not read here; or the writer failed.
    /// Nothing was written of a value that was refused.
    pub fn key<B: AsRef<[u8]>>(
        &mut self,
        database: u64,
        key: &[u8],
        deadline: Option<u64>,
        value: &RdbValue<B>,
    ) -> Result<(), RdbError> {
        let (needed, version) = (value.version(), self.version);
        if needed > version {
            return Err(RdbError::Version { needed, version }.of_key(key));
        }
        let (kind, bytes) = write::value(value).map_err(|e| e.of_key(key))?;
        let mut head = Vec::with_capacity(key.len() + 24);
        if self.database != Some(database) {
            head.push(marks::DATABASE);
            write::length(&mut head, database);
            self.database = Some(database);
        }
        if let Some(deadline) = deadline {
            head.push(marks::DEADLINE_MS);
            head.extend_from_slice(&deadline.to_le_bytes());
        }
        head.push(kind);
        write::string(&mut head, key);
        self.put(&head)?;
        self.put(&bytes)
    }

    /// Writes the end and the checksum, and flushes.
    ///
    /// # Errors
    /// The writer failed.
    pub fn finish(mut self) -> Result<W, RdbError> {
        self.put(&[marks::END])?;
        let sum = self.sum.0.clone().finalize();
        self.to.write_all(&sum.to_le_bytes())?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), RdbError> {
        self.to.write_all(bytes)?;
        self.sum.0.update(bytes);
        Ok(())
    }
}
