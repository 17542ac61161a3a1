//! The weights that newcomers may have though they are far above those of the members:
//! `GET /weights`.

use doyen_placement::access::AccessWeight;
use serde::{Deserialize, Serialize};

/// A weight that is allowed for members of a name.
///
/// As JSON: `{"name": "n4", "weight": 1600}`.
///
/// ```no_run
/// # async fn example(node: doyen::Node) -> Result<(), doyen::ReportError> {
/// for allowed in node.admin().weights().await? {
///     println!("{}: {}", allowed.name, allowed.weight);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightReport {
    /// The name of the member. It need not be a member now.
    pub name: String,
    /// The highest weight that is allowed for it: 1 to 100,000.
    pub weight: u32,
}

impl WeightReport {
    pub(crate) fn new(allowed: &AccessWeight) -> Self {
        Self {
            name: allowed.name.clone(),
            weight: allowed.weight,
        }
    }
}
