//! Replies on their way out: encoded bytes, and between them large values, which are sent from
//! where they are stored.
//!
//! ```text
//!   bytes   $5\r\nhello\r\n$1000000\r\n | \r\n+OK\r\n       both are written together, in this
//!   values                      (27, value)           order, without a copy of the value
//! ```

use bytes::{Buf, BytesMut};
use doyen_engine::op::Value;
use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

/// Values from this size on are not copied. Below it, another slice in the write costs as much as a
/// copy.
pub(crate) const APART_BYTES_MIN: usize = 16 << 10;
/// A buffer that is larger than this is released once it is written.
const KEPT_BYTES_MAX: usize = 256 << 10;
/// Most slices of one write.
const SLICES_MAX: usize = 16;

/// What is to be sent to one connection.
#[derive(Debug, Default)]
pub(crate) struct ClientOutput {
    /// Encoders append here.
    pub(crate) bytes: BytesMut,
    /// Values, and the place in `bytes` before which each belongs, counted as if nothing of `bytes`
    /// had been written.
    values: VecDeque<(usize, Value)>,
    /// Bytes of the values that are not written yet.
    value_bytes: usize,
    /// How much of `bytes` was written and removed.
    written: usize,
    /// How much of the first value was written.
    value_written: usize,
    /// The most that `bytes` has held.
    most: usize,
}

impl ClientOutput {
    /// Bytes that are not written yet.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.value_bytes
    }

    /// Bytes of memory that the output keeps, without values that the store may hold as well. It is
    /// more than `len` if the buffer has grown lately.
    pub(crate) fn held(&self) -> usize {
        self.bytes.capacity() + self.value_bytes
    }

    /// Whether all is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a value as it is.
    pub(crate) fn push(&mut self, value: Value) {
        self.value_bytes += value.len();
        self.values
            .push_back((self.written + self.bytes.len(), value));
    }

    /// Writes once, about `most` bytes at most. Returns how many were written, and whether all that
    /// was offered was accepted. Must not be called when there is nothing to write.
    pub(crate) fn write(&mut self, to: &mut impl Write, most: usize) -> io::Result<(usize, bool)> {
        let (written, offered) = if self.values.is_empty() {
            let bytes = &self.bytes[..self.bytes.len().min(most)];
            (to.write(bytes)?, bytes.len())
        } else {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.slices(most, &mut slices);
            (
                to.write_vectored(&slices[..count])?,
                slices[..count].iter().map(|s| s.len()).sum(),
            )
        };
        self.advance(written);
        Ok((written, written == offered))
    }

    /// Fills in the next slices. Returns how many there are.
    fn slices<'a>(&'a self, most: usize, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let (mut count, mut left, mut from, mut skip) = (0, most, 0, self.value_written);
        let mut add = |bytes: &'a [u8], left: &mut usize| {
            let bytes = &bytes[..bytes.len().min(*left)];
            if !bytes.is_empty() && count < SLICES_MAX {
                slices[count] = IoSlice::new(bytes);
                count += 1;
                *left -= bytes.len();
            }
            // What follows a slice that did not fit must not be sent before it.
            if count == SLICES_MAX {
                *left = 0;
            }
        };
        for (at, value) in &self.values {
            let to = at - self.written;
            add(&self.bytes[from..to], &mut left);
            add(&value[skip..], &mut left);
            (from, skip) = (to, 0);
        }
        add(&self.bytes[from..], &mut left);
        count
    }

    /// Drops `count` bytes, which were written.
    fn advance(&mut self, mut count: usize) {
        self.most = self.most.max(self.bytes.len());
        while count > 0 {
            let before = self
                .values
                .front()
                .map_or(self.bytes.len(), |(at, _)| at - self.written);
            let step = before.min(count);
            self.bytes.advance(step);
            self.written += step;
            count -= step;
            let Some((_, value)) = self.values.front().filter(|_| step == before) else {
                continue;
            };
            let step = (value.len() - self.value_written).min(count);
            self.value_written += step;
            self.value_bytes -= step;
            count -= step;
            if self.value_written == value.len() {
                self.values.pop_front();
                self.value_written = 0;
            }
        }
        if self.is_empty() {
            self.reset();
        }
    }

    /// The room is kept for the next output, unless it is too large to be kept.
    fn reset(&mut self) {
        if std::mem::take(&mut self.most) > KEPT_BYTES_MAX {
            self.bytes = BytesMut::new();
        } else {
            self.bytes.clear();
        }
        self.written = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts a few bytes at a time, only of the first slice or of all.
    struct Slow {
        taken: Vec<u8>,
        step: usize,
        vectored: bool,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.step);
            self.taken.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            let all: Vec<u8> = slices.iter().flat_map(|s| s.to_vec()).collect();
            assert!(all.len() <= 7, "no more than it was told");
            self.write(if self.vectored { &all } else { &slices[0] })
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn filled(values: usize) -> (ClientOutput, Vec<u8>) {
        let (mut output, mut expected) = (ClientOutput::default(), Vec::new());
        for n in 0..values {
            let (head, value) = (vec![b'a' + n as u8; n % 3], vec![b'A' + n as u8; n % 5]);
            output.bytes.extend_from_slice(&head);
            output.push(Value::from(&*value));
            expected.extend(head);
            expected.extend(value);
        }
        output.bytes.extend_from_slice(b"end");
        expected.extend_from_slice(b"end");
        (output, expected)
    }

    #[test]
    fn bytes_and_values_leave_in_order_however_they_are_taken() {
        for (step, vectored) in [
            (1, true),
            (3, true),
            (7, true),
            (100, true),
            (2, false),
            (100, false),
        ] {
            for values in [0, 1, 2, 5, 25] {
                let (mut output, expected) = filled(values);
                assert_eq!(output.len(), expected.len());
                let mut slow = Slow {
                    taken: Vec::new(),
                    step,
                    vectored,
                };
                while !output.is_empty() {
                    let left = output.len();
                    let (written, whole) = output.write(&mut slow, 7).expect("it takes some");
                    assert!(written > 0 && output.len() == left - written);
                    assert!(
                        whole || written == step || !vectored,
                        "all but the part that was too large"
                    );
                }
                assert_eq!(
                    String::from_utf8_lossy(&slow.taken),
                    String::from_utf8_lossy(&expected),
                    "{step} {vectored} {values}"
                );
            }
        }
    }

    #[test]
    fn output_appended_between_writes_comes_last() {
        let (mut output, mut expected) = filled(3);
        let mut slow = Slow {
            taken: Vec::new(),
            step: 2,
            vectored: true,
        };
        output.write(&mut slow, 7).expect("it takes some");
        output.push(Value::from(&b"VALUE"[..]));
        output.bytes.extend_from_slice(b"more");
        expected.extend_from_slice(b"VALUEmore");
        while !output.is_empty() {
            output.write(&mut slow, 7).expect("it takes some");
        }
        assert_eq!(slow.taken, expected);
    }
}
