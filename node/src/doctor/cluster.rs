//! What is wrong in a cluster, by its status and the examinations of its members.

use super::member::{listed, one, wrong};
use crate::report::alerts::{AlertInputs, AlertSeverity, alerts};
use crate::report::examination::HealthVerdict::{Critical, Fine, Unseen, Warning};
use crate::report::examination::{Examination, HealthFinding};
use crate::report::status::ClusterReport;
use doyen_placement::words::{MEMBERS, counted};
use std::collections::BTreeMap;

/// Clocks that are further apart are wrong, as in `alerts.yml`.
const CLOCKS_APART_MS: i64 = 1_000;
/// The name of the rule about members that know no coordinator.
const NO_COORDINATOR: &str = "DoyenNoCoordinator";
const GONE: &str = "DoyenMemberGone";

/// A member that was asked for its examination.
#[derive(Debug, Clone)]
pub struct AskedMember {
    /// Its name.
    pub name: String,
    /// Its state by the status: `live`, `unanswered` and so on.
    pub state: String,
    /// What it answered, and how far its clock was ahead of the asker's when the answer came. Or
    /// why there is no answer, and what to do.
    pub answer: Result<(Examination, i64), (String, String)>,
}

/// What is wrong in a cluster, beside what each member has found of itself.
#[must_use]
pub fn judge_cluster(report: &ClusterReport, asked: &[AskedMember]) -> Vec<HealthFinding> {
    let seen = asked
        .iter()
        .filter_map(|member| member.answer.as_ref().ok());
    let seen: Vec<&(Examination, i64)> = seen.collect();
    let found = [
        membership(report),
        alerted(report),
        answers(asked),
        versions(report, &seen),
        clocks(&seen),
    ];
    found.into_iter().flatten().collect()
}

fn membership(report: &ClusterReport) -> Vec<HealthFinding> {
    const CHECK: &str = "membership";
    let waiting = report.waiting.as_deref();
    let Some(cluster) = &report.cluster_id else {
        let why = waiting.unwrap_or("it looks for a cluster");
        let text = format!("this node is no member of a cluster: {why}");
        return one(Critical, CHECK, text);
    };
    let members = counted(report.members.len(), MEMBERS);
    let text = match &report.coordinator {
        Some(name) => format!("cluster {cluster} with {members}; {name} coordinates"),
        None => format!("cluster {cluster} with {members}"),
    };
    one(Fine, CHECK, text)
}

/// The alerts that hold now.
fn alerted(report: &ClusterReport) -> Vec<HealthFinding> {
    const CHECK: &str = "alert";
    // A node that is no member yet knows nothing that could be wrong.
    if report.cluster_id.is_none() {
        return Vec::new();
    }
    // Findings show no times, and each member judges its own certificates.
    let all = alerts(&AlertInputs {
        cluster: report,
        gone: &vec![0; report.gone.len()],
        node: "",
        certificates: &[],
        now: 0,
    });
    if all.is_empty() {
        return one(Fine, CHECK, "no alert holds now");
    }
    let found = all.into_iter().map(|alert| {
        let verdict = match alert.severity {
            AlertSeverity::Critical => Critical,
            AlertSeverity::Warning => Warning,
        };
        let waiting = report.waiting.clone();
        let why = waiting.filter(|_| alert.name == NO_COORDINATOR);
        let remedy = match why {
            Some(why) => format!("{why}. The runbook: {}", alert.runbook),
            None if alert.name == GONE => format!(
                "look at its machine: has its process died or been stopped, or is its network cut? \
                 Start it again, or run `doyen forget` with its name if it will not come back. The \
                 runbook: {}",
                alert.runbook
            ),
            None => format!("follow the runbook: {}", alert.runbook),
        };
        let text = format!("{}: {}", alert.name, alert.text);
        HealthFinding::new(verdict, CHECK, text).remedy(remedy)
    });
    found.collect()
}

fn answers(asked: &[AskedMember]) -> Vec<HealthFinding> {
    const CHECK: &str = "answers";
    let silent =
        asked.iter().filter_map(|member| {
            let (why, remedy) = member.answer.as_ref().err()?;
            let is_alive = !["unanswered", "silent"].contains(&&*member.state);
            let (verdict, text, remedy) = match is_alive {
            true => (Unseen, format!("it could not be examined: {why}"), remedy.clone()),
            false => (
                Critical,
                format!("it answers neither the other members nor this command ({why})"),
                "look at its machine: is the process stopped, or the network cut? If it will not \
                 come back, read \"DoyenMemberGone\" in docs/operations.md"
                    .into(),
            ),
        };
            let found = HealthFinding::new(verdict, CHECK, text).remedy(remedy);
            Some(found.of(&member.name))
        });
    let silent: Vec<_> = silent.collect();
    match silent.is_empty() && !asked.is_empty() {
        true => one(Fine, CHECK, counted(asked.len(), MEMBERS) + " answered"),
        false => silent,
    }
}

fn versions(report: &ClusterReport, seen: &[&(Examination, i64)]) -> Vec<HealthFinding> {
    const CHECK: &str = "versions";
    let mut programs: BTreeMap<(&str, u16), Vec<&str>> = BTreeMap::new();
    for (member, _) in seen {
        let program = (member.version.as_str(), member.level_max);
        programs.entry(program).or_default().push(&member.name);
    }
    let most = programs.keys().map(|(_, level)| *level).max();
    let most = most.unwrap_or(0).max(report.level_max);
    let shown = programs.iter().map(|((version, level), names)| {
        format!("{version} (level {level}) at {}", names.join(", "))
    });
    let shown = listed(shown);
    let level = report.level;
    if programs.len() > 1 || level < most && report.cluster_id.is_some() {
        let text = format!(
            "the cluster speaks level {level}, and a member could speak {most}. Programs: {shown}"
        );
        let remedy = "end the upgrade: give every member the same program, without --level-max \
                      (`doyen restart-plan`, and \"Upgrade\" in docs/operations.md)";
        return wrong(CHECK, text, remedy);
    }
    match programs.len() {
        0 => one(Unseen, CHECK, "no member was examined"),
        _ => one(Fine, CHECK, format!("every member runs {shown}")),
    }
}

fn clocks(seen: &[&(Examination, i64)]) -> Vec<HealthFinding> {
    const CHECK: &str = "clocks";
    let mut ahead: Vec<(i64, &str)> = seen
        .iter()
        .map(|(member, ahead)| (*ahead, member.name.as_str()))
        .collect();
    ahead.sort_unstable();
    let [first, .., last] = &ahead[..] else {
        let text = "clocks are compared if two members are examined";
        return one(Unseen, CHECK, text);
    };
    let apart = last.0.saturating_sub(first.0);
    let text = format!(
        "the clocks of {} and {} are {}.{:03} s apart",
        first.1,
        last.1,
        apart / 1000,
        apart % 1000
    );
    if apart <= CLOCKS_APART_MS {
        return one(
            Fine,
            CHECK,
            format!("{text} at most, measured through HTTP"),
        );
    }
    let text = format!("{text}: expiries at a time of day are wrong by as much");
    let remedy = "let a time service (chrony, systemd-timesyncd) set the clocks of all machines, \
                  and look at `timedatectl` there";
    wrong(CHECK, text, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::examination::HealthVerdict;
    use crate::report::status::GoneReport;

    fn member(name: &str, version: &str, ahead: i64) -> AskedMember {
        let seen = Examination {
            name: name.into(),
            version: version.into(),
            level_max: 17,
            ..Examination::default()
        };
        AskedMember {
            name: name.into(),
            state: "live".into(),
            answer: Ok((seen, ahead)),
        }
    }

    fn healthy() -> ClusterReport {
        ClusterReport {
            level: 17,
            level_max: 17,
            ..ClusterReport::sample(&["ada", "boris"], true)
        }
    }

    fn found(report: &ClusterReport, asked: &[AskedMember], check: &str) -> HealthFinding {
        let all = judge_cluster(report, asked);
        let mut of = all.iter().filter(|finding| finding.check == check);
        of.next()
            .unwrap_or_else(|| panic!("{check}: {all:?}"))
            .clone()
    }

    fn two() -> [AskedMember; 2] {
        [member("ada", "1.0", 0), member("boris", "1.0", 20)]
    }

    #[test]
    fn a_healthy_cluster_is_fine() {
        let all = judge_cluster(&healthy(), &two());
        let is_fine = |f: &HealthFinding| f.verdict == HealthVerdict::Fine;
        assert!(all.len() == 5 && all.iter().all(is_fine), "{all:?}");
    }

    #[test]
    fn a_node_outside_of_a_cluster_says_what_it_waits_for_and_raises_no_alert() {
        let outside = ClusterReport {
            waiting: Some("2 of 3 initial members are here".into()),
            ..ClusterReport::default()
        };
        let all = judge_cluster(&outside, &[]);
        let membership = found(&outside, &[], "membership");
        assert_eq!(membership.verdict, HealthVerdict::Critical);
        assert!(membership.text.contains("2 of 3 initial"), "{membership:?}");
        assert!(!all.iter().any(|f| f.check == "alert"), "{all:?}");
    }

    #[test]
    fn alerts_of_the_console_are_findings_with_their_runbooks() {
        let gone = GoneReport {
            name: "clara".into(),
            why: "silent".into(),
            seconds: 240,
            longer: false,
        };
        let mut report = healthy();
        report.gone = vec![gone];
        let alert = found(&report, &two(), "alert");
        assert_eq!(alert.verdict, HealthVerdict::Warning);
        assert!(
            alert.text.starts_with("DoyenMemberGone: clara"),
            "{alert:?}"
        );
        let runbook = "docs/operations.md#doyenmembergone";
        assert!(alert.remedy.unwrap_or_default().ends_with(runbook));
        // Without a coordinator, the status says what to do at this node.
        report.gone.clear();
        report.coordinator = None;
        report.waiting = Some("this node is cut off: do nothing here".into());
        let alert = found(&report, &two(), "alert");
        let remedy = alert.remedy.unwrap_or_default();
        assert_eq!(alert.verdict, HealthVerdict::Critical);
        assert!(
            remedy.starts_with("this node is cut off: do nothing here"),
            "{remedy}"
        );
    }

    #[test]
    fn a_member_that_does_not_answer_is_critical_only_if_its_peers_miss_it_as_well() {
        let mut asked = two();
        asked[1].answer = Err(("no answer".into(), "run `doyen doctor` there".into()));
        let unseen = found(&healthy(), &asked, "answers");
        assert_eq!(unseen.verdict, HealthVerdict::Unseen);
        assert_eq!(unseen.member.as_deref(), Some("boris"));
        assert_eq!(unseen.remedy.as_deref(), Some("run `doyen doctor` there"));
        asked[1].state = "unanswered".into();
        assert_eq!(
            found(&healthy(), &asked, "answers").verdict,
            HealthVerdict::Critical
        );
    }

    #[test]
    fn two_programs_and_a_level_that_is_too_low_are_an_unfinished_upgrade() {
        let mixed = [member("ada", "1.0", 0), member("boris", "1.1", 0)];
        let versions = found(&healthy(), &mixed, "versions");
        assert_eq!(versions.verdict, HealthVerdict::Warning);
        let programs = "1.0 (level 17) at ada; 1.1 (level 17) at boris";
        assert!(versions.text.ends_with(programs), "{versions:?}");
        let mut low = healthy();
        low.level = 16;
        let versions = found(&low, &two(), "versions");
        assert_eq!(versions.verdict, HealthVerdict::Warning);
        assert!(versions.text.contains("speaks level 16"), "{versions:?}");
        assert_eq!(
            found(&healthy(), &[], "versions").verdict,
            HealthVerdict::Unseen
        );
    }

    #[test]
    fn clocks_are_compared_with_each_other_and_not_with_the_asker() {
        // Both are far from the asker's clock, and close to each other.
        let close = [member("ada", "1.0", 9_000), member("boris", "1.0", 9_900)];
        assert_eq!(
            found(&healthy(), &close, "clocks").verdict,
            HealthVerdict::Fine
        );
        let apart = [member("ada", "1.0", -600), member("boris", "1.0", 500)];
        let clocks = found(&healthy(), &apart, "clocks");
        assert_eq!(clocks.verdict, HealthVerdict::Warning);
        assert!(clocks.text.contains("1.100 s apart"), "{clocks:?}");
        assert_eq!(
            found(&healthy(), &apart[..1], "clocks").verdict,
            HealthVerdict::Unseen
        );
    }
}
