//! Which peers are pinged in an interval: as few as are needed.
//!
//! ```text
//!   voter        -> voters                each interval: elections wait for this
//!   coordinator  -> all other members     each other interval
//!   any member   -> a majority of voters  each other interval: a lease needs no more
//!   any of these -> a peer that owes an answer, each interval
//! ```
//!
//! If every member asked every voter in each interval, each voter would answer the whole cluster
//! ten times a second. If a ping is not answered within an interval, the next ping follows at once,
//! and another voter is pinged in place of the silent one. So a verdict comes two intervals later
//! at most, and a lease, which lasts five intervals, never waits for one voter.

use super::context::Context;
use super::election::CoordinatorElection;
use super::pings::Pings;
use super::tables::Tables;
use doyen_placement::MemberId;
use doyen_placement::quorum::majority;
use std::collections::BTreeSet;

/// A peer that answers and is not needed more often gets a ping in one of this many intervals.
const CALM_INTERVALS: u64 = 2;
/// If the coordinator has not pinged this member for this many intervals, the member pings it.
const LED_INTERVALS: u32 = 3;

impl Pings {
    /// The peers that are pinged in this interval.
    pub(super) fn due(
        &self,
        cx: &Context,
        tables: &Tables,
        election: &CoordinatorElection,
    ) -> BTreeSet<MemberId> {
        let (me, mut due) = (cx.me(), self.asked(cx.me(), tables, election));
        if tables.votes(me) {
            due.retain(|m| tables.votes(*m) || !self.detector.is_calm(*m) || self.turn_of(*m));
            return due;
        }
        // If anything is unusual, the member pings all peers.
        let usual = election.leader.is_some()
            && !election.leads()
            && !tables.out
            && tables.committed.voters == tables.accepted.voters;
        if !usual || tables.committed.voters != tables.committed_voters {
            return due;
        }
        let enough = self.enough(cx, &tables.committed.voters, election.leader);
        due.retain(|m| !self.detector.is_calm(*m) || (self.turn_of(me) && enough.contains(m)));
        due
    }

    /// Whether it is this member's turn in this interval. Half of the members have their turn in
    /// one interval, half in the other.
    fn turn_of(&self, member: MemberId) -> bool {
        member
            .0
            .wrapping_add(self.round)
            .is_multiple_of(CALM_INTERVALS)
    }

    /// Voters whose answers make a lease, and the coordinator if this member hears nothing of it
    /// otherwise. Each member begins with another voter. The coordinator comes last, because it has
    /// most to do.
    fn enough(
        &self,
        cx: &Context,
        voters: &[MemberId],
        leader: Option<MemberId>,
    ) -> BTreeSet<MemberId> {
        let led = self
            .led_at
            .is_some_and(|at| cx.now.since(at) <= cx.config.timing.ping_interval * LED_INTERVALS);
        let mut enough: BTreeSet<MemberId> = leader.filter(|_| !led).into_iter().collect();
        let first =
            usize::try_from(cx.me().0 / CALM_INTERVALS % voters.len().max(1) as u64).unwrap_or(0);
        let others = voters
            .iter()
            .cycle()
            .skip(first)
            .take(voters.len())
            .filter(|v| Some(**v) != leader);
        for voter in others.chain(leader.iter()) {
            // A voter that owes an answer is pinged anyway, the coordinator too. It counts for
            // nothing until it has answered.
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
