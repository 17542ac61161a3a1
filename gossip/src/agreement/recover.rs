//! `recover`: the word of an operator in place of the votes of voters that are gone.

use super::api::{AdminReply, Output, VotersGone};
use super::context::Context;
use super::pings::Pings;
use super::tables::Tables;
use crate::time::Time;
use doyen_placement::table::annex::BRANCHES_MAX;
use doyen_placement::{Branch, MemberId};
use std::collections::BTreeSet;
use std::time::Duration;

/// The time after which the attempt is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// The word of an operator, from when it is given until the cluster goes on.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// Voters that an operator declared dead. They do not count in votes.
    pub(super) dead: BTreeSet<MemberId>,
    /// The branch that begins with that word: every table that this node proposes has it.
    pub(super) branch: Option<Branch>,
    /// The request that is not answered yet, and when it is given up.
    asked: Option<(u64, Time)>,
}

impl Recovery {
    pub(super) fn timeout(&self) -> Option<Time> {
        self.asked.map(|(_, at)| at)
    }

    pub(super) fn begin(&mut self, now: Time, ticket: u64, dead: Vec<MemberId>, branch: Branch) {
        *self = Self {
            dead: dead.into_iter().collect(),
            branch: Some(branch),
            asked: Some((ticket, now + PATIENCE)),
        };
    }

    /// The cluster has gone on, or cannot.
    fn end(&mut self, cx: &mut Context, reply: AdminReply) {
        if let Some((ticket, _)) = std::mem::take(self).asked {
            cx.outputs.push_back(Output::AdminReply { ticket, reply });
        }
    }

    /// This table is committed.
    pub(super) fn committed(&mut self, cx: &mut Context, voters: &[MemberId]) {
        if !self.dead.is_empty() && self.dead.iter().all(|m| !voters.contains(m)) {
            self.end(cx, AdminReply::Done(None));
        }
    }
}

impl Tables {
    /// Gives up a recovery if the remaining voters did not agree in time.
    pub(super) fn give_up_recovery(&mut self, cx: &mut Context, pings: &Pings) {
        if self.recovery.timeout().is_none_or(|at| at > cx.now) {
            return;
        }
        let dead = &self.recovery.dead;
        let unnamed =
            self.voter_names(|v| v != cx.me() && !dead.contains(&v) && pings.silent(cx, v));
        let silent = if unnamed.is_empty() {
            String::new()
        } else {
            format!(", and {} did not answer", unnamed.join(", "))
        };
        let why = format!(
            "the remaining voters did not agree in time{silent}: name every voter that is gone"
        );
        self.recovery.end(cx, AdminReply::Refused(why));
    }

    /// This voter has accepted a later table, so this member cannot win even if other members are
    /// dead.
    pub(super) fn recover_elsewhere(&mut self, cx: &mut Context, voter: MemberId) {
        if self.recovery.asked.is_some() {
            let name = self.name_of(voter);
            let why = format!(
                "{name} has accepted a later table than this member, which cannot lead without it: \
                 recover at {name} instead"
            );
            self.recovery.end(cx, AdminReply::Refused(why));
        }
    }

    /// The members that an operator names as dead, or why they do not count as dead. The operator
    /// also counts the voters: a person who counts notices that most of them are said to be dead.
    pub(super) fn asserted_dead(
        &self,
        cx: &Context,
        pings: &Pings,
        names: &[String],
        gone: VotersGone,
    ) -> Result<Vec<MemberId>, String> {
        let mut dead = Vec::new();
        for name in names {
            // A member that the accepted table leaves out may still have a vote in the committed
            // one. It can be named for that.
            let members = self.accepted.members.iter().chain(&self.committed.members);
            let named: Vec<MemberId> = members
                .filter(|m| m.name == *name || m.id.to_string() == *name)
                .map(|m| m.id)
                .collect();
            if named.is_empty() {
                return Err(format!("there is no member {name}"));
            }
            if named.contains(&cx.me()) {
                return Err(format!("{name} is this node, and it is alive"));
            }
            if named.iter().any(|m| pings.answers_now(cx, *m)) {
                return Err(format!("{name} answers: it is not dead"));
            }
            dead.extend(named);
        }
        let voters = self.distinct_voters();
        let counted = VotersGone {
            gone: voters.iter().filter(|v| dead.contains(v)).count(),
            voters: voters.len(),
        };
        if gone != counted {
            let names = self.voter_names(|v| dead.contains(&v));
            let named = if names.is_empty() {
                String::new()
            } else {
                format!(" ({})", names.join(", "))
            };
            return Err(format!(
                "{gone} was said to be gone, but {counted} of the voters are named as dead{named}: \
                 count the voters that are off and stay off, and name each"
            ));
        }
        self.may_recover(cx, |v| !dead.contains(&v) && !pings.silent(cx, v))?;
        Ok(dead)
    }

    /// Whether this member can go on with the voters that are `left`, besides itself.
    fn may_recover(&self, cx: &Context, left: impl Fn(MemberId) -> bool) -> Result<(), String> {
        let me = cx.me();
        let left = |v: MemberId| v == me || left(v);
        if !self.voters().any(left) {
            return Err("no voter is left here: run this on a voter that lives".into());
        }
        // A member without a vote cannot coordinate.
        if !self.voters().any(|v| v == me) {
            let names = self.voter_names(left).join(" or ");
            return Err(format!(
                "this member has no vote: ask one that has, {names}"
            ));
        }
        // The newest table may be about to remove this member. Elected by it, this member would
        // learn that it is removed, and would end, with the operator's word.
        let stays = |v: MemberId| self.accepted.voters.contains(&v) && left(v);
        if self.accepted.member(me).is_none() && self.voters().any(stays) {
            let names = self.voter_names(stays).join(" or ");
            return Err(format!(
                "the newest table removes this member: ask one that stays, {names}"
            ));
        }
        if self.accepted.annex.branches.len() >= BRANCHES_MAX {
            let why = "this cluster was recovered too often: start a new one, with its nodes";
            return Err(why.into());
        }
        Ok(())
    }
}
