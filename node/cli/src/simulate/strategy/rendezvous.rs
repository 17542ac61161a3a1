//! Rendezvous hashing: every node draws a number for every key, and the highest numbers have it.
//! Weighted as Mosharaf and Resch do: a draw from 0 to 1 becomes `-weight / ln(draw)`, so that each
//! node wins in proportion to its weight.

use super::{Nodes, Strategy, mixed};
use doyen_placement::id::MemberId;
use doyen_placement::table::Member;
use doyen_placement::token::Token;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Rendezvous {
    copies: usize,
    nodes: Nodes,
}

impl Rendezvous {
    pub(super) fn new(copies: usize) -> Self {
        Self {
            copies,
            nodes: Nodes::new(&[], copies),
        }
    }
}

impl Strategy for Rendezvous {
    fn follow(&mut self, nodes: &[Arc<Member>]) {
        self.nodes = Nodes::new(nodes, self.copies);
    }

    fn holders(&self, key: &[u8], holders: &mut Vec<MemberId>) {
        let hash = Token::of(key).place();
        let nodes = self.nodes.0.members();
        let score = |place: usize| {
            // Above 0 and below 1.
            let draw = ((mixed(nodes[place].id.0, hash) >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
            -f64::from(nodes[place].weight) / draw.ln()
        };
        self.nodes.take(holders, |may| {
            let best = (0..nodes.len())
                .filter(|&place| may(place))
                .map(|place| (score(place), place))
                .max_by(|a, b| a.0.total_cmp(&b.0));
            best.map(|(_, place)| place)
        });
    }

    fn table_bytes(&self) -> usize {
        // And a weight.
        self.nodes.len() * (size_of::<MemberId>() + size_of::<u32>())
    }
}
