//! What shards say to each other: frames laid out by hand, little-endian, `[length u32][kind u8][fields]`.
//!
//! The decoder takes nothing on a peer's word: it checks every length against what is there, and reserves nothing.

use super::Malformed;
use super::dedup::{OpId, Remembered};
use super::entry::Entry;
use super::log::Logged;
use super::op::{Action, Condition, ExpireCondition, Expiry, Failure, Operation, Outcome, PartitionAction, PartitionOperation, Value};
use super::store::{Effect, Key};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use doyen_placement::{ClusterId, Epoch, KeyspaceId, Lineage, MapId, MemberId, PartitionId, PartitionRef, TableName, Term, Version};

/// Room in a frame beside the largest key and values: a log entry may carry an old value as its outcome.
pub(super) const FRAME_SLACK: usize = 1 << 20;

/// An operation, on a key or on a partition.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Work {
    /// On one key.
    Key(Operation),
    /// On a partition.
    Partition(PartitionOperation),
}

/// One frame.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Frame {
    /// The sender has installed this table.
    View(TableName),
    /// Execute this in this lineage, and reply.
    Forward { at: PartitionRef, lineage: Lineage, n: u64, finished: u64, attempt: u32, work: Work },
    /// The outcome of a forwarded operation.
    Reply { at: PartitionRef, n: u64, outcome: Outcome },
    /// The sender is not the primary; nothing of this attempt from `n` on is executed.
    NotServing { at: PartitionRef, n: u64, attempt: u32 },
    /// A new primary's tail: the receiver's log becomes equal to it beyond `base`. Entries follow `first - 1`; the
    /// frame that reaches `last` ends the alignment.
    Align { head: Head, base: u64, last: u64, entries: Vec<Logged> },
    /// Entries from `head.first` on, in an aligned log.
    Append { head: Head, entries: Vec<Logged> },
    /// Everything up to here is applied; how much memory the sender has left, having received so many bytes.
    Acks { headroom: u64, received: u64, acks: Vec<Ack> },
    /// Send from `next` on: something is missing, or the sender installed this epoch just now.
    Want { at: PartitionRef, epoch: Epoch, session: u32, next: u64 },
    /// A copy for a learner begins after `seq`; one that was in sync and has everything up to `kept` answers with `Holds`.
    Begin { at: PartitionRef, epoch: Epoch, lineage: Lineage, session: u32, kept: u64, seq: u64 },
    /// The learner keeps what it holds: everything up to `committed` is as in every copy.
    Holds { at: PartitionRef, session: u32, committed: u64 },
    /// A part of the snapshot, with the digest of its bytes.
    Chunk { at: PartitionRef, session: u32, index: u32, digest: u64, body: Bytes },
    /// The chunk arrived.
    ChunkAck { at: PartitionRef, session: u32, index: u32 },
    /// What is known of some operations; part of the snapshot.
    Outcomes { at: PartitionRef, session: u32, dedup: Vec<Remembered> },
    /// The snapshot is complete after so many chunks, with the log up to `seq`.
    Finish { at: PartitionRef, session: u32, chunks: u32, seq: u64 },
    /// The learner has everything and its checksum is ready.
    Finished { at: PartitionRef, session: u32 },
    /// The primary's checksum at this sequence, and the partition's clock: a copy that is to count must know both.
    Compare { at: PartitionRef, session: u32, seq: u64, sum: u64, clock: u64 },
    /// Whether the learner's is the same.
    Verdict { at: PartitionRef, session: u32, equal: bool },
}

/// What every frame of the log begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// The partition.
    pub(super) at: PartitionRef,
    /// The epoch in which the sender leads it.
    pub(super) epoch: Epoch,
    /// The copying session in which the receiver began, 0 for an aligned copy.
    pub(super) session: u32,
    /// Everything up to here is committed.
    pub(super) committed: u64,
    /// The partition's clock in milliseconds.
    pub(super) clock: u64,
    /// Sequence of the first entry.
    pub(super) first: u64,
}

/// How far a copy has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ack {
    /// The partition.
    pub(super) at: PartitionRef,
    /// The epoch.
    pub(super) epoch: Epoch,
    /// The session.
    pub(super) session: u32,
    /// The last sequence applied.
    pub(super) seq: u64,
}

const VIEW: u8 = 1;
const FORWARD: u8 = 2;
const REPLY: u8 = 3;
const NOT_SERVING: u8 = 4;
const ALIGN: u8 = 5;
const APPEND: u8 = 6;
const ACKS: u8 = 7;
const WANT: u8 = 8;
const BEGIN: u8 = 9;
const CHUNK: u8 = 10;
const CHUNK_ACK: u8 = 11;
const FINISH: u8 = 12;
const FINISHED: u8 = 13;
const COMPARE: u8 = 14;
const VERDICT: u8 = 15;
const OUTCOMES: u8 = 16;
const HOLDS: u8 = 17;

/// Takes one whole frame off the front, if it is there.
pub(super) fn take(bytes: &mut BytesMut, frame_bytes_max: usize) -> Result<Option<Bytes>, Malformed> {
    let Some(length) = bytes.get(..4) else { return Ok(None) };
    let mut word = [0; 4];
    word.copy_from_slice(length);
    let length = u32::from_le_bytes(word) as usize;
    if length > frame_bytes_max {
        return Err(Malformed("frame above the limit"));
    }
    if bytes.len() - 4 < length {
        return Ok(None);
    }
    bytes.advance(4);
    Ok(Some(bytes.split_to(length).freeze()))
}

/// Writes a frame; `fields` writes what follows the kind.
fn framed(out: &mut BytesMut, kind: u8, fields: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_u32_le(0);
    out.put_u8(kind);
    fields(out);
    // Frames stay far below 4 GiB: values and batches are bounded before they come here.
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// Appends a frame of log entries. The hot path: no intermediate copy.
pub(super) fn append<'a>(out: &mut BytesMut, head: &Head, entries: impl Iterator<Item = &'a Logged>) {
    framed(out, APPEND, |out| {
        put_head(out, head);
        entries.for_each(|e| put_logged(out, e));
    });
}

/// Appends a frame of an alignment.
pub(super) fn align<'a>(out: &mut BytesMut, head: &Head, base: u64, last: u64, entries: impl Iterator<Item = &'a Logged>) {
    framed(out, ALIGN, |out| {
        put_head(out, head);
        out.put_u64_le(base);
        out.put_u64_le(last);
        entries.for_each(|e| put_logged(out, e));
    });
}

/// Appends a forwarded operation.
pub(super) fn forward(out: &mut BytesMut, at: PartitionRef, lineage: Lineage, (n, finished, attempt): (u64, u64, u32), work: &Work) {
    framed(out, FORWARD, |out| {
        put_at(out, at);
        out.put_u32_le(lineage.0);
        out.put_u64_le(n);
        out.put_u64_le(finished);
        out.put_u32_le(attempt);
        put_work(out, work);
    });
}

/// Appends a reply.
pub(super) fn reply(out: &mut BytesMut, at: PartitionRef, n: u64, outcome: &Outcome) {
    framed(out, REPLY, |out| {
        put_at(out, at);
        out.put_u64_le(n);
        put_outcome(out, outcome);
    });
}

/// Writes a snapshot entry into the body of a chunk.
pub(super) fn put_entry(body: &mut BytesMut, map: MapId, entry: &Entry) {
    body.put_u32_le(map.0);
    put_bytes(body, entry.key());
    put_bytes(body, entry.value());
    body.put_u64_le(entry.deadline());
    body.put_u64_le(entry.version());
}

/// Reads the entries of a chunk.
pub(super) fn entries(body: Bytes) -> Result<Vec<(MapId, Entry)>, Malformed> {
    let mut r = Reader(body);
    let mut found = Vec::new();
    while r.0.has_remaining() {
        let (map, key, value) = (MapId(r.u32()?), r.bytes()?, r.bytes()?);
        let (deadline, version) = (r.u64()?, r.u64()?);
        found.push((map, Entry::new(&key, &value, deadline, version)));
    }
    Ok(found)
}

impl Frame {
    /// Appends this frame.
    pub(super) fn put(&self, out: &mut BytesMut) {
        match self {
            Self::View(name) => framed(out, VIEW, |out| {
                out.put_u128_le(name.cluster.0);
                out.put_u64_le(name.term.0);
                out.put_u64_le(name.version.0);
                out.put_u64_le(name.hash);
            }),
            Self::Forward { at, lineage, n, finished, attempt, work } => forward(out, *at, *lineage, (*n, *finished, *attempt), work),
            Self::Reply { at, n, outcome } => reply(out, *at, *n, outcome),
            Self::NotServing { at, n, attempt } => framed(out, NOT_SERVING, |out| {
                put_at(out, *at);
                out.put_u64_le(*n);
                out.put_u32_le(*attempt);
            }),
            Self::Align { head, base, last, entries } => align(out, head, *base, *last, entries.iter()),
            Self::Append { head, entries } => append(out, head, entries.iter()),
            Self::Acks { headroom, received, acks } => framed(out, ACKS, |out| {
                out.put_u64_le(*headroom);
                out.put_u64_le(*received);
                for ack in acks {
                    put_at(out, ack.at);
                    out.put_u64_le(ack.epoch.0);
                    out.put_u32_le(ack.session);
                    out.put_u64_le(ack.seq);
                }
            }),
            Self::Want { at, epoch, session, next } => framed(out, WANT, |out| {
                put_at(out, *at);
                out.put_u64_le(epoch.0);
                out.put_u32_le(*session);
                out.put_u64_le(*next);
            }),
            Self::Begin { at, epoch, lineage, session, kept, seq } => framed(out, BEGIN, |out| {
                put_at(out, *at);
                out.put_u64_le(epoch.0);
                out.put_u32_le(lineage.0);
                out.put_u32_le(*session);
                out.put_u64_le(*kept);
                out.put_u64_le(*seq);
            }),
            Self::Holds { at, session, committed } => framed(out, HOLDS, |out| {
                put_session(out, *at, *session);
                out.put_u64_le(*committed);
            }),
            Self::Chunk { at, session, index, digest, body } => framed(out, CHUNK, |out| {
                put_session(out, *at, *session);
                out.put_u32_le(*index);
                out.put_u64_le(*digest);
                out.put_slice(body);
            }),
            Self::ChunkAck { at, session, index } => framed(out, CHUNK_ACK, |out| {
                put_session(out, *at, *session);
                out.put_u32_le(*index);
            }),
            Self::Outcomes { at, session, dedup } => framed(out, OUTCOMES, |out| {
                put_session(out, *at, *session);
                for (origin, finished, applied) in dedup {
                    out.put_u64_le(origin.0);
                    out.put_u64_le(*finished);
                    out.put_u32_le(applied.len() as u32);
                    for (n, seq, outcome) in applied {
                        out.put_u64_le(*n);
                        out.put_u64_le(*seq);
                        put_outcome(out, outcome);
                    }
                }
            }),
            Self::Finish { at, session, chunks, seq } => framed(out, FINISH, |out| {
                put_session(out, *at, *session);
                out.put_u32_le(*chunks);
                out.put_u64_le(*seq);
            }),
            Self::Finished { at, session } => framed(out, FINISHED, |out| put_session(out, *at, *session)),
            Self::Compare { at, session, seq, sum, clock } => framed(out, COMPARE, |out| {
                put_session(out, *at, *session);
                out.put_u64_le(*seq);
                out.put_u64_le(*sum);
                out.put_u64_le(*clock);
            }),
            Self::Verdict { at, session, equal } => framed(out, VERDICT, |out| {
                put_session(out, *at, *session);
                out.put_u8(u8::from(*equal));
            }),
        }
    }

    /// Reads one frame, whole.
    pub(super) fn read(frame: Bytes) -> Result<Self, Malformed> {
        let mut r = Reader(frame);
        let frame = match r.u8()? {
            VIEW => {
                Self::View(TableName { cluster: ClusterId(r.u128()?), term: Term(r.u64()?), version: Version(r.u64()?), hash: r.u64()? })
            }
            FORWARD => {
                let (at, lineage) = (r.at()?, Lineage(r.u32()?));
                Self::Forward { at, lineage, n: r.u64()?, finished: r.u64()?, attempt: r.u32()?, work: r.work()? }
            }
            REPLY => Self::Reply { at: r.at()?, n: r.u64()?, outcome: r.outcome()? },
            NOT_SERVING => Self::NotServing { at: r.at()?, n: r.u64()?, attempt: r.u32()? },
            ALIGN => Self::Align { head: r.head()?, base: r.u64()?, last: r.u64()?, entries: r.all(Reader::logged)? },
            APPEND => Self::Append { head: r.head()?, entries: r.all(Reader::logged)? },
            ACKS => Self::Acks { headroom: r.u64()?, received: r.u64()?, acks: r.all(Reader::ack)? },
            WANT => Self::Want { at: r.at()?, epoch: Epoch(r.u64()?), session: r.u32()?, next: r.u64()? },
            BEGIN => {
                let (at, epoch, lineage, session) = (r.at()?, Epoch(r.u64()?), Lineage(r.u32()?), r.u32()?);
                Self::Begin { at, epoch, lineage, session, kept: r.u64()?, seq: r.u64()? }
            }
            HOLDS => Self::Holds { at: r.at()?, session: r.u32()?, committed: r.u64()? },
            CHUNK => {
                let (at, session, index, digest) = (r.at()?, r.u32()?, r.u32()?, r.u64()?);
                let body = r.0.split_to(r.0.len());
                Self::Chunk { at, session, index, digest, body }
            }
            CHUNK_ACK => Self::ChunkAck { at: r.at()?, session: r.u32()?, index: r.u32()? },
            OUTCOMES => Self::Outcomes { at: r.at()?, session: r.u32()?, dedup: r.all(Reader::origin)? },
            FINISH => Self::Finish { at: r.at()?, session: r.u32()?, chunks: r.u32()?, seq: r.u64()? },
            FINISHED => Self::Finished { at: r.at()?, session: r.u32()? },
            COMPARE => Self::Compare { at: r.at()?, session: r.u32()?, seq: r.u64()?, sum: r.u64()?, clock: r.clock()? },
            VERDICT => Self::Verdict { at: r.at()?, session: r.u32()?, equal: r.flag()? },
            _ => return Err(Malformed("unknown kind of frame")),
        };
        if r.0.has_remaining() {
            return Err(Malformed("bytes after the end of a frame"));
        }
        Ok(frame)
    }
}

fn put_at(out: &mut BytesMut, at: PartitionRef) {
    out.put_u16_le(at.keyspace.0);
    out.put_u32_le(at.partition.0);
}

fn put_session(out: &mut BytesMut, at: PartitionRef, session: u32) {
    put_at(out, at);
    out.put_u32_le(session);
}

fn put_head(out: &mut BytesMut, head: &Head) {
    put_at(out, head.at);
    out.put_u64_le(head.epoch.0);
    out.put_u32_le(head.session);
    out.put_u64_le(head.committed);
    out.put_u64_le(head.clock);
    out.put_u64_le(head.first);
}

fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32_le(bytes.len() as u32);
    out.put_slice(bytes);
}

fn put_logged(out: &mut BytesMut, logged: &Logged) {
    out.put_u64_le(logged.epoch.0);
    match &logged.op {
        None => out.put_u8(0),
        Some(op) => {
            out.put_u8(1);
            out.put_u64_le(op.origin.0);
            out.put_u64_le(op.n);
            out.put_u64_le(op.finished);
            put_outcome(out, &logged.outcome);
        }
    }
    match &logged.effect {
        Effect::Put { map, entry, deadline } => {
            out.put_u8(0);
            out.put_u32_le(map.0);
            put_bytes(out, entry.key());
            put_bytes(out, entry.value());
            out.put_u64_le(*deadline);
        }
        Effect::Delete { map, key } => {
            out.put_u8(1);
            out.put_u32_le(map.0);
            put_bytes(out, key);
        }
        Effect::Deadline { map, key, deadline } => {
            out.put_u8(2);
            out.put_u32_le(map.0);
            put_bytes(out, key);
            out.put_u64_le(*deadline);
        }
        Effect::Clear { map } => {
            out.put_u8(3);
            out.put_u32_le(map.0);
        }
    }
}

fn put_outcome(out: &mut BytesMut, outcome: &Outcome) {
    match outcome {
        Outcome::Ok => out.put_u8(0),
        Outcome::Nil => out.put_u8(1),
        Outcome::Int(n) => {
            out.put_u8(2);
            out.put_i64_le(*n);
        }
        Outcome::Bulk(value) => {
            out.put_u8(3);
            put_bytes(out, value);
        }
        Outcome::Keys { next, keys } => {
            out.put_u8(4);
            out.put_u64_le(*next);
            out.put_u32_le(keys.len() as u32);
            keys.iter().for_each(|k| put_bytes(out, k));
        }
        Outcome::Failed(failure) => {
            out.put_u8(5);
            out.put_u8(match failure {
                Failure::NotAnInteger => 0,
                Failure::NotAFloat => 1,
                Failure::Overflow => 2,
                Failure::TooLarge => 3,
                Failure::OutOfMemory => 4,
                Failure::TooFewCopies => 5,
                Failure::NoPartition => 6,
                Failure::Unavailable => 7,
                Failure::Unknown => 8,
                Failure::Overloaded => 9,
            });
        }
    }
}

fn put_expiry(out: &mut BytesMut, expiry: Expiry) {
    let (kind, ms) = match expiry {
        Expiry::Keep => (0, 0),
        Expiry::None => (1, 0),
        Expiry::In(ms) => (2, ms),
        Expiry::At(ms) => (3, ms),
    };
    out.put_u8(kind);
    out.put_i64_le(ms);
}

fn put_work(out: &mut BytesMut, work: &Work) {
    match work {
        Work::Key(op) => {
            out.put_u8(0);
            out.put_u16_le(op.keyspace.0);
            out.put_u32_le(op.map.0);
            put_bytes(out, &op.key);
            put_action(out, &op.action);
        }
        Work::Partition(op) => {
            out.put_u8(1);
            out.put_u16_le(op.keyspace.0);
            out.put_u32_le(op.partition.0);
            out.put_u32_le(op.map.0);
            match &op.action {
                PartitionAction::Count => out.put_u8(0),
                PartitionAction::Scan { cursor, count } => {
                    out.put_u8(1);
                    out.put_u64_le(*cursor);
                    out.put_u32_le(*count);
                }
                PartitionAction::Clear => out.put_u8(2),
            }
        }
    }
}

fn put_action(out: &mut BytesMut, action: &Action) {
    match action {
        Action::Get => out.put_u8(0),
        Action::Strlen => out.put_u8(1),
        Action::Exists => out.put_u8(2),
        Action::PTtl => out.put_u8(3),
        Action::PExpireTime => out.put_u8(4),
        Action::Set { value, condition, expiry, get } => {
            out.put_u8(5);
            put_bytes(out, value);
            out.put_u8(match condition {
                Condition::Always => 0,
                Condition::IfAbsent => 1,
                Condition::IfPresent => 2,
            });
            put_expiry(out, *expiry);
            out.put_u8(u8::from(*get));
        }
        Action::CompareAndSwap { expected, value } => {
            out.put_u8(6);
            out.put_u8(u8::from(expected.is_some()));
            put_bytes(out, expected.as_deref().unwrap_or_default());
            put_bytes(out, value);
        }
        Action::GetEx { expiry } => {
            out.put_u8(7);
            put_expiry(out, *expiry);
        }
        Action::GetDel => out.put_u8(8),
        Action::Append { value } => {
            out.put_u8(9);
            put_bytes(out, value);
        }
        Action::IncrBy(by) => {
            out.put_u8(10);
            out.put_i64_le(*by);
        }
        Action::IncrByFloat(by) => {
            out.put_u8(11);
            out.put_f64_le(*by);
        }
        Action::Delete => out.put_u8(12),
        Action::Expire { expiry, condition } => {
            out.put_u8(13);
            put_expiry(out, *expiry);
            out.put_u8(match condition {
                ExpireCondition::Always => 0,
                ExpireCondition::IfNone => 1,
                ExpireCondition::IfSome => 2,
                ExpireCondition::IfLater => 3,
                ExpireCondition::IfEarlier => 4,
                ExpireCondition::IfSomeEarlier => 5,
            });
        }
        Action::Persist => out.put_u8(14),
    }
}

/// Reads fields off the front; every read checks that they are there.
struct Reader(Bytes);

type Read<T> = Result<T, Malformed>;

const SHORT: Malformed = Malformed("frame ends too early");

impl Reader {
    fn need(&self, bytes: usize) -> Read<()> {
        if self.0.len() < bytes { Err(SHORT) } else { Ok(()) }
    }

    fn u8(&mut self) -> Read<u8> {
        self.need(1).map(|()| self.0.get_u8())
    }

    fn u16(&mut self) -> Read<u16> {
        self.need(2).map(|()| self.0.get_u16_le())
    }

    fn u32(&mut self) -> Read<u32> {
        self.need(4).map(|()| self.0.get_u32_le())
    }

    fn u64(&mut self) -> Read<u64> {
        self.need(8).map(|()| self.0.get_u64_le())
    }

    fn i64(&mut self) -> Read<i64> {
        self.need(8).map(|()| self.0.get_i64_le())
    }

    fn f64(&mut self) -> Read<f64> {
        self.need(8).map(|()| self.0.get_f64_le())
    }

    fn u128(&mut self) -> Read<u128> {
        self.need(16).map(|()| self.0.get_u128_le())
    }

    fn flag(&mut self) -> Read<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag that is neither 0 nor 1")),
        }
    }

    /// A slice of the frame: no copy.
    fn bytes(&mut self) -> Read<Bytes> {
        let length = self.u32()? as usize;
        self.need(length).map(|()| self.0.split_to(length))
    }

    fn all<T>(&mut self, one: impl Fn(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let mut found = Vec::new();
        while self.0.has_remaining() {
            found.push(one(self)?);
        }
        Ok(found)
    }

    fn at(&mut self) -> Read<PartitionRef> {
        Ok(PartitionRef { keyspace: KeyspaceId(self.u16()?), partition: PartitionId(self.u32()?) })
    }

    fn head(&mut self) -> Read<Head> {
        let (at, epoch, session) = (self.at()?, Epoch(self.u64()?), self.u32()?);
        let head = Head { at, epoch, session, committed: self.u64()?, clock: self.u64()?, first: self.u64()? };
        // Sequences and clocks are added to: nothing near the end of the range is true.
        if head.committed > SEQ_MAX || head.clock > SEQ_MAX || head.first > SEQ_MAX || head.first == 0 {
            return Err(Malformed("a sequence or clock beyond all bounds"));
        }
        Ok(head)
    }

    fn clock(&mut self) -> Read<u64> {
        self.u64().and_then(|clock| if clock > SEQ_MAX { Err(Malformed("a clock beyond all bounds")) } else { Ok(clock) })
    }

    fn ack(&mut self) -> Read<Ack> {
        Ok(Ack { at: self.at()?, epoch: Epoch(self.u64()?), session: self.u32()?, seq: self.u64()? })
    }

    fn origin(&mut self) -> Read<Remembered> {
        let (origin, finished, count) = (MemberId(self.u64()?), self.u64()?, self.u32()?);
        let mut applied = Vec::new();
        for _ in 0..count {
            applied.push((self.u64()?, self.u64()?, self.outcome()?));
        }
        Ok((origin, finished, applied))
    }

    fn logged(&mut self) -> Read<Logged> {
        let epoch = Epoch(self.u64()?);
        let (op, outcome) = if self.flag()? {
            let op = OpId { origin: MemberId(self.u64()?), n: self.u64()?, finished: self.u64()? };
            (Some(op), self.outcome()?)
        } else {
            (None, Outcome::Ok)
        };
        let kind = self.u8()?;
        let map = MapId(self.u32()?);
        let effect = match kind {
            0 => {
                let (key, value, deadline) = (self.bytes()?, self.bytes()?, self.u64()?);
                // Dated when it is applied.
                Effect::Put { map, entry: Entry::new(&key, &value, 0, 0), deadline }
            }
            1 => Effect::Delete { map, key: self.key()? },
            2 => Effect::Deadline { map, key: self.key()?, deadline: self.u64()? },
            3 => Effect::Clear { map },
            _ => return Err(Malformed("unknown effect")),
        };
        Ok(Logged { epoch, effect, op, outcome })
    }

    fn key(&mut self) -> Read<Key> {
        Ok(Key::from(&*self.bytes()?))
    }

    fn outcome(&mut self) -> Read<Outcome> {
        Ok(match self.u8()? {
            0 => Outcome::Ok,
            1 => Outcome::Nil,
            2 => Outcome::Int(self.i64()?),
            3 => Outcome::Bulk(Value::from(&*self.bytes()?)),
            4 => {
                let (next, count) = (self.u64()?, self.u32()?);
                let mut keys = Vec::new();
                for _ in 0..count {
                    keys.push(self.bytes()?);
                }
                Outcome::Keys { next, keys }
            }
            5 => Outcome::Failed(match self.u8()? {
                0 => Failure::NotAnInteger,
                1 => Failure::NotAFloat,
                2 => Failure::Overflow,
                3 => Failure::TooLarge,
                4 => Failure::OutOfMemory,
                5 => Failure::TooFewCopies,
                6 => Failure::NoPartition,
                7 => Failure::Unavailable,
                8 => Failure::Unknown,
                9 => Failure::Overloaded,
                _ => return Err(Malformed("unknown failure")),
            }),
            _ => return Err(Malformed("unknown outcome")),
        })
    }

    fn expiry(&mut self) -> Read<Expiry> {
        let (kind, ms) = (self.u8()?, self.i64()?);
        match kind {
            0 if ms == 0 => Ok(Expiry::Keep),
            1 if ms == 0 => Ok(Expiry::None),
            2 => Ok(Expiry::In(ms)),
            3 => Ok(Expiry::At(ms)),
            _ => Err(Malformed("unknown expiry")),
        }
    }

    fn work(&mut self) -> Read<Work> {
        if self.flag()? {
            let (keyspace, partition, map) = (KeyspaceId(self.u16()?), PartitionId(self.u32()?), MapId(self.u32()?));
            let action = match self.u8()? {
                0 => PartitionAction::Count,
                1 => PartitionAction::Scan { cursor: self.u64()?, count: self.u32()? },
                2 => PartitionAction::Clear,
                _ => return Err(Malformed("unknown partition action")),
            };
            return Ok(Work::Partition(PartitionOperation { keyspace, partition, map, action }));
        }
        let (keyspace, map, key) = (KeyspaceId(self.u16()?), MapId(self.u32()?), self.bytes()?);
        Ok(Work::Key(Operation { keyspace, map, key, action: self.action()? }))
    }

    fn action(&mut self) -> Read<Action> {
        Ok(match self.u8()? {
            0 => Action::Get,
            1 => Action::Strlen,
            2 => Action::Exists,
            3 => Action::PTtl,
            4 => Action::PExpireTime,
            5 => {
                let value = self.bytes()?;
                let condition = match self.u8()? {
                    0 => Condition::Always,
                    1 => Condition::IfAbsent,
                    2 => Condition::IfPresent,
                    _ => return Err(Malformed("unknown condition")),
                };
                Action::Set { value, condition, expiry: self.expiry()?, get: self.flag()? }
            }
            6 => {
                let (some, expected, value) = (self.flag()?, self.bytes()?, self.bytes()?);
                if !some && !expected.is_empty() {
                    return Err(Malformed("an absent value that has bytes"));
                }
                Action::CompareAndSwap { expected: some.then_some(expected), value }
            }
            7 => Action::GetEx { expiry: self.expiry()? },
            8 => Action::GetDel,
            9 => Action::Append { value: self.bytes()? },
            10 => Action::IncrBy(self.i64()?),
            11 => Action::IncrByFloat(self.f64()?),
            12 => Action::Delete,
            13 => {
                let expiry = self.expiry()?;
                let condition = match self.u8()? {
                    0 => ExpireCondition::Always,
                    1 => ExpireCondition::IfNone,
                    2 => ExpireCondition::IfSome,
                    3 => ExpireCondition::IfLater,
                    4 => ExpireCondition::IfEarlier,
                    5 => ExpireCondition::IfSomeEarlier,
                    _ => return Err(Malformed("unknown expire condition")),
                };
                Action::Expire { expiry, condition }
            }
            14 => Action::Persist,
            _ => return Err(Malformed("unknown action")),
        })
    }
}

/// No sequence and no clock comes near this.
pub(super) const SEQ_MAX: u64 = 1 << 62;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at() -> impl Strategy<Value = PartitionRef> {
        (any::<u16>(), any::<u32>()).prop_map(|(k, p)| PartitionRef { keyspace: KeyspaceId(k), partition: PartitionId(p) })
    }

    fn bytes() -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..12).prop_map(Bytes::from)
    }

    fn outcome() -> impl Strategy<Value = Outcome> {
        prop_oneof![
            Just(Outcome::Ok),
            Just(Outcome::Nil),
            any::<i64>().prop_map(Outcome::Int),
            bytes().prop_map(|b| Outcome::Bulk(Value::from(&*b))),
            (any::<u64>(), prop::collection::vec(bytes(), 0..3)).prop_map(|(next, keys)| Outcome::Keys { next, keys }),
            prop::sample::select(vec![Failure::NotAFloat, Failure::OutOfMemory, Failure::Overloaded]).prop_map(Outcome::Failed),
        ]
    }

    fn expiry() -> impl Strategy<Value = Expiry> {
        prop_oneof![Just(Expiry::Keep), Just(Expiry::None), any::<i64>().prop_map(Expiry::In), any::<i64>().prop_map(Expiry::At)]
    }

    fn action() -> impl Strategy<Value = Action> {
        let condition = prop::sample::select(vec![Condition::Always, Condition::IfAbsent, Condition::IfPresent]);
        let expire = prop::sample::select(vec![
            ExpireCondition::Always,
            ExpireCondition::IfLater,
            ExpireCondition::IfNone,
            ExpireCondition::IfSomeEarlier,
        ]);
        prop_oneof![
            prop::sample::select(vec![Action::Get, Action::Strlen, Action::Exists, Action::PTtl, Action::PExpireTime]),
            prop::sample::select(vec![Action::GetDel, Action::Delete, Action::Persist]),
            (bytes(), condition, expiry(), any::<bool>()).prop_map(|(value, condition, expiry, get)| Action::Set {
                value,
                condition,
                expiry,
                get
            }),
            (prop::option::of(bytes()), bytes()).prop_map(|(expected, value)| Action::CompareAndSwap { expected, value }),
            expiry().prop_map(|expiry| Action::GetEx { expiry }),
            bytes().prop_map(|value| Action::Append { value }),
            any::<i64>().prop_map(Action::IncrBy),
            (-1e9..1e9).prop_map(Action::IncrByFloat),
            (expiry(), expire).prop_map(|(expiry, condition)| Action::Expire { expiry, condition }),
        ]
    }

    fn work() -> impl Strategy<Value = Work> {
        let partition_action = prop_oneof![
            Just(PartitionAction::Count),
            Just(PartitionAction::Clear),
            (any::<u64>(), any::<u32>()).prop_map(|(cursor, count)| PartitionAction::Scan { cursor, count })
        ];
        prop_oneof![
            (any::<u16>(), any::<u32>(), bytes(), action()).prop_map(|(k, m, key, action)| Work::Key(Operation {
                keyspace: KeyspaceId(k),
                map: MapId(m),
                key,
                action
            })),
            (at(), any::<u32>(), partition_action).prop_map(|(at, m, action)| Work::Partition(PartitionOperation {
                keyspace: at.keyspace,
                partition: at.partition,
                map: MapId(m),
                action
            })),
        ]
    }

    fn logged() -> impl Strategy<Value = Logged> {
        let key = || bytes().prop_map(|b| Key::from(&*b));
        let effect = prop_oneof![
            (any::<u32>(), key(), bytes(), any::<u64>()).prop_map(|(m, key, v, deadline)| Effect::Put {
                map: MapId(m),
                entry: Entry::new(&key, &v, 0, 0),
                deadline
            }),
            (any::<u32>(), key()).prop_map(|(m, key)| Effect::Delete { map: MapId(m), key }),
            (any::<u32>(), key(), any::<u64>()).prop_map(|(m, key, deadline)| Effect::Deadline { map: MapId(m), key, deadline }),
            any::<u32>().prop_map(|m| Effect::Clear { map: MapId(m) }),
        ];
        let op = (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(o, n, finished)| OpId { origin: MemberId(o), n, finished });
        (any::<u64>(), effect, prop::option::of((op, outcome()))).prop_map(|(epoch, effect, op)| {
            let (op, outcome) = op.map_or((None, Outcome::Ok), |(op, outcome)| (Some(op), outcome));
            Logged { epoch: Epoch(epoch), effect, op, outcome }
        })
    }

    fn head() -> impl Strategy<Value = Head> {
        (at(), any::<u64>(), any::<u32>(), 0..SEQ_MAX, 0..SEQ_MAX, 1..SEQ_MAX)
            .prop_map(|(at, epoch, session, committed, clock, first)| Head { at, epoch: Epoch(epoch), session, committed, clock, first })
    }

    fn frame() -> impl Strategy<Value = Frame> {
        let n = any::<u64>;
        let s = any::<u32>;
        let ack = (at(), n(), s(), n()).prop_map(|(at, e, session, seq)| Ack { at, epoch: Epoch(e), session, seq });
        let applied = prop::collection::vec((n(), n(), outcome()), 0..3);
        prop_oneof![
            (any::<u128>(), n(), n(), n()).prop_map(|(c, t, v, hash)| Frame::View(TableName {
                cluster: ClusterId(c),
                term: Term(t),
                version: Version(v),
                hash
            })),
            (at(), s(), n(), n(), s(), work()).prop_map(|(at, lineage, n, finished, attempt, work)| Frame::Forward {
                at,
                lineage: Lineage(lineage),
                n,
                finished,
                attempt,
                work
            }),
            (at(), n(), outcome()).prop_map(|(at, n, outcome)| Frame::Reply { at, n, outcome }),
            (at(), n(), s()).prop_map(|(at, n, attempt)| Frame::NotServing { at, n, attempt }),
            (head(), n(), n(), prop::collection::vec(logged(), 0..4)).prop_map(|(head, base, last, entries)| Frame::Align {
                head,
                base,
                last,
                entries
            }),
            (head(), prop::collection::vec(logged(), 0..4)).prop_map(|(head, entries)| Frame::Append { head, entries }),
            (n(), n(), prop::collection::vec(ack, 0..4)).prop_map(|(headroom, received, acks)| Frame::Acks { headroom, received, acks }),
            (at(), n(), s(), n()).prop_map(|(at, e, session, next)| Frame::Want { at, epoch: Epoch(e), session, next }),
            (at(), n(), s(), s(), n(), n()).prop_map(|(at, e, l, session, kept, seq)| Frame::Begin {
                at,
                epoch: Epoch(e),
                lineage: Lineage(l),
                session,
                kept,
                seq
            }),
            (at(), s(), n()).prop_map(|(at, session, committed)| Frame::Holds { at, session, committed }),
            (at(), s(), s(), n(), bytes()).prop_map(|(at, session, index, digest, body)| Frame::Chunk { at, session, index, digest, body }),
            (at(), s(), s()).prop_map(|(at, session, index)| Frame::ChunkAck { at, session, index }),
            (at(), s(), prop::collection::vec((n().prop_map(MemberId), n(), applied), 0..3))
                .prop_map(|(at, session, dedup)| Frame::Outcomes { at, session, dedup }),
            (at(), s(), s(), n()).prop_map(|(at, session, chunks, seq)| Frame::Finish { at, session, chunks, seq }),
            (at(), s()).prop_map(|(at, session)| Frame::Finished { at, session }),
            (at(), s(), n(), n(), 0..SEQ_MAX).prop_map(|(at, session, seq, sum, clock)| Frame::Compare { at, session, seq, sum, clock }),
            (at(), s(), any::<bool>()).prop_map(|(at, session, equal)| Frame::Verdict { at, session, equal }),
        ]
    }

    proptest! {
        #[test]
        fn frames_survive_the_wire_however_it_is_cut(frames in prop::collection::vec(frame(), 1..5), cut in 1usize..40) {
            let mut wire = BytesMut::new();
            frames.iter().for_each(|f| f.put(&mut wire));
            let (mut arrived, mut read) = (BytesMut::new(), Vec::new());
            for part in wire.chunks(cut) {
                arrived.extend_from_slice(part);
                while let Some(frame) = take(&mut arrived, 1 << 16).unwrap() {
                    read.push(Frame::read(frame).unwrap());
                }
            }
            prop_assert_eq!(read, frames);
            prop_assert!(arrived.is_empty());
        }

        #[test]
        fn random_bytes_are_refused_without_a_panic(kind in 0u8..20, body in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = vec![kind];
            bytes.extend(body.clone());
            let _ = Frame::read(Bytes::from(bytes));
            let _ = entries(Bytes::from(body));
        }

        #[test]
        fn a_damaged_frame_is_refused_or_read_without_a_panic(frame in frame(), at in any::<prop::sample::Index>(), with in any::<u8>()) {
            let mut wire = BytesMut::new();
            frame.put(&mut wire);
            let at = at.index(wire.len() - 4) + 4;
            wire[at] = with;
            let _ = Frame::read(wire.split_off(4).freeze());
        }
    }

    #[test]
    fn a_frame_above_the_limit_is_refused_before_it_arrives() {
        let mut bytes = BytesMut::from(&u32::MAX.to_le_bytes()[..]);
        assert!(take(&mut bytes, 1 << 20).is_err());
    }
}
