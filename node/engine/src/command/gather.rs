//! Commands on several sets, sorted sets or strings whose keys are in several partitions. The
//! caller reads each key where it is, one after the other, combines what it has read, and stores
//! the result.
//!
//! ```text
//!   read a key ──> the next one ──> .. ──> combine ──> answer
//!       │   ▲                                 └──────> store, as one operation
//!       └───┘ a large table comes in parts, again from its beginning if it changes
//! ```
//! What is read is combined by the same functions as in one partition (`super::combine`). What is
//! stored replaces the destination as a whole.

use super::collections::store_fields;
use super::combine::{Combination, CombineInput, ScoreCombiner, count_of_sets, members_of_sets};
use super::together::{StringsTogether, stores_gathered};
use super::transfer::ContentRead;
use super::{bit_operations, geo, hyperloglogs, lcs, sets, sort, sorted_joints};
use crate::command::operation::Action;
use crate::command::procedure::{Called, Inputs, JOINT, Joint, ProcedureCall, count};
use crate::command::sorted_sets::RANGE;
use crate::store::collection;
use crate::store::run_context::RunContext;
use crate::value::items::put;
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome, Value};
use crate::value::types::sorted_set::{parse_score, stored_score};
use bytes::Bytes;
use doyen_placement::MapId;
use doyen_placement::level::GATHERED;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) static JOINTS: &[&Joint] = &[
    &SET_UNION,
    &SET_INTERSECTION,
    &SET_DIFFERENCE,
    &SORTED_UNION,
    &SORTED_INTERSECTION,
    &SORTED_DIFFERENCE,
    &SORTED_RANGE,
    &GEO_SEARCH,
    &GEO_RADIUS,
];

/// The first of these numbers.
const NUMBER: u16 = 270;

/// Gives the key a set of these members, which were gathered; deletes it if there are none. →
/// `Int`, how many members
static SET_UNION: Joint = Joint {
    number: NUMBER,
    name: "set store gathered union",
    event: "sunionstore",
    ..STORE_SET
};

static SET_INTERSECTION: Joint = Joint {
    number: NUMBER + 1,
    name: "set store gathered intersection",
    event: "sinterstore",
    ..STORE_SET
};

static SET_DIFFERENCE: Joint = Joint {
    number: NUMBER + 2,
    name: "set store gathered difference",
    event: "sdiffstore",
    ..STORE_SET
};

/// The same with a sorted set of these members and their stored scores.
static SORTED_UNION: Joint = Joint {
    number: NUMBER + 3,
    name: "zset store gathered union",
    event: "zunionstore",
    ..STORE_SORTED
};

static SORTED_INTERSECTION: Joint = Joint {
    number: NUMBER + 4,
    name: "zset store gathered intersection",
    event: "zinterstore",
    ..STORE_SORTED
};

static SORTED_DIFFERENCE: Joint = Joint {
    number: NUMBER + 5,
    name: "zset store gathered difference",
    event: "zdiffstore",
    ..STORE_SORTED
};

static SORTED_RANGE: Joint = Joint {
    number: NUMBER + 6,
    name: "zset store gathered range",
    event: "zrangestore",
    ..STORE_SORTED
};

static GEO_SEARCH: Joint = Joint {
    number: NUMBER + 7,
    name: "geo store gathered search",
    event: "geosearchstore",
    ..STORE_SORTED
};

static GEO_RADIUS: Joint = Joint {
    number: NUMBER + 8,
    name: "geo store gathered radius",
    event: "georadiusstore",
    ..STORE_SORTED
};

const STORE_SET: Joint = Joint {
    kind: Some(Kind::Set),
    level: GATHERED,
    others: |runs| (runs == 1).then_some((0..0, 1)),
    footprint: stores_gathered,
    run: |inputs, key, rows| store_fields(key, (Kind::Set, &inputs.bytes[0]), rows),
    ..JOINT
};

const STORE_SORTED: Joint = Joint {
    kind: Some(Kind::SortedSet),
    run: |inputs, key, rows| store_fields(key, (Kind::SortedSet, &inputs.bytes[0]), rows),
    ..STORE_SET
};

/// What commands do with strings of several keys.
static OF_STRINGS: &[&StringsTogether] = &[
    &bit_operations::BITS,
    &hyperloglogs::COUNT,
    &hyperloglogs::MERGE,
    &lcs::COMMON,
];

/// What becomes of the keys that are read.
#[derive(Debug, Clone, Copy)]
enum GatherPurpose {
    /// The members of sets are answered.
    Members(Combination),
    /// The members that sets have in common are counted.
    Common,
    /// The members of sets are stored.
    Store(Combination, &'static Joint),
    /// The same with sorted sets. Their joints say more in their inputs.
    Scored,
    CommonScored,
    StoreScored(&'static Joint),
    /// What comes of strings is answered or stored.
    Strings(&'static StringsTogether),
    /// What this finds in one key is stored.
    StoreFound(Called, &'static Joint),
}

impl GatherPurpose {
    /// That of a joint on keys of one partition, with these inputs.
    fn of(joint: u16, inputs: &Inputs) -> Option<Self> {
        use Combination::{Difference, Intersection, Union};
        Some(match joint {
            n if n == sets::COMBINE.number => {
                Self::Members(Combination::of_number(*inputs.numbers.first()?))
            }
            n if n == sets::COUNT_COMMON.number => Self::Common,
            n if n == sets::STORE_UNION.number => Self::Store(Union, &SET_UNION),
            n if n == sets::STORE_INTERSECTION.number => {
                Self::Store(Intersection, &SET_INTERSECTION)
            }
            n if n == sets::STORE_DIFFERENCE.number => Self::Store(Difference, &SET_DIFFERENCE),
            n if n == sorted_joints::COMBINE.number => Self::Scored,
            n if n == sorted_joints::COUNT_COMMON.number => Self::CommonScored,
            n if n == sorted_joints::STORE_UNION.number => Self::StoreScored(&SORTED_UNION),
            n if n == sorted_joints::STORE_INTERSECTION.number => {
                Self::StoreScored(&SORTED_INTERSECTION)
            }
            n if n == sorted_joints::STORE_DIFFERENCE.number => {
                Self::StoreScored(&SORTED_DIFFERENCE)
            }
            n if n == sorted_joints::STORE_RANGE.number => {
                Self::StoreFound(Called::One(&RANGE), &SORTED_RANGE)
            }
            n if n == geo::STORE_SEARCH.number => {
                Self::StoreFound(Called::One(&geo::SEARCH), &GEO_SEARCH)
            }
            n if n == geo::STORE_RADIUS.number => {
                Self::StoreFound(Called::One(&geo::SEARCH), &GEO_RADIUS)
            }
            n if n == sort::STORE_SORTED.number => {
                Self::StoreFound(Called::Several(&sort::SORT), &sort::STORE)
            }
            number => {
                let mut all = OF_STRINGS.iter();
                Self::Strings(all.find(|it| it.joint.number == number).copied()?)
            }
        })
    }

    /// Whether the first key of the command is given the result.
    const fn stores(self) -> bool {
        match self {
            Self::Strings(together) => together.store.is_some(),
            Self::Store(..) | Self::StoreScored(_) | Self::StoreFound(..) => true,
            Self::Members(_) | Self::Common | Self::Scored | Self::CommonScored => false,
        }
    }

    /// Whether it is about sets only.
    const fn is_of_sets(self) -> bool {
        matches!(self, Self::Members(_) | Self::Common | Self::Store(..))
    }
}

/// A command whose keys are read one after the other.
#[derive(Debug)]
pub struct Gathering {
    purpose: GatherPurpose,
    /// The inputs of the joint that does the same in one partition.
    inputs: Inputs,
    /// The keys that are read, each once.
    keys: Vec<Bytes>,
    /// Which of them are combined, in order.
    uses: Vec<usize>,
    /// The key that is given the result.
    to: Option<Bytes>,
    /// What was read. Of the last one there may be more.
    read: Vec<ReadMembers>,
    /// The version of the last one and its last row, if there is more of it.
    more: Option<(i64, Bytes)>,
    /// Bytes of what was read.
    bytes: usize,
    /// What is answered, because a key does not hold what the command is about.
    refused: Option<Outcome>,
}

/// The members of a key.
#[derive(Debug)]
struct ReadMembers {
    kind: Kind,
    members: Vec<u8>,
    count: usize,
}

/// What came of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatherProgress {
    /// It was taken.
    Taken,
    /// The key has changed while it was read. It is read again from its beginning.
    Changed,
}

/// What comes of all that was read.
#[derive(Debug, Clone, PartialEq)]
pub enum GatherResult {
    /// This is the outcome of the command.
    Answer(Outcome),
    /// The outcome of this action on this key is.
    Store(Bytes, Action),
}

impl Gathering {
    /// What a call on this key does, if it combines collections.
    pub(super) fn of(call: &ProcedureCall, map: MapId, first: &Bytes) -> Option<Self> {
        let purpose = GatherPurpose::of(call.called.number(), &call.inputs)?;
        let own = |key: &Bytes| Bytes::copy_from_slice(key);
        let given = (!purpose.stores()).then_some(first);
        let given = given
            .into_iter()
            .chain(call.others(map).map(|(_, key)| key));
        let (mut keys, mut uses): (Vec<Bytes>, Vec<usize>) = (Vec::new(), Vec::new());
        let mut places = BTreeMap::new();
        for key in given {
            let place = *places.entry(key).or_insert_with(|| {
                keys.push(own(key));
                keys.len() - 1
            });
            uses.push(place);
        }
        if purpose.is_of_sets() {
            // A set that is given again adds nothing, except that the first one may be taken from
            // itself.
            let (mut seen, mut at) = (BTreeSet::new(), 0);
            uses.retain(|place| {
                at += 1;
                at == 1 || seen.insert(*place)
            });
        }
        // The keys are not needed twice.
        let kept = match purpose {
            GatherPurpose::StoreFound(..) => 2,
            GatherPurpose::Strings(_) => 0,
            _ if purpose.is_of_sets() => 0,
            _ => 1,
        };
        let bytes = call.inputs.bytes.iter().take(kept).map(own).collect();
        Some(Self {
            purpose,
            inputs: Inputs {
                numbers: call.inputs.numbers.clone(),
                bytes,
            },
            keys,
            uses,
            to: purpose.stores().then(|| own(first)),
            read: Vec::new(),
            more: None,
            bytes: 0,
            refused: None,
        })
    }

    /// The next key to read, and how. `None`: all were read.
    #[must_use]
    pub fn next(&self) -> Option<(Bytes, Action)> {
        let at = self.read.len() - usize::from(self.more.is_some());
        let key = self.keys.get(at)?.clone();
        let action = match self.purpose {
            GatherPurpose::StoreFound(find, _) => {
                let numbers: Vec<i64> = self.inputs.numbers.iter().copied().chain([1]).collect();
                Action::call(find, &numbers, self.inputs.bytes.to_vec())
            }
            GatherPurpose::Strings(_) => Action::Get,
            _ => {
                let after = self.more.as_ref().map(|(_, row)| row.clone());
                ContentRead::read(after, 0)
            }
        };
        Some((key, action))
    }

    /// Takes the outcome of what [`Self::next`] asked for.
    ///
    /// # Errors
    /// It failed, or the key holds something else.
    pub fn take(&mut self, outcome: &Outcome) -> Result<GatherProgress, Failure> {
        match (outcome, self.purpose) {
            (Outcome::Failed(Failure::WrongType), GatherPurpose::Strings(together)) => {
                self.refused = Some(together.refusal());
            }
            (Outcome::Failed(failure), _) => return Err(*failure),
            (Outcome::Bulk(_), GatherPurpose::StoreFound(..)) => {
                self.refused = Some(outcome.clone());
            }
            _ => {}
        }
        let whole = match self.purpose {
            GatherPurpose::StoreFound(_, joint) if joint.kind == Some(Kind::List) => {
                Some(ReadMembers::of_list(outcome))
            }
            GatherPurpose::StoreFound(..) => Some(ReadMembers::of_range(outcome)),
            GatherPurpose::Strings(_) => Some(ReadMembers::of_string(outcome)),
            _ => None,
        };
        if let Some(read) = whole {
            self.bytes += read.members.len();
            self.read.push(read);
            return Ok(GatherProgress::Taken);
        }
        let content = ContentRead::of(outcome);
        if let Some((version, _)) = self.more.take() {
            if content.as_ref().map(|content| content.version) != Some(version) {
                self.drop_last();
                return Ok(GatherProgress::Changed);
            }
        } else {
            // An absent key counts as an empty set.
            let kind = content.as_ref().map_or(Some(Kind::Set), ContentRead::kind);
            let sorted = kind == Some(Kind::SortedSet) && !self.purpose.is_of_sets();
            let kind = kind.filter(|kind| *kind == Kind::Set || sorted);
            self.read.push(ReadMembers {
                kind: kind.ok_or(Failure::WrongType)?,
                members: Vec::new(),
                count: 0,
            });
        }
        let Some(content) = content else {
            return Ok(GatherProgress::Taken);
        };
        if let Some(read) = self.read.last_mut() {
            let before = read.members.len();
            read.count += content.unpack(read.kind, &mut read.members);
            self.bytes += read.members.len() - before;
        }
        let last = content.last().filter(|_| content.more);
        self.more = last.map(|row| (content.version, row));
        Ok(GatherProgress::Taken)
    }

    /// Bytes of what was read.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the keys.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.keys.iter().chain(&self.to).map(Bytes::len).sum()
    }

    /// Whether there is more to read of the last key.
    #[must_use]
    pub const fn is_partway(&self) -> bool {
        self.more.is_some()
    }

    /// Reads the last key again from its beginning, if it was read in part.
    pub fn read_again(&mut self) {
        if self.more.take().is_some() {
            self.drop_last();
        }
    }

    fn drop_last(&mut self) {
        let read = self.read.pop();
        self.bytes -= read.map_or(0, |read| read.members.len());
    }

    /// Drops what was read: it is combined.
    pub fn clear(&mut self) {
        self.read = Vec::new();
        self.bytes = 0;
    }

    /// What all keys have together.
    ///
    /// # Errors
    /// It is too large, or too much work.
    pub(crate) fn combine(&self, cx: &RunContext<'_>) -> Result<GatherResult, Failure> {
        if let Some(refused) = &self.refused {
            return Ok(refused.clone().into());
        }
        let read = self.uses.iter().filter_map(|at| self.read.get(*at));
        let mut inputs = read
            .clone()
            .map(|it| CombineInput::read(it.kind, (&it.members, it.count), cx.budget));
        let numbers = &self.inputs.numbers;
        let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
        let result = match self.purpose {
            GatherPurpose::Members(how) => {
                let sets: Vec<CombineInput<'_>> = inputs.collect();
                let members = members_of_sets(how, &sets, collection::answer_max(cx))?;
                Outcome::Bulk(Value::from(&members[..])).into()
            }
            GatherPurpose::Common => {
                let sets: Vec<CombineInput<'_>> = inputs.collect();
                count(count_of_sets(&sets, number(0))).into()
            }
            GatherPurpose::Store(how, joint) => {
                let sets: Vec<CombineInput<'_>> = inputs.collect();
                self.store(joint, members_of_sets(how, &sets, cx.value_bytes_max)?)
            }
            GatherPurpose::Scored | GatherPurpose::CommonScored | GatherPurpose::StoreScored(_) => {
                let mut combiner = ScoreCombiner::of(&self.inputs);
                inputs.try_for_each(|input| combiner.add(input, cx))?;
                let members = combiner.finish();
                match self.purpose {
                    GatherPurpose::StoreScored(joint) => self.store(joint, members.stored()),
                    GatherPurpose::Scored => members.answer(number(2) == 1, cx).into(),
                    _ => count(members.count(number(2))).into(),
                }
            }
            GatherPurpose::Strings(together) => {
                let strings = read.map(|it| (it.count > 0).then_some(&it.members[..]));
                let strings: Vec<Option<&[u8]>> = strings.collect();
                match (
                    (together.combine)(&self.inputs, &strings, cx),
                    together.store,
                ) {
                    (Ok(Outcome::Bulk(result)), Some(joint)) => self.store(joint, result.to_vec()),
                    (Ok(outcome) | Err(outcome), _) => outcome.into(),
                }
            }
            GatherPurpose::StoreFound(_, joint) => {
                let members = self.read.first().map(|read| read.members.clone());
                self.store(joint, members.unwrap_or_default())
            }
        };
        // What it read is not all that there is.
        if cx.budget.is_spent() {
            return Err(Failure::TooMuchWork);
        }
        Ok(result)
    }

    fn store(&self, joint: &'static Joint, members: Vec<u8>) -> GatherResult {
        let key = self.to.clone().unwrap_or_default();
        GatherResult::Store(key, Action::call(joint, &[], [Bytes::from(members)]))
    }
}

impl From<Outcome> for GatherResult {
    fn from(outcome: Outcome) -> Self {
        Self::Answer(outcome)
    }
}

impl ReadMembers {
    /// A string, which counts as one member.
    fn of_string(outcome: &Outcome) -> Self {
        let (members, count) = match outcome {
            Outcome::Bulk(value) => (value.to_vec(), 1),
            _ => (Vec::new(), 0),
        };
        Self {
            kind: Kind::String,
            members,
            count,
        }
    }

    /// Elements, one after the other.
    fn of_list(outcome: &Outcome) -> Self {
        let items: &[Outcome] = match outcome {
            Outcome::Many(items) => items,
            _ => &[],
        };
        let mut members = Vec::new();
        for item in items {
            if let Outcome::Bulk(element) = item {
                put(&mut members, element);
            }
        }
        Self {
            kind: Kind::List,
            members,
            count: items.len(),
        }
    }

    /// The members of a range, which come with their scores.
    fn of_range(outcome: &Outcome) -> Self {
        let items: &[Outcome] = match outcome {
            Outcome::Many(items) => items,
            _ => &[],
        };
        let (mut members, mut count) = (Vec::new(), 0);
        for pair in items.chunks(2) {
            if let [Outcome::Bulk(member), Outcome::Bulk(score)] = pair
                && let Some(score) = parse_score(score)
            {
                put(&mut members, member);
                put(&mut members, &stored_score(score));
                count += 1;
            }
        }
        Self {
            kind: Kind::SortedSet,
            members,
            count,
        }
    }
}
