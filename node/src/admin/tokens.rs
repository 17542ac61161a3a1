//! The named tokens that open HTTP.

use super::Admin;
use super::error::{AdminError, InvalidField, Refusal, ReportError};
use crate::clock;
use crate::report::tokens::TokenReport;
use doyen_placement::access::{AccessChange, TokenChange, TokenGrant, TokenRole, may_be_token};

/// What is wrong with a name that no token may have.
pub(crate) const TOKEN_NAMES: &str = "the name of a token must have 1 to 64 letters, digits, dots, \
    hyphens and underscores, and must not be . or ..";

impl Admin {
    /// The named tokens of the cluster, in order of name.
    ///
    /// # Errors
    /// This node is no member of a cluster, or has stopped.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn tokens(&self) -> Result<Vec<TokenReport>, ReportError> {
        let table = self.table_in_force().await?;
        Ok(table.access.tokens.iter().map(TokenReport::new).collect())
    }

    /// Makes a named token, unless it exists with this role and hash, and waits until this node
    /// takes it. The cluster keeps the token's SHA-256 and nothing else of it.
    ///
    /// A token should be random: a hash of something that can be guessed protects it badly.
    ///
    /// ```no_run
    /// # async fn example(node: doyen::Node, sha256: [u8; 32]) -> Result<(), doyen::AdminError> {
    /// use doyen::TokenRole;
    ///
    /// node.admin().create_token("prometheus", TokenRole::Read, sha256).await
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Refusal::Invalid`]: the name has not 1 to 64 letters, digits, dots, hyphens and
    ///   underscores, or is `.` or `..`.
    /// - [`Refusal::Conflict`]: another token has this name, the same token has another name, or
    ///   there are too many (256).
    /// - [`Refusal::NotYet`]: the cluster has members of a version that knows no tokens.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn create_token(
        &self,
        name: &str,
        role: TokenRole,
        sha256: [u8; 32],
    ) -> Result<(), AdminError> {
        self.add_token(name, (role, sha256), false).await
    }

    /// The same. With `keep_operate`, some token must have the role operate afterwards.
    pub(crate) async fn add_token(
        &self,
        name: &str,
        (role, sha256): (TokenRole, [u8; 32]),
        keep_operate: bool,
    ) -> Result<(), AdminError> {
        if !may_be_token(name) {
            return Err(InvalidField::new("name", TOKEN_NAMES).into());
        }
        let until = self.changes.deadline();
        let grant = TokenGrant {
            role,
            sha256,
            made: clock::unix_ms() / 1000,
        };
        let same = |known: TokenGrant| (known.role, known.sha256) == (role, sha256);
        match self.changes.newest(until).await?.access.grant(name) {
            Some(known) if same(known) => return Ok(()),
            Some(_) => {
                let why = format!(
                    "there is a token {name} already: choose another name, or revoke that one \
                     (`doyen token revoke {name}`)"
                );
                return Err(Refusal::Conflict { why }.into());
            }
            None => {}
        }
        let change = token_change(name, (None, Some(grant)), keep_operate);
        self.changes.change_access(until, change).await?;
        self.changes
            .await_table(until, |table| table.access.grant(name).is_some_and(same))
            .await
    }

    /// Revokes a named token, and waits until this node refuses it. The other members do so as soon
    /// as they install the same table.
    ///
    /// # Errors
    /// - [`Refusal::NotFound`]: there is no such token.
    /// - [`Refusal::Conflict`]: it was changed meanwhile.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn revoke_token(&self, name: &str) -> Result<(), AdminError> {
        self.remove_token(name, false).await
    }

    /// The same. With `keep_operate`, one of the tokens that are left must have the role operate.
    pub(crate) async fn remove_token(
        &self,
        name: &str,
        keep_operate: bool,
    ) -> Result<(), AdminError> {
        let until = self.changes.deadline();
        let Some(grant) = self.changes.newest(until).await?.access.grant(name) else {
            let why = format!("there is no token {name}: `doyen token list` names them");
            return Err(Refusal::NotFound { why }.into());
        };
        let change = token_change(name, (Some(grant), None), keep_operate);
        self.changes.change_access(until, change).await?;
        self.changes
            .await_table(until, |table| table.access.grant(name) != Some(grant))
            .await
    }
}

fn token_change(
    name: &str,
    (before, after): (Option<TokenGrant>, Option<TokenGrant>),
    keep_operate: bool,
) -> AccessChange {
    let name = name.to_owned();
    AccessChange {
        tokens: vec![TokenChange {
            name,
            before,
            after,
        }],
        keep_operate,
        ..AccessChange::default()
    }
}
