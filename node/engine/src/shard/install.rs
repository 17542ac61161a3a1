//! New tables: each partition gets its assignment, and begins or ends what follows from it.

use crate::command::operation::Work;
use crate::role::calls::Executed;
use crate::role::partition::Slot;
use crate::role::threads::{self, Threads};
use crate::role::timers::Duty;
use crate::shard::machine::Shard;
use crate::wire::api::{Lane, Token};
use crate::wire::frame::Frame;
use crate::wire::visit;
use doyen_gossip::Time;
use doyen_gossip::agreement::View;
use doyen_placement::{PartitionRef, Reshape, Table, planner};
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Shard {
    /// Installs new tables.
    pub fn install(&mut self, now: Time, view: View) {
        self.cx.now = now;
        // Calls that wait for `release` are checked again under the new tables.
        for (at, executed) in self
            .cx
            .callers
            .ready
            .take(&mut self.cx.timers)
            .into_iter()
            .rev()
        {
            if let Some(slot) = self.slots.get_mut(at) {
                slot.calls.waiting.push_front(executed);
            }
        }
        let name = match (&self.cx.tables.view, self.cx.tables.name) {
            // To compute the name takes reading the whole table.
            (Some(former), Some(name)) if Arc::ptr_eq(&former.installed, &view.installed) => name,
            _ => view.installed.name(),
        };
        let renamed = self.cx.tables.name != Some(name);
        self.cx.tables.name = Some(name);
        self.cx.used |= view.installed.members.len() > 1;
        let threads = view
            .installed
            .member(self.cx.me.member())
            .map_or(1, |m| m.addresses.threads());
        self.cx
            .copying
            .pace
            .set(view.installed.settings.balancing.rate, threads);
        self.cx.tables.opens = view
            .opens_at
            .iter()
            .map(|(at, since, time)| (*at, (*since, *time)))
            .collect();
        let former = self.cx.tables.view.replace(view.clone());
        if let Some(former) = &former {
            self.mark_recovery(former, &view);
        }
        if former.is_none() {
            self.cx.timers.set(Duty::Round, now);
            self.cx.timers.set(Duty::Retire, now + visit::RETENTION);
        }
        self.cx.pulling.installed();
        self.cx
            .tables
            .published
            .install(name, &view.installed, self.cx.peers.has_clients());
        if self.cx.bounds.install(&view.installed) {
            self.cx.timers.want(Duty::Bound);
        }
        self.cx.tables.leaving = planner::leaving(&view.installed);
        self.cx.tables.threads = Threads::of(&[&view.installed, &view.accepted]);
        if renamed && !self.cx.me.is_client() {
            for id in self
                .cx
                .peers
                .ids()
                .into_iter()
                .filter(|id| threads::tells_tables(self.cx.me, *id))
            {
                self.cx.peers.send(id, Lane::Calls, &Frame::View(name));
            }
        }
        // Most tables change few partitions. An unchanged partition among the same members has
        // nothing to do.
        let anew = former.is_none_or(|former| !has_same_members(&former, &view));
        for keyspace in view
            .installed
            .keyspaces
            .iter()
            .chain(&view.accepted.keyspaces)
        {
            for partition in &keyspace.partitions {
                self.slots.get_or_insert(PartitionRef {
                    keyspace: keyspace.id,
                    partition: partition.id,
                });
            }
        }
        let mut still = BTreeSet::new();
        for keyspace in &view.installed.keyspaces {
            let reshaped = keyspace
                .reshaping
                .under_way
                .iter()
                .flat_map(Reshape::partitions);
            still.extend(reshaped.map(|partition| PartitionRef {
                keyspace: keyspace.id,
                partition,
            }));
        }
        let assign = |slot: &mut Slot| {
            slot.assign(
                &view,
                still.contains(&slot.at),
                &self.cx.tables.threads,
                anew,
            )
            .then_some(slot.at)
        };
        let mut as_before = self
            .slots
            .iter_mut()
            .filter_map(assign)
            .collect::<Vec<_>>()
            .into_iter()
            .peekable();
        self.reshape();
        self.look_for_repairs();
        for slot in self.slots.iter_mut() {
            let at = slot.at;
            // Both lists are in order. New partitions stand between the others.
            let as_before = as_before.next_if_eq(&at).is_some();
            let opens = self.cx.tables.opens.contains_key(&at) && !slot.is_open();
            if !as_before || opens || !slot.calls.is_empty() {
                self.cx.turn(slot, renamed);
                self.cx.notice(slot);
            }
        }
        self.slots.prune(|id| {
            view.installed
                .keyspace(id)
                .or(view.accepted.keyspace(id))
                .is_none()
        });
        for (at, (from, opening)) in std::mem::take(&mut self.cx.copying.early) {
            if let Some(slot) = self.slots.get_mut(at) {
                self.cx.begin_sink(slot, from, opening);
            }
        }
        self.follow_tables();
        self.follow_up();
        self.cx.memory.holding = self.slots.iter().filter(|s| s.held.is_some()).count();
        if let Some(view) = &self.cx.tables.view {
            self.cx
                .peers
                .retain_silent(|id| view.installed.member(id.member()).is_some());
        }
    }

    /// This cluster of one is marked used: the answer to `Request::Used`.
    pub fn used(&mut self, now: Time) {
        self.cx.now = now;
        self.cx.used = true;
        self.pump_all();
    }

    /// Ends this machine, and returns the calls of local callers that are not answered. Each comes
    /// with whether a later write on the same key may have overtaken it (`poll_overtaken`).
    ///
    /// `heir` is the machine that takes the place of this one, under a new member id. It takes over
    /// the memory of this machine and frees it in slices, because that takes long if it is large.
    pub fn into_calls(mut self, heir: &mut Self) -> impl Iterator<Item = (Token, Work, bool)> {
        self.slots.iter_mut().for_each(|slot| self.cx.discard(slot));
        let garbage = std::mem::take(&mut self.cx.memory.garbage);
        heir.cx.memory.garbage.inherit(garbage, &mut heir.cx.timers);
        let mut ready: BTreeMap<PartitionRef, Vec<Executed>> = BTreeMap::new();
        self.cx
            .callers
            .ready
            .take(&mut self.cx.timers)
            .into_iter()
            .for_each(|(at, executed)| ready.entry(at).or_default().push(executed));
        let calls = self.slots.into_iter().flat_map(move |slot| {
            let ready = ready.remove(&slot.at).unwrap_or_default();
            slot.calls.into_all(ready, slot.at.keyspace)
        });
        calls.filter_map(|c| {
            let overtaken = c.before().is_some();
            Some((c.source.token()?, c.work, overtaken))
        })
    }
}

/// Whether the members and their states are the same as in the former tables.
fn has_same_members(former: &View, view: &View) -> bool {
    let same =
        |then: &Table, now: &Table| then.cluster == now.cluster && then.members == now.members;
    same(&former.installed, &view.installed) && same(&former.accepted, &view.accepted)
}
