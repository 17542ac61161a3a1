//! Frames on their way to a peer: bytes, and between them large values, which are sent from where
//! they are stored.
//!
//! Copying a value of some megabytes into a frame takes so long that other clients wait: fresh
//! memory costs more than the copying itself.

use bytes::{Bytes, BytesMut};
use std::mem;

/// A value from this size on is not copied.
const APART_BYTES_MIN: usize = 64 << 10;

/// The bytes to be sent on one lane.
#[derive(Debug, Default)]
pub(crate) struct Out {
    /// Encoded frames without the large values.
    pub(super) bytes: BytesMut,
    /// Large values, and the place in `bytes` before which each belongs.
    apart: Vec<(usize, Bytes)>,
    /// Bytes of these values.
    apart_bytes: usize,
}

/// A place in the bytes to be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutMark {
    /// The place in `bytes`.
    pub(super) at: usize,
    /// The number of large values before it, and their bytes.
    apart: usize,
    apart_bytes: usize,
}

impl Out {
    /// How many bytes are to be sent.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.apart_bytes
    }

    /// The present end.
    pub(crate) fn mark(&self) -> OutMark {
        OutMark {
            at: self.bytes.len(),
            apart: self.apart.len(),
            apart_bytes: self.apart_bytes,
        }
    }

    /// How many bytes follow a place.
    pub(crate) fn len_from(&self, mark: OutMark) -> usize {
        self.bytes.len() - mark.at + self.apart_bytes - mark.apart_bytes
    }

    /// Appends shared bytes. If they are large, they are not copied.
    pub(super) fn put_shared(&mut self, bytes: &[u8], share: impl FnOnce() -> Bytes) {
        if bytes.len() < APART_BYTES_MIN {
            self.bytes.extend_from_slice(bytes);
        } else {
            self.apart.push((self.bytes.len(), share()));
            self.apart_bytes += bytes.len();
        }
    }

    /// The pieces after a place, in order.
    pub(super) fn pieces(&self, mark: OutMark) -> impl Iterator<Item = &[u8]> {
        let ends = self.apart[mark.apart..]
            .iter()
            .map(|(at, value)| (*at, &**value))
            .chain([(self.bytes.len(), &[][..])]);
        let mut from = mark.at;
        ends.flat_map(move |(at, value)| [&self.bytes[mem::replace(&mut from, at)..at], value])
    }

    /// Takes everything: pieces, in order, none of them empty.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Bytes> + use<> {
        let mut rest = self.bytes.split();
        let mut from = 0;
        let mut pieces = Vec::new();
        for (at, value) in mem::take(&mut self.apart) {
            pieces.extend([
                rest.split_to(at - mem::replace(&mut from, at)).freeze(),
                value,
            ]);
        }
        self.apart_bytes = 0;
        pieces
            .into_iter()
            .chain([rest.freeze()])
            .filter(|piece| !piece.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_values_are_shared_and_keep_their_place() {
        let (small, large) = (
            Bytes::from(vec![1; 100]),
            Bytes::from(vec![2; APART_BYTES_MIN]),
        );
        let mut out = Out::default();
        out.bytes.extend_from_slice(b"before");
        let mark = out.mark();
        out.put_shared(&large, || large.clone());
        out.put_shared(&small, || small.clone());
        out.bytes.extend_from_slice(b"between");
        out.put_shared(&large, || large.clone());
        out.put_shared(&large, || large.clone());
        let expected = [&large[..], &small, b"between", &large, &large].concat();
        assert_eq!(
            (out.len(), out.len_from(mark)),
            (expected.len() + 6, expected.len())
        );
        assert_eq!(out.pieces(mark).collect::<Vec<_>>().concat(), expected);
        let pieces: Vec<Bytes> = out.take().collect();
        assert_eq!(pieces.concat(), [b"before", &expected[..]].concat());
        assert!(
            pieces
                .iter()
                .filter(|p| p.as_ptr() == large.as_ptr())
                .count()
                == 3
                && pieces.len() == 5
        );
        assert_eq!((out.len(), out.take().count()), (0, 0));
    }
}
