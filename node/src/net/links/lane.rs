//! One lane of one link: a long-lived stream, with the bytes that wait on either side of it.

use crate::net::grow;
use bytes::{Bytes, BytesMut};
use quinn_proto::{Connection, ReadError, StreamId, WriteError};
use std::collections::VecDeque;

/// Limit of bytes read in one pass, about, before other lanes have a turn.
const READ_BYTES: usize = 128 << 10;

#[derive(Debug)]
pub(super) struct LaneIo {
    pub(super) stream: StreamId,
    /// Bytes that the stream did not take yet.
    waiting: VecDeque<Bytes>,
    /// The number of those bytes.
    pub(super) queued: usize,
    /// Bytes that were read and not consumed.
    pub(super) input: BytesMut,
    /// The number of those that count as a partial frame.
    pub(super) counted: usize,
    /// The stream may have more.
    pub(super) readable: bool,
    /// `input` has more than one call should handle.
    pub(super) again: bool,
}

/// The stream ended. The end of one lane ends the connection.
#[derive(Debug)]
pub(super) struct Ended;

impl LaneIo {
    pub(super) fn new(stream: StreamId) -> Self {
        Self {
            stream,
            waiting: VecDeque::new(),
            queued: 0,
            input: BytesMut::new(),
            counted: 0,
            readable: true,
            again: false,
        }
    }

    /// Of two lanes with bytes, the one of the higher priority goes first. It holds from the next
    /// packet with bytes of this lane on: so a lane that never has its turn cannot be raised.
    pub(super) fn prioritize(&self, connection: &mut Connection, priority: i32) {
        // The end of a stream is reported elsewhere.
        let _ = connection.send_stream(self.stream).set_priority(priority);
    }

    /// Sends bytes, or keeps them until the peer takes more.
    pub(super) fn push(&mut self, connection: &mut Connection, bytes: Bytes) {
        self.queued += bytes.len();
        self.waiting.push_back(bytes);
        if self.waiting.len() == 1 {
            self.flush(connection);
        }
    }

    /// Gives the stream as much as it takes.
    pub(super) fn flush(&mut self, connection: &mut Connection) {
        let mut stream = connection.send_stream(self.stream);
        while let Some(first) = self.waiting.front_mut() {
            match stream.write_chunks(std::slice::from_mut(first)) {
                Ok(written) => {
                    self.queued -= written.bytes;
                    if written.chunks > 0 {
                        self.waiting.pop_front();
                    }
                }
                // `Writable` reports when to continue. The end of a stream is reported elsewhere.
                Err(WriteError::Blocked | WriteError::Stopped(_) | WriteError::ClosedStream) => {
                    return;
                }
            }
        }
    }

    /// Reads what has arrived, up to a bound.
    pub(super) fn read(&mut self, connection: &mut Connection) -> Result<(), Ended> {
        self.readable = false;
        let mut stream = connection.recv_stream(self.stream);
        let mut chunks = stream.read(true).map_err(|_| Ended)?;
        let mut read = 0;
        let result = loop {
            if read >= READ_BYTES {
                self.readable = true;
                break Ok(());
            }
            match chunks.next(READ_BYTES) {
                Ok(Some(chunk)) => {
                    read += chunk.bytes.len();
                    grow::append(&mut self.input, &chunk.bytes);
                }
                Err(ReadError::Blocked) => break Ok(()),
                Ok(None) | Err(ReadError::Reset(_)) => break Err(Ended),
            }
        };
        // The caller touches the connection anyway, so the resulting window update is sent.
        let _ = chunks.finalize();
        result
    }
}
