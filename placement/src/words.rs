//! Words that texts for people have in common.

/// "partition" and "partitions", for [`counted`].
pub const PARTITIONS: (&str, &str) = ("partition", "partitions");
/// The same of copies.
pub const COPIES: (&str, &str) = ("copy", "copies");
/// The same of members.
pub const MEMBERS: (&str, &str) = ("member", "members");
/// The same of keys.
pub const KEYS: (&str, &str) = ("key", "keys");
/// The same of entries.
pub const ENTRIES: (&str, &str) = ("entry", "entries");

/// A count with its noun, in the singular or the plural.
///
/// ```
/// use doyen_placement::words::{COPIES, counted};
///
/// assert_eq!(counted(1, COPIES), "1 copy");
/// assert_eq!(counted(0, COPIES), "0 copies");
/// ```
#[must_use]
pub fn counted(count: impl TryInto<u64>, (one, several): (&str, &str)) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{count} {}", if count == 1 { one } else { several })
}
