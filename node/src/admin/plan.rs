//! Turns a plan that is to be applied into a request: its names are looked up in the table that it
//! was made for.

use super::error::{InvalidField, Refusal};
use crate::report::rebalance::{Goal, RebalancePlan};
use doyen_gossip::agreement::AdminRequest;
use doyen_placement::planner::Plan;
use doyen_placement::{MemberId, NoTableName, PartitionId, PartitionRef, Table};
use std::collections::BTreeMap;

/// The request to the coordinator.
pub(super) fn request(plan: &RebalancePlan, table: &Table) -> Result<AdminRequest, Refusal> {
    let made_for = plan
        .table
        .parse()
        .map_err(|why: NoTableName| InvalidField::new("table", why.to_string()))?;
    let in_force = table.name();
    if made_for != in_force {
        return Err(conflict(format!(
            "the plan was made for table {made_for}, and table {in_force} is in force: \
             make another plan"
        )));
    }
    if plan.goals.is_empty() {
        return Err(conflict(
            "the plan moves nothing, so there is nothing to apply".into(),
        ));
    }
    let members: BTreeMap<&str, MemberId> = table
        .members
        .iter()
        .map(|m| (m.name.as_str(), m.id))
        .collect();
    let goals: Plan = plan
        .goals
        .iter()
        .map(|goal| resolve(goal, table, &members))
        .collect::<Result<_, _>>()?;
    Ok(AdminRequest::ApplyPlan {
        base: made_for,
        goals,
    })
}

fn resolve(
    goal: &Goal,
    table: &Table,
    members: &BTreeMap<&str, MemberId>,
) -> Result<(PartitionRef, Vec<MemberId>), Refusal> {
    let missing = |what: &str, name: &str| {
        conflict(format!(
            "the plan names a {what} {name:?}, which is not there: make another plan"
        ))
    };
    let keyspace = table
        .keyspace_named(&goal.keyspace)
        .ok_or_else(|| missing("keyspace", &goal.keyspace))?;
    let member = |name: &String| {
        let found = members.get(name.as_str()).copied();
        found.ok_or_else(|| missing("member", name))
    };
    let at = PartitionRef {
        keyspace: keyspace.id,
        partition: PartitionId(goal.partition),
    };
    Ok((
        at,
        goal.members.iter().map(member).collect::<Result<_, _>>()?,
    ))
}

fn conflict(why: String) -> Refusal {
    Refusal::Conflict { why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::{cluster, member};
    use doyen_placement::planner::{self, DEFAULT_KEYSPACE};
    use doyen_placement::{Loads, Version};

    /// A table of two members, and a third one that has joined since.
    fn joined() -> Table {
        planner::admit(&cluster(2), vec![member(3)])
    }

    #[test]
    fn a_plan_comes_back_from_a_file_as_the_request_that_it_is() {
        let table = joined();
        let plan = RebalancePlan::new(&table, &Loads::default());
        assert!(
            plan.operators.iter().any(|step| step
                .to_string()
                .contains("add learner node-3 (balance of copies), then node-")),
            "{plan:?}"
        );
        let text = serde_json::to_string(&plan).expect("it can be written");
        let read: RebalancePlan = serde_json::from_str(&text).expect("it can be read");
        assert_eq!(read, plan);
        let Ok(AdminRequest::ApplyPlan { base, goals }) = request(&read, &table) else {
            panic!("it is for this table")
        };
        assert_eq!(
            (base, goals),
            (table.name(), planner::plan(&table, &Loads::default()))
        );
    }

    #[test]
    fn a_wrong_plan_is_refused_with_the_reason() {
        let table = joined();
        let wrong = |spoil: &dyn Fn(&mut RebalancePlan)| {
            let mut plan = RebalancePlan::new(&table, &Loads::default());
            spoil(&mut plan);
            request(&plan, &table).expect_err("it says something wrong")
        };
        let conflict = |spoil: &dyn Fn(&mut RebalancePlan), text: &str| {
            let refusal = wrong(spoil);
            assert!(
                matches!(&refusal, Refusal::Conflict { why } if why.contains(text)),
                "{refusal:?}"
            );
        };
        let later = Table {
            version: Version(9),
            ..table.clone()
        };
        conflict(&|p| p.table = later.name().to_string(), "make another plan");
        conflict(&|p| p.goals.clear(), "moves nothing");
        conflict(
            &|p| p.goals[0].keyspace = "other".into(),
            "keyspace \"other\"",
        );
        conflict(&|p| p.goals[0].members[0] = "n9".into(), "member \"n9\"");
        let unnamed = wrong(&|p| p.table = "the one of yesterday".into());
        assert!(
            matches!(
                &unnamed,
                Refusal::Invalid { field: "table", why } if why.contains("no name of a table")
            ),
            "{unnamed:?}"
        );
        assert_eq!(table.keyspaces[0].name, DEFAULT_KEYSPACE);
    }
}
