//! Counts of distinct elements (`HyperLogLog`) in the bytes that Redis keeps of them.
//!
//! ```text
//!   HYLL | encoding | 3 unused | 8: the count, or the highest bit: it is not known | registers
//!   dense   16,384 numbers of 6 bits
//!   sparse  00zzzzzz            up to 64 zeros         1vvvvvll  up to 4 times a value up to 32
//!           01zzzzzz zzzzzzzz   up to 16,384 zeros
//! ```
//! The hash, the estimate and the sizes at which a sparse one becomes dense are those of Redis. The
//! count is never written, because reads change nothing here; one that Redis wrote is believed.

const MAGIC: &[u8; 4] = b"HYLL";
const HEADER_BYTES: usize = 16;
const ENCODING: usize = 4;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const COUNT: std::ops::Range<usize> = 8..16;
/// The highest bit of the count.
const UNKNOWN: (usize, u8) = (15, 0x80);

const INDEX_BITS: u32 = 14;
/// How many registers there are.
pub(crate) const REGISTERS: usize = 1 << INDEX_BITS;
const HASH_BITS: usize = 64 - INDEX_BITS as usize;
const REGISTER_BITS: usize = 6;
const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * REGISTER_BITS / 8;

/// Redis's default of `hll-sparse-max-bytes`.
const SPARSE_BYTES_MAX: usize = 3000;
const SPARSE_VALUE_MAX: u8 = 32;
const VALUE_RUN_MAX: usize = 4;
const ZERO_RUN_MAX: usize = 64;
const VALUE: u8 = 0x80;
const LONG_ZERO: u8 = 0x40;

/// Why bytes are no count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HyperLogLogError {
    /// They have no such header.
    OtherString,
    /// Their registers are not as many as there must be.
    Corrupted,
}

/// A count of distinct elements.
#[derive(Debug, Clone)]
pub(crate) struct HyperLogLog {
    header: [u8; HEADER_BYTES],
    registers: Vec<u8>,
}

impl Default for HyperLogLog {
    fn default() -> Self {
        let mut header = [0; HEADER_BYTES];
        header[..MAGIC.len()].copy_from_slice(MAGIC);
        header[ENCODING] = SPARSE;
        Self {
            header,
            registers: vec![0; REGISTERS],
        }
    }
}

/// The header of these bytes.
///
/// # Errors
/// They have none.
fn header_of(bytes: &[u8]) -> Result<(&[u8; HEADER_BYTES], &[u8]), HyperLogLogError> {
    let found = bytes.split_first_chunk::<HEADER_BYTES>();
    let is_one = |header: &[u8; HEADER_BYTES]| {
        header.starts_with(MAGIC)
            && (header[ENCODING] == SPARSE
                || header[ENCODING] == DENSE && bytes.len() == DENSE_BYTES)
    };
    let found = found.filter(|(header, _)| is_one(header));
    found.ok_or(HyperLogLogError::OtherString)
}

/// The count that these bytes have, if it is known.
///
/// # Errors
/// They are no count.
pub(crate) fn known_count(bytes: &[u8]) -> Result<Option<u64>, HyperLogLogError> {
    let (header, _) = header_of(bytes)?;
    if header[UNKNOWN.0] & UNKNOWN.1 != 0 {
        return Ok(None);
    }
    let mut count = [0; 8];
    count.copy_from_slice(&header[COUNT]);
    Ok(Some(u64::from_le_bytes(count)))
}

impl HyperLogLog {
    /// That of these bytes.
    ///
    /// # Errors
    /// They are none.
    pub(crate) fn of(bytes: &[u8]) -> Result<Self, HyperLogLogError> {
        let (header, rest) = header_of(bytes)?;
        let registers = if header[ENCODING] == DENSE {
            dense_registers(rest)
        } else {
            sparse_registers(rest).ok_or(HyperLogLogError::Corrupted)?
        };
        Ok(Self {
            header: *header,
            registers,
        })
    }

    /// Adds an element. True: that changed something.
    pub(crate) fn add(&mut self, element: &[u8]) -> bool {
        let hash = murmur(element);
        let at = hash as usize & (REGISTERS - 1);
        // The last bit ends the zeros of a hash that has no other one.
        let zeros = (hash >> INDEX_BITS | 1 << HASH_BITS).trailing_zeros();
        let value = zeros as u8 + 1;
        let grows = value > self.registers[at];
        self.registers[at] = self.registers[at].max(value);
        grows
    }

    /// Adds all elements of another one.
    pub(crate) fn merge(&mut self, other: &Self) {
        if other.header[ENCODING] == DENSE {
            self.header[ENCODING] = DENSE;
        }
        for (own, other) in self.registers.iter_mut().zip(&other.registers) {
            *own = (*own).max(*other);
        }
    }

    /// About how many distinct elements were added (Otmar Ertl, arXiv:1702.01284).
    pub(crate) fn count(&self) -> u64 {
        const ALPHA: f64 = 0.721_347_520_444_481_7;
        let mut histogram = [0_u32; 1 << REGISTER_BITS];
        for register in &self.registers {
            histogram[usize::from(*register) & 63] += 1;
        }
        let all = REGISTERS as f64;
        let part = |at: usize| f64::from(histogram[at]);
        let mut sum = all * tau((all - part(HASH_BITS + 1)) / all);
        for at in (1..=HASH_BITS).rev() {
            sum += part(at);
            sum *= 0.5;
        }
        sum += all * sigma(part(0) / all);
        (ALPHA * all * all / sum).round() as u64
    }

    /// Its bytes. The count is not known.
    pub(crate) fn encode(mut self) -> Vec<u8> {
        self.header[UNKNOWN.0] |= UNKNOWN.1;
        if self.header[ENCODING] == SPARSE {
            let mut bytes = self.header.to_vec();
            if put_sparse(&self.registers, &mut bytes) {
                return bytes;
            }
            self.header[ENCODING] = DENSE;
        }
        let mut bytes = self.header.to_vec();
        // Four registers have three bytes.
        for four in self.registers.chunks_exact(4) {
            let bits = four.iter().rev().fold(0_u32, |bits, register| {
                bits << REGISTER_BITS | u32::from(*register)
            });
            bytes.extend_from_slice(&bits.to_le_bytes()[..3]);
        }
        bytes
    }
}

fn dense_registers(bytes: &[u8]) -> Vec<u8> {
    let fours = bytes.chunks_exact(3).flat_map(|three| {
        let bits = u32::from_le_bytes([three[0], three[1], three[2], 0]);
        (0..4).map(move |at| (bits >> (at * REGISTER_BITS)) as u8 & 0x3F)
    });
    fours.collect()
}

/// The registers of runs. `None`: they are not as many as there must be.
fn sparse_registers(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut registers = Vec::with_capacity(REGISTERS);
    while let Some((first, rest)) = bytes.split_first() {
        bytes = rest;
        let (value, count) = if first & VALUE != 0 {
            let count = usize::from(first & 3) + 1;
            ((first >> 2 & 0x1F) + 1, count)
        } else if first & LONG_ZERO != 0 {
            let (second, rest) = bytes.split_first()?;
            bytes = rest;
            (
                0,
                (usize::from(first & 0x3F) << 8 | usize::from(*second)) + 1,
            )
        } else {
            (0, usize::from(*first) + 1)
        };
        if count > REGISTERS - registers.len() {
            return None;
        }
        registers.resize(registers.len() + count, value);
    }
    (registers.len() == REGISTERS).then_some(registers)
}

/// Writes registers as runs. False: they have another encoding.
fn put_sparse(registers: &[u8], out: &mut Vec<u8>) -> bool {
    for run in registers.chunk_by(|one, other| one == other) {
        let (value, mut left) = (run[0], run.len());
        if value > SPARSE_VALUE_MAX {
            return false;
        }
        while left > 0 {
            let count = if value > 0 {
                let count = left.min(VALUE_RUN_MAX);
                out.push(VALUE | (value - 1) << 2 | (count - 1) as u8);
                count
            } else if left > ZERO_RUN_MAX {
                out.push(LONG_ZERO | ((left - 1) >> 8) as u8);
                out.push((left - 1) as u8);
                left
            } else {
                out.push((left - 1) as u8);
                left
            };
            left -= count;
        }
        if out.len() > SPARSE_BYTES_MAX {
            return false;
        }
    }
    true
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before == z {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if before == z {
            return z / 3.0;
        }
    }
}

/// `MurmurHash64A` with the seed of Redis.
fn murmur(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0xC6A4_A793_5BD1_E995;
    const SEED: u64 = 0xADC8_3B19;
    const SHIFT: u32 = 47;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(FACTOR);
        word ^= word >> SHIFT;
        hash = (hash ^ word.wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
    }
    hash ^= hash >> SHIFT;
    hash = hash.wrapping_mul(FACTOR);
    hash ^ hash >> SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(elements: impl Iterator<Item = u32>) -> HyperLogLog {
        let mut counted = HyperLogLog::default();
        for element in elements {
            counted.add(element.to_string().as_bytes());
        }
        counted
    }

    #[test]
    fn wrong_bytes_are_refused() {
        let empty = HyperLogLog::default().encode();
        assert_eq!(empty, b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80\x7f\xff");
        let other = Err(HyperLogLogError::OtherString);
        for bytes in [&b""[..], b"HYLL", &[b'x'; 20], &empty[..15]] {
            assert_eq!(known_count(bytes), other);
        }
        let mut dense = empty.clone();
        dense[ENCODING] = DENSE;
        assert_eq!(known_count(&dense), other);
        dense[ENCODING] = 2;
        assert_eq!(known_count(&dense), other);
        let runs: [&[u8]; 7] = [
            b"",
            b"\x7f",
            b"\x7f\xfe",
            b"\x7f\xff\0",
            b"\x7f\xff\x80",
            b"\x7f\xfe\x81",
            b"\xff",
        ];
        for runs in runs {
            let bytes = [&empty[..HEADER_BYTES], runs].concat();
            let read = HyperLogLog::of(&bytes).map(|_| ());
            assert_eq!(read, Err(HyperLogLogError::Corrupted), "{runs:?}");
        }
    }

    /// The numbers and bytes are those of valkey-server 7.2.7.
    #[test]
    fn elements_are_counted_and_kept_as_in_redis() {
        let mut three = HyperLogLog::default();
        assert!(three.add(b"a") && three.add(b"b") && three.add(b"c") && !three.add(b"a"));
        let bytes = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80`\xf3\x80P\xb1\x84K\xfb\x80BZ";
        assert_eq!(three.encode(), bytes);
        for (elements, bytes, count) in [
            (0, 18, 0),
            (10, 48, 10),
            (500, 1061, 503),
            (1000, 1923, 1001),
            (5000, 12304, 4985),
            (100_000, 12304, 99565),
        ] {
            let counted = of(0..elements);
            assert_eq!(counted.count(), count, "{elements}");
            assert_eq!(counted.encode().len(), bytes, "{elements}");
        }
        let mut small = of(0..10);
        small.merge(&HyperLogLog::of(&of(0..5000).encode()).unwrap());
        assert_eq!(small.encode().len(), DENSE_BYTES);
    }

    /// Redis answers 0 for them.
    #[test]
    fn no_elements_are_read_from_any_runs_of_zeros() {
        let empty = HyperLogLog::default().encode();
        let short = [0x3F; REGISTERS / ZERO_RUN_MAX];
        let runs: [&[u8]; 4] = [b"\x7f\xff", b"\x5f\xff\x5f\xff", b"\x7f\xfe\0", &short];
        for runs in runs {
            let bytes = [&empty[..HEADER_BYTES], runs].concat();
            let read = HyperLogLog::of(&bytes).map(|it| it.count());
            assert_eq!(read, Ok(0), "{}", runs.escape_ascii());
        }
    }

    #[test]
    fn a_count_that_redis_wrote_is_believed() {
        let mut bytes = of(0..3).encode();
        assert_eq!(known_count(&bytes), Ok(None));
        bytes[COUNT].copy_from_slice(&7_u64.to_le_bytes());
        assert_eq!(known_count(&bytes), Ok(Some(7)));
        let again = HyperLogLog::of(&bytes).unwrap();
        assert_eq!(again.count(), 3);
        assert_eq!(known_count(&again.encode()), Ok(None));
    }

    proptest! {
        #[test]
        fn any_registers_come_back(
            registers in prop::collection::vec((0_u8..64, 1_usize..300), 1..200),
            small: bool,
        ) {
            let mut counted = HyperLogLog::default();
            let all = registers.into_iter().flat_map(|(value, count)| {
                std::iter::repeat_n(if small { value % 33 } else { value }, count)
            });
            for (own, value) in counted.registers.iter_mut().zip(all) {
                *own = value;
            }
            let bytes = counted.clone().encode();
            let again = HyperLogLog::of(&bytes).unwrap();
            prop_assert_eq!(again.registers, counted.registers);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..3000), sparse: bool) {
            let header = [&MAGIC[..], &[u8::from(sparse)], &[0; 11]].concat();
            let _ = HyperLogLog::of(&bytes);
            let _ = HyperLogLog::of(&[header, bytes].concat()).map(|it| it.count());
        }
    }
}
