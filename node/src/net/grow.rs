//! Buffers for bytes that arrive piece by piece.

use bytes::BytesMut;

/// From this size on, a buffer grows to a little more than twice its size.
const LARGE_BYTES: usize = 1 << 20;

/// Appends bytes. It allocates by what has arrived, never by what is announced. The largest values
/// are powers of two, with some bytes around them. If a buffer only doubled, the last of those
/// bytes would copy the whole buffer once more.
pub(crate) fn append(to: &mut BytesMut, bytes: &[u8]) {
    let length = to.len();
    if length >= LARGE_BYTES && length + bytes.len() > to.capacity() {
        to.reserve(length + length / 8 + bytes.len());
    }
    to.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_its_frame_fits_where_the_value_does() {
        let (mut buffer, piece) = (BytesMut::new(), [7; 64 << 10]);
        let mut grown = Vec::new();
        while buffer.len() < 16 << 20 {
            let before = buffer.capacity();
            append(&mut buffer, &piece);
            if buffer.capacity() > before {
                grown.push(buffer.len());
            }
        }
        assert!(
            buffer.iter().all(|b| *b == 7) && grown.len() < 12,
            "{grown:?}"
        );
        let room = buffer.capacity() - buffer.len();
        assert!(
            (1 << 10..16 << 20).contains(&room) && grown.last().is_some_and(|at| *at < 12 << 20),
            "{room}, {grown:?}"
        );
    }
}
