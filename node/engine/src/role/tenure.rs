//! What the tables make of a partition at this node: its role begins or ends, and its calls stay,
//! go elsewhere, or are refused.

use super::partition::{Held, Slot};
use super::replication::Primary;
use crate::mutant::{self, broken};
use crate::role::calls::{CallOrigin, CallSource, PendingCall, note_order};
use crate::role::holding::PartitionRole;
use crate::role::host::Host;
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

impl Slot {
    /// No table assigns the partition.
    pub(crate) fn unassigned(&mut self, host: &mut Host) {
        if self.held.as_mut().is_some_and(|h| h.step_down()) {
            self.depose(host);
        }
        if self.accepted.is_none()
            && let Some(follower) = self.held.as_mut().and_then(|h| h.follower_mut())
        {
            follower.drop_at.get_or_insert(host.now + DROP_DELAY);
        }
    }

    /// This node leads by the installed table.
    pub(crate) fn lead(
        &mut self,
        host: &mut Host,
        installed: &Arc<Partition>,
        accepted: Option<&Partition>,
    ) {
        let at = self.at;
        // A table that drops the keyspace ends the tenure like one that names another primary,
        // whether it will be committed or not.
        let same = |a: &Partition| {
            host.tables.peer_of(a.primary(), at) == host.me
                && a.since == installed.since
                && a.lineage == installed.lineage
        };
        let serving = accepted.map_or(broken(&mutant::SERVES_FORMER), same);
        let said = host
            .tables
            .opens
            .get(&at)
            .filter(|(since, _)| *since == installed.since)
            .map(|(_, time)| *time);
        let held_since = self.held.as_ref().and_then(|h| h.lead()).map(|l| l.since);
        if held_since != Some(installed.since)
            && !(held_since.is_some() && broken(&mutant::KEEPS_TENURE))
        {
            if held_since.is_some() {
                self.depose(host);
            }
            let opens_at = said.unwrap_or(host.now + host.limits.takeover_wait);
            let Some(held) = &mut self.held else { return };
            held.role = PartitionRole::Primary(Primary::new(
                installed.since,
                opens_at,
                held.log.last(),
                serving,
            ));
            host.timers.wake(at, opens_at);
        }
        let in_sync: BTreeSet<MemberId> = host
            .tables
            .in_sync(installed)
            .filter(|m| *m != host.me)
            .collect();
        let kept = |_: &&MemberId| !broken(&mutant::DROPS_EARLY);
        let required: BTreeSet<MemberId> = accepted
            .into_iter()
            .flat_map(|a| host.tables.in_sync(a))
            .filter(|m| *m != host.me)
            .chain(in_sync.iter().filter(kept).copied())
            .collect();
        let learners: BTreeSet<MemberId> = host.tables.learners(installed).collect();
        let Some(held) = &mut self.held else { return };
        let moved = held.epoch != installed.epoch;
        held.epoch = installed.epoch;
        let Some(mut leading) = self.leading() else {
            return;
        };
        leading.lead.serving = serving;
        if let Some(said) = said.filter(|said| !leading.lead.open && *said != leading.lead.opens_at)
        {
            leading.lead.opens_at = said;
            host.timers.wake(at, said);
        }
        leading.link(host, &required, &in_sync, &learners, moved);
    }

    /// Another member leads the partition by the installed table.
    pub(crate) fn follow(
        &mut self,
        host: &mut Host,
        installed: &Arc<Partition>,
        accepted: Option<&Partition>,
        holds: bool,
    ) {
        let at = self.at;
        let soon = accepted.is_some_and(|a| {
            a.replicas
                .iter()
                .any(|r| host.tables.peer_of(r.member, at) == host.me)
        });
        let Some(held) = &mut self.held else { return };
        let Held {
            role: PartitionRole::Follower(follower),
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
                follower.drop_at.get_or_insert(host.now + DROP_DELAY);
            }
            return;
        }
        follower.drop_at = (!soon && broken(&mutant::DELETES_BY_PROPOSAL)).then_some(host.now);
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
            let primary = host.tables.peer_of(installed.primary(), at);
            let want = Frame::Want {
                at,
                epoch: installed.epoch,
                session,
                next,
            };
            host.peers.tell(primary, &want);
            follower.wanted = None;
        }
    }

    /// A tenure of this node is over: none of its calls is answered. Local calls are kept to be
    /// executed again. Calls of peers are refused.
    pub(crate) fn depose(&mut self, host: &mut Host) {
        let at = self.at;
        if let Some(held) = &mut self.held {
            held.store.sums.clear();
        }
        for name in host.waiting.end(at) {
            host.turn_away(at, name);
        }
        let mut calls: Vec<PendingCall> = Vec::new();
        let mut applied: BTreeMap<MemberId, (u64, u32)> = BTreeMap::new();
        let mut refused = Vec::new();
        for executed in std::mem::take(&mut self.calls.waiting) {
            let CallOrigin { source, n, .. } = executed.asker;
            if executed.is_of_ticket() {
                host.void_executed(at, &executed);
                continue;
            }
            if let CallSource::Peer {
                member, attempt, ..
            } = source
            {
                host.peers.disown(member, &executed.outcome);
                if executed.logged {
                    let entry = applied.entry(member).or_insert((0, attempt));
                    *entry = (entry.0.max(n + 1), attempt);
                }
                refused.push((member, n, attempt));
            }
            calls.extend(executed.into_call(at.keyspace));
        }
        for (member, (n, attempt)) in applied {
            host.refuse(at, member, n, attempt);
        }
        let later = std::mem::take(&mut self.calls.later);
        for call in std::mem::take(&mut self.calls.parked)
            .into_iter()
            .chain(later)
        {
            match call.source {
                CallSource::Peer {
                    member, attempt, ..
                } => refused.push((member, call.n, attempt)),
                CallSource::Local(_) | CallSource::Waiter { .. } => calls.push(call),
            }
        }
        for (member, n, attempt) in refused {
            host.callers.outstanding -= 1;
            host.refuse(at, member, n, attempt);
        }
        calls.sort_by_key(|c| c.n);
        note_order(&mut calls);
        self.calls.parked = calls.into();
    }

    /// Drops the contents of a partition. They are freed in slices.
    pub(crate) fn discard(&mut self, host: &mut Host) {
        if let Some(mut held) = self.held.take() {
            host.disk.drop_log((held.at, held.lineage), &mut held.log);
            host.memory.bytes = host.memory.bytes.saturating_sub(held.bytes());
            held.drop_contents(host);
        }
    }

    /// Whether a partition that no table assigns to this node may be deleted: after a while,
    /// earlier if memory is short, and not while too few other members have it.
    pub(crate) fn may_discard(&self, host: &Host) -> bool {
        let at = self.at;
        let Some(due) = self.held.as_ref().and_then(|h| h.follower()?.drop_at) else {
            return false;
        };
        if broken(&mutant::DISCARDS_EARLY) {
            return true;
        }
        if broken(&mutant::DELETES_BY_PROPOSAL) {
            return due <= host.now;
        }
        if !host.tables.name_member(host.me.member()) {
            // It has them from its disk, and gets the place of the process before.
            return false;
        }
        let short = host.memory_held() as u64 * 100
            >= host.limits.memory_bytes_max as u64 * u64::from(FILLED);
        let soon = due.since(host.now) <= DROP_DELAY - DROP_SOON;
        // While other members lack copies, a table may still give it back. Then only the log must
        // be sent.
        let needed = || {
            let table = host.tables.view.as_ref().map(|view| &view.installed);
            table.is_some_and(|table| {
                table.partition(at).is_some() && !planner::ranges::may_stay(table, at)
            })
        };
        (soon && short) || (due <= host.now && (!needed() || host.now.since(due) > DROP_LATE))
    }
}

impl Held {
    /// Drops all contents. They are freed in slices.
    pub(crate) fn drop_contents(&mut self, host: &mut Host) {
        host.memory
            .garbage
            .collect(&mut host.timers, |maps| maps.append(&mut self.store.take()));
        host.memory
            .garbage
            .add(std::mem::take(&mut self.log), &mut host.timers);
    }
}
