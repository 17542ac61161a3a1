//! A record, and what is before its bytes.
//!
//! ```text
//!   magic u32   kind u8   0 u8   keyspace u16   length of the body u32   partition u32
//!   lineage u32   0 u32   first u64   last u64   synced u64   checksum of the body u64
//!   checksum of all that u64
//!   body, and zeros up to a multiple of 8 bytes                          (little endian)
//! ```

use doyen_placement::{KeyspaceId, Lineage, PartitionId, PartitionRef};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The longest body of a record: 64 MiB.
pub const BODY_BYTES_MAX: usize = 64 << 20;
/// The bytes before a body.
pub(crate) const HEAD_BYTES: usize = 64;
/// Records begin at multiples of this.
pub(crate) const ALIGNMENT: usize = 8;
const MAGIC: u32 = 0x5245_4344;
/// Where the checksum of the head is.
const CHECKED: usize = HEAD_BYTES - size_of::<u64>();

/// What a record is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHead {
    /// What its bytes are. The writer's caller numbers that.
    pub kind: u8,
    /// The partition.
    pub at: PartitionRef,
    /// Its lineage.
    pub lineage: Lineage,
    /// The sequence of its first entry.
    pub first: u64,
    /// The sequence of its last entry.
    pub last: u64,
}

/// A head that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadHead {
    pub(crate) head: RecordHead,
    pub(crate) length: usize,
    /// Everything before this place was synced when the record was written.
    pub(crate) synced: u64,
    sum: u64,
}

/// The bytes of a record with this body, with its head and what fills it up.
pub(crate) const fn record_bytes(body: usize) -> usize {
    HEAD_BYTES + body.next_multiple_of(ALIGNMENT)
}

/// Puts a record behind others. `place`: where it begins in the log.
pub(crate) fn put(
    seed: u64,
    (place, synced): (u64, u64),
    head: &RecordHead,
    body: &[u8],
    out: &mut Vec<u8>,
) {
    let start = out.len();
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&[head.kind, 0]);
    out.extend_from_slice(&head.at.keyspace.0.to_le_bytes());
    // Longer bodies are refused before.
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&head.at.partition.0.to_le_bytes());
    out.extend_from_slice(&head.lineage.0.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    for number in [
        head.first,
        head.last,
        synced,
        xxh3_64_with_seed(body, seed ^ place),
    ] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    let sum = xxh3_64_with_seed(&out[start..], seed ^ place);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(body);
    out.resize(start + record_bytes(body.len()), 0);
}

/// The head of the record at this place, if there is a whole one.
pub(crate) fn head(seed: u64, place: u64, bytes: &[u8]) -> Option<ReadHead> {
    let (head, sum) = bytes.get(..HEAD_BYTES)?.split_at(CHECKED);
    let number = |at: usize| -> Option<u64> {
        let bytes = head.get(at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    };
    let small = |at: usize| -> Option<u32> {
        let bytes = head.get(at..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    };
    if small(0)? != MAGIC || sum != xxh3_64_with_seed(head, seed ^ place).to_le_bytes() {
        return None;
    }
    let keyspace = u16::from_le_bytes(*head.get(6..)?.first_chunk()?);
    Some(ReadHead {
        head: RecordHead {
            kind: *head.get(4)?,
            at: PartitionRef::new(KeyspaceId(keyspace), PartitionId(small(12)?)),
            lineage: Lineage(small(16)?),
            first: number(24)?,
            last: number(32)?,
        },
        length: usize::try_from(small(8)?).ok()?,
        synced: number(40)?,
        sum: number(48)?,
    })
}

impl ReadHead {
    /// The body, if it is whole.
    pub(crate) fn body<'a>(&self, seed: u64, place: u64, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let body = bytes.get(HEAD_BYTES..)?.get(..self.length)?;
        let fits = bytes.len() >= record_bytes(self.length);
        (fits && xxh3_64_with_seed(body, seed ^ place) == self.sum).then_some(body)
    }
}
