//! Weights that newcomers may have though they are far above those of the members.

use super::Admin;
use super::error::{AdminError, InvalidField, Refusal, ReportError};
use crate::report::weights::WeightReport;
use doyen_placement::access::{AccessChange, WeightChange, may_be_allowed};
use doyen_placement::table::Invalid;

impl Admin {
    /// The weights that are allowed, in order of name.
    ///
    /// # Errors
    /// This node is no member of a cluster, or has stopped.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn weights(&self) -> Result<Vec<WeightReport>, ReportError> {
        let table = self.table_in_force().await?;
        let weights = table.access.weights.iter();
        Ok(weights.map(WeightReport::new).collect())
    }

    /// Allows members of this name to have this weight, or less, and waits until this node knows
    /// it. It replaces what was allowed for that name.
    ///
    /// A newcomer whose weight is above 8 times the median of the live data members waits until it
    /// is allowed: it would draw most of the data. Members that are there already, and newcomers
    /// below that limit, need none of this.
    ///
    /// ```no_run
    /// # async fn example(node: doyen::Node) -> Result<(), doyen::AdminError> {
    /// node.admin().allow_weight("n4", 1600).await
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Refusal::Invalid`]: the name has not 1 to 64 visible ASCII characters, or the weight is
    ///   not 1 to 100,000.
    /// - [`Refusal::Conflict`]: it was changed meanwhile, or there are too many (1,024).
    /// - [`Refusal::NotYet`]: the cluster has members of a version that keeps no weights. It admits
    ///   newcomers of any weight.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn allow_weight(&self, name: &str, weight: u32) -> Result<(), AdminError> {
        may_be_allowed(name, weight).map_err(|why| {
            let field = match why {
                Invalid::Name { .. } | Invalid::Invisible { .. } => "name",
                _ => "weight",
            };
            InvalidField::new(field, why.to_string())
        })?;
        let until = self.changes.deadline();
        let before = self.changes.newest(until).await?.access.weight(name);
        if before != Some(weight) {
            let change = weight_change(name, before, Some(weight));
            self.changes.change_access(until, change).await?;
        }
        self.changes
            .await_table(until, |table| table.access.weight(name) == Some(weight))
            .await
    }

    /// Forgets the weight that is allowed for a name, and waits until this node has forgotten it.
    /// A member that has it stays: its next process waits.
    ///
    /// # Errors
    /// - [`Refusal::NotFound`]: no weight is allowed for this name.
    /// - [`Refusal::Conflict`]: it was changed meanwhile.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn forget_weight(&self, name: &str) -> Result<(), AdminError> {
        let until = self.changes.deadline();
        let Some(weight) = self.changes.newest(until).await?.access.weight(name) else {
            let why = format!(
                "no weight is allowed for {name}: `doyen weight list` names those that are"
            );
            return Err(Refusal::NotFound { why }.into());
        };
        let change = weight_change(name, Some(weight), None);
        self.changes.change_access(until, change).await?;
        self.changes
            .await_table(until, |table| table.access.weight(name) != Some(weight))
            .await
    }
}

fn weight_change(name: &str, before: Option<u32>, after: Option<u32>) -> AccessChange {
    let name = name.to_owned();
    AccessChange {
        weights: vec![WeightChange {
            name,
            before,
            after,
        }],
        ..AccessChange::default()
    }
}
