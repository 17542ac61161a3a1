//! Who is pinged in an interval: as few as will do.
//!
//! ```text
//!   voter       -> voters                each interval: elections wait for this
//!   coordinator -> everybody else        each other interval
//!   anybody     -> a majority of voters  each other interval: a lease needs no more
//!   ... and each interval, whoever has not answered
//! ```
//!
//! Everybody asking every voter each interval would cost each of them the whole cluster, ten times
//! a second. A ping that is not answered within an interval brings the next one at once, and
//! another voter in place of the one that keeps silent, so that being frugal delays a verdict by
//! two intervals at most, and a lease (five intervals long) never waits for one voter.

use super::context::Context;
use super::election::Role;
use super::member_core::MemberCore;
use doyen_placement::MemberId;
use doyen_placement::quorum::majority;
use std::collections::BTreeSet;

/// Pings to those who answer, and who are not needed more often.
const CALM_INTERVALS: u64 = 2;
/// Without a ping of the coordinator for so many intervals, it is asked.
const LED_INTERVALS: u32 = 3;

impl MemberCore {
    /// Who is pinged in this interval.
    pub(super) fn due(&self, cx: &Context) -> BTreeSet<MemberId> {
        let (me, mut due) = (cx.me(), self.asked(cx.me()));
        let votes = |m: MemberId| {
            [
                &self.committed.voters,
                &self.accepted.voters,
                &self.committed_voters,
            ]
            .iter()
            .any(|v| v.contains(&m))
        };
        if votes(me) {
            due.retain(|m| votes(*m) || !self.detector.is_calm(*m) || self.turn_of(*m));
            return due;
        }
        // Whatever is not as usual wants to be known of all.
        let leading = matches!(self.role, Role::Leader(_));
        let usual = self.leader.is_some()
            && !leading
            && !self.out
            && self.committed.voters == self.accepted.voters;
        if !usual || self.committed.voters != self.committed_voters {
            return due;
        }
        let enough = self.enough(cx);
        due.retain(|m| !self.detector.is_calm(*m) || (self.turn_of(me) && enough.contains(m)));
        due
    }

    /// Whether an interval is this member's turn: half of them have one, half the other.
    fn turn_of(&self, member: MemberId) -> bool {
        member
            .0
            .wrapping_add(self.round)
            .is_multiple_of(CALM_INTERVALS)
    }

    /// Voters whose answers make a lease, and the coordinator if it is not heard of otherwise. Each
    /// member begins with another voter, and comes to the coordinator last, which has most to do.
    fn enough(&self, cx: &Context) -> BTreeSet<MemberId> {
        let voters = &self.committed.voters;
        let led = self
            .led_at
            .is_some_and(|at| cx.now.since(at) <= cx.config.timing.ping_interval * LED_INTERVALS);
        let mut enough: BTreeSet<MemberId> = self.leader.filter(|_| !led).into_iter().collect();
        let first =
            usize::try_from(cx.me().0 / CALM_INTERVALS % voters.len().max(1) as u64).unwrap_or(0);
        let others = voters
            .iter()
            .cycle()
            .skip(first)
            .take(voters.len())
            .filter(|v| Some(**v) != self.leader);
        for voter in others.chain(self.leader.iter()) {
            // Who owes an answer is asked anyway, the coordinator too: it counts for nothing until
            // it has answered.
            if majority(voters, |v| enough.contains(&v) && self.detector.is_calm(v)) {
                break;
            }
            if self.detector.is_calm(*voter) {
                enough.insert(*voter);
            }
        }
        enough
    }
}
