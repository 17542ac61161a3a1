//! Encodings that contain their level: `0, level, cluster, the rest`.
//!
//! The 0 stands where tables without a level had their cluster, and no cluster has that number
//! (`Invalid::Cluster`).

use crate::id::ClusterId;
use crate::level::LEVELS;
use serde::de::{self, DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// The beginning of every encoding.
const MARK: ClusterId = ClusterId(0);

/// Encodes a table or a delta of this level.
pub(super) fn serialize<S: Serializer, R: Serialize>(
    serializer: S,
    level: u16,
    cluster: ClusterId,
    rest: &R,
) -> Result<S::Ok, S::Error> {
    (MARK, level, cluster, rest).serialize(serializer)
}

/// Decodes the level, the cluster and the rest.
pub(super) fn deserialize<'de, D: Deserializer<'de>, R: DeserializeOwned>(
    deserializer: D,
) -> Result<(u16, ClusterId, R), D::Error> {
    deserializer.deserialize_tuple(4, Parts(PhantomData))
}

struct Parts<R>(PhantomData<R>);

impl<'de, R: DeserializeOwned> Visitor<'de> for Parts<R> {
    type Value = (u16, ClusterId, R);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table or a delta")
    }

    // Not derived: the level is judged before what follows is read, which another level lays out
    // differently.
    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        fn next<'de, T: DeserializeOwned, A: SeqAccess<'de>>(parts: &mut A) -> Result<T, A::Error> {
            parts
                .next_element()?
                .ok_or_else(|| de::Error::custom("the table ends too early"))
        }
        if next::<ClusterId, A>(&mut parts)? != MARK {
            return Err(de::Error::custom("a table that does not say its level"));
        }
        let level: u16 = next(&mut parts)?;
        let (least, most) = LEVELS;
        if !(least..=most).contains(&level) {
            return Err(de::Error::custom(format!(
                "the table has level {level}, and this program knows the levels {least} to \
                 {most}: update the program"
            )));
        }
        Ok((level, next(&mut parts)?, next(&mut parts)?))
    }
}
