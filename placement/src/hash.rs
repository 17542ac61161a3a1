//! Keys to slots, as in Redis Cluster, and the digest that names tables.
//!
//! Both must give the same result on every platform and in every build. A slot decides which member
//! owns a key, and a digest decides whether two members hold the same table.

use std::hash::Hasher;

/// The number of slots, as in Redis Cluster.
pub const SLOTS: u16 = 16384;

/// CRC16 in the XMODEM variant (polynomial 0x1021, initial value 0), as Redis Cluster uses it.
///
/// ```
/// assert_eq!(doyen_placement::hash::crc16(b"123456789"), 0x31C3);
/// ```
#[must_use]
pub fn crc16(bytes: &[u8]) -> u16 {
    crc16_continued(0, bytes)
}

/// The slot of a key: `crc16(hash tag or key) mod 16384`.
///
/// The hash tag is what stands between the first `{` and the first `}` after it, unless that is
/// empty.
///
/// ```
/// use doyen_placement::hash::slot;
/// assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
/// ```
#[must_use]
pub fn slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) % SLOTS
}

/// The slot of a key that follows a prefix. `{hash tags}` do not count.
pub(crate) fn slot_of_prefixed(prefix: &[u8], key: &[u8]) -> u16 {
    crc16_continued(crc16(prefix), key) % SLOTS
}

pub(crate) fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&b| b == b'{') else {
        return key;
    };
    let inside = &key[open + 1..];
    match inside.iter().position(|&b| b == b'}') {
        Some(length) if length > 0 => &inside[..length],
        _ => key,
    }
}

fn crc16_continued(mut crc: u16, bytes: &[u8]) -> u16 {
    let (chunks, rest) = bytes.as_chunks::<8>();
    for chunk in chunks {
        // Eight tables at once: with a byte at a time, each look-up would wait for the one before
        // it.
        let [a, b, c, d, e, f, g, h] = *chunk;
        let of = |table: usize, byte: u8| CRC16_TABLES[table][usize::from(byte)];
        crc = of(7, a ^ (crc >> 8) as u8)
            ^ of(6, b ^ crc as u8)
            ^ of(5, c)
            ^ of(4, d)
            ^ of(3, e)
            ^ of(2, f)
            ^ of(1, g)
            ^ of(0, h);
    }
    rest.iter().fold(crc, |crc, &byte| {
        // The index is a byte, and a table has 256 entries.
        (crc << 8) ^ CRC16_TABLES[0][usize::from((crc >> 8) as u8 ^ byte)]
    })
}

/// For each number of zero bytes that follow: what a byte contributes to the checksum.
const CRC16_TABLES: [[u16; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut crc = (i as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
            bit += 1;
        }
        tables[0][i] = crc;
        i += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut i = 0;
        while i < 256 {
            let before = tables[zeros - 1][i];
            tables[zeros][i] = (before << 8) ^ tables[0][(before >> 8) as usize];
            i += 1;
        }
        zeros += 1;
    }
    tables
};

/// A hasher with a fixed result: numbers enter as little-endian 64-bit words on every platform.
///
/// It is not for keys that an attacker chooses. Tables come from authenticated members, and the
/// digest only has to tell honest tables apart. `derive(Hash)` feeds it. A test pins the result, so
/// that a compiler that derives otherwise is noticed.
#[derive(Debug, Clone)]
pub struct Digest(u64);

impl Digest {
    /// A digest of nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    /// Folded multiplication, as in wyhash: both halves of the product carry every bit of the word.
    const fn word(&mut self, word: u64) {
        let product = (self.0 ^ word) as u128 * 0xA076_1D64_78BD_642F;
        self.0 = ((product as u64) ^ ((product >> 64) as u64))
            .rotate_left(23)
            .wrapping_add(word.wrapping_mul(0xE703_7ED1_A0B4_28DB));
    }
}

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        let mut end = self.clone();
        end.word(0x589A_5F0F);
        end.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, i: u8) {
        self.word(i.into());
    }

    fn write_u16(&mut self, i: u16) {
        self.word(i.into());
    }

    fn write_u32(&mut self, i: u32) {
        self.word(i.into());
    }

    fn write_u64(&mut self, i: u64) {
        self.word(i);
    }

    fn write_u128(&mut self, i: u128) {
        self.word(i as u64);
        self.word((i >> 64) as u64);
    }

    fn write_usize(&mut self, i: usize) {
        self.word(i as u64);
    }

    // Sign extension makes the result independent of the width of `isize`, which the discriminants
    // of enums have. The narrower signed numbers go through the methods above by default.
    fn write_isize(&mut self, i: isize) {
        self.word(i as i64 as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc16_is_the_one_of_redis_cluster() {
        assert_eq!(crc16(b""), 0);
        assert_eq!(crc16(b"123456789"), 0x31C3);
        let bit_by_bit = |bytes: &[u8]| {
            bytes.iter().fold(0_u16, |crc, byte| {
                (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
                    if crc & 0x8000 == 0 {
                        crc << 1
                    } else {
                        (crc << 1) ^ 0x1021
                    }
                })
            })
        };
        let bytes: Vec<u8> = (0..100_u32).map(|i| (i * 37 % 251) as u8).collect();
        for length in 0..bytes.len() {
            assert_eq!(
                crc16(&bytes[..length]),
                bit_by_bit(&bytes[..length]),
                "{length}"
            );
        }
    }

    #[test]
    fn slots_are_those_of_redis_cluster() {
        assert_eq!(slot(b""), 0);
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"bar"), 5061);
        assert_eq!(slot(b"hello"), 866);
        assert_eq!(slot(b"123456789"), 12739);
    }

    #[test]
    fn a_hash_tag_decides_alone() {
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
    }

    #[test]
    fn an_empty_or_open_tag_does_not_count() {
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot(b"{}"), crc16(b"{}") % SLOTS);
        assert_eq!(slot(b"foo{bar"), crc16(b"foo{bar") % SLOTS);
        assert_eq!(slot(b"foo}bar{"), crc16(b"foo}bar{") % SLOTS);
    }

    #[test]
    fn a_prefix_hashes_as_if_it_stood_in_the_key() {
        assert_eq!(
            slot_of_prefixed(&[0, 0, 0, 7], b"{a}b"),
            crc16(b"\0\0\0\x07{a}b") % SLOTS
        );
    }
}
