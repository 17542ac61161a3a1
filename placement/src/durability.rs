//! Where a write is when it is acknowledged.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Where a write of a keyspace is when it is acknowledged.
///
/// ```
/// # use doyen_placement as doyen;
/// use doyen::Durability;
///
/// assert_eq!("log".parse(), Ok(Durability::Log));
/// assert_eq!(Durability::default().name(), "none");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// In the memory of every copy in sync. No disk has it.
    #[default]
    None,
    /// In the memory and in the synced log of every copy in sync.
    Log,
}

/// Why a text names no durability.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a durability: write none or log")]
pub struct NoDurability(String);

impl Durability {
    /// The text that people write.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Log => "log",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Durability {
    type Err = NoDurability;

    fn from_str(text: &str) -> Result<Self, NoDurability> {
        let named = [Self::None, Self::Log]
            .into_iter()
            .find(|one| one.name() == text);
        named.ok_or_else(|| NoDurability(text.chars().take(40).collect()))
    }
}
