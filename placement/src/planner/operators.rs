//! A plan, step by step: each step with its reason and its result.

use super::Plan;
use super::due::due;
use super::edit::{may_receive, states};
use super::layout::{Bounds, Topology};
use crate::division::Cut;
use crate::id::{KeyspaceId, MemberId, PartitionId, PartitionRef};
use crate::loads::Loads;
use crate::table::{MemberState, Partition, Replica, ReplicaState, Reshape, Table};
use crate::words::counted;
use std::collections::BTreeMap;
use std::fmt;

/// One step of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    /// The partition.
    pub partition: PartitionRef,
    /// The action.
    pub action: OperatorAction,
    /// The reason.
    pub reason: Reason,
    /// The bytes that are copied for it, if they are known. Only a new learner is copied.
    pub bytes: Option<u64>,
    /// The replicas in the table that follows, the primary first. Of a split or a merge, those of
    /// the result.
    pub after: Vec<Replica>,
}

/// The actions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperatorAction {
    /// This member begins to receive a copy.
    AddLearner(MemberId),
    /// This member's copy counts from now on.
    Promote(MemberId),
    /// Another member becomes primary.
    TransferPrimary {
        /// The former primary.
        from: MemberId,
        /// The new primary.
        to: MemberId,
    },
    /// This member's copy is dropped.
    RemoveCopy(MemberId),
    /// The partition is split there. That happens by itself, without a plan.
    Split(Cut),
    /// The partition and the next one are merged. That happens by itself, too.
    Merge(PartitionId),
}

/// The reasons for moves, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// There are too few copies, or too many.
    Repair,
    /// A member leaves or is emptied.
    Drain,
    /// A rule of the keyspace requires it.
    Rule,
    /// Copies stand nearer to one another than necessary.
    Apart,
    /// The measured work of members is evened out.
    Hot,
    /// A range has become large or busy, or an operator wants it.
    Large,
    /// A keyspace shall have more partitions.
    Number,
    /// Members of a ring have come or gone with their tokens.
    Tokens,
    /// Each member shall lead its share.
    Primaries,
    /// Each member shall hold its share.
    Copies,
    /// Ranges are small and idle, or an operator wants it.
    Small,
    /// Other members hold it by now.
    Surplus,
}

impl Reason {
    /// The urgency: 0 goes first.
    #[must_use]
    pub const fn priority(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Repair => "repair",
            Self::Drain => "drain",
            Self::Rule => "rule",
            Self::Apart => "keep copies apart",
            Self::Hot => "balance of load",
            Self::Large => "size or load of a range",
            Self::Number => "number of partitions",
            Self::Tokens => "tokens of members",
            Self::Primaries => "balance of primaries",
            Self::Copies => "balance of copies",
            Self::Small => "small ranges at rest",
            Self::Surplus => "enough other copies",
        })
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            partition,
            action,
            reason,
            bytes,
            after: _,
        } = self;
        write!(f, "{partition}: {action} ({reason})")?;
        match bytes {
            Some(bytes) if *bytes > 0 => write!(f, ", {}", counted(*bytes, ("byte", "bytes"))),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for OperatorAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddLearner(m) => write!(f, "add learner {m}"),
            Self::Promote(m) => write!(f, "promote {m}"),
            Self::TransferPrimary { from, to } => write!(f, "transfer primary from {from} to {to}"),
            Self::RemoveCopy(m) => write!(f, "remove copy of {m}"),
            Self::Split(_) => f.write_str("split"),
            Self::Merge(next) => write!(f, "merge with {next}"),
        }
    }
}

/// The steps to these goals, and to goals in the table that they do not replace, with splits and
/// merges. `loads` gives the sizes of partitions, as far as they are known. While it says that work
/// is uneven, moves for balance count as moves for that.
///
/// The most urgent steps come first: partitions by their most urgent reason, then by name, each
/// with its steps in order. Goals that are impossible in this table are left out.
#[must_use]
pub fn operators(table: &Table, goals: &Plan, loads: &Loads) -> Vec<Operator> {
    let topology = Topology::new(
        table
            .members
            .iter()
            .filter(|m| may_receive(m))
            .cloned()
            .collect(),
    );
    let rules: BTreeMap<KeyspaceId, Bounds> = table
        .keyspaces
        .iter()
        .map(|k| (k.id, Bounds::new(&topology, &k.rules)))
        .collect();
    let states = states(table);
    let goals: BTreeMap<PartitionRef, &Vec<MemberId>> =
        goals.iter().map(|(at, goal)| (*at, goal)).collect();
    let moves = table.partitions().filter_map(|(at, partition)| {
        let goal = goals
            .get(&at)
            .copied()
            .or(partition.goal.as_ref())
            .filter(|goal| !goal.is_empty())?;
        let view = PlanView {
            topology: &topology,
            rules: rules.get(&at.keyspace)?,
            states: &states,
            hot: loads.uneven().work,
            begun: !goals.contains_key(&at),
        };
        let steps = view.steps(partition, goal);
        Some((steps.iter().map(|(_, reason)| *reason).min()?, at, steps))
    });
    let shapes = due(table, loads)
        .into_iter()
        .map(|(keyspace, reshape, reason)| {
            let (partition, action) = match reshape {
                Reshape::Split { partition, cut } => (partition, OperatorAction::Split(cut)),
                Reshape::Merge {
                    partitions: [first, second],
                } => (first, OperatorAction::Merge(second)),
            };
            (
                reason,
                PartitionRef::new(keyspace, partition),
                vec![(action, reason)],
            )
        });
    let mut moves: Vec<_> = moves.chain(shapes).collect();
    // Partitions come in order of name, and the sort is stable.
    moves.sort_by_key(|(reason, ..)| *reason);
    let mut told = Vec::new();
    for (_, at, steps) in moves {
        let mut held = table
            .partition(at)
            .map(|p| p.replicas.clone())
            .unwrap_or_default();
        for (action, reason) in steps {
            take(&mut held, &action);
            let bytes = match action {
                OperatorAction::AddLearner(_) => loads.partition(at).map(|load| load.bytes),
                _ => Some(0),
            };
            told.push(Operator {
                partition: at,
                action,
                reason,
                bytes,
                after: held.clone(),
            });
        }
    }
    told
}

/// The effect of an action on the replicas of a partition.
fn take(replicas: &mut Vec<Replica>, action: &OperatorAction) {
    match action {
        OperatorAction::AddLearner(member) => replicas.push(Replica {
            member: *member,
            state: ReplicaState::Learner,
        }),
        OperatorAction::Promote(member) => {
            let learns = |r: &Replica| r.state == ReplicaState::Learner;
            replicas.retain(|r| r.member != *member);
            let place = replicas.iter().position(learns).unwrap_or(replicas.len());
            replicas.insert(
                place,
                Replica {
                    member: *member,
                    state: ReplicaState::InSync,
                },
            );
        }
        OperatorAction::TransferPrimary { to, .. } => {
            if let Some(place) = replicas.iter().position(|r| r.member == *to) {
                replicas.swap(0, place);
            }
        }
        OperatorAction::RemoveCopy(member) => replicas.retain(|r| r.member != *member),
        OperatorAction::Split(_) | OperatorAction::Merge(_) => {}
    }
}

/// Everything that decides the reason of one partition's move.
struct PlanView<'a> {
    topology: &'a Topology,
    rules: &'a Bounds,
    states: &'a BTreeMap<MemberId, MemberState>,
    hot: bool,
    /// Whether the table has its goal already, so that it may be reached in part.
    begun: bool,
}

impl PlanView<'_> {
    fn steps(&self, partition: &Partition, goal: &[MemberId]) -> Vec<(OperatorAction, Reason)> {
        let arrivals: Vec<MemberId> = goal
            .iter()
            .copied()
            .filter(|m| !partition.in_sync().any(|held| held == *m))
            .collect();
        let gone: Vec<MemberId> = partition
            .replicas
            .iter()
            .map(|r| r.member)
            .filter(|m| !goal.contains(m))
            .collect();
        let goes = |m: &&MemberId| {
            matches!(
                self.state(**m),
                MemberState::Draining | MemberState::Leaving
            )
        };
        let answering = partition
            .in_sync()
            .filter(|m| self.state(*m) != MemberState::Silent)
            .count();
        // Newcomers first make up for missing copies, then for members that leave. The others
        // replace copies that are dropped elsewhere.
        let lacking = goal.len().saturating_sub(answering);
        let drained = lacking + gone.iter().filter(goes).count();
        let replaced = arrivals.len().saturating_sub(drained);
        let dropped: Vec<MemberId> = gone
            .iter()
            .filter(|m| self.state(**m) == MemberState::Live)
            .copied()
            .take(replaced)
            .collect();
        let moved = self.moved(goal, arrivals.get(drained..).unwrap_or_default(), &dropped);
        let why_gone = |m: &MemberId| match self.state(*m) {
            MemberState::Draining | MemberState::Leaving => Reason::Drain,
            MemberState::Live if dropped.contains(m) => moved,
            // It is no longer known why the others came, or whether fewer copies are wanted.
            MemberState::Live if self.begun && answering > goal.len() => Reason::Surplus,
            MemberState::Live | MemberState::Silent => Reason::Repair,
        };

        let mut steps = Vec::new();
        for (place, member) in arrivals.into_iter().enumerate() {
            let reason = if place < lacking {
                Reason::Repair
            } else if place < drained {
                Reason::Drain
            } else {
                moved
            };
            if !partition.holds(member) {
                steps.push((OperatorAction::AddLearner(member), reason));
            }
            steps.push((OperatorAction::Promote(member), reason));
        }
        let (from, to) = (partition.primary(), goal[0]);
        if from != to {
            let reason = Some(&from)
                .filter(|from| gone.contains(from))
                .map(why_gone)
                .filter(|why| *why != Reason::Surplus);
            let reason = reason.unwrap_or_else(|| self.why_led(from, to));
            steps.push((OperatorAction::TransferPrimary { from, to }, reason));
        }
        steps.extend(
            gone.iter()
                .map(|m| (OperatorAction::RemoveCopy(*m), why_gone(m))),
        );
        steps
    }

    fn state(&self, member: MemberId) -> MemberState {
        self.states
            .get(&member)
            .copied()
            .unwrap_or(MemberState::Silent)
    }

    /// Why copies go from these members to those: compares the goal with the goal without this
    /// move.
    fn moved(&self, goal: &[MemberId], to: &[MemberId], from: &[MemberId]) -> Reason {
        let kept = goal.iter().filter(|m| !to.contains(m)).chain(from);
        let (before, after) = (self.measure(kept), self.measure(goal.iter()));
        if before.0 > after.0 {
            Reason::Rule
        } else if before.1 > after.1 {
            Reason::Apart
        } else if self.hot {
            Reason::Hot
        } else {
            Reason::Copies
        }
    }

    /// How badly these copies break the rules, and how near they stand to one another.
    fn measure<'m>(&self, members: impl Iterator<Item = &'m MemberId>) -> (u32, u32) {
        let places: Vec<usize> = members.filter_map(|m| self.topology.place(*m)).collect();
        let near = places
            .iter()
            .enumerate()
            .map(|(n, place)| self.topology.nearness(*place, places[..n].iter().copied()))
            .sum();
        (self.rules.harm(places.iter().copied()), near)
    }

    fn why_led(&self, from: MemberId, to: MemberId) -> Reason {
        let harm = |m| {
            self.topology
                .place(m)
                .map(|place| self.rules.harm_of_lead(place))
        };
        match (harm(from), harm(to)) {
            (Some(before), Some(after)) if before > after => Reason::Rule,
            (Some(_), _) if self.hot => Reason::Hot,
            (Some(_), _) => Reason::Primaries,
            // The former primary may receive no copies any more, and still holds what no other
            // member does yet.
            (None, _) => Reason::Drain,
        }
    }
}
