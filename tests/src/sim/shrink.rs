//! Makes a failure small: fewer faults, nodes, clients and keys, as long as it fails in the same
//! way.
//!
//! Each fault draws from its own numbers, so to leave one out changes the others only in what they
//! meet. The events between them take another course all the same, and may miss the defect by
//! chance. So a few courses are tried of each case.

use super::{Case, Failed};
use std::collections::BTreeSet;

/// How many courses are tried of each smaller case.
const SALTS: u64 = 3;

/// The smallest failing case that was found in this many runs, its failure, and how many runs it
/// took.
pub(crate) fn shrink(
    first: &Failed,
    runs_max: usize,
    run: impl Fn(&Case) -> Result<(), Failed>,
) -> (Failed, usize) {
    let mut shrinker = Shrinker {
        smallest: first.clone(),
        run,
        left: runs_max,
    };
    // Faults that would have come later cannot have caused the failure.
    let begun = first
        .case
        .faults
        .clone()
        .unwrap_or_default()
        .into_iter()
        .chain(0..first.faults_begun);
    shrinker.attempt(Case {
        faults: Some(begun.filter(|n| first.case.has(*n)).collect()),
        ..Case::clone(&first.case)
    });
    shrinker.faults();
    shrinker.sizes();
    shrinker.faults();
    (shrinker.smallest, runs_max - shrinker.left)
}

struct Shrinker<R> {
    smallest: Failed,
    run: R,
    left: usize,
}

impl<R: Fn(&Case) -> Result<(), Failed>> Shrinker<R> {
    /// Takes this case if it fails as the first one did.
    fn attempt(&mut self, case: Case) -> bool {
        for salt in 0..SALTS {
            if self.left == 0 {
                return false;
            }
            self.left -= 1;
            let case = Case {
                salt: self.smallest.case.salt + salt,
                ..case.clone()
            };
            if let Err(failed) = (self.run)(&case)
                && failed.kind() == self.smallest.kind()
            {
                self.smallest = failed;
                return true;
            }
        }
        false
    }

    /// Leaves out halves of the faults, then quarters, down to single ones.
    fn faults(&mut self) {
        let mut parts = 1;
        loop {
            let faults: Vec<u32> = self
                .smallest
                .case
                .faults
                .iter()
                .flatten()
                .copied()
                .collect();
            if faults.is_empty() || self.left == 0 {
                return;
            }
            let size = faults.len().div_ceil(parts);
            let without = |part: &[u32]| {
                faults
                    .iter()
                    .copied()
                    .filter(|n| !part.contains(n))
                    .collect::<BTreeSet<_>>()
            };
            let smaller = faults.chunks(size).any(|part| {
                self.attempt(Case {
                    faults: Some(without(part)),
                    ..Case::clone(&self.smallest.case)
                })
            });
            if !smaller {
                if size == 1 {
                    return;
                }
                parts = (parts * 2).min(faults.len());
            } else {
                parts = parts.saturating_sub(1).max(1);
            }
        }
    }

    /// Reduces nodes, clients and keys as far as the case still fails.
    fn sizes(&mut self) {
        type Set = fn(&mut Case, usize);
        let sets: [(Set, usize); 3] = [
            (|c, n| c.nodes = Some(n), 9),
            (|c, n| c.clients = Some(n), 4),
            (|c, n| c.keys = Some(n), 3),
        ];
        for (set, most) in sets {
            for n in 1..=most {
                let mut case = Case::clone(&self.smallest.case);
                set(&mut case, n);
                if self.attempt(case) {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(case: &Case, what: &str) -> Failed {
        Failed {
            case: Box::new(case.clone()),
            at_ns: 0,
            what: what.into(),
            faults_begun: 40,
            story: Vec::new(),
        }
    }

    /// Fails if faults 7 and 23 meet on three nodes or more.
    fn fragile(case: &Case) -> Result<(), Failed> {
        let bad = case.has(7) && case.has(23) && case.nodes.is_none_or(|n| n >= 3);
        if bad {
            Err(failed(case, "I10: stale"))
        } else {
            Ok(())
        }
    }

    #[test]
    fn irrelevant_faults_are_left_out() {
        let (smallest, runs) = shrink(&failed(&Case::from(5), "I10: stale"), 1_000, fragile);
        assert_eq!(
            smallest.case.to_string(),
            "--seed 5 --nodes 3 --clients 1 --keys 1 --faults 7,23"
        );
        assert!(runs < 300, "{runs}");
    }

    #[test]
    fn another_failure_does_not_count() {
        let run = |case: &Case| fragile(case).and_then(|()| Err(failed(case, "I16: not healed")));
        let (smallest, _) = shrink(&failed(&Case::from(5), "I10: stale"), 1_000, run);
        assert_eq!(smallest.case.faults, Some(BTreeSet::from([7, 23])));
    }

    #[test]
    fn it_ends_after_so_many_runs() {
        let (smallest, runs) = shrink(&failed(&Case::from(5), "I10: stale"), 2, fragile);
        assert_eq!((runs, smallest.kind()), (2, "I10"));
    }
}
