//! Which tokens a newcomer brings.
//!
//! As Cassandra's replica-aware allocator does, greedily: of all arcs, each token splits the one
//! that makes what members hold most even, counted with the copies that move with it. Two things
//! are other than there. A token need not stand in the middle of its arc: what anybody holds is
//! linear in where it stands, so that the best place is the vertex of a parabola. And what members
//! *lead* counts as much as what they hold, since primaries answer all reads and writes.

use super::ownership::fair;
use super::{Caps, Ring, WHOLE};
use crate::hash::Digest;
use crate::id::MemberId;
use crate::planner::layout::Ground;
use crate::table::Member;
use crate::table::validate::REPLICAS_MAX;
use crate::token::Token;
use std::hash::Hasher;
use std::sync::Arc;

/// Tokens of one member, at most.
pub const TOKENS_MAX: usize = 4096;
/// Arcs that are looked at for one token, at most. A ring that has more is large enough for any
/// thousand of its arcs to hold good ones.
const LOOKED_AT_MAX: usize = 2048;
/// A token leaves this part of an arc, at least, on both sides: slivers would be all that a later
/// leave or join finds.
const MARGIN: f64 = 0.1;
/// What it counts that arcs are of one length, beside what members hold. Tried from 0.0001 (where
/// 16 tokens leave some members at 1.12 of what is fair) to 0.01 (at 1.10): with this, none is
/// above 1.06.
const ALIKE: f64 = 0.001;

/// How many times as many tokens as usual a member brings, at most,
const HEAVIER_MAX: usize = 16;
/// and how many in all, unless it is one of weight 100.
const TOKENS_EACH: usize = 1024;

/// How many tokens a member of this weight brings, where one of weight 100 brings `tokens`: at
/// least 1, at most 16 times as many, and 1024 or [`TOKENS_MAX`] in all. One that is heavier gets
/// no larger share than that: every token is an arc that is split off and copied.
#[must_use]
pub fn tokens_of_weight(tokens: usize, weight: u32) -> usize {
    let most = tokens
        .saturating_mul(HEAVIER_MAX)
        .min(TOKENS_EACH.max(tokens))
        .clamp(1, TOKENS_MAX);
    (tokens.saturating_mul(weight as usize).saturating_add(50) / 100).clamp(1, most)
}

/// So many tokens for a member, at places that a seed draws: nobody is asked what is even. None of
/// them is in the ring.
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

/// So many tokens for a member, so that all members, it among them, hold and lead what is fair by
/// weight, as nearly as so many splits allow.
///
/// `members` are all that may hold data, the newcomer among them; `copies` counts the primary. A
/// member that has tokens gets more of them. The first of all gets tokens at equal distances, from
/// where the seed says. The same input gives the same tokens.
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
    let ground = Ground::new(members.to_vec());
    let Some(place) = ground.place(newcomer) else {
        return Vec::new();
    };
    let mut board = Board::new(ring, &ground, copies);
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
        // What it should have by now: were it given all at once, the first token would take as much
        // as it can.
        let part = (own + number + 1) as f64 / (own + tokens) as f64;
        // Where there is no arc of anybody else it does not matter where.
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
    // The least token is no key's.
    Token::at(digest.finish().max(1))
}

/// A ring while tokens are tried on it.
struct Board<'a> {
    ground: &'a Ground,
    caps: Caps,
    arcs: Vec<Held>,
    led: Vec<f64>,
    held: Vec<f64>,
    fair: Vec<(f64, f64)>,
}

/// An arc, and who holds it.
#[derive(Debug, Clone, Default)]
struct Held {
    /// The token that it ends with.
    place: u64,
    owner: usize,
    /// Its copies in order, each with how many tokens further on it was found.
    copies: Vec<(usize, usize)>,
    /// How many tokens the walk looked at.
    reach: usize,
}

/// What a token in an arc would change, as far as its place in the arc does not matter (`fixed`)
/// and for each step that it stands further on.
#[derive(Debug, Clone, Copy, Default)]
struct Slope {
    fixed: f64,
    each: f64,
}

impl<'a> Board<'a> {
    fn new(ring: &Ring, ground: &'a Ground, copies: usize) -> Self {
        let caps = Caps::new(ground, copies);
        let fair = fair(ground, caps.copies());
        let arcs = ring
            .tokens()
            .iter()
            .filter_map(|(token, m)| {
                Some(Held {
                    place: token.place(),
                    owner: ground.place(*m)?,
                    ..Held::default()
                })
            })
            .collect();
        let mut board = Self {
            ground,
            caps,
            arcs,
            led: vec![0.0; ground.len()],
            held: vec![0.0; ground.len()],
            fair,
        };
        for arc in 0..board.arcs.len() {
            board.walk(arc);
            board.count(arc, 1.0);
        }
        board
    }

    /// How much of the ring an arc is.
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

    /// Adds an arc to what its members have, or takes it off.
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
        let mut chosen: Vec<usize> = Vec::with_capacity(self.caps.copies());
        let mut reach = self.arcs.len();
        for further in 0..self.arcs.len() {
            let owner = self.arcs[(arc + further) % self.arcs.len()].owner;
            if self.caps.admit(self.ground, &chosen, owner) {
                chosen.push(owner);
                copies.push((owner, further));
                if chosen.len() == self.caps.copies() {
                    reach = further + 1;
                    break;
                }
            }
        }
        self.arcs[arc].copies = copies;
        self.arcs[arc].reach = reach;
    }

    /// The arcs whose copies a token in this arc may change, the arc itself first, each with how
    /// many tokens it is away.
    fn touched(&self, arc: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let all = self.arcs.len();
        let back = (1..all).map(move |back| ((arc + all - back) % all, back));
        // The further back a walk begins, the earlier it ends (`Caps`).
        let back = back.take_while(|&(one, back)| {
            self.arcs[one].reach > back || self.arcs[one].copies.len() < self.caps.copies()
        });
        std::iter::once((arc, 0)).chain(back)
    }

    /// Whether a token of this member, met so many tokens further on, would give it a copy of the
    /// arc, and who loses one for that.
    fn replaced(&self, arc: usize, further: usize, member: usize) -> Option<Option<usize>> {
        let mut chosen = [0; REPLICAS_MAX];
        let mut count = 0;
        let mut replaced = None;
        let mut tried = false;
        for &(holder, at) in &self.arcs[arc].copies {
            if !tried && at >= further {
                if !self.caps.admit(self.ground, &chosen[..count], member) {
                    return None;
                }
                (chosen[count], tried) = (member, true);
                count += 1;
            }
            if holder == member {
                // It has one already.
                return None;
            }
            if self.caps.admit(self.ground, &chosen[..count], holder) {
                chosen[count] = holder;
                count += 1;
            } else {
                replaced = Some(holder);
            }
        }
        (tried || self.caps.admit(self.ground, &chosen[..count], member)).then_some(replaced)
    }

    /// Where a further token of this member does most good, of which it should then have this part
    /// of what is fair.
    fn best(&self, member: usize, part: f64) -> Option<u64> {
        let stride = self.arcs.len().div_ceil(LOOKED_AT_MAX);
        let mut slopes = vec![Slope::default(); self.ground.len()];
        let mut changed: Vec<usize> = Vec::new();
        let mut best: Option<(f64, u64)> = None;
        // Another beginning each time, so that a stride leaves nobody out for good.
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
            // The sum of squares of how far everybody is from what is fair, as a parabola over
            // where the token stands.
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
            // Of two that do equal good the one that leaves arcs alike: what a member holds in one
            // long arc falls to one other when it leaves.
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
            Held {
                place,
                owner,
                ..Held::default()
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
