//! What is wrong at this moment, under the names of the rules in `node/alerts.yml`, whose runbooks
//! are in docs/operations.md. A rule of Prometheus waits before it fires; here, a fault shows at
//! once, and is gone with its cause.

use crate::report::status::ClusterReport;
use serde::Serialize;

/// A page of the project, for the links of runbooks.
const RUNBOOKS: &str = "https://github.com/doyen-grid/doyen/blob/main/docs/operations.md#";
/// From this part of its memory on, in percent, a member is shown as full.
const MEMORY_HIGH: u8 = 90;

/// How urgent an alert is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AlertSeverity {
    /// Data is not served, or may be lost.
    Critical,
    /// The next fault may be one too many.
    Warning,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Alert {
    /// The name of its rule.
    pub(crate) name: &'static str,
    pub(crate) severity: AlertSeverity,
    pub(crate) text: String,
    pub(crate) runbook: String,
}

impl Alert {
    fn new(name: &'static str, severity: AlertSeverity, text: String) -> Self {
        let runbook = format!("{RUNBOOKS}{}", name.to_lowercase());
        Self {
            name,
            severity,
            text,
            runbook,
        }
    }
}

/// `1 partition`, `2 partitions`.
fn partitions(count: usize) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} partition{ending}")
}

/// The alerts that hold in this cluster, the most urgent ones first.
pub(crate) fn alerts(cluster: &ClusterReport) -> Vec<Alert> {
    use AlertSeverity::{Critical, Warning};
    let mut all = Vec::new();
    if cluster.coordinator.is_none() {
        let text = "This node knows no coordinator: it serves nothing until one is elected.";
        all.push(Alert::new("DoyenNoCoordinator", Critical, text.into()));
    }
    if let Some(split) = &cluster.split {
        all.push(Alert::new("DoyenSplit", Critical, split.text.clone()));
    }
    for other in &cluster.others {
        all.push(Alert::new("DoyenTwoClusters", Critical, other.to_string()));
    }
    for keyspace in &cluster.keyspaces {
        let name = &keyspace.name;
        if keyspace.unavailable > 0 {
            let count = partitions(keyspace.unavailable);
            let text = format!("Keyspace {name}: {count} not served.");
            all.push(Alert::new("DoyenUnavailable", Critical, text));
        }
    }
    for keyspace in &cluster.keyspaces {
        let name = &keyspace.name;
        if keyspace.under_replicated > 0 {
            let count = partitions(keyspace.under_replicated);
            let text = format!("Keyspace {name}: {count} with too few copies.");
            all.push(Alert::new("DoyenUnderReplicated", Warning, text));
        }
    }
    for member in &cluster.members {
        let percent = member
            .memory_percent
            .filter(|percent| *percent >= MEMORY_HIGH);
        if let Some(percent) = percent {
            let text = format!("{} has filled {percent} % of its memory.", member.name);
            all.push(Alert::new("DoyenMemoryHigh", Warning, text));
        }
    }
    for gone in cluster.gone.iter().filter(|gone| gone.is_missed()) {
        all.push(Alert::new("DoyenMemberGone", Warning, format!("{gone}.")));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::status::{GoneReport, KeyspaceReport, MemberReport, OtherClusterReport};
    use serde_json::json;

    /// A cluster in which everything is wrong.
    fn broken() -> ClusterReport {
        let member: MemberReport = serde_json::from_value(json!({
            "name": "n1", "id": "1", "age": 1, "state": "live", "memory_percent": 90,
            "address": "127.0.0.1:1", "data": "127.0.0.1:2",
            "resp": null, "resp_cluster": null, "http": null,
        }))
        .unwrap();
        let keyspace: KeyspaceReport = serde_json::from_value(json!({
            "name": "default", "mode": "fixed", "partitions": 4, "backups": 1, "min_in_sync": 1,
            "on_loss": "wait", "default_ttl": "none", "under_replicated": 1, "unavailable": 2,
        }))
        .unwrap();
        ClusterReport {
            members: vec![member],
            keyspaces: vec![keyspace],
            gone: vec![GoneReport {
                name: "n2".into(),
                why: "silent".into(),
                seconds: 240,
                longer: false,
            }],
            others: vec![OtherClusterReport {
                cluster_id: "7".into(),
                member: "m".into(),
                address: ([127, 0, 0, 1], 7).into(),
            }],
            ..ClusterReport::default()
        }
    }

    #[test]
    fn each_alert_has_a_rule_and_a_runbook() {
        let all = alerts(&broken());
        let texts: Vec<&str> = all.iter().map(|alert| &*alert.text).collect();
        assert_eq!(texts.len(), 6, "{texts:?}");
        assert!(texts.contains(&"Keyspace default: 2 partitions not served."));
        assert!(texts.contains(&"Keyspace default: 1 partition with too few copies."));
        assert!(texts.contains(&"n1 has filled 90 % of its memory."));
        let urgent = all.iter().map(|a| a.severity == AlertSeverity::Warning);
        assert!(urgent.is_sorted(), "the most urgent ones come first");
        let rules = include_str!("../../alerts.yml");
        let page = include_str!("../../../docs/operations.md");
        let split = Alert::new("DoyenSplit", AlertSeverity::Critical, String::new());
        for alert in all.iter().chain([&split]) {
            assert!(rules.contains(&format!("alert: {}\n", alert.name)));
            let heading = format!("# {}\n", alert.name);
            assert!(page.contains(&heading), "{heading}");
        }
    }

    #[test]
    fn a_healthy_cluster_has_no_alert() {
        let healthy = ClusterReport {
            coordinator: Some("n1".into()),
            ..ClusterReport::default()
        };
        assert_eq!(alerts(&healthy), []);
    }
}
