//! `doyen secret rotate`: replaces a cluster's secret, one step at a time.
//!
//! ```text
//!   old ──add──> old, new ──use──> new, old ──remove──> new
//! ```
//!
//! All lines of a file are trusted and the first one signs. So at each step, nodes before it and
//! nodes after it accept each other, but not nodes that are two steps apart: a step is made only
//! once every member has the one before. A comment in the file says which step was made, because
//! after *add* and after *use* a file has two lines alike.

use super::files::{Set, replace};
use super::secrets_of;
use crate::admin::Target;
use crate::{Failed, say};
use doyen::config::{Line, Secrets};
use doyen::http::client::{Client, Trusted};
use doyen::net::identity::secret::Role;
use doyen::report::status::ClusterReport;
use doyen::report::trust::TrustReport;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// Time between two looks at the members.
const LOOK: Duration = Duration::from_millis(500);
/// Time between two lines that say what the command waits for.
const TELL: Duration = Duration::from_secs(5);
/// With --wait: how long a step lasts at least. Clients look at their file every 2 s, and cannot be
/// asked.
const CLIENTS_FOLLOW: Duration = Duration::from_secs(5);
/// The comment that says which step was made.
const MARK: &str = "# doyen secret rotate: ";

/// Replaces the secret of a running cluster without downtime, in three steps: add a new secret
/// (trusted), use it (it signs), remove the old one.
///
/// Each call looks at all members by HTTP, and makes the next step in FILE if every member has the
/// step before. The files `client`, `operator` and `ca.pem` beside FILE are changed alike. Copy the
/// files to where they are used, and call the command again. Nodes and clients read their files
/// again by themselves.
#[derive(Debug, clap::Args)]
pub(super) struct Rotate {
    #[command(flatten)]
    target: Target,
    /// The members' file, which every node has a copy of
    #[arg(long, env = "DOYEN_SECRET_FILE", value_name = "FILE")]
    secret_file: PathBuf,
    /// PEM file: the authority of the nodes' HTTP certificates, if it is not that of their secret
    #[arg(long, env = "DOYEN_HTTP_CA", value_name = "FILE")]
    http_ca: Option<PathBuf>,
    /// Make all steps that remain, and wait after each until every member has it
    #[arg(long)]
    wait: bool,
    /// Names of members whose HTTP cannot be reached from here, and which have the file as it is
    /// now: `doyen secret show` on their machine shows the same fingerprints
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    confirmed: Vec<String>,
    /// How long to wait for a step
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 600,
        requires = "wait",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    timeout: u64,
}

/// A step that a file has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// There is no rotation under way.
    None,
    /// A new line is trusted.
    Added,
    /// The new line signs.
    Used,
    /// The old line is gone.
    Removed,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Added => "added",
            Self::Used => "used",
            Self::Removed => "removed",
        })
    }
}

/// A member's file: its lines, and the step that was made.
#[derive(Debug, PartialEq, Eq)]
struct File {
    step: Step,
    secrets: Secrets,
}

/// What a member has.
#[derive(Debug, PartialEq, Eq)]
enum Has {
    /// These lines, the one that signs first.
    Lines(Vec<String>),
    /// It was not asked, because the operator has looked.
    Confirmed,
    /// It does not answer.
    Nothing(String),
}

impl File {
    fn read(path: &Path) -> Result<Self, Failed> {
        let secrets = secrets_of(path, "--secret-file")?;
        if secrets.role() != Role::Member {
            return Err(Failed::usage(format!(
                "--secret-file: this is the file of a {}, and a rotation begins with that of the \
                 members",
                secrets.role()
            )));
        }
        let text = std::fs::read_to_string(path).map(Zeroizing::new);
        let text = text.map_err(|e| {
            Failed::usage(format!(
                "cannot read {} (--secret-file): {e}",
                path.display()
            ))
        })?;
        Self::of(&text, secrets)
    }

    fn of(text: &str, secrets: Secrets) -> Result<Self, Failed> {
        let said = text.lines().find_map(|line| line.strip_prefix(MARK));
        let step = match said.map(str::trim) {
            None => Step::None,
            Some("added") => Step::Added,
            Some("used") => Step::Used,
            Some("removed") => Step::Removed,
            Some(_) => {
                return Err(Failed::usage(
                    "--secret-file: a later version of doyen began this rotation: use that version",
                ));
            }
        };
        let lines = match step {
            Step::None | Step::Removed => 1,
            Step::Added | Step::Used => 2,
        };
        if secrets.lines().len() == lines {
            return Ok(Self { step, secrets });
        }
        Err(Failed::usage(format!(
            "--secret-file: it has {} secrets and not {lines}, so it was changed by hand: go on by \
             hand, and leave one secret once every node and client has it",
            secrets.lines().len()
        )))
    }

    fn text(&self) -> Zeroizing<String> {
        let mark = match self.step {
            Step::None => String::new(),
            step => format!("{MARK}{step}\n"),
        };
        Zeroizing::new(format!("{mark}{}", *self.secrets.expose()))
    }

    fn fingerprints(&self) -> Vec<String> {
        self.secrets.lines().iter().map(Line::fingerprint).collect()
    }

    /// The file after the next step. `new` makes a secret.
    fn next(&self, new: impl FnOnce() -> Result<Line, Failed>) -> Result<Self, Failed> {
        let lines = self.secrets.lines();
        let (step, lines) = match self.step {
            Step::None => (Step::Added, vec![lines[0].clone(), new()?]),
            Step::Added => (Step::Used, vec![lines[1].clone(), lines[0].clone()]),
            Step::Used => (Step::Removed, vec![lines[0].clone()]),
            Step::Removed => (Step::None, lines.to_vec()),
        };
        let secrets = Secrets::new(lines).map_err(|e| Failed::new(e.to_string()))?;
        Ok(Self { step, secrets })
    }
}

impl Rotate {
    pub(super) async fn main(self) -> Result<ExitCode, Failed> {
        let mut file = File::read(&self.secret_file)?;
        loop {
            self.until_everywhere(&file).await?;
            file = file.next(|| Line::new_member().map_err(|e| Failed::new(e.to_string())))?;
            let beside = match file.step {
                // Only the comment goes.
                Step::None => Vec::new(),
                _ => Set::derive(&file.secrets)?.replace_beside(&self.secret_file)?,
            };
            replace(&self.secret_file, &file.text())?;
            self.tell(&file, &beside);
            if file.step == Step::None || !self.wait {
                return Ok(ExitCode::SUCCESS);
            }
            tokio::time::sleep(CLIENTS_FOLLOW).await;
        }
    }

    /// Says what was done, and what to do now.
    fn tell(&self, file: &File, beside: &[PathBuf]) {
        let path = self.secret_file.display();
        let fingerprints = file.fingerprints();
        let new = match file.step {
            Step::Added => &fingerprints[1],
            Step::None | Step::Used | Step::Removed => &fingerprints[0],
        };
        let done = match file.step {
            Step::None => {
                return say(format_args!(
                    "done: every member has only {new}, and the rotation is over\n"
                ));
            }
            Step::Added => format!("added {new}: it will be trusted"),
            Step::Used => format!("used {new}: it will sign"),
            Step::Removed => format!("removed the other secret: only {new} will be trusted"),
        };
        let mut text = format!("{done}\n");
        if !self.wait {
            text += &format!("  copy {path} to every node\n");
        }
        let clients = beside.iter().map(|path| path.display().to_string());
        let clients: Vec<String> = clients.collect();
        if !clients.is_empty() {
            text += &format!(
                "  copy {} to where they are used{}\n",
                clients.join(", "),
                match file.step {
                    Step::Removed => {
                        ", before the nodes have this step: clients without it are disconnected"
                    }
                    _ => "",
                }
            );
        }
        if !self.wait {
            text += "  then run this command again\n";
        }
        say(format_args!("{text}"));
    }

    /// Waits until every member has this file, or fails and says which members have not.
    async fn until_everywhere(&self, file: &File) -> Result<(), Failed> {
        let wanted = file.fingerprints();
        let until = Instant::now() + Duration::from_secs(self.timeout);
        let mut told = Instant::now();
        loop {
            let members = self.look(file).await?;
            let behind = behind(&members, &wanted);
            if behind.is_empty() {
                return Ok(());
            }
            let why = format!(
                "{} of {} members do not have this file yet: {}",
                behind.len(),
                members.len(),
                behind.join("; ")
            );
            if !self.wait || Instant::now() >= until {
                return Err(Failed::new(format!(
                    "nothing was changed: {why}. Copy {} there, and run this command again",
                    self.secret_file.display()
                )));
            }
            if told.elapsed() >= TELL {
                told = Instant::now();
                say(format_args!("  {why}\n"));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What each member has.
    async fn look(&self, file: &File) -> Result<Vec<(String, Has)>, Failed> {
        let first = self.target.address();
        // As the first member talks, so do the others.
        let scheme = match first.split_once("://") {
            Some((scheme, _)) => format!("{scheme}://"),
            None => String::new(),
        };
        let trusted = match &self.http_ca {
            Some(path) => Trusted::by_file("--http-ca", path).map(Some),
            None => Trusted::by_secrets(&file.secrets),
        };
        let trusted = trusted.map_err(|e| Failed::usage(e.to_string()))?;
        let lines = file.secrets.lines().iter();
        let askers: Vec<Client> = lines
            .filter_map(Line::operator_token)
            .map(|token| Client::new(&*first, token.as_str()).trusting(trusted.clone()))
            .collect();
        let report: ClusterReport = ask_with(&first, "/status", &askers)
            .await
            .map_err(Failed::new)?;
        if report.members.is_empty() {
            return Err(Failed::new(
                "the node is not a member of a cluster yet: wait until `doyen status` shows its \
                 members",
            ));
        }
        let names: BTreeSet<&str> = report.members.iter().map(|m| m.name.as_str()).collect();
        if let Some(other) = self.confirmed.iter().find(|n| !names.contains(n.as_str())) {
            return Err(Failed::usage(format!(
                "--confirmed: no member is called {other}: `doyen status` shows the members"
            )));
        }
        let mut members = Vec::new();
        for member in &report.members {
            let has = if self.confirmed.contains(&member.name) {
                Has::Confirmed
            } else {
                match member.http {
                    Some(address) => {
                        ask(&format!("{scheme}{address}"), &member.name, &askers).await
                    }
                    None => Has::Nothing("its HTTP is off".into()),
                }
            };
            members.push((member.name.clone(), has));
        }
        Ok(members)
    }
}

/// Asks a member what it has.
async fn ask(address: &str, name: &str, askers: &[Client]) -> Has {
    match ask_with::<TrustReport>(address, "/trust", askers).await {
        Ok(report) if report.name != name => Has::Nothing(format!(
            "another node answers at {address}, which is not reached from here"
        )),
        Ok(report) => Has::Lines(report.secrets),
        Err(why) => Has::Nothing(why),
    }
}

/// Asks a member with the tokens of all lines: it may not have the first one yet, or any more.
async fn ask_with<T: DeserializeOwned>(
    address: &str,
    path: &str,
    askers: &[Client],
) -> Result<T, String> {
    let mut why = "it has no answer".to_owned();
    for asker in askers {
        match asker.at(address).get(path).await {
            Ok(report) => return Ok(report),
            Err(e) => why = e.to_string(),
        }
    }
    Err(why)
}

/// The members that do not have these lines, and what they have instead.
fn behind(members: &[(String, Has)], wanted: &[String]) -> Vec<String> {
    let mut behind = Vec::new();
    for (name, has) in members {
        match has {
            Has::Confirmed => {}
            Has::Lines(lines) if lines == wanted => {}
            Has::Lines(lines) if lines.is_empty() => {
                behind.push(format!("{name} has no secret, but certificates"));
            }
            Has::Lines(lines) => behind.push(format!("{name} has {}", lines.join(", "))),
            Has::Nothing(why) => behind.push(format!(
                "{name} does not say ({why}; if it has the file, give --confirmed {name})"
            )),
        }
    }
    behind
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(step: Step, lines: &[u8]) -> File {
        let line = |byte: &u8| Line::member(std::array::from_fn(|i| byte.wrapping_add(i as u8)));
        File {
            step,
            secrets: Secrets::new(lines.iter().map(line).collect()).expect("lines"),
        }
    }

    #[test]
    fn a_rotation_goes_through_its_steps_and_survives_being_written() {
        let new = || Ok(file(Step::None, &[2]).secrets.first().clone());
        let mut at = file(Step::None, &[1]);
        let steps = [
            file(Step::Added, &[1, 2]),
            file(Step::Used, &[2, 1]),
            file(Step::Removed, &[2]),
            file(Step::None, &[2]),
        ];
        for wanted in steps {
            at = at.next(new).expect("a next step");
            assert_eq!(at, wanted);
            let text = at.text();
            let secrets = Secrets::parse(text.as_bytes()).expect("a file");
            assert_eq!(File::of(&text, secrets).expect("a file"), wanted);
        }
    }

    #[test]
    fn a_file_that_was_changed_by_hand_is_left_alone() {
        for changed in [
            file(Step::None, &[1, 2]),
            file(Step::Added, &[1]),
            file(Step::Used, &[1, 2, 3]),
        ] {
            let text = changed.text();
            let secrets = Secrets::parse(text.as_bytes()).expect("a file");
            let refusal = File::of(&text, secrets).expect_err("refused");
            assert!(refusal.message.contains("by hand"), "{}", refusal.message);
        }
    }

    #[test]
    fn members_that_lack_a_step_are_named() {
        let lines = |lines: &[&str]| Has::Lines(lines.iter().map(|l| (*l).to_owned()).collect());
        let members = [
            ("ada".to_owned(), lines(&["a", "b"])),
            ("bob".to_owned(), lines(&["a"])),
            ("cy".to_owned(), lines(&["b", "a"])),
            ("dan".to_owned(), Has::Nothing("its HTTP is off".into())),
            ("eve".to_owned(), Has::Confirmed),
        ];
        let behind = behind(&members, &["a".to_owned(), "b".to_owned()]);
        assert_eq!(behind.len(), 3);
        assert_eq!(behind[0], "bob has a");
        assert_eq!(behind[1], "cy has b, a");
        assert!(behind[2].contains("--confirmed dan"), "{}", behind[2]);
    }
}
