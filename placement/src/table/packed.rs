//! The encoding of whole tables. A member is named by its place in the list, which takes a byte or
//! two instead of nine, and partitions contain only values that differ from the expected ones. A
//! table of 16,384 partitions in three copies on 100 members takes a third of the size with ids.

use super::Annex;
use super::{
    Age, Keyspace, MapEntry, Member, Origin, Partition, Replica, ReplicaState, Settings, Table,
    leveled::{self, Additions, Bearers},
};
use crate::access::AccessSettings;
use crate::id::{
    ClusterId, Epoch, KeyspaceId, Lineage, MapId, MemberId, OrderKey, PartitionId, Term, Version,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::collections::HashMap;
use std::sync::Arc;

/// A table as it is encoded, without its level and its cluster.
#[derive(Debug, Serialize, Deserialize)]
struct Packed {
    term: Term,
    version: Version,
    /// In JSON it is null ([`OrderKey`]).
    #[serde(rename = "order")]
    order_key: OrderKey,
    settings: Settings,
    members: Vec<Arc<Member>>,
    voters: Vec<u16>,
    next_age: Age,
    /// The keyspaces, without their partitions.
    keyspaces: Vec<Keyspace>,
    /// The partitions of each keyspace.
    partitions: Vec<Vec<PackedPartition>>,
    next_keyspace: KeyspaceId,
    maps: Vec<MapEntry>,
    next_map: MapId,
}

#[derive(Debug, Serialize, Deserialize)]
struct PackedPartition {
    /// How many numbers are skipped between the partition before it and this one.
    skipped: u32,
    /// Twice the place of a member, plus one for a learner.
    replicas: Vec<u16>,
    epoch: Epoch,
    /// How many epochs the present tenure has lasted.
    tenure: u64,
    lineage: Lineage,
    goal: Option<Vec<u16>>,
    from: Vec<Origin>,
}

/// Why an encoding is no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Unpacked {
    /// It names a member that is not in its list.
    #[error("the table names a member that it does not list")]
    Member,
    /// The numbers of keyspaces differ in two places.
    #[error("the table's partitions belong to no keyspace")]
    Partition,
    /// A tenure began before the first epoch.
    #[error("a tenure of the table is longer than its partition's epochs")]
    Tenure,
}

/// The place of a member that is not in the list. No list of members is that long.
const UNLISTED: u16 = u16::MAX;

impl From<Table> for Packed {
    fn from(table: Table) -> Self {
        let Table {
            level: _,
            cluster: _,
            term,
            version,
            order_key,
            settings,
            members,
            voters,
            next_age,
            mut keyspaces,
            next_keyspace,
            maps,
            next_map,
            access: _,
            annex: _,
        } = table;
        let places: HashMap<MemberId, u16> =
            members.iter().map(|m| m.id).zip(0..UNLISTED / 2).collect();
        let place = |m: &MemberId| places.get(m).copied().unwrap_or(UNLISTED / 2);
        let replica =
            |r: &Replica| 2 * place(&r.member) + u16::from(r.state == ReplicaState::Learner);
        let pack = |keyspace: &mut Keyspace| {
            let mut next = 0_u32;
            let pack = |p: Arc<Partition>| {
                let skipped = p.id.0.wrapping_sub(next);
                next = p.id.0.wrapping_add(1);
                PackedPartition {
                    skipped,
                    replicas: p.replicas.iter().map(replica).collect(),
                    epoch: p.epoch,
                    tenure: p.epoch.0.wrapping_sub(p.since.0),
                    lineage: p.lineage,
                    goal: p.goal.as_ref().map(|goal| goal.iter().map(place).collect()),
                    from: p.from.clone(),
                }
            };
            std::mem::take(&mut keyspace.partitions)
                .into_iter()
                .map(pack)
                .collect()
        };
        let partitions = keyspaces.iter_mut().map(pack).collect();
        let voters = voters.iter().map(place).collect();
        Self {
            term,
            version,
            order_key,
            settings,
            members,
            voters,
            next_age,
            keyspaces,
            partitions,
            next_keyspace,
            maps,
            next_map,
        }
    }
}

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let packed = Packed::from(self.clone());
        // JSON is for reports, which show neither hashes of passwords nor those of tokens. What is
        // in the annex, simulations do not need.
        let none = (AccessSettings::default(), Annex::default());
        let (access, annex) = match serializer.is_human_readable() {
            true => (&none.0, &none.1),
            false => (&*self.access, &*self.annex),
        };
        let additions = Additions {
            tags: packed.keyspaces.iter().map(|k| k.tags).collect(),
            limits: leveled::limits_of(&packed.maps),
            access,
            keys: leveled::keys_of(&packed.members),
            annex,
            durabilities: leveled::durabilities_of(packed.keyspaces.iter()),
            starts: leveled::starts_of(&packed.members),
        };
        leveled::serialize(serializer, self.level, self.cluster, &packed, &additions)
    }
}

impl<'de> Deserialize<'de> for Table {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (level, cluster, packed, access, annex) =
            leveled::deserialize(deserializer, |packed: &mut Packed| Bearers {
                keyspaces: packed.keyspaces.iter_mut().collect(),
                maps: &mut packed.maps,
                members: &mut packed.members,
            })?;
        packed
            .unpack(level, cluster, access, annex)
            .map_err(de::Error::custom)
    }
}

impl Packed {
    fn unpack(
        self,
        level: u16,
        cluster: ClusterId,
        access: AccessSettings,
        annex: Annex,
    ) -> Result<Table, Unpacked> {
        let Self {
            term,
            version,
            order_key,
            settings,
            members,
            voters,
            next_age,
            mut keyspaces,
            partitions,
            next_keyspace,
            maps,
            next_map,
        } = self;
        if keyspaces.len() != partitions.len() {
            return Err(Unpacked::Partition);
        }
        let member = |place: u16| {
            members
                .get(usize::from(place))
                .map(|m| m.id)
                .ok_or(Unpacked::Member)
        };
        for (keyspace, packed) in keyspaces.iter_mut().zip(partitions) {
            let mut next = 0_u32;
            let unpack = |p: PackedPartition| {
                let id = next.wrapping_add(p.skipped);
                next = id.wrapping_add(1);
                let state = |packed: u16| {
                    if packed % 2 == 1 {
                        ReplicaState::Learner
                    } else {
                        ReplicaState::InSync
                    }
                };
                let replica = |packed: u16| {
                    Ok(Replica {
                        member: member(packed / 2)?,
                        state: state(packed),
                    })
                };
                Ok(Arc::new(Partition {
                    id: PartitionId(id),
                    replicas: p
                        .replicas
                        .into_iter()
                        .map(replica)
                        .collect::<Result<_, _>>()?,
                    epoch: p.epoch,
                    since: Epoch(p.epoch.0.checked_sub(p.tenure).ok_or(Unpacked::Tenure)?),
                    lineage: p.lineage,
                    goal: p
                        .goal
                        .map(|goal| goal.into_iter().map(member).collect())
                        .transpose()?,
                    from: p.from,
                }))
            };
            keyspace.partitions = packed.into_iter().map(unpack).collect::<Result<_, _>>()?;
        }
        let voters = voters.into_iter().map(member).collect::<Result<_, _>>()?;
        Ok(Table {
            level,
            cluster,
            term,
            version,
            order_key,
            settings,
            members,
            voters,
            next_age,
            keyspaces,
            next_keyspace,
            maps,
            next_map,
            access: Arc::new(access),
            annex: Arc::new(annex),
        })
    }
}
