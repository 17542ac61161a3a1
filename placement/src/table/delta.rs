//! Differences of two tables, which travel instead of whole tables.
//!
//! A delta names the table that it applies to and the table that results, and both names are
//! checked. So a member that holds another base, or that computes another result, notices it before
//! it acts.

use super::leveled::{self, Additions, Bearers};
use super::{Annex, Invalid, Keyspace, MapEntry, Member, Partition, Settings, Table, TableName};
use crate::access::AccessDelta;
use crate::division::{Arcs, Brought, Division, NotDivided, RangeStart, Ranges, RunStart, Runs};
use crate::id::{Age, KeyspaceId, MapId, MemberId, PartitionId, Term, Version};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The difference that turns one table into another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableDelta {
    /// The table that this applies to.
    pub base: TableName,
    /// The level of the resulting table.
    level: u16,
    changes: TableChanges,
    /// The difference in who may do what.
    access: AccessDelta,
    /// The annex, if it changed.
    annex: Option<Arc<Annex>>,
}

/// The contents of a delta, as they are encoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TableChanges {
    /// The resulting table.
    target: TableName,
    settings: Option<Settings>,
    members_gone: Vec<MemberId>,
    /// New or changed members.
    members: Vec<Arc<Member>>,
    voters: Option<Vec<MemberId>>,
    next_age: Age,
    keyspaces_gone: Vec<KeyspaceId>,
    keyspaces: Vec<KeyspaceDelta>,
    next_keyspace: KeyspaceId,
    maps_gone: Vec<MapId>,
    maps: Vec<MapEntry>,
    next_map: MapId,
}

/// The difference of one keyspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct KeyspaceDelta {
    id: KeyspaceId,
    /// Whether the keyspace is new: nothing of a former one of its number is left.
    whole: bool,
    /// The keyspace without partitions, if any setting changed. A new keyspace has its division of
    /// keys here as well.
    head: Option<Keyspace>,
    division: Option<DivisionDelta>,
    /// Partitions that were split or merged.
    gone: Vec<PartitionId>,
    /// New or changed partitions.
    partitions: Vec<Arc<Partition>>,
}

/// Changed starts of partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum DivisionDelta {
    Runs(SortedListDelta<RunStart>),
    Arcs(SortedListDelta<Brought>),
    Ranges(SortedListDelta<RangeStart>),
}

/// Removed places of a sorted list, by their numbers, and new ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SortedListDelta<T> {
    gone: Vec<u32>,
    new: Vec<T>,
}

/// Why a delta does not apply. The old table stays as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeltaError {
    /// It is for another table.
    #[error("the delta is for another table than the one at hand")]
    Base,
    /// The result is another table than the delta names.
    #[error("the delta leads to another table than it names")]
    Target,
    /// It refers to something that the base does not have.
    #[error("the delta refers to a keyspace or partition that does not exist")]
    Dangling,
    /// The resulting division of keys is invalid.
    #[error("the delta leads to a keyspace whose keys are divided wrongly: {0}")]
    Division(#[from] NotDivided),
    /// The resulting table is invalid.
    #[error("the delta leads to an invalid table: {0}")]
    Invalid(#[from] Invalid),
}

impl TableDelta {
    /// The difference that turns `old` into `new`.
    #[must_use]
    pub fn between(old: &Table, new: &Table) -> Self {
        let known: BTreeMap<MemberId, &Arc<Member>> =
            old.members.iter().map(|m| (m.id, m)).collect();
        let kept: BTreeMap<MemberId, &Arc<Member>> =
            new.members.iter().map(|m| (m.id, m)).collect();
        let changes = TableChanges {
            target: new.name(),
            settings: (old.settings != new.settings).then(|| new.settings.clone()),
            members_gone: known
                .keys()
                .filter(|id| !kept.contains_key(id))
                .copied()
                .collect(),
            members: new
                .members
                .iter()
                .filter(|m| known.get(&m.id).is_none_or(|k| !same(k, m)))
                .cloned()
                .collect(),
            voters: (old.voters != new.voters).then(|| new.voters.clone()),
            next_age: new.next_age,
            keyspaces_gone: old
                .keyspaces
                .iter()
                .map(|k| k.id)
                .filter(|id| new.keyspace(*id).is_none())
                .collect(),
            keyspaces: new
                .keyspaces
                .iter()
                .filter_map(|k| KeyspaceDelta::between(old.keyspace(k.id), k))
                .collect(),
            next_keyspace: new.next_keyspace,
            maps_gone: old
                .maps
                .iter()
                .map(|m| m.id)
                .filter(|id| new.map(*id).is_none())
                .collect(),
            maps: new
                .maps
                .iter()
                .filter(|m| old.map(m.id) != Some(m))
                .cloned()
                .collect(),
            next_map: new.next_map,
        };
        Self {
            base: old.name(),
            level: new.level,
            changes,
            access: AccessDelta::between(&old.access, &new.access),
            annex: (old.annex != new.annex).then(|| new.annex.clone()),
        }
    }

    /// The table that results.
    #[must_use]
    pub const fn target(&self) -> TableName {
        self.changes.target
    }

    /// The level of that table. Every receiver of this delta speaks it.
    #[must_use]
    pub const fn level(&self) -> u16 {
        self.level
    }

    /// Applies this delta to `old`.
    ///
    /// # Errors
    /// `old` is not the base, or the result is invalid, or it is not the table that the delta
    /// names.
    pub fn apply(&self, old: &Table) -> Result<Table, DeltaError> {
        if old.name() != self.base {
            return Err(DeltaError::Base);
        }
        let new = self.apply_unnamed(old)?;
        if new.name() == self.changes.target {
            Ok(new)
        } else {
            Err(DeltaError::Target)
        }
    }

    /// Applies this delta without checking names: for tests, which change the contents of deltas.
    ///
    /// # Errors
    /// The result is invalid.
    #[doc(hidden)]
    pub fn apply_unnamed(&self, old: &Table) -> Result<Table, DeltaError> {
        let changes = &self.changes;
        let new = Table {
            level: self.level,
            cluster: changes.target.cluster,
            term: changes.target.term,
            version: changes.target.version,
            order_key: old.order_key,
            settings: changes.settings.as_ref().unwrap_or(&old.settings).clone(),
            members: changes.apply_members(old),
            voters: changes.voters.as_ref().unwrap_or(&old.voters).clone(),
            next_age: changes.next_age,
            keyspaces: changes.apply_keyspaces(old)?,
            next_keyspace: changes.next_keyspace,
            maps: changes.apply_maps(old),
            next_map: changes.next_map,
            access: if self.access.is_nothing() {
                old.access.clone()
            } else {
                Arc::new(self.access.apply(&old.access))
            },
            annex: self.annex.as_ref().unwrap_or(&old.annex).clone(),
        };
        new.validate()?;
        Ok(new)
    }
}

/// What follows the cluster (`leveled`).
type Rest<C> = ((Term, Version, u64), C);

impl Serialize for TableDelta {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let TableName {
            cluster,
            term,
            version,
            hash,
        } = self.base;
        let rest: Rest<&TableChanges> = ((term, version, hash), &self.changes);
        let heads = self
            .changes
            .keyspaces
            .iter()
            .filter_map(|k| k.head.as_ref());
        let additions = Additions {
            tags: heads.clone().map(|head| head.tags).collect(),
            limits: leveled::limits_of(&self.changes.maps),
            access: &self.access,
            keys: leveled::keys_of(&self.changes.members),
            annex: &self.annex,
            durabilities: leveled::durabilities_of(heads),
            starts: leveled::starts_of(&self.changes.members),
        };
        leveled::serialize(serializer, self.level, cluster, &rest, &additions)
    }
}

impl<'de> Deserialize<'de> for TableDelta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (level, cluster, rest, access, annex) =
            leveled::deserialize(deserializer, |(_, changes): &mut Rest<TableChanges>| {
                let heads = changes.keyspaces.iter_mut().map(|k| k.head.as_mut());
                Bearers {
                    keyspaces: heads.flatten().collect(),
                    maps: &mut changes.maps,
                    members: &mut changes.members,
                }
            })?;
        let ((term, version, hash), changes) = rest;
        let base = TableName {
            cluster,
            term,
            version,
            hash,
        };
        Ok(Self {
            base,
            level,
            changes,
            access,
            annex,
        })
    }
}

impl TableChanges {
    fn apply_members(&self, old: &Table) -> Vec<Arc<Member>> {
        let mut members: BTreeMap<MemberId, &Arc<Member>> =
            old.members.iter().map(|m| (m.id, m)).collect();
        self.members_gone
            .iter()
            .for_each(|id| _ = members.remove(id));
        self.members
            .iter()
            .for_each(|m| _ = members.insert(m.id, m));
        let mut members: Vec<_> = members.into_values().cloned().collect();
        members.sort_by_key(|m| m.age);
        members
    }

    fn apply_keyspaces(&self, old: &Table) -> Result<Vec<Keyspace>, DeltaError> {
        let mut keyspaces: BTreeMap<KeyspaceId, Keyspace> =
            old.keyspaces.iter().map(|k| (k.id, k.clone())).collect();
        self.keyspaces_gone
            .iter()
            .for_each(|id| _ = keyspaces.remove(id));
        for delta in &self.keyspaces {
            let keyspace = delta.apply(keyspaces.remove(&delta.id))?;
            keyspaces.insert(delta.id, keyspace);
        }
        Ok(keyspaces.into_values().collect())
    }

    fn apply_maps(&self, old: &Table) -> Vec<MapEntry> {
        let mut maps: BTreeMap<MapId, &MapEntry> = old.maps.iter().map(|m| (m.id, m)).collect();
        self.maps_gone.iter().for_each(|id| _ = maps.remove(id));
        self.maps.iter().for_each(|m| _ = maps.insert(m.id, m));
        maps.into_values().cloned().collect()
    }
}

impl KeyspaceDelta {
    fn between(old: Option<&Keyspace>, new: &Keyspace) -> Option<Self> {
        let (Some(old), true) = (
            old,
            old.is_some_and(|old| DivisionDelta::is_possible(&old.division, &new.division)),
        ) else {
            let (head, partitions) = (
                Keyspace {
                    partitions: Vec::new(),
                    ..new.clone()
                },
                new.partitions.clone(),
            );
            return Some(Self {
                id: new.id,
                head: Some(head),
                division: None,
                gone: Vec::new(),
                partitions,
                whole: true,
            });
        };
        let delta = Self {
            id: new.id,
            head: (!same_head(old, new)).then(|| Keyspace {
                partitions: Vec::new(),
                division: Division::default(),
                ..new.clone()
            }),
            division: (old.division != new.division)
                .then(|| DivisionDelta::between(&old.division, &new.division)),
            gone: old
                .partitions
                .iter()
                .map(|p| p.id)
                .filter(|id| new.partition(*id).is_none())
                .collect(),
            partitions: new
                .partitions
                .iter()
                .filter(|p| old.partition(p.id).is_none_or(|before| !same(before, p)))
                .cloned()
                .collect(),
            whole: false,
        };
        let nothing = delta.head.is_none()
            && delta.division.is_none()
            && delta.gone.is_empty()
            && delta.partitions.is_empty();
        (!nothing).then_some(delta)
    }

    /// Allocates no more than the size of the delta.
    fn apply(&self, old: Option<Keyspace>) -> Result<Keyspace, DeltaError> {
        if self.head.as_ref().is_some_and(|head| head.id != self.id) {
            return Err(DeltaError::Dangling);
        }
        if self.whole {
            let head = self.head.clone().ok_or(DeltaError::Dangling)?;
            return Ok(Keyspace {
                partitions: self.partitions.clone(),
                ..head
            });
        }
        let Keyspace {
            partitions,
            division,
            ..
        } = old.as_ref().ok_or(DeltaError::Dangling)?;
        let mut known: BTreeMap<PartitionId, &Arc<Partition>> =
            partitions.iter().map(|p| (p.id, p)).collect();
        self.gone.iter().for_each(|id| _ = known.remove(id));
        self.partitions
            .iter()
            .for_each(|p| _ = known.insert(p.id, p));
        let partitions = known.into_values().cloned().collect();
        let division = match &self.division {
            Some(delta) => delta.apply(division)?,
            None => division.clone(),
        };
        let head = self.head.clone().or(old).ok_or(DeltaError::Dangling)?;
        Ok(Keyspace {
            partitions,
            division,
            ..head
        })
    }
}

impl DivisionDelta {
    /// Whether one division becomes the other only by other places.
    const fn is_possible(old: &Division, new: &Division) -> bool {
        matches!(
            (old, new),
            (Division::Slots, Division::Slots)
                | (Division::Runs(_), Division::Runs(_))
                | (Division::Arcs(_), Division::Arcs(_))
                | (Division::Ranges(_), Division::Ranges(_))
        )
    }

    fn between(old: &Division, new: &Division) -> Self {
        match (old, new) {
            (Division::Runs(old), Division::Runs(new)) => {
                Self::Runs(SortedListDelta::between(old.starts(), new.starts()))
            }
            (Division::Arcs(old), Division::Arcs(new)) => Self::Arcs(SortedListDelta::between(
                &old.brought().collect::<Vec<_>>(),
                &new.brought().collect::<Vec<_>>(),
            )),
            (Division::Ranges(old), Division::Ranges(new)) => {
                Self::Ranges(SortedListDelta::between(old.starts(), new.starts()))
            }
            // Other divisions are the same, or are encoded whole.
            _ => Self::Runs(SortedListDelta {
                gone: Vec::new(),
                new: Vec::new(),
            }),
        }
    }

    fn apply(&self, old: &Division) -> Result<Division, DeltaError> {
        match (self, old) {
            (Self::Runs(places), Division::Runs(old)) => {
                let runs =
                    Runs::new(places.apply(old.starts().to_vec())?).map_err(NotDivided::Runs)?;
                Ok(Division::Runs(Arc::new(runs)))
            }
            (Self::Arcs(places), Division::Arcs(old)) => {
                let arcs =
                    Arcs::new(places.apply(old.brought().collect())?).map_err(NotDivided::Arcs)?;
                Ok(Division::Arcs(Arc::new(arcs)))
            }
            (Self::Ranges(places), Division::Ranges(old)) => {
                let ranges = Ranges::new(places.apply(old.starts().to_vec())?)
                    .map_err(NotDivided::Ranges)?;
                Ok(Division::Ranges(Arc::new(ranges)))
            }
            _ => Err(DeltaError::Dangling),
        }
    }
}

impl<T: Ord + Clone> SortedListDelta<T> {
    /// Both lists are in order.
    fn between(old: &[T], new: &[T]) -> Self {
        let gone = (0..)
            .zip(old)
            .filter(|(_, place)| new.binary_search(place).is_err())
            .map(|(number, _)| number)
            .collect();
        Self {
            gone,
            new: new
                .iter()
                .filter(|place| old.binary_search(place).is_err())
                .cloned()
                .collect(),
        }
    }

    fn apply(&self, mut old: Vec<T>) -> Result<Vec<T>, DeltaError> {
        if !self.gone.is_sorted_by(|a, b| a < b)
            || self
                .gone
                .last()
                .is_some_and(|last| *last as usize >= old.len())
        {
            return Err(DeltaError::Dangling);
        }
        let mut number = 0;
        old.retain(|_| {
            number += 1;
            self.gone.binary_search(&(number - 1)).is_err()
        });
        old.extend(self.new.iter().cloned());
        old.sort_unstable();
        Ok(old)
    }
}

/// Successive tables share what did not change, so most comparisons end at the pointer.
fn same<T: PartialEq>(one: &Arc<T>, other: &Arc<T>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

/// Whether everything but the partitions and their division of keys is the same.
fn same_head(one: &Keyspace, other: &Keyspace) -> bool {
    let Keyspace {
        id,
        name,
        mode,
        backups,
        min_in_sync,
        on_loss,
        durability,
        durable_since,
        default_ttl_ms,
        eviction,
        ordered,
        tags,
        rules,
        reshaping,
        division: _,
        partitions: _,
    } = other;
    (
        (one.id, one.durability, one.durable_since),
        &one.name,
        one.mode,
        one.backups,
        one.min_in_sync,
        one.on_loss,
        one.default_ttl_ms,
        one.eviction,
        one.ordered,
        one.tags,
        &one.rules,
        &one.reshaping,
    ) == (
        (*id, *durability, *durable_since),
        name,
        *mode,
        *backups,
        *min_in_sync,
        *on_loss,
        *default_ttl_ms,
        *eviction,
        *ordered,
        *tags,
        rules,
        reshaping,
    )
}
