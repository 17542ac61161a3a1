//! Evening out measured loads by exchanges.
//!
//! A member that carries too much gives a partition with a large load for one of another member
//! with a smaller load. Each member keeps its number of copies and primaries, so the schedulers of
//! balance and this one do not undo each other's work. After each exchange, the heavier of the two
//! carries less than the giver did, so this ends. A partition that alone is too much for any member
//! never moves for that, because its taker would carry more than its giver. Other partitions beside
//! it may move.

use crate::loads::Threshold;
use crate::planner::layout::{Seats, leads_each};

/// The number of exchanges in one plan and keyspace. A later plan goes on, after their effect was
/// measured.
const EXCHANGES_MAX: usize = 64;
/// The number of members and partitions that are examined for one exchange: the heaviest to give,
/// and the lightest to take.
const LOOKED_AT: usize = 16;

/// A giver's partition and seat for a taker's, if the taker has to give one.
#[derive(Debug, Clone, Copy)]
struct Exchange {
    giver: usize,
    taker: usize,
    given: usize,
    returned: Option<usize>,
}

impl Seats<'_> {
    /// Exchanges until no member's burden exceeds the threshold, or nothing helps. `change` finds
    /// the exchange that lightens the first member most for the second, and makes it if the heavier
    /// burden then stays below the given bound. It returns whether it did.
    pub(super) fn exchange(
        &mut self,
        threshold: Threshold,
        burdens: impl Fn(&Self) -> Vec<u64>,
        change: impl Fn(&mut Self, &[u64], usize, usize) -> bool,
    ) {
        for _ in 0..EXCHANGES_MAX {
            let burdens = burdens(self);
            let weighed = burdens
                .iter()
                .enumerate()
                .map(|(m, burden)| (*burden, self.topology.weight(m)));
            if !threshold.reached().is_exceeded(weighed) {
                return;
            }
            let mut members: Vec<usize> = (0..self.topology.len()).collect();
            members.sort_by_key(|&m| (self.by_weight(burdens[m], m), m));
            let Some((&giver, takers)) = members.split_last() else {
                return;
            };
            let takers = takers
                .iter()
                .filter(|taker| !self.topology.is_busy(**taker))
                .take(LOOKED_AT)
                .copied()
                .collect::<Vec<_>>();
            if !takers
                .into_iter()
                .any(|taker| change(self, &burdens, giver, taker))
            {
                return;
            }
        }
    }

    fn by_weight(&self, burden: u64, member: usize) -> u128 {
        (u128::from(burden) << 20) / u128::from(self.topology.weight(member))
    }

    /// The best lead to hand over, with or without another one in exchange. Nothing is copied.
    pub(super) fn exchange_leads(&mut self, burdens: &[u64], giver: usize, taker: usize) -> bool {
        let lead = |p: usize| self.measured.weights[p].lead;
        let led = |by: usize, beside: usize| {
            let open = self
                .partitions
                .iter()
                .enumerate()
                .filter(|(_, seating)| !seating.fixed);
            let may = |heir, members: &[usize]| {
                self.rules.harm_of_lead(heir) <= self.rules.harm_of_lead(members[0])
            };
            let both = open.filter(move |(_, s)| {
                s.members.first() == Some(&by)
                    && s.members.contains(&beside)
                    && may(beside, &s.members)
            });
            both.map(|(p, _)| p).collect::<Vec<_>>()
        };
        let best = self.best(
            burdens,
            (giver, taker),
            (led(giver, taker), led(taker, giver)),
            lead,
            self.may_lead_more(giver, taker),
        );
        let Some(Exchange {
            giver,
            taker,
            given,
            returned,
        }) = best
        else {
            return false;
        };
        for (p, heir) in [(Some(given), taker), (returned, giver)] {
            let Some(p) = p else { continue };
            let seat = self.partitions[p].members.iter().position(|&m| m == heir);
            seat.into_iter().for_each(|seat| self.enthrone(p, seat));
        }
        true
    }

    /// Whether all members keep their share of leads, if this one leads a partition more and that
    /// one a partition less.
    fn may_lead_more(&self, giver: usize, taker: usize) -> bool {
        if self.leads[giver] == 0 || !self.rules.none() {
            return false;
        }
        let mut leads = self.leads.clone();
        leads[giver] -= 1;
        leads[taker] += 1;
        let targets = leads_each(
            self.topology,
            leads.iter().sum(),
            &self.loads,
            &leads,
            self.turn,
        );
        targets[giver] == leads[giver] && targets[taker] == leads[taker]
    }

    /// The best copy to exchange: among partitions that both lead, or among those that neither
    /// leads.
    pub(super) fn exchange_copies(
        &mut self,
        burdens: &[u64],
        (giver, taker): (usize, usize),
        weight: impl Fn(&Self, usize, bool) -> u64,
    ) -> bool {
        for leads in [false, true] {
            let held = |by: usize, to: usize| {
                let open = self
                    .partitions
                    .iter()
                    .enumerate()
                    .filter(|(_, seating)| !seating.fixed);
                let seat = |members: &[usize]| {
                    members
                        .iter()
                        .position(|&m| m == by)
                        .filter(|seat| (*seat == 0) == leads)
                };
                let may = |p, members: &[usize]| {
                    seat(members).is_some_and(|seat| {
                        self.may_reseat(p, seat, to) && self.may_take(p, seat, to)
                    })
                };
                open.filter(|(p, s)| may(*p, &s.members))
                    .map(|(p, _)| p)
                    .collect::<Vec<_>>()
            };
            let weight = |p| weight(self, p, leads);
            let best = self.best(
                burdens,
                (giver, taker),
                (held(giver, taker), held(taker, giver)),
                weight,
                false,
            );
            if let Some(Exchange {
                giver,
                taker,
                given,
                returned: Some(returned),
            }) = best
            {
                for (p, from, to) in [(given, giver, taker), (returned, taker, giver)] {
                    let seat = self.partitions[p].members.iter().position(|&m| m == from);
                    seat.into_iter().for_each(|seat| self.reseat(p, seat, to));
                }
                return true;
            }
        }
        false
    }

    /// A member that takes the first seat becomes primary.
    fn may_take(&self, p: usize, seat: usize, taker: usize) -> bool {
        seat > 0
            || self.rules.harm_of_lead(taker)
                <= self.rules.harm_of_lead(self.partitions[p].members[0])
    }

    /// The exchange after which the heavier of the two members carries least. None if that is not
    /// lighter than the giver by a twentieth.
    fn best(
        &self,
        burdens: &[u64],
        (giver, taker): (usize, usize),
        (mut given, mut returned): (Vec<usize>, Vec<usize>),
        weight: impl Fn(usize) -> u64,
        alone: bool,
    ) -> Option<Exchange> {
        given.sort_by_key(|&p| (std::cmp::Reverse(weight(p)), p));
        returned.sort_by_key(|&p| (weight(p), p));
        let returned = || {
            returned
                .iter()
                .take(LOOKED_AT)
                .map(|p| Some(*p))
                .chain(alone.then_some(None))
        };
        // Partitions of every size: the heaviest may be too much for any member, and a lighter one
        // may be right.
        let step = given.len().div_ceil(LOOKED_AT * 4).max(1);
        let given = given
            .iter()
            .take(LOOKED_AT)
            .chain(given.iter().skip(LOOKED_AT).step_by(step));
        let left = |p: usize, q: Option<usize>| {
            let less = weight(p)
                .checked_sub(q.map_or(0, &weight))
                .filter(|less| *less > 0)?;
            Some(
                self.by_weight(burdens[giver].checked_sub(less)?, giver)
                    .max(self.by_weight(burdens[taker].saturating_add(less), taker)),
            )
        };
        let all = given.flat_map(|&p| returned().map(move |q| (p, q)));
        let (best, given, returned) = all.filter_map(|(p, q)| Some((left(p, q)?, p, q))).min()?;
        let before = self.by_weight(burdens[giver], giver);
        (best < before - before / 20).then_some(Exchange {
            giver,
            taker,
            given,
            returned,
        })
    }
}
