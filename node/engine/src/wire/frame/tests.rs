use super::*;
use crate::log::changes::{KeyFilter, Maps};
use crate::store::cuts::{FreedRows, RowCut, RowSpan};
use crate::value::extended::Extended;
use doyen_placement::{MapLimits, MapWish, WantedMap};
use proptest::prelude::*;

fn at() -> impl Strategy<Value = PartitionRef> {
    (any::<u16>(), any::<u32>()).prop_map(|(k, p)| PartitionRef::new(KeyspaceId(k), PartitionId(p)))
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..12).prop_map(Bytes::from)
}

/// The outcome of a transaction holds those of its steps, which may be lists.
fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        8 => step_outcome(),
        2 => prop::collection::vec(step_outcome(), 0..3).prop_map(Outcome::Many),
    ]
}

fn step_outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        8 => one_outcome(),
        1 => prop::collection::vec(one_outcome(), 0..3).prop_map(Outcome::Many),
    ]
}

fn one_outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Ok),
        Just(Outcome::Nil),
        any::<i64>().prop_map(Outcome::Int),
        bytes().prop_map(|b| Outcome::Bulk(Value::from(&*b))),
        (any::<u64>(), prop::collection::vec(bytes(), 0..3))
            .prop_map(|(next, keys)| Outcome::Keys { next, keys }),
        prop::sample::select(vec![
            Failure::NotAFloat,
            Failure::OutOfMemory,
            Failure::Overloaded,
            Failure::MapFull,
            Failure::Dropped,
            Failure::TooMuchWork
        ])
        .prop_map(Outcome::Failed),
    ]
}

fn expiry() -> impl Strategy<Value = Expiry> {
    prop_oneof![
        Just(Expiry::Keep),
        Just(Expiry::None),
        any::<i64>().prop_map(Expiry::In),
        any::<i64>().prop_map(Expiry::At)
    ]
}

/// Any action.
pub(crate) fn action() -> impl Strategy<Value = Action> {
    let condition = prop::sample::select(vec![
        Condition::Always,
        Condition::IfAbsent,
        Condition::IfPresent,
    ]);
    let expire = prop::sample::select(vec![
        ExpireCondition::Always,
        ExpireCondition::IfLater,
        ExpireCondition::IfNone,
        ExpireCondition::IfSomeEarlier,
    ]);
    prop_oneof![
        prop::sample::select(vec![
            Action::Get,
            Action::Strlen,
            Action::Exists,
            Action::PTtl,
            Action::PExpireTime,
            Action::Touch,
            Action::Encoding,
            Action::Footprint,
            Action::Peek,
            Action::PeekLength,
            Action::Version,
        ]),
        prop::sample::select(vec![Action::GetDel, Action::Delete, Action::Persist]),
        (bytes(), condition, expiry(), any::<bool>()).prop_map(
            |(value, condition, expiry, get)| Action::Set {
                value,
                condition,
                expiry,
                get
            }
        ),
        (prop::option::of(bytes()), bytes())
            .prop_map(|(expected, value)| Action::CompareAndSwap { expected, value }),
        expiry().prop_map(|expiry| Action::GetEx { expiry }),
        bytes().prop_map(|value| Action::Append { value }),
        any::<i64>().prop_map(Action::IncrBy),
        any::<f64>()
            .prop_filter_map("no number", |by| Extended::parse(by.to_string().as_bytes()))
            .prop_map(Action::IncrByFloat),
        (expiry(), expire).prop_map(|(expiry, condition)| Action::Expire { expiry, condition }),
    ]
}

fn work() -> impl Strategy<Value = Work> {
    let partition_action = prop_oneof![
        Just(PartitionAction::Count),
        Just(PartitionAction::Clear),
        Just(PartitionAction::Sizes),
        (bytes(), bytes(), any::<u32>(), any::<bool>(), any::<bool>()).prop_map(
            |(from, to, count, reverse, values)| PartitionAction::Range(RangeQuery {
                from,
                to,
                count,
                reverse,
                values
            })
        ),
        (
            any::<u64>(),
            any::<u32>(),
            bytes(),
            any::<bool>(),
            prop::option::of(bytes())
        )
            .prop_map(|(cursor, count, prefix, values, holding)| {
                PartitionAction::Find(FindQuery {
                    cursor,
                    count,
                    prefix,
                    values,
                    holding,
                })
            }),
        (
            any::<u64>(),
            any::<u32>(),
            prop::option::of(prop::sample::select(Kind::ALL.to_vec()))
        )
            .prop_map(|(cursor, count, kind)| {
                PartitionAction::Scan {
                    cursor,
                    count,
                    kind,
                }
            })
    ];
    let watched =
        (any::<u32>(), bytes(), prop::option::of(any::<i64>())).prop_map(|(m, key, version)| {
            Watched {
                map: MapId(m),
                key,
                version,
            }
        });
    let words = || prop::collection::vec(bytes(), 0..3);
    let script = || {
        let flags = any::<(bool, bool)>();
        let texts = (bytes(), bytes());
        (any::<u16>(), any::<u32>(), texts, words(), words(), flags).prop_map(
            |(k, m, (body, grants), keys, args, (read_only, resp3))| ScriptCall {
                keyspace: KeyspaceId(k),
                map: MapId(m),
                body,
                keys,
                args,
                read_only,
                resp3,
                grants,
            },
        )
    };
    let step = prop_oneof![
        (any::<u32>(), bytes(), action()).prop_map(|(m, key, action)| OperationStep::Key {
            map: MapId(m),
            key,
            action,
        }),
        script().prop_map(|call| OperationStep::Script(Box::new(call))),
    ];
    let watched = prop::collection::vec(watched, 0..3);
    let steps = prop::collection::vec(step, 0..3);
    prop_oneof![
        (any::<u16>(), any::<u32>(), bytes(), action()).prop_map(|(k, m, key, action)| Work::Key(
            Operation {
                keyspace: KeyspaceId(k),
                map: MapId(m),
                key,
                action
            }
        )),
        (at(), any::<u32>(), partition_action).prop_map(|(at, m, action)| Work::Partition(
            PartitionOperation {
                keyspace: at.keyspace,
                partition: at.partition,
                map: MapId(m),
                action
            }
        )),
        script().prop_map(Work::Script),
        (any::<u16>(), watched, steps).prop_map(|(k, watched, steps)| Work::Transaction(
            OperationBatch {
                keyspace: KeyspaceId(k),
                watched,
                steps
            }
        )),
    ]
}

/// One of the kinds of collections.
fn collection(n: usize) -> Kind {
    let mut all = Kind::ALL
        .into_iter()
        .filter(|kind| kind.collection().is_some())
        .cycle();
    all.nth(n % Kind::ALL.len()).expect("there are some")
}

fn row_end() -> impl Strategy<Value = Entry> {
    (bytes(), bytes()).prop_map(|(field, value)| Entry::of_row(&field, &value, 0))
}

/// A range of rows is removed, or some or all of it are freed.
fn of_range(map: MapId, key: Key, [first, last, freed, next]: [Entry; 4]) -> Effect {
    let seq = key.len() as u64;
    let (kind, span) = (Kind::SortedSet, RowSpan { first, last });
    let upto = match seq % 3 {
        0 => {
            return Effect::RowsCut {
                map,
                key,
                kind,
                span,
            };
        }
        1 => None,
        _ => Some((freed, next)),
    };
    let cut = RowCut { seq, span };
    Effect::RowsFreed {
        map,
        key,
        kind,
        freed: Box::new(FreedRows { cut, upto }),
    }
}

fn logged() -> impl Strategy<Value = Logged> {
    let key = || bytes().prop_map(|b| Key::from(&*b));
    let one = prop_oneof![
        (any::<u32>(), key(), (0u8..9, bytes()), any::<u64>()).prop_map(
            |(m, key, (kind, v), deadline)| {
                Effect::Put {
                    map: MapId(m),
                    entry: match kind % 3 {
                        0 => Entry::new(&key, &v, 0, 0),
                        1 => Entry::of_kind(collection(v.len()), &key, &v),
                        _ => Entry::of_table(collection(v.len()), &key, deadline ^ 7),
                    },
                    deadline,
                    before: match kind / 3 {
                        0 => Before::Value,
                        1 => Before::Nothing,
                        _ => Before::Overdue,
                    },
                }
            }
        ),
        (any::<u32>(), key(), (bytes(), bytes()), any::<u64>()).prop_map(
            |(m, key, (field, v), deadline)| {
                Effect::Row {
                    map: MapId(m),
                    key,
                    kind: collection(v.len()),
                    row: Entry::of_row(&field, &v, deadline),
                }
            }
        ),
        (any::<u32>(), key(), (key(), bytes()), 0_u64..3).prop_map(
            |(m, key, (field, value), at)| {
                Effect::Field {
                    map: MapId(m),
                    key,
                    kind: collection(value.len()),
                    row: Entry::of_row(&field, &value, at << 40),
                }
            }
        ),
        (any::<u32>(), key(), key()).prop_map(|(m, key, field)| Effect::RowDelete {
            map: MapId(m),
            key,
            kind: collection(field.len()),
            field
        }),
        (
            any::<u32>(),
            key(),
            [row_end(), row_end(), row_end(), row_end()]
        )
            .prop_map(|(m, key, ends)| of_range(MapId(m), key, ends)),
        (any::<u32>(), key()).prop_map(|(m, key)| Effect::Delete {
            map: MapId(m),
            key,
            cause: Cause::Command
        }),
        (any::<u32>(), key(), any::<u64>()).prop_map(|(m, key, deadline)| Effect::Deadline {
            map: MapId(m),
            key,
            deadline
        }),
    ];
    let effect = prop_oneof![
        one.clone(),
        any::<u32>().prop_map(|m| Effect::Clear { map: MapId(m) }),
        prop::collection::vec(one, 0..3).prop_map(|parts| Effect::Many(parts.into())),
    ];
    let op = (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(o, n, finished)| OpId {
        origin: MemberId(o),
        n,
        finished,
    });
    (any::<u64>(), effect, prop::option::of((op, outcome()))).prop_map(|(epoch, effect, op)| {
        let (op, outcome) = op.map_or((None, Outcome::Ok), |(op, outcome)| (Some(op), outcome));
        Logged {
            epoch: Epoch(epoch),
            effect,
            op,
            outcome,
        }
    })
}

fn forwarded() -> impl Strategy<Value = Forwarded> {
    (at(), any::<u32>(), any::<u64>(), any::<u64>(), any::<u32>()).prop_map(
        |(at, lineage, n, finished, attempt)| Forwarded {
            at,
            lineage: Lineage(lineage),
            n,
            finished,
            attempt,
        },
    )
}

fn head() -> impl Strategy<Value = FrameHead> {
    (
        at(),
        any::<u64>(),
        any::<u32>(),
        0..SEQ_MAX,
        0..SEQ_MAX,
        1..SEQ_MAX,
    )
        .prop_map(|(at, epoch, session, committed, clock, first)| FrameHead {
            at,
            epoch: Epoch(epoch),
            session,
            committed,
            clock,
            first,
        })
}

fn name() -> impl Strategy<Value = TableName> {
    (any::<u128>(), any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(c, t, v, hash)| {
        TableName {
            cluster: ClusterId(c),
            term: Term(t),
            version: Version(v),
            hash,
        }
    })
}

/// Frames between a member and a client, besides operations.
fn of_clients() -> impl Strategy<Value = Frame> {
    let n = any::<u64>;
    let map = (any::<u32>(), any::<u16>(), ".{0,9}").prop_map(|(id, k, name)| MapEntry {
        id: MapId(id),
        name,
        keyspace: KeyspaceId(k),
        limits: MapLimits::NONE,
    });
    let wish = prop_oneof![
        Just(MapWish::Dropped),
        (prop::option::of(1..u64::MAX), prop::option::of(1..u64::MAX)).prop_map(
            |(entries, idle_ms)| MapWish::Limited(MapLimits {
                entries,
                idle_ms,
                ..MapLimits::NONE
            })
        ),
    ];
    let wanted = (".{0,20}", ".{0,20}", wish).prop_map(|(keyspace, name, wish)| WantedMap {
        keyspace,
        name,
        wish,
    });
    let made = prop_oneof![map.prop_map(Ok), ".{0,20}".prop_map(Err)];
    prop_oneof![
        (n(), n(), name()).prop_map(|(clock, value_bytes_max, table)| Frame::Tick {
            clock,
            value_bytes_max,
            table
        }),
        n().prop_map(|clock| Frame::Heard { clock }),
        prop::option::of(name()).prop_map(|have| Frame::Pull { have }),
        (name(), any::<u32>(), any::<u32>(), bytes()).prop_map(|(name, part, parts, body)| {
            Frame::Table {
                name,
                part,
                parts,
                body,
            }
        }),
        (n(), ".{0,20}", ".{0,20}").prop_map(|(ticket, keyspace, name)| Frame::MakeMap {
            ticket,
            keyspace,
            name
        }),
        (n(), wanted).prop_map(|(ticket, wanted)| Frame::WantMap { ticket, wanted }),
        (n(), made).prop_map(|(ticket, made)| Frame::MapMade { ticket, made }),
    ]
}

fn frame() -> impl Strategy<Value = Frame> {
    let n = any::<u64>;
    let s = any::<u32>;
    let ack = (at(), n(), s(), n()).prop_map(|(at, e, session, seq)| Ack {
        at,
        epoch: Epoch(e),
        session,
        seq,
    });
    let applied = prop::collection::vec((n(), n(), outcome()), 0..3);
    prop_oneof![
        name().prop_map(Frame::View),
        of_clients(),
        (forwarded(), prop::option::of(n()), work()).prop_map(|(forwarded, before, work)| {
            Frame::Forward {
                forwarded,
                before,
                work,
            }
        }),
        (forwarded(), s(), bytes(), bytes()).prop_map(|(forwarded, m, key, value)| {
            Frame::ForwardSet {
                forwarded,
                map: MapId(m),
                entry: Entry::new(&key[..key.len().min(200)], &value, 0, 0),
            }
        }),
        (at(), n(), s(), outcome()).prop_map(|(at, n, attempt, outcome)| Frame::Reply {
            at,
            n,
            attempt,
            outcome
        }),
        (at(), n(), s()).prop_map(|(at, n, attempt)| Frame::NotServing { at, n, attempt }),
        (head(), n(), n(), prop::collection::vec(logged(), 0..4)).prop_map(
            |(head, base, last, entries)| Frame::Align {
                head,
                base,
                last,
                entries
            }
        ),
        (head(), prop::collection::vec(logged(), 0..4))
            .prop_map(|(head, entries)| Frame::Append { head, entries }),
        (n(), n(), n(), [n(), n()], prop::collection::vec(ack, 0..4)).prop_map(
            |(left, kept, loose, arrived, acks)| Frame::Acks {
                headroom: Headroom { left, kept, loose },
                arrived,
                acks
            }
        ),
        (at(), n(), s(), n()).prop_map(|(at, e, session, next)| Frame::Want {
            at,
            epoch: Epoch(e),
            session,
            next
        }),
        (at(), n(), s(), s(), n(), n(), n()).prop_map(|(at, e, l, session, kept, seq, bytes)| {
            Frame::Begin {
                at,
                epoch: Epoch(e),
                lineage: Lineage(l),
                session,
                kept,
                seq,
                bytes,
            }
        }),
        (at(), s()).prop_map(|(at, session)| Frame::NoRoom { at, session }),
        (at(), s(), s()).prop_map(|(at, session, ms)| Frame::Later { at, session, ms }),
        (at(), s(), n()).prop_map(|(at, session, committed)| Frame::Holds {
            at,
            session,
            committed
        }),
        (at(), s(), s(), n(), bytes()).prop_map(|(at, session, index, digest, body)| {
            Frame::Chunk {
                at,
                session,
                index,
                digest,
                body,
            }
        }),
        (at(), s(), s()).prop_map(|(at, session, index)| Frame::ChunkAck { at, session, index }),
        (
            at(),
            s(),
            prop::collection::vec((n().prop_map(MemberId), n(), applied), 0..3)
        )
            .prop_map(|(at, session, dedup)| Frame::Outcomes { at, session, dedup }),
        (at(), s(), s(), n()).prop_map(|(at, session, chunks, seq)| Frame::Finish {
            at,
            session,
            chunks,
            seq
        }),
        (at(), s()).prop_map(|(at, session)| Frame::Finished { at, session }),
        (at(), s(), n(), n(), 0..SEQ_MAX).prop_map(|(at, session, seq, sum, clock)| {
            Frame::Compare {
                at,
                session,
                seq,
                sum,
                clock,
            }
        }),
        (at(), s(), any::<bool>()).prop_map(|(at, session, equal)| Frame::Verdict {
            at,
            session,
            equal
        }),
        (bytes(), bytes(), any::<bool>()).prop_map(|(channel, message, sharded)| {
            Frame::Publish(Publication {
                channel,
                message,
                sharded,
            })
        }),
        (n(), any::<bool>()).prop_map(|(round, wanted)| Frame::Interest { round, wanted }),
        n().prop_map(|round| Frame::Interested { round }),
        (n(), any::<bool>(), prop::collection::vec(bytes(), 0..3)).prop_map(
            |(ticket, sharded, names)| Frame::Count {
                ticket,
                sharded,
                names: names.into_iter().map(|name| name.to_vec()).collect()
            }
        ),
        (n(), prop::collection::vec(n(), 0..3))
            .prop_map(|(ticket, counts)| Frame::Counted { ticket, counts }),
        (n(), asked()).prop_map(|(ticket, asked)| Frame::Ask { ticket, asked }),
        (n(), names(), prop::option::of(channel())).prop_map(|(ticket, names, next)| {
            Frame::Named {
                ticket,
                names,
                next,
            }
        }),
        of_subscribers(),
    ]
}

fn channel() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..9)
}

fn names() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(channel(), 0..3)
}

fn asked() -> impl Strategy<Value = AskedSubscribers> {
    prop_oneof![
        prop::collection::vec((any::<bool>(), channel()), 0..3)
            .prop_map(AskedSubscribers::Receivers),
        (
            0_u8..3,
            prop::option::of(channel()),
            prop::option::of(channel())
        )
            .prop_map(|(kind, pattern, after)| AskedSubscribers::Names {
                kind,
                pattern,
                after
            }),
        channel().prop_map(AskedSubscribers::Script),
        Just(AskedSubscribers::ForgetScripts),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let cause = prop::sample::select(vec![Cause::Command, Cause::Expired, Cause::Evicted]);
    let what =
        prop_oneof![
            prop::option::of(bytes()).prop_map(|value| What::Put(Kind::String, value)),
            (0usize..9).prop_map(|n| What::Put(collection(n), None)),
            (0usize..9, bytes(), prop::option::of(bytes()))
                .prop_map(|(n, field, value)| What::Field(collection(n), field, value)),
            (0usize..9, bytes()).prop_map(|(n, field)| What::FieldRemoved(collection(n), field)),
            Just(What::Deadline),
            cause.prop_map(What::Removed),
            Just(What::Cleared),
        ];
    let by = prop::option::of(1..u16::MAX);
    let before = prop_oneof![
        Just(Former::Nothing),
        prop::option::of(bytes()).prop_map(Former::Value),
    ];
    let made = (by, prop::option::of(any::<u64>()));
    let of = (any::<u64>(), any::<u32>(), bytes(), what, before, made);
    of.prop_map(|(seq, map, key, what, before, (by, own))| Change {
        position: Position {
            partition: PartitionId(0),
            lineage: Lineage(0),
            seq,
        },
        map: MapId(map),
        key,
        what,
        before,
        by: by.map(By),
        own,
    })
}

/// Frames between subscribers and primaries.
fn of_subscribers() -> impl Strategy<Value = Frame> {
    let n = any::<u64>;
    let keys = prop_oneof![
        Just(KeyFilter::All),
        bytes().prop_map(KeyFilter::Prefix),
        bytes().prop_map(KeyFilter::One)
    ];
    let maps = prop_oneof![
        Just(Maps::All),
        Just(Maps::Databases),
        any::<u32>().prop_map(|map| Maps::One(MapId(map)))
    ];
    let filter = (any::<u16>(), maps, keys, any::<[bool; 3]>()).prop_map(
        |(keyspace, maps, keys, [values, fields, old])| Filter {
            keyspace: KeyspaceId(keyspace),
            maps,
            keys,
            values,
            fields,
            old,
        },
    );
    let had = (any::<u32>(), any::<u32>(), n()).prop_map(|(partition, lineage, seq)| Position {
        partition: PartitionId(partition),
        lineage: Lineage(lineage),
        seq,
    });
    let missing = prop_oneof![Just(Missing::UNKNOWN), n().prop_map(Missing::entries)];
    prop_oneof![
        (at(), n(), filter, prop::collection::vec(had, 0..3)).prop_map(
            |(at, ticket, filter, had)| Frame::Subscribe {
                at,
                ticket,
                filter,
                had
            }
        ),
        (at(), n(), n(), missing).prop_map(|(at, ticket, seq, missing)| Frame::Subscribed {
            at,
            ticket,
            seq,
            missing
        }),
        (at(), n(), n(), prop::collection::vec(change(), 0..4)).prop_map(
            |(at, ticket, last, mut changes)| {
                let of = |change: &mut Change| change.position.partition = at.partition;
                changes.iter_mut().for_each(of);
                Frame::Changes {
                    at,
                    ticket,
                    last,
                    changes,
                }
            }
        ),
        (at(), n(), n()).prop_map(|(at, ticket, bytes)| Frame::Taken { at, ticket, bytes }),
        (at(), n()).prop_map(|(at, ticket)| Frame::Unsubscribe { at, ticket }),
        (at(), n(), n(), n(), work()).prop_map(|(at, n, age_ms, stamp, work)| Frame::Wait {
            at,
            n,
            age_ms,
            stamp,
            work
        }),
        (at(), n(), n(), outcome()).prop_map(|(at, n, stamp, outcome)| Frame::Waited {
            at,
            n,
            stamp,
            outcome
        }),
        n().prop_map(|stamp| Frame::Stamp { stamp }),
        (at(), n()).prop_map(|(at, n)| Frame::Unwait { at, n }),
        prop::collection::vec((any::<u16>().prop_map(KeyspaceId), any::<bool>()), 0..3)
            .prop_map(|keyspaces| Frame::Reads { keyspaces }),
        (at(), n(), any::<([u8; 16], [u8; 8], u8)>()).prop_map(|(at, n, (trace, span, flags))| {
            Frame::Traced {
                at,
                n,
                context: TraceContext { trace, span, flags },
            }
        }),
        n().prop_map(|round| Frame::Confirm { round }),
        (n(), prop::collection::vec(n(), 0..40))
            .prop_map(|(round, tickets)| Frame::Confirmed { round, tickets }),
    ]
}

/// A frame as it arrives.
fn wire(put: impl FnOnce(&mut Out)) -> BytesMut {
    let mut out = Out::default();
    put(&mut out);
    out.take().flatten().collect()
}

proptest! {
    #[test]
    fn frames_survive_the_wire_however_it_is_cut(
        frames in prop::collection::vec(frame(), 1..5),
        cut in 1usize..40,
    ) {
        let wire: BytesMut = frames.iter().flat_map(Frame::wire).collect();
        let (mut arrived, mut read) = (BytesMut::new(), Vec::new());
        for part in wire.chunks(cut) {
            arrived.extend_from_slice(part);
            while let Some((frame, _)) = take(&mut arrived, 1 << 16).unwrap() {
                read.push(frame);
            }
        }
        prop_assert_eq!(&read, &frames);
        prop_assert!(arrived.is_empty());
    }

    #[test]
    fn random_bytes_are_refused_without_a_panic(
        kind in 0u8..40,
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = vec![kind];
        bytes.extend(body.clone());
        let _ = Frame::read(Bytes::from(bytes));
        let _ = entries(Bytes::from(body));
    }

    #[test]
    fn a_damaged_frame_is_refused_or_read_without_a_panic(
        frame in frame(),
        at in any::<prop::sample::Index>(),
        with in any::<u8>(),
    ) {
        let mut wire = frame.wire();
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

#[test]
fn a_chunk_that_is_written_in_place_is_the_same_frame() {
    let at = PartitionRef::new(KeyspaceId(0), PartitionId(3));
    for size in [5, 70_000] {
        let entry = Entry::new(b"k", &vec![b'v'; size], 7, 9);
        let piece = Piece {
            map: MapId(1),
            of: None,
            entry: &entry,
        };
        let entries = |out: &mut Out| (0..2).for_each(|_| put_piece(out, piece, None));
        let body = wire(entries).freeze();
        let digest = digest_bytes([&*body]);
        let put = wire(|out| {
            Frame::Chunk {
                at,
                session: 2,
                index: 5,
                digest,
                body,
            }
            .put(out)
        });
        assert_eq!(put, wire(|out| chunk(out, at, (2, 5), 100, entries)));
    }
}
