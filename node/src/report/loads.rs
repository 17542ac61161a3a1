//! Loads of partitions and members: what `GET /loads` answers.

use doyen_placement::loads::{PartitionLoad, Skew};
use doyen_placement::{Invalid, Loads, MemberId, MemberState, PartitionRef, Table};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// The loads of a cluster as its coordinator was told. They are at most some seconds old.
///
/// ```no_run
/// # async fn example(node: doyen::Node) -> Result<(), doyen::ReportError> {
/// let loads = node.admin().loads().await?;
/// for member in loads.members.iter().filter(|member| member.busy) {
///     println!("{} is busy: {} of {} bytes", member.name, member.memory, member.memory_max);
/// }
/// if let Some(hot) = loads.partitions.iter().max_by_key(|each| each.reads + each.writes) {
///     println!("{}/{} has most to do, {:?}", hot.keyspace, hot.partition, hot.hot_key);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadsReport {
    /// In order of age.
    pub members: Vec<MemberLoadReport>,
    /// The partitions that have any load, in order.
    pub partitions: Vec<PartitionLoadReport>,
}

/// The load of a member.
///
/// Example: [`LoadsReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberLoadReport {
    /// Its name.
    pub name: String,
    /// Bytes of data, tails and snapshots.
    pub memory: u64,
    /// The limit of `memory`.
    pub memory_max: u64,
    /// Time that its data threads run, in thousandths of a core.
    pub cpu: u16,
    /// Whether it has no time or no memory to spare.
    pub busy: bool,
}

/// The load of a partition. Rates are per second.
///
/// Example: [`LoadsReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionLoadReport {
    /// The name of its keyspace.
    pub keyspace: String,
    /// Its number there.
    pub partition: u32,
    /// The name of its primary.
    pub primary: String,
    /// Bytes of its keys and values.
    pub bytes: u64,
    /// How many keys it has.
    pub keys: u64,
    /// Reads a second.
    pub reads: u64,
    /// Writes a second.
    pub writes: u64,
    /// Bytes read a second.
    pub read_bytes: u64,
    /// Bytes written a second.
    pub written_bytes: u64,
    /// Its part of its primary's work, in thousandths. It is computed from operations and bytes;
    /// the time that a partition takes is not measured.
    pub share: u64,
    /// The key of more than half of the operations, cut to 64 bytes. Bytes that are not UTF-8 are
    /// replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot_key: Option<String>,
}

impl LoadsReport {
    /// The loads of the members and partitions of this table.
    #[must_use]
    pub fn new(table: &Table, loads: &Loads) -> Self {
        Self::of(table, loads, loads.partitions())
    }

    /// The loads of the members, and of these many partitions: those with the most operations a
    /// second, busiest first.
    pub(crate) fn of_busiest(table: &Table, loads: &Loads, most: usize) -> Self {
        let mut all: Vec<_> = loads.partitions().collect();
        let operations = |load: &PartitionLoad| Reverse(load.reads + load.writes);
        if all.len() > most {
            all.select_nth_unstable_by_key(most, |(_, load)| operations(load));
            all.truncate(most);
        }
        all.sort_by_key(|(at, load)| (operations(load), *at));
        Self::of(table, loads, all.into_iter())
    }

    /// The loads of the members, and of these partitions.
    fn of<'a>(
        table: &Table,
        loads: &Loads,
        partitions: impl Iterator<Item = (PartitionRef, &'a PartitionLoad)>,
    ) -> Self {
        let name = |id: MemberId| {
            table
                .member(id)
                .map_or_else(|| id.to_string(), |m| m.name.clone())
        };
        let members = table.members.iter().filter_map(|m| {
            let load = loads.member(m.id)?;
            let (memory, memory_max, cpu, busy) =
                (load.memory, load.memory_max, load.cpu, load.busy);
            Some(MemberLoadReport {
                name: m.name.clone(),
                memory,
                memory_max,
                cpu,
                busy,
            })
        });
        let work = loads.work_of_members(table);
        let partitions = partitions.filter_map(|(at, load)| {
            let primary = table.partition(at)?.primary();
            // The load of a member that does not answer is unknown.
            let answers = table
                .member(primary)
                .is_some_and(|m| m.state != MemberState::Silent);
            let rate = |rate: u64| if answers { rate } else { 0 };
            let all = work.get(&primary).copied().unwrap_or(0);
            Some(PartitionLoadReport {
                keyspace: table.keyspace(at.keyspace)?.name.clone(),
                partition: at.partition.0,
                primary: name(primary),
                bytes: load.bytes,
                keys: load.keys,
                reads: rate(load.reads),
                writes: rate(load.writes),
                read_bytes: rate(load.read_bytes),
                written_bytes: rate(load.written_bytes),
                share: rate((load.work() * 1000).checked_div(all).unwrap_or(0)),
                hot_key: match &load.skew {
                    Skew::OneKey(_, key) if rate(load.reads + load.writes) > 0 => {
                        Some(String::from_utf8_lossy(key).into_owned())
                    }
                    Skew::Unknown | Skew::OneKey(..) | Skew::Halves(..) => None,
                },
            })
        });
        Self {
            members: members.collect(),
            partitions: partitions.collect(),
        }
    }
}

/// The table and the loads as the planner takes them: `GET /placement` answers this, and `doyen
/// simulate --from-cluster` reads it. The format belongs to this version of the program. It has
/// neither users and tokens nor the key of the order of keys.
///
/// Example: [`Admin::placement`](crate::Admin::placement).
#[derive(Debug, Serialize, Deserialize)]
pub struct Placement {
    table: Table,
    loads: Vec<(PartitionRef, MemberId, PartitionLoad)>,
}

impl Placement {
    /// This table, with the measured loads.
    #[must_use]
    pub fn new(table: &Table, loads: &Loads) -> Self {
        let measured = |(at, load): (PartitionRef, &PartitionLoad)| {
            Some((at, table.partition(at)?.primary(), load.clone()))
        };
        Self {
            table: table.clone(),
            loads: loads.partitions().filter_map(measured).collect(),
        }
    }

    /// The table and the loads, if a cluster may have such a table.
    pub fn checked(self) -> Result<(Table, Loads), Invalid> {
        self.table.validate()?;
        let loads = self
            .loads
            .into_iter()
            .collect::<Loads>()
            .checked(&self.table);
        Ok((self.table, loads))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Defaults, Options};
    use doyen_placement::access::{AccessSettings, AccessToken, AccessUser, TokenGrant, TokenRole};
    use doyen_placement::{Addresses, ClusterId, MapId, Member, OrderKey, planner};
    use std::sync::Arc;

    #[test]
    fn a_partition_is_shown_with_its_share_of_its_primarys_work() {
        let config = Options {
            partitions: Some(4),
            ..Options::default()
        }
        .resolve(Defaults::Binary)
        .expect("it can hold");
        let control = ([127, 0, 0, 1], 7400).into();
        let member = Member::new(MemberId(16), "n1", Addresses::new(control, control));
        let table = planner::first(
            ClusterId(7),
            config.first.settings,
            config.first.keyspace,
            vec![member],
        );
        // Users, tokens and the order key stay where they are.
        let mut secretive = table.clone();
        secretive.order_key = OrderKey(0x5ec7e7_5ec7e7);
        secretive.access = Arc::new(AccessSettings {
            users: vec![AccessUser {
                name: (*b"app").into(),
                rules: (*b"on #5ec7e7").into(),
            }],
            tokens: vec![AccessToken {
                name: "prometheus".into(),
                grant: TokenGrant {
                    role: TokenRole::Read,
                    sha256: [77; 32],
                    made: 1,
                },
            }],
            weights: Vec::new(),
        });
        let load = |reads, skew| PartitionLoad {
            reads,
            skew,
            ..PartitionLoad::default()
        };
        let at = |n: usize| {
            table
                .partitions()
                .nth(n)
                .map(|(at, p)| (at, p.primary()))
                .expect("there are four")
        };
        let hot = Skew::OneKey(MapId(0), b"k\xff".to_vec());
        let ((one, by), (other, _)) = (at(0), at(2));
        let loads = [
            (one, by, load(300, hot)),
            (other, by, load(100, Skew::Unknown)),
        ]
        .into_iter()
        .collect();
        let text =
            serde_json::to_string(&Placement::new(&secretive, &loads)).expect("it can be written");
        let key = secretive.order_key.0.to_string();
        for secret in ["order_key", &key, "prometheus", "77,77", "97,112,112"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        let read: Placement = serde_json::from_str(&text).expect("it can be read");
        assert_eq!(
            read.checked().expect("a table"),
            (table.clone(), loads.clone())
        );
        let report = LoadsReport::new(&table, &loads);
        let told: Vec<_> = report
            .partitions
            .iter()
            .map(|p| (p.partition, &*p.primary, p.share, p.hot_key.as_deref()))
            .collect();
        assert_eq!(
            told,
            [(0, "n1", 750, Some("k\u{fffd}")), (2, "n1", 250, None)]
        );
        for (most, busiest) in [(0, &[][..]), (1, &[0]), (2, &[0, 2]), (9, &[0, 2])] {
            let report = LoadsReport::of_busiest(&table, &loads, most);
            let partitions = report.partitions.iter();
            let partitions: Vec<_> = partitions.map(|each| each.partition).collect();
            assert_eq!(partitions, busiest, "{most}");
        }
    }
}
