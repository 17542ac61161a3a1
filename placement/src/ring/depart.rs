//! The members that take over the arcs of a leaver.
//!
//! ```text
//!          a (P)        x (leaver)      b (U)    Without x, the whole arc falls to U:
//!   -------*------------*---------------*---     after some leaves the arcs are far from even.
//!          a ──────> a'                          So P's token moves on,
//!   ----------------*-------------------*---     and P and U divide the arc.
//! ```
//!
//! Nothing moves without need. The part between `a` and `x` changes hands in any case. The order of
//! members around the ring decides which members hold copies, and that order is the same wherever
//! `a` stands in between.

use super::{Ring, RingWalk, ownership};
use crate::id::MemberId;
use crate::table::Member;
use crate::token::Token;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of times that each boundary is adjusted after the others have moved.
const ROUNDS: usize = 16;

/// The ring without this member. Each of its arcs is divided between the members before and after
/// it, so that they lead and hold their fair share as nearly as that allows.
///
/// `members` are those that stay.
#[must_use]
pub fn depart(ring: &Ring, members: &[Arc<Member>], leaver: MemberId, copies: usize) -> Ring {
    let mut left = ring.leave(leaver);
    let owned = ownership(&left, members, copies);
    // For each member, the distance from its fair share, and that share.
    let mut led: BTreeMap<MemberId, (f64, f64)> = owned
        .iter()
        .map(|(m, o)| (*m, (o.led - o.led_fair, o.led_fair)))
        .collect();
    let mut held: BTreeMap<MemberId, (f64, f64)> = owned
        .iter()
        .map(|(m, o)| (*m, (o.held - o.held_fair, o.held_fair)))
        .collect();
    let mut gaps = gaps(ring, &left, leaver, members, copies);
    for _ in 0..ROUNDS {
        for gap in &mut gaps {
            gap.settle(&mut led, &mut held);
        }
    }
    for gap in gaps {
        let (token, _) = &mut left.tokens[gap.token];
        *token = Token::at(
            token
                .place()
                .wrapping_add(((gap.taken * super::WHOLE) as u64).min(gap.steps)),
        );
    }
    // The last token may have moved around the end of the ring.
    left.tokens.sort_unstable();
    left
}

/// An arc of the leaver, between two tokens of other members.
struct LeaverArc {
    /// The token before it, which may move into it.
    token: usize,
    /// The member of that token, and the member of the token behind the gap.
    leads: [MemberId; 2],
    /// Members that have copies only if the former leads, and those that have copies only if the
    /// latter does.
    holds: [Vec<MemberId>; 2],
    /// The number of steps that the token may move.
    steps: u64,
    /// The share of the ring that this is.
    share: f64,
    /// The part of it that goes to the former.
    taken: f64,
}

fn gaps(
    ring: &Ring,
    left: &Ring,
    leaver: MemberId,
    members: &[Arc<Member>],
    copies: usize,
) -> Vec<LeaverArc> {
    let walk = RingWalk::new(left, members, copies);
    let gap = |token: usize| {
        let next = (token + 1) % left.tokens.len();
        let ((begin, before), (_, behind)) = (left.tokens[token], left.tokens[next]);
        let inside = ring.tokens.partition_point(|(t, _)| *t <= begin);
        let clockwise = ring.tokens[inside..].iter().chain(&ring.tokens[..inside]);
        let (end, _) = clockwise.take_while(|(_, m)| *m == leaver).last()?;
        let copies = [walk.replicas(token), walk.replicas(next)];
        let only = |one: usize| {
            copies[one]
                .iter()
                .filter(|m| !copies[1 - one].contains(m))
                .copied()
                .collect()
        };
        // The end of the gap stays with the token behind it, so two tokens never stand at one
        // place.
        let steps = end.place().wrapping_sub(begin.place()).saturating_sub(1);
        let share = steps as f64 / super::WHOLE;
        (before != behind).then(|| LeaverArc {
            token,
            leads: [before, behind],
            holds: [only(0), only(1)],
            steps,
            share,
            taken: 0.0,
        })
    };
    (0..left.tokens.len()).filter_map(gap).collect()
}

impl LeaverArc {
    /// Moves the token to the place where the sum of the squared distances from the fair shares is
    /// least, while all other tokens stay.
    fn settle(
        &mut self,
        led: &mut BTreeMap<MemberId, (f64, f64)>,
        held: &mut BTreeMap<MemberId, (f64, f64)>,
    ) {
        let [before, behind] = &self.leads;
        let takes = std::iter::once(before)
            .map(|m| (led.get(m), 1.0))
            .chain([(led.get(behind), -1.0)]);
        let gives = (0..2).flat_map(|one| self.holds[one].iter().map(move |m| (one, m)));
        let all =
            takes.chain(gives.map(|(one, m)| (held.get(m), if one == 0 { 1.0 } else { -1.0 })));
        let (mut a, mut b) = (0.0, 0.0);
        for ((off, fair), sign) in all.filter_map(|(owned, sign)| Some((*owned?, sign))) {
            a += 1.0 / (fair * fair);
            b += sign * off / (fair * fair);
        }
        let more = if a > 0.0 {
            (self.taken - b / a).clamp(0.0, self.share) - self.taken
        } else {
            0.0
        };
        self.taken += more;
        let add = |of: &mut BTreeMap<MemberId, (f64, f64)>, m: &MemberId, more: f64| {
            of.entry(*m).and_modify(|(off, _)| *off += more);
        };
        add(led, before, more);
        add(led, behind, -more);
        self.holds[0].iter().for_each(|m| add(held, m, more));
        self.holds[1].iter().for_each(|m| add(held, m, -more));
    }
}
