//! What can go wrong for a program that uses the library: one type, which says whether anything
//! happened and whether trying again may help.

use crate::config::ConfigError;
use doyen_engine::op::Failure;
use serde::{de, ser};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Why an operation did not succeed.
///
/// Each error answers two questions. [`Error::happened`]: did the operation take place all the
/// same? [`Error::retryable`]: may the same operation succeed later?
///
/// ```no_run
/// use doyen::{Error, Happened, Map};
///
/// # async fn example(notes: Map<u64, String>) -> Result<(), Error> {
/// match notes.insert(&7, &"buy milk".to_owned()).await {
///     Err(why) if why.retryable() => println!("nothing happened: try again later"),
///     Err(why) if why.happened() == Happened::Unknown => println!("read the key, then decide"),
///     other => other?,
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option is invalid, or contradicts another one.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A port could not be opened.
    #[error("cannot listen on {address} ({flag}): {why}")]
    Bind {
        /// The flag that names the address.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why, and what to do.
        why: String,
    },
    /// The secret or the certificates could not be used.
    #[error("{0}")]
    Identity(String),
    /// The operating system refused a thread or a socket.
    #[error("cannot start: {0}")]
    System(String),
    /// This was called outside of a tokio runtime.
    #[error(
        "this needs a tokio runtime with a timer: call it within #[tokio::main], or within \
         Runtime::block_on"
    )]
    NoRuntime,
    /// A client found no node that serves it in time.
    #[error("{0}")]
    Unreachable(String),
    /// The node or the cluster was not ready within the time.
    #[error("not ready in time: {0}")]
    NotReady(String),
    /// The cluster refuses. Trying again does not help until a person changes something.
    #[error("{0}")]
    Refused(String),
    /// This node cannot be a member, or one of its threads has failed. Waiting does not help: end
    /// or restart the program.
    #[error("{0}")]
    Fatal(String),
    /// This node or client was shut down.
    #[error("this node or client has stopped: nothing happened; use another one")]
    Closed,
    /// The key cannot be encoded or decoded.
    #[error("the key cannot be encoded or decoded: {0}")]
    Key(#[source] KeyError),
    /// The codec cannot encode the value, could not read it back, or another program wrote the
    /// value, with another codec, schema or type.
    #[error("{0}")]
    Value(#[source] ValueError),
    /// The operation took place, and the value that it wrote over cannot be decoded.
    #[error("the operation was done, but the former value is lost to this program: {0}")]
    Former(#[source] ValueError),
    /// The key holds a value of another kind, such as the hash of a Redis client.
    #[error("the key holds a value of another kind: nothing happened; use another key")]
    WrongType,
    /// The key does not hold a number.
    #[error("the key does not hold a number: nothing happened; use another key")]
    NotANumber,
    /// The sum would not fit into an `i64`.
    #[error("the sum would not fit into 64 bits: nothing happened; use a smaller number")]
    Overflow,
    /// The key, the value or the whole transaction is above the limit.
    #[error(
        "the key (64 KiB at most), or the value or the whole transaction (--value-max of the \
         nodes at most) is above the limit: nothing happened; store less at once"
    )]
    TooLarge,
    /// The operation is too much work: it would keep a data thread busy for more than about 200 ms.
    #[error(
        "it is too much work for one operation: nothing happened; split it into several smaller \
         ones"
    )]
    TooMuchWork,
    /// A copy has no memory left.
    #[error("memory is full: nothing happened; delete keys, or raise --memory-max")]
    OutOfMemory,
    /// The map holds as much as it may, and evicts nothing.
    #[error(
        "the map holds as much as it may: nothing happened; remove entries, open it with a higher \
         limit, or let it evict"
    )]
    MapFull,
    /// The map was dropped.
    #[error("the map was dropped: nothing happened; open it again")]
    Dropped,
    /// Fewer copies are in sync than `min_in_sync`.
    #[error("too few copies are in sync: nothing happened; try again later")]
    TooFewCopies,
    /// No node served the key for 5 s.
    #[error("no node serves this key at the moment: nothing happened; try again later")]
    Unavailable,
    /// More than 65,536 operations wait already, or there is no room for one more caller in line
    /// ([`Lock`](crate::Lock)).
    #[error("too many operations are waiting already: nothing happened; try again later")]
    Overloaded,
    /// A key was written, or has expired, since it was read.
    #[error("the key has changed since it was read: nothing happened; read it again")]
    Changed,
    /// The keys of a transaction are not all in one partition.
    #[error(
        "the keys are in several partitions: nothing happened; use a database (not a map), and \
         give its keys the same {{tag}}, as in {{user1}}:name and {{user1}}:mail"
    )]
    CrossPartition,
    /// A lock is held by another process, for longer than this caller waited.
    #[error("the lock is held by another process: nothing happened; try again later")]
    Busy,
    /// The key was written with a higher fencing token: this process has lost its lock.
    #[error(
        "the key was written by a later holder of the lock: nothing happened; give up, because \
         this process has lost the lock"
    )]
    Fenced,
    /// The loader of a cache failed.
    #[error("the value was not loaded: {0}")]
    Load(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// A cache got no value in time.
    #[error("the value was not loaded within {0:?}: try again later, or give hard_timeout")]
    LoadTimeout(Duration),
    /// Loaders of a cache wait for each other: each of these keys is loaded by asking for the next.
    #[error(
        "the loaders wait for each other ({0}): nothing is loaded so; let one of them not ask for \
         the next key"
    )]
    LoadCycle(String),
    /// Some member speaks only an older level, which does not have the operation.
    #[error(
        "some member speaks only an older level, because its program is older or it was started \
         with --level-max: nothing happened; update it, or start it without --level-max (`doyen \
         status` shows the level)"
    )]
    OldMembers,
    /// The answer did not arrive in time: the operation may have happened, or may still happen.
    #[error("it is not known whether this happened: read the key before you try again")]
    Unknown,
    /// An outcome that this operation should not have. Treat it like [`Error::Unknown`].
    #[error("unexpected outcome, so it may have happened: {0}")]
    Unexpected(String),
}

/// Whether an operation that ended with an error took place all the same.
///
/// Example: [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Happened {
    /// Nothing happened, and nothing will.
    No,
    /// It took place.
    Yes,
    /// It may have taken place, or may still do so.
    Unknown,
}

impl Error {
    /// Whether the operation took place all the same.
    #[must_use]
    pub const fn happened(&self) -> Happened {
        match self {
            Self::Unknown | Self::Unexpected(_) => Happened::Unknown,
            Self::Former(_) => Happened::Yes,
            _ => Happened::No,
        }
    }

    /// Whether nothing happened, and the same operation may succeed later without anybody's help.
    /// It is `false` after [`Error::Unknown`]: read the key first. It is `false` after
    ///
    /// ```
    /// use doyen::{Error, Happened};
    ///
    /// assert!(Error::Overloaded.retryable());
    /// assert_eq!(Error::Overloaded.happened(), Happened::No);
    /// assert!(!Error::Unknown.retryable());
    /// assert_eq!(Error::Unknown.happened(), Happened::Unknown);
    /// ```
    ///
    /// [`Error::Changed`]: read the key again.
    #[must_use]
    pub const fn retryable(&self) -> bool {
        matches!(
            self,
            Self::Unreachable(_)
                | Self::NotReady(_)
                | Self::TooFewCopies
                | Self::Unavailable
                | Self::Overloaded
                | Self::Busy
                | Self::LoadTimeout(_)
        )
    }

    /// A value was not loaded, for a reason that is no error of the loader.
    pub(crate) fn load(why: &str) -> Self {
        Self::Load(Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(
            why,
        )))
    }

    /// Why a read failed. It changes nothing, so a read whose outcome is unknown only lacks its
    /// answer.
    pub(crate) fn of_read(failure: Failure) -> Self {
        match Self::of_write(failure) {
            Self::Unknown => Self::Unavailable,
            other => other,
        }
    }

    /// Why a write failed.
    pub(crate) fn of_write(failure: Failure) -> Self {
        match failure {
            Failure::TooLarge => Self::TooLarge,
            Failure::TooMuchWork => Self::TooMuchWork,
            Failure::OutOfMemory => Self::OutOfMemory,
            Failure::MapFull => Self::MapFull,
            Failure::Dropped => Self::Dropped,
            Failure::TooFewCopies => Self::TooFewCopies,
            Failure::NoPartition | Failure::Unavailable | Failure::Overtaken | Failure::Stale => {
                Self::Unavailable
            }
            Failure::WrongType => Self::WrongType,
            Failure::CrossPartition => Self::CrossPartition,
            Failure::OldMembers => Self::OldMembers,
            Failure::Overloaded => Self::Overloaded,
            Failure::Unknown => Self::Unknown,
            Failure::Stopped => Self::Closed,
            Failure::NotAnInteger | Failure::NotAFloat => Self::NotANumber,
            Failure::Overflow => Self::Overflow,
            other @ Failure::NoScripts => Self::Unexpected(other.to_string()),
        }
    }

    /// The outcome of an operation that should not have it.
    pub(crate) fn unexpected(outcome: impl fmt::Debug) -> Self {
        Self::Unexpected(format!("{outcome:?}"))
    }
}

/// Errors are equal if they are of one kind and say the same.
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
            && self.to_string() == other.to_string()
    }
}

impl Eq for Error {}

/// Checks that this is called within a tokio runtime.
pub(crate) fn within_runtime() -> Result<(), Error> {
    match tokio::runtime::Handle::try_current() {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::NoRuntime),
    }
}

/// A key that cannot be encoded, or stored bytes that are no key of this type.
///
/// ```no_run
/// # async fn example(counts: doyen::Map<std::collections::BTreeMap<String, u64>, u64>) {
/// use doyen::Error;
///
/// // Its keys are maps themselves, which have no encoding.
/// if let Err(Error::Key(why)) = counts.get(&std::collections::BTreeMap::new()).await {
///     println!("give the map another type of key: {why}");
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyError(pub(crate) String);

impl ser::Error for KeyError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self(text.to_string())
    }
}

impl de::Error for KeyError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self(text.to_string())
    }
}

impl KeyError {
    pub(crate) fn no_key(what: &str) -> Self {
        Self(format!(
            "{what} cannot be a key: use text, numbers, tuples, lists, structs and enums"
        ))
    }

    pub(crate) fn other_type() -> Self {
        Self(
            "the stored key has other fields than this type, or the type can be read from anything: \
             give a map to keys of one type alone, because keys of a type whose fields were renamed \
             or reordered are other keys"
                .to_owned(),
        )
    }

    pub(crate) fn ends() -> Self {
        Self("the key ends too early".to_owned())
    }
}

/// A value that cannot be stored, or that was stored by a program with another codec or schema.
///
/// ```no_run
/// # async fn example(users: doyen::Map<u64, String>) -> Result<(), doyen::Error> {
/// use doyen::Error;
///
/// match users.get(&7).await {
///     Err(Error::Value(why)) => println!("another program wrote user 7: {why}"),
///     other => println!("{:?}", other?),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(pub(crate) String);
