//! A buffer of each thread, in which keys and values are encoded. So each of them takes one
//! allocation, of its own length, and a key that is only looked up takes none.

use bytes::Bytes;
use std::cell::Cell;

/// A buffer that became larger is not kept, and its content is not copied.
const KEPT_BYTES_MAX: usize = 4 << 10;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Works with the buffer, which is empty. What is encoded within something else that is encoded has
/// a buffer of its own.
pub(super) fn with<T>(work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let mut buffer = BUFFER.take();
    let result = work(&mut buffer);
    if buffer.capacity() <= KEPT_BYTES_MAX {
        buffer.clear();
        BUFFER.set(buffer);
    }
    result
}

/// The bytes that `encode` writes.
pub(super) fn encoded<E>(encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<Bytes, E> {
    with(|buffer| {
        encode(buffer)?;
        Ok(if buffer.capacity() <= KEPT_BYTES_MAX {
            Bytes::copy_from_slice(buffer)
        } else {
            Bytes::from(std::mem::take(buffer))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn written(bytes: &[u8]) -> Bytes {
        let written: Result<_, Infallible> = encoded(|out| {
            out.extend(bytes);
            Ok(())
        });
        written.unwrap_or_else(|never| match never {})
    }

    #[test]
    fn what_is_encoded_within_something_else_does_not_get_into_it() {
        let outer: Result<Bytes, Infallible> = encoded(|out| {
            out.push(1);
            assert_eq!(written(&[7, 7]), [7, 7].as_slice());
            out.push(2);
            Ok(())
        });
        assert_eq!(outer, Ok(Bytes::from_static(&[1, 2])));
        let failed = encoded(|out| {
            out.push(3);
            Err("it cannot be encoded")
        });
        assert!(failed.is_err());
        assert_eq!(written(&[4]), [4].as_slice(), "what failed left nothing");
    }

    #[test]
    fn a_large_buffer_is_not_kept() {
        let large = vec![9; KEPT_BYTES_MAX + 1];
        assert_eq!(written(&large), large);
        assert!(with(|buffer| buffer.capacity()) <= KEPT_BYTES_MAX);
    }
}
