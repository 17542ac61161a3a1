//! Which process is meant by an id or an address, and what processes learn of each other before
//! they talk. A process with a directory has two ids for a while, and perhaps another address than
//! its predecessor (rule 14).

use super::process::{ControlInput, Greeting, ProcessId};
use super::schedule::{Event, Nanos};
use super::world::World;
use doyen_gossip::Input;
use doyen_gossip::Time;
use doyen_gossip::agreement::Peer;
use doyen_placement::MemberId;
use std::net::SocketAddr;

impl World {
    /// The slot in which a peer runs, and its process.
    pub(crate) fn route(&self, p: ProcessId, to: Peer) -> Option<(usize, Option<ProcessId>)> {
        let running = |slot: usize| self.slots.get(slot).map(|s| (slot, s.process));
        match to {
            Peer::Address(address) => {
                let slot = self.slot_at(address)?;
                running(slot)
            }
            Peer::Member(id) if !self.mix.directories => running(*self.slot_of.get(&id)?),
            Peer::Member(id) => match self.speaker(p, id) {
                Some(there) => Some((self.processes[there].slot, Some(there))),
                None => running(*self.slot_of.get(&id)?).filter(|(_, there)| there.is_none()),
            },
        }
    }

    /// The process that speaks in this name, if this one reaches it: over a connection, or at the
    /// address in its table.
    fn speaker(&self, p: ProcessId, id: MemberId) -> Option<ProcessId> {
        let mut speakers = self.slots.iter().filter_map(|s| s.process);
        let there = speakers.find(|q| self.processes[*q].voice() == id)?;
        let address = self.control_address(self.processes[there].slot);
        let of_tables = || {
            let views = self.processes[p].view.iter();
            let mut members = views
                .flat_map(|v| [&v.installed, &v.accepted])
                .filter_map(|t| t.member(id));
            members.any(|m| m.addresses.control == address)
        };
        let reached = p == there || self.processes[p].linked.contains(&there) || of_tables();
        reached.then_some(there)
    }

    /// A process learns which one is at an address.
    pub(crate) fn identified(
        &mut self,
        p: ProcessId,
        there: ProcessId,
        address: SocketAddr,
        after: Nanos,
    ) {
        let (me, id) = (self.processes[p].me, self.processes[there].voice());
        let identified = Input::Identified { address, id };
        let input = if self.mix.directories && there != p {
            let greeting = self.processes[there].greeting(there);
            ControlInput::Said(self.processes[p].voice(), greeting, Box::new(identified))
        } else {
            ControlInput::Of(me, identified)
        };
        self.schedule.after(after, Event::Control(p, input));
    }

    /// Whether a process takes the hello of another one. A directory has one process at a time, so
    /// the last one of each is always taken.
    pub(crate) fn meets(&mut self, p: ProcessId, greeting: Greeting) -> bool {
        if !self.mix.directories {
            return true;
        }
        let by = &self.processes[greeting.by];
        let present = !by.gone && by.me == greeting.process && by.voice() == greeting.id;
        let doubled = greeting.id == self.processes[p].voice() && greeting.by != p;
        let taken = |start| self.processes[p].starts.meet(greeting.key, start);
        if doubled || !greeting.start.is_none_or(taken) {
            if present {
                self.broken(format!(
                    "rule 14: p{p} refuses p{}, which is the last process of its directory",
                    greeting.by
                ));
            }
            return false;
        }
        if present {
            self.processes[p].linked.insert(greeting.by);
            self.processes[greeting.by].linked.insert(p);
        }
        true
    }

    /// The connections of a process end, because it has another name.
    pub(crate) fn unlink(&mut self, p: ProcessId) {
        for process in &mut self.processes {
            process.linked.remove(&p);
        }
        self.processes[p].linked.clear();
    }

    /// A table has a process in the place of the member for which it spoke.
    pub(crate) fn renamed(&mut self, p: ProcessId) {
        self.tell(|w| format!("{} has the place of its predecessor", w.name(p)));
        self.processes[p].lease = Time::ZERO;
        self.unlink(p);
    }
}
