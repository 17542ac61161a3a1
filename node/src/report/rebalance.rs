//! Plans of moves, for people and files. `GET /rebalance` answers a [`RebalancePlan`], `doyen
//! rebalance --plan --json` writes one, `POST /rebalance` takes one, and the library gives and
//! takes one.

use doyen_placement::division::Cut;
use doyen_placement::planner::{self, Operator, OperatorAction};
use doyen_placement::words::counted;
use doyen_placement::{Loads, MapId, MemberId, PartitionRef, ReplicaState, Schedulers, Table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Largest plan as JSON: steps and goals of 65536 partitions take about half of it.
pub const PLAN_BYTES_MAX: usize = 64 << 20;

/// The moves of a plan, and every step with its reason. The plan can be applied only to the table
/// that it was made for.
///
/// Example: [`Admin::rebalance`](crate::Admin::rebalance).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RebalancePlan {
    /// The table that it was made for: `CLUSTER/TERM/VERSION/HASH`.
    pub table: String,
    /// The schedulers that are on: `repair`, `drain`, `place`, `copies`, `primaries`, `hot`,
    /// `splits`, `merges`. The plan's goals cover every reason for which copies move.
    #[serde(default)]
    pub automatic: Vec<String>,
    /// Partitions that would move. Moves that are under way already are not among them.
    pub goals: Vec<Goal>,
    /// The steps, the most urgent first, including those of moves under way.
    #[serde(default)]
    pub operators: Vec<Step>,
    /// Bytes that all steps together copy, as far as sizes are known.
    #[serde(default)]
    pub bytes: u64,
}

/// The goal of a partition.
///
/// Example: [`Admin::rebalance`](crate::Admin::rebalance).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// Its keyspace.
    pub keyspace: String,
    /// Its number.
    pub partition: u32,
    /// The names of the members that would hold it, the primary first.
    pub members: Vec<String>,
}

/// One step of a move.
///
/// Example: [`Admin::rebalance`](crate::Admin::rebalance).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The partition's keyspace.
    pub keyspace: String,
    /// The partition's number.
    pub partition: u32,
    /// `add learner`, `promote`, `transfer primary` or `remove copy`; or `split` or `merge`, which
    /// happen without a plan that is applied.
    pub action: String,
    /// The member whose copy it is; for `transfer primary`, the next primary; none for `split` and
    /// `merge`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// For `split`, the place: a key, a token, or `half` of the slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// For `merge`, the other partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<u32>,
    /// For `transfer primary`, the present primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `repair`, `drain`, `rule`, `keep copies apart`, `balance of load`, `balance of primaries` or
    /// `balance of copies`; of splits and merges `balance of load`, `size or load of a range`,
    /// `number of partitions`, `tokens of members` or `small ranges at rest`.
    pub reason: String,
    /// The rank of the step; 0 goes first.
    pub priority: u8,
    /// Bytes that are copied, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The members that hold it in the table that follows, the primary first.
    #[serde(default)]
    pub holders: Vec<String>,
    /// The members that are learning it in the table that follows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learners: Vec<String>,
}

impl RebalancePlan {
    /// The plan for this table if every scheduler were on. Goes through the whole table.
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
            write!(f, ", {}", counted(bytes, ("byte", "bytes")))?;
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

/// The place of a split, for people.
fn place(cut: &Cut) -> String {
    match cut {
        Cut::Half => "half".into(),
        Cut::Token { token, .. } => token.0.to_string(),
        Cut::Key { map: MapId(0), key } => format!("\"{}\"", key.escape_ascii()),
        Cut::Key { map, key } => format!("map {} \"{}\"", map.0, key.escape_ascii()),
    }
}
