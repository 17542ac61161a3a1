//! `doyen secret`: makes secrets, shows what a file may do, and replaces a cluster's secret.

mod files;
mod rotate;

use super::{CommandFailed, say};
use doyen::config::{Line, Secrets, secrets_of};
use doyen::net::identity::authority_certificates;
use doyen::net::identity::secret::SecretRole;
use files::{AUTHORITY, CLIENT, MEMBER, OPERATOR, SecretFiles};
use std::path::PathBuf;
use std::process::ExitCode;

/// Make, show and replace the secret of a cluster.
#[derive(Debug, clap::Args)]
pub(super) struct SecretCommand {
    #[command(subcommand)]
    action: SecretAction,
}

#[derive(Debug, clap::Subcommand)]
enum SecretAction {
    /// Make a secret: a file for nodes, one for clients, and one for operators
    New(NewSecret),
    /// Show what files with secrets may do, and their fingerprints; never the secrets
    Show(ShowSecret),
    /// Replace the secret of a running cluster, one step at a time, without downtime
    Rotate(rotate::Rotate),
}

/// Makes a secret, in files that only their owner may read:
///
/// DIR/member for every node, DIR/client for programs that only use data, DIR/operator for
/// administration, and DIR/ca.pem, the certificate of the cluster's authority, which is no secret.
/// What is in the other files is derived from DIR/member and does not lead back to it.
#[derive(Debug, clap::Args)]
struct NewSecret {
    /// The directory; it is made if it is missing. Files in it are never overwritten
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Derive the files from the members' secret in this file, instead of making a new one
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

/// Shows what files with secrets may do.
///
/// The fingerprint of a secret is that of its authority, so the files of nodes, clients and
/// operators that belong together have the same.
#[derive(Debug, clap::Args)]
struct ShowSecret {
    /// Files with secrets
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

impl SecretCommand {
    pub(super) async fn main(self) -> Result<ExitCode, CommandFailed> {
        match self.action {
            SecretAction::New(new) => new.main(),
            SecretAction::Show(show) => show.main(),
            SecretAction::Rotate(rotate) => rotate.main().await,
        }
    }
}

impl NewSecret {
    fn main(self) -> Result<ExitCode, CommandFailed> {
        let secrets = match &self.from {
            Some(path) => secrets_of(path, "--from")?,
            None => Line::new_member()
                .and_then(|line| Secrets::new(vec![line]))
                .map_err(|e| CommandFailed::new(e.to_string()))?,
        };
        if secrets.role() != SecretRole::Member {
            return Err(CommandFailed::usage(format!(
                "--from: other secrets are derived from that of a member, and this is that of {}",
                secrets.role().with_article()
            )));
        }
        let set = SecretFiles::derive(&secrets)?;
        set.create(&self.dir)?;
        let at = |name: &str| self.dir.join(name).display().to_string();
        let (member, client, operator) = (at(MEMBER), at(CLIENT), at(OPERATOR));
        say(format_args!(
            "{member} is for nodes: doyen run --secret-file {member}\n\
             {client} is for programs that use data, and opens nothing else\n\
             {operator} is for administration: doyen drain NAME --secret-file {operator}\n\
             {} is the certificate of the cluster's authority, and no secret\n\
             The fingerprint of all of them is {}.\n",
            at(AUTHORITY),
            secrets.first().fingerprint(),
        ));
        Ok(ExitCode::SUCCESS)
    }
}

impl ShowSecret {
    fn main(self) -> Result<ExitCode, CommandFailed> {
        for path in &self.files {
            let secrets = secrets_of(path, "FILE")?;
            let may = match secrets.role() {
                SecretRole::Member => "a node: it may also use data and administer",
                SecretRole::Client => "a client: it may use data",
                SecretRole::Operator => "an operator: it may administer by HTTP",
            };
            let mut out = format!("{}: for {may}\n", path.display());
            for (number, line) in secrets.lines().iter().enumerate() {
                let kind = match (number, line.is_phrase()) {
                    (0, false) => "signs, and is trusted",
                    (0, true) => "signs, and is trusted; made from a phrase",
                    (_, false) => "is trusted",
                    (_, true) => "is trusted; made from a phrase",
                };
                out += &format!("  {} {kind}\n", line.fingerprint());
            }
            say(format_args!("{out}"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The certificates of the authorities of all lines, for programs that use TLS.
fn authorities(secrets: &Secrets) -> Result<String, CommandFailed> {
    authority_certificates(secrets).map_err(|e| CommandFailed::new(e.to_string()))
}
