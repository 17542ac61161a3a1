//! What is wrong at this moment, under the names of the rules in `node/alerts.yml`, whose runbooks
//! are in docs/operations.md. A rule of Prometheus waits before it fires; here, a fault shows at
//! once, and is gone with its cause.

use crate::report::status::ClusterReport;
use doyen_placement::words::{PARTITIONS, counted};
use serde::Serialize;

/// A page of the project, for the links of runbooks.
const RUNBOOKS: &str = "https://github.com/doyen-grid/doyen/blob/main/docs/operations.md#";
/// From this part of its memory on, in percent, a member is shown as full.
const MEMORY_HIGH: u8 = 90;
/// From these times before its end on, in seconds, a certificate is a warning, and then critical.
pub(crate) const CERTIFICATE_SOON_S: i64 = 14 * 86_400;
pub(crate) const CERTIFICATE_CRITICAL_S: i64 = 2 * 86_400;

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
    /// Since when, in Unix seconds, if that is known. The text says no time, so that it stays the
    /// same while the alert holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
    pub(crate) runbook: String,
}

/// What alerts are about.
#[derive(Debug)]
pub(crate) struct AlertInputs<'a> {
    pub(crate) cluster: &'a ClusterReport,
    /// Since when its members are gone, in Unix seconds and in its order.
    pub(crate) gone: &'a [u64],
    /// The name of this node.
    pub(crate) node: &'a str,
    /// Its ports with certificates, and when these end, in Unix seconds.
    pub(crate) certificates: &'a [(&'static str, i64)],
    /// The present time, in Unix seconds.
    pub(crate) now: u64,
}

impl Alert {
    fn new(name: &'static str, severity: AlertSeverity, text: String) -> Self {
        let runbook = format!("{RUNBOOKS}{}", name.to_lowercase());
        Self {
            name,
            severity,
            text,
            since: None,
            runbook,
        }
    }
}

/// The certificates of this node that end soon, by the rules of `node/alerts.yml`.
fn certificates(about: &AlertInputs<'_>, urgent: bool) -> impl Iterator<Item = Alert> {
    let now = i64::try_from(about.now).unwrap_or(i64::MAX);
    about.certificates.iter().filter_map(move |(port, ends)| {
        let left = ends.saturating_sub(now);
        let (severity, left) = match left {
            ..=0 => (AlertSeverity::Critical, "has ended, and".to_owned()),
            1..CERTIFICATE_CRITICAL_S => (AlertSeverity::Critical, within(left)),
            CERTIFICATE_CRITICAL_S..CERTIFICATE_SOON_S => (AlertSeverity::Warning, within(left)),
            _ => return None,
        };
        let node = about.node;
        let text = format!("The certificate of {node} ({port}) {left} no connection is made.");
        let wanted = urgent == (severity == AlertSeverity::Critical);
        wanted.then(|| Alert::new("DoyenCertificateExpires", severity, text))
    })
}

/// `ends within 3 days`.
fn within(seconds: i64) -> String {
    let days = match seconds / 86_400 + 1 {
        1 => "a day".to_owned(),
        days => format!("{days} days"),
    };
    format!("ends within {days}, and then")
}

/// The alerts that hold in this cluster, the most urgent ones first.
pub(crate) fn alerts(about: &AlertInputs<'_>) -> Vec<Alert> {
    use AlertSeverity::{Critical, Warning};
    let (cluster, mut all) = (about.cluster, Vec::new());
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
            let count = counted(keyspace.unavailable, PARTITIONS);
            let text = format!("Keyspace {name}: {count} not served.");
            all.push(Alert::new("DoyenUnavailable", Critical, text));
        }
    }
    all.extend(certificates(about, true));
    for keyspace in &cluster.keyspaces {
        let name = &keyspace.name;
        if keyspace.under_replicated > 0 {
            let count = counted(keyspace.under_replicated, PARTITIONS);
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
    let gone = cluster.gone.iter().zip(about.gone);
    for (gone, since) in gone.filter(|(gone, _)| gone.is_missed()) {
        let text = format!("{} is gone: it does not answer.", gone.name);
        let since = Some(*since);
        let alert = Alert::new("DoyenMemberGone", Warning, text);
        all.push(Alert { since, ..alert });
    }
    all.extend(certificates(about, false));
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

    /// The alerts of a node with certificates that end in these times.
    fn of(cluster: &ClusterReport, ends: &[(&'static str, i64)]) -> Vec<Alert> {
        let now = 1_000_000;
        let ends: Vec<_> = ends
            .iter()
            .map(|(port, left)| (*port, left + 1_000_000))
            .collect();
        alerts(&AlertInputs {
            cluster,
            gone: &[990_000],
            node: "n1",
            certificates: &ends,
            now,
        })
    }

    #[test]
    fn each_alert_has_a_rule_and_a_runbook() {
        const DAY: i64 = 86_400;
        let ends = [("listen", 13 * DAY), ("resp", DAY), ("http", 15 * DAY)];
        let all = of(&broken(), &ends);
        let texts: Vec<&str> = all.iter().map(|alert| &*alert.text).collect();
        assert_eq!(texts.len(), 8, "{texts:?}");
        let gone = all.iter().find(|alert| alert.name == "DoyenMemberGone");
        assert_eq!(gone.and_then(|alert| alert.since), Some(990_000));
        assert!(texts.contains(&"n2 is gone: it does not answer."));
        let ending = "The certificate of n1 (listen) ends within 14 days, and then no connection is \
                      made.";
        assert!(texts.contains(&ending), "{texts:?}");
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
        assert_eq!(of(&healthy, &[("listen", CERTIFICATE_SOON_S)]), []);
        let ended = of(&healthy, &[("listen", 0), ("resp", CERTIFICATE_SOON_S - 1)]);
        let severities: Vec<_> = ended.iter().map(|alert| alert.severity).collect();
        assert_eq!(
            severities,
            [AlertSeverity::Critical, AlertSeverity::Warning]
        );
        assert!(
            ended[0].text.contains("n1 (listen) has ended,"),
            "{ended:?}"
        );
    }
}
