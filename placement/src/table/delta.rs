//! What differs between two tables: how tables travel.
//!
//! A delta is applied to one table only, by name, and what comes out must have the name that was promised. So a member
//! that holds another base, or that derives otherwise, notices before it acts.

use super::{Invalid, Keyspace, MapEntry, Member, Partition, Settings, Table, TableName};
use crate::id::{Age, KeyspaceId, MapId, MemberId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What turns one table into another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableDelta {
    /// The table that this applies to.
    pub base: TableName,
    /// The table that comes out.
    target: TableName,
    settings: Option<Settings>,
    members_gone: Vec<MemberId>,
    /// New, or other than before.
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

/// What is new in a keyspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct KeyspaceDelta {
    id: KeyspaceId,
    /// Everything but the partitions, where that is new.
    head: Option<Keyspace>,
    /// How many partitions there are.
    count: u32,
    /// Partitions that are new, or other than before.
    partitions: Vec<Arc<Partition>>,
}

/// Why a delta does not apply. The old table stays as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeltaError {
    /// It is for another table.
    #[error("the delta is for another table than the one at hand")]
    Base,
    /// It leads elsewhere than it says.
    #[error("the delta leads to another table than it names")]
    Target,
    /// It refers to what is not there.
    #[error("the delta refers to a keyspace or partition that is not there")]
    Dangling,
    /// It leads to a table that is not valid.
    #[error("the delta leads to an invalid table: {0}")]
    Invalid(#[from] Invalid),
}

impl TableDelta {
    /// What turns `old` into `new`.
    #[must_use]
    pub fn between(old: &Table, new: &Table) -> Self {
        let known: BTreeMap<MemberId, &Arc<Member>> = old.members.iter().map(|m| (m.id, m)).collect();
        let kept: BTreeMap<MemberId, &Arc<Member>> = new.members.iter().map(|m| (m.id, m)).collect();
        Self {
            base: old.name(),
            target: new.name(),
            settings: (old.settings != new.settings).then(|| new.settings.clone()),
            members_gone: known.keys().filter(|id| !kept.contains_key(id)).copied().collect(),
            members: new.members.iter().filter(|m| known.get(&m.id).is_none_or(|k| !same(k, m))).cloned().collect(),
            voters: (old.voters != new.voters).then(|| new.voters.clone()),
            next_age: new.next_age,
            keyspaces_gone: old.keyspaces.iter().map(|k| k.id).filter(|id| new.keyspace(*id).is_none()).collect(),
            keyspaces: new.keyspaces.iter().filter_map(|k| KeyspaceDelta::between(old.keyspace(k.id), k)).collect(),
            next_keyspace: new.next_keyspace,
            maps_gone: old.maps.iter().map(|m| m.id).filter(|id| new.map(*id).is_none()).collect(),
            maps: new.maps.iter().filter(|m| old.map(m.id) != Some(m)).cloned().collect(),
            next_map: new.next_map,
        }
    }

    /// The table that this leads to.
    #[must_use]
    pub const fn target(&self) -> TableName {
        self.target
    }

    /// The table that comes out of `old`.
    ///
    /// # Errors
    /// `old` is not the base, or what comes out is not valid or not what the delta promised.
    pub fn apply(&self, old: &Table) -> Result<Table, DeltaError> {
        if old.name() != self.base {
            return Err(DeltaError::Base);
        }
        let new = self.apply_unnamed(old)?;
        if new.name() == self.target { Ok(new) } else { Err(DeltaError::Target) }
    }

    /// What comes out of `old`, whatever the two are called: for tests, which change what a delta says.
    ///
    /// # Errors
    /// What comes out is not valid.
    #[doc(hidden)]
    pub fn apply_unnamed(&self, old: &Table) -> Result<Table, DeltaError> {
        let new = Table {
            cluster: self.target.cluster,
            term: self.target.term,
            version: self.target.version,
            settings: self.settings.as_ref().unwrap_or(&old.settings).clone(),
            members: self.apply_members(old),
            voters: self.voters.as_ref().unwrap_or(&old.voters).clone(),
            next_age: self.next_age,
            keyspaces: self.apply_keyspaces(old)?,
            next_keyspace: self.next_keyspace,
            maps: self.apply_maps(old),
            next_map: self.next_map,
        };
        new.validate()?;
        Ok(new)
    }

    fn apply_members(&self, old: &Table) -> Vec<Arc<Member>> {
        let mut members: BTreeMap<MemberId, &Arc<Member>> = old.members.iter().map(|m| (m.id, m)).collect();
        self.members_gone.iter().for_each(|id| _ = members.remove(id));
        self.members.iter().for_each(|m| _ = members.insert(m.id, m));
        let mut members: Vec<_> = members.into_values().cloned().collect();
        members.sort_by_key(|m| m.age);
        members
    }

    fn apply_keyspaces(&self, old: &Table) -> Result<Vec<Keyspace>, DeltaError> {
        let mut keyspaces: BTreeMap<KeyspaceId, Keyspace> = old.keyspaces.iter().map(|k| (k.id, k.clone())).collect();
        self.keyspaces_gone.iter().for_each(|id| _ = keyspaces.remove(id));
        for delta in &self.keyspaces {
            let keyspace = delta.apply(keyspaces.remove(&delta.id)).ok_or(DeltaError::Dangling)?;
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
        let before = |i: usize| old.and_then(|k| k.partitions.get(i));
        let changed = |(i, p): &(usize, &Arc<Partition>)| before(*i).is_none_or(|b| !same(b, p));
        let delta = Self {
            id: new.id,
            head: (old.is_none_or(|k| !same_head(k, new))).then(|| Keyspace { partitions: Vec::new(), ..new.clone() }),
            count: u32::try_from(new.partitions.len()).unwrap_or(u32::MAX),
            partitions: new.partitions.iter().enumerate().filter(changed).map(|(_, p)| p.clone()).collect(),
        };
        let nothing =
            delta.head.is_none() && delta.partitions.is_empty() && old.is_some_and(|k| k.partitions.len() == new.partitions.len());
        (!nothing).then_some(delta)
    }

    /// `None`: it refers to what is not there. Allocates no more than what the delta itself brought.
    fn apply(&self, old: Option<Keyspace>) -> Option<Keyspace> {
        let mut partitions = old.as_ref().map(|k| k.partitions.clone()).unwrap_or_default();
        let mut keyspace = match &self.head {
            Some(head) if head.id == self.id => head.clone(),
            Some(_) => return None,
            None => old?,
        };
        for partition in &self.partitions {
            let place = partition.id.0 as usize;
            if place == partitions.len() {
                partitions.push(partition.clone());
            } else {
                *partitions.get_mut(place)? = partition.clone();
            }
        }
        partitions.truncate(self.count as usize);
        keyspace.partitions = partitions;
        (keyspace.partitions.len() == self.count as usize).then_some(keyspace)
    }
}

/// Tables that follow one another share what did not change, so most comparisons end at the pointer.
fn same<T: PartialEq>(one: &Arc<T>, other: &Arc<T>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

fn same_head(one: &Keyspace, other: &Keyspace) -> bool {
    let Keyspace { id, name, mode, backups, min_in_sync, on_loss, default_ttl_ms, rules, division, partitions: _ } = other;
    (one.id, &one.name, one.mode, &one.division, one.backups, one.min_in_sync, one.on_loss, one.default_ttl_ms, &one.rules)
        == (*id, name, *mode, division, *backups, *min_in_sync, *on_loss, *default_ttl_ms, rules)
}
