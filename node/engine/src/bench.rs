//! Private parts that `benches/` measures. The wrappers are thin: a benchmark of a wrapper says
//! nothing.

use super::store::{Before, Effect, Key, Store};
use crate::command::operation::{Operation, Work};
use crate::log::dedup::OpId;
use crate::log::partition_log::Logged;
use crate::value::cause::Cause;
use crate::value::entry::Entry;
use crate::value::outcome::Outcome;
use crate::wire::api::Malformed;
use crate::wire::frame::{self, Ack, Forwarded, Frame, Head, Headroom, Out};
use bytes::BytesMut;
use doyen_placement::OrderKey;
use doyen_placement::{Epoch, KeyspaceId, Lineage, MapId, MemberId, PartitionId, PartitionRef};

const MAP: MapId = MapId(0);
const AT: PartitionRef = PartitionRef {
    keyspace: KeyspaceId(0),
    partition: PartitionId(3),
};

/// The keys of one partition.
#[derive(Debug)]
pub struct BenchKeys {
    store: Store,
    seq: u64,
}

impl Default for BenchKeys {
    fn default() -> Self {
        Self {
            store: Store::new(OrderKey(7)),
            seq: 0,
        }
    }
}

impl BenchKeys {
    /// Writes a new entry for a key, as the log does. Says whether it replaced one.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.seq += 1;
        let effect = Effect::Put {
            map: MAP,
            entry: Entry::new(key, value, 0, 0),
            deadline: 0,
            before: Before::Value,
        };
        matches!(
            self.store.apply(self.seq, &effect),
            super::store::Undo::Was(_)
        )
    }

    /// The length of a key's value.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<usize> {
        self.store
            .entry(MAP, self.store.order(key), key)
            .map(|e| e.value().len())
    }

    /// Deletes a key.
    pub fn delete(&mut self, key: &[u8]) {
        self.seq += 1;
        self.store.apply(
            self.seq,
            &Effect::Delete {
                map: MAP,
                key: Key::from(key),
                cause: Cause::Command,
            },
        );
    }

    /// The checksum of all entries, built in slices, as for comparing copies.
    pub fn checksum(&mut self) -> Option<u64> {
        self.store.sums.begin(1);
        while !self.store.advance_sum(1, crate::role::copying::SLICE).0 {}
        let sum = self.store.sums.of(1);
        self.store.sums.end(1);
        sum
    }
}

/// Log entries as a primary sends them.
#[derive(Debug)]
pub struct Batch(Vec<Logged>);

impl Batch {
    /// So many writes of this value.
    #[must_use]
    pub fn new(count: u64, value: &[u8]) -> Self {
        let logged = |n: u64| Logged {
            epoch: Epoch(1),
            effect: Effect::Put {
                map: MAP,
                entry: Entry::new(format!("key:{n:012}").as_bytes(), value, 0, 0),
                deadline: 0,
                before: Before::Value,
            },
            op: Some(OpId {
                origin: MemberId(1),
                n,
                finished: n,
            }),
            outcome: Outcome::Ok,
        };
        Self((1..=count).map(logged).collect())
    }

    /// Encodes all entries in one frame.
    pub fn encode(&self, to: &mut Outgoing) {
        let head = Head {
            at: AT,
            epoch: Epoch(1),
            session: 0,
            committed: 1,
            clock: 1,
            first: 2,
        };
        frame::append(&mut to.0, &head, self.0.iter());
    }
}

/// The buffer for encoded frames.
#[derive(Debug, Default)]
pub struct Outgoing(Out);

impl Outgoing {
    /// All bytes of the buffer, in one piece.
    #[must_use]
    pub fn take(&mut self) -> BytesMut {
        self.0.take().flatten().collect()
    }

    /// Empties the buffer.
    pub fn clear(&mut self) {
        drop(self.0.take());
    }
}

/// A forwarded call.
#[derive(Debug)]
pub struct Forward(Work);

impl Forward {
    /// A call of this operation.
    #[must_use]
    pub fn new(operation: Operation) -> Self {
        Self(Work::Key(operation))
    }

    /// Encodes the call in one frame.
    pub fn encode(&self, to: &mut Outgoing) {
        frame::forward(
            &mut to.0,
            &Forwarded {
                at: AT,
                lineage: Lineage(1),
                n: 9,
                finished: 8,
                attempt: 0,
            },
            None,
            &self.0,
        );
    }
}

/// Encodes acks of so many partitions in one frame.
pub fn encode_acks(count: u32, to: &mut Outgoing) {
    let ack = |p| Ack {
        at: PartitionRef {
            partition: PartitionId(p),
            ..AT
        },
        epoch: Epoch(1),
        session: 0,
        seq: 77,
    };
    Frame::Acks {
        headroom: Headroom {
            left: 1 << 30,
            kept: 0,
            loose: 0,
        },
        arrived: [1 << 20, 0],
        acks: (0..count).map(ack).collect(),
    }
    .put(&mut to.0);
}

/// Takes a frame off the front and decodes it. Says whether there was one.
///
/// # Errors
/// The frame is malformed.
pub fn decode(bytes: &mut BytesMut) -> Result<bool, Malformed> {
    Ok(frame::take(bytes, 64 << 20)?.is_some())
}
