//! Keyspaces that people make, change and drop.
//!
//! Numbers of keyspaces and maps are never reused (`next_keyspace`, `next_map`), so remains of a
//! dropped keyspace cannot be mistaken for a later one of the same name. A primary stops serving
//! once it has stored a table without its keyspace, committed or not. Another number of copies, or
//! other rules, void the goals of moves. The next plan makes new ones.

use super::{NotReshaped, assign, reshape};
use crate::division::{Cut, Division, RangeStart, Runs};
use crate::durability::Durability;
use crate::hash::SLOTS;
use crate::id::{KeyspaceId, MapId, PartitionId, Version};
use crate::rule::Rule;
use crate::table::{
    Eviction, Invalid, Keyspace, MapEntry, MapLimits, MapWish, Member, Mode, OnLoss, Reshape,
    Reshaping, Role, Table, WantedMap,
};
use crate::tags::Tags;
use minicbor::{Decode, Encode};
use std::sync::Arc;

/// The keyspace that every cluster has from the beginning. Redis clients begin in it, and it cannot
/// be dropped.
pub const DEFAULT_KEYSPACE: &str = "default";

/// The settings of a keyspace that a person wants.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct NewKeyspace {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// How a key finds its partition.
    #[n(1)]
    pub mode: Mode,
    /// The partitions and their keys, as far as they are known before there are members.
    #[n(2)]
    pub division: Division,
    /// Copies beside the primary.
    #[n(3)]
    pub backups: u8,
    /// The number of copies, the primary included, with which writes are still acknowledged.
    #[n(4)]
    pub min_in_sync: u8,
    /// What happens when every in-sync copy of a partition is gone.
    #[n(5)]
    pub on_loss: OnLoss,
    /// The expiry of keys that are written without one.
    #[n(6)]
    pub default_ttl_ms: Option<u64>,
    /// The keys that are removed if memory is full.
    #[n(7)]
    pub eviction: Eviction,
    /// Whether each partition keeps its keys in order. Partitions of ranges do so anyway.
    #[n(8)]
    pub ordered: bool,
    /// Which members may hold and lead its partitions.
    #[n(9)]
    pub rules: Vec<Rule>,
    /// Where a write is when it is acknowledged. `None`: as [`Durability::default`] says. Programs
    /// of level 16 do not know this field.
    #[n(10)]
    pub durability: Option<Durability>,
}

impl NewKeyspace {
    /// The keyspace with this number, not assigned yet.
    #[must_use]
    pub fn numbered(self, id: KeyspaceId) -> Keyspace {
        let Self {
            name,
            mode,
            division,
            backups,
            min_in_sync,
            on_loss,
            default_ttl_ms,
            eviction,
            ordered,
            rules,
            durability,
        } = self;
        Keyspace {
            id,
            name,
            mode,
            division,
            backups,
            min_in_sync,
            on_loss,
            durability: durability.unwrap_or_default(),
            durable_since: Version(0),
            default_ttl_ms,
            eviction,
            ordered,
            tags: Tags::default(),
            rules,
            partitions: Vec::new(),
            reshaping: Reshaping::default(),
        }
    }
}

/// Changes of a keyspace. `None` leaves a setting as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct KeyspaceChange {
    /// Copies beside the primary.
    #[n(0)]
    pub backups: Option<u8>,
    /// The number of copies, the primary included, with which writes are still acknowledged.
    #[n(1)]
    pub min_in_sync: Option<u8>,
    /// What happens when every in-sync copy of a partition is gone.
    #[n(2)]
    pub on_loss: Option<OnLoss>,
    /// The expiry of keys that are written without one. `Some(None)`: no expiry.
    #[cbor(n(3), with = "crate::codec::bridge", default)]
    pub default_ttl_ms: Option<Option<u64>>,
    /// The keys that are removed if memory is full.
    #[n(4)]
    pub eviction: Option<Eviction>,
    /// The rules for its members, in place of all present rules.
    #[n(5)]
    pub rules: Option<Vec<Rule>>,
    /// The number of partitions of a fixed keyspace: the present one times a power of two.
    /// Partitions are halved for that.
    #[n(6)]
    pub partitions: Option<u16>,
    /// Where a write is when it is acknowledged.
    #[n(7)]
    pub durability: Option<Durability>,
}

/// Why a keyspace or a map is not made, changed or dropped. The table stays as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no keyspace of this name.
    #[error("there is no keyspace {name:?}, only {known}: name one of them, or create it first")]
    NoKeyspace {
        /// The name.
        name: String,
        /// The keyspaces that exist.
        known: String,
    },
    /// There is a keyspace of this name with other settings.
    #[error("there is a keyspace {0:?} already, with other settings")]
    OtherSettings(String),
    /// The first keyspace stays.
    #[error("the keyspace `{DEFAULT_KEYSPACE}` cannot be dropped: Redis clients begin in it")]
    Default,
    /// There is no map of this name.
    #[error("there is no map {0:?} in this keyspace")]
    NoMap(String),
    /// Ranges hold as many keys as they like.
    #[error(
        "the map {0:?} is in a keyspace of ranges, where keys of one map are in few partitions: \
         put it into another keyspace, or give it no limit of entries or bytes"
    )]
    Bounded(String),
    /// Values of maps whose entries expire unused are stored otherwise.
    #[error(
        "the map {0:?} was made with a time after which unused entries expire (max_idle), and \
         cannot lose it: give it one, too; or drop the map, or use another name"
    )]
    Idle(String),
    /// Only partitions of slots are halved.
    #[error(
        "keyspace {0:?} is not fixed: only the number of partitions of fixed keyspaces can be set"
    )]
    NotFixed(String),
    /// Partitions are halved, and never joined again.
    #[error("{wanted} partitions cannot be made of {now}: name a power of two from {now} to 16384")]
    Partitions {
        /// The number that is wanted.
        wanted: u16,
        /// The present number, or the one that halving will reach.
        now: u16,
    },
    /// The split or merge is not possible.
    #[error(transparent)]
    NotReshaped(#[from] NotReshaped),
    /// No range begins with this key.
    #[error("no range of keyspace {0:?} begins with this key")]
    NoSplit(String),
    /// Slots and arcs are divided automatically.
    #[error("keyspace {0:?} has no ranges, and only ranges are split and merged at keys")]
    NoRanges(String),
    /// The first range begins with the empty key.
    #[error("a range begins with a key that is not empty")]
    NoKey,
    /// What is on disk needs a directory at every member that holds data.
    #[error(
        "durability log keeps data on disk, and {} no directory",
        match names.as_slice() {
            [one] => format!("{one} has"),
            all => format!("{} have", all.join(", ")),
        }
    )]
    NoDirectory {
        /// The members without one.
        names: Vec<String>,
    },
    /// All numbers are used up.
    #[error("no number is left for another one")]
    NoNumber,
    /// The result would not be a valid table.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl Refused {
    /// There is no keyspace of this name, only these.
    pub fn no_keyspace<K: AsRef<str>>(name: &str, known: impl IntoIterator<Item = K>) -> Self {
        let known: Vec<K> = known.into_iter().collect();
        Self::NoKeyspace {
            name: name.to_owned(),
            known: known.iter().map(K::as_ref).collect::<Vec<_>>().join(", "),
        }
    }
}

/// The table with this keyspace, which has partitions as soon as there are enough members. `None`:
/// it exists already, with the same settings.
///
/// # Errors Another keyspace has this name, or a setting is not possible.
pub fn create_keyspace(table: &Table, wanted: NewKeyspace) -> Result<Option<Table>, Refused> {
    if let Some(known) = table.keyspace_named(&wanted.name) {
        let name = wanted.name.clone();
        let (partitions, reshaping) = (known.partitions.clone(), known.reshaping.clone());
        let mut same = Keyspace {
            partitions,
            reshaping,
            tags: known.tags,
            ..wanted.numbered(known.id)
        };
        if matches!(known.mode, Mode::Ring { .. })
            || known.next_partition().0 as usize > known.partitions.len()
        {
            // Members brought tokens, or partitions were split since.
            same.division = known.division.clone();
        }
        let same = same == *known;
        return if same {
            Ok(None)
        } else {
            Err(Refused::OtherSettings(name))
        };
    }
    let id = table.next_keyspace;
    let mut next = table.clone();
    next.next_keyspace =
        id.0.checked_add(1)
            .map(KeyspaceId)
            .ok_or(Refused::NoNumber)?;
    next.keyspaces.push(Keyspace {
        tags: Tags::Databases,
        ..wanted.numbered(id)
    });
    next.validate()?;
    check_directories(&next)?;
    let assigned = assign(&next);
    assigned.validate()?;
    Ok(Some(assigned))
}

/// The table with this change of a keyspace. With another number of backups, the next plan makes or
/// drops copies. With other rules, it moves them. `None`: nothing changes.
///
/// # Errors There is no such keyspace, or a setting is not possible.
pub fn alter_keyspace(
    table: &Table,
    name: &str,
    change: KeyspaceChange,
) -> Result<Option<Table>, Refused> {
    let at = place(table, name)?;
    let mut next = table.clone();
    let keyspace = &mut next.keyspaces[at];
    let KeyspaceChange {
        backups,
        min_in_sync,
        on_loss,
        default_ttl_ms,
        eviction,
        rules,
        partitions,
        durability,
    } = change;
    if let Some(partitions) = partitions {
        grow(keyspace, partitions)?;
    }
    let (backups, rules) = (
        backups.unwrap_or(keyspace.backups),
        rules.unwrap_or_else(|| keyspace.rules.clone()),
    );
    if backups != keyspace.backups || rules != keyspace.rules {
        (keyspace.backups, keyspace.rules) = (backups, rules);
        // The plans lead to the former number of copies and would drop one that is needed now, or
        // lead to members where copies may not be any more. The next plan begins from the present
        // state.
        for partition in keyspace.partitions.iter_mut().filter(|p| p.goal.is_some()) {
            Arc::make_mut(partition).goal = None;
        }
    }
    keyspace.min_in_sync = min_in_sync.unwrap_or(keyspace.min_in_sync);
    keyspace.on_loss = on_loss.unwrap_or(keyspace.on_loss);
    if let Some(durability) = durability.filter(|to| *to != keyspace.durability) {
        keyspace.durability = durability;
        keyspace.durable_since = match durability {
            Durability::None => Version(0),
            Durability::Log => table.version,
        };
    }
    keyspace.default_ttl_ms = default_ttl_ms.unwrap_or(keyspace.default_ttl_ms);
    keyspace.eviction = eviction.unwrap_or(keyspace.eviction);
    next.validate()?;
    if durability.is_some() {
        check_directories(&next)?;
    }
    Ok((next != *table).then_some(next))
}

/// Whether every member that holds data has a directory, if a keyspace keeps data on disk.
///
/// # Errors
/// Some have none, or it is not known yet.
pub fn check_directories(table: &Table) -> Result<(), Refused> {
    let on_disk = |k: &Keyspace| k.durability != Durability::None;
    let has_none = |m: &&Arc<Member>| m.role == Role::Data && m.start.is_none();
    let without = table.members.iter().filter(has_none);
    let names: Vec<String> = without.map(|m| m.name.clone()).collect();
    if names.is_empty() || !table.keyspaces.iter().any(on_disk) {
        return Ok(());
    }
    Err(Refused::NoDirectory { names })
}

/// Sets the number of partitions. Present partitions are halved one after the other
/// ([`super::reshape::doublings`]).
fn grow(keyspace: &mut Keyspace, wanted: u16) -> Result<(), Refused> {
    let Mode::Fixed { partitions } = &mut keyspace.mode else {
        return Err(Refused::NotFixed(keyspace.name.clone()));
    };
    if wanted < *partitions || !wanted.is_power_of_two() || wanted > SLOTS {
        return Err(Refused::Partitions {
            wanted,
            now: *partitions,
        });
    }
    if wanted > *partitions
        && keyspace.division == Division::Slots
        && !keyspace.partitions.is_empty()
    {
        let runs = Runs::even(*partitions).map_err(|_| Refused::Partitions {
            wanted,
            now: *partitions,
        })?;
        keyspace.division = Division::Runs(Arc::new(runs));
    }
    *partitions = wanted;
    Ok(())
}

/// The table without this keyspace, its maps and their keys.
///
/// # Errors There is no such keyspace, or it is the default one.
pub fn drop_keyspace(table: &Table, name: &str) -> Result<Table, Refused> {
    let at = place(table, name)?;
    if name == DEFAULT_KEYSPACE {
        return Err(Refused::Default);
    }
    let mut next = table.clone();
    let gone = next.keyspaces.remove(at).id;
    next.maps.retain(|map| map.keyspace != gone);
    Ok(next)
}

/// The map of this name as a program wants it, or as it was if it is dropped. Also the table with
/// it, if it was not so before.
///
/// # Errors
/// There is no such keyspace or no map to drop, or the map cannot have such limits.
pub fn want_map(table: &Table, wanted: &WantedMap) -> Result<(Option<Table>, MapEntry), Refused> {
    let WantedMap {
        keyspace,
        name,
        wish,
    } = wanted;
    let home = &table.keyspaces[place(table, keyspace)?];
    let known = table.map_in(keyspace, name);
    let mut next = table.clone();
    match (*wish, known) {
        (MapWish::Exists, Some(known)) => Ok((None, known.clone())),
        (MapWish::Limited(wanted) | MapWish::Replaced(wanted), Some(known)) => {
            let limits = match wish {
                MapWish::Limited(_) => known.limits.raised_to(wanted),
                _ => wanted,
            };
            if limits == known.limits {
                return Ok((None, known.clone()));
            }
            if limits.bounds() && home.mode == Mode::Range {
                return Err(Refused::Bounded(name.to_owned()));
            }
            if known.limits.idle_ms.is_some() && limits.idle_ms.is_none() {
                return Err(Refused::Idle(name.clone()));
            }
            let entry = MapEntry {
                limits,
                ..known.clone()
            };
            let place = next.maps.iter_mut().find(|map| map.id == entry.id);
            place.into_iter().for_each(|map| *map = entry.clone());
            next.validate()?;
            Ok((Some(next), entry))
        }
        (MapWish::Dropped, Some(known)) => {
            next.maps.retain(|map| map.id != known.id);
            Ok((Some(next), known.clone()))
        }
        (MapWish::Dropped, None) => Err(Refused::NoMap(name.clone())),
        (MapWish::Exists, None) => create_map(next, name, home, MapLimits::NONE),
        (MapWish::Limited(limits) | MapWish::Replaced(limits), None) => {
            create_map(next, name, home, limits)
        }
    }
}

/// Notes in a table who changed the limits of a map, if they differ from those of the table before.
pub fn note_limits(before: &Table, next: &mut Table, map: MapId, by: &str) {
    let limits = |table: &Table| table.map(map).map(|map| map.limits);
    let changed = matches!((limits(before), limits(next)), (Some(a), Some(b)) if a != b);
    if !changed {
        return;
    }
    let mut annex = next.annex.as_ref().clone();
    annex.limited.retain(|map, _| next.map(*map).is_some());
    annex.limited.insert(map, by.to_owned());
    next.annex = Arc::new(annex);
}

/// The table with a new map.
fn create_map(
    table: Table,
    name: &str,
    home: &Keyspace,
    limits: MapLimits,
) -> Result<(Option<Table>, MapEntry), Refused> {
    if limits.bounds() && home.mode == Mode::Range {
        return Err(Refused::Bounded(name.to_owned()));
    }
    let entry = MapEntry {
        id: table.next_map,
        name: name.to_owned(),
        keyspace: home.id,
        limits,
    };
    let mut next = table;
    next.next_map = entry
        .id
        .0
        .checked_add(1)
        .map(MapId)
        .ok_or(Refused::NoNumber)?;
    next.maps.push(entry.clone());
    next.validate()?;
    Ok((Some(next), entry))
}

/// The table in which a range is being split at this key of this map. `None`: a range begins there,
/// or is about to.
///
/// # Errors There is no such keyspace, or the range cannot be split there now.
pub fn split_at(
    table: &Table,
    name: &str,
    map: MapId,
    key: &[u8],
) -> Result<Option<Table>, Refused> {
    let keyspace = ranged(table, name)?;
    if map == MapId(0) && key.is_empty() {
        return Err(Refused::NoKey);
    }
    let partition = keyspace
        .partition_of(map, key)
        .ok_or(NotReshaped::NoKeyspace(keyspace.id))?;
    let split = Reshape::Split {
        partition,
        cut: Cut::Key {
            map,
            key: key.into(),
        },
    };
    if starts(keyspace)
        .iter()
        .any(|s| s.map == map && *s.key == *key)
        || keyspace.reshaping.under_way.contains(&split)
    {
        return Ok(None);
    }
    Ok(Some(reshape::begin(table, keyspace.id, split)?))
}

/// The table in which the range that begins with this key of this map is being merged with the
/// range before it. `None`: that is under way already.
///
/// # Errors There is no such keyspace, no range begins there, or the two cannot be merged now.
pub fn merge_at(
    table: &Table,
    name: &str,
    map: MapId,
    key: &[u8],
) -> Result<Option<Table>, Refused> {
    let keyspace = ranged(table, name)?;
    let two = neighbours_at(keyspace, map, key)?;
    let merge = Reshape::Merge { partitions: two };
    if keyspace.reshaping.under_way.contains(&merge) {
        return Ok(None);
    }
    Ok(Some(reshape::begin(table, keyspace.id, merge)?))
}

/// The range that ends where this key of this map begins another one, and that other one.
///
/// # Errors No range begins there.
pub fn neighbours_at(
    keyspace: &Keyspace,
    map: MapId,
    key: &[u8],
) -> Result<[PartitionId; 2], Refused> {
    let begins = starts(keyspace)
        .windows(2)
        .find(|two| two[1].map == map && *two[1].key == *key);
    let two = begins.ok_or_else(|| Refused::NoSplit(keyspace.name.clone()))?;
    Ok([two[0].partition, two[1].partition])
}

fn ranged<'a>(table: &'a Table, name: &str) -> Result<&'a Keyspace, Refused> {
    let keyspace = &table.keyspaces[place(table, name)?];
    if keyspace.mode == Mode::Range {
        Ok(keyspace)
    } else {
        Err(Refused::NoRanges(name.to_owned()))
    }
}

fn starts(keyspace: &Keyspace) -> &[RangeStart] {
    if let Division::Ranges(ranges) = &keyspace.division {
        ranges.starts()
    } else {
        &[]
    }
}

fn place(table: &Table, name: &str) -> Result<usize, Refused> {
    let found = table.keyspaces.iter().position(|k| k.name == name);
    found.ok_or_else(|| Refused::no_keyspace(name, table.keyspaces.iter().map(|k| &k.name)))
}
