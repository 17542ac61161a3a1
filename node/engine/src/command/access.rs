//! What a command does with keys and channels, and the categories that it belongs to, as access
//! lists (`ACL`) judge it.

use super::description::{key_patterns, places, words};

use super::{Arguments, Description, NO_KEYS, counted_keys};

/// What a command does with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rights {
    /// Whether it answers with the key's value, or with something that depends on it.
    pub read: bool,
    /// Whether it changes the key.
    pub write: bool,
    /// Whether it may do so with any key, whatever its name.
    pub any: bool,
}

impl Rights {
    /// It only finds out whether the key exists, or its type or size.
    pub const NONE: Self = Self::of(false, false);
    /// It reads the key.
    pub const READ: Self = Self::of(true, false);
    /// It changes the key, and tells nothing of its value.
    pub const WRITE: Self = Self::of(false, true);
    /// It reads and changes the key.
    pub const BOTH: Self = Self::of(true, true);
    /// It reads keys that its arguments do not name.
    pub const READ_ANY: Self = Self {
        any: true,
        ..Self::READ
    };

    const fn of(read: bool, write: bool) -> Self {
        Self {
            read,
            write,
            any: false,
        }
    }

    /// Whether a holder of these rights has those, too.
    #[must_use]
    pub const fn include(self, wanted: Self) -> bool {
        (self.read || !wanted.read) && (self.write || !wanted.write) && (self.any || !wanted.any)
    }

    /// These rights and those together.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self {
            read: self.read || others.read,
            write: self.write || others.write,
            any: self.any || others.any,
        }
    }
}

/// What a command does with the keys and channels that its arguments name.
#[derive(Debug, Clone, Copy)]
pub enum Access {
    /// They name none.
    Nothing,
    /// The same with each of its keys.
    Keys(Rights),
    /// This with its first key, and that with the others.
    Pair(Rights, Rights),
    /// The same with each of its keys. What it is depends on its options.
    Depends(fn(&dyn Arguments) -> Rights),
    /// It reads its first key, and keys that patterns behind `BY` and `GET` name. It writes the
    /// others.
    Sorting,
    /// Its first argument is a channel.
    Channel,
    /// All its arguments are channels.
    Channels,
    /// All its arguments are patterns of channels.
    Patterns,
}

impl Access {
    /// It looks at its keys without reading them.
    pub const TOUCH: Self = Self::Keys(Rights::NONE);
    /// It reads its keys.
    pub const READ: Self = Self::Keys(Rights::READ);
    /// It writes its keys.
    pub const WRITE: Self = Self::Keys(Rights::WRITE);
    /// It reads and writes its keys.
    pub const BOTH: Self = Self::Keys(Rights::BOTH);
}

/// The categories of access lists, in the order of Redis.
pub const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

impl<P> Description<P> {
    /// Whether it belongs to this category of access lists.
    #[must_use]
    pub fn is_in(&self, category: &str) -> bool {
        let implied = match category {
            "write" | "pubsub" | "admin" | "fast" | "blocking" => self.has_flag(category),
            "read" => self.has_flag("readonly") && !self.has_category("scripting"),
            "slow" => !self.has_flag("fast"),
            "dangerous" => self.has_flag("admin"),
            _ => false,
        };
        implied || self.has_category(category)
    }

    fn has_category(&self, category: &str) -> bool {
        words(self.categories).any(|word| word == category)
    }

    /// The places of the keys that these arguments name, also of those that are counted by another
    /// argument and do not decide where the command is executed, and what it does with each.
    pub fn accesses(&self, args: &dyn Arguments) -> impl Iterator<Item = (usize, Rights)> + use<P> {
        let (first, others) = match self.access {
            Access::Keys(rights) => (rights, rights),
            Access::Pair(first, others) => (first, others),
            Access::Sorting => (Rights::READ, Rights::WRITE),
            Access::Depends(rights) => {
                let rights = rights(args);
                (rights, rights)
            }
            Access::Nothing | Access::Channel | Access::Channels | Access::Patterns => {
                (Rights::NONE, Rights::NONE)
            }
        };
        let named = matches!(
            self.access,
            Access::Keys(_) | Access::Pair(..) | Access::Depends(_) | Access::Sorting
        );
        let keys = if self.keys == NO_KEYS && self.has_flag("movablekeys") {
            counted_keys(2, 1)
        } else {
            self.keys
        };
        let places = places(if named { keys } else { NO_KEYS }, args);
        let rights = std::iter::once(first).chain(std::iter::repeat(others));
        let patterns = match self.access {
            Access::Sorting => key_patterns(args),
            _ => Vec::new(),
        };
        let patterns = patterns.into_iter().map(|at| (at, Rights::READ_ANY));
        places.zip(rights).chain(patterns)
    }

    /// The places of the channels that these arguments name, or of patterns of channels.
    pub fn channel_indexes(&self, args: &dyn Arguments) -> std::ops::Range<usize> {
        match self.access {
            Access::Channel => 1..args.len().min(2),
            Access::Channels | Access::Patterns => 1..args.len(),
            Access::Nothing
            | Access::Keys(_)
            | Access::Pair(..)
            | Access::Depends(_)
            | Access::Sorting => 0..0,
        }
    }
}
