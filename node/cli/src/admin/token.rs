//! `doyen token`: named tokens with which programs ask nodes by HTTP.

use super::{AdminEndpoint, List, operator_token, private_file, tell};
use crate::CommandFailed;
use doyen::TokenRole;
use doyen::config;
use doyen::http::client::HttpError;
use doyen::http::{api, check_token_name, new_token, token_hash};
use doyen::report::tokens::TokenReport;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

/// Make, list and revoke tokens.
#[derive(Debug, clap::Args)]
pub(crate) struct TokenCommand {
    #[command(subcommand)]
    action: TokenAction,
}

#[derive(Debug, clap::Subcommand)]
enum TokenAction {
    /// Make a token, and print it once: the cluster keeps only its hash
    New(NewToken),
    /// List the tokens
    List(List),
    /// Revoke a token: no member takes it any more
    Revoke {
        /// Its name
        #[arg(value_parser = token_name)]
        name: String,
        #[command(flatten)]
        endpoint: AdminEndpoint,
    },
    /// Print the operators' token, which may do everything: the console takes it to show keys with
    /// their values, and to change users
    Operator(OperatorToken),
}

#[derive(Debug, clap::Args)]
struct OperatorToken {
    /// The operators' or the members' file
    #[arg(long, env = "DOYEN_SECRET_FILE", value_name = "FILE")]
    secret_file: PathBuf,
}

#[derive(Debug, clap::Args)]
struct NewToken {
    /// Its name: 1 to 64 letters, digits, dots, hyphens and underscores
    #[arg(value_parser = token_name)]
    name: String,
    /// read: see the state of the cluster, without keys. operate: see everything, and change the
    /// cluster
    #[arg(long, value_name = "ROLE", default_value = "read")]
    role: TokenRole,
    /// Write the token to this file, which only its owner may read, instead of printing it. A file
    /// that exists is not overwritten
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    endpoint: AdminEndpoint,
}

/// The name of a token.
fn token_name(text: &str) -> Result<String, &'static str> {
    check_token_name(text).map(|()| text.to_owned())
}

impl TokenCommand {
    pub(crate) async fn main(self) -> Result<ExitCode, CommandFailed> {
        match self.action {
            TokenAction::New(new) => new.main().await,
            TokenAction::List(list) => list.main(&api::TOKENS, listed).await,
            TokenAction::Revoke { name, endpoint } => {
                endpoint.make(&api::REVOKE_TOKEN, [&name], &()).await?;
                tell(format_args!("token {name} is revoked\n"))
            }
            TokenAction::Operator(OperatorToken { secret_file }) => {
                let secrets = config::secrets_of(&secret_file, "--secret-file")?;
                let token = operator_token(Some(&secrets))?;
                // Stdout has the token alone, for scripts.
                let _ = writeln!(
                    io::stderr(),
                    "the operators' token, which may do everything until the secret is replaced:"
                );
                tell(format_args!("{token}\n"))
            }
        }
    }
}

impl NewToken {
    async fn main(self) -> Result<ExitCode, CommandFailed> {
        let node = self.endpoint.client()?;
        let token = new_token();
        // Before the request: a token whose file cannot be written would be lost.
        if let Some(out) = &self.out {
            save(out, &token)?;
        }
        let (name, role) = (&self.name, self.role);
        let new = api::NewTokenBody {
            role,
            sha256: token_hash(&token),
        };
        let made = node.make(&api::CREATE_TOKEN, [name], &new).await;
        if let Err(e) = made {
            let may_be_made = may_have_happened(&e);
            let CommandFailed { message, status } = e.into();
            let kept = match &self.out {
                Some(out) if !may_be_made => {
                    let _ = std::fs::remove_file(out);
                    String::new()
                }
                Some(out) => format!(
                    "; `doyen token list` says whether it was made: if not, remove {}",
                    out.display()
                ),
                None if may_be_made => {
                    format!("; if `doyen token list` shows {name}, revoke it, and make another one")
                }
                None => String::new(),
            };
            let message = format!("{message}{kept}");
            return Err(CommandFailed { message, status });
        }
        match &self.out {
            Some(out) => {
                let path = out.display();
                tell(format_args!(
                    "token {name} with the role {role} is in {path}\n"
                ))
            }
            None => {
                // Stdout has the token alone, for scripts.
                let _ = writeln!(
                    io::stderr(),
                    "token {name} with the role {role}, which is not shown again:"
                );
                tell(format_args!("{}\n", *token))
            }
        }
    }
}

/// Whether the change may be made in spite of the error.
fn may_have_happened(e: &HttpError) -> bool {
    match e {
        HttpError::Refused { status, .. } => matches!(status, 503 | 504),
        HttpError::NoToken
        | HttpError::NoTrust { .. }
        | HttpError::Untrusted { .. }
        | HttpError::Clear { .. }
        | HttpError::Encrypted { .. } => false,
        HttpError::Connection { .. } | HttpError::Foreign { .. } => true,
    }
}

fn save(path: &Path, token: &str) -> Result<(), CommandFailed> {
    let mut file = private_file("--out", path)?;
    let written = file.write_all(format!("{token}\n").as_bytes());
    let written = written.and_then(|()| file.sync_all());
    written
        .map_err(|e| CommandFailed::usage(format!("--out: cannot write {}: {e}", path.display())))
}

fn listed(tokens: &[TokenReport]) -> String {
    if tokens.is_empty() {
        return "there are no named tokens: `doyen token new NAME` makes one\n".into();
    }
    let width = tokens
        .iter()
        .map(|t| t.name.len())
        .max()
        .unwrap_or(0)
        .max(4);
    let mut text = format!(
        "{:width$}  role     made                  fingerprint\n",
        "name"
    );
    for token in tokens {
        let made = UNIX_EPOCH.checked_add(Duration::from_secs(token.made));
        let made = made.map_or_else(
            || token.made.to_string(),
            |made| humantime::format_rfc3339_seconds(made).to_string(),
        );
        let (name, role, print) = (&token.name, token.role.to_string(), &token.fingerprint);
        let _ = writeln!(text, "{name:width$}  {role:7}  {made:20}  {print}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_listed_in_columns() {
        let token = |name: &str, role| TokenReport {
            name: name.into(),
            role,
            made: 1_700_000_000,
            fingerprint: "ba7816bf8f01cfea".into(),
        };
        let text = listed(&[
            token("ci", TokenRole::Operate),
            token("prometheus", TokenRole::Read),
        ]);
        assert_eq!(
            text,
            "name        role     made                  fingerprint\n\
             ci          operate  2023-11-14T22:13:20Z  ba7816bf8f01cfea\n\
             prometheus  read     2023-11-14T22:13:20Z  ba7816bf8f01cfea\n"
        );
        assert!(listed(&[]).contains("doyen token new NAME"));
    }

    #[test]
    fn a_file_with_a_token_is_its_owners_alone_and_is_never_overwritten() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        save(&path, "doyen_x").expect("written");
        let mode = std::fs::metadata(&path).expect("it is there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        let why = save(&path, "doyen_y").expect_err("it exists");
        assert!(why.message.contains("not overwritten"), "{}", why.message);
        let text = std::fs::read_to_string(&path).expect("it is there");
        assert_eq!(text, "doyen_x\n");
    }
}
