//! How far a subscriber is in the logs of all partitions, to go on there later and elsewhere.

use super::changes::Position;
use doyen_placement::codec;
use doyen_placement::{ClusterId, KeyspaceId, Lineage, PartitionId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fmt::Write;
use std::str::FromStr;

/// What the text of a bookmark begins with. Another layout would have another number.
const FORMAT: &str = "1-";
/// The longest bookmark in bytes: of some 100,000 partitions.
const BYTES_MAX: usize = 2 << 20;

/// How far a subscriber of changes is. A subscription that begins after it goes on there, in this
/// process or in another one.
///
/// It is a text: [`Display`](fmt::Display), [`FromStr`] and serde write and read it. It has up to
/// some 20 bytes for each partition of the keyspace (20 kB by default), or that of one partition
/// if one key is followed.
///
/// ```
/// # use doyen_engine as doyen;
/// use doyen::Bookmark;
///
/// let text = Bookmark::default().to_string();
/// assert_eq!(text.parse(), Ok(Bookmark::default()));
/// assert!("elsewhere".parse::<Bookmark>().is_err());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bookmark {
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) keyspace: KeyspaceId,
    pub(crate) places: Vec<Position>,
}

/// Its layout.
type Laid = (Option<ClusterId>, KeyspaceId, Vec<(u32, u32, u64)>);

/// A text that is no bookmark, or one of another version of Doyen.
///
/// Example: [`Bookmark`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is no bookmark of a subscription: begin without one, and read what matters from the map"
)]
pub struct NoBookmark;

impl fmt::Display for Bookmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |place: &Position| (place.partition.0, place.lineage.0, place.seq);
        let places: Vec<_> = self.places.iter().map(place).collect();
        let laid: Laid = (self.cluster, self.keyspace, places);
        let bytes = codec::encode(&laid, BYTES_MAX).map_err(|_| fmt::Error)?;
        f.write_str(FORMAT)?;
        let mut text = String::with_capacity(2 * bytes.len());
        bytes
            .iter()
            .try_for_each(|byte| write!(text, "{byte:02x}"))?;
        f.write_str(&text)
    }
}

impl FromStr for Bookmark {
    type Err = NoBookmark;

    fn from_str(text: &str) -> Result<Self, NoBookmark> {
        let digits = text.strip_prefix(FORMAT).ok_or(NoBookmark)?.as_bytes();
        if digits.len() % 2 != 0 || digits.len() > 2 * BYTES_MAX {
            return Err(NoBookmark);
        }
        let value = |digit: u8| char::from(digit).to_digit(16).ok_or(NoBookmark);
        let byte = |pair: &[u8]| Ok((value(pair[0])? << 4 | value(pair[1])?) as u8);
        let bytes: Vec<u8> = digits.chunks_exact(2).map(byte).collect::<Result<_, _>>()?;
        let laid: Laid = codec::decode(&bytes, BYTES_MAX).map_err(|_| NoBookmark)?;
        let (cluster, keyspace, places) = laid;
        let place = |(partition, lineage, seq)| Position {
            partition: PartitionId(partition),
            lineage: Lineage(lineage),
            seq,
        };
        let places = places.into_iter().map(place).collect();
        Ok(Self {
            cluster,
            keyspace,
            places,
        })
    }
}

impl Serialize for Bookmark {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bookmark {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
