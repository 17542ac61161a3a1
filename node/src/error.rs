//! What can go wrong for a program that embeds a node or connects to one: one type for each kind of
//! operation. Each error says whether anything happened.

use crate::map::{KeyError, ValueError};
use doyen_engine::op::Failure;

/// A node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An option is invalid, or contradicts another one.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// A port could not be opened.
    #[error("cannot listen on {address} ({flag}): {why}")]
    Bind {
        /// The flag that names the address.
        flag: &'static str,
        /// The address.
        address: std::net::SocketAddr,
        /// Why, and what to do.
        why: String,
    },
    /// The secret or the certificates could not be used.
    #[error("{0}")]
    Identity(String),
    /// The operating system refused a thread or a socket.
    #[error("cannot start: {0}")]
    System(String),
}

/// The node, or the cluster, is not there to be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// This node was shut down.
    #[error("this node has stopped")]
    Stopped,
    /// This node cannot be a member, and waiting does not help.
    #[error("{0}")]
    Fatal(String),
    /// The node was not ready within the given time.
    #[error("not ready in time: {0}")]
    NotReady(String),
    /// The cluster refuses; nothing happened.
    #[error("{0}")]
    Refused(String),
}

/// A client did not connect.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// An option is invalid, or contradicts another one.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// The secret or the certificates could not be used.
    #[error("{0}")]
    Identity(String),
    /// The operating system refused a thread or a socket.
    #[error("cannot start: {0}")]
    System(String),
    /// Every seed refuses this client. Trying again does not help until a person changes something.
    #[error("no seed accepts this client; {0}")]
    Refused(String),
    /// The client found no node that can serve it in time. Trying again may help.
    #[error("{0}")]
    Unreachable(String),
}

/// A client did not get what it asked of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// This client was closed.
    #[error("this client is closed")]
    Closed,
    /// No answer came within the time. The change may still be made later, and may be asked for
    /// again.
    #[error("not ready in time: {0}")]
    NotReady(String),
    /// The cluster refuses; nothing happened.
    #[error("{0}")]
    Refused(String),
}

/// A value could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The key cannot be encoded.
    #[error("the key cannot be encoded or decoded: {0}")]
    Key(KeyError),
    /// Another program wrote the value, with another codec, schema or type.
    #[error("{0}")]
    Value(ValueError),
    /// The key holds a value of another kind, such as the hash of a Redis client.
    #[error("the key holds a value of another kind: use another key")]
    WrongType,
    /// No node serves the key at the moment. Trying again may help.
    #[error("no node serves this key at the moment: try again")]
    Unavailable,
    /// Some member runs an older version, which does not know versions of values.
    #[error("not every member of the cluster runs this version: finish the upgrade")]
    OldMembers,
    /// Too many operations wait already.
    #[error("too many operations are waiting already: try again later")]
    Overloaded,
    /// The node or the client was shut down, or failed. Trying again does not help.
    #[error("this node or client has stopped")]
    Stopped,
    /// An outcome that this operation should not have.
    #[error("unexpected outcome: {0}")]
    Unexpected(String),
}

/// A value was not written, or is not known to be.
///
/// Only after [`WriteError::Unknown`] or [`WriteError::Unexpected`] may the write have happened.
/// After every other error nothing has happened.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The key cannot be encoded. Nothing happened.
    #[error("the key cannot be encoded: {0}")]
    Key(KeyError),
    /// The codec cannot encode the value, or could not read it back. Nothing happened.
    #[error("{0}")]
    Value(ValueError),
    /// The key, the value or the whole transaction is above the limit. Nothing happened.
    #[error(
        "the key, the value or the whole transaction is above the limit: nothing was written; \
         store less at once"
    )]
    TooLarge,
    /// A copy has no memory left. Nothing happened.
    #[error("memory is full: nothing was written; delete keys, or raise --memory-max")]
    OutOfMemory,
    /// Fewer copies are in sync than `min_in_sync`. Nothing happened.
    #[error("too few copies are in sync: nothing was written")]
    TooFewCopies,
    /// No node serves the key at the moment. Nothing happened; trying again may help.
    #[error("no node serves this key at the moment: nothing was written, try again")]
    Unavailable,
    /// The key holds a value of another kind, such as the hash of a Redis client. Nothing happened.
    #[error("the key holds a value of another kind: nothing was written; use another key")]
    WrongType,
    /// A key that the transaction watches was written, or has expired, since it was read. Nothing
    /// happened. Read it again, and begin another transaction.
    #[error("a watched key has changed: nothing was written; read it again")]
    Changed,
    /// The keys of a transaction are not all in one partition. Nothing happened.
    #[error(
        "the keys are in several partitions: nothing was written; use a database (not a map), and \
         give its keys the same {{tag}}, as in {{user1}}:name and {{user1}}:mail"
    )]
    CrossPartition,
    /// Some member runs an older version, which does not know the operation. Nothing happened.
    #[error(
        "not every member of the cluster runs this version: nothing was written; finish the \
         upgrade"
    )]
    OldMembers,
    /// Too many operations wait already. Nothing happened.
    #[error("too many operations are waiting already: nothing was written, try again later")]
    Overloaded,
    /// The node or the client was shut down, or failed. Nothing happened. Trying again does not
    /// help.
    #[error("this node or client has stopped: nothing was written")]
    Stopped,
    /// The answer did not arrive in time: the write may have happened, or may still happen.
    #[error("it is not known whether this was written: read the key before you try again")]
    Unknown,
    /// An outcome that this operation should not have. Treat it like [`WriteError::Unknown`].
    #[error("unexpected outcome, it may have been written: {0}")]
    Unexpected(String),
}

impl WriteError {
    /// Whether the write may have happened all the same.
    #[must_use]
    pub const fn may_have_happened(&self) -> bool {
        matches!(self, Self::Unknown | Self::Unexpected(_))
    }
}

impl From<Failure> for ReadError {
    fn from(failure: Failure) -> Self {
        match failure {
            // A read changes nothing. So a read that may or may not have happened only lacks its
            // answer.
            Failure::Unavailable
            | Failure::NoPartition
            | Failure::Unknown
            | Failure::Overtaken
            | Failure::Stale => Self::Unavailable,
            Failure::OldMembers => Self::OldMembers,
            Failure::Overloaded => Self::Overloaded,
            Failure::Stopped => Self::Stopped,
            Failure::WrongType => Self::WrongType,
            other => Self::Unexpected(other.to_string()),
        }
    }
}

/// A write that has to read first: nothing happened.
impl From<ReadError> for WriteError {
    fn from(why: ReadError) -> Self {
        match why {
            ReadError::Key(why) => Self::Key(why),
            ReadError::Value(why) => Self::Value(why),
            ReadError::WrongType => Self::WrongType,
            ReadError::Unavailable => Self::Unavailable,
            ReadError::OldMembers => Self::OldMembers,
            ReadError::Overloaded => Self::Overloaded,
            ReadError::Stopped => Self::Stopped,
            ReadError::Unexpected(outcome) => Self::Unexpected(outcome),
        }
    }
}

impl From<Failure> for WriteError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::TooLarge => Self::TooLarge,
            Failure::OutOfMemory => Self::OutOfMemory,
            Failure::TooFewCopies => Self::TooFewCopies,
            Failure::NoPartition | Failure::Unavailable | Failure::Overtaken | Failure::Stale => {
                Self::Unavailable
            }
            Failure::WrongType => Self::WrongType,
            Failure::CrossPartition => Self::CrossPartition,
            Failure::OldMembers => Self::OldMembers,
            Failure::Overloaded => Self::Overloaded,
            Failure::Unknown => Self::Unknown,
            Failure::Stopped => Self::Stopped,
            other @ (Failure::NoScripts
            | Failure::NotAnInteger
            | Failure::NotAFloat
            | Failure::Overflow) => Self::Unexpected(other.to_string()),
        }
    }
}
