//! The mutants of all crates: ways to break a rule on purpose ([`doyen_placement::mutant`]).

use doyen_placement::mutant::Mutant;

doyen_placement::mutants! {
    /// Checks the lease before the read, and not after it.
    CHECKS_THEN_READS = ("checks-then-reads", "rule 8: order"),
}

/// The mutants of all crates, from those that agree to those that execute.
pub fn all() -> impl Iterator<Item = &'static Mutant> {
    let lists = [
        doyen_placement::mutant::ALL,
        doyen_gossip::mutant::ALL,
        doyen_engine::mutant::ALL,
        doyen::mutant::ALL,
        ALL,
    ];
    lists.into_iter().flatten().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_mutant_has_an_id_of_its_own() {
        let ids: BTreeSet<&str> = all().map(Mutant::id).collect();
        assert_eq!(ids.len(), all().count());
    }
}
