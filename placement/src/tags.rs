//! Which bytes of a key decide its partition where keys are placed by a hash.
//!
//! ```text
//!  databases    {tag} or key             equal in every database
//!  other maps   the map's number, key    equal keys of several maps spread
//! ```
//!
//! Keys of fixed and ring keyspaces are placed by a hash. Ranges have no tags: there the map and
//! the key decide.

use crate::hash;
use crate::id::MapId;
use crate::token::Token;
use serde::{Deserialize, Serialize};

/// The databases of a keyspace in which a `{tag}` alone decides the partition of a key.
///
/// A keyspace never changes it, because its keys would be looked for in other partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Tags {
    /// Database 0 alone. Each other database is placed as other maps are. Keyspaces
    /// that were made below level 15 keep this rule.
    #[default]
    Zero,
    /// Every database.
    Databases,
}

impl Tags {
    /// Whether a `{tag}` decides alone in this map.
    #[must_use]
    pub const fn count_in(self, map: MapId) -> bool {
        match self {
            Self::Zero => map.0 == 0,
            Self::Databases => map.is_database(),
        }
    }

    /// What is hashed of a key of this map.
    pub(crate) fn hashed(self, map: MapId, key: &[u8]) -> Hashed<'_> {
        if self.count_in(map) {
            Hashed {
                prefix: None,
                bytes: hash::hash_tag(key),
            }
        } else {
            Hashed {
                prefix: Some(map.0.to_be_bytes()),
                bytes: key,
            }
        }
    }
}

/// The bytes whose hash places a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hashed<'a> {
    /// The number of the map, where it counts.
    prefix: Option<[u8; 4]>,
    /// The tag or the key.
    bytes: &'a [u8],
}

impl Hashed<'_> {
    pub(crate) fn slot(self) -> u16 {
        match self.prefix {
            None => hash::crc16(self.bytes) % hash::SLOTS,
            Some(map) => hash::slot_of_prefixed(&map, self.bytes),
        }
    }

    pub(crate) fn token(self) -> Token {
        match self.prefix {
            None => Token::of(self.bytes),
            Some(map) => Token::of_prefixed(map, self.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn databases() -> impl Iterator<Item = MapId> {
        (0..MapId::DATABASES).filter_map(MapId::database)
    }

    fn place(tags: Tags, map: MapId, key: &[u8]) -> (u16, Token) {
        let hashed = tags.hashed(map, key);
        (hashed.slot(), hashed.token())
    }

    proptest! {
        #[test]
        fn a_tag_decides_alone_whatever_the_database(
            tag in prop::collection::vec(any::<u8>().prop_filter("no brace", |b| *b != b'}'), 1..20),
            before in "[^{]{0,8}",
            after in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let tagged = [before.as_bytes(), b"{", &tag, b"}", &after].concat();
            let alone = (hash::crc16(&tag) % hash::SLOTS, Token::of(&tag));
            for map in databases() {
                prop_assert_eq!(place(Tags::Databases, map, &tagged), alone);
            }
            prop_assert_eq!(place(Tags::Zero, MapId(0), &tagged), alone);
        }

        #[test]
        fn a_key_is_placed_alike_in_every_database(
            key in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let zero = place(Tags::Zero, MapId(0), &key);
            prop_assert_eq!(zero, (hash::slot(&key), Token::of(hash::hash_tag(&key))));
            for map in databases() {
                prop_assert_eq!(place(Tags::Databases, map, &key), zero);
            }
        }

        /// The former rule placed the keys of maps in this way.
        #[test]
        fn maps_are_placed_by_their_number_and_the_key_as_before(
            map in (1..=u32::MAX).prop_map(MapId),
            key in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let whole = [&map.0.to_be_bytes()[..], &key].concat();
            let former = (hash::crc16(&whole) % hash::SLOTS, Token::of(&whole));
            prop_assert_eq!(place(Tags::Zero, map, &key), former);
            if !map.is_database() {
                prop_assert_eq!(place(Tags::Databases, map, &key), former);
            }
        }
    }

    #[test]
    fn keys_without_tags_spread_in_every_database() {
        for map in databases() {
            let mut keys = [0_u32; 64];
            for n in 0..64_000 {
                let (slot, _) = place(Tags::Databases, map, format!("user:{n}").as_bytes());
                keys[usize::from(slot / (hash::SLOTS / 64))] += 1;
            }
            let uneven = keys.iter().filter(|n| !(800..1200).contains(*n)).count();
            assert_eq!(uneven, 0, "{map}: {keys:?}");
        }
    }
}
