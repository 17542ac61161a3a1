//! Describes what is missing until all data is safe, for errors of a wait that took too long.

use crate::report::status::ClusterReport;
#[cfg(feature = "testkit")]
use crate::report::table::{PartitionReport, PartitionState, TableReport};
use doyen_placement::words::counted;
use std::collections::BTreeSet;

/// Limit of partitions that a text names.
#[cfg(feature = "testkit")]
const NAMED_MAX: usize = 8;

/// What a report lacks until these members are safe; `None`: nothing.
pub(super) fn lack(awaited: &BTreeSet<&str>, report: &ClusterReport) -> Option<String> {
    let members: BTreeSet<&str> = report.members.iter().map(|m| m.name.as_str()).collect();
    if members.is_empty() {
        return Some(format!(
            "there is no cluster yet; {} are awaited as its members",
            names(awaited)
        ));
    }
    if members != *awaited || report.members.len() != awaited.len() {
        let (missing, extra): (BTreeSet<_>, BTreeSet<_>) = (awaited - &members, &members - awaited);
        let mut text = format!(
            "the members are {}; awaited are {}",
            names(&members),
            names(awaited)
        );
        if !missing.is_empty() {
            text += &format!(": missing {}", names(&missing));
        }
        if !extra.is_empty() {
            text += &format!(": still there, though not running, {}", names(&extra));
        }
        return Some(text);
    }
    if let Some(member) = report.members.iter().find(|m| m.state != "live") {
        return Some(format!("{} is {}, not live", member.name, member.state));
    }
    if report.safe {
        return None;
    }
    let lacks = |k: &crate::report::status::KeyspaceReport| {
        let (unserved, few) = (k.unavailable, k.under_replicated);
        (unserved + few > 0).then(|| {
            format!(
                "{unserved} of the {} partitions of {} are not served, and {few} have too few \
                 copies in sync",
                k.partitions, k.name
            )
        })
    };
    let mut parts: Vec<String> = report.keyspaces.iter().filter_map(lacks).collect();
    if !report.moves.is_empty() {
        let moving = counted(report.moves.len(), ("partition is", "partitions are"));
        parts.push(format!("{moving} moving"));
    }
    parts.extend(
        report
            .waiting
            .as_ref()
            .map(|why| format!("it waits: {why}")),
    );
    if parts.is_empty() {
        parts.push(
            "not all data is safe yet: the coordinator has not said so of the present table".into(),
        );
    }
    Some(parts.join("; "))
}

/// The partitions that lack something, as far as a node's table shows it.
#[cfg(feature = "testkit")]
pub(super) fn partitions(report: &ClusterReport, table: &TableReport) -> Option<String> {
    let lacking: Vec<String> = report
        .keyspaces
        .iter()
        .filter_map(|k| Some((k, table.keyspaces.iter().find(|t| t.name == k.name)?)))
        .flat_map(|(k, t)| {
            let copies = report.members.len().min(usize::from(k.backups) + 1);
            let lacks = move |p: &&PartitionReport| {
                p.state == PartitionState::Assigned
                    || p.backups.len() + 1 < copies
                    || !p.learners.is_empty()
            };
            t.partitions.iter().filter(lacks).map(|p| {
                let backups = if p.backups.is_empty() {
                    "alone".into()
                } else {
                    format!("with {}", p.backups.join(", "))
                };
                format!("{} {} on {} {backups}", k.name, p.id, p.primary)
            })
        })
        .collect();
    let more = lacking.len().saturating_sub(NAMED_MAX);
    let mut text = format!(
        "these partitions lack something: {}",
        lacking
            .iter()
            .take(NAMED_MAX)
            .cloned()
            .collect::<Vec<_>>()
            .join("; ")
    );
    if more > 0 {
        text += &format!("; and {more} more");
    }
    (!lacking.is_empty()).then_some(text)
}

fn names(of: &BTreeSet<&str>) -> String {
    of.iter().copied().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn missing_and_extra_members_are_named() {
        let awaited = BTreeSet::from(["ada", "boris", "clara"]);
        assert_eq!(
            lack(
                &awaited,
                &ClusterReport::sample(&["ada", "boris", "clara"], true)
            ),
            None
        );
        let text = lack(
            &awaited,
            &ClusterReport::sample(&["ada", "clara", "dmitri"], true),
        )
        .expect("boris lacks");
        assert!(
            text.contains("missing boris")
                && text.contains("not running, dmitri")
                && !text.contains(['{', '[', '"']),
            "{text}"
        );
        assert!(
            lack(&awaited, &ClusterReport::sample(&[], false))
                .is_some_and(|t| t.contains("no cluster yet") && t.contains("ada, boris, clara"))
        );
    }

    #[test]
    fn partitions_with_too_few_copies_are_named() {
        let report = ClusterReport::sample(&["ada", "boris"], false);
        let text = lack(&BTreeSet::from(["ada", "boris"]), &report).expect("a copy lacks");
        assert!(text.contains("1 have too few copies"), "{text}");
        let partition = |id: u32, backups: &[&str]| {
            json!({ "id": id, "slots": [0, 1], "state": "open", "primary": "ada",
                    "backups": backups, "learners": [], "epoch": 1, "lineage": 0 })
        };
        let both = [partition(0, &["boris"]), partition(1, &[])];
        let table = json!({ "cluster_id": "c", "term": 1, "version": 1, "maps": [],
                            "keyspaces": [{ "name": "default", "partitions": both }] });
        let table = serde_json::from_value(table).expect("a table");
        assert_eq!(
            partitions(&report, &table).as_deref(),
            Some("these partitions lack something: default 1 on ada alone")
        );
    }
}
