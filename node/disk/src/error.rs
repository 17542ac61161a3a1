//! Why a log was not read or written.

use std::io;

/// Why a log was not read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The system refused something.
    #[error("{file}: {what}: {source}; look for space, rights and errors of the disk")]
    System {
        /// The file, or what is asked of all of them.
        file: String,
        /// What could not be done.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },

    /// A later program has written a file.
    #[error(
        "{file} is of version {version}, and this program reads versions up to {highest}: start \
             the newer program"
    )]
    Newer {
        /// The file.
        file: String,
        /// Its version.
        version: u16,
        /// The latest that is read.
        highest: u16,
    },

    /// A file is of another directory.
    #[error(
        "{file} is of another directory: move it away, or start the node with the directory \
             that it is of"
    )]
    Foreign {
        /// The file.
        file: String,
    },

    /// A record is longer than one may be.
    #[error("a record of {bytes} bytes is longer than {max}: write it in parts")]
    Long {
        /// Its length.
        bytes: usize,
        /// The longest.
        max: usize,
    },

    /// An earlier write failed.
    #[error(
        "an earlier write to the log failed, and nobody knows what the disk has: restart the \
             node once the disk works"
    )]
    Failed,
}

impl DiskError {
    pub(crate) fn system(file: &str, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System {
            file: file.to_owned(),
            what,
            source,
        }
    }
}
