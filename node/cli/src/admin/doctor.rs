//! `doyen doctor`: asks each member what it sees of itself, its machine and its peers, compares the
//! answers, and prints what is wrong with its remedy. Where no node runs, it tries the machine.

use super::{AdminEndpoint, CommandFailed, answered, json, write};
use crate::describe::COMMIT;
use crate::{counted, wrap};
use doyen::config::value::Size;
use doyen::config::{Defaults, Options};
use doyen::doctor::{AskedMember, judge_cluster, judge_preflight};
use doyen::http::api;
use doyen::http::client::{Client, HttpError};
use doyen::report::examination::{Examination, HealthFinding, HealthVerdict};
use doyen::report::status::{ClusterReport, MemberReport};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;

const HELP: &str = "\
It asks the node at --http, and by its status every other member. If no node answers on this \
machine, or with --here, it examines the machine: whether a node with these options, the variables \
DOYEN_* and the file of --config could start here and reach its seeds. Nothing is changed.

The report has names and addresses of machines, but no secrets, keys or values: send it with your \
question.

Status: 0 nothing is wrong; 1 something is critical, or a warning; 2 a flag, a file or a variable \
is wrong. What could not be seen does not count.";

/// The columns of the printed report.
const COLUMNS: usize = 100;
/// Columns before the text of a finding.
const INDENT: usize = 10;
/// Members that a line names, at most.
const NAMED_MAX: usize = 5;

/// The state of a member that was expelled while it was asked.
const GONE: &str = "silent";

/// Find out what is wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct DoctorCommand {
    #[command(flatten)]
    endpoint: AdminEndpoint,
    /// Ask no node: examine this machine before a node starts here
    #[arg(long)]
    here: bool,
    /// The file of `doyen run --config`, for the machine's examination (or DOYEN_CONFIG)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A seed of the node, for the machine's examination; repeat the flag for each
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    seed: Vec<String>,
    /// The control address of the node, for the machine's examination
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// The memory of the node, for the machine's examination
    #[arg(long, value_name = "SIZE")]
    memory_max: Option<Size>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The whole report.
#[derive(Debug, Serialize)]
struct DoctorReport {
    /// The version of the command.
    version: &'static str,
    commit: &'static str,
    /// When it was made, by this machine's clock.
    at: String,
    /// The node that was asked; absent: none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<String>,
    /// The worst of all findings.
    verdict: HealthVerdict,
    /// The worst first.
    findings: Vec<HealthFinding>,
    /// What each member has read.
    members: Vec<Examination>,
}

impl DoctorReport {
    fn new(
        asked: Option<String>,
        found: Vec<HealthFinding>,
        mut members: Vec<Examination>,
    ) -> Self {
        let own = members
            .iter_mut()
            .flat_map(|member| std::mem::take(&mut member.findings));
        let mut findings: Vec<_> = found.into_iter().chain(own).collect();
        findings.sort_by_key(|finding| finding.verdict);
        let worst = findings.first().map(|finding| finding.verdict);
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: COMMIT,
            at: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            asked,
            verdict: worst.unwrap_or(HealthVerdict::Fine),
            findings,
            members,
        }
    }
}

impl DoctorCommand {
    pub(super) async fn main(self) -> Result<ExitCode, CommandFailed> {
        let report = if self.here {
            DoctorReport::new(None, self.of_machine().await?, Vec::new())
        } else {
            self.of_cluster().await?
        };
        write(&if self.json {
            json(&report, true)?
        } else {
            for_people(&report)
        })?;
        Ok(answered(report.verdict > HealthVerdict::Warning))
    }

    /// Asks the node, and all members that it knows.
    async fn of_cluster(&self) -> Result<DoctorReport, CommandFailed> {
        let node = self.endpoint.client()?;
        let asked = Some(node.address().to_owned());
        let status = match node.ask(&api::STATUS).await {
            Ok(status) => status,
            Err(HttpError::Connection { address, why }) => {
                let found = self.unanswered(&address, &why).await;
                return Ok(DoctorReport::new(asked, found, Vec::new()));
            }
            Err(e) => return Err(e.into()),
        };
        let mut members = ask_all(&node, &status).await;
        let status = match members.iter().any(|member| member.answer.is_err()) {
            // A death that the others had not noticed yet shows now.
            true => node.ask(&api::STATUS).await.unwrap_or(status),
            false => status,
        };
        let silent =
            |member: &&mut AskedMember| member.answer.is_err() && !status.members.is_empty();
        for silent in members.iter_mut().filter(silent) {
            let known = status
                .members
                .iter()
                .find(|member| member.name == silent.name);
            let state = known.map_or(GONE, |member| member.state.as_str());
            silent.state = state.to_owned();
        }
        let found = judge_cluster(&status, &members);
        let seen = members.into_iter().filter_map(|member| member.answer.ok());
        let seen = seen.map(|(seen, _)| seen).collect();
        Ok(DoctorReport::new(asked, found, seen))
    }

    /// No node answers at this address. If it is of this machine, the machine is examined.
    async fn unanswered(&self, address: &str, why: &str) -> Vec<HealthFinding> {
        let mut found = vec![HealthFinding {
            verdict: HealthVerdict::Critical,
            check: "answers".into(),
            member: None,
            text: format!("no node answers at {address}: {why}"),
            remedy: Some(
                "start a node there (its log says why it ends), or give the --http address of \
                 another one"
                    .into(),
            ),
        }];
        if !is_on_this_machine(address) {
            return found;
        }
        match self.of_machine().await {
            Ok(machine) => found.extend(machine),
            Err(e) => found.push(HealthFinding {
                verdict: HealthVerdict::Unseen,
                check: "ports".into(),
                member: None,
                text: format!("whether a node could start here: {}", e.message),
                remedy: Some("give its options: `doyen doctor --here --config FILE`".into()),
            }),
        }
        found
    }

    /// Examines this machine.
    async fn of_machine(&self) -> Result<Vec<HealthFinding>, CommandFailed> {
        let config = self.options()?.resolve(Defaults::Binary)?;
        let tried = doyen::preflight(&config).await;
        let tried = tried.map_err(|e| CommandFailed::usage(e.to_string()))?;
        Ok(judge_preflight(&tried))
    }

    /// The options of the node that may start here.
    fn options(&self) -> Result<Options, CommandFailed> {
        let typed = Options {
            seed: self.seed.clone(),
            listen: self.listen.clone(),
            memory_max: self.memory_max,
            secret_file: self.endpoint.credentials.secret_file.clone(),
            ..Options::default()
        };
        // Of commands, this variable names the node to ask, not where one listens.
        let variables = Options {
            http: None,
            ..Options::from_env()?
        };
        let options = typed.or(variables);
        let said = std::env::var_os("DOYEN_CONFIG").filter(|path| !path.is_empty());
        match self.config.clone().or(said.map(PathBuf::from)) {
            Some(path) => Ok(options.or(Options::from_file(&path)?)),
            None => Ok(options),
        }
    }
}

/// Whether an address of a node's HTTP port is of this machine.
fn is_on_this_machine(address: &str) -> bool {
    let bare = address.split_once("://").map_or(address, |(_, bare)| bare);
    let is_loopback = |at: SocketAddr| at.ip().is_loopback();
    bare.parse().is_ok_and(is_loopback) || bare.starts_with("localhost:")
}

/// Asks every member at the same time, each at its own HTTP port.
async fn ask_all(node: &Client, status: &ClusterReport) -> Vec<AskedMember> {
    let own = examine(node).await;
    let own_id = own.as_ref().map(|(seen, _)| seen.id.clone()).ok();
    let mut asked = JoinSet::new();
    let mut members = Vec::new();
    let is_asked = |member: &MemberReport| match &own_id {
        Some(id) => member.id == *id,
        None => member
            .http
            .is_some_and(|http| node.address().ends_with(&http.to_string())),
    };
    let mut own = Some(own);
    for member in &status.members {
        let answer = |answer| AskedMember {
            name: member.name.clone(),
            state: member.state.clone(),
            answer,
        };
        let at = match is_asked(member) {
            true => {
                members.extend(own.take().map(answer));
                continue;
            }
            false => address(node, member.http),
        };
        match at {
            Err(why) => members.push(answer(Err(why))),
            Ok(at) => {
                let (client, id) = (node.at(at), member.id.clone());
                let (name, state) = (member.name.clone(), member.state.clone());
                asked.spawn(async move {
                    let answer = match examine(&client).await {
                        Ok((seen, _)) if seen.id != id => Err(on_loopback()),
                        answer => answer,
                    };
                    AskedMember {
                        name,
                        state,
                        answer,
                    }
                });
            }
        }
    }
    // A node that is no member yet.
    let name = |seen: &Examination| seen.name.clone();
    members.extend(own.map(|answer| {
        AskedMember {
            name: answer
                .as_ref()
                .map_or_else(|_| "this node".into(), |(seen, _)| name(seen)),
            state: "joining".into(),
            answer,
        }
    }));
    members.extend(asked.join_all().await);
    members.sort_by(|a, b| a.name.cmp(&b.name));
    members
}

/// The address of a member's HTTP port, in the form that the asked node's has.
fn address(node: &Client, http: Option<SocketAddr>) -> Result<String, (String, String)> {
    let Some(http) = http else {
        let remedy = "start it with --http ADDR";
        return Err(("it serves no HTTP".into(), remedy.into()));
    };
    if http.ip().is_loopback() && !is_on_this_machine(node.address()) {
        return Err(on_loopback());
    }
    let scheme = node.address().split_once("://");
    Ok(match scheme {
        Some((scheme, _)) => format!("{scheme}://{http}"),
        None => http.to_string(),
    })
}

fn on_loopback() -> (String, String) {
    let remedy = "run `doyen doctor` there, or start it with --http and an address that other \
                  machines reach";
    (
        "its HTTP port is on loopback of its own machine".into(),
        remedy.into(),
    )
}

/// Asks a node for its examination, and how far its clock is ahead of this one, in milliseconds.
async fn examine(node: &Client) -> Result<(Examination, i64), (String, String)> {
    let seen = node.ask(&api::EXAMINATION).await.map_err(|e| match e {
        HttpError::Refused { status: 404, .. } => (
            "its program is older and examines nothing".into(),
            "update it (\"Upgrade\" in docs/operations.md)".into(),
        ),
        e => (e.to_string(), "run `doyen doctor` on its machine".into()),
    })?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| i64::try_from(now.as_millis()).unwrap_or(i64::MAX));
    let ahead = i64::try_from(seen.wall_ms)
        .unwrap_or(i64::MAX)
        .saturating_sub(now);
    Ok((seen, ahead))
}

/// The findings, the worst first, and what is fine in a line for each check.
fn for_people(report: &DoctorReport) -> String {
    let mut text = String::new();
    let asked = report.asked.as_ref();
    let asked = asked.map_or("asked no node".into(), |asked| format!("asked {asked}"));
    let _ = writeln!(
        text,
        "doyen doctor {} (commit {}), {}, {asked}",
        report.version, report.commit, report.at
    );
    let count = |verdict| {
        let of = report.findings.iter().filter(|f| f.verdict == verdict);
        of.count()
    };
    let _ = writeln!(
        text,
        "{} critical, {}, {} unseen, {} fine\n",
        count(HealthVerdict::Critical),
        counted(count(HealthVerdict::Warning), ("warning", "warnings")),
        count(HealthVerdict::Unseen),
        count(HealthVerdict::Fine)
    );
    for (finding, members) in grouped(&report.findings) {
        let of = match &members[..] {
            [] => String::new(),
            // What was measured is that of the first one.
            names if finding.verdict == HealthVerdict::Fine => format!(" at {}", named(names, 1)),
            names => format!(" at {}", named(names, NAMED_MAX)),
        };
        let found = format!("{}{of}: {}", finding.check, finding.text);
        paragraph(&mut text, ("", finding.verdict.name()), &found);
        if let Some(remedy) = &finding.remedy {
            paragraph(&mut text, ("       ", "->"), remedy);
        }
    }
    let _ = writeln!(
        text,
        "\nThis report has names and addresses of machines, but no secrets, keys or values: send \
         it with\nyour question."
    );
    text
}

/// Lines of a text beside a mark.
fn paragraph(text: &mut String, (before, mark): (&str, &str), words: &str) {
    let width = INDENT - before.len();
    let mut mark = mark;
    for line in wrap(words, COLUMNS - INDENT) {
        let _ = writeln!(text, "{before}{mark:<width$}{line}");
        mark = "";
    }
}

/// Findings that say the same of several members, with their names. What is fine is grouped by its
/// check alone.
fn grouped(findings: &[HealthFinding]) -> Vec<(&HealthFinding, Vec<&str>)> {
    let mut all: Vec<(&HealthFinding, Vec<&str>)> = Vec::new();
    for finding in findings {
        let same = |of: &HealthFinding| {
            (of.verdict, &of.check) == (finding.verdict, &finding.check)
                && (of.verdict == HealthVerdict::Fine
                    || (&of.text, &of.remedy) == (&finding.text, &finding.remedy))
        };
        let member = finding.member.as_deref();
        match all.iter_mut().find(|(of, _)| same(of)) {
            Some((_, members)) => members.extend(member),
            None => all.push((finding, member.into_iter().collect())),
        }
    }
    all
}

/// `n1, n2 and 3 more`
fn named(names: &[&str], most: usize) -> String {
    let distinct: BTreeSet<&str> = names.iter().copied().collect();
    let shown: Vec<&str> = distinct.iter().take(most).copied().collect();
    match distinct.len().saturating_sub(most) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(verdict: HealthVerdict, check: &str, member: &str, text: &str) -> HealthFinding {
        HealthFinding {
            verdict,
            check: check.into(),
            member: Some(member.into()),
            text: text.into(),
            remedy: None,
        }
    }

    #[test]
    fn a_report_begins_with_the_worst_and_groups_what_is_the_same() {
        let full = HealthFinding {
            remedy: Some("run `swapoff -a`".into()),
            ..finding(HealthVerdict::Warning, "swap", "n1", "swapped out")
        };
        let mut second = full.clone();
        second.member = Some("n2".into());
        let found = vec![
            finding(HealthVerdict::Fine, "mtu", "n1", "6500 bytes"),
            full,
            finding(HealthVerdict::Fine, "mtu", "n2", "1452 bytes"),
            second,
        ];
        let own = Examination {
            findings: vec![finding(
                HealthVerdict::Critical,
                "threads",
                "n3",
                "no answer",
            )],
            ..Examination::default()
        };
        let report = DoctorReport::new(Some("127.0.0.1:7480".into()), found, vec![own]);
        assert_eq!(report.verdict, HealthVerdict::Critical);
        assert!(
            report.members[0].findings.is_empty(),
            "they are not told twice"
        );
        let text = for_people(&report);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("asked 127.0.0.1:7480"), "{text}");
        let wanted = [
            "1 critical, 2 warnings, 0 unseen, 2 fine",
            "",
            "critical  threads at n3: no answer",
            "warning   swap at n1, n2: swapped out",
            "       -> run `swapoff -a`",
            "fine      mtu at n1 and 1 more: 6500 bytes",
        ];
        assert_eq!(lines[1..7], wanted, "{text}");
    }

    #[test]
    fn long_lists_of_names_are_cut() {
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        assert_eq!(named(&names, NAMED_MAX), "a, b, c, d, e and 2 more");
        assert_eq!(named(&["b", "a", "a"], NAMED_MAX), "a, b");
    }

    #[test]
    fn a_machine_is_examined_only_if_it_is_this_one() {
        for here in ["127.0.0.1:7480", "http://[::1]:7480", "localhost:7480"] {
            assert!(is_on_this_machine(here), "{here}");
        }
        for elsewhere in ["10.0.0.1:7480", "https://n1:7480"] {
            assert!(!is_on_this_machine(elsewhere), "{elsewhere}");
        }
    }
}
