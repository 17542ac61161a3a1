//! The case of a run: a seed, or the smaller case that shrinking made of it.

use super::trace::{Tell, Trace};
use super::world::World;
use std::collections::BTreeSet;
use std::fmt;

/// A case: everything that the seed draws, or less. It prints as the flags that repeat it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Case {
    /// The seed, from which the cluster, its faults and everything else are drawn.
    pub seed: u64,
    /// Chooses another course of the same cluster under the same faults: other delays, other calls.
    pub salt: u64,
    /// Only these faults happen, by their numbers.
    pub faults: Option<BTreeSet<u32>>,
    /// The most nodes.
    pub nodes: Option<usize>,
    /// The most clients.
    pub clients: Option<usize>,
    /// The most keys of each kind.
    pub keys: Option<usize>,
}

impl Case {
    /// Whether a fault happens.
    pub(crate) fn has(&self, fault: u32) -> bool {
        self.faults
            .as_ref()
            .is_none_or(|faults| faults.contains(&fault))
    }
}

impl Case {
    /// The error in the numbers of its faults, if the seed has no fault of such a number.
    #[must_use]
    pub fn unknown_fault(&self) -> Option<String> {
        let last = *self.faults.as_ref()?.last()?;
        let count = World::new(self, Trace::new(Tell::Nothing)).count_faults();
        match count.checked_sub(1) {
            Some(most) if last > most => Some(format!(
                "--faults: seed {} has the faults 0 to {most}, and none of number {last}",
                self.seed
            )),
            None => Some(format!(
                "--faults: seed {} has no faults, and none of number {last}",
                self.seed
            )),
            Some(_) => None,
        }
    }
}

impl From<u64> for Case {
    fn from(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--seed {}", self.seed)?;
        let flag = |f: &mut fmt::Formatter<'_>, name: &str, n: Option<usize>| {
            n.map_or(Ok(()), |n| write!(f, " --{name} {n}"))
        };
        flag(f, "nodes", self.nodes)?;
        flag(f, "clients", self.clients)?;
        flag(f, "keys", self.keys)?;
        if let Some(faults) = &self.faults {
            let numbers: Vec<String> = faults.iter().map(ToString::to_string).collect();
            write!(
                f,
                " --faults {}",
                if numbers.is_empty() {
                    "none".to_owned()
                } else {
                    numbers.join(",")
                }
            )?;
        }
        if self.salt != 0 {
            write!(f, " --salt {}", self.salt)
        } else {
            Ok(())
        }
    }
}
