//! The payloads of `DUMP` and `RESTORE`: a value, the version that it needs, and a checksum.

use crate::error::RdbError;
use crate::input::RdbInput;
use crate::read::Dialect;
use crate::value::RdbValue;
use crate::{CHECKSUM, VALKEY_VERSION, VERSION_MAX, read, write};

/// The payload of `DUMP` for a value. Servers that know the oldest version that can hold the value
/// restore it.
///
/// ```
/// use doyen_rdb::{RdbValue, dump, restore};
///
/// let payload = dump(&RdbValue::String(b"10"))?;
/// assert_eq!(restore(&payload, 1_000)?, RdbValue::String(b"10".to_vec()));
/// # Ok::<(), doyen_rdb::RdbError>(())
/// ```
///
/// # Errors
/// The value is one that is not read here.
pub fn dump<B: AsRef<[u8]>>(value: &RdbValue<B>) -> Result<Vec<u8>, RdbError> {
    let (kind, bytes) = write::value(value)?;
    let mut out = Vec::with_capacity(bytes.len() + 11);
    out.push(kind);
    out.extend_from_slice(&bytes);
    out.extend_from_slice(&value.version().to_le_bytes());
    let sum = CHECKSUM.checksum(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    Ok(out)
}

/// The value of a payload of `DUMP`. It may take `limit` bytes, and counts 32 for each element
/// besides its bytes.
///
/// # Errors
/// The version or the checksum is wrong ([`RdbError::Footer`]), or the value is.
pub fn restore(payload: &[u8], limit: usize) -> Result<RdbValue, RdbError> {
    let (rest, sum) = payload.split_last_chunk().ok_or(RdbError::Footer)?;
    let (value, version) = rest.split_last_chunk().ok_or(RdbError::Footer)?;
    let (sum, version) = (u64::from_le_bytes(*sum), u16::from_le_bytes(*version));
    let dialect = dialect(version).ok_or(RdbError::Footer)?;
    // Redis takes 0 as: there is no checksum.
    if sum != 0 && sum != CHECKSUM.checksum(rest) {
        return Err(RdbError::Footer);
    }
    let mut input = RdbInput::new(value, false);
    let kind = input.byte("the type of a value")?;
    let found = read::value(&mut input, (kind, dialect), limit)?;
    if input.at() != value.len() as u64 {
        return Err(input.malformed("the end of the value"));
    }
    Ok(found)
}

/// Which server writes this version, if it is read here.
pub(crate) fn dialect(version: u16) -> Option<Dialect> {
    match version {
        1..=VERSION_MAX => Some(Dialect::Redis),
        VALKEY_VERSION => Some(Dialect::Valkey),
        _ => None,
    }
}
