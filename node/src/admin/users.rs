//! The users of Redis clients, as operators change them by HTTP: also if no user may do that.

use super::Admin;
use super::error::{AdminError, InvalidField, Refusal, ReportError};
use crate::report::users::UserReport;
use crate::resp::acl::operator;
use crate::resp::acl::password::Hashing;
use doyen_placement::Table;
use doyen_placement::access::{AccessChange, AccessSettings, UserChange};

/// How often a change is tried again because others changed the same user at the same time.
const ATTEMPTS_MAX: u8 = 16;

impl Admin {
    /// The users of the table, in order of name. `default` is among them.
    ///
    /// # Errors
    /// This node is no member of a cluster, or has stopped.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub(crate) async fn users(&self) -> Result<Vec<UserReport>, ReportError> {
        let shown = |text: Vec<u8>| String::from_utf8_lossy(&text).into_owned();
        let table = self.table_in_force().await?;
        let all = operator::list(&table.access).into_iter();
        Ok(all
            .map(|(name, passwords, rules)| UserReport {
                name: shown(name),
                passwords,
                rules: shown(rules),
            })
            .collect())
    }

    /// Lets a user follow these rules after those that it has, as `ACL SETUSER` does, and waits
    /// until this node has them.
    ///
    /// # Errors
    /// - [`Refusal::Invalid`]: the name or a rule is wrong.
    /// - [`Refusal::Conflict`]: there are too many users or rules, or others change the user all
    ///   the time.
    /// - [`Refusal::NotYet`]: the cluster has members of a version that knows no users.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub(crate) async fn set_user(&self, name: &str, rules: &[String]) -> Result<(), AdminError> {
        let wanted = |access: &AccessSettings| {
            let words = rules.iter().flat_map(|rule| rule.split_ascii_whitespace());
            let words = words.map(str::as_bytes);
            operator::set(access, name.as_bytes(), words, Hashing::Salted)
        };
        self.change_user(wanted).await.map(|_| ())
    }

    /// Removes a user, as `ACL DELUSER` does, and waits until this node has removed it.
    ///
    /// # Errors
    /// - [`Refusal::NotFound`]: there is no such user.
    /// - [`Refusal::Invalid`]: it is `default`, which stays.
    /// - Those of [`Self::set_user`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub(crate) async fn remove_user(&self, name: &str) -> Result<(), AdminError> {
        let wanted = |access: &AccessSettings| operator::remove(access, name.as_bytes());
        if self.change_user(wanted).await? {
            return Ok(());
        }
        let why = format!("there is no user {name}: `doyen acl list` names them");
        Err(Refusal::NotFound { why }.into())
    }

    /// Returns false if nothing had to be changed.
    async fn change_user(
        &self,
        wanted: impl Fn(&AccessSettings) -> Result<Option<UserChange>, String>,
    ) -> Result<bool, AdminError> {
        let until = self.changes.deadline();
        let mut attempts = 0;
        loop {
            let table = self.changes.newest(until).await?;
            let change = wanted(&table.access).map_err(|why| InvalidField::new("rules", why))?;
            let Some(change) = change else {
                return Ok(false);
            };
            let UserChange { name, after, .. } = change.clone();
            let request = AccessChange {
                users: vec![change.clone()],
                ..AccessChange::default()
            };
            let asked = self.changes.change_access(until, request).await;
            let moved = |table: &Table| table.access.rules(&name) != change.before.as_deref();
            match asked {
                Err(AdminError::Refused(Refusal::Conflict { .. }))
                    if attempts < ATTEMPTS_MAX
                        && self.changes.installed().is_some_and(|t| moved(&t)) =>
                {
                    attempts += 1;
                    continue;
                }
                asked => asked?,
            }
            self.changes
                .await_table(until, |table| table.access.rules(&name) == after.as_deref())
                .await?;
            if let Some(table) = self.changes.installed() {
                operator::warn_without_administrator(&table.access, false);
            }
            return Ok(true);
        }
    }
}
