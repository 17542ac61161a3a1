//! Encodings that contain their level.
//!
//! ```text
//!   0, level, cluster, the rest, the tags of the keyspaces, the limits of the maps, who may do what,
//!   the keys of the members, the annex
//! ```
//!
//! The 0 stands where tables without a level had their cluster, and no cluster has that number
//! (`Invalid::Cluster`).

use super::{Invalid, Keyspace, MapEntry, MapLimits, Member};
use crate::id::{ClusterId, MapId, MemberId};
use crate::level::LEVELS;
use crate::tags::Tags;
use crate::vote_key::VoteKey;
use serde::de::{self, DeserializeOwned, SeqAccess, Visitor};
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
    }: &Additions<A, X>,
) -> Result<S::Ok, S::Error> {
    let all = (
        MARK, level, cluster, rest, tags, limits, access, keys, annex,
    );
    all.serialize(serializer)
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
    // The number of parts.
    deserializer.deserialize_tuple(9, Parts(bearers, PhantomData))
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
        let Bearers {
            keyspaces,
            maps,
            members,
        } = (self.0)(&mut rest);
        if tags.len() != keyspaces.len() {
            return Err(de::Error::custom("the table has tags of no keyspace"));
        }
        for (keyspace, tags) in keyspaces.into_iter().zip(tags) {
            keyspace.tags = tags;
        }
        for (id, limits) in limits {
            let map = maps.binary_search_by_key(&id, |map| map.id);
            let map = map.map_err(|_| de::Error::custom("the table has limits of no map"))?;
            maps[map].limits = limits;
        }
        // Members and keys stand in the same order.
        let mut members = members.iter_mut();
        for (id, key) in keys {
            let member = members.find(|m| m.id == id);
            let member =
                member.ok_or_else(|| de::Error::custom("the table has a key of no member"))?;
            Arc::make_mut(member).vote_key = Some(key);
        }
        Ok((level, cluster, rest, access, next(&mut parts)?))
    }
}
