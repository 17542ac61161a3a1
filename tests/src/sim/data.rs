//! What a data thread does around its shard: passes over an inbox, then a release.

use super::process::{ControlInput, DataInput, ProcessId};
use super::schedule::{Event, MS};
use super::world::{World, clip};
use doyen::shard::op::{Action, Failure, Outcome};
use doyen::shard::{Request, Shard};
use doyen_gossip::{Input, Time};
use rand::Rng;

impl World {
    /// Something for the data thread's inbox.
    pub(crate) fn data(&mut self, p: ProcessId, input: DataInput) {
        if self.processes[p].gone {
            return;
        }
        self.processes[p].inbox.push_back(input);
        self.pass_soon(p);
    }

    fn pass_soon(&mut self, p: ProcessId) {
        if !self.processes[p].busy {
            self.processes[p].busy = true;
            let delay = self.rng.random_range(500..10_000);
            self.schedule.after(delay, Event::DataPass(p));
        }
    }

    /// The control thread showed something else: the data thread hears of it a little later, unless a pass comes first.
    pub(crate) fn wake(&mut self, p: ProcessId) {
        let delay = self.rng.random_range(0..self.mix.view_gap);
        self.schedule.after(delay, Event::Data(p, DataInput::Wake));
    }

    pub(crate) fn data_pass(&mut self, p: ProcessId) {
        if self.processes[p].gone {
            return;
        }
        let at = self.schedule.now();
        let now = self.processes[p].clock(at);
        if self.processes[p].generation != self.processes[p].shard_generation {
            self.processes[p].shard_generation = self.processes[p].generation;
            if self.processes[p].me != self.processes[p].shard_me {
                self.fresh_shard(p, now);
            }
            if let Some(view) = self.processes[p].view.clone() {
                self.processes[p].shard.install(now, view);
            }
        }
        let mut batch = self.rng.random_range(1..64);
        while batch > 0
            && let Some(input) = self.processes[p].inbox.pop_front()
        {
            batch -= 1;
            self.data_input(p, now, input);
        }
        let gap = if self.rng.random_bool(0.1) { self.rng.random_range(1_000..=self.mix.pass_gap) } else { 2_000 };
        self.schedule.after(gap, Event::DataRelease(p));
    }

    /// What data.rs does when the process has another identity.
    fn fresh_shard(&mut self, p: ProcessId, now: Time) {
        let (limits, seed) = (self.limits(), self.rng.random());
        let process = &mut self.processes[p];
        self.caught_up += process.shard.stats().caught_up;
        self.expired += process.shard.stats().expired;
        process.shard_me = process.me;
        process.shard = Shard::new(process.me, limits, seed, now);
        process.buffers.clear();
        process.shard_links.clear();
        process.data_tick_at = None;
        let read = std::mem::take(&mut process.read).into_iter().map(|(asked, ..)| asked);
        for (client, serial) in std::mem::take(&mut process.tokens).into_values().chain(read) {
            self.client_answer(client, serial, &Outcome::Failed(Failure::Unknown));
        }
    }

    fn data_input(&mut self, p: ProcessId, now: Time, input: DataInput) {
        let unix_ms = self.processes[p].unix_ms(self.schedule.now());
        let process = &mut self.processes[p];
        match input {
            DataInput::Wake => {}
            DataInput::Tick => process.shard.tick(now),
            DataInput::Connected(peer, id) => {
                if process.links.get(&peer) == Some(&id) {
                    process.buffers.retain(|(of, _), _| *of != peer);
                    process.shard_links.insert(peer, id);
                    process.shard.connected(now, peer);
                }
            }
            DataInput::Disconnected(peer, id) => {
                if process.shard_links.get(&peer) == Some(&id) {
                    process.buffers.retain(|(of, _), _| *of != peer);
                    process.shard_links.remove(&peer);
                    process.shard.disconnected(now, peer);
                }
            }
            DataInput::Drained(peer, id) => {
                if process.shard_links.get(&peer) == Some(&id) {
                    process.shard.congested(now, peer, false);
                }
            }
            DataInput::Bytes(peer, id, lane, bytes) => {
                if process.shard_links.get(&peer) != Some(&id) {
                    return;
                }
                let buffer = process.buffers.entry((peer, lane)).or_default();
                buffer.extend_from_slice(&bytes);
                loop {
                    match process.shard.receive(now, unix_ms, peer, lane, buffer) {
                        Ok(false) => break,
                        Ok(true) => {}
                        Err(malformed) => return self.broken(format!("p{p}: bytes of {peer}: {malformed}")),
                    }
                }
            }
            DataInput::Submit(client, serial, operation) => {
                if operation.action == Action::Get
                    && let Some((n, value)) = process.shard.read(now, operation.keyspace, operation.map, &operation.key)
                {
                    let outcome = value.map_or(Outcome::Nil, |value| Outcome::Bulk(value.into()));
                    process.read.push(((client, serial), n, operation, outcome));
                    return;
                }
                let token = process.next_token;
                process.next_token += 1;
                process.tokens.insert(token, (client, serial));
                if let Some(value) = operation.action.as_set()
                    && process.shard.set(now, operation.keyspace, operation.map, (&operation.key, value), || token)
                {
                    self.set_at_once += 1;
                    return;
                }
                process.shard.submit(now, unix_ms, token, operation);
            }
            DataInput::Forget(client, serial) => {
                let token = process.tokens.iter().find(|(_, of)| **of == (client, serial)).map(|(token, _)| *token);
                if let Some(token) = token {
                    process.tokens.remove(&token);
                    process.shard.forget(token);
                }
            }
            DataInput::Used(of) => {
                if of == process.shard_me {
                    process.shard.used(now);
                }
            }
        }
    }

    pub(crate) fn data_release(&mut self, p: ProcessId) {
        if self.processes[p].gone {
            return;
        }
        let now = self.processes[p].clock(self.schedule.now());
        let process = &mut self.processes[p];
        let current = process.generation == process.shard_generation;
        let well = Shard::may_answer(now, process.lease, current);
        for (asked, n, operation, outcome) in std::mem::take(&mut process.read) {
            if well {
                self.read_at_once += 1;
                self.client_answer(asked.0, asked.1, &outcome);
            } else {
                let process = &mut self.processes[p];
                let token = process.next_token;
                process.next_token += 1;
                process.tokens.insert(token, asked);
                process.shard.keep(token, n, operation, outcome);
                self.reads_again += 1;
            }
        }
        let process = &mut self.processes[p];
        process.shard.release(now, process.lease, current);
        while let Some((token, outcome)) = self.processes[p].shard.poll_outcome() {
            if let Some((client, serial)) = self.processes[p].tokens.remove(&token) {
                self.client_answer(client, serial, &outcome);
            }
        }
        while let Some((peer, lane, bytes)) = self.processes[p].shard.poll_transmit() {
            self.trace.bytes(&bytes);
            self.transmit(p, peer, lane, &bytes);
        }
        while let Some(request) = self.processes[p].shard.poll_request() {
            self.request(p, request);
        }
        if let Err(what) = self.oracle.logs.look(&self.processes, p, current && now <= self.processes[p].lease) {
            self.broken(format!("p{p}: {what}"));
        }
        let process = &self.processes[p];
        if process.shard_me == process.me {
            let held = process.shard.inspect().map(|i| (i.at, i.lineage)).collect();
            let cluster = process.view.as_ref().map(|v| v.installed.cluster);
            if let Err(what) = self.oracle.holds(process.me, cluster, held) {
                self.broken(format!("p{p}: {what}"));
            }
        }
        let process = &mut self.processes[p];
        process.busy = false;
        if !process.inbox.is_empty() || process.generation != process.shard_generation {
            self.pass_soon(p);
        }
        let process = &self.processes[p];
        if let Some(due) = process.shard.poll_timeout() {
            let at = process.when(due).max(self.schedule.now() + 5_000);
            if process.data_tick_at.is_none_or(|set| at < set) {
                self.processes[p].data_tick_at = Some(at);
                self.schedule.at(at, Event::DataTick(p));
            }
        }
    }

    fn request(&mut self, p: ProcessId, request: Request) {
        self.trace.line(self.schedule.now(), || format!("p{p} asks {}", clip(&format!("{request:?}"))));
        match request {
            Request::Opened(opened) => self.upcall(p, |_| Input::Opened(opened)),
            Request::InSync(changes) => {
                self.oracle.asked(&changes);
                self.upcall(p, |_| Input::InSync(changes));
            }
            Request::Newer(name) => self.upcall(p, |_| Input::Pull(name)),
            Request::Used => {
                let me = self.processes[p].shard_me;
                let delay = self.rng.random_range(1_000..MS);
                self.schedule.after(delay, Event::Control(p, ControlInput::Used(me)));
            }
            // All processes here are members.
            Request::MakeMap { .. } | Request::MapMade { .. } | Request::Table(_) | Request::OtherCluster(_) => {
                self.broken(format!("p{p} asks what only clients and their hosts do"));
            }
        }
    }
}
