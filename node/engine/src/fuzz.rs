//! Data frames as bytes, and two live shards that receive them: see `crate::fuzz`.

use super::store::{Before, Effect, Key, Piece, digest_bytes};
use crate::command::operation::{
    Action, Condition, Expiry, FindQuery, Operation, PartitionAction, PartitionOperation,
    RangeQuery, ScriptCall, Step, Transaction, Watched, Work,
};
use crate::command::publication::Publication;
use crate::log::changes::{Change, Filter, Former, Keys, Maps, Missing, Position, What};
use crate::log::dedup::OpId;
use crate::log::partition_log::Logged;
use crate::shard::machine::Shard;
use crate::value::cause::{By, Cause};
use crate::value::entry::Entry;
use crate::value::extended::Extended;
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome};
use crate::wire::api::{Lane, Limits, Patience, ShardRequest};
use crate::wire::frame::{self, Ack, Forwarded, Frame, Head, Headroom, Out};
use crate::wire::questions::AskedSubscribers;
use crate::wire::trace::TraceContext;
use bytes::{Bytes, BytesMut};
use doyen_gossip::Time;
use doyen_gossip::agreement::View;
use doyen_placement::level::LEVELS;
use doyen_placement::{
    Addresses, ClusterId, Epoch, Keyspace, KeyspaceId, Lineage, MapEntry, MapId, MapLimits,
    MapWish, Member, MemberId, Partition, PartitionId, PartitionRef, ReplicaState, Table,
    TableDelta, TableName, Term, Version, WantedMap,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The longest input that is generated.
pub const INPUT_BYTES_MAX: usize = 64 << 10;
/// The longest frame of these tests.
const FRAME_BYTES_MAX: usize = 1 << 20;
const UNIX_MS: u64 = 1_700_000_000_000;
const MAP: MapId = MapId(0);
const STEP: Duration = Duration::from_millis(10);

fn id(n: u64) -> MemberId {
    if n == CLIENT {
        MemberId::of_client(n)
    } else {
        MemberId(n << 4)
    }
}

/// The two members, and a client.
const A: u64 = 1;
const B: u64 = 2;
const CLIENT: u64 = 3;

const fn at(partition: u32) -> PartitionRef {
    PartitionRef {
        keyspace: KeyspaceId(0),
        partition: PartitionId(partition),
    }
}

// ---- frames

/// The kinds of collections, each with a packed one.
fn collections() -> impl Iterator<Item = (Kind, &'static [u8])> {
    let packed: &[u8] = b"\x01f\x011";
    let all = Kind::ALL
        .into_iter()
        .filter(|kind| kind.collection().is_some());
    all.map(move |kind| (kind, packed))
}

/// A frame of each kind, as a shard of the pair below could send it.
pub(crate) fn every() -> Vec<Frame> {
    let name = TableName {
        cluster: ClusterId(7),
        term: Term(1),
        version: Version(1),
        hash: 3,
    };
    let forwarded = |p, n| Forwarded {
        at: at(p),
        lineage: Lineage(1),
        n,
        finished: 1,
        attempt: 0,
    };
    let key = |key: &'static str, action| {
        Work::Key(Operation {
            keyspace: KeyspaceId(0),
            map: MAP,
            key: Bytes::from_static(key.as_bytes()),
            action,
        })
    };
    let bytes = Bytes::from_static;
    let head = |p, first| Head {
        at: at(p),
        epoch: Epoch(1),
        session: 0,
        committed: 0,
        clock: 5,
        first,
    };
    let op = Some(OpId {
        origin: id(A),
        n: 3,
        finished: 1,
    });
    let put = Effect::Put {
        map: MAP,
        entry: Entry::new(b"a", b"value", 0, 0),
        deadline: 0,
        before: Before::Value,
    };
    let many = Effect::Many([put.clone(), put.clone()].into());
    let made = [Before::Nothing, Before::Overdue].map(|before| Effect::Put {
        map: MAP,
        entry: Entry::new(b"a", b"value", 0, 0),
        deadline: 0,
        before,
    });
    let effects = [
        put,
        Effect::Delete {
            map: MAP,
            key: Key::from(&b"a"[..]),
            cause: Cause::Command,
        },
        Effect::Deadline {
            map: MAP,
            key: Key::from(&b"a"[..]),
            deadline: 50,
        },
        Effect::Clear { map: MAP },
        many,
    ];
    let of_collections = collections().flat_map(|(kind, packed)| {
        [
            Effect::Put {
                map: MAP,
                entry: Entry::of_kind(kind, b"h", packed),
                deadline: 0,
                before: Before::Value,
            },
            Effect::Field {
                map: MAP,
                key: Key::from(&b"h"[..]),
                kind,
                row: Entry::of_row(b"g", b"2", 0),
            },
            Effect::Many(
                [
                    Effect::Put {
                        map: MAP,
                        entry: Entry::of_table(kind, b"t", 7),
                        deadline: 60,
                        before: Before::Value,
                    },
                    Effect::Row {
                        map: MAP,
                        key: Key::from(&b"t"[..]),
                        kind,
                        row: Entry::of_row(b"field", b"value", 0),
                    },
                ]
                .into(),
            ),
            Effect::RowDelete {
                map: MAP,
                key: Key::from(&b"t"[..]),
                kind,
                field: Key::from(&b"field"[..]),
            },
        ]
    });
    let outcomes = [
        Outcome::Ok,
        Outcome::Nil,
        Outcome::Int(-7),
        Outcome::Bulk((&b"old"[..]).into()),
        Outcome::Failed(Failure::Overtaken),
        Outcome::Keys {
            next: 9,
            keys: vec![bytes(b"a"), bytes(b"b")],
        },
        Outcome::Many(vec![Outcome::Ok, Outcome::Failed(Failure::NotAnInteger)]),
        Outcome::Failed(Failure::WrongType),
        Outcome::Int(1),
        Outcome::Int(1),
    ];
    let logged = |(effect, outcome)| Logged {
        epoch: Epoch(1),
        effect,
        op,
        outcome,
    };
    let entries: Vec<Logged> = effects
        .into_iter()
        .chain(of_collections)
        .chain(made)
        .zip(outcomes.clone().into_iter().cycle())
        .map(logged)
        .collect();
    let mut pieces = vec![(MAP, None, Entry::new(b"c", b"in a chunk", 4, 0))];
    pieces.extend(collections().flat_map(|(kind, packed)| {
        let row = Entry::of_row(b"field", b"value", 0);
        [
            (MAP, None, Entry::of_kind(kind, b"h", packed)),
            (MAP, None, Entry::of_table(kind, b"t", 0)),
            (MAP, Some(Key::from(&b"t"[..])), row),
        ]
    }));
    let body = Bytes::from(laid_out(&pieces));
    let ack = |p, seq| Ack {
        at: at(p),
        epoch: Epoch(1),
        session: 0,
        seq,
    };
    let mut frames = vec![
        Frame::View(name),
        Frame::ForwardSet {
            forwarded: forwarded(0, 4),
            map: MAP,
            entry: Entry::new(b"a", b"1", 0, 0),
        },
        Frame::NotServing {
            at: at(1),
            n: 1,
            attempt: 0,
        },
        Frame::Align {
            head: head(2, 1),
            base: 0,
            last: entries.len() as u64,
            entries: entries.clone(),
        },
        Frame::Append {
            head: head(2, 1),
            entries,
        },
        Frame::Acks {
            headroom: Headroom {
                left: 1 << 20,
                kept: 1 << 17,
                loose: 1 << 10,
            },
            arrived: [100, 200],
            acks: vec![ack(0, 1), ack(1, 2)],
        },
        Frame::Want {
            at: at(0),
            epoch: Epoch(1),
            session: 0,
            next: 1,
        },
        Frame::Begin {
            at: at(3),
            epoch: Epoch(1),
            lineage: Lineage(1),
            session: 9,
            kept: 0,
            seq: 2,
            bytes: 1 << 20,
        },
        Frame::NoRoom {
            at: at(3),
            session: 9,
        },
        Frame::Later {
            at: at(3),
            session: 9,
            ms: 100,
        },
        Frame::Holds {
            at: at(1),
            session: 1,
            committed: 1,
        },
        Frame::Chunk {
            at: at(3),
            session: 9,
            index: 1,
            digest: digest_bytes([&*body]),
            body,
        },
        Frame::ChunkAck {
            at: at(1),
            session: 1,
            index: 1,
        },
        Frame::Outcomes {
            at: at(3),
            session: 9,
            dedup: vec![(id(B), 2, vec![(3, 1, Outcome::Int(1))])],
        },
        Frame::Finish {
            at: at(3),
            session: 9,
            chunks: 1,
            seq: 2,
        },
        Frame::Continue {
            at: at(1),
            epoch: Epoch(2),
            session: 1,
            next: 2,
        },
        Frame::Arrived {
            at: at(1),
            session: 1,
            chunks: 3,
            seq: 9,
            holds: true,
            finished: false,
        },
        Frame::Finished {
            at: at(1),
            session: 1,
        },
        Frame::Compare {
            at: at(3),
            session: 9,
            seq: 2,
            sum: 77,
            clock: 8,
        },
        Frame::Verdict {
            at: at(1),
            session: 1,
            equal: true,
        },
        Frame::Tick {
            clock: 5,
            value_bytes_max: 1 << 20,
            table: name,
        },
        Frame::Heard { clock: 1_000_000 },
        Frame::Pull { have: None },
        Frame::Pull { have: Some(name) },
        Frame::Table {
            name,
            part: 0,
            parts: 1,
            body: crate::wire::published::whole(&table()),
        },
        Frame::MakeMap {
            ticket: 1,
            keyspace: "default".into(),
            name: "users".into(),
        },
        Frame::MapMade {
            ticket: 1,
            made: Ok(MapEntry {
                id: MapId(1),
                name: "users".into(),
                keyspace: KeyspaceId(0),
                limits: MapLimits::NONE,
            }),
        },
        Frame::WantMap {
            ticket: 2,
            wanted: WantedMap {
                keyspace: "default".into(),
                name: "users".into(),
                wish: MapWish::Limited(MapLimits {
                    entries: Some(1),
                    ..MapLimits::NONE
                }),
            },
        },
        Frame::MapMade {
            ticket: 1,
            made: Err("no".into()),
        },
        Frame::Interest {
            round: 1,
            wanted: true,
        },
        Frame::Interested { round: 1 },
        Frame::Count {
            ticket: 1,
            sharded: false,
            names: vec![b"news".to_vec()],
        },
        Frame::Counted {
            ticket: 1,
            counts: vec![2],
        },
        Frame::Ask {
            ticket: 1,
            asked: AskedSubscribers::Receivers(vec![(true, b"news".to_vec())]),
        },
        Frame::Ask {
            ticket: 1,
            asked: AskedSubscribers::Names {
                kind: 1,
                pattern: Some(b"n*".to_vec()),
                after: None,
            },
        },
        Frame::Ask {
            ticket: 1,
            asked: AskedSubscribers::Script(vec![b'a'; 40]),
        },
        Frame::Ask {
            ticket: 1,
            asked: AskedSubscribers::ForgetScripts,
        },
        Frame::Named {
            ticket: 1,
            names: vec![b"news".to_vec()],
            next: Some(b"news".to_vec()),
        },
        Frame::Subscribed {
            at: at(1),
            ticket: 1,
            seq: 5,
            missing: Missing::entries(2),
        },
        Frame::Taken {
            at: at(1),
            ticket: 1,
            bytes: 1_000,
        },
        Frame::Unsubscribe {
            at: at(1),
            ticket: 1,
        },
        Frame::Reads {
            keyspaces: vec![(KeyspaceId(0), false), (KeyspaceId(1), true)],
        },
        Frame::Clocks {
            clocks: vec![(at(1), Epoch(3), 1_000), (at(2), Epoch(4), u64::MAX >> 8)],
        },
        Frame::Late { ms: 700 },
        Frame::Unwait { at: at(1), n: 5 },
        Frame::Stamp { stamp: 70 },
        Frame::Waited {
            at: at(1),
            n: 5,
            stamp: 70,
            outcome: Outcome::Int(1),
        },
        Frame::Traced {
            at: at(1),
            n: 5,
            context: TraceContext {
                trace: [1; 16],
                span: [2; 8],
                flags: 1,
            },
        },
        Frame::Confirm { round: 3 },
        Frame::Confirmed {
            round: 3,
            tickets: vec![1, 2],
        },
    ];
    frames.extend(
        [
            Keys::All,
            Keys::Prefix(bytes(b"a")),
            Keys::One(bytes(b"ab")),
        ]
        .map(|keys| Frame::Subscribe {
            at: at(1),
            ticket: 1,
            filter: Filter {
                keyspace: KeyspaceId(0),
                maps: Maps::One(MAP),
                keys,
                values: true,
                fields: true,
                old: true,
            },
            had: vec![Position {
                partition: PartitionId(1),
                lineage: Lineage(1),
                seq: 4,
            }],
        }),
    );
    let of_strings = [
        What::Put(Kind::String, None),
        What::Put(Kind::String, Some(bytes(b"x"))),
    ];
    let of_collections = collections().flat_map(|(kind, _)| {
        [
            What::Put(kind, None),
            What::Field(kind, bytes(b"f"), None),
            What::Field(kind, bytes(b"f"), Some(bytes(b"x"))),
            What::FieldRemoved(kind, bytes(b"f")),
        ]
    });
    let of_keys = [What::Deadline, What::Removed(Cause::Expired), What::Cleared];
    frames.push(Frame::Changes {
        at: at(1),
        ticket: 1,
        last: 9,
        changes: of_strings
            .into_iter()
            .chain(of_collections)
            .chain(of_keys)
            .map(|what| Change {
                position: Position {
                    partition: PartitionId(1),
                    lineage: Lineage(0),
                    seq: 9,
                },
                map: MAP,
                key: bytes(b"a"),
                before: match &what {
                    What::Put(_, None) => Former::Nothing,
                    What::Put(..) => Former::Value(Some(bytes(b"y"))),
                    _ => Former::Value(None),
                },
                what,
                by: Some(By::SET),
            })
            .collect(),
    });
    frames.extend([false, true].map(|sharded| {
        Frame::Publish(Publication {
            channel: bytes(b"news"),
            message: bytes(b"hello"),
            sharded,
        })
    }));
    frames.extend(outcomes.into_iter().map(|outcome| Frame::Reply {
        at: at(1),
        n: 1,
        attempt: 0,
        outcome,
    }));
    let actions = [
        Action::Get,
        Action::Strlen,
        Action::Exists,
        Action::PTtl,
        Action::PExpireTime,
        Action::GetDel,
        Action::Set {
            value: bytes(b"v"),
            condition: Condition::IfPresent,
            expiry: Expiry::In(1000),
            get: true,
        },
        Action::CompareAndSwap {
            expected: Some(bytes(b"1")),
            value: bytes(b"2"),
        },
        Action::GetEx {
            expiry: Expiry::At(5),
        },
        Action::Append {
            value: bytes(b"more"),
        },
        Action::IncrBy(i64::MAX),
        Action::IncrByFloat(Extended::parse(b"1.5").unwrap_or(Extended::ZERO)),
        Action::Expire {
            expiry: Expiry::In(i64::MIN),
            condition: crate::command::operation::ExpireCondition::IfLater,
        },
        Action::Delete,
        Action::Persist,
        Action::Touch,
        Action::Encoding,
        Action::Footprint,
        Action::Peek,
        Action::PeekLength,
        Action::Version,
    ];
    let range = RangeQuery {
        from: bytes(b"a"),
        to: bytes(b""),
        count: 2,
        reverse: true,
        values: true,
    };
    let found = |holding: Option<Bytes>| FindQuery {
        cursor: 1 << 40,
        count: 10,
        prefix: bytes(b"a"),
        values: holding.is_none(),
        holding,
    };
    let script = ScriptCall {
        keyspace: KeyspaceId(0),
        map: MAP,
        body: bytes(b"return redis.call('GET', KEYS[1])"),
        keys: vec![bytes(b"a")],
        args: vec![bytes(b"1"), bytes(b"")],
        read_only: true,
        resp3: false,
        grants: Bytes::from_static(b"bob\n-@all +get ~k*"),
    };
    let step = |key, action| Step::Key {
        map: MAP,
        key: bytes(key),
        action,
    };
    let watched = |key, version| Watched {
        map: MAP,
        key: bytes(key),
        version,
    };
    let transaction = Transaction {
        keyspace: KeyspaceId(0),
        watched: vec![watched(b"a", Some(1 << 40)), watched(b"b", None)],
        steps: vec![
            step(b"a", Action::set(bytes(b"v"))),
            step(b"b", Action::Get),
            Step::Script(Box::new(script.clone())),
        ],
    };
    let works = actions.map(|action| key("a", action)).into_iter().chain(
        [
            PartitionAction::Count,
            PartitionAction::Scan {
                cursor: 0,
                count: 10,
                kind: None,
            },
            PartitionAction::Scan {
                cursor: 1,
                count: 10,
                kind: Kind::ALL.last().copied(),
            },
            PartitionAction::Clear,
            PartitionAction::Range(range),
            PartitionAction::Find(found(None)),
            PartitionAction::Find(found(Some(bytes(b"tag")))),
            PartitionAction::Fields { walk: 7, page: 1 },
            PartitionAction::Sizes,
        ]
        .map(|action| {
            Work::Partition(PartitionOperation {
                keyspace: KeyspaceId(0),
                partition: PartitionId(0),
                map: MAP,
                action,
            })
        }),
    );
    let works = works.chain([Work::Transaction(transaction), Work::Script(script)]);
    frames.extend(works.zip(5..).map(|(work, n)| Frame::Forward {
        forwarded: forwarded(0, n),
        before: (n % 2 == 0).then_some(n + 1),
        work,
    }));
    frames.push(Frame::Wait {
        at: at(1),
        n: 5,
        age_ms: 40,
        stamp: 60,
        work: Work::Key(Operation {
            keyspace: KeyspaceId(0),
            map: MAP,
            key: "k".into(),
            action: crate::sync::acquire(
                crate::sync::Owner([7; 16]),
                crate::sync::Permits::ONE,
                1_000,
                0,
            ),
        }),
    });
    frames
}

/// Every frame, encoded.
pub fn frames() -> Vec<Vec<u8>> {
    every().iter().map(|f| f.wire().to_vec()).collect()
}

// ---- the corpus of encoded data

/// Encoded bytes, with a name.
pub type Sample = (String, Vec<u8>);

/// The name of the variant, and of the operation's action.
pub(crate) fn called(frame: &Frame) -> String {
    let variant = |text: String| -> String {
        text.chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect()
    };
    let name = variant(format!("{frame:?}"));
    match frame {
        Frame::Forward {
            work: Work::Key(op),
            ..
        } => format!("{name}/{}", variant(format!("{:?}", op.action))),
        Frame::Forward {
            work: Work::Partition(op),
            ..
        } => format!("{name}/{}", variant(format!("{:?}", op.action))),
        Frame::Forward {
            work: Work::Transaction(_),
            ..
        } => format!("{name}/Transaction"),
        Frame::Forward {
            work: Work::Script(_),
            ..
        } => format!("{name}/Script"),
        Frame::Reply { outcome, .. } => format!("{name}/{}", variant(format!("{outcome:?}"))),
        _ => name,
    }
}

/// Every frame. All versions lay them out in the same way.
pub fn samples(_: u16) -> Vec<Sample> {
    every()
        .iter()
        .map(|frame| (called(frame), frame.wire().to_vec()))
        .collect()
}

/// The kinds of all frames.
pub fn kinds() -> Vec<u8> {
    let unknown = Err(crate::wire::api::Malformed("unknown kind of frame"));
    (0..=u8::MAX)
        .filter(|kind| Frame::read(Bytes::copy_from_slice(&[*kind])) != unknown)
        .collect()
}

/// Decodes a frame, and encodes it again.
pub fn again(_: u16, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut rest = BytesMut::from(bytes);
    match frame::take(&mut rest, FRAME_BYTES_MAX) {
        Ok(Some((frame, length))) if length == bytes.len() => Ok(frame.wire().to_vec()),
        Ok(_) => Err("this is not one frame".into()),
        Err(e) => Err(e.to_string()),
    }
}

/// The entries of a part of a snapshot.
pub fn chunk_samples(_: u16) -> Vec<Sample> {
    let lasting = (MAP, None, Entry::new(b"a", b"value", 0, 3));
    let fleeting = (
        MapId(9),
        None,
        Entry::new(b"a key", &[0, 255, 7], 1 << 40, 1 << 33),
    );
    let table = (MAP, None, Entry::of_table(Kind::Hash, b"t", 3));
    let row = |key: &'static [u8]| {
        let row = Entry::of_row(b"field", b"value", 1 << 40);
        (MAP, Some(Key::from(key)), row)
    };
    vec![
        ("nothing".into(), laid_out(&[])),
        ("entries".into(), laid_out(&[lasting, fleeting])),
        // The second row goes on where another part ended.
        ("rows".into(), laid_out(&[table, row(b"t"), row(b"u")])),
    ]
}

fn laid_out(entries: &[(MapId, Option<Key>, Entry)]) -> Vec<u8> {
    let (mut out, mut before) = (Out::default(), None);
    for (map, of, entry) in entries {
        let piece = Piece {
            map: *map,
            of: of.as_deref(),
            entry,
        };
        frame::put_piece(&mut out, piece, before);
        before = Some(piece);
    }
    out.take().flatten().collect()
}

/// Decodes a part of a snapshot, and encodes it again.
pub fn chunk_again(_: u16, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let entries = frame::entries(Bytes::copy_from_slice(bytes)).map_err(|e| e.to_string())?;
    Ok(laid_out(&entries))
}

/// Tables in the encoding for clients.
pub fn published(tables: &[(String, Table)], deltas: &[(String, TableDelta)]) -> Vec<Sample> {
    let whole = tables.iter().map(|(name, table)| {
        (
            format!("whole-{name}"),
            crate::wire::published::whole(table).to_vec(),
        )
    });
    let news = deltas.iter().map(|(name, delta)| {
        (
            format!("news-{name}"),
            crate::wire::published::news(delta).to_vec(),
        )
    });
    whole.chain(news).collect()
}

/// Decodes a table that was sent to a client, and encodes it again.
pub fn published_again(_: u16, bytes: &[u8]) -> Result<Vec<u8>, String> {
    crate::wire::published::again(bytes).map(|bytes| bytes.to_vec())
}

/// Reads frames until no whole one is left. A decoded frame must be the same after encoding and
/// decoding it again.
pub fn frame(bytes: &[u8]) {
    let mut rest = BytesMut::from(bytes);
    while let Ok(Some((frame, _))) = frame::take(&mut rest, FRAME_BYTES_MAX) {
        let wire = frame.wire();
        let mut again = wire.clone();
        let (again, _) = frame::take(&mut again, FRAME_BYTES_MAX)
            .expect("it was read before")
            .expect("all of it is there");
        // Compared as bytes: a NaN is not equal to itself.
        assert_eq!(again.wire(), wire);
    }
    let _ = frame::entries(Bytes::copy_from_slice(bytes));
}

// ---- a live pair

/// A leads partitions 0 and 1, B leads 2 and 3. In 1 and 3, the other one is a learner.
fn table() -> Table {
    let address = ([127, 0, 0, 1], 1).into();
    let member = |n| Member::new(id(n), format!("n{n}"), Addresses::new(address, address));
    let partition = |p: u32| {
        let holders = if p < 2 { [A, B] } else { [B, A] };
        let mut partition = Partition::new(PartitionId(p), holders.map(id));
        if !p.is_multiple_of(2) {
            partition.replicas[1].state = ReplicaState::Learner;
        }
        Arc::new(partition)
    };
    let keyspace = Keyspace {
        partitions: (0..4).map(partition).collect(),
        ..Keyspace::fixed(4, 1)
    };
    Table::of_test([A, B].map(member), keyspace)
}

fn limits() -> Limits {
    Limits {
        value_bytes_max: 64 << 10,
        memory_bytes_max: 8 << 20,
        tail_bytes_max: 1 << 20,
        waiting_max: 1_000,
        ..Limits::of_test()
    }
}

struct Pair {
    now: Time,
    shards: BTreeMap<u64, Shard>,
    view: View,
    wires: BTreeMap<(u64, u64, Lane), BytesMut>,
    answered: BTreeSet<u64>,
    next_token: u64,
    said: Vec<(u8, Vec<u8>)>,
}

/// The first byte of an input chooses the sender and the lane.
fn way(first: u8) -> (u64, u64, Lane) {
    let lane = if first & 1 == 0 {
        Lane::Calls
    } else {
        Lane::Bulk
    };
    match (first >> 1) % 4 {
        0 => (B, A, lane),
        1 => (A, B, lane),
        2 => (CLIENT, A, lane),
        _ => (A, CLIENT, lane),
    }
}

impl Pair {
    fn new() -> Self {
        let now = Time(1_000_000_000);
        let table = Arc::new(table());
        let opens = |p: u32| (at(p), Epoch(1), now);
        let view = View {
            installed: table.clone(),
            accepted: table,
            opens_at: Arc::new((0..4).map(opens).collect()),
        };
        let shards = [A, B, CLIENT]
            .map(|n| (n, Shard::new(id(n), limits(), n, now)))
            .into();
        let (wires, answered) = (BTreeMap::new(), BTreeSet::new());
        let mut pair = Self {
            now,
            shards,
            view: view.clone(),
            wires,
            answered,
            next_token: 1,
            said: Vec::new(),
        };
        for n in [A, B] {
            pair.shard(n).install(now, view.clone());
        }
        for (one, other) in [(A, B), (CLIENT, A), (CLIENT, B)] {
            pair.connect(one, other);
        }
        pair.pass(Duration::from_millis(50));
        for n in [A, B, CLIENT] {
            (0..8).for_each(|k| {
                _ = pair.submit(
                    n,
                    &format!("k{k}"),
                    Action::set(Bytes::from(format!("{n}"))),
                )
            });
        }
        pair.pass(Duration::from_millis(100));
        pair
    }

    fn shard(&mut self, n: u64) -> &mut Shard {
        self.shards.get_mut(&n).expect("there are three")
    }

    fn connect(&mut self, one: u64, other: u64) {
        let now = self.now;
        for (from, to) in [(one, other), (other, one)] {
            self.wires.retain(|(a, b, _), _| (*a, *b) != (from, to));
            self.shard(from).disconnected(now, id(to));
            self.shard(from).connected(now, id(to), LEVELS.1);
        }
    }

    /// Bytes arrive. If they are malformed, the connection ends and another begins.
    fn receive(&mut self, (from, to, lane): (u64, u64, Lane), bytes: &mut BytesMut) {
        let now = self.now;
        loop {
            match self.shard(to).receive(now, UNIX_MS, id(from), lane, bytes) {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => return self.connect(from, to),
            }
        }
    }

    fn submit(&mut self, n: u64, key: &str, action: Action) -> u64 {
        let (token, now) = (self.next_token, self.now);
        self.next_token += 1;
        let operation = Operation {
            keyspace: KeyspaceId(0),
            map: MAP,
            key: Bytes::copy_from_slice(key.as_bytes()),
            action,
        };
        self.shard(n)
            .submit(now, UNIX_MS, token, operation, Patience::Whole);
        token
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now = self.now + STEP;
            for n in [A, B, CLIENT] {
                self.turn(n);
            }
            for (way, mut bytes) in std::mem::take(&mut self.wires) {
                if self.said.len() < 200 {
                    let first = (0..8).find(|first| self::way(*first) == way);
                    self.said.extend(first.map(|first| (first, bytes.to_vec())));
                }
                self.receive(way, &mut bytes);
            }
        }
    }

    fn turn(&mut self, n: u64) {
        let (now, view) = (self.now, self.view.clone());
        let shard = self.shard(n);
        // Bounded: a timer that is always due is a defect, too.
        for _ in 0..1_000 {
            if shard.poll_timeout().is_none_or(|t| t > now) {
                break;
            }
            shard.tick(now);
        }
        shard.release(now, now + Duration::from_millis(500), true);
        let mut answered = Vec::new();
        while let Some((token, _)) = shard.poll_outcome() {
            answered.push(token);
        }
        while let Some((token, _)) = shard.poll_overtaken() {
            answered.push(token);
        }
        while let Some(request) = shard.poll_request() {
            match request {
                ShardRequest::Used => shard.used(now),
                ShardRequest::WantMap { client, ticket, .. } => {
                    shard.map_made(now, client, ticket, Err("not here".into()))
                }
                ShardRequest::Table(table) if n == CLIENT => {
                    shard.install(
                        now,
                        View {
                            installed: table.clone(),
                            accepted: table,
                            opens_at: view.opens_at.clone(),
                        },
                    );
                }
                _ => {}
            }
        }
        let mut sent = Vec::new();
        while let Some((peer, lane, bytes)) = shard.poll_transmit() {
            sent.push((peer, lane, bytes));
        }
        for token in answered {
            assert!(self.answered.insert(token), "answered twice");
        }
        for (peer, lane, bytes) in sent {
            let to = [A, B, CLIENT]
                .into_iter()
                .find(|n| id(*n) == peer)
                .expect("no other node is connected");
            self.wires
                .entry((n, to, lane))
                .or_default()
                .extend_from_slice(&bytes);
        }
    }
}

/// The frames that the pair sends by itself, and every frame on every way.
pub fn streams() -> Vec<Vec<u8>> {
    let pair = {
        let mut pair = Pair::new();
        pair.pass(Duration::from_secs(2));
        pair
    };
    let mut seeds: BTreeSet<Vec<u8>> = pair
        .said
        .into_iter()
        .map(|(first, bytes)| [&[first], &bytes[..]].concat())
        .collect();
    for frame in frames() {
        seeds.extend((0..8).map(|first| [&[first], &frame[..]].concat()));
    }
    seeds
        .into_iter()
        .filter(|s| s.len() <= INPUT_BYTES_MAX)
        .collect()
}

/// Two members and a client serve, and one of them receives these bytes in the name of another.
/// Afterwards both members still answer every call on the partitions that they lead. The answer may
/// be a failure, because a member must believe what another one says.
pub fn stream(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let mut pair = Pair::new();
    pair.receive(way(*first), &mut BytesMut::from(rest));
    pair.pass(Duration::from_secs(1));
    let mut asked = Vec::new();
    for n in [A, B, CLIENT] {
        for k in 0..8 {
            asked.push(pair.submit(
                n,
                &format!("k{k}"),
                Action::set(Bytes::from_static(b"after")),
            ));
            asked.push(pair.submit(n, &format!("k{k}"), Action::Get));
        }
    }
    pair.connect(A, B);
    pair.pass(Duration::from_secs(6));
    assert!(
        asked.iter().all(|token| pair.answered.contains(token)),
        "a call was never answered"
    );
}
