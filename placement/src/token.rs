//! Tokens: the place of a key on the ring, exactly as Cassandra's `Murmur3Partitioner` computes it.
//!
//! The ring is every 64-bit number from the least to the greatest, closed to a circle. Because both
//! agree to the bit, knowledge about Cassandra's keys (`SELECT token(key)`) holds here, and its
//! published vectors test this code.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A place on the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token(pub i64);

impl Token {
    /// The least token, which only the empty key has.
    pub const MIN: Self = Self(i64::MIN);
    /// The greatest token.
    pub const MAX: Self = Self(i64::MAX);

    /// The token of a key.
    ///
    /// ```
    /// use doyen_placement::Token;
    /// assert_eq!(Token::of(b"123"), Token(-7468325962851647638));
    /// ```
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        let mut hash = Murmur3::default();
        let (blocks, rest) = key.as_chunks::<BLOCK>();
        blocks.iter().for_each(|block| hash.block(block));
        hash.token(rest, key.len())
    }

    /// The token of a key that consists of these four bytes (the id of a map) and then of these
    /// bytes, without joining them.
    #[must_use]
    pub fn of_prefixed(prefix: [u8; 4], key: &[u8]) -> Self {
        let mut first = [0; BLOCK];
        first[..prefix.len()].copy_from_slice(&prefix);
        let room = &mut first[prefix.len()..];
        let length = prefix.len() + key.len();
        let Some((head, rest)) = key.split_at_checked(room.len()) else {
            room[..key.len()].copy_from_slice(key);
            return Murmur3::default().token(&first[..length], length);
        };
        room.copy_from_slice(head);
        let mut hash = Murmur3::default();
        hash.block(&first);
        let (blocks, rest) = rest.as_chunks::<BLOCK>();
        blocks.iter().for_each(|block| hash.block(block));
        hash.token(rest, length)
    }

    /// The same place counted from the beginning of the ring, as a number without a sign.
    #[must_use]
    pub const fn place(self) -> u64 {
        (self.0 as u64) ^ (1 << 63)
    }

    /// The token that is this many steps from the beginning of the ring.
    #[must_use]
    pub const fn at(place: u64) -> Self {
        Self((place ^ (1 << 63)) as i64)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of bytes that enter the hash at a time.
const BLOCK: usize = 16;
const C1: u64 = 0x87C3_7B91_1142_53D5;
const C2: u64 = 0x4CF5_AD43_2745_937F;
/// 1 in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// The state of MurmurHash3 for 64-bit machines with 128 bits of result, seed 0.
#[derive(Debug, Default)]
struct Murmur3 {
    h1: u64,
    h2: u64,
}

impl Murmur3 {
    fn block(&mut self, block: &[u8; BLOCK]) {
        let (k1, k2) = words(block);
        self.h1 = (self.h1 ^ mix_k1(k1))
            .rotate_left(27)
            .wrapping_add(self.h2)
            .wrapping_mul(5)
            .wrapping_add(0x52DC_E729);
        self.h2 = (self.h2 ^ mix_k2(k2))
            .rotate_left(31)
            .wrapping_add(self.h1)
            .wrapping_mul(5)
            .wrapping_add(0x3849_5AB5);
    }

    /// The token, given the bytes after the last whole block and the length of the whole key.
    fn token(mut self, rest: &[u8], length: usize) -> Token {
        if length == 0 {
            // Cassandra's empty key has the least token, by decree.
            return Token::MIN;
        }
        let mut last = [0; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        let (k1, k2) = words(&last);
        // An empty half is 0 and stays 0, so no branch is needed.
        self.h1 ^= mix_k1(sign_extended(k1)) ^ length as u64;
        self.h2 ^= mix_k2(sign_extended(k2)) ^ length as u64;
        self.h1 = self.h1.wrapping_add(self.h2);
        self.h2 = self.h2.wrapping_add(self.h1);
        let token = fmix(self.h1).wrapping_add(fmix(self.h2)) as i64;
        // No other key has the least token, so it can mean the beginning of the ring.
        if token == i64::MIN {
            Token::MAX
        } else {
            Token(token)
        }
    }
}

fn words(block: &[u8; BLOCK]) -> (u64, u64) {
    let both = u128::from_le_bytes(*block);
    (both as u64, (both >> 64) as u64)
}

/// Cassandra's mistake, which every driver repeats. In the last, unfinished block, Java's bytes are
/// signed, so each byte from 0x80 on flips all bits above its own. In the end a bit is flipped if
/// an odd number of such bytes stands below it. The multiplication counts them.
const fn sign_extended(word: u64) -> u64 {
    let below = ((word >> 7) & ONES).wrapping_mul(ONES) << 8;
    word ^ (below & ONES).wrapping_mul(0xFF)
}

const fn mix_k1(k: u64) -> u64 {
    k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

const fn mix_k2(k: u64) -> u64 {
    k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

const fn fmix(mut k: u64) -> u64 {
    k = (k ^ (k >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    k = (k ^ (k >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    k ^ (k >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counting(from: u8, length: u8) -> Vec<u8> {
        (from..from + length).collect()
    }

    /// Vectors that the tests of Cassandra's drivers (Python, Ruby, C#, Node.js) and of Spark share
    /// with Cassandra.
    #[test]
    fn tokens_are_those_of_cassandra() {
        let vectors: [(&[u8], i64); 38] = [
            (b"", i64::MIN),
            (b"123", -7468325962851647638),
            (&b"\x00\xff\x10\xfa\x99".repeat(10), 5837342703291459765),
            (&[0xFE; 8], -8927430733708461935),
            (&[0x10; 8], 1446172840243228796),
            (b"9223372036854775807", 7162290910810015547),
            (&counting(1, 16), -5563837382979743776),
            (&counting(2, 16), -1513403162740402161),
            (&counting(3, 16), -495360443712684655),
            (&counting(4, 16), 1734091135765407943),
            (&counting(5, 16), -3199412112042527988),
            (&counting(6, 16), -6316563938475080831),
            (&counting(7, 16), 8228893370679682632),
            (&[0; 16], 5457549051747178710),
            (&[0xFF; 16], -2824192546314762522),
            (&[0xFE; 16], -833317529301936754),
            (
                b"\x00\x01\x02\x03\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
                6463632673159404390,
            ),
            (&[0xFE; 17], -1672437813826982685),
            (&[0xFE; 4], 4566408979886474012),
            (&[0; 4], -3485513579396041028),
            (b"\x00\x01\x7F\x7F", 6573459401642635627),
            (b"\x00\xFF\xFF\xFF", 123573637386978882),
            (b"\xFF\x01\x02\x03", -2839127690952877842),
            (b"\xE2\xE7", -8582699461035929883),
            (b"\xE2\xE7\xE2\xE7\xE2\xE7\x01", 2222373981930033306),
            (b"\x00\x00\x00\x00\x00\x00\x00\x80", 78142285821850151),
            (&[0x80], -5284281814142962636),
            (&[0xFF], -4442228696663692417),
            (&[0xFF, 0xFE], -2002833339314343643),
            (
                b"\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89",
                -7623170703309721106,
            ),
            (&counting(1, 15), 597835946752277653),
            // Numbers of 64 bits: 0, 1, -1, the greatest and the least.
            (&0_i64.to_be_bytes(), 2945182322382062539),
            (&1_i64.to_be_bytes(), 6292367497774912474),
            (&(-1_i64).to_be_bytes(), 7071048584287372947),
            (&i64::MAX.to_be_bytes(), -1722304415079482439),
            (&i64::MIN.to_be_bytes(), 9204767954415360687),
            // Without bytes above 0x7F it is the usual MurmurHash3.
            (b"hell", 0x629942693e10f867),
            (
                b"The quick brown fox jumps over the lazy dog",
                0xe34bbc7bbc071b6c_u64 as i64,
            ),
        ];
        for (key, token) in vectors {
            assert_eq!(Token::of(key), Token(token), "{key:x?}");
        }
    }

    /// The last block as in Java: byte by byte, each first made a signed 64-bit number.
    fn as_java_has_it(word: u64) -> u64 {
        word.to_le_bytes()
            .iter()
            .zip(0..)
            .fold(0, |sum, (byte, i)| {
                sum ^ ((*byte as i8) as i64 as u64) << (8 * i)
            })
    }

    proptest! {
        #[test]
        fn signs_are_extended_as_in_java(word in any::<u64>()) {
            prop_assert_eq!(sign_extended(word), as_java_has_it(word));
        }

        #[test]
        fn a_prefix_hashes_as_if_it_stood_in_the_key(
            map in any::<[u8; 4]>(),
            key in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let whole = [&map[..], &key].concat();
            prop_assert_eq!(Token::of_prefixed(map, &key), Token::of(&whole));
        }

        #[test]
        fn places_are_in_the_order_of_tokens(a in any::<i64>(), b in any::<i64>()) {
            prop_assert_eq!(
                Token(a).cmp(&Token(b)),
                Token(a).place().cmp(&Token(b).place())
            );
            prop_assert_eq!(Token::at(Token(a).place()), Token(a));
        }
    }
}
