//! What a plan would move, as people and files see it: [`RebalancePlan`] is at once what `GET /rebalance` answers, what
//! `doyen rebalance --plan --json` writes, what `POST /rebalance` takes, and what the library gives and takes.

use doyen_gossip::agreement::AdminRequest;
use doyen_placement::planner::{self, Action, Operator, Plan};
use doyen_placement::{MemberId, NoTableName, PartitionId, PartitionRef, Schedulers, Table, TableName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Where partitions would go, and every step of it with its reason. It can be applied to the table that it was made for, and to no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RebalancePlan {
    /// The table that it was made for: `CLUSTER/TERM/VERSION/HASH`.
    pub table: String,
    /// For which reasons copies move by themselves: `repair`, `place`, `copies`, `primaries`. The plan itself is for all of them.
    #[serde(default)]
    pub automatic: Vec<String>,
    /// Partitions that would go elsewhere. Those that are under way already are not among them.
    pub goals: Vec<Goal>,
    /// The steps, the most urgent first; those of moves under way among them.
    #[serde(default)]
    pub operators: Vec<Step>,
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
    /// `add learner`, `promote`, `transfer primary` or `remove copy`.
    pub action: String,
    /// Of whom; for `transfer primary`, to whom.
    pub member: String,
    /// For `transfer primary`, from whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `repair`, `drain`, `rule`, `keep copies apart`, `balance of primaries` or `balance of copies`.
    pub reason: String,
    /// 0 goes first.
    pub priority: u8,
    /// What is copied, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// Why a plan says nothing for a table.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error(transparent)]
    Name(#[from] NoTableName),
    #[error("the plan was made for table {made_for}, and table {in_force} is in force: make another plan")]
    OtherTable { made_for: TableName, in_force: TableName },
    #[error("the plan names a keyspace {0:?}, which is not there")]
    Keyspace(String),
    #[error("the plan names a member {0:?}, which is not there")]
    Member(String),
    #[error("the plan moves nothing")]
    Nothing,
}

impl RebalancePlan {
    /// What would move in this table if every scheduler were on. Goes through the whole table.
    pub(crate) fn new(table: &Table) -> Self {
        let goals = planner::plan_for(table, Schedulers::ALL);
        let operators = planner::operators(table, &goals, &BTreeMap::new());
        let names: BTreeMap<MemberId, &str> = table.members.iter().map(|m| (m.id, m.name.as_str())).collect();
        let keyspace = |at: PartitionRef| table.keyspace(at.keyspace).map(|k| k.name.clone()).unwrap_or_default();
        let member = |id: &MemberId| names.get(id).map_or_else(|| id.to_string(), |name| (*name).to_owned());
        let goal = |(at, members): &(PartitionRef, Vec<MemberId>)| Goal {
            keyspace: keyspace(*at),
            partition: at.partition.0,
            members: members.iter().map(member).collect(),
        };
        let step = |operator: &Operator| {
            let (action, who, from) = match operator.action {
                Action::AddLearner(m) => ("add learner", m, None),
                Action::Promote(m) => ("promote", m, None),
                Action::TransferPrimary { from, to } => ("transfer primary", to, Some(member(&from))),
                Action::RemoveCopy(m) => ("remove copy", m, None),
            };
            Step {
                keyspace: keyspace(operator.partition),
                partition: operator.partition.partition.0,
                action: action.to_owned(),
                member: member(&who),
                from,
                reason: operator.reason.to_string(),
                priority: operator.reason.priority(),
                bytes: operator.bytes,
            }
        };
        Self {
            table: table.name().to_string(),
            automatic: table.settings.schedulers.iter().map(|scheduler| scheduler.to_string()).collect(),
            goals: goals.iter().map(goal).collect(),
            operators: operators.iter().map(step).collect(),
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
        let names: BTreeMap<&str, MemberId> = table.members.iter().map(|m| (m.name.as_str(), m.id)).collect();
        let member = |name: &String| names.get(name.as_str()).copied().ok_or_else(|| Unreadable::Member(name.clone()));
        let goal = |goal: &Goal| {
            let keyspace = table.keyspace_named(&goal.keyspace).ok_or_else(|| Unreadable::Keyspace(goal.keyspace.clone()))?.id;
            let at = PartitionRef { keyspace, partition: PartitionId(goal.partition) };
            Ok((at, goal.members.iter().map(member).collect::<Result<Vec<_>, Unreadable>>()?))
        };
        let goals = self.goals.iter().map(goal).collect::<Result<Plan, Unreadable>>()?;
        Ok(AdminRequest::ApplyPlan { base: made_for, goals })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keyspace, partition, action, member, from, reason, priority: _, bytes } = self;
        write!(f, "{keyspace}/{partition}: {action}")?;
        match from {
            Some(from) => write!(f, " from {from} to {member}")?,
            None => write!(f, " {member}")?,
        }
        write!(f, " ({reason})")?;
        match bytes {
            Some(bytes) if *bytes > 0 => write!(f, ", {bytes} bytes"),
            _ => Ok(()),
        }
    }
}

/// What moves by itself where nobody plans by hand, and where somebody does.
pub(crate) const fn schedulers(automatic: bool) -> Schedulers {
    if automatic { Schedulers::ALL } else { Schedulers::MANUAL }
}
