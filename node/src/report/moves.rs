//! Moves and the settings of balancing: what `GET /moves` and `GET /balance` answer, what `doyen
//! moves` shows, and what the library gives.

use doyen_placement::loads::CopyPhase;
use doyen_placement::planner::{self, OperatorAction, Reason};
use doyen_placement::{
    Balancing, Loads, MemberId, MemberState, MoveRate, Partition, PartitionRef, Scheduler,
    Schedulers, Table,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All moves, and the settings of balancing.
///
/// ```no_run
/// # async fn example(node: doyen::Node) -> Result<(), doyen::ReportError> {
/// let report = node.admin().moves().await?;
/// println!("balancing: {}, at {}", report.balance.state, report.balance.spoken_rate());
/// for each in &report.moves {
///     println!("{} from {} to {}: {}, {}", each.id, each.from, each.to, each.stage, each.reason);
/// }
/// for drain in &report.draining {
///     println!("{} still holds {} copies", drain.member, drain.holds);
/// }
/// print!("{}", report.halted_line()); // empty, if moves make progress
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MovesReport {
    /// Moves under way first. Within both groups, the most urgent first.
    pub moves: Vec<MoveReport>,
    /// Why no move makes progress: no member coordinates the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted: Option<String>,
    /// The settings of balancing.
    pub balance: BalanceReport,
    /// Members that are being emptied.
    #[serde(default)]
    pub draining: Vec<DrainReport>,
}

/// One copy that is being made, or one step that is due.
///
/// Example: [`MovesReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MoveReport {
    /// What `doyen rebalance cancel` takes: `KEYSPACE/PARTITION`.
    pub id: String,
    /// `waiting`, `no room` (the target needs more memory, or the cluster another member),
    /// `copying`, `catching up`, `comparing`, `equal`, `switching` (another member is to lead) or
    /// `dropping`.
    pub stage: String,
    /// Why, as plans say it.
    pub reason: String,
    /// The primary, which sends copies; or the member whose copy is dropped.
    pub from: String,
    /// The member that learns or will learn the copy; or the next primary; or, if a copy is
    /// dropped, the primary.
    pub to: String,
    /// Bytes of the snapshot that were sent.
    pub bytes_sent: u64,
    /// Bytes of the snapshot that are still to be sent, as far as that is known.
    pub bytes_left: u64,
    /// Bytes a second over the last moments.
    pub rate: u64,
    /// The remaining time at that rate; `None`: not known.
    #[serde(default)]
    pub seconds_left: Option<u64>,
}

/// The settings of balancing.
///
/// Example: [`MovesReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BalanceReport {
    /// `on`; `paused by an operator`, `paused because moves failed one after the other`;
    /// `outside its window`.
    pub state: String,
    /// Whether anything may move for balance now.
    pub on: bool,
    /// The schedulers that are on: `repair`, `drain` and so on.
    pub automatic: Vec<String>,
    /// `adaptive`, or the most bytes a second that each member sends and takes.
    pub rate: String,
    /// `always`, or a time of day in UTC: `22:00-06:00`.
    pub window: String,
    /// Partitions whose move was cancelled.
    pub held: Vec<String>,
}

/// A member that is being emptied.
///
/// Example: [`MovesReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DrainReport {
    /// Its name.
    pub member: String,
    /// Partitions that it still leads.
    pub leads: usize,
    /// Partitions whose copy it still holds, including those that it leads.
    pub holds: usize,
    /// Why it makes no progress, if it makes none.
    #[serde(default)]
    pub waits_for: Option<String>,
}

impl MovesReport {
    /// The report of this table and these loads. `halted`: why no member coordinates, if none does.
    pub fn new(table: &Table, loads: &Loads, halted: Option<String>) -> Self {
        let mut reasons: BTreeMap<PartitionRef, Reason> = BTreeMap::new();
        for operator in planner::operators(table, &Vec::new(), loads) {
            if !matches!(
                operator.action,
                OperatorAction::Split(_) | OperatorAction::Merge(_)
            ) {
                let reason = reasons.entry(operator.partition).or_insert(operator.reason);
                *reason = operator.reason.min(*reason);
            }
        }
        let mut moves: Vec<(bool, u8, Option<CopyPhase>, MoveReport)> = Vec::new();
        for (at, partition) in table.partitions() {
            // A learner that no goal names belongs to a repair: its goal was dropped, and the next
            // plan finds it.
            let reason = reasons.get(&at).copied().unwrap_or(Reason::Repair);
            let all = steps(table, loads, at, partition, reason);
            moves.extend(
                all.into_iter()
                    .map(|(phase, report)| (report.waits(), reason.priority(), phase, report)),
            );
        }
        moves.sort_by_key(|(waits, priority, phase, _)| {
            (*waits, *priority, std::cmp::Reverse(*phase))
        });
        let drains = |id| table.settings.balancing.drains(id);
        let draining = table
            .members
            .iter()
            .filter(|m| m.state == MemberState::Draining || drains(m.id));
        Self {
            moves: moves.into_iter().map(|(.., report)| report).collect(),
            halted,
            balance: BalanceReport::new(table),
            draining: draining
                .map(|m| DrainReport::new(table, loads, m.id))
                .collect(),
        }
    }

    /// Bytes that all moves together still have to copy.
    pub fn bytes_left(&self) -> u64 {
        let left = self.moves.iter().map(|one| one.bytes_left);
        left.fold(0, u64::saturating_add)
    }

    /// Bytes a second of all moves together.
    pub fn rate(&self) -> u64 {
        let rates = self.moves.iter().map(|one| one.rate);
        rates.fold(0, u64::saturating_add)
    }

    /// A line that says that no move makes progress, and why; empty if moves make progress.
    pub fn halted_line(&self) -> String {
        self.halted
            .as_ref()
            .map(|why| format!("nothing goes on: {why} (`doyen status`)\n"))
            .unwrap_or_default()
    }
}

/// The present or next step of one partition.
fn steps(
    table: &Table,
    loads: &Loads,
    at: PartitionRef,
    partition: &Partition,
    reason: Reason,
) -> Vec<(Option<CopyPhase>, MoveReport)> {
    let name = |id: MemberId| {
        table
            .member(id)
            .map_or_else(|| id.to_string(), |m| m.name.clone())
    };
    let report = |stage: &str, to: MemberId| MoveReport {
        id: table.name_of(at),
        stage: stage.into(),
        reason: reason.to_string(),
        from: name(partition.primary()),
        to: name(to),
        bytes_sent: 0,
        bytes_left: 0,
        rate: 0,
        seconds_left: None,
    };
    let known = loads.partition(at).map_or(0, |load| load.bytes);
    let waiting = |to: MemberId| {
        let full = loads
            .member(to)
            .is_some_and(|load| !load.has_room(known, planner::ranges::may_stay(table, at)));
        (
            None,
            MoveReport {
                bytes_left: known,
                ..report(if full { "no room" } else { "waiting" }, to)
            },
        )
    };
    let mut all: Vec<(Option<CopyPhase>, MoveReport)> = Vec::new();
    for learner in partition.learners() {
        let told = loads.progress(at, learner).map(|p| {
            let (left, rate) = (
                if p.bytes_sent == 0 {
                    known
                } else {
                    p.bytes_left()
                },
                p.rate,
            );
            let seconds_left = (p.phase == CopyPhase::Copying)
                .then(|| left.checked_div(rate))
                .flatten();
            (
                Some(p.phase),
                MoveReport {
                    bytes_sent: p.bytes_sent,
                    bytes_left: left,
                    rate,
                    seconds_left,
                    ..report(&p.phase.to_string(), learner)
                },
            )
        });
        all.push(told.unwrap_or_else(|| waiting(learner)));
    }
    let Some(goal) = &partition.goal else {
        return all;
    };
    let coming = goal.iter().filter(|m| !partition.holds(**m));
    all.extend(coming.map(|m| waiting(*m)));
    if all.is_empty() {
        let dropped = partition.in_sync().find(|m| !goal.contains(m));
        all.extend(match goal.first() {
            Some(lead) if *lead != partition.primary() => Some((None, report("switching", *lead))),
            // If no copy is left to drop, the move is finished, and the next table says so.
            _ => dropped.map(|member| {
                (
                    None,
                    MoveReport {
                        from: name(member),
                        ..report("dropping", partition.primary())
                    },
                )
            }),
        });
    }
    all
}

impl MoveReport {
    /// Whether it has not begun.
    pub fn waits(&self) -> bool {
        matches!(self.stage.as_str(), "waiting" | "no room")
    }
}

impl BalanceReport {
    /// The state in which every scheduler is on.
    pub const ON: &'static str = "on";

    /// The rate, for people.
    pub fn spoken_rate(&self) -> String {
        self.rate.parse().map_or_else(
            |_| self.rate.clone(),
            |rate| MoveRate::Bytes(rate).to_string(),
        )
    }

    /// The settings in this table.
    pub fn new(table: &Table) -> Self {
        let Balancing {
            paused,
            window,
            closed,
            rate,
            held,
            drained: _,
        } = &table.settings.balancing;
        let state = match (paused, closed) {
            (Some(by), _) => format!("paused {by}"),
            (None, true) => "outside its window".into(),
            (None, false) if table.settings.schedulers == Schedulers::ALL => Self::ON.into(),
            (None, false) if table.settings.schedulers.iter().next().is_none() => "manual".into(),
            (None, false) => "on in part".into(),
        };
        Self {
            state,
            on: !table.settings.balancing.rests(),
            automatic: table
                .settings
                .active()
                .iter()
                .map(|scheduler| scheduler.to_string())
                .collect(),
            rate: match rate {
                MoveRate::Adaptive => "adaptive".into(),
                MoveRate::Bytes(bytes) => bytes.to_string(),
            },
            window: window.map_or_else(|| "always".into(), |window| window.to_string()),
            held: held.iter().map(|at| table.name_of(*at)).collect(),
        }
    }
}

impl DrainReport {
    fn new(table: &Table, loads: &Loads, member: MemberId) -> Self {
        let held = || table.partitions().filter(|(_, p)| p.holds(member));
        let receivers = table
            .members
            .iter()
            .filter(|m| planner::may_receive(m))
            .count();
        let active = table.settings.active();
        let lacking = [Scheduler::Drain, Scheduler::Repair]
            .into_iter()
            .filter(|reason| !active.has(*reason));
        let lacking: Vec<String> = lacking.map(|reason| reason.to_string()).collect();
        // Moves that were planned earlier continue.
        let planned =
            || held().any(|(_, p)| p.goal.as_ref().is_some_and(|goal| !goal.contains(&member)));
        // The smallest partition that it holds, as far as sizes are known.
        let least = held()
            .filter_map(|(at, _)| loads.partition(at))
            .map(|load| load.bytes)
            .min()
            .unwrap_or(0);
        let room = table
            .members
            .iter()
            .filter(|m| planner::may_receive(m))
            .any(|m| {
                loads
                    .member(m.id)
                    .is_none_or(|load| load.has_room(least, false))
            });
        let waits_for = match () {
            () if held().next().is_none() => None,
            () if table
                .member(member)
                .is_some_and(|m| m.state == MemberState::Silent) =>
            {
                Some("it does not answer".to_owned())
            }
            () if receivers == 0 => Some("no other member may hold data: start one".to_owned()),
            () if !lacking.is_empty() && !planned() => {
                let lacking = lacking.join(" and ");
                Some(format!(
                    "nothing happens by itself for {lacking}: `doyen rebalance auto`"
                ))
            }
            () if !room => Some(
                "the others have no room for it: start another, or give them more memory \
                 (--memory-max)"
                    .to_owned(),
            ),
            () => None,
        };
        Self {
            member: table
                .member(member)
                .map(|m| m.name.clone())
                .unwrap_or_default(),
            leads: held().filter(|(_, p)| p.primary() == member).count(),
            holds: held().count(),
            waits_for,
        }
    }
}
