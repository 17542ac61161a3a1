//! The parts of the ring that a change moves.

use super::{Arc, Ring, RingWalk};
use crate::id::MemberId;
use crate::token::Token;

/// A part of the ring that has other copies after a change than before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The part.
    pub arc: Arc,
    /// Its copies before, the primary first.
    pub from: Vec<MemberId>,
    /// Its copies after, the primary first.
    pub to: Vec<MemberId>,
}

/// The parts of the ring that other members hold or lead after the change. These are the arcs at
/// new or removed tokens, and arcs before them whose copies reached beyond. Neighbours with the
/// same change are joined.
#[must_use]
pub fn moves(before: (&Ring, &RingWalk), after: (&Ring, &RingWalk)) -> Vec<Move> {
    let mut bounds: Vec<Token> = before
        .0
        .tokens()
        .iter()
        .chain(after.0.tokens())
        .map(|(token, _)| *token)
        .collect();
    bounds.sort_unstable();
    bounds.dedup();
    let copies = |(ring, walk): (&Ring, &RingWalk), token| {
        ring.arc_of(token)
            .map(|arc| walk.replicas(arc))
            .unwrap_or_default()
    };
    let mut moves: Vec<Move> = Vec::new();
    for (i, &upto) in bounds.iter().enumerate() {
        let arc = Arc {
            after: bounds[i.checked_sub(1).unwrap_or(bounds.len() - 1)],
            upto,
        };
        let (from, to) = (copies(before, upto), copies(after, upto));
        match moves.last_mut() {
            _ if from == to => {}
            Some(last) if last.arc.upto == arc.after && last.from == from && last.to == to => {
                last.arc.upto = upto
            }
            _ => moves.push(Move { arc, from, to }),
        }
    }
    moves
}
