//! Tokens on a ring, chosen and divided by [`doyen_placement::ring`].

use super::Strategy;
use doyen_placement::id::MemberId;
use doyen_placement::lookup::RingLookup;
use doyen_placement::ring::{Ring, RingWalk, allocate, depart, random, tokens_of_weight};
use doyen_placement::table::Member;
use doyen_placement::token::Token;
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct OnRing {
    tokens: usize,
    random: bool,
    copies: usize,
    seed: u64,
    ring: Ring,
    lookup: RingLookup,
    /// The holders of each arc.
    holders: Vec<Vec<MemberId>>,
}

impl OnRing {
    pub(super) fn new(tokens: usize, random: bool, copies: usize, seed: u64) -> Self {
        Self {
            tokens,
            random,
            copies,
            seed,
            ring: Ring::default(),
            lookup: RingLookup::new(&[]),
            holders: Vec::new(),
        }
    }

    /// Gives a node as many tokens as its weight asks for.
    fn fit(&mut self, nodes: &[Arc<Member>], node: &Member) {
        let wanted = tokens_of_weight(self.tokens, node.weight);
        let present = self.ring.tokens_of(node.id).count();
        if present > wanted {
            self.ring = self.ring.shrink(node.id, wanted);
        } else if present < wanted {
            let more = wanted - present;
            // A node always draws the same tokens in the same order, so those that it has are
            // skipped.
            let tokens = if self.random {
                random(&self.ring, node.id, more, self.seed)
            } else {
                allocate(&self.ring, nodes, node.id, more, self.copies, self.seed)
            };
            // Neither way gives a token that exists already.
            self.ring = self
                .ring
                .join(node.id, tokens)
                .unwrap_or_else(|_| self.ring.clone());
        }
    }
}

impl Strategy for OnRing {
    fn follow(&mut self, nodes: &[Arc<Member>]) {
        let known: BTreeSet<MemberId> = self.ring.tokens().iter().map(|(_, m)| *m).collect();
        let stays = |id: MemberId| nodes.iter().any(|n| n.id == id);
        let mut there: Vec<Arc<Member>> = nodes
            .iter()
            .filter(|n| known.contains(&n.id))
            .cloned()
            .collect();
        for gone in known.iter().copied().filter(|id| !stays(*id)) {
            self.ring = if self.random {
                self.ring.leave(gone)
            } else {
                depart(&self.ring, &there, gone, self.copies)
            };
        }
        for node in nodes.iter().filter(|n| known.contains(&n.id)) {
            self.fit(&there, node);
        }
        for node in nodes.iter().filter(|n| !known.contains(&n.id)) {
            there.push(Arc::clone(node));
            self.fit(&there, node);
        }
        let walk = RingWalk::new(&self.ring, nodes, self.copies);
        self.lookup = RingLookup::from(&self.ring);
        self.holders = (0..self.ring.tokens().len())
            .map(|arc| walk.replicas(arc))
            .collect();
    }

    fn holders(&self, key: &[u8], holders: &mut Vec<MemberId>) {
        if let Some(arc) = self.lookup.arc_of_key(key) {
            holders.extend_from_slice(&self.holders[arc]);
        }
    }

    fn table_bytes(&self) -> usize {
        let members: BTreeSet<MemberId> = self.ring.tokens().iter().map(|(_, m)| *m).collect();
        let copies: usize = self.holders.iter().map(Vec::len).sum();
        members.len() * size_of::<MemberId>()
            + self.ring.tokens().len() * size_of::<Token>()
            + copies * size_of::<u32>()
    }
}
