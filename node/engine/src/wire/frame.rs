//! Frames between shards: `[length u32][kind u8][fields]`, little-endian.
//!
//! The frames of operations and of log entries are laid out by hand, and rare ones by serde
//! (`rare`). A kind never changes its layout: `doyen_placement::level` says how to add to them.
//!
//! The decoder trusts nothing: it checks every length against the bytes that are there, and
//! reserves nothing.

mod layouts;
mod logged;
mod out;
mod rare;
mod told;
mod work;

use super::api::Malformed;
use super::traffic::Lanes;
use crate::command::operation::{
    Action, Condition, ExpireCondition, Expiry, FindQuery, Operation, OperationBatch,
    OperationStep, PartitionAction, PartitionOperation, RangeQuery, ScriptCall, Watched, Work,
};
use crate::command::procedure::{Called, ProcedureCall};
use crate::command::publication::Publication;
use crate::log::changes::{Change, Filter, Former, Missing, Position, What};
use crate::log::dedup::{OpId, Remembered};
use crate::log::partition_log::Logged;
use crate::store::{Before, Effect, Key, Piece, digest_bytes};
use crate::value::cause::{By, Cause};
use crate::value::entry::{Entry, kind_of_stamp};
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome, Value};
use crate::wire::questions::AskedSubscribers;
use crate::wire::trace::TraceContext;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use doyen_placement::{
    ClusterId, Epoch, KeyspaceId, Lineage, MapEntry, MapId, MemberId, PartitionId, PartitionRef,
    TableName, Term, Version, WantedMap,
};

use layouts::{Decoded, Field, FrameReader, LastField, put, put_bytes};
pub(crate) use out::{Out, OutMark};

/// Room in a frame besides the largest key and values: a log entry may carry an old value as its
/// outcome.
pub(crate) const FRAME_SLACK: usize = 1 << 20;

/// How far a chunk may exceed the size at which it ends: by its head and, mostly, its last entry.
const CHUNK_SLACK: usize = 16 << 10;

/// One frame.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Frame {
    /// The sender has installed this table.
    View(TableName),
    /// Execute this in this lineage and reply. If the operation is sent again, do not execute it
    /// after this write of its origin, or a later one.
    Forward {
        forwarded: Forwarded,
        before: Option<u64>,
        work: Work,
    },
    /// The same for a write without conditions, which nearly all writes are.
    ForwardSet {
        forwarded: Forwarded,
        map: MapId,
        entry: Entry,
    },
    /// The outcome of a forwarded operation.
    Reply {
        at: PartitionRef,
        n: u64,
        attempt: u32,
        outcome: Outcome,
    },
    /// The sender is not the primary. It executes nothing of this attempt from `n` on.
    NotServing {
        at: PartitionRef,
        n: u64,
        attempt: u32,
    },
    /// A new primary's tail: the receiver's log becomes equal to it beyond `base`. The entries
    /// follow `first - 1`. The frame that reaches `last` ends the alignment.
    Align {
        head: FrameHead,
        base: u64,
        last: u64,
        entries: Vec<Logged>,
    },
    /// Entries from `head.first` on, in an aligned log.
    Append {
        head: FrameHead,
        entries: Vec<Logged>,
    },
    /// Everything up to here is applied. Also how much memory the sender has left after `arrived`
    /// bytes of each lane have come.
    Acks {
        headroom: Headroom,
        arrived: Lanes,
        acks: Vec<Ack>,
    },
    /// Send from `next` on: an entry is missing, or the sender has just installed this epoch.
    Want {
        at: PartitionRef,
        epoch: Epoch,
        session: u32,
        next: u64,
    },
    /// A copy for a learner begins after `seq`. A copy that was in sync and has everything up to
    /// `kept` answers with `Holds`. The primary stores `bytes`.
    Begin {
        at: PartitionRef,
        epoch: Epoch,
        lineage: Lineage,
        session: u32,
        kept: u64,
        seq: u64,
        bytes: u64,
    },
    /// The learner has no room for the copy.
    NoRoom { at: PartitionRef, session: u32 },
    /// The learner puts off the announced copy (`Begin`) because of its pace: the primary may
    /// announce it again after `ms`.
    Later {
        at: PartitionRef,
        session: u32,
        ms: u32,
    },
    /// The answer to `Begin` of a learner that was in sync before. It keeps what it holds and needs
    /// no snapshot: everything up to `committed` is the same in every copy, and the primary sends
    /// the log after that.
    Holds {
        at: PartitionRef,
        session: u32,
        committed: u64,
    },
    /// A part of the snapshot, with the digest of its bytes.
    Chunk {
        at: PartitionRef,
        session: u32,
        index: u32,
        digest: u64,
        body: Bytes,
    },
    /// The chunk arrived.
    ChunkAck {
        at: PartitionRef,
        session: u32,
        index: u32,
    },
    /// The connection was lost, or another epoch began: how much of this session's snapshot has
    /// arrived? The snapshot goes on as session `next`, so chunks that are still under way do not
    /// count.
    Continue {
        at: PartitionRef,
        epoch: Epoch,
        session: u32,
        next: u32,
    },
    /// `chunks` have arrived, with the log up to `seq`, and maybe the end; or the snapshot is
    /// unknown.
    Arrived {
        at: PartitionRef,
        session: u32,
        chunks: u32,
        seq: u64,
        holds: bool,
        finished: bool,
    },
    /// Outcomes of some operations; a part of the snapshot.
    Outcomes {
        at: PartitionRef,
        session: u32,
        dedup: Vec<Remembered>,
    },
    /// The primary has sent the whole snapshot. It is complete at the learner once `chunks`, and
    /// the log up to `seq`, have arrived.
    Finish {
        at: PartitionRef,
        session: u32,
        chunks: u32,
        seq: u64,
    },
    /// The learner has everything and its checksum is ready.
    Finished { at: PartitionRef, session: u32 },
    /// The primary's checksum at this sequence, and the partition's clock. A copy must know both
    /// before it counts.
    Compare {
        at: PartitionRef,
        session: u32,
        seq: u64,
        sum: u64,
        clock: u64,
    },
    /// Whether the learner's checksum is the same.
    Verdict {
        at: PartitionRef,
        session: u32,
        equal: bool,
    },
    /// To a client: the sender's clock, the largest value that it accepts, and its installed table.
    Tick {
        clock: u64,
        value_bytes_max: u64,
        table: TableName,
    },
    /// From a client: it sent what follows after it had heard this clock of the receiver.
    Heard { clock: u64 },
    /// From a client: send the table if it is newer than this one.
    Pull { have: Option<TableName> },
    /// To a client: one part of a table, encoded.
    Table {
        name: TableName,
        part: u32,
        parts: u32,
        body: Bytes,
    },
    /// From a client: which number has this map? It is made if it does not exist.
    MakeMap {
        ticket: u64,
        keyspace: String,
        name: String,
    },
    /// From a client: the map shall be as it is wanted.
    WantMap { ticket: u64, wanted: WantedMap },
    /// The answer to `MakeMap` and `WantMap`: the map, or why there is none. With a dropped map, as
    /// it was.
    MapMade {
        ticket: u64,
        made: Result<MapEntry, String>,
    },
    /// A message of a publisher, for the subscribers at the receiver.
    Publish(Publication),
    /// The sender wants such messages, or no longer.
    Interest { round: u64, wanted: bool },
    /// The receiver of `Interest` knows it.
    Interested { round: u64 },
    /// How many subscribers have these channels at the receiver's process?
    Count {
        ticket: u64,
        sharded: bool,
        names: Vec<Vec<u8>>,
    },
    /// The number of subscribers of each channel.
    Counted { ticket: u64, counts: Vec<u64> },
    /// A question about the subscribers at the receiver's process.
    Ask {
        ticket: u64,
        asked: AskedSubscribers,
    },
    /// These names. More follow after `next`.
    Named {
        ticket: u64,
        names: Vec<Vec<u8>>,
        next: Option<Vec<u8>>,
    },
    /// Tell me the committed changes that this filter lets through, from where I am on.
    Subscribe {
        at: PartitionRef,
        ticket: u64,
        filter: Filter,
        had: Vec<Position>,
    },
    /// Changes after `seq` follow. `missing` says what is missing before it.
    Subscribed {
        at: PartitionRef,
        ticket: u64,
        seq: u64,
        missing: Missing,
    },
    /// These changes are all up to `last`.
    Changes {
        at: PartitionRef,
        ticket: u64,
        last: u64,
        changes: Vec<Change>,
    },
    /// The subscriber took `bytes` more of changes.
    Taken {
        at: PartitionRef,
        ticket: u64,
        bytes: u64,
    },
    /// Changes are not wanted any more.
    Unsubscribe { at: PartitionRef, ticket: u64 },
    /// Logs of these keyspaces are read: keep some of them for a while, and what their entries
    /// replaced, if that is said.
    Reads { keyspaces: Vec<(KeyspaceId, bool)> },
    /// A subscriber asks which of its tickets were told all that is committed.
    Confirm { round: u64 },
    /// These were, when the question arrived, by a primary that had its lease.
    Confirmed { round: u64, tickets: Vec<u64> },
    /// The sender's clocks of partitions, in milliseconds: those that it leads in these epochs. Or
    /// those that it has copies of, for a new primary that is about to open.
    Clocks {
        clocks: Vec<(PartitionRef, Epoch, u64)>,
    },
    /// For how many milliseconds the sender's thread was late since they connected, in total.
    Late { ms: u32 },
    /// Execute this once it is not blocked, and reply. Its caller has waited for `age_ms` already.
    Wait {
        at: PartitionRef,
        n: u64,
        age_ms: u64,
        stamp: u64,
        work: Work,
    },
    /// The outcome of what a caller waited with: it was executed after the sender had this stamp.
    /// `Unavailable`: it cannot wait here any more, so ask again.
    Waited {
        at: PartitionRef,
        n: u64,
        stamp: u64,
        outcome: Outcome,
    },
    /// The caller does not wait any more.
    Unwait { at: PartitionRef, n: u64 },
    /// The time of the sender, whose callers wait at the receiver.
    Stamp { stamp: u64 },
    /// The next call, which has this number, belongs to this span of its caller.
    Traced {
        at: PartitionRef,
        n: u64,
        context: TraceContext,
    },
}

/// The beginning of every forwarded operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forwarded {
    /// The partition.
    pub(crate) at: PartitionRef,
    /// The lineage for which it is sent.
    pub(crate) lineage: Lineage,
    /// Its number at its origin.
    pub(crate) n: u64,
    /// The origin's operations on the partition below this number are finished.
    pub(crate) finished: u64,
    /// Counts how often it was sent again.
    pub(crate) attempt: u32,
}

/// The beginning of every frame of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHead {
    /// The partition.
    pub(crate) at: PartitionRef,
    /// The epoch in which the sender leads it.
    pub(crate) epoch: Epoch,
    /// The copying session in which the receiver began, 0 for an aligned copy.
    pub(crate) session: u32,
    /// Everything up to here is committed.
    pub(crate) committed: u64,
    /// The partition's clock in milliseconds.
    pub(crate) clock: u64,
    /// Sequence of the first entry.
    pub(crate) first: u64,
}

/// A full node stays full until it has this part of the kept memory left on top of that.
const RELIEF_PART: u64 = 5;

/// How much memory a node has left, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Headroom {
    /// All memory that is left.
    pub(crate) left: u64,
    /// A node with less than this is full. This much is kept for tails and data under way.
    pub(crate) kept: u64,
    /// Memory that it will soon get back without any eviction.
    pub(crate) loose: u64,
}

impl Headroom {
    /// The memory of a peer that has not reported any.
    pub(crate) const PLENTY: Self = Self {
        left: u64::MAX,
        kept: 0,
        loose: 0,
    };

    /// The same after the loose memory was given back.
    pub(crate) const fn settled(self) -> Self {
        Self {
            left: self.left.saturating_add(self.loose),
            ..self
        }
    }

    /// How much must be left until a full node is not full any more: 12 % of its memory.
    pub(crate) const fn enough(self) -> u64 {
        self.kept.saturating_add(self.kept / RELIEF_PART)
    }

    /// The part of `kept` (a tenth of the memory) that no write gets: a 64th of the memory, at most
    /// 16 MiB.
    pub(crate) fn reserve(self) -> u64 {
        (self.kept / 32 * 5).min(16 << 20)
    }
}

/// How far a copy has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ack {
    /// The partition.
    pub(crate) at: PartitionRef,
    /// The epoch.
    pub(crate) epoch: Epoch,
    /// The session.
    pub(crate) session: u32,
    /// The last sequence applied.
    pub(crate) seq: u64,
}

// The first byte of a frame, after its length: the kind, which is the variant of `Frame` with the
// same name. A number that was used once gets no other meaning, because two versions of the program
// talk to each other.
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
const TICK: u8 = 18;
const HEARD: u8 = 19;
const PULL: u8 = 20;
const TABLE: u8 = 21;
const MAKE_MAP: u8 = 22;
const MAP_MADE: u8 = 23;
const FORWARD_SET: u8 = 24;
const FORWARD_AGAIN: u8 = 25;
const CONTINUE: u8 = 26;
const ARRIVED: u8 = 27;
const NO_ROOM: u8 = 28;
const LATER: u8 = 29;
const PUBLISH: u8 = 30;
const INTEREST: u8 = 31;
const INTERESTED: u8 = 32;
const COUNT: u8 = 39;
const COUNTED: u8 = 40;
const SUBSCRIBE: u8 = 33;
const SUBSCRIBED: u8 = 34;
const CHANGES: u8 = 35;
const TAKEN: u8 = 36;
const UNSUBSCRIBE: u8 = 37;
const READS: u8 = 38;
const CONFIRM: u8 = 41;
const CONFIRMED: u8 = 42;
const WANT_MAP: u8 = 43;
const TRACED: u8 = 44;
const CLOCKS: u8 = 45;
const ASK: u8 = 47;
const NAMED: u8 = 48;
const LATE: u8 = 49;
const WAIT: u8 = 50;
const WAITED: u8 = 51;
const UNWAIT: u8 = 52;
const STAMP: u8 = 53;

/// Takes one frame off the front if all of it is there, and returns how many bytes it had.
pub(crate) fn take(
    bytes: &mut BytesMut,
    frame_bytes_max: usize,
) -> Result<Option<(Frame, usize)>, Malformed> {
    let Some(length) = bytes.get(..4) else {
        return Ok(None);
    };
    let mut word = [0; 4];
    word.copy_from_slice(length);
    let length = u32::from_le_bytes(word) as usize;
    if length > frame_bytes_max {
        return Err(Malformed("a frame above the limit"));
    }
    if bytes.len() - 4 < length {
        return Ok(None);
    }
    let whole = &bytes[4..4 + length];
    let read = if let Some(&(APPEND | ACKS | REPLY | FORWARD_SET)) = whole.first() {
        // The frames of operations keep nothing of the buffer. They are read in place, without
        // counting references to it.
        let read = Frame::read_by_hand(whole)?;
        bytes.advance(4 + length);
        read
    } else {
        bytes.advance(4);
        Frame::read(bytes.split_to(length).freeze())?
    };
    Ok(Some((read, 4 + length)))
}

/// Writes a frame. `fields` writes what follows the kind.
fn framed(out: &mut Out, kind: u8, fields: impl FnOnce(&mut Out)) {
    let start = out.mark();
    out.bytes.put_u32_le(0);
    out.bytes.put_u8(kind);
    fields(out);
    end_frame(out, start);
}

fn end_frame(out: &mut Out, start: OutMark) {
    // Frames stay far below 4 GiB: values and batches are bounded before they come here.
    let length = (out.len_from(start) - 4) as u32;
    out.bytes[start.at..start.at + 4].copy_from_slice(&length.to_le_bytes());
}

/// Appends a frame of log entries. The hot path: no intermediate copy.
pub(crate) fn append<'a>(
    out: &mut Out,
    head: &FrameHead,
    entries: impl Iterator<Item = &'a Logged>,
) {
    framed(out, APPEND, |out| {
        head.put(out);
        entries.for_each(|entry| entry.put(out));
    });
}

/// Adds an entry to the frame of log entries that begins at `start` and is the last one so far.
pub(crate) fn append_more(out: &mut Out, start: OutMark, entry: &Logged) {
    entry.put(out);
    end_frame(out, start);
}

/// Appends a frame of an alignment.
pub(crate) fn align<'a>(
    out: &mut Out,
    head: &FrameHead,
    base: u64,
    last: u64,
    entries: impl Iterator<Item = &'a Logged>,
) {
    framed(out, ALIGN, |out| {
        put!(out, head, base, last);
        entries.for_each(|entry| entry.put(out));
    });
}

/// Appends a forwarded operation.
pub(crate) fn forward(out: &mut Out, forwarded: &Forwarded, before: Option<u64>, work: &Work) {
    if before.is_none()
        && let Work::Key(op) = work
        && let Some(value) = op.action.as_set()
    {
        return framed(out, FORWARD_SET, |out| {
            put!(out, forwarded, op.map);
            put_bytes(out, &op.key);
            value.put(out);
        });
    }
    forward_work(out, forwarded, before, work);
}

fn forward_work(out: &mut Out, forwarded: &Forwarded, before: Option<u64>, work: &Work) {
    let kind = before.map_or(FORWARD, |_| FORWARD_AGAIN);
    framed(out, kind, |out| {
        forwarded.put(out);
        before.iter().for_each(|before| before.put(out));
        work.put(out);
    });
}

/// Appends a reply.
pub(crate) fn reply(out: &mut Out, at: PartitionRef, to: ReplyTo, outcome: &Outcome) {
    let kind = match to {
        ReplyTo::Call(..) => REPLY,
        ReplyTo::Ticket(..) => WAITED,
    };
    framed(out, kind, |out| {
        at.put(out);
        match to {
            ReplyTo::Call(n, attempt) => {
                put!(out, n, attempt);
            }
            ReplyTo::Ticket(n, stamp) => {
                put!(out, n, stamp);
            }
        }
        outcome.put(out);
    });
}

/// What a reply is to: the call of a number, in an attempt; or the ticket of a number, whose
/// operation was executed after a stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyTo {
    Call(u64, u32),
    Ticket(u64, u64),
}

/// Appends a message of a publisher. A large one is shared with all other frames of it.
pub(crate) fn publish(out: &mut Out, publication: &Publication) {
    framed(out, PUBLISH, |out| publication.put(out));
}

/// Appends a part of a snapshot, as `Frame::Chunk`. `fill` writes its body in place, because it can
/// be as large as a value. Room for about `about` bytes is reserved at once: a buffer that grows
/// step by step is copied as often.
pub(crate) fn chunk(
    out: &mut Out,
    at: PartitionRef,
    (session, index): (u32, u32),
    about: usize,
    fill: impl FnOnce(&mut Out),
) {
    out.bytes.reserve(about + CHUNK_SLACK);
    framed(out, CHUNK, |out| {
        put!(out, at, session, index);
        let digest_at = out.mark().at;
        0_u64.put(out);
        let body = out.mark();
        fill(out);
        let digest = digest_bytes(out.pieces(body));
        out.bytes[digest_at..body.at].copy_from_slice(&digest.to_le_bytes());
    });
}

/// In a chunk: this is a row of the key before. It is a bit of the version, which is a count.
const A_ROW: u64 = 1 << 60;
/// In a chunk: rows of this key follow, which is not in the chunk itself.
const ROWS_OF: u64 = 1 << 59;

/// Writes an entry or a row of a snapshot into the body of a chunk. `before` is what was written
/// before it.
pub(crate) fn put_piece(body: &mut Out, piece: Piece<'_>, before: Option<Piece<'_>>) {
    let Piece { map, of, entry } = piece;
    let known = before.is_some_and(|before| {
        of.is_none_or(|key| before.map == map && before.of.unwrap_or(before.entry.key()) == key)
    });
    if let Some(key) = of.filter(|_| !known) {
        map.put(body);
        put_bytes(body, key);
        put_bytes(body, &[]);
        put!(body, 0_u64, ROWS_OF);
    }
    put!(body, map, entry, entry.deadline());
    let row = if of.is_some() { A_ROW } else { 0 };
    (entry.stamp() | row).put(body);
}

/// Writes a number.
pub(crate) fn put_number(out: &mut Out, number: u64) {
    number.put(out);
}

/// Reads the entries of a chunk, and the rows, each with its key.
pub(crate) fn entries(body: Bytes) -> Result<Vec<(MapId, Option<Key>, Entry)>, Malformed> {
    let mut from = FrameReader(body);
    let (mut found, mut of) = (Vec::new(), None);
    while from.0.has_remaining() {
        let (map, key, value): (MapId, Bytes, Bytes) = from.get()?;
        let (deadline, stamp): (u64, u64) = (from.get()?, from.get()?);
        if stamp & ROWS_OF != 0 {
            of = Some(Key::from(&*key));
            continue;
        }
        if kind_of_stamp(stamp & !A_ROW).is_none() {
            return Err(Malformed("unknown kind of value"));
        }
        let entry = Entry::of_stamp(&key, &value, deadline, stamp & !A_ROW);
        if stamp & A_ROW == 0 {
            of = entry.is_table().then(|| Key::from(&*key));
            found.push((map, None, entry));
        } else if of.is_none() || entry.is_table() {
            return Err(Malformed("a row of no table"));
        } else {
            found.push((map, of.clone(), entry));
        }
    }
    Ok(found)
}

impl Frame {
    /// The partition that it concerns. `None`: several, or none.
    pub(crate) const fn partition(&self) -> Option<PartitionRef> {
        match self {
            Self::Align { head, .. } | Self::Append { head, .. } => Some(head.at),
            Self::Forward { forwarded, .. } | Self::ForwardSet { forwarded, .. } => {
                Some(forwarded.at)
            }
            Self::Wait { at, .. }
            | Self::Unwait { at, .. }
            | Self::Reply { at, .. }
            | Self::NotServing { at, .. }
            | Self::Want { at, .. }
            | Self::Begin { at, .. }
            | Self::NoRoom { at, .. }
            | Self::Later { at, .. }
            | Self::Holds { at, .. }
            | Self::Chunk { at, .. }
            | Self::ChunkAck { at, .. }
            | Self::Outcomes { at, .. }
            | Self::Continue { at, .. }
            | Self::Arrived { at, .. }
            | Self::Finish { at, .. }
            | Self::Finished { at, .. }
            | Self::Compare { at, .. }
            | Self::Verdict { at, .. } => Some(*at),
            _ => None,
        }
    }

    /// Appends this frame.
    pub(crate) fn put(&self, out: &mut Out) {
        match self {
            Self::Forward {
                forwarded,
                before,
                work,
            } => forward_work(out, forwarded, *before, work),
            Self::Reply {
                at,
                n,
                attempt,
                outcome,
            } => reply(out, *at, ReplyTo::Call(*n, *attempt), outcome),
            Self::Waited {
                at,
                n,
                stamp,
                outcome,
            } => reply(out, *at, ReplyTo::Ticket(*n, *stamp), outcome),
            Self::Align {
                head,
                base,
                last,
                entries,
            } => align(out, head, *base, *last, entries.iter()),
            Self::Append { head, entries } => append(out, head, entries.iter()),
            Self::Publish(publication) => publish(out, publication),
            other => put_fields(out, other),
        }
    }

    /// This frame as it arrives.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn wire(&self) -> BytesMut {
        let mut out = Out::default();
        self.put(&mut out);
        out.take().flatten().collect()
    }

    /// Reads one whole frame.
    pub(crate) fn read(frame: Bytes) -> Result<Self, Malformed> {
        if let Some((kind, fields)) = frame.split_first()
            && let Some(rare) = rare::read(*kind, fields)?
        {
            return Ok(rare);
        }
        Self::read_by_hand(frame)
    }

    fn read_by_hand(frame: impl Buf) -> Result<Self, Malformed> {
        let mut from = FrameReader(frame);
        let mut frame = match from.get()? {
            FORWARD => Self::Forward {
                forwarded: from.get()?,
                before: None,
                work: from.get()?,
            },
            FORWARD_AGAIN => Self::Forward {
                forwarded: from.get()?,
                before: Some(from.get()?),
                work: from.get()?,
            },
            PUBLISH => Self::Publish(from.get()?),
            kind => read_fields(kind, &mut from)?,
        };
        if let Self::Changes { at, changes, .. } = &mut frame {
            for change in changes {
                change.position.partition = at.partition;
            }
        }
        if from.0.has_remaining() {
            return Err(Malformed("bytes after the end of a frame"));
        }
        Ok(frame)
    }
}

/// Frames that are their fields, in this order. The last one takes the rest of the frame if it is
/// behind a semicolon. Functions above write some of them from parts of a frame.
macro_rules! frames {
    (
        here: { $($kind:ident $frame:ident { $($field:ident),* $(; $rest:ident)? },)* }
        above: { $($read:ident $seen:ident { $($part:ident),* $(; $all:ident)? },)* }
    ) => {
        fn put_fields(out: &mut Out, frame: &Frame) {
            match frame {
                $(Frame::$frame { $($field,)* $($rest)? } => framed(out, $kind, |out| {
                    $($field.put(out);)*
                    $($rest.put_last(out);)?
                }),)*
                rare => rare::put(out, rare),
            }
        }

        #[inline]
        fn read_fields(kind: u8, from: &mut FrameReader<impl Buf>) -> Decoded<Frame> {
            Ok(match kind {
                $($kind => Frame::$frame {
                    $($field: from.get()?,)*
                    $($rest: LastField::read_last(from)?,)?
                },)*
                $($read => Frame::$seen {
                    $($part: from.get()?,)*
                    $($all: LastField::read_last(from)?,)?
                },)*
                _ => return Err(Malformed("unknown kind of frame")),
            })
        }
    };
}

frames! {
    here: {
        FORWARD_SET ForwardSet { forwarded, map, entry },
        ACKS Acks { headroom, arrived; acks },
        CHUNK Chunk { at, session, index, digest; body },
        OUTCOMES Outcomes { at, session; dedup },
        TABLE Table { name, part, parts; body },
        CHANGES Changes { at, ticket, last; changes },
        WAIT Wait { at, n, age_ms, stamp, work },
    }
    above: {
        ALIGN Align { head, base, last; entries },
        APPEND Append { head; entries },
        REPLY Reply { at, n, attempt, outcome },
        WAITED Waited { at, n, stamp, outcome },
    }
}

/// No sequence and no clock comes near this.
pub(crate) const SEQ_MAX: u64 = 1 << 62;

#[cfg(test)]
pub(crate) mod tests;
