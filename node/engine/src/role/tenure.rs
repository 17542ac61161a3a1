//! What the tables make of a partition at this node: its role begins or ends, and its calls stay,
//! go elsewhere, or are refused.

use super::partition::{Assigned, Held, Slot};
use super::replication::Primary;
use crate::mutant::{self, broken};
use crate::role::calls::{Asker, Call, Source, note_order};
use crate::role::holding::Role;
use crate::shard::context::Context;
use crate::wire::api::Lane;
use crate::wire::frame::Frame;
use doyen_placement::loads::FILLED;
use doyen_placement::{MemberId, Partition, planner};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A partition that no table assigns to this node is kept this long, in case a table gives it back.
pub(crate) const DROP_DELAY: Duration = Duration::from_secs(60);
/// The same if memory is short.
const DROP_SOON: Duration = Duration::from_secs(5);
/// While other members have too few copies, it is kept longer by this at most.
const DROP_LATE: Duration = Duration::from_secs(600);

impl Context {
    /// Acts on the tables' assignment of one partition.
    pub(crate) fn turn(&mut self, slot: &mut Slot, renamed: bool) {
        let at = slot.at;
        let me = self.me;
        let partition = |a: &Option<Assigned>| a.as_ref().map(|a| a.partition.clone());
        let (Some(installed), accepted) = (partition(&slot.installed), partition(&slot.accepted))
        else {
            self.unassigned(slot);
            return;
        };
        let in_sync = self.tables.in_sync(&installed).any(|m| m == me);
        let learner = self.tables.learners(&installed).any(|m| m == me);
        if slot
            .held
            .as_ref()
            .is_some_and(|h| h.lineage != installed.lineage)
        {
            self.depose(slot);
            self.discard(slot);
        }
        if slot
            .lineage
            .replace(installed.lineage)
            .is_some_and(|before| before != installed.lineage)
        {
            self.lost(slot);
        }
        if slot.held.is_none() && (in_sync || learner) {
            // In sync without data: the lineage began with this node, and its primary still has
            // every entry, because none was committed without this copy.
            // Until the next round counts.
            self.memory.holding += 1;
            slot.held = Some(Box::new(Held::empty(
                slot.at,
                installed.lineage,
                &self.tables,
                self.now,
            )));
        }
        if let Some(held) = &mut slot.held {
            held.was_in_sync |= in_sync;
        }
        if in_sync && self.tables.peer_of(installed.primary(), at) == me {
            self.lead(slot, &installed, accepted.as_deref());
        } else {
            if slot.held.as_mut().is_some_and(|h| h.step_down()) {
                self.depose(slot);
            }
            self.follow(slot, &installed, accepted.as_deref(), in_sync || learner);
        }
        if let Some(held) = &mut slot.held
            && renamed
            && let Some(view) = &self.tables.view
        {
            let table = view.installed.clone();
            held.dedup.retain(|id| table.member(id.member()).is_some());
        }
        self.reroute(slot);
        self.advance(slot);
        self.pump(slot);
    }

    /// The partition began empty, as another lineage. Outcomes of the old lineage are lost. A write
    /// that may have been applied there must not be sent again here, because it could not be
    /// recognized as a retry.
    fn lost(&mut self, slot: &mut Slot) {
        slot.calls.unsend();
        let maybe = |c: &Call| {
            c.maybe
                && c.source.peer().is_none()
                && c.work.is_write()
                && !broken(&mutant::ASKS_NEW_LINEAGE)
        };
        let (lost, left) = std::mem::take(&mut slot.calls.parked)
            .into_iter()
            .partition::<Vec<_>, _>(maybe);
        slot.calls.parked = left.into();
        for call in lost {
            self.fail(slot, call.asker(), true);
        }
    }

    /// No table assigns the partition.
    fn unassigned(&mut self, slot: &mut Slot) {
        if slot.held.as_mut().is_some_and(|h| h.step_down()) {
            self.depose(slot);
        }
        if slot.accepted.is_none()
            && let Some(follower) = slot.held.as_mut().and_then(|h| h.follower_mut())
        {
            follower.drop_at.get_or_insert(self.now + DROP_DELAY);
        }
    }

    /// Calls that went to a former primary are parked. Calls of processes that are not members any
    /// more are dropped.
    fn reroute(&mut self, slot: &mut Slot) {
        let at = slot.at;
        if slot
            .calls
            .sent_to
            .is_some_and(|to| slot.primary() != Some(to))
        {
            slot.calls.unsend();
        }
        slot.calls.refusals = 0;
        let calls = slot.calls.parked.iter().chain(&slot.calls.later);
        let gone: BTreeSet<MemberId> = calls
            .filter_map(|c| c.source.peer())
            .filter(|p| !self.may_ask(*p))
            .collect();
        if !gone.is_empty() {
            self.retain_parked(slot, |c| c.source.peer().is_none_or(|p| !gone.contains(&p)));
        }
        if slot.primary() != Some(self.me)
            && slot.accepted.as_ref().is_none_or(|a| a.primary != self.me)
        {
            let parked = std::mem::take(&mut slot.calls.parked);
            for call in parked {
                match call.source {
                    Source::Peer {
                        member, attempt, ..
                    } => {
                        self.callers.outstanding -= 1;
                        self.refuse(at, member, call.n, attempt);
                    }
                    Source::Local(_) => slot.calls.parked.push_back(call),
                }
            }
        }
    }

    /// This node leads by the installed table.
    fn lead(&mut self, slot: &mut Slot, installed: &Arc<Partition>, accepted: Option<&Partition>) {
        let at = slot.at;
        // A table that drops the keyspace ends the tenure like one that names another primary,
        // whether it will be committed or not.
        let same = |a: &Partition| {
            self.tables.peer_of(a.primary(), at) == self.me
                && a.since == installed.since
                && a.lineage == installed.lineage
        };
        let serving = accepted.map_or(broken(&mutant::SERVES_FORMER), same);
        let said = self
            .tables
            .opens
            .get(&at)
            .filter(|(since, _)| *since == installed.since)
            .map(|(_, time)| *time);
        let held_since = slot.held.as_ref().and_then(|h| h.lead()).map(|l| l.since);
        if held_since != Some(installed.since)
            && !(held_since.is_some() && broken(&mutant::KEEPS_TENURE))
        {
            if held_since.is_some() {
                self.depose(slot);
            }
            let opens_at = said.unwrap_or(self.now + self.limits.takeover_wait);
            let Some(held) = &mut slot.held else { return };
            held.role = Role::Primary(Primary::new(
                installed.since,
                opens_at,
                held.log.last(),
                serving,
            ));
            self.timers.wake(at, opens_at);
        }
        let in_sync: BTreeSet<MemberId> = self
            .tables
            .in_sync(installed)
            .filter(|m| *m != self.me)
            .collect();
        let kept = |_: &&MemberId| !broken(&mutant::DROPS_EARLY);
        let required: BTreeSet<MemberId> = accepted
            .into_iter()
            .flat_map(|a| self.tables.in_sync(a))
            .filter(|m| *m != self.me)
            .chain(in_sync.iter().filter(kept).copied())
            .collect();
        let learners: BTreeSet<MemberId> = self.tables.learners(installed).collect();
        let Some(held) = &mut slot.held else { return };
        let moved = held.epoch != installed.epoch;
        held.epoch = installed.epoch;
        let Some(mut leading) = slot.leading() else {
            return;
        };
        leading.lead.serving = serving;
        if let Some(said) = said.filter(|said| !leading.lead.open && *said != leading.lead.opens_at)
        {
            leading.lead.opens_at = said;
            self.timers.wake(at, said);
        }
        leading.link(self, &required, &in_sync, &learners, moved);
    }

    /// Another member leads the partition by the installed table.
    fn follow(
        &mut self,
        slot: &mut Slot,
        installed: &Arc<Partition>,
        accepted: Option<&Partition>,
        holds: bool,
    ) {
        let at = slot.at;
        let soon = accepted.is_some_and(|a| {
            a.replicas
                .iter()
                .any(|r| self.tables.peer_of(r.member, at) == self.me)
        });
        let Some(held) = &mut slot.held else { return };
        let Held {
            role: Role::Follower(follower),
            log,
            epoch,
            ..
        } = &mut **held
        else {
            return;
        };
        if !holds {
            if soon {
                follower.drop_at = None;
            } else {
                follower.drop_at.get_or_insert(self.now + DROP_DELAY);
            }
            return;
        }
        follower.drop_at = (!soon && broken(&mutant::DELETES_BY_PROPOSAL)).then_some(self.now);
        let moved = *epoch != installed.epoch;
        *epoch = installed.epoch;
        let follows = follower
            .follow()
            .is_some_and(|f| f.since == installed.since);
        if moved || !follows {
            // The primary may have sent something that this node refused before it knew of this
            // epoch.
            let session = if follows { follower.session() } else { 0 };
            let next = log.last() + 1;
            self.peers.send(
                self.tables.peer_of(installed.primary(), at),
                Lane::Calls,
                &Frame::Want {
                    at,
                    epoch: installed.epoch,
                    session,
                    next,
                },
            );
            follower.wanted = None;
        }
    }

    /// A tenure of this node is over: none of its calls is answered. Local calls are kept to be
    /// executed again. Calls of peers are refused.
    pub(crate) fn depose(&mut self, slot: &mut Slot) {
        let at = slot.at;
        if let Some(held) = &mut slot.held {
            held.store.end_sums();
        }
        let mut calls: Vec<Call> = Vec::new();
        let mut applied: BTreeMap<MemberId, (u64, u32)> = BTreeMap::new();
        let mut refused = Vec::new();
        for executed in std::mem::take(&mut slot.calls.waiting) {
            let Asker { source, n, .. } = executed.asker;
            if let Source::Peer {
                member, attempt, ..
            } = source
            {
                self.peers.disown(member, &executed.outcome);
                if executed.logged {
                    let entry = applied.entry(member).or_insert((0, attempt));
                    *entry = (entry.0.max(n + 1), attempt);
                }
                refused.push((member, n, attempt));
            }
            calls.extend(executed.into_call(at.keyspace));
        }
        for (member, (n, attempt)) in applied {
            self.refuse(at, member, n, attempt);
        }
        let later = std::mem::take(&mut slot.calls.later);
        for call in std::mem::take(&mut slot.calls.parked)
            .into_iter()
            .chain(later)
        {
            match call.source {
                Source::Peer {
                    member, attempt, ..
                } => refused.push((member, call.n, attempt)),
                Source::Local(_) => calls.push(call),
            }
        }
        for (member, n, attempt) in refused {
            self.callers.outstanding -= 1;
            self.refuse(at, member, n, attempt);
        }
        calls.sort_by_key(|c| c.n);
        note_order(&mut calls);
        slot.calls.parked = calls.into();
    }

    /// Drops the contents of a partition. They are freed in slices.
    pub(crate) fn discard(&mut self, slot: &mut Slot) {
        if let Some(mut held) = slot.held.take() {
            self.memory.bytes = self.memory.bytes.saturating_sub(held.bytes());
            self.drop_contents(&mut held);
        }
    }

    /// Whether a partition that no table assigns to this node may be deleted: after a while,
    /// earlier if memory is short, and not while too few other members have it.
    pub(crate) fn may_discard(&self, slot: &Slot) -> bool {
        let at = slot.at;
        let Some(due) = slot.held.as_ref().and_then(|h| h.follower()?.drop_at) else {
            return false;
        };
        if broken(&mutant::DISCARDS_EARLY) {
            return true;
        }
        if broken(&mutant::DELETES_BY_PROPOSAL) {
            return due <= self.now;
        }
        let short = self.memory_held() as u64 * 100
            >= self.limits.memory_bytes_max as u64 * u64::from(FILLED);
        let soon = due.since(self.now) <= DROP_DELAY - DROP_SOON;
        // While other members lack copies, a table may still give it back. Then only the log must
        // be sent.
        let needed = || {
            let table = self.tables.view.as_ref().map(|view| &view.installed);
            table.is_some_and(|table| {
                table.partition(at).is_some() && !planner::ranges::may_stay(table, at)
            })
        };
        (soon && short) || (due <= self.now && (!needed() || self.now.since(due) > DROP_LATE))
    }
}
