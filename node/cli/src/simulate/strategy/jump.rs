//! Jump consistent hash (Lamping and Veach, 2014): keys jump to ever higher numbers of nodes, a
//! share of `1 / n` to the `n`-th.
//!
//! It numbers nodes and has no gaps: where another than the last goes, the last takes over its
//! number. Copies are on where the key jumps with further hashes.

use super::{Nodes, Strategy, mixed};
use doyen_placement::id::MemberId;
use doyen_placement::table::Member;
use doyen_placement::token::Token;
use std::sync::Arc;

/// Further hashes that are tried for one copy. Then the nodes are taken in order.
const TRIES_MAX: u64 = 256;

#[derive(Debug)]
pub(super) struct Jump {
    copies: usize,
    nodes: Nodes,
    /// The number of each node that has one, by place in the ground.
    numbers: Vec<usize>,
    members: Vec<MemberId>,
}

impl Jump {
    pub(super) fn new(copies: usize) -> Self {
        Self {
            copies,
            nodes: Nodes::new(&[], copies),
            numbers: Vec::new(),
            members: Vec::new(),
        }
    }
}

impl Strategy for Jump {
    fn follow(&mut self, nodes: &[Arc<Member>]) {
        while let Some(gone) = self
            .members
            .iter()
            .position(|m| nodes.iter().all(|n| n.id != *m))
        {
            self.members.swap_remove(gone);
        }
        let newcomers: Vec<MemberId> = nodes
            .iter()
            .map(|n| n.id)
            .filter(|id| !self.members.contains(id))
            .collect();
        self.members.extend(newcomers);
        self.nodes = Nodes::new(nodes, self.copies);
        self.numbers = self
            .members
            .iter()
            .filter_map(|m| self.nodes.0.place(*m))
            .collect();
    }

    fn holders(&self, key: &[u8], holders: &mut Vec<MemberId>) {
        let hash = Token::of(key).place();
        let mut tries = 0..TRIES_MAX;
        self.nodes.take(holders, |may| {
            let jumps = tries.by_ref().map(|n| {
                self.numbers[jump(
                    if n == 0 { hash } else { mixed(hash, n) },
                    self.numbers.len(),
                )]
            });
            jumps
                .chain(self.numbers.iter().copied())
                .find(|&place| may(place))
        });
    }

    fn table_bytes(&self) -> usize {
        self.members.len() * size_of::<MemberId>()
    }
}

/// The bucket of this hash among so many, at least one.
fn jump(mut hash: u64, buckets: usize) -> usize {
    let (mut bucket, mut next) = (0, 0);
    while next < buckets {
        bucket = next;
        hash = hash.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        next = ((bucket + 1) as f64 * ((1_u64 << 31) as f64 / ((hash >> 33) + 1) as f64)) as usize;
    }
    bucket
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the reference of the paper and its many ports give them.
    #[test]
    fn jumps_are_those_of_the_paper() {
        for (hash, buckets, bucket) in [
            (1, 1, 0),
            (42, 57, 43),
            (0xDEAD_10CC, 1, 0),
            (0xDEAD_10CC, 666, 361),
            (256, 1024, 520),
        ] {
            assert_eq!(jump(hash, buckets), bucket, "{hash} in {buckets}");
        }
    }
}
