//! Encodings that contain their level.
//!
//! ```text
//!   level 13             cluster, the rest
//!   level 14 and later   0, level, cluster, the rest
//! ```
//!
//! In place of the cluster, later levels have a 0. No cluster has that number (`Invalid::Cluster`).

use crate::id::ClusterId;
use crate::level::{LEVELS, MARKED};
use serde::de::{self, DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// Marks an encoding with a level. Tables of the first level have their cluster there.
const MARK: ClusterId = ClusterId(0);

/// Encodes a table or a delta of this level.
pub(super) fn serialize<S: Serializer, R: Serialize>(
    serializer: S,
    level: u16,
    cluster: ClusterId,
    rest: &R,
) -> Result<S::Ok, S::Error> {
    if level < MARKED {
        (cluster, rest).serialize(serializer)
    } else {
        (MARK, level, cluster, rest).serialize(serializer)
    }
}

/// Decodes the level, the cluster and the rest.
pub(super) fn deserialize<'de, D: Deserializer<'de>, R: DeserializeOwned>(
    deserializer: D,
) -> Result<(u16, ClusterId, R), D::Error> {
    // The largest possible number of parts.
    deserializer.deserialize_tuple(4, Parts(PhantomData))
}

struct Parts<R>(PhantomData<R>);

impl<'de, R: DeserializeOwned> Visitor<'de> for Parts<R> {
    type Value = (u16, ClusterId, R);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table or a delta")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        fn next<'de, T: DeserializeOwned, A: SeqAccess<'de>>(parts: &mut A) -> Result<T, A::Error> {
            parts
                .next_element()?
                .ok_or_else(|| de::Error::custom("the table ends too early"))
        }
        let first: ClusterId = next(&mut parts)?;
        if first != MARK {
            return Ok((LEVELS.0, first, next(&mut parts)?));
        }
        let level: u16 = next(&mut parts)?;
        if !(MARKED..=LEVELS.1).contains(&level) {
            let (least, most) = LEVELS;
            return Err(de::Error::custom(format!(
                "the table has level {level}, and this program knows the levels {least} to \
                 {most}: update the program"
            )));
        }
        Ok((level, next(&mut parts)?, next(&mut parts)?))
    }
}
