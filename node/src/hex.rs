//! Bytes as hexadecimal digits.

use std::fmt::Write;

/// Small digits, two for each byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a text does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// As many bytes from twice as many digits, small or capital; `None`: the text is anything else.
#[cfg(any(feature = "http", feature = "resp"))]
pub(crate) fn unhex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut out = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        // Two digits are below 256.
        *byte = (16 * digit(pair[0])? + digit(pair[1])?) as u8;
    }
    Some(out)
}
