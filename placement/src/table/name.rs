//! Names of tables as text: `CLUSTER/TERM/VERSION/HASH`.

use super::TableName;
use crate::id::{ClusterId, Term, Version};
use std::fmt;
use std::str::FromStr;

/// A text is no name of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no name of a table: give CLUSTER/TERM/VERSION/HASH")]
pub struct NoTableName;

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}/{}/{:016x}",
            self.cluster, self.term, self.version, self.hash
        )
    }
}

impl FromStr for TableName {
    type Err = NoTableName;

    fn from_str(text: &str) -> Result<Self, NoTableName> {
        let mut parts = text.split('/');
        let mut part = || parts.next().ok_or(NoTableName);
        let (cluster, term, version, hash) = (part()?, part()?, part()?, part()?);
        let name = Self {
            cluster: ClusterId(u128::from_str_radix(cluster, 16).map_err(|_| NoTableName)?),
            term: Term(term.parse().map_err(|_| NoTableName)?),
            version: Version(version.parse().map_err(|_| NoTableName)?),
            hash: u64::from_str_radix(hash, 16).map_err(|_| NoTableName)?,
        };
        // A table has exactly one name: no signs, no leading zeros, nothing behind it.
        if name.to_string() == text {
            Ok(name)
        } else {
            Err(NoTableName)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let name = TableName {
            cluster: ClusterId(7),
            term: Term(3),
            version: Version(u64::MAX),
            hash: 0xab,
        };
        assert_eq!(name.to_string().parse(), Ok(name));
        let text = name.to_string();
        for wrong in [
            "",
            "/",
            "1/2/3/4",
            &text[1..],
            &format!("{text}/"),
            &text.replace("/3/", "/+3/"),
            &text.to_uppercase(),
        ] {
            assert_eq!(wrong.parse::<TableName>(), Err(NoTableName), "{wrong}");
        }
    }
}
