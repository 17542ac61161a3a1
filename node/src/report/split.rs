//! What a half of a split has that the other half lacks (rule 13): what `doyen split show` and
//! `doyen split export` ask each member of a half for.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use doyen_engine::{Committed, KeptKey, KeysPage, SinceRecovery};
use doyen_placement::{Branch, BranchId, MapId, Table};
use serde::{Deserialize, Serialize};

/// What a node holds of the time since recoveries (`doyen recover`).
///
/// ```no_run
/// # use doyen::http::client::{Client, HttpError};
/// # async fn example(node: Client) -> Result<(), HttpError> {
/// use doyen::report::split::HalfReport;
///
/// let half: HalfReport = node.ask(&doyen::http::api::SPLIT).await?;
/// let since = half.lacks.unwrap_or(1);
/// for partition in half.partitions.iter().filter(|p| p.leads) {
///     let mark = partition.marks.iter().find(|mark| mark.recovery == since);
///     println!("{}/{}: {mark:?}", partition.keyspace, partition.partition);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HalfReport {
    /// How often this cluster was recovered. If never, it has no other half.
    pub recoveries: u32,
    /// The first recovery that the other half lacks; the first one ever has number 1. Absent: the
    /// node met no process that lacks one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<u32>,
    /// What the node holds, or held when the cluster was recovered.
    pub partitions: Vec<HalfPartition>,
}

/// A partition at one node. Example: [`HalfReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HalfPartition {
    /// Its keyspace.
    pub keyspace: String,
    /// Its number.
    pub partition: u32,
    /// Whether the node leads it.
    pub leads: bool,
    /// How far it is committed. Absent if the node does not hold it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed: Option<HalfPosition>,
    /// What the node noted at each recovery, the earliest first.
    pub marks: Vec<HalfMark>,
}

/// How far a partition is committed. Example: [`HalfReport`].
///
/// Between two positions of one lineage are as many changes as their sequences differ. Deletions
/// count, and so do keys that expired. A partition that begins empty has a new lineage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HalfPosition {
    /// The lineage.
    pub lineage: u32,
    /// The last sequence in it.
    pub seq: u64,
}

impl HalfPosition {
    /// The number of changes up to this position since an earlier one, or ever.
    ///
    /// ```
    /// use doyen::report::split::HalfPosition;
    ///
    /// let at = |lineage, seq| HalfPosition { lineage, seq };
    /// assert_eq!(at(1, 12).changes_since(Some(at(1, 10))), 2);
    /// assert_eq!(at(2, 3).changes_since(Some(at(1, 10))), 3);
    /// assert_eq!(at(1, 12).changes_since(None), 12);
    /// ```
    #[must_use]
    pub fn changes_since(self, before: Option<Self>) -> u64 {
        let before = before.filter(|before| before.lineage >= self.lineage);
        self.seq
            .saturating_sub(before.map_or(0, |before| before.seq))
    }
}

impl From<Committed> for HalfPosition {
    fn from(committed: Committed) -> Self {
        Self {
            lineage: committed.lineage.0,
            seq: committed.seq,
        }
    }
}

/// What a node noted of a partition at a recovery. Example: [`HalfReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HalfMark {
    /// The number of the recovery.
    pub recovery: u32,
    /// How far the partition was committed then. Absent if the node held no whole copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed: Option<HalfPosition>,
    /// Whether all copies were in this half. Then the other half has no key of the partition.
    pub alone: bool,
    /// How long ago the first change since then was committed, in seconds, as far as the node held
    /// a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seconds_ago: Option<u64>,
    /// How long ago the last one was committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seconds_ago: Option<u64>,
}

/// A page of keys. Example: [`HalfReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HalfKeys {
    /// The keys.
    pub keys: Vec<HalfKey>,
    /// The `after` of the next page. Absent: this is the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A string, or a field of a hash or another collection. `doyen split export` writes one a line.
/// Example: [`HalfReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HalfKey {
    /// The map. Absent: a database of Redis clients, or a map that was dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<String>,
    /// The number of the database of Redis clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<u32>,
    /// The key.
    pub key: AnyBytes,
    /// What the key holds, as `TYPE` says it.
    #[serde(default)]
    pub kind: String,
    /// The field, if the value consists of fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<AnyBytes>,
    /// The value, which is empty if fields have none. Absent: it is larger than 32 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<AnyBytes>,
    /// When it expires, in milliseconds from the answer on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
}

/// Bytes in JSON: a string if they are UTF-8, and else `{"base64": "..."}`.
///
/// Example: [`HalfReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AnyBytes {
    /// Text.
    Text(String),
    /// Other bytes.
    Binary {
        /// In the standard alphabet, with padding.
        base64: String,
    },
}

impl From<Bytes> for AnyBytes {
    fn from(bytes: Bytes) -> Self {
        match std::str::from_utf8(&bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Binary {
                base64: STANDARD.encode(&bytes),
            },
        }
    }
}

impl HalfReport {
    pub(crate) fn new(table: &Table, lacks: Option<BranchId>, since: &[SinceRecovery]) -> Self {
        let partitions = since.iter().filter_map(|one| {
            let marks = one.marks.iter().map(|mark| HalfMark {
                recovery: mark.recovery,
                committed: mark.committed.map(Into::into),
                alone: mark.alone,
                first_seconds_ago: mark.age.map(|(first, _)| first.as_secs()),
                last_seconds_ago: mark.age.map(|(_, last)| last.as_secs()),
            });
            Some(HalfPartition {
                keyspace: table.keyspace(one.at.keyspace)?.name.clone(),
                partition: one.at.partition.0,
                leads: one.leads,
                committed: one.committed.map(Into::into),
                marks: marks.collect(),
            })
        });
        let mut numbered = (1..).zip(&table.annex.branches);
        let lacks = |(_, branch): &(u32, &Branch)| Some(branch.id) == lacks;
        Self {
            recoveries: numbered
                .clone()
                .map(|(number, _)| number)
                .max()
                .unwrap_or(0),
            lacks: numbered.find(lacks).map(|(number, _)| number),
            partitions: partitions.collect(),
        }
    }
}

impl HalfKeys {
    pub(crate) fn new(table: &Table, (keys, next): KeysPage) -> Self {
        let key = |kept: KeptKey| HalfKey {
            map: table.map(kept.map).map(|map| map.name.clone()),
            database: kept.map.database_number(),
            key: kept.key.into(),
            kind: kept.kind.name().into(),
            field: kept.field.map(Into::into),
            value: kept.value.map(Into::into),
            ttl_ms: kept
                .expires_in
                .map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
        };
        Self {
            keys: keys.into_iter().map(key).collect(),
            next: next.map(|after| cursor(&after)),
        }
    }
}

/// The end of a page, as text that a URL takes.
fn cursor((map, key, field): &(MapId, Bytes, Option<Bytes>)) -> String {
    let mut text = format!("{}.{}", map.0, URL_SAFE_NO_PAD.encode(key));
    if let Some(field) = field {
        text.push('.');
        text.push_str(&URL_SAFE_NO_PAD.encode(field));
    }
    text
}

/// Reads what `cursor` wrote.
pub(crate) fn cursor_of(text: &str) -> Option<(MapId, Bytes, Option<Bytes>)> {
    let mut parts = text.split('.');
    let map = parts.next()?.parse().ok()?;
    let mut bytes = parts.map(|part| URL_SAFE_NO_PAD.decode(part).map(Bytes::from).ok());
    let (key, field) = (bytes.next()??, bytes.next());
    if bytes.next().is_some() {
        return None;
    }
    match field {
        Some(None) => None,
        field => Some((MapId(map), key, field.flatten())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_page_is_read_again_and_nothing_else_is() {
        for at in [
            (MapId(0), Bytes::from_static(b""), None),
            (
                MapId(7),
                Bytes::from_static(b"\xFF.k"),
                Some(Bytes::from_static(b"")),
            ),
        ] {
            assert_eq!(cursor_of(&cursor(&at)), Some(at));
        }
        for wrong in ["", "1", "x.YQ", "1.Y Q", "1.YQ.!", "1.YQ.YQ.YQ"] {
            assert_eq!(cursor_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_in_base64() {
        let shown = |bytes: &'static [u8]| {
            serde_json::to_string(&AnyBytes::from(Bytes::from_static(bytes))).expect("JSON")
        };
        assert_eq!(shown("ü".as_bytes()), "\"ü\"");
        assert_eq!(shown(b"\xFF"), r#"{"base64":"/w=="}"#);
    }
}
