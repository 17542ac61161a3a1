//! Why administration did not do what was asked, or cannot say that it did.

pub use crate::config::keyspace::InvalidField;
use crate::error::Error;

/// The cluster refuses a change. Nothing happened.
///
/// Each text says what is wrong, and then what to do.
///
/// Example: [`Admin`](crate::Admin).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The change names a keyspace, a member, a partition or a range that does not exist.
    #[error("{why}")]
    NotFound {
        /// What is missing, and what there is instead.
        why: String,
    },
    /// No cluster would take this value.
    #[error("{why}")]
    Invalid {
        /// The field of the request, as HTTP calls it: `min_in_sync`.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The change contradicts the cluster as it is: for example, another keyspace has this name.
    #[error("{why}")]
    Conflict {
        /// What it contradicts.
        why: String,
    },
    /// The change would lose data that is still there, or stop what works.
    #[error("{why}")]
    Unsafe {
        /// What would be lost, and the safe way.
        why: String,
    },
    /// The change is possible later: for example, the partition moves at the moment.
    #[error("{why}")]
    NotYet {
        /// What it waits for.
        why: String,
    },
}

/// A change was not made, or it is not known whether it was.
///
/// [`AdminError::may_have_happened`] tells the two groups apart.
///
/// ```no_run
/// # async fn example(node: doyen::Node) {
/// use doyen::AdminError;
///
/// match node.admin().drop_keyspace("orders").await {
///     Ok(()) => println!("it is gone"),
///     Err(AdminError::Refused(why)) => println!("{why}"), // what is wrong, and what to do
///     Err(other) if other.may_have_happened() => println!("look first: {other}"),
///     Err(other) => println!("nothing happened: {other}"),
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The cluster refuses. Nothing happened.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// This node is no member of a cluster. Nothing happened.
    #[error("this node is no member of a cluster, so nothing was changed: {why}")]
    NotMember {
        /// What the node waits for.
        why: String,
    },
    /// No member coordinates the cluster. Nothing happened.
    #[error("no member coordinates the cluster, so nothing was changed: {why}")]
    NoCoordinator {
        /// What the cluster lacks.
        why: String,
    },
    /// The change may have been made, or may still be made: no answer came in time.
    #[error(
        "it is not known whether the change was made: {why}. \
         Look at the cluster (`doyen status`) before you ask again"
    )]
    Unknown {
        /// Why there is no answer.
        why: String,
    },
    /// The change was made, and this node does not see its effect yet.
    #[error("the change was made, and this node does not see its effect yet: {why}")]
    NotInForce {
        /// What the node waits for.
        why: String,
    },
    /// This node was shut down. It is not known whether a change that was under way was made.
    #[error("this node is stopping: ask another")]
    Stopped,
    /// This was called outside of a tokio runtime. Nothing happened.
    #[error(
        "this needs a tokio runtime with a timer: call it within #[tokio::main], or within \
         Runtime::block_on"
    )]
    NoRuntime,
}

/// A report cannot be made.
///
/// ```no_run
/// # async fn example(node: doyen::Node) -> Result<(), doyen::ReportError> {
/// use doyen::ReportError;
///
/// match node.admin().keyspace("orders").await {
///     Ok(orders) => println!("{} partitions", orders.partitions),
///     Err(ReportError::NotFound { why }) => println!("{why}"),
///     Err(other) => return Err(other),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The keyspace does not exist.
    #[error("{why}")]
    NotFound {
        /// What is missing, and what there is instead.
        why: String,
    },
    /// This node is no member of a cluster yet.
    #[error("this node is no member of a cluster yet: {why}")]
    NotMember {
        /// What the node waits for.
        why: String,
    },
    /// No member coordinates the cluster, so nothing can be planned.
    #[error("nothing is planned, because no member coordinates the cluster: {why}")]
    NoCoordinator {
        /// What the cluster lacks.
        why: String,
    },
    /// This half of a split cluster serves nothing.
    #[error("{why}")]
    Split {
        /// What is wrong, and what to do.
        why: String,
    },
    /// This node was shut down.
    #[error("this node is stopping: ask another")]
    Stopped,
    /// This was called outside of a tokio runtime.
    #[error(
        "this needs a tokio runtime with a timer: call it within #[tokio::main], or within \
         Runtime::block_on"
    )]
    NoRuntime,
}

impl AdminError {
    /// Whether the change was made, or may have been made, or may still be made.
    #[must_use]
    pub const fn may_have_happened(&self) -> bool {
        match self {
            Self::Unknown { .. } | Self::NotInForce { .. } | Self::Stopped => true,
            Self::Refused(_)
            | Self::NotMember { .. }
            | Self::NoCoordinator { .. }
            | Self::NoRuntime => false,
        }
    }
}

impl From<InvalidField> for Refusal {
    fn from(InvalidField { field, why }: InvalidField) -> Self {
        Self::Invalid { field, why }
    }
}

impl From<InvalidField> for AdminError {
    fn from(invalid: InvalidField) -> Self {
        Self::Refused(invalid.into())
    }
}

impl From<AdminError> for Error {
    fn from(error: AdminError) -> Self {
        match error {
            AdminError::Refused(refusal) => Self::Refused(refusal.to_string()),
            AdminError::NotMember { why }
            | AdminError::NoCoordinator { why }
            | AdminError::Unknown { why }
            | AdminError::NotInForce { why } => Self::NotReady(why),
            AdminError::Stopped => Self::Closed,
            AdminError::NoRuntime => Self::NoRuntime,
        }
    }
}

impl From<ReportError> for Error {
    fn from(error: ReportError) -> Self {
        match error {
            ReportError::NotFound { why } => Self::Refused(why),
            ReportError::NotMember { why }
            | ReportError::NoCoordinator { why }
            | ReportError::Split { why } => Self::NotReady(why),
            ReportError::Stopped => Self::Closed,
            ReportError::NoRuntime => Self::NoRuntime,
        }
    }
}
