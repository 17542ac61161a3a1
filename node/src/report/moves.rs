//! What moves, how far it has come and why: what `GET /moves` answers, what `doyen moves` shows,
//! and what the library gives. And what people say of moves: whether, when and how fast.

use crate::config::value::Size;
use doyen_gossip::agreement::{AdminRequest, BalanceChange};
use doyen_placement::loads::CopyPhase;
use doyen_placement::planner::{self, OperatorAction, Reason};
use doyen_placement::{
    Balancing, Loads, MemberId, MemberState, MoveRate, Partition, PartitionRef, Paused, Scheduler,
    Schedulers, Table, Window,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What moves, and whether anything does for balance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MovesReport {
    /// Those that are under way first, and of these and of the others the most urgent.
    pub moves: Vec<MoveReport>,
    /// Why nothing of all this goes on: nobody coordinates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted: Option<String>,
    /// What was said of moves.
    pub balance: BalanceReport,
    /// Members that are being emptied.
    #[serde(default)]
    pub draining: Vec<DrainReport>,
}

/// One copy that is made, or one step that is due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MoveReport {
    /// What `doyen rebalance cancel` takes: `KEYSPACE/PARTITION`.
    pub id: String,
    /// `waiting`, `no room` (there, before it is given more memory or somebody else comes),
    /// `copying`, `catching up`, `comparing`, `equal`, `switching` (another member is to lead) or
    /// `dropping`.
    pub stage: String,
    /// Why, as plans say it.
    pub reason: String,
    /// Who leads it, and sends copies; whose copy is dropped.
    pub from: String,
    /// Who learns it, or shall; who is to lead; who leads it, where a copy is dropped.
    pub to: String,
    /// Bytes of the snapshot that were sent.
    pub bytes_sent: u64,
    /// Those that are still to be sent, as far as that is known.
    pub bytes_left: u64,
    /// Bytes a second, lately.
    pub rate: u64,
    /// For how long it goes on at that rate; `None`: nobody knows.
    #[serde(default)]
    pub seconds_left: Option<u64>,
}

/// What was said of moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BalanceReport {
    /// `on`; `paused by an operator`, `paused because moves failed one after the other`;
    /// `outside its window`.
    pub state: String,
    /// Whether anything may move for balance now.
    pub on: bool,
    /// What happens by itself: `repair`, `drain` and so on.
    pub automatic: Vec<String>,
    /// `adaptive`, or bytes a second that each member sends and takes at most.
    pub rate: String,
    /// `always`, or a time of day in UTC: `22:00-06:00`.
    pub window: String,
    /// Partitions whose move was cancelled.
    pub held: Vec<String>,
}

/// A member that is being emptied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DrainReport {
    /// Its name.
    pub member: String,
    /// Partitions that it still leads.
    pub leads: usize,
    /// Partitions of which it still holds a copy, those among them.
    pub holds: usize,
    /// Why it does not go on, where it does not.
    #[serde(default)]
    pub waits_for: Option<String>,
}

/// What `PATCH /balance` takes: what is left out stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BalanceOptions {
    /// Whether nothing shall move for balance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// `adaptive` or a size, a second: `50mb`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// `always` or `22:00-06:00`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
}

/// What `POST /moves/cancel` takes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// `KEYSPACE/PARTITION`.
    #[serde(default)]
    pub id: Option<String>,
    /// Every move that is for balance.
    #[serde(default)]
    pub all: bool,
}

impl BalanceOptions {
    /// What is to be asked for.
    pub fn requests(&self) -> Result<Vec<AdminRequest>, String> {
        let paused = self.paused.map(|paused| {
            if paused {
                BalanceChange::Pause(Paused::Operator)
            } else {
                BalanceChange::Resume
            }
        });
        let rate = self
            .rate
            .as_deref()
            .map(rate)
            .transpose()?
            .map(BalanceChange::Rate);
        let window = self
            .window
            .as_deref()
            .map(window)
            .transpose()?
            .map(BalanceChange::Window);
        let all: Vec<AdminRequest> = paused
            .into_iter()
            .chain(rate)
            .chain(window)
            .map(AdminRequest::Balance)
            .collect();
        if all.is_empty() {
            Err("say at least one of paused, rate and window".into())
        } else {
            Ok(all)
        }
    }
}

/// `adaptive` or a size.
pub fn rate(text: &str) -> Result<MoveRate, String> {
    if text == "adaptive" {
        return Ok(MoveRate::Adaptive);
    }
    let Size(bytes) = text
        .parse()
        .map_err(|why| format!("{why}; or say `adaptive`"))?;
    if bytes < Balancing::RATE_LEAST {
        return Err(format!(
            "{text} a second is too slow for any copy to be made: at least {}kb",
            Balancing::RATE_LEAST >> 10
        ));
    }
    Ok(MoveRate::Bytes(bytes))
}

/// `always` or a time of day.
pub fn window(text: &str) -> Result<Option<Window>, String> {
    if text == "always" {
        Ok(None)
    } else {
        text.parse()
            .map(Some)
            .map_err(|why: doyen_placement::NoWindow| why.to_string())
    }
}

impl CancelRequest {
    /// What is to be asked for.
    pub fn request(&self, table: &Table) -> Result<AdminRequest, String> {
        match (&self.id, self.all) {
            (Some(id), false) => {
                let at = table.partition_named(id).ok_or_else(|| {
                    format!("there is no partition {id:?}: `doyen moves` names those that move")
                })?;
                Ok(AdminRequest::Cancel(Some(at)))
            }
            (None, true) => Ok(AdminRequest::Cancel(None)),
            _ => Err("say either which move, by its id, or all of them".into()),
        }
    }
}

impl MovesReport {
    /// What this table and these loads say; `halted`: why nobody coordinates, if nobody does.
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
            // A learner that no goal names mends: its goal was dropped, and the next plan finds it.
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

    /// A line that says that nothing goes on and why; empty where it does.
    pub fn halted_line(&self) -> String {
        self.halted
            .as_ref()
            .map(|why| format!("nothing goes on: {why} (`doyen status`)\n"))
            .unwrap_or_default()
    }
}

/// What is done, or is to be done next, of one partition.
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
            // Where none is left to drop it has arrived, and the next table says so.
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
    /// Its state where everything moves by itself.
    pub const ON: &'static str = "on";

    /// Its rate, for people.
    pub fn spoken_rate(&self) -> String {
        self.rate.parse().map_or_else(
            |_| self.rate.clone(),
            |rate| MoveRate::Bytes(rate).to_string(),
        )
    }

    /// What this table says.
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
        // What was planned before goes on.
        let planned =
            || held().any(|(_, p)| p.goal.as_ref().is_some_and(|goal| !goal.contains(&member)));
        // The smallest of what it holds, as far as that is known.
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
            () if table.member(member).is_some_and(|m| m.state == MemberState::Silent) => Some("it does not answer".to_owned()),
            () if receivers == 0 => Some("no other member may hold data: start one".to_owned()),
            () if !lacking.is_empty() && !planned() => {
                Some(format!("nothing happens by itself for {}: `doyen rebalance auto`", lacking.join(" and ")))
            }
            () if !room => Some("the others have no room for it: start another, or give them more memory (--memory-max)".to_owned()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_moves_is_understood_or_refused_in_a_line() {
        let options = |paused, rate: Option<&str>, window: Option<&str>| BalanceOptions {
            paused,
            rate: rate.map(str::to_owned),
            window: window.map(str::to_owned),
        };
        let said = options(Some(true), Some("50mb"), Some("22:00-06:00"))
            .requests()
            .expect("it can be");
        assert_eq!(
            said[0],
            AdminRequest::Balance(BalanceChange::Pause(Paused::Operator))
        );
        assert_eq!(
            said[1],
            AdminRequest::Balance(BalanceChange::Rate(MoveRate::Bytes(50 << 20)))
        );
        assert_eq!(said.len(), 3);
        assert_eq!(
            options(None, None, Some("always")).requests(),
            Ok(vec![AdminRequest::Balance(BalanceChange::Window(None))])
        );
        for (rate, window) in [
            (Some("fast"), None),
            (Some("1kb"), None),
            (None, Some("at night")),
            (None, None),
        ] {
            let why = options(None, rate, window).requests().expect_err("wrong");
            assert!(!why.contains('\n') && why.len() < 200, "{why}");
        }
    }
}
