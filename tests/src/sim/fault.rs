//! Faults: what goes wrong, and for how long, and what the test itself must not break.

use super::halves;
use super::mix::{Placed, SPLITS};
use super::network::Plane;
use super::power;
use super::process::{ControlInput, DataInput, Leaving, ProcessId};
use super::schedule::{Event, MS, Nanos, SECOND};
use super::story;
use super::world::World;
use doyen_gossip::Input;
use doyen_gossip::agreement::AdminRequest;
use doyen_gossip::hints::Hint;
use doyen_placement::planner::{
    BalanceChange, DEFAULT_KEYSPACE, HandOverUrgency, KeyspaceChange, NewKeyspace,
};
use doyen_placement::quorum::majority;
use doyen_placement::{Eviction, MapId, MoveRate, OnLoss, Paused, Schedulers};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

/// A kind of fault.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) weight: u32,
    begin: fn(&mut World) -> bool,
}

/// Every kind.
pub(crate) const KINDS: &[Kind] = &[
    Kind {
        name: "pause",
        weight: 4,
        begin: World::pause,
    },
    Kind {
        name: "control stall",
        weight: 2,
        begin: World::stall_control,
    },
    Kind {
        name: "data stall",
        weight: 2,
        begin: World::stall_data,
    },
    Kind {
        name: "one-way cut",
        weight: 4,
        begin: World::cut_one_way,
    },
    Kind {
        name: "pair cut",
        weight: 3,
        begin: World::cut_pair,
    },
    Kind {
        name: "split",
        weight: 3,
        begin: World::split,
    },
    Kind {
        name: "data plane cut",
        weight: 2,
        begin: World::cut_data,
    },
    Kind {
        name: "control plane cut",
        weight: 2,
        begin: World::cut_control,
    },
    Kind {
        name: "connection break",
        weight: 4,
        begin: World::break_one,
    },
    Kind {
        name: "crash",
        weight: 5,
        begin: World::crash_one,
    },
    Kind {
        name: "leave",
        weight: 3,
        begin: World::leave_one,
    },
    Kind {
        name: "join",
        weight: 4,
        begin: World::join_one,
    },
    Kind {
        name: "slow node",
        weight: 2,
        begin: World::slow_one,
    },
    Kind {
        name: "loss burst",
        weight: 2,
        begin: World::lose_much,
    },
    Kind {
        name: "false hint",
        weight: 3,
        begin: World::false_hint,
    },
    Kind {
        name: "wall clock jump",
        weight: 1,
        begin: World::jump,
    },
    Kind {
        name: "recover",
        weight: 2,
        begin: World::recover_one,
    },
    Kind {
        name: "coordinator crash",
        weight: 4,
        begin: World::crash_coordinator,
    },
    Kind {
        name: "coordinator cut",
        weight: 4,
        begin: World::cut_coordinator,
    },
    Kind {
        name: "coordinator pause",
        weight: 3,
        begin: World::pause_coordinator,
    },
    Kind {
        name: "bridge",
        weight: 3,
        begin: World::bridge,
    },
    Kind {
        name: "restart of all",
        weight: 1,
        begin: World::restart_all,
    },
    Kind {
        name: "alteration",
        weight: 2,
        begin: World::alter,
    },
    Kind {
        name: "keyspace",
        weight: 1,
        begin: World::make_or_drop,
    },
    Kind {
        name: "reshaping",
        weight: 4,
        begin: World::reshape,
    },
    Kind {
        name: "starved threads",
        weight: 2,
        begin: World::starve_data,
    },
];

/// How long faults disturb a cluster that forms. After that, they wait until it has formed.
const FORMING: Nanos = 4 * SECOND;

/// The most by which packets of a slow node are slower than others.
pub(crate) const SLOWNESS_MAX: u64 = 40;

/// For how long a starved thread gets no core, at most. A thread that hangs for two leases is
/// another fault, because its node is deposed.
pub(crate) const STARVED_MAX: Nanos = 900 * MS;

/// The numbers of faults begin here in the streams of a seed.
const FAULTS: u64 = 1 << 16;

/// How many kinds are drawn from a seed's first numbers.
pub(crate) const FIRST_KINDS: usize = 16;

/// The end of a fault.
#[derive(Debug)]
pub(crate) enum Undo {
    Heal(Vec<(Plane, usize, usize)>),
    /// The stranger meets the cluster, once there is one.
    Meet(Vec<(Plane, usize, usize)>),
    Quicken(usize),
    Calm,
}

impl World {
    /// Does one fault, and sets the time of the next.
    pub(crate) fn fault(&mut self) {
        if self.calm {
            return;
        }
        let n = self.next_fault;
        self.next_fault += 1;
        let numbers = self.after_fault(n);
        let course = std::mem::replace(&mut self.rng, numbers);
        // In a cluster that never forms, nothing could go wrong.
        let forms = !self.oracle.any_committed() && self.schedule.now() > self.began_at + FORMING;
        if self.case.has(n) && !forms {
            self.begin_fault();
        }
        self.rng = course;
    }

    /// Schedules the next fault, and returns the random numbers of this one. Each fault has its own
    /// numbers, so to leave one out changes neither the others nor their times.
    fn after_fault(&mut self, n: u32) -> ChaCha8Rng {
        let mut numbers = ChaCha8Rng::seed_from_u64(self.case.seed);
        numbers.set_stream(FAULTS + u64::from(n));
        let next = numbers.random_range(0..self.mix.fault_every * 2);
        self.schedule.after(next, Event::Fault);
        numbers
    }

    /// How many faults would come, for a world that has not begun: nothing that happens in between
    /// changes that.
    pub(crate) fn count_faults(mut self) -> u32 {
        while let Some(event) = self.schedule.pop() {
            match event {
                Event::Fault => {
                    self.after_fault(self.next_fault);
                    self.next_fault += 1;
                }
                Event::Calm => break,
                _ => {}
            }
        }
        self.next_fault
    }

    fn begin_fault(&mut self) {
        if self.mix.directories && self.rng.random_bool(power::SHARE) {
            if let Some(name) = self.disturb_directories() {
                *self.faults.entry(name).or_default() += 1;
                self.trace.bytes(name.as_bytes());
            }
            return;
        }
        let total: u32 = self.mix.weights.iter().sum();
        if total == 0 {
            return;
        }
        let mut draw = self.rng.random_range(0..total);
        for (kind, weight) in KINDS.iter().zip(self.mix.weights.clone()) {
            if draw < weight {
                // The halves of a split must meet in time.
                if self.minority.is_some() && !halves::HARMLESS.contains(&kind.name) {
                    return;
                }
                if (kind.begin)(self) {
                    *self.faults.entry(kind.name).or_default() += 1;
                    self.trace.number(u64::from(draw));
                }
                return;
            }
            draw -= weight;
        }
    }

    pub(crate) fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Heal(cuts) => {
                self.tell(|_| format!("{} reach each other again", story::cuts(&cuts)));
                for cut in &cuts {
                    self.network.heal(cut);
                }
            }
            Undo::Meet(cuts) if !self.oracle.populated() => {
                self.schedule.after(SECOND, Event::Undo(Undo::Meet(cuts)))
            }
            Undo::Meet(cuts) => self.undo(Undo::Heal(cuts)),
            // If the node was slowed again meanwhile, that lasts longer.
            Undo::Quicken(slot) => {
                let now = self.schedule.now();
                self.network
                    .slow
                    .retain(|of, (_, until)| *of != slot || *until > now);
            }
            Undo::Calm if self.network.burst.1 > self.schedule.now() => {}
            Undo::Calm => self.network.burst = (0, 0),
        }
    }

    fn running(&self) -> Vec<ProcessId> {
        self.slots.iter().filter_map(|s| s.process).collect()
    }

    fn one(&mut self) -> Option<ProcessId> {
        let running = self.running();
        (!running.is_empty()).then(|| running[self.rng.random_range(0..running.len())])
    }

    fn two_slots(&mut self) -> Option<(usize, usize)> {
        let n = self.slots.len();
        if n < 2 {
            return None;
        }
        let a = self.rng.random_range(0..n);
        let b = (a + self.rng.random_range(1..n)) % n;
        Some((a, b))
    }

    /// A time that is mostly short, and now and then long.
    fn span(&mut self, longest: Nanos) -> Nanos {
        let longest = [longest / 10, longest / 3, longest][self.rng.random_range(0..3)];
        self.rng.random_range(MS..longest.max(2 * MS))
    }

    /// A process that coordinates, or believes so: after a cut, there may be two for a while.
    fn coordinator(&mut self) -> Option<ProcessId> {
        let leading: Vec<ProcessId> = self
            .running()
            .into_iter()
            .filter(|p| self.processes[*p].agreement.leading())
            .collect();
        (!leading.is_empty()).then(|| leading[self.rng.random_range(0..leading.len())])
    }

    fn pause(&mut self) -> bool {
        self.one().is_some_and(|p| self.pause_of(p))
    }

    fn pause_coordinator(&mut self) -> bool {
        self.coordinator().is_some_and(|p| self.pause_of(p))
    }

    fn pause_of(&mut self, p: ProcessId) -> bool {
        let span = self.span(self.mix.pause_max);
        self.stands_still(p, span);
        let until = self.schedule.now() + span;
        self.tell_fault(|w| format!("{} stands still for {:.3} s", w.name(p), span as f64 / 1e9));
        let paused = &mut self.processes[p].paused_until;
        *paused = until.max(*paused);
        true
    }

    /// How long the process is then suspended, with overlapping suspensions.
    fn stands_still(&mut self, p: ProcessId, span: Nanos) {
        let now = self.schedule.now();
        let (from, to) = &mut self.processes[p].still;
        if *to < now {
            *from = now;
        }
        *to = (now + span).max(*to);
        self.longest_stall = self.longest_stall.max(*to - *from);
    }

    fn stall_control(&mut self) -> bool {
        let Some(p) = self.one() else { return false };
        let span = self.span(2 * SECOND);
        self.tell_fault(|w| {
            format!(
                "the control thread of {} stands still for {:.3} s",
                w.name(p),
                span as f64 / 1e9
            )
        });
        let until = self.schedule.now() + span;
        let stalled = &mut self.processes[p].control_stalled_until;
        *stalled = until.max(*stalled);
        true
    }

    fn stall_data(&mut self) -> bool {
        let Some(p) = self.one() else { return false };
        let span = self.span(4 * SECOND);
        self.stands_still(p, span);
        let threads = self.processes[p].threads.len();
        let t = if threads > 1 {
            self.rng.random_range(0..threads)
        } else {
            0
        };
        self.tell_fault(|w| {
            format!(
                "data thread {t} of {} stands still for {:.3} s",
                w.name(p),
                span as f64 / 1e9
            )
        });
        let until = self.schedule.now() + span;
        let stalled = &mut self.processes[p].threads[t].stalled_until;
        *stalled = until.max(*stalled);
        true
    }

    /// The data threads of a node get a core for a moment, and then none for most of a second,
    /// again and again.
    fn starve_data(&mut self) -> bool {
        let Some(p) = self.one() else { return false };
        let span = self.span(12 * SECOND);
        self.tell_fault(|w| {
            format!(
                "the data threads of {} seldom get a core for {:.3} s",
                w.name(p),
                span as f64 / 1e9
            )
        });
        self.longest_stall = self.longest_stall.max(STARVED_MAX);
        let until = self.schedule.now() + span;
        for thread in &mut self.processes[p].threads {
            thread.starved_until = until.max(thread.starved_until);
        }
        true
    }

    fn cut(&mut self, cuts: Vec<(Plane, usize, usize)>) -> bool {
        let span = self.span(10 * SECOND);
        self.tell_fault(|_| {
            format!(
                "{} are cut for {:.3} s",
                story::cuts(&cuts),
                span as f64 / 1e9
            )
        });
        for cut in &cuts {
            self.network.cut(cut);
        }
        self.schedule.after(span, Event::Undo(Undo::Heal(cuts)));
        true
    }

    fn cut_one_way(&mut self) -> bool {
        let Some((a, b)) = self.two_slots() else {
            return false;
        };
        self.cut(vec![(Plane::Control, a, b), (Plane::Data, a, b)])
    }

    fn cut_pair(&mut self) -> bool {
        let Some((a, b)) = self.two_slots() else {
            return false;
        };
        self.cut(vec![
            (Plane::Control, a, b),
            (Plane::Data, a, b),
            (Plane::Control, b, a),
            (Plane::Data, b, a),
        ])
    }

    fn split(&mut self) -> bool {
        let n = self.slots.len();
        let side: BTreeSet<usize> = (0..n).filter(|_| self.rng.random_bool(0.5)).collect();
        let both = self.rng.random_bool(0.7);
        let mut cuts = Vec::new();
        for a in 0..n {
            for b in 0..n {
                if a != b && side.contains(&a) != side.contains(&b) && (both || side.contains(&a)) {
                    cuts.extend([(Plane::Control, a, b), (Plane::Data, a, b)]);
                }
            }
        }
        !cuts.is_empty() && self.cut(cuts)
    }

    /// Cuts the coordinator off from some or all others, in one direction or both, for control or
    /// for everything.
    fn cut_coordinator(&mut self) -> bool {
        let Some(p) = self.coordinator() else {
            return false;
        };
        let (at, n) = (self.processes[p].slot, self.slots.len());
        let from: BTreeSet<usize> = if self.rng.random_bool(0.5) {
            (0..n).filter(|s| *s != at).collect()
        } else {
            (0..n)
                .filter(|s| *s != at && self.rng.random_bool(0.6))
                .collect()
        };
        let (out, into) =
            [(true, true), (true, true), (true, false), (false, true)][self.rng.random_range(0..4)];
        let planes: &[Plane] = if self.rng.random_bool(0.4) {
            &[Plane::Control]
        } else {
            &[Plane::Control, Plane::Data]
        };
        let mut cuts = Vec::new();
        for other in from {
            for plane in planes {
                cuts.extend(out.then_some((*plane, at, other)));
                cuts.extend(into.then_some((*plane, other, at)));
            }
        }
        !cuts.is_empty() && self.cut(cuts)
    }

    /// Two sides that do not reach each other, and one process that both reach.
    fn bridge(&mut self) -> bool {
        let n = self.slots.len();
        if n < 3 {
            return false;
        }
        let bridge = self.rng.random_range(0..n);
        let side: Vec<bool> = (0..n).map(|_| self.rng.random_bool(0.5)).collect();
        let mut cuts = Vec::new();
        for a in (0..n).filter(|a| *a != bridge) {
            for b in (0..n).filter(|b| *b != bridge && side[a] != side[*b]) {
                cuts.extend([(Plane::Control, a, b), (Plane::Data, a, b)]);
            }
        }
        !cuts.is_empty() && self.cut(cuts)
    }

    fn cut_data(&mut self) -> bool {
        let Some((a, b)) = self.two_slots() else {
            return false;
        };
        let cuts = if self.rng.random_bool(0.5) {
            vec![(Plane::Data, a, b)]
        } else {
            vec![(Plane::Data, a, b), (Plane::Data, b, a)]
        };
        self.cut(cuts)
    }

    fn cut_control(&mut self) -> bool {
        let Some((a, b)) = self.two_slots() else {
            return false;
        };
        let cuts = if self.rng.random_bool(0.5) {
            vec![(Plane::Control, a, b)]
        } else {
            vec![(Plane::Control, a, b), (Plane::Control, b, a)]
        };
        self.cut(cuts)
    }

    fn break_one(&mut self) -> bool {
        // Now and then a mailbox between two data threads of a process, if it has several.
        if self.mix.threads.iter().any(|threads| *threads > 1)
            && self.rng.random_bool(0.3)
            && let Some(p) = self.one().filter(|p| self.processes[*p].threads.len() > 1)
        {
            let t = self.rng.random_range(0..self.processes[p].threads.len());
            self.tell_fault(|w| {
                format!(
                    "a line of data thread {t} of {} to another one breaks",
                    w.name(p)
                )
            });
            self.data((p, t), DataInput::BreakLine);
            return true;
        }
        let open: Vec<u64> = self
            .network
            .connections
            .iter()
            .filter(|(_, c)| !c.broken)
            .map(|(id, _)| *id)
            .collect();
        if open.is_empty() {
            return false;
        }
        let id = open[self.rng.random_range(0..open.len())];
        let late = self.rng.random_range(0..2 * SECOND);
        self.tell_fault(|w| {
            let ends = w.network.connections[&id].ends.map(|((p, _), _)| w.name(p));
            format!("the connection of {} and {} breaks", ends[0], ends[1])
        });
        self.break_connection(id, late);
        true
    }

    /// Whether the cluster can go on without this process: every table that a member acts on must
    /// keep a majority of its voters and an in-sync copy of each partition among the processes that
    /// stay.
    pub(crate) fn may_go(&self, process: ProcessId) -> bool {
        let slot = self.processes[process].slot;
        // The stranger would begin another cluster every time.
        if self.is_stranger(slot) {
            return false;
        }
        let alive: BTreeSet<_> = self
            .running()
            .into_iter()
            .filter(|p| *p != process && self.processes[*p].leaving == Leaving::No)
            .map(|p| self.processes[p].me)
            .collect();
        let now = self.schedule.now();
        let answers = |p: &ProcessId| {
            let process = &self.processes[*p];
            let stalled =
                (0..process.threads.len()).any(|t| process.data_blocked(t, now).is_some());
            let slow = process.control_blocked(now).is_some() || stalled;
            !slow && !self.network.touched(process.slot) && process.leaving == Leaving::No
        };
        let impaired: BTreeSet<_> = self
            .running()
            .into_iter()
            .filter(|p| !answers(p))
            .map(|p| self.processes[p].me)
            .collect();
        let apart = self.apart();
        // The initial members must never all be outside of the cluster at once: they would form a
        // second one.
        let elsewhere = self.running().into_iter().any(|p| {
            p != process
                && (self.processes[p].slot < self.mix.founders || self.mix.founders == 1)
                && self.processes[p].leaving == Leaving::No
                && self.processes[p]
                    .view
                    .as_ref()
                    .is_some_and(|v| v.installed.member(self.processes[p].me).is_some())
        });
        let formed = self.oracle.any_committed();
        if formed && !elsewhere {
            return false;
        }
        if !formed {
            // A cluster of one that starts again begins another cluster, which is no fault of the
            // machine.
            return self.mix.founders > 1 || slot != 0;
        }
        let views = self
            .running()
            .into_iter()
            .filter(|p| Some(*p) != apart)
            .filter_map(|p| self.processes[p].view.as_ref());
        views.flat_map(|v| [&v.installed, &v.accepted]).all(|t| {
            let voters = majority(&t.voters, |m| alive.contains(&m));
            // A member that does not answer just now may be about to lose its vote. The table that
            // says so, once any member has stored it, needs the majority of the voters that are
            // left. If the older one of two dies then, it is missing for ever.
            let left: Vec<_> = t
                .voters
                .iter()
                .copied()
                .filter(|m| !impaired.contains(m))
                .collect();
            let voters = voters && (self.mix.reckless || majority(&left, |m| alive.contains(&m)));
            let copies = t
                .keyspaces
                .iter()
                .flat_map(|k| &k.partitions)
                .all(|p| p.in_sync().any(|m| alive.contains(&m)));
            voters && (copies || self.mix.reckless)
        })
    }

    fn crash_one(&mut self) -> bool {
        self.one().is_some_and(|p| self.crash(p))
    }

    fn crash_coordinator(&mut self) -> bool {
        self.coordinator().is_some_and(|p| self.crash(p))
    }

    fn crash(&mut self, p: ProcessId) -> bool {
        if !self.may_go(p) {
            return false;
        }
        let slot = self.processes[p].slot;
        let again = self.rng.random_range(20 * MS..6 * SECOND);
        self.tell_fault(|w| {
            format!(
                "{} is killed, and starts again in {:.3} s",
                w.name(p),
                again as f64 / 1e9
            )
        });
        self.end_process(p);
        self.schedule.after(again, Event::Start(slot));
        true
    }

    /// Kills every process at once and starts all again: they form another cluster, which knows
    /// nothing of the former one.
    fn restart_all(&mut self) -> bool {
        if self.mix.stranger || !self.oracle.any_committed() {
            return false;
        }
        self.tell_fault(|_| "every process is killed, and all start again".into());
        let again: Vec<usize> = (0..self.slots.len())
            .filter(|s| self.slots[*s].started)
            .collect();
        for p in self.running() {
            self.end_process(p);
        }
        self.oracle.all_ended();
        self.began_at = self.schedule.now();
        self.everything_is_lost();
        for slot in again {
            self.slots[slot].starts = 0;
            let later = self.rng.random_range(20 * MS..3 * SECOND);
            self.schedule.after(later, Event::Start(slot));
        }
        true
    }

    /// Its next process is of the present program. If the one that runs may not leave now, it is
    /// tried again.
    pub(crate) fn upgrade(&mut self, slot: usize) {
        // After the faults have ended, no process is stopped any more.
        if self.calm || !std::mem::take(&mut self.slots[slot].former) {
            return;
        }
        let Some(p) = self.slots[slot].process else {
            return;
        };
        let gone = if self.programs.random_bool(0.3) {
            self.crash(p)
        } else {
            self.leaves(p)
        };
        if gone {
            *self.faults.entry("upgrade").or_default() += 1;
        } else {
            self.slots[slot].former = true;
            self.schedule.after(SECOND, Event::Upgrade(slot));
        }
    }

    /// A process is refused because the level rose without it. An operator reads the reason, and
    /// starts the present program in its place.
    pub(crate) fn upgrade_refused(&mut self, p: ProcessId) {
        let slot = self.processes[p].slot;
        self.tell(|w| format!("{} speaks less than the level", w.name(p)));
        *self.faults.entry("refused for its level").or_default() += 1;
        self.end_process(p);
        self.slots[slot].former = false;
        self.schedule.after(100 * MS, Event::Start(slot));
    }

    fn leave_one(&mut self) -> bool {
        self.one().is_some_and(|p| self.leaves(p))
    }

    fn leaves(&mut self, p: ProcessId) -> bool {
        let process = &self.processes[p];
        let member = process
            .view
            .as_ref()
            .is_some_and(|v| v.installed.member(process.me).is_some());
        if !member || process.leaving != Leaving::No || !self.may_go(p) {
            return false;
        }
        self.tell_fault(|w| format!("{} is told to leave", w.name(p)));
        self.processes[p].leaving = Leaving::Asked;
        let me = self.processes[p].me;
        self.schedule.after(
            0,
            Event::Control(
                p,
                ControlInput::Of(me, Input::Leave(HandOverUrgency::Repair)),
            ),
        );
        true
    }

    fn join_one(&mut self) -> bool {
        let free: Vec<usize> = (self.mix.founders..self.slots.len())
            .filter(|s| !self.slots[*s].started)
            .collect();
        if free.is_empty() {
            return false;
        }
        self.tell_fault(|_| format!("n{} comes", free[0]));
        self.start(free[0]);
        true
    }

    fn slow_one(&mut self) -> bool {
        let slot = self.rng.random_range(0..self.slots.len());
        let factor = self.rng.random_range(3..SLOWNESS_MAX);
        let span = self.span(10 * SECOND);
        let until = self
            .network
            .slow
            .get(&slot)
            .map_or(0, |(_, until)| *until)
            .max(self.schedule.now() + span);
        self.network.slow.insert(slot, (factor, until));
        self.tell_fault(|_| {
            format!(
                "packets of n{slot} take {factor} times as long for {:.3} s",
                span as f64 / 1e9
            )
        });
        self.schedule.after(span, Event::Undo(Undo::Quicken(slot)));
        true
    }

    fn lose_much(&mut self) -> bool {
        let lost = self.rng.random_range(100..700);
        let span = self.span(6 * SECOND);
        self.network.burst = (lost, self.network.burst.1.max(self.schedule.now() + span));
        self.tell_fault(|_| {
            format!(
                "{lost} of 1000 datagrams are lost for {:.3} s",
                span as f64 / 1e9
            )
        });
        self.schedule.after(span, Event::Undo(Undo::Calm));
        true
    }

    fn false_hint(&mut self) -> bool {
        let (Some(at), Some(of)) = (self.one(), self.one()) else {
            return false;
        };
        if at == of {
            return false;
        }
        let subject = self.processes[of].me;
        let hint = match self.rng.random_range(0..3) {
            0 => Hint::Refused(subject),
            1 => Hint::Suspected(subject),
            _ => Hint::Alive(subject),
        };
        let me = self.processes[at].me;
        self.tell_fault(|w| {
            format!(
                "{} hears something wrong of {}: {hint:?}",
                w.name(at),
                w.name(of)
            )
        });
        self.schedule.after(
            0,
            Event::Control(at, ControlInput::Of(me, Input::Hint(hint))),
        );
        true
    }

    /// An operator asks for another number of copies, sets rules for copies, or switches moves for
    /// balance off.
    fn alter(&mut self) -> bool {
        let mut change = KeyspaceChange::default();
        match self.rng.random_range(0..14) {
            8..14 => return self.command_moves(),
            0 => {
                let schedulers = [Schedulers::ALL, Schedulers::MANUAL][self.rng.random_range(0..2)];
                return self.administer(AdminRequest::Schedule(schedulers));
            }
            1 | 2 => {
                let name = format!("n{}", self.rng.random_range(0..self.slots.len()));
                let rules = [
                    "primary in name=",
                    "primary not in name=",
                    "copies not in name=",
                ];
                let rule = format!("{}{name}", rules[self.rng.random_range(0..3)])
                    .parse()
                    .ok();
                change.rules = Some(
                    rule.filter(|_| self.rng.random_bool(0.7))
                        .into_iter()
                        .collect(),
                );
            }
            _ => change.backups = Some([0, 1, 1, 2, 2, 3][self.rng.random_range(0..6)]),
        }
        self.administer(AdminRequest::AlterKeyspace {
            name: DEFAULT_KEYSPACE.into(),
            change,
        })
    }

    /// An operator sets whether, when and how fast copies move, cancels moves, or drains a member.
    fn command_moves(&mut self) -> bool {
        let name = format!("n{}", self.rng.random_range(0..self.slots.len()));
        let request = match self.rng.random_range(0..10) {
            0 => AdminRequest::Balance(BalanceChange::Pause(Paused::Operator)),
            1 | 2 => AdminRequest::Balance(BalanceChange::Resume),
            3 => {
                let rate = [
                    MoveRate::Adaptive,
                    MoveRate::Bytes(64 << 10),
                    MoveRate::Bytes(1 << 20),
                ];
                AdminRequest::Balance(BalanceChange::Rate(rate[self.rng.random_range(0..3)]))
            }
            4 => {
                let window = self
                    .rng
                    .random_bool(0.5)
                    .then(|| "08:00-09:00".parse().ok())
                    .flatten();
                let minute = [8 * 60, 10 * 60][self.rng.random_range(0..2)];
                for p in self
                    .slots
                    .iter()
                    .filter_map(|s| s.process)
                    .collect::<Vec<_>>()
                {
                    let me = self.processes[p].me;
                    self.schedule.after(
                        0,
                        Event::Control(p, ControlInput::Of(me, Input::Minute(minute))),
                    );
                }
                AdminRequest::Balance(BalanceChange::Window(window))
            }
            5 | 6 => AdminRequest::Cancel(None),
            7 | 8 => AdminRequest::Drain { name },
            _ => AdminRequest::Fill { name },
        };
        self.administer(request)
    }

    /// An operator creates a keyspace that no client uses, or drops it, while copies of it may be
    /// moving.
    fn make_or_drop(&mut self) -> bool {
        let name = ["one", "other"][self.rng.random_range(0..2)].to_owned();
        if self.rng.random_range(0..2) == 0 {
            return self.administer(AdminRequest::DropKeyspace { name });
        }
        let backups = self.rng.random_range(0..3);
        let (mode, division) = Placed::ALL[self.rng.random_range(0..3)].among(2, self.mix.founders);
        let on_loss = OnLoss::Reset { after_ms: 1000 };
        self.administer(AdminRequest::CreateKeyspace(NewKeyspace {
            name,
            mode,
            division,
            backups,
            min_in_sync: 1,
            on_loss,
            default_ttl_ms: None,
            eviction: Eviction::None,
            ordered: false,
            rules: Vec::new(),
            durability: None,
        }))
    }

    /// An operator splits or merges partitions of the keyspace that most clients use.
    fn reshape(&mut self) -> bool {
        let keyspace = [DEFAULT_KEYSPACE, DEFAULT_KEYSPACE, DEFAULT_KEYSPACE, "one"]
            [self.rng.random_range(0..4)]
        .to_owned();
        if self.mix.placed == Placed::Fixed {
            let partitions = self.mix.partitions << self.rng.random_range(1..4);
            let change = KeyspaceChange {
                partitions: Some(partitions),
                ..KeyspaceChange::default()
            };
            return self.administer(AdminRequest::AlterKeyspace {
                name: keyspace,
                change,
            });
        }
        let key = SPLITS[self.rng.random_range(0..SPLITS.len())]
            .as_bytes()
            .into();
        let map = MapId([0, 0, 0, 1, 2][self.rng.random_range(0..5)]);
        let split = self.rng.random_bool(0.6);
        self.administer(if split {
            AdminRequest::SplitAt { keyspace, map, key }
        } else {
            AdminRequest::MergeAt { keyspace, map, key }
        })
    }

    fn administer(&mut self, request: AdminRequest) -> bool {
        let Some(at) = self.one() else { return false };
        // Tickets of clients are far below.
        let (ticket, me) = (1 << 63 | u64::from(self.next_fault), self.processes[at].me);
        self.tell_fault(|w| format!("{} is asked for {request:?}", w.name(at)));
        self.schedule.after(
            0,
            Event::Control(at, ControlInput::Of(me, Input::Admin { ticket, request })),
        );
        true
    }

    /// An operator says, at any time, which processes are dead. It is true, and mostly nothing
    /// comes of it. The operator speaks to a member that went on: one that the others have left
    /// behind would make another cluster, and only an operator could know better.
    fn recover_one(&mut self) -> bool {
        let order = |p: ProcessId, world: &Self| {
            world.processes[p]
                .view
                .as_ref()
                .map(|v| v.accepted.name().order())
        };
        let newest = self
            .slots
            .iter()
            .filter_map(|s| s.process)
            .filter_map(|p| order(p, self))
            .max();
        self.one()
            .filter(|p| order(*p, self) == newest)
            .is_some_and(|p| self.operator_speaks(p, None))
    }

    fn jump(&mut self) -> bool {
        let Some(p) = self.one() else { return false };
        let by = self.rng.random_range(-3_600_000..3_600_000);
        self.tell_fault(|w| format!("the wall clock of {} jumps by {by} ms", w.name(p)));
        self.processes[p].wall_skew_ms += by;
        true
    }
}
