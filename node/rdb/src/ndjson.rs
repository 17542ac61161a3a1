//! Newline-delimited JSON: one line for each key. People and their tools read and write it; nothing
//! but this crate has to.
//!
//! ```text
//!   {"key":"user:7","type":"string","value":"Ann"}
//!   {"key":"cart","database":3,"type":"hash","value":[
//!      {"field":"apples","value":"3","expires_at_ms":1900000000000}],
//!      "expires_at_ms":1900000000000}
//!   {"key":"top","type":"sorted set","value":[{"member":"Ann","score":1.5},
//!      {"member":{"base64":"/wA="},"score":"-inf"}]}
//!   {"key":"log","type":"stream","value":{"entries":[{"id":"5-0","fields":[["level","warn"]]}],
//!      "last_generated_id":"7-0","entries_added":2,"max_deleted_entry_id":"7-0","groups":[
//!        {"name":"readers","last_delivered_id":"5-0","entries_read":1,
//!         "consumers":[{"name":"me","seen_at_ms":9,"active_at_ms":9}],
//!         "pending":[{"id":"5-0","consumer":"me","delivered_at_ms":9,"deliveries":1}]}]}}
//! ```
//! (Each key is one line. They are folded here to be read.)
//!
//! A text of JSON consists of characters of Unicode. Bytes that are no UTF-8 are not, so they are
//! in Base64, as an object: no string can be taken for it. Hashes are lists for the same reason, as
//! names of members of objects are strings.
//!
//! What may be left out is what [`NdjsonWriter`] leaves out, and the numbers of streams that follow
//! from their entries. Nothing else may be in a line: a misspelt name would lose what it names.

mod rows;

use crate::VALUE_BYTES_MAX;
use crate::error::RdbError;
use crate::file::RdbKey;
use crate::value::{RdbValue, UnreadType};
use rows::{
    FieldRow, JsonBytes, JsonNumber, JsonObject, KeyRow, LineType, MemberRow, StreamRow, ValueRows,
    distinct,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::{BufRead, Read, Write};

/// The limit on a line. A line and its value are in memory at the same time.
const LINE_BYTES_MAX: usize = VALUE_BYTES_MAX;

/// What is kept of the memory of a long line for the next ones.
const BUFFER_KEPT: usize = 1 << 20;

/// The longest part of a line that an error repeats, in characters.
const SHOWN_MAX: usize = 300;

/// Reads lines, one key each. It ends after the first error. Empty lines are passed over.
#[derive(Debug)]
pub struct NdjsonReader<R> {
    from: R,
    line: Vec<u8>,
    /// How many lines were read.
    number: u64,
    offset: u64,
    limit: usize,
    is_done: bool,
}

impl<R: BufRead> NdjsonReader<R> {
    /// There is no header, so nothing is read before the first key.
    pub const fn new(from: R) -> Self {
        Self {
            from,
            line: Vec::new(),
            number: 0,
            offset: 0,
            limit: LINE_BYTES_MAX,
            is_done: false,
        }
    }

    /// How many bytes were read.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    fn read_key(&mut self) -> Result<Option<RdbKey>, RdbError> {
        loop {
            self.line.clear();
            self.line.shrink_to(BUFFER_KEPT);
            let mut from = (&mut self.from).take(self.limit as u64 + 1);
            let length = from.read_until(b'\n', &mut self.line)?;
            if length == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.offset += length as u64;
            let refused = |why| RdbError::Line {
                line: self.number,
                why,
            };
            let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
            if line.len() > self.limit {
                let why = format!("it has more than {} bytes", self.limit);
                return Err(refused(why));
            }
            if !line.trim_ascii().is_empty() {
                return key(line).map(Some).map_err(refused);
            }
        }
    }
}

impl<R: BufRead> Iterator for NdjsonReader<R> {
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

/// The key of a line.
fn key(line: &[u8]) -> Result<RdbKey, String> {
    let row: JsonObject<KeyRow<'_, &RawValue>> =
        serde_json::from_slice(line).map_err(|e| shown(&why(&e, 0)))?;
    let row = row.0;
    let text = row.value.get();
    let value = ValueText {
        text,
        // The text is a part of the line.
        begins: text.as_ptr().addr().wrapping_sub(line.as_ptr().addr()),
    };
    Ok(RdbKey {
        database: row.database,
        key: row.key.into(),
        deadline: row.expires_at_ms.map(u64::from),
        value: value.read(row.kind).map_err(|why| shown(&why))?,
    })
}

/// What a line has as its value.
#[derive(Clone, Copy)]
struct ValueText<'a> {
    text: &'a str,
    /// How many bytes of the line are before it.
    begins: usize,
}

impl<'a> ValueText<'a> {
    fn parse<T: Deserialize<'a>>(self) -> Result<T, String> {
        serde_json::from_str(self.text).map_err(|e| why(&e, self.begins))
    }

    fn read(self, kind: LineType) -> Result<RdbValue, String> {
        let value = match kind {
            LineType::String => RdbValue::String(self.parse::<JsonBytes<'_>>()?.into()),
            LineType::List => RdbValue::List(self.elements()?),
            LineType::Set => {
                let all = self.elements()?;
                distinct("member", all.iter().map(|it| &it[..]))?;
                RdbValue::Set(all)
            }
            LineType::SortedSet => {
                let rows = self.parse::<Vec<JsonObject<MemberRow<'_>>>>()?.into_iter();
                let all: Vec<_> = rows.map(|row| row.0.into_member()).collect();
                distinct("member", all.iter().map(|it| &it.member[..]))?;
                RdbValue::SortedSet(all)
            }
            LineType::Hash => {
                let rows = self.parse::<Vec<JsonObject<FieldRow<'_>>>>()?.into_iter();
                let all: Vec<_> = rows.map(|row| row.0.into_field()).collect();
                distinct("field", all.iter().map(|it| &it.field[..]))?;
                RdbValue::Hash(all)
            }
            LineType::Stream => {
                let row = self.parse::<JsonObject<StreamRow<'_>>>()?.0;
                RdbValue::Stream(row.into_stream()?)
            }
        };
        if value.is_empty() {
            return Err("its value has no element, and there are no empty collections".into());
        }
        Ok(value)
    }

    fn elements(self) -> Result<Vec<Vec<u8>>, String> {
        let rows = self.parse::<Vec<JsonBytes<'_>>>()?.into_iter();
        Ok(rows.map(Vec::from).collect())
    }
}

/// Why a text was refused that has `begins` bytes of the line before it.
fn why(e: &serde_json::Error, begins: usize) -> String {
    let (text, column) = (e.to_string(), begins + e.column());
    // A line has one line, so its number says nothing.
    let position = format!(" at line {} column {}", e.line(), e.column());
    let what = text.strip_suffix(&*position).unwrap_or(&text);
    format!("at its byte {column}: {what}")
}

/// A text of an error, which may repeat a part of the line.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    for (count, letter) in text.chars().enumerate() {
        if count == SHOWN_MAX {
            shown.push_str("...");
            break;
        }
        if letter.is_control() {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Writes lines, one key each.
///
/// ```
/// use doyen_rdb::{NdjsonReader, NdjsonWriter, RdbValue};
///
/// let mut file = Vec::new();
/// let mut writer = NdjsonWriter::new(&mut file);
/// writer.key(0, b"colours", None, &RdbValue::Set(vec![&b"red"[..], b"\xff"]))?;
/// writer.finish()?;
///
/// let line = r#"{"key":"colours","type":"set","value":["red",{"base64":"/w=="}]}"#;
/// assert_eq!(file, format!("{line}\n").into_bytes());
/// let found = NdjsonReader::new(&file[..]).next().expect("there is a line")?;
/// assert_eq!(found.value, RdbValue::Set(vec![b"red".to_vec(), b"\xff".to_vec()]));
/// # Ok::<(), doyen_rdb::RdbError>(())
/// ```
#[derive(Debug)]
pub struct NdjsonWriter<W> {
    to: W,
    line: Vec<u8>,
    limit: usize,
}

impl<W: Write> NdjsonWriter<W> {
    /// There is no header, so nothing is written before the first key.
    pub const fn new(to: W) -> Self {
        Self {
            to,
            line: Vec::new(),
            limit: LINE_BYTES_MAX,
        }
    }

    /// Writes a key of a database.
    ///
    /// # Errors
    /// The value is one that is not read here, or its line has more bytes than are read; or the
    /// writer failed. Nothing was written of a value that was refused.
    pub fn key<B: AsRef<[u8]>>(
        &mut self,
        database: u64,
        key: &[u8],
        deadline: Option<u64>,
        value: &RdbValue<B>,
    ) -> Result<(), RdbError> {
        let kind = match value {
            RdbValue::String(_) => LineType::String,
            RdbValue::List(_) => LineType::List,
            RdbValue::Set(_) => LineType::Set,
            RdbValue::SortedSet(_) => LineType::SortedSet,
            RdbValue::Hash(_) => LineType::Hash,
            RdbValue::Stream(_) => LineType::Stream,
            RdbValue::Unread(UnreadType::Module(name)) => {
                let what = format!("a value of the type {name}");
                return Err(RdbError::Unknown { at: 0, what }.of_key(key));
            }
        };
        let row = KeyRow {
            key: JsonBytes::of(key),
            database,
            kind,
            value: ValueRows(value),
            expires_at_ms: deadline.map(JsonNumber),
        };
        self.line.clear();
        self.line.shrink_to(BUFFER_KEPT);
        serde_json::to_writer(&mut self.line, &row).map_err(std::io::Error::from)?;
        let limit = self.limit;
        if self.line.len() > limit {
            return Err(RdbError::TooLarge { at: 0, limit }.of_key(key));
        }
        self.line.push(b'\n');
        self.to.write_all(&self.line)?;
        Ok(())
    }

    /// Flushes.
    ///
    /// # Errors
    /// The writer failed.
    pub fn finish(mut self) -> Result<W, RdbError> {
        self.to.flush()?;
        Ok(self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_beyond_the_limit_is_neither_written_nor_read() {
        let mut writer = NdjsonWriter::new(Vec::new());
        writer.limit = 50;
        let value = |length| RdbValue::String("v".repeat(length));
        writer.key(0, b"k", None, &value(12)).unwrap();
        let refused = writer.key(0, b"l", None, &value(13)).unwrap_err();
        assert!(matches!(refused, RdbError::OfKey { .. }), "{refused}");
        let mut file = writer.finish().unwrap();
        assert_eq!(file.len(), 51);

        // The last line may lack its end.
        file.extend_from_within(..50);
        let mut reader = NdjsonReader::new(&file[..]);
        reader.limit = 50;
        assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 2);
        assert_eq!(reader.offset(), 101);
        let mut reader = NdjsonReader::new(&file[..]);
        reader.limit = 49;
        assert_eq!(
            reader.next().unwrap().unwrap_err().to_string(),
            "line 1: it has more than 49 bytes: correct the line, or remove it"
        );
    }
}
