//! What maps hold: `doyen map list` and `GET /maps` print it.

use super::table::name;
use crate::config::value::{Lifetime, MapEviction};
use doyen_engine::SCRIPTS;
use doyen_engine::sizes::MapSize;
use doyen_placement::{Keyspace, MapId, MapLimits, PartitionRef, Table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// What the cluster holds of a map, or of a database of Redis clients.
///
/// ```no_run
/// # async fn example(node: doyen::Node) -> Result<(), doyen::ReportError> {
/// for map in node.admin().maps().await? {
///     println!("{}/{}: {} entries, {} bytes", map.keyspace, map.name, map.entries, map.bytes);
///     for part in &map.members {
///         println!("  {} bytes at {}", part.bytes, part.member);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapSizeReport {
    /// Its keyspace.
    pub keyspace: String,
    /// Its name; of a database of Redis clients, or a map that was dropped, its number.
    pub name: String,
    /// What it is.
    pub kind: MapKind,
    /// Its entries, without copies.
    pub entries: u64,
    /// The bytes that they take in memory, without copies: keys, values, and about 80 bytes each.
    pub bytes: u64,
    /// The bytes at each member, copies included, the most first. Copies that are being made do not
    /// count yet.
    pub members: Vec<MapPartReport>,
    /// Its limits. `None`: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<MapLimitsReport>,
    /// The partitions of its keyspace that did not answer, so that what they hold is missing.
    pub uncounted: usize,
}

/// What holds keys.
///
/// Example: [`MapSizeReport`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum MapKind {
    /// A map of programs.
    Map,
    /// A numbered database of Redis clients.
    Database,
    /// Scripts that Redis clients have loaded.
    Scripts,
    /// A map that was dropped and is being cleared.
    Dropped,
}

/// What a member holds of a map.
///
/// Example: [`MapSizeReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapPartReport {
    /// The member.
    pub member: String,
    /// The bytes that it holds, as the primary of a partition or as a copy.
    pub bytes: u64,
}

/// The limits of a map. What is missing has no limit.
///
/// Example: [`MapSizeReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapLimitsReport {
    /// The most entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_entries: Option<u64>,
    /// The most bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// Which entries go beyond that.
    pub eviction: String,
    /// After this time without use, an entry expires: `30m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_idle: Option<String>,
}

impl MapLimitsReport {
    fn new(limits: &MapLimits) -> Option<Self> {
        let idle = |ms| Lifetime(Some(Duration::from_millis(ms))).to_string();
        (*limits != MapLimits::NONE).then(|| Self {
            max_entries: limits.entries,
            max_bytes: limits.bytes,
            eviction: MapEviction(limits.eviction).to_string(),
            max_idle: limits.idle_ms.map(idle),
        })
    }
}

/// What was counted of one map.
#[derive(Default)]
struct CountedMap {
    entries: u64,
    bytes: u64,
    members: BTreeMap<String, u64>,
}

impl MapSizeReport {
    /// The maps of all keyspaces, the largest of each first, by what the primaries of partitions
    /// counted. An in-sync copy holds what its primary holds.
    pub(crate) fn all(table: &Table, sizes: &BTreeMap<PartitionRef, Vec<MapSize>>) -> Vec<Self> {
        let of_keyspace = |keyspace| Self::of(table, keyspace, sizes);
        table.keyspaces.iter().flat_map(of_keyspace).collect()
    }

    fn of(
        table: &Table,
        keyspace: &Keyspace,
        sizes: &BTreeMap<PartitionRef, Vec<MapSize>>,
    ) -> Vec<Self> {
        let maps = table.maps.iter().filter(|map| map.keyspace == keyspace.id);
        let mut counted: BTreeMap<MapId, CountedMap> =
            maps.map(|map| (map.id, CountedMap::default())).collect();
        let mut uncounted = 0;
        for partition in &keyspace.partitions {
            let at = PartitionRef {
                keyspace: keyspace.id,
                partition: partition.id,
            };
            let Some(sizes) = sizes.get(&at) else {
                uncounted += 1;
                continue;
            };
            for size in sizes.iter().filter(|size| size.keys > 0) {
                let map = counted.entry(size.map).or_default();
                map.entries = map.entries.saturating_add(size.keys);
                map.bytes = map.bytes.saturating_add(size.bytes);
                for member in partition.in_sync() {
                    let held = map.members.entry(name(table, member)).or_default();
                    *held = held.saturating_add(size.bytes);
                }
            }
        }
        let report = |(id, counted): (MapId, CountedMap)| {
            let CountedMap {
                entries,
                bytes,
                members,
            } = counted;
            let known = table.map(id);
            let (kind, name) = named(table, id);
            let part = |(member, bytes)| MapPartReport { member, bytes };
            let mut members: Vec<_> = members.into_iter().map(part).collect();
            members.sort_by_key(|part| std::cmp::Reverse(part.bytes));
            Self {
                keyspace: keyspace.name.clone(),
                name,
                kind,
                entries,
                bytes,
                members,
                limits: known.and_then(|map| MapLimitsReport::new(&map.limits)),
                uncounted,
            }
        };
        let mut reports: Vec<Self> = counted.into_iter().map(report).collect();
        reports.sort_by(|a, b| (b.bytes.cmp(&a.bytes)).then_with(|| a.name.cmp(&b.name)));
        reports
    }

    /// The bytes at all members, copies included.
    #[must_use]
    pub fn with_copies(&self) -> u64 {
        let bytes = self.members.iter().map(|part| part.bytes);
        bytes.fold(0, u64::saturating_add)
    }
}

/// What a map is, and its name.
pub(crate) fn named(table: &Table, id: MapId) -> (MapKind, String) {
    match (table.map(id), id.database_number()) {
        (Some(map), _) => (MapKind::Map, map.name.clone()),
        (None, Some(number)) => (MapKind::Database, number.to_string()),
        (None, None) if id == SCRIPTS => (MapKind::Scripts, "scripts".into()),
        (None, None) => (MapKind::Dropped, id.0.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::cluster;
    use doyen_placement::{KeyspaceId, MapEntry};

    #[test]
    fn sizes_are_of_primaries_and_what_members_hold_is_with_copies() {
        let mut table = cluster(3);
        let limits = MapLimits {
            entries: Some(10),
            idle_ms: Some(90_000),
            ..MapLimits::NONE
        };
        for (id, name, limits) in [(1, "pages", limits), (2, "empty", MapLimits::NONE)] {
            table.maps.push(MapEntry {
                id: MapId(id),
                name: name.into(),
                keyspace: KeyspaceId(0),
                limits,
            });
        }
        table.next_map = MapId(4);
        let size = |map, keys, bytes| MapSize {
            map: MapId(map),
            keys,
            bytes,
        };
        let mut sizes = BTreeMap::new();
        let partitions: Vec<_> = table.partitions().map(|(at, _)| at).collect();
        for at in &partitions[1..] {
            let database = MapId::database(5).expect("there are 16").0;
            let all = vec![size(1, 2, 200), size(3, 1, 50), size(database, 1, 10)];
            sizes.insert(*at, all);
        }
        let counted = partitions.len() as u64 - 1;
        let reports = MapSizeReport::all(&table, &sizes);
        let told: Vec<_> = (reports.iter())
            .map(|r| (r.kind, r.name.as_str(), r.entries, r.bytes))
            .collect();
        assert_eq!(
            told,
            [
                (MapKind::Map, "pages", 2 * counted, 200 * counted),
                (MapKind::Dropped, "3", counted, 50 * counted),
                (MapKind::Database, "5", counted, 10 * counted),
                (MapKind::Map, "empty", 0, 0),
            ]
        );
        let copies: u64 = (table.partitions().skip(1))
            .map(|(_, partition)| partition.in_sync().count() as u64)
            .sum();
        assert_eq!(reports[0].with_copies(), 200 * copies);
        assert!(copies > counted && reports[3].members.is_empty());
        assert!(reports.iter().all(|report| report.uncounted == 1));
        let limits = reports[0].limits.as_ref().expect("it has limits");
        assert_eq!(limits.max_entries, Some(10));
        assert_eq!(limits.max_idle.as_deref(), Some("90s"));
        assert_eq!(reports[3].limits, None);
    }
}
