//! What a plan would move, as people and files see it: [`RebalancePlan`] is at once what
//! `GET /rebalance` answers, what `doyen rebalance --plan --json` writes, what `POST /rebalance`
//! takes, and what the library gives and takes.

use doyen_gossip::agreement::AdminRequest;
use doyen_placement::division::Cut;
use doyen_placement::planner::{self, Operator, OperatorAction, Plan};
use doyen_placement::{
    Loads, MapId, MemberId, NoScheduler, NoTableName, PartitionId, PartitionRef, ReplicaState,
    Scheduler, Schedulers, Table, TableName,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A plan as JSON at most: steps and goals of 65536 partitions take about half of it.
pub const PLAN_BYTES_MAX: usize = 64 << 20;

/// Where partitions would go, and every step of it with its reason. It can be applied to the table
/// that it was made for, and to no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RebalancePlan {
    /// The table that it was made for: `CLUSTER/TERM/VERSION/HASH`.
    pub table: String,
    /// What happens by itself, for these reasons: `repair`, `drain`, `place`, `copies`,
    /// `primaries`, `hot`, `splits`, `merges`. The plan's goals are for all that copies move for.
    #[serde(default)]
    pub automatic: Vec<String>,
    /// Partitions that would go elsewhere. Those that are under way already are not among them.
    pub goals: Vec<Goal>,
    /// The steps, the most urgent first; those of moves under way among them.
    #[serde(default)]
    pub operators: Vec<Step>,
    /// Bytes that all steps together copy, as far as they are known.
    #[serde(default)]
    pub bytes: u64,
}

/// Where a partition would go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// Its keyspace.
    pub keyspace: String,
    /// Its number.
    pub partition: u32,
    /// The names of those who would hold it, the primary first.
    pub members: Vec<String>,
}

/// One step of a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The partition's keyspace.
    pub keyspace: String,
    /// The partition's number.
    pub partition: u32,
    /// `add learner`, `promote`, `transfer primary` or `remove copy`; or `split` or `merge`, which
    /// happen without a plan that is applied.
    pub action: String,
    /// Of whom; for `transfer primary`, to whom; of nobody for `split` and `merge`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// For `split`, where: a key, a token, or `half` of the slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// For `merge`, with which partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<u32>,
    /// For `transfer primary`, from whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `repair`, `drain`, `rule`, `keep copies apart`, `balance of load`, `balance of primaries` or
    /// `balance of copies`; of splits and merges `balance of load`, `size or load of a range`,
    /// `number of partitions`, `tokens of members` or `small ranges at rest`.
    pub reason: String,
    /// 0 goes first.
    pub priority: u8,
    /// What is copied, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Who holds it in the table that follows, the primary first,
    #[serde(default)]
    pub holders: Vec<String>,
    /// and who is catching up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learners: Vec<String>,
}

/// Why a plan says nothing for a table.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error(transparent)]
    Name(#[from] NoTableName),
    #[error(
        "the plan was made for table {made_for}, and table {in_force} is in force: make another plan"
    )]
    OtherTable {
        made_for: TableName,
        in_force: TableName,
    },
    #[error("the plan names a keyspace {0:?}, which is not there")]
    Keyspace(String),
    #[error("the plan names a member {0:?}, which is not there")]
    Member(String),
    #[error("the plan moves nothing")]
    Nothing,
}

impl RebalancePlan {
    /// What would move in this table if every scheduler were on. Goes through the whole table.
    pub fn new(table: &Table, loads: &Loads) -> Self {
        let goals = planner::plan_for(table, Schedulers::ALL, loads);
        let operators = planner::operators(table, &goals, loads);
        let names: BTreeMap<MemberId, &str> = table
            .members
            .iter()
            .map(|m| (m.id, m.name.as_str()))
            .collect();
        let keyspace = |at: PartitionRef| {
            table
                .keyspace(at.keyspace)
                .map(|k| k.name.clone())
                .unwrap_or_default()
        };
        let member = |id: &MemberId| {
            names
                .get(id)
                .map_or_else(|| id.to_string(), |name| (*name).to_owned())
        };
        let goal = |(at, members): &(PartitionRef, Vec<MemberId>)| Goal {
            keyspace: keyspace(*at),
            partition: at.partition.0,
            members: members.iter().map(member).collect(),
        };
        let step = |operator: &Operator| {
            let (action, who) = match &operator.action {
                OperatorAction::AddLearner(m) => ("add learner", Some(m)),
                OperatorAction::Promote(m) => ("promote", Some(m)),
                OperatorAction::TransferPrimary { to, .. } => ("transfer primary", Some(to)),
                OperatorAction::RemoveCopy(m) => ("remove copy", Some(m)),
                OperatorAction::Split(_) => ("split", None),
                OperatorAction::Merge(_) => ("merge", None),
            };
            let held = |state| {
                operator
                    .after
                    .iter()
                    .filter(|r| r.state == state)
                    .map(|r| member(&r.member))
                    .collect()
            };
            Step {
                keyspace: keyspace(operator.partition),
                partition: operator.partition.partition.0,
                action: action.to_owned(),
                member: who.map(member),
                at: if let OperatorAction::Split(cut) = &operator.action {
                    Some(place(cut))
                } else {
                    None
                },
                with: if let OperatorAction::Merge(next) = operator.action {
                    Some(next.0)
                } else {
                    None
                },
                from: if let OperatorAction::TransferPrimary { from, .. } = operator.action {
                    Some(member(&from))
                } else {
                    None
                },
                reason: operator.reason.to_string(),
                priority: operator.reason.priority(),
                bytes: operator.bytes,
                holders: held(ReplicaState::InSync),
                learners: held(ReplicaState::Learner),
            }
        };
        Self {
            table: table.name().to_string(),
            automatic: table
                .settings
                .active()
                .iter()
                .map(|scheduler| scheduler.to_string())
                .collect(),
            goals: goals.iter().map(goal).collect(),
            operators: operators.iter().map(step).collect(),
            bytes: operators
                .iter()
                .filter_map(|operator| operator.bytes)
                .fold(0, u64::saturating_add),
        }
    }

    /// What to ask the coordinator for.
    pub(crate) fn request(&self, table: &Table) -> Result<AdminRequest, Unreadable> {
        let (made_for, in_force) = (self.table.parse()?, table.name());
        if made_for != in_force {
            return Err(Unreadable::OtherTable { made_for, in_force });
        }
        if self.goals.is_empty() {
            return Err(Unreadable::Nothing);
        }
        let names: BTreeMap<&str, MemberId> = table
            .members
            .iter()
            .map(|m| (m.name.as_str(), m.id))
            .collect();
        let member = |name: &String| {
            names
                .get(name.as_str())
                .copied()
                .ok_or_else(|| Unreadable::Member(name.clone()))
        };
        let goal = |goal: &Goal| {
            let keyspace = table
                .keyspace_named(&goal.keyspace)
                .ok_or_else(|| Unreadable::Keyspace(goal.keyspace.clone()))?
                .id;
            let at = PartitionRef {
                keyspace,
                partition: PartitionId(goal.partition),
            };
            Ok((
                at,
                goal.members
                    .iter()
                    .map(member)
                    .collect::<Result<Vec<_>, Unreadable>>()?,
            ))
        };
        let goals = self
            .goals
            .iter()
            .map(goal)
            .collect::<Result<Plan, Unreadable>>()?;
        Ok(AdminRequest::ApplyPlan {
            base: made_for,
            goals,
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            keyspace,
            partition,
            action,
            member,
            at,
            with,
            from,
            reason,
            priority: _,
            bytes,
            holders,
            learners,
        } = self;
        write!(f, "{keyspace}/{partition}: {action}")?;
        match (from, member) {
            (Some(from), Some(member)) => write!(f, " from {from} to {member}")?,
            (_, Some(member)) => write!(f, " {member}")?,
            _ => {}
        }
        at.iter().try_for_each(|at| write!(f, " at {at}"))?;
        with.iter().try_for_each(|with| write!(f, " with {with}"))?;
        write!(f, " ({reason})")?;
        if let Some(bytes) = bytes.filter(|bytes| *bytes > 0) {
            write!(f, ", {bytes} bytes")?;
        }
        if member.is_some() {
            write!(f, ", then {}", holders.join(" "))?;
            learners
                .iter()
                .try_for_each(|learner| write!(f, " ({learner})"))?;
        }
        Ok(())
    }
}

/// Where something is split.
fn place(cut: &Cut) -> String {
    match cut {
        Cut::Half => "half".into(),
        Cut::Token { token, .. } => token.0.to_string(),
        Cut::Key { map: MapId(0), key } => format!("\"{}\"", key.escape_ascii()),
        Cut::Key { map, key } => format!("map {} \"{}\"", map.0, key.escape_ascii()),
    }
}

/// The schedulers of these names.
pub fn schedulers(names: &[String]) -> Result<Schedulers, NoScheduler> {
    names.iter().map(|name| name.parse::<Scheduler>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Defaults, Options};
    use doyen_placement::planner::DEFAULT_KEYSPACE;
    use doyen_placement::{
        Addresses, Age, ClusterId, Location, Member, MemberState, Role, Version,
    };

    fn member(number: u64) -> Member {
        let control = ([127, 0, 0, 1], 7400 + number as u16).into();
        Member {
            id: MemberId(number << 4),
            age: Age(0),
            name: format!("n{number}"),
            role: Role::Data,
            state: MemberState::Live,
            addresses: Addresses {
                control,
                data: control,
                resp: None,
                resp_cluster: None,
                http: None,
                further: Vec::new(),
                hostname: None,
            },
            location: Location::default(),
            weight: 100,
        }
    }

    /// Two members, and a third that has come since.
    fn joined() -> Table {
        let config = Options {
            partitions: Some(16),
            ..Options::default()
        }
        .resolve(Defaults::Binary)
        .expect("it can hold");
        let table = planner::first(
            ClusterId(7),
            config.settings,
            config.keyspace,
            vec![member(1), member(2)],
        );
        planner::admit(&table, vec![member(3)])
    }

    #[test]
    fn a_plan_comes_back_from_a_file_as_the_request_that_it_is() {
        let table = joined();
        let plan = RebalancePlan::new(&table, &Loads::default());
        assert!(
            plan.operators.iter().any(|step| step
                .to_string()
                .contains("add learner n3 (balance of copies), then n")),
            "{plan:?}"
        );
        let text = serde_json::to_string(&plan).expect("it can be written");
        let read: RebalancePlan = serde_json::from_str(&text).expect("it can be read");
        assert_eq!(read, plan);
        let Ok(AdminRequest::ApplyPlan { base, goals }) = read.request(&table) else {
            panic!("it is for this table")
        };
        assert_eq!(
            (base, goals),
            (table.name(), planner::plan(&table, &Loads::default()))
        );
    }

    #[test]
    fn what_a_plan_says_wrong_is_told() {
        let table = joined();
        let wrong = |spoil: &dyn Fn(&mut RebalancePlan)| {
            let mut plan = RebalancePlan::new(&table, &Loads::default());
            spoil(&mut plan);
            plan.request(&table)
                .expect_err("it says something wrong")
                .to_string()
        };
        let later = Table {
            version: Version(9),
            ..table.clone()
        };
        assert!(wrong(&|p| p.table = later.name().to_string()).contains("make another plan"));
        assert!(wrong(&|p| p.table = "the one of yesterday".into()).contains("no name of a table"));
        assert!(wrong(&|p| p.goals.clear()).contains("moves nothing"));
        assert!(wrong(&|p| p.goals[0].keyspace = "other".into()).contains("keyspace \"other\""));
        assert!(wrong(&|p| p.goals[0].members[0] = "n9".into()).contains("member \"n9\""));
        assert_eq!(table.keyspaces[0].name, DEFAULT_KEYSPACE);
    }

    #[test]
    fn schedulers_are_named() {
        let names = |names: &[&str]| {
            schedulers(
                &names
                    .iter()
                    .map(|name| (*name).to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(names(&["place", "drain", "repair"]), Ok(Schedulers::MANUAL));
        assert!(names(&["balance"]).is_err_and(|why| {
            why.to_string()
                .contains("repair, drain, place, copies, primaries, hot, splits and merges")
        }));
    }
}
