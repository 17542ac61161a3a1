//! Operations on one key or one partition, and their outcomes. RESP, the library and forwarding all
//! use them.

use super::procedure::{Called, InputBytes, ProcedureCall, READS, VALUES, WRITES};
use crate::value::cause::By;
use crate::value::extended::Extended;
pub use crate::value::kind::Kind;
pub use crate::value::outcome::{Failure, Outcome, Value};
#[doc(hidden)]
pub use crate::value::types::TypeEvents;
use bytes::Bytes;
use doyen_placement::{KeyspaceId, MapId, PartitionId};

/// An operation, on a key or on a partition.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// An operation on one key, or on several of one partition.
    Key(Operation),
    /// An operation on a whole partition.
    Partition(PartitionOperation),
    /// Operations on keys of one partition, which are executed together.
    Transaction(OperationBatch),
    /// A script on keys of one partition.
    Script(ScriptCall),
}

impl From<Operation> for Work {
    fn from(operation: Operation) -> Self {
        Self::Key(operation)
    }
}

impl From<PartitionOperation> for Work {
    fn from(operation: PartitionOperation) -> Self {
        Self::Partition(operation)
    }
}

impl From<ScriptCall> for Work {
    fn from(call: ScriptCall) -> Self {
        Self::Script(call)
    }
}

impl From<OperationBatch> for Work {
    fn from(transaction: OperationBatch) -> Self {
        Self::Transaction(transaction)
    }
}

impl Work {
    /// Whether it may change something.
    #[must_use]
    pub fn is_write(&self) -> bool {
        match self {
            Self::Key(op) => op.action.is_write(),
            Self::Partition(op) => matches!(op.action, PartitionAction::Clear),
            Self::Transaction(transaction) => transaction.is_write(),
            Self::Script(call) => !call.read_only,
        }
    }

    /// The values that its caller gives.
    #[must_use]
    pub fn given(&self) -> ValueSizes {
        match self {
            Self::Key(op) => op.action.footprint().given,
            Self::Partition(_) => ValueSizes::NOTHING,
            Self::Transaction(transaction) => transaction.given(),
            Self::Script(call) => call.given(),
        }
    }

    /// Bytes of its key and of the values that its caller gives.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Key(_) => {
                self.keys().map(|(_, key)| key.len()).sum::<usize>() + self.given().bytes
            }
            Self::Partition(op) => op.action.bytes(),
            Self::Transaction(transaction) => transaction.bytes(),
            Self::Script(call) => call.bytes(),
        }
    }

    /// The keys that it names. It may do something to other keys only if it is about a whole
    /// partition.
    pub fn keys(&self) -> impl Iterator<Item = (MapId, &Bytes)> {
        let (one, many, script) = match self {
            Self::Key(op) => (Some(op), None, None),
            Self::Partition(_) => (None, None, None),
            Self::Transaction(transaction) => (None, Some(transaction), None),
            Self::Script(call) => (None, None, Some(call)),
        };
        one.into_iter()
            .flat_map(|op| op.action.keys((op.map, &op.key)))
            .chain(many.into_iter().flat_map(OperationBatch::keys))
            .chain(script.into_iter().flat_map(ScriptCall::keys))
    }

    /// The maps that it names.
    pub(crate) fn maps(&self) -> impl Iterator<Item = MapId> {
        let of_partition = match self {
            Self::Partition(op) => Some(op.map),
            Self::Key(_) | Self::Transaction(_) | Self::Script(_) => None,
        };
        self.keys().map(|(map, _)| map).chain(of_partition)
    }

    /// Whether it names a key. Otherwise it is where its text would be, which may be longer than a
    /// key.
    pub(crate) fn names_keys(&self) -> bool {
        match self {
            Self::Key(_) | Self::Partition(_) => true,
            Self::Transaction(transaction) => transaction.named().next().is_some(),
            Self::Script(call) => !call.keys.is_empty(),
        }
    }

    /// Whether, on the same partition, this may change what `other` sees or does.
    pub fn concerns(&self, other: &Self) -> bool {
        match (self, other) {
            // A caller of a partition-wide operation waits for it before the next one.
            (_, Self::Partition(_)) => false,
            (Self::Partition(op), other) => other.keys().any(|(map, _)| map == op.map),
            (this, other) => this
                .keys()
                .any(|key| other.keys().any(|other| other == key)),
        }
    }
}

/// An operation on one key.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// The keyspace of the key.
    pub keyspace: KeyspaceId,
    /// The map.
    pub map: MapId,
    /// The key, as the caller gave it: the first one, if the action is about several. A slice of
    /// the connection's read buffer: no allocation.
    pub key: Bytes,
    /// What to do.
    pub action: Action,
}

/// The most operations of one transaction. Together they take some milliseconds.
pub const TRANSACTION_STEPS_MAX: usize = 10_000;

/// Operations on keys of one partition. They are executed one after the other with nothing in
/// between, and all of them or none.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationBatch {
    /// The keyspace of all keys.
    pub keyspace: KeyspaceId,
    /// If one of these keys has changed since, nothing is executed. → `Nil`
    pub watched: Vec<Watched>,
    /// The operations, [`TRANSACTION_STEPS_MAX`] at most. → `Many`, an outcome for each. One that
    /// fails for what its key holds changes nothing, and the others are executed.
    pub steps: Vec<OperationStep>,
}

impl OperationBatch {
    /// Whether it may be executed in this keyspace: it has operations, and not too many keys.
    pub(crate) fn is_sound(&self, keyspace: KeyspaceId) -> bool {
        let most = self.steps.len().max(self.watched.len());
        let here = |step: &OperationStep| match step {
            OperationStep::Key { .. } => true,
            OperationStep::Script(call) => call.keyspace == keyspace,
        };
        self.keyspace == keyspace
            && !self.steps.is_empty()
            && most <= TRANSACTION_STEPS_MAX
            && self.steps.iter().all(here)
    }

    /// Whether it may change something.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.steps.iter().any(|step| match step {
            OperationStep::Key { action, .. } => action.is_write(),
            OperationStep::Script(call) => !call.read_only,
        })
    }

    /// Whether its outcome may be as large as a stored value.
    #[must_use]
    pub fn answers_value(&self) -> bool {
        self.steps.iter().any(|step| match step {
            OperationStep::Key { action, .. } => action.footprint().answers_value,
            OperationStep::Script(_) => true,
        })
    }

    /// The values that its caller gives.
    #[must_use]
    pub fn given(&self) -> ValueSizes {
        let steps = self.steps.iter().map(|step| match step {
            OperationStep::Key { action, .. } => action.footprint().given,
            OperationStep::Script(call) => call.given(),
        });
        steps.fold(ValueSizes::NOTHING, ValueSizes::and)
    }

    /// Bytes of its keys and of the values that its caller gives.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.named().map(|(_, key)| key.len()).sum::<usize>() + self.given().bytes
    }

    /// The keys that it names, those of each operation first.
    pub fn named(&self) -> impl Iterator<Item = (MapId, &Bytes)> + Clone {
        let steps = self.steps.iter().flat_map(OperationStep::keys);
        let watched = self
            .watched
            .iter()
            .map(|watched| (watched.map, &watched.key));
        steps.chain(watched)
    }

    /// The keys that decide where it is executed: those that it names, or the text of its first
    /// script if it names none.
    pub fn keys(&self) -> impl Iterator<Item = (MapId, &Bytes)> {
        let named = self.named();
        let text = match self.steps.first() {
            Some(OperationStep::Script(call)) if named.clone().next().is_none() => {
                Some((call.map, &call.body))
            }
            _ => None,
        };
        named.chain(text)
    }
}

/// A script with its arguments. → `Bulk`, its reply in RESP
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptCall {
    /// The keyspace of all keys.
    pub keyspace: KeyspaceId,
    /// The map.
    pub map: MapId,
    /// The script, in Lua.
    pub body: Bytes,
    /// Its keys. It may use other keys of their partition.
    pub keys: Vec<Bytes>,
    /// Its further arguments.
    pub args: Vec<Bytes>,
    /// Whether it may not write.
    pub read_only: bool,
    /// Whether its caller speaks RESP3.
    pub resp3: bool,
    /// What its caller may do, as text of [`Grants`](crate::command::grants::Grants); empty:
    /// everything.
    pub grants: Bytes,
}

impl ScriptCall {
    /// The keys that decide where it is executed: its own, or its text if it has none.
    pub fn keys(&self) -> impl Iterator<Item = (MapId, &Bytes)> {
        let placed: &[Bytes] = if self.keys.is_empty() {
            std::slice::from_ref(&self.body)
        } else {
            &self.keys
        };
        placed.iter().map(|key| (self.map, key))
    }

    /// The values that its caller gives.
    #[must_use]
    pub fn given(&self) -> ValueSizes {
        ValueSizes::all(self.args.iter().chain([&self.body]))
    }

    /// Bytes of its keys, its text, its arguments and its caller's grants.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.keys.iter().map(Bytes::len).sum::<usize>() + self.given().bytes + self.grants.len()
    }
}

/// A key that may not have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// The map.
    pub map: MapId,
    /// The key.
    pub key: Bytes,
    /// What [`Action::Version`] or [`Action::watch`] answered for it; `None`: the key was absent.
    pub version: Option<i64>,
}

/// One operation of a transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum OperationStep {
    /// An operation on a key.
    Key {
        /// The map.
        map: MapId,
        /// The key.
        key: Bytes,
        /// What to do.
        action: Action,
    },
    /// A script. One that is stopped changes nothing, and the others are executed.
    Script(Box<ScriptCall>),
}

impl OperationStep {
    /// The keys that it names.
    pub fn keys(&self) -> impl Iterator<Item = (MapId, &Bytes)> + Clone {
        let (map, one, many): (_, _, &[Bytes]) = match self {
            Self::Key { map, key, action } => (*map, Some((key, action)), &[]),
            Self::Script(call) => (call.map, None, &call.keys),
        };
        let one = one.into_iter();
        one.flat_map(move |(key, action)| action.keys((map, key)))
            .chain(many.iter().map(move |key| (map, key)))
    }
}

/// What an operation does to its key. Each is atomic.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// The value. → `Bulk` or `Nil`
    Get,
    /// Length of the value. → `Int`
    Strlen,
    /// Whether the key exists. → `Int` 0 or 1
    Exists,
    /// Milliseconds to live: -2 absent, -1 without expiry. → `Int`
    PTtl,
    /// Unix milliseconds of the deadline: -2 absent, -1 without expiry. → `Int`
    PExpireTime,
    /// Write. → `Ok`, or `Nil` if the condition fails; with `get`, the old value
    Set {
        /// The value.
        value: Bytes,
        /// The condition for the write.
        condition: Condition,
        /// The deadline to give.
        expiry: Expiry,
        /// Answer with the old value.
        get: bool,
    },
    /// Write if the present value is `expected` (`None`: if the key is absent). → `Int` 1 or 0
    CompareAndSwap {
        /// The value that must be there.
        expected: Option<Bytes>,
        /// The value to write.
        value: Bytes,
    },
    /// Read, and change the deadline. → `Bulk` or `Nil`
    GetEx {
        /// The deadline to give; `Keep` leaves it.
        expiry: Expiry,
    },
    /// Read and delete. → `Bulk` or `Nil`
    GetDel,
    /// Append. → `Int`, the new length
    Append {
        /// What to append.
        value: Bytes,
    },
    /// Add to a 64-bit integer. → `Int`
    IncrBy(i64),
    /// Add to a decimal number. → `Bulk`
    IncrByFloat(Extended),
    /// Delete. → `Int` 0 or 1
    Delete,
    /// Change the deadline. → `Int` 0 or 1
    Expire {
        /// The deadline to give (`Keep` is not allowed).
        expiry: Expiry,
        /// The condition for the change.
        condition: ExpireCondition,
    },
    /// Remove the deadline. → `Int` 0 or 1
    Persist,
    /// Mark the key as used, without reading it. → `Int` 0 or 1
    Touch,
    /// As `Get`, without marking the key as used. → `Bulk` or `Nil`
    Peek,
    /// As `Strlen`, without marking the key as used. → `Int`
    PeekLength,
    /// How Redis would store the value: the number of an encoding. → `Int` or `Nil`
    Encoding,
    /// Bytes of memory that the entry takes at its primary. → `Int` or `Nil`
    Footprint,
    /// What a procedure does.
    Call(ProcedureCall),
    /// Which write made the value or gave it its deadline. Any later one has another number. →
    /// `Int`, or `Nil` if the key is absent
    Version,
}

impl Action {
    /// A call of a procedure with these inputs. Their numbers are checked when it is made.
    pub(crate) fn call(
        called: impl Into<Called>,
        numbers: &[i64],
        bytes: impl Into<InputBytes>,
    ) -> Self {
        let call = ProcedureCall::new(called, numbers, bytes);
        call.map_or(Self::Exists, Self::Call)
    }

    /// Whether it is about several keys of a partition.
    #[inline]
    pub(crate) const fn is_joint(&self) -> bool {
        matches!(self, Self::Call(call) if call.is_joint())
    }

    /// What messages to subscribers say of it.
    pub(crate) const fn by(&self) -> By {
        match self {
            Self::Set {
                expiry: Expiry::In(_) | Expiry::At(_),
                ..
            } => By::SET_FOR,
            Self::Set { .. } | Self::CompareAndSwap { .. } => By::SET,
            Self::Append { .. } => By::APPEND,
            Self::IncrBy(_) => By::INCREASE,
            Self::IncrByFloat(_) => By::INCREASE_FLOAT,
            Self::GetEx {
                expiry: Expiry::None,
            }
            | Self::Persist => By::PERSIST,
            Self::GetEx { .. } | Self::Expire { .. } => By::EXPIRE,
            Self::Call(call) => call.by(),
            Self::GetDel | Self::Delete => By::UNKNOWN,
            Self::Get
            | Self::Strlen
            | Self::Exists
            | Self::PTtl
            | Self::PExpireTime
            | Self::Touch
            | Self::Peek
            | Self::PeekLength
            | Self::Encoding
            | Self::Footprint
            | Self::Version => By::UNKNOWN,
        }
    }

    /// All of its keys. This is the first.
    pub(crate) fn keys<'a>(
        &'a self,
        first: (MapId, &'a Bytes),
    ) -> impl Iterator<Item = (MapId, &'a Bytes)> + Clone {
        std::iter::once(first).chain(self.others(first.0))
    }

    /// Its keys besides the first, which is in this map.
    pub fn others(&self, map: MapId) -> impl Iterator<Item = (MapId, &Bytes)> + Clone {
        let call = match self {
            Self::Call(call) => Some(call),
            _ => None,
        };
        call.into_iter().flat_map(move |call| call.others(map))
    }

    /// A write without conditions, and without a deadline of its own.
    #[must_use]
    pub const fn set(value: Bytes) -> Self {
        Self::Set {
            value,
            condition: Condition::Always,
            expiry: Expiry::None,
            get: false,
        }
    }

    /// The value, if this is a write without conditions (see [`Self::set`]).
    #[must_use]
    pub const fn as_set(&self) -> Option<&Bytes> {
        match self {
            Self::Set {
                value,
                condition: Condition::Always,
                expiry: Expiry::None,
                get: false,
            } => Some(value),
            _ => None,
        }
    }

    /// The same for a client whose reads do not count as uses (`CLIENT NO-TOUCH`).
    #[must_use]
    pub fn untouching(self) -> Self {
        match self {
            Self::Get => Self::Peek,
            Self::Strlen => Self::PeekLength,
            other => other,
        }
    }

    /// The same for a caller that reads a large collection in pages. → `Keys`, if it is one: a run
    /// of bytes as a small one is answered, and in `next` a number if more pages follow. They are
    /// about the moment of the first one.
    #[must_use]
    pub fn in_pages(mut self) -> Self {
        if let Self::Call(call) = &mut self {
            call.answer_in_pages();
        }
        self
    }

    /// Whether it reads all of a collection, which may be answered in pages.
    #[must_use]
    pub fn reads_all(&self) -> bool {
        matches!(self, Self::Call(call) if call.reads_all())
    }

    /// Whether its caller reads a large collection in pages.
    #[inline]
    pub(crate) fn may_answer_in_pages(&self) -> bool {
        matches!(self, Self::Call(call) if call.may_answer_in_pages())
    }

    /// The same with values of its own, which hold no larger buffer.
    #[must_use]
    pub fn detached(mut self) -> Self {
        match &mut self {
            Self::Set { value, .. } | Self::Append { value } => {
                *value = Bytes::copy_from_slice(value);
            }
            Self::CompareAndSwap { expected, value } => {
                *value = Bytes::copy_from_slice(value);
                *expected = expected.as_deref().map(Bytes::copy_from_slice);
            }
            Self::Call(call) => {
                for bytes in &mut call.inputs.bytes {
                    *bytes = Bytes::copy_from_slice(bytes);
                }
            }
            _ => {}
        }
        self
    }

    /// Whether it may change its key.
    #[must_use]
    #[inline]
    pub fn is_write(&self) -> bool {
        self.footprint().writes
    }

    /// From this level of the table on, it may be asked for.
    #[inline]
    pub(crate) const fn level(&self) -> u16 {
        match self {
            Self::Call(call) => call.level(),
            _ => 0,
        }
    }

    /// What its key must hold, if it exists. `None`: anything.
    #[inline]
    pub(crate) const fn kind(&self) -> Option<Kind> {
        match self {
            Self::Get
            | Self::Peek
            | Self::Strlen
            | Self::PeekLength
            | Self::Set { get: true, .. }
            | Self::CompareAndSwap { .. }
            | Self::GetEx { .. }
            | Self::GetDel
            | Self::Append { .. }
            | Self::IncrBy(_)
            | Self::IncrByFloat(_) => Some(Kind::String),
            Self::Call(call) => call.kind(),
            Self::Set { get: false, .. }
            | Self::Exists
            | Self::PTtl
            | Self::PExpireTime
            | Self::Delete
            | Self::Expire { .. }
            | Self::Persist
            | Self::Touch
            | Self::Encoding
            | Self::Footprint
            | Self::Version => None,
        }
    }

    /// What it may do and cost, before it is executed.
    #[must_use]
    #[inline]
    pub fn footprint(&self) -> Footprint {
        match self {
            Self::Call(call) => call.footprint(),
            Self::Get => VALUES,
            Self::Peek => Footprint {
                uses: false,
                ..VALUES
            },
            Self::Strlen | Self::Touch => READS,
            Self::Exists
            | Self::PTtl
            | Self::PExpireTime
            | Self::PeekLength
            | Self::Encoding
            | Self::Version
            | Self::Footprint => Footprint {
                uses: false,
                ..READS
            },
            Self::Set { value, get, .. } => Footprint {
                answers_value: *get,
                looks_up: *get,
                ..stores(value)
            },
            Self::CompareAndSwap { expected, value } => Footprint {
                given: ValueSizes::all(expected.iter().chain([value])),
                ..stores(value)
            },
            Self::Append { value } => stores(value),
            Self::GetEx { .. } | Self::GetDel => Footprint {
                answers_value: true,
                looks_up: true,
                ..WRITES
            },
            Self::IncrBy(_) | Self::IncrByFloat(_) => Footprint {
                stores: NUMBER_BYTES,
                ..WRITES
            },
            Self::Delete | Self::Expire { .. } | Self::Persist => WRITES,
        }
    }
}

/// What a write of this value does.
pub(crate) fn stores(value: &[u8]) -> Footprint {
    Footprint {
        given: ValueSizes::one(value),
        stores: value.len(),
        ..WRITES
    }
}

/// About how many bytes a number takes. Only numbers with a fraction or a large exponent take more.
const NUMBER_BYTES: usize = 32;

/// What an action may do and cost, before it is executed. Most are one of the usual ones (`READS`,
/// `VALUES` and `WRITES` in `procedure`), or differ from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// Whether it may change its key.
    pub writes: bool,
    /// Whether its outcome may be as large as a stored value.
    pub answers_value: bool,
    /// Whether it uses the key that it finds, which keeps the key from eviction. Actions that only
    /// ask whether and for how long a key exists do not.
    pub uses: bool,
    /// Whether it counts as a hit or a miss, as in Redis: reads, and writes that answer with what
    /// they found.
    pub looks_up: bool,
    /// The values that its caller gives.
    pub given: ValueSizes,
    /// About how many bytes it stores besides its key. Reports of load count them.
    pub stores: usize,
}

/// The sizes of the values that the caller of an action gives, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueSizes {
    /// Of all of them together.
    pub bytes: usize,
    /// Of the largest.
    pub largest: usize,
}

impl ValueSizes {
    /// No value is given.
    pub const NOTHING: Self = Self {
        bytes: 0,
        largest: 0,
    };

    pub(crate) fn one(value: &[u8]) -> Self {
        Self {
            bytes: value.len(),
            largest: value.len(),
        }
    }

    /// All of these.
    pub(crate) fn all<'a>(values: impl IntoIterator<Item = &'a Bytes>) -> Self {
        let values = values.into_iter().map(|value| Self::one(value));
        values.fold(Self::NOTHING, Self::and)
    }

    /// These and others.
    fn and(self, others: Self) -> Self {
        Self {
            bytes: self.bytes + others.bytes,
            largest: self.largest.max(others.largest),
        }
    }
}

/// When a `Set` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    Always,
    /// If the key is absent (NX).
    IfAbsent,
    /// If the key is there (XX).
    IfPresent,
}

/// When an `Expire` changes the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpireCondition {
    /// Always.
    Always,
    /// If there is none (NX).
    IfNone,
    /// If there is one (XX).
    IfSome,
    /// If the new one is later (GT). A key without a deadline counts as the latest.
    IfLater,
    /// If the new one is earlier (LT).
    IfEarlier,
    /// If there is one, and the new one is earlier (XX and LT).
    IfSomeEarlier,
}

/// A deadline as a caller gives it. The primary converts wall time, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Leave the deadline as it is.
    Keep,
    /// No deadline (for `Set`: the keyspace's default, if it has one).
    None,
    /// Milliseconds from now. A number below 1 has passed already.
    In(i64),
    /// Unix milliseconds. The time may have passed already.
    At(i64),
}

impl Expiry {
    /// The same as inputs of a procedure.
    pub(crate) const fn numbers(self) -> [i64; 2] {
        match self {
            Self::None => [0, 0],
            Self::Keep => [1, 0],
            Self::In(ms) => [2, ms],
            Self::At(ms) => [3, ms],
        }
    }

    /// The one that has these numbers. Others are none.
    pub(crate) const fn of_numbers([unit, ms]: [i64; 2]) -> Self {
        match unit {
            1 => Self::Keep,
            2 => Self::In(ms),
            3 => Self::At(ms),
            _ => Self::None,
        }
    }
}

/// An operation on a whole partition.
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionOperation {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The partition.
    pub partition: PartitionId,
    /// The map.
    pub map: MapId,
    /// What to do.
    pub action: PartitionAction,
}

/// What is done to a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartitionAction {
    /// How many keys the map has here. → `Int`
    Count,
    /// About `count` keys from `cursor` on (0 to begin). → `Keys`
    Scan {
        /// The place to go on from.
        cursor: u64,
        /// About how many.
        count: u32,
        /// What they hold; `None`: anything.
        kind: Option<Kind>,
    },
    /// Delete every key of the map. → `Ok`
    Clear,
    /// How much each map has here, whichever map is named. → `Keys`, one [`MapSize`] each
    ///
    /// [`MapSize`]: super::sizes::MapSize
    Sizes,
    /// Keys in the order of their bytes; none if the keyspace is not ordered. → `Keys`, with `next`
    /// 1 if more may follow. If values are wanted, each key is followed by its value.
    Range(RangeQuery),
    /// The keys with strings from a cursor on that match a query. → `Keys`. If values are wanted,
    /// each key is followed by its value.
    Find(FindQuery),
    /// The next page of a collection that is read in pages. → `Keys`, as the first one, which
    /// [`Action::in_pages`] reads. `Nil`: that is not possible any more; begin again.
    Fields {
        /// The number that the page before had in `next`.
        walk: u64,
        /// How many pages of it were read.
        page: u32,
    },
}

impl PartitionAction {
    /// Bytes that its caller gives.
    fn bytes(&self) -> usize {
        match self {
            Self::Range(query) => query.from.len() + query.to.len(),
            Self::Find(query) => query.prefix.len() + query.holding.as_ref().map_or(0, Bytes::len),
            Self::Count | Self::Scan { .. } | Self::Clear | Self::Sizes | Self::Fields { .. } => 0,
        }
    }
}

/// A query for keys with strings, in no order.
///
/// A whole query begins with cursor 0, goes on with the `next` of each answer, and is over when
/// that is 0. A key that exists all the time is found at least once, whatever is written, moved or
/// elected meanwhile, with a value that it has when its page is read. If the partition is split or
/// merged, the answer is [`Failure::Stale`]: ask the new partitions from their beginning.
///
/// A page may be empty though more follow: its work is bounded, whether keys match or not. In a
/// keyspace that keeps the order of keys, a prefix that few keys have costs only these. For one
/// that many have, ask for a [range](RangeQuery) there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindQuery {
    /// The place to go on from: 0 to begin, or the `next` of the answer before.
    pub cursor: u64,
    /// About how many keys of the map are looked at for a page, 1 to 10,000. A page also ends at
    /// about half a megabyte of keys, values and tags that are looked at.
    pub count: u32,
    /// Only keys that begin with these bytes.
    pub prefix: Bytes,
    /// Whether to return values, too.
    pub values: bool,
    /// Only keys whose values have this tag, or are still being loaded
    /// ([`tags`](crate::value::tags)).
    pub holding: Option<Bytes>,
}

/// A query for a range of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeQuery {
    /// The first key of the range.
    pub from: Bytes,
    /// The first key after the range; if it is empty, the range has no end.
    pub to: Bytes,
    /// The most keys to return.
    pub count: u32,
    /// Whether to go from the end to the beginning.
    pub reverse: bool,
    /// Whether to return values, too. Then only keys that hold strings are returned.
    pub values: bool,
}
