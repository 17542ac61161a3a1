//! The work of a control thread around its agreement machine, and the network between control
//! threads.

use super::disk::Ending;
use super::network::Plane;
use super::process::{ControlInput, DataInput, Leaving, ProcessId, ThreadId};
use super::schedule::{Event, MS, Nanos, SECOND};
use super::world::{World, clip, describe};
use doyen_gossip::agreement::Peer;
use doyen_gossip::hints::Hint;
use doyen_gossip::wire::Message;
use doyen_gossip::{Agreement, Input, Output, SigningSeed, Time};
use doyen_placement::{MemberId, planner};
use rand::Rng;

impl World {
    pub(crate) fn control(&mut self, p: ProcessId, input: ControlInput) {
        if self.processes[p].gone {
            return;
        }
        let now = self.processes[p].clock(self.schedule.now());
        let me = self.processes[p].me;
        match input {
            ControlInput::Of(of, input) if of == me => {
                self.processes[p].agreement.handle(now, input)
            }
            ControlInput::Said(to, greeting, input) if to == self.processes[p].voice() => {
                if !self.meets(p, greeting) {
                    return;
                }
                // The hello of a connection comes before all messages.
                if let Some(level) = self.oracle.spoken(greeting.process)
                    && (self.processes[p].met).insert((greeting.id, greeting.process))
                {
                    let speaks = Input::Speaks {
                        id: greeting.id,
                        process: greeting.process,
                        level,
                        key: Some(greeting.key),
                        start: greeting.start.map(|start| start.count),
                    };
                    self.processes[p].agreement.handle(now, speaks);
                }
                self.processes[p].agreement.handle(now, *input)
            }
            ControlInput::Disk(event) => self.on_disk(p, event),
            ControlInput::Used(of) if of == me => {
                self.processes[p].agreement.handle(now, Input::Used)
            }
            ControlInput::Of(..) | ControlInput::Said(..) | ControlInput::Used(_) => return,
        }
        self.after_control(p);
    }

    pub(crate) fn control_tick(&mut self, p: ProcessId) {
        if self.processes[p].gone || self.processes[p].control_tick_at != Some(self.schedule.now())
        {
            return;
        }
        self.processes[p].control_tick_at = None;
        let now = self.processes[p].clock(self.schedule.now());
        if self.processes[p]
            .agreement
            .poll_timeout()
            .is_some_and(|due| due <= now)
        {
            self.processes[p].agreement.handle(now, Input::Tick);
        }
        self.after_control(p);
    }

    /// Carries out the outputs of the agreement machine, in order, and sets its timer.
    pub(crate) fn after_control(&mut self, p: ProcessId) {
        while let Some(output) = self.processes[p].agreement.poll_output() {
            match output {
                Output::Send { to, message } => self.send(p, to, message),
                Output::View(view) => {
                    let process = &self.processes[p];
                    let (me, now) = (process.me, process.clock(self.schedule.now()));
                    self.trace.line(self.schedule.now(), || {
                        let names = [&view.installed, &view.accepted]
                            .map(|t| format!("{}.{}", t.term, t.version));
                        let opens: Vec<String> = view
                            .opens_at
                            .iter()
                            .map(|(at, e, t)| format!("{at}@{e} in {:?}", t.since(now)))
                            .collect();
                        let mut tables = describe(&view.installed);
                        if names[0] != names[1] {
                            tables += &format!(" -> {}", describe(&view.accepted));
                        }
                        format!(
                            "p{p} view installed {} accepted {} opens {opens:?} {tables}",
                            names[0], names[1],
                        )
                    });
                    self.trace.number(view.accepted.name().hash);
                    let was_apart = self.oracle.is_apart(me);
                    if let Err(what) = self.oracle.view(me, &view) {
                        self.broken(format!("{what} (at p{p})"));
                    }
                    if was_apart && !self.oracle.is_apart(me) {
                        self.calls_cross_over(p);
                    }
                    self.tell_commits(p);
                    self.note_losses();
                    self.processes[p].show(Some(view));
                    self.wake_all(p);
                    self.close_strangers(p);
                    let soon = self.rng.random_range(10_000..3 * MS);
                    self.schedule.after(soon, Event::Dial(p));
                }
                // Every seed here is a node's own address, so nothing is behind it.
                Output::Scout(_) => {}
                Output::Lease(until) => self.processes[p].lease = until,
                Output::Plan(table, loads) => {
                    let proposal = planner::propose(&table, &loads);
                    let input = Input::Planned {
                        base: table.name(),
                        proposal,
                    };
                    let me = self.processes[p].me;
                    let delay = self.rng.random_range(MS..60 * MS);
                    self.schedule
                        .after(delay, Event::Control(p, ControlInput::Of(me, input)));
                }
                Output::UsedOk => {
                    let me = self.processes[p].me;
                    for t in 0..self.processes[p].threads.len() {
                        let delay = self.rng.random_range(1_000..MS);
                        self.schedule
                            .after(delay, Event::Data((p, t), DataInput::Used(me)));
                    }
                }
                Output::AdminReply { .. } => {}
                Output::Event(doyen_gossip::agreement::Event::NoCoordinator { why })
                    if why.contains("speaks no more than level") =>
                {
                    return self.upgrade_refused(p);
                }
                Output::Event(event) => self.tell_event(p, &event),
                Output::Expelled => return self.expelled(p),
                Output::HandedOver => {
                    self.tell(|w| format!("{} has handed over", w.name(p)));
                    self.processes[p].leaving = self.processes[p].leaving.max(Leaving::HandedOver);
                    self.schedule.after(MS, Event::Drain(p));
                }
                Output::Left => {
                    self.tell(|w| format!("{} has left", w.name(p)));
                    let slot = self.processes[p].slot;
                    self.close_directory(p, Ending::Order);
                    self.end_process(p);
                    let again = self.rng.random_range(50 * MS..4 * SECOND);
                    return self.schedule.after(again, Event::Start(slot));
                }
                Output::Store(write, durable) => self.store(p, write, durable),
                Output::Renamed => self.renamed(p),
                Output::Fatal(why) => {
                    // Here no two nodes have one name, and all get the same settings. So a machine
                    // has no reason to stop.
                    return self.broken(format!("stops: {why} (p{p})"));
                }
            }
        }
        let process = &self.processes[p];
        if let Some(due) = process.agreement.poll_timeout() {
            // At least some microseconds from now: a timer that is always due must show as too many
            // events, not as a hang.
            let at = process.when(due).max(self.schedule.now() + 5_000);
            if process
                .control_tick_at
                .is_none_or(|set| at < set || set < self.schedule.now())
            {
                self.processes[p].control_tick_at = Some(at);
                self.schedule.at(at, Event::ControlTick(p));
            }
        }
    }

    /// Does what control.rs does after an expulsion: a new id, and a fresh start.
    pub(crate) fn expelled(&mut self, p: ProcessId) {
        let old = self.processes[p].me;
        let slot = self.processes[p].slot;
        let me = MemberId::of_member(self.rng.random());
        self.tell(|w| format!("{} was expelled, and is now {me}", w.name(p)));
        if self.oracle.is_apart(old) {
            self.calls_cross_over(p);
        }
        *self.faults.entry("expulsion").or_default() += 1;
        self.directory.remove(&old);
        self.directory.insert(me, p);
        self.slot_of.insert(me, slot);
        let seed = self.forget_directory(p);
        let mut config = self.config(slot, me);
        config.directory = (self.processes[p].writer.as_ref()).map(|writer| writer.start(me).count);
        if let Some(seed) = seed {
            config.signing_seed = SigningSeed::new(seed);
        }
        // A former member asks the members that it knew: without any seed, it would begin a cluster
        // beside the one that it left.
        let former = self.processes[p]
            .view
            .iter()
            .flat_map(|v| &v.installed.members)
            .map(|m| m.addresses.control);
        let former: Vec<_> = former
            .filter(|a| *a != config.addresses.control && !config.seeds.addresses.contains(a))
            .collect();
        config.seeds.addresses.extend(former);
        config.expect = None;
        config.drained = self.processes[p]
            .view
            .as_ref()
            .is_some_and(|v| v.installed.settings.balancing.drains(old));
        let now = self.processes[p].clock(self.schedule.now());
        let process = &mut self.processes[p];
        process.me = me;
        process.show(None);
        process.lease = Time::ZERO;
        process.agreement = Agreement::new(config, now);
        process.key = process.agreement.vote_key();
        process.resumed = false;
        process.met.clear();
        process.leaving = Leaving::No;
        let links: Vec<_> = process
            .threads
            .iter_mut()
            .flat_map(|thread| std::mem::take(&mut thread.links).into_values())
            .collect();
        process.alive.clear();
        for id in links {
            self.break_connection(id, 5 * MS);
        }
        self.unlink(p);
        if let Some(seed) = seed {
            self.signs(p, me, seed);
        }
        self.wake_all(p);
        self.after_control(p);
    }

    /// A leaver waits for its clients' last operations, and then departs. Those that wait in line
    /// lose their connection.
    pub(crate) fn drain(&mut self, p: ProcessId) {
        let process = &self.processes[p];
        if process.gone || process.leaving != Leaving::HandedOver {
            return;
        }
        if self.clients.iter().any(|c| c.at == Some(p) && c.calls()) {
            return self.schedule.after(5 * MS, Event::Drain(p));
        }
        let me = process.me;
        self.processes[p].leaving = Leaving::Departing;
        self.schedule
            .after(0, Event::Control(p, ControlInput::Of(me, Input::Depart)));
    }

    /// A message from a data thread to the control thread.
    pub(crate) fn upcall(&mut self, (p, t): ThreadId, input: impl FnOnce(MemberId) -> Input) {
        let me = self.processes[p].threads[t].shard_me;
        let delay = self.rng.random_range(1_000..200_000);
        self.schedule
            .after(delay, Event::Control(p, ControlInput::Of(me, input(me))));
    }

    pub(crate) fn delay(&mut self, from: usize, to: usize) -> Nanos {
        let jitter = self.rng.random_range(0..=self.mix.jitter);
        (self.mix.delay_min + jitter) * self.network.slowness(from, to)
    }

    fn send(&mut self, p: ProcessId, to: Peer, message: Message) {
        let from = self.processes[p].slot;
        let me = self.processes[p].me;
        self.trace.number(p as u64);
        self.trace.line(self.schedule.now(), || {
            format!("p{p} -> {to:?}: {}", clip(&format!("{message:?}")))
        });
        self.tell_votes(p, to, &message);
        let view = self.processes[p].view.as_ref();
        let installed = view.map(|v| (v.installed.term, v.installed.version));
        let began = (self.processes[p].resumed, installed);
        if let Err(what) = self.oracle.heirs.says(me, began, to, &message) {
            self.broken(format!("{what} (at p{p})"));
        }
        self.promises(p, &message);
        if let Message::Propose(proposal) = &message {
            let (process, now) = (&self.processes[p], self.schedule.now());
            let unheard = || process.agreement.status(process.clock(now)).unanswered;
            if let Err(what) = self.oracle.proposes(me, proposal.name, unheard) {
                self.broken(format!("{what} (at p{p})"));
            }
        }
        let member = match to {
            Peer::Member(id) => Some(id),
            Peer::Address(_) => None,
        };
        let Some((slot, there)) = self.route(p, to) else {
            return;
        };
        let datagram = message.is_datagram();
        let out = self.delay(from, slot);
        let back = self.delay(slot, from);
        let reaches = self.network.reaches(Plane::Control, from, slot);
        let returns = self.network.reaches(Plane::Control, slot, from);
        let Some(there) = there else {
            if let Some(id) = member
                && datagram
                && reaches
                && returns
                && self.mix.refusals
            {
                self.schedule.after(
                    out + back,
                    Event::Control(p, ControlInput::Of(me, Input::Hint(Hint::Refused(id)))),
                );
            }
            return;
        };
        let target = self.processes[there].voice();
        let greeting = self.processes[p].greeting(p);
        if let Peer::Address(address) = to {
            if !reaches
                || !returns
                || self.processes[there]
                    .control_blocked(self.schedule.now())
                    .is_some()
            {
                return;
            }
            self.identified(p, there, address, out + back);
            if there == p {
                return;
            }
        } else if member != Some(target) {
            return;
        }
        if let Err(what) = self.oracle.sent(self.processes[there].me, &message) {
            return self.broken(format!("{what} (by p{p})"));
        }
        if !reaches {
            return;
        }
        let loss = self.mix.loss + self.network.burst.0;
        let per_mille = if datagram { loss } else { loss / 10 };
        if self.rng.random_range(0..1_000) < per_mille {
            return;
        }
        let mut copies = 1;
        let mut late = 0;
        if datagram {
            copies += u32::from(self.rng.random_range(0..1_000) < self.mix.duplicates);
            if self.rng.random_range(0..1_000) < self.mix.late {
                late = self.rng.random_range(0..3 * SECOND);
            }
        } else if !returns {
            // Without acks a stream stalls, but its first packets arrive all the same.
            late = self.rng.random_range(0..SECOND);
        }
        for copy in 0..copies {
            let again = if copy == 0 {
                0
            } else {
                self.rng.random_range(0..SECOND)
            };
            let input = Box::new(Input::Message {
                from: greeting.id,
                message: message.clone(),
            });
            self.schedule.after(
                out + late + again,
                Event::Control(there, ControlInput::Said(target, greeting, input)),
            );
        }
    }
}
