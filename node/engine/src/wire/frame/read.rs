//! Reads fields.

use super::*;
use crate::value::extended::Extended;

/// Reads fields off the front of contiguous bytes. Every read checks that its bytes are there.
pub(super) struct Reader<B>(pub(super) B);

pub(super) type Read<T> = Result<T, Malformed>;

/// A length, so many bytes, and the rest.
fn run(bytes: &[u8]) -> Read<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or(SHORT)?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
        .ok_or(SHORT)
}

/// The tag of a list of effects, and of a list of outcomes.
const MANY: u8 = 4;
const OUTCOMES: u8 = 6;

const SHORT: Malformed = Malformed("a frame that ends too early");

impl<B: Buf> Reader<B> {
    pub(super) fn need(&self, bytes: usize) -> Read<()> {
        if self.0.remaining() < bytes {
            Err(SHORT)
        } else {
            Ok(())
        }
    }

    pub(super) fn u8(&mut self) -> Read<u8> {
        self.need(1).map(|()| self.0.get_u8())
    }

    pub(super) fn u16(&mut self) -> Read<u16> {
        self.need(2).map(|()| self.0.get_u16_le())
    }

    pub(super) fn u32(&mut self) -> Read<u32> {
        self.need(4).map(|()| self.0.get_u32_le())
    }

    pub(super) fn u64(&mut self) -> Read<u64> {
        self.need(8).map(|()| self.0.get_u64_le())
    }

    pub(super) fn i64(&mut self) -> Read<i64> {
        self.need(8).map(|()| self.0.get_i64_le())
    }

    fn extended(&mut self) -> Read<Extended> {
        let (negative, mantissa) = (self.flag()?, self.u64()?);
        let exponent = self.need(4).map(|()| self.0.get_i32_le())?;
        Extended::of_parts(negative, mantissa, exponent)
            .ok_or(Malformed("a number that cannot be represented"))
    }

    pub(super) fn u128(&mut self) -> Read<u128> {
        self.need(16).map(|()| self.0.get_u128_le())
    }

    pub(super) fn flag(&mut self) -> Read<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag that is neither 0 nor 1")),
        }
    }

    /// Bytes to keep. If the frame is `Bytes`, a slice of it.
    pub(super) fn bytes(&mut self) -> Read<Bytes> {
        let length = self.u32()? as usize;
        self.need(length).map(|()| self.0.copy_to_bytes(length))
    }

    /// Everything that is left.
    pub(super) fn rest(&mut self) -> Bytes {
        self.0.copy_to_bytes(self.0.remaining())
    }

    /// Looks at bytes in place.
    fn look<T>(&mut self, look: impl FnOnce(&[u8]) -> T) -> Read<T> {
        let (bytes, _) = run(self.0.chunk())?;
        let (seen, length) = (look(bytes), bytes.len());
        self.0.advance(4 + length);
        Ok(seen)
    }

    /// Looks at two runs of bytes in place.
    pub(super) fn pair<T>(&mut self, look: impl FnOnce(&[u8], &[u8]) -> T) -> Read<T> {
        let (first, after) = run(self.0.chunk())?;
        let (second, _) = run(after)?;
        let (seen, length) = (look(first, second), first.len() + second.len());
        self.0.advance(8 + length);
        Ok(seen)
    }

    pub(super) fn all<T>(&mut self, one: impl Fn(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        // There is mostly one.
        let mut found = Vec::with_capacity(usize::from(self.0.has_remaining()));
        while self.0.has_remaining() {
            found.push(one(self)?);
        }
        Ok(found)
    }

    pub(super) fn at(&mut self) -> Read<PartitionRef> {
        Ok(PartitionRef {
            keyspace: KeyspaceId(self.u16()?),
            partition: PartitionId(self.u32()?),
        })
    }

    pub(super) fn name(&mut self) -> Read<TableName> {
        Ok(TableName {
            cluster: ClusterId(self.u128()?),
            term: Term(self.u64()?),
            version: Version(self.u64()?),
            hash: self.u64()?,
        })
    }

    pub(super) fn forwarded(&mut self) -> Read<Forwarded> {
        let (at, lineage) = (self.at()?, Lineage(self.u32()?));
        Ok(Forwarded {
            at,
            lineage,
            n: self.u64()?,
            finished: self.u64()?,
            attempt: self.u32()?,
        })
    }

    pub(super) fn head(&mut self) -> Read<Head> {
        let (at, epoch, session) = (self.at()?, Epoch(self.u64()?), self.u32()?);
        let head = Head {
            at,
            epoch,
            session,
            committed: self.u64()?,
            clock: self.u64()?,
            first: self.u64()?,
        };
        // Sequences and clocks are added to, so values near the end of the range are refused.
        if head.committed > SEQ_MAX
            || head.clock > SEQ_MAX
            || head.first > SEQ_MAX
            || head.first == 0
        {
            return Err(Malformed("a sequence or clock that is too large"));
        }
        Ok(head)
    }

    pub(super) fn ack(&mut self) -> Read<Ack> {
        Ok(Ack {
            at: self.at()?,
            epoch: Epoch(self.u64()?),
            session: self.u32()?,
            seq: self.u64()?,
        })
    }

    pub(super) fn origin(&mut self) -> Read<Remembered> {
        let (origin, finished, count) = (MemberId(self.u64()?), self.u64()?, self.u32()?);
        let mut applied = Vec::new();
        for _ in 0..count {
            applied.push((self.u64()?, self.u64()?, self.outcome()?));
        }
        Ok((origin, finished, applied))
    }

    pub(super) fn logged(&mut self) -> Read<Logged> {
        let epoch = Epoch(self.u64()?);
        let (op, outcome) = if self.flag()? {
            let op = OpId {
                origin: MemberId(self.u64()?),
                n: self.u64()?,
                finished: self.u64()?,
            };
            (Some(op), self.outcome()?)
        } else {
            (None, Outcome::Ok)
        };
        Ok(Logged {
            epoch,
            effect: self.effect()?,
            op,
            outcome,
        })
    }

    fn effect(&mut self) -> Read<Effect> {
        match self.u8()? {
            MANY => {
                let count = self.u32()?;
                let mut parts = Vec::new();
                for _ in 0..count {
                    let kind = self.u8()?;
                    let part = self.effect_of(kind)?;
                    if part.place().is_none() {
                        return Err(Malformed("an effect on a whole map in a list of effects"));
                    }
                    parts.push(part);
                }
                Ok(Effect::Many(parts.into()))
            }
            kind => self.effect_of(kind),
        }
    }

    /// An effect that is no list.
    fn effect_of(&mut self, tag: u8) -> Read<Effect> {
        if tag == BEFORE {
            let what = match self.u8()? {
                NOTHING => Before::Nothing,
                OVERDUE => Before::Overdue,
                _ => return Err(Malformed("an unknown state of a key")),
            };
            let tag = self.u8()?;
            if !matches!(tag, 0 | PACKED | TABLE_MADE | OF_KIND) {
                return Err(Malformed("the former state of what is not put"));
            }
            let mut effect = self.effect_of(tag)?;
            let Effect::Put { before, .. } = &mut effect else {
                return Err(Malformed("the former state of what is not put"));
            };
            *before = what;
            return Ok(effect);
        }
        let (tag, kind) = match tag {
            OF_KIND => {
                let kind = self.kind()?;
                let tag = self.u8()?;
                if !matches!(tag, PACKED | TABLE_MADE | ROW | FIELD_PUT | ROW_DELETE) {
                    return Err(Malformed("the kind of what is no collection"));
                }
                (tag, kind)
            }
            0 => (tag, Kind::String),
            tag => (tag, UNSAID),
        };
        let map = MapId(self.u32()?);
        Ok(match tag {
            0 | PACKED => {
                // The deadline is set when it is applied.
                let entry = self.pair(|key, value| Entry::of_kind(kind, key, value))?;
                Effect::Put {
                    map,
                    entry,
                    deadline: self.u64()?,
                    before: Before::Value,
                }
            }
            TABLE_MADE => {
                let key = self.bytes()?;
                let born = self.bytes()?;
                let born = born.first_chunk().copied().map(u64::from_le_bytes);
                let born = born.ok_or(Malformed("a table without a birth"))?;
                Effect::Put {
                    map,
                    entry: Entry::of_table(kind, &key, born),
                    deadline: self.u64()?,
                    before: Before::Value,
                }
            }
            ROW => {
                let key = self.key()?;
                let (field, value) = (self.bytes()?, self.bytes()?);
                let row = Entry::of_row(&field, &value, self.u64()?);
                Effect::Row {
                    map,
                    key,
                    kind,
                    row,
                }
            }
            FIELD_PUT => {
                let key = self.key()?;
                let (field, value) = (self.bytes()?, self.bytes()?);
                let row = Entry::of_row(&field, &value, 0);
                Effect::Field {
                    map,
                    key,
                    kind,
                    row,
                }
            }
            ROW_DELETE => Effect::RowDelete {
                map,
                key: self.key()?,
                kind,
                field: self.key()?,
            },
            1 | EXPIRED | EVICTED => Effect::Delete {
                map,
                key: self.key()?,
                cause: match tag {
                    EXPIRED => Cause::Expired,
                    EVICTED => Cause::Evicted,
                    _ => Cause::Command,
                },
            },
            2 => Effect::Deadline {
                map,
                key: self.key()?,
                deadline: self.u64()?,
            },
            3 => Effect::Clear { map },
            _ => return Err(Malformed("unknown effect")),
        })
    }

    /// A change of a partition that a subscriber is told of. The subscriber knows the lineage.
    pub(super) fn change(&mut self, partition: PartitionId) -> Read<Change> {
        let (tag, kind) = match self.u8()? {
            CHANGE_OF_KIND => {
                let kind = self.kind()?;
                let tag = self.u8()?;
                if !matches!(tag, COLLECTION | FIELD | FIELD_VALUE | FIELD_GONE) {
                    return Err(Malformed("the kind of what is no collection"));
                }
                (tag, kind)
            }
            tag => (tag, UNSAID),
        };
        let (seq, by) = (self.u64()?, By(self.u16()?));
        let (map, key) = (MapId(self.u32()?), self.bytes()?);
        let before = match self.u8()? {
            0 => Former::Nothing,
            1 => Former::Value(None),
            2 => Former::Value(Some(self.bytes()?)),
            _ => return Err(Malformed("an unknown former state of a key")),
        };
        let what = match tag {
            STRING => What::Put(Kind::String, None),
            STRING_VALUE => What::Put(Kind::String, Some(self.bytes()?)),
            COLLECTION => What::Put(kind, None),
            FIELD => What::Field(kind, self.bytes()?, None),
            FIELD_VALUE => What::Field(kind, self.bytes()?, Some(self.bytes()?)),
            FIELD_GONE => What::FieldRemoved(kind, self.bytes()?),
            DATED => What::Deadline,
            REMOVED => What::Removed(match self.u8()? {
                0 => Cause::Command,
                1 => Cause::Expired,
                2 => Cause::Evicted,
                _ => return Err(Malformed("an unknown cause of a deletion")),
            }),
            CLEARED => What::Cleared,
            _ => return Err(Malformed("an unknown change")),
        };
        let by = Some(by).filter(|by| *by != By::UNKNOWN);
        let position = Position {
            partition,
            lineage: Lineage(0),
            seq,
        };
        Ok(Change {
            position,
            map,
            key,
            what,
            before,
            by,
        })
    }

    /// The number of a kind of values.
    fn kind(&mut self) -> Read<Kind> {
        Kind::of_number(self.u8()?).ok_or(Malformed("unknown kind of value"))
    }

    pub(super) fn key(&mut self) -> Read<Key> {
        self.look(|bytes| Key::from(bytes))
    }

    pub(super) fn outcome(&mut self) -> Read<Outcome> {
        match self.u8()? {
            OUTCOMES => {
                let count = self.u32()?;
                let mut outcomes = Vec::new();
                for _ in 0..count {
                    outcomes.push(self.part_of_outcome()?);
                }
                Ok(Outcome::Many(outcomes))
            }
            kind => self.outcome_of(kind),
        }
    }

    /// The outcome of a step, which may be a list, too: a list within lists is refused.
    fn part_of_outcome(&mut self) -> Read<Outcome> {
        match self.u8()? {
            OUTCOMES => {
                let count = self.u32()?;
                let mut outcomes = Vec::new();
                for _ in 0..count {
                    let kind = self.u8()?;
                    outcomes.push(self.outcome_of(kind)?);
                }
                Ok(Outcome::Many(outcomes))
            }
            kind => self.outcome_of(kind),
        }
    }

    /// An outcome that is no list of them.
    fn outcome_of(&mut self, kind: u8) -> Read<Outcome> {
        Ok(match kind {
            0 => Outcome::Ok,
            1 => Outcome::Nil,
            2 => Outcome::Int(self.i64()?),
            3 => Outcome::Bulk(self.look(|bytes| Value::from(bytes))?),
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
                10 => Failure::Overtaken,
                11 => Failure::Stale,
                12 => Failure::CrossPartition,
                13 => Failure::OldMembers,
                14 => Failure::WrongType,
                15 => Failure::NoScripts,
                16 => Failure::MapFull,
                17 => Failure::Dropped,
                18 => Failure::TooMuchWork,
                _ => return Err(Malformed("unknown failure")),
            }),
            _ => return Err(Malformed("unknown outcome")),
        })
    }

    pub(super) fn expiry(&mut self) -> Read<Expiry> {
        let (kind, ms) = (self.u8()?, self.i64()?);
        match kind {
            0 if ms == 0 => Ok(Expiry::Keep),
            1 if ms == 0 => Ok(Expiry::None),
            2 => Ok(Expiry::In(ms)),
            3 => Ok(Expiry::At(ms)),
            _ => Err(Malformed("unknown expiry")),
        }
    }

    pub(super) fn work(&mut self) -> Read<Work> {
        match self.u8()? {
            0 => self.operation().map(Work::Key),
            1 => self.partition_operation().map(Work::Partition),
            2 => self.transaction().map(Work::Transaction),
            3 => self.script_call().map(Work::Script),
            _ => Err(Malformed("unknown work")),
        }
    }

    fn script_call(&mut self) -> Read<ScriptCall> {
        let (keyspace, map) = (KeyspaceId(self.u16()?), MapId(self.u32()?));
        let body = self.bytes()?;
        let mut list = || {
            let count = self.u32()?;
            let mut list = Vec::new();
            for _ in 0..count {
                list.push(self.bytes()?);
            }
            Ok(list)
        };
        let (keys, args) = (list()?, list()?);
        Ok(ScriptCall {
            keyspace,
            map,
            body,
            keys,
            args,
            read_only: self.flag()?,
            resp3: self.flag()?,
            grants: self.bytes()?,
        })
    }

    fn transaction(&mut self) -> Read<Transaction> {
        let keyspace = KeyspaceId(self.u16()?);
        let (mut watched, mut steps) = (Vec::new(), Vec::new());
        for _ in 0..self.u32()? {
            let (map, key) = (MapId(self.u32()?), self.bytes()?);
            let (some, version) = (self.flag()?, self.i64()?);
            if !some && version != 0 {
                return Err(Malformed("an absent key that has a version"));
            }
            watched.push(Watched {
                map,
                key,
                version: some.then_some(version),
            });
        }
        for _ in 0..self.u32()? {
            steps.push(match self.u8()? {
                0 => Step::Key {
                    map: MapId(self.u32()?),
                    key: self.bytes()?,
                    action: self.action()?,
                },
                1 => Step::Script(Box::new(self.script_call()?)),
                _ => return Err(Malformed("unknown step")),
            });
        }
        Ok(Transaction {
            keyspace,
            watched,
            steps,
        })
    }

    fn partition_operation(&mut self) -> Read<PartitionOperation> {
        let (keyspace, partition, map) = (
            KeyspaceId(self.u16()?),
            PartitionId(self.u32()?),
            MapId(self.u32()?),
        );
        let action = match self.u8()? {
            0 => PartitionAction::Count,
            tag @ (1 | SCAN_OF_KIND) => PartitionAction::Scan {
                cursor: self.u64()?,
                count: self.u32()?,
                kind: if tag == 1 { None } else { Some(self.kind()?) },
            },
            2 => PartitionAction::Clear,
            SIZES => PartitionAction::Sizes,
            3 => PartitionAction::Range(RangeQuery {
                from: self.bytes()?,
                to: self.bytes()?,
                count: self.u32()?,
                reverse: self.flag()?,
                values: self.flag()?,
            }),
            FIND => PartitionAction::Find(FindQuery {
                cursor: self.u64()?,
                count: self.u32()?,
                prefix: self.bytes()?,
                values: self.flag()?,
                holding: match self.flag()? {
                    true => Some(self.bytes()?),
                    false => None,
                },
            }),
            FIELDS => PartitionAction::Fields {
                walk: self.u64()?,
                page: self.u32()?,
            },
            _ => return Err(Malformed("unknown partition action")),
        };
        Ok(PartitionOperation {
            keyspace,
            partition,
            map,
            action,
        })
    }

    fn operation(&mut self) -> Read<Operation> {
        let (keyspace, map, key) = (KeyspaceId(self.u16()?), MapId(self.u32()?), self.bytes()?);
        Ok(Operation {
            keyspace,
            map,
            key,
            action: self.action()?,
        })
    }

    fn call(&mut self) -> Read<ProcedureCall> {
        let called = Called::of_number(self.u16()?).ok_or(Malformed("an unknown procedure"))?;
        let (mut numbers, mut bytes) = (Vec::new(), Vec::new());
        for _ in 0..self.u8()? {
            numbers.push(self.i64()?);
        }
        let count = match self.u8()? {
            MANY_RUNS => match self.u16()? {
                few if few < u16::from(MANY_RUNS) => {
                    return Err(Malformed("a small number in the place of a large one"));
                }
                many => many,
            },
            few => few.into(),
        };
        for _ in 0..count {
            bytes.push(self.bytes()?);
        }
        ProcedureCall::new(called, &numbers, bytes)
            .ok_or(Malformed("a procedure with other inputs than it takes"))
    }

    pub(super) fn action(&mut self) -> Read<Action> {
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
                Action::Set {
                    value,
                    condition,
                    expiry: self.expiry()?,
                    get: self.flag()?,
                }
            }
            6 => {
                let (some, expected, value) = (self.flag()?, self.bytes()?, self.bytes()?);
                if !some && !expected.is_empty() {
                    return Err(Malformed("an absent value that has bytes"));
                }
                Action::CompareAndSwap {
                    expected: some.then_some(expected),
                    value,
                }
            }
            7 => Action::GetEx {
                expiry: self.expiry()?,
            },
            8 => Action::GetDel,
            9 => Action::Append {
                value: self.bytes()?,
            },
            10 => Action::IncrBy(self.i64()?),
            11 => Action::IncrByFloat(self.extended()?),
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
            15 => Action::Touch,
            16 => Action::Encoding,
            17 => Action::Footprint,
            18 => Action::Peek,
            19 => Action::PeekLength,
            20 => Action::Version,
            21 => Action::Call(self.call()?),
            _ => return Err(Malformed("unknown action")),
        })
    }
}
