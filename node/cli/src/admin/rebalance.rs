//! `doyen rebalance`: what would move and why, plans that an operator confirms, and whether, when
//! and how fast partitions move automatically.

use super::{AdminEndpoint, show, tell, write};
use crate::{CommandFailed, PARTITIONS, bytes, counted};
use doyen::admin::balance::{self, BalanceOptions, CancelRequest};
use doyen::http::api::{self, Automatic};
use doyen::report::moves::{BalanceReport, MovesReport};
use doyen::report::rebalance::{PLAN_BYTES_MAX, RebalancePlan, Step};
use doyen_placement::{Scheduler, Schedulers};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A plan of more steps is shown by kinds of steps.
const STEPS_SHOWN: usize = 40;

/// Shows what would move, applies a plan, or controls automatic moves.
#[derive(Debug, clap::Args)]
#[command(group(
    clap::ArgGroup::new("what")
        .required(true)
        .args(["plan", "apply", "verb", "automatic", "move_rate", "window"])
        .multiple(true)
))]
pub(crate) struct Rebalance {
    /// What to do
    #[arg(value_enum)]
    verb: Option<RebalanceVerb>,
    /// With cancel: the move, as `doyen moves` names it, for example default/17
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// With cancel: every move that is for balance. With --plan: every step, also of long plans
    #[arg(long, conflicts_with = "id")]
    all: bool,
    /// How many bytes of copies each member sends and receives a second at most, for example 50mb;
    /// or adaptive, the default: as fast as clients do not notice
    #[arg(
        long,
        value_name = "RATE",
        value_parser = |text: &str| balance::rate(text).map(|_| text.to_owned())
    )]
    move_rate: Option<String>,
    /// Balance only at this time of day, in UTC, for example 22:00-06:00; or always. Lost copies
    /// are replaced at any time
    #[arg(
        long,
        value_name = "FROM-TO",
        value_parser = |text: &str| balance::window(text).map(|_| text.to_owned())
    )]
    window: Option<String>,
    /// Which moves happen automatically, and no others: any of repair, drain, place, copies,
    /// primaries, hot, splits and merges
    #[arg(
        long,
        value_name = "REASON",
        value_delimiter = ',',
        conflicts_with = "verb"
    )]
    automatic: Option<Vec<Scheduler>>,
    /// Show what would move and why. Of a long plan, steps of one kind are one line
    #[arg(
        long,
        conflicts_with_all = ["verb", "automatic", "apply", "move_rate", "window"]
    )]
    plan: bool,
    /// Print JSON: with --plan, a file for --apply; with status, the status
    #[arg(long)]
    json: bool,
    /// Apply a plan that --plan --json made, if the table has not changed since
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["verb", "automatic", "move_rate", "window"]
    )]
    apply: Option<PathBuf>,
    #[command(flatten)]
    endpoint: AdminEndpoint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum RebalanceVerb {
    /// Show whether, when and how fast partitions move automatically
    Status,
    /// Start no more moves for balance. Lost copies are still replaced, and copies under way are
    /// finished
    Pause,
    /// Balance again, and allow moves that were cancelled
    Resume,
    /// Cancel a move: the partition stays where it is until `resume`, or until a member joins or
    /// leaves. With --all: cancel every move for balance, and pause
    Cancel,
    /// Balance only by --apply; lost copies and broken rules are still repaired automatically
    Manual,
    /// Balance automatically
    Auto,
}

impl Rebalance {
    pub(crate) async fn main(self) -> Result<ExitCode, CommandFailed> {
        let node = self.endpoint.client()?;
        if self.plan {
            let plan = node.ask(&api::REBALANCE).await?;
            return show(&plan, self.json, |plan| told(plan, self.all));
        }
        if let Some(file) = &self.apply {
            // The node needs no more of it than where partitions go.
            let mut plan = read(file)?;
            plan.operators.clear();
            node.make(&api::APPLY_PLAN, [], &plan).await?;
            let are = if plan.goals.len() == 1 { "is" } else { "are" };
            return tell(format_args!(
                "{} {are} moving; `doyen moves` shows the progress\n",
                counted(plan.goals.len(), PARTITIONS)
            ));
        }
        let is_cancel = self.verb == Some(RebalanceVerb::Cancel);
        if !is_cancel && (self.id.is_some() || self.all) {
            return Err(CommandFailed::usage(
                "only cancel takes the ID of a move, or --all (see `doyen rebalance --help`)",
            ));
        }
        let automatic = match self.verb {
            Some(RebalanceVerb::Manual) => Some(Schedulers::MANUAL.iter().collect()),
            Some(RebalanceVerb::Auto) => Some(Scheduler::ALL.to_vec()),
            _ => self.automatic.clone(),
        };
        if let Some(on) = automatic {
            let on: Vec<String> = on.iter().map(ToString::to_string).collect();
            let automatic = on.clone();
            node.make(&api::SCHEDULE, [], &Automatic { automatic })
                .await?;
            let rest = if on.len() == Scheduler::ALL.len() {
                ""
            } else {
                "; all other moves need `doyen rebalance --apply`"
            };
            write(&format!(
                "partitions move automatically for: {}{rest}\n",
                or_nothing(&on)
            ))?;
        }
        let paused = match self.verb {
            Some(RebalanceVerb::Pause) => Some(true),
            Some(RebalanceVerb::Resume) => Some(false),
            _ => None,
        };
        let options = BalanceOptions {
            paused,
            rate: self.move_rate.clone(),
            window: self.window.clone(),
        };
        if options != BalanceOptions::default() {
            node.make(&api::SET_BALANCE, [], &options).await?;
        }
        if is_cancel {
            let cancel = CancelRequest {
                id: self.id.clone(),
                all: self.all,
            };
            if cancel.id.is_some() == cancel.all {
                return Err(CommandFailed::usage(
                    "name the move to cancel by its ID, as `doyen moves` shows it, or give --all",
                ));
            }
            node.make(&api::CANCEL_MOVES, [], &cancel).await?;
            match &self.id {
                Some(id) => write(&format!(
                    "the move of {id} is cancelled: the partition stays where it is until \
                     `doyen rebalance resume`, or until a member joins or leaves\n"
                )),
                None => write(
                    "every move for balance is cancelled, and balancing is paused until \
                     `doyen rebalance resume`\n",
                ),
            }?;
        } else if self.verb == Some(RebalanceVerb::Status) || options != BalanceOptions::default() {
            let report = node.ask(&api::MOVES).await?;
            show(&report.balance, self.json, |_| standing(&report))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The state of balancing, as text.
fn standing(report: &MovesReport) -> String {
    let BalanceReport {
        state,
        on: _,
        automatic,
        rate,
        window,
        held,
        ..
    } = &report.balance;
    let mut text = report.halted_line();
    let _ = writeln!(text, "balancing: {state}");
    let _ = writeln!(text, "moves automatically, now: {}", or_nothing(automatic));
    let whose = if rate == "adaptive" {
        ""
    } else {
        ", from and to each member"
    };
    let _ = writeln!(text, "move rate: {}{whose}", report.balance.spoken_rate());
    let _ = writeln!(
        text,
        "window: {window}{}",
        if window == "always" { "" } else { " UTC" }
    );
    if !held.is_empty() {
        let _ = writeln!(
            text,
            "cancelled, and kept where they are: {}",
            some_of(held)
        );
    }
    let _ = writeln!(
        text,
        "{} under way (`doyen moves`)",
        counted(report.moves.len(), ("move", "moves"))
    );
    text
}

fn or_nothing(names: &[String]) -> String {
    if names.is_empty() {
        "nothing".to_owned()
    } else {
        names.join(", ")
    }
}

/// The first few names, and how many more there are.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 8;
    match names.split_at_checked(SHOWN) {
        Some((shown, more)) if !more.is_empty() => {
            format!("{} and {} more", shown.join(", "), more.len())
        }
        _ => names.join(", "),
    }
}

fn read(file: &Path) -> Result<RebalancePlan, CommandFailed> {
    let cannot = |why: String| {
        CommandFailed::usage(format!("the plan {} cannot be read: {why}", file.display()))
    };
    let bytes = std::fs::metadata(file)
        .map_err(|e| cannot(e.to_string()))?
        .len();
    if bytes > PLAN_BYTES_MAX as u64 {
        return Err(cannot(format!(
            "it has {bytes} bytes, but a plan has at most {PLAN_BYTES_MAX}"
        )));
    }
    let text = std::fs::read(file).map_err(|e| cannot(e.to_string()))?;
    serde_json::from_slice(&text)
        .map_err(|e| cannot(format!("{e}; `doyen rebalance --plan --json` writes one")))
}

/// The steps of a plan as one line for each kind, in the order of their first ones.
fn folded(steps: &[Step], text: &mut String) {
    let mut kinds: Vec<(Step, usize, u64)> = Vec::new();
    for step in steps {
        let same = |(kind, ..): &&mut (Step, usize, u64)| {
            let of = |step: &Step| (step.keyspace.clone(), step.action.clone(), step.priority);
            of(kind) == of(step)
                && (&kind.member, &kind.from, &kind.reason)
                    == (&step.member, &step.from, &step.reason)
        };
        let copied = step.bytes.unwrap_or(0);
        match kinds.iter_mut().find(same) {
            Some((_, count, sum)) => (*count, *sum) = (*count + 1, sum.saturating_add(copied)),
            None => kinds.push((step.clone(), 1, copied)),
        }
    }
    for (step, count, sum) in kinds {
        let Step {
            keyspace,
            action,
            member,
            from,
            reason,
            ..
        } = step;
        let to = match (from, member) {
            (Some(from), Some(member)) => format!(" from {from} to {member}"),
            (_, Some(member)) => format!(" {member}"),
            _ => String::new(),
        };
        let size = if sum > 0 {
            format!(", {}", bytes(sum))
        } else {
            String::new()
        };
        let of = counted(count, PARTITIONS);
        let _ = writeln!(text, "{of} of {keyspace}: {action}{to} ({reason}){size}");
    }
    let _ = writeln!(text, "(`doyen rebalance --plan --all` shows every step)");
}

/// A plan for people. Unless they ask for every step, steps of one kind are one line of a long
/// plan.
fn told(plan: &RebalancePlan, every: bool) -> String {
    let mut text = String::new();
    if every || plan.operators.len() <= STEPS_SHOWN {
        for step in &plan.operators {
            let _ = writeln!(text, "{step}");
        }
    } else {
        folded(&plan.operators, &mut text);
    }
    let mut reasons: BTreeMap<(u8, &str), usize> = BTreeMap::new();
    plan.operators.iter().for_each(
        |Step {
             priority, reason, ..
         }| *reasons.entry((*priority, reason)).or_default() += 1,
    );
    let counts: Vec<String> = reasons
        .into_iter()
        .map(|((_, reason), count)| format!("{count} for {reason}"))
        .collect();
    let _ = match counts.is_empty() {
        true => writeln!(text, "nothing would move"),
        false => writeln!(
            text,
            "{}: {}",
            counted(plan.operators.len(), ("step", "steps")),
            counts.join(", ")
        ),
    };
    if plan.bytes > 0 {
        let _ = writeln!(
            text,
            "{} would be copied, as far as sizes are known",
            counted(plan.bytes, ("byte", "bytes"))
        );
    }
    let _ = writeln!(text, "moves automatically: {}", or_nothing(&plan.automatic));
    let _ = writeln!(text, "table {}", plan.table);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn steps_of_one_kind_are_one_line_of_a_long_plan() {
        let step = |partition: usize, action: &str, member: &str, from: Option<&str>| {
            json!({ "keyspace": "default", "partition": partition, "action": action,
                    "member": member, "from": from, "reason": "balance of copies", "priority": 5,
                    "bytes": 1_000_000, "holders": ["n1"] })
        };
        let plan = |count: usize| {
            let two = (0..count).flat_map(|n| {
                let to = if n % 2 == 0 { "n3" } else { "n4" };
                [
                    step(n, "add learner", to, None),
                    step(n, "transfer primary", to, Some("n1")),
                ]
            });
            let plan = json!({ "table": "t", "goals": [], "operators": two.collect::<Vec<_>>() });
            serde_json::from_value::<RebalancePlan>(plan).expect("a plan")
        };
        let long = told(&plan(30), false);
        let lines: Vec<&str> = long.lines().collect();
        assert_eq!(
            lines[..5],
            [
                "15 partitions of default: add learner n3 (balance of copies), 15.0 MB",
                "15 partitions of default: transfer primary from n1 to n3 (balance of copies), \
                 15.0 MB",
                "15 partitions of default: add learner n4 (balance of copies), 15.0 MB",
                "15 partitions of default: transfer primary from n1 to n4 (balance of copies), \
                 15.0 MB",
                "(`doyen rebalance --plan --all` shows every step)",
            ]
        );
        assert!(
            lines[5].starts_with("60 steps: 60 for balance of copies"),
            "{long}"
        );
        let every = told(&plan(30), true);
        assert_eq!(every.lines().count(), lines.len() - 5 + 60);
        assert!(told(&plan(20), false).starts_with("default/0: add learner n3"));
    }
}
