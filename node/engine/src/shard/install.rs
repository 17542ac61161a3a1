//! New tables: each partition gets its assignment, and begins or ends what follows from it.

use super::context::ShardContext;
use crate::mutant::{self, broken};
use crate::role::calls::{CallSource, Executed, PendingCall};
use crate::role::host::Host;
use crate::role::partition::{Assigned, Held, Slot};
use crate::role::threads::{self, MemberThreads};
use crate::role::timers::Duty;
use crate::shard::machine::Shard;
use crate::wire::api::{CallToken, OpenCaller};
use crate::wire::frame::Frame;
use crate::wire::visit;
use doyen_gossip::Time;
use doyen_gossip::agreement::View;
use doyen_placement::{MemberId, PartitionRef, Reshape, Table, planner};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Shard {
    /// Installs new tables.
    pub fn install(&mut self, now: Time, view: View) {
        let host = &mut self.cx.host;
        host.now = now;
        // Calls that wait for `release` are checked again under the new tables.
        let executed = host.callers.ready.take(&mut host.timers);
        for (at, executed) in executed.into_iter().rev() {
            if let Some(slot) = self.slots.get_mut(at) {
                slot.calls.waiting.push_front(executed);
            }
        }
        let (former, renamed) = self.cx.take_view(&view);
        let host = &mut self.cx.host;
        match &former {
            Some(former) => self.slots.mark_recovery(host, (former, &view), now),
            None => {
                host.timers.set(Duty::Round, now);
                host.timers.set(Duty::Retire, now + visit::RETENTION);
            }
        }
        // Most tables change few partitions. An unchanged partition among the same members has
        // nothing to do.
        let anew = former.is_none_or(|former| !has_same_members(&former, &view));
        let keyspaces = view.installed.keyspaces.iter();
        for keyspace in keyspaces.chain(&view.accepted.keyspaces) {
            for partition in &keyspace.partitions {
                self.slots
                    .get_or_insert(PartitionRef::new(keyspace.id, partition.id));
            }
        }
        let frozen = frozen_partitions(&view.installed);
        let threads = &host.tables.threads;
        let assign = |slot: &mut Slot| {
            let as_before = slot.assign(&view, frozen.contains(&slot.at), threads, anew);
            as_before.then_some(slot.at)
        };
        let as_before: Vec<_> = self.slots.iter_mut().filter_map(assign).collect();
        let mut as_before = as_before.into_iter().peekable();
        self.slots.reshape(host);
        self.slots.look_for_repairs(host);
        for slot in self.slots.iter_mut() {
            let at = slot.at;
            // Both lists are in order. New partitions stand between the others.
            let as_before = as_before.next_if_eq(&at).is_some();
            let opens = self.cx.host.tables.opens.contains_key(&at) && !slot.is_open();
            if !as_before || opens || !slot.calls.is_empty() {
                self.cx.turn(slot, renamed);
                self.cx.host.notice(slot);
            }
        }
        self.slots.prune(|id| {
            view.installed
                .keyspace(id)
                .or(view.accepted.keyspace(id))
                .is_none()
        });
        for (at, (from, opening)) in std::mem::take(&mut self.cx.host.copying.early) {
            if let Some(slot) = self.slots.get_mut(at) {
                slot.begin_sink(&mut self.cx.host, from, opening);
            }
        }
        self.subscriber().follow_tables();
        self.slots.ask_where_it_is(&mut self.cx.host);
        self.subscriber().follow_up();
        let host = &mut self.cx.host;
        host.memory.holding = self.slots.iter().filter(|s| s.held.is_some()).count();
        if let Some(view) = &host.tables.view {
            let silent = &mut host.peers.silent;
            silent.retain(|id| view.installed.member(id.member()).is_some());
        }
    }

    /// This cluster of one is marked used: the answer to `ShardRequest::Used`.
    pub fn used(&mut self, now: Time) {
        self.cx.host.now = now;
        self.cx.host.used = true;
        self.pump_all();
    }

    /// Ends this machine, and returns what its callers have no answer to.
    ///
    /// `heir` is the machine that takes the place of this one, under a new member id. It takes over
    /// the callers that wait in line. It also takes over the memory of this machine and frees it in
    /// slices, because that takes long if it is large.
    pub fn into_calls(mut self, heir: &mut Self) -> impl Iterator<Item = OpenCaller> {
        let (host, heir) = (&mut self.cx.host, &mut heir.cx.host);
        let tickets = std::mem::take(&mut host.tickets);
        let in_line: Vec<CallToken> = tickets.tokens().collect();
        let callers = &mut heir.callers;
        let number = || callers.number();
        heir.tickets.inherit(tickets, number);
        heir.set_wait_timer();
        self.slots.iter_mut().for_each(|slot| slot.discard(host));
        let garbage = std::mem::take(&mut host.memory.garbage);
        heir.memory.garbage.inherit(garbage, &mut heir.timers);
        let mut ready: BTreeMap<PartitionRef, Vec<Executed>> = BTreeMap::new();
        for (at, executed) in host.callers.ready.take(&mut host.timers) {
            ready.entry(at).or_default().push(executed);
        }
        let calls = self.slots.into_iter().flat_map(move |slot| {
            let ready = ready.remove(&slot.at).unwrap_or_default();
            slot.calls.into_all(ready, slot.at.keyspace)
        });
        let calls = calls.filter_map(|c| {
            let overtaken = c.before().is_some();
            Some(OpenCaller::Call(c.source.token()?, c.work, overtaken))
        });
        calls.chain(in_line.into_iter().map(OpenCaller::InLine))
    }
}

/// Whether the members and their states are the same as in the former tables.
fn has_same_members(former: &View, view: &View) -> bool {
    let same =
        |then: &Table, now: &Table| then.cluster == now.cluster && then.members == now.members;
    same(&former.installed, &view.installed) && same(&former.accepted, &view.accepted)
}

/// The partitions that are split or merged, and must not change meanwhile.
fn frozen_partitions(installed: &Table) -> BTreeSet<PartitionRef> {
    let mut frozen = BTreeSet::new();
    for keyspace in &installed.keyspaces {
        let reshaped = keyspace
            .reshaping
            .under_way
            .iter()
            .flat_map(Reshape::partitions);
        frozen.extend(reshaped.map(|partition| PartitionRef::new(keyspace.id, partition)));
    }
    frozen
}

impl ShardContext {
    /// Takes a view. Returns the former one, and whether the table has another name now.
    fn take_view(&mut self, view: &View) -> (Option<View>, bool) {
        self.pulling.installed();
        let Host {
            me, tables, peers, ..
        } = &mut self.host;
        let installed = &view.installed;
        let name = match (&tables.view, tables.name) {
            // To compute the name takes reading the whole table.
            (Some(former), Some(name)) if Arc::ptr_eq(&former.installed, installed) => name,
            _ => installed.name(),
        };
        let renamed = tables.name.replace(name) != Some(name);
        let opens = view.opens_at.iter();
        tables.opens = opens
            .map(|(at, since, time)| (*at, (*since, *time)))
            .collect();
        let former = tables.view.replace(view.clone());
        tables
            .published
            .install(name, installed, peers.has_clients());
        tables.leaving = planner::leaving(installed);
        tables.threads = MemberThreads::of(&[installed, &view.accepted]);
        if renamed && !me.is_client() {
            let told = peers.ids().into_iter();
            for id in told.filter(|id| threads::tells_tables(*me, *id)) {
                peers.tell(id, &Frame::View(name));
            }
        }
        self.host.used |= installed.members.len() > 1;
        let own = installed.member(self.host.me.member());
        let threads = own.map_or(1, |m| m.addresses.threads());
        let rate = installed.settings.balancing.rate;
        self.host.copying.rate.set(rate, threads);
        if self.host.bounds.install(installed) {
            self.host.timers.want(Duty::Bound);
        }
        (former, renamed)
    }

    /// Acts on the tables' assignment of one partition.
    pub(crate) fn turn(&mut self, slot: &mut Slot, renamed: bool) {
        let at = slot.at;
        let me = self.host.me;
        let partition = |a: &Option<Assigned>| a.as_ref().map(|a| a.partition.clone());
        let (Some(installed), accepted) = (partition(&slot.installed), partition(&slot.accepted))
        else {
            slot.unassigned(&mut self.host);
            return;
        };
        let in_sync = self.host.tables.in_sync(&installed).any(|m| m == me);
        let learner = self.host.tables.learners(&installed).any(|m| m == me);
        // What was read from a disk may be of a later table than the one that was on it.
        if slot
            .held
            .as_ref()
            .is_some_and(|h| h.lineage < installed.lineage)
        {
            slot.depose(&mut self.host);
            slot.discard(&mut self.host);
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
            self.host.memory.holding += 1;
            slot.held = Some(Box::new(Held::empty(
                slot.at,
                installed.lineage,
                &self.host.tables,
                self.host.now,
            )));
        }
        if let Some(held) = &mut slot.held {
            held.was_in_sync |= in_sync;
        }
        if in_sync && self.host.tables.peer_of(installed.primary(), at) == me {
            slot.lead(&mut self.host, &installed, accepted.as_deref());
        } else {
            if slot.held.as_mut().is_some_and(|h| h.step_down()) {
                slot.depose(&mut self.host);
            }
            slot.follow(
                &mut self.host,
                &installed,
                accepted.as_deref(),
                in_sync || learner,
            );
        }
        if let Some(held) = &mut slot.held
            && renamed
            && let Some(view) = &self.host.tables.view
        {
            let table = view.installed.clone();
            held.dedup.retain(|id| table.member(id.member()).is_some());
        }
        slot.keep_on_disk(&mut self.host);
        self.reroute(slot);
        slot.advance(&mut self.host);
        self.pump(slot);
    }

    /// The partition began empty, as another lineage. Outcomes of the old lineage are lost. A write
    /// that may have been applied there must not be sent again here, because it could not be
    /// recognized as a retry.
    pub(crate) fn lost(&mut self, slot: &mut Slot) {
        slot.calls.unsend();
        let maybe = |c: &PendingCall| {
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

    /// Calls that went to a former primary are parked. Calls of processes that are not members any
    /// more are dropped.
    pub(crate) fn reroute(&mut self, slot: &mut Slot) {
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
        if slot.primary() != Some(self.host.me)
            && slot
                .accepted
                .as_ref()
                .is_none_or(|a| a.primary != self.host.me)
        {
            let parked = std::mem::take(&mut slot.calls.parked);
            for call in parked {
                match call.source {
                    CallSource::Peer {
                        member, attempt, ..
                    } => {
                        self.host.callers.outstanding -= 1;
                        self.host.refuse(at, member, call.n, attempt);
                    }
                    CallSource::Local(_) | CallSource::Waiter { .. } => {
                        slot.calls.parked.push_back(call)
                    }
                }
            }
        }
    }
}
