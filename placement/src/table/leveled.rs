//! Encodings that contain their level.
//!
//! ```text
//!   0, level, cluster, the rest, the tags of the keyspaces, the limits of the maps, who may do what,
//!   the keys of the members, the annex; from level 17 on: the durabilities of the keyspaces,
//!   and the starts of the members
//! ```
//!
//! The 0 stands where tables without a level had their cluster, and no cluster has that number
//! (`Invalid::Cluster`).

use super::{Invalid, Keyspace, MapEntry, MapLimits, Member};
use crate::durability::Durability;
use crate::id::{ClusterId, KeyspaceId, MapId, MemberId, Version};
use crate::level::{DURABILITY, LEVELS};
use crate::tags::Tags;
use crate::vote_key::VoteKey;
use serde::de::{self, DeserializeOwned, SeqAccess, Visitor};
use serde::ser::SerializeTuple;
use serde::{Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// The beginning of every encoding.
const MARK: ClusterId = ClusterId(0);

/// What the rest does not contain.
pub(super) struct Additions<A, X> {
    /// The tags of the keyspaces in the rest.
    pub(super) tags: Vec<Tags>,
    /// The limits of those maps in the rest that have some.
    pub(super) limits: Vec<(MapId, MapLimits)>,
    /// Who may do what, or the difference in that.
    pub(super) access: A,
    /// The keys of those members in the rest that have one.
    pub(super) keys: Vec<(MemberId, VoteKey)>,
    /// The annex, or the changed one.
    pub(super) annex: X,
    /// The durabilities of those keyspaces in the rest that have another one than `None`.
    pub(super) durabilities: Vec<(KeyspaceId, Durability, Version)>,
    /// The starts of those members in the rest that have a directory.
    pub(super) starts: Vec<(MemberId, u64)>,
}

/// The limits of these maps.
pub(super) fn limits_of(maps: &[MapEntry]) -> Vec<(MapId, MapLimits)> {
    let all = maps.iter().map(|map| (map.id, map.limits));
    all.filter(|(_, limits)| *limits != MapLimits::NONE)
        .collect()
}

/// The keys of these members.
pub(super) fn keys_of(members: &[Arc<Member>]) -> Vec<(MemberId, VoteKey)> {
    let all = members.iter();
    all.filter_map(|m| Some((m.id, m.vote_key?))).collect()
}

/// The durabilities of these keyspaces.
pub(super) fn durabilities_of<'a>(
    keyspaces: impl Iterator<Item = &'a Keyspace>,
) -> Vec<(KeyspaceId, Durability, Version)> {
    keyspaces
        .filter(|keyspace| keyspace.durability != Durability::None)
        .map(|keyspace| (keyspace.id, keyspace.durability, keyspace.durable_since))
        .collect()
}

/// The starts of these members.
pub(super) fn starts_of(members: &[Arc<Member>]) -> Vec<(MemberId, u64)> {
    let all = members.iter();
    all.filter_map(|m| Some((m.id, m.start?))).collect()
}

/// Encodes a table or a delta of this level.
pub(super) fn serialize<S: Serializer, R: Serialize, A: Serialize, X: Serialize>(
    serializer: S,
    level: u16,
    cluster: ClusterId,
    rest: &R,
    Additions {
        tags,
        limits,
        access,
        keys,
        annex,
        durabilities,
        starts,
    }: &Additions<A, X>,
) -> Result<S::Ok, S::Error> {
    let mut parts = serializer.serialize_tuple(parts_of(level))?;
    parts.serialize_element(&MARK)?;
    parts.serialize_element(&level)?;
    parts.serialize_element(&cluster)?;
    parts.serialize_element(rest)?;
    parts.serialize_element(tags)?;
    parts.serialize_element(limits)?;
    parts.serialize_element(access)?;
    parts.serialize_element(keys)?;
    parts.serialize_element(annex)?;
    if level >= DURABILITY {
        parts.serialize_element(durabilities)?;
        parts.serialize_element(starts)?;
    }
    parts.end()
}

/// The number of parts at this level.
const fn parts_of(level: u16) -> usize {
    if level >= DURABILITY { 11 } else { 9 }
}

/// The parts of a table or a delta that have additions, in the order of the rest.
pub(super) struct Bearers<'a> {
    pub(super) keyspaces: Vec<&'a mut Keyspace>,
    /// In order of id.
    pub(super) maps: &'a mut [MapEntry],
    pub(super) members: &'a mut [Arc<Member>],
}

type Find<R> = fn(&mut R) -> Bearers<'_>;

/// What an encoding contains: the level, the cluster, the rest, who may do what, and the annex.
pub(super) type Decoded<R, A, X> = (u16, ClusterId, R, A, X);

/// Decodes a table or a delta.
pub(super) fn deserialize<'de, D, R, A, X>(
    deserializer: D,
    bearers: Find<R>,
) -> Result<Decoded<R, A, X>, D::Error>
where
    D: Deserializer<'de>,
    R: DeserializeOwned,
    A: DeserializeOwned,
    X: DeserializeOwned,
{
    // The level is the second part. At a lower one, fewer parts are read.
    deserializer.deserialize_tuple(parts_of(LEVELS.1), Parts(bearers, PhantomData))
}

struct Parts<R, A, X>(Find<R>, PhantomData<(A, X)>);

impl<'de, R, A, X> Visitor<'de> for Parts<R, A, X>
where
    R: DeserializeOwned,
    A: DeserializeOwned,
    X: DeserializeOwned,
{
    type Value = Decoded<R, A, X>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table or a delta")
    }

    // Not derived: the level is judged before what follows is read, which another level lays out
    // differently.
    fn visit_seq<S: SeqAccess<'de>>(self, mut parts: S) -> Result<Self::Value, S::Error> {
        fn next<'de, T: DeserializeOwned, A: SeqAccess<'de>>(parts: &mut A) -> Result<T, A::Error> {
            parts
                .next_element()?
                .ok_or_else(|| de::Error::custom("the table ends too early"))
        }
        if next::<ClusterId, S>(&mut parts)? != MARK {
            return Err(de::Error::custom("a table that does not say its level"));
        }
        let level: u16 = next(&mut parts)?;
        if !(LEVELS.0..=LEVELS.1).contains(&level) {
            return Err(de::Error::custom(Invalid::Level(level)));
        }
        let (cluster, mut rest) = (next(&mut parts)?, next(&mut parts)?);
        let tags: Vec<Tags> = next(&mut parts)?;
        let limits: Vec<(MapId, MapLimits)> = next(&mut parts)?;
        let access = next(&mut parts)?;
        let keys: Vec<(MemberId, VoteKey)> = next(&mut parts)?;
        let annex = next(&mut parts)?;
        let (mut durabilities, mut starts) = (Vec::new(), Vec::new());
        if level >= DURABILITY {
            durabilities = next::<Vec<(KeyspaceId, Durability, Version)>, S>(&mut parts)?;
            starts = next::<Vec<(MemberId, u64)>, S>(&mut parts)?;
        }
        let Bearers {
            mut keyspaces,
            maps,
            members,
        } = (self.0)(&mut rest);
        if tags.len() != keyspaces.len() {
            return Err(de::Error::custom("the table has tags of no keyspace"));
        }
        for (keyspace, tags) in keyspaces.iter_mut().zip(tags) {
            keyspace.tags = tags;
        }
        // Keyspaces and durabilities stand in the same order.
        let mut keyspaces = keyspaces.into_iter();
        for (id, durability, since) in durabilities {
            let keyspace = keyspaces.find(|k| k.id == id);
            let keyspace = keyspace
                .ok_or_else(|| de::Error::custom("the table has a durability of no keyspace"))?;
            keyspace.durability = durability;
            keyspace.durable_since = since;
        }
        for (id, limits) in limits {
            let map = maps.binary_search_by_key(&id, |map| map.id);
            let map = map.map_err(|_| de::Error::custom("the table has limits of no map"))?;
            maps[map].limits = limits;
        }
        // Members, keys and starts stand in the same order.
        let mut keyed = members.iter_mut();
        for (id, key) in keys {
            let member = keyed.find(|m| m.id == id);
            let member =
                member.ok_or_else(|| de::Error::custom("the table has a key of no member"))?;
            Arc::make_mut(member).vote_key = Some(key);
        }
        let mut started = members.iter_mut();
        for (id, start) in starts {
            let member = started.find(|m| m.id == id);
            let member =
                member.ok_or_else(|| de::Error::custom("the table has a start of no member"))?;
            Arc::make_mut(member).start = Some(start);
        }
        Ok((level, cluster, rest, access, annex))
    }
}
