//! Redis's own format of data: RDB files, and the payloads of `DUMP` and `RESTORE`. With the feature
//! `ndjson`, the same keys are lines of JSON, too (`NdjsonReader`, `NdjsonWriter`).
//!
//! ```text
//!   RdbReader ── header, keys, checksum ──┐                ┌─ strings, lengths (input, lzf)
//!                                         ├─ value (read) ─┼─ packed collections (packs)
//!   restore ──── payload of DUMP ─────────┘                └─ streams (stream)
//!
//!   RdbWriter, dump ── value (write)
//! ```
//!
//! It reads what Redis 2.4 to 8 and Valkey write. It writes the oldest encoding that can hold a
//! value, so that old servers read it too. It does no I/O of its own: files are `Read` and `Write`.
//!
//! ```
//! use doyen_rdb::{RdbReader, RdbValue, RdbWriter};
//!
//! let mut file = Vec::new();
//! let mut writer = RdbWriter::new(&mut file, 9)?;
//! writer.key(0, b"colours", None, &RdbValue::Set(vec!["red", "blue"]))?;
//! writer.finish()?;
//!
//! for found in RdbReader::new(&file[..])? {
//!     let found = found?;
//!     assert_eq!(found.key, b"colours");
//!     assert_eq!(found.value, RdbValue::Set(vec![b"red".to_vec(), b"blue".to_vec()]));
//! }
//! # Ok::<(), doyen_rdb::RdbError>(())
//! ```
//!
//! # Bad bytes
//! An error says at which byte, and what was expected. Nothing panics, and nothing is allocated on
//! the word of a length: memory grows with the bytes that are there. Compressed and packed bytes
//! can be much smaller than what they hold, so a value also has a limit ([`VALUE_BYTES_MAX`]).

mod error;
mod file;
mod input;
mod lzf;
#[cfg(feature = "ndjson")]
mod ndjson;
mod packs;
mod payload;
mod read;
mod stream;
mod value;
mod write;

pub use error::{RdbError, shown_key};
pub use file::{RdbKey, RdbReader, RdbWriter};
#[cfg(feature = "ndjson")]
pub use ndjson::{NdjsonReader, NdjsonWriter};
pub use payload::{dump, restore};
pub use stream::{
    RdbPendingEntry, RdbStream, RdbStreamConsumer, RdbStreamEntry, RdbStreamGroup, RdbStreamId,
};
pub use value::{HashField, RdbValue, ScoredMember, UnreadType};

use crc::{CRC_64_REDIS, Crc, Table};

/// The newest version of RDB that is read.
pub const VERSION_MAX: u16 = 16;

/// The one version of Valkey's own files.
pub const VALKEY_VERSION: u16 = 80;

/// The limit on what a value of a file may take: its bytes, and 32 for each element. Redis allows
/// values of this size in one string, and no limit for collections.
pub const VALUE_BYTES_MAX: usize = 4 << 30;

/// What an element counts besides its bytes.
const ELEMENT_OVERHEAD: usize = 32;

static CHECKSUM: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The numbers of encodings in files.
mod types {
    pub(crate) const STRING: u8 = 0;
    pub(crate) const LIST: u8 = 1;
    pub(crate) const SET: u8 = 2;
    pub(crate) const ZSET: u8 = 3;
    pub(crate) const HASH: u8 = 4;
    pub(crate) const ZSET_2: u8 = 5;
    pub(crate) const MODULE_2: u8 = 7;
    pub(crate) const HASH_ZIPMAP: u8 = 9;
    pub(crate) const LIST_ZIPLIST: u8 = 10;
    pub(crate) const SET_INTSET: u8 = 11;
    pub(crate) const ZSET_ZIPLIST: u8 = 12;
    pub(crate) const HASH_ZIPLIST: u8 = 13;
    pub(crate) const LIST_QUICKLIST: u8 = 14;
    pub(crate) const STREAM_LISTPACKS: u8 = 15;
    pub(crate) const HASH_LISTPACK: u8 = 16;
    pub(crate) const ZSET_LISTPACK: u8 = 17;
    pub(crate) const LIST_QUICKLIST_2: u8 = 18;
    pub(crate) const STREAM_LISTPACKS_2: u8 = 19;
    pub(crate) const SET_LISTPACK: u8 = 20;
    pub(crate) const STREAM_LISTPACKS_3: u8 = 21;
    /// In files of Redis 7.4's candidates. Files of Valkey have `HASH_2` at this number.
    pub(crate) const HASH_METADATA_EARLY: u8 = 22;
    pub(crate) const HASH_LISTPACK_EX_EARLY: u8 = 23;
    pub(crate) const HASH_METADATA: u8 = 24;
    pub(crate) const HASH_LISTPACK_EX: u8 = 25;
}
