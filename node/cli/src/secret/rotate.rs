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
//!
//! Programs that are no members cannot be asked what they have. From *use* on, nodes sign with the
//! new secret alone, so what checks them needs the files of *add* before: native clients, operators
//! and what has a copy of `ca.pem`. From *remove* on, nodes trust the new secret alone, so clients
//! and operators need the files of *use* before. So a call makes one step and says what to copy,
//! also with `--wait`.

use super::files::{AUTHORITY, Alone, CLIENT, MEMBER, OPERATOR, SecretFiles, replace};
use super::secrets_of;
use crate::admin::Target;
use crate::{CommandFailed, say};
use doyen::config::{Line, Secrets};
use doyen::http::client::{Client, Trusted};
use doyen::http::{HttpReport, api};
use doyen::net::identity::secret::{ROTATION_MARK, SecretRole, rotation_step};
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
/// With --all: how long a step lasts at least. Clients look at their file every 2 s, and cannot be
/// asked.
const CLIENTS_FOLLOW: Duration = Duration::from_secs(5);

/// Replaces the secret of a running cluster without downtime, in three steps: add a new secret
/// (trusted), use it (it signs), remove the old one.
///
/// `--new` begins with the first step, and each further call makes the next one. A call looks at
/// all members by HTTP, and makes its step in FILE if every member has the step before. The files
/// `client`, `operator` and `ca.pem` beside FILE are changed alike. Copy the files to where they
/// are used, and call the command again, until it says that all is done. Nodes and clients read
/// their files again by themselves.
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
    /// Begin a rotation: add a new secret
    #[arg(long)]
    new: bool,
    /// After the step, wait until every member has it
    #[arg(long)]
    wait: bool,
    /// Make all steps that remain, and wait after each. Only if all nodes and all clients read
    /// these same files, and programs that check certificates read this `ca.pem` again by
    /// themselves
    #[arg(long)]
    all: bool,
    /// Names of members whose HTTP cannot be reached from here, and which have the file as it is
    /// now: `doyen secret show` on their machine shows the same fingerprints
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    confirmed: Vec<String>,
    /// With --wait or --all: how long to wait for a step
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 600,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    timeout: u64,
}

/// A step that a file has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RotationStep {
    /// There is no rotation under way.
    None,
    /// A new line is trusted.
    Added,
    /// The new line signs.
    Used,
    /// The old line is gone.
    Removed,
}

impl fmt::Display for RotationStep {
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
    step: RotationStep,
    secrets: Secrets,
}

/// What a member has.
#[derive(Debug, PartialEq, Eq)]
enum Has {
    /// These lines, the one that signs first, and all that they sign.
    Lines(Vec<String>),
    /// Ports that do not show a certificate of the first line, and why.
    OldPorts(Vec<String>),
    /// It was not asked, because the operator has looked.
    Confirmed,
    /// It does not answer.
    Nothing(String),
}

impl File {
    fn read(path: &Path) -> Result<Self, CommandFailed> {
        let secrets = secrets_of(path, "--secret-file")?;
        if secrets.role() != SecretRole::Member {
            return Err(CommandFailed::usage(format!(
                "--secret-file: this is the file of {}, and a rotation begins with that of the \
                 members: give --secret-file {}",
                secrets.role().with_article(),
                path.with_file_name(MEMBER).display()
            )));
        }
        let text = std::fs::read_to_string(path).map(Zeroizing::new);
        let text = text.map_err(|e| {
            CommandFailed::usage(format!(
                "cannot read {} (--secret-file): {e}",
                path.display()
            ))
        })?;
        Self::of(&text, secrets)
    }

    fn of(text: &str, secrets: Secrets) -> Result<Self, CommandFailed> {
        let step = match rotation_step(text) {
            None => RotationStep::None,
            Some("added") => RotationStep::Added,
            Some("used") => RotationStep::Used,
            Some("removed") => RotationStep::Removed,
            Some(_) => {
                return Err(CommandFailed::usage(
                    "--secret-file: a later version of doyen began this rotation: use that version",
                ));
            }
        };
        let lines = match step {
            RotationStep::None | RotationStep::Removed => 1,
            RotationStep::Added | RotationStep::Used => 2,
        };
        if secrets.lines().len() == lines {
            return Ok(Self { step, secrets });
        }
        Err(CommandFailed::usage(format!(
            "--secret-file: it has {} secrets and not {lines}, so it was changed by hand: go on by \
             hand, and leave one secret once every node and client has it",
            secrets.lines().len()
        )))
    }

    fn text(&self) -> Zeroizing<String> {
        let mark = match self.step {
            RotationStep::None => String::new(),
            step => format!("{ROTATION_MARK}{step}\n"),
        };
        Zeroizing::new(format!("{mark}{}", *self.secrets.expose()))
    }

    fn fingerprints(&self) -> Vec<String> {
        self.secrets.lines().iter().map(Line::fingerprint).collect()
    }

    /// The file after the next step. `new` makes a secret.
    fn next(
        &self,
        new: impl FnOnce() -> Result<Line, CommandFailed>,
    ) -> Result<Self, CommandFailed> {
        let lines = self.secrets.lines();
        let (step, lines) = match self.step {
            RotationStep::None => (RotationStep::Added, vec![lines[0].clone(), new()?]),
            RotationStep::Added => (RotationStep::Used, vec![lines[1].clone(), lines[0].clone()]),
            RotationStep::Used => (RotationStep::Removed, vec![lines[0].clone()]),
            RotationStep::Removed => (RotationStep::None, lines.to_vec()),
        };
        let secrets = Secrets::new(lines).map_err(|e| CommandFailed::new(e.to_string()))?;
        Ok(Self { step, secrets })
    }
}

impl Rotate {
    pub(super) async fn main(self) -> Result<ExitCode, CommandFailed> {
        let _alone = Alone::with(&self.secret_file)?;
        let mut file = File::read(&self.secret_file)?;
        self.admits(file.step)?;
        let waits = (self.wait || self.all) && file.step != RotationStep::None;
        let waited = self.until_everywhere(&file, waits).await?;
        if waited && self.wait {
            // An earlier call waited in vain. This one waits on, and makes no other step: clients
            // and operators may need files first.
            say(format_args!(
                "every member has the step \"{}\"\n",
                file.step
            ));
            if file.step != RotationStep::Removed {
                say(format_args!("{}", self.what_next(&file)));
                return Ok(ExitCode::SUCCESS);
            }
        }
        loop {
            let new = || Line::new_member().map_err(|e| CommandFailed::new(e.to_string()));
            let next = file.next(new)?;
            if next.step == RotationStep::None {
                return self.finish(&next);
            }
            let beside = SecretFiles::derive(&next.secrets)?.replace_beside(&self.secret_file)?;
            replace(&self.secret_file, &next.text())?;
            file = next;
            say(format_args!("{}", done(&file)));
            if self.all {
                tokio::time::sleep(CLIENTS_FOLLOW).await;
                self.until_everywhere(&file, true).await?;
                continue;
            }
            // The members wait for a copy, so this is said before the command waits for them.
            say(format_args!("{}", self.to_copy(&file, &beside)));
            if self.wait {
                self.until_everywhere(&file, true).await?;
                if file.step == RotationStep::Removed {
                    return self.finish(&file.next(new)?);
                }
                say(format_args!("  every member has it\n"));
            }
            say(format_args!("{}", self.what_next(&file)));
            return Ok(ExitCode::SUCCESS);
        }
    }

    /// Whether the command was called as the step that was made asks for: one call too many must
    /// not begin another rotation.
    fn admits(&self, step: RotationStep) -> Result<(), CommandFailed> {
        match (step, self.new) {
            (RotationStep::None, false) => Err(CommandFailed::usage(
                "nothing was changed: no rotation is under way, so the last one, if there was one, \
                 is done. To replace the secret once more, begin a rotation with --new",
            )),
            (RotationStep::Added | RotationStep::Used | RotationStep::Removed, true) => {
                Err(CommandFailed::usage(format!(
                    "--new: nothing was changed, because a rotation is under way (the last step is \
                 \"{step}\"): go on with it without --new",
                )))
            }
            (RotationStep::None, true)
            | (RotationStep::Added | RotationStep::Used | RotationStep::Removed, false) => Ok(()),
        }
    }

    /// Every member has only the new secret: the comment goes.
    fn finish(&self, file: &File) -> Result<ExitCode, CommandFailed> {
        replace(&self.secret_file, &file.text())?;
        let new = &file.fingerprints()[0];
        say(format_args!(
            "done: every member has only {new}, and the rotation is over\n"
        ));
        Ok(ExitCode::SUCCESS)
    }

    /// What to copy where.
    fn to_copy(&self, file: &File, beside: &[PathBuf]) -> String {
        let mut text = format!("  copy {} to every node", self.secret_file.display());
        text += if self.wait {
            "; this command waits for that\n"
        } else {
            "\n"
        };
        let is = |path: &Path, name: &str| path.file_name().is_some_and(|known| known == name);
        for path in beside {
            let shown = path.display();
            text += &match file.step {
                RotationStep::Added if is(path, AUTHORITY) => format!(
                    "  before the next step, copy {shown} to the programs that check certificates \
                     of nodes (Redis clients with TLS, Prometheus, curl), and let them read it: \
                     they trust no node any more otherwise\n"
                ),
                RotationStep::Added if is(path, CLIENT) => format!(
                    "  before the next step, copy {shown} to all native clients: they trust no \
                     node any more otherwise\n"
                ),
                RotationStep::Added if is(path, OPERATOR) => format!(
                    "  before the next step, copy {shown} to the operators: with their former \
                     file, `doyen` trusts no HTTP with TLS any more\n"
                ),
                RotationStep::Used if is(path, CLIENT) => format!(
                    "  before the next step, copy {shown} to all native clients: they are \
                     disconnected otherwise\n"
                ),
                RotationStep::Used if is(path, OPERATOR) => format!(
                    "  before the next step, copy {shown} to the operators: their former file \
                     opens nothing afterwards\n"
                ),
                _ => format!("  copy {shown} to where it is used\n"),
            };
        }
        if file.step == RotationStep::Added && !beside.iter().any(|path| is(path, AUTHORITY)) {
            text += &format!(
                "  if programs check certificates of nodes, they need the new {AUTHORITY} before \
                 the next step: `doyen secret new --from {} --dir DIR` makes it\n",
                self.secret_file.display()
            );
        }
        text
    }

    /// How to go on.
    fn what_next(&self, file: &File) -> String {
        let wait = if self.wait { " --wait" } else { "" };
        let next = match file.step {
            RotationStep::None | RotationStep::Added => "use the new secret",
            RotationStep::Used => "remove the old secret",
            RotationStep::Removed => "check that every member has only the new secret",
        };
        format!(
            "  then {next}: doyen secret rotate{wait} --secret-file {}\n",
            self.secret_file.display()
        )
    }

    /// Waits until every member has this file, if it may wait, or fails and says which members have
    /// not. Returns whether it had to wait.
    async fn until_everywhere(&self, file: &File, waits: bool) -> Result<bool, CommandFailed> {
        let wanted = file.fingerprints();
        let until = Instant::now() + Duration::from_secs(self.timeout);
        let mut told = Instant::now();
        let mut waited = false;
        loop {
            let members = self.look(file).await?;
            let behind = behind(&members, &wanted);
            if behind.is_empty() {
                return Ok(waited);
            }
            waited = true;
            let why = format!(
                "{} of {} members do not have this file: {}",
                behind.len(),
                members.len(),
                behind.join("; ")
            );
            if !waits {
                return Err(CommandFailed::new(format!(
                    "nothing was changed: {why}. Copy {} to those that lack it, and run this \
                     command again",
                    self.secret_file.display()
                )));
            }
            if Instant::now() >= until {
                return Err(CommandFailed::new(format!(
                    "the step is made in {}, but {why}. Copy the file to those that lack it, and \
                     run this command again, without --new: with --wait, it then goes on to wait",
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
    async fn look(&self, file: &File) -> Result<Vec<(String, Has)>, CommandFailed> {
        let first = self.target.address();
        // Without a scheme, each member is asked as it talks, but never in the clear beyond
        // loopback. That must have been typed.
        let scheme = match first.split_once("://") {
            Some(("http", _)) => "http://",
            _ => "",
        };
        let trusted = match &self.http_ca {
            Some(path) => Trusted::by_file("--http-ca", path).map(Some),
            None => Trusted::by_secrets(&file.secrets),
        };
        let trusted = trusted.map_err(|e| CommandFailed::usage(e.to_string()))?;
        let lines = file.secrets.lines().iter();
        let askers: Vec<Client> = lines
            .filter_map(Line::operator_token)
            .map(|token| Client::new(&*first, token.as_str()).trusting(trusted.clone()))
            .collect();
        let report = ask_with(&first, &api::STATUS, &askers)
            .await
            .map_err(CommandFailed::new)?;
        if report.members.is_empty() {
            return Err(CommandFailed::new(
                "the node is not a member of a cluster yet: wait until `doyen status` shows its \
                 members",
            ));
        }
        let names: BTreeSet<&str> = report.members.iter().map(|m| m.name.as_str()).collect();
        if let Some(other) = self.confirmed.iter().find(|n| !names.contains(n.as_str())) {
            return Err(CommandFailed::usage(format!(
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

/// What was done.
fn done(file: &File) -> String {
    let fingerprints = file.fingerprints();
    match file.step {
        RotationStep::None => String::new(),
        RotationStep::Added => format!("added {}: it will be trusted\n", fingerprints[1]),
        RotationStep::Used => format!("used {}: it will sign\n", fingerprints[0]),
        RotationStep::Removed => format!(
            "removed the other secret: only {} will be trusted\n",
            fingerprints[0]
        ),
    }
}

/// Asks a member what it has.
async fn ask(address: &str, name: &str, askers: &[Client]) -> Has {
    match ask_with(address, &api::TRUST, askers).await {
        Ok(report) if report.name != name => Has::Nothing(format!(
            "another node answers at {address}, which is not reached from here"
        )),
        Ok(report) if !report.ports_behind.is_empty() => Has::OldPorts(report.ports_behind),
        Ok(report) => Has::Lines(report.secrets),
        Err(why) => Has::Nothing(why),
    }
}

/// Asks a member with the tokens of all lines: it may not have the first one yet, or any more.
async fn ask_with<T: DeserializeOwned>(
    address: &str,
    report: &HttpReport<T>,
    askers: &[Client],
) -> Result<T, String> {
    let mut why = "it has no answer".to_owned();
    for asker in askers {
        match asker.at(address).ask(report).await {
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
            Has::OldPorts(why) => behind.push(format!(
                "{name} has no new certificate for a port ({}): mend that there",
                why.join("; ")
            )),
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

    fn file(step: RotationStep, lines: &[u8]) -> File {
        let line = |byte: &u8| Line::member(std::array::from_fn(|i| byte.wrapping_add(i as u8)));
        File {
            step,
            secrets: Secrets::new(lines.iter().map(line).collect()).expect("lines"),
        }
    }

    #[test]
    fn a_rotation_goes_through_its_steps_and_survives_being_written() {
        let new = || Ok(file(RotationStep::None, &[2]).secrets.first().clone());
        let mut at = file(RotationStep::None, &[1]);
        let steps = [
            file(RotationStep::Added, &[1, 2]),
            file(RotationStep::Used, &[2, 1]),
            file(RotationStep::Removed, &[2]),
            file(RotationStep::None, &[2]),
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
            file(RotationStep::None, &[1, 2]),
            file(RotationStep::Added, &[1]),
            file(RotationStep::Used, &[1, 2, 3]),
        ] {
            let text = changed.text();
            let secrets = Secrets::parse(text.as_bytes()).expect("a file");
            let refusal = File::of(&text, secrets).expect_err("refused");
            assert!(refusal.message.contains("by hand"), "{}", refusal.message);
        }
    }

    fn rotate(words: &[&str]) -> Rotate {
        #[derive(clap::Parser)]
        struct Called {
            #[command(flatten)]
            rotate: Rotate,
        }
        let words = ["rotate", "--secret-file", "dir/member"]
            .iter()
            .chain(words);
        <Called as clap::Parser>::parse_from(words).rotate
    }

    #[test]
    fn a_rotation_begins_only_with_new_and_goes_on_only_without() {
        for step in [
            RotationStep::None,
            RotationStep::Added,
            RotationStep::Used,
            RotationStep::Removed,
        ] {
            let begins = step == RotationStep::None;
            assert_eq!(rotate(&["--new"]).admits(step).is_ok(), begins, "{step}");
            assert_eq!(rotate(&[]).admits(step).is_ok(), !begins, "{step}");
        }
        let Err(why) = rotate(&["--wait"]).admits(RotationStep::None) else {
            panic!("it began a rotation");
        };
        assert!(why.message.contains("with --new"), "{}", why.message);
    }

    #[test]
    fn it_says_what_to_copy_before_which_step() {
        let files = ["dir/client", "dir/operator", "dir/ca.pem"].map(PathBuf::from);
        let told = |step, lines: &[u8], words: &[&str]| {
            let (rotate, file) = (rotate(words), file(step, lines));
            (rotate.to_copy(&file, &files), rotate.what_next(&file))
        };
        // From *use* on, programs that check nodes need to know the new secret.
        let (added, next) = told(RotationStep::Added, &[1, 2], &["--wait"]);
        for name in ["client", "operator", "ca.pem"] {
            let copy = format!("before the next step, copy dir/{name}");
            assert!(added.contains(&copy), "{added}");
        }
        assert!(
            added.contains("copy dir/member to every node; this command waits for that"),
            "{added}"
        );
        let goes_on = "doyen secret rotate --wait --secret-file dir/member";
        assert!(next.contains(goes_on), "{next}");
        // From *remove* on, nodes know the new secret alone.
        let (used, next) = told(RotationStep::Used, &[2, 1], &[]);
        assert!(used.contains("copy dir/member to every node\n"), "{used}");
        for name in ["client", "operator"] {
            let copy = format!("before the next step, copy dir/{name}");
            assert!(used.contains(&copy), "{used}");
        }
        assert!(next.contains("remove the old secret"), "{next}");
        let without = rotate(&[]).to_copy(&file(RotationStep::Added, &[1, 2]), &files[..1]);
        assert!(
            without.contains("doyen secret new --from dir/member"),
            "{without}"
        );
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
            ("fay".to_owned(), Has::OldPorts(vec!["no file".to_owned()])),
        ];
        let behind = behind(&members, &["a".to_owned(), "b".to_owned()]);
        assert_eq!(behind.len(), 4);
        assert!(behind[3].starts_with("fay ") && behind[3].contains("no file"));
        assert_eq!(behind[0], "bob has a");
        assert_eq!(behind[1], "cy has b, a");
        assert!(behind[2].contains("--confirmed dan"), "{}", behind[2]);
    }
}
