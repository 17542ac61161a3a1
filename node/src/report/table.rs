//! The members that hold each partition, for people and programs: `doyen table` and `GET /table`
//! print it.

use crate::control::ClusterStatus;
use doyen_placement::division::RangeStart;
use doyen_placement::{
    Division, Keyspace, MemberId, MemberState, Partition, PartitionId, PartitionRef, Table,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;

/// The holders of every partition at one moment.
///
/// ```no_run
/// # async fn example(node: doyen::Node) -> Result<(), doyen::ReportError> {
/// use doyen::report::table::{KeysReport, PartitionState};
///
/// let table = node.admin().table().await?;
/// for keyspace in &table.keyspaces {
///     for part in &keyspace.partitions {
///         let open = part.state == PartitionState::Open;
///         println!("{}/{}: {}, open: {open}", keyspace.name, part.id, part.primary);
///         if let KeysReport::Range([Some(start), _]) = &part.keys {
///             println!("  from {} of map {} on", start.key, start.map);
///         }
///     }
/// }
/// for map in &table.maps {
///     println!("map {} is number {} of {}", map.name, map.id, map.keyspace);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableReport {
    /// The cluster.
    pub cluster_id: Option<String>,
    /// The term of the table.
    pub term: u64,
    /// The version of the table.
    pub version: u64,
    /// Maps by name.
    pub maps: Vec<MapReport>,
    /// The keyspaces.
    pub keyspaces: Vec<PartitionsReport>,
    /// The table that the caller asked about. If it is given, the report has only changes since
    /// then: keyspaces and partitions that are missing here are unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<TableVersion>,
    /// Keyspaces that were dropped since then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
}

/// The name of a table, written as `TERM.VERSION`. Terms are compared first.
///
/// Example: [`Admin::table_since`](crate::Admin::table_since).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TableVersion {
    /// Its term.
    pub term: u64,
    /// Its version.
    pub version: u64,
}

impl TableVersion {
    fn of(table: &Table) -> Self {
        Self {
            term: table.term.0,
            version: table.version.0,
        }
    }
}

impl FromStr for TableVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.bytes()
                .all(|b| b.is_ascii_digit())
                .then(|| text.parse().ok())
                .flatten()
        };
        let parts = text
            .split_once('.')
            .and_then(|(term, version)| Some((number(term)?, number(version)?)));
        let (term, version) = parts
            .ok_or("a table is named by its term and version, as in 3.41: /table tells both")?;
        Ok(Self { term, version })
    }
}

/// A named map.
///
/// Example: [`TableReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapReport {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u32,
    /// Its keyspace.
    pub keyspace: String,
}

/// The partitions of a keyspace.
///
/// Example: [`TableReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionsReport {
    /// The keyspace.
    pub name: String,
    /// Its partitions; empty until they are assigned.
    pub partitions: Vec<PartitionReport>,
    /// In a report of changes: partitions that no longer exist, because they were split or merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<u32>,
}

/// A partition.
///
/// Example: [`TableReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionReport {
    /// Its number.
    pub id: u32,
    /// Its keys: `slots`, `tokens` or `range`, depending on the keyspace's mode.
    #[serde(flatten)]
    pub keys: KeysReport,
    /// `open`, or `assigned` until its primary reports that it serves; `unknown` if this node
    /// cannot tell, because only the coordinator hears of it.
    pub state: PartitionState,
    /// Its primary.
    pub primary: String,
    /// The other copies in sync.
    pub backups: Vec<String>,
    /// Copies that are catching up.
    pub learners: Vec<String>,
    /// Its epoch.
    pub epoch: u64,
    /// Its lineage: it changes each time that the partition begins empty, because every copy that
    /// counted is lost.
    pub lineage: u64,
}

/// Which keys a partition has.
///
/// Example: [`TableReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum KeysReport {
    /// Fixed: the first and the last of its slots.
    Slots([u16; 2]),
    /// Ring: keys with a token after the first and up to the second one. If the first is not below
    /// the second, they go around the end of the ring.
    Tokens([i64; 2]),
    /// Range: keys from the first one on, up to the second one and without it. `None`: no bound.
    Range([Option<StartReport>; 2]),
}

/// Where a range of keys begins.
///
/// Example: [`TableReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartReport {
    /// The number of the map; 0 is that of Redis clients.
    pub map: u32,
    /// The key; bytes that are not printable are written as `\xNN`.
    pub key: String,
}

/// Whether a partition serves.
///
/// Example: [`TableReport`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartitionState {
    /// Its primary has reported that it serves.
    Open,
    /// Its primary has not reported yet, or is silent.
    Assigned,
    /// The coordinator did not answer. Only it would know.
    Unknown,
}

impl TableReport {
    /// Made from the control thread's status.
    #[must_use]
    pub fn new(cluster: &ClusterStatus) -> Self {
        let Some(table) = cluster.installed.as_deref() else {
            return Self {
                cluster_id: None,
                term: 0,
                version: 0,
                maps: Vec::new(),
                keyspaces: Vec::new(),
                since: None,
                dropped: Vec::new(),
            };
        };
        let closed: BTreeSet<PartitionRef> = cluster.status.closed.iter().copied().collect();
        let silent = |m: MemberId| {
            table
                .member(m)
                .is_some_and(|m| m.state == MemberState::Silent)
        };
        let state = |at: PartitionRef, primary| match (
            cluster.from_coordinator,
            closed.contains(&at) || silent(primary),
        ) {
            (_, true) => PartitionState::Assigned,
            (true, false) => PartitionState::Open,
            (false, false) => PartitionState::Unknown,
        };
        Self {
            cluster_id: Some(table.cluster.to_string()),
            term: table.term.0,
            version: table.version.0,
            maps: table
                .maps
                .iter()
                .map(|m| MapReport {
                    name: m.name.clone(),
                    id: m.id.0,
                    keyspace: table
                        .keyspace(m.keyspace)
                        .map(|k| k.name.clone())
                        .unwrap_or_default(),
                })
                .collect(),
            keyspaces: table
                .keyspaces
                .iter()
                .map(|k| {
                    let keys = keys(&k.division);
                    let partition = |p: &Arc<Partition>| PartitionReport {
                        id: p.id.0,
                        keys: keys.get(&p.id).cloned().unwrap_or_else(|| slots(k, p.id)),
                        state: state(
                            PartitionRef {
                                keyspace: k.id,
                                partition: p.id,
                            },
                            p.primary(),
                        ),
                        primary: name(table, p.primary()),
                        backups: p
                            .in_sync()
                            .filter(|&m| m != p.primary())
                            .map(|m| name(table, m))
                            .collect(),
                        learners: p.learners().map(|m| name(table, m)).collect(),
                        epoch: p.epoch.0,
                        lineage: p.lineage.0.into(),
                    };
                    // In the order of the division, not of their numbers: splits and merges give
                    // numbers in the order in which they were made.
                    let stand = k.division.partitions();
                    let partitions = match stand
                        .iter()
                        .filter_map(|id| k.partition(*id))
                        .map(partition)
                        .collect::<Vec<_>>()
                    {
                        none if none.is_empty() => k.partitions.iter().map(partition).collect(),
                        all => all,
                    };
                    PartitionsReport {
                        name: k.name.clone(),
                        partitions,
                        gone: Vec::new(),
                    }
                })
                .collect(),
            since: None,
            dropped: Vec::new(),
        }
    }

    /// Changes since this table; everything, if this node does not know that table any more.
    #[must_use]
    pub fn since(cluster: &ClusterStatus, since: TableVersion) -> Self {
        let mut report = Self::new(cluster);
        let Some(table) = cluster.installed.as_deref() else {
            return report;
        };
        let known = cluster
            .former
            .iter()
            .map(|former| &**former)
            .chain([table])
            .find(|former| TableVersion::of(former) == since);
        let Some(former) = known.filter(|former| former.cluster == table.cluster) else {
            return report;
        };
        report.since = Some(since);
        report.dropped = former
            .keyspaces
            .iter()
            .filter(|k| table.keyspace(k.id).is_none())
            .map(|k| k.name.clone())
            .collect();
        report.keyspaces.retain_mut(|reported| {
            let Some(now) = table.keyspaces.iter().find(|k| k.name == reported.name) else {
                return true;
            };
            // A keyspace of the same name but another id is new altogether.
            let Some(before) = former.keyspace(now.id) else {
                return true;
            };
            let same = |id: u32| {
                let both = [before, now].map(|k| k.partition(PartitionId(id)));
                matches!(both, [Some(before), Some(now)] if before == now)
            };
            reported.partitions.retain(|partition| !same(partition.id));
            reported.gone = before
                .partitions
                .iter()
                .filter(|p| now.partition(p.id).is_none())
                .map(|p| p.id.0)
                .collect();
            !reported.partitions.is_empty() || !reported.gone.is_empty()
        });
        report
    }
}

fn slots(keyspace: &Keyspace, partition: PartitionId) -> KeysReport {
    let slots = keyspace.slots_of(partition);
    KeysReport::Slots([*slots.start(), *slots.end()])
}

/// The keys of each partition, unless they are slots.
fn keys(division: &Division) -> BTreeMap<PartitionId, KeysReport> {
    match division {
        Division::Slots | Division::Runs(_) => BTreeMap::new(),
        Division::Arcs(arcs) => {
            let bounds = |arc: usize| {
                arcs.ring()
                    .arc(arc)
                    .map(|arc| KeysReport::Tokens([arc.after.0, arc.upto.0]))
            };
            arcs.partitions()
                .enumerate()
                .filter_map(|(arc, partition)| Some((partition, bounds(arc)?)))
                .collect()
        }
        Division::Ranges(ranges) => {
            let start = |s: &RangeStart| StartReport {
                map: s.map.0,
                key: s.key.escape_ascii().to_string(),
            };
            let ends = ranges
                .starts()
                .iter()
                .skip(1)
                .map(|end| Some(start(end)))
                .chain([None]);
            let bounds = ranges.starts().iter().zip(ends);
            bounds
                .map(|(from, to)| (from.partition, KeysReport::Range([Some(start(from)), to])))
                .collect()
        }
    }
}

/// The name of a member, or its identity if the table does not have it any more.
pub(super) fn name(table: &Table, id: MemberId) -> String {
    table
        .member(id)
        .map_or_else(|| id.to_string(), |m| m.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::{cluster, seen};
    use crate::report::status::ClusterReport;
    use doyen_placement::{KeyspaceId, Member, Reshape, planner};

    #[test]
    fn a_report_since_a_table_has_only_changes() {
        let former = cluster(3);
        let mut table = former.clone();
        table.version = table.version.next();
        let partition = Arc::make_mut(&mut table.keyspaces[0].partitions[5]);
        partition.epoch = partition.epoch.next();
        let added = Keyspace {
            id: KeyspaceId(9),
            name: "added".into(),
            ..table.keyspaces[0].clone()
        };
        table.keyspaces.push(added);
        let version = TableVersion::of(&former);
        let now = ClusterStatus {
            former: vec![Arc::new(former)],
            ..seen(table.clone(), vec![], true)
        };
        let news = |cluster, since: &str| {
            TableReport::since(cluster, since.parse().expect("a table's name"))
        };
        let told = |report: &TableReport| {
            let keyspace = |k: &PartitionsReport| {
                (
                    k.name.clone(),
                    k.partitions.iter().map(|p| p.id).collect::<Vec<_>>(),
                )
            };
            report.keyspaces.iter().map(keyspace).collect::<Vec<_>>()
        };
        let since = format!("{}.{}", version.term, version.version);
        let report = news(&now, &since);
        assert_eq!(
            (report.since, report.version),
            (Some(version), table.version.0)
        );
        assert_eq!(
            told(&report),
            [
                ("default".into(), vec![5]),
                ("added".into(), (0..16).collect())
            ]
        );
        assert_eq!(
            told(&news(
                &now,
                &format!("{}.{}", table.term.0, table.version.0)
            )),
            [],
            "nothing is newer than the last one"
        );
        let unknown = news(&now, "1.77777");
        assert_eq!(
            (unknown.since, unknown.keyspaces[0].partitions.len()),
            (None, 16),
            "what is not known any more comes whole"
        );

        // A split, and a keyspace that is dropped.
        let split = Reshape::Split {
            partition: PartitionId(3),
            cut: doyen_placement::division::Cut::Half,
        };
        let begun = planner::reshape::begin(&table, KeyspaceId(0), split).expect("it can be split");
        let still = |at| {
            Some(planner::WritesStopped {
                epoch: begun.partition(at)?.epoch,
                ahead_ms: 0,
            })
        };
        let mut done = planner::reshape::finish(&begun, still).expect("it is split");
        done.keyspaces.pop();
        done.version = done.version.next();
        let since = format!("{}.{}", table.term.0, table.version.0);
        let report = news(
            &ClusterStatus {
                former: vec![Arc::new(table)],
                ..seen(done, vec![], true)
            },
            &since,
        );
        assert_eq!(
            (
                report.keyspaces[0].partitions.len(),
                &report.keyspaces[0].gone[..]
            ),
            (2, &[3][..])
        );
        assert_eq!(report.dropped, ["added"]);
    }

    #[test]
    fn invalid_names_of_tables_are_refused() {
        for text in [
            "",
            "3",
            ".",
            "3.",
            "-1.2",
            "+1.2",
            "1.2.3",
            "a.b",
            "99999999999999999999.1",
        ] {
            assert!(text.parse::<TableVersion>().is_err(), "{text}");
        }
    }

    #[test]
    fn closed_partitions_are_not_safe_and_show_as_assigned() {
        let at = PartitionRef {
            keyspace: KeyspaceId(0),
            partition: PartitionId(3),
        };
        let status = seen(cluster(3), vec![at], true);
        let report = ClusterReport::new(&status);
        assert_eq!((report.safe, report.keyspaces[0].unavailable), (false, 1));
        let table = TableReport::new(&status);
        let states: Vec<_> = table.keyspaces[0]
            .partitions
            .iter()
            .map(|p| p.state)
            .collect();
        assert_eq!(
            states
                .iter()
                .filter(|s| **s == PartitionState::Assigned)
                .count(),
            1
        );
        assert_eq!(states[3], PartitionState::Assigned);
    }

    #[test]
    fn partitions_of_a_silent_primary_do_not_show_as_open() {
        let mut table = cluster(3);
        let silent = table.members[1].clone();
        table.members[1] = Arc::new(Member {
            state: MemberState::Silent,
            ..(*silent).clone()
        });
        let report = TableReport::new(&seen(table, vec![], true));
        let open = |led: bool| {
            report.keyspaces[0]
                .partitions
                .iter()
                .filter(|p| (p.primary == silent.name) == led)
                .all(|p| p.state == PartitionState::Open)
        };
        assert!(!open(true) && open(false), "{report:?}");
    }
}
