//! Committed changes, as subscribers get them.
//!
//! ```text
//!   subscriber                                   primary of each partition
//!     Subscribe: this filter, I had up to .. ──>   a reader of its log (`readers`)
//!     <── Subscribed: changes follow from here, and what is missing
//!     <── Changes, in the order of the log, up to a window
//!     Taken: bytes that were taken ───────────>    the window moves on
//!     Confirm ─────────────────────────────────>   is all told that is committed?
//!     <── Confirmed: of these partitions, behind the last of their changes
//!   Reads ──────────────────> all members: keep some of the logs of these keyspaces
//! ```
//! A change is sent once it is committed, so it is never taken back. A subscriber knows its place
//! in the log of each partition. If another member leads, the subscriber names that place, and the
//! new primary goes on there (`subscriptions`). If the log does not reach back so far, the
//! subscriber hears that changes are missing. So a subscriber sees every change of a key in order,
//! or hears that it did not.
//!
//! What a key had before is in the log: its primary notes with each value whether there was one
//! ([`Before`]). The value itself is what undoing the entry would bring back. Members keep it after
//! the commit only while a subscriber of the keyspace asks for old values.
//!
//! All places of a subscriber are its bookmark (`bookmark`), after which another one may go on.
//!
//! A subscriber that keeps copies of values asks for confirmations. A primary answers one as it
//! answers a read: with a lease that it had afterwards. So the subscriber knows that its copies
//! were right at the moment when it asked.
//!
//! Copies drop log entries soon after they are committed. While a subscriber reads a keyspace, its
//! members keep a part of its logs ([`Context::reads`](crate::shard::context::Context::reads)).

use crate::store::{Before, Effect, Undo};
pub use crate::value::cause::{By, Cause};
use crate::value::entry::Entry;
use crate::value::kind::Kind;
use crate::value::outcome::Value;
use bytes::Bytes;
use doyen_gossip::Time;
use doyen_placement::{KeyspaceId, Lineage, MapId, PartitionId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How many former partitions a subscriber names that goes on in their heir.
pub(crate) const FORMERS_MAX: usize = 64;
/// What a change takes besides its bytes.
const OVERHEAD: usize = 64;

/// Which changes a subscriber gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The maps of it.
    pub maps: Maps,
    /// The keys.
    pub keys: KeyFilter,
    /// Whether changes have the new values, too.
    pub values: bool,
    /// Whether each field of a collection has its change. If not, a log entry has one change for
    /// each key.
    pub fields: bool,
    /// Whether changes have the strings that were replaced or removed.
    pub old: bool,
}

/// Which maps a subscriber follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Maps {
    /// All maps.
    All,
    /// This map.
    One(MapId),
    /// The numbered databases of Redis clients.
    Databases,
}

impl Maps {
    fn holds(self, map: MapId) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => one == map,
            Self::Databases => map.is_database(),
        }
    }
}

/// Which keys a subscriber follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyFilter {
    /// All keys.
    All,
    /// Keys that begin with these bytes.
    Prefix(Bytes),
    /// This key.
    One(Bytes),
}

impl KeyFilter {
    fn holds(&self, key: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Prefix(prefix) => key.starts_with(prefix),
            Self::One(one) => key == &**one,
        }
    }

    /// The bytes that it names.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::All => &[],
            Self::Prefix(bytes) | Self::One(bytes) => bytes,
        }
    }
}

/// Its layout in frames.
#[derive(Serialize, Deserialize)]
struct SentKeys {
    kind: u8,
    bytes: Vec<u8>,
}

impl Serialize for KeyFilter {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let kind = match self {
            Self::All => 0,
            Self::Prefix(_) => 1,
            Self::One(_) => 2,
        };
        let bytes = self.bytes().to_vec();
        SentKeys { kind, bytes }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for KeyFilter {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let SentKeys { kind, bytes } = SentKeys::deserialize(deserializer)?;
        match (kind, bytes) {
            (0, bytes) if bytes.is_empty() => Ok(Self::All),
            (1, bytes) => Ok(Self::Prefix(bytes.into())),
            (2, bytes) => Ok(Self::One(bytes.into())),
            _ => Err(serde::de::Error::custom("unknown keys")),
        }
    }
}

/// One committed change.
///
/// ```
/// # use doyen_engine as doyen;
/// use doyen::{Cause, Change, Former, What};
///
/// /// A line of an audit.
/// fn line(change: &Change) -> String {
///     let key = change.key.escape_ascii();
///     let command = change.by.and_then(|by| by.event()).unwrap_or("change");
///     let what = match &change.what {
///         What::Put(..) if change.before == Former::Nothing => "new".to_owned(),
///         What::Put(kind, _) => format!("another {}", kind.name()),
///         What::Removed(Cause::Command) => "deleted".to_owned(),
///         What::Removed(cause) => format!("gone: {cause:?}"),
///         other => format!("{other:?}"),
///     };
///     format!("{} {key} {command}: {what}", change.position.seq)
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its place in the log of its partition. All changes of a log entry have the same.
    pub position: Position,
    /// The map.
    pub map: MapId,
    /// The key. It is empty if the whole map was cleared.
    pub key: Bytes,
    /// What happened to it.
    pub what: What,
    /// What it had before. If the whole map was cleared, this says nothing.
    pub before: Former,
    /// What did it. `None`: only the change itself is known, because another primary executed it,
    /// or it was one of several in a transaction or a script.
    pub by: Option<By>,
    /// The number of the operation that made it, if the thread of the subscriber submitted that.
    pub(crate) own: Option<u64>,
}

/// What a key had before a change.
///
/// Example: [`Change`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Former {
    /// No value: the change made the key.
    Nothing,
    /// A value. It is there if it was a string, old values are asked for, and the primary knows it.
    /// A primary does not know it if it began to keep old values, or to hold the partition, later.
    /// The old values of one log entry have together no more bytes than the largest value.
    Value(Option<Bytes>),
}

/// What happened to a key.
///
/// Example: [`Change`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// It holds a value of this kind. That of a string is there if values are asked for.
    Put(Kind, Option<Bytes>),
    /// A field of its collection of this kind has a value.
    Field(Kind, Bytes, Option<Bytes>),
    /// A field of its collection of this kind is gone.
    FieldRemoved(Kind, Bytes),
    /// It expires at another time, or does not expire any more.
    Deadline,
    /// It is gone.
    Removed(Cause),
    /// All keys of the map are gone.
    Cleared,
}

impl Change {
    /// The number of the operation that made it, as
    /// [`Shard::next_number`](crate::Shard::next_number) counts. `None`: another thread submitted
    /// it, or that is not known.
    #[doc(hidden)]
    #[must_use]
    pub const fn own_operation(&self) -> Option<u64> {
        self.own
    }

    /// Bytes that it takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let what = match &self.what {
            What::Put(_, value) => value.as_ref().map_or(0, Bytes::len),
            What::Field(_, field, value) => field.len() + value.as_ref().map_or(0, Bytes::len),
            What::FieldRemoved(_, field) => field.len(),
            What::Deadline | What::Removed(_) | What::Cleared => 0,
        };
        let before = match &self.before {
            Former::Value(Some(old)) => old.len(),
            Former::Value(None) | Former::Nothing => 0,
        };
        self.key.len() + what + before + OVERHEAD
    }
}

/// Changes that a subscriber is not told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// How many log entries at most, of any keys. `None`: the number is not known.
    pub entries: Option<u64>,
    /// What it had before of these partitions.
    pub(crate) had: BTreeMap<PartitionId, Vec<Position>>,
}

impl Gap {
    /// A gap before which it had this of a partition.
    pub(crate) fn of(missing: Missing, partition: PartitionId, had: Vec<Position>) -> Self {
        Self {
            entries: missing.0,
            had: BTreeMap::from([(partition, had)]),
        }
    }

    /// Another gap follows it.
    fn join(&mut self, next: Self) {
        let sum = self.entries.zip(next.entries);
        self.entries = sum.map(|(one, other)| one.saturating_add(other));
        for (partition, had) in next.had {
            self.had.entry(partition).or_insert(had);
        }
    }
}

/// What a subscriber gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// All changes from now on come. It comes once.
    Ready,
    /// A change.
    Change(Change),
    /// Changes of some keys are missing.
    Lagged(Gap),
    /// All changes of these partitions that were committed at this moment were told before
    /// ([`Subscriber::confirm`](crate::Subscriber::confirm)).
    Confirmed {
        /// The moment, by the clock of the subscriber.
        at: Time,
        /// The partitions.
        partitions: Vec<PartitionId>,
    },
    /// The keyspace is gone. Nothing follows.
    Ended,
}

impl Told {
    /// Joins a gap that follows a gap. Otherwise returns what follows.
    pub fn join(&mut self, next: Self) -> Option<Self> {
        match (self, next) {
            (Self::Lagged(gap), Self::Lagged(next)) => {
                gap.join(next);
                None
            }
            (_, next) => Some(next),
        }
    }

    /// Bytes that it takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Change(change) => change.bytes(),
            Self::Confirmed { partitions, .. } => {
                OVERHEAD + partitions.len() * size_of::<PartitionId>()
            }
            Self::Lagged(gap) => {
                let places = gap.had.values().map(Vec::len).sum::<usize>();
                OVERHEAD + (gap.had.len() + places) * size_of::<Position>()
            }
            Self::Ready | Self::Ended => OVERHEAD,
        }
    }
}

/// A place in the log of a partition.
///
/// Example: [`Change`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The partition.
    pub partition: PartitionId,
    /// Its lineage: another one begins with another log.
    pub lineage: Lineage,
    /// The number of the log entry.
    pub seq: u64,
}

/// How many log entries are missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Missing(Option<u64>);

impl Missing {
    /// Nothing is missing.
    pub(crate) const NOTHING: Self = Self(Some(0));
    /// It is not known how many are missing.
    pub(crate) const UNKNOWN: Self = Self(None);

    pub(crate) const fn entries(count: u64) -> Self {
        Self(Some(count))
    }
}

/// Adds the changes of a log entry that a filter lets through: of its effect, which replaced this.
/// Old values have no more bytes than `room`.
pub(crate) fn changes(
    (effect, undo, by): (&Effect, &Undo, By),
    position: Position,
    (filter, mut room): (&Filter, usize),
    found: &mut Vec<Change>,
) {
    let (by, first) = (Some(by).filter(|by| *by != By::UNKNOWN), found.len());
    // The key whose table is unfinished. Its change comes with its last part.
    let mut unseen = None;
    for (n, part) in effect.parts().iter().enumerate() {
        let begun = matches!(part, Effect::Put { entry, .. } if entry.is_unfinished());
        unseen = unseen.filter(|place| part.place() == Some(*place));
        if begun || unseen.is_some() {
            unseen = part.place();
            continue;
        }
        let Some((map, key, what)) = change(part, filter) else {
            continue;
        };
        let undo = match undo {
            Undo::Many(undos) => undos.get(n).unwrap_or(&Undo::Nothing),
            one => one,
        };
        let of_field = matches!(what, What::Field(..) | What::FieldRemoved(..));
        let is_cut = matches!(part, Effect::RowsCut { .. });
        let is_row = of_field || is_cut || part.field().is_some();
        let again = is_row
            && found[first..]
                .last()
                .is_some_and(|last| (last.map, &last.key) == (map, &key));
        // A row that is no field says no more than another one: the value is another.
        if again && !(of_field && filter.fields) {
            continue;
        }
        let by = match effect.parts().first().and_then(Effect::place) {
            Some((of, first)) if (of, first) != (map, &key) => by.map(By::of_other_key),
            _ => by,
        };
        let told = |what, before| Change {
            position,
            map,
            key: key.clone(),
            what,
            before,
            by,
            own: None,
        };
        let mut old = || {
            let old = undo.string().filter(|_| filter.old)?;
            room = room.checked_sub(old.value().len())?;
            Some(Bytes::from_owner(Value::of(old)))
        };
        let before = match part {
            Effect::Put { before, .. } => *before,
            _ => Before::Value,
        };
        let before = match before {
            Before::Value => Former::Value(old()),
            Before::Nothing => Former::Nothing,
            Before::Overdue => {
                let expired = Change {
                    by: None,
                    ..told(What::Removed(Cause::Expired), Former::Value(old()))
                };
                found.push(expired);
                Former::Nothing
            }
        };
        found.push(told(what, before));
    }
}

/// What an effect does to a key, if a filter lets it through.
fn change(effect: &Effect, filter: &Filter) -> Option<(MapId, Bytes, What)> {
    if let Effect::Clear { map } = effect {
        let holds = filter.maps.holds(*map);
        return holds.then(|| (*map, Bytes::new(), What::Cleared));
    }
    let (map, key) = effect.place()?;
    if !filter.maps.holds(map) || !filter.keys.holds(key) {
        return None;
    }
    let value = |of: &Entry| filter.values.then(|| Bytes::from_owner(Value::of(of)));
    let copy = Bytes::copy_from_slice;
    let what = match effect {
        Effect::Put { entry, .. } => match entry.kind() {
            Kind::String => What::Put(Kind::String, value(entry)),
            kind => What::Put(kind, None),
        },
        Effect::Row { kind, .. } | Effect::RowDelete { kind, .. }
            if kind.collection().is_none() =>
        {
            What::Put(*kind, None)
        }
        Effect::Row { kind, row, .. } | Effect::Field { kind, row, .. } => {
            What::Field(*kind, copy(row.key()), value(row))
        }
        Effect::RowDelete { kind, field, .. } => What::FieldRemoved(*kind, copy(field)),
        // Which fields it had is not told: there may be millions.
        Effect::RowsCut { kind, .. } => What::Put(*kind, None),
        Effect::RowsFreed { .. } => return None,
        Effect::Deadline { .. } => What::Deadline,
        Effect::Delete { cause, .. } => What::Removed(*cause),
        Effect::Clear { .. } | Effect::Many(_) => return None,
    };
    Some((map, copy(key), what))
}
