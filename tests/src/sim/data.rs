//! The work of a data thread around its shard: passes over an inbox, then a release.

use super::fault;
use super::network::CONGESTED_BYTES;
use super::process::{ControlInput, DataInput, ProcessId, ThreadId};
use super::schedule::{Event, MS};
use super::world::{World, clip};
use crate::mutants;
use bytes::{Bytes, BytesMut};
use doyen::net::links::LinkHandler;
use doyen_engine::op::{Action, Failure, Outcome, Work};
use doyen_engine::{CallToken, Lane, Malformed, OpenCaller, Patience, Shard, ShardRequest};
use doyen_gossip::{Input, Time};
use doyen_placement::MemberId;
use doyen_placement::level::LEVELS;
use doyen_placement::mutant::broken;
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Gives the shard what other data threads of the process left in its mailboxes.
struct Siblings<'a> {
    shard: &'a mut Shard,
    now: Time,
    unix_ms: u64,
    malformed: Option<Malformed>,
}

impl LinkHandler for Siblings<'_> {
    fn connected(&mut self, peer: MemberId, version: u16) {
        self.shard.connected(self.now, peer, version);
    }

    fn disconnected(&mut self, peer: MemberId) {
        self.shard.disconnected(self.now, peer);
    }

    fn received(
        &mut self,
        peer: MemberId,
        lane: Lane,
        bytes: &mut BytesMut,
    ) -> Result<bool, Malformed> {
        let result = self
            .shard
            .receive(self.now, self.unix_ms, peer, lane, bytes);
        self.malformed = result.as_ref().err().cloned().or(self.malformed.take());
        result
    }

    fn drained(&mut self, peer: MemberId) {
        self.shard.congested(self.now, peer, false);
    }
}

impl World {
    /// Something for a data thread's inbox.
    pub(crate) fn data(&mut self, (p, t): ThreadId, input: DataInput) {
        if self.processes[p].gone {
            return;
        }
        self.processes[p].threads[t].inbox.push_back(input);
        self.pass_soon((p, t));
    }

    fn pass_soon(&mut self, (p, t): ThreadId) {
        let busy = &mut self.processes[p].threads[t].busy;
        if !std::mem::replace(busy, true) {
            let delay = self.rng.random_range(500..10_000);
            self.schedule.after(delay, Event::DataPass((p, t)));
        }
    }

    /// The control thread shows another view: data threads see it a little later, unless a pass
    /// comes first.
    pub(crate) fn wake_all(&mut self, p: ProcessId) {
        for t in 0..self.processes[p].threads.len() {
            let delay = self.rng.random_range(0..self.mix.view_gap);
            self.schedule
                .after(delay, Event::Data((p, t), DataInput::Wake));
        }
    }

    /// A data thread reports progress. The control thread counts it once all of them have (rule
    /// 12).
    pub(crate) fn data_alive(&mut self, (p, t): ThreadId) {
        let process = &mut self.processes[p];
        process.alive.insert(t);
        if process.alive.len() == process.threads.len() {
            process.alive.clear();
            self.upcall((p, t), |_| Input::DataThreadAlive);
        }
    }

    pub(crate) fn data_pass(&mut self, (p, t): ThreadId) {
        if self.processes[p].gone {
            return;
        }
        let at = self.schedule.now();
        let thread = &self.processes[p].threads[t];
        if at < thread.starved_until && at >= thread.starves_at {
            let span = self.rng.random_range(100 * MS..fault::STARVED_MAX);
            let thread = &mut self.processes[p].threads[t];
            thread.stalled_until = thread.stalled_until.max(at + span);
            thread.starves_at = thread.stalled_until + 10 * MS;
        }
        let now = self.processes[p].clock(at);
        if self.processes[p].generation != self.processes[p].threads[t].shard_generation {
            self.processes[p].threads[t].shard_generation = self.processes[p].generation;
            if self.processes[p].me != self.processes[p].threads[t].shard_me {
                self.fresh_shard((p, t), now);
            }
            if let Some(view) = self.processes[p].view.clone() {
                self.processes[p].threads[t].shard.install(now, view);
            }
        }
        self.processes[p].threads[t].checked =
            (now, self.processes[p].lease, self.processes[p].generation);
        self.siblings((p, t), now, |siblings, handler| siblings.work(handler));
        let mut batch = self.rng.random_range(1..64);
        while batch > 0
            && let Some(input) = self.processes[p].threads[t].inbox.pop_front()
        {
            batch -= 1;
            self.data_input((p, t), now, input);
        }
        // Before the clients that may have missed the keys get their answers.
        self.note_evicted((p, t));
        let gap = if self.rng.random_bool(0.1) {
            self.rng.random_range(1_000..=self.mix.pass_gap)
        } else {
            2_000
        };
        self.schedule.after(gap, Event::DataRelease((p, t)));
    }

    /// Does what a data thread does with its mailboxes. `act` returns whether there is more to do.
    fn siblings(
        &mut self,
        (p, t): ThreadId,
        now: Time,
        act: impl FnOnce(&mut doyen::data::siblings::Siblings, &mut Siblings<'_>) -> bool,
    ) {
        let unix_ms = self.processes[p].unix_ms(self.schedule.now());
        let thread = &mut self.processes[p].threads[t];
        let mut handler = Siblings {
            shard: &mut thread.shard,
            now,
            unix_ms,
            malformed: None,
        };
        thread.more = act(&mut thread.siblings, &mut handler);
        if let Some(malformed) = handler.malformed {
            self.broken(format!(
                "a thread received malformed bytes from another one: {malformed} (at p{p}, thread {t})"
            ));
        }
    }

    /// Does what data.rs does when the process gets another identity.
    fn fresh_shard(&mut self, (p, t): ThreadId, now: Time) {
        let (limits, seed) = (self.limits(), self.rng.random());
        let me = self.processes[p].me;
        self.end_subscriber((p, t));
        self.restart_tracker((p, t));
        let id = self.processes[p].thread_id(t);
        let thread = &mut self.processes[p].threads[t];
        self.caught_up += thread.shard.stats().copies.caught_up;
        self.continued += thread.shard.stats().copies.continued;
        self.expired += thread.shard.stats().expired;
        self.evicted += thread.shard.stats().evicted;
        thread.shard_me = me;
        thread.siblings.restart(me);
        let heir = Shard::new(id, limits, seed, now);
        let former = std::mem::replace(&mut thread.shard, heir);
        let callers = former.into_calls(&mut thread.shard);
        let in_line: BTreeSet<CallToken> = callers
            .filter_map(|caller| match caller {
                OpenCaller::InLine(token) => Some(token),
                OpenCaller::Call(..) => None,
            })
            .collect();
        thread.buffers.clear();
        thread.shard_links.clear();
        thread.tick_at = None;
        let read = std::mem::take(&mut thread.read)
            .into_iter()
            .map(|(asked, ..)| asked);
        let (kept, lost) = std::mem::take(&mut thread.tokens)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(token, _)| in_line.contains(token));
        thread.tokens = kept;
        for (client, serial) in lost.into_values().chain(read) {
            self.client_answer(client, serial, &Outcome::Failed(Failure::Unknown));
        }
    }

    fn data_input(&mut self, (p, t): ThreadId, now: Time, input: DataInput) {
        let unix_ms = self.processes[p].unix_ms(self.schedule.now());
        let me = self.processes[p].threads[t].shard_me;
        let process = &mut self.processes[p].threads[t];
        match input {
            DataInput::Wake => {}
            DataInput::Tick => process.shard.tick(now),
            DataInput::Connected(peer, id) => {
                if process.links.get(&peer) == Some(&id) {
                    process.buffers.retain(|(of, _), _| *of != peer);
                    process.shard_links.insert(peer, id);
                    let spoken = |id: MemberId| self.oracle.spoken(id.member());
                    let ends = spoken(me).into_iter().chain(spoken(peer));
                    let version = ends.min().unwrap_or(LEVELS.1);
                    process.shard.connected(now, peer, version);
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
                        Err(malformed) => {
                            return self.broken(format!(
                                "malformed bytes: {malformed} (at p{p}, of {peer})"
                            ));
                        }
                    }
                }
            }
            DataInput::Datagram(peer, id, bytes) => {
                if process.shard_links.get(&peer) != Some(&id) {
                    return;
                }
                if let Err(malformed) = process.shard.datagram(now, peer, &bytes) {
                    self.broken(format!(
                        "malformed datagram: {malformed} (at p{p}, of {peer})"
                    ));
                }
            }
            DataInput::Submit(client, serial, work) => {
                // Like commands of a pipeline behind ones that waited in vain: all that is asked
                // together waits equally long.
                let first = self
                    .clients
                    .get(client)
                    .and_then(|client| client.current.first())
                    .is_some_and(|(first, ..)| first.is_multiple_of(8));
                let hurried = first && !self.last_calls_begun;
                // A read at once that is taken back has the whole patience. A hurried caller makes
                // none, because its next commands would be given up before that read (`Patience`).
                if !hurried
                    && let Work::Key(operation) = &work
                    && operation.action == Action::Get
                    && let Some((n, value)) =
                        process
                            .shard
                            .read(now, operation.keyspace, operation.map, &operation.key)
                {
                    let outcome = value.map_or(Outcome::Nil, |value| Outcome::Bulk(value.into()));
                    process
                        .read
                        .push(((client, serial), n, operation.clone(), outcome));
                    return;
                }
                let token = process.next_token;
                process.next_token += 1;
                process.tokens.insert(token, (client, serial));
                if !hurried
                    && let Work::Key(operation) = &work
                    && let Some(value) = operation.action.as_set()
                    && process.shard.set(
                        now,
                        operation.keyspace,
                        operation.map,
                        (&operation.key, value),
                        || token,
                    )
                {
                    self.set_at_once += 1;
                    return;
                }
                let patience = if hurried {
                    Patience::Until(now + Duration::from_millis(200))
                } else {
                    Patience::Whole
                };
                process.shard.submit(now, unix_ms, token, work, patience);
            }
            DataInput::Wait(client, serial, operation, limit) => {
                let token = process.next_token;
                process.next_token += 1;
                process.tokens.insert(token, (client, serial));
                let patience = Patience::InLine {
                    age: Duration::ZERO,
                    until: Some(now + Duration::from_millis(limit)),
                };
                process
                    .shard
                    .submit(now, unix_ms, token, operation, patience);
            }
            DataInput::Forget(client, serial) => {
                let token = process
                    .tokens
                    .iter()
                    .find(|(_, of)| **of == (client, serial))
                    .map(|(token, _)| *token);
                if let Some(token) = token {
                    process.tokens.remove(&token);
                    process.shard.forget(token);
                }
            }
            DataInput::BreakLine => {
                let count = process.siblings.count();
                let at = if count > 1 {
                    self.rng.random_range(0..count)
                } else {
                    0
                };
                self.siblings((p, t), now, |siblings, handler| {
                    siblings.break_line(at, handler);
                    siblings.work(handler)
                });
            }
            DataInput::Used(of) => {
                if of == process.shard_me {
                    process.shard.used(now);
                }
            }
        }
    }

    pub(crate) fn data_release(&mut self, (p, t): ThreadId) {
        if self.processes[p].gone {
            return;
        }
        let mut now = self.processes[p].clock(self.schedule.now());
        let mut lease = self.processes[p].lease;
        let mut generation = self.processes[p].generation;
        let thread = &mut self.processes[p].threads[t];
        if broken(&mutants::CHECKS_THEN_READS) {
            // Clock, lease and generation as they were when the pass began.
            (now, lease, generation) = thread.checked;
        }
        let current = generation == thread.shard_generation;
        let well = Shard::may_answer(now, lease, current);
        for (asked, n, operation, outcome) in std::mem::take(&mut thread.read) {
            if well {
                self.read_at_once += 1;
                self.client_answer(asked.0, asked.1, &outcome);
            } else {
                let process = &mut self.processes[p].threads[t];
                let token = process.next_token;
                process.next_token += 1;
                process.tokens.insert(token, asked);
                process.shard.keep(token, n, operation, outcome);
                self.reads_again += 1;
            }
        }
        self.processes[p].threads[t]
            .shard
            .release(now, lease, current);
        while let Some((token, outcome)) = self.processes[p].threads[t].shard.poll_outcome() {
            let tokens = &mut self.processes[p].threads[t].tokens;
            let Some((client, serial)) = tokens.get(&token).copied() else {
                continue;
            };
            // One that was granted something withdraws its ticket when it has taken.
            let granted = matches!(outcome, Outcome::Many(_))
                && self
                    .clients
                    .get(client)
                    .is_some_and(|c| c.waits_in_line(serial));
            if !granted {
                tokens.remove(&token);
            }
            self.client_answer(client, serial, &outcome);
        }
        // Checks this before anything else happens, because all possible answers have been given.
        if let Err(what) = self
            .oracle
            .released(&self.processes, (p, t), self.schedule.now(), well)
        {
            self.broken(format!("{what} (at p{p})"));
        }
        self.ask_overtaken((p, t), now);
        self.note_evicted((p, t));
        self.follow((p, t), now, self.schedule.now());
        self.look_at_trackers((p, t), now);
        if self.mix.dawdles && self.rng.random_bool(0.05) {
            // Clients have their answers, but peers have nothing yet. What happens now happens in
            // between.
            let gap = self.rng.random_range(1_000..=self.mix.pass_gap);
            return self.schedule.after(gap, Event::DataTransmit((p, t)));
        }
        self.data_transmit((p, t));
    }

    /// Ends a pass: sends to peers.
    pub(crate) fn data_transmit(&mut self, (p, t): ThreadId) {
        if self.processes[p].gone {
            return;
        }
        let now = self.processes[p].clock(self.schedule.now());
        let generation = self.processes[p].generation;
        while let Some((peer, lane, bytes)) = self.processes[p].threads[t].shard.poll_transmit() {
            self.trace.bytes(&bytes);
            if self.processes[p].threads[t].siblings.has(peer) {
                self.hand_over((p, t), now, peer, lane, bytes);
            } else {
                self.transmit((p, t), peer, lane, &bytes);
            }
        }
        while let Some((peer, bytes)) = self.processes[p].threads[t].shard.poll_datagram() {
            self.trace.bytes(&bytes);
            self.throw((p, t), peer, &bytes);
        }
        while let Some(request) = self.processes[p].threads[t].shard.poll_request() {
            self.request((p, t), request);
        }
        let mut rung = Vec::new();
        self.processes[p].threads[t]
            .siblings
            .flush(|other| rung.push(usize::from(other)));
        for other in rung {
            let delay = self.rng.random_range(500..40_000);
            self.schedule
                .after(delay, Event::Data((p, other), DataInput::Wake));
        }
        let process = &self.processes[p];
        if process.threads[t].shard_me == process.me {
            let cluster = process.view.as_ref().map(|v| v.installed.cluster);
            if let Err(what) =
                self.oracle
                    .holds(process.thread_id(t), cluster, &process.threads[t].shard)
            {
                self.broken(format!("{what} (at p{p})"));
            }
        }
        let thread = &mut self.processes[p].threads[t];
        thread.busy = false;
        if !thread.inbox.is_empty() || thread.more || generation != thread.shard_generation {
            self.pass_soon((p, t));
        }
        let process = &self.processes[p];
        if let Some(due) = process.threads[t].shard.poll_timeout() {
            let at = process.when(due).max(self.schedule.now() + 5_000);
            if process.threads[t].tick_at.is_none_or(|set| at < set) {
                self.processes[p].threads[t].tick_at = Some(at);
                self.schedule.at(at, Event::DataTick((p, t)));
            }
        }
    }

    /// Does what data/core.rs does with operations that changed nothing and whose outcomes are
    /// lost.
    fn ask_overtaken(&mut self, (p, t): ThreadId, now: Time) {
        let unix_ms = self.processes[p].unix_ms(self.schedule.now());
        while let Some((token, work)) = self.processes[p].threads[t].shard.poll_overtaken() {
            let thread = &mut self.processes[p].threads[t];
            let Some((client, serial)) = thread.tokens.get(&token).copied() else {
                continue;
            };
            match work {
                work if !self.clients.get(client).is_some_and(|c| c.pipelines) => {
                    self.overtaken[0] += 1;
                    thread
                        .shard
                        .submit(now, unix_ms, token, work, Patience::Whole);
                    thread.more = true;
                }
                _ => {
                    self.overtaken[1] += 1;
                    thread.tokens.remove(&token);
                    self.client_answer(client, serial, &Outcome::Failed(Failure::Unavailable));
                }
            }
        }
    }

    /// Bytes for another data thread of the process.
    fn hand_over(&mut self, (p, t): ThreadId, now: Time, peer: MemberId, lane: Lane, bytes: Bytes) {
        self.handed_over += 1;
        let thread = &mut self.processes[p].threads[t];
        thread.siblings.congest_at(CONGESTED_BYTES);
        if thread.siblings.send(peer, lane, bytes) {
            self.network.congested += 1;
            thread.shard.congested(now, peer, true);
        }
    }

    fn request(&mut self, (p, t): ThreadId, request: ShardRequest) {
        self.trace.line(self.schedule.now(), || {
            format!("p{p}.{t} asks {}", clip(&format!("{request:?}")))
        });
        if let ShardRequest::Opened(opened) = &request {
            self.tell(|w| {
                format!(
                    "{} acknowledges writes of {}",
                    w.name(p),
                    opened
                        .iter()
                        .map(|(at, _)| at.to_string())
                        .collect::<Vec<_>>()
                        .join(" ")
                )
            });
        }
        match request {
            ShardRequest::Opened(opened) => self.upcall((p, t), |_| Input::Opened(opened)),
            ShardRequest::InSync(changes) => {
                self.oracle.asked(&changes);
                self.upcall((p, t), |_| Input::InSync(changes));
            }
            // Nothing here corrupts bytes on their way.
            ShardRequest::Differed(at, learner) => self.broken(format!(
                "I13: the copy of {at} that p{p} makes at {learner} differs"
            )),
            ShardRequest::Loads(report) => {
                let thread = u8::try_from(t).unwrap_or(u8::MAX);
                self.upcall((p, t), |_| Input::Loads { thread, report });
            }
            ShardRequest::Newer(name) => self.upcall((p, t), |_| Input::Pull(name)),
            ShardRequest::Used => {
                let me = self.processes[p].threads[t].shard_me;
                let delay = self.rng.random_range(1_000..MS);
                self.schedule
                    .after(delay, Event::Control(p, ControlInput::Used(me)));
            }
            // All processes here are members.
            ShardRequest::WantMap { .. }
            | ShardRequest::MapMade { .. }
            | ShardRequest::Table(_)
            | ShardRequest::OtherCluster(_) => {
                self.broken(format!("asks what only clients and their hosts do (p{p})"));
            }
        }
    }
}
