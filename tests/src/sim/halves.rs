//! A mistake of an operator (rule 13): a minority is cut off, the others are said to be dead there,
//! and the cut heals.
//!
//! ```text
//!   cut ──> the others expel it ──> a false word ──> both halves serve ──> they meet ──> one stops,
//!                                                                          and is started again
//! ```
//! What the recovered half answered since the word, until they meet, counts nothing in the
//! histories of the others: they must read as if it had never been (`Histories::apart`). No other
//! fault that ends processes or cuts connections comes meanwhile, so it is known by when the halves
//! must know of each other.

use super::fault::Undo;
use super::network::Plane;
use super::process::{Leaving, ProcessId};
use super::schedule::{Event, MS, Nanos, SECOND};
use super::world::World;
use doyen_placement::quorum::majority;
use doyen_placement::{MemberId, MemberState, Table};
use rand::Rng;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How long all of it takes at most, on a fast network.
pub(crate) const LASTS: Nanos = 26 * SECOND;
/// How long a minority is cut off before the operator speaks.
const CUT: Nanos = 3 * SECOND;
/// How soon the recovered half stops once the cut has healed, and packets on slow networks more.
const STOPS_WITHIN: Nanos = 6 * SECOND;
const ROUND_TRIPS: u64 = 60;
/// How often the operator waits until the others have gone on.
const WAITS_MAX: u32 = 12;

/// The faults that may come meanwhile.
pub(crate) const HARMLESS: [&str; 6] = [
    "connection break",
    "wall clock jump",
    "false hint",
    "alteration",
    "keyspace",
    "reshaping",
];

/// The next step.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Cut,
    Word { waited: u32 },
    Heal,
    Met,
}

/// The slots that are cut off, and from which ones.
#[derive(Debug)]
pub(crate) struct Minority {
    slots: BTreeSet<usize>,
    cuts: Vec<(Plane, usize, usize)>,
}

impl World {
    pub(crate) fn halves(&mut self, step: Step) {
        match step {
            Step::Cut => self.cut_a_minority(),
            Step::Word { waited } => self.say_that_the_others_are_dead(waited),
            Step::Heal => self.let_the_halves_meet(),
            Step::Met => self.restart_the_half_that_stopped(),
        }
    }

    /// The processes of these slots, or of all others.
    fn side(&self, slots: &BTreeSet<usize>, inside: bool) -> Vec<ProcessId> {
        let side = (0..self.slots.len()).filter(|slot| slots.contains(slot) == inside);
        side.filter_map(|slot| self.slots[slot].process).collect()
    }

    fn ids(&self, side: &[ProcessId]) -> BTreeSet<MemberId> {
        side.iter().map(|p| self.processes[*p].me).collect()
    }

    fn tables(&self, side: &[ProcessId]) -> Vec<Arc<Table>> {
        let views = side.iter().filter_map(|p| self.processes[*p].view.as_ref());
        views
            .flat_map(|v| [v.installed.clone(), v.accepted.clone()])
            .collect()
    }

    /// Whether the others can go on without these slots, and only an operator's word lets these go
    /// on.
    fn is_minority(&self, slots: &BTreeSet<usize>) -> bool {
        let (inside, outside) = (self.side(slots, true), self.side(slots, false));
        let (here, there) = (self.ids(&inside), self.ids(&outside));
        let all: Vec<ProcessId> = inside.iter().chain(&outside).copied().collect();
        let tables = self.tables(&all);
        let settled = all.iter().all(|p| {
            let process = &self.processes[*p];
            process.leaving == Leaving::No && process.view.is_some()
        });
        let votes = |t: &Arc<Table>| t.voters.iter().any(|v| here.contains(v));
        let goes_on = |t: &Arc<Table>| majority(&t.voters, |m| there.contains(&m)) && votes(t);
        settled && !inside.is_empty() && tables.iter().all(goes_on)
    }

    fn cut_a_minority(&mut self) {
        if self.calm || self.schedule.now() + LASTS > 4 * SECOND + self.mix.faulty {
            return;
        }
        let n = self.slots.len();
        let slots: BTreeSet<usize> = (0..n).filter(|_| self.halving.random_bool(0.4)).collect();
        if !self.oracle.any_committed() || !self.is_minority(&slots) {
            return self.schedule.after(100 * MS, Event::Halves(Step::Cut));
        }
        let mut cuts = Vec::new();
        for a in &slots {
            for b in (0..n).filter(|b| !slots.contains(b)) {
                for plane in [Plane::Control, Plane::Data] {
                    cuts.extend([(plane, *a, b), (plane, b, *a)]);
                }
            }
        }
        self.tell(|_| format!("{slots:?} are cut off from all others"));
        cuts.iter().for_each(|cut| self.network.cut(cut));
        self.minority = Some(Minority { slots, cuts });
        self.schedule
            .after(CUT, Event::Halves(Step::Word { waited: 0 }));
    }

    fn say_that_the_others_are_dead(&mut self, waited: u32) {
        let Some(minority) = &self.minority else {
            return;
        };
        let inside = self.side(&minority.slots, true);
        let outside = self.side(&minority.slots, false);
        let here = self.ids(&inside);
        let led = |side: &[ProcessId]| {
            side.iter().any(|p| {
                let process = &self.processes[*p];
                let status = process.agreement.status(process.clock(self.schedule.now()));
                status.coordinator.is_some()
            })
        };
        // Once the others have gone on, what they acknowledge needs nothing of these.
        let newest = self.tables(&outside).into_iter();
        let newest = newest.max_by_key(|table| table.name().order());
        let expelled = newest.is_some_and(|table| {
            let lives = |m: &MemberId| table.member(*m).map(|m| m.state) == Some(MemberState::Live);
            !here.iter().any(lives)
        });
        if !expelled || led(&inside) || !led(&outside) {
            let next = if waited < WAITS_MAX {
                Step::Word { waited: waited + 1 }
            } else {
                Step::Heal
            };
            return self.schedule.after(500 * MS, Event::Halves(next));
        }
        let voters = inside.iter().filter_map(|p| {
            let view = self.processes[*p].view.as_ref()?;
            let me = self.processes[*p].me;
            let votes = view.accepted.voters.contains(&me) && view.installed.voters.contains(&me);
            votes.then(|| (view.accepted.name().order(), *p))
        });
        if let Some((_, p)) = voters.max()
            && self.operator_speaks(p, Some(&here))
        {
            self.give_up_calls_through(&inside);
            *self.faults.entry("false word").or_default() += 1;
        }
        let serves = self.halving.random_range(SECOND..5 * SECOND);
        self.schedule.after(serves, Event::Halves(Step::Heal));
    }

    fn let_the_halves_meet(&mut self) {
        let Some(minority) = &self.minority else {
            return;
        };
        self.undo(Undo::Heal(minority.cuts.clone()));
        self.histories.met = Some(self.histories.moment(self.schedule.now()));
        let packet = self.mix.delay_min + self.mix.jitter;
        let within = STOPS_WITHIN + packet * ROUND_TRIPS;
        self.schedule.after(within, Event::Halves(Step::Met));
    }

    /// What was recovered serves nothing any more. An operator starts it again, with those that
    /// joined it since.
    fn restart_the_half_that_stopped(&mut self) {
        if self.minority.take().is_none() {
            return;
        }
        let now = self.schedule.now();
        let running: Vec<ProcessId> = self.slots.iter().filter_map(|slot| slot.process).collect();
        for p in running {
            let process = &self.processes[p];
            let (me, slot) = (process.me, process.slot);
            if !self.oracle.is_apart(me) {
                continue;
            }
            if process.lease > process.clock(now) {
                let name = self.name(p);
                return self.broken(format!(
                    "rule 13: {name} was recovered, has met the others, and may still answer"
                ));
            }
            *self.faults.entry("half that stopped").or_default() += 1;
            self.tell(|w| format!("an operator starts {} again", w.name(p)));
            self.end_process(p);
            let again = self.halving.random_range(100 * MS..SECOND);
            self.schedule.after(again, Event::Start(slot));
        }
    }
}
