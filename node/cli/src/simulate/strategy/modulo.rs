//! The hash of the key modulo the number of nodes, copies on the nodes that follow.

use super::{Nodes, Strategy};
use doyen_placement::id::MemberId;
use doyen_placement::table::Member;
use doyen_placement::token::Token;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Modulo {
    copies: usize,
    nodes: Nodes,
}

impl Modulo {
    pub(super) fn new(copies: usize) -> Self {
        Self {
            copies,
            nodes: Nodes::new(&[], copies),
        }
    }
}

impl Strategy for Modulo {
    fn follow(&mut self, nodes: &[Arc<Member>]) {
        self.nodes = Nodes::new(nodes, self.copies);
    }

    fn holders(&self, key: &[u8], holders: &mut Vec<MemberId>) {
        let count = self.nodes.len();
        // Below the number of nodes.
        let first = (Token::of(key).place() % count.max(1) as u64) as usize;
        self.nodes.take(holders, |may| {
            (0..count)
                .map(|further| (first + further) % count)
                .find(|&place| may(place))
        });
    }

    fn table_bytes(&self) -> usize {
        self.nodes.len() * size_of::<MemberId>()
    }
}
