//! The keys of one partition: an index for each map (`index.rs`), and the deadlines in an ordered
//! set.
//!
//! The key after another one, in the index's order, is the same at every holder of the partition,
//! however it was written. So scans, snapshots and checksums can stop at a key. Entries are shared
//! with the log and its undo records, so a write copies its bytes once.

mod drawing;
mod victims;

use super::ahead::Ahead;
use super::compacting::Surveyor;
use super::deadline;
use super::entry::ENTRY_WORK;
use super::entry::Entry;
use super::index::{Index, Order};
use crate::mutant::{self, broken};
use doyen_placement::{MapId, OrderKey};
pub(super) use drawing::Portion;
use drawing::Rest;
use litemap::LiteMap;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use victims::Hand;
pub(super) use victims::{Victim, Wanted};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// A key by itself, for a deletion or a place in a scan.
pub(super) type Key = Arc<[u8]>;

/// What an entry costs besides the bytes of its key and value: its header, its place in the index,
/// and the rounding of the allocator.
pub(super) const ENTRY_OVERHEAD: usize = 80;
/// What an entry that expires costs in the set of deadlines.
const EXPIRY_OVERHEAD: usize = 32;
/// What an entry costs in the order of keys.
const SORTED_OVERHEAD: usize = 16;

/// The effect of a log entry. Effects are replicated, never commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    /// The key has this value and deadline.
    Put {
        map: MapId,
        entry: Entry,
        deadline: u64,
    },
    /// The key is deleted.
    Delete { map: MapId, key: Key },
    /// The key has this deadline.
    Deadline { map: MapId, key: Key, deadline: u64 },
    /// The map is empty.
    Clear { map: MapId },
    /// All of these, each on another key. None of them is such a list or a `Clear`.
    Many(Box<[Effect]>),
}

/// What an effect in a list costs besides its key and value.
const PART_OVERHEAD: usize = size_of::<Effect>() + size_of::<Undo>();

impl Effect {
    /// The effects that it consists of.
    pub(super) fn parts(&self) -> &[Self] {
        match self {
            Self::Many(parts) => parts,
            one => std::slice::from_ref(one),
        }
    }

    /// Bytes of its keys and values.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Put { entry, .. } => entry.len(),
            Self::Delete { key, .. } | Self::Deadline { key, .. } => key.len(),
            Self::Clear { .. } => 0,
            Self::Many(parts) => parts.iter().map(|part| part.bytes() + PART_OVERHEAD).sum(),
        }
    }

    /// The map and the key that it changes, if it is about one key.
    pub(super) fn place(&self) -> Option<(MapId, &[u8])> {
        match self {
            Self::Put { map, entry, .. } => Some((*map, entry.key())),
            Self::Delete { map, key } | Self::Deadline { map, key, .. } => Some((*map, key)),
            Self::Clear { .. } | Self::Many(_) => None,
        }
    }

    /// Whether a key may be absent because of it.
    pub(super) fn deletes(&self) -> bool {
        match self {
            Self::Delete { .. } => true,
            Self::Clear { .. } => !broken(&mutant::READS_CLEARS),
            Self::Put { .. } | Self::Deadline { .. } => false,
            Self::Many(parts) => parts.iter().any(Self::deletes),
        }
    }

    /// Gives it up. The next entries reuse the memory of its entries.
    pub(super) fn recycle(self) {
        match self {
            Self::Put { entry, .. } => entry.recycle(),
            Self::Many(parts) => parts.into_iter().for_each(Self::recycle),
            Self::Delete { .. } | Self::Deadline { .. } | Self::Clear { .. } => {}
        }
    }
}

/// About how many bytes of entries, with the cost of looking at them, are summed in one slice: a
/// tenth of a millisecond or two.
const SUM_BYTES: usize = 128 << 10;

/// What an effect replaced.
#[derive(Debug, Default)]
pub(super) enum Undo {
    /// Nothing to undo: the entry is committed, or it changed nothing.
    #[default]
    Nothing,
    /// The key was absent.
    Absent,
    /// The key had this entry.
    Was(Entry),
    /// The entry had this deadline and version.
    Dated(u64, u64),
    /// The map had these entries.
    Map(Box<Map>),
    /// Each effect of a list replaced this.
    Many(Box<[Undo]>),
}

impl Undo {
    /// Gives it up. The next entries reuse the memory of its entries. Whole maps are freed in
    /// slices by the caller.
    pub(super) fn recycle(self, garbage: &mut Vec<Map>) {
        match self {
            Self::Map(map) => garbage.push(*map),
            Self::Was(entry) => entry.recycle(),
            Self::Many(parts) => parts.into_iter().for_each(|part| part.recycle(garbage)),
            Self::Nothing | Self::Absent | Self::Dated(..) => {}
        }
    }
}

/// The keys of one map.
#[derive(Debug)]
pub(super) struct Map {
    index: Index,
    /// The same entries in the order of their keys, if the keyspace keeps it.
    sorted: Option<BTreeSet<ByKey>>,
    expiring: BTreeSet<(u64, ByKey)>,
    /// The cost of the entries, including those that are still to be drawn.
    bytes: usize,
    rest: Option<Box<Rest>>,
}

/// An entry that is ordered by its key.
#[derive(Debug, Clone)]
struct ByKey(Entry);

/// So that a set of entries can be searched by key.
impl Borrow<[u8]> for ByKey {
    fn borrow(&self) -> &[u8] {
        self.0.key()
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ByKey {}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key().cmp(other.0.key())
    }
}

impl Map {
    fn new(seed: OrderKey, sorted: bool) -> Self {
        Self {
            index: Index::new(seed),
            sorted: sorted.then(BTreeSet::new),
            expiring: BTreeSet::new(),
            bytes: 0,
            rest: None,
        }
    }

    /// The cost of its keys in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many keys it has.
    pub(super) const fn len(&self) -> usize {
        self.index.len()
    }

    /// The same, including about how many are still to be drawn.
    fn about(&self) -> usize {
        self.len() + self.rest.as_ref().map_or(0, |rest| rest.keys())
    }

    /// Drops up to `count` keys, fewer if they are large. Returns whether any are left. Large maps
    /// are freed in slices.
    pub(super) fn shed(&mut self, count: usize) -> bool {
        self.index.shed(count);
        for _ in 0..count.min(self.expiring.len()) {
            self.expiring.pop_first();
        }
        let sorted = self.sorted.get_or_insert_default();
        for _ in 0..count.min(sorted.len()) {
            sorted.pop_first();
        }
        if !self.index.is_empty() || !self.expiring.is_empty() || !sorted.is_empty() {
            return true;
        }
        self.rest.as_mut().is_some_and(|rest| rest.shed(count))
    }

    fn insert(&mut self, order: u64, entry: Entry) -> Option<Entry> {
        self.bytes += self.cost(&entry);
        let expires = (entry.deadline() != 0).then(|| (entry.deadline(), ByKey(entry.clone())));
        if let Some(sorted) = &mut self.sorted {
            sorted.replace(ByKey(entry.clone()));
        }
        let old = self.index.replace(order, entry);
        self.drop_old(&old);
        self.expiring.extend(expires);
        old
    }

    /// Subtracts the cost of an entry that left the index.
    fn drop_old(&mut self, old: &Option<Entry>) {
        let Some(old) = old else { return };
        self.bytes -= self.cost(old);
        if old.deadline() != 0 {
            self.expiring.remove(&(old.deadline(), ByKey(old.clone())));
        }
    }

    fn remove(&mut self, order: u64, key: &[u8]) -> Option<Entry> {
        let old = self.index.take(order, key);
        if let Some(sorted) = &mut self.sorted {
            sorted.remove(key);
        }
        if let Some(rest) = &mut self.rest {
            rest.forget(order, key);
        }
        self.drop_old(&old);
        old
    }

    /// Gives an entry another deadline and version. Returns the former ones.
    fn date(&mut self, order: u64, key: &[u8], deadline: u64, version: u64) -> Option<(u64, u64)> {
        let entry = self.index.get(order, key)?.clone();
        let old = (entry.deadline(), entry.version());
        self.bytes -= self.cost(&entry);
        if old.0 != 0 {
            self.expiring.remove(&(old.0, ByKey(entry.clone())));
        }
        entry.date(deadline, version);
        self.bytes += self.cost(&entry);
        if deadline != 0 {
            self.expiring.insert((deadline, ByKey(entry)));
        }
        Some(old)
    }

    /// Lets a segment of the index be looked at. False: there is none with this number.
    fn survey(&mut self, number: usize, surveyor: &mut impl Surveyor) -> bool {
        let Self {
            index,
            sorted,
            expiring,
            ..
        } = self;
        index.survey(number, surveyor, |entry, surveyor| {
            let deadline = entry.deadline();
            let holds = 1 + usize::from(sorted.is_some()) + usize::from(deadline != 0);
            let moved = surveyor.entry(entry, holds)?;
            if let Some(sorted) = sorted {
                sorted.replace(ByKey(moved.clone()));
            }
            if deadline != 0 {
                expiring.replace((deadline, ByKey(moved.clone())));
            }
            Some(moved)
        })
    }

    fn cost(&self, entry: &Entry) -> usize {
        cost(entry)
            + if self.sorted.is_none() {
                0
            } else {
                SORTED_OVERHEAD
            }
    }

    /// Sorted entries from one key up to, but not including, another. An empty end means none.
    fn range(&self, from: &[u8], to: &[u8]) -> impl DoubleEndedIterator<Item = &Entry> {
        let end = if to.is_empty() {
            Bound::Unbounded
        } else {
            Bound::Excluded(to)
        };
        // The range of a set panics if its end is before its beginning.
        let sorted = self.sorted.as_ref().filter(|_| to.is_empty() || from < to);
        sorted
            .into_iter()
            .flat_map(move |sorted| sorted.range::<[u8], _>((Bound::Included(from), end)))
            .map(|ByKey(entry)| entry)
    }
}

/// The cost of an entry without the order of keys.
pub(super) fn cost(entry: &Entry) -> usize {
    entry.len()
        + ENTRY_OVERHEAD
        + if entry.deadline() == 0 {
            0
        } else {
            EXPIRY_OVERHEAD
        }
}

/// A checksum that is being built. It covers everything up to and including `upto`, and writes keep
/// it right.
#[derive(Debug)]
struct Sum {
    session: u32,
    upto: Option<(MapId, u64, Key)>,
    done: bool,
    maps: BTreeMap<MapId, u64>,
}

impl Sum {
    fn covers(&self, map: MapId, order: u64, key: &[u8]) -> bool {
        self.done
            || self
                .upto
                .as_ref()
                .is_some_and(|(m, o, k)| (map, order, key) <= (*m, *o, &**k))
    }
}

/// The position of a snapshot: after this key, in the order of the map's index.
pub(super) type Cursor = Option<(MapId, Key)>;

/// The position of a survey: this segment of this map's index is next.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    map: MapId,
    segment: usize,
}

/// Deletions that a copy remembers while a snapshot of older entries is still arriving.
#[derive(Debug, Default)]
struct Tombstones {
    keys: BTreeMap<(MapId, Key), u64>,
    clears: BTreeMap<MapId, u64>,
    /// The former contents of maps that were cleared in the meantime. Nearly all of it is older
    /// than the clearing, but each entry must be checked.
    cleared: Vec<(MapId, u64, Map)>,
}

/// The contents of one partition.
#[derive(Debug)]
pub(super) struct Store {
    seed: OrderKey,
    /// Whether keys are also kept in the order of their bytes.
    sorted: bool,
    maps: LiteMap<MapId, Map>,
    /// The cost of all maps in bytes.
    bytes: usize,
    sums: Vec<Sum>,
    tombstones: Option<Box<Tombstones>>,
    /// Number of maps that still have keys to draw.
    parts: usize,
    hand: Hand,
}

impl Store {
    /// An empty store. The seed decides the order of keys. It is the same at all members.
    pub(super) const fn new(seed: OrderKey) -> Self {
        Self {
            seed,
            sorted: false,
            maps: LiteMap::new_vec(),
            bytes: 0,
            sums: Vec::new(),
            tombstones: None,
            parts: 0,
            hand: (MapId(0), 0),
        }
    }

    /// The same store. If `sorted`, it keeps keys in the order of their bytes, too.
    pub(super) fn sorted(self, sorted: bool) -> Self {
        Self { sorted, ..self }
    }

    /// An empty store with the same settings.
    pub(super) fn emptied(&self) -> Self {
        Self::new(self.seed).sorted(self.sorted)
    }

    /// The place of a key in every map's order. An operation with several lookups computes it once.
    pub(super) fn order(&self, key: &[u8]) -> u64 {
        self.seed.order(key)
    }

    /// The entry of a key, overdue or not.
    pub(super) fn entry(&self, map: MapId, order: u64, key: &[u8]) -> Option<&Entry> {
        self.maps.get(&map)?.index.get(order, key)
    }

    /// The index and the order for looking up a key.
    pub(super) fn lookup(&self, map: MapId, key: &[u8]) -> Option<(&Index, u64)> {
        Some((&self.maps.get(&map)?.index, self.order(key)))
    }

    /// Entries of a map in the order of their keys, from one up to another. None if the order is
    /// not kept.
    pub(super) fn range(
        &self,
        map: MapId,
        from: &[u8],
        to: &[u8],
        reverse: bool,
    ) -> impl Iterator<Item = &Entry> {
        let mut range = self
            .maps
            .get(&map)
            .into_iter()
            .flat_map(move |map| map.range(from, to));
        std::iter::from_fn(move || {
            if reverse {
                range.next_back()
            } else {
                range.next()
            }
        })
    }

    /// Entries after a key of a map, in the order of maps and keys, if that is kept.
    pub(super) fn sorted_after<'a>(
        &'a self,
        after: Option<(MapId, &'a [u8])>,
    ) -> impl Iterator<Item = (MapId, &'a Entry)> {
        let first = after.map_or(MapId(0), |(map, _)| map);
        self.maps
            .iter()
            .filter(move |(id, _)| **id >= first)
            .flat_map(move |(id, map)| {
                let begin = after
                    .filter(|(map, _)| map == id)
                    .map_or(Bound::Unbounded, |(_, key)| Bound::Excluded(key));
                let sorted = map.sorted.as_ref().into_iter();
                sorted
                    .flat_map(move |sorted| sorted.range::<[u8], _>((begin, Bound::Unbounded)))
                    .map(|entry| (*id, &entry.0))
            })
    }

    /// Lets the next entries be looked at, which may move them in memory. False: there are no more.
    pub(super) fn survey(&mut self, place: &mut Place, surveyor: &mut impl Surveyor) -> bool {
        let Some((id, map)) = self.maps.iter_mut().find(|(id, _)| **id >= place.map) else {
            return false;
        };
        if *id != place.map {
            *place = Place {
                map: *id,
                segment: 0,
            };
        }
        if map.survey(place.segment, surveyor) {
            place.segment += 1;
            return true;
        }
        let next = place.map.0.checked_add(1).map(MapId);
        next.is_some_and(|map| {
            *place = Place { map, segment: 0 };
            true
        })
    }

    /// The cost of an entry here.
    pub(super) fn cost(&self, entry: &Entry) -> usize {
        cost(entry) + if self.sorted { SORTED_OVERHEAD } else { 0 }
    }

    /// How many keys a map has.
    pub(super) fn count(&self, map: MapId) -> usize {
        self.maps.get(&map).map_or(0, Map::len)
    }

    /// For each of these maps that is here: its place in the list, about how many keys it has, and
    /// how many of those expire.
    pub(super) fn each_of(&self, maps: &[MapId], mut tell: impl FnMut(usize, usize, usize)) {
        // Most partitions have one map or two.
        if self.maps.len() < maps.len() {
            for (id, map) in &self.maps {
                maps.iter()
                    .position(|wanted| wanted == id)
                    .into_iter()
                    .for_each(|place| tell(place, map.about(), map.expiring.len()));
            }
        } else {
            let here = maps
                .iter()
                .enumerate()
                .filter_map(|(place, id)| Some((place, self.maps.get(id)?)));
            here.for_each(|(place, map)| tell(place, map.about(), map.expiring.len()));
        }
    }

    /// How many keys there are; only about, while some are still to be drawn.
    pub(super) fn keys(&self) -> usize {
        self.maps.values().map(Map::about).sum()
    }

    /// Their cost in bytes; only about, while some are still to be drawn.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Applies an effect as of sequence `seq`. Returns what it replaced.
    pub(super) fn apply(&mut self, seq: u64, effect: &Effect) -> Undo {
        let order = effect.place().map_or(0, |(_, key)| self.order(key));
        self.apply_at(order, seq, effect)
    }

    /// The same, with the order of the effect's key.
    pub(super) fn apply_at(&mut self, order: u64, seq: u64, effect: &Effect) -> Undo {
        if let Some((map, key)) = effect
            .place()
            .filter(|_| !broken(&mutant::REPLACES_UNDRAWN))
        {
            // The replaced entry must be known, so that it can be brought back.
            self.draw(map, order, key);
        }
        match effect {
            Effect::Put {
                map,
                entry,
                deadline,
            } => {
                entry.date(*deadline, seq);
                self.insert(*map, order, entry.clone())
                    .map_or(Undo::Absent, Undo::Was)
            }
            Effect::Delete { map, key } => self
                .remove(*map, order, key)
                .map_or(Undo::Nothing, Undo::Was),
            Effect::Deadline { map, key, deadline } => self
                .date(*map, order, key, *deadline, seq)
                .map_or(Undo::Nothing, |(deadline, version)| {
                    Undo::Dated(deadline, version)
                }),
            Effect::Clear { map } => {
                for sum in &mut self.sums {
                    sum.maps.remove(map);
                }
                let Some(map) = self.maps.remove(map) else {
                    return Undo::Nothing;
                };
                self.bytes -= map.bytes;
                self.parts -= usize::from(map.rest.is_some());
                Undo::Map(Box::new(map))
            }
            Effect::Many(parts) => {
                Undo::Many(parts.iter().map(|part| self.apply(seq, part)).collect())
            }
        }
    }

    /// Takes an effect back. Effects are undone in the reverse order of `apply`.
    pub(super) fn undo(&mut self, effect: &Effect, undo: Undo) {
        let order = effect.place().map_or(0, |(_, key)| self.order(key));
        match (effect, undo) {
            (_, Undo::Nothing) => {}
            (Effect::Put { map, entry, .. }, Undo::Absent) => {
                self.remove(*map, order, entry.key());
            }
            (Effect::Put { map, .. } | Effect::Delete { map, .. }, Undo::Was(entry)) => {
                self.insert(*map, order, entry);
            }
            (Effect::Deadline { map, key, .. }, Undo::Dated(deadline, version)) => {
                self.date(*map, order, key, deadline, version);
            }
            (Effect::Clear { map }, Undo::Map(entries)) => {
                self.bytes += entries.bytes;
                self.parts += usize::from(entries.rest.is_some());
                self.maps.insert(*map, *entries);
            }
            (Effect::Many(parts), Undo::Many(undos)) => {
                let most = if broken(&mutant::UNDOES_ONE) {
                    1
                } else {
                    parts.len()
                };
                for (part, undo) in parts.iter().zip(undos).take(most) {
                    self.undo(part, undo);
                }
            }
            // `apply` makes no other pairs.
            (effect, undo) => unreachable!("{effect:?} cannot have replaced {undo:?}"),
        }
    }

    /// Applies an effect while a snapshot is still arriving. Newer entries stay.
    pub(super) fn apply_fuzzy(&mut self, seq: u64, effect: &Effect) {
        let order = effect.place().map_or(0, |(_, key)| self.order(key));
        match effect {
            Effect::Many(parts) => parts.iter().for_each(|part| self.apply_fuzzy(seq, part)),
            Effect::Put {
                map,
                entry,
                deadline,
            } => {
                if self
                    .entry(*map, order, entry.key())
                    .is_none_or(|e| e.version() < seq)
                {
                    entry.date(*deadline, seq);
                    self.insert(*map, order, entry.clone());
                }
            }
            Effect::Delete { map, key } => {
                if self
                    .entry(*map, order, key)
                    .is_some_and(|e| e.version() < seq)
                {
                    self.remove(*map, order, key);
                }
                if let Some(t) = &mut self.tombstones {
                    t.keys.insert((*map, key.clone()), seq);
                }
            }
            // While a snapshot is under way, its primary logs changes of deadlines as puts, because
            // the entry may still be on its way here.
            Effect::Deadline { map, key, deadline } => {
                if self
                    .entry(*map, order, key)
                    .is_some_and(|old| old.version() < seq)
                {
                    self.date(*map, order, key, *deadline, seq);
                }
            }
            // The map is set aside as a whole, and `sift` brings newer entries back. There may be
            // millions, too many to delete in one go.
            Effect::Clear { map } => {
                let was = self.maps.remove(map);
                self.bytes -= was.as_ref().map_or(0, |was| was.bytes);
                self.sums
                    .iter_mut()
                    .for_each(|sum| _ = sum.maps.remove(map));
                if let Some(t) = &mut self.tombstones {
                    t.clears.insert(*map, seq);
                    t.cleared.extend(was.map(|was| (*map, seq, was)));
                }
            }
        }
    }

    /// Takes an entry of a snapshot, unless its key has a newer one. Returns whether it did.
    pub(super) fn adopt(&mut self, map: MapId, entry: Entry) -> bool {
        if let Some(t) = &self.tombstones {
            let cleared = t.clears.get(&map).is_some_and(|seq| *seq > entry.version());
            let deleted = || {
                t.keys
                    .get(&(map, Key::from(entry.key())))
                    .is_some_and(|seq| *seq > entry.version())
            };
            // Few snapshots meet deletions, and a lookup needs a key of its own.
            if cleared || (!t.keys.is_empty() && deleted()) {
                return false;
            }
        }
        let order = self.order(entry.key());
        let newer = self
            .entry(map, order, entry.key())
            .is_none_or(|e| e.version() < entry.version());
        if newer {
            self.insert(map, order, entry);
        }
        newer
    }

    /// Whether `sift` has nothing left to do. Before that, entries that are newer than the clearing
    /// of their map may still be missing from the contents, so no checksum may be built.
    pub(super) fn is_sifted(&self) -> bool {
        self.tombstones
            .as_ref()
            .is_none_or(|t| t.cleared.is_empty())
    }

    /// Looks at up to `count` entries of maps that were cleared while a snapshot arrives, and keeps
    /// the newer ones like parts of the snapshot. True once nothing is left. Dropped maps go to the
    /// garbage.
    pub(super) fn sift(&mut self, count: usize, garbage: &mut Vec<Map>) -> bool {
        for _ in 0..count {
            let Some(t) = &mut self.tombstones else {
                return true;
            };
            let Some((map, seq, was)) = t.cleared.last_mut() else {
                return true;
            };
            let (map, seq) = (*map, *seq);
            match was.index.take_any() {
                Some(entry) if entry.version() > seq => _ = self.adopt(map, entry),
                Some(_) => {}
                None => garbage.extend(t.cleared.pop().map(|(_, _, was)| was)),
            }
        }
        self.is_sifted()
    }

    /// Remembers deletions from now on (a snapshot arrives), or forgets them (it is complete, and
    /// sifted).
    pub(super) fn keep_tombstones(&mut self, keep: bool) {
        self.tombstones = keep.then(Box::default);
    }

    /// Some keys of a map that are overdue, earliest deadline first.
    pub(super) fn overdue(&self, clock: u64, limit: usize) -> Vec<(MapId, Key)> {
        let mut found = Vec::new();
        for (id, map) in &self.maps {
            let left = limit - found.len();
            found.extend(
                map.expiring
                    .iter()
                    .take_while(|(d, _)| deadline::is_over(*d, clock))
                    .take(left)
                    .map(|(_, e)| (*id, e.0.key().into())),
            );
        }
        found
    }

    /// Whether any key is overdue.
    pub(super) fn is_overdue(&self, clock: u64) -> bool {
        self.maps.values().any(|m| {
            m.expiring
                .first()
                .is_some_and(|(deadline, _)| deadline::is_over(*deadline, clock))
        })
    }

    /// Whether any key here expires, or may be drawn that does.
    pub(super) fn expires(&self) -> bool {
        self.maps
            .values()
            .any(|m| !m.expiring.is_empty() || m.rest.is_some())
    }

    /// The entries that follow `after`, over all maps.
    pub(super) fn following<'a>(
        &'a self,
        after: &Cursor,
    ) -> impl Iterator<Item = (MapId, &'a Entry)> + use<'a> {
        let first_map = after.as_ref().map_or(MapId(0), |(m, _)| *m);
        let skip = after.clone();
        self.maps
            .iter()
            .filter(move |(id, _)| **id >= first_map)
            .flat_map(move |(id, map)| {
                let after = skip
                    .as_ref()
                    .filter(|(m, _)| m == id)
                    .map(|(_, key)| &**key);
                map.index.iter_after(after).map(|e| (*id, e))
            })
    }

    /// The entries of one map with this order or a later one.
    pub(super) fn at_or_after(
        &self,
        map: MapId,
        order: u64,
    ) -> impl Iterator<Item = &Entry> + use<'_> {
        self.maps
            .get(&map)
            .map(|m| m.index.iter_from(order))
            .into_iter()
            .flatten()
    }

    /// Begins a checksum. `advance_sum` covers more and more of the store, and writes keep the
    /// covered part right.
    pub(super) fn begin_sum(&mut self, session: u32) {
        self.end_sum(session);
        self.sums.push(Sum {
            session,
            upto: None,
            done: false,
            maps: BTreeMap::new(),
        });
    }

    /// Whether a checksum has begun.
    pub(super) fn sums(&self, session: u32) -> bool {
        self.sums.iter().any(|s| s.session == session)
    }

    /// Covers the next entries, at most `count` and about [`SUM_BYTES`]. Returns true once
    /// everything is covered, and how many bytes were looked at.
    pub(super) fn advance_sum(&mut self, session: u32, count: usize) -> (bool, usize) {
        let Some(at) = self.sums.iter().position(|s| s.session == session) else {
            return (false, 0);
        };
        if self.sums[at].done {
            return (true, 0);
        }
        let after = self.sums[at]
            .upto
            .as_ref()
            .map(|(map, _, key)| (*map, key.clone()));
        let mut added: BTreeMap<MapId, u64> = BTreeMap::new();
        let (mut last, mut bytes) = (None, 0);
        let mut following = Ahead::of(self.following(&after));
        let mut done = false;
        for _ in 0..count {
            let next = if bytes < SUM_BYTES {
                following.next()
            } else {
                break;
            };
            let Some((map, entry)) = next else {
                done = true;
                break;
            };
            let sum = added.entry(map).or_default();
            *sum = sum.wrapping_add(digest(map, entry));
            last = Some((map, entry));
            bytes += entry.len() + ENTRY_WORK;
        }
        drop(following);
        let last = last.map(|(map, entry)| (map, self.order(entry.key()), Key::from(entry.key())));
        let sum = &mut self.sums[at];
        for (map, more) in added {
            let total = sum.maps.entry(map).or_default();
            *total = total.wrapping_add(more);
        }
        if last.is_some() {
            sum.upto = last;
        }
        sum.done = done;
        (done, bytes)
    }

    /// The checksum, once it covers everything.
    pub(super) fn sum(&self, session: u32) -> Option<u64> {
        let sum = self.sums.iter().find(|s| s.session == session && s.done)?;
        Some(sum.maps.values().fold(0, |all, one| all.wrapping_add(*one)))
    }

    /// The checksum of all contents, at once: for inspection only.
    pub(super) fn content(&self) -> u64 {
        self.contents()
            .fold(0, |sum, (map, entry)| sum.wrapping_add(digest(map, &entry)))
    }

    /// All contents, drawn or not: for inspection only.
    pub(super) fn contents(&self) -> impl Iterator<Item = (MapId, Entry)> {
        self.following(&None)
            .map(|(map, entry)| (map, entry.clone()))
            .chain(self.undrawn())
    }

    /// Ends a checksum.
    pub(super) fn end_sum(&mut self, session: u32) {
        self.sums.retain(|s| s.session != session);
    }

    /// Ends all checksums.
    pub(super) fn end_sums(&mut self) {
        self.sums.clear();
    }

    /// Takes all contents out, to be freed in slices.
    pub(super) fn take(&mut self) -> Vec<Map> {
        self.sums.clear();
        (self.bytes, self.parts) = (0, 0);
        let cleared = self
            .tombstones
            .take()
            .into_iter()
            .flat_map(|t| t.cleared)
            .map(|(_, _, map)| map);
        std::mem::take(&mut self.maps)
            .into_iter()
            .map(|(_, map)| map)
            .chain(cleared)
            .collect()
    }

    fn insert(&mut self, map: MapId, order: u64, entry: Entry) -> Option<Entry> {
        let summed = self.covered(map, order, entry.key()).then(|| entry.clone());
        let entries = self
            .maps
            .entry(map)
            .or_insert_with(|| Map::new(self.seed, self.sorted));
        let before = entries.bytes;
        let old = entries.insert(order, entry);
        self.bytes = self.bytes + entries.bytes - before;
        if let Some(entry) = summed {
            self.summed(
                (map, order, entry.key()),
                digest(map, &entry),
                old.as_ref().map_or(0, |e| digest(map, e)),
            );
        }
        old
    }

    fn date(
        &mut self,
        map: MapId,
        order: u64,
        key: &[u8],
        deadline: u64,
        version: u64,
    ) -> Option<(u64, u64)> {
        let covered = self.covered(map, order, key);
        let digested = |store: &Self| {
            if covered {
                store.entry(map, order, key).map_or(0, |e| digest(map, e))
            } else {
                0
            }
        };
        let before = digested(self);
        let entries = self.maps.get_mut(&map)?;
        let bytes = entries.bytes;
        let old = entries.date(order, key, deadline, version)?;
        self.bytes = self.bytes + entries.bytes - bytes;
        self.summed((map, order, key), digested(self), before);
        Some(old)
    }

    /// Whether any checksum covers this key. Only then must its digest be computed.
    fn covered(&self, map: MapId, order: u64, key: &[u8]) -> bool {
        self.sums.iter().any(|s| s.covers(map, order, key))
    }

    /// The covered part of checksums changed.
    fn summed(&mut self, (map, order, key): (MapId, u64, &[u8]), added: u64, removed: u64) {
        for sum in self.sums.iter_mut().filter(|s| s.covers(map, order, key)) {
            let total = sum.maps.entry(map).or_default();
            *total = total.wrapping_add(added).wrapping_sub(removed);
        }
    }

    fn remove(&mut self, map: MapId, order: u64, key: &[u8]) -> Option<Entry> {
        let entries = self.maps.get_mut(&map)?;
        let before = entries.bytes;
        let old = entries.remove(order, key)?;
        self.bytes = self.bytes + entries.bytes - before;
        if entries.index.is_empty() && entries.rest.is_none() {
            self.maps.remove(&map);
        }
        if self.covered(map, order, key) {
            self.summed((map, order, key), 0, digest(map, &old));
        }
        Some(old)
    }
}

/// A 64-bit digest of one entry. Copies are compared by the sum of all digests, which does not
/// depend on the order of writes.
fn digest(map: MapId, entry: &Entry) -> u64 {
    // Key and value are hashed separately, so that a byte cannot move from one to the other
    // unnoticed.
    let words = [
        u64::from(map.0),
        entry.stamp(),
        entry.deadline(),
        xxh3_64(entry.key()),
        xxh3_64(entry.value()),
    ];
    let mut bytes = [0; 40];
    for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    xxh3_64(&bytes)
}

/// The digest of bytes in pieces, wherever they are cut: for snapshot chunks.
pub(super) fn digest_bytes<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut digest = Xxh3::new();
    pieces.into_iter().for_each(|piece| digest.update(piece));
    digest.digest()
}

#[cfg(test)]
mod tests;
