//! The kind of a refusal.
//!
//! The coordinator answers with a text, and only with that: its reply has no other field in this
//! wire version. So this node judges the request by its own table, as the coordinator did, and
//! takes the kind from the problem that it finds. If it finds none, the two tables differ, and the
//! refusal is a conflict. The text is always the coordinator's.

use super::error::{AdminError, Refusal};
use crate::control::ClusterStatus;
use crate::report::status::ClusterReport;
use doyen_gossip::agreement::{AdminRequest, Problem};
use doyen_placement::Table;
use doyen_placement::planner::{
    self, NotCancelled, NotDrained, NotForgotten, NotGranted, NotReshaped, Refused,
};
use std::time::Duration;

/// Replies of `recover` that take longer than this come from members that did not agree in time.
/// Every other refusal is decided without waiting.
const DECIDED_WITHIN: Duration = Duration::from_secs(5);

/// The refusal with this text of this request.
pub(super) fn classify(table: &Table, request: &AdminRequest, why: String) -> Refusal {
    match request.refused_by(table) {
        Some(
            Problem::Keyspace(Refused::NoKeyspace { .. } | Refused::NoSplit(_))
            | Problem::Drain(NotDrained::NoMember(..))
            | Problem::Forget(NotForgotten::Unknown { .. })
            | Problem::Cancel(NotCancelled::NoPartition(_)),
        ) => Refusal::NotFound { why },
        Some(
            Problem::Answers { .. }
            | Problem::Drain(NotDrained::NoReceiver(_))
            | Problem::Cancel(NotCancelled::Mends(_))
            | Problem::Access(NotGranted::NoOperator),
        ) => Refusal::Unsafe { why },
        Some(Problem::Keyspace(Refused::NotReshaped(
            NotReshaped::Busy(_) | NotReshaped::Elsewhere(..),
        ))) => Refusal::NotYet { why },
        Some(_) | None => Refusal::Conflict { why },
    }
}

/// Why this node did not continue without these members. It answered `why` after this time.
pub(super) fn of_recover(
    cluster: &ClusterStatus,
    dead: &[String],
    why: String,
    after: Duration,
) -> AdminError {
    let Some(table) = cluster.installed.as_deref() else {
        return AdminError::NotMember { why };
    };
    if let Some(hint) = strangers(&ClusterReport::brief(cluster), dead, &why) {
        return Refusal::NotFound { why: why + &hint }.into();
    }
    if cluster.status.coordinator.is_some() {
        return Refusal::Conflict { why }.into();
    }
    // The voters may have stored the table, and may still commit it.
    if after >= DECIDED_WITHIN {
        return AdminError::Unknown { why };
    }
    let answers = |name: &String| {
        planner::named(table, name).is_ok_and(|m| !cluster.status.unanswered.contains(&m.id))
    };
    if dead.iter().any(answers) {
        return Refusal::Unsafe { why }.into();
    }
    Refusal::Conflict { why }.into()
}

/// A hint about names that no member has: `why` may be about something else.
fn strangers(report: &ClusterReport, names: &[String], said: &str) -> Option<String> {
    let is_unknown = |n: &&String| !report.members.iter().any(|m| m.name == **n || m.id == **n);
    let unknown: Vec<&str> = names
        .iter()
        .filter(is_unknown)
        .map(String::as_str)
        .collect();
    if unknown.is_empty() || report.members.is_empty() {
        return None;
    }
    let members: Vec<&str> = report.members.iter().map(|m| m.name.as_str()).collect();
    let members = members.join(", ");
    Some(if unknown.iter().all(|name| said.contains(name)) {
        format!("; there are {members}")
    } else {
        format!(
            "; no member is called {}: there are {members}",
            unknown.join(" or ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::keyspace::KeyspaceOptions;
    use crate::report::fixtures::{cluster, id, seen};
    use doyen_placement::{KeyspaceId, MapId, Member, MemberState, PartitionId, PartitionRef};
    use std::sync::Arc;

    const SAID: &str = "what the coordinator said";

    fn kind(refusal: &Refusal) -> &'static str {
        match refusal {
            Refusal::NotFound { .. } => "not found",
            Refusal::Invalid { .. } => "invalid",
            Refusal::Conflict { .. } => "conflict",
            Refusal::Unsafe { .. } => "unsafe",
            Refusal::NotYet { .. } => "not yet",
        }
    }

    fn judged(table: &Table, request: &AdminRequest) -> &'static str {
        let refusal = classify(table, request, SAID.into());
        assert_eq!(refusal.to_string(), SAID);
        kind(&refusal)
    }

    /// The table with a keyspace of two ranges; the second one begins with `m`.
    fn with_ranges(table: &Table) -> Table {
        let wanted = KeyspaceOptions::new().ranges(["m"]).create("names");
        let next = planner::create_keyspace(table, wanted.expect("it can hold"));
        next.expect("it is taken").expect("it was not there")
    }

    fn with_silent(mut table: Table, member: usize) -> Table {
        let former = (*table.members[member]).clone();
        table.members[member] = Arc::new(Member {
            state: MemberState::Silent,
            ..former
        });
        table
    }

    fn split(key: &str) -> AdminRequest {
        AdminRequest::SplitAt {
            keyspace: "names".into(),
            map: MapId(0),
            key: key.as_bytes().into(),
        }
    }

    fn merge(keyspace: &str, key: &str) -> AdminRequest {
        AdminRequest::MergeAt {
            keyspace: keyspace.into(),
            map: MapId(0),
            key: key.as_bytes().into(),
        }
    }

    #[test]
    fn a_refusal_about_a_keyspace_has_the_kind_that_the_table_shows() {
        let table = with_ranges(&cluster(3));
        let drop = |name: &str| AdminRequest::DropKeyspace { name: name.into() };
        assert_eq!(judged(&table, &drop("nothing")), "not found");
        assert_eq!(judged(&table, &drop("default")), "conflict");
        let alter = KeyspaceOptions::new().backups(2).alter("nothing");
        assert_eq!(judged(&table, &alter.expect("it can hold")), "not found");
        let other = KeyspaceOptions::new().partitions(2).create("default");
        let other = AdminRequest::CreateKeyspace(other.expect("it can hold"));
        assert_eq!(judged(&table, &other), "conflict");
        let map = AdminRequest::CreateMap {
            name: "users".into(),
            keyspace: "nothing".into(),
        };
        assert_eq!(judged(&table, &map), "not found");

        assert_eq!(judged(&table, &merge("names", "k")), "not found");
        assert_eq!(judged(&table, &merge("default", "k")), "conflict");
        let begun = planner::split_at(&table, "names", MapId(0), b"d");
        let begun = begun.expect("it is taken").expect("it is new");
        assert_eq!(judged(&begun, &split("f")), "not yet");
    }

    #[test]
    fn a_refusal_about_a_member_has_the_kind_that_the_table_shows() {
        let table = cluster(3);
        let drain = |name: &str| AdminRequest::Drain { name: name.into() };
        let fill = |name: &str| AdminRequest::Fill { name: name.into() };
        let give_up = |name: &str| AdminRequest::GiveUp { name: name.into() };
        for request in [drain("absent"), fill("absent"), give_up("absent")] {
            assert_eq!(judged(&table, &request), "not found");
        }
        assert_eq!(judged(&cluster(1), &drain("node-1")), "unsafe");
        assert_eq!(judged(&table, &give_up("node-1")), "unsafe");
        assert_eq!(judged(&table, &fill("node-1")), "conflict");
        let silent = with_silent(table, 1);
        assert_eq!(judged(&silent, &drain("node-2")), "conflict");
        assert_eq!(
            judged(&silent, &give_up("node-2")),
            "conflict",
            "tables differ"
        );
    }

    #[test]
    fn a_refusal_about_a_move_has_the_kind_that_the_table_shows() {
        let cancel = |partition: u32| {
            AdminRequest::Cancel(Some(PartitionRef {
                keyspace: KeyspaceId(0),
                partition: PartitionId(partition),
            }))
        };
        let table = cluster(3);
        assert_eq!(judged(&table, &cancel(999)), "not found");
        assert_eq!(judged(&table, &cancel(0)), "conflict");
        let mut drained = planner::drain(&table, "node-1").expect("there are others");
        let mut partitions = drained.keyspaces[0].partitions.iter_mut();
        let moved = partitions
            .find(|p| p.holds(id(1)))
            .expect("copies stay until they are made elsewhere");
        let moved = Arc::make_mut(moved);
        moved.goal = Some(vec![id(2), id(3)]);
        let moved = moved.id.0;
        assert_eq!(judged(&drained, &cancel(moved)), "unsafe");
    }

    #[test]
    fn a_recovery_that_is_refused_says_why() {
        let refused = |cluster: &ClusterStatus, dead: &str, after| {
            of_recover(cluster, &[dead.to_owned()], SAID.into(), after)
        };
        let at_once = Duration::ZERO;
        let led = seen(cluster(3), Vec::new(), true);
        let AdminError::Refused(refusal) = refused(&led, "absent", at_once) else {
            panic!("nothing happened")
        };
        assert_eq!(kind(&refusal), "not found");
        let text = refusal.to_string();
        assert!(
            text.contains("no member is called absent: there are node-1, "),
            "{text}"
        );
        let conflict = AdminError::Refused(Refusal::Conflict { why: SAID.into() });
        assert_eq!(refused(&led, "node-2", at_once), conflict);

        let mut halted = led;
        halted.status.coordinator = None;
        halted.status.unanswered = vec![id(2), id(3)];
        let answers = AdminError::Refused(Refusal::Unsafe { why: SAID.into() });
        assert_eq!(refused(&halted, "node-1", at_once), answers);
        assert_eq!(refused(&halted, "node-2", at_once), conflict);
        let late = refused(&halted, "node-2", Duration::from_secs(10));
        assert!(late.may_have_happened(), "{late:?}");

        halted.installed = None;
        let outside = refused(&halted, "node-2", at_once);
        assert_eq!(outside, AdminError::NotMember { why: SAID.into() });
    }
}
