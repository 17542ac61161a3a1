//! The tokens that a newcomer brings.
//!
//! The method is greedy, as in Cassandra's replica-aware allocator: each token splits the arc that
//! makes the shares of members most even, including the copies that move with it. Two things are
//! different. A token need not stand in the middle of its arc: every share is linear in its place,
//! so the best place is the vertex of a parabola. And the partitions that members *lead* count as
//! much as those that they hold, because primaries answer all reads and writes.

use super::ownership::fair;
use super::{GroupLimits, Ring, WHOLE};
use crate::hash::Digest;
use crate::id::MemberId;
use crate::planner::layout::Topology;
use crate::table::Member;
use crate::table::validate::REPLICAS_MAX;
use crate::token::Token;
use std::hash::Hasher;
use std::sync::Arc;

/// The largest number of tokens of one member.
pub const TOKENS_MAX: usize = 4096;
/// The number of arcs that are examined for one token. In a larger ring, any thousand arcs contain
/// good ones.
const LOOKED_AT_MAX: usize = 2048;
/// A token leaves at least this part of an arc on both sides. Otherwise later joins and leaves
/// would find only tiny arcs.
const MARGIN: f64 = 0.1;
/// The weight of equal arcs, beside the weight of the shares of members. Values from 0.0001 (16
/// tokens leave some members at 1.12 of their fair share) to 0.01 (1.10) were tried. With this
/// value, no member is above 1.06.
const ALIKE: f64 = 0.001;

/// The largest factor by which a heavy member brings more tokens than usual.
const HEAVIER_MAX: usize = 16;
/// The largest number of tokens of one member, unless its weight is 100.
const TOKENS_EACH: usize = 1024;

/// The number of tokens of a member of this weight, if a member of weight 100 brings `tokens`: at
/// least 1, at most 16 times as many, and at most 1024 or [`TOKENS_MAX`]. A heavier member gets no
/// larger share than that, because each token splits an arc that must be copied.
#[must_use]
pub fn tokens_of_weight(tokens: usize, weight: u32) -> usize {
    let most = tokens
        .saturating_mul(HEAVIER_MAX)
        .min(TOKENS_EACH.max(tokens))
        .clamp(1, TOKENS_MAX);
    (tokens.saturating_mul(weight as usize).saturating_add(50) / 100).clamp(1, most)
}

/// This many tokens for a member, drawn from a seed without regard to balance. None of them is in
/// the ring.
#[must_use]
pub fn random(ring: &Ring, member: MemberId, tokens: usize, seed: u64) -> Vec<Token> {
    let mut drawn: Vec<Token> = Vec::with_capacity(tokens.min(TOKENS_MAX));
    let mut number = 0;
    while drawn.len() < tokens.min(TOKENS_MAX) {
        let token = draw(member, seed, number);
        number += 1;
        if !drawn.contains(&token)
            && ring
                .tokens()
                .binary_search_by_key(&token, |(t, _)| *t)
                .is_err()
        {
            drawn.push(token);
        }
    }
    drawn
}

/// This many tokens for a member, such that all members hold and lead their fair share by weight,
/// as nearly as this many splits allow.
///
/// `members` are all that may hold data, the newcomer among them. `copies` counts the primary. A
/// member that has tokens gets more of them. The first member gets tokens at equal distances,
/// beginning where the seed says. The same input gives the same tokens.
#[must_use]
pub fn allocate(
    ring: &Ring,
    members: &[Arc<Member>],
    newcomer: MemberId,
    tokens: usize,
    copies: usize,
    seed: u64,
) -> Vec<Token> {
    let tokens = tokens.min(TOKENS_MAX);
    let topology = Topology::new(members.to_vec());
    let Some(place) = topology.place(newcomer) else {
        return Vec::new();
    };
    let mut board = AllocationBoard::new(ring, &topology, copies);
    if board.arcs.is_empty() {
        let step = (u128::from(u64::MAX) / tokens.max(1) as u128) as u64;
        let first = draw(newcomer, seed, 0).place();
        return (0..tokens as u64)
            .map(|i| Token::at(first.wrapping_add(i.wrapping_mul(step))))
            .collect();
    }
    let own = ring.tokens_of(newcomer).count();
    let mut given = Vec::with_capacity(tokens);
    for number in 0..tokens {
        // The part of its share that the member should have by now. With the whole share as its
        // aim, the first token would take as much as it can.
        let part = (own + number + 1) as f64 / (own + tokens) as f64;
        // If no other member has an arc, the place does not matter.
        let token = board
            .best(place, part)
            .unwrap_or_else(|| draw(newcomer, seed, number as u64).place());
        board.insert(token, place);
        given.push(Token::at(token));
    }
    given
}

fn draw(member: MemberId, seed: u64, number: u64) -> Token {
    let mut digest = Digest::new();
    digest.write_u64(seed);
    digest.write_u64(member.0);
    digest.write_u64(number);
    // No key has the least token.
    Token::at(digest.finish().max(1))
}

/// A ring on which tokens are tried.
struct AllocationBoard<'a> {
    topology: &'a Topology,
    limits: GroupLimits,
    arcs: Vec<HeldArc>,
    led: Vec<f64>,
    held: Vec<f64>,
    fair: Vec<(f64, f64)>,
}

/// An arc and the members that hold it.
#[derive(Debug, Clone, Default)]
struct HeldArc {
    /// The token at its end.
    place: u64,
    owner: usize,
    /// Its copies in order, each with the distance in tokens at which the walk found it.
    copies: Vec<(usize, usize)>,
    /// The number of tokens that the walk looked at.
    reach: usize,
}

/// The effect of a token in an arc: a part that does not depend on its place in the arc (`fixed`),
/// and a part for each step that it stands further on.
#[derive(Debug, Clone, Copy, Default)]
struct Slope {
    fixed: f64,
    each: f64,
}

impl<'a> AllocationBoard<'a> {
    fn new(ring: &Ring, topology: &'a Topology, copies: usize) -> Self {
        let limits = GroupLimits::new(topology, copies);
        let fair = fair(topology, limits.copies());
        let arcs = ring
            .tokens()
            .iter()
            .filter_map(|(token, m)| {
                Some(HeldArc {
                    place: token.place(),
                    owner: topology.place(*m)?,
                    ..HeldArc::default()
                })
            })
            .collect();
        let mut board = Self {
            topology,
            limits,
            arcs,
            led: vec![0.0; topology.len()],
            held: vec![0.0; topology.len()],
            fair,
        };
        for arc in 0..board.arcs.len() {
            board.walk(arc);
            board.count(arc, 1.0);
        }
        board
    }

    /// The share of the ring that an arc has.
    fn share(&self, arc: usize) -> f64 {
        let before = self.arcs[self.before(arc)].place;
        match self.arcs[arc].place.wrapping_sub(before) {
            0 => 1.0,
            steps => steps as f64 / WHOLE,
        }
    }

    fn before(&self, arc: usize) -> usize {
        arc.checked_sub(1).unwrap_or(self.arcs.len() - 1)
    }

    /// Adds an arc to the shares of its members, or takes it off.
    fn count(&mut self, arc: usize, sign: f64) {
        let share = self.share(arc) * sign;
        self.led[self.arcs[arc].owner] += share;
        for &(member, _) in &self.arcs[arc].copies {
            self.held[member] += share;
        }
    }

    fn walk(&mut self, arc: usize) {
        let mut copies = std::mem::take(&mut self.arcs[arc].copies);
        copies.clear();
        let mut chosen: Vec<usize> = Vec::with_capacity(self.limits.copies());
        let mut reach = self.arcs.len();
        for further in 0..self.arcs.len() {
            let owner = self.arcs[(arc + further) % self.arcs.len()].owner;
            if self.limits.admit(self.topology, &chosen, owner) {
                chosen.push(owner);
                copies.push((owner, further));
                if chosen.len() == self.limits.copies() {
                    reach = further + 1;
                    break;
                }
            }
        }
        self.arcs[arc].copies = copies;
        self.arcs[arc].reach = reach;
    }

    /// The arcs whose copies a token in this arc may change, each with its distance in tokens. The
    /// arc itself comes first.
    fn touched(&self, arc: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let all = self.arcs.len();
        let back = (1..all).map(move |back| ((arc + all - back) % all, back));
        // A walk that begins further back ends earlier (`GroupLimits`).
        let back = back.take_while(|&(one, back)| {
            self.arcs[one].reach > back || self.arcs[one].copies.len() < self.limits.copies()
        });
        std::iter::once((arc, 0)).chain(back)
    }

    /// Whether a token of this member, this many tokens further on, would give it a copy of the
    /// arc, and which member loses one.
    fn replaced(&self, arc: usize, further: usize, member: usize) -> Option<Option<usize>> {
        let mut chosen = [0; REPLICAS_MAX];
        let mut count = 0;
        let mut replaced = None;
        let mut tried = false;
        for &(holder, at) in &self.arcs[arc].copies {
            if !tried && at >= further {
                if !self.limits.admit(self.topology, &chosen[..count], member) {
                    return None;
                }
                (chosen[count], tried) = (member, true);
                count += 1;
            }
            if holder == member {
                // It has one already.
                return None;
            }
            if self.limits.admit(self.topology, &chosen[..count], holder) {
                chosen[count] = holder;
                count += 1;
            } else {
                replaced = Some(holder);
            }
        }
        (tried || self.limits.admit(self.topology, &chosen[..count], member)).then_some(replaced)
    }

    /// The best place for a further token of this member. With it, the member should have this part
    /// of its fair share.
    fn best(&self, member: usize, part: f64) -> Option<u64> {
        let stride = self.arcs.len().div_ceil(LOOKED_AT_MAX);
        let mut slopes = vec![Slope::default(); self.topology.len()];
        let mut changed: Vec<usize> = Vec::new();
        let mut best: Option<(f64, u64)> = None;
        // Another beginning each time, so that a stride leaves out no arc for good.
        let begin = (part * 1000.0) as usize % stride;
        for arc in (begin..self.arcs.len())
            .step_by(stride)
            .filter(|&arc| self.arcs[arc].owner != member)
        {
            let share = self.share(arc);
            let mut change = |member: usize, slope: Slope| {
                slopes[member].fixed += slope.fixed;
                slopes[member].each += slope.each;
                changed.push(member);
            };
            for (one, further) in self.touched(arc) {
                let Some(replaced) = self.replaced(one, further, member) else {
                    continue;
                };
                let gain = if further == 0 {
                    Slope {
                        fixed: 0.0,
                        each: 1.0,
                    }
                } else {
                    Slope {
                        fixed: self.share(one),
                        each: 0.0,
                    }
                };
                change(member, gain);
                replaced.into_iter().for_each(|other| {
                    change(
                        other,
                        Slope {
                            fixed: -gain.fixed,
                            each: -gain.each,
                        },
                    )
                });
            }
            changed.sort_unstable();
            changed.dedup();
            // The sum of the squared distances of all members from their fair shares, as a parabola
            // over the place of the token.
            let (mut a, mut b, mut c) = (0.0, 0.0, 0.0);
            let mut add = |present: f64, goal: f64, fair: f64, slope: Slope| {
                let (off, fixed, each) = (
                    (present - goal) / fair,
                    slope.fixed / fair,
                    slope.each / fair,
                );
                a += each * each;
                b += 2.0 * each * (off + fixed);
                c += fixed * (2.0 * off + fixed);
            };
            let goal = |m: usize, fair: f64| if m == member { fair * part } else { fair };
            for m in changed.drain(..) {
                let fair = self.fair[m].1;
                add(
                    self.held[m],
                    goal(m, fair),
                    fair,
                    std::mem::take(&mut slopes[m]),
                );
            }
            for (m, each) in [(member, 1.0), (self.arcs[arc].owner, -1.0)] {
                let fair = self.fair[m].0;
                add(self.led[m], goal(m, fair), fair, Slope { fixed: 0.0, each });
            }
            // Of two places that are equally good, take the one that makes arcs more alike: the
            // copies of one long arc would all fall to one other member when this one leaves.
            let usual = self.arcs.len() as f64 + 1.0;
            a += 2.0 * ALIKE * usual * usual;
            b -= 2.0 * ALIKE * share * usual * usual;
            // `a` is positive: the lead changes in any case.
            let step = (-b / (2.0 * a)).clamp(share * MARGIN, share * (1.0 - MARGIN));
            let cost = (a * step + b) * step + c;
            let token = self.arcs[self.before(arc)]
                .place
                .wrapping_add((step * WHOLE) as u64);
            if token != self.arcs[arc].place
                && token != self.arcs[self.before(arc)].place
                && best.is_none_or(|(least, _)| cost < least)
            {
                best = Some((cost, token));
            }
        }
        best.map(|(_, token)| token)
    }

    fn insert(&mut self, place: u64, owner: usize) {
        let next = self.arcs.partition_point(|arc| arc.place < place);
        let at = next % self.arcs.len();
        let mut touched: Vec<usize> = self.touched(at).map(|(arc, _)| arc).collect();
        touched.iter().for_each(|&arc| self.count(arc, -1.0));
        self.arcs.insert(
            next,
            HeldArc {
                place,
                owner,
                ..HeldArc::default()
            },
        );
        touched
            .iter_mut()
            .filter(|arc| **arc >= next)
            .for_each(|arc| *arc += 1);
        touched.push(next);
        for arc in touched {
            self.walk(arc);
            self.count(arc, 1.0);
        }
    }
}
