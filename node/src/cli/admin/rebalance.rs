//! `doyen rebalance`: what would move and why, a plan that is confirmed, and whether balance is automatic.

use super::{Credentials, Target, failed, json, write};
use crate::cli::{Failed, PARTITIONS, counted};
use crate::http::client;
use crate::rebalance::{PLAN_BYTES_MAX, RebalancePlan, Step};
use doyen_placement::{Scheduler, Schedulers};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show what would move and why, apply such a plan, or say whether balance is automatic.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["plan", "apply", "balance", "automatic"])))]
pub(in crate::cli) struct Rebalance {
    /// Whether copies and primaries move for balance by themselves; what is lost or breaks a rule is mended in any case
    #[arg(value_enum)]
    balance: Option<Balance>,
    /// What happens by itself, and nothing else: any of repair, drain, place, copies, primaries, hot, splits and merges
    #[arg(long, value_name = "REASON", value_delimiter = ',')]
    automatic: Option<Vec<Scheduler>>,
    /// Show what would move, every step with its reason
    #[arg(long)]
    plan: bool,
    /// Print the plan as JSON: a file for --apply
    #[arg(long, requires = "plan")]
    json: bool,
    /// Apply a plan that --plan --json made, if the table has not changed since
    #[arg(long, value_name = "FILE")]
    apply: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    credentials: Credentials,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Balance {
    /// Only by --apply
    Manual,
    /// By itself
    Auto,
}

impl Rebalance {
    pub(in crate::cli) async fn main(self) -> Result<ExitCode, Failed> {
        let address = self.target.address();
        let balance = self.balance.map(|balance| match balance {
            Balance::Manual => Schedulers::MANUAL.iter().collect(),
            Balance::Auto => Scheduler::ALL.to_vec(),
        });
        if let Some(on) = balance.or(self.automatic) {
            let token = self.credentials.token()?;
            let on: Vec<String> = on.iter().map(ToString::to_string).collect();
            let body = json!({ "automatic": on }).to_string();
            let _: Value = client::change(&address, "PATCH", "/rebalance", &token, &body).await.map_err(failed)?;
            write(&format!("copies move by themselves for: {}; for all else by `doyen rebalance --apply`\n", on.join(", ")))?;
        } else if let Some(file) = &self.apply {
            let plan = read(file)?;
            let token = self.credentials.token()?;
            let body = json!({ "table": plan.table, "goals": plan.goals }).to_string();
            let _: Value = client::change(&address, "POST", "/rebalance", &token, &body).await.map_err(failed)?;
            let are = if plan.goals.len() == 1 { "is" } else { "are" };
            write(&format!("{} {are} on the way; `doyen status` shows what moves\n", counted(plan.goals.len(), PARTITIONS)))?;
        } else {
            let plan: RebalancePlan = client::get(&address, "/rebalance").await.map_err(failed)?;
            write(&if self.json { json(&plan, true)? } else { told(&plan) })?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn read(file: &Path) -> Result<RebalancePlan, Failed> {
    let cannot = |why: String| Failed::usage(format!("the plan {} cannot be read: {why}", file.display()));
    let bytes = std::fs::metadata(file).map_err(|e| cannot(e.to_string()))?.len();
    if bytes > PLAN_BYTES_MAX as u64 {
        return Err(cannot(format!("it has {bytes} bytes, and a plan at most {PLAN_BYTES_MAX}")));
    }
    let text = std::fs::read(file).map_err(|e| cannot(e.to_string()))?;
    serde_json::from_slice(&text).map_err(|e| cannot(format!("{e}; `doyen rebalance --plan --json` writes one")))
}

/// A plan for people.
fn told(plan: &RebalancePlan) -> String {
    let mut text = String::new();
    for step in &plan.operators {
        let _ = writeln!(text, "{step}");
    }
    let mut reasons: BTreeMap<(u8, &str), usize> = BTreeMap::new();
    plan.operators.iter().for_each(|Step { priority, reason, .. }| *reasons.entry((*priority, reason)).or_default() += 1);
    let counts: Vec<String> = reasons.into_iter().map(|((_, reason), count)| format!("{count} for {reason}")).collect();
    let _ = match counts.is_empty() {
        true => writeln!(text, "nothing is to be moved"),
        false => writeln!(text, "{}: {}", counted(plan.operators.len(), ("step", "steps")), counts.join(", ")),
    };
    if plan.bytes > 0 {
        let _ = writeln!(text, "{} bytes are copied for that, as far as their sizes are known", plan.bytes);
    }
    let _ = writeln!(text, "moved automatically: {}", if plan.automatic.is_empty() { "nothing".into() } else { plan.automatic.join(", ") });
    let _ = writeln!(text, "table {}", plan.table);
    text
}
