//! `doyen acl`: the users of Redis clients, changed by operators. It needs no user.

use super::{AdminEndpoint, List, tell};
use crate::CommandFailed;
use doyen::config::read_line;
use doyen::http::api::{self, UserRules};
use doyen::report::users::UserReport;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// List, change and remove the users of Redis clients in the table of the cluster.
///
/// An operator may do that also if no user may run ACL SETUSER. Changes need --secret-file, the
/// operators' or the members'; in a cluster without a secret, --http-token-file. Nodes with
/// --resp-acl-file do not use the users of the table.
#[derive(Debug, clap::Args)]
pub(crate) struct AclCommand {
    #[command(subcommand)]
    action: AclAction,
}

#[derive(Debug, clap::Subcommand)]
enum AclAction {
    /// List the users and their rules, without passwords
    List(List),
    /// Change a user, or make one, as ACL SETUSER does
    Set(SetUser),
    /// Remove a user, and end its sessions, as ACL DELUSER does
    Remove {
        /// The user's name
        name: String,
        #[command(flatten)]
        endpoint: AdminEndpoint,
    },
}

#[derive(Debug, clap::Args)]
struct SetUser {
    /// The user's name
    name: String,
    /// Rules of ACL SETUSER, in quotes: 'on ~app:* +@all -@dangerous'. They follow those that the
    /// user has
    rules: Vec<String>,
    /// File with a password that is added to those of the user, as other users of this machine can
    /// see RULES. With the rule resetpass, it is the only one
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    endpoint: AdminEndpoint,
}

impl AclCommand {
    pub(crate) async fn main(self) -> Result<ExitCode, CommandFailed> {
        match self.action {
            AclAction::List(list) => list.main(&api::USERS, listed).await,
            AclAction::Set(set) => set.main().await,
            AclAction::Remove { name, endpoint } => {
                named(&name)?;
                endpoint.make(&api::REMOVE_USER, [&name], &()).await?;
                tell(format_args!("user {name} is removed\n"))
            }
        }
    }
}

fn listed(users: &[UserReport]) -> String {
    let users: Vec<UserReport> = users.iter().map(printable).collect();
    let widths = users.iter().map(|user| user.name.chars().count());
    let width = widths.max().unwrap_or(0).max(4);
    let mut text = format!("{:width$}  passwords  rules\n", "name");
    for user in &users {
        let UserReport {
            name,
            passwords,
            rules,
        } = user;
        // Writing to a text does not fail.
        let _ = writeln!(text, "{name:width$}  {passwords:9}  {rules}");
    }
    if users.iter().any(|user| user.name == "default") {
        text += "at nodes with --resp-password-file, default needs that password, too\n";
    }
    text
}

/// The same for a terminal: names and patterns may have bytes that would command it.
fn printable(user: &UserReport) -> UserReport {
    let escaped = |text: &str| {
        let mut shown = String::with_capacity(text.len());
        for c in text.chars() {
            if c.is_control() {
                shown.extend(c.escape_default());
            } else {
                shown.push(c);
            }
        }
        shown
    };
    UserReport {
        name: escaped(&user.name),
        rules: escaped(&user.rules),
        passwords: user.passwords,
    }
}

/// A user has a name, without which a request would be for all users.
fn named(name: &str) -> Result<(), CommandFailed> {
    if name.is_empty() {
        return Err(CommandFailed::usage("give the name of a user: it is empty"));
    }
    Ok(())
}

impl SetUser {
    async fn main(self) -> Result<ExitCode, CommandFailed> {
        named(&self.name)?;
        let mut rules = self.rules;
        if let Some(path) = &self.password_file {
            let password = read_line(path, "--password-file")?;
            if password.contains(char::is_whitespace) {
                return Err(CommandFailed::usage(
                    "--password-file: the password has spaces, and rules are separated by them: \
                     choose another one",
                ));
            }
            rules.push(format!(">{password}"));
        }
        if rules.is_empty() {
            return Err(CommandFailed::usage(
                "give rules, in quotes: doyen acl set NAME 'on ~app:* +@all -@dangerous' \
                 --password-file FILE",
            ));
        }
        let (name, rules) = (&self.name, UserRules { rules });
        let made = self.endpoint.make(&api::SET_USER, [name], &rules);
        made.await?;
        tell(format_args!(
            "user {name} has these rules now; see `doyen acl list`\n"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_listed_in_columns() {
        let user = |name: &str, passwords, rules: &str| UserReport {
            name: name.into(),
            passwords,
            rules: rules.into(),
        };
        let text = listed(&[user("app", 2, "on ~app:*"), user("default", 0, "off")]);
        assert_eq!(
            text,
            "name     passwords  rules\n\
             app              2  on ~app:*\n\
             default          0  off\n\
             at nodes with --resp-password-file, default needs that password, too\n"
        );
    }
}
